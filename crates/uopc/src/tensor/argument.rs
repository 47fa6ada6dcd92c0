//! Arguments of functions that are transformed: leaves that stand for a value, or for each of many.
//!
//! A transformation calls a function with arguments that have an identity of their own, so that
//! it finds in the result what depends on them and on nothing else. The graph of `f(x)` may
//! mention the same x by another way (a function inside another one often does); the argument
//! that stands for x is another node.
//!
//! An argument is a live leaf without memory. Where its value is known, whoever computes something
//! that depends on it puts the value in its place first, so a function may look at what it
//! computes. Where it stands for each of many values, there is nothing to look at.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustc_hash::FxHashMap;

use super::{DType, Result, Shape, Tensor, UOp, history};
use crate::ir::op::{BufferId, Op};
use crate::ir::visit::{Graph, substitute};

/// What lies behind an argument's leaf in place of memory.
struct Argument {
    /// The value, of the leaf's dtype and size, if there is one.
    stands_for: Option<UOp>,
}

/// How many arguments with a value there are in the process: mostly none, and then nobody looks for
/// them.
static KNOWN: AtomicUsize = AtomicUsize::new(0);

impl Argument {
    fn new(stands_for: Option<UOp>) -> Argument {
        if stands_for.is_some() {
            KNOWN.fetch_add(1, Relaxed);
        }
        Argument { stands_for }
    }
}

impl Drop for Argument {
    fn drop(&mut self) {
        if self.stands_for.is_some() {
            KNOWN.fetch_sub(1, Relaxed);
        }
    }
}

impl Tensor {
    /// An argument that stands for this value; also its leaf, of one axis.
    pub(crate) fn argument(&self) -> Result<(Tensor, UOp)> {
        let value = self.uop().reshape(&[self.numel()])?;
        Tensor::argument_of(Some(value), self.dtype(), self.shape())
    }

    /// An argument whose value nobody knows; also its leaf, of one axis.
    pub(crate) fn unknown_argument(dtype: DType, shape: &Shape) -> Result<(Tensor, UOp)> {
        Tensor::argument_of(None, dtype, shape)
    }

    fn argument_of(stands_for: Option<UOp>, dtype: DType, shape: &Shape) -> Result<(Tensor, UOp)> {
        let node = history::live_leaf(Arc::new(Argument::new(stands_for)), dtype, shape)?;
        let leaf = match node.op() {
            Op::Reshape(_) => node.src()[0].clone(),
            _ => node.clone(),
        };
        // What is computed from it keeps its graph, which the transformation needs.
        let tensor = Tensor::new(node.clone(), dtype.is_float());
        history::register(&node, &tensor.0);
        Ok((tensor, leaf))
    }
}

/// What lies behind an argument's leaf.
fn behind(u: &UOp) -> Option<&Argument> {
    match u.op() {
        Op::Buffer {
            id: BufferId::Live(buffer),
            ..
        } => buffer.storage.downcast_ref::<Argument>(),
        _ => None,
    }
}

/// Whether a node is the leaf of an argument.
pub(crate) fn is_argument(u: &UOp) -> bool {
    behind(u).is_some()
}

/// Whether a node is the leaf of an argument that stands for each of many values.
pub(super) fn is_unknown(u: &UOp) -> bool {
    behind(u).is_some_and(|argument| argument.stands_for.is_none())
}

/// The value that an argument's leaf stands for.
fn value(u: &UOp) -> Option<&UOp> {
    behind(u)?.stands_for.as_ref()
}

/// The graphs with all arguments whose values are known replaced by these.
///
/// # Errors
/// Never for graphs of tensors.
pub(super) fn with_values(roots: &[UOp]) -> Result<Cow<'_, [UOp]>> {
    let mut roots = Cow::Borrowed(roots);
    // A value may depend on arguments itself, of a function around this one.
    while KNOWN.load(Relaxed) > 0 {
        let nodes = Graph::new(&roots).nodes;
        let known = nodes
            .iter()
            .filter_map(|u| Some((u.clone(), value(u)?.clone())));
        let known: FxHashMap<UOp, UOp> = known.collect();
        if known.is_empty() {
            break;
        }
        roots = Cow::Owned(substitute(&roots, &known)?);
    }
    Ok(roots)
}
