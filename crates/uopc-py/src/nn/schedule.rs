//! Schedules of learning rates, clipping and averages.

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use uopc::Tensor;
use uopc::nn::{self, Ema, Schedule};

use super::by_name;
use super::optim::{Parameters, entries};
use crate::convert::{Real, Whole};
use crate::run::{build, compute};
use crate::tensor::{PyTensor, located};

/// A schedule: a formula for the learning rate after so many steps.
#[pyclass(name = "Schedule", module = "uopc.nn", frozen)]
pub struct PySchedule(Schedule);

#[pymethods]
impl PySchedule {
    /// The rate after so many steps, for a base rate.
    fn rate(&self, base: Real, step: Whole) -> f64 {
        self.0.rate(base.0, u64::try_from(step.0).unwrap_or(0))
    }
}

/// A number of steps, with a negative one as what no schedule can use.
fn steps(py: Python<'_>, what: &str, n: Whole) -> PyResult<u64> {
    u64::try_from(n.0).map_err(|_| {
        let message = format!("{what} is {}; a number of steps is not negative", n.0);
        located::<PyValueError>(py, message)
    })
}

fn made(py: Python<'_>, schedule: Schedule) -> PyResult<PySchedule> {
    build(py, || schedule.check())?;
    Ok(PySchedule(schedule))
}

/// The schedule of ConstantLR.
#[pyfunction]
fn constant_schedule(py: Python<'_>, factor: Real, total_iters: Whole) -> PyResult<PySchedule> {
    let steps = steps(py, "total_iters", total_iters)?;
    let factor = factor.0;
    made(py, Schedule::Constant { factor, steps })
}

/// The schedule of StepLR.
#[pyfunction]
fn step_schedule(py: Python<'_>, step_size: Whole, gamma: Real) -> PyResult<PySchedule> {
    let every = steps(py, "step_size", step_size)?;
    made(
        py,
        Schedule::Step {
            every,
            gamma: gamma.0,
        },
    )
}

/// The schedule of MultiStepLR.
#[pyfunction]
fn multi_step_schedule(
    py: Python<'_>,
    milestones: Vec<Whole>,
    gamma: Real,
) -> PyResult<PySchedule> {
    let milestones = milestones.into_iter().map(|m| steps(py, "a milestone", m));
    let milestones = milestones.collect::<PyResult<Vec<u64>>>()?;
    made(
        py,
        Schedule::MultiStep {
            milestones,
            gamma: gamma.0,
        },
    )
}

/// The schedule of ExponentialLR.
#[pyfunction]
fn exponential_schedule(py: Python<'_>, gamma: Real) -> PyResult<PySchedule> {
    made(py, Schedule::Exponential { gamma: gamma.0 })
}

/// The schedule of CosineAnnealingLR.
#[pyfunction]
fn cosine_schedule(py: Python<'_>, t_max: Whole, eta_min: Real) -> PyResult<PySchedule> {
    let steps = steps(py, "T_max", t_max)?;
    made(
        py,
        Schedule::Cosine {
            steps,
            least: eta_min.0,
        },
    )
}

/// The schedule of LinearLR.
#[pyfunction]
fn linear_schedule(
    py: Python<'_>,
    start: Real,
    end: Real,
    total_iters: Whole,
) -> PyResult<PySchedule> {
    let steps = steps(py, "total_iters", total_iters)?;
    let (start, end) = (start.0, end.0);
    made(py, Schedule::Linear { start, end, steps })
}

/// The schedule of OneCycleLR.
#[pyfunction]
fn one_cycle_schedule(
    py: Python<'_>,
    max_lr: Real,
    total_steps: Whole,
    pct_start: Real,
    linear: bool,
    div_factor: Real,
    final_div_factor: Real,
) -> PyResult<PySchedule> {
    let schedule = Schedule::OneCycle {
        max: max_lr.0,
        steps: steps(py, "total_steps", total_steps)?,
        warm: pct_start.0,
        div: div_factor.0,
        final_div: final_div_factor.0,
        linear,
    };
    made(py, schedule)
}

/// The schedule of SequentialLR.
#[pyfunction]
fn sequence_schedule(
    py: Python<'_>,
    parts: Vec<PyRef<'_, PySchedule>>,
    milestones: Vec<Whole>,
) -> PyResult<PySchedule> {
    let milestones = milestones.into_iter().map(|m| steps(py, "a milestone", m));
    let schedule = Schedule::Sequence {
        parts: parts.iter().map(|part| part.0.clone()).collect(),
        milestones: milestones.collect::<PyResult<_>>()?,
    };
    made(py, schedule)
}

// ---- clipping ----

/// Scales the gradients of parameters together so that their norm is at most ``max_norm``; returns
/// the norm before. ``norm_type`` is the exponent of the norm, infinity for the largest element.
///
/// Nothing is computed: the norm is part of the plan of the next step, and the limit is data of it.
/// Parameters without a gradient are passed over. Raises ValueError for a limit that is negative.
///
/// >>> w = Tensor([3.0, 4.0], requires_grad=True)
/// >>> loss = (w.square().sum() * 0.5).backward()
/// >>> uopc.nn.clip_grad_norm_([w], 1.0).item()
/// 5.0
/// >>> [round(g, 4) for g in w.grad.tolist()]
/// [0.6, 0.8]
#[pyfunction]
#[pyo3(
    signature = (parameters, max_norm, norm_type=Real(2.0)),
    text_signature = "(parameters, max_norm, norm_type=2.0)"
)]
fn clip_grad_norm_(
    py: Python<'_>,
    parameters: Parameters,
    max_norm: Real,
    norm_type: Real,
) -> PyResult<PyTensor> {
    let tensors = parameters.tensors();
    PyTensor::build(py, || nn::clip_grad_norm(&tensors, max_norm.0, norm_type.0))
}

