//! The C backend: the text of a plan, and the compiler's command line.

pub mod prelude;
pub mod record;
pub mod scalar;
pub mod vector;
pub mod render;
pub mod unit;
pub mod toolchain;
