//! Powers of numbers by numbers, and what is made of squares.

use std::f64::consts::LN_2;

use super::logarithm::{log2_parts, normal};
use super::{Digits, Num, in_f64, node};
use crate::error::Result;
use crate::ir::uop::UOp;

/// x to the power y, with C's results for special numbers.
///
/// # Errors
/// When the arguments are no floats of one dtype and shape.
pub fn pow(x: &UOp, y: &UOp) -> Result<UOp> {
    let body = in_f64([x, y], |[x, y], digits| value(&x, &y, digits))?;
    node("pow", body, &[x, y])
}

/// The same of f64 whose result is rounded to a narrower float: good to 2^-40 of it.
///
/// # Errors
/// When the arguments are no f64 of one shape.
pub fn pow_short(x: &UOp, y: &UOp) -> Result<UOp> {
    let body = in_f64([x, y], |[x, y], _| value(&x, &y, Digits::Short))?;
    node("pow_short", body, &[x, y])
}

/// 2^(y log2 |x|), with its sign.
fn value(x: &Num, y: &Num, digits: Digits) -> Num {
    let size = x.magnitude();
    let power = match digits {
        Digits::Short => {
            let exponent = y * size.log2();
            size.equals(1.0).select(0.0, &exponent).exp2()
        }
        Digits::Long => power_in_parts(&size, y),
    };
    let whole = y.trunc().equals(y);
    let half = y * 0.5;
    let odd = whole.and(&half.trunc().equals(&half).not());
    let signed = x.is_negative().and(&odd).select(&-&power, &power);
    let fraction_of_negative = x
        .below(0.0)
        .and(&x.above(f64::NEG_INFINITY))
        .and(&whole.not());
    let signed = fraction_of_negative.select(f64::NAN, &signed);
    // A NaN on the other side does not matter here, but for (-1)^NaN, which is no whole power.
    x.equals(1.0).or(&y.equals(0.0)).select(1.0, &signed)
}

/// The same for f64, whose logarithm must be better than an f64: an error in it counts y times.
fn power_in_parts(size: &Num, y: &Num) -> Num {
    // Subnormal numbers are scaled, and the exponent put back.
    let tiny = size.below(2.3e-308).and(&size.above(0.0));
    let scaled = tiny.select(size * 2f64.powi(54), size);
    let (fine, safe) = normal(&scaled);
    let (high, low) = log2_parts(&safe);
    let with_exponent = &high - 54.0;
    let low = tiny.select(&low + ((&high - &with_exponent) - 54.0), &low);
    let high = tiny.select(&with_exponent, &high);
    let high = fine.select(&high, &size.log2());
    let exponent = size.equals(1.0).select(0.0, &(y * &high));
    let rest = y.product_rest(&high, &exponent) + y * low;
    // Where the exponent is far out of range or y infinite beside 1, the rest may be anything.
    let counts = fine
        .and(&size.equals(1.0).not())
        .and(&exponent.below(2000.0))
        .and(&exponent.above(-2000.0));
    let rest = counts.select(rest, &exponent.number(0.0));
    let power = exponent.exp2();
    let correction = power
        .below(f64::INFINITY)
        .select(&power, &power.number(0.0));
    &power + correction * (rest * LN_2)
}

/// By the base y x^(y-1), by the exponent x^y log x.
///
/// The first is 0 where y is, although x^(y-1) is infinite at x = 0. The second is 0 at x = 0 for
/// y from 0 up, although the logarithm is infinite; for negative x it is NaN, as the power is
/// defined for single exponents only.
pub(super) fn slope(
    power: fn(&UOp, &UOp) -> Result<UOp>,
    x: &[UOp],
    value: &UOp,
    k: usize,
) -> Result<UOp> {
    let [x, y] = x else {
        unreachable!("a power has two arguments");
    };
    let zero = y.full_like(0.0)?;
    if k == 0 {
        let less = y.sub(&y.full_like(1.0)?)?;
        let slope = y.mul(&power(x, &less)?)?;
        return y.eq(&zero)?.where_(&zero, &slope);
    }
    let flat = x.eq(&zero)?.and(&y.cmplt(&zero)?.logical_not()?)?;
    let slope = in_f64([value, x], |[value, x], _| value * x.log2() * LN_2)?;
    flat.where_(&zero, &slope)
}

/// The larger leg times sqrt(1 + (smaller / larger)^2). In f64, squares of narrower floats are
/// exact and in range.
pub(super) fn hypot(a: &Num, b: &Num, digits: Digits) -> Num {
    let (m, n) = (a.magnitude(), b.magnitude());
    let infinite = m.equals(f64::INFINITY).or(&n.equals(f64::INFINITY));
    let y = match digits {
        Digits::Short => m.fma(&m, &(&n * &n)).sqrt(),
        Digits::Long => {
            let large = m.max(&n);
            let small = m.min(&n);
            // Powers of two bring squares into range and are exact.
            let up = large.below(1e-140);
            let down = large.above(1e140);
            let scale = down.select(
                2f64.powi(-600),
                &up.select(2f64.powi(600), &large.number(1.0)),
            );
            let back = down.select(
                2f64.powi(600),
                &up.select(2f64.powi(-600), &large.number(1.0)),
            );
            let (large, small) = (large * &scale, small * &scale);
            large.fma(&large, &(&small * &small)).sqrt() * back
        }
    };
    infinite.select(f64::INFINITY, &y)
}

/// The leg's share a / h; 0 at the origin.
pub(super) fn hypot_slope(x: &[UOp], value: &UOp, k: usize) -> Result<UOp> {
    let zero = value.full_like(0.0)?;
    let share = x[k].div(value)?;
    value.eq(&zero)?.where_(&zero, &share)
}
