//! Tensors with a part replaced, as values and in place, and copies.

use std::mem;

use super::backward::{detached, grads_on};
use super::history::{self, Tape};
use super::operand::{broadcast, number};
use super::slices::{Part, Pick, Slices};
use super::{DType, Error, Operand, Result, Shape, Site, Tensor, UOp, dtype_error, shape_error};
use crate::ir::{Scalar, composite};

impl Tensor {
    /// A copy in which the part that the slices name is replaced. The value broadcasts to the
    /// part's shape, and its first axes may have extent 1 beyond that. It takes this tensor's
    /// dtype if that loses no kind of number: bools become integers, both become floats.
    /// Gradients flow to what is kept and to the value.
    ///
    /// ```
    /// # use uopc::{Tensor, tensor::Slice};
    /// let t = Tensor::zeros([2, 3])?;
    /// let t = t.with_slice((.., 1..), Tensor::from([1.0f32, 2.0]))?;
    /// let t = t.with_slice((0, Slice::Every(-2)), 7)?;
    /// assert_eq!(t.to_vec::<f32>()?, [7.0, 1.0, 7.0, 0.0, 1.0, 2.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the slices do not fit, see [`slice`](Self::slice); when the value does not broadcast
    /// to the part; when it has floats and this tensor none, or numbers and this tensor bools, or
    /// it is an integer that does not fit.
    #[track_caller]
    pub fn with_slice(&self, slices: impl Slices, value: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.replaced("with_slice", slices, value.into())
    }

    /// From now on this tensor, under all its names, stands for that value: lazily, and with the
    /// value's history. What was computed from it before keeps the old value.
    ///
    /// A parameter can be set while [`no_grad`](super::no_grad) is in force. It stays a parameter,
    /// as [`assign`](Self::assign) says, and is computed now.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// let (same, before) = (x.clone(), &x * 10);
    /// x.set(&(&x + 1))?;
    /// assert_eq!(same.to_vec::<f32>()?, [2.0, 3.0]);
    /// assert_eq!(before.to_vec::<f32>()?, [10.0, 20.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When shape or dtype differ, when this is a parameter and gradients are on, and when a
    /// parameter's value can't be computed.
    #[track_caller]
    pub fn set(&self, value: &Tensor) -> Result<()> {
        let _site = Site::caller().enter();
        self.check_settable()?;
        self.set_to("set", value)
    }

    /// [`set`](Self::set) to this tensor with a part replaced, as
    /// [`with_slice`](Self::with_slice) does it.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let t = Tensor::zeros([2, 2])?;
    /// t.set_slice((.., 1), 5)?;
    /// assert_eq!(t.to_vec::<f32>()?, [0.0, 5.0, 0.0, 5.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of both.
    #[track_caller]
    pub fn set_slice(&self, slices: impl Slices, value: impl Into<Operand>) -> Result<()> {
        let _site = Site::caller().enter();
        self.check_settable()?;
        let value = self.replaced("set_slice", slices, value.into())?;
        self.set_to("set_slice", &value)
    }

