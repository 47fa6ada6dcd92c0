//! Dtype and shape of every node, from its op and its sources: the type rules.

use super::dtype::DType;
use super::op::{Combine, Op};
use super::shape::Shape;
use super::site::Site;
use super::uop::UOp;
use crate::error::{Error, Result};

use DType::{Bool, I32, I64};

/// The dtype and shape of `op` applied to `src`, or the rule that is broken.
///
/// Effects (END, STORE, SINK, CALL and the markers of the linear program) have dtype bool and
/// shape `()`; nothing reads them as values.
///
/// # Errors
/// [`Error::Shape`] or [`Error::DType`], naming the op, the shapes or dtypes and the remedy.
pub fn infer(op: &Op, src: &[UOp]) -> Result<(DType, Shape)> {
    let (lo, hi) = op.info().arity;
    if src.len() < lo || src.len() > hi {
        return shape_error(
            op,
            format!("takes {} sources, not {}", arity_text(lo, hi), src.len()),
        );
    }
    match op {
        Op::Const(value) => Ok((value.dtype(), Shape::scalar())),
        Op::Buffer { dtype, n, .. } | Op::Param { dtype, n, .. } | Op::Local { dtype, n, .. } => {
            Ok((*dtype, Shape::new(&[*n])))
        }
        Op::Iota { n, dtype } => {
            if !dtype.is_int() {
                return dtype_error(
                    op,
                    format!("counts in integers, not {dtype}; cast the result"),
                );
            }
            let (_, largest) = dtype.int_range().expect("an integer dtype has a range");
            if *n as i128 - 1 > largest {
                return dtype_error(
                    op,
                    format!("{n} numbers do not fit {dtype}; use a wider one"),
                );
            }
            Ok((*dtype, Shape::new(&[*n])))
        }
        Op::Add | Op::Mul | Op::Max => same_types(op, src),
        Op::MulAcc => {
            let (dtype, shape) = same_types(op, src)?;
            if dtype == Bool {
                return dtype_error(op, "is not defined on bool; use and, or".into());
            }
            Ok((dtype, shape))
        }
        Op::Recip | Op::Div | Op::Exp2 | Op::Log2 | Op::Exp | Op::Sqrt | Op::Sin(_) | Op::Trunc => {
            let (dtype, shape) = same_types(op, src)?;
            if !dtype.is_float() {
                let message = format!("needs a float, not {dtype}; cast the source to f32 first");
                return dtype_error(op, message);
            }
            if let Op::Sin(k) = op
                && *k > 3
            {
                return shape_error(op, format!("{k} quarter turns; write them as 0 to 3"));
            }
            Ok((dtype, shape))
        }
        Op::FloorDiv | Op::FloorMod | Op::Shl | Op::Shr => {
            let (dtype, shape) = same_types(op, src)?;
            if !dtype.is_int() {
                return dtype_error(op, format!("needs integers, not {dtype}; cast or use div"));
            }
            Ok((dtype, shape))
        }
        Op::And | Op::Or | Op::Xor => {
            let (dtype, shape) = same_types(op, src)?;
            if dtype.is_float() {
                return dtype_error(
                    op,
                    format!("needs integers or bools, not {dtype}; compare first"),
                );
            }
            Ok((dtype, shape))
        }
        Op::CmpLt | Op::CmpNe => Ok((Bool, same_types(op, src)?.1)),
        Op::Cast(to) => Ok((*to, src[0].shape().clone())),
        Op::Bitcast(to) => {
            let from = src[0].dtype();
            if from.size() != to.size() || (from == Bool) != (*to == Bool) {
                return dtype_error(op, format!("{from} and {to} differ in width; use cast"));
            }
            Ok((*to, src[0].shape().clone()))
        }
        Op::Where => {
            if src[0].dtype() != Bool {
                let found = src[0].dtype();
                return dtype_error(
                    op,
                    format!("the condition is {found}, not bool; compare it with 0"),
                );
            }
            let (dtype, shape) = same_types(op, &src[1..])?;
            if *src[0].shape() != shape {
                return differ(op, &src[0], &src[1]);
            }
            Ok((dtype, shape))
        }
        Op::Reshape(to) => {
            let from = src[0].shape();
            if from.numel() != to.numel() {
                let (n, m) = (from.numel(), to.numel());
                return shape_error(
                    op,
                    format!("{from} has {n} elements, {to} has {m}; they must agree"),
                );
            }
            Ok((src[0].dtype(), to.clone()))
        }
        Op::Expand(to) => {
            let from = src[0].shape();
            let fits = from.rank() == to.rank()
                && from.iter().zip(to.iter()).all(|(&a, &b)| a == b || a == 1);
            if !fits {
                let why = "only axes of extent 1 grow, and the ranks are equal; reshape first";
                return shape_error(op, format!("{from} does not expand to {to}: {why}"));
            }
            Ok((src[0].dtype(), to.clone()))
        }
        Op::Permute(order) => {
            let from = src[0].shape();
            let mut seen = vec![false; from.rank()];
            let valid = order.len() == from.rank()
                && order.iter().all(|&p| {
                    let p = p as usize;
                    p < seen.len() && !std::mem::replace(&mut seen[p], true)
                });
            if !valid {
                let rank = from.rank();
                return shape_error(
                    op,
                    format!("{order:?} is not an order of the {rank} axes of {from}"),
                );
            }
            let dims: Vec<usize> = order.iter().map(|&p| from[p as usize]).collect();
            Ok((src[0].dtype(), Shape::new(&dims)))
        }
        Op::Shrink(bounds) => {
            let from = src[0].shape();
            let valid = bounds.len() == from.rank()
                && bounds
                    .iter()
                    .zip(from.iter())
                    .all(|(&(b, e), &n)| b <= e && e <= n);
            if !valid {
                let why = "one (begin, end) with begin <= end <= extent for each axis";
                return shape_error(op, format!("{bounds:?} is no window of {from}; give {why}"));
            }
            let dims: Vec<usize> = bounds.iter().map(|(b, e)| e - b).collect();
            Ok((src[0].dtype(), Shape::new(&dims)))
        }
        Op::Stack => {
            let (dtype, shape) = same_types(op, src)?;
            let mut dims = vec![src.len()];
            dims.extend_from_slice(&shape);
            Ok((dtype, Shape::new(&dims)))
        }
        Op::Index => {
            let (x, indices) = (&src[0], &src[1..]);
            let (at, _) = index_types(op, indices, x.shape())?;
            let mut dims = at.to_vec();
            dims.extend_from_slice(&x.shape()[indices.len()..]);
            Ok((x.dtype(), Shape::new(&dims)))
        }
        Op::ScatterAdd(shape) => {
            let (g, indices) = (&src[0], &src[1..]);
            let (at, _) = index_types(op, indices, shape)?;
            let mut dims = at.to_vec();
            dims.extend_from_slice(&shape[indices.len()..]);
            if g.shape()[..] != dims[..] {
                let (found, want) = (g.shape(), Shape::new(&dims));
                return shape_error(
                    op,
                    format!(
                        "values {found} at indices {at} do not fit into {shape}; give values {want}"
                    ),
                );
            }
            Ok((g.dtype(), shape.clone()))
        }
        Op::Reduce { n, .. } => {
            let from = src[0].shape();
            let n = *n as usize;
            if n > from.rank() {
                return shape_error(op, format!("{n} axes of {from}; it has {}", from.rank()));
            }
            Ok((src[0].dtype(), Shape::new(&from[..from.rank() - n])))
        }
        Op::Scan(_) | Op::ArgSort => {
            let from = src[0].shape();
            if from.rank() == 0 {
                return shape_error(op, "needs an axis; a scalar has none".into());
            }
            let dtype = if matches!(op, Op::ArgSort) {
                I64
            } else {
                src[0].dtype()
            };
            Ok((dtype, from.clone()))
        }
        Op::Custom(_) | Op::Stage(_) => Ok((src[0].dtype(), src[0].shape().clone())),
        Op::Range { .. } | Op::Let { .. } | Op::If | Op::Loop => {
            if src[0].shape().rank() != 0 {
                return shape_error(op, format!("takes a scalar, not shape {}", src[0].shape()));
            }
            if matches!(op, Op::Range { .. }) && !matches!(src[0].dtype(), I32 | I64) {
                return dtype_error(op, format!("counts in i32 or i64, not {}", src[0].dtype()));
            }
            if matches!(op, Op::If) && src[0].dtype() != Bool {
                return dtype_error(op, format!("tests a bool, not {}", src[0].dtype()));
            }
            Ok((src[0].dtype(), Shape::scalar()))
        }
        Op::Load => {
            reference(op, &src[0])?;
            index_type(op, &src[1])?;
            gate_type(op, src.get(2))?;
            Ok((src[0].dtype(), Shape::scalar()))
        }
        Op::Store { combine, gated } => {
            reference(op, &src[0])?;
            index_type(op, &src[1])?;
            let values = if *combine == Combine::MulAcc { 2 } else { 1 };
            if src.len() != 2 + values + *gated as usize {
                let want = 2 + values + *gated as usize;
                return shape_error(op, format!("takes {want} sources, not {}", src.len()));
            }
            for value in &src[2..2 + values] {
                if value.dtype() != src[0].dtype() || value.shape().rank() != 0 {
                    let (found, want) = (value.dtype(), src[0].dtype());
                    return dtype_error(
                        op,
                        format!("writes {found} into {want} memory; cast the value"),
                    );
                }
            }
            gate_type(op, src.get(2 + values))?;
            effect()
        }
        Op::End => {
            if !matches!(src[0].op(), Op::Store { .. }) {
                let found = src[0].op().mnemonic();
                return shape_error(op, format!("closes a store, not {found}"));
            }
            if let Some(bad) = src[1..]
                .iter()
                .find(|r| !matches!(r.op(), Op::Range { .. }))
            {
                let found = bad.op().mnemonic();
                return shape_error(op, format!("runs under ranges, not {found}"));
            }
            effect()
        }
        Op::After => Ok((src[0].dtype(), src[0].shape().clone())),
        Op::Declare(_) => {
            reference(op, &src[0])?;
            effect()
        }
        Op::Sink | Op::Call { .. } | Op::EndLoop | Op::EndIf | Op::Barrier => effect(),
    }
}

