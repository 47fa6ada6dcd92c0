//! Gradients: what depends on parameters, `backward`, and how to switch it off.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use uopc::Tensor;
use uopc::tensor::{NoGrad, no_grad};

use super::{PyTensor, shape_error, type_error};
use crate::convert::shown;
use crate::run::{build, compute};

/// The tensors of a list for which gradients are asked.
fn targets(params: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    let py = params.py();
    let items = params.try_iter().map_err(|_| {
        let message = format!("a list of tensors is needed, not {}", shown(params));
        type_error(py, "backward", message)
    })?;
    let mut targets = Vec::new();
    for item in items {
        match item?.cast_into::<PyTensor>() {
            Ok(tensor) => targets.push(tensor.get().tensor.clone()),
            Err(other) => {
                let (k, found) = (targets.len(), other.into_inner().get_type().name()?);
                let message = format!("the list holds tensors, and item {k} is of type {found}");
                return Err(type_error(py, "backward", message));
            }
        }
    }
    Ok(targets)
}

impl PyTensor {
    /// The object that stood for the gradient before, if it still does.
    fn known_grad<'py>(&self, py: Python<'py>, grad: &Tensor) -> Option<Bound<'py, PyTensor>> {
        let known = self.grad.lock().as_ref().map(|known| known.clone_ref(py));
        let object = known?.bind(py).upgrade()?.cast_into::<PyTensor>().ok()?;
        object.get().tensor.is(grad).then_some(object)
    }

    fn remember_grad(&self, object: &Bound<'_, PyTensor>) -> PyResult<()> {
        let reference = PyWeakrefReference::new(object)?.unbind();
        // What it replaces goes after the lock.
        let former = self.grad.lock().replace(reference);
        drop(former);
        Ok(())
    }
}

#[pymethods]
impl PyTensor {
    /// Whether it is a parameter or was computed from one in a way that gradients can follow.
    ///
    /// Setting it to True makes a parameter of the tensor: a leaf for which ``backward`` leaves a
    /// gradient. Setting it to False makes an ordinary tensor of a parameter: it is frozen.
    ///
    /// Setting it raises TypeError for a dtype without gradients, and RuntimeError for False where
    /// the tensor was computed from parameters: ``detach()`` gives one without gradients.
    ///
    /// >>> w = Tensor([1.0], requires_grad=True)
    /// >>> w.requires_grad, (w * 2).requires_grad, w.detach().requires_grad
    /// (True, True, False)
    #[getter]
    pub(super) fn requires_grad(&self) -> bool {
        // The library also knows where comparisons and positions come from.
        self.tensor.needs_grad() && self.tensor.dtype().is_float()
    }

    #[setter]
    fn set_requires_grad(&self, py: Python<'_>, requires_grad: bool) -> PyResult<()> {
        compute(py, || match requires_grad {
            true => self.tensor.clone().requires_grad().map(|_| ()),
            false => self.tensor.freeze(),
        })
    }

