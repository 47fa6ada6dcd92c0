//! Functions of tensors made from functions of tensors: derivatives of all kinds, and maps.
//!
//! Each of these takes a function and gives another one, so they nest in any way: `vmap(grad(f))`
//! is a gradient for each example, `grad` of a function that calls `jvp` is reverse over forward.
//! A function is called once, with arguments that stand for the values given, and what it records
//! is differentiated or mapped as a graph. It may look at values that it computes (`item`), except
//! inside [`vmap`], where there are many at once. Nothing is computed before someone asks for it.
//!
//! Arguments and results are [`Tree`]s: tensors, tuples, lists, maps, layers, and structs for which
//! [`tree!`](crate::tree) says which parts are tensors. A function with several arguments takes a
//! tuple. Only floats are differentiated; what else is in a tree is passed on as it is.
//!
//! ```
//! use uopc::{Tensor, grad, vmap};
//!
//! // f(w, x) = (w . x)^2, its gradient by w for each row of x: 2 (w . x) x
//! let f = |(w, x): &(Tensor, Tensor)| (w * x).sum(..)?.square();
//! let by_w = |(w, x): &(Tensor, Tensor)| {
//!     let x = x.clone();
//!     grad(move |w: &Tensor| f(&(w.clone(), x.clone())))(w)
//! };
//! let w = Tensor::from([1.0f32, 2.0]);
//! let rows = Tensor::from([[1.0f32, 0.0], [3.0, 1.0]]);
//! let each = vmap(by_w, [None, Some(0)], 0)(&(w, rows))?;
//! assert_eq!(each.to_vec::<f32>()?, [2.0, 0.0, 30.0, 10.0]);
//! # Ok::<(), uopc::Error>(())
//! ```
//!
//! Random numbers that a function draws are drawn once, for all slices of a map alike.

/// The examples of the page for users run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/autodiff.md")]
struct Page;

/// Likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/diagnosis.md")]
struct Diagnosis;

/// Likewise.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/autodiff-memory.md")]
struct Memory;

mod custom;
pub mod flat;
pub mod gradcheck;
mod jacobian;
mod linear;
mod trace;
#[macro_use]
mod tree;
mod wide;

use std::cell::RefCell;

use crate::error::Result;
use crate::tensor::{Site, Tensor};
use flat::floats;

use gradcheck::{GradcheckOptions, GradcheckReport};

pub use custom::{
    CustomFunction, clip_gradient, gradient_hook, scale_gradient, stop_gradient, straight_through,
};
pub use jacobian::Mode;
pub use trace::Function;
pub use tree::Tree;

/// The same structure over these tensors.
fn rebuilt<T: Tree>(like: &T, tensors: &[Tensor]) -> Result<T> {
    let mut next = tensors.iter().cloned();
    like.rebuild(&mut || Ok(next.next().expect("as many tensors as the structure has")))
}

/// A function of trees as one of lists, which notes the structure of its result.
struct Flat<'a, A, B, F> {
    f: &'a F,
    args: &'a A,
    result: RefCell<Option<B>>,
}

impl<'a, A: Tree, B: Tree, F: Fn(&A) -> Result<B>> Flat<'a, A, B, F> {
    fn new(f: &'a F, args: &'a A) -> Self {
        let result = RefCell::new(None);
        Flat { f, args, result }
    }

