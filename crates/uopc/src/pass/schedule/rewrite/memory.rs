//! Scratch memory: more axes, another place, partial results.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::split::space_of;
use super::{Outcome, Refusal, require};
use crate::ir::bounds::Bounds;
use crate::ir::op::{Combine, Exec, Op, Space};
use crate::ir::visit::Graph;
use crate::ir::{DType, UOp};
use crate::pass::schedule::depend::{common, is_ordered, memories};
use crate::pass::schedule::nest::{Nest, Statement, exec_of, extent_of, ranges_of};

/// Where a new axis of a scratch memory stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Axis {
    /// Before the old index: what one iteration had stays together.
    Major,
    /// After it: neighbouring iterations are neighbours in memory.
    Minor,
}

/// Gives each iteration of some ranges its own copy of a scratch memory. The memory as it is now.
///
/// # Errors
/// Where the memory does not live inside of the ranges, or is in registers and a range is neither
/// unrolled nor a vector.
pub fn expand(nest: &mut Nest, local: &UOp, ranges: &[UOp], axis: Axis) -> Outcome<UOp> {
    let Op::Local { space, n, .. } = *local.op() else {
        return Err(Refusal::Illegal("only scratch memory grows"));
    };
    let scope = nest.scope(local);
    let mut copies: usize = 1;
    for r in ranges {
        require(scope.contains(r), "it outlives an iteration of the range")?;
        let unrolled = matches!(exec_of(r), Exec::Unroll | Exec::Vector);
        require(
            unrolled || space != Space::Reg,
            "registers need an unrolled range",
        )?;
        let extent = extent_of(r).ok_or(Refusal::Illegal("the extent is no constant"))?;
        copies = copies.saturating_mul(extent);
    }
    let total = copies.saturating_mul(n);
    require(total <= i32::MAX as usize, "the memory is too large")?;
    let grown = nest.local(space, local.dtype(), total);
    move_accesses(nest, local, &grown, |index| {
        let mut copy = UOp::int(0, index.dtype());
        for (k, r) in ranges.iter().enumerate() {
            let extent = extent_of(r).unwrap_or(1);
            let r = in_dtype(r, index.dtype())?;
            copy = if k == 0 {
                r
            } else {
                plus(&times(&copy, extent)?, &r)?
            };
        }
        match axis {
            Axis::Major => plus(&times(&copy, n)?, index),
            Axis::Minor => plus(&times(index, copies)?, &copy),
        }
    })?;
    Ok(grown)
}

/// Says where a scratch memory lives. The memory as it is now.
///
/// # Errors
/// Where registers would be indexed by what is not known, or threads would share what is each
/// one's own, or the other way round.
pub fn set_space(nest: &mut Nest, local: &UOp, space: Space) -> Outcome<UOp> {
    let Op::Local { space: old, n, .. } = *local.op() else {
        return Err(Refusal::Illegal("only scratch memory has a place"));
    };
    if old == space {
        return Ok(local.clone());
    }
    let named = nest.naming(local);
    if space == Space::Reg {
        for &k in &named {
            let s = &nest.statements[k];
            for a in crate::pass::schedule::depend::accesses(s, local) {
                let nodes = crate::ir::visit::toposort(std::slice::from_ref(&a.index));
                let known = nodes.iter().all(|u| match u.op() {
                    Op::Load => false,
                    Op::Range { exec, .. } => matches!(exec, Exec::Unroll | Exec::Vector),
                    _ => true,
                });
                require(known, "an index is not known after unrolling")?;
            }
        }
    }
    let is_thread = |r: &&UOp| exec_of(r) == Exec::Thread;
    let thread = |k: &usize| nest.statements[*k].ranges.iter().find(is_thread).cloned();
    let mut threads: Vec<Option<UOp>> = named.iter().map(thread).collect();
    threads.dedup();
    let fits = match space {
        Space::Arena => threads.len() > 1 || threads == [None],
        Space::Reg | Space::Cache => threads.len() <= 1,
    };
    require(
        fits,
        "memory of all threads lives outside, that of one inside",
    )?;
    let moved = nest.local(space, local.dtype(), n);
    move_accesses(nest, local, &moved, |index| Ok(index.clone()))?;
    Ok(moved)
}

/// Rewrites every access of a memory.
fn move_accesses(
    nest: &mut Nest,
    from: &UOp,
    to: &UOp,
    at: impl Fn(&UOp) -> crate::error::Result<UOp>,
) -> crate::error::Result<()> {
    for k in nest.naming(from) {
        let s = &mut nest.statements[k];
        let roots = s.roots();
        let new = Graph::new(&roots).map(|_, u, src| match u.op() {
            Op::Load if src[0] == *from => to.load(&at(&src[1])?, src.get(2)),
            _ => u.with_src(src),
        })?;
        s.set_roots(&new);
        if s.memory == *from {
            s.memory = to.clone();
            s.index = at(&s.index)?;
        }
    }
    Ok(())
}

