//! One array in NumPy's format: a header that is a dictionary of Python, then the elements.
//!
//! Versions 1, 2 and 3 of the header are read, either order of bytes, and arrays in C or Fortran
//! order. What is written is version 1, little endian, in C order, byte for byte as NumPy 2 does.
//! NumPy has no bf16: such an array is written as `<V2`, as the package `ml_dtypes` does, and that
//! is read as bf16. Arrays of Python objects, text, dates, records and complex numbers are refused.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use super::file::{
    self, MOST_AXES, bytes, little_endian, ordered, refuse, replace, shown, size_of, words,
};
use super::mapped::Mapped;
use crate::error::Result;
use crate::tensor::{DType, Shape, Tensor};

/// What every file begins with.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// A longer header describes no array that can be read here.
const LONGEST_HEADER: usize = 1 << 16;

/// Elements begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// NumPy leaves room for the first extent to grow to that many digits.
const ROOM_FOR_DIGITS: usize = 21;

/// Writes a tensor, computed if need be. An existing file is replaced.
///
/// # Errors
/// When the tensor has more than 64 axes or can't be computed, or the file can't be written.
pub fn save(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let path = path.as_ref();
    let header = header(tensor).map_err(|message| refuse(path, message))?;
    let storage = tensor.memory()?;
    replace(path, |out| {
        out.write_all(&header)?;
        out.write_all(&little_endian(&storage, tensor.dtype()))
    })
}

/// Reads an array.
///
/// ```
/// use uopc::{Tensor, io::npy};
///
/// let folder = tempfile::tempdir().expect("a folder can be made");
/// let path = folder.path().join("a.npy");
/// npy::save(&path, &Tensor::from([[1i64, 2], [3, 4]]))?;
/// assert_eq!(npy::load(&path)?.to_vec::<i64>()?, [1, 2, 3, 4]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the file can't be read, is truncated, damaged or no such file, holds elements that uopc
/// does not have, or memory runs out.
pub fn load(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let bytes = file::read(path)?;
    tensor(&bytes).map_err(|message| refuse(path, message))
}

/// An array over the file's own memory, which is read when it is computed with; a copy if its
/// elements are in another order, or not aligned.
///
/// The file must keep its content as long as the tensor lives, as for
/// [`Archive`](super::safetensors::Archive).
///
/// # Errors
/// Those of [`load`].
pub fn open(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let mapped = Mapped::open(path)?;
    mapped_tensor(&mapped, 0, mapped.bytes().len()).map_err(|message| refuse(path, message))
}

/// The array in some bytes of a file, which it fills.
pub(super) fn mapped_tensor(
    mapped: &Mapped,
    first: usize,
    end: usize,
) -> std::result::Result<Tensor, String> {
    let file = &mapped.bytes()[first..end];
    let array = whole(file)?;
    let aligned = file[array.start..]
        .as_ptr()
        .addr()
        .is_multiple_of(array.dtype.size());
    if array.turned() || array.columns_first() || !aligned {
        return copy(file, &array);
    }
    let storage = mapped.storage(first + array.start..end);
    Tensor::from_storage(storage, array.dtype, &array.shape[..]).map_err(words)
}

/// The array that some bytes are, copied.
pub(super) fn tensor(bytes: &[u8]) -> std::result::Result<Tensor, String> {
    copy(bytes, &whole(bytes)?)
}

/// The header of bytes that are a whole array.
fn whole(file: &[u8]) -> std::result::Result<Array, String> {
    let array = Array::parse(file)?;
    let (claimed, found) = (array.size, file.len() - array.start);
    if claimed != found {
        let (dtype, shape) = (array.dtype, shown(&array.shape));
        let (claimed, found) = (bytes(claimed), bytes(found));
        return Err(format!(
            "the header claims {dtype} of shape {shape}, {claimed}, but {found} follow it at offset \
             {}",
            array.start
        ));
    }
    Ok(array)
}

fn copy(file: &[u8], array: &Array) -> std::result::Result<Tensor, String> {
    let size = array.dtype.size();
    let data = ordered(&file[array.start..], array.dtype, array.turned());
    let tensor = match array.columns_first() {
        true => {
            let rows = in_rows(&data, &array.shape, size);
            Tensor::from_bytes(&rows, array.dtype, &array.shape[..])
        }
        false => Tensor::from_bytes(&data, array.dtype, &array.shape[..]),
    };
    tensor.map_err(words)
}

/// Elements in Fortran order, of which the first axis is the innermost, in the order of rows.
fn in_rows(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut steps = vec![size; shape.len()];
    for k in 1..shape.len() {
        steps[k] = steps[k - 1] * shape[k - 1];
    }
    let mut rows = Vec::with_capacity(data.len());
    let mut at = vec![0; shape.len()];
    let mut offset = 0;
    while rows.len() < data.len() {
        rows.extend_from_slice(&data[offset..offset + size]);
        // The next index in the order of rows: the last axis turns fastest.
        for k in (0..shape.len()).rev() {
            at[k] += 1;
            offset += steps[k];
            if at[k] < shape[k] {
                break;
            }
            offset -= steps[k] * shape[k];
            at[k] = 0;
        }
    }
    rows
}

