//! Deep networks under limits of memory: how far down the plan goes, and at what cost. With
//! `UOPC_PERF` they also run, and tables of measured times are printed.

mod models;

use std::env;
use std::sync::Arc;
use std::time::Instant;

use models::{Built, Model, numbers, scaled};
use tempfile::TempDir;
use uopc::compile::{self, Engine, frontier};
use uopc::debug::Settings;
use uopc::ir::UOp;
use uopc::tensor::with_engine;
use uopc::{Error, Result, Tensor};

/// 24 layers of width 256 on 4,096 rows.
const MLP: Model = Model {
    name: "24 fully connected layers, width 256, 4096 rows",
    build: mlp,
};

/// Six blocks of width 256 on 4 sequences of 128 tokens, four heads.
const TRANSFORMER: Model = Model {
    name: "6 transformer blocks, width 256, 4 x 128 tokens, 4 heads",
    build: transformer,
};

fn mlp() -> Built {
    let mut parameters: Vec<Tensor> = (0..24).map(|k| scaled(&[256, 256], k)).collect();
    parameters.push(numbers(&[4096, 256], 100));
    (parameters, |parameters| {
        let (x, weights) = parameters.split_last().expect("the last one is the input");
        let mut h = x.detach()?;
        for w in weights {
            h = h.matmul(w)?.relu()?;
        }
        h.square()?.mean(..)
    })
}

fn transformer() -> Built {
    let mut parameters = Vec::new();
    for k in (0..60).step_by(10) {
        parameters.extend((0..4).map(|j| scaled(&[256, 256], k + j)));
        parameters.push(scaled(&[256, 1024], k + 4));
        parameters.push(scaled(&[1024, 256], k + 5));
    }
    parameters.push(numbers(&[4, 128, 256], 100));
    (parameters, |parameters| {
        let (x, weights) = parameters.split_last().expect("the last one is the input");
        let mut x = x.detach()?;
        for w in weights.chunks(6) {
            x = block(&x, w)?;
        }
        x.square()?.mean(..)
    })
}

fn normal(x: &Tensor) -> Result<Tensor> {
    let x = x.sub(&x.mean_keepdim(-1)?)?;
    let var = x.square()?.mean_keepdim(-1)?;
    x.div(&var.add(1e-5f32)?.sqrt()?)
}

fn block(x: &Tensor, w: &[Tensor]) -> Result<Tensor> {
    let heads = |t: Tensor| t.reshape([4, 128, 4, 64])?.permute([0, 2, 1, 3]);
    let h = normal(x)?;
    let (q, k, v) = (
        heads(h.matmul(&w[0])?)?,
        heads(h.matmul(&w[1])?)?,
        heads(h.matmul(&w[2])?)?,
    );
    let scores = q
        .matmul(&k.swap_axes(-1, -2)?)?
        .mul(0.125f32)?
        .softmax(-1)?;
    let mixed = scores.matmul(&v)?.permute([0, 2, 1, 3])?;
    let x = x.add(&mixed.reshape([4, 128, 256])?.matmul(&w[3])?)?;
    let inner = normal(&x)?.matmul(&w[4])?.tanh()?;
    x.add(&inner.matmul(&w[5])?)
}

/// The loss and the gradients of the weights, not those of the input.
fn tensors(model: &Model) -> Vec<Tensor> {
    let mut tensors = model.loss_and_gradients();
    tensors.pop();
    tensors
}

/// For each choice its peak and its modelled cost, as parts of those without a limit.
fn predicted(model: &Model) -> Vec<(f64, f64)> {
    let roots: Vec<UOp> = tensors(model).iter().map(Tensor::uop).collect();
    let lowered = compile::lower(&roots, None, &Settings::default()).unwrap();
    let started = Instant::now();
    let front = frontier(&lowered);
    if env::var_os("UOPC_PERF").is_some() {
        let (n, ms) = (
            lowered.plan.kernels.len(),
            started.elapsed().as_secs_f64() * 1e3,
        );
        println!("\n{}: {n} kernels, all choices in {ms:.1} ms", model.name);
        for c in &front {
            let (peak, cost) = (c.peak as f64, c.cost / front[0].cost);
            println!(
                "{:>10.1} MB {:>6.3} cost {cost:.3}",
                peak / 1e6,
                peak / front[0].peak as f64
            );
        }
    }
    let (peak, cost) = (front[0].peak as f64, front[0].cost);
    let parts = front.iter().map(|c| (c.peak as f64 / peak, c.cost / cost));
    parts.collect()
}

