//! Movement, indexing and Einstein's sums under transformations: derivatives of orders 1 and 2 against
//! quotients, the same bits in every engine, and maps against loops.

mod tensors;

use tensors::places::{engine, everywhere, ints, numbers};
use uopc::debug::DeviceChoice;
use uopc::tensor::{Combine, Indexing, with_engine};
use uopc::{DType, Error, Result, Tensor, grad, gradcheck, vmap};

/// A function of one tensor.
type Function = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

/// A smooth function of one tensor of f64, and its shape.
type Smooth = (&'static str, &'static [usize], Function);

/// Every differentiable function, behind a square so that there is a second derivative.
fn smooth() -> Vec<Smooth> {
    const M: &[usize] = &[3, 4];
    const X: &[usize] = &[2, 3, 4];
    let mut all: Vec<Smooth> = Vec::new();
    let mut add = |name, shape, f: Function| {
        all.push((name, shape, Box::new(move |x: &Tensor| f(&x.square()?))));
    };
    let at = || ints(&[2, 0, 2, -1], &[4]);
    let pairs = || ints(&[0, 2, 1, 1, 0, 5, 2, 2, -1, 0, 0, 0], M);
    add("diag", &[3], Box::new(|x| x.diag(-1)));
    add("diag_embed", M, Box::new(|x| x.diag_embed(1, 0, -1)));
    add("diagonal", X, Box::new(|x| x.diagonal(-1, 1, 2)));
    add("trace", M, Box::new(|x| x.trace(1, 0, 1)));
    add("tril", M, Box::new(|x| x.tril(0)));
    add("triu", X, Box::new(|x| x.triu(1)));
    add(
        "meshgrid",
        &[3],
        Box::new(|x| Tensor::meshgrid(&[x, x], Indexing::Ij)?[1].mul(x)),
    );
    add(
        "broadcast_tensors",
        M,
        Box::new(|x| Tensor::broadcast_tensors(&[x, &numbers(&[2, 1, 1], 1)])?[0].square()),
    );
    add("unflatten", M, Box::new(|x| x.unflatten(1, [2, 2])));
    add("repeat", M, Box::new(|x| x.repeat([2, 1, 2])));
    add("tile", M, Box::new(|x| x.tile([3])));
    add(
        "repeat_interleave",
        M,
        Box::new(|x| x.repeat_interleave(2, Some(0))),
    );
    add("roll", M, Box::new(|x| x.roll([1, -1], [0, 1])?.mul(x)));
    add("rot90", M, Box::new(|x| x.rot90(1, [0, 1])));
    add("unfold", M, Box::new(|x| x.unfold(1, 3, 1)));
    add("moveaxis", X, Box::new(|x| x.moveaxis(0, 2)));
    add("split", M, Box::new(|x| x.split(3, 1)?[1].mul(2.0)));
    add(
        "tensor_split",
        M,
        Box::new(|x| x.tensor_split(3, 1)?[0].mul(2.0)),
    );
    add("unbind", M, Box::new(|x| x.unbind(1)?[2].mul(2.0)));
    add("hstack", M, Box::new(|x| Tensor::hstack(&[x, x])));
    add("vstack", M, Box::new(|x| Tensor::vstack(&[x, x])));
    add("dstack", M, Box::new(|x| Tensor::dstack(&[x, x])));
    add("gather", M, Box::new(move |x| x.gather(0, &pairs())));
    add(
        "take_along_axis",
        X,
        Box::new(|x| x.take_along_axis(&ints(&[1, 0, 1], &[1, 3, 1]), 2)),
    );
    add(
        "index_copy",
        M,
        Box::new(|x| x.index_copy(1, &ints(&[3, 0], &[2]), &x.narrow(1, 1..3)?)),
    );
    add(
        "index_select",
        X,
        Box::new(move |x| x.index_select(1, &at())),
    );
    add(
        "index_add",
        M,
        Box::new(move |x| numbers(&[2, 4], 1).index_add(0, &ints(&[0, 1, 0], &[3]), x, 2.0)),
    );
    add(
        "scatter",
        M,
        Box::new(move |x| x.scatter(1, &pairs(), x.mul(3.0)?)),
    );
    add(
        "scatter_add",
        M,
        Box::new(move |x| x.scatter_add(0, &pairs(), x.mul(3.0)?)),
    );
    for how in [
        Combine::Sum,
        Combine::Mean,
        Combine::Prod,
        Combine::Amax,
        Combine::Amin,
    ] {
        add(
            "scatter_reduce",
            M,
            Box::new(move |x| {
                x.scatter_reduce(
                    0,
                    &pairs(),
                    numbers(M, 5).mul(x)?,
                    how,
                    how == Combine::Mean,
                )
            }),
        );
    }
    add(
        "put_along_axis",
        M,
        Box::new(|x| x.put_along_axis(&ints(&[0, 2], &[1, 2]), x.sum(..)?, 1)),
    );
    add(
        "segment_sum",
        M,
        Box::new(|x| x.segment_sum(&ints(&[1, 0, 1], &[3]), 2)),
    );
    add("index", X, Box::new(move |x| x.index((at(), .., at()))));
    add(
        "index by a mask",
        M,
        Box::new(|x| x.index(numbers(M, 3).gt(0.0)?)),
    );
    add(
        "with_index",
        M,
        Box::new(move |x| x.with_index((.., at()), x.mul(2.0)?)),
    );
    add(
        "with_index by a mask",
        M,
        Box::new(|x| x.with_index(numbers(M, 3).gt(0.0)?, x.sum(..)?)),
    );
    add(
        "index_put",
        M,
        Box::new(|x| {
            x.index_put(
                &[&ints(&[0, 1, 0], &[3]), &ints(&[1, 1, 1], &[3])],
                x.slice((.., 0))?,
                true,
            )
        }),
    );
    add(
        "masked_select",
        M,
        Box::new(|x| x.masked_select(&numbers(M, 3).gt(0.0)?)),
    );
    add(
        "masked_select_padded",
        M,
        Box::new(|x| x.masked_select_padded(&numbers(M, 3).gt(0.0)?, 9, 1.0)),
    );
    add("dot", M, Box::new(|x| x.dot(&x.transpose()?)));
    add("vdot", M, Box::new(|x| x.vdot(&numbers(M, 1))?.square()));
    add("inner", M, Box::new(|x| x.inner(x)));
    add("outer", &[3], Box::new(|x| x.outer(x)));
    add("vecdot", M, Box::new(|x| x.vecdot(x, 0)));
    add("tensordot", M, Box::new(|x| x.tensordot_axes(x, [0], [0])));
    add("kron", &[2, 2], Box::new(|x| x.kron(x)));
    add("cross", M, Box::new(|x| x.cross(&numbers(M, 1), 0)?.mul(x)));
    for text in [
        "ij,kj->ik",
        "ij,ij->",
        "ij,ij->j",
        "ij->i",
        "ij,ab->ia",
        "ij,kj,lj->ikl",
    ] {
        add(
            "einsum",
            M,
            Box::new(move |x| {
                let operands = [x, x, x];
                Tensor::einsum(text, &operands[..=text.matches(',').count()])
            }),
        );
    }
    add(
        "einsum of a diagonal",
        &[3, 3],
        Box::new(|x| Tensor::einsum("ii,ij->j", &[x, x])),
    );
    add(
        "einsum of a batch",
        X,
        Box::new(|x| Tensor::einsum("...ij,...kj->...ik", &[x, x])),
    );
    all
}

