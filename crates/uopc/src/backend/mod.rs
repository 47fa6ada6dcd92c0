//! From programs to machine code.
//!
//! A backend sees [`Program`](crate::ir::form::Program)s and nothing before them. There is one
//! now, [`c`].

pub mod c;
