//! Functions made of the language's ops, in forms that keep their accuracy, their derivatives at
//! kinks and their limits at infinity. All take and return nodes.

use crate::functions::Num;
use crate::ir::{DType, Scalar, UOp};

use super::Result;

/// Computes a formula of several steps in f32 for f16 and bf16, and rounds once at the end.
fn widened(x: &UOp, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
    let dtype = x.dtype();
    f(&x.cast(dtype.accumulator())?)?.cast(dtype)
}

/// The same in f64, for formulas that lose more than a digit of f32.
fn in_f64(x: &UOp, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
    f(&x.cast(DType::F64)?)?.cast(x.dtype())
}

/// -max(-a, -b) for floats; by comparison for the others, whose least value has no negative.
pub(super) fn minimum(a: &UOp, b: &UOp) -> Result<UOp> {
    if a.dtype().is_float() {
        return a.neg()?.maximum(&b.neg()?)?.neg();
    }
    b.cmplt(a)?.where_(b, a)
}

/// The remainder that has the sign of a, of integers.
pub(super) fn whole_fmod(a: &UOp, b: &UOp) -> Result<UOp> {
    let rest = a.floormod(b)?;
    if !a.dtype().is_signed() {
        return Ok(rest);
    }
    let zero = UOp::full(Scalar::zero(a.dtype()), a.shape())?;
    let differ = a.cmplt(&zero)?.xor(&rest.cmplt(&zero)?)?;
    let differ = differ.and(&rest.cmpne(&zero)?)?;
    differ.where_(&rest.sub(b)?, &rest)
}

/// Every bit flipped, which reverses the order of integers.
pub(super) fn not(x: &UOp) -> Result<UOp> {
    let ones = match x.dtype() {
        DType::Bool => Scalar::from_bool(true),
        // Floats get the zeros of a refused op: XOR says that it needs integers.
        dtype if dtype.is_float() => Scalar::zero(dtype),
        dtype => Scalar::from_i128(dtype, -1),
    };
    x.xor(&UOp::full(ones, x.shape())?)
}

/// max(x, -x); what has no sign is its own absolute value.
pub(super) fn abs(x: &UOp) -> Result<UOp> {
    if x.dtype() == DType::Bool || x.dtype().is_unsigned() {
        return Ok(x.clone());
    }
    x.maximum(&x.neg()?)
}

/// |x| with derivative -1 at 0 and nothing that doubles there, inside formulas that are smooth.
fn magnitude(x: &UOp) -> Result<UOp> {
    is_negative(x)?.where_(&x.neg()?, x)
}

fn is_negative(x: &UOp) -> Result<UOp> {
    x.cmplt(&x.full_like(0.0)?)
}

/// log2(x) * ln 2, the constant in two parts and the product rounded once. The high part is below
/// ln 2, so that both parts have one sign and infinities stay what they are.
pub(super) fn log(x: &UOp) -> Result<UOp> {
    widened(x, |x| {
        let (high, low) = match x.dtype() {
            DType::F64 => (std::f64::consts::LN_2, 2.319_046_813_846_3e-17),
            _ => (0.693_147_122_859_954_8, 5.769_998_878_690_785e-8),
        };
        let l = x.log2()?;
        l.mulacc(&x.full_like(high)?, &l.mul(&x.full_like(low)?)?)
    })
}

/// The logistic function in f64, rounded once: in f32 its three roundings come to 2 units in the last place.
pub(super) fn sigmoid(x: &UOp) -> Result<UOp> {
    in_f64(x, logistic)
}

/// With z = exp(-|x|), which never overflows: z/(1+z) below 0, else 1/(1+z).
fn logistic(x: &UOp) -> Result<UOp> {
    let one = x.full_like(1.0)?;
    let z = magnitude(x)?.neg()?.exp()?;
    is_negative(x)?.where_(&z, &one)?.div(&one.add(&z)?)
}

