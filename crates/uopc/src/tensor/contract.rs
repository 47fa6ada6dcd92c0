//! Sums of products of nodes whose axes have labels: the one way in which einsum, tensordot and their
//! kin are computed.
//!
//! Axes of extent 1 are set aside, diagonals taken, and what only one operand sums is summed first.
//! Then operands are multiplied in pairs, in the order that needs the fewest multiplications. A pair is
//! EXPAND, MUL and REDUCE over axes (batch, left, right, summed), which is how the compiler knows a
//! contraction.

use super::arrange::diagonal;
use super::{Result, UOp};
use crate::ir::op::ReduceOp;

/// The name of an axis.
pub(super) type Label = u32;

/// An operand: a node and the label of each of its axes.
#[derive(Clone)]
pub(super) struct Term {
    pub node: UOp,
    pub labels: Vec<Label>,
}

/// Up to so many operands the best order is found by trying all; beyond, the cheapest pair is next.
const TRIED: usize = 9;

/// The products of all operands, summed over all labels that are not in the result. All nodes have one
/// dtype. Axes of one label have one extent, or 1, and each label of the result is in an operand.
pub(super) fn contract(terms: Vec<Term>, result: &[Label]) -> Result<UOp> {
    let extents = extents(&terms);
    let extent = |label: Label| -> usize {
        let known = extents.binary_search_by_key(&label, |e| e.0);
        known.map_or(1, |k| extents[k].1)
    };
    let kept: Vec<Label> = result.iter().copied().filter(|&l| extent(l) != 1).collect();
    let mut open = Vec::with_capacity(terms.len());
    for term in terms {
        open.push(term.diagonals()?.without_ones()?);
    }
    // What one operand alone has is summed before it is multiplied.
    for k in 0..open.len() {
        let needed = |l: &Label| {
            kept.contains(l)
                || open
                    .iter()
                    .enumerate()
                    .any(|(j, t)| j != k && t.labels.contains(l))
        };
        let stays: Vec<Label> = open[k].labels.iter().copied().filter(needed).collect();
        open[k] = open[k].sum_to(&stays)?;
    }
    let order = match open.len() <= TRIED {
        true => best_order(&open, &kept, &extent),
        false => Vec::new(),
    };
    let mut order = order.into_iter();
    while open.len() > 1 {
        let (i, j) = order
            .next()
            .unwrap_or_else(|| cheapest(&open, &kept, &extent));
        let (b, a) = (open.remove(j.max(i)), open.remove(i.min(j)));
        let needed = |l: &Label| kept.contains(l) || open.iter().any(|t| t.labels.contains(l));
        let product = pair(&a, &b, needed)?;
        open.push(product);
    }
    let Some(all) = open.pop() else {
        // The product of nothing is 1.
        return Ok(UOp::float(1.0, super::DType::F32));
    };
    let all = all.sum_to(&kept)?;
    let order = kept.iter().map(|l| place(&all.labels, *l));
    let order: Vec<usize> = order.collect();
    let dims: Vec<usize> = result.iter().map(|&l| extent(l)).collect();
    all.node.permute(&order)?.reshape(&dims)
}

/// All labels in order, each with its extent.
fn extents(terms: &[Term]) -> Vec<(Label, usize)> {
    let axes = terms
        .iter()
        .flat_map(|t| t.labels.iter().copied().zip(t.node.shape().iter().copied()));
    let mut all: Vec<(Label, usize)> = axes.collect();
    // Of an extent and 1 the other one counts, also if it is 0.
    all.sort_unstable_by_key(|&(l, n)| (l, n == 1, n));
    all.dedup_by_key(|e| e.0);
    all
}

fn place(labels: &[Label], label: Label) -> usize {
    let found = labels.iter().position(|&l| l == label);
    found.expect("a label that is kept is in an operand")
}

