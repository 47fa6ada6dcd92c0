//! Runs a compiled plan: a static list of steps whose arguments are resolved in advance.
//!
//! Temporaries share one arena, where planned lifetimes let them overlap. Outputs and buffers that
//! are kept have memory of their own, which is written during the run and shared after it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Executable, Memory, Place, Pool, Storage, interrupt};
use crate::error::Result;
use crate::ir::form::{BufferIndex, Plan, Role};

/// What a run leaves.
pub type Results = SmallVec<[Arc<Storage>; 4]>;

/// A plan that is ready to run, from any thread, several at a time.
pub struct Ready {
    executable: Box<dyn Executable>,
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
}

/// One launch, with the buffers that are its arguments.
struct Step {
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
    /// Puts a plan together with its launches and with the arena offsets of its temporaries
    /// (`None`: memory of its own). `peak` is what the memory planner says a run takes. A run
    /// gives the `results`, which are inputs or have memory of their own.
    pub fn new(
        plan: &Plan,
        executable: Box<dyn Executable>,
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
        let steps = plan.kernels.iter().enumerate().map(|(launch, kernel)| {
            let bound = |slot: u32| {
                let mut buffers = kernel.outs.iter().chain(&kernel.ins);
                let found = buffers.find(|(s, _)| *s == slot);
                found
                    .expect("every parameter of a kernel is bound to a buffer")
                    .1
            };
            let parameters = executable.parameters(launch).iter();
            let args = parameters.map(|p| bound(p.slot)).collect();
            Step { launch, args }
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
        }
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
        for step in &self.steps {
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
            self.executable
                .launch(step.launch, &args, scratch.as_ref())?;
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
