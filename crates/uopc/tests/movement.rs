//! Creation, movement, indexing, scattering and Einstein's sums: the rows of `fixtures/movement.json`,
//! which `fixtures/make_movement.py` makes with NumPy and PyTorch, interpreted and compiled; who stays
//! of several for one place, and what is out of range.

mod tensors;

use serde_json::Value;
use tensors::places::{engine, everywhere, ints, numbers};
use uopc::debug::DeviceChoice;
use uopc::ir::op::{Fold, Op};
use uopc::ir::visit::toposort;
use uopc::ir::{Scalar, UOp};
use uopc::tensor::{Axes, Combine, Index, Indexing, Shape, Slice, with_engine};
use uopc::{DType, Result, Tensor};

const ROWS: &str = include_str!("fixtures/movement.json");

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
        "index_copy" => x().index_copy(at(0), y(), &inputs[2]),
        "index_fill" => x().index_fill(at(0), y(), 2.5),
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

// ---- contractions ----

/// How the sums of a tensor's graph are taken.
fn folds(t: &Tensor) -> Vec<Fold> {
    let nodes = toposort(&[t.uop()]);
    let fold = |u: &UOp| match u.op() {
        Op::Reduce { fold, .. } => Some(*fold),
        _ => None,
    };
    nodes.iter().filter_map(fold).collect()
}

#[test]
fn sums_of_products_of_two_are_contractions() {
    let (a, q) = (numbers(&[4, 5], 0), numbers(&[2, 3, 4, 5], 1));
    let chains = [
        (
            Tensor::einsum("ij,jk->ik", &[&a, &a.transpose().unwrap()]),
            1,
        ),
        (Tensor::einsum("bhqd,bhkd->bhqk", &[&q, &q]), 1),
        (Tensor::einsum("bqhd,bkhd->bhqk", &[&q, &q]), 1),
        (
            Tensor::einsum("...d,de->...e", &[&q, &a.transpose().unwrap()]),
            1,
        ),
        (Tensor::einsum("ij,kj,kl->il", &[&a, &a, &a]), 2),
        (q.tensordot_axes(&q, [1, 3], [1, 3]), 1),
        (a.inner(&a), 1),
    ];
    for (k, (t, n)) in chains.into_iter().enumerate() {
        assert_eq!(folds(&t.unwrap()), vec![Fold::Chain; n], "{k}");
    }
    // Ten matrices in a row and a vector: from the vector on, with no product of two matrices.
    let matrices: Vec<Tensor> = (0..8).map(|k| numbers(&[6, 6], k)).collect();
    let v = numbers(&[6], 1);
    let operands: Vec<&Tensor> = matrices.iter().chain([&v]).collect();
    let t = Tensor::einsum("ab,bc,cd,de,ef,fg,gh,hi,i->a", &operands).unwrap();
    let largest = toposort(&[t.uop()]).iter().map(|u| u.shape().numel()).max();
    assert_eq!(largest, Some(36));
}
