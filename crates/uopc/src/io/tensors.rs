//! Files of named tensors, whatever their format.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::file::{expect_file, refuse, unreadable};
use super::{npy, npz, safetensors, sharded, zip};
use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Tensor};

/// A format of named tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One safetensors file.
    Safetensors,
    /// A folder of safetensors files with an index.
    Sharded,
    /// Arrays of NumPy in a zip file.
    Npz,
    /// One array of NumPy.
    Npy,
}

impl Format {
    /// All, in the order in which they are listed for users.
    pub const ALL: [Format; 4] = [
        Format::Safetensors,
        Format::Sharded,
        Format::Npz,
        Format::Npy,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Safetensors => "safetensors",
            Format::Sharded => "sharded",
            Format::Npz => "npz",
            Format::Npy => "npy",
        }
    }

    /// The format of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str) -> Result<Format> {
        let found = Format::ALL.into_iter().find(|f| f.name() == name);
        found.ok_or_else(|| {
            let all = Format::ALL.map(Format::name).join(", ");
            Error::Setting(format!(
                "{name:?} is no format of tensors; use one of {all}"
            ))
        })
    }

    /// The format that a file's name says: `.safetensors`, `.npz` or `.npy`; a folder, or a name
    /// that ends in a slash, is sharded.
    pub fn of_name(path: &Path) -> Option<Format> {
        if path.as_os_str().to_string_lossy().ends_with(['/', '\\']) || path.is_dir() {
            return Some(Format::Sharded);
        }
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "safetensors" => Some(Format::Safetensors),
            "npz" => Some(Format::Npz),
            "npy" => Some(Format::Npy),
            _ => None,
        }
    }

    /// The format that a file's content says; of what is none of the others, safetensors.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn of_content(path: &Path) -> Result<Format> {
        let index = path.to_string_lossy().ends_with(".index.json");
        if path.is_dir() || index {
            return Ok(Format::Sharded);
        }
        expect_file(path)?;
        let mut begin = Vec::new();
        File::open(path)
            .and_then(|file| file.take(8).read_to_end(&mut begin))
            .map_err(|e| unreadable(path, &e))?;
        if begin.starts_with(npy::MAGIC) {
            return Ok(Format::Npy);
        }
        Ok(match zip::MAGIC.iter().any(|m| begin.starts_with(m)) {
            // As the length of a safetensors header these bytes would be more than the format allows.
            true => Format::Npz,
            false => Format::Safetensors,
        })
    }
}

/// A file of named tensors that was opened: what it holds is known, and a tensor is made when it is
/// asked for. The file must keep its content as long as this or a tensor of it lives, see
/// [`safetensors::Archive`].
#[derive(Debug)]
pub enum TensorFile {
    /// One safetensors file.
    Safetensors(safetensors::Archive),
    /// A folder of safetensors files with an index.
    Sharded(sharded::Sharded),
    /// Arrays of NumPy in a zip file.
    Npz(npz::Archive),
    /// One array of NumPy, under the name of its file without `.npy`.
    Npy(String, Tensor),
}

/// Opens a file of named tensors of any format, which its content says.
///
/// # Errors
/// When the file can't be read, or is damaged.
pub fn open(path: impl AsRef<Path>) -> Result<TensorFile> {
    let path = path.as_ref();
    open_as(path, Format::of_content(path)?)
}

/// [`open`] with the format that is meant.
fn open_as(path: &Path, format: Format) -> Result<TensorFile> {
    Ok(match format {
        Format::Safetensors => TensorFile::Safetensors(safetensors::open(path)?),
        Format::Sharded => TensorFile::Sharded(sharded::open(path)?),
        Format::Npz => TensorFile::Npz(npz::open(path)?),
        Format::Npy => TensorFile::Npy(stem(path), npy::open(path)?),
    })
}

/// The name of the only array of a file.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned());
    stem.unwrap_or_else(|| "array".to_string())
}

