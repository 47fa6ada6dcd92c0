//! How many instructions the compiler's passes take for a step of a language model, as valgrind's
//! callgrind counts them: less than a ceiling for each pass, and for twice the work about twice as many.
//! Counts do not depend on how busy the machine is, as times would.
//!
//! Without valgrind there is nothing to see here, which the test says.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use uopc::Tensor;
use uopc::backend::c::render::render;
use uopc::compile::lower;
use uopc::debug::Settings;
use uopc::ir::UOp;
use uopc::ir::form::Program;
use uopc::machine::Machine;
use uopc_cli::bench::models::{Gpt, NANO};

/// A function whose calls are counted, and the most millions of instructions that they may take for
/// [`NANO`] in a build for tests: two to four times what they took when this was written, so that
/// only what matters is noticed.
const PASSES: &[(&str, f64)] = &[
    ("uopc::autodiff::gradient_with", 10.0),
    ("uopc::pass::strip_detach::strip_detach", 12.0),
    ("uopc::pass::simplify::simplify_shapes", 30.0),
    ("uopc::pass::kernelize::kernelize", 130.0),
    ("uopc::pass::rangeify::rangeify", 50.0),
    ("uopc::pass::schedule::schedule_as", 250.0),
    ("uopc::pass::simplify::simplify_loops", 200.0),
    ("uopc::pass::linearize::linearize", 90.0),
    ("uopc::backend::c::render::render", 800.0),
];

/// Twice the work may take this much more: twice as much, and some room for tables that grow.
const GROWTH: f64 = 2.3;

/// The steps of the long expression, which is so long that it becomes several kernels.
const STEPS: usize = 300;

/// The passes up to C, for a machine that does not depend on this one.
fn to_c(graphs: &[Tensor]) -> usize {
    let settings = Settings {
        machine: Machine::avx512(),
        ..Settings::default()
    };
    let graphs: Vec<UOp> = graphs.iter().map(Tensor::uop).collect();
    let lowered = lower(&graphs, None, &settings).unwrap();
    // What is equal is one node, and rendered once.
    let programs: HashMap<UOp, &Program> = lowered
        .launches
        .iter()
        .map(|launch| (launch.program.sink().clone(), &launch.program))
        .collect();
    programs.values().for_each(|program| drop(render(program)));
    programs.len()
}

fn model(layers: usize) -> usize {
    let gpt = Gpt { layers, ..NANO };
    to_c(&gpt.graphs().unwrap())
}

/// Sums of a long elementwise expression, in which equal layers can't stand for each other.
fn expression(steps: usize) -> usize {
    let x = Tensor::from_slice(&[0.5f32; 4096], [64, 64]).unwrap();
    let mut y = x.clone();
    for k in 0..steps {
        y = y.mul(&x).unwrap().add(k as f64).unwrap();
    }
    to_c(&[y.sum(1).unwrap()])
}

#[test]
fn the_model_is_lowered() {
    let kernels = model(NANO.layers);
    assert!(kernels > 20, "{kernels}");
}

#[test]
fn a_model_twice_as_deep_has_hardly_more_different_kernels() {
    let (kernels, deeper) = (model(NANO.layers), model(2 * NANO.layers));
    assert!(2 * deeper < 3 * kernels, "{kernels} {deeper}");
}

#[test]
fn a_model_twice_as_deep_is_lowered() {
    model(2 * NANO.layers);
}

#[test]
fn a_long_expression_is_lowered() {
    assert!(expression(STEPS) > 0);
}

#[test]
fn a_longer_expression_is_lowered() {
    assert!(expression(2 * STEPS) > 0);
}

/// The instructions of each function of [`PASSES`] with all that it calls, while this program runs
/// that test.
fn count(test: &str, folder: &Path) -> Vec<u64> {
    let file = folder.join(test);
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--compress-strings=no",
            "--compress-pos=no",
        ])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(env::current_exe().unwrap())
        .args(["--exact", test])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{output:?}"
    );
    let calls = calls(&fs::read_to_string(file).unwrap());
    let of = |name: &str| -> u64 {
        // A name ends with a hash of the crate, or is followed by what callgrind adds to it.
        let own = |(function, _): &(&String, &u64)| {
            function.strip_prefix(name).is_some_and(|rest| {
                !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                    && !rest.starts_with("::{")
            })
        };
        calls.iter().filter(own).map(|(_, n)| n).sum()
    };
    PASSES.iter().map(|(name, _)| of(name)).collect()
}

/// Instructions by function that is called, with all that it calls, from a callgrind file: after
/// `cfn=NAME` and `calls=...` comes a line with a position and the instructions of those calls.
fn calls(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let (mut name, mut counted) = ("", false);
    for line in text.lines() {
        if let Some(called) = line.strip_prefix("cfn=") {
            name = called;
        } else if line.starts_with("calls=") {
            counted = true;
        } else if counted {
            let cost = line
                .split_whitespace()
                .nth(1)
                .and_then(|n| n.parse::<u64>().ok());
            *counts.entry(name.to_string()).or_default() += cost.unwrap_or(0);
            counted = false;
        }
    }
    counts
}

#[test]
fn passes_take_few_instructions_and_grow_with_the_graph() {
    let valgrind = Command::new("valgrind").arg("--version").output();
    if !valgrind.is_ok_and(|output| output.status.success()) {
        println!("skipped: valgrind is not there to count instructions");
        return;
    }
    if !cfg!(debug_assertions) {
        println!("skipped: optimised builds take other counts, and inline some of the functions");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let count = |test| count(test, folder.path());
    let once = count("the_model_is_lowered");
    let twice = count("a_model_twice_as_deep_is_lowered");
    let long = count("a_long_expression_is_lowered");
    let longer = count("a_longer_expression_is_lowered");
    println!(
        "millions of instructions: a model, one of twice the layers, an expression, twice as long"
    );
    let row = |k: usize| [once[k], twice[k], long[k], longer[k]].map(|n| n as f64 / 1e6);
    for (k, (name, _)) in PASSES.iter().enumerate() {
        let [once, twice, long, longer] = row(k);
        println!("{name:<45} {once:>8.1} {twice:>8.1} {long:>8.1} {longer:>8.1}");
    }
    for (k, (name, ceiling)) in PASSES.iter().enumerate() {
        let [once, twice, long, longer] = row(k);
        assert!(once > 0.0, "{name} was never called: has it another name?");
        assert!(
            once < *ceiling,
            "{name}: {once:.1} million instructions, at most {ceiling}"
        );
        assert!(
            twice < GROWTH * once,
            "{name}: {once:.1} to {twice:.1} million"
        );
        assert!(
            longer <= GROWTH * long,
            "{name}: {long:.1} to {longer:.1} million"
        );
    }
}
