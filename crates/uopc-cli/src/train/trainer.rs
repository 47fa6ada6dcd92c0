//! A run in the middle of its course: one step, one test, and the checkpoint.

use uopc::Tensor;
use uopc::data::{DataLoader, Epoch, LoaderState};
use uopc::io::safetensors;
use uopc::nn::{AdamW, Module, Optimizer};
use uopc::tensor::{DType, Shape};

use super::folder::{CHECKPOINT, MODEL, RECORD, RunFolder};
use super::network::{Network, Test};
use super::record::Config;
use crate::failure::{Failure, Result};

/// A run in the middle of its course.
pub struct Trainer {
    config: Config,
    loader: DataLoader,
    test: uopc::data::Labelled,
    model: Network,
    optimizer: AdamW,
    epochs_done: u64,
    steps_done: u64,
    /// Of the losses of the epoch's steps so far.
    loss_sum: f64,
    /// The rest of the epoch, once a step has asked for it.
    batches: Option<Epoch>,
}

impl Trainer {
    /// A run before its first step.
    ///
    /// # Errors
    /// When the arguments make no sense, or the weights can't be computed.
    pub fn new(config: &Config) -> Result<Trainer> {
        config.check()?;
        let data = config.source.load()?;
        Tensor::manual_seed(config.seed);
        let model = Network::new(config.source.task, config.model)?;
        let optimizer = AdamW::new(model.parameters(), config.lr)?;
        let (pixels, labels) = data.train.all()?;
        drop(data.train);
        // The order of samples is a function of the seed and the epoch's number alone. The rest
        // that fills no batch is left out of the epoch.
        let loader = DataLoader::new(&[pixels, labels], config.batch_size)?
            .shuffle(config.seed)
            .drop_last(true);
        Ok(Trainer {
            config: config.clone(),
            loader,
            test: data.test,
            model,
            optimizer,
            epochs_done: 0,
            steps_done: 0,
            loss_sum: 0.0,
            batches: None,
        })
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
        self.loader.len() as u64
    }

    /// The mean loss of the epoch's steps so far.
    pub fn mean_loss(&self) -> f64 {
        self.loss_sum / self.steps_done as f64
    }

    /// The model as it is now.
    pub fn model(&self) -> &Network {
        &self.model
    }

    /// One step: loss, gradients and update as one plan.
    ///
    /// # Errors
    /// When it can't be computed; then nothing has changed.
    pub fn step(&mut self) -> Result<()> {
        let outcome = self.next_step();
        if outcome.is_err() {
            // The batch that was taken is to come again.
            self.batches = None;
        }
        outcome
    }

    fn next_step(&mut self) -> Result<()> {
        let batches = match &mut self.batches {
            Some(batches) => batches,
            None => {
                self.loader.set_state(LoaderState {
                    epoch: self.epochs_done,
                    position: self.steps_done,
                })?;
                self.batches.insert(self.loader.iter())
            }
        };
        let batch = batches
            .next()
            .expect("a step is asked for within an epoch")?;
        let loss = self.model.forward(&batch[0])?.cross_entropy(&batch[1])?;
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
        self.model.test(&self.test)
    }

    /// The next step is the first of the next epoch.
    pub fn end_epoch(&mut self) {
        self.epochs_done += 1;
        self.steps_done = 0;
        self.loss_sum = 0.0;
        self.batches = None;
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
        let images = self.loader.rows() as u64;
        all.push((IMAGES.to_string(), Tensor::from_slice(&[images], ())?));
        let generator = Tensor::generator_state();
        all.push((GENERATOR.to_string(), Tensor::from_slice(&generator, [2])?));
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
                    "no checkpoint of {}: it has no tensor {name}",
                    self.model.task().words()
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
        let began = find(IMAGES, DType::U64, &[])?.to_vec::<u64>()?[0];
        let is = self.loader.rows() as u64;
        if began != is {
            return Err(wrong(format!(
                "the run began with {began} images, and there are {is} now; it goes on with the same data alone"
            )));
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
        let generator = find(GENERATOR, DType::U64, &[2])?.to_vec::<u64>()?;
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
        Tensor::set_generator_state([generator[0], generator[1]]);
        (self.epochs_done, self.loss_sum) = (epochs_done, loss_sum);
        self.steps_done = steps_done;
        self.batches = None;
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
/// How many images the training set has.
const IMAGES: &str = "progress.images";
/// The state of the generator of random numbers.
const GENERATOR: &str = "progress.generator";

fn prefixed(prefix: &str, tensors: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
    let named = |(name, t)| (format!("{prefix}{name}"), t);
    tensors.into_iter().map(named).collect()
}
