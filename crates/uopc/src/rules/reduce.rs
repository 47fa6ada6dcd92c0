//! Reductions that need no loop: empty ones, those of constants, those over extent 1, and those
//! that merge with another.

use super::{constant, full, is_exact};
use crate::ir::op::{Fold, Op, ReduceOp};
use crate::ir::scalar::apply;
use crate::ir::{DType, Scalar, UOp};
use crate::rewrite::{Miss, found, require};

rule_table! {
    /// Reductions in shape graphs.
    pub RULES;

    /// reduce of nothing => 0, 1 or the least value
    Any reduce_empty [reduce] (u) {
        let (op, count) = reduction(u)?;
        require(count == 0)?;
        let value = match op {
            ReduceOp::Add => Scalar::zero(u.dtype()),
            ReduceOp::Mul | ReduceOp::Max => Scalar::identity(op, u.dtype()),
        };
        full(value, u)
    }

    /// reduce of one element => x.reshape; not for a chain, which turns -0.0 into 0.0
    Any reduce_one [reduce] (u) {
        let (_, count) = reduction(u)?;
        require(count == 1 && matches!(u.op(), Op::Reduce { fold: Fold::Lanes, .. }))?;
        Ok(u.src()[0].reshape(u.shape())?)
    }

    /// sum of n equal c => n * c
    Int sum_constant [reduce] (u) {
        let (op, count) = reduction(u)?;
        require(op == ReduceOp::Add && is_exact(u) && count < usize::MAX)?;
        let c = found(constant(&u.src()[0]))?;
        if u.dtype() == DType::Bool {
            return full(c, u);
        }
        let n = Scalar::from_i128(u.dtype(), count as i128);
        full(apply(&Op::Mul, u.dtype(), &[c, n]), u)
    }

    /// max of equal c => c
    Any max_constant [reduce] (u) {
        let (op, count) = reduction(u)?;
        require(op == ReduceOp::Max && count > 0)?;
        full(found(constant(&u.src()[0]))?, u)
    }

    /// reduce(reduce(x)) => reduce(x) for one op; of floats only the maximum
    Any reduce_reduce [reduce] (u) {
        let inner = &u.src()[0];
        let (Op::Reduce { op: outer_op, n, .. }, Op::Reduce { op, n: m, .. }) =
            (u.op(), inner.op())
        else {
            return Err(Miss::NoMatch);
        };
        require(outer_op == op && (is_exact(u) || *op == ReduceOp::Max))?;
        Ok(inner.src()[0].reduce_as(*op, *n as usize + *m as usize, Fold::Lanes)?)
    }
}

/// The op of a reduction, and how many elements each result combines.
fn reduction(u: &UOp) -> Result<(ReduceOp, usize), Miss> {
    let Op::Reduce { op, n, .. } = u.op() else {
        return Err(Miss::NoMatch);
    };
    let from = u.src()[0].shape();
    let reduced = &from[from.rank() - *n as usize..];
    Ok((
        *op,
        reduced.iter().fold(1, |n: usize, &d| n.saturating_mul(d)),
    ))
}
