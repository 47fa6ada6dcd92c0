//! Functions for batching alone: ops on integers and bools, and what reads or adds at positions that
//! an input decides. Inputs are floats as everywhere; the functions make integers of them.
#![allow(dead_code, reason = "each test binary uses a part")]

use uopc::ir::op::ReduceOp;
use uopc::ir::{DType, UOp};

use super::Domain::*;
use super::{Case, M, T, V, also, constants, op};
use crate::oracle::number;

/// Ops that can't be batched, each with the reason.
pub const NOT_MAPPED: &[(&str, &str)] = &[];

pub const MAPPED: &[Case] = &[
    op("iota", &[V], Real, |x| {
        &x[0]
            * &UOp::iota(5, DType::I32)
                .unwrap()
                .cast(x[0].dtype())
                .unwrap()
    }),
    op("trunc", &[V], Apart, |x| x[0].trunc().unwrap()),
    op("bitcast", &[V], Apart, |x| {
        let bits = if x[0].dtype() == DType::F64 {
            DType::I64
        } else {
            DType::I32
        };
        x[0].bitcast(bits).unwrap()
    }),
    op("cmplt", &[V, V], Apart, |x| x[0].cmplt(&x[1]).unwrap()),
    also("cmplt", "below a constant", &[V], Apart, |x| {
        x[0].cmplt(&number(&x[0], 0.5)).unwrap()
    }),
    op("cmpne", &[V, V], Apart, |x| {
        ints(&x[0]).cmpne(&ints(&x[1])).unwrap()
    }),
    op("floordiv", &[V, V], Apart, |x| {
        ints(&x[0]).floordiv(&ints(&x[1])).unwrap()
    }),
    op("floormod", &[V, V], Apart, |x| {
        ints(&x[0]).floormod(&ints(&x[1])).unwrap()
    }),
    op("and", &[V, V], Apart, |x| {
        ints(&x[0]).and(&ints(&x[1])).unwrap()
    }),
    op("or", &[V, V], Apart, |x| {
        let positive = |x: &UOp| number(x, 0.0).cmplt(x).unwrap();
        positive(&x[0]).or(&positive(&x[1])).unwrap()
    }),
    op("xor", &[V, V], Apart, |x| {
        ints(&x[0]).xor(&ints(&x[1])).unwrap()
    }),
    op("shl", &[V, V], Apart, |x| {
        ints(&x[0]).shl(&ints(&x[1])).unwrap()
    }),
    op("shr", &[V, V], Apart, |x| {
        ints(&x[0]).shr(&ints(&x[1])).unwrap()
    }),
    also("cast", "cast to bool and back", &[V], Apart, |x| {
        ints(&x[0])
            .cast(DType::Bool)
            .unwrap()
            .cast(x[0].dtype())
            .unwrap()
    }),
    also("index", "read at positions", &[&[4, 3], V], Apart, |x| {
        x[0].index(&[ints(&x[1])]).unwrap()
    }),
    also(
        "index",
        "read at a table of pairs",
        &[T, M, M],
        Apart,
        |x| x[0].index(&[ints(&x[1]), ints(&x[2])]).unwrap(),
    ),
    also("index", "read along all axes", &[M, V], Apart, |x| {
        let at = ints(&x[1]);
        x[0].index(&[at.clone(), at]).unwrap()
    }),
    also("index", "read at one position", &[M, &[]], Apart, |x| {
        x[0].index(&[ints(&x[1])]).unwrap()
    }),
    also(
        "index",
        "read at a given and an own position",
        &[T, V],
        Apart,
        |x| {
            let given = UOp::int(1, DType::I32).broadcast_scalar(&[5].as_slice().into());
            x[0].index(&[given.unwrap(), ints(&x[1])]).unwrap()
        },
    ),
    also(
        "index",
        "read at narrow positions",
        &[&[4, 3], V],
        Apart,
        |x| x[0].index(&[ints(&x[1]).cast(DType::I8).unwrap()]).unwrap(),
    ),
    also(
        "scatter_add",
        "add at positions",
        &[&[5, 3], V],
        Apart,
        |x| x[0].scatter_add(&[ints(&x[1])], &[4, 3]).unwrap(),
    ),
    also(
        "scatter_add",
        "add at a table of pairs",
        &[&[2, 3, 4], M, M],
        Apart,
        |x| {
            let at = [ints(&x[1]), ints(&x[2])];
            x[0].scatter_add(&at, &[2, 3, 4]).unwrap()
        },
    ),
    also(
        "scatter_add",
        "add along all axes",
        &[V, V, V],
        Apart,
        |x| {
            let at = [ints(&x[1]), ints(&x[2])];
            x[0].scatter_add(&at, &[2, 3]).unwrap()
        },
    ),
    also(
        "scatter_add",
        "add at one position",
        &[&[3], &[]],
        Apart,
        |x| x[0].scatter_add(&[ints(&x[1])], &[2, 3]).unwrap(),
    ),
    also("scatter_add", "add integers", &[V, V], Apart, |x| {
        ints(&x[0]).scatter_add(&[ints(&x[1])], &[3]).unwrap()
    }),
    also("reduce", "sum of integers", &[M], Apart, |x| {
        ints(&x[0]).reduce(ReduceOp::Add, 1).unwrap()
    }),
    also("reduce", "any of bools", &[M], Apart, |x| {
        let positive = number(&x[0], 0.0).cmplt(&x[0]).unwrap();
        positive.reduce(ReduceOp::Add, 1).unwrap()
    }),
    op("argsort", &[M], Apart, |x| x[0].argsort().unwrap()),
    also("argsort", "order of integers", &[V], Apart, |x| {
        ints(&x[0]).argsort().unwrap()
    }),
    also("scan", "running sum of integers", &[M], Apart, |x| {
        ints(&x[0]).scan(ReduceOp::Add).unwrap()
    }),
    also("stack", "stack of bools", &[V], Apart, |x| {
        let positive = number(&x[0], 0.0).cmplt(&x[0]).unwrap();
        UOp::stack(&[positive.clone(), positive.logical_not().unwrap()]).unwrap()
    }),
    also("index", "read at constants", &[T], Apart, |x| {
        ints(&x[0]).index(&constants(&[1, 2])).unwrap()
    }),
];

/// The integer part, counted from -2 on: some of it is out of range wherever it indexes.
fn ints(x: &UOp) -> UOp {
    let halves = (x * &number(x, 0.5)).trunc().unwrap();
    let whole = halves.cast(DType::I32).unwrap();
    let one = UOp::full(uopc::ir::Scalar::from_i128(DType::I32, 1), whole.shape()).unwrap();
    whole.add(&one).unwrap()
}
