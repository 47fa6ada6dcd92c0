//! What the machine can do, measured: the yardstick beside which a workload's speed stands.

use std::fs;
use std::process::Command;

use uopc::backend::c::toolchain::Compiler;
use uopc::debug::{Settings, search_path};

use crate::failure::{Failure, Result};

const PROGRAM: &str = include_str!("../../assets/peak.c");

/// What can't be exceeded, by that many threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// 10^9 float operations a second, of which a multiply-add is two.
    pub gflops: f64,
    /// 10^9 bytes a second that a copy reads and writes.
    pub gb_s: f64,
}

impl Peak {
    /// Compiles a small C program and runs it, which takes about half a second.
    ///
    /// # Errors
    /// When there is no C compiler, or the program does not build or run.
    pub fn measure(settings: &Settings, threads: usize) -> Result<Peak> {
        let compiler = Compiler::find(settings.cc.as_deref(), &search_path());
        let compiler = compiler.map_err(Failure::failed)?;
        let folder = tempfile::tempdir();
        let folder = folder.map_err(|e| Failure::failed(format!("a temporary folder: {e}")))?;
        let (source, program) = (folder.path().join("peak.c"), folder.path().join("peak"));
        fs::write(&source, PROGRAM).map_err(|e| Failure::file(&source, "can't be written", &e))?;
        let mut build = Command::new(compiler.program());
        build.args(["-O3", "-march=native", "-pthread", "-o"]);
        let built = build.arg(&program).arg(&source).output();
        let built = built.map_err(|e| Failure::failed(e.to_string()))?;
        if !built.status.success() {
            let text = String::from_utf8_lossy(&built.stderr);
            let text = text.lines().next().unwrap_or("no message");
            return Err(Failure::failed(format!("it does not compile: {text}")));
        }
        let output = Command::new(&program).arg(threads.to_string()).output();
        let output = output.map_err(|e| Failure::failed(e.to_string()))?;
        parse(&String::from_utf8_lossy(&output.stdout))
            .filter(|_| output.status.success())
            .ok_or_else(|| Failure::failed(format!("it ended with {}", output.status)))
    }
}

fn parse(text: &str) -> Option<Peak> {
    let numbers: Vec<f64> = text
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    match numbers[..] {
        [gflops, gb_s] if gflops > 0.0 && gb_s > 0.0 => Some(Peak { gflops, gb_s }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_numbers_are_needed() {
        let peak = Peak {
            gflops: 117.5,
            gb_s: 19.25,
        };
        assert_eq!(parse("117.500 19.250\n"), Some(peak));
        assert_eq!(parse("117.500\n"), None);
        assert_eq!(parse("0.000 19.250\n"), None);
    }
}
