//! Runs a compiled plan: a static list of steps whose arguments are resolved in advance.
//!
//! Temporaries share one arena, where planned lifetimes let them overlap. Outputs and buffers that
//! are kept have memory of their own, which is written during the run and shared after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::{Executable, Memory, Place, Pool, Storage, interrupt};
use crate::error::Result;
use crate::ir::form::{BufferIndex, Plan, Role};

/// What a run leaves.
pub type Results = SmallVec<[Arc<Storage>; 4]>;

/// A plan that is ready to run, from any thread, several at a time.
pub struct Ready {
    executable: Arc<dyn Executable>,
    steps: Vec<Step>,
    /// Where each buffer of the plan is.
    places: Vec<Location>,
    /// The sizes of those that have memory of their own.
    own: Vec<usize>,
    /// The buffers that a run gives to its caller.
    results: Vec<BufferIndex>,
    arena: usize,
    scratch: usize,
    peak: usize,
    expected: Duration,
    /// What each step took so far, if anybody wants to know.
    times: Option<Vec<StepTime>>,
}

/// How often a step ran, and nanoseconds in all.
#[derive(Default)]
struct StepTime {
    runs: AtomicU64,
    nanos: AtomicU64,
}

/// What one kernel of a plan took so far.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelTime {
    /// The kernel's name.
    pub name: Arc<str>,
    /// Its place in the plan, from 0.
    pub step: usize,
    /// How often it ran.
    pub runs: u64,
    /// Seconds in all.
    pub seconds: f64,
}

/// One launch, with the buffers that are its arguments.
struct Step {
    name: Arc<str>,
    launch: usize,
    args: Vec<BufferIndex>,
}

#[derive(Clone, Copy)]
enum Location {
    /// Among the inputs, by slot.
    Input(usize),
    /// In the arena.
    Arena { offset: usize, bytes: usize },
    /// Memory of its own, by its number among those.
    Own(usize),
}

impl Ready {
    /// Puts a plan together with its launches, one for each kernel by number, and with the arena
    /// offsets of its temporaries (`None`: memory of its own). `peak` is what the memory planner
    /// says a run takes. A run gives the `results`, which are inputs or have memory of their own.
    pub fn new(
        plan: &Plan,
        launches: &[usize],
        executable: Arc<dyn Executable>,
        offsets: &[Option<usize>],
        arena: usize,
        peak: usize,
        results: Vec<BufferIndex>,
    ) -> Ready {
        let mut own = Vec::new();
        let places = plan.buffers.iter().zip(offsets).map(|(buffer, &offset)| {
            // A size beyond all memory stays one, and is refused when it is asked for.
            let bytes = buffer.n.saturating_mul(buffer.dtype.size());
            match (buffer.role, offset) {
                (Role::Input(slot), _) => Location::Input(slot as usize),
                (_, Some(offset)) => Location::Arena { offset, bytes },
                (_, None) => {
                    own.push(bytes);
                    Location::Own(own.len() - 1)
                }
            }
        });
        let steps = plan.kernels.iter().zip(launches).map(|(kernel, &launch)| {
            let bound = |slot: u32| {
                let mut buffers = kernel.outs.iter().chain(&kernel.ins);
                let found = buffers.find(|(s, _)| *s == slot);
                found
                    .expect("every parameter of a kernel is bound to a buffer")
                    .1
            };
            let parameters = executable.parameters(launch).iter();
            let args = parameters.map(|p| bound(p.slot)).collect();
            let name = kernel.name.clone();
            Step { name, launch, args }
        });
        let (places, steps): (Vec<_>, Vec<_>) = (places.collect(), steps.collect());
        let scratch = steps.iter().map(|s| executable.scratch(s.launch)).max();
        let scratch = scratch.unwrap_or(0);
        Ready {
            executable,
            steps,
            places,
            own,
            results,
            arena,
            scratch,
            peak: peak.saturating_add(scratch),
            expected: Duration::ZERO,
            times: None,
        }
    }

    /// Adds up what each kernel takes from now on, see [`Ready::times`].
    pub fn timed(self) -> Ready {
        let times = self.steps.iter().map(|_| StepTime::default()).collect();
        Ready {
            times: Some(times),
            ..self
        }
    }

    /// What each kernel took so far, in order; nothing unless it is [timed](Ready::timed).
    pub fn times(&self) -> Vec<KernelTime> {
        let times = self.times.iter().flatten().zip(&self.steps).enumerate();
        let time = times.map(|(step, (time, kernel))| KernelTime {
            name: kernel.name.clone(),
            step,
            runs: time.runs.load(Relaxed),
            seconds: time.nanos.load(Relaxed) as f64 * 1e-9,
        });
        time.collect()
    }

    /// Notes how long a run should take.
    pub fn expect(self, expected: Duration) -> Ready {
        Ready { expected, ..self }
    }

    /// How long a run should take, at a guess; nothing if nobody has guessed.
    pub fn expected(&self) -> Duration {
        self.expected
    }

    /// How many launches a run makes.
    pub fn launches(&self) -> usize {
        self.steps.len()
    }

    /// Bytes that a run takes at once, inputs apart: arena, scratch, outputs and kept buffers.
    pub fn peak_bytes(&self) -> usize {
        self.peak
    }

    /// Runs the plan on its inputs, by slot, and gives the results in their order.
    ///
    /// # Errors
    /// When memory runs out, a launch fails, or a check of this thread asks to stop before one.
    pub fn run(&self, inputs: &[Arc<Storage>], pool: &Arc<Pool>) -> Result<Results> {
        let take = |bytes: usize| (bytes > 0).then(|| pool.take(bytes)).transpose();
        let arena = take(self.arena)?;
        let scratch = take(self.scratch)?;
        let mut own: SmallVec<[Memory; 4]> = SmallVec::new();
        for &bytes in &self.own {
            own.push(pool.take(bytes)?);
        }
        for (k, step) in self.steps.iter().enumerate() {
            interrupt::ask()?;
            let place = |&buffer: &BufferIndex| match self.places[buffer as usize] {
                Location::Input(slot) => Place::Shared(&inputs[slot]),
                Location::Arena { offset, bytes } => {
                    let arena = arena.as_ref().expect("a plan with offsets has an arena");
                    Place::part(arena, offset, bytes)
                }
                Location::Own(number) => Place::whole(&own[number]),
            };
            let args: SmallVec<[Place; 8]> = step.args.iter().map(place).collect();
            let started = self.times.as_ref().map(|times| (&times[k], Instant::now()));
            self.executable
                .launch(step.launch, &args, scratch.as_ref())?;
            if let Some((time, started)) = started {
                time.runs.fetch_add(1, Relaxed);
                let nanos = started.elapsed().as_nanos();
                time.nanos.fetch_add(nanos as u64, Relaxed);
            }
        }
        let own: Results = own.into_iter().map(Memory::share).collect();
        let result = |&buffer: &BufferIndex| match self.places[buffer as usize] {
            Location::Input(slot) => inputs[slot].clone(),
            Location::Own(number) => own[number].clone(),
            Location::Arena { .. } => unreachable!("results outlive the run"),
        };
        Ok(self.results.iter().map(result).collect())
    }
}
