//! Elementwise functions and reductions against NumPy, SciPy and PyTorch, in compiled code and in the
//! interpreter: the rows of `fixtures/elementwise.json`, which `fixtures/make_elementwise.py` makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::ir::Scalar;
use uopc::tensor::{Axes, with_engine};
use uopc::{DType, Result, Tensor};

/// One row of the fixture.
struct Row {
    name: String,
    parameters: Vec<Value>,
    inputs: Vec<Tensor>,
    output: Array,
    ulps: f64,
}

/// An array of the fixture.
struct Array {
    dtype: DType,
    shape: Vec<usize>,
    numbers: Vec<Scalar>,
}

fn number(dtype: DType, value: &Value) -> Scalar {
    match value {
        Value::String(text) => {
            let special = match text.as_str() {
                "nan" => f64::NAN,
                "inf" => f64::INFINITY,
                "-inf" => f64::NEG_INFINITY,
                "-0" => -0.0,
                // As text, since JSON's numbers may be read with an error in the last place.
                other => other.parse().unwrap(),
            };
            Scalar::from_f64(dtype, special)
        }
        Value::Bool(value) => Scalar::from_bool(*value),
        other if dtype.is_float() => Scalar::from_f64(dtype, other.as_f64().unwrap()),
        other => {
            let whole = other
                .as_i64()
                .map_or_else(|| other.as_u64().unwrap() as i128, i128::from);
            Scalar::from_i128(dtype, whole)
        }
    }
}

fn array(value: &Value) -> Array {
    let dtype = DType::from_name(value["dtype"].as_str().unwrap()).unwrap();
    let shape = value["shape"].as_array().unwrap();
    let data = value["data"].as_array().unwrap();
    Array {
        dtype,
        shape: shape.iter().map(|d| d.as_u64().unwrap() as usize).collect(),
        numbers: data.iter().map(|v| number(dtype, v)).collect(),
    }
}

/// The array in memory; f64 and i64 hold what the fixture has of other dtypes.
fn tensor(array: &Array) -> Tensor {
    let long = if array.dtype.is_float() {
        let numbers: Vec<f64> = array.numbers.iter().map(|s| s.as_f64()).collect();
        Tensor::from_slice(&numbers, &array.shape[..])
    } else if array.dtype == DType::U64 {
        let numbers: Vec<u64> = array.numbers.iter().map(|s| s.as_i128() as u64).collect();
        Tensor::from_slice(&numbers, &array.shape[..])
    } else {
        let numbers: Vec<i64> = array.numbers.iter().map(|s| s.as_i128() as i64).collect();
        Tensor::from_slice(&numbers, &array.shape[..])
    };
    let narrow = long.unwrap().cast(array.dtype).unwrap();
    narrow.realize().unwrap();
    narrow
}

