//! Files of tensors, tables and text.

use std::path::PathBuf;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};
use uopc::io::csv::Options;
use uopc::io::text::Alphabet;
use uopc::io::{self, Format, TensorFile, csv, idx, npy, npz, sharded, text};
use uopc::{DType, Tensor};

use crate::convert::AnyTensor;
use crate::dtype::{AnyDType, PyDType};
use crate::run::{build, compute};
use crate::tensor::PyTensor;

/// Names and what they stand for.
type Named<T> = Vec<(String, T)>;

fn tensors(named: Named<AnyTensor>) -> Named<Tensor> {
    named.into_iter().map(|(name, t)| (name, t.0)).collect()
}

/// Writes tensors in a format of choice, or in that which the file's name says.
#[pyfunction]
fn save_named(
    py: Python<'_>,
    path: PathBuf,
    named: Named<AnyTensor>,
    format: Option<&str>,
    metadata: Named<String>,
) -> PyResult<()> {
    let named = tensors(named);
    compute(py, || {
        let format = match format {
            Some(name) => Format::named(name)?,
            None => Format::of_name(&path).unwrap_or(Format::Safetensors),
        };
        io::save_as(&path, &named, format, &metadata)
    })
}

/// Writes arrays in NumPy's format for several.
#[pyfunction]
fn save_arrays(
    py: Python<'_>,
    path: PathBuf,
    named: Named<AnyTensor>,
    compress: bool,
) -> PyResult<()> {
    let named = tensors(named);
    compute(py, || match compress {
        true => npz::save_compressed(&path, &named),
        false => npz::save(&path, &named),
    })
}

/// Writes a folder of safetensors files with an index.
#[pyfunction]
fn save_shards(
    py: Python<'_>,
    path: PathBuf,
    named: Named<AnyTensor>,
    most: u64,
    metadata: Named<String>,
) -> PyResult<()> {
    let named = tensors(named);
    compute(py, || sharded::save(&path, &named, most, &metadata))
}

/// Reads all tensors of a file of any format.
#[pyfunction]
fn load_named<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyDict>> {
    let named = compute(py, || io::load(path))?;
    let dict = PyDict::new(py);
    for (name, tensor) in named {
        dict.set_item(name, Bound::new(py, PyTensor::from(tensor))?)?;
    }
    Ok(dict)
}

/// The most bytes that a file of a folder has, unless somebody says otherwise.
const SHARD: u64 = sharded::SHARD;

/// A file of tensors by name, which are made when they are asked for; ``uopc.io.open`` gives one.
///
/// It is a mapping from names to tensors, in the order of names. Only the file's header was read.
/// Where elements are aligned, a tensor is the file's own memory and is read when it is computed
/// with; so the file must keep its content as long as this or one of its tensors lives. Replacing it
/// as a whole, as ``uopc.io.save`` does, is fine.
///
/// >>> import os, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> path = os.path.join(folder.name, "two.safetensors")
/// >>> uopc.io.save(path, {"a": Tensor([1.0]), "b": Tensor([[2, 3]])})
/// >>> file = uopc.io.open(path)
/// >>> file
/// TensorFile(safetensors, 2 tensors)
/// >>> list(file), file["b"].shape
/// (['a', 'b'], (1, 2))
#[pyclass(name = "TensorFile", module = "uopc.io", frozen, mapping)]
struct PyTensorFile(TensorFile);

#[pymethods]
impl PyTensorFile {
    /// The format: "safetensors", "sharded", "npz" or "npy".
    #[getter]
    fn format(&self) -> &'static str {
        self.0.format().name()
    }

    /// The texts beside the tensors, by name; NumPy's formats have none.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in self.0.metadata() {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// The dtype and the shape of a tensor, which is not read.
    ///
    /// Raises KeyError if there is none of that name, OSError if its dtype is none that uopc has.
    fn info<'py>(&self, py: Python<'py>, name: &str) -> PyResult<(PyDType, Bound<'py, PyTuple>)> {
        self.expect(name)?;
        let (dtype, shape) = compute(py, || self.0.info(name))?;
        Ok((PyDType(dtype), PyTuple::new(py, &shape[..])?))
    }

    /// The names of all tensors, sorted.
    fn keys(&self) -> Vec<String> {
        self.0.names()
    }

    /// All tensors, in the order of their names.
    fn values(&self, py: Python<'_>) -> PyResult<Vec<PyTensor>> {
        let all = compute(py, || self.0.tensors())?;
        Ok(all.into_iter().map(|(_, t)| t.into()).collect())
    }

    /// Names and tensors, in the order of names.
    fn items(&self, py: Python<'_>) -> PyResult<Named<PyTensor>> {
        let all = compute(py, || self.0.tensors())?;
        Ok(all.into_iter().map(|(n, t)| (n, t.into())).collect())
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<PyTensor> {
        self.expect(name)?;
        Ok(compute(py, || self.0.tensor(name))?.into())
    }

    fn __len__(&self) -> usize {
        self.0.names().len()
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        let name = name.extract::<String>();
        name.is_ok_and(|name| self.0.names().contains(&name))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.0.names())?.try_iter()
    }

    fn __repr__(&self) -> String {
        let (format, n) = (self.format(), self.__len__());
        let tensors = if n == 1 { "tensor" } else { "tensors" };
        format!("TensorFile({format}, {n} {tensors})")
    }
}

