//! A file in memory, read by the system when somebody looks at it.

#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::Mmap;

use super::file::{expect_file, unreadable};
use crate::error::Result;
use crate::tensor::Storage;

/// A file that is mapped into memory, to be read.
#[derive(Clone, Debug)]
pub struct Mapped(Arc<Mmap>);

impl Mapped {
    /// Maps a file. Nothing of it is read yet.
    pub fn open(path: &Path) -> Result<Mapped> {
        expect_file(path)?;
        let file = File::open(path).map_err(|e| unreadable(path, &e))?;
        // SAFETY: the map is private and only read. The documentation of whatever opens files this
        // way asks the user to leave the file as it is; files that this crate replaces are new ones
        // under the old name, so the map keeps the content that it had.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| unreadable(path, &e))?;
        Ok(Mapped(Arc::new(map)))
    }

    /// The file's content.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A part of the file as memory of tensors, which keeps the map alive.
    pub fn storage(&self, range: Range<usize>) -> Arc<Storage> {
        let part = &self.0[range];
        let pointer = NonNull::from(part).cast::<u8>();
        // SAFETY: the owner is the map, which stays where it is as long as it lives, holds those
        // bytes, and is never written through.
        unsafe { Storage::foreign(pointer, part.len(), Box::new(self.0.clone())) }
    }
}
