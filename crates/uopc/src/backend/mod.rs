//! To machine code: a linear [`Program`](crate::ir::form::Program) becomes text for a compiler.
//!
//! A backend sees programs and nothing before them. There is one now, [`c`].

pub mod c;
