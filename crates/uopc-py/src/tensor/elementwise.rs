//! Methods that work element by element: arithmetic, comparisons, selection, functions, casts.

use pyo3::prelude::*;
use uopc::tensor::Operand;
use uopc::{DType, Result, Tensor};

use super::PyTensor;
use crate::convert::AnyOperand;
use crate::dtype::AnyDType;

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
    /// self + other. Integers wrap, bools are joined by "or".
    ///
    /// ``other`` is a tensor, a number or an array; shapes broadcast and dtypes are promoted.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1.0, 2.0]).add(10)
    /// Tensor([11., 12.], shape=(2,), dtype=f32)
    add => add;
    /// self - other. Integers wrap.
    ///
    /// Raises ValueError if the shapes do not broadcast, TypeError for bools.
    ///
    /// >>> Tensor([1, 2]).sub(3)
    /// Tensor([-2, -1], shape=(2,), dtype=i32)
    sub => sub;
    /// self * other. Integers wrap, bools are joined by "and".
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1.0, 2.0]).mul(Tensor([[1.0], [10.0]]))
    /// Tensor([[ 1.,  2.],
    ///         [10., 20.]], shape=(2, 2), dtype=f32)
    mul => mul;
    /// self / other, correctly rounded. Integers become f32 first.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1, 2]).div(4)
    /// Tensor([0.25, 0.50], shape=(2,), dtype=f32)
    div => div;
    /// self / other rounded down. Integers give 0 where other is 0, floats an infinity or NaN.
    ///
    /// No gradient flows through it.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([-7, 7]).floordiv(2), Tensor([-7.5]).floordiv(2)
    /// (Tensor([-4, 3], shape=(2,), dtype=i32), Tensor([-4.], shape=(1,), dtype=f32))
    floordiv => floordiv;
    /// What floordiv leaves: has the sign of other, as Python's ``%``. Exact for floats.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([-7, 7]).mod(4), Tensor([-7.5]).mod(2)
    /// (Tensor([1, 3], shape=(2,), dtype=i32), Tensor([0.5], shape=(1,), dtype=f32))
    r#mod => floormod;
    /// The larger of each pair; NaN if either is. A gradient is halved where they are equal.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1.0, 5.0]).maximum(3)
    /// Tensor([3., 5.], shape=(2,), dtype=f32)
    maximum => maximum;
    /// The smaller of each pair; NaN if either is. A gradient is halved where they are equal.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1.0, 5.0]).minimum(3)
    /// Tensor([1., 3.], shape=(2,), dtype=f32)
    minimum => minimum;
    /// self == other for each pair, as bool; false beside a NaN.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1, 2]).eq(2)
    /// Tensor([False, True], shape=(2,), dtype=bool)
    eq => eq;
    /// self != other for each pair, as bool; true beside a NaN.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1, 2]).ne(2)
    /// Tensor([ True, False], shape=(2,), dtype=bool)
    ne => ne;
    /// self < other for each pair, as bool; false beside a NaN.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1, 2]).lt(2)
    /// Tensor([ True, False], shape=(2,), dtype=bool)
    lt => lt;
    /// self <= other for each pair, as bool; false beside a NaN, hence not the opposite of ``>``.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1, 3]).le(2)
    /// Tensor([ True, False], shape=(2,), dtype=bool)
    le => le;
    /// self > other for each pair, as bool; false beside a NaN.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1, 3]).gt(2)
    /// Tensor([False, True], shape=(2,), dtype=bool)
    gt => gt;
    /// self >= other for each pair, as bool; false beside a NaN.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([1, 2]).ge(2)
    /// Tensor([False, True], shape=(2,), dtype=bool)
    ge => ge;
    /// "and" of the bits of integers, and of bools.
    ///
    /// Raises ValueError if the shapes do not broadcast, TypeError for floats.
    ///
    /// >>> Tensor([6, 5]).bitwise_and(3)
    /// Tensor([2, 1], shape=(2,), dtype=i32)
    bitwise_and => and;
    /// "or" of the bits of integers, and of bools.
    ///
    /// Raises ValueError if the shapes do not broadcast, TypeError for floats.
    ///
    /// >>> Tensor([6, 5]).bitwise_or(3)
    /// Tensor([7, 7], shape=(2,), dtype=i32)
    bitwise_or => or;
    /// Exclusive "or" of the bits of integers, and of bools.
    ///
    /// Raises ValueError if the shapes do not broadcast, TypeError for floats.
    ///
    /// >>> Tensor([6, 5]).bitwise_xor(3)
    /// Tensor([5, 6], shape=(2,), dtype=i32)
    bitwise_xor => xor;
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $twin:ident;)*) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[$doc])*
            fn $name(&self, py: Python<'_>) -> PyResult<PyTensor> {
                PyTensor::build(py, || self.tensor.$twin())
            }
        )* }
    };
}

