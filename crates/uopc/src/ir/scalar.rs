//! The meaning of each scalar op at each dtype: the only definition.

use super::dtype::DType;

/// One value of a dtype, kept as its bits: equality is equality of bits, so 0.0 and -0.0
/// differ and a NaN equals itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scalar {
    dtype: DType,
    bits: u64,
}

#[allow(missing_docs)]
impl Scalar {
    pub fn from_f64(dtype: DType, v: f64) -> Scalar {
        Scalar {
            dtype,
            bits: v.to_bits(),
        }
    }
    pub fn from_i128(dtype: DType, v: i128) -> Scalar {
        Scalar {
            dtype,
            bits: v as u64,
        }
    }
    pub fn from_bool(v: bool) -> Scalar {
        Scalar {
            dtype: DType::Bool,
            bits: v as u64,
        }
    }
    pub fn zero(dtype: DType) -> Scalar {
        Scalar { dtype, bits: 0 }
    }
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}
impl std::fmt::Debug for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}", self.bits)
    }
}
