//! The order in which a reduction combines its elements, spelled out as plainly as possible.
//!
//! A float sum or product depends on the order, so every engine uses these two. *Lanes*: element k
//! belongs to lane k mod 16 of block k / 4096; a lane is sequential, the lanes are halved (lane u
//! takes lane u+8, then 4, 2, 1), and blocks combine in pairs of neighbours, an odd last one moving
//! up. *Chain*: fused multiply-adds one after the other, begun again at +0 every 4096, the partial
//! sums added in order. f16 and bf16 are folded in f32 and rounded once. A SCATTER_ADD has an order
//! of its own: each element starts at +0, and rows are added to it one after the other.

use super::array::Array;
use crate::ir::op::{Op, ReduceOp};
use crate::ir::scalar::apply;
use crate::ir::{DType, Scalar};

/// Elements between two restarts.
const BLOCK: usize = 4096;
/// Running results inside a block.
const LANES: usize = 16;

/// Folds rows of `extent` neighbours by the lane order. There are `rows` of them.
pub(super) fn reduce_lanes(op: ReduceOp, x: &Array, rows: usize, extent: usize) -> Vec<u64> {
    let dtype = x.dtype();
    if extent == 0 {
        return vec![empty(op, dtype).bits(); rows];
    }
    let by_row = x.words().chunks_exact(extent);
    match (op, dtype.accumulator()) {
        (ReduceOp::Add, DType::F32) => {
            let folded = by_row.map(|row| lanes(&singles(dtype, row), -0.0, |a, b| a + b));
            folded.map(|v| from_single(dtype, v)).collect()
        }
        (ReduceOp::Mul, DType::F32) => {
            let folded = by_row.map(|row| lanes(&singles(dtype, row), 1.0, |a, b| a * b));
            folded.map(|v| from_single(dtype, v)).collect()
        }
        (ReduceOp::Add, DType::F64) => {
            let folded = by_row.map(|row| lanes(&doubles(row), -0.0, |a, b| a + b));
            folded.map(|v| Scalar::from_f64(dtype, v).bits()).collect()
        }
        (ReduceOp::Mul, DType::F64) => {
            let folded = by_row.map(|row| lanes(&doubles(row), 1.0, |a, b| a * b));
            folded.map(|v| Scalar::from_f64(dtype, v).bits()).collect()
        }
        // Integers wrap and a maximum is exact, so their order is free.
        _ => {
            let combine = match op {
                ReduceOp::Add => Op::Add,
                ReduceOp::Max => Op::Max,
                ReduceOp::Mul => Op::Mul,
            };
            let start = Scalar::identity(op, dtype);
            let folded = by_row.map(|row| {
                row.iter().fold(start, |old, &bits| {
                    apply(&combine, dtype, &[old, Scalar::from_bits(dtype, bits)])
                })
            });
            folded.map(Scalar::bits).collect()
        }
    }
}

/// Sums rows of `extent` products `a * b` by a chain. The dtype is a float.
pub(super) fn reduce_chain(a: &Array, b: &Array, rows: usize, extent: usize) -> Vec<u64> {
    let dtype = a.dtype();
    if extent == 0 {
        return vec![Scalar::zero(dtype).bits(); rows];
    }
    let pairs = a
        .words()
        .chunks_exact(extent)
        .zip(b.words().chunks_exact(extent));
    if dtype == DType::F64 {
        let sums = pairs.map(|(a, b)| chain(&doubles(a), &doubles(b), f64::mul_add, |x, y| x + y));
        sums.map(|v| Scalar::from_f64(dtype, v).bits()).collect()
    } else {
        let sums = pairs.map(|(a, b)| {
            let (a, b) = (singles(dtype, a), singles(dtype, b));
            chain(&a, &b, f32::mul_add, |x, y| x + y)
        });
        sums.map(|v| from_single(dtype, v)).collect()
    }
}

