//! Own: a statement that writes at places read from memory runs once for each of several owners, who
//! have a share of the places each (elsewhere: owner computes).

use super::{Outcome, Refusal, require};
use crate::ir::affine::Linear;
use crate::ir::bounds::{Bounds, Interval};
use crate::ir::op::{Exec, Op};
use crate::ir::visit::toposort;
use crate::ir::{Scalar, UOp};
use crate::pass::schedule::depend::accesses;
use crate::pass::schedule::nest::{Nest, exec_of, is_range};

/// Puts a thread range over `owners` around a statement and gates it by the owner of the row that it
/// writes to: row r is that of owner r mod `owners`. The range.
///
/// An element is in one row, and all that is combined into it is combined by the owner of that row, in
/// the order as before. So owners may run side by side.
///
/// # Errors
/// Where the index is not that of an element in a row whose number is read from memory, or the
/// statement shares loops or reads what it writes.
pub fn own(nest: &mut Nest, k: usize, owners: usize) -> Outcome<UOp> {
    let s = &nest.statements[k];
    let alone = s.ranges.iter().all(|r| nest.users(r) == [k]);
    require(alone, "it shares loops")?;
    let threads = s.ranges.iter().any(|r| exec_of(r) == Exec::Thread);
    require(!threads, "threads do not stand in threads")?;
    let reads_own = accesses(s, &s.memory).iter().any(|a| !a.writes);
    require(!reads_own, "it reads what it writes")?;
    require(
        matches!(s.memory.op(), Op::Param { .. } | Op::Local { .. }),
        "it has memory",
    )?;
    require(
        nest.scope(&s.memory).is_empty(),
        "scratch memory lives in its loops",
    )?;
    let row = row_of(&s.index)?;
    let dtype = row.dtype();
    let number = UOp::constant(Scalar::from_i128(dtype, owners as i128));
    let owner = nest.count(owners, dtype, Exec::Thread)?;
    let mine = row.floormod(&number)?.eq(&owner)?;
    let s = &mut nest.statements[k];
    s.gate = Some(match &s.gate {
        Some(gate) => gate.and(&mine)?,
        None => mine,
    });
    s.ranges.insert(0, owner.clone());
    Ok(owner)
}

/// The row of an index: what is read from memory in it, divided by the length of a row, which the
/// rest of the index stays below.
fn row_of(index: &UOp) -> Outcome<UOp> {
    let (rest, read) = Linear::of(index).split(|u| !reads_memory(u));
    let length = read.terms.iter().fold(0, |all, (_, k)| gcd(all, k.abs()));
    require(length > 0, "no place is read from memory")?;
    let moving = rest.terms.iter().all(|(u, _)| is_range(u));
    let known = rest.bounds(&mut Bounds::new());
    let below = Interval {
        lo: 0,
        hi: length - 1,
    };
    require(
        moving && known.is_some_and(|b| b.within(below)),
        "it leaves its row",
    )?;
    let mut row: Option<UOp> = None;
    for (u, k) in &read.terms {
        let factor = UOp::constant(Scalar::from_i128(u.dtype(), k / length));
        let term = match k / length {
            1 => u.clone(),
            _ => u.mul(&factor)?,
        };
        row = Some(match row {
            Some(sum) => sum.add(&term)?,
            None => term,
        });
    }
    row.ok_or(Refusal::Illegal("no place is read from memory"))
}

fn reads_memory(u: &UOp) -> bool {
    toposort(std::slice::from_ref(u))
        .iter()
        .any(|v| matches!(v.op(), Op::Load))
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
