//! A launch taken apart into statements, so that schedules can rewrite it.
//!
//! [`Nest`] is a [`LoopGraph`] in another shape: the same statements in the same order, each with
//! its memory, index, values, gate and ranges at hand. What is written back passes the verifier.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::choice::Choice;
use crate::error::Result;
use crate::ir::form::LoopGraph;
use crate::ir::op::{Combine, Exec, Space};
use crate::ir::visit::{substitute, toposort};
use crate::ir::{DType, Op, UOp, verify};

/// One statement: a store, run for each point of its ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// What it writes to.
    pub memory: UOp,
    /// Where.
    pub index: UOp,
    /// The value; the two factors for [`Combine::MulAcc`].
    pub values: SmallVec<[UOp; 2]>,
    /// How the old element and the value combine.
    pub combine: Combine,
    /// When it writes; always, if there is none.
    pub gate: Option<UOp>,
    /// Its loops, outermost first.
    pub ranges: Vec<UOp>,
}

impl Statement {
    /// Takes an END of a STORE apart.
    fn of(end: &UOp) -> Statement {
        let store = &end.src()[0];
        let Op::Store { combine, gated } = *store.op() else {
            unreachable!("a verified statement is an END of a STORE");
        };
        let values = &store.src()[2..store.src().len() - usize::from(gated)];
        Statement {
            memory: store.src()[0].clone(),
            index: store.src()[1].clone(),
            values: values.iter().cloned().collect(),
            combine,
            gate: store.src().last().filter(|_| gated).cloned(),
            ranges: end.src()[1..].to_vec(),
        }
    }

    /// The END of the STORE.
    ///
    /// # Errors
    /// When the parts do not fit, which is a mistake in a rewrite.
    pub fn build(&self) -> Result<UOp> {
        let store =
            self.memory
                .store(&self.index, &self.values, self.combine, self.gate.as_ref())?;
        store.end(&self.ranges)
    }

    /// Everything that it computes: the index, the values, the gate.
    pub fn roots(&self) -> Vec<UOp> {
        let mut roots = vec![self.index.clone()];
        roots.extend(self.values.iter().cloned());
        roots.extend(self.gate.clone());
        roots
    }

    /// Puts other expressions in the place of [`roots`](Self::roots), in that order.
    pub fn set_roots(&mut self, roots: &[UOp]) {
        let values = self.values.len();
        self.index = roots[0].clone();
        self.values = roots[1..=values].iter().cloned().collect();
        self.gate = roots.get(1 + values).cloned();
    }

    /// The loads below its values, index and gate, each once.
    pub fn loads(&self) -> Vec<UOp> {
        let mut nodes = toposort(&self.roots());
        nodes.retain(|u| matches!(u.op(), Op::Load));
        nodes
    }

    /// Whether it reads or writes the memory.
    pub fn names(&self, memory: &UOp) -> bool {
        self.memory == *memory || self.loads().iter().any(|l| l.src()[0] == *memory)
    }

    /// Its ranges that are missing in its index: those that it reduces over.
    pub fn reduced(&self) -> Vec<UOp> {
        let named = ranges_of(&self.index);
        let ranges = self.ranges.iter();
        ranges.filter(|r| !named.contains(*r)).cloned().collect()
    }
}

/// The statements of a launch, in order.
#[derive(Clone, Debug)]
pub struct Nest {
    /// The kernel's name.
    pub name: std::sync::Arc<str>,
    /// In order.
    pub statements: Vec<Statement>,
    /// What to do where several layouts are right.
    pub choice: Choice,
    ranges: u32,
    locals: u32,
}

