//! The table of ops and transformations: vjp, jvp, vmap and the orders 2 and 3 of each op, every
//! cell a check in f64 by the interpreter or a written reason.
//!
//! *vjp* and *jvp* against differences of the interpreter's values along a random direction, and
//! against each other. *vmap* against a loop: of the function, its gradients and its tangent, for
//! every choice of inputs that have a batch, for batches of none, one and three, and nested.
//! *order 2* and *order 3* in every order of modes, forward over reverse, reverse over forward and
//! the others, against each other and against differences of the order before.

mod derivatives;
mod oracle;

use derivatives::instance::{Instance, instance, realize, sample};
use derivatives::mapped::{MAPPED, NOT_MAPPED};
use derivatives::{CASES, Case, NON_DIFFERENTIABLE};
use oracle::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use uopc::autodiff::{Batched, gradient, jvp, jvp_all, vmap};
use uopc::compile::Engine;
use uopc::debug::Settings;
use uopc::interp::Array;
use uopc::ir::op::{Class, Fold, OPS, Op};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, UOp};

// ---- the table ----

/// A row of reasons: ops and why their cells of a column are empty.
type Reasons = &'static [(&'static str, &'static str)];

/// Runs a column: the check for every case of every op of shape graphs. An op with neither a case
/// nor a reason fails, and so does one with both.
fn column(name: &str, cases: &[&[Case]], reasons: Reasons, check: impl Fn(&Case)) {
    let pure = |class| !matches!(class, Class::Loop | Class::Program);
    for info in OPS.iter().filter(|info| pure(info.class)) {
        let op = info.mnemonic;
        let all = cases.iter().copied().flatten();
        let cell: Vec<&Case> = all.filter(|case| case.op == Some(op)).collect();
        let reason = reasons.iter().find(|(name, _)| *name == op);
        match (cell.is_empty(), reason) {
            (false, None) => cell.iter().for_each(|case| check(case)),
            (true, Some((_, why))) => assert!(!why.is_empty(), "{op}: {name} has an empty reason"),
            (true, None) => panic!("{op}: {name} has no case; add one, or a reason"),
            (false, Some(_)) => panic!("{op}: {name} has cases; delete the reason"),
        }
    }
    // Compositions are checked as well.
    let composed = cases.iter().copied().flatten().filter(|c| c.op.is_none());
    composed.for_each(check);
}

#[test]
fn column_vjp() {
    column("vjp", &[CASES], NON_DIFFERENTIABLE, |case| {
        order(case, &[Mode::Reverse]);
    });
}

#[test]
fn column_jvp() {
    column("jvp", &[CASES], NON_DIFFERENTIABLE, |case| {
        order(case, &[Mode::Forward]);
        same_in_all_modes(case, 1);
    });
}

#[test]
fn column_vmap() {
    column("vmap", &[CASES, MAPPED], NOT_MAPPED, maps);
}

#[test]
fn column_order_2() {
    column("order 2", &[CASES], NON_DIFFERENTIABLE, |case| {
        order(case, &[Mode::Forward, Mode::Reverse]);
        same_in_all_modes(case, 2);
    });
}

#[test]
fn column_order_3() {
    column("order 3", &[CASES], NON_DIFFERENTIABLE, |case| {
        order(case, &[Mode::Reverse, Mode::Forward, Mode::Forward]);
        same_in_all_modes(case, 3);
    });
}

/// What has no derivative passes nothing on, in both modes.
#[test]
fn ops_without_a_derivative_give_zeros() {
    let cases = MAPPED.iter().filter(|case| {
        let is_reason = |(op, _): &(&str, &str)| case.op == Some(*op) && *op != "iota";
        NON_DIFFERENTIABLE.iter().any(is_reason)
    });
    let mut checked = 0;
    for case in cases {
        let it = instance(case, DType::F64, 0);
        let tangent = it.number(&along(&it, &it.loss, Mode::Forward, 0));
        let product = it.number(&along(&it, &it.loss, Mode::Reverse, 0));
        assert_eq!((tangent, product), (0.0, 0.0), "{}", case.name);
        checked += 1;
    }
    assert!(checked >= 10);
}

