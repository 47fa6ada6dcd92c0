//! RMSprop: gradients divided by the root of their mean square.

use super::{Descent, Range, UpdateRule};
use crate::error::Result;
use crate::tensor::{Site, Tensor};

/// RMSprop (Hinton), as PyTorch computes it: `g += decay * p`, `v = alpha * v + (1 - alpha) * g * g`,
/// `d = g / (sqrt(v) + eps)`, and then `p -= rate * d`. Centred, the square of a running mean of
/// gradients is taken off v; with momentum `b = momentum * b + d` takes d's place.
pub type RmsProp = Descent<RmsPropRule>;

/// The settings of [`RmsProp`].
#[derive(Clone, Debug)]
pub struct RmsPropRule {
    /// The learning rate.
    pub learning_rate: f64,
    /// The rate at which the running mean of squares forgets.
    pub alpha: f64,
    /// What keeps the division away from 0.
    pub eps: f64,
    /// The pull of the parameters towards 0, through the gradient.
    pub weight_decay: f64,
    /// How much of the last step is kept.
    pub momentum: f64,
    /// Whether gradients are divided by their deviation from a running mean.
    pub centered: bool,
}

impl RmsProp {
    /// With alpha 0.99, eps 1e-8 and nothing else.
    ///
    /// # Errors
    /// When a tensor is no parameter or is named twice.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, learning_rate: f64) -> Result<RmsProp> {
        let _site = Site::caller().enter();
        let rule = RmsPropRule {
            learning_rate,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
        };
        RmsProp::of(rule, parameters)
    }

    /// With another rate at which the running mean of squares forgets.
    pub fn alpha(self, alpha: f64) -> RmsProp {
        self.with(|rule| rule.alpha = alpha)
    }

    /// With another number that keeps the division away from 0.
    pub fn eps(self, eps: f64) -> RmsProp {
        self.with(|rule| rule.eps = eps)
    }

    /// With a pull of the parameters towards 0.
    pub fn weight_decay(self, weight_decay: f64) -> RmsProp {
        self.with(|rule| rule.weight_decay = weight_decay)
    }

    /// With steps that keep some of the last one. What it remembered is forgotten.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn momentum(self, momentum: f64) -> Result<RmsProp> {
        self.with_memory(|rule| rule.momentum = momentum)
    }

    /// Centred, or not. What it remembered is forgotten.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn centered(self, centered: bool) -> Result<RmsProp> {
        self.with_memory(|rule| rule.centered = centered)
    }
}

impl UpdateRule for RmsPropRule {
    const NAME: &'static str = "RMSprop";
    const COUNTS_STEPS: bool = false;

    fn rate(&mut self) -> &mut f64 {
        &mut self.learning_rate
    }

    fn settings(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("the learning rate (lr)", self.learning_rate, Range::Amount),
            ("alpha", self.alpha, Range::Share),
            ("eps", self.eps, Range::Amount),
            ("weight_decay", self.weight_decay, Range::Amount),
            ("momentum", self.momentum, Range::Amount),
        ]
    }

    fn memory(&self) -> &'static [&'static str] {
        match (self.momentum != 0.0, self.centered) {
            (false, false) => &["square"],
            (false, true) => &["square", "mean"],
            (true, false) => &["square", "velocity"],
            (true, true) => &["square", "mean", "velocity"],
        }
    }

    fn numbers(&self, _: f64) -> Vec<f64> {
        vec![
            self.learning_rate,
            self.alpha,
            1.0 - self.alpha,
            self.eps,
            self.weight_decay,
            self.momentum,
        ]
    }

    fn update(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        memory: &[Tensor],
        numbers: &[Tensor],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let [rate, old, new, eps, decay, momentum] = [0, 1, 2, 3, 4, 5].map(|k| &numbers[k]);
        let mut g = gradient.clone();
        if self.weight_decay != 0.0 {
            g = g.add(&parameter.mul(decay)?)?;
        }
        let square = memory[0].mul(old)?.add(&g.mul(&g)?.mul(new)?)?;
        let mut next = vec![square.clone()];
        let mut variance = square;
        if self.centered {
            let mean = memory[1].add(&g.sub(&memory[1])?.mul(new)?)?;
            variance = variance.sub(&mean.mul(&mean)?)?;
            next.push(mean);
        }
        let mut direction = g.div(&variance.sqrt()?.add(eps)?)?;
        if self.momentum != 0.0 {
            direction = memory[next.len()].mul(momentum)?.add(&direction)?;
            next.push(direction.clone());
        }
        Ok((parameter.sub(&direction.mul(rate)?)?, next))
    }
}
