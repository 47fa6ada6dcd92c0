//! Recompute: values that nobody reads for a while are computed again instead of kept.
//!
//! In:       Plan, and for buffers the places where their memory is given up (cuts).
//! Out:      Plan in which each such buffer has further lives: copies of its kernel, with buffers of
//!           their own, just before the reads that follow a cut.
//! Keeps:    the value of every root, bit for bit: a copy runs the same kernel on equal values.
//! Ensures:  the buffers of the old plan have their numbers and their roles; the new ones follow.
//! Cost:     linear in kernels and in what they read.
//! Example:  tests/golden/recompute/checkpoint.uir
//!
//! Where cuts are made is decided by [`marks`] for what the user asked for, and by [`search`] for a
//! limit of memory.

pub mod marks;
pub mod search;
mod timeline;

use smallvec::SmallVec;

use super::memory::ALIGNMENT;
use crate::ir::form::{BufferIndex, Kernel, Plan, PlanBuffer, Role};

use timeline::{NONE, Timeline};

/// For each buffer the kernels, by position and ascending, after which its memory is given up. A
/// kernel that comes later and reads it makes it live again.
pub type Cuts = Vec<SmallVec<[u32; 1]>>;

/// A plan in numbers: what kernels read and write, and what that takes.
pub struct Flow {
    kernels: Vec<Work>,
    /// For each buffer its bytes in the arena; those with memory of their own have none.
    bytes: Vec<usize>,
    /// For each buffer the kernel that can make it again, or [`NONE`].
    again: Vec<u32>,
}

struct Work {
    outs: SmallVec<[BufferIndex; 1]>,
    ins: SmallVec<[BufferIndex; 4]>,
    cost: f64,
}

impl Flow {
    /// The numbers of a plan whose kernels cost that much. What is `kept` has memory of its own.
    pub fn new(plan: &Plan, kept: &[BufferIndex], cost: impl Fn(usize) -> f64) -> Flow {
        let mut shared: Vec<bool> = (plan.buffers.iter())
            .map(|b| b.role == Role::Temporary)
            .collect();
        kept.iter().for_each(|&b| shared[b as usize] = false);
        let bytes = |b: &PlanBuffer| {
            let bytes = b.n.saturating_mul(b.dtype.size());
            bytes
                .min(isize::MAX as usize / 2)
                .next_multiple_of(ALIGNMENT)
        };
        let sizes = plan.buffers.iter().zip(&shared);
        let sizes = sizes.map(|(b, shared)| if *shared { bytes(b) } else { 0 });
        let mut flow = Flow {
            kernels: Vec::with_capacity(plan.kernels.len()),
            bytes: sizes.collect(),
            again: vec![NONE; plan.buffers.len()],
        };
        for (k, kernel) in plan.kernels.iter().enumerate() {
            if let [(_, out)] = kernel.outs[..]
                && shared[out as usize]
            {
                flow.again[out as usize] = k as u32;
            }
            flow.kernels.push(Work {
                outs: kernel.outs.iter().map(|o| o.1).collect(),
                ins: kernel.ins.iter().map(|i| i.1).collect(),
                // Never nothing: what is saved is divided by it.
                cost: cost(k).max(1.0),
            });
        }
        flow
    }

    /// No cuts.
    pub fn uncut(&self) -> Cuts {
        vec![SmallVec::new(); self.bytes.len()]
    }
}

/// A plan with further lives, and which kernel of the old plan each of its kernels is.
pub struct Recomputed {
    /// The plan.
    pub plan: Plan,
    /// By kernel of the new plan, the kernel of the old one.
    pub kernel_of: Vec<usize>,
}

/// The plan with these cuts.
pub fn recompute(plan: &Plan, flow: &Flow, cuts: &Cuts) -> Recomputed {
    let timeline = Timeline::new(flow, cuts);
    let mut buffers = plan.buffers.clone();
    // The buffer of each life: its own for the first, a new one for each further life.
    let mut buffer_of = vec![0; timeline.lives.len()];
    for (life, place) in timeline.lives.iter().zip(&mut buffer_of) {
        let former = &plan.buffers[life.buffer as usize];
        *place = match life.before {
            NONE => life.buffer,
            _ => {
                buffers.push(PlanBuffer {
                    dtype: former.dtype,
                    n: former.n,
                    role: Role::Temporary,
                    reason: format!("b{} computed again", life.buffer).into(),
                });
                buffers.len() as BufferIndex - 1
            }
        };
    }
    let kernels = timeline.steps.iter().enumerate().map(|(s, step)| {
        let kernel = &plan.kernels[step.kernel as usize];
        let place = |&(slot, _): &(u32, BufferIndex), life: &u32| (slot, buffer_of[*life as usize]);
        let reads = kernel.ins.iter().zip(timeline.reads(s));
        let writes = kernel.outs.iter().zip(timeline.writes(s));
        Kernel {
            name: kernel.name.clone(),
            body: kernel.body.clone(),
            ins: reads.map(|(slot, life)| place(slot, life)).collect(),
            outs: writes.map(|(slot, life)| place(slot, life)).collect(),
        }
    });
    Recomputed {
        plan: Plan {
            kernels: kernels.collect(),
            buffers,
            outputs: plan.outputs.clone(),
        },
        kernel_of: timeline.steps.iter().map(|s| s.kernel as usize).collect(),
    }
}
