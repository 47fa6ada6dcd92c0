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
use uopc::ir::op::Op;
use uopc::ir::scalar::{Scalar, apply};

/// A way to compile.
struct Target {
    name: &'static str,
    flags: Vec<&'static str>,
}

/// A library that was compiled so.
struct Built {
    lanes: usize,
    target: &'static str,
    library: Library,
    _folder: tempfile::TempDir,
}

/// Those whose result this machine can run.
fn targets() -> Vec<Target> {
    let target = |name, flags: &[&'static str]| Target {
        name,
        flags: flags.to_vec(),
    };
    let native = target("native", &["-O2", "-march=native"]);
    let mut targets = vec![native, target("basic", &["-O1"])];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
    {
        targets.push(target("avx2", &["-O2", "-mavx2", "-mfma", "-mf16c"]));
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
fn check(libraries: &[Built], cases: &[Case]) {
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
        for Built {
            target,
            lanes,
            library,
            ..
        } in libraries
        {
            let result = run(library, &format!("f{i}"), case, &columns);
            for row in 0..rows {
                let found = Scalar::from_bits(case.dtype, result[row]);
                if Scalar::same(expected[row], found) {
                    continue;
                }
                let args: Vec<String> = columns.iter().map(|c| format!("{:x}", c[row])).collect();
                panic!(
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

/// The file compiled for each target, two at a time.
fn build(files: &[(usize, File)], targets: &[Target]) -> Option<Vec<Built>> {
    let jobs: Vec<_> = (files.iter())
        .flat_map(|(lanes, file)| {
            targets
                .iter()
                .map(move |target| (*lanes, file.text(), target))
        })
        .collect();
    let mut built = Vec::new();
    for pair in jobs.chunks(2) {
        let compiled = std::thread::scope(|scope| {
            let started: Vec<_> = pair
                .iter()
                .map(|(_, text, target)| scope.spawn(|| compile(text, &target.flags)))
                .collect();
            let ended = started.into_iter().map(|job| job.join().expect("compiles"));
            ended.collect::<Vec<_>>()
        });
        for ((lanes, _, target), compiled) in pair.iter().zip(compiled) {
            let (folder, library) = compiled?;
            let (lanes, target) = (*lanes, target.name);
            built.push(Built {
                lanes,
                target,
                library,
                _folder: folder,
            });
        }
    }
    Some(built)
}

fn files(cases: &[Case], lanes: &[usize]) -> Vec<(usize, File)> {
    let file = |&lanes: &usize| {
        let mut file = File::default();
        for (i, case) in cases.iter().enumerate() {
            file.function(&format!("f{i}"), case, lanes);
        }
        (lanes, file)
    };
    lanes.iter().map(file).collect()
}

#[test]
fn vectors_agree_with_rust() {
    let cases = cases();
    if let Some(built) = build(&files(&cases, &[4, 8, 16]), &targets()) {
        check(&built, &cases);
    }
}

/// Vectors that no machine has, and the shortest. Their code is made of that for the others.
#[test]
fn long_and_short_vectors_agree_with_rust() {
    let mut cases = cases();
    // Casts and sines in all variants are much code that differs in little.
    let mut position = 0;
    cases.retain(|case| {
        position += 1;
        !matches!(case.op, Op::Cast(_) | Op::Sin(_)) || position % 5 == 0
    });
    if let Some(built) = build(&files(&cases, &[2, 32]), &targets()[..1]) {
        check(&built, &cases);
    }
}
