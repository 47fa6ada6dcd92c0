//! The statements of a tiled product: pack both operands, run tiles in registers, store them.

use super::super::affine::{digits, gated, linear, replaced, simplify, stride};
use super::super::nest::{Nest, Statement};
use super::choose::{in_tiles_of_pairs, in_vectors};
use super::direct::Position;
use super::dots;
use super::find::Contraction;
use super::operand::{Layout, Operand, Packing};
use super::pairs::{self, Place};
use super::tile::Tile;
use crate::error::Result;
use crate::ir::op::{Combine, Exec, Space};
use crate::ir::{DType, Scalar, UOp};
use crate::machine::Machine;

use rustc_hash::FxHashMap;

/// Multiply-adds from which on a launch is shared out among threads: some 20 microseconds.
pub(super) const SHARED_WORK: usize = 1 << 19;
/// Multiply-adds of one product in a batch up to which a thread computes it alone.
const SMALL_PRODUCT: usize = 1 << 22;
/// Bytes up to which an operand is packed as a whole before the product.
const WHOLE_BYTES: usize = 24 << 20;
/// Parts into which a product is cut at least, where it can be, so that no thread waits long.
const PARTS: usize = 48;

/// Parts that are enough to keep threads busy to the end.
const FEW_PARTS: usize = 16;

/// A product that has been laid out.
pub(super) struct Builder<'a> {
    pub(super) c: &'a Contraction,
    pub(super) nest: &'a mut Nest,
    pub(super) statements: Vec<Statement>,
    /// The dtype of indices.
    pub(super) index: DType,
    /// The dtype of sums.
    pub(super) dtype: DType,
    pub(super) lanes: usize,
    pub(super) tile: Tile,
    /// The factor that is held element by element, and the one that fills vectors.
    pub(super) operands: [Operand; 2],
    pub(super) layouts: [Layout; 2],
    /// Whether tiles of bf16 are multiplied.
    pub(super) in_pairs: bool,
    /// How many tiles each side has.
    pub(super) tiles: [usize; 2],
    /// Which of the two is cut among threads.
    pub(super) cut: usize,
    /// Which of the two are read where they are.
    pub(super) direct: [bool; 2],
    /// Whether the operand that is cut is packed by the thread that uses it.
    pub(super) apart: bool,
    /// The exec of ranges that threads may share.
    pub(super) shared: Exec,
    /// The range over the batch, if there is one, and what it stands for.
    pub(super) around: Vec<UOp>,
    pub(super) batch: Vec<(UOp, UOp)>,
    /// The block of k, if there are several.
    pub(super) block: Option<UOp>,
    /// Elements of k in a block.
    pub(super) depth: usize,
}

