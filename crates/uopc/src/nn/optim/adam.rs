//! Adam, and AdamW with weight decay beside the gradient.

use super::{Descent, Range, UpdateRule};
use crate::error::Result;
use crate::tensor::{Site, Tensor};

/// Adam with decoupled weight decay (Loshchilov and Hutter), as PyTorch computes it:
/// `p *= 1 - rate * decay`, `m += (g - m) * (1 - beta1)`, `v = v * beta2 + g * g * (1 - beta2)`,
/// and then `p -= rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)` in step t.
pub type AdamW = Descent<AdamWRule>;

/// Adam (Kingma and Ba), whose weight decay is part of the gradient: `g += decay * p`, and then as
/// [`AdamW`] without its own.
pub type Adam = Descent<AdamRule>;

/// The settings of [`AdamW`].
#[derive(Clone, Debug)]
pub struct AdamWRule(pub AdamRule);

/// The settings of [`Adam`].
#[derive(Clone, Debug)]
pub struct AdamRule {
    /// The learning rate.
    pub learning_rate: f64,
    /// The rates at which the running means of gradients and of their squares forget.
    pub betas: (f64, f64),
    /// What keeps the division away from 0.
    pub eps: f64,
    /// The pull of the parameters towards 0.
    pub weight_decay: f64,
}

impl AdamRule {
    fn new(learning_rate: f64, weight_decay: f64) -> AdamRule {
        AdamRule {
            learning_rate,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay,
        }
    }

    fn settings(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("the learning rate (lr)", self.learning_rate, Range::Amount),
            ("betas[0]", self.betas.0, Range::Share),
            ("betas[1]", self.betas.1, Range::Share),
            ("eps", self.eps, Range::Amount),
            ("weight_decay", self.weight_decay, Range::Amount),
        ]
    }

    fn numbers(&self, t: f64) -> Vec<f64> {
        let (rate, (b1, b2)) = (self.learning_rate, self.betas);
        vec![
            1.0 - rate * self.weight_decay,
            1.0 - b1,
            b2,
            1.0 - b2,
            (1.0 - b2.powf(t)).sqrt(),
            self.eps,
            rate / (1.0 - b1.powf(t)),
            self.weight_decay,
        ]
    }

    /// The change of the parameter, and the new means.
    fn change(
        gradient: &Tensor,
        memory: &[Tensor],
        numbers: &[Tensor],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let (m, v, g) = (&memory[0], &memory[1], gradient);
        let [new_1, old_2, new_2, correction, eps, rate] = [1, 2, 3, 4, 5, 6].map(|k| &numbers[k]);
        let new_m = m.add(&g.sub(m)?.mul(new_1)?)?;
        let new_v = v.mul(old_2)?.add(&g.mul(g)?.mul(new_2)?)?;
        let divisor = new_v.sqrt()?.div(correction)?.add(eps)?;
        let change = new_m.div(&divisor)?.mul(rate)?;
        Ok((change, vec![new_m, new_v]))
    }
}

macro_rules! settings {
    ($class:ident, |$rule:ident| $own:expr) => {
        impl $class {
            /// With other rates at which the running means forget.
            pub fn betas(self, first: f64, second: f64) -> $class {
                self.with(|$rule| $own.betas = (first, second))
            }

            /// With another number that keeps the division away from 0.
            pub fn eps(self, eps: f64) -> $class {
                self.with(|$rule| $own.eps = eps)
            }

            /// With another pull of the parameters towards 0.
            pub fn weight_decay(self, weight_decay: f64) -> $class {
                self.with(|$rule| $own.weight_decay = weight_decay)
            }
        }
    };
}

settings! { Adam, |rule| rule }
settings! { AdamW, |rule| rule.0 }

impl AdamW {
    /// With betas 0.9 and 0.999, eps 1e-8 and weight decay 0.01.
    ///
    /// # Errors
    /// When a tensor is no parameter or is named twice.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, learning_rate: f64) -> Result<AdamW> {
        let _site = Site::caller().enter();
        AdamW::of(AdamWRule(AdamRule::new(learning_rate, 0.01)), parameters)
    }
}

impl Adam {
    /// With betas 0.9 and 0.999, eps 1e-8 and no weight decay.
    ///
    /// # Errors
    /// When a tensor is no parameter or is named twice.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, learning_rate: f64) -> Result<Adam> {
        let _site = Site::caller().enter();
        Adam::of(AdamRule::new(learning_rate, 0.0), parameters)
    }
}

/// The running means of gradients and of their squares.
const MEMORY: &[&str] = &["mean", "square"];

impl UpdateRule for AdamWRule {
    const NAME: &'static str = "AdamW";
    const COUNTS_STEPS: bool = true;

    fn rate(&mut self) -> &mut f64 {
        &mut self.0.learning_rate
    }

    fn settings(&self) -> Vec<(&'static str, f64, Range)> {
        self.0.settings()
    }

    fn memory(&self) -> &'static [&'static str] {
        MEMORY
    }

    fn numbers(&self, step: f64) -> Vec<f64> {
        self.0.numbers(step)
    }

    fn update(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        memory: &[Tensor],
        numbers: &[Tensor],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let decayed = parameter.mul(&numbers[0])?;
        let (change, new) = AdamRule::change(gradient, memory, numbers)?;
        Ok((decayed.sub(&change)?, new))
    }
}

impl UpdateRule for AdamRule {
    const NAME: &'static str = "Adam";
    const COUNTS_STEPS: bool = true;

    fn rate(&mut self) -> &mut f64 {
        &mut self.learning_rate
    }

    fn settings(&self) -> Vec<(&'static str, f64, Range)> {
        AdamRule::settings(self)
    }

    fn memory(&self) -> &'static [&'static str] {
        MEMORY
    }

    fn numbers(&self, step: f64) -> Vec<f64> {
        AdamRule::numbers(self, step)
    }

    fn update(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        memory: &[Tensor],
        numbers: &[Tensor],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let gradient = match self.weight_decay == 0.0 {
            true => gradient.clone(),
            false => gradient.add(&parameter.mul(&numbers[7])?)?,
        };
        let (change, new) = AdamRule::change(&gradient, memory, numbers)?;
        Ok((parameter.sub(&change)?, new))
    }
}
