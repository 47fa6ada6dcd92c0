//! Training runs: the loop, what it reports and what it leaves behind.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | [`run`]: steps, epochs, stopping and going on |
//! | `task.rs` | what can be learned, and its data |
//! | `network.rs` | the models, and what they make of a test set |
//! | `trainer.rs` | one step, one test, the checkpoint |
//! | `folder.rs` | the folder of a run |
//! | `record.rs` | arguments and log of a run |
//! | `machine.rs` | what the record says about the machine |
//! | `progress.rs` | the bar on the terminal |
//!
//! With equal arguments and seed a run has the same losses to the last bit, whether it was
//! interrupted or not: the order of samples is a function of seed and epoch, and the checkpoint
//! holds all the rest.

pub mod folder;
pub mod machine;
pub mod network;
pub mod progress;
pub mod record;
pub mod task;
pub mod trainer;

use std::sync::Arc;
use std::time::Instant;

use uopc::compile::Engine;
use uopc::tensor::with_engine;

use crate::failure::{Failure, Result};
use crate::plot;
use folder::RunFolder;
use record::{Config, Epoch, Summary};
use trainer::Trainer;

/// Where runs are kept, unless the user names a folder.
pub const RUNS: &str = "runs";

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The last epoch's number.
    pub epochs: u64,
    /// Steps of an epoch.
    pub steps: u64,
    /// Steps of all epochs that were done before the run was resumed.
    pub done: u64,
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
        if trainer.epochs_done() >= config.epochs {
            let epochs = trainer.epochs_done();
            return Err(Failure::usage(format!(
                "the run has all of its {epochs} epochs; --epochs with a larger number goes on"
            )));
        }
        // The log comes first: if it can't be read, the record says nothing of this attempt.
        points = record::rewind(folder, trainer.epochs_done())?;
        config.write_resumed(folder)?;
    } else {
        // From here on there is something to go on from, whatever ends the run. The record comes
        // last: as long as it is missing, the folder holds no run.
        trainer.save(folder)?;
        config.write(folder)?;
    }
    let steps = trainer.steps();
    let done = trainer
        .epochs_done()
        .saturating_mul(steps)
        .saturating_add(trainer.steps_done());
    let plan = Plan {
        epochs: config.epochs,
        steps,
        done,
    };
    watch(&plan, &Event::Begin)?;

    let mut accuracy = None;
    loop {
        let mut step_done = |step: Step| watch(&plan, &Event::Step(step));
        let epoch = train_epoch(&mut trainer, config, accuracy, stop, &mut step_done)?;
        let Some(mut epoch) = epoch else {
            trainer.save(folder)?;
            let (epoch, step) = (trainer.epochs_done() + 1, trainer.steps_done());
            return Ok(Outcome::Stopped { epoch, step });
        };
        trainer.end_epoch();
        epoch.seconds = began.elapsed().as_secs_f64();
        accuracy = Some(epoch.test_accuracy);
        points.push(plot::Point {
            epoch: epoch.epoch as usize,
            loss: epoch.loss,
            test_accuracy: epoch.test_accuracy,
        });
        folder.log(&epoch.to_json().to_string())?;
        trainer.save(folder)?;
        watch(&plan, &Event::Epoch(epoch.clone()))?;
        if epoch.epoch == plan.epochs {
            draw(config, folder, &points)?;
            return Ok(Outcome::Done(Summary {
                epochs: epoch.epoch,
                test_accuracy: epoch.test_accuracy,
                final_loss: epoch.loss,
                train_seconds: began.elapsed().as_secs_f64(),
                compiler_calls: 0,
            }));
        }
    }
}

/// The rest of an epoch and the test behind it; `None` if the user stopped it.
fn train_epoch(
    trainer: &mut Trainer,
    config: &Config,
    test_accuracy: Option<f64>,
    stop: &dyn Fn() -> bool,
    step_done: &mut dyn FnMut(Step) -> Result<()>,
) -> Result<Option<Epoch>> {
    let epoch = trainer.epochs_done() + 1;
    let (first, began) = (trainer.steps_done(), Instant::now());
    let rate = |steps_done: u64| {
        let samples = (steps_done - first) * config.batch_size as u64;
        samples as f64 / began.elapsed().as_secs_f64()
    };
    while trainer.steps_done() < trainer.steps() {
        if stop() || done_unless_stopped(trainer.step(), stop)?.is_none() {
            return Ok(None);
        }
        let (step, mean_loss) = (trainer.steps_done(), trainer.mean_loss());
        if !mean_loss.is_finite() {
            let saved = match (first, epoch) {
                (0, 1) => "before the first step".to_string(),
                (0, _) => format!("after epoch {}", epoch - 1),
                _ => format!("after step {first} of epoch {epoch}"),
            };
            return Err(Failure::failed(format!(
                "the loss is {mean_loss} in epoch {epoch}, step {step}; a smaller --lr may help; \
                 what was saved is the state {saved}"
            )));
        }
        let samples_per_second = rate(step);
        step_done(Step {
            epoch,
            step,
            mean_loss,
            test_accuracy,
            samples_per_second,
        })?;
    }
    let samples_per_second = rate(trainer.steps());
    let test = done_unless_stopped(trainer.test(), stop)?;
    Ok(test.map(|test| Epoch {
        epoch,
        loss: trainer.mean_loss(),
        test_loss: test.loss,
        test_accuracy: test.accuracy(),
        samples_per_second,
        seconds: 0.0,
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

/// Draws the course of the run.
fn draw(config: &Config, folder: &RunFolder, points: &[plot::Point]) -> Result<()> {
    let Config {
        batch_size, seed, ..
    } = config;
    let lr = config.rate();
    let architecture = config.architecture();
    let subtitle =
        format!("{architecture}, AdamW, learning rate {lr}, batches of {batch_size}, seed {seed}");
    let title = config.source.task.title();
    plot::save(points, title, &subtitle, folder.path())
        .map_err(|e| Failure::failed(e.to_string()))?;
    Ok(())
}
