//! Finite differences in f64: an opinion on gradients that shares no rule with them.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustc_hash::FxHashMap;
use uopc::autodiff::gradient;
use uopc::interp::Array;
use uopc::ir::op::StageKind;
use uopc::ir::visit::{Graph, substitute};
use uopc::ir::{DType, Op, Scalar, UOp};

use super::arrays::{Slots, eval};

/// Half the step of a difference quotient. Its error is about 1e-12 (the third derivative times
/// its square) plus 1e-16 / 1e-5 from rounding.
const STEP: f64 = 1e-5;

/// What a gradient may differ by, relative to the size of its terms: well above the error of
/// the quotient, well below any missing factor.
const TOLERANCE: f64 = 1e-7;

/// Compares the gradients of the sum of the root's elements with difference quotients in a random
/// direction, all floats widened to f64 and what is detached held fixed.
pub fn check(root: &UOp, targets: &[UOp], gradients: &[UOp]) -> Result<(), String> {
    let mut all = vec![root.clone()];
    all.extend_from_slice(targets);
    all.extend_from_slice(gradients);
    let wide = widen(&all).map_err(|e| e.to_string())?;
    let (root, rest) = (&wide[0], &wide[1..]);
    let (targets, gradients) = rest.split_at(targets.len());
    for seed in 0..3 {
        let mut slots = inputs(&wide, seed);
        let root = &hold_detached(root, &mut slots)?;
        for (k, (target, gradient)) in targets.iter().zip(gradients).enumerate() {
            along_a_line(root, target, gradient, &slots, seed)
                .map_err(|e| format!("gradient {k} (seed {seed}): {e}"))?;
        }
    }
    Ok(())
}

/// Compares the sum of a tangent's elements with that of the gradients times the tangents of the
/// targets, all floats widened to f64.
pub fn check_tangent(
    root: &UOp,
    targets: &[UOp],
    tangents: &[UOp],
    tangent: &UOp,
) -> Result<(), String> {
    let gradients = gradient(root, targets).map_err(|e| e.to_string())?;
    check(root, targets, &gradients)?;
    let mut all = vec![tangent.clone()];
    all.extend(tangents.iter().chain(&gradients).cloned());
    let wide = widen(&all).map_err(|e| e.to_string())?;
    for seed in 0..3 {
        let values = eval(&wide, &inputs(&wide, seed))?;
        let values: Vec<Vec<f64>> = values.iter().map(Array::to_f64).collect();
        let (v, g) = values[1..].split_at(tangents.len());
        let terms = v.iter().flatten().zip(g.iter().flatten());
        let (product, size) = terms.fold((0.0, 1.0), |(sum, size), (v, g)| {
            (sum + v * g, size + (v * g).abs())
        });
        let found: f64 = values[0].iter().sum();
        if (found - product).abs() > 1e-12 * size {
            return Err(format!(
                "seed {seed}: the tangent sums to {found}, reverse mode to {product}"
            ));
        }
    }
    Ok(())
}

fn along_a_line(
    root: &UOp,
    target: &UOp,
    gradient: &UOp,
    slots: &Slots,
    seed: u64,
) -> Result<(), String> {
    let at = eval(&[target.clone(), gradient.clone()], slots)?;
    let (base, gradient) = (&at[0], at[1].to_f64());
    // The target becomes a leaf that can be moved, whatever it was.
    let (leaf, slot) = leaf_like(target, slots);
    let moved_root = replace(root, &[(target.clone(), leaf)])?;
    let mut rng = SmallRng::seed_from_u64(100 + seed);
    let direction: Vec<f64> = (0..base.len())
        .map(|_| rng.random_range(-1.0..1.0))
        .collect();
    let value = |step: f64| -> Result<f64, String> {
        let moved = base
            .to_f64()
            .iter()
            .zip(&direction)
            .map(|(x, d)| x + step * d)
            .collect();
        let mut slots = slots.clone();
        slots.insert(slot, array(moved));
        Ok(eval(std::slice::from_ref(&moved_root), &slots)?[0]
            .to_f64()
            .iter()
            .sum())
    };
    let quotient = (value(STEP)? - value(-STEP)?) / (2.0 * STEP);
    let terms = gradient.iter().zip(&direction).map(|(g, d)| g * d);
    let (product, size) = terms.fold((0.0, 1.0), |(sum, size), t| (sum + t, size + t.abs()));
    if (quotient - product).abs() <= TOLERANCE * size {
        return Ok(());
    }
    Err(format!(
        "the quotient is {quotient}, the gradient gives {product}"
    ))
}

