//! The instructions of a program in a form that can be cut and copied: blocks that nest, with what
//! is known about each.
//!
//! A program's list is verified and each of its names is introduced once. What the renderer makes of
//! it is not a program any more: an unrolled loop is there once for each of its rounds, a vector
//! loop is no loop, and a nest that becomes a function of its own is a block. Steps say that.

use rustc_hash::{FxHashMap, FxHashSet};

use super::fold::Folder;
use super::tiles::Tile;
use crate::ir::form::Program;
use crate::ir::op::{Combine, Op};
use crate::ir::{DType, Scalar, UOp};

/// One instruction, or one end of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Scratch memory begins, at the identity of a combine if there is one.
    Declare(UOp, Option<Combine>),
    /// A LET: its value gets a name.
    Let(UOp),
    /// A STORE without a gate: gates are blocks.
    Store(UOp),
    /// A product of tiles.
    Tile(Box<Tile>),
    /// A block opens.
    Open(Block),
    /// The innermost block closes.
    Close,
}

/// What a block is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Block {
    /// The loop of a range.
    Loop(UOp),
    /// What runs if a scalar condition holds.
    If(UOp),
    /// What runs in the lanes in which a condition holds.
    Lanes(UOp),
    /// What becomes a function of its own.
    Nest,
}

/// The steps of a program, one for each instruction; a gated store is two more.
pub(super) fn steps(program: &Program) -> Vec<Step> {
    let mut steps = Vec::new();
    for u in program.instructions() {
        match u.op() {
            Op::Declare(start) => steps.push(Step::Declare(u.src()[0].clone(), *start)),
            Op::Let { .. } => steps.push(Step::Let(u.clone())),
            Op::Store { gated: false, .. } => steps.push(Step::Store(u.clone())),
            Op::Store {
                combine,
                gated: true,
            } => {
                let (gate, rest) = u.src().split_last().expect("a gated store has a gate");
                let ungated = Op::Store {
                    combine: *combine,
                    gated: false,
                };
                let store = UOp::new(ungated, rest).expect("a store is a store without its gate");
                steps.push(Step::Open(Block::If(gate.clone())));
                steps.push(Step::Store(store));
                steps.push(Step::Close);
            }
            Op::Loop => steps.push(Step::Open(Block::Loop(u.src()[0].clone()))),
            Op::If => steps.push(Step::Open(Block::If(u.src()[0].clone()))),
            Op::EndLoop | Op::EndIf => steps.push(Step::Close),
            // A thread loop is done when the team is; other loops run one after the other.
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
    steps
}

/// For each step that opens a block the step that closes it; other steps stand for themselves.
pub(super) fn closers(steps: &[Step]) -> Vec<usize> {
    let mut closers: Vec<usize> = (0..steps.len()).collect();
    let mut open = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Open(_) => open.push(i),
            Step::Close => {
                let opener: usize = open.pop().expect("blocks nest");
                closers[opener] = i;
            }
            Step::Declare(..) | Step::Let(_) | Step::Store(_) | Step::Tile(_) => {}
        }
    }
    closers
}

impl Step {
    /// The expressions that it computes or accesses; of a loop, its extent.
    pub(super) fn reads(&self) -> &[UOp] {
        match self {
            Step::Let(u) | Step::Store(u) => u.src(),
            Step::Tile(tile) => &tile.scalars,
            Step::Open(Block::Loop(range)) => range.src(),
            Step::Open(Block::If(u) | Block::Lanes(u)) => std::slice::from_ref(u),
            Step::Declare(..) | Step::Open(Block::Nest) | Step::Close => &[],
        }
    }
}

/// Writes the loops of the given ranges out: each of their rounds becomes a copy in which the range
/// is a constant and what follows from constants is computed. LETs and scratch memory of copies are
/// told apart by new numbers behind `names`.
pub(super) fn write_out(steps: Vec<Step>, ranges: &FxHashSet<UOp>, names: &mut u32) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    let mut pending: Vec<Step> = steps;
    pending.reverse();
    while let Some(step) = pending.pop() {
        let rounds = match &step {
            Step::Open(Block::Loop(range)) if ranges.contains(range) => constant(&range.src()[0]),
            _ => None,
        };
        let (Some(rounds), Step::Open(Block::Loop(range))) = (rounds, &step) else {
            out.push(step);
            continue;
        };
        let body = take_body(&mut pending);
        for round in (0..rounds).rev() {
            let at = UOp::constant(Scalar::from_i128(range.dtype(), round));
            let mut copy = copy(&body, range, &at, Some(names));
            copy.reverse();
            pending.extend(copy);
        }
    }
    out
}

