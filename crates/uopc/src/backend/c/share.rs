//! One name for one value: what several statements compute alike is computed once.
//!
//! Statements name what they load and what they use twice, each for itself. Where a loop was written
//! out, or a vector loop is no loop any more, neighbours compute the same: the row of a matrix tile
//! needs one load for all its columns. Here each value gets one name for as long as it stands, which
//! for a load is until something may write the memory. Conditions that differ between lanes get
//! names too, and blocks under them become masked.

use rustc_hash::{FxHashMap, FxHashSet};

use super::fold::Folder;
use super::lanes::Lanes;
use super::steps::{Block, Step, closers};
use crate::ir::op::Op;
use crate::ir::{DType, UOp};

/// Gives equal values one name.
pub(super) fn share(steps: &[Step], lanes: &mut Lanes, names: &mut u32) -> Vec<Step> {
    let closers = closers(steps);
    let mut sharing = Sharing {
        out: Vec::with_capacity(steps.len()),
        folder: Folder::default(),
        known: FxHashMap::default(),
        scopes: vec![Vec::new()],
        lanes,
        names,
    };
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Declare(..) => sharing.out.push(step.clone()),
            Step::Let(u) => {
                let value = sharing.value(&u.src()[0]);
                let name = sharing.name(&value, Some(u));
                sharing.folder.set(u, &name);
            }
            Step::Store(u) => {
                let store = sharing.value(u);
                sharing.forget(|memory| *memory == store.src()[0]);
                sharing.out.push(Step::Store(store));
            }
            Step::Tile(tile) => {
                let tile = tile.mapped(|u| sharing.value(u));
                sharing.forget(|memory| *memory == tile.memories[0]);
                sharing.out.push(Step::Tile(Box::new(tile)));
            }
            Step::Open(block) => {
                if let Block::Loop(_) = block {
                    // What the loop writes is not the same in each of its rounds.
                    let written = written(&steps[i..closers[i]]);
                    sharing.forget(|memory| written.contains(memory));
                }
                let block = sharing.block(block);
                sharing.out.push(Step::Open(block));
                sharing.scopes.push(Vec::new());
            }
            Step::Close => {
                for value in sharing.scopes.pop().into_iter().flatten() {
                    sharing.known.remove(&value);
                }
                sharing.out.push(Step::Close);
            }
        }
    }
    sharing.out
}

/// The memory that steps write.
fn written(steps: &[Step]) -> FxHashSet<UOp> {
    let stores = steps.iter().filter_map(|step| match step {
        Step::Store(u) => Some(u.src()[0].clone()),
        Step::Tile(tile) => Some(tile.memories[0].clone()),
        Step::Declare(..) | Step::Let(_) | Step::Open(_) | Step::Close => None,
    });
    stores.collect()
}

/// A value that has a name.
struct Named {
    name: UOp,
    /// The memory that it was loaded from.
    memories: Vec<UOp>,
}

struct Sharing<'a> {
    out: Vec<Step>,
    /// From names as they were to names as they are.
    folder: Folder,
    /// By value.
    known: FxHashMap<UOp, Named>,
    /// For each open block the values that were named in it.
    scopes: Vec<Vec<UOp>>,
    lanes: &'a mut Lanes,
    names: &'a mut u32,
}

