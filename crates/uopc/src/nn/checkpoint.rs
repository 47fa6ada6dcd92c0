//! A training run in one file: model, optimiser, schedule, averages and random numbers together.
//!
//! All that a run remembers is tensors with names, so the file is a safetensors file in which the
//! names of each part begin with the part's own. A run that goes on from it computes the same bits
//! as one that was never interrupted, if its data come in the same order.

use std::path::Path;

use super::saved::{entry, restore, saved_words};
use super::{Ema, Module, Optimizer, Scheduler, setting_error};
use crate::error::Result;
use crate::io::safetensors;
use crate::tensor::{Site, Tensor};

/// Something that can be saved and continued: a part of a training run.
pub trait Stateful {
    /// All that it remembers, by name.
    ///
    /// # Errors
    /// When memory runs out.
    fn saved_state(&self) -> Result<Vec<(String, Tensor)>>;

    /// Continues from a saved state.
    ///
    /// # Errors
    /// When an entry is missing or does not fit. Then nothing has changed.
    fn continue_from(&mut self, state: &[(String, Tensor)]) -> Result<()>;
}

/// The parameters and other tensors of a model as a part of a run.
pub struct Model<'a>(pub &'a dyn Module);

impl Stateful for Model<'_> {
    fn saved_state(&self) -> Result<Vec<(String, Tensor)>> {
        Ok(self.0.named_state())
    }

    fn continue_from(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        restore(state, &self.0.named_state())
    }
}

/// The random numbers of this thread as a part of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomState;

impl Stateful for RandomState {
    fn saved_state(&self) -> Result<Vec<(String, Tensor)>> {
        let state = Tensor::from(Tensor::random_state());
        Ok(vec![("generator".to_string(), state)])
    }

    fn continue_from(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let words: [u64; 2] = saved_words("generator", entry(state, "generator")?)?;
        Tensor::set_random_state(words);
        Ok(())
    }
}

impl<O: Optimizer> Stateful for O {
    fn saved_state(&self) -> Result<Vec<(String, Tensor)>> {
        self.state()
    }

    fn continue_from(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        self.set_state(state)
    }
}

impl Stateful for Scheduler {
    fn saved_state(&self) -> Result<Vec<(String, Tensor)>> {
        self.state()
    }

    fn continue_from(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        self.set_state(state)
    }
}

impl Stateful for Ema {
    fn saved_state(&self) -> Result<Vec<(String, Tensor)>> {
        self.state()
    }

    fn continue_from(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        self.set_state(state)
    }
}

/// Writes the parts of a training run to one file, each under its name.
///
/// ```
/// use uopc::{Tensor, nn::{self, AdamW, Linear, Model, Module, Optimizer, RandomState}};
///
/// let layer = Linear::new(2, 1)?;
/// let mut optimizer = AdamW::new(layer.parameters(), 0.1)?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("run.safetensors");
/// nn::save_checkpoint(&path, &[
///     ("model", &Model(&layer)),
///     ("optimizer", &optimizer),
///     ("random", &RandomState),
/// ])?;
/// nn::load_checkpoint(&path, &mut [
///     ("model", &mut Model(&layer)),
///     ("optimizer", &mut optimizer),
///     ("random", &mut RandomState),
/// ])?;
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When a name is empty, has a dot or is there twice, and when the file can't be written.
#[track_caller]
pub fn save_checkpoint(path: impl AsRef<Path>, parts: &[(&str, &dyn Stateful)]) -> Result<()> {
    let _site = Site::caller().enter();
    check_names(parts.iter().map(|(name, _)| *name))?;
    let mut tensors = Vec::new();
    for (part, stateful) in parts {
        let state = stateful.saved_state()?.into_iter();
        tensors.extend(state.map(|(name, t)| (format!("{part}.{name}"), t)));
    }
    safetensors::save(path, &tensors)
}

/// Continues the parts of a training run from a file that [`save_checkpoint`] wrote.
///
/// # Errors
/// When the file can't be read, a part is not in it, or an entry does not fit. Then nothing has
/// changed.
#[track_caller]
pub fn load_checkpoint(
    path: impl AsRef<Path>,
    parts: &mut [(&str, &mut dyn Stateful)],
) -> Result<()> {
    let _site = Site::caller().enter();
    check_names(parts.iter().map(|(name, _)| *name))?;
    let tensors = safetensors::load(path)?;
    // What each part had, for the case that a later one does not fit.
    let mut before = Vec::new();
    let mut failure = None;
    for (part, stateful) in parts.iter_mut() {
        let prefix = format!("{part}.");
        let own = tensors.iter().filter_map(|(name, t)| {
            let name = name.strip_prefix(&prefix)?;
            Some((name.to_string(), t.clone()))
        });
        let own: Vec<(String, Tensor)> = own.collect();
        let continued = kept(*stateful).and_then(|former| {
            stateful.continue_from(&own)?;
            Ok(former)
        });
        match continued {
            Ok(former) => before.push(former),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let Some(error) = failure else {
        return Ok(());
    };
    for ((_, stateful), former) in parts.iter_mut().zip(before) {
        stateful.continue_from(&former)?;
    }
    Err(error)
}

/// The state as it is now, which later updates do not change.
fn kept(stateful: &dyn Stateful) -> Result<Vec<(String, Tensor)>> {
    let state = stateful.saved_state()?.into_iter();
    state.map(|(name, t)| Ok((name, t.detach()?))).collect()
}

fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if name.is_empty() || name.contains('.') || !seen.insert(name) {
            return Err(setting_error(format!(
                "checkpoint: {name:?} is no name for a part; it is not empty, has no dot and is \
                 there once"
            )));
        }
    }
    Ok(())
}
