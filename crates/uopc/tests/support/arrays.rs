//! Seeded inputs for graphs, and their values in the interpreter.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::interp::{Array, Checks, graph};
use uopc::ir::form::LoopGraph;
use uopc::ir::op::{BufferId, Op};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Scalar, UOp};

use super::engines::interpret;

pub use super::engines::Slots;

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

/// The seeds and kinds of numbers that values are compared on.
pub const DRAWS: [(u64, Draw); 4] = [
    (1, Draw::Plain),
    (2, Draw::Plain),
    (3, Draw::Special),
    (4, Draw::Special),
];

/// Whether two graphs have the same values, to the last bit, on random and special inputs.
pub fn same_values(before: &[UOp], after: &[UOp]) -> Result<(), String> {
    same_values_of(&DRAWS, before, after)
}

/// Whether two graphs have the same values on some of these inputs.
pub fn same_values_of(draws: &[(u64, Draw)], before: &[UOp], after: &[UOp]) -> Result<(), String> {
    for &(seed, kind) in draws {
        // A pass may drop an input but never add one.
        let slots = inputs(before, seed, kind);
        let (a, b) = (eval(before, &slots)?, eval(after, &slots)?);
        if let Some((a, b)) = a.iter().zip(&b).find(|(a, b)| a.shape() != b.shape()) {
            return Err(format!("shape {} became {}", a.shape(), b.shape()));
        }
        same_elements(&a, &b)?;
    }
    Ok(())
}

/// Whether two loop graphs write the same.
pub fn same_runs(before: &LoopGraph, after: &LoopGraph) -> Result<(), String> {
    for (seed, kind) in DRAWS {
        let given = inputs(std::slice::from_ref(before.sink()), seed, kind);
        let run = |loops| interpret(loops, &given, Checks::All).map_err(|e| e.to_string());
        same_slots(&run(before)?, &run(after)?)?;
    }
    Ok(())
}

/// Whether two runs wrote the same.
pub fn same_slots(expected: &Slots, found: &Slots) -> Result<(), String> {
    if !expected.keys().eq(found.keys()) {
        return Err("other parameters are written".into());
    }
    let list = |slots: &Slots| slots.values().cloned().collect::<Vec<Array>>();
    same_elements(&list(expected), &list(found))
}

/// Whether arrays have the same elements to the last bit, whatever their shapes.
pub fn same_elements(expected: &[Array], found: &[Array]) -> Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!("{} values became {}", expected.len(), found.len()));
    }
    let flat = |a: &Array| a.clone().reshaped(&[a.len()]).expect("as many elements");
    for (k, (a, b)) in expected.iter().zip(found).enumerate() {
        if let Some(difference) = flat(a).difference(&flat(b)) {
            return Err(format!("value {k} changed: {difference}"));
        }
    }
    Ok(())
}
