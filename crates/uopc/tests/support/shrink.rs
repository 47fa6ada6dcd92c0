//! Makes a failing case small enough to read.

use uopc::interp::graph;
use uopc::ir::UOp;
use uopc::ir::op::Op;
use uopc::ir::visit::{Graph, substitute};

use crate::random_graph::Case;

/// The smallest case found that still fails: fewer roots, values instead of computations.
pub fn shrink(case: &Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    let mut best = case.clone();
    // The first node that fails by itself: all below it are right.
    for node in Graph::new(&case.roots).nodes {
        let alone = Case {
            roots: vec![node],
            ..case.clone()
        };
        if fails(&alone) {
            best = alone;
            break;
        }
    }
    // Roots go, or are replaced by what they read.
    while let Some(smaller) = with_less_of_a_root(&best).into_iter().find(|c| fails(c)) {
        best = smaller;
    }
    // Nodes become leaves that hold their value, those nearest to the roots first.
    let mut position = Graph::new(&best.roots).len();
    while position > 0 {
        position -= 1;
        let nodes = Graph::new(&best.roots).nodes;
        let Some(node) = nodes.get(position) else {
            continue;
        };
        if let Some(smaller) = with_leaf(&best, node)
            && fails(&smaller)
        {
            best = smaller;
        }
    }
    best
}

/// The cases without one root, if there are several, or with a source in place of a root.
fn with_less_of_a_root(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |roots| {
        all.push(Case {
            roots,
            ..case.clone()
        })
    };
    for k in 0..case.roots.len() {
        if case.roots.len() > 1 {
            let mut roots = case.roots.clone();
            roots.remove(k);
            add(roots);
        }
        for source in case.roots[k].src() {
            let mut roots = case.roots.clone();
            roots[k] = source.clone();
            add(roots);
        }
    }
    all
}

/// The case with a node replaced by a slot that holds its value; `None` for a leaf.
fn with_leaf(case: &Case, node: &UOp) -> Option<Case> {
    let is_leaf = |u: &UOp| u.src().is_empty();
    if is_leaf(node) || (*node.op() == Op::Reshape(node.shape().clone()) && is_leaf(&node.src()[0]))
    {
        return None;
    }
    let value = graph::eval(std::slice::from_ref(node), &|u| case.bind(u))
        .ok()?
        .remove(0);
    let n = value.len();
    let leaf = UOp::slot(case.slots.len() as u32, node.dtype(), n);
    let leaf = leaf.reshape(node.shape()).ok()?;
    let mut smaller = case.clone();
    smaller.slots.push(value.reshaped(&[n]).ok()?);
    let replace = std::iter::once((node.clone(), leaf)).collect();
    smaller.roots = substitute(&case.roots, &replace).ok()?;
    Some(smaller)
}
