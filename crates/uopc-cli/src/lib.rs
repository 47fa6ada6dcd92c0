//! The parts of the program `uopc` that are worth testing on their own.

#![warn(clippy::unwrap_used)]

pub mod cmd;
pub mod engines;
pub mod examples;
pub mod failure;
pub mod input;
pub mod notices;
pub mod plot;
pub mod stages;
pub mod table;
pub mod train;
pub mod values;
