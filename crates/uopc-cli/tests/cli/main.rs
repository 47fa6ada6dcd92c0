//! The program `uopc`, from outside: its commands and its training runs.

mod bench;
mod commands;
mod convert;
mod failures;
mod folders;
mod gradcheck;
mod mnist;
mod place;
mod program;
mod train;
