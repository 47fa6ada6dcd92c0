//! uopc, a small and inspectable tensor compiler.

pub mod error;
pub mod ir;

pub use error::{Error, Result};
