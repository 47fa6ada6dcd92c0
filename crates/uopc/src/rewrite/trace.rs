//! The trace: one JSON line for each rule that fired, with the node before and after as text.
//!
//! `{"rule":"mul_one","before":"...","after":"..."}`; the texts are `.uir` of the node and of the
//! nodes near it, where whatever lies deeper stands as a buffer with a slot from 1000 on, the
//! same in both texts. A file holds one rewrite: `<number>-<pass>.jsonl` in the folder of
//! `UOPC_TRACE`.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::ir::UOp;
use crate::ir::uop::Sources;

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
        // Numbers ascend, so that files sort by time, and none is overwritten.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{number:04}-{pass}.jsonl"));
            match File::create_new(&path) {
                Ok(file) => {
                    let out = BufWriter::new(file);
                    return Ok(Trace { path, out });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
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
        let near = near(before, after);
        let mut cut = Vec::new();
        let before = snippet(before, &near, &mut cut);
        let after = snippet(after, &near, &mut cut);
        let (rule, before, after) = (json(rule), json(&before), json(&after));
        let line = format!("{{\"rule\":{rule},\"before\":{before},\"after\":{after}}}\n");
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

/// How many nodes two texts show, leaves not counted.
const NEAR: usize = 32;

/// The slot of the first node that is too deep to be shown.
const FIRST_CUT: u32 = 1000;

/// The nodes that are shown: the nearest ones, so that this is all of what a rule looked at.
fn near(before: &UOp, after: &UOp) -> Vec<UOp> {
    let mut near = vec![before.clone(), after.clone()];
    let mut next = 0;
    while next < near.len() && near.len() < NEAR {
        for s in near[next].src().to_vec() {
            if !s.src().is_empty() && !near.contains(&s) {
                near.push(s);
            }
        }
        next += 1;
    }
    near
}

/// The text of a node and of those near it. `cut` lists the nodes shown as buffers so far.
fn snippet(u: &UOp, near: &[UOp], cut: &mut Vec<UOp>) -> String {
    let mut made = FxHashMap::default();
    match copy(u, near, cut, &mut made) {
        Ok(()) => made[u].to_uir(),
        Err(_) => format!("{u:?}"),
    }
}

/// Makes the node on copies of its sources: of those near, what `made` holds or will hold, of
/// leaves themselves, of others a buffer.
fn copy(u: &UOp, near: &[UOp], cut: &mut Vec<UOp>, made: &mut FxHashMap<UOp, UOp>) -> Result<()> {
    let mut pending = vec![u.clone()];
    while let Some(u) = pending.last().cloned() {
        let missing = |s: &&UOp| near.contains(s) && !made.contains_key(*s);
        let before = pending.len();
        pending.extend(u.src().iter().filter(missing).cloned());
        if pending.len() > before {
            continue;
        }
        pending.pop();
        let mut src = Sources::new();
        for s in u.src() {
            src.push(match made.get(s) {
                Some(copy) => copy.clone(),
                None if s.src().is_empty() => s.clone(),
                None => stand_in(s, cut)?,
            });
        }
        let copied = u.with_src(&src)?;
        made.insert(u, copied);
    }
    Ok(())
}

fn stand_in(u: &UOp, cut: &mut Vec<UOp>) -> Result<UOp> {
    let position = cut.iter().position(|c| c == u).unwrap_or_else(|| {
        cut.push(u.clone());
        cut.len() - 1
    });
    let slot = UOp::slot(FIRST_CUT + position as u32, u.dtype(), u.shape().numel());
    slot.reshape(u.shape())
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
