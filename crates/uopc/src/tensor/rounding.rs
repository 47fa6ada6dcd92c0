//! Rounding to whole numbers, and what it leaves. No gradient flows through a rounded value.

use super::elementwise::plain_functions;
use super::{DType, Result, Site, Tensor, UOp, dtype_error};

plain_functions! {
    /// Rounds a float towards zero; integers stay what they are.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.7f32, -1.7]);
    /// assert_eq!(x.trunc()?.to_vec::<f32>()?, [1.0, -1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    trunc = |x: &UOp| floats(x, UOp::trunc);
    /// Rounds a float down; integers stay what they are.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.7f32, -1.2]);
    /// assert_eq!(x.floor()?.to_vec::<f32>()?, [1.0, -2.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    floor = floor;
    /// Rounds a float up; integers stay what they are.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.2f32, -1.7]);
    /// assert_eq!(x.ceil()?.to_vec::<f32>()?, [2.0, -1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ceil = |x: &UOp| floats(x, |x| {
        let t = x.trunc()?;
        t.cmplt(x)?.where_(&t.add(&t.full_like(1.0)?)?, &t)
    });
    /// What rounding towards zero takes away: x - trunc(x), with the sign of x. NaN of infinities. The
    /// derivative is 1.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.75f32, -1.25]);
    /// assert_eq!(x.frac()?.to_vec::<f32>()?, [0.75, -0.25]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    frac = |x: &UOp| {
        if !x.dtype().is_float() {
            return Err(dtype_error("frac", format!("{} has no fraction; cast to a float", x.dtype())));
        }
        x.sub(&x.trunc()?)
    };
    /// Rounds a float to the nearest whole number, a half to the even one; integers stay what they are.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.5f32, 1.5, -2.6]);
    /// assert_eq!(x.round()?.to_vec::<f32>()?, [0.0, 2.0, -3.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    round = |x: &UOp| floats(x, round_half_even);
}

/// Changes floats; what is whole already stays.
fn floats(x: &UOp, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
    if x.dtype().is_float() {
        f(x)
    } else {
        Ok(x.clone())
    }
}

fn floor(x: &UOp) -> Result<UOp> {
    floats(x, |x| {
        let t = x.trunc()?;
        x.cmplt(&t)?.where_(&t.sub(&t.full_like(1.0)?)?, &t)
    })
}

/// The fraction that rounding towards zero takes away is exact, so comparing it with a half decides.
fn round_half_even(x: &UOp) -> Result<UOp> {
    let number = |value: f64| x.full_like(value);
    let t = x.trunc()?;
    let rest = x.sub(&t)?;
    let negative = rest.cmplt(&number(0.0)?)?;
    let size = negative.where_(&rest.neg()?, &rest)?;
    let half = number(0.5)?;
    let halved = t.mul(&half)?;
    let odd = halved.trunc()?.cmpne(&halved)?;
    let away = half.cmplt(&size)?.or(&size.eq(&half)?.and(&odd)?)?;
    let step = negative.where_(&number(-1.0)?, &number(1.0)?)?;
    away.where_(&t.add(&step)?, &t)
}

impl Tensor {
    /// Rounds to so many decimal places: round(x * 10^decimals) / 10^decimals, computed in f64. Negative
    /// ones round to tens, hundreds and so on.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.25f64, -1.234, 15.0]);
    /// assert_eq!(x.round_to(1)?.to_vec::<f64>()?, [1.2, -1.2, 15.0]);
    /// assert_eq!(x.round_to(-1)?.to_vec::<f64>()?, [0.0, -0.0, 20.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the tensor is of integers and `decimals` is negative.
    #[track_caller]
    pub fn round_to(&self, decimals: i32) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let dtype = self.dtype();
        if !dtype.is_float() && decimals < 0 {
            let message = format!("{dtype} is rounded to whole numbers already; cast to f64 first");
            return Err(dtype_error("round", message));
        }
        if decimals == 0 || !dtype.is_float() {
            return self.round();
        }
        // A power of ten beyond f64 leaves every number as it is, or 0.
        let scale = 10f64.powi(decimals.unsigned_abs().min(308) as i32);
        self.map(|x| {
            let x = x.cast(DType::F64)?;
            let scale = x.full_like(scale)?;
            let wide = match decimals > 0 {
                true => round_half_even(&x.mul(&scale)?)?.div(&scale)?,
                false => round_half_even(&x.div(&scale)?)?.mul(&scale)?,
            };
            wide.cast(dtype)
        })
    }
}
