//! Runs one graph in every engine: the graph interpreter, the loop interpreter and compiled C.

use std::collections::BTreeMap;
use std::sync::Arc;

use uopc::compile::{Engine, Finding, RealizeOptions};
use uopc::debug::{DeviceChoice, Settings};
use uopc::interp::loops::{LoopArg, LoopData};
use uopc::interp::{self, Array};
use uopc::ir::form::{LoopGraph, ShapeGraph, params};
use uopc::ir::op::{BufferId, ParamMode};
use uopc::ir::visit::{substitute, toposort};
use uopc::ir::{DType, Op, UOp, verify};
use uopc::pass::linearize::linearize;
use uopc::runtime::{Code, Place, Storage};

use crate::failure::{Failure, Result};

/// What is run.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Tensor expressions, in all engines.
    Shape(ShapeGraph),
    /// Statements over loops, which the graph interpreter does not know.
    Loops(LoopGraph),
}

/// A numbered slot: its number, dtype and how many elements it has.
pub type Slot = (u32, DType, usize);

/// The contents of slots.
pub type Inputs = BTreeMap<u32, Array>;

/// What an engine gave, or why it did not run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it is called.
    pub engine: &'static str,
    /// A value for each root, or for each slot that a loop graph writes.
    pub values: std::result::Result<Vec<Array>, String>,
}

/// The most elements that a value may have: interpreters spend 8 bytes on each, and a text can ask
/// for any number of them.
const LARGEST: usize = 1 << 27;

/// Refuses values that no interpreter could hold.
fn check_sizes(roots: &[UOp]) -> Result<()> {
    let elements = |u: &UOp| match *u.op() {
        Op::Param { n, .. } | Op::Local { n, .. } => n,
        _ => u.shape().numel(),
    };
    match toposort(roots).iter().find(|u| elements(u) > LARGEST) {
        None => Ok(()),
        Some(u) => Err(Failure::failed(format!(
            "{} has {} elements; up to {LARGEST} a value can be compared here",
            u.op().mnemonic(),
            elements(u)
        ))),
    }
}

impl Subject {
    /// A launch.
    ///
    /// # Errors
    /// When it is too large for the interpreter.
    pub fn loops(loops: LoopGraph) -> Result<Subject> {
        check_sizes(std::slice::from_ref(loops.sink()))?;
        Ok(Subject::Loops(loops))
    }

    /// A graph of tensors; what a kernel's body reads as parameters are slots here.
    ///
    /// # Errors
    /// When a parameter and a slot of one number differ, and when it is too large for the
    /// interpreters.
    pub fn shape(graph: &ShapeGraph) -> Result<Subject> {
        check_sizes(graph.roots())?;
        let nodes = toposort(graph.roots());
        let slot = |u: &UOp| match *u.op() {
            Op::Param { slot, dtype, n, .. } => Some((u.clone(), UOp::slot(slot, dtype, n))),
            _ => None,
        };
        let slots = nodes.iter().filter_map(slot).collect();
        let roots = substitute(graph.roots(), &slots)?;
        Ok(Subject::Shape(verify::shape_graph(roots)?))
    }

    /// The slots that are read, ascending.
    pub fn inputs(&self) -> Vec<Slot> {
        match self {
            Subject::Shape(graph) => {
                let slot = |u: &UOp| match u.op() {
                    Op::Buffer {
                        id: BufferId::Slot(slot),
                        dtype,
                        n,
                    } => Some((*slot, *dtype, *n)),
                    _ => None,
                };
                let mut slots: Vec<Slot> =
                    toposort(graph.roots()).iter().filter_map(slot).collect();
                slots.sort_unstable_by_key(|s| s.0);
                slots
            }
            Subject::Loops(loops) => {
                let params = params(loops.sink()).into_iter();
                let read = params.filter(|p| p.1 != ParamMode::Out);
                read.map(|(slot, _, dtype, n)| (slot, dtype, n)).collect()
            }
        }
    }

    /// The slots that a loop graph writes, ascending.
    pub fn outputs(&self) -> Vec<Slot> {
        match self {
            Subject::Shape(_) => Vec::new(),
            Subject::Loops(loops) => {
                let params = params(loops.sink()).into_iter();
                let written = params.filter(|p| p.1 != ParamMode::In);
                written
                    .map(|(slot, _, dtype, n)| (slot, dtype, n))
                    .collect()
            }
        }
    }
}

/// Runs the subject in every engine, the oracle first. Only compiled code may be missing, where
/// there is no C compiler or the settings ask for the interpreter.
///
/// # Errors
/// When the graph can't be lowered, compiled or run.
pub fn run(subject: &Subject, inputs: &Inputs, settings: &Settings) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    if let Subject::Shape(graph) = subject {
        let bind = |u: &UOp| match u.op() {
            Op::Buffer {
                id: BufferId::Slot(slot),
                ..
            } => inputs.get(slot).cloned(),
            _ => None,
        };
        let values = interp::graph::eval(graph.roots(), &bind)?;
        outcomes.push(Outcome {
            engine: "graph interpreter",
            values: Ok(values),
        });
    }
    let values = match subject {
        Subject::Shape(graph) => {
            let settings = Settings {
                device: DeviceChoice::Interp,
                ..settings.clone()
            };
            realize(&Engine::new(settings)?, graph, inputs)?
        }
        Subject::Loops(loops) => interpret(loops, inputs)?,
    };
    outcomes.push(Outcome {
        engine: "loop interpreter",
        values: Ok(values),
    });
    let values = match compiler(settings)? {
        Err(why) => Err(why),
        Ok(engine) => Ok(match subject {
            Subject::Shape(graph) => realize(&engine, graph, inputs)?,
            Subject::Loops(loops) => launch(&engine, loops, inputs)?,
        }),
    };
    outcomes.push(Outcome {
        engine: "compiled C",
        values,
    });
    Ok(outcomes)
}