impl TensorFile {
    /// Its format.
    pub fn format(&self) -> Format {
        match self {
            TensorFile::Safetensors(_) => Format::Safetensors,
            TensorFile::Sharded(_) => Format::Sharded,
            TensorFile::Npz(_) => Format::Npz,
            TensorFile::Npy(..) => Format::Npy,
        }
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        match self {
            TensorFile::Safetensors(file) => file.names(),
            TensorFile::Sharded(file) => file.names(),
            TensorFile::Npz(file) => file.names(),
            TensorFile::Npy(name, _) => vec![name.clone()],
        }
    }

    /// The texts beside the tensors; NumPy's formats have none.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        match self {
            TensorFile::Safetensors(file) => file.metadata(),
            TensorFile::Sharded(file) => file.metadata(),
            TensorFile::Npz(_) | TensorFile::Npy(..) => BTreeMap::new(),
        }
    }

    /// The dtype and the shape of a tensor, which is not read.
    ///
    /// # Errors
    /// When there is none of that name, or its dtype is none that uopc has.
    pub fn info(&self, name: &str) -> Result<(DType, Shape)> {
        match self {
            TensorFile::Safetensors(file) => file.info(name),
            TensorFile::Sharded(file) => file.info(name),
            TensorFile::Npz(file) => file.info(name),
            TensorFile::Npy(own, t) => {
                only(own, name)?;
                Ok((t.dtype(), t.shape().clone()))
            }
        }
    }

    /// A tensor.
    ///
    /// # Errors
    /// Those of [`info`](Self::info), when it is damaged, and when memory runs out.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        match self {
            TensorFile::Safetensors(file) => file.tensor(name),
            TensorFile::Sharded(file) => file.tensor(name),
            TensorFile::Npz(file) => file.tensor(name),
            TensorFile::Npy(own, t) => {
                only(own, name)?;
                Ok(t.clone())
            }
        }
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
}

fn only(own: &str, name: &str) -> Result<()> {
    match own == name {
        true => Ok(()),
        false => Err(refuse(
            Path::new(&format!("{own}.npy")),
            format!("has no array {name}; it has {own} alone"),
        )),
    }
}

/// Reads all tensors of a file of any format, by name, into memory of their own.
///
/// # Errors
/// When the file can't be read, or is damaged.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    match Format::of_content(path)? {
        Format::Safetensors => safetensors::load(path),
        Format::Npz => npz::load(path),
        Format::Npy => Ok(vec![(stem(path), npy::load(path)?)]),
        Format::Sharded => {
            let mut tensors = sharded::open(path)?.tensors()?;
            for (_, t) in &mut tensors {
                *t = Tensor::from_bytes(&t.to_bytes()?, t.dtype(), &t.shape()[..])?;
            }
            Ok(tensors)
        }
    }
}

/// Writes named tensors in the format that the file's name says, safetensors if it says none.
///
/// # Errors
/// Those of the format's own function, and for `.npy` when there is not exactly one tensor.
pub fn save(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    let path = path.as_ref();
    let format = Format::of_name(path).unwrap_or(Format::Safetensors);
    save_as(path, tensors, format, &[])
}

/// [`save`] in a format of choice, with texts beside the tensors.
///
/// # Errors
/// Those of [`save`], and when there are texts, and the format is one of NumPy's, which has no
/// place for them.
pub fn save_as(
    path: impl AsRef<Path>,
    tensors: &[(String, Tensor)],
    format: Format,
    metadata: &[(String, String)],
) -> Result<()> {
    let path = path.as_ref();
    if !metadata.is_empty() && matches!(format, Format::Npz | Format::Npy) {
        let message =
            "NumPy's formats have no place for metadata; use safetensors, or leave it out";
        return Err(refuse(path, message));
    }
    match format {
        Format::Safetensors => safetensors::save_with(path, tensors, metadata),
        Format::Sharded => sharded::save(path, tensors, sharded::SHARD, metadata),
        Format::Npz => npz::save(path, tensors),
        Format::Npy => match tensors {
            [(_, t)] => npy::save(path, t),
            _ => {
                let n = tensors.len();
                let message =
                    format!("an npy file holds one array, not {n}; use npz, or safetensors");
                Err(refuse(path, message))
            }
        },
    }
}