// ---- derivatives ----

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Forward,
    Reverse,
}

/// The derivative of a scalar node along direction `d` of all inputs.
fn along(it: &Instance, u: &UOp, mode: Mode, d: usize) -> UOp {
    match mode {
        Mode::Forward => jvp(u, &it.targets, &it.directions(d)).unwrap(),
        Mode::Reverse => it.inner_product(u, d),
    }
}

/// The loss differentiated once a mode, the last mode first, along directions from the last down.
fn differentiated(it: &Instance, modes: &[Mode]) -> UOp {
    let steps = modes.iter().enumerate().rev();
    steps.fold(it.loss.clone(), |u, (d, &mode)| along(it, &u, mode, d))
}

/// The differences are of sixth order with a step of 2^-8: they leave about (2^-8)^6 of the seventh
/// derivative, 1e-14, and 2^8 roundings of an f64, 1e-13. A wrong factor is far more than this.
const STEP: f64 = 1.0 / 256.0;
const NEAR: f64 = 1e-6;

/// Compares a derivative in these modes with the slope of the one of an order less, relative to the
/// sum of the magnitudes of its terms.
fn order(case: &Case, modes: &[Mode]) {
    let it = instance(case, DType::F64, 0);
    // Direction 0 belongs to the last derivative, the others to what it is taken of.
    let mut before = it.loss.clone();
    for (d, &mode) in modes.iter().enumerate().skip(1).rev() {
        before = along(&it, &before, mode, d);
    }
    let found = it.number(&along(&it, &before, modes[0], 0));
    let slope = it.slope(&before, 0, STEP);
    let scale = it.magnitude(&before, 0);
    let error = (found - slope).abs();
    let name = case.name;
    assert!(
        error <= NEAR * scale || error < 1e-12,
        "{name} in {modes:?}: the derivative is {found}, the differences say {slope}"
    );
}

/// Two ways to one derivative differ by roundings alone.
const SAME: f64 = 1e-9;

/// All sequences of modes give one number.
fn same_in_all_modes(case: &Case, order: usize) {
    let it = instance(case, DType::F64, 0);
    let modes = |bits: usize| -> Vec<Mode> {
        let mode = |k: usize| match bits >> k & 1 {
            0 => Mode::Reverse,
            _ => Mode::Forward,
        };
        (0..order).map(mode).collect()
    };
    let before = differentiated_from(&it, &modes(0)[1..]);
    let scale = it.magnitude(&before, 0).max(1e-3);
    let expected = it.number(&differentiated(&it, &modes(0)));
    for bits in 1..1 << order {
        let found = it.number(&differentiated(&it, &modes(bits)));
        assert!(
            (found - expected).abs() <= SAME * scale,
            "{} in {:?}: {found}, in reverse {expected}",
            case.name,
            modes(bits)
        );
    }
}

/// Like [`differentiated`] along the directions from 1 on.
fn differentiated_from(it: &Instance, modes: &[Mode]) -> UOp {
    let steps = modes.iter().enumerate().rev();
    steps.fold(it.loss.clone(), |u, (d, &mode)| along(it, &u, mode, d + 1))
}

// ---- batches ----

/// The roots that a case is mapped as: its value, and for floats its derivatives in both modes.
fn roots_of(it: &Instance) -> Vec<UOp> {
    let mut roots = vec![it.value.clone()];
    if it.value.dtype() == DType::F64 {
        roots.push(jvp(&it.value, &it.targets, &it.directions(0)).unwrap());
        roots.extend(gradient(&it.loss, &it.targets).unwrap());
        roots.push(along(it, &it.loss, Mode::Reverse, 1));
    }
    roots
}

