//! The rules of a shape graph.
//!
//! 1. Every node is a leaf (CONST, BUFFER, IOTA, or PARAM inside a kernel), arithmetic, movement,
//!    structure or a marker. Loops, effects and the linear program do not occur.
//! 2. A PARAM is only read: its mode is `in`.
//! 3. A slot is one buffer or parameter: two leaves of one slot agree on dtype and length.
//! 4. Only a float ADD is folded as a chain.
//! 5. A value has fewer than 2^63 elements, so that index arithmetic in i64 is exact.

use super::{broken, numbers_are_unique};
use crate::error::Result;
use crate::ir::op::{BufferId, Fold, Op, ParamMode, ReduceOp};
use crate::ir::uop::UOp;
use crate::ir::visit::toposort;

const FORM: &str = "shape graph";

pub(super) fn check(roots: &[UOp]) -> Result<()> {
    let nodes = toposort(roots);
    for u in &nodes {
        check_node(roots, u)?;
        if u.shape().numel() > i64::MAX as usize {
            let rule = "a value has fewer than 2^63 elements; shrink it before it grows";
            return Err(broken(FORM, roots, u, rule));
        }
    }
    numbers_are_unique(FORM, roots, nodes.iter(), |op| {
        if let Op::Param { slot, .. } = op {
            return Some(("param slot", *slot as u64));
        }
        match buffer_id(op)? {
            BufferId::Slot(slot) => Some(("slot", *slot as u64)),
            BufferId::Live(memory) => Some(("live buffer", memory.id)),
        }
    })
}

fn buffer_id(op: &Op) -> Option<&BufferId> {
    if let Op::Buffer { id, .. } = op {
        Some(id)
    } else {
        None
    }
}

fn check_node(roots: &[UOp], u: &UOp) -> Result<()> {
    match u.op() {
        Op::Const(_) | Op::Buffer { .. } | Op::Iota { .. } => Ok(()),
        Op::Param { mode, .. } if *mode == ParamMode::In => Ok(()),
        Op::Param { .. } => {
            let rule = "an expression only reads its parameters; the mode is in";
            Err(broken(FORM, roots, u, rule))
        }
        Op::Add
        | Op::Mul
        | Op::Max
        | Op::Recip
        | Op::Div
        | Op::Exp2
        | Op::Log2
        | Op::Exp
        | Op::Sqrt
        | Op::Sin(_)
        | Op::Trunc
        | Op::MulAcc
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::Where
        | Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr => Ok(()),
        Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Shrink(_) => Ok(()),
        Op::Stack | Op::Index | Op::ScatterAdd(_) | Op::Custom(_) | Op::Stage(_) => Ok(()),
        Op::Scan(_) | Op::ArgSort => Ok(()),
        Op::Reduce { op, fold, .. } => {
            let chain_fits = *op == ReduceOp::Add && u.dtype().is_float();
            if *fold == Fold::Chain && !chain_fits {
                let rule = "only a float ADD is folded as a chain; leave fold=chain away";
                return Err(broken(FORM, roots, u, rule));
            }
            Ok(())
        }
        Op::Range { .. }
        | Op::End
        | Op::Store { .. }
        | Op::Load
        | Op::Local { .. }
        | Op::Sink
        | Op::After
        | Op::Call { .. } => foreign(roots, u, "loops and effects"),
        Op::Loop
        | Op::EndLoop
        | Op::If
        | Op::EndIf
        | Op::Let { .. }
        | Op::Declare(_)
        | Op::Barrier => foreign(roots, u, "the linear program"),
    }
}

fn foreign(roots: &[UOp], u: &UOp, group: &str) -> Result<()> {
    let op = u.op().mnemonic();
    let rule = format!("{op} belongs to {group}, not to tensor expressions");
    Err(broken(FORM, roots, u, rule))
}
