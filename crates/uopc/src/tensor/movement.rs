//! Operations that move elements and compute nothing: shapes, order of axes, repetition, windows,
//! padding, joining.

use std::borrow::Borrow;

use super::args::{Axes, Dims, Integer, axes_of, axis_of, place_of, shape_of};
use super::operand::{broadcast, broadcast_to};
use super::{DType, Result, Shape, Site, Tensor, UOp, shape_error};
use crate::ir::composite;

impl Tensor {
    /// The same elements in row-major order in another shape. One extent may be -1: what is left.
    ///
    /// # Errors
    /// When the number of elements differs, or more than one extent is left open.
    #[track_caller]
    pub fn reshape(&self, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let dims = self.fill_in(shape.dims())?;
        let shape = shape_of("reshape", dims)?;
        self.map(|x| x.reshape(&shape))
    }

    /// The axes from `first` to `last` joined into one; a scalar becomes one axis of extent 1.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let images = Tensor::zeros([8, 3, 4, 4])?;
    /// assert_eq!(images.flatten(1, -1)?.shape()[..], [8, 48]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, or the last one comes before the first.
    #[track_caller]
    pub fn flatten(&self, first: impl Integer, last: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.shape();
        // A scalar is seen as if it had one axis.
        let rank = shape.rank().max(1);
        let first = place_of("flatten", shape, first.signed(), rank)?;
        let last = place_of("flatten", shape, last.signed(), rank)?;
        if first > last {
            let message = format!("axis {first} of shape {shape} does not come before {last}");
            return Err(shape_error("flatten", message));
        }
        let end = (last + 1).min(shape.rank());
        let mut dims = shape[..first].to_vec();
        dims.push(shape[first..end].iter().product());
        dims.extend_from_slice(&shape[end..]);
        self.map(|x| x.reshape(&dims))
    }

    /// Puts what is left in the place of a -1.
    fn fill_in(&self, mut dims: Vec<i64>) -> Result<Vec<i64>> {
        let Some(open) = dims.iter().position(|&d| d == -1) else {
            return Ok(dims);
        };
        let rest = dims.iter().enumerate().filter(|(k, _)| *k != open);
        let rest = rest.map(|(_, &d)| d.max(0) as usize);
        let rest: Vec<usize> = rest.collect();
        let known = Shape::new(&rest).numel();
        let several = dims.iter().filter(|&&d| d == -1).count() > 1;
        if several || known == 0 || !self.numel().is_multiple_of(known) {
            let (from, n) = (self.shape(), self.numel());
            let message =
                format!("{from} has {n} elements, from which {dims:?} can't be filled in");
            return Err(shape_error("reshape", message));
        }
        dims[open] = (self.numel() / known) as i64;
        Ok(dims)
    }

    /// The axes in another order: axis k of the result is axis `order[k]`.
    ///
    /// # Errors
    /// When `order` does not name each axis once.
    #[track_caller]
    pub fn permute(&self, order: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.shape();
        let Some(named) = order.axes() else {
            return Ok(self.clone());
        };
        axes_of("permute", shape, &named)?;
        if named.len() != self.rank() {
            let message = format!("{named:?} does not name all axes of shape {shape}");
            return Err(shape_error("permute", message));
        }
        let order = named.iter().map(|&a| axis_of("permute", shape, a));
        let order = order.collect::<Result<Vec<usize>>>()?;
        self.map(|x| x.permute(&order))
    }

