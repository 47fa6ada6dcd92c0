//! uopc, a small and inspectable tensor compiler.

#![warn(clippy::unwrap_used)]

pub mod error;
pub mod ir;

pub use error::{Error, Result};
