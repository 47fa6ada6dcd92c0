//! The error function.

use super::coefficients::{ERF_LONG, ERF_SHORT, ERFC_LONG, ERFC_SHORT};
use super::{Digits, Num};

/// exp(-x^2): the square in two parts, so that large ones lose no digits.
pub(super) fn bell(x: &Num) -> Num {
    // Beyond this it is 0, and no infinity meets a zero.
    let limit = x.number(40.0);
    let x = x.min(&limit).max(&-limit);
    let square = &x * &x;
    let lost = x.product_rest(&x, &square);
    let e = (-square).exp();
    &e - &e * lost
}

/// erf(m) for m up to 1, and erfc(m) for every m, from 0 up.
fn halves(m: &Num, digits: Digits) -> (Num, Num) {
    let small = m.below(1.0);
    let s = small.select(m, &m.number(0.0));
    let inner = &s * (&s * &s).polynomial(digits.choose([ERF_SHORT, ERF_LONG]));
    let a = m.min(&m.number(40.0));
    let q = (&a - 4.0) / (&a + 4.0);
    let scaled = q.polynomial(digits.choose([ERFC_SHORT, ERFC_LONG])) / (&a * 2.0 + 1.0);
    (inner, bell(&a) * scaled)
}

/// A polynomial up to 1, then 1 - erfc.
pub(super) fn erf(x: &Num, digits: Digits) -> Num {
    let m = x.magnitude();
    let (inner, tail) = halves(&m, digits);
    let y = m.below(1.0).select(inner, &(1.0 - tail));
    x.is_negative().select(&-&y, &y)
}

/// 1 - erf where that keeps its digits.
pub(super) fn erfc(x: &Num, digits: Digits) -> Num {
    let m = x.magnitude();
    let (inner, tail) = halves(&m, digits);
    let negative = x.is_negative();
    let near = 1.0 - negative.select(&-&inner, &inner);
    let far = negative.select(2.0 - &tail, &tail);
    m.below(0.5).select(near, &far)
}
