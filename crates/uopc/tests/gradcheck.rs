//! Every rule against finite differences, at orders 1 and 2, in f64 through the interpreter.
//!
//! A case builds a node from inputs. Its value is weighted by fixed numbers and summed to a loss
//! L. Order 1 compares, for one random direction v, the slope of L along v with the inner product
//! of v and the gradient. Order 2 does the same with the slope of L along another direction in
//! place of L: the gradient is differentiated once more. Slopes come from differences of the
//! interpreter's values, which know nothing of the rules.
//!
//! All cases run in f32 through compiled code too: equal to the interpreter to the last bit, and
//! near the value in f64.

mod oracle;

use std::sync::Arc;

use oracle::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uopc::autodiff::gradient;
use uopc::compile::{Engine, RealizeOptions};
use uopc::debug::Settings;
use uopc::interp::Array;
use uopc::ir::composite::{cat, flip, pad};
use uopc::ir::op::{Class, OPS, ParamMode, ReduceOp, StageKind};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, UOp};
use uopc::runtime::Storage;

/// Where the inputs of a case lie: inside a region where the function is smooth, and far enough
/// from its edge for the differences.
#[derive(Clone, Copy)]
enum Domain {
    /// -2 to 2.
    Real,
    /// 0.5 to 2.
    Positive,
    /// Multiples of 1/4 that differ from each other by at least 1/4, so that no comparison of
    /// two inputs, or of an input with an odd multiple of 1/8, changes within a difference.
    Apart,
    /// Multiples of 2^-8: together with steps that are powers of two exact in f32.
    Dyadic,
    /// -2 to 2 with two exact zeros in each input.
    Zeros,
}

use Domain::*;

struct Case {
    /// The mnemonic of the op that the case is about, or what is composed.
    name: &'static str,
    /// The op in question, if the case is about one.
    op: Option<&'static str>,
    /// The shapes of the inputs.
    inputs: &'static [&'static [usize]],
    domain: Domain,
    build: fn(&[UOp]) -> UOp,
}

/// A case that is about the op of that name.
const fn op(
    name: &'static str,
    inputs: &'static [&'static [usize]],
    domain: Domain,
    build: fn(&[UOp]) -> UOp,
) -> Case {
    Case {
        name,
        op: Some(name),
        inputs,
        domain,
        build,
    }
}

/// Another case of an op.
const fn also(
    op: &'static str,
    name: &'static str,
    inputs: &'static [&'static [usize]],
    domain: Domain,
    build: fn(&[UOp]) -> UOp,
) -> Case {
    Case {
        name,
        op: Some(op),
        inputs,
        domain,
        build,
    }
}

/// A composition of ops.
const fn composed(
    name: &'static str,
    inputs: &'static [&'static [usize]],
    domain: Domain,
    build: fn(&[UOp]) -> UOp,
) -> Case {
    Case {
        name,
        op: None,
        inputs,
        domain,
        build,
    }
}

const V: &[usize] = &[5];
const M: &[usize] = &[2, 3];
const T: &[usize] = &[2, 3, 4];

/// Ops without a gradient, each with the reason.
const NON_DIFFERENTIABLE: &[(&str, &str)] = &[
    ("iota", "integers, and no sources"),
    (
        "trunc",
        "piecewise constant: the derivative is 0 where there is one",
    ),
    (
        "bitcast",
        "the bits of a float are no number that varies smoothly with it",
    ),
    ("cmplt", "gives a bool"),
    ("cmpne", "gives a bool"),
    ("floordiv", "integers"),
    ("floormod", "integers"),
    ("and", "integers and bools"),
    ("or", "integers and bools"),
    ("xor", "integers and bools"),
    ("shl", "integers"),
    ("shr", "integers"),
    (
        "scatter_add",
        "refused with an error until the op itself is implemented",
    ),
    (
        "scan",
        "refused with an error until the op itself is implemented",
    ),
    ("argsort", "gives positions, which are integers"),
    (
        "custom",
        "refused with an error until the op itself is implemented",
    ),
];

