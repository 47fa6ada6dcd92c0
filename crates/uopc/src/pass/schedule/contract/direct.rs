//! Operands of a contraction that are read where they are, without a packed copy.
//!
//! A factor that is a plain load at a sum of ranges times constants can be read in place: the loops
//! over k are then those of the axes that k is made of. Whether that is better than a copy follows
//! from the lines of memory that a tile touches, and from what the first cache holds of them.

use rustc_hash::FxHashMap;

use super::super::affine::{digits, linear, replaced, stride};
use super::super::nest::{Nest, extent_of};
use super::find::Contraction;
use super::operand::Operand;
use crate::error::Result;
use crate::ir::op::Exec;
use crate::ir::visit::toposort;
use crate::ir::{Op, UOp};
use crate::machine::Machine;

/// The axes that k is made of, outermost first.
pub struct Axes {
    /// A range for each.
    pub ranges: Vec<UOp>,
    /// The factors in terms of them.
    factors: [UOp; 2],
    /// Whether k is summed in blocks, which begin and end anywhere.
    blocked: bool,
}

impl Axes {
    /// The axes of a contraction. Where k is summed in blocks they show in how the factors divide
    /// it; there are none if those divisions do not nest.
    ///
    /// # Errors
    /// Never for a verified graph.
    pub fn of(c: &Contraction, nest: &mut Nest) -> Result<Option<Axes>> {
        if !c.summed.is_empty() {
            return Ok(Some(Axes {
                ranges: c.summed.clone(),
                factors: c.plain.clone(),
                blocked: false,
            }));
        }
        let mut ends = divisors(&c.factors, &c.k);
        ends.extend([1, c.depth]);
        ends.sort_unstable();
        ends.dedup();
        if ends.windows(2).any(|pair| !pair[1].is_multiple_of(pair[0])) {
            return Ok(None);
        }
        let extents: Vec<usize> = ends
            .windows(2)
            .rev()
            .map(|pair| pair[1] / pair[0])
            .collect();
        let mut ranges = Vec::with_capacity(extents.len());
        let mut flat = UOp::int(0, c.k.dtype());
        for &extent in &extents {
            let r = nest.count(extent, c.k.dtype(), Exec::Serial)?;
            flat = linear(&flat, extent, &r)?;
            ranges.push(r);
        }
        let replace = FxHashMap::from_iter([(c.k.clone(), flat)]);
        let factors = replaced(&c.factors, &replace)?;
        Ok(Some(Axes {
            ranges,
            factors: [factors[0].clone(), factors[1].clone()],
            blocked: true,
        }))
    }
}

/// What expressions divide k by, or take it modulo of: where its axes end.
fn divisors(roots: &[UOp], k: &UOp) -> Vec<usize> {
    let constant = |u: &UOp| match u.op() {
        Op::Const(c) => usize::try_from(c.as_i128()).ok().filter(|n| *n > 0),
        _ => None,
    };
    // Nodes that are k divided by a number, perhaps modulo of something.
    let mut parts: FxHashMap<UOp, usize> = FxHashMap::from_iter([(k.clone(), 1)]);
    let mut ends = Vec::new();
    for u in toposort(roots) {
        if !matches!(u.op(), Op::FloorDiv | Op::FloorMod) {
            continue;
        }
        let Some((&below, by)) = parts.get(&u.src()[0]).zip(constant(&u.src()[1])) else {
            continue;
        };
        let end = below.saturating_mul(by);
        ends.push(end);
        let divided = matches!(u.op(), Op::FloorDiv);
        parts.insert(u.clone(), if divided { end } else { below });
    }
    ends
}

/// A plain load whose index is a sum of all ranges times constants.
pub struct Direct {
    /// In terms of the ranges of the side and of the axes of k.
    pub value: UOp,
    /// The axes of k.
    pub axes: Vec<UOp>,
    /// Elements from a position to the next along each range of the side.
    sides: Vec<i64>,
    /// The same along the axes of k.
    summed: Vec<i64>,
    /// The extents of those.
    steps: Vec<usize>,
    /// Whether k is summed in blocks.
    pub blocked: bool,
}

