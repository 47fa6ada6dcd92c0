//! What once went wrong around tensors: gradients lost without a word, states left half changed,
//! numbers that wrapped, and powers at the edges of the floats.

mod tensors;

use std::sync::{Arc, Barrier};
use std::thread;

use tensors::*;
use uopc::compile::Engine;
use uopc::debug::Settings;
use uopc::io::safetensors;
use uopc::nn::{AdamW, Optimizer, Sgd};
use uopc::tensor::{Generator, enter_engine, no_grad, with_engine};
use uopc::{DType, Result, Tensor};

/// An f64 parameter's slopes of the sum of `f`, and those of the sum of the slopes.
fn two_slopes(points: &[f64], f: &dyn Fn(&Tensor) -> Result<Tensor>) -> [Vec<f64>; 2] {
    let x = Tensor::from_slice(points, [points.len()]).unwrap();
    let x = x.requires_grad().unwrap();
    f(&x).unwrap().sum(..).unwrap().backward(&[&x]).unwrap();
    let first = x.grad().unwrap();
    x.zero_grad();
    first.sum(..).unwrap().backward(&[&x]).unwrap();
    let second = x.grad().unwrap();
    [first, second].map(|t| t.to_vec::<f64>().unwrap())
}

/// The values of `f` at f32 points, and its slopes.
fn with_slopes(points: &[f32], f: &dyn Fn(&Tensor) -> Result<Tensor>) -> [Vec<f32>; 2] {
    let x = parameter(points, &[points.len()]);
    let y = f(&x).unwrap();
    y.sum(..).unwrap().backward(&[&x]).unwrap();
    [y.to_vec::<f32>().unwrap(), gradient(&x)]
}

#[test]
fn a_parameter_computed_beside_an_update_stays_a_parameter() {
    let _engine = own_engine();
    let (w, q) = (parameter(&[1.0, 2.0], &[2]), parameter(&[3.0, 4.0], &[2]));
    let of_q = q.square().unwrap().sum(..).unwrap();
    let loss = (&w * &q).sum(..).unwrap();
    loss.backward(&[&w]).unwrap();
    Sgd::new(vec![w.clone()], 0.1)
        .unwrap()
        .step_with(&q)
        .unwrap();
    of_q.backward(&[&q]).unwrap();
    assert_eq!(gradient(&q), [6.0, 8.0]);
}

#[test]
fn a_stale_loss_is_refused_also_after_a_step_with_the_parameter() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let loss = w.square().unwrap().sum(..).unwrap();
    loss.backward(&[&w]).unwrap();
    Sgd::new(vec![w.clone()], 0.1)
        .unwrap()
        .step_with(&w)
        .unwrap();
    let error = loss.backward(&[&w]).unwrap_err().to_string();
    assert!(error.contains("before parameters were updated"), "{error}");
    w.zero_grad();
    w.square()
        .unwrap()
        .sum(..)
        .unwrap()
        .backward(&[&w])
        .unwrap();
    let doubled: Vec<f32> = w.to_vec::<f32>().unwrap().iter().map(|x| 2.0 * x).collect();
    assert_eq!(gradient(&w), doubled);
}

#[test]
fn an_old_value_that_was_cut_off_takes_part_in_later_losses() {
    type Old = fn(&Tensor) -> Result<Tensor>;
    let olds: [(Old, [f32; 2]); 4] = [
        (|w| w.detach(), [18.0, 36.0]),
        (|w| w.detach()?.mul(2.0), [16.0, 32.0]),
        (
            |w| {
                let _off = no_grad();
                w.mul(0.5)?.add(1.0)
            },
            [17.0, 36.0],
        ),
        (|w| w.gt(0.0)?.cast(DType::F32), [18.0, 38.0]),
    ];
    for (which, (old, expected)) in olds.into_iter().enumerate() {
        for realised in [false, true] {
            let _engine = own_engine();
            let w = parameter(&[1.0, 2.0], &[2]);
            let old = old(&w).unwrap();
            if realised {
                old.realize().unwrap();
            }
            w.assign(Tensor::from([10.0f32, 20.0])).unwrap();
            let loss = (&w - &old).square().unwrap().sum(..).unwrap();
            loss.backward(&[&w]).unwrap();
            assert_eq!(gradient(&w), expected, "{which}, realised: {realised}");
        }
    }
}

