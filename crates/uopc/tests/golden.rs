//! The golden files, one test for each folder; see `support/golden.rs` for their format.
//!
//! Besides the text, each file of a pass that keeps values is evaluated before and after it in
//! the interpreter, on random and on special numbers.

mod support;

use std::collections::BTreeSet;

use support::arrays::{
    DRAWS, Draw, Slots, eval, inputs, same_elements, same_runs, same_slots, same_values,
    same_values_of,
};
use support::engines::{c_device, interpret, run_compiled};
use support::finite;
use support::golden::{self, Golden, each};
use support::runs;
use support::schedules;
use uopc::Error;
use uopc::backend::c::render::render;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Schedule, Settings};
use uopc::interp::{Array, Checks};
use uopc::ir::form::{Kernel, LoopGraph, Plan, Role, ShapeGraph, params};
use uopc::ir::op::{BufferId, OPS, Op};
use uopc::ir::parse::{Parsed, parse};
use uopc::ir::print::{to_uir, to_uir_with};
use uopc::ir::{DType, Scalar, Shape, UOp, verify};
use uopc::pass::simplify::simplify_shapes;
use uopc::rewrite::{Limits, Validity, rewrite};
use uopc::rules::{self, scalar_rules, shape_rules};

/// The passes by their names, which are also those of the tests here.
mod passes {
    pub use uopc::pass::kernelize::kernelize;
    pub use uopc::pass::linearize::linearize;
    pub use uopc::pass::order::order;
    pub use uopc::pass::pipeline::lower;
    pub use uopc::pass::rangeify::rangeify;
    pub use uopc::pass::simplify::simplify_loops;
    pub use uopc::pass::strip_detach::strip_detach;
}

/// The text of a graph of the form that the file states as `; form:`, verified.
fn text_of_form(file: &Golden, parsed: &Parsed) -> Result<String, Error> {
    let root = || {
        parsed
            .roots
            .first()
            .cloned()
            .unwrap_or_else(|| UOp::sink(&[]))
    };
    let name = || parsed.name.clone().unwrap_or_else(|| "kernel".into());
    match file.list("form").first().copied() {
        None | Some("shape graph") => Ok(verify::shape_graph(parsed.roots.clone())?.to_uir()),
        Some("plan") => Plan::from_parsed(parsed)?.to_uir(),
        Some("loop graph") => Ok(verify::loop_graph(name(), root())?.to_uir()),
        Some("program") => Ok(verify::program(name(), root())?.to_uir()),
        // Text that belongs to no form, such as reserved ops.
        Some("none") => Ok(to_uir_with(
            &parsed.roots,
            parsed.name.as_deref(),
            &parsed.notes,
        )),
        Some(other) => panic!("{}: there is no form '{other}'", file.id()),
    }
}

#[test]
fn print() {
    each("print", |file| {
        let parsed = file.parse()?;
        let text = text_of_form(file, &parsed).map_err(|e| e.to_string())?;
        let again = parse(&text, "printed").map_err(|e| e.to_string())?;
        if again.roots != parsed.roots {
            return Err("printed and parsed again it is another graph".into());
        }
        if parsed.name.is_some() && again.name != parsed.name {
            return Err("printed and parsed again it has another name".into());
        }
        file.compare(&text)
    });
}

#[test]
fn verify() {
    each("verify", |file| {
        let found = parse(&file.input, &file.id()).and_then(|p| text_of_form(file, &p));
        file.compare_file(&with_error(
            &strip_errors(&file.input),
            found.err().as_ref(),
        ))
    });
}

const MARK: &str = " ; error: ";

fn strip_errors(input: &str) -> String {
    let code = |line: &str| format!("{}\n", line.split(MARK).next().unwrap_or("").trim_end());
    input
        .lines()
        .filter(|line| !line.starts_with(MARK.trim_start()))
        .map(code)
        .collect()
}

