//! Render: a linear [`Program`] as a C function that reads like one written by hand.
//!
//! Parameter N is `dataN`, scratch N is `accN` (`scratchN` if the caller provides it), a loop
//! counter `ridxN`, in order of first appearance; a named value is `valN` if it was loaded, else
//! `aluN`. Every binary expression stands in parentheses.
//!
//! Kinds of loops are permissions, and this is where they are used. A vector loop is straight code
//! on vectors (`lanes`); unroll loops that index registers are written out
//! (`registers`); the body of a thread loop and the tile of a contraction are
//! functions of their own (`frame`, `nests`). A program with such
//! loops counts in `long` and writes indices as sums, which compilers turn into pointers that move. A
//! program without them looks as it always did.
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

use rustc_hash::{FxHashMap, FxHashSet};

use super::frame::{Frame, Kind, Opened};
use super::lanes::{Lanes, vectorise};
use super::prelude::Helper;
use super::registers::{Layout, layouts, written_out};
use super::scalar::{bare, c_type};
use super::steps::{self, Block, Step};
use super::{nests, share, tiles};
use crate::ir::bounds::Bounds;
use crate::ir::form::{Program, params};
use crate::ir::op::{Combine, Exec, Op, ParamMode};
use crate::ir::{DType, UOp};

/// Scratch of up to this many bytes stands on the stack; more is memory that the caller provides.
pub const STACK_LIMIT: usize = 16 << 10;

/// Loops of up to this many rounds are unrolled where the program allows it.
const UNROLL_LIMIT: i128 = 64;

/// Stands for the kernel's name in the text of a [`Kernel`].
pub(super) const NAME: char = '\0';

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
        /// Whether each thread of the team has its own: that of worker w begins at w times the
        /// size, which is rounded up to a multiple of 64.
        per_worker: bool,
    },
}

/// A kernel in C, without its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// The functions that it has its thread loops' bodies in.
    parts: String,
    /// From its parameter list to its closing brace.
    text: String,
    /// The names of its parameters are in its text; these are their meanings.
    pub arguments: Vec<Argument>,
    /// What it calls.
    pub helpers: BTreeSet<Helper>,
    /// Whether its first parameter is the team.
    pub threads: bool,
}

impl Kernel {
    /// The C functions of the kernel under that name.
    pub fn named(&self, name: &str) -> String {
        self.function("void", name)
    }

    /// The same, with what stands before the kernel's name.
    pub(super) fn function(&self, result: &str, name: &str) -> String {
        let text = format!("{}{result} {NAME}{}", self.parts, self.text);
        text.replace(NAME, name)
    }
}

/// Functions that several kernels may call, each text once.
#[derive(Default)]
pub struct Nests {
    texts: Vec<String>,
}

impl Nests {
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.texts.len()).map(|k| format!("nest{k}"))
    }

    /// Those that a text calls, by number.
    pub fn called(&self, text: &str) -> BTreeSet<usize> {
        let calls = text.match_indices("nest").filter_map(|(at, name)| {
            let rest = &text[at + name.len()..];
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            rest[..digits].parse().ok()
        });
        calls.filter(|&k: &usize| k < self.texts.len()).collect()
    }

    /// The size of some of them.
    pub fn bytes(&self, some: &BTreeSet<usize>) -> usize {
        some.iter().map(|&k| self.texts[k].len()).sum()
    }

    /// The C definitions of some of them.
    pub fn text(&self, some: &BTreeSet<usize>) -> String {
        let mut all = String::new();
        for (k, name) in self.names().enumerate().filter(|(k, _)| some.contains(k)) {
            let text = &self.texts[k];
            // A call per tile is nothing; copies in every kernel would cost the time to compile them.
            writeln!(all, "static __attribute__((noinline)) void {name}{text}")
                .expect("a string takes all text");
        }
        all
    }

    /// The name of the function with this text, from its parameter list on.
    pub(super) fn name(&mut self, text: String) -> String {
        let known = self.texts.iter().position(|t| *t == text);
        let k = known.unwrap_or_else(|| {
            self.texts.push(text);
            self.texts.len() - 1
        });
        format!("nest{k}")
    }
}

/// The C functions of a program.
pub fn render(program: &Program) -> String {
    let mut nests = Nests::default();
    let kernel = kernel(program, &mut nests);
    let all = (0..nests.texts.len()).collect();
    format!("{}{}", nests.text(&all), kernel.named(program.name()))
}

