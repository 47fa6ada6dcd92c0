//! Random graphs: every engine gives the same, to the last bit.

#[path = "support/case.rs"]
mod case;
#[path = "support/engines.rs"]
mod engines;
#[path = "support/random_graph.rs"]
mod random_graph;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use case::{Case, shrink};
use engines::{Slots, c_device, interpret, run_compiled};
use random_graph::generate;
use rustc_hash::FxHashMap;
use uopc::compile::{Engine, RealizeOptions};
use uopc::debug::{DeviceChoice, Settings};
use uopc::interp::{Array, Checks};
use uopc::ir::form::{LoopGraph, Role};
use uopc::ir::op::{Class, Fold, LiveBuffer, OPS, Op};
use uopc::ir::visit::{Graph, substitute};
use uopc::ir::{DType, UOp, print, verify};
use uopc::pass::pipeline::{Lowered, lower};
use uopc::rules;
use uopc::runtime::c_device::CDevice;
use uopc::runtime::{Code, Device, Executable, Storage};

/// How many graphs are compared: 300, and 2,000 where UOPC_DEEP is set.
fn cases() -> u64 {
    if std::env::var_os("UOPC_DEEP").is_some() {
        2000
    } else {
        300
    }
}

#[test]
fn the_generator_reaches_every_op_dtype_and_kind_of_shape() {
    let mut ops: BTreeSet<&str> = BTreeSet::new();
    let mut dtypes: BTreeSet<(&str, DType)> = BTreeSet::new();
    let mut marks: BTreeSet<&str> = BTreeSet::new();
    for seed in 0..300 {
        let case = generate(seed);
        for u in Graph::new(&case.roots).nodes {
            ops.insert(u.op().mnemonic());
            dtypes.insert((u.op().mnemonic(), u.dtype()));
            let shape = u.shape();
            let mut mark = |name, there: bool| {
                if there {
                    marks.insert(name);
                }
            };
            mark("scalar", shape.rank() == 0);
            mark("empty", shape.numel() == 0);
            mark("four axes", shape.rank() == 4);
            mark("several blocks of a fold", shape.iter().any(|&d| d > 8192));
            if let Op::ScatterAdd(_) = u.op() {
                mark(
                    "narrow floats that are scattered",
                    u.dtype().size() == 2 && u.dtype().is_float(),
                );
                mark("two indices that are scattered to", u.src().len() > 2);
            }
            if let Op::Reduce { fold, .. } = u.op() {
                let extent = u.src()[0].shape()[shape.rank()..].iter().product::<usize>();
                mark("chain", *fold == Fold::Chain);
                mark(
                    "narrow chain",
                    *fold == Fold::Chain && u.dtype().size() == 2,
                );
                mark(
                    "chain of more than one block",
                    *fold == Fold::Chain && extent > 4096,
                );
                mark("reduction of nothing", extent == 0 && shape.numel() > 0);
                mark("lanes with a tail", extent > 16 && extent % 16 != 0);
            }
        }
        for array in &case.slots {
            for value in array.scalars() {
                let float = value.dtype().is_float();
                let mut mark = |name, there: bool| {
                    if there {
                        marks.insert(name);
                    }
                };
                mark("NaN", value.is_nan());
                mark("infinity", float && value.as_f64().is_infinite());
                mark(
                    "-0",
                    float && value.as_f64() == 0.0 && value.as_f64().is_sign_negative(),
                );
                let range = value.dtype().int_range();
                mark(
                    "least integer",
                    range.is_some_and(|r| r.0 < 0 && r.0 == value.as_i128()),
                );
            }
        }
        if case.roots.len() > 1 {
            marks.insert("several roots");
        }
    }
    let later = ["param", "custom"];
    for op in OPS {
        let pure = !matches!(op.class, Class::Loop | Class::Program);
        if pure && !later.contains(&op.mnemonic) {
            assert!(ops.contains(op.mnemonic), "no graph has {}", op.mnemonic);
        }
    }
    for dtype in DType::ALL {
        for group in [
            &["buffer"][..],
            &["cast"],
            &["where"],
            &["reduce"],
            &["add", "mul", "max"],
            &["stack", "index"],
        ] {
            let reached = group.iter().any(|op| dtypes.contains(&(*op, dtype)));
            assert!(reached, "no graph has any of {group:?} of {dtype}");
        }
    }
    for mark in [
        "scalar",
        "empty",
        "four axes",
        "several blocks of a fold",
        "chain",
        "narrow chain",
        "chain of more than one block",
        "reduction of nothing",
        "narrow floats that are scattered",
        "two indices that are scattered to",
        "lanes with a tail",
        "NaN",
        "infinity",
        "-0",
        "least integer",
        "several roots",
    ] {
        assert!(marks.contains(mark), "no graph has: {mark}");
    }
}

