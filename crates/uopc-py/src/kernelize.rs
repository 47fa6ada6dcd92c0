//! Plans, kernels, their texts, and the process's plan cache.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};
use uopc::backend::c::render::render;
use uopc::compile::{self, Engine, RealizeOptions};
use uopc::debug::{Schedule, Settings};
use uopc::ir::form::Role;
use uopc::ir::print::to_uir_with;
use uopc::pass::explain::{cost, explain};
use uopc::pass::pipeline::Lowered;

use crate::dtype::PyDType;
use crate::error::exception;
use crate::run::{build, compute};
use crate::uop::{PyUOp, Roots};

/// How graphs are computed: kernels in the order in which they run, and the buffers between them.
///
/// Made by `make_plan`. Nothing has been compiled or run.
///
/// >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
/// >>> plan, buffers = uopc.kernelize.make_plan(x.softmax(-1))
/// >>> [k.name for k in plan.kernels]
/// ['r_2', 'r_2', 'e_2_2']
#[pyclass(name = "Plan", module = "uopc.kernelize", frozen)]
pub struct PyPlan(Arc<Lowered>);

#[pymethods]
impl PyPlan {
    /// The kernels in the order in which they run.
    #[getter]
    fn kernels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let lowered = &self.0;
        let kernel = |index| PyKernel {
            lowered: lowered.clone(),
            index,
        };
        PyList::new(py, (0..lowered.plan.kernels.len()).map(kernel))
    }

    /// The buffers: inputs, outputs and what lives in between.
    #[getter]
    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let lowered = &self.0;
        let buffer = |index| PyPlanBuffer {
            lowered: lowered.clone(),
            index,
        };
        PyList::new(py, (0..lowered.plan.buffers.len()).map(buffer))
    }

    /// For each root of the graph the position in `buffers` of the one that holds it.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.plan.outputs)
    }

    /// The plan as `.uir` text.
    fn to_uir(&self, py: Python<'_>) -> PyResult<String> {
        compute(py, || self.0.plan.to_uir())
    }

    /// A line for each kernel with its work, then a line for each buffer with its size and why the
    /// value is stored.
    ///
    /// >>> plan, _ = uopc.kernelize.make_plan(Tensor([1.0, 2.0]).sum())
    /// >>> print(plan.explain(), end="")
    /// r_1: b1 from [b0], ... flops, 12 bytes
    /// b0: f32 x 2, input slot 0, input
    /// b1: f32 x 1, output, root
    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        compute(py, || Ok(explain(&self.0)))
    }

    fn __repr__(&self) -> String {
        let plan = &self.0.plan;
        let names: Vec<&str> = plan.kernels.iter().map(|k| &*k.name).collect();
        format!(
            "Plan(kernels=[{}], buffers={})",
            names.join(", "),
            plan.buffers.len()
        )
    }
}

/// A kernel of a plan: what it is called, computes, reads and writes, and costs.
///
/// >>> plan, _ = uopc.kernelize.make_plan(Tensor([1.0, 2.0]) * 2)
/// >>> plan.kernels[0]
/// Kernel('e_2')
#[pyclass(name = "Kernel", module = "uopc.kernelize", frozen)]
pub struct PyKernel {
    lowered: Arc<Lowered>,
    index: usize,
}

impl PyKernel {
    fn kernel(&self) -> &uopc::ir::form::Kernel {
        &self.lowered.plan.kernels[self.index]
    }

    fn launch(&self) -> &uopc::pass::pipeline::Launch {
        &self.lowered.launches[self.index]
    }
}

#[pymethods]
impl PyKernel {
    /// By kind and shape: `e_2_3` computes (2, 3) elements one by one, `r_2_3` reduces to (2, 3).
    #[getter]
    fn name(&self) -> &str {
        &self.kernel().name
    }

