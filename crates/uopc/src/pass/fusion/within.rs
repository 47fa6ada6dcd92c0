//! Contractions that stay within the kernel of the sum that reads them.
//!
//! The gradient of a convolution by its images is a product that gives the gradients of all
//! windows, and sums of few elements that put windows together. The product is far larger than
//! what comes of it. It need not be stored as a whole where it has leading axes in common with the
//! result: for each point of those, the kernel computes a piece of it in scratch memory and sums it
//! at once. Nothing is computed twice.

use std::collections::BTreeSet;

use super::{MAX_ARITHMETIC, Reason};
use crate::ir::op::{Fold, Op};
use crate::ir::pieces::pieces;
use crate::ir::visit::Graph;
use crate::ir::{DType, UOp, fold};

/// Bytes of a product from which on storing it costs more than what a kernel of many parts loses:
/// less stays in the second cache anyway.
const LARGE: usize = 2 << 20;
/// Bytes of all that is kept for one point of the shared axes, at most: less than the second cache
/// has, where the sum finds it.
const PIECE: usize = 512 << 10;
/// Points of the shared axes at least, so that threads have something to share.
const POINTS: usize = 16;
/// Elements that a sum of the result may have. Longer ones read a product that fills caches anyway.
const FEW: usize = 16;
/// Multiply-adds for an element of a product from which on they cost so much more than storing and
/// loading it that a kernel for the product alone, which has all its ways of going about it, wins.
const LONG: usize = 256;
/// Nodes between a value and the kernels that read it that are looked at.
const REACH: usize = 256;

/// Chooses values with a buffer that are kept within the kernel that reads them instead, and takes
/// their reasons away. For each node whether it is such a value.
pub fn keep_within(graph: &Graph, reasons: &mut [Option<Reason>]) -> Vec<bool> {
    let mut within = vec![false; graph.len()];
    let candidate = |i: usize, reasons: &[Option<Reason>]| {
        let nested = reasons[i].is_some_and(|r| super::REDUCTIONS.contains(&r));
        nested && graph.nodes[i].shape().numel() > 0
    };
    if !(0..graph.len()).any(|i| is_product(&graph.nodes[i]) && candidate(i, reasons)) {
        return within;
    }
    let consumers = graph.consumers();
    // Kernels that hold such a value: they may be kept within the next one.
    let mut holds = vec![false; graph.len()];
    for i in 0..graph.len() {
        let u = &graph.nodes[i];
        let bytes = u.shape().numel().saturating_mul(u.dtype().size());
        let product = is_product(u) && bytes >= LARGE;
        if !candidate(i, reasons) || !(product || holds[i]) {
            continue;
        }
        let Some(reader) = only_reader(&consumers, reasons, i) else {
            continue;
        };
        if pays(graph, reasons, &within, i, reader) {
            reasons[i] = None;
            within[i] = true;
            holds[reader] = true;
        }
    }
    within
}

/// Whether a node is a contraction that pieces are made of: short, hence of one block of partial
/// sums, and with no factors in bf16, which machines may multiply in a way of their own.
fn is_product(u: &UOp) -> bool {
    let Op::Reduce {
        fold: Fold::Chain,
        n,
        ..
    } = *u.op()
    else {
        return false;
    };
    let x = u.src()[0].shape();
    let depth: usize = x[x.rank() - n as usize..].iter().product();
    let wide = |f: &UOp| {
        let mut f = f;
        while f.op().is_movement() || matches!(f.op(), Op::Cast(_)) {
            f = &f.src()[0];
            if f.dtype() == DType::BF16 {
                return false;
            }
        }
        true
    };
    let product = fold::chain_product(&u.src()[0]);
    let wide = product.is_some_and(|(product, _)| product.src().iter().all(wide));
    wide && depth <= LONG && u.dtype() != DType::BF16
}

/// The node whose kernel reads node i, if there is one only.
fn only_reader(consumers: &[Vec<u32>], reasons: &[Option<Reason>], i: usize) -> Option<usize> {
    let mut only = None;
    let mut met = BTreeSet::new();
    let mut stack = vec![i];
    while let Some(k) = stack.pop() {
        for &c in &consumers[k] {
            let c = c as usize;
            if reasons[c].is_some() {
                if only.is_some_and(|before| before != c) {
                    return None;
                }
                only = Some(c);
            } else if met.insert(c) {
                stack.push(c);
            }
        }
        if met.len() > REACH {
            return None;
        }
    }
    only
}

/// Whether node i can be kept within the kernel of `reader`, and there are pieces of a good size.
fn pays(
    graph: &Graph,
    reasons: &[Option<Reason>],
    within: &[bool],
    i: usize,
    reader: usize,
) -> bool {
    let root = &graph.nodes[reader];
    // The parts of a STACK are statements of their own.
    if matches!(root.op(), Op::Stack) {
        return false;
    }
    let mut members = BTreeSet::from([reader]);
    let mut stack = vec![reader];
    let mut below = BTreeSet::new();
    while let Some(k) = stack.pop() {
        let kept = k == i || within[k];
        below.extend(kept.then_some(k));
        for &s in graph.src(k) {
            let s = s as usize;
            if (reasons[s].is_none() || s == i) && members.insert(s) {
                stack.push(s);
            }
        }
    }
    let nodes: Vec<UOp> = members.iter().map(|&k| graph.nodes[k].clone()).collect();
    let arithmetic = nodes.iter().filter(|u| u.op().is_elementwise()).count();
    if arithmetic > MAX_ARITHMETIC as usize || !members.iter().all(|&k| fits(graph, k, &below)) {
        return false;
    }
    // One product fills the registers of a kernel.
    let products = below.iter().filter(|&&k| is_product(&graph.nodes[k]));
    if products.count() != 1 {
        return false;
    }
    let kept: Vec<&UOp> = below.iter().map(|&k| &graph.nodes[k]).collect();
    let axes = pieces(&nodes, |u| kept.contains(&u));
    let points: usize = root.shape()[..axes].iter().product();
    let bytes = |u: &&UOp| u.shape().numel() / points * u.dtype().size();
    points >= POINTS && kept.iter().map(bytes).sum::<usize>() <= PIECE
}

/// Whether a member of the kernel may read what is kept: a sum of few elements does, and whatever
/// computes element by element.
fn fits(graph: &Graph, k: usize, below: &BTreeSet<usize>) -> bool {
    let u = &graph.nodes[k];
    match u.op() {
        Op::Index | Op::Scan(_) | Op::ArgSort => false,
        Op::Reduce {
            fold: Fold::Chain, ..
        } => below.contains(&k),
        Op::Reduce { n, .. } => {
            let x = u.src()[0].shape();
            x[x.rank() - *n as usize..].iter().product::<usize>() <= FEW
        }
        _ => true,
    }
}
