//! Masks: the elements of a cotangent that count, as conditions that must all hold.

use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use super::cover::Cover;
use super::scan::is_record;
use super::vjp::{spread, vjp};
use crate::error::Result;
use crate::ir::composite::sum_to;
use crate::ir::dtype::DType;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use crate::ir::uop::UOp;

/// A bool for each element, or its negation.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Condition {
    /// The bool.
    pub c: UOp,
    /// What it must be.
    pub holds: bool,
}

/// The elements that count: those for which all conditions hold.
#[derive(Clone)]
pub(super) struct Mask {
    all: SmallVec<[Condition; 1]>,
    /// The same, known without a computation, if shapes alone decide it.
    cover: Option<Rc<Cover>>,
}

/// How many conditions a mask has at most; more are computed into one.
const MANY: usize = 16;

/// Two masks are one if their conditions are, in whatever order.
impl PartialEq for Mask {
    fn eq(&self, other: &Mask) -> bool {
        self.all.len() == other.all.len() && self.implies(other)
    }
}

impl Condition {
    /// The condition that a bool is true. A negation is taken apart.
    fn of(u: &UOp) -> Condition {
        let mut condition = Condition {
            c: u.clone(),
            holds: true,
        };
        while let Some(inner) = negated(&condition.c) {
            condition = Condition {
                c: inner.clone(),
                holds: !condition.holds,
            };
        }
        condition
    }

    /// As a bool that is true where the condition holds.
    fn node(&self) -> Result<UOp> {
        if self.holds {
            Ok(self.c.clone())
        } else {
            self.c.logical_not()
        }
    }

    /// `a` where the condition holds, else `b`.
    pub fn select(&self, a: &UOp, b: &UOp) -> Result<UOp> {
        if self.holds {
            self.c.where_(a, b)
        } else {
            self.c.where_(b, a)
        }
    }

    fn is_negation_of(&self, other: &Condition) -> bool {
        self.c == other.c && self.holds != other.holds
    }
}

/// c of the negation `c ^ true`.
fn negated(u: &UOp) -> Option<&UOp> {
    let [c, one] = u.src() else { return None };
    let mut one = one;
    while let Op::Reshape(_) | Op::Expand(_) = one.op() {
        one = &one.src()[0];
    }
    let is_true = matches!(one.op(), Op::Const(value) if value.as_bool());
    (*u.op() == Op::Xor && is_true).then_some(c)
}

impl Mask {
    fn of(condition: Condition) -> Mask {
        Mask {
            all: smallvec![condition],
            cover: None,
        }
    }

    /// `a` where all conditions hold, else `b`.
    pub fn select(&self, a: &UOp, b: &UOp) -> Result<UOp> {
        match &self.all[..] {
            [one] => one.select(a, b),
            _ => self.node()?.where_(a, b),
        }
    }

    /// As one bool.
    fn node(&self) -> Result<UOp> {
        let mut all = self.all[0].node()?;
        for condition in &self.all[1..] {
            all = all.and(&condition.node()?)?;
        }
        Ok(all)
    }

    /// True if `other` counts wherever this does.
    fn implies(&self, other: &Mask) -> bool {
        other
            .all
            .iter()
            .all(|condition| self.all.contains(condition))
    }

    /// The mask that also asks for a condition; `None` if nothing can count.
    pub fn and(mask: Option<Mask>, condition: Condition) -> Option<Mask> {
        let mut all = mask.map_or_else(SmallVec::new, |mask| mask.all);
        // The AND of several is taken apart, so that masks made of the same parts are recognised.
        let mut pending = vec![condition];
        while let Some(condition) = pending.pop() {
            let condition = if condition.holds {
                Condition::of(&condition.c)
            } else {
                condition
            };
            match (condition.c.op(), condition.c.src()) {
                (Op::And, [a, b]) if condition.holds && all.len() < MANY => {
                    pending.extend([b, a].map(Condition::of));
                }
                _ if all.contains(&condition) => {}
                _ if all.iter().any(|other| other.is_negation_of(&condition)) => return None,
                _ => all.push(condition),
            }
        }
        Some(Mask { all, cover: None })
    }

    /// Where one of two masks counts; `None` if that is everywhere.
    pub fn or(&self, other: &Mask) -> Result<Option<Mask>> {
        let covers = self.cover.as_ref().zip(other.cover.as_ref());
        let cover = covers.and_then(|(a, b)| a.or(b));
        if cover.as_ref().is_some_and(Cover::is_all) {
            return Ok(None);
        }
        if self.implies(other) {
            return Ok(Some(other.clone()));
        }
        if other.implies(self) {
            return Ok(Some(self.clone()));
        }
        if let Some(fork) = Fork::of(self, other).filter(Fork::is_covering) {
            return Ok(fork.shared());
        }
        let either = self.node()?.or(&other.node()?)?;
        let condition = Condition {
            c: either,
            holds: true,
        };
        Ok(Some(Mask {
            all: smallvec![condition],
            cover: cover.map(Rc::new),
        }))
    }

