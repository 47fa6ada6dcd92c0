//! The folder of a training run: where it lies, what is in it, and that it is never overwritten.
//!
//! | file | what |
//! |---|---|
//! | `run.json` | the arguments, the seed, the version and the machine |
//! | `log.jsonl` | one JSON object an epoch, last one for the whole run |
//! | `model.safetensors` | the weights |
//! | `checkpoint.safetensors` | weights, optimiser state and counters: what `--resume` goes on from |
//! | `training.svg`, `training.png` | loss and accuracy of every epoch |
//! | `lock` | empty; held by the process that trains here, so that there is one at a time |

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use crate::failure::{Failure, Result};

/// The record's file name.
pub const RECORD: &str = "run.json";
/// The log's file name.
pub const LOG: &str = "log.jsonl";
/// The file name of the weights.
pub const MODEL: &str = "model.safetensors";
/// The file name of the state that a run can go on from.
pub const CHECKPOINT: &str = "checkpoint.safetensors";

/// The name of the file whose lock a run holds.
pub const LOCK: &str = "lock";

/// The folder of a run, which no other process trains in as long as the value lives.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: Arc<Lock>,
}

/// A lock that is held. The system gives it back when the process ends, however it ends.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would not do while a child process that has just begun has the file, too.
        // If it fails, closing is what is left.
        let _ = self.0.unlock();
    }
}

impl RunFolder {
    /// A new folder `base/name-N`, with the number after the highest that is taken.
    ///
    /// # Errors
    /// When the folder can't be made.
    pub fn numbered(base: &Path, name: &str) -> Result<RunFolder> {
        fs::create_dir_all(base).map_err(|e| Failure::file(base, "can't make the folder", &e))?;
        let taken = numbered(base, name)?.into_iter().max();
        let mut n = taken.map_or(1, |(n, _)| n + 1);
        loop {
            let path = base.join(format!("{name}-{n}"));
            match fs::create_dir(&path) {
                Ok(()) => return RunFolder::locked(&path),
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
        refuse_file(path)?;
        fs::create_dir_all(path).map_err(|e| Failure::file(path, "can't make the folder", &e))?;
        // Asked twice: a folder of other things gets no lock file, and what another process has
        // put here before this one had the lock must be seen.
        if !path.join(LOCK).exists() {
            refuse_contents(path)?;
        }
        let folder = RunFolder::locked(path)?;
        refuse_contents(path)?;
        Ok(folder)
    }

    /// The folder of a run that exists.
    ///
    /// # Errors
    /// When it holds no run, and while another process trains in it.
    pub fn existing(path: &Path) -> Result<RunFolder> {
        refuse_file(path)?;
        for file in [RECORD, CHECKPOINT] {
            if !path.join(file).is_file() {
                let shown = path.display();
                return Err(Failure::failed(format!(
                    "{shown}: no run to go on with: there is no {file} in it"
                )));
            }
        }
        RunFolder::locked(path)
    }

    /// The folder with its lock.
    fn locked(path: &Path) -> Result<RunFolder> {
        let failed = |e| Failure::file(&path.join(LOCK), "can't lock", &e);
        let mut options = File::options();
        let file = options.create(true).append(true).open(path.join(LOCK));
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::failed(format!(
                    "{}: another process trains in this folder; wait for its end, or choose \
                     another folder",
                    path.display()
                )));
            }
            // Some network file systems have no locks; a run there is as good as ever.
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        Ok(RunFolder {
            path: path.to_path_buf(),
            _lock: Arc::new(Lock(file)),
        })
    }

    /// The folder `base/name-N` with the highest number among those that hold `file`: a run that
    /// ended before it saved anything is passed over.
    ///
    /// # Errors
    /// When there is none.
    pub fn newest(base: &Path, name: &str, file: &str) -> Result<PathBuf> {
        let holds = |path: &PathBuf| path.join(file).is_file();
        let numbered = numbered(base, name)?.into_iter();
        match numbered.filter(|(_, path)| holds(path)).max() {
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
        &self.path
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
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
        let (path, part) = (
            self.file(name),
            self.file(&format!("{name}.{}.part", process::id())),
        );
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

/// Every N for which `base/name-N` exists, with its path.
fn numbered(base: &Path, name: &str) -> Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(base) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::file(base, "can't read the folder", &e)),
    };
    let number = |entry: fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let n = file.strip_prefix(name)?.strip_prefix('-')?.parse().ok()?;
        Some((n, entry.path()))
    };
    Ok(entries
        .filter_map(io::Result::ok)
        .filter_map(number)
        .collect())
}

/// An error if the path is something else than a folder.
fn refuse_file(path: &Path) -> Result<()> {
    if path.exists() && !path.is_dir() {
        return Err(Failure::failed(format!(
            "{}: this is a file; a run needs a folder",
            path.display()
        )));
    }
    Ok(())
}

/// An error if the folder holds anything but a lock.
fn refuse_contents(path: &Path) -> Result<()> {
    let failed = |e| Failure::file(path, "can't read the folder", &e);
    for entry in fs::read_dir(path).map_err(failed)? {
        if entry.map_err(failed)?.file_name() == LOCK {
            continue;
        }
        let shown = path.display();
        let run = [RECORD, CHECKPOINT].iter().all(|f| path.join(f).is_file());
        return Err(Failure::failed(match run {
            true => format!(
                "{shown}: the folder is not empty, and a run is never overwritten; choose another \
                 --out, or go on with the run in it: --resume {shown}"
            ),
            false => format!(
                "{shown}: the folder is not empty, and nothing is ever overwritten; choose \
                 another --out"
            ),
        }));
    }
    Ok(())
}
