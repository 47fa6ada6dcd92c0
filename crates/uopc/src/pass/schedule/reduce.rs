//! Each statement of a group in vectors over a loop of its own: rows that are mapped, summed in
//! the sixteen lanes of their fold, or searched for their maximum.

use std::ops::Range;

use super::cost::Cost;
use super::depend::{accesses, is_ordered, is_register, keyed};
use super::nest::{Nest, Statement, exec_of, extent_of, ranges_of};
use super::rewrite::{
    Outcome, Refusal, Tail, attempt, privatise, reorder, restart, set_exec, split, tried, unit,
};
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::op::{Combine, Exec, Op};
use crate::machine::Machine;

/// Vectors of partial results of a reduction in any order: as many as hide the time of an op.
const PARTIAL: usize = 4;
/// Cycles of a scalar run up to which a statement is copied for its tail.
const CHEAP: f64 = 40.0;

/// Whether lanes of a loop can compute a statement: they write different elements, or partial
/// results may be kept.
pub(super) fn fills_vectors(s: &Statement, range: &UOp) -> bool {
    extent_of(range).is_some_and(|n| n > 1)
        && (keyed(s, range, &[])
            || reduces_by(s, range) == Some(true)
                && !is_ordered(s)
                && matches!(s.memory.op(), Op::Local { .. }))
}

/// Whether a range is missing in the index of a combining statement; `None` for others.
pub(super) fn reduces_by(s: &Statement, range: &UOp) -> Option<bool> {
    (s.combine != Combine::Set).then(|| !ranges_of(&s.index).contains(range))
}

/// Vectorises the statements of a group one by one.
///
/// # Errors
/// Never for a verified graph.
pub fn rows(nest: &mut Nest, group: &Range<usize>, machine: &Machine) -> Result<()> {
    for m in nest.scratch() {
        if m.named.iter().all(|k| group.contains(k)) {
            tree_apart(nest, &m.local)?;
        }
    }
    let mut k = last_of(nest, group);
    while k > group.start {
        k -= 1;
        let s = &nest.statements[k];
        let of = Cost::of(s, machine);
        let own = s.ranges.iter().rev().filter(|r| nest.users(r).len() == 1);
        let mut best: Option<(UOp, f64)> = None;
        for r in own.filter(|r| fills_vectors(s, r)) {
            let cost = match exec_of(r) {
                // The lanes of a fold.
                Exec::Unroll => of.vector(r).map(|_| 0.0),
                _ => of.vector(r),
            };
            if let Some(cost) = cost
                && best.as_ref().is_none_or(|(_, least)| cost < *least)
            {
                best = Some((r.clone(), cost));
            }
        }
        if let Some((axis, _)) = best {
            vectorise(nest, k, &axis, machine)?;
        }
    }
    Ok(())
}

/// The end of a group that statements were added to.
fn last_of(nest: &Nest, group: &Range<usize>) -> usize {
    let outer = nest.statements[group.start].ranges.first();
    let users = outer.map_or(Vec::new(), |r| nest.users(r));
    users.last().map_or(group.end, |k| k + 1)
}

/// Lets the tree that halves the lanes of a fold work on a copy of them, so that the lanes
/// themselves stay in whole vectors.
///
/// # Errors
/// Never for a verified graph.
pub fn tree_apart(nest: &mut Nest, local: &UOp) -> Result<()> {
    let named = nest.naming(local);
    let halves = |k: &&usize| {
        let s = &nest.statements[**k];
        s.memory == *local && accesses(s, local).len() > 1
    };
    let n = match local.op() {
        Op::Local { n, .. } if is_register(local) => *n,
        _ => 0,
    };
    if let Some(&at) = named.iter().find(halves).filter(|_| n > 2) {
        tried(restart(nest, local, at, n))?;
    }
    Ok(())
}

/// Runs a statement in lanes of one of its own loops. What is left of the loop, if vectors were
/// made: the loop over them, where there are several.
///
/// # Errors
/// Never for a verified graph.
pub fn vectorise(
    nest: &mut Nest,
    k: usize,
    axis: &UOp,
    machine: &Machine,
) -> Result<Option<Option<UOp>>> {
    let s = &nest.statements[k];
    let Cost { lanes, scalar, .. } = Cost::of(s, machine);
    let reduced = reduces_by(s, axis) == Some(true);
    let cheap = scalar <= CHEAP;
    if reduced {
        return tried(attempt(nest, |nest| partial(nest, k, axis, lanes, machine)));
    }
    tried(attempt(nest, |nest| {
        let mut order = nest.statements[k].ranges.clone();
        if order.last() != Some(axis) {
            order.retain(|r| r != axis);
            order.push(axis.clone());
            reorder(nest, k, &order)?;
        }
        let (steps, _) = in_lanes(nest, axis, lanes, cheap, machine)?;
        Ok(steps)
    }))
}

