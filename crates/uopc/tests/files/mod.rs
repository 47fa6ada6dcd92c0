//! What the tests of malformed files share: such files, errors about them, and an allocator that
//! notes who takes memory for what a file only claims.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use uopc::Result;

/// The system's allocator, which notes the largest block that anyone has asked for.
struct Noting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), SeqCst);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// No file here is larger than a few hundred bytes; what they claim is gigabytes and more.
#[track_caller]
pub fn nothing_was_taken() {
    let largest = LARGEST.load(SeqCst);
    assert!(largest < 16 << 20, "somebody took {largest} bytes");
}

/// The text of a file's error, without the path before it.
#[track_caller]
pub fn refused<T>(result: Result<T>, path: &Path) -> String {
    let error = result.map(drop).expect_err("it is refused").to_string();
    let message = error.strip_prefix(&format!("{}: ", path.display()));
    message.unwrap_or_else(|| panic!("{error}")).to_string()
}

/// An npy file with that header and so many zeros.
pub fn array(version: u8, header: &str, data: usize) -> Vec<u8> {
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    match version {
        1 => file.extend((header.len() as u16).to_le_bytes()),
        _ => file.extend((header.len() as u32).to_le_bytes()),
    }
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

pub fn described(descr: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
}