/// The input with the error as a comment at its line: where the parser says, or at the line that
/// the message quotes. An error without a line stands at the end.
fn with_error(input: &str, error: Option<&Error>) -> String {
    let Some(error) = error else {
        return input.into();
    };
    let mut message = error.to_string();
    let mut at = None;
    if let Error::Parse {
        message: first,
        line,
        ..
    } = error
    {
        message = first.clone();
        at = Some(*line - 1);
    } else if let Some((rule, quoted)) = message.split_once(": %") {
        let quoted = format!("%{quoted}");
        at = input.lines().position(|line| line.trim_end() == quoted);
        if at.is_some() {
            message = rule.to_string();
        }
    }
    let mut out = String::new();
    for (k, line) in input.lines().enumerate() {
        out.push_str(line);
        if at == Some(k) {
            out.push_str(MARK);
            out.push_str(&message);
        }
        out.push('\n');
    }
    if at.is_none() {
        out.push_str(&format!("{}{message}\n", MARK.trim_start()));
    }
    out
}

/// What a pass made of a graph, if it fired the rules that the file lists.
fn fires(file: &Golden, fired: &[(&'static str, u64)]) -> Result<(), String> {
    let fired: Vec<&str> = fired.iter().map(|(name, _)| *name).collect();
    match file.list("fires").iter().find(|name| !fired.contains(name)) {
        Some(missing) => Err(format!("{missing} did not fire; those that did: {fired:?}")),
        None => Ok(()),
    }
}

fn text(error: Error) -> String {
    error.to_string()
}

fn shape_graph(file: &Golden) -> Result<ShapeGraph, String> {
    verify::shape_graph(file.parse()?.roots).map_err(text)
}

fn loop_graph(file: &Golden) -> Result<LoopGraph, String> {
    let parsed = file.parse()?;
    let name = parsed.name.clone().unwrap_or_else(|| "kernel".into());
    let [sink] = &parsed.roots[..] else {
        return Err("a loop graph has one root".into());
    };
    verify::loop_graph(name, sink.clone()).map_err(text)
}

#[test]
fn simplify() {
    each("simplify", |file| {
        let before = shape_graph(file)?;
        let (after, _) = simplify_shapes(&before, &Settings::default()).map_err(text)?;
        let again = rewrite(before.roots(), &shape_rules(), &Limits::default(), None);
        let fired = again.map_err(text)?.fired;
        fires(file, &fired)?;
        // Rules with a licence keep the bits of finite numbers only.
        let licensed = |name: &str| {
            let rule = rules::all().into_iter().find(|r| r.name == name);
            rule.is_some_and(|r| r.validity == Validity::Licensed)
        };
        let draws = match fired.iter().any(|(name, _)| licensed(name)) {
            true => &DRAWS[..2],
            false => &DRAWS[..],
        };
        same_values_of(draws, before.roots(), after.roots())?;
        file.compare(&after.to_uir())
    });
}

#[test]
fn simplify_loops() {
    each("simplify_loops", |file| {
        let before = loop_graph(file)?;
        let after = passes::simplify_loops(&before, &Settings::default()).map_err(text)?;
        let root = std::slice::from_ref(before.sink());
        let again = rewrite(root, &scalar_rules(), &Limits::default(), None);
        fires(file, &again.map_err(text)?.fired)?;
        same_runs(&before, &after)?;
        file.compare(&after.to_uir())
    });
}

#[test]
fn strip_detach() {
    each("strip_detach", |file| {
        let before = shape_graph(file)?;
        let (after, _) = passes::strip_detach(&before).map_err(text)?;
        same_values(before.roots(), after.roots())?;
        file.compare(&after.to_uir())
    });
}

#[test]
fn gradient() {
    each("gradient", |file| {
        let parsed = file.parse()?;
        let targets = listed(file, &parsed, "wrt")?;
        let root = &parsed.roots[0];
        let gradients = uopc::autodiff::gradient(root, &targets).map_err(text)?;
        finite::check(root, &targets, &gradients)?;
        file.compare(&to_uir(&gradients))
    });
}

/// The nodes that a file lists under a key.
fn listed(file: &Golden, parsed: &Parsed, key: &str) -> Result<Vec<UOp>, String> {
    let numbers = file.list(key);
    numbers.iter().map(|n| file.node(parsed, n)).collect()
}

/// A new slot for each of some nodes, of its dtype and of its shape behind some axes.
fn slots_for(nodes: &[UOp], before: &[usize]) -> Vec<UOp> {
    let slot = |(k, u): (usize, &UOp)| {
        let dims = [before, &u.shape()[..]].concat();
        let n = dims.iter().product();
        let slot = UOp::slot(100 + k as u32, u.dtype(), n);
        slot.reshape(&dims).expect("n elements")
    };
    nodes.iter().enumerate().map(slot).collect()
}

/// The tangent of the first root along new slots from 100 on, one for each target.
#[test]
fn jvp() {
    each("jvp", |file| {
        let parsed = file.parse()?;
        let targets = listed(file, &parsed, "wrt")?;
        let tangents = slots_for(&targets, &[]);
        let root = &parsed.roots[0];
        let tangent = uopc::autodiff::jvp(root, &targets, &tangents).map_err(text)?;
        finite::check_tangent(root, &targets, &tangents, &tangent)?;
        file.compare(&to_uir(&[tangent]))
    });
}

/// The roots over batches of three in new slots from 100 on, one for each input.
#[test]
fn vmap() {
    each("vmap", |file| {
        let parsed = file.parse()?;
        let leaves = listed(file, &parsed, "batched")?;
        let batches = slots_for(&leaves, &[3]);
        let pairs: Vec<(UOp, UOp)> = leaves.iter().cloned().zip(batches).collect();
        let mapped = uopc::autodiff::vmap(&parsed.roots, &pairs).map_err(text)?;
        let nodes: Vec<UOp> = mapped.iter().map(|m| m.node.clone()).collect();
        let whole = mapped.iter().map(|m| m.repeated(3).map_err(text));
        let whole = whole.collect::<Result<Vec<UOp>, String>>()?;
        let all = [&whole[..], &parsed.roots[..]].concat();
        let slots = inputs(&all, 1, Draw::Plain);
        let found = eval(&whole, &slots)?;
        for e in 0..3 {
            let rows = |from: &Array| -> Result<Array, String> {
                let n = from.len() / 3;
                let row: Vec<Scalar> = (e * n..(e + 1) * n).map(|i| from.get(i)).collect();
                Array::from_scalars(from.dtype(), &[n], &row).map_err(text)
            };
            let mut one = slots.clone();
            for (k, leaf) in leaves.iter().enumerate() {
                let Op::Buffer {
                    id: BufferId::Slot(slot),
                    ..
                } = leaf.op()
                else {
                    return Err("only buffers are batched here".into());
                };
                one.insert(*slot, rows(&slots[&(100 + k as u32)])?);
            }
            for (found, alone) in found.iter().zip(eval(&parsed.roots, &one)?) {
                let apart = |(a, b): (f64, f64)| (a - b).abs() > 1e-5 * a.abs().max(1.0);
                let row = rows(found)?.to_f64();
                if row.iter().copied().zip(alone.to_f64()).any(apart) {
                    return Err(format!("example {e}: {row:?}, alone {:?}", alone.to_f64()));
                }
            }
        }
        file.compare(&to_uir(&nodes))
    });
}

#[test]
fn kernelize() {
    each("kernelize", |file| {
        let before = shape_graph(file)?;
        let parsed = file.parse()?;
        let plan = passes::kernelize(&before, parsed.name.as_deref())
            .map_err(text)?
            .plan;
        plan_computes(&before, &plan)?;
        file.compare(&plan.to_uir().map_err(text)?)
    });
}

#[test]
fn order() {
    each("order", |file| {
        let before = shape_graph(file)?;
        let plan = passes::kernelize(&before, None).map_err(text)?.plan;
        let plan = passes::order(&plan);
        plan_computes(&before, &plan)?;
        file.compare(&plan.to_uir().map_err(text)?)
    });
}

/// From a marked graph to a plan in which kernels run again.
#[test]
fn recompute() {
    each("recompute", |file| {
        let before = shape_graph(file)?;
        let lowered = passes::lower(&before, None, &Settings::default()).map_err(text)?;
        plan_computes(&before, &lowered.plan)?;
        file.compare(&lowered.plan.to_uir().map_err(text)?)
    });
}

/// Whether a plan computes what the graph says.
fn plan_computes(graph: &ShapeGraph, plan: &Plan) -> Result<(), String> {
    for (seed, kind) in DRAWS {
        let slots = inputs(graph.roots(), seed, kind);
        let expected = eval(graph.roots(), &slots)?;
        same_elements(&expected, &run_plan(plan, &slots)?)?;
    }
    Ok(())
}

/// The values of a plan's outputs, kernel by kernel in the graph interpreter.
fn run_plan(plan: &Plan, slots: &Slots) -> Result<Vec<Array>, String> {
    let mut held: Vec<Option<Array>> = (plan.buffers.iter())
        .map(|buffer| match buffer.role {
            Role::Input(slot) => slots.get(&slot).cloned(),
            // What has no elements need not be written.
            Role::Output | Role::Temporary => {
                (buffer.n == 0).then(|| Array::full(Scalar::zero(buffer.dtype), &Shape::new(&[0])))
            }
        })
        .collect();
    for kernel in &plan.kernels {
        let read = |&(slot, b): &(u32, u32)| Some((slot, held[b as usize].clone()?));
        let params: Slots = kernel.ins.iter().filter_map(read).collect();
        let values = eval(kernel.body.roots(), &params)?;
        for (value, &(_, b)) in values.into_iter().zip(&kernel.outs) {
            held[b as usize] = Some(value);
        }
    }
    let outputs = plan.outputs.iter().map(|&b| held[b as usize].clone());
    outputs
        .collect::<Option<Vec<Array>>>()
        .ok_or("an output was never written".into())
}

#[test]
fn rangeify() {
    each("rangeify", |file| {
        let kernel = kernel(file)?;
        let loops = passes::rangeify(&kernel).map_err(text)?;
        for (seed, kind) in DRAWS {
            let slots = inputs(kernel.body.roots(), seed, kind);
            let expected = eval(kernel.body.roots(), &slots)?;
            let written = interpret(&loops, &slots, Checks::All).map_err(text)?;
            let outs = kernel.outs.iter().map(|(slot, _)| written[slot].clone());
            same_elements(&expected, &outs.collect::<Vec<Array>>())?;
        }
        file.compare(&loops.to_uir())
    });
}

/// A kernel whose outputs are the slots behind those that the graph reads.
fn kernel(file: &Golden) -> Result<Kernel, String> {
    let parsed = file.parse()?;
    let body = verify::shape_graph(parsed.roots).map_err(text)?;
    let ins: Vec<u32> = params(&UOp::sink(body.roots()))
        .iter()
        .map(|p| p.0)
        .collect();
    let first = ins.iter().max().map_or(0, |slot| slot + 1);
    let outs = (first..).take(body.roots().len());
    Ok(Kernel {
        name: parsed.name.unwrap_or_else(|| "kernel".into()),
        outs: outs.map(|slot| (slot, slot)).collect(),
        ins: ins.into_iter().map(|slot| (slot, slot)).collect(),
        body,
    })
}

#[test]
fn loopform() {
    each("loopform", |file| {
        let loops = loop_graph(file)?;
        // `loopform.rs` runs these; here they only have to be written as the printer would.
        let code = |l: &&str| l.starts_with('%') || l.starts_with("; name:");
        let printed = loops.to_uir();
        let written: Vec<&str> = file.input.lines().filter(code).collect();
        match printed.lines().zip(&written).find(|(a, b)| a != *b) {
            Some((a, b)) => Err(format!("the printer writes\n{a}\nthe file has\n{b}")),
            None if printed.lines().count() != written.len() => Err("a line too many".into()),
            None => Ok(()),
        }
    });
}

/// Rewrites by name with their arguments, or the whole layout for a fixed machine.
#[test]
fn schedule() {
    each("schedule", |file| {
        let before = loop_graph(file)?;
        let (made, refused) = (file.list("rewrite"), file.list("refused"));
        let (machine, choice) = (file.list("machine"), file.list("choice"));
        let after = schedules::rewritten(&before, &made, &refused, &machine, &choice)?;
        // What takes the interpreter too long here has a test of its own.
        match file.list("run by")[..] {
            [] => same_runs(&before, &after)?,
            [test] => {
                let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(test);
                std::fs::metadata(path).map_err(|e| format!("{test}: {e}"))?;
            }
            _ => return Err("one test at most".into()),
        }
        file.compare(&after.to_uir())
    });
}

#[test]
fn linearize() {
    let device = c_device();
    each("linearize", |file| {
        let loops = loop_graph(file)?;
        let program = passes::linearize(&loops).map_err(text)?;
        let code = device.compile_programs(&[&program]).map_err(text)?;
        for (seed, kind) in DRAWS {
            let given = inputs(std::slice::from_ref(loops.sink()), seed, kind);
            let expected = interpret(&loops, &given, Checks::All).map_err(text)?;
            same_slots(&expected, &run_compiled(&*code, 0, &loops, &given))?;
        }
        file.compare(&program.to_uir())
    });
}

#[test]
fn render_c() {
    each("render_c", |file| {
        let parsed = file.parse()?;
        let name = parsed.name.clone().ok_or("the kernel has no name")?;
        let program = verify::program(name, parsed.roots[0].clone()).map_err(text)?;
        file.compare(&render(&program))
    });
}

#[test]
fn run() {
    let mut cases = Vec::new();
    let collected = std::cell::RefCell::new((&mut cases, 0));
    each("run", |file| {
        let (cases, first) = &mut *collected.borrow_mut();
        verify::shape_graph(file.parse()?.roots).map_err(text)?;
        cases.extend(runs::cases(file, first)?);
        Ok(())
    });
    let by_graph = runs::interpret(&cases).unwrap_or_else(|e| panic!("{e}"));
    let mut failures = Vec::new();
    for (case, values) in cases.iter().zip(&by_graph) {
        if let Some(why) = runs::far_from(case, values) {
            failures.push(format!("{}, graph interpreter: {why}", case.id));
        }
    }
    for (name, settings) in engines() {
        let engine = Engine::new(settings).unwrap_or_else(|e| panic!("{name}: {e}"));
        let values = runs::realize(&engine, &cases).unwrap_or_else(|e| panic!("{name}: {e}"));
        for ((case, expected), found) in cases.iter().zip(&by_graph).zip(&values) {
            if let Err(why) = same_elements(expected, found) {
                failures.push(format!("{}, {name}: {why}", case.id));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Every way to run a graph, none with a cache folder. A new backend adds a line.
fn engines() -> Vec<(&'static str, Settings)> {
    let on = |device| Settings {
        device,
        cache_dir: None,
        ..Settings::default()
    };
    let c = || on(DeviceChoice::C);
    let plain = Settings {
        schedule: Schedule::Plain,
        ..c()
    };
    // No rule fires: what rules would make of the graph must be the same.
    let unsimplified = Settings {
        fuel: Some(0),
        ..c()
    };
    vec![
        ("loop interpreter", on(DeviceChoice::Interp)),
        ("C", c()),
        ("C, plain schedule", plain),
        ("C without rules", unsimplified),
    ]
}

/// The checks by value notice a wrong result.
#[test]
fn checks_can_fail() {
    let x = UOp::slot(0, DType::F32, 3);
    let (square, cube) = (&x * &x, &(&x * &x) * &x);
    assert!(same_values(&[square.clone()], &[square.clone()]).is_ok());
    assert!(same_values(&[square.clone()], &[cube.clone()]).is_err());
    let right = uopc::autodiff::gradient(&cube, &[x.clone()]).unwrap();
    assert!(finite::check(&cube, &[x.clone()], &right).is_ok());
    assert!(finite::check(&cube, &[x.clone()], &[square]).is_err());
}

/// A new op is not forgotten: each has a line in some golden file. Constants stand inline.
#[test]
fn every_op_occurs() {
    let mut met: BTreeSet<String> = BTreeSet::new();
    for folder in golden::folders() {
        for file in golden::files(&folder) {
            let lines = file
                .input
                .lines()
                .chain(file.expected.iter().flat_map(|e| e.lines()));
            let ops = lines.filter_map(|line| {
                let (_, node) = line.strip_prefix('%')?.split_once("= ")?;
                Some(node.split(' ').next()?.to_string())
            });
            met.extend(ops);
        }
    }
    let missing: Vec<&str> = (OPS.iter().map(|row| row.mnemonic))
        .filter(|op| *op != "const" && !met.contains(*op))
        .collect();
    assert!(missing.is_empty(), "no golden file has {missing:?}");
}

/// Every folder is read by a test here.
#[test]
fn every_folder_has_a_test() {
    let this = include_str!("golden.rs");
    for folder in golden::folders() {
        assert!(this.contains(&format!("each(\"{folder}\"")), "{folder}");
    }
}
