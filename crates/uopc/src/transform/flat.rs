//! The transformations of functions from lists of tensors to lists of tensors.

use super::trace::{Function, Trace, called, check_like, gradient_error, result, shape_error};
use crate::autodiff;
use crate::error::Result;
use crate::ir::op::StageKind;
use crate::ir::{Shape, UOp};
use crate::tensor::Tensor;

pub use super::jacobian::{hessian, hessian_with_aux, hvp, jacobian, jacobian_with_aux};

/// The results at `primals` and the pullback from cotangents of the results to cotangents of the
/// arguments `wrt`.
///
/// # Errors
/// Those of the function, and when an argument `wrt` is no float.
pub fn vjp(f: &Function, primals: &[Tensor], wrt: &[usize]) -> Result<(Vec<Tensor>, Pullback)> {
    let trace = Trace::new(f, primals)?;
    for &k in wrt {
        trace.leaf(k)?;
    }
    let values = trace.values()?;
    let wrt = wrt.to_vec();
    Ok((values, Pullback { trace, wrt }))
}

/// From cotangents of a function's results to those of its arguments, see [`vjp`].
pub struct Pullback {
    trace: Trace,
    wrt: Vec<usize>,
}

impl Pullback {
    /// A cotangent for each argument that was asked for, given one for each result. Those of
    /// integer results are not read.
    ///
    /// # Errors
    /// When a shape or dtype differs from the result's, and when an op has no derivative.
    pub fn call(&self, cotangents: &[Tensor]) -> Result<Vec<Tensor>> {
        check_like("vjp", "cotangent", cotangents, &self.trace.outputs)?;
        self.call_first(cotangents)
    }

    /// [`call`](Self::call) with cotangents for the first results only; the others, which a
    /// function may return besides, have none.
    ///
    /// # Errors
    /// As [`call`](Self::call), and when there are more cotangents than results.
    pub fn call_first(&self, cotangents: &[Tensor]) -> Result<Vec<Tensor>> {
        let n = cotangents.len().min(self.trace.outputs.len());
        check_like("vjp", "cotangent", cotangents, &self.trace.outputs[..n])?;
        let cotangents: Vec<Option<UOp>> = cotangents.iter().map(|g| Some(g.uop())).collect();
        let pulled = self.trace.pull_back(0, &cotangents, &self.wrt)?;
        self.trace.finish(pulled)
    }
}

/// The first result, a scalar, its gradients with respect to the arguments `wrt`, and the other
/// results.
///
/// # Errors
/// Those of the function; when there is no result, or the first is no scalar of floats; when an
/// argument `wrt` is no float; and when an op on the way has no derivative.
pub fn value_and_grad(
    f: &Function,
    args: &[Tensor],
    wrt: &[usize],
) -> Result<(Tensor, Vec<Tensor>, Vec<Tensor>)> {
    let mut trace = Trace::new(f, args)?;
    if trace.outputs.is_empty() {
        return Err(gradient_error(
            "the function returns nothing; return a scalar of floats".into(),
        ));
    }
    let aux = trace.outputs.split_off(1);
    let y = &trace.outputs[0];
    if y.rank() != 0 || !y.dtype().is_float() {
        return Err(gradient_error(format!(
            "a function is needed that returns a scalar of floats, not {} of shape {}; take its sum \
             or mean, or use jacobian or vjp",
            y.dtype(),
            y.shape()
        )));
    }
    let mut nodes = trace.pull_back(0, &[None], wrt)?;
    nodes.push(y.uop());
    nodes.extend(aux.iter().map(Tensor::uop));
    let mut gradients = trace.finish(nodes)?;
    let mut rest = gradients.split_off(wrt.len());
    let aux = rest.split_off(1);
    let value = rest.pop().expect("pushed above");
    gradients.iter().for_each(Tensor::mark_gradient);
    Ok((value, gradients, aux))
}

/// The results and their tangents, when the arguments have these tangents.
///
/// # Errors
/// Those of the function; when a tangent's shape or dtype differs from its argument's; and when an
/// op on the way has no rule.
pub fn jvp(
    f: &Function,
    primals: &[Tensor],
    tangents: &[Tensor],
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    check_like("jvp", "tangent", tangents, primals)?;
    let trace = Trace::new(f, primals)?;
    let floats: Vec<usize> = floats(primals);
    let tangents: Vec<UOp> = floats.iter().map(|&k| tangents[k].uop()).collect();
    let mut nodes: Vec<UOp> = trace.outputs.iter().map(Tensor::uop).collect();
    nodes.extend(trace.push_forward(&floats, &tangents)?);
    let mut values = trace.finish(nodes)?;
    let pushed = values.split_off(trace.outputs.len());
    Ok((values, pushed))
}

/// The results, with marks around the part of the graph that computes them: its values are not kept
/// for gradients, but computed again from the arguments.
///
/// # Errors
/// Those of the function.
pub fn checkpoint(f: &Function, args: &[Tensor]) -> Result<Vec<Tensor>> {
    checkpoint_results(&f(&checkpoint_arguments(args)?)?)
}

