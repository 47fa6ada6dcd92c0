//! The program from its arguments to its exit code. What each command does stands in [`crate::cmd`].

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser;

use crate::cmd::Command;
use crate::failure::{EXIT_CODES, Failure};

/// Look into a tensor compiler, and train with it
#[derive(Parser)]
#[command(name = "uopc", bin_name = "uopc", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

/// Runs the program with those arguments, its own name first, and returns its exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        // Help and version are answers that clap prints on standard output.
        Err(answer) => {
            let _ = answer.print();
            return u8::try_from(answer.exit_code()).unwrap_or(2);
        }
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = args.command.run(&mut out);
    let result = result.and_then(|()| Ok(out.flush()?));
    match &result {
        Ok(()) => return 0,
        Err(Failure::Failed(text) | Failure::Usage(text)) => eprintln!("error: {text}"),
        Err(Failure::Interrupted | Failure::Unread) => {}
    }
    // What had been printed before the failure is still to be seen.
    let _ = out.flush();
    result.map_or_else(|failure| failure.exit_code(), |()| 0)
}
