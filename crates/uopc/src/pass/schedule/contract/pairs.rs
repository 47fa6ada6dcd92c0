//! Large products of bf16 where the machine multiplies tiles of them (AMX).
//!
//! Both operands are packed as bf16: rows k by k, columns as words of two neighbours along k. A tile
//! of the result has 32 rows and 32 columns. The loops say the product as plain multiply-adds; the
//! renderer knows their form.

use super::super::affine::{gated, linear};
use super::super::nest::Nest;
use super::build::Builder;
use super::find::{BLOCK, Contraction};
use super::operand::Operand;
use crate::error::Result;
use crate::ir::op::{Combine, Exec, Space};
use crate::ir::{DType, Op, Scalar, UOp, pairs};

/// Rows and columns of a tile.
pub const SIDE: usize = 32;
/// Elements of k that one instruction multiplies.
const STEP: usize = 32;
/// Elements between the rows of a tile beyond k, so that they do not start in one set of the cache.
const ROW_PAD: usize = 32;
/// Lanes of a vector of sums.
pub const LANES: usize = 16;
/// Multiply-adds from which on such instructions are used: smaller products keep the bits of the
/// interpreter.
const LEAST: usize = 1 << 24;

/// The factors in bf16, if the product is one for instructions on pairs of them: for tiles here, for
/// dot products in `dots`.
pub fn narrow(c: &Contraction) -> Option<[UOp; 2]> {
    let extent = |ranges: &[UOp]| {
        let extents = ranges.iter().filter_map(super::super::nest::extent_of);
        extents.fold(1usize, usize::saturating_mul)
    };
    let sides = extent(&c.sides[0]).saturating_mul(extent(&c.sides[1]));
    if c.sum.dtype() != DType::F32 || c.in_words || sides.saturating_mul(c.depth) < LEAST {
        return None;
    }
    let narrow = |u: &UOp| match u.op() {
        Op::Cast(DType::F32) if u.src()[0].dtype() == DType::BF16 => Some(u.src()[0].clone()),
        _ => None,
    };
    Some([narrow(&c.factors[0])?, narrow(&c.factors[1])?])
}

/// The value where the gate holds, else that zero, as what is multiplied beyond the end of k must be.
///
/// # Errors
/// Never for a bool.
pub fn or_zero(value: &UOp, gate: &UOp, zero: f64) -> Result<UOp> {
    let gated = gated(value, gate, None)?;
    let zero = Scalar::from_f64(value.dtype(), zero);
    match gated.op() {
        Op::Load if zero.bits() == 0 => Ok(gated),
        _ => gate.where_(&gated, &UOp::constant(zero)),
    }
}

/// Modelled cost of the two as rows and columns.
pub fn cost(rows: &Operand, cols: &Operand) -> f64 {
    let elements = |o: &Operand| (o.size * o.depth) as f64;
    let fast = |yes: bool| if yes { 0.2 } else { 1.2 };
    elements(rows) * fast(rows.depth_lanes >= STEP)
        + elements(cols) * fast(cols.groups(LANES) == Some(LANES))
}

/// Elements of the packed copy of a tile: the rows', or the words of the columns'.
pub fn tile_elements(o: usize, depth: usize) -> usize {
    let depth = depth.next_multiple_of(STEP);
    match o {
        0 => SIDE * (depth + ROW_PAD),
        _ => SIDE * depth / 2,
    }
}

/// The dtype of an operand's packed copy.
pub fn dtype(o: usize) -> DType {
    [DType::BF16, DType::U32][o]
}

/// Where a packing statement finds and leaves what it packs.
pub struct Place<'a> {
    /// The packed copy.
    pub memory: &'a UOp,
    /// The loops around.
    pub around: &'a [UOp],
    /// The tile's number in the copy.
    pub stored: &'a UOp,
    /// The tile's number on the side.
    pub tile: &'a UOp,
    /// The first k of the block.
    pub first_k: &'a UOp,
}

