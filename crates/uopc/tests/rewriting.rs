//! The rewriting engine: what it returns, where it stops, what it writes down, and that it is
//! linear and does not recurse.

use std::collections::BTreeSet;
use std::fs;
use std::slice::from_ref;

use uopc::debug::Settings;
use uopc::ir::visit::{Graph, toposort};
use uopc::ir::{DType, Op, UOp, verify};
use uopc::pass::simplify::{simplify_scalars, simplify_shapes};
use uopc::rewrite::{Limits, Rewritten, RuleSet, StopReason, require, rewrite};
use uopc::rule_table;

use uopc::rules::shape_rules;

rule_table! {
    ALTERNATING;

    /// exp2(x) => exp(x)
    Any to_exp [exp2] (u) {
        Ok(u.src()[0].exp()?)
    }

    /// exp(x) => exp2(x)
    Any to_exp2 [exp] (u) {
        Ok(u.src()[0].exp2()?)
    }
}

rule_table! {
    GROWING;

    /// sqrt(x) => trunc(sqrt(trunc(x)))
    Any grow [sqrt] (u) {
        Ok(u.src()[0].trunc()?.sqrt()?.trunc()?)
    }
}

rule_table! {
    WRONG;

    /// exp(x) => cast(x)
    Any change_dtype [exp] (u) {
        Ok(u.src()[0].cast(DType::I32)?)
    }
}

rule_table! {
    UNROLLING;

    /// exp(x) => x * x * ... 1000 times
    Any unroll [exp] (u) {
        require(u.dtype() == DType::F32)?;
        let x = &u.src()[0];
        let mut product = x.clone();
        for _ in 0..1000 {
            // Each node is one that a rule works on again.
            product = product.sqrt()?.mul(x)?;
        }
        Ok(product)
    }

    /// sqrt(x) => trunc(x)
    Any cut [sqrt] (u) {
        Ok(u.src()[0].trunc()?)
    }
}

fn x() -> UOp {
    UOp::slot(0, DType::F32, 4)
}

fn run(u: &UOp, rules: &RuleSet) -> Rewritten {
    rewrite(from_ref(u), rules, &Limits::default(), None).unwrap()
}

/// `(x * 1 + x) * 1 + x ...`, n products.
fn ones(n: usize) -> UOp {
    let one = x().full_like(1.0).unwrap();
    (0..n).fold(x(), |u, _| u.mul(&one).unwrap().add(&x()).unwrap())
}

#[test]
fn the_map_says_what_each_node_became() {
    let one = x().full_like(1.0).unwrap();
    let product = x().mul(&one).unwrap();
    let root = product.exp().unwrap();
    let done = run(&root, &shape_rules());
    let graph = Graph::new(&[root.clone()]);
    assert_eq!(done.map.len(), graph.len());
    assert_eq!(done.map[graph.position(&product).unwrap()], x());
    assert_eq!(done.map[graph.position(&root).unwrap()], x().exp().unwrap());
    assert_eq!(done.roots, [x().exp().unwrap()]);
    assert_eq!(done.fired, [("mul_one", 1)]);
    assert_eq!(done.stop, StopReason::Fixpoint);
}

#[test]
fn fuel_ends_a_rewrite_after_that_many_firings() {
    let root = ones(10);
    for fuel in 0..10 {
        let limits = Limits {
            fuel: Some(fuel),
            ..Limits::default()
        };
        let done = rewrite(&[root.clone()], &shape_rules(), &limits, None).unwrap();
        assert_eq!(done.fired.iter().map(|(_, n)| n).sum::<u64>(), fuel);
        assert_eq!(done.stop, StopReason::Fuel);
        let is_product = |u: &&UOp| matches!(u.op(), Op::Mul);
        let products = toposort(&done.roots).iter().filter(is_product).count();
        assert_eq!(products as u64, 10 - fuel);
    }
}

#[test]
fn a_rule_can_be_left_out() {
    let root = ones(3);
    let names = BTreeSet::from(["mul_one".to_string()]);
    let done = run(&root, &shape_rules().without(&names));
    assert_eq!(done.roots, [root.clone()]);
    assert_eq!(done.fired, []);

    let graph = verify::shape_graph(vec![root.clone()]).unwrap();
    let settings = Settings {
        disable: names,
        ..Settings::default()
    };
    let (kept, _) = simplify_shapes(&graph, &settings).unwrap();
    assert_eq!(kept.roots(), [root.clone()]);
    let disable = BTreeSet::from(["simplify".to_string()]);
    let settings = Settings {
        disable,
        ..Settings::default()
    };
    let (kept, map) = simplify_shapes(&graph, &settings).unwrap();
    assert_eq!(kept.roots(), [root]);
    assert_eq!(map, toposort(kept.roots()));
}

