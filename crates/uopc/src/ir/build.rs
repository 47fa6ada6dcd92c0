//! Typed constructors and operators, so that rules and gradients read like mathematics.
//!
//! Methods return `Result`; the operators `+ - * /` and unary `-` on references panic with the
//! same text at the caller's line, and [`UOp::new`] is their fallible twin. A number stands for
//! a constant of the other side's dtype and shape only through [`UOp::full_like`].

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::dtype::DType;
use super::fold::fold_of;
use super::op::{
    BufferId, Combine, Exec, Fold, LiveBuffer, Op, ParamMode, ReduceOp, Space, StageKind,
};
use super::scalar::Scalar;
use super::shape::Shape;
use super::uop::{Sources, UOp};
use crate::error::Result;

impl UOp {
    // ---- leaves ----

    /// A scalar constant.
    pub fn constant(value: Scalar) -> UOp {
        UOp::leaf(Op::Const(value))
    }

    /// A scalar constant of that dtype nearest to `value` (bool: whether it is not 0).
    pub fn float(value: f64, dtype: DType) -> UOp {
        UOp::constant(Scalar::from_f64(dtype, value))
    }

    /// A scalar constant of that dtype; integers wrap.
    pub fn int(value: i64, dtype: DType) -> UOp {
        UOp::constant(Scalar::from_i128(dtype, value as i128))
    }

    /// A bool constant.
    pub fn truth(value: bool) -> UOp {
        UOp::constant(Scalar::from_bool(value))
    }

    /// A numbered buffer of `n` elements.
    pub fn slot(slot: u32, dtype: DType, n: usize) -> UOp {
        UOp::leaf(Op::Buffer {
            id: BufferId::Slot(slot),
            dtype,
            n,
        })
    }

    /// A buffer with memory of its own: never equal to another.
    pub fn live(buffer: Arc<LiveBuffer>, dtype: DType, n: usize) -> UOp {
        UOp::leaf(Op::Buffer {
            id: BufferId::Live(buffer),
            dtype,
            n,
        })
    }

    /// A kernel's parameter.
    pub fn param(slot: u32, mode: ParamMode, dtype: DType, n: usize) -> UOp {
        UOp::leaf(Op::Param {
            slot,
            mode,
            dtype,
            n,
        })
    }

    /// Scratch memory of a kernel.
    pub fn local(id: u32, space: Space, dtype: DType, n: usize) -> UOp {
        UOp::leaf(Op::Local {
            id,
            space,
            dtype,
            n,
        })
    }

    /// The integers `0..n`.
    ///
    /// # Errors
    /// When the dtype is no integer or too narrow.
    pub fn iota(n: usize, dtype: DType) -> Result<UOp> {
        UOp::new(Op::Iota { n, dtype }, Sources::new())
    }

    fn leaf(op: Op) -> UOp {
        UOp::new(op, Sources::new()).expect("a leaf has no sources that could be wrong")
    }

    // ---- constants of a node's shape ----

    /// The constant `value` in this node's dtype, as seen by [`UOp::full`].
    ///
    /// # Errors
    /// Never for a well-formed node.
    pub fn full_like(&self, value: f64) -> Result<UOp> {
        UOp::full(Scalar::from_f64(self.dtype(), value), self.shape())
    }

    /// A constant of a shape: the scalar itself for `()`, else its RESHAPE to ones, EXPANDed.
    ///
    /// # Errors
    /// Never for a shape that fits memory.
    pub fn full(value: Scalar, shape: &Shape) -> Result<UOp> {
        UOp::constant(value).broadcast_scalar(shape)
    }

    /// A scalar repeated to a shape.
    ///
    /// # Errors
    /// When the node is no scalar.
    pub fn broadcast_scalar(&self, shape: &Shape) -> Result<UOp> {
        if shape.rank() == 0 && self.shape().rank() == 0 {
            return Ok(self.clone());
        }
        let ones: SmallVec<[usize; 6]> = smallvec![1; shape.rank()];
        self.reshape(&ones)?.expand(shape)
    }

    // ---- arithmetic ----

    fn unary(&self, op: Op) -> Result<UOp> {
        let src: Sources = smallvec![self.clone()];
        UOp::new(op, src)
    }

    fn binary(&self, op: Op, b: &UOp) -> Result<UOp> {
        let src: Sources = smallvec![self.clone(), b.clone()];
        UOp::new(op, src)
    }

