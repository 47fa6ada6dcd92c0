//! Covers: which elements of a tensor count, where shapes alone decide it.
//!
//! Padding, joining, cutting and sliding windows are made of RESHAPE, EXPAND, PERMUTE, STACK and
//! SHRINK. Going back through such a composition a SHRINK leaves zeros, but most often every
//! element of the tensor that went in is read in the end, and then no mask is needed. A cover is
//! followed back along with the mask to see that, by counting and not by computing.

use smallvec::{SmallVec, smallvec};

use super::passage::is_reversal;
use crate::ir::op::Op;
use crate::ir::uop::UOp;

/// Some axes, by number.
type Axes = SmallVec<[usize; 2]>;

/// How many elements a block may have; beyond this nothing is known.
const LARGEST: usize = 1 << 16;

/// The elements of a shape that count: those that every block allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cover {
    dims: Index,
    /// Blocks of axes that decide together; an axis is in one at most. No block allows all.
    blocks: SmallVec<[Block; 2]>,
}

/// What some axes allow.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Block {
    /// Ascending, none of extent 1.
    axes: Axes,
    /// For each index along these axes, in row-major order.
    allowed: Vec<bool>,
}

impl Cover {
    /// Everything.
    pub fn all(dims: &[usize]) -> Cover {
        Cover {
            dims: dims.into(),
            blocks: SmallVec::new(),
        }
    }

