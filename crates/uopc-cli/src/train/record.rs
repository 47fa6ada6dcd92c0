//! What a run writes about itself: the record of its arguments, and a line of JSON an epoch.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::folder::{LOG, RECORD, RunFolder};
use super::machine;
use super::network::{self, Network};
use super::task::{Kind, Source, Task};
use crate::failure::{Failure, Result};
use crate::plot::Point;

/// What decides the course of a run: with equal values, equal bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What is learned, from which data.
    pub source: Source,
    /// What learns it.
    pub model: Kind,
    /// How often the training set is gone through.
    pub epochs: u64,
    /// How many samples a step looks at.
    pub batch_size: usize,
    /// The rate at which AdamW learns.
    pub lr: f64,
    /// Decides the first weights and the order of samples.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config::of(Source::DIGITS, Kind::Mlp)
    }
}

impl Config {
    /// What a run of that task does unless it is told otherwise.
    pub fn of(source: Source, model: Kind) -> Config {
        let (epochs, batch_size, lr) = match (source.task, model) {
            (Task::Digits, _) => (40, 32, 0.004),
            (Task::Mnist, Kind::Mlp) => (3, 128, 0.001),
            (Task::Mnist, Kind::Cnn) => (2, 64, 0.001),
        };
        Config {
            source,
            model,
            epochs,
            batch_size,
            lr,
            seed: 0,
        }
    }

    /// Whether the numbers make sense.
    ///
    /// # Errors
    /// A usage failure for a learning rate that is none, and for a batch that can't be filled.
    pub fn check(&self) -> Result<()> {
        if let (Task::Digits, Kind::Cnn) = (self.source.task, self.model) {
            return Err(network::too_small());
        }
        match self.problem()? {
            Some((key, text)) => Err(Failure::usage(format!(
                "--{} {text}",
                key.replace('_', "-")
            ))),
            None => Ok(()),
        }
    }

    /// The model in words.
    pub fn architecture(&self) -> String {
        Network::describe(self.source.task, self.model)
    }

    /// The learning rate as it is shown: one of 300 digits has an exponent.
    pub fn rate(&self) -> String {
        let lr = self.lr;
        match lr.abs() {
            size if size != 0.0 && !(1e-6..1e9).contains(&size) => format!("{lr:e}"),
            _ => lr.to_string(),
        }
    }

    /// The number that makes no sense, by its key in the record, and what would.
    fn problem(&self) -> Result<Option<(&'static str, String)>> {
        let (lr, size) = (self.lr, self.batch_size);
        if !(lr.is_finite() && lr > 0.0) {
            let lr = self.rate();
            let text = format!("{lr}: use a number above 0, such as 0.004");
            return Ok(Some(("lr", text)));
        }
        let n = self.source.images()?;
        if !(1..=n).contains(&size) {
            let text = format!("{size}: there are {n} images to train with; use 1 to {n}");
            return Ok(Some(("batch_size", text)));
        }
        Ok(None)
    }

    /// Writes the record of a run that begins.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, folder: &RunFolder) -> Result<()> {
        let mut arguments = json!({
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "lr": self.lr,
        });
        if let Some(data) = &self.source.data {
            arguments["model"] = self.model.name().into();
            arguments["data"] = data.display().to_string().into();
        }
        let record = json!({
            "task": self.source.task.name(),
            "arguments": arguments,
            "seed": self.seed,
            "version": env!("CARGO_PKG_VERSION"),
            "cpu": machine::cpu(),
            "cores": machine::cores(),
            "system": machine::system(),
            "started": machine::now(),
        });
        folder.write(RECORD, format!("{record:#}\n").as_bytes())
    }

    /// Notes in the record that a run goes on, with the epochs that it is to have now.
    ///
    /// # Errors
    /// When it can't be read or written.
    pub fn write_resumed(&self, folder: &RunFolder) -> Result<()> {
        let mut record = read_record(folder)?;
        record["arguments"]["epochs"] = self.epochs.into();
        if let Some(data) = &self.source.data {
            record["arguments"]["data"] = data.display().to_string().into();
        }
        let mut resumed = record["resumed"].take();
        if !resumed.is_array() {
            resumed = json!([]);
        }
        if let Some(list) = resumed.as_array_mut() {
            list.push(json!({
                "version": env!("CARGO_PKG_VERSION"),
                "cpu": machine::cpu(),
                "started": machine::now(),
            }));
        }
        record["resumed"] = resumed;
        folder.write(RECORD, format!("{record:#}\n").as_bytes())
    }

    /// Reads the record of a run that is to go on.
    ///
    /// # Errors
    /// When it can't be read, or says something else than this program writes.
    pub fn read(folder: &RunFolder) -> Result<Config> {
        Config::read_with(folder, None)
    }

    /// [`Config::read`] with the data in another folder, where the user has moved it.
    ///
    /// # Errors
    /// Those of [`Config::read`].
    pub fn read_with(folder: &RunFolder, data: Option<&Path>) -> Result<Config> {
        let record = read_record(folder)?;
        let path = folder.file(RECORD);
        let wrong = |what: &str| Failure::failed(format!("{}: {what}", path.display()));
        let task = Task::ALL.into_iter().find(|t| record["task"] == t.name());
        let task = task.ok_or_else(|| wrong("`task` is not \"digits\" or \"mnist\""))?;
        let arguments = &record["arguments"];
        let whole = |value: &Value, key: &str| {
            let number = value[key].as_u64();
            number.ok_or_else(|| wrong(&format!("`{key}` is missing or no whole number")))
        };
        let lr = arguments["lr"].as_f64();
        let (model, data) = match task {
            Task::Digits => (Kind::Mlp, None),
            Task::Mnist => {
                let model = Kind::ALL
                    .into_iter()
                    .find(|k| arguments["model"] == k.name());
                let model = model.ok_or_else(|| wrong("`model` is not \"mlp\" or \"cnn\""))?;
                let folder = data.map(Path::to_path_buf);
                let folder = folder.or_else(|| Some(arguments["data"].as_str()?.into()));
                let folder = folder.ok_or_else(|| wrong("`data` is missing or no text"))?;
                (model, Some(folder))
            }
        };
        let config = Config {
            source: Source { task, data },
            model,
            epochs: whole(arguments, "epochs")?,
            batch_size: whole(arguments, "batch_size")? as usize,
            lr: lr.ok_or_else(|| wrong("`lr` is missing or no number"))?,
            seed: whole(&record, "seed")?,
        };
        match config.problem()? {
            Some((key, text)) => Err(wrong(&format!("`{key}` is {text}"))),
            None => Ok(config),
        }
    }
}