unary! {
    /// -self. Integers wrap.
    ///
    /// Raises TypeError for bools.
    ///
    /// >>> Tensor([1.0, -2.0]).neg()
    /// Tensor([-1., 2.], shape=(2,), dtype=f32)
    neg => neg;
    /// The absolute value, with derivative 0 at 0; the least integer is its own.
    ///
    /// >>> Tensor([1.0, -2.0]).abs()
    /// Tensor([1., 2.], shape=(2,), dtype=f32)
    abs => abs;
    /// self where it is positive, else 0; the derivative at 0 is 0.
    ///
    /// >>> Tensor([1.0, -2.0]).relu()
    /// Tensor([1., 0.], shape=(2,), dtype=f32)
    relu => relu;
    /// self * self.
    ///
    /// >>> Tensor([1, -3]).square()
    /// Tensor([1, 9], shape=(2,), dtype=i32)
    square => square;
    /// Rounds floats towards zero; integers stay what they are.
    ///
    /// >>> Tensor([1.7, -1.7]).trunc()
    /// Tensor([ 1., -1.], shape=(2,), dtype=f32)
    trunc => trunc;
    /// Flips the bits of integers; "not" of bools.
    ///
    /// Raises TypeError for floats.
    ///
    /// >>> Tensor([0, 5]).bitwise_not()
    /// Tensor([-1, -6], shape=(2,), dtype=i32)
    bitwise_not => not;
    /// e to the power self. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).exp()
    /// Tensor([1.0000, 2.7183], shape=(2,), dtype=f32)
    exp => exp;
    /// 2 to the power self. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 3.0]).exp2()
    /// Tensor([1., 8.], shape=(2,), dtype=f32)
    exp2 => exp2;
    /// The natural logarithm: -inf at 0, NaN below. Integers and bools become f32 first.
    ///
    /// >>> Tensor([1.0, 0.0]).log()
    /// Tensor([  0., -inf], shape=(2,), dtype=f32)
    log => log;
    /// The logarithm to base 2. Integers and bools become f32 first.
    ///
    /// >>> Tensor([1, 8]).log2()
    /// Tensor([0., 3.], shape=(2,), dtype=f32)
    log2 => log2;
    /// The square root, correctly rounded. Integers and bools become f32 first.
    ///
    /// >>> Tensor([4.0, 9.0]).sqrt()
    /// Tensor([2., 3.], shape=(2,), dtype=f32)
    sqrt => sqrt;
    /// The sine of an angle in radians of any size. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).sin()
    /// Tensor([0.0000, 0.8415], shape=(2,), dtype=f32)
    sin => sin;
    /// The cosine of an angle in radians of any size. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).cos()
    /// Tensor([1.0000, 0.5403], shape=(2,), dtype=f32)
    cos => cos;
    /// The hyperbolic tangent. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).tanh()
    /// Tensor([0.0000, 0.7616], shape=(2,), dtype=f32)
    tanh => tanh;
    /// 1 / (1 + exp(-self)). Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).sigmoid()
    /// Tensor([0.5000, 0.7311], shape=(2,), dtype=f32)
    sigmoid => sigmoid;
    /// self * sigmoid(self), 0 at -inf. Integers and bools become f32 first.
    ///
    /// >>> Tensor([0.0, 1.0]).silu()
    /// Tensor([0.0000, 0.7311], shape=(2,), dtype=f32)
    silu => silu;
    /// 1 / self, correctly rounded. Integers and bools become f32 first.
    ///
    /// >>> Tensor([2.0, 4.0]).reciprocal()
    /// Tensor([0.50, 0.25], shape=(2,), dtype=f32)
    reciprocal => reciprocal;
}

macro_rules! casts {
    ($($(#[$doc:meta])* $name:ident => $dtype:ident;)*) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[$doc])*
            fn $name(&self, py: Python<'_>) -> PyResult<PyTensor> {
                PyTensor::build(py, || self.tensor.cast(DType::$dtype))
            }
        )* }
    };
}

