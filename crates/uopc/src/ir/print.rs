//! Any graph as `.uir` text, in linear time.
//!
//! Nodes are numbered from the roots, depth first, sources left to right, so the text of a graph
//! depends on nothing but the graph. Constants stand inline and take no number. Live buffers
//! are printed as slots: the lowest numbers that no text slot of the graph has, in order of first
//! appearance. `docs/reference/uir.md` holds the grammar, [`super::parse`] reads the text back.

use std::fmt::{self, Write};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::form::{LoopGraph, Program, ShapeGraph};
use super::op::{BufferId, Combine, Exec, Fold, Op};
use super::shape::write_tuple;
use super::uop::UOp;
use super::visit::Graph;

/// The version of the text form, as in `; uir 1`.
pub const VERSION: u32 = 1;

/// The text of the graph under the roots.
///
/// ```
/// use uopc::ir::{DType, UOp, print::to_uir};
///
/// let x = UOp::slot(0, DType::F32, 3);
/// let y = x.mul(&x).expect("one type");
/// assert_eq!(to_uir(&[y]), "%0 = buffer 3 : dtype=f32 slot=0\n%1 = mul %0, %0\n");
/// ```
pub fn to_uir(roots: &[UOp]) -> String {
    to_uir_with(roots, None, &[])
}

/// [`to_uir`] with a comment behind each node that says where it was written and by which rule, where
/// that is known. Read back, it is the same graph, whose nodes come from nowhere.
///
/// ```
/// use uopc::autodiff::gradient;
/// use uopc::ir::{DType, UOp, print::to_uir_with_origins};
///
/// let x = UOp::slot(0, DType::F32, 3);
/// let y = x.sin()?.reduce(uopc::ir::op::ReduceOp::Add, 1)?;
/// let text = to_uir_with_origins(&gradient(&y, &[x])?);
/// assert!(text.contains("= sin %2, 1 ; vjp of sin\n"), "{text}");
/// # Ok::<(), uopc::Error>(())
/// ```
pub fn to_uir_with_origins(roots: &[UOp]) -> String {
    let mut listing = Listing::new(roots);
    listing.origins = true;
    let mut out = String::new();
    (listing.write(&mut out, None, &[])).expect("a String accepts everything");
    out
}

/// [`to_uir`] with a `; name:` line in front and `; why` lines behind it.
pub fn to_uir_with(roots: &[UOp], name: Option<&str>, notes: &[(UOp, Arc<str>)]) -> String {
    let listing = Listing::new(roots);
    let mut out = String::new();
    (listing.write(&mut out, name, notes)).expect("a String accepts everything");
    out
}

impl UOp {
    /// The text of the graph under this node.
    pub fn to_uir(&self) -> String {
        to_uir(std::slice::from_ref(self))
    }
}

impl ShapeGraph {
    /// The graph as text.
    pub fn to_uir(&self) -> String {
        to_uir(self.roots())
    }
}

impl LoopGraph {
    /// The graph as text, with its name.
    pub fn to_uir(&self) -> String {
        to_uir_with(std::slice::from_ref(self.sink()), Some(self.name()), &[])
    }
}

impl Program {
    /// The program as text, with its name.
    pub fn to_uir(&self) -> String {
        to_uir_with(std::slice::from_ref(self.sink()), Some(self.name()), &[])
    }
}

/// A graph with the numbers that its nodes and its live buffers have in text.
pub struct Listing {
    graph: Graph,
    /// The number of each node, in the order of the graph; a constant's is not used.
    numbers: Vec<u32>,
    /// Slots given to live buffers, by identity.
    slots: FxHashMap<u64, u32>,
    /// Whether a comment says where each node is from.
    origins: bool,
}

impl Listing {
    /// Numbers the graph under the roots.
    pub fn new(roots: &[UOp]) -> Listing {
        let graph = Graph::new(roots);
        let mut numbers = Vec::with_capacity(graph.len());
        let mut next = 0;
        for u in &graph.nodes {
            numbers.push(next);
            next += !matches!(u.op(), Op::Const(_)) as u32;
        }
        let slots = slots_of_live_buffers(&graph);
        Listing {
            graph,
            numbers,
            slots,
            origins: false,
        }
    }

    /// The line of a node of the graph, such as `%3 = mul %1, %2`; a constant's literal. A node
    /// outside the graph is described by its types.
    pub fn line(&self, u: &UOp) -> String {
        let Some(i) = self.graph.position(u) else {
            return format!("{u:?}");
        };
        let mut out = String::new();
        let written = match u.op() {
            Op::Const(value) => write!(out, "{value}"),
            _ => self.write_line(&mut out, i),
        };
        written.expect("a String accepts everything");
        out
    }

