//! Narrow: what a gate says of counters simplifies the index that it guards (elsewhere:
//! simplification under constraints).
//!
//! A padded value is lowered to a choice between zeros and loads. Which part an element comes
//! from is a quotient, where it lies in that part a remainder; the gate of the load says which
//! part it is, and where that is known both are sums. A load with a false gate reads nothing and
//! gives 0, so its index and each part of its gate may take the rest of the gate for granted.
//! What a choice selects may in the same way take the condition for granted, but for its loads:
//! they run whatever is selected, so only their own gates count.
//!
//! Keeps:    every value, bit for bit, and which elements are read.
//! Cost:     a bounded number of simplifications for each gate and choice that holds a division.
//! Example:  tests/golden/schedule/narrow_padded.uir

mod facts;
mod wrap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::affine::{replaced, simplify, simplify_under};
use super::nest::{Nest, Statement};
use crate::error::Result;
use crate::ir::bounds::Bounds;
use crate::ir::op::Space;
use crate::ir::visit::{Graph, substitute, toposort};
use crate::ir::{Op, UOp};
use crate::rules::select::conjuncts;

use facts::where_all_hold;
use wrap::Said;

/// How often the parts of a gate are simplified by each other.
const ROUNDS: usize = 4;
/// How many sums in one gate are named.
const NAMES: usize = 4;
/// How many different sets of conditions the choices of one statement may stand under.
const CONTEXTS: usize = 64;

/// Simplifies what stands under gates and conditions in all statements.
///
/// # Errors
/// Never for a verified launch.
pub fn narrow(nest: &mut Nest) -> Result<()> {
    for statement in &mut nest.statements {
        let roots = statement.roots();
        let graph = Graph::new(&roots);
        if !graph.nodes.iter().any(divides) {
            continue;
        }
        let after = accesses(&graph)?;
        let after = choices(&after)?;
        let after = if after == roots {
            after
        } else {
            simplify(&after)?
        };
        put(statement, after)?;
    }
    Ok(())
}

/// Gives a statement what became of [`Statement::roots`].
fn put(statement: &mut Statement, mut roots: Vec<UOp>) -> Result<()> {
    if statement.gate.is_some() {
        statement.gate = roots.pop();
    }
    statement.values = roots.drain(1..).collect();
    statement.index = roots.remove(0);
    // What is written where follows from the gate as well.
    if let Some(gate) = &statement.gate {
        let index = statement.index.clone();
        if toposort(&[index.clone(), gate.clone()]).iter().any(divides) {
            let (index, gate) = under_gate(&index, gate)?;
            statement.index = index;
            statement.gate = Some(gate);
        }
    }
    Ok(())
}

/// Whether a node is what this pass would like to be without.
fn divides(u: &UOp) -> bool {
    matches!(u.op(), Op::FloorDiv | Op::FloorMod)
}

/// The roots of a graph with the indices and gates of all loads simplified.
fn accesses(graph: &Graph) -> Result<Vec<UOp>> {
    graph.map(|_, u, src| {
        let [memory, index, gate] = src else {
            return u.with_src(src);
        };
        let parts = [index.clone(), gate.clone()];
        if !matches!(u.op(), Op::Load) || !toposort(&parts).iter().any(divides) {
            return u.with_src(src);
        }
        let (index, gate) = under_gate(index, gate)?;
        memory.load(&index, Some(&gate))
    })
}

/// The parts of a condition.
fn parts(condition: &UOp) -> Vec<UOp> {
    match conjuncts(condition) {
        Some(parts) => parts.into_iter().cloned().collect(),
        None => vec![condition.clone()],
    }
}

/// All parts together; each once.
fn all_of(parts: &[UOp]) -> Result<UOp> {
    let mut met = FxHashSet::default();
    let mut all: Option<UOp> = None;
    for part in parts.iter().filter(|p| met.insert(*p)) {
        all = Some(match all {
            Some(all) => all.and(part)?,
            None => part.clone(),
        });
    }
    Ok(all.unwrap_or_else(|| UOp::truth(true)))
}

