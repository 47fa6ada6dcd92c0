//! `DataLoader`: batches of arrays, made by a helper thread that may call Python.

use std::mem;

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use uopc::Tensor;
use uopc::data::{Batch, Batches, DataLoader, LoaderState, PREFETCH};

use crate::convert::{AnyTensor, Whole};
use crate::data::PyGenerator;
use crate::error::exception;
use crate::fork;
use crate::run::{build, compute};
use crate::tensor::PyTensor;

/// Goes through arrays of equally many rows in batches; each ``for`` is an epoch.
///
/// A batch is a tuple of tensors, one for each array, or a tensor if there is one array. With
/// ``shuffle`` the rows come in another order each epoch, which ``seed`` and the epoch's number decide;
/// ``drop_last`` leaves out the rows at the end that fill no batch, so that all batches have one shape
/// and a training step one plan. ``prefetch`` batches are made ahead by a helper thread; with 0 there
/// is none.
///
/// ``transform`` is called with the tensors of each batch, on the helper thread, and what it returns is
/// the batch. With ``with_generator`` it gets a ``generator`` too, whose random numbers are the same
/// for the same batch of the same epoch. Tensors that it returns, alone or in a tuple or list, are
/// computed there.
///
/// Raises ValueError if there is no array, one has no axis, they differ in rows, or a batch has none.
///
/// >>> loader = uopc.data.DataLoader(Tensor.arange(5), [[0], [1], [4], [9], [16]], batch_size=2)
/// >>> for x, y in loader:
/// ...     print(x.tolist(), y.tolist())
/// [0, 1] [[0], [1]]
/// [2, 3] [[4], [9]]
/// [4] [[16]]
#[pyclass(name = "DataLoader", module = "uopc.data", frozen)]
struct PyDataLoader {
    loader: DataLoader,
    prefetch: usize,
    transform: Option<Py<PyAny>>,
    with_generator: bool,
    /// Whether there is one array.
    single: bool,
}

#[pymethods]
impl PyDataLoader {
    #[new]
    #[pyo3(signature = (
        *arrays, batch_size=Whole(1), shuffle=false, seed=0, drop_last=false,
        prefetch=Whole(PREFETCH as i64), transform=None, with_generator=false
    ), text_signature = "(*arrays, batch_size=1, shuffle=False, seed=0, drop_last=False, prefetch=2, transform=None, with_generator=False)")]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        arrays: Vec<AnyTensor>,
        batch_size: Whole,
        shuffle: bool,
        seed: u64,
        drop_last: bool,
        prefetch: Whole,
        transform: Option<Py<PyAny>>,
        with_generator: bool,
    ) -> PyResult<PyDataLoader> {
        let arrays: Vec<Tensor> = arrays.into_iter().map(|t| t.0).collect();
        let below_0 = |name: &str, n: i64| {
            PyValueError::new_err(format!("DataLoader: {name} is {n}, below 0"))
        };
        let size = usize::try_from(batch_size.0);
        let size = size.map_err(|_| below_0("batch_size", batch_size.0))?;
        let ahead = usize::try_from(prefetch.0);
        let ahead = ahead.map_err(|_| below_0("prefetch", prefetch.0))?;
        if let Some(transform) = &transform
            && !transform.bind(py).is_callable()
        {
            return Err(PyTypeError::new_err(
                "DataLoader: transform is a function of the tensors of a batch",
            ));
        }
        let single = arrays.len() == 1;
        let loader = compute(py, || DataLoader::new(&arrays, size))?.drop_last(drop_last);
        let loader = if shuffle {
            loader.shuffle(seed)
        } else {
            loader
        };
        Ok(PyDataLoader {
            loader,
            prefetch: ahead,
            transform,
            with_generator,
            single,
        })
    }

    /// Where the loader is, to be saved with a model: the epoch begun last, from 0, and how many of its
    /// batches were handed out; the beginning of the next one when those were all.
    ///
    /// >>> uopc.data.DataLoader(Tensor.arange(5), batch_size=2).state_dict()
    /// {'epoch': 0, 'position': 0}
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let LoaderState { epoch, position } = self.loader.state();
        let dict = PyDict::new(py);
        dict.set_item("epoch", epoch)?;
        dict.set_item("position", position)?;
        Ok(dict)
    }

    /// Goes to a place that ``state_dict`` gave: the next ``for`` begins there.
    ///
    /// Raises KeyError if a number is missing, ValueError if the epoch has fewer batches.
    ///
    /// >>> loader = uopc.data.DataLoader(Tensor.arange(5), batch_size=2)
    /// >>> loader.load_state_dict({"epoch": 0, "position": 2})
    /// >>> [batch.tolist() for batch in loader]
    /// [[4]]
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = LoaderState {
            epoch: state.get_item("epoch")?.extract()?,
            position: state.get_item("position")?.extract()?,
        };
        build(py, || self.loader.set_state(state))
    }

    fn __len__(&self) -> usize {
        self.loader.len()
    }

    fn __iter__(&self, py: Python<'_>) -> PyBatches {
        let transform = self.transform.as_ref().map(|f| f.clone_ref(py));
        let (with_generator, single) = (self.with_generator, self.single);
        let make = move |batch: &Batch| -> PyResult<Py<PyAny>> {
            let tensors = {
                let _running = fork::running();
                batch.tensors().map_err(exception)?
            };
            // Taken back after the interpreter's lock has been given back, since it may wait.
            let _paused = fork::paused();
            let made = Python::try_attach(|py| {
                let tensors = tensors.into_iter().map(PyTensor::from);
                let tensors = PyTuple::new(py, tensors.collect::<Vec<_>>())?;
                let Some(transform) = &transform else {
                    return match single {
                        true => Ok(tensors.get_item(0)?.unbind()),
                        false => Ok(tensors.into_any().unbind()),
                    };
                };
                let named = match with_generator {
                    true => {
                        let named = PyDict::new(py);
                        let generator = PyGenerator(Mutex::new(batch.generator()));
                        named.set_item("generator", Bound::new(py, generator)?)?;
                        Some(named)
                    }
                    false => None,
                };
                let value = transform.bind(py).call(tensors, named.as_ref())?;
                realize(&value)?;
                Ok(value.unbind())
            });
            // The interpreter is about to end, and nobody waits for this.
            made.unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter ends")))
        };
        let batches = self.loader.iter_with(self.prefetch, make);
        PyBatches(Mutex::new(Some(batches)))
    }
}

