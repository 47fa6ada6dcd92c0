//! Training and evaluation: what dropout and batch norm do depends on it.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static EVALUATING: Cell<usize> = const { Cell::new(0) };
}

/// Evaluation in force on this thread until it is dropped, see [`evaluation`].
#[must_use = "evaluation ends when this is dropped"]
pub struct Evaluation {
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

/// From here until the result is dropped, layers of this thread evaluate: dropout keeps everything
/// and batch norm uses its running statistics. Otherwise they train.
///
/// ```
/// use uopc::{Tensor, nn::{self, Dropout}};
///
/// let (dropout, x) = (Dropout::new(0.5)?, Tensor::ones([4])?);
/// let _evaluation = nn::evaluation();
/// assert_eq!(dropout.forward(&x)?.to_vec::<f32>()?, [1.0; 4]);
/// # Ok::<(), uopc::Error>(())
/// ```
pub fn evaluation() -> Evaluation {
    EVALUATING.set(EVALUATING.get() + 1);
    Evaluation { _here: PhantomData }
}

impl Drop for Evaluation {
    fn drop(&mut self) {
        EVALUATING.set(EVALUATING.get() - 1);
    }
}

/// Whether layers of this thread train.
pub fn is_training() -> bool {
    EVALUATING.get() == 0
}