/// Lets a reduction that may be taken in any order keep a partial result for each iteration of
/// some ranges, joined afterwards in a fixed tree: the upper half is combined into the lower half
/// until one is left. The statements after `k` that join them; the last one combines the result
/// into the old memory.
///
/// # Errors
/// Where the order matters, or the partial results are not a power of two.
pub fn privatise(nest: &mut Nest, k: usize, ranges: &[UOp]) -> Outcome<Vec<usize>> {
    let s = nest.statements[k].clone();
    require(!is_ordered(&s), "the order of the reduction matters")?;
    let Some(space) = space_of(&s.memory) else {
        return Err(Refusal::Illegal(
            "partial results are kept of scratch memory",
        ));
    };
    let reads = s.loads().iter().any(|l| l.src()[0] == s.memory);
    require(!reads, "it reads what it combines into")?;
    let named = ranges_of(&s.index);
    let mut copies: usize = 1;
    for r in ranges {
        require(
            s.ranges.contains(r) && !named.contains(r),
            "it is not reduced over",
        )?;
        let unrolled = matches!(exec_of(r), Exec::Unroll | Exec::Vector);
        require(
            unrolled || space != Space::Reg,
            "registers need an unrolled range",
        )?;
        copies *= extent_of(r).ok_or(Refusal::Illegal("the extent is no constant"))?;
    }
    require(
        copies.is_power_of_two() && copies > 1,
        "halves need a power of two",
    )?;
    let scope = nest.scope(&s.memory);
    let reduced = |r: &UOp| scope.contains(r) && ranges.contains(r);
    require(
        !s.ranges.iter().any(reduced),
        "it lives in an iteration of the range",
    )?;
    // Partial results live where the memory does, and what joins them has loops of its own
    // inside, one for each axis of the memory.
    let mut axes: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut inner: Vec<UOp> = Vec::new();
    for r in s
        .ranges
        .iter()
        .filter(|r| named.contains(*r) && !scope.contains(r))
    {
        let extent = extent_of(r).ok_or(Refusal::Illegal("the extent is no constant"))?;
        let exec = if exec_of(r) == Exec::Vector {
            Exec::Unroll
        } else {
            exec_of(r)
        };
        let axis = nest.count(extent, r.dtype(), exec)?;
        inner.push(axis.clone());
        axes.insert(r.clone(), axis);
    }
    let Op::Local { n, .. } = *s.memory.op() else {
        return Err(Refusal::Illegal(
            "partial results are kept of scratch memory",
        ));
    };
    // What joins them has no gate, so it must stay within the memory without.
    let last = Bounds::new().of(&s.index).hi;
    require(last < n as i128, "a gate keeps the memory from being left")?;
    let dtype = s.index.dtype();
    let partial = nest.local(space, s.memory.dtype(), n * copies);
    let mut copy = UOp::int(0, dtype);
    for r in ranges {
        let extent = extent_of(r).unwrap_or(1);
        copy = plus(&times(&copy, extent)?, &in_dtype(r, dtype)?)?;
    }
    let at = &mut nest.statements[k];
    at.memory = partial.clone();
    at.index = plus(&times(&s.index, copies)?, &copy)?;
    let index = crate::ir::visit::substitute(std::slice::from_ref(&s.index), &axes)?.remove(0);
    let base = times(&index, copies)?;
    let mut joins: Vec<Statement> = Vec::new();
    let mut half = copies / 2;
    while half > 0 {
        let mut loops = [&scope[..], &inner[..]].concat();
        let mut to = base.clone();
        if half > 1 {
            let r = nest.count(half, dtype, Exec::Unroll)?;
            to = plus(&to, &r)?;
            loops.push(r);
        }
        let from = plus(&to, &UOp::int(half as i64, dtype))?;
        joins.push(Statement {
            memory: partial.clone(),
            index: to,
            values: SmallVec::from_elem(partial.load(&from, None)?, 1),
            combine: s.combine,
            gate: None,
            ranges: loops,
        });
        half /= 2;
    }
    joins.push(Statement {
        memory: s.memory.clone(),
        index,
        values: SmallVec::from_elem(partial.load(&base, None)?, 1),
        combine: s.combine,
        gate: None,
        ranges: [&scope[..], &inner[..]].concat(),
    });
    // They stand behind all loops that the statement has inside the memory's scope.
    let mut after = k + 1;
    while after < nest.statements.len()
        && nest.statements[after].ranges.get(scope.len()) == s.ranges.get(scope.len())
    {
        let early = memories(&nest.statements[after]).contains(&s.memory);
        if early {
            nest.statements[k] = s;
            return Err(Refusal::Illegal(
                "it is read in a loop that it is reduced in",
            ));
        }
        after += 1;
    }
    let added = joins.len();
    nest.statements.splice(after..after, joins);
    Ok((after..after + added).collect())
}