    /// A cast, or the node itself if it has that dtype.
    ///
    /// # Errors
    /// Never; every dtype converts to every other.
    pub fn cast(&self, dtype: DType) -> Result<UOp> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        self.unary(Op::Cast(dtype))
    }

    /// The same bits as another dtype of that width.
    ///
    /// # Errors
    /// When the widths differ.
    pub fn bitcast(&self, dtype: DType) -> Result<UOp> {
        self.unary(Op::Bitcast(dtype))
    }

    /// `a * b + c`, rounded once.
    ///
    /// # Errors
    /// When dtypes or shapes differ.
    pub fn mulacc(&self, b: &UOp, c: &UOp) -> Result<UOp> {
        let src: Sources = smallvec![self.clone(), b.clone(), c.clone()];
        UOp::new(Op::MulAcc, src)
    }

    /// `self ? a : b` for a bool node.
    ///
    /// # Errors
    /// When this is no bool, or dtypes or shapes differ.
    pub fn where_(&self, a: &UOp, b: &UOp) -> Result<UOp> {
        let src: Sources = smallvec![self.clone(), a.clone(), b.clone()];
        UOp::new(Op::Where, src)
    }

    /// sin(x + k quarter turns).
    ///
    /// # Errors
    /// When the source is no float.
    pub fn sin_turned(&self, k: u8) -> Result<UOp> {
        self.unary(Op::Sin(k % 4))
    }

    /// `!self` for bool: exclusive or with true.
    ///
    /// # Errors
    /// When this is no bool.
    pub fn logical_not(&self) -> Result<UOp> {
        self.xor(&UOp::full(Scalar::from_bool(true), self.shape())?)
    }

    /// `self == b`, false where either is NaN.
    ///
    /// # Errors
    /// When dtypes or shapes differ.
    pub fn eq(&self, b: &UOp) -> Result<UOp> {
        self.cmpne(b)?.logical_not()
    }

    /// `-self`, as a product with -1 (bool has none).
    ///
    /// # Errors
    /// When this is a bool.
    pub fn neg(&self) -> Result<UOp> {
        self.mul(&UOp::full(
            Scalar::from_i128(self.dtype(), -1),
            self.shape(),
        )?)
    }

    /// `self - b`, as `self + b * -1`: exact, since a product with -1 is.
    ///
    /// # Errors
    /// When dtypes or shapes differ.
    pub fn sub(&self, b: &UOp) -> Result<UOp> {
        self.add(&b.neg()?)
    }

    // ---- movement ----

    /// The same elements in another shape; the node itself if it has that shape.
    ///
    /// # Errors
    /// When the element counts differ.
    pub fn reshape(&self, shape: &[usize]) -> Result<UOp> {
        if self.shape()[..] == *shape {
            return Ok(self.clone());
        }
        self.unary(Op::Reshape(Shape::new(shape)))
    }

    /// Repeats axes of extent 1; the node itself if it has that shape.
    ///
    /// # Errors
    /// When another axis would change.
    pub fn expand(&self, shape: &[usize]) -> Result<UOp> {
        if self.shape()[..] == *shape {
            return Ok(self.clone());
        }
        self.unary(Op::Expand(Shape::new(shape)))
    }

    /// Axis k of the result is axis `order[k]`; the node itself for the order it has.
    ///
    /// # Errors
    /// When `order` is no order of the axes.
    pub fn permute(&self, order: &[usize]) -> Result<UOp> {
        if order.len() == self.shape().rank() && order.iter().enumerate().all(|(k, &p)| k == p) {
            return Ok(self.clone());
        }
        let order: SmallVec<[u8; 16]> = order
            .iter()
            .map(|&p| p.try_into().unwrap_or(u8::MAX))
            .collect();
        self.unary(Op::Permute(order[..].into()))
    }

    /// The window `begin..end` of each axis; the node itself if that is all of it.
    ///
    /// # Errors
    /// When a window leaves its axis.
    pub fn shrink(&self, bounds: &[(usize, usize)]) -> Result<UOp> {
        let whole = |(&(b, e), &n): (&(usize, usize), &usize)| b == 0 && e == n;
        if bounds.len() == self.shape().rank() && bounds.iter().zip(self.shape().iter()).all(whole)
        {
            return Ok(self.clone());
        }
        self.unary(Op::Shrink(bounds.into()))
    }

    // ---- structure ----

    /// Joins nodes of one shape along a new first axis.
    ///
    /// # Errors
    /// When there are none or their types differ.
    pub fn stack(parts: &[UOp]) -> Result<UOp> {
        UOp::new(Op::Stack, Sources::from(parts))
    }

    /// Indexes the first axes by integer nodes.
    ///
    /// # Errors
    /// When indices are not integers of one type or too many.
    pub fn index(&self, indices: &[UOp]) -> Result<UOp> {
        let mut src: Sources = smallvec![self.clone()];
        src.extend(indices.iter().cloned());
        UOp::new(Op::Index, src)
    }

    /// Adds the rows of this node into zeros of a shape, each at the place along the first axes
    /// that the integer nodes name: the transpose of [`UOp::index`]. If these have shape S, this
    /// node's shape is S + the axes of `shape` that are not indexed. Rows are added in the
    /// row-major order of S; what is out of range adds nothing.
    ///
    /// ```
    /// use uopc::interp::{graph, Array};
    /// use uopc::ir::{DType, UOp};
    ///
    /// let at = UOp::slot(0, DType::I32, 4);
    /// let ones = UOp::float(1.0, DType::F32).reshape(&[1])?.expand(&[4])?;
    /// let counts = ones.scatter_add(&[at], &[3])?;
    /// let data = Array::from_ints(DType::I32, &[4], &[2, 0, 2, 9])?;
    /// let values = graph::eval(&[counts], &|_| Some(data.clone()))?;
    /// assert_eq!(values[0].to_f64(), [1.0, 0.0, 2.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When indices are not integers of one type or too many, or this node's shape does not fit.
    pub fn scatter_add(&self, indices: &[UOp], shape: &[usize]) -> Result<UOp> {
        let mut src: Sources = smallvec![self.clone()];
        src.extend(indices.iter().cloned());
        UOp::new(Op::ScatterAdd(Shape::new(shape)), src)
    }

    /// The running combination along the last axis: element k combines the elements up to k, one
    /// after the other.
    ///
    /// ```
    /// use uopc::interp::{graph, Array};
    /// use uopc::ir::{DType, UOp, op::ReduceOp};
    ///
    /// let sums = UOp::slot(0, DType::I32, 4).scan(ReduceOp::Add)?;
    /// let data = Array::from_ints(DType::I32, &[4], &[1, 2, 3, 4])?;
    /// let values = graph::eval(&[sums], &|_| Some(data.clone()))?;
    /// assert_eq!(values[0].to_f64(), [1.0, 3.0, 6.0, 10.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no axis.
    pub fn scan(&self, op: ReduceOp) -> Result<UOp> {
        UOp::new(Op::Scan(op), std::slice::from_ref(self))
    }

    /// The positions, as i64, that sort the last axis in ascending order. Equal elements keep their
    /// order, -0 equals +0, and NaNs come last.
    ///
    /// ```
    /// use uopc::interp::{graph, Array};
    /// use uopc::ir::{DType, UOp};
    ///
    /// let order = UOp::slot(0, DType::I32, 4).argsort()?;
    /// let data = Array::from_ints(DType::I32, &[4], &[3, 1, 3, 2])?;
    /// let values = graph::eval(&[order], &|_| Some(data.clone()))?;
    /// assert_eq!(values[0].to_f64(), [1.0, 3.0, 0.0, 2.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no axis.
    pub fn argsort(&self) -> Result<UOp> {
        UOp::new(Op::ArgSort, std::slice::from_ref(self))
    }

    /// Combines the last `n` axes; the node itself for n = 0. The fold of a float sum is
    /// decided here, see [`fold_of`].
    ///
    /// # Errors
    /// When there are fewer axes.
    pub fn reduce(&self, op: ReduceOp, n: usize) -> Result<UOp> {
        if n == 0 {
            return Ok(self.clone());
        }
        self.reduce_as(op, n, fold_of(op, self, n))
    }

    /// [`UOp::reduce`] with a fold that was decided elsewhere.
    ///
    /// # Errors
    /// When there are fewer axes.
    pub fn reduce_as(&self, op: ReduceOp, n: usize, fold: Fold) -> Result<UOp> {
        self.unary(Op::Reduce {
            op,
            n: n.try_into().unwrap_or(u8::MAX),
            fold,
        })
    }

    /// The identity with a request.
    ///
    /// # Errors
    /// Never.
    pub fn stage(&self, kind: StageKind) -> Result<UOp> {
        self.unary(Op::Stage(kind))
    }

    // ---- loops ----

    /// A loop counter below `extent`.
    ///
    /// # Errors
    /// When the extent is no scalar i32 or i64.
    pub fn range(extent: &UOp, id: u32, exec: Exec) -> Result<UOp> {
        extent.unary(Op::Range { id, exec })
    }

    /// Reads an element, or 0 where the gate is false.
    ///
    /// # Errors
    /// When the first is no memory, the index no integer or the gate no bool.
    pub fn load(&self, index: &UOp, gate: Option<&UOp>) -> Result<UOp> {
        let mut src: Sources = smallvec![self.clone(), index.clone()];
        src.extend(gate.cloned());
        UOp::new(Op::Load, src)
    }

    /// Writes a value, or two for [`Combine::MulAcc`].
    ///
    /// # Errors
    /// When the first is no memory or a value has another dtype.
    pub fn store(
        &self,
        index: &UOp,
        values: &[UOp],
        combine: Combine,
        gate: Option<&UOp>,
    ) -> Result<UOp> {
        let mut src: Sources = smallvec![self.clone(), index.clone()];
        src.extend(values.iter().cloned());
        src.extend(gate.cloned());
        UOp::new(
            Op::Store {
                combine,
                gated: gate.is_some(),
            },
            src,
        )
    }

    /// Puts a store under loops, outermost first.
    ///
    /// # Errors
    /// When this is no store or the others no ranges.
    pub fn end(&self, ranges: &[UOp]) -> Result<UOp> {
        let mut src: Sources = smallvec![self.clone()];
        src.extend(ranges.iter().cloned());
        UOp::new(Op::End, src)
    }

    /// A list in order.
    pub fn sink(items: &[UOp]) -> UOp {
        UOp::new(Op::Sink, Sources::from(items)).expect("a sink takes anything")
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:expr;)*) => {
        impl UOp { $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the source's dtype does not fit.
            pub fn $name(&self) -> Result<UOp> { self.unary($op) }
        )* }
    };
}

