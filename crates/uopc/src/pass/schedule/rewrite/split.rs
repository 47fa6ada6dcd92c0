//! Split: one loop becomes two, the inner one of a given size (elsewhere: strip-mining).

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Outcome, Refusal, require};
use crate::error::Result;
use crate::ir::op::{Exec, Space};
use crate::ir::visit::Graph;
use crate::ir::{DType, Op, UOp};
use crate::pass::schedule::affine::simplify;
use crate::pass::schedule::depend::{accesses, extent_names};
use crate::pass::schedule::nest::{Nest, exec_of, extent_of, is_range, ranges_of};

/// What becomes of the iterations after the last whole piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// There are none.
    Exact,
    /// The last piece is run like the others, with stores and loads gated.
    Gate,
    /// A second copy of the statements runs them.
    Peel,
    /// The last piece has fewer iterations: the extent of the inner loop depends on the outer one,
    /// so that it runs serially.
    Short,
}

/// The loops that [`split`] made.
#[derive(Clone, Debug)]
pub struct Split {
    /// Counts the pieces.
    pub outer: UOp,
    /// Counts inside a piece.
    pub inner: UOp,
    /// The statements of the copy that runs the rest, and its loop, if there is one. A rest of a
    /// single iteration needs no loop.
    pub rest: Vec<usize>,
    /// See `rest`.
    pub rest_range: Option<UOp>,
}

/// Splits a range into pieces of `size` in all statements that list it.
///
/// With [`Tail::Gate`] a false gate also means that a combining store does not combine; scratch
/// memory of an iteration's own is written all the same.
///
/// Iterations keep their order, so this is legal for every constant extent. The loops run as the
/// old one did, except that the pieces of a thread range run serially inside, and of a vector
/// range are unrolled.
///
/// # Errors
/// Where the extent is no constant, or the tail does not fit it.
pub fn split(nest: &mut Nest, range: &UOp, size: usize, tail: Tail) -> Outcome<Split> {
    let n = extent_of(range).ok_or(Refusal::Illegal("only constant extents are split"))?;
    require(size >= 1, "a piece has an iteration")?;
    let users = nest.users(range);
    require(!users.is_empty(), "the range is in use")?;
    let exact = n.is_multiple_of(size);
    let (pieces, bound) = match tail {
        Tail::Exact => {
            require(exact, "the pieces do not come out even")?;
            (n / size, None)
        }
        Tail::Gate => (n.div_ceil(size), (!exact).then_some(n)),
        Tail::Peel => (n / size, None),
        Tail::Short => (n.div_ceil(size), None),
    };
    let dtype = range.dtype();
    if bound.is_some() {
        let inner = users.iter().flat_map(|&k| &nest.statements[k].ranges);
        let depends = inner.into_iter().any(|r| extent_names(r, range));
        require(!depends, "a loop inside has an extent that would run on")?;
        let fits = dtype != DType::I32 || pieces * size <= i32::MAX as usize;
        require(fits, "the last piece would overflow the index")?;
    }
    let short = tail == Tail::Short && !exact;
    let serial = matches!(exec_of(range), Exec::Serial | Exec::Thread);
    require(!short || serial, "a loop of varying length is serial")?;
    let peeled = tail == Tail::Peel && !exact;
    require(!peeled || pieces > 0, "there is no whole piece")?;
    let own = own_scratch(nest, range);
    let (mut rest, mut rest_range) = (Vec::new(), None);
    if peeled {
        (rest, rest_range) = peel(nest, range, pieces * size, n - pieces * size)?;
    }
    let (outer, inner) = match exec_of(range) {
        Exec::Thread => (Exec::Thread, Exec::Serial),
        Exec::Vector => (Exec::Unroll, Exec::Vector),
        same => (same, same),
    };
    let outer = nest.count(pieces, dtype, outer)?;
    let mut count = UOp::int(size as i64, dtype);
    if short {
        // The smaller one of size and of what is left, so that its bounds are seen.
        let passed = outer.mul(&count)?.add(&UOp::int(-(n as i64), dtype))?;
        count = passed.maximum(&UOp::int(-(size as i64), dtype))?.neg()?;
    }
    let inner = nest.range(&count, inner)?;
    let whole = outer.mul(&UOp::int(size as i64, dtype))?.add(&inner)?;
    for k in users {
        if let Some(n) = bound {
            let stores = !own.contains(&nest.statements[k].memory);
            gate(nest, k, range, &whole, n, stores)?;
        }
        replace(nest, k, range, &whole, &[outer.clone(), inner.clone()])?;
    }
    Ok(Split {
        outer,
        inner,
        rest,
        rest_range,
    })
}

/// Takes a loop of one iteration away.
///
/// # Errors
/// Where it has more.
pub fn unit(nest: &mut Nest, range: &UOp) -> Outcome<()> {
    require(
        extent_of(range) == Some(1),
        "it has more than one iteration",
    )?;
    let first = UOp::int(0, range.dtype());
    for k in nest.users(range) {
        replace(nest, k, range, &first, &[])?;
        // Multiples of 0 go, and with them gates that are true now. Extents must stay as others
        // that share the loops have them.
        let s = &mut nest.statements[k];
        if s.ranges.iter().all(|r| extent_of(r).is_some()) {
            let new = simplify(&s.roots())?;
            s.set_roots(&new);
        }
    }
    Ok(())
}

