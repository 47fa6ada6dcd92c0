//! Functions of numbers that are no ops: formulas made of ops, each with a derivative of its own.
//!
//! A function is a CUSTOM node. Its body, the value, is computed in f64 where the argument is
//! narrower and rounded once; of f64 it is a formula that loses few digits (`docs/accuracy.md`).
//! Its derivative is not that of the body, in which errors of polynomials would grow, but the
//! formula that a textbook gives, from the table at the end of this file. Text names the function,
//! and what is read back can be differentiated, as the table is found by that name.
//!
//! Derivatives are made of functions again, so those of any order exist. All take and return
//! nodes; arguments are floats of one dtype and shape.

mod circle;
mod coefficients;
mod exponential;
mod logarithm;
mod modulo;
mod num;
mod power;
mod probability;
mod whole;

use std::f64::consts::{FRAC_2_SQRT_PI, LN_10};
use std::sync::Arc;

use crate::error::Result;
use crate::ir::DType;
use crate::ir::custom::Custom;
use crate::ir::op::Op;
use crate::ir::uop::{Sources, UOp};

pub(crate) use num::Num;
pub use power::{pow, pow_short};
pub use whole::whole_pow;

/// A function that [`known`] finds.
pub struct Known {
    /// What text calls it.
    pub name: &'static str,
    /// How many arguments it takes.
    arguments: usize,
    /// The derivative by argument k, from the arguments and the value.
    slope: fn(&[UOp], &UOp, usize) -> Result<UOp>,
}

impl Known {
    /// The derivative of the value `y` by argument k.
    ///
    /// # Errors
    /// Never for arguments that the function takes.
    pub fn slope(&self, x: &[UOp], y: &UOp, k: usize) -> Result<UOp> {
        (self.slope)(x, y, k)
    }
}

/// The function that a CUSTOM node names which has no rules of its own, if there is one and the
/// node's sources are what it takes: the value, and arguments of the value's dtype and shape.
pub fn known(u: &UOp) -> Option<&'static Known> {
    let Op::Custom(custom) = u.op() else {
        return None;
    };
    let name = custom.name.strip_prefix(PREFIX)?;
    let alike = |x: &UOp| x.dtype() == u.dtype() && x.shape() == u.shape();
    if custom.rules.is_some() || !u.dtype().is_float() || !u.src().iter().all(alike) {
        return None;
    }
    let arguments = u.src().len() - 1;
    let mut all = KNOWN.iter().copied();
    all.find(|known| known.name == name && known.arguments == arguments)
}

/// Tells these functions from those that users name.
const PREFIX: &str = "uopc.";

/// The node of a function: its value, and its arguments for the derivative.
fn node(name: &str, body: UOp, arguments: &[&UOp]) -> Result<UOp> {
    let mut src: Sources = Sources::new();
    src.push(body);
    src.extend(arguments.iter().map(|&x| x.clone()));
    let name = format!("{PREFIX}{name}").into();
    UOp::new(Op::Custom(Arc::new(Custom { name, rules: None })), src)
}

/// Whether a formula must be good for f64, or for what is rounded to less.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Digits {
    /// For results that are rounded to f32 or narrower.
    Short,
    /// For f64.
    Long,
}

impl Digits {
    fn of(x: &UOp) -> Digits {
        match x.dtype() {
            DType::F64 => Digits::Long,
            _ => Digits::Short,
        }
    }

