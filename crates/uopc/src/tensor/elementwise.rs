//! Elementwise operations: arithmetic, comparisons, selection and the functions of one argument.

use super::operand::{Unified, unify, unify_as};
use super::{DType, Operand, Result, Site, Tensor, UOp, dtype_error, formulas};
use crate::functions as f;
use crate::ir::Scalar;

// ---- two operands ----

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident($adjust:expr) = $node:expr;)*) => {
        impl Operand { $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the shapes do not broadcast or the dtypes do not fit.
            #[track_caller]
            pub fn $name(&self, other: impl Into<Operand>) -> Result<Tensor> {
                let _site = Site::caller().enter();
                let other = other.into();
                let pair = unify_as(stringify!($name), [self, &other], $adjust)?;
                combine(stringify!($name), pair, $node)
            }
        )* }

        impl Tensor { $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the shapes do not broadcast or the dtypes do not fit.
            #[track_caller]
            pub fn $name(&self, other: impl Into<Operand>) -> Result<Tensor> {
                Operand::from(self).$name(other)
            }
        )* }
    };
}

pub(super) use binary_methods;

pub(super) fn combine(
    op: &'static str,
    pair: Unified<2>,
    node: impl FnOnce(&'static str, &UOp, &UOp) -> Result<UOp>,
) -> Result<Tensor> {
    let Unified {
        nodes: [a, b],
        needs_grad,
    } = pair;
    Ok(Tensor::derived(node(op, &a, &b)?, needs_grad))
}

/// The dtype as it is.
pub(super) fn same(dtype: DType) -> DType {
    dtype
}

/// The dtype in which a function of real numbers is computed: integers and bools become f32.
pub(super) fn real(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

binary_methods! {
    /// a + b; integers wrap, bools are joined by "or".
    add(same) = |_, a, b| a.add(b);
    /// a - b; integers wrap.
    sub(same) = |op, a, b| { no_bool(op, a)?; a.sub(b) };
    /// a * b; integers wrap, bools are joined by "and".
    mul(same) = |_, a, b| a.mul(b);
    /// a / b, correctly rounded. Integers become f32 first.
    div(real) = |_, a, b| a.div(b);
    /// a / b rounded down. Integers: 0 where b is 0. Floats: infinite or NaN there, and NaN of infinities,
    /// as in NumPy; no gradient flows through it.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-7.5f32, 7.5]);
    /// assert_eq!(x.floordiv(2)?.to_vec::<f32>()?, [-4.0, 3.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    floordiv(same) = |_, a, b| match a.dtype().is_float() {
        true => f::floor_divide(a, b),
        false => a.floordiv(b),
    };
    /// What [`floordiv`](Tensor::floordiv) leaves: has the sign of b. Of floats it is exact, NaN where b is 0
    /// or a infinite; the gradient is 1 for a and -floor(a / b) for b.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([-7.5f32, 7.5]);
    /// assert_eq!(x.floormod(2)?.to_vec::<f32>()?, [0.5, 1.5]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    floormod(same) = |_, a, b| match a.dtype().is_float() {
        true => f::remainder(a, b),
        false => a.floormod(b),
    };
    /// What is left of a / b rounded towards zero: has the sign of a, as C's `fmod` and its `%`. Of floats it
    /// is exact, NaN where b is 0 or a infinite; of integers 0 where b is 0.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([-7.5f32, 7.5]), Tensor::from([2.0f32, -2.0]));
    /// assert_eq!(a.fmod(&b)?.to_vec::<f32>()?, [-1.5, 1.5]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    fmod(same) = |_, a, b| match a.dtype().is_float() {
        true => f::fmod(a, b),
        false => formulas::whole_fmod(a, b),
    };
    /// The larger of each pair; NaN if either is. A gradient is halved where they are equal.
    maximum(same) = |_, a, b| a.maximum(b);
    /// The smaller of each pair; NaN if either is. A gradient is halved where they are equal.
    minimum(same) = |_, a, b| formulas::minimum(a, b);
    /// a < b; false beside a NaN.
    lt(same) = |_, a, b| a.cmplt(b);
    /// a > b; false beside a NaN.
    gt(same) = |_, a, b| b.cmplt(a);
    /// a <= b; false beside a NaN, hence not the opposite of >.
    le(same) = |_, a, b| a.cmplt(b)?.or(&a.eq(b)?);
    /// a >= b; false beside a NaN.
    ge(same) = |_, a, b| b.cmplt(a)?.or(&a.eq(b)?);
    /// a == b; false beside a NaN.
    eq(same) = |_, a, b| a.eq(b);
    /// a != b; true beside a NaN.
    ne(same) = |_, a, b| a.cmpne(b);
    /// Bitwise "and" of integers, logical of bools.
    and(same) = |_, a, b| a.and(b);
    /// Bitwise "or" of integers, logical of bools.
    or(same) = |_, a, b| a.or(b);
    /// Bitwise exclusive "or" of integers, logical of bools.
    xor(same) = |_, a, b| a.xor(b);
}

