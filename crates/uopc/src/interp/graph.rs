//! Evaluates a shape graph node by node, each node as a whole array.

use smallvec::SmallVec;

use super::array::Array;
use super::fold::{add_rows, reduce_chain, reduce_lanes};
use super::order::{argsort, scan};
use crate::error::{Error, Result};
use crate::ir::fold::chain_product;
use crate::ir::op::{Fold, Op, ReduceOp};
use crate::ir::scalar::apply;
use crate::ir::visit::Graph;
use crate::ir::{DType, Scalar, Shape, UOp};

/// The values of the roots. `bind` gives the contents of each BUFFER and PARAM that is reached;
/// their shape may be any with the right number of elements.
///
/// An array is dropped after its last use, so the memory in use is that of the values alive.
///
/// ```
/// use uopc::interp::{graph, Array};
/// use uopc::ir::{DType, UOp, op::ReduceOp};
///
/// let x = UOp::slot(0, DType::I32, 3);
/// let sum = (&x * &x).reduce(ReduceOp::Add, 1)?;
/// let data = Array::from_ints(DType::I32, &[3], &[1, 2, 3])?;
/// let values = graph::eval(&[sum], &|_| Some(data.clone()))?;
/// assert_eq!(values[0].to_f64(), [14.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When a buffer is not bound or bound to something else than it is, and for ops that are not
/// part of a shape graph or not supported yet.
pub fn eval(roots: &[UOp], bind: &dyn Fn(&UOp) -> Option<Array>) -> Result<Vec<Array>> {
    let graph = Graph::new(roots);
    let reads: Vec<Reads> = (0..graph.len()).map(|i| reads(&graph, i)).collect();
    // How often each value will still be read; a node that nothing needs is never computed.
    let mut left = vec![0u32; graph.len()];
    for &r in &graph.roots {
        left[r as usize] += 1;
    }
    for i in (0..graph.len()).rev() {
        if left[i] > 0 {
            for &s in &reads[i] {
                left[s as usize] += 1;
            }
        }
    }
    let mut values: Vec<Option<Array>> = vec![None; graph.len()];
    for (i, u) in graph.nodes.iter().enumerate() {
        if left[i] == 0 {
            continue;
        }
        let value = {
            let args: SmallVec<[&Array; 3]> = reads[i].iter().map(|&s| alive(&values, s)).collect();
            node(u, &args, bind)?
        };
        for &s in &reads[i] {
            left[s as usize] -= 1;
            if left[s as usize] == 0 {
                values[s as usize] = None;
            }
        }
        values[i] = Some(value);
    }
    Ok(graph
        .roots
        .iter()
        .map(|&r| alive(&values, r).clone())
        .collect())
}

/// Positions of the values that a node's computation reads.
type Reads = SmallVec<[u32; 2]>;

/// A node reads its sources, but a chain reads the factors of its product, which is not rounded.
fn reads(graph: &Graph, i: usize) -> Reads {
    let u = &graph.nodes[i];
    if is_chain(u)
        && let Some((product, _)) = chain_product(&u.src()[0])
    {
        let at = |f: &UOp| {
            graph
                .position(f)
                .expect("a source's sources are in the graph") as u32
        };
        return product.src().iter().map(at).collect();
    }
    graph.src(i).into()
}

fn is_chain(u: &UOp) -> bool {
    matches!(
        u.op(),
        Op::Reduce {
            op: ReduceOp::Add,
            fold: Fold::Chain,
            ..
        }
    ) && u.dtype().is_float()
}

fn alive(values: &[Option<Array>], i: u32) -> &Array {
    values[i as usize]
        .as_ref()
        .expect("sources come first and live until their last use")
}

