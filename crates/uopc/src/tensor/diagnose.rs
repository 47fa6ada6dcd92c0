//! Where gradients, NaNs and infinities come from, for tensors.

use std::borrow::Borrow;

use super::{Result, Site, Tensor, UOp, history, realize};
use crate::autodiff::{Cut, Explanation, explain_gradient};
use crate::compile::Finding;

/// Names the first op whose result holds a NaN or an infinity while its sources hold none, and which
/// made one of the tensors hold one: with the line of the program, the rule if it is part of a
/// derivative, a position and what was read there. Nothing if all tensors are finite.
///
/// For a training step give the loss and the gradients. The graphs are computed anew, op by op, by
/// the engine in use; tensors that were computed and keep no graph are inputs. What a branch holds
/// that no `where` takes does not count, and infinities of inputs and constants are taken as meant,
/// unless there is nothing else.
///
/// ```
/// use uopc::{Tensor, find_nan};
///
/// let x = Tensor::from([4.0f32, 0.0]).requires_grad()?;
/// let loss = x.sqrt()?.sum(..)?;
/// loss.backward(&[&x])?;
/// assert_eq!(find_nan(&[&loss])?, None);
/// let found = find_nan(&[&loss, &x.grad().expect("backward set it")])?.expect("1 / 0");
/// assert_eq!((&found.op[..], &found.index[..]), ("div", &[1][..]));
/// assert!(found.to_string().contains("vjp of sqrt"), "{found}");
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the graphs can't be compiled or run.
#[track_caller]
pub fn find_nan<T: Borrow<Tensor>>(tensors: &[T]) -> Result<Option<Finding>> {
    let _site = Site::caller().enter();
    let nodes: Vec<UOp> = tensors.iter().map(|t| t.borrow().uop()).collect();
    realize::find_nan(&nodes)
}

impl Tensor {
    /// [`find_nan`](crate::find_nan) for this tensor alone.
    ///
    /// # Errors
    /// When the graph can't be compiled or run.
    #[track_caller]
    pub fn find_nan(&self) -> Result<Option<Finding>> {
        find_nan(&[self])
    }

    /// Explains the gradient of this with respect to `target`: the paths by which the target reaches
    /// this, or where each is cut (by a detach, a comparison, a cast to integers, a position, an
    /// update since), with lines of the program and remedies. It prints; nothing is computed.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let w = Tensor::from([1.0f32, 2.0]).requires_grad()?;
    /// let loss = w.exp()?.detach()?.sum(..)?;
    /// let explanation = loss.explain_gradient(&w)?;
    /// assert!(!explanation.reaches());
    /// assert!(explanation.to_string().contains("it is detached; leave out the detach"));
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When one of the two is no float.
    #[track_caller]
    pub fn explain_gradient(&self, target: &Tensor) -> Result<Explanation> {
        let _site = Site::caller().enter();
        let (root, _) = self.read();
        let explanation = explain_gradient(&root, &target.uop())?;
        let explanation = explanation.called("the tensor", "the loss");
        if explanation.mentioned {
            return Ok(explanation);
        }
        Ok(match history::ended_at(&root, target.0.id) {
            None => explanation,
            Some(update) => explanation.cut_by(Cut {
                message: "the loss was computed from the value that the tensor had before an \
                          update; compute the loss again after an update, or call backward before \
                          it"
                .into(),
                site: update,
            }),
        })
    }
}
