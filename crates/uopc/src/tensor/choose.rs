//! Signs, bounds, questions about single numbers, and choices between two.

use super::elementwise::{binary_methods, combine, no_bool, plain_functions, real, same};
use super::operand::{Unified, number, unify, unify_as};
use super::{DType, Operand, Result, Site, Tensor, UOp, dtype_error, formulas};
use crate::functions::Num;
use crate::ir::Scalar;
use crate::ir::op::Op;

plain_functions! {
    /// 1, 0 or -1: whether x is above, at or below 0; NaN stays NaN. The derivative is 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([3.0f32, 0.0, -2.0]);
    /// assert_eq!(x.sign()?.to_vec::<f32>()?, [1.0, 0.0, -1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    sign = sign;
    /// Whether the sign bit is set: of -0 it is. Integers have it below 0; no NaN counts as negative.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, -0.0]);
    /// assert_eq!(x.signbit()?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    signbit = is_negative;
    /// Whether it is NaN; integers never are.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, f32::NAN]);
    /// assert_eq!(x.isnan()?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    isnan = |x: &UOp| x.cmpne(x);
    /// Whether it is infinite, of either sign; integers never are.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, f32::INFINITY]);
    /// assert_eq!(x.isinf()?.to_vec::<bool>()?, [false, true]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    isinf = |x: &UOp| compared_with_infinity(x, |size, infinity| size.eq(infinity), false);
    /// Whether it is neither infinite nor NaN; integers always are.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, f32::NAN]);
    /// assert_eq!(x.isfinite()?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    isfinite = |x: &UOp| compared_with_infinity(x, |size, infinity| size.cmplt(infinity), true);
    /// Whether it is 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 2.0]);
    /// assert_eq!(x.logical_not()?.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    logical_not = |x: &UOp| x.cast(DType::Bool)?.logical_not();
}

binary_methods! {
    /// The magnitude of a with the sign of b, that of its zeros included. The derivative by a is 0 at 0, as
    /// that of the magnitude; that by b is 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([1.0f32, 2.0]), Tensor::from([-0.0f32, 5.0]));
    /// assert_eq!(a.copysign(&b)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    copysign(real) = |_, a, b| {
        let size = formulas::abs(a)?;
        is_negative(b)?.where_(&size.neg()?, &size)
    };
    /// Whether both are not 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([0, 2, 0]), Tensor::from([1, 1, 0]));
    /// assert_eq!(a.logical_and(&b)?.to_vec::<bool>()?, [false, true, false]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    logical_and(same) = |_, a, b| a.cast(DType::Bool)?.and(&b.cast(DType::Bool)?);
    /// Whether at least one is not 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([0, 2, 0]), Tensor::from([1, 1, 0]));
    /// assert_eq!(a.logical_or(&b)?.to_vec::<bool>()?, [true, true, false]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    logical_or(same) = |_, a, b| a.cast(DType::Bool)?.or(&b.cast(DType::Bool)?);
    /// Whether one is 0 and the other is not.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([0, 2, 0]), Tensor::from([1, 1, 0]));
    /// assert_eq!(a.logical_xor(&b)?.to_vec::<bool>()?, [true, false, false]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    logical_xor(same) = |_, a, b| a.cast(DType::Bool)?.xor(&b.cast(DType::Bool)?);
    /// The bits of integers shifted left by b: 0 if b is negative or not below their width.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1, 3]);
    /// assert_eq!(x.shl(2)?.to_vec::<i32>()?, [4, 12]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    shl(same) = |_, a, b| UOp::new(Op::Shl, vec![a.clone(), b.clone()]);
    /// The bits of integers shifted right by b, copies of the sign coming in; if b is negative or not below
    /// their width, nothing but those is left.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([8, -8]);
    /// assert_eq!(x.shr(1)?.to_vec::<i32>()?, [4, -4]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    shr(same) = |_, a, b| UOp::new(Op::Shr, vec![a.clone(), b.clone()]);
}

fn sign(x: &UOp) -> Result<UOp> {
    no_bool("sign", x)?;
    let constant = |value: i128| UOp::full(Scalar::from_i128(x.dtype(), value), x.shape());
    let (zero, one) = (constant(0)?, constant(1)?);
    let mut y = zero.cmplt(x)?.where_(&one, &zero)?;
    if !x.dtype().is_unsigned() {
        y = x.cmplt(&zero)?.where_(&constant(-1)?, &y)?;
    }
    if x.dtype().is_float() {
        y = x.cmpne(x)?.where_(&x.full_like(f64::NAN)?, &y)?;
    }
    Ok(y)
}

fn is_negative(x: &UOp) -> Result<UOp> {
    if x.dtype().is_float() {
        return Ok(Num(x.clone()).is_negative().0);
    }
    x.cmplt(&UOp::full(Scalar::zero(x.dtype()), x.shape())?)
}

fn compared_with_infinity(
    x: &UOp,
    compare: impl FnOnce(&UOp, &UOp) -> Result<UOp>,
    otherwise: bool,
) -> Result<UOp> {
    if !x.dtype().is_float() {
        return UOp::full(Scalar::from_bool(otherwise), x.shape());
    }
    compare(&formulas::abs(x)?, &x.full_like(f64::INFINITY)?)
}

/// The largest finite number of a float dtype.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => f32::from_bits(0x7f7f_0000) as f64,
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
}

/// `limit` where x is beyond it, else x: so all of a gradient goes to x where they are equal. A limit of
/// NaN counts as beyond.
fn limited(x: &UOp, limit: &UOp, beyond: UOp) -> Result<UOp> {
    let beyond = match limit.dtype().is_float() {
        true => beyond.or(&limit.cmpne(limit)?)?,
        false => beyond,
    };
    beyond.where_(limit, x)
}