/// `n` zeros and, one after the other, the rows of `g` at their places; those without one are left
/// out.
pub(super) fn add_rows(
    g: &Array,
    places: impl Iterator<Item = Option<usize>>,
    row: usize,
    n: usize,
) -> Vec<u64> {
    let dtype = g.dtype();
    // The element of the result, and that of `g`, of each addition in order.
    let additions = places.enumerate().flat_map(move |(k, place)| {
        let cells = place.map(|place| (0..row).map(move |c| (place * row + c, k * row + c)));
        cells.into_iter().flatten()
    });
    match dtype.accumulator() {
        DType::F32 => {
            let (mut sums, g) = (vec![0.0f32; n], singles(dtype, g.words()));
            additions.for_each(|(to, from)| sums[to] += g[from]);
            sums.into_iter().map(|v| from_single(dtype, v)).collect()
        }
        DType::F64 => {
            let (mut sums, g) = (vec![0.0f64; n], doubles(g.words()));
            additions.for_each(|(to, from)| sums[to] += g[from]);
            let bits = |v| Scalar::from_f64(dtype, v).bits();
            sums.into_iter().map(bits).collect()
        }
        _ => {
            let mut sums = vec![Scalar::zero(dtype); n];
            additions.for_each(|(to, from)| {
                let value = Scalar::from_bits(dtype, g.words()[from]);
                sums[to] = apply(&Op::Add, dtype, &[sums[to], value]);
            });
            sums.into_iter().map(Scalar::bits).collect()
        }
    }
}

/// What a reduction over nothing gives: 0, 1, or the least value.
fn empty(op: ReduceOp, dtype: DType) -> Scalar {
    match op {
        // The identity of a float sum is -0, but the sum of nothing is 0.
        ReduceOp::Add => Scalar::zero(dtype),
        ReduceOp::Max | ReduceOp::Mul => Scalar::identity(op, dtype),
    }
}

fn lanes<T: Copy>(row: &[T], start: T, op: impl Fn(T, T) -> T) -> T {
    let one_block = |block: &[T]| {
        let mut lane = [start; LANES];
        for (k, &x) in block.iter().enumerate() {
            lane[k % LANES] = op(lane[k % LANES], x);
        }
        let mut half = LANES / 2;
        while half > 0 {
            for u in 0..half {
                lane[u] = op(lane[u], lane[u + half]);
            }
            half /= 2;
        }
        lane[0]
    };
    let mut level: Vec<T> = row.chunks(BLOCK).map(one_block).collect();
    while level.len() > 1 {
        let pair_up = |pair: &[T]| match *pair {
            [a, b] => op(a, b),
            _ => pair[0],
        };
        level = level.chunks(2).map(pair_up).collect();
    }
    level.first().copied().unwrap_or(start)
}

fn chain<T: Copy + Default>(
    a: &[T],
    b: &[T],
    fma: impl Fn(T, T, T) -> T,
    add: impl Fn(T, T) -> T,
) -> T {
    let partial = |(a, b): (&[T], &[T])| {
        let terms = a.iter().zip(b);
        // The default of a float is +0.
        terms.fold(T::default(), |acc, (&x, &y)| fma(x, y, acc))
    };
    let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK));
    blocks.map(partial).reduce(add).unwrap_or_default()
}

/// A row of f32, f16 or bf16 as f32: exact.
fn singles(dtype: DType, row: &[u64]) -> Vec<f32> {
    let value = |&bits: &u64| match dtype {
        DType::F32 => f32::from_bits(bits as u32),
        _ => Scalar::from_bits(dtype, bits).as_f64() as f32,
    };
    row.iter().map(value).collect()
}

fn doubles(row: &[u64]) -> Vec<f64> {
    row.iter().map(|&bits| f64::from_bits(bits)).collect()
}

/// An f32 rounded to a dtype of at most that width.
fn from_single(dtype: DType, value: f32) -> u64 {
    Scalar::from_f64(dtype, value as f64).bits()
}