#[test]
fn rules_that_undo_each_other_are_named() {
    let rules = RuleSet::new("alternating", &[ALTERNATING]);
    let error = rewrite(&[x().exp().unwrap()], &rules, &Limits::default(), None).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("alternating: 4096 rules fired without an end; the last ones are "));
    assert!(text.contains("to_exp, to_exp2, to_exp, to_exp2"), "{text}");
    assert!(text.ends_with("leave one out with UOPC_DISABLE"), "{text}");
}

#[test]
fn a_rule_that_grows_without_end_is_named() {
    let rules = RuleSet::new("growing", &[GROWING]);
    let error = rewrite(&[x().sqrt().unwrap()], &rules, &Limits::default(), None).unwrap_err();
    assert!(
        error.to_string().contains("the last ones are grow, grow"),
        "{error}"
    );
}

#[test]
fn a_rule_that_changes_the_dtype_is_named() {
    let rules = RuleSet::new("wrong", &[WRONG]);
    let error = rewrite(&[x().exp().unwrap()], &rules, &Limits::default(), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rewrite: rule change_dtype turned exp f32(4,) into cast i32(4,)"
    );
}

#[test]
fn what_a_rule_builds_is_rewritten_too() {
    let rules = RuleSet::new("unrolling", &[UNROLLING]);
    let done = run(&x().exp().unwrap(), &rules);
    assert_eq!(done.fired, [("unroll", 1), ("cut", 1000)]);
    assert!(
        toposort(&done.roots)
            .iter()
            .all(|u| !matches!(u.op(), Op::Sqrt | Op::Exp))
    );
}

#[test]
fn a_trace_shows_each_firing_before_and_after() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("made").join("on demand");
    let settings = Settings {
        trace: Some(trace.clone()),
        ..Settings::default()
    };
    // A sum far below: the text shows what is near the product and cuts the rest off.
    let mut deep = x();
    for _ in 0..100 {
        deep = deep.exp().unwrap().add(&x()).unwrap();
    }
    let root = deep.mul(&deep.full_like(1.0).unwrap()).unwrap();
    let graph = verify::shape_graph(vec![root.clone()]).unwrap();
    simplify_shapes(&graph, &settings).unwrap();

    let files: Vec<_> = fs::read_dir(trace).unwrap().collect();
    assert_eq!(files.len(), 1);
    let path = files[0].as_ref().unwrap().path();
    assert!(path.to_str().unwrap().ends_with("-simplify.jsonl"));
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1);
    let line: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(line["rule"], "mul_one");
    let parse = |key: &str| {
        let text = line[key].as_str().unwrap();
        uopc::ir::parse::parse(text, key).unwrap().roots[0].clone()
    };
    let (before, after) = (parse("before"), parse("after"));
    assert_eq!(*before.op(), Op::Mul);
    assert_eq!(before.src()[0], after);
    assert!(toposort(&[before]).len() < 60);
    let slots = line["before"]
        .as_str()
        .unwrap()
        .matches("slot=1000")
        .count();
    assert_eq!(slots, 1);
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let settings = Settings {
        trace: Some(file.path().join("x")),
        ..Settings::default()
    };
    let error = simplify_scalars(&[x()], &settings).unwrap_err().to_string();
    assert!(error.contains("the trace can't be written: "), "{error}");
}

/// A chain of n nodes in which rules fire everywhere.
fn chain(n: usize) -> UOp {
    let one = x().full_like(1.0).unwrap();
    let two = x().full_like(2.0).unwrap();
    let mut u = x();
    for k in 0..n / 2 {
        u = if k % 2 == 0 { one.mul(&u) } else { u.mul(&two) }.unwrap();
        u = u.add(&x()).unwrap();
    }
    u
}

#[test]
fn firings_grow_with_the_nodes_and_not_faster() {
    let mut fired = Vec::new();
    for n in [100_000, 200_000] {
        let root = chain(n);
        let started = std::time::Instant::now();
        let done = run(&root, &shape_rules());
        println!("{n} nodes: {:?}", started.elapsed());
        fired.push(done.fired.iter().map(|(_, n)| n).sum::<u64>());
        assert_eq!(done.map.len(), toposort(&[root]).len());
    }
    assert_eq!(fired[1], 2 * fired[0]);
}

#[test]
fn a_long_sum_of_integers_takes_linear_time() {
    // Bounds and flat sums are found along the way and not again for each node.
    let x = UOp::slot(0, DType::I32, 4);
    let seven = UOp::full(uopc::ir::Scalar::from_i128(DType::I32, 7), x.shape()).unwrap();
    let mut u = x.floormod(&seven).unwrap();
    for _ in 0..100_000 {
        u = u.add(&x).unwrap().floormod(&seven).unwrap();
    }
    let started = std::time::Instant::now();
    let done = run(&u, &shape_rules());
    println!("{:?}", started.elapsed());
    assert_eq!(done.stop, StopReason::Fixpoint);
}
