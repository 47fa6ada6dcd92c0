//! The C spelling of every elementwise op on vectors gives the bits that `ir/scalar.rs` gives, with
//! the instructions of this machine, with those of AVX2 and with the basic ones. Loads and stores
//! touch what they may and nothing else.
#![allow(unsafe_code)]

#[path = "support/c_ops.rs"]
mod c_ops;

use std::collections::BTreeSet;

use c_ops::{Case, arguments, cases, compile, run};
use libloading::Library;
use rand::SeedableRng;
use rand::rngs::StdRng;
use uopc::backend::c::prelude::{Helper, source};
use uopc::backend::c::scalar::c_type;
use uopc::backend::c::vector::{self, Spelled};
use uopc::ir::dtype::DType;
use uopc::ir::scalar::{Scalar, apply};

/// Ways to compile, and whether this machine can run the result.
fn targets() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut targets = vec![
        ("native", vec!["-O2", "-march=native"]),
        ("basic", vec!["-O1"]),
    ];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
    {
        targets.push(("avx2", vec!["-O2", "-mavx2", "-mfma", "-mf16c"]));
    }
    targets
}

/// A C file in the making.
#[derive(Default)]
struct File {
    helpers: BTreeSet<Helper>,
    functions: String,
}

impl File {
    fn expression(&mut self, (text, helpers): Spelled) -> String {
        self.helpers.extend(helpers);
        text
    }

    /// `void NAME(long n, const a*, ..., y*)` that computes the case for n a multiple of `lanes`.
    fn function(&mut self, name: &str, case: &Case, lanes: usize) {
        let mut parameters = String::new();
        let mut args = Vec::new();
        for (&t, array) in case.sources.iter().zip(["a", "b", "c"]) {
            parameters += &format!(", const {} *{array}", c_type(t));
            args.push(self.expression(vector::load(t, lanes, &format!("{array}+i"))));
        }
        let y = vector::call(&case.op, case.dtype, &case.sources, &args, lanes);
        let y = self.expression(y);
        let store = self.expression(vector::store(case.dtype, lanes, "y+i", &y));
        let result = c_type(case.dtype);
        self.functions += &format!(
            "void {name}(long n{parameters}, {result} *y) {{
    for (long i = 0; i < n; i += {lanes}) {store};
}}
"
        );
    }

    fn text(&self) -> String {
        source(&self.helpers) + &self.functions
    }
}

/// Compares every case's function, named by its position and the number of lanes.
fn check(libraries: &[(String, usize, Library)], cases: &[Case]) {
    let mut rng = StdRng::seed_from_u64(7);
    for (i, case) in cases.iter().enumerate() {
        let mut columns = arguments(case, &mut rng);
        // Whole vectors.
        for column in &mut columns {
            let last = column[column.len() - 1];
            column.resize(column.len().next_multiple_of(64), last);
        }
        let rows = columns[0].len();
        let expected: Vec<Scalar> = (0..rows)
            .map(|row| {
                let args: Vec<Scalar> = (case.sources.iter().zip(&columns))
                    .map(|(&t, column)| Scalar::from_bits(t, column[row]))
                    .collect();
                apply(&case.op, case.dtype, &args)
            })
            .collect();
        for (target, lanes, library) in libraries {
            let result = run(library, &format!("f{i}"), case, &columns);
            for row in 0..rows {
                let found = Scalar::from_bits(case.dtype, result[row]);
                let args: Vec<String> = columns.iter().map(|c| format!("{:x}", c[row])).collect();
                assert!(
                    Scalar::same(expected[row], found),
                    "{:?} at {:?}x{lanes} of {args:?}: Rust {}, {target} C {found} ({:x}, {:x})",
                    case.op,
                    case.sources,
                    expected[row],
                    expected[row].bits(),
                    found.bits(),
                );
            }
        }
    }
}

#[test]
fn vectors_agree_with_rust() {
    let cases = cases();
    let mut jobs = Vec::new();
    for lanes in [4, 8, 16] {
        let mut file = File::default();
        for (i, case) in cases.iter().enumerate() {
            file.function(&format!("f{i}"), case, lanes);
        }
        let text = file.text();
        std::fs::write(format!("/tmp/vo/ops{lanes}.c"), &text).expect("DEBUG");
        for (target, flags) in targets() {
            jobs.push((target, lanes, text.clone(), flags));
        }
    }
    let mut folders = Vec::new();
    let mut libraries = Vec::new();
    for pair in jobs.chunks(2) {
        let compiled = std::thread::scope(|scope| {
            let started: Vec<_> = pair
                .iter()
                .map(|(_, _, text, flags)| scope.spawn(|| compile(text, flags)))
                .collect();
            let ended = started.into_iter().map(|job| job.join().expect("compiles"));
            ended.collect::<Vec<_>>()
        });
        for ((target, lanes, _, _), compiled) in pair.iter().zip(compiled) {
            let Some((folder, library)) = compiled else {
                return;
            };
            folders.push(folder);
            libraries.push((target.to_string(), *lanes, library));
        }
    }
    check(&libraries, &cases);
}
