//! Runs the program, each time with an environment of its own and a kernel cache that tests share
//! with nobody else.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// How a run of the program ended.
#[derive(Debug)]
pub struct Finished {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Standard output of a run that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!((self.code, &self.stderr[..]), (0, ""), "{}", self.stdout);
        self.stdout
    }
}

impl From<io::Result<Output>> for Finished {
    fn from(output: io::Result<Output>) -> Finished {
        let output = output.unwrap();
        Finished {
            code: output.status.code().expect("no signal ended it"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The program with these arguments, without any variable of the tests' own environment that it
/// would look at.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uopc"));
    command.args(args).current_dir(env!("CARGO_TARGET_TMPDIR"));
    for variable in uopc::debug::VARIABLES {
        if variable.name.starts_with("UOPC_") || variable.name == "CC" {
            command.env_remove(variable.name);
        }
    }
    command.env(
        "UOPC_CACHE_DIR",
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels"),
    );
    command
}

/// Runs the program.
pub fn uopc(args: &[&str]) -> Finished {
    command(args).output().into()
}

/// Runs the program with that text on standard input.
pub fn uopc_with_input(args: &[&str], input: &str) -> Finished {
    let mut command = command(args);
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // A program that fails early reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().into()
}

/// A file that is removed with its value; used like the text of its path.
pub struct File {
    _folder: tempfile::TempDir,
    path: String,
}

impl std::ops::Deref for File {
    type Target = str;

    fn deref(&self) -> &str {
        &self.path
    }
}

impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.path)
    }
}

/// A file with these contents.
pub fn file(name: &str, contents: impl AsRef<[u8]>) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, contents).unwrap();
    let path = path.to_str().unwrap().to_string();
    File {
        _folder: folder,
        path,
    }
}
