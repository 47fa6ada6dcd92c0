//! A product that the launch itself reads: a piece of it is computed in scratch memory, then the
//! statements that read it run on that piece.
//!
//! All statements share their outer loops. Some iterations of these, as many as keep a piece in the
//! second cache, become one item: its product is a tiled one, and threads take items. Operands are
//! packed once for all items.

use rustc_hash::FxHashMap;

use super::super::affine::{digits, linear, simplify, stride};
use super::super::depend::{common, memories};
use super::super::layout::lay_out_inside;
use super::super::nest::{Nest, exec_of, extent_of, ranges_of};
use super::super::rewrite::{Axis, Outcome, Refusal, Tail, attempt, expand, split, tried};
use super::build::{Builder, SHARED_WORK};
use super::choose::in_vectors;
use super::find::Contraction;
use super::operand::{Layout, Operand, Packing};
use super::tile;
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::op::{Exec, Op, Space};
use crate::ir::visit::substitute;
use crate::machine::Machine;

/// Items that a launch has at least, where its loops have as many iterations.
const ITEMS: usize = 32;
/// The part of the second cache that a piece may fill.
const PART_OF_CACHE: usize = 4;

/// Lays out a launch whose first statements are a product in scratch memory of loops that all
/// statements share. Whether it is one.
///
/// # Errors
/// Never for a verified graph.
pub fn pieces(nest: &mut Nest, machine: &Machine) -> Result<bool> {
    let shared = shared(nest);
    let constant = shared.iter().all(|r| extent_of(r).is_some());
    let serial = shared.iter().all(|r| exec_of(r) == Exec::Serial);
    if shared.is_empty() || !constant || !serial || nest.statements.len() < 3 {
        return Ok(false);
    }
    if Contraction::piece(nest, 0, &shared)?.is_none() {
        return Ok(false);
    }
    let before = nest.statements.clone();
    for alone in [false, true] {
        let cut = tried(attempt(nest, |nest| cut(nest, &shared, alone, machine)))?;
        if let Some((around, inner)) = cut
            && let Some(c) = Contraction::piece(nest, 0, &around)?
            && c.batch.is_empty()
        {
            lay_out(nest, &c, &around, inner, machine)?;
            return Ok(true);
        }
        nest.statements.clone_from(&before);
    }
    Ok(false)
}

/// The loops that all statements share.
fn shared(nest: &Nest) -> Vec<UOp> {
    let mut lists = nest.statements.iter().map(|s| &s.ranges);
    let mut shared = lists.next().cloned().unwrap_or_default();
    for list in lists {
        shared.truncate(common(&shared, list));
    }
    shared
}

/// Cuts the shared loops into items and what an item has inside, and gives the product loops of its
/// own there. The loops over items, and how many loops are inside. `alone` says that an item is one
/// iteration of all shared loops.
fn cut(
    nest: &mut Nest,
    shared: &[UOp],
    alone: bool,
    machine: &Machine,
) -> Outcome<(Vec<UOp>, usize)> {
    let memory = nest.statements[1].memory.clone();
    let bytes = |local: &UOp| match local.op() {
        Op::Local {
            space: Space::Cache,
            dtype,
            n,
            ..
        } => n * dtype.size(),
        _ => 0,
    };
    // What the readers keep besides lives in one iteration of all loops.
    let all: usize = nest.locals().iter().map(bytes).sum();
    let each = bytes(&memory).max(1);
    let most = (machine.l2 / PART_OF_CACHE).saturating_sub(all.saturating_sub(each)) / each;
    let extents: Vec<usize> = shared.iter().filter_map(extent_of).collect();
    let depth = shared.len();
    // The outermost loop of which an item may have an iteration, and how many of these.
    let at = (0..depth).find(|&d| extents[d + 1..].iter().product::<usize>() <= most);
    let at = at.filter(|_| !alone).unwrap_or(depth - 1);
    let outside: usize = extents[..at].iter().product();
    let inside: usize = extents[at + 1..].iter().product();
    let fits = |n: &usize| {
        let items = outside * (extents[at] / n);
        extents[at].is_multiple_of(*n) && n * inside <= most && items >= ITEMS
    };
    let count = (1..=extents[at])
        .rev()
        .find(fits)
        .filter(|_| !alone)
        .unwrap_or(1);
    let mut around = shared[..at].to_vec();
    let mut inner = shared[at + 1..].to_vec();
    if count == 1 {
        around.push(shared[at].clone());
    } else {
        let both = split(nest, &shared[at], count, Tail::Exact)?;
        around.push(both.outer);
        inner.insert(0, both.inner);
    }
    if !inner.is_empty() {
        expand(nest, &memory, &inner, Axis::Major)?;
        apart(nest, &inner)?;
    }
    Ok((around, inner.len()))
}

