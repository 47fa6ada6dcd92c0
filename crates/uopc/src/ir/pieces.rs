//! How far values that a kernel keeps for itself are cut into pieces: one piece for each point of
//! leading axes of the kernel's result.

use smallvec::{SmallVec, smallvec};

use super::axes::{Axes, axes, shared};
use super::fold::chain_product;
use super::op::{Fold, Op};
use super::uop::UOp;

/// Rows and columns that a piece of a product has at least, unless the product has fewer: with
/// less, what is read of one factor serves too few elements of the result.
const SIDE: usize = 8;

/// How many of the root's leading axes tell the pieces apart: all of them are axes of the chosen
/// nodes, and no piece of a product is a sliver. The root is the last of the nodes.
pub fn pieces(nodes: &[UOp], chosen: impl Fn(&UOp) -> bool) -> usize {
    let mut n = shared(nodes, &chosen);
    if n == 0 {
        return 0;
    }
    let known = axes(nodes);
    for u in nodes.iter().filter(|u| chosen(u)) {
        let sum = match u.op() {
            Op::Stage(_) => &u.src()[0],
            _ => u,
        };
        let (Some(of_root), Some(sides)) = (known.get(u), sides(sum)) else {
            continue;
        };
        while n > 0 && !sides.iter().all(|side| is_wide(sum, of_root, side, n)) {
            n -= 1;
        }
    }
    n
}

/// Whether a side of a product keeps enough elements when the root's first n axes are fixed.
fn is_wide(sum: &UOp, of_root: &Axes, side: &[bool], n: usize) -> bool {
    let (mut whole, mut left) = (1usize, 1usize);
    for ((&extent, of), _) in (sum.shape().iter().zip(of_root).zip(side)).filter(|(_, own)| **own) {
        let fixed = of.is_some_and(|axis| usize::from(axis) < n);
        whole = whole.saturating_mul(extent);
        left = left.saturating_mul(if fixed { 1 } else { extent });
    }
    left >= whole.min(SIDE)
}

/// For each factor of a contraction the axes of the result that only this one has.
fn sides(sum: &UOp) -> Option<[SmallVec<[bool; 8]>; 2]> {
    if !matches!(
        sum.op(),
        Op::Reduce {
            fold: Fold::Chain,
            ..
        }
    ) {
        return None;
    }
    let (product, through) = chain_product(&sum.src()[0])?;
    let factors = [&product.src()[0], &product.src()[1]].map(chain);
    // Only these: elsewhere in the graph a factor may be read in another way.
    let mut nodes: Vec<UOp> = Vec::new();
    let top = through.iter().rev().chain([sum]);
    let bottom = factors.iter().flat_map(|chain| chain.iter().rev());
    for u in bottom.chain([&product]).chain(top) {
        if !nodes.contains(u) {
            nodes.push(u.clone());
        }
    }
    let known = axes(&nodes);
    let repeats = |chain: &[UOp]| {
        let mut repeated: SmallVec<[bool; 8]> = smallvec![false; sum.shape().rank()];
        for u in chain {
            let (Op::Expand(to), Some(own)) = (u.op(), known.get(u)) else {
                continue;
            };
            let from = u.src()[0].shape();
            for ((axis, a), b) in own.iter().zip(from.iter()).zip(to.iter()) {
                if let Some(axis) = axis.filter(|_| a != b) {
                    repeated[usize::from(axis)] = true;
                }
            }
        }
        repeated
    };
    let [a, b] = [repeats(&factors[0]), repeats(&factors[1])];
    let only = |this: &[bool], other: &[bool]| {
        let both = this.iter().zip(other);
        both.map(|(&this, &other)| !this && other).collect()
    };
    Some([only(&a, &b), only(&b, &a)])
}

/// A factor and what it is made of by movement ops, casts and marks, from the top down.
fn chain(factor: &UOp) -> SmallVec<[UOp; 8]> {
    let mut chain = SmallVec::new();
    let mut u = factor;
    while u.op().is_movement() || matches!(u.op(), Op::Cast(_) | Op::Stage(_)) {
        chain.push(u.clone());
        u = &u.src()[0];
    }
    chain
}