const CASES: &[Case] = &[
    op("const", &[V], Real, |x| &x[0] * &number(&x[0], 1.75)),
    op("buffer", &[V], Real, |x| x[0].clone()),
    op("param", &[V], Real, |x| square(&x[0])),
    op("add", &[V, V], Real, |x| &x[0] + &x[1]),
    also("add", "add to itself", &[V], Real, |x| &x[0] + &x[0]),
    op("mul", &[V, V], Real, |x| &x[0] * &x[1]),
    also("mul", "cube", &[V], Real, |x| &(&x[0] * &x[0]) * &x[0]),
    op("max", &[V, V], Apart, |x| {
        square(&x[0].maximum(&x[1]).unwrap())
    }),
    op("recip", &[V], Positive, |x| x[0].recip().unwrap()),
    op("div", &[V, V], Positive, |x| x[0].div(&x[1]).unwrap()),
    also("div", "x/x^2", &[V], Positive, |x| {
        x[0].div(&square(&x[0])).unwrap()
    }),
    op("exp2", &[V], Real, |x| x[0].exp2().unwrap()),
    op("log2", &[V], Positive, |x| x[0].log2().unwrap()),
    op("exp", &[V], Real, |x| x[0].exp().unwrap()),
    op("sqrt", &[V], Positive, |x| x[0].sqrt().unwrap()),
    op("sin", &[V], Real, |x| x[0].sin().unwrap()),
    also("sin", "cos", &[V], Real, |x| x[0].cos().unwrap()),
    also("sin", "-sin", &[V], Real, |x| x[0].sin_turned(2).unwrap()),
    also("sin", "-cos", &[V], Real, |x| x[0].sin_turned(3).unwrap()),
    op("mulacc", &[V, V, V], Real, |x| {
        x[0].mulacc(&x[1], &x[2]).unwrap()
    }),
    also("mulacc", "mulacc of itself", &[V], Real, |x| {
        x[0].mulacc(&x[0], &square(&x[0])).unwrap()
    }),
    op("cast", &[V], Dyadic, |x| {
        let narrow = if x[0].dtype() == DType::F64 {
            DType::F32
        } else {
            DType::F64
        };
        square(&x[0].cast(narrow).unwrap().cast(x[0].dtype()).unwrap())
    }),
    op("where", &[V, V, V], Apart, |x| {
        let positive = number(&x[0], 0.125).cmplt(&x[0]).unwrap();
        positive
            .where_(&square(&x[1]), &x[2].exp().unwrap())
            .unwrap()
    }),
    op("reshape", &[M], Real, |x| {
        square(&x[0].reshape(&[3, 2]).unwrap())
    }),
    op("expand", &[&[2, 1]], Real, |x| {
        let wide = x[0].expand(&[2, 3]).unwrap();
        &wide * &wide.exp().unwrap()
    }),
    also(
        "expand",
        "expand an inner axis",
        &[&[2, 1, 3], T2],
        Real,
        |x| &square(&x[0].expand(T2).unwrap()) * &x[1],
    ),
    op("permute", &[T], Real, |x| {
        square(&x[0].permute(&[1, 2, 0]).unwrap())
    }),
    op("shrink", &[M], Real, |x| {
        square(&x[0].shrink(&[(0, 2), (1, 3)]).unwrap())
    }),
    op("stack", &[V, V], Real, |x| {
        square(&UOp::stack(&[x[0].clone(), x[1].clone(), x[0].clone()]).unwrap())
    }),
    op("index", &[T], Real, |x| {
        square(&x[0].index(&constants(&[1, 2])).unwrap())
    }),
    also("index", "index of one axis", &[M], Real, |x| {
        square(&x[0].index(&constants(&[1])).unwrap())
    }),
    also("index", "index by a reversal", &[M], Real, |x| {
        &square(&flip(&x[0], &[0, 1]).unwrap()) * &x[0]
    }),
    op("reduce", &[T], Real, |x| {
        square(&x[0].reduce(ReduceOp::Add, 2).unwrap())
    }),
    also("reduce", "reduce by maximum", &[M], Apart, |x| {
        square(&x[0].reduce(ReduceOp::Max, 1).unwrap())
    }),
    also("reduce", "reduce all by maximum", &[T], Apart, |x| {
        square(&x[0].reduce(ReduceOp::Max, 3).unwrap())
    }),
    also("reduce", "reduce by product", &[T], Real, |x| {
        x[0].reduce(ReduceOp::Mul, 2).unwrap()
    }),
    also("reduce", "product with zeros", &[V], Zeros, |x| {
        x[0].reduce(ReduceOp::Mul, 1).unwrap()
    }),
    also("reduce", "product of nine", &[&[9]], Real, |x| {
        x[0].reduce(ReduceOp::Mul, 1).unwrap()
    }),
    op("stage", &[V], Real, |x| {
        square(&x[0].stage(StageKind::Materialise).unwrap())
    }),
    also("stage", "stage remat", &[V], Real, |x| {
        square(&x[0].stage(StageKind::Remat).unwrap())
    }),
    composed("matrix product", &[&[2, 3], &[3, 4]], Real, |x| {
        matmul(&x[0], &x[1]).sin().unwrap()
    }),
    composed("matrix times its transpose", &[&[3, 4]], Real, |x| {
        matmul(&x[0], &x[0].permute(&[1, 0]).unwrap())
            .sin()
            .unwrap()
    }),
    composed("softmax", &[&[3, 4]], Real, |x| softmax(&x[0])),
    composed("cross-entropy", &[&[3, 4]], Real, |x| {
        let hot: Vec<UOp> = (0..3)
            .map(|i| constants(&[i, (i + 1) % 4]))
            .map(|at| log_softmax(&x[0]).index(&at).unwrap())
            .collect();
        UOp::stack(&hot).unwrap()
    }),
    composed("layer norm", &[&[2, 4], &[4], &[4]], Real, |x| {
        layer_norm(&x[0], &x[1], &x[2])
    }),
    composed("sigmoid", &[V], Apart, |x| sigmoid(&x[0])),
    composed("tanh", &[V], Real, |x| tanh(&x[0])),
    composed("gelu", &[V], Real, |x| gelu(&x[0])),
    composed("silu", &[V], Apart, |x| &x[0] * &sigmoid(&x[0])),
    composed("sum of shifted windows", &[&[6], &[3]], Real, |x| {
        // A convolution: window k of the signal times weight k.
        let terms = (0..3).map(|k| {
            let weight = x[1].index(&constants(&[k])).unwrap();
            let weight = weight.broadcast_scalar(&[4].as_slice().into()).unwrap();
            &x[0].shrink(&[(k as usize, k as usize + 4)]).unwrap() * &weight
        });
        square(&terms.reduce(|a, b| &a + &b).expect("three terms"))
    }),
    composed("pad and cut", &[&[3, 4]], Real, |x| {
        let padded = pad(&x[0], &[(1, 1), (0, 2)]).unwrap();
        square(&padded.shrink(&[(1, 3), (1, 6)]).unwrap())
    }),
    composed("joined parts", &[&[2, 3], &[2, 2]], Real, |x| {
        square(&cat(&[x[0].clone(), x[1].clone(), x[0].clone()], 1).unwrap())
    }),
    composed("root of a sum of squares", &[V], Real, |x| {
        let squares = &square(&x[0]) + &number(&x[0], 1.0);
        squares.sqrt().unwrap().recip().unwrap()
    }),
    composed("deep chain", &[V], Real, |x| {
        (0..30).fold(x[0].clone(), |u, _| (&u + &x[0]).sin().unwrap())
    }),
];

