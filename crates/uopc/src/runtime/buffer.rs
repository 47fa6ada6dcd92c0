//! Host memory: [`Memory`] while it is being written, [`Storage`] once shared.
//!
//! Who may write, and when, is in the types. A [`Memory`] has one owner and stays on one thread
//! at a time, so writes through it (by the host or by a kernel that this thread waits for) can
//! meet no reader. [`Memory::share`] turns it into a [`Storage`], which is read by anyone and
//! written by no one. [`Storage::reclaim`] goes back if there is one owner.
//!
//! Memory comes from a [`Pool`]. It is initialised, with zeros or with what was there. A [`Storage`]
//! may also be memory that someone else owns, see [`Storage::foreign`]. Kernels and the interpreter
//! ask of what they read only that it is aligned to its elements; the 64 bytes of the pool are for
//! speed.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use half::{bf16, f16};

use super::pool::{Loan, Pool};
use crate::error::Result;
use crate::ir::DType;

// ---- memory being written ----

/// Memory with one owner, which may be written. Shared references to it stay on one thread, so
/// reads and writes through them alternate, as with a [`Cell`].
pub struct Memory {
    loan: Loan,
    one_thread: PhantomData<Cell<u8>>,
}

impl Memory {
    pub(super) fn new(loan: Loan) -> Memory {
        Memory {
            loan,
            one_thread: PhantomData,
        }
    }

    /// How many bytes were asked for.
    pub fn bytes(&self) -> usize {
        self.loan.bytes()
    }

    /// Writes bytes at an offset.
    ///
    /// # Panics
    /// When they do not fit.
    pub fn write_at(&self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        // SAFETY: within the block; `check` keeps the target inside, and `data` can't overlap it,
        // as no reference into a Memory is ever given out.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.pointer(offset), data.len()) }
    }

    /// Copies bytes from an offset.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn read_at(&self, offset: usize, data: &mut [u8]) {
        self.check(offset, data.len());
        // SAFETY: as in `write_at`, with the directions exchanged; all memory is initialised.
        unsafe { ptr::copy_nonoverlapping(self.pointer(offset), data.as_mut_ptr(), data.len()) }
    }

    /// Writes all elements.
    ///
    /// # Panics
    /// When the memory has another size.
    pub fn write<T: Element>(&mut self, values: &[T]) {
        assert_eq!(
            size_of_val(values),
            self.bytes(),
            "the values fill the memory"
        );
        // SAFETY: the block is aligned for every element type, holds that many bytes, and `self`
        // is borrowed exclusively; any byte pattern is a u8.
        let target = unsafe { std::slice::from_raw_parts_mut(self.pointer(0), self.bytes()) };
        for (bytes, &value) in target.chunks_exact_mut(size_of::<T>()).zip(values) {
            value.store(bytes);
        }
    }

    /// Ends writing: from here on the content never changes.
    pub fn share(self) -> Arc<Storage> {
        Arc::new(Storage(Holder::Pool(self.loan)))
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.bytes()),
            "{len} bytes at {offset} of {}",
            self.bytes()
        );
    }

    /// The address of an offset within the memory.
    fn pointer(&self, offset: usize) -> *mut u8 {
        self.loan.pointer().wrapping_add(offset)
    }
}

// ---- memory being read ----

/// Memory whose content is final: the value of a node. Shared as `Arc<Storage>`; the last owner
/// returns it to its pool, or lets go of whoever else owns it.
pub struct Storage(Holder);

/// Who holds the memory of a storage.
enum Holder {
    /// This crate.
    Pool(Loan),
    /// Somebody else.
    Foreign(Foreign),
}

/// Memory that something else keeps in place.
struct Foreign {
    pointer: NonNull<u8>,
    bytes: usize,
    /// Whether its owner may write it between runs.
    may_change: bool,
    /// Keeps the memory valid.
    #[expect(dead_code, reason = "held for its Drop")]
    owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only read, and whoever made this has promised that nobody writes it; the
// owner may go to and be used from any thread.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Storage {
    /// Memory that `owner` keeps in place, without a copy. The owner is dropped with the storage,
    /// on whichever thread drops that last. The memory never enters a pool, and
    /// [`reclaim`](Self::reclaim) refuses it.
    ///
    /// The pointer must be aligned to the elements that are read through it, no further; whoever
    /// makes a tensor of it checks that. With 0 bytes it may point anywhere.
    ///
    /// # Safety
    /// As long as `owner` lives, `pointer` is valid for reads of `bytes` bytes, which are
    /// initialised. Nobody writes them while a plan reads them or a reference from
    /// [`as_bytes`](Self::as_bytes) lives. (Written at another time, values computed before are
    /// of the old content and those computed later of the new one.)
    pub unsafe fn foreign(
        pointer: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Arc<Storage> {
        Arc::new(Storage(Holder::Foreign(Foreign {
            pointer,
            bytes,
            may_change: true,
            owner,
        })))
    }

    /// A copy of host data, in the global pool.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn from_slice<T: Element>(values: &[T]) -> Result<Arc<Storage>> {
        let mut memory = Pool::global().take(size_of_val(values))?;
        memory.write(values);
        Ok(memory.share())
    }

    /// The elements of a vector, which it takes over without a copy. As foreign memory it is aligned
    /// to its elements and no further.
    pub fn from_vec<T: Element>(values: Vec<T>) -> Arc<Storage> {
        let bytes = size_of_val(&values[..]);
        let pointer = NonNull::from(&values[..]).cast();
        // The vector's elements stay where they are until it is dropped, also when the box around it
        // moves; they are numbers without padding, all initialised, and nobody else has the vector.
        Arc::new(Storage(Holder::Foreign(Foreign {
            pointer,
            bytes,
            may_change: false,
            owner: Box::new(values),
        })))
    }

