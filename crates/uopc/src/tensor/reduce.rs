//! Reductions along axes, and what is made of them: softmax, cross-entropy, positions of maxima.
//!
//! Each reduction has a twin that keeps the axes with extent 1, to broadcast against the source.
//! An empty sum is 0, an empty maximum -inf (integers: the least value), an empty mean NaN.

use super::args::{Axes, Integer, axes_of, axis_of};
use super::elementwise::real;
use super::index::is_class;
use super::{DType, Result, Site, Tensor, UOp, dtype_error, formulas, shape_error};
use crate::ir::Scalar;
use crate::ir::op::{ReduceOp, StageKind};

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident, $keepdim:ident = $node:expr;)*) => { impl Tensor { $(
        $(#[$doc])*
        ///
        /// The axes are one number, several, or `..` for all; negative ones count from the end.
        ///
        /// # Errors
        /// When an axis does not exist or is named twice.
        #[track_caller]
        pub fn $name(&self, axes: impl Axes) -> Result<Tensor> {
            let _site = Site::caller().enter();
            let axes = axes_of(stringify!($name), self.shape(), axes)?;
            self.map(|x| $node(x, &axes))
        }

        #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") that keeps the axes, with extent 1.")]
        ///
        /// # Errors
        /// When an axis does not exist or is named twice.
        #[track_caller]
        pub fn $keepdim(&self, axes: impl Axes) -> Result<Tensor> {
            let _site = Site::caller().enter();
            let axes = axes_of(stringify!($name), self.shape(), axes)?;
            self.map(|x| keep($node(x, &axes)?, x, &axes))
        }
    )* } };
}

reductions! {
    /// The sum. Bools and integers of up to 16 bits are added as i32 or u32; wider ones wrap.
    sum, sum_keepdim = sum;
    /// The mean, which is the sum divided by the number of elements; integers become f32 first.
    mean, mean_keepdim = mean;
    /// The mean of the squared deviations from the mean (divided by N, not N - 1).
    var, var_keepdim = |x: &UOp, axes: &[usize]| var(x, axes, 0.0);
    /// The largest element; NaN if there is one. Of no elements it is what is largest with none: minus
    /// infinity or the dtype's least value. A gradient is shared evenly by equal ones.
    max, max_keepdim = max;
    /// The smallest element; NaN if there is one. Of no elements it is infinity or the dtype's largest
    /// value. A gradient is shared evenly by equal ones.
    min, min_keepdim = min;
    /// The product. Bools and integers of up to 16 bits are multiplied as i32 or u32.
    prod, prod_keepdim = |x: &UOp, axes: &[usize]| reduce(&roomy(x)?, ReduceOp::Mul, axes);
}

impl Tensor {
    /// Whether any element is true: anything but 0, a NaN included. Without elements none is.
    ///
    /// The axes are one number, several, or `..` for all; negative ones count from the end.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::from([[0, 3], [0, 0]]);
    /// assert_eq!(t.any(1)?.to_vec::<bool>()?, [true, false]);
    /// assert!(!t.all(..)?.truth()?);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn any(&self, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.truths("any", ReduceOp::Add, axes, |found, _, _| Ok(found))
    }

    /// [`any`](Self::any) that keeps the axes, with extent 1.
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn any_keepdim(&self, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.truths("any_keepdim", ReduceOp::Add, axes, keep)
    }

    /// Whether all elements are true: anything but 0, a NaN included. Without elements all are.
    ///
    /// The axes are one number, several, or `..` for all; negative ones count from the end.
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn all(&self, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.truths("all", ReduceOp::Mul, axes, |found, _, _| Ok(found))
    }

    /// [`all`](Self::all) that keeps the axes, with extent 1.
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn all_keepdim(&self, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.truths("all_keepdim", ReduceOp::Mul, axes, keep)
    }

    /// The elements as bools, joined along axes by "or" or "and", through which no gradient flows.
    fn truths(
        &self,
        name: &'static str,
        op: ReduceOp,
        axes: impl Axes,
        finish: fn(UOp, &UOp, &[usize]) -> Result<UOp>,
    ) -> Result<Tensor> {
        let axes = axes_of(name, self.shape(), axes)?;
        let x = self.uop();
        let found = reduce(&x.cast(DType::Bool)?, op, &axes)?;
        Ok(Tensor::new(finish(found, &x, &axes)?, false))
    }
}

/// Reduces some axes, which are ascending.
fn reduce(x: &UOp, op: ReduceOp, axes: &[usize]) -> Result<UOp> {
    let kept = (0..x.shape().rank()).filter(|k| !axes.contains(k));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    x.permute(&order)?.reduce(op, axes.len())
}

