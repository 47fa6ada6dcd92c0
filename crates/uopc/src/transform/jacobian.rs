//! Whole Jacobians: a basis of tangents or of cotangents pushed through at once.

use super::flat::floats;
use super::trace::{Function, Trace};
use crate::autodiff::{carries, vmap};
use crate::error::Result;
use crate::ir::composite::zeros_like;
use crate::ir::op::{Class, Op};
use crate::ir::visit::Graph;
use crate::ir::{DType, UOp};
use crate::tensor::Tensor;

/// How a Jacobian is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// A tangent for each element of the argument.
    Forward,
    /// A cotangent for each element of the result.
    Reverse,
    /// What takes least: one tangent where each element of the result depends on one element of
    /// the argument, in the same order; else forward or reverse, whichever has fewer.
    Best,
}

/// For each result and each argument `wrt` the derivatives, of the result's shape followed by the
/// argument's.
///
/// # Errors
/// Those of the function; when a result or an argument `wrt` is no float; and when an op on the way
/// has no rule.
pub fn jacobian(
    f: &Function,
    args: &[Tensor],
    wrt: &[usize],
    mode: Mode,
) -> Result<Vec<Vec<Tensor>>> {
    Ok(jacobian_with_aux(f, args, wrt, mode, &Ok)?.0)
}

/// [`jacobian`] of the first results, and the other results as they are. `differentiated` says how
/// many the first ones are; it is called after the function, with the number of all results.
///
/// # Errors
/// As [`jacobian`], and when `differentiated` fails or names more results than there are.
pub fn jacobian_with_aux(
    f: &Function,
    args: &[Tensor],
    wrt: &[usize],
    mode: Mode,
    differentiated: &dyn Fn(usize) -> Result<usize>,
) -> Result<(Vec<Vec<Tensor>>, Vec<Tensor>)> {
    let mut trace = Trace::new(f, args)?;
    let (all, first) = (trace.outputs.len(), differentiated(trace.outputs.len())?);
    if first > all {
        let message = format!("{first} of {all} results are to be differentiated");
        return Err(super::trace::shape_error("jacobian", message));
    }
    let aux = trace.outputs.split_off(first);
    for (which, y) in trace.outputs.iter().enumerate() {
        if !y.dtype().is_float() {
            return Err(super::trace::gradient_error(format!(
                "result {which}, {} of shape {}, is no float and has no Jacobian",
                y.dtype(),
                y.shape()
            )));
        }
    }
    let mut rows = Vec::with_capacity(trace.outputs.len());
    for which in 0..trace.outputs.len() {
        let blocks: Result<Vec<UOp>> = wrt.iter().map(|&k| block(&trace, which, k, mode)).collect();
        rows.push(trace.finish(blocks?)?);
    }
    let aux = trace.finish(aux.iter().map(Tensor::uop).collect())?;
    Ok((rows, aux))
}

/// The derivatives of one result by one argument.
fn block(trace: &Trace, which: usize, k: usize, mode: Mode) -> Result<UOp> {
    let y = trace.outputs[which].uop();
    let leaf = trace.leaf(k)?;
    let x = &trace.primals[k];
    let (n, m) = (x.numel(), y.shape().numel());
    let shape: Vec<usize> = y.shape().iter().chain(x.shape().iter()).copied().collect();
    if mode == Mode::Best && is_diagonal(&y, leaf) {
        let slopes = crate::autodiff::jvp(&y, &[leaf.clone()], &[leaf.full_like(1.0)?])?;
        let slopes = slopes.reshape(&[n, 1])?.expand(&[n, n])?;
        return is_same(n)?
            .where_(&slopes, &zeros_like(&slopes)?)?
            .reshape(&shape);
    }
    let forward = match mode {
        Mode::Forward => true,
        Mode::Reverse => false,
        Mode::Best => n <= m,
    };
    if forward {
        let (tangent, direction) = Tensor::unknown_argument(leaf.dtype(), leaf.shape())?;
        let pushed = crate::autodiff::jvp(&y, &[leaf.clone()], &[tangent.uop()])?;
        let columns = mapped(&pushed, &direction, &identity(n, leaf.dtype())?)?;
        let columns = columns.reshape(&[n, m])?.permute(&[1, 0])?;
        columns.reshape(&shape)
    } else {
        let (cotangent, direction) = Tensor::unknown_argument(y.dtype(), y.shape())?;
        let pulled = trace
            .pull_back(which, &[Some(cotangent.uop())], &[k])?
            .swap_remove(0);
        let rows = mapped(&pulled, &direction, &identity(m, y.dtype())?)?;
        rows.reshape(&shape)
    }
}

