//! One factor of a contraction: how its elements lie in memory, and its packed copy.

use rustc_hash::FxHashMap;

use super::super::affine::{digits, gated, linear, load_strides, replaced, simplify};
use super::super::nest::{Nest, Statement, extent_of};
use super::direct::{Axes, Direct};
use super::find::Contraction;
use crate::error::Result;
use crate::ir::op::{Combine, Exec};
use crate::ir::visit::{substitute, toposort};
use crate::ir::{DType, Op, UOp};

/// A factor as a function of a position on its side, of k, and of the batch.
pub struct Operand {
    /// In terms of the ranges below.
    pub value: UOp,
    /// The ranges of its side, outermost first.
    pub side: Vec<UOp>,
    /// Their extents.
    pub extents: Vec<usize>,
    /// How many positions its side has.
    pub size: usize,
    /// The range of k in `value`.
    pub k: UOp,
    /// Its extent.
    pub depth: usize,
    /// How many neighbours along its side lie side by side in all that it reads.
    pub side_lanes: usize,
    /// The same along k, of words of two elements if there are such.
    pub depth_lanes: usize,
    /// Where it can be read without a packed copy.
    pub direct: Option<Direct>,
}

impl Operand {
    /// Looks at a factor, of which `value` is what is read; `lanes` is how many elements a vector
    /// holds, `axes` what k is made of where it may be read in place.
    ///
    /// # Errors
    /// Never for a verified graph.
    pub fn new(
        c: &Contraction,
        factor: usize,
        value: &UOp,
        lanes: usize,
        axes: Option<&Axes>,
        nest: &mut Nest,
    ) -> Result<Operand> {
        let (side, k) = (&c.sides[factor], &c.k);
        let extents: Vec<usize> = side.iter().filter_map(extent_of).collect();
        let mut operand = Operand {
            value: value.clone(),
            side: side.clone(),
            size: extents.iter().product(),
            extents,
            k: k.clone(),
            depth: c.depth,
            side_lanes: 1,
            depth_lanes: 1,
            direct: axes.and_then(|axes| Direct::of(axes, factor, side)),
        };
        let depth = extent_of(k).unwrap_or(1);
        // A word of neighbours along k is read as two vectors of every other element.
        let elements = if c.in_words { 2 } else { 1 };
        let dtype = k.dtype();
        let mut width = lanes;
        while width >= 4 && (operand.side_lanes == 1 || operand.depth_lanes == 1) {
            let v = nest.count(width, dtype, Exec::Vector)?;
            if operand.side_lanes == 1 && operand.size >= width {
                let outer = nest.count(operand.size.div_ceil(width), dtype, Exec::Serial)?;
                let s = linear(&outer, width, &v)?;
                let value = operand.at(&s, k, &[])?;
                if even(&value, &v, 1) {
                    operand.side_lanes = width;
                }
            }
            if operand.depth_lanes == 1 && depth >= width {
                let outer = nest.count(depth.div_ceil(width), dtype, Exec::Serial)?;
                let at = linear(&outer, width, &v)?;
                let replace = FxHashMap::from_iter([(k.clone(), at)]);
                let value = replaced(std::slice::from_ref(value), &replace)?;
                if even(&value[0], &v, elements) {
                    operand.depth_lanes = width;
                }
            }
            width /= 2;
        }
        Ok(operand)
    }

    /// The value at position `s` of its side and at `k`, with more replacements.
    ///
    /// # Errors
    /// Never for index dtypes.
    pub fn at(&self, s: &UOp, k: &UOp, more: &[(UOp, UOp)]) -> Result<UOp> {
        let mut replace: FxHashMap<UOp, UOp> = more.iter().cloned().collect();
        replace.extend(self.side.iter().cloned().zip(digits(s, &self.extents)?));
        replace.insert(self.k.clone(), k.clone());
        let value = replaced(std::slice::from_ref(&self.value), &replace)?;
        Ok(value[0].clone())
    }
}

