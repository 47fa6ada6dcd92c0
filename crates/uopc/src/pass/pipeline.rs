//! The pipeline from a shape graph to launches, one straight list, and the reason for each place.

mod launch;

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::debug::Settings;
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::form::{BufferIndex, Plan, ShapeGraph};
use crate::ir::parts::parts;
use crate::ir::visit::Graph;

pub use super::Launch;
use super::Passes;
use super::explain::weight;
use super::homes::homes;
use super::kernelize::{Kernelized, kernelize};
use super::order::order;
use super::recompute::{Flow, Recomputed, marks, recompute};
use super::simplify::simplify_shapes;
use super::strip_detach::strip_detach;

pub use launch::of_layout;

/// What a shape graph is lowered to.
pub struct Lowered {
    /// The kernels and the buffers between them.
    pub plan: Plan,
    /// For each kernel of the plan its loops and its instructions.
    pub launches: Vec<Launch>,
    /// Nodes whose values are in a buffer, by position in [`Graph::new`] of the roots, ascending.
    pub homes: Vec<(usize, BufferIndex)>,
}

/// Lowers a graph whose buffers are numbered slots; a single kernel is called `name`.
///
/// # Errors
/// When the graph reads live memory or holds an op that can't be lowered yet.
pub fn lower(graph: &ShapeGraph, name: Option<&str>, settings: &Settings) -> Result<Lowered> {
    let mut passes = Passes::new(settings);

    // Markers go first: they would hide what rules look for.
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

    // Whose results are needed when decides what is alive at once.
    let plan = match settings.disable.contains("order") {
        true => plan,
        false => passes.run("order", &plan, || Ok(order(&plan)))?,
    };

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
                launch::launch(kernel, &mut passes, settings)?
            }
        };
        launches.push(launch);
    }
    passes.end();
    let mut homes = homes(graph, &unmarked, &stripped, &simplified, |u| {
        buffer_of.get(u).copied()
    });
    // Last, as copies of kernels have their loops already.
    let flow = Flow::new(&plan, &[], |k| weight(&launches[k]));
    let parts = parts(&Graph::new(graph.roots()));
    let cuts = marks::cuts(&plan, &flow, &parts, &mut homes);
    if cuts.iter().any(|c| !c.is_empty()) {
        let again = recompute(&plan, &flow, &cuts);
        return Ok(with(&launches, again, homes));
    }
    Ok(Lowered {
        plan,
        launches,
        homes,
    })
}

/// A plan with copies of kernels, and the launches of what they are copies of.
pub fn with(launches: &[Launch], again: Recomputed, homes: Vec<(usize, BufferIndex)>) -> Lowered {
    let Recomputed { plan, kernel_of } = again;
    let launches = kernel_of.iter().map(|&k| launches[k].clone()).collect();
    Lowered {
        plan,
        launches,
        homes,
    }
}
