//! Mistakes in movement, indexing and Einstein's sums: errors that say what to do, and never a panic.

mod tensors;

use tensors::places::{ints, numbers};
use uopc::tensor::{Index, Indexing, Slice};
use uopc::{DType, Result, Tensor};

#[test]
fn mistakes_are_errors_that_say_what_to_do() {
    let (v, m) = (numbers(&[5], 0), numbers(&[3, 4], 0));
    let (at, real) = (ints(&[0, 1], &[2]), numbers(&[2], 0));
    let first = |tensors: Result<Vec<Tensor>>| tensors.map(|t| t[0].clone());
    let mistakes: Vec<(Result<Tensor>, &str)> = vec![
        (
            m.unflatten(1, [3, -1]),
            "unflatten: axis 1 of shape (3, 4) has extent 4, not [3, -1]",
        ),
        (m.repeat([2]), "repeat: 1 numbers for shape (3, 4)"),
        (m.repeat([2, -1]), "an extent is negative"),
        (m.roll([1, 2], 0), "roll: 2 shifts along 1 axes"),
        (m.rot90(1, [0, 0]), "name one axis"),
        (m.unfold(1, 5, 1), "unfold: windows of 5 elements of axis 1"),
        (m.unfold(1, 2, 0), "a step of 0 never ends"),
        (v.diagonal(0, 0, 1), "axis 1 of shape (5,)"),
        (m.moveaxis([0, 1], 0), "moveaxis: 2 axes to 1 places"),
        (first(m.split_with_sizes(&[1, 2], 1)), "add up to 3"),
        (first(m.chunk(0, 1)), "0 parts hold nothing"),
        (
            numbers(&[2, 2, 2], 0).diag(0),
            "neither a vector nor a matrix",
        ),
        (v.tril(0), "tril: shape (5,) holds no matrix"),
        (first(Tensor::meshgrid(&[&m], Indexing::Ij)), "is no vector"),
        (m.gather(1, &m), "positions are integers, not f64"),
        (m.gather(1, &at), "give as many axes"),
        (
            m.scatter(1, &ints(&[0; 12], &[3, 4]), &at),
            "do not lie within",
        ),
        (
            m.cast(DType::I32)
                .unwrap()
                .scatter(1, &ints(&[0], &[1, 1]), 1.5),
            "can't take the float 1.5",
        ),
        (
            m.index((0, 1, at.clone())),
            "3 axes of shape (3, 4), which has 2",
        ),
        (
            m.index(Index::list([0, 3])),
            "position 3 of axis 0 of shape (3, 4) does not exist",
        ),
        (
            m.index((&at, &ints(&[0, 1, 2], &[3]))),
            "positions of shapes (2,), (3,) do not broadcast",
        ),
        (
            m.index(v.gt(0.0).unwrap()),
            "a mask of shape (5,) for the axes from 0 on",
        ),
        (m.index(real.clone()), "positions are integers, not f64"),
        (
            m.with_index(&at, &v),
            "with_index: shapes (5,) and (2, 4) differ in axis -1 (5 and 4)",
        ),
        (m.masked_select(&at), "the mask is i32, not bool"),
        (m.dot(&m), "axis 1 has 4, axis 0 has 3"),
        (m.vdot(&v), "12 and 5 elements"),
        (m.tensordot(&v, 2), "2 axes of shapes"),
        (v.cross(&v, 0), "has not 3 elements"),
        (
            Tensor::einsum("ij,ik->iq", &[&m, &m]),
            "'q' of the result is in no operand\n    ij,ik->iq\n            ^",
        ),
        (
            Tensor::einsum("ij,jk", &[&m, &m]),
            "'j' has extent 3 in operand 1 and 4 in operand 0\n    ij,jk\n       ^",
        ),
        (
            Tensor::einsum("ij, k", &[&m, &m]),
            "1 letters for operand 1 of shape (3, 4), which has 2 axes\n    ij, k\n        ^",
        ),
        (
            Tensor::einsum("ijk", &[&m]),
            "3 letters for operand 0 of shape (3, 4), which has 2 axes\n    ijk\n      ^",
        ),
        (Tensor::einsum("i j%", &[&m]), "'%' names no axis"),
        (
            Tensor::einsum("ij->i->j", &[&m]),
            "a second arrow; there is one result\n    ij->i->j\n         ^",
        ),
        (
            Tensor::einsum("ij->ii", &[&m]),
            "'i' is twice in the result\n    ij->ii\n         ^",
        ),
        (Tensor::einsum("..ij", &[&m]), "a dot that is none of three"),
        (Tensor::einsum("...i->i", &[&m]), "the result has no ..."),
        (
            Tensor::einsum("ii", &[&m]),
            "'i' has extent 4 in operand 0 and 3 in operand 0",
        ),
        (Tensor::einsum("ij", &[&m, &m]), "is for 1 operands, not 2"),
        (
            Tensor::einsum::<&Tensor>("", &[]),
            "is for 1 operands, not 0",
        ),
        (
            Tensor::randint(3, 3, [2]),
            "there are no integers from 3 up to 3",
        ),
        (Tensor::randint_as(DType::U8, 0, 257, [2]), "do not fit u8"),
        (
            Tensor::multinomial(&at, 1, true),
            "weights are floats, not i32",
        ),
        (Tensor::multinomial(&v, 6, false), "6 draws from 5 classes"),
        (at.bernoulli(), "probabilities are floats"),
        (
            Tensor::normal(&v, 1.0, [2]),
            "normal: shapes (5,) and (2,) differ",
        ),
        (Tensor::xavier_uniform([3], 1.0), "has no fans"),
        (Tensor::linspace(true, 1, 3), "ends are numbers"),
    ];
    for (k, (result, wanted)) in mistakes.into_iter().enumerate() {
        match result {
            Ok(_) => panic!("mistake {k} is none: {wanted}"),
            Err(e) => assert!(e.to_string().contains(wanted), "{e}\nis not: {wanted}"),
        }
    }
}

