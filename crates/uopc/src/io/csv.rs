//! Tables of numbers as text: one line a row, with a comma or another character between cells.
//!
//! A cell that is empty or no number gives an error with its line and its column, since nobody can
//! know what was meant; rows of different lengths do, too.

use std::path::Path;

use half::{bf16, f16};

use super::file::{self, refuse, replace};
use crate::error::{Error, Result};
use crate::tensor::{DType, Element, Tensor};

/// The most characters of a cell that an error shows.
const SHOWN: usize = 40;

/// How a table is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whether the first line has names of columns. By default there is none.
    pub header: bool,
    /// What stands between cells: a comma by default.
    pub delimiter: char,
    /// The dtype of the numbers: f32 by default.
    pub dtype: DType,
    /// What to take for an empty cell; none by default, then such a cell is an error.
    pub missing: Option<f64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            header: false,
            delimiter: ',',
            dtype: DType::F32,
            missing: None,
        }
    }
}

/// A table that was read.
#[derive(Clone, Debug)]
pub struct Table {
    /// The names of columns; none if the file had no line for them.
    pub columns: Vec<String>,
    /// The numbers, of shape (rows, columns).
    pub values: Tensor,
}

/// Reads a table. Cells may stand in quotes and have spaces around them; empty lines are skipped.
///
/// ```
/// use uopc::io::csv::{self, Options};
///
/// let folder = tempfile::tempdir().expect("a folder can be made");
/// let path = folder.path().join("a.csv");
/// std::fs::write(&path, "height,weight\n1.5,60\n1.75,70\n").expect("it can be written");
/// let options = Options { header: true, ..Options::default() };
/// let table = csv::load(&path, &options)?;
/// assert_eq!(table.columns, ["height", "weight"]);
/// assert_eq!(table.values.to_vec::<f32>()?, [1.5, 60.0, 1.75, 70.0]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the file can't be read or is no UTF-8, when rows differ in length, a cell is empty or no
/// number of the dtype, and when the delimiter is no character of ASCII, or one that numbers have.
pub fn load(path: impl AsRef<Path>, options: &Options) -> Result<Table> {
    let path = path.as_ref();
    let delimiter = delimiter(path, options)?;
    let text = file::read(path)?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(options.header)
        .delimiter(delimiter)
        .trim(::csv::Trim::All)
        .from_reader(text);
    let columns: Vec<String> = match options.header {
        true => {
            let names = reader.headers().map_err(|e| unreadable(path, text, &e))?;
            names.iter().map(str::to_string).collect()
        }
        false => Vec::new(),
    };
    let rows = Rows {
        path,
        text,
        options,
        columns: &columns,
    };
    let values = match options.dtype {
        DType::Bool => rows.read(&mut reader, |cell| match cell {
            "0" | "false" | "False" | "FALSE" => Some(false),
            "1" | "true" | "True" | "TRUE" => Some(true),
            _ => None,
        }),
        DType::I8 => rows.read(&mut reader, |cell| cell.parse::<i8>().ok()),
        DType::I16 => rows.read(&mut reader, |cell| cell.parse::<i16>().ok()),
        DType::I32 => rows.read(&mut reader, |cell| cell.parse::<i32>().ok()),
        DType::I64 => rows.read(&mut reader, |cell| cell.parse::<i64>().ok()),
        DType::U8 => rows.read(&mut reader, |cell| cell.parse::<u8>().ok()),
        DType::U16 => rows.read(&mut reader, |cell| cell.parse::<u16>().ok()),
        DType::U32 => rows.read(&mut reader, |cell| cell.parse::<u32>().ok()),
        DType::U64 => rows.read(&mut reader, |cell| cell.parse::<u64>().ok()),
        // By way of f64; the two roundings differ from one for hardly any text.
        DType::F16 => rows.read(&mut reader, |cell| cell.parse().ok().map(f16::from_f64)),
        DType::BF16 => rows.read(&mut reader, |cell| cell.parse().ok().map(bf16::from_f64)),
        DType::F32 => rows.read(&mut reader, |cell| cell.parse::<f32>().ok()),
        DType::F64 => rows.read(&mut reader, |cell| cell.parse::<f64>().ok()),
    }?;
    Ok(Table { columns, values })
}

/// What some programs write before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn delimiter(path: &Path, options: &Options) -> Result<u8> {
    let wanted = options.delimiter;
    let part_of_numbers = |c: char| c.is_ascii_alphanumeric() || "+-.\"\n\r".contains(c);
    match u8::try_from(wanted) {
        Ok(byte) if byte.is_ascii() && !part_of_numbers(wanted) => Ok(byte),
        _ => Err(refuse(
            path,
            format!("the delimiter {wanted:?} can't be told from cells; use one such as , or ;"),
        )),
    }
}

/// The number of the line that a row begins on, from 1. What is given as the row's place is the end
/// of the row before it, so empty lines between them are counted here.
fn line_of(text: &[u8], at: Option<&::csv::Position>) -> u64 {
    let Some(at) = at else { return 0 };
    let rest = text.get(at.byte() as usize..).unwrap_or_default();
    let ends = rest.iter().take_while(|&&b| b == b'\n' || b == b'\r');
    at.line() + ends.filter(|&&b| b == b'\n').count() as u64
}

