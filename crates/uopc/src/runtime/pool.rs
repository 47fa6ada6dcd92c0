//! Where memory comes from and returns to: [`Pool`] keeps unused blocks for the next taker, since
//! fresh pages cost more than the arithmetic on them.
//!
//! Blocks are aligned to 64 bytes, a cache line and the widest vector. They return to their pool
//! when the last owner drops them; the ones not used for longest go back to the system when there
//! are too many.
//!
//! Fresh blocks hold zeros. Large ones come zeroed from the system, which does it page by page at
//! the first access: nobody writes them in advance, so that a page is made by the thread that fills
//! it, next to its processor and at the same time as others. Where Linux allows it, they consist of
//! pages of 2 MiB. Writing 64 MiB of fresh memory for the first time took one thread 64 ms when it
//! was cleared in advance, 50 ms without that, and 22 ms with large pages (15 ms for the second
//! time); from 2 MiB on, where the first large page fits, they were faster by a factor of three.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::buffer::Memory;
use crate::error::{Error, Result};

/// Alignment of all memory from pools, in bytes.
pub const ALIGNMENT: usize = 64;

/// Bytes of unused memory that a pool keeps for the next taker.
pub const IDLE_LIMIT: usize = 1 << 30;

/// The size of a large page, and the least size of blocks that are made of such.
const LARGE: usize = 2 << 20;

/// Memory for tensors, and for kernels to work in.
pub struct Pool {
    idle: Mutex<Idle>,
    limit: usize,
    live: AtomicUsize,
    peak: AtomicUsize,
    taken: AtomicUsize,
    fresh: AtomicUsize,
}

impl Pool {
    /// A pool that keeps at most `limit` bytes of unused memory.
    pub fn new(limit: usize) -> Arc<Pool> {
        Arc::new(Pool {
            idle: Mutex::default(),
            limit,
            live: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            fresh: AtomicUsize::new(0),
        })
    }

    /// The pool that host data and the global engine share.
    pub fn global() -> &'static Arc<Pool> {
        static GLOBAL: LazyLock<Arc<Pool>> = LazyLock::new(|| Pool::new(IDLE_LIMIT));
        &GLOBAL
    }

    /// Memory of that many bytes with unspecified content.
    ///
    /// # Errors
    /// [`Error::Memory`] when the system has no more.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Memory> {
        let capacity = capacity(bytes).ok_or(Error::Memory { bytes })?;
        let block = match self.idle.lock().take(capacity) {
            Some(block) => block,
            None => {
                self.fresh.fetch_add(1, Relaxed);
                Block::allocate(capacity).ok_or(Error::Memory { bytes })?
            }
        };
        self.taken.fetch_add(1, Relaxed);
        let live = self.live.fetch_add(capacity, Relaxed) + capacity;
        self.peak.fetch_max(live, Relaxed);
        Ok(Memory::new(Loan {
            block: Some(block),
            bytes,
            pool: self.clone(),
        }))
    }

    fn give_back(&self, block: Block) {
        self.live.fetch_sub(block.capacity, Relaxed);
        let surplus = self.idle.lock().keep(block, self.limit);
        // Returning memory to the system takes time, and no lock.
        drop(surplus);
    }

    /// Bytes in use, counted as capacities.
    pub fn live_bytes(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// The most bytes that were ever in use at once.
    pub fn peak_bytes(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// Bytes kept for the next taker.
    pub fn idle_bytes(&self) -> usize {
        self.idle.lock().bytes
    }

    /// How often memory was taken.
    pub fn taken_blocks(&self) -> usize {
        self.taken.load(Relaxed)
    }

    /// How often memory came from the system and not from the pool.
    pub fn fresh_blocks(&self) -> usize {
        self.fresh.load(Relaxed)
    }

    /// Returns all unused memory to the system.
    pub fn trim(&self) {
        let unused = std::mem::take(&mut *self.idle.lock());
        drop(unused);
    }
}

/// The bytes that a pool counts for a request while it is in use; `usize::MAX` for sizes that no
/// machine has.
pub fn taken(bytes: usize) -> usize {
    capacity(bytes).unwrap_or(usize::MAX)
}

/// The capacity for a request: four sizes for each power of two, so that at most a fifth is
/// wasted and similar requests share blocks; sixteen where blocks are large, so that it is a
/// seventeenth of those. `None` for sizes that no machine has.
fn capacity(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(ALIGNMENT);
    let power = bytes.checked_next_power_of_two()?;
    let steps = if power > LARGE { 32 } else { 8 };
    let capacity = bytes.checked_next_multiple_of((power / steps).max(ALIGNMENT))?;
    (capacity <= isize::MAX as usize - LARGE).then_some(capacity)
}

/// The number of a capacity among all that [`capacity`] gives: room for sixteen for each power of
/// two.
fn class(capacity: usize) -> usize {
    let octave = (capacity / ALIGNMENT).ilog2();
    let part = ((16 * (capacity / ALIGNMENT)) >> octave) - 16;
    16 * octave as usize + part
}

/// Unused blocks.
#[derive(Default)]
struct Idle {
    /// By the number of their [`class`], in the order in which they were given back, each with the
    /// time of that.
    classes: Vec<VecDeque<(u64, Block)>>,
    bytes: usize,
    /// Counts what was given back.
    time: u64,
}

impl Idle {
    /// The block of that capacity that was used last: the caches may still know it.
    fn take(&mut self, capacity: usize) -> Option<Block> {
        let (_, block) = self.classes.get_mut(class(capacity))?.pop_back()?;
        debug_assert_eq!(block.capacity, capacity, "a class has one capacity");
        self.bytes -= capacity;
        Some(block)
    }

    /// Keeps a block, and gives those that are too much then: the ones not used for longest, as
    /// sizes that a program has left behind must not take the place of those that it uses.
    fn keep(&mut self, block: Block, limit: usize) -> SmallVec<[Block; 2]> {
        let mut surplus = SmallVec::new();
        if block.capacity > limit {
            surplus.push(block);
            return surplus;
        }
        while self.bytes + block.capacity > limit {
            let oldest = self.classes.iter_mut().filter(|class| !class.is_empty());
            let oldest = oldest.min_by_key(|class| class.front().map(|(time, _)| *time));
            let (_, oldest) = oldest
                .and_then(VecDeque::pop_front)
                .expect("without blocks there are no bytes, and this one is within the limit");
            self.bytes -= oldest.capacity;
            surplus.push(oldest);
        }
        self.bytes += block.capacity;
        self.time += 1;
        let class = class(block.capacity);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, VecDeque::new);
        }
        self.classes[class].push_back((self.time, block));
        surplus
    }
}

