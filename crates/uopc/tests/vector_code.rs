//! Kinds of loops in C: random kernels with vector, unroll and thread loops put in wherever they are
//! legal compute the bits of the plain loops, for every number of threads.

#[path = "support/case.rs"]
mod case;
#[path = "support/engines.rs"]
mod engines;
#[path = "support/random_graph.rs"]
mod random_graph;

use std::collections::BTreeMap;

use engines::{Slots, c_device_in, interpret, run_compiled};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use random_graph::generate;
use uopc::backend::c::unit::render_unit;
use uopc::debug::{Schedule, Settings};
use uopc::interp::{Array, Checks};
use uopc::ir::form::{LoopGraph, Program, Role};
use uopc::ir::op::{Exec, Space};
use uopc::ir::{UOp, verify};
use uopc::pass::linearize::linearize;
use uopc::pass::pipeline::lower;
use uopc::pass::schedule::nest::Nest;
use uopc::pass::schedule::rewrite::{self, Axis, Outcome, Refusal, Tail};
use uopc::pass::simplify::simplify_loops;
use uopc::runtime::{Code, Device};

/// How many graphs are compared: 40, and 2,000 where UOPC_DEEP is set.
fn cases() -> u64 {
    if std::env::var_os("UOPC_DEEP").is_some() {
        2000
    } else {
        40
    }
}

/// Kernels that are compiled as one unit.
const TOGETHER: usize = 40;

/// A launch with new loops, what it reads, and what the plain loops make of that.
struct Launch {
    loops: LoopGraph,
    program: Program,
    given: Slots,
    expected: Slots,
    seed: u64,
}

fn plain() -> Settings {
    Settings {
        schedule: Schedule::Plain,
        ..Settings::default()
    }
}

/// The launches of a random graph, their loops changed at random.
fn launches(seed: u64) -> Vec<Launch> {
    let case = generate(seed);
    let graph = verify::shape_graph(case.roots.clone()).expect("the generator makes shape graphs");
    let plan = lower(&graph, None, &plain()).expect("graphs can be lowered");
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x7ec7_0c0d);
    let mut held: BTreeMap<u32, Array> = BTreeMap::new();
    for (b, buffer) in plan.plan.buffers.iter().enumerate() {
        if let Role::Input(slot) = buffer.role {
            held.insert(b as u32, case.slots[slot as usize].clone());
        } else if buffer.n == 0 {
            let empty = Array::from_f64(buffer.dtype, &[0], &[]).expect("no numbers");
            held.insert(b as u32, empty);
        }
    }
    let mut all = Vec::new();
    for (kernel, launch) in plan.plan.kernels.iter().zip(&plan.launches) {
        let ins = kernel.ins.iter();
        let given: Slots = ins.map(|&(slot, b)| (slot, held[&b].clone())).collect();
        let expected = interpret(&launch.loops, &given, Checks::All).expect("plain loops run");
        for (slot, b) in &kernel.outs {
            if let Some(value) = expected.get(slot) {
                held.insert(*b, value.clone());
            }
        }
        let loops = changed(&launch.loops, &mut rng);
        let program = linearize(&loops).expect("loop graphs are linearized");
        all.push(Launch {
            loops,
            program,
            given,
            expected,
            seed,
        });
    }
    all
}

/// The loops with some of their kinds changed.
fn changed(loops: &LoopGraph, rng: &mut SmallRng) -> LoopGraph {
    let mut nest = Nest::of(loops);
    for _ in 0..rng.random_range(1..8) {
        match change(&mut nest, rng) {
            Ok(()) | Err(Refusal::Illegal(_)) => {}
            Err(Refusal::Failed(error)) => panic!("{error}"),
        }
    }
    let changed = nest.build().expect("rewrites keep the rules");
    match rng.random_range(0..3) {
        0 => changed,
        _ => simplify_loops(&changed, &Settings::default()).expect("rules apply"),
    }
}

