//! What goes along the last axis in order: running combinations, and the positions that sort it.
//!
//! A SCAN is one sequence a row: it starts at the identity and takes the elements one after the other,
//! f16 and bf16 in f32 for sums and products, rounding each element of the result once.

use std::cmp::Ordering;

use super::array::Array;
use crate::ir::op::{Op, ReduceOp};
use crate::ir::scalar::apply;
use crate::ir::{DType, Scalar};

/// The running combinations of rows.
pub(super) fn scan(op: ReduceOp, x: &Array) -> Vec<u64> {
    let dtype = x.dtype();
    let (combine, wide) = match op {
        ReduceOp::Add => (Op::Add, dtype.accumulator()),
        ReduceOp::Mul => (Op::Mul, dtype.accumulator()),
        ReduceOp::Max => (Op::Max, dtype),
    };
    let to = |dtype, x| apply(&Op::Cast(dtype), dtype, &[x]);
    let mut out = Vec::with_capacity(x.len());
    for row in rows(x) {
        let mut carried = Scalar::identity(op, wide);
        for &bits in row {
            let value = to(wide, Scalar::from_bits(dtype, bits));
            carried = apply(&combine, wide, &[carried, value]);
            out.push(to(dtype, carried).bits());
        }
    }
    out
}

/// The positions that sort rows.
pub(super) fn argsort(dtype: DType, x: &Array) -> Vec<u64> {
    let mut out = Vec::with_capacity(x.len());
    for row in rows(x) {
        let value = |k: usize| Scalar::from_bits(x.dtype(), row[k]);
        let mut order: Vec<usize> = (0..row.len()).collect();
        // A stable sort.
        order.sort_by(|&a, &b| compare(value(a), value(b)));
        let position = |k: usize| Scalar::from_i128(dtype, k as i128).bits();
        out.extend(order.into_iter().map(position));
    }
    out
}

/// The rows along the last axis.
fn rows(x: &Array) -> impl Iterator<Item = &[u64]> {
    let n = x.shape().last().copied().unwrap_or(1);
    x.words().chunks_exact(n.max(1))
}

fn compare(a: Scalar, b: Scalar) -> Ordering {
    if a.dtype().is_float() {
        let (a, b) = (a.as_f64(), b.as_f64());
        let numbers = a.partial_cmp(&b);
        numbers.unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    } else {
        a.as_i128().cmp(&b.as_i128())
    }
}
