//! Methods for functions of real numbers, rounding, signs and activations, beyond those of `elementwise.rs`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{PyTensor, located};
use crate::convert::AnyOperand;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[$doc])*
            fn $name(&self, py: Python<'_>) -> PyResult<PyTensor> {
                PyTensor::build(py, || self.tensor.$name())
            }
        )* }
    };
}

unary! {
    /// The tangent of an angle in radians of any size. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).tan()
    /// Tensor([0.0000, 1.5574], shape=(2,), dtype=f32)
    tan;
    /// The angle between -pi/2 and pi/2 whose sine this is; NaN outside of -1..1.
    ///
    /// Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0, 2.0]).asin()
    /// Tensor([0.0000, 1.5708,    nan], shape=(3,), dtype=f32)
    asin;
    /// The angle between 0 and pi whose cosine this is; NaN outside of -1..1.
    ///
    /// Integers and bools become f32 first.
    ///
    /// >>> Tensor([1.0, -1.0]).acos()
    /// Tensor([0.0000, 3.1416], shape=(2,), dtype=f32)
    acos;
    /// The angle between -pi/2 and pi/2 whose tangent this is. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).atan()
    /// Tensor([0.0000, 0.7854], shape=(2,), dtype=f32)
    atan;
    /// The hyperbolic sine, (exp(x) - exp(-x)) / 2. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).sinh()
    /// Tensor([0.0000, 1.1752], shape=(2,), dtype=f32)
    sinh;
    /// The hyperbolic cosine, (exp(x) + exp(-x)) / 2. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).cosh()
    /// Tensor([1.0000, 1.5431], shape=(2,), dtype=f32)
    cosh;
    /// The inverse of sinh. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).asinh()
    /// Tensor([0.0000, 0.8814], shape=(2,), dtype=f32)
    asinh;
    /// The inverse of cosh, from 0 up; NaN below 1. Integers and bools become f32 first.
    ///
    /// >>> Tensor([1.0, 2.0]).acosh()
    /// Tensor([0.000, 1.317], shape=(2,), dtype=f32)
    acosh;
    /// The inverse of tanh: infinite at -1 and 1, NaN outside. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.5, 1.0]).atanh()
    /// Tensor([0.5493,    inf], shape=(2,), dtype=f32)
    atanh;
    /// exp(self) - 1, accurate where that is small. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).expm1()
    /// Tensor([0.0000, 1.7183], shape=(2,), dtype=f32)
    expm1;
    /// log(1 + self), accurate near 0: -inf at -1, NaN below. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).log1p()
    /// Tensor([0.0000, 0.6931], shape=(2,), dtype=f32)
    log1p;
    /// The logarithm to base 10, exact at powers of ten. Integers and bools become f32 first.
    ///
    /// >>> Tensor([1, 1000]).log10()
    /// Tensor([0., 3.], shape=(2,), dtype=f32)
    log10;
    /// 1 / sqrt(self): infinite at 0, NaN below. Integers and bools become f32 first.
    ///
    /// >>> Tensor([4.0, 16.0]).rsqrt()
    /// Tensor([0.50, 0.25], shape=(2,), dtype=f32)
    rsqrt;
    /// The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to self.
    ///
    /// Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).erf()
    /// Tensor([0.0000, 0.8427], shape=(2,), dtype=f32)
    erf;
    /// 1 - erf(self), accurate where that is small. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).erfc()
    /// Tensor([1.0000, 0.1573], shape=(2,), dtype=f32)
    erfc;
    /// Rounds floats down; integers stay what they are. The derivative is 0.
    ///
    /// >>> Tensor([1.7, -1.2]).floor()
    /// Tensor([ 1., -2.], shape=(2,), dtype=f32)
    floor;
    /// Rounds floats up; integers stay what they are. The derivative is 0.
    ///
    /// >>> Tensor([1.2, -1.7]).ceil()
    /// Tensor([ 2., -1.], shape=(2,), dtype=f32)
    ceil;
    /// What trunc takes away, with the sign of self; NaN of infinities. The derivative is 1.
    ///
    /// Raises TypeError for integers.
    ///
    /// >>> Tensor([1.75, -1.25]).frac()
    /// Tensor([ 0.75, -0.25], shape=(2,), dtype=f32)
    frac;
    /// 1, 0 or -1: whether self is above, at or below 0; NaN stays NaN. The derivative is 0.
    ///
    /// Raises TypeError for bools.
    ///
    /// >>> Tensor([3.0, 0.0, -2.0]).sign()
    /// Tensor([ 1., 0., -1.], shape=(3,), dtype=f32)
    sign;
    /// Whether the sign bit is set: of -0.0 it is, of integers below 0; no NaN counts as negative.
    ///
    /// >>> Tensor([1.0, -0.0]).signbit()
    /// Tensor([False, True], shape=(2,), dtype=bool)
    signbit;
    /// Whether each number is NaN; integers never are.
    ///
    /// >>> Tensor([1.0, float("nan")]).isnan()
    /// Tensor([False, True], shape=(2,), dtype=bool)
    isnan;
    /// Whether each number is infinite, of either sign; integers never are.
    ///
    /// >>> Tensor([1.0, float("-inf")]).isinf()
    /// Tensor([False, True], shape=(2,), dtype=bool)
    isinf;
    /// Whether each number is neither infinite nor NaN; integers always are.
    ///
    /// >>> Tensor([1.0, float("nan")]).isfinite()
    /// Tensor([ True, False], shape=(2,), dtype=bool)
    isfinite;
    /// self * tanh(softplus(self)), 0 at -inf. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).mish()
    /// Tensor([0.0000, 0.8651], shape=(2,), dtype=f32)
    mish;
    /// self / (1 + abs(self)); 1 and -1 at the infinities. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0, -3.0]).softsign()
    /// Tensor([ 0.00, 0.50, -0.75], shape=(3,), dtype=f32)
    softsign;
    /// log(sigmoid(self)) = -softplus(-self). Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, -1000.0]).logsigmoid()
    /// Tensor([   -0.6931, -1000.0000], shape=(2,), dtype=f32)
    logsigmoid;
    /// self between 0 and 6, else the nearer of them; the derivative at both is 0.
    ///
    /// Integers and bools become f32 first.
    ///
    /// >>> Tensor([-1.0, 3.0, 9.0]).relu6()
    /// Tensor([0., 3., 6.], shape=(3,), dtype=f32)
    relu6;
    /// (self + 3) / 6 between -3 and 3, 0 below and 1 above. Integers and bools become f32 first.
    ///
    /// >>> Tensor([-4.0, 0.0, 4.0]).hardsigmoid()
    /// Tensor([0.0, 0.5, 1.0], shape=(3,), dtype=f32)
    hardsigmoid;
    /// self * hardsigmoid(self), 0 at -inf. Integers and bools become f32 first.
    ///
    /// >>> Tensor([-4.0, 3.0]).hardswish()
    /// Tensor([0., 3.], shape=(2,), dtype=f32)
    hardswish;
    /// 1.0507 * self above 0, 1.0507 * 1.6733 * (exp(self) - 1) elsewhere.
    ///
    /// Integers and bools become f32 first.
    ///
    /// >>> Tensor([-1.0, 1.0]).selu()
    /// Tensor([-1.1113, 1.0507], shape=(2,), dtype=f32)
    selu;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $twin:ident;)*) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[$doc])*
            fn $name(&self, py: Python<'_>, other: AnyOperand) -> PyResult<PyTensor> {
                PyTensor::build(py, || self.tensor.$twin(other.0))
            }
        )* }
    };
}

