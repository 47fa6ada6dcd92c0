//! Constant folding: an op on constants is a constant, computed in the node's dtype by the one
//! definition of its meaning, [`apply`].

use smallvec::SmallVec;

use super::{constant, full, is_exact};
use crate::ir::scalar::apply;
use crate::ir::{DType, Scalar, UOp};
use crate::rewrite::{Miss, found, require};

rule_table! {
    /// Folding that holds in all graphs.
    pub RULES;

    /// op(c, d, ...) => its value
    Any fold_constants [
        add max recip div exp2 log2 exp sqrt sin trunc mulacc cast bitcast where cmplt cmpne
        floordiv floormod and or xor shl shr
    ] (u) {
        full(value(u)?, u)
    }

    /// c * d => its value
    Int fold_int_product [mul] (u) {
        require(is_exact(u))?;
        full(value(u)?, u)
    }
}

rule_table! {
    /// Folding in shape graphs, where a sum may take the product unrounded.
    pub SHAPE_RULES;

    /// c * d => its value, if no bit of it is lost
    FloatExact fold_exact_product [mul] (u) {
        require(u.dtype().is_float())?;
        let product = value(u)?;
        let (a, b) = (found(constant(&u.src()[0]))?, found(constant(&u.src()[1]))?);
        require(is_exact_product(a, b, product))?;
        full(product, u)
    }
}

rule_table! {
    /// Folding in loops, where each MUL rounds.
    pub SCALAR_RULES;

    /// c * d => its value, rounded
    FloatExact fold_product [mul] (u) {
        require(u.dtype().is_float())?;
        full(value(u)?, u)
    }
}

/// The value of an elementwise op whose sources are all constants.
fn value(u: &UOp) -> Result<Scalar, Miss> {
    let args: Option<SmallVec<[Scalar; 3]>> = u.src().iter().map(constant).collect();
    Ok(apply(u.op(), u.dtype(), &found(args)?))
}

/// True if `product` is `a * b` to the last bit, so that rounding it changes nothing.
fn is_exact_product(a: Scalar, b: Scalar, product: Scalar) -> bool {
    let (x, y, p) = (a.as_f64(), b.as_f64(), product.as_f64());
    if !x.is_finite() || !y.is_finite() || x == 0.0 || y == 0.0 {
        return true;
    }
    match a.dtype() {
        // The error of a product is itself a float, unless it is too small to be one.
        DType::F64 => p.is_finite() && p.abs() > 1e-280 && x.mul_add(y, -p) == 0.0,
        // The product of two floats of up to 24 bits is exact in f64.
        _ => p == x * y,
    }
}
