//! Functions made of exponentials.

use super::coefficients::{EXPM1_LONG, EXPM1_SHORT, SINH_LONG, SINH_SHORT};
use super::{Digits, Num};

/// A polynomial up to 1/2, where the difference would cancel.
pub(super) fn expm1(x: &Num, digits: Digits) -> Num {
    let small = x.magnitude().below(0.5);
    let s = small.select(x, &x.number(0.0));
    let rest = (&s * &s) * s.polynomial(digits.choose([EXPM1_SHORT, EXPM1_LONG]));
    let y = small.select(&s + rest, &(x.exp() - 1.0));
    // A zero keeps its sign.
    x.equals(0.0).select(x, &y)
}

/// e^m / 2 and e^-m / 2 for m from 0 up. Beyond 700 e^m is a square, so that it ends where half of
/// it does.
fn halves(m: &Num) -> (Num, Num) {
    let far = m.above(700.0);
    let e = far.select(m * 0.5, m).exp();
    let half = &e * 0.5;
    let grown = far.select(&half * &e, &half);
    let shrunk = 0.25 / &grown;
    (grown, shrunk)
}

/// A polynomial up to 1, where the difference would cancel.
pub(super) fn sinh(x: &Num, digits: Digits) -> Num {
    let m = x.magnitude();
    let (grown, shrunk) = halves(&m);
    let large = grown - shrunk;
    let small = m.below(1.0);
    let s = small.select(&m, &m.number(0.0));
    let u = &s * &s;
    let rest = (&s * &u) * u.polynomial(digits.choose([SINH_SHORT, SINH_LONG]));
    let y = small.select(&s + rest, &large);
    x.is_negative().select(&-&y, &y)
}

pub(super) fn cosh(x: &Num, _: Digits) -> Num {
    let (grown, shrunk) = halves(&x.magnitude());
    grown + shrunk
}

/// The hyperbolic sine as a function with a derivative.
pub(super) fn sinh_of(x: &Num) -> Num {
    Num(super::sinh(&x.0).expect("an f64 is a float"))
}

/// The hyperbolic cosine as a function with a derivative.
pub(super) fn cosh_of(x: &Num) -> Num {
    Num(super::cosh(&x.0).expect("an f64 is a float"))
}
