//! What `checkpoint` asked for: the buffers of parts that lie between its marks.

use super::timeline::Timeline;
use super::{Cuts, Flow};
use crate::ir::form::{BufferIndex, Plan};
use crate::ir::parts::Parts;

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
