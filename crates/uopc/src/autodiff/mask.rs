//! Masks: which elements of a cotangent count, so that what a selection did not take gets exactly 0.
//!
//! A WHERE computes both of its branches, and the one not taken may hold anything: the logarithm
//! of a negative number, a division by zero. A cotangent of 0 would not stop that: a rule
//! multiplies it by the derivative there, and 0 times infinity is NaN. So a selection does not put
//! zeros into the cotangent. It sends it on as it is, with a mask that says where it counts; rules
//! work on the rest as on everything else, and whoever takes numbers out closes it by
//! `where(mask, g, 0)`: a target, a sum over what was repeated, a matrix product. Masks are bools,
//! so no derivative passes through them, and the closing WHERE is a selection like any other: the
//! gradient of a gradient is as safe.
//!
//! A mask moves as the cotangent does, by the same rule. It is dropped, and the cotangent closed,
//! as soon as nothing lies ahead that could make a NaN out of 0 ([`spoils`]): a graph whose
//! selections need no care has one WHERE for each, and one without selections has none.

use std::rc::Rc;

use smallvec::SmallVec;

use super::cover::Cover;
use super::vjp::{Taken, is_reversal, spread, taken, vjp};
use crate::error::Result;
use crate::ir::composite::{sum_to, zeros_like};
use crate::ir::op::{Fold, Op, ReduceOp};
use crate::ir::scalar::Scalar;
use crate::ir::uop::UOp;

/// The derivative of the root with respect to a node, right where the mask is true and anything
/// elsewhere, where 0 is meant.
#[derive(Clone)]
pub(super) struct Cotangent {
    /// The values, of the node's dtype and shape.
    pub g: UOp,
    /// Where they count; everywhere if `None`.
    pub mask: Option<Mask>,
}

/// Which elements count.
#[derive(Clone)]
pub(super) struct Mask {
    /// A bool for each element.
    node: UOp,
    /// The same, known without a computation, if only shapes decide it.
    cover: Option<Rc<Cover>>,
}

impl PartialEq for Mask {
    fn eq(&self, other: &Mask) -> bool {
        self.node == other.node
    }
}

impl From<UOp> for Cotangent {
    fn from(g: UOp) -> Cotangent {
        Cotangent { g, mask: None }
    }
}

impl Cotangent {
    /// The values with zeros where they do not count.
    pub fn closed(&self) -> Result<UOp> {
        match &self.mask {
            None => Ok(self.g.clone()),
            Some(mask) => close(&mask.node, &self.g),
        }
    }

    /// What node `u`, whose cotangent this is, sends to its source `k`; `None` if nothing. The
    /// mask stays on if `spoilt`: something ahead could make a NaN out of a zero.
    pub fn sent(&self, u: &UOp, k: usize, spoilt: bool) -> Result<Option<Cotangent>> {
        // The transpose of repeating is a sum, which must not meet what does not count.
        let g = match u.op() {
            Op::Expand(_) => &self.closed()?,
            _ => &self.g,
        };
        let Some(g) = vjp(u, g, k)? else {
            return Ok(None);
        };
        let mask = match taken(u, k)? {
            Taken::All => moved(self.mask.as_ref(), u, k)?,
            Taken::Where(chosen) => {
                let mask = moved(self.mask.as_ref(), u, k)?;
                Some(and(mask.as_ref(), &chosen)?)
            }
            // Zeros are where nothing was taken; they need a mask only if they could be spoilt.
            Taken::Window if spoilt => window(self.mask.as_ref(), u, k)?,
            Taken::Window => moved(self.mask.as_ref(), u, k)?,
        };
        let sent = Cotangent { g, mask };
        if spoilt || sent.mask.is_none() {
            return Ok(Some(sent));
        }
        sent.closed().map(|g| Some(g.into()))
    }
}

/// True if the rule of u may make something else than 0 out of a cotangent of 0, as it multiplies
/// or divides by values that may be infinite or NaN.
pub(super) fn spoils(u: &UOp) -> bool {
    match u.op() {
        Op::Recip | Op::Div | Op::Exp2 | Op::Log2 | Op::Exp | Op::Sqrt | Op::Sin(_) => true,
        Op::Reduce {
            op: ReduceOp::Mul, ..
        } => true,
        // A finite number as a factor does no harm.
        Op::Mul | Op::MulAcc => !u.src()[..2].iter().any(is_finite_constant),
        _ => false,
    }
}

/// True if a cotangent of u is closed before u's rule is applied: nothing behind u counts.
///
/// A matrix product stays one of two packed operands, with no mask in its inner loops; what is
/// read from computed places, or by a rule of the user, gets numbers.
pub(super) fn closes(u: &UOp) -> bool {
    match u.op() {
        Op::Reduce { fold, .. } => *fold == Fold::Chain,
        Op::Index => !is_window(u),
        Op::ScatterAdd(_) | Op::Scan(_) | Op::Custom(_) => true,
        _ => false,
    }
}

