//! Functions with derivatives of the user's own, and what is made of them: straight-through
//! estimators, hooks on gradients.

use std::sync::Arc;

use super::Tree;
use super::linear::is_surely_nonzero;
use super::trace::{check_like, gradient_error, shape_error};
use crate::autodiff::gradient;
use crate::error::Result;
use crate::ir::custom::{Custom, Rules};
use crate::ir::op::{Op, ReduceOp};
use crate::ir::site::Site;
use crate::ir::uop::Sources;
use crate::ir::visit::toposort;
use crate::ir::{DType, UOp};
use crate::tensor::{Generator, Tensor, is_argument};

type Body<'f> = Box<dyn Fn(&[Tensor]) -> Result<Tensor> + 'f>;
type Vjp<'f> = Box<dyn Fn(&[Tensor], &Tensor, &Tensor) -> Result<Vec<Option<Tensor>>> + 'f>;
type Jvp<'f> = Box<dyn Fn(&[Tensor], &Tensor, &[Tensor]) -> Result<Tensor> + 'f>;

/// A function of tensors to a tensor whose derivatives are given, not derived.
///
/// One rule is enough: each follows from the other by transposing it, as both are linear in what
/// comes from outside. A rule is a function of tensors like any other, so it can be differentiated
/// itself; it must not close over arguments of a function that is being transformed, but gets as
/// inputs what it depends on. Values are those of the body, at no cost at run time.
///
/// ```
/// use uopc::{Tensor, grad, transform::CustomFunction};
///
/// // log(1 + e^x), whose derivative is written so that nothing overflows.
/// let log1pexp = CustomFunction::new("log1pexp", |x| (x[0].exp()? + 1.0).log())
///     .vjp(|x, _y, g| Ok(vec![Some(g.mul(&x[0].neg()?.exp()?.add(1.0)?.reciprocal()?)?)]));
/// let f = |x: &Tensor| log1pexp.call(&[x])?.sum(..);
/// let x = Tensor::from([0.0f32, 100.0]);
/// assert_eq!(grad(f)(&x)?.to_vec::<f32>()?, [0.5, 1.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
pub struct CustomFunction<'f> {
    name: Arc<str>,
    body: Body<'f>,
    vjp: Option<Vjp<'f>>,
    jvp: Option<Jvp<'f>>,
}

