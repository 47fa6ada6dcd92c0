//! Render: a linear [`Program`] as a C function that reads like one written by hand.
//!
//! Parameter N is `dataN`, scratch N is `accN` (`scratchN` if the caller provides it), a loop
//! counter `ridxN`, in order of first appearance; a named value is `valN` if it was loaded, else
//! `aluN`. Every binary expression stands in parentheses.
//!
//! ```
//! use uopc::backend::c::render::render;
//! use uopc::ir::op::{Combine, Exec, Op, ParamMode};
//! use uopc::ir::{DType, UOp, verify};
//!
//! # fn main() -> uopc::Result<()> {
//! let x = UOp::param(0, ParamMode::In, DType::F32, 3);
//! let y = UOp::param(1, ParamMode::Out, DType::F32, 3);
//! let i = UOp::range(&UOp::int(3, DType::I32), 0, Exec::Serial)?;
//! let v = UOp::new(Op::Let { id: 1 }, [x.load(&i, None)?].as_slice())?;
//! let store = y.store(&i, &[&v + &UOp::float(1.0, DType::F32)], Combine::Set, None)?;
//! let open = UOp::new(Op::Loop, [i.clone()].as_slice())?;
//! let close = UOp::new(Op::EndLoop, [i].as_slice())?;
//! let program = verify::program("add_one", UOp::sink(&[open, v, store, close]))?;
//! let text = "\
//! void add_one(float* restrict data0, float* restrict data1) {
//!   for (int ridx0 = 0; ridx0 < 3; ridx0++) {
//!     float val1 = data0[ridx0];
//!     data1[ridx0] = (val1+1.0f);
//!   }
//! }
//! ";
//! assert_eq!(render(&program), text);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeSet;
use std::fmt::Write;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::prelude::Helper;
use super::scalar::{bare, c_type, call, literal};
use crate::ir::bounds::Bounds;
use crate::ir::form::{Program, params};
use crate::ir::op::{Combine, Exec, Op, ParamMode, ReduceOp, Space};
use crate::ir::{DType, Scalar, UOp};

/// Scratch of up to this many bytes stands on the stack; more is memory that the caller provides.
pub const STACK_LIMIT: usize = 16 << 10;

/// Loops of up to this many rounds are unrolled where the program allows it.
const UNROLL_LIMIT: i128 = 64;

/// What a compiled kernel takes, in the order of its C parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Argument {
    /// The kernel's parameter of that slot.
    Param {
        /// The slot.
        slot: u32,
        /// Whether it is written.
        mode: ParamMode,
        /// Its size.
        bytes: usize,
    },
    /// Memory to work in, of unspecified content.
    Scratch {
        /// Its size.
        bytes: usize,
        /// Whether each of the team's threads has memory of its own, of that size rounded up to
        /// 64 bytes, one after the other.
        per_worker: bool,
    },
}

/// A kernel in C, without its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// From the parameter list to the closing brace.
    pub text: String,
    /// The names of its parameters are in `text`; these are their meanings.
    pub arguments: Vec<Argument>,
    /// What it calls.
    pub helpers: BTreeSet<Helper>,
}

/// The C function of a program.
pub fn render(program: &Program) -> String {
    format!("void {}{}", program.name(), kernel(program).text)
}

/// The C function of a program, in parts.
pub fn kernel(program: &Program) -> Kernel {
    let mut c = Renderer {
        fused: fused_memory(program),
        ..Renderer::default()
    };
    let mut parameters = Vec::new();
    let mut arguments = Vec::new();
    for (slot, mode, dtype, n) in params(program.sink()) {
        // Only a takeover reads and writes through one pointer; no two parameters ever overlap.
        let restrict = match mode {
            ParamMode::In | ParamMode::Out => " restrict",
            ParamMode::InOut => "",
        };
        parameters.push(format!("{}*{restrict} data{slot}", c_type(dtype)));
        let bytes = n.saturating_mul(dtype.size());
        arguments.push(Argument::Param { slot, mode, bytes });
    }
    for u in program.instructions() {
        c.instruction(u);
    }
    for (name, dtype, n) in &c.scratch {
        parameters.push(format!("{}* restrict {name}", c_type(*dtype)));
        let bytes = n.saturating_mul(dtype.size());
        arguments.push(Argument::Scratch {
            bytes,
            per_worker: false,
        });
    }
    let list = match parameters.is_empty() {
        true => "void".to_string(),
        false => parameters.join(", "),
    };
    let text = format!("({list}) {{\n{}}}\n", c.lines);
    Kernel {
        text,
        arguments,
        helpers: c.helpers,
    }
}