impl Tensor {
    /// x, but `low` where it is less and `high` where it is more; NaN stays NaN. Where `low` is above `high`
    /// it is `high`. The derivative by x is 1 at the bounds, too, and 0 beyond.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-1.0f32, 0.5, 2.0]);
    /// assert_eq!(x.clamp(0, 1)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Operand>, high: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let Unified {
            nodes: [x, low, high],
            needs_grad,
        } = unify("clamp", [&self.into(), &low.into(), &high.into()])?;
        let above = limited(&x, &low, x.cmplt(&low)?)?;
        let node = limited(&above, &high, high.cmplt(&above)?)?;
        Ok(Tensor::derived(node, needs_grad))
    }

    /// [`clamp`](Self::clamp) with a lower bound alone.
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn clamp_min(&self, low: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let pair = unify("clamp_min", [&self.into(), &low.into()])?;
        combine("clamp_min", pair, |_, x, low| {
            limited(x, low, x.cmplt(low)?)
        })
    }

    /// [`clamp`](Self::clamp) with an upper bound alone.
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn clamp_max(&self, high: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let pair = unify("clamp_max", [&self.into(), &high.into()])?;
        combine("clamp_max", pair, |_, x, high| {
            limited(x, high, high.cmplt(x)?)
        })
    }

    /// x with other numbers for NaN and infinities: without `high` and `low` the largest and least finite
    /// ones of the dtype. Integers stay what they are. No gradient flows to what was replaced.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([f32::NAN, f32::INFINITY, 1.0]);
    /// assert_eq!(x.nan_to_num(0.0, Some(9.0), None)?.to_vec::<f32>()?, [0.0, 9.0, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, high: Option<f64>, low: Option<f64>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.map(|x| {
            if !x.dtype().is_float() {
                return Ok(x.clone());
            }
            let most = largest(x.dtype());
            let constant = |value: f64| x.full_like(value);
            let is = |value: f64| x.eq(&constant(value)?);
            let y = x.cmpne(x)?.where_(&constant(nan)?, x)?;
            let y = is(f64::INFINITY)?.where_(&constant(high.unwrap_or(most))?, &y)?;
            is(f64::NEG_INFINITY)?.where_(&constant(low.unwrap_or(-most))?, &y)
        })
    }

    /// x with `value` where the mask is true, in x's dtype.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, -2.0]);
    /// assert_eq!(x.masked_fill(&x.lt(0)?, 0)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the mask is no bool, when the shapes do not broadcast, or the value does not fit the dtype.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let value = match value.into() {
            Operand::Tensor(t) => t.cast(self.dtype())?,
            plain => {
                let node = UOp::constant(number("masked_fill", &plain, self.dtype())?);
                Tensor::new(node, false)
            }
        };
        if mask.dtype() != DType::Bool {
            let message = format!(
                "the mask is {}, not bool; compare it with something",
                mask.dtype()
            );
            return Err(dtype_error("masked_fill", message));
        }
        mask.where_(value, self)
    }

    /// The number between x and `end` at `weight`: x + weight * (end - x), computed from the nearer end, so
    /// that weights 0 and 1 give the ends. Integers become f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 10.0]);
    /// assert_eq!(x.lerp(20, 0.25)?.to_vec::<f32>()?, [5.0, 12.5]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn lerp(&self, end: impl Into<Operand>, weight: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let Unified {
            nodes: [a, b, w],
            needs_grad,
        } = unify_as("lerp", [&self.into(), &end.into(), &weight.into()], real)?;
        let dtype = a.dtype();
        let wide = dtype.accumulator();
        let (a, b, w) = (Num(a.cast(wide)?), Num(b.cast(wide)?), Num(w.cast(wide)?));
        let distance = &b - &a;
        let near = w.fma(&distance, &a);
        let far = (&w - 1.0).fma(&distance, &b);
        let node = w.below(0.5).select(near, &far).0.cast(dtype)?;
        Ok(Tensor::derived(node, needs_grad))
    }

    /// Whether numbers are equal or |a - b| <= `atol` + `rtol` * |b|, compared in f64. NaN is close to none,
    /// or to NaN with `equal_nan`; an infinity is close to itself alone.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// let close = x.isclose(Tensor::from([1.000001f32, 2.1]), 1e-5, 1e-8, false)?;
    /// assert_eq!(close.to_vec::<bool>()?, [true, false]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn isclose(
        &self,
        other: impl Into<Operand>,
        rtol: f64,
        atol: f64,
        equal_nan: bool,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let Unified { nodes: [a, b], .. } = unify("isclose", [&self.into(), &other.into()])?;
        let same = a.eq(&b)?;
        let (x, y) = (Num(a.cast(DType::F64)?), Num(b.cast(DType::F64)?));
        let distance = (&x - &y).magnitude();
        let room = y.magnitude() * rtol + atol;
        let within = distance
            .above(&room)
            .not()
            .and(&distance.below(f64::INFINITY));
        // Beside a finite number an infinity is never close, whatever rtol times it is.
        let mut close = same.or(&within.0)?;
        if equal_nan {
            close = close.or(&x.is_nan().and(&y.is_nan()).0)?;
        }
        Ok(Tensor::new(close, false))
    }

    /// Whether all pairs of numbers are close; see [`isclose`](Self::isclose).
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn allclose(
        &self,
        other: impl Into<Operand>,
        rtol: f64,
        atol: f64,
        equal_nan: bool,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.isclose(other, rtol, atol, equal_nan)?.all(..)
    }
}