/// The statements that compute a contraction.
///
/// # Errors
/// Never for a verified graph.
pub fn build(c: &Contraction, nest: &mut Nest, machine: &Machine) -> Result<Vec<Statement>> {
    let index = c.k.dtype();
    let dtype = c.sum.dtype();
    let depth = c.depth.min(c.block());
    let factors = pairs::narrow(c).filter(|_| machine.bf16_tiles);
    let in_pairs = factors.is_some();
    let (lanes, tile, operands) = match factors {
        Some(factors) => in_tiles_of_pairs(c, factors, nest)?,
        None => in_vectors(c, nest, machine)?,
    };
    let widths = [tile.rows, tile.vectors * lanes];
    let layouts = [
        Layout::new(&operands[0], widths[0], depth, false),
        Layout::new(&operands[1], widths[1], depth, true),
    ];
    let tiles = [0, 1].map(|o| operands[o].size.div_ceil(widths[o]));
    let direct = [0, 1].map(|o| {
        let uses = operands[1 - o].size.div_ceil(widths[1 - o]);
        !in_pairs && operands[o].is_direct(widths[o], o == 1, uses, dtype.size(), machine)
    });
    let extents: Vec<usize> = c
        .batch
        .iter()
        .filter_map(super::super::nest::extent_of)
        .collect();
    let items: usize = extents.iter().product();
    let product = operands[0].size * operands[1].size * c.depth;
    let threaded = product.saturating_mul(items) >= SHARED_WORK;
    let by_item = threaded && items > 1 && product <= SMALL_PRODUCT;
    let exec = |yes: bool| if yes { Exec::Thread } else { Exec::Serial };
    let (mut around, mut batch) = (Vec::new(), Vec::new());
    if items > 1 {
        let item = nest.count(items, index, exec(by_item))?;
        batch = c
            .batch
            .iter()
            .cloned()
            .zip(digits(&item, &extents)?)
            .collect();
        around.push(item);
    }
    let blocks = c.depth.div_ceil(c.block());
    let block = match blocks {
        1 => None,
        _ => Some(nest.count(blocks, index, Exec::Serial)?),
    };
    // An operand that must be packed is cut if the other one is read in place: then each thread packs
    // what it needs, and no thread waits for another.
    let alone = (0..2).find(|&o| !direct[o] && direct[1 - o] && tiles[o] >= FEW_PARTS);
    let cut = alone.unwrap_or(usize::from(operands[1].size > operands[0].size));
    let mut builder = Builder {
        c,
        nest,
        statements: Vec::new(),
        index,
        dtype,
        lanes,
        tile,
        operands,
        layouts,
        in_pairs,
        tiles,
        cut,
        direct,
        apart: false,
        shared: exec(threaded && !by_item),
        around,
        batch,
        block,
        depth,
    };
    let packed = tiles[cut] * builder.packed_tile(cut).bytes();
    builder.apart = !direct[cut] && (packed > WHOLE_BYTES || alone.is_some() && !by_item);
    builder.product(machine, by_item)?;
    Ok(builder.statements)
}

/// A packed tile.
struct PackedTile {
    dtype: DType,
    elements: usize,
}

impl PackedTile {
    fn bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }
}

