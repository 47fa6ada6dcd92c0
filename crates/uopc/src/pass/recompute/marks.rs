//! What `checkpoint` asked for: the buffers of parts that lie between its marks.
//!
//! A part begins at `stage remat_input` and ends at `stage remat`; parts may hold other parts. A node
//! is inside if it depends on the mark of an input and the mark of an output depends on it. The
//! arguments and results of a part are kept, unless a larger part holds them, and so is what a part
//! reads from elsewhere.

use crate::ir::Op;
use crate::ir::form::{BufferIndex, Plan};
use crate::ir::op::StageKind;
use crate::ir::visit::Graph;

use super::timeline::Timeline;
use super::{Cuts, Flow};

/// Which nodes of a graph are inside of parts.
pub struct Parts {
    /// For each node whether it is inside of one.
    inside: Vec<bool>,
    /// For each node whether it is an argument or a result of a part that no other part holds.
    edge: Vec<bool>,
}

/// Finds the parts.
pub fn parts(graph: &Graph) -> Parts {
    let n = graph.len();
    let kind = |i: usize| match graph.nodes[i].op() {
        Op::Stage(kind @ (StageKind::Remat | StageKind::RematInput)) => Some(*kind),
        _ => None,
    };
    if !(0..n).any(|i| kind(i).is_some()) {
        return Parts {
            inside: vec![false; n],
            edge: vec![false; n],
        };
    }
    // How many parts each node is in, as seen from the inputs, and as seen from the roots.
    let mut below = vec![0u32; n];
    for i in 0..n {
        let depths = graph.src(i).iter().map(|&s| below[s as usize]);
        let deepest = depths.max().unwrap_or(0);
        below[i] = match kind(i) {
            Some(StageKind::RematInput) => deepest + 1,
            Some(_) => deepest.saturating_sub(1),
            None => deepest,
        };
    }
    let mut above = vec![0u32; n];
    for i in (0..n).rev() {
        let beneath = match kind(i) {
            Some(StageKind::RematInput) => above[i].saturating_sub(1),
            Some(_) => above[i] + 1,
            None => above[i],
        };
        for &s in graph.src(i) {
            above[s as usize] = above[s as usize].max(beneath);
        }
    }
    let depth = |i: usize| below[i].min(above[i]);
    let inside = (0..n).map(|i| depth(i) > 0).collect();
    let mut edge = vec![false; n];
    for i in 0..n {
        // A mark and what it marks are one value, which is as far inside as the outer of the two.
        let (Some(kind), Some(&s)) = (kind(i), graph.src(i).first()) else {
            continue;
        };
        let outer = match kind {
            StageKind::RematInput => s as usize,
            _ => i,
        };
        edge[outer] |= depth(outer) == 0;
    }
    Parts { inside, edge }
}

/// Cuts the buffers of the nodes that are inside, each in its longest gap. `homes` says which node
/// is in which buffer, and is left with those whose buffer is kept.
pub fn cuts(
    plan: &Plan,
    flow: &Flow,
    parts: &Parts,
    homes: &mut Vec<(usize, BufferIndex)>,
) -> Cuts {
    let mut cuts = flow.uncut();
    if !parts.inside.contains(&true) {
        return cuts;
    }
    let mut wanted = vec![false; plan.buffers.len()];
    let within = homes.iter().filter(|(node, _)| parts.inside[*node]);
    within.for_each(|&(_, b)| wanted[b as usize] = true);
    let kept = homes.iter().filter(|(node, _)| parts.edge[*node]);
    kept.for_each(|&(_, b)| wanted[b as usize] = false);
    homes.retain(|&(_, b)| !wanted[b as usize]);
    let timeline = Timeline::new(flow, &cuts);
    let mut longest = vec![0; plan.buffers.len()];
    for gap in &timeline.gaps {
        let b = timeline.lives[gap.life as usize].buffer;
        let at = b as usize;
        let length = gap.until - gap.after;
        if wanted[at] && length > longest[at] {
            longest[at] = length;
            cuts[at].clear();
            cuts[at].push(timeline.steps[gap.after as usize].time);
        }
    }
    cuts
}