/// Puts reduced axes back, with extent 1.
fn keep(reduced: UOp, x: &UOp, axes: &[usize]) -> Result<UOp> {
    reduced.reshape(&kept_shape(x, axes))
}

fn kept_shape(x: &UOp, axes: &[usize]) -> Vec<usize> {
    let dims = x.shape().iter().enumerate();
    dims.map(|(k, &d)| if axes.contains(&k) { 1 } else { d })
        .collect()
}

/// A reduced value repeated along the axes that it lost.
fn spread(reduced: &UOp, x: &UOp, axes: &[usize]) -> Result<UOp> {
    reduced.reshape(&kept_shape(x, axes))?.expand(x.shape())
}

/// The number of elements that go into each result.
fn count(x: &UOp, axes: &[usize]) -> f64 {
    axes.iter().map(|&a| x.shape()[a] as f64).product()
}

/// Bools and narrow integers as 32-bit integers, in which sums have room.
pub(super) fn roomy(x: &UOp) -> Result<UOp> {
    match x.dtype() {
        DType::Bool | DType::I8 | DType::I16 => x.cast(DType::I32),
        DType::U8 | DType::U16 => x.cast(DType::U32),
        _ => Ok(x.clone()),
    }
}

/// Computes in f32 what several roundings in f16 or bf16 would spoil. Integers become f32, too.
pub(super) fn in_floats(x: &UOp, f: impl FnOnce(&UOp) -> Result<UOp>) -> Result<UOp> {
    let dtype = real(x.dtype());
    f(&x.cast(dtype.accumulator())?)?.cast(dtype)
}

fn sum(x: &UOp, axes: &[usize]) -> Result<UOp> {
    reduce(&roomy(x)?, ReduceOp::Add, axes)
}

fn mean(x: &UOp, axes: &[usize]) -> Result<UOp> {
    in_floats(x, |x| {
        let total = reduce(x, ReduceOp::Add, axes)?;
        total.div(&total.full_like(count(x, axes))?)
    })
}

/// The sum of squared deviations, divided by the number of elements less the correction.
fn var(x: &UOp, axes: &[usize], correction: f64) -> Result<UOp> {
    in_floats(x, |x| {
        let deviation = x.sub(&spread(&mean(x, axes)?, x, axes)?)?;
        let total = reduce(&deviation.mul(&deviation)?, ReduceOp::Add, axes)?;
        total.div(&total.full_like((count(x, axes) - correction).max(0.0))?)
    })
}

fn max(x: &UOp, axes: &[usize]) -> Result<UOp> {
    reduce(x, ReduceOp::Max, axes)
}

/// The maximum of what has the opposite order: -x of floats, flipped bits of the others.
fn min(x: &UOp, axes: &[usize]) -> Result<UOp> {
    if x.dtype().is_float() {
        return max(&x.neg()?, axes)?.neg();
    }
    formulas::not(&max(&formulas::not(x)?, axes)?)
}

/// x minus its maximum along an axis. A shift changes neither softmax nor its derivative, so no
/// gradient flows through the maximum.
fn shifted(x: &UOp, axis: usize) -> Result<UOp> {
    let peak = max(x, &[axis])?.stage(StageKind::Detach)?;
    x.sub(&spread(&peak, x, &[axis])?)
}

fn log_softmax(x: &UOp, axis: usize) -> Result<UOp> {
    let shifted = shifted(x, axis)?;
    let total = sum(&shifted.exp()?, &[axis])?;
    shifted.sub(&spread(&formulas::log(&total)?, x, &[axis])?)
}

impl Tensor {
    /// The variance whose sum of squares is divided by N - `correction`, where N is the number of
    /// elements: with 1 the estimate from a sample. Infinite or NaN if nothing is left to divide
    /// by.
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn var_corrected(&self, axes: impl Axes, correction: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axes = axes_of("var", self.shape(), axes)?;
        self.map(|x| var(x, &axes, correction))
    }

    /// [`var_corrected`](Self::var_corrected) that keeps the axes, with extent 1.
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn var_corrected_keepdim(&self, axes: impl Axes, correction: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axes = axes_of("var", self.shape(), axes)?;
        self.map(|x| keep(var(x, &axes, correction)?, x, &axes))
    }

    /// exp(x) divided by its sum along an axis, so that it adds up to 1 there. Safe for numbers
    /// of any size; a row with a +inf or with nothing but -inf is NaN.
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn softmax(&self, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("softmax", self.shape(), axis.signed())?;
        self.map(|x| {
            in_floats(x, |x| {
                let e = shifted(x, axis)?.exp()?;
                e.div(&spread(&sum(&e, &[axis])?, x, &[axis])?)
            })
        })
    }

