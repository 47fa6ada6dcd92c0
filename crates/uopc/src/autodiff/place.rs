//! The transpose of INDEX at constant places: what was read goes back there, with zeros around it.

use super::stop::unsupported;
use crate::error::Result;
use crate::ir::composite::pad;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use crate::ir::uop::UOp;

/// The transpose of reading x at constant indices. Reading out of range gives 0 and passes
/// nothing on.
pub(super) fn place(g: &UOp, x: &UOp, indices: &[UOp]) -> Result<UOp> {
    let mut dims = vec![1; indices.len()];
    dims.extend_from_slice(g.shape());
    let mut out = g.reshape(&dims)?;
    for (axis, index) in indices.iter().enumerate().rev() {
        let n = x.shape()[axis];
        let Op::Const(c) = index.op() else {
            return Err(unsupported(index, "index", "give a constant"));
        };
        let Some(at) = usize::try_from(c.as_i128()).ok().filter(|&at| at < n) else {
            return UOp::full(Scalar::zero(g.dtype()), x.shape());
        };
        let mut around = vec![(0, 0); x.shape().rank()];
        around[axis] = (at, n - 1 - at);
        out = pad(&out, &around)?;
    }
    Ok(out)
}
