//! Index expressions as sums of ranges times constants, and the simplification of what schedules
//! build.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::nest::{is_range, ranges_of};
use crate::error::Result;
use crate::ir::bounds::Bounds;
use crate::ir::visit::{substitute, toposort};
use crate::ir::{Op, UOp};
use crate::rewrite::{Limits, RuleSet, rewrite, rewrite_assuming};
use crate::rules;

static RULES: LazyLock<RuleSet> = LazyLock::new(rules::scalar_rules);

/// By how much an index grows when the range does by one; `None` if it does not grow evenly.
pub fn stride(index: &UOp, range: &UOp) -> Option<i64> {
    let mut known: FxHashMap<UOp, Option<i64>> = FxHashMap::default();
    for u in toposort(std::slice::from_ref(index)) {
        let of = |k: usize| known[&u.src()[k]];
        let found = match u.op() {
            _ if u == *range => Some(1),
            Op::Range { .. } | Op::Const(_) => Some(0),
            Op::Add => of(0).zip(of(1)).map(|(a, b)| a + b),
            Op::Mul => match (u.src()[0].op(), u.src()[1].op()) {
                (_, Op::Const(c)) => of(0).map(|a| a * c.as_i128() as i64),
                (Op::Const(c), _) => of(1).map(|a| a * c.as_i128() as i64),
                _ => (0..2).all(|k| of(k) == Some(0)).then_some(0),
            },
            _ => (0..u.src().len()).all(|k| of(k) == Some(0)).then_some(0),
        };
        known.insert(u, found);
    }
    known[index]
}

/// The strides along a range of all loads below a value, of its gates' absence: `None` where a
/// load does not move evenly.
pub fn load_strides(value: &UOp, range: &UOp) -> Vec<Option<i64>> {
    let nodes = toposort(std::slice::from_ref(value));
    let loads = nodes.iter().filter(|u| matches!(u.op(), Op::Load));
    loads.map(|u| stride(&u.src()[1], range)).collect()
}

/// Expressions in normal form.
///
/// # Errors
/// Never for well-typed expressions.
pub fn simplify(roots: &[UOp]) -> Result<Vec<UOp>> {
    Ok(rewrite(roots, &RULES, &Limits::default(), None)?.roots)
}

/// Expressions in a normal form that they have where the bounds hold.
///
/// # Errors
/// Never for well-typed expressions.
pub fn simplify_under(roots: &[UOp], bounds: Bounds) -> Result<Vec<UOp>> {
    let limits = Limits::default();
    Ok(rewrite_assuming(roots, &RULES, &limits, None, bounds)?.roots)
}

/// Expressions with nodes replaced, in normal form.
///
/// # Errors
/// When a consumer does not accept a replacement.
pub fn replaced(roots: &[UOp], replace: &FxHashMap<UOp, UOp>) -> Result<Vec<UOp>> {
    simplify(&substitute(roots, replace)?)
}

/// The index in a row-major shape of a position, as [`UOp`]s; the first digit is not bounded.
///
/// # Errors
/// Never for a position of an index dtype.
pub fn digits(flat: &UOp, extents: &[usize]) -> Result<Vec<UOp>> {
    let constant = |n: usize| UOp::int(n as i64, flat.dtype());
    let mut digits = Vec::with_capacity(extents.len());
    let mut below: usize = extents.iter().product();
    for (k, &extent) in extents.iter().enumerate() {
        below /= extent;
        let mut digit = flat.clone();
        if below > 1 {
            digit = digit.floordiv(&constant(below))?;
        }
        if k > 0 {
            digit = digit.floormod(&constant(extent))?;
        }
        digits.push(digit);
    }
    Ok(digits)
}

/// `a * n + b`.
///
/// # Errors
/// Never for index dtypes.
pub fn linear(a: &UOp, n: usize, b: &UOp) -> Result<UOp> {
    a.mul(&UOp::int(n as i64, a.dtype()))?.add(b)
}

/// The value with every load below it gated, beside the gate it has; `except` stays as it is.
///
/// # Errors
/// Never for a bool.
pub fn gated(value: &UOp, gate: &UOp, except: Option<&UOp>) -> Result<UOp> {
    let mut new: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in toposort(std::slice::from_ref(value)) {
        if is_range(&u) || Some(&u) == except {
            new.insert(u.clone(), u);
            continue;
        }
        let src: Vec<UOp> = u.src().iter().map(|s| new[s].clone()).collect();
        let made = match u.op() {
            Op::Load => {
                let both = src.get(2).map_or(Ok(gate.clone()), |g| g.and(gate))?;
                src[0].load(&src[1], Some(&both))?
            }
            _ => u.with_src(&src)?,
        };
        new.insert(u, made);
    }
    Ok(new[value].clone())
}

/// Whether an expression names a range.
pub fn names(u: &UOp, range: &UOp) -> bool {
    ranges_of(u).contains(range)
}