/// The value of one node; `args` are the values of what it [`reads`].
fn node(u: &UOp, args: &[&Array], bind: &dyn Fn(&UOp) -> Option<Array>) -> Result<Array> {
    let (dtype, shape) = (u.dtype(), u.shape());
    let data = match u.op() {
        Op::Const(value) => vec![value.bits()],
        Op::Buffer { .. } | Op::Param { .. } => return bound(u, bind),
        Op::Iota { n, dtype } => (0..*n)
            .map(|i| Scalar::from_i128(*dtype, i as i128).bits())
            .collect(),
        Op::Add
        | Op::Mul
        | Op::Max
        | Op::Recip
        | Op::Div
        | Op::Exp2
        | Op::Log2
        | Op::Exp
        | Op::Sqrt
        | Op::Sin(_)
        | Op::Trunc
        | Op::MulAcc
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::Where
        | Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr => elementwise(u.op(), dtype, args),
        Op::Reshape(_) | Op::Stage(_) | Op::Custom(_) => args[0].words().to_vec(),
        Op::Expand(to) => expand(args[0], to),
        Op::Permute(order) => permute(args[0], order, shape),
        Op::Shrink(bounds) => shrink(args[0], bounds, shape),
        Op::Stack => args.iter().flat_map(|a| a.words()).copied().collect(),
        Op::Index => index(args[0], &args[1..]),
        Op::Reduce { op, fold, .. } => reduce(u, *op, *fold, args)?,
        Op::ScatterAdd(shape) => scatter_add(shape, args[0], &args[1..]),
        Op::Scan(op) => scan(*op, args[0]),
        Op::ArgSort => argsort(dtype, args[0]),
        Op::Range { .. }
        | Op::End
        | Op::Store { .. }
        | Op::Load
        | Op::Local { .. }
        | Op::Sink
        | Op::After
        | Op::Call { .. }
        | Op::Loop
        | Op::EndLoop
        | Op::If
        | Op::EndIf
        | Op::Let { .. }
        | Op::Declare(_)
        | Op::Barrier => {
            return Err(Error::Verify {
                form: "shape graph",
                message: format!("{} belongs to loops; run it with them", u.op().mnemonic()),
                site: u.site(),
            });
        }
    };
    Array::with_words(dtype, shape.clone(), data)
}

fn bound(u: &UOp, bind: &dyn Fn(&UOp) -> Option<Array>) -> Result<Array> {
    let Some(value) = bind(u) else {
        let message = format!("{:?} has no contents; bind an array to it", u.op());
        return Err(Error::Unsupported {
            what: "interpreter",
            message,
            site: u.site(),
        });
    };
    if value.dtype() != u.dtype() || value.len() != u.shape().numel() {
        let (have, want) = (value.dtype(), u.dtype());
        let message = format!(
            "{want}{} is bound to an array of {have}{}; they must agree",
            u.shape(),
            value.shape()
        );
        return Err(Error::Shape {
            op: u.op().mnemonic(),
            message,
            site: u.site(),
        });
    }
    value.reshaped(u.shape())
}

fn elementwise(op: &Op, dtype: DType, args: &[&Array]) -> Vec<u64> {
    // The commonest ops of large graphs have loops of their own; `apply` means the same.
    if dtype == DType::F32 {
        if *op == Op::Add {
            return singles(args, |a, b| a + b);
        } else if *op == Op::Mul {
            return singles(args, |a, b| a * b);
        } else if *op == Op::Div {
            return singles(args, |a, b| a / b);
        }
    }
    if *op == Op::Where {
        let chosen = |i: usize| args[if args[0].words()[i] != 0 { 1 } else { 2 }].words()[i];
        return (0..args[0].len()).map(chosen).collect();
    }
    let mut operands: SmallVec<[Scalar; 3]> = SmallVec::new();
    let at = |i: usize| {
        operands.clear();
        operands.extend(args.iter().map(|a| a.get(i)));
        apply(op, dtype, &operands).bits()
    };
    (0..args[0].len()).map(at).collect()
}

fn singles(args: &[&Array], op: impl Fn(f32, f32) -> f32) -> Vec<u64> {
    let pairs = args[0].words().iter().zip(args[1].words());
    let value = |(&a, &b): (&u64, &u64)| {
        Scalar::f32(op(f32::from_bits(a as u32), f32::from_bits(b as u32))).bits()
    };
    pairs.map(value).collect()
}

fn expand(x: &Array, to: &Shape) -> Vec<u64> {
    let axes = x.shape().iter().zip(row_major(x.shape()));
    let strides: Vec<usize> = axes
        .map(|(&d, stride)| if d == 1 { 0 } else { stride })
        .collect();
    gather(x.words(), to, &strides, 0)
}

fn permute(x: &Array, order: &[u8], to: &Shape) -> Vec<u64> {
    let strides = row_major(x.shape());
    let strides: Vec<usize> = order.iter().map(|&p| strides[p as usize]).collect();
    gather(x.words(), to, &strides, 0)
}

