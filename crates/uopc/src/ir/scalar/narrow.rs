//! Conversions between the 16-bit floats and f32, f64 and integers, each rounded once.
//!
//! An f16 or bf16 is carried as its 16 bits. Widening is exact. Narrowing rounds to nearest, ties
//! to even, straight from the source: never f64 to f32 to f16, which rounds twice and is wrong
//! for values close to a tie. The C twins of these functions are in `backend/c/prelude.rs`.

use crate::ir::dtype::DType;

/// The canonical NaN of f16, as bits.
pub const NAN_F16: u16 = 0x7e00;
/// The canonical NaN of bf16.
pub const NAN_BF16: u16 = 0x7fc0;
/// The canonical NaN of f32.
pub const NAN_F32: u32 = 0x7fc0_0000;
/// The canonical NaN of f64.
pub const NAN_F64: u64 = 0x7ff8_0000_0000_0000;

/// The value of an f16, exactly.
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = ((h & 0x8000) as u32) << 16;
    let magnitude = (h & 0x7fff) as u32;
    let bits = match magnitude {
        // Subnormal: a multiple of 2^-24, which f32 holds as a normal number.
        0..0x0400 => (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        0x0400..0x7c00 => (magnitude << 13) + (112 << 23),
        0x7c00 => 0x7f80_0000,
        _ => return f32::from_bits(NAN_F32),
    };
    f32::from_bits(bits | sign)
}

/// The value of a bf16, exactly.
pub fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits((h as u32) << 16)
}

/// The f16 nearest to an f32.
pub fn f32_to_f16(x: f32) -> u16 {
    let sign = ((x.to_bits() >> 16) & 0x8000) as u16;
    let a = x.to_bits() & 0x7fff_ffff;
    let magnitude = match a {
        // Below 2^-14: adding 1/2, whose last place is 2^-24, rounds to a multiple of 2^-24.
        0..0x3880_0000 => (f32::from_bits(a) + 0.5).to_bits() - 0.5f32.to_bits(),
        // Below 65520, which is halfway between the largest f16 and the next power of two.
        0x3880_0000..0x477f_f000 => (a - (112 << 23) + 0xfff + ((a >> 13) & 1)) >> 13,
        0x477f_f000..=0x7f80_0000 => 0x7c00,
        _ => return NAN_F16,
    };
    magnitude as u16 | sign
}

/// The bf16 nearest to an f32.
pub fn f32_to_bf16(x: f32) -> u16 {
    if x.is_nan() {
        return NAN_BF16;
    }
    let a = x.to_bits();
    // A carry out of the largest finite number is infinity, as it must be.
    ((a + 0x7fff + ((a >> 16) & 1)) >> 16) as u16
}

/// The f16 nearest to an f64.
pub fn f64_to_f16(x: f64) -> u16 {
    f32_to_f16(round_f64(x, precision(DType::F16)))
}

/// The bf16 nearest to an f64.
pub fn f64_to_bf16(x: f64) -> u16 {
    f32_to_bf16(round_f64(x, precision(DType::BF16)))
}

/// The significant bits of a 16-bit float and its least normal exponent.
pub fn precision(dtype: DType) -> (i32, i32) {
    if dtype == DType::F16 {
        (11, -14)
    } else {
        (8, -126)
    }
}

/// The bf16 nearest to an integer. (f16 needs no such care: integers that f32 rounds are beyond
/// its range.)
pub fn int_to_bf16(x: i128) -> u16 {
    f64_to_bf16(int_to_f64_odd(x))
}

/// `x` rounded to a float of `digits` significant bits and normal exponents from `least` up, as
/// an f32, which holds all of these.
fn round_f64(x: f64, (digits, least): (i32, i32)) -> f32 {
    let a = x.abs();
    // From 2^128 on every narrow float is infinite; NaN stays NaN.
    if a.is_nan() || a >= f64::from_bits((1023 + 128) << 52) {
        return x as f32;
    }
    // The last place of `anchor` is that of the result, so that adding it rounds and subtracting
    // it is exact.
    let exponent = ((a.to_bits() >> 52) as i32 - 1023).max(least);
    let anchor = f64::from_bits(((1023 + exponent + 53 - digits) as u64) << 52);
    ((a + anchor) - anchor).copysign(x) as f32
}

/// `x` rounded to odd in f64: exact below 2^53, and above it a rounding that later narrowing
/// can't tell from the exact number.
fn int_to_f64_odd(x: i128) -> f64 {
    let magnitude = x.unsigned_abs() as u64;
    if magnitude < 1 << 53 {
        return x as f64;
    }
    let sticky = if magnitude & 0x7ff != 0 { 0x800 } else { 0 };
    let odd = ((magnitude | sticky) & !0x7ff) as f64;
    if x < 0 { -odd } else { odd }
}
