//! What optimisers are made of: parameters, alone or in groups, and settings.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use uopc::nn::{Adam, AdamW, Descent, Muon, MuonScale, Optimizer, RmsProp, Sgd, UpdateRule};
use uopc::{Error, Result, Tensor};

use crate::convert::{AnyTensor, Real, shown};
use crate::error::exception;
use crate::run::{build, compute};
use crate::tensor::{PyTensor, located, type_error};

/// The tensors that an optimiser is given, in their order: any iterable of them, or something with
/// a method `parameters`.
pub struct Parameters(Vec<Py<PyTensor>>);

impl<'py> FromPyObject<'_, 'py> for Parameters {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Parameters> {
        let py = ob.py();
        // A tensor is iterable too, over its first axis; a dict over its names.
        let remedy = if ob.is_instance_of::<PyTensor>() {
            Some("a list of tensors is needed, not one tensor; write [tensor]")
        } else if ob.is_instance_of::<PyDict>() || ob.is_instance_of::<PyString>() {
            Some("tensors are needed, not their names; pass the dict's values()")
        } else {
            None
        };
        if let Some(remedy) = remedy {
            return Err(located::<PyTypeError>(py, remedy));
        }
        let list = match ob.hasattr(intern!(py, "parameters"))? {
            true => ob.call_method0(intern!(py, "parameters"))?,
            false => ob.to_owned(),
        };
        let mut tensors = Vec::new();
        let items = list.try_iter().map_err(|_| {
            let message = format!("a list of tensors is needed, not {}", shown(&list));
            located::<PyTypeError>(py, message)
        })?;
        for item in items {
            match item?.cast_into::<PyTensor>() {
                Ok(tensor) => tensors.push(tensor.unbind()),
                Err(other) => {
                    let found = other.into_inner().get_type().name()?;
                    let k = tensors.len();
                    let message = format!("an optimiser updates tensors; item {k} is a {found}");
                    return Err(located::<PyTypeError>(py, message));
                }
            }
        }
        Ok(Parameters(tensors))
    }
}

impl Parameters {
    pub fn tensors(&self) -> Vec<Tensor> {
        self.0.iter().map(|p| p.get().tensor.clone()).collect()
    }
}

/// The two rates at which running means forget.
pub struct Betas(pub f64, pub f64);

impl<'py> FromPyObject<'_, 'py> for Betas {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Betas> {
        let refused = || {
            let message = format!(
                "two numbers are needed, as (0.9, 0.999), not {}",
                shown(&ob)
            );
            located::<PyTypeError>(ob.py(), message)
        };
        let mut items = ob.try_iter().map_err(|_| refused())?;
        match (items.next(), items.next(), items.next()) {
            (Some(first), Some(second), None) => {
                let [first, second] = [first?, second?].map(|beta| beta.extract::<Real>());
                Ok(Betas(first?.0, second?.0))
            }
            _ => Err(refused()),
        }
    }
}

/// The entries of an optimiser's state.
pub fn entries(state: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Tensor)>> {
    let py = state.py();
    let Ok(dict) = state.cast::<PyDict>() else {
        let class = state.get_type().name()?;
        let message = format!("a dict as state_dict() gives it is needed, not {class}");
        return Err(type_error(py, "load_state_dict", message));
    };
    let entry = |(name, value): (Bound<PyAny>, Bound<PyAny>)| {
        let Ok(name) = name.extract() else {
            let message = format!("the entries have names, and {} is none", shown(&name));
            return Err(type_error(py, "load_state_dict", message));
        };
        Ok((name, value.extract::<AnyTensor>()?.0))
    };
    dict.iter().map(entry).collect()
}

/// What the library finds wrong with a list of parameters is a wrong value here.
fn refused(error: Error) -> PyErr {
    match error {
        Error::Gradient { .. } => PyValueError::new_err(error.to_string()),
        other => exception(other),
    }
}

/// The settings of one kind of optimiser, as Python names them.
pub trait Settings: Clone + Send {
    type Rule: UpdateRule + Send;

    /// Sets the one of that name, if there is such a one.
    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool>;

    fn make(&self, parameters: Vec<Tensor>) -> Result<Descent<Self::Rule>>;
}

/// Parameters and what optimises them.
type Made<R> = (Vec<Py<PyTensor>>, Descent<R>);

