//! The layout of everything that is no matrix product: which loops run in vector lanes, which are
//! shared out among threads.
//!
//! Statements that share their outermost loop are laid out together. Loops that run along memory
//! that lies in one piece become one. Then either each statement takes the best of its own loops
//! for vectors ([`rows`](super::reduce)), or all take one that they share
//! ([`columns`](super::columns)), whatever costs less by the strides of what is read.

use std::ops::Range;

use super::columns::columns;
use super::cost::{Cost, PIECE_WORK, SHARED_WORK, runs};
use super::depend::common;
use super::elementwise::single;
use super::nest::{Nest, Statement, exec_of, extent_of};
use super::reduce::{fills_vectors, reduces_by, rows, tree_apart};
use super::rewrite::{
    Outcome, Refusal, Tail, attempt, merge, partition, set_exec, set_space, split, tried,
};
use super::scatter::{is_scatter, scatter};
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::op::{Exec, Op, Space};
use crate::machine::Machine;

/// Iterations that a loop needs so that its threads finish at about the same time.
const ENOUGH: usize = 8;
/// Pieces that a loop is cut into at most, so that handing them out costs little.
const MOST_PIECES: usize = 2048;
/// Cycles to halve the lanes of a vector once, and down to a single one.
const STEP: f64 = 6.0;
const TREE: f64 = 4.0 * STEP;

/// Lays out all statements that have not been laid out yet.
///
/// # Errors
/// Never for a verified graph.
pub fn lay_out(nest: &mut Nest, machine: &Machine) -> Result<()> {
    let mut known = settled(nest);
    for m in nest.scratch() {
        // Folds that stand in no loop of a group.
        if m.scope.is_empty() && !m.named.iter().any(|&k| known[k]) {
            tree_apart(nest, &m.local)?;
            known = settled(nest);
        }
    }
    let settled = known;
    for group in groups(nest).into_iter().rev() {
        if group.clone().any(|k| settled[k]) {
            continue;
        }
        // From the last group to the first, so that the positions of those to come stay.
        merge_all(nest, &group)?;
        match group.len() {
            1 if is_scatter(&nest.statements[group.start]) => {
                scatter(nest, group.start, machine)?;
            }
            1 => single(nest, group.start, machine)?,
            _ => together(nest, &group, machine)?,
        }
    }
    Ok(())
}

/// Lays out the statements from `from` on, which share their first `depth` loops, inside of these.
///
/// # Errors
/// Never for a verified graph.
pub fn lay_out_inside(nest: &mut Nest, from: usize, depth: usize, machine: &Machine) -> Result<()> {
    let mut last = nest.statements.len();
    for k in (from..last).rev() {
        let shares = |a: &Statement, b: &Statement| common(&a.ranges, &b.ranges) > depth;
        if k > from && shares(&nest.statements[k - 1], &nest.statements[k]) {
            continue;
        }
        let group = k..last;
        last = k;
        merge_all(nest, &group)?;
        match group.len() {
            1 => single(nest, k, machine)?,
            _ => together(nest, &group, machine)?,
        }
    }
    Ok(())
}

/// Statements that a schedule for contractions has laid out: they run in vectors or threads, or
/// exchange scratch memory with such.
fn settled(nest: &Nest) -> Vec<bool> {
    let laid_out = |r: &UOp| matches!(exec_of(r), Exec::Vector | Exec::Thread);
    let mut settled: Vec<bool> = (nest.statements.iter())
        .map(|s| s.ranges.iter().any(laid_out))
        .collect();
    let named: Vec<Vec<usize>> = nest.scratch().into_iter().map(|m| m.named).collect();
    let mut grew = true;
    while grew {
        grew = false;
        for users in &named {
            if users.iter().any(|&k| settled[k]) && !users.iter().all(|&k| settled[k]) {
                users.iter().for_each(|&k| settled[k] = true);
                grew = true;
            }
        }
    }
    settled
}

/// Neighbours that share their outermost loop.
fn groups(nest: &Nest) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for k in 0..nest.statements.len() {
        let shares =
            k > 0 && common(&nest.statements[k - 1].ranges, &nest.statements[k].ranges) > 0;
        match groups.last_mut() {
            Some(last) if shares => last.end = k + 1,
            _ => groups.push(k..k + 1),
        }
    }
    groups
}

