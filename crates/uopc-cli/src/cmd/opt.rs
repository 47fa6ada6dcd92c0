//! `uopc opt`: passes on a graph, text in, text out.

use std::io::Write;
use std::path::PathBuf;

use crate::failure::{Failure, Result};
use crate::input;
use crate::stages;

const HELP: &str = "\
`uopc passes` lists the passes with the forms they take and give. Several are applied in the order
given; rangeify takes a plan, or a shape graph that is a single kernel.

Examples:
  uopc opt --pass simplify graph.uir
  uopc opt --pass kernelize,rangeify --kernel r_4 softmax.uir";

/// Arguments of `uopc opt`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// The graph; `-` reads standard input
    #[arg(value_name = "FILE.uir")]
    file: PathBuf,
    /// The passes to apply, separated by commas
    #[arg(
        long = "pass",
        value_name = "NAME",
        required = true,
        value_delimiter = ','
    )]
    passes: Vec<String>,
    /// Which of a plan's kernels a pass on kernels takes
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
}

/// Applies the passes and prints the result.
///
/// # Errors
/// When the graph can't be read, a pass does not exist, does not fit the graph, or fails.
pub fn opt(args: &Args, out: &mut dyn Write) -> Result<()> {
    // Names are looked at before the file: a slip is the user's first news.
    let passes = args.passes.iter().map(|name| stages::find(name.trim()));
    let passes = passes.collect::<Result<Vec<_>>>()?;
    let settings = stages::checked_settings()?;
    let source = input::read(&args.file)?;
    let parsed = source.parse()?;
    let mut form = source.form(&parsed)?;
    let kernel = args.kernel.as_deref().or(parsed.name.as_deref());
    for pass in passes {
        form = stages::apply(pass, &form, kernel, settings).map_err(|failure| match failure {
            Failure::Failed(text) => Failure::Failed(format!("{}: {text}", source.name)),
            other => other,
        })?;
    }
    write!(out, "{}", form.text()?)?;
    Ok(())
}
