//! Forward-mode differentiation: from a graph to the graph of its derivative along a direction.
//!
//! In:       roots, and targets with a tangent each: nodes of a pure shape graph, all floats.
//! Out:      one node a root, of its dtype and shape: how the root changes when each target
//!           changes by its tangent (jvp, Jacobian-vector product). No number is computed.
//! Keeps:    the forward nodes, by identity, as [`gradient`](super::gradient) does.
//! Ensures:  the result is made of ops that have rules: jvp, gradient and vmap of a jvp exist. Where
//!           there is no derivative the choice is that of `vjp.rs`, so that the sum of
//!           gradient * tangent is the sum of the jvp.
//! Cost:     linear in the nodes under the roots, which several roots share. A node whose tangent is
//!           zero, whatever the tangents are, gets none.
//!
//! A target may be any node. What changes a target's own sources reaches it as well, beside its
//! tangent: tangents add up along all paths, as contributions do in reverse mode.
//!
//! The tangent of a product is a sum, `ta * b + a * tb`. Before a contraction the two summands stay
//! apart, so that each is summed as the product of two broadcast factors that it is, and a matrix
//! product gives two matrix products.

use std::f64::consts::LN_2;

use smallvec::{SmallVec, smallvec};

use super::custom::push;
use super::product::product_of_others;
use super::scan::push_scan;
use super::stop::{not_pure, refuse_lowered, refuse_whole};
use super::vjp::carries;
use crate::error::{Error, Result};
use crate::ir::composite::zeros_like;
use crate::ir::dtype::DType;
use crate::ir::fold::chain_product;
use crate::ir::op::{Op, ReduceOp, StageKind};
use crate::ir::site::{Rule, Site};
use crate::ir::uop::UOp;
use crate::ir::visit::Graph;

/// Summands of a tangent; none if it is zero.
type Terms = SmallVec<[UOp; 1]>;

/// The tangent of the root when each target changes by its tangent.
///
/// Zeros if the root does not depend on a target.
///
/// ```
/// use uopc::autodiff::jvp;
/// use uopc::ir::{DType, UOp};
///
/// let x = UOp::slot(0, DType::F32, 3);
/// let v = UOp::slot(1, DType::F32, 3);
/// // d sin(x) = v cos(x)
/// assert_eq!(jvp(&x.sin()?, &[x.clone()], &[v.clone()])?, v.mul(&x.cos()?)?);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the graph holds loops or effects, when the root or a target is no float, when a tangent is
/// not of its target's dtype and shape, and when an op on a path has no rule.
pub fn jvp(root: &UOp, targets: &[UOp], tangents: &[UOp]) -> Result<UOp> {
    let mut tangents = jvp_all(std::slice::from_ref(root), targets, tangents)?;
    Ok(tangents.remove(0))
}

/// [`jvp`] of several roots at once.
///
/// ```
/// use uopc::autodiff::jvp_all;
/// use uopc::ir::{DType, UOp};
///
/// let x = UOp::slot(0, DType::F32, 3);
/// let v = UOp::slot(1, DType::F32, 3);
/// let y = x.exp()?;
/// // d e^x = v e^x, and that is all that changes in e^x + e^x, twice.
/// let dy = v.mul(&y)?;
/// let found = jvp_all(&[y.clone(), y.add(&y)?], &[x], &[v])?;
/// assert_eq!(found, [dy.clone(), dy.add(&dy)?]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of [`jvp`].
pub fn jvp_all(roots: &[UOp], targets: &[UOp], tangents: &[UOp]) -> Result<Vec<UOp>> {
    let graph = Graph::new(roots);
    check(&graph, roots, targets, tangents)?;
    let by_terms = by_terms(&graph);
    let mut flow = vec![Terms::new(); graph.len()];
    for (target, tangent) in targets.iter().zip(tangents) {
        if let Some(i) = graph.position(target) {
            flow[i].push(tangent.clone());
        }
    }
    for i in 0..graph.len() {
        let mut terms = tangent(&graph, i, &flow, by_terms[i])?;
        flow[i].append(&mut terms);
    }
    let found = graph.roots.iter().zip(roots).map(|(&r, root)| {
        let sum = total(&flow[r as usize], root)?;
        sum.map_or_else(|| zeros_like(root), Ok)
    });
    found.collect()
}

/// Refuses what has no derivative, and tangents that do not fit.
fn check(graph: &Graph, roots: &[UOp], targets: &[UOp], tangents: &[UOp]) -> Result<()> {
    refuse_lowered(graph)?;
    roots.iter().try_for_each(|u| refuse_whole("root", u))?;
    targets.iter().try_for_each(|u| refuse_whole("target", u))?;
    let (n, m) = (targets.len(), tangents.len());
    if n != m {
        let message = format!("{m} tangents for {n} targets; give one for each");
        return Err(Error::Shape {
            op: "jvp",
            message,
            site: Site::current(),
        });
    }
    for (k, (target, tangent)) in targets.iter().zip(tangents).enumerate() {
        let (op, site) = ("jvp", tangent.site().or(Site::current()));
        let (dtype, shape) = (target.dtype(), target.shape());
        let (found, dims) = (tangent.dtype(), tangent.shape());
        if found != dtype {
            let message = format!("tangent {k} is {found}, its target {dtype}; cast the tangent");
            return Err(Error::DType { op, message, site });
        }
        if dims != shape {
            let message = format!(
                "tangent {k} has shape {dims}, its target {shape}; reshape or expand the tangent"
            );
            return Err(Error::Shape { op, message, site });
        }
    }
    Ok(())
}

