//! Linearize: statements over shared loops become one list of instructions (elsewhere:
//! instruction scheduling).
//!
//! In:       LoopGraph.
//! Out:      Program.
//! Keeps:    what is stored, bit for bit, and the order of statements.
//! Ensures:  a loop that neighbouring statements share is opened once; scratch memory is declared
//!           where its scope begins; every load and every value used more than once in a
//!           statement has a name.
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
    for statement in &statements {
        out.close_to(common_prefix(&out.open, &statement.ranges))?;
        for range in &statement.ranges[out.open.len()..] {
            out.instructions
                .push(UOp::new(Op::Loop, [range.clone()].as_slice())?);
            out.open.push(range.clone());
            out.declare(&scratch)?;
        }
        out.statement(&statement.store)?;
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

    /// The names a store needs, then the store; under a condition if it has a gate.
    fn statement(&mut self, store: &UOp) -> Result<()> {
        let Op::Store { combine, gated } = *store.op() else {
            unreachable!("an END closes a STORE");
        };
        let mut named: FxHashMap<UOp, UOp> = FxHashMap::default();
        let uses = uses_of(store);
        if !gated {
            let src = self.name_all(store.src(), &uses, &mut named)?;
            self.instructions.push(store.with_src(&src)?);
            return Ok(());
        }
        let (gate, rest) = store.src().split_last().expect("a gated store has a gate");
        let gate = self
            .name_all(std::slice::from_ref(gate), &uses, &mut named)?
            .remove(0);
        let block = UOp::new(Op::If, [gate].as_slice())?;
        self.instructions.push(block.clone());
        let src = self.name_all(rest, &uses, &mut named)?;
        let ungated = Op::Store {
            combine,
            gated: false,
        };
        self.instructions
            .push(UOp::new(ungated, Sources::from(src))?);
        self.instructions
            .push(UOp::new(Op::EndIf, [block].as_slice())?);
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
            let repeated = uses[&u] > 1 && u.op().is_elementwise();
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