#[test]
fn no_gradient_flows_into_what_was_made_under_no_grad() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let weight = {
        let _off = no_grad();
        w.mul(3.0).unwrap()
    };
    (&w * &weight).sum(..).unwrap().backward(&[&w]).unwrap();
    assert_eq!(gradient(&w), [3.0, 6.0]);
}

#[test]
fn a_value_under_no_grad_computed_beside_an_update_is_no_stale_loss() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let old = w.detach().unwrap();
    w.square()
        .unwrap()
        .sum(..)
        .unwrap()
        .backward(&[&w])
        .unwrap();
    let mut sgd = Sgd::new(vec![w.clone()], 0.5).unwrap();
    sgd.step_with(&old).unwrap();
    sgd.zero_grad();
    let loss = (&w - &old).square().unwrap().sum(..).unwrap();
    loss.backward(&[&w]).unwrap();
    assert_eq!(gradient(&w), [-2.0, -4.0]);
}

#[test]
fn gradients_from_many_threads_all_count() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let together = Barrier::new(16);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let loss = w.square().unwrap().sum(..).unwrap();
                    together.wait();
                    loss.backward(&[&w]).unwrap();
                }
            });
        }
    });
    assert_eq!(gradient(&w), [1600.0, 3200.0]);
}

#[test]
fn no_grad_ends_with_the_last_guard_in_any_order() {
    let w = parameter(&[1.0], &[1]);
    let depends = || w.mul(2.0).unwrap().needs_grad();
    let first = no_grad();
    let second = no_grad();
    drop(first);
    assert!(!depends(), "the second guard still lives");
    drop(second);
    assert!(depends());
}

#[test]
fn an_engine_is_left_with_its_own_guard_in_any_order() {
    let engine = || Arc::new(Engine::new(Settings::default()).unwrap());
    let (outer, a, b) = (engine(), engine(), engine());
    let compute = |n: usize| Tensor::arange(n).unwrap().to_bytes().unwrap().len();
    with_engine(&outer, || {
        let first = enter_engine(&a);
        let second = enter_engine(&b);
        drop(first);
        compute(3);
        assert_eq!(b.stats().launches, 1, "the second guard still lives");
        drop(second);
        compute(5);
    });
    let launches = [&outer, &a, &b].map(|e| e.stats().launches);
    assert_eq!(launches, [1, 0, 1]);
}

#[test]
fn a_sequence_that_leaves_i32_is_refused() {
    let _engine = own_engine();
    let error = Tensor::arange_from(2_000_000_000, 3_000_000_000i64, 500_000_000).unwrap_err();
    assert!(error.to_string().contains("2500000000"), "{error}");
    let all = |t: Tensor| t.to_vec::<i32>().unwrap();
    let up = Tensor::arange_from(2_000_000_000, 3_000_000_000i64, 1_000_000_000);
    assert_eq!(all(up.unwrap()), [2_000_000_000]);
    let down = Tensor::arange_from(i32::MIN + 1, i64::from(i32::MIN) - 1, -1);
    assert_eq!(all(down.unwrap()), [i32::MIN + 1, i32::MIN]);
    let leap = Tensor::arange_from(i32::MIN, i64::from(i32::MAX) + 1, u32::MAX);
    assert_eq!(all(leap.unwrap()), [i32::MIN, i32::MAX]);
    let alone = Tensor::arange_from(5, i64::MAX, i64::MAX);
    assert_eq!(all(alone.unwrap()), [5]);
    // More steps than f64 can tell from one: the second element is too large, not left out.
    let step = 1i64 << 60;
    let error = Tensor::arange_from(0, step + 1, step).unwrap_err();
    assert!(error.to_string().contains(&step.to_string()), "{error}");
    let error = Tensor::arange_from(3_000_000_000i64, 0, -2_000_000_000).unwrap_err();
    assert!(error.to_string().contains("3000000000"), "{error}");
    let error = Tensor::arange_from(0, 5, 0).unwrap_err().to_string();
    assert!(
        error.starts_with("arange: no sequence goes from 0 to 5 in steps of 0"),
        "{error}"
    );
}