    /// The logarithm of [`softmax`](Self::softmax), without its loss of small numbers.
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn log_softmax(&self, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("log_softmax", self.shape(), axis.signed())?;
        self.map(|x| in_floats(x, |x| log_softmax(x, axis)))
    }

    /// The mean over all rows of -log(softmax(row)\[label\]): logits of shape S + (classes,) and
    /// integer labels of shape S give a scalar. A label that is no class makes it NaN.
    ///
    /// # Errors
    /// When the labels are not integers or their shape does not fit.
    #[track_caller]
    pub fn cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let rank = self.rank();
        if rank == 0 || self.shape()[..rank - 1] != labels.shape()[..] {
            let (x, y) = (self.shape(), labels.shape());
            let message = format!(
                "logits of shape {x} and labels of shape {y} do not fit; labels have the logits' \
                 shape without the last axis, the classes"
            );
            return Err(shape_error("cross_entropy", message));
        }
        let classes = self.shape()[rank - 1];
        let labels = labels.uop();
        let hot = is_class("cross_entropy", &labels, classes)?;
        let is_known = known_class(&labels, classes)?;
        self.map(|x| {
            in_floats(x, |x| {
                let log_p = log_softmax(x, rank - 1)?;
                // A select and no product with the one-hot: 0 * -inf of another class is NaN.
                let picked = sum(&hot.where_(&log_p, &log_p.full_like(0.0)?)?, &[rank - 1])?;
                let picked = is_known.where_(&picked, &picked.full_like(f64::NAN)?)?;
                let rows: Vec<usize> = (0..rank - 1).collect();
                mean(&picked.neg()?, &rows)
            })
        })
    }

    /// The position of the largest element along an axis, as i64: the first of several, and that
    /// of the first NaN if there is one.
    ///
    /// # Errors
    /// When there is no such axis, or it is empty.
    #[track_caller]
    pub fn argmax(&self, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("argmax", self.shape(), axis.signed())?;
        let node = first_place("argmax", &self.uop(), axis, max)?;
        Ok(Tensor::new(node, false))
    }

    /// The position of the smallest element along an axis; see [`argmax`](Self::argmax).
    ///
    /// # Errors
    /// When there is no such axis, or it is empty.
    #[track_caller]
    pub fn argmin(&self, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis_of("argmin", self.shape(), axis.signed())?;
        let node = first_place("argmin", &self.uop(), axis, min)?;
        Ok(Tensor::new(node, false))
    }
}

/// Whether each label is one of the classes.
fn known_class(labels: &UOp, classes: usize) -> Result<UOp> {
    let dtype = labels.dtype();
    let constant =
        |value: usize| UOp::full(Scalar::from_i128(dtype, value as i128), labels.shape());
    let (_, largest) = dtype.int_range().unwrap_or((0, 0));
    let below = if classes as i128 > largest {
        UOp::full(Scalar::from_bool(true), labels.shape())?
    } else {
        labels.cmplt(&constant(classes)?)?
    };
    labels.cmplt(&constant(0)?)?.logical_not()?.and(&below)
}

/// The first position along an axis where the element is the extreme one or NaN: the largest of
/// the numbers n, n-1, ..., 1 that stand at such places tells.
fn first_place(
    op: &'static str,
    x: &UOp,
    axis: usize,
    extreme: impl FnOnce(&UOp, &[usize]) -> Result<UOp>,
) -> Result<UOp> {
    let n = x.shape()[axis];
    if n == 0 {
        let message = format!("axis {axis} of shape {} is empty", x.shape());
        return Err(shape_error(op, message));
    }
    let peak = spread(&extreme(x, &[axis])?, x, &[axis])?;
    let mut found = x.eq(&peak)?;
    if x.dtype().is_float() {
        found = found.or(&x.cmpne(x)?)?;
    }
    let constant =
        |value: i128, like: &UOp| UOp::full(Scalar::from_i128(DType::I64, value), like.shape());
    let mut dims = vec![1; x.shape().rank()];
    dims[axis] = n;
    let places = UOp::iota(n, DType::I64)?
        .reshape(&dims)?
        .expand(x.shape())?;
    let from_end = constant(n as i128, x)?.sub(&places)?;
    let best = max(&found.where_(&from_end, &constant(0, x)?)?, &[axis])?;
    constant(n as i128, &best)?.sub(&best)
}

/// Labels and predictions: what part of them agrees.
impl Tensor {
    /// The part of rows whose largest logit is at the label, as f32.
    ///
    /// # Errors
    /// When the shapes do not fit or the labels are not integers.
    #[track_caller]
    pub fn accuracy(&self, labels: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if !labels.dtype().is_int() {
            let message = format!("labels are integers, not {}; cast them", labels.dtype());
            return Err(dtype_error("accuracy", message));
        }
        self.argmax(-1)?.eq(labels)?.mean(..)
    }
}