    // ---- moving along ----

    /// The mask of source k of u, given that of u: moved as the cotangent is.
    pub fn moved(mask: Option<&Mask>, u: &UOp, k: usize) -> Result<Option<Mask>> {
        let Some(mask) = mask else { return Ok(None) };
        let x = &u.src()[k];
        let cover = mask.cover.as_ref().and_then(|c| c.before(u, k));
        if cover.as_ref().is_some_and(Cover::is_all) {
            return Ok(None);
        }
        let mut moved = match u.op() {
            Op::Expand(_) => mask.of_any(x.shape())?,
            Op::Reshape(_) | Op::Permute(_) | Op::Stack => mask.each(|c| vjp(u, c, k))?,
            // Zeros are put around, so the condition must be the one that is true where it counts.
            Op::Shrink(_) | Op::Index | Op::ScatterAdd(_) => {
                let node = vjp(u, &mask.node()?, k)?;
                node.map(|c| Mask::of(Condition { c, holds: true }))
            }
            Op::Reduce { .. } => mask.each(|c| spread(c, x).map(Some))?,
            // Elementwise, and markers.
            _ => Some(mask.clone()),
        };
        if let Some(moved) = &mut moved {
            moved.cover = cover.map(Rc::new);
        }
        Ok(moved)
    }

    /// The mask behind an op that takes a part of its source, known from shapes.
    pub fn of_cut(u: &UOp, k: usize) -> Result<Option<Mask>> {
        let c = UOp::full(Scalar::from_bool(true), u.shape())?;
        let mut all = Mask::of(Condition { c, holds: true });
        all.cover = Some(Rc::new(Cover::all(u.shape())));
        Mask::moved(Some(&all), u, k)
    }

    /// The mask behind an op that reads at computed positions: what was read at all. An INDEX reads
    /// rows, a running maximum what is one at its own place.
    pub fn of_read(u: &UOp) -> Result<Mask> {
        if matches!(u.op(), Op::Scan(_)) {
            let c = is_record(u)?;
            return Ok(Mask::of(Condition { c, holds: true }));
        }
        let (x, positions) = (&u.src()[0], &u.src()[1..]);
        let rows = &x.shape()[..positions.len()];
        let ones = UOp::full(Scalar::from_i128(DType::F32, 1), positions[0].shape())?;
        let reads = ones.scatter_add(positions, rows)?;
        let mut dims = rows.to_vec();
        dims.resize(x.shape().rank(), 1);
        let c = reads.cmpne(&reads.full_like(0.0)?)?;
        let c = c.reshape(&dims)?.expand(x.shape())?;
        Ok(Mask::of(Condition { c, holds: true }))
    }

    fn each(&self, mut f: impl FnMut(&UOp) -> Result<Option<UOp>>) -> Result<Option<Mask>> {
        let mut all = SmallVec::new();
        for condition in &self.all {
            let Some(c) = f(&condition.c)? else {
                return Ok(None);
            };
            all.push(Condition {
                c,
                holds: condition.holds,
            });
        }
        Ok(Some(Mask { all, cover: None }))
    }

    /// Behind an EXPAND from `shape`: an element counts if one of those that it was repeated to does.
    ///
    /// What is the same along the repeated axes is taken out of the search.
    fn of_any(&self, shape: &[usize]) -> Result<Option<Mask>> {
        let mut fixed: SmallVec<[Condition; 1]> = SmallVec::new();
        let mut varying: SmallVec<[Condition; 1]> = SmallVec::new();
        for condition in &self.all {
            match narrowed(&condition.c, shape)? {
                Some(c) => fixed.push(Condition {
                    c,
                    holds: condition.holds,
                }),
                None => varying.push(condition.clone()),
            }
        }
        if let [one] = &varying[..]
            && let Some((position, n)) = one_place(one, shape)?
        {
            // Some place is that of the position, if it is a place.
            let like = |i: usize| {
                UOp::full(
                    Scalar::from_i128(position.dtype(), i as i128),
                    position.shape(),
                )
            };
            fixed.push(Condition {
                c: position.cmplt(&like(0)?)?,
                holds: false,
            });
            fixed.push(Condition {
                c: position.cmplt(&like(n)?)?,
                holds: true,
            });
        } else if !varying.is_empty() {
            let node = Mask {
                all: varying,
                cover: None,
            }
            .node()?;
            fixed.push(Condition {
                c: sum_to(&node, shape)?,
                holds: true,
            });
        }
        let mut any: Option<Mask> = None;
        for condition in fixed {
            any =
                Some(Mask::and(any, condition).expect("what holds somewhere is no contradiction"));
        }
        Ok(any)
    }
}

/// Two masks that differ in one condition each.
pub(super) struct Fork {
    shared: SmallVec<[Condition; 1]>,
    /// What the first asks for beyond what they share.
    pub a: Condition,
    b: Condition,
}

