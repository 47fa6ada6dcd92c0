//! The C functions of a kernel: its own, those of its thread loops, and those of its tiles.
//!
//! A thread loop's body is a function that the team calls, `part(context, i, worker)`. What it names
//! of the kernel's stands in a struct on the kernel's stack and keeps its names. A nest is a
//! function of pointers and integers: whatever does not depend on its own loops is an argument, so
//! that its text is the same wherever the operands come from.

use std::fmt::Write;

use rustc_hash::{FxHashMap, FxHashSet};

use super::render::{NAME, Renderer, restrict};
use super::scalar::{bare, c_type};
use super::vector::{self, vector_type};
use crate::ir::affine::{Linear, is_exact};
use crate::ir::op::Op;
use crate::ir::{DType, UOp};

/// A function as far as it is written.
pub(super) struct Frame {
    pub(super) kind: Kind,
    lines: Vec<String>,
    /// How many blocks are open in C.
    pub(super) depth: usize,
    /// Names of integers whose lines are not written yet, see [`Frame::postpone`]: where, and how
    /// deep.
    postponed: FxHashMap<UOp, (usize, usize)>,
    /// What each value is called or spelled.
    pub(super) spelled: FxHashMap<UOp, std::rc::Rc<str>>,
    /// The counters of loops.
    pub(super) counters: FxHashMap<UOp, String>,
    /// Ranges, names and memory that belong to the function.
    pub(super) introduced: FxHashSet<UOp>,
    /// What it gets from outside, in order.
    pub(super) given: Vec<Given>,
    /// Steps that opened blocks.
    pub(super) blocks: Vec<Opened>,
    /// The conditions of the lanes that compute, outermost first.
    pub(super) masks: Vec<Vec<UOp>>,
    /// Whether stores went around the cache.
    pub(super) streams: bool,
    /// Whether it multiplies tiles.
    pub(super) tiles: bool,
    /// How many ranges, scratch memories and names a nest has.
    pub(super) ranges: usize,
    pub(super) locals: usize,
    pub(super) names: usize,
}

/// What a function is.
pub(super) enum Kind {
    /// The kernel.
    Kernel,
    /// The body of a thread loop.
    Part {
        /// Its range.
        range: UOp,
    },
    /// A nest.
    Nest,
}

/// What the end of a block has to do.
pub(super) enum Opened {
    /// A block of C.
    Braces,
    /// Lanes, and perhaps a block of C.
    Lanes {
        /// Whether it is one.
        conditional: bool,
    },
}

/// A value that a function gets from outside.
pub(super) struct Given {
    /// Its type in C, and how the function declares it.
    c_type: String,
    qualifier: &'static str,
    name: String,
    /// What it is outside.
    value: String,
    /// The memory that it points into.
    memory: Option<UOp>,
}

impl Frame {
    pub(super) fn new(kind: Kind) -> Frame {
        Frame {
            kind,
            lines: Vec::new(),
            depth: 0,
            postponed: FxHashMap::default(),
            spelled: FxHashMap::default(),
            counters: FxHashMap::default(),
            introduced: FxHashSet::default(),
            given: Vec::new(),
            blocks: Vec::new(),
            masks: Vec::new(),
            streams: false,
            tiles: false,
            ranges: 0,
            locals: 0,
            names: 0,
        }
    }

    pub(super) fn line(&mut self, text: &str) {
        let line = self.indented(text);
        self.lines.push(line);
    }

    fn indented(&self, text: &str) -> String {
        let indent = 2 * (self.depth + 1);
        format!("{:indent$}{text}\n", "")
    }

    /// The lines together.
    pub(super) fn text(&self) -> String {
        self.lines.concat()
    }

    /// The lines of a function that a thread runs: tiles need a state of the thread's.
    pub(super) fn body(&self) -> String {
        match self.tiles {
            true => format!(
                "  bf16_tiles_begin();\n{}  bf16_tiles_end();\n",
                self.text()
            ),
            false => self.text(),
        }
    }

