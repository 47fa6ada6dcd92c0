//! Large products of bf16 where the machine has a dot product of pairs of them (AVX512-BF16).
//!
//! Two neighbours along k are one word, so that k is half as long: operands are packed as words, and
//! everything else is laid out as for any product. The loops say a step of k as two plain multiply-adds,
//! the first element's before the second's, as in any chain; the renderer knows that form. The
//! instruction takes the upper halves first, so that is where the first elements are.

use rustc_hash::FxHashMap;

use super::super::affine::{linear, replaced};
use super::super::nest::Nest;
use super::find::Contraction;
use super::pairs::{narrow, or_zero};
use crate::error::Result;
use crate::ir::op::Exec;
use crate::ir::{UOp, pairs};
use crate::machine::Machine;

/// The contraction in words, if its product is one for dot products.
///
/// # Errors
/// Never for a verified graph.
pub fn in_words(c: Contraction, nest: &mut Nest, machine: &Machine) -> Result<Contraction> {
    let has = machine.bf16_dot && !machine.bf16_tiles;
    let Some(factors) = narrow(&c).filter(|_| has) else {
        return Ok(c);
    };
    let index = c.k.dtype();
    let depth = c.depth.div_ceil(2);
    let k = nest.count(depth, index, Exec::Serial)?;
    let [first, second] = [0, 1].map(|i| linear(&k, 2, &UOp::int(i, index)));
    let (first, second) = (first?, second?);
    // The last element of an odd number of them has none beside it.
    let is_there = match c.depth.is_multiple_of(2) {
        true => None,
        false => Some(second.cmplt(&UOp::int(c.depth as i64, index))?),
    };
    let word = |factor: &UOp, zero: f64| -> Result<UOp> {
        let at = |k: &UOp| -> Result<UOp> {
            let replace = FxHashMap::from_iter([(c.k.clone(), k.clone())]);
            Ok(replaced(std::slice::from_ref(factor), &replace)?.remove(0))
        };
        let beside = match &is_there {
            Some(gate) => or_zero(&at(&second)?, gate, zero)?,
            None => at(&second)?,
        };
        pairs::word(&beside, &at(&first)?)
    };
    Ok(Contraction {
        // A product that is -0 changes no sum, be it a zero of either sign.
        factors: [word(&factors[0], 0.0)?, word(&factors[1], -0.0)?],
        summed: Vec::new(),
        k,
        depth,
        in_words: true,
        ..c
    })
}

/// What a step of k multiplies: the halves of words, in the order in which they are summed.
///
/// # Errors
/// If the values are no words.
pub fn halves(words: &[UOp]) -> Result<Vec<Vec<UOp>>> {
    let of = |half: fn(&UOp) -> Result<UOp>| words.iter().map(half).collect::<Result<Vec<UOp>>>();
    Ok(vec![of(pairs::upper)?, of(pairs::lower)?])
}
