//! Seeded inputs for graphs, and their values in the interpreter.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::interp::{Array, graph};
use uopc::ir::op::{BufferId, Op};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Scalar, UOp};

/// Contents of slots and parameters.
pub type Slots = BTreeMap<u32, Array>;

/// What kind of numbers to draw.
#[derive(Clone, Copy, Debug)]
pub enum Draw {
    /// Fractions between -2 and 2, small integers.
    Plain,
    /// Also infinities, NaN, zeros of both signs, the largest and smallest of each dtype.
    Special,
}

/// A number of the dtype.
pub fn draw(rng: &mut SmallRng, dtype: DType, kind: Draw) -> Scalar {
    if let Draw::Special = kind
        && rng.random_range(0..3) == 0
    {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e-40,
            3e38,
        ];
        return match dtype.int_range() {
            Some((least, greatest)) => {
                let values = [least, greatest, 0, greatest - 1];
                Scalar::from_i128(dtype, values[rng.random_range(0..values.len())])
            }
            None => Scalar::from_f64(dtype, special[rng.random_range(0..special.len())]),
        };
    }
    if dtype.is_float() {
        Scalar::from_f64(dtype, rng.random_range(-2.0..2.0))
    } else if dtype.is_signed() {
        Scalar::from_i128(dtype, rng.random_range(-9..10))
    } else {
        Scalar::from_i128(dtype, rng.random_range(0..10))
    }
}

/// An array of random numbers.
pub fn random(rng: &mut SmallRng, dtype: DType, n: usize, kind: Draw) -> Array {
    let values: Vec<Scalar> = (0..n).map(|_| draw(rng, dtype, kind)).collect();
    Array::from_scalars(dtype, &[n], &values).expect("all are of the dtype")
}

/// The slot of a text buffer or parameter, its dtype and its length.
pub fn slot(u: &UOp) -> Option<(u32, DType, usize)> {
    match *u.op() {
        Op::Buffer {
            id: BufferId::Slot(slot),
            dtype,
            n,
        } => Some((slot, dtype, n)),
        Op::Param { slot, dtype, n, .. } => Some((slot, dtype, n)),
        _ => None,
    }
}

/// Random contents for every slot and parameter under the roots. A slot gets the same contents
/// for one seed, whatever else the graph reads.
pub fn inputs(roots: &[UOp], seed: u64, kind: Draw) -> Slots {
    let leaves = toposort(roots);
    let slots = leaves.iter().filter_map(slot);
    slots
        .map(|(slot, dtype, n)| {
            let mut rng = SmallRng::seed_from_u64(seed * 1_000_003 + slot as u64);
            (slot, random(&mut rng, dtype, n, kind))
        })
        .collect()
}

/// The roots' values in the graph interpreter.
pub fn eval(roots: &[UOp], slots: &Slots) -> Result<Vec<Array>, String> {
    let bind = |u: &UOp| slots.get(&slot(u)?.0).cloned();
    graph::eval(roots, &bind).map_err(|e| e.to_string())
}

/// Whether two graphs have the same values, to the last bit, on random and special inputs.
pub fn same_values(before: &[UOp], after: &[UOp]) -> Result<(), String> {
    for (seed, kind) in [
        (1, Draw::Plain),
        (2, Draw::Plain),
        (3, Draw::Special),
        (4, Draw::Special),
    ] {
        // A pass may drop an input but never add one.
        let slots = inputs(before, seed, kind);
        let (a, b) = (eval(before, &slots)?, eval(after, &slots)?);
        if a.len() != b.len() {
            return Err(format!("{} roots became {}", a.len(), b.len()));
        }
        for (k, (a, b)) in a.iter().zip(&b).enumerate() {
            if let Some(difference) = a.difference(b) {
                return Err(format!(
                    "root {k} changed its value (seed {seed}): {difference}"
                ));
            }
        }
    }
    Ok(())
}
