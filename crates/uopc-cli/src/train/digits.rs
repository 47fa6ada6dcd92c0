//! The model that learns the digits: its data, one step, one test, and the checkpoint.

use std::path::Path;

use uopc::Tensor;
use uopc::data::Labelled;
use uopc::data::digits::{self, CLASSES, Digits, PIXELS};
use uopc::io::safetensors;
use uopc::nn::{AdamW, Linear, Module, Optimizer, within};
use uopc::tensor::{DType, Generator, Shape, no_grad};

use super::folder::{CHECKPOINT, MODEL, RECORD, RunFolder};
use super::record::Config;
use crate::failure::{Failure, Result};

/// Units between the pixels and the classes.
pub const HIDDEN: usize = 128;

/// The model in words.
pub const ARCHITECTURE: &str = "MLP 64-128-10";

/// A network of two layers with relu between them.
#[derive(Debug)]
pub struct Mlp {
    hidden: Linear,
    output: Linear,
}

impl Mlp {
    /// A network that has learned nothing, with weights from the thread's generator.
    fn new() -> Result<Mlp> {
        Ok(Mlp {
            hidden: Linear::new(PIXELS, HIDDEN)?,
            output: Linear::new(HIDDEN, CLASSES)?,
        })
    }

    /// A trained network.
    ///
    /// # Errors
    /// When the file can't be read or holds something else.
    pub fn load(path: &Path) -> Result<Mlp> {
        let tensors = safetensors::load(path)?;
        let tensor = |name: &str| match tensors.iter().find(|(n, _)| n == name) {
            Some((_, t)) => Ok(t.clone()),
            None => Err(foreign(path, &format!("it has no tensor {name}"))),
        };
        let layer = |name: &str| -> Result<Linear> {
            let bias = Some(tensor(&format!("{name}.bias"))?);
            Ok(Linear {
                weight: tensor(&format!("{name}.weight"))?,
                bias,
            })
        };
        let model = Mlp {
            hidden: layer("hidden")?,
            output: layer("output")?,
        };
        let units = model.units();
        let wanted: [&[usize]; 4] = [&[PIXELS, units], &[units], &[units, CLASSES], &[CLASSES]];
        for ((name, tensor), wanted) in model.named_parameters().iter().zip(wanted) {
            if &tensor.shape()[..] != wanted || !tensor.dtype().is_float() {
                let (dtype, shape) = (tensor.dtype(), tensor.shape());
                return Err(foreign(
                    path,
                    &format!("{name} is {dtype} of shape {shape}"),
                ));
            }
        }
        Ok(model)
    }

    /// Units of the hidden layer.
    pub fn units(&self) -> usize {
        self.hidden.weight.shape().last().copied().unwrap_or(0)
    }

    /// How many numbers it has learned.
    pub fn size(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }

    /// The logits of images, a row each.
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        Ok(self.output.forward(&self.hidden.forward(images)?.relu()?)?)
    }

    /// What it makes of images whose labels are known, as one plan.
    ///
    /// # Errors
    /// When it can't be computed.
    pub fn test(&self, images: &Labelled) -> Result<Test> {
        let _off = no_grad();
        let (pixels, labels) = images.all()?;
        let logits = self.forward(&pixels)?;
        let loss = logits.cross_entropy(&labels)?;
        let predictions = logits.argmax(-1)?;
        Tensor::realize_all(&[&loss, &predictions])?;
        let predictions = predictions.cast(uopc::DType::I32)?.to_vec::<i32>()?;
        Ok(Test {
            loss: loss.item()?,
            predictions,
            labels: images.labels.clone(),
        })
    }
}

fn foreign(path: &Path, what: &str) -> Failure {
    Failure::failed(format!(
        "{}: no model of the digits: {what}",
        path.display()
    ))
}

impl Module for Mlp {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        [
            within("hidden", &self.hidden),
            within("output", &self.output),
        ]
        .concat()
    }
}

/// What a model makes of the test set.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// The mean cross-entropy, in nats.
    pub loss: f64,
    /// The digit that it sees in each image.
    pub predictions: Vec<i32>,
    /// The digit that is there.
    pub labels: Vec<i32>,
}

impl Test {
    /// How many images it gets right.
    pub fn right(&self) -> usize {
        let pairs = self.predictions.iter().zip(&self.labels);
        pairs.filter(|(p, l)| p == l).count()
    }

    /// The share of images that it gets right.
    pub fn accuracy(&self) -> f64 {
        self.right() as f64 / self.labels.len() as f64
    }

