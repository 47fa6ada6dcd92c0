//! Size: large sums, long chains and long trainings, through the Tensor API.
//!
//! Counts are asserted; seconds are printed with `UOPC_PERF` set (`cargo xtask perf`).

use std::sync::Arc;
use std::time::Instant;

use uopc::compile::Engine;
use uopc::debug::Settings;
use uopc::nn::{AdamW, Linear, Module, Optimizer};
use uopc::tensor::with_engine;
use uopc::{DType, Tensor};

fn engine() -> Arc<Engine> {
    Arc::new(Engine::new(Settings::default()).unwrap())
}

fn perf() -> bool {
    std::env::var_os("UOPC_PERF").is_some()
}

/// A sum that runs through one accumulator stops growing at 2^24.
#[test]
fn the_sum_of_two_to_the_25_ones_is_exact() {
    with_engine(&engine(), || {
        let n = 1usize << 25;
        let started = Instant::now();
        let sum = Tensor::ones([n]).unwrap().sum(..).unwrap().item().unwrap();
        let mean = Tensor::ones([n]).unwrap().mean(..).unwrap().item().unwrap();
        if perf() {
            println!(
                "sum and mean of 2^25 ones: {:.3} s",
                started.elapsed().as_secs_f64()
            );
        }
        assert_eq!((sum, mean), (n as f64, 1.0));
        // The same from memory, where nothing can be known before it is read.
        let data = Tensor::from_slice(&vec![1.0f32; n], [n]).unwrap();
        assert_eq!(data.sum(..).unwrap().item().unwrap(), n as f64);
    });
}

/// Ten thousand operations are forty kernels of 256, all compiled as one unit.
#[test]
fn ten_thousand_elementwise_ops_realise() {
    let engine = engine();
    with_engine(&engine, || {
        let started = Instant::now();
        let step = Tensor::from_slice(&[0.5f32; 1000], [1000]).unwrap();
        let mut x = Tensor::from_slice(&[1.0f32; 1000], [1000]).unwrap();
        for _ in 0..10_000 {
            x = &x + &step;
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), [5001.0; 1000]);
        if perf() {
            println!(
                "10,000 ops on (1000,): {:.3} s",
                started.elapsed().as_secs_f64()
            );
        }
    });
    let stats = engine.stats();
    assert_eq!((stats.compiler_calls, stats.launches), (1, 40));
}

/// Steps of a training whose numbers change: one plan, and no byte more after 10,000 than after
/// 100.
#[test]
fn a_long_training_runs_in_constant_memory_with_one_plan() {
    let engine = engine();
    with_engine(&engine, || {
        let steps = 10_000;
        let x = Tensor::from_slice(&[0.1f32; 32], [8, 4]).unwrap();
        let y = Tensor::from_slice(&[0i32, 1, 0, 1, 0, 1, 0, 1], [8]).unwrap();
        let layer = Linear::new(4, 2).unwrap();
        let mut optimizer = AdamW::new(layer.parameters(), 1e-2).unwrap();
        let mut after = Vec::new();
        let started = Instant::now();
        for step in 1..=steps {
            let loss = layer.forward(&x).unwrap().cross_entropy(&y).unwrap();
            optimizer.zero_grad();
            loss.backward(optimizer.parameters()).unwrap();
            optimizer.step_with(&loss).unwrap();
            if step == 2 || step == 100 || step == steps {
                let pool = engine.device().pool();
                let bytes = pool.live_bytes() + pool.idle_bytes();
                after.push((engine.stats().plan_misses, bytes, pool.fresh_blocks()));
            }
        }
        if perf() {
            let each = started.elapsed().as_secs_f64() / steps as f64;
            println!("{steps} steps: {:.1} us each", each * 1e6);
        }
        assert_eq!(
            after[0].0, after[2].0,
            "plans at steps 2 and {steps}: {after:?}"
        );
        assert_eq!(
            after[1], after[2],
            "plans, bytes and blocks at steps 100 and {steps}"
        );
        assert_eq!(x.dtype(), DType::F32);
    });
}