fn effect() -> Result<(DType, Shape)> {
    Ok((Bool, Shape::scalar()))
}

fn same_types(op: &Op, src: &[UOp]) -> Result<(DType, Shape)> {
    let first = &src[0];
    for other in &src[1..] {
        if other.dtype() != first.dtype() {
            let (a, b) = (first.dtype(), other.dtype());
            return dtype_error(op, format!("dtypes {a} and {b} differ; cast one of them"));
        }
        if other.shape() != first.shape() {
            return differ(op, first, other);
        }
    }
    Ok((first.dtype(), first.shape().clone()))
}

/// The shape and dtype of indices into the first axes of a shape.
fn index_types(op: &Op, indices: &[UOp], into: &[usize]) -> Result<(Shape, DType)> {
    let (dtype, shape) = same_types(op, indices)?;
    if !dtype.is_int() {
        return dtype_error(op, format!("indices are integers, not {dtype}; cast them"));
    }
    if indices.len() > into.len() {
        let (n, into) = (indices.len(), Shape::new(into));
        return shape_error(
            op,
            format!("{n} indices into shape {into}; give at most one an axis"),
        );
    }
    Ok((shape, dtype))
}

fn index_type(op: &Op, index: &UOp) -> Result<()> {
    if !matches!(index.dtype(), I32 | I64) || index.shape().rank() != 0 {
        let (dtype, shape) = (index.dtype(), index.shape());
        return dtype_error(
            op,
            format!("the index is a scalar i32 or i64, not {dtype} of shape {shape}"),
        );
    }
    Ok(())
}