impl Term {
    /// Each label once: axes that share one become their diagonal.
    fn diagonals(mut self) -> Result<Term> {
        let mut k = 0;
        while k < self.labels.len() {
            let label = self.labels[k];
            match self.labels[k + 1..].iter().position(|&l| l == label) {
                None => k += 1,
                Some(next) => {
                    let other = k + 1 + next;
                    self.node = diagonal(&self.node, 0, k, other)?;
                    self.labels.remove(other);
                    self.labels.remove(k);
                    self.labels.push(label);
                }
            }
        }
        Ok(self)
    }

    /// Without axes of extent 1: they repeat whatever the others have.
    fn without_ones(self) -> Result<Term> {
        let dims: Vec<usize> = self
            .node
            .shape()
            .iter()
            .copied()
            .filter(|&d| d != 1)
            .collect();
        let axes = self.labels.iter().zip(self.node.shape().iter());
        let labels = axes.filter(|(_, d)| **d != 1).map(|(&l, _)| l).collect();
        Ok(Term {
            node: self.node.reshape(&dims)?,
            labels,
        })
    }

    /// Summed over all labels but these.
    fn sum_to(&self, stays: &[Label]) -> Result<Term> {
        if stays.len() == self.labels.len() {
            return Ok(self.clone());
        }
        let is_kept = |k: &usize| stays.contains(&self.labels[*k]);
        let mut order: Vec<usize> = (0..self.labels.len()).filter(is_kept).collect();
        let labels = order.iter().map(|&k| self.labels[k]).collect();
        let n = self.labels.len() - order.len();
        order.extend((0..self.labels.len()).filter(|k| !is_kept(k)));
        let node = self.node.permute(&order)?.reduce(ReduceOp::Add, n)?;
        Ok(Term { node, labels })
    }
}

/// The product of two operands, summed over the labels that they share and nobody else needs.
fn pair(a: &Term, b: &Term, needed: impl Fn(&Label) -> bool) -> Result<Term> {
    let (mut batch, mut left, mut summed) = (Vec::new(), Vec::new(), Vec::new());
    for &label in &a.labels {
        match (b.labels.contains(&label), needed(&label)) {
            (false, _) => left.push(label),
            (true, true) => batch.push(label),
            (true, false) => summed.push(label),
        }
    }
    let right = b.labels.iter().copied().filter(|l| !a.labels.contains(l));
    let right: Vec<Label> = right.collect();
    let of = |t: &Term, l: Label| t.node.shape()[place(&t.labels, l)];
    let extents = |t: &Term, labels: &[Label]| labels.iter().map(|&l| of(t, l)).collect::<Vec<_>>();
    let groups = [
        extents(a, &batch),
        extents(a, &left),
        extents(b, &right),
        extents(a, &summed),
    ];
    let dims = groups.concat();
    let dtype = a.node.dtype();
    // With a single row or column the sum is no contraction, and the products of narrow floats would be
    // rounded one by one. In f32 they are exact, as in a contraction.
    let single = !summed.is_empty() && (left.is_empty() || right.is_empty());
    let sums = if single { dtype.accumulator() } else { dtype };
    let spread = |t: &Term, own: &[Label], skipped: usize| -> Result<UOp> {
        let order = [&batch[..], own, &summed].concat();
        let order: Vec<usize> = order.iter().map(|&l| place(&t.labels, l)).collect();
        let mut apart = groups.clone();
        apart[skipped].fill(1);
        t.node
            .cast(sums)?
            .permute(&order)?
            .reshape(&apart.concat())?
            .expand(&dims)
    };
    let product = spread(a, &left, 2)?.mul(&spread(b, &right, 1)?)?;
    let node = product.reduce(ReduceOp::Add, summed.len())?.cast(dtype)?;
    Ok(Term {
        node,
        labels: [batch, left, right].concat(),
    })
}

/// How many multiplications a pair needs: the product of the extents of all its labels.
fn cost(a: &[Label], b: &[Label], extent: &impl Fn(Label) -> usize) -> f64 {
    let more = b.iter().filter(|l| !a.contains(l));
    a.iter().chain(more).map(|&l| extent(l) as f64).product()
}