impl<'f> CustomFunction<'f> {
    /// A function without rules yet. The name is shown in text and errors.
    pub fn new(
        name: impl Into<Arc<str>>,
        body: impl Fn(&[Tensor]) -> Result<Tensor> + 'f,
    ) -> CustomFunction<'f> {
        CustomFunction {
            name: name.into(),
            body: Box::new(body),
            vjp: None,
            jvp: None,
        }
    }

    /// Sets the reverse rule: from the inputs, the output and its cotangent to a cotangent for each
    /// input, or `None` for zero.
    pub fn vjp(
        mut self,
        rule: impl Fn(&[Tensor], &Tensor, &Tensor) -> Result<Vec<Option<Tensor>>> + 'f,
    ) -> CustomFunction<'f> {
        self.vjp = Some(Box::new(rule));
        self
    }

    /// Sets the forward rule: from the inputs, the output and the inputs' tangents to the output's
    /// tangent.
    pub fn jvp(
        mut self,
        rule: impl Fn(&[Tensor], &Tensor, &[Tensor]) -> Result<Tensor> + 'f,
    ) -> CustomFunction<'f> {
        self.jvp = Some(Box::new(rule));
        self
    }

    /// The function at these inputs.
    ///
    /// # Errors
    /// Those of the body and the rules; when there is no rule; when the output is no float; when a
    /// rule gives another number, shape or dtype than it should, or reads an argument of a function
    /// that is being transformed.
    #[track_caller]
    pub fn call<T: std::borrow::Borrow<Tensor>>(&self, inputs: &[T]) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let inputs: Vec<Tensor> = inputs.iter().map(|x| x.borrow().clone()).collect();
        let body = (self.body)(&inputs)?;
        if !body.dtype().is_float() {
            return Err(self.refuse(format!(
                "returns {}; only floats have derivatives",
                body.dtype()
            )));
        }
        let rules = self.rules(&inputs, &body)?;
        let mut src = Sources::new();
        src.push(body.uop());
        src.extend(inputs.iter().map(Tensor::uop));
        let name = self.name.clone();
        let rules = Some(Arc::new(rules));
        let op = Op::Custom(Arc::new(Custom { name, rules }));
        let needs_grad = inputs.iter().any(Tensor::needs_grad);
        Ok(Tensor::derived(UOp::new(op, src)?, needs_grad))
    }

    /// Compares the two rules with each other at these inputs, in a random direction: the sum of
    /// cotangent times tangent must be the same on both sides. Returns both sums, in f64.
    ///
    /// # Errors
    /// As [`call`](Self::call); when one of the rules is missing; when the sums differ by more than
    /// `tolerance`, relative to the magnitude of the terms.
    #[track_caller]
    pub fn check<T: std::borrow::Borrow<Tensor>>(
        &self,
        inputs: &[T],
        tolerance: f64,
    ) -> Result<(f64, f64)> {
        let _site = Site::caller().enter();
        let inputs: Vec<Tensor> = inputs.iter().map(|x| x.borrow().clone()).collect();
        let (Some(vjp), Some(jvp)) = (&self.vjp, &self.jvp) else {
            return Err(self.refuse("needs both rules, vjp and jvp, to compare them".into()));
        };
        let y = (self.body)(&inputs)?;
        let mut generator = Generator::new(0);
        let mut draw = |like: &Tensor| -> Result<Tensor> {
            let mut number = |_| generator.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0;
            let numbers: Vec<f64> = (0..like.numel()).map(&mut number).collect();
            Tensor::from_slice(&numbers, like.shape())?.cast(like.dtype())
        };
        let tangents = inputs
            .iter()
            .map(&mut draw)
            .collect::<Result<Vec<Tensor>>>()?;
        let g = draw(&y)?;
        let pushed = jvp(&inputs, &y, &tangents)?;
        check_like("custom", "tangent", &[pushed.clone()], &[y.clone()])?;
        let pulled = vjp(&inputs, &y, &g)?;
        self.check_pulled(&pulled, &inputs)?;
        let dot = |a: &Tensor, b: &Tensor| -> Result<(f64, f64)> {
            let product = a.cast(DType::F64)?.mul(&b.cast(DType::F64)?)?;
            Ok((product.sum(..)?.item()?, product.abs()?.sum(..)?.item()?))
        };
        let (forward, mut size) = dot(&pushed, &g)?;
        let mut reverse = 0.0;
        for (x, t) in pulled.iter().zip(&tangents) {
            if let Some(x) = x.as_ref().filter(|x| x.dtype().is_float()) {
                let (sum, terms) = dot(x, t)?;
                reverse += sum;
                size += terms;
            }
        }
        if (forward - reverse).abs() <= tolerance * size {
            return Ok((forward, reverse));
        }
        Err(self.refuse(format!(
            "has rules that contradict each other: in a random direction jvp gives {forward} and \
             vjp {reverse}"
        )))
    }

    fn refuse(&self, what: String) -> crate::error::Error {
        gradient_error(format!("the custom function {} {what}", self.name))
    }

    /// The rules as graphs over leaves.
    fn rules(&self, inputs: &[Tensor], body: &Tensor) -> Result<Rules> {
        let argument = |x: &Tensor| Tensor::unknown_argument(x.dtype(), x.shape());
        let each = || inputs.iter().map(argument).collect::<Result<Vec<_>>>();
        let (xs, x_leaves): (Vec<Tensor>, Vec<UOp>) = each()?.into_iter().unzip();
        let (ts, t_leaves): (Vec<Tensor>, Vec<UOp>) = each()?.into_iter().unzip();
        let (y, y_leaf) = argument(body)?;
        let (g, g_leaf) = argument(body)?;
        let floats: Vec<usize> = super::flat::floats(inputs);

        let pulled = match &self.vjp {
            Some(rule) => {
                let pulled = rule(&xs, &y, &g)?;
                self.check_pulled(&pulled, inputs)?;
                let node = |x: &Option<Tensor>| x.as_ref().map(Tensor::uop);
                Some(pulled.iter().map(node).collect::<Vec<_>>())
            }
            None => None,
        };
        let pushed = match &self.jvp {
            Some(rule) => {
                let pushed = rule(&xs, &y, &ts)?;
                check_like("custom", "tangent", &[pushed.clone()], &[body.clone()])?;
                Some(pushed.uop())
            }
            None => None,
        };
        let (pulled, pushed) = match (pulled, pushed) {
            (Some(pulled), Some(pushed)) => (pulled, pushed),
            (Some(pulled), None) => {
                let pushed = self.transposed_vjp(&pulled, &floats, &t_leaves, &g_leaf)?;
                (pulled, pushed.reshape(body.shape())?)
            }
            (None, Some(pushed)) => {
                let pulled = self.transposed_jvp(&pushed, &floats, &t_leaves, &g_leaf)?;
                (pulled, pushed)
            }
            (None, None) => {
                let what = "has no rule; give it a vjp or a jvp, or call the body itself";
                return Err(self.refuse(what.into()));
            }
        };

        let own: Vec<&UOp> = x_leaves
            .iter()
            .chain([&y_leaf, &g_leaf])
            .chain(&t_leaves)
            .collect();
        let mut roots: Vec<UOp> = pulled.iter().flatten().cloned().collect();
        roots.push(pushed.clone());
        if toposort(&roots)
            .iter()
            .any(|u| is_argument(u) && !own.contains(&u))
        {
            let what = "has a rule that reads an argument of a function which is being transformed; \
                        make it an input of the custom function";
            return Err(self.refuse(what.into()));
        }
        Ok(Rules::new(
            x_leaves, y_leaf, g_leaf, t_leaves, pulled, pushed,
        ))
    }

    fn check_pulled(&self, pulled: &[Option<Tensor>], inputs: &[Tensor]) -> Result<()> {
        if pulled.len() != inputs.len() {
            let (n, m) = (pulled.len(), inputs.len());
            let message = format!(
                "the vjp of {} gives {n} cotangents for {m} inputs; give one for each, None for zero",
                self.name
            );
            return Err(shape_error("custom", message));
        }
        for (x, input) in pulled.iter().zip(inputs) {
            if let Some(x) = x.as_ref().filter(|_| input.dtype().is_float()) {
                check_like("custom", "cotangent", &[x.clone()], &[input.clone()])?;
            }
        }
        Ok(())
    }

    /// The tangent that follows from the cotangents: with L(g) the sum of cotangent times tangent,
    /// which is linear in g, it is dL/dg.
    fn transposed_vjp(
        &self,
        pulled: &[Option<UOp>],
        floats: &[usize],
        tangents: &[UOp],
        g: &UOp,
    ) -> Result<UOp> {
        let mut sum: Option<UOp> = None;
        for &k in floats {
            let Some(x) = &pulled[k] else {
                continue;
            };
            let part = x.reshape(tangents[k].shape())?.mul(&tangents[k])?;
            let part = part.reduce(ReduceOp::Add, 1)?.cast(g.dtype())?;
            sum = Some(match sum {
                Some(before) => before.add(&part)?,
                None => part,
            });
        }
        let Some(sum) = sum else {
            return crate::ir::composite::zeros_like(g);
        };
        let pushed = gradient(&sum, std::slice::from_ref(g))?.swap_remove(0);
        let rules: Vec<UOp> = pulled.iter().flatten().cloned().collect();
        self.check_linear(&rules, &pushed, std::slice::from_ref(g), "vjp", "jvp")?;
        Ok(pushed)
    }

    /// The cotangents that follow from the tangent, likewise.
    fn transposed_jvp(
        &self,
        pushed: &UOp,
        floats: &[usize],
        tangents: &[UOp],
        g: &UOp,
    ) -> Result<Vec<Option<UOp>>> {
        let sum = pushed
            .reshape(g.shape())?
            .mul(g)?
            .reduce(ReduceOp::Add, 1)?;
        let wrt: Vec<UOp> = floats.iter().map(|&k| tangents[k].clone()).collect();
        let mut pulled = vec![None; tangents.len()];
        for (&k, x) in floats.iter().zip(gradient(&sum, &wrt)?) {
            self.check_linear(std::slice::from_ref(pushed), &x, tangents, "jvp", "vjp")?;
            pulled[k] = Some(x);
        }
        Ok(pulled)
    }

    /// Refuses rules that are not linear: the derivative depends on where it is taken, or something
    /// is left where what comes from outside is zero.
    fn check_linear(
        &self,
        rules: &[UOp],
        derivative: &UOp,
        leaves: &[UOp],
        has: &str,
        lacks: &str,
    ) -> Result<()> {
        let nodes = toposort(std::slice::from_ref(derivative));
        if leaves.iter().any(|leaf| nodes.contains(leaf)) || is_surely_nonzero(rules, leaves) {
            return Err(self.refuse(format!(
                "has a {has} that is not linear, so no {lacks} follows from it; give both"
            )));
        }
        Ok(())
    }
}

