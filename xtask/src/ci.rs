//! The steps that a change must pass, and the longer and rarer runs of the same tests.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::process::{cargo, output, run, tee};
use crate::{docs, facts, tidy, wheels};

type Step = (&'static str, fn(&mut Tally) -> Result<()>);

/// In the order in which they run: the quick ones that most often fail come first.
const STEPS: &[Step] = &[
    ("fmt", |_| run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("clippy", |_| clippy()),
    ("tests", tests),
    ("python", python),
    ("facts", |_| facts::check_names()),
    ("tidy", |_| tidy::tidy()),
    ("rustdoc", |_| rustdoc()),
    ("reference", |_| docs::check()),
    ("package", |_| package()),
];

/// How many tests have passed and failed.
#[derive(Default, Debug, PartialEq)]
struct Tally {
    passed: usize,
    failed: usize,
}

/// Runs every step, also after one has failed, and ends with a summary.
pub fn ci() -> Result<()> {
    let mut tally = Tally::default();
    let mut rows: Vec<(&str, Duration, Result<()>)> = Vec::new();
    for (name, step) in STEPS {
        println!("\n==== {name}");
        let start = Instant::now();
        let result = step(&mut tally);
        if let Err(error) = &result {
            println!("{error:#}");
        }
        let time = start.elapsed();
        println!(
            "==== {name}: {} in {:.1} s",
            verdict(&result),
            time.as_secs_f64()
        );
        rows.push((name, time, result));
    }

    println!("\n{:<10} {:>8}  result", "step", "seconds");
    for (name, time, result) in &rows {
        println!(
            "{name:<10} {:>8.1}  {}",
            time.as_secs_f64(),
            verdict(result)
        );
    }
    let failed: Vec<&str> = rows.iter().filter(|r| r.2.is_err()).map(|r| r.0).collect();
    println!("\n{} passed, {} failed", tally.passed, tally.failed);
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The long versions of the tests, which look at `UOPC_DEEP`.
pub fn deep() -> Result<()> {
    run(cargo(&["test", "--release", "--workspace"]).env("UOPC_DEEP", "1"))
}

/// Rewrites the golden files. Every change they show must be understood before it is committed.
pub fn bless() -> Result<()> {
    run(cargo(&["test", "--package", "uopc", "--test", "golden"]).env("UPDATE_GOLDEN", "1"))?;
    run(cargo(&["test", "--package", "uopc", "--test", "golden"]).env_remove("UPDATE_GOLDEN"))?;
    println!("the golden files are up to date; read every line of `git diff` before committing it");
    Ok(())
}

fn verdict(result: &Result<()>) -> &'static str {
    match result {
        Ok(()) => "pass",
        Err(_) => "FAIL",
    }
}

fn clippy() -> Result<()> {
    run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

fn tests(tally: &mut Tally) -> Result<()> {
    // All test programs run even if one fails, so that one run shows everything.
    let (text, ok) = tee(&mut cargo(&["test", "--workspace", "--no-fail-fast"]))?;
    *tally = count(&text);
    ensure!(ok, "a test failed or did not build");
    ensure!(tally.passed > 0, "no test ran");
    Ok(())
}

fn python(tally: &mut Tally) -> Result<()> {
    let (passed, failed) = wheels::test()?;
    tally.passed += passed;
    tally.failed += failed;
    Ok(())
}

/// Adds up the closing lines of the test programs: `test result: ok. 12 passed; 0 failed; ...`.
fn count(text: &str) -> Tally {
    let mut tally = Tally::default();
    for line in text.lines().filter(|line| line.starts_with("test result:")) {
        let number_before = |word: &str| -> usize {
            let words: Vec<&str> = line.split_whitespace().collect();
            let found = words
                .windows(2)
                .find(|pair| pair[1].trim_end_matches(';') == word);
            found.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
        };
        tally.passed += number_before("passed");
        tally.failed += number_before("failed");
    }
    tally
}

fn rustdoc() -> Result<()> {
    run(cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))
}

/// What someone who downloads the crate must find in it.
const PACKAGED: &[&str] = &[
    "Cargo.toml",
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "src/lib.rs",
    "data/digits.csv.gz",
    "data/README.md",
];

fn package() -> Result<()> {
    let list = output(&mut cargo(&[
        "package",
        "--package",
        "uopc",
        "--list",
        "--allow-dirty",
    ]))?;
    check_list(&list)?;
    let build = [
        "package",
        "--package",
        "uopc",
        "--no-verify",
        "--allow-dirty",
        "--quiet",
    ];
    run(&mut cargo(&build))
}

fn check_list(list: &str) -> Result<()> {
    let missing: Vec<&str> = PACKAGED
        .iter()
        .copied()
        .filter(|file| !list.lines().any(|line| line == *file))
        .collect();
    ensure!(
        missing.is_empty(),
        "the package lacks {}",
        missing.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let text = "running 2 tests\ntest a ... ok\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
            test result: FAILED. 5 passed; 3 failed; 0 ignored\n\
            7 passed; 9 failed is no closing line\n";
        assert_eq!(
            count(text),
            Tally {
                passed: 7,
                failed: 3
            }
        );
    }

    #[test]
    fn a_package_without_its_data_is_refused() {
        let complete = PACKAGED.join("\n");
        check_list(&complete).expect("nothing is missing");
        let error = check_list(&complete.replace("data/digits.csv.gz\n", ""))
            .expect_err("something is missing");
        assert_eq!(error.to_string(), "the package lacks data/digits.csv.gz");
    }
}
