//! Normalisation: over the last axes, over groups of channels, over a batch.

use super::args::{Dims, shape_of};
use super::elementwise::real;
use super::operand::broadcast_to;
use super::reduce::reduce;
use super::{DType, Error, Result, Shape, Site, Tensor, UOp, dtype_error, no_grad, shape_error};
use crate::ir::op::ReduceOp;

/// What [`Tensor::batch_norm`] does with a batch.
pub enum BatchStatistics<'a> {
    /// Normalises by the batch's own mean and variance, and moves the running ones (if there are
    /// any) towards them: `running += momentum * (own - running)`, with the variance of N - 1.
    OfBatch {
        /// Mean and variance that are kept up to date, each of shape (C,).
        running: Option<(&'a Tensor, &'a Tensor)>,
        /// How far they move.
        momentum: f64,
    },
    /// Normalises by a mean and a variance of shape (C,).
    Fixed(&'a Tensor, &'a Tensor),
}

impl Tensor {
    /// Each part that the last axes form, with mean 0 and variance 1, times `weight` plus `bias`:
    /// `(x - mean) / sqrt(var + eps) * weight + bias`, where weight and bias have the shape of the
    /// part. Half floats are computed in f32.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([[1.0f32, 3.0], [10.0, 30.0]]);
    /// let y = x.layer_norm([2], None, None, 0.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor does not end in the shape, or weight or bias differ from it; when eps is
    /// negative or not finite.
    #[track_caller]
    pub fn layer_norm(
        &self,
        normalized_shape: impl Dims,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let part = part_of("layer_norm", self, normalized_shape, [weight, bias])?;
        check_eps("layer_norm", eps)?;
        let axes: Vec<usize> = (self.rank() - part.rank()..self.rank()).collect();
        self.affine(weight, bias, 0, |x| centred_and_scaled(x, &axes, eps))
    }

    /// Each part that the last axes form divided by the root of its mean square, times `weight`:
    /// `x / sqrt(mean(x^2) + eps) * weight`. Half floats are computed in f32.
    ///
    /// # Errors
    /// When the tensor does not end in the shape, or the weight differs from it; when eps is
    /// negative or not finite.
    #[track_caller]
    pub fn rms_norm(
        &self,
        normalized_shape: impl Dims,
        weight: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let part = part_of("rms_norm", self, normalized_shape, [weight, None])?;
        check_eps("rms_norm", eps)?;
        let axes: Vec<usize> = (self.rank() - part.rank()..self.rank()).collect();
        self.affine(weight, None, 0, |x| {
            let scale = root(&mean_of(&x.mul(x)?, &axes)?, eps)?.recip()?;
            x.mul(&scale.expand(x.shape())?)
        })
    }

    /// Channels in groups, each group of each example with mean 0 and variance 1, times the
    /// weight plus the bias of the channel: (N, C, ...) with weight and bias of shape (C,). Half
    /// floats are computed in f32.
    ///
    /// # Errors
    /// When there are not two axes, groups do not divide the channels, or weight or bias do not
    /// fit; when eps is negative or not finite.
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let c = channels("group_norm", self, [weight, bias])?;
        check_eps("group_norm", eps)?;
        if groups == 0 || !c.is_multiple_of(groups) {
            let message = format!("{groups} groups do not divide {c} channels");
            return Err(shape_error("group_norm", message));
        }
        let n = self.shape()[0];
        self.affine(weight, bias, self.rank() - 2, |x| {
            let size = c / groups * x.shape()[2..].iter().product::<usize>();
            let rows = x.reshape(&[n, groups, size])?;
            centred_and_scaled(&rows, &[2], eps)?.reshape(x.shape())
        })
    }

    /// Each channel with mean 0 and variance 1 over the batch and all positions, times the weight
    /// plus the bias of the channel: (N, C) or (N, C, ...) with weight and bias of shape (C,). Half
    /// floats are computed in f32.
    ///
    /// Running statistics get their new values with what is computed next, in the same plan.
    ///
    /// # Errors
    /// When there are not two axes, or a tensor for the channels does not fit; when the statistics
    /// are those of a batch with a single element a channel, whose variance is no estimate; when eps
    /// is negative or not finite.
    #[track_caller]
    pub fn batch_norm(
        &self,
        statistics: BatchStatistics,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let c = channels("batch_norm", self, [weight, bias])?;
        check_eps("batch_norm", eps)?;
        let axes: Vec<usize> = (0..self.rank()).filter(|&k| k != 1).collect();
        let after = self.rank() - 2;
        let momentum = match statistics {
            BatchStatistics::Fixed(mean, var) => {
                channels("batch_norm", self, [Some(mean), Some(var)])?;
                return self.scaled_by(mean, var, weight, bias, eps);
            }
            BatchStatistics::OfBatch { running, momentum } => {
                if let Some((mean, var)) = running {
                    channels("batch_norm", self, [Some(mean), Some(var)])?;
                }
                running.map(|running| (running, momentum))
            }
        };
        let count: usize = axes.iter().map(|&k| self.shape()[k]).product();
        if count == 1 {
            let message = format!(
                "shape {} has one element a channel, from which no variance can be estimated; take \
                 a larger batch, or the running statistics (eval)",
                self.shape()
            );
            return Err(shape_error("batch_norm", message));
        }
        if let (Some(((mean, var), momentum)), true) = (momentum, count > 0) {
            let _off = no_grad();
            let x = self.detach()?;
            let x = x.cast(x.dtype().accumulator())?;
            let own = x.map(|x| mean_of(x, &axes))?;
            let spread = x.sub(&own)?;
            let own_var = spread.map(|d| mean_of(&d.mul(d)?, &axes))?;
            let unbiased = own_var.mul(count as f64 / (count as f64 - 1.0))?;
            for (kept, own) in [(mean, own), (var, unbiased)] {
                let wide = kept.cast(kept.dtype().accumulator())?;
                let old = wide.mul(1.0 - momentum)?;
                let new = own.reshape([c])?.cast(wide.dtype())?.mul(momentum)?;
                kept.set_later(&old.add(&new)?.cast(kept.dtype())?)?;
            }
        }
        self.affine(weight, bias, after, |x| centred_and_scaled(x, &axes, eps))
    }

    /// `(x - mean) / sqrt(var + eps) * weight + bias`, everything but x by channel.
    fn scaled_by(
        &self,
        mean: &Tensor,
        var: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let dtype = real(self.dtype());
        let wide = dtype.accumulator();
        let mut dims = vec![1; self.rank() - 1];
        dims[0] = self.shape()[1];
        let column = |t: &Tensor| t.cast(wide)?.reshape(&dims);
        let scale = column(var)?.add(eps)?.sqrt()?.reciprocal()?;
        let mut y = self.cast(wide)?.sub(&column(mean)?)?.mul(&scale)?;
        if let Some(weight) = weight {
            y = y.mul(&column(weight)?)?;
        }
        if let Some(bias) = bias {
            y = y.add(&column(bias)?)?;
        }
        y.cast(dtype)
    }

    /// A function of the tensor in floats that are wide enough, times weight plus bias, which have
    /// `after` axes of extent 1 behind theirs.
    fn affine(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        after: usize,
        f: impl FnOnce(&UOp) -> Result<UOp>,
    ) -> Result<Tensor> {
        let (x, mut needs_grad) = self.read();
        let dtype = real(x.dtype());
        let wide = dtype.accumulator();
        let mut y = f(&x.cast(wide)?)?;
        for (k, t) in [weight, bias].into_iter().enumerate() {
            let Some(t) = t else { continue };
            let (node, needs) = t.read();
            needs_grad |= needs;
            let mut dims = node.shape().to_vec();
            dims.resize(dims.len() + after, 1);
            let node = broadcast_to(&node.cast(wide)?.reshape(&dims)?, y.shape())?;
            y = if k == 0 { y.mul(&node)? } else { y.add(&node)? };
        }
        Ok(Tensor::derived(y.cast(dtype)?, needs_grad))
    }
}