/// A graph over a leaf, for each row that the leaf may hold.
fn mapped(u: &UOp, leaf: &UOp, rows: &UOp) -> Result<UOp> {
    let mut results = vmap(std::slice::from_ref(u), &[(leaf.clone(), rows.clone())])?;
    let result = results.pop().expect("one root");
    result.repeated(rows.shape()[0])
}

/// Whether row i is column j, of shape (n, n).
fn is_same(n: usize) -> Result<UOp> {
    let count = UOp::iota(n, DType::I64)?;
    let rows = count.reshape(&[n, 1])?.expand(&[n, n])?;
    let columns = count.reshape(&[1, n])?.expand(&[n, n])?;
    rows.cmpne(&columns)?.logical_not()
}

fn identity(n: usize, dtype: DType) -> Result<UOp> {
    is_same(n)?.cast(dtype)
}

/// True if element i of the root depends on element i of the leaf and on no other, as far as the
/// graph shows: all ops between are elementwise or keep the order.
fn is_diagonal(root: &UOp, leaf: &UOp) -> bool {
    let graph = Graph::new(std::slice::from_ref(root));
    let Some(at) = graph.position(leaf) else {
        return false;
    };
    let n = leaf.shape().numel();
    let mut on_path = vec![false; graph.len()];
    on_path[at] = true;
    for (i, u) in graph.nodes.iter().enumerate() {
        let reached = |(k, &s): (usize, &u32)| on_path[s as usize] && carries(u, k);
        if i == at || !graph.src(i).iter().enumerate().any(reached) {
            continue;
        }
        on_path[i] = true;
        let keeps_order = matches!(u.op().info().class, Class::Arithmetic | Class::Marker)
            || matches!(u.op(), Op::Reshape(_));
        if !keeps_order || u.shape().numel() != n {
            return false;
        }
    }
    on_path[graph.roots[0] as usize]
}

/// The derivatives of the derivatives of a scalar: for each pair of arguments `wrt` a block of the
/// first one's shape followed by the second one's. Forward over reverse.
///
/// # Errors
/// As [`jacobian`], and when the function does not return one scalar.
pub fn hessian(f: &Function, args: &[Tensor], wrt: &[usize]) -> Result<Vec<Vec<Tensor>>> {
    Ok(hessian_with_aux(f, args, wrt)?.0)
}

/// [`hessian`] of the first result, and the other results as they are.
///
/// # Errors
/// As [`jacobian`], and when the first result is no scalar.
pub fn hessian_with_aux(
    f: &Function,
    args: &[Tensor],
    wrt: &[usize],
) -> Result<(Vec<Vec<Tensor>>, Vec<Tensor>)> {
    let gradients = |args: &[Tensor]| {
        let (_, mut gradients, aux) = super::flat::value_and_grad(f, args, wrt)?;
        gradients.extend(aux);
        Ok(gradients)
    };
    jacobian_with_aux(&gradients, args, wrt, Mode::Best, &|_| Ok(wrt.len()))
}

/// The gradients of a scalar, and their tangents when the arguments have these tangents: the
/// product of the Hessian with a vector, at about twice the cost of a gradient.
///
/// # Errors
/// As [`super::flat::jvp`], and when the function does not return one scalar.
pub fn hvp(
    f: &Function,
    primals: &[Tensor],
    tangents: &[Tensor],
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let wrt = floats(primals);
    let gradients = |args: &[Tensor]| Ok(super::flat::value_and_grad(f, args, &wrt)?.1);
    super::flat::jvp(&gradients, primals, tangents)
}
