//! The part of a graph that has to be computed: from the roots down to values in memory.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::RealizeOptions;
use crate::error::{Error, Result};
use crate::ir::fold::chain_product;
use crate::ir::form::ShapeGraph;
use crate::ir::op::{BufferId, Fold, Op};
use crate::ir::positions::Positions;
use crate::ir::uop::Sources;
use crate::ir::{UOp, verify};
use crate::runtime::Storage;

/// Nodes in topological order, depth first, sources left to right, as in
/// [`Graph`](crate::ir::visit::Graph); but a value in memory is a leaf.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) nodes: Vec<UOp>,
    /// What the values in memory are in, in the order they were met: the slots of the plan.
    pub(super) inputs: Vec<Arc<Storage>>,
    /// What was met at each node.
    met: Vec<Met>,
    positions: Positions,
    roots: Vec<u32>,
    text: Text,
    frames: Vec<Frame>,
    done: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Met {
    /// The slot that the node is, if it is in memory.
    slot: Option<u32>,
    /// Whether it begins a path of the tape.
    starts_tape: bool,
}

/// A node whose sources are being walked.
struct Frame {
    node: UOp,
    /// How many sources have been entered.
    entered: usize,
}

/// Walks of at most this many nodes leave their memory to the next one.
const KEPT_NODES: usize = 1 << 12;

thread_local! {
    /// The memory of this thread's last walk, emptied: walks are many and mostly small.
    static SPARE: Cell<Option<Box<Walk>>> = const { Cell::new(None) };
}

impl Walk {
    pub(super) fn new(roots: &[&UOp], options: &RealizeOptions) -> Result<Box<Walk>> {
        // A chain sums a product that is not rounded, and memory holds a rounded one: such a
        // product is computed again from its factors. It may be met before the chain is, so
        // the walk begins anew when one was taken from memory.
        let mut summed = FxHashSet::default();
        let mut walk = SPARE.take().unwrap_or_default();
        loop {
            walk.run(&summed, roots, options)?;
            let before = summed.len();
            walk.products_in_memory(&mut summed);
            if summed.len() == before {
                return Ok(walk);
            }
            walk.clear();
        }
    }

    /// Ends the walk and leaves its memory to the thread's next one.
    pub(super) fn end(mut self: Box<Walk>) {
        if self.nodes.len() <= KEPT_NODES {
            self.clear();
            SPARE.set(Some(self));
        }
    }

    fn clear(&mut self) {
        self.nodes.clear();
        self.inputs.clear();
        self.met.clear();
        self.roots.clear();
        self.text.0.clear();
        self.frames.clear();
        self.done.clear();
    }

    /// The products of chains that the walk took from memory, and what lies between.
    fn products_in_memory(&self, summed: &mut FxHashSet<UOp>) {
        let nodes = || self.nodes.iter().zip(&self.met);
        let in_memory: FxHashSet<&UOp> = nodes()
            .filter(|(u, met)| met.slot.is_some() && !u.src().is_empty())
            .map(|(u, _)| u)
            .collect();
        if in_memory.is_empty() {
            return;
        }
        for (u, _) in nodes().filter(|(u, met)| met.slot.is_none() && is_chain(u)) {
            if let Some((product, between)) = chain_product(&u.src()[0]) {
                let path = between.into_iter().chain([product]);
                summed.extend(path.filter(|u| in_memory.contains(u)));
            }
        }
    }

    /// Walks, and computes some values even if they are in memory.
    fn run(
        &mut self,
        computed: &FxHashSet<UOp>,
        roots: &[&UOp],
        options: &RealizeOptions,
    ) -> Result<()> {
        let leaves: FxHashSet<usize> = options.tape_leaves.iter().map(UOp::address).collect();
        let stored = |u: &UOp| match computed.contains(u) {
            true => Ok(None),
            false => stored(u, options),
        };
        self.positions = Positions::begin();
        for &root in roots {
            match self.positions.of(root, &self.nodes) {
                Some(position) => self.done.push(position),
                None => self.enter(root.clone(), stored(root)?, &leaves),
            }
            while let Some(frame) = self.frames.last_mut() {
                if let Some(s) = frame.node.src().get(frame.entered) {
                    frame.entered += 1;
                    match self.positions.of(s, &self.nodes) {
                        Some(position) => self.done.push(position),
                        None => {
                            let (s, storage) = (s.clone(), stored(s)?);
                            self.enter(s, storage, &leaves);
                        }
                    }
                } else if let Some(Frame { node, .. }) = self.frames.pop() {
                    self.append(node, None, &leaves);
                }
            }
            self.roots.extend(self.done.pop());
        }
        self.positions.end();
        self.text.end(&self.roots);
        Ok(())
    }

    /// Takes up a node that was not met before; one without sources is done at once.
    fn enter(&mut self, node: UOp, storage: Option<Arc<Storage>>, leaves: &FxHashSet<usize>) {
        if storage.is_some() || node.src().is_empty() {
            self.append(node, storage, leaves);
        } else {
            self.frames.push(Frame { node, entered: 0 });
        }
    }