const T2: &[usize] = &[2, 2, 3];

fn constants(at: &[i64]) -> Vec<UOp> {
    at.iter().map(|&c| UOp::int(c, DType::I32)).collect()
}

fn square(x: &UOp) -> UOp {
    x * x
}

/// `(m, k) @ (k, n)` as EXPAND, MUL and REDUCE.
fn matmul(x: &UOp, w: &UOp) -> UOp {
    let (m, k, n) = (x.shape()[0], x.shape()[1], w.shape()[1]);
    let xe = x.reshape(&[m, 1, k]).unwrap().expand(&[m, n, k]).unwrap();
    let we = w.permute(&[1, 0]).unwrap().reshape(&[1, n, k]).unwrap();
    (&xe * &we.expand(&[m, n, k]).unwrap())
        .reduce(ReduceOp::Add, 1)
        .unwrap()
}

/// A value of each row, repeated along it.
fn along(u: &UOp, like: &UOp) -> UOp {
    let mut column = like.shape().to_vec();
    *column.last_mut().expect("rows have an axis") = 1;
    u.reshape(&column).unwrap().expand(like.shape()).unwrap()
}

fn row_sum(x: &UOp) -> UOp {
    along(&x.reduce(ReduceOp::Add, 1).unwrap(), x)
}

