//! The node handle and its intern table: building an existing node again returns that node.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, LazyLock, Weak};

use hashbrown::HashTable;
use parking_lot::Mutex;
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use super::dtype::DType;
use super::infer::infer;
use super::op::Op;
use super::shape::Shape;
use super::site::Site;
use crate::error::Result;

/// The sources of a node.
pub type Sources = SmallVec<[UOp; 2]>;

/// A node of a graph: an op applied to sources. Equality is identity, and since nodes are hash
/// consed, nodes of equal op and sources are identical.
#[derive(Clone)]
pub struct UOp(Arc<Node>);

struct Node {
    op: Op,
    src: Sources,
    shape: Shape,
    hash: u64,
    dtype: DType,
    /// Whether the intern table knows it.
    listed: bool,
    /// Whether `home` was ever set.
    settled: AtomicBool,
    /// See [`Positions`](super::positions::Positions).
    note: AtomicU32,
    /// Where the user wrote it; not part of its identity, the first writer wins.
    site: Option<Site>,
    /// The memory that holds its value, once there is one; not part of its identity.
    home: Mutex<Option<Weak<dyn Any + Send + Sync>>>,
}

/// Graphs of millions of nodes are ordinary; with the two counts of its owners a node stays small.
const _: () = assert!(size_of::<Node>() + 2 * size_of::<usize>() <= 200);

impl UOp {
    /// The node of that op and those sources, new or existing.
    ///
    /// # Errors
    /// When the sources break the op's type rules, see [`infer`].
    pub fn new(op: Op, src: impl Into<Sources>) -> Result<UOp> {
        let src = src.into();
        let (dtype, shape) = infer(&op, &src)?;
        Ok(UOp::intern(op, src, dtype, shape))
    }

    fn intern(op: Op, src: Sources, dtype: DType, shape: Shape) -> UOp {
        let mut hasher = FxHasher::default();
        op.hash(&mut hasher);
        for s in &src {
            hasher.write_usize(s.address());
        }
        let hash = with_shard(spread(hasher.finish()), &src);
        // Nodes met by hash alone are dropped after the lock is gone: the last owner of a node
        // takes it out of the table, which needs the lock.
        let mut strangers: SmallVec<[UOp; 1]> = SmallVec::new();
        let mut shard = shard(hash).lock();
        let found = shard
            .iter_hash(hash)
            .filter(|e| e.hash == hash)
            .find_map(|e| {
                let node = UOp(e.node.upgrade()?);
                if node.0.op == op && node.0.src == src {
                    return Some(node);
                }
                strangers.push(node);
                None
            });
        if let Some(node) = found {
            return node;
        }
        let site = Site::current();
        let node = Arc::new(Node {
            op,
            src,
            shape,
            hash,
            dtype,
            listed: true,
            settled: AtomicBool::new(false),
            note: AtomicU32::new(0),
            site,
            home: Mutex::new(None),
        });
        shard.insert_unique(
            hash,
            Entry {
                hash,
                node: Arc::downgrade(&node),
            },
            |e| e.hash,
        );
        UOp(node)
    }

    /// What the node does.
    pub fn op(&self) -> &Op {
        &self.0.op
    }

    /// The nodes it is applied to.
    pub fn src(&self) -> &[UOp] {
        &self.0.src
    }

    /// The dtype of its value.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The shape of its value.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// Where the user wrote it, if known.
    pub fn site(&self) -> Option<Site> {
        self.0.site
    }

    /// Identity as a number, for side tables that live no longer than the node.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Its position in the list that took it last.
    pub(super) fn note(&self) -> u32 {
        self.0.note.load(Relaxed)
    }

    pub(super) fn set_note(&self, position: u32) {
        self.0.note.store(position, Relaxed);
    }

    /// The memory that holds the node's value, if it was computed and is still alive.
    pub fn home(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        if !self.0.settled.load(Acquire) {
            return None;
        }
        self.0.home.lock().as_ref()?.upgrade()
    }

    /// Notes that this memory holds the node's value, for as long as someone owns it.
    pub fn set_home(&self, storage: &Arc<dyn Any + Send + Sync>) {
        *self.0.home.lock() = Some(Arc::downgrade(storage));
        self.0.settled.store(true, Release);
    }

    /// Forgets the memory noted by [`set_home`](Self::set_home).
    pub fn clear_home(&self) {
        *self.0.home.lock() = None;
    }

    /// Live nodes in the process, for tests of growth.
    pub fn live_count() -> usize {
        SHARDS.iter().map(|s| s.lock().len()).sum()
    }
}

impl PartialEq for UOp {
    fn eq(&self, other: &UOp) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for UOp {}

impl Hash for UOp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.address());
    }
}

impl fmt::Debug for UOp {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(
            f,
            "{} {}{}",
            self.op().mnemonic(),
            self.dtype(),
            self.shape()
        )
    }
}

// ---- the table ----

struct Entry {
    hash: u64,
    node: Weak<Node>,
}

type Shard = Mutex<HashTable<Entry>>;

const SHARD_BITS: u32 = 6;

static SHARDS: LazyLock<Vec<Shard>> = LazyLock::new(|| {
    (0..1 << SHARD_BITS)
        .map(|_| Mutex::new(HashTable::new()))
        .collect()
});

/// Where the shard's number stands in a hash: in the middle, as the table itself uses the lowest
/// and the highest bits.
const SHARD_SHIFT: u32 = 40;
const SHARD_MASK: u64 = (1 << SHARD_BITS) - 1;

/// Puts the number of the shard into a hash. Nodes whose first sources lie in the same 2 MiB share
/// a shard, so that a graph that is built or dropped in one go works for some 15,000 nodes on one
/// table, which fits the cache: a chain of a million is built in 0.6 and dropped in 0.5 of the time
/// that shards by hash take.
fn with_shard(hash: u64, src: &[UOp]) -> u64 {
    let near = |s: &UOp| s.address() as u64 >> 21;
    let shard = src.first().map_or(hash, near) & SHARD_MASK;
    hash & !(SHARD_MASK << SHARD_SHIFT) | shard << SHARD_SHIFT
}

fn shard(hash: u64) -> &'static Shard {
    &SHARDS[(hash >> SHARD_SHIFT & SHARD_MASK) as usize]
}

/// Mixes a hash so that all its bits depend on all of the input.
fn spread(hash: u64) -> u64 {
    let h = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h ^ (h >> 29)
}

impl Node {
    /// Takes the node at this address out of the table, once.
    fn unlist(&mut self, address: *const Node) {
        if !mem::take(&mut self.listed) {
            return;
        }
        let mut shard = shard(self.hash).lock();
        if let Ok(entry) = shard.find_entry(self.hash, |e| e.node.as_ptr() == address) {
            entry.remove();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let address = &raw const *self;
        self.unlist(address);
        // A deep graph is taken apart by this loop and not by recursion: whoever owns a source
        // last takes the source's own sources before it goes.
        if self.src.is_empty() {
            return;
        }
        let mut dying: SmallVec<[Sources; 4]> = SmallVec::new();
        dying.push(mem::take(&mut self.src));
        while let Some(sources) = dying.pop() {
            for u in sources {
                let address = Arc::as_ptr(&u.0);
                if let Some(mut node) = Arc::into_inner(u.0) {
                    node.unlist(address);
                    if !node.src.is_empty() {
                        dying.push(mem::take(&mut node.src));
                    }
                }
            }
        }
    }
}
