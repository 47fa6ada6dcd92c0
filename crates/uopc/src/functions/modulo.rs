//! Remainders of floats, exact as C's and Python's are.

use super::num::Test;
use super::{Digits, Num};
use crate::ir::DType;
use crate::ir::uop::UOp;

/// How many steps of 52 binary digits take the quotient of any two numbers of a dtype apart. In f64
/// the remainder is exact where the quotient is below 2^312.
fn steps(dtype: DType) -> i32 {
    if dtype == DType::F16 { 1 } else { 6 }
}

/// a - trunc(a / b) * b; has the sign of a.
///
/// Long division: each step takes the multiple of b * 2^(52 j) away that is in the rest. A quotient
/// that was rounded up makes the rest negative, and b is added back; every rest is exact.
pub(super) fn fmod(dtype: DType) -> impl Fn(&Num, &Num, Digits) -> Num {
    move |a, b, _| {
        let (m, n) = (a.magnitude(), b.magnitude());
        let mut rest = m;
        for j in (0..steps(dtype)).rev() {
            let divisor = &n * 2f64.powi(52 * j);
            let quotient = (&rest / &divisor).trunc();
            let less = (-quotient).fma(&divisor, &rest);
            let less = less.below(0.0).select(&less + &divisor, &less);
            let fits = rest.below(&divisor);
            rest = fits.select(&rest, &less);
        }
        let rest = b.is_nan().select(f64::NAN, &rest);
        a.is_negative().select(&-&rest, &rest)
    }
}

/// Whether a remainder with the sign of a must become one with the sign of b.
fn differs(rest: &Num, b: &Num) -> Test {
    let signs = rest.is_negative().differs(&b.is_negative());
    rest.equals(0.0).not().and(&signs)
}

/// a - floor(a / b) * b; has the sign of b.
pub(super) fn remainder(dtype: DType) -> impl Fn(&Num, &Num, Digits) -> Num {
    move |a, b, digits| {
        let rest = fmod(dtype)(a, b, digits);
        let other = differs(&rest, b).select(&rest + b, &rest);
        let zero = b.is_negative().select(-0.0, &b.number(0.0));
        rest.equals(0.0).select(&zero, &other)
    }
}

/// floor(a / b) of the exact quotient, as NumPy finds it: what the remainder leaves of a is divided, and
/// the quotient, which is whole but for rounding, is rounded.
pub(super) fn floor_divide(dtype: DType) -> impl Fn(&Num, &Num, Digits) -> Num {
    move |a, b, digits| {
        let rest = fmod(dtype)(a, b, digits);
        let quotient = (a - &rest) / b;
        let quotient = differs(&rest, b).select(&quotient - 1.0, &quotient);
        let plain = a / b;
        let down = floor(&quotient);
        let nearest = (&quotient - &down).above(0.5).select(&down + 1.0, &down);
        let zero = plain.is_negative().select(-0.0, &plain.number(0.0));
        let found = quotient.equals(0.0).select(&zero, &nearest);
        b.equals(0.0).select(plain.trunc(), &found)
    }
}

/// Rounded down.
pub(super) fn floor(x: &Num) -> Num {
    let t = x.trunc();
    x.below(&t).select(&t - 1.0, &t)
}

/// By a 1, by b minus the whole quotient that was taken away.
pub(super) fn slope(x: &[UOp], value: &UOp, k: usize) -> crate::error::Result<UOp> {
    super::in_f64([&x[0], &x[1], value], |[a, b, rest], _| {
        if k == 0 {
            return b.number(1.0);
        }
        let quotient = (a - rest) / b;
        let half = quotient.is_negative().select(-0.5, &quotient.number(0.5));
        -(quotient + half).trunc()
    })
}