/// The pairs, by their places among what is left at that time, that need the fewest multiplications
/// together.
///
/// For each set of operands the best way to make it of two smaller ones, from small sets to large ones.
fn best_order(
    terms: &[Term],
    kept: &[Label],
    extent: &impl Fn(Label) -> usize,
) -> Vec<(usize, usize)> {
    let (n, sets) = (terms.len(), 1usize << terms.len());
    if n < 3 {
        return Vec::new();
    }
    // The labels that a product of a set has: those of its members that others or the result need.
    let labels_of = |set: usize| -> Vec<Label> {
        let inside = |k: &usize| set >> k & 1 == 1;
        let mut labels: Vec<Label> = Vec::new();
        for k in (0..n).filter(inside) {
            for &l in &terms[k].labels {
                let outside = (0..n)
                    .filter(|k| !inside(k))
                    .any(|k| terms[k].labels.contains(&l));
                let alone = set.count_ones() == 1;
                if (alone || outside || kept.contains(&l)) && !labels.contains(&l) {
                    labels.push(l);
                }
            }
        }
        labels
    };
    let labels: Vec<Vec<Label>> = (0..sets).map(labels_of).collect();
    let mut best = vec![(f64::INFINITY, 0usize); sets];
    for set in 1..sets {
        if set.count_ones() == 1 {
            best[set].0 = 0.0;
            continue;
        }
        // Each way to part the set once: the part with its lowest member is the first.
        let lowest = set & set.wrapping_neg();
        let mut part = (set - 1) & set;
        while part > 0 {
            if part & lowest != 0 {
                let other = set ^ part;
                let own = cost(&labels[part], &labels[other], extent);
                let total = best[part].0 + best[other].0 + own;
                if total < best[set].0 || best[set].1 == 0 {
                    best[set] = (total, part);
                }
            }
            part = (part - 1) & set;
        }
    }
    // From the whole back to single operands; the pairs are then made in the opposite order.
    let mut made = Vec::new();
    let mut waiting = vec![sets - 1];
    while let Some(set) = waiting.pop() {
        if set.count_ones() > 1 {
            let part = best[set].1;
            made.push((part, set ^ part));
            waiting.extend([part, set ^ part]);
        }
    }
    let mut left: Vec<usize> = (0..n).map(|k| 1 << k).collect();
    let mut order = Vec::with_capacity(n - 1);
    for (a, b) in made.into_iter().rev() {
        let at = |set: usize| left.iter().position(|&s| s == set);
        let (Some(i), Some(j)) = (at(a), at(b)) else {
            // Not reached: a set's parts are made before it.
            return Vec::new();
        };
        order.push((i, j));
        left.remove(i.max(j));
        left.remove(i.min(j));
        left.push(a | b);
    }
    order
}

/// The pair whose product, less what it is made of, is smallest.
fn cheapest(open: &[Term], kept: &[Label], extent: &impl Fn(Label) -> usize) -> (usize, usize) {
    let size = |labels: &[Label]| labels.iter().map(|&l| extent(l) as f64).product::<f64>();
    let mut best = (f64::INFINITY, f64::INFINITY, (0, 1));
    for j in 1..open.len() {
        for i in 0..j {
            let (a, b) = (&open[i].labels, &open[j].labels);
            let others = || open.iter().enumerate().filter(|(k, _)| *k != i && *k != j);
            let needed =
                |l: &Label| kept.contains(l) || others().any(|(_, t)| t.labels.contains(l));
            let more = b.iter().filter(|l| !a.contains(l));
            let product: Vec<Label> = a
                .iter()
                .chain(more)
                .copied()
                .filter(|l| needed(l))
                .collect();
            let grows = size(&product) - size(a) - size(b);
            let own = cost(a, b, extent);
            if (grows, own) < (best.0, best.1) {
                best = (grows, own, (i, j));
            }
        }
    }
    best.2
}