impl PyTensorFile {
    fn expect(&self, name: &str) -> PyResult<()> {
        match self.0.names().iter().any(|n| n == name) {
            true => Ok(()),
            false => Err(PyKeyError::new_err(name.to_string())),
        }
    }
}

/// Opens a file of tensors of any format, which its content says: only the header is read, and a
/// tensor when it is asked for. Of a folder, it opens ``model.safetensors.index.json``.
///
/// Raises OSError if the file can't be read or is damaged.
///
/// >>> uopc.io.open("no-such-file")
/// Traceback (most recent call last):
/// OSError: no-such-file: ...
#[pyfunction(name = "open")]
fn open_file(py: Python<'_>, path: PathBuf) -> PyResult<PyTensorFile> {
    Ok(PyTensorFile(compute(py, || io::open(path))?))
}

/// Writes a tensor to an npy file, whole or not at all: what ``numpy.load`` reads. bf16, which NumPy
/// does not have, is V2 there, as with the package ml_dtypes.
///
/// Raises OSError if the file can't be written.
///
/// >>> import os, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> path = os.path.join(folder.name, "a.npy")
/// >>> uopc.io.save_npy(path, [1, 2])
/// >>> np.load(path)
/// array([1, 2], dtype=int32)
#[pyfunction]
fn save_npy(py: Python<'_>, path: PathBuf, tensor: AnyTensor) -> PyResult<()> {
    compute(py, || npy::save(path, &tensor.0))
}

/// The array of an npy file: of every dtype that uopc has, in either order of bytes, in C or Fortran
/// order.
///
/// Raises OSError if the file can't be read, is damaged, or holds something else, such as objects.
///
/// >>> import os, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> path = os.path.join(folder.name, "a.npy")
/// >>> np.save(path, np.asfortranarray([[1, 2], [3, 4]], dtype=">i2"))
/// >>> uopc.io.load_npy(path).tolist()
/// [[1, 2], [3, 4]]
#[pyfunction]
fn load_npy(py: Python<'_>, path: PathBuf) -> PyResult<PyTensor> {
    Ok(compute(py, || npy::load(path))?.into())
}

/// Writes a tensor in the format of MNIST (IDX), compressed if the name ends in ``.gz``.
///
/// Raises OSError if the file can't be written, or the format does not have the dtype: it has u8, i8,
/// i16, i32, f32 and f64.
///
/// >>> import os, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> path = os.path.join(folder.name, "labels-idx1-ubyte.gz")
/// >>> uopc.io.save_idx(path, Tensor([7, 2], dtype="u8"))
/// >>> uopc.io.load_idx(path).tolist()
/// [7, 2]
#[pyfunction]
fn save_idx(py: Python<'_>, path: PathBuf, tensor: AnyTensor) -> PyResult<()> {
    compute(py, || idx::save(path, &tensor.0))
}

/// The array of a file in the format of MNIST (IDX), compressed or not, in its own dtype.
///
/// Raises OSError if the file can't be read or is damaged.
///
/// >>> uopc.io.load_idx("no-such-file")
/// Traceback (most recent call last):
/// OSError: no-such-file: ...
#[pyfunction]
fn load_idx(py: Python<'_>, path: PathBuf) -> PyResult<PyTensor> {
    Ok(compute(py, || idx::load(path))?.into())
}

/// A table of numbers: the tensor of shape (rows, columns), and the names of columns, none without
/// ``header``.
///
/// ``header`` says that the first line has names; cells stand between ``delimiter``; ``missing`` is
/// what to take for an empty cell.
///
/// Raises OSError with the line and the column of a cell that is empty or no number of the dtype, if
/// rows differ in length, and if the file can't be read.
///
/// >>> import os, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> path = os.path.join(folder.name, "a.csv")
/// >>> uopc.io.save_text(path, "height,weight\n1.5,60\n1.75,\n")
/// >>> uopc.io.load_csv(path, header=True)
/// Traceback (most recent call last):
/// OSError: ...a.csv: line 3, column 2 (weight): is empty
/// >>> values, columns = uopc.io.load_csv(path, header=True, missing=0)
/// >>> values.tolist(), columns
/// ([[1.5, 60.0], [1.75, 0.0]], ['height', 'weight'])
#[pyfunction]
#[pyo3(signature = (path, *, header=false, delimiter=',', dtype=None, missing=None))]
fn load_csv(
    py: Python<'_>,
    path: PathBuf,
    header: bool,
    delimiter: char,
    dtype: Option<AnyDType>,
    missing: Option<f64>,
) -> PyResult<(PyTensor, Vec<String>)> {
    let options = Options {
        header,
        delimiter,
        dtype: dtype.map_or(DType::F32, |d| d.0),
        missing,
    };
    let table = compute(py, || csv::load(path, &options))?;
    Ok((table.values.into(), table.columns))
}

