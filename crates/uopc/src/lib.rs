//! uopc, a small and inspectable tensor compiler.

pub mod error;
pub mod debug;
pub mod ir;
pub mod interp;
pub mod autodiff;

pub use error::{Error, Result};