/// Merges loops as long as there are two that run along one piece of memory.
fn merge_all(nest: &mut Nest, group: &Range<usize>) -> Result<()> {
    let mut at = group.start;
    let mut depth = 0;
    while at < group.end {
        let ranges = &nest.statements[at].ranges;
        let Some((outer, inner)) = ranges.get(depth).zip(ranges.get(depth + 1)) else {
            (at, depth) = (at + 1, 0);
            continue;
        };
        let (outer, inner) = (outer.clone(), inner.clone());
        let serial = exec_of(&outer) == Exec::Serial && exec_of(&inner) == Exec::Serial;
        if serial && tried(merge(nest, &outer, &inner))?.is_some() {
            depth = depth.saturating_sub(1);
        } else {
            depth += 1;
        }
    }
    Ok(())
}

/// The loops that all statements of a group share.
pub(super) fn shared(nest: &Nest, group: &Range<usize>) -> Vec<UOp> {
    let mut shared = nest.statements[group.start].ranges.clone();
    for s in &nest.statements[group.clone()] {
        shared.truncate(common(&shared, &s.ranges));
    }
    shared
}

/// Lays out statements that share loops.
fn together(nest: &mut Nest, group: &Range<usize>, machine: &Machine) -> Result<()> {
    let shared = shared(nest, group);
    let statements = nest.statements[group.clone()].iter();
    let costs: Vec<(&Statement, Cost)> = statements.map(|s| (s, Cost::of(s, machine))).collect();
    let own = costs
        .iter()
        .map(|(s, c)| c.runs * best_own(s, c, shared.len()));
    let apart: f64 = own.sum();
    let mut best: Option<(UOp, f64)> = None;
    // Loops around other statements as well have been laid out with those.
    let inside = |r: &&UOp| nest.users(r).iter().all(|k| group.contains(k));
    for r in shared.iter().filter(inside) {
        let in_lanes = |c: &Cost| c.vector(r).unwrap_or(c.scalar * 2.0);
        let cost: f64 = costs.iter().map(|(_, c)| c.runs * in_lanes(c)).sum();
        if best.as_ref().is_none_or(|(_, least)| cost < *least) {
            best = Some((r.clone(), cost));
        }
    }
    let cheaper = |cost: f64| nest.choice.shared.unwrap_or(cost < apart);
    if let Some((r, cost)) = best
        && cheaper(cost)
        && columns(nest, group, &r, cost, machine)?
    {
        return Ok(());
    }
    let mut group = group.clone();
    if !share_out(nest, &group, apart)? {
        let heavy = |k: &usize| runs(&nest.statements[*k]);
        let heaviest = group.clone().max_by(|a, b| heavy(a).total_cmp(&heavy(b)));
        let added = heaviest.map_or(Ok(0), |k| cut(nest, k, apart))?;
        if added > 0 {
            group.end += added;
            share_out(nest, &group, apart)?;
        }
    }
    rows(nest, &group, machine)
}

/// Cycles of one run of a statement in the best of its own loops, or as a scalar.
fn best_own(s: &Statement, cost: &Cost, shared: usize) -> f64 {
    let own = s.ranges[shared.min(s.ranges.len())..].iter();
    let legal = own.filter(|r| fills_vectors(s, r));
    // Halves of a tree wait for each other.
    let halves = s.loads().iter().any(|l| l.src()[0] == s.memory);
    legal
        .filter_map(|r| {
            let tree = match (reduces_by(s, r), halves) {
                (Some(true), _) => TREE,
                (_, true) => STEP,
                _ => 0.0,
            };
            let n = extent_of(r).unwrap_or(1) as f64;
            Some(cost.vector(r)? + tree / n)
        })
        .fold(cost.scalar, f64::min)
}