    /// A tensor of its own with the same value: later updates of one do not reach the other.
    /// A parameter's copy is another parameter. Nothing is copied in memory, since memory never
    /// changes, and the gradient that was left with this tensor is not copied either.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let w = Tensor::ones([2])?.requires_grad()?;
    /// let v = w.copy()?;
    /// w.assign(5.0f32)?;
    /// assert!(v.is_parameter());
    /// assert_eq!(v.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When a parameter's value can't be computed.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if self.is_parameter() {
            let leaf = history::leaf(self.storage()?, self.dtype(), self.shape())?;
            return Tensor::new(leaf, false).requires_grad();
        }
        let copy = Tensor::new(self.uop(), false);
        copy.stand_for(self)?;
        Ok(copy)
    }

    /// Refuses to change a parameter that a graph may be about to mention.
    fn check_settable(&self) -> Result<()> {
        if !self.is_parameter() || !grads_on() {
            return Ok(());
        }
        let message = "a parameter can't be set while gradients are on, as it would be one no \
                       more; set it under no_grad, or make a new tensor"
            .into();
        let site = Site::current();
        Err(Error::Gradient { message, site })
    }

    fn set_to(&self, op: &'static str, value: &Tensor) -> Result<()> {
        let (to, from) = (self.shape(), value.shape());
        if to != from {
            let message = format!(
                "a tensor of shape {to} can't be set to one of shape {from}; expand or reshape the value"
            );
            return Err(shape_error(op, message));
        }
        let (to, from) = (self.dtype(), value.dtype());
        if to != from {
            let message = format!("a tensor of {to} can't be set to one of {from}; cast the value");
            return Err(dtype_error(op, message));
        }
        if self.is(value) {
            return Ok(());
        }
        if self.is_parameter() {
            return self.assign(value);
        }
        self.stand_for(value)
    }

    /// Takes over node, memory and history of a tensor of equal dtype and shape.
    fn stand_for(&self, value: &Tensor) -> Result<()> {
        let (mut node, mut needs_grad, mut memory, mut tape, gradient) = {
            let state = value.0.state.lock();
            let tape = state.tape.share();
            let memory = state.value.clone();
            let node = state.node.clone();
            (node, state.needs_grad, memory, tape, state.gradient)
        };
        if needs_grad && !grads_on() {
            // With the value at hand the graph is not needed.
            node = match memory.take() {
                Some(memory) => history::leaf(memory, self.dtype(), self.shape())?,
                None => detached(node),
            };
            needs_grad = false;
            tape = Tape::default();
        }
        let has_history = needs_grad && memory.is_some();
        let added = has_history.then(|| history::leaves(std::slice::from_ref(&node)));
        let mut state = self.0.state.lock();
        let former = mem::replace(&mut state.node, node);
        let had_history = state.needs_grad && state.value.is_some();
        state.needs_grad = needs_grad;
        state.gradient |= gradient;
        let kept = (
            mem::replace(&mut state.value, memory),
            mem::replace(&mut state.tape, tape),
        );
        drop(state);
        drop(kept);
        // An update of the parameters that it depended on is no concern of this tensor any more.
        if had_history {
            let removed = history::leaves(std::slice::from_ref(&former));
            history::remove_reader(&removed, &self.0);
        }
        if let Some(added) = added {
            history::add_reader(&added, &self.0);
        }
        Ok(())
    }

    fn replaced(&self, op: &'static str, slices: impl Slices, value: Operand) -> Result<Tensor> {
        let part = Part::of(op, self.shape(), &slices.slices())?;
        let (x, x_needs_grad) = self.read();
        let (value, value_needs_grad) = operand(op, value, x.dtype())?;
        let value = aligned(op, &value, &part)?;
        let node = replace(&x, &part.picks, &value)?;
        Ok(Tensor::derived(node, x_needs_grad || value_needs_grad))
    }
}

/// The value as a node of that dtype, and whether it needs gradients.
pub(super) fn operand(op: &'static str, value: Operand, dtype: DType) -> Result<(UOp, bool)> {
    let from = match &value {
        Operand::Tensor(t) => t.dtype(),
        Operand::Float(_) => DType::F32,
        // Whether an integer fits is a question of its value.
        Operand::Int(_) => dtype,
        Operand::Bool(_) => DType::Bool,
    };
    let fits =
        from == dtype || dtype.is_float() || from == DType::Bool || dtype.is_int() && from.is_int();
    if !fits {
        let (value, remedy) = match &value {
            Operand::Float(number) => (format!("the float {number}"), "give an integer or"),
            _ => (format!("{from} values"), "cast them or"),
        };
        let message = format!("a tensor of {dtype} can't take {value}; {remedy} cast the tensor");
        return Err(dtype_error(op, message));
    }
    match value {
        Operand::Tensor(t) => {
            let (node, needs_grad) = t.read();
            Ok((node.cast(dtype)?, needs_grad))
        }
        value => Ok((UOp::constant(number(op, &value, dtype)?), false)),
    }
}

/// The value with the axes of the whole tensor: each has extent 1 or as many elements as are
/// picked of that axis.
fn aligned(op: &'static str, value: &UOp, part: &Part) -> Result<UOp> {
    let dims = Shape::new(&part.dims());
    let given = value.shape();
    // As in NumPy, axes in front that say nothing are no obstacle.
    let beyond = given.rank().saturating_sub(dims.rank());
    let idle = given.iter().take(beyond).take_while(|&&d| d == 1).count();
    let own = Shape::new(&given[idle..]);
    if broadcast(op, &own, &dims)? != dims {
        let message = format!("a value of shape {given} does not broadcast to the part, {dims}");
        return Err(shape_error(op, message));
    }
    let missing = dims.rank() - own.rank();
    let mut axes = vec![1; part.picks.len()];
    for (k, shown) in part.shows.iter().enumerate() {
        if let (Some(axis), Some(own_axis)) = (shown, k.checked_sub(missing)) {
            axes[*axis] = own[own_axis];
        }
    }
    value.reshape(&axes)
}