    /// How often it sees digit j in an image of digit i.
    pub fn confusion(&self) -> [[usize; CLASSES]; CLASSES] {
        let mut counts = [[0; CLASSES]; CLASSES];
        for (&p, &l) in self.predictions.iter().zip(&self.labels) {
            counts[l as usize][p as usize] += 1;
        }
        counts
    }
}

/// A run in the middle of its course.
pub struct Trainer {
    config: Config,
    data: Digits,
    model: Mlp,
    optimizer: AdamW,
    epochs_done: u64,
    steps_done: u64,
    /// Of the losses of the epoch's steps so far.
    loss_sum: f64,
    /// The rows of each step of the epoch.
    batches: Vec<Vec<usize>>,
}

impl Trainer {
    /// A run before its first step.
    ///
    /// # Errors
    /// When the arguments make no sense, or the weights can't be computed.
    pub fn new(config: &Config) -> Result<Trainer> {
        config.check()?;
        let data = digits::load()?;
        Tensor::manual_seed(config.seed);
        let model = Mlp::new()?;
        let optimizer = AdamW::new(model.parameters(), config.lr)?;
        let mut trainer = Trainer {
            config: config.clone(),
            data,
            model,
            optimizer,
            epochs_done: 0,
            steps_done: 0,
            loss_sum: 0.0,
            batches: Vec::new(),
        };
        trainer.shuffle();
        Ok(trainer)
    }

    /// Puts the samples in the order of the epoch that comes next, which is a function of the
    /// seed and the epoch's number alone. The rest that fills no batch is left out of the epoch.
    fn shuffle(&mut self) {
        // An odd factor makes neighbouring epochs and neighbouring seeds different generators.
        let epoch = self
            .epochs_done
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut generator = Generator::new(self.config.seed.wrapping_add(epoch));
        self.batches = self
            .data
            .train
            .shuffled(self.config.batch_size, &mut generator);
    }

    /// How many epochs are done.
    pub fn epochs_done(&self) -> u64 {
        self.epochs_done
    }

    /// How many steps of the epoch are done.
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// How many steps an epoch has.
    pub fn steps(&self) -> u64 {
        self.batches.len() as u64
    }

    /// The mean loss of the epoch's steps so far.
    pub fn mean_loss(&self) -> f64 {
        self.loss_sum / self.steps_done as f64
    }

    /// The model as it is now.
    pub fn model(&self) -> &Mlp {
        &self.model
    }

    /// The images.
    pub fn data(&self) -> &Digits {
        &self.data
    }

    /// One step: loss, gradients and update as one plan.
    ///
    /// # Errors
    /// When it can't be computed; then nothing has changed.
    pub fn step(&mut self) -> Result<()> {
        let (images, labels) = self
            .data
            .train
            .batch(&self.batches[self.steps_done as usize])?;
        let loss = self.model.forward(&images)?.cross_entropy(&labels)?;
        self.optimizer.zero_grad();
        loss.backward(self.optimizer.parameters())?;
        self.optimizer.step_with(&loss)?;
        self.loss_sum += loss.item()?;
        self.steps_done += 1;
        Ok(())
    }

    /// What the model makes of the test set now.
    ///
    /// # Errors
    /// When it can't be computed.
    pub fn test(&self) -> Result<Test> {
        self.model.test(&self.data.test)
    }

    /// The next step is the first of the next epoch.
    pub fn end_epoch(&mut self) {
        self.epochs_done += 1;
        self.steps_done = 0;
        self.loss_sum = 0.0;
        self.shuffle();
    }

    /// Saves the weights, and all that the run needs to go on.
    ///
    /// # Errors
    /// When the files can't be written.
    pub fn save(&self, folder: &RunFolder) -> Result<()> {
        let mut all = prefixed(WEIGHTS, self.model.named_parameters());
        all.extend(prefixed(OPTIMIZER, self.optimizer.state()?));
        let counters = [self.epochs_done, self.steps_done];
        all.push((COUNTERS.to_string(), Tensor::from_slice(&counters, [2])?));
        all.push((
            LOSS_SUM.to_string(),
            Tensor::from_slice(&[self.loss_sum], ())?,
        ));
        let Config {
            batch_size,
            lr,
            seed,
            ..
        } = self.config;
        for (name, number) in [(SEED, seed), (BATCH, batch_size as u64)] {
            all.push((name.to_string(), Tensor::from_slice(&[number], ())?));
        }
        all.push((RATE.to_string(), Tensor::from_slice(&[lr], ())?));
        // The model comes first: a checkpoint never claims more than the model's file has.
        self.model.save(folder.file(MODEL))?;
        safetensors::save(folder.file(CHECKPOINT), &all)?;
        Ok(())
    }

