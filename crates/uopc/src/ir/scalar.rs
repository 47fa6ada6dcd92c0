//! The meaning of each scalar op at each dtype: the only definition.

use super::dtype::DType;

/// One value of a dtype, kept as its bits: equality is equality of bits, so 0.0 and -0.0
/// differ and a NaN equals itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scalar {
    dtype: DType,
    bits: u64,
}
