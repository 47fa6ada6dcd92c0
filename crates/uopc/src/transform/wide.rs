//! The same function in f64: every float of a graph widened.

use rustc_hash::FxHashMap;

use crate::error::Result;
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
            other => other.clone(),
        };
        UOp::new(op, src)
    })
}
