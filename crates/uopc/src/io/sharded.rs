//! Many tensors in several safetensors files: a folder with `model-00001-of-00003.safetensors` and
//! so on, and an index, `model.safetensors.index.json`, that says in which file each tensor is.
//!
//! The index is read, and a file when one of its tensors is asked for. The index may name files of
//! its own folder alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::file::{self, expect_distinct, realize, refuse};
use super::safetensors::{self, Archive};
use crate::error::Result;
use crate::tensor::{DType, Shape, Tensor};

/// The name of the index.
pub const INDEX: &str = "model.safetensors.index.json";

/// How large a file becomes at most, unless one tensor alone is larger.
pub const SHARD: u64 = 5_000_000_000;

/// Writes named tensors into a folder, which must be new or empty: files of at most `most` bytes of
/// elements each, filled in the order of the list, and the index. The folder is there when all of
/// it is written.
///
/// # Errors
/// When the folder holds something, two tensors have one name, a tensor can't be computed, or a
/// file can't be written.
pub fn save(
    folder: impl AsRef<Path>,
    tensors: &[(String, Tensor)],
    most: u64,
    metadata: &[(String, String)],
) -> Result<()> {
    let folder = folder.as_ref();
    expect_distinct(folder, tensors)?;
    let failed = |what: &str, e: std::io::Error| refuse(folder, format!("{what}: {e}"));
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                let message = "the folder is not empty, and nothing in it is ever overwritten; \
                    choose another";
                return Err(refuse(folder, message));
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed("can't be read", e)),
    }
    realize(tensors)?;
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    // Unlike scratch folders, what is saved may be read by whoever the umask allows.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o777));
    }
    let part = builder
        .tempdir_in(parent)
        .map_err(|e| failed("can't be created", e))?;
    let size = |t: &Tensor| (t.numel() * t.dtype().size()) as u64;
    let shards = shards(tensors, most, size);
    let mut places = serde_json::Map::new();
    for (k, shard) in shards.iter().enumerate() {
        let file = format!("model-{:05}-of-{:05}.safetensors", k + 1, shards.len());
        safetensors::save_with(part.path().join(&file), shard, metadata)?;
        for (name, _) in *shard {
            places.insert(name.clone(), file.clone().into());
        }
    }
    let total: u64 = tensors.iter().map(|(_, t)| size(t)).sum();
    let mut notes = serde_json::Map::from_iter([("total_size".to_string(), json!(total))]);
    notes.extend(metadata.iter().map(|(k, v)| (k.clone(), json!(v))));
    let index = json!({"metadata": notes, "weight_map": places});
    let text = format!("{index:#}\n");
    file::replace(&part.path().join(INDEX), |out| {
        std::io::Write::write_all(out, text.as_bytes())
    })?;
    // From here on the folder is the user's.
    let part = part.keep();
    fs::rename(&part, folder).map_err(|e| {
        // What can't be moved is not left behind under a name that nobody knows.
        let _ = fs::remove_dir_all(&part);
        failed("can't be replaced", e)
    })
}

/// Runs of tensors with at most so many bytes each, at least one run.
fn shards(
    tensors: &[(String, Tensor)],
    most: u64,
    size: impl Fn(&Tensor) -> u64,
) -> Vec<&[(String, Tensor)]> {
    let mut shards = Vec::new();
    let (mut first, mut filled) = (0, 0u64);
    for (k, (_, t)) in tensors.iter().enumerate() {
        if k > first && filled.saturating_add(size(t)) > most {
            shards.push(&tensors[first..k]);
            (first, filled) = (k, 0);
        }
        filled = filled.saturating_add(size(t));
    }
    shards.push(&tensors[first..]);
    shards
}

