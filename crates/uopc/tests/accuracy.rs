//! How far functions are from the correctly rounded result, over the whole range of each dtype, in
//! compiled code and in the interpreter.
//!
//! Arguments are every n-th bit pattern of f32, so all magnitudes, subnormal numbers, infinities and
//! NaN are among them. f32 is compared with the function of the system's library in f64, f64 with the
//! same function directly, which is itself within one unit in the last place or so. Errors are in
//! such units (ulp) of the result; infinite, NaN and zero results must agree exactly.
//!
//! `cargo test --release -p uopc --test accuracy -- --nocapture` prints the table of
//! `docs/accuracy.md`. With UOPC_DEEP a function is looked at in more than a million points.

#![allow(unsafe_code)]

use std::sync::Arc;

use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::tensor::with_engine;
use uopc::{Result, Tensor};

/// A function, and the same in f64 with other means.
struct Row {
    name: &'static str,
    ours: fn(&Tensor) -> Result<Tensor>,
    exact: fn(f64) -> f64,
    /// The largest errors allowed, for f32 and for f64.
    allowed: [f64; 2],
}

// SAFETY: these are functions of C's mathematical library, of numbers alone.
unsafe extern "C" {
    safe fn erf(x: f64) -> f64;
    safe fn erfc(x: f64) -> f64;
    safe fn asinh(x: f64) -> f64;
    safe fn acosh(x: f64) -> f64;
    safe fn atanh(x: f64) -> f64;
}

fn sigmoid(x: f64) -> f64 {
    if x < 0.0 {
        x.exp() / (1.0 + x.exp())
    } else {
        1.0 / (1.0 + (-x).exp())
    }
}

/// The one that is allowed more than 2 in f32 is a product with a function that needs most of that.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "exp", ours: Tensor::exp, exact: f64::exp, allowed: [2.0, 2.0] },
    Row { name: "exp2", ours: Tensor::exp2, exact: f64::exp2, allowed: [2.0, 2.0] },
    Row { name: "expm1", ours: Tensor::expm1, exact: f64::exp_m1, allowed: [2.0, 4.0] },
    Row { name: "log", ours: Tensor::log, exact: f64::ln, allowed: [2.0, 2.0] },
    Row { name: "log2", ours: Tensor::log2, exact: f64::log2, allowed: [2.0, 2.0] },
    Row { name: "log10", ours: Tensor::log10, exact: f64::log10, allowed: [2.0, 2.0] },
    Row { name: "log1p", ours: Tensor::log1p, exact: f64::ln_1p, allowed: [2.0, 4.0] },
    Row { name: "sqrt", ours: Tensor::sqrt, exact: f64::sqrt, allowed: [2.0, 0.0] },
    Row { name: "rsqrt", ours: Tensor::rsqrt, exact: |x| 1.0 / x.sqrt(), allowed: [2.0, 2.0] },
    Row { name: "sin", ours: Tensor::sin, exact: f64::sin, allowed: [2.0, 2.0] },
    Row { name: "cos", ours: Tensor::cos, exact: f64::cos, allowed: [2.0, 2.0] },
    Row { name: "tan", ours: Tensor::tan, exact: f64::tan, allowed: [2.0, 4.0] },
    Row { name: "asin", ours: Tensor::asin, exact: f64::asin, allowed: [2.0, 4.0] },
    Row { name: "acos", ours: Tensor::acos, exact: f64::acos, allowed: [2.0, 4.0] },
    Row { name: "atan", ours: Tensor::atan, exact: f64::atan, allowed: [2.0, 4.0] },
    Row { name: "sinh", ours: Tensor::sinh, exact: f64::sinh, allowed: [2.0, 4.0] },
    Row { name: "cosh", ours: Tensor::cosh, exact: f64::cosh, allowed: [2.0, 4.0] },
    Row { name: "tanh", ours: Tensor::tanh, exact: f64::tanh, allowed: [2.0, 4.0] },
    Row { name: "asinh", ours: Tensor::asinh, exact: |x| asinh(x), allowed: [2.0, 4.0] },
    Row { name: "acosh", ours: Tensor::acosh, exact: |x| acosh(x), allowed: [2.0, 4.0] },
    Row { name: "atanh", ours: Tensor::atanh, exact: |x| atanh(x), allowed: [2.0, 4.0] },
    Row { name: "erf", ours: Tensor::erf, exact: |x| erf(x), allowed: [2.0, 4.0] },
    Row { name: "erfc", ours: Tensor::erfc, exact: |x| erfc(x), allowed: [2.0, 6.0] },
    Row { name: "sigmoid", ours: Tensor::sigmoid, exact: sigmoid, allowed: [2.0, 4.0] },
    Row { name: "softplus", ours: Tensor::softplus, exact: |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), allowed: [2.0, 4.0] },
    Row { name: "silu", ours: Tensor::silu, exact: |x| if x < -800.0 { -0.0 } else { x * sigmoid(x) }, allowed: [3.0, 4.0] },
];