/// Shifted by the largest of the row, which is detached: it changes no value.
fn shifted(x: &UOp) -> UOp {
    let top = x
        .reduce(ReduceOp::Max, 1)
        .unwrap()
        .stage(StageKind::Detach)
        .unwrap();
    x.sub(&along(&top, x)).unwrap()
}

fn softmax(x: &UOp) -> UOp {
    let e = shifted(x).exp().unwrap();
    e.div(&row_sum(&e)).unwrap()
}

fn log_softmax(x: &UOp) -> UOp {
    let z = shifted(x);
    let log = row_sum(&z.exp().unwrap()).log2().unwrap();
    z.sub(&(&log * &number(&log, std::f64::consts::LN_2)))
        .unwrap()
}

fn layer_norm(x: &UOp, scale: &UOp, shift: &UOp) -> UOp {
    let n = x.shape()[1] as f64;
    let mean = row_sum(x).div(&number(x, n)).unwrap();
    let centred = x.sub(&mean).unwrap();
    let variance = row_sum(&square(&centred)).div(&number(x, n)).unwrap();
    let deviation = (&variance + &number(x, 1e-5)).sqrt().unwrap();
    let row = |w: &UOp| w.reshape(&[1, 4]).unwrap().expand(x.shape()).unwrap();
    &(&centred.div(&deviation).unwrap() * &row(scale)) + &row(shift)
}

/// No branch overflows: with z = exp(-|x|), 1/(1+z) for positive x and z/(1+z) for negative.
fn sigmoid(x: &UOp) -> UOp {
    let negative = x.cmplt(&number(x, 0.0)).unwrap();
    let z = negative.where_(x, &-x).unwrap().exp().unwrap();
    let one = number(x, 1.0);
    negative
        .where_(&z, &one)
        .unwrap()
        .div(&(&one + &z))
        .unwrap()
}

fn tanh(x: &UOp) -> UOp {
    let two = number(x, 2.0);
    (&two * &sigmoid(&(&two * x))).sub(&number(x, 1.0)).unwrap()
}

fn gelu(x: &UOp) -> UOp {
    let inner = x + &(&(&square(x) * x) * &number(x, 0.044715));
    let scaled = &inner * &number(x, (8.0 / std::f64::consts::PI).sqrt());
    x * &sigmoid(&scaled)
}

// ---- the check ----

/// A case with numbers: its loss as a function of the inputs.
struct Instance {
    targets: Vec<UOp>,
    loss: UOp,
    /// The number of the first slot.
    base: u32,
    /// Inputs, then the weights of the loss, then two directions for each input.
    slots: Vec<Vec<f64>>,
}

