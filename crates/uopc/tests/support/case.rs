//! A random graph with its inputs, and a way to make one that fails small enough to read.

#![allow(dead_code, reason = "each test binary uses a part")]

use uopc::Result;
use uopc::interp::{Array, graph};
use uopc::ir::op::{BufferId, Op};
use uopc::ir::visit::{Graph, substitute};
use uopc::ir::{UOp, print};

/// A graph over numbered slots, and the contents of the slots.
#[derive(Clone)]
pub struct Case {
    /// Where it came from.
    pub seed: u64,
    /// What is computed.
    pub roots: Vec<UOp>,
    /// Contents of slot i.
    pub slots: Vec<Array>,
}

impl Case {
    /// What a slot holds.
    pub fn bind(&self, u: &UOp) -> Option<Array> {
        match u.op() {
            Op::Buffer {
                id: BufferId::Slot(k),
                ..
            } => self.slots.get(*k as usize).cloned(),
            _ => None,
        }
    }

    /// The values of the roots, by the graph interpreter.
    pub fn values(&self) -> Result<Vec<Array>> {
        graph::eval(&self.roots, &|u| self.bind(u))
    }

    /// The case as `.uir` with the contents of the slots it reads, ready to be kept as a file.
    pub fn text(&self) -> String {
        let mut out = format!("; seed {}\n", self.seed);
        let read = Graph::new(&self.roots);
        for (k, array) in self.slots.iter().enumerate() {
            let is_slot = |u: &&UOp| matches!(u.op(), Op::Buffer { id: BufferId::Slot(slot), .. } if *slot as usize == k);
            if read.nodes.iter().any(|u| is_slot(&u)) {
                let values: Vec<String> = array.scalars().map(|s| s.to_string()).collect();
                out += &format!("; slot {k} = [{}]\n", values.join(", "));
            }
        }
        out + &print::to_uir(&self.roots)
    }
}

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
