//! Parts of a graph between the marks of `checkpoint`: what is inside is computed again instead of
//! kept.
//!
//! A part begins at `stage remat_input` and ends at `stage remat`; parts may hold other parts. A node
//! is inside if it depends on the mark of an argument and the mark of a result depends on it. The
//! arguments and results of a part are kept, unless a larger part holds them, and so is what a part
//! reads from elsewhere.

use super::op::{Op, StageKind};
use super::visit::Graph;

/// Which nodes of a graph are inside of parts.
pub struct Parts {
    /// For each node whether it is inside of one.
    pub inside: Vec<bool>,
    /// For each node whether it is an argument or a result of a part that no other part holds.
    pub edge: Vec<bool>,
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
        if depth(outer) == 0 {
            edge[i] = true;
            edge[s as usize] = true;
        }
    }
    Parts { inside, edge }
}