    /// True if every element counts.
    pub fn is_all(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The cover of source k of u, given that of u: what some element that counts is a copy of.
    /// `None` if it is no product of blocks, or too large.
    pub fn before(&self, u: &UOp, k: usize) -> Option<Cover> {
        let to = u.src()[k].shape();
        match u.op() {
            Op::Reshape(_) => self.reshaped(to),
            Op::Permute(order) => self.renamed(to, |axis| order[axis] as usize),
            Op::Expand(_) => self.summed(to),
            Op::Shrink(window) => self.padded(to, window),
            Op::Stack => self.part(to, k),
            Op::Index if is_reversal(u) => self.reversed(),
            Op::Index => self.placed(to, &u.src()[1..]),
            Op::Reduce { .. } => self.renamed(to, |axis| axis),
            op if op.is_elementwise() => Some(self.clone()),
            Op::Stage(_) => Some(self.clone()),
            _ => None,
        }
    }

    /// What one of two covers of a shape allows; `None` if that is no product of blocks.
    pub fn or(&self, other: &Cover) -> Option<Cover> {
        let without = |these: &Cover, others: &Cover| -> SmallVec<[Block; 2]> {
            let differs = |b: &&Block| !others.blocks.contains(b);
            these.blocks.iter().filter(differs).cloned().collect()
        };
        let (here, there) = (without(self, other), without(other, self));
        let mut out = self.clone();
        out.blocks.retain(|b| other.blocks.contains(b));
        match (&here[..], &there[..]) {
            // One of them allows all that the other does.
            ([], _) | (_, []) => {}
            ([a], [b]) if a.axes == b.axes => {
                let either = a.allowed.iter().zip(&b.allowed).map(|(&a, &b)| a || b);
                out.put(a.axes.clone(), either.collect())?;
            }
            _ => return None,
        }
        Some(out)
    }

    /// Adds a block, unless it allows everything. `None` if it allows nothing or is too large.
    fn put(&mut self, axes: Axes, allowed: Vec<bool>) -> Option<()> {
        if allowed.len() > LARGEST || !allowed.contains(&true) {
            return None;
        }
        if allowed.contains(&false) {
            self.blocks.push(Block { axes, allowed });
        }
        Some(())
    }

    /// Takes the block of an axis out, or one of that axis alone that allows everything.
    fn take(&mut self, axis: usize) -> Option<Block> {
        if let Some(at) = self.blocks.iter().position(|b| b.axes.contains(&axis)) {
            return Some(self.blocks.remove(at));
        }
        let n = self.dims[axis];
        (n <= LARGEST).then(|| Block {
            axes: smallvec![axis],
            allowed: vec![true; n],
        })
    }

    /// The same blocks on other axes.
    fn renamed(&self, to: &[usize], name: impl Fn(usize) -> usize) -> Option<Cover> {
        let mut out = Cover::all(to);
        for block in &self.blocks {
            let dims = self.extents(block);
            let mut names: Vec<(usize, usize)> = block
                .axes
                .iter()
                .enumerate()
                .map(|(k, &a)| (name(a), k))
                .collect();
            names.sort_unstable();
            let axes: Axes = names.iter().map(|&(axis, _)| axis).collect();
            let new_dims: Index = names.iter().map(|&(_, k)| dims[k]).collect();
            let allowed = table(&new_dims, |index| {
                let mut old: Index = smallvec![0; index.len()];
                for (&(_, k), &i) in names.iter().zip(index) {
                    old[k] = i;
                }
                block.allowed[flat(&dims, &old)]
            })?;
            out.put(axes, allowed)?;
        }
        Some(out)
    }

    fn extents(&self, block: &Block) -> Index {
        block.axes.iter().map(|&a| self.dims[a]).collect()
    }

    /// Behind an EXPAND: an index along a repeated axis counts if it does anywhere along it.
    fn summed(&self, to: &[usize]) -> Option<Cover> {
        let mut out = Cover::all(to);
        for block in &self.blocks {
            let dims = self.extents(block);
            let kept: Axes = (0..dims.len())
                .filter(|&k| to[block.axes[k]] == dims[k])
                .collect();
            let new_dims: Index = kept.iter().map(|&k| dims[k]).collect();
            let mut allowed = vec![false; new_dims.iter().product()];
            table(&dims, |index| {
                let new: Index = kept.iter().map(|&k| index[k]).collect();
                let counts = block.allowed[flat(&dims, index)];
                allowed[flat(&new_dims, &new)] |= counts;
                counts
            })?;
            let axes = kept.iter().map(|&k| block.axes[k]).collect();
            out.put(axes, allowed)?;
        }
        Some(out)
    }

    /// Behind a SHRINK: what was cut away does not count.
    fn padded(&self, to: &[usize], window: &[(usize, usize)]) -> Option<Cover> {
        let mut out = self.clone();
        for (axis, &(begin, end)) in window.iter().enumerate() {
            if (begin, end) == (0, to[axis]) {
                continue;
            }
            let block = out.take(axis)?;
            let dims = out.extents(&block);
            let at = block.axes.iter().position(|&a| a == axis)?;
            let mut new_dims = dims.clone();
            new_dims[at] = to[axis];
            let allowed = table(&new_dims, |index| {
                let mut old = Index::from_slice(index);
                old[at] = old[at].wrapping_sub(begin);
                (begin..end).contains(&index[at]) && block.allowed[flat(&dims, &old)]
            })?;
            out.dims[axis] = to[axis];
            out.put(block.axes, allowed)?;
        }
        Some(out)
    }

    /// Behind a STACK: the slice of one part.
    fn part(&self, to: &[usize], k: usize) -> Option<Cover> {
        let mut out = Cover::all(to);
        for block in &self.blocks {
            let dims = self.extents(block);
            let skipped = usize::from(block.axes[0] == 0);
            let new_dims = &dims[skipped..];
            let allowed = table(new_dims, |index| {
                let mut old: Index = smallvec![k; skipped];
                old.extend_from_slice(index);
                block.allowed[flat(&dims, &old)]
            })?;
            let axes = block.axes[skipped..].iter().map(|a| a - 1).collect();
            out.put(axes, allowed)?;
        }
        Some(out)
    }

    /// Behind a reversal of the first axis.
    fn reversed(&self) -> Option<Cover> {
        let mut out = self.clone();
        for block in out.blocks.iter_mut().filter(|b| b.axes[0] == 0) {
            let dims = self.extents(block);
            block.allowed = table(&dims, |index| {
                let mut from = Index::from_slice(index);
                from[0] = dims[0] - 1 - from[0];
                block.allowed[flat(&dims, &from)]
            })?;
        }
        Some(out)
    }

    /// Behind an INDEX at constant places.
    fn placed(&self, to: &[usize], places: &[UOp]) -> Option<Cover> {
        let mut out = Cover::all(to);
        for (axis, place) in places.iter().enumerate() {
            let Op::Const(c) = place.op() else {
                return None;
            };
            let at = c.as_i128();
            let allowed = (0..to[axis]).map(|i| i as i128 == at).collect();
            out.put(smallvec![axis], allowed)?;
        }
        for block in &self.blocks {
            let axes = block.axes.iter().map(|a| a + places.len()).collect();
            out.put(axes, block.allowed.clone())?;
        }
        Some(out)
    }

    /// Behind a RESHAPE. Axes fall into runs whose extents multiply to the same; a run whose axes
    /// change must not depend on other runs.
    fn reshaped(&self, to: &[usize]) -> Option<Cover> {
        let mut out = Cover::all(to);
        let mut names: Index = smallvec![usize::MAX; self.dims.len()];
        for (old, new) in runs(&self.dims, to) {
            if let ([a], [b]) = (&old[..], &new[..]) {
                names[*a] = *b;
                continue;
            }
            let is_inside = |b: &&Block| b.axes.iter().any(|a| old.contains(a));
            let inside: SmallVec<[&Block; 2]> = self.blocks.iter().filter(is_inside).collect();
            if inside.is_empty() {
                continue;
            }
            if !inside
                .iter()
                .all(|b| b.axes.iter().all(|a| old.contains(a)))
            {
                return None;
            }
            let dims: Index = old.iter().map(|&a| self.dims[a]).collect();
            let allowed = table(&dims, |index| {
                inside.iter().all(|block| {
                    let part: Index = (old.iter().zip(index))
                        .filter(|(a, _)| block.axes.contains(a))
                        .map(|(_, &i)| i)
                        .collect();
                    block.allowed[flat(&self.extents(block), &part)]
                })
            })?;
            out.put(new, allowed)?;
        }
        for block in &self.blocks {
            if block.axes.iter().all(|&a| names[a] != usize::MAX) {
                let axes = block.axes.iter().map(|&a| names[a]).collect();
                out.put(axes, block.allowed.clone())?;
            }
        }
        Some(out)
    }
}

/// An index along some axes, or their extents.
type Index = SmallVec<[usize; 4]>;

/// Axes of two shapes of as many elements, in the smallest runs that have as many: those of the
/// first shape and those of the second. Axes of extent 1 are in none.
fn runs(from: &[usize], to: &[usize]) -> Vec<(Axes, Axes)> {
    let longer =
        |dims: &[usize]| -> Vec<usize> { (0..dims.len()).filter(|&k| dims[k] != 1).collect() };
    let (from_axes, to_axes) = (longer(from), longer(to));
    let (mut from_axes, mut to_axes) = (from_axes.into_iter(), to_axes.into_iter());
    let mut runs = Vec::new();
    while let (Some(a), Some(b)) = (from_axes.next(), to_axes.next()) {
        let (mut old, mut new): (Axes, Axes) = (smallvec![a], smallvec![b]);
        let (mut m, mut n) = (from[a], to[b]);
        while m != n {
            if m < n {
                let Some(a) = from_axes.next() else { break };
                m *= from[a];
                old.push(a);
            } else {
                let Some(b) = to_axes.next() else { break };
                n *= to[b];
                new.push(b);
            }
        }
        runs.push((old, new));
    }
    runs
}

/// The position of an index in row-major order.
fn flat(dims: &[usize], index: &[usize]) -> usize {
    dims.iter().zip(index).fold(0, |at, (&n, &i)| at * n + i)
}

/// What holds at each index, in row-major order; `None` if there are too many.
fn table(dims: &[usize], mut holds: impl FnMut(&[usize]) -> bool) -> Option<Vec<bool>> {
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    if count > LARGEST {
        return None;
    }
    let mut index: Index = smallvec![0; dims.len()];
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(holds(&index));
        // The next index: the last axis runs fastest.
        for (i, &n) in index.iter_mut().zip(dims).rev() {
            *i += 1;
            if *i < n {
                break;
            }
            *i = 0;
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of 3 over 12 elements are cut out of rows that are one element longer.
    #[test]
    fn rows_of_another_length_cover_what_was_repeated() {
        let windows = Cover::all(&[3, 10]).padded(&[3, 13], &[(0, 3), (0, 10)]);
        let flat = windows.and_then(|c| c.reshaped(&[39]));
        let copies = flat.and_then(|c| c.padded(&[48], &[(0, 39)])?.reshaped(&[4, 12]));
        let copies = copies.expect("blocks are small");
        assert_eq!(copies.blocks[0].axes[..], [0, 1]);
        assert!(copies.summed(&[1, 12]).is_some_and(|c| c.is_all()));
    }

    #[test]
    fn two_halves_cover_all() {
        let half = |b, e| Cover::all(&[3, 2]).padded(&[3, 4], &[(0, 3), (b, e)]);
        let (left, right) = (half(0, 2).expect("small"), half(2, 4).expect("small"));
        assert!(left.or(&right).is_some_and(|c| c.is_all()));
        assert_eq!(left.or(&left), Some(left));
    }
}
