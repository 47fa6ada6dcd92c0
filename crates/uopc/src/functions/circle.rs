//! Tangent and the inverses of circular functions.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};

use super::coefficients::{ATAN_LONG, ATAN_SHORT};
use super::{Digits, Num};

/// What pi/4 lacks to the number; twice and four times that pi/2 and pi.
const FRAC_PI_4_REST: f64 = 3.061616997868383e-17;

/// sin(x) / cos(x).
pub(super) fn tan(x: &Num, _: Digits) -> Num {
    x.sin() / x.cos()
}

/// The angle whose tangent is min / max, for 0 <= min <= max, max > 0 and finite, as a number and
/// what it lacks: between 0 and pi/4.
///
/// Above tan(pi/8) it is pi/4 less the angle of (max - min) / (max + min).
fn angle(min: &Num, max: &Num, digits: Digits) -> (Num, Num) {
    let large = (max * 0.414_213_562_373_095).below(min);
    let top = large.select(min - max, min);
    let bottom = large.select(min + max, max);
    let t = top / bottom;
    let u = &t * &t;
    let rest = &t * &u * u.polynomial(digits.choose([ATAN_SHORT, ATAN_LONG]));
    // pi/4 + t is rounded, and what it loses is kept with what is small.
    let base = large.select(FRAC_PI_4, &t.number(0.0));
    let sum = &base + &t;
    let lost = large.select(&t - (&sum - &base), &t.number(0.0));
    let low = large.select(&rest + FRAC_PI_4_REST, &rest);
    (sum, lost + low)
}

/// A multiple of pi/4 less the angle, which lies below it.
fn turned(quarters: f64, (high, low): &(Num, Num)) -> Num {
    let base = high.number(quarters * FRAC_PI_4);
    let sum = &base - high;
    let lost = (&base - &sum) - high;
    sum + (lost + (low.number(quarters * FRAC_PI_4_REST) - low))
}

pub(super) fn atan(x: &Num, digits: Digits) -> Num {
    let m = x.magnitude();
    let beyond = m.above(1.0);
    // The tangent of the angle from the other axis; that of infinity is 0.
    let min = beyond.select(1.0, &m);
    let max = beyond.select(&m, &m.number(1.0));
    let infinite = m.equals(f64::INFINITY);
    let min = infinite.select(0.0, &min);
    let max = infinite.select(1.0, &max);
    let found = angle(&min, &max, digits);
    let y = beyond.select(turned(2.0, &found), &(&found.0 + &found.1));
    // A zero keeps its sign.
    x.is_negative().select(&-&y, &y)
}

pub(super) fn atan2(y: &Num, x: &Num, digits: Digits) -> Num {
    let (a, b) = (y.magnitude(), x.magnitude());
    // Both are infinite: only the signs matter. Neither overflows in a sum.
    let both = a.equals(f64::INFINITY).and(&b.equals(f64::INFINITY));
    let huge = a.above(1e300).or(&b.above(1e300));
    let scaled = |z: &Num| both.select(1.0, &huge.select(z * 0.25, z));
    let (a, b) = (scaled(&a), scaled(&b));
    let steep = b.below(&a);
    let min = steep.select(&b, &a);
    let max = steep.select(&a, &b);
    // Of (0, 0) the angle from the axis is 0, as of every infinite coordinate beside a finite one.
    let flat = max.equals(0.0).or(&max.equals(f64::INFINITY));
    let missing = a.is_nan().or(&b.is_nan());
    let min = flat.select(0.0, &min);
    let max = flat.select(1.0, &max);
    let found = angle(&min, &max, digits);
    let from_axis = steep.select(turned(2.0, &found), &(&found.0 + &found.1));
    // To the left of the axis the angle is pi less that, which is pi/2 more of the other part.
    let steep_left = {
        let base = found.0.number(FRAC_PI_2);
        let sum = &base + &found.0;
        let lost = &found.0 - (&sum - &base);
        sum + (lost + (&found.1 + 2.0 * found.1.number(FRAC_PI_4_REST)))
    };
    let left = steep.select(&steep_left, &turned(4.0, &found));
    let angle = x.is_negative().select(&left, &from_axis);
    let angle = y.is_negative().select(&-&angle, &angle);
    missing.select(f64::NAN, &angle)
}

/// The gradient of the angle: (x, -y) / (x^2 + y^2), with the coordinates scaled so that squares
/// stay in range; NaN at the origin, 0 where a coordinate is infinite.
pub(super) fn atan2_slope(y: &Num, x: &Num, k: usize) -> Num {
    let size = y.magnitude().max(&x.magnitude());
    let infinite = size.equals(f64::INFINITY);
    let scale = infinite.select(1.0, &size);
    let (u, v) = (y / &scale, x / &scale);
    let square = &u * &u + &v * &v;
    let top = if k == 0 { v } else { -u };
    infinite.select(0.0, &(top / square / scale))
}

/// The angle of the point (sqrt(1 - x^2), x).
pub(super) fn asin(x: &Num, digits: Digits) -> Num {
    atan2(x, &other_leg(x), digits)
}

pub(super) fn acos(x: &Num, digits: Digits) -> Num {
    atan2(&other_leg(x), x, digits)
}

/// sqrt(1 - x^2); both factors are exact where it is small.
fn other_leg(x: &Num) -> Num {
    ((1.0 - x) * (x + 1.0)).sqrt()
}
