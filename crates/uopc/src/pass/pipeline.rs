//! The pipeline from a shape graph to launches, one straight list, and the reason for each place.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::debug::{Schedule, Settings};
use crate::error::Result;
use crate::ir::form::{BufferIndex, Kernel, LoopGraph, Plan, Program, ShapeGraph};
use crate::ir::visit::Graph;
use crate::ir::{Op, UOp};

use super::Passes;
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
    /// Nodes of the graph whose values are in a buffer, by position in [`Graph::new`] of its
    /// roots, ascending.
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

/// Lowers a graph whose buffers are numbered slots. If it becomes a single kernel, that is
/// called `name`.
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

    // Index arithmetic collapses, gates become constants, and products that no fold reads any more
    // may be computed ahead.
    let loops = passes.run("simplify_loops", &loops, || {
        simplify_loops(&loops, settings)
    })?;

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
    let loops = match settings.schedule {
        Schedule::Plain => plain.clone(),
        Schedule::Default => {
            let laid_out = passes.run("schedule", &plain, || {
                match settings.disable.contains("schedule") {
                    true => Ok(plain.clone()),
                    false => schedule(&plain),
                }
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

/// Follows each node of the original graph through the passes to the buffer that holds it.
fn homes(
    graph: &ShapeGraph,
    unmarked: &[UOp],
    stripped: &ShapeGraph,
    simplified: &[UOp],
    buffer_of: impl Fn(&UOp) -> Option<BufferIndex>,
) -> Vec<(usize, BufferIndex)> {
    let middle = Graph::new(stripped.roots());
    let mut homes = Vec::new();
    for (i, u) in Graph::new(graph.roots()).nodes.iter().enumerate() {
        // Leaves have memory already, and what is below a detach may be gone.
        let Some(k) = middle
            .position(&unmarked[i])
            .filter(|_| !u.src().is_empty())
        else {
            continue;
        };
        let mut now = &simplified[k];
        while matches!(now.op(), Op::Reshape(_) | Op::Stage(_)) {
            now = &now.src()[0];
        }
        if let Some(b) = buffer_of(now)
            && !matches!(now.op(), Op::Buffer { .. })
        {
            homes.push((i, b));
        }
    }
    homes
}
