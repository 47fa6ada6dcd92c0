//! SCAN and ARGSORT: values against loops written here, the same bits in every engine, under every
//! schedule and for any number of threads.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uopc::Tensor;
use uopc::compile::{Engine, RealizeOptions};
use uopc::debug::{DeviceChoice, Schedule, Settings};
use uopc::interp::{Array, graph};
use uopc::ir::op::ReduceOp;
use uopc::ir::{DType, UOp};
use uopc::machine::Machine;

/// Rows and their lengths.
const SHAPES: &[(usize, usize)] = &[
    (1, 1),
    (1, 7),
    (5, 1),
    (3, 16),
    (300, 5),
    (7, 100),
    (40, 128),
    (2, 129),
    (9, 300),
    (1, 5000),
    (0, 3),
    (3, 0),
];

fn settings(schedule: Schedule, threads: usize) -> Settings {
    Settings {
        schedule,
        device: DeviceChoice::C,
        threads: Some(threads),
        ..Settings::default()
    }
}

/// All engines whose bits must be equal; the first is the plain one.
fn engines() -> Vec<(&'static str, Settings)> {
    let loops = |machine| Settings {
        device: DeviceChoice::Interp,
        machine,
        ..Settings::default()
    };
    let searched = Settings {
        search: 3,
        ..settings(Schedule::Default, 2)
    };
    vec![
        ("plain", settings(Schedule::Plain, 1)),
        ("one thread", settings(Schedule::Default, 1)),
        ("two threads", settings(Schedule::Default, 2)),
        ("five threads", settings(Schedule::Default, 5)),
        ("search", searched),
        ("loops", loops(Machine::native())),
        ("loops of avx2", loops(Machine::avx2())),
        ("portable loops", loops(Machine::portable())),
    ]
}

/// The bits of values under some settings.
fn bits(roots: &[UOp], settings: Settings) -> Vec<Vec<u8>> {
    let engine = Engine::new(settings).unwrap();
    eprintln!(
        "{:?} {:?} {:?}",
        engine.settings().schedule,
        engine.settings().threads,
        engine.settings().device
    );
    let got = engine.realize(roots, &RealizeOptions::default()).unwrap();
    roots.iter().for_each(UOp::clear_home);
    got.outputs.iter().map(|o| o.as_bytes().to_vec()).collect()
}

/// Numbers of very different size, with ties, zeros of both signs, infinities and NaNs.
fn numbers(rng: &mut StdRng, n: usize) -> Vec<f32> {
    let number = |_| match rng.random_range(0..12) {
        0 => 0.0,
        1 => -0.0,
        2 => rng.random_range(-3..4) as f32,
        _ => rng.random_range(-1.0f32..1.0) * 10f32.powi(rng.random_range(-3..4)),
    };
    (0..n).map(number).collect()
}

/// The same with infinities and NaNs.
fn wild(rng: &mut StdRng, n: usize) -> Vec<f32> {
    let mut all = numbers(rng, n);
    for x in &mut all {
        match rng.random_range(0..20) {
            0 => *x = f32::NAN,
            1 => *x = f32::INFINITY,
            2 => *x = f32::NEG_INFINITY,
            3 => *x = -f32::NAN,
            _ => {}
        }
    }
    all
}

fn running(row: &[f32], start: f32, op: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    let mut carried = start;
    let step = |x: &f32| {
        carried = op(carried, *x);
        carried
    };
    row.iter().map(step).collect()
}

/// By rows, as bytes.
fn by_rows<T>(
    x: &[f32],
    n: usize,
    f: impl Fn(&[f32]) -> Vec<T>,
    bytes: fn(T) -> Vec<u8>,
) -> Vec<u8> {
    let rows = x.chunks_exact(n.max(1));
    rows.flat_map(f).flat_map(bytes).collect()
}

/// NaNs are all alike.
fn same(found: &[u8], expected: &[u8]) -> bool {
    let words = |b: &[u8]| -> Vec<f32> {
        let word = |w: &[u8]| f32::from_le_bytes(w.try_into().unwrap());
        b.chunks_exact(4).map(word).collect()
    };
    let (a, b) = (words(found), words(expected));
    a.len() == b.len()
        && a.iter()
            .zip(&b)
            .all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
}

