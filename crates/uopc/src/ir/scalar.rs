//! The meaning of each scalar op at each dtype: the only definition.
//!
//! The constant folder and the interpreters call [`apply`]; the C helpers of
//! `backend/c/prelude.rs` say the same in C and are compared with it bit for bit. `tests/scalar.rs`
//! checks both against NumPy.
//!
//! | op | floats | integers | bool |
//! |---|---|---|---|
//! | ADD | IEEE, round to nearest even | wraps | or |
//! | MUL | IEEE | wraps | and |
//! | MAX | NaN if either is NaN; max(-0, +0) = +0 | the larger | or |
//! | MULACC | fused: rounded once | wraps | (a and b) or c |
//! | RECIP, DIV | IEEE: x/0 is an infinity, 0/0 NaN | | |
//! | SQRT, TRUNC | IEEE; sqrt(-0) = -0, trunc keeps the sign of zero | | |
//! | EXP, EXP2, LOG2, SIN | the sequences of [`math`] | | |
//! | WHERE | the chosen value, bits unchanged | same | same |
//! | CMPLT | false if either is NaN; -0 = +0 | by value | false < true |
//! | CMPNE | true if either is NaN; -0 = +0 | by value | exclusive or |
//! | FLOORDIV | | rounds down; x//0 = 0; least // -1 = least (wraps) | |
//! | FLOORMOD | | sign of the divisor; x%0 = 0; x % -1 = 0 | |
//! | AND, OR, XOR | | bitwise, two's complement | logical |
//! | SHL | | wraps; an amount below 0 or from the width up gives 0 | |
//! | SHR | | keeps the sign; amounts out of range give 0, or -1 for negatives | |
//!
//! f16 and bf16 are widened to f32, computed there and rounded once to 16 bits; for ADD, MUL, DIV,
//! RECIP and SQRT that is the correctly rounded result.
//!
//! | CAST | rule |
//! |---|---|
//! | float to integer | rounds towards zero, saturates, NaN gives 0 |
//! | float to bool, integer to bool | x != 0 (so NaN is true) |
//! | integer to integer | wraps: the low bits |
//! | bool to a number | 0 or 1 |
//! | anything to float | rounded once, to nearest even; too large gives an infinity |
//!
//! BITCAST keeps the bits of two dtypes of one width. A NaN has no payload: as a constant it is
//! the canonical quiet NaN, whose bits a BITCAST to an integer gives. A byte read as bool is true
//! unless 0.

mod literal;
pub mod math;
pub mod narrow;

use super::dtype::DType;
use super::op::{Op, ReduceOp};

/// One value of a dtype, kept as its bits: equality is equality of bits, so 0.0 and -0.0
/// differ and a NaN equals itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scalar {
    dtype: DType,
    bits: u64,
}

impl Scalar {
    /// The scalar with these bits. Bits above the dtype's width are dropped, a NaN becomes the
    /// canonical one, and a bool is true unless its byte is 0.
    pub fn from_bits(dtype: DType, bits: u64) -> Scalar {
        let bits = match dtype {
            DType::Bool => (bits as u8 != 0) as u64,
            DType::F16 if bits as u16 & 0x7fff > 0x7c00 => narrow::NAN_F16 as u64,
            DType::BF16 if bits as u16 & 0x7fff > 0x7f80 => narrow::NAN_BF16 as u64,
            DType::F32 if f32::from_bits(bits as u32).is_nan() => narrow::NAN_F32 as u64,
            DType::F64 if f64::from_bits(bits).is_nan() => narrow::NAN_F64,
            _ => truncate(dtype, bits),
        };
        Scalar { dtype, bits }
    }

    /// The nearest value of the dtype, by the rules of CAST from f64.
    pub fn from_f64(dtype: DType, value: f64) -> Scalar {
        match dtype {
            DType::F64 => Scalar::from_bits(dtype, value.to_bits()),
            DType::F32 => Scalar::f32(value as f32),
            DType::F16 => Scalar::from_bits(dtype, narrow::f64_to_f16(value) as u64),
            DType::BF16 => Scalar::from_bits(dtype, narrow::f64_to_bf16(value) as u64),
            DType::Bool => Scalar::from_bool(value != 0.0),
            DType::I8 => Scalar::from_bits(dtype, value as i8 as u64),
            DType::I16 => Scalar::from_bits(dtype, value as i16 as u64),
            DType::I32 => Scalar::from_bits(dtype, value as i32 as u64),
            DType::I64 => Scalar::from_bits(dtype, value as i64 as u64),
            DType::U8 => Scalar::from_bits(dtype, value as u8 as u64),
            DType::U16 => Scalar::from_bits(dtype, value as u16 as u64),
            DType::U32 => Scalar::from_bits(dtype, value as u32 as u64),
            DType::U64 => Scalar::from_bits(dtype, value as u64),
        }
    }

