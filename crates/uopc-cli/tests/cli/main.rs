//! The program `uopc`, from outside: its commands and its training runs.

mod bench;
mod commands;
mod failures;
mod folders;
mod gradcheck;
mod place;
mod program;
mod train;