binary! {
    /// The angle of the point (other, self), from -pi to pi. Integers become f32 first.
    ///
    /// A zero with a sign counts as a point on that side of the axis, as in C. The gradient at the
    /// origin is NaN.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1.0, 0.0]).atan2(Tensor([1.0, -1.0]))
    /// Tensor([0.7854, 3.1416], shape=(2,), dtype=f32)
    atan2 => atan2;
    /// sqrt(self^2 + other^2) without overflow on the way. Integers become f32 first.
    ///
    /// Infinite if either is, even beside NaN. The gradient at the origin is 0.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([3.0, 1e30]).hypot(Tensor([4.0, 0.0]))
    /// Tensor([5.0000e+00, 1.0000e+30], shape=(2,), dtype=f32)
    hypot => hypot;
    /// log(exp(self) + exp(other)) without overflow on the way. Integers become f32 first.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([0.0, 1000.0]).logaddexp(Tensor([0.0, 0.0]))
    /// Tensor([   0.6931, 1000.0000], shape=(2,), dtype=f32)
    logaddexp => logaddexp;
    /// The magnitude of self with the sign of other, that of its zeros included.
    ///
    /// Integers become f32 first. The derivative by self at 0 is 0.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1.0, 2.0]).copysign(Tensor([-0.0, 5.0]))
    /// Tensor([-1., 2.], shape=(2,), dtype=f32)
    copysign => copysign;
    /// What is left of self / other rounded towards zero: has the sign of self, as C's ``fmod``.
    ///
    /// Of floats it is exact, NaN where other is 0 or self infinite; of integers 0 where other is 0.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([-7, 7]).fmod(4), Tensor([-7.5]).fmod(2)
    /// (Tensor([-3, 3], shape=(2,), dtype=i32), Tensor([-1.5], shape=(1,), dtype=f32))
    fmod => fmod;
    /// The bits of integers shifted left: 0 if other is negative or not below their width.
    ///
    /// Raises ValueError if the shapes do not broadcast, TypeError for floats.
    ///
    /// >>> Tensor([1, 3]).bitwise_left_shift(2)
    /// Tensor([ 4, 12], shape=(2,), dtype=i32)
    bitwise_left_shift => shl;
    /// The bits of integers shifted right, copies of the sign coming in.
    ///
    /// If other is negative or not below their width, nothing but those is left.
    ///
    /// Raises ValueError if the shapes do not broadcast, TypeError for floats.
    ///
    /// >>> Tensor([8, -8]).bitwise_right_shift(1)
    /// Tensor([ 4, -4], shape=(2,), dtype=i32)
    bitwise_right_shift => shr;
}