/// The function's body as far as it is written.
#[derive(Default)]
struct Renderer {
    lines: String,
    /// How many blocks are open.
    depth: usize,
    /// What each node is called or spelled. The nodes live as long as the program.
    spelled: FxHashMap<usize, Rc<str>>,
    ranges: usize,
    locals: usize,
    /// Scratch that the caller provides: name, element type and length.
    scratch: Vec<(String, DType, usize)>,
    helpers: BTreeSet<Helper>,
    /// See [`fused_memory`].
    fused: FxHashSet<UOp>,
    bounds: Bounds,
}

impl Renderer {
    fn line(&mut self, text: &str) {
        let indent = 2 * (self.depth + 1);
        writeln!(self.lines, "{:indent$}{text}", "").expect("a string takes all text");
    }

    fn open(&mut self, text: &str) {
        self.line(text);
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    fn name(&mut self, u: &UOp, name: String) {
        self.spelled.insert(u.address(), name.into());
    }

    fn instruction(&mut self, u: &UOp) {
        match u.op() {
            Op::Declare(combine) => self.declare(&u.src()[0], *combine),
            Op::Loop => self.open_loop(&u.src()[0]),
            Op::If => {
                let condition = self.expression(&u.src()[0]);
                self.open(&format!("if ({}) {{", bare(&condition)));
            }
            Op::EndLoop | Op::EndIf => self.close(),
            Op::Let { id } => {
                let value = &u.src()[0];
                let kind = if matches!(value.op(), Op::Load) {
                    "val"
                } else {
                    "alu"
                };
                let name = format!("{kind}{id}");
                let text = self.expression(value);
                self.line(&format!("{} {name} = {text};", c_type(u.dtype())));
                self.name(u, name);
            }
            Op::Store { combine, gated } => self.store(u, *combine, *gated),
            // Loops run one after the other here, so all before a barrier is done.
            Op::Barrier => {}
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
            | Op::Call { .. } => unreachable!("a verified program has no instruction {u:?}"),
        }
    }

    /// Scratch begins, at the identity of its combining stores.
    fn declare(&mut self, local: &UOp, combine: Option<Combine>) {
        let Op::Local {
            space, dtype, n, ..
        } = *local.op()
        else {
            unreachable!("a verified program declares locals, not {local:?}");
        };
        let number = self.locals;
        self.locals += 1;
        let start = combine.and_then(|combine| identity(combine, dtype));
        let start = start.map(literal);
        let provided = space == Space::Arena || n.saturating_mul(dtype.size()) > STACK_LIMIT;
        if n == 1 && !provided {
            let name = format!("acc{number}");
            let start = start.map_or(String::new(), |value| format!(" = {value}"));
            self.line(&format!("{} {name}{start};", c_type(dtype)));
            self.name(local, name);
            return;
        }
        let name = if provided {
            let name = format!("scratch{number}");
            self.scratch.push((name.clone(), dtype, n));
            name
        } else {
            let name = format!("acc{number}");
            self.line(&format!("{} {name}[{n}];", c_type(dtype)));
            name
        };
        if let Some(value) = start {
            let counter = if n > i32::MAX as usize { "long" } else { "int" };
            self.line(&format!(
                "for ({counter} i = 0; i < {n}; i++) {name}[i] = {value};"
            ));
        }
        self.name(local, name);
    }

    fn open_loop(&mut self, range: &UOp) {
        let Op::Range { exec, .. } = range.op() else {
            unreachable!("a verified program loops over ranges, not {range:?}");
        };
        let extent = self.expression(&range.src()[0]);
        // Kinds of loops are permissions. Threads and vectors come with their passes.
        match exec {
            Exec::Serial | Exec::Vector | Exec::Thread => {}
            Exec::Unroll => {
                let rounds = self.bounds.of(&range.src()[0]).value();
                if let Some(rounds @ 2..=UNROLL_LIMIT) = rounds {
                    self.line(&format!("#pragma GCC unroll {rounds}"));
                }
            }
        }
        let name = match self.spelled.get(&range.address()) {
            Some(name) => name.to_string(),
            None => {
                self.ranges += 1;
                format!("ridx{}", self.ranges - 1)
            }
        };
        let counter = c_type(range.dtype());
        self.open(&format!(
            "for ({counter} {name} = 0; {name} < {extent}; {name}++) {{"
        ));
        self.name(range, name);
    }

    fn store(&mut self, u: &UOp, combine: Combine, gated: bool) {
        let gate = gated.then(|| u.src().last().expect("a gated store has a gate"));
        if let Some(gate) = gate {
            let condition = self.expression(gate);
            self.open(&format!("if ({}) {{", bare(&condition)));
        }
        let target = self.element(&u.src()[0], &u.src()[1]);
        let value = self.expression(&u.src()[2]);
        let dtype = u.src()[0].dtype();
        let value = match combine {
            Combine::Set => value,
            Combine::Add => self
                .apply(&Op::Add, dtype, &[dtype; 2], &[&*target, &value])
                .into(),
            Combine::Max => self
                .apply(&Op::Max, dtype, &[dtype; 2], &[&*target, &value])
                .into(),
            Combine::Mul => self
                .apply(&Op::Mul, dtype, &[dtype; 2], &[&*target, &value])
                .into(),
            Combine::MulAcc => {
                let b = self.expression(&u.src()[3]);
                let args: [&str; 3] = [&value, &b, &target];
                self.apply(&Op::MulAcc, dtype, &[dtype; 3], &args).into()
            }
        };
        self.line(&format!("{target} = {value};"));
        if gate.is_some() {
            self.close();
        }
    }

    /// `data0[ridx0]`, or the name alone for a local of one element.
    fn element(&mut self, memory: &UOp, index: &UOp) -> String {
        let name = self.expression(memory);
        if matches!(memory.op(), Op::Local { n: 1, space, .. } if *space != Space::Arena) {
            return name.to_string();
        }
        let index = self.expression(index);
        format!("{name}[{index}]")
    }

    /// A value as C, its sources first. Nodes that are named already are read by name.
    fn expression(&mut self, root: &UOp) -> Rc<str> {
        let mut pending = vec![root.clone()];
        while let Some(u) = pending.last().cloned() {
            if self.spelled.contains_key(&u.address()) {
                pending.pop();
                continue;
            }
            let before = pending.len();
            let unknown = |s: &&UOp| !self.spelled.contains_key(&s.address());
            pending.extend(u.src().iter().filter(unknown).cloned());
            if pending.len() == before {
                pending.pop();
                let text = self.spell(&u);
                self.name(&u, text);
            }
        }
        self.spelled[&root.address()].clone()
    }

    /// A node whose sources are spelled.
    fn spell(&mut self, u: &UOp) -> String {
        match u.op() {
            Op::Const(value) => literal(*value),
            Op::Param { slot, .. } => format!("data{slot}"),
            Op::Load => {
                let element = self.element(&u.src()[0], &u.src()[1]);
                match u.src().get(2) {
                    // C evaluates one side only, so a false gate reads nothing.
                    Some(gate) => {
                        let gate = self.expression(gate);
                        let zero = literal(Scalar::zero(u.dtype()));
                        format!("({gate}?{element}:{zero})")
                    }
                    None => element,
                }
            }
            Op::FloorDiv if self.divides_plainly(u) => self.infix(u, '/'),
            Op::FloorMod if self.divides_plainly(u) => self.infix(u, '%'),
            Op::Add
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
            | Op::Shr => {
                if let Some(negated) = self.negated_sum(u) {
                    return negated;
                }
                let sources: Vec<DType> = u.src().iter().map(UOp::dtype).collect();
                let args: Vec<Rc<str>> = u.src().iter().map(|s| self.expression(s)).collect();
                let args: Vec<&str> = args.iter().map(|a| &**a).collect();
                self.apply(u.op(), u.dtype(), &sources, &args)
            }
            Op::Buffer { .. }
            | Op::Iota { .. }
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
            | Op::Store { .. }
            | Op::Local { .. }
            | Op::Sink
            | Op::After
            | Op::Call { .. }
            | Op::Loop
            | Op::EndLoop
            | Op::If
            | Op::EndIf
            | Op::Let { .. }
            | Op::Declare(_)
            | Op::Barrier => unreachable!("a verified program reads no {u:?} before it is set"),
        }
    }

    fn apply(&mut self, op: &Op, dtype: DType, sources: &[DType], args: &[&str]) -> String {
        let (text, helpers) = call(op, dtype, sources, args);
        self.helpers.extend(helpers);
        text
    }

    /// C rounds towards zero and leaves a division by zero undefined; neither matters for a
    /// dividend that is not negative and a positive divisor.
    fn divides_plainly(&mut self, u: &UOp) -> bool {
        self.bounds.of(&u.src()[0]).lo >= 0 && self.bounds.of(&u.src()[1]).lo > 0
    }

    /// The negation of a fused multiply-add, if the node is one: gcc 12 would fuse that too, which
    /// gives an exact zero the wrong sign.
    fn negated_sum(&mut self, u: &UOp) -> Option<String> {
        let sum = negated(u).filter(|sum| is_fused(sum, &self.fused))?;
        let sum = self.expression(sum);
        let negate = Helper::Negate(u.dtype());
        self.helpers.insert(negate);
        Some(format!("{}({})", negate.name(), bare(&sum)))
    }

    fn infix(&mut self, u: &UOp, symbol: char) -> String {
        let (a, b) = (self.expression(&u.src()[0]), self.expression(&u.src()[1]));
        format!("({a}{symbol}{b})")
    }
}

/// What a product or quotient with -1 negates.
fn negated(u: &UOp) -> Option<&UOp> {
    let minus_one = |s: &UOp| matches!(s.op(), Op::Const(v) if v.as_f64() == -1.0);
    if !matches!(u.dtype(), DType::F32 | DType::F64) {
        return None;
    }
    match u.src() {
        [x, k] if minus_one(k) => Some(x),
        [k, x] if minus_one(k) && *u.op() == Op::Mul => Some(x),
        _ => None,
    }
}

/// Memory of the program that may hold the result of a fused multiply-add.
fn fused_memory(program: &Program) -> FxHashSet<UOp> {
    let mut fused = FxHashSet::default();
    // Each round follows copies one memory further.
    loop {
        let before = fused.len();
        for u in program.instructions() {
            if let Op::Store { combine, .. } = u.op() {
                let copied = *combine == Combine::Set && is_fused(&u.src()[2], &fused);
                if *combine == Combine::MulAcc || copied {
                    fused.insert(u.src()[0].clone());
                }
            }
        }
        if fused.len() == before {
            return fused;
        }
    }
}

/// Whether a value is a fused multiply-add, or memory may hold one for it.
fn is_fused(u: &UOp, memory: &FxHashSet<UOp>) -> bool {
    let mut value = u;
    while matches!(value.op(), Op::Let { .. }) {
        value = &value.src()[0];
    }
    *value.op() == Op::MulAcc || *value.op() == Op::Load && memory.contains(&value.src()[0])
}

/// Where a combining store starts. A chain of fused multiply-adds starts at +0.0.
fn identity(combine: Combine, dtype: DType) -> Option<Scalar> {
    match combine {
        Combine::Set => None,
        Combine::Add => Some(Scalar::identity(ReduceOp::Add, dtype)),
        Combine::Max => Some(Scalar::identity(ReduceOp::Max, dtype)),
        Combine::Mul => Some(Scalar::identity(ReduceOp::Mul, dtype)),
        Combine::MulAcc => Some(Scalar::zero(dtype)),
    }
}