/// True for an INDEX whose place is known, so that it is a [`Taken::Window`] or moves everything.
fn is_window(u: &UOp) -> bool {
    u.src()[1..].iter().all(|c| matches!(c.op(), Op::Const(_))) || is_reversal(u)
}

fn is_finite_constant(u: &UOp) -> bool {
    constant(u).is_some_and(|c| c.as_f64().is_finite())
}

/// The value of a constant that was given a shape.
fn constant(u: &UOp) -> Option<Scalar> {
    let mut u = u;
    for _ in 0..3 {
        match u.op() {
            Op::Const(value) => return Some(*value),
            Op::Reshape(_) | Op::Expand(_) => u = &u.src()[0],
            _ => return None,
        }
    }
    None
}

/// `where(mask, g, 0)`; of a mask that is a negation, the other way round.
fn close(mask: &UOp, g: &UOp) -> Result<UOp> {
    let zeros = zeros_like(g)?;
    match negated(mask) {
        Some(c) => c.where_(&zeros, g),
        None => mask.where_(g, &zeros),
    }
}

// ---- moving masks along ----

/// The mask behind u: moved as the cotangent is, and narrowed to nothing.
fn moved(mask: Option<&Mask>, u: &UOp, k: usize) -> Result<Option<Mask>> {
    let Some(mask) = mask else { return Ok(None) };
    let x = &u.src()[k];
    let cover = mask.cover.as_ref().and_then(|c| c.before(u, k));
    if cover.as_ref().is_some_and(Cover::is_all) {
        return Ok(None);
    }
    let cover = cover.map(Rc::new);
    let node = match u.op() {
        // An element counts if one of those that it was repeated to does.
        Op::Expand(_) => match narrowed(&mask.node, x.shape())? {
            Some(node) => node,
            None => sum_to(&mask.node, x.shape())?,
        },
        Op::Reshape(_) | Op::Permute(_) | Op::Shrink(_) | Op::Stack | Op::Index => {
            match vjp(u, &mask.node, k)? {
                Some(node) => node,
                None => return Ok(None),
            }
        }
        Op::Reduce { .. } => spread(&mask.node, x)?,
        // Elementwise, and markers.
        _ => mask.node.clone(),
    };
    Ok(Some(Mask { node, cover }))
}

/// The mask behind an op that takes a part of its source, known from shapes.
fn window(mask: Option<&Mask>, u: &UOp, k: usize) -> Result<Option<Mask>> {
    match mask {
        Some(mask) => moved(Some(mask), u, k),
        None => {
            let node = UOp::full(Scalar::from_bool(true), u.shape())?;
            let cover = Some(Rc::new(Cover::all(u.shape())));
            moved(Some(&Mask { node, cover }), u, k)
        }
    }
}

/// How many nodes of a mask are looked at.
const REACH: usize = 32;

/// A mask of a smaller shape that, repeated, is this one: `mask` where it is made, element by
/// element, of what was repeated along every axis that `shape` lacks.
fn narrowed(mask: &UOp, shape: &[usize]) -> Result<Option<UOp>> {
    let mut made: Vec<(UOp, UOp)> = Vec::new();
    let mut pending: Vec<(UOp, bool)> = vec![(mask.clone(), false)];
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
    Ok(find(&made, mask))
}

// ---- masks as conditions ----

/// The conditions that a mask is the AND of.
type Conditions = SmallVec<[UOp; 4]>;

/// How many conditions of a mask are told apart; the rest counts as one.
const MANY: usize = 16;

fn conditions(mask: &UOp) -> Conditions {
    let mut all = Conditions::new();
    let mut rest = mask.clone();
    while let (Op::And, [others, last]) = (rest.op(), rest.src())
        && all.len() < MANY
    {
        all.push(last.clone());
        rest = others.clone();
    }
    all.push(rest);
    all.reverse();
    all
}

/// The AND of conditions, `None` of none.
fn all_of(conditions: &[UOp]) -> Result<Option<UOp>> {
    let Some((first, rest)) = conditions.split_first() else {
        return Ok(None);
    };
    let mut all = first.clone();
    for c in rest {
        all = all.and(c)?;
    }
    Ok(Some(all))
}

/// c of the negation `c ^ true`.
fn negated(u: &UOp) -> Option<&UOp> {
    let [c, one] = u.src() else { return None };
    let is_true = |one: &UOp| constant(one).is_some_and(|v| v.as_bool());
    (*u.op() == Op::Xor && is_true(one)).then_some(c)
}

/// The negation of a condition.
pub(super) fn not(c: &UOp) -> Result<UOp> {
    match negated(c) {
        Some(inner) => Ok(inner.clone()),
        None => c.logical_not(),
    }
}

/// The mask that also asks for `chosen`.
fn and(mask: Option<&Mask>, chosen: &UOp) -> Result<Mask> {
    let mut all = mask.map_or_else(Conditions::new, |m| conditions(&m.node));
    for c in conditions(chosen) {
        if !all.contains(&c) {
            all.push(c);
        }
    }
    let node = all_of(&all)?.expect("a condition was chosen");
    Ok(Mask { node, cover: None })
}

