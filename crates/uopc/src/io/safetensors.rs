//! Named tensors in the safetensors format: a JSON header with names, dtypes, shapes and offsets,
//! then the elements.
//!
//! A file is read as far as it really goes and everything its header claims is checked against
//! that, so a header that lies leads to an error and to no allocation. [`open`] reads the header
//! alone, and makes a tensor when it is asked for, over the file's own memory where the elements
//! are aligned. Writing goes to a file beside the target, which takes its place when complete.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors};
use serde_json::json;

use super::file::{self, expect_distinct, little_endian, realize, refuse, replace, words};
use super::mapped::Mapped;
use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Storage, Tensor};

/// Written into each file, so that later versions know what they read.
const VERSION: (&str, &str) = ("uopc", "1");

/// The header's entry for what is no tensor.
const RESERVED: &str = "__metadata__";

/// Bytes before the header, which say how long it is.
const LENGTH: usize = 8;

/// Writes named tensors, computed as one plan if need be. An existing file is replaced.
///
/// # Errors
/// When two tensors have one name or one is called `__metadata__`, when a tensor can't be computed, or the file can't be written.
pub fn save(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    save_with(path, tensors, &[])
}

/// [`save`] with texts beside the tensors, a name each.
///
/// ```
/// use uopc::{Tensor, io::safetensors};
///
/// let folder = tempfile::tempdir().expect("a folder can be made");
/// let path = folder.path().join("a.safetensors");
/// let note = [("made by".to_string(), "hand".to_string())];
/// safetensors::save_with(&path, &[("a".to_string(), Tensor::from([1.5f32]))], &note)?;
/// let file = safetensors::open(&path)?;
/// assert_eq!(file.metadata()["made by"], "hand");
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// Those of [`save`].
pub fn save_with(
    path: impl AsRef<Path>,
    tensors: &[(String, Tensor)],
    metadata: &[(String, String)],
) -> Result<()> {
    let path = path.as_ref();
    expect_distinct(path, tensors)?;
    if tensors.iter().any(|(name, _)| *name == RESERVED) {
        let message = format!("no tensor can be called {RESERVED}, which the format needs itself");
        return Err(refuse(path, message));
    }
    realize(tensors)?;
    let mut sorted: Vec<&(String, Tensor)> = tensors.iter().collect();
    // The format's own library writes in this order, which aligns all elements.
    let rank = |t: &Tensor| Reverse(file_dtype(t.dtype()));
    sorted.sort_by(|(a, t), (b, u)| (rank(t), a).cmp(&(rank(u), b)));
    let memory = sorted.iter().map(|(_, t)| t.memory());
    let memory = memory.collect::<Result<Vec<Arc<Storage>>>>()?;
    let header = header(&sorted, metadata);
    replace(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(header.as_bytes())?;
        for ((_, t), storage) in sorted.iter().zip(&memory) {
            out.write_all(&little_endian(storage, t.dtype()))?;
        }
        Ok(())
    })
}

/// The header of tensors that lie in this order.
fn header(sorted: &[&(String, Tensor)], metadata: &[(String, String)]) -> String {
    let (key, value) = VERSION;
    let mut notes = BTreeMap::from([(key, value)]);
    notes.extend(metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    let mut entries = vec![format!("\"{RESERVED}\":{}", json!(notes))];
    let mut offset = 0;
    for (name, t) in sorted {
        let end = offset + t.numel() * t.dtype().size();
        let (name, shape) = (json!(name), json!(t.shape().to_vec()));
        let dtype = file_dtype(t.dtype());
        entries.push(format!(
            "{name}:{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{offset},{end}]}}"
        ));
        offset = end;
    }
    let mut header = format!("{{{}}}", entries.join(","));
    // Elements begin at a multiple of 8.
    let rest = header.len().next_multiple_of(LENGTH) - header.len();
    header.extend(std::iter::repeat_n(' ', rest));
    header
}

/// Reads all tensors of a file, by name.
///
/// # Errors
/// When the file can't be read, is truncated or is no safetensors file, and when a tensor has a
/// dtype that uopc lacks.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let path = path.as_ref();
    let bytes = file::read(path)?;
    let archive = Archive::new(path, Source::Read(bytes))?;
    let names = archive.names();
    let tensors = names.iter().map(|name| archive.tensor(name));
    let tensors = tensors.collect::<Result<Vec<Tensor>>>()?;
    Ok(names.into_iter().zip(tensors).collect())
}

