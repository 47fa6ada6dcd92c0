//! Linearize: statements over shared loops become one list of instructions (elsewhere:
//! instruction scheduling).
//!
//! In:       LoopGraph.
//! Out:      Program.
//! Keeps:    what is stored, bit for bit, and the order of statements.
//! Ensures:  a loop that neighbouring statements share is opened once; scratch memory is declared
//!           where its scope begins; every load and every value used more than once in a
//!           statement has a name; what a gate reads in memory is tested before the loops of the
//!           statement's own that it does not depend on.
//! Cost:     linear in the sizes of all statements.
//! Example:  tests/golden/linearize/sum.uir

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::Result;
use crate::ir::form::{LoopGraph, Program};
use crate::ir::op::Combine;
use crate::ir::uop::Sources;
use crate::ir::visit::toposort;
use crate::ir::{Op, UOp, verify};

/// Puts the statements of a launch in line.
///
/// # Errors
/// Never for a verified graph.
pub fn linearize(loops: &LoopGraph) -> Result<Program> {
    let statements: Vec<Statement> = loops.statements().iter().map(Statement::of).collect();
    let scratch = scratch(&statements);
    let mut out = Emitter {
        instructions: Vec::new(),
        open: Vec::new(),
        names: 0,
    };
    out.declare(&scratch)?;
    for (k, statement) in statements.iter().enumerate() {
        out.close_to(common_prefix(&out.open, &statement.ranges))?;
        let before = out.open.len();
        let after = statements.get(k + 1).map_or(&[][..], |s| &s.ranges);
        let shared = common_prefix(after, &statement.ranges).max(before);
        out.statement(statement, shared, &scratch)?;
    }
    out.close_to(0)?;
    verify::program(loops.name().clone(), UOp::sink(&out.instructions))
}

/// A statement taken apart.
struct Statement {
    store: UOp,
    ranges: Vec<UOp>,
    /// Scratch memory that it names.
    memories: Vec<UOp>,
}

impl Statement {
    fn of(end: &UOp) -> Statement {
        let store = end.src()[0].clone();
        let memories = toposort(std::slice::from_ref(&store))
            .into_iter()
            .filter(|u| matches!(u.op(), Op::Local { .. }))
            .collect();
        Statement {
            store,
            ranges: end.src()[1..].to_vec(),
            memories,
        }
    }

    /// How it combines into that memory; `None` if it only reads it.
    fn combine_into(&self, memory: &UOp) -> Option<Combine> {
        match self.store.op() {
            Op::Store { combine, .. } if self.store.src()[0] == *memory => Some(*combine),
            _ => None,
        }
    }
}

/// Scratch memory: its scope is the loops that all statements naming it share.
struct Scratch {
    memory: UOp,
    scope: Vec<UOp>,
    /// Where it starts: at the identity if its first statement combines into it.
    start: Option<Combine>,
}

/// All scratch memory, in the order in which it is first named.
fn scratch(statements: &[Statement]) -> Vec<Scratch> {
    let mut all: Vec<Scratch> = Vec::new();
    let mut position: FxHashMap<UOp, usize> = FxHashMap::default();
    for s in statements {
        for memory in &s.memories {
            let at = *position.entry(memory.clone()).or_insert_with(|| {
                let start = s.combine_into(memory).filter(|c| *c != Combine::Set);
                all.push(Scratch {
                    memory: memory.clone(),
                    scope: s.ranges.clone(),
                    start,
                });
                all.len() - 1
            });
            let shared = common_prefix(&all[at].scope, &s.ranges);
            all[at].scope.truncate(shared);
        }
    }
    all
}

