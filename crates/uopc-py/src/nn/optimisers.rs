//! The classes of optimisers.

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use uopc::nn::{Adam, AdamW, Muon, Optimizer, RmsProp, Sgd};

use super::by_name;
use super::optim::{
    AdamSettings, AdamWSettings, Betas, MuonSettings, RmsPropSettings, Scale, SgdSettings, entries,
    made,
};
use crate::convert::Real;
use crate::run::{build, compute};
use crate::tensor::{PyTensor, located};

macro_rules! class {
    ($(#[$doc:meta])* $class:ident, $name:literal, $inner:ident, $settings:ident {
        $($arg:ident: $type:ty = $default:expr => $value:expr),*
    }, $text:literal) => {
        $(#[$doc])*
        #[pyclass(name = $name, module = "uopc.nn", frozen)]
        pub struct $class {
            params: Vec<Py<PyTensor>>,
            inner: Mutex<$inner>,
        }

        #[pymethods]
        impl $class {
            #[new]
            #[pyo3(signature = (params, $($arg=$default),*), text_signature = $text)]
            // Some settings are what the argument is.
            #[allow(clippy::redundant_field_names)]
            #[allow(clippy::too_many_arguments)]
            fn new(params: &Bound<'_, PyAny>, $($arg: $type),*) -> PyResult<$class> {
                let (params, inner) = made(params, $settings { $($arg: $value),* })?;
                Ok($class { params, inner: Mutex::new(inner) })
            }
        }
    };
}

macro_rules! getters {
    ($class:ident { $($(#[$doc:meta])* $name:ident: $type:ty = |$rule:ident| $read:expr;)* }) => {
        #[pymethods]
        impl $class { $(
            $(#[$doc])*
            #[getter]
            fn $name(&self, py: Python<'_>) -> $type {
                py.detach(|| {
                    let inner = self.inner.lock();
                    let ($rule, _) = inner.groups().next().expect("there is a group");
                    $read
                })
            }
        )* }
    };
}

class! {
    /// Stochastic gradient descent: with weight decay ``g += weight_decay * p``, with momentum
    /// ``v = momentum * v + g``, and then ``p -= lr * v``; with ``nesterov``
    /// ``p -= lr * (g + momentum * v)``.
    ///
    /// ``params`` is any iterable of tensors made with ``requires_grad=True``, a Module, or a list of
    /// groups: dicts with the tensors under "params" and settings that differ from the others'.
    /// Raises TypeError for other objects, ValueError for tensors that require no gradient, for one
    /// that is named twice, for an empty list, and for settings that are negative or not finite.
    ///
    /// >>> w = Tensor([1.0, -2.0], requires_grad=True)
    /// >>> opt = uopc.nn.SGD([w], lr=0.5)
    /// >>> loss = w.square().sum().backward()
    /// >>> opt.step()
    /// >>> w.tolist()
    /// [0.0, 0.0]
    PySgd, "SGD", Sgd, SgdSettings {
        lr: Real = Real(1e-3) => lr.0,
        momentum: Real = Real(0.0) => momentum.0,
        weight_decay: Real = Real(0.0) => weight_decay.0,
        nesterov: bool = false => nesterov
    }, "(params, lr=0.001, momentum=0.0, weight_decay=0.0, nesterov=False)"
}

class! {
    /// Adam with decoupled weight decay, as PyTorch computes it.
    ///
    /// ``params`` is any iterable of tensors made with ``requires_grad=True``, a Module, or a list of
    /// groups: dicts with the tensors under "params" and settings that differ from the others'. Step
    /// counts, learning rates and bias corrections are data and no constants of the graph, so every
    /// step reuses one plan. Raises TypeError for other objects, ValueError for tensors that require
    /// no gradient, for one that is named twice, for an empty list, for a number that is negative or
    /// not finite, and for betas that are not below 1.
    ///
    /// >>> w = Tensor([1.0, -2.0], requires_grad=True)
    /// >>> opt = uopc.nn.AdamW([w], lr=0.1)
    /// >>> for _ in range(60):
    /// ...     loss = w.square().sum()
    /// ...     opt.zero_grad(); loss = loss.backward(opt.params); opt.step(loss)
    /// >>> loss.item() < 0.1
    /// True
    PyAdamW, "AdamW", AdamW, AdamWSettings {
        lr: Real = Real(1e-3) => lr.0,
        betas: Betas = Betas(0.9, 0.999) => (betas.0, betas.1),
        eps: Real = Real(1e-8) => eps.0,
        weight_decay: Real = Real(0.01) => weight_decay.0
    }, "(params, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)"
}

class! {
    /// Adam, whose weight decay is part of the gradient: ``g += weight_decay * p``.
    ///
    /// Arguments and errors are those of ``AdamW``.
    ///
    /// >>> w = Tensor([1.0, -2.0], requires_grad=True)
    /// >>> opt = uopc.nn.Adam([w], lr=0.5)
    /// >>> loss = w.square().sum().backward()
    /// >>> opt.step()
    /// >>> [round(x, 4) for x in w.tolist()]
    /// [0.5, -1.5]
    PyAdam, "Adam", Adam, AdamSettings {
        lr: Real = Real(1e-3) => lr.0,
        betas: Betas = Betas(0.9, 0.999) => (betas.0, betas.1),
        eps: Real = Real(1e-8) => eps.0,
        weight_decay: Real = Real(0.0) => weight_decay.0
    }, "(params, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0)"
}

class! {
    /// RMSprop, as PyTorch computes it: ``v = alpha * v + (1 - alpha) * g * g`` and
    /// ``p -= lr * g / (sqrt(v) + eps)``. With ``centered`` the square of a running mean of gradients
    /// is taken off v, with ``momentum`` steps keep some of the last one.
    ///
    /// Arguments and errors are those of ``SGD``.
    ///
    /// >>> w = Tensor([1.0, -2.0], requires_grad=True)
    /// >>> opt = uopc.nn.RMSprop([w], lr=0.05)
    /// >>> loss = w.square().sum().backward()
    /// >>> opt.step()
    /// >>> [round(x, 4) for x in w.tolist()]
    /// [0.5, -1.5]
    PyRmsProp, "RMSprop", RmsProp, RmsPropSettings {
        lr: Real = Real(1e-2) => lr.0,
        alpha: Real = Real(0.99) => alpha.0,
        eps: Real = Real(1e-8) => eps.0,
        weight_decay: Real = Real(0.0) => weight_decay.0,
        momentum: Real = Real(0.0) => momentum.0,
        centered: bool = false => centered
    }, "(params, lr=0.01, alpha=0.99, eps=1e-08, weight_decay=0.0, momentum=0.0, centered=False)"
}

class! {
    /// Muon: momentum for matrices, made orthogonal by five steps of Newton and Schulz.
    ///
    /// Parameters are matrices (in_features, out_features) as ``Linear`` has them; all else belongs to
    /// another optimiser, such as ``AdamW``. ``adjust_lr_fn`` says how large steps are: "original",
    /// times sqrt(max(1, out / in)), or "match_rms_adamw", times 0.2 sqrt(max(in, out)), with which
    /// the rates of AdamW fit. Products are those of the parameters' dtype (f32 for half floats), not
    /// of bf16.
    ///
    /// Other arguments and errors are those of ``SGD``; raises ValueError for a parameter that is no
    /// matrix.
    ///
    /// >>> layer = uopc.nn.Linear(4, 3, bias=False)
    /// >>> opt = uopc.nn.Muon(layer, lr=0.02)
    /// >>> loss = layer(Tensor.ones(2, 4)).square().sum().backward()
    /// >>> opt.step()
    PyMuon, "Muon", Muon, MuonSettings {
        lr: Real = Real(1e-3) => lr.0,
        weight_decay: Real = Real(0.1) => weight_decay.0,
        momentum: Real = Real(0.95) => momentum.0,
        nesterov: bool = true => nesterov,
        adjust_lr_fn: Scale = Scale::original() => adjust_lr_fn
    }, "(params, lr=0.001, weight_decay=0.1, momentum=0.95, nesterov=True, adjust_lr_fn=None)"
}

getters! { PySgd {
    /// How much of the velocity is kept from step to step.
    momentum: f64 = |rule| rule.momentum;
    /// The pull of the parameters towards 0.
    weight_decay: f64 = |rule| rule.weight_decay;
    /// Whether a step looks ahead by one step of the velocity.
    nesterov: bool = |rule| rule.nesterov;
} }

getters! { PyAdamW {
    /// The rates at which the running means of gradients and of their squares forget.
    betas: (f64, f64) = |rule| rule.0.betas;
    /// The number that keeps the division away from 0.
    eps: f64 = |rule| rule.0.eps;
    /// The pull of the parameters towards 0.
    weight_decay: f64 = |rule| rule.0.weight_decay;
} }

getters! { PyAdam {
    /// The rates at which the running means of gradients and of their squares forget.
    betas: (f64, f64) = |rule| rule.betas;
    /// The number that keeps the division away from 0.
    eps: f64 = |rule| rule.eps;
    /// The pull of the parameters towards 0.
    weight_decay: f64 = |rule| rule.weight_decay;
} }

getters! { PyRmsProp {
    /// The rate at which the running mean of squares forgets.
    alpha: f64 = |rule| rule.alpha;
    /// The number that keeps the division away from 0.
    eps: f64 = |rule| rule.eps;
    /// The pull of the parameters towards 0.
    weight_decay: f64 = |rule| rule.weight_decay;
    /// How much of the last step is kept.
    momentum: f64 = |rule| rule.momentum;
    /// Whether gradients are divided by their deviation from a running mean.
    centered: bool = |rule| rule.centered;
} }

getters! { PyMuon {
    /// The pull of the parameters towards 0.
    weight_decay: f64 = |rule| rule.weight_decay;
    /// How much of the running mean of gradients is kept.
    momentum: f64 = |rule| rule.momentum;
    /// Whether a step looks ahead by one step of the mean.
    nesterov: bool = |rule| rule.nesterov;
} }

#[pymethods]
impl PyAdamW {
    /// How many steps were taken.
    #[getter]
    fn steps(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.inner.lock().steps())
    }
}

#[pymethods]
impl PyAdam {
    /// How many steps were taken.
    #[getter]
    fn steps(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.inner.lock().steps())
    }
}

// What all have. A lock is only waited for without the interpreter's lock, which whoever holds it
// may need.
macro_rules! optimisers {
    ($($class:ident: $name:literal;)*) => { $(
        #[pymethods]
        impl $class {
            /// The parameters, in order: the objects that were given.
            #[getter]
            fn params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
                PyList::new(py, &self.params)
            }

            /// The learning rate, that of the first group. Setting it changes that of all groups for
            /// the steps to come, and compiles nothing.
            ///
            /// Raises ValueError if it is negative or not finite.
            #[getter]
            fn lr(&self, py: Python<'_>) -> f64 {
                py.detach(|| self.inner.lock().learning_rate())
            }

            #[setter]
            fn set_lr(&self, py: Python<'_>, lr: Real) -> PyResult<()> {
                compute(py, || {
                    let mut inner = self.inner.lock();
                    let before = inner.learning_rates();
                    inner.set_learning_rate(lr.0);
                    // What is refused leaves the rates as they were.
                    inner.check().inspect_err(|_| inner.set_learning_rates(&before))
                })
            }

            /// The learning rate of each group. Setting them compiles nothing.
            ///
            /// Raises ValueError if there is not one for each group, or one is negative or not
            /// finite.
            #[getter]
            fn lrs(&self, py: Python<'_>) -> Vec<f64> {
                py.detach(|| self.inner.lock().learning_rates())
            }

            #[setter]
            fn set_lrs(&self, py: Python<'_>, lrs: Vec<Real>) -> PyResult<()> {
                let lrs: Vec<f64> = lrs.into_iter().map(|lr| lr.0).collect();
                let groups = self.lrs(py).len();
                if lrs.len() != groups {
                    let n = lrs.len();
                    let message = format!("{n} learning rates, and there are {groups} groups");
                    return Err(located::<PyValueError>(py, message));
                }
                compute(py, || {
                    let mut inner = self.inner.lock();
                    let before = inner.learning_rates();
                    inner.set_learning_rates(&lrs);
                    inner.check().inspect_err(|_| inner.set_learning_rates(&before))
                })
            }

            /// The parameters of each group, in order.
            #[getter]
            fn groups<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
                let counts = py.detach(|| {
                    let inner = self.inner.lock();
                    inner.groups().map(|(_, count)| count).collect::<Vec<usize>>()
                });
                let mut rest = &self.params[..];
                let mut groups = Vec::with_capacity(counts.len());
                for count in counts {
                    let (own, others) = rest.split_at(count);
                    groups.push(PyList::new(py, own)?);
                    rest = others;
                }
                PyList::new(py, groups)
            }

            /// Updates the parameters that have a gradient. With a loss it computes that in the
            /// same plan, so that reading it afterwards costs nothing.
            ///
            /// Gradients stay until `zero_grad`. Raises RuntimeError if no parameter has one.
            #[pyo3(signature = (loss=None))]
            fn step(&self, py: Python<'_>, loss: Option<&Bound<'_, PyTensor>>) -> PyResult<()> {
                let loss = loss.map(|l| &l.get().tensor);
                compute(py, || match loss {
                    Some(loss) => self.inner.lock().step_with(loss),
                    None => self.inner.lock().step(),
                })
            }

            /// Forgets the gradients of all parameters; otherwise the next backward adds to them.
            fn zero_grad(&self) {
                self.params.iter().for_each(|p| p.get().tensor.zero_grad());
            }

            /// What it remembers between steps, by name, as it is now.
            fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let state = compute(py, || self.inner.lock().state())?;
                let state = state.into_iter().map(|(name, t)| Ok((name, t.detach()?)));
                let state = build(py, || state.collect::<uopc::Result<Vec<_>>>())?;
                by_name(py, state)
            }

            /// Continues from a state that `state_dict` gave; values are tensors or arrays.
            ///
            /// Raises ValueError if an entry is missing or has another shape, TypeError if it has
            /// another dtype. Then nothing has changed.
            fn load_state_dict(
                &self,
                py: Python<'_>,
                state: &Bound<'_, PyAny>,
            ) -> PyResult<()> {
                let state = entries(state)?;
                compute(py, || self.inner.lock().set_state(&state))
            }

            fn __repr__(&self, py: Python<'_>) -> String {
                format!(concat!($name, "({} params, lr={})"), self.params.len(), self.lr(py))
            }
        }
    )* };
}

optimisers! {
    PySgd: "SGD";
    PyAdamW: "AdamW";
    PyAdam: "Adam";
    PyRmsProp: "RMSprop";
    PyMuon: "Muon";
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySgd>()?;
    m.add_class::<PyAdamW>()?;
    m.add_class::<PyAdam>()?;
    m.add_class::<PyRmsProp>()?;
    m.add_class::<PyMuon>()
}