/// One change at a place drawn at random.
fn change(nest: &mut Nest, rng: &mut SmallRng) -> Outcome<()> {
    let mut all: Vec<UOp> = Vec::new();
    for r in nest.statements.iter().flat_map(|s| &s.ranges) {
        if !all.contains(r) {
            all.push(r.clone());
        }
    }
    if all.is_empty() {
        return Err(Refusal::Illegal("there are no loops"));
    }
    let r = all[rng.random_range(0..all.len())].clone();
    let lanes = 1 << rng.random_range(1..6);
    let axis = [Axis::Major, Axis::Minor][rng.random_range(0..2)];
    match rng.random_range(0..12) {
        0..4 => rewrite::attempt(nest, |nest| {
            let vector = rewrite::split(nest, &r, lanes, Tail::Gate)?.inner;
            rewrite::inward(nest, &vector, Exec::Vector, axis).map(drop)
        }),
        4 => rewrite::attempt(nest, |nest| {
            let vector = rewrite::split(nest, &r, lanes, Tail::Peel)?.inner;
            rewrite::inward(nest, &vector, Exec::Vector, axis).map(drop)
        }),
        5 => rewrite::set_exec(nest, &r, Exec::Vector).map(drop),
        6 => rewrite::attempt(nest, |nest| {
            let few = rewrite::split(nest, &r, rng.random_range(2..5), Tail::Gate)?.inner;
            rewrite::inward(nest, &few, Exec::Unroll, axis).map(drop)
        }),
        7 => rewrite::inward(nest, &r, Exec::Unroll, axis).map(drop),
        8 => {
            let locals = nest.locals();
            if locals.is_empty() {
                return Err(Refusal::Illegal("there is no scratch memory"));
            }
            let local = locals[rng.random_range(0..locals.len())].clone();
            let space = Space::ALL[rng.random_range(0..Space::ALL.len())];
            rewrite::set_space(nest, &local, space).map(drop)
        }
        9 => {
            let statement = rng.random_range(0..nest.statements.len());
            let mut order = nest.statements[statement].ranges.clone();
            let last = order.pop().ok_or(Refusal::Illegal("there are no loops"))?;
            order.insert(0, last);
            rewrite::reorder(nest, statement, &order)
        }
        _ => rewrite::set_exec(nest, &r, Exec::Thread).map(drop),
    }
}

#[test]
fn kinds_of_loops_change_no_bit() {
    let all: Vec<Launch> = (0..cases()).flat_map(launches).collect();
    // What the changes reach, so that none of it is left out by accident.
    let mut reached: BTreeMap<&str, usize> = BTreeMap::new();
    let marks = [
        "team->run(",
        "load_f32x",
        "load_masked_",
        "store_masked_",
        "gather_strided_",
        "scatter_strided_",
        "select_",
        "fma_f32x",
        "acc0_1",
    ];
    let folder = tempfile::TempDir::new().expect("a folder");
    let device = |threads| c_device_in(folder.path()).with_threads(threads);
    let devices: Vec<_> = (1..4).map(device).collect();
    for batch in all.chunks(TOGETHER) {
        for launch in batch {
            let render = || render_unit(&[&launch.program]);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(render)).is_err() {
                panic!(
                    "seed {}: no text for\n{}",
                    launch.seed,
                    launch.loops.to_uir()
                );
            }
        }
        let programs: Vec<&Program> = batch.iter().map(|l| &l.program).collect();
        let text = render_unit(&programs).text;
        for mark in marks {
            *reached.entry(mark).or_default() += text.matches(mark).count();
        }
        let codes: Vec<Code> = batch
            .iter()
            .map(|l| Code {
                loops: &l.loops,
                program: &l.program,
            })
            .collect();
        for (threads, device) in devices.iter().enumerate() {
            let code = device.compile(&codes).unwrap_or_else(|e| panic!("{e}"));
            for (k, launch) in batch.iter().enumerate() {
                let found = run_compiled(&*code, k, &launch.loops, &launch.given);
                for (slot, expected) in &launch.expected {
                    if let Some(difference) = expected.difference(&found[slot]) {
                        panic!(
                            "seed {}, slot {slot}, {} threads, expected first: {difference}\n{}\n{}",
                            launch.seed,
                            threads + 1,
                            launch.loops.to_uir(),
                            render_unit(&[&launch.program]).text
                        );
                    }
                }
            }
        }
    }
    for mark in marks {
        assert!(reached[mark] > 0, "no kernel has {mark}");
    }
}
