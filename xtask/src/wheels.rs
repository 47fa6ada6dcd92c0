//! The Python package: builds its wheels, installs one into a fresh virtual environment and runs
//! the Python tests there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{output, root, run, target_dir, tee};

/// The folder of the binding.
const CRATE: &str = "crates/uopc-py";

/// What the tests need beside the package. PyTorch and JAX are used where they are installed.
const TOOLS: &[&str] = &[
    "maturin>=1.7,<2",
    "numpy",
    "ml_dtypes",
    "pytest",
    "hypothesis",
    "mypy",
];

/// The most bytes that a wheel may have.
const WHEEL_LIMIT: u64 = 10_000_000;

/// Prints how long importing takes, NumPy's own import apart: the median of fresh processes.
const IMPORT_TIME: &str = "\
import statistics, subprocess, sys
code = 'import numpy, time; t = time.perf_counter(); import uopc; print(time.perf_counter() - t)'
times = [float(subprocess.check_output([sys.executable, '-c', code])) for _ in range(7)]
print(f'import uopc: {1e3 * statistics.median(times):.1f} ms beyond NumPy (median of 7 processes)')
";

/// How many Python tests have passed and failed.
pub fn test() -> Result<(usize, usize)> {
    let folder = target_dir()?.join("python");
    let venv = fresh_venv(&folder)?;
    let python = venv.join("python");
    // What is installed on the machine does not matter, so nothing but the wheel is tested.
    let wheels = folder.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let old = build(&venv, &wheels, "abi3-py39")?;
    let new = build(&venv, &wheels, "abi3-py311")?;
    let has_new = output(Command::new(&python).args(["-c", HAS_BUFFERS]))?;
    let chosen = if has_new.trim() == "True" { &new } else { &old };
    install(
        &python,
        &[chosen.to_str().context("a wheel's name is text")?],
    )?;
    print!(
        "{}",
        output(Command::new(&python).args(["-c", IMPORT_TIME]))?
    );
    check_types(&python)?;
    pytest(&python)
}

/// Whether the interpreter takes wheels of the newer interface.
const HAS_BUFFERS: &str = "import sys; print(sys.version_info >= (3, 11))";

/// A virtual environment that did not exist before, with the tools; the folder of its programs.
fn fresh_venv(folder: &Path) -> Result<PathBuf> {
    let venv = folder.join("venv");
    if venv.exists() {
        fs::remove_dir_all(&venv)?;
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&venv);
    run(&mut make)
        .context("the Python package needs python3 (3.9 or later) with the module venv")?;
    let programs = venv.join(if cfg!(windows) { "Scripts" } else { "bin" });
    install(&programs.join("python"), TOOLS)?;
    Ok(programs)
}

fn install(python: &Path, packages: &[&str]) -> Result<()> {
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    run(pip.args(packages))
}

/// Builds the wheel of one interface and says how large it is.
fn build(venv: &Path, wheels: &Path, feature: &str) -> Result<PathBuf> {
    let out = wheels.join(feature);
    let mut maturin = Command::new(venv.join("maturin"));
    maturin.current_dir(root());
    maturin.args(["build", "--release", "--quiet", "--no-default-features"]);
    maturin.args(["--features", feature]);
    maturin.args(["--manifest-path", &format!("{CRATE}/Cargo.toml")]);
    maturin.arg("--interpreter").arg(venv.join("python"));
    maturin.arg("--out").arg(&out);
    run(&mut maturin)?;
    let entry = fs::read_dir(&out)?
        .next()
        .context("maturin left no wheel")??;
    let bytes = entry.metadata()?.len();
    println!(
        "{}: {:.1} MB",
        entry.file_name().to_string_lossy(),
        bytes as f64 / 1e6
    );
    ensure!(
        bytes <= WHEEL_LIMIT,
        "the wheel has {bytes} bytes, more than {WHEEL_LIMIT}"
    );
    Ok(entry.path())
}

/// The stubs agree with the package, and a program that uses all of it type-checks.
fn check_types(python: &Path) -> Result<()> {
    let folder = root().join(CRATE);
    let mut stubs = Command::new(python);
    stubs.current_dir(folder.join("tests"));
    stubs.args([
        "-m",
        "mypy.stubtest",
        "uopc",
        "--allowlist",
        "stubtest-allowed.txt",
    ]);
    run(&mut stubs)?;
    let mut mypy = Command::new(python);
    mypy.current_dir(&folder);
    run(mypy.args(["-m", "mypy", "--strict", "examples", "tests/typed.py"]))
}

/// Runs the tests from outside the checkout's package, so that the installed one is imported.
fn pytest(python: &Path) -> Result<(usize, usize)> {
    let cache = target_dir()?.join("python/kernels");
    let mut pytest = Command::new(python);
    pytest.current_dir(root().join(CRATE));
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]);
    pytest.env("UOPC_CACHE_DIR", cache);
    let (text, ok) = tee(&mut pytest)?;
    let counts = count(&text);
    ensure!(ok, "a Python test failed");
    ensure!(counts.0 > 0, "no Python test ran");
    Ok(counts)
}

/// Reads pytest's closing line: `1 failed, 310 passed, 2 skipped in 131.20s (0:02:11)`.
fn count(text: &str) -> (usize, usize) {
    let is_closing = |line: &&str| {
        let counts = line.split_once(" in ").map_or("", |(counts, _)| counts);
        let mut parts = counts.split(", ").map(|part| part.split_once(' '));
        parts.all(|part| part.is_some_and(|(n, _)| n.parse::<usize>().is_ok()))
    };
    let closing = text.lines().rev().find(is_closing);
    let words: Vec<&str> = closing.unwrap_or("").split([' ', ',']).collect();
    let before = |names: &[&str]| -> usize {
        let pairs = words.windows(2).filter(|pair| names.contains(&pair[1]));
        pairs.filter_map(|pair| pair[0].parse::<usize>().ok()).sum()
    };
    (before(&["passed"]), before(&["failed", "error", "errors"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let text = "....F\n1 failed, 310 passed, 2 skipped, 1 error in 31.20s\n";
        assert_eq!(count(text), (310, 2));
        assert_eq!(count("12 passed in 0.31s\n"), (12, 0));
        let long = "==\n2098 passed, 3 skipped in 142.68s (0:02:22)\n";
        assert_eq!(count(long), (2098, 0));
        assert_eq!(count("no tests ran\n"), (0, 0));
    }
}