#[test]
fn derivatives_of_orders_1_and_2_agree_with_quotients() {
    with_engine(&engine(DeviceChoice::Interp, None), || {
        for (name, shape, f) in smooth() {
            let report = gradcheck(|x: &Tensor| f(x), &numbers(shape, 0)).unwrap();
            assert!(report.passed(), "{name}\n{report}");
        }
        // Means and deviations, classes of their own.
        let normal = |x: &Tensor| {
            Tensor::manual_seed(1);
            Tensor::normal(x.square()?, x, [3])?.square()
        };
        let report = gradcheck(normal, &numbers(&[3], 0)).unwrap();
        assert!(report.passed(), "normal\n{report}");
    });
}

#[test]
fn gradients_have_the_same_bits_in_every_engine() {
    let bits = |device, threads| {
        with_engine(&engine(device, threads), || {
            let gradient = |(name, shape, f): &Smooth| {
                let loss = |x: &Tensor| f(x)?.square()?.sum(..);
                grad(loss)(&numbers(shape, 0)).unwrap_or_else(|e| panic!("{name}: {e}"))
            };
            let all: Vec<Tensor> = smooth().iter().map(gradient).collect();
            Tensor::realize_all(&all).unwrap();
            all.iter()
                .map(|t| t.to_bytes().unwrap())
                .collect::<Vec<_>>()
        })
    };
    let wanted = bits(DeviceChoice::Interp, None);
    let found = bits(DeviceChoice::C, Some(2));
    for ((name, ..), (a, b)) in smooth().iter().zip(wanted.iter().zip(&found)) {
        assert!(a == b, "{name}");
    }
}

#[test]
fn maps_give_what_a_loop_gives() {
    with_engine(&engine(DeviceChoice::Interp, None), || {
        for (name, shape, f) in smooth() {
            if name.contains("mask") {
                continue;
            }
            let rows: Vec<Tensor> = (0..3).map(|k| numbers(shape, k)).collect();
            let many = Tensor::stack(&rows, 0).unwrap();
            let mapped = vmap(|x: &Tensor| f(x), 0, 0)(&many);
            let mapped = mapped.unwrap_or_else(|e| panic!("{name}: {e}"));
            for (k, row) in rows.iter().enumerate() {
                let wanted = f(row).unwrap().to_vec::<f64>().unwrap();
                let found = mapped.get(k).unwrap().to_vec::<f64>().unwrap();
                let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-12 * (1.0 + b.abs());
                assert!(
                    found.iter().zip(&wanted).all(near),
                    "{name}: {found:?} {wanted:?}"
                );
            }
        }
    });
}

#[test]
fn maps_over_positions_and_masks() {
    everywhere(|engine| {
        let (x, rows) = (numbers(&[4], 0), ints(&[3, 0, 1, 1, 2, 2], &[3, 2]));
        let value = numbers(&[2], 1);
        let set = vmap(|p: &Tensor| x.with_index(p, &value), 0, 0)(&rows).unwrap();
        let read = vmap(|p: &Tensor| x.index(p), 0, 0)(&rows).unwrap();
        let mask =
            |p: &Tensor| x.masked_select_padded(&x.gt(p.sum(..)?.cast(DType::F64)?)?, 3, 0.0);
        let chosen = vmap(mask, 0, 0)(&rows).unwrap();
        for k in 0..3 {
            let p = rows.get(k).unwrap();
            let wanted = [x.with_index(&p, &value), x.index(&p), mask(&p)];
            for (found, wanted) in [&set, &read, &chosen].iter().zip(wanted) {
                let wanted = wanted.unwrap().to_vec::<f64>().unwrap();
                assert_eq!(
                    found.get(k).unwrap().to_vec::<f64>().unwrap(),
                    wanted,
                    "{engine} {k}"
                );
            }
        }
        let refused = vmap(|p: &Tensor| p.nonzero(), 0, 0)(&rows);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "a map has no values"
        );
    });
}
