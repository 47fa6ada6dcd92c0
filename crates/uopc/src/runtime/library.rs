//! Loads shared objects and calls the kernels in them.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::path::Path;

use smallvec::SmallVec;

use super::buffer::Place;
use super::team::Team;
use crate::error::{Error, Result};

/// The one type that every entry of a unit has: it unpacks the pointers and calls its kernel, whose
/// parallel loops the team does.
type Entry = unsafe extern "C" fn(args: *const *mut c_void, team: *const Team);

/// A loaded unit with its entries.
pub struct Library {
    /// Addresses in `library`, which must outlive them.
    entries: Vec<Entry>,
    /// Keeps the code mapped.
    #[expect(dead_code, reason = "held for its Drop, which unmaps the code")]
    library: libloading::Library,
}

impl Library {
    /// Loads a shared object that this crate made from its own source, and looks up its entries.
    ///
    /// # Errors
    /// When the file is no shared object for this machine or lacks an entry.
    pub fn open(path: &Path, entries: &[String]) -> Result<Library> {
        let failed = |e: libloading::Error| Error::File {
            path: path.to_path_buf(),
            message: format!("the compiled kernels can't be loaded: {e}"),
        };
        // SAFETY: loading runs the object's initialisers. The object was compiled from rendered
        // kernels, which have none, and its digest was checked if it came from the cache.
        let library = unsafe { load(path) }.map_err(failed)?;
        let mut found = Vec::with_capacity(entries.len());
        for name in entries {
            // SAFETY: the renderer gives every entry of a unit the type `Entry`.
            let entry = unsafe { library.get::<Entry>(name) }.map_err(failed)?;
            found.push(*entry);
        }
        Ok(Library {
            entries: found,
            library,
        })
    }

    /// Runs an entry on its arguments, with a team for its parallel loops.
    ///
    /// `runtime::c_device` has checked that the entry takes these arguments, that they are as
    /// large as the kernel's parameters, and that those it writes may be written. That a kernel
    /// stays within its parameters is what the passes ensure: an index that could leave its memory
    /// has a gate. Tests run the same loops in the interpreter, which checks every access.
    pub(super) fn call<'a>(
        &self,
        entry: usize,
        args: impl Iterator<Item = Place<'a>>,
        team: &Team,
    ) {
        let pointers: SmallVec<[*mut c_void; 8]> = args.map(|arg| arg.pointer().cast()).collect();
        let entry = self.entries[entry];
        // SAFETY: the library is loaded as long as `self` lives; the arguments are borrowed for
        // the call, and so is the team; memory that is written has its only owner waiting here. The
        // kernel takes these arguments and stays within them, as said above, on whichever thread.
        unsafe { entry(pointers.as_ptr(), team) }
    }
}

/// Loads a shared object with all that it calls: what is not there is an error now and not the end
/// of the process when it is called.
///
/// # Safety
/// As `libloading::Library::new`.
unsafe fn load(path: &Path) -> std::result::Result<libloading::Library, libloading::Error> {
    #[cfg(unix)]
    {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: as promised by the caller.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
    }
    #[cfg(not(unix))]
    {
        // SAFETY: as promised by the caller.
        unsafe { libloading::Library::new(path) }
    }
}