/// What a header says.
#[derive(Debug, PartialEq)]
pub(super) struct Array {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    big_endian: bool,
    fortran: bool,
    /// Where the elements begin.
    start: usize,
    /// Bytes of all elements.
    size: usize,
}

impl Array {
    /// Whether the bytes of elements are in the other order than the machine's.
    fn turned(&self) -> bool {
        self.big_endian != cfg!(target_endian = "big")
    }

    /// Whether the elements are in another order than that of rows. With one axis that is longer
    /// than 1 the orders are the same.
    fn columns_first(&self) -> bool {
        self.fortran && self.size > 0 && self.shape.iter().filter(|&&d| d > 1).count() > 1
    }

    /// The header at the beginning of some bytes.
    pub(super) fn parse(file: &[u8]) -> std::result::Result<Array, String> {
        let (first, length) = header_length(file)?;
        let start = first + length;
        if file.len() < start {
            let n = bytes(file.len());
            return Err(format!(
                "ends after {n}, within its header, which reaches to offset {start}"
            ));
        }
        let version = file[6];
        let text = match version {
            3 => std::str::from_utf8(&file[first..start])
                .map_err(|e| {
                    format!(
                        "the header is no UTF-8 at offset {}",
                        first + e.valid_up_to()
                    )
                })?
                .to_string(),
            _ => file[first..start].iter().map(|&b| b as char).collect(),
        };
        let (descr, fortran, shape) = dictionary(&text)
            .map_err(|(at, message)| format!("the header, at offset {}: {message}", first + at))?;
        if shape.len() > MOST_AXES {
            let n = shape.len();
            return Err(format!("`shape` has {n} axes; {MOST_AXES} are the most"));
        }
        let (dtype, big_endian) = dtype(&descr)?;
        let Some(size) = size_of(dtype, &shape) else {
            let shape = shown(&shape);
            return Err(format!(
                "the header claims {dtype} of shape {shape}, more than any memory"
            ));
        };
        Ok(Array {
            dtype,
            shape,
            big_endian,
            fortran,
            start,
            size,
        })
    }
}

/// How many bytes of a file are needed to know where its header ends.
pub(super) const PREFIX: usize = 12;

/// Where the text of the header begins, and its length.
pub(super) fn header_length(file: &[u8]) -> std::result::Result<(usize, usize), String> {
    if !file.starts_with(MAGIC) {
        return Err("does not begin with \\x93NUMPY: no npy file".into());
    }
    let short = || format!("ends after {}, within its header", bytes(file.len()));
    let (version, minor) = match file.get(6..8) {
        Some(pair) => (pair[0], pair[1]),
        None => return Err(short()),
    };
    let (first, length) = match (version, minor) {
        (1, 0) => {
            let field = file.get(8..10).ok_or_else(short)?;
            (10, u16::from_le_bytes([field[0], field[1]]) as usize)
        }
        (2 | 3, 0) => {
            let field = file.get(8..12).ok_or_else(short)?;
            let field = [field[0], field[1], field[2], field[3]];
            (12, u32::from_le_bytes(field) as usize)
        }
        _ => {
            return Err(format!(
                "has version {version}.{minor} of the format; versions 1.0, 2.0 and 3.0 can be read"
            ));
        }
    };
    if length > LONGEST_HEADER {
        return Err(format!(
            "claims a header of {length} bytes at offset 8; {LONGEST_HEADER} are the most"
        ));
    }
    Ok((first, length))
}

/// The dtype of elements, and whether the greatest byte comes first.
fn dtype(descr: &str) -> std::result::Result<(DType, bool), String> {
    let unknown = |why: &str| {
        let all = "b1, i1, i2, i4, i8, u1, u2, u4, u8, f2, f4, f8 and V2 for bf16";
        Err(format!("`descr` is '{descr}'{why}; {all} can be read"))
    };
    let order = descr.chars().next().filter(|c| "<>|=".contains(*c));
    let kind = &descr[order.map_or(0, char::len_utf8)..];
    let dtype = match kind {
        "b1" => DType::Bool,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "V2" => DType::BF16,
        _ => {
            return unknown(match kind.chars().next() {
                Some('O') => ", Python objects, which may run any program when they are read",
                Some('U' | 'S' | 'a') => ", text",
                Some('c') => ", complex numbers",
                Some('M' | 'm') => ", dates or times",
                Some('V') => ", records",
                _ => "",
            });
        }
    };
    Ok((dtype, order == Some('>')))
}

/// What an entry of the header's dictionary may be.
#[derive(Debug)]
enum Value {
    Text(String),
    Bool(bool),
    Extents(Vec<usize>),
}

/// Where a text is wrong, and how.
type Wrong = (usize, String);