    /// The last two axes exchanged; a tensor with fewer stays as it is.
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn transpose(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if self.rank() < 2 {
            return Ok(self.clone());
        }
        self.swap_axes(-2, -1)
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// When there is no such axis.
    #[track_caller]
    pub fn swap_axes(&self, a: isize, b: isize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let a = axis_of("swap_axes", self.shape(), a as i64)?;
        let b = axis_of("swap_axes", self.shape(), b as i64)?;
        let mut order: Vec<usize> = (0..self.rank()).collect();
        order.swap(a, b);
        self.map(|x| x.permute(&order))
    }

    /// Repeated to a shape that it broadcasts to: axes of extent 1 grow, missing ones come in
    /// front. -1 keeps an extent.
    ///
    /// # Errors
    /// When another extent would change.
    #[track_caller]
    pub fn expand(&self, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let mut dims = shape.dims();
        let missing = dims.len().saturating_sub(self.rank());
        for (d, &extent) in dims[missing..].iter_mut().zip(self.shape().iter()) {
            if *d == -1 {
                *d = extent as i64;
            }
        }
        let shape = shape_of("expand", dims)?;
        if broadcast("expand", self.shape(), &shape)? != shape {
            let message = format!(
                "{} does not expand to {shape}: only axes of extent 1 grow",
                self.shape()
            );
            return Err(shape_error("expand", message));
        }
        self.map(|x| broadcast_to(x, &shape))
    }

    /// Zeros around: one `(before, after)` for each axis.
    ///
    /// # Errors
    /// When there is not one pair for each axis.
    #[track_caller]
    pub fn pad(&self, padding: impl AsRef<[(usize, usize)]>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.map(|x| composite::pad(x, padding.as_ref()))
    }

    /// The window `begin <= i < end` of each axis: one `(begin, end)` for each.
    ///
    /// # Errors
    /// When a window is not within its axis.
    #[track_caller]
    pub fn shrink(&self, bounds: impl AsRef<[(usize, usize)]>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.map(|x| x.shrink(bounds.as_ref()))
    }

    /// The order reversed along some axes.
    ///
    /// # Errors
    /// When an axis does not exist or is named twice.
    #[track_caller]
    pub fn flip(&self, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axes = axes_of("flip", self.shape(), axes)?;
        self.map(|x| composite::flip(x, &axes))
    }

    /// A new axis of extent 1 at that place.
    ///
    /// # Errors
    /// When the place is beyond the last axis.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let place = place_of("unsqueeze", self.shape(), axis as i64, self.rank() + 1)?;
        let mut dims = self.shape().to_vec();
        dims.insert(place, 1);
        self.map(|x| x.reshape(&dims))
    }

    /// Without some axes of extent 1; `..` drops all of them.
    ///
    /// # Errors
    /// When an axis that is named has another extent.
    #[track_caller]
    pub fn squeeze(&self, axes: impl Axes) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.shape();
        let all = axes.axes().is_none();
        let axes = axes_of("squeeze", shape, axes)?;
        if let Some(&axis) = axes.iter().find(|&&a| !all && shape[a] != 1) {
            let n = shape[axis];
            let message = format!("axis {axis} of shape {shape} has extent {n}, not 1");
            return Err(shape_error("squeeze", message));
        }
        let keeps = |&(k, &d): &(usize, &usize)| d != 1 || !axes.contains(&k);
        let kept: Vec<usize> = shape
            .iter()
            .enumerate()
            .filter(keeps)
            .map(|(_, &d)| d)
            .collect();
        self.map(|x| x.reshape(&kept))
    }

    /// Tensors joined along an axis that they have; dtypes are promoted.
    ///
    /// # Errors
    /// When there are none, or another axis differs.
    #[track_caller]
    pub fn cat<T: Borrow<Tensor>>(tensors: &[T], axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (nodes, needs_grad) = promoted("cat", tensors)?;
        let axis = axis_of("cat", nodes[0].shape(), axis.signed())?;
        Ok(Tensor::derived(composite::cat(&nodes, axis)?, needs_grad))
    }

    /// Tensors of one shape joined along a new axis at that place; dtypes are promoted.
    ///
    /// # Errors
    /// When there are none, or shapes differ.
    #[track_caller]
    pub fn stack<T: Borrow<Tensor>>(tensors: &[T], axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (nodes, needs_grad) = promoted("stack", tensors)?;
        let shape = nodes[0].shape();
        let place = place_of("stack", shape, axis.signed(), shape.rank() + 1)?;
        let mut order: Vec<usize> = (1..=shape.rank()).collect();
        order.insert(place, 0);
        let node = UOp::stack(&nodes)?.permute(&order)?;
        Ok(Tensor::derived(node, needs_grad))
    }

    /// This and another tensor of its shape along a new first axis.
    ///
    /// # Errors
    /// When the shapes differ.
    #[track_caller]
    pub fn stack_with(&self, other: impl Borrow<Tensor>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::stack(&[self, other.borrow()], 0)
    }
}

/// Nodes of several tensors in their common dtype, and whether one needs gradients.
fn promoted<T: Borrow<Tensor>>(op: &'static str, tensors: &[T]) -> Result<(Vec<UOp>, bool)> {
    let dtype = tensors
        .iter()
        .map(|t| t.borrow().dtype())
        .reduce(DType::promote);
    let Some(dtype) = dtype else {
        return Err(shape_error(op, "needs at least one tensor".into()));
    };
    let mut nodes = Vec::with_capacity(tensors.len());
    let mut needs_grad = false;
    for t in tensors {
        let (node, needs) = t.borrow().read();
        nodes.push(node.cast(dtype)?);
        needs_grad |= needs;
    }
    Ok((nodes, needs_grad))
}
