//! Schedules on random graphs: each rewrite wherever it is legal, by itself and mixed, gives the
//! bits of the loops that it was made from.

#[path = "support/case.rs"]
mod case;
#[path = "support/engines.rs"]
mod engines;
#[path = "support/random_graph.rs"]
mod random_graph;

use std::collections::BTreeMap;

use case::Case;
use engines::{Slots, c_device, interpret, run_compiled};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use random_graph::generate;
use uopc::debug::{Schedule, Settings};
use uopc::interp::{Array, Checks};
use uopc::ir::form::{LoopGraph, Program, Role};
use uopc::ir::op::{Exec, Op, Space};
use uopc::ir::{UOp, verify};
use uopc::machine::Machine;
use uopc::pass::linearize::linearize;
use uopc::pass::pipeline::{Lowered, lower};
use uopc::pass::schedule::nest::{Nest, exec_of, extent_of};
use uopc::pass::schedule::rewrite::{self, Axis, Outcome, Refusal, Tail};
use uopc::pass::schedule::schedule;
use uopc::pass::simplify::simplify_loops;

/// How many graphs are compared: 300, and 2,000 where UOPC_DEEP is set.
fn cases() -> u64 {
    if std::env::var_os("UOPC_DEEP").is_some() {
        2000
    } else {
        300
    }
}

/// What may be done to a nest, at a place drawn at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    SplitExact,
    SplitGate,
    SplitPeel,
    SplitShort,
    Unit,
    Merge,
    Reorder,
    Restart,
    Partition,
    Fission,
    Share,
    Unroll,
    Vector,
    Thread,
    Expand,
    Space,
    Privatise,
    InwardVector,
    InwardUnroll,
    InwardSerial,
}

const KINDS: [Kind; 20] = [
    Kind::SplitExact,
    Kind::SplitGate,
    Kind::SplitPeel,
    Kind::SplitShort,
    Kind::Unit,
    Kind::Restart,
    Kind::Partition,
    Kind::Merge,
    Kind::Reorder,
    Kind::Fission,
    Kind::Share,
    Kind::Unroll,
    Kind::Vector,
    Kind::Thread,
    Kind::Expand,
    Kind::Space,
    Kind::Privatise,
    Kind::InwardVector,
    Kind::InwardUnroll,
    Kind::InwardSerial,
];

fn ranges(nest: &Nest) -> Vec<UOp> {
    let mut all: Vec<UOp> = Vec::new();
    for r in nest.statements.iter().flat_map(|s| &s.ranges) {
        if !all.contains(r) {
            all.push(r.clone());
        }
    }
    all
}

