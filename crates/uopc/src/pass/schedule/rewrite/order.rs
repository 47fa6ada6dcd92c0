//! The order of iterations and who shares a loop: reorder, fission, share, inward, exec.

use rustc_hash::FxHashMap;

use super::memory::{Axis, expand};
use super::split::{replace, space_of};
use super::{Outcome, attempt, require};
use crate::ir::UOp;
use crate::ir::op::{Combine, Exec, Op, Space};
use crate::pass::schedule::depend::{
    Access, Scratch, accesses, common, extent_names, independent, is_ordered, keyed, memories,
};
use crate::pass::schedule::nest::{Nest, exec_of, extent_of};

/// Vector ranges have between 2 and this many lanes (1 is allowed, and pointless).
const MOST_LANES: usize = 64;

/// Gives a statement its ranges in another order, outermost first.
///
/// # Errors
/// Where a fold would combine in another order, a statement would read what another iteration of
/// it wrote, or loops that it shares or scratch memory lives in would be torn apart.
pub fn reorder(nest: &mut Nest, k: usize, order: &[UOp]) -> Outcome<()> {
    let s = &nest.statements[k];
    let old = s.ranges.clone();
    let same = order.len() == old.len() && old.iter().all(|r| order.contains(r));
    require(same, "another order of the same ranges")?;
    for (i, r) in order.iter().enumerate() {
        let inside = order[i..].iter().any(|other| extent_names(r, other));
        require(!inside, "an extent depends on a range further in")?;
        let vector = exec_of(r) == Exec::Vector && i + 1 != order.len();
        require(!vector, "a vector range is the innermost")?;
    }
    let loads = accesses(s, &s.memory);
    let own = loads.iter().all(|a| a.index == s.index);
    require(own, "it reads what another iteration wrote")?;
    if is_ordered(s) || loads.len() > 1 {
        let keyed = |r: &&UOp| keyed(s, r, &[]);
        let ordered: Vec<&UOp> = old.iter().filter(|r| !keyed(r)).collect();
        let now: Vec<&UOp> = order.iter().filter(|r| ordered.contains(r)).collect();
        require(ordered == now, "it combines in order")?;
    }
    let scopes = |nest: &Nest| -> Vec<Vec<UOp>> {
        let all = memories(&nest.statements[k]).into_iter();
        let locals = all.filter(|m| matches!(m.op(), Op::Local { .. }));
        locals.map(|m| nest.scope(&m)).collect()
    };
    let before = scopes(nest);
    nest.statements[k].ranges = order.to_vec();
    let threads = threads_stand_in_serial_ranges(order);
    if threads && nest.shares() && before == scopes(nest) {
        return Ok(());
    }
    nest.statements[k].ranges = old;
    require(threads, "a thread range stands only in serial ranges")?;
    require(false, "loops are shared, or scratch memory lives in them")
}

fn threads_stand_in_serial_ranges(ranges: &[UOp]) -> bool {
    let inner = ranges.iter().rposition(|r| exec_of(r) == Exec::Thread);
    let mut outer = ranges[..inner.unwrap_or(0)].iter();
    outer.all(|r| exec_of(r) == Exec::Serial)
}

/// Whether no iteration of the ranges that statements `a` and `b` share, from `depth` inwards,
/// depends on what the other statement does in another iteration.
fn apart(nest: &Nest, a: usize, b: usize, depth: usize) -> bool {
    let (first, second) = (&nest.statements[a], &nest.statements[b]);
    let shared = common(&first.ranges, &second.ranges);
    memories(first).iter().all(|memory| {
        let (of_a, of_b) = (accesses(first, memory), accesses(second, memory));
        let pairs = of_a.iter().flat_map(|x| of_b.iter().map(move |y| (x, y)));
        let mut conflicts = pairs.filter(|(x, y)| x.writes || y.writes);
        conflicts.all(|(x, y)| {
            (depth..shared).all(|d| {
                let fixed = &first.ranges[..d];
                independent(x, y, &first.ranges[d], fixed)
            })
        })
    })
}

