//! What follows for counters and sums from conditions that hold: bounds, found backwards.

use rustc_hash::FxHashMap;

use crate::ir::bounds::{Bounds, Interval};
use crate::ir::visit::toposort;
use crate::ir::{DType, Op, UOp};

/// How many steps back from the conditions are taken, so that the cost is bounded.
const STEPS: usize = 512;

/// Bounds where all conditions hold; `None` if they never do.
pub fn where_all_hold(conditions: &[UOp]) -> Option<Bounds> {
    let mut plain = Bounds::new();
    let mut facts: FxHashMap<UOp, Interval> = FxHashMap::default();
    let truth = |c: &UOp| (c.clone(), Interval::point(1));
    let mut pending: Vec<(UOp, Interval)> = conditions.iter().map(truth).collect();
    let mut steps = 0;
    while let Some((u, interval)) = pending.pop() {
        let known = facts.get(&u).copied().unwrap_or_else(|| plain.of(&u));
        let narrow = known.intersection(interval)?;
        steps += 1;
        if narrow == known || steps > STEPS {
            continue;
        }
        below(&u, narrow, &mut plain, &mut pending);
        facts.insert(u, narrow);
    }
    // From the counters up, so that what is known of a sum meets what is known of its terms.
    let mut bounds = Bounds::new();
    for u in toposort(conditions) {
        if let Some(&fact) = facts.get(&u) {
            let narrow = bounds.of(&u).intersection(fact)?;
            bounds.assume(&u, narrow);
        }
    }
    Some(bounds)
}

/// What the interval of a node says of its sources.
fn below(u: &UOp, now: Interval, plain: &mut Bounds, pending: &mut Vec<(UOp, Interval)>) {
    let [a, b] = u.src() else { return };
    if a.dtype().is_float() {
        return;
    }
    let (of_a, of_b) = (plain.of(a), plain.of(b));
    let whole = Interval::whole(a.dtype());
    let at_most = |hi| Interval { lo: whole.lo, hi };
    let at_least = |lo| Interval { lo, hi: whole.hi };
    let truth = now.value().map(|value| value != 0);
    let mut say = |u: &UOp, interval: Interval| {
        // An empty interval would mean that the conditions never hold; bounds find that, too.
        if interval.lo <= interval.hi {
            pending.push((u.clone(), interval));
        }
    };
    match (u.op(), truth, of_b.value()) {
        (Op::CmpLt, Some(true), _) => {
            say(a, at_most(of_b.hi - 1));
            say(b, at_least(of_a.lo + 1));
        }
        (Op::CmpLt, Some(false), _) => {
            say(a, at_least(of_b.lo));
            say(b, at_most(of_a.hi));
        }
        (Op::CmpNe, Some(false), _) => {
            say(a, of_b);
            say(b, of_a);
        }
        (Op::And, Some(true), _) | (Op::Or, Some(false), _) if u.dtype() == DType::Bool => {
            say(a, now);
            say(b, now);
        }
        (Op::Xor, Some(truth), Some(1)) if u.dtype() == DType::Bool => {
            say(a, Interval::point(i128::from(!truth)));
        }
        (Op::Add, ..) if u.dtype().is_int() && exact(of_a, of_b, whole) => {
            let without = |of: Interval| Interval {
                lo: now.lo - of.hi,
                hi: now.hi - of.lo,
            };
            say(a, without(of_b));
            say(b, without(of_a));
        }
        (Op::Mul, _, Some(k)) if u.dtype().is_int() && k != 0 => {
            let (end, other) = (of_a.lo.checked_mul(k), of_a.hi.checked_mul(k));
            let fits = |x: Option<i128>| x.is_some_and(|x| Interval::point(x).within(whole));
            if fits(end) && fits(other) {
                let (lo, hi) = if k > 0 {
                    (now.lo, now.hi)
                } else {
                    (-now.hi, -now.lo)
                };
                let k = k.abs();
                say(
                    a,
                    Interval {
                        lo: -(-lo).div_euclid(k),
                        hi: hi.div_euclid(k),
                    },
                );
            }
        }
        (Op::FloorDiv, _, Some(d)) if d > 0 => {
            let (lo, hi) = (now.lo.checked_mul(d), now.hi.checked_mul(d));
            if let (Some(lo), Some(hi)) = (lo, hi) {
                say(a, Interval { lo, hi: hi + d - 1 });
            }
        }
        _ => {}
    }
}

/// Whether a sum does not wrap.
fn exact(a: Interval, b: Interval, whole: Interval) -> bool {
    let sum = Interval {
        lo: a.lo + b.lo,
        hi: a.hi + b.hi,
    };
    sum.within(whole)
}