    /// Makes a parameter of the tensor, or with False an ordinary tensor, and returns it.
    ///
    /// See requires_grad.
    ///
    /// >>> Tensor([1.0]).requires_grad_()
    /// Tensor([1.], shape=(1,), dtype=f32, requires_grad=True)
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(
        slf: Bound<'py, Self>,
        py: Python<'py>,
        requires_grad: bool,
    ) -> PyResult<Bound<'py, Self>> {
        slf.get().set_requires_grad(py, requires_grad)?;
        Ok(slf)
    }

    /// Whether nothing was computed to get it that a gradient could follow.
    ///
    /// >>> w = Tensor([1.0], requires_grad=True)
    /// >>> w.is_leaf, (w * 2).is_leaf
    /// (True, False)
    #[getter]
    fn is_leaf(&self) -> bool {
        !self.requires_grad() || self.tensor.is_parameter()
    }

    /// The gradient that ``backward`` has left, or None. Can be set, to None or to a tensor of this
    /// shape and dtype.
    ///
    /// >>> w = Tensor([1.0, 2.0], requires_grad=True)
    /// >>> w.square().sum().backward()
    /// Tensor(5., shape=(), dtype=f32, requires_grad=True)
    /// >>> w.grad.detach()
    /// Tensor([2., 4.], shape=(2,), dtype=f32)
    #[getter]
    fn grad<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTensor>>> {
        let Some(grad) = self.tensor.grad() else {
            return Ok(None);
        };
        if let Some(object) = self.known_grad(py, &grad) {
            return Ok(Some(object));
        }
        let object = Bound::new(py, PyTensor::from(grad))?;
        self.remember_grad(&object)?;
        Ok(Some(object))
    }

    #[setter]
    fn set_grad(&self, py: Python<'_>, grad: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(grad) = grad else {
            self.tensor.set_grad(None);
            return Ok(());
        };
        let Ok(object) = grad.cast::<PyTensor>() else {
            let class = grad.get_type().name()?;
            let message = format!("a tensor or None is needed, not {class}; write Tensor(value)");
            return Err(type_error(py, "grad", message));
        };
        let grad = &object.get().tensor;
        if grad.shape() != self.tensor.shape() {
            let (of, shape) = (self.tensor.shape(), grad.shape());
            let message = format!("a tensor of shape {of} has no gradient of shape {shape}");
            return Err(shape_error(py, "grad", message));
        }
        if grad.dtype() != self.tensor.dtype() {
            let (of, dtype) = (self.tensor.dtype(), grad.dtype());
            let message = format!("a tensor of dtype {of} has no gradient of {dtype}; cast it");
            return Err(type_error(py, "grad", message));
        }
        self.tensor.set_grad(Some(grad.clone()));
        self.remember_grad(object)
    }

    #[deleter]
    fn delete_grad(&self) {
        self.tensor.set_grad(None);
    }

    /// Forgets the gradient. Without this the next ``backward`` adds to it.
    ///
    /// >>> w = Tensor([1.0], requires_grad=True)
    /// >>> loss = w.sum().backward()
    /// >>> w.zero_grad()
    /// >>> print(w.grad)
    /// None
    fn zero_grad(&self) {
        self.tensor.zero_grad();
    }

    /// Leaves the derivative of this scalar with respect to each parameter as its ``grad``.
    ///
    /// It is added to what is there. ``params`` is a list of tensors; without it all parameters
    /// that the scalar depends on get theirs. Nothing is computed: gradients are graphs like
    /// everything else. A parameter in the list that the scalar does not mention gets zeros. Returns
    /// this tensor.
    ///
    /// Raises TypeError if the list holds anything but tensors, RuntimeError if this is no scalar or
    /// depends on no parameter, if a tensor in the list
    /// needs no gradient, and if a parameter was updated after this was computed.
    ///
    /// >>> w = Tensor([1.0, 2.0], requires_grad=True)
    /// >>> loss = (w * w).sum()
    /// >>> loss.backward([w]) is loss
    /// True
    /// >>> w.grad
    /// Tensor([2., 4.], shape=(2,), dtype=f32, requires_grad=True)
    #[pyo3(signature = (params=None))]
    fn backward<'py>(
        slf: Bound<'py, Self>,
        py: Python<'py>,
        params: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let tensor = &slf.get().tensor;
        match params {
            None => build(py, || tensor.backward_all())?,
            Some(params) => {
                // A tensor gives its rows one by one, of which none is a parameter.
                let targets = match params.cast::<PyTensor>() {
                    Ok(one) => vec![one.get().tensor.clone()],
                    Err(_) => targets(&params)?,
                };
                build(py, || tensor.backward(&targets))?
            }
        };
        Ok(slf)
    }

    /// The same values, through which no gradient flows. Costs nothing.
    ///
    /// >>> w = Tensor([1.0, 2.0], requires_grad=True)
    /// >>> loss = (w * w.detach()).sum().backward()
    /// >>> w.grad
    /// Tensor([1., 2.], shape=(2,), dtype=f32, requires_grad=True)
    fn detach(&self, py: Python<'_>) -> PyResult<PyTensor> {
        PyTensor::build(py, || self.tensor.detach())
    }
}

thread_local! {
    /// Guards that Python has entered and not left. They are alike, so leaving drops any of them.
    static OFF: RefCell<Vec<NoGrad>> = const { RefCell::new(Vec::new()) };
}

/// From now on results on this thread need no gradients, once more.
#[pyfunction]
fn enter_no_grad() {
    OFF.with_borrow_mut(|guards| guards.push(no_grad()));
}

/// Undoes one `enter_no_grad` of this thread.
#[pyfunction]
fn leave_no_grad() {
    let guard = OFF.with_borrow_mut(Vec::pop);
    drop(guard);
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(enter_no_grad, m)?)?;
    m.add_function(wrap_pyfunction!(leave_no_grad, m)?)
}
