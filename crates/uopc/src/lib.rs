//! uopc, a small and inspectable tensor compiler.

#![warn(clippy::unwrap_used)]

pub mod error;
pub mod debug;
pub mod ir;
pub mod rewrite;
pub mod rules;
pub mod interp;
pub mod autodiff;
pub mod pass;
pub mod backend;
pub mod runtime;
pub mod compile;

pub use error::{Error, Result};