impl Builder<'_> {
    /// The statement that packs one tile of an operand. Outside of the operand it is 0.
    ///
    /// # Errors
    /// Never for a verified graph.
    pub(super) fn pack_pairs(&mut self, o: usize, place: &Place) -> Result<()> {
        let depth = self.depth.next_multiple_of(STEP);
        let mut ranges = place.around.to_vec();
        let index = self.index;
        let mut add = |extent: usize, exec: Exec, nest: &mut Nest| -> Result<UOp> {
            let r = nest.count(extent, index, exec)?;
            ranges.push(r.clone());
            Ok(r)
        };
        let nest = &mut *self.nest;
        let operand = &self.operands[o];
        // The position on the side, and the element of k or the pair of them.
        let (s, k) = if o == 0 && operand.depth_lanes >= STEP {
            let s = add(SIDE, Exec::Serial, nest)?;
            let outer = add(depth / STEP, Exec::Serial, nest)?;
            let v = add(STEP, Exec::Vector, nest)?;
            (s, linear(&outer, STEP, &v)?)
        } else if o == 1 && operand.groups(LANES) == Some(LANES) {
            let k = add(depth / 2, Exec::Serial, nest)?;
            let outer = add(SIDE / LANES, Exec::Unroll, nest)?;
            let v = add(LANES, Exec::Vector, nest)?;
            (linear(&outer, LANES, &v)?, k)
        } else {
            // In blocks that turn rows into columns within the cache.
            let all = if o == 0 { depth } else { depth / 2 };
            let outer = add(all / 16, Exec::Serial, nest)?;
            let s = add(SIDE, Exec::Serial, nest)?;
            // Words cost more to make than to scatter.
            let in_vectors = o == 1 && operand.depth_lanes >= 16;
            let exec = if in_vectors {
                Exec::Vector
            } else {
                Exec::Unroll
            };
            let inner = add(16, exec, nest)?;
            (s, linear(&outer, 16, &inner)?)
        };
        let at = linear(place.tile, SIDE, &s)?;
        let edge = !self.c.depth.is_multiple_of(STEP)
            || self.depth < self.c.depth && !self.c.depth.is_multiple_of(BLOCK);
        let element = |k: &UOp| -> Result<UOp> {
            let deep = place.first_k.add(k)?;
            let mut value = operand.at(&at, &deep, &self.batch)?;
            if !operand.size.is_multiple_of(SIDE) {
                let within = at.cmplt(&UOp::int(operand.size as i64, index))?;
                value = gated(&value, &within, None)?;
            }
            if edge {
                let within = deep.cmplt(&UOp::int(self.c.depth as i64, index))?;
                value = or_zero(&value, &within, 0.0)?;
            }
            Ok(value)
        };
        let zero = UOp::int(0, index);
        let first = linear(place.stored, tile_elements(o, self.depth), &zero)?;
        let (value, at) = if o == 0 {
            let row = linear(&s, depth + ROW_PAD, &k)?;
            (element(&k)?, first.add(&row)?)
        } else {
            let even = linear(&k, 2, &zero)?;
            let odd = linear(&k, 2, &UOp::int(1, index))?;
            let word = pairs::word(&element(&even)?, &element(&odd)?)?;
            (word, first.add(&linear(&k, SIDE, &s)?)?)
        };
        self.push(place.memory, at, &[value], Combine::Set, None, ranges);
        Ok(())
    }

    /// The sums of one tile, left in the thread's cache.
    ///
    /// # Errors
    /// Never for a verified graph.
    pub(super) fn pair_sums(
        &mut self,
        memories: [&UOp; 2],
        stored: &[UOp; 2],
        inside: &[UOp],
    ) -> Result<UOp> {
        let sums = self.nest.local(Space::Cache, self.dtype, SIDE * SIDE);
        let depth = self.depth.next_multiple_of(STEP);
        let whole = UOp::int((depth / 2) as i64, self.index);
        let extent = match &self.block {
            Some(block) if !self.c.depth.is_multiple_of(BLOCK) => {
                // The last block ends with a whole step.
                let all = self.c.depth.next_multiple_of(STEP) / 2;
                let all = UOp::int(all as i64, self.index);
                let left = linear(&block.neg()?, BLOCK / 2, &all)?;
                left.cmplt(&whole)?.where_(&left, &whole)?
            }
            _ => whole,
        };
        let extent = super::super::affine::simplify(&[extent])?.remove(0);
        let k = self.nest.range(&extent, Exec::Serial)?;
        let p = self.nest.count(2, self.index, Exec::Serial)?;
        let m = self.nest.count(SIDE, self.index, Exec::Serial)?;
        let n = self.nest.count(SIDE, self.index, Exec::Serial)?;
        let zero = UOp::int(0, self.index);
        let base = |o: usize| linear(&stored[o], tile_elements(o, self.depth), &zero);
        let row = linear(&m, depth + ROW_PAD, &linear(&k, 2, &p)?)?;
        let left = memories[0].load(&base(0)?.add(&row)?, None)?;
        let column = base(1)?.add(&linear(&k, SIDE, &n)?)?;
        let word = memories[1].load(&column, None)?;
        let values = [left.cast(DType::F32)?, pairs::half(&word, &p)?];
        let at = linear(&m, SIDE, &n)?;
        let ranges = [inside, &[k, p, m, n]].concat();
        self.push(&sums, at, &values, Combine::MulAcc, None, ranges);
        Ok(sums)
    }
}
