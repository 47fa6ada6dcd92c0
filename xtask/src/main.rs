//! The project's checks, each one command: `cargo xtask ci` is what a change must pass.

#![warn(clippy::unwrap_used)]

use std::process::ExitCode;

use anyhow::{Result, bail};

mod ci;
mod compare;
mod docs;
mod facts;
mod perf;
mod process;
mod tidy;
mod wheels;

const USAGE: &str = "\
usage: cargo xtask <command>

  ci            everything a change must pass: fmt, clippy, tests, python, facts, tidy, docs, ...
  python        builds the Python wheels and runs the Python tests in a fresh environment
  tidy          what no compiler checks: imports, unsafe, file sizes, golden files, ...
  facts         runs the test of every fact and prints a line for each
  deep          the long versions of the tests, in release mode
  perf          depths, what a call costs, training times, and the comparison below
  perf compare  times of workloads beside those in other frameworks (--help: its options)
  docs          writes docs/reference/ops.md and env.md from their tables (--check: compares)
  bless         rewrites the golden files from what the compiler prints now
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match args {
        ["ci"] => ci::ci(),
        ["python"] => wheels::test().map(drop),
        ["tidy"] => tidy::tidy(),
        ["facts"] => facts::run(),
        ["deep"] => ci::deep(),
        ["perf"] => {
            perf::perf()?;
            compare::compare(&[])
        }
        ["perf", "compare", "--help" | "-h"] => {
            print!("{}", compare::USAGE);
            Ok(())
        }
        ["perf", "compare", options @ ..] => compare::compare(options),
        ["docs"] => docs::write(),
        ["docs", "--check"] => docs::check(),
        ["bless"] => ci::bless(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        [] => bail!("a command is missing\n\n{USAGE}"),
        other => bail!("`{}` is no command\n\n{USAGE}", other.join(" ")),
    }
}