/// An index and the gate that it stands under, simplified together.
fn under_gate(index: &UOp, gate: &UOp) -> Result<(UOp, UOp)> {
    let never = || Ok((index.clone(), UOp::truth(false)));
    // What they read is read whether or not the gate is open, so it stays what it is.
    let (hide, show) = reads(&[index.clone(), gate.clone()])?;
    let mut at = substitute(std::slice::from_ref(index), &hide)?;
    let mut known = parts(&substitute(std::slice::from_ref(gate), &hide)?[0]);
    let mut names: Vec<wrap::Named> = Vec::new();
    for _ in 0..ROUNDS {
        let Some(now) = each_under_others(&known)? else {
            return never();
        };
        let settled = now == known;
        known = now;
        let id = u32::MAX - names.len() as u32;
        let named = (names.len() < NAMES)
            .then(|| name_a_sum(&known, id))
            .transpose()?;
        match named.flatten() {
            Some((_, Said::Never)) => return never(),
            Some((part, Said::Period(named))) => {
                known.remove(part);
                let new = FxHashMap::from_iter([(named.term.clone(), named.value.clone())]);
                known = replaced(&known, &new)?;
                at = replaced(&at, &new)?;
                names.push(named);
            }
            _ if settled => break,
            _ => {}
        }
    }
    let Some(bounds) = where_all_hold(&known) else {
        return never();
    };
    at = simplify_under(&at, bounds)?;
    // Names are given up in the opposite order, as later ones may stand for earlier ones.
    for named in names.iter().rev() {
        let new = FxHashMap::from_iter([(named.name.clone(), named.meaning.clone())]);
        known = substitute(&known, &new)?;
        known.extend(named.conditions.iter().cloned());
        at = substitute(&at, &new)?;
    }
    known.append(&mut at);
    let mut done = substitute(&simplify(&known)?, &show)?;
    let at = done.pop().expect("the index was put there");
    Ok((at, all_of(&done)?))
}

/// Stand-ins for what the roots read, and what they stand for.
fn reads(roots: &[UOp]) -> Result<(FxHashMap<UOp, UOp>, FxHashMap<UOp, UOp>)> {
    let (mut hide, mut show) = (FxHashMap::default(), FxHashMap::default());
    for (k, load) in (toposort(roots).into_iter())
        .filter(|u| matches!(u.op(), Op::Load))
        .enumerate()
    {
        let memory = UOp::local(u32::MAX - k as u32, Space::Reg, load.dtype(), 1);
        let unknown = memory.load(&UOp::int(0, load.src()[1].dtype()), None)?;
        hide.insert(load.clone(), unknown.clone());
        show.insert(unknown, load);
    }
    Ok((hide, show))
}

/// Conditions, each simplified where the others hold; `None` if they never hold together.
fn each_under_others(conditions: &[UOp]) -> Result<Option<Vec<UOp>>> {
    let mut now = conditions.to_vec();
    let mut k = 0;
    while k < now.len() {
        let part = now.remove(k);
        let Some(bounds) = where_all_hold(&now) else {
            return Ok(None);
        };
        let part = simplify_under(&[part], bounds)?.remove(0);
        match part.op() {
            Op::Const(c) if c.as_bool() => {}
            Op::Const(_) => return Ok(None),
            _ => {
                let new = parts(&part);
                let next = k + new.len();
                now.splice(k..k, new);
                k = next;
            }
        }
    }
    Ok(Some(now))
}

/// The first condition that says something of a remainder's dividend, and what.
fn name_a_sum(conditions: &[UOp], id: u32) -> Result<Option<(usize, Said)>> {
    for (k, condition) in conditions.iter().enumerate() {
        if !toposort(std::slice::from_ref(condition))
            .iter()
            .any(divides)
        {
            continue;
        }
        let mut others = conditions.to_vec();
        others.remove(k);
        let Some(mut bounds) = where_all_hold(&others) else {
            return Ok(Some((k, Said::Never)));
        };
        match wrap::said(condition, &mut bounds, id)? {
            Said::Nothing => {}
            said => return Ok(Some((k, said))),
        }
    }
    Ok(None)
}

/// Conditions that hold at some place below a choice.
struct Context {
    conditions: Vec<UOp>,
    /// Bounds there; `None` where the place is never reached.
    bounds: Option<Bounds>,
}

