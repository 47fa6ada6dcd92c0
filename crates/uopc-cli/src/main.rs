//! The program `uopc`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uopc_cli::notices::print();
    ExitCode::from(uopc_cli::program::run(std::env::args_os()))
}