impl Operand {
    /// How many neighbours along its side are copied at once into tiles of `width`, if they lie side
    /// by side there whatever the tile.
    pub fn groups(&self, width: usize) -> Option<usize> {
        let whole = 1 << width.trailing_zeros();
        match self.side_lanes {
            1 => None,
            lanes if self.side.len() == 1 => Some(lanes.min(width.next_power_of_two())),
            // A vector that reached beyond its tile could reach into another row.
            lanes if lanes.min(whole) >= 4 => Some(lanes.min(whole)),
            _ => None,
        }
    }

    /// The extent of the innermost axis of k, where that is shorter than k.
    fn run(&self) -> Option<usize> {
        let nodes = toposort(std::slice::from_ref(&self.value));
        let of_k = nodes
            .iter()
            .filter(|u| matches!(u.op(), Op::FloorDiv | Op::FloorMod) && u.src()[0] == self.k);
        let extents = of_k.filter_map(|u| match u.src()[1].op() {
            Op::Const(c) => usize::try_from(c.as_i128()).ok(),
            _ => None,
        });
        extents.min().filter(|n| n.is_multiple_of(self.depth_lanes))
    }
}

/// Whether all loads stand still or move by so many elements, and some do.
fn even(value: &UOp, v: &UOp, elements: i64) -> bool {
    let strides = load_strides(value, v);
    let moves = |s: &Option<i64>| matches!(s, Some(n) if *n == 0 || *n == elements);
    strides.iter().all(moves) && strides.contains(&Some(elements))
}

/// Where element (tile, position in the tile, k) of a packed operand lies.
#[derive(Clone)]
pub struct Layout {
    /// Elements from a tile to the next.
    pub tile: usize,
    /// Elements from a position to the next.
    pub side: usize,
    /// Elements from one k to the next.
    pub depth: usize,
    /// How it is filled.
    pub fill: Fill,
}

/// Which loops fill a packed operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// Vectors along k, position by position.
    Deep(usize),
    /// The same in runs of `inner` neighbours: those of the innermost axis of k.
    Runs {
        /// Elements of a run.
        inner: usize,
        /// Elements of a vector, which divide a run.
        lanes: usize,
    },
    /// Vectors along the side, k by k.
    Across(usize),
    /// Element by element, in blocks that turn rows into columns within the cache.
    Turned,
}

/// Elements between the rows of a tile that lies along k, beyond k: rows must not start in the
/// same set of the cache.
const ROW_PAD: usize = 16;
/// Elements of k that are turned at once, a line of the cache.
const TURN: usize = 16;

impl Layout {
    /// The layout for tiles of `width` positions and `depth` elements of k. `together` says that
    /// vectors run along the side, so that k comes last.
    pub fn new(operand: &Operand, width: usize, depth: usize, together: bool) -> Layout {
        let groups = operand.groups(width);
        let long = operand.depth_lanes >= 16.min(depth);
        if !together && (operand.depth_lanes > 1 || groups.is_none()) && (long || groups.is_none())
        {
            let row = depth.next_multiple_of(16) + ROW_PAD;
            return Layout {
                tile: width * row,
                side: row,
                depth: 1,
                fill: match operand.run() {
                    Some(inner) if operand.depth_lanes > 1 => Fill::Runs {
                        inner,
                        lanes: operand.depth_lanes,
                    },
                    _ => Fill::Deep(operand.depth_lanes),
                },
            };
        }
        Layout {
            tile: width * depth.next_multiple_of(TURN),
            side: 1,
            depth: width,
            fill: groups.map_or(Fill::Turned, Fill::Across),
        }
    }

    /// The place of an element.
    ///
    /// # Errors
    /// Never for index dtypes.
    pub fn place(&self, tile: &UOp, s: &UOp, k: &UOp) -> Result<UOp> {
        let zero = UOp::int(0, tile.dtype());
        let tiles = linear(tile, self.tile, &zero)?;
        tiles
            .add(&linear(k, self.depth, &zero)?)?
            .add(&linear(s, self.side, &zero)?)
    }
}