unary_methods! {
    /// 1/x.
    recip => Op::Recip;
    /// 2 to the power x.
    exp2 => Op::Exp2;
    /// Logarithm to base 2.
    log2 => Op::Log2;
    /// e to the power x.
    exp => Op::Exp;
    /// Square root.
    sqrt => Op::Sqrt;
    /// Sine.
    sin => Op::Sin(0);
    /// Cosine.
    cos => Op::Sin(1);
    /// Rounds towards zero.
    trunc => Op::Trunc;
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:expr;)*) => {
        impl UOp { $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When dtypes or shapes differ or the dtype does not fit.
            pub fn $name(&self, b: &UOp) -> Result<UOp> { self.binary($op, b) }
        )* }
    };
}

binary_methods! {
    /// a + b.
    add => Op::Add;
    /// a * b.
    mul => Op::Mul;
    /// The larger.
    maximum => Op::Max;
    /// a / b on floats.
    div => Op::Div;
    /// a < b.
    cmplt => Op::CmpLt;
    /// a != b.
    cmpne => Op::CmpNe;
    /// Integer division rounded down.
    floordiv => Op::FloorDiv;
    /// Its remainder.
    floormod => Op::FloorMod;
    /// Bitwise and.
    and => Op::And;
    /// Bitwise or.
    or => Op::Or;
    /// Bitwise exclusive or.
    xor => Op::Xor;
    /// Shift left.
    shl => Op::Shl;
    /// Shift right.
    shr => Op::Shr;
}

macro_rules! operators {
    ($($trait:ident $method:ident;)*) => { $(
        impl std::ops::$trait for &UOp {
            type Output = UOp;
            #[track_caller]
            fn $method(self, b: &UOp) -> UOp {
                UOp::$method(self, b).unwrap_or_else(|e| panic!("{e}"))
            }
        }
        impl std::ops::$trait<&UOp> for UOp {
            type Output = UOp;
            #[track_caller]
            fn $method(self, b: &UOp) -> UOp {
                UOp::$method(&self, b).unwrap_or_else(|e| panic!("{e}"))
            }
        }
    )* };
}

operators! { Add add; Mul mul; Sub sub; Div div; }

impl std::ops::Neg for &UOp {
    type Output = UOp;
    #[track_caller]
    fn neg(self) -> UOp {
        UOp::neg(self).unwrap_or_else(|e| panic!("{e}"))
    }
}
