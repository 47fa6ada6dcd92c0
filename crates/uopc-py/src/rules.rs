//! Functions with derivatives of the user's own. Here they take lists of tensors; `uopc.rules` makes
//! lists of what users have.

use parking_lot::Mutex;
use pyo3::prelude::*;
use uopc::transform::{
    CustomFunction, clip_gradient, gradient_hook, scale_gradient, straight_through,
};
use uopc::{Error, Result, Tensor};

use crate::convert::{AnyTensor, Real, Tensors};
use crate::fork;
use crate::run::compute;
use crate::tensor::PyTensor;

/// Functions of the user's as the library calls them.
struct Callbacks {
    /// What one of them has raised: the library passes on an error of its own in its place.
    raised: Mutex<Option<PyErr>>,
}

impl Callbacks {
    fn call<T>(&self, f: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
        // Taken back after the interpreter's lock has been given back, since it may wait.
        let _paused = fork::paused();
        Python::attach(f).map_err(|error| {
            self.raised.lock().get_or_insert(error);
            let message = "the function raised an exception".into();
            Error::Gradient {
                message,
                site: None,
            }
        })
    }

    fn tensor(&self, f: &Py<PyAny>, x: &Tensor) -> Result<Tensor> {
        self.call(|py| {
            let y = f.bind(py).call1((PyTensor::from(x.clone()),))?;
            Ok(y.extract::<AnyTensor>()?.0)
        })
    }
}

/// Calls the library with callbacks. What one of them raises comes out as it is.
fn with_callbacks<T: Send>(
    py: Python<'_>,
    f: impl FnOnce(&Callbacks) -> Result<T> + Send,
) -> PyResult<T> {
    let raised = Mutex::new(None);
    let callbacks = Callbacks { raised };
    let outcome = compute(py, || f(&callbacks));
    match callbacks.raised.into_inner() {
        Some(error) => Err(error),
        None => outcome,
    }
}

fn wrapped(tensors: &[Tensor]) -> Vec<PyTensor> {
    tensors.iter().cloned().map(PyTensor::from).collect()
}

/// A function of lists with its rules: each is a callable, the rules may be missing.
#[pyclass(module = "uopc._uopc", frozen)]
struct NativeCustom {
    name: String,
    body: Py<PyAny>,
    vjp: Option<Py<PyAny>>,
    jvp: Option<Py<PyAny>>,
}

impl NativeCustom {
    fn function<'f>(&'f self, callbacks: &'f Callbacks) -> CustomFunction<'f> {
        let body = |x: &[Tensor]| {
            callbacks.call(|py| {
                let y = self.body.bind(py).call1((wrapped(x),))?;
                Ok(y.extract::<AnyTensor>()?.0)
            })
        };
        let mut function = CustomFunction::new(self.name.as_str(), body);
        if let Some(vjp) = &self.vjp {
            function = function.vjp(move |x, y, g| {
                callbacks.call(|py| {
                    let (y, g) = (PyTensor::from(y.clone()), PyTensor::from(g.clone()));
                    let pulled = vjp.bind(py).call1((wrapped(x), y, g))?;
                    let pulled: Vec<Option<AnyTensor>> = pulled.extract()?;
                    Ok(pulled.into_iter().map(|x| x.map(|x| x.0)).collect())
                })
            });
        }
        if let Some(jvp) = &self.jvp {
            function = function.jvp(move |x, y, t| {
                callbacks.call(|py| {
                    let y = PyTensor::from(y.clone());
                    let pushed = jvp.bind(py).call1((wrapped(x), y, wrapped(t)))?;
                    Ok(pushed.extract::<AnyTensor>()?.0)
                })
            });
        }
        function
    }
}

#[pymethods]
impl NativeCustom {
    #[new]
    fn new(
        name: String,
        body: Py<PyAny>,
        vjp: Option<Py<PyAny>>,
        jvp: Option<Py<PyAny>>,
    ) -> NativeCustom {
        NativeCustom {
            name,
            body,
            vjp,
            jvp,
        }
    }

    /// The function at these inputs.
    fn call(&self, py: Python<'_>, inputs: Tensors) -> PyResult<PyTensor> {
        with_callbacks(py, |callbacks| self.function(callbacks).call(&inputs.0)).map(PyTensor::from)
    }

    /// Compares the rules with each other.
    fn check(&self, py: Python<'_>, inputs: Tensors, tolerance: Real) -> PyResult<(f64, f64)> {
        with_callbacks(py, |callbacks| {
            self.function(callbacks).check(&inputs.0, tolerance.0)
        })
    }
}

#[pyfunction]
fn rules_straight_through(py: Python<'_>, f: Py<PyAny>, x: AnyTensor) -> PyResult<PyTensor> {
    with_callbacks(py, |callbacks| {
        straight_through(|x| callbacks.tensor(&f, x), &x.0)
    })
    .map(PyTensor::from)
}

#[pyfunction]
fn rules_gradient_hook(py: Python<'_>, x: AnyTensor, f: Py<PyAny>) -> PyResult<PyTensor> {
    with_callbacks(py, |callbacks| {
        gradient_hook(&x.0, |g| callbacks.tensor(&f, g))
    })
    .map(PyTensor::from)
}

#[pyfunction]
fn rules_scale_gradient(py: Python<'_>, x: AnyTensor, factor: Real) -> PyResult<PyTensor> {
    compute(py, || scale_gradient(&x.0, factor.0)).map(PyTensor::from)
}

#[pyfunction]
fn rules_clip_gradient(py: Python<'_>, x: AnyTensor, low: Real, high: Real) -> PyResult<PyTensor> {
    compute(py, || clip_gradient(&x.0, low.0, high.0)).map(PyTensor::from)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<NativeCustom>()?;
    m.add_function(wrap_pyfunction!(rules_straight_through, m)?)?;
    m.add_function(wrap_pyfunction!(rules_gradient_hook, m)?)?;
    m.add_function(wrap_pyfunction!(rules_scale_gradient, m)?)?;
    m.add_function(wrap_pyfunction!(rules_clip_gradient, m)?)
}