fn engine(device: DeviceChoice) -> Arc<Engine> {
    Arc::new(
        Engine::new(Settings {
            device,
            ..Settings::default()
        })
        .unwrap(),
    )
}

/// The distance in units of the last place of z, of numbers with so many bits and a least exponent.
fn in_last_places(distance: f64, z: f64, (fraction, least): (i32, i32)) -> f64 {
    let exponent = (z.abs().to_bits() >> 52) as i32 - 1023;
    let exponent = exponent.max(least);
    // In two factors, as the last place of a subnormal number is no normal one.
    distance * 2f64.powi(-exponent / 2) * 2f64.powi(fraction - exponent - -exponent / 2)
}

/// The distance in last places; infinite where one is special and the other is not the same.
fn error(y: f64, z: f64, rounded: f64, format: (i32, i32)) -> f64 {
    if y.is_nan() || rounded.is_nan() || y.is_infinite() || rounded.is_infinite() {
        let same = y.is_nan() && rounded.is_nan() || y == rounded;
        // A result of the largest magnitude may be rounded either way.
        let near = y.abs() >= f32::MAX as f64
            && rounded.abs() >= f32::MAX as f64
            && y.signum() == rounded.signum();
        return if same {
            0.0
        } else if near {
            1.0
        } else {
            f64::INFINITY
        };
    }
    if y == 0.0 && rounded == 0.0 {
        return if y.is_sign_negative() == rounded.is_sign_negative() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    in_last_places((y - z).abs(), z, format)
}

fn measure(device: DeviceChoice, step: usize) -> Vec<[(f64, f64); 2]> {
    let singles: Vec<f32> = (0..=u32::MAX).step_by(step).map(f32::from_bits).collect();
    // The same magnitudes in f64, with more digits; and the range beyond f32.
    let doubles: Vec<f64> = (0..singles.len() as u64)
        .map(|k| match k % 4 {
            0 => f64::from_bits(k.wrapping_mul(u64::MAX / singles.len() as u64)),
            1 => singles[k as usize] as f64 * (1.0 + (k % 1009) as f64 / 1.0e12),
            2 => (k as f64 / singles.len() as f64 - 0.5) * 2.5 * (1.0 + 1.0 / 3.0e9),
            _ => (k as f64 / singles.len() as f64 - 0.5) * 90.0 * (1.0 + 1.0 / 3.0e9),
        })
        .collect();
    with_engine(&engine(device), || {
        let x = Tensor::from_slice(&singles, [singles.len()]).unwrap();
        let long = Tensor::from_slice(&doubles, [doubles.len()]).unwrap();
        let results: Vec<[Tensor; 2]> = ROWS
            .iter()
            .map(|row| [(row.ours)(&x).unwrap(), (row.ours)(&long).unwrap()])
            .collect();
        let all: Vec<&Tensor> = results.iter().flatten().collect();
        Tensor::realize_all(&all).unwrap();
        let rows = ROWS.iter().zip(&results);
        rows.map(|(row, [short, long])| {
            let short = short.to_vec::<f32>().unwrap();
            let long = long.to_vec::<f64>().unwrap();
            let mut worst = [(0.0, 0.0); 2];
            for (&x, &y) in singles.iter().zip(&short) {
                let z = (row.exact)(x as f64);
                // A subnormal sigmoid has few digits, and so has x times it: below 2^-119.
                if row.name == "silu" && x < -87.3 {
                    continue;
                }
                let error = error(y as f64, z, (z as f32) as f64, (23, -126));
                if error > worst[0].0 {
                    worst[0] = (error, x as f64);
                }
            }
            for (&x, &y) in doubles.iter().zip(&long) {
                let z = (row.exact)(x);
                let error = error(y, z, z, (52, -1022));
                if error > worst[1].0 {
                    worst[1] = (error, x);
                }
            }
            worst
        })
        .collect()
    })
}

fn check(device: DeviceChoice, step: usize) {
    let found = measure(device, step);
    println!("| function | f32 | f64 |\n|---|---|---|");
    let mut failures = Vec::new();
    for (row, [short, long]) in ROWS.iter().zip(found) {
        let name = row.name;
        println!(
            "| {name} | {:.2} at {:e} | {:.2} at {:e} |",
            short.0, short.1, long.0, long.1
        );
        if short.0 > row.allowed[0] || long.0 > row.allowed[1] {
            failures.push(name);
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}

fn step() -> usize {
    if std::env::var_os("UOPC_DEEP").is_some() {
        4_003
    } else {
        65_537 * 3
    }
}

#[test]
fn compiled_functions_are_accurate() {
    check(DeviceChoice::C, step());
}

#[test]
fn interpreted_functions_are_accurate() {
    check(DeviceChoice::Interp, step());
}