    /// The integer as a value of the dtype, by the rules of CAST: wraps in an integer dtype,
    /// rounds once in a float.
    pub fn from_i128(dtype: DType, value: i128) -> Scalar {
        match dtype {
            DType::Bool => Scalar::from_bool(value != 0),
            DType::F64 => Scalar::from_f64(dtype, value as f64),
            DType::F32 => Scalar::f32(value as f32),
            DType::F16 => Scalar::from_bits(dtype, narrow::f32_to_f16(value as f32) as u64),
            DType::BF16 => Scalar::from_bits(dtype, narrow::int_to_bf16(value) as u64),
            _ => Scalar {
                dtype,
                bits: truncate(dtype, value as u64),
            },
        }
    }

    /// A bool.
    pub fn from_bool(value: bool) -> Scalar {
        Scalar {
            dtype: DType::Bool,
            bits: value as u64,
        }
    }

    /// An f32.
    pub fn f32(value: f32) -> Scalar {
        Scalar::from_bits(DType::F32, value.to_bits() as u64)
    }

    /// 0 (a float: +0.0; bool: false).
    pub fn zero(dtype: DType) -> Scalar {
        Scalar { dtype, bits: 0 }
    }

    /// 1 (bool: true).
    pub fn one(dtype: DType) -> Scalar {
        Scalar::from_i128(dtype, 1)
    }

    /// The value that leaves every other unchanged under the op, where a lane of a fold starts:
    /// -0.0 for a float sum (since 0.0 + -0.0 is 0.0), 1 for a product, -infinity or the least
    /// integer for a maximum; false, true, false for bool.
    pub fn identity(op: ReduceOp, dtype: DType) -> Scalar {
        match op {
            ReduceOp::Add if dtype.is_float() => Scalar::from_f64(dtype, -0.0),
            ReduceOp::Add => Scalar::zero(dtype),
            ReduceOp::Mul => Scalar::one(dtype),
            ReduceOp::Max => match dtype.int_range() {
                Some((least, _)) => Scalar::from_i128(dtype, least),
                None => Scalar::from_f64(dtype, f64::NEG_INFINITY),
            },
        }
    }

    /// Its type.
    pub const fn dtype(self) -> DType {
        self.dtype
    }

    /// Its bits, zero-extended.
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// The value as f64: exact for floats, bool and integers of up to 32 bits, rounded for others.
    pub fn as_f64(self) -> f64 {
        match self.dtype {
            DType::F64 => f64::from_bits(self.bits),
            dtype if dtype.is_float() => self.as_f32() as f64,
            DType::U64 => self.bits as f64,
            _ => self.as_i64() as f64,
        }
    }

    /// The value of an integer or bool (0 or 1), exactly; a float by the rules of CAST to i64.
    pub fn as_i128(self) -> i128 {
        match self.dtype {
            DType::U64 => self.bits as i128,
            dtype if dtype.is_float() => self.as_f64() as i64 as i128,
            _ => self.as_i64() as i128,
        }
    }

    /// True unless the value is 0, as CAST to bool says.
    pub fn as_bool(self) -> bool {
        if self.dtype.is_float() {
            self.as_f64() != 0.0
        } else {
            self.bits != 0
        }
    }

    /// True for a NaN of any float dtype.
    pub fn is_nan(self) -> bool {
        self.dtype.is_float() && self.as_f64().is_nan()
    }

    /// True if both are the same value to the last bit; all NaNs of a dtype are the same.
    pub fn same(a: Scalar, b: Scalar) -> bool {
        // Construction made every NaN canonical.
        a == b
    }

    /// The value of a float of up to 32 bits.
    fn as_f32(self) -> f32 {
        match self.dtype {
            DType::F16 => narrow::f16_to_f32(self.bits as u16),
            DType::BF16 => narrow::bf16_to_f32(self.bits as u16),
            _ => f32::from_bits(self.bits as u32),
        }
    }

    /// The value of an integer other than u64, or of a bool.
    fn as_i64(self) -> i64 {
        if self.dtype.is_signed() {
            let unused = 64 - self.dtype.bits();
            (self.bits << unused) as i64 >> unused
        } else {
            self.bits as i64
        }
    }
}

/// Drops the bits above the dtype's width.
fn truncate(dtype: DType, bits: u64) -> u64 {
    bits & (u64::MAX >> (64 - dtype.bits()))
}

