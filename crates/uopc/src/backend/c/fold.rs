//! Expressions with some of their nodes replaced, and what then follows from constants computed.
//!
//! Where a loop is written out, its counter is a constant in each round. What is left of index
//! arithmetic then is what the general rules of simplification would leave, but for the few identities
//! here nothing of them is needed: they were applied before the loop was written out.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::op::Op;
use crate::ir::scalar::apply;
use crate::ir::uop::Sources;
use crate::ir::{DType, Scalar, UOp};

/// Replacements, and what was made by them so far. Nodes are replaced before what reads them is
/// asked for; a LET stands for itself until it is replaced, whatever its value is made of, so that
/// an expression costs what stands in it and not what its names stand for.
#[derive(Default)]
pub(super) struct Folder {
    made: FxHashMap<UOp, UOp>,
    /// Whether a LET of something else is that, and no LET.
    through: bool,
}

impl Folder {
    /// A folder for expressions that stand alone: no step computes the LETs that they would name.
    pub(super) fn through_names() -> Folder {
        Folder {
            through: true,
            ..Folder::default()
        }
    }

    /// From now on `other` stands for `u`.
    pub(super) fn set(&mut self, u: &UOp, other: &UOp) {
        self.made.insert(u.clone(), other.clone());
    }

    /// A loop's range with the replacements in its extent; from now on it stands for the old one.
    pub(super) fn range(&mut self, range: &UOp) -> UOp {
        let extent = self.of(&range.src()[0]);
        let made = rebuild(range, &[extent]);
        self.set(range, &made);
        made
    }

    /// The expression with all replacements.
    pub(super) fn of(&mut self, root: &UOp) -> UOp {
        let mut pending: SmallVec<[&UOp; 16]> = SmallVec::new();
        if self.known(root).is_none() {
            pending.push(root);
        }
        while let Some(&u) = pending.last() {
            if self.made.contains_key(u) {
                pending.pop();
                continue;
            }
            let before = pending.len();
            pending.extend(u.src().iter().filter(|s| self.known(s).is_none()));
            if pending.len() == before {
                pending.pop();
                let src = u.src().iter().map(|s| self.known(s).unwrap_or(s).clone());
                let src: Sources = src.collect();
                // A name stands for one value; for another one, the value stands for itself.
                let is_name = matches!(u.op(), Op::Let { .. });
                let made = match &src[..] {
                    [value] if is_name && *u.src() != *src => value.clone(),
                    src => rebuild(u, src),
                };
                self.made.insert(u.clone(), made);
            }
        }
        self.known(root).unwrap_or(root).clone()
    }

    /// What stands for a node, once that is known. A leaf, a range or a name that no one has replaced
    /// is what it was.
    fn known<'a>(&'a self, u: &'a UOp) -> Option<&'a UOp> {
        let is_name = matches!(u.op(), Op::Let { .. });
        let is_leaf = matches!(u.op(), Op::Range { .. }) || u.src().is_empty();
        let stands = is_leaf || is_name && !self.through;
        self.made.get(u).or(stands.then_some(u))
    }
}

/// A node on other sources, simpler if constants allow it.
fn rebuild(u: &UOp, src: &[UOp]) -> UOp {
    if let Some(simple) = simplified(u, src) {
        return simple;
    }
    u.with_src(src)
        .expect("sources of the same types are accepted")
}

fn simplified(u: &UOp, src: &[UOp]) -> Option<UOp> {
    if u.op().is_elementwise() {
        let values: Option<SmallVec<[Scalar; 3]>> = src.iter().map(value).collect();
        if let Some(values) = values {
            return Some(UOp::constant(apply(u.op(), u.dtype(), &values)));
        }
    }
    let dtype = u.dtype();
    let is = |op: Op| *u.op() == op;
    match src {
        [a, b] if is(Op::Add) && dtype.int_range().is_some() => sum(dtype, a, b),
        [a, b] if is(Op::Mul) && dtype.int_range().is_some() => product(dtype, a, b),
        [a, b] if is(Op::And) && dtype == DType::Bool => product(dtype, a, b),
        [a, b] if is(Op::Or) && dtype == DType::Bool => sum(dtype, a, b),
        [c, a, b] if is(Op::Where) => value(c).map(|c| if c.as_bool() { a } else { b }.clone()),
        [memory, index, gate] if is(Op::Load) => match value(gate)?.as_bool() {
            true => Some(memory.load(index, None).expect("a load needs no gate")),
            false => Some(UOp::constant(Scalar::zero(dtype))),
        },
        _ => None,
    }
}

fn value(u: &UOp) -> Option<Scalar> {
    if let Op::Const(value) = u.op() {
        return Some(*value);
    }
    None
}

/// x + 0 => x   (int)
/// x or false => x, x or true => true   (bool)
/// (x + c) + d => x + (c + d)   (int)
fn sum(dtype: DType, a: &UOp, b: &UOp) -> Option<UOp> {
    let (x, c) = match (value(a), value(b)) {
        (_, Some(c)) => (a, c),
        (Some(c), None) => (b, c),
        (None, None) => return None,
    };
    if c == Scalar::zero(dtype) {
        return Some(x.clone());
    }
    if dtype == DType::Bool {
        return Some(UOp::constant(c));
    }
    let (Op::Add, [y, d]) = (x.op(), x.src()) else {
        return None;
    };
    let d = value(d)?;
    let both = UOp::constant(apply(&Op::Add, dtype, &[c, d]));
    Some(match value(&both) == Some(Scalar::zero(dtype)) {
        true => y.clone(),
        false => y.add(&both).expect("integers of one dtype"),
    })
}

/// x * 1 => x, x * 0 => 0   (int)
/// x and true => x, x and false => false   (bool)
fn product(dtype: DType, a: &UOp, b: &UOp) -> Option<UOp> {
    let (x, c) = match (value(a), value(b)) {
        (_, Some(c)) => (a, c),
        (Some(c), None) => (b, c),
        (None, None) => return None,
    };
    if c == Scalar::one(dtype) {
        return Some(x.clone());
    }
    (c == Scalar::zero(dtype)).then(|| UOp::constant(c))
}
