//! EXP, EXP2, LOG2 and SIN as sequences of IEEE operations, each written once.
//!
//! The functions are generic over [`Real`], a value on which such a sequence can be carried out.
//! Its implementers are f32 and f64 themselves, which compute (constant folder, interpreters), and
//! the recorder of `backend/c/record.rs`, which writes the same sequence down as a C function.
//! So Rust and C agree to the last bit by construction, on any machine with IEEE arithmetic and a
//! fused multiply-add; a library's `exp` gives no such promise.
//!
//! | function | largest error seen, f32 | f64 | exact |
//! |---|---|---|---|
//! | [`exp`] | 0.69 ulp | 0.59 ulp | exp(0) |
//! | [`exp2`] | 0.68 ulp | 0.51 ulp | integers |
//! | [`log2`] | 0.71 ulp | 0.54 ulp | powers of two |
//! | [sine](sin), at every quarter turn | 0.72 ulp | 0.55 ulp | 0 |
//!
//! That holds for arguments of any size, subnormal ones included; a subnormal result of exp or exp2
//! is rounded twice and within 0.8 ulp. All but a sine of 2^17 (f64: 2^30) and more is free of
//! branches, so that it can be computed in the lanes of vectors.

pub mod format;
mod number;
pub mod sin;

use std::ops::{Add, Div, Mul, Neg, Sub};

pub use format::Format;

/// A float on which a sequence of operations can be carried out.
pub trait Real:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The integer of its width.
    type Word: Word<Real = Self>;
    /// The outcome of a comparison.
    type Truth: Truth<Real = Self>;
    /// The constants that depend on the width.
    const FORMAT: &'static Format;

    /// A constant; the receiver only says where it is used.
    fn constant(self, value: f64) -> Self;
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// `self * 2^n`, rounded once, for an integer n and `t` = n + [`Format::round`], where both
    /// halves of n are exponents of normal numbers.
    fn scaled(self, t: Self) -> Self {
        scale(self, t)
    }
    /// The bits.
    fn bits(self) -> Self::Word;
    /// `self < other`.
    fn below(self, other: Self) -> Self::Truth;
    /// `self == other`.
    fn equals(self, other: Self) -> Self::Truth;
    /// The same value, with a name for the reader of recorded code. Whatever is used more than
    /// once has one.
    fn named(self, name: &'static str) -> Self;
}

/// An unsigned integer as wide as its [`Real`]; arithmetic wraps.
pub trait Word: Copy {
    /// The float of its width.
    type Real: Real<Word = Self>;

    /// A constant; the receiver only says where it is used.
    fn constant(self, value: u64) -> Self;
    /// `self + other`.
    fn plus(self, other: Self) -> Self;
    /// `self - other`.
    fn minus(self, other: Self) -> Self;
    /// The low half of the product.
    fn times(self, other: Self) -> Self;
    /// The high half of the product.
    fn times_high(self, other: Self) -> Self;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Bitwise or.
    fn or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn xor(self, other: Self) -> Self;
    /// Shifted left by less than the width.
    fn left(self, amount: Self) -> Self;
    /// Shifted right by less than the width, zeros coming in.
    fn right(self, amount: Self) -> Self;
    /// Shifted right by less than the width, copies of the top bit coming in.
    fn right_signed(self, amount: Self) -> Self;
    /// 1 if `self < other`, else 0: the carry of a sum that came out below a summand.
    fn below(self, other: Self) -> Self;
    /// Whether it is not zero.
    fn nonzero(self) -> <Self::Real as Real>::Truth;
    /// The float with these bits.
    fn real(self) -> Self::Real;
    /// The nearest float to the value, read as a signed number.
    fn to_real(self) -> Self::Real;
    /// The word at this place of [`Format::two_over_pi`], counted from `offset`.
    fn two_over_pi(self, offset: u64) -> Self;
    /// See [`Real::named`].
    fn named(self, name: &'static str) -> Self;
}

/// The outcome of a comparison.
pub trait Truth: Copy {
    /// What it selects.
    type Real;