/// The value of a constant integer.
pub(super) fn constant(u: &UOp) -> Option<i128> {
    if let Op::Const(value) = u.op() {
        return Some(value.as_i128());
    }
    None
}

/// The steps of the block that has just been opened, without its end. `pending` is in reverse.
fn take_body(pending: &mut Vec<Step>) -> Vec<Step> {
    let mut body = Vec::new();
    let mut depth = 0;
    while let Some(step) = pending.pop() {
        match &step {
            Step::Open(_) => depth += 1,
            Step::Close if depth == 0 => break,
            Step::Close => depth -= 1,
            Step::Declare(..) | Step::Let(_) | Step::Store(_) | Step::Tile(_) => {}
        }
        body.push(step);
    }
    body
}

/// The steps with a range at one of its values, or as another range. If there will be several
/// copies, `names` is the last number that is taken.
pub(super) fn copy(body: &[Step], range: &UOp, at: &UOp, mut names: Option<&mut u32>) -> Vec<Step> {
    let mut number = |old: u32| match &mut names {
        Some(last) => {
            **last += 1;
            **last
        }
        None => old,
    };
    let mut folder = Folder::default();
    folder.set(range, at);
    let mut copied = Vec::with_capacity(body.len());
    let mut skipped = 0;
    let mut dropped: Vec<bool> = Vec::new();
    for step in body {
        if skipped > 0 {
            match step {
                Step::Open(_) => skipped += 1,
                Step::Close => skipped -= 1,
                Step::Declare(..) | Step::Let(_) | Step::Store(_) | Step::Tile(_) => {}
            }
            continue;
        }
        match step {
            Step::Declare(memory, start) => {
                let made = renumbered(memory, &mut number);
                folder.set(memory, &made);
                copied.push(Step::Declare(made, *start));
            }
            Step::Let(u) => {
                let value = folder.of(&u.src()[0]);
                if matches!(value.op(), Op::Const(_) | Op::Let { .. }) {
                    folder.set(u, &value);
                    continue;
                }
                let Op::Let { id } = *u.op() else {
                    unreachable!("the step of a name is a LET");
                };
                let op = Op::Let { id: number(id) };
                let made = UOp::new(op, [value].as_slice()).expect("a LET takes any scalar");
                folder.set(u, &made);
                copied.push(Step::Let(made));
            }
            Step::Store(u) => copied.push(Step::Store(folder.of(u))),
            Step::Tile(tile) => copied.push(Step::Tile(Box::new(tile.mapped(|u| folder.of(u))))),
            Step::Open(block) => {
                let condition = |u: &UOp, folder: &mut Folder| {
                    let u = folder.of(u);
                    let known = constant(&u).filter(|_| u.dtype() == DType::Bool);
                    (u, known.map(|value| value != 0))
                };
                let block = match block {
                    Block::Loop(inner) => Block::Loop(folder.range(inner)),
                    Block::If(u) | Block::Lanes(u) => match condition(u, &mut folder) {
                        (_, Some(false)) => {
                            skipped = 1;
                            continue;
                        }
                        (_, Some(true)) => {
                            dropped.push(true);
                            continue;
                        }
                        (u, None) if matches!(block, Block::If(_)) => Block::If(u),
                        (u, None) => Block::Lanes(u),
                    },
                    Block::Nest => Block::Nest,
                };
                dropped.push(false);
                copied.push(Step::Open(block));
            }
            Step::Close => {
                if dropped.pop() == Some(false) {
                    copied.push(Step::Close);
                }
            }
        }
    }
    copied
}

/// Scratch memory under another number.
fn renumbered(memory: &UOp, number: &mut impl FnMut(u32) -> u32) -> UOp {
    let Op::Local {
        id,
        space,
        dtype,
        n,
    } = *memory.op()
    else {
        return memory.clone();
    };
    UOp::local(number(id), space, dtype, n)
}