    /// Goes back to what was saved.
    ///
    /// # Errors
    /// When the checkpoint can't be read or is none of such a run, and when the record has got
    /// other arguments since.
    pub fn restore(&mut self, folder: &RunFolder) -> Result<()> {
        let path = folder.file(CHECKPOINT);
        let saved = safetensors::load(&path)?;
        let wrong = |what: String| Failure::failed(format!("{}: {what}", path.display()));
        let find = |name: &str, dtype: DType, shape: &[usize]| {
            let Some((_, t)) = saved.iter().find(|(n, _)| n == name) else {
                return Err(wrong(format!(
                    "no checkpoint of the digits: it has no tensor {name}"
                )));
            };
            if t.dtype() != dtype || t.shape()[..] != *shape {
                let (is, shape_is, shape) = (t.dtype(), t.shape(), Shape::new(shape));
                return Err(wrong(format!(
                    "{name} is {is} of shape {shape_is}, but {dtype} of shape {shape} is wanted"
                )));
            }
            Ok(t)
        };
        // An edited record would make a run that no arguments describe.
        let record = folder.file(RECORD);
        let changed = |key: &str, is: String, began: String| {
            Failure::failed(format!(
                "{}: `{key}` is {is}, but the run began with {began}; put that back",
                record.display()
            ))
        };
        let whole = [
            (SEED, self.config.seed),
            (BATCH, self.config.batch_size as u64),
        ];
        for (name, is) in whole {
            let began = find(name, DType::U64, &[])?.to_vec::<u64>()?[0];
            if began != is {
                let key = name.trim_start_matches(PROGRESS);
                return Err(changed(key, is.to_string(), began.to_string()));
            }
        }
        let (lr, began) = (self.config.lr, find(RATE, DType::F64, &[])?.item()?);
        if began != lr {
            return Err(changed("lr", lr.to_string(), began.to_string()));
        }
        let counters = find(COUNTERS, DType::U64, &[2])?.to_vec::<u64>()?;
        let (epochs_done, steps_done) = (counters[0], counters[1]);
        if epochs_done == u64::MAX {
            return Err(wrong(format!(
                "{COUNTERS} claims {epochs_done} epochs, more than a run can have"
            )));
        }
        if steps_done > self.steps() {
            let steps = self.steps();
            return Err(wrong(format!(
                "step {steps_done} of an epoch of {steps} steps"
            )));
        }
        let loss_sum = find(LOSS_SUM, DType::F64, &[])?.item()?;
        // All is checked before anything changes.
        let like = |name: &str, t: &Tensor| find(name, t.dtype(), &t.shape()[..]);
        for (name, own) in prefixed(OPTIMIZER, self.optimizer.state()?) {
            like(&name, &own)?;
        }
        let weights = prefixed(WEIGHTS, self.model.named_parameters());
        let weights = weights
            .iter()
            .map(|(name, own)| Ok((own, like(name, own)?)));
        let weights = weights.collect::<Result<Vec<(&Tensor, &Tensor)>>>()?;
        Tensor::assign_all(&weights, &[] as &[Tensor]).map_err(|e| wrong(e.to_string()))?;
        let own = |(name, t): &(String, Tensor)| {
            Some((name.strip_prefix(OPTIMIZER)?.to_string(), t.clone()))
        };
        let state: Vec<(String, Tensor)> = saved.iter().filter_map(own).collect();
        self.optimizer
            .set_state(&state)
            .map_err(|e| wrong(e.to_string()))?;
        (self.epochs_done, self.loss_sum) = (epochs_done, loss_sum);
        self.shuffle();
        self.steps_done = steps_done;
        Ok(())
    }
}

/// Beginnings and names of a checkpoint's entries.
const WEIGHTS: &str = "model.";
const OPTIMIZER: &str = "optimizer.";
const PROGRESS: &str = "progress.";
/// Epochs done and steps done of the next one.
const COUNTERS: &str = "progress.counters";
const LOSS_SUM: &str = "progress.loss_sum";
/// The arguments on which the steps to come depend.
const SEED: &str = "progress.seed";
const BATCH: &str = "progress.batch_size";
const RATE: &str = "progress.lr";

fn prefixed(prefix: &str, tensors: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
    let named = |(name, t)| (format!("{prefix}{name}"), t);
    tensors.into_iter().map(named).collect()
}
