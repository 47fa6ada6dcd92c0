//! All statements of a group in vectors over a loop that they share: sums over the rows of a
//! matrix, column by column.

use std::ops::Range;

use super::cost::{Cost, SHARED_WORK, runs};
use super::depend::{is_register, keyed};
use super::layout::{on_threads, share_out, shared};
use super::nest::{Nest, exec_of, extent_of, ranges_of};
use super::rewrite::{
    Axis, Outcome, Refusal, Tail, attempt, inward, reorder, set_exec, set_space, split, tried, unit,
};
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::op::{Combine, Exec, Op, Space};
use crate::machine::Machine;

/// Elements of scratch memory of one iteration up to which several vectors of columns run side by
/// side, so that one does not wait for the other.
const FEW: usize = 2;
/// Blocks of rows from which on threads take them.
const BLOCKS: usize = 8;
/// Vectors in a row that are written out where masks differ from one to the next, so that masks are
/// constants.
const WRITTEN_OUT: usize = 4;
/// How many vectors run side by side.
const SIDE_BY_SIDE: usize = 4;

/// Lays out a group in vectors of the shared loop `range`. Whether it could be done.
///
/// # Errors
/// Never for a verified graph.
pub fn columns(
    nest: &mut Nest,
    group: &Range<usize>,
    range: &UOp,
    work: f64,
    machine: &Machine,
) -> Result<bool> {
    let Some(n) = extent_of(range) else {
        return Ok(false);
    };
    let lanes = nest.statements[group.clone()].iter();
    let lanes = lanes.map(|s| Cost::of(s, machine).lanes).min().unwrap_or(1);
    if n < lanes && !machine.masks && !n.is_power_of_two() {
        return Ok(false);
    }
    let statements = nest.statements[group.clone()].iter();
    let rows = statements.map(runs).fold(0.0, f64::max) / n as f64;
    let masked = is_masked(nest, group, range);
    let own = own_scratch(nest, range);
    let elements: usize = own.iter().map(count).sum();
    // Rows that do not stay in the second cache are read in long pieces, not vector by vector.
    let size = own.iter().map(|m| m.dtype().size()).max().unwrap_or(4);
    let long = rows * n as f64 * size as f64 > machine.l2 as f64 / 2.0;
    if long && elements >= 8 && n >= 2 * lanes && machine.masks {
        let done = attempt(nest, |nest| {
            pieces(nest, group, range, lanes, work, machine)
        });
        if tried(done)?.is_some() {
            return Ok(true);
        }
    }
    let done = attempt(nest, |nest| {
        let outer = shared(nest, group);
        let alone = outer.len() == 1;
        let mut threads = false;
        if !alone {
            threads = share_out_but(nest, group, range, work)?;
        }
        let mut side_by_side = 1;
        if elements <= FEW {
            side_by_side = nest.choice.abreast.unwrap_or(SIDE_BY_SIDE);
            while side_by_side > 1 && n < side_by_side * lanes {
                side_by_side /= 2;
            }
        }
        let width = (side_by_side * lanes).min(n.next_power_of_two());
        let tail = match (n.is_multiple_of(width), machine.masks) {
            (true, _) => Tail::Exact,
            (false, true) => Tail::Gate,
            (false, false) => Tail::Peel,
        };
        let cut = split(nest, range, width, tail)?;
        if width > lanes {
            let both = split(nest, &cut.inner, lanes, Tail::Exact)?;
            inward(nest, &both.inner, Exec::Vector, Axis::Minor)?;
            inward(nest, &both.outer, Exec::Unroll, Axis::Major)?;
        } else {
            inward(nest, &cut.inner, Exec::Vector, Axis::Minor)?;
        }
        let count = extent_of(&cut.outer).unwrap_or(1);
        if count == 1 {
            unit(nest, &cut.outer)?;
            return Ok(());
        }
        let mut serial = threads || work < SHARED_WORK;
        if !serial {
            let each = work / count as f64;
            serial = tried(on_threads(nest, &cut.outer, each))?.is_none();
        }
        if serial && masked && count <= WRITTEN_OUT {
            tried(set_exec(nest, &cut.outer, Exec::Unroll))?;
        }
        Ok(())
    });
    Ok(tried(done)?.is_some())
}

/// Whether a statement of the group reads under gates that change along a range.
fn is_masked(nest: &Nest, group: &Range<usize>, range: &UOp) -> bool {
    let loads = nest.statements[group.clone()]
        .iter()
        .flat_map(|s| s.loads());
    let mut gates = loads.filter_map(|l| l.src().get(2).cloned());
    gates.any(|gate| ranges_of(&gate).contains(range))
}