/// Two masks that differ in one condition each: what they share, and the two.
struct Fork {
    shared: Option<UOp>,
    a: UOp,
    b: UOp,
}

fn fork(a: &UOp, b: &UOp) -> Result<Option<Fork>> {
    let (all_a, all_b) = (conditions(a), conditions(b));
    let only = |these: &Conditions, others: &Conditions| -> Conditions {
        let missing = these.iter().filter(|c| !others.contains(c));
        missing.cloned().collect()
    };
    let (only_a, only_b) = (only(&all_a, &all_b), only(&all_b, &all_a));
    let ([a], [b]) = (&only_a[..], &only_b[..]) else {
        return Ok(None);
    };
    let shared: Conditions = all_a.iter().filter(|c| *c != a).cloned().collect();
    Ok(Some(Fork {
        shared: all_of(&shared)?,
        a: a.clone(),
        b: b.clone(),
    }))
}

impl Fork {
    /// Exactly one of the two holds.
    fn is_either(&self) -> bool {
        negated(&self.a) == Some(&self.b) || negated(&self.b) == Some(&self.a)
    }

    /// At least one of the two holds: they are each other's negation, or `!(x < y)` and
    /// `!(y < x)`.
    fn is_covering(&self) -> bool {
        let flipped = |p: &UOp, q: &UOp| {
            *p.op() == Op::CmpLt
                && *q.op() == Op::CmpLt
                && p.src()[0] == q.src()[1]
                && p.src()[1] == q.src()[0]
        };
        self.is_either()
            || matches!((negated(&self.a), negated(&self.b)), (Some(p), Some(q)) if flipped(p, q))
    }
}

/// Where one of two masks is true; `None` if that is everywhere.
fn or(a: &Mask, b: &Mask) -> Result<Option<Mask>> {
    let cover = match (&a.cover, &b.cover) {
        (Some(a), Some(b)) => a.or(b),
        _ => None,
    };
    if cover.as_ref().is_some_and(Cover::is_all) {
        return Ok(None);
    }
    let (all_a, all_b) = (conditions(&a.node), conditions(&b.node));
    if all_a.iter().all(|c| all_b.contains(c)) {
        return Ok(Some(a.clone()));
    }
    if all_b.iter().all(|c| all_a.contains(c)) {
        return Ok(Some(b.clone()));
    }
    if let Some(fork) = fork(&a.node, &b.node)?
        && fork.is_covering()
    {
        return Ok(fork.shared.map(|node| Mask { node, cover: None }));
    }
    let node = a.node.or(&b.node)?;
    let cover = cover.map(Rc::new);
    Ok(Some(Mask { node, cover }))
}

// ---- adding up ----

/// What was sent to a node, one entry for each mask.
type Groups = SmallVec<[Cotangent; 2]>;

/// Up to how many groups are compared with each other.
const FEW: usize = 8;

/// The sum of what the readers of a node have sent, in order of arrival, if there is any. Narrow
/// floats are added in f32 and rounded once.
///
/// What has the same mask is added as it is. The two sides of one condition become one WHERE.
/// What then still has different masks is closed and added, and counts where any did.
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
        let (g, mask) = (one.g.cast(wide)?, one.mask.clone());
        let last = groups.len();
        add(&mut groups, last, Cotangent { g, mask })?;
    }
    while groups.len() <= FEW && join_sides(&mut groups)? {}
    let mut sum = groups[0].clone();
    for (k, one) in groups.iter().enumerate().skip(1) {
        // From the second on, the sum so far is right everywhere, whatever its mask says.
        let so_far = if k == 1 { sum.closed()? } else { sum.g };
        let mask = match (&sum.mask, &one.mask) {
            (Some(a), Some(b)) => or(a, b)?,
            _ => None,
        };
        let g = so_far.add(&one.closed()?)?;
        sum = Cotangent { g, mask };
    }
    sum.g = sum.g.cast(dtype)?;
    Ok(Some(sum))
}

/// Adds to the group of that mask, or puts a new one at `place`.
fn add(groups: &mut Groups, place: usize, one: Cotangent) -> Result<()> {
    match groups.iter_mut().find(|group| group.mask == one.mask) {
        Some(group) => group.g = group.g.add(&one.g)?,
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
            let Some(fork) = fork(&a.node, &b.node)?.filter(Fork::is_either) else {
                continue;
            };
            let b = groups.remove(j).g;
            let a = groups.remove(i).g;
            let g = match negated(&fork.a) {
                Some(c) if *c == fork.b => c.where_(&b, &a)?,
                _ => fork.a.where_(&a, &b)?,
            };
            let mask = fork.shared.map(|node| Mask { node, cover: None });
            add(groups, i, Cotangent { g, mask })?;
            return Ok(true);
        }
    }
    Ok(false)
}
