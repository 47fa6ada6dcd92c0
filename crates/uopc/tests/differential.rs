//! Random graphs: every engine gives the same, to the last bit.

#[path = "support/random_graph.rs"]
mod random_graph;

use std::collections::BTreeSet;

use random_graph::{Case, generate, shrink};
use uopc::ir::op::{Class, Fold, OPS, Op};
use uopc::ir::visit::Graph;
use uopc::ir::{DType, print, verify};

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
    let later = ["param", "scatter_add", "scan", "argsort", "custom"];
    for op in OPS {
        let pure = !matches!(op.class, Class::Loop | Class::Program);
        if pure && !later.contains(&op.mnemonic) {
            assert!(ops.contains(op.mnemonic), "no graph has {}", op.mnemonic);
        }
    }
    for dtype in DType::ALL {
        for op in ["buffer", "cast", "where", "reduce", "add", "mul", "index", "stack"] {
            assert!(dtypes.contains(&(op, dtype)), "no graph has {op} of {dtype}");
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
