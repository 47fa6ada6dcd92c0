//! uopc, a small and inspectable tensor compiler.

pub mod error;
pub mod debug;
pub mod ir;
pub mod rewrite;
pub mod rules;

pub use error::{Error, Result};
