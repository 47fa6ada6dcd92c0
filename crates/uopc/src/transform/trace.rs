//! What a function does, as a graph: it is called once, with arguments that have an identity.

use rustc_hash::FxHashMap;

use crate::autodiff::{is_strict, jvp_all, pullback};
use crate::error::{Error, Result};
use crate::ir::UOp;
use crate::ir::site::Site;
use crate::ir::visit::substitute;
use crate::tensor::{Tensor, grads_on, with_grads};

/// A function from tensors to tensors. All transformations rest on those of such functions.
pub type Function<'f> = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'f;

/// A function's results as graphs over its arguments.
pub(super) struct Trace {
    /// For each argument its leaf, of one axis. Integers and bools have none: they are themselves.
    pub leaves: Vec<Option<UOp>>,
    /// What was given for each argument.
    pub primals: Vec<Tensor>,
    /// Their graphs at the time of the call: a pullback may be called after an update of a primal,
    /// and belongs to the value from before.
    given: Vec<UOp>,
    /// The results.
    pub outputs: Vec<Tensor>,
}

impl Trace {
    /// Calls the function.
    ///
    /// # Errors
    /// Those of the function.
    pub fn new(f: &Function, primals: &[Tensor]) -> Result<Trace> {
        let mut arguments = Vec::with_capacity(primals.len());
        let mut leaves = Vec::with_capacity(primals.len());
        let given = primals.iter().map(Tensor::uop).collect();
        for x in primals {
            if x.dtype().is_float() {
                let (argument, leaf) = x.argument()?;
                arguments.push(argument);
                leaves.push(Some(leaf));
            } else {
                arguments.push(x.clone());
                leaves.push(None);
            }
        }
        let outputs = called(f, &arguments)?;
        Ok(Trace {
            leaves,
            primals: primals.to_vec(),
            given,
            outputs,
        })
    }

    /// The leaf of an argument that is differentiated.
    ///
    /// # Errors
    /// When there is no such argument, or it is no float.
    pub fn leaf(&self, which: usize) -> Result<&UOp> {
        let Some(leaf) = self.leaves.get(which) else {
            let n = self.leaves.len();
            return Err(gradient_error(format!(
                "there is no argument {which} to differentiate by; the function has {n}, from 0"
            )));
        };
        leaf.as_ref().ok_or_else(|| {
            let x = &self.primals[which];
            gradient_error(format!(
                "argument {which}, {} of shape {}, is no float; only floats have derivatives, so \
                 cast it to f32, or leave it out by argnums",
                x.dtype(),
                x.shape()
            ))
        })
    }

    /// Nodes over the arguments' leaves as tensors over what was given.
    pub fn finish(&self, nodes: Vec<UOp>) -> Result<Vec<Tensor>> {
        let mut values = FxHashMap::default();
        for (leaf, x) in self.leaves.iter().zip(&self.given) {
            if let Some(leaf) = leaf {
                values.insert(leaf.clone(), x.reshape(&[x.shape().numel()])?);
            }
        }
        let nodes = substitute(&nodes, &values)?;
        nodes.into_iter().map(result).collect()
    }

    /// The results.
    pub fn values(&self) -> Result<Vec<Tensor>> {
        self.finish(self.outputs.iter().map(Tensor::uop).collect())
    }