impl Sharing<'_> {
    /// An expression in terms of names.
    fn value(&mut self, u: &UOp) -> UOp {
        let value = self.folder.of(u);
        if matches!(value.op(), Op::Load) {
            return self.gated(&value);
        }
        value
    }

    /// The name of a value, which is that of the LET if it is new.
    fn name(&mut self, value: &UOp, of: Option<&UOp>) -> UOp {
        if matches!(value.op(), Op::Let { .. } | Op::Const(_)) {
            return value.clone();
        }
        if let Some(named) = self.known.get(value) {
            return named.name.clone();
        }
        let id = if let Some(Op::Let { id }) = of.map(UOp::op) {
            *id
        } else {
            *self.names += 1;
            *self.names
        };
        let name = UOp::new(Op::Let { id }, [value.clone()].as_slice());
        let name = name.expect("a LET takes any scalar");
        self.out.push(Step::Let(name.clone()));
        let named = Named {
            name: name.clone(),
            memories: memories(value),
        };
        self.known.insert(value.clone(), named);
        let scope = self.scopes.last_mut().expect("the outermost scope is open");
        scope.push(value.clone());
        name
    }

    /// Forgets the values of loads from memory that was written.
    fn forget(&mut self, is_written: impl Fn(&UOp) -> bool) {
        self.known
            .retain(|_, named| !named.memories.iter().any(&is_written));
    }

    fn block(&mut self, block: &Block) -> Block {
        match block {
            Block::Loop(range) => Block::Loop(range.clone()),
            Block::Nest => {
                // A function of its own sees no names of the outside but as arguments.
                self.known.clear();
                Block::Nest
            }
            Block::If(condition) | Block::Lanes(condition) => {
                let condition = self.value(condition);
                let (scalar, of_lanes) = self.conditions(&condition);
                match of_lanes {
                    None => Block::If(condition),
                    Some(mask) if scalar.is_none() => Block::Lanes(mask),
                    // Both: a scalar one for all lanes is part of the mask.
                    Some(mask) => Block::Lanes(both(scalar, mask)),
                }
            }
        }
    }

    /// A load whose gate names its part that differs between lanes.
    fn gated(&mut self, load: &UOp) -> UOp {
        let [memory, index, gate] = load.src() else {
            return load.clone();
        };
        let (scalar, of_lanes) = self.conditions(gate);
        match of_lanes {
            None => load.clone(),
            Some(mask) => memory
                .load(index, Some(&both(scalar, mask)))
                .expect("a gate is a bool"),
        }
    }

    /// The conditions that hold together in one: those for all lanes, and those that differ, which
    /// get a name.
    fn conditions(&mut self, condition: &UOp) -> (Option<UOp>, Option<UOp>) {
        if self.lanes.of(condition) == 1 {
            return (Some(condition.clone()), None);
        }
        let parts = conjuncts(condition);
        let (of_lanes, scalar): (Vec<UOp>, Vec<UOp>) =
            parts.into_iter().partition(|u| self.lanes.of(u) > 1);
        let all = |parts: Vec<UOp>| {
            parts
                .into_iter()
                .reduce(|a, b| a.and(&b).expect("conditions are bools"))
        };
        let mask = all(of_lanes).map(|mask| self.name(&mask, None));
        (all(scalar), mask)
    }
}

fn both(scalar: Option<UOp>, mask: UOp) -> UOp {
    match scalar {
        None => mask,
        Some(scalar) => scalar.and(&mask).expect("conditions are bools"),
    }
}

/// The conditions of which all must hold.
pub(super) fn conjuncts(condition: &UOp) -> Vec<UOp> {
    let mut found: Vec<UOp> = Vec::new();
    let mut pending = vec![condition.clone()];
    while let Some(u) = pending.pop() {
        let named = matches!(u.op(), Op::Let { .. }) && *u.src()[0].op() == Op::And;
        let inner = if named { &u.src()[0] } else { &u };
        if *inner.op() == Op::And && inner.dtype() == DType::Bool {
            pending.extend(inner.src().iter().rev().cloned());
        } else if !found.contains(&u) {
            found.push(u);
        }
    }
    found
}

/// The memory that a value reads, names aside.
fn memories(value: &UOp) -> Vec<UOp> {
    let mut found = Vec::new();
    let mut met: FxHashSet<&UOp> = FxHashSet::default();
    let mut pending = vec![value];
    while let Some(u) = pending.pop() {
        if !met.insert(u) || matches!(u.op(), Op::Let { .. } | Op::Range { .. }) {
            continue;
        }
        if matches!(u.op(), Op::Load) {
            found.push(u.src()[0].clone());
        }
        pending.extend(u.src());
    }
    found
}
