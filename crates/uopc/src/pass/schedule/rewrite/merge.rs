//! Merge: two loops become one, so that a tensor that lies in one piece is one long loop
//! (elsewhere: loop coalescing, flattening).

use rustc_hash::{FxHashMap, FxHashSet};

use super::split::replace;
use super::{Outcome, Refusal, attempt, require};
use crate::ir::affine::Linear;
use crate::ir::visit::{Graph, substitute};
use crate::ir::{DType, Op, Scalar, UOp};
use crate::pass::schedule::depend::extent_names;
use crate::pass::schedule::nest::{Nest, exec_of, extent_of, is_range};

/// Makes one loop of a range and the one right inside it, in all statements that list them.
///
/// The order of iterations stays, so this is always legal; but it is made only where each
/// expression that names one of them names both, as digits of one number.
///
/// # Errors
/// Where the loops are not one right inside the other everywhere, run differently, have extents
/// that are no constants, or are named apart.
pub fn merge(nest: &mut Nest, outer: &UOp, inner: &UOp) -> Outcome<UOp> {
    let constant = |r| extent_of(r).ok_or(Refusal::Illegal("the extent is no constant"));
    let (n, m) = (constant(outer)?, constant(inner)?);
    require(exec_of(outer) == exec_of(inner), "both loops run alike")?;
    let users = nest.users(outer);
    require(users == nest.users(inner), "each statement has both")?;
    let dtype = outer.dtype();
    let total = n.saturating_mul(m);
    let fits = dtype != DType::I32 || total <= i32::MAX as usize;
    require(fits && dtype == inner.dtype(), "the index would overflow")?;
    for &k in &users {
        let ranges = &nest.statements[k].ranges;
        let at = ranges.iter().position(|r| r == outer).unwrap_or(0);
        require(
            ranges.get(at + 1) == Some(inner),
            "one is right inside the other",
        )?;
        let depends = |r: &UOp| extent_names(r, outer) || extent_names(r, inner);
        require(!ranges.iter().any(depends), "an extent depends on them")?;
    }
    attempt(nest, |nest| {
        let merged = nest.count(total, dtype, exec_of(outer))?;
        for &k in &users {
            let map = joined(nest, k, outer, inner, m, &merged)?;
            nest.substitute(k, &map)?;
            replace(nest, k, outer, &merged, std::slice::from_ref(&merged))?;
            nest.statements[k].ranges.retain(|r| r != inner);
        }
        Ok(merged)
    })
}

/// What takes the place of each expression of a statement that names one of the ranges.
fn joined(
    nest: &Nest,
    k: usize,
    outer: &UOp,
    inner: &UOp,
    m: usize,
    merged: &UOp,
) -> Outcome<FxHashMap<UOp, UOp>> {
    let roots = nest.statements[k].roots();
    let graph = Graph::new(&roots);
    let is_sum = |u: &UOp| {
        let by_constant = || u.src().iter().any(|s| matches!(s.op(), Op::Const(_)));
        *u.op() == Op::Add || (*u.op() == Op::Mul && by_constant())
    };
    // A sum is looked at as a whole, at the node that reads it.
    let mut whole: FxHashSet<&UOp> = roots.iter().collect();
    for u in graph.nodes.iter().filter(|u| !is_range(u)) {
        let part = |s: &UOp| is_sum(u) && (is_sum(s) || is_range(s));
        whole.extend(u.src().iter().filter(|s| !s.dtype().is_float() && !part(s)));
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in graph.nodes.iter().filter(|u| whole.contains(u)) {
        if !is_range(u) && !is_sum(u) {
            continue;
        }
        let mut sum = Linear::of(u);
        let (a, b) = (sum.coefficient(outer), sum.coefficient(inner));
        require(a == b.wrapping_mul(m as i128), "they are named apart")?;
        if b != 0 {
            sum.terms.retain(|(term, _)| term != outer && term != inner);
            // Sums below its other terms have been met before.
            let terms: Vec<UOp> = sum.terms.iter().map(|(term, _)| term.clone()).collect();
            for (term, new) in sum.terms.iter_mut().zip(substitute(&terms, &map)?) {
                term.0 = new;
            }
            sum.terms.push((merged.clone(), b));
            map.insert(u.clone(), build(&sum, u.dtype())?);
        }
    }
    Ok(map)
}

/// A sum as an expression; it wraps as its dtype does.
fn build(sum: &Linear, dtype: DType) -> crate::error::Result<UOp> {
    let number = |value| UOp::constant(Scalar::from_i128(dtype, value));
    let mut whole = number(sum.constant);
    for (k, (term, factor)) in sum.terms.iter().rev().enumerate() {
        let scaled = match factor {
            1 => term.clone(),
            _ => term.mul(&number(*factor))?,
        };
        whole = match k {
            0 if sum.constant == 0 => scaled,
            _ => scaled.add(&whole)?,
        };
    }
    Ok(whole)
}