#[test]
fn the_generator_is_deterministic_and_its_graphs_are_well_formed() {
    for seed in 0..cases() {
        let (a, b) = (generate(seed), generate(seed));
        assert_eq!(a.text(), b.text());
        verify::shape_graph(a.roots.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let values = a
            .values()
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", a.text()));
        for (root, value) in a.roots.iter().zip(values) {
            assert_eq!((root.dtype(), root.shape()), (value.dtype(), value.shape()));
        }
    }
    assert_ne!(generate(1).text(), generate(2).text());
}

#[test]
fn the_shrinker_keeps_what_fails_and_little_else() {
    // Say that every FLOORDIV is wrong: what remains is one, on leaves.
    let fails = |case: &Case| {
        Graph::new(&case.roots)
            .nodes
            .iter()
            .any(|u| *u.op() == Op::FloorDiv)
    };
    let mut shrunk = 0;
    for seed in 0..300 {
        let case = generate(seed);
        if !fails(&case) {
            continue;
        }
        let small = shrink(&case, &fails);
        assert!(fails(&small));
        let nodes = Graph::new(&small.roots).nodes;
        let computed = nodes.iter().filter(|u| u.op().is_elementwise());
        assert_eq!(
            (small.roots.len(), computed.count()),
            (1, 1),
            "{}",
            small.text()
        );
        // The value is what it was in the larger graph, and the text reads back.
        assert!(small.values().is_ok());
        let back = uopc::ir::parse::parse(&small.text(), "shrunken").expect("the text parses");
        assert_eq!(print::to_uir(&back.roots), print::to_uir(&small.roots));
        shrunk += 1;
    }
    assert!(shrunk > 5, "only {shrunk} graphs have a FLOORDIV");
}

// ---- the comparison ----

fn lowered(case: &Case, settings: &Settings) -> Result<Lowered, String> {
    let graph = verify::shape_graph(case.roots.clone()).map_err(|e| e.to_string())?;
    lower(&graph, None, settings).map_err(|e| format!("lowering: {e}"))
}

/// Settings under which no rule is applied.
fn without_rules() -> Settings {
    let disable = rules::all()
        .iter()
        .map(|rule| rule.name.to_string())
        .collect();
    Settings {
        disable,
        ..Settings::default()
    }
}

/// Runs the launches of a plan by `launch`, which gets a launch's number and its inputs.
fn run_plan(
    case: &Case,
    plan: &Lowered,
    launch: &dyn Fn(usize, &LoopGraph, &Slots) -> Result<Slots, String>,
) -> Result<Vec<Array>, String> {
    let mut buffers: BTreeMap<u32, Array> = BTreeMap::new();
    for (b, buffer) in plan.plan.buffers.iter().enumerate() {
        if let Role::Input(slot) = buffer.role {
            buffers.insert(b as u32, case.slots[slot as usize].clone());
        }
    }
    for (k, kernel) in plan.plan.kernels.iter().enumerate() {
        let mut given = Slots::new();
        for &(slot, b) in &kernel.ins {
            given.insert(slot, held(plan, &buffers, b)?);
        }
        let mut wrote = launch(k, &plan.launches[k].loops, &given)?;
        for (slot, b) in &kernel.outs {
            let value = wrote.remove(slot);
            let value = value.ok_or_else(|| format!("launch {k} writes no slot {slot}"))?;
            buffers.insert(*b, value);
        }
    }
    let outputs = case.roots.iter().zip(&plan.plan.outputs);
    let value = |(root, &b): (&UOp, &u32)| {
        held(plan, &buffers, b)?
            .reshaped(root.shape())
            .map_err(|e| e.to_string())
    };
    outputs.map(value).collect()
}

/// What a buffer of the plan holds. Nobody has to write an empty one.
fn held(plan: &Lowered, buffers: &BTreeMap<u32, Array>, b: u32) -> Result<Array, String> {
    let buffer = &plan.plan.buffers[b as usize];
    match buffers.get(&b) {
        Some(value) => Ok(value.clone()),
        None if buffer.n == 0 => {
            Array::from_f64(buffer.dtype, &[0], &[]).map_err(|e| e.to_string())
        }
        None => Err(format!("buffer {b} is read before a kernel wrote it")),
    }
}

/// What differs from the graph interpreter, if anything does.
fn compare(case: &Case, got: Result<Vec<Array>, String>, engine: &str) -> Result<(), String> {
    let got = got.map_err(|e| format!("{engine}: {e}"))?;
    let want = case.values().map_err(|e| e.to_string())?;
    for (k, (want, got)) in want.iter().zip(&got).enumerate() {
        if let Some(difference) = want.difference(got) {
            return Err(format!("{engine}, root {k}, expected first: {difference}"));
        }
    }
    Ok(())
}

fn check_loops(case: &Case) -> Result<(), String> {
    check_loops_with(case, &Settings::default())
}

fn check_loops_with(case: &Case, settings: &Settings) -> Result<(), String> {
    let plan = lowered(case, settings)?;
    let launch = |_: usize, loops: &LoopGraph, given: &Slots| {
        interpret(loops, given, Checks::All).map_err(|e| e.to_string())
    };
    compare(case, run_plan(case, &plan, &launch), "loop interpreter")
}

fn check_compiled(
    case: &Case,
    plan: &Lowered,
    code: &dyn Executable,
    at: usize,
) -> Result<(), String> {
    let launch =
        |k: usize, loops: &LoopGraph, given: &Slots| Ok(run_compiled(code, at + k, loops, given));
    compare(case, run_plan(case, plan, &launch), "compiled C")
}

fn compile(device: &CDevice, plans: &[&Lowered]) -> Box<dyn Executable> {
    let launches = plans.iter().flat_map(|p| &p.launches);
    let codes: Vec<Code> = launches
        .map(|l| Code {
            loops: &l.loops,
            program: &l.program,
        })
        .collect();
    device.compile(&codes).unwrap_or_else(|e| panic!("{e}"))
}

/// The result of a check, a panic being an error like any other.
fn guarded(case: &Case, check: &dyn Fn(&Case) -> Result<(), String>) -> Result<(), String> {
    let result = catch_unwind(AssertUnwindSafe(|| check(case)));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map_or("", |text| text);
        Err(format!("panicked: {text}"))
    })
}