/// A function whose value is that of `f` and through which gradients pass as if it were the
/// identity: for rounding, quantising and other steps without a derivative of use.
///
/// ```
/// use uopc::{Tensor, grad, transform::straight_through};
///
/// let quantised = |x: &Tensor| straight_through(|x| (x * 4.0).trunc()?.div(4.0), x);
/// let x = Tensor::from([0.3f32, -1.9]);
/// assert_eq!(quantised(&x)?.to_vec::<f32>()?, [0.25, -1.75]);
/// let slope = grad(|x: &Tensor| quantised(x)?.square()?.sum(..));
/// assert_eq!(slope(&x)?.to_vec::<f32>()?, [0.5, -3.5]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of `f`, and when its result differs in shape or dtype from `x`.
#[track_caller]
pub fn straight_through(f: impl Fn(&Tensor) -> Result<Tensor>, x: &Tensor) -> Result<Tensor> {
    let _site = Site::caller().enter();
    let body = move |x: &[Tensor]| {
        let y = f(&x[0])?;
        check_like("straight_through", "result", &[y.clone()], x)?;
        Ok(y)
    };
    CustomFunction::new("straight_through", body)
        .vjp(|_, _, g| Ok(vec![Some(g.clone())]))
        .jvp(|_, _, t| Ok(t[0].clone()))
        .call(&[x])
}

