//! Which buffers are parameters, which values were computed from them, and where histories ended.
//!
//! A parameter is a leaf with a buffer of its own, and buffers never change. An update gives the
//! parameter a new buffer, so what was computed from the old one has no gradient with respect to
//! the new value. Such values forget their graphs, so that a kept loss holds no old weights, and
//! a note stays with the buffers concerned, so that asking for the gradient is an error and not
//! zeros.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{Error, Handle, Result, Shape, Site, UOp};
use crate::autodiff::carries;
use crate::ir::Op;
use crate::ir::op::{BufferId, LiveBuffer, StageKind};
use crate::ir::positions::Positions;
use crate::runtime::Storage;

/// Memory of interior nodes that one run has kept for gradients.
pub(super) type Kept = Vec<(UOp, Arc<Storage>)>;

/// The memory that the gradients of a tensor will read.
#[derive(Default)]
pub(super) struct Tape {
    owned: SmallVec<[Arc<Kept>; 1]>,
    /// What was handed to gradients, which own it until they are computed.
    lent: SmallVec<[Weak<Kept>; 1]>,
}

impl Tape {
    /// A tape with the memory that one run has kept.
    pub(super) fn new(kept: &Arc<Kept>) -> Tape {
        let mut tape = Tape::default();
        if !kept.is_empty() {
            tape.owned.push(kept.clone());
        }
        tape
    }

    /// Hands the memory over: it lives as long as the copies made from the result. Later calls
    /// find it only while such a copy lives.
    pub(super) fn lend(&mut self) -> Tape {
        let mut owned: SmallVec<_> = self.lent.iter().filter_map(Weak::upgrade).collect();
        owned.append(&mut self.owned);
        self.lent = owned.iter().map(Arc::downgrade).collect();
        Tape {
            owned,
            lent: SmallVec::new(),
        }
    }

    /// A tape that owns the same.
    pub(super) fn share(&self) -> Tape {
        Tape {
            owned: self.owned.clone(),
            lent: SmallVec::new(),
        }
    }

    /// Owns what the other owns, too.
    pub(super) fn join(&mut self, other: &Tape) {
        self.owned.extend(other.owned.iter().cloned());
    }
}

/// What is known about live buffers, by their number. An entry goes when its buffer is gone.
struct Registry {
    parameters: BTreeMap<u64, Parameter>,
    ended: BTreeMap<u64, Ended>,
    sweep_at: usize,
}

/// A buffer that is the present value of a parameter.
struct Parameter {
    buffer: Weak<LiveBuffer>,
    /// The tensor's number.
    owner: u64,
    /// The tensor itself, as long as somebody holds it.
    handle: Weak<Handle>,
    /// Computed tensors whose graphs reach the buffer.
    readers: Vec<Weak<Handle>>,
    sweep_at: usize,
}

/// A buffer at which a history ended.
struct Ended {
    buffer: Weak<LiveBuffer>,
    /// The tensors, by their numbers, on which the value depended: what is computed from it has
    /// lost its gradient with respect to them.
    owners: BTreeSet<u64>,
    /// Where the update was written.
    site: Option<Site>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    parameters: BTreeMap::new(),
    ended: BTreeMap::new(),
    sweep_at: 64,
});

impl Registry {
    /// Drops entries whose buffers are gone, once there are twice as many as after the last time.
    fn sweep(&mut self) {
        if self.parameters.len() + self.ended.len() < self.sweep_at {
            return;
        }
        self.parameters.retain(|_, p| p.buffer.strong_count() > 0);
        self.ended.retain(|_, e| e.buffer.strong_count() > 0);
        self.sweep_at = 2 * (self.parameters.len() + self.ended.len()).max(32);
    }
}

/// A new leaf of that shape over computed or copied memory.
pub(super) fn leaf(storage: Arc<Storage>, dtype: super::DType, shape: &Shape) -> Result<UOp> {
    live_leaf(storage, dtype, shape)
}

/// A new leaf of that shape, over whatever lies behind it.
pub(super) fn live_leaf(
    storage: Arc<dyn Any + Send + Sync>,
    dtype: super::DType,
    shape: &Shape,
) -> Result<UOp> {
    let buffer = Arc::new(LiveBuffer::new(storage));
    UOp::live(buffer, dtype, shape.numel()).reshape(shape)
}

/// Whether a node is a leaf over memory.
pub(super) fn is_in_memory(node: &UOp) -> bool {
    buffer_of(node).is_some_and(|buffer| buffer.storage.is::<Storage>())
}

