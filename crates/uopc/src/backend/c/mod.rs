//! The C backend: the text of a plan, and the compiler's command line.

pub mod prelude;
pub mod record;
pub mod scalar;
pub mod vector;
pub mod render;
mod steps;
mod dots;
mod fold;
mod lanes;
mod registers;
mod share;
mod nests;
mod tiles;
mod frame;
mod value;
mod access;
mod scratch;
pub mod unit;
pub mod toolchain;