fn instance(case: &Case, dtype: DType, base: u32) -> Instance {
    let mut rng = StdRng::seed_from_u64(7);
    // The inputs are buffers, but for the case that is about the arguments of kernels.
    let leaf = |(k, dims): (usize, &&[usize])| match case.op {
        Some("param") => UOp::param(base + k as u32, ParamMode::In, dtype, dims[0]),
        _ => input_of(base + k as u32, dims, dtype),
    };
    let targets: Vec<UOp> = case.inputs.iter().enumerate().map(leaf).collect();
    let mut slots: Vec<Vec<f64>> = case
        .inputs
        .iter()
        .map(|dims| sample(case.domain, dims, &mut rng))
        .collect();
    let u = (case.build)(&targets);
    assert_eq!(u.dtype(), dtype, "{}", case.name);
    let weights = input_of(base + slots.len() as u32, u.shape(), dtype);
    let loss = sum(&(&u * &weights));
    // Few bits, so that the product with a value that has few bits is exact.
    let weight = |_| f64::from(rng.random_range(8..=24)) / 16.0;
    slots.push((0..u.shape().numel()).map(weight).collect());
    for _ in 0..2 {
        for dims in case.inputs {
            let n = dims.iter().product();
            slots.push((0..n).map(|_| dyadic(&mut rng, 16, 16.0)).collect());
        }
    }
    Instance {
        targets,
        loss,
        base,
        slots,
    }
}

/// A multiple of 1/step in -range/step to range/step, never 0.
fn dyadic(rng: &mut StdRng, range: i32, step: f64) -> f64 {
    let k = rng.random_range(1..=range);
    f64::from(if rng.random_bool(0.5) { k } else { -k }) / step
}

fn sample(domain: Domain, dims: &[usize], rng: &mut StdRng) -> Vec<f64> {
    let n = dims.iter().product();
    match domain {
        Real => (0..n).map(|_| rng.random_range(-2.0..2.0)).collect(),
        Positive => (0..n).map(|_| rng.random_range(0.5..2.0)).collect(),
        Dyadic => (0..n).map(|_| dyadic(rng, 512, 256.0)).collect(),
        Zeros => {
            let mut x = sample(Real, dims, rng);
            x[0] = 0.0;
            x[n - 1] = 0.0;
            x
        }
        Apart => {
            // All different, and drawn from odd or even quarters so that inputs differ too.
            let parity = rng.random_range(0..2);
            let mut pool: Vec<i32> = (-16..16).map(|k| 2 * k + parity).collect();
            let mut draw = || pool.swap_remove(rng.random_range(0..pool.len()));
            (0..n).map(|_| f64::from(draw()) / 4.0).collect()
        }
    }
}

impl Instance {
    /// The inputs moved by `t` along direction number `d`.
    fn moved(&self, d: usize, t: f64) -> Vec<Vec<f64>> {
        let mut slots = self.slots.clone();
        for (k, x) in slots.iter_mut().take(self.targets.len()).enumerate() {
            for (x, v) in x.iter_mut().zip(self.direction(d, k)) {
                *x += t * v;
            }
        }
        slots
    }

    fn direction(&self, d: usize, k: usize) -> &[f64] {
        &self.slots[self.direction_slot(d, k)]
    }

    fn direction_slot(&self, d: usize, k: usize) -> usize {
        let n = self.targets.len();
        n + 1 + d * n + k
    }

    /// The derivative of a scalar node along direction `d`, from differences of sixth order.
    fn slope(&self, u: &UOp, d: usize, step: f64) -> f64 {
        let at = |t: f64| {
            let slots = self.moved(d, t * step);
            let slots: Vec<&[f64]> = slots.iter().map(Vec::as_slice).collect();
            value(u, &slots)[0]
        };
        let odd = |t: f64| at(t) - at(-t);
        (45.0 * odd(1.0) - 9.0 * odd(2.0) + odd(3.0)) / (60.0 * step)
    }

