//! Why a gradient is zero, missing or NaN.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::autodiff::{Explanation, StrictGradients, strict_gradients};
use uopc::compile::{Finding, NonFinite};
use uopc::find_nan;

use crate::convert::Tensors;
use crate::dtype::PyDType;
use crate::run::compute;
use crate::tensor::PyTensor;

/// How a tensor reaches a loss, as ``explain_gradient`` says it. As text it has all of it.
///
/// >>> w = Tensor([1.0, 2.0], requires_grad=True)
/// >>> explanation = uopc.explain_gradient((w * w).sum(), w)
/// >>> bool(explanation), explanation.path_count
/// (True, 1)
#[pyclass(name = "Explanation", module = "uopc.diagnose", frozen)]
struct PyExplanation(Explanation);

#[pymethods]
impl PyExplanation {
    /// Whether a derivative flows from the tensor to the loss.
    #[getter]
    fn reaches(&self) -> bool {
        self.0.reaches()
    }

    /// How many paths there are along which a derivative flows; 2**64 - 1 for that many or more.
    #[getter]
    fn path_count(&self) -> u64 {
        self.0.path_count
    }

    /// The shortest paths: for each a text for each op, from the tensor's first reader to the loss.
    ///
    /// >>> w = Tensor([1.0, 2.0], requires_grad=True)
    /// >>> paths = uopc.explain_gradient(w.exp().sum(), w).paths
    /// >>> [op.split(" (at")[0] for op in paths[0]]
    /// ['exp f32 (2,)', 'reduce ADD f32 ()']
    #[getter]
    fn paths(&self) -> Vec<Vec<String>> {
        let texts = |path: &uopc::autodiff::Path| {
            let steps = path.steps();
            steps.iter().map(ToString::to_string).collect()
        };
        self.0.paths.iter().map(texts).collect()
    }

    /// The places where paths are cut, each with the reason, the remedy and the line.
    #[getter]
    fn cuts(&self) -> Vec<String> {
        self.0.cuts.iter().map(ToString::to_string).collect()
    }

    fn __bool__(&self) -> bool {
        self.0.reaches()
    }

    fn __str__(&self) -> String {
        self.0.to_string().trim_end().to_string()
    }

    fn __repr__(&self) -> String {
        let (paths, cuts) = (self.0.path_count, self.0.cut_count);
        format!("Explanation({paths} paths, cut at {cuts} places; print it)")
    }
}

/// The op from which a NaN or an infinity comes, as ``find_nan`` gives it. As text it has all of it.
///
/// >>> found = uopc.find_nan(Tensor([4.0, -1.0]).sqrt())
/// >>> found.what, found.op, found.index
/// ('NaN', 'sqrt', (1,))
#[pyclass(name = "Finding", module = "uopc.diagnose", frozen)]
struct PyFinding(Finding);

#[pymethods]
impl PyFinding {
    /// "NaN" or "infinity".
    #[getter]
    fn what(&self) -> &'static str {
        match self.0.what {
            NonFinite::Nan => "NaN",
            NonFinite::Infinity => "infinity",
        }
    }

    /// What the op is called.
    #[getter]
    fn op(&self) -> &str {
        &self.0.op
    }

    /// The dtype of its result.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.0.dtype)
    }

    /// The shape of its result.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape.iter())
    }

    /// The line where it was written, and the rule if it is part of a derivative; None if unknown.
    #[getter]
    fn site(&self) -> Option<String> {
        self.0.site.map(|site| site.to_string())
    }

    /// The first position at which its result is not finite.
    #[getter]
    fn index<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.index)
    }

    /// The value there.
    #[getter]
    fn value(&self) -> f64 {
        self.0.value
    }

    /// What it read there: a text for each operand.
    #[getter]
    fn operands(&self) -> Vec<String> {
        self.0.operands.iter().map(ToString::to_string).collect()
    }

    /// Whether it is an infinity of an input or a constant, and no op made it or a NaN of it.
    #[getter]
    fn may_be_meant(&self) -> bool {
        self.0.may_be_meant
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Finding({} in {}; print it)", self.0.what, self.0.op)
    }
}

#[pymethods]
impl PyTensor {
    /// Explains the gradient of this with respect to ``target``, see ``uopc.explain_gradient``.
    ///
    /// >>> w = Tensor([1.0, 2.0], requires_grad=True)
    /// >>> w.detach().sum().explain_gradient(w).reaches
    /// False
    fn explain_gradient(
        &self,
        py: Python<'_>,
        target: PyRef<'_, PyTensor>,
    ) -> PyResult<PyExplanation> {
        let target = target.tensor.clone();
        compute(py, || self.tensor.explain_gradient(&target)).map(PyExplanation)
    }
}

/// The op that made one of the tensors hold a NaN or an infinity.
#[pyfunction]
fn diagnose_find_nan(py: Python<'_>, tensors: Tensors) -> PyResult<Option<PyFinding>> {
    let found = compute(py, || find_nan(&tensors.0))?;
    Ok(found.map(PyFinding))
}

thread_local! {
    /// Guards that Python has entered and not left. They are alike, so leaving drops any of them.
    static STRICT: RefCell<Vec<StrictGradients>> = const { RefCell::new(Vec::new()) };
}

/// From now on cut targets are errors on this thread, once more.
#[pyfunction]
fn enter_strict_gradients() {
    STRICT.with_borrow_mut(|guards| guards.push(strict_gradients()));
}

/// Undoes one `enter_strict_gradients` of this thread.
#[pyfunction]
fn leave_strict_gradients() {
    let guard = STRICT.with_borrow_mut(Vec::pop);
    drop(guard);
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyExplanation>()?;
    m.add_class::<PyFinding>()?;
    m.add_function(wrap_pyfunction!(diagnose_find_nan, m)?)?;
    m.add_function(wrap_pyfunction!(enter_strict_gradients, m)?)?;
    m.add_function(wrap_pyfunction!(leave_strict_gradients, m)?)
}