#[test]
fn a_file_is_not_written_with_the_name_that_the_format_reserves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reserved.safetensors");
    let tensors = [("__metadata__".to_string(), Tensor::from([1.0f32]))];
    let error = safetensors::save(&path, &tensors).unwrap_err().to_string();
    assert!(error.contains("__metadata__"), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_state_that_is_refused_changes_nothing() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let mut adam = AdamW::new(vec![w.clone()], 0.1).unwrap();
    let ones = || Tensor::from([1.0f32, 1.0]);
    let steps = |n: u64| ("steps".to_string(), Tensor::from_slice(&[n], ()).unwrap());
    let named = |name: &str, t: Tensor| (name.to_string(), t);
    let wrong = Tensor::from([1.0f32]);
    let no_steps = Tensor::from_slice(&[] as &[u64], [0]).unwrap();
    let refused = [
        vec![
            steps(3),
            named("mean.0", ones()),
            named("square.0", wrong.clone()),
        ],
        vec![steps(3), named("mean.0", ones())],
        vec![
            steps(u64::MAX),
            named("mean.0", ones()),
            named("square.0", ones()),
        ],
        vec![
            named("steps", no_steps),
            named("mean.0", ones()),
            named("square.0", ones()),
        ],
    ];
    let rates = || named("rates", Tensor::from([0.1f64]));
    for (which, state) in refused.into_iter().enumerate() {
        let state = [state, vec![rates()]].concat();
        assert!(adam.set_state(&state).is_err(), "{which}");
        let state = adam.state().unwrap();
        for (name, t) in state.iter().filter(|(name, _)| name.contains('.')) {
            assert_eq!(t.to_vec::<f32>().unwrap(), [0.0, 0.0], "{which}: {name}");
        }
        assert_eq!(adam.steps(), 0, "{which}");
    }
    let most = vec![
        rates(),
        steps(1 << 53),
        named("mean.0", ones()),
        named("square.0", ones()),
    ];
    adam.set_state(&most).unwrap();
    w.square()
        .unwrap()
        .sum(..)
        .unwrap()
        .backward(&[&w])
        .unwrap();
    adam.step().unwrap();
    assert!(w.to_vec::<f32>().unwrap().iter().all(|x| x.is_finite()));
}

#[test]
fn slopes_of_negative_powers_hold_to_the_ends_of_f32() {
    let _engine = own_engine();
    let near = |found: f32, expected: f32| {
        let close = (found - expected).abs() <= 4e-7 * expected.abs();
        assert!(close, "{found} is not {expected}");
    };
    let [_, slopes] = with_slopes(&[1e-10, 1e10, 0.0, f32::INFINITY], &|x| x.pow(-2));
    near(slopes[0], -2e30);
    near(slopes[1], -2e-30);
    assert_eq!(slopes[2..], [f32::NEG_INFINITY, 0.0]);
    let [values, slopes] = with_slopes(&[0.0, f32::INFINITY, 2.0], &|x| x.pow(-5));
    assert_eq!(values, [f32::INFINITY, 0.0, 0.03125]);
    assert_eq!(slopes, [f32::NEG_INFINITY, 0.0, -5.0 / 64.0]);
}

#[test]
fn slopes_of_broken_powers_at_zero_and_infinity() {
    let _engine = own_engine();
    const INF: f64 = f64::INFINITY;
    let cases: [(f64, [f64; 2], [f64; 2]); 5] = [
        (-1.5, [-INF, 0.0], [INF, 0.0]),
        (0.25, [INF, 0.0], [-INF, 0.0]),
        (0.5, [INF, 0.0], [-INF, 0.0]),
        (1.5, [0.0, INF], [INF, 0.0]),
        (2.5, [0.0, INF], [0.0, INF]),
    ];
    for (power, first, second) in cases {
        let found = two_slopes(&[0.0, INF], &|x| x.pow(power));
        assert_eq!(found[0], first, "power {power}");
        let close = |a: f64, b: f64| a == b || (a - b).abs() < 1e-290;
        let fits = found[1].iter().zip(second).all(|(&a, b)| close(a, b));
        assert!(fits, "power {power}: {:?} are not {second:?}", found[1]);
    }
}

