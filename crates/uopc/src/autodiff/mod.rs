//! Reverse-mode differentiation: from the graph of a value to the graph of its gradients.
//!
//! In:       a root and targets of a pure shape graph, all of them floats.
//! Out:      one node a target, of the target's dtype and shape: the derivative of the sum of the
//!           root's elements. Only a graph is built, no number is computed.
//! Keeps:    the forward nodes: gradients refer to them by identity, so that a plan which computes
//!           both computes what they share once. Hash consing is the tape.
//! Ensures:  the gradient graph is made of ops that have rules, so it can be differentiated again;
//!           no target gets zeros because its paths are cut without a [`Diagnostic`] that says so.
//! Cost:     linear in the nodes under the root; each node's rule is applied once an edge.
//!
//! Why it is right. The cotangent of a node is the derivative of the root with respect to it. By
//! the chain rule it is the sum, over the edges through which the node is read, of what the
//! reader's vjp makes of the reader's own cotangent. Nodes are visited in reverse topological
//! order, so all readers of a node were visited before it and its sum is complete.
//!
//! The contributions to a node are added in order of arrival, `((a + b) + c)`: latest reader
//! first, and of one reader the first source first. Texts and bits depend on this order.
//!
//! ```
//! use uopc::autodiff::gradient;
//! use uopc::ir::{DType, UOp, op::ReduceOp};
//!
//! let x = UOp::slot(0, DType::F32, 3);
//! let y = UOp::slot(1, DType::F32, 3);
//! let loss = x.mul(&y)?.add(&x)?.reduce(ReduceOp::Add, 1)?;
//! let ones = x.full_like(1.0)?;
//! // d sum(x*y + x) / dx = 1 + 1*y: the path through the sum arrives before that through the product.
//! assert_eq!(gradient(&loss, &[x])?, [ones.add(&ones.mul(&y)?)?]);
//! # Ok::<(), uopc::Error>(())
//! ```

mod product;
mod repeat;
mod stop;
mod vjp;

use std::slice;

use smallvec::{SmallVec, smallvec};

use crate::error::{Error, Result};
use crate::ir::composite::zeros_like;
use crate::ir::dtype::DType;
use crate::ir::op::Class;
use crate::ir::uop::UOp;
use crate::ir::visit::Graph;

pub use stop::Diagnostic;
use stop::{cuts, not_pure};
pub(crate) use vjp::carries;
use vjp::vjp;

/// What the readers of a node have sent to it, in order of arrival.
type Contributions = SmallVec<[UOp; 2]>;

/// The gradients of the sum of `root`'s elements with respect to each target.
///
/// A target that the root does not mention gets zeros. So does one that is mentioned but whose
/// every path to the root is cut, with a warning through `log`; [`gradient_with`] hands the
/// warnings out or makes them errors. A target may be any node, interior ones and the root included.
///
/// # Errors
/// When the graph holds loops or effects, when the root or a target is no float, and when an op on
/// a path to a target has no rule.
pub fn gradient(root: &UOp, targets: &[UOp]) -> Result<Vec<UOp>> {
    let (gradients, diagnostics) = gradient_with(root, targets, false)?;
    for diagnostic in &diagnostics {
        log::warn!("gradient: {diagnostic}");
    }
    Ok(gradients)
}

/// [`gradient`], with a diagnostic for each target whose every path to the root is cut; if
/// `strict`, the first of them is an error.
///
/// # Errors
/// Those of [`gradient`], and [`Error::Gradient`] for a cut if `strict`.
pub fn gradient_with(
    root: &UOp,
    targets: &[UOp],
    strict: bool,
) -> Result<(Vec<UOp>, Vec<Diagnostic>)> {
    let graph = Graph::new(slice::from_ref(root));
    check(&graph, root, targets)?;
    let on_path = on_path(&graph, targets);
    let mut cotangents = vec![Contributions::new(); graph.len()];
    cotangents[graph.roots[0] as usize].push(root.full_like(1.0)?);
    for i in (0..graph.len()).rev() {
        let u = &graph.nodes[i];
        let Some(g) = total(&cotangents[i], u.dtype())? else {
            continue;
        };
        for (k, &s) in graph.src(i).iter().enumerate() {
            if on_path[s as usize]
                && let Some(gx) = vjp(u, &g, k)?
            {
                cotangents[s as usize].push(gx);
            }
        }
        cotangents[i] = smallvec![g];
    }
    collect(&graph, targets, &cotangents, strict)
}

/// Refuses what can't be differentiated at all, before anything is built.
fn check(graph: &Graph, root: &UOp, targets: &[UOp]) -> Result<()> {
    let is_lowered = |u: &&UOp| matches!(u.op().info().class, Class::Loop | Class::Program);
    let mut lowered = graph.nodes.iter().filter(is_lowered).peekable();
    if lowered.peek().is_some() {
        return Err(not_pure(lowered));
    }
    let asked = [("root", root)]
        .into_iter()
        .chain(targets.iter().map(|t| ("target", t)));
    for (what, u) in asked {
        if !u.dtype().is_float() {
            let (op, dtype, shape) = (u.op().mnemonic(), u.dtype(), u.shape());
            let message = format!(
                "the {what}, {op} of dtype {dtype} and shape {shape}, is no float; only floats \
                 have derivatives, so cast it to f32 before it is used"
            );
            let site = u.site();
            return Err(Error::Gradient { message, site });
        }
    }
    Ok(())
}

/// For each node whether a change of some target reaches it. Nothing else gets a cotangent, so
/// input data are never differentiated.
fn on_path(graph: &Graph, targets: &[UOp]) -> Vec<bool> {
    let mut on_path = vec![false; graph.len()];
    for i in targets.iter().filter_map(|t| graph.position(t)) {
        on_path[i] = true;
    }
    for (i, u) in graph.nodes.iter().enumerate() {
        let reached = |(k, &s): (usize, &u32)| on_path[s as usize] && carries(u, k);
        on_path[i] |= graph.src(i).iter().enumerate().any(reached);
    }
    on_path
}

/// The sum of the contributions, if there are any. Narrow floats are added in f32 and rounded once.
fn total(contributions: &[UOp], dtype: DType) -> Result<Option<UOp>> {
    let Some((first, rest)) = contributions.split_first() else {
        return Ok(None);
    };
    if rest.is_empty() {
        return Ok(Some(first.clone()));
    }
    let wide = dtype.accumulator();
    let mut sum = first.cast(wide)?;
    for g in rest {
        sum = sum.add(&g.cast(wide)?)?;
    }
    sum.cast(dtype).map(Some)
}

/// One gradient a target: its cotangent, or zeros, with a diagnostic if it was cut off.
fn collect(
    graph: &Graph,
    targets: &[UOp],
    cotangents: &[Contributions],
    strict: bool,
) -> Result<(Vec<UOp>, Vec<Diagnostic>)> {
    let mut gradients = Vec::with_capacity(targets.len());
    let mut missing = Vec::new();
    for (which, target) in targets.iter().enumerate() {
        let position = graph.position(target);
        match position.and_then(|i| cotangents[i].first()) {
            Some(g) => gradients.push(g.clone()),
            None => {
                missing.extend(position.map(|i| (which, i)));
                gradients.push(zeros_like(target)?);
            }
        }
    }
    let diagnostics = if missing.is_empty() {
        Vec::new()
    } else {
        cuts(graph, &missing)
    };
    match diagnostics.first() {
        Some(cut) if strict => Err(cut.clone().into()),
        _ => Ok((gradients, diagnostics)),
    }
}