/// Where |x| is small an odd polynomial, elsewhere (1-z)/(1+z) with z = exp(-2|x|), both with the sign
/// of x, that of -0 included.
pub(super) fn tanh(x: &UOp) -> Result<UOp> {
    widened(x, |x| {
        let (limit, coefficients) = match x.dtype() {
            DType::F64 => (0.5, TANH_F64),
            _ => (0.625, TANH_F32),
        };
        let one = x.full_like(1.0)?;
        let negative = Num(x.clone()).is_negative().0;
        let m = negative.where_(&x.neg()?, x)?;
        let small = m.cmplt(&x.full_like(limit)?)?;
        // A value that the polynomial can't take is kept out of it: its powers would overflow, and
        // the gradient of a branch that is not taken must not become 0 * inf.
        let s = small.where_(&m, &x.full_like(0.0)?)?;
        let s2 = s.mul(&s)?;
        let odd = s.mul(&s2)?.mulacc(&polynomial(&s2, coefficients)?, &s)?;
        let z = m.mul(&x.full_like(-2.0)?)?.exp()?;
        let t = one.sub(&z)?.div(&one.add(&z)?)?;
        let y = small.where_(&odd, &t)?;
        negative.where_(&y.neg()?, &y)
    })
}

/// Coefficients of (tanh(x)/x - 1)/x^2 in powers of x^2, the constant first.
/// Fitted for the least relative error of tanh on |x| < 0.625, which is 2^-32.
const TANH_F32: &[f64] = &[
    -0.333_333_308_206_157_55,
    0.133_332_062_557_057_65,
    -0.053_946_776_475_839_52,
    0.021_700_749_649_956_11,
    -0.008_177_511_123_805_556,
    0.002_143_086_185_580_423,
];

/// The same on |x| < 0.5 with error 2^-63.
const TANH_F64: &[f64] = &[
    -0.333_333_333_333_333_3,
    0.133_333_333_333_322_13,
    -0.053_968_253_967_347_36,
    0.021_869_488_499_493_102,
    -0.008_863_234_666_699_77,
    0.003_592_115_219_989_777_6,
    -0.001_455_709_189_742_18,
    0.000_589_208_598_325_202,
    -0.000_235_557_126_669_701_65,
    0.000_086_813_680_416_409_97,
    -0.000_021_921_673_783_710_686,
];

/// c0 + c1 x + c2 x^2 + ..., by Horner's rule.
fn polynomial(x: &UOp, coefficients: &[f64]) -> Result<UOp> {
    let mut sum = x.full_like(0.0)?;
    for (k, &c) in coefficients.iter().rev().enumerate() {
        let c = x.full_like(c)?;
        sum = if k == 0 { c } else { sum.mulacc(x, &c)? };
    }
    Ok(sum)
}

/// x * sigmoid(x), with x held above where the result is 0, so that -inf gives 0.
pub(super) fn silu(x: &UOp) -> Result<UOp> {
    gated(x, 800.0, |x| Ok(x.clone()))
}

/// x * sigmoid(2u), which is x/2 * (1 + tanh(u)) without its cancellation, for
/// u = sqrt(2/pi) * (x + 0.044715 x^3).
pub(super) fn gelu(x: &UOp) -> Result<UOp> {
    gated(x, 40.0, |x| {
        let two_u = x.mul(x)?.mul(&x.full_like(0.044715)?)?;
        let two_u = two_u.add(&x.full_like(1.0)?)?.mul(x)?;
        two_u.mul(&x.full_like(2.0 * (2.0 / std::f64::consts::PI).sqrt())?)
    })
}

/// x * sigmoid(gate(x)). The gate is 0 or 1 to the last bit outside -limit..limit, so there x is
/// held within it where only the gate's value matters: no infinity reaches a product with 0.
fn gated(x: &UOp, limit: f64, gate: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
    widened(x, |x| {
        let above = x.maximum(&x.full_like(-limit)?)?;
        let within = minimum(&above, &x.full_like(limit)?)?;
        above.mul(&logistic(&gate(&within)?)?)
    })
}

/// max(x, 0) + log1p(z) with z = exp(-|x|), and log1p(z) = 2 atanh(z/(2+z)) as a series that
/// converges quickly, as z/(2+z) is at most 1/3. In f64, and rounded once: the quotient and the series
/// would each lose a digit of f32.
pub(super) fn softplus(x: &UOp) -> Result<UOp> {
    let terms = if x.dtype() == DType::F64 { 17 } else { 9 };
    in_f64(x, |x| {
        let coefficients: Vec<f64> = (0..terms).map(|k| 2.0 / (2 * k + 1) as f64).collect();
        let z = magnitude(x)?.neg()?.exp()?;
        let s = z.div(&z.add(&x.full_like(2.0)?)?)?;
        let log1p = s.mul(&polynomial(&s.mul(&s)?, &coefficients)?)?;
        // The kinks of both parts cancel: this one has derivative 1 at 0, the other -1/2.
        is_negative(x)?.where_(&x.full_like(0.0)?, x)?.add(&log1p)
    })
}