    fn call(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>> {
        let result = (self.f)(&rebuilt(self.args, tensors)?)?;
        let flat = result.tensors();
        self.result.replace(Some(result));
        Ok(flat)
    }

    /// The structure of the result over these tensors.
    fn rebuilt(&self, tensors: &[Tensor]) -> Result<B> {
        let result = self.result.borrow();
        rebuilt(result.as_ref().expect("the function was called"), tensors)
    }
}

/// The tensors of `args`, those at `wrt` replaced by these.
fn with_floats<A: Tree>(args: &A, wrt: &[usize], derivatives: Vec<Tensor>) -> Result<A> {
    let mut tensors = args.tensors();
    for (k, x) in tensors.iter_mut().enumerate() {
        if !wrt.contains(&k) {
            // What is no float has no derivative: zeros in its place.
            *x = x.zeros_like()?;
        }
    }
    for (&k, d) in wrt.iter().zip(derivatives) {
        tensors[k] = d;
    }
    rebuilt(args, &tensors)
}

/// The function that gives the gradient of `f`, which returns a scalar, with respect to its
/// argument: a tree like the argument. Integers and bools in it get zeros.
///
/// ```
/// use uopc::{Tensor, grad};
///
/// let f = |x: &Tensor| (x * x * x).sum(..);
/// let x = Tensor::from([1.0f32, 2.0]);
/// assert_eq!(grad(f)(&x)?.to_vec::<f32>()?, [3.0, 12.0]);
/// // And once more, through a scalar.
/// let second = grad(|x: &Tensor| grad(f)(x)?.sum(..));
/// assert_eq!(second(&x)?.to_vec::<f32>()?, [6.0, 12.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// The function returned fails as `f` does, when `f` returns no scalar of floats, and when an op on
/// the way has no derivative.
pub fn grad<A: Tree>(f: impl Fn(&A) -> Result<Tensor>) -> impl Fn(&A) -> Result<A> {
    let both = value_and_grad(f);
    move |args| Ok(both(args)?.1)
}

/// [`grad`] with respect to some of the tensors of the argument only, by position among all of
/// them: a list with a gradient for each.
///
/// # Errors
/// As [`grad`]; and the function returned fails when there is no such tensor, or it is no float.
pub fn grad_at<A: Tree>(
    f: impl Fn(&A) -> Result<Tensor>,
    argnums: &[usize],
) -> impl Fn(&A) -> Result<Vec<Tensor>> {
    let wrt = argnums.to_vec();
    move |args| {
        let tensors = args.tensors();
        if let Some(k) = wrt.iter().find(|&&k| k >= tensors.len()) {
            let n = tensors.len();
            let message = format!("argnums names tensor {k}, but the argument has {n}, from 0");
            return Err(trace::shape_error("grad", message));
        }
        let flat = Flat::new(&f, args);
        Ok(flat::value_and_grad(&|t| flat.call(t), &tensors, &wrt)?.1)
    }
}

/// [`grad`] together with the value, as one graph.
///
/// # Errors
/// As [`grad`].
pub fn value_and_grad<A: Tree>(
    f: impl Fn(&A) -> Result<Tensor>,
) -> impl Fn(&A) -> Result<(Tensor, A)> {
    move |args| {
        let tensors = args.tensors();
        let wrt = floats(&tensors);
        let flat = Flat::new(&f, args);
        let (value, gradients, _) = flat::value_and_grad(&|t| flat.call(t), &tensors, &wrt)?;
        Ok((value, with_floats(args, &wrt, gradients)?))
    }
}

/// The value of `f` at `primals`, and the function from cotangents of the result to cotangents of
/// the argument. Integers and bools in the argument get zeros.
///
/// ```
/// use uopc::{Tensor, vjp};
///
/// let x = Tensor::from([1.0f32, 2.0]);
/// let (y, pull_back) = vjp(|x: &Tensor| x.square(), &x)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(pull_back(&Tensor::from([1.0f32, 10.0]))?.to_vec::<f32>()?, [2.0, 40.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of `f`. The function returned fails when a cotangent differs in shape or dtype from the
/// result, and when an op on the way has no derivative.
#[track_caller]
pub fn vjp<'a, A: Tree, B: Tree + 'a>(
    f: impl Fn(&A) -> Result<B>,
    primals: &'a A,
) -> Result<(B, impl Fn(&B) -> Result<A> + 'a)> {
    let _site = Site::caller().enter();
    let tensors = primals.tensors();
    let wrt = floats(&tensors);
    let flat = Flat::new(&f, primals);
    let (values, pullback) = flat::vjp(&|t| flat.call(t), &tensors, &wrt)?;
    let value = flat.rebuilt(&values)?;
    let pull =
        move |cotangents: &B| with_floats(primals, &wrt, pullback.call(&cotangents.tensors())?);
    Ok((value, pull))
}

/// The value of `f` at `primals`, and its tangent when the argument has these tangents. Tangents of
/// integers and bools are not read, and those of such results are zeros.
///
/// ```
/// use uopc::{Tensor, jvp};
///
/// let (x, t) = (Tensor::from([1.0f32, 2.0]), Tensor::from([1.0f32, 10.0]));
/// let (y, dy) = jvp(|x: &Tensor| x.square(), &x, &t)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0]);
/// assert_eq!(dy.to_vec::<f32>()?, [2.0, 40.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of `f`; when a tangent differs in shape or dtype from its primal; and when an op on the way
/// has no rule.
#[track_caller]
pub fn jvp<A: Tree, B: Tree>(
    f: impl Fn(&A) -> Result<B>,
    primals: &A,
    tangents: &A,
) -> Result<(B, B)> {
    let _site = Site::caller().enter();
    let flat = Flat::new(&f, primals);
    let (values, pushed) = flat::jvp(&|t| flat.call(t), &primals.tensors(), &tangents.tensors())?;
    Ok((flat.rebuilt(&values)?, flat.rebuilt(&pushed)?))
}

/// Which axis of each tensor is mapped: one for all, or one for each tensor of a tree in order.
/// `None` is for a tensor that all slices share; negative axes count from the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapAxes {
    /// The same for all tensors.
    All(Option<isize>),
    /// One for each.
    Each(Vec<Option<isize>>),
}