/// Shares out another loop of the group than the one for vectors.
fn share_out_but(nest: &mut Nest, group: &Range<usize>, range: &UOp, work: f64) -> Outcome<bool> {
    let outer = shared(nest, group);
    let enough = |r: &&UOp| *r != range && extent_of(r).is_some_and(|n| n >= 8);
    if !outer.iter().any(|r| enough(&r)) {
        return Ok(false);
    }
    Ok(share_out(nest, group, work)?)
}

/// Scratch memory that lives in an iteration of a range.
fn own_scratch(nest: &Nest, range: &UOp) -> Vec<UOp> {
    let mut own = nest.scratch();
    own.retain(|m| m.scope.contains(range));
    own.into_iter().map(|m| m.local).collect()
}

fn count(local: &UOp) -> usize {
    match local.op() {
        Op::Local { n, .. } => *n,
        _ => 0,
    }
}

/// How many blocks of rows there are that are summed apart.
fn blocks(nest: &Nest, range: &UOp) -> usize {
    let users = nest.users(range);
    let heaviest = users.iter().map(|&k| &nest.statements[k]);
    let heaviest = heaviest.max_by(|a, b| runs(a).total_cmp(&runs(b)));
    let inside = heaviest.and_then(|s| s.ranges.iter().skip_while(|r| *r != range).nth(1));
    let shared = inside.filter(|r| nest.users(r).len() > 1);
    shared.and_then(extent_of).unwrap_or(1)
}

/// Reads rows in pieces as long as can be and keeps the partial results of all columns in the
/// cache. Threads take blocks of rows, where there are enough of them, else the lanes of the fold:
/// each is a sum of its own, of every sixteenth row.
fn pieces(
    nest: &mut Nest,
    group: &Range<usize>,
    range: &UOp,
    lanes: usize,
    work: f64,
    machine: &Machine,
) -> Outcome<()> {
    let n = extent_of(range).ok_or(Refusal::Illegal("the extent is no constant"))?;
    let own = own_scratch(nest, range);
    let bytes: usize = own.iter().map(|m| count(m) * m.dtype().size()).sum();
    let size = own.iter().map(|m| m.dtype().size()).max().unwrap_or(4);
    let by_blocks = blocks(nest, range) >= BLOCKS && bytes * n <= machine.l2 / 4;
    let threads = work >= SHARED_WORK;
    let most = match (by_blocks, threads) {
        (true, _) => n,
        (false, true) => machine.l1 * 2 / 3 / size,
        (false, false) => machine.l2 / 4 / bytes.max(1),
    };
    // Pieces of equal length, whole vectors.
    let piece = n.div_ceil(n.div_ceil(most.max(lanes)));
    let parts = split(nest, range, piece.next_multiple_of(lanes), Tail::Gate)?;
    for local in own_scratch(nest, &parts.inner) {
        if is_register(&local) {
            set_space(nest, &local, Space::Cache)?;
        }
    }
    let columns = inward(nest, &parts.inner, Exec::Serial, Axis::Minor)?;
    for c in columns {
        let vector = split(nest, &c, lanes, Tail::Exact)?;
        let lane = set_exec(nest, &vector.inner, Exec::Vector)?;
        for k in nest.users(&lane) {
            // Loops around loops are not written out.
            let unrolled = |r: &&UOp| exec_of(r) == Exec::Unroll;
            let ranges = nest.statements[k].ranges.iter();
            let outer: Vec<UOp> = ranges.filter(unrolled).cloned().collect();
            for r in outer {
                tried(set_exec(nest, &r, Exec::Serial))?;
            }
        }
        tried(unit(nest, &vector.outer))?;
    }
    tried(unit(nest, &parts.outer))?;
    if by_blocks && threads {
        share_out(nest, group, work)?;
    } else if threads {
        for k in group.clone() {
            tried(attempt(nest, |nest| fold_on_threads(nest, k)))?;
        }
    }
    Ok(())
}

/// Lets threads take the lanes of a fold: a statement that sums rows, and not the short one for
/// the last of them.
fn fold_on_threads(nest: &mut Nest, k: usize) -> Outcome<()> {
    let s = &nest.statements[k];
    let scope = nest.scope(&s.memory).len();
    let [rows, lane, ..] = &s.ranges[scope..] else {
        return Err(Refusal::Illegal("it has no loop over rows"));
    };
    let reduces = !ranges_of(&s.index).contains(rows) && keyed(s, lane, &s.ranges[..scope]);
    let fold = s.combine != Combine::Set && reduces && extent_of(lane).is_some_and(|n| n > 1);
    if !fold || exec_of(lane) == Exec::Vector {
        return Err(Refusal::Illegal("it is no fold of rows"));
    }
    let (lane, memory) = (lane.clone(), s.memory.clone());
    let mut order = s.ranges.clone();
    order.swap(scope, scope + 1);
    reorder(nest, k, &order)?;
    set_space(nest, &memory, Space::Arena)?;
    set_exec(nest, &lane, Exec::Thread)?;
    Ok(())
}