/// Lets the statements from `at` on have loops of their own in place of those that they share
/// with statements before, from `range` inwards. The new range in place of `range`.
///
/// # Errors
/// Where a statement before would see what one after it did in an earlier iteration, or the
/// other way round; [`expand`] scratch memory first.
pub fn fission(nest: &mut Nest, range: &UOp, at: usize) -> Outcome<UOp> {
    let users = nest.users(range);
    let (before, after): (Vec<usize>, Vec<usize>) = users.iter().partition(|&&k| k < at);
    require(!before.is_empty() && !after.is_empty(), "it is shared here")?;
    let list = &nest.statements[at].ranges;
    let shared = common(&nest.statements[at - 1].ranges, list);
    let depth = list.iter().position(|r| r == range).unwrap_or(0);
    for &a in &before {
        for &b in &after {
            require(apart(nest, a, b, depth), "iterations depend on each other")?;
        }
    }
    let torn = nest.statements[at].ranges[depth..shared].to_vec();
    let crosses = |m: &Scratch| {
        m.scope.contains(range)
            && before.iter().any(|k| m.named.contains(k))
            && after.iter().any(|k| m.named.contains(k))
    };
    let threads = torn.iter().any(|r| exec_of(r) == Exec::Thread);
    require(
        !threads || !nest.scratch().iter().any(crosses),
        "a thread's memory would be shared",
    )?;
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for r in &torn {
        let extent = crate::ir::visit::substitute(&r.src()[..1], &map)?;
        let fresh = nest.range(&extent[0], exec_of(r))?;
        map.insert(r.clone(), fresh);
    }
    for k in after {
        nest.substitute(k, &map)?;
    }
    Ok(map[range].clone())
}

/// Lets statement `k` and those that share its loop run in the loop of statement `k - 1`: the
/// first loops in which they differ become one.
///
/// # Errors
/// Where extents differ, or a statement would run before something that it depends on.
pub fn share(nest: &mut Nest, k: usize) -> Outcome<()> {
    require(k > 0 && k < nest.statements.len(), "there is a neighbour")?;
    let (a, b) = (&nest.statements[k - 1].ranges, &nest.statements[k].ranges);
    let depth = common(a, b);
    require(a.len() > depth && b.len() > depth, "both have a loop")?;
    let (first, second) = (a[depth].clone(), b[depth].clone());
    let same = first.src() == second.src() && exec_of(&first) == exec_of(&second);
    require(same, "both loops have one extent and run alike")?;
    let vector = exec_of(&first) == Exec::Vector;
    require(!vector, "each statement has a vector range of its own")?;
    attempt(nest, |nest| {
        let (before, after) = (nest.users(&first), nest.users(&second));
        let ends = after.first() == Some(&k) && before.last() == Some(&(k - 1));
        require(ends, "the loops are neighbours")?;
        for &k in &after {
            replace(nest, k, &second, &first, std::slice::from_ref(&first))?;
        }
        for &a in &before {
            for &b in &after {
                let (first, second) = (&nest.statements[a], &nest.statements[b]);
                debug_assert_eq!(common(&first.ranges, &second.ranges), depth + 1);
                require(apart(nest, a, b, depth), "iterations depend on each other")?;
            }
        }
        // A thread's iteration must not begin memory that all threads share.
        let lives =
            |m: &Scratch| space_of(&m.local) == Some(Space::Arena) && m.scope.contains(&first);
        let shared = exec_of(&first) == Exec::Thread && nest.scratch().iter().any(lives);
        require(!shared, "memory of all threads would live in one")
    })
}

/// Whether no iteration of a range touches what another one writes, memory that lives inside of
/// the range left aside.
pub fn is_parallel(nest: &Nest, range: &UOp) -> bool {
    let users = nest.users(range);
    let Some(&first) = users.first() else {
        return true;
    };
    let ranges = nest.statements[first].ranges.iter();
    let fixed: Vec<UOp> = ranges.take_while(|r| *r != range).cloned().collect();
    let mut met: Vec<(UOp, Access)> = Vec::new();
    let scratch = nest.scratch();
    let private = |memory: &UOp| {
        let lives = |m: &&Scratch| m.local == *memory;
        scratch
            .iter()
            .find(lives)
            .is_some_and(|m| m.scope.contains(range))
    };
    for k in users {
        let s = &nest.statements[k];
        for memory in memories(s).into_iter().filter(|m| !private(m)) {
            for access in accesses(s, &memory) {
                met.push((memory.clone(), access));
            }
        }
    }
    met.iter().enumerate().all(|(i, (memory, a))| {
        met[i..].iter().all(|(other, b)| {
            let conflict = memory == other && (a.writes || b.writes);
            !conflict || independent(a, b, range, &fixed)
        })
    })
}