#[pymethods]
impl PyTensor {
    /// self times the chance that a normal variable is below it.
    ///
    /// With ``approximate="tanh"``, the default, that is x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715
    /// x^3))); with ``"none"``, which is PyTorch's default, x/2 * erfc(-x / sqrt(2)). Integers and bools
    /// become f32 first.
    ///
    /// Raises ValueError for another approximation.
    ///
    /// >>> Tensor([0.0, 1.0]).gelu(), Tensor([1.0]).gelu(approximate="none")
    /// (Tensor([0.0000, 0.8412], shape=(2,), dtype=f32), Tensor([0.8413], shape=(1,), dtype=f32))
    #[pyo3(signature = (*, approximate="tanh"))]
    fn gelu(&self, py: Python<'_>, approximate: &str) -> PyResult<PyTensor> {
        match approximate {
            "tanh" => PyTensor::build(py, || self.tensor.gelu()),
            "none" => PyTensor::build(py, || self.tensor.gelu_exact()),
            other => {
                let message = format!("gelu: approximate is \"tanh\" or \"none\", not {other:?}");
                Err(located::<PyValueError>(py, message))
            }
        }
    }

    /// log(1 + exp(beta * self)) / beta, and self where beta * self is above the threshold.
    ///
    /// Without arguments the formula holds everywhere. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).softplus()
    /// Tensor([0.6931, 1.3133], shape=(2,), dtype=f32)
    #[pyo3(signature = (beta=1.0, threshold=None))]
    fn softplus(&self, py: Python<'_>, beta: f64, threshold: Option<f64>) -> PyResult<PyTensor> {
        PyTensor::build(py, || match threshold {
            None if beta == 1.0 => self.tensor.softplus(),
            _ => self
                .tensor
                .softplus_with(beta, threshold.unwrap_or(f64::INFINITY)),
        })
    }