/// What a packing statement needs to know beside the operand and its layout.
pub struct Packing<'a> {
    /// The packed copy.
    pub memory: &'a UOp,
    /// The loops around, the one of the tile last.
    pub around: &'a [UOp],
    /// The tile's number in the copy.
    pub stored: &'a UOp,
    /// The tile's number on the side.
    pub tile: &'a UOp,
    /// Positions in a tile.
    pub width: usize,
    /// The first k of the block.
    pub first_k: &'a UOp,
    /// How many elements of k: all, or those of a block, whose last is shorter.
    pub depth: usize,
    /// All elements of k.
    pub whole_depth: usize,
    /// What stands for the batch.
    pub batch: &'a [(UOp, UOp)],
}

impl Packing<'_> {
    /// The statement that fills one tile of the copy. Outside of the operand it is 0.
    ///
    /// # Errors
    /// Never for a verified graph.
    pub fn statement(
        &self,
        operand: &Operand,
        layout: &Layout,
        nest: &mut Nest,
    ) -> Result<Statement> {
        let dtype = operand.k.dtype();
        let mut ranges = self.around.to_vec();
        let mut add = |extent: usize, exec: Exec, nest: &mut Nest| -> Result<UOp> {
            let r = nest.count(extent, dtype, exec)?;
            ranges.push(r.clone());
            Ok(r)
        };
        let below = |x: &UOp, n: usize| x.cmplt(&UOp::int(n as i64, dtype));
        let mut gate: Option<UOp> = None;
        let mut vector_at: Option<(UOp, UOp)> = None;
        // Words cost more to make than to scatter.
        let turned = match operand.value.dtype() {
            DType::U32 if operand.depth_lanes >= TURN => Exec::Vector,
            _ => Exec::Unroll,
        };
        let (s, k) = match layout.fill {
            Fill::Deep(lanes) => {
                let s = add(self.width, Exec::Serial, nest)?;
                let outer = add(self.depth.div_ceil(lanes), Exec::Serial, nest)?;
                let v = match lanes {
                    1 => UOp::int(0, dtype),
                    _ => add(lanes, Exec::Vector, nest)?,
                };
                (s, linear(&outer, lanes, &v)?)
            }
            Fill::Runs { inner, lanes } => {
                let runs = Runs {
                    inner,
                    lanes,
                    first_k: self.first_k,
                    depth: self.depth,
                    whole_depth: self.whole_depth,
                };
                let turn = add(runs.count(), Exec::Serial, nest)?;
                let s = add(self.width, Exec::Serial, nest)?;
                let run = runs.at(&turn)?;
                let outer = nest.range(&run.extent, Exec::Serial)?;
                ranges.push(outer.clone());
                let v = nest.count(lanes, dtype, Exec::Vector)?;
                ranges.push(v.clone());
                // While expressions are simplified, a range of its own says that the vector lies
                // within the run.
                let within = nest.count(inner / lanes, dtype, Exec::Serial)?;
                vector_at = Some((within.clone(), run.begin.add(&outer)?));
                let at = linear(&within, lanes, &v)?;
                (s, run.start.add(&at)?.sub(self.first_k)?)
            }
            Fill::Across(lanes) => {
                let k = add(self.depth, Exec::Serial, nest)?;
                let outer = match self.width.div_ceil(lanes) {
                    1 => UOp::int(0, dtype),
                    groups => add(groups, Exec::Unroll, nest)?,
                };
                let v = add(lanes, Exec::Vector, nest)?;
                let s = linear(&outer, lanes, &v)?;
                if !self.width.is_multiple_of(lanes) {
                    gate = Some(simplify(&[below(&s, self.width)?])?.remove(0));
                }
                (s, k)
            }
            Fill::Turned => {
                let outer = add(self.depth.div_ceil(TURN), Exec::Serial, nest)?;
                let s = add(self.width, Exec::Serial, nest)?;
                let inner = add(TURN, turned, nest)?;
                (s, linear(&outer, TURN, &inner)?)
            }
        };
        let at = linear(self.tile, self.width, &s)?;
        let deep = self.first_k.add(&k)?;
        let mut value = operand.at(&at, &deep, self.batch)?;
        if let Some(gate) = &gate {
            value = gated(&value, gate, None)?;
        }
        if !operand.size.is_multiple_of(self.width) {
            value = gated(&value, &below(&at, operand.size)?, None)?;
        }
        let step = match layout.fill {
            Fill::Deep(lanes) => lanes,
            Fill::Across(_) | Fill::Runs { .. } => 1,
            Fill::Turned => TURN,
        };
        let edge = !self.depth.is_multiple_of(step) || !self.whole_depth.is_multiple_of(self.depth);
        if edge && !matches!(layout.fill, Fill::Runs { .. }) {
            value = gated(&value, &below(&deep, self.whole_depth)?, None)?;
        }
        let mut parts = simplify(&[layout.place(self.stored, &s, &k)?, value])?;
        if let Some(known) = vector_at {
            parts = substitute(&parts, &FxHashMap::from_iter([known]))?;
        }
        Ok(Statement {
            memory: self.memory.clone(),
            index: parts[0].clone(),
            values: [parts[1].clone()].into_iter().collect(),
            combine: Combine::Set,
            gate,
            ranges,
        })
    }
}