/// Fails with the smallest graph that still fails.
fn report(case: &Case, error: &str, check: &dyn Fn(&Case) -> Result<(), String>) -> ! {
    let small = shrink(case, &|c| guarded(c, check).is_err());
    let now = guarded(&small, check).err().unwrap_or_default();
    panic!(
        "seed {}: {error}\nshrunken: {now}\n{}",
        case.seed,
        small.text()
    );
}

#[test]
fn loops_agree_with_graphs() {
    for seed in 0..cases() {
        let case = generate(seed);
        if let Err(error) = guarded(&case, &check_loops) {
            report(&case, &error, &check_loops);
        }
    }
}

#[test]
fn loops_agree_with_graphs_where_no_rule_is_applied() {
    let settings = without_rules();
    assert!(settings.disable.len() > 50, "the rules have names");
    let check = |case: &Case| check_loops_with(case, &settings);
    for seed in 0..cases() {
        let case = generate(seed);
        if let Err(error) = guarded(&case, &check) {
            report(&case, &error, &check);
        }
    }
}

#[test]
fn compiled_code_agrees_with_graphs() {
    let device = c_device();
    let settings = Settings::default();
    let alone = |case: &Case| {
        let plan = lowered(case, &settings)?;
        let code = compile(&device, &[&plan]);
        check_compiled(case, &plan, &*code, 0)
    };
    // Many graphs share a translation unit.
    let seeds: Vec<u64> = (0..cases()).collect();
    for seeds in seeds.chunks(100) {
        let cases: Vec<Case> = seeds.iter().map(|&seed| generate(seed)).collect();
        let lower = |case: &Case| {
            lowered(case, &settings).unwrap_or_else(|e| report(case, &e, &check_loops))
        };
        let plans: Vec<Lowered> = cases.iter().map(lower).collect();
        let code = compile(&device, &plans.iter().collect::<Vec<_>>());
        let mut at = 0;
        for (case, plan) in cases.iter().zip(&plans) {
            if let Err(error) = check_compiled(case, plan, &*code, at) {
                report(case, &error, &alone);
            }
            at += plan.launches.len();
        }
    }
}

