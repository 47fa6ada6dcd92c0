//! Creation, movement, indexing, scattering and Einstein's sums: the rows of `fixtures/movement.json`,
//! which `fixtures/make_movement.py` makes with NumPy and PyTorch, interpreted and compiled; gradients
//! of orders 1 and 2, maps, and mistakes.

use std::sync::Arc;

use serde_json::Value;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::ir::Scalar;
use uopc::tensor::{Axes, Combine, Index, Indexing, Shape, Slice, with_engine};
use uopc::{DType, Error, Result, Tensor, grad, gradcheck, vmap};

const ROWS: &str = include_str!("fixtures/movement.json");

/// Runs `f` with engines of its own: the interpreter of loops, and compiled code.
fn everywhere(f: impl Fn(&str)) {
    for (name, device) in [
        ("interpreted", DeviceChoice::Interp),
        ("compiled", DeviceChoice::C),
    ] {
        with_engine(&engine(device, None), || f(name));
    }
}

fn engine(device: DeviceChoice, threads: Option<usize>) -> Arc<Engine> {
    let settings = Settings {
        device,
        threads,
        ..Settings::default()
    };
    Arc::new(Engine::new(settings).unwrap())
}

// ---- values ----

fn number(v: &Value) -> f64 {
    match v {
        Value::Bool(b) => f64::from(u8::from(*b)),
        Value::String(s) => s.parse().unwrap(),
        _ => v.as_f64().unwrap(),
    }
}

fn whole(v: &Value) -> i64 {
    v.as_i64().unwrap()
}

fn wholes(v: &Value) -> Vec<i64> {
    v.as_array().unwrap().iter().map(whole).collect()
}

fn tensor(v: &Value) -> Tensor {
    let dtype = DType::from_name(v["dtype"].as_str().unwrap()).unwrap();
    let scalar = |v: &Value| match v.as_i64() {
        Some(whole) => Scalar::from_i128(dtype, whole.into()),
        None => Scalar::from_f64(dtype, number(v)),
    };
    let data = v["data"].as_array().unwrap().iter().map(scalar);
    let bytes: Vec<u8> = data
        .flat_map(|s| s.bits().to_le_bytes()[..dtype.size()].to_vec())
        .collect();
    Tensor::from_bytes(&bytes, dtype, wholes(&v["shape"])).unwrap()
}

/// Axes, or all of them for null.
struct Along(Option<Vec<i64>>);

impl Axes for Along {
    fn axes(&self) -> Option<Vec<i64>> {
        self.0.clone()
    }
}

fn index(v: &Value) -> Index {
    match v {
        Value::String(s) if s == "new" => Index::Slice(Slice::NewAxis),
        Value::String(_) => Index::Slice(Slice::Rest),
        _ if v["at"].is_number() => Index::from(whole(&v["at"])),
        _ if v["slice"].is_array() => {
            let part = |k: usize| v["slice"][k].as_i64();
            Index::Slice(Slice::Stepped(part(0), part(1), part(2).unwrap_or(1)))
        }
        // Positions that are known, and those in tensors, give the same.
        _ if v["dtype"] == "i32" && v["data"].as_array().unwrap().len().is_multiple_of(2) => {
            Index::Positions(wholes(&v["data"]), Shape::new(tensor(v).shape()))
        }
        _ => Index::Tensor(tensor(v)),
    }
}

fn combine(name: &Value) -> Combine {
    match name.as_str().unwrap() {
        "sum" => Combine::Sum,
        "prod" => Combine::Prod,
        "mean" => Combine::Mean,
        "amax" => Combine::Amax,
        _ => Combine::Amin,
    }
}

