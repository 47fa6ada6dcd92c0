//! Large products of bf16 by tiles: close to the exact product, the same bits whatever the threads,
//! and the loops that say them are exact.

use uopc::backend::c::render::render;
use uopc::compile::{Engine, RealizeOptions, lower};
use uopc::debug::{DeviceChoice, Schedule, Settings};
use uopc::machine::Machine;
use uopc::{DType, Tensor};

/// The bytes of a tensor's value.
fn bytes(t: &Tensor, settings: Settings) -> Vec<u8> {
    let engine = Engine::new(settings).unwrap();
    let roots = [t.uop().clone()];
    let got = engine.realize(&roots, &RealizeOptions::default()).unwrap();
    t.uop().clear_home();
    got.outputs[0].as_bytes().to_vec()
}

fn settings(threads: usize) -> Settings {
    Settings {
        device: DeviceChoice::C,
        threads: Some(threads),
        ..Settings::default()
    }
}

/// Random numbers in bf16, computed now so that products read memory.
fn numbers(shape: [usize; 2]) -> Tensor {
    let t = Tensor::uniform(shape, -1.0, 1.0).unwrap();
    let t = t.cast(DType::BF16).unwrap();
    t.realize().unwrap();
    t
}

/// A matrix of bf16 in f64, row by row.
fn exact(t: &Tensor) -> Vec<f64> {
    let wide = t.cast(DType::F32).unwrap();
    let bytes = bytes(&wide, settings(1));
    floats(&bytes)
}

fn floats(bytes: &[u8]) -> Vec<f64> {
    let chunks = bytes.chunks_exact(4);
    let float = |c: &[u8]| f64::from(f32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    chunks.map(float).collect()
}

/// The exact product and the sum of magnitudes, element by element.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> (Vec<f64>, Vec<f64>) {
    let (mut sums, mut sizes) = (vec![0.0; m * n], vec![0.0; m * n]);
    for i in 0..m {
        for l in 0..k {
            let x = a[i * k + l];
            for j in 0..n {
                let product = x * b[l * n + j];
                sums[i * n + j] += product;
                sizes[i * n + j] += product.abs();
            }
        }
    }
    (sums, sizes)
}

/// Whether this machine has tiles; says so if it has none.
fn has_tiles() -> bool {
    let has = Machine::native().bf16_tiles;
    if !has {
        eprintln!("skipped: this machine has no tiles of bf16");
    }
    has
}

#[test]
fn products_are_close_and_do_not_depend_on_threads() {
    if !has_tiles() {
        return;
    }
    for (size, turn_a, turn_b) in [
        ([1000, 777, 333], false, false),
        ([1000, 777, 333], true, true),
        ([256, 256, 256], false, true),
        ([70, 5000, 60], false, false),
        ([64, 8192, 40], true, false),
    ] {
        let [m, k, n] = size;
        let a = numbers(if turn_a { [k, m] } else { [m, k] });
        let b = numbers(if turn_b { [n, k] } else { [k, n] });
        let turned = |t: &Tensor, turn: bool| match turn {
            true => t.transpose().unwrap(),
            false => t.clone(),
        };
        let (a, b) = (turned(&a, turn_a), turned(&b, turn_b));
        let (sums, sizes) = product(&exact(&a), &exact(&b), size);
        let sum = a.matmul(&b).unwrap();
        let text = text(&sum, Machine::native());
        assert!(text.contains("bf16_tile("), "{size:?}: no tile\n{text}");
        let first = bytes(&sum, settings(1));
        let bound = (k as f64 / 32.0 + 20.0) * 2f64.powi(-24);
        for (e, got) in first.chunks_exact(2).enumerate() {
            let got = half::bf16::from_le_bytes([got[0], got[1]]).to_f64();
            // The sum is rounded once to bf16.
            let allowed = bound * sizes[e] + sums[e].abs() * 2f64.powi(-8);
            assert!(
                (got - sums[e]).abs() <= allowed,
                "{size:?} {turn_a} {turn_b}: element {e} is {got}, not {}",
                sums[e]
            );
        }
        for threads in [1, 2, 3] {
            assert!(
                first == bytes(&sum, settings(threads)),
                "{size:?}: {threads} threads"
            );
        }
    }
}

/// The C of a product.
fn text(t: &Tensor, machine: Machine) -> String {
    let settings = Settings {
        machine,
        ..settings(2)
    };
    let lowered = lower(&[t.uop().clone()], None, &settings).unwrap();
    lowered
        .launches
        .iter()
        .map(|l| render(&l.program))
        .collect()
}

#[test]
fn only_large_products_become_tiles() {
    let product = |n: usize| numbers([n, n]).matmul(&numbers([n, n])).unwrap();
    let large = product(256);
    assert!(text(&large, Machine::amx()).contains("bf16_tile("));
    assert!(!text(&large, Machine::avx512()).contains("bf16_tile"));
    assert!(!text(&product(255), Machine::amx()).contains("bf16_tile"));
    let f32 = Tensor::uniform([256, 256], -1.0, 1.0).unwrap();
    let wide = f32.matmul(&f32).unwrap();
    assert!(!text(&wide, Machine::amx()).contains("bf16_tile"));
}

#[test]
fn the_loops_of_tiles_are_exact() {
    // So few rows and columns that additions are part of the product: what is beyond the end of k is 0 and
    // not what they make of it.
    let (a, b) = (numbers([31, 17001]), numbers([17001, 32]));
    let t = a.add(1.0).unwrap().matmul(&b.add(1.0).unwrap()).unwrap();
    let on = |schedule, machine, device| Settings {
        schedule,
        machine,
        device,
        ..Settings::default()
    };
    let plain = on(Schedule::Plain, Machine::avx512(), DeviceChoice::C);
    let loops = on(Schedule::Default, Machine::amx(), DeviceChoice::Interp);
    assert!(text(&t, Machine::amx()).contains("bf16_tile("));
    assert!(bytes(&t, plain) == bytes(&t, loops));
}
