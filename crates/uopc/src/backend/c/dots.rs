//! Dot products of pairs of bf16: finds the two multiply-adds that the schedule makes for each of them.
//!
//! They are neighbours, `sums[i] += upper(a) * upper(b)` and `sums[i] += lower(a) * lower(b)` in some
//! lanes, where a and b are words of two bf16. Together they are one instruction where the processor has
//! it (AVX512-BF16), and the same bits elsewhere.
//!
//! Nothing else is taken for one.

use super::render::Renderer;
use super::steps::Step;
use super::vector;
use crate::error::Result;
use crate::ir::op::{Combine, Op};
use crate::ir::{DType, UOp, pairs};

impl Renderer<'_> {
    /// The second of the first two steps, if they are a dot product in several lanes, and its words.
    pub(super) fn dot_of<'s>(&mut self, steps: &'s [Step]) -> Option<(&'s UOp, [UOp; 2])> {
        let [Step::Store(first), Step::Store(second), ..] = steps else {
            return None;
        };
        let in_lanes = self.lanes.of(&first.src()[1]) > 1;
        in_lanes
            .then(|| words(first, second))?
            .map(|words| (second, words))
    }

    /// The sums with the products of the words.
    pub(super) fn dot(&mut self, words: &[UOp; 2], sums: &str, lanes: usize) -> String {
        let [a, b] = words.each_ref().map(|word| self.lanes_of(word, lanes));
        self.take(vector::dot_bf16(lanes, sums, &a, &b))
    }
}

/// The words whose halves the two steps multiply and add to the same sums.
fn words(first: &UOp, second: &UOp) -> Option<[UOp; 2]> {
    let adds = Op::Store {
        combine: Combine::MulAcc,
        gated: false,
    };
    let ([sums, index, a, b], [same_sums, same_index, other_a, other_b]) =
        (first.src(), second.src())
    else {
        return None;
    };
    let alike = *first.op() == adds && *second.op() == adds;
    if !alike || sums != same_sums || index != same_index || sums.dtype() != DType::F32 {
        return None;
    }
    Some([word(a, other_a)?, word(b, other_b)?])
}

/// The word of which these are the halves.
fn word(upper: &UOp, lower: &UOp) -> Option<UOp> {
    let word = upper.src().first()?.src().first()?;
    let is = |u: &UOp, half: fn(&UOp) -> Result<UOp>| {
        word.dtype() == DType::U32 && half(word).is_ok_and(|h| h == *u)
    };
    (is(upper, pairs::upper) && is(lower, pairs::lower)).then(|| word.clone())
}