    /// Gives a node its position. The positions of its sources are the last ones done.
    fn append(&mut self, u: UOp, storage: Option<Arc<Storage>>, leaves: &FxHashSet<usize>) {
        // What lies behind a value that was computed earlier is not looked at: if anything is
        // on the tape, it counts as depending on a leaf.
        let computed = storage.is_some() && !u.src().is_empty() && !leaves.is_empty();
        let starts_tape = computed || leaves.contains(&u.address());
        let slot = match storage {
            Some(storage) => {
                self.text.slot(&u, starts_tape);
                self.inputs.push(storage);
                Some(self.inputs.len() as u32 - 1)
            }
            None => {
                let sources = self.done.len() - u.src().len();
                self.text.node(&u, starts_tape, &self.done[sources..]);
                self.done.truncate(sources);
                None
            }
        };
        self.done.push(self.positions.push(u, &mut self.nodes));
        self.met.push(Met { slot, starts_tape });
    }

    /// The slots of the plan and the nodes whose values they hold, in order.
    pub(super) fn nodes_in_memory(&self) -> impl Iterator<Item = (u32, &UOp)> {
        let met = self.met.iter().zip(&self.nodes);
        met.filter_map(|(met, u)| Some((met.slot?, u)))
    }

    /// The structure: equal for graphs that one plan computes, whatever memory they read.
    pub(super) fn text(&self) -> &[u64] {
        &self.text.0
    }

    /// For each node whether it depends on a leaf of the tape.
    pub(super) fn on_tape(&self) -> Vec<bool> {
        let mut on_tape: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for (u, met) in self.nodes.iter().zip(&self.met) {
            let sources = met.slot.is_none().then(|| self.sources(u));
            let reached = sources.into_iter().flatten().any(|s| on_tape[s]);
            on_tape.push(met.starts_tape || reached);
        }
        on_tape
    }

    /// The positions of a node's sources, which were walked.
    fn sources<'a>(&'a self, u: &'a UOp) -> impl Iterator<Item = usize> + 'a {
        u.src().iter().map(|s| {
            let position = self.positions.of(s, &self.nodes);
            position.expect("sources are walked before their node") as usize
        })
    }
    /// The graph with numbered slots in place of memory, and for each of its nodes that stands
    /// for one of the walk the position of that one.
    pub(super) fn with_slots(&self) -> Result<(ShapeGraph, FxHashMap<UOp, usize>)> {
        let mut made: Vec<UOp> = Vec::with_capacity(self.nodes.len());
        let mut position_of = FxHashMap::default();
        for (i, u) in self.nodes.iter().enumerate() {
            let new = match self.met[i].slot {
                Some(slot) => {
                    let buffer = UOp::slot(slot, u.dtype(), u.shape().numel());
                    position_of.insert(buffer.clone(), i);
                    buffer.reshape(u.shape())?
                }
                None => {
                    let src = self.sources(u).map(|s| made[s].clone());
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

/// The error for a leaf that stands for each of many values.
fn unknown(u: &UOp) -> Error {
    Error::Unsupported {
        what: "a value inside vmap or a rule",
        message: format!(
            "what depends on an argument of dtype {} with {} elements can't be computed: in a \
             function that is mapped the argument stands for each slice at once, and in a rule of \
             one's own (custom, a gradient hook) for values to come; compute it outside, and choose \
             between values by where instead of if",
            u.dtype(),
            u.shape().numel()
        ),
        site: u.site(),
    }
}

/// The memory that holds a node's value already: a live leaf's own, a slot's that the caller
/// binds, or the node's home.
///
/// # Errors
/// When a slot is not bound, a leaf stands for no single value, or memory is too small for its
/// node.
pub(super) fn stored(u: &UOp, options: &RealizeOptions) -> Result<Option<Arc<Storage>>> {
    let storage = match u.op() {
        Op::Buffer {
            id: BufferId::Live(live),
            ..
        } => {
            let Ok(storage) = live.storage.clone().downcast::<Storage>() else {
                return Err(unknown(u));
            };
            Some(storage)
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
        let needed = u.shape().numel().saturating_mul(u.dtype().size());
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

/// A structure as words, such that different ones have different texts: a record for each node,
/// each of which says how long it is, then the roots and their number.
#[derive(Default)]
struct Text(Vec<u64>);

impl Text {
    /// A value in memory. Its slot is the number of those before it.
    fn slot(&mut self, u: &UOp, starts_tape: bool) {
        self.0.push(u64::from(starts_tape) << 1 | 1);
        (u.dtype(), u.shape()).hash(self);
    }

    /// A value to be computed, with the positions of its sources.
    fn node(&mut self, u: &UOp, starts_tape: bool, sources: &[u32]) {
        self.0
            .push((sources.len() as u64) << 2 | u64::from(starts_tape) << 1);
        u.op().hash(self);
        self.0.extend(sources.iter().copied().map(u64::from));
    }

    fn end(&mut self, roots: &[u32]) {
        let words = roots.iter().copied().map(u64::from);
        self.0.extend(words.chain([roots.len() as u64]));
    }
}

/// Collects what is hashed, a word for each number.
impl Hasher for Text {
    fn write(&mut self, bytes: &[u8]) {
        self.0.push(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        self.0.extend(words.iter().map(|&w| u64::from_ne_bytes(w)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.0.push(u64::from_ne_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.0.push(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.0.push(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.0.push(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0.push(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.0.push(number as u64);
    }

    fn finish(&self) -> u64 {
        unreachable!("the words are the result, not a state")
    }
}
