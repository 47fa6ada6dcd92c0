//! uopc, a small and inspectable tensor compiler.

pub mod error;
pub mod ir;
pub mod backend;

pub use error::{Error, Result};