/// Opens a file whose tensors are made when they are asked for; see [`Archive`].
///
/// # Errors
/// When the file can't be read, is truncated or is no safetensors file.
pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
    let path = path.as_ref();
    Archive::new(path, Source::Mapped(Mapped::open(path)?))
}

/// A file of which the header was read. Its tensors read the file where it lies, when they are
/// computed with: a model that is larger than the memory can be opened, and tensors that nobody
/// asks for cost nothing.
///
/// The file must keep its content as long as the archive or one of its tensors lives. Replacing it
/// as a whole, as [`save`] does, is fine; a file that is cut short or written in place can end the
/// process. [`load`] copies everything instead.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    source: Source,
    header: Metadata,
    /// Where the elements begin.
    start: usize,
}

/// The bytes of a file.
#[derive(Debug)]
enum Source {
    Read(Vec<u8>),
    Mapped(Mapped),
}

impl Source {
    fn bytes(&self) -> &[u8] {
        match self {
            Source::Read(bytes) => bytes,
            Source::Mapped(mapped) => mapped.bytes(),
        }
    }
}

impl Archive {
    fn new(path: &Path, source: Source) -> Result<Archive> {
        let bytes = source.bytes();
        let (length, header) = SafeTensors::read_metadata(bytes)
            .map_err(|e| refuse(path, explain(&e, bytes.len())))?;
        Ok(Archive {
            path: path.to_path_buf(),
            source,
            header,
            start: LENGTH + length,
        })
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.header.offset_keys();
        names.sort();
        names
    }

    /// The texts beside the tensors.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let empty = HashMap::new();
        let texts = self.header.metadata().as_ref().unwrap_or(&empty);
        // A sorted map: the order of the other one is not the same in each process.
        texts.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// The dtype and the shape of a tensor, of which nothing is read.
    ///
    /// # Errors
    /// When there is none of that name, or its dtype is none that uopc has.
    pub fn info(&self, name: &str) -> Result<(DType, Shape)> {
        let Some(info) = self.header.info(name) else {
            let names = self.names().join(", ");
            return Err(self.refuse(format!("has no tensor {name}; it has {names}")));
        };
        let Some(dtype) = our_dtype(info.dtype) else {
            let dtype = info.dtype;
            let message = format!("{name} has dtype {dtype}, which uopc does not have");
            return Err(self.refuse(message));
        };
        Ok((dtype, Shape::new(&info.shape)))
    }

    /// A tensor of the file.
    ///
    /// # Errors
    /// Those of [`info`](Self::info), when a byte of a bool is neither 0 nor 1, and when memory
    /// runs out.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let (dtype, shape) = self.info(name)?;
        let (first, end) = match self.header.info(name) {
            Some(info) => info.data_offsets,
            None => (0, 0),
        };
        let range = self.start + first..self.start + end;
        let part = &self.source.bytes()[range.clone()];
        let failed = |e| self.refuse(format!("{name}: {}", words(e)));
        let aligned = part.as_ptr().addr().is_multiple_of(dtype.size());
        match &self.source {
            Source::Mapped(mapped) if aligned && cfg!(target_endian = "little") => {
                Tensor::from_storage(mapped.storage(range), dtype, &shape[..]).map_err(failed)
            }
            _ => {
                let bytes = file::ordered(part, dtype, cfg!(target_endian = "big"));
                Tensor::from_bytes(&bytes, dtype, &shape[..]).map_err(failed)
            }
        }
    }

    fn refuse(&self, message: String) -> Error {
        refuse(&self.path, message)
    }
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