    fn write(
        &self,
        out: &mut String,
        name: Option<&str>,
        notes: &[(UOp, Arc<str>)],
    ) -> fmt::Result {
        if let Some(name) = name {
            writeln!(out, "; name: {}", Name(name))?;
        }
        for (i, u) in self.graph.nodes.iter().enumerate() {
            if !matches!(u.op(), Op::Const(_)) {
                self.write_line(out, i)?;
                if let Some(site) = u.site().filter(|_| self.origins) {
                    write!(out, " ; {}", Comment(site))?;
                }
                out.push('\n');
            }
        }
        // Without this line the last node is the root: right for one root, unless it is a
        // constant, which has no line.
        let root_is_last = match self.graph.roots[..] {
            [root] => !matches!(self.graph.nodes[root as usize].op(), Op::Const(_)),
            _ => false,
        };
        if !root_is_last {
            out.push_str("; roots:");
            for (k, &root) in self.graph.roots.iter().enumerate() {
                out.push_str(if k == 0 { " " } else { ", " });
                write!(out, "{}", self.operand(root))?;
            }
            out.push('\n');
        }
        for (u, text) in notes {
            if let Some(i) = self.graph.position(u) {
                writeln!(out, "; why {}: {}", self.operand(i as u32), Note(text))?;
            }
        }
        Ok(())
    }

    /// One node: `%N = mnemonic operands : attributes`.
    fn write_line(&self, out: &mut String, i: usize) -> fmt::Result {
        let op = self.graph.nodes[i].op();
        write!(out, "%{} = {}", self.numbers[i], op.mnemonic())?;
        let src = self.graph.src(i);
        // A gate is the last source and reads best by name.
        let gated = match op {
            Op::Load => src.len() > 2,
            Op::Store { gated, .. } => *gated,
            _ => false,
        };
        let mut line = Line::new(out);
        let plain = src.len() - gated as usize;
        for &s in &src[..plain] {
            line.operand(self.operand(s))?;
        }
        self.write_arguments(&mut line, op)?;
        if gated {
            line.attribute("gate", self.operand(src[plain]))?;
        }
        Ok(())
    }

    fn write_arguments(&self, line: &mut Line, op: &Op) -> fmt::Result {
        match op {
            Op::Buffer { id, dtype, n } => {
                let slot = match id {
                    BufferId::Slot(slot) => *slot,
                    BufferId::Live(memory) => self.slots[&memory.id],
                };
                line.operand(n)?;
                line.attribute("dtype", dtype)?;
                line.attribute("slot", slot)
            }
            Op::Param {
                slot,
                mode,
                dtype,
                n,
            } => {
                line.operand(n)?;
                line.attribute("dtype", dtype)?;
                line.attribute("slot", slot)?;
                line.attribute("mode", mode.name())
            }
            Op::Local {
                id,
                space,
                dtype,
                n,
            } => {
                line.operand(n)?;
                line.attribute("dtype", dtype)?;
                line.attribute("id", id)?;
                line.attribute("space", space.name())
            }
            Op::Iota { n, dtype } => {
                line.operand(n)?;
                line.attribute("dtype", dtype)
            }
            Op::Sin(0) => Ok(()),
            Op::Sin(k) => line.operand(k),
            Op::Cast(dtype) | Op::Bitcast(dtype) => line.operand(dtype),
            Op::Reshape(shape) | Op::Expand(shape) | Op::ScatterAdd(shape) => line.operand(shape),
            Op::Permute(order) => line.operand(Order(order)),
            Op::Shrink(bounds) => line.operand(Bounds(bounds)),
            Op::Reduce { op, n, fold } => {
                line.operand(op.name())?;
                line.operand(n)?;
                match fold {
                    Fold::Lanes => Ok(()),
                    Fold::Chain => line.attribute("fold", fold.name()),
                }
            }
            Op::Scan(op) => line.operand(op.name()),
            Op::Custom(custom) => line.attribute("name", Name(&custom.name)),
            Op::Stage(kind) => line.operand(kind.name()),
            Op::Range { id, exec } => {
                line.attribute("id", id)?;
                match exec {
                    Exec::Serial => Ok(()),
                    Exec::Unroll | Exec::Vector | Exec::Thread => {
                        line.attribute("exec", exec.name())
                    }
                }
            }
            Op::Store { combine, .. } => match combine {
                Combine::Set => Ok(()),
                Combine::Add | Combine::Max | Combine::Mul | Combine::MulAcc => {
                    line.attribute("combine", combine.name())
                }
            },
            Op::Call { name, outs } => {
                line.attribute("name", Name(name))?;
                line.attribute("outs", outs)
            }
            Op::Let { id } => line.attribute("id", id),
            Op::Declare(Some(combine)) => line.attribute("identity", combine.name()),
            Op::Declare(None)
            | Op::Const(_)
            | Op::Add
            | Op::Mul
            | Op::Max
            | Op::Recip
            | Op::Div
            | Op::Exp2
            | Op::Log2
            | Op::Exp
            | Op::Sqrt
            | Op::Trunc
            | Op::MulAcc
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
            | Op::Stack
            | Op::Index
            | Op::ArgSort
            | Op::End
            | Op::Load
            | Op::Sink
            | Op::After
            | Op::Loop
            | Op::EndLoop
            | Op::If
            | Op::EndIf
            | Op::Barrier => Ok(()),
        }
    }

