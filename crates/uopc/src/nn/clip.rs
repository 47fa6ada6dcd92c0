//! Clipping: gradients that are too large made smaller before a step.

use super::setting_error;
use crate::error::Result;
use crate::tensor::{Site, Tensor, no_grad};

/// Scales the gradients of parameters together so that their norm is at most `max_norm`; returns the
/// norm before. `kind` is the exponent of the norm: 2.0, 1.0, infinity for the largest element.
///
/// Nothing is computed: the norm is part of the plan of the next step. The limit is data of that
/// plan, so that another one compiles nothing. Parameters without a gradient are passed over.
///
/// ```
/// use uopc::{Tensor, nn::clip_grad_norm};
///
/// let w = Tensor::from([3.0f32, 4.0]).requires_grad()?;
/// (w.square()?.sum(..)? * 0.5).backward(&[&w])?;
/// let norm = clip_grad_norm(&[w.clone()], 1.0, 2.0)?;
/// assert_eq!(norm.item()?, 5.0);
/// let clipped = w.grad().expect("backward left one").to_vec::<f32>()?;
/// assert!((clipped[0] - 0.6).abs() < 1e-6 && (clipped[1] - 0.8).abs() < 1e-6);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the limit is negative or NaN, or the exponent is not positive.
#[track_caller]
pub fn clip_grad_norm(parameters: &[Tensor], max_norm: f64, kind: f64) -> Result<Tensor> {
    let _site = Site::caller().enter();
    if max_norm.is_nan() || max_norm < 0.0 {
        return Err(setting_error(format!(
            "clip_grad_norm: the limit is {max_norm}; a number that is at least 0 is needed"
        )));
    }
    if kind.is_nan() || kind <= 0.0 {
        return Err(setting_error(format!(
            "clip_grad_norm: the exponent of the norm is {kind}; it is positive, or infinite"
        )));
    }
    let _off = no_grad();
    let gradients: Vec<(&Tensor, Tensor)> = with_gradients(parameters);
    let mut parts: Option<Tensor> = None;
    for (_, gradient) in &gradients {
        let wide = gradient.cast(gradient.dtype().accumulator())?;
        let part = match kind {
            2.0 => wide.square()?.sum(..)?,
            1.0 => wide.abs()?.sum(..)?,
            f64::INFINITY => wide.abs()?.max(..)?,
            _ => wide.abs()?.pow(kind)?.sum(..)?,
        };
        parts = Some(match parts {
            Some(others) if kind == f64::INFINITY => others.maximum(&part)?,
            Some(others) => others.add(&part)?,
            None => part,
        });
    }
    let Some(parts) = parts else {
        return Tensor::zeros(());
    };
    let norm = match kind {
        2.0 => parts.sqrt()?,
        1.0 | f64::INFINITY => parts,
        _ => parts.pow(1.0 / kind)?,
    };
    // With this small number the quotient is one of 0 for gradients of 0; PyTorch has it, too.
    let limit = Tensor::from([max_norm]).get(0)?.cast(norm.dtype())?;
    let factor = limit.div(&norm.add(1e-6)?)?.minimum(1.0)?;
    for (parameter, gradient) in &gradients {
        let scaled = gradient.mul(&factor.cast(gradient.dtype())?)?;
        parameter.set_grad(Some(scaled));
    }
    Ok(norm)
}

/// Holds each element of the gradients of parameters within -limit..limit. Nothing is computed, as
/// with [`clip_grad_norm`].
///
/// # Errors
/// When the limit is negative or NaN.
#[track_caller]
pub fn clip_grad_value(parameters: &[Tensor], limit: f64) -> Result<()> {
    let _site = Site::caller().enter();
    if limit.is_nan() || limit < 0.0 {
        return Err(setting_error(format!(
            "clip_grad_value: the limit is {limit}; a number that is at least 0 is needed"
        )));
    }
    let _off = no_grad();
    let bounds = Tensor::from([limit, -limit]);
    for (parameter, gradient) in with_gradients(parameters) {
        let bound = |k: usize| bounds.get(k)?.cast(gradient.dtype());
        let clipped = gradient.minimum(&bound(0)?)?.maximum(&bound(1)?)?;
        parameter.set_grad(Some(clipped));
    }
    Ok(())
}

fn with_gradients(parameters: &[Tensor]) -> Vec<(&Tensor, Tensor)> {
    let gradients = parameters.iter();
    gradients.filter_map(|p| Some((p, p.grad()?))).collect()
}