impl MapAxes {
    fn each(&self, n: usize) -> Vec<Option<isize>> {
        match self {
            MapAxes::All(axis) => vec![*axis; n],
            MapAxes::Each(axes) => axes.clone(),
        }
    }
}

impl From<isize> for MapAxes {
    fn from(axis: isize) -> MapAxes {
        MapAxes::All(Some(axis))
    }
}

impl From<Vec<Option<isize>>> for MapAxes {
    fn from(axes: Vec<Option<isize>>) -> MapAxes {
        MapAxes::Each(axes)
    }
}

impl<const N: usize> From<[Option<isize>; N]> for MapAxes {
    fn from(axes: [Option<isize>; N]) -> MapAxes {
        MapAxes::Each(axes.to_vec())
    }
}

/// The function that applies `f` to each slice of its argument at once: to each index along the
/// axes `in_axes` of its tensors. The results have the new axis at `out_axes`.
///
/// It is one graph of the batched size and no loop: a product of matrices becomes a batched one, a
/// gather stays a gather.
///
/// ```
/// use uopc::{Tensor, vmap};
///
/// let dot = |(a, b): &(Tensor, Tensor)| (a * b).sum(..);
/// let (a, b) = (Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]), Tensor::from([10.0f32, 1.0]));
/// let each = vmap(dot, [Some(0), None], 0)(&(a, b))?;
/// assert_eq!(each.to_vec::<f32>()?, [12.0, 34.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// The function returned fails as `f` does; when there is nothing to map, an axis does not exist or
/// extents differ; when `f` asks for the value of what depends on a mapped argument; and when an op
/// can't be mapped.
pub fn vmap<A: Tree, B: Tree>(
    f: impl Fn(&A) -> Result<B>,
    in_axes: impl Into<MapAxes>,
    out_axes: impl Into<MapAxes>,
) -> impl Fn(&A) -> Result<B> {
    let (in_axes, out_axes) = (in_axes.into(), out_axes.into());
    move |args| {
        let tensors = args.tensors();
        let flat = Flat::new(&f, args);
        let axes = in_axes.each(tensors.len());
        let out = |n: usize| Ok(out_axes.each(n));
        let results = flat::vmap(&|t| flat.call(t), &tensors, &axes, &out)?;
        flat.rebuilt(&results)
    }
}

/// The function that computes the same as `f`, but whose interior values are not kept for gradients:
/// they are computed again when those need them, from the arguments, which are kept. It trades time
/// for memory, at most one more evaluation of `f` for each gradient, and changes no bit of any
/// result.
///
/// Checkpoints nest, and the function returned is differentiated and mapped like any other. What `f`
/// computes from tensors that it did not get as arguments is kept as usual; layers are arguments,
/// too. [`memory_limit`](crate::memory_limit) finds by itself what to compute again.
///
/// ```
/// use uopc::{Tensor, checkpoint, grad};
///
/// let layer = |x: &Tensor| x.exp()?.sin()?.exp();
/// let x = Tensor::from([0.5f32, 1.0]);
/// let plain = grad(|x: &Tensor| layer(x)?.sum(..))(&x)?;
/// let saving = grad(|x: &Tensor| checkpoint(layer)(x)?.sum(..))(&x)?;
/// assert_eq!(plain.to_vec::<f32>()?, saving.to_vec::<f32>()?);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// The function returned fails as `f` does.
pub fn checkpoint<A: Tree, B: Tree>(f: impl Fn(&A) -> Result<B>) -> impl Fn(&A) -> Result<B> {
    move |args| {
        let flat = Flat::new(&f, args);
        let results = flat::checkpoint(&|t| flat.call(t), &args.tensors())?;
        flat.rebuilt(&results)
    }
}

/// The Jacobian of a function between single tensors: of the result's shape followed by the
/// argument's. It is computed in the way that takes least: one pass where each element of the result
/// depends on the same element of the argument alone, else from tangents or from cotangents,
/// whichever are fewer. [`flat::jacobian`] does this for several tensors.
///
/// ```
/// use uopc::{Tensor, jacobian};
///
/// let x = Tensor::from([2.0f32, 3.0]);
/// let square = jacobian(|x: &Tensor| x.square())(&x)?;
/// assert_eq!(square.to_vec::<f32>()?, [4.0, 0.0, 0.0, 6.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// The function returned fails as `f` does; when the argument or the result is no float; and when an
/// op on the way has no rule.
pub fn jacobian(f: impl Fn(&Tensor) -> Result<Tensor>) -> impl Fn(&Tensor) -> Result<Tensor> {
    jacobian_in(Mode::Best, f)
}