/// What the tangents of node i's sources make of it.
fn tangent(graph: &Graph, i: usize, flow: &[Terms], by_terms: bool) -> Result<Terms> {
    let (u, sources) = (&graph.nodes[i], graph.src(i));
    let of = |k: usize| -> &[UOp] {
        if carries(u, k) {
            &flow[sources[k] as usize]
        } else {
            &[]
        }
    };
    if (0..sources.len()).all(|k| of(k).is_empty()) {
        return Ok(Terms::new());
    }
    let _rule = Site::derive(u.site(), Rule::jvp(u.op()));
    if by_terms {
        let parts = of(0).iter().map(|term| rule(u, &[Some(term.clone())]));
        return parts
            .collect::<Result<Vec<Terms>>>()
            .map(|p| p.into_iter().flatten().collect());
    }
    let sums = (0..sources.len()).map(|k| total(of(k), &u.src()[k]));
    rule(u, &sums.collect::<Result<SmallVec<[_; 3]>>>()?)
}

/// For each node whether its rule is applied to the summands of its source's tangent one by one: it
/// is a sum of a product with a broadcast factor, or lies between the two.
fn by_terms(graph: &Graph) -> Vec<bool> {
    let mut by_terms = vec![false; graph.len()];
    for (i, u) in graph.nodes.iter().enumerate() {
        let is_sum = matches!(
            u.op(),
            Op::Reduce {
                op: ReduceOp::Add,
                ..
            }
        );
        if !is_sum || !u.dtype().is_float() {
            continue;
        }
        let Some((product, through)) = chain_product(&u.src()[0]) else {
            continue;
        };
        if product.src().iter().any(is_broadcast) {
            by_terms[i] = true;
            for step in through {
                by_terms[graph
                    .position(&step)
                    .expect("it is below a node of the graph")] = true;
            }
        }
    }
    by_terms
}

/// How many movement ops and casts are looked through.
const REACH: usize = 16;

/// True for what repeats a value that is not constant, seen through movement ops and casts.
fn is_broadcast(factor: &UOp) -> bool {
    let mut repeats = false;
    let mut u = factor;
    for _ in 0..REACH {
        let op = u.op();
        let is_mark = matches!(op, Op::Stage(kind) if kind.bounds());
        if !op.is_movement() && !matches!(op, Op::Cast(_)) && !is_mark {
            break;
        }
        repeats |= matches!(op, Op::Expand(_));
        u = &u.src()[0];
    }
    repeats && !matches!(u.op(), Op::Const(_))
}

/// The sum of the terms, if there are any. Narrow floats are added in f32 and rounded once.
fn total(terms: &[UOp], u: &UOp) -> Result<Option<UOp>> {
    let Some((first, rest)) = terms.split_first() else {
        return Ok(None);
    };
    if rest.is_empty() {
        return Ok(Some(first.clone()));
    }
    let _rule = Site::derive(u.site(), Rule::SumOfTangents);
    let dtype = u.dtype();
    let wide = dtype.accumulator();
    let mut sum = first.cast(wide)?;
    for term in rest {
        sum = sum.add(&term.cast(wide)?)?;
    }
    sum.cast(dtype).map(Some)
}