/// Gives every statement that shares a range a loop of its own over it, as far inside as it can
/// stand: innermost, or around a vector range. Scratch memory that lives inside of the range gets
/// an axis for it. Vectorising a loop around other loops is this with [`Exec::Vector`], working
/// on several of its iterations at a time (elsewhere: unroll and jam) with [`Exec::Unroll`].
///
/// The new ranges, one for each statement in [`Nest::users`].
///
/// # Errors
/// Where iterations of the range depend on each other, or its extent is no constant.
pub fn inward(nest: &mut Nest, range: &UOp, exec: Exec, axis: Axis) -> Outcome<Vec<UOp>> {
    require(exec != Exec::Thread, "a thread range stands outside")?;
    let users = nest.users(range);
    attempt(nest, |nest| {
        let inner = users.iter().flat_map(|&k| &nest.statements[k].ranges);
        let depends = inner.into_iter().any(|r| extent_names(r, range));
        require(!depends, "a loop inside depends on it")?;
        let kind = if exec == Exec::Serial {
            Exec::Serial
        } else {
            Exec::Unroll
        };
        let range = set_exec(nest, range, kind)?;
        for m in nest.scratch() {
            if m.scope.contains(&range) && m.named.len() > 1 {
                expand(nest, &m.local, std::slice::from_ref(&range), axis)?;
            }
        }
        require(is_parallel(nest, &range), "iterations depend on each other")?;
        let mut fresh = Vec::with_capacity(users.len());
        for &k in &users {
            let own = nest.range(&range.src()[0], exec_of(&range))?;
            replace(nest, k, &range, &own, std::slice::from_ref(&own))?;
            let ranges = &mut nest.statements[k].ranges;
            ranges.retain(|r| *r != own);
            let around = ranges.last().is_some_and(|r| exec_of(r) == Exec::Vector);
            require(!around || exec != Exec::Vector, "there is a vector range")?;
            ranges.insert(ranges.len() - usize::from(around), own.clone());
            fresh.push(own);
        }
        if exec == Exec::Vector {
            for own in &mut fresh {
                *own = set_exec(nest, own, Exec::Vector)?;
            }
        }
        Ok(fresh)
    })
}

/// Sets how a range runs. The range as it is now.
///
/// # Errors
/// Where iterations that would run at once depend on each other, or a rule of the loop form is in
/// the way: vector ranges are innermost, thread ranges stand in serial ones, scratch memory in
/// registers is not indexed by serial ranges.
pub fn set_exec(nest: &mut Nest, range: &UOp, exec: Exec) -> Outcome<UOp> {
    if exec_of(range) == exec {
        return Ok(range.clone());
    }
    let users = nest.users(range);
    let id = match range.op() {
        Op::Range { id, .. } => *id,
        _ => return Err(super::Refusal::Illegal("only loops run")),
    };
    let n = extent_of(range);
    require(
        exec == Exec::Serial || n.is_some(),
        "its extent is no constant",
    )?;
    match exec {
        Exec::Serial => {}
        Exec::Unroll => {
            let around = |k: usize| {
                let inside = nest.statements[k].ranges.iter().skip_while(|r| *r != range);
                inside.skip(1).any(|r| exec_of(r) == Exec::Thread)
            };
            require(
                !users.iter().any(|&k| around(k)),
                "there are threads inside",
            )?;
        }
        Exec::Vector => {
            let lanes = n.unwrap_or(0);
            let fits = lanes.is_power_of_two() && lanes <= MOST_LANES;
            require(fits, "lanes are a power of two up to 64")?;
            require(
                users.len() == 1,
                "each statement has a vector range of its own",
            )?;
            let s = &nest.statements[users[0]];
            require(
                s.ranges.last() == Some(range),
                "a vector range is innermost",
            )?;
            let fixed = &s.ranges[..s.ranges.len() - 1];
            let over = s.combine == Combine::Set || lanes > 1;
            let own = accesses(s, &s.memory);
            let apart = own
                .iter()
                .all(|a| independent(&Access::store(s), a, range, fixed));
            require(!over || keyed(s, range, fixed), "lanes write one element")?;
            require(apart, "a lane reads what another writes")?;
        }
        Exec::Thread => {
            for &k in &users {
                let outside = nest.statements[k].ranges.iter().take_while(|r| *r != range);
                let serial = outside.into_iter().all(|r| exec_of(r) == Exec::Serial);
                require(serial, "threads stand in serial ranges")?;
                let ranges = &nest.statements[k].ranges;
                let nested = ranges.iter().any(|r| exec_of(r) == Exec::Thread);
                require(!nested, "threads do not stand in threads")?;
            }
            require(is_parallel(nest, range), "iterations depend on each other")?;
            for m in nest.scratch() {
                let inside = m.scope.contains(range);
                let named = m.named.iter().any(|k| users.contains(k));
                let arena = space_of(&m.local) == Some(Space::Arena);
                let fits = !named || inside != arena;
                require(
                    fits,
                    "memory of all threads lives outside, that of one inside",
                )?;
            }
        }
    }
    let needed = matches!(exec, Exec::Serial | Exec::Thread) && nest.registers_need(range);
    require(!needed, "scratch memory in registers is indexed by it")?;
    let new = UOp::range(&range.src()[0], id, exec)?;
    for k in users {
        replace(nest, k, range, &new, std::slice::from_ref(&new))?;
    }
    Ok(new)
}
