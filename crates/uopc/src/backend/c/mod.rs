//! C through the system's compiler: the text of a plan, and the compiler's command line.

pub mod scalar;
pub mod record;
pub mod prelude;
pub mod render;
pub mod unit;
pub mod toolchain;