/// Refuses bools where they have no sign.
pub(super) fn no_bool(op: &'static str, node: &UOp) -> Result<()> {
    if node.dtype() == DType::Bool {
        let message = "bool has no sign; use xor or ne, or cast to an integer".into();
        return Err(dtype_error(op, message));
    }
    Ok(())
}

impl Tensor {
    /// This bool tensor's choice: `a` where it is true, `b` where it is false.
    ///
    /// # Errors
    /// When this is no bool, or the three shapes do not broadcast.
    #[track_caller]
    pub fn where_(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if self.dtype() != DType::Bool {
            let message = format!(
                "the condition is {}, not bool; compare it with something",
                self.dtype()
            );
            return Err(dtype_error("where", message));
        }
        let (a, b) = (a.into(), b.into());
        let Unified {
            nodes: [a, b],
            needs_grad,
        } = unify("where", [&a, &b])?;
        let (condition, _) = self.read();
        let shape = super::operand::broadcast("where", condition.shape(), a.shape())?;
        let to_shape = |node: &UOp| super::operand::broadcast_to(node, &shape);
        let node = to_shape(&condition)?.where_(&to_shape(&a)?, &to_shape(&b)?)?;
        Ok(Tensor::derived(node, needs_grad))
    }
}

// ---- one operand ----

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $node:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        ///
        /// Integers and bools become f32 first.
        ///
        /// # Errors
        /// None for a well-formed tensor.
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            let _site = Site::caller().enter();
            self.map(|x| $node(&x.cast(real(x.dtype()))?))
        }
    )* } };
}

pub(super) use functions;

functions! {
    /// e to the power x.
    exp = UOp::exp;
    /// 2 to the power x.
    exp2 = UOp::exp2;
    /// Natural logarithm: -inf at 0, NaN below.
    log = formulas::log;
    /// Logarithm to base 2.
    log2 = UOp::log2;
    /// Square root, correctly rounded.
    sqrt = UOp::sqrt;
    /// Sine of an angle in radians, good for angles of any size.
    sin = UOp::sin;
    /// Cosine of an angle in radians, good for angles of any size.
    cos = UOp::cos;
    /// Hyperbolic tangent.
    tanh = formulas::tanh;
    /// 1 / (1 + exp(-x)).
    sigmoid = formulas::sigmoid;
    /// x * sigmoid(x), 0 at -inf.
    silu = formulas::silu;
    /// log(1 + exp(x)).
    softplus = formulas::softplus;
    /// x times the chance that a normal variable is below x, in the usual approximation by
    /// tanh: x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))); 0 at -inf.
    gelu = formulas::gelu;
    /// 1 / x, correctly rounded.
    reciprocal = UOp::recip;
}

macro_rules! plain_functions {
    ($($(#[$doc:meta])* $name:ident = $node:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        ///
        /// # Errors
        /// When the dtype does not fit.
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            let _site = Site::caller().enter();
            self.map($node)
        }
    )* } };
}

pub(super) use plain_functions;

plain_functions! {
    /// -x; integers wrap, bools are refused.
    neg = |x| { no_bool("neg", x)?; x.neg() };
    /// The absolute value, with derivative 0 at 0; the least integer is its own.
    abs = formulas::abs;
    /// x where it is positive, else 0; the derivative at 0 is 0.
    relu = |x| {
        let zero = UOp::full(Scalar::zero(x.dtype()), x.shape())?;
        zero.cmplt(x)?.where_(x, &zero)
    };
    /// x * x.
    square = |x| x.mul(x);
    /// "not" of bools; flips the bits of integers.
    not = formulas::not;
}

impl Tensor {
    /// The values in another dtype: floats to integers round towards zero and stop at the ends
    /// of the range, NaN becomes 0; integers wrap; anything but 0 is true.
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.map(|x| x.cast(dtype))
    }
}
