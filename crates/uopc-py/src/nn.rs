//! Neural networks: what layers compute, losses, optimisers, and tensors by name in files. The
//! class `Module` is Python's own.

use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use uopc::io::safetensors;
use uopc::nn::{self, AdamW, Embedding, Linear, Optimizer, Sgd};
use uopc::{Error, Tensor};

use crate::convert::{AnyTensor, Real, shown};
use crate::error::exception;
use crate::run::{build, compute};
use crate::tensor::{PyTensor, located, type_error};
use crate::uop::Size;

// ---- layers ----

/// The weight and the bias with which a Linear layer starts.
#[pyfunction]
fn linear_parameters(
    py: Python<'_>,
    in_features: Size,
    out_features: Size,
    bias: bool,
) -> PyResult<(PyTensor, Option<PyTensor>)> {
    let layer = compute(py, || match bias {
        true => Linear::new(in_features.0, out_features.0),
        false => Linear::without_bias(in_features.0, out_features.0),
    })?;
    Ok((layer.weight.into(), layer.bias.map(PyTensor::from)))
}

/// What a Linear layer computes.
#[pyfunction]
#[pyo3(signature = (x, weight, bias=None))]
fn linear(
    py: Python<'_>,
    x: AnyTensor,
    weight: AnyTensor,
    bias: Option<AnyTensor>,
) -> PyResult<PyTensor> {
    let layer = Linear {
        weight: weight.0,
        bias: bias.map(|b| b.0),
    };
    PyTensor::build(py, || layer.forward(&x.0))
}

/// The table with which an Embedding starts.
#[pyfunction]
fn embedding_parameters(py: Python<'_>, count: Size, size: Size) -> PyResult<PyTensor> {
    compute(py, || Embedding::new(count.0, size.0)).map(|layer| layer.weight.into())
}

/// What an Embedding computes.
#[pyfunction]
fn embedding(py: Python<'_>, indices: AnyTensor, weight: AnyTensor) -> PyResult<PyTensor> {
    let layer = Embedding { weight: weight.0 };
    PyTensor::build(py, || layer.forward(&indices.0))
}

// ---- losses ----

/// The mean cross-entropy of logits (..., classes) against integer labels (...), a scalar.
///
/// Raises ValueError for shapes that do not fit, TypeError for labels that are no integers.
///
/// >>> logits = Tensor([[0.0, 0.0]])
/// >>> round(uopc.nn.cross_entropy(logits, Tensor([1])).item(), 4)
/// 0.6931
#[pyfunction]
fn cross_entropy(py: Python<'_>, logits: AnyTensor, labels: AnyTensor) -> PyResult<PyTensor> {
    PyTensor::build(py, || nn::cross_entropy(&logits.0, &labels.0))
}

/// The mean of the squared differences, a scalar. The shapes broadcast.
///
/// >>> uopc.nn.mse(Tensor([1.0, 2.0]), Tensor([1.0, 4.0])).item()
/// 2.0
#[pyfunction]
fn mse(py: Python<'_>, prediction: AnyTensor, target: AnyTensor) -> PyResult<PyTensor> {
    PyTensor::build(py, || nn::mse(&prediction.0, &target.0))
}

// ---- parameters ----

/// The number of a tensor that requires a gradient, equal for all names of it; None for all else.
#[pyfunction]
fn parameter_id(ob: &Bound<'_, PyAny>) -> Option<u64> {
    let tensor = &ob.cast::<PyTensor>().ok()?.get().tensor;
    tensor.is_parameter().then(|| tensor.id())
}

/// Whether a tensor was computed from one that requires a gradient.
#[pyfunction]
fn is_interior(tensor: &Bound<'_, PyTensor>) -> bool {
    let tensor = &tensor.get().tensor;
    tensor.needs_grad() && !tensor.is_parameter()
}

/// The tensor as it is now; an update of it does not change the result.
#[pyfunction]
fn snapshot(py: Python<'_>, tensor: &Bound<'_, PyTensor>) -> PyResult<PyTensor> {
    let tensor = &tensor.get().tensor;
    PyTensor::build(py, || tensor.detach())
}

