//! SCATTER_ADD: values against a loop written here, the same bits in every engine and for any number
//! of threads, work that grows with what is added and with the result, and derivatives.

use std::slice::from_ref;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uopc::autodiff::gradient;
use uopc::compile::{Engine, RealizeOptions, lower};
use uopc::debug::{DeviceChoice, Schedule, Settings};
use uopc::interp::{Array, graph};
use uopc::ir::form::LoopGraph;
use uopc::ir::op::{BufferId, Exec, Op, ReduceOp};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Scalar, UOp};
use uopc::machine::Machine;
use uopc::pass::explain::steps;
use uopc::{Result, Tensor};

/// Rows, the places they go to and what comes of it: the shape of places and the rest of a row.
struct Case {
    places: usize,
    rows: usize,
    width: usize,
}

const CASES: &[Case] = &[
    case(1, 1, 1),
    case(5, 7, 3),
    case(3, 300, 1),
    case(2, 100, 700),
    case(40, 900, 33),
    case(100, 2000, 64),
    case(1000, 700, 256),
    case(7, 5000, 100),
    // Longer than a block of a chain, into one place.
    case(1, 9000, 2),
    case(60_000, 50, 40),
];

const fn case(places: usize, rows: usize, width: usize) -> Case {
    Case {
        places,
        rows,
        width,
    }
}

/// Places, with some that are none and some that are counted from the end.
fn positions(rng: &mut StdRng, case: &Case) -> Vec<i64> {
    let n = case.places as i64;
    (0..case.rows)
        .map(|_| rng.random_range(-n - 1..n + 2))
        .collect()
}

/// What a loop adds, in order.
fn sums(rows: &[f32], at: &[i64], case: &Case) -> Vec<f32> {
    let mut sums = vec![0.0; case.places * case.width];
    for (k, &place) in at.iter().enumerate() {
        let place = if place < 0 {
            place + case.places as i64
        } else {
            place
        };
        if (0..case.places as i64).contains(&place) {
            for c in 0..case.width {
                sums[place as usize * case.width + c] += rows[k * case.width + c];
            }
        }
    }
    sums
}

fn settings(schedule: Schedule, threads: usize) -> Settings {
    Settings {
        schedule,
        device: DeviceChoice::C,
        threads: Some(threads),
        ..Settings::default()
    }
}

/// The bits of a tensor's value under some settings.
fn bits(t: &Tensor, settings: Settings) -> Vec<u8> {
    let engine = Engine::new(settings).unwrap();
    let got = engine
        .realize(&[t.uop()], &RealizeOptions::default())
        .unwrap();
    t.uop().clear_home();
    got.outputs[0].as_bytes().to_vec()
}

#[test]
fn every_engine_adds_what_a_loop_adds() {
    for (k, case) in CASES.iter().enumerate() {
        let mut rng = StdRng::seed_from_u64(k as u64);
        let at = positions(&mut rng, case);
        // Numbers of very different size: another order gives another sum.
        let number = |_| rng.random_range(-1.0f32..1.0) * 10f32.powi(rng.random_range(-3..4));
        let rows: Vec<f32> = (0..case.rows * case.width).map(number).collect();
        let expected: Vec<u8> = sums(&rows, &at, case)
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let entries = Tensor::from_slice(&rows, [case.rows, case.width]).unwrap();
        let at = Tensor::from_slice(&at, [case.rows]).unwrap();
        let t = entries.segment_sum(&at, case.places).unwrap();
        let name = format!("{} {} {}", case.places, case.rows, case.width);
        assert!(
            bits(&t, settings(Schedule::Plain, 1)) == expected,
            "{name}: plain"
        );
        for threads in 1..=4 {
            let found = bits(&t, settings(Schedule::Default, threads));
            assert!(found == expected, "{name}: {threads} threads");
        }
        let searched = Settings {
            search: 3,
            ..settings(Schedule::Default, 2)
        };
        assert!(bits(&t, searched) == expected, "{name}: search");
        if case.rows * case.width > 200_000 || case.places * case.width > 1_000_000 {
            continue;
        }
        for machine in [Machine::native(), Machine::avx2(), Machine::portable()] {
            let loops = Settings {
                device: DeviceChoice::Interp,
                machine,
                ..Settings::default()
            };
            assert!(bits(&t, loops) == expected, "{name}: loops of {machine:?}");
        }
    }
}

