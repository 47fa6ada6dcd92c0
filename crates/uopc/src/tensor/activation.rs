//! Activation functions. At a kink the derivative is the one that PyTorch takes.

use super::elementwise::{functions, real};
use super::{Operand, Result, Site, Tensor, UOp, formulas};
use crate::functions::{self as f, Num, in_f64};

/// Of SELU, which keep the mean 0 and the variance 1 of its arguments.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

functions! {
    /// x times the chance that a normal variable is below x: x/2 * erfc(-x / sqrt 2); 0 at -inf.
    /// [`gelu`](Tensor::gelu) is its approximation by tanh.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.gelu_exact()?.to_vec::<f32>()?, [0.0, 0.8413448]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    gelu_exact = gelu_exact;
    /// x * tanh(softplus(x)), 0 at -inf.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.mish()?.to_vec::<f32>()?, [0.0, 0.8650984]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    mish = mish;
    /// x / (1 + |x|); 1 and -1 at the infinities.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0, -3.0]);
    /// assert_eq!(x.softsign()?.to_vec::<f32>()?, [0.0, 0.5, -0.75]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    softsign = softsign;
    /// log(sigmoid(x)) = -softplus(-x).
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.logsigmoid()?.to_vec::<f32>()?, [-0.6931472, -0.3132617]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    logsigmoid = |x: &UOp| formulas::softplus(&x.neg()?)?.neg();
    /// x between 0 and 6, else the nearer of them; the derivative at both is 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-1.0f32, 3.0, 9.0]);
    /// assert_eq!(x.relu6()?.to_vec::<f32>()?, [0.0, 3.0, 6.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    relu6 = |x: &UOp| bounded(x, 0.0, 6.0);
    /// (x + 3) / 6 between -3 and 3, below 0 and above 1; the derivative at both ends is 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-4.0f32, 0.0, 4.0]);
    /// assert_eq!(x.hardsigmoid()?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    hardsigmoid = hardsigmoid;
    /// x times [`hardsigmoid`](Tensor::hardsigmoid); 0 at -inf. The derivative is 0 at -3 and 1 at 3.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-4.0f32, 3.0]);
    /// assert_eq!(x.hardswish()?.to_vec::<f32>()?, [0.0, 3.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    hardswish = hardswish;
    /// Scaled exponential linear unit: 1.0507 times x above 0, 1.0507 * 1.6733 * (e^x - 1) elsewhere.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-1.0f32, 1.0]);
    /// assert_eq!(x.selu()?.to_vec::<f32>()?, [-1.1113307, 1.050701]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    selu = |x: &UOp| scaled_elu(x, SELU_ALPHA, 1.0, SELU_SCALE);
}

fn gelu_exact(x: &UOp) -> Result<UOp> {
    in_f64([x], |[x], _| {
        // What is further below is 0, and no infinity meets a zero.
        let above = x.max(&x.number(-40.0));
        let tail = f::erfc(&(&above * -std::f64::consts::FRAC_1_SQRT_2).0);
        above * 0.5 * Num(tail.expect("an f64 is a float"))
    })
}

/// With z = e^-|x|: x (1 + 2z) / (1 + 2z + 2z^2) above 0, x z (z + 2) / (z (z + 2) + 2) below.
fn mish(x: &UOp) -> Result<UOp> {
    in_f64([x], |[x], _| {
        let above = x.max(&x.number(-800.0));
        let negative = above.below(0.0);
        let z = (-negative.select(&-&above, &above)).exp();
        let n = negative.select(&z * (&z + 2.0), &(&z * 2.0 + 1.0));
        let more = negative.select(2.0, &(&z * &z * 2.0));
        let share = &n / (&n + more);
        above * share
    })
}

fn softsign(x: &UOp) -> Result<UOp> {
    let wide = Num(x.cast(x.dtype().accumulator())?);
    let size = Num(formulas::abs(&wide.0)?);
    let infinite = size.equals(f64::INFINITY);
    let y = &wide / (infinite.select(0.0, &size) + 1.0);
    let end = wide.below(0.0).select(-1.0, &wide.number(1.0));
    infinite.select(&end, &y).0.cast(x.dtype())
}

