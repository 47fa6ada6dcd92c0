//! Running combinations, sorting and order statistics: values against NumPy and PyTorch
//! (`fixtures/make_sort.py`), interpreted and compiled, gradients of orders 1 and 2, and mistakes.

use std::sync::Arc;

use serde_json::Value;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::ir::Scalar;
use uopc::tensor::{Interpolation, Side, with_engine};
use uopc::{DType, Result, Tensor, gradcheck, jvp, vmap};

const ROWS: &str = include_str!("fixtures/sort.json");

/// Runs `f` with engines of its own: the interpreter of loops, and compiled code.
fn everywhere(f: impl Fn(&str)) {
    for (name, device) in [
        ("interpreted", DeviceChoice::Interp),
        ("compiled", DeviceChoice::C),
    ] {
        let settings = Settings {
            device,
            ..Settings::default()
        };
        let engine = Arc::new(Engine::new(settings).unwrap());
        with_engine(&engine, || f(name));
    }
}

// ---- values ----

fn number(v: &Value) -> f64 {
    match v {
        Value::Bool(b) => f64::from(u8::from(*b)),
        Value::String(s) => s.parse().unwrap(),
        _ => v.as_f64().unwrap(),
    }
}

fn scalar(dtype: DType, v: &Value) -> Scalar {
    match v.as_i64().map(i128::from).or(v.as_u64().map(i128::from)) {
        Some(whole) => Scalar::from_i128(dtype, whole),
        None => Scalar::from_f64(dtype, number(v)),
    }
}

/// The shape, dtype and elements of an array of the fixture.
fn array(v: &Value) -> (Vec<usize>, DType, Vec<Scalar>) {
    let dtype = DType::from_name(v["dtype"].as_str().unwrap()).unwrap();
    let all = |v: &Value| v.as_array().unwrap().clone();
    let shape = all(&v["shape"])
        .into_iter()
        .map(|d| d.as_u64().unwrap() as usize);
    let data = all(&v["data"]).iter().map(|v| scalar(dtype, v)).collect();
    (shape.collect(), dtype, data)
}

fn tensor(v: &Value) -> Tensor {
    let (shape, dtype, data) = array(v);
    let bytes = data
        .iter()
        .flat_map(|s| s.bits().to_le_bytes()[..dtype.size()].to_vec());
    Tensor::from_bytes(&bytes.collect::<Vec<u8>>(), dtype, shape).unwrap()
}

/// Axes are null for all, a number, or a list.
fn axes(v: &Value, rank: usize) -> Vec<i64> {
    match v {
        Value::Null => (0..rank as i64).collect(),
        Value::Array(all) => all.iter().map(|a| a.as_i64().unwrap()).collect(),
        _ => vec![v.as_i64().unwrap()],
    }
}

fn call(name: &str, p: &[Value], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let x = &inputs[0];
    let axis = |k: usize| p[k].as_i64().unwrap();
    let count = |k: usize| p[k].as_u64().unwrap() as usize;
    let flag = |k: usize| p[k].as_bool().unwrap();
    let both = |(a, b): (Tensor, Tensor)| vec![a, b];
    Ok(match name {
        "cumsum" => vec![x.cumsum(axis(0))?],
        "cumprod" => vec![x.cumprod(axis(0))?],
        "cummax" => both(x.cummax(axis(0))?),
        "cummin" => both(x.cummin(axis(0))?),
        "logcumsumexp" => vec![x.logcumsumexp(axis(0))?],
        "sort" => both(x.sort(axis(0), flag(1))?),
        "argsort" => vec![x.argsort(axis(0), flag(1))?],
        "topk" => both(x.topk(count(0), axis(1), flag(2))?),
        "kthvalue" => both(x.kthvalue(count(0), axis(1))?),
        "median" => {
            let axes = axes(&p[0], x.rank());
            vec![match flag(1) {
                true => x.median_keepdim(axes)?,
                false => x.median(axes)?,
            }]
        }
        "quantile" => {
            let (axes, how) = (
                axes(&p[1], x.rank()),
                Interpolation::of(p[2].as_str().unwrap())?,
            );
            vec![match (&p[0], flag(3)) {
                (Value::Array(q), keeps) => {
                    let q: Vec<f64> = q.iter().map(number).collect();
                    match keeps {
                        true => x.quantiles_keepdim(&q, axes, how)?,
                        false => x.quantiles(&q, axes, how)?,
                    }
                }
                (q, true) => x.quantile_keepdim(number(q), axes, how)?,
                (q, false) => x.quantile(number(q), axes, how)?,
            }]
        }
        "searchsorted" => {
            let side = match p[0].as_str() {
                Some("right") => Side::Right,
                _ => Side::Left,
            };
            vec![x.searchsorted(&inputs[1], side)?]
        }
        other => panic!("there is no function {other}"),
    })
}

