//! C through the system's compiler: the text, and the compiler's command line.

pub mod prelude;
pub mod spell;
pub mod render;
pub mod toolchain;
