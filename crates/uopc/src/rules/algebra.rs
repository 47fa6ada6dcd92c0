//! Identities of arithmetic, of bits and of conversions.

use smallvec::SmallVec;

use super::{all_ones, binary, constant, full, is_exact, right_constant, two_constants};
use crate::ir::op::{Fold, ReduceOp};
use crate::ir::scalar::apply;
use crate::ir::{DType, Op, Scalar, UOp};
use crate::rewrite::{Miss, found, require};

rule_table! {
    /// Identities that hold in all graphs.
    pub RULES;

    /// c op x => x op c
    Any constant_right [add mul max mulacc cmpne and or xor] (u) {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        require(constant(a).is_some() && constant(b).is_none())?;
        let mut src = u.src().to_vec();
        src.swap(0, 1);
        Ok(u.with_src(&src)?)
    }

    // ---- sums ----

    /// x + 0 => x
    Int add_zero [add] (u) {
        let (x, c) = right_constant(u)?;
        require(is_exact(x) && c.bits() == 0)?;
        Ok(x.clone())
    }

    /// x + -0.0 => x
    FloatExact add_minus_zero [add] (u) {
        let (x, c) = right_constant(u)?;
        require(x.dtype().is_float() && c == Scalar::identity(ReduceOp::Add, x.dtype()))?;
        Ok(x.clone())
    }

    /// x + 0.0 => x if x is never -0.0
    FloatExact add_float_zero [add] (u) {
        let (x, c) = right_constant(u)?;
        require(x.dtype().is_float() && c == Scalar::zero(x.dtype()))?;
        require(is_never_minus_zero(x))?;
        Ok(x.clone())
    }

    /// (x + c) + d => x + (c + d)
    Int add_constants [add] (u) {
        require(is_exact(u))?;
        let (x, c, d) = two_constants(u)?;
        let sum = apply(&Op::Add, u.dtype(), &[c, d]);
        Ok(x.add(&full(sum, u)?)?)
    }

    /// (x + c) + y => (x + y) + c, y + (x + c) => (y + x) + c
    Int add_constant_outwards [add] (u) {
        require(u.dtype().is_int())?;
        let (a, b) = (&u.src()[0], &u.src()[1]);
        require(constant(b).is_none())?;
        if let Some((x, c)) = sum_with_constant(a) {
            return Ok(x.add(b)?.add(c)?);
        }
        let (x, c) = found(sum_with_constant(b))?;
        Ok(a.add(x)?.add(c)?)
    }

    /// x + x * -1 => 0, x * -1 + x => 0
    Int sub_same [add] (u) {
        require(u.dtype().is_int())?;
        let (a, b) = (&u.src()[0], &u.src()[1]);
        require(negated(a) == Some(b) || negated(b) == Some(a))?;
        full(Scalar::zero(u.dtype()), u)
    }

    // ---- products ----

    /// x * 1 => x
    Any mul_one [mul] (u) {
        let (x, c) = right_constant(u)?;
        require(c == Scalar::one(u.dtype()))?;
        Ok(x.clone())
    }

    /// x * 0 => 0
    Int mul_zero [mul] (u) {
        let (x, c) = right_constant(u)?;
        require(is_exact(x) && c.bits() == 0)?;
        full(c, u)
    }

    /// (x * c) * d => x * (c * d)
    Int mul_constants [mul] (u) {
        require(is_exact(u))?;
        let (x, c, d) = two_constants(u)?;
        let product = apply(&Op::Mul, u.dtype(), &[c, d]);
        Ok(x.mul(&full(product, u)?)?)
    }

    /// (x * -1) * -1 => x
    FloatExact mul_minus_one_twice [mul] (u) {
        require(u.dtype().is_float())?;
        let x = found(negated(found(negated(u))?))?;
        Ok(x.clone())
    }

    /// (x * -1) * c => x * -c, (x * c) * -1 => x * -c
    FloatExact mul_negated_constant [mul] (u) {
        require(u.dtype().is_float())?;
        let (x, c, d) = two_constants(u)?;
        let minus_one = Scalar::from_i128(u.dtype(), -1);
        require(c == minus_one || d == minus_one)?;
        let product = apply(&Op::Mul, u.dtype(), &[c, d]);
        Ok(x.mul(&full(product, u)?)?)
    }

    /// x / 1 => x
    FloatExact div_by_one [div] (u) {
        let (x, c) = right_constant(u)?;
        require(c == Scalar::one(u.dtype()))?;
        Ok(x.clone())
    }

    /// mulacc(x, 1, y) => x + y
    Any mulacc_one [mulacc] (u) {
        let [x, c, y] = u.src() else { return Err(Miss::NoMatch) };
        require(constant(c) == Some(Scalar::one(u.dtype())))?;
        Ok(x.add(y)?)
    }

    // ---- maxima ----

    /// max(x, x) => x
    Any max_same [max] (u) {
        require(u.src()[0] == u.src()[1])?;
        Ok(u.src()[0].clone())
    }

    /// max(x, least) => x
    Any max_least [max] (u) {
        let (x, c) = right_constant(u)?;
        require(c == Scalar::identity(ReduceOp::Max, u.dtype()))?;
        Ok(x.clone())
    }

    /// max(max(x, c), d) => max(x, max(c, d))
    Any max_constants [max] (u) {
        let (x, c, d) = two_constants(u)?;
        let larger = apply(&Op::Max, u.dtype(), &[c, d]);
        Ok(x.maximum(&full(larger, u)?)?)
    }

    /// max(x, y) => x if x >= y by bounds, => y if y >= x
    Int max_decided [max] (u, bounds) {
        require(is_exact(u))?;
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let (of_a, of_b) = (bounds.of(a), bounds.of(b));
        if of_a.lo >= of_b.hi {
            return Ok(a.clone());
        }
        require(of_b.lo >= of_a.hi)?;
        Ok(b.clone())
    }

    // ---- bits ----

    /// x & 0 => 0
    Int and_zero [and] (u) {
        let (_, c) = right_constant(u)?;
        require(c.bits() == 0)?;
        full(c, u)
    }

    /// x & ones => x
    Int and_ones [and] (u) {
        let (x, c) = right_constant(u)?;
        require(c == all_ones(c))?;
        Ok(x.clone())
    }

    /// x | 0 => x, x ^ 0 => x
    Int or_zero [or xor] (u) {
        let (x, c) = right_constant(u)?;
        require(c.bits() == 0)?;
        Ok(x.clone())
    }

    /// x | ones => ones
    Int or_ones [or] (u) {
        let (_, c) = right_constant(u)?;
        require(c == all_ones(c))?;
        full(c, u)
    }

    /// x & x => x, x | x => x
    Int and_same [and or] (u) {
        require(u.src()[0] == u.src()[1])?;
        Ok(u.src()[0].clone())
    }

    /// x ^ x => 0
    Int xor_same [xor] (u) {
        require(u.src()[0] == u.src()[1])?;
        full(Scalar::zero(u.dtype()), u)
    }

    /// (x op c) op d => x op (c op d) for &, | and ^
    Int bits_constants [and or xor] (u) {
        let (x, c, d) = two_constants(u)?;
        let joined = apply(u.op(), u.dtype(), &[c, d]);
        binary(u.op(), x, &full(joined, u)?)
    }

    /// x << 0 => x, x >> 0 => x
    Int shift_by_zero [shl shr] (u) {
        let (x, c) = right_constant(u)?;
        require(c.bits() == 0)?;
        Ok(x.clone())
    }

    // ---- conversions ----

    /// cast(x) => x if x has that dtype, bitcast(x) the same
    Any cast_same [cast bitcast] (u) {
        let x = &u.src()[0];
        require(x.dtype() == u.dtype())?;
        Ok(x.clone())
    }

    /// cast(cast(x)) => cast(x) if the first loses nothing that the second keeps
    Any cast_cast [cast] (u) {
        let inner = &u.src()[0];
        require(matches!(inner.op(), Op::Cast(_)))?;
        let x = &inner.src()[0];
        require(cast_is_direct(x.dtype(), inner.dtype(), u.dtype()))?;
        Ok(x.cast(u.dtype())?)
    }
}

