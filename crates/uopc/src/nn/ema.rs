//! The exponential moving average of a model's weights.

use super::saved::{entry, restore, saved_words};
use super::setting_error;
use crate::error::Result;
use crate::tensor::{Site, Tensor, no_grad};

/// Running means of parameters: `mean += (1 - decay) * (parameter - mean)` after each step. They
/// often do better than the parameters themselves, as they average the noise of many steps.
///
/// ```
/// use uopc::{Tensor, nn::Ema};
///
/// let w = Tensor::zeros([2])?.requires_grad()?;
/// let mut ema = Ema::new(vec![w.clone()], 0.75)?;
/// w.assign(1.0f32)?;
/// ema.update()?;
/// assert_eq!(ema.means()[0].to_vec::<f32>()?, [0.25, 0.25]);
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Debug)]
pub struct Ema {
    parameters: Vec<Tensor>,
    means: Vec<Tensor>,
    decay: f64,
    steps: u64,
    /// The parameters' own values while they have those of the means.
    own: Option<Vec<Tensor>>,
}

impl Ema {
    /// Means that start at the parameters' values.
    ///
    /// # Errors
    /// When the decay is not at least 0 and below 1, or a value can't be computed.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, decay: f64) -> Result<Ema> {
        let _site = Site::caller().enter();
        if !(0.0..1.0).contains(&decay) {
            return Err(setting_error(format!(
                "EMA: decay is {decay}; a number that is at least 0 and below 1 is needed"
            )));
        }
        let _off = no_grad();
        let means: Result<Vec<Tensor>> = parameters.iter().map(|p| p.detach()?.copy()).collect();
        Ok(Ema {
            means: means?,
            parameters,
            decay,
            steps: 0,
            own: None,
        })
    }

    /// Moves the means towards the parameters, as one plan.
    ///
    /// # Errors
    /// When a value can't be computed, or the parameters have the values of the means.
    #[track_caller]
    pub fn update(&mut self) -> Result<()> {
        let _site = Site::caller().enter();
        self.refuse_if_swapped()?;
        let _off = no_grad();
        let new = Tensor::from([1.0 - self.decay]).get(0)?;
        let mut values = Vec::with_capacity(self.means.len());
        for (mean, p) in self.means.iter().zip(&self.parameters) {
            let wide = p.dtype().accumulator();
            let old = mean.cast(wide)?;
            let moved = p.cast(wide)?.sub(&old)?.mul(&new.cast(wide)?)?;
            values.push(old.add(&moved)?.cast(p.dtype())?);
        }
        let updates: Vec<(&Tensor, &Tensor)> = self.means.iter().zip(&values).collect();
        Tensor::assign_all(&updates, &[] as &[Tensor])?;
        self.steps = self.steps.saturating_add(1);
        Ok(())
    }

    /// The means, in the order of the parameters.
    pub fn means(&self) -> &[Tensor] {
        &self.means
    }

    /// How much of a mean is kept in a step.
    pub fn decay(&self) -> f64 {
        self.decay
    }

    /// How many steps were counted.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Gives the parameters the values of the means, until [`restore`](Self::restore).
    ///
    /// # Errors
    /// When they have them already.
    #[track_caller]
    pub fn apply(&mut self) -> Result<()> {
        let _site = Site::caller().enter();
        self.refuse_if_swapped()?;
        let own: Result<Vec<Tensor>> = self.parameters.iter().map(Tensor::detach).collect();
        let own = own?;
        let updates: Vec<(&Tensor, &Tensor)> = self.parameters.iter().zip(&self.means).collect();
        Tensor::assign_all(&updates, &[] as &[Tensor])?;
        self.own = Some(own);
        Ok(())
    }

    /// Gives the parameters back the values that they had before [`apply`](Self::apply).
    ///
    /// # Errors
    /// When there was none.
    #[track_caller]
    pub fn restore(&mut self) -> Result<()> {
        let _site = Site::caller().enter();
        let Some(own) = &self.own else {
            let message = "EMA: the parameters have their own values; apply comes before restore";
            return Err(setting_error(message.into()));
        };
        let updates: Vec<(&Tensor, &Tensor)> = self.parameters.iter().zip(own).collect();
        Tensor::assign_all(&updates, &[] as &[Tensor])?;
        self.own = None;
        Ok(())
    }

    fn refuse_if_swapped(&self) -> Result<()> {
        if self.own.is_none() {
            return Ok(());
        }
        let message = "EMA: the parameters have the values of the means; restore them first";
        Err(setting_error(message.into()))
    }

    /// What it remembers: the means and the number of steps.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn state(&self) -> Result<Vec<(String, Tensor)>> {
        let mut state = vec![("steps".to_string(), Tensor::from_slice(&[self.steps], ())?)];
        state.extend(self.named());
        Ok(state)
    }

    /// Continues from a saved state.
    ///
    /// # Errors
    /// When an entry is missing or does not fit. Then nothing has changed.
    pub fn set_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let [steps] = saved_words("steps", entry(state, "steps")?)?;
        restore(state, &self.named())?;
        self.steps = steps;
        Ok(())
    }

    fn named(&self) -> Vec<(String, Tensor)> {
        let means = self.means.iter().enumerate();
        means
            .map(|(k, t)| (format!("mean.{k}"), t.clone()))
            .collect()
    }
}