/// The C functions of a program, in parts; those that other kernels may share go to `nests`.
pub fn kernel(program: &Program, nests: &mut Nests) -> Kernel {
    let (steps, renderer) = prepare(program, nests);
    let mut c = renderer;
    let mut parameters = Vec::new();
    let mut arguments = Vec::new();
    for (slot, mode, dtype, n) in params(program.sink()) {
        let restrict = restrict(mode);
        parameters.push(format!("{}*{restrict} data{slot}", c_type(dtype)));
        let bytes = n.saturating_mul(dtype.size());
        arguments.push(Argument::Param { slot, mode, bytes });
    }
    let closers = steps::closers(&steps);
    let mut outermost = 0;
    while outermost < steps.len() {
        let block = &steps[outermost..=closers[outermost]];
        // Where others may go on with what was stored around the cache.
        c.fence();
        c.streamed = streamed(block);
        c.steps(block);
        outermost += block.len();
    }
    for scratch in &c.scratch {
        let (name, dtype) = (&scratch.name, scratch.dtype);
        parameters.push(format!("{}* restrict {name}", c_type(dtype)));
        arguments.push(Argument::Scratch {
            bytes: scratch.n.saturating_mul(dtype.size()),
            per_worker: scratch.per_worker,
        });
    }
    if c.threads {
        parameters.insert(0, "struct uopc_team* team".into());
    }
    let list = match parameters.is_empty() {
        true => "void".to_string(),
        false => parameters.join(", "),
    };
    c.fence();
    let body = c.frames[0].body();
    Kernel {
        parts: c.parts,
        text: format!("({list}) {{\n{body}}}\n"),
        arguments,
        helpers: c.helpers,
        threads: c.threads,
    }
}

/// Only a takeover reads and writes through one pointer; no two parameters ever overlap.
pub(super) fn restrict(mode: ParamMode) -> &'static str {
    match mode {
        ParamMode::In | ParamMode::Out => " restrict",
        ParamMode::InOut => "",
    }
}

/// The steps in the form in which they are rendered, and what is known about them.
fn prepare<'n>(program: &Program, nests: &'n mut Nests) -> (Vec<Step>, Renderer<'n>) {
    let mut steps = steps::steps(program);
    let mut bounds = Bounds::new();
    let mut names = steps::highest_name(&steps);
    steps = tiles::tiles(steps, &mut bounds);
    let ranges = written_out(&steps);
    if !ranges.is_empty() {
        steps = steps::write_out(steps, &ranges, &mut names);
    }
    let (mut steps, mut lanes) = vectorise(&steps, &mut bounds, &mut names);
    let threads = steps.iter().any(|step| match step {
        Step::Open(Block::Loop(range)) => is_thread(range),
        Step::Declare(..)
        | Step::Let(_)
        | Step::Store(_)
        | Step::Tile(_)
        | Step::Open(_)
        | Step::Close => false,
    });
    let wide = threads || !lanes.is_empty() || !ranges.is_empty();
    let mut layouts = FxHashMap::default();
    if wide {
        steps = steps::name_loads(steps, &mut names);
        layouts = self::layouts(&steps, &mut lanes, &mut bounds);
        for memory in crossing(&steps) {
            let lanes = match layouts.get(&memory) {
                Some(Layout::Variables(lanes) | Layout::Array(lanes)) => *lanes,
                None => 1,
            };
            layouts.insert(memory, Layout::Array(lanes));
        }
        steps = nests::nests(steps, &layouts, &mut lanes);
        steps = share::share(&steps, &mut lanes, &mut names);
    }
    let renderer = Renderer {
        frames: vec![Frame::new(Kind::Kernel)],
        at: 0,
        wide,
        threads,
        lanes,
        layouts,
        bounds,
        streamed: FxHashSet::default(),
        fused: fused_memory(&steps),
        parts: String::new(),
        contexts: 0,
        ranges: 0,
        locals: 0,
        scratch: Vec::new(),
        helpers: BTreeSet::new(),
        nests,
    };
    (steps, renderer)
}

pub(super) fn is_thread(range: &UOp) -> bool {
    matches!(
        range.op(),
        Op::Range {
            exec: Exec::Thread,
            ..
        }
    )
}