impl Direct {
    /// The load that a factor is, if it is one.
    pub fn of(axes: &Axes, factor: usize, side: &[UOp]) -> Option<Direct> {
        let value = &axes.factors[factor];
        let plain = matches!(value.op(), Op::Load) && value.src().len() == 2;
        if !plain || side.is_empty() || axes.ranges.is_empty() {
            return None;
        }
        let along = |r: &UOp| stride(&value.src()[1], r);
        Some(Direct {
            value: value.clone(),
            axes: axes.ranges.clone(),
            sides: side.iter().map(along).collect::<Option<_>>()?,
            summed: axes.ranges.iter().map(along).collect::<Option<_>>()?,
            steps: axes.ranges.iter().filter_map(extent_of).collect(),
            blocked: axes.blocked,
        })
    }

    /// The element at position `m` of a tile of the operand's side, at positions along the axes.
    ///
    /// # Errors
    /// Never for index dtypes.
    pub fn at(&self, operand: &Operand, m: &Position, batch: &[(UOp, UOp)]) -> Result<UOp> {
        let mut replace: FxHashMap<UOp, UOp> = batch.iter().cloned().collect();
        let side = m.digits(&operand.extents)?;
        replace.extend(operand.side.iter().cloned().zip(side));
        replace.extend(self.axes.iter().cloned().zip(m.axes.iter().cloned()));
        Ok(replaced(std::slice::from_ref(&self.value), &replace)?.remove(0))
    }
}

/// A position in a tile that is read in place.
pub struct Position<'a> {
    /// The tile's number on the side.
    pub tile: &'a UOp,
    /// Positions in a tile.
    pub width: usize,
    /// The position in it.
    pub within: &'a UOp,
    /// The positions along the axes of k.
    pub axes: &'a [UOp],
}

impl Position<'_> {
    /// The position along each range of the side. A tile is whole ranges and a part of the next
    /// one, so each of them depends on the tile or on the position in it, but for that one: where
    /// positions are written out, all that they add is constants.
    fn digits(&self, extents: &[usize]) -> Result<Vec<UOp>> {
        let (mut left, mut whole) = (self.width, extents.len());
        while whole > 0 && left.is_multiple_of(extents[whole - 1]) {
            whole -= 1;
            left /= extents[whole];
        }
        let mut inside = vec![left];
        inside.extend(&extents[whole..]);
        let mut outside = extents[..whole].to_vec();
        if let Some(cut) = outside.last_mut() {
            *cut /= left;
        }
        let mut all = digits(self.tile, &outside)?;
        let mut inside = digits(self.within, &inside)?;
        let part = inside.remove(0);
        if let Some(cut) = all.last_mut() {
            *cut = linear(cut, left, &part)?;
        }
        all.extend(inside);
        Ok(all)
    }
}

impl Operand {
    /// Whether tiles of `width` positions can be read where they are without harm: they end where
    /// ranges of the side do, and what a tile reads over and over stays in the first cache.
    /// `together` says that vectors run along the side; `uses` is how often a tile is read.
    pub fn is_direct(
        &self,
        width: usize,
        together: bool,
        uses: usize,
        element: usize,
        machine: &Machine,
    ) -> bool {
        let Some(direct) = &self.direct else {
            return false;
        };
        if !together && self.overlaps(width, element, machine) {
            return true;
        }
        let inner = self.extents.last().copied().unwrap_or(1);
        if direct.blocked || !inner.is_multiple_of(width) {
            return false;
        }
        let side = direct.sides.last().copied().unwrap_or(0);
        let step = direct.summed.last().copied().unwrap_or(0);
        if side == 1 {
            // Rows of neighbours, one for each k.
            let lines = (width * element).div_ceil(LINE);
            // Steps of less than a line share lines.
            let steps = direct.summed.iter().zip(&direct.steps);
            let rows = steps.map(|(&stride, &n)| {
                let bytes = stride.unsigned_abs() as usize * element;
                let rows = if bytes < LINE {
                    (n * bytes).div_ceil(LINE)
                } else {
                    n
                };
                rows.max(1)
            });
            let all = rows.product::<usize>() * lines;
            let kept = direct
                .summed
                .iter()
                .all(|&s| all <= held(s, element, lines));
            // A copy costs more than a few readings from the second cache.
            let near = direct
                .summed
                .iter()
                .all(|&s| s.unsigned_abs() as usize * element <= NEAR);
            let few = uses <= FEW && self.size * self.depth * element <= machine.l2 / 2;
            kept || near && few
        } else {
            // One line of each position at a time.
            !together && step == 1 && width <= held(side, element, 1)
        }
    }

