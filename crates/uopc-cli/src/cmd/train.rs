//! `uopc train`: a training run, from its arguments to the folder it leaves behind.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uopc::compile::Engine;

use super::whole;
use crate::failure::{Failure, Result};
use crate::stages::checked_settings;
use crate::train::folder::{CHECKPOINT, LOG, MODEL, RunFolder};
use crate::train::progress::Bar;
use crate::train::record::{Config, Epoch, Summary};
use crate::train::task::{Kind, Source, Task};
use crate::train::{self, Event, Outcome, RUNS};

const HELP: &str = "\
A run leaves in its folder: run.json (arguments, seed, version, machine), log.jsonl (one JSON object
an epoch, a last one for the run), model.safetensors (the weights), checkpoint.safetensors (all that
--resume needs), training.svg and training.png, and an empty file lock, by which a second process
knows that the folder is in use. The folder is a new one, runs/digits-N or runs/mnist-N, unless
--out names it; one that is not empty is refused.

`train mnist` needs a folder with four files: train-images-idx3-ubyte, train-labels-idx1-ubyte,
t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or with .gz. The model mlp has layers of
512 and 256 units; cnn has four convolutions, and pooling after the second and the fourth.

With equal arguments and seed the losses are the same to the last bit, also if the run was stopped
with Ctrl-C and resumed. Each epoch leaves out the images that fill no batch, other ones each time.

Examples:
  uopc train digits
  uopc train digits --epochs 10 --seed 3 --json
  uopc train digits --resume runs/digits-1 --epochs 60
  uopc train mnist --data mnist --model cnn";

/// Arguments of `uopc train`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// What to learn: `digits`, the 1,797 handwritten digits that come with the program, or `mnist`,
    /// whose files are in --data
    #[arg(value_enum, hide_possible_values = true)]
    task: Task,
    /// The folder with the files of MNIST [with --resume: that of the run]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What is to learn it [default: mlp]
    #[arg(long, value_enum)]
    model: Option<Kind>,
    /// How often to go through the training set [default: 40; mnist: 3, cnn: 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = at_least_one)]
    epochs: Option<u64>,
    /// Images a step looks at [default: 32; mnist: 128, cnn: 64]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole::<usize>)]
    batch_size: Option<usize>,
    /// Learning rate [default: 0.004; mnist: 0.001]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    lr: Option<f64>,
    /// Decides the first weights and the order of images [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// The folder of the run [default: runs/TASK-N with the next free N]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in DIR (or --out, or the newest run) where it was stopped
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    /// Print one JSON object an epoch and a last one for the run, nothing else
    #[arg(long)]
    json: bool,
}

/// A number of epochs.
fn at_least_one(text: &str) -> std::result::Result<u64, String> {
    match whole(text) {
        Ok(n) if n >= 1 => Ok(n),
        _ => Err("use a whole number of at least 1".to_string()),
    }
}

/// Set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

/// Trains.
///
/// # Errors
/// When arguments do not go together, and when something can't be computed or written;
/// [`Failure::Interrupted`] after Ctrl-C.
pub fn train(args: &Args, out: &mut dyn Write) -> Result<()> {
    let task = args.task.name();
    let engine = Arc::new(Engine::new(checked_settings()?.clone())?);
    let (config, folder) = begin(args)?;
    catch_ctrl_c()?;
    if !args.json {
        let Config {
            epochs,
            batch_size,
            seed,
            ..
        } = &config;
        let (lr, network) = (config.rate(), config.architecture());
        writeln!(
            out,
            "{task}: {network}, AdamW, {epochs} epochs, batches of {batch_size}, learning \
             rate {lr}, seed {seed}"
        )?;
        out.flush()?;
    }
    let mut bar: Option<Bar> = None;
    let outcome = train::run(
        &engine,
        &config,
        &folder,
        args.resume.is_some(),
        &|| STOP.load(Ordering::SeqCst),
        &mut |plan, event| {
            let bar = bar.get_or_insert_with(|| Bar::new(plan));
            bar.update(plan, event);
            match event {
                Event::Begin | Event::Step(_) => Ok(()),
                // Each line is to be seen, and to be read by another program, when it is due.
                Event::Epoch(epoch) => bar.aside(|| {
                    match args.json {
                        true => writeln!(out, "{}", epoch.to_json())?,
                        false => writeln!(out, "{}", line(epoch, plan.epochs))?,
                    }
                    Ok(out.flush()?)
                }),
            }
        },
    );
    drop(bar);
    if outcome.is_err() && STOP.load(Ordering::SeqCst) {
        eprintln!("stopped before the first step; there is nothing to save");
        return Err(Failure::Interrupted);
    }
    match outcome? {
        Outcome::Done(summary) if args.json => writeln!(out, "{}", summary.to_json())?,
        Outcome::Done(summary) => write!(out, "{}", report(&summary, &folder))?,
        Outcome::Stopped { epoch, step } => {
            let folder = folder.path().display();
            eprintln!(
                "stopped in epoch {epoch} after step {step}; to go on:\n  \
                 uopc train {task} --resume {folder}"
            );
            return Err(Failure::Interrupted);
        }
    }
    Ok(())
}