    fn operand(&self, i: u32) -> Operand<'_> {
        match self.graph.nodes[i as usize].op() {
            Op::Const(value) => Operand::Literal(value),
            _ => Operand::Number(self.numbers[i as usize]),
        }
    }
}

/// What an op is called where people read it: with what it casts to, combines by or is named.
pub fn named(u: &UOp) -> String {
    match u.op() {
        Op::Stage(kind) => format!("stage {}", kind.name()),
        Op::Cast(to) => format!("cast to {to}"),
        Op::Bitcast(to) => format!("bitcast to {to}"),
        Op::Reduce { op, .. } => format!("reduce {}", op.name()),
        Op::Custom(custom) => format!("custom {}", custom.name),
        op => op.mnemonic().to_string(),
    }
}

/// Numbers for the live buffers of a graph: the lowest that no text slot has.
fn slots_of_live_buffers(graph: &Graph) -> FxHashMap<u64, u32> {
    let ids = || {
        graph.nodes.iter().filter_map(|u| match u.op() {
            Op::Buffer { id, .. } => Some(id),
            _ => None,
        })
    };
    let taken: FxHashSet<u32> = ids()
        .filter_map(|id| match id {
            BufferId::Slot(slot) => Some(*slot),
            BufferId::Live(_) => None,
        })
        .collect();
    let mut free = (0..=u32::MAX).filter(|slot| !taken.contains(slot));
    let mut slots = FxHashMap::default();
    for id in ids() {
        if let BufferId::Live(memory) = id {
            let slot = || free.next().expect("a graph has fewer than 2^32 buffers");
            slots.entry(memory.id).or_insert_with(slot);
        }
    }
    slots
}

/// Puts the separators between the parts of a line.
struct Line<'a> {
    out: &'a mut String,
    operands: usize,
    attributes: usize,
}

impl Line<'_> {
    fn new(out: &mut String) -> Line<'_> {
        Line {
            out,
            operands: 0,
            attributes: 0,
        }
    }

    fn operand(&mut self, operand: impl fmt::Display) -> fmt::Result {
        let separator = if self.operands == 0 { " " } else { ", " };
        self.operands += 1;
        write!(self.out, "{separator}{operand}")
    }

    fn attribute(&mut self, key: &str, value: impl fmt::Display) -> fmt::Result {
        let separator = if self.attributes == 0 { " : " } else { " " };
        self.attributes += 1;
        write!(self.out, "{separator}{key}={value}")
    }
}

enum Operand<'a> {
    Literal(&'a super::scalar::Scalar),
    Number(u32),
}

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Operand::Literal(value) => write!(f, "{value}"),
            Operand::Number(number) => write!(f, "%{number}"),
        }
    }
}

struct Order<'a>(&'a [u8]);

impl fmt::Display for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write_tuple(f, self.0.iter())
    }
}

struct Bounds<'a>(&'a [(usize, usize)]);

impl fmt::Display for Bounds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write_tuple(f, self.0.iter().map(Window))
    }
}

struct Window<'a>(&'a (usize, usize));

impl fmt::Display for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "({}, {})", self.0.0, self.0.1)
    }
}

/// True for the characters of which words, numbers and names without quotes consist.
pub(super) fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '+')
}

/// A name, in quotes if it is more than a word.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if !self.0.is_empty() && self.0.chars().all(is_word_char) {
            return f.write_str(self.0);
        }
        write_quoted(f, self.0)
    }
}

/// Free text to the end of the line, in quotes if it would not come back the same.
struct Note<'a>(&'a str);

impl fmt::Display for Note<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let plain = self.0.trim() == self.0 && !self.0.starts_with('"') && !self.0.is_empty();
        if plain && !self.0.contains(char::is_control) {
            return f.write_str(self.0);
        }
        write_quoted(f, self.0)
    }
}

/// A place on one line, whatever a file is called.
struct Comment(super::site::Site);

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(&text.replace(char::is_control, " "))
    }
}

fn write_quoted(f: &mut fmt::Formatter, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}