/// Writes a tensor of two axes as a table with commas, with the names of ``columns`` on the first line
/// if there are any. Floats read back to the same bits.
///
/// Raises OSError if the tensor is no table, there are more or fewer names than columns, or the file
/// can't be written.
///
/// >>> import os, tempfile
/// >>> folder = tempfile.TemporaryDirectory()
/// >>> path = os.path.join(folder.name, "a.csv")
/// >>> uopc.io.save_csv(path, [[1.0, 0.1]], ["a", "b"])
/// >>> uopc.io.load_text(path)
/// 'a,b\n1.0,0.1\n'
#[pyfunction]
#[pyo3(signature = (path, values, columns=None))]
fn save_csv(
    py: Python<'_>,
    path: PathBuf,
    values: AnyTensor,
    columns: Option<Vec<String>>,
) -> PyResult<()> {
    compute(py, || {
        csv::save(path, &values.0, &columns.unwrap_or_default())
    })
}

/// Writes a text.
#[pyfunction]
fn save_text(py: Python<'_>, path: PathBuf, text: &str) -> PyResult<()> {
    compute(py, || text::save(path, text))
}

/// The text of a file.
///
/// Raises OSError if the file can't be read, or is no UTF-8; then it says in which line.
///
/// >>> uopc.io.load_text("no-such-file")
/// Traceback (most recent call last):
/// OSError: no-such-file: ...
#[pyfunction]
fn load_text(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    compute(py, || text::load(path))
}

/// The bytes of a file, whatever they are, as a tensor of u8.
///
/// Raises OSError if the file can't be read.
///
/// >>> uopc.io.load_bytes("no-such-file")
/// Traceback (most recent call last):
/// OSError: no-such-file: ...
#[pyfunction]
fn load_bytes(py: Python<'_>, path: PathBuf) -> PyResult<PyTensor> {
    Ok(compute(py, || text::load_bytes(path))?.into())
}

/// The characters of a text, each with a number: its place among them, in the order of Unicode.
///
/// >>> alphabet = uopc.io.Alphabet("banana")
/// >>> alphabet.characters, len(alphabet)
/// ('abn', 3)
/// >>> alphabet.encode("nab").tolist()
/// [2, 0, 1]
/// >>> alphabet.decode([2, 0, 1])
/// 'nab'
#[pyclass(name = "Alphabet", module = "uopc.io", frozen)]
struct PyAlphabet(Alphabet);

/// Numbers of characters.
#[derive(FromPyObject)]
enum Numbers {
    Tensor(Py<PyTensor>),
    List(Vec<i32>),
}

#[pymethods]
impl PyAlphabet {
    #[new]
    fn new(text: &str) -> PyAlphabet {
        PyAlphabet(Alphabet::of(text))
    }

    /// All characters, in order.
    #[getter]
    fn characters(&self) -> String {
        self.0.characters().iter().collect()
    }

    /// The number of each character of a text, as a tensor of i32.
    ///
    /// Raises ValueError if a character is not in the alphabet.
    fn encode(&self, py: Python<'_>, text: &str) -> PyResult<PyTensor> {
        Ok(build(py, || self.0.encode(text))?.into())
    }

    /// The text that numbers stand for: a list, or a tensor of whole numbers with one axis.
    ///
    /// Raises ValueError if a number stands for no character.
    fn decode(&self, py: Python<'_>, numbers: Numbers) -> PyResult<String> {
        let numbers = match numbers {
            Numbers::List(list) => list,
            Numbers::Tensor(t) => {
                let t = &t.get().tensor;
                if t.rank() != 1 || t.dtype().is_float() {
                    let (dtype, shape) = (t.dtype(), t.shape());
                    return Err(PyValueError::new_err(format!(
                        "decode: whole numbers with one axis are needed, not {dtype} of shape {shape}"
                    )));
                }
                compute(py, || t.cast(DType::I32)?.to_vec::<i32>())?
            }
        };
        build(py, || self.0.decode(&numbers))
    }

    fn __len__(&self) -> usize {
        self.0.characters().len()
    }
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("SHARD", SHARD)?;
    m.add_class::<PyTensorFile>()?;
    m.add_class::<PyAlphabet>()?;
    m.add_function(wrap_pyfunction!(save_named, m)?)?;
    m.add_function(wrap_pyfunction!(save_arrays, m)?)?;
    m.add_function(wrap_pyfunction!(save_shards, m)?)?;
    m.add_function(wrap_pyfunction!(load_named, m)?)?;
    m.add_function(wrap_pyfunction!(open_file, m)?)?;
    m.add_function(wrap_pyfunction!(save_npy, m)?)?;
    m.add_function(wrap_pyfunction!(load_npy, m)?)?;
    m.add_function(wrap_pyfunction!(save_idx, m)?)?;
    m.add_function(wrap_pyfunction!(load_idx, m)?)?;
    m.add_function(wrap_pyfunction!(load_csv, m)?)?;
    m.add_function(wrap_pyfunction!(save_csv, m)?)?;
    m.add_function(wrap_pyfunction!(save_text, m)?)?;
    m.add_function(wrap_pyfunction!(load_text, m)?)?;
    m.add_function(wrap_pyfunction!(load_bytes, m)?)
}