#[test]
fn values_are_those_of_numpy_and_pytorch() {
    let rows: Vec<Value> = serde_json::from_str(ROWS).unwrap();
    assert!(rows.len() > 300);
    let list = |row: &Value, what: &str| row[what].as_array().unwrap().clone();
    everywhere(|engine| {
        let mut found = Vec::new();
        for row in &rows {
            let inputs: Vec<Tensor> = list(row, "inputs").iter().map(tensor).collect();
            let name = row["name"].as_str().unwrap();
            found.push(call(name, &list(row, "parameters"), &inputs).unwrap());
        }
        let all: Vec<Tensor> = found.iter().flatten().cloned().collect();
        Tensor::realize_all(&all).unwrap();
        for (row, found) in rows.iter().zip(&found) {
            let outputs = list(row, "outputs");
            assert_eq!(found.len(), outputs.len());
            for (k, (found, output)) in found.iter().zip(&outputs).enumerate() {
                let (shape, dtype, expected) = array(output);
                let name = format!("{} {} result {k}, {engine}", row["name"], row["parameters"]);
                assert_eq!(
                    (found.dtype(), &found.shape()[..]),
                    (dtype, &shape[..]),
                    "{name}"
                );
                compare(&name, found, &expected, number(&row["ulps"]), row);
            }
        }
    });
}

/// Of places that are exact, and between equal numbers, there is nothing to compute.
#[test]
fn quantiles_of_infinite_numbers() {
    let (least, most) = (f32::NEG_INFINITY, f32::INFINITY);
    let x = Tensor::from([[least, 1.0, most], [most, most, 2.0], [least, 3.0, 4.0]]);
    let of = |q: f64| x.quantile(q, 1, Interpolation::Linear).unwrap();
    let values = |t: Tensor| t.to_vec::<f32>().unwrap();
    assert_eq!(values(of(0.5)), [1.0, most, 3.0]);
    assert_eq!(values(of(0.75)), [most, most, 3.5]);
    assert_eq!(values(of(0.0)), [least, 2.0, least]);
    assert_eq!(values(x.median(1).unwrap()), [1.0, most, 3.0]);
}

/// Within so many units in the last place of the largest finite number.
fn compare(name: &str, found: &Tensor, expected: &[Scalar], ulps: f64, row: &Value) {
    let dtype = found.dtype();
    let bytes = found.to_bytes().unwrap();
    let found: Vec<Scalar> = (bytes.chunks_exact(dtype.size()))
        .map(|b| {
            let mut word = [0; 8];
            word[..b.len()].copy_from_slice(b);
            Scalar::from_bits(dtype, u64::from_le_bytes(word))
        })
        .collect();
    let digits = match dtype {
        DType::F16 => 11,
        DType::F32 => 24,
        _ => 53,
    };
    let finite = expected
        .iter()
        .map(|s| s.as_f64().abs())
        .filter(|v| v.is_finite());
    let allowed = ulps * finite.fold(0.0, f64::max) * 0.5f64.powi(digits - 1);
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        let (x, y) = (a.as_f64(), b.as_f64());
        let close = match dtype.is_float() {
            true => x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= allowed,
            false => a.as_i128() == b.as_i128(),
        };
        assert!(close, "{name}: element {i} is {a}, not {b}: {row}");
    }
}

