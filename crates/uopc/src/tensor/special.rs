//! Functions of real numbers beyond the language's own: circular and hyperbolic ones with their
//! inverses, logarithms and exponentials near 0, the error function, angles and lengths.
//!
//! Their accuracy is measured in `docs/accuracy.md`, their derivatives are those of a textbook.

use super::elementwise::{binary_methods, combine, functions, real};
use super::operand::unify_as;
use super::{Operand, Result, Site, Tensor, UOp};
use crate::functions as f;

functions! {
    /// Tangent of an angle in radians, good for angles of any size.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.tan()?.to_vec::<f32>()?, [0.0, 1.5574077]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    tan = f::tan;
    /// The angle between -pi/2 and pi/2 whose sine is x; NaN outside of -1..1.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.asin()?.to_vec::<f32>()?, [0.0, 1.5707964]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    asin = f::asin;
    /// The angle between 0 and pi whose cosine is x; NaN outside of -1..1.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, 0.0]);
    /// assert_eq!(x.acos()?.to_vec::<f32>()?, [0.0, 1.5707964]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    acos = f::acos;
    /// The angle between -pi/2 and pi/2 whose tangent is x.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.atan()?.to_vec::<f32>()?, [0.0, 0.7853982]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    atan = f::atan;
    /// Hyperbolic sine: (e^x - e^-x) / 2.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.sinh()?.to_vec::<f32>()?, [0.0, 1.1752012]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    sinh = f::sinh;
    /// Hyperbolic cosine: (e^x + e^-x) / 2.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.cosh()?.to_vec::<f32>()?, [1.0, 1.5430807]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    cosh = f::cosh;
    /// Inverse of the hyperbolic sine: log(x + sqrt(x^2 + 1)).
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.asinh()?.to_vec::<f32>()?, [0.0, 0.8813736]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    asinh = f::asinh;
    /// Inverse of the hyperbolic cosine, from 0 up; NaN below 1.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// assert_eq!(x.acosh()?.to_vec::<f32>()?, [0.0, 1.316958]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    acosh = f::acosh;
    /// Inverse of the hyperbolic tangent; infinite at -1 and 1, NaN outside.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 0.5]);
    /// assert_eq!(x.atanh()?.to_vec::<f32>()?, [0.0, 0.54930615]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    atanh = f::atanh;
    /// e^x - 1, accurate where that is small.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.expm1()?.to_vec::<f32>()?, [0.0, 1.7182819]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    expm1 = f::expm1;
    /// log(1 + x), accurate where x is small; -inf at -1, NaN below.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.log1p()?.to_vec::<f32>()?, [0.0, 0.6931472]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    log1p = f::log1p;
    /// Logarithm to base 10, exact at powers of ten: -inf at 0, NaN below.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, 1000.0]);
    /// assert_eq!(x.log10()?.to_vec::<f32>()?, [0.0, 3.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    log10 = f::log10;
    /// The error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.erf()?.to_vec::<f32>()?, [0.0, 0.8427008]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    erf = f::erf;
    /// 1 - erf(x), accurate where that is small.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([0.0f32, 1.0]);
    /// assert_eq!(x.erfc()?.to_vec::<f32>()?, [1.0, 0.1572992]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    erfc = f::erfc;
    /// 1 / sqrt(x): infinite at 0, NaN below.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([4.0f32, 16.0]);
    /// assert_eq!(x.rsqrt()?.to_vec::<f32>()?, [0.5, 0.25]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    rsqrt = |x: &UOp| {
        let wide = x.cast(x.dtype().accumulator())?;
        wide.full_like(1.0)?.div(&wide.sqrt()?)?.cast(x.dtype())
    };
}

binary_methods! {
    /// The angle of the point (other, self), counted from the axis of `other` between -pi and pi.
    ///
    /// Zeros with a sign count as points on that side of an axis, as in C. The gradient at the
    /// origin is NaN. Integers become f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([1.0f32, 0.0]), Tensor::from([1.0f32, -1.0]));
    /// assert_eq!(a.atan2(&b)?.to_vec::<f32>()?, [0.7853982, 3.1415927]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    atan2(real) = |_, y, x| f::atan2(y, x);
    /// sqrt(a^2 + b^2) without overflow on the way: infinite if either is, even beside a NaN. The
    /// gradient at the origin is 0. Integers become f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([3.0f32, 1e30]), Tensor::from([4.0f32, 0.0]));
    /// assert_eq!(a.hypot(&b)?.to_vec::<f32>()?, [5.0, 1e30]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    hypot(real) = |_, a, b| f::hypot(a, b);
    /// log(e^a + e^b) without overflow on the way. Integers become f32 first.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([0.0f32, 1000.0]), Tensor::from([0.0f32, 0.0]));
    /// assert_eq!(a.logaddexp(&b)?.to_vec::<f32>()?, [0.6931472, 1000.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    logaddexp(real) = |_, a, b| f::logaddexp(a, b);
}