/// Opens a folder with an index, or the index itself, `NAME.index.json`.
///
/// ```
/// use uopc::{Tensor, io::sharded};
///
/// let folder = tempfile::tempdir().expect("a folder can be made");
/// let path = folder.path().join("model");
/// let named = |name: &str, x: f32| (name.to_string(), Tensor::from([x]));
/// sharded::save(&path, &[named("a", 1.0), named("b", 2.0)], 4, &[])?;
/// assert!(path.join("model-00002-of-00002.safetensors").exists());
/// assert_eq!(sharded::open(&path)?.tensor("b")?.to_vec::<f32>()?, [2.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When there is no index, it can't be read or is none, or it names a file outside of its folder.
pub fn open(path: impl AsRef<Path>) -> Result<Sharded> {
    let path = path.as_ref();
    let index = match path.is_dir() {
        true => path.join(INDEX),
        false => path.to_path_buf(),
    };
    let text = file::read(&index)?;
    let wrong = |message: String| refuse(&index, message);
    let value: Value =
        serde_json::from_slice(&text).map_err(|e| wrong(format!("is no JSON: {e}")))?;
    let Some(places) = value["weight_map"].as_object() else {
        return Err(wrong(
            "`weight_map` is missing, or no object with a file for each tensor".into(),
        ));
    };
    let mut files = BTreeMap::new();
    for (name, file) in places {
        let Some(file) = file.as_str() else {
            return Err(wrong(format!("`weight_map`: {name} has no file's name")));
        };
        let outside =
            file.is_empty() || file == "." || file == ".." || file.contains(['/', '\\', ':', '\0']);
        if outside {
            return Err(wrong(format!(
                "`weight_map`: {name} is in {file:?}, which is no file of the same folder"
            )));
        }
        files.insert(name.clone(), file.to_string());
    }
    let mut notes = BTreeMap::new();
    if let Some(object) = value["metadata"].as_object() {
        for (key, value) in object {
            let text = value.as_str().map(str::to_string);
            notes.insert(key.clone(), text.unwrap_or_else(|| value.to_string()));
        }
    }
    let folder = index.parent().unwrap_or(Path::new("")).to_path_buf();
    Ok(Sharded {
        index,
        folder,
        files,
        metadata: notes,
        open: Mutex::new(BTreeMap::new()),
    })
}

/// An index that was read, and the files that were opened so far. See [`Archive`] for what that
/// means.
#[derive(Debug)]
pub struct Sharded {
    index: PathBuf,
    folder: PathBuf,
    /// The file of each tensor.
    files: BTreeMap<String, String>,
    metadata: BTreeMap<String, String>,
    open: Mutex<BTreeMap<String, Arc<Archive>>>,
}

impl Sharded {
    /// The names of all tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    /// The texts beside the tensors, from the index; other values of JSON as their text.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        self.metadata.clone()
    }

    /// The dtype and the shape of a tensor.
    ///
    /// # Errors
    /// When there is none of that name, or its file can't be opened or does not have it.
    pub fn info(&self, name: &str) -> Result<(DType, Shape)> {
        self.archive(name)?.info(name)
    }

    /// A tensor.
    ///
    /// # Errors
    /// Those of [`info`](Self::info), and those of [`Archive::tensor`].
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.archive(name)?.tensor(name)
    }

    /// All tensors by name.
    ///
    /// # Errors
    /// Those of [`tensor`](Self::tensor).
    pub fn tensors(&self) -> Result<Vec<(String, Tensor)>> {
        let named = |name: String| {
            let tensor = self.tensor(&name)?;
            Ok((name, tensor))
        };
        self.names().into_iter().map(named).collect()
    }

    /// The file that has a tensor, opened.
    fn archive(&self, name: &str) -> Result<Arc<Archive>> {
        let Some(file) = self.files.get(name) else {
            let names = self.names().join(", ");
            let message = format!("has no tensor {name}; it has {names}");
            return Err(refuse(&self.index, message));
        };
        let mut open = self.open.lock();
        if let Some(archive) = open.get(file) {
            return Ok(archive.clone());
        }
        let archive = Arc::new(safetensors::open(self.folder.join(file))?);
        open.insert(file.clone(), archive.clone());
        Ok(archive)
    }
}