/// Gives tensors new values, all or none.
#[pyfunction]
fn assign_all(py: Python<'_>, updates: Vec<(AnyTensor, AnyTensor)>) -> PyResult<()> {
    let updates: Vec<(&Tensor, &Tensor)> = updates.iter().map(|(t, v)| (&t.0, &v.0)).collect();
    compute(py, || Tensor::assign_all(&updates, &[] as &[Tensor]))
}

/// Writes tensors to a safetensors file.
#[pyfunction]
fn save_tensors(py: Python<'_>, path: PathBuf, tensors: Vec<(String, AnyTensor)>) -> PyResult<()> {
    let tensors: Vec<(String, Tensor)> = tensors.into_iter().map(|(n, t)| (n, t.0)).collect();
    compute(py, || safetensors::save(path, &tensors))
}

/// Reads the tensors of a safetensors file by name.
#[pyfunction]
fn load_tensors(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let tensors = compute(py, || safetensors::load(path))?;
    by_name(py, tensors)
}

/// Gives tensors the values that a safetensors file has for their names, all or none.
#[pyfunction]
fn load_into(py: Python<'_>, path: PathBuf, tensors: Vec<(String, AnyTensor)>) -> PyResult<()> {
    let tensors: Vec<(String, Tensor)> = tensors.into_iter().map(|(n, t)| (n, t.0)).collect();
    compute(py, || safetensors::load_into(path, &tensors))
}

fn by_name(py: Python<'_>, tensors: Vec<(String, Tensor)>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, tensor) in tensors {
        dict.set_item(name, Bound::new(py, PyTensor::from(tensor))?)?;
    }
    Ok(dict)
}

// ---- optimisers ----

/// The tensors that an optimiser is given, in their order: any iterable of them, or something with
/// a method `parameters`.
struct Parameters(Vec<Py<PyTensor>>);

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
    fn tensors(&self) -> Vec<Tensor> {
        self.0.iter().map(|p| p.get().tensor.clone()).collect()
    }
}

/// The two rates at which running means forget.
struct Betas(f64, f64);

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
fn entries(state: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Tensor)>> {
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

/// Makes an optimiser; the outer result is that of the call, the inner one that of the library.
fn optimiser<T: Send>(
    py: Python<'_>,
    make: impl FnOnce() -> uopc::Result<T> + Send,
) -> PyResult<T> {
    compute(py, || Ok(make()))?.map_err(refused)
}

/// Stochastic gradient descent: with momentum `v = momentum * v + g` and `p -= lr * v`.
///
/// `params` is any iterable of tensors made with `requires_grad=True`, or a Module. Raises
/// TypeError for other objects, ValueError for tensors that require no gradient, for one that is
/// named twice, for an empty list, and for a rate or momentum that is negative or not finite.
///
/// >>> w = Tensor([1.0, -2.0], requires_grad=True)
/// >>> opt = uopc.nn.SGD([w], lr=0.5)
/// >>> loss = w.square().sum().backward()
/// >>> opt.step()
/// >>> w.tolist()
/// [0.0, 0.0]
#[pyclass(name = "SGD", module = "uopc.nn", frozen)]
pub struct PySgd {
    params: Vec<Py<PyTensor>>,
    inner: Mutex<Sgd>,
    momentum: f64,
}

#[pymethods]
impl PySgd {
    #[new]
    #[pyo3(
        signature = (params, lr=Real(1e-3), momentum=Real(0.0)),
        text_signature = "(params, lr=0.001, momentum=0.0)"
    )]
    fn new(py: Python<'_>, params: Parameters, lr: Real, momentum: Real) -> PyResult<PySgd> {
        let (tensors, Real(lr), Real(momentum)) = (params.tensors(), lr, momentum);
        let inner = optimiser(py, || match momentum == 0.0 {
            true => Sgd::new(tensors, lr),
            false => Sgd::with_momentum(tensors, lr, momentum),
        })?;
        build(py, || inner.check())?;
        Ok(PySgd {
            params: params.0,
            inner: Mutex::new(inner),
            momentum,
        })
    }

    /// How much of the velocity is kept from step to step.
    #[getter]
    fn momentum(&self) -> f64 {
        self.momentum
    }
}