#[test]
fn all_dtypes_of_values_and_of_positions() {
    let mut rng = StdRng::seed_from_u64(5);
    for dtype in DType::ALL {
        for at_dtype in DType::ALL.into_iter().filter(|d| d.is_int()) {
            let (n, rows, width) = (11, 120, 19);
            let values: Vec<Scalar> = (0..rows * width)
                .map(|_| Scalar::from_i128(dtype, rng.random_range(-9..9)))
                .collect();
            let at: Vec<Scalar> = (0..rows)
                .map(|_| Scalar::from_i128(at_dtype, rng.random_range(-3..14)))
                .collect();
            let x = UOp::slot(0, dtype, rows * width)
                .reshape(&[rows, width])
                .unwrap();
            let sums = x
                .scatter_add(&[UOp::slot(1, at_dtype, rows)], &[n, width])
                .unwrap();
            let data = [
                Array::from_scalars(dtype, &[rows * width], &values).unwrap(),
                Array::from_scalars(at_dtype, &[rows], &at).unwrap(),
            ];
            let found = graph::eval(&[sums], &|u| Some(data[slot(u)?].clone()))
                .unwrap()
                .remove(0);
            // Sums of small integers are exact in all dtypes, but that narrow ones wrap.
            let mut expected = vec![0i128; n * width];
            for (k, place) in at.iter().enumerate() {
                let place = place.as_i128();
                for c in 0..width {
                    if (0..n as i128).contains(&place) {
                        let v = &values[k * width + c];
                        let v = if dtype.is_float() {
                            v.as_f64() as i128
                        } else {
                            v.as_i128()
                        };
                        let to = &mut expected[place as usize * width + c];
                        *to = if dtype == DType::Bool {
                            *to | v
                        } else {
                            *to + v
                        };
                    }
                }
            }
            for (i, (found, v)) in found.scalars().zip(&expected).enumerate() {
                let v = Scalar::from_i128(dtype, *v);
                assert!(
                    Scalar::same(found, v),
                    "{dtype} at {at_dtype}: {i}: {found}, not {v}"
                );
            }
        }
    }
}

fn slot(u: &UOp) -> Option<usize> {
    match u.op() {
        Op::Buffer {
            id: BufferId::Slot(slot),
            ..
        } => Some(*slot as usize),
        _ => None,
    }
}

#[test]
fn narrow_floats_and_nothing_compile_too() {
    let at = Tensor::from_slice(&[1i64, 0, 1, 1, -1, 7], [6]).unwrap();
    for dtype in [DType::F16, DType::BF16] {
        let rows = Tensor::from_slice(&[256.0f32, 3.0, 1.0, 1.0, -0.5, 9.0], [6]).unwrap();
        let t = rows.cast(dtype).unwrap().segment_sum(&at, 3).unwrap();
        let values = t.cast(DType::F32).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(values, [3.0, 258.0, -0.5], "{dtype}");
    }
    let none = Tensor::from_slice::<f32>(&[], [0, 3]).unwrap();
    let nowhere = Tensor::from_slice::<i32>(&[], [0]).unwrap();
    let t = none.segment_sum(&nowhere, 4).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [0.0; 12]);
    let rows = Tensor::from_slice(&[1.0f32; 12], [6, 2]).unwrap();
    assert_eq!(rows.segment_sum(&at, 0).unwrap().shape()[..], [0, 2]);
    assert_eq!(
        rows.segment_sum(&at, 0).unwrap().to_vec::<f32>().unwrap(),
        [0.0; 0]
    );
    let thin = Tensor::from_slice::<f32>(&[], [6, 0]).unwrap();
    assert_eq!(
        thin.segment_sum(&at, 4).unwrap().to_vec::<f32>().unwrap(),
        [0.0; 0]
    );
    // An empty table reads zeros.
    let table = Tensor::from_slice::<f32>(&[], [0, 2]).unwrap();
    assert_eq!(table.take(&at).unwrap().to_vec::<f32>().unwrap(), [0.0; 12]);
}