    /// self above 0, alpha * (exp(self) - 1) elsewhere. Integers and bools become f32 first.
    ///
    /// >>> Tensor([-1.0, 1.0]).elu()
    /// Tensor([-0.6321, 1.0000], shape=(2,), dtype=f32)
    #[pyo3(signature = (alpha=1.0))]
    fn elu(&self, py: Python<'_>, alpha: f64) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.elu(alpha))
    }

    /// self above 0, alpha * (exp(self / alpha) - 1) elsewhere. Integers and bools become f32 first.
    ///
    /// >>> Tensor([-1.0, 1.0]).celu(2.0)
    /// Tensor([-0.7869, 1.0000], shape=(2,), dtype=f32)
    #[pyo3(signature = (alpha=1.0))]
    fn celu(&self, py: Python<'_>, alpha: f64) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.celu(alpha))
    }

    /// self above 0, slope * self elsewhere; a tensor as slope makes it PReLU.
    ///
    /// The derivative at 0 is the slope. Integers and bools become f32 first.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([-1.0, 1.0]).leaky_relu(0.5)
    /// Tensor([-0.5, 1.0], shape=(2,), dtype=f32)
    #[pyo3(signature = (negative_slope=None))]
    fn leaky_relu(&self, py: Python<'_>, negative_slope: Option<AnyOperand>) -> PyResult<PyTensor> {
        let slope = negative_slope.map_or(uopc::tensor::Operand::Float(0.01), |slope| slope.0);
        PyTensor::build(py, || self.tensor.leaky_relu(slope))
    }

    /// self between two numbers, by default -1 and 1, else the nearer of them; the derivative at both is 0.
    ///
    /// See clamp for one that is 1 there. Integers and bools become f32 first.
    ///
    /// >>> Tensor([-3.0, 0.5, 3.0]).hardtanh()
    /// Tensor([-1.0, 0.5, 1.0], shape=(3,), dtype=f32)
    #[pyo3(signature = (min_val=None, max_val=None))]
    fn hardtanh(
        &self,
        py: Python<'_>,
        min_val: Option<f64>,
        max_val: Option<f64>,
    ) -> PyResult<PyTensor> {
        let (low, high) = (min_val.unwrap_or(-1.0), max_val.unwrap_or(1.0));
        PyTensor::build(py, || self.tensor.hardtanh(low, high))
    }

    /// self, the same tensor.
    ///
    /// >>> t = Tensor([1.0])
    /// >>> t.positive() is t
    /// True
    fn positive(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Rounds floats to so many decimal places, a half to the even digit. The derivative is 0.
    ///
    /// Negative ``decimals`` round to tens, hundreds and so on. Integers stay what they are.
    ///
    /// Raises TypeError for integers with negative ``decimals``.
    ///
    /// >>> Tensor([0.5, 1.5, -2.6]).round(), Tensor([1.234]).round(decimals=1)
    /// (Tensor([ 0., 2., -3.], shape=(3,), dtype=f32), Tensor([1.2], shape=(1,), dtype=f32))
    #[pyo3(signature = (decimals=0))]
    fn round(&self, py: Python<'_>, decimals: i32) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.round_to(decimals))
    }

    /// self, but ``min`` where it is less and ``max`` where it is more; NaN stays NaN.
    ///
    /// Bounds are numbers or tensors that broadcast; either may be missing. Where ``min`` is above
    /// ``max`` it is ``max``. The derivative is 1 at the bounds, too, and 0 beyond.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([-1.0, 0.5, 2.0]).clamp(0, 1), Tensor([-1, 3]).clamp(max=2)
    /// (Tensor([0.0, 0.5, 1.0], shape=(3,), dtype=f32), Tensor([-1, 2], shape=(2,), dtype=i32))
    #[pyo3(signature = (min=None, max=None))]
    fn clamp(
        &self,
        py: Python<'_>,
        min: Option<AnyOperand>,
        max: Option<AnyOperand>,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || match (min, max) {
            (Some(min), Some(max)) => self.tensor.clamp(min.0, max.0),
            (Some(min), None) => self.tensor.clamp_min(min.0),
            (None, Some(max)) => self.tensor.clamp_max(max.0),
            (None, None) => Ok(self.tensor.clone()),
        })
    }

