//! The scalar types a tensor can hold, their ranges and how two of them combine.

use std::fmt;

/// A scalar type. The order is the order of declaration and has no meaning of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum DType {
    /// A truth value, one byte, 0 or 1.
    Bool,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer: what an integer literal is.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE half precision: 11 bits of significand.
    F16,
    /// bfloat16: the range of `f32` with 8 bits of significand.
    BF16,
    /// IEEE single precision: what a float literal is.
    F32,
    /// IEEE double precision.
    F64,
}

use DType::*;

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 13] = [
        Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64,
    ];

    /// The name used in `.uir`, in errors and in documentation: `f32`, `i64`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            U8 => "u8",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }

    /// The dtype of that name, if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Bytes that one element takes in memory.
    pub const fn size(self) -> usize {
        match self {
            Bool | I8 | U8 => 1,
            I16 | U16 | F16 | BF16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 => 8,
        }
    }

    /// Bits of one element: 8 times [`size`](Self::size).
    pub const fn bits(self) -> u32 {
        self.size() as u32 * 8
    }

    /// True for f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// True for the signed and unsigned integers; false for bool.
    pub const fn is_int(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }

    /// True for i8 to i64.
    pub const fn is_signed(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64)
    }

    /// True for u8 to u64.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64)
    }

    /// The type in which sums of this type are accumulated: f32 for f16 and bf16, else itself.
    pub const fn accumulator(self) -> DType {
        match self {
            F16 | BF16 => F32,
            other => other,
        }
    }

    /// Smallest and largest value of an integer dtype or bool (as 0 and 1); `None` for floats.
    pub const fn int_range(self) -> Option<(i128, i128)> {
        match self {
            Bool => Some((0, 1)),
            I8 => Some((i8::MIN as i128, i8::MAX as i128)),
            I16 => Some((i16::MIN as i128, i16::MAX as i128)),
            I32 => Some((i32::MIN as i128, i32::MAX as i128)),
            I64 => Some((i64::MIN as i128, i64::MAX as i128)),
            U8 => Some((0, u8::MAX as i128)),
            U16 => Some((0, u16::MAX as i128)),
            U32 => Some((0, u32::MAX as i128)),
            U64 => Some((0, u64::MAX as i128)),
            F16 | BF16 | F32 | F64 => None,
        }
    }

    /// The dtype of a result that combines tensors of two dtypes.
    ///
    /// bool gives way to everything, integers to floats; two integers go to the narrowest
    /// integer that holds both ranges (u64 with a signed one: f32, as no integer holds both);
    /// two floats to the wider one, f16 with bf16 to f32.
    pub fn promote(self, other: DType) -> DType {
        let (a, b) = (self, other);
        match (a, b) {
            _ if a == b => a,
            (Bool, x) | (x, Bool) => x,
            (F16, BF16) | (BF16, F16) => F32,
            _ if a.is_float() && b.is_float() => {
                if a.size() > b.size() {
                    a
                } else {
                    b
                }
            }
            _ if a.is_float() => a,
            _ if b.is_float() => b,
            _ if a.is_signed() == b.is_signed() => {
                if a.size() > b.size() {
                    a
                } else {
                    b
                }
            }
            _ => {
                let (s, u) = if a.is_signed() { (a, b) } else { (b, a) };
                match (s.size(), u.size()) {
                    (s_size, u_size) if s_size > u_size => s,
                    (_, 1) => I16,
                    (_, 2) => I32,
                    (_, 4) => I64,
                    _ => F32,
                }
            }
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}
