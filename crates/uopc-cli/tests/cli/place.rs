//! A folder in which a test trains, and what it reads there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use uopc::compile::Engine;
use uopc::debug::Settings;

use crate::program::{Finished, command};

/// A folder with room for runs and a kernel cache of its own.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program, started in this folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.current_dir(self.0.path());
        command.env("UOPC_CACHE_DIR", self.path("kernels"));
        command
    }

    pub fn uopc(&self, args: &[&str]) -> Finished {
        self.command(args).output().into()
    }

    pub fn engine(&self) -> Arc<Engine> {
        let settings = Settings {
            cache_dir: Some(self.path("kernels")),
            ..Settings::default()
        };
        Arc::new(Engine::new(settings).unwrap())
    }
}

/// A run of few and large batches: a test needs no good model.
pub const BRIEF: [&str; 5] = ["train", "digits", "--batch-size", "400", "--json"];

/// One object a line.
pub fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The objects without what depends on the clock and on the cache.
pub fn bits(text: &str) -> Vec<Value> {
    let mut objects = objects(text);
    for object in &mut objects {
        let object = object.as_object_mut().unwrap();
        for key in [
            "seconds",
            "samples_per_second",
            "train_seconds",
            "compiler_calls",
        ] {
            object.remove(key);
        }
    }
    objects
}

/// The bytes of a file that must be there.
pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    fs::read(path).unwrap()
}