/// Splits the innermost loop of a statement into vectors. The loop over whole vectors, if there
/// are several, and the one of the lanes.
fn in_lanes(
    nest: &mut Nest,
    axis: &UOp,
    lanes: usize,
    cheap: bool,
    machine: &Machine,
) -> Outcome<(Option<UOp>, UOp)> {
    let n = extent_of(axis).ok_or(Refusal::Illegal("the extent is no constant"))?;
    let sums = nest
        .users(axis)
        .into_iter()
        .find_map(|k| sums(&nest.statements[k]));
    let width = lanes.min(sums.unwrap_or(n.next_power_of_two()));
    let tail = match (n.is_multiple_of(width), machine.masks || sums.is_some()) {
        (true, _) => Tail::Exact,
        (false, true) => Tail::Gate,
        (false, false) => Tail::Peel,
    };
    let pieces = split(nest, axis, width, tail)?;
    let lane = set_exec(nest, &pieces.inner, Exec::Vector)?;
    let count = extent_of(&pieces.outer).unwrap_or(1);
    if count == 1 {
        unit(nest, &pieces.outer)?;
        return Ok((None, lane));
    }
    if tail == Tail::Gate && cheap {
        // Gates are true in all vectors but the last, which gets a statement of its own.
        let whole = split(nest, &pieces.outer, count - 1, Tail::Peel)?;
        unit(nest, &whole.outer)?;
        if count == 2 {
            unit(nest, &whole.inner)?;
            return Ok((None, lane));
        }
        return Ok((Some(whole.inner), lane));
    }
    Ok((Some(pieces.outer), lane))
}

/// The elements of scratch memory in registers that a statement combines into without looking at
/// others of them. All its vectors are of one width then, so that they stay in registers.
fn sums(s: &Statement) -> Option<usize> {
    let plain = s.combine != Combine::Set && accesses(s, &s.memory).len() == 1;
    match s.memory.op() {
        Op::Local { n, .. } if plain && is_register(&s.memory) => Some(*n),
        _ => None,
    }
}

/// A reduction in any order keeps partial results in the lanes of several vectors.
fn partial(
    nest: &mut Nest,
    k: usize,
    axis: &UOp,
    lanes: usize,
    machine: &Machine,
) -> Outcome<Option<UOp>> {
    let n = extent_of(axis).ok_or(Refusal::Illegal("the extent is no constant"))?;
    let s = &nest.statements[k];
    let whole = n / lanes * lanes == n;
    if !machine.masks && !whole {
        return Err(Refusal::Illegal("rows do not fill vectors"));
    }
    let lanes = lanes.min(n.next_power_of_two());
    let mut order = s.ranges.clone();
    order.retain(|r| r != axis);
    order.push(axis.clone());
    reorder(nest, k, &order)?;
    let mut vectors = nest.choice.abreast.unwrap_or(PARTIAL);
    let exact = |vectors: usize| n.is_multiple_of(vectors * lanes);
    while vectors > 1 && (n / lanes < 2 * vectors || !machine.masks && !exact(vectors)) {
        vectors /= 2;
    }
    let tail = match exact(vectors) {
        true => Tail::Exact,
        false => Tail::Gate,
    };
    let pieces = split(nest, axis, vectors * lanes, tail)?;
    let mut copies = Vec::new();
    let mut lane = pieces.inner.clone();
    if vectors > 1 {
        let both = split(nest, &lane, lanes, Tail::Exact)?;
        copies.push(set_exec(nest, &both.outer, Exec::Unroll)?);
        lane = both.inner;
    }
    let lane = set_exec(nest, &lane, Exec::Unroll)?;
    copies.push(lane.clone());
    let single = matches!(nest.statements[k].memory.op(), Op::Local { n: 1, .. });
    let joins = privatise(nest, k, &copies)?;
    // The tree below the width of a vector works on a copy, so that partial results stay whole
    // vectors. A memory of several sums is an array anyway.
    let memory = nest.statements[k].memory.clone();
    let whole = vectors.trailing_zeros() as usize;
    if lanes > 2 && single {
        restart(nest, &memory, joins[whole], lanes)?;
    }
    let mut at = joins.last().map_or(k, |last| last + 1);
    while at > k {
        let last = nest.statements[at].ranges.last().cloned();
        if let Some(r) = last.filter(|r| exec_of(r) == Exec::Unroll && nest.users(r).len() == 1)
            && extent_of(&r).is_some_and(|n| n > 1)
        {
            in_lanes(nest, &r, lanes, false, machine)?;
        }
        at -= 1;
    }
    set_exec(nest, &lane, Exec::Vector)?;
    let count = extent_of(&pieces.outer).unwrap_or(1);
    if count == 1 {
        unit(nest, &pieces.outer)?;
        return Ok(None);
    }
    if tail == Tail::Gate {
        let most = split(nest, &pieces.outer, count - 1, Tail::Peel)?;
        unit(nest, &most.outer)?;
        if count == 2 {
            unit(nest, &most.inner)?;
            return Ok(None);
        }
        return Ok(Some(most.inner));
    }
    Ok(Some(pieces.outer))
}
