//! The rules of a program.
//!
//! 1. The root is a SINK of instructions: DECLARE, LOOP, ENDLOOP, IF, ENDIF, LET, STORE, BARRIER.
//! 2. Blocks nest: ENDLOOP names the RANGE of the innermost open block, ENDIF its IF, and at the
//!    end none is open. A RANGE is opened once.
//! 3. Values are scalars made of CONST, RANGE, LOAD, LET and arithmetic. A RANGE is read between its
//!    LOOP and ENDLOOP, a LET after its instruction and within the block that holds it.
//! 4. LETs have distinct ids and each is computed once.
//! 5. DECLARE names a LOCAL, once, and the LOCAL is named after it and within the block that
//!    holds it.
//! 6. A parameter of mode `in` is never written. A slot is one parameter and an id one LOCAL.
//! 7. A thread loop stands only in serial loops, and a BARRIER in no thread loop.
//! 8. `mulacc` does not combine bools.

use rustc_hash::FxHashSet;

use super::loops::exec_of;
use super::{broken, is_value, numbers_are_unique, value_sources};
use crate::error::Result;
use crate::ir::dtype::DType;
use crate::ir::op::{Combine, Exec, Op, ParamMode};
use crate::ir::uop::UOp;
use crate::ir::visit::toposort;

const FORM: &str = "program";

pub(super) fn check(sink: &UOp) -> Result<()> {
    let roots = std::slice::from_ref(sink);
    if !matches!(sink.op(), Op::Sink) {
        return Err(broken(
            FORM,
            roots,
            sink,
            "the root is a sink of instructions",
        ));
    }
    let nodes = toposort(roots);
    for u in &nodes {
        check_node(roots, u)?;
    }
    numbers_are_unique(FORM, roots, nodes.iter(), |op| {
        if let Op::Let { id } = op {
            return Some(("let", *id as u64));
        }
        super::loops::memory_number(op)
    })?;
    let mut walk = Walk {
        sink,
        blocks: Vec::new(),
        visible: FxHashSet::default(),
        introduced: FxHashSet::default(),
    };
    for instruction in sink.src() {
        walk.instruction(instruction)?;
    }
    match walk.blocks.last() {
        None => Ok(()),
        Some(block) => walk.fail(block.opener, "a block is closed before the program ends"),
    }
}

/// The state at one place in the list.
struct Walk<'p> {
    sink: &'p UOp,
    /// Open blocks, outermost first.
    blocks: Vec<Block<'p>>,
    /// The ranges, LETs and LOCALs that can be named here.
    visible: FxHashSet<&'p UOp>,
    /// Those that were ever introduced.
    introduced: FxHashSet<&'p UOp>,
}

struct Block<'p> {
    /// LOOP or IF.
    opener: &'p UOp,
    /// What became visible inside.
    inside: Vec<&'p UOp>,
}

impl<'p> Walk<'p> {
    fn instruction(&mut self, u: &'p UOp) -> Result<()> {
        match u.op() {
            Op::Declare(_) => {
                let memory = &u.src()[0];
                if !matches!(memory.op(), Op::Local { .. }) {
                    return self.fail(u, "declare names a local");
                }
                self.introduce(memory, u, "a local is declared once")
            }
            Op::Loop => self.open_loop(u),
            Op::If => {
                self.reads(u, u)?;
                self.open(u);
                Ok(())
            }
            Op::EndLoop | Op::EndIf => self.close(u),
            Op::Let { .. } => {
                self.reads(u, u)?;
                self.introduce(u, u, "a let is computed once")
            }
            Op::Store { .. } => {
                self.reads(u, u)?;
                self.check_store(u)
            }
            Op::Barrier => match self.open_ranges().any(|r| exec_of(r) == Exec::Thread) {
                true => self.fail(u, "a barrier stands in no thread loop"),
                false => Ok(()),
            },
            Op::Const(_)
            | Op::Buffer { .. }
            | Op::Param { .. }
            | Op::Iota { .. }
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
            | Op::Shr
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
            | Op::Stage(_)
            | Op::Range { .. }
            | Op::End
            | Op::Load
            | Op::Local { .. }
            | Op::Sink
            | Op::After
            | Op::Call { .. } => {
                let rule = format!("{} is no instruction", u.op().mnemonic());
                self.fail(u, rule)
            }
        }
    }

