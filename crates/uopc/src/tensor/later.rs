//! Values that are computed with whatever is computed next: running statistics of layers.
//!
//! A layer that keeps statistics changes them while a graph is built. Computing them at once would
//! run a part of the forward pass for them alone; leaving them to whoever reads them would let their
//! graphs grow from step to step. So they wait in a list of their thread, and the next plan that
//! anyone runs there computes them, too: in a training step that is the plan of the step, which has
//! what they need.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::argument::is_unknown;
use super::history::is_in_memory;
use super::{Handle, Result, Site, Tensor, UOp};
use crate::ir::visit::Graph;

thread_local! {
    static WAITING: RefCell<Vec<Waiting>> = const { RefCell::new(Vec::new()) };
}

/// A tensor whose value waits to be computed.
struct Waiting {
    tensor: Weak<Handle>,
    /// What it stood for before, if the value turns out to be one of many.
    former: UOp,
}

impl Tensor {
    /// [`set`](Self::set) whose value is computed with whatever this thread computes next, in the
    /// same plan. No gradient flows through it.
    ///
    /// Values that exist only once for each slice of a [`vmap`](crate::vmap) are dropped with a
    /// warning, and the tensor keeps what it has.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (x, count) = (Tensor::from([1.0f32, 2.0]), Tensor::from([0.0f32]));
    /// count.set_later(&(&count + 1.0))?;
    /// assert_eq!((&x * 2.0).to_vec::<f32>()?, [2.0, 4.0]); // computes the count, too
    /// assert_eq!(count.to_vec::<f32>()?, [1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When shape or dtype differ, and when this is a parameter.
    #[track_caller]
    pub fn set_later(&self, value: &Tensor) -> Result<()> {
        let _site = Site::caller().enter();
        let former = self.uop();
        self.set(&value.detach()?)?;
        WAITING.with_borrow_mut(|list| {
            list.retain(|w| w.tensor.strong_count() > 0);
            // Of several values in a row the last one is computed, through those before it.
            if !list
                .iter()
                .any(|w| w.tensor.as_ptr() == Arc::as_ptr(&self.0))
            {
                let tensor = Arc::downgrade(&self.0);
                list.push(Waiting { tensor, former });
            }
        });
        Ok(())
    }
}

/// The tensors whose values wait, which from now on do not.
pub(super) fn due() -> Vec<Tensor> {
    let list = WAITING.with_borrow_mut(std::mem::take);
    let mut tensors = Vec::new();
    for waiting in list {
        let Some(handle) = waiting.tensor.upgrade() else {
            continue;
        };
        let tensor = Tensor(handle);
        if is_in_memory(&tensor.uop()) {
            continue;
        }
        tensors.push((tensor, waiting.former));
    }
    let nodes: Vec<UOp> = tensors.iter().map(|(t, _)| t.uop()).collect();
    if !Graph::new(&nodes).nodes.iter().any(is_unknown) {
        return tensors.into_iter().map(|(t, _)| t).collect();
    }
    // Some are made of values of which there are many. That is rare, so each is looked at alone.
    let mut known = Vec::new();
    for (tensor, former) in tensors {
        if !Graph::new(&[tensor.uop()]).nodes.iter().any(is_unknown) {
            known.push(tensor);
            continue;
        }
        log::warn!(
            target: "uopc::tensor",
            "a tensor of shape {} is not updated: inside vmap there is a value for each slice; \
             evaluate with running statistics there, or keep none",
            tensor.shape()
        );
        tensor.0.replace(former);
    }
    known
}