/// Marks for the arguments of a part that [`checkpoint_results`] ends.
///
/// # Errors
/// None for well-formed tensors.
pub fn checkpoint_arguments(args: &[Tensor]) -> Result<Vec<Tensor>> {
    let marked = args.iter().map(|t| t.marked(StageKind::RematInput));
    marked.collect()
}

/// Marks for the results of a part that begins at [`checkpoint_arguments`].
///
/// # Errors
/// None for well-formed tensors.
pub fn checkpoint_results(results: &[Tensor]) -> Result<Vec<Tensor>> {
    let marked = results.iter().map(|t| t.marked(StageKind::Remat));
    marked.collect()
}

/// The positions of the floats.
pub fn floats(args: &[Tensor]) -> Vec<usize> {
    (0..args.len())
        .filter(|&k| args[k].dtype().is_float())
        .collect()
}

/// The function applied to each slice of the arguments along their mapped axes, at once.
///
/// `in_axes` says for each argument which axis is mapped, or `None` for one that all slices share;
/// `out_axes` where the results have the new axis, or `None` for those that are the same for all.
/// Negative axes count from the end. It is called with the number of results.
///
/// # Errors
/// Those of the function; when there is nothing to map, an axis does not exist, or extents differ;
/// when a result that differs between slices is to have no axis; and when an op can't be mapped.
pub fn vmap(
    f: &Function,
    args: &[Tensor],
    in_axes: &[Option<isize>],
    out_axes: &dyn Fn(usize) -> Result<Vec<Option<isize>>>,
) -> Result<Vec<Tensor>> {
    if in_axes.len() != args.len() {
        let (n, m) = (in_axes.len(), args.len());
        return Err(shape_error(
            "vmap",
            format!("{n} in_axes for {m} tensors; give one for each, None for what is shared"),
        ));
    }
    let mut size: Option<(usize, usize)> = None;
    let mut arguments = Vec::with_capacity(args.len());
    let mut mapped = Vec::new();
    for (k, (x, axis)) in args.iter().zip(in_axes).enumerate() {
        let Some(axis) = *axis else {
            arguments.push(x.clone());
            continue;
        };
        let axis = resolve(axis, x.rank(), || {
            format!("in_axes {axis} for argument {k} of shape {}", x.shape())
        })?;
        let n = x.shape()[axis];
        match size {
            Some((first, m)) if m != n => {
                return Err(shape_error(
                    "vmap",
                    format!(
                        "argument {first} is mapped over {m} slices and argument {k}, of shape {}, \
                         over {n}; all need the same number",
                        x.shape()
                    ),
                ));
            }
            Some(_) => {}
            None => size = Some((k, n)),
        }
        let batched = moved(&x.uop(), axis, 0)?;
        let slice = Shape::new(&batched.shape()[1..]);
        let (argument, leaf) = Tensor::unknown_argument(x.dtype(), &slice)?;
        mapped.push((leaf, batched.reshape(&[n, slice.numel()])?));
        arguments.push(argument);
    }
    let Some((_, n)) = size else {
        return Err(shape_error(
            "vmap",
            "no argument is mapped; give at least one an axis in in_axes".into(),
        ));
    };
    let outputs = called(f, &arguments)?;
    let axes = out_axes(outputs.len())?;
    if axes.len() != outputs.len() {
        let (given, results) = (axes.len(), outputs.len());
        return Err(shape_error(
            "vmap",
            format!("{given} out_axes for {results} results; give one for each"),
        ));
    }
    let roots: Vec<UOp> = outputs.iter().map(Tensor::uop).collect();
    let batched = autodiff::vmap(&roots, &mapped)?;
    let results = batched.into_iter().zip(axes).enumerate();
    let one = |(k, (y, axis)): (usize, (autodiff::Batched, Option<isize>))| {
        let Some(axis) = axis else {
            return match y.batched {
                false => result(y.node),
                true => Err(shape_error(
                    "vmap",
                    format!("result {k} differs between slices, so its out_axes can't be None"),
                )),
            };
        };
        let node = y.repeated(n)?;
        let rank = node.shape().rank();
        let to = resolve(axis, rank, || {
            format!("out_axes {axis} for result {k} of shape {}", node.shape())
        })?;
        result(moved(&node, 0, to)?)
    };
    results.map(one).collect()
}

/// A node with one of its axes at another place.
pub(super) fn moved(u: &UOp, from: usize, to: usize) -> Result<UOp> {
    let mut order: Vec<usize> = (0..u.shape().rank()).filter(|&k| k != from).collect();
    order.insert(to, from);
    u.permute(&order)
}

/// An axis counted from the front.
fn resolve(axis: isize, rank: usize, what: impl Fn() -> String) -> Result<usize> {
    let from_front = if axis < 0 { axis + rank as isize } else { axis };
    match usize::try_from(from_front).ok().filter(|&k| k < rank) {
        Some(axis) => Ok(axis),
        None => Err(shape_error(
            "vmap",
            format!("{}: there is no such axis", what()),
        )),
    }
}