fn larger(a: f32, b: f32) -> f32 {
    match (a, b) {
        _ if a.is_nan() || b.is_nan() => f32::NAN,
        _ if a == b => {
            if a.is_sign_positive() {
                a
            } else {
                b
            }
        }
        _ => {
            if a > b {
                a
            } else {
                b
            }
        }
    }
}

fn order(row: &[f32]) -> Vec<i64> {
    let mut order: Vec<i64> = (0..row.len() as i64).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (row[a as usize], row[b as usize]);
        a.partial_cmp(&b).unwrap_or(a.is_nan().cmp(&b.is_nan()))
    });
    order
}

#[test]
fn every_engine_gives_what_a_loop_gives() {
    let mut rng = StdRng::seed_from_u64(3);
    let (mut roots, mut expected, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for &(rows, n) in SHAPES {
        for special in [false, true] {
            let x = match special {
                true => wild(&mut rng, rows * n),
                false => numbers(&mut rng, rows * n),
            };
            let t = Tensor::from_slice(&x, [rows, n]).unwrap().uop();
            let single = |v: f32| v.to_le_bytes().to_vec();
            let long = |v: i64| v.to_le_bytes().to_vec();
            // What is below is computed in the loops of the op.
            let twice = &t + &t;
            let y: Vec<f32> = x.iter().map(|x| x + x).collect();
            roots.push(twice.scan(ReduceOp::Add).unwrap());
            let sums = |row: &[f32]| running(row, -0.0, |a, b| a + b);
            expected.push(by_rows(&y, n, sums, single));
            roots.push(t.scan(ReduceOp::Mul).unwrap());
            let products = |row: &[f32]| running(row, 1.0, |a, b| a * b);
            expected.push(by_rows(&x, n, products, single));
            roots.push(t.scan(ReduceOp::Max).unwrap());
            let maxima = |row: &[f32]| running(row, f32::NEG_INFINITY, larger);
            expected.push(by_rows(&x, n, maxima, single));
            roots.push(twice.argsort().unwrap());
            expected.push(by_rows(&x, n, order, long));
            names.extend(["sum", "product", "maximum", "order"].map(|op| (op, rows, n, special)));
        }
    }
    for (engine, settings) in engines() {
        let found = bits(&roots, settings);
        for ((found, expected), name) in found.iter().zip(&expected).zip(&names) {
            let equal = match name.0 {
                "order" => found == expected,
                _ => same(found, expected),
            };
            assert!(equal, "{name:?}, {engine}");
        }
    }
}

/// Every dtype, compiled and by loops, against the interpreter of graphs.
#[test]
fn every_dtype_agrees_with_the_interpreter() {
    let mut rng = StdRng::seed_from_u64(4);
    let (mut roots, mut expected) = (Vec::new(), Vec::new());
    for dtype in DType::ALL {
        for (rows, n) in [(3, 40), (2, 200)] {
            let x: Vec<f32> = match dtype.is_float() {
                true => wild(&mut rng, rows * n),
                false => (0..rows * n)
                    .map(|_| rng.random_range(-40..300) as f32)
                    .collect(),
            };
            let t = Tensor::from_slice(&x, [rows, n])
                .unwrap()
                .cast(dtype)
                .unwrap();
            let bytes = bits(&[t.uop()], settings(Schedule::Plain, 1)).remove(0);
            let data = Array::from_bytes(dtype, &[rows * n], &bytes).unwrap();
            let slot = UOp::slot(0, dtype, rows * n).reshape(&[rows, n]).unwrap();
            let ops = |x: &UOp| -> Vec<UOp> {
                let scans = ReduceOp::ALL.iter().map(|op| x.scan(*op).unwrap());
                scans.chain([x.argsort().unwrap()]).collect()
            };
            expected.extend(graph::eval(&ops(&slot), &|_| Some(data.clone())).unwrap());
            roots.extend(ops(&t.uop()));
        }
    }
    for (engine, settings) in engines() {
        let found = bits(&roots, settings);
        for (u, (found, expected)) in roots.iter().zip(found.iter().zip(&expected)) {
            let found = Array::from_bytes(u.dtype(), u.shape(), found).unwrap();
            let difference = found.difference(expected);
            assert_eq!(
                difference,
                None,
                "{:?} of {}, {engine}",
                u.op(),
                u.src()[0].dtype()
            );
        }
    }
}
