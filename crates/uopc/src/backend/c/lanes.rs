//! Which loops become vector code, and which values are vectors then.
//!
//! A vector loop of L rounds is no loop in C: what depends on its range is a vector of L lanes, and
//! all else is computed once. A loop stays a loop where lanes that run side by side could differ
//! from rounds that run in order: where one round reads what another writes, or where several write
//! the same place.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

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
        let mut pending: SmallVec<[&UOp; 16]> = SmallVec::new();
        if self.known(root).is_none() {
            pending.push(root);
        }
        while let Some(&u) = pending.last() {
            if self.known.contains_key(u) {
                pending.pop();
                continue;
            }
            let before = pending.len();
            pending.extend(u.src().iter().filter(|s| self.known(s).is_none()));
            if pending.len() == before {
                pending.pop();
                let lanes = u.src().iter().filter_map(|s| self.known(s)).max();
                self.known.insert(u.clone(), lanes.unwrap_or(1));
            }
        }
        self.known(root).unwrap_or(1)
    }

    /// How many lanes a value has, if that needs no look at its sources.
    fn known(&self, u: &UOp) -> Option<usize> {
        if matches!(u.op(), Op::Range { .. }) {
            return Some(self.ranges.get(u).copied().unwrap_or(1));
        }
        match u.src().is_empty() {
            true => Some(1),
            false => self.known.get(u).copied(),
        }
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

/// Takes the loops away that become vector code. One of a single round is that round. Ranges that
/// stay loops get new numbers behind `names`.
pub(super) fn vectorise(
    steps: &[Step],
    bounds: &mut Bounds,
    names: &mut u32,
) -> (Vec<Step>, Lanes) {
    let mut lanes = Lanes::default();
    // Lanes are counted alike in all loops of an extent, so that they share what is alike.
    let mut counters: Vec<UOp> = Vec::new();
    let closers = closers(steps);
    let mut out = Vec::with_capacity(steps.len());
    let mut at = 0;
    while at < steps.len() {
        let (step, end) = (&steps[at], closers[at]);
        let body = &steps[at + 1..end.max(at + 1)];
        at += 1;
        let rounds = match step {
            Step::Open(Block::Loop(range)) => vector_rounds(range).map(|n| (range, n)),
            _ => None,
        };
        let Some((range, n)) = rounds else {
            out.push(step.clone());
            continue;
        };
        at = end + 1;
        if n == 1 {
            let first = UOp::constant(Scalar::zero(range.dtype()));
            out.extend(copy(body, range, &first, None));
            continue;
        }
        let fits = n > 1 && n <= MOST_LANES && n.count_ones() == 1;
        if fits && is_free_of_order(body, range, n, bounds) {
            let known = counters.iter().find(|c| c.src() == range.src());
            let counter = known.unwrap_or(range).clone();
            if known.is_none() {
                counters.push(counter.clone());
                lanes.ranges.insert(counter.clone(), n as usize);
            }
            out.extend(copy(body, range, &counter, None));
            continue;
        }
        // The same range may count lanes elsewhere, where its loop was written out.
        *names += 1;
        let serial = UOp::range(&range.src()[0], *names, Exec::Serial);
        let serial = serial.expect("a loop can count like any other");
        out.push(Step::Open(Block::Loop(serial.clone())));
        out.extend(copy(body, range, &serial, None));
        out.push(Step::Close);
    }
    (out, lanes)
}

/// How many rounds a vector loop has.
fn vector_rounds(range: &UOp) -> Option<i128> {
    let is_vector = matches!(
        range.op(),
        Op::Range {
            exec: Exec::Vector,
            ..
        }
    );
    constant(&range.src()[0]).filter(|_| is_vector)
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
    // Where nothing is written, reads have any order.
    let stored = body.iter().filter_map(|step| match step {
        Step::Store(u) => Some(&u.src()[0]),
        Step::Declare(..) | Step::Let(_) | Step::Tile(_) | Step::Open(_) | Step::Close => None,
    });
    let stored: FxHashSet<&UOp> = stored.collect();
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
        let loads = loads(of_step).into_iter();
        let loads = loads.filter(|u| stored.contains(&u.src()[0]));
        loads.for_each(|u| access(&u, false));
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
    let mut folder = Folder::through_names();
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
