//! Where gradients stop: ops that are refused, and ops that cut a target off, by name.

use std::fmt;

use super::vjp::pulls;
use crate::error::{Error, Result};
use crate::ir::op::{Class, Op, StageKind};
use crate::ir::print::named;
use crate::ir::site::Site;
use crate::ir::uop::UOp;
use crate::ir::visit::Graph;

/// Says that a target got zeros because every path from it to the root is cut, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Position of the target in the list that was asked for.
    pub target: usize,
    /// The target, the op that cuts, its shapes and dtypes, and the remedy.
    pub message: String,
    /// The part of the message behind the target: what happened, the op that cuts, the remedy.
    pub cause: String,
    /// Where the op that cuts was written.
    pub site: Option<Site>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)?;
        self.site.map_or(Ok(()), |site| write!(f, " (at {site})"))
    }
}

impl From<Diagnostic> for Error {
    fn from(cut: Diagnostic) -> Error {
        Error::Gradient {
            message: cut.message,
            site: cut.site,
        }
    }
}

/// A diagnostic for each `(target, position)` whose node is in the graph but got no cotangent.
pub(super) fn cuts(graph: &Graph, missing: &[(usize, usize)]) -> Vec<Diagnostic> {
    // For each node an edge `(reader, source number)` that carries nothing and that a path from
    // the node meets first. Readers nearer to the node overwrite farther ones; only the body of a
    // CUSTOM gives way to all others, since it usually depends on the inputs and on nothing else.
    let is_body = |&(i, k): &(usize, usize)| matches!(graph.nodes[i].op(), Op::Custom(_)) && k == 0;
    let mut cut: Vec<Option<(usize, usize)>> = vec![None; graph.len()];
    for (i, u) in graph.nodes.iter().enumerate().rev() {
        for (k, &s) in graph.src(i).iter().enumerate() {
            let found = if pulls(u, k) { cut[i] } else { Some((i, k)) };
            let known = cut[s as usize];
            cut[s as usize] = match found.as_ref().is_some_and(is_body) {
                true => known.or(found),
                false => found.or(known),
            };
        }
    }
    let describe = |&(which, position): &(usize, usize)| {
        let (reader, k) = cut[position]?;
        let u = &graph.nodes[reader];
        let cause = format!(
            "gets zeros: every path from it to the root is cut, by {}, or leave it out of the \
             targets",
            Cause::of(u, k)
        );
        Some(Diagnostic {
            target: which,
            message: format!("target {which}, {}, {cause}", typed(&graph.nodes[position])),
            cause,
            site: u.site(),
        })
    };
    missing.iter().filter_map(describe).collect()
}

/// Why an edge of a graph carries no derivative.
pub(super) struct Cause<'a> {
    u: &'a UOp,
    pub reason: &'static str,
    pub remedy: &'static str,
}

impl Cause<'_> {
    /// Why no derivative goes from u to its source k.
    pub fn of(u: &UOp, k: usize) -> Cause<'_> {
        let (reason, remedy) = match u.op() {
            Op::Stage(StageKind::Detach) => ("it is detached", "leave out the detach"),
            Op::Cast(_) => (
                "integers and bools have no derivative",
                "cast to a float instead",
            ),
            Op::CmpLt | Op::CmpNe => ("comparisons have no derivative", "use a where of floats"),
            Op::Where if k == 0 => ("a condition has no derivative", "let a branch depend on it"),
            Op::Index | Op::ScatterAdd(_) => (
                "positions have no derivative",
                "let the values depend on it",
            ),
            Op::Custom(_) if k == 0 => (
                "its rules give derivatives by its inputs only",
                "make it one of the inputs",
            ),
            Op::Custom(_) => (
                "its rule says that this input has no gradient",
                "give a cotangent for the input in its vjp",
            ),
            Op::ArgSort => ("positions have no derivative", "read the values at them"),
            _ => (
                "its derivative is zero or undefined everywhere",
                "use another op",
            ),
        };
        Cause { u, reason, remedy }
    }
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let types: Vec<String> = self.u.src().iter().map(typed).collect();
        let (op, types) = (named(self.u), types.join(", "));
        write!(f, "{op} of {types}: {}; {}", self.reason, self.remedy)
    }
}

fn typed(u: &UOp) -> String {
    format!("{} {} {}", u.op().mnemonic(), u.dtype(), u.shape())
}

/// The error for ops on memory or time, each kind named once: their derivatives are no values.
pub(super) fn not_pure<'a>(nodes: impl IntoIterator<Item = &'a UOp>) -> Error {
    let mut names: Vec<&str> = Vec::new();
    let mut site = None;
    for u in nodes {
        site = site.or(u.site());
        if !names.contains(&u.op().mnemonic()) {
            names.push(u.op().mnemonic());
        }
    }
    let message = format!(
        "the graph holds {}; autodiff only works on pure shape graphs, so differentiate before \
         lowering to loops, stores and calls",
        names.join(", ")
    );
    Error::Gradient { message, site }
}

/// Refuses graphs that hold ops on memory or time.
pub(super) fn refuse_lowered(graph: &Graph) -> Result<()> {
    let is_lowered = |u: &&UOp| matches!(u.op().info().class, Class::Loop | Class::Program);
    let mut lowered = graph.nodes.iter().filter(is_lowered).peekable();
    if lowered.peek().is_some() {
        return Err(not_pure(lowered));
    }
    Ok(())
}

/// Refuses a root, target or the like that is no float.
pub(super) fn refuse_whole(what: &str, u: &UOp) -> Result<()> {
    if u.dtype().is_float() {
        return Ok(());
    }
    let (op, dtype, shape) = (u.op().mnemonic(), u.dtype(), u.shape());
    let message = format!(
        "the {what}, {op} of dtype {dtype} and shape {shape}, is no float; only floats have \
         derivatives, so cast it to f32 before it is used"
    );
    let site = u.site();
    Err(Error::Gradient { message, site })
}

/// The error for an op on a path to a target that has no rule.
pub(super) fn unsupported(u: &UOp, what: &'static str, remedy: &str) -> Error {
    let types: Vec<String> = u
        .src()
        .iter()
        .map(|s| format!("{} {}", s.dtype(), s.shape()))
        .collect();
    let message = format!(
        "sources {} give {} {}; {remedy}",
        types.join(", "),
        u.dtype(),
        u.shape()
    );
    Error::Unsupported {
        what,
        message,
        site: u.site(),
    }
}
