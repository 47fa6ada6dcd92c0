//! Which loops become vector code, and which values are vectors then.
//!
//! A vector loop of L rounds is no loop in C: what depends on its range is a vector of L lanes, and
//! all else is computed once. A loop stays a loop where lanes that run side by side could differ
//! from rounds that run in order: where one round reads what another writes, or where several write
//! the same place.

use rustc_hash::{FxHashMap, FxHashSet};

use super::fold::Folder;
use super::steps::{Block, Step, closers, constant, copy, loads};
use crate::ir::affine::{Linear, coefficient};
use crate::ir::bounds::{Bounds, Interval};
use crate::ir::op::{Combine, Exec, Op};
use crate::ir::{Scalar, UOp};

/// More lanes than these are left to the loop.
const MOST_LANES: i128 = 64;

/// The ranges of loops that are vector code, and for each value how many lanes it has.
#[derive(Default)]
pub(super) struct Lanes {
    ranges: FxHashMap<UOp, usize>,
    known: FxHashMap<UOp, usize>,
}

impl Lanes {
    /// How many lanes the value has; 1 is a scalar.
    pub(super) fn of(&mut self, root: &UOp) -> usize {
        if self.ranges.is_empty() {
            return 1;
        }
        let mut pending = vec![root.clone()];
        while let Some(u) = pending.last().cloned() {
            if self.known.contains_key(&u) {
                pending.pop();
                continue;
            }
            let before = pending.len();
            if !matches!(u.op(), Op::Range { .. }) {
                let unknown = |s: &&UOp| !self.known.contains_key(*s);
                pending.extend(u.src().iter().filter(unknown).cloned());
            }
            if pending.len() == before {
                pending.pop();
                let lanes = if matches!(u.op(), Op::Range { .. }) {
                    self.ranges.get(&u).copied().unwrap_or(1)
                } else {
                    u.src().iter().map(|s| self.known[s]).max().unwrap_or(1)
                };
                self.known.insert(u, lanes);
            }
        }
        self.known[root]
    }

    /// The range of the vector loop that a value depends on.
    pub(super) fn range_of(&self, root: &UOp) -> Option<UOp> {
        let mut pending = vec![root];
        let mut met: FxHashSet<&UOp> = FxHashSet::default();
        while let Some(u) = pending.pop() {
            if self.ranges.contains_key(u) {
                return Some(u.clone());
            }
            if !matches!(u.op(), Op::Range { .. }) {
                pending.extend(u.src().iter().filter(|s| met.insert(s)));
            }
        }
        None
    }

    /// Whether no loop is vector code.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the range is that of a vector loop.
    pub(super) fn has(&self, range: &UOp) -> bool {
        self.ranges.contains_key(range)
    }
}

/// Takes the loops away that become vector code. One of a single round is that round.
pub(super) fn vectorise(steps: &[Step], bounds: &mut Bounds) -> (Vec<Step>, Lanes) {
    let mut lanes = Lanes::default();
    let closers = closers(steps);
    let mut out = Vec::with_capacity(steps.len());
    let mut at = 0;
    while at < steps.len() {
        let step = &steps[at];
        let end = closers[at];
        let body = &steps[at + 1..end.max(at + 1)];
        at += 1;
        let Step::Open(Block::Loop(range)) = step else {
            out.push(step.clone());
            continue;
        };
        let is_vector = |r: &UOp| {
            matches!(
                r.op(),
                Op::Range {
                    exec: Exec::Vector,
                    ..
                }
            )
        };
        let rounds = constant(&range.src()[0]).filter(|_| is_vector(range));
        match rounds {
            Some(1) => {
                let first = UOp::constant(Scalar::zero(range.dtype()));
                out.extend(copy(body, range, &first, None));
                at = end + 1;
            }
            Some(n) if n > 1 && n <= MOST_LANES && n.count_ones() == 1 => {
                if is_free_of_order(body, range, n, bounds) {
                    // Lanes are counted alike in all loops, so that they share what is alike.
                    let same = |r: &&UOp| r.src() == range.src();
                    let counter = lanes.ranges.keys().find(same).unwrap_or(range).clone();
                    lanes.ranges.insert(counter.clone(), n as usize);
                    out.extend(copy(body, range, &counter, None));
                    at = end + 1;
                } else {
                    out.push(step.clone());
                }
            }
            _ => out.push(step.clone()),
        }
    }
    (out, lanes)
}