    /// self with other numbers for NaN and the infinities.
    ///
    /// Without ``posinf`` and ``neginf`` these become the largest and least finite numbers. Integers
    /// stay what they are. No gradient flows to what was replaced.
    ///
    /// >>> Tensor([float("nan"), float("inf"), 1.0]).nan_to_num(0.0, posinf=9.0)
    /// Tensor([0., 9., 1.], shape=(3,), dtype=f32)
    #[pyo3(signature = (nan=0.0, posinf=None, neginf=None))]
    fn nan_to_num(
        &self,
        py: Python<'_>,
        nan: f64,
        posinf: Option<f64>,
        neginf: Option<f64>,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.nan_to_num(nan, posinf, neginf))
    }

    /// self with ``value`` where the mask is true, in self's dtype.
    ///
    /// Raises TypeError if the mask is no bool tensor, ValueError if the shapes do not broadcast.
    ///
    /// >>> t = Tensor([1.0, -2.0])
    /// >>> t.masked_fill(t < 0, 0)
    /// Tensor([1., 0.], shape=(2,), dtype=f32)
    fn masked_fill(
        &self,
        py: Python<'_>,
        mask: crate::convert::AnyTensor,
        value: AnyOperand,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.masked_fill(&mask.0, value.0))
    }

    /// The number between self and ``end`` at ``weight``: self + weight * (end - self).
    ///
    /// It is computed from the nearer end. Integers become f32 first.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([0.0, 10.0]).lerp(Tensor([1.0, 20.0]), 0.25)
    /// Tensor([ 0.25, 12.50], shape=(2,), dtype=f32)
    fn lerp(&self, py: Python<'_>, end: AnyOperand, weight: AnyOperand) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.lerp(end.0, weight.0))
    }

    /// Whether numbers are equal or abs(self - other) <= atol + rtol * abs(other), compared in f64.
    ///
    /// NaN is close to none, or to NaN with ``equal_nan``; an infinity is close to itself alone.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1.0, 2.0]).isclose(Tensor([1.000001, 2.1]))
    /// Tensor([ True, False], shape=(2,), dtype=bool)
    #[pyo3(signature = (other, rtol=1e-5, atol=1e-8, equal_nan=false))]
    fn isclose(
        &self,
        py: Python<'_>,
        other: AnyOperand,
        rtol: f64,
        atol: f64,
        equal_nan: bool,
    ) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.isclose(other.0, rtol, atol, equal_nan))
    }

    /// Whether all pairs of numbers are close, as a bool of Python; see isclose.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1.0, 2.0]).allclose(Tensor([1.000001, 2.0]))
    /// True
    #[pyo3(signature = (other, rtol=1e-5, atol=1e-8, equal_nan=false))]
    fn allclose(
        &self,
        py: Python<'_>,
        other: AnyOperand,
        rtol: f64,
        atol: f64,
        equal_nan: bool,
    ) -> PyResult<bool> {
        crate::run::compute(py, || {
            let close = self.tensor.allclose(other.0, rtol, atol, equal_nan)?;
            close.truth()
        })
    }
}