    /// One of two polynomials.
    fn choose(self, [short, long]: [&'static [f64]; 2]) -> &'static [f64] {
        match self {
            Digits::Short => short,
            Digits::Long => long,
        }
    }
}

/// Carries a formula out in f64 and rounds its result to the dtype of the arguments.
pub(crate) fn in_f64<const N: usize>(
    x: [&UOp; N],
    formula: impl FnOnce([Num; N], Digits) -> Num,
) -> Result<UOp> {
    let (dtype, digits) = (x[0].dtype(), Digits::of(x[0]));
    let mut wide = Vec::with_capacity(N);
    for x in x {
        wide.push(Num(x.cast(DType::F64)?));
    }
    let mut wide = wide.into_iter();
    let wide = std::array::from_fn(|_| wide.next().expect("as many as arguments"));
    formula(wide, digits).0.cast(dtype)
}

macro_rules! functions_of_one {
    ($($(#[$doc:meta])* $name:ident = $value:expr, |$x:ident, $y:ident| $slope:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the argument is no float.
            pub fn $name(x: &UOp) -> Result<UOp> {
                node(stringify!($name), in_f64([x], |[x], digits| $value(&x, digits))?, &[x])
            }
        )*

        /// The functions of one argument.
        const ONE: &[Known] = &[$(Known {
            name: stringify!($name),
            arguments: 1,
            slope: |x, y, _| in_f64([&x[0], y], |[$x, $y], _| $slope),
        },)*];
    };
}

functions_of_one! {
    /// Tangent of an angle of any size.
    tan = circle::tan, |_x, y| &y * &y + 1.0;
    /// Arc sine; NaN outside of -1..1.
    asin = circle::asin, |x, _y| 1.0 / ((1.0 - &x) * (&x + 1.0)).sqrt();
    /// Arc cosine; NaN outside of -1..1.
    acos = circle::acos, |x, _y| -1.0 / ((1.0 - &x) * (&x + 1.0)).sqrt();
    /// Arc tangent.
    atan = circle::atan, |x, _y| 1.0 / (&x * &x + 1.0);
    /// Hyperbolic sine.
    sinh = exponential::sinh, |x, _y| exponential::cosh_of(&x);
    /// Hyperbolic cosine.
    cosh = exponential::cosh, |x, _y| exponential::sinh_of(&x);
    /// e^x - 1, accurate near 0.
    expm1 = exponential::expm1, |x, _y| x.exp();
    /// log(1 + x), accurate near 0; -inf at -1, NaN below.
    log1p = logarithm::log1p, |x, _y| 1.0 / (x + 1.0);
    /// Logarithm to base 10, exact at powers of ten; -inf at 0, NaN below.
    log10 = logarithm::log10, |x, _y| 1.0 / (x * LN_10);
    /// Inverse of the hyperbolic sine.
    asinh = logarithm::asinh, |x, _y| logarithm::asinh_slope(&x);
    /// Inverse of the hyperbolic cosine; NaN below 1.
    acosh = logarithm::acosh, |x, _y| logarithm::acosh_slope(&x);
    /// Inverse of the hyperbolic tangent; infinite at -1 and 1, NaN outside.
    atanh = logarithm::atanh, |x, _y| 1.0 / ((1.0 - &x) * (&x + 1.0));
    /// 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.
    erf = probability::erf, |x, _y| probability::bell(&x) * FRAC_2_SQRT_PI;
    /// 1 - erf(x), accurate where that is small.
    erfc = probability::erfc, |x, _y| probability::bell(&x) * -FRAC_2_SQRT_PI;
}

/// The functions of two arguments.
const TWO: &[Known] = &[
    Known {
        name: "pow",
        arguments: 2,
        slope: |x, y, k| power::slope(pow, x, y, k),
    },
    Known {
        name: "pow_short",
        arguments: 2,
        slope: |x, y, k| power::slope(pow_short, x, y, k),
    },
    Known {
        name: "atan2",
        arguments: 2,
        slope: |x, _, k| in_f64([&x[0], &x[1]], |[y, x], _| circle::atan2_slope(&y, &x, k)),
    },
    Known {
        name: "fmod",
        arguments: 2,
        slope: modulo::slope,
    },
    Known {
        name: "remainder",
        arguments: 2,
        slope: modulo::slope,
    },
    Known {
        name: "hypot",
        arguments: 2,
        slope: power::hypot_slope,
    },
    Known {
        name: "logaddexp",
        arguments: 2,
        slope: |x, _, k| {
            in_f64([&x[0], &x[1]], |[a, b], _| {
                logarithm::logaddexp_slope(&a, &b, k)
            })
        },
    },
];

/// All functions, by name.
static KNOWN: [&Known; ONE.len() + TWO.len()] = {
    let mut all = [&ONE[0]; ONE.len() + TWO.len()];
    let mut k = 0;
    while k < all.len() {
        all[k] = if k < ONE.len() {
            &ONE[k]
        } else {
            &TWO[k - ONE.len()]
        };
        k += 1;
    }
    all
};

/// The angle of the point (x, y), between -pi and pi.
///
/// # Errors
/// When the arguments are no floats of one dtype and shape.
pub fn atan2(y: &UOp, x: &UOp) -> Result<UOp> {
    let body = in_f64([y, x], |[y, x], digits| circle::atan2(&y, &x, digits))?;
    node("atan2", body, &[y, x])
}

/// sqrt(a^2 + b^2), which does not overflow on the way; infinite if either is, even beside a NaN.
///
/// # Errors
/// When the arguments are no floats of one dtype and shape.
pub fn hypot(a: &UOp, b: &UOp) -> Result<UOp> {
    let body = in_f64([a, b], |[a, b], digits| power::hypot(&a, &b, digits))?;
    node("hypot", body, &[a, b])
}

/// log(e^a + e^b).
///
/// # Errors
/// When the arguments are no floats of one dtype and shape.
pub fn logaddexp(a: &UOp, b: &UOp) -> Result<UOp> {
    let body = in_f64([a, b], |[a, b], digits| {
        logarithm::logaddexp(&a, &b, digits)
    })?;
    node("logaddexp", body, &[a, b])
}

/// a - trunc(a / b) * b, exact where the quotient is below 2^312; has the sign of a.
///
/// # Errors
/// When the arguments are no floats of one dtype and shape.
pub fn fmod(a: &UOp, b: &UOp) -> Result<UOp> {
    let value = modulo::fmod(a.dtype());
    let body = in_f64([a, b], |[a, b], digits| value(&a, &b, digits))?;
    node("fmod", body, &[a, b])
}

/// What [`fmod`] leaves, plus b where the signs differ: has the sign of b.
///
/// # Errors
/// When the arguments are no floats of one dtype and shape.
pub fn remainder(a: &UOp, b: &UOp) -> Result<UOp> {
    let value = modulo::remainder(a.dtype());
    let body = in_f64([a, b], |[a, b], digits| value(&a, &b, digits))?;
    node("remainder", body, &[a, b])
}

/// a / b rounded down, of floats.
///
/// # Errors
/// When the arguments are no floats of one dtype and shape.
pub fn floor_divide(a: &UOp, b: &UOp) -> Result<UOp> {
    let value = modulo::floor_divide(a.dtype());
    in_f64([a, b], |[a, b], digits| value(&a, &b, digits))
}