/// An engine with a pool of its own.
fn engine(folder: &TempDir, limit: Option<u64>) -> Arc<Engine> {
    let settings = Settings {
        memory_limit: limit,
        cache_dir: Some(folder.path().into()),
        ..Settings::default()
    };
    Arc::new(Engine::new(settings).unwrap())
}

fn seconds(engine: &Arc<Engine>, model: &Model) -> f64 {
    with_engine(engine, || {
        let tensors = tensors(model);
        let started = Instant::now();
        Tensor::realize_all(&tensors).unwrap();
        started.elapsed().as_secs_f64()
    })
}

/// Prints peaks and times for limits from none down to the least, all measured in turn.
fn measure(model: &Model) {
    let folder = TempDir::new().unwrap();
    let free = engine(&folder, None);
    seconds(&free, model);
    let peak = free.device().pool().peak_bytes() as u64;
    let failed = with_engine(&engine(&folder, Some(1)), || {
        Tensor::realize_all(&tensors(model)).map(|_| ())
    });
    let Err(Error::MemoryLimit { least, .. }) = failed else {
        panic!("one byte is not enough");
    };
    let parts = [90, 80, 70, 60, 50, 40, 35, 30, 25, 20].map(|part| peak * part / 100);
    let limits = parts.into_iter().filter(|&limit| limit > least as u64);
    let limits: Vec<Option<u64>> = (std::iter::once(None))
        .chain(limits.map(Some))
        .chain([Some(least as u64)])
        .collect();
    let engines: Vec<_> = limits.iter().map(|&limit| engine(&folder, limit)).collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); limits.len()];
    for round in 0..8 {
        for (engine, times) in engines.iter().zip(&mut times) {
            let time = seconds(engine, model);
            if round > 0 {
                times.push(time);
            }
        }
    }
    println!("\n{}", model.name);
    println!(
        "{:>12} {:>12} {:>8} {:>9} {:>7}",
        "limit", "allocator", "peak", "time", "times"
    );
    let mut first = None;
    for ((limit, engine), times) in limits.iter().zip(&engines).zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let time = times[times.len() / 2];
        let first = *first.get_or_insert(time);
        let taken = engine.device().pool().peak_bytes();
        assert!(limit.is_none_or(|limit| taken as u64 <= limit));
        let limit = limit.map_or("none".into(), |b| format!("{:.1} MB", b as f64 / 1e6));
        println!(
            "{limit:>12} {:>9.1} MB {:>7.1}% {:>6.1} ms {:>7.2}",
            taken as f64 / 1e6,
            taken as f64 / peak as f64 * 100.0,
            time * 1e3,
            time / first
        );
    }
}

#[test]
fn deep_layers_do_with_two_fifths_of_the_memory() {
    let choices = predicted(&MLP);
    let found = choices.iter().find(|(peak, _)| *peak <= 0.4);
    let &(_, cost) = found.expect("two fifths are within reach");
    assert!(cost <= 1.4, "at a cost of {cost}");
    let (least, _) = choices[choices.len() - 1];
    assert!(least < 0.3, "down to {least}");
    if env::var_os("UOPC_PERF").is_some() {
        measure(&MLP);
    }
}

#[test]
fn transformers_do_with_less() {
    let choices = predicted(&TRANSFORMER);
    let found = choices.iter().find(|(peak, _)| *peak <= 0.5);
    let &(_, cost) = found.expect("half is within reach");
    assert!(cost <= 1.4, "at a cost of {cost}");
    if env::var_os("UOPC_PERF").is_some() {
        measure(&TRANSFORMER);
    }
}
