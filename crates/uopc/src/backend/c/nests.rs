//! Which nests become functions of their own: the tiles of contractions.
//!
//! A nest that sums products into registers is most of a kernel's code and all of its time, and
//! the same for many kernels: a tile's text depends on its extents, its strides and its dtype, not on
//! where the operands come from. As a function of its own it is compiled once, however many kernels
//! of a unit have it. This finds the statements; what they need from outside becomes arguments when
//! they are rendered.

use rustc_hash::{FxHashMap, FxHashSet};

use super::lanes::Lanes;
use super::registers::Layout;
use super::render::STACK_LIMIT;
use super::steps::{Block, Step, closers, loads};
use crate::ir::UOp;
use crate::ir::op::{Combine, Exec, Op, Space};
use crate::ir::visit::toposort;

/// Marks the nests that become functions of their own.
pub(super) fn nests(
    steps: Vec<Step>,
    layouts: &FxHashMap<UOp, Layout>,
    lanes: &mut Lanes,
) -> Vec<Step> {
    let mut steps = steps;
    let mut from = 0;
    while let Some(declare) = next_tile(&steps, from, layouts) {
        from = declare + 1;
        if let Some(nest) = extent_of(&steps, declare, layouts, lanes) {
            from = nest.enclose(&mut steps);
        }
    }
    steps
}

/// The next declaration of registers that products are summed into, in a loop.
fn next_tile(steps: &[Step], from: usize, layouts: &FxHashMap<UOp, Layout>) -> Option<usize> {
    let closers = closers(steps);
    (from..steps.len()).find(|&i| {
        let Step::Declare(memory, _) = &steps[i] else {
            return false;
        };
        let Op::Local { n, .. } = *memory.op() else {
            return false;
        };
        let several = matches!(layouts.get(memory), Some(Layout::Variables(run)) if n / run > 1);
        several && sums_products(&steps[i..block_end(steps, &closers, i)], memory)
    })
}

/// Whether products are summed into the memory in a loop that is inside of its scope.
fn sums_products(scope: &[Step], memory: &UOp) -> bool {
    let mut loops: Vec<bool> = Vec::new();
    scope.iter().any(|step| {
        match step {
            Step::Open(block) => loops.push(matches!(block, Block::Loop(_))),
            Step::Close => {
                loops.pop();
            }
            Step::Declare(..) | Step::Let(_) | Step::Store(_) | Step::Tile(_) => {}
        }
        let Step::Store(u) = step else {
            return false;
        };
        let sums = matches!(
            u.op(),
            Op::Store {
                combine: Combine::MulAcc,
                ..
            }
        );
        sums && u.src()[0] == *memory && loops.contains(&true)
    })
}

/// The end of the block that holds a step: its closing step, or the end of the list.
fn block_end(steps: &[Step], closers: &[usize], from: usize) -> usize {
    let mut at = from;
    while at < steps.len() && steps[at] != Step::Close {
        at = closers[at] + 1;
    }
    at
}

/// A run of whole statements, and the declarations before it that belong to it.
struct Nest {
    declares: Vec<usize>,
    from: usize,
    /// The first step behind it.
    to: usize,
}

impl Nest {
    /// Puts the nest into a block, its declarations first; the result is the step behind it.
    fn enclose(self, steps: &mut Vec<Step>) -> usize {
        let mut made = Vec::with_capacity(steps.len() + 2);
        for (i, step) in steps.iter().enumerate() {
            if i == self.from {
                made.push(Step::Open(Block::Nest));
                made.extend(self.declares.iter().map(|&d| steps[d].clone()));
            }
            if i == self.to {
                made.push(Step::Close);
            }
            if !self.declares.contains(&i) {
                made.push(step.clone());
            }
        }
        if self.to == steps.len() {
            made.push(Step::Close);
        }
        *steps = made;
        // Declarations moved, two steps are new.
        self.to + 2
    }
}

/// The statements from the first to the last that name the registers, if nothing else ties them to
/// what is around them.
fn extent_of(
    steps: &[Step],
    declare: usize,
    layouts: &FxHashMap<UOp, Layout>,
    lanes: &mut Lanes,
) -> Option<Nest> {
    let closers = closers(steps);
    let end = block_end(steps, &closers, declare);
    let statements = statements(steps, &closers, declare, end);
    let Step::Declare(memory, _) = &steps[declare] else {
        return None;
    };
    let mut inside: Vec<(usize, UOp)> = vec![(declare, memory.clone())];
    loop {
        let names_one = |&&(from, to): &&(usize, usize)| {
            let named = memories(&steps[from..to]);
            inside.iter().any(|(_, memory)| named.contains(memory))
        };
        let from = statements.iter().find(names_one)?.0;
        let to = statements.iter().rev().find(names_one)?.1;
        let named = memories(&steps[from..to]);
        // Registers that the nest shares with statements around it belong to it, or it is none.
        let others: Vec<(usize, UOp)> = (declare_places(steps, declare, end))
            .filter(|(_, other)| named.contains(other) && in_variables(other, layouts))
            .filter(|(_, other)| !inside.iter().any(|(_, known)| known == other))
            .collect();
        if others.is_empty() {
            let body = &steps[from..to];
            let declares = inside.iter().map(|(place, _)| *place).filter(|d| *d < from);
            let declares: Vec<usize> = declares.collect();
            let own: FxHashSet<UOp> = inside.iter().map(|(_, memory)| memory.clone()).collect();
            let fits = stands_alone(body, &own, layouts, lanes) && nothing_is_left(steps, from, to);
            return fits.then_some(Nest { declares, from, to });
        }
        inside.extend(others);
    }
}

