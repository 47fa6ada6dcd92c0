//! The parts of the program `uopc` that are worth testing on their own.

pub mod plot;
