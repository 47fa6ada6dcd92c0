//! Strip detach: drop the markers that kernels do not need, so that they cost nothing to run.
//!
//! In:       ShapeGraph.
//! Out:      ShapeGraph without `stage detach`, `stage remat`, `stage remat_input` and `custom`,
//!           whose body takes its place.
//! Keeps:    the value of every root, bit for bit.
//! Ensures:  every other node is unchanged.
//! Cost:     linear in nodes.
//! Example:  tests/golden/strip_detach/example.uir

use crate::error::Result;
use crate::ir::form::ShapeGraph;
use crate::ir::op::StageKind;
use crate::ir::visit::Graph;
use crate::ir::{Op, UOp, verify};

/// The graph without detach markers, and what each of its nodes became, in topological order.
///
/// # Errors
/// Never for a verified graph.
pub fn strip_detach(shapes: &ShapeGraph) -> Result<(ShapeGraph, Vec<UOp>)> {
    let graph = Graph::new(shapes.roots());
    let mut became = Vec::with_capacity(graph.len());
    let roots = graph.map(|_, u, src| {
        let new = match u.op() {
            Op::Stage(StageKind::Detach | StageKind::Remat | StageKind::RematInput) => {
                src[0].clone()
            }
            Op::Custom(_) => src[0].clone(),
            _ => u.with_src(src)?,
        };
        became.push(new.clone());
        Ok(new)
    })?;
    Ok((verify::shape_graph(roots)?, became))
}
