//! Between tensors and the nodes that stand for them.

use pyo3::prelude::*;
use uopc::Tensor;

use super::{Node, PyUOp};
use crate::tensor::PyTensor;

#[pymethods]
impl PyTensor {
    /// The node that stands for the tensor's value at the moment.
    ///
    /// Computing the tensor may replace it by the buffer that was computed, an update by that of
    /// the new value.
    ///
    /// >>> (Tensor([1.0, 2.0]) * 2).uop.op.name
    /// 'MUL'
    #[getter]
    fn uop(&self) -> PyUOp {
        PyUOp(self.tensor.uop())
    }

    /// The tensor of a node, which may read other tensors' nodes. `Tensor(node)` is the same.
    ///
    /// >>> x = Tensor([1.0, 2.0])
    /// >>> Tensor.from_uop(x.uop * x.uop).tolist()
    /// [1.0, 4.0]
    #[staticmethod]
    fn from_uop(uop: Node) -> PyTensor {
        Tensor::from_uop(uop.0).into()
    }
}
