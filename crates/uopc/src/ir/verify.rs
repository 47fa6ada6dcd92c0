//! One checker for each form: the only makers of [`ShapeGraph`], [`LoopGraph`] and [`Program`].
//!
//! The type rules of single nodes hold for every node that exists ([`super::infer`]); what is
//! checked here are the rules of a form, listed at the head of the module of each:
//! [`shape`], [`plan`](mod@plan), [`loops`], [`program`](mod@program). An error names the rule and
//! shows the node that breaks it as its line in the `.uir` text of the graph.

pub mod loops;
pub mod plan;
pub mod program;
pub mod shape;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::form::{LoopGraph, Plan, Program, ShapeGraph};
use super::op::Op;
use super::print::Listing;
use super::uop::UOp;
use crate::error::{Error, Result};

/// A graph of pure tensor expressions.
///
/// # Errors
/// [`Error::Verify`] where a rule of [`shape`] is broken, [`Error::Unsupported`] for ops that
/// are reserved.
pub fn shape_graph(roots: Vec<UOp>) -> Result<ShapeGraph> {
    shape::check(&roots)?;
    Ok(ShapeGraph(roots))
}

/// One launch as statements over loops.
///
/// # Errors
/// [`Error::Verify`] where a rule of [`loops`] is broken.
pub fn loop_graph(name: impl Into<Arc<str>>, sink: UOp) -> Result<LoopGraph> {
    loops::check(&sink)?;
    let name = name.into();
    Ok(LoopGraph { name, sink })
}

/// One launch as a list of instructions.
///
/// # Errors
/// [`Error::Verify`] where a rule of [`program`](mod@program) is broken.
pub fn program(name: impl Into<Arc<str>>, sink: UOp) -> Result<Program> {
    program::check(&sink)?;
    let name = name.into();
    Ok(Program { name, sink })
}

/// Whether the kernels and buffers of a plan fit together.
///
/// # Errors
/// [`Error::Verify`] where a rule of [`plan`](mod@plan) is broken.
pub fn plan(plan: &Plan) -> Result<()> {
    plan::check(plan)
}

/// What an error quotes of a node's line; a sink can be very long.
const QUOTED: usize = 160;

/// The error that this node of the graph under the roots breaks that rule.
fn broken(form: &'static str, roots: &[UOp], u: &UOp, rule: impl AsRef<str>) -> Error {
    Error::Verify {
        form,
        message: format!("{}: {}", rule.as_ref(), quote(roots, u)),
        site: u.site(),
    }
}

fn quote(roots: &[UOp], u: &UOp) -> String {
    let mut line = Listing::new(roots).line(u);
    if let Some((cut, _)) = line.char_indices().nth(QUOTED) {
        line.truncate(cut);
        line.push_str(" ...");
    }
    line
}

/// Checks that one number stands for one thing: `number` tells what kind of thing and which
/// number a node declares, if any.
fn numbers_are_unique<'u>(
    form: &'static str,
    roots: &[UOp],
    nodes: impl Iterator<Item = &'u UOp>,
    number: impl Fn(&Op) -> Option<(&'static str, u64)>,
) -> Result<()> {
    let mut known: FxHashMap<(&'static str, u64), &UOp> = FxHashMap::default();
    for u in nodes {
        if let Some(key) = number(u.op())
            && let Some(other) = known.insert(key, u)
            && other != u
        {
            let (kind, n) = key;
            let other = quote(roots, other);
            let rule = format!("{kind} {n} is declared in another way than as {other}");
            return Err(broken(form, roots, u, rule));
        }
    }
    Ok(())
}

/// The sources of a node but for the memory that a LOAD or STORE accesses.
fn value_sources(u: &UOp) -> &[UOp] {
    let accesses = matches!(u.op(), Op::Load | Op::Store { .. });
    &u.src()[accesses as usize..]
}

/// Whether a node is a scalar value rather than memory, a statement or an instruction.
fn is_value(u: &UOp) -> bool {
    let other = matches!(
        u.op(),
        Op::Param { .. }
            | Op::Local { .. }
            | Op::Store { .. }
            | Op::End
            | Op::Sink
            | Op::Declare(_)
            | Op::Loop
            | Op::EndLoop
            | Op::If
            | Op::EndIf
            | Op::Barrier
    );
    !other
}
