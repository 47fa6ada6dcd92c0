//! Muon: momentum for matrices, made orthogonal.

use super::{Descent, Range, UpdateRule};
use crate::error::{Error, Result};
use crate::tensor::{Site, Tensor};

/// Muon (Jordan), for parameters that are matrices: `m += (g - m) * (1 - momentum)`,
/// `u = g + (m - g) * momentum` (Nesterov), and then `p *= 1 - rate * decay` and
/// `p -= rate * scale * o`, where o is u with all singular values brought near 1 by five steps of
/// Newton and Schulz: `x = a x + (b s + c s s) x` with `s = x xᵀ`, begun at u divided by its norm.
///
/// Everything else (biases, embeddings, gains) belongs to another optimiser, such as
/// [`AdamW`](super::AdamW).
pub type Muon = Descent<MuonRule>;

/// By what [`Muon`] multiplies its steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MuonScale {
    /// sqrt(max(1, outputs / inputs)) for a matrix (inputs, outputs), as [`Linear`](crate::nn::Linear)
    /// has it.
    Original,
    /// 0.2 sqrt(max(inputs, outputs)): steps as large as those of AdamW, so that its rates fit.
    MatchRmsAdamW,
}

/// The settings of [`Muon`].
#[derive(Clone, Debug)]
pub struct MuonRule {
    /// The learning rate.
    pub learning_rate: f64,
    /// How much of the running mean of gradients is kept.
    pub momentum: f64,
    /// Whether a step looks ahead by one step of the mean.
    pub nesterov: bool,
    /// The pull of the parameters towards 0, beside the gradient.
    pub weight_decay: f64,
    /// How large steps are.
    pub scale: MuonScale,
    /// a, b and c.
    pub coefficients: [f64; 3],
    /// How many steps of Newton and Schulz there are.
    pub steps: usize,
    /// What the norm is at least.
    pub eps: f64,
}

impl Muon {
    /// With momentum 0.95, Nesterov's, weight decay 0.1 and the original scale.
    ///
    /// # Errors
    /// When a tensor is no parameter, is named twice, or has not two axes.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, learning_rate: f64) -> Result<Muon> {
        let _site = Site::caller().enter();
        let rule = MuonRule {
            learning_rate,
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.1,
            scale: MuonScale::Original,
            coefficients: [3.4445, -4.775, 2.0315],
            steps: 5,
            eps: 1e-7,
        };
        Muon::of(rule, parameters)
    }

    /// With another share of the mean that is kept.
    pub fn momentum(self, momentum: f64) -> Muon {
        self.with(|rule| rule.momentum = momentum)
    }

    /// With steps that look ahead, or without.
    pub fn nesterov(self, nesterov: bool) -> Muon {
        self.with(|rule| rule.nesterov = nesterov)
    }

    /// With another pull of the parameters towards 0.
    pub fn weight_decay(self, weight_decay: f64) -> Muon {
        self.with(|rule| rule.weight_decay = weight_decay)
    }

    /// With other sizes of steps.
    pub fn scale(self, scale: MuonScale) -> Muon {
        self.with(|rule| rule.scale = scale)
    }

    /// With other coefficients and another number of steps of Newton and Schulz.
    pub fn newton_schulz(self, coefficients: [f64; 3], steps: usize) -> Muon {
        self.with(|rule| (rule.coefficients, rule.steps) = (coefficients, steps))
    }
}

impl MuonRule {
    /// The matrix with its singular values near 1.
    fn orthogonal(&self, u: &Tensor) -> Result<Tensor> {
        let [a, b, c] = self.coefficients;
        // Products with the smaller side are the smaller ones.
        let turned = u.shape()[0] > u.shape()[1];
        let mut x = if turned { u.transpose()? } else { u.clone() };
        let norm = x.square()?.sum(..)?.sqrt()?.maximum(self.eps)?;
        x = x.div(&norm)?;
        for _ in 0..self.steps {
            let s = x.matmul(&x.transpose()?)?;
            let polynomial = s.mul(b)?.add(&s.matmul(&s)?.mul(c)?)?;
            x = x.mul(a)?.add(&polynomial.matmul(&x)?)?;
        }
        if turned { x.transpose() } else { Ok(x) }
    }
}

impl UpdateRule for MuonRule {
    const NAME: &'static str = "Muon";
    const COUNTS_STEPS: bool = false;

    fn rate(&mut self) -> &mut f64 {
        &mut self.learning_rate
    }

    fn settings(&self) -> Vec<(&'static str, f64, Range)> {
        vec![
            ("the learning rate (lr)", self.learning_rate, Range::Amount),
            ("momentum", self.momentum, Range::Share),
            ("weight_decay", self.weight_decay, Range::Amount),
            ("eps", self.eps, Range::Amount),
        ]
    }

    fn memory(&self) -> &'static [&'static str] {
        &["mean"]
    }

    fn numbers(&self, _: f64) -> Vec<f64> {
        vec![
            self.learning_rate,
            1.0 - self.momentum,
            self.momentum,
            1.0 - self.learning_rate * self.weight_decay,
        ]
    }

    fn fits(&self, parameter: &Tensor) -> Result<()> {
        if parameter.rank() == 2 {
            return Ok(());
        }
        let shape = parameter.shape();
        let message =
            format!("Muon is for matrices, and a parameter has shape {shape}; give that to AdamW");
        let site = Site::current();
        Err(Error::Gradient { message, site })
    }

    fn update(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        memory: &[Tensor],
        numbers: &[Tensor],
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let [rate, new, momentum, decay] = [0, 1, 2, 3].map(|k| &numbers[k]);
        let mean = memory[0].add(&gradient.sub(&memory[0])?.mul(new)?)?;
        let direction = match self.nesterov {
            true => gradient.add(&mean.sub(gradient)?.mul(momentum)?)?,
            false => mean.clone(),
        };
        let (inputs, outputs) = (parameter.shape()[0] as f64, parameter.shape()[1] as f64);
        let scale = match self.scale {
            MuonScale::Original => (outputs / inputs).max(1.0).sqrt(),
            MuonScale::MatchRmsAdamW => 0.2 * inputs.max(outputs).sqrt(),
        };
        let change = self.orthogonal(&direction)?.mul(rate)?.mul(scale)?;
        Ok((parameter.mul(decay)?.sub(&change)?, vec![mean]))
    }
}