/// Checks every choice of inputs that have a batch, and batches of batches.
fn maps(case: &Case) {
    let it = instance(case, DType::F64, 0);
    let roots = roots_of(&it);
    for chosen in 1..1usize << it.targets.len() {
        let chosen: Vec<usize> = (0..it.targets.len())
            .filter(|k| chosen >> k & 1 == 1)
            .collect();
        for n in [3, 1, 0] {
            let batch = Batch::new(case, &it, &chosen, n);
            let mapped = vmap(&roots, &batch.pairs(&it, &[n])).unwrap();
            batch.compare(case, &roots, &mapped);
        }
        // A batch of two batches of two.
        let batch = Batch::new(case, &it, &chosen, 4);
        let inner: Vec<(UOp, UOp)> = (chosen.iter())
            .map(|&k| {
                let x = &it.targets[k];
                (
                    x.clone(),
                    input_of(1000 + k as u32, &[&[2], &x.shape()[..]].concat(), x.dtype()),
                )
            })
            .collect();
        let mapped = vmap(&roots, &inner).unwrap();
        let nodes: Vec<UOp> = mapped.iter().map(|m| m.repeated(2).unwrap()).collect();
        let outer: Vec<(UOp, UOp)> = inner
            .iter()
            .zip(batch.pairs(&it, &[2, 2]))
            .map(|((_, inner), (_, outer))| (inner.clone(), outer))
            .collect();
        let flat: Vec<Batched> = vmap(&nodes, &outer)
            .unwrap()
            .iter()
            .zip(&roots)
            .map(|(m, root)| Batched {
                node: m
                    .repeated(2)
                    .unwrap()
                    .reshape(&[&[4], &root.shape()[..]].concat())
                    .unwrap(),
                batched: true,
            })
            .collect();
        batch.compare(case, &roots, &flat);
    }
}

/// Examples of some inputs of a case.
struct Batch<'a> {
    it: &'a Instance,
    chosen: Vec<usize>,
    n: usize,
    /// For each chosen input the values of all examples, one after the other.
    values: Vec<Vec<f64>>,
}

