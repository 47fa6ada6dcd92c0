//! The parts of the program `uopc` that are worth testing on their own.

#![warn(clippy::unwrap_used)]

pub mod plot;