    fn open_loop(&mut self, u: &'p UOp) -> Result<()> {
        let range = &u.src()[0];
        if !matches!(range.op(), Op::Range { .. }) {
            return self.fail(u, "loop opens a range");
        }
        self.reads(range, u)?;
        let is_parallel = exec_of(range) == Exec::Thread;
        if is_parallel && self.open_ranges().any(|r| exec_of(r) != Exec::Serial) {
            return self.fail(u, "a thread loop stands only in serial loops");
        }
        self.open(u);
        self.introduce(range, u, "a range is opened once")
    }

    fn open(&mut self, opener: &'p UOp) {
        let inside = Vec::new();
        self.blocks.push(Block { opener, inside });
    }

    fn close(&mut self, u: &'p UOp) -> Result<()> {
        let named = &u.src()[0];
        let fits = self.blocks.last().is_some_and(|block| {
            if matches!(u.op(), Op::EndIf) {
                return block.opener == named;
            }
            matches!(block.opener.op(), Op::Loop) && block.opener.src()[0] == *named
        });
        if !fits {
            let op = u.op().mnemonic();
            return self.fail(u, format!("{op} closes the innermost open block"));
        }
        for name in self.blocks.pop().into_iter().flat_map(|block| block.inside) {
            self.visible.remove(name);
        }
        Ok(())
    }

    /// Makes a range, LET or LOCAL visible until its block closes.
    fn introduce(&mut self, name: &'p UOp, u: &UOp, rule: &str) -> Result<()> {
        if !self.introduced.insert(name) {
            return self.fail(u, rule);
        }
        self.visible.insert(name);
        if let Some(block) = self.blocks.last_mut() {
            block.inside.push(name);
        }
        Ok(())
    }

    /// Checks that everything the sources of `u` name is visible at the instruction.
    fn reads(&self, u: &UOp, instruction: &UOp) -> Result<()> {
        let mut met: FxHashSet<&UOp> = FxHashSet::default();
        let mut stack: Vec<&UOp> = u.src().iter().collect();
        while let Some(s) = stack.pop() {
            let is_name = matches!(s.op(), Op::Range { .. } | Op::Let { .. } | Op::Local { .. });
            if is_name && !self.visible.contains(s) {
                let op = s.op().mnemonic();
                let name = super::quote(std::slice::from_ref(self.sink), s);
                let rule = format!("a {op} is named where it is visible, unlike {name}");
                return self.fail(instruction, rule);
            }
            if !is_name {
                stack.extend(s.src().iter().filter(|s| met.insert(s)));
            }
        }
        Ok(())
    }

    fn check_store(&self, u: &UOp) -> Result<()> {
        let memory = &u.src()[0];
        if let Op::Param {
            mode: ParamMode::In,
            ..
        } = memory.op()
        {
            return self.fail(u, "a parameter of mode in is never written");
        }
        if let Op::Store {
            combine: Combine::MulAcc,
            ..
        } = u.op()
            && memory.dtype() == DType::Bool
        {
            return self.fail(u, "mulacc does not combine bools; use max and and");
        }
        Ok(())
    }

    fn open_ranges(&self) -> impl Iterator<Item = &'p UOp> + '_ {
        let openers = self.blocks.iter().map(|block| block.opener);
        openers
            .filter(|u| matches!(u.op(), Op::Loop))
            .map(|u| &u.src()[0])
    }

    fn fail<T>(&self, u: &UOp, rule: impl AsRef<str>) -> Result<T> {
        Err(broken(FORM, std::slice::from_ref(self.sink), u, rule))
    }
}

/// Rule 3, as far as it concerns single nodes.
fn check_node(roots: &[UOp], u: &UOp) -> Result<()> {
    let fail = |rule: String| Err(broken(FORM, roots, u, rule));
    let op = u.op().mnemonic();
    match u.op() {
        Op::Const(_) | Op::Param { .. } | Op::Local { .. } | Op::Declare(_) | Op::Barrier => Ok(()),
        Op::Loop | Op::EndLoop | Op::EndIf => Ok(()),
        Op::Sink => match u == &roots[0] {
            true => Ok(()),
            false => fail("the only sink is the root".into()),
        },
        Op::Range { .. }
        | Op::Load
        | Op::Store { .. }
        | Op::If
        | Op::Let { .. }
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
        Op::End => fail("end belongs to loop graphs".into()),
        Op::After | Op::Call { .. } => fail(format!("{op} belongs to plans")),
    }
}
