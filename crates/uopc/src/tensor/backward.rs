//! Gradients: `backward` builds their graphs and leaves them with the parameters.

use std::borrow::Borrow;
use std::cell::Cell;
use std::marker::PhantomData;

use super::{Error, Result, Site, Tensor, UOp, history};
use crate::autodiff::gradient_with;
use crate::ir::op::StageKind;

thread_local! {
    /// How many guards of [`no_grad`] live, less those that do not count, see [`with_grads`].
    static GRADS_OFF: Cell<isize> = const { Cell::new(0) };
}

/// Whether results on this thread remember that they depend on parameters.
pub(crate) fn grads_on() -> bool {
    GRADS_OFF.get() <= 0
}

/// Until the returned guard is dropped, guards of [`no_grad`] that were there before do not count:
/// whoever differentiates a function needs its history, wherever that is done.
pub(crate) fn with_grads() -> WithGrads {
    WithGrads(GRADS_OFF.replace(0))
}

/// See [`with_grads`].
#[must_use]
pub(crate) struct WithGrads(isize);

impl Drop for WithGrads {
    fn drop(&mut self) {
        // A guard made or dropped meanwhile counts from now on.
        GRADS_OFF.set(GRADS_OFF.get() + self.0);
    }
}

/// The same values, through which no gradient flows.
pub(super) fn detached(node: UOp) -> UOp {
    // Staging a pure node can't fail; if it did, the values would still be right.
    node.stage(StageKind::Detach).unwrap_or(node)
}

/// Until the returned guard is dropped, nothing that this thread computes needs gradients, so no
/// history is kept. For evaluation. With several guards gradients come back after the last one,
/// in whatever order they are dropped.
///
/// ```
/// # use uopc::{Tensor, tensor::no_grad};
/// let w = Tensor::ones([3])?.requires_grad()?;
/// let score = {
///     let _off = no_grad();
///     (&w * 2).sum(..)?
/// };
/// assert!(!score.needs_grad());
/// # Ok::<(), uopc::Error>(())
/// ```
pub fn no_grad() -> NoGrad {
    GRADS_OFF.set(GRADS_OFF.get() + 1);
    NoGrad(PhantomData)
}

/// Keeps gradients off while it lives; see [`no_grad`].
#[must_use]
pub struct NoGrad(
    /// A guard stays on its thread.
    PhantomData<*const ()>,
);

impl Drop for NoGrad {
    fn drop(&mut self) {
        GRADS_OFF.set(GRADS_OFF.get() - 1);
    }
}

