//! The four forms a graph takes on its way to machine code, as types that only [`super::verify`]
//! can make.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::dtype::DType;
use super::op::{Op, ParamMode};
use super::site::Site;
use super::uop::UOp;
use super::visit::toposort;

/// Pure tensor expressions: leaves, arithmetic, movement, structure and markers, several roots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShapeGraph(pub(super) Vec<UOp>);

impl ShapeGraph {
    /// The roots, in order.
    pub fn roots(&self) -> &[UOp] {
        &self.0
    }
}

/// One kernel of a [`Plan`]: a shape graph over parameters that computes whole buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// By kind and shape, such as `r_10_64`, or as the user called it.
    pub name: Arc<str>,
    /// What it computes, one root an output, over `param` leaves (slots below).
    pub body: ShapeGraph,
    /// Plan buffers written: output i is the kernel's parameter `outs[i].0`, plan buffer
    /// `outs[i].1`.
    pub outs: Vec<(u32, BufferIndex)>,
    /// Plan buffers read, with the parameter slot of each.
    pub ins: Vec<(u32, BufferIndex)>,
}

impl Kernel {
    /// Where the kernel comes from: for each place of its computing nodes, in order, a line such as
    /// `train.py:12, vjp of exp: mul, add`, of at most [`ORIGINS`](Self::ORIGINS) in all. Nodes that
    /// come from nowhere have none. It is no part of the kernel: equal kernels are one.
    pub fn origins(&self) -> Vec<String> {
        let mut places: Vec<(Site, Vec<&'static str>)> = Vec::new();
        let mut found: FxHashMap<String, usize> = FxHashMap::default();
        for u in &toposort(self.body.roots()) {
            let lays_out = u.op().is_movement() || u.src().is_empty();
            let Some(site) = u.site().filter(|_| !lays_out) else {
                continue;
            };
            let place = *found.entry(site.to_string()).or_insert_with(|| {
                places.push((site, Vec::new()));
                places.len() - 1
            });
            let ops = &mut places[place].1;
            if !ops.contains(&u.op().mnemonic()) {
                ops.push(u.op().mnemonic());
            }
        }
        let line = |(site, ops): &(Site, Vec<&str>)| {
            let text = format!("{site}: {}", ops.join(", "));
            text.replace(char::is_control, " ")
        };
        let mut lines: Vec<String> = places.iter().take(Self::ORIGINS).map(line).collect();
        if places.len() > Self::ORIGINS {
            lines.push(format!("and {} more places", places.len() - Self::ORIGINS));
        }
        lines
    }

    /// How many places [`origins`](Self::origins) names.
    pub const ORIGINS: usize = 16;
}

/// Position in [`Plan::buffers`].
pub type BufferIndex = u32;

/// A buffer of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanBuffer {
    /// Its element type.
    pub dtype: DType,
    /// How many elements.
    pub n: usize,
    /// What it is for.
    pub role: Role,
    /// Why the value has a buffer, for `explain`.
    pub reason: Arc<str>,
}

/// Where a plan's buffer comes from and goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Bound by the caller: slot i of the graph.
    Input(u32),
    /// Handed to the caller.
    Output,
    /// Lives inside the plan.
    Temporary,
}

/// Kernels in the order they run, and the buffers between them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// In run order.
    pub kernels: Vec<Kernel>,
    /// Inputs first, by slot as they were met.
    pub buffers: Vec<PlanBuffer>,
    /// For each root of the graph the buffer that holds it.
    pub outputs: Vec<BufferIndex>,
}

/// One launch as statements over shared loops, see ARCHITECTURE.md, "The loop form".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopGraph {
    pub(super) name: Arc<str>,
    pub(super) sink: UOp,
}

impl LoopGraph {
    /// The kernel's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The SINK of END statements.
    pub fn sink(&self) -> &UOp {
        &self.sink
    }

    /// The statements in order.
    pub fn statements(&self) -> &[UOp] {
        self.sink.src()
    }
}

/// One launch as a list of instructions, ready to be rendered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    pub(super) name: Arc<str>,
    pub(super) sink: UOp,
}

impl Program {
    /// The kernel's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The SINK of instructions.
    pub fn sink(&self) -> &UOp {
        &self.sink
    }

    /// The instructions in order.
    pub fn instructions(&self) -> &[UOp] {
        self.sink.src()
    }
}

/// The distinct parameters under a root, by slot: `(slot, mode, dtype, n)`.
pub fn params(root: &UOp) -> Vec<(u32, ParamMode, DType, usize)> {
    let mut found: Vec<_> = super::visit::toposort(std::slice::from_ref(root))
        .iter()
        .filter_map(|u| match u.op() {
            Op::Param {
                slot,
                mode,
                dtype,
                n,
            } => Some((*slot, *mode, *dtype, *n)),
            _ => None,
        })
        .collect();
    found.sort_by_key(|p| p.0);
    found
}