/// The runs of the innermost axis of k in a block: a block begins and ends within runs.
pub struct Runs<'a> {
    /// Elements of a run.
    pub inner: usize,
    /// Elements that are taken together; blocks and runs are whole groups of them.
    pub lanes: usize,
    /// The first k of the block.
    pub first_k: &'a UOp,
    /// Elements of a block, or all.
    pub depth: usize,
    /// All elements of k.
    pub whole_depth: usize,
}

/// The part of a run that is in the block.
pub struct Run {
    /// The run's number along k.
    pub number: UOp,
    /// Its first k, in the block or not.
    pub start: UOp,
    /// Its first group of lanes in the block.
    pub begin: UOp,
    /// How many of them are.
    pub extent: UOp,
}

impl Runs<'_> {
    fn in_blocks(&self) -> bool {
        self.whole_depth > self.depth
    }

    /// How many runs a block has at most.
    pub fn count(&self) -> usize {
        match self.in_blocks() {
            true => self.depth / self.inner + 2,
            false => self.depth.div_ceil(self.inner),
        }
    }

    /// The run at a place from the block's first run on.
    ///
    /// # Errors
    /// Never for index dtypes.
    pub fn at(&self, turn: &UOp) -> Result<Run> {
        let constant = |n: usize| UOp::int(n as i64, turn.dtype());
        let zero = constant(0);
        let mut number = turn.clone();
        let mut begin = zero.clone();
        let mut end = constant(self.inner / self.lanes);
        if self.in_blocks() {
            number = self.first_k.floordiv(&constant(self.inner))?.add(turn)?;
        }
        let start = linear(&number, self.inner, &zero)?;
        if self.in_blocks() {
            let least = |a: &UOp, b: &UOp| a.cmplt(b)?.where_(a, b);
            let group = constant(self.lanes);
            let before = self.first_k.sub(&start)?.floordiv(&group)?;
            begin = zero.cmplt(&before)?.where_(&before, &zero)?;
            let block = self.first_k.add(&constant(self.depth))?;
            let stop = least(&block, &constant(self.whole_depth))?;
            end = least(&end, &stop.sub(&start)?.floordiv(&group)?)?;
        }
        let bounds = simplify(&[begin.clone(), end.sub(&begin)?])?;
        Ok(Run {
            number,
            start,
            begin: bounds[0].clone(),
            extent: bounds[1].clone(),
        })
    }
}
