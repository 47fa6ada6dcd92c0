//! How scratch memory stands in C: as one variable for each element or vector, or as an array.
//!
//! Memory in `reg` is indexed by constants, unroll ranges and vector ranges. Where loops of unroll
//! ranges index it, they are written out, and then each access names elements that are known: those
//! of one place, or those from a known place on that fill the lanes of a vector. If all accesses
//! agree, each place is a variable. If they do not, as in the tree of a fold that reads sixteen
//! lanes, then eight, four, two and one, the memory is an array: it is never pointed to, so compilers
//! keep it in registers too as long as its indices are constants.

use rustc_hash::{FxHashMap, FxHashSet};

use super::lanes::Lanes;
use super::render::STACK_LIMIT;
use super::steps::{Block, Step, accesses, constant};
use crate::ir::UOp;
use crate::ir::affine::{Linear, coefficient};
use crate::ir::bounds::Bounds;
use crate::ir::op::{Exec, Op, Space};
use crate::ir::visit::toposort;

/// Loops are written out for scratch memory that is named in no more statements than this.
const WRITTEN_OUT: i128 = 512;

/// How scratch memory stands in C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// One variable for each run of that many elements.
    Variables(usize),
    /// An array, aligned for vectors of that many elements.
    Array(usize),
}

/// The unroll ranges whose loops are written out: those that index scratch memory in `reg`.
pub(super) fn written_out(steps: &[Step]) -> FxHashSet<UOp> {
    let copies = copies(steps);
    let mut ranges = FxHashSet::default();
    for (memory, accesses) in accesses(steps) {
        if !in_registers(&memory) {
            continue;
        }
        let indices: Vec<UOp> = accesses.iter().map(|(_, u)| u.src()[1].clone()).collect();
        let leaves = toposort(&indices);
        let is_known = leaves.iter().all(|u| {
            let is_free = matches!(
                u.op(),
                Op::Range {
                    exec: Exec::Serial | Exec::Thread,
                    ..
                }
            );
            !is_free && !matches!(u.op(), Op::Load)
        });
        let mut steps: Vec<usize> = accesses.iter().map(|(step, _)| *step).collect();
        steps.dedup();
        let count = steps
            .iter()
            .map(|s| copies[*s])
            .fold(0, i128::saturating_add);
        if is_known && count <= WRITTEN_OUT {
            ranges.extend(leaves.into_iter().filter(is_unrolled));
        }
    }
    ranges
}

fn in_registers(memory: &UOp) -> bool {
    matches!(memory.op(), Op::Local { space: Space::Reg, n, .. } if *n > 1)
}

fn is_unrolled(u: &UOp) -> bool {
    matches!(
        u.op(),
        Op::Range {
            exec: Exec::Unroll,
            ..
        }
    )
}

/// For each step how often it is there once all unroll loops around it are written out.
fn copies(steps: &[Step]) -> Vec<i128> {
    let mut open: Vec<i128> = vec![1];
    let mut copies = Vec::with_capacity(steps.len());
    for step in steps {
        let around = open.last().copied().unwrap_or(1);
        copies.push(around);
        match step {
            Step::Open(Block::Loop(range)) if is_unrolled(range) => {
                let rounds = constant(&range.src()[0]).unwrap_or(1);
                open.push(around.saturating_mul(rounds));
            }
            Step::Open(_) => open.push(around),
            Step::Close => {
                open.pop();
            }
            Step::Declare(..) | Step::Let(_) | Step::Store(_) | Step::Tile(_) => {}
        }
    }
    copies
}

/// How each scratch memory of several elements stands, after loops were written out.
pub(super) fn layouts(
    steps: &[Step],
    lanes: &mut Lanes,
    bounds: &mut Bounds,
) -> FxHashMap<UOp, Layout> {
    let mut layouts = FxHashMap::default();
    for (memory, accesses) in accesses(steps) {
        let Op::Local { n, dtype, .. } = *memory.op() else {
            continue;
        };
        let mut indices = accesses.iter().map(|(_, u)| &u.src()[1]);
        let widest = accesses
            .iter()
            .map(|(_, u)| lanes.of(&u.src()[1]))
            .max()
            .unwrap_or(1);
        let mut fits = |index: &UOp| {
            let run = run(index, lanes, bounds);
            run.is_some_and(|run| run.lanes == widest && run.first % widest == 0)
        };
        let small = n.saturating_mul(dtype.size()) <= STACK_LIMIT;
        let alike = (n == 1 || in_registers(&memory)) && small && n % widest == 0;
        let alike = alike && indices.all(&mut fits);
        let layout = match alike {
            true => Layout::Variables(widest),
            false => Layout::Array(widest),
        };
        layouts.insert(memory, layout);
    }
    layouts
}

/// Elements that are known: so many from the first on.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) first: usize,
    pub(super) lanes: usize,
}

/// The elements that an index names, if they are known and stand side by side.
pub(super) fn run(index: &UOp, lanes: &mut Lanes, bounds: &mut Bounds) -> Option<Run> {
    let count = lanes.of(index);
    let mut sum = Linear::of(index);
    let range = match count {
        1 => None,
        _ => Some(lanes.range_of(index)?),
    };
    sum.terms.retain(|(term, _)| Some(term) != range.as_ref());
    let first = usize::try_from(sum.constant).ok()?;
    let grows = |range| coefficient(index, &range, bounds) == Some(1);
    let is_run = sum.terms.is_empty() && range.is_none_or(grows);
    is_run.then_some(Run {
        first,
        lanes: count,
    })
}
