//! Whether a rule is zero where what comes from outside is zero, as one that is linear has to be.

use rustc_hash::FxHashSet;

use crate::ir::UOp;
use crate::ir::op::{BufferId, Op, ReduceOp};
use crate::ir::visit::Graph;
use crate::tensor::{Tensor, is_argument};

/// What is known of a node's elements when all leaves in question are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// They are zeros, unless an infinite or NaN factor spoils them.
    Zero,
    /// One of them is something else, for most values of the other leaves.
    Nonzero,
    /// Nothing.
    Nothing,
}

use Known::{Nonzero, Nothing, Zero};

/// True if one of the roots is for sure not zero where these leaves are, as `g + 1` is not where g
/// is. It errs on the side of false: what cancels, or is zero by its numbers, can't be seen in a
/// graph.
pub(super) fn is_surely_nonzero(roots: &[UOp], leaves: &[UOp]) -> bool {
    let graph = Graph::new(roots);
    let leaves: FxHashSet<&UOp> = leaves.iter().collect();
    let mut known: Vec<Known> = Vec::with_capacity(graph.len());
    for (i, u) in graph.nodes.iter().enumerate() {
        let sources: Vec<Known> = graph.src(i).iter().map(|&s| known[s as usize]).collect();
        let is_zero = leaves.contains(u) || u.shape().numel() == 0;
        known.push(if is_zero { Zero } else { of(u, &sources) });
    }
    graph.roots.iter().any(|&r| known[r as usize] == Nonzero)
}

/// What is known of a node, given what is known of its sources.
fn of(u: &UOp, s: &[Known]) -> Known {
    match u.op() {
        Op::Const(c) if c.as_f64() == 0.0 => Zero,
        Op::Const(_) => Nonzero,
        Op::Buffer {
            id: BufferId::Live(_),
            ..
        } if !is_argument(u) => of_data(u),
        Op::Buffer { .. } | Op::Param { .. } => Nonzero,
        Op::Iota { n, .. } if *n <= 1 => Zero,
        Op::Iota { .. } => Nonzero,

        Op::Add => sum(s[0], s[1]),
        Op::Mul => product(s[0], s[1]),
        Op::MulAcc => sum(product(s[0], s[1]), s[2]),
        Op::Div => s[0],
        Op::Where => either(s[1], s[2]),
        Op::Recip | Op::Exp2 | Op::Exp | Op::Log2 => match s[0] {
            Zero => Nothing,
            other => other,
        },
        // A sine is zero where its source is, a cosine is not.
        Op::Sin(turns) if turns % 2 == 0 => s[0],
        Op::Sin(_) => match s[0] {
            Nonzero => Nonzero,
            Zero | Nothing => Nothing,
        },
        Op::Sqrt
        | Op::Cast(_)
        | Op::Reshape(_)
        | Op::Expand(_)
        | Op::Permute(_)
        | Op::Stage(_)
        | Op::Custom(_) => s[0],
        Op::Stack => s.iter().copied().reduce(either).unwrap_or(Zero),
        // Parts of what is not zero may be zero, and sums may cancel.
        Op::Trunc | Op::Bitcast(_) | Op::Shrink(_) | Op::Index | Op::ScatterAdd(_) => zero_or(s[0]),
        Op::Scan(ReduceOp::Add | ReduceOp::Max) => zero_or(s[0]),
        Op::Reduce {
            op: ReduceOp::Add | ReduceOp::Max,
            ..
        } => zero_or(s[0]),
        // The product of nothing is 1.
        Op::Scan(ReduceOp::Mul)
        | Op::Reduce {
            op: ReduceOp::Mul, ..
        } => Nothing,
        Op::Max => match (s[0], s[1]) {
            (Zero, Zero) => Zero,
            _ => Nothing,
        },
        Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr
        | Op::ArgSort => Nothing,

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
        | Op::Barrier => Nothing,
    }
}

/// What is known of numbers in memory: they can be looked at.
fn of_data(u: &UOp) -> Known {
    match Tensor::from_uop(u.clone()).to_bytes() {
        Ok(bytes) if bytes.iter().all(|&b| b == 0) => Zero,
        Ok(_) => Nonzero,
        Err(_) => Nothing,
    }
}

fn sum(a: Known, b: Known) -> Known {
    match (a, b) {
        (Zero, other) | (other, Zero) => other,
        (Nonzero | Nothing, Nonzero | Nothing) => Nothing,
    }
}

fn product(a: Known, b: Known) -> Known {
    match (a, b) {
        (Zero, _) | (_, Zero) => Zero,
        (Nonzero, Nonzero) => Nonzero,
        (Nothing, Nonzero | Nothing) | (Nonzero, Nothing) => Nothing,
    }
}

/// Of elements that come from one of two.
fn either(a: Known, b: Known) -> Known {
    match (a, b) {
        (Nonzero, _) | (_, Nonzero) => Nonzero,
        (Zero, Zero) => Zero,
        (Nothing, Zero | Nothing) | (Zero, Nothing) => Nothing,
    }
}

fn zero_or(s: Known) -> Known {
    match s {
        Zero => Zero,
        Nonzero | Nothing => Nothing,
    }
}
