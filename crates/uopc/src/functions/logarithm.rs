//! Functions made of logarithms.

use std::f64::consts::{LN_2, LOG2_E};

use super::coefficients::LOG_LONG;
use super::num::parts;
use super::{Digits, Num};

/// What the constants lack to the numbers.
const LN_2_REST: f64 = 2.319_046_813_846_3e-17;
const LOG2_E_REST: f64 = 2.035_527_374_093_103_3e-17;
/// log10(2), and what it lacks.
const LG_2: [f64; 2] = [std::f64::consts::LOG10_2, -2.803_728_127_785_171e-18];

/// log(x) of a positive number, infinity or NaN.
fn ln(x: &Num) -> Num {
    let l = x.log2();
    l.fma(&l.number(LN_2), &(&l * LN_2_REST))
}

/// log2 of a positive normal number as a number and what it lacks, together good to 2^-63 of it.
///
/// With x = 2^e m, s = (m - 1) / (m + 1): log(m) = 2s + 2/3 s^3 + ..., of which the first two terms
/// are computed in two parts.
pub(super) fn log2_parts(x: &Num) -> (Num, Num) {
    let (m, e) = parts(x);
    let top = &m - 1.0;
    let bottom = &m + 1.0;
    let bottom_lost = &m - (&bottom - 1.0);
    let s = &top / &bottom;
    let s_lost = ((-&s).fma(&bottom, &top) - &s * bottom_lost) / &bottom;
    let square = &s * &s;
    let square_lost = s.product_rest(&s, &square) + &s * &s_lost * 2.0;
    let cube = &s * &square;
    let cube_lost = s.product_rest(&square, &cube) + &s * square_lost + s_lost.clone() * &square;
    const TWO_THIRDS: [f64; 2] = [2.0 / 3.0, 3.700_743_415_417_188e-17];
    let third = cube.number(TWO_THIRDS[0]);
    let term = &cube * &third;
    let term_lost =
        cube.product_rest(&third, &term) + &cube * TWO_THIRDS[1] + cube_lost * TWO_THIRDS[0];
    let tail = &cube * &square * square.polynomial(LOG_LONG);
    let double = &s * 2.0;
    let high = &double + &term;
    let low = ((double - &high) + term) + (s_lost * 2.0 + (term_lost + tail));
    // Times 1 / ln 2, plus the exponent, which is 0 or larger.
    let c = high.number(LOG2_E);
    let scaled = &high * &c;
    let scaled_lost = high.product_rest(&c, &scaled) + &high * LOG2_E_REST + low * LOG2_E;
    let sum = &e + &scaled;
    let lost = (e - &sum) + scaled;
    let rest = lost + scaled_lost;
    let all = &sum + &rest;
    let left = (sum - &all) + rest;
    (all, left)
}

/// Whether [`log2_parts`] takes it, and 1 where not.
pub(super) fn normal(x: &Num) -> (super::num::Test, Num) {
    let large = x.below(f64::MIN_POSITIVE).not();
    let fine = large.and(&x.below(f64::INFINITY));
    let safe = fine.select(x, &x.number(1.0));
    (fine, safe)
}

/// log2(x) times log10(2); exact at powers of ten.
pub(super) fn log10(x: &Num, digits: Digits) -> Num {
    let l = x.log2();
    let plain = &l * LG_2[0];
    if digits == Digits::Short {
        return plain;
    }
    // For subnormal numbers the plain product does, which errs by about a unit in the last place.
    let (fine, safe) = normal(x);
    let (high, low) = log2_parts(&safe);
    let c = high.number(LG_2[0]);
    let product = &high * &c;
    let lost = high.product_rest(&c, &product) + &high * LG_2[1] + low * LG_2[0];
    fine.select(product + lost, &plain)
}

/// log(u) + (what u lacks to 1 + x) / u, where u is 1 + x rounded.
pub(super) fn log1p(x: &Num, _: Digits) -> Num {
    let u = x + 1.0;
    // Which of the two is larger decides how the sum's error is found.
    let large = x.above(1.0);
    let lost = large.select(1.0 - (&u - x), &(x - (&u - 1.0)));
    let fine = u.above(0.0).and(&u.below(f64::INFINITY));
    let safe = fine.select(&u, &u.number(1.0));
    let more = fine.select(lost, &u.number(0.0)) / safe;
    let y = ln(&u) + more;
    // 1 + x is 1 for what is small: the sign of a zero is that of x.
    x.equals(0.0).select(x, &y)
}

/// log(x) + log 2 beyond this, where squares leave the range and 1 beside them does not matter.
const FAR: f64 = 1e150;

/// log1p(m + m^2 / (1 + sqrt(1 + m^2))), with the sign of x.
pub(super) fn asinh(x: &Num, digits: Digits) -> Num {
    let m = x.magnitude();
    let far = m.above(FAR);
    let n = far.select(1.0, &m);
    let square = &n * &n;
    let grown = &square / ((&square + 1.0).sqrt() + 1.0);
    let near = log1p(&(n + grown), digits);
    let y = far.select(ln(&m) + LN_2, &near);
    x.is_negative().select(&-&y, &y)
}

/// 1 / sqrt(x^2 + 1).
pub(super) fn asinh_slope(x: &Num) -> Num {
    let m = x.magnitude();
    let far = m.above(FAR);
    let n = far.select(1.0, &m);
    far.select(1.0 / &m, &(1.0 / (&n * &n + 1.0).sqrt()))
}

/// log1p(t + sqrt(2t + t^2)) for t = x - 1.
pub(super) fn acosh(x: &Num, digits: Digits) -> Num {
    let far = x.above(FAR);
    let t = far.select(2.0, x) - 1.0;
    let near = log1p(&(&t + (&t * 2.0 + &t * &t).sqrt()), digits);
    let y = far.select(ln(&far.select(x, &x.number(2.0))) + LN_2, &near);
    x.below(1.0).select(f64::NAN, &y)
}

/// 1 / sqrt(x^2 - 1).
pub(super) fn acosh_slope(x: &Num) -> Num {
    1.0 / ((x - 1.0).sqrt() * (x + 1.0).sqrt())
}

/// log1p(2m / (1 - m)) / 2, with the sign of x.
pub(super) fn atanh(x: &Num, digits: Digits) -> Num {
    let m = x.magnitude();
    let y = log1p(&(&m * 2.0 / (1.0 - &m)), digits) * 0.5;
    let y = m.equals(1.0).select(f64::INFINITY, &y);
    let y = m.above(1.0).select(f64::NAN, &y);
    x.is_negative().select(&-&y, &y)
}

/// The larger one and log1p(e^-distance).
pub(super) fn logaddexp(a: &Num, b: &Num, digits: Digits) -> Num {
    let greater = a.max(b);
    let same = a.equals(b);
    let distance = same.select(0.0, &(a - b)).magnitude();
    greater + log1p(&(-distance).exp(), digits)
}

/// e^a / (e^a + e^b), and likewise for b: a half where they are one infinity.
pub(super) fn logaddexp_slope(a: &Num, b: &Num, k: usize) -> Num {
    let ahead = if k == 0 { a - b } else { b - a };
    let infinite = a.equals(b).and(&a.magnitude().equals(f64::INFINITY));
    let ahead = infinite.select(0.0, &ahead);
    let z = (-ahead.magnitude()).exp();
    ahead.is_negative().select(&z, &z.number(1.0)) / (z + 1.0)
}