/// The entries `descr`, `fortran_order` and `shape` of a dictionary of Python.
fn dictionary(text: &str) -> std::result::Result<(String, bool, Vec<usize>), Wrong> {
    let mut cursor = Cursor { text, at: 0 };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    cursor.expect('{')?;
    loop {
        if cursor.accept('}') {
            break;
        }
        let at = cursor.here();
        let key = cursor.text()?;
        cursor.expect(':')?;
        let entry = cursor.here();
        let value = cursor.value()?;
        let twice = match (key.as_str(), value) {
            ("descr", Value::Text(text)) => descr.replace(text).is_some(),
            ("fortran_order", Value::Bool(b)) => fortran.replace(b).is_some(),
            ("shape", Value::Extents(list)) => shape.replace(list).is_some(),
            ("descr", _) => return Err((entry, "expected a text for `descr`".into())),
            ("fortran_order", _) => {
                return Err((entry, "expected True or False for `fortran_order`".into()));
            }
            ("shape", _) => return Err((entry, "expected a tuple for `shape`".into())),
            _ => {
                let known = "expected descr, fortran_order or shape";
                return Err((at, format!("{known}, found '{key}'")));
            }
        };
        if twice {
            return Err((at, format!("`{key}` comes twice")));
        }
        if !cursor.accept(',') {
            cursor.expect('}')?;
            break;
        }
    }
    let end = cursor.here();
    if end < text.len() {
        return Err((end, "expected the end after `}`".into()));
    }
    let missing = |key: &str| (end, format!("`{key}` is missing"));
    Ok((
        descr.ok_or_else(|| missing("descr"))?,
        fortran.ok_or_else(|| missing("fortran_order"))?,
        shape.ok_or_else(|| missing("shape"))?,
    ))
}

/// A place in a text.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    /// The place of what comes next, behind white space.
    fn here(&mut self) -> usize {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.at
    }

    fn accept(&mut self, wanted: char) -> bool {
        let at = self.here();
        let found = self.text[at..].starts_with(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn expect(&mut self, wanted: char) -> std::result::Result<(), Wrong> {
        match self.accept(wanted) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{wanted}`"))),
        }
    }

    fn unexpected(&mut self, wanted: &str) -> Wrong {
        let at = self.here();
        let found = match self.text[at..].chars().next() {
            Some(c) => format!("`{}`", c.escape_default()),
            None => "the end".to_string(),
        };
        (at, format!("expected {wanted}, found {found}"))
    }

    /// A text in quotes, which needs no escapes in any header that can be read.
    fn text(&mut self) -> std::result::Result<String, Wrong> {
        let at = self.here();
        let rest = &self.text[at..];
        let Some(quote) = rest.chars().next().filter(|c| "'\"".contains(*c)) else {
            return Err(self.unexpected("a text in quotes"));
        };
        let Some(end) = rest[1..].find(quote) else {
            return Err((at, "the text has no end".into()));
        };
        self.at += end + 2;
        Ok(rest[1..end + 1].to_string())
    }

    fn value(&mut self) -> std::result::Result<Value, Wrong> {
        let at = self.here();
        let rest = &self.text[at..];
        for (word, value) in [("True", true), ("False", false)] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(Value::Bool(value));
            }
        }
        match rest.chars().next() {
            Some('(') => Ok(Value::Extents(self.extents()?)),
            Some('[') => Err((
                at,
                "an array of records can't be read; save its fields one by one".into(),
            )),
            _ => Ok(Value::Text(self.text()?)),
        }
    }

    fn extents(&mut self) -> std::result::Result<Vec<usize>, Wrong> {
        let mut extents = Vec::new();
        self.expect('(')?;
        while !self.accept(')') {
            let at = self.here();
            let rest = &self.text[at..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if digits == 0 {
                return Err(self.unexpected("a whole number that is not below 0"));
            }
            let extent = rest[..digits].parse();
            extents.push(extent.map_err(|_| (at, "the extent is larger than any memory".into()))?);
            self.at += digits;
            // Python 2 wrote long numbers so.
            self.accept('L');
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(extents)
    }
}

/// The header of a tensor, with everything before the elements.
pub(super) fn header(tensor: &Tensor) -> std::result::Result<Vec<u8>, String> {
    let shape = tensor.shape();
    if shape.rank() > MOST_AXES {
        let n = shape.rank();
        return Err(format!(
            "an array of NumPy has at most {MOST_AXES} axes, not {n}"
        ));
    }
    let mut text = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
        descr(tensor.dtype()),
        tuple(shape)
    );
    if let Some(first) = shape.first() {
        let digits = first.to_string().len();
        text.extend(std::iter::repeat_n(' ', ROOM_FOR_DIGITS - digits));
    }
    // Behind the magic, two bytes of version and two of length, with the end of the line.
    let used = MAGIC.len() + 4 + text.len() + 1;
    text.extend(std::iter::repeat_n(
        ' ',
        used.next_multiple_of(ALIGNMENT) - used,
    ));
    text.push('\n');
    let length = u16::try_from(text.len()).expect("64 extents of 20 digits are fewer");
    Ok([MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat())
}

fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    }
}

/// Extents as Python writes a tuple.
fn tuple(shape: &Shape) -> String {
    let mut text = String::from("(");
    for (k, extent) in shape.iter().enumerate() {
        let comma = if k > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{extent}");
    }
    text += if shape.rank() == 1 { ",)" } else { ")" };
    text
}