/// The mean over some axes, which stay with extent 1.
fn mean_of(x: &UOp, axes: &[usize]) -> Result<UOp> {
    let dims = x.shape().iter().enumerate();
    let dims: Vec<usize> = dims
        .map(|(k, &d)| if axes.contains(&k) { 1 } else { d })
        .collect();
    let count: f64 = axes.iter().map(|&a| x.shape()[a] as f64).product();
    let total = reduce(x, ReduceOp::Add, axes)?;
    total.div(&total.full_like(count)?)?.reshape(&dims)
}

fn root(variance: &UOp, eps: f64) -> Result<UOp> {
    variance.add(&variance.full_like(eps)?)?.sqrt()
}

fn centred_and_scaled(x: &UOp, axes: &[usize], eps: f64) -> Result<UOp> {
    let centred = x.sub(&mean_of(x, axes)?.expand(x.shape())?)?;
    let variance = mean_of(&centred.mul(&centred)?, axes)?;
    centred.mul(&root(&variance, eps)?.recip()?.expand(x.shape())?)
}

/// The shape of the normalised part, in which the tensor ends and that weight and bias have.
fn part_of(
    op: &'static str,
    x: &Tensor,
    part: impl Dims,
    tensors: [Option<&Tensor>; 2],
) -> Result<Shape> {
    let (part, shape) = (shape_of(op, part)?, x.shape());
    if part.rank() == 0 || !shape.ends_with(&part) {
        let message = format!("shape {shape} does not end in the normalised shape {part}");
        return Err(shape_error(op, message));
    }
    for t in tensors.into_iter().flatten() {
        if *t.shape() != part {
            let own = t.shape();
            let message =
                format!("a weight or bias of shape {own} differs from the normalised {part}");
            return Err(shape_error(op, message));
        }
    }
    Ok(part)
}

/// The number of channels, which are the second axis, and for each of which tensors have a number.
fn channels(op: &'static str, x: &Tensor, tensors: [Option<&Tensor>; 2]) -> Result<usize> {
    let shape = x.shape();
    if shape.rank() < 2 {
        let message = format!("shape {shape}; a batch and channels, (N, C) or more, are needed");
        return Err(shape_error(op, message));
    }
    let c = shape[1];
    for t in tensors.into_iter().flatten() {
        if t.shape()[..] != [c] {
            let own = t.shape();
            let message = format!("a tensor of shape {own} does not fit {c} channels of {shape}");
            return Err(shape_error(op, message));
        }
        if !t.dtype().is_float() {
            let message = format!("weights and statistics are floats, not {}", t.dtype());
            return Err(dtype_error(op, message));
        }
    }
    Ok(c)
}

fn check_eps(op: &'static str, eps: f64) -> Result<()> {
    if eps.is_finite() && eps >= 0.0 {
        return Ok(());
    }
    Err(Error::Setting(format!(
        "{op}: eps is {eps}; a number that is finite and at least 0 is needed"
    )))
}

impl Tensor {
    /// The least eps with which [`rms_norm`](Self::rms_norm) of this dtype tells a row of zeros
    /// from one that is not: the distance of 1 to the next number.
    pub fn epsilon(dtype: DType) -> f64 {
        match dtype {
            DType::F64 => f64::EPSILON,
            DType::F16 => 2f64.powi(-10),
            DType::BF16 => 2f64.powi(-7),
            _ => f32::EPSILON as f64,
        }
    }
}