#[test]
fn mistakes_are_errors_that_say_what_fits() {
    let rows = Tensor::zeros([4, 3]).unwrap();
    let at = Tensor::from_slice(&[0i32, 1, 2], [3]).unwrap();
    let text = rows.segment_sum(&at, 5).unwrap_err().to_string();
    let expected = "segment_sum: entries (4, 3) at positions (3,) do not fit; the entries have the \
                    positions' shape and then the axes of the result but the first";
    assert!(text.starts_with(expected), "{text}");
    let real = Tensor::zeros([4]).unwrap();
    let text = rows.segment_sum(&real, 5).unwrap_err().to_string();
    assert!(
        text.starts_with("segment_sum: positions are integers, not f32; cast them"),
        "{text}"
    );
}

/// The steps of the only launch of scattering that many rows of 64 into a table, laid out or not.
fn work(places: usize, rows: usize, schedule: Schedule) -> u64 {
    let x = UOp::slot(0, DType::F32, rows * 64)
        .reshape(&[rows, 64])
        .unwrap();
    let sums = x
        .scatter_add(&[UOp::slot(1, DType::I32, rows)], &[places, 64])
        .unwrap();
    let lowered = lower(&[sums], None, &settings(schedule, 1)).unwrap();
    assert_eq!(lowered.launches.len(), 1);
    steps(&lowered.launches[0].loops)
}

#[test]
fn the_work_is_that_of_the_rows_and_of_the_result() {
    for schedule in [Schedule::Plain, Schedule::Default] {
        let [base, more_rows, more_places] =
            [(4000, 2000), (4000, 4000), (8000, 2000)].map(|(p, r)| work(p, r, schedule));
        // Twice as many rows of twice as many places would be four times the work of a comparison.
        assert!(more_rows <= 2 * base, "{schedule:?}: {base} {more_rows}");
        assert!(
            more_places <= 2 * base,
            "{schedule:?}: {base} {more_places}"
        );
        // An addition takes some ten steps, one for each owner at most, and a zero two.
        let most = 16 * 20 * 2000 * 64 + 10 * 4000 * 64;
        assert!(base < most, "{schedule:?}: {base}");
    }
}

/// The loops over threads of the launch that scatters, outermost first.
fn thread_loops(loops: &LoopGraph) -> Vec<i128> {
    let nodes = toposort(from_ref(loops.sink()));
    let extents = nodes.iter().filter_map(|u| match (u.op(), u.src()) {
        (
            Op::Range {
                exec: Exec::Thread, ..
            },
            [extent],
        ) => match extent.op() {
            Op::Const(n) => Some(n.as_i128()),
            _ => None,
        },
        _ => None,
    });
    extents.collect()
}

#[test]
fn threads_have_places_or_columns() {
    let loops = |places, rows, width| {
        let x = UOp::slot(0, DType::F32, rows * width)
            .reshape(&[rows, width])
            .unwrap();
        let sums = x
            .scatter_add(&[UOp::slot(1, DType::I32, rows)], &[places, width])
            .unwrap();
        let native = Settings {
            machine: Machine::avx512(),
            ..Settings::default()
        };
        lower(&[sums], None, &native)
            .unwrap()
            .launches
            .remove(0)
            .loops
    };
    // Zeros are one loop and owners of places the other.
    let many = thread_loops(&loops(50_257, 8192, 256));
    assert_eq!(many.last(), Some(&16), "{many:?}");
    // Of two places pieces of long rows.
    let few = thread_loops(&loops(2, 1000, 4096));
    assert!(few.last().is_some_and(|n| *n > 2), "{few:?}");
    // What is done soon is done alone.
    assert!(thread_loops(&loops(10, 20, 30)).is_empty());
}

fn inner_product(a: &UOp, b: &UOp) -> UOp {
    a.mul(b)
        .unwrap()
        .reduce(ReduceOp::Add, a.shape().rank())
        .unwrap()
}

