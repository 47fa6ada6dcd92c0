//! What a selection leaves out has a gradient of exactly 0, whatever it computes: named cases, each
//! of which gives NaN in other frameworks, with the right first and second derivatives.
//!
//! `fixtures/where_traps.txt` holds the cases and what the others say of them, `where_traps/` the
//! same functions and their derivatives, and `docs/safe-where.md` shows the table. Order 2 is the
//! gradient of the sum of all elements of all gradients.

mod oracle;
mod where_traps;

use std::sync::Arc;

use oracle::*;
use uopc::autodiff::gradient;
use uopc::compile::{Engine, RealizeOptions};
use uopc::debug::Settings;
use uopc::interp::Array;
use uopc::ir::{DType, Shape, UOp};
use uopc::runtime::Storage;
use where_traps::{CASES, Case, Point};

/// A line of the table.
struct Row {
    name: String,
    formula: String,
    point: String,
    /// What the others say of orders 1 and 2.
    others: Vec<String>,
}

const TABLE: &str = include_str!("fixtures/where_traps.txt");

fn rows() -> Vec<Row> {
    let parse = |line: &str| {
        let mut parts = line.split(" | ").map(str::to_string);
        let mut next = || {
            parts
                .next()
                .expect("a line has a name, a formula and a point")
        };
        let (name, formula, point) = (next(), next(), next());
        Row {
            name,
            formula,
            point,
            others: parts.collect(),
        }
    };
    TABLE.lines().skip(1).map(parse).collect()
}

/// The arguments that a point such as `[[0, 1], [2, 3]]; [4, 5]` stands for, with their shapes.
fn arguments(point: &str) -> Vec<(Vec<usize>, Vec<f64>)> {
    let argument = |text: &str| {
        let numbers: Vec<f64> = text
            .split(['[', ']', ',', ' '])
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().expect("a number"))
            .collect();
        let rows = text.matches('[').count() - 1;
        let dims = match rows {
            0 => vec![numbers.len()],
            _ => vec![rows, numbers.len() / rows],
        };
        (dims, numbers)
    };
    point.split("; ").map(argument).collect()
}

/// A case at its point: its arguments, the gradients of orders 1 and 2 as nodes, what they should be, and the
/// numbers. Slots begin at `base`.
struct Instance {
    targets: Vec<UOp>,
    orders: [Vec<UOp>; 2],
    expected: [Point; 2],
    at: Point,
}

fn instance(case: &Case, dtype: DType, base: u32) -> Instance {
    let rows = rows();
    let row = rows.iter().find(|row| row.name == case.name);
    let row = row.unwrap_or_else(|| panic!("{} is not in the table", case.name));
    let arguments = arguments(&row.point);
    let node =
        |(k, (dims, _)): (usize, &(Vec<usize>, Vec<f64>))| input_of(base + k as u32, dims, dtype);
    let targets: Vec<UOp> = arguments.iter().enumerate().map(node).collect();
    let at: Point = arguments.into_iter().map(|(_, numbers)| numbers).collect();
    let first = gradient(&sum(&(case.build)(&targets)), &targets).unwrap();
    let total = first
        .iter()
        .map(sum)
        .reduce(|a, b| &a + &b)
        .expect("an argument");
    let second = gradient(&total, &targets).unwrap();
    Instance {
        targets,
        orders: [first, second],
        expected: (case.derivatives)(&at),
        at,
    }
}

/// How far a gradient may lie from the derivative: some dozens of roundings, magnified where a row
/// has its mean subtracted.
fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-12 } else { 1e-5 }
}

/// By the interpreter.
fn check(name: &str) {
    let case = CASES.iter().find(|case| case.name == name).expect("a case");
    for dtype in [DType::F64, DType::F32] {
        let it = instance(case, dtype, 0);
        let slots: Vec<&[f64]> = it.at.iter().map(Vec::as_slice).collect();
        for (order, expected) in it.orders.iter().zip(&it.expected) {
            for (found, expected) in arrays(order, &slots).iter().zip(expected) {
                assert_close(&found.to_f64(), expected, tolerance(dtype));
                assert!(
                    found
                        .to_f64()
                        .iter()
                        .zip(expected)
                        .all(|(f, e)| *e != 0.0 || *f == 0.0)
                );
            }
        }
    }
}

