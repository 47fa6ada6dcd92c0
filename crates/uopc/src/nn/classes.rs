//! Losses of classifiers: cross-entropy of logits, and the likelihood of classes.

use super::loss::Reduction;
use super::setting_error;
use crate::error::{Error, Result};
use crate::tensor::{DType, Site, Tensor};

/// Cross-entropy, with everything that can be set.
///
/// ```
/// use uopc::{Tensor, nn::CrossEntropy};
///
/// let logits = Tensor::from([[2.0f32, 0.0], [0.0, 0.0], [5.0, 5.0]]);
/// let labels = Tensor::from([0, 1, -100]);
/// let loss = CrossEntropy::new().ignore_index(-100).loss(&logits, &labels)?;
/// let first = (1.0 + (-2f64).exp()).ln();
/// assert!((loss.item()? - (first + 2f64.ln()) / 2.0).abs() < 1e-6);
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    weight: Option<Tensor>,
    ignore: Option<i64>,
    smoothing: f64,
    reduction: Reduction,
    axis: i64,
}

impl Default for CrossEntropy {
    fn default() -> CrossEntropy {
        CrossEntropy {
            weight: None,
            ignore: None,
            smoothing: 0.0,
            reduction: Reduction::Mean,
            axis: -1,
        }
    }
}

impl CrossEntropy {
    /// The mean over all rows, classes along the last axis.
    pub fn new() -> CrossEntropy {
        CrossEntropy::default()
    }

    /// How much each class counts, of shape (classes,). A mean is divided by the sum of the
    /// weights of the labels.
    pub fn weight(mut self, weight: &Tensor) -> CrossEntropy {
        self.weight = Some(weight.clone());
        self
    }

    /// A label that does not count: its loss is 0, and a mean leaves it out.
    pub fn ignore_index(mut self, label: i64) -> CrossEntropy {
        self.ignore = Some(label);
        self
    }

    /// The share of the target that is spread evenly over all classes.
    pub fn label_smoothing(mut self, share: f64) -> CrossEntropy {
        self.smoothing = share;
        self
    }

    /// What becomes of the losses of the rows.
    pub fn reduction(mut self, reduction: Reduction) -> CrossEntropy {
        self.reduction = reduction;
        self
    }

    /// The axis of the classes; the last one by default.
    pub fn axis(mut self, axis: i64) -> CrossEntropy {
        self.axis = axis;
        self
    }

    /// The loss of logits against integer labels, whose shape is that of the logits without the
    /// axis of the classes, or against probabilities (floats) of the logits' shape. A label that is
    /// no class and is not ignored makes the loss NaN.
    ///
    /// # Errors
    /// When shapes do not fit, or the share that is smoothed is not from 0 to 1.
    #[track_caller]
    pub fn loss(&self, logits: &Tensor, target: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if !(0.0..=1.0).contains(&self.smoothing) {
            return Err(setting_error(format!(
                "cross_entropy: label_smoothing is {}; a share, from 0 to 1, is needed",
                self.smoothing
            )));
        }
        let last = logits.rank() as i64 - 1;
        let plain = self.weight.is_none() && self.ignore.is_none() && self.smoothing == 0.0;
        let at_end = self.axis == -1 || self.axis == last;
        if plain && at_end && self.reduction == Reduction::Mean && target.dtype().is_int() {
            return logits.cross_entropy(target);
        }
        let rows = self.rows("cross_entropy", logits)?;
        let log_p = wide(&rows)?.log_softmax(-1)?;
        // Floats of the labels' shape are a slip, of which labels know what to say.
        let is_labels = target.rank() + 1 == rows.rank() || !target.dtype().is_float();
        let loss = match !is_labels {
            true => self.of_probabilities(&log_p, &self.rows("cross_entropy", target)?),
            false => self.of_labels("cross_entropy", &log_p, target, true),
        };
        loss?.cast(rows.dtype())
    }

    /// The classes as the last axis, and floats.
    fn rows(&self, op: &'static str, logits: &Tensor) -> Result<Tensor> {
        let (shape, rank) = (logits.shape(), logits.rank() as i64);
        let axis = if self.axis < 0 {
            self.axis.saturating_add(rank)
        } else {
            self.axis
        };
        if !(0..rank).contains(&axis) {
            let message = format!("shape {shape} has no axis {} with the classes", self.axis);
            return Err(shape_error(op, message));
        }
        let logits = match logits.dtype().is_float() {
            true => logits.clone(),
            false => logits.cast(DType::F32)?,
        };
        if axis == rank - 1 {
            return Ok(logits);
        }
        let mut order: Vec<i64> = (0..rank).filter(|&k| k != axis).collect();
        order.push(axis);
        logits.permute(order)
    }

