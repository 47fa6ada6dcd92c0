//! Named arrays of NumPy: a zip file with one `.npy` file an array, stored or compressed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{expect_distinct, little_endian, realize, refuse, replace};
use super::mapped::Mapped;
use super::npy::{self, Array};
use super::zip::{self, Member, Writer};
use crate::error::{Error, Result};
use crate::tensor::{DType, Shape, Storage, Tensor};

/// What NumPy adds to the name of an array.
const SUFFIX: &str = ".npy";

/// The longest name that the format can write.
const LONGEST_NAME: usize = u16::MAX as usize;

/// Writes named tensors, computed as one plan if need be, without compression. An existing file is
/// replaced.
///
/// # Errors
/// When two tensors have one name, a name is empty or leads out of a folder, a tensor has more than
/// 64 axes or can't be computed, or the file can't be written.
pub fn save(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    write(path.as_ref(), tensors, false)
}

/// [`save`] with compression, which for weights takes long and gains little.
///
/// # Errors
/// Those of [`save`].
pub fn save_compressed(path: impl AsRef<Path>, tensors: &[(String, Tensor)]) -> Result<()> {
    write(path.as_ref(), tensors, true)
}

fn write(path: &Path, tensors: &[(String, Tensor)], deflate: bool) -> Result<()> {
    expect_distinct(path, tensors)?;
    let mut headers = Vec::with_capacity(tensors.len());
    for (name, t) in tensors {
        let member = format!("{name}{SUFFIX}");
        if name.is_empty() || member.len() > LONGEST_NAME {
            let n = name.len();
            return Err(refuse(
                path,
                format!("a name of {n} bytes can't be written; use 1 to 65531"),
            ));
        }
        zip::checked_name(&member).map_err(|message| refuse(path, message))?;
        let header =
            npy::header(t).map_err(|message| refuse(path, format!("{name}: {message}")))?;
        headers.push((member, header));
    }
    realize(tensors)?;
    let memory = tensors.iter().map(|(_, t)| t.memory());
    let memory = memory.collect::<Result<Vec<Arc<Storage>>>>()?;
    replace(path, |out| {
        let mut writer = Writer::new(out);
        for (((_, t), (member, header)), storage) in tensors.iter().zip(&headers).zip(&memory) {
            let data = little_endian(storage, t.dtype());
            writer.add(member, &[header, &data], deflate)?;
        }
        writer.finish()
    })
}

/// Reads all arrays of a file, by name.
///
/// # Errors
/// When the file can't be read, is truncated, damaged or no such file, holds something else than
/// arrays, or elements that uopc does not have.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    let archive = Archive::new(path.as_ref(), true)?;
    let names = archive.names();
    let tensors = names.iter().map(|name| archive.tensor(name));
    let tensors = tensors.collect::<Result<Vec<Tensor>>>()?;
    Ok(names.into_iter().zip(tensors).collect())
}

/// Opens a file whose arrays are made when they are asked for; see [`Archive`].
///
/// # Errors
/// When the file can't be read, is truncated, damaged or no such file, or holds something else than
/// arrays.
pub fn open(path: impl AsRef<Path>) -> Result<Archive> {
    Archive::new(path.as_ref(), false)
}

/// A file of which the list of arrays was read. An array is unpacked when it is asked for; one that
/// is stored, aligned and in the machine's order is read where it lies.
///
/// The file must keep its content, as for a file of
/// [safetensors](super::safetensors::Archive).
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    file: Mapped,
    /// Sorted by name.
    members: Vec<Member>,
    /// Whether arrays are copied in any case.
    copies: bool,
}

impl Archive {
    fn new(path: &Path, copies: bool) -> Result<Archive> {
        let file = Mapped::open(path)?;
        let mut members = zip::members(file.bytes()).map_err(|message| refuse(path, message))?;
        for member in &mut members {
            let name = member.name.strip_suffix(SUFFIX).filter(|n| !n.is_empty());
            let Some(name) = name else {
                let message = format!("is no array: its name does not end in {SUFFIX}");
                return Err(refuse(path, zip::named(&member.name, &message)));
            };
            member.name = name.to_string();
        }
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let path = path.to_path_buf();
        Ok(Archive {
            path,
            file,
            members,
            copies,
        })
    }

    /// The names of all arrays, sorted.
    pub fn names(&self) -> Vec<String> {
        self.members.iter().map(|m| m.name.clone()).collect()
    }

    /// The dtype and the shape of an array, of which only the header is read.
    ///
    /// # Errors
    /// When there is none of that name, or it can't be read.
    pub fn info(&self, name: &str) -> Result<(DType, Shape)> {
        let member = self.member(name)?;
        let file = self.file.bytes();
        let wrong = |message: String| self.wrong(member, &message);
        let prefix = zip::head(file, member, npy::PREFIX).map_err(wrong)?;
        let (first, length) = npy::header_length(&prefix).map_err(wrong)?;
        let header = zip::head(file, member, first + length).map_err(wrong)?;
        let array = Array::parse(&header).map_err(wrong)?;
        Ok((array.dtype, Shape::new(&array.shape)))
    }

    /// An array of the file.
    ///
    /// # Errors
    /// When there is none of that name, it is damaged, or memory runs out.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let member = self.member(name)?;
        let wrong = |message: String| self.wrong(member, &message);
        let content = zip::content(self.file.bytes(), member).map_err(wrong)?;
        if member.stored && !self.copies {
            return npy::mapped_tensor(&self.file, member.first, member.end).map_err(wrong);
        }
        npy::tensor(&content).map_err(wrong)
    }

    fn member(&self, name: &str) -> Result<&Member> {
        let at = self.members.binary_search_by(|m| m.name.as_str().cmp(name));
        match at {
            Ok(at) => Ok(&self.members[at]),
            Err(_) => {
                let names = self.names().join(", ");
                let message = format!("has no array {name}; it has {names}");
                Err(refuse(&self.path, message))
            }
        }
    }

    fn wrong(&self, member: &Member, message: &str) -> Error {
        refuse(
            &self.path,
            zip::named(&format!("{}{SUFFIX}", member.name), message),
        )
    }
}