/// Gives those that read a piece loops of their own in the place of `inner`. Each iteration has its
/// own piece, and nothing else goes from the product to its readers or back.
fn apart(nest: &mut Nest, inner: &[UOp]) -> Outcome<()> {
    let product = memories(&nest.statements[0]);
    let piece = nest.statements[1].memory.clone();
    let mut readers = nest.statements[2..].iter();
    if readers.any(|s| product.contains(&s.memory) || s.memory == piece) {
        return Err(Refusal::Illegal("the product depends on its readers"));
    }
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for r in inner {
        let own = nest.range(&r.src()[0], exec_of(r))?;
        map.insert(r.clone(), own);
    }
    for k in 2..nest.statements.len() {
        nest.substitute(k, &map)?;
    }
    Ok(())
}

/// Writes the statements of an item's product, and lays out those that read it.
fn lay_out(
    nest: &mut Nest,
    c: &Contraction,
    around: &[UOp],
    inner: usize,
    machine: &Machine,
) -> Result<()> {
    let index = c.k.dtype();
    let extents: Vec<usize> = around.iter().filter_map(extent_of).collect();
    let items: usize = extents.iter().product();
    let (lanes, mut tile, mut operands) = in_vectors(c, nest, machine)?;
    // A piece is read again at once: its vectors run along it, whatever packing would cost.
    let along = |o: &Operand| {
        let inner = o.side.last();
        inner.is_some_and(|r| stride(&c.out.index, r) == Some(1))
    };
    if along(&operands[0]) && !along(&operands[1]) {
        operands.reverse();
        let [rows, cols] = &operands;
        tile = tile::tile(rows, cols, c.depth, c.sum.dtype().size(), machine);
    }
    let widths = [tile.rows, tile.vectors * lanes];
    let work = items * operands[0].size * operands[1].size * c.depth;
    let exec = match work >= SHARED_WORK {
        true => Exec::Thread,
        false => Exec::Serial,
    };
    let item = nest.count(items, index, exec)?;
    let stands_for: Vec<(UOp, UOp)> = around
        .iter()
        .cloned()
        .zip(digits(&item, &extents)?)
        .collect();
    let direct = [0, 1].map(|o| {
        let uses = operands[1 - o].size.div_ceil(widths[1 - o]);
        operands[o].is_direct(widths[o], o == 1, uses, c.sum.dtype().size(), machine)
    });
    let mut builder = Builder {
        c,
        lanes,
        tile,
        layouts: [
            Layout::new(&operands[0], widths[0], c.depth, false),
            Layout::new(&operands[1], widths[1], c.depth, true),
        ],
        tiles: [0, 1].map(|o| operands[o].size.div_ceil(widths[o])),
        operands,
        nest,
        statements: Vec::new(),
        index,
        dtype: c.sum.dtype(),
        in_pairs: false,
        cut: 0,
        direct,
        apart: false,
        shared: exec,
        around: vec![item.clone()],
        batch: stands_for.clone(),
        block: None,
        depth: c.depth,
    };
    builder.piece(around, &item)?;
    let product = builder.statements;
    let rest = nest.statements.split_off(c.span.end);
    let from = product.len();
    nest.statements = product;
    nest.statements.extend(rest);
    let replace: FxHashMap<UOp, UOp> = stands_for.into_iter().collect();
    for s in &mut nest.statements[from..] {
        let roots = s.roots();
        let new = simplify(&substitute(&roots, &replace)?)?;
        s.set_roots(&new);
        s.ranges.splice(..around.len(), [item.clone()]);
    }
    lay_out_inside(nest, from, 1 + inner, machine)
}

