//! Functions of tensors made from functions of tensors. Here they take and give lists of tensors;
//! `uopc.transform` makes lists of what users have, and the other way round.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::transform::gradcheck::{GradcheckOptions, GradcheckReport, Verdict, gradcheck};
use uopc::transform::{Function, Mode, flat};
use uopc::{Error, Result, Tensor};

use crate::convert::{Real, Tensors};
use crate::fork;
use crate::run::compute;
use crate::tensor::{PyTensor, Seed};
use crate::uop::Size;

/// A function of the user's, from a list of tensors to a list of tensors, as the library calls it.
struct Callback {
    f: Py<PyAny>,
    /// What it has raised: the library passes on an error of its own in its place.
    raised: Mutex<Option<PyErr>>,
}

impl Callback {
    fn call(&self, args: &[Tensor]) -> Result<Vec<Tensor>> {
        let args: Vec<PyTensor> = args.iter().cloned().map(PyTensor::from).collect();
        self.attached(|py| Ok(self.f.bind(py).call1((args,))?.extract::<Tensors>()?.0))
    }

    /// Runs Python's code in the middle of a call of the library.
    fn attached<T>(&self, f: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
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
}

/// Transforms a function. What it raises comes out as it is.
fn transformed<T: Send>(
    py: Python<'_>,
    f: Py<PyAny>,
    transform: impl FnOnce(&Function, &Callback) -> Result<T> + Send,
) -> PyResult<T> {
    let raised = Mutex::new(None);
    let callback = Callback { f, raised };
    let outcome = compute(py, || transform(&|args| callback.call(args), &callback));
    match callback.raised.into_inner() {
        Some(error) => Err(error),
        None => outcome,
    }
}

fn wrapped(tensors: Vec<Tensor>) -> Vec<PyTensor> {
    tensors.into_iter().map(PyTensor::from).collect()
}

fn wrapped_rows(rows: Vec<Vec<Tensor>>) -> Vec<Vec<PyTensor>> {
    rows.into_iter().map(wrapped).collect()
}

/// The first result, its gradients by the arguments `wrt`, and the other results.
#[pyfunction]
fn transform_value_and_grad(
    py: Python<'_>,
    f: Py<PyAny>,
    args: Tensors,
    wrt: Vec<usize>,
) -> PyResult<(PyTensor, Vec<PyTensor>, Vec<PyTensor>)> {
    let (value, gradients, rest) =
        transformed(py, f, |f, _| flat::value_and_grad(f, &args.0, &wrt))?;
    Ok((value.into(), wrapped(gradients), wrapped(rest)))
}

/// From cotangents of a function's first results to those of its arguments.
#[pyclass(name = "Pullback", module = "uopc._uopc", frozen)]
struct PyPullback(flat::Pullback);

#[pymethods]
impl PyPullback {
    fn __call__(&self, py: Python<'_>, cotangents: Tensors) -> PyResult<Vec<PyTensor>> {
        compute(py, || self.0.call_first(&cotangents.0)).map(wrapped)
    }
}

/// The results, and the pullback by the arguments `wrt`.
#[pyfunction]
fn transform_vjp(
    py: Python<'_>,
    f: Py<PyAny>,
    args: Tensors,
    wrt: Vec<usize>,
) -> PyResult<(Vec<PyTensor>, PyPullback)> {
    let (values, pullback) = transformed(py, f, |f, _| flat::vjp(f, &args.0, &wrt))?;
    Ok((wrapped(values), PyPullback(pullback)))
}

/// The results and their tangents.
#[pyfunction]
fn transform_jvp(
    py: Python<'_>,
    f: Py<PyAny>,
    primals: Tensors,
    tangents: Tensors,
) -> PyResult<(Vec<PyTensor>, Vec<PyTensor>)> {
    let (values, pushed) = transformed(py, f, |f, _| flat::jvp(f, &primals.0, &tangents.0))?;
    Ok((wrapped(values), wrapped(pushed)))
}

/// The results for all slices along the axes. `out_axes` is called after the function, and gives
/// an axis or None for each result.
#[pyfunction]
fn transform_vmap(
    py: Python<'_>,
    f: Py<PyAny>,
    args: Tensors,
    in_axes: Vec<Option<isize>>,
    out_axes: Py<PyAny>,
) -> PyResult<Vec<PyTensor>> {
    let results = transformed(py, f, |f, callback| {
        let out = |_| callback.attached(|py| out_axes.bind(py).call0()?.extract());
        flat::vmap(f, &args.0, &in_axes, &out)
    })?;
    Ok(wrapped(results))
}

/// What came of a Jacobian or a Hessian: rows of derivatives, and results that came along.
type Blocks = (Vec<Vec<PyTensor>>, Vec<PyTensor>);

/// For each of the first results and each argument `wrt` the derivatives, and the other results. The
/// mode is forward, reverse or best; `differentiated` is called after the function, and gives the
/// number of the first results.
#[pyfunction]
fn transform_jacobian(
    py: Python<'_>,
    f: Py<PyAny>,
    args: Tensors,
    wrt: Vec<usize>,
    mode: &str,
    differentiated: Py<PyAny>,
) -> PyResult<Blocks> {
    let mode = match mode {
        "forward" => Mode::Forward,
        "reverse" => Mode::Reverse,
        _ => Mode::Best,
    };
    let (rows, aux) = transformed(py, f, |f, callback| {
        let first = |_| callback.attached(|py| differentiated.bind(py).call0()?.extract());
        flat::jacobian_with_aux(f, &args.0, &wrt, mode, &first)
    })?;
    Ok((wrapped_rows(rows), wrapped(aux)))
}

/// For each pair of arguments `wrt` the second derivatives of the first result, a scalar, and the
/// other results.
#[pyfunction]
fn transform_hessian(
    py: Python<'_>,
    f: Py<PyAny>,
    args: Tensors,
    wrt: Vec<usize>,
) -> PyResult<Blocks> {
    let (rows, aux) = transformed(py, f, |f, _| flat::hessian_with_aux(f, &args.0, &wrt))?;
    Ok((wrapped_rows(rows), wrapped(aux)))
}

/// The products of a scalar's second derivatives with tangents, for each argument that is a float.
#[pyfunction]
fn transform_hvp(
    py: Python<'_>,
    f: Py<PyAny>,
    primals: Tensors,
    tangents: Tensors,
) -> PyResult<Vec<PyTensor>> {
    let (_, products) = transformed(py, f, |f, _| flat::hvp(f, &primals.0, &tangents.0))?;
    Ok(wrapped(products))
}

/// One comparison that ``gradcheck`` made: the worst of its directions, for one argument.
///
/// >>> report = uopc.gradcheck(lambda x: x.sin(), Tensor([1.0, 2.0]))
/// >>> worst = report.comparisons[0]
/// >>> worst.argument, worst.shape, worst.compared, worst.verdict
/// ('argument 0', (2,), 'reverse mode with quotients', 'agree')
#[pyclass(name = "Comparison", module = "uopc.transform", frozen)]
struct PyComparison {
    argument: String,
    shape: Vec<usize>,
    compared: String,
    found: f64,
    wanted: f64,
    error: f64,
    allowed: f64,
    verdict: &'static str,
}

#[pymethods]
impl PyComparison {
    /// What the argument, or the tensor in it, is called.
    #[getter]
    fn argument(&self) -> &str {
        &self.argument
    }

