//! The C spelling of every scalar op gives the bits that `ir/scalar.rs` gives.
//!
//! All ops at all dtypes are written into one C file, one function each, that runs over arrays.
//! Arguments are every pair of special values, every value of the small dtypes and many random
//! ones. Without a C compiler there is nothing to compare, and a line says so.

#[path = "support/c_ops.rs"]
mod c_ops;

use std::collections::BTreeSet;

use c_ops::{Case, arguments, cases, compile, random, run, special};
use rand::SeedableRng;
use rand::rngs::StdRng;
use uopc::backend::c::prelude::source;
use uopc::backend::c::scalar::{c_type, call, literal};
use uopc::ir::dtype::DType;
use uopc::ir::op::{Class, OPS, Op};
use uopc::ir::scalar::{Scalar, apply};

#[test]
fn every_elementwise_op_is_compared() {
    let covered: BTreeSet<&str> = cases().iter().map(|case| case.op.mnemonic()).collect();
    let all = OPS
        .iter()
        .filter(|info| info.class == Class::Arithmetic)
        .map(|info| info.mnemonic);
    assert_eq!(covered, all.collect());
}

/// One C function for each case: `void fN(long n, const void *a, ..., void *y)`.
fn c_file(cases: &[Case]) -> String {
    let mut helpers = BTreeSet::new();
    let mut functions = String::new();
    for (i, Case { op, dtype, sources }) in cases.iter().enumerate() {
        let names = ["a[i]", "b[i]", "c[i]"];
        let (expression, needs) = call(op, *dtype, sources, &names[..sources.len()]);
        helpers.extend(needs);
        let mut parameters = String::new();
        for (t, name) in sources.iter().zip(["a", "b", "c"]) {
            parameters += &format!(", const {} *{name}", c_type(*t));
        }
        functions += &format!(
            "void f{i}(long n{parameters}, {} *y) {{\n    for (long i = 0; i < n; i++) y[i] = {expression};\n}}\n",
            c_type(*dtype)
        );
    }
    source(&helpers) + &functions
}

/// Vectorised code with the instructions of this machine, and scalar code that calls the library
/// for what a basic machine lacks, give the same bits.
#[test]
fn c_agrees_with_rust() {
    let cases = cases();
    let text = c_file(&cases);
    let (fast, plain) = std::thread::scope(|scope| {
        let fast = scope.spawn(|| compile(&text, &["-O2", "-ftree-vectorize", "-march=native"]));
        let plain = compile(&text, &["-O1"]);
        (fast.join(), plain)
    });
    let (Some((_a, fast)), Some((_b, plain))) = (fast.expect("compiles"), plain) else {
        return;
    };
    let mut rng = StdRng::seed_from_u64(7);
    for (i, case) in cases.iter().enumerate() {
        let columns = arguments(case, &mut rng);
        let results = [&fast, &plain].map(|library| run(library, &format!("f{i}"), case, &columns));
        for row in 0..columns[0].len() {
            let mut args = [Scalar::zero(DType::I32); 3];
            for (j, &t) in case.sources.iter().enumerate() {
                args[j] = Scalar::from_bits(t, columns[j][row]);
            }
            let args = &args[..case.sources.len()];
            let expected = apply(&case.op, case.dtype, args);
            assert_eq!(expected.dtype(), case.dtype);
            for (result, code) in results.iter().zip(["fast", "plain"]) {
                let found = Scalar::from_bits(case.dtype, result[row]);
                assert!(
                    Scalar::same(expected, found),
                    "{:?} at {:?}{args:?}: Rust {expected}, {code} C {found} ({:x}, {:x})",
                    case.op,
                    case.sources,
                    expected.bits(),
                    found.bits(),
                );
            }
        }
    }
}

#[test]
fn c_constants_are_the_values() {
    let mut rng = StdRng::seed_from_u64(8);
    let mut functions = String::new();
    let mut columns = Vec::new();
    for (i, t) in DType::ALL.into_iter().enumerate() {
        let mut values = special(t);
        values.extend((0..500).map(|_| random(t, &mut rng)));
        let spelled: Vec<_> = values
            .iter()
            .map(|&b| literal(Scalar::from_bits(t, b)))
            .collect();
        let c = c_type(t);
        functions += &format!(
            "void f{i}(long n, const {c} *a, {c} *y) {{
    static const {c} constants[] = {{{}}};
    for (long i = 0; i < n; i++) y[i] = a[i] == a[i] ? constants[i] : constants[i];
}}\n",
            spelled.join(", ")
        );
        columns.push(values);
    }
    let Some((_folder, library)) = compile(&functions, &["-O0"]) else {
        return;
    };
    for ((i, t), values) in DType::ALL.into_iter().enumerate().zip(columns) {
        let case = Case {
            op: Op::Cast(t),
            dtype: t,
            sources: vec![t],
        };
        let found = run(
            &library,
            &format!("f{i}"),
            &case,
            std::slice::from_ref(&values),
        );
        for (&value, found) in values.iter().zip(found) {
            let (expected, found) = (Scalar::from_bits(t, value), Scalar::from_bits(t, found));
            assert!(
                Scalar::same(expected, found),
                "{expected} became {found} in C"
            );
        }
    }
}