/// The buffer of a leaf: of a live BUFFER, perhaps reshaped.
pub(super) fn buffer_of(node: &UOp) -> Option<&Arc<LiveBuffer>> {
    let mut u = node;
    while let Op::Reshape(_) = u.op() {
        u = &u.src()[0];
    }
    live(u)
}

fn live(u: &UOp) -> Option<&Arc<LiveBuffer>> {
    match u.op() {
        Op::Buffer {
            id: BufferId::Live(buffer),
            ..
        } => Some(buffer),
        _ => None,
    }
}

/// The live buffers below the roots, each once, along the sources that `follow` lets through.
fn buffers(roots: &[UOp], follow: impl Fn(&UOp, usize) -> bool) -> Vec<UOp> {
    let mut found = Vec::new();
    let (mut seen, mut positions) = (Vec::new(), Positions::begin());
    let mut todo: Vec<&UOp> = roots.iter().rev().collect();
    while let Some(u) = todo.pop() {
        if positions.of(u, &seen).is_some() {
            continue;
        }
        positions.push(u, &mut seen);
        if live(u).is_some() {
            found.push(u.clone());
        }
        let sources = u.src().iter().enumerate().rev();
        todo.extend(sources.filter(|(k, _)| follow(u, *k)).map(|(_, s)| s));
    }
    found
}

/// Whether history goes on from a node to its sources: what was detached has none.
fn has_history(u: &UOp, _source: usize) -> bool {
    !matches!(u.op(), Op::Stage(StageKind::Detach))
}

/// Notes that a leaf is the value of that parameter.
pub(super) fn register(node: &UOp, owner: &Arc<Handle>) {
    let Some(buffer) = buffer_of(node) else {
        return;
    };
    let mut registry = REGISTRY.lock();
    registry.sweep();
    let parameter = Parameter {
        buffer: Arc::downgrade(buffer),
        owner: owner.id,
        handle: Arc::downgrade(owner),
        readers: Vec::new(),
        sweep_at: 16,
    };
    registry.parameters.insert(buffer.id, parameter);
}

/// Notes that a leaf is no longer the value of a parameter.
pub(super) fn unregister(node: &UOp) {
    if let Some(buffer) = buffer_of(node) {
        let former = REGISTRY.lock().parameters.remove(&buffer.id);
        drop(former);
    }
}

/// The parameters' buffers that the nodes depend on, as `(buffer node, parameter's number)`.
pub(super) fn leaves(roots: &[UOp]) -> Vec<(UOp, u64)> {
    let nodes = buffers(roots, has_history);
    let registry = REGISTRY.lock();
    let known = |u: UOp| {
        let parameter = registry.parameters.get(&live(&u)?.id)?;
        Some((u, parameter.owner))
    };
    nodes.into_iter().filter_map(known).collect()
}

/// Notes that a computed tensor's graph reaches these buffers.
pub(super) fn add_reader(leaves: &[(UOp, u64)], reader: &Arc<Handle>) {
    let mut registry = REGISTRY.lock();
    for (buffer, _) in leaves {
        let Some(parameter) = live(buffer).and_then(|b| registry.parameters.get_mut(&b.id)) else {
            continue;
        };
        if parameter.readers.len() >= parameter.sweep_at {
            parameter.readers.retain(|r| r.strong_count() > 0);
            parameter.sweep_at = 2 * parameter.readers.len().max(8);
        }
        parameter.readers.push(Arc::downgrade(reader));
    }
}

/// Takes back [`add_reader`] for a tensor that has another graph now.
pub(super) fn remove_reader(leaves: &[(UOp, u64)], reader: &Arc<Handle>) {
    let mut registry = REGISTRY.lock();
    for (buffer, _) in leaves {
        if let Some(parameter) = live(buffer).and_then(|b| registry.parameters.get_mut(&b.id)) {
            parameter
                .readers
                .retain(|r| r.as_ptr() != Arc::as_ptr(reader));
        }
    }
}

/// The tensors, by number, on which the nodes depend, or did so before their history ended, in a
/// way that gradients can follow.
pub(super) fn dependencies(roots: &[UOp]) -> BTreeSet<u64> {
    let nodes = buffers(roots, carries);
    let registry = REGISTRY.lock();
    let mut found = BTreeSet::new();
    for buffer in nodes.iter().filter_map(live) {
        found.extend(registry.parameters.get(&buffer.id).map(|p| p.owner));
        found.extend(
            registry
                .ended
                .get(&buffer.id)
                .iter()
                .flat_map(|e| &e.owners),
        );
    }
    found
}

