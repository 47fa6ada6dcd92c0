//! The rules of a loop graph.
//!
//! Form
//! 1. The root is a SINK of statements, each an END of a STORE.
//! 2. Values are scalars made of CONST, RANGE, LOAD and arithmetic. PARAM and LOCAL occur only as
//!    the memory of a LOAD or STORE.
//! 3. A slot is one parameter and an id one LOCAL, agreeing on everything.
//!
//! Loops
//! 4. A statement lists a range once, and uses only ranges that it lists. An extent depends on
//!    ranges that stand outside it, and reads no memory.
//! 5. Statements that name a range are consecutive and agree on what lies outside it.
//! 6. A range that is not serial has a constant extent, and no constant extent is negative.
//! 7. A vector range is innermost, and nothing is combined over it: its index names it.
//! 8. A thread range stands only in serial ranges, and memory that outlives it is written at an
//!    index, or under a gate, that names it.
//!
//! Memory
//! 9. A parameter of mode `in` is never written. One of mode `out` is read or combined into only
//!    where a plain store may have come before: in an earlier statement, or in a later one that
//!    shares a loop.
//! 10. A parameter of mode `inout` is written, and each load of it is in the iteration of a store
//!     (same index, same ranges) and not after it.
//! 11. The first statement that names a LOCAL writes it without reading it (a combining store
//!     starts at the identity).
//! 12. A LOCAL in `reg` is indexed by constants and unroll and vector ranges. A LOCAL that is named
//!     inside and outside of a thread range is in `arena`.
//! 13. `mulacc` does not combine bools.
//!
//! Bounds of indices are checked where the form is run by the interpreter.

mod memory;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{broken, is_value, numbers_are_unique, value_sources};
use crate::error::Result;
use crate::ir::dtype::DType;
use crate::ir::op::{Combine, Exec, Op};
use crate::ir::uop::UOp;
use crate::ir::visit::{Graph, toposort};

const FORM: &str = "loop graph";

/// A statement taken apart.
struct Statement<'g> {
    end: &'g UOp,
    store: &'g UOp,
    combine: Combine,
    memory: &'g UOp,
    index: &'g UOp,
    gate: Option<&'g UOp>,
    /// Outermost first.
    ranges: &'g [UOp],
    /// Every node that its store reads, each once.
    reads: Vec<&'g UOp>,
}

/// The loop graph while it is checked.
struct Checker<'g> {
    sink: &'g UOp,
    statements: Vec<Statement<'g>>,
}

pub(super) fn check(sink: &UOp) -> Result<()> {
    let checker = Checker::new(sink)?;
    for statement in &checker.statements {
        checker.ranges_of(statement)?;
        checker.vector_of(statement)?;
        checker.thread_of(statement)?;
    }
    checker.sharing()?;
    memory::check(&checker)
}