fn gate_type(op: &Op, gate: Option<&UOp>) -> Result<()> {
    match gate {
        Some(gate) if gate.dtype() != Bool || gate.shape().rank() != 0 => dtype_error(
            op,
            format!("the gate is a scalar bool, not {}", gate.dtype()),
        ),
        _ => Ok(()),
    }
}

fn reference(op: &Op, memory: &UOp) -> Result<()> {
    if matches!(memory.op(), Op::Param { .. } | Op::Local { .. }) {
        return Ok(());
    }
    let found = memory.op().mnemonic();
    shape_error(
        op,
        format!("needs a param or a local to access, not {found}"),
    )
}

fn arity_text(lo: usize, hi: usize) -> String {
    if lo == hi {
        lo.to_string()
    } else if hi == usize::MAX {
        format!("at least {lo}")
    } else {
        format!("{lo} to {hi}")
    }
}

fn differ<T>(op: &Op, a: &UOp, b: &UOp) -> Result<T> {
    let (a, b) = (a.shape(), b.shape());
    shape_error(
        op,
        format!("shapes {a} and {b} differ; reshape or expand one of them"),
    )
}

fn shape_error<T>(op: &Op, message: String) -> Result<T> {
    Err(Error::Shape {
        op: op.mnemonic(),
        message,
        site: Site::current(),
    })
}

fn dtype_error<T>(op: &Op, message: String) -> Result<T> {
    Err(Error::DType {
        op: op.mnemonic(),
        message,
        site: Site::current(),
    })
}
