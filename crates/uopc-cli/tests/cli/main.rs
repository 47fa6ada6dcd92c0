//! The program `uopc`, from outside: its commands and its training runs.

mod commands;
mod failures;
mod program;
mod train;