/// Computes what a transform has returned, as far as it is tensors.
fn realize(value: &Bound<'_, PyAny>) -> PyResult<()> {
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut add = |item: &Bound<'_, PyAny>| {
        if let Ok(t) = item.cast::<PyTensor>() {
            tensors.push(t.get().tensor.clone());
        }
    };
    add(value);
    if value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>() {
        value
            .try_iter()?
            .try_for_each(|item| item.map(|i| add(&i)))?;
    }
    compute(value.py(), || Tensor::realize_all(&tensors))
}

/// What an epoch of a loader gives.
type Made = PyResult<Py<PyAny>>;

/// The batches of an epoch of a `DataLoader`.
///
/// Leaving it early ends the helper thread. What a transform raises comes out of ``next``, and ends the
/// epoch.
///
/// >>> batches = iter(uopc.data.DataLoader(Tensor.arange(5), batch_size=2))
/// >>> next(batches).tolist()
/// [0, 1]
#[pyclass(name = "Batches", module = "uopc.data", frozen)]
struct PyBatches(Mutex<Option<Batches<Made>>>);

#[pymethods]
impl PyBatches {
    fn __iter__(slf: Py<PyBatches>) -> Py<PyBatches> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let next = compute(py, || {
            let mut batches = self.0.lock();
            match &mut *batches {
                Some(some) => some.next().transpose(),
                None => Ok(None),
            }
        })?;
        match next {
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(error)) => {
                self.end(py);
                Err(error)
            }
            None => {
                self.end(py);
                Ok(None)
            }
        }
    }

    /// How many batches are left.
    fn __length_hint__(&self) -> usize {
        let batches = self.0.try_lock();
        batches.map_or(0, |b| b.as_ref().map_or(0, |b| b.size_hint().0))
    }
}

impl PyBatches {
    /// Ends the helper thread, which may be waiting for the interpreter's lock.
    fn end(&self, py: Python<'_>) {
        py.detach(|| {
            let batches = self.0.lock().take();
            drop(batches);
        });
    }
}

impl Drop for PyBatches {
    fn drop(&mut self) {
        let Some(batches) = self.0.get_mut().take() else {
            return;
        };
        let mut batches = Some(batches);
        let ended = Python::try_attach(|py| {
            let batches = batches.take();
            py.detach(|| drop(batches));
        });
        if ended.is_none() {
            // The interpreter ends, and the helper with the process.
            mem::forget(batches);
        }
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDataLoader>()?;
    m.add_class::<PyBatches>()
}
