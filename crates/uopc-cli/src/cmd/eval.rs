//! `uopc eval`: what a trained model makes of the test set.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use uopc::compile::Engine;
use uopc::tensor::with_engine;

use crate::failure::{Failure, Result};
use crate::stages::checked_settings;
use crate::train::RUNS;
use crate::train::folder::{MODEL, RECORD, RunFolder};
use crate::train::network::{Network, Test};
use crate::train::progress::thousands;
use crate::train::task::{Source, Task};

const HELP: &str = "\
The test set of the digits are the 360 images whose index is a multiple of 5; none of them is trained
with. That of MNIST are the files t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte of the folder that
the run was trained with, or of --data.

Examples:
  uopc eval
  uopc eval --model runs/digits-1
  uopc eval --model runs/mnist-1 --data mnist";

/// Arguments of `uopc eval`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// The folder of a run, or a file with weights [default: the newest run under runs/]
    #[arg(long, value_name = "DIR|FILE")]
    model: Option<PathBuf>,
    /// The folder with the files of MNIST [default: that of the run]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
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
        None => newest()?,
    };
    let path = if path.is_dir() {
        path.join(MODEL)
    } else {
        path
    };
    let (model, test) = with_engine(&engine, || -> Result<(Network, Test)> {
        let model = Network::load(&path)?;
        let data = source(args, model.task(), &path)?.load()?;
        let test = model.test(&data.test)?;
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
    let (sizes, size) = (model.sizes(), thousands(model.size() as u64));
    writeln!(
        out,
        "model     {} ({sizes}, {size} parameters)",
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

/// The run that has saved its weights last, of any task.
fn newest() -> Result<PathBuf> {
    let runs = Path::new(RUNS);
    let saved = |path: &PathBuf| {
        fs::metadata(path.join(MODEL))
            .and_then(|m| m.modified())
            .ok()
    };
    let found = Task::ALL.into_iter().rev();
    let found = found.filter_map(|task| RunFolder::newest(runs, task.name(), MODEL).ok());
    match found.max_by_key(saved) {
        Some(path) => Ok(path),
        None => RunFolder::newest(runs, Task::Digits.name(), MODEL),
    }
}

/// Where the test set of a model lies.
fn source(args: &Args, task: Task, model: &Path) -> Result<Source> {
    let data = match (task, &args.data) {
        (Task::Digits, None) => None,
        (Task::Digits, Some(_)) => {
            return Err(Failure::usage(
                "--data: the model is one of the digits, which come with the program; leave it out",
            ));
        }
        (Task::Mnist, Some(data)) => Some(data.clone()),
        (Task::Mnist, None) => recorded(model),
    };
    Ok(Source { task, data })
}

/// The folder that the record beside the weights names.
fn recorded(model: &Path) -> Option<PathBuf> {
    let text = fs::read(model.with_file_name(RECORD)).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(record["arguments"]["data"].as_str()?.into())
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
