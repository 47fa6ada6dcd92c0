//! Text: a file as a string, and its characters as numbers and back.

use std::collections::BTreeSet;
use std::path::Path;

use super::file::{self, refuse};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Reads a text.
///
/// # Errors
/// When the file can't be read or is no UTF-8; the error names the first line and byte that are not.
pub fn load(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    String::from_utf8(file::read(path)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let before = &e.as_bytes()[..at];
        let line = before.iter().filter(|&&b| b == b'\n').count() + 1;
        refuse(path, format!("is no UTF-8 at byte {at}, in line {line}"))
    })
}

/// The bytes of a file, whatever they are, as a tensor of u8.
///
/// # Errors
/// When the file can't be read, or memory runs out.
pub fn load_bytes(path: impl AsRef<Path>) -> Result<Tensor> {
    let bytes = file::read(path.as_ref())?;
    Tensor::from_slice(&bytes, [bytes.len()])
}

/// Writes a text. An existing file is replaced.
///
/// # Errors
/// When the file can't be written.
pub fn save(path: impl AsRef<Path>, text: &str) -> Result<()> {
    file::replace(path.as_ref(), |out| {
        std::io::Write::write_all(out, text.as_bytes())
    })
}

/// The characters of a text, each with a number: its place among them, in the order of Unicode.
///
/// ```
/// use uopc::io::text::Alphabet;
///
/// let alphabet = Alphabet::of("banana");
/// assert_eq!(alphabet.characters(), ['a', 'b', 'n']);
/// let tokens = alphabet.encode("nab")?;
/// assert_eq!(tokens.to_vec::<i32>()?, [2, 0, 1]);
/// assert_eq!(alphabet.decode(&[2, 0, 1])?, "nab");
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alphabet(Vec<char>);

impl Alphabet {
    /// The characters that a text has.
    pub fn of(text: &str) -> Alphabet {
        let all: BTreeSet<char> = text.chars().collect();
        Alphabet(all.into_iter().collect())
    }

    /// All characters, in order.
    pub fn characters(&self) -> &[char] {
        &self.0
    }

    /// The number of each character of a text, as a tensor of i32 with one axis.
    ///
    /// # Errors
    /// When a character is not in the alphabet, or memory runs out.
    pub fn encode(&self, text: &str) -> Result<Tensor> {
        let mut numbers = Vec::with_capacity(text.len());
        for (at, c) in text.chars().enumerate() {
            let Ok(number) = self.0.binary_search(&c) else {
                let n = self.0.len();
                return Err(Error::Setting(format!(
                    "encode: {c:?}, character {at} of the text, is none of the {n} of the alphabet"
                )));
            };
            numbers.push(number as i32);
        }
        Tensor::from_slice(&numbers, [numbers.len()])
    }

    /// The text that numbers stand for.
    ///
    /// # Errors
    /// When a number stands for none.
    pub fn decode(&self, numbers: &[i32]) -> Result<String> {
        let character = |&number: &i32| {
            let found = usize::try_from(number).ok().and_then(|n| self.0.get(n));
            found.ok_or_else(|| {
                let n = self.0.len();
                Error::Setting(format!(
                    "decode: {number} stands for no character; there are {n}, from 0 on"
                ))
            })
        };
        numbers.iter().map(character).collect()
    }
}