fn rows() -> Vec<Row> {
    let text = include_str!("fixtures/elementwise.json");
    let rows: Vec<Value> = serde_json::from_str(text).unwrap();
    let row = |row: &Value| Row {
        name: row["name"].as_str().unwrap().to_string(),
        parameters: row["parameters"].as_array().unwrap().clone(),
        inputs: row["inputs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| tensor(&array(v)))
            .collect(),
        output: array(&row["output"]),
        ulps: row["ulps"].as_f64().unwrap(),
    };
    rows.iter().map(row).collect()
}

/// The axes of a row: a list, or all.
struct Along(Option<Vec<i64>>);

impl Axes for Along {
    fn axes(&self) -> Option<Vec<i64>> {
        self.0.clone()
    }
}

/// The function of a row by its name; the compiler says if one is missing.
fn apply(row: &Row) -> Result<Tensor> {
    let x = &row.inputs[0];
    let y = || &row.inputs[1];
    let p = |k: usize| number(DType::F64, &row.parameters[k]).as_f64();
    let maybe = |k: usize| (!row.parameters[k].is_null()).then(|| p(k));
    let along = || {
        let axes = row.parameters[0].as_array();
        Along(axes.map(|axes| axes.iter().map(|a| a.as_i64().unwrap()).collect()))
    };
    let axis = || row.parameters[0][0].as_i64().unwrap();
    match row.name.as_str() {
        "tan" => x.tan(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        "asinh" => x.asinh(),
        "acosh" => x.acosh(),
        "atanh" => x.atanh(),
        "expm1" => x.expm1(),
        "log1p" => x.log1p(),
        "log10" => x.log10(),
        "erf" => x.erf(),
        "erfc" => x.erfc(),
        "rsqrt" => x.rsqrt(),
        "softsign" => x.softsign(),
        "mish" => x.mish(),
        "gelu_exact" => x.gelu_exact(),
        "logsigmoid" => x.logsigmoid(),
        "selu" => x.selu(),
        "relu6" => x.relu6(),
        "hardsigmoid" => x.hardsigmoid(),
        "hardswish" => x.hardswish(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "trunc" => x.trunc(),
        "round" => x.round(),
        "round_to" => x.round_to(p(0) as i32),
        "frac" => x.frac(),
        "sign" => x.sign(),
        "signbit" => x.signbit(),
        "isnan" => x.isnan(),
        "isinf" => x.isinf(),
        "isfinite" => x.isfinite(),
        "logical_not" => x.logical_not(),
        "elu" => x.elu(p(0)),
        "celu" => x.celu(p(0)),
        "leaky_relu" => x.leaky_relu(p(0)),
        "hardtanh" => x.hardtanh(p(0), p(1)),
        "softplus_with" => x.softplus_with(p(0), p(1)),
        "clamp" => x.clamp(p(0), p(1)),
        "nan_to_num" => x.nan_to_num(p(0), maybe(1), maybe(2)),
        "pow" => x.pow(y()),
        "atan2" => x.atan2(y()),
        "hypot" => x.hypot(y()),
        "logaddexp" => x.logaddexp(y()),
        "copysign" => x.copysign(y()),
        "fmod" => x.fmod(y()),
        "floormod" => x.floormod(y()),
        "floordiv" => x.floordiv(y()),
        "logical_and" => x.logical_and(y()),
        "logical_or" => x.logical_or(y()),
        "logical_xor" => x.logical_xor(y()),
        "and" => x.and(y()),
        "or" => x.or(y()),
        "xor" => x.xor(y()),
        "shl" => x.shl(y()),
        "shr" => x.shr(y()),
        "isclose" => x.isclose(y(), p(0), p(1), row.parameters[2] == Value::Bool(true)),
        "lerp" => x.lerp(y(), p(0)),
        "sum" => x.sum(along()),
        "mean" => x.mean(along()),
        "prod" => x.prod(along()),
        "any" => x.any(along()),
        "all" => x.all(along()),
        "max" => x.max(along()),
        "min" => x.min(along()),
        "var" => x.var_corrected(along(), p(1)),
        "std" => x.std(along(), p(1)),
        "logsumexp" => x.logsumexp(along()),
        "norm" => x.norm(along(), p(1)),
        "count_nonzero" => x.count_nonzero(along()),
        "nansum" => x.nansum(along()),
        "nanmean" => x.nanmean(along()),
        "argmax" => x.argmax(axis()),
        "argmin" => x.argmin(axis()),
        other => panic!("{other} is not in the table"),
    }
}

/// Bits of the fraction, and the exponent of the least normal number.
fn format(dtype: DType) -> (i32, i32) {
    match dtype {
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F32 => (23, -126),
        _ => (52, -1022),
    }
}

/// The distance in last places; infinite where a special value, a sign of zero or an integer differs.
fn distance(found: Scalar, wanted: Scalar) -> f64 {
    if Scalar::same(found, wanted) {
        return 0.0;
    }
    let (a, b) = (found.as_f64(), wanted.as_f64());
    if !wanted.dtype().is_float() || !a.is_finite() || !b.is_finite() || a == 0.0 && b == 0.0 {
        return f64::INFINITY;
    }
    let (fraction, least) = format(wanted.dtype());
    let exponent = ((b.abs().to_bits() >> 52) as i32 - 1023).max(least);
    // In two factors, as the last place of a subnormal number is no normal one.
    (a - b).abs() * 2f64.powi(-exponent / 2) * 2f64.powi(fraction - exponent - -exponent / 2)
}

fn scalars(t: &Tensor) -> Vec<Scalar> {
    let dtype = t.dtype();
    if dtype.is_float() {
        let wide = t.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
        return wide.iter().map(|&v| Scalar::from_f64(dtype, v)).collect();
    }
    let wide = t.cast(DType::I64).unwrap().to_vec::<i64>().unwrap();
    wide.iter()
        .map(|&v| Scalar::from_i128(dtype, v.into()))
        .collect()
}

fn check(device: DeviceChoice) {
    let settings = Settings {
        device,
        ..Settings::default()
    };
    let engine = Arc::new(Engine::new(settings).unwrap());
    with_engine(&engine, || {
        let rows = rows();
        let results: Vec<Tensor> = rows.iter().map(|row| apply(row).unwrap()).collect();
        let all: Vec<&Tensor> = results.iter().collect();
        Tensor::realize_all(&all).unwrap();
        let mut worst: BTreeMap<&str, f64> = BTreeMap::new();
        let mut failures = Vec::new();
        for (row, found) in rows.iter().zip(&results) {
            let wanted = &row.output;
            let name = &row.name;
            if found.shape()[..] != wanted.shape[..] {
                failures.push(format!(
                    "{name}: shape {} for {:?}",
                    found.shape(),
                    wanted.shape
                ));
                continue;
            }
            // Sums of narrow integers are wider here; the numbers must be the same.
            let found = scalars(&found.cast(wanted.dtype).unwrap());
            for (k, (&a, &b)) in found.iter().zip(&wanted.numbers).enumerate() {
                let error = distance(a, b);
                if error.is_finite() {
                    let worst = worst.entry(name).or_default();
                    *worst = worst.max(error);
                }
                if error > row.ulps {
                    let inputs: Vec<String> = row
                        .inputs
                        .iter()
                        .map(|x| scalars(x).get(k).map_or("-".into(), |v| format!("{v}")))
                        .collect();
                    failures.push(format!(
                        "{name}{:?} {} of {}: {a}, not {b} ({error:.1} ulp)",
                        row.parameters,
                        wanted.dtype,
                        inputs.join(", ")
                    ));
                }
            }
        }
        println!("{worst:?}");
        assert!(
            failures.is_empty(),
            "{} differ:\n{}",
            failures.len(),
            failures.join("\n")
        );
    });
}

#[test]
fn compiled_values_are_those_of_the_reference() {
    check(DeviceChoice::C);
}

#[test]
fn interpreted_values_are_those_of_the_reference() {
    check(DeviceChoice::Interp);
}

/// Every name of the table has a row, so that no line of it is dead.
#[test]
fn the_fixture_has_a_row_for_every_function() {
    let names: Vec<String> = rows().into_iter().map(|row| row.name).collect();
    let table = include_str!("elementwise.rs");
    let listed = table.lines().filter_map(|line| {
        let (name, call) = line.trim().strip_prefix('"')?.split_once("\" => x.")?;
        (!call.is_empty()).then_some(name)
    });
    let listed: Vec<&str> = listed.collect();
    assert!(listed.len() > 60, "{listed:?}");
    for name in listed {
        assert!(names.iter().any(|n| n == name), "{name} has no row");
    }
}
