//! Element types: the class `DType`, its constants, and what may stand for one.

use std::hash::{Hash, Hasher};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use uopc::DType;

/// The type of a tensor's elements, such as `uopc.f32`.
///
/// Wherever a dtype is asked for, a name ("f32", "float32"), a NumPy dtype or scalar type
/// (`np.float32`) and Python's `float` (f32), `int` (i32) and `bool` do as well, and a DType is
/// equal to each of them.
///
/// >>> import uopc
/// >>> uopc.float32 == uopc.f32 == "float32"
/// True
/// >>> uopc.f32.itemsize, uopc.f32.is_float
/// (4, True)
#[pyclass(name = "DType", module = "uopc", frozen, from_py_object)]
#[derive(Clone, Copy)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    #[new]
    fn new(of: AnyDType) -> PyDType {
        PyDType(of.0)
    }

    /// The short name, as in `.uir` text: "f32".
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Bytes an element takes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// Whether it is one of f16, bf16, f32, f64.
    #[getter]
    fn is_float(&self) -> bool {
        self.0.is_float()
    }

    /// Whether it is one of the integer types; bool is none.
    #[getter]
    fn is_int(&self) -> bool {
        self.0.is_int()
    }

    fn __repr__(&self) -> String {
        format!("uopc.{}", self.0.name())
    }

    fn __str__(&self) -> &'static str {
        self.0.name()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.extract::<AnyDType>().is_ok_and(|o| o.0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<PyDType>(), (self.0.name(),))
    }
}

/// An argument that names a dtype.
pub struct AnyDType(pub DType);

impl<'py> FromPyObject<'_, 'py> for AnyDType {
    type Error = PyErr;

    fn extract(ob: Borrowed<'_, 'py, PyAny>) -> PyResult<AnyDType> {
        if let Ok(dtype) = ob.cast::<PyDType>() {
            return Ok(AnyDType(dtype.get().0));
        }
        let name: String = if ob.is_instance_of::<PyString>() {
            ob.extract()?
        } else if let Ok(class) = ob.cast::<PyType>() {
            // float, int, bool, np.float32, ml_dtypes.bfloat16.
            class.name()?.extract()?
        } else if let Ok(name) = ob.getattr(intern!(ob.py(), "name")) {
            // np.dtype("float32")
            name.extract()?
        } else {
            return Err(unknown(&ob.repr()?.to_string()));
        };
        of_name(&name).map(AnyDType).ok_or_else(|| unknown(&name))
    }
}

/// The dtype of a name in any of the spellings that are about.
pub fn of_name(name: &str) -> Option<DType> {
    DType::from_name(name).or_else(|| {
        let short = match name {
            "float16" | "half" => "f16",
            "bfloat16" => "bf16",
            "float32" | "float" => "f32",
            "float64" | "double" => "f64",
            "int8" => "i8",
            "int16" => "i16",
            "int32" | "int" => "i32",
            "int64" => "i64",
            "uint8" => "u8",
            "uint16" => "u16",
            "uint32" => "u32",
            "uint64" => "u64",
            "bool_" => "bool",
            _ => return None,
        };
        DType::from_name(short)
    })
}

/// NumPy's name of a dtype; `bfloat16` is that of the package ml_dtypes.
pub fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
    }
}

fn unknown(what: &str) -> PyErr {
    let known: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
    let known = known.join(", ");
    PyTypeError::new_err(format!("{what} is no dtype of uopc; there are {known}"))
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDType>()?;
    for dtype in DType::ALL {
        let object = Bound::new(m.py(), PyDType(dtype))?;
        // `bool` is Python's own name.
        let long = match dtype {
            DType::Bool => "bool_",
            _ => numpy_name(dtype),
        };
        for name in [dtype.name(), long] {
            if name != "bool" {
                m.add(name, &object)?;
            }
        }
    }
    Ok(())
}
