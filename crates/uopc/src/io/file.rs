//! What all formats share: reading and replacing whole files, errors with the file's name, and the
//! order of bytes.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Storage, Tensor};

/// No array has more axes, as in NumPy.
pub const MOST_AXES: usize = 64;

/// The most that deflate makes of a byte; what claims more is no such data.
const DEFLATE_RATIO: u64 = 1032;

/// An error about a file.
pub fn refuse(path: &Path, message: impl Into<String>) -> Error {
    Error::File {
        path: path.to_path_buf(),
        message: message.into(),
    }
}

/// The content of a file. A folder, a pipe or a device is none: reading one may never end.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    expect_file(path)?;
    fs::read(path).map_err(|e| unreadable(path, &e))
}

/// An error unless the path leads to an ordinary file.
pub fn expect_file(path: &Path) -> Result<()> {
    let found = fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    match (found.is_file(), found.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(refuse(path, "is a folder, not a file")),
        _ => Err(refuse(path, "is no ordinary file")),
    }
}

pub fn unreadable(path: &Path, error: &io::Error) -> Error {
    refuse(path, format!("can't be read: {error}"))
}

/// Writes a file so that it is either there completely or not at all: into one beside it, which
/// takes its place when all of it is on the disk.
pub fn replace(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let failed = |what: &str, e: io::Error| refuse(path, format!("{what}: {e}"));
    let mut builder = tempfile::Builder::new();
    // Unlike scratch files, what is saved may be read by whoever the umask allows.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let file = builder
        .tempfile_in(folder)
        .map_err(|e| failed("can't be created", e))?;
    let mut buffered = BufWriter::with_capacity(1 << 20, file.as_file());
    write(&mut buffered)
        .and_then(|()| buffered.flush())
        .and_then(|()| file.as_file().sync_all())
        .map_err(|e| failed("can't be written", e))?;
    drop(buffered);
    file.persist(path)
        .map_err(|e| failed("can't be replaced", e.error))?;
    Ok(())
}

/// Names of tensors to be written: none twice.
pub fn expect_distinct(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    let mut names: Vec<&String> = tensors.iter().map(|(name, _)| name).collect();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(refuse(path, format!("two tensors are called {}", pair[0]))),
        None => Ok(()),
    }
}

/// Computes tensors as one plan.
pub fn realize(tensors: &[(String, Tensor)]) -> Result<()> {
    let all: Vec<&Tensor> = tensors.iter().map(|(_, t)| t).collect();
    Tensor::realize_all(&all)
}

/// The elements of computed memory, the least byte of each first.
pub fn little_endian<'a>(storage: &'a Storage, dtype: DType) -> Cow<'a, [u8]> {
    ordered(storage.as_bytes(), dtype, cfg!(target_endian = "big"))
}

/// The elements with the bytes of each turned around, if asked for.
pub fn ordered(bytes: &[u8], dtype: DType, turned: bool) -> Cow<'_, [u8]> {
    if !turned || dtype.size() == 1 {
        return Cow::Borrowed(bytes);
    }
    let mut bytes = bytes.to_vec();
    bytes
        .chunks_exact_mut(dtype.size())
        .for_each(<[u8]>::reverse);
    Cow::Owned(bytes)
}

/// How many bytes an array has, if any machine could hold it.
pub fn size_of(dtype: DType, shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    let size = shape
        .iter()
        .try_fold(dtype.size(), |n, &d| n.checked_mul(d))?;
    isize::try_from(size).ok().map(|_| size)
}

/// Whether so many bytes can come out of so many that deflate has made.
pub fn can_inflate(packed: u64, claimed: u64) -> bool {
    claimed <= packed.saturating_mul(DEFLATE_RATIO).saturating_add(64)
}

/// What is wrong with a tensor, without the place in this crate where it was made.
pub fn words(error: Error) -> String {
    match error {
        Error::Shape { message, .. } | Error::DType { message, .. } => message,
        other => other.to_string(),
    }
}

/// Extents as they are shown.
pub fn shown(shape: &[usize]) -> Shape {
    Shape::new(shape)
}

/// Bytes and their number, in words.
pub fn bytes(n: usize) -> String {
    match n {
        1 => "1 byte".to_string(),
        n => format!("{n} bytes"),
    }
}