casts! {
    /// The values as f32; see cast.
    ///
    /// >>> Tensor([1, 2]).float()
    /// Tensor([1., 2.], shape=(2,), dtype=f32)
    float => F32;
    /// The values as f16; see cast.
    ///
    /// >>> Tensor([1, 2]).half()
    /// Tensor([1., 2.], shape=(2,), dtype=f16)
    half => F16;
    /// The values as bf16; see cast.
    ///
    /// >>> Tensor([1, 2]).bfloat16()
    /// Tensor([1., 2.], shape=(2,), dtype=bf16)
    bfloat16 => BF16;
    /// The values as f64; see cast.
    ///
    /// >>> Tensor([1, 2]).double()
    /// Tensor([1., 2.], shape=(2,), dtype=f64)
    double => F64;
    /// The values as i32; see cast.
    ///
    /// >>> Tensor([1.7, -1.7]).int()
    /// Tensor([ 1, -1], shape=(2,), dtype=i32)
    int => I32;
    /// The values as i64; see cast.
    ///
    /// >>> Tensor([1.7, -1.7]).long()
    /// Tensor([ 1, -1], shape=(2,), dtype=i64)
    long => I64;
    /// Whether each value is not 0; see cast.
    ///
    /// >>> Tensor([0.0, 0.5]).bool()
    /// Tensor([False, True], shape=(2,), dtype=bool)
    bool => Bool;
}

/// Whether each value is not 0; a number is a scalar.
fn truth(operand: Operand) -> Result<Tensor> {
    match operand {
        Operand::Tensor(tensor) => tensor.cast(DType::Bool),
        number => Tensor::scalar(number)?.cast(DType::Bool),
    }
}

#[pymethods]
impl PyTensor {
    /// self to the power of a number or, element by element, of a tensor.
    ///
    /// Floats give what C's ``pow`` gives: anything to the power 0 is 1, as is 1 to any power; powers of
    /// negative numbers are NaN unless the power is whole. Integers stay integers and wrap, but become f32
    /// beside a float; a negative tensor of integers as power gives the fraction rounded towards zero.
    ///
    /// Raises TypeError for a negative integer number as power of integers, ValueError if the shapes do
    /// not broadcast.
    ///
    /// >>> Tensor([4.0, 9.0]).pow(0.5), Tensor([2, 3]).pow(Tensor([10, 2]))
    /// (Tensor([2., 3.], shape=(2,), dtype=f32), Tensor([1024, 9], shape=(2,), dtype=i32))
    fn pow(&self, py: Python<'_>, exponent: AnyOperand) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.pow(exponent.0))
    }

    /// This bool tensor's choice: from a where it is true, from b where it is false.
    ///
    /// All three broadcast; a and b are promoted to one dtype.
    ///
    /// Raises TypeError if this is no bool tensor, ValueError if the shapes do not broadcast.
    ///
    /// >>> t = Tensor([1.0, -2.0])
    /// >>> (t > 0).where(t, 0)
    /// Tensor([1., 0.], shape=(2,), dtype=f32)
    fn r#where(&self, py: Python<'_>, a: AnyOperand, b: AnyOperand) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.where_(a.0, b.0))
    }

    /// Whether both are not 0, for each pair, as bool.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([0.0, 2.0]).logical_and(1)
    /// Tensor([False, True], shape=(2,), dtype=bool)
    fn logical_and(&self, py: Python<'_>, other: AnyOperand) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.cast(DType::Bool)?.and(truth(other.0)?))
    }

    /// Whether at least one is not 0, for each pair, as bool.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([0.0, 2.0]).logical_or(0)
    /// Tensor([False, True], shape=(2,), dtype=bool)
    fn logical_or(&self, py: Python<'_>, other: AnyOperand) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.cast(DType::Bool)?.or(truth(other.0)?))
    }

    /// Whether one of them is 0 and the other is not, for each pair, as bool.
    ///
    /// Raises ValueError if the shapes do not broadcast.
    ///
    /// >>> Tensor([0.0, 2.0]).logical_xor(1)
    /// Tensor([ True, False], shape=(2,), dtype=bool)
    fn logical_xor(&self, py: Python<'_>, other: AnyOperand) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.cast(DType::Bool)?.xor(truth(other.0)?))
    }

    /// Whether each value is 0, as bool.
    ///
    /// >>> Tensor([0.0, 2.0]).logical_not()
    /// Tensor([ True, False], shape=(2,), dtype=bool)
    fn logical_not(&self, py: Python<'_>) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.cast(DType::Bool)?.not())
    }

    /// The values in another dtype.
    ///
    /// Floats to integers round towards zero and stop at the ends of the range, NaN becomes 0;
    /// integers wrap; anything but 0 is true.
    ///
    /// Raises TypeError for what is no dtype.
    ///
    /// >>> Tensor([1.7, -1.7]).cast("i32")
    /// Tensor([ 1, -1], shape=(2,), dtype=i32)
    fn cast(&self, py: Python<'_>, dtype: AnyDType) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.cast(dtype.0))
    }
}