    /// The tensor's shape.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The two ways to compute a slope, in words.
    #[getter]
    fn compared(&self) -> &str {
        &self.compared
    }

    /// The slope in the first way.
    #[getter]
    fn found(&self) -> f64 {
        self.found
    }

    /// The slope in the second way.
    #[getter]
    fn wanted(&self) -> f64 {
        self.wanted
    }

    /// How far the two are apart.
    #[getter]
    fn error(&self) -> f64 {
        self.error
    }

    /// How far they may be apart.
    #[getter]
    fn allowed(&self) -> f64 {
        self.allowed
    }

    /// "agree", "differ", or "unclear" at a kink, a jump or where the quotient is not finite.
    #[getter]
    fn verdict(&self) -> &'static str {
        self.verdict
    }

    fn __repr__(&self) -> String {
        format!(
            "Comparison({}, {}: {:e} and {:e}, {})",
            self.argument, self.compared, self.found, self.wanted, self.verdict
        )
    }
}

/// What ``gradcheck`` has found: true if everything agrees; as text it is a table.
///
/// >>> bool(uopc.gradcheck(lambda x: x.exp(), Tensor([1.0, 2.0])))
/// True
#[pyclass(name = "GradcheckReport", module = "uopc.transform", frozen)]
struct PyReport(GradcheckReport);

