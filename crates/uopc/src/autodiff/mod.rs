//! Reverse-mode differentiation: from the graph of a value to the graph of its gradients.
//!
//! In:       a root and targets of a pure shape graph, all of them floats.
//! Out:      one node a target, of the target's dtype and shape: the derivative of the sum of the
//!           root's elements. Only a graph is built, no number is computed.
//! Keeps:    the forward nodes: gradients refer to them by identity, so that a plan which computes
//!           both computes what they share once. Hash consing is the tape.
//! Ensures:  the gradient graph is made of ops that have rules, so it can be differentiated again;
//!           no target gets zeros because its paths are cut without a [`Diagnostic`] that says so;
//!           what a selection did not take has a gradient of exactly 0 (see below).
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
//! **Safe where.** Where every path from an element to the root meets, before a contraction, a
//! selection that did not take it, its cotangent and all that it passes on are exactly 0, whatever
//! NaN or infinity the forward values hold there; so in gradients of gradients, to any order.
//! Selections are WHERE, MAX, REDUCE(MAX), SHRINK and INDEX. Nobody need write a condition twice:
//!
//! ```
//! # use uopc::autodiff::gradient;
//! # use uopc::interp::{graph, Array};
//! # use uopc::ir::{DType, UOp, op::ReduceOp};
//! let x = UOp::slot(0, DType::F32, 2);
//! let zero = x.full_like(0.0)?;
//! let safe = zero.cmplt(&x)?.where_(&x.sqrt()?, &zero)?;
//! let slope = gradient(&safe.reduce(ReduceOp::Add, 1)?, &[x])?;
//! let at = Array::from_f64(DType::F32, &[2], &[0.0, 4.0])?;
//! // At 0 the derivative of the root is infinite, but it was not taken.
//! assert_eq!(graph::eval(&slope, &|_| Some(at.clone()))?[0].to_f64(), [0.0, 0.25]);
//! # Ok::<(), uopc::Error>(())
//! ```
//!
//! `reverse.rs` is the driver, `vjp.rs` has the rule of each op. Cotangents carry masks
//! (`cotangent.rs`, `mask.rs`), which know what ops take (`passage.rs`) and where shapes alone
//! decide it (`cover.rs`). A graph without selections has no masks.
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

mod cotangent;
mod cover;
mod custom;
mod explain;
mod jvp;
mod mask;
mod passage;
mod place;
mod product;
mod repeat;
mod reverse;
mod scan;
mod stop;
mod strict;
mod vjp;
mod vmap;

use crate::error::Result;
use crate::ir::uop::UOp;

pub use explain::{Cut, Explanation, Path, Step, explain_gradient};
pub use jvp::{jvp, jvp_all};
use reverse::reverse;
pub use stop::Diagnostic;
pub use strict::{StrictGradients, is_strict, strict_gradients};
pub(crate) use vjp::carries;
pub use vmap::{Batched, vmap};

/// The gradients of the sum of `root`'s elements with respect to each target.
///
/// A target that the root does not mention gets zeros. So does one that is mentioned but whose
/// every path to the root is cut, with a warning through `log`, or an error under
/// [`strict_gradients`]; [`gradient_with`] hands the warnings out. A target may be any node,
/// interior ones and the root included.
///
/// # Errors
/// When the graph holds loops or effects, when the root or a target is no float, and when an op on
/// a path to a target has no rule.
pub fn gradient(root: &UOp, targets: &[UOp]) -> Result<Vec<UOp>> {
    let (gradients, diagnostics) = gradient_with(root, targets, is_strict())?;
    for diagnostic in &diagnostics {
        log::warn!(target: "uopc::gradient", "gradient: {diagnostic}");
    }
    Ok(gradients)
}

/// [`gradient`], with a diagnostic for each target whose every path to the root is cut; if
/// `strict`, the first of them is an error.
///
/// # Errors
/// Those of [`gradient`], and [`Error::Gradient`](crate::Error::Gradient) for a cut if `strict`.
pub fn gradient_with(
    root: &UOp,
    targets: &[UOp],
    strict: bool,
) -> Result<(Vec<UOp>, Vec<Diagnostic>)> {
    pullback(&[(root.clone(), None)], targets, strict)
}

/// [`gradient_with`] of the sum of `root * cotangent` over several roots, each with its cotangent,
/// without those products: the vjp (vector-Jacobian product) of a whole graph. `None` stands for
/// ones.
///
/// ```
/// use uopc::autodiff::pullback;
/// use uopc::ir::{DType, UOp};
///
/// let x = UOp::slot(0, DType::F32, 3);
/// let g = UOp::slot(1, DType::F32, 3);
/// let y = x.exp()?;
/// // Of e^x, whose cotangent is g, and of x itself, whose cotangent is ones.
/// let (found, _) = pullback(&[(y.clone(), Some(g.clone())), (x.clone(), None)], &[x.clone()], false)?;
/// assert_eq!(found[0], x.full_like(1.0)?.add(&g.mul(&y)?)?);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of [`gradient_with`], and when a cotangent is not of its root's dtype and shape.
pub fn pullback(
    roots: &[(UOp, Option<UOp>)],
    targets: &[UOp],
    strict: bool,
) -> Result<(Vec<UOp>, Vec<Diagnostic>)> {
    reverse(roots, targets, strict)
}