/// What nobody means is an error or a tensor, and never a panic.
#[test]
fn absurd_arguments_do_not_panic() {
    let far = usize::MAX;
    for t in [
        numbers(&[3, 4], 0),
        numbers(&[0, 3], 0),
        numbers(&[], 0),
        numbers(&[1], 0),
    ] {
        for k in [i64::MIN, -5, -1, 0, 1, 7, i64::MAX] {
            let _ = (
                t.diag(k),
                t.tril(k),
                t.triu(k),
                t.diagonal(k, 0, 1),
                t.diag_embed(k, -1, -2),
            );
            let _ = (
                t.roll([k], ..),
                t.roll([k], 0),
                t.rot90(k, [0, 1]),
                t.repeat([k, k]),
                t.tile([k]),
            );
            let _ = (
                t.unflatten(0, [k, -1]),
                t.moveaxis(k, 0),
                t.tensor_split_at(&[k, k], 0),
            );
            let _ = (
                t.index(k),
                t.index((Slice::Stepped(Some(k), None, k), Index::list([k]))),
            );
            let _ = (
                t.gather(k, &ints(&[0], &[1])),
                t.unbind(k),
                t.trace(k, 0, 1),
                t.cross(&t, k),
            );
            let _ = (
                Tensor::randint(k, i64::MAX, [2]),
                Tensor::randint_as(DType::I64, k, 1i128 << 63, [2]),
            );
        }
        for n in [0, 1, 3, far / 2, far] {
            let _ = (
                t.repeat_interleave(n, None),
                t.repeat_interleave(n, Some(0)),
                t.unfold(0, n, n),
            );
            let _ = (
                t.split(n, 0),
                t.split_with_sizes(&[n, n], 0),
                t.segment_sum(&ints(&[0], &[1]), n),
            );
            let _ = (
                t.tensordot(&t, n),
                t.masked_select_padded(&t.gt(0.0).unwrap(), n, 0),
            );
            let _ = (
                t.multinomial(n, true),
                t.multinomial(n, false),
                Tensor::linspace(0, 1, n),
            );
            let _ = (
                Tensor::eye_as(DType::F32, n, n, 0),
                Tensor::eye_as(DType::F32, n, 3, i64::MIN),
            );
            if n < 4 || n == far {
                let _ = (Tensor::randperm(n), t.chunk(n, 0));
            }
        }
        let _ = (
            t.outer(&t),
            t.kron(&t),
            t.inner(&t),
            t.dot(&t),
            t.vecdot(&t, -1),
            t.vdot(&t),
        );
        for text in [
            "", "...", "->", ",", "ab", "a b->", "...,...", "aa", "z->z", "-", ">", "a->...",
        ] {
            let _ = (Tensor::einsum(text, &[&t]), Tensor::einsum(text, &[&t, &t]));
        }
    }
    let _ = (
        Tensor::linspace(f64::NAN, 1, 3),
        Tensor::linspace(-f64::MAX, f64::MAX, 3),
    );
    let _ = (
        Tensor::normal(f64::NAN, f64::INFINITY, [2]),
        Tensor::xavier_uniform([far / 4, far / 4], 1e300),
    );
}
