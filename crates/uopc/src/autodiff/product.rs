//! The gradient of a product: for each factor the product of all others, without a division.

use crate::error::Result;
use crate::ir::composite::{cat, flip, zeros_like};
use crate::ir::uop::UOp;

/// `g` times, for each element of x, the product of the other elements in its last n axes.
///
/// Going up, neighbours are multiplied pairwise: level j holds the products of blocks of 2^j.
/// Going down, the product of all that lies outside a block is that of what lies outside its
/// pair, times the other block of the pair. No division, so any number of zeros is right; a
/// logarithm of nodes, and work linear in x. Narrow floats are multiplied in f32, as the
/// reduction does, and rounded once.
pub(super) fn product_of_others(g: &UOp, x: &UOp, n: usize) -> Result<UOp> {
    if x.shape().numel() == 0 {
        return zeros_like(x);
    }
    let wide = x.dtype().accumulator();
    let outer = &x.shape()[..x.shape().rank() - n];
    let factors: usize = x.shape()[outer.len()..].iter().product();
    let shaped = |tail: &[usize]| [outer, tail].concat();

    // Ones fill the row up to a power of two.
    let row = x.cast(wide)?.reshape(&shaped(&[factors]))?;
    let full = factors.next_power_of_two();
    let filled = if full > factors {
        let ones = row
            .full_like(1.0)?
            .shrink(&window(outer, 0, full - factors))?;
        cat(&[row, ones], outer.len())?
    } else {
        row
    };

    // levels[j] holds the blocks of 2^j as pairs of neighbours.
    let mut levels = Vec::new();
    let mut blocks = filled;
    let mut count = full;
    while count > 1 {
        count /= 2;
        let pairs = blocks.reshape(&shaped(&[count, 2]))?;
        blocks = half(&pairs, 0)?
            .mul(&half(&pairs, 1)?)?
            .reshape(&shaped(&[count]))?;
        levels.push(pairs);
    }

    let mut outside = g.cast(wide)?.reshape(&shaped(&[1]))?;
    for pairs in levels.iter().rev() {
        let count = pairs.shape()[outer.len()];
        let beside = flip(pairs, &[outer.len() + 1])?;
        let around = outside
            .reshape(&shaped(&[count, 1]))?
            .expand(&shaped(&[count, 2]))?;
        outside = around.mul(&beside)?.reshape(&shaped(&[2 * count]))?;
    }
    outside
        .shrink(&window(outer, 0, factors))?
        .cast(x.dtype())?
        .reshape(x.shape())
}

/// The first or the second of each pair along the last axis, which keeps extent 1.
fn half(pairs: &UOp, which: usize) -> Result<UOp> {
    let (_, outer) = pairs.shape().split_last().expect("pairs have an axis");
    pairs.shrink(&window(outer, which, which + 1))
}

/// All of the outer axes, and `begin..end` of one more.
fn window(outer: &[usize], begin: usize, end: usize) -> Vec<(usize, usize)> {
    let mut window: Vec<(usize, usize)> = outer.iter().map(|&d| (0, d)).collect();
    window.push((begin, end));
    window
}
