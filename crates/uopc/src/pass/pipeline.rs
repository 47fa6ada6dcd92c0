//! The pipeline from a shape graph to launches, one straight list, and the reason for each place.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::debug::{Schedule, Settings};
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::form::{BufferIndex, Kernel, LoopGraph, Plan, Program, ShapeGraph};
use crate::ir::visit::Graph;

use super::Passes;
use super::homes::homes;
use super::kernelize::{Kernelized, kernelize};
use super::linearize::linearize;
use super::rangeify::rangeify;
use super::schedule::schedule;
use super::simplify::{simplify_loops, simplify_shapes};
use super::strip_detach::strip_detach;

/// What a shape graph is lowered to.
pub struct Lowered {
    /// The kernels and the buffers between them.
    pub plan: Plan,
    /// For each kernel of the plan its loops and its instructions.
    pub launches: Vec<Launch>,
    /// Nodes whose values are in a buffer, by position in [`Graph::new`] of the roots, ascending.
    pub homes: Vec<(usize, BufferIndex)>,
}

/// One kernel, lowered.
#[derive(Clone)]
pub struct Launch {
    /// Its loops before they were laid out.
    pub plain: LoopGraph,
    /// For the interpreter.
    pub loops: LoopGraph,
    /// For code generators.
    pub program: Program,
}

/// Lowers a graph whose buffers are numbered slots; a single kernel is called `name`.
///
/// # Errors
/// When the graph reads live memory or holds an op that can't be lowered yet.
pub fn lower(graph: &ShapeGraph, name: Option<&str>, settings: &Settings) -> Result<Lowered> {
    let mut passes = Passes::new(settings);

    // Markers go first: only autodiff reads them, and they would hide what rules look for.
    let (stripped, unmarked) = passes.run("strip_detach", graph, || {
        match settings.disable.contains("strip_detach") {
            true => Ok((graph.clone(), Graph::new(graph.roots()).nodes)),
            false => strip_detach(graph),
        }
    })?;

    // Shape rules come before kernels exist, so that constants, empty tensors and movement that
    // cancels never become work or buffers.
    let (simple, simplified) = passes.run("simplify", &stripped, || {
        simplify_shapes(&stripped, settings)
    })?;

    // What becomes a buffer is decided on whole tensors, where readers can be counted.
    let Kernelized { plan, buffer_of } =
        passes.run("kernelize", &simple, || kernelize(&simple, name))?;

    // Layers that are alike have kernels whose bodies are one node: each is lowered once.
    let mut launches: Vec<Launch> = Vec::with_capacity(plan.kernels.len());
    let mut known: FxHashMap<(&[UOp], Vec<u32>, &str), usize> = FxHashMap::default();
    for kernel in &plan.kernels {
        let outs = kernel.outs.iter().map(|&(slot, _)| slot).collect();
        let equal = known.entry((kernel.body.roots(), outs, &kernel.name));
        let launch = match equal {
            Entry::Occupied(earlier) => launches[*earlier.get()].clone(),
            Entry::Vacant(new) => {
                new.insert(launches.len());
                launch(kernel, &mut passes, settings)?
            }
        };
        launches.push(launch);
    }
    passes.end();
    let homes = homes(graph, &unmarked, &stripped, &simplified, |u| {
        buffer_of.get(u).copied()
    });
    Ok(Lowered {
        plan,
        launches,
        homes,
    })
}

/// Lowers one kernel.
fn launch(kernel: &Kernel, passes: &mut Passes, settings: &Settings) -> Result<Launch> {
    // Loops make movement into index arithmetic, which shape rules could not see.
    let loops = passes.run("rangeify", kernel, || rangeify(kernel))?;

    // Index arithmetic collapses, and products that no fold reads may be computed ahead.
    let loops = passes.run("simplify_loops", &loops, || {
        simplify_loops(&loops, settings)
    })?;

<<<<<<< HEAD
    laid_out(loops, passes, settings, |loops| {
        schedule(loops, &settings.machine)
    })
}

/// The launch of plain loops, see [`Launch::plain`], that were laid out by
/// [`schedule_as`](super::schedule::schedule_as).
///
/// # Errors
/// When a rule fails, which is a mistake in it.
pub fn of_layout(plain: &LoopGraph, layout: LoopGraph, settings: &Settings) -> Result<Launch> {
    let mut passes = Passes::new(settings);
    laid_out(plain.clone(), &mut passes, settings, |_| Ok(layout))
}

/// The passes from plain loops on.
fn laid_out(
    plain: LoopGraph,
    passes: &mut Passes,
    settings: &Settings,
    schedule: impl FnOnce(&LoopGraph) -> Result<LoopGraph>,
) -> Result<Launch> {
    // Layout comes when index arithmetic is plain enough to be analysed; what it splits and packs is
    // simplified again.
=======
    // Layout needs plain index arithmetic; what it splits and packs is simplified again.
>>>>>>> main
    let loops = match settings.schedule {
        Schedule::Plain => plain.clone(),
        Schedule::Default => {
<<<<<<< HEAD
            let laid_out = passes.run("schedule", &plain, || {
                match settings.disable.contains("schedule") {
                    true => Ok(plain.clone()),
                    false => schedule(&plain),
                }
=======
            let left_out = settings.disable.contains("schedule");
            let laid_out = passes.run("schedule", &loops, || match left_out {
                true => Ok(loops.clone()),
                false => schedule(&loops, &settings.machine),
>>>>>>> main
            })?;
            passes.run("simplify_loops", &laid_out, || {
                simplify_loops(&laid_out, settings)
            })?
        }
    };

    // Names and order come last, when nothing is rewritten any more.
    let program = passes.run("linearize", &loops, || linearize(&loops))?;
    Ok(Launch {
        plain,
        loops,
        program,
    })
}