#[test]
fn every_case_gives_nan_elsewhere_and_has_a_check_here() {
    let rows = rows();
    assert!(rows.len() >= 25);
    for row in &rows {
        assert!(
            row.others.iter().any(|orders| orders.contains("NaN")),
            "{} is right everywhere",
            row.name
        );
        let checks = CASES.iter().filter(|case| case.name == row.name).count();
        assert_eq!(checks, 1, "{}", row.name);
    }
    assert_eq!(rows.len(), CASES.len());
}

/// Order 3, by the interpreter: no garbage comes back.
#[test]
fn order_3_is_finite() {
    for case in CASES {
        let it = instance(case, DType::F64, 0);
        let slots: Vec<&[f64]> = it.at.iter().map(Vec::as_slice).collect();
        let total = it.orders[1].iter().map(sum).reduce(|a, b| &a + &b);
        let third = gradient(&total.expect("an argument"), &it.targets).unwrap();
        for found in arrays(&third, &slots) {
            let finite = found.to_f64().iter().all(|x| x.is_finite());
            assert!(finite, "{}: {found:?}", case.name);
        }
    }
}

#[test]
fn compiled_code_agrees_to_the_bit() {
    let engine = Engine::new(Settings::default()).unwrap();
    for dtype in [DType::F32, DType::F64] {
        // All cases in one plan, so that the C compiler is called once.
        let (mut roots, mut slots) = (Vec::new(), Point::new());
        for case in CASES {
            let it = instance(case, dtype, slots.len() as u32);
            roots.extend(it.orders.into_iter().flatten());
            slots.extend(it.at);
        }
        let bind = |(k, values): (usize, &Vec<f64>)| {
            let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
            let memory = match dtype {
                DType::F32 => Storage::from_slice(&narrow),
                _ => Storage::from_slice(values),
            };
            (k as u32, memory.unwrap())
        };
        let slot_list: Vec<_> = slots.iter().enumerate().map(bind).collect();
        let options = RealizeOptions {
            slots: &slot_list,
            ..RealizeOptions::default()
        };
        let wide = |s: &Arc<Storage>| -> Vec<f64> {
            match dtype {
                DType::F32 => s.to_vec::<f32>().into_iter().map(f64::from).collect(),
                _ => s.to_vec(),
            }
        };
        let realized = engine.realize(&roots, &options).unwrap();
        let bound: Vec<&[f64]> = slots.iter().map(Vec::as_slice).collect();
        let expected = arrays(&roots, &bound);
        for ((root, found), expected) in roots.iter().zip(&realized.outputs).zip(&expected) {
            let dims: &Shape = root.shape();
            let found = Array::from_f64(dtype, dims, &wide(found)).unwrap();
            assert_eq!(found.difference(expected), None, "{}", root.to_uir());
        }
    }
}

/// The page's table: the rows of the fixture, and what the tests above have shown of this library.
#[test]
fn the_page_shows_the_table() {
    let page = include_str!("../../../docs/safe-where.md");
    let heads: Vec<&str> = TABLE.lines().next().expect("a head").split(" | ").collect();
    let mut lines = vec![format!("| {} | uopc |", heads.join(" | "))];
    lines.extend(rows().iter().map(|row| {
        let others = row.others.join(" | ");
        // A bar inside a cell would end it.
        let formula = row.formula.replace('|', "\\|");
        format!(
            "| {} | `{formula}` | {} | {others} | ok, ok |",
            row.name, row.point
        )
    }));
    let missing: Vec<&String> = lines
        .iter()
        .filter(|line| !page.lines().any(|l| l == line.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/safe-where.md lacks:\n{missing:#?}"
    );
}