#[test]
fn reading_and_adding_are_each_others_transpose() {
    let mut rng = StdRng::seed_from_u64(11);
    for round in 0..200 {
        let extents: Vec<usize> = (0..3).map(|_| rng.random_range(1..6)).collect();
        let (count, n) = (rng.random_range(1..3), rng.random_range(0..9));
        let at: Vec<UOp> = (0..count)
            .map(|k| UOp::slot(2 + k as u32, DType::I32, n))
            .collect();
        let mut rows = vec![n];
        rows.extend_from_slice(&extents[count..]);
        let of = |slot, dims: &[usize]| {
            UOp::slot(slot, DType::F64, dims.iter().product())
                .reshape(dims)
                .unwrap()
        };
        let (v, u) = (of(0, &extents), of(1, &rows));
        let left = inner_product(&u.scatter_add(&at, &extents).unwrap(), &v);
        let right = inner_product(&u, &v.index(&at).unwrap());
        // Small integers, so that sums in any order are the same number.
        let mut numbers = |dtype, n: usize, lo, hi| {
            let values: Vec<i128> = (0..n).map(|_| rng.random_range(lo..hi)).collect();
            let values: Vec<Scalar> = values
                .iter()
                .map(|v| Scalar::from_i128(dtype, *v))
                .collect();
            Array::from_scalars(dtype, &[n], &values).unwrap()
        };
        let data = [
            numbers(DType::F64, v.shape().numel(), -9, 10),
            numbers(DType::F64, u.shape().numel(), -9, 10),
            numbers(DType::I32, n, -1, 6),
            numbers(DType::I32, n, -1, 6),
        ];
        let values = graph::eval(&[left, right], &|u| Some(data[slot(u)?].clone())).unwrap();
        assert_eq!(values[0].to_f64(), values[1].to_f64(), "round {round}");
        // And so say their gradients.
        let by_rows = gradient(
            &inner_product(&u.scatter_add(&at, &extents).unwrap(), &v),
            from_ref(&u),
        );
        let read = v.index(&at).unwrap();
        let found = [by_rows.unwrap().remove(0), read];
        let values = graph::eval(&found, &|u| Some(data[slot(u)?].clone())).unwrap();
        assert_eq!(values[0].to_f64(), values[1].to_f64(), "round {round}");
    }
}

/// The slope of a function of t at 0, from differences of sixth order.
fn slope(f: impl Fn(f64) -> f64) -> f64 {
    let step = 1.0 / 64.0;
    let odd = |k: f64| f(k * step) - f(-k * step);
    (45.0 * odd(1.0) - 9.0 * odd(2.0) + odd(3.0)) / (60.0 * step)
}