/// Runs a loop of the group on threads, if the work is worth it.
pub(super) fn share_out(nest: &mut Nest, group: &Range<usize>, work: f64) -> Result<bool> {
    if work < SHARED_WORK {
        return Ok(false);
    }
    let statements = nest.statements[group.clone()].iter();
    let heaviest = statements.max_by(|a, b| runs(a).total_cmp(&runs(b)));
    let mut candidates: Vec<UOp> = heaviest.map_or(Vec::new(), |s| s.ranges.clone());
    candidates.retain(|r| exec_of(r) == Exec::Serial && extent_of(r).is_some_and(|n| n > 1));
    // The outermost loop that has enough iterations, else the one that has most.
    let extent = |r: &UOp| extent_of(r).unwrap_or(1);
    let (mut enough, mut few): (Vec<UOp>, Vec<UOp>) =
        candidates.into_iter().partition(|r| extent(r) >= ENOUGH);
    few.sort_by_key(|r| std::cmp::Reverse(extent(r)));
    enough.append(&mut few);
    for r in enough {
        let around: f64 = outside(nest, &r).iter().map(|r| extent(r) as f64).product();
        if work / around < SHARED_WORK / 2.0 {
            continue;
        }
        let each = work / around / extent(&r) as f64;
        if tried(on_threads(nest, &r, each))?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Cuts a long reduction in any order into parts for threads. How many statements were added: the
/// first one belongs to the parts, the others come after them.
pub(super) fn cut(nest: &mut Nest, k: usize, work: f64) -> Result<usize> {
    let s = &nest.statements[k];
    let scope = nest.scope(&s.memory).len();
    let Some(range) = s.ranges.get(scope).cloned() else {
        return Ok(0);
    };
    let around: f64 = s.ranges[..scope]
        .iter()
        .map(|r| extent_of(r).unwrap_or(1) as f64)
        .product();
    let Some(n) = extent_of(&range).filter(|_| work / around >= SHARED_WORK) else {
        return Ok(0);
    };
    let each = work / around / n as f64;
    let least = (nest.choice.scaled(PIECE_WORK) / each) as usize;
    let piece = least.max(n.div_ceil(MOST_PIECES)).min(n.div_ceil(ENOUGH));
    let piece = piece.next_power_of_two() / 2;
    if piece < 2 {
        return Ok(0);
    }
    let done = attempt(nest, |nest| {
        let parts = split(nest, &range, piece, Tail::Peel)?;
        partition(nest, k, &parts.outer)?;
        Ok(2 + parts.rest.len())
    });
    Ok(tried(done)?.unwrap_or(0))
}

fn outside(nest: &Nest, range: &UOp) -> Vec<UOp> {
    let Some(&k) = nest.users(range).first() else {
        return Vec::new();
    };
    let ranges = nest.statements[k].ranges.iter();
    ranges.take_while(|r| *r != range).cloned().collect()
}

/// Hands the iterations of a loop to threads, in pieces of some microseconds. `each` is the work
/// of one.
pub(super) fn on_threads(nest: &mut Nest, range: &UOp, each: f64) -> Outcome<UOp> {
    let n = extent_of(range).ok_or(Refusal::Illegal("the extent is no constant"))?;
    let mut piece = (nest.choice.scaled(PIECE_WORK) / each.max(0.01)).ceil() as usize;
    piece = piece
        .max(n.div_ceil(MOST_PIECES))
        .min(n.div_ceil(ENOUGH))
        .max(1);
    // Pieces of one length make shorter code.
    if let Some(even) = (piece.div_ceil(2)..=piece)
        .rev()
        .find(|p| n.is_multiple_of(*p))
    {
        piece = even;
    } else if piece >= 16 {
        // Neighbouring pieces do not write to one line of the cache.
        piece = piece.next_multiple_of(16);
    }
    attempt(nest, |nest| {
        let outer = match piece {
            1 => range.clone(),
            _ => split(nest, range, piece, Tail::Short)?.outer,
        };
        let users = nest.users(&outer);
        for m in nest.scratch() {
            let Op::Local { space, .. } = *m.local.op() else {
                continue;
            };
            let inside = m.scope.contains(&outer);
            let named = m.named.iter().any(|k| users.contains(k));
            if inside && space == Space::Arena {
                set_space(nest, &m.local, Space::Cache)?;
            } else if named && !inside {
                set_space(nest, &m.local, Space::Arena)?;
            }
        }
        set_exec(nest, &outer, Exec::Thread)
    })
}