/// [`jacobian`] by forward mode: a tangent for each element of the argument.
///
/// # Errors
/// As [`jacobian`].
pub fn jacfwd(f: impl Fn(&Tensor) -> Result<Tensor>) -> impl Fn(&Tensor) -> Result<Tensor> {
    jacobian_in(Mode::Forward, f)
}

/// [`jacobian`] by reverse mode: a cotangent for each element of the result.
///
/// # Errors
/// As [`jacobian`].
pub fn jacrev(f: impl Fn(&Tensor) -> Result<Tensor>) -> impl Fn(&Tensor) -> Result<Tensor> {
    jacobian_in(Mode::Reverse, f)
}

fn jacobian_in(
    mode: Mode,
    f: impl Fn(&Tensor) -> Result<Tensor>,
) -> impl Fn(&Tensor) -> Result<Tensor> {
    move |x| {
        let f = |args: &[Tensor]| Ok(vec![f(&args[0])?]);
        let mut blocks = flat::jacobian(&f, std::slice::from_ref(x), &[0], mode)?;
        Ok(blocks.swap_remove(0).swap_remove(0))
    }
}

/// The Hessian of a scalar function of a single tensor, of the argument's shape twice: forward over
/// reverse. [`flat::hessian`] does this for several tensors.
///
/// ```
/// use uopc::{Tensor, hessian};
///
/// let x = Tensor::from([2.0f32, 3.0]);
/// let h = hessian(|x: &Tensor| (x.square()? * x).sum(..))(&x)?;
/// assert_eq!(h.to_vec::<f32>()?, [12.0, 0.0, 0.0, 18.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// The function returned fails as [`jacobian`]'s, and when `f` returns no scalar.
pub fn hessian(f: impl Fn(&Tensor) -> Result<Tensor>) -> impl Fn(&Tensor) -> Result<Tensor> {
    move |x| {
        let f = |args: &[Tensor]| Ok(vec![f(&args[0])?]);
        let mut blocks = flat::hessian(&f, std::slice::from_ref(x), &[0])?;
        Ok(blocks.swap_remove(0).swap_remove(0))
    }
}

/// The Hessian of a scalar function times a vector, as trees like the argument: forward over
/// reverse, at about twice the cost of a gradient and without the Hessian.
///
/// ```
/// use uopc::{Tensor, hvp};
///
/// let (x, v) = (Tensor::from([2.0f32, 3.0]), Tensor::from([1.0f32, 10.0]));
/// let product = hvp(|x: &Tensor| (x.square()? * x).sum(..), &x, &v)?;
/// assert_eq!(product.to_vec::<f32>()?, [12.0, 180.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of `f`; when it returns no scalar of floats; when a tangent differs in shape or dtype from
/// its primal; and when an op on the way has no rule.
#[track_caller]
pub fn hvp<A: Tree>(f: impl Fn(&A) -> Result<Tensor>, primals: &A, tangents: &A) -> Result<A> {
    let _site = Site::caller().enter();
    let tensors = primals.tensors();
    let wrt = floats(&tensors);
    let flat = Flat::new(&f, primals);
    let (_, products) = flat::hvp(&|t| flat.call(t), &tensors, &tangents.tensors())?;
    with_floats(primals, &wrt, products)
}

/// Checks the gradients of a function at this argument: reverse mode against difference quotients
/// and forward mode, in random directions, at orders 1 and 2, in f64. The report prints as a table.
///
/// ```
/// use uopc::{Tensor, gradcheck};
///
/// let x = Tensor::from([0.5f32, -1.0, 2.0]);
/// let report = gradcheck(|x: &Tensor| x.sin()?.exp(), &x)?;
/// assert!(report.passed(), "{report}");
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of `f`; when it has no float argument or result; and when an op on the way has no rule.
#[track_caller]
pub fn gradcheck<A: Tree, B: Tree>(
    f: impl Fn(&A) -> Result<B>,
    args: &A,
) -> Result<GradcheckReport> {
    let _site = Site::caller().enter();
    let flat = Flat::new(&f, args);
    let options = GradcheckOptions::default();
    gradcheck::gradcheck(&|t| flat.call(t), &args.tensors(), &options)
}