/// Scratch memory that is named inside and outside of a thread loop, or by a tile: functions get it
/// by its address.
fn crossing(steps: &[Step]) -> Vec<UOp> {
    let mut declared: FxHashMap<&UOp, usize> = FxHashMap::default();
    let mut found = Vec::new();
    // Which thread loop is open, by number; 0 is none.
    let (mut part, mut parts) = (0, 0);
    let mut open: Vec<usize> = Vec::new();
    for step in steps {
        let mut named: Vec<UOp> = steps::loads(step)
            .iter()
            .map(|u| u.src()[0].clone())
            .collect();
        match step {
            Step::Declare(memory, _) => {
                declared.insert(memory, part);
            }
            Step::Store(u) => named.push(u.src()[0].clone()),
            Step::Tile(tile) => found.extend(tile.memories.iter().cloned()),
            Step::Open(block) => {
                open.push(part);
                if matches!(block, Block::Loop(range) if is_thread(range)) {
                    parts += 1;
                    part = parts;
                }
            }
            Step::Close => part = open.pop().unwrap_or(0),
            Step::Let(_) => {}
        }
        found.extend(
            named
                .into_iter()
                .filter(|u| declared.get(u).is_some_and(|p| *p != part)),
        );
    }
    found
}

/// Scratch that the caller provides.
pub(super) struct Scratch {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) n: usize,
    pub(super) per_worker: bool,
}

/// The functions as far as they are written.
pub(super) struct Renderer<'n> {
    /// The functions that are being written: the kernel, in it a thread loop's, in it a nest's.
    pub(super) frames: Vec<Frame>,
    /// The one that expressions are spelled for: the last, or one around it for an argument.
    pub(super) at: usize,
    /// Whether loops count in `long` and indices are sums.
    pub(super) wide: bool,
    threads: bool,
    pub(super) lanes: Lanes,
    pub(super) layouts: FxHashMap<UOp, Layout>,
    pub(super) bounds: Bounds,
    /// Parameters that are so large, and not read in the outermost block that is being written,
    /// that stores go around the cache.
    pub(super) streamed: FxHashSet<UOp>,
    /// See [`fused_memory`].
    pub(super) fused: FxHashSet<UOp>,
    pub(super) parts: String,
    pub(super) contexts: usize,
    ranges: usize,
    locals: usize,
    pub(super) scratch: Vec<Scratch>,
    pub(super) helpers: BTreeSet<Helper>,
    pub(super) nests: &'n mut Nests,
}

