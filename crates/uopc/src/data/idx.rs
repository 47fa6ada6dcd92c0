//! IDX files, the format of MNIST: a magic number, extents, then bytes; plain or gzipped.
//!
//! What a header claims is compared with what is there before anything is made of it.

use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use super::Labelled;
use crate::error::{Error, Result};

/// Larger files are refused: unpacking must end some time.
const LIMIT: u64 = 1 << 31;
/// Two zeros, 8 for unsigned bytes, and the number of axes.
const IMAGES: u32 = 0x0803;
const LABELS: u32 = 0x0801;

/// An array of bytes from an IDX file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// The extents.
    pub shape: Vec<usize>,
    /// The elements in row-major order.
    pub data: Vec<u8>,
}

/// Reads a file of images and one of labels. Pixels become 0..1.
///
/// # Errors
/// When a file can't be read, is truncated or is no such file, or the two do not belong together.
pub fn load(images: impl AsRef<Path>, labels: impl AsRef<Path>) -> Result<Labelled> {
    let (images_path, labels_path) = (images.as_ref(), labels.as_ref());
    let images = read(images_path, IMAGES)?;
    let labels = read(labels_path, LABELS)?;
    if images.shape[0] != labels.shape[0] {
        let (n, m) = (images.shape[0], labels.shape[0]);
        let message = format!(
            "has {m} labels, but {} has {n} images",
            images_path.display()
        );
        return Err(refuse(labels_path, message));
    }
    Ok(Labelled {
        pixels: images.data.iter().map(|&p| p as f32 / 255.0).collect(),
        width: images.shape[1] * images.shape[2],
        labels: labels.data.iter().map(|&label| label as i32).collect(),
    })
}

fn read(path: &Path, magic: u32) -> Result<Bytes> {
    let file = fs::File::open(path).map_err(|e| refuse(path, format!("can't be read: {e}")))?;
    let mut bytes = Vec::new();
    let failed = |e: std::io::Error| refuse(path, format!("can't be read: {e}"));
    let mut limited = file.take(LIMIT);
    limited.read_to_end(&mut bytes).map_err(failed)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let mut decoder = GzDecoder::new(&bytes[..]).take(LIMIT);
        decoder.read_to_end(&mut unpacked).map_err(failed)?;
        bytes = unpacked;
    }
    if bytes.len() as u64 == LIMIT {
        return Err(refuse(path, format!("is larger than {LIMIT} bytes")));
    }
    parse(&bytes, magic).map_err(|message| refuse(path, message))
}

/// The array in the bytes of an unpacked file.
fn parse(bytes: &[u8], magic: u32) -> std::result::Result<Bytes, String> {
    let word = |k: usize| {
        let word = bytes.get(4 * k..4 * k + 4)?;
        Some(u32::from_be_bytes(word.try_into().ok()?))
    };
    let axes = (magic & 0xff) as usize;
    match word(0) {
        Some(found) if found == magic => {}
        Some(found) => {
            return Err(format!(
                "begins with {found:#010x}, not {magic:#010x}: another kind of file"
            ));
        }
        None => return Err("is too short to be an IDX file".into()),
    }
    let header = 4 * (axes + 1);
    let shape: Option<Vec<usize>> = (1..=axes).map(|k| Some(word(k)? as usize)).collect();
    let Some(shape) = shape else {
        return Err("ends within its header".into());
    };
    let claimed = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let data = &bytes[header..];
    if claimed != Some(data.len()) {
        let n = data.len();
        return Err(format!(
            "claims extents {shape:?}, but {n} bytes follow the header"
        ));
    }
    Ok(Bytes {
        shape,
        data: data.to_vec(),
    })
}

fn refuse(path: &Path, message: String) -> Error {
    Error::File {
        path: path.to_path_buf(),
        message,
    }
}