/// Adam with decoupled weight decay, as PyTorch computes it.
///
/// `params` is any iterable of tensors made with `requires_grad=True`, or a Module. Step counts,
/// the learning rate and the bias corrections are data and no constants of the graph, so every step
/// reuses one plan. Raises TypeError for other objects, ValueError for tensors that require no
/// gradient, for one that is named twice, for an empty list, for a number that is negative or not
/// finite, and for betas that are not below 1.
///
/// >>> w = Tensor([1.0, -2.0], requires_grad=True)
/// >>> opt = uopc.nn.AdamW([w], lr=0.1)
/// >>> for _ in range(60):
/// ...     loss = w.square().sum()
/// ...     opt.zero_grad(); loss = loss.backward(opt.params); opt.step(loss)
/// >>> loss.item() < 0.1
/// True
#[pyclass(name = "AdamW", module = "uopc.nn", frozen)]
pub struct PyAdamW {
    params: Vec<Py<PyTensor>>,
    inner: Mutex<AdamW>,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
}

#[pymethods]
impl PyAdamW {
    #[new]
    #[pyo3(
        signature = (
            params,
            lr=Real(1e-3),
            betas=Betas(0.9, 0.999),
            eps=Real(1e-8),
            weight_decay=Real(0.01),
        ),
        text_signature = "(params, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)"
    )]
    fn new(
        py: Python<'_>,
        params: Parameters,
        lr: Real,
        betas: Betas,
        eps: Real,
        weight_decay: Real,
    ) -> PyResult<PyAdamW> {
        let (Real(lr), Real(eps), Real(weight_decay)) = (lr, eps, weight_decay);
        let betas = (betas.0, betas.1);
        let tensors = params.tensors();
        let inner = optimiser(py, || AdamW::new(tensors, lr))?;
        let inner = inner
            .betas(betas.0, betas.1)
            .eps(eps)
            .weight_decay(weight_decay);
        build(py, || inner.check())?;
        let params = params.0;
        Ok(PyAdamW {
            params,
            inner: Mutex::new(inner),
            betas,
            eps,
            weight_decay,
        })
    }

    /// The rates at which the running means of gradients and of their squares forget.
    #[getter]
    fn betas(&self) -> (f64, f64) {
        self.betas
    }

    /// The number that keeps the division away from 0.
    #[getter]
    fn eps(&self) -> f64 {
        self.eps
    }

    /// The pull of the parameters towards 0.
    #[getter]
    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    /// How many steps were taken.
    #[getter]
    fn steps(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.inner.lock().steps())
    }
}

// What both have. A lock is only waited for without the interpreter's lock, which whoever holds it
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

            /// The learning rate. Setting it changes the steps to come and compiles nothing.
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
                    let before = inner.learning_rate();
                    inner.set_learning_rate(lr.0);
                    // What is refused leaves the rate as it was.
                    inner.check().inspect_err(|_| inner.set_learning_rate(before))
                })
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
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySgd>()?;
    m.add_class::<PyAdamW>()?;
    m.add_function(wrap_pyfunction!(linear_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(linear, m)?)?;
    m.add_function(wrap_pyfunction!(embedding_parameters, m)?)?;
    m.add_function(wrap_pyfunction!(embedding, m)?)?;
    m.add_function(wrap_pyfunction!(cross_entropy, m)?)?;
    m.add_function(wrap_pyfunction!(mse, m)?)?;
    m.add_function(wrap_pyfunction!(parameter_id, m)?)?;
    m.add_function(wrap_pyfunction!(is_interior, m)?)?;
    m.add_function(wrap_pyfunction!(snapshot, m)?)?;
    m.add_function(wrap_pyfunction!(assign_all, m)?)?;
    m.add_function(wrap_pyfunction!(save_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(load_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(load_into, m)?)
}