/// One try at one rewrite.
fn attempt(nest: &mut Nest, kind: Kind, rng: &mut SmallRng) -> Outcome<()> {
    let all = ranges(nest);
    if all.is_empty() {
        return Err(Refusal::Illegal("there are no loops"));
    }
    let r = all[rng.random_range(0..all.len())].clone();
    let k = rng.random_range(0..nest.statements.len());
    let size = rng.random_range(1..=5);
    let axis = [Axis::Major, Axis::Minor][rng.random_range(0..2)];
    match kind {
        Kind::SplitExact => {
            let n = extent_of(&r).unwrap_or(1).max(1);
            let divisors: Vec<usize> = (1..=n.min(64)).filter(|d| n.is_multiple_of(*d)).collect();
            let size = divisors[rng.random_range(0..divisors.len())];
            rewrite::split(nest, &r, size, Tail::Exact).map(drop)
        }
        Kind::SplitGate => rewrite::split(nest, &r, size, Tail::Gate).map(drop),
        Kind::SplitPeel => rewrite::split(nest, &r, size, Tail::Peel).map(drop),
        Kind::SplitShort => rewrite::split(nest, &r, size, Tail::Short).map(drop),
        Kind::Unit => rewrite::attempt(nest, |nest| {
            let n = extent_of(&r).unwrap_or(1).max(1);
            let outer = rewrite::split(nest, &r, n, Tail::Exact)?.outer;
            rewrite::unit(nest, &outer)
        }),
        Kind::Restart => {
            let locals = nest.locals();
            let local = locals
                .get(rng.random_range(0..locals.len().max(1)))
                .cloned();
            let local = local.ok_or(Refusal::Illegal("there is no scratch memory"))?;
            let n = match *local.op() {
                Op::Local { n, .. } => n,
                _ => 1,
            };
            rewrite::restart(nest, &local, k, n).map(drop)
        }
        Kind::Partition => {
            let s = &nest.statements[k];
            let outermost = s.ranges.get(nest.scope(&s.memory).len()).cloned();
            let r = outermost.ok_or(Refusal::Illegal("there are no loops"))?;
            rewrite::attempt(nest, |nest| {
                let parts = rewrite::split(nest, &r, size, Tail::Peel)?.outer;
                rewrite::partition(nest, k, &parts)
            })
        }
        Kind::Merge => {
            let list = &nest.statements[k].ranges;
            let at = list.iter().position(|x| *x == r);
            let next = at.and_then(|at| list.get(at + 1)).cloned();
            let next = next.ok_or(Refusal::Illegal("there is no loop inside"))?;
            rewrite::merge(nest, &r, &next).map(drop)
        }
        Kind::Reorder => {
            let mut order = nest.statements[k].ranges.clone();
            if order.len() < 2 {
                return Err(Refusal::Illegal("there is one order"));
            }
            for i in (1..order.len()).rev() {
                order.swap(i, rng.random_range(0..=i));
            }
            rewrite::reorder(nest, k, &order)
        }
        Kind::Fission => rewrite::attempt(nest, |nest| {
            // What lives in an iteration of the loop has to outlive it first.
            let r = rewrite::set_exec(nest, &r, Exec::Unroll)?;
            for local in nest.locals() {
                if nest.scope(&local).contains(&r) {
                    rewrite::expand(nest, &local, std::slice::from_ref(&r), axis)?;
                }
            }
            rewrite::fission(nest, &r, k).map(drop)
        }),
        Kind::Share => rewrite::share(nest, k),
        Kind::Unroll => rewrite::set_exec(nest, &r, Exec::Unroll).map(drop),
        Kind::Vector => rewrite::set_exec(nest, &r, Exec::Vector).map(drop),
        Kind::Thread => rewrite::set_exec(nest, &r, Exec::Thread).map(drop),
        Kind::Expand | Kind::Space => {
            let locals = nest.locals();
            if locals.is_empty() {
                return Err(Refusal::Illegal("there is no scratch memory"));
            }
            let local = locals[rng.random_range(0..locals.len())].clone();
            if kind == Kind::Space {
                let space = Space::ALL[rng.random_range(0..Space::ALL.len())];
                return rewrite::set_space(nest, &local, space).map(drop);
            }
            rewrite::expand(nest, &local, std::slice::from_ref(&r), axis).map(drop)
        }
        Kind::Privatise => {
            // Reductions in any order are few, and whole powers of two are fewer.
            let list = nest.statements[k].ranges.clone();
            let last = list.last().ok_or(Refusal::Illegal("there are no loops"))?;
            rewrite::attempt(nest, |nest| {
                let tail = [Tail::Gate, Tail::Peel][rng.random_range(0..2)];
                let inner = rewrite::split(nest, last, 1 << (size % 3 + 1), tail)?.inner;
                let inner = rewrite::set_exec(nest, &inner, Exec::Unroll)?;
                rewrite::privatise(nest, k, &[inner]).map(drop)
            })
        }
        Kind::InwardVector => rewrite::attempt(nest, |nest| {
            let vector = rewrite::split(nest, &r, 1 << (size % 3 + 1), Tail::Gate)?.inner;
            rewrite::inward(nest, &vector, Exec::Vector, axis).map(drop)
        }),
        Kind::InwardUnroll => rewrite::inward(nest, &r, Exec::Unroll, axis).map(drop),
        Kind::InwardSerial => rewrite::inward(nest, &r, Exec::Serial, axis).map(drop),
    }
}

/// Runs the launches of a plan as they were lowered, and hands each with what it read and wrote
/// to a check.
fn each_launch(
    case: &Case,
    plan: &Lowered,
    check: &mut dyn FnMut(&LoopGraph, &Slots, &Slots) -> Result<(), String>,
) -> Result<(), String> {
    let mut held: BTreeMap<u32, Array> = BTreeMap::new();
    for (b, buffer) in plan.plan.buffers.iter().enumerate() {
        if let Role::Input(slot) = buffer.role {
            held.insert(b as u32, case.slots[slot as usize].clone());
        } else if buffer.n == 0 {
            let empty = Array::from_f64(buffer.dtype, &[0], &[]);
            held.insert(b as u32, empty.map_err(|e| e.to_string())?);
        }
    }
    for (kernel, launch) in plan.plan.kernels.iter().zip(&plan.launches) {
        let ins = kernel.ins.iter();
        let given: Slots = ins.map(|&(slot, b)| (slot, held[&b].clone())).collect();
        let wrote = interpret(&launch.loops, &given, Checks::All).map_err(|e| e.to_string())?;
        check(&launch.loops, &given, &wrote)?;
        for (slot, b) in &kernel.outs {
            if let Some(value) = wrote.get(slot) {
                held.insert(*b, value.clone());
            }
        }
    }
    Ok(())
}