/// The run's arguments and its folder.
fn begin(args: &Args) -> Result<(Config, RunFolder)> {
    let Some(resume) = &args.resume else {
        let default = Config::of(source(args)?, args.model.unwrap_or(Kind::Mlp));
        let config = Config {
            epochs: args.epochs.unwrap_or(default.epochs),
            batch_size: args.batch_size.unwrap_or(default.batch_size),
            lr: args.lr.unwrap_or(default.lr),
            seed: args.seed.unwrap_or(default.seed),
            ..default
        };
        config.check()?;
        let folder = match &args.out {
            Some(path) => RunFolder::named(path)?,
            None => RunFolder::numbered(Path::new(RUNS), args.task.name())?,
        };
        return Ok((config, folder));
    };
    let path = match (resume, &args.out) {
        (Some(path), Some(out)) if path != out => {
            return Err(Failure::usage(
                "--resume and --out name two folders; name one",
            ));
        }
        (Some(path), _) | (None, Some(path)) => path.clone(),
        (None, None) => RunFolder::newest(Path::new(RUNS), args.task.name(), CHECKPOINT)?,
    };
    let folder = RunFolder::existing(&path)?;
    let data = args.data.as_deref().map(absolute).transpose()?;
    let begun = Config::read_with(&folder, data.as_deref())?;
    if begun.source.task != args.task {
        let (found, asked) = (begun.source.task.name(), args.task.name());
        let path = path.display();
        return Err(Failure::usage(format!(
            "{path} is a run of {found}, not of {asked}; say uopc train {found}"
        )));
    }
    if data.is_some() && begun.source.data.is_none() {
        return Err(no_data());
    }
    let config = Config {
        epochs: args.epochs.unwrap_or(begun.epochs),
        ..begun.clone()
    };
    // Another batch size or rate in the middle would make a run that no arguments describe.
    let differs = |name: &str, is: String, asked: Option<String>| match asked {
        Some(asked) if asked != is => Err(Failure::usage(format!(
            "--{name} {asked}: the run in {} has {is}, which can't change; leave it out",
            path.display()
        ))),
        _ => Ok(()),
    };
    let text = |n: Option<u64>| n.map(|n| n.to_string());
    let batch_size = args.batch_size.map(|n| n as u64);
    differs("batch-size", begun.batch_size.to_string(), text(batch_size))?;
    differs("lr", begun.lr.to_string(), args.lr.map(|lr| lr.to_string()))?;
    differs("seed", begun.seed.to_string(), text(args.seed))?;
    let model = args.model.map(|kind| kind.name().to_string());
    differs("model", begun.model.name().to_string(), model)?;
    Ok((config, folder))
}

/// What is to be learned, from where.
fn source(args: &Args) -> Result<Source> {
    match (args.task, &args.data) {
        (Task::Digits, None) => Ok(Source::DIGITS),
        (Task::Digits, Some(_)) => Err(no_data()),
        (task, data) => Ok(Source {
            task,
            data: data.as_deref().map(absolute).transpose()?,
        }),
    }
}

fn no_data() -> Failure {
    Failure::usage("--data: the digits come with the program; leave it out, or learn mnist")
}

/// The path as it is from every folder: a run may be resumed from another one.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Failure::file(path, "no path", &e))
}

/// From now on Ctrl-C asks the run to stop behind its step, and a second one ends the program.
fn catch_ctrl_c() -> Result<()> {
    let handler = || {
        if STOP.swap(true, Ordering::SeqCst) {
            process::exit(Failure::Interrupted.exit_code().into());
        }
    };
    ctrlc::set_handler(handler).map_err(|e| Failure::failed(format!("Ctrl-C: {e}")))
}

/// An epoch in words.
fn line(epoch: &Epoch, epochs: u64) -> String {
    let width = epochs.to_string().len();
    format!(
        "epoch {:>width$}/{epochs}  loss {:.4}  test loss {:.4}  test accuracy {:.2}%",
        epoch.epoch,
        epoch.loss,
        epoch.test_loss,
        epoch.test_accuracy * 100.0
    )
}

/// The run in words.
fn report(summary: &Summary, folder: &RunFolder) -> String {
    let calls = match summary.compiler_calls {
        0 => "no call of the C compiler".to_string(),
        1 => "one call of the C compiler".to_string(),
        n => format!("{n} calls of the C compiler"),
    };
    let folder = folder.path().display();
    format!(
        "test accuracy {:.2}% after {} epochs; {:.1} s, {calls}\n\
         in {folder}: {MODEL}, {LOG}, training.svg, training.png; to test it:\n  \
         uopc eval --model {folder}\n",
        summary.test_accuracy * 100.0,
        summary.epochs,
        summary.train_seconds
    )
}