impl Builder<'_> {
    /// The statements of all pieces: pack both operands, then item by item the sums of all tiles.
    fn piece(&mut self, around: &[UOp], item: &UOp) -> Result<()> {
        let mut memories: [Option<UOp>; 2] = [None, None];
        // The first tile of an item in the packed copy.
        let mut first = [UOp::int(0, self.index), UOp::int(0, self.index)];
        for o in 0..2 {
            if self.direct[o] {
                continue;
            }
            // An operand has a packed copy for each point of those loops that it names.
            let named = ranges_of(&self.operands[o].value);
            let keys: Vec<UOp> = around
                .iter()
                .filter(|r| named.contains(*r))
                .cloned()
                .collect();
            let extents: Vec<usize> = keys.iter().filter_map(extent_of).collect();
            let copies: usize = extents.iter().product();
            let memory = self.nest.local(
                Space::Arena,
                self.dtype,
                copies * self.tiles[o] * self.layouts[o].tile,
            );
            self.pack_copies(o, &memory, &keys, &extents)?;
            let mut at = UOp::int(0, self.index);
            for (key, &extent) in keys.iter().zip(&extents) {
                at = linear(&at, extent, &self.stands_for(key))?;
            }
            first[o] = linear(&at, self.tiles[o], &UOp::int(0, self.index))?;
            memories[o] = Some(memory);
        }
        // Tiles of vectors stay in the first cache while those of rows pass by.
        let t = self.nest.count(self.tiles[1], self.index, Exec::Serial)?;
        let r = self.nest.count(self.tiles[0], self.index, Exec::Serial)?;
        let inside = [item.clone(), t.clone(), r.clone()];
        let tile_at = [r, t];
        let stored = simplify(&[first[0].add(&tile_at[0])?, first[1].add(&tile_at[1])?])?;
        let stored = [stored[0].clone(), stored[1].clone()];
        let sums = self.tile_sums(&memories, &stored, &tile_at, &inside)?;
        self.epilogue(&sums, None, &tile_at, &inside)
    }

    /// What stands for a loop over items.
    fn stands_for(&self, range: &UOp) -> UOp {
        let found = self.batch.iter().find(|(r, _)| r == range);
        found.map_or(range, |(_, digit)| digit).clone()
    }

    /// Packs an operand for all points of some loops.
    fn pack_copies(
        &mut self,
        o: usize,
        memory: &UOp,
        keys: &[UOp],
        extents: &[usize],
    ) -> Result<()> {
        let copies: usize = extents.iter().product();
        let all = self
            .nest
            .count(copies * self.tiles[o], self.index, self.shared)?;
        let shape = [extents, &[self.tiles[o]]].concat();
        let mut at = digits(&all, &shape)?;
        let tile = at.pop().unwrap_or_else(|| all.clone());
        let batch: Vec<(UOp, UOp)> = keys.iter().cloned().zip(at).collect();
        let packing = Packing {
            memory,
            around: std::slice::from_ref(&all),
            stored: &all,
            tile: &tile,
            width: self.width(o),
            first_k: &UOp::int(0, self.index),
            depth: self.depth,
            whole_depth: self.depth,
            batch: &batch,
        };
        let statement = packing.statement(&self.operands[o], &self.layouts[o], self.nest)?;
        self.statements.push(statement);
        Ok(())
    }
}
