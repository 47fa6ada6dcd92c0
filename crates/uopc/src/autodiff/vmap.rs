//! Batching: from the graph of a function to the graph of that function over a leading axis.
//!
//! In:       roots of a pure shape graph, and pairs of a node and what takes its place: a node with
//!           one more axis in front, the batch, of the same extent for all pairs.
//! Out:      one [`Batched`] a root: with the batch in front if the root depends on a pair, else
//!           the root itself.
//! Keeps:    everything that does not depend on a pair, by identity, so it is computed once and not
//!           once an example. It is repeated along the batch only where an op needs equal shapes.
//! Ensures:  row b of a result is what the roots give for row b of the pairs, to the last bit but
//!           for sums that become matrix products (below); no op turns into a loop.
//! Cost:     linear in the nodes under the roots; a bounded number of nodes for each.
//!
//! The order of a sum is part of its node (`ir/fold.rs`). A chain stays one. A sum of a product that
//! is no contraction by itself, such as that of a matrix and a vector, may be one over a batch, of a
//! matrix and a matrix; it is a chain then, and equals the single sums up to rounding.

use rustc_hash::FxHashMap;

use super::custom;
use super::stop::{not_pure, refuse_lowered};
use crate::error::{Error, Result};
use crate::ir::dtype::DType;
use crate::ir::op::{Fold, Op};
use crate::ir::site::{Rule, Site};
use crate::ir::uop::{Sources, UOp};
use crate::ir::visit::Graph;

/// A value that may have a batch as its first axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batched {
    /// The value, with the batch in front if there is one.
    pub node: UOp,
    /// Whether there is: if not, the value is the same for all examples.
    pub batched: bool,
}

impl Batched {
    /// The value with the batch in front in any case: one that is the same for all `n` examples is
    /// repeated.
    ///
    /// # Errors
    /// When the result would not fit memory.
    pub fn repeated(&self, n: usize) -> Result<UOp> {
        if self.batched {
            return Ok(self.node.clone());
        }
        repeat(&self.node, n)
    }
}

/// The roots as functions over a batch: each pair is a node, and the node with the batch in front
/// that takes its place.
///
/// ```
/// use uopc::autodiff::vmap;
/// use uopc::ir::{DType, UOp, op::ReduceOp};
///
/// // The length of a vector, for five vectors at once.
/// let x = UOp::slot(0, DType::F32, 3);
/// let length = x.mul(&x)?.reduce(ReduceOp::Add, 1)?.sqrt()?;
/// let xs = UOp::slot(1, DType::F32, 15).reshape(&[5, 3])?;
/// let found = &vmap(&[length], &[(x, xs.clone())])?[0];
/// assert!(found.batched);
/// assert_eq!(found.node, xs.mul(&xs)?.reduce(ReduceOp::Add, 1)?.sqrt()?);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the graph holds loops or effects, when a replacement is not of the node's dtype, or of its
/// shape behind a batch that is the same for all, when a node is given two replacements, and when
/// an op that depends on a batch has no rule.
pub fn vmap(roots: &[UOp], inputs: &[(UOp, UOp)]) -> Result<Vec<Batched>> {
    let graph = Graph::new(roots);
    refuse_lowered(&graph)?;
    let n = batch_size(inputs)?;
    let replaced: FxHashMap<usize, &UOp> = inputs
        .iter()
        .filter_map(|(from, to)| Some((graph.position(from)?, to)))
        .collect();
    let mut made: Vec<Batched> = Vec::with_capacity(graph.len());
    for (i, u) in graph.nodes.iter().enumerate() {
        let sources = graph.src(i).iter().map(|&s| &made[s as usize]);
        let (node, batched) = if let Some(&to) = replaced.get(&i) {
            (to.clone(), true)
        } else if sources.clone().any(|s| s.batched) {
            let _rule = Site::derive(u.site(), Rule::vmap(u.op()));
            (rule(u, &sources.collect::<Vec<_>>(), n)?, true)
        } else {
            (u.clone(), false)
        };
        made.push(Batched { node, batched });
    }
    let root = |&r: &u32| made[r as usize].clone();
    Ok(graph.roots.iter().map(root).collect())
}