    fn check_weight(&self, op: &'static str, classes: usize) -> Result<()> {
        match &self.weight {
            Some(w) if w.shape()[..] != [classes] => {
                let own = w.shape();
                let message = format!("a weight of shape {own} does not fit {classes} classes");
                Err(shape_error(op, message))
            }
            _ => Ok(()),
        }
    }

    fn of_probabilities(&self, log_p: &Tensor, target: &Tensor) -> Result<Tensor> {
        if target.shape() != log_p.shape() {
            let message = format!(
                "logits {} and probabilities {} differ in shape; labels are integers",
                log_p.shape(),
                target.shape()
            );
            return Err(shape_error("cross_entropy", message));
        }
        let classes = log_p.shape()[log_p.rank() - 1];
        self.check_weight("cross_entropy", classes)?;
        let mut target = target.cast(log_p.dtype())?;
        if self.smoothing > 0.0 {
            let even = self.smoothing / classes.max(1) as f64;
            target = target.mul(1.0 - self.smoothing)?.add(even)?;
        }
        let mut terms = target.mul(log_p)?;
        if let Some(weight) = &self.weight {
            terms = terms.mul(&weight.cast(log_p.dtype())?)?;
        }
        self.reduction.of(&terms.sum(-1)?.neg()?)
    }

    /// The loss of labels, smoothed if that is wanted.
    fn of_labels(
        &self,
        op: &'static str,
        log_p: &Tensor,
        labels: &Tensor,
        smooth: bool,
    ) -> Result<Tensor> {
        let rank = log_p.rank();
        if labels.shape()[..] != log_p.shape()[..rank - 1] {
            let message = format!(
                "labels of shape {} do not fit {} rows with the classes last; they have that shape \
                 without the axis of the classes",
                labels.shape(),
                log_p.shape()
            );
            return Err(shape_error(op, message));
        }
        if !labels.dtype().is_int() {
            let message = format!("labels are integers, not {}; cast them", labels.dtype());
            let site = Site::current();
            return Err(Error::DType { op, message, site });
        }
        let classes = log_p.shape()[rank - 1];
        self.check_weight(op, classes)?;
        // In i64 every label of another dtype is itself, but for those beyond any class.
        let labels = labels.cast(DType::I64)?;
        let hot = labels
            .unsqueeze(-1)?
            .eq(&Tensor::arange_as(DType::I64, 0, classes, 1)?)?;
        let counts = match self.ignore {
            Some(label) => Some(labels.ne(label)?),
            None => None,
        };
        let weight = match &self.weight {
            Some(weight) => Some(weight.cast(log_p.dtype())?),
            None => None,
        };
        // A select and no product with the one-hot: 0 * -inf of another class is NaN.
        let picked = |values: &Tensor| hot.where_(values, 0.0)?.sum(-1);
        let own_weight = match &weight {
            Some(weight) => Some(picked(weight)?),
            None => None,
        };
        let mut losses = picked(log_p)?.neg()?;
        if let Some(own) = &own_weight {
            losses = losses.mul(own)?;
        }
        if smooth && self.smoothing > 0.0 {
            let all = match &weight {
                Some(weight) => log_p.mul(weight)?.sum(-1)?,
                None => log_p.sum(-1)?,
            };
            let even = all.mul(-self.smoothing / classes.max(1) as f64)?;
            losses = losses.mul(1.0 - self.smoothing)?.add(&even)?;
        }
        let known = labels.ge(0)?.and(&labels.lt(classes as i64)?)?;
        losses = known.where_(&losses, f64::NAN)?;
        if let Some(counts) = &counts {
            losses = counts.where_(&losses, 0.0)?;
        }
        if self.reduction != Reduction::Mean {
            return self.reduction.of(&losses);
        }
        let share = match (own_weight, counts) {
            (Some(own), Some(counts)) => counts.where_(&own, 0.0)?,
            (Some(own), None) => own,
            (None, Some(counts)) => counts.cast(log_p.dtype())?,
            (None, None) => return self.reduction.of(&losses),
        };
        losses.sum(..)?.div(&share.sum(..)?)
    }
}

/// The loss of logarithms of probabilities against integer labels: minus the label's entry. What a
/// [`CrossEntropy`] sets beside the smoothing counts here, too.
///
/// # Errors
/// When shapes do not fit.
#[track_caller]
pub fn nll_loss(log_p: &Tensor, labels: &Tensor, how: &CrossEntropy) -> Result<Tensor> {
    let _site = Site::caller().enter();
    let rows = how.rows("nll_loss", log_p)?;
    let loss = how.of_labels("nll_loss", &wide(&rows)?, labels, false)?;
    loss.cast(rows.dtype())
}

/// Half floats as f32, in which sums over classes are good enough.
fn wide(t: &Tensor) -> Result<Tensor> {
    t.cast(t.dtype().accumulator())
}

fn shape_error(op: &'static str, message: String) -> Error {
    let site = Site::current();
    Error::Shape { op, message, site }
}
