//! What statements do to memory: rules 8 (second half) to 12 of the loop graph.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Checker, Statement, exec_of, is_range, names, runs_once};
use crate::error::Result;
use crate::ir::op::{Combine, Exec, Op, ParamMode, Space};
use crate::ir::uop::UOp;
use crate::ir::visit::toposort;

/// Where a memory is read and written.
struct Accesses<'g> {
    memory: &'g UOp,
    /// Statement and LOAD, in statement order.
    loads: Vec<(usize, &'g UOp)>,
    /// Statements that store.
    stores: Vec<usize>,
}

impl Accesses<'_> {
    /// The statements that name the memory, ascending.
    fn statements(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.loads.iter().map(|l| l.0).collect();
        all.extend(&self.stores);
        all.sort_unstable();
        all.dedup();
        all
    }
}

pub(super) fn check(checker: &Checker) -> Result<()> {
    for accesses in &accesses(&checker.statements) {
        if let Op::Local { space, .. } = *accesses.memory.op() {
            local_begins_with_a_store(checker, accesses)?;
            local_space(checker, accesses, space)?;
        }
        if let Op::Param { mode, .. } = *accesses.memory.op() {
            match mode {
                ParamMode::In => param_in(checker, accesses)?,
                ParamMode::Out => param_out(checker, accesses)?,
                ParamMode::InOut => param_inout(checker, accesses)?,
            }
        }
        threads_own_what_they_write(checker, accesses)?;
    }
    Ok(())
}

/// The accesses of each memory, in order of first appearance.
fn accesses<'g>(statements: &[Statement<'g>]) -> Vec<Accesses<'g>> {
    let mut list: Vec<Accesses<'g>> = Vec::new();
    let mut index: FxHashMap<&UOp, usize> = FxHashMap::default();
    let mut entry = |list: &mut Vec<Accesses<'g>>, memory: &'g UOp| {
        *index.entry(memory).or_insert_with(|| {
            list.push(Accesses {
                memory,
                loads: Vec::new(),
                stores: Vec::new(),
            });
            list.len() - 1
        })
    };
    for (k, statement) in statements.iter().enumerate() {
        for u in statement.reads.iter().copied() {
            if matches!(u.op(), Op::Load) {
                let i = entry(&mut list, &u.src()[0]);
                list[i].loads.push((k, u));
            }
        }
        let i = entry(&mut list, statement.memory);
        list[i].stores.push(k);
    }
    list
}

/// Rule 9, mode `in`.
fn param_in(checker: &Checker, accesses: &Accesses) -> Result<()> {
    match accesses.stores.first() {
        None => Ok(()),
        Some(&k) => {
            let rule = "a parameter of mode in is never written; make it out or inout";
            checker.fail(checker.statements[k].store, rule)
        }
    }
}

/// Rule 9, mode `out`.
fn param_out(checker: &Checker, accesses: &Accesses) -> Result<()> {
    let statements = &checker.statements;
    let mut first_set = usize::MAX;
    let mut loops_with_a_set: FxHashSet<&UOp> = FxHashSet::default();
    for &k in &accesses.stores {
        if statements[k].combine == Combine::Set {
            first_set = first_set.min(k);
            loops_with_a_set.extend(statements[k].ranges.first());
        }
    }
    let may_hold = |k: usize| {
        let outer = statements[k].ranges.first();
        first_set < k || outer.is_some_and(|r| loops_with_a_set.contains(r))
    };
    let rule = "a parameter of mode out is written before it is read";
    for &(k, load) in &accesses.loads {
        if !may_hold(k) {
            return checker.fail(load, rule);
        }
    }
    for &k in &accesses.stores {
        if statements[k].combine != Combine::Set && !may_hold(k) {
            let rule = "a parameter of mode out is set before anything is combined into it";
            return checker.fail(statements[k].store, rule);
        }
    }
    Ok(())
}

/// Rule 10.
fn param_inout(checker: &Checker, accesses: &Accesses) -> Result<()> {
    let statements = &checker.statements;
    let Some(&first) = accesses.stores.first() else {
        let rule = "a parameter of mode inout is written; make it in";
        return checker.fail(accesses.memory, rule);
    };
    let owner = &statements[first];
    for &(k, load) in &accesses.loads {
        if k > first {
            let rule = "a parameter of mode inout is not read after it was written";
            return checker.fail(load, rule);
        }
        if load.src()[1] != *owner.index || statements[k].ranges != owner.ranges {
            let rule =
                "a parameter of mode inout is read at the index and in the ranges of its store";
            return checker.fail(load, rule);
        }
    }
    for &k in &accesses.stores[1..] {
        if statements[k].index != owner.index || statements[k].ranges != owner.ranges {
            let rule = "a parameter of mode inout has one index and one list of ranges";
            return checker.fail(statements[k].store, rule);
        }
    }
    Ok(())
}

/// Rule 11.
fn local_begins_with_a_store(checker: &Checker, accesses: &Accesses) -> Result<()> {
    let Some(&(k, load)) = accesses.loads.first() else {
        return Ok(());
    };
    match accesses.stores.first() {
        Some(&store) if store < k => Ok(()),
        _ => checker.fail(load, "a local is written before it is read"),
    }
}

/// Rule 12.
fn local_space(checker: &Checker, accesses: &Accesses, space: Space) -> Result<()> {
    let statements = &checker.statements;
    if space == Space::Reg {
        let loads = accesses.loads.iter().map(|&(_, load)| load);
        let stores = accesses.stores.iter().map(|&k| statements[k].store);
        for u in loads.chain(stores) {
            if !is_known_after_unrolling(&u.src()[1]) {
                let rule = "a local in reg is indexed by constants and unroll or vector ranges; \
                            use space=cache";
                return checker.fail(u, rule);
            }
        }
    }
    if space == Space::Arena {
        return Ok(());
    }
    let named = accesses.statements();
    let thread = |k: usize| {
        statements[k]
            .ranges
            .iter()
            .find(|r| exec_of(r) == Exec::Thread)
    };
    if let Some(&k) = named.iter().find(|&&k| thread(k) != thread(named[0])) {
        let rule = "a local that is named inside and outside of a thread range is in arena";
        return checker.fail(statements[k].end, rule);
    }
    Ok(())
}

fn is_known_after_unrolling(index: &UOp) -> bool {
    toposort(std::slice::from_ref(index)).iter().all(|u| {
        let unrolled = matches!(exec_of(u), Exec::Unroll | Exec::Vector);
        !matches!(u.op(), Op::Load) && (!is_range(u) || unrolled)
    })
}

/// The second half of rule 8: memory that outlives a thread range is written at an index or
/// under a gate that names the range, else every thread would write the same element.
fn threads_own_what_they_write(checker: &Checker, accesses: &Accesses) -> Result<()> {
    let statements = &checker.statements;
    let named = accesses.statements();
    for &k in &accesses.stores {
        let statement = &statements[k];
        let is_shared = |r: &&UOp| exec_of(r) == Exec::Thread && !runs_once(r);
        for thread in statement.ranges.iter().filter(is_shared) {
            let is_local = matches!(accesses.memory.op(), Op::Local { .. });
            let lives_inside = named.iter().all(|&k| statements[k].ranges.contains(thread));
            if is_local && lives_inside {
                continue;
            }
            let owned = names(statement.index, thread)
                || statement.gate.is_some_and(|gate| names(gate, thread));
            if !owned {
                let rule = "memory that outlives a thread range is written at an index, or under \
                            a gate, that names the range";
                return checker.fail(statement.store, rule);
            }
        }
    }
    Ok(())
}
