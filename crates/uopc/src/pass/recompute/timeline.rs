//! What runs when, and what is alive meanwhile, once buffers are cut.
//!
//! Time is counted in kernels of the plan without cuts. A copy runs at the time of the kernel that
//! made it necessary, just before it. At that time, a buffer stands for the life that begins after
//! the last of its cuts before.

use super::{Cuts, Flow};
use crate::ir::form::BufferIndex;

/// No life, no kernel.
pub(super) const NONE: u32 = u32::MAX;

/// A kernel that runs.
pub(super) struct Step {
    /// Its position in the plan without cuts.
    pub(super) kernel: u32,
    /// That of the kernel for which it runs.
    pub(super) time: u32,
    /// Where the lives that it reads and writes begin in their list.
    places: u32,
}

/// From a step that writes a buffer to the last one that reads what was written.
pub(super) struct Life {
    pub(super) buffer: BufferIndex,
    /// How many cuts of the buffer are before it.
    number: u32,
    /// The life of the same buffer before this one, or [`NONE`].
    pub(super) before: u32,
    /// The first step that has it; 0 for what is there from the start.
    pub(super) from: u32,
    /// The last one.
    pub(super) to: u32,
}

/// Steps between two that use a life, neither of which is meant.
pub(super) struct Gap {
    pub(super) life: u32,
    /// The last step that uses it before.
    pub(super) after: u32,
    /// The first one that uses it again.
    pub(super) until: u32,
}

/// The steps of a plan with cuts.
pub(super) struct Timeline {
    pub(super) steps: Vec<Step>,
    pub(super) lives: Vec<Life>,
    /// Where a buffer could be cut.
    pub(super) gaps: Vec<Gap>,
    /// Bytes of the arena in use at each step.
    pub(super) alive: Vec<usize>,
    /// What all steps cost.
    pub(super) cost: f64,
    /// For each step the lives that it reads, then those that it writes.
    places: Vec<u32>,
    /// For each step how many it reads.
    reads: Vec<u32>,
    /// For each buffer its latest life.
    latest: Vec<u32>,
}

impl Timeline {
    /// Runs through the kernels.
    pub(super) fn new(flow: &Flow, cuts: &Cuts) -> Timeline {
        let n = flow.kernels.len();
        let mut made = Timeline {
            steps: Vec::with_capacity(n),
            lives: Vec::with_capacity(flow.bytes.len()),
            gaps: Vec::new(),
            alive: Vec::new(),
            cost: 0.0,
            places: Vec::new(),
            reads: Vec::with_capacity(n),
            latest: vec![NONE; flow.bytes.len()],
        };
        let mut written = vec![false; flow.bytes.len()];
        let outs = flow.kernels.iter().flat_map(|k| &k.outs);
        outs.for_each(|&b| written[b as usize] = true);
        for b in (0..flow.bytes.len()).filter(|&b| !written[b]) {
            made.begin(b as BufferIndex, 0);
        }
        let mut stack: Vec<(u32, u32)> = Vec::new();
        for k in 0..n as u32 {
            stack.push((k, 0));
            while let Some((kernel, next)) = stack.last_mut() {
                match flow.kernels[*kernel as usize].ins.get(*next as usize) {
                    None => {
                        made.step(flow, *kernel, k, cuts);
                        stack.pop();
                    }
                    Some(&b) => {
                        *next += 1;
                        if made.at(b, number(cuts, b, k)).is_none() {
                            stack.push((flow.again[b as usize], 0));
                        }
                    }
                }
            }
        }
        made.count(flow);
        made
    }

    fn begin(&mut self, buffer: BufferIndex, number: u32) -> u32 {
        let at = self.steps.len() as u32;
        let before = self.latest[buffer as usize];
        self.latest[buffer as usize] = self.lives.len() as u32;
        self.lives.push(Life {
            buffer,
            number,
            before,
            from: at,
            to: at,
        });
        self.lives.len() as u32 - 1
    }

    fn step(&mut self, flow: &Flow, kernel: u32, time: u32, cuts: &Cuts) {
        let work = &flow.kernels[kernel as usize];
        let at = self.steps.len() as u32;
        let places = self.places.len() as u32;
        for &b in &work.ins {
            let life = self.latest[b as usize];
            let last = self.lives[life as usize].to;
            let used_before = self.steps.get(last as usize).is_some_and(|s| s.time < time);
            if flow.again[b as usize] != NONE && last + 1 < at && used_before {
                self.gaps.push(Gap {
                    life,
                    after: last,
                    until: at,
                });
            }
            self.lives[life as usize].to = at;
            self.places.push(life);
        }
        self.reads.push(work.ins.len() as u32);
        for &b in &work.outs {
            let life = self.begin(b, number(cuts, b, time));
            self.places.push(life);
        }
        self.cost += work.cost;
        self.steps.push(Step {
            kernel,
            time,
            places,
        });
    }

    /// Adds up what is alive.
    fn count(&mut self, flow: &Flow) {
        let mut change = vec![0isize; self.steps.len() + 1];
        for life in &self.lives {
            let bytes = flow.bytes[life.buffer as usize] as isize;
            if let Some(begin) = change.get_mut(life.from as usize) {
                *begin += bytes;
            }
            if let Some(end) = change.get_mut(life.to as usize + 1) {
                *end -= bytes;
            }
        }
        let mut alive = 0;
        self.alive = change[..self.steps.len()]
            .iter()
            .map(|c| {
                alive += c;
                alive as usize
            })
            .collect();
    }

    /// The life of a buffer with that many cuts before it.
    pub(super) fn at(&self, buffer: BufferIndex, number: u32) -> Option<&Life> {
        let mut life = self.latest[buffer as usize];
        while life != NONE {
            let found = &self.lives[life as usize];
            if found.number == number {
                return Some(found);
            }
            life = found.before;
        }
        None
    }

    /// The lives that a step reads, in the order of the kernel's inputs.
    pub(super) fn reads(&self, step: usize) -> &[u32] {
        let begin = self.steps[step].places as usize;
        &self.places[begin..begin + self.reads[step] as usize]
    }

    /// The lives that a step writes, in the order of the kernel's outputs.
    pub(super) fn writes(&self, step: usize) -> &[u32] {
        let begin = (self.steps[step].places + self.reads[step]) as usize;
        let end = self.steps.get(step + 1);
        let end = end.map_or(self.places.len(), |next| next.places as usize);
        &self.places[begin..end]
    }
}

/// How many cuts of the buffer are before that time.
pub(super) fn number(cuts: &Cuts, buffer: BufferIndex, time: u32) -> u32 {
    let cuts = cuts[buffer as usize].iter();
    cuts.filter(|&&cut| cut < time).count() as u32
}
