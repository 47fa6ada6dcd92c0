//! Training runs: the loop, what it reports and what it leaves behind.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | [`run`]: steps, epochs, stopping and going on |
//! | `digits.rs` | the model, its data, one step, one test, the checkpoint |
//! | `folder.rs` | the folder of a run |
//! | `record.rs` | arguments and log of a run |
//! | `machine.rs` | what the record says about the machine |
//! | `progress.rs` | the bar on the terminal |
//!
//! With equal arguments and seed a run has the same losses to the last bit, whether it was
//! interrupted or not: the order of samples is a function of seed and epoch, and the checkpoint
//! holds all the rest.

pub mod digits;
pub mod folder;
pub mod machine;
pub mod progress;
pub mod record;

use std::sync::Arc;
use std::time::Instant;

use uopc::compile::Engine;
use uopc::tensor::with_engine;

use crate::failure::{Failure, Result};
use crate::plot;
use digits::{ARCHITECTURE, Trainer};
use folder::RunFolder;
use record::{Config, Epoch, Summary};

/// Where runs are kept, unless the user names a folder.
pub const RUNS: &str = "runs";

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The last epoch's number.
    pub epochs: u64,
    /// Steps of an epoch.
    pub steps: u64,
}

/// A step that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The number of its epoch, from 1.
    pub epoch: u64,
    /// Its number in the epoch, from 1.
    pub step: u64,
    /// The mean of the epoch's losses so far.
    pub mean_loss: f64,
    /// The test accuracy after the epoch before.
    pub test_accuracy: Option<f64>,
    /// Samples a second in this epoch so far.
    pub samples_per_second: f64,
}

/// What a run reports as it goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first step comes next; it compiles.
    Begin,
    /// A step was done.
    Step(Step),
    /// An epoch was done, tested, logged and saved.
    Epoch(Epoch),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All epochs are done.
    Done(Summary),
    /// It was stopped behind that step of that epoch, and saved.
    Stopped {
        /// The epoch's number, from 1.
        epoch: u64,
        /// How many of its steps are done.
        step: u64,
    },
}

/// Trains until all epochs are done or `stop` says so, which is asked before each step.
///
/// `resume` goes on from the folder's checkpoint; `watch` is told what happens, with the plan.
///
/// # Errors
/// When something can't be computed or written, and when the loss is no number any more.
pub fn run(
    engine: &Arc<Engine>,
    config: &Config,
    folder: &RunFolder,
    resume: bool,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(&Plan, &Event) -> Result<()>,
) -> Result<Outcome> {
    with_engine(engine, || {
        let calls = engine.stats().compiler_calls;
        let outcome = run_here(config, folder, resume, stop, watch)?;
        let Outcome::Done(mut summary) = outcome else {
            return Ok(outcome);
        };
        summary.compiler_calls = engine.stats().compiler_calls - calls;
        folder.log(&summary.to_json().to_string())?;
        Ok(Outcome::Done(summary))
    })
}

/// [`run`], without counting the calls of the compiler.
fn run_here(
    config: &Config,
    folder: &RunFolder,
    resume: bool,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(&Plan, &Event) -> Result<()>,
) -> Result<Outcome> {
    let began = Instant::now();
    let mut trainer = Trainer::new(config)?;
    let mut points = Vec::new();
    if resume {
        trainer.restore(folder)?;
        points = record::rewind(folder, trainer.epochs_done())?;
    } else {
        config.write(folder)?;
    }
    let plan = Plan {
        epochs: config.epochs,
        steps: trainer.steps(),
    };

    watch(&plan, &Event::Begin)?;
    let mut last = None;
    while trainer.epochs_done() < plan.epochs {
        let epoch = trainer.epochs_done() + 1;
        let (first, epoch_began) = (trainer.steps_done(), Instant::now());
        let rate = |done: u64| {
            ((done - first) * config.batch_size as u64) as f64 / epoch_began.elapsed().as_secs_f64()
        };
        while trainer.steps_done() < plan.steps {
            if stop() || done_unless_stopped(trainer.step(), stop)?.is_none() {
                return stopped(&trainer, folder);
            }
            let step = trainer.steps_done();
            let mean_loss = trainer.mean_loss();
            if !mean_loss.is_finite() {
                return Err(diverged(epoch, step, mean_loss, folder));
            }
            watch(
                &plan,
                &Event::Step(Step {
                    epoch,
                    step,
                    mean_loss,
                    test_accuracy: last.as_ref().map(|e: &Epoch| e.test_accuracy),
                    samples_per_second: rate(step),
                }),
            )?;
        }
        let samples_per_second = rate(plan.steps);
        let loss = trainer.mean_loss();
        let Some(test) = done_unless_stopped(trainer.test(), stop)? else {
            return stopped(&trainer, folder);
        };
        let done = Epoch {
            epoch,
            loss,
            test_loss: test.loss,
            test_accuracy: test.accuracy(),
            samples_per_second,
            seconds: began.elapsed().as_secs_f64(),
        };
        trainer.end_epoch();
        points.push(plot::Point {
            epoch: epoch as usize,
            loss,
            test_accuracy: done.test_accuracy,
        });
        folder.log(&done.to_json().to_string())?;
        trainer.save(folder)?;
        watch(&plan, &Event::Epoch(done.clone()))?;
        last = Some(done);
    }
    let Some(last) = last else {
        let epochs = plan.epochs;
        return Err(Failure::usage(format!(
            "the run has all of its {epochs} epochs; --epochs with a larger number goes on"
        )));
    };
    let train_seconds = began.elapsed().as_secs_f64();
    draw(config, folder, &points)?;
    Ok(Outcome::Done(Summary {
        epochs: last.epoch,
        test_accuracy: last.test_accuracy,
        final_loss: last.loss,
        train_seconds,
        compiler_calls: 0,
    }))
}

/// The result, or `None` if it failed because the user stopped the run: Ctrl-C in a terminal
/// reaches the C compiler, too, which then fails.
fn done_unless_stopped<T>(result: Result<T>, stop: &dyn Fn() -> bool) -> Result<Option<T>> {
    match result {
        Err(_) if stop() => Ok(None),
        result => result.map(Some),
    }
}

/// Saves a run that goes on later.
fn stopped(trainer: &Trainer, folder: &RunFolder) -> Result<Outcome> {
    trainer.save(folder)?;
    let (epoch, step) = (trainer.epochs_done() + 1, trainer.steps_done());
    Ok(Outcome::Stopped { epoch, step })
}

fn diverged(epoch: u64, step: u64, loss: f64, folder: &RunFolder) -> Failure {
    let folder = folder.path().display();
    Failure::failed(format!(
        "the loss is {loss} in epoch {epoch}, step {step}; a smaller --lr may help; {folder} holds \
         the state after epoch {}",
        epoch - 1
    ))
}

/// Draws the course of the run.
fn draw(config: &Config, folder: &RunFolder, points: &[plot::Point]) -> Result<()> {
    let Config {
        batch_size,
        lr,
        seed,
        ..
    } = config;
    let subtitle =
        format!("{ARCHITECTURE}, AdamW, learning rate {lr}, batches of {batch_size}, seed {seed}");
    plot::save(points, "Handwritten digits", &subtitle, folder.path())
        .map_err(|e| Failure::failed(e.to_string()))?;
    Ok(())
}