/// The extent of the batch, which all replacements agree on; 0 if there are none.
fn batch_size(inputs: &[(UOp, UOp)]) -> Result<usize> {
    let mut size: Option<usize> = None;
    let mut known: FxHashMap<&UOp, &UOp> = FxHashMap::default();
    for (k, (from, to)) in inputs.iter().enumerate() {
        let (op, site) = ("vmap", to.site().or(Site::current()));
        if from.dtype() != to.dtype() {
            let (a, b) = (from.dtype(), to.dtype());
            let message = format!("input {k} is {a}, its batch {b}; cast the batch");
            return Err(Error::DType { op, message, site });
        }
        let (shape, found) = (from.shape(), to.shape());
        let message = match found.split_first() {
            Some((&n, rest)) if *rest == shape[..] => match size.replace(n) {
                Some(other) if other != n => {
                    format!("batches of {other} and of {n} examples; give as many of each")
                }
                _ if known.insert(from, to).is_some_and(|other| other != to) => {
                    format!("input {k} is given two batches; give one")
                }
                _ => continue,
            },
            _ => format!(
                "input {k} has shape {shape}, its batch {found}; put the batch in front of the \
                 axes of the input"
            ),
        };
        return Err(Error::Shape { op, message, site });
    }
    Ok(size.unwrap_or(0))
}

/// `u = op(s)` over a batch of n, which at least one of its sources has.
fn rule(u: &UOp, s: &[&Batched], n: usize) -> Result<UOp> {
    let x = &s[0].node;
    // All sources with the batch in front.
    let repeated = || -> Result<Sources> { s.iter().map(|s| s.repeated(n)).collect() };
    let behind = |dims: &[usize]| [&[n], dims].concat();
    match u.op() {
        // Leaves: no sources.
        Op::Const(_) | Op::Buffer { .. } | Op::Param { .. } | Op::Iota { .. } => Ok(u.clone()),

        // Element by element: all sources of one shape.
        Op::Add
        | Op::Mul
        | Op::Max
        | Op::Recip
        | Op::Div
        | Op::Exp2
        | Op::Log2
        | Op::Exp
        | Op::Sqrt
        | Op::Sin(_)
        | Op::Trunc
        | Op::MulAcc
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::Where
        | Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr => UOp::new(u.op().clone(), repeated()?),

        Op::Reshape(to) => x.reshape(&behind(to)),
        Op::Expand(to) => x.expand(&behind(to)),
        Op::Permute(order) => {
            let order = order.iter().map(|&p| p as usize + 1);
            x.permute(&std::iter::once(0).chain(order).collect::<Vec<_>>())
        }
        Op::Shrink(window) => x.shrink(&[&[(0, n)], &window[..]].concat()),

        // The parts come first, the batch second.
        Op::Stack => first_to(1, &UOp::stack(&repeated()?)?, true),
        Op::Index => index(s, n),
        Op::ScatterAdd(shape) => scatter_add(shape, s, n),

        // The last axes are the same. A chain stays one, whatever the batch looks like.
        Op::Reduce { op, n, fold } => match fold {
            Fold::Chain => x.reduce_as(*op, *n as usize, *fold),
            Fold::Lanes => x.reduce(*op, *n as usize),
        },
        // Along the last axis.
        Op::Scan(_) | Op::ArgSort => UOp::new(u.op().clone(), repeated()?),
        Op::Custom(custom) => custom::batched(u, custom, s, n),
        Op::Stage(kind) => x.stage(*kind),

        Op::Range { .. }
        | Op::End
        | Op::Store { .. }
        | Op::Load
        | Op::Local { .. }
        | Op::Sink
        | Op::After
        | Op::Call { .. }
        | Op::Loop
        | Op::EndLoop
        | Op::If
        | Op::EndIf
        | Op::Let { .. }
        | Op::Declare(_)
        | Op::Barrier => Err(not_pure([u])),
    }
}