    /// What it reads: for each buffer the number of the kernel's parameter and the position in the
    /// plan's `buffers`.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.kernel().ins)
    }

    /// What it writes, like `inputs`.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.kernel().outs)
    }

    /// The float operations that it does, as planned.
    #[getter]
    fn flops(&self, py: Python<'_>) -> PyResult<u64> {
        build(py, || Ok(cost(&self.launch().plain).flops))
    }

    /// The bytes of the buffers that it reads and writes, each counted once.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> PyResult<u64> {
        build(py, || Ok(cost(&self.launch().plain).bytes))
    }

    /// Its C text.
    ///
    /// >>> plan, _ = uopc.kernelize.make_plan(Tensor([1.0, 2.0]) * 2)
    /// >>> print(plan.kernels[0].source, end="")
    /// void e_2(float* restrict data0, float* restrict data1) {
    ///   for (int ridx0 = 0; ridx0 < 2; ridx0++) {
    ///     float val1 = data0[ridx0];
    ///     data1[ridx0] = (val1*2.0f);
    ///   }
    /// }
    #[getter]
    fn source(&self, py: Python<'_>) -> PyResult<String> {
        compute(py, || Ok(render(&self.launch().program)))
    }

    /// What it computes, as the `.uir` text of a graph over its parameters.
    fn to_uir(&self, py: Python<'_>) -> PyResult<String> {
        let kernel = self.kernel();
        let text = || to_uir_with(kernel.body.roots(), Some(&kernel.name), &[]);
        compute(py, || Ok(text()))
    }

    fn __repr__(&self) -> String {
        format!("Kernel('{}')", self.name())
    }
}

/// A buffer of a plan.
///
/// >>> plan, _ = uopc.kernelize.make_plan(Tensor([1.0, 2.0]).sum())
/// >>> [(b.role, b.n) for b in plan.buffers]
/// [('input', 2), ('output', 1)]
#[pyclass(name = "PlanBuffer", module = "uopc.kernelize", frozen)]
pub struct PyPlanBuffer {
    lowered: Arc<Lowered>,
    index: usize,
}

impl PyPlanBuffer {
    fn buffer(&self) -> &uopc::ir::form::PlanBuffer {
        &self.lowered.plan.buffers[self.index]
    }
}

#[pymethods]
impl PyPlanBuffer {
    /// The dtype of its elements.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.buffer().dtype)
    }

    /// How many elements it has.
    #[getter]
    fn n(&self) -> usize {
        self.buffer().n
    }

    /// "input", "output" or "temporary".
    #[getter]
    fn role(&self) -> &'static str {
        match self.buffer().role {
            Role::Input(_) => "input",
            Role::Output => "output",
            Role::Temporary => "temporary",
        }
    }

    /// The slot of an input, None for others.
    #[getter]
    fn slot(&self) -> Option<u32> {
        match self.buffer().role {
            Role::Input(slot) => Some(slot),
            Role::Output | Role::Temporary => None,
        }
    }

    /// Why the value is stored.
    #[getter]
    fn reason(&self) -> &str {
        &self.buffer().reason
    }

    fn __repr__(&self) -> String {
        let (dtype, n) = (self.buffer().dtype, self.buffer().n);
        format!("PlanBuffer({dtype} x {n}, {})", self.role())
    }
}

/// The compiled plans that the process remembers, by key: a live view of the plan cache.
///
/// Keys are texts, equal for graphs of equal structure whatever memory they read; `plan_key` gives
/// that of a graph.
#[pyclass(name = "PlanCache", module = "uopc.kernelize", frozen)]
pub struct PyPlanCache;

fn engine() -> PyResult<&'static Engine> {
    Engine::global().map_err(exception)
}

#[pymethods]
impl PyPlanCache {
    fn __len__(&self) -> PyResult<usize> {
        Ok(engine()?.stats().plans)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let keys = engine()?.plan_keys();
        PyList::new(py, keys.iter().map(hex))?.try_iter()
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(key) = key.extract::<String>() else {
            return Ok(false);
        };
        Ok(engine()?.plan_keys().iter().any(|k| hex(k) == key))
    }

    /// Forgets all plans; each graph is planned anew when it is computed next. Values stay.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let engine = engine()?;
        py.detach(|| engine.forget_plans());
        Ok(())
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("PlanCache({} plans)", self.__len__()?))
    }
}

