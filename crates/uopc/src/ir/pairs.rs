//! Two neighbouring bf16 in one word, the form in which instructions take the pairs of a product.
//!
//! The schedule makes such words and the renderer looks for products that read them, so what they
//! look like is said here, once.

use super::{DType, Scalar, UOp};
use crate::error::Result;

/// The word of two bf16, the first one in the lower half.
///
/// # Errors
/// If the values are no bf16.
pub fn word(first: &UOp, second: &UOp) -> Result<UOp> {
    let bits = |x: &UOp| x.bitcast(DType::U16)?.cast(DType::U32);
    bits(second)?
        .shl(&UOp::int(16, DType::U32))?
        .or(&bits(first)?)
}

/// One of the two as an f32: the first for p = 0, the second for p = 1.
///
/// # Errors
/// If the word is no u32 or p no integer.
pub fn half(word: &UOp, p: &UOp) -> Result<UOp> {
    let sixteen = UOp::int(16, DType::U32);
    let shift = p.cast(DType::U32)?.shl(&UOp::int(4, DType::U32))?;
    word.shr(&shift)?.shl(&sixteen)?.bitcast(DType::F32)
}

/// The one in the upper half as an f32.
///
/// # Errors
/// If the word is no u32.
pub fn upper(word: &UOp) -> Result<UOp> {
    let mask = UOp::constant(Scalar::from_i128(DType::U32, 0xffff_0000));
    word.and(&mask)?.bitcast(DType::F32)
}

/// The one in the lower half as an f32.
///
/// # Errors
/// If the word is no u32.
pub fn lower(word: &UOp) -> Result<UOp> {
    word.shl(&UOp::int(16, DType::U32))?.bitcast(DType::F32)
}