/// The same values, with a hook on what comes back: where the cotangent of this passes, it is
/// replaced by what `hook` makes of it. Tangents pass unchanged.
///
/// ```
/// use uopc::{Tensor, grad, transform::gradient_hook};
///
/// let clipped = |x: &Tensor| gradient_hook(x, |g| g.maximum(-1.0)?.minimum(1.0));
/// let f = |x: &Tensor| (clipped(x)? * Tensor::from([5.0f32, 0.5])).sum(..);
/// assert_eq!(grad(f)(&Tensor::ones([2])?)?.to_vec::<f32>()?, [1.0, 0.5]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of the hook, and when it changes shape or dtype or `x` is no float.
#[track_caller]
pub fn gradient_hook(x: &Tensor, hook: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let _site = Site::caller().enter();
    CustomFunction::new("gradient_hook", |x| Ok(x[0].clone()))
        .vjp(move |_, _, g| Ok(vec![Some(hook(g)?)]))
        .jvp(|_, _, t| Ok(t[0].clone()))
        .call(&[x])
}

/// The same values, of which gradients come back times a factor: -1 reverses them.
///
/// # Errors
/// When `x` is no float.
#[track_caller]
pub fn scale_gradient(x: &Tensor, factor: f64) -> Result<Tensor> {
    gradient_hook(x, |g| g.mul(factor))
}

/// The same values, of which each element of the gradient that comes back is kept between bounds.
///
/// # Errors
/// When `x` is no float.
#[track_caller]
pub fn clip_gradient(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    gradient_hook(x, |g| g.maximum(low)?.minimum(high))
}

/// The same tree, through which no gradient flows.
///
/// # Errors
/// Never for trees of tensors.
pub fn stop_gradient<T: Tree>(tree: &T) -> Result<T> {
    let mut tensors = tree.tensors().into_iter();
    tree.rebuild(&mut || {
        let x = tensors.next().expect("as many as the tree has");
        match x.dtype().is_float() {
            true => x.detach(),
            false => Ok(x),
        }
    })
}
