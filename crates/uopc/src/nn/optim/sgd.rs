//! Stochastic gradient descent.

use super::{Descent, Range, UpdateRule};
use crate::error::Result;
use crate::tensor::{Site, Tensor};

/// Stochastic gradient descent: with weight decay `g += decay * p`, with momentum
/// `v = momentum * v + g`, and then `p -= rate * v`; with Nesterov's momentum
/// `p -= rate * (g + momentum * v)`.
pub type Sgd = Descent<SgdRule>;

/// The settings of [`Sgd`].
#[derive(Clone, Debug)]
pub struct SgdRule {
    /// The learning rate.
    pub learning_rate: f64,
    /// How much of the velocity is kept from step to step.
    pub momentum: f64,
    /// The pull of the parameters towards 0, through the gradient.
    pub weight_decay: f64,
    /// Whether a step looks ahead by one step of the velocity.
    pub nesterov: bool,
}

impl Sgd {
    /// Plain descent.
    ///
    /// # Errors
    /// When a tensor is no parameter or is named twice.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, learning_rate: f64) -> Result<Sgd> {
        Sgd::with_momentum(parameters, learning_rate, 0.0)
    }

    /// Descent with momentum. The velocity starts at 0.
    ///
    /// # Errors
    /// When a tensor is no parameter or is named twice.
    #[track_caller]
    pub fn with_momentum(
        parameters: Vec<Tensor>,
        learning_rate: f64,
        momentum: f64,
    ) -> Result<Sgd> {
        let _site = Site::caller().enter();
        let rule = SgdRule {
            learning_rate,
            momentum,
            weight_decay: 0.0,
            nesterov: false,
        };
        Sgd::of(rule, parameters)
    }

    /// With a pull of the parameters towards 0.
    pub fn weight_decay(self, weight_decay: f64) -> Sgd {
        self.with(|rule| rule.weight_decay = weight_decay)
    }

    /// With steps that look ahead, or without; it matters with momentum only.
    pub fn nesterov(self, nesterov: bool) -> Sgd {
        self.with(|rule| rule.nesterov = nesterov)
    }
}

impl UpdateRule for SgdRule {
    const NAME: &'static str = "SGD";
    const COUNTS_STEPS: bool = false;

    fn rate(&mut self) -> &mut f64 {
        &mut self.learning_rate
    }

    fn settings(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("the learning rate (lr)", self.learning_rate, Range::Amount),
            ("momentum", self.momentum, Range::Amount),
            ("weight_decay", self.weight_decay, Range::Amount),
        ]
    }

    fn memory(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 {
            &[]
        } else {
            &["velocity"]
        }
    }

    fn numbers(&self, _: f64) -> Vec<f64> {
        vec![self.learning_rate, self.momentum, self.weight_decay]
    }

    fn update(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        memory: &[Tensor],
        numbers: &[Tensor],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let [rate, momentum, decay] = [0, 1, 2].map(|k| &numbers[k]);
        let mut direction = gradient.clone();
        if self.weight_decay != 0.0 {
            direction = direction.add(&parameter.mul(decay)?)?;
        }
        let mut new = Vec::new();
        if let [velocity] = memory {
            let next = velocity.mul(momentum)?.add(&direction)?;
            direction = match self.nesterov {
                true => direction.add(&next.mul(momentum)?)?,
                false => next.clone(),
            };
            new.push(next);
        }
        Ok((parameter.sub(&direction.mul(rate)?)?, new))
    }
}