fn hex(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The plan that computes roots, and the nodes that its input slots stand for, in order of slots.
///
/// Roots are a UOp or a Tensor, or several in a sequence; they are planned together. An input is
/// the buffer of a tensor, or a node whose value was computed before. Nothing is compiled or run.
/// Raises ValueError for graphs that hold loops or effects.
///
/// >>> x = Tensor([1.0, 2.0])
/// >>> plan, buffers = uopc.kernelize.make_plan([((x * 2 + 1).relu() * 3).uop])
/// >>> len(plan.kernels), buffers == [x.uop]
/// (1, True)
#[pyfunction]
fn make_plan(py: Python<'_>, roots: Roots) -> PyResult<(PyPlan, Vec<PyUOp>)> {
    let (lowered, inputs) = compute(py, || {
        compile::lower_with_inputs(&roots.0, None, Engine::global()?.settings())
    })?;
    let inputs = inputs.into_iter().map(PyUOp).collect();
    Ok((PyPlan(Arc::new(lowered)), inputs))
}

/// The key under which `_plans` remembers the plan of these roots: equal for graphs of equal
/// structure.
///
/// Raises ValueError for graphs over text slots, which hold no data.
///
/// >>> a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
/// >>> uopc.kernelize.plan_key(a * 2) == uopc.kernelize.plan_key(b * 2)
/// True
#[pyfunction]
fn plan_key(py: Python<'_>, roots: Roots) -> PyResult<String> {
    let key = compute(py, || {
        compile::plan_key(&roots.0, &RealizeOptions::default())
    })?;
    Ok(hex(&key))
}

/// The C text of the kernels that compute roots, in the order in which they run.
///
/// If there is a single kernel, it is called `name`. The schedule "plain" keeps scalar loops
/// without anything clever, for reading; "default" is what runs. Text slot N is `dataN`. Nothing is
/// compiled or run. Raises ValueError for graphs that hold loops or effects.
///
/// >>> x = uopc.uop.UOp.buffer(3)
/// >>> print(uopc.kernelize.listing(x * x, name="square", schedule="plain"), end="")
/// void square(float* restrict data0, float* restrict data1) {
///   for (int ridx0 = 0; ridx0 < 3; ridx0++) {
///     float val1 = data0[ridx0];
///     data1[ridx0] = (val1*val1);
///   }
/// }
#[pyfunction]
#[pyo3(signature = (roots, name=None, schedule="default"))]
fn listing(py: Python<'_>, roots: Roots, name: Option<&str>, schedule: &str) -> PyResult<String> {
    let schedule = match schedule {
        "default" => Schedule::Default,
        "plain" => Schedule::Plain,
        other => {
            let message = format!("{other:?} is no schedule; there are \"default\" and \"plain\"");
            return Err(PyValueError::new_err(message));
        }
    };
    compute(py, || {
        let settings = Engine::global()?.settings().clone();
        let settings = Settings {
            schedule,
            ..settings
        };
        compile::listing(&roots.0, name, &settings)
    })
}

/// What the process's engine has done so far, by name.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let stats = engine()?.stats();
    let counts = PyDict::new(py);
    counts.set_item("plan_hits", stats.plan_hits)?;
    counts.set_item("plan_misses", stats.plan_misses)?;
    counts.set_item("plans", stats.plans)?;
    counts.set_item("compiler_calls", stats.compiler_calls)?;
    counts.set_item("disk_hits", stats.disk_hits)?;
    counts.set_item("launches", stats.launches)?;
    counts.set_item("peak_bytes", stats.peak_bytes)?;
    Ok(counts)
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPlan>()?;
    m.add_class::<PyKernel>()?;
    m.add_class::<PyPlanBuffer>()?;
    m.add_class::<PyPlanCache>()?;
    m.add("plans", PyPlanCache)?;
    m.add_function(wrap_pyfunction!(make_plan, m)?)?;
    m.add_function(wrap_pyfunction!(plan_key, m)?)?;
    m.add_function(wrap_pyfunction!(listing, m)?)?;
    m.add_function(wrap_pyfunction!(stats, m)?)
}
