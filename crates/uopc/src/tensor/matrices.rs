//! Tensors that are made by their positions: evenly spaced numbers, diagonals, triangles, grids.

use std::borrow::Borrow;

use super::args::{Dims, shape_of};
use super::arrange::{diagonal, two_axes};
use super::{DType, Operand, Result, Shape, Site, Tensor, UOp, dtype_error, shape_error};
use crate::ir::Scalar;

/// How the axes of a grid are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Indexing {
    /// As indices of a matrix: axis k of each result belongs to tensor k.
    Ij,
    /// As coordinates of a picture: the first two axes are exchanged.
    Xy,
}

impl Tensor {
    /// `n` f32 numbers from `start` to `stop`, evenly spaced, both ends exact.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// assert_eq!(Tensor::linspace(0, 1, 5)?.to_vec::<f32>()?, [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When an end is no number, or there are more than memory can hold.
    #[track_caller]
    pub fn linspace(
        start: impl Into<Operand>,
        stop: impl Into<Operand>,
        n: usize,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::linspace_as(DType::F32, start, stop, n, true)
    }

    /// [`linspace`](Self::linspace) in a dtype of choice, and without `stop` if not `endpoint`: then
    /// the numbers are those of n + 1 but the last.
    ///
    /// Number k is `start + k * step`, computed in f64 as NumPy does, and rounded to the dtype;
    /// integers are rounded down.
    ///
    /// # Errors
    /// When an end is no number, or there are more than memory can hold.
    #[track_caller]
    pub fn linspace_as(
        dtype: DType,
        start: impl Into<Operand>,
        stop: impl Into<Operand>,
        n: usize,
        endpoint: bool,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let number = |end: Operand| match end {
            Operand::Float(value) => Ok(value),
            Operand::Int(value) => Ok(value as f64),
            _ => {
                let message = "ends are numbers, not tensors or bools".into();
                Err(dtype_error("linspace", message))
            }
        };
        let (start, stop) = (number(start.into())?, number(stop.into())?);
        shape_of("linspace", [n])?;
        let parts = if endpoint { n.saturating_sub(1) } else { n };
        let k = Tensor::arange(n)?;
        let steps = k.cast(DType::F64)?;
        let step = (stop - start) / parts.max(1) as f64;
        let way = if step == 0.0 {
            // The step may have been too small for f64 where the ends differ.
            steps.mul(1.0 / parts.max(1) as f64)?.mul(stop - start)?
        } else {
            steps.mul(step)?
        };
        let mut numbers = way.add(start)?;
        if endpoint && n > 1 {
            let last = Tensor::full_as(DType::F64, (), stop)?;
            numbers = k.eq(n - 1)?.where_(last, &numbers)?;
        }
        if dtype.is_int() {
            // Down, where a cast rounds towards zero.
            let near = numbers.trunc()?;
            numbers = near.sub(numbers.lt(&near)?.cast(DType::F64)?)?;
        }
        numbers.cast(dtype)
    }

    /// The f32 matrix of `n` rows and as many columns with ones on its diagonal, zeros elsewhere.
    ///
    /// # Errors
    /// When it has more elements than memory can hold.
    #[track_caller]
    pub fn eye(n: usize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::eye_as(DType::F32, n, n, 0)
    }

    /// `rows` times `columns` zeros with ones where the column is the row plus `offset`.
    ///
    /// ```
    /// # use uopc::{DType, Tensor};
    /// let above = Tensor::eye_as(DType::I32, 2, 3, 1)?;
    /// assert_eq!(above.to_vec::<i32>()?, [0, 1, 0, 0, 0, 1]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it has more elements than memory can hold.
    #[track_caller]
    pub fn eye_as(dtype: DType, rows: usize, columns: usize, offset: i64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = shape_of("eye", [rows, columns])?;
        let hot = compare_places(&shape, offset, |column, diagonal| column.eq(diagonal))?;
        Ok(Tensor::new(hot.cast(dtype)?, false))
    }