fn call(name: &str, p: &[Value], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let x = || &inputs[0];
    let y = || &inputs[1];
    let at = |k: usize| whole(&p[k]);
    let axis = |k: usize| whole(&p[k]) as isize;
    let size = |k: usize| p[k].as_u64().unwrap() as usize;
    let all = || p.iter().map(whole).collect::<Vec<i64>>();
    let along = |k: usize| Along((!p[k].is_null()).then(|| wholes(&p[k])));
    let indices = || p.iter().map(index).collect::<Vec<Index>>();
    let line = |dtype: DType| {
        let ends = (number(&p[0]), number(&p[1]));
        Tensor::linspace_as(dtype, ends.0, ends.1, size(2), p[3].as_bool().unwrap())
    };
    let one = match name {
        "linspace" => line(DType::F64),
        "linspace_i64" => line(DType::I64),
        "eye" => Tensor::eye_as(DType::F64, size(0), size(1), at(2)),
        "diag" => x().diag(at(0)),
        "tril" => x().tril(at(0)),
        "triu" => x().triu(at(0)),
        "diagonal" => x().diagonal(at(0), axis(1), axis(2)),
        "trace" => x().trace(at(0), axis(1), axis(2)),
        "diag_embed" => x().diag_embed(at(0), axis(1), axis(2)),
        "meshgrid" => {
            let xy = p[0] == "xy";
            return Tensor::meshgrid(inputs, if xy { Indexing::Xy } else { Indexing::Ij });
        }
        "broadcast_to" => x().broadcast_to(all()),
        "broadcast_tensors" => return Tensor::broadcast_tensors(inputs),
        "unflatten" => x().unflatten(at(0), &all()[1..]),
        "repeat" => x().repeat(all()),
        "tile" => x().tile(all()),
        "repeat_interleave" => x().repeat_interleave(size(0), p[1].as_i64().map(|a| a as isize)),
        "roll" => x().roll(wholes(&p[0]), along(1)),
        "rot90" => x().rot90(at(0), [axis(1), axis(2)]),
        "unfold" => x().unfold(at(0), size(1), size(2)),
        "moveaxis" => x().moveaxis(wholes(&p[0]), wholes(&p[1])),
        "split" => return x().split(size(0), at(1)),
        "chunk" => return x().chunk(size(0), at(1)),
        "tensor_split" => return x().tensor_split(size(0), at(1)),
        "split_with_sizes" => {
            let sizes: Vec<usize> = wholes(&p[0]).iter().map(|&n| n as usize).collect();
            return x().split_with_sizes(&sizes, at(1));
        }
        "tensor_split_at" => return x().tensor_split_at(&wholes(&p[0]), at(1)),
        "unbind" => return x().unbind(at(0)),
        "hstack" => Tensor::hstack(inputs),
        "vstack" => Tensor::vstack(inputs),
        "dstack" => Tensor::dstack(inputs),
        "gather" => x().gather(at(0), y()),
        "take_along_axis" => x().take_along_axis(y(), at(0)),
        "index_select" => x().index_select(at(0), y()),
        "index_add" => x().index_add(at(0), y(), &inputs[2], number(&p[1])),
        "scatter" => x().scatter(at(0), y(), &inputs[2]),
        "scatter_add" => x().scatter_add(at(0), y(), &inputs[2]),
        "scatter_reduce" => {
            let own = p[2].as_bool().unwrap();
            x().scatter_reduce(at(0), y(), &inputs[2], combine(&p[1]), own)
        }
        "put_along_axis" => x().put_along_axis(y(), &inputs[2], at(0)),
        "segment_sum" => x().segment_sum(y(), size(0)),
        "masked_select" => x().masked_select(y()),
        "masked_select_padded" => x().masked_select_padded(y(), size(0), -1.5),
        "nonzero" => x().nonzero(),
        "unique" => {
            let found = x().unique(true)?;
            return Ok(vec![
                found.values,
                found.indices,
                found.inverse,
                found.counts,
            ]);
        }
        "dot" => x().dot(y()),
        "vdot" => x().vdot(y()),
        "inner" => x().inner(y()),
        "outer" => x().outer(y()),
        "vecdot" => x().vecdot(y(), at(0)),
        "tensordot" => x().tensordot(y(), size(0)),
        "tensordot_axes" => x().tensordot_axes(y(), wholes(&p[0]), wholes(&p[1])),
        "kron" => x().kron(y()),
        "cross" => x().cross(y(), at(0)),
        "einsum" => Tensor::einsum(p[0].as_str().unwrap(), inputs),
        "index" => x().index(indices()),
        "with_index" => x().with_index(indices(), y()),
        "index_put" => x().index_put(&[y(), &inputs[2]], &inputs[3], p[0].as_bool().unwrap()),
        other => panic!("there is no function {other}"),
    };
    Ok(vec![one?])
}

