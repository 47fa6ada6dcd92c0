//! What a call costs beside the arithmetic: small operations and a tiny training step whose plans
//! are known.
//!
//! Counts are asserted; medians are printed with `UOPC_PERF` set (`cargo xtask perf`). The same
//! operation on 16 elements stands beside that on 1,024: its kernel takes no time to speak of.

mod tensors;

use std::hint::black_box;
use std::time::Instant;

use tensors::with_own_engine;
use uopc::Tensor;
use uopc::compile::Engine;
use uopc::nn::{AdamW, Linear, Module, Optimizer};

/// Rounds of which the median is taken, and how often a round calls.
const ROUNDS: usize = 31;

fn perf() -> bool {
    std::env::var_os("UOPC_PERF").is_some()
}

/// Calls `f` a few times, or with `UOPC_PERF` often enough to print the median time of a call.
/// Returns how often it was called.
fn measure(name: &str, calls: usize, mut f: impl FnMut()) -> usize {
    if !perf() {
        (0..3).for_each(|_| f());
        return 3;
    }
    let mut round = || {
        let started = Instant::now();
        (0..calls).for_each(|_| f());
        started.elapsed().as_secs_f64() / calls as f64
    };
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    times.sort_by(f64::total_cmp);
    println!("{name:<36} {:>8.3} us", times[ROUNDS / 2] * 1e6);
    ROUNDS * calls
}

/// Measures a small operation that is built and realised, and checks that one plan served all calls.
fn measure_op(engine: &Engine, name: &str, op: impl Fn() -> Tensor) {
    let before = engine.stats();
    let calls = measure(name, 10_000, || {
        black_box(op().realize().unwrap());
    });
    let after = engine.stats();
    assert_eq!(after.plan_misses, before.plan_misses + 1, "{name}");
    assert_eq!(after.launches, before.launches + calls as u64, "{name}");
}

#[test]
fn small_operations_find_their_plan() {
    with_own_engine(|engine| {
        for n in [16, 1024] {
            let numbers: Vec<f32> = (0..n).map(|k| k as f32 / n as f32).collect();
            let a = Tensor::from_slice(&numbers, [n]).unwrap();
            let b = Tensor::from_slice(&numbers, [n]).unwrap();
            measure(&format!("build a + b of ({n},)"), 10_000, || {
                black_box(&a + &b);
            });
            measure_op(engine, &format!("(a + b).realize() of ({n},)"), || &a + &b);
            measure_op(engine, &format!("a.exp().realize() of ({n},)"), || {
                a.exp().unwrap()
            });
            measure_op(engine, &format!("a.sum().realize() of ({n},)"), || {
                a.sum(..).unwrap()
            });
        }
    });
}

/// Linear 8-16, relu, Linear 16-2, cross-entropy, 64 rows, AdamW.
#[test]
fn a_tiny_training_step_finds_its_plan() {
    with_own_engine(|engine| {
        Tensor::manual_seed(1);
        let x: Vec<f32> = (0..512).map(|k| (k % 17) as f32 / 17.0).collect();
        let y: Vec<i32> = (0..64).map(|k| k % 2).collect();
        let x = Tensor::from_slice(&x, [64, 8]).unwrap();
        let y = Tensor::from_slice(&y, [64]).unwrap();
        let (hidden, output) = (Linear::new(8, 16).unwrap(), Linear::new(16, 2).unwrap());
        let parameters = [hidden.parameters(), output.parameters()].concat();
        let mut optimizer = AdamW::new(parameters, 1e-2).unwrap();
        let forward = || {
            let h = hidden.forward(&x).unwrap().relu().unwrap();
            output.forward(&h).unwrap().cross_entropy(&y).unwrap()
        };
        measure("training step: forward, built", 1000, || {
            black_box(forward());
        });
        measure("training step: and backward, built", 1000, || {
            optimizer.zero_grad();
            forward().backward(optimizer.parameters()).unwrap();
        });
        let before = engine.stats();
        measure("training step", 500, || {
            let loss = forward();
            optimizer.zero_grad();
            loss.backward(optimizer.parameters()).unwrap();
            optimizer.step_with(&loss).unwrap();
        });
        assert_eq!(engine.stats().plan_misses, before.plan_misses + 1);
    });
}
