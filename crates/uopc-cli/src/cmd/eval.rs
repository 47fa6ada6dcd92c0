//! `uopc eval`: what a trained model makes of the test set.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use uopc::compile::Engine;
use uopc::data::digits;
use uopc::tensor::with_engine;

use crate::failure::Result;
use crate::stages::checked_settings;
use crate::train::RUNS;
use crate::train::digits::{Mlp, Test};
use crate::train::folder::{MODEL, RunFolder};
use crate::train::progress::thousands;

const HELP: &str = "\
The test set are the 360 images whose index is a multiple of 5; none of them is trained with.

Examples:
  uopc eval
  uopc eval --model runs/digits-1";

/// Arguments of `uopc eval`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// The folder of a run, or a file with weights [default: the newest run under runs/]
    #[arg(long, value_name = "DIR|FILE")]
    model: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Tests the model and prints the result.
///
/// # Errors
/// When there is no model, or it can't be read or run.
pub fn eval(args: &Args, out: &mut dyn Write) -> Result<()> {
    let engine = Arc::new(Engine::new(checked_settings()?.clone())?);
    let path = match &args.model {
        Some(path) => path.clone(),
        None => RunFolder::newest(Path::new(RUNS), "digits", MODEL)?,
    };
    let path = if path.is_dir() {
        path.join(MODEL)
    } else {
        path
    };
    let (model, test) = with_engine(&engine, || -> Result<(Mlp, Test)> {
        let model = Mlp::load(&path)?;
        let test = model.test(&digits::load()?.test)?;
        Ok((model, test))
    })?;
    if args.json {
        let result = json!({
            "model": path.display().to_string(),
            "test_loss": test.loss,
            "test_accuracy": test.accuracy(),
            "right": test.right(),
            "images": test.labels.len(),
            "confusion": test.confusion(),
        });
        writeln!(out, "{result}")?;
        return Ok(());
    }
    let (right, n) = (test.right(), test.labels.len());
    let (units, size) = (model.units(), thousands(model.size() as u64));
    writeln!(
        out,
        "model     {} (64-{units}-10, {size} parameters)",
        path.display()
    )?;
    writeln!(
        out,
        "accuracy  {:.2}% ({right} of {n} test images)",
        test.accuracy() * 100.0
    )?;
    writeln!(out, "loss      {:.4} nats", test.loss)?;
    write!(out, "\n{}", confusion(&test))?;
    Ok(())
}

/// Which digit was taken for which: a row for each digit, a column for what the model sees.
fn confusion(test: &Test) -> String {
    let counts = test.confusion();
    let mut text = "digit   taken for\n      ".to_string();
    text.extend((0..counts.len()).map(|j| format!("{j:>4}")));
    text += "     right\n";
    for (i, row) in counts.iter().enumerate() {
        text += &format!("{i:>5} ");
        text.extend(row.iter().map(|&n| match n {
            0 => "   .".to_string(),
            n => format!("{n:>4}"),
        }));
        let n: usize = row.iter().sum();
        text += &format!("   {:>6.1}%\n", row[i] as f64 * 100.0 / n as f64);
    }
    text
}
