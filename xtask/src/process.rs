//! Running cargo and the `uopc` program from the root of the checkout.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The root of the checkout.
pub fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask lies in the checkout's root")
}

/// A cargo command in the root, with the cargo that runs this program.
pub fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(args);
    command
}

/// The command as one would type it.
pub fn spell(command: &Command) -> String {
    let mut words: Vec<String> = command
        .get_envs()
        .filter_map(|(k, v)| Some(format!("{}={:?}", k.to_string_lossy(), v?)))
        .collect();
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    words.push(name.to_string_lossy().into_owned());
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command whose output the reader sees; a failure is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let text = spell(command);
    let status = command
        .status()
        .with_context(|| format!("can't start `{text}`"))?;
    ensure!(status.success(), "`{text}` failed ({status})");
    Ok(())
}

/// Runs a command and returns what it printed on standard output; standard error stays visible.
pub fn output(command: &mut Command) -> Result<String> {
    let text = spell(command);
    let out = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("can't start `{text}`"))?;
    let stdout = String::from_utf8(out.stdout).with_context(|| format!("output of `{text}`"))?;
    if !out.status.success() {
        bail!("`{text}` failed ({})\n{stdout}", out.status);
    }
    Ok(stdout)
}

/// Runs a command, passes its standard output on line by line, and returns it with whether the
/// command succeeded.
pub fn tee(command: &mut Command) -> Result<(String, bool)> {
    let text = spell(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't start `{text}`"))?;
    let stdout = child.stdout.take().expect("standard output is a pipe");
    let mut all = String::new();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.with_context(|| format!("reading from `{text}`"))?;
        let line = String::from_utf8_lossy(&line);
        // A closed terminal is no reason to stop the tests.
        let _ = writeln!(std::io::stdout(), "{line}");
        all.push_str(&line);
        all.push('\n');
    }
    let status = child
        .wait()
        .with_context(|| format!("waiting for `{text}`"))?;
    Ok((all, status.success()))
}

/// What the `uopc` program of this checkout prints.
pub fn uopc(args: &[&str]) -> Result<String> {
    let run = [
        "run",
        "--quiet",
        "--package",
        "uopc-cli",
        "--bin",
        "uopc",
        "--",
    ];
    output(&mut cargo(&[&run, args].concat()))
}

/// Where cargo puts what it builds.
pub fn target_dir() -> Result<PathBuf> {
    let text = output(&mut cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
    ]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let dir = metadata["target_directory"]
        .as_str()
        .context("cargo metadata names no target")?;
    Ok(PathBuf::from(dir))
}