impl Nest {
    /// Takes a launch apart.
    pub fn of(loops: &LoopGraph) -> Nest {
        let mut nest = Nest {
            name: loops.name().clone(),
            statements: loops.statements().iter().map(Statement::of).collect(),
            choice: Choice::default(),
            ranges: 0,
            locals: 0,
        };
        for u in toposort(std::slice::from_ref(loops.sink())) {
            match u.op() {
                Op::Range { id, .. } => nest.ranges = nest.ranges.max(id + 1),
                Op::Local { id, .. } => nest.locals = nest.locals.max(id + 1),
                _ => {}
            }
        }
        nest
    }

    /// Puts it together again.
    ///
    /// # Errors
    /// When a rewrite broke a rule of the form.
    pub fn build(&self) -> Result<LoopGraph> {
        let statements: Vec<UOp> = self
            .statements
            .iter()
            .map(Statement::build)
            .collect::<Result<_>>()?;
        verify::loop_graph(self.name.clone(), UOp::sink(&statements))
    }

    /// A range that no statement has yet.
    ///
    /// # Errors
    /// When the extent is no index.
    pub fn range(&mut self, extent: &UOp, exec: Exec) -> Result<UOp> {
        self.ranges += 1;
        UOp::range(extent, self.ranges - 1, exec)
    }

    /// A range of constant extent.
    ///
    /// # Errors
    /// Never for an index dtype.
    pub fn count(&mut self, extent: usize, dtype: DType, exec: Exec) -> Result<UOp> {
        self.range(&UOp::int(extent as i64, dtype), exec)
    }

    /// Scratch memory that no statement has yet.
    pub fn local(&mut self, space: Space, dtype: DType, n: usize) -> UOp {
        self.locals += 1;
        UOp::local(self.locals - 1, space, dtype, n)
    }

    /// Replaces nodes in the index, values and gate of a statement, and in the extents of its
    /// ranges. Its list of ranges keeps those that `replace` does not map to another range.
    ///
    /// # Errors
    /// When a consumer does not accept a replacement.
    pub fn substitute(&mut self, statement: usize, replace: &FxHashMap<UOp, UOp>) -> Result<()> {
        let s = &mut self.statements[statement];
        let mut roots = s.roots();
        let values = s.values.len();
        roots.extend(s.ranges.iter().cloned());
        let new = substitute(&roots, replace)?;
        s.index = new[0].clone();
        s.values = new[1..=values].iter().cloned().collect();
        let gated = usize::from(s.gate.is_some());
        s.gate = s.gate.as_ref().map(|_| new[1 + values].clone());
        let ranges = new[1 + values + gated..].iter().zip(&s.ranges);
        s.ranges = ranges
            .map(|(new, old)| if is_range(new) { new } else { old })
            .cloned()
            .collect();
        Ok(())
    }
}

/// Whether a node is a loop counter.
pub fn is_range(u: &UOp) -> bool {
    matches!(u.op(), Op::Range { .. })
}

/// How a range runs.
pub fn exec_of(range: &UOp) -> Exec {
    match range.op() {
        Op::Range { exec, .. } => *exec,
        other => unreachable!("{} is no range", other.mnemonic()),
    }
}

/// The extent of a range, if that is a constant.
pub fn extent_of(range: &UOp) -> Option<usize> {
    match range.src()[0].op() {
        Op::Const(value) => usize::try_from(value.as_i128()).ok(),
        _ => None,
    }
}

/// The ranges that an expression names; extents do not count.
pub fn ranges_of(u: &UOp) -> FxHashSet<UOp> {
    let nodes = toposort(std::slice::from_ref(u));
    if nodes.iter().all(|r| !is_range(r) || extent_of(r).is_some()) {
        return nodes.into_iter().filter(is_range).collect();
    }
    // What only an extent names does not count.
    let mut found = FxHashSet::default();
    let mut met = FxHashSet::default();
    let mut stack = vec![u.clone()];
    while let Some(u) = stack.pop() {
        if is_range(&u) {
            found.insert(u);
        } else {
            let fresh = u.src().iter().filter(|s| met.insert((*s).clone()));
            stack.extend(fresh.cloned().collect::<Vec<_>>());
        }
    }
    found
}