    /// For each of these arguments the cotangent that those of the results from `first` on give, in
    /// the argument's shape, over the arguments' leaves. `None` stands for ones.
    ///
    /// An argument that is cut off from all results gets zeros and a warning, in strict mode an
    /// error.
    pub fn pull_back(
        &self,
        first: usize,
        cotangents: &[Option<UOp>],
        wrt: &[usize],
    ) -> Result<Vec<UOp>> {
        let leaves: Result<Vec<UOp>> = wrt.iter().map(|&k| self.leaf(k).cloned()).collect();
        let outputs = self.outputs[first..].iter().map(Tensor::uop);
        let seeds: Vec<(UOp, Option<UOp>)> = outputs
            .zip(cotangents)
            .filter(|(y, _)| y.dtype().is_float())
            .map(|(y, g)| (y, g.clone()))
            .collect();
        let (gradients, cuts) = pullback(&seeds, &leaves?, false)?;
        for cut in &cuts {
            let k = wrt[cut.target];
            let (dtype, shape) = (self.primals[k].dtype(), self.primals[k].shape());
            let message = format!("argument {k}, {dtype} {shape}, {}", cut.cause);
            let error = Error::Gradient {
                message,
                site: cut.site,
            };
            if is_strict() {
                return Err(error);
            }
            log::warn!(target: "uopc::gradient", "{error}");
        }
        let shaped = wrt.iter().zip(gradients);
        shaped
            .map(|(&k, g)| g.reshape(self.primals[k].shape()))
            .collect()
    }

    /// The tangents of the results when these arguments have these tangents, over the leaves.
    /// Those of integers and bools are zeros.
    pub fn push_forward(&self, wrt: &[usize], tangents: &[UOp]) -> Result<Vec<UOp>> {
        let mut targets = Vec::with_capacity(wrt.len());
        let mut flat = Vec::with_capacity(wrt.len());
        for (&k, t) in wrt.iter().zip(tangents) {
            targets.push(self.leaf(k)?.clone());
            flat.push(t.reshape(&[self.primals[k].numel()])?);
        }
        let roots: Vec<UOp> = self.outputs.iter().map(Tensor::uop).collect();
        let floats: Vec<UOp> = roots
            .iter()
            .filter(|y| y.dtype().is_float())
            .cloned()
            .collect();
        let mut pushed = jvp_all(&floats, &targets, &flat)?.into_iter();
        let tangent = |y: &UOp| match y.dtype().is_float() {
            true => Ok(pushed.next().expect("one for each float")),
            false => crate::ir::composite::zeros_like(y),
        };
        roots.iter().map(tangent).collect()
    }
}

/// Calls a function whose history is needed, also where the caller keeps none.
pub(super) fn called(f: &Function, arguments: &[Tensor]) -> Result<Vec<Tensor>> {
    let _on = with_grads();
    f(arguments)
}

/// A tensor for the caller, who may keep no history.
pub(super) fn result(node: UOp) -> Result<Tensor> {
    let tensor = Tensor::from_uop(node);
    match tensor.needs_grad() && !grads_on() {
        true => tensor.detach(),
        false => Ok(tensor),
    }
}

/// The error for what can't be transformed.
pub(super) fn gradient_error(message: String) -> Error {
    let site = Site::current();
    Error::Gradient { message, site }
}

/// The error for arguments and axes that do not fit.
pub(super) fn shape_error(op: &'static str, message: String) -> Error {
    let site = Site::current();
    Error::Shape { op, message, site }
}

/// Refuses a value or a tangent that differs in shape or dtype from what it belongs to.
pub(super) fn check_like(
    op: &'static str,
    what: &str,
    given: &[Tensor],
    like: &[Tensor],
) -> Result<()> {
    if given.len() != like.len() {
        let (n, m) = (given.len(), like.len());
        return Err(shape_error(
            op,
            format!("{n} {what}s for {m} tensors; give one for each"),
        ));
    }
    for (k, (t, x)) in given.iter().zip(like).enumerate() {
        if t.shape() != x.shape() {
            let (has, wanted) = (t.shape(), x.shape());
            return Err(shape_error(
                op,
                format!("{what} {k} has shape {has}, not {wanted}"),
            ));
        }
        if x.dtype().is_float() && t.dtype() != x.dtype() {
            return Err(Error::DType {
                op,
                message: format!("{what} {k} is {}, not {}; cast it", t.dtype(), x.dtype()),
                site: Site::current(),
            });
        }
    }
    Ok(())
}
