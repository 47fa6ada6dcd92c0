//! The functions whose derivatives are checked: at least one for each op that has any, and
//! compositions of them.

use std::sync::Arc;

use uopc::ir::composite::{cat, flip, pad};
use uopc::ir::custom::{Custom, Rules};
use uopc::ir::op::{Op, ReduceOp, StageKind};
use uopc::ir::{DType, UOp};

use super::oracle::number;

pub mod instance;
pub mod mapped;

/// Where the inputs of a case lie: inside a region where the function is smooth, and far enough
/// from its edge for the differences.
#[derive(Clone, Copy)]
pub enum Domain {
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

/// A function of some inputs whose derivatives are checked.
pub struct Case {
    /// The mnemonic of the op that the case is about, or what is composed.
    pub name: &'static str,
    /// The op in question, if the case is about one.
    pub op: Option<&'static str>,
    /// The shapes of the inputs.
    pub inputs: &'static [&'static [usize]],
    pub domain: Domain,
    pub build: fn(&[UOp]) -> UOp,
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
pub const NON_DIFFERENTIABLE: &[(&str, &str)] = &[
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
    ("argsort", "gives positions, which are integers"),
];

/// The cube of x by rules that are right, on one input out of two.
fn custom(x: &[UOp]) -> UOp {
    let leaf = || UOp::placeholder(x[0].dtype(), x[0].shape().numel());
    let (inputs, output, g, t) = (vec![leaf(), leaf()], leaf(), leaf(), vec![leaf(), leaf()]);
    // d(x^3 y) = 3 x^2 y dx + x^3 dy.
    let slope = |d: &UOp| &(&square(&inputs[0]) * &inputs[1]) * &(&number(d, 3.0) * d);
    let cube = &square(&inputs[0]) * &inputs[0];
    let by_inputs = vec![Some(slope(&g)), Some(&cube * &g)];
    let tangent = &slope(&t[0]) + &(&cube * &t[1]);
    let name = "cube".into();
    let rules = Rules::new(inputs, output, g, t, by_inputs, tangent);
    let rules = Some(Arc::new(rules));
    let body = &(&square(&x[0]) * &x[0]) * &x[1];
    let op = Op::Custom(Arc::new(Custom { name, rules }));
    UOp::new(op, vec![body, x[0].clone(), x[1].clone()]).unwrap()
}

pub const CASES: &[Case] = &[
    op("custom", &[V, V], Real, custom),
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
    also("index", "index by positions", &[&[4, 2]], Real, |x| {
        square(&x[0].index(&[positions(6, 3)]).unwrap())
    }),
    also("index", "index by pairs of positions", &[T], Real, |x| {
        square(&x[0].index(&[positions(5, 1), positions(5, 2)]).unwrap())
    }),
    op("scatter_add", &[&[6, 2]], Real, |x| {
        square(&x[0].scatter_add(&[positions(6, 3)], &[4, 2]).unwrap())
    }),
    also(
        "scatter_add",
        "scatter by pairs of positions",
        &[&[5, 4]],
        Real,
        |x| {
            let at = [positions(5, 1), positions(5, 2)];
            square(&x[0].scatter_add(&at, T).unwrap())
        },
    ),
    also(
        "index",
        "index by numbers of a graph",
        &[&[4, 3]],
        Real,
        |x| {
            // Rows 0, 3, 2, 1, 0 and two that are none.
            square(&x[0].index(&[numbers(&[0, 3, 2, 1, 0, 4, -1])]).unwrap())
        },
    ),
    also("index", "index of pairs", &[&[4, 3], &[3]], Real, |x| {
        let at = [numbers(&[1, 1, 5]), numbers(&[2, 2, 0])];
        &square(&x[0].index(&at).unwrap()) * &x[1]
    }),
    also(
        "scatter_add",
        "scatter_add at computed places",
        &[&[6, 2]],
        Real,
        |x| {
            square(
                &x[0]
                    .scatter_add(&[numbers(&[1, 3, 1, 1, -2, 9])], &[4, 2])
                    .unwrap(),
            )
        },
    ),
    also(
        "scatter_add",
        "scatter_add of pairs",
        &[&[2, 2, 3]],
        Real,
        |x| {
            let at = [numbers(&[1, 0, 1, 3]), numbers(&[2, 2, 2, 0])];
            let at = at.map(|i| i.reshape(&[2, 2]).unwrap());
            square(&x[0].scatter_add(&at, &[3, 3, 3]).unwrap())
        },
    ),
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
    op("scan", &[T], Real, |x| {
        square(&x[0].scan(ReduceOp::Add).unwrap())
    }),
    also("scan", "running product", &[M], Real, |x| {
        square(&x[0].scan(ReduceOp::Mul).unwrap())
    }),
    also("scan", "running product of one", &[&[3, 1]], Real, |x| {
        square(&x[0].scan(ReduceOp::Mul).unwrap())
    }),
    also("scan", "running product with zeros", &[V], Zeros, |x| {
        x[0].scan(ReduceOp::Mul).unwrap()
    }),
    also(
        "scan",
        "running product of nine",
        &[&[9], &[9]],
        Real,
        |x| &x[0].scan(ReduceOp::Mul).unwrap() * &x[1],
    ),
    also("scan", "running maximum", &[T], Apart, |x| {
        square(&x[0].scan(ReduceOp::Max).unwrap())
    }),
    also("scan", "running maximum of squares", &[V, V], Apart, |x| {
        &square(&x[0]).scan(ReduceOp::Max).unwrap() * &x[1]
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

/// n positions from -1 to 3, some of them twice and some out of range.
fn positions(n: usize, step: i64) -> UOp {
    let whole = |c: i64| {
        let c = UOp::int(c, DType::I32);
        c.broadcast_scalar(&[n].as_slice().into()).unwrap()
    };
    let steps = &UOp::iota(n, DType::I32).unwrap() * &whole(step);
    &steps.floormod(&whole(5)).unwrap() + &whole(-1)
}

/// Integers that are computed, element by element, so that no rule sees that they are constants.
fn numbers(values: &[i64]) -> UOp {
    let position = UOp::iota(values.len(), DType::I32).unwrap();
    let full = |value: i64| UOp::int(value, DType::I32).broadcast_scalar(position.shape());
    let mut all = full(0).unwrap();
    for (k, &value) in values.iter().enumerate() {
        let here = position.eq(&full(k as i64).unwrap()).unwrap();
        all = here.where_(&full(value).unwrap(), &all).unwrap();
    }
    all
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
