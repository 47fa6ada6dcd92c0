//! What the user writes: a [`Tensor`], a lazy handle on a node of a shape graph.
//!
//! An operation on tensors builds a node and computes nothing. Numbers are computed when they are
//! asked for, by [`Tensor::realize`], [`Tensor::item`] or [`Tensor::to_vec`], all that is asked
//! for at once as one plan.
//!
//! Methods return [`Result`]; the operators `+ - * /` panic with the same text at the caller's
//! line, and each has a method as its fallible twin ([`Tensor::add`] and so on). Shapes broadcast
//! as in NumPy, dtypes combine by [`DType::promote`], and a number next to a tensor takes the
//! tensor's dtype, except that a float makes an integer tensor an f32.
//!
//! ```
//! use uopc::Tensor;
//!
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2])?.requires_grad()?;
//! let loss = (&x * &x).sum(..)?;
//! loss.backward(&[&x])?;
//! assert_eq!(loss.item()?, 30.0);
//! assert_eq!(x.grad().expect("backward set it").to_vec::<f32>()?, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), uopc::Error>(())
//! ```

mod args;
mod argument;
mod backward;
mod create;
mod diagnose;
mod display;
mod elementwise;
mod formulas;
mod history;
mod host;
mod index;
mod limit;
mod matmul;
mod movement;
mod operand;
mod operators;
mod random;
mod realize;
mod reduce;
mod scan;
mod slices;
mod sort;
mod update;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::ir::op::StageKind;
pub(crate) use argument::is_argument;

pub use crate::error::{Error, Result};
pub use crate::ir::site::{Entered, Site};
pub use crate::ir::{DType, Shape, UOp};
pub use crate::runtime::{Element, Storage};
pub use args::{Axes, Dims, Integer};
pub use backward::{NoGrad, no_grad};
pub(crate) use backward::{grads_on, with_grads};
pub use diagnose::find_nan;
pub use limit::{MemoryLimit, memory_limit};
pub use operand::Operand;
pub use random::Generator;
pub use realize::{EnteredEngine, enter_engine, entered_engine, with_engine};
pub use slices::{Slice, Slices};
pub use sort::{Interpolation, Side};

use history::Tape;

/// A multi-dimensional array, computed when needed.
///
/// A clone is another name for the same tensor: both see its gradient and its
/// [updates](Tensor::assign).
#[derive(Clone)]
pub struct Tensor(Arc<Handle>);

/// What all clones of a tensor share.
struct Handle {
    /// Unique in the process.
    id: u64,
    dtype: DType,
    shape: Shape,
    state: Mutex<State>,
}

struct State {
    /// The value as a graph.
    node: UOp,
    /// Whether the value depends on a parameter through ops that may have a gradient.
    needs_grad: bool,
    /// Whether this is such a parameter: a leaf in memory of its own.
    parameter: bool,
    /// The memory that holds the value, owned here, if the node is not itself the owner.
    value: Option<Arc<Storage>>,
    /// Whether this is a gradient: it can be differentiated, but is seldom, so computing it keeps
    /// no interior values.
    gradient: bool,
    /// Memory of values that the gradients of this one will read.
    tape: Tape,
    /// The gradient that [`Tensor::backward`] has left here.
    grad: Option<Tensor>,
}

impl Tensor {
    /// A tensor for a node of a shape graph, which may mention other tensors' nodes.
    pub fn from_uop(node: UOp) -> Tensor {
        let needs_grad = !history::leaves(std::slice::from_ref(&node)).is_empty();
        Tensor::new(node, needs_grad)
    }

    fn new(node: UOp, needs_grad: bool) -> Tensor {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Tensor(Arc::new(Handle {
            id: NEXT.fetch_add(1, Relaxed),
            dtype: node.dtype(),
            shape: node.shape().clone(),
            state: Mutex::new(State {
                node,
                needs_grad,
                parameter: false,
                value: None,
                gradient: false,
                tape: Tape::default(),
                grad: None,
            }),
        }))
    }

    /// The result of an operation on tensors of which some need gradients.
    pub(crate) fn derived(node: UOp, needs_grad: bool) -> Tensor {
        if needs_grad && !backward::grads_on() {
            // The graph says so, too: whoever goes on with the node gets no gradient through it.
            return Tensor::new(backward::detached(node), false);
        }
        Tensor::new(node, needs_grad)
    }

    /// The result of an operation on this tensor alone.
    fn map(&self, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<Tensor> {
        let (node, needs_grad) = self.read();
        Ok(Tensor::derived(f(&node)?, needs_grad))
    }

    /// The same values, with a mark on them.
    pub(crate) fn marked(&self, kind: StageKind) -> Result<Tensor> {
        self.map(|u| u.stage(kind))
    }

    fn read(&self) -> (UOp, bool) {
        let state = self.0.state.lock();
        (state.node.clone(), state.needs_grad)
    }

    /// The node that stands for the tensor's value at the moment. Realising may replace it by
    /// the buffer that was computed, an update by the new value's.
    pub fn uop(&self) -> UOp {
        self.0.state.lock().node.clone()
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The extents of its axes, `()` for a scalar.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.shape.rank()
    }

    /// The number of elements: 1 for a scalar.
    pub fn numel(&self) -> usize {
        self.0.shape.numel()
    }

    /// The tensor's number, unique in the process: equal for all names of one tensor.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// True if both are names of one tensor; equal contents do not matter.
    pub fn is(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The error for shapes, axes or sizes that do not fit.
fn shape_error(op: &'static str, message: String) -> Error {
    let site = Site::current();
    Error::Shape { op, message, site }
}

/// The error for dtypes that do not fit.
fn dtype_error(op: &'static str, message: String) -> Error {
    let site = Site::current();
    Error::DType { op, message, site }
}