impl<'g> Checker<'g> {
    /// Takes the statements apart, after checking that every node belongs to the form.
    fn new(sink: &'g UOp) -> Result<Checker<'g>> {
        let roots = std::slice::from_ref(sink);
        let fail = |u: &UOp, rule: &str| Err(broken(FORM, roots, u, rule));
        if !matches!(sink.op(), Op::Sink) {
            return fail(sink, "the root is a sink of statements");
        }
        if let Some(other) = sink.src().iter().find(|s| !matches!(s.op(), Op::End)) {
            return fail(other, "a statement is an end of a store");
        }
        let graph = Graph::new(roots);
        for u in &graph.nodes {
            check_node(roots, u)?;
        }
        numbers_are_unique(FORM, roots, graph.nodes.iter(), memory_number)?;
        let mut statements = Vec::with_capacity(sink.src().len());
        // A node is marked with the number of the statement that met it last.
        let mut met = vec![0u32; graph.len()];
        for (k, end) in sink.src().iter().enumerate() {
            let statement = take_apart(end, reads(&graph, &end.src()[0], &mut met, k as u32 + 1));
            if statement.combine == Combine::MulAcc && statement.memory.dtype() == DType::Bool {
                return fail(
                    statement.store,
                    "mulacc does not combine bools; use max and and",
                );
            }
            statements.push(statement);
        }
        Ok(Checker { sink, statements })
    }

    fn fail<T>(&self, u: &UOp, rule: impl AsRef<str>) -> Result<T> {
        Err(broken(FORM, std::slice::from_ref(self.sink), u, rule))
    }

    /// Rule 4 and 6.
    fn ranges_of(&self, statement: &Statement) -> Result<()> {
        let mut outside: FxHashSet<&UOp> = FxHashSet::default();
        for range in statement.ranges {
            self.extent_of(range, &outside)?;
            if !outside.insert(range) {
                return self.fail(statement.end, "a statement lists a range once");
            }
        }
        for u in &statement.reads {
            if is_range(u) && !outside.contains(*u) {
                let other = super::quote(std::slice::from_ref(self.sink), u);
                let rule = format!("a statement uses only ranges that it lists, unlike {other}");
                return self.fail(statement.end, rule);
            }
        }
        Ok(())
    }

    fn extent_of(&self, range: &UOp, outside: &FxHashSet<&UOp>) -> Result<()> {
        let extent = &range.src()[0];
        if let Op::Const(value) = extent.op() {
            if value.as_i128() < 0 {
                return self.fail(range, "an extent is not negative");
            }
            return Ok(());
        }
        if exec_of(range) != Exec::Serial {
            return self.fail(range, "a range that is not serial has a constant extent");
        }
        for u in toposort(std::slice::from_ref(extent)) {
            if matches!(u.op(), Op::Load) {
                return self.fail(range, "an extent reads no memory");
            }
            if is_range(&u) && !outside.contains(&u) {
                return self.fail(range, "an extent depends only on ranges outside its own");
            }
        }
        Ok(())
    }

    /// Rule 7.
    fn vector_of(&self, statement: &Statement) -> Result<()> {
        for (k, range) in statement.ranges.iter().enumerate() {
            if exec_of(range) != Exec::Vector {
                continue;
            }
            if k + 1 != statement.ranges.len() {
                return self.fail(statement.end, "a vector range is the innermost");
            }
            let combines = statement.combine != Combine::Set && !runs_once(range);
            if combines && !names(statement.index, range) {
                let rule =
                    "nothing is combined over a vector range; give the memory an axis for it";
                return self.fail(statement.store, rule);
            }
        }
        Ok(())
    }

    /// The first half of rule 8.
    fn thread_of(&self, statement: &Statement) -> Result<()> {
        let is_thread = |r: &UOp| exec_of(r) == Exec::Thread;
        let Some(inner) = statement.ranges.iter().rposition(is_thread) else {
            return Ok(());
        };
        let mut outer = statement.ranges[..inner].iter();
        if outer.any(|r| exec_of(r) != Exec::Serial) {
            let rule = "a thread range stands only in serial ranges, not in thread or unroll ones";
            return self.fail(statement.end, rule);
        }
        Ok(())
    }

    /// Rule 5.
    fn sharing(&self) -> Result<()> {
        let mut last: FxHashMap<&UOp, usize> = FxHashMap::default();
        for (k, statement) in self.statements.iter().enumerate() {
            for (depth, range) in statement.ranges.iter().enumerate() {
                let Some(before) = last.insert(range, k) else {
                    continue;
                };
                if before + 1 != k {
                    let rule = "statements that name a range follow each other";
                    return self.fail(range, rule);
                }
                let outside = &statement.ranges[..depth];
                if !self.statements[before].ranges.starts_with(outside)
                    || self.statements[before].ranges.get(depth) != Some(range)
                {
                    let rule = "statements that name a range agree on what lies outside it";
                    return self.fail(range, rule);
                }
            }
        }
        Ok(())
    }
}

fn take_apart<'g>(end: &'g UOp, reads: Vec<&'g UOp>) -> Statement<'g> {
    let store = &end.src()[0];
    let Op::Store { combine, gated } = *store.op() else {
        unreachable!("the type rules say that END closes a STORE");
    };
    Statement {
        end,
        store,
        combine,
        memory: &store.src()[0],
        index: &store.src()[1],
        gate: store.src().last().filter(|_| gated),
        ranges: &end.src()[1..],
        reads,
    }
}

/// What a store depends on. Ranges are included, their extents are not: these belong to the loop.
fn reads<'g>(graph: &Graph, store: &'g UOp, met: &mut [u32], mark: u32) -> Vec<&'g UOp> {
    let mut found = Vec::new();
    let mut stack: Vec<&UOp> = vec![store];
    while let Some(u) = stack.pop() {
        if is_range(u) {
            continue;
        }
        for s in u.src() {
            let Some(i) = graph.position(s) else {
                continue;
            };
            if std::mem::replace(&mut met[i], mark) != mark {
                found.push(s);
                stack.push(s);
            }
        }
    }
    found
}

