//! Data sets, and a generator of random numbers of one's own.

use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uopc::data::{digits, idx, mnist};
use uopc::tensor::Generator;
use uopc::{DType, Tensor};

use crate::convert::{Whole, Wholes};
use crate::dtype::AnyDType;
use crate::run::compute;
use crate::tensor::{PyTensor, shape_error};

/// Random numbers from a seed, apart from those of ``Tensor.manual_seed``.
///
/// The same seed gives the same numbers in the same order of calls, and on every machine.
///
/// >>> a, b = uopc.Generator(7), uopc.Generator(7)
/// >>> a.uniform(3).tolist() == b.uniform(3).tolist()
/// True
#[pyclass(name = "Generator", module = "uopc", frozen)]
pub struct PyGenerator(pub Mutex<Generator>);

#[pymethods]
impl PyGenerator {
    #[new]
    fn new(seed: u64) -> PyGenerator {
        PyGenerator(Mutex::new(Generator::new(seed)))
    }

    /// Numbers evenly distributed from ``low`` up to ``high``, f32 unless ``dtype`` says otherwise.
    ///
    /// Raises ValueError if the shape is none, TypeError for a dtype that is no float or a bound
    /// that is not finite in it.
    ///
    /// >>> uopc.Generator(0).uniform(2, 3, low=-1.0).shape
    /// (2, 3)
    #[pyo3(signature = (*shape, low=0.0, high=1.0, dtype=None))]
    fn uniform(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        low: f64,
        high: f64,
        dtype: Option<AnyDType>,
    ) -> PyResult<PyTensor> {
        let shape = Wholes::of_args(shape)?;
        let dtype = dtype.map_or(DType::F32, |d| d.0);
        PyTensor::build(py, || self.0.lock().uniform_as(dtype, shape, low, high))
    }

    /// Numbers of the normal distribution with mean 0 and variance 1, f32 unless ``dtype`` says
    /// otherwise.
    ///
    /// Raises ValueError if the shape is none, TypeError for a dtype that is no float.
    ///
    /// >>> uopc.Generator(0).randn(4).dtype
    /// uopc.f32
    #[pyo3(signature = (*shape, dtype=None))]
    fn randn(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyTuple>,
        dtype: Option<AnyDType>,
    ) -> PyResult<PyTensor> {
        let shape = Wholes::of_args(shape)?;
        let dtype = dtype.map_or(DType::F32, |d| d.0);
        PyTensor::build(py, || self.0.lock().randn_as(dtype, shape))
    }

    /// A whole number from 0 up to ``n``, without it.
    ///
    /// Raises ValueError if ``n`` is not above 0.
    ///
    /// >>> uopc.Generator(0).below(10) in range(10)
    /// True
    fn below(&self, py: Python<'_>, n: Whole) -> PyResult<usize> {
        match usize::try_from(n.0) {
            Ok(n) if n > 0 => Ok(self.0.lock().below(n)),
            _ => Err(shape_error(
                py,
                "below",
                "there is no number from 0 up to 0 or less".into(),
            )),
        }
    }

    /// The numbers from 0 up to ``n`` in random order, as for the rows of an epoch.
    ///
    /// Raises ValueError if ``n`` is negative.
    ///
    /// >>> sorted(uopc.Generator(0).permutation(4))
    /// [0, 1, 2, 3]
    fn permutation(&self, py: Python<'_>, n: Whole) -> PyResult<Vec<usize>> {
        match usize::try_from(n.0) {
            Ok(n) => Ok(self.0.lock().permutation(n)),
            Err(_) => Err(shape_error(py, "permutation", "n is below 0".into())),
        }
    }
}

/// Images and their labels.
type Pair = (PyTensor, PyTensor);

/// The handwritten digits that come with the package: ((images, labels), (images, labels)), for
/// training and for the test.
///
/// Images are f32 of shape (n, 64), rows of 8 x 8 pixels from 0 to 1; labels i32 of shape (n,).
/// There are 1,437 for training and 360 for the test.
///
/// >>> (images, labels), test = uopc.data.digits()
/// >>> images.shape, labels.shape, test[0].shape
/// ((1437, 64), (1437,), (360, 64))
#[pyfunction(name = "digits")]
fn load_digits(py: Python<'_>) -> PyResult<(Pair, Pair)> {
    let (train, test) = compute(py, || {
        let digits = digits::load()?;
        Ok((digits.train.all()?, digits.test.all()?))
    })?;
    let wrap = |(x, y): (Tensor, Tensor)| (x.into(), y.into());
    Ok((wrap(train), wrap(test)))
}

/// Images and labels in the format of MNIST (IDX), plain or compressed: (images, labels).
///
/// Images are f32 of shape (n, pixels) from 0 to 1, labels i32 of shape (n,).
///
/// Raises OSError if a file can't be read, is damaged, or the two do not belong together.
///
/// >>> uopc.data.idx("no-such-images", "no-such-labels")
/// Traceback (most recent call last):
/// OSError: no-such-images: ...
#[pyfunction(name = "idx")]
fn load_idx(py: Python<'_>, images: PathBuf, labels: PathBuf) -> PyResult<Pair> {
    let (x, y) = compute(py, || idx::load(images, labels)?.all())?;
    Ok((x.into(), y.into()))
}

/// The data of a folder with MNIST's four files: ((images, labels), (images, labels)), for training and
/// for the test.
///
/// The files are train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
/// t10k-labels-idx1-ubyte, each plain or with ``.gz``. Images are f32 of shape (n, pixels): pixels are
/// divided by 255, so they are from 0 to 1, and nothing is subtracted. Labels are i32 of shape (n,).
///
/// Raises OSError if a file is missing, can't be read or is damaged.
///
/// >>> uopc.data.mnist("no-such-folder")
/// Traceback (most recent call last):
/// OSError: no-such-folder: there is no train-images-idx3-ubyte in this folder, ...
#[pyfunction(name = "mnist")]
fn load_mnist(py: Python<'_>, folder: PathBuf) -> PyResult<(Pair, Pair)> {
    let (train, test) = compute(py, || {
        let data = mnist::load(folder)?;
        Ok((data.train.all()?, data.test.all()?))
    })?;
    let wrap = |(x, y): (Tensor, Tensor)| (x.into(), y.into());
    Ok((wrap(train), wrap(test)))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGenerator>()?;
    m.add_function(wrap_pyfunction!(load_digits, m)?)?;
    m.add_function(wrap_pyfunction!(load_idx, m)?)?;
    m.add_function(wrap_pyfunction!(load_mnist, m)?)
}