fn plain(case: &Case) -> Lowered {
    let settings = Settings {
        schedule: Schedule::Plain,
        ..Settings::default()
    };
    let graph = verify::shape_graph(case.roots.clone()).unwrap_or_else(|e| panic!("{e}"));
    lower(&graph, None, &settings).unwrap_or_else(|e| panic!("{e}"))
}

/// Whether rewritten loops write what they wrote before.
fn same(loops: &LoopGraph, given: &Slots, wrote: &Slots) -> Result<(), String> {
    let now = interpret(loops, given, Checks::All).map_err(|e| e.to_string())?;
    for (slot, value) in wrote {
        if let Some(difference) = value.difference(&now[slot]) {
            return Err(format!("slot {slot}, expected first: {difference}"));
        }
    }
    Ok(())
}

/// Makes rewrites of the kinds, at random places, that are legal there; how many of each.
fn rewrite_at_random(
    loops: &LoopGraph,
    kinds: &[Kind],
    tries: usize,
    rng: &mut SmallRng,
    made: &mut BTreeMap<Kind, usize>,
) -> Result<LoopGraph, String> {
    let mut nest = Nest::of(loops);
    let mut log = Vec::new();
    for _ in 0..tries {
        if nest.statements.len() > 60 || nest.statements.is_empty() {
            break;
        }
        let kind = kinds[rng.random_range(0..kinds.len())];
        let before = nest.build().map_err(|e| e.to_string())?.to_uir();
        match attempt(&mut nest, kind, rng) {
            Ok(()) => {
                *made.entry(kind).or_insert(0) += 1;
                log.push(kind);
                nest.build()
                    .map_err(|e| format!("after {log:?}: {e}\nbefore the last one:\n{before}"))?;
            }
            Err(Refusal::Illegal(_)) => {
                let after = nest.build().map_err(|e| e.to_string())?.to_uir();
                if before != after {
                    return Err(format!("{kind:?} was refused and yet made"));
                }
            }
            Err(Refusal::Failed(error)) => return Err(format!("{kind:?}: {error}")),
        }
    }
    nest.build().map_err(|e| e.to_string())
}