fn shrink(x: &Array, bounds: &[(usize, usize)], to: &Shape) -> Vec<u64> {
    let strides = row_major(x.shape());
    let begin = bounds
        .iter()
        .zip(&strides)
        .map(|(b, stride)| b.0 * stride)
        .sum();
    gather(x.words(), to, &strides, begin)
}

/// Steps between neighbours along each axis.
fn row_major(shape: &Shape) -> Vec<usize> {
    let mut strides = vec![1; shape.rank()];
    for k in (1..shape.rank()).rev() {
        strides[k - 1] = strides[k] * shape[k];
    }
    strides
}

/// Reads `x` at `begin` plus each point of the shape times the strides.
fn gather(x: &[u64], shape: &Shape, strides: &[usize], begin: usize) -> Vec<u64> {
    let mut out = Vec::with_capacity(shape.numel());
    if shape.numel() == 0 {
        return out;
    }
    let Some((&inner, outer)) = shape.split_last() else {
        return vec![x[begin]];
    };
    let mut point = vec![0; outer.len()];
    let mut at = begin;
    loop {
        out.extend((0..inner).map(|i| x[at + i * strides[outer.len()]]));
        // The next point of the outer axes: the last one that has room advances.
        let Some(k) = (0..outer.len()).rev().find(|&k| {
            if point[k] + 1 < outer[k] {
                return true;
            }
            at -= point[k] * strides[k];
            point[k] = 0;
            false
        }) else {
            return out;
        };
        point[k] += 1;
        at += strides[k];
    }
}

/// `x` at the given indices along its first axes; a point outside gives zeros.
fn index(x: &Array, indices: &[&Array]) -> Vec<u64> {
    let row: usize = x.shape()[indices.len()..].iter().product();
    let zero = Scalar::zero(x.dtype()).bits();
    let mut out = Vec::new();
    for place in places(indices, x.shape()) {
        match place {
            Some(at) => out.extend_from_slice(&x.words()[at * row..(at + 1) * row]),
            None => out.resize(out.len() + row, zero),
        }
    }
    out
}

/// Zeros of the shape and the rows of `g` at the given indices along its first axes.
fn scatter_add(shape: &Shape, g: &Array, indices: &[&Array]) -> Vec<u64> {
    let row: usize = shape[indices.len()..].iter().product();
    add_rows(g, places(indices, shape), row, shape.numel())
}

/// The row that each point of the indices names in a shape, whose first axes they index.
fn places(indices: &[&Array], shape: &Shape) -> impl Iterator<Item = Option<usize>> {
    (0..indices[0].len()).map(move |i| {
        let mut named = indices.iter().zip(shape.iter());
        named.try_fold(0usize, |at, (index, &extent)| {
            let k = usize::try_from(index.get(i).as_i128()).ok()?;
            (k < extent).then(|| at * extent + k)
        })
    })
}

fn reduce(u: &UOp, op: ReduceOp, fold: Fold, args: &[&Array]) -> Result<Vec<u64>> {
    let (source, rows) = (&u.src()[0], u.shape().numel());
    let extent = source.shape()[u.shape().rank()..].iter().product();
    if !is_chain(u) {
        if fold == Fold::Chain {
            let message = format!("a chain is a float sum, not {} of {}", op.name(), u.dtype());
            return Err(Error::Verify {
                form: "shape graph",
                message,
                site: u.site(),
            });
        }
        return Ok(reduce_lanes(op, args[0], rows, extent));
    }
    let Some((_, through)) = chain_product(source) else {
        let ones = Array::full(Scalar::one(u.dtype()), source.shape());
        return Ok(reduce_chain(args[0], &ones, rows, extent));
    };
    // The factors take the way that the product took to the sum.
    let arrange = |factor: &Array| {
        through.iter().rev().try_fold(factor.clone(), |x, step| {
            if let Op::Permute(order) = step.op() {
                let words = permute(&x, order, step.shape());
                Array::with_words(x.dtype(), step.shape().clone(), words)
            } else {
                x.reshaped(step.shape())
            }
        })
    };
    Ok(reduce_chain(
        &arrange(args[0])?,
        &arrange(args[1])?,
        rows,
        extent,
    ))
}
