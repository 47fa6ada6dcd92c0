//! The trace: one JSON line for each rule that fired, with the node before and after as text.
//!
//! `{"rule":"mul_one","before":"...","after":"..."}`; the texts are `.uir` of the node and of the
//! nodes near it. A file holds one rewrite: `<number>-<pass>.jsonl` in the folder of
//! `UOPC_TRACE`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::ir::UOp;

/// Where firings are written.
pub struct Trace {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Trace {
    /// A new file for a pass in this folder, which is made if it does not exist.
    ///
    /// # Errors
    /// [`Error::File`] if it can't be written.
    pub fn create(folder: &Path, pass: &str) -> Result<Trace> {
        let fail = |path: &Path, e: std::io::Error| Error::File {
            path: path.to_path_buf(),
            message: format!("the trace can't be written: {e}; set UOPC_TRACE to another folder"),
        };
        fs::create_dir_all(folder).map_err(|e| fail(folder, e))?;
        // Numbers are tried in order, so that files sort by time and none is overwritten.
        let mut number = 0u32;
        loop {
            let path = folder.join(format!("{number:04}-{pass}.jsonl"));
            match File::create_new(&path) {
                Ok(file) => {
                    let out = BufWriter::new(file);
                    return Ok(Trace { path, out });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(fail(&path, e)),
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one firing.
    ///
    /// # Errors
    /// [`Error::File`] if it can't be written.
    pub fn record(&mut self, rule: &str, before: &UOp, after: &UOp) -> Result<()> {
        let (before, after) = (json(&format!("{before:?}")), json(&format!("{after:?}")));
        let line = format!(
            "{{\"rule\":{},\"before\":{before},\"after\":{after}}}\n",
            json(rule)
        );
        let written = self.out.write_all(line.as_bytes());
        written.map_err(|e| self.failed(e))
    }

    /// Writes out what is still in memory.
    ///
    /// # Errors
    /// [`Error::File`] if it can't be written.
    pub fn finish(mut self) -> Result<()> {
        let flushed = self.out.flush();
        flushed.map_err(|e| self.failed(e))
    }

    fn failed(&self, e: std::io::Error) -> Error {
        Error::File {
            path: self.path.clone(),
            message: format!("the trace can't be written: {e}"),
        }
    }
}

/// A string in JSON.
fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