/// The parameters and the optimiser of them all: `params` is a list of tensors, or one of dicts,
/// each with the `params` of a group and settings that differ from the others'.
pub fn made<S: Settings>(params: &Bound<'_, PyAny>, settings: S) -> PyResult<Made<S::Rule>> {
    let py = params.py();
    let mut groups: Vec<(Parameters, S)> = Vec::new();
    match dicts(params)? {
        None => groups.push((params.extract()?, settings)),
        Some(dicts) => {
            for dict in dicts {
                let mut own = settings.clone();
                let mut tensors = None;
                for (name, value) in dict {
                    let name: String = name.extract()?;
                    if name == "params" {
                        tensors = Some(match value.cast::<PyTensor>() {
                            Ok(one) => Parameters(vec![one.clone().unbind()]),
                            Err(_) => value.extract()?,
                        });
                    } else if !own.set(&name, &value)? {
                        let message = format!("a group has no setting {name}");
                        return Err(located::<PyTypeError>(py, message));
                    }
                }
                let Some(tensors) = tensors else {
                    let message = "a group is a dict with its tensors under \"params\"";
                    return Err(located::<PyValueError>(py, message));
                };
                groups.push((tensors, own));
            }
        }
    }
    let mut all = Vec::new();
    let mut lists = Vec::new();
    for (parameters, settings) in groups {
        lists.push((parameters.tensors(), settings));
        all.extend(parameters.0);
    }
    // The outer result is that of the call, the inner one that of the library.
    let joined = compute(py, || {
        let mut joined: Option<Descent<S::Rule>> = None;
        for (tensors, settings) in lists {
            let own = settings.make(tensors);
            let all = match (joined.take(), own) {
                (_, Err(error)) => return Ok(Err(error)),
                (None, own) => own,
                (Some(earlier), Ok(own)) => earlier.and(own),
            };
            match all {
                Ok(all) => joined = Some(all),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(joined))
    })?;
    let Some(joined) = joined.map_err(refused)? else {
        return Err(PyValueError::new_err(
            "there is no group of parameters; the list is empty",
        ));
    };
    build(py, || joined.check())?;
    Ok((all, joined))
}

/// The dicts in a list, if it is one of dicts.
fn dicts<'py>(params: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyDict>>>> {
    let items: Vec<Bound<PyAny>> = if let Ok(list) = params.cast::<PyList>() {
        list.iter().collect()
    } else if let Ok(tuple) = params.cast::<PyTuple>() {
        tuple.iter().collect()
    } else {
        return Ok(None);
    };
    if !items
        .first()
        .is_some_and(|item| item.is_instance_of::<PyDict>())
    {
        return Ok(None);
    }
    let dict = |item: Bound<'py, PyAny>| {
        item.cast_into::<PyDict>().map_err(|other| {
            let message = format!(
                "groups are dicts, and {} is none",
                shown(&other.into_inner())
            );
            located::<PyTypeError>(params.py(), message)
        })
    };
    items
        .into_iter()
        .map(dict)
        .collect::<PyResult<_>>()
        .map(Some)
}

/// A setting of Python read from an object.
trait Setting: Sized {
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Self>;
}

impl Setting for f64 {
    fn of(value: &Bound<'_, PyAny>) -> PyResult<f64> {
        Ok(value.extract::<Real>()?.0)
    }
}

impl Setting for bool {
    fn of(value: &Bound<'_, PyAny>) -> PyResult<bool> {
        value.extract()
    }
}

impl Setting for (f64, f64) {
    fn of(value: &Bound<'_, PyAny>) -> PyResult<(f64, f64)> {
        let betas: Betas = value.extract()?;
        Ok((betas.0, betas.1))
    }
}

/// How large Muon's steps are, by PyTorch's names.
#[derive(Clone, Copy)]
pub struct Scale(MuonScale);

impl Scale {
    pub fn original() -> Scale {
        Scale(MuonScale::Original)
    }
}

impl<'py> FromPyObject<'_, 'py> for Scale {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<Scale> {
        Scale::of(&ob)
    }
}

impl Setting for Scale {
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Scale> {
        if value.is_none() {
            return Ok(Scale(MuonScale::Original));
        }
        match value.extract::<String>().as_deref() {
            Ok("original") => Ok(Scale(MuonScale::Original)),
            Ok("match_rms_adamw") => Ok(Scale(MuonScale::MatchRmsAdamW)),
            _ => {
                let message = format!(
                    "adjust_lr_fn is \"original\" or \"match_rms_adamw\", not {}",
                    shown(value)
                );
                Err(located::<PyValueError>(value.py(), message))
            }
        }
    }
}

macro_rules! settings {
    ($($name:ident: $rule:ty { $($field:ident: $type:ty),* } |$s:ident, $p:ident| $make:expr;)*) => { $(
        #[derive(Clone)]
        pub struct $name { $(pub $field: $type),* }

        impl Settings for $name {
            type Rule = $rule;

            fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
                match name {
                    $(stringify!($field) => self.$field = <$type>::of(value)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn make(&self, $p: Vec<Tensor>) -> Result<Descent<$rule>> {
                let $s = self;
                $make
            }
        }
    )* };
}

settings! {
    SgdSettings: uopc::nn::SgdRule {
        lr: f64, momentum: f64, weight_decay: f64, nesterov: bool
    } |s, p| {
        let sgd = Sgd::with_momentum(p, s.lr, s.momentum)?;
        Ok(sgd.weight_decay(s.weight_decay).nesterov(s.nesterov))
    };
    AdamSettings: uopc::nn::AdamRule {
        lr: f64, betas: (f64, f64), eps: f64, weight_decay: f64
    } |s, p| {
        let adam = Adam::new(p, s.lr)?.betas(s.betas.0, s.betas.1);
        Ok(adam.eps(s.eps).weight_decay(s.weight_decay))
    };
    AdamWSettings: uopc::nn::AdamWRule {
        lr: f64, betas: (f64, f64), eps: f64, weight_decay: f64
    } |s, p| {
        let adam = AdamW::new(p, s.lr)?.betas(s.betas.0, s.betas.1);
        Ok(adam.eps(s.eps).weight_decay(s.weight_decay))
    };
    RmsPropSettings: uopc::nn::RmsPropRule {
        lr: f64, alpha: f64, eps: f64, weight_decay: f64, momentum: f64, centered: bool
    } |s, p| {
        let rms = RmsProp::new(p, s.lr)?.alpha(s.alpha).eps(s.eps);
        let rms = rms.weight_decay(s.weight_decay);
        rms.momentum(s.momentum)?.centered(s.centered)
    };
    MuonSettings: uopc::nn::MuonRule {
        lr: f64, weight_decay: f64, momentum: f64, nesterov: bool, adjust_lr_fn: Scale
    } |s, p| {
        let muon = Muon::new(p, s.lr)?.weight_decay(s.weight_decay);
        Ok(muon.momentum(s.momentum).nesterov(s.nesterov).scale(s.adjust_lr_fn.0))
    };
}
