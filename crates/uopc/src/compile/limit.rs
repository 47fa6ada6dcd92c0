//! A plan under a limit of memory: which values it computes again follows from the limit.
//!
//! Code is compiled once for each structure: what is computed again runs the same kernels. Limits
//! that lead to the same choice share one plan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::ir::form::{Plan, Role};
use crate::ir::site::Site;
use crate::pass::explain::weight;
use crate::pass::memory::{MemoryPlan, plan_memory};
use crate::pass::pipeline::{Lowered, with};
use crate::pass::recompute::Flow;
use crate::pass::recompute::search::{Choice, Choices};
use crate::runtime::executor::Ready;
use crate::runtime::pool::taken;
use crate::runtime::{Executable, interrupt};

/// A compiled plan that runs within limits.
pub(super) struct Limited {
    plan: Plan,
    executable: Arc<dyn Executable>,
    /// Bytes of scratch memory that its kernels take.
    scratch: usize,
    /// Seconds that a run of the plan as it is should take, for what its kernels cost.
    pace: f64,
    profile: bool,
    state: Mutex<State>,
}

struct State {
    choices: Choices,
    /// What was made ready, by choice.
    ready: BTreeMap<usize, Arc<Ready>>,
}

/// Bytes that a run of a plan takes from the pool, as the pool counts: arena, outputs and scratch.
fn peak(plan: &Plan, memory: &MemoryPlan, scratch: usize) -> usize {
    let some = |bytes: usize| if bytes > 0 { taken(bytes) } else { 0 };
    let own = plan.buffers.iter().filter(|b| b.role == Role::Output);
    let own = own.map(|b| taken(b.n.saturating_mul(b.dtype.size())));
    let own = own.fold(0, usize::saturating_add);
    (some(memory.arena).saturating_add(some(scratch))).saturating_add(own)
}

fn choices(lowered: &Lowered, scratch: usize) -> Choices {
    let plan = &lowered.plan;
    let flow = Flow::new(plan, &[], |k| weight(&lowered.launches[k]));
    Choices::new(flow, peak(plan, &plan_memory(plan, &[]), scratch))
}

/// The error for a limit below what a plan can reach.
fn not_enough(limit: u64, least: usize) -> Error {
    Error::MemoryLimit {
        limit,
        least,
        site: Site::current(),
    }
}

fn bytes(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

impl Limited {
    /// A plan whose kernels are compiled, in order, and should take that long.
    pub(super) fn new(
        lowered: Lowered,
        executable: Arc<dyn Executable>,
        expected: Duration,
        profile: bool,
    ) -> Limited {
        let launches = 0..lowered.plan.kernels.len();
        let scratch = launches.map(|launch| executable.scratch(launch)).max();
        let scratch = scratch.unwrap_or(0);
        let cost: f64 = lowered.launches.iter().map(weight).sum();
        Limited {
            state: Mutex::new(State {
                choices: choices(&lowered, scratch),
                ready: BTreeMap::new(),
            }),
            plan: lowered.plan,
            executable,
            scratch,
            pace: expected.as_secs_f64() / cost.max(1.0),
            profile,
        }
    }

    /// The plan that keeps within a limit.
    ///
    /// # Errors
    /// When none does, naming the least limit that one keeps within.
    pub(super) fn within(&self, limit: u64) -> Result<Arc<Ready>> {
        let mut state = interrupt::lock(&self.state)?;
        let peak = |plan: &Plan| peak(plan, &plan_memory(plan, &[]), self.scratch);
        let choice = state.choices.within(bytes(limit), &self.plan, &peak);
        let choice = choice.map_err(|least| not_enough(limit, least))?;
        if let Some(ready) = state.ready.get(&choice) {
            return Ok(ready.clone());
        }
        let again = state.choices.plan(choice, &self.plan);
        let memory = plan_memory(&again.plan, &[]);
        let ready = Ready::new(
            &again.plan,
            &again.kernel_of,
            self.executable.clone(),
            &memory.offsets,
            memory.arena,
            memory.peak,
            again.plan.outputs.clone(),
        );
        let seconds = self.pace * state.choices.cost(choice);
        let ready = ready.expect(Duration::from_secs_f64(seconds));
        let ready = Arc::new(if self.profile { ready.timed() } else { ready });
        state.ready.insert(choice, ready.clone());
        Ok(ready)
    }

    /// What was made ready.
    pub(super) fn all(&self) -> Vec<Arc<Ready>> {
        self.state.lock().ready.values().cloned().collect()
    }
}

/// A lowered plan as it runs under a limit, for inspection. Scratch memory, which depends on the
/// device, is not counted.
///
/// # Errors
/// When no plan keeps within the limit.
pub(super) fn lowered_within(lowered: Lowered, limit: u64) -> Result<Lowered> {
    let mut choices = choices(&lowered, 0);
    let peak = |plan: &Plan| peak(plan, &plan_memory(plan, &[]), 0);
    let choice = choices.within(bytes(limit), &lowered.plan, &peak);
    let choice = choice.map_err(|least| not_enough(limit, least))?;
    let again = choices.plan(choice, &lowered.plan);
    Ok(with(&lowered.launches, again, lowered.homes))
}

/// All choices for a lowered plan, by falling peaks. Scratch memory, which depends on the device,
/// is not counted.
pub fn frontier(lowered: &Lowered) -> Vec<Choice> {
    let peak = |plan: &Plan| peak(plan, &plan_memory(plan, &[]), 0);
    choices(lowered, 0).into_all(&lowered.plan, &peak)
}