/// The highest number of a LET, of scratch memory or of a range.
pub(super) fn highest_name(steps: &[Step]) -> u32 {
    let number = |u: &UOp| {
        if let Op::Let { id } | Op::Local { id, .. } | Op::Range { id, .. } = u.op() {
            return *id;
        }
        0
    };
    let numbers = steps.iter().map(|step| match step {
        Step::Let(u) | Step::Declare(u, _) | Step::Open(Block::Loop(u)) => number(u),
        Step::Store(_) | Step::Tile(_) | Step::Open(_) | Step::Close => 0,
    });
    numbers.max().unwrap_or(0)
}

/// Gives each load that stands inside an expression a name, so that all loads are LETs.
pub(super) fn name_loads(steps: Vec<Step>, names: &mut u32) -> Vec<Step> {
    let mut out = Vec::with_capacity(steps.len());
    // From LETs as they were to LETs of named loads.
    let mut renamed: FxHashMap<UOp, UOp> = FxHashMap::default();
    for step in steps {
        let own = match &step {
            Step::Let(u) => Some(u.src()[0].clone()),
            Step::Declare(..) | Step::Store(_) | Step::Tile(_) | Step::Open(_) | Step::Close => {
                None
            }
        };
        let (mut inner, named) = loads_and_names(&step);
        inner.retain(|u| Some(u) != own.as_ref());
        let mut folder = Folder::default();
        let mut is_same = inner.is_empty();
        for old in named {
            if let Some(new) = renamed.get(old) {
                folder.set(old, new);
                is_same = false;
            }
        }
        if is_same {
            out.push(step);
            continue;
        }
        // A load may depend on others, which come behind it in the list.
        for load in inner.into_iter().rev() {
            let value = folder.of(&load);
            *names += 1;
            let name = UOp::new(Op::Let { id: *names }, [value].as_slice());
            let name = name.expect("a LET takes any scalar");
            folder.set(&load, &name);
            out.push(Step::Let(name));
        }
        out.push(match step {
            Step::Let(u) => {
                let value = folder.of(&u.src()[0]);
                let new = u.with_src(&[value]).expect("a LET takes any scalar");
                if new != u {
                    renamed.insert(u, new.clone());
                }
                Step::Let(new)
            }
            Step::Store(u) => Step::Store(folder.of(&u)),
            Step::Open(Block::If(u)) => Step::Open(Block::If(folder.of(&u))),
            Step::Tile(tile) => Step::Tile(Box::new(tile.mapped(|u| folder.of(u)))),
            step => step,
        });
    }
    out
}

/// For each memory the steps that access it: `(step, the LOAD or STORE)`.
pub(super) fn accesses(steps: &[Step]) -> FxHashMap<UOp, Vec<(usize, UOp)>> {
    let mut all: FxHashMap<UOp, Vec<(usize, UOp)>> = FxHashMap::default();
    for (i, step) in steps.iter().enumerate() {
        for u in loads(step) {
            all.entry(u.src()[0].clone()).or_default().push((i, u));
        }
        if let Step::Store(u) = step {
            let known = all.entry(u.src()[0].clone()).or_default();
            known.push((i, u.clone()));
        }
    }
    all
}

/// The LOADs that a step does itself: not those behind names.
pub(super) fn loads(step: &Step) -> Vec<UOp> {
    loads_and_names(step).0
}

/// The LOADs that a step does itself, and the LETs that it reads.
fn loads_and_names(step: &Step) -> (Vec<UOp>, Vec<&UOp>) {
    let (mut loads, mut names) = (Vec::new(), Vec::new());
    let mut met: FxHashSet<&UOp> = FxHashSet::default();
    let mut pending: Vec<&UOp> = step.reads().iter().rev().collect();
    while let Some(u) = pending.pop() {
        if matches!(u.op(), Op::Let { .. }) {
            names.push(u);
            continue;
        }
        // Most of what an expression reads are leaves, which need no note.
        let is_leaf = matches!(u.op(), Op::Range { .. }) || u.src().is_empty();
        if is_leaf || !met.insert(u) {
            continue;
        }
        if matches!(u.op(), Op::Load) {
            loads.push(u.clone());
        }
        pending.extend(u.src().iter().rev());
    }
    (loads, names)
}