#[test]
fn powers_of_special_numbers_are_those_of_c() {
    let _engine = own_engine();
    const INF: f64 = f64::INFINITY;
    let points = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        INF,
        -INF,
        f64::NAN,
    ];
    let powers = [
        f64::NAN,
        INF,
        -INF,
        0.0,
        1e300,
        -1e300,
        4_294_967_295.0,
        -4_294_967_295.0,
        0.5,
        -0.5,
        0.3,
        -0.3,
        1.5,
        2.5,
        -3.0,
        5.0,
        -6.0,
    ];
    for power in powers {
        let x = Tensor::from_slice(&points, [points.len()]).unwrap();
        let found = x.pow(power).unwrap().to_vec::<f64>().unwrap();
        for (x, found) in points.into_iter().zip(found) {
            // Rust's powf is C's pow.
            let expected = x.powf(power);
            let same = found.is_nan() && expected.is_nan()
                || found.is_sign_negative() == expected.is_sign_negative()
                    && (found == expected || (found / expected - 1.0).abs() < 1e-14);
            assert!(same, "{x}^{power}: {found} is not {expected}");
        }
    }
}

#[test]
fn uniform_numbers_spread_over_all_of_f32() {
    let _engine = own_engine();
    let all = Generator::new(1).uniform([1000], -3e38, 3e38).unwrap();
    let all = all.to_vec::<f32>().unwrap();
    assert!(all.iter().all(|x| x.abs() <= 3e38));
    let above = all.iter().filter(|&&x| x > 1.5e38).count();
    let below = all.iter().filter(|&&x| x < -1.5e38).count();
    assert!((200..300).contains(&above), "{above}");
    assert!((200..300).contains(&below), "{below}");
    for (low, high) in [(f64::NAN, 1.0), (0.0, f64::INFINITY), (-1e39, 0.0)] {
        let error = Generator::new(1).uniform([3], low, high).unwrap_err();
        assert!(error.to_string().contains("uniform"), "{error}");
    }
}

/// With a vector on one side, the products of narrow floats were rounded one by one.
#[test]
fn products_with_vectors_sum_what_products_of_matrices_sum() {
    let _engine = own_engine();
    // 300 * 300 leaves f16, and bf16 has no bits for 1.0078125 squared, of which 1 is then taken.
    let rows = [[300.0f64, 300.0, 1.0], [1.0078125, 1.0, 0.0]];
    let columns = [[300.0, 1.0078125], [-300.0, -1.0], [1.0, 0.0]];
    for dtype in [DType::F16, DType::BF16] {
        let a = Tensor::from(rows).cast(dtype).unwrap();
        let b = Tensor::from(columns).cast(dtype).unwrap();
        let values = |t: Result<Tensor>| t.unwrap().cast(DType::F64)?.to_vec::<f64>();
        let whole = values(a.matmul(&b)).unwrap();
        assert_eq!(whole[0], 1.0, "{dtype}");
        let column = |j| b.slice((.., j)).unwrap();
        let row = |i: i64| a.slice(i).unwrap();
        for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let expected = whole[2 * i + j];
            assert_eq!(
                values(a.matmul(&column(j))).unwrap()[i],
                expected,
                "{dtype}"
            );
            assert_eq!(values(row(i as i64).matmul(&b)).unwrap()[j], expected);
            assert_eq!(
                values(row(i as i64).matmul(&column(j))).unwrap(),
                [expected]
            );
        }
        // The slope of the row is a product with a vector, too.
        let x = row(0).requires_grad().unwrap();
        x.matmul(&column(0)).unwrap().backward(&[&x]).unwrap();
        assert_eq!(values(Ok(x.grad().unwrap())).unwrap(), [300.0, -300.0, 1.0]);
    }
}

/// A float power kept the integers, and a negative one was refused.
#[test]
fn integers_become_f32_beside_a_float_power() {
    let _engine = own_engine();
    let t = Tensor::from([1, 2, -4]);
    let values = |t: Result<Tensor>| t.unwrap().to_vec::<f32>().unwrap();
    assert_eq!(values(t.pow(2.0)), [1.0, 4.0, 16.0]);
    assert_eq!(values(t.pow(-1.0)), [1.0, 0.5, -0.25]);
    assert_eq!(t.pow(3).unwrap().to_vec::<i32>().unwrap(), [1, 8, -64]);
    assert_eq!(t.pow(true).unwrap().dtype(), DType::I32);
    // A negative power of an integer is a fraction, rounded towards zero.
    assert_eq!(t.pow(&t).unwrap().to_vec::<i32>().unwrap(), [1, 4, 0]);
}
