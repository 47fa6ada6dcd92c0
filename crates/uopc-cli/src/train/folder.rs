//! The folder of a training run: where it lies, what is in it, and that it is never overwritten.
//!
//! | file | what |
//! |---|---|
//! | `run.json` | the arguments, the seed, the version and the machine |
//! | `log.jsonl` | one JSON object an epoch, last one for the whole run |
//! | `model.safetensors` | the weights |
//! | `checkpoint.safetensors` | weights, optimiser state and counters: what `--resume` goes on from |
//! | `training.svg`, `training.png` | loss and accuracy of every epoch |

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// The record's file name.
pub const RECORD: &str = "run.json";
/// The log's file name.
pub const LOG: &str = "log.jsonl";
/// The file name of the weights.
pub const MODEL: &str = "model.safetensors";
/// The file name of the state that a run can go on from.
pub const CHECKPOINT: &str = "checkpoint.safetensors";

/// The folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// A new folder `base/name-N`, with the number after the highest that is taken.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn numbered(base: &Path, name: &str) -> Result<RunFolder> {
        fs::create_dir_all(base).map_err(|e| Failure::file(base, "can't make the folder", &e))?;
        let mut n = highest(base, name)?.map_or(1, |(n, _)| n + 1);
        loop {
            let path = base.join(format!("{name}-{n}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(RunFolder(path)),
                // Another run was quicker.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => n += 1,
                Err(e) => return Err(Failure::file(&path, "can't make the folder", &e)),
            }
        }
    }

    /// The folder that the user names; it must be new or empty.
    ///
    /// # Errors
    /// When it holds something, or can't be made.
    pub fn named(path: &Path) -> Result<RunFolder> {
        fs::create_dir_all(path).map_err(|e| Failure::file(path, "can't make the folder", &e))?;
        let mut entries =
            fs::read_dir(path).map_err(|e| Failure::file(path, "can't read the folder", &e))?;
        if entries.next().is_some() {
            let shown = path.display();
            return Err(Failure::failed(format!(
                "{shown}: the folder is not empty, and a run is never overwritten; choose another \
                 --out, or go on with the run in it: --resume {shown}"
            )));
        }
        Ok(RunFolder(path.to_path_buf()))
    }

    /// The folder of a run that exists.
    ///
    /// # Errors
    /// When it holds no run.
    pub fn existing(path: &Path) -> Result<RunFolder> {
        for file in [RECORD, CHECKPOINT] {
            if !path.join(file).is_file() {
                let shown = path.display();
                return Err(Failure::failed(format!(
                    "{shown}: no run to go on with: there is no {file} in it"
                )));
            }
        }
        Ok(RunFolder(path.to_path_buf()))
    }

    /// The folder `base/name-N` with the highest number.
    ///
    /// # Errors
    /// When there is none.
    pub fn newest(base: &Path, name: &str) -> Result<PathBuf> {
        match highest(base, name)? {
            Some((_, path)) => Ok(path),
            None => {
                let base = base.display();
                Err(Failure::failed(format!(
                    "{base}: there is no run {name}-1 or later; name its folder"
                )))
            }
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file whole or not at all: a run that is killed leaves the old one.
    ///
    /// # Errors
    /// When it can't be written, with the file's path.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<()> {
        self.replace(name, |path| fs::write(path, contents))
    }

    /// Like [`RunFolder::write`], with whatever `write` puts into the path that it is given.
    ///
    /// # Errors
    /// When it can't be written, with the file's path.
    pub fn replace(&self, name: &str, write: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
        let (path, part) = (self.file(name), self.file(&format!("{name}.part")));
        write(&part)
            .and_then(|()| fs::rename(&part, &path))
            .map_err(|e| Failure::file(&path, "can't write", &e))
    }

    /// Adds a line to the log.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn log(&self, line: &str) -> Result<()> {
        let path = self.file(LOG);
        let mut options = fs::OpenOptions::new();
        let file = options.create(true).append(true).open(&path);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .map_err(|e| Failure::file(&path, "can't write", &e))
    }
}

/// The highest N for which `base/name-N` exists, with its path.
fn highest(base: &Path, name: &str) -> Result<Option<(u64, PathBuf)>> {
    let entries = match fs::read_dir(base) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::file(base, "can't read the folder", &e)),
    };
    let number = |entry: fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let n = file.strip_prefix(name)?.strip_prefix('-')?.parse().ok()?;
        Some((n, entry.path()))
    };
    Ok(entries.filter_map(io::Result::ok).filter_map(number).max())
}