/// The value of an elementwise op: `args` are its sources at one position, `dtype` is the
/// result's. The dtypes are those that the type rules of `ir/shape.rs` admit.
///
/// ```
/// use uopc::ir::{dtype::DType, op::Op, scalar::{apply, Scalar}};
///
/// let (a, b) = (Scalar::from_i128(DType::I32, -7), Scalar::from_i128(DType::I32, 2));
/// assert_eq!(apply(&Op::FloorDiv, DType::I32, &[a, b]).to_string(), "-4");
/// ```
///
/// # Panics
///
/// If `op` is not elementwise, or `args` are not of its arity and of dtypes it accepts: the
/// graph was not verified.
pub fn apply(op: &Op, dtype: DType, args: &[Scalar]) -> Scalar {
    match op {
        Op::Add => binary(
            dtype,
            args,
            |a, b| a + b,
            |a, b| a + b,
            |a, b| a.wrapping_add(b),
        ),
        Op::Mul => binary(
            dtype,
            args,
            |a, b| a * b,
            |a, b| a * b,
            |a, b| a.wrapping_mul(b),
        ),
        Op::Max => binary(
            dtype,
            args,
            max_f32,
            max_f64,
            if dtype.is_signed() {
                max_signed
            } else {
                u64::max
            },
        ),
        Op::Recip => unary(dtype, args, |x| 1.0 / x, |x| 1.0 / x),
        Op::Div => binary(
            dtype,
            args,
            |a, b| a / b,
            |a, b| a / b,
            |_, _| unreachable!("div is for floats"),
        ),
        Op::Exp2 => unary(dtype, args, math::exp2, math::exp2),
        Op::Log2 => unary(dtype, args, math::log2, math::log2),
        Op::Exp => unary(dtype, args, math::exp, math::exp),
        Op::Sqrt => unary(dtype, args, f32::sqrt, f64::sqrt),
        Op::Sin(k) => unary(
            dtype,
            args,
            |x| math::sin::sin_f32(x, *k as u32),
            |x| math::sin::sin_f64(x, *k as u64),
        ),
        Op::Trunc => unary(dtype, args, f32::trunc, f64::trunc),
        Op::MulAcc => mul_acc(dtype, args),
        Op::Cast(to) => cast(*to, args[0]),
        Op::Bitcast(to) => Scalar::from_bits(*to, args[0].bits),
        Op::Where => args[if args[0].as_bool() { 1 } else { 2 }],
        Op::CmpLt => Scalar::from_bool(less(args[0], args[1])),
        Op::CmpNe => Scalar::from_bool(differ(args[0], args[1])),
        Op::FloorDiv => floor_div(dtype, args[0], args[1]),
        Op::FloorMod => floor_mod(dtype, args[0], args[1]),
        Op::And => Scalar {
            dtype,
            bits: args[0].bits & args[1].bits,
        },
        Op::Or => Scalar {
            dtype,
            bits: args[0].bits | args[1].bits,
        },
        Op::Xor => Scalar {
            dtype,
            bits: args[0].bits ^ args[1].bits,
        },
        Op::Shl => shift_left(dtype, args[0], args[1]),
        Op::Shr => shift_right(dtype, args[0], args[1]),
        Op::Const(_)
        | Op::Buffer { .. }
        | Op::Param { .. }
        | Op::Iota { .. }
        | Op::Reshape(_)
        | Op::Expand(_)
        | Op::Permute(_)
        | Op::Shrink(_)
        | Op::Stack
        | Op::Index
        | Op::ScatterAdd(_)
        | Op::Reduce { .. }
        | Op::Scan(_)
        | Op::ArgSort
        | Op::Custom(_)
        | Op::Stage(_)
        | Op::Range { .. }
        | Op::End
        | Op::Store { .. }
        | Op::Load
        | Op::Local { .. }
        | Op::Sink
        | Op::After
        | Op::Call { .. }
        | Op::Loop
        | Op::EndLoop
        | Op::If
        | Op::EndIf
        | Op::Let { .. }
        | Op::Declare(_)
        | Op::Barrier => unreachable!("{} is not an op on scalars", op.mnemonic()),
    }
}

fn unary(
    dtype: DType,
    args: &[Scalar],
    single: impl Fn(f32) -> f32,
    double: impl Fn(f64) -> f64,
) -> Scalar {
    match dtype {
        DType::F64 => Scalar::from_f64(dtype, double(args[0].as_f64())),
        _ => from_f32(dtype, single(args[0].as_f32())),
    }
}

/// `word` gets integers sign- or zero-extended to 64 bits; of its result the low bits count.
/// For bool these are 0 and 1, and any non-zero result is true: sum is "or", product is "and".
fn binary(
    dtype: DType,
    args: &[Scalar],
    single: impl Fn(f32, f32) -> f32,
    double: impl Fn(f64, f64) -> f64,
    word: impl Fn(u64, u64) -> u64,
) -> Scalar {
    let (a, b) = (args[0], args[1]);
    match dtype {
        DType::F64 => Scalar::from_f64(dtype, double(a.as_f64(), b.as_f64())),
        dtype if dtype.is_float() => from_f32(dtype, single(a.as_f32(), b.as_f32())),
        _ => Scalar::from_bits(dtype, word(a.as_i64() as u64, b.as_i64() as u64)),
    }
}

