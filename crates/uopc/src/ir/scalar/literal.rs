//! How a scalar is written in `.uir`, and its inverse.
//!
//! f32 is `1.0`, `-0.0`, `1e-30`, `inf`, `nan`; i32 is `1`; bool is `true`. Every other dtype has
//! its name as a suffix: `1.0f64`, `3i64`, `7u8`, `0.5f16`, `nanbf16`. A float shows the fewest
//! digits that give the same value back when read in its own dtype.

use std::fmt;

use super::Scalar;
use crate::ir::dtype::DType;

impl Scalar {
    /// The scalar that a `.uir` literal stands for, or `None` if it is malformed or does not fit
    /// its dtype.
    ///
    /// ```
    /// use uopc::ir::scalar::Scalar;
    ///
    /// let half = Scalar::parse("0.5f16").expect("a literal");
    /// assert_eq!(half.as_f64(), 0.5);
    /// assert_eq!(half.to_string(), "0.5f16");
    /// assert_eq!(Scalar::parse("300u8"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Scalar> {
        match text {
            "true" => return Some(Scalar::from_bool(true)),
            "false" => return Some(Scalar::from_bool(false)),
            _ => {}
        }
        let (number, dtype) = split_suffix(text);
        let digits = number.strip_prefix('-').unwrap_or(number);
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        match dtype.unwrap_or(if plain { DType::I32 } else { DType::F32 }) {
            DType::Bool => None,
            dtype if dtype.is_float() => parse_float(number, digits, dtype),
            dtype => {
                let value: i128 = if plain {
                    number.parse().ok()?
                } else {
                    return None;
                };
                let (least, greatest) = dtype.int_range()?;
                (least..=greatest)
                    .contains(&value)
                    .then(|| Scalar::from_i128(dtype, value))
            }
        }
    }
}

/// Takes the dtype's name off the end. bf16 is tried before f16, which ends it.
fn split_suffix(text: &str) -> (&str, Option<DType>) {
    use DType::*;
    for dtype in [BF16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64] {
        if let Some(number) = text.strip_suffix(dtype.name()) {
            return (number, Some(dtype));
        }
    }
    (text, None)
}

fn parse_float(number: &str, digits: &str, dtype: DType) -> Option<Scalar> {
    if number == "nan" {
        return Some(Scalar::from_f64(dtype, f64::NAN));
    }
    if digits == "inf" {
        let sign = if number.starts_with('-') { -1.0 } else { 1.0 };
        return Some(Scalar::from_f64(dtype, sign * f64::INFINITY));
    }
    // Rust also reads "infinity" and "+1", which are not literals here.
    let decimal = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'-');
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || !digits.bytes().all(decimal) {
        return None;
    }
    let value = match dtype {
        // Through f64 an f32 would be rounded twice.
        DType::F32 => number.parse::<f32>().ok()? as f64,
        _ => number.parse::<f64>().ok()?,
    };
    let scalar = Scalar::from_f64(dtype, value);
    scalar.as_f64().is_finite().then_some(scalar)
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.dtype() {
            DType::Bool => return write!(f, "{}", self.as_bool()),
            DType::I32 => return write!(f, "{}", self.as_i128()),
            dtype if dtype.is_float() => write_float(f, *self)?,
            _ => write!(f, "{}", self.as_i128())?,
        }
        if self.dtype() == DType::F32 {
            Ok(())
        } else {
            f.write_str(self.dtype().name())
        }
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write_float(f: &mut fmt::Formatter, scalar: Scalar) -> fmt::Result {
    let value = scalar.as_f64();
    if value.is_nan() {
        return f.write_str("nan");
    }
    match scalar.dtype() {
        DType::F32 => write!(f, "{:?}", value as f32),
        DType::F64 => write!(f, "{value:?}"),
        dtype => write!(f, "{:?}", shortest(value, dtype)),
    }
}

/// The number with the fewest digits that narrows to `value`, itself a value of the 16-bit
/// `dtype`. Five digits always suffice.
fn shortest(value: f64, dtype: DType) -> f64 {
    (0..5)
        .filter_map(|digits| format!("{value:.digits$e}").parse().ok())
        .find(|&short| Scalar::from_f64(dtype, short).as_f64() == value)
        .unwrap_or(value)
}
