//! Depth and size: nothing recurses over a graph, and everything is linear in it.
//!
//! A chain of a million nodes is built, differentiated, printed, parsed, hashed and dropped. By
//! default the test counts nodes at n and 2n; with `UOPC_PERF` set it also prints seconds (run it
//! in release: `cargo xtask perf`).

use std::hint::black_box;
use std::slice::from_ref;
use std::time::Instant;

use uopc::autodiff::gradient;
use uopc::compile::{RealizeOptions, plan_key};
use uopc::ir::op::ReduceOp;
use uopc::ir::parse::parse;
use uopc::ir::print::to_uir;
use uopc::ir::visit::Graph;
use uopc::ir::{DType, UOp};
use uopc::runtime::Storage;

const N: usize = 1_000_000;

/// `((x * y) * y) * ...`, n products.
fn chain(n: usize) -> UOp {
    let mut x = UOp::slot(0, DType::F32, 4);
    let y = UOp::slot(1, DType::F32, 4);
    for _ in 0..n {
        x = x.mul(&y).unwrap();
    }
    x
}

/// Prints how long a step took, where someone asked for it.
fn timed<T>(what: &str, n: usize, run: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = run();
    if std::env::var_os("UOPC_PERF").is_some() {
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{what:<14} n = {n:>8}: {seconds:.3} s, {:.3} us a node",
            seconds * 1e6 / n as f64
        );
    }
    result
}

fn walk_through(n: usize) {
    let before = memory();
    let x = timed("build", n, || chain(n));
    if let (Some(before), Some(after)) = (before, memory())
        && std::env::var_os("UOPC_PERF").is_some()
    {
        println!(
            "{:<14} n = {n:>8}: {} bytes a node",
            "memory",
            (after - before) / n
        );
    }
    let loss = x.reduce(ReduceOp::Add, 1).unwrap();
    let target = UOp::slot(0, DType::F32, 4);
    let g = timed("differentiate", n, || {
        gradient(&loss, from_ref(&target)).unwrap()
    });
    assert_eq!(Graph::new(from_ref(&x)).len(), n + 2);
    // One product for each product, and the constant one in three nodes.
    assert_eq!(Graph::new(&g).len(), n + 4);
    let text = timed("print", n, || to_uir(from_ref(&x)));
    assert_eq!(text.lines().count(), n + 2);
    let again = timed("parse", n, || parse(&text, "chain").unwrap());
    assert_eq!(again.roots, from_ref(&x));
    let storage = Storage::from_slice(&[1.0f32; 4]).unwrap();
    let slots = [(0, storage.clone()), (1, storage)];
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    timed("hash", n, || {
        black_box(plan_key(from_ref(&x), &options).unwrap())
    });
    drop((again, loss, target));
    timed("drop", n, move || drop((x, g)));
}

/// Resident bytes of this process, where the system tells.
fn memory() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(statm.split_whitespace().nth(1)?.parse::<usize>().ok()? * 4096)
}

/// One test, so that its timings are not those of two at once.
#[test]
fn a_million_nodes_are_twice_the_work_of_half_a_million() {
    walk_through(N / 2);
    walk_through(N);
    if std::env::var_os("UOPC_PERF").is_some() {
        walk_through(2 * N);
    }
}

/// Sums of pairs share all their nodes: whoever walks them without a memo needs 2^60 steps.
#[test]
fn shared_nodes_are_visited_once() {
    let mut x = UOp::slot(0, DType::F32, 1);
    for _ in 0..60 {
        x = x.add(&x).unwrap();
    }
    assert_eq!(Graph::new(from_ref(&x)).len(), 61);
    let text = to_uir(from_ref(&x));
    assert_eq!(text.lines().count(), 61);
    assert_eq!(parse(&text, "pairs").unwrap().roots, [x.clone()]);
    let g = gradient(&x, &[UOp::slot(0, DType::F32, 1)]).unwrap();
    assert!(Graph::new(&g).len() < 200);
}