/// The functions of which products or sums are taken, by whose order NumPy's last bits differ.
fn is_exact(name: &str) -> bool {
    const SUMS: &[&str] = &[
        "trace",
        "index_add",
        "scatter_add",
        "scatter_reduce",
        "segment_sum",
        "dot",
        "vdot",
        "inner",
        "vecdot",
        "tensordot",
        "tensordot_axes",
        "cross",
        "einsum",
        "index_put",
    ];
    !SUMS.contains(&name)
}

#[test]
fn values_are_those_of_numpy_and_pytorch() {
    let rows: Vec<Value> = serde_json::from_str(ROWS).unwrap();
    assert!(rows.len() > 500);
    let list = |row: &Value, what: &str| row[what].as_array().unwrap().clone();
    everywhere(|engine| {
        let mut found = Vec::new();
        for row in &rows {
            let inputs: Vec<Tensor> = list(row, "inputs").iter().map(tensor).collect();
            let name = row["name"].as_str().unwrap();
            let parameters = list(row, "parameters");
            let result = call(name, &parameters, &inputs);
            found.push(result.unwrap_or_else(|e| panic!("{name} {parameters:?}: {e}")));
        }
        let all: Vec<Tensor> = found.iter().flatten().cloned().collect();
        Tensor::realize_all(&all).unwrap();
        for (row, found) in rows.iter().zip(&found) {
            let what = format!("{engine} {} {}", row["name"], row["parameters"]);
            let wanted = list(row, "outputs");
            assert_eq!(found.len(), wanted.len(), "{what}");
            for (found, wanted) in found.iter().zip(&wanted) {
                compare(
                    &what,
                    is_exact(row["name"].as_str().unwrap()),
                    found,
                    wanted,
                );
            }
        }
    });
}

fn compare(what: &str, exact: bool, found: &Tensor, wanted: &Value) {
    assert_eq!(
        found.dtype().name(),
        wanted["dtype"].as_str().unwrap(),
        "{what}"
    );
    assert_eq!(
        found.shape().iter().map(|&d| d as i64).collect::<Vec<_>>(),
        wholes(&wanted["shape"]),
        "{what}"
    );
    let values = found.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    for (k, (a, b)) in values
        .iter()
        .zip(wanted["data"].as_array().unwrap())
        .enumerate()
    {
        let b = number(b);
        let same = *a == b || a.is_nan() && b.is_nan();
        // Sums of a few dozen products of numbers below 4, of which each is rounded once.
        let near = !exact && (a - b).abs() <= 1e-12 * (1.0 + b.abs());
        assert!(same || near, "{what}: element {k} is {a}, not {b}");
    }
}

// ---- derivatives ----

/// A smooth function of one tensor of f64, and its shape.
type Smooth = (
    &'static str,
    &'static [usize],
    Box<dyn Fn(&Tensor) -> Result<Tensor>>,
);

fn ints(values: &[i32], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape).unwrap()
}

/// Different numbers around 0, none of them 0.
fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |k: usize| ((k * 37 + seed * 11) % 23) as f64 / 8.0 - 1.4;
    Tensor::from_slice(&(0..n).map(value).collect::<Vec<f64>>(), shape).unwrap()
}