#[test]
fn derivatives_of_orders_one_to_three() {
    let mut rng = StdRng::seed_from_u64(3);
    let at = UOp::slot(9, DType::I32, 6);
    let places = Array::from_ints(DType::I32, &[6], &[2, 0, 2, 3, -1, 2]).unwrap();
    let sine_of_read = |x: &UOp| x.index(from_ref(&at)).unwrap().sin().unwrap();
    // Rows of x are read, changed, added up elsewhere, and changed again.
    let there_and_back = |x: &UOp| {
        let read = x.index(from_ref(&at)).unwrap().sin().unwrap();
        read.scatter_add(from_ref(&at), &[4, 2])
            .unwrap()
            .exp()
            .unwrap()
    };
    let functions: [&dyn Fn(&UOp) -> UOp; 2] = [&sine_of_read, &there_and_back];
    for (which, f) in functions.iter().enumerate() {
        let x = UOp::slot(0, DType::F64, 8).reshape(&[4, 2]).unwrap();
        let y = f(&x);
        let weights = UOp::slot(1, DType::F64, y.shape().numel())
            .reshape(y.shape())
            .unwrap();
        let mut u = inner_product(&y, &weights);
        let direction = |d: u32| UOp::slot(2 + d, DType::F64, 8).reshape(&[4, 2]).unwrap();
        let mut slots: Vec<Vec<f64>> = (0..5)
            .map(|_| {
                (0..y.shape().numel().max(8))
                    .map(|_| rng.random_range(-1.0..1.0))
                    .collect()
            })
            .collect();
        slots[1].truncate(y.shape().numel());
        for s in [0, 2, 3, 4] {
            slots[s].truncate(8);
        }
        let value = |u: &UOp, moved: &[f64]| -> f64 {
            let bind = |u: &UOp| match slot(u)? {
                0 => Array::from_f64(DType::F64, &[8], moved).ok(),
                9 => Some(places.clone()),
                k => Array::from_f64(DType::F64, &[slots[k].len()], &slots[k]).ok(),
            };
            graph::eval(from_ref(u), &bind).unwrap()[0].to_f64()[0]
        };
        for order in 1..=3u32 {
            let d = direction(order - 1);
            let next = inner_product(&gradient(&u, from_ref(&x)).unwrap()[0], &d);
            let moved = |t: f64| -> Vec<f64> {
                let by = &slots[1 + order as usize];
                slots[0].iter().zip(by).map(|(x, v)| x + t * v).collect()
            };
            let expected = slope(|t| value(&u, &moved(t)));
            let found = value(&next, &slots[0]);
            let near = (found - expected).abs() <= 1e-8 * (1.0 + expected.abs());
            assert!(
                near,
                "function {which}, order {order}: {found}, not {expected}"
            );
            u = next;
        }
    }
}

/// The number of nodes with that op.
fn count(roots: &[UOp], mnemonic: &str) -> usize {
    toposort(roots)
        .iter()
        .filter(|u| u.op().mnemonic() == mnemonic)
        .count()
}

/// What simplification makes of a graph.
fn simplified(u: &UOp) -> UOp {
    let graph = uopc::ir::verify::shape_graph(vec![u.clone()]).unwrap();
    let (simple, _) = uopc::pass::simplify::simplify_shapes(&graph, &Settings::default()).unwrap();
    simple.roots()[0].clone()
}

#[test]
fn products_with_one_hots_read_and_add_rows() -> Result<()> {
    let mut rng = StdRng::seed_from_u64(8);
    let ids: Vec<i32> = (0..5000).map(|_| rng.random_range(-1..61)).collect();
    let ids = Tensor::from_slice(&ids, [50, 100])?;
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let table = Tensor::uniform([60, 8], -1.0, 1.0)?.cast(dtype)?;
        table.realize()?;
        let table = table.requires_grad()?;
        let c = Tensor::uniform([50, 100, 8], -1.0, 1.0)?.cast(dtype)?;
        c.realize()?;
        let product = ids.one_hot(60)?.cast(dtype)?.matmul(&table)?;
        let choice = {
            let positions = Tensor::arange(60)?.reshape([1, 1, 60, 1])?;
            let hot = ids.reshape([50, 100, 1, 1])?.eq(&positions)?;
            let chosen = hot.where_(&table.reshape([1, 1, 60, 8])?, 0.0)?;
            chosen.cast(dtype)?.sum(2)?
        };
        let mut found = Vec::new();
        for y in [product, choice] {
            let simple = simplified(&y.uop());
            assert_eq!(count(from_ref(&simple), "reduce"), 0, "{}", simple.to_uir());
            assert_eq!(count(from_ref(&simple), "index"), 1);
            let loss = y.mul(&c)?.sum(..)?;
            let g = gradient(&loss.uop(), &[table.uop()])?.remove(0);
            assert_eq!(count(from_ref(&g), "scatter_add"), 1, "{}", g.to_uir());
            // 5,000 rows are more than a chain adds in one go, and still they are added in order.
            assert_eq!(count(from_ref(&simplified(&g)), "reduce"), 0);
            loss.backward(from_ref(&table))?;
            let grad = table.grad().expect("the loss depends on the table");
            table.zero_grad();
            found.push((y.to_bytes()?, grad.to_bytes()?));
        }
        assert!(found[0] == found[1], "{dtype}");
    }
    Ok(())
}