impl Builder<'_> {
    /// What a tile of an operand is when it is packed.
    fn packed_tile(&self, o: usize) -> PackedTile {
        match self.in_pairs {
            true => PackedTile {
                dtype: pairs::dtype(o),
                elements: pairs::tile_elements(o, self.depth),
            },
            false => PackedTile {
                dtype: self.c.factors[o].dtype(),
                elements: self.layouts[o].tile,
            },
        }
    }

    fn product(&mut self, machine: &Machine, by_item: bool) -> Result<()> {
        let memory = |o: usize, tiles: usize, space: Space, b: &mut Self| {
            let tile = b.packed_tile(o);
            b.nest.local(space, tile.dtype, tiles * tile.elements)
        };
        let common = if by_item { Space::Cache } else { Space::Arena };
        let (cut, other) = (self.cut, 1 - self.cut);
        // Tiles of the side that is cut in one part: the part's operand stays in the second cache, as
        // does the other side's piece, with which the next part goes on.
        let bytes = [0, 1].map(|o| self.packed_tile(o).bytes());
        let most = (machine.l2 / 2 / bytes[cut]).max(1);
        let few = self.shared == Exec::Thread && self.tiles[0] * self.tiles[1] <= FEW_PARTS;
        let in_place = self.direct[cut] || self.apart && self.direct[other];
        let fair = if few {
            1
        } else if in_place {
            self.tiles[cut].div_ceil(FEW_PARTS)
        } else {
            4.max(self.tiles[cut].div_ceil(PARTS))
        };
        let per_part = self.tiles[cut].min(most).min(fair);
        let scaled = self.nest.choice.scaled(per_part as f64) as usize;
        let per_part = scaled.clamp(1, self.tiles[cut]);
        let cut_parts = self.tiles[cut].div_ceil(per_part);
        let other_parts = match self.apart || by_item {
            true => 1,
            false => {
                let held = self.tiles[other].div_ceil((machine.l2 / 8 * 5 / bytes[other]).max(1));
                let shared = PARTS.div_ceil(cut_parts);
                held.max(shared.min(self.tiles[other].div_ceil(2)))
            }
        };
        let per_other = self.tiles[other].div_ceil(other_parts);
        let other_parts = self.tiles[other].div_ceil(per_other);

        let mut memories: [Option<UOp>; 2] = [None, None];
        for o in [other, cut] {
            memories[o] = match (self.direct[o], o == cut && self.apart) {
                (true, _) => None,
                (false, true) => Some(memory(o, per_part, Space::Cache, self)),
                (false, false) => Some(memory(o, self.tiles[o], common, self)),
            };
        }
        let total = match self.block {
            None => None,
            Some(_) => Some(self.total(common)?),
        };
        let mut outer = self.around.clone();
        outer.extend(self.block.clone());
        for o in [other, cut] {
            if let Some(memory) = &memories[o]
                && !(o == cut && self.apart)
            {
                self.pack_all(o, memory, &outer)?;
            }
        }

        let parts = self
            .nest
            .count(cut_parts * other_parts, self.index, self.shared)?;
        // Parts that follow each other share the other side's operand, the longer piece of the two.
        let [other_part, cut_part] =
            [0, 1].map(|i| digits(&parts, &[other_parts, cut_parts]).map(|d| d[i].clone()));
        let (cut_part, other_part) = (cut_part?, other_part?);
        let mut inside = outer.clone();
        inside.push(parts.clone());
        if let (true, Some(part)) = (self.apart, &memories[cut]) {
            let mut around = inside.clone();
            let t = self.part_range(&cut_part, per_part, self.tiles[cut])?;
            around.push(t.clone());
            let tile = linear(&cut_part, per_part, &t)?;
            self.pack(cut, part, &around, &t, &tile)?;
        }
        let o = self.part_range(&other_part, per_other, self.tiles[other])?;
        let t = self.part_range(&cut_part, per_part, self.tiles[cut])?;
        inside.extend([o.clone(), t.clone()]);
        let other_tile = linear(&other_part, per_other, &o)?;
        let cut_tile = linear(&cut_part, per_part, &t)?;
        let cut_stored = if self.apart { t } else { cut_tile.clone() };
        let mut tile_at = [other_tile.clone(), other_tile.clone()];
        tile_at[cut] = cut_tile;
        let mut stored = tile_at.clone();
        stored[cut] = cut_stored;
        let result = self.tile_sums(&memories, &stored, &tile_at, &inside)?;
        match total {
            None => self.epilogue(&result, None, &tile_at, &inside),
            Some(total) => {
                let at = self.tile_number(&tile_at)?;
                self.add_up(&total, &result, &at, &inside)?;
                // All blocks are done: the totals are stored in loops of their own.
                let t = self
                    .nest
                    .count(self.tiles[0] * self.tiles[1], self.index, self.shared)?;
                let tile_at = digits(&t, &self.tiles)?;
                let tile_at = [tile_at[0].clone(), tile_at[1].clone()];
                let mut around = self.around.clone();
                around.push(t.clone());
                self.epilogue(&total, Some(&t), &tile_at, &around)
            }
        }
    }

    /// A range over the tiles of a part; the last part may have fewer.
    fn part_range(&mut self, part: &UOp, size: usize, tiles: usize) -> Result<UOp> {
        let whole = UOp::int(size as i64, self.index);
        if tiles.is_multiple_of(size) {
            return self.nest.range(&whole, Exec::Serial);
        }
        let left = linear(&part.neg()?, size, &UOp::int(tiles as i64, self.index))?;
        let extent = left.cmplt(&whole)?.where_(&left, &whole)?;
        let extent = simplify(&[extent])?.remove(0);
        self.nest.range(&extent, Exec::Serial)
    }

    /// Packs all of an operand, tile by tile.
    fn pack_all(&mut self, o: usize, memory: &UOp, outer: &[UOp]) -> Result<()> {
        let t = self.nest.count(self.tiles[o], self.index, self.shared)?;
        let mut around = outer.to_vec();
        around.push(t.clone());
        self.pack(o, memory, &around, &t, &t)
    }

    fn pack(
        &mut self,
        o: usize,
        memory: &UOp,
        around: &[UOp],
        stored: &UOp,
        tile: &UOp,
    ) -> Result<()> {
        let zero = UOp::int(0, self.index);
        let first_k = match &self.block {
            None => zero,
            Some(block) => linear(block, self.c.block(), &zero)?,
        };
        if self.in_pairs {
            let place = Place {
                memory,
                around,
                stored,
                tile,
                first_k: &first_k,
            };
            return self.pack_pairs(o, &place);
        }
        let packing = Packing {
            memory,
            around,
            stored,
            tile,
            width: self.width(o),
            first_k: &first_k,
            depth: self.depth,
            whole_depth: self.c.depth,
            batch: &self.batch,
        };
        let statement = packing.statement(&self.operands[o], &self.layouts[o], self.nest)?;
        self.statements.push(statement);
        Ok(())
    }

    /// Positions of a side in one tile.
    pub(super) fn width(&self, o: usize) -> usize {
        match o {
            0 => self.tile.rows,
            _ => self.tile.vectors * self.lanes,
        }
    }

    /// Elements of a tile.
    fn area(&self) -> usize {
        self.width(0) * self.width(1)
    }

    /// Ranges over a tile, and a position in it.
    fn over_tile(&mut self, rows: Exec) -> Result<([UOp; 3], UOp, UOp)> {
        self.over_tile_by(self.lanes, rows)
    }

    /// The same with other vectors.
    fn over_tile_by(&mut self, lanes: usize, rows: Exec) -> Result<([UOp; 3], UOp, UOp)> {
        let m = self.nest.count(self.tile.rows, self.index, rows)?;
        let u = self.nest.count(self.width(1) / lanes, self.index, rows)?;
        let v = self.nest.count(lanes, self.index, Exec::Vector)?;
        let n = linear(&u, lanes, &v)?;
        let at = linear(&m, self.width(1), &n)?;
        Ok(([m, u, v], n, at))
    }

    /// The sums of one tile, left in the thread's cache.
    pub(super) fn tile_sums(
        &mut self,
        memories: &[Option<UOp>; 2],
        stored: &[UOp; 2],
        tile_at: &[UOp; 2],
        inside: &[UOp],
    ) -> Result<UOp> {
        if let (true, [Some(rows), Some(cols)]) = (self.in_pairs, memories) {
            return self.pair_sums([rows, cols], stored, inside);
        }
        let sums = self.nest.local(Space::Reg, self.dtype, self.area());
        let result = self.nest.local(Space::Cache, self.dtype, self.area());
        let steps = self.steps()?;
        let ([m, u, v], n, at) = self.over_tile(Exec::Unroll)?;
        let mut values = Vec::with_capacity(2);
        for (o, s) in [(0, &m), (1, &n)] {
            values.push(match (&memories[o], &self.operands[o].direct) {
                (Some(memory), _) => {
                    memory.load(&self.layouts[o].place(&stored[o], s, &steps.k)?, None)?
                }
                (None, Some(direct)) => {
                    let position = Position {
                        tile: &tile_at[o],
                        width: self.width(o),
                        within: s,
                        axes: &steps.axes,
                    };
                    direct.at(&self.operands[o], &position, &self.batch)?
                }
                (None, None) => unreachable!("an operand without a copy is read in place"),
            });
        }
        let loops = steps.loops;
        let ranges = [inside, &loops, &[m, u, v]].concat();
        let steps = match self.c.in_words {
            true => dots::halves(&values)?,
            false => vec![values],
        };
        for values in &steps {
            let (at, ranges) = (at.clone(), ranges.clone());
            self.push(&sums, at, values, Combine::MulAcc, None, ranges);
        }
        let ([m, u, v], _, at) = self.over_tile(Exec::Unroll)?;
        let sum = sums.load(&at, None)?;
        let ranges = [inside, &[m, u, v]].concat();
        self.push(&result, at, &[sum], Combine::Set, None, ranges);
        Ok(result)
    }

    /// Memory for the totals of all tiles, at the identity of addition.
    fn total(&mut self, space: Space) -> Result<UOp> {
        let tiles = self.tiles[0] * self.tiles[1];
        let total = self.nest.local(space, self.dtype, tiles * self.area());
        let t = self.nest.count(tiles, self.index, self.shared)?;
        let e = self.nest.count(self.area(), self.index, Exec::Serial)?;
        let none = UOp::constant(Scalar::from_f64(self.dtype, -0.0));
        let ranges = [&self.around[..], &[t.clone(), e.clone()]].concat();
        let at = linear(&t, self.area(), &e)?;
        self.push(&total, at, &[none], Combine::Set, None, ranges);
        Ok(total)
    }

    fn tile_number(&self, tile: &[UOp; 2]) -> Result<UOp> {
        linear(&tile[0], self.tiles[1], &tile[1])
    }

    /// Adds a block's sums to the totals.
    fn add_up(&mut self, total: &UOp, sums: &UOp, tile: &UOp, inside: &[UOp]) -> Result<()> {
        let ([m, u, v], _, at) = self.over_tile(Exec::Serial)?;
        let sum = sums.load(&at, None)?;
        let place = linear(tile, self.area(), &at)?;
        let ranges = [inside, &[m, u, v]].concat();
        self.push(total, place, &[sum], Combine::Add, None, ranges);
        Ok(())
    }

    /// How many neighbours of a row of a tile lie side by side in what is stored; whole vectors
    /// where none do.
    fn stored_lanes(&mut self, tile: &UOp) -> Result<usize> {
        let mut lanes = self.lanes;
        while lanes >= 4 {
            let ([_, _, v], n, _) = self.over_tile_by(lanes, Exec::Serial)?;
            let operand = &self.operands[1];
            let flat = linear(tile, self.width(1), &n)?;
            let side = digits(&flat, &operand.extents)?;
            let replace = operand.side.iter().cloned().zip(side).collect();
            let index = replaced(std::slice::from_ref(&self.c.out.index), &replace)?;
            if stride(&index[0], &v) == Some(1) {
                return Ok(lanes);
            }
            lanes /= 2;
        }
        Ok(self.lanes)
    }

    /// What the launch stores, made from the sums.
    pub(super) fn epilogue(
        &mut self,
        sums: &UOp,
        number: Option<&UOp>,
        tile: &[UOp; 2],
        inside: &[UOp],
    ) -> Result<()> {
        let lanes = self.stored_lanes(&tile[1])?;
        let ([m, u, v], n, at) = self.over_tile_by(lanes, Exec::Serial)?;
        let at = match number {
            None => at,
            Some(t) => linear(t, self.area(), &at)?,
        };
        let side = [m.clone(), n];
        let mut replace: FxHashMap<UOp, UOp> = self.batch.iter().cloned().collect();
        let mut gate: Option<UOp> = None;
        for o in 0..2 {
            let operand = &self.operands[o];
            let flat = linear(&tile[o], self.width(o), &side[o])?;
            replace.extend(
                operand
                    .side
                    .iter()
                    .cloned()
                    .zip(digits(&flat, &operand.extents)?),
            );
            if !operand.size.is_multiple_of(self.width(o)) {
                let within = flat.cmplt(&UOp::int(operand.size as i64, self.index))?;
                gate = Some(gate.map_or(Ok(within.clone()), |g| g.and(&within))?);
            }
        }
        let mut value = self.c.out.values[0].clone();
        let mut own = self.c.out.gate.clone();
        if let Some(gate) = &gate {
            // The sum itself is there for all of a tile.
            value = gated(&value, gate, Some(&self.c.sum))?;
            own = Some(own.map_or(Ok(gate.clone()), |g| g.and(gate))?);
        }
        replace.insert(self.c.sum.clone(), sums.load(&at, None)?);
        let mut roots = vec![self.c.out.index.clone(), value];
        roots.extend(own.clone());
        let new = replaced(&roots, &replace)?;
        let gate = own.map(|_| new[2].clone());
        let ranges = [inside, &[m, u, v]].concat();
        let memory = self.c.out.memory.clone();
        let (index, value) = (new[0].clone(), new[1].clone());
        self.push(&memory, index, &[value], Combine::Set, gate, ranges);
        Ok(())
    }

    pub(super) fn push(
        &mut self,
        memory: &UOp,
        index: UOp,
        values: &[UOp],
        combine: Combine,
        gate: Option<UOp>,
        ranges: Vec<UOp>,
    ) {
        self.statements.push(Statement {
            memory: memory.clone(),
            index,
            values: values.iter().cloned().collect(),
            combine,
            gate,
            ranges,
        });
    }
}
