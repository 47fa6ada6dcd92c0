//! Which axes of a value are axes of what is computed from it: element (i, j) of the one is needed
//! for elements (i, ...) of the other alone.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::op::Op;
use super::uop::UOp;

/// For each axis of a value the axis of the root that it is, if it is one.
pub type Axes = SmallVec<[Option<u8>; 6]>;

/// The axes of nodes in terms of those of the last one, the root. The nodes stand in an order in
/// which sources come first. A node that is read in several ways has the axes that it has in each.
pub fn axes(nodes: &[UOp]) -> FxHashMap<UOp, Axes> {
    let mut known: FxHashMap<UOp, Axes> = FxHashMap::default();
    if let Some(root) = nodes.last() {
        let rank = root.shape().rank();
        known.insert(
            root.clone(),
            (0..rank).map(|k| u8::try_from(k).ok()).collect(),
        );
    }
    for u in nodes.iter().rev() {
        let Some(own) = known.get(u).cloned() else {
            continue;
        };
        for (k, s) in u.src().iter().enumerate() {
            let read = of_source(u, k, &own);
            match known.get_mut(s) {
                Some(before) => {
                    let pairs = before.iter_mut().zip(&read);
                    pairs.for_each(|(a, b)| *a = a.filter(|_| a == b));
                }
                None => {
                    known.insert(s.clone(), read);
                }
            }
        }
    }
    known
}

/// How many of the root's leading axes all the chosen nodes have.
pub fn shared(nodes: &[UOp], chosen: impl Fn(&UOp) -> bool) -> usize {
    let known = axes(nodes);
    let rank = nodes.last().map_or(0, |root| root.shape().rank());
    let mut chosen = nodes.iter().filter(|u| chosen(u)).peekable();
    if chosen.peek().is_none() {
        return 0;
    }
    let has = |u: &UOp, axis: usize| {
        let own = known.get(u);
        own.is_some_and(|own| own.iter().any(|a| a.map(usize::from) == Some(axis)))
    };
    chosen.fold(rank, |n, u| {
        (0..n).position(|axis| !has(u, axis)).unwrap_or(n)
    })
}

/// The axes of source k of a node with these axes.
pub fn of_source(u: &UOp, k: usize, own: &Axes) -> Axes {
    let from = u.src()[k].shape();
    match u.op() {
        Op::Permute(order) => {
            let mut axes: Axes = smallvec![None; from.rank()];
            for (a, &p) in own.iter().zip(order.iter()) {
                axes[p as usize] = *a;
            }
            axes
        }
        Op::Expand(to) => {
            let same = from.iter().zip(to.iter()).map(|(a, b)| a == b);
            own.iter()
                .zip(same)
                .map(|(a, same)| a.filter(|_| same))
                .collect()
        }
        Op::Shrink(bounds) => {
            let whole = bounds.iter().zip(from.iter());
            let whole = whole.map(|(&(begin, end), &n)| (begin, end) == (0, n));
            own.iter()
                .zip(whole)
                .map(|(a, whole)| a.filter(|_| whole))
                .collect()
        }
        Op::Reshape(to) => of_reshaped(from, to, own),
        Op::Reduce { .. } => {
            let mut axes = own.clone();
            axes.resize(from.rank(), None);
            axes
        }
        Op::Stack => own[1..].iter().copied().collect(),
        Op::Index => {
            let rank = u.src()[1].shape().rank();
            match k {
                0 => {
                    let indexed = u.src().len() - 1;
                    let mut axes: Axes = smallvec![None; indexed];
                    axes.extend(own[rank..].iter().copied());
                    axes
                }
                _ => own[..rank].iter().copied().collect(),
            }
        }
        Op::ScatterAdd(_) => {
            let mut axes: Axes = smallvec![None; from.rank()];
            if k == 0 {
                let within = own.len() - (u.src().len() - 1);
                let first = from.rank() - within;
                axes[first..].clone_from_slice(&own[own.len() - within..]);
            }
            axes
        }
        // An element depends on others of its row.
        Op::Scan(_) | Op::ArgSort => {
            let mut axes = own.clone();
            if let Some(last) = axes.last_mut() {
                *last = None;
            }
            axes
        }
        _ if from.rank() == own.len() => own.clone(),
        _ => smallvec![None; from.rank()],
    }
}

/// The same for a RESHAPE: axes that it leaves as they are, beside axes of one element.
fn of_reshaped(from: &[usize], to: &[usize], own: &Axes) -> Axes {
    let mut axes: Axes = smallvec![None; from.len()];
    if from.contains(&0) {
        return axes;
    }
    let (mut f, mut t) = (0, 0);
    while f < from.len() && t < to.len() {
        // The least groups of axes of equal extent.
        let (f0, t0) = (f, t);
        let (mut nf, mut nt) = (from[f], to[t]);
        (f, t) = (f + 1, t + 1);
        while nf != nt {
            match nf < nt {
                true => (nf, f) = (nf * from[f], f + 1),
                false => (nt, t) = (nt * to[t], t + 1),
            }
        }
        let one = |of: &[usize], first: usize, last: usize| {
            let mut large = (first..last).filter(|&k| of[k] != 1);
            large.next().filter(|_| large.next().is_none())
        };
        if let (Some(a), Some(b)) = (one(from, f0, f), one(to, t0, t)) {
            axes[a] = own[b];
        }
    }
    axes
}