/// An engine that compiles, or why there is none, unless the settings insist on it.
fn compiler(settings: &Settings) -> Result<std::result::Result<Engine, String>> {
    if settings.device == DeviceChoice::Interp {
        return Ok(Err("UOPC_DEVICE=interp".to_string()));
    }
    let with_c = Settings {
        device: DeviceChoice::C,
        ..settings.clone()
    };
    match Engine::new(with_c) {
        Ok(engine) => Ok(Ok(engine)),
        Err(error) if settings.device == DeviceChoice::C => Err(error.into()),
        Err(error) => {
            // The user did not ask for C, and what to do about it stands at the end.
            let text = error.to_string();
            let text = text.trim_start_matches("UOPC_DEVICE=c: ");
            Ok(Err(text.split(';').next().unwrap_or(text).to_string()))
        }
    }
}

/// Where a NaN or an infinity of a root comes from, by the engine that the settings ask for.
///
/// # Errors
/// When the subject is no shape graph, or can't be run.
pub fn find_nan(
    subject: &Subject,
    inputs: &Inputs,
    settings: &Settings,
) -> Result<Option<Finding>> {
    let Subject::Shape(graph) = subject else {
        return Err(Failure::failed(
            "--find-nan takes a shape graph; give the one that the loops were made from",
        ));
    };
    let slots = memory(inputs)?;
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    Ok(Engine::new(settings.clone())?.find_nan(graph.roots(), &options)?)
}

/// The inputs as an engine takes them.
fn memory(inputs: &Inputs) -> Result<Vec<(u32, Arc<Storage>)>> {
    let slots = inputs.iter();
    slots
        .map(|(slot, value)| Ok((*slot, Storage::from_bytes(&value.to_bytes())?)))
        .collect()
}

/// A shape graph as one plan.
fn realize(engine: &Engine, graph: &ShapeGraph, inputs: &Inputs) -> Result<Vec<Array>> {
    let slots = memory(inputs)?;
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    let outputs = engine.realize(graph.roots(), &options)?.outputs;
    let roots = graph.roots().iter().zip(outputs);
    roots
        .map(|(root, storage)| array(root.dtype(), root.shape(), storage.as_bytes()))
        .collect()
}

/// A loop graph in the loop interpreter, with all its checks.
fn interpret(loops: &LoopGraph, inputs: &Inputs) -> Result<Vec<Array>> {
    let params = params(loops.sink());
    let mut memories: Vec<Vec<u8>> = params
        .iter()
        .map(|(slot, _, dtype, n)| match inputs.get(slot) {
            Some(value) => value.to_bytes(),
            None => vec![0; dtype.size() * n],
        })
        .collect();
    let mut args: Vec<LoopArg> = params
        .iter()
        .zip(&mut memories)
        .map(|(&(_, mode, dtype, _), memory)| LoopArg {
            dtype,
            data: match mode {
                ParamMode::In => LoopData::Read(memory),
                ParamMode::Out | ParamMode::InOut => LoopData::Write(memory),
            },
        })
        .collect();
    interp::loops::run(loops, &mut args)?;
    let written = params
        .iter()
        .zip(&memories)
        .filter(|(p, _)| p.1 != ParamMode::In);
    written
        .map(|(&(_, _, dtype, n), memory)| array(dtype, &[n], memory))
        .collect()
}

/// A loop graph as compiled code.
fn launch(engine: &Engine, loops: &LoopGraph, inputs: &Inputs) -> Result<Vec<Array>> {
    let device = engine.device();
    let program = linearize(loops)?;
    let executable = device.compile(&[Code {
        loops,
        program: &program,
    }])?;
    let params = params(loops.sink());
    let memories = params
        .iter()
        .map(|(slot, _, dtype, n)| {
            let memory = device.allocate(dtype.size() * n)?;
            if let Some(value) = inputs.get(slot) {
                memory.write_at(0, &value.to_bytes());
            }
            Ok(memory)
        })
        .collect::<Result<Vec<_>>>()?;
    let places: Vec<Place> = memories.iter().map(Place::whole).collect();
    let scratch = match executable.scratch(0) {
        0 => None,
        bytes => Some(device.allocate(bytes)?),
    };
    executable.launch(0, &places, scratch.as_ref())?;
    let written = params
        .iter()
        .zip(&places)
        .filter(|(p, _)| p.1 != ParamMode::In);
    written
        .map(|(&(_, _, dtype, n), place)| array(dtype, &[n], &place.to_bytes()))
        .collect()
}

/// The elements at the beginning of a memory, which may be larger.
fn array(dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<Array> {
    let n: usize = shape.iter().product();
    Ok(Array::from_bytes(dtype, shape, &bytes[..n * dtype.size()])?)
}
