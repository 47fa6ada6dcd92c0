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
    tan = f::tan;
    /// The angle between -pi/2 and pi/2 whose sine is x; NaN outside of -1..1.
    asin = f::asin;
    /// The angle between 0 and pi whose cosine is x; NaN outside of -1..1.
    acos = f::acos;
    /// The angle between -pi/2 and pi/2 whose tangent is x.
    atan = f::atan;
    /// Hyperbolic sine: (e^x - e^-x) / 2.
    sinh = f::sinh;
    /// Hyperbolic cosine: (e^x + e^-x) / 2.
    cosh = f::cosh;
    /// Inverse of the hyperbolic sine: log(x + sqrt(x^2 + 1)).
    asinh = f::asinh;
    /// Inverse of the hyperbolic cosine, from 0 up; NaN below 1.
    acosh = f::acosh;
    /// Inverse of the hyperbolic tangent; infinite at -1 and 1, NaN outside.
    atanh = f::atanh;
    /// e^x - 1, accurate where that is small.
    expm1 = f::expm1;
    /// log(1 + x), accurate where x is small; -inf at -1, NaN below.
    log1p = f::log1p;
    /// Logarithm to base 10, exact at powers of ten: -inf at 0, NaN below.
    log10 = f::log10;
    /// The error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.
    erf = f::erf;
    /// 1 - erf(x), accurate where that is small.
    erfc = f::erfc;
    /// 1 / sqrt(x): infinite at 0, NaN below.
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
    atan2(real) = |_, y, x| f::atan2(y, x);
    /// sqrt(a^2 + b^2) without overflow on the way: infinite if either is, even beside a NaN. The
    /// gradient at the origin is 0. Integers become f32 first.
    hypot(real) = |_, a, b| f::hypot(a, b);
    /// log(e^a + e^b) without overflow on the way. Integers become f32 first.
    logaddexp(real) = |_, a, b| f::logaddexp(a, b);
}
