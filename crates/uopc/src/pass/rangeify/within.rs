//! Values that a kernel keeps in scratch memory, in one piece for each point of the axes that they
//! have in common with the result.

use rustc_hash::FxHashMap;

use super::index::flatten;
use super::value::{Lowering, Request};
use crate::error::Result;
use crate::ir::axes::{Axes, axes};
use crate::ir::op::{Combine, Exec, Space, StageKind};
use crate::ir::pieces::pieces;
use crate::ir::visit::toposort;
use crate::ir::{Op, UOp};

/// The kept values of a kernel, and what has been written of them.
#[derive(Default)]
pub struct Within {
    /// For each of them its axes in terms of those of the result.
    axes: FxHashMap<UOp, Axes>,
    /// How many of the result's leading axes tell their pieces apart.
    pub shared: usize,
    /// The index along these.
    pub at: Vec<UOp>,
    /// Where those are that have been asked for.
    memory: FxHashMap<UOp, UOp>,
    /// The statements that fill them, in order.
    pub statements: Vec<UOp>,
}

/// A piece that is filled.
pub struct Fill {
    /// What has been written before, outside of it.
    outside: Vec<UOp>,
    memory: UOp,
    index: UOp,
    ranges: Vec<UOp>,
    /// The element of it that was asked for.
    answer: UOp,
}

impl Within {
    /// Looks for them below a root.
    pub fn of(root: &UOp) -> Within {
        let nodes = toposort(std::slice::from_ref(root));
        if !nodes.iter().any(is_kept) {
            return Within::default();
        }
        // The parts of a STACK are statements of their own, which share no loops.
        let shared = match root.op() {
            Op::Stack => 0,
            _ => pieces(&nodes, is_kept),
        };
        let mut axes = axes(&nodes);
        axes.retain(|u, _| is_kept(u));
        Within {
            axes,
            shared,
            ..Within::default()
        }
    }

    /// Which axis of the result an axis of a kept value is, if it is a shared one.
    fn common(&self, u: &UOp, axis: usize) -> Option<usize> {
        let of = self.axes.get(u)?.get(axis).copied().flatten()?;
        let of = usize::from(of);
        // Of two axes that are one axis of the result, the first stands for it.
        let first = self.axes[u]
            .iter()
            .position(|a| a.map(usize::from) == Some(of));
        (of < self.shared && first == Some(axis)).then_some(of)
    }
}

/// Whether a node is a value that is kept.
pub fn is_kept(u: &UOp) -> bool {
    matches!(u.op(), Op::Stage(StageKind::Within))
}

impl Lowering {
    /// What a request for a kept value needs: nothing, with the answer, or its element in loops of
    /// their own, which fill the memory.
    ///
    /// # Errors
    /// Never for valid extents.
    pub fn kept(&mut self, request: &Request) -> Result<std::result::Result<UOp, (Request, Fill)>> {
        let u = &request.node;
        let shape = u.shape().clone();
        let own: Vec<usize> = (0..shape.rank())
            .filter(|&axis| self.within.common(u, axis).is_none())
            .collect();
        let extents: Vec<usize> = own.iter().map(|&axis| shape[axis]).collect();
        let dtype = self.index_dtype;
        let place = |at: &[UOp]| {
            let at: Vec<UOp> = own.iter().map(|&axis| at[axis].clone()).collect();
            flatten(&at, &extents, dtype)
        };
        let load = |memory: &UOp| memory.load(&place(&request.at)?, request.gate.as_ref());
        if let Some(memory) = self.within.memory.get(u) {
            return Ok(Ok(load(memory)?));
        }
        let n = extents.iter().product();
        let memory = self.local(Space::Cache, u.dtype(), n);
        self.within.memory.insert(u.clone(), memory.clone());
        let mut at = Vec::new();
        let mut ranges: Vec<UOp> = self.within.at.clone();
        for (axis, &extent) in shape.iter().enumerate() {
            at.push(match self.within.common(u, axis) {
                Some(of) => self.within.at[of].clone(),
                None => {
                    let r = self.axis(extent, Exec::Serial)?;
                    ranges.push(r.clone());
                    r
                }
            });
        }
        ranges.retain(|r| matches!(r.op(), Op::Range { .. }));
        let fill = Fill {
            outside: std::mem::take(&mut self.statements),
            index: place(&at)?,
            ranges: ranges.clone(),
            answer: load(&memory)?,
            memory,
        };
        let need = Request {
            node: u.src()[0].clone(),
            at,
            gate: None,
            scope: ranges,
        };
        Ok(Err((need, fill)))
    }

    /// Writes the statement that fills a piece. What was asked for of it.
    ///
    /// # Errors
    /// Never for a value of the memory's dtype.
    pub fn fill(&mut self, fill: Fill, value: UOp) -> Result<UOp> {
        let stored = fill
            .memory
            .store(&fill.index, &[value], Combine::Set, None)?;
        self.statements.push(stored.end(&fill.ranges)?);
        let inside = std::mem::replace(&mut self.statements, fill.outside);
        self.within.statements.extend(inside);
        Ok(fill.answer)
    }
}
