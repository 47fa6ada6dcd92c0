//! Sums of one-hot values, which read or add at numbers instead of comparing each with all positions.
//!
//! `sum(onehot(i) * x)` and `sum(i == position ? x : 0)` over the positions are `x[i]`; over the numbers
//! they are a SCATTER_ADD. Work that grew with numbers times positions then grows with the numbers.
//!
//! licence: 0 times an infinity or a NaN is NaN, so a product with a one-hot is NaN wherever a row or
//! value that is not chosen holds one. What it is read as gives the chosen ones, whatever the others
//! are. Where all values are finite, the bits are the same, but that a product of several elements
//! summed in lanes may have -0 where this has +0. That is accepted, since nobody who looks up a row
//! means the others, and the cost falls from that of a matrix product to that of a copy. The rules with
//! that licence have `product` in their names; the others keep every bit.

use super::full;
use crate::ir::onehot::{OneHot, one_hot};
use crate::ir::op::{Fold, Op, ReduceOp};
use crate::ir::{DType, Scalar, UOp};
use crate::rewrite::{Match, Miss, found, require};

/// Elements that a chain sums before it starts a new partial sum.
const BLOCK: usize = 4096;

/// What every float counts up to: sums of ones are exact in f32 in any order.
const COUNTED: usize = 1 << 24;

rule_table! {
    /// Sums of one-hot values in shape graphs.
    pub RULES;

    /// sum(i == position ? x : 0) => x[i] + 0.0, integers without the + 0.0
    Any onehot_read [reduce] (u) {
        let sum = sum(u)?;
        require(!sum.hot.product || !u.dtype().is_float())?;
        read(u, &sum)
    }

    /// sum((i == position) * x) => x[i] + 0.0
    Licensed onehot_product_read [reduce] (u) {
        let sum = sum(u)?;
        require(sum.hot.product && u.dtype().is_float())?;
        read(u, &sum)
    }

    /// sum over numbers i of i == position ? x : 0 => scatter_add(x, i) for integers and for x = 1
    Any onehot_add [reduce] (u) {
        let sum = sum(u)?;
        let counts = sum.hot.counts() && !sum.hot.product && sum.count <= COUNTED;
        require(!u.dtype().is_float() || counts)?;
        add(u, &sum)
    }

    /// sum over numbers i of (i == position) * x => scatter_add(x, i) for a chain of one block
    Licensed onehot_product_add [reduce] (u) {
        let sum = sum(u)?;
        let chain = matches!(u.op(), Op::Reduce { fold: Fold::Chain, .. });
        require(sum.hot.product && u.dtype().is_float() && chain && sum.count <= BLOCK)?;
        add(u, &sum)
    }
}

/// A sum of one-hot values over trailing axes.
struct Sum {
    hot: OneHot,
    /// The axes that are summed.
    summed: Vec<usize>,
    /// How many elements each result sums.
    count: usize,
}

fn sum(u: &UOp) -> Result<Sum, Miss> {
    let Op::Reduce {
        op: ReduceOp::Add,
        n,
        ..
    } = *u.op()
    else {
        return Err(Miss::NoMatch);
    };
    let x = &u.src()[0];
    require(u.dtype() != DType::Bool && !x.shape().contains(&0))?;
    let first = x.shape().rank() - usize::from(n);
    let hot = found(one_hot(x))?;
    Ok(Sum {
        hot,
        summed: (first..x.shape().rank()).collect(),
        count: x.shape()[first..].iter().product(),
    })
}

fn read(u: &UOp, sum: &Sum) -> Match {
    // The sum of one element keeps the sign of a zero, and other summed axes are no positions.
    let positions = u.src()[0].shape()[sum.hot.axis];
    require(sum.summed.contains(&sum.hot.axis) && sum.count == positions && positions > 1)?;
    let read = sum.hot.read()?.reshape(u.shape())?;
    if !u.dtype().is_float() {
        return Ok(read);
    }
    let zero = full(Scalar::zero(u.dtype()), u)?;
    Ok(read.add(&zero)?)
}

fn add(u: &UOp, sum: &Sum) -> Match {
    require(!sum.summed.contains(&sum.hot.axis) && sum.hot.is_constant())?;
    Ok(sum.hot.add(&sum.summed)?.reshape(u.shape())?)
}
