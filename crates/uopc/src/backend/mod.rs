//! From programs to machine code.

pub mod c;