    /// `yes` if true, else `no`.
    fn select(self, yes: Self::Real, no: Self::Real) -> Self::Real;
}

/// e to the power x.
///
/// With n the integer nearest to x / ln 2: e^x = 2^n * e^(x - n ln 2).
pub fn exp<R: Real>(x: R) -> R {
    let f = R::FORMAT;
    let (x, gone) = clamp(x, f.exp_range);
    let t = x
        .fma(x.constant(f.log2_e[0]), x.constant(f.round))
        .named("t");
    let n = (t - x.constant(f.round)).named("n");
    // Exact: both terms are multiples of one power of two, and their difference is small.
    let high = n.fma(x.constant(-f.ln_2[0]), x).named("high");
    let low = (n * x.constant(-f.ln_2[1])).named("low");
    gone.select(x.constant(0.0), scaled_exp(high, low, t))
}

/// 2 to the power x.
///
/// With n the integer nearest to x: 2^x = 2^n * e^((x - n) ln 2).
pub fn exp2<R: Real>(x: R) -> R {
    let f = R::FORMAT;
    let (x, gone) = clamp(x, f.exp2_range);
    let t = (x + x.constant(f.round)).named("t");
    let d = (x - (t - x.constant(f.round))).named("d");
    let (high, low) = product(d, f.ln_2);
    gone.select(x.constant(0.0), scaled_exp(high, low, t))
}

/// Limits x to a range beyond which the result is 0 or infinite anyway, and says whether it is 0.
/// NaN passes.
///
/// Below the range x becomes 0, not the end of the range: processors take some twenty times as long
/// for a product that is too small for a normal number, and masks of -1e9 or -inf are common.
fn clamp<R: Real>(x: R, (least, greatest): (f64, f64)) -> (R, R::Truth) {
    let (least, greatest) = (x.constant(least), x.constant(greatest));
    let gone = x.below(least);
    let x = gone.select(x.constant(0.0), x).named("x");
    (greatest.below(x).select(greatest, x).named("x"), gone)
}

/// d * (c0 + c1) for an exact constant c0 + c1, as the rounded product and what it lacks.
fn product<R: Real>(d: R, [c0, c1]: [f64; 2]) -> (R, R) {
    let high = (d * d.constant(c0)).named("high");
    let lost = d.fma(d.constant(c0), -high);
    let low = d.fma(d.constant(c1), lost).named("low");
    (high, low)
}

/// 2^n * e^(high + low), where `t` is n + [`Format::round`] and high + low is at most half of
/// ln 2 in magnitude.
fn scaled_exp<R: Real>(high: R, low: R, t: R) -> R {
    let f = R::FORMAT;
    let z = (high + low).named("z");
    let rest = (z * z).fma(horner(z, f.exp), low).named("rest");
    // 1 + high and what the sum lost.
    let sum = (z.constant(1.0) + high).named("sum");
    let lost = high - (sum - z.constant(1.0));
    (sum + (lost + rest)).named("y").scaled(t)
}

/// [`Real::scaled`] as a sequence: 2^n in two factors, each a normal number. The first product is
/// exact for y close to 1, so that only the last one can round.
pub fn scale<R: Real>(y: R, t: R) -> R {
    let f = R::FORMAT;
    let bits = t.bits();
    let word = |value| bits.constant(value);
    let n = bits.minus(t.constant(f.round).bits()).named("m");
    let half = n.right_signed(word(1)).named("half");
    let power = |n: R::Word| n.plus(word(f.bias)).left(word(f.fraction)).real();
    y * power(half) * power(n.minus(half))
}

/// Logarithm to base 2.
///
/// With x = 2^e * m and m close to 1: e + log2(m). For f = m - 1 and s = f / (2 + f),
/// log(1 + f) = f - f*f/2 + s * (f*f/2 + s*s*L(s*s)).
pub fn log2<R: Real>(x: R) -> R {
    let f = R::FORMAT;
    let number = |value| x.constant(value);
    // Subnormals are scaled to become normal.
    let tiny = x.below(number(f.least_normal));
    let a = tiny.select(x * number(f.scale.0), x).named("a");
    let shift = tiny.select(number(f.scale.1), number(0.0));
    let bits = a.bits().named("bits");
    let word = |value| bits.constant(value);
    // m lies between the square roots of 1/2 and 2.
    let e = bits
        .minus(word(f.root_half))
        .right_signed(word(f.fraction))
        .named("e");
    let m = bits.minus(e.left(word(f.fraction))).real();
    let e = (e.to_real() + shift).named("n");
    let d = (m - number(1.0)).named("d");
    let s = (d / (number(2.0) + d)).named("s");
    let z = (s * s).named("z");
    let half = (number(0.5) * d).named("half");
    let square = (half * d).named("square");
    let square_lost = half.fma(d, -square);
    let tail = (s * z.fma(horner(z, f.log), square)).named("tail");
    // d - square, and all that is small beside it.
    let main = (d - square).named("main");
    let rest = (((d - main) - square) - square_lost + tail).named("rest");
    let high = (main * number(f.log2_e[0])).named("high");
    let lost = main.fma(number(f.log2_e[0]), -high);
    let low = rest.fma(number(f.log2_e[0]), lost).named("low");
    let low = main.fma(number(f.log2_e[1]), low).named("low");
    let sum = (e + high).named("sum");
    let y = (sum + (((e - sum) + high) + low)).named("y");
    // log2 of infinity and NaN is itself, of a negative number NaN.
    let y = x.below(number(f64::INFINITY)).select(y, x);
    let outside = x
        .equals(number(0.0))
        .select(number(f64::NEG_INFINITY), number(f64::NAN));
    number(0.0).below(x).select(y, outside)
}

/// c\[0\] + c\[1\] x + c\[2\] x^2 + ...
fn horner<R: Real>(x: R, coefficients: &[f64]) -> R {
    let (&last, others) = coefficients
        .split_last()
        .expect("a polynomial has coefficients");
    others
        .iter()
        .rev()
        .fold(x.constant(last), |p, &c| p.fma(x, x.constant(c)).named("p"))
}