impl Tensor {
    /// Leaves the derivative of this scalar with respect to each parameter as the parameter's
    /// [`grad`](Self::grad), added to what is there. Returns the scalar.
    ///
    /// Nothing is computed: gradients are graphs like everything else, usually computed together
    /// with an update. They can be differentiated again. A parameter that the scalar does not
    /// mention gets zeros.
    ///
    /// # Errors
    /// When this is no scalar or does not depend on any parameter; when a tensor in the list is
    /// not made by [`requires_grad`](Self::requires_grad) or from one that is; when every path
    /// to one is cut by a detach, a comparison or a cast to integers; when a parameter was
    /// updated after this was computed; and when an op on the way has no derivative.
    #[track_caller]
    pub fn backward<P: Borrow<Tensor>>(&self, params: &[P]) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.check_scalar()?;
        let mut targets: Vec<&Tensor> = Vec::with_capacity(params.len());
        for (which, p) in params.iter().map(Borrow::borrow).enumerate() {
            if !p.needs_grad() {
                return Err(refuse(format!(
                    "parameter {which} in the list, of shape {}, needs no gradient; make it with \
                     requires_grad before it is used",
                    p.shape()
                )));
            }
            if !targets.iter().any(|t| t.is(p)) {
                targets.push(p);
            }
        }
        let ids: Vec<u64> = targets.iter().map(|t| t.0.id).collect();
        let (root, needs_grad) = self.read();
        history::check_current(&root, &ids)?;
        if !needs_grad && !targets.is_empty() {
            return Err(no_dependence());
        }
        let nodes: Vec<UOp> = targets.iter().map(|t| t.uop()).collect();
        self.leave_gradients(&root, &targets, &nodes)?;
        Ok(self.clone())
    }

    /// [`backward`](Self::backward) for every parameter that the scalar depends on and that still
    /// lives: each tensor made by [`requires_grad`](Self::requires_grad) from which a path leads
    /// here along which gradients flow. Others are left alone: theirs would be zeros.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let w = Tensor::from([1.0f32, 2.0]).requires_grad()?;
    /// let b = Tensor::from([0.5f32]).requires_grad()?;
    /// let other = Tensor::from([3.0f32]).requires_grad()?;
    /// (&(&w * &w) + &b).sum(..)?.backward_all()?;
    /// assert_eq!(w.grad().expect("backward set it").to_vec::<f32>()?, [2.0, 4.0]);
    /// assert_eq!(b.grad().expect("backward set it").to_vec::<f32>()?, [2.0]);
    /// assert!(other.grad().is_none());
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When this is no scalar or depends on no living parameter along a path that carries
    /// gradients; when a parameter was updated after this was computed; and when an op on the way
    /// has no derivative.
    #[track_caller]
    pub fn backward_all(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.check_scalar()?;
        let (root, _) = self.read();
        let mut targets: Vec<(Tensor, UOp)> = history::parameters_of(&root)?
            .into_iter()
            .map(|handle| {
                let target = Tensor(handle);
                let node = target.uop();
                (target, node)
            })
            .collect();
        // In the order in which they were made, whatever order the graph mentions them in.
        targets.sort_by_key(|(target, _)| target.0.id);
        if targets.is_empty() {
            // Parameters behind what no gradient passes: the driver says what cuts them off.
            let cut: Vec<UOp> = history::leaves(std::slice::from_ref(&root))
                .into_iter()
                .map(|(buffer, _)| buffer)
                .collect();
            if !cut.is_empty() {
                gradient_with(&root, &cut, true)?;
            }
            return Err(no_dependence());
        }
        let (targets, nodes): (Vec<Tensor>, Vec<UOp>) = targets.into_iter().unzip();
        let targets: Vec<&Tensor> = targets.iter().collect();
        self.leave_gradients(&root, &targets, &nodes)?;
        Ok(self.clone())
    }

    /// Says that this is a gradient: it can be differentiated, but is seldom, so computing it keeps
    /// no interior values.
    pub(crate) fn mark_gradient(&self) {
        self.0.state.lock().gradient = true;
    }

    fn check_scalar(&self) -> Result<()> {
        if self.rank() == 0 {
            return Ok(());
        }
        let shape = self.shape();
        Err(refuse(format!(
            "backward needs a scalar, not shape {shape}; take its sum or mean first"
        )))
    }

    /// Adds to the gradient of each target that of `root`, this tensor's node, with respect to
    /// the target's node.
    fn leave_gradients(&self, root: &UOp, targets: &[&Tensor], nodes: &[UOp]) -> Result<()> {
        let (gradients, _) = gradient_with(root, nodes, true)?;
        let tape = self.0.state.lock().tape.lend();
        for (target, node) in targets.iter().zip(gradients) {
            let gradient = Tensor::new(node, true);
            // Another thread may leave a gradient between reading and replacing; then once more.
            loop {
                let earlier = target.grad();
                let sum = match &earlier {
                    Some(earlier) => earlier.add(&gradient)?,
                    None => gradient.clone(),
                };
                let mut state = sum.0.state.lock();
                state.gradient = true;
                state.tape.join(&tape);
                drop(state);
                if let Some(earlier) = &earlier {
                    let kept = earlier.0.state.lock().tape.share();
                    sum.0.state.lock().tape.join(&kept);
                }
                if target.replace_grad(earlier.as_ref(), sum) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Replaces the gradient if it still is that one, and says whether it was.
    fn replace_grad(&self, earlier: Option<&Tensor>, grad: Tensor) -> bool {
        let mut state = self.0.state.lock();
        let unchanged = match (&state.grad, earlier) {
            (Some(present), Some(earlier)) => present.is(earlier),
            (None, None) => true,
            _ => false,
        };
        // What is not kept goes after the lock: a graph may be large.
        let rest = match unchanged {
            true => state.grad.replace(grad),
            false => Some(grad),
        };
        drop(state);
        drop(rest);
        unchanged
    }

    /// The gradient that [`backward`](Self::backward) has left, if any.
    pub fn grad(&self) -> Option<Tensor> {
        self.0.state.lock().grad.clone()
    }

    /// Replaces the gradient, for instance by a clipped one.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        let former = std::mem::replace(&mut self.0.state.lock().grad, grad);
        drop(former);
    }

    /// Forgets the gradient. Without this the next [`backward`](Self::backward) adds to it.
    pub fn zero_grad(&self) {
        self.set_grad(None);
    }

    /// Whether the tensor is a parameter or was made from one in a way that gradients can follow.
    pub fn needs_grad(&self) -> bool {
        self.0.state.lock().needs_grad
    }

    /// Whether it is a parameter itself, made by [`requires_grad`](Self::requires_grad).
    pub fn is_parameter(&self) -> bool {
        self.0.state.lock().parameter
    }

    /// The same values, through which no gradient flows. Costs nothing when computed.
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn detach(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (node, _) = self.read();
        Ok(Tensor::new(node.stage(StageKind::Detach)?, false))
    }
}

fn no_dependence() -> Error {
    refuse(
        "the loss depends on no tensor that needs a gradient: everything in it is detached, made \
         under no_grad, not made with requires_grad, or has dropped out, as x does of x to the \
         power 0"
            .into(),
    )
}

/// The error for ending the gradients of what only depends on parameters.
pub(super) fn computed_from_parameters() -> Error {
    refuse(
        "this tensor was computed from parameters, and only a parameter can cease to need gradients; \
         detach gives a tensor with the same values that needs none"
            .into(),
    )
}

fn refuse(message: String) -> Error {
    let site = Site::current();
    Error::Gradient { message, site }
}
