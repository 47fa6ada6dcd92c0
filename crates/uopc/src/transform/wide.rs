//! The same function in f64: every float of a graph widened.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::ir::custom::{Custom, Rules};
use crate::ir::op::{BufferId, Op};
use crate::ir::visit::Graph;
use crate::ir::{DType, Scalar, UOp};

/// The graphs with every float dtype replaced by f64 and nodes by others, which are f64 if the
/// nodes are floats. Memory is read as it is and converted.
///
/// # Errors
/// When a consumer does not accept a replacement.
pub(super) fn widened(roots: &[UOp], replace: &FxHashMap<UOp, UOp>) -> Result<Vec<UOp>> {
    let wide = |dtype: DType| match dtype.is_float() {
        true => DType::F64,
        false => dtype,
    };
    Graph::new(roots).map(|_, u, src| {
        if let Some(other) = replace.get(u) {
            return Ok(other.clone());
        }
        let op = match u.op() {
            Op::Const(value) if value.dtype().is_float() => {
                Op::Const(Scalar::from_f64(DType::F64, value.as_f64()))
            }
            Op::Buffer {
                id: BufferId::Slot(slot),
                dtype,
                n,
            } => Op::Buffer {
                id: BufferId::Slot(*slot),
                dtype: wide(*dtype),
                n: *n,
            },
            Op::Buffer {
                id: BufferId::Live(_),
                ..
            } => return u.cast(wide(u.dtype())),
            Op::Iota { n, dtype } => Op::Iota {
                n: *n,
                dtype: wide(*dtype),
            },
            Op::Cast(dtype) => Op::Cast(wide(*dtype)),
            // The bits are those of the dtype that the function reads.
            Op::Bitcast(dtype) => {
                let bits = src[0].cast(u.src()[0].dtype())?.bitcast(*dtype)?;
                return bits.cast(wide(*dtype));
            }
            Op::Custom(custom) => Op::Custom(Arc::new(Custom {
                name: custom.name.clone(),
                rules: match &custom.rules {
                    Some(rules) => Some(Arc::new(wide_rules(rules)?)),
                    None => None,
                },
            })),
            other => other.clone(),
        };
        UOp::new(op, src)
    })
}

/// The rules of a function of the user's, over leaves of f64 where there were floats.
fn wide_rules(rules: &Rules) -> Result<Rules> {
    let mut replace = FxHashMap::default();
    let mut leaf = |u: &UOp| match u.dtype().is_float() {
        true => {
            let wide = UOp::placeholder(DType::F64, u.shape().numel());
            replace.insert(u.clone(), wide.clone());
            wide
        }
        false => u.clone(),
    };
    let inputs = rules.inputs.iter().map(&mut leaf).collect();
    let tangents = rules.tangents.iter().map(&mut leaf).collect();
    let (output, cotangent) = (leaf(&rules.output), leaf(&rules.cotangent));
    let wide = |rule: &UOp| Ok(widened(std::slice::from_ref(rule), &replace)?.swap_remove(0));
    let each = rules.vjp.iter();
    let vjp = each.map(|rule| rule.as_ref().map(wide).transpose());
    let vjp = vjp.collect::<Result<Vec<Option<UOp>>>>()?;
    let jvp = wide(&rules.jvp)?;
    Ok(Rules::new(inputs, output, cotangent, tangents, vjp, jvp))
}