/// A block on loan from a pool.
pub(super) struct Loan {
    /// Present until dropped.
    block: Option<Block>,
    bytes: usize,
    pool: Arc<Pool>,
}

impl Loan {
    /// How many bytes were asked for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the block begins.
    pub(super) fn pointer(&self) -> *mut u8 {
        let block = self.block.as_ref().expect("present until dropped");
        block.pointer.as_ptr()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.give_back(block);
        }
    }
}

/// Memory that this value alone frees. It is initialised, also when nobody has written it.
struct Block {
    pointer: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a block is an owner of memory without access to it; whoever gives access says how.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Zeros, aligned to [`ALIGNMENT`]; `None` when the system has no more.
    fn allocate(capacity: usize) -> Option<Block> {
        let pointer = match capacity {
            #[cfg(target_os = "linux")]
            LARGE.. => pages::map(capacity)?,
            _ => {
                let layout = Layout::from_size_align(capacity, ALIGNMENT).ok()?;
                // SAFETY: `capacity` rounds up to at least ALIGNMENT, so the size is not zero.
                NonNull::new(unsafe { alloc_zeroed(layout) })?
            }
        };
        Some(Block { pointer, capacity })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.capacity {
            #[cfg(target_os = "linux")]
            // SAFETY: mapped by `allocate`, as its size says, and unmapped here only.
            LARGE.. => unsafe { pages::unmap(self.pointer, self.capacity) },
            _ => {
                let layout = Layout::from_size_align(self.capacity, ALIGNMENT);
                let layout = layout.expect("it was valid when allocated");
                // SAFETY: allocated by `allocate` with this layout, freed here only.
                unsafe { dealloc(self.pointer.as_ptr(), layout) }
            }
        }
    }
}

/// Pages from the system, for large blocks.
#[cfg(target_os = "linux")]
mod pages {
    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::LARGE;

    /// Zeros, aligned to a large page.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // As much more as alignment can take; what is not needed of it goes back.
        let all = bytes.checked_add(LARGE)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at no particular place changes nothing that is there.
        let begin = unsafe { mmap_anonymous(ptr::null_mut(), all, access, MapFlags::PRIVATE) };
        let begin: *mut u8 = begin.ok()?.cast();
        let before = begin.align_offset(LARGE);
        let block = begin.wrapping_add(before);
        let after = LARGE - before;
        for (part, bytes) in [(begin, before), (block.wrapping_add(bytes), after)] {
            if bytes > 0 {
                // SAFETY: within the mapping, outside of the block, and known to nobody. If the
                // system refuses, it stays mapped and untouched, which takes only addresses.
                let _ = unsafe { munmap(part.cast(), bytes) };
            }
        }
        // SAFETY: the block is mapped, and the advice changes nothing that a program can read. A
        // system that does not follow it has small pages.
        let _ = unsafe { madvise(block.cast(), bytes, Advice::LinuxHugepage) };
        NonNull::new(block)
    }

    /// Gives pages back to the system.
    ///
    /// # Safety
    /// They came from [`map`] with that size, and nobody uses them again.
    pub(super) unsafe fn unmap(block: NonNull<u8>, bytes: usize) {
        // SAFETY: as promised by the caller.
        let result = unsafe { munmap(block.as_ptr().cast(), bytes) };
        debug_assert!(result.is_ok(), "a block is a whole mapping");
    }
}