impl Renderer<'_> {
    pub(super) fn frame(&mut self) -> &mut Frame {
        &mut self.frames[self.at]
    }

    pub(super) fn line(&mut self, text: &str) {
        self.frame().line(text);
    }

    fn open(&mut self, text: &str) {
        self.line(text);
        self.frame().depth += 1;
    }

    fn steps(&mut self, steps: &[Step]) {
        let mut rest = steps;
        while let [step, behind @ ..] = rest {
            if let Some((store, words)) = self.dot_of(rest) {
                self.store(store, Some(&words));
                rest = &behind[1..];
            } else {
                self.step(step);
                rest = behind;
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Declare(memory, start) => self.declare(memory, *start),
            Step::Let(u) => self.named_value(u),
            Step::Store(u) => self.store(u, None),
            Step::Tile(tile) => self.tile(tile),
            Step::Open(Block::Loop(range)) if is_thread(range) => self.open_part(range),
            Step::Open(Block::Loop(range)) => self.open_loop(range),
            Step::Open(Block::If(condition)) => {
                let condition = self.expression(condition);
                self.open(&format!("if ({}) {{", bare(&condition)));
                self.frame().blocks.push(Opened::Braces);
            }
            Step::Open(Block::Lanes(condition)) => self.open_lanes(condition),
            Step::Open(Block::Nest) => self.open_nest(),
            Step::Close => self.close(),
        }
    }

    fn close(&mut self) {
        let opened = match self.frame().blocks.pop() {
            Some(opened) => opened,
            // The blocks of the function are closed, so this closes the function.
            None => return self.close_function(),
        };
        let frame = self.frame();
        match opened {
            Opened::Braces => frame.close(),
            Opened::Lanes { conditional } => {
                frame.masks.pop();
                if conditional {
                    frame.close();
                }
            }
        }
    }

    /// What runs in some lanes only: under a condition, as far as it is one for all lanes.
    fn open_lanes(&mut self, condition: &UOp) {
        let parts = share::conjuncts(condition);
        let (of_lanes, scalar): (Vec<UOp>, Vec<UOp>) =
            parts.into_iter().partition(|u| self.lanes.of(u) > 1);
        let conditional = !scalar.is_empty();
        if conditional {
            let text: Vec<_> = scalar.iter().map(|u| self.expression(u)).collect();
            let text = match &text[..] {
                [one] => bare(one).to_string(),
                _ => text.join(" && "),
            };
            self.open(&format!("if ({text}) {{"));
        }
        let frame = self.frame();
        frame.masks.push(of_lanes);
        frame.blocks.push(Opened::Lanes { conditional });
    }

    fn open_loop(&mut self, range: &UOp) {
        let Op::Range { exec, .. } = range.op() else {
            unreachable!("a verified program loops over ranges, not {range:?}");
        };
        let extent = self.extent(&range.src()[0]);
        match exec {
            // Those that are left are loops: see `lanes` and `registers`.
            Exec::Serial | Exec::Vector | Exec::Thread => {}
            Exec::Unroll => {
                let rounds = self.bounds.of(&range.src()[0]).value();
                if let Some(rounds @ 2..=UNROLL_LIMIT) = rounds {
                    self.line(&format!("#pragma GCC unroll {rounds}"));
                }
            }
        }
        let name = self.counter(range);
        let counter = match self.wide {
            true => "long",
            false => c_type(range.dtype()),
        };
        self.open(&format!(
            "for ({counter} {name} = 0; {name} < {extent}; {name}++) {{"
        ));
        self.frame().blocks.push(Opened::Braces);
    }

    /// The name of a range in the function that opens its loop.
    pub(super) fn counter(&mut self, range: &UOp) -> String {
        if let Some(name) = self.frame().counters.get(range) {
            return name.clone();
        }
        let is_nest = matches!(self.frame().kind, Kind::Nest);
        let number = match is_nest {
            true => &mut self.frames[self.at].ranges,
            false => &mut self.ranges,
        };
        let name = format!("ridx{number}");
        *number += 1;
        let frame = self.frame();
        frame.counters.insert(range.clone(), name.clone());
        frame.introduced.insert(range.clone());
        name
    }

    /// The number of the next scratch memory of the function.
    pub(super) fn next_local(&mut self) -> usize {
        let is_nest = matches!(self.frame().kind, Kind::Nest);
        let number = match is_nest {
            true => &mut self.frames[self.at].locals,
            false => &mut self.locals,
        };
        *number += 1;
        *number - 1
    }
}

/// From this many bytes on, an output that a loop does not read stays out of the cache: what reads
/// it later would not find it there anyway.
const STREAMED: usize = 32 << 20;

/// The parameters whose stores in an outermost block may go around the cache.
fn streamed(block: &[Step]) -> FxHashSet<UOp> {
    let (mut set, mut others) = (FxHashSet::default(), FxHashSet::default());
    for step in block {
        others.extend(steps::loads(step).iter().map(|u| u.src()[0].clone()));
        if let Step::Store(u) = step {
            let sets = matches!(
                u.op(),
                Op::Store {
                    combine: Combine::Set,
                    ..
                }
            );
            let memory = u.src()[0].clone();
            match sets {
                true => set.insert(memory),
                false => others.insert(memory),
            };
        }
    }
    set.retain(|u| {
        let large = matches!(u.op(), Op::Param { mode: ParamMode::Out, dtype, n, .. }
            if n.saturating_mul(dtype.size()) > STREAMED);
        large && !others.contains(u)
    });
    set
}

/// Memory that may hold the result of a fused multiply-add.
fn fused_memory(steps: &[Step]) -> FxHashSet<UOp> {
    let mut fused = FxHashSet::default();
    // Each round follows copies one memory further.
    loop {
        let before = fused.len();
        for step in steps {
            if let Step::Store(u) = step
                && let Op::Store { combine, .. } = u.op()
            {
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
pub(super) fn is_fused(u: &UOp, memory: &FxHashSet<UOp>) -> bool {
    let mut value = u;
    while matches!(value.op(), Op::Let { .. }) {
        value = &value.src()[0];
    }
    *value.op() == Op::MulAcc || *value.op() == Op::Load && memory.contains(&value.src()[0])
}
