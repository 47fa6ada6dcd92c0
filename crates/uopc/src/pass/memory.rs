//! Memory planning: buffers whose lives do not overlap share memory.
//!
//! Lifetimes run from the kernel that writes a temporary to the last one that reads it; offsets
//! are found by placing the largest buffers first, each in the lowest gap that is free during
//! its life. The peak is exact: what a run of the plan takes at once, inputs apart.

use crate::ir::form::{BufferIndex, Plan, Role};

/// All memory is aligned to a cache line.
pub const ALIGNMENT: usize = 64;

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

/// Places the temporaries of a plan, but for those that are kept after it has run.
pub fn plan_memory(plan: &Plan, kept: &[BufferIndex]) -> MemoryPlan {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; plan.buffers.len()];
    for (k, kernel) in plan.kernels.iter().enumerate() {
        for &(_, b) in kernel.outs.iter().chain(&kernel.ins) {
            let life = lives[b as usize].get_or_insert((k, k));
            life.1 = k;
        }
    }
    let size = |b: usize| {
        let buffer = &plan.buffers[b];
        (buffer.n * buffer.dtype.size()).next_multiple_of(ALIGNMENT)
    };
    let shared =
        |b: usize| plan.buffers[b].role == Role::Temporary && !kept.contains(&(b as BufferIndex));
    let mut order: Vec<usize> = (0..lives.len()).filter(|&b| shared(b)).collect();
    order.sort_by_key(|&b| (std::cmp::Reverse(size(b)), b));
    let mut offsets: Vec<Option<usize>> = vec![None; lives.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut arena = 0;
    for b in order {
        let Some((from, to)) = lives[b] else { continue };
        let mut taken: Vec<(usize, usize)> = (placed.iter())
            .filter(|&&p| lives[p].is_some_and(|(f, t)| f <= to && from <= t))
            .map(|&p| (offsets[p].unwrap_or(0), size(p)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, length) in taken {
            if start >= offset + size(b) {
                break;
            }
            offset = offset.max(start + length);
        }
        offsets[b] = Some(offset);
        arena = arena.max(offset + size(b));
        placed.push(b);
    }
    let separate: usize = (0..lives.len())
        .filter(|&b| !matches!(plan.buffers[b].role, Role::Input(_)) && !shared(b))
        .map(size)
        .sum();
    MemoryPlan {
        offsets,
        arena,
        peak: arena + separate,
    }
}
