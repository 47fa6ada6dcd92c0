//! What may stand beside a tensor in an operation, and how operands come to one dtype and shape.

use half::{bf16, f16};
use smallvec::{SmallVec, smallvec};

use super::{DType, Result, Shape, Tensor, UOp, dtype_error, shape_error};
use crate::ir::Scalar;

/// The extents of a shape that is being made.
type Extents = SmallVec<[usize; 6]>;

/// A tensor or a number.
#[derive(Clone)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// A float: takes the dtype of a float tensor, makes an integer tensor an f32.
    Float(f64),
    /// An integer: takes the tensor's dtype (bool: makes it an i32).
    Int(i128),
    /// A truth value: takes the tensor's dtype.
    Bool(bool),
}

impl From<&Tensor> for Operand {
    fn from(t: &Tensor) -> Operand {
        Operand::Tensor(t.clone())
    }
}

impl From<&Operand> for Operand {
    fn from(operand: &Operand) -> Operand {
        operand.clone()
    }
}

impl From<Tensor> for Operand {
    fn from(t: Tensor) -> Operand {
        Operand::Tensor(t)
    }
}

impl From<bool> for Operand {
    fn from(value: bool) -> Operand {
        Operand::Bool(value)
    }
}

macro_rules! numbers {
    ($variant:ident: $($type:ty)*) => { $(
        impl From<$type> for Operand {
            fn from(value: $type) -> Operand {
                Operand::$variant(value.into())
            }
        }
    )* };
}

numbers! { Float: f16 bf16 f32 f64 }
numbers! { Int: i8 i16 i32 i64 u8 u16 u32 u64 }

impl From<usize> for Operand {
    fn from(value: usize) -> Operand {
        Operand::Int(value as i128)
    }
}

impl From<isize> for Operand {
    fn from(value: isize) -> Operand {
        Operand::Int(value as i128)
    }
}

/// Operands as nodes of one dtype and shape, and whether one of them needs gradients.
pub(super) struct Unified<const N: usize> {
    pub nodes: [UOp; N],
    pub needs_grad: bool,
}

/// Brings operands to a common dtype and shape.
pub(super) fn unify<const N: usize>(
    op: &'static str,
    operands: [&Operand; N],
) -> Result<Unified<N>> {
    unify_as(op, operands, |dtype| dtype)
}

/// [`unify`], with the common dtype changed by `adjust`.
pub(super) fn unify_as<const N: usize>(
    op: &'static str,
    operands: [&Operand; N],
    adjust: impl FnOnce(DType) -> DType,
) -> Result<Unified<N>> {
    let dtype = adjust(common_dtype(operands));
    let read = operands.map(|o| match o {
        Operand::Tensor(t) => Some(t.read()),
        _ => None,
    });
    let mut shapes = read.iter().flatten().map(|(node, _)| node.shape());
    let first = shapes.next().map_or_else(Shape::scalar, Shape::clone);
    let shape = shapes.try_fold(first, |a, b| broadcast(op, &a, b))?;
    let needs_grad = read.iter().flatten().any(|(_, needs)| *needs);
    let mut nodes: SmallVec<[UOp; N]> = SmallVec::new();
    for (operand, read) in operands.iter().zip(&read) {
        nodes.push(match read {
            Some((node, _)) => broadcast_to(&node.cast(dtype)?, &shape)?,
            None => UOp::full(number(op, operand, dtype)?, &shape)?,
        });
    }
    let nodes = nodes.into_inner().expect("as many nodes as operands");
    Ok(Unified { nodes, needs_grad })
}

/// The dtype that operands have together.
fn common_dtype<const N: usize>(operands: [&Operand; N]) -> DType {
    let tensors = operands.iter().filter_map(|o| match o {
        Operand::Tensor(t) => Some(t.dtype()),
        _ => None,
    });
    let tensors = tensors.reduce(DType::promote);
    // Among numbers alone a float counts more than an integer, and that more than a bool.
    operands
        .iter()
        .fold(tensors.unwrap_or(DType::Bool), |dtype, o| match o {
            Operand::Float(_) if !dtype.is_float() => DType::F32,
            Operand::Int(_) if dtype == DType::Bool => DType::I32,
            _ => dtype,
        })
}

/// A number as a constant of a dtype.
pub(super) fn number(op: &'static str, operand: &Operand, dtype: DType) -> Result<Scalar> {
    match *operand {
        Operand::Float(value) => Ok(Scalar::from_f64(dtype, value)),
        Operand::Bool(value) => Ok(Scalar::from_i128(dtype, value as i128)),
        Operand::Int(value) => match dtype.int_range() {
            Some((lo, hi)) if !(lo..=hi).contains(&value) => {
                let message = format!("{value} does not fit {dtype}; cast the tensor first");
                Err(dtype_error(op, message))
            }
            _ => Ok(Scalar::from_i128(dtype, value)),
        },
        Operand::Tensor(_) => unreachable!("a tensor is a node already"),
    }
}

/// The shape to which two shapes broadcast: aligned at their last axes, an axis of extent 1 (or a
/// missing one) takes the other's extent.
pub(super) fn broadcast(op: &'static str, a: &Shape, b: &Shape) -> Result<Shape> {
    if a == b {
        return Ok(a.clone());
    }
    let rank = a.rank().max(b.rank());
    let extent = |s: &Shape, k: usize| if k < s.rank() { s[s.rank() - 1 - k] } else { 1 };
    let mut dims: Extents = smallvec![0; rank];
    for k in 0..rank {
        dims[rank - 1 - k] = match (extent(a, k), extent(b, k)) {
            (n, m) if n == m => n,
            (1, m) => m,
            (n, 1) => n,
            (n, m) => {
                let axis = k as i64;
                let message = format!(
                    "shapes {a} and {b} differ in axis {} ({n} and {m}); extents that meet are \
                     equal or one of them is 1, so reshape or expand one",
                    -1 - axis
                );
                return Err(shape_error(op, message));
            }
        };
    }
    Ok(Shape::new(&dims))
}

/// The node repeated to a shape that it broadcasts to.
pub(super) fn broadcast_to(node: &UOp, shape: &Shape) -> Result<UOp> {
    if node.shape() == shape {
        return Ok(node.clone());
    }
    let mut dims: Extents = smallvec![1; shape.rank() - node.shape().rank()];
    dims.extend_from_slice(node.shape());
    node.reshape(&dims)?.expand(shape)
}