fn unreadable(path: &Path, text: &[u8], error: &::csv::Error) -> Error {
    let line = |at: &Option<::csv::Position>| line_of(text, at.as_ref());
    let message = match error.kind() {
        ::csv::ErrorKind::UnequalLengths {
            pos,
            expected_len,
            len,
        } => {
            let line = line(pos);
            format!("line {line} has {len} cells, but those before it have {expected_len}")
        }
        ::csv::ErrorKind::Utf8 { pos, err } => {
            let (line, column) = (line(pos), err.field() + 1);
            format!("line {line}, column {column}: no UTF-8")
        }
        _ => format!("can't be read: {error}"),
    };
    refuse(path, message)
}

/// What is known of the rows before they are read.
struct Rows<'a> {
    path: &'a Path,
    text: &'a [u8],
    options: &'a Options,
    columns: &'a [String],
}

impl Rows<'_> {
    fn read<T: Element>(
        &self,
        reader: &mut ::csv::Reader<&[u8]>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Tensor> {
        let fill = self.options.missing.map(|value| {
            // As the text of a cell, so that it is a number of the dtype or an error.
            let text = value.to_string();
            let error = || self.refuse(format!("missing: {text} is no {}", self.options.dtype));
            parse(&text).ok_or_else(error)
        });
        let fill = fill.transpose()?;
        let mut values = Vec::new();
        let mut width = self.columns.len();
        let mut record = ::csv::StringRecord::new();
        let mut rows = 0;
        while reader
            .read_record(&mut record)
            .map_err(|e| unreadable(self.path, self.text, &e))?
        {
            rows += 1;
            width = record.len();
            let line = || line_of(self.text, record.position());
            for (k, cell) in record.iter().enumerate() {
                let value = match (cell.is_empty(), fill) {
                    (true, Some(fill)) => fill,
                    (true, None) => return Err(self.wrong(line(), k, "is empty")),
                    _ => match parse(cell) {
                        Some(value) => value,
                        None => {
                            let short: String = cell.chars().take(SHOWN).collect();
                            let dtype = self.options.dtype;
                            let what = format!("{short:?} is no number of {dtype}");
                            return Err(self.wrong(line(), k, &what));
                        }
                    },
                };
                values.push(value);
            }
        }
        Tensor::from_slice(&values, [rows, width])
    }

    fn wrong(&self, line: u64, k: usize, what: &str) -> Error {
        let column = match self.columns.get(k) {
            Some(name) => format!("{} ({name})", k + 1),
            None => (k + 1).to_string(),
        };
        self.refuse(format!("line {line}, column {column}: {what}"))
    }

    fn refuse(&self, message: String) -> Error {
        refuse(self.path, message)
    }
}

/// Writes a tensor of two axes, computed if need be, with the names of its columns on the first
/// line if there are any. Floats are written so that they read back to the same bits, NaNs apart.
/// An existing file is replaced.
///
/// # Errors
/// When the tensor has not two axes or another number of columns than there are names, when it
/// can't be computed, or the file can't be written.
pub fn save(path: impl AsRef<Path>, values: &Tensor, columns: &[String]) -> Result<()> {
    let path = path.as_ref();
    let shape = values.shape();
    let [rows, width] = shape[..] else {
        let message = format!("a table has two axes, rows and columns, not shape {shape}");
        return Err(refuse(path, message));
    };
    if !columns.is_empty() && columns.len() != width {
        let n = columns.len();
        return Err(refuse(
            path,
            format!("{n} names for {width} columns; give one each or none"),
        ));
    }
    let cells = cells(values)?;
    replace(path, |out| {
        let mut writer = ::csv::Writer::from_writer(out);
        if !columns.is_empty() {
            writer.write_record(columns)?;
        }
        for row in 0..rows {
            writer.write_record(&cells[row * width..(row + 1) * width])?;
        }
        writer.flush()
    })
}

fn cells(values: &Tensor) -> Result<Vec<String>> {
    fn whole<T: Element + ToString>(values: &Tensor) -> Result<Vec<String>> {
        Ok(values.to_vec::<T>()?.iter().map(T::to_string).collect())
    }
    fn float<T: Element + std::fmt::Debug>(values: &Tensor) -> Result<Vec<String>> {
        // The debug form is the shortest that reads back, with an exponent where it is long.
        let all = values.to_vec::<T>()?;
        Ok(all.iter().map(|value| format!("{value:?}")).collect())
    }
    match values.dtype() {
        DType::Bool => Ok(values
            .to_vec::<bool>()?
            .iter()
            .map(|&b| u8::from(b).to_string())
            .collect()),
        DType::I8 => whole::<i8>(values),
        DType::I16 => whole::<i16>(values),
        DType::I32 => whole::<i32>(values),
        DType::I64 => whole::<i64>(values),
        DType::U8 => whole::<u8>(values),
        DType::U16 => whole::<u16>(values),
        DType::U32 => whole::<u32>(values),
        DType::U64 => whole::<u64>(values),
        // f32 holds all of both.
        DType::F16 | DType::BF16 => float::<f32>(&values.cast(DType::F32)?),
        DType::F32 => float::<f32>(values),
        DType::F64 => float::<f64>(values),
    }
}
