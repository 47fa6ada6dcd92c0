//! Saved states read back: entries by name, checked before anything changes.

use crate::error::Result;
use crate::tensor::{DType, Error, Site, Tensor};

/// The entry of a saved state.
pub fn entry<'a>(state: &'a [(String, Tensor)], name: &str) -> Result<&'a Tensor> {
    match state.iter().find(|(n, _)| n == name) {
        Some((_, t)) => Ok(t),
        None => Err(shape_error(format!("the state has no entry {name}"))),
    }
}

/// Whether the entry of a saved state has the dtype in which it is kept.
fn fits_dtype(name: &str, saved: &Tensor, needed: DType) -> Result<()> {
    if saved.dtype() == needed {
        return Ok(());
    }
    let dtype = saved.dtype();
    let message = format!("the entry {name} is {dtype}, and {needed} is needed; cast it");
    Err(Error::DType {
        op: "set_state",
        message,
        site: Site::current(),
    })
}

/// The number of steps in a saved state.
pub fn saved_steps(saved: &Tensor, whose: &str) -> Result<u64> {
    // What f64 counts one by one; no training gets there, so more is a damaged state.
    const MOST: u64 = 1 << 53;
    fits_dtype("steps", saved, DType::U64)?;
    match saved.to_vec::<u64>()?[..] {
        [steps] if steps <= MOST => Ok(steps),
        ref other => Err(shape_error(format!(
            "the entry steps is one number of steps, at most 2^53, not {other:?}; the state is \
             damaged or not {whose}'s"
        ))),
    }
}

/// The learning rates of so many groups in a saved state.
pub fn saved_rates(name: &str, saved: &Tensor, groups: usize) -> Result<Vec<f64>> {
    fits_dtype(name, saved, DType::F64)?;
    let rates = saved.to_vec::<f64>()?;
    if saved.rank() == 1 && rates.len() == groups {
        return Ok(rates);
    }
    Err(shape_error(format!(
        "the entry {name} has shape {}, and there are {groups} groups of parameters",
        saved.shape()
    )))
}

/// Words of a saved state, such as those of a generator.
pub fn saved_words<const N: usize>(name: &str, saved: &Tensor) -> Result<[u64; N]> {
    fits_dtype(name, saved, DType::U64)?;
    let words = saved.to_vec::<u64>()?;
    let found = words.len();
    words.try_into().map_err(|_| {
        shape_error(format!(
            "the entry {name} has {found} numbers, and {N} are needed"
        ))
    })
}

/// Gives tensors the values that are saved under their names, all or none.
pub fn restore(state: &[(String, Tensor)], targets: &[(String, Tensor)]) -> Result<()> {
    let mut updates = Vec::new();
    for (name, target) in targets {
        let saved = entry(state, name)?;
        if saved.shape() != target.shape() {
            let (shape, needed) = (saved.shape(), target.shape());
            return Err(shape_error(format!(
                "the entry {name} has shape {shape}, and {needed} is needed; the state is that of \
                 something else"
            )));
        }
        fits_dtype(name, saved, target.dtype())?;
        updates.push((target, saved));
    }
    Tensor::assign_all(&updates, &[] as &[Tensor])
}

fn shape_error(message: String) -> Error {
    Error::Shape {
        op: "set_state",
        message,
        site: Site::current(),
    }
}