    /// Of a vector the matrix with it on a diagonal, of a matrix that diagonal: the main one, or so
    /// many above it. See [`diag_embed`](Self::diag_embed) and [`diagonal`](Self::diagonal) for more
    /// axes.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let matrix = Tensor::from([1, 2]).diag(-1)?;
    /// assert_eq!(matrix.to_vec::<i32>()?, [0, 0, 0, 1, 0, 0, 0, 2, 0]);
    /// assert_eq!(matrix.diag(-1)?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it is neither, or the matrix is too large.
    #[track_caller]
    pub fn diag(&self, offset: i64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        match self.rank() {
            1 => self.diag_embed(offset, 0, 1),
            2 => self.map(|x| diagonal(x, offset, 0, 1)),
            _ => {
                let message = format!(
                    "shape {} is neither a vector nor a matrix; use diag_embed or diagonal",
                    self.shape()
                );
                Err(shape_error("diag", message))
            }
        }
    }

    /// The last axis as a diagonal of two axes at those places, zeros elsewhere.
    ///
    /// # Errors
    /// When there is no axis, there are no such two places, or the result is too large.
    #[track_caller]
    pub fn diag_embed(&self, offset: i64, first: isize, second: isize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.shape();
        let Some((&n, before)) = shape.split_last() else {
            let message = "a scalar has no axis that could be a diagonal; reshape it".into();
            return Err(shape_error("diag_embed", message));
        };
        let side = n.saturating_add(usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX));
        let mut dims = [before, &[side, side]].concat();
        let full = shape_of("diag_embed", &dims)?;
        let [a, b] = two_axes("diag_embed", &full, [first, second])?;
        let node = self.map(|x| {
            // Each element in its column, in all rows, of which one keeps it.
            let rank = dims.len();
            let mut row = before.to_vec();
            row.extend([1, n]);
            let skipped = usize::try_from(offset).unwrap_or(0);
            let mut around = vec![(0, 0); rank];
            around[rank - 1] = (skipped, side - n - skipped);
            let row = crate::ir::composite::pad(&x.reshape(&row)?, &around)?.expand(&dims)?;
            let hot = compare_places(&full, offset, |column, diagonal| column.eq(diagonal))?;
            hot.where_(&row, &UOp::full(Scalar::zero(x.dtype()), &full)?)
        })?;
        // The two axes are the last ones; they go to their places, the smaller one first.
        dims.truncate(before.len());
        let mut order: Vec<usize> = (0..before.len()).collect();
        let mut places = [(a, before.len()), (b, before.len() + 1)];
        places.sort_unstable();
        for (place, axis) in places {
            order.insert(place, axis);
        }
        node.permute(order)
    }

    /// The lower triangles of matrices, the last two axes: zeros where the column is beyond the row
    /// plus `offset`, whatever stood there.
    ///
    /// # Errors
    /// When there are fewer than two axes.
    #[track_caller]
    pub fn tril(&self, offset: i64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.triangle("tril", offset, |column, diagonal| {
            diagonal.cmplt(column)?.logical_not()
        })
    }

    /// The upper triangles of matrices, the last two axes: zeros where the column is before the row
    /// plus `offset`, whatever stood there.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let mask = Tensor::ones([2, 3])?.triu(1)?;
    /// assert_eq!(mask.to_vec::<f32>()?, [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there are fewer than two axes.
    #[track_caller]
    pub fn triu(&self, offset: i64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.triangle("triu", offset, |column, diagonal| {
            column.cmplt(diagonal)?.logical_not()
        })
    }

    fn triangle(
        &self,
        op: &'static str,
        offset: i64,
        kept: impl FnOnce(&UOp, &UOp) -> Result<UOp>,
    ) -> Result<Tensor> {
        let shape = self.shape();
        if shape.rank() < 2 {
            let message = format!("shape {shape} holds no matrix; it needs two axes");
            return Err(shape_error(op, message));
        }
        let kept = compare_places(shape, offset, kept)?;
        self.map(|x| kept.where_(x, &UOp::full(Scalar::zero(x.dtype()), shape)?))
    }

    /// The coordinates of all points of a grid: one tensor for each of these, repeated along the axes
    /// of all others. Scalars count as vectors of one element.
    ///
    /// ```
    /// # use uopc::{Tensor, tensor::Indexing};
    /// let axes = [Tensor::arange(2)?, Tensor::arange(3)?];
    /// let grid = Tensor::meshgrid(&axes, Indexing::Ij)?;
    /// assert_eq!(grid[0].to_vec::<i32>()?, [0, 0, 0, 1, 1, 1]);
    /// assert_eq!(grid[1].to_vec::<i32>()?, [0, 1, 2, 0, 1, 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When one has more than one axis, or the grid is too large.
    #[track_caller]
    pub fn meshgrid<T: Borrow<Tensor>>(tensors: &[T], indexing: Indexing) -> Result<Vec<Tensor>> {
        let _site = Site::caller().enter();
        let mut dims = Vec::with_capacity(tensors.len());
        for t in tensors {
            let shape = t.borrow().shape();
            if shape.rank() > 1 {
                let message = format!("shape {shape} is no vector; flatten it");
                return Err(shape_error("meshgrid", message));
            }
            dims.push(shape.numel());
        }
        let mut axes: Vec<usize> = (0..dims.len()).collect();
        if indexing == Indexing::Xy && dims.len() > 1 {
            dims.swap(0, 1);
            axes.swap(0, 1);
        }
        let shape = shape_of("meshgrid", &dims)?;
        let along = |(t, axis): (&T, usize)| {
            let mut ones = vec![1; dims.len()];
            ones[axis] = dims[axis];
            t.borrow().map(|x| x.reshape(&ones)?.expand(&shape))
        };
        tensors.iter().zip(axes).map(along).collect()
    }

    /// Memory for a shape without values of its own in NumPy; here zeros, as reading what happens to
    /// be in memory would make results depend on it.
    ///
    /// # Errors
    /// When the extents are no shape.
    #[track_caller]
    pub fn empty(shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::zeros(shape)
    }

    /// Zeros of this tensor's shape and dtype, as [`empty`](Self::empty).
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn empty_like(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.zeros_like()
    }

    /// Ones of this tensor's shape and dtype.
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.full_like(1)
    }

    /// A number or scalar tensor in this tensor's shape and dtype.
    ///
    /// # Errors
    /// When an integer is too large for the dtype, or the tensor no scalar.
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Operand>) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::full_of(value.into(), self.dtype(), self.shape())
    }
}

/// The column number of each element of the last two axes beside the row number plus an offset.
fn compare_places(
    shape: &Shape,
    offset: i64,
    compare: impl FnOnce(&UOp, &UOp) -> Result<UOp>,
) -> Result<UOp> {
    let rank = shape.rank();
    let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
    let far = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    // Beyond the matrix one offset is like another.
    let offset = offset.clamp(-far(rows), far(columns));
    let dtype = match i32::try_from(rows.saturating_add(columns)) {
        Ok(_) => DType::I32,
        Err(_) => DType::I64,
    };
    let column = UOp::iota(columns, dtype)?.reshape(&[1, columns])?;
    let row = UOp::iota(rows, dtype)?;
    let offset = UOp::full(Scalar::from_i128(dtype, offset as i128), row.shape())?;
    let diagonal = row.add(&offset)?.reshape(&[rows, 1])?;
    let matrix = [rows, columns];
    let compared = compare(&column.expand(&matrix)?, &diagonal.expand(&matrix)?)?;
    let mut ones = vec![1; rank - 2];
    ones.extend(matrix);
    compared.reshape(&ones)?.expand(shape)
}