    /// Keeps a place for the line of a name, which is written when the name is first used.
    pub(super) fn postpone(&mut self, u: &UOp) {
        self.postponed
            .insert(u.clone(), (self.lines.len(), self.depth));
        self.lines.push(String::new());
    }

    /// Whether the line of a name is still to be written.
    pub(super) fn is_postponed(&self, u: &UOp) -> bool {
        self.postponed.contains_key(u)
    }

    /// Writes the line of a name at its place.
    pub(super) fn write_postponed(&mut self, u: &UOp, text: &str) {
        let Some((at, depth)) = self.postponed.remove(u) else {
            return self.line(text);
        };
        let now = std::mem::replace(&mut self.depth, depth);
        self.lines[at] = self.indented(text);
        self.depth = now;
    }

    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    pub(super) fn name(&mut self, u: &UOp, name: String) {
        self.spelled.insert(u.clone(), name.into());
    }

    fn is_nest(&self) -> bool {
        matches!(self.kind, Kind::Nest)
    }
}

impl Renderer<'_> {
    fn enter(&mut self, kind: Kind) {
        self.frames.push(Frame::new(kind));
        self.at = self.frames.len() - 1;
    }

    fn leave(&mut self) -> Frame {
        let frame = self.frames.pop().expect("a function is open");
        self.at = self.frames.len() - 1;
        frame
    }

    /// What `spell` spells for the function around this one.
    fn outside<T>(&mut self, spell: impl FnOnce(&mut Self) -> T) -> T {
        self.at -= 1;
        let spelled = spell(self);
        self.at += 1;
        spelled
    }

    pub(super) fn open_part(&mut self, range: &UOp) {
        let kind = Kind::Part {
            range: range.clone(),
        };
        self.enter(kind);
        let name = self.counter(range);
        self.line(&format!("long {name} = i;"));
    }

    pub(super) fn open_nest(&mut self) {
        self.enter(Kind::Nest);
    }

    pub(super) fn close_function(&mut self) {
        self.fence();
        let frame = self.leave();
        match &frame.kind {
            Kind::Kernel => unreachable!("blocks nest, so the last one closed is not the kernel"),
            Kind::Part { range } => self.close_part(&frame, range),
            Kind::Nest => self.close_nest(&frame),
        }
    }

    /// Writes the function of a thread loop, and the call of the team in its place.
    fn close_part(&mut self, frame: &Frame, range: &UOp) {
        let k = self.contexts;
        self.contexts += 1;
        let extent = self.extent(&range.src()[0]);
        let (mut fields, mut reads) = (String::new(), String::new());
        for given in &frame.given {
            let Given {
                c_type,
                qualifier,
                name,
                ..
            } = given;
            writeln!(fields, "  {c_type} {name};").expect("a string takes all text");
            let at = match self.scratch.iter().find(|s| s.name == *name) {
                // Pieces begin at multiples of 64 bytes.
                Some(s) if s.per_worker => {
                    let bytes = s.n.saturating_mul(s.dtype.size());
                    let piece = bytes.next_multiple_of(64) / s.dtype.size();
                    format!(" + worker * {piece}")
                }
                _ => String::new(),
            };
            writeln!(
                reads,
                "  {c_type}{qualifier} {name} = context{k}->{name}{at};"
            )
            .expect("a string takes all text");
        }
        let values: Vec<&str> = frame.given.iter().map(|g| g.value.as_str()).collect();
        let body = frame.body();
        if values.is_empty() {
            write!(
                self.parts,
                "static void {NAME}_part{k}(void* context, long i, long worker) {{\n{body}}}\n\n"
            )
            .expect("a string takes all text");
            self.line(&format!("team->run(team, {NAME}_part{k}, 0, {extent});"));
            return;
        }
        write!(
            self.parts,
            "struct {NAME}_context{k} {{\n{fields}}};\n\
             static void {NAME}_part{k}(void* context, long i, long worker) {{\n  \
             struct {NAME}_context{k}* context{k} = context;\n{reads}{body}}}\n\n"
        )
        .expect("a string takes all text");
        self.line(&format!(
            "struct {NAME}_context{k} context{k} = {{ {} }};",
            values.join(", ")
        ));
        self.line(&format!(
            "team->run(team, {NAME}_part{k}, &context{k}, {extent});"
        ));
    }

    /// Writes the function of a nest, and its call.
    fn close_nest(&mut self, frame: &Frame) {
        let pointers = |memory: &UOp| {
            let into = frame
                .given
                .iter()
                .filter(|g| g.memory.as_ref() == Some(memory));
            into.count()
        };
        let parameter = |given: &Given| {
            let alone = given.memory.as_ref().is_some_and(|m| pointers(m) == 1);
            let qualifier = if alone { given.qualifier } else { "" };
            format!("{}{qualifier} {}", given.c_type, given.name)
        };
        let parameters: Vec<String> = frame.given.iter().map(parameter).collect();
        let list = match parameters.is_empty() {
            true => "void".to_string(),
            false => parameters.join(", "),
        };
        let name = self
            .nests
            .name(format!("({list}) {{\n{}}}\n", frame.text()));
        let values: Vec<&str> = frame.given.iter().map(|g| bare(&g.value)).collect();
        self.line(&format!("{name}({});", values.join(", ")));
        if frame.streams {
            self.frame().streams = true;
        }
    }

    /// Ends what stores around the cache began, where others may go on with it.
    pub(super) fn fence(&mut self) {
        let frame = self.frame();
        if frame.streams && !frame.is_nest() {
            frame.streams = false;
            let (text, helpers) = vector::fence();
            self.helpers.extend(helpers);
            self.line(&format!("{text};"));
        }
    }

    // ---- what comes from outside ----

    /// Whether a value of a nest depends on nothing in it.
    pub(super) fn is_argument(&mut self, u: &UOp) -> bool {
        if !self.frame().is_nest() || matches!(u.op(), Op::Const(_)) || self.lanes.of(u) > 1 {
            return false;
        }
        // Conditions stay inside as far as they are made of comparisons: there are many of them,
        // and they differ by constants.
        let is_condition = u.dtype() == DType::Bool && matches!(u.op(), Op::And | Op::CmpLt);
        !is_condition && !self.is_own(u)
    }

    /// Whether a value names something that belongs to the function.
    pub(super) fn is_own(&mut self, root: &UOp) -> bool {
        let introduced = &self.frames[self.at].introduced;
        let mut met: FxHashSet<&UOp> = FxHashSet::default();
        let mut pending = vec![root];
        while let Some(u) = pending.pop() {
            if introduced.contains(u) || matches!(u.op(), Op::Load) || self.lanes.has(u) {
                return true;
            }
            if !matches!(u.op(), Op::Range { .. } | Op::Let { .. }) {
                pending.extend(u.src().iter().filter(|s| met.insert(s)));
            }
        }
        false
    }

    /// The name of a range, name or memory that the function did not introduce.
    pub(super) fn outer_name(&mut self, u: &UOp) -> String {
        let is_kernel = matches!(self.frame().kind, Kind::Kernel);
        if let (Op::Param { slot, .. }, true) = (u.op(), is_kernel) {
            return format!("data{slot}");
        }
        assert!(
            !is_kernel,
            "a verified program reads no {u:?} before it is set"
        );
        let is_range = matches!(u.op(), Op::Range { .. });
        let is_memory = matches!(u.op(), Op::Param { .. } | Op::Local { .. });
        let value = self.outside(|c| match is_range {
            true => c.range(u),
            false => c.expression(u).to_string(),
        });
        let lanes = self.lanes.of(u);
        let c_type = match (is_range, is_memory) {
            (true, _) => "long".into(),
            (_, true) => format!("{}*", c_type(u.dtype())),
            _ if lanes > 1 => vector_type(u.dtype(), lanes),
            _ => c_type(u.dtype()).into(),
        };
        let qualifier = if is_memory { pointer_qualifier(u) } else { "" };
        let memory = is_memory.then(|| u.clone());
        if self.frame().is_nest() {
            return self.argument(&c_type, qualifier, value, memory);
        }
        // A part of a kernel calls things as the kernel does.
        let given = Given {
            c_type,
            qualifier,
            name: value.clone(),
            value: value.clone(),
            memory,
        };
        self.frame().given.push(given);
        value
    }

    /// Scratch that the kernel gets from its caller and a thread loop's body from the kernel.
    pub(super) fn give_scratch(&mut self, name: &str, dtype: DType) {
        self.frame().given.push(Given {
            c_type: format!("{}*", c_type(dtype)),
            qualifier: " restrict",
            name: name.into(),
            value: name.into(),
            memory: None,
        });
    }

    /// What a sum is for the function around this one.
    pub(super) fn outside_sum(&mut self, sum: &Linear) -> String {
        self.outside(|c| c.sum(sum))
    }

    /// The parameter of a nest for a value outside.
    pub(super) fn argument(
        &mut self,
        c_type: &str,
        qualifier: &'static str,
        value: String,
        memory: Option<UOp>,
    ) -> String {
        let frame = self.frame();
        let same = |g: &&Given| g.value == value && g.c_type == c_type;
        if let Some(known) = frame.given.iter().find(same) {
            return known.name.clone();
        }
        let letter = if memory.is_some() { 'p' } else { 'n' };
        let of_kind = |g: &&Given| g.memory.is_some() == memory.is_some();
        let number = frame.given.iter().filter(of_kind).count();
        let name = format!("{letter}{number}");
        frame.given.push(Given {
            c_type: c_type.into(),
            qualifier,
            name: name.clone(),
            value,
            memory,
        });
        name
    }

    /// A scalar that a nest gets as an argument.
    pub(super) fn scalar_argument(&mut self, u: &UOp) -> String {
        let value = self.outside(|c| c.expression(u).to_string());
        self.argument(c_type(u.dtype()), "", value, None)
    }

    /// The extent of a loop. In a nest it is an argument even if it is a constant, unless that is
    /// so small that the loop may be unrolled: equal tiles differ in how far they go.
    pub(super) fn extent(&mut self, extent: &UOp) -> String {
        const SMALL: i128 = 16;
        if !self.wide {
            return self.expression(extent).to_string();
        }
        let constant = super::steps::constant(extent);
        if self.frame().is_nest() && !self.is_own(extent) && constant.is_none_or(|n| n > SMALL) {
            let value = self.outside(|c| c.index(extent));
            return self.argument("long", "", value, None);
        }
        self.index(extent)
    }

    /// The pointer that a nest gets for memory outside: to the element at the terms of the index
    /// that do not depend on the nest. The result is the pointer and the other terms.
    pub(super) fn pointer_argument(
        &mut self,
        memory: &UOp,
        index: &UOp,
    ) -> (String, Option<Linear>) {
        let (c_type, qualifier) = (c_type(memory.dtype()), pointer_qualifier(memory));
        let exact = is_exact(index, &mut self.bounds);
        let (own, others) = match exact {
            true => {
                let sum = Linear::of(index);
                let own: Vec<bool> = sum.terms.iter().map(|(u, _)| self.is_own(u)).collect();
                let mut own = own.into_iter();
                let (own, others) = sum.split(|_| own.next() == Some(true));
                (Some(own), others)
            }
            false => (None, Linear::default()),
        };
        let value = self.outside(|c| {
            let name = c.expression(memory);
            match others.terms.is_empty() {
                true => name.to_string(),
                false => format!("{name}+{}", c.sum(&others)),
            }
        });
        let pointer = self.argument(
            &format!("{c_type}*"),
            qualifier,
            value,
            Some(memory.clone()),
        );
        (pointer, own)
    }
}

/// How a pointer to memory is qualified.
fn pointer_qualifier(memory: &UOp) -> &'static str {
    if let Op::Param { mode, .. } = memory.op() {
        return restrict(*mode);
    }
    " restrict"
}
