//! The program `uopc`: its arguments. What each command does stands in `uopc_cli::cmd`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use uopc_cli::cmd::Command;
use uopc_cli::failure::{EXIT_CODES, Failure};
use uopc_cli::notices;

/// Look into a tensor compiler, and train with it
#[derive(Parser)]
#[command(name = "uopc", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let args = Args::parse();
    notices::print();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = args.command.run(&mut out);
    let result = result.and_then(|()| Ok(out.flush()?));
    match &result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Failed(text) | Failure::Usage(text)) => eprintln!("error: {text}"),
        Err(Failure::Interrupted | Failure::Unread) => {}
    }
    let code = result.map_or_else(|failure| failure.exit_code(), |()| 0);
    // What had been printed before the failure is still to be seen.
    let _ = out.flush();
    ExitCode::from(code)
}
