//! Dropout: elements set to 0 at random.

use super::{Error, Result, Site, Tensor};

impl Tensor {
    /// Each element set to 0 with probability p, independently of the others, and what is left
    /// divided by 1 - p, so that sums stay what they are in the mean.
    ///
    /// Numbers are drawn from the thread's generator; each call draws others. Its key is data in a
    /// buffer, so a training step with dropout has the same plan each time.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// Tensor::manual_seed(1);
    /// let y = Tensor::ones([1000])?.dropout(0.25)?.to_vec::<f32>()?;
    /// assert!(y.iter().all(|&y| y == 0.0 || y == 4.0 / 3.0));
    /// assert!((700..800).contains(&y.iter().filter(|&&y| y != 0.0).count()));
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When p is not from 0 to 1.
    #[track_caller]
    pub fn dropout(&self, p: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        check(p)?;
        if p == 0.0 {
            return Ok(self.clone());
        }
        if p == 1.0 {
            return Tensor::full_of(0.into(), self.dtype(), self.shape());
        }
        let kept = Tensor::uniform(self.shape(), 0.0, 1.0)?.ge(p)?;
        kept.where_(self.mul(1.0 / (1.0 - p))?, 0.0)
    }
}

/// Refuses what is no probability.
pub(super) fn check(p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::Setting(format!(
        "dropout: p is {p}; a probability, from 0 to 1, is needed"
    )))
}
