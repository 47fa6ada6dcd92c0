//! Measurements: depths of graphs, what a call costs, how long a gradient takes to build, and five
//! training runs on the digits.
//!
//! Nothing here passes or fails by its time, because one machine's seconds say little about
//! another's; the tables are for people. `cargo xtask ci` checks counts instead.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::{cargo, output, root, run, target_dir};

const SEEDS: std::ops::Range<u32> = 0..5;

/// Prints the measurements.
pub fn perf() -> Result<()> {
    let tests = [
        "test",
        "--release",
        "--package",
        "uopc",
        "--test",
        "depth",
        "--test",
        "overhead",
        "--test",
        "gradient_size",
        "--",
        "--nocapture",
        "--test-threads=1",
    ];
    run(cargo(&tests).env("UOPC_PERF", "1"))?;
    train()
}

/// Trains with each seed, each from an empty kernel cache so that compiling is part of the time.
fn train() -> Result<()> {
    run(&mut cargo(&[
        "build",
        "--release",
        "--package",
        "uopc-cli",
        "--quiet",
    ]))?;
    let target = target_dir()?;
    let program = target.join("release").join("uopc");
    let scratch = target.join("perf").join(std::process::id().to_string());

    println!("\nuopc train digits, kernel cache empty");
    println!(
        "{:>4} {:>10} {:>9} {:>15} {:>12}",
        "seed", "accuracy", "seconds", "compiler calls", "final loss"
    );
    let mut runs = Vec::new();
    for seed in SEEDS {
        let folder = scratch.join(format!("seed-{seed}"));
        let text = output(
            Command::new(&program)
                .current_dir(root())
                .args([
                    "train",
                    "digits",
                    "--json",
                    "--seed",
                    &seed.to_string(),
                    "--out",
                ])
                .arg(folder.join("run"))
                .env("UOPC_CACHE_DIR", folder.join("cache")),
        )?;
        let last = Summary::read(&text).with_context(|| format!("the run with seed {seed}"))?;
        println!(
            "{seed:>4} {:>9.2}% {:>9.2} {:>15} {:>12.6}",
            last.accuracy * 100.0,
            last.seconds,
            last.compiler_calls,
            last.loss
        );
        runs.push(last);
    }
    let mean = |f: fn(&Summary) -> f64| runs.iter().map(f).sum::<f64>() / runs.len() as f64;
    println!(
        "mean {:>9.2}% {:>9.2}",
        mean(|r| r.accuracy) * 100.0,
        mean(|r| r.seconds)
    );
    // What the runs left behind is of no further use; failing to remove it harms nobody.
    let _ = std::fs::remove_dir_all(&scratch);
    Ok(())
}

/// The last line that a training run prints with `--json`.
#[derive(Debug, PartialEq)]
struct Summary {
    accuracy: f64,
    seconds: f64,
    compiler_calls: u64,
    loss: f64,
}

impl Summary {
    fn read(text: &str) -> Result<Summary> {
        let line = text
            .lines()
            .rfind(|l| !l.trim().is_empty())
            .context("nothing was printed")?;
        let object: Value = serde_json::from_str(line).with_context(|| line.to_string())?;
        let number = |key: &str| {
            object[key]
                .as_f64()
                .with_context(|| format!("`{key}` is missing in {line}"))
        };
        Ok(Summary {
            accuracy: number("test_accuracy")?,
            seconds: number("train_seconds")?,
            compiler_calls: number("compiler_calls")? as u64,
            loss: number("final_loss")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts() {
        let text = "{\"epoch\":1,\"loss\":0.5}\n{\"test_accuracy\":0.98,\"train_seconds\":2.5,\
            \"compiler_calls\":1,\"final_loss\":0.25}\n";
        let expected = Summary {
            accuracy: 0.98,
            seconds: 2.5,
            compiler_calls: 1,
            loss: 0.25,
        };
        assert_eq!(Summary::read(text).expect("a summary"), expected);
    }

    #[test]
    fn a_run_without_a_summary_is_an_error() {
        let error =
            Summary::read("{\"epoch\":1,\"loss\":0.5}\n").expect_err("something is missing");
        assert!(
            error.to_string().contains("`test_accuracy` is missing"),
            "{error}"
        );
    }
}