/// Expressions with what stands under the conditions of choices simplified.
fn choices(roots: &[UOp]) -> Result<Vec<UOp>> {
    let graph = Graph::new(roots);
    // Index arithmetic: what reads nothing and is no float.
    let mut calculated = FxHashSet::default();
    for (k, u) in graph.nodes.iter().enumerate() {
        let pure = !u.dtype().is_float() && !matches!(u.op(), Op::Load);
        let src = graph.src(k).iter().map(|&s| &graph.nodes[s as usize]);
        if pure
            && !u.src().is_empty()
            && src
                .into_iter()
                .all(|s| s.src().is_empty() || calculated.contains(s))
        {
            calculated.insert(u.clone());
        }
    }
    let decides = |u: &UOp| matches!(u.op(), Op::Where) && calculated.contains(&u.src()[0]);
    if !graph.nodes.iter().any(decides) {
        return Ok(roots.to_vec());
    }
    let mut contexts = vec![Context {
        conditions: vec![],
        bounds: Some(Bounds::new()),
    }];
    let mut by_conditions: FxHashMap<Vec<UOp>, usize> = FxHashMap::default();
    let mut done: FxHashMap<(UOp, usize), UOp> = FxHashMap::default();
    let mut open: Vec<(UOp, usize)> = roots.iter().rev().map(|u| (u.clone(), 0)).collect();
    while let Some((u, context)) = open.last().cloned() {
        let key = (u.clone(), context);
        if done.contains_key(&key) {
            open.pop();
            continue;
        }
        // Loads run whatever is chosen, and counters are what they are.
        if u.src().is_empty() || matches!(u.op(), Op::Load | Op::Range { .. }) {
            done.insert(key, u);
            continue;
        }
        if calculated.contains(&u) {
            let new = under(&u, &contexts[context])?;
            done.insert(key, new);
            continue;
        }
        let mut needs: Vec<(UOp, usize)> = u.src().iter().map(|s| (s.clone(), context)).collect();
        if decides(&u) {
            let Some(condition) = done.get(&needs[0]).cloned() else {
                open.push(needs.swap_remove(0));
                continue;
            };
            if let Op::Const(c) = condition.op() {
                // Only one arm is left.
                needs = vec![needs[if c.as_bool() { 1 } else { 2 }].clone()];
                match done.get(&needs[0]).cloned() {
                    Some(arm) => {
                        done.insert(key, arm);
                    }
                    None => open.extend(needs),
                }
                continue;
            }
            for (arm, said) in [(1, condition.clone()), (2, condition.logical_not()?)] {
                needs[arm].1 = enter(&mut contexts, &mut by_conditions, context, &said)?;
            }
        }
        let missing = needs.iter().rev().filter(|need| !done.contains_key(*need));
        let missing: Vec<(UOp, usize)> = missing.cloned().collect();
        if missing.is_empty() {
            let src: Vec<UOp> = needs.iter().map(|need| done[need].clone()).collect();
            done.insert(key, u.with_src(&src)?);
        } else {
            open.extend(missing);
        }
    }
    Ok(roots
        .iter()
        .map(|u| done[&(u.clone(), 0)].clone())
        .collect())
}

/// Index arithmetic where the conditions of a context hold.
fn under(u: &UOp, context: &Context) -> Result<UOp> {
    match &context.bounds {
        Some(bounds) if !context.conditions.is_empty() => {
            Ok(simplify_under(std::slice::from_ref(u), bounds.clone())?.remove(0))
        }
        _ => Ok(u.clone()),
    }
}

/// The context below a choice: one more condition holds.
fn enter(
    contexts: &mut Vec<Context>,
    by_conditions: &mut FxHashMap<Vec<UOp>, usize>,
    outer: usize,
    condition: &UOp,
) -> Result<usize> {
    let mut conditions = contexts[outer].conditions.clone();
    conditions.extend(parts(&simplify(std::slice::from_ref(condition))?[0]));
    if let Some(&known) = by_conditions.get(&conditions) {
        return Ok(known);
    }
    if contexts.len() >= CONTEXTS {
        return Ok(outer);
    }
    let bounds = where_all_hold(&conditions);
    contexts.push(Context {
        conditions: conditions.clone(),
        bounds,
    });
    by_conditions.insert(conditions, contexts.len() - 1);
    Ok(contexts.len() - 1)
}
