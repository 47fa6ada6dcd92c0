//! Named tensors in the safetensors format: a JSON header with names, dtypes, shapes and offsets,
//! then the elements.
//!
//! A file is read as far as it really goes and everything its header claims is checked against
//! that, so a header that lies leads to an error and to no allocation. Writing goes to a file
//! beside the target, which takes its place when complete.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, View};

use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Tensor};

/// Written into each file, so that later versions know what they read.
const VERSION: (&str, &str) = ("uopc", "1");

/// The header's entry for what is no tensor.
const RESERVED: &str = "__metadata__";

/// Writes named tensors, computed as one plan if need be. An existing file is replaced.
///
/// # Errors
/// When two tensors have one name or one is called `__metadata__`, when a tensor can't be computed, or the file can't be written.
pub fn save(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    let path = path.as_ref();
    let mut names: Vec<&String> = tensors.iter().map(|(name, _)| name).collect();
    names.sort();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(refuse(path, format!("two tensors are called {}", pair[0])));
    }
    if names.iter().any(|name| *name == RESERVED) {
        let message = format!("no tensor can be called {RESERVED}, which the format needs itself");
        return Err(refuse(path, message));
    }
    let all: Vec<&Tensor> = tensors.iter().map(|(_, t)| t).collect();
    Tensor::realize_all(&all)?;
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, t) in tensors {
        let (dtype, shape) = (file_dtype(t.dtype()), t.shape().to_vec());
        entries.push((
            name,
            Entry {
                dtype,
                shape,
                bytes: little_endian(t.to_bytes()?, t.dtype()),
            },
        ));
    }
    let version = HashMap::from([(VERSION.0.to_string(), VERSION.1.to_string())]);
    let bytes = safetensors::serialize(entries, Some(version))
        .map_err(|e| refuse(path, format!("can't be written: {e}")))?;
    write_whole(path, &bytes)
}

/// Writes a file so that it is either there completely or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let failed = |what: &str, e: std::io::Error| refuse(path, format!("{what}: {e}"));
    let mut builder = tempfile::Builder::new();
    // Unlike scratch files, what is saved may be read by whoever the umask allows.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let mut file = builder
        .tempfile_in(folder)
        .map_err(|e| failed("can't be created", e))?;
    file.write_all(bytes)
        .map_err(|e| failed("can't be written", e))?;
    file.as_file()
        .sync_all()
        .map_err(|e| failed("can't be written", e))?;
    file.persist(path)
        .map_err(|e| failed("can't be replaced", e.error))?;
    Ok(())
}

/// Reads all tensors of a file, by name.
///
/// # Errors
/// When the file can't be read, is truncated or is no safetensors file, and when a tensor has a
/// dtype that uopc lacks.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(|e| refuse(path, format!("can't be read: {e}")))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| refuse(path, explain(&e, bytes.len())))?;
    let mut views = file.tensors();
    views.sort_by(|a, b| a.0.cmp(&b.0));
    let mut tensors = Vec::with_capacity(views.len());
    for (name, view) in views {
        let Some(dtype) = our_dtype(view.dtype()) else {
            let dtype = view.dtype();
            return Err(refuse(
                path,
                format!("{name} has dtype {dtype}, which uopc does not have"),
            ));
        };
        let bytes = little_endian(view.data().to_vec(), dtype);
        let tensor = Tensor::from_bytes(&bytes, dtype, view.shape())
            .map_err(|e| refuse(path, format!("{name}: {e}")))?;
        tensors.push((name, tensor));
    }
    Ok(tensors)
}

/// Gives tensors the values that a file has for their names. Names, shapes and dtypes must agree
/// exactly; otherwise no tensor changes.
///
/// # Errors
/// Those of [`load`], and when a name is missing or unknown, or a shape or dtype differs.
pub fn load_into(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    let path = path.as_ref();
    let found = load(path)?;
    let mut updates = Vec::with_capacity(tensors.len());
    for (name, target) in tensors {
        let Some((_, value)) = found.iter().find(|(n, _)| n == name) else {
            let has: Vec<&str> = found.iter().map(|(n, _)| n.as_str()).collect();
            let has = has.join(", ");
            return Err(refuse(path, format!("has no tensor {name}; it has {has}")));
        };
        let described = |t: &Tensor| (t.dtype(), t.shape().clone());
        let ((is, shape_is), (wants, shape_wants)) = (described(value), described(target));
        if is != wants || shape_is != shape_wants {
            let text = |dtype: DType, shape: &Shape| format!("{dtype} of shape {shape}");
            let (is, wants) = (text(is, &shape_is), text(wants, &shape_wants));
            return Err(refuse(
                path,
                format!("{name} is {is}, but {wants} is wanted"),
            ));
        }
        updates.push((target, value));
    }
    if let Some((extra, _)) = found
        .iter()
        .find(|(n, _)| !tensors.iter().any(|(m, _)| n == m))
    {
        return Err(refuse(
            path,
            format!("has a tensor {extra}, which nothing here is called"),
        ));
    }
    Tensor::assign_all(&updates, &[] as &[Tensor])
}

struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for Entry {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// The format's byte order from the machine's, or back.
fn little_endian(mut bytes: Vec<u8>, dtype: DType) -> Vec<u8> {
    if cfg!(target_endian = "big") {
        bytes
            .chunks_exact_mut(dtype.size())
            .for_each(<[u8]>::reverse);
    }
    bytes
}

fn file_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::Bool => Dtype::BOOL,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
    }
}

fn our_dtype(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|d| file_dtype(*d) == dtype)
}

/// What is wrong with a file, in terms of the file.
fn explain(error: &SafeTensorError, n: usize) -> String {
    use SafeTensorError::*;
    match error {
        HeaderTooSmall | InvalidHeaderLength => {
            format!("{n} bytes are fewer than the header needs: truncated, or no safetensors file")
        }
        HeaderTooLarge => {
            "its first 8 bytes claim a header above 100 MB: no safetensors file".into()
        }
        InvalidHeader(_) | InvalidHeaderDeserialization(_) | JsonError(_) => {
            format!("no safetensors file, or a damaged one: {error}")
        }
        MetadataIncompleteBuffer => {
            format!("the tensors in its header do not fill its {n} bytes: truncated, or damaged")
        }
        _ => format!("damaged: {error}"),
    }
}

fn refuse(path: &Path, message: String) -> Error {
    Error::File {
        path: path.to_path_buf(),
        message,
    }
}