// ---- derivatives ----

fn apart(shape: &[usize]) -> Tensor {
    // Every number once, in no order.
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|k| (k * 7 % n) as f64 * 0.25 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

type Row = (&'static str, fn(&Tensor) -> Result<Tensor>);

/// Functions that have derivatives where elements differ.
const DIFFERENTIABLE: &[Row] = &[
    ("cumsum", |x| x.cumsum(0)?.square()),
    ("cumprod", |x| x.cumprod(-1)),
    ("cumprod of zeros", |x| {
        x.mul(&x.lt(0)?.cast(DType::F64)?)?.cumprod(1)
    }),
    ("cummax", |x| x.cummax(0)?.0.square()),
    ("cummin", |x| x.cummin(1)?.0.square()),
    ("logcumsumexp", |x| x.logcumsumexp(1)),
    ("sort", |x| x.sort(0, false)?.0.cumprod(0)),
    ("sort descending", |x| x.sort(-1, true)?.0.cumprod(1)),
    ("topk", |x| x.topk(2, 1, true)?.0.square()),
    ("kthvalue", |x| x.kthvalue(2, 0)?.0.square()),
    ("median", |x| x.median(1)?.square()),
    ("median of all", |x| x.median(..)?.exp()),
    ("quantile", |x| {
        x.quantile(0.3, 1, Interpolation::Linear)?.square()
    }),
    ("quantiles", |x| {
        x.quantiles(&[0.2, 0.9], 0, Interpolation::Linear)?.square()
    }),
    ("nearest", |x| {
        x.quantile(0.3, 1, Interpolation::Nearest)?.square()
    }),
];

#[test]
fn gradients_of_orders_1_and_2_are_right() {
    let x = apart(&[3, 5]);
    for (name, f) in DIFFERENTIABLE {
        let report = gradcheck(|x: &Tensor| f(x), &x).unwrap();
        assert!(report.passed(), "{name}\n{report}");
    }
}

/// Gradients where elements tie or are not numbers, worked out by hand.
#[test]
fn gradients_at_ties_zeros_and_nans() {
    let gradient = |x: &[f32], f: &dyn Fn(&Tensor) -> Result<Tensor>| -> Vec<f32> {
        let x = Tensor::from_slice(x, [x.len()])
            .unwrap()
            .requires_grad()
            .unwrap();
        f(&x).unwrap().sum(..).unwrap().backward(&[&x]).unwrap();
        x.grad().unwrap().to_vec().unwrap()
    };
    everywhere(|engine| {
        let of = |x: &[f32], f: &dyn Fn(&Tensor) -> Result<Tensor>, expected: &[f32]| {
            assert_eq!(gradient(x, f), expected, "{x:?}, {engine}");
        };
        // d sum of (a, ab, abc, abcd): 1 + b + bc + bcd, a + ac + acd, ab + abd, abc.
        of(
            &[2.0, 0.0, 3.0, 5.0],
            &|x| x.cumprod(0),
            &[1.0, 38.0, 0.0, 0.0],
        );
        of(
            &[2.0, 0.0, 0.0, 5.0],
            &|x| x.cumprod(0),
            &[1.0, 2.0, 0.0, 0.0],
        );
        of(
            &[0.0, 3.0, 0.0, 5.0],
            &|x| x.cumprod(0),
            &[4.0, 0.0, 0.0, 0.0],
        );
        // The last of equal ones holds the maximum.
        of(
            &[1.0, 1.0, 0.0, 1.0],
            &|x| Ok(x.cummax(0)?.0),
            &[1.0, 2.0, 0.0, 1.0],
        );
        of(
            &[1.0, f32::NAN, 5.0, 7.0],
            &|x| Ok(x.cummax(0)?.0),
            &[1.0, 3.0, 0.0, 0.0],
        );
        of(&[3.0, 4.0, 3.0], &|x| Ok(x.cummin(0)?.0), &[2.0, 0.0, 1.0]);
        // What holds no maximum has none, whatever its derivative would be.
        of(&[4.0, 0.0], &|x| Ok(x.sqrt()?.cummax(0)?.0), &[0.5, 0.0]);
        // Without a sum there is nothing to change.
        let least = f32::NEG_INFINITY;
        of(
            &[least, 0.0, least],
            &|x| x.logcumsumexp(0),
            &[0.0, 2.0, 0.0],
        );
        of(
            &[2.0, 2.0, 1.0],
            &|x| Ok(x.topk(1, 0, true)?.0),
            &[1.0, 0.0, 0.0],
        );
        of(
            &[4.0, 1.0, 3.0, 9.0],
            &|x| x.median(0),
            &[0.5, 0.0, 0.5, 0.0],
        );
    });
}

#[test]
fn batches_and_tangents() {
    let x = apart(&[3, 4]);
    let sorted = |x: &Tensor| Ok(x.sort(0, true)?.0);
    let mapped = vmap(sorted, 0, 0)(&x).unwrap();
    let rows = x.sort(1, true).unwrap().0;
    assert_eq!(
        mapped.to_vec::<f64>().unwrap(),
        rows.to_vec::<f64>().unwrap()
    );
    let sums = vmap(|x: &Tensor| x.cumprod(0), 1, 1)(&x).unwrap();
    let columns = x.cumprod(0).unwrap();
    assert_eq!(
        sums.to_vec::<f64>().unwrap(),
        columns.to_vec::<f64>().unwrap()
    );
    let (_, tangent) = jvp(|x: &Tensor| x.median(1), &x, &x).unwrap();
    let medians = x.median(1).unwrap();
    assert_eq!(
        tangent.to_vec::<f64>().unwrap(),
        medians.to_vec::<f64>().unwrap()
    );
}

// ---- mistakes ----

#[test]
fn mistakes_are_errors_that_say_what_fits() {
    let x = Tensor::zeros([2, 3]).unwrap();
    let of = |r: Result<Tensor>| r.unwrap_err().to_string();
    let first = |r: Result<(Tensor, Tensor)>| r.unwrap_err().to_string();
    let point = Tensor::zeros(()).unwrap();
    let cases = [
        (
            of(x.cumsum(2)),
            "cumsum: axis 2 of shape (2, 3); axes go from -2 to 1",
        ),
        (
            of(point.cumsum(0)),
            "cumsum: axis 0 of shape (), which has no axes",
        ),
        (first(x.sort(-3, false)), "sort: axis -3 of shape (2, 3)"),
        (
            first(x.cummax(i64::MIN)),
            "cummax: axis -9223372036854775808 of shape (2, 3)",
        ),
        (
            first(x.topk(4, 1, true)),
            "topk: k = 4, but axis 1 of shape (2, 3) has 3 elements; give at most 3",
        ),
        (
            first(x.topk(usize::MAX, 1, true)),
            "topk: k = 18446744073709551615, but axis 1",
        ),
        (
            first(x.kthvalue(0, 1)),
            "kthvalue: k = 0, but axis 1 of shape (2, 3) has 3 elements",
        ),
        (
            of(x.quantile(1.5, 0, Interpolation::Linear)),
            "quantile: q = 1.5 is no part of the elements; give a number from 0 to 1",
        ),
        (
            of(x.quantile(f64::NAN, 0, Interpolation::Linear)),
            "quantile: q = NaN is no part",
        ),
        (
            of(x.median([0, 0])),
            "median: [0, 0] names axis 0 of shape (2, 3) twice",
        ),
        (
            of(x.searchsorted(&Tensor::zeros([3, 3]).unwrap(), Side::Left)),
            "searchsorted: sorted rows (2, 3) and values (3, 3) do not fit; give one row",
        ),
        (
            of(point.searchsorted(&x, Side::Left)),
            "searchsorted: sorted rows () and values",
        ),
        (
            Interpolation::of("cubic").unwrap_err().to_string(),
            "quantile: there is no interpolation 'cubic'; give linear, lower, higher, nearest or",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.starts_with(expected), "{found}");
    }
}