/// The tangent of `u = op(s)` as summands, where `t[k]` is that of `s[k]`: nothing if it is zero,
/// and not all are. The rules are those of `vjp.rs` read forwards, in the same notation.
fn rule(u: &UOp, t: &[Option<UOp>]) -> Result<Terms> {
    let s = u.src();
    // What a single source that changes contributes, and zeros for one that does not.
    let only = || t[0].as_ref().expect("some source changes");
    let full = |k: usize| t[k].clone().map_or_else(|| zeros_like(&s[k]), Ok);
    let each = |of: &dyn Fn(usize, &UOp) -> Result<UOp>| -> Result<Terms> {
        let terms = t.iter().enumerate();
        let terms = terms.filter_map(|(k, t)| t.as_ref().map(|t| of(k, t)));
        terms.collect()
    };
    // A linear op that moves, adds or repeats elements does so with their tangents.
    let same_op = || {
        let mut src = SmallVec::<[UOp; 3]>::from(s);
        src[0] = only().clone();
        u.with_src(&src)
    };
    let term = match u.op() {
        // Leaves: no sources.
        Op::Const(_) | Op::Buffer { .. } | Op::Param { .. } | Op::Iota { .. } => {
            return Ok(Terms::new());
        }

        // d(a + b) = da + db.
        Op::Add => return each(&|_, t| Ok(t.clone())),
        // d(ab) = da b + a db.
        Op::Mul => return each(&|k, t| product(s, k, t)),
        // d max(a, b): that of the greater, the mean at a tie.
        Op::Max => {
            let (ta, tb) = (full(0)?, full(1)?);
            let half = u.full_like(0.5)?;
            let mean = ta.mul(&half)?.add(&tb.mul(&half)?)?;
            let greater = s[1].cmplt(&s[0])?.where_(&ta, &mean)?;
            s[0].cmplt(&s[1])?.where_(&tb, &greater)
        }
        // d(1/x) = -dx/x^2 = -dx u^2, with dx u first: it is 0 where u is, whatever u*u does.
        Op::Recip => only().mul(u)?.mul(u)?.neg(),
        // d(a/b) = da/b - db a/b^2 = da/b - (db u)/b.
        Op::Div => {
            return each(&|k, t| match k {
                0 => t.div(&s[1]),
                _ => t.mul(u)?.div(&s[1])?.neg(),
            });
        }
        // d(2^x) = dx u ln 2.
        Op::Exp2 => only().mul(u)?.mul(&u.full_like(LN_2)?),
        // d(ln(x) / ln 2) = dx/(x ln 2).
        Op::Log2 => only().div(&s[0])?.div(&u.full_like(LN_2)?),
        // d(e^x) = dx u.
        Op::Exp => only().mul(u),
        // u^2 = x: du = dx/(2u).
        Op::Sqrt => only().mul(&u.full_like(0.5)?)?.div(u),
        // The derivative of a sine is a quarter turn ahead of it.
        Op::Sin(turns) => only().mul(&s[0].sin_turned((turns + 1) % 4)?),
        // d(ab + c) = da b + a db + dc.
        Op::MulAcc => {
            return each(&|k, t| match k {
                2 => Ok(t.clone()),
                _ => product(s, k, t),
            });
        }
        // A float in another float type is itself up to rounding.
        Op::Cast(to) => only().cast(*to),
        // u copies from a or from b: what happens to the other does not count, NaN or not.
        Op::Where => s[0].where_(&full(1)?, &full(2)?),
        // Piecewise constant, or on integers and bools: the derivative is 0 where there is one.
        Op::Trunc
        | Op::Bitcast(_)
        | Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr
        | Op::ArgSort => return Ok(Terms::new()),

        Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Shrink(_) => same_op(),
        Op::Stack => UOp::stack(&(0..s.len()).map(full).collect::<Result<Vec<_>>>()?),
        // Rows are read from, or added to, the same places.
        Op::Index | Op::ScatterAdd(_) => same_op(),
        Op::Reduce { op, n, .. } => {
            let n = *n as usize;
            match op {
                // d sum(x) = sum(dx).
                ReduceOp::Add => only().reduce(ReduceOp::Add, n),
                // d max(x): the mean over all that are not less.
                ReduceOp::Max if s[0].shape().numel() == 0 => return Ok(Terms::new()),
                ReduceOp::Max => mean_of_largest(u, &s[0], only(), n),
                // d prod(x) = sum over k of dx_k times the product of the others.
                ReduceOp::Mul => {
                    let others = product_of_others(&u.full_like(1.0)?, &s[0], n)?;
                    others.mul(only())?.reduce(ReduceOp::Add, n)
                }
            }
        }
        Op::Scan(op) => push_scan(*op, u, only()),
        Op::Custom(custom) => push(u, custom, t),

        // The identity; `carries` has stopped what is detached.
        Op::Stage(
            StageKind::Materialise
            | StageKind::Remat
            | StageKind::RematInput
            | StageKind::Within
            | StageKind::Detach,
        ) => Ok(only().clone()),

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
    };
    Ok(smallvec![term?])
}

/// A product of the first two of `s` with the tangent `t` in place of factor k.
fn product(s: &[UOp], k: usize, t: &UOp) -> Result<UOp> {
    match k {
        0 => t.mul(&s[1]),
        _ => s[0].mul(t),
    }
}

/// The mean of the tangents of those elements of x that are not less than u, its maximum over the
/// last n axes. Taken in f32 at least; ties are counted in i32, as the transpose counts them.
fn mean_of_largest(u: &UOp, x: &UOp, t: &UOp, n: usize) -> Result<UOp> {
    let mut dims = u.shape().to_vec();
    dims.resize(x.shape().rank(), 1);
    let less = x.cmplt(&u.reshape(&dims)?.expand(x.shape())?)?;
    let ties = less
        .logical_not()?
        .cast(DType::I32)?
        .reduce(ReduceOp::Add, n)?;
    let t = t.cast(t.dtype().accumulator())?;
    let sum = less
        .where_(&zeros_like(&t)?, &t)?
        .reduce(ReduceOp::Add, n)?;
    sum.div(&ties.cast(sum.dtype())?)?.cast(u.dtype())
}