    /// The inner product of the gradients of `u` and direction `d`, as a node.
    fn inner_product(&self, u: &UOp, d: usize) -> UOp {
        let found = gradient(u, &self.targets).unwrap();
        let terms = found
            .iter()
            .zip(&self.targets)
            .enumerate()
            .map(|(k, (g, x))| {
                let slot = self.base + self.direction_slot(d, k) as u32;
                sum(&(g * &input_of(slot, x.shape(), x.dtype())))
            });
        terms.reduce(|a, b| &a + &b).expect("a case has an input")
    }

    /// The sum of the magnitudes of the terms of [`Self::inner_product`].
    fn magnitude(&self, u: &UOp, d: usize) -> f64 {
        let slots: Vec<&[f64]> = self.slots.iter().map(Vec::as_slice).collect();
        let found = gradients(u, &self.targets, &slots);
        let terms = found
            .iter()
            .enumerate()
            .flat_map(|(k, g)| g.iter().zip(self.direction(d, k)));
        terms.map(|(g, v)| (g * v).abs()).sum()
    }

    fn number(&self, u: &UOp) -> f64 {
        let slots: Vec<&[f64]> = self.slots.iter().map(Vec::as_slice).collect();
        value(u, &slots)[0]
    }
}

/// The relative error allowed between a slope and an inner product. The differences are of sixth
/// order with a step of 2^-8: they leave about (2^-8)^6 of the seventh derivative, 1e-14, and 2^8
/// roundings of an f64, 1e-13.
const TOLERANCE: f64 = 1e-6;
const STEP: f64 = 1.0 / 256.0;

fn check(case: &Case, order: usize) {
    let it = instance(case, DType::F64, 0);
    // The slope along direction 1 stands for the loss at order 2.
    let loss = if order == 1 {
        it.loss.clone()
    } else {
        it.inner_product(&it.loss, 1)
    };
    let analytic = it.number(&it.inner_product(&loss, 0));
    let numeric = it.slope(&loss, 0, STEP);
    let error = (analytic - numeric).abs();
    let scale = analytic.abs().max(numeric.abs());
    assert!(
        error <= TOLERANCE * scale || error < 1e-12,
        "{} at order {order}: the gradient says {analytic}, the differences {numeric}",
        case.name
    );
}

#[test]
fn order_1_agrees_with_finite_differences() {
    CASES.iter().for_each(|case| check(case, 1));
}

#[test]
fn order_2_agrees_with_finite_differences() {
    CASES.iter().for_each(|case| check(case, 2));
}

/// How far a derivative in f32 may lie from that in f64, relative to the sum of the magnitudes of
/// its terms: f32 rounds to 6e-8, the cases are up to some dozens of ops deep, and differences
/// inside them (a row less its mean) magnify what was rounded before.
const TOLERANCE_F32: f64 = 2e-5;

