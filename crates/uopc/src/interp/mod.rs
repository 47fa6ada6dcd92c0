//! The oracle: what graphs and loops mean, on plain arrays, sharing nothing but scalar arithmetic
//! with the passes and backends it judges.
//!
//! [`graph`] evaluates a shape graph node by node; [`loops`] runs a launch and is also the device
//! of machines without a C compiler. Both agree with compiled code to the last bit.

pub mod array;
mod fold;
mod function;
pub mod graph;
pub mod loops;
mod order;
mod tape;

pub use array::Array;
pub use loops::{Checks, LoopArg, LoopData, LoopKernel};
