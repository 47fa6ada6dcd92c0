//! The C backend.

pub mod prelude;
pub mod record;
pub mod scalar;
