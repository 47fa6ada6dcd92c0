//! The program `uopc`.

fn main() {}