fn is_range(u: &UOp) -> bool {
    matches!(u.op(), Op::Range { .. })
}

pub(super) fn exec_of(range: &UOp) -> Exec {
    if let Op::Range { exec, .. } = range.op() {
        *exec
    } else {
        Exec::Serial
    }
}

/// Whether a loop has at most one iteration, so that nothing in it happens twice.
fn runs_once(range: &UOp) -> bool {
    matches!(range.src()[0].op(), Op::Const(extent) if extent.as_i128() <= 1)
}

/// Whether the value of `u` depends on the range, loads included.
fn names(u: &UOp, range: &UOp) -> bool {
    let mut met: FxHashSet<&UOp> = FxHashSet::default();
    let mut stack = vec![u];
    while let Some(u) = stack.pop() {
        if u == range {
            return true;
        }
        if !is_range(u) {
            stack.extend(u.src().iter().filter(|s| met.insert(s)));
        }
    }
    false
}

/// What kind of memory a node is, and its number.
pub(super) fn memory_number(op: &Op) -> Option<(&'static str, u64)> {
    if let Op::Param { slot, .. } = op {
        Some(("param slot", *slot as u64))
    } else if let Op::Local { id, .. } = op {
        Some(("local", *id as u64))
    } else {
        None
    }
}

/// Rule 2.
fn check_node(roots: &[UOp], u: &UOp) -> Result<()> {
    let fail = |rule: String| Err(broken(FORM, roots, u, rule));
    let op = u.op().mnemonic();
    match u.op() {
        Op::Const(_) | Op::Param { .. } | Op::Local { .. } | Op::End => Ok(()),
        Op::Sink => match u == &roots[0] {
            true => Ok(()),
            false => fail("the only sink is the root".into()),
        },
        Op::Range { .. }
        | Op::Load
        | Op::Store { .. }
        | Op::Add
        | Op::Mul
        | Op::Max
        | Op::Recip
        | Op::Div
        | Op::Exp2
        | Op::Log2
        | Op::Exp
        | Op::Sqrt
        | Op::Sin(_)
        | Op::Trunc
        | Op::MulAcc
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::Where
        | Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr => match value_sources(u).iter().find(|s| !is_value(s)) {
            None => Ok(()),
            Some(source) => {
                let found = source.op().mnemonic();
                fail(format!("values are made of values, not of {found}"))
            }
        },
        Op::Buffer { .. } => fail("kernels know parameters, not buffers".into()),
        Op::Iota { .. }
        | Op::Reshape(_)
        | Op::Expand(_)
        | Op::Permute(_)
        | Op::Shrink(_)
        | Op::Stack
        | Op::Index
        | Op::ScatterAdd(_)
        | Op::Reduce { .. }
        | Op::Scan(_)
        | Op::ArgSort
        | Op::Custom(_)
        | Op::Stage(_) => fail(format!("{op} works on tensors; values here are scalars")),
        Op::After | Op::Call { .. } => fail(format!("{op} belongs to plans")),
        Op::Loop
        | Op::EndLoop
        | Op::If
        | Op::EndIf
        | Op::Let { .. }
        | Op::Declare(_)
        | Op::Barrier => fail(format!("{op} belongs to programs")),
    }
}