/// Ends the history of a parameter at this leaf, which an update at `site` replaces, and of the
/// tensors `with` that were computed from it and become leaves as well. Returns the other computed
/// tensors whose graphs reach the leaf, which must follow.
pub(super) fn supersede(node: &UOp, with: &[u64], site: Option<Site>) -> Vec<Arc<Handle>> {
    let Some(buffer) = buffer_of(node) else {
        return Vec::new();
    };
    let parameter = REGISTRY.lock().parameters.remove(&buffer.id);
    let Some(parameter) = parameter else {
        return Vec::new();
    };
    // Upgraded outside the lock: the last owner of a tensor may be met here.
    let readers: Vec<Arc<Handle>> = parameter.readers.iter().filter_map(Weak::upgrade).collect();
    let mut owners = BTreeSet::from([parameter.owner]);
    owners.extend(with);
    owners.extend(readers.iter().map(|r| r.id));
    end(node, owners, site);
    readers
}

/// Notes that this leaf stands for a value which depended on those tensors.
pub(super) fn end(node: &UOp, owners: BTreeSet<u64>, site: Option<Site>) {
    if let Some(buffer) = buffer_of(node)
        && !owners.is_empty()
    {
        let ended = Ended {
            buffer: Arc::downgrade(buffer),
            owners,
            site,
        };
        let mut registry = REGISTRY.lock();
        registry.sweep();
        registry.ended.insert(buffer.id, ended);
    }
}

/// The living parameters on which a node depends in a way that gradients can follow, each once.
///
/// # Errors
/// When it also depends on the value that a living parameter had before an update.
pub(super) fn parameters_of(root: &UOp) -> Result<Vec<Arc<Handle>>> {
    let nodes = buffers(std::slice::from_ref(root), carries);
    let mut found: Vec<Weak<Handle>> = Vec::new();
    let mut cut = None;
    {
        let registry = REGISTRY.lock();
        for buffer in nodes.iter().filter_map(live) {
            if let Some(parameter) = registry.parameters.get(&buffer.id) {
                found.push(parameter.handle.clone());
            }
            let Some(ended) = registry.ended.get(&buffer.id) else {
                continue;
            };
            let lives =
                |p: &&Parameter| p.handle.strong_count() > 0 && ended.owners.contains(&p.owner);
            if cut.is_none() && registry.parameters.values().any(|p| lives(&p)) {
                cut = Some(ended.site);
            }
        }
    }
    match cut {
        Some(updated) => Err(updated_since(updated, "a parameter")),
        // Upgraded outside the lock: the last owner of a tensor may be met here.
        None => Ok(found.iter().filter_map(Weak::upgrade).collect()),
    }
}

/// Refuses to differentiate a graph with respect to a parameter from which it is cut by an update.
/// Old values that no gradient could reach anyway are no reason: they may be what a new value is
/// compared with.
pub(super) fn check_current(root: &UOp, targets: &[u64]) -> Result<()> {
    let nodes = buffers(std::slice::from_ref(root), carries);
    let registry = REGISTRY.lock();
    for buffer in nodes.iter().filter_map(live) {
        let Some(ended) = registry.ended.get(&buffer.id) else {
            continue;
        };
        if let Some(which) = targets.iter().position(|t| ended.owners.contains(t)) {
            let which = format!("parameter {which} in the list");
            return Err(updated_since(ended.site, &which));
        }
    }
    Ok(())
}

/// Whether a graph depends on the value that a tensor had before an update or before its history
/// ended otherwise; the inner part is where that was done, if known.
pub(super) fn ended_at(root: &UOp, target: u64) -> Option<Option<Site>> {
    let nodes = buffers(std::slice::from_ref(root), |_, _| true);
    let registry = REGISTRY.lock();
    let ended = nodes.iter().filter_map(live);
    let mut ended = ended.filter_map(|buffer| registry.ended.get(&buffer.id));
    ended.find(|e| e.owners.contains(&target)).map(|e| e.site)
}

/// The error for a loss that was computed from an old value of a parameter.
fn updated_since(update: Option<Site>, parameter: &str) -> Error {
    let place = update.map_or(String::new(), |site| format!(" at {site}"));
    let message = format!(
        "the loss was computed before parameters were updated{place}, so it has no gradient with \
         respect to the present value of {parameter}; compute the loss again after an update, or \
         call backward before it"
    );
    let site = Site::current();
    Error::Gradient { message, site }
}
