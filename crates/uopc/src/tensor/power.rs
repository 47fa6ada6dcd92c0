//! Powers: of tensors by numbers and by tensors.

use super::operand::{Unified, unify};
use super::{DType, Operand, Result, Site, Tensor, UOp, dtype_error};
use crate::functions as f;
use crate::ir::Scalar;

impl Tensor {
    /// x to the power of a number or, element by element, of a tensor.
    ///
    /// Floats give what C's `pow` gives: anything to the power 0 is 1, as is 1 to any power, NaN
    /// included; powers of negative numbers are NaN unless the power is whole; signs of zeros and
    /// infinities count. f32 and narrower floats are computed in f64 and rounded once; f64 is within 2
    /// units in the last place. Integers multiply and wrap; a negative power of an integer is that of
    /// tensors rounded towards zero. As beside any other float, an integer tensor becomes f32 beside a
    /// float power.
    ///
    /// The derivative by x is power * x^(power - 1), and 0 where the power is 0. That by a power is
    /// x^power * log x: 0 at x = 0 for powers from 0 up, NaN for negative x.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([4.0f32, -2.0, 0.0]);
    /// assert_eq!(x.pow(3)?.to_vec::<f32>()?, [64.0, -8.0, 0.0]);
    /// assert_eq!(x.pow(Tensor::from([0.5f32, 2.0, 0.0]))?.to_vec::<f32>()?, [2.0, 4.0, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When an integer tensor has a negative integer number as power; cast it to a float first. When
    /// the shapes do not broadcast.
    #[track_caller]
    pub fn pow(&self, power: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (power, is_float) = match power.into() {
            Operand::Float(value) => (value, true),
            Operand::Int(value) => (value as f64, false),
            Operand::Bool(value) => (f64::from(value), false),
            Operand::Tensor(power) => return powers(&self.into(), &power.into()),
        };
        if !self.dtype().is_float() && !is_float && power < 0.0 {
            let message = format!(
                "{} to the power {power} is a fraction; cast to f32",
                self.dtype()
            );
            return Err(dtype_error("pow", message));
        }
        let counts = power.abs() <= i32::MAX as f64;
        self.map(|x| match x.dtype() {
            dtype if dtype.is_float() => constant_power(x, power),
            DType::Bool if !is_float && counts => whole_power(&x.cast(DType::I32)?, power),
            _ if !is_float && counts => whole_power(x, power),
            _ => constant_power(&x.cast(DType::F32)?, power),
        })
    }
}

impl Operand {
    /// [`Tensor::pow`] of what may be a number.
    ///
    /// # Errors
    /// Those of [`Tensor::pow`].
    #[track_caller]
    pub fn pow(&self, power: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        match self {
            Operand::Tensor(x) => x.pow(power),
            number => powers(number, &power.into()),
        }
    }
}

/// Element by element.
fn powers(x: &Operand, y: &Operand) -> Result<Tensor> {
    let Unified {
        nodes: [x, y],
        needs_grad,
    } = unify("pow", [x, y])?;
    let node = match x.dtype() {
        dtype if dtype.is_float() => f::pow(&x, &y)?,
        DType::Bool => f::whole_pow(&x.cast(DType::I32)?, &y.cast(DType::I32)?)?,
        _ => f::whole_pow(&x, &y)?,
    };
    Ok(Tensor::derived(node, needs_grad))
}

/// Powers up to this are products: of f64 so few that they lose little, of narrower floats as
/// many as do not cost more than a logarithm, carried out in f64.
fn most_factors(dtype: DType) -> f64 {
    if dtype == DType::F64 { 4.0 } else { 64.0 }
}

/// A float to a constant power.
fn constant_power(x: &UOp, power: f64) -> Result<UOp> {
    let whole = power == power.trunc();
    if whole && power.abs() <= 3.0 {
        return whole_power(x, power);
    }
    if power.abs() == 0.5 {
        let root = positive_specials(x)?.sqrt()?;
        return if power > 0.0 { Ok(root) } else { root.recip() };
    }
    if whole && power.abs() <= most_factors(x.dtype()) {
        return whole_power(&x.cast(DType::F64)?, power)?.cast(x.dtype());
    }
    if x.dtype() == DType::F64 {
        return f::pow(x, &x.full_like(power)?);
    }
    // In f64, as the power that the narrow dtype holds may be another one.
    let wide = x.cast(DType::F64)?;
    f::pow_short(&wide, &wide.full_like(power)?)?.cast(x.dtype())
}

/// By repeated squaring, on integers with wrap-around. A negative power is one of 1/x, whose
/// products leave the range only where the result or the derivative does.
fn whole_power(x: &UOp, power: f64) -> Result<UOp> {
    let mut n = power.abs() as u64;
    let mut square = if power < 0.0 { x.recip()? } else { x.clone() };
    let mut result: Option<UOp> = None;
    while n > 0 {
        if n % 2 == 1 {
            result = Some(match result {
                Some(r) => r.mul(&square)?,
                None => square.clone(),
            });
        }
        n /= 2;
        if n > 0 {
            square = square.mul(&square)?;
        }
    }
    match result {
        Some(r) => Ok(r),
        None => UOp::full(Scalar::one(x.dtype()), x.shape()),
    }
}

/// x with 0 for -0 and inf for -inf, for which powers that are not whole are defined.
fn positive_specials(x: &UOp) -> Result<UOp> {
    let least = x.full_like(f64::NEG_INFINITY)?;
    let x = x.eq(&least)?.where_(&x.full_like(f64::INFINITY)?, x)?;
    x.add(&x.full_like(0.0)?)
}
