//! Powers of integers by integers.

use crate::error::Result;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use crate::ir::uop::UOp;

/// x to the power y for integers of one dtype; products wrap.
///
/// By repeated squaring over the bits of y. A negative power is 1/x^-y rounded towards zero: that of
/// 1 is 1, that of -1 is 1 or -1, all others are 0.
///
/// # Errors
/// When the arguments are no integers of one dtype and shape.
pub fn whole_pow(x: &UOp, y: &UOp) -> Result<UOp> {
    let dtype = x.dtype();
    let number = |value: i128| UOp::full(Scalar::from_i128(dtype, value), x.shape());
    let (zero, one) = (number(0)?, number(1)?);
    let odd = |y: &UOp| y.and(&one)?.cmpne(&zero);
    let bits = dtype.bits() - dtype.is_signed() as u32;
    let (mut result, mut square) = (one.clone(), x.clone());
    for k in 0..bits {
        let bit = odd(&UOp::new(Op::Shr, vec![y.clone(), number(k.into())?])?)?;
        result = bit.where_(&result.mul(&square)?, &result)?;
        square = square.mul(&square)?;
    }
    if dtype.is_unsigned() {
        return Ok(result);
    }
    let minus_one = number(-1)?;
    let alternating = odd(y)?.where_(&minus_one, &one)?;
    let is_minus_one = x.eq(&minus_one)?;
    let fraction = is_minus_one.where_(&alternating, &zero)?;
    let fraction = x.eq(&one)?.where_(&one, &fraction)?;
    y.cmplt(&zero)?.where_(&fraction, &result)
}
