//! The part of a graph that has to be computed: from the roots down to values in memory.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::RealizeOptions;
use super::plans::Key;
use crate::error::{Error, Result};
use crate::ir::fold::chain_product;
use crate::ir::form::ShapeGraph;
use crate::ir::op::{BufferId, Fold, Op};
use crate::ir::uop::Sources;
use crate::ir::{UOp, verify};
use crate::runtime::Storage;

/// Nodes in topological order, depth first, sources left to right, as in
/// [`Graph`](crate::ir::visit::Graph); but a value in memory is a leaf.
pub(super) struct Walk {
    pub(super) nodes: Vec<UOp>,
    /// What the values in memory are in, in the order they were met: the slots of the plan.
    pub(super) inputs: Vec<Arc<Storage>>,
    /// For each node whether it depends on a leaf of the tape.
    pub(super) on_tape: Vec<bool>,
    /// For each node the slot it is, if it is in memory.
    slots: Vec<Option<u32>>,
    /// For each node whether it begins a path of the tape.
    starts_tape: Vec<bool>,
    /// Positions of all sources, one node's after the other's, and where each node's end.
    sources: Vec<u32>,
    ends: Vec<usize>,
    roots: Vec<u32>,
}

impl Walk {
    pub(super) fn new(roots: &[UOp], options: &RealizeOptions) -> Result<Walk> {
        // A chain sums a product that is not rounded, and memory holds a rounded one: such a
        // product is computed again from its factors. It may be met before the chain is, so
        // the walk begins anew when one was taken from memory.
        let mut summed = FxHashSet::default();
        loop {
            let walk = Walk::except(&summed, roots, options)?;
            let before = summed.len();
            walk.products_in_memory(&mut summed);
            if summed.len() == before {
                return Ok(walk);
            }
        }
    }

    /// The products of chains that the walk took from memory, and what lies between.
    fn products_in_memory(&self, summed: &mut FxHashSet<UOp>) {
        let nodes = || self.nodes.iter().zip(&self.slots);
        let in_memory: FxHashSet<&UOp> = nodes()
            .filter(|(u, slot)| slot.is_some() && !u.src().is_empty())
            .map(|(u, _)| u)
            .collect();
        if in_memory.is_empty() {
            return;
        }
        for (u, _) in nodes().filter(|(u, slot)| slot.is_none() && is_chain(u)) {
            if let Some((product, between)) = chain_product(&u.src()[0]) {
                let path = between.into_iter().chain([product]);
                summed.extend(path.filter(|u| in_memory.contains(u)));
            }
        }
    }

    /// The walk that computes some values even if they are in memory.
    fn except(computed: &FxHashSet<UOp>, roots: &[UOp], options: &RealizeOptions) -> Result<Walk> {
        let stored = |u: &UOp| match computed.contains(u) {
            true => Ok(None),
            false => stored(u, options),
        };
        let mut walk = Walk {
            nodes: Vec::new(),
            inputs: Vec::new(),
            on_tape: Vec::new(),
            slots: Vec::new(),
            starts_tape: Vec::new(),
            sources: Vec::new(),
            ends: Vec::new(),
            roots: Vec::new(),
        };
        let leaves: FxHashSet<usize> = options.tape_leaves.iter().map(UOp::address).collect();
        let mut index: FxHashMap<usize, u32> = FxHashMap::default();
        // A frame is a node, how many of its sources have been entered, and its memory.
        let mut stack: Vec<(&UOp, usize, Option<Arc<Storage>>)> = Vec::new();
        for root in roots {
            if !index.contains_key(&root.address()) {
                stack.push((root, 0, stored(root)?));
            }
            while let Some((u, entered, storage)) = stack.last_mut() {
                let below = if storage.is_some() { &[] } else { u.src() };
                if let Some(s) = below.get(*entered) {
                    *entered += 1;
                    if !index.contains_key(&s.address()) {
                        let storage = stored(s)?;
                        stack.push((s, 0, storage));
                    }
                } else if let Some((u, _, storage)) = stack.pop() {
                    index.insert(u.address(), walk.nodes.len() as u32);
                    walk.append(u, storage, &index, &leaves);
                }
            }
            walk.roots.push(index[&root.address()]);
        }
        Ok(walk)
    }