    /// Whether the positions of a tile share much of what they read, as overlapping windows do: a
    /// copy would be several times as large as the memory that it is made of.
    fn overlaps(&self, width: usize, element: usize, machine: &Machine) -> bool {
        let copy = (width * self.depth * element) as f64;
        let taken = self.taken_in(width, element, machine);
        taken.is_some_and(|bytes| bytes * WINDOW <= copy)
    }

    /// Bytes that the first cache takes in for a tile of `width` positions that is read in place, if
    /// the tile is whole ranges of the side and a part of the next one.
    pub fn taken_in(&self, width: usize, element: usize, machine: &Machine) -> Option<f64> {
        let direct = self.direct.as_ref()?;
        let bytes = |stride: i64| stride.unsigned_abs() as usize * element;
        // What is touched at once: the positions of the tile at one k.
        let mut touched = Touched::new(element);
        let mut left = width;
        for (&extent, &stride) in self.extents.iter().zip(&direct.sides).rev() {
            let here = left.min(extent);
            let whole = extent.is_multiple_of(here) && left.is_multiple_of(here);
            if !whole || here > held(stride, element, 1) {
                return None;
            }
            touched.add(bytes(stride), here);
            left /= here;
        }
        // Loops over the axes of k, from the inside: as long as all that they touch stays in the
        // first cache, nothing is taken in twice.
        let mut times = direct.steps.iter().product::<usize>() as f64;
        let mut least = touched.bytes() * times;
        for (&stride, &n) in direct.summed.iter().zip(&direct.steps).rev() {
            touched.add(bytes(stride), n);
            times /= n as f64;
            if 2.0 * touched.bytes() > machine.l1 as f64 {
                break;
            }
            least = least.min(touched.bytes() * times);
        }
        (left == 1).then_some(least)
    }
}

/// Places in memory that loops touch.
struct Touched {
    /// Bytes of one place.
    element: usize,
    /// For each loop the bytes from one turn to the next, and how many turns.
    loops: Vec<(usize, usize)>,
}

impl Touched {
    fn new(element: usize) -> Touched {
        Touched {
            element,
            loops: Vec::new(),
        }
    }

    /// All that is touched, `n` times, each time `step` bytes further.
    fn add(&mut self, step: usize, n: usize) {
        if n > 1 && step > 0 {
            self.loops.push((step, n));
            self.loops.sort_unstable();
        }
    }

    /// The bytes of the lines that hold it all: pieces of neighbouring bytes, which grow as long as
    /// a step leaves out less than a line, at regular distances.
    fn bytes(&self) -> f64 {
        let mut piece = self.element;
        let mut apart: Vec<(usize, usize)> = Vec::new();
        for &(step, n) in &self.loops {
            if step <= piece + LINE {
                piece += step * (n - 1);
                continue;
            }
            let same = |(distance, known): &&mut (usize, usize)| {
                step.is_multiple_of(*distance) && step <= *distance * *known
            };
            match apart.iter_mut().find(same) {
                // Some of the pieces are the same.
                Some((distance, known)) => *known += step / *distance * (n - 1),
                None => apart.push((step, n)),
            }
        }
        let pieces: f64 = apart.iter().map(|(_, n)| *n as f64).product();
        // A piece begins anywhere in a line.
        pieces * (piece - 1 + LINE) as f64
    }
}

/// How many lines fit the first cache if rows of `lines` neighbours begin `stride` elements apart.
fn held(stride: i64, element: usize, lines: usize) -> usize {
    let step = (stride.unsigned_abs() as usize * element / LINE).max(1);
    let apart = SETS / (1usize << step.trailing_zeros().min(SETS.trailing_zeros()));
    WAYS * SETS.min(apart * lines)
}

/// How many times as large as what it is made of a copy is at least where windows overlap.
const WINDOW: f64 = 1.5;
/// Uses of a tile for which it is not copied if it lies in the second cache.
const FEW: usize = 8;
/// Bytes from one k to the next that the processor fetches ahead.
const NEAR: usize = 1024;
/// Bytes in a line.
const LINE: usize = 64;
/// Sets of the first cache.
const SETS: usize = 64;
/// Lines of a set in the first cache, at least.
const WAYS: usize = 8;
