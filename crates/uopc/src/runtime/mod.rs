//! Runs compiled plans: memory, devices and the executor.
//!
//! A [`Device`] turns the launches of a plan into something that runs ([`Executable`]). There are
//! two, [`c_device`] and the interpreter in [`crate::compile`], and they agree to the last bit. The
//! runtime does not know where launches come from; [`crate::compile`] brings them together with
//! the passes.

pub mod pool;
pub mod buffer;
pub mod cache;
pub mod team;
pub mod library;
pub mod c_device;
pub mod executor;
pub mod interrupt;

pub use buffer::{Element, Memory, Place, Storage};
pub use pool::Pool;

use std::sync::Arc;

use crate::error::Result;
use crate::ir::form::{LoopGraph, Program};
use crate::ir::op::ParamMode;

/// One launch in the two forms that devices start from.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Statements over shared loops.
    pub loops: &'a LoopGraph,
    /// The same as a list of instructions.
    pub program: &'a Program,
}

/// Something that runs kernels.
pub trait Device: Send + Sync {
    /// What it is called in settings and in reports.
    fn name(&self) -> &'static str;

    /// Where its memory comes from.
    fn pool(&self) -> &Arc<Pool>;

    /// Memory of that many bytes with unspecified content.
    ///
    /// # Errors
    /// When there is no memory left.
    fn allocate(&self, bytes: usize) -> Result<Memory> {
        self.pool().take(bytes)
    }

    /// Prepares the launches of a plan, all at once.
    ///
    /// # Errors
    /// When the compiler fails, or a launch needs something that the device does not have.
    fn compile(&self, launches: &[Code]) -> Result<Box<dyn Executable>>;

    /// About how many of a kernel's steps it takes a second: loads, stores and operations on single
    /// elements. Only for guesses of whether a run takes long.
    fn steps_per_second(&self) -> u64;

    /// What was done so far.
    fn counts(&self) -> DeviceCounts;
}

/// How often a device did what is expensive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounts {
    /// Translation units handed to the C compiler.
    pub compiler_calls: u64,
    /// Units found in the disk cache.
    pub disk_hits: u64,
}

/// Launches that are ready to run, from any thread, several at a time.
pub trait Executable: Send + Sync {
    /// The parameters that a launch takes, by ascending slot.
    fn parameters(&self, launch: usize) -> &[Parameter];

    /// Bytes of scratch memory that a launch takes while it runs, for all threads.
    fn scratch(&self, launch: usize) -> usize;

    /// Runs a launch to its end on these arguments, one for each of
    /// [`parameters`](Self::parameters), and on scratch memory of at least
    /// [`scratch`](Self::scratch) bytes, which must be given if that is not 0.
    ///
    /// Arguments that are written overlap no other argument.
    ///
    /// # Errors
    /// When the interpreter meets an access outside of memory.
    ///
    /// # Panics
    /// When arguments are missing, too small, or not writable.
    fn launch(&self, launch: usize, args: &[Place], scratch: Option<&Memory>) -> Result<()>;
}

/// A parameter of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Its slot.
    pub slot: u32,
    /// Whether it is written.
    pub mode: ParamMode,
    /// Its size.
    pub bytes: usize,
}

impl Parameter {
    /// Checks what kernels rely on: that there is a place for each parameter, large enough and
    /// writable if it is written.
    ///
    /// # Panics
    /// When that does not hold.
    pub fn check(parameters: &[Parameter], args: &[Place]) {
        assert_eq!(parameters.len(), args.len(), "one argument a parameter");
        for (parameter, arg) in parameters.iter().zip(args) {
            assert!(
                arg.bytes() >= parameter.bytes,
                "data{} has {} bytes, not {}",
                parameter.slot,
                parameter.bytes,
                arg.bytes()
            );
            assert!(
                parameter.mode == ParamMode::In || arg.is_writable(),
                "data{} is written",
                parameter.slot
            );
        }
    }
}