/// Holds each element of the gradients of parameters from -clip_value to clip_value. Nothing is
/// computed, as with ``clip_grad_norm_``. Raises ValueError for a limit that is negative.
///
/// >>> w = Tensor([3.0, 4.0], requires_grad=True)
/// >>> loss = w.square().sum().backward()
/// >>> uopc.nn.clip_grad_value_([w], 7.0)
/// >>> w.grad.tolist()
/// [6.0, 7.0]
#[pyfunction]
fn clip_grad_value_(py: Python<'_>, parameters: Parameters, clip_value: Real) -> PyResult<()> {
    let tensors = parameters.tensors();
    build(py, || nn::clip_grad_value(&tensors, clip_value.0))
}

// ---- averages ----

/// Running means of parameters: ``mean += (1 - decay) * (parameter - mean)`` in each ``update``,
/// which comes after the optimiser's step. ``params`` are tensors, or a Module.
///
/// As a context (``with ema:``) it gives the parameters the values of the means meanwhile. Raises
/// ValueError if the decay is not at least 0 and below 1.
///
/// >>> w = Tensor([0.0, 0.0], requires_grad=True)
/// >>> ema = uopc.nn.EMA([w], decay=0.75)
/// >>> w = w.assign(Tensor([1.0, 2.0]))
/// >>> ema.update()
/// >>> with ema:
/// ...     print(w.tolist())
/// [0.25, 0.5]
/// >>> w.tolist()
/// [1.0, 2.0]
#[pyclass(name = "EMA", module = "uopc.nn", frozen)]
pub struct PyEma(Mutex<Ema>);

#[pymethods]
impl PyEma {
    #[new]
    #[pyo3(
        signature = (params, decay=Real(0.999)),
        text_signature = "(params, decay=0.999)"
    )]
    fn new(py: Python<'_>, params: Parameters, decay: Real) -> PyResult<PyEma> {
        let tensors = params.tensors();
        let ema = compute(py, || Ema::new(tensors, decay.0))?;
        Ok(PyEma(Mutex::new(ema)))
    }

    /// Moves the means towards the parameters, as one plan.
    ///
    /// Raises ValueError while the parameters have the values of the means.
    fn update(&self, py: Python<'_>) -> PyResult<()> {
        compute(py, || self.0.lock().update())
    }

    /// Gives the parameters the values of the means, until ``restore``.
    ///
    /// Raises ValueError if they have them already.
    fn apply(&self, py: Python<'_>) -> PyResult<()> {
        compute(py, || self.0.lock().apply())
    }

    /// Gives the parameters back the values that they had before ``apply``.
    ///
    /// Raises ValueError if there was none.
    fn restore(&self, py: Python<'_>) -> PyResult<()> {
        compute(py, || self.0.lock().restore())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        slf.apply(slf.py())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.restore(py)
    }

    /// The means as they are now, in the order of the parameters.
    #[getter]
    fn means<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let means: Vec<Tensor> = py.detach(|| self.0.lock().means().to_vec());
        let means = means.iter().map(|t| PyTensor::build(py, || t.detach()));
        PyList::new(py, means.collect::<PyResult<Vec<_>>>()?)
    }

    /// How much of a mean is kept in a step.
    #[getter]
    fn decay(&self, py: Python<'_>) -> f64 {
        py.detach(|| self.0.lock().decay())
    }

    /// What it remembers, by name, as it is now.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = compute(py, || self.0.lock().state())?;
        let state = state.into_iter().map(|(name, t)| Ok((name, t.detach()?)));
        let state = build(py, || state.collect::<uopc::Result<Vec<_>>>())?;
        by_name(py, state)
    }

    /// Continues from a state that ``state_dict`` gave.
    ///
    /// Raises ValueError if an entry is missing or has another shape, TypeError if it has another
    /// dtype. Then nothing has changed.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = entries(state)?;
        compute(py, || self.0.lock().set_state(&state))
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyEma>()?;
    m.add_class::<PySchedule>()?;
    m.add_function(wrap_pyfunction!(constant_schedule, m)?)?;
    m.add_function(wrap_pyfunction!(step_schedule, m)?)?;
    m.add_function(wrap_pyfunction!(multi_step_schedule, m)?)?;
    m.add_function(wrap_pyfunction!(exponential_schedule, m)?)?;
    m.add_function(wrap_pyfunction!(cosine_schedule, m)?)?;
    m.add_function(wrap_pyfunction!(linear_schedule, m)?)?;
    m.add_function(wrap_pyfunction!(one_cycle_schedule, m)?)?;
    m.add_function(wrap_pyfunction!(sequence_schedule, m)?)?;
    m.add_function(wrap_pyfunction!(clip_grad_norm_, m)?)?;
    m.add_function(wrap_pyfunction!(clip_grad_value_, m)?)
}