/// `x` with the value at the picked positions: one select, whose condition compares positions.
fn replace(x: &UOp, picks: &[Pick], value: &UOp) -> Result<UOp> {
    if picks.iter().any(|p| p.count == 0) {
        return Ok(x.clone());
    }
    let placed = placed(x, picks, value)?.expand(x.shape())?;
    let mut picked: Option<UOp> = None;
    for (axis, pick) in picks.iter().enumerate() {
        if let Some(condition) = is_picked(x.shape(), axis, pick)? {
            picked = Some(match picked {
                Some(others) => others.and(&condition)?,
                None => condition,
            });
        }
    }
    match picked {
        Some(picked) => picked.where_(&placed, x),
        None => Ok(placed),
    }
}

/// The elements of the value at their positions, with anything in between. Axes of extent 1 stay
/// so: they are the same everywhere.
fn placed(x: &UOp, picks: &[Pick], value: &UOp) -> Result<UOp> {
    let is_moved = |axis: usize| value.shape()[axis] > 1;
    let reversed: Vec<usize> = (0..picks.len())
        .filter(|&axis| picks[axis].backwards && is_moved(axis))
        .collect();
    let value = composite::flip(value, &reversed)?;
    // Each stepped axis as a column of rows as long as the step, as in reading a part.
    let (mut columns, mut in_rows) = (Vec::new(), Vec::new());
    let (mut dims, mut bounds, mut around) = (Vec::new(), Vec::new(), Vec::new());
    for (axis, pick) in picks.iter().enumerate() {
        let (n, own) = (x.shape()[axis], value.shape()[axis]);
        columns.push(own);
        in_rows.push((0, 0));
        if !is_moved(axis) {
            dims.push(own);
            bounds.push((0, own));
            around.push((0, 0));
            continue;
        }
        let (mut first, mut length) = (pick.begin, pick.count);
        if pick.step > 1 {
            let column;
            (first, column) = pick.rows(n);
            length *= pick.step;
            columns.push(1);
            in_rows.push((column, pick.step - 1 - column));
        }
        let kept = length.min(n - first);
        dims.push(length);
        bounds.push((0, kept));
        around.push((first, n - first - kept));
    }
    let rows = composite::pad(&value.reshape(&columns)?, &in_rows)?;
    composite::pad(&rows.reshape(&dims)?.shrink(&bounds)?, &around)
}

/// Whether a position of that axis is picked, repeated to the shape; `None` if all are.
fn is_picked(shape: &Shape, axis: usize, pick: &Pick) -> Result<Option<UOp>> {
    let n = shape[axis];
    if pick.is_whole(n) {
        return Ok(None);
    }
    let dtype = if n > i32::MAX as usize {
        DType::I64
    } else {
        DType::I32
    };
    let places = UOp::iota(n, dtype)?;
    let constant = |i: usize| UOp::full(Scalar::from_i128(dtype, i as i128), places.shape());
    let begin = constant(pick.begin)?;
    let mut conditions = Vec::new();
    if pick.count == 1 {
        conditions.push(places.eq(&begin)?);
    } else {
        if pick.begin > 0 {
            conditions.push(places.cmplt(&begin)?.logical_not()?);
        }
        if pick.last() + 1 < n {
            conditions.push(places.cmplt(&constant(pick.last() + 1)?)?);
        }
        if pick.step > 1 {
            let from_begin = places.sub(&begin)?.floormod(&constant(pick.step)?)?;
            conditions.push(from_begin.eq(&constant(0)?)?);
        }
    }
    let mut dims = vec![1; shape.rank()];
    dims[axis] = n;
    let all = conditions
        .into_iter()
        .map(Ok)
        .reduce(|a, b| a?.and(&b?))
        .transpose()?;
    all.map(|c| c.reshape(&dims)?.expand(shape)).transpose()
}
