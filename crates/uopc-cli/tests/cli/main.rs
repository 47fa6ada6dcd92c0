//! The program `uopc`, from outside: its commands and its training runs.

mod commands;
mod program;
mod train;