#[pymethods]
impl PyReport {
    /// Whether everything agrees; what is unclear does not.
    #[getter]
    fn passed(&self) -> bool {
        self.0.passed()
    }

    /// For each tensor of floats a list of comparisons.
    #[getter]
    fn comparisons(&self) -> Vec<PyComparison> {
        let comparison = |c: &uopc::transform::gradcheck::Comparison| PyComparison {
            argument: self.0.names[c.argument].clone(),
            shape: c.shape.to_vec(),
            compared: c.compared.to_string(),
            found: c.found,
            wanted: c.wanted,
            error: c.error,
            allowed: c.allowed,
            verdict: match c.verdict {
                Verdict::Agree => "agree",
                Verdict::Differ => "differ",
                Verdict::Unclear => "unclear",
            },
        };
        self.0.comparisons.iter().map(comparison).collect()
    }

    fn __bool__(&self) -> bool {
        self.0.passed()
    }

    fn __str__(&self) -> String {
        self.0.to_string().trim_end().to_string()
    }

    fn __repr__(&self) -> String {
        let n = self.0.comparisons.len();
        let result = match self.0.passed() {
            true => "all agree",
            false => "not all agree; print it",
        };
        format!("GradcheckReport({n} comparisons, {result})")
    }
}

/// Puts the gradients of a function to the test; `names` are those of the arguments.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "each is an option with a name in Python"
)]
fn transform_gradcheck(
    py: Python<'_>,
    f: Py<PyAny>,
    args: Tensors,
    names: Vec<String>,
    step: Option<Real>,
    directions: Option<Size>,
    tolerance: Option<Real>,
    second_order: bool,
    seed: Seed,
) -> PyResult<PyReport> {
    let default = GradcheckOptions::default();
    let options = GradcheckOptions {
        step: step.map_or(default.step, |x| x.0),
        directions: directions.map_or(default.directions, |x| x.0),
        tolerance: tolerance.map_or(default.tolerance, |x| x.0),
        second_order,
        seed: seed.0,
    };
    let mut report = transformed(py, f, |f, _| gradcheck(f, &args.0, &options))?;
    report.names = names;
    Ok(PyReport(report))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPullback>()?;
    m.add_class::<PyComparison>()?;
    m.add_class::<PyReport>()?;
    m.add_function(wrap_pyfunction!(transform_value_and_grad, m)?)?;
    m.add_function(wrap_pyfunction!(transform_vjp, m)?)?;
    m.add_function(wrap_pyfunction!(transform_jvp, m)?)?;
    m.add_function(wrap_pyfunction!(transform_vmap, m)?)?;
    m.add_function(wrap_pyfunction!(transform_jacobian, m)?)?;
    m.add_function(wrap_pyfunction!(transform_hessian, m)?)?;
    m.add_function(wrap_pyfunction!(transform_hvp, m)?)?;
    m.add_function(wrap_pyfunction!(transform_gradcheck, m)?)
}
