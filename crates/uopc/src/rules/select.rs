//! Comparisons, WHERE, and the gates of memory accesses.

use smallvec::SmallVec;

use super::{constant, full, is_exact, right_constant};
use crate::ir::op::{Combine, Op};
use crate::ir::{DType, Scalar, UOp};
use crate::rewrite::{Miss, found, require};

rule_table! {
    /// Selection in all graphs.
    pub RULES;

    /// x => c if its bounds are c to c
    Int value_known [
        add mul max mulacc floordiv floormod and or xor shl shr where cmplt cmpne cast
    ] (u, bounds) {
        require(is_exact(u) && u.src().iter().all(is_exact))?;
        let value = found(bounds.of(u).value())?;
        full(Scalar::from_i128(u.dtype(), value), u)
    }

    /// x < x => false
    Any cmplt_same [cmplt] (u) {
        require(u.src()[0] == u.src()[1])?;
        full(Scalar::from_bool(false), u)
    }

    /// x != false => x, x != true => x ^ true
    Int cmpne_truth [cmpne] (u) {
        let (x, c) = right_constant(u)?;
        require(x.dtype() == DType::Bool)?;
        if c.as_bool() { Ok(x.logical_not()?) } else { Ok(x.clone()) }
    }

    /// c ? a : b => a if c is true, => b if it is false
    Any where_constant [where] (u) {
        let c = found(constant(&u.src()[0]))?;
        Ok(u.src()[if c.as_bool() { 1 } else { 2 }].clone())
    }

    /// c ? a : a => a
    Any where_same_arms [where] (u) {
        require(u.src()[1] == u.src()[2])?;
        Ok(u.src()[1].clone())
    }

    /// c ? true : false => c, c ? false : true => c ^ true
    Int where_truth [where] (u) {
        require(u.dtype() == DType::Bool)?;
        let (a, b) = (found(constant(&u.src()[1]))?, found(constant(&u.src()[2]))?);
        require(a != b)?;
        let c = &u.src()[0];
        if a.as_bool() { Ok(c.clone()) } else { Ok(c.logical_not()?) }
    }

    /// c ^ true ? a : b => c ? b : a
    Any where_not [where] (u) {
        let c = found(inverted(&u.src()[0]))?;
        Ok(c.where_(&u.src()[2], &u.src()[1])?)
    }

    /// c ? (c ? a : _) : b => c ? a : b, c ? a : (c ? _ : b) => c ? a : b
    Any where_nested [where] (u) {
        let (c, a, b) = (&u.src()[0], &u.src()[1], &u.src()[2]);
        let chosen = |arm: &UOp, k: usize| {
            (*arm.op() == Op::Where && arm.src()[0] == *c).then(|| arm.src()[k].clone())
        };
        let (inner_a, inner_b) = (chosen(a, 1), chosen(b, 2));
        require(inner_a.is_some() || inner_b.is_some())?;
        let (a, b) = (inner_a.unwrap_or(a.clone()), inner_b.unwrap_or(b.clone()));
        Ok(c.where_(&a, &b)?)
    }
}

rule_table! {
    /// Selection in loops.
    pub SCALAR_RULES;

    /// (x & y) & x => x & y
    Int and_repeated [and] (u) {
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let (first, second) = (found(conjuncts(a))?, found(conjuncts(b))?);
        let fresh = second.iter().filter(|c| !first.contains(c));
        let fresh: SmallVec<[&UOp; 16]> = fresh.copied().collect();
        require(fresh.len() < second.len())?;
        let mut all = a.clone();
        for c in fresh {
            all = all.and(c)?;
        }
        Ok(all)
    }

    /// c ? x : 0 => x if x is 0 where c is false, as load(m, i, c) is; c ? 0 : x alike
    Any where_gated [where] (u) {
        let (c, a, b) = (&u.src()[0], &u.src()[1], &u.src()[2]);
        if is_zero(b) {
            let needed = found(conjuncts(c))?;
            require(vanishes(a, |gate| needed.iter().all(|c| gate.contains(c))))?;
            return Ok(a.clone());
        }
        require(is_zero(a))?;
        require(vanishes(b, |gate| gate.iter().any(|g| inverted(g) == Some(c))))?;
        Ok(b.clone())
    }

    /// load(m, i, true) => load(m, i), load(m, i, false) => 0
    Any load_gate_known [load] (u) {
        let [memory, index, gate] = u.src() else {
            return Err(Miss::NoMatch);
        };
        if found(constant(gate))?.as_bool() {
            Ok(memory.load(index, None)?)
        } else {
            full(Scalar::zero(u.dtype()), u)
        }
    }

    /// store(m, i, x, true) => store(m, i, x)
    Any store_gate_true [store] (u) {
        let Op::Store { combine, gated: true } = *u.op() else {
            return Err(Miss::NoMatch);
        };
        let values = if combine == Combine::MulAcc { 2 } else { 1 };
        let gate = found(constant(&u.src()[2 + values]))?;
        require(gate.as_bool())?;
        Ok(u.src()[0].store(&u.src()[1], &u.src()[2..2 + values], combine, None)?)
    }
}

/// The operands of a chain of ANDs, left to right; `None` if there are too many to look through.
pub fn conjuncts(u: &UOp) -> Option<SmallVec<[&UOp; 16]>> {
    const MANY: usize = 64;
    let mut all = SmallVec::new();
    let mut pending: SmallVec<[&UOp; 16]> = SmallVec::from_slice(&[u]);
    while let Some(u) = pending.pop() {
        match (u.op(), u.src()) {
            (Op::And, [a, b]) if pending.len() < MANY => pending.extend([b, a]),
            _ => all.push(u),
        }
        if all.len() > MANY {
            return None;
        }
    }
    Some(all)
}

/// Whether a value is 0, all bits of it, wherever its loads are shut: whether it is made of zeros
/// and of loads with gates that are `shut`, by operations that make 0 of zeros.
fn vanishes(u: &UOp, shut: impl Fn(&[&UOp]) -> bool) -> bool {
    const REACH: usize = 32;
    let mut pending: SmallVec<[&UOp; 8]> = SmallVec::from_slice(&[u]);
    let mut visits = 0;
    while let Some(u) = pending.pop() {
        visits += 1;
        match (u.op(), u.src()) {
            _ if visits > REACH => return false,
            (Op::Load, [_, _, gate]) if conjuncts(gate).is_some_and(|g| shut(&g)) => {}
            (Op::Where, [_, a, b]) => pending.extend([a, b]),
            (Op::Add | Op::Mul | Op::Max, [a, b]) => pending.extend([a, b]),
            (Op::Cast(_), [a]) => pending.push(a),
            _ if is_zero(u) => {}
            _ => return false,
        }
    }
    true
}

/// True for the constant of which all bits are 0.
fn is_zero(u: &UOp) -> bool {
    constant(u) == Some(Scalar::zero(u.dtype()))
}

/// c of `c ^ true`.
pub fn inverted(u: &UOp) -> Option<&UOp> {
    let [c, one] = u.src() else { return None };
    let truth = Some(Scalar::from_bool(true));
    (*u.op() == Op::Xor && constant(one) == truth).then_some(c)
}
