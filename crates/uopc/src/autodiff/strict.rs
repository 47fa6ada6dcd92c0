//! Strict mode: whether a target that is cut off is an error or a warning.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// How many guards of [`strict_gradients`] live.
    static STRICT: Cell<usize> = const { Cell::new(0) };
}

/// Until the returned guard is dropped, whatever differentiates on this thread refuses a target or
/// an argument whose every path to the result is cut (by a detach, a comparison, a cast to
/// integers, a position), where it would else give zeros and warn: [`gradient`](super::gradient),
/// [`grad`](crate::grad), [`value_and_grad`](crate::value_and_grad), [`vjp`](crate::vjp) and what is
/// made of them. [`Tensor::backward`](crate::Tensor::backward) always refuses it.
///
/// ```
/// use uopc::{Tensor, autodiff::strict_gradients, grad};
///
/// let f = |x: &Tensor| x.detach()?.sum(..);
/// let x = Tensor::from([1.0f32, 2.0]);
/// assert_eq!(grad(f)(&x)?.to_vec::<f32>()?, [0.0, 0.0]);
/// let _strict = strict_gradients();
/// assert!(grad(f)(&x).is_err());
/// # Ok::<(), uopc::Error>(())
/// ```
pub fn strict_gradients() -> StrictGradients {
    STRICT.set(STRICT.get() + 1);
    StrictGradients(PhantomData)
}

/// Whether a guard of [`strict_gradients`] lives on this thread.
pub fn is_strict() -> bool {
    STRICT.get() > 0
}

/// Keeps strict mode on while it lives; see [`strict_gradients`].
#[must_use]
pub struct StrictGradients(
    /// A guard stays on its thread.
    PhantomData<*const ()>,
);

impl Drop for StrictGradients {
    fn drop(&mut self) {
        STRICT.set(STRICT.get() - 1);
    }
}