#[test]
fn compiled_f32_is_the_interpreter_to_the_bit_and_near_f64() {
    // A kernel's parameter has no memory of its own to run on.
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| case.op != Some("param"))
        .collect();
    let engine = Engine::new(Settings::default()).unwrap();
    // Many cases a plan, so that the C compiler is called a few times and not for each.
    for cases in cases.chunks(20) {
        let mut slots: Vec<Vec<f64>> = Vec::new();
        let mut roots = Vec::new();
        for case in cases {
            let it = instance(case, DType::F32, slots.len() as u32);
            let slope = it.inner_product(&it.loss, 1);
            roots.extend([it.inner_product(&it.loss, 0), it.inner_product(&slope, 0)]);
            roots.extend(gradient(&it.loss, &it.targets).unwrap());
            slots.extend(it.slots);
        }
        let compiled = realize(&engine, &roots, &slots);
        let bound: Vec<&[f64]> = slots.iter().map(Vec::as_slice).collect();
        for ((root, expected), found) in roots.iter().zip(arrays(&roots, &bound)).zip(&compiled) {
            let found = Array::from_f64(DType::F32, root.shape(), found).unwrap();
            assert_eq!(found.difference(&expected), None, "{}", root.to_uir());
        }
        let mut at = compiled.iter();
        for case in cases {
            let it = instance(case, DType::F64, 0);
            let slope = it.inner_product(&it.loss, 1);
            for (order, u) in [(1, &it.loss), (2, &slope)] {
                let found = at.next().expect("one value an order")[0];
                let exact = it.number(&it.inner_product(u, 0));
                let allowed = TOLERANCE_F32 * it.magnitude(u, 0);
                assert!(
                    (found - exact).abs() <= allowed,
                    "{} at order {order}: {found} in f32, {exact} in f64",
                    case.name
                );
            }
            at.nth(it.targets.len() - 1);
        }
    }
}

/// The values of f32 roots by the engine.
fn realize(engine: &Engine, roots: &[UOp], slots: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let bind = |(k, values): (usize, &Vec<f64>)| {
        let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        (k as u32, Storage::from_slice(&narrow).unwrap())
    };
    let slots: Vec<_> = slots.iter().enumerate().map(bind).collect();
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    let wide = |s: &Arc<Storage>| s.to_vec::<f32>().into_iter().map(f64::from).collect();
    let realized = engine.realize(roots, &options).unwrap();
    realized.outputs.iter().map(wide).collect()
}

#[test]
fn every_op_has_a_case_or_a_reason() {
    for info in OPS {
        let cases = CASES
            .iter()
            .filter(|case| case.op == Some(info.mnemonic))
            .count();
        let reason = NON_DIFFERENTIABLE
            .iter()
            .find(|(name, _)| *name == info.mnemonic);
        let outside = matches!(info.class, Class::Loop | Class::Program);
        match (outside, cases, reason) {
            // Not part of a shape graph; refused by name, see fact A8.
            (true, 0, None) => {}
            (false, 1.., None) => {}
            (false, 0, Some((_, reason))) => assert!(!reason.is_empty()),
            _ => panic!(
                "{}: give it a case in CASES or a reason in NON_DIFFERENTIABLE, not both",
                info.mnemonic
            ),
        }
    }
    let known = |name: &str| OPS.iter().any(|info| info.mnemonic == name);
    assert!(NON_DIFFERENTIABLE.iter().all(|(name, _)| known(name)));
    assert!(CASES.iter().filter_map(|case| case.op).all(known));
}

#[test]
fn a_case_contains_its_op_between_input_and_loss() {
    for case in CASES {
        let Some(name) = case.op else { continue };
        let it = instance(case, DType::F64, 0);
        let mut reached: Vec<UOp> = it.targets.clone();
        for u in toposort(std::slice::from_ref(&it.loss)) {
            if u.src().iter().any(|s| reached.contains(s)) {
                reached.push(u);
            }
        }
        let found = reached.iter().any(|u| u.op().mnemonic() == name);
        let is_leaf = OPS
            .iter()
            .any(|info| info.mnemonic == name && info.arity.1 == 0);
        assert!(
            found || is_leaf && count_op(&[it.loss], name) > 0,
            "{}",
            case.name
        );
    }
}

#[test]
fn a_wrong_gradient_is_noticed() {
    // The check itself: half the loss differentiated against the whole of it.
    let it = instance(&CASES[2], DType::F64, 0);
    let wrong = it.number(&it.inner_product(&(&it.loss * &number(&it.loss, 0.5)), 0));
    let numeric = it.slope(&it.loss, 0, STEP);
    assert!((wrong - numeric).abs() > 0.1 * numeric.abs());
}