/// Whether nothing that the steps name is named behind them.
fn nothing_is_left(steps: &[Step], from: usize, to: usize) -> bool {
    let mut names: FxHashSet<&UOp> = FxHashSet::default();
    for step in &steps[from..to] {
        match step {
            Step::Declare(u, _) | Step::Let(u) => {
                names.insert(u);
            }
            Step::Store(_) | Step::Tile(_) | Step::Open(_) | Step::Close => {}
        }
    }
    let behind = steps[to..].iter().flat_map(|step| step.reads());
    let behind: Vec<UOp> = behind.cloned().collect();
    !toposort(&behind).iter().any(|u| names.contains(u))
}

/// Declarations in a block, from a step on.
fn declare_places(steps: &[Step], from: usize, end: usize) -> impl Iterator<Item = (usize, UOp)> {
    let places = (from..end).filter_map(|i| match &steps[i] {
        Step::Declare(memory, _) => Some((i, memory.clone())),
        Step::Let(_) | Step::Store(_) | Step::Tile(_) | Step::Open(_) | Step::Close => None,
    });
    places.collect::<Vec<_>>().into_iter()
}

fn in_variables(memory: &UOp, layouts: &FxHashMap<UOp, Layout>) -> bool {
    let single = matches!(memory.op(), Op::Local { n: 1, .. });
    single || matches!(layouts.get(memory), Some(Layout::Variables(_)))
}

/// The statements of a block: names with the store or block that they are for.
fn statements(steps: &[Step], closers: &[usize], from: usize, end: usize) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut begin = None;
    let mut at = from;
    while at < end {
        let next = closers[at] + 1;
        match &steps[at] {
            Step::Let(_) => {
                begin.get_or_insert(at);
            }
            Step::Store(_) | Step::Tile(_) | Step::Open(_) => {
                found.push((begin.take().unwrap_or(at), next));
            }
            Step::Declare(..) | Step::Close => {}
        }
        at = next;
    }
    found
}

/// Memory that steps access.
fn memories(steps: &[Step]) -> FxHashSet<UOp> {
    let mut found = FxHashSet::default();
    for step in steps {
        found.extend(loads(step).iter().map(|u| u.src()[0].clone()));
        if let Step::Store(u) = step {
            found.insert(u.src()[0].clone());
        }
        if let Step::Tile(tile) = step {
            found.extend(tile.memories.iter().cloned());
        }
    }
    found
}

/// Whether all that the steps need from outside can be given to a function: no vectors, no
/// registers, and no team.
fn stands_alone(
    body: &[Step],
    own: &FxHashSet<UOp>,
    layouts: &FxHashMap<UOp, Layout>,
    lanes: &mut Lanes,
) -> bool {
    let mut declared = own.clone();
    let mut names: FxHashSet<UOp> = FxHashSet::default();
    for step in body {
        match step {
            Step::Declare(memory, _) => {
                let Op::Local {
                    space, dtype, n, ..
                } = *memory.op()
                else {
                    return false;
                };
                // The caller of the kernel provides it.
                if space == Space::Arena || n.saturating_mul(dtype.size()) > STACK_LIMIT {
                    return false;
                }
                declared.insert(memory.clone());
            }
            Step::Let(u) => {
                names.insert(u.clone());
            }
            // A tile is a function already.
            Step::Tile(_) | Step::Open(Block::Nest) => return false,
            Step::Open(Block::Loop(range)) => {
                if matches!(
                    range.op(),
                    Op::Range {
                        exec: Exec::Thread,
                        ..
                    }
                ) {
                    return false;
                }
            }
            Step::Store(_) | Step::Open(_) | Step::Close => {}
        }
        for u in toposort(step.reads()) {
            let is_vector = matches!(u.op(), Op::Let { .. }) && !names.contains(&u);
            if is_vector && lanes.of(&u) > 1 {
                return false;
            }
        }
    }
    let named = memories(body);
    let is_local = |u: &&UOp| matches!(u.op(), Op::Local { .. });
    named
        .iter()
        .filter(is_local)
        .all(|u| declared.contains(u) || !in_variables(u, layouts))
}