/// `low` from there down, `high` from there up, x between.
fn bounded(x: &UOp, low: f64, high: f64) -> Result<UOp> {
    let x = Num(x.clone());
    let inside = x.above(low).and(&x.below(high));
    let end = x.below(low).or(&x.equals(low)).select(low, &x.number(high));
    let end = x.is_nan().select(f64::NAN, &end);
    Ok(inside.select(&x, &end).0)
}

fn hardsigmoid(x: &UOp) -> Result<UOp> {
    let wide = x.cast(x.dtype().accumulator())?;
    let bounded = Num(bounded(&wide, -3.0, 3.0)?);
    ((bounded + 3.0) / 6.0).0.cast(x.dtype())
}

fn hardswish(x: &UOp) -> Result<UOp> {
    let wide = Num(x.cast(x.dtype().accumulator())?);
    let low = wide.above(-3.0).or(&wide.is_nan());
    let inner = &wide * (&wide + 3.0) / 6.0;
    let y = wide.below(3.0).select(inner, &wide);
    let y = low.select(y, &wide.number(0.0));
    wide.is_nan().select(f64::NAN, &y).0.cast(x.dtype())
}

/// scale * x above 0, scale * alpha * (e^(x / width) - 1) elsewhere.
fn scaled_elu(x: &UOp, alpha: f64, width: f64, scale: f64) -> Result<UOp> {
    in_f64([x], |[x], _| {
        let positive = x.above(0.0);
        let below = positive.select(0.0, &x);
        let curve = Num(f::expm1(&(below / width).0).expect("an f64 is a float"));
        positive.select(&x, &(curve * alpha)) * scale
    })
}

impl Tensor {
    /// Exponential linear unit: x above 0, alpha * (e^x - 1) elsewhere. Integers become f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-1.0f32, 1.0]);
    /// assert_eq!(x.elu(1.0)?.to_vec::<f32>()?, [-0.63212055, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.map(|x| scaled_elu(&x.cast(real(x.dtype()))?, alpha, 1.0, 1.0))
    }

    /// Continuously differentiable ELU: x above 0, alpha * (e^(x / alpha) - 1) elsewhere. Integers become
    /// f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-1.0f32, 1.0]);
    /// assert_eq!(x.celu(2.0)?.to_vec::<f32>()?, [-0.78693867, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.map(|x| scaled_elu(&x.cast(real(x.dtype()))?, alpha, alpha, 1.0))
    }

    /// x above 0, slope * x elsewhere, where the slope is a number or, as in PReLU, a tensor that broadcasts
    /// against x. The derivative at 0 is the slope. Integers become f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-1.0f32, 1.0]);
    /// assert_eq!(x.leaky_relu(0.5)?.to_vec::<f32>()?, [-0.5, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[track_caller]
    pub fn leaky_relu(&self, slope: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let x = self.cast(real(self.dtype()))?;
        x.gt(0)?.where_(&x, x.mul(slope)?)
    }

    /// x between two numbers, else the nearer of them; the derivative at both is 0. See
    /// [`clamp`](Self::clamp) for one that is 1 there.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-3.0f32, 0.5, 3.0]);
    /// assert_eq!(x.hardtanh(-1.0, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn hardtanh(&self, low: f64, high: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.map(|x| bounded(&x.cast(real(x.dtype()))?, low, high))
    }

    /// log(1 + e^(beta x)) / beta, and x where beta * x is above the threshold, as in PyTorch.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 30.0]);
    /// assert_eq!(x.softplus_with(1.0, 20.0)?.to_vec::<f32>()?, [0.6931472, 30.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn softplus_with(&self, beta: f64, threshold: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let x = self.cast(real(self.dtype()))?;
        let scaled = x.mul(beta)?;
        scaled
            .gt(threshold)?
            .where_(&x, scaled.softplus()?.div(beta)?)
    }
}