    /// A copy of elements given as bytes in the machine's order, in the global pool. Bytes of
    /// bools are 0 or 1; the caller checks that.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn from_bytes(data: &[u8]) -> Result<Arc<Storage>> {
        let memory = Pool::global().take(data.len())?;
        memory.write_at(0, data);
        Ok(memory.share())
    }

    /// Whether somebody else holds the memory who may write it between runs.
    pub fn is_foreign(&self) -> bool {
        matches!(&self.0, Holder::Foreign(foreign) if foreign.may_change)
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Holder::Pool(loan) => loan.bytes(),
            Holder::Foreign(foreign) => foreign.bytes,
        }
    }

    /// Where its bytes are, as long as it lives. Nobody may write through this.
    pub fn pointer(&self) -> *const u8 {
        match &self.0 {
            Holder::Pool(loan) => loan.pointer(),
            Holder::Foreign(foreign) => foreign.pointer.as_ptr(),
        }
    }

    /// The content.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: initialised memory of that size, alive as long as `self`; a Storage is never
        // written, see the module's page, and for foreign memory its maker has promised both.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.bytes()) }
    }

    /// The content as elements.
    ///
    /// # Panics
    /// When the size is no multiple of the element's.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        let (n, rest) = (self.bytes() / size_of::<T>(), self.bytes() % size_of::<T>());
        assert_eq!(rest, 0, "{} bytes hold {n} elements", self.bytes());
        let bytes = self.as_bytes().chunks_exact(size_of::<T>());
        bytes.map(T::load).collect()
    }

    /// The content as elements, without a copy; `None` if the memory is not aligned to them, their
    /// size does not divide its own, or they are bools and a byte is neither 0 nor 1.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        let (bytes, size) = (self.as_bytes(), size_of::<T>());
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(align_of::<T>());
        let is_whole = bytes.len().is_multiple_of(size);
        let are_values = T::DTYPE != DType::Bool || bytes.iter().all(|b| *b <= 1);
        if bytes.is_empty() {
            return Some(&[]);
        }
        // SAFETY: aligned memory of whole elements, read as long as `self` is borrowed, see
        // `as_bytes`. Any bits are an element, except of bools, whose bytes were looked at.
        let elements = || unsafe {
            std::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), bytes.len() / size)
        };
        (is_aligned && is_whole && are_values).then(elements)
    }

    /// Back to memory that may be written, if nobody else owns it.
    ///
    /// # Errors
    /// The storage itself when others own it, too, or the memory is foreign.
    pub fn reclaim(this: Arc<Storage>) -> std::result::Result<Memory, Arc<Storage>> {
        match Arc::try_unwrap(this)?.0 {
            Holder::Pool(loan) => Ok(Memory::new(loan)),
            foreign @ Holder::Foreign(_) => Err(Arc::new(Storage(foreign))),
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Storage({} bytes)", self.bytes())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes())
    }
}

// ---- arguments of kernels ----

/// Where a kernel finds an argument: a whole storage to read, or a part of memory that the
/// caller owns, to read and write.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Read only.
    Shared(&'a Storage),
    /// Read and written.
    Owned {
        /// The memory.
        memory: &'a Memory,
        /// Where the part begins, in bytes.
        offset: usize,
        /// How many bytes it has.
        bytes: usize,
    },
}

impl<'a> Place<'a> {
    /// All of a memory.
    pub fn whole(memory: &'a Memory) -> Place<'a> {
        Place::part(memory, 0, memory.bytes())
    }

    /// A part of a memory.
    ///
    /// # Panics
    /// When the memory does not have that part.
    pub fn part(memory: &'a Memory, offset: usize, bytes: usize) -> Place<'a> {
        memory.check(offset, bytes);
        Place::Owned {
            memory,
            offset,
            bytes,
        }
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        match self {
            Place::Shared(storage) => storage.bytes(),
            Place::Owned { bytes, .. } => *bytes,
        }
    }

    /// True if a kernel may write here.
    pub fn is_writable(&self) -> bool {
        matches!(self, Place::Owned { .. })
    }

    /// A copy of the content.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Place::Shared(storage) => storage.as_bytes().to_vec(),
            Place::Owned {
                memory,
                offset,
                bytes,
            } => {
                let mut data = vec![0; *bytes];
                memory.read_at(*offset, &mut data);
                data
            }
        }
    }

    /// The address handed to compiled code, which writes through it only if
    /// [`is_writable`](Self::is_writable).
    pub(super) fn pointer(&self) -> *mut u8 {
        match self {
            Place::Shared(storage) => storage.pointer().cast_mut(),
            Place::Owned { memory, offset, .. } => memory.pointer(*offset),
        }
    }
}

// ---- elements ----

/// A Rust type that stands for a dtype.
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The dtype.
    const DTYPE: DType;

    /// Reads an element from its bytes.
    fn load(bytes: &[u8]) -> Self;

    /// Writes an element as bytes.
    fn store(self, bytes: &mut [u8]);
}

mod sealed {
    /// Closes [`super::Element`]: its implementers are the dtypes.
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty => $dtype:ident;)*) => { $(
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            fn load(bytes: &[u8]) -> Self {
                let bytes = bytes.try_into().expect("an element's bytes");
                <$type>::from_ne_bytes(bytes)
            }

            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
        }
    )* };
}

elements! {
    i8 => I8; i16 => I16; i32 => I32; i64 => I64;
    u8 => U8; u16 => U16; u32 => U32; u64 => U64;
    f16 => F16; bf16 => BF16; f32 => F32; f64 => F64;
}

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn load(bytes: &[u8]) -> bool {
        bytes[0] != 0
    }

    fn store(self, bytes: &mut [u8]) {
        bytes[0] = self as u8;
    }
}
