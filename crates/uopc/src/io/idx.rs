//! Arrays in the IDX format, that of MNIST: a magic number, extents, then elements, each with its
//! greatest byte first; plain or compressed by gzip.
//!
//! What a header claims is compared with what is there before anything is made of it.

use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::file::{self, bytes, can_inflate, ordered, refuse, replace, shown, size_of, words};
use crate::error::Result;
use crate::tensor::{DType, Tensor};

/// What a compressed file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// As much as is unpacked at a time.
const CHUNK: usize = 1 << 16;

/// Reads an array, unpacked if need be.
///
/// ```
/// use uopc::{Tensor, io::idx};
///
/// let folder = tempfile::tempdir().expect("a folder can be made");
/// let path = folder.path().join("labels-idx1-ubyte.gz");
/// idx::save(&path, &Tensor::from([7u8, 2, 1]))?;
/// assert_eq!(idx::load(&path)?.to_vec::<u8>()?, [7, 2, 1]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the file can't be read, is truncated, damaged or no such file, or memory runs out.
pub fn load(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let file = unpacked(path)?;
    let (dtype, shape, data) = parse(&file).map_err(|message| refuse(path, message))?;
    let data = ordered(data, dtype, cfg!(target_endian = "little"));
    Tensor::from_bytes(&data, dtype, shape).map_err(|e| refuse(path, words(e)))
}

/// An array of unsigned bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// The extents.
    pub shape: Vec<usize>,
    /// The elements in row-major order.
    pub data: Vec<u8>,
}

/// Reads an array of unsigned bytes with so many axes, as images (3) and labels (1) are.
///
/// # Errors
/// Those of [`load`], and when the file holds something else.
pub fn load_bytes(path: impl AsRef<Path>, axes: usize) -> Result<Bytes> {
    let path = path.as_ref();
    let file = unpacked(path)?;
    let wanted = [0, 0, 8, u8::try_from(axes).unwrap_or(u8::MAX)];
    if let Some(found) = file.first_chunk::<4>()
        && *found != wanted
    {
        let (found, wanted) = (u32::from_be_bytes(*found), u32::from_be_bytes(wanted));
        let message =
            format!("begins with {found:#010x}, not {wanted:#010x}: another kind of file");
        return Err(refuse(path, message));
    }
    let (_, shape, data) = parse(&file).map_err(|message| refuse(path, message))?;
    let data = data.to_vec();
    Ok(Bytes { shape, data })
}

/// Writes a tensor, computed if need be; compressed if the file's name ends in `.gz`. An existing
/// file is replaced.
///
/// # Errors
/// When the format does not have the dtype (it has u8, i8, i16, i32, f32 and f64) or an extent
/// that large, the tensor can't be computed, or the file can't be written.
pub fn save(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let path = path.as_ref();
    let dtype = tensor.dtype();
    let Some((code, _)) = DTYPES.into_iter().find(|(_, d)| *d == dtype) else {
        let message = format!("IDX has no {dtype}; cast to u8, i8, i16, i32, f32 or f64");
        return Err(refuse(path, message));
    };
    let wide = |_| refuse(path, "IDX has at most 255 axes, each below 2^32");
    let axes = u8::try_from(tensor.rank()).map_err(wide)?;
    let mut header = vec![0, 0, code, axes];
    for &extent in tensor.shape().iter() {
        header.extend(u32::try_from(extent).map_err(wide)?.to_be_bytes());
    }
    let storage = tensor.memory()?;
    let data = ordered(storage.as_bytes(), dtype, cfg!(target_endian = "little"));
    let packed = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gz"));
    replace(path, |out| {
        if !packed {
            out.write_all(&header)?;
            return out.write_all(&data);
        }
        let mut encoder = GzEncoder::new(out, Compression::default());
        encoder.write_all(&header)?;
        encoder.write_all(&data)?;
        encoder.finish().map(drop)
    })
}

/// The format's number of a dtype.
const DTYPES: [(u8, DType); 6] = [
    (0x08, DType::U8),
    (0x09, DType::I8),
    (0x0b, DType::I16),
    (0x0c, DType::I32),
    (0x0d, DType::F32),
    (0x0e, DType::F64),
];

/// The bytes of a file, unpacked if it is compressed: no more than its header claims, and one.
fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let file = file::read(path)?;
    if !file.starts_with(&GZIP) {
        return Ok(file);
    }
    let failed = |e: std::io::Error| refuse(path, format!("can't be unpacked: {e}"));
    let mut decoder = MultiGzDecoder::new(&file[..]);
    let mut content = Vec::new();
    decoder
        .by_ref()
        .take(4)
        .read_to_end(&mut content)
        .map_err(failed)?;
    let axes = content.get(3).map_or(0, |&n| n as u64);
    decoder
        .by_ref()
        .take(4 * axes)
        .read_to_end(&mut content)
        .map_err(failed)?;
    let Ok((dtype, shape, _)) = header(&content) else {
        // What is wrong with the header is said by the one who parses it.
        return Ok(content);
    };
    let claimed = size_of(dtype, &shape).filter(|&n| can_inflate(file.len() as u64, n as u64));
    let Some(claimed) = claimed else {
        let (shape, n) = (shown(&shape), file.len());
        let message = format!(
            "claims {dtype} of shape {shape}, which can't come out of {}",
            bytes(n)
        );
        return Err(refuse(path, message));
    };
    // The vector grows with what really comes out.
    content.reserve(claimed.min(CHUNK));
    decoder
        .take(claimed as u64 + 1)
        .read_to_end(&mut content)
        .map_err(failed)?;
    Ok(content)
}

/// A dtype, extents, and where the elements begin.
type Header = (DType, Vec<usize>, usize);

fn header(file: &[u8]) -> std::result::Result<Header, String> {
    let Some(&[zero, null, code, axes]) = file.first_chunk::<4>() else {
        return Err("is too short to be an IDX file".into());
    };
    let known = DTYPES.into_iter().find(|(c, _)| *c == code);
    let Some((_, dtype)) = known.filter(|_| zero == 0 && null == 0) else {
        return Err(format!(
            "begins with {:#010x}: no IDX file, which begins with two zeros and the number of a \
             dtype",
            u32::from_be_bytes([zero, null, code, axes])
        ));
    };
    let start = 4 * (axes as usize + 1);
    let Some(extents) = file.get(4..start) else {
        return Err("ends within its header".into());
    };
    let extents = extents.chunks_exact(4);
    let shape = extents
        .map(|e| u32::from_be_bytes([e[0], e[1], e[2], e[3]]) as usize)
        .collect();
    Ok((dtype, shape, start))
}

/// The array in the bytes of an unpacked file.
fn parse(file: &[u8]) -> std::result::Result<(DType, Vec<usize>, &[u8]), String> {
    let (dtype, shape, start) = header(file)?;
    let data = &file[start..];
    if size_of(dtype, &shape) != Some(data.len()) {
        let n = data.len();
        return Err(format!(
            "claims extents {shape:?} of {dtype}, but {} follow the header",
            bytes(n)
        ));
    }
    Ok((dtype, shape, data))
}
