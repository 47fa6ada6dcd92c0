//! Statements that stand alone: each element of the result is computed by itself.

use super::affine::stride;
use super::cost::{Cost, PIECE_WORK, SHARED_WORK, bytes};
use super::layout::{cut, on_threads, share_out};
use super::nest::{Nest, extent_of};
use super::reduce::{fills_vectors, rows, vectorise};
use super::rewrite::{Tail, attempt, reorder, split, tried};
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::op::Combine;
use crate::machine::Machine;

/// Rows and columns of a tile in which rows become columns: a line of the cache.
const TURN: usize = 16;
/// Bytes that a thread moves at once.
const PIECE_BYTES: usize = 64 << 10;
/// Cycles for a byte that comes from memory or goes there.
const BYTE: f64 = 0.15;

/// Lays out a statement that shares no loop.
///
/// # Errors
/// Never for a verified graph.
pub fn single(nest: &mut Nest, k: usize, machine: &Machine) -> Result<()> {
    let s = &nest.statements[k];
    let of = Cost::of(s, machine);
    let lanes = of.lanes;
    let mut best: Option<(UOp, f64)> = None;
    // Of equals the innermost.
    for r in s.ranges.iter().rev().filter(|r| fills_vectors(s, r)) {
        if let Some(cost) = of.vector(r)
            && best.as_ref().is_none_or(|(_, least)| cost < *least)
        {
            best = Some((r.clone(), cost));
        }
    }
    let cost = best.as_ref().map_or(of.scalar, |(_, cost)| *cost);
    let work = of.runs * cost.max(bytes(s) * BYTE);
    let Some((axis, _)) = best else {
        share_out(nest, &(k..k + 1), work)?;
        return Ok(());
    };
    if nest.statements[k].combine != Combine::Set {
        let added = match share_out(nest, &(k..k + 1), work)? {
            true => 0,
            false => cut(nest, k, work)?,
        };
        if added > 0 {
            for after in (k + 2..=k + added).rev() {
                single(nest, after, machine)?;
            }
            let parts = k..k + 2;
            share_out(nest, &parts, work)?;
            return rows(nest, &parts, machine);
        }
        vectorise(nest, k, &axis, machine)?;
        return Ok(());
    }
    let turned = turn(nest, k, &axis)?;
    let mut order = nest.statements[k].ranges.clone();
    if !turned && order.last() != Some(&axis) {
        order.retain(|r| *r != axis);
        order.push(axis.clone());
        if tried(reorder(nest, k, &order))?.is_none() {
            return Ok(());
        }
    }
    let axis = nest.statements[k].ranges.last().cloned().unwrap_or(axis);
    let outer = nest.statements[k].ranges[..nest.statements[k].ranges.len() - 1].to_vec();
    let mut shared = work < SHARED_WORK;
    let extent = |r: &UOp| extent_of(r).unwrap_or(1);
    if !shared && outer.iter().any(|r| extent(r) >= 8) {
        shared = share_out(nest, &(k..k + 1), work)?;
    }
    let Some(steps) = vectorise(nest, k, &axis, machine)? else {
        return Ok(());
    };
    if let Some(steps) = steps.filter(|_| !shared) {
        let around: f64 = outer.iter().map(|r| extent(r) as f64).product();
        let n = extent(&steps);
        let vector = (lanes * nest.statements[k].memory.dtype().size()).max(1);
        let piece = (PIECE_BYTES / vector).max(1) as f64;
        // A piece is of so many bytes, or of so much work.
        let each = (work / around / n as f64).max(PIECE_WORK / piece);
        tried(on_threads(nest, &steps, each))?;
    }
    Ok(())
}

/// Where a loop runs along memory that is read and another along memory that is written, goes
/// through both in tiles, so that a line of the cache is used as a whole while it is there.
fn turn(nest: &mut Nest, k: usize, axis: &UOp) -> Result<bool> {
    let s = &nest.statements[k];
    let mut indices: Vec<UOp> = s.loads().iter().map(|l| l.src()[1].clone()).collect();
    indices.push(s.index.clone());
    let crosswise = |r: &&UOp| {
        let along = |index: &UOp| {
            stride(index, r) == Some(1) && stride(index, axis).is_some_and(|s| s.abs() > 8)
        };
        *r != axis && indices.iter().any(along)
    };
    let Some(other) = s.ranges.iter().find(crosswise).cloned() else {
        return Ok(false);
    };
    let large = |r: &UOp| extent_of(r).is_some_and(|n| n >= 2 * TURN);
    if !large(&other) || !large(axis) {
        return Ok(false);
    }
    let done = attempt(nest, |nest| {
        let across = split(nest, &other, TURN, Tail::Short)?;
        let along = split(nest, axis, TURN, Tail::Gate)?;
        let mut order = nest.statements[k].ranges.clone();
        order.retain(|r| *r != along.outer && *r != along.inner && *r != across.inner);
        order.extend([along.outer, across.inner, along.inner]);
        reorder(nest, k, &order)
    });
    Ok(tried(done)?.is_some())
}