impl Fork {
    /// The fork of two masks, if they are one.
    pub fn of(a: &Mask, b: &Mask) -> Option<Fork> {
        let only = |these: &Mask, others: &Mask| -> SmallVec<[Condition; 1]> {
            let missing = these.all.iter().filter(|c| !others.all.contains(c));
            missing.cloned().collect()
        };
        let (only_a, only_b) = (only(a, b), only(b, a));
        let ([first], [second]) = (&only_a[..], &only_b[..]) else {
            return None;
        };
        let shared = a.all.iter().filter(|c| *c != first).cloned().collect();
        Some(Fork {
            shared,
            a: first.clone(),
            b: second.clone(),
        })
    }

    /// What both masks ask for; `None` if that is nothing.
    pub fn shared(self) -> Option<Mask> {
        let all = self.shared;
        (!all.is_empty()).then_some(Mask { all, cover: None })
    }

    /// Exactly one of the two conditions holds.
    pub fn is_either(&self) -> bool {
        self.a.is_negation_of(&self.b)
    }

    /// At least one of them holds: they are each other's negation, or `!(x < y)` and `!(y < x)`.
    fn is_covering(&self) -> bool {
        let (a, b) = (&self.a, &self.b);
        let is_less = |c: &Condition| *c.c.op() == Op::CmpLt && !c.holds;
        let flipped = || a.c.src()[0] == b.c.src()[1] && a.c.src()[1] == b.c.src()[0];
        self.is_either() || is_less(a) && is_less(b) && flipped()
    }
}

/// How many nodes of a condition are looked at.
const REACH: usize = 32;

/// A node of a smaller shape that, repeated, is this one: where it is made, element by element, of
/// what was repeated along every axis that `shape` lacks.
fn narrowed(u: &UOp, shape: &[usize]) -> Result<Option<UOp>> {
    let mut made: Vec<(UOp, UOp)> = Vec::new();
    let mut pending: Vec<(UOp, bool)> = vec![(u.clone(), false)];
    let find = |made: &[(UOp, UOp)], u: &UOp| {
        let found = made.iter().find(|(old, _)| old == u);
        found.map(|(_, new)| new.clone())
    };
    let mut visits = 0;
    while let Some((u, sources_done)) = pending.pop() {
        visits += 1;
        if visits > REACH {
            return Ok(None);
        }
        if find(&made, &u).is_some() {
            continue;
        }
        if let Op::Expand(_) = u.op() {
            let from = &u.src()[0];
            let fits = |(&d, &want): (&usize, &usize)| d == want || d == 1;
            if !from.shape().iter().zip(shape).all(fits) {
                return Ok(None);
            }
            let new = if **from.shape() == *shape {
                from.clone()
            } else {
                from.expand(shape)?
            };
            made.push((u, new));
        } else if !u.op().is_elementwise() {
            return Ok(None);
        } else if sources_done {
            let src: SmallVec<[UOp; 3]> = u.src().iter().filter_map(|s| find(&made, s)).collect();
            let new = UOp::new(u.op().clone(), src.as_slice())?;
            made.push((u, new));
        } else {
            pending.push((u.clone(), true));
            pending.extend(u.src().iter().map(|s| (s.clone(), false)));
        }
    }
    Ok(find(&made, u))
}

/// `(position, n)` if the condition says that the place along the one axis that `shape` lacks, of
/// extent n, is that of an integer which is the same for all places: one-hot rows.
fn one_place(condition: &Condition, shape: &[usize]) -> Result<Option<(UOp, usize)>> {
    let c = &condition.c;
    if *c.op() != Op::CmpNe || condition.holds || !c.src()[0].dtype().is_int() {
        return Ok(None);
    }
    let from = c.shape();
    let mut lacking = (0..shape.len()).filter(|&k| from[k] != shape[k]);
    let (Some(axis), None) = (lacking.next(), lacking.next()) else {
        return Ok(None);
    };
    for (places, position) in [(0, 1), (1, 0)] {
        if counts_along(&c.src()[places], axis)
            && let Some(position) = narrowed(&c.src()[position], shape)?
        {
            // A narrow integer might not reach n.
            let fits = matches!(position.dtype(), DType::I32 | DType::I64);
            return Ok(fits.then_some((position, from[axis])));
        }
    }
    Ok(None)
}

/// True if the elements are their own places along an axis: an IOTA given a shape.
fn counts_along(u: &UOp, axis: usize) -> bool {
    let n = u.shape()[axis];
    let mut inner = u;
    // The axis must be the only one that the numbers run along.
    while let Op::Expand(_) = inner.op() {
        inner = &inner.src()[0];
    }
    let run = |(k, &d): (usize, &usize)| if k == axis { d == n } else { d == 1 };
    let is_row = inner.shape().iter().enumerate().all(run);
    while let Op::Reshape(_) = inner.op() {
        inner = &inner.src()[0];
    }
    is_row && matches!(inner.op(), Op::Iota { n: count, .. } if *count == n)
}