fn common_prefix(a: &[UOp], b: &[UOp]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

struct Emitter {
    instructions: Vec<UOp>,
    open: Vec<UOp>,
    names: u32,
}

impl Emitter {
    fn close_to(&mut self, depth: usize) -> Result<()> {
        while self.open.len() > depth {
            let range = self.open.pop().expect("the length was just tested");
            self.instructions
                .push(UOp::new(Op::EndLoop, [range].as_slice())?);
        }
        Ok(())
    }

    /// Scratch memory whose scope has just been entered begins here.
    fn declare(&mut self, scratch: &[Scratch]) -> Result<()> {
        for s in scratch.iter().filter(|s| s.scope == self.open) {
            self.instructions.push(UOp::new(
                Op::Declare(s.start),
                [s.memory.clone()].as_slice(),
            )?);
        }
        Ok(())
    }

    fn open(&mut self, ranges: &[UOp], scratch: &[Scratch]) -> Result<()> {
        for range in ranges {
            self.instructions
                .push(UOp::new(Op::Loop, [range.clone()].as_slice())?);
            self.open.push(range.clone());
            self.declare(scratch)?;
        }
        Ok(())
    }

    fn open_if(&mut self, condition: UOp) -> Result<UOp> {
        let block = UOp::new(Op::If, [condition].as_slice())?;
        self.instructions.push(block.clone());
        Ok(block)
    }

    fn close_if(&mut self, block: UOp) -> Result<()> {
        self.instructions
            .push(UOp::new(Op::EndIf, [block].as_slice())?);
        Ok(())
    }

    /// The loops of a statement that are not open yet, the names that its store needs, then the
    /// store; under a condition if it has a gate. No other statement is in its loops from `shared`
    /// on.
    fn statement(
        &mut self,
        statement: &Statement,
        shared: usize,
        scratch: &[Scratch],
    ) -> Result<()> {
        let (store, ranges) = (&statement.store, &statement.ranges);
        let Op::Store { combine, gated } = *store.op() else {
            unreachable!("an END closes a STORE");
        };
        let mut named: FxHashMap<UOp, UOp> = FxHashMap::default();
        let uses = uses_of(store);
        if !gated {
            self.open(&ranges[self.open.len()..], scratch)?;
            let src = self.name_all(store.src(), &uses, &mut named)?;
            self.instructions.push(store.with_src(&src)?);
            return Ok(());
        }
        let (gate, rest) = store.src().split_last().expect("a gated store has a gate");
        let (early, depth) = early_gate(gate, &store.src()[0], ranges);
        let depth = depth.max(shared);
        let mut gate = Some(gate.clone());
        let mut around = None;
        if let Some((early, late)) = early.filter(|_| depth < ranges.len()) {
            self.open(&ranges[self.open.len()..depth], scratch)?;
            let condition = self.name_all(&[early], &uses, &mut named)?.remove(0);
            around = Some(self.open_if(condition)?);
            gate = late;
        }
        self.open(&ranges[self.open.len()..], scratch)?;
        let mut block = None;
        if let Some(gate) = gate {
            let condition = self.name_all(&[gate], &uses, &mut named)?.remove(0);
            block = Some(self.open_if(condition)?);
        }
        let src = self.name_all(rest, &uses, &mut named)?;
        let ungated = Op::Store {
            combine,
            gated: false,
        };
        self.instructions
            .push(UOp::new(ungated, Sources::from(src))?);
        block.map_or(Ok(()), |block| self.close_if(block))?;
        if let Some(around) = around {
            self.close_to(depth)?;
            self.close_if(around)?;
        }
        Ok(())
    }

    /// Names what needs a name below the roots, and returns the roots in terms of names.
    fn name_all(
        &mut self,
        roots: &[UOp],
        uses: &FxHashMap<UOp, u32>,
        named: &mut FxHashMap<UOp, UOp>,
    ) -> Result<Vec<UOp>> {
        for u in values(roots) {
            if named.contains_key(&u) {
                continue;
            }
            let src: Vec<UOp> = sources(&u).iter().map(|s| named[s].clone()).collect();
            let mut made = if src.is_empty() {
                u.clone()
            } else {
                u.with_src(&src)?
            };
            let repeated = uses.get(&u).is_some_and(|n| *n > 1) && u.op().is_elementwise();
            if repeated || matches!(u.op(), Op::Load) {
                self.names += 1;
                made = UOp::new(Op::Let { id: self.names }, [made].as_slice())?;
                self.instructions.push(made.clone());
            }
            named.insert(u, made);
        }
        Ok(roots.iter().map(|r| named[r].clone()).collect())
    }
}

/// The part of a gate that is tested early, with what is left of the gate, and how many of the
/// loops it needs. These are the conditions that read memory, which take long and come out alike in
/// many rounds; not such that the statement writes.
fn early_gate(gate: &UOp, written: &UOp, ranges: &[UOp]) -> (Option<(UOp, Option<UOp>)>, usize) {
    let mut conditions = Vec::new();
    let mut pending = vec![gate.clone()];
    while let Some(u) = pending.pop() {
        match u.op() {
            Op::And => pending.extend(u.src().iter().rev().cloned()),
            _ => conditions.push(u),
        }
    }
    let (mut early, mut late) = (Vec::new(), Vec::new());
    let mut depth = 0;
    for condition in conditions {
        let nodes = values(std::slice::from_ref(&condition));
        let mut loads = nodes
            .iter()
            .filter(|u| matches!(u.op(), Op::Load))
            .peekable();
        let reads = loads.peek().is_some() && loads.all(|l| l.src()[0] != *written);
        if !reads {
            late.push(condition);
            continue;
        }
        let innermost = ranges.iter().rposition(|r| nodes.contains(r));
        depth = depth.max(innermost.map_or(0, |at| at + 1));
        early.push(condition);
    }
    let all = |conditions: Vec<UOp>| {
        let mut conditions = conditions.into_iter();
        let first = conditions.next()?;
        Some(conditions.fold(first, |a, b| a.and(&b).expect("conditions are bools")))
    };
    (all(early).map(|early| (early, all(late))), depth)
}

/// How often each node below a store is read.
fn uses_of(store: &UOp) -> FxHashMap<UOp, u32> {
    let mut uses: FxHashMap<UOp, u32> = FxHashMap::default();
    for u in values(std::slice::from_ref(store)) {
        for s in sources(&u) {
            *uses.entry(s.clone()).or_insert(0) += 1;
        }
        uses.entry(u).or_insert(0);
    }
    uses
}

/// What a statement computes for a node: a loop's extent is the business of the loop.
fn sources(u: &UOp) -> &[UOp] {
    match u.op() {
        Op::Range { .. } => &[],
        _ => u.src(),
    }
}

/// [`toposort`] without what only extents need.
fn values(roots: &[UOp]) -> Vec<UOp> {
    let mut order = Vec::new();
    let mut met: FxHashSet<&UOp> = FxHashSet::default();
    for root in roots {
        let mut stack: Vec<(&UOp, usize)> = Vec::new();
        if met.insert(root) {
            stack.push((root, 0));
        }
        while let Some((u, entered)) = stack.last_mut() {
            match sources(u).get(*entered) {
                Some(s) => {
                    *entered += 1;
                    if met.insert(s) {
                        stack.push((s, 0));
                    }
                }
                None => {
                    order.push((*u).clone());
                    stack.pop();
                }
            }
        }
    }
    order
}