/// Every differentiable function, behind a square so that there is a second derivative.
fn smooth() -> Vec<Smooth> {
    const M: &[usize] = &[3, 4];
    const X: &[usize] = &[2, 3, 4];
    let mut all: Vec<Smooth> = Vec::new();
    let mut add = |name, shape, f: Box<dyn Fn(&Tensor) -> Result<Tensor>>| {
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

// ---- the last one stays ----

#[test]
fn of_several_values_for_one_place_the_last_stays_in_every_engine() {
    // Few positions, few comparisons, and so many of both that they are sorted.
    for (n, k) in [(5, 3), (100, 2000), (2500, 3000)] {
        let position = |i: usize| ((i * i * 7 + i / 3) % (n + 3)) as i32 - 1;
        let at: Vec<i32> = (0..k).map(position).collect();
        let mut wanted = vec![-1i32; n];
        for (i, &p) in at.iter().enumerate() {
            let p = if p < 0 { p + n as i32 } else { p } as usize;
            if p < n {
                wanted[p] = i as i32;
            }
        }
        for (device, threads) in [
            (DeviceChoice::Interp, None),
            (DeviceChoice::C, Some(1)),
            (DeviceChoice::C, Some(3)),
        ] {
            with_engine(&engine(device, threads), || {
                let x = Tensor::full([n], -1).unwrap();
                let (at, values) = (ints(&at, &[k]), Tensor::arange(k).unwrap());
                let set = x.with_index(&at, &values).unwrap();
                assert_eq!(
                    set.to_vec::<i32>().unwrap(),
                    wanted,
                    "{n} {k} {device:?} {threads:?}"
                );
                let scattered = x.scatter(0, &at, &values).unwrap();
                assert_eq!(
                    scattered.to_vec::<i32>().unwrap(),
                    wanted,
                    "{n} {k} {device:?}"
                );
            });
        }
    }
}

#[test]
fn positions_out_of_range_read_zeros_and_set_nothing() {
    everywhere(|engine| {
        for dtype in [DType::I8, DType::I16, DType::I32, DType::I64] {
            let x = Tensor::from([5, 6, 7]);
            let at = ints(&[3, -4, 2, 100, -100, -3], &[6]).cast(dtype).unwrap();
            let values = Tensor::from([1, 2, 3, 4, 5, 9]);
            let found = [
                x.index(&at).unwrap(),
                x.gather(0, &at).unwrap(),
                x.with_index(&at, &values).unwrap(),
                x.scatter(0, &at, &values).unwrap(),
                x.scatter_add(0, &at, &values).unwrap(),
                x.index_put(&[&at], &values, true).unwrap(),
                x.scatter_reduce(0, &at, &values, Combine::Amax, true)
                    .unwrap(),
            ];
            let wanted: [&[i32]; 7] = [
                &[0, 0, 7, 0, 0, 5],
                &[0, 0, 7, 0, 0, 5],
                &[9, 6, 3],
                &[9, 6, 3],
                &[14, 6, 10],
                &[14, 6, 10],
                &[9, 6, 7],
            ];
            Tensor::realize_all(&found).unwrap();
            for (k, (found, wanted)) in found.iter().zip(wanted).enumerate() {
                assert_eq!(
                    found.to_vec::<i32>().unwrap(),
                    wanted,
                    "{engine} {dtype} {k}"
                );
            }
        }
        // Beyond what i32 and i64 hold there is no way around to a position that exists.
        let x = Tensor::from([5, 6, 7]);
        for far in [
            1i64 << 32,
            -(1i64 << 32),
            i64::MAX,
            i64::MIN,
            (1i64 << 32) + 1,
        ] {
            let at = Tensor::from([far]);
            assert_eq!(
                x.index(&at).unwrap().to_vec::<i32>().unwrap(),
                [0],
                "{engine} {far}"
            );
            let set = x.with_index(&at, 1).unwrap();
            assert_eq!(set.to_vec::<i32>().unwrap(), [5, 6, 7], "{engine} {far}");
        }
        for far in [u64::MAX, 1 << 63, 3] {
            let at = Tensor::from([far]);
            assert_eq!(
                x.gather(0, &at).unwrap().to_vec::<i32>().unwrap(),
                [0],
                "{engine} {far}"
            );
        }
    });
}

#[test]
fn sums_at_places_keep_a_nan_where_it_is() {
    let (x, at) = (Tensor::zeros([3]).unwrap(), Tensor::from([0, 2, 2]));
    let source = Tensor::from([f32::NAN, f32::INFINITY, 1.0]);
    everywhere(|engine| {
        let sums = x
            .scatter_add(0, &at, &source)
            .unwrap()
            .to_vec::<f32>()
            .unwrap();
        assert!(
            sums[0].is_nan() && sums[1] == 0.0 && sums[2] == f32::INFINITY,
            "{engine} {sums:?}"
        );
        for how in [Combine::Amax, Combine::Amin, Combine::Prod] {
            let t = x.scatter_reduce(0, &at, &source, how, false).unwrap();
            let met = t.to_vec::<f32>().unwrap();
            assert!(
                met[0].is_nan() && met[1] == 0.0 && !met[2].is_nan(),
                "{engine} {how:?} {met:?}"
            );
        }
        // What a triangle leaves out is 0, whatever it was.
        let lower = Tensor::full([2, 2], f64::NAN).unwrap().tril(-1).unwrap();
        let lower = lower.to_vec::<f32>().unwrap();
        assert!(lower[0] == 0.0 && lower[1] == 0.0 && lower[2].is_nan() && lower[3] == 0.0);
    });
}

// ---- mistakes ----

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