/// An access to memory in a vector loop.
struct Access {
    step: usize,
    memory: UOp,
    index: UOp,
    /// The index in round 0, and by how much it grows.
    linear: Option<(Linear, i128)>,
    is_store: bool,
}

/// Whether the rounds of a loop can run side by side, statement after statement.
fn is_free_of_order(body: &[Step], range: &UOp, rounds: i128, bounds: &mut Bounds) -> bool {
    let mut all = Vec::new();
    for (step, of_step) in body.iter().enumerate() {
        match of_step {
            // Scratch of each round, and loops of rounds' own lengths, are none of vectors.
            Step::Declare(..) | Step::Tile(_) | Step::Open(Block::Loop(_) | Block::Nest) => {
                return false;
            }
            Step::Let(_) | Step::Store(_) | Step::Open(Block::If(_) | Block::Lanes(_)) => {}
            Step::Close => {}
        }
        let mut access = |u: &UOp, is_store| {
            let linear = linear(&u.src()[1], range, bounds);
            all.push(Access {
                step,
                memory: u.src()[0].clone(),
                index: u.src()[1].clone(),
                linear,
                is_store,
            });
        };
        loads(of_step).iter().for_each(|u| access(u, false));
        if let Step::Store(u) = of_step {
            access(u, true);
            let Op::Store { combine, .. } = u.op() else {
                return false;
            };
            let grows = all.last().and_then(|a| a.linear.as_ref()).map(|l| l.1);
            match grows {
                // One place for all rounds: the last one counts.
                Some(0) => return false,
                Some(_) => {}
                None if *combine == Combine::Set => {}
                None => return false,
            }
        }
    }
    let stores = all.iter().filter(|a| a.is_store);
    for store in stores {
        let others = all.iter().filter(|a| a.memory == store.memory);
        for other in others.filter(|a| !(a.is_store && a.step == store.step)) {
            if !keeps_order(store, other, rounds, bounds) {
                return false;
            }
        }
    }
    true
}

/// An index in round 0, and its coefficient.
fn linear(index: &UOp, range: &UOp, bounds: &mut Bounds) -> Option<(Linear, i128)> {
    let grows = coefficient(index, range, bounds)?;
    let mut folder = Folder::default();
    folder.set(range, &UOp::constant(Scalar::zero(range.dtype())));
    Some((Linear::of(&folder.of(index)), grows))
}

/// Whether a store and another access to its memory meet in the same order when each is done for
/// all rounds at once.
fn keeps_order(store: &Access, other: &Access, rounds: i128, bounds: &mut Bounds) -> bool {
    if store.index == other.index && store.linear.is_some() {
        return true;
    }
    let (Some((s, by_s)), Some((o, by_o))) = (&store.linear, &other.linear) else {
        return false;
    };
    let difference = o.minus(s);
    // Apart for whatever two rounds.
    if let Some(between) = difference.bounds(bounds) {
        let reach = |by: i128| (0.min(by * (rounds - 1)), 0.max(by * (rounds - 1)));
        let ((s_lo, s_hi), (o_lo, o_hi)) = (reach(*by_s), reach(*by_o));
        let all = Interval {
            lo: between.lo + o_lo - s_hi,
            hi: between.hi + o_hi - s_lo,
        };
        if all.lo > 0 || all.hi < 0 {
            return true;
        }
    }
    if !difference.terms.is_empty() || by_s != by_o || *by_s == 0 {
        return false;
    }
    if difference.constant % by_s != 0 {
        return true;
    }
    // The store of round v + ahead writes what the other accesses in round v.
    let ahead = difference.constant / by_s;
    let meets = ahead.abs() < rounds;
    let is_after = other.step > store.step;
    !meets || ahead == 0 || (ahead > 0) != is_after
}
