//! Memory planning: buffers whose lives do not overlap share memory.
//!
//! Lifetimes run from the kernel that writes a temporary to the last one that reads it. A sweep
//! over the kernels gives each buffer the smallest free gap that holds it, in time that grows
//! like the sorting of the buffers. No arena is smaller than what is alive at once. Where the
//! sweep needs more and the plan is not large, the largest buffers are also placed first, each in
//! the lowest gap that is free during its life, and the smaller arena is taken. The peak is
//! exact: what a run of the plan takes at once, inputs apart.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::ir::form::{BufferIndex, Plan, Role};

/// All memory is aligned to a cache line.
pub const ALIGNMENT: usize = 64;

/// Plans of more temporaries are placed by the sweep alone: the other way compares all pairs.
const PAIRS_LIMIT: usize = 2_000;

/// Where a plan's temporaries lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryPlan {
    /// For each buffer of the plan its offset in the arena in bytes; `None` for inputs, outputs
    /// and buffers that are kept.
    pub offsets: Vec<Option<usize>>,
    /// Bytes of the arena.
    pub arena: usize,
    /// Bytes of the arena, the outputs and the kept buffers together.
    pub peak: usize,
}

/// A buffer to be placed.
#[derive(Clone, Copy)]
struct Life {
    buffer: usize,
    bytes: usize,
    /// The first kernel that has it.
    from: usize,
    /// The last one.
    to: usize,
}

/// Offsets in the order of the lives they were found for, and the bytes of the arena.
struct Placed {
    offsets: Vec<usize>,
    arena: usize,
}

/// Places the temporaries of a plan, but for those that are kept after it has run.
pub fn plan_memory(plan: &Plan, kept: &[BufferIndex]) -> MemoryPlan {
    // Below the limit all sums of sizes fit. A plan with a buffer beyond it can't run anywhere: it
    // asks for all memory there could be, and is refused.
    let limit = isize::MAX as usize / (plan.buffers.len() + 1) / ALIGNMENT * ALIGNMENT;
    let bytes = |b: usize| {
        let buffer = &plan.buffers[b];
        buffer.n.saturating_mul(buffer.dtype.size())
    };
    let impossible = (0..plan.buffers.len()).any(|b| bytes(b) > limit);
    let size = |b: usize| bytes(b).min(limit).next_multiple_of(ALIGNMENT);
    let roles = plan.buffers.iter().map(|b| b.role == Role::Temporary);
    let mut shared: Vec<bool> = roles.collect();
    for &b in kept {
        shared[b as usize] = false;
    }
    let mut spans: Vec<Option<(usize, usize)>> = vec![None; plan.buffers.len()];
    for (k, kernel) in plan.kernels.iter().enumerate() {
        for &(_, b) in kernel.outs.iter().chain(&kernel.ins) {
            let span = spans[b as usize].get_or_insert((k, k));
            span.1 = k;
        }
    }
    let lives = spans.iter().enumerate().filter(|&(b, _)| shared[b]);
    let mut lives: Vec<Life> = lives
        .filter_map(|(buffer, span)| {
            let (from, to) = (*span)?;
            let bytes = size(buffer);
            Some(Life {
                buffer,
                bytes,
                from,
                to,
            })
        })
        .collect();
    // Both ways place the largest first, the sweep among those that begin together.
    lives.sort_unstable_by_key(|l| (Reverse(l.bytes), l.buffer));
    let (mut placed, alive) = sweep(&lives, plan.kernels.len());
    if placed.arena > alive && lives.len() <= PAIRS_LIMIT {
        let other = largest_first(&lives);
        if other.arena < placed.arena {
            placed = other;
        }
    }
    let mut offsets = vec![None; plan.buffers.len()];
    for (life, &offset) in lives.iter().zip(&placed.offsets) {
        offsets[life.buffer] = Some(offset);
    }
    let separate = plan.buffers.iter().zip(&shared).enumerate();
    let separate =
        separate.filter(|(_, (b, shared))| !matches!(b.role, Role::Input(_)) && !*shared);
    let separate: usize = separate.map(|(b, _)| size(b)).sum();
    let (arena, peak) = match impossible {
        true => (usize::MAX, usize::MAX),
        false => (placed.arena, placed.arena + separate),
    };
    MemoryPlan {
        offsets,
        arena,
        peak,
    }
}