/// The graphs with every float dtype replaced by f64.
fn widen(roots: &[UOp]) -> uopc::Result<Vec<UOp>> {
    let wide = |dtype: DType| if dtype.is_float() { DType::F64 } else { dtype };
    Graph::new(roots).map(|_, u, src| {
        let op = match u.op() {
            Op::Const(value) if value.dtype().is_float() => {
                Op::Const(Scalar::from_f64(DType::F64, value.as_f64()))
            }
            Op::Buffer { id, dtype, n } => Op::Buffer {
                id: id.clone(),
                dtype: wide(*dtype),
                n: *n,
            },
            Op::Cast(dtype) => Op::Cast(wide(*dtype)),
            other => other.clone(),
        };
        UOp::new(op, src)
    })
}

/// Numbers of both signs, away from 0 where logarithms and roots have no value: those get only
/// positive numbers.
fn inputs(roots: &[UOp], seed: u64) -> Slots {
    let nodes = uopc::ir::visit::toposort(roots);
    let positive = nodes.iter().any(|u| matches!(u.op(), Op::Log2 | Op::Sqrt));
    let slots = nodes.iter().filter_map(super::arrays::slot);
    slots
        .map(|(slot, dtype, n)| {
            let mut rng = SmallRng::seed_from_u64(seed * 77 + slot as u64);
            let mut draw = || {
                let x: f64 = rng.random_range(0.3..2.0);
                if positive || rng.random() { x } else { -x }
            };
            let values: Vec<f64> = (0..n).map(|_| draw()).collect();
            (
                slot,
                Array::from_f64(dtype, &[n], &values).expect("n elements"),
            )
        })
        .collect()
}

/// The root with a leaf that holds today's value in place of each detached node.
fn hold_detached(root: &UOp, slots: &mut Slots) -> Result<UOp, String> {
    let nodes = uopc::ir::visit::toposort(std::slice::from_ref(root));
    let mut leaves = Vec::new();
    for u in nodes
        .iter()
        .filter(|u| matches!(u.op(), Op::Stage(StageKind::Detach)))
    {
        let value = eval(std::slice::from_ref(u), slots)?.remove(0);
        let (leaf, slot) = leaf_like(u, slots);
        let n = value.len();
        slots.insert(slot, value.reshaped(&[n]).map_err(|e| e.to_string())?);
        leaves.push((u.clone(), leaf));
    }
    replace(root, &leaves)
}

/// A new slot with the dtype and shape of a node.
fn leaf_like(u: &UOp, slots: &Slots) -> (UOp, u32) {
    let slot = slots.keys().last().map_or(0, |last| last + 1) + 1000;
    let leaf = UOp::slot(slot, u.dtype(), u.shape().numel());
    (leaf.reshape(u.shape()).expect("as many elements"), slot)
}

fn replace(root: &UOp, pairs: &[(UOp, UOp)]) -> Result<UOp, String> {
    let map: FxHashMap<UOp, UOp> = pairs.iter().cloned().collect();
    let new = substitute(std::slice::from_ref(root), &map).map_err(|e| e.to_string())?;
    Ok(new[0].clone())
}

fn array(values: Vec<f64>) -> Array {
    Array::from_f64(DType::F64, &[values.len()], &values).expect("as many elements")
}