// ---- the engine ----

/// The roots with live memory in place of slots.
fn live_roots(case: &Case) -> Result<Vec<UOp>, String> {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
    let mut replace = FxHashMap::default();
    for (k, array) in case.slots.iter().enumerate() {
        let storage = Storage::from_bytes(&array.to_bytes()).map_err(|e| e.to_string())?;
        let id = NEXT.fetch_add(1, Relaxed);
        let live = UOp::live(
            Arc::new(LiveBuffer { id, storage }),
            array.dtype(),
            array.len(),
        );
        replace.insert(UOp::slot(k as u32, array.dtype(), array.len()), live);
    }
    substitute(&case.roots, &replace).map_err(|e| e.to_string())
}

/// Realises the roots by an engine, after some of the values below them, which it reads then
/// instead of computing them again.
fn check_engine(engine: &Engine, case: &Case, first: &dyn Fn(usize) -> bool) -> Result<(), String> {
    let roots = live_roots(case)?;
    let realize = |roots: &[UOp]| {
        let realized = engine.realize(roots, &RealizeOptions::default());
        realized.map(|r| r.outputs).map_err(|e| e.to_string())
    };
    let nodes = Graph::new(&roots).nodes;
    let inner = nodes
        .iter()
        .enumerate()
        .filter(|(_, u)| !u.src().is_empty());
    let inner: Vec<UOp> = inner
        .filter(|(i, _)| first(*i))
        .map(|(_, u)| u.clone())
        .collect();
    let kept = realize(&inner)?;
    for (u, storage) in inner.iter().zip(&kept) {
        let storage: Arc<dyn Any + Send + Sync> = storage.clone();
        u.set_home(&storage);
    }
    let outputs = realize(&roots)?;
    let arrays = roots.iter().zip(outputs).map(|(root, storage)| {
        Array::from_bytes(root.dtype(), root.shape(), storage.as_bytes()).map_err(|e| e.to_string())
    });
    compare(case, arrays.collect(), "engine")
}

#[test]
fn engines_agree_with_graphs_whatever_was_realised_before() {
    let settings = Settings {
        device: DeviceChoice::Interp,
        ..Settings::default()
    };
    let engine = Engine::new(settings).unwrap_or_else(|e| panic!("{e}"));
    for seed in 0..cases() {
        let case = generate(seed);
        let nothing = |case: &Case| check_engine(&engine, case, &|_| false);
        // Every third node, and another third for another seed.
        let some = |case: &Case| check_engine(&engine, case, &|i| i as u64 % 3 == case.seed % 3);
        for check in [&nothing as &dyn Fn(&Case) -> Result<(), String>, &some] {
            if let Err(error) = guarded(&case, check) {
                report(&case, &error, check);
            }
        }
    }
}