/// `(x, c)` of an integer sum `x + c`, the constant as a node.
fn sum_with_constant(u: &UOp) -> Option<(&UOp, &UOp)> {
    let [x, c] = u.src() else { return None };
    (*u.op() == Op::Add && constant(c).is_some()).then_some((x, c))
}

/// How many nodes are looked at for a sign.
const FEW: usize = 32;

/// True if no element is -0.0, as far as can be told from what it is made of.
fn is_never_minus_zero(u: &UOp) -> bool {
    let mut pending: SmallVec<[&UOp; 8]> = SmallVec::from_slice(&[u]);
    let mut visits = 0;
    while let Some(u) = pending.pop() {
        visits += 1;
        match (u.op(), u.src()) {
            _ if visits > FEW => return false,
            (Op::Const(c), _) if *c != Scalar::identity(ReduceOp::Add, c.dtype()) => {}
            // Never negative, or a number that has no -0.
            (Op::Exp | Op::Exp2, _) => {}
            (Op::Cast(_), [x]) if !x.dtype().is_float() => {}
            (Op::Mul, [a, b]) if a == b => {}
            // Opposite numbers add up to +0.0, and a sum that begins at +0.0 stays above -0.0.
            (Op::Add, [_, c]) if constant(c).is_some_and(|c| c.bits() == 0) => {}
            (
                Op::Reduce {
                    fold: Fold::Chain, ..
                },
                _,
            ) => {}
            (Op::Add | Op::Max, [a, b]) | (Op::Where, [_, a, b]) => pending.extend([a, b]),
            (Op::Sqrt | Op::Stage(_), [x]) => pending.push(x),
            (op, [x]) if op.is_movement() => pending.push(x),
            _ => return false,
        }
    }
    true
}

/// x of `x * -1`.
fn negated(u: &UOp) -> Option<&UOp> {
    let [x, c] = u.src() else { return None };
    let minus_one = Scalar::from_i128(u.dtype(), -1);
    (*u.op() == Op::Mul && constant(c) == Some(minus_one)).then_some(x)
}

/// True if going from `from` by `mid` to `to` gives what going directly gives.
fn cast_is_direct(from: DType, mid: DType, to: DType) -> bool {
    if from.is_int() && mid.is_int() && to.is_int() && mid.bits() >= to.bits() {
        // The low bits survive both conversions.
        return true;
    }
    // An integer wraps in a narrower integer, but saturates once it is a float.
    holds_all(from, mid) && !(from.is_int() && mid.is_float() && to.is_int())
}

/// True if every value of `from` is one of `to`.
fn holds_all(from: DType, to: DType) -> bool {
    match (from.int_range(), to.int_range()) {
        (Some(a), Some(b)) => b.0 <= a.0 && a.1 <= b.1,
        (Some(a), None) => a.1 < 1 << digits(to),
        (None, Some(_)) => false,
        (None, None) => {
            from == to || matches!(to, DType::F64) || (to == DType::F32 && from.size() == 2)
        }
    }
}

/// Bits of a float's significand, the hidden one included: integers below 2 to this are exact.
fn digits(float: DType) -> u32 {
    match float {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    }
}