/// Puts a value for a range into a statement, and loops in the place of its loop.
pub(super) fn replace(
    nest: &mut Nest,
    k: usize,
    range: &UOp,
    value: &UOp,
    loops: &[UOp],
) -> Result<()> {
    let map: FxHashMap<UOp, UOp> = [(range.clone(), value.clone())].into_iter().collect();
    // A range that takes the place of another is put into the list by the substitution.
    nest.substitute(k, &map)?;
    let ranges = &mut nest.statements[k].ranges;
    if let Some(at) = ranges.iter().position(|r| r == range || r == value) {
        ranges.splice(at..=at, loops.iter().cloned());
    }
    Ok(())
}

/// Scratch memory that lives in an iteration of the range and is not indexed by it. It may be
/// written in iterations that do not exist: nothing outside sees it, and what they read is 0.
fn own_scratch(nest: &Nest, range: &UOp) -> Vec<UOp> {
    let mut own = nest.locals();
    own.retain(|local| {
        let indexed = |k: usize| {
            let all = accesses(&nest.statements[k], local);
            all.into_iter().any(|a| ranges_of(&a.index).contains(range))
        };
        nest.scope(local).contains(range) && !nest.naming(local).into_iter().any(indexed)
    });
    own
}

/// Gates every load whose element depends on the range by `whole < n`, and the store if that is
/// wanted.
fn gate(nest: &mut Nest, k: usize, range: &UOp, whole: &UOp, n: usize, stores: bool) -> Result<()> {
    let bound = whole.cmplt(&UOp::int(n as i64, whole.dtype()))?;
    let s = &mut nest.statements[k];
    let roots = s.roots();
    let graph = Graph::new(&roots);
    let mut depends: Vec<bool> = Vec::with_capacity(graph.len());
    for (i, u) in graph.nodes.iter().enumerate() {
        let below = || graph.src(i).iter().any(|&s| depends[s as usize]);
        depends.push(u == range || (!is_range(u) && below()));
    }
    let new = graph.map(|i, u, src| match u.op() {
        Op::Load if depends[i] => {
            let gate = match src.get(2) {
                Some(gate) => gate.and(&bound)?,
                None => bound.clone(),
            };
            src[0].load(&src[1], Some(&gate))
        }
        _ => u.with_src(src),
    })?;
    s.set_roots(&new);
    if stores {
        s.gate = Some(match &s.gate {
            Some(gate) => gate.and(&bound)?,
            None => bound,
        });
    }
    Ok(())
}

/// Lets a copy of the statements run the iterations from `from` on. The copy has loops and
/// scratch memory of its own for what lies inside of the range.
fn peel(
    nest: &mut Nest,
    range: &UOp,
    from: usize,
    count: usize,
) -> Outcome<(Vec<usize>, Option<UOp>)> {
    let users = nest.users(range);
    let dtype = range.dtype();
    let exec = match exec_of(range) {
        Exec::Vector => Exec::Unroll,
        Exec::Thread => Exec::Serial,
        same => same,
    };
    let mut rest_range = None;
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    let from = UOp::int(from as i64, dtype);
    if count == 1 {
        map.insert(range.clone(), from);
    } else {
        let r = nest.count(count, dtype, exec)?;
        map.insert(range.clone(), r.add(&from)?);
        rest_range = Some(r);
    }
    for local in nest.locals() {
        if let Op::Local { space, n, .. } = *local.op()
            && nest.scope(&local).contains(range)
        {
            let copy = nest.local(space, local.dtype(), n);
            map.insert(local, copy);
        }
    }
    let mut met: FxHashSet<UOp> = FxHashSet::default();
    for &k in &users {
        let ranges = nest.statements[k].ranges.clone();
        for r in ranges.iter().skip_while(|r| *r != range).skip(1) {
            if met.insert(r.clone()) {
                let extent = crate::ir::visit::substitute(&r.src()[..1], &map)?;
                let copy = nest.range(&extent[0], exec_of(r))?;
                map.insert(r.clone(), copy);
            }
        }
    }
    let after = users.last().map_or(0, |k| k + 1);
    for (i, &k) in users.iter().enumerate() {
        let mut copy = nest.statements[k].clone();
        if let Some(own) = map.get(&copy.memory) {
            copy.memory = own.clone();
        }
        nest.statements.insert(after + i, copy);
        nest.substitute(after + i, &map)?;
        let ranges = &mut nest.statements[after + i].ranges;
        if let Some(at) = ranges.iter().position(|r| r == range) {
            ranges.splice(at..=at, rest_range.clone());
        }
    }
    Ok(((after..after + users.len()).collect(), rest_range))
}

/// Where a scratch memory lives.
pub(super) fn space_of(local: &UOp) -> Option<Space> {
    match local.op() {
        Op::Local { space, .. } => Some(*space),
        _ => None,
    }
}
