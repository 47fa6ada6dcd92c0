//! Where the values of a graph's nodes are once its plan has run.

use crate::ir::form::{BufferIndex, ShapeGraph};
use crate::ir::visit::Graph;
use crate::ir::{Op, UOp};

/// Follows each node of the original graph through the passes to the buffer that holds it.
pub fn homes(
    graph: &ShapeGraph,
    unmarked: &[UOp],
    stripped: &ShapeGraph,
    simplified: &[UOp],
    buffer_of: impl Fn(&UOp) -> Option<BufferIndex>,
) -> Vec<(usize, BufferIndex)> {
    let middle = Graph::new(stripped.roots());
    let mut homes = Vec::new();
    for (i, u) in Graph::new(graph.roots()).nodes.iter().enumerate() {
        // Leaves have memory already, and what is below a detach may be gone.
        let Some(k) = middle
            .position(&unmarked[i])
            .filter(|_| !u.src().is_empty())
        else {
            continue;
        };
        let mut now = &simplified[k];
        while matches!(now.op(), Op::Reshape(_) | Op::Stage(_)) {
            now = &now.src()[0];
        }
        if let Some(b) = buffer_of(now)
            && !matches!(now.op(), Op::Buffer { .. })
        {
            homes.push((i, b));
        }
    }
    homes
}
