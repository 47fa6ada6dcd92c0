//! Products of vectors, matrices and tensors other than the matrix product: each names its axes and
//! leaves the rest to the contraction.

use super::args::{Axes, Integer, axis_of};
use super::contract::{Label, Term, contract};
use super::{Result, Shape, Site, Tensor, shape_error};

impl Tensor {
    /// NumPy's `dot`: of vectors the sum of their products, of matrices the matrix product, with a
    /// scalar the product; of others the sum over the last axis of this one and the last but one of
    /// the other, with all other axes of both side by side.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// assert_eq!(Tensor::from([1, 2, 3]).dot(&Tensor::from([4, 5, 6]))?.item()?, 32.0);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the extents of the two axes differ.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if self.rank() == 0 || other.rank() == 0 {
            return self.mul(other);
        }
        let last = other.rank().saturating_sub(2);
        self.pairs("dot", other, &[self.rank() - 1], &[last])
    }

    /// The sum of the products of all elements, in row-major order whatever the shapes.
    ///
    /// # Errors
    /// When the numbers of elements differ.
    #[track_caller]
    pub fn vdot(&self, other: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (n, m) = (self.numel(), other.numel());
        if n != m {
            let (x, y) = (self.shape(), other.shape());
            let message = format!("shapes {x} and {y} have {n} and {m} elements; they must agree");
            return Err(shape_error("vdot", message));
        }
        let (x, y) = (self.reshape([n])?, other.reshape([m])?);
        x.pairs("vdot", &y, &[0], &[0])
    }

    /// The sum of the products along the last axes of both, with all other axes side by side.
    ///
    /// # Errors
    /// When the extents of the last axes differ.
    #[track_caller]
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if self.rank() == 0 || other.rank() == 0 {
            return self.mul(other);
        }
        self.pairs("inner", other, &[self.rank() - 1], &[other.rank() - 1])
    }

    /// The product of each element with each of the other tensor; both count as vectors.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let table = Tensor::from([1, 2]).outer(&Tensor::from([3, 4, 5]))?;
    /// assert_eq!(table.to_vec::<i32>()?, [3, 4, 5, 6, 8, 10]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the result has more elements than memory can hold.
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (x, y) = (self.reshape([-1])?, other.reshape([-1])?);
        x.pairs("outer", &y, &[], &[])
    }

    /// The sum of the products along an axis; all other axes broadcast.
    ///
    /// # Errors
    /// When there is no such axis, or shapes do not broadcast.
    #[track_caller]
    pub fn vecdot(&self, other: &Tensor, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis.signed();
        let (a, b) = (
            axis_of("vecdot", self.shape(), axis)?,
            axis_of("vecdot", other.shape(), axis)?,
        );
        let (n, m) = (self.shape()[a], other.shape()[b]);
        if n != m {
            let (x, y) = (self.shape(), other.shape());
            let message = format!("shapes {x} and {y} have {n} and {m} elements along axis {axis}");
            return Err(shape_error("vecdot", message));
        }
        let (x, y) = (self.moveaxis(a as i64, -1)?, other.moveaxis(b as i64, -1)?);
        let row = |t: &Tensor, place: isize| t.unsqueeze(place);
        row(&x, -2)?.matmul(&row(&y, -1)?)?.squeeze([-2, -1])
    }

    /// The sum of products over `axes` last axes of this tensor and as many first ones of the other;
    /// the other axes of both stand side by side.
    ///
    /// # Errors
    /// When one has fewer axes, or the extents that meet differ.
    #[track_caller]
    pub fn tensordot(&self, other: &Tensor, axes: usize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if axes > self.rank().min(other.rank()) {
            let (x, y) = (self.shape(), other.shape());
            let message = format!("{axes} axes of shapes {x} and {y}, which have fewer");
            return Err(shape_error("tensordot", message));
        }
        let left: Vec<usize> = (self.rank() - axes..self.rank()).collect();
        let right: Vec<usize> = (0..axes).collect();
        self.pairs("tensordot", other, &left, &right)
    }

    /// [`tensordot`](Self::tensordot) over axes that are named: axis k of the first list meets axis k of
    /// the second.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::ones([2, 3, 4])?, Tensor::ones([4, 5, 2])?);
    /// assert_eq!(a.tensordot_axes(&b, [0, 2], [2, 0])?.shape()[..], [3, 5]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When an axis does not exist or is named twice, the lists differ in length, or extents differ.
    #[track_caller]
    pub fn tensordot_axes(
        &self,
        other: &Tensor,
        left: impl Axes,
        right: impl Axes,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let named = |t: &Tensor, axes: &dyn Fn() -> Option<Vec<i64>>| -> Result<Vec<usize>> {
            let Some(axes) = axes() else {
                return Ok((0..t.rank()).collect());
            };
            super::args::axes_of("tensordot", t.shape(), &axes)?;
            axes.iter()
                .map(|&a| axis_of("tensordot", t.shape(), a))
                .collect()
        };
        let (left, right) = (
            named(self, &|| left.axes())?,
            named(other, &|| right.axes())?,
        );
        self.pairs("tensordot", other, &left, &right)
    }

    /// The sum of products over pairs of axes.
    fn pairs(
        &self,
        op: &'static str,
        other: &Tensor,
        left: &[usize],
        right: &[usize],
    ) -> Result<Tensor> {
        let (x, y) = (self.shape(), other.shape());
        if left.len() != right.len() {
            let (n, m) = (left.len(), right.len());
            let message = format!("{n} axes of shape {x} meet {m} axes of shape {y}");
            return Err(shape_error(op, message));
        }
        let mut others: Vec<Label> = (0..y.rank()).map(|k| (x.rank() + k) as Label).collect();
        for (&a, &b) in left.iter().zip(right) {
            if x[a] != y[b] {
                let message = format!(
                    "shapes {x} and {y} differ in the extent that is summed: axis {a} has {}, axis \
                     {b} has {}",
                    x[a], y[b]
                );
                return Err(shape_error(op, message));
            }
            others[b] = a as Label;
        }
        let own: Vec<Label> = (0..x.rank() as Label).collect();
        let rest = own.iter().filter(|l| !left.contains(&(**l as usize)));
        let result: Vec<Label> = rest
            .chain(others.iter().filter(|l| **l as usize >= x.rank()))
            .copied()
            .collect();
        let dims = result
            .iter()
            .map(|&l| match (l as usize).checked_sub(x.rank()) {
                None => x[l as usize],
                Some(k) => y[k],
            });
        super::args::shape_of(op, dims.collect::<Vec<usize>>())?;
        let dtype = self.dtype().promote(other.dtype());
        let ((x, a), (y, b)) = (self.read(), other.read());
        let terms = vec![
            Term {
                node: x.cast(dtype)?,
                labels: own,
            },
            Term {
                node: y.cast(dtype)?,
                labels: others,
            },
        ];
        Ok(Tensor::derived(contract(terms, &result)?, a || b))
    }

    /// Kronecker's product: each element times the whole other tensor, as blocks.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let blocks = Tensor::from([[1, 2]]).kron(&Tensor::from([[1, 1], [0, 1]]))?;
    /// assert_eq!(blocks.to_vec::<i32>()?, [1, 1, 2, 2, 0, 1, 0, 2]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the result has more elements than memory can hold.
    #[track_caller]
    pub fn kron(&self, other: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let rank = self.rank().max(other.rank());
        let filled = |t: &Tensor| [&vec![1; rank - t.rank()][..], &t.shape()[..]].concat();
        let (x, y) = (filled(self), filled(other));
        let (mut left, mut right, mut dims) = (Vec::new(), Vec::new(), Vec::new());
        for (&n, &m) in x.iter().zip(&y) {
            left.extend([n, 1]);
            right.extend([1, m]);
            dims.push(n.saturating_mul(m));
        }
        let dims: Shape = super::args::shape_of("kron", &dims)?;
        self.reshape(left)?
            .mul(other.reshape(right)?)?
            .reshape(&dims)
    }

    /// The cross product of vectors of three elements along an axis; all other axes broadcast.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (x, y) = (Tensor::from([1, 0, 0]), Tensor::from([0, 1, 0]));
    /// assert_eq!(x.cross(&y, -1)?.to_vec::<i32>()?, [0, 0, 1]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such axis, its extent is not 3 in both, or shapes do not broadcast.
    #[track_caller]
    pub fn cross(&self, other: &Tensor, axis: impl Integer) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let axis = axis.signed();
        let last = |t: &Tensor| -> Result<Tensor> {
            let k = axis_of("cross", t.shape(), axis)?;
            if t.shape()[k] != 3 {
                let message = format!("axis {axis} of shape {} has not 3 elements", t.shape());
                return Err(shape_error("cross", message));
            }
            t.moveaxis(k as i64, -1)
        };
        let (x, y) = (last(self)?, last(other)?);
        // Elements 1, 2, 0 of one times 2, 0, 1 of the other, less the same the other way round.
        let (x1, x2) = (x.roll([-1], -1)?, x.roll([-2], -1)?);
        let (y1, y2) = (y.roll([-1], -1)?, y.roll([-2], -1)?);
        let cross = x1.mul(y2)?.sub(x2.mul(y1)?)?;
        let rank = cross.rank() as i64;
        cross.moveaxis(-1, if axis < 0 { axis + rank } else { axis })
    }
}