/// Goes through the kernels in order, with the gaps of the moment. Also gives the bytes that are
/// alive at once at most.
fn sweep(lives: &[Life], kernels: usize) -> (Placed, usize) {
    let mut begins: Vec<Vec<usize>> = vec![Vec::new(); kernels];
    let mut ends: Vec<Vec<usize>> = vec![Vec::new(); kernels];
    for (i, life) in lives.iter().enumerate() {
        begins[life.from].push(i);
        ends[life.to].push(i);
    }
    let mut gaps = Gaps::new();
    let mut offsets = vec![0; lives.len()];
    let (mut arena, mut alive, mut most) = (0, 0, 0);
    for (begins, ends) in begins.iter().zip(&ends) {
        for &i in begins {
            offsets[i] = gaps.take(lives[i].bytes);
            arena = arena.max(offsets[i] + lives[i].bytes);
            alive += lives[i].bytes;
        }
        most = most.max(alive);
        // A kernel reads and writes at the same time, so what it reads last is free after it.
        for &i in ends {
            gaps.free(offsets[i], lives[i].bytes);
            alive -= lives[i].bytes;
        }
    }
    (Placed { offsets, arena }, most)
}

/// Gives each buffer in turn the lowest gap that is free in all its life.
fn largest_first(lives: &[Life]) -> Placed {
    let mut offsets: Vec<usize> = Vec::with_capacity(lives.len());
    let mut arena = 0;
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for life in lives {
        let before = lives.iter().zip(&offsets);
        let beside = before.filter(|(l, _)| l.from <= life.to && life.from <= l.to);
        taken.clear();
        taken.extend(beside.map(|(l, &offset)| (offset, l.bytes)));
        taken.sort_unstable();
        let mut offset = 0;
        for &(start, length) in &taken {
            if start >= offset + life.bytes {
                break;
            }
            offset = offset.max(start + length);
        }
        offsets.push(offset);
        arena = arena.max(offset + life.bytes);
    }
    Placed { offsets, arena }
}

/// Free memory. No two gaps touch. The last one has no end, and as the longest of all it is taken
/// only when no other is long enough.
struct Gaps {
    /// Lengths by start.
    by_start: BTreeMap<usize, usize>,
    /// The same as `(length, start)`.
    by_length: BTreeSet<(usize, usize)>,
}

impl Gaps {
    fn new() -> Gaps {
        let mut gaps = Gaps {
            by_start: BTreeMap::new(),
            by_length: BTreeSet::new(),
        };
        gaps.insert(0, usize::MAX);
        gaps
    }

    fn insert(&mut self, start: usize, length: usize) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }

    /// Takes the start of the shortest gap that is long enough, the lowest of several.
    fn take(&mut self, bytes: usize) -> usize {
        if bytes == 0 {
            return 0;
        }
        let found = self.by_length.range((bytes, 0)..).next();
        let &(length, start) = found.expect("the last gap has no end");
        self.remove(start, length);
        if length > bytes {
            self.insert(start + bytes, length - bytes);
        }
        start
    }

    /// Gives back what was taken; gaps on both sides become one with it.
    fn free(&mut self, mut start: usize, mut bytes: usize) {
        if bytes == 0 {
            return;
        }
        let before = self.by_start.range(..start).next_back();
        let before = before.map(|(&s, &length)| (s, length));
        let after = self.by_start.get(&(start + bytes)).copied();
        if let Some(length) = after {
            self.remove(start + bytes, length);
            bytes += length;
        }
        if let Some((s, length)) = before
            && s + length == start
        {
            self.remove(s, length);
            (start, bytes) = (s, length + bytes);
        }
        self.insert(start, bytes);
    }
}