impl<'a> Batch<'a> {
    fn new(case: &Case, it: &'a Instance, chosen: &[usize], n: usize) -> Batch<'a> {
        let mut rng = StdRng::seed_from_u64(n as u64);
        let all = |&k: &usize| -> Vec<f64> {
            let dims = case.inputs[k];
            (0..n)
                .flat_map(|_| sample(case.domain, dims, &mut rng))
                .collect()
        };
        let values = chosen.iter().map(all).collect();
        Batch {
            it,
            chosen: chosen.to_vec(),
            n,
            values,
        }
    }

    /// The chosen inputs and what takes their place; slots follow those of the case.
    fn pairs(&self, it: &Instance, batch: &[usize]) -> Vec<(UOp, UOp)> {
        let pair = |(j, &k): (usize, &usize)| {
            let x = &it.targets[k];
            let slot = it.base + (it.slots.len() + j) as u32;
            (
                x.clone(),
                input_of(slot, &[batch, &x.shape()[..]].concat(), x.dtype()),
            )
        };
        self.chosen.iter().enumerate().map(pair).collect()
    }

    /// Each row of the mapped roots against the roots of one example: the same bits, unless a sum
    /// became a matrix product.
    fn compare(&self, case: &Case, roots: &[UOp], mapped: &[Batched]) {
        let nodes: Vec<UOp> = mapped.iter().map(|m| m.repeated(self.n).unwrap()).collect();
        let mut slots: Vec<&[f64]> = self.it.slots.iter().map(Vec::as_slice).collect();
        slots.extend(self.values.iter().map(Vec::as_slice));
        let found = arrays(&nodes, &slots);
        // A contraction stays one.
        assert!(chains(&nodes) >= chains(roots), "{}", case.name);
        let exact = chains(&nodes) == chains(roots);
        for (root, node) in roots.iter().zip(&nodes) {
            let dims = [&[self.n], &root.shape()[..]].concat();
            assert_eq!((node.dtype(), &node.shape()[..]), (root.dtype(), &dims[..]));
        }
        for e in 0..self.n {
            let mut slots = self.it.slots.clone();
            for (&k, values) in self.chosen.iter().zip(&self.values) {
                let n = slots[k].len();
                slots[k] = values[e * n..(e + 1) * n].to_vec();
            }
            let slots: Vec<&[f64]> = slots.iter().map(Vec::as_slice).collect();
            for (r, expected) in arrays(roots, &slots).iter().enumerate() {
                let n = expected.len();
                let row = &found[r].to_f64()[e * n..(e + 1) * n];
                let expected = expected.to_f64();
                let size = expected.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
                let same = |(a, b): (&f64, &f64)| {
                    a.to_bits() == b.to_bits() || !exact && (a - b).abs() <= 1e-12 * size
                };
                assert!(
                    row.iter().zip(&expected).all(same),
                    "{}, root {r}, example {e} of {}, inputs {:?}: {row:?}, alone {expected:?}\n{}",
                    case.name,
                    self.n,
                    self.chosen,
                    nodes[r].to_uir(),
                );
            }
        }
    }
}

/// How many sums are contractions.
fn chains(roots: &[UOp]) -> usize {
    let is_chain = |u: &&UOp| {
        matches!(
            u.op(),
            Op::Reduce {
                fold: Fold::Chain,
                ..
            }
        )
    };
    toposort(roots).iter().filter(is_chain).count()
}

/// Tangents and batches of every case through compiled code, in f32.
#[test]
fn compiled_f32_is_the_interpreter_to_the_bit() {
    // A kernel's parameter has no memory of its own to run on.
    let cases = CASES.iter().chain(MAPPED);
    let cases: Vec<&Case> = cases.filter(|case| case.op != Some("param")).collect();
    let engine = Engine::new(Settings::default()).unwrap();
    for cases in cases.chunks(40) {
        let mut slots: Vec<Vec<f64>> = Vec::new();
        let mut roots = Vec::new();
        for case in cases {
            let it = instance(case, DType::F32, slots.len() as u32);
            let all: Vec<usize> = (0..it.targets.len()).collect();
            let batch = Batch::new(case, &it, &all, 3);
            let mut alone = vec![it.value.clone()];
            if it.value.dtype().is_float() {
                let tangent = jvp(&it.loss, &it.targets, &it.directions(0)).unwrap();
                roots.push(tangent.clone());
                alone.push(tangent);
            }
            let mapped = vmap(&alone, &batch.pairs(&it, &[3])).unwrap();
            roots.extend(mapped.iter().map(|m| m.node.cast(DType::F32).unwrap()));
            let (values, chosen) = (batch.values, it.slots);
            slots.extend(chosen);
            slots.extend(values);
        }
        let compiled = realize(&engine, &roots, &slots);
        let bound: Vec<&[f64]> = slots.iter().map(Vec::as_slice).collect();
        for ((root, expected), found) in roots.iter().zip(arrays(&roots, &bound)).zip(&compiled) {
            let found = Array::from_f64(DType::F32, root.shape(), found).unwrap();
            assert_eq!(found.difference(&expected), None, "{}", root.to_uir());
        }
    }
}

#[test]
fn a_wrong_derivative_is_noticed() {
    let it = instance(&CASES[2], DType::F64, 0);
    let half = &it.loss * &number(&it.loss, 0.5);
    let wrong = it.number(&along(&it, &half, Mode::Forward, 0));
    let slope = it.slope(&it.loss, 0, STEP);
    assert!((wrong - slope).abs() > 0.1 * slope.abs());
    // Several roots share a walk and give what each gives alone.
    let both = jvp_all(
        &[half.clone(), it.loss.clone()],
        &it.targets,
        &it.directions(0),
    )
    .unwrap();
    assert_eq!(both[0], along(&it, &half, Mode::Forward, 0));
    assert_eq!(both[1], along(&it, &it.loss, Mode::Forward, 0));
}