/// An f32 result, rounded to 16 bits if the dtype is narrow.
fn from_f32(dtype: DType, value: f32) -> Scalar {
    match dtype {
        DType::F16 => Scalar::from_bits(dtype, narrow::f32_to_f16(value) as u64),
        DType::BF16 => Scalar::from_bits(dtype, narrow::f32_to_bf16(value) as u64),
        _ => Scalar::f32(value),
    }
}

fn max_f32(a: f32, b: f32) -> f32 {
    if a < b {
        b
    } else if b < a {
        a
    } else if a == b {
        // Equal numbers have equal bits, but for zeros: -0 and +0 give +0.
        f32::from_bits(a.to_bits() & b.to_bits())
    } else {
        f32::NAN
    }
}

fn max_f64(a: f64, b: f64) -> f64 {
    if a < b {
        b
    } else if b < a {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() & b.to_bits())
    } else {
        f64::NAN
    }
}

fn max_signed(a: u64, b: u64) -> u64 {
    (a as i64).max(b as i64) as u64
}

fn mul_acc(dtype: DType, args: &[Scalar]) -> Scalar {
    let (a, b, c) = (args[0], args[1], args[2]);
    match dtype {
        DType::F64 => Scalar::from_f64(dtype, a.as_f64().mul_add(b.as_f64(), c.as_f64())),
        dtype if dtype.is_float() => from_f32(dtype, a.as_f32().mul_add(b.as_f32(), c.as_f32())),
        _ => Scalar::from_bits(dtype, a.bits.wrapping_mul(b.bits).wrapping_add(c.bits)),
    }
}

fn cast(to: DType, x: Scalar) -> Scalar {
    match x.dtype {
        from if from.is_float() => Scalar::from_f64(to, x.as_f64()),
        _ => Scalar::from_i128(to, x.as_i128()),
    }
}

fn less(a: Scalar, b: Scalar) -> bool {
    match a.dtype {
        dtype if dtype.is_float() => a.as_f64() < b.as_f64(),
        dtype if dtype.is_signed() => a.as_i64() < b.as_i64(),
        _ => a.bits < b.bits,
    }
}

fn differ(a: Scalar, b: Scalar) -> bool {
    if a.dtype.is_float() {
        a.as_f64() != b.as_f64()
    } else {
        a.bits != b.bits
    }
}

fn floor_div(dtype: DType, a: Scalar, b: Scalar) -> Scalar {
    if b.bits == 0 {
        return Scalar::zero(dtype);
    }
    if dtype.is_unsigned() {
        return Scalar {
            dtype,
            bits: a.bits / b.bits,
        };
    }
    let (a, b) = (a.as_i64(), b.as_i64());
    // The machine rounds towards zero: one more than rounding down where the signs differ.
    let quotient = a.wrapping_div(b);
    let down = a.wrapping_rem(b) != 0 && (a < 0) != (b < 0);
    Scalar::from_bits(dtype, (quotient - down as i64) as u64)
}

fn floor_mod(dtype: DType, a: Scalar, b: Scalar) -> Scalar {
    if b.bits == 0 {
        return Scalar::zero(dtype);
    }
    if dtype.is_unsigned() {
        return Scalar {
            dtype,
            bits: a.bits % b.bits,
        };
    }
    let (a, b) = (a.as_i64(), b.as_i64());
    let remainder = a.wrapping_rem(b);
    let up = remainder != 0 && (a < 0) != (b < 0);
    Scalar::from_bits(dtype, (if up { remainder + b } else { remainder }) as u64)
}

fn shift_left(dtype: DType, a: Scalar, amount: Scalar) -> Scalar {
    // A negative amount is a large number when read unsigned.
    if amount.bits >= dtype.bits() as u64 {
        return Scalar::zero(dtype);
    }
    Scalar::from_bits(dtype, a.bits << amount.bits)
}

fn shift_right(dtype: DType, a: Scalar, amount: Scalar) -> Scalar {
    let in_range = amount.bits < dtype.bits() as u64;
    if dtype.is_unsigned() {
        return Scalar {
            dtype,
            bits: if in_range { a.bits >> amount.bits } else { 0 },
        };
    }
    // Shifting an extended value by 63 leaves the sign alone.
    let amount = if in_range { amount.bits } else { 63 };
    Scalar::from_bits(dtype, (a.as_i64() >> amount) as u64)
}