/// Lets each iteration of a range that a reduction in any order is taken over have a result of its
/// own, in memory of all threads; they are combined afterwards, one after the other. The statement
/// that keeps a result stands after `k`, the one that combines them after that.
///
/// # Errors
/// Where the order matters, the range is not the outermost one of the reduction, or other
/// statements share its loop.
pub fn partition(nest: &mut Nest, k: usize, range: &UOp) -> Outcome<()> {
    let s = nest.statements[k].clone();
    require(!is_ordered(&s), "the order of the reduction matters")?;
    let local = matches!(s.memory.op(), Op::Local { .. });
    require(local, "partial results are kept of scratch memory")?;
    let reads = s.loads().iter().any(|l| l.src()[0] == s.memory);
    require(
        !reads && ranges_of(&s.index).is_empty(),
        "it is one element",
    )?;
    require(
        nest.users(range) == [k],
        "no other statement shares the loop",
    )?;
    let scope = nest.scope(&s.memory);
    let first = s.ranges.get(scope.len()) == Some(range) && s.ranges.starts_with(&scope);
    require(first, "it is the outermost loop of the reduction")?;
    let n = extent_of(range).ok_or(Refusal::Illegal("the extent is no constant"))?;
    let dtype = s.memory.dtype();
    let index = range.dtype();
    let zero = UOp::int(0, index);
    let own = nest.local(Space::Reg, dtype, 1);
    let all = nest.local(Space::Arena, dtype, n);
    let again = nest.count(n, index, Exec::Serial)?;
    let keep = Statement {
        memory: all.clone(),
        index: range.clone(),
        values: SmallVec::from_elem(own.load(&zero, None)?, 1),
        combine: Combine::Set,
        gate: None,
        ranges: s.ranges[..=scope.len()].to_vec(),
    };
    let join = Statement {
        values: SmallVec::from_elem(all.load(&again, None)?, 1),
        gate: None,
        ranges: [scope, vec![again]].concat(),
        ..s
    };
    let s = &mut nest.statements[k];
    s.memory = own;
    s.index = zero;
    nest.statements.splice(k + 1..k + 1, [keep, join]);
    Ok(())
}

/// Lets the statements from `at` on work on a copy of a scratch memory's first `count` elements.
/// Statements that read it in other shapes than the ones before then no longer determine where
/// those keep it. The position of the copying statement, which stands before `at`.
///
/// # Errors
/// Where the memory does not begin at the identity, or the statements before and after share a
/// loop in which it lives.
pub fn restart(nest: &mut Nest, local: &UOp, at: usize, count: usize) -> Outcome<usize> {
    let Op::Local { space, n, .. } = *local.op() else {
        return Err(Refusal::Illegal("only scratch memory is copied"));
    };
    let named = nest.naming(local);
    let (before, after): (Vec<usize>, Vec<usize>) = named.iter().partition(|&&k| k < at);
    require(
        !before.is_empty() && !after.is_empty(),
        "it is in use before and after",
    )?;
    let first = &nest.statements[before[0]];
    let begins = first.memory == *local && first.combine != Combine::Set;
    require(begins && count <= n, "it begins at the identity")?;
    let scope = nest.scope(local);
    let shared = common(&nest.statements[at - 1].ranges, &nest.statements[at].ranges);
    require(shared == scope.len(), "a loop is open in which it lives")?;
    let moved = nest.local(space, local.dtype(), n);
    for &k in &after {
        let s = &mut nest.statements[k];
        let to: FxHashMap<UOp, UOp> = [(local.clone(), moved.clone())].into_iter().collect();
        if s.memory == *local {
            s.memory = moved.clone();
        }
        nest.substitute(k, &to)?;
    }
    let dtype = nest.statements[before[0]].index.dtype();
    let (mut index, mut ranges) = (UOp::int(0, dtype), scope);
    if count > 1 {
        index = nest.count(count, dtype, Exec::Unroll)?;
        ranges.push(index.clone());
    }
    let copy = Statement {
        memory: moved,
        values: SmallVec::from_elem(local.load(&index, None)?, 1),
        index,
        combine: Combine::Set,
        gate: None,
        ranges,
    };
    nest.statements.insert(at, copy);
    Ok(at)
}

fn in_dtype(range: &UOp, dtype: DType) -> crate::error::Result<UOp> {
    match range.dtype() == dtype {
        true => Ok(range.clone()),
        false => range.cast(dtype),
    }
}

fn times(u: &UOp, n: usize) -> crate::error::Result<UOp> {
    match u.op() {
        _ if n == 1 => Ok(u.clone()),
        Op::Const(value) => Ok(UOp::int(value.as_i128() as i64 * n as i64, u.dtype())),
        _ => u.mul(&UOp::int(n as i64, u.dtype())),
    }
}

fn plus(a: &UOp, b: &UOp) -> crate::error::Result<UOp> {
    match (a.op(), b.op()) {
        (Op::Const(x), Op::Const(y)) => {
            let sum = x.as_i128() as i64 + y.as_i128() as i64;
            Ok(UOp::int(sum, a.dtype()))
        }
        (Op::Const(x), _) if x.as_i128() == 0 => Ok(b.clone()),
        (_, Op::Const(y)) if y.as_i128() == 0 => Ok(a.clone()),
        _ => a.add(b),
    }
}