#[test]
fn each_rewrite_keeps_every_bit() {
    let mut made: BTreeMap<Kind, usize> = BTreeMap::new();
    for seed in 0..cases() {
        let case = generate(seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        let checked = each_launch(&case, &plain(&case), &mut |loops, given, wrote| {
            // Each by itself, then all together.
            for kinds in KINDS.chunks(1).chain(std::iter::once(&KINDS[..])) {
                let tries = if kinds.len() == 1 { 6 } else { 40 };
                let new = rewrite_at_random(loops, kinds, tries, &mut rng, &mut made)
                    .map_err(|e| format!("{kinds:?}: {e}\n{}", loops.to_uir()))?;
                same(&new, given, wrote).map_err(|e| {
                    let (old, new) = (loops.to_uir(), new.to_uir());
                    format!("{kinds:?}: {e}\nbefore:\n{old}\nafter:\n{new}")
                })?;
            }
            Ok(())
        });
        checked.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    for kind in KINDS {
        let times = made.get(&kind).copied().unwrap_or(0);
        assert!(
            times > 40,
            "{kind:?} was legal only {times} times: {made:?}"
        );
    }
}

/// What was rewritten, and what it reads and writes.
struct Rewritten {
    seed: u64,
    loops: LoopGraph,
    given: Slots,
    wrote: Slots,
}

/// A graph in two is compiled, many together.
#[test]
fn rewritten_loops_compile_to_the_same_bits() {
    let device = c_device();
    let seeds: Vec<u64> = (0..cases() / 2).collect();
    for seeds in seeds.chunks(50) {
        let mut all: Vec<Rewritten> = Vec::new();
        for &seed in seeds {
            let case = generate(2 * seed + 1);
            let mut rng = SmallRng::seed_from_u64(seed);
            let checked = each_launch(&case, &plain(&case), &mut |loops, given, wrote| {
                let mut made = BTreeMap::new();
                let new = rewrite_at_random(loops, &KINDS, 25, &mut rng, &mut made)?;
                all.push(Rewritten {
                    seed,
                    loops: simplify_loops(&new, &Settings::default()).map_err(|e| e.to_string())?,
                    given: given.clone(),
                    wrote: wrote.clone(),
                });
                Ok(())
            });
            checked.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        let linear = |r: &Rewritten| linearize(&r.loops).unwrap_or_else(|e| panic!("{e}"));
        let programs: Vec<Program> = all.iter().map(linear).collect();
        let code = device
            .compile_programs(&programs.iter().collect::<Vec<_>>())
            .unwrap_or_else(|e| panic!("{e}"));
        for (k, r) in all.iter().enumerate() {
            let found = run_compiled(&*code, k, &r.loops, &r.given);
            for (slot, value) in &r.wrote {
                if let Some(difference) = value.difference(&found[slot]) {
                    let (seed, text) = (r.seed, r.loops.to_uir());
                    panic!("seed {seed}, slot {slot}, expected first: {difference}\n{text}");
                }
            }
        }
    }
}

/// What [`same`] and the rewrites are compared by can see a difference: an illegal exchange of the
/// loops of a float sum does.
#[test]
fn a_sum_in_another_order_is_noticed_and_refused() {
    let text = "
        %0 = local 1 : dtype=f32 id=0 space=reg
        %1 = param 12 : dtype=f32 slot=0 mode=in
        %2 = range 4 : id=0
        %3 = mul %2, 3
        %4 = range 3 : id=1
        %5 = add %3, %4
        %6 = load %1, %5
        %7 = store %0, 0, %6 : combine=add
        %8 = end %7, %2, %4
        %9 = param 1 : dtype=f32 slot=1 mode=out
        %10 = load %0, 0
        %11 = store %9, 0, %10
        %12 = end %11
        %13 = sink %8, %12";
    let parsed = uopc::ir::parse::parse(text, "test").unwrap_or_else(|e| panic!("{e}"));
    let loops =
        verify::loop_graph("test", parsed.roots[0].clone()).unwrap_or_else(|e| panic!("{e}"));
    let mut nest = Nest::of(&loops);
    let mut order = nest.statements[0].ranges.clone();
    order.reverse();
    let refused = rewrite::reorder(&mut nest, 0, &order);
    assert!(
        matches!(refused, Err(Refusal::Illegal("it combines in order"))),
        "{refused:?}"
    );
    nest.statements[0].ranges = order;
    let wrong = nest.build().unwrap_or_else(|e| panic!("{e}"));
    let values: Vec<f64> = (0..12).map(|k| 1.0 / (k as f64 - 5.5)).collect();
    let array = Array::from_f64(uopc::ir::DType::F32, &[12], &values).expect("twelve numbers");
    let given = Slots::from([(0, array)]);
    let wrote = interpret(&loops, &given, Checks::All).unwrap_or_else(|e| panic!("{e}"));
    assert!(same(&loops, &given, &wrote).is_ok());
    assert!(same(&wrong, &given, &wrote).is_err());
}

#[test]
fn layouts_for_all_machines_keep_every_bit() {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..cases() {
        let case = generate(seed);
        let checked = each_launch(&case, &plain(&case), &mut |loops, given, wrote| {
            for machine in [Machine::avx512(), Machine::avx2(), Machine::portable()] {
                let new = schedule(loops, &machine)
                    .and_then(|new| simplify_loops(&new, &Settings::default()))
                    .map_err(|e| format!("{machine:?}: {e}\n{}", loops.to_uir()))?;
                for r in ranges(&Nest::of(&new)) {
                    *kinds.entry(exec_of(&r).name()).or_insert(0) += 1;
                }
                same(&new, given, wrote).map_err(|e| {
                    let (old, new) = (loops.to_uir(), new.to_uir());
                    format!("{machine:?}: {e}\nbefore:\n{old}\nafter:\n{new}")
                })?;
            }
            Ok(())
        });
        checked.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    // What is laid out in vectors and threads depends on sizes; these graphs are small.
    assert!(kinds.get("vector").is_some_and(|n| *n > 1000), "{kinds:?}");
}