    fn append(
        &mut self,
        u: &UOp,
        storage: Option<Arc<Storage>>,
        index: &FxHashMap<usize, u32>,
        leaves: &FxHashSet<usize>,
    ) {
        // What lies behind a value that was computed earlier is not looked at: if anything is
        // on the tape, it counts as depending on a leaf.
        let computed = storage.is_some() && !u.src().is_empty() && !leaves.is_empty();
        let starts = computed || leaves.contains(&u.address());
        let mut on_tape = starts;
        if let Some(storage) = storage {
            self.slots.push(Some(self.inputs.len() as u32));
            self.inputs.push(storage);
        } else {
            for s in u.src() {
                let s = index[&s.address()];
                on_tape |= self.on_tape[s as usize];
                self.sources.push(s);
            }
            self.slots.push(None);
        }
        self.ends.push(self.sources.len());
        self.starts_tape.push(starts);
        self.on_tape.push(on_tape);
        self.nodes.push(u.clone());
    }

    fn src(&self, i: usize) -> &[u32] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.sources[start..self.ends[i]]
    }

    /// The structure: equal for graphs that one plan computes, whatever memory they read.
    pub(super) fn key(&self) -> Key {
        let mut text = Text(Vec::with_capacity(32 * self.nodes.len()));
        for (i, u) in self.nodes.iter().enumerate() {
            self.starts_tape[i].hash(&mut text);
            match self.slots[i] {
                Some(slot) => (0u8, slot, u.dtype(), u.shape()).hash(&mut text),
                None => (1u8, u.op(), self.src(i)).hash(&mut text),
            }
        }
        self.roots.hash(&mut text);
        *blake3::hash(&text.0).as_bytes()
    }

    /// The graph with numbered slots in place of memory, and for each of its nodes that stands
    /// for one of the walk the position of that one.
    pub(super) fn with_slots(&self) -> Result<(ShapeGraph, FxHashMap<UOp, usize>)> {
        let mut made: Vec<UOp> = Vec::with_capacity(self.nodes.len());
        let mut position_of = FxHashMap::default();
        for (i, u) in self.nodes.iter().enumerate() {
            let new = match self.slots[i] {
                Some(slot) => {
                    let buffer = UOp::slot(slot, u.dtype(), u.shape().numel());
                    position_of.insert(buffer.clone(), i);
                    buffer.reshape(u.shape())?
                }
                None => {
                    let src = self.src(i).iter().map(|&s| made[s as usize].clone());
                    u.with_src(&src.collect::<Sources>())?
                }
            };
            position_of.insert(new.clone(), i);
            made.push(new);
        }
        let roots = self.roots.iter().map(|&r| made[r as usize].clone());
        Ok((verify::shape_graph(roots.collect())?, position_of))
    }
}

fn is_chain(u: &UOp) -> bool {
    matches!(
        u.op(),
        Op::Reduce {
            fold: Fold::Chain,
            ..
        }
    )
}

/// The memory that holds a node's value already: a live leaf's own, a slot's that the caller
/// binds, or the node's home.
///
/// # Errors
/// When a slot is not bound, or memory is too small for its node.
pub(super) fn stored(u: &UOp, options: &RealizeOptions) -> Result<Option<Arc<Storage>>> {
    let storage = match u.op() {
        Op::Buffer {
            id: BufferId::Live(live),
            ..
        } => {
            let storage = live.storage.clone().downcast::<Storage>();
            Some(storage.expect("the memory of a live leaf is made by the runtime"))
        }
        Op::Buffer {
            id: BufferId::Slot(slot),
            ..
        } => {
            let bound = options.slots.iter().find(|(s, _)| s == slot);
            let Some((_, storage)) = bound else {
                return Err(Error::Shape {
                    op: "buffer",
                    message: format!("slot {slot} holds no data; bind it before running"),
                    site: u.site(),
                });
            };
            Some(storage.clone())
        }
        _ => u.home().and_then(|home| home.downcast::<Storage>().ok()),
    };
    if let Some(storage) = &storage {
        let needed = u.shape().numel() * u.dtype().size();
        if storage.bytes() < needed {
            return Err(Error::Shape {
                op: "buffer",
                message: format!(
                    "{} of shape {} takes {needed} bytes, its data has {}",
                    u.dtype(),
                    u.shape(),
                    storage.bytes()
                ),
                site: u.site(),
            });
        }
    }
    Ok(storage)
}

/// Collects what is hashed, so that one pass over it makes the key.
struct Text(Vec<u8>);

impl Hasher for Text {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the bytes are hashed, not the state")
    }
}
