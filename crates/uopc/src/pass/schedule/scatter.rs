//! Statements that combine into places which are read from memory: the rows of a scatter-add.
//!
//! A row is combined in vectors. Rows that meet must do so in order, so they can't be handed out to
//! threads; places can. Each of a number of owners, which follows from shapes alone, goes through all
//! rows and takes those whose places are its own: every second, every fourth and so on, since
//! neighbouring places are often alike in how many rows they get. That costs each owner a test for
//! every row, so there are no more owners than what rows cost can pay for. Where there are few places
//! and long rows, threads take pieces of the rows instead.

use super::affine::stride;
use super::cost::{Cost, SHARED_WORK};
use super::nest::{Nest, Statement, extent_of};
use super::reduce::{fills_vectors, vectorise};
use super::rewrite::{Outcome, Refusal, Tail, attempt, own, reorder, set_exec, split, tried};
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::op::{Combine, Exec, Op};
use crate::ir::visit::toposort;
use crate::machine::Machine;

/// Owners at most: each of them tests all rows.
const MOST_OWNERS: usize = 16;
/// Elements of a piece of a row at least: threads do not write to one line of the cache.
const LINE: usize = 64;
/// Cycles of the test whether a row is one's own.
const TEST: f64 = 4.0;
/// Cycles until the first element of a row has come from memory.
const MISS: f64 = 60.0;

/// Whether a statement combines into places that are read from memory.
pub fn is_scatter(s: &Statement) -> bool {
    let reads = |u: &UOp| matches!(u.op(), Op::Load);
    s.combine != Combine::Set && toposort(std::slice::from_ref(&s.index)).iter().any(reads)
}

/// Lays out such a statement, which shares no loop.
///
/// # Errors
/// Never for a verified graph.
pub fn scatter(nest: &mut Nest, k: usize, machine: &Machine) -> Result<()> {
    let s = &nest.statements[k];
    let of = Cost::of(s, machine);
    let within = |r: &&UOp| stride(&s.index, r).is_some();
    let inside: Vec<UOp> = s.ranges.iter().filter(within).cloned().collect();
    let length: f64 = inside
        .iter()
        .map(|r| extent_of(r).unwrap_or(1) as f64)
        .product();
    let mut best: Option<(UOp, f64)> = None;
    for r in inside.iter().rev().filter(|r| fills_vectors(s, r)) {
        if let Some(cost) = of.vector(r)
            && best.as_ref().is_none_or(|(_, least)| cost < *least)
        {
            best = Some((r.clone(), cost));
        }
    }
    let each = best.as_ref().map_or(of.scalar, |(_, cost)| *cost);
    let (places, bytes) = match *s.memory.op() {
        Op::Param { n, dtype, .. } | Op::Local { n, dtype, .. } => {
            (n / (length as usize).max(1), n * dtype.size())
        }
        _ => (1, 0),
    };
    let far = if bytes > machine.l2 { MISS } else { 0.0 };
    let row = length * each + far;
    let rows = of.runs / length.max(1.0);
    if rows * row >= SHARED_WORK {
        let pays = (row / TEST) as usize;
        let owners = pays.min(MOST_OWNERS).min(places / 2);
        let shared = match owners {
            0 | 1 => false,
            _ => tried(own(nest, k, 1 << owners.ilog2()))?.is_some(),
        };
        if !shared && let Some(r) = inside.first() {
            tried(attempt(nest, |nest| by_columns(nest, k, r, of.lanes)))?;
        }
    }
    if let Some((axis, _)) = best {
        let ranges = &nest.statements[k].ranges;
        // Of a loop that threads have pieces of, what is left is the innermost.
        let axis = match ranges.contains(&axis) {
            true => axis,
            false => ranges.last().cloned().unwrap_or(axis),
        };
        vectorise(nest, k, &axis, machine)?;
    }
    Ok(())
}

/// Hands pieces of all rows to threads, of whole vectors each.
fn by_columns(nest: &mut Nest, k: usize, r: &UOp, lanes: usize) -> Outcome<()> {
    let n = extent_of(r).ok_or(Refusal::Illegal("the extent is no constant"))?;
    let piece = n.div_ceil(MOST_OWNERS).next_multiple_of(lanes.max(LINE));
    let tail = match n.is_multiple_of(piece) {
        true => Tail::Exact,
        false => Tail::Gate,
    };
    let parts = split(nest, r, piece, tail)?;
    let mut order = nest.statements[k].ranges.clone();
    order.retain(|other| *other != parts.outer && *other != parts.inner);
    order.insert(0, parts.outer.clone());
    order.push(parts.inner);
    reorder(nest, k, &order)?;
    set_exec(nest, &parts.outer, Exec::Thread)?;
    Ok(())
}
