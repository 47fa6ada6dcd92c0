//! The program `uopc` as a library: [`program::run`] is all of it, the rest its parts.

#![warn(clippy::unwrap_used)]

pub mod bench;
pub mod cmd;
pub mod engines;
pub mod examples;
pub mod failure;
pub mod input;
pub mod notices;
pub mod plot;
pub mod program;
pub mod stages;
pub mod table;
pub mod train;
pub mod values;
