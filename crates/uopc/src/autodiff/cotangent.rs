//! Cotangents that count in some places, and how they pass through a node and add up.
//!
//! A WHERE computes both of its branches, and the one not taken may hold anything: the logarithm of
//! a negative number, a division by zero. A cotangent of 0 would not stop that: a rule multiplies it
//! by the derivative there, and 0 times infinity is NaN. So a selection does not put zeros into the
//! cotangent. It sends it on as it is, with a mask that says where it counts. Rules work on the
//! rest as on everything else, and whoever takes numbers out closes the cotangent by
//! `where(mask, g, 0)`: a target, a sum over what was repeated, a matrix product. Masks are bools, so
//! no derivative passes through them, and the closing WHERE is a selection like any other: the
//! gradient of a gradient is as safe.
//!
//! A mask moves as the cotangent does, by the same rule. It is dropped, and the cotangent closed, as
//! soon as nothing lies ahead that could spoil a zero. So a graph whose selections need no care has
//! one WHERE for each of them, and one without selections has none.

use smallvec::SmallVec;

use super::mask::{Fork, Mask};
use super::passage::{Passage, chosen, passage};
use super::vjp::vjp;
use crate::error::Result;
use crate::ir::composite::zeros_like;
use crate::ir::op::Op;
use crate::ir::site::Rule;
use crate::ir::uop::UOp;

/// The derivative of the root with respect to a node.
#[derive(Clone)]
pub(super) struct Cotangent {
    /// The values, of the node's dtype and shape.
    pub g: UOp,
    /// Where they count; elsewhere 0 is meant. `None` is everywhere.
    pub mask: Option<Mask>,
    /// True if the values are 0 where they do not count; if not, they may be anything.
    pub is_closed: bool,
}

impl From<UOp> for Cotangent {
    fn from(g: UOp) -> Cotangent {
        Cotangent {
            g,
            mask: None,
            is_closed: true,
        }
    }
}

impl Cotangent {
    /// The values, with zeros where they do not count.
    pub fn closed(&self) -> Result<UOp> {
        match &self.mask {
            Some(mask) if !self.is_closed => {
                let _rule = Rule::Mask.enter();
                mask.select(&self.g, &zeros_like(&self.g)?)
            }
            _ => Ok(self.g.clone()),
        }
    }

    /// What node `u`, whose cotangent this is, sends to its source `k`, if anything. If the source is
    /// `spoilt`, something behind it could make NaN out of a zero.
    pub fn sent(&self, u: &UOp, k: usize, spoilt: bool) -> Result<Option<Cotangent>> {
        // What is added up must count, and the transpose of repeating is a sum.
        let sums = matches!(u.op(), Op::Expand(_));
        let g = if sums { &self.closed()? } else { &self.g };
        let Some(g) = vjp(u, g, k)? else {
            return Ok(None);
        };
        let passage = passage(u);
        let mut mask = match passage {
            Passage::Cut if spoilt && self.mask.is_none() => Mask::of_cut(u, k)?,
            Passage::Gathered if spoilt => Some(Mask::of_read(u)?),
            _ => Mask::moved(self.mask.as_ref(), u, k)?,
        };
        if passage == Passage::Chosen {
            mask = Mask::and(mask, chosen(u, k)?);
            if mask.is_none() {
                // Nothing is chosen both by a condition and by its negation.
                return Ok(None);
            }
        }
        let moves = matches!(passage, Passage::Moved | Passage::Cut | Passage::Gathered);
        let stays = sums || self.is_closed && moves;
        let is_closed = mask.is_none() || stays;
        Ok(Some(Cotangent { g, mask, is_closed }))
    }
}

/// What was sent to a node, one entry for each mask.
type Groups = SmallVec<[Cotangent; 2]>;

/// Up to how many groups are compared with each other.
const FEW: usize = 8;

/// The sum of what the readers of a node have sent, in order of arrival, if there is any. Narrow
/// floats are added in f32 and rounded once.
///
/// What has the same mask is added as it is, and the two sides of a condition become one WHERE. What
/// then still differs is closed and added, and counts where any part of it did.
pub(super) fn total(sent: &[Cotangent]) -> Result<Option<Cotangent>> {
    let Some((first, rest)) = sent.split_first() else {
        return Ok(None);
    };
    if rest.is_empty() {
        return Ok(Some(first.clone()));
    }
    let dtype = first.g.dtype();
    let wide = dtype.accumulator();
    let mut groups = Groups::new();
    for one in sent {
        let g = one.g.cast(wide)?;
        let last = groups.len();
        add(&mut groups, last, Cotangent { g, ..one.clone() })?;
    }
    while groups.len() <= FEW && join_sides(&mut groups)? {}
    let mut groups = groups.into_iter();
    let mut sum = groups.next().expect("something was sent");
    for one in groups {
        let mask = match (&sum.mask, &one.mask) {
            (Some(a), Some(b)) => a.or(b)?,
            _ => None,
        };
        let g = sum.closed()?.add(&one.closed()?)?;
        let is_closed = true;
        sum = Cotangent { g, mask, is_closed };
    }
    sum.g = sum.g.cast(dtype)?;
    Ok(Some(sum))
}

/// Adds to the group of that mask, or puts a new one at `place`.
fn add(groups: &mut Groups, place: usize, one: Cotangent) -> Result<()> {
    match groups.iter_mut().find(|group| group.mask == one.mask) {
        Some(group) => {
            group.g = group.g.add(&one.g)?;
            group.is_closed &= one.is_closed;
        }
        None => groups.insert(place, one),
    }
    Ok(())
}

/// Makes one group of the first two that are the sides of a condition; false if there are none.
fn join_sides(groups: &mut Groups) -> Result<bool> {
    for i in 0..groups.len() {
        for j in i + 1..groups.len() {
            let (Some(a), Some(b)) = (&groups[i].mask, &groups[j].mask) else {
                continue;
            };
            let Some(fork) = Fork::of(a, b).filter(Fork::is_either) else {
                continue;
            };
            let b = groups.remove(j).g;
            let a = groups.remove(i).g;
            let g = fork.a.select(&a, &b)?;
            let mask = fork.shared();
            let is_closed = mask.is_none();
            add(groups, i, Cotangent { g, mask, is_closed })?;
            return Ok(true);
        }
    }
    Ok(false)
}
