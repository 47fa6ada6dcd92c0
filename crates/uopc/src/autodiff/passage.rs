//! How each op lets cotangents and their masks pass: what it leaves out, and what may spoil a zero.

use super::mask::Condition;
use super::vjp::spread;
use crate::error::Result;
use crate::ir::composite::reversal;
use crate::ir::op::{Fold, Op, ReduceOp};
use crate::ir::uop::UOp;

/// What happens to a cotangent on its way through an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Passage {
    /// It is moved, repeated or added up: zeros stay zeros.
    Moved,
    /// It is multiplied or divided by values of the graph. If those are infinite or NaN, even a
    /// zero becomes NaN.
    Scaled,
    /// It goes to the elements that the op chose by their values, see [`chosen`].
    Chosen,
    /// It goes to a part of the source, which the rule itself finds; the rule puts zeros elsewhere.
    Cut,
    /// It must be numbers: what does not count is set to 0 first. A matrix product stays one of two
    /// packed operands, with no mask in its inner loops.
    Closed,
    /// The same, and it goes to what was read at computed positions.
    Gathered,
    /// It ends here.
    Stopped,
}

impl Passage {
    /// True if cotangents are closed on the way.
    pub fn closes(self) -> bool {
        matches!(self, Passage::Closed | Passage::Gathered)
    }
}

/// What u does with cotangents.
pub(super) fn passage(u: &UOp) -> Passage {
    match u.op() {
        Op::Const(_) | Op::Buffer { .. } | Op::Param { .. } | Op::Iota { .. } => Passage::Stopped,

        Op::Add | Op::Cast(_) | Op::Stage(_) => Passage::Moved,
        // A finite number as a factor does no harm.
        Op::Mul | Op::MulAcc if u.src()[..2].iter().any(is_finite_constant) => Passage::Moved,
        Op::Mul | Op::MulAcc => Passage::Scaled,
        Op::Recip | Op::Div | Op::Exp2 | Op::Log2 | Op::Exp | Op::Sqrt | Op::Sin(_) => {
            Passage::Scaled
        }
        Op::Max | Op::Where => Passage::Chosen,
        Op::Trunc
        | Op::Bitcast(_)
        | Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr
        | Op::ArgSort => Passage::Stopped,

        Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Stack => Passage::Moved,
        Op::Shrink(_) => Passage::Cut,
        Op::Index if is_reversal(u) => Passage::Moved,
        Op::Index if u.src()[1..].iter().all(is_constant) => Passage::Cut,
        Op::Reduce { op, fold, .. } => match op {
            ReduceOp::Add if *fold == Fold::Chain => Passage::Closed,
            ReduceOp::Add => Passage::Moved,
            ReduceOp::Max => Passage::Chosen,
            ReduceOp::Mul => Passage::Scaled,
        },
        Op::Index => Passage::Gathered,
        // A row whose position is none has no effect.
        Op::ScatterAdd(_) => Passage::Cut,
        // A running maximum is read at the places that hold it.
        Op::Scan(ReduceOp::Max) => Passage::Gathered,
        Op::Scan(ReduceOp::Add | ReduceOp::Mul) | Op::Custom(_) => Passage::Closed,

        Op::Range { .. }
        | Op::End
        | Op::Store { .. }
        | Op::Load
        | Op::Local { .. }
        | Op::Sink
        | Op::After
        | Op::Call { .. }
        | Op::Loop
        | Op::EndLoop
        | Op::If
        | Op::EndIf
        | Op::Let { .. }
        | Op::Declare(_)
        | Op::Barrier => Passage::Stopped,
    }
}

/// Where u, an op of [`Passage::Chosen`], took the elements of its source `k`. The condition has the
/// source's shape.
pub(super) fn chosen(u: &UOp, k: usize) -> Result<Condition> {
    let s = u.src();
    if *u.op() == Op::Where {
        return Ok(Condition {
            c: s[0].clone(),
            holds: k == 1,
        });
    }
    // A maximum takes what is not less: all that tie.
    let greatest = if *u.op() == Op::Max {
        s[1 - k].clone()
    } else {
        spread(u, &s[k])?
    };
    Ok(Condition {
        c: s[k].cmplt(&greatest)?,
        holds: false,
    })
}

/// True for an INDEX that reads its source backwards.
pub(super) fn is_reversal(u: &UOp) -> bool {
    let s = u.src();
    *u.op() == Op::Index && s.len() == 2 && reversal(s[0].shape()[0]).is_ok_and(|r| s[1] == r)
}

fn is_constant(u: &UOp) -> bool {
    matches!(u.op(), Op::Const(_))
}

/// True for a finite number, perhaps repeated to a shape.
fn is_finite_constant(u: &UOp) -> bool {
    let mut u = u;
    while let Op::Reshape(_) | Op::Expand(_) = u.op() {
        u = &u.src()[0];
    }
    matches!(u.op(), Op::Const(c) if c.as_f64().is_finite())
}