/// A value repeated n times along a new first axis. Where it is a repetition already, all is
/// repeated at once: a constant stays what [`UOp::full`] makes of it.
fn repeat(u: &UOp, n: usize) -> Result<UOp> {
    let mut from = u;
    if let Op::Expand(_) = from.op() {
        from = &from.src()[0];
    }
    let ones = [&[1], &from.shape()[..]].concat();
    if let Op::Reshape(_) = from.op() {
        from = &from.src()[0];
    }
    from.reshape(&ones)?
        .expand(&[&[n], &u.shape()[..]].concat())
}

/// Moves the first axis to place k, or axis k to the front if `back`.
fn first_to(k: usize, u: &UOp, back: bool) -> Result<UOp> {
    let mut order: Vec<usize> = (0..u.shape().rank()).collect();
    if back {
        order[..=k].rotate_right(1);
    } else {
        order[..=k].rotate_left(1);
    }
    u.permute(&order)
}

/// `x[i0, ..., ik-1]`. Positions that are the same for all examples read one value with the batch
/// behind the axes that they index, so that a constant position or a reversal stays one. Positions
/// of each example lead the result with the batch; if x has one as well, the number of the example
/// is the first position.
fn index(s: &[&Batched], n: usize) -> Result<UOp> {
    let (x, indices) = (s[0], &s[1..]);
    if !indices.iter().any(|i| i.batched) {
        let same: Vec<UOp> = indices.iter().map(|i| i.node.clone()).collect();
        let read = first_to(indices.len(), &x.node, false)?.index(&same)?;
        return first_to(same[0].shape().rank(), &read, true);
    }
    x.node.index(&positions(indices, n, x.batched)?)
}

/// Rows added into zeros of the shape: the transpose of [`index`], case by case. Rows that are the
/// same for all examples go to places of each, so they are repeated.
fn scatter_add(shape: &[usize], s: &[&Batched], n: usize) -> Result<UOp> {
    let (rows, indices) = (s[0], &s[1..]);
    if !indices.iter().any(|i| i.batched) {
        let same: Vec<UOp> = indices.iter().map(|i| i.node.clone()).collect();
        let k = same.len();
        let mut wide = shape.to_vec();
        wide.insert(k, n);
        let rows = first_to(same[0].shape().rank(), &rows.node, false)?;
        return first_to(k, &rows.scatter_add(&same, &wide)?, true);
    }
    let rows = rows.repeated(n)?;
    rows.scatter_add(&positions(indices, n, true)?, &[&[n], shape].concat())
}

/// Positions that differ between examples, all with the batch in front; before them, if asked for,
/// the number of the example.
fn positions(indices: &[&Batched], n: usize, numbered: bool) -> Result<Vec<UOp>> {
    let mut all = Vec::with_capacity(indices.len() + 1);
    for index in indices {
        all.push(index.repeated(n)?);
    }
    if !numbered {
        return Ok(all);
    }
    // All positions have one dtype, which may be too narrow for the number.
    let fits = |dtype: DType| {
        dtype
            .int_range()
            .is_some_and(|(_, most)| n as i128 - 1 <= most)
    };
    let narrow = all[0].dtype();
    let dtype = if fits(narrow) { narrow } else { DType::I64 };
    let mut dims = vec![1; all[0].shape().rank()];
    dims[0] = n;
    let number = UOp::iota(n, dtype)?
        .reshape(&dims)?
        .expand(all[0].shape())?;
    all = all.iter().map(|i| i.cast(dtype)).collect::<Result<_>>()?;
    all.insert(0, number);
    Ok(all)
}