/// The record as it stands in the folder.
fn read_record(folder: &RunFolder) -> Result<Value> {
    let path = folder.file(RECORD);
    let text = fs::read_to_string(&path).map_err(|e| Failure::file(&path, "can't read", &e))?;
    serde_json::from_str(&text)
        .map_err(|e| Failure::failed(format!("{}: no JSON: {e}", path.display())))
}

/// What an epoch gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: u64,
    /// The mean of the losses of its steps, in nats per sample.
    pub loss: f64,
    /// The loss on the test set after it.
    pub test_loss: f64,
    /// The share of the test set that is classified correctly after it.
    pub test_accuracy: f64,
    /// Samples a second of training, without the test.
    pub samples_per_second: f64,
    /// Seconds since the program began to train, compilation included.
    pub seconds: f64,
}

impl Epoch {
    /// The line of the log.
    pub fn to_json(&self) -> Value {
        json!({
            "epoch": self.epoch,
            "loss": self.loss,
            "test_loss": self.test_loss,
            "test_accuracy": self.test_accuracy,
            "samples_per_second": self.samples_per_second.round(),
            "seconds": milli(self.seconds),
        })
    }
}

/// What a whole run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How many epochs it has gone through, those before `--resume` included.
    pub epochs: u64,
    /// The share of the test set that the trained model classifies correctly.
    pub test_accuracy: f64,
    /// The mean loss of the last epoch's steps.
    pub final_loss: f64,
    /// Seconds that this process took for everything, compilation included.
    pub train_seconds: f64,
    /// How often this process called the C compiler.
    pub compiler_calls: u64,
}

impl Summary {
    /// The log's last line.
    pub fn to_json(&self) -> Value {
        json!({
            "epochs": self.epochs,
            "test_accuracy": self.test_accuracy,
            "final_loss": self.final_loss,
            "train_seconds": milli(self.train_seconds),
            "compiler_calls": self.compiler_calls,
        })
    }
}

/// Seconds to the millisecond.
fn milli(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// The log of a run that goes on: keeps the lines of the epochs up to `last`, drops what stands
/// behind them, and returns their points for the plot.
///
/// # Errors
/// When the log can't be read or written.
pub fn rewind(folder: &RunFolder, last: u64) -> Result<Vec<Point>> {
    let path = folder.file(LOG);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(Failure::file(&path, "can't read", &e)),
    };
    let mut points = Vec::new();
    let mut kept = String::new();
    for line in text.lines() {
        // A run that was killed while it wrote may have left half a line.
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let Some(epoch) = value["epoch"].as_u64().filter(|&epoch| epoch <= last) else {
            continue;
        };
        let number = |key: &str| value[key].as_f64().unwrap_or(f64::NAN);
        points.push(Point {
            epoch: epoch as usize,
            loss: number("loss"),
            test_accuracy: number("test_accuracy"),
        });
        kept += line;
        kept.push('\n');
    }
    folder.write(LOG, kept.as_bytes())?;
    Ok(points)
}
