//! Turns a loop graph into a flat list of steps over registers, which [`super::loops`] runs.
//!
//! Every value node gets one register. A value without loads is the same wherever it is read, so
//! it is computed once in each turn of the innermost loop it depends on; a value with loads is
//! computed anew at every statement that reads it.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::function::Function;
use crate::error::{Error, Result};
use crate::ir::form::LoopGraph;
use crate::ir::op::{Combine, Op, ParamMode, ReduceOp};
use crate::ir::visit::Graph;
use crate::ir::{DType, Scalar, UOp};

/// A register's number.
pub(super) type Reg = u32;

/// A launch in the form in which it is run.
pub(super) struct Tape {
    /// The kernel's name, for errors.
    pub name: String,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// Parameters by ascending slot, then locals.
    pub memories: Vec<Memory>,
    /// How many of the memories are parameters.
    pub params: usize,
    /// The registers as they start: constants are there already.
    pub registers: Vec<u64>,
}

/// A parameter or a local.
pub(super) struct Memory {
    /// How errors call it, such as `param 2`.
    pub name: String,
    pub dtype: DType,
    pub n: usize,
    /// `None` for a local.
    pub mode: Option<ParamMode>,
}

/// One instruction.
pub(super) enum Step {
    /// Sets the counter to 0, or jumps to `exit` if there is nothing to count.
    Loop {
        counter: Reg,
        extent: Reg,
        signed: DType,
        exit: usize,
    },
    /// Counts up and jumps to `body` while below the extent.
    Next {
        counter: Reg,
        extent: Reg,
        signed: DType,
        body: usize,
    },
    /// A local's scope begins: all elements are this, or not written yet.
    Begin {
        memory: u32,
        start: Option<u64>,
    },
    One {
        to: Reg,
        f: fn(u64) -> u64,
        a: Reg,
    },
    Two {
        to: Reg,
        f: fn(u64, u64) -> u64,
        a: Reg,
        b: Reg,
    },
    Three {
        to: Reg,
        f: fn(u64, u64, u64) -> u64,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Any(Box<AnyOp>),
    Load {
        to: Reg,
        at: Access,
    },
    Store {
        at: Access,
        value: Reg,
    },
    /// A store that combines: `f` gets the values and the old element.
    Update(Box<Update>),
}

/// The element that a load or store touches.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub memory: u32,
    pub index: Reg,
    /// The index's dtype.
    pub signed: DType,
    /// Nothing is touched where this is false.
    pub gate: Option<Reg>,
}

/// An op that has no step of its own.
pub(super) struct AnyOp {
    pub to: Reg,
    pub f: Function,
    pub args: SmallVec<[Reg; 3]>,
}

/// See [`Step::Update`].
pub(super) struct Update {
    pub at: Access,
    pub values: SmallVec<[Reg; 2]>,
    pub f: Function,
}

/// Where the parts of a loop graph are.
struct Layout {
    graph: Graph,
    /// Position of the memory of a PARAM or LOCAL node.
    memory: BTreeMap<usize, u32>,
    /// How deep the loop of a RANGE node lies.
    depth: BTreeMap<usize, usize>,
    /// Which nodes depend on a load.
    loads: Vec<bool>,
    /// For a value without loads the deepest RANGE it depends on.
    home: Vec<Option<usize>>,
}

/// Compiles a launch.
///
/// # Errors
/// When the graph breaks the rules of the loop form.
pub(super) fn compile(loops: &LoopGraph) -> Result<Tape> {
    let graph = Graph::new(std::slice::from_ref(loops.sink()));
    let mut layout = Layout {
        memory: BTreeMap::new(),
        depth: BTreeMap::new(),
        loads: vec![false; graph.len()],
        home: vec![None; graph.len()],
        graph,
    };
    let memories = list_memories(&mut layout);
    let params = memories.iter().filter(|m| m.mode.is_some()).count();
    let statements = list_statements(&mut layout)?;
    find_homes(&mut layout)?;
    let mut emit = Emitter {
        begins: begins(&layout, &statements),
        hoisted: hoisted(&layout),
        stamp: vec![0; layout.graph.len()],
        layout: &layout,
        steps: Vec::new(),
        open: Vec::new(),
        closed: vec![false; layout.graph.len()],
    };
    emit.all(&statements)?;
    let registers = layout.graph.nodes.iter().map(|u| {
        if let Op::Const(value) = u.op() {
            value.bits()
        } else {
            0
        }
    });
    Ok(Tape {
        name: loops.name().to_string(),
        steps: emit.steps,
        memories,
        params,
        registers: registers.collect(),
    })
}

fn list_memories(layout: &mut Layout) -> Vec<Memory> {
    let mut found: Vec<((bool, u32), usize, Memory)> = Vec::new();
    for (i, u) in layout.graph.nodes.iter().enumerate() {
        if let Op::Param {
            slot,
            mode,
            dtype,
            n,
        } = u.op()
        {
            let (name, mode) = (format!("param {slot}"), Some(*mode));
            found.push((
                (false, *slot),
                i,
                Memory {
                    name,
                    dtype: *dtype,
                    n: *n,
                    mode,
                },
            ));
        } else if let Op::Local { id, dtype, n, .. } = u.op() {
            let name = format!("local {id}");
            found.push((
                (true, *id),
                i,
                Memory {
                    name,
                    dtype: *dtype,
                    n: *n,
                    mode: None,
                },
            ));
        }
    }
    found.sort_by_key(|(order, ..)| *order);
    let placed = found.into_iter().enumerate().map(|(m, (_, i, memory))| {
        layout.memory.insert(i, m as u32);
        memory
    });
    placed.collect()
}

/// A statement as positions of its STORE and its RANGEs.
struct Statement {
    store: usize,
    ranges: Vec<usize>,
}

fn list_statements(layout: &mut Layout) -> Result<Vec<Statement>> {
    let mut statements = Vec::new();
    let sink = layout.graph.len() - 1;
    for &end in layout.graph.src(sink) {
        let node = &layout.graph.nodes[end as usize];
        if *node.op() != Op::End {
            return broken(
                node,
                format!("a statement is an end, not {}", node.op().mnemonic()),
            );
        }
        let src = layout.graph.src(end as usize);
        let ranges: Vec<usize> = src[1..].iter().map(|&r| r as usize).collect();
        for (depth, &r) in ranges.iter().enumerate() {
            if *layout.depth.entry(r).or_insert(depth) != depth {
                let message = "statements disagree on what lies outside a range";
                return broken(&layout.graph.nodes[r], message.into());
            }
        }
        statements.push(Statement {
            store: src[0] as usize,
            ranges,
        });
    }
    Ok(statements)
}

/// Finds which values have loads, and where the others are computed.
fn find_homes(layout: &mut Layout) -> Result<()> {
    for (i, u) in layout.graph.nodes.iter().enumerate() {
        let src = layout.graph.src(i);
        layout.loads[i] = *u.op() == Op::Load || src.iter().any(|&s| layout.loads[s as usize]);
        if matches!(u.op(), Op::Range { .. }) {
            if layout.loads[i] {
                return broken(u, "an extent reads no memory".into());
            }
            layout.home[i] = layout.depth.contains_key(&i).then_some(i);
        } else {
            let homes = src.iter().filter_map(|&s| layout.home[s as usize]);
            layout.home[i] = homes.max_by_key(|r| layout.depth[r]);
        }
    }
    Ok(())
}

/// Values without loads, by the RANGE in whose loop they are computed; before all loops for
/// `None`.
fn hoisted(layout: &Layout) -> BTreeMap<Option<usize>, Vec<usize>> {
    let mut hoisted: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (i, u) in layout.graph.nodes.iter().enumerate() {
        if u.op().is_elementwise() && !layout.loads[i] {
            hoisted.entry(layout.home[i]).or_default().push(i);
        }
    }
    hoisted
}

/// For each loop (or the whole kernel: `None`) the locals whose scope it is, with their start.
type Begins = BTreeMap<Option<usize>, Vec<(u32, Option<u64>)>>;

fn begins(layout: &Layout, statements: &[Statement]) -> Begins {
    // For each local: its scope so far, as a list of ranges, and its start.
    let mut scopes: BTreeMap<u32, (&[usize], Option<u64>)> = BTreeMap::new();
    let mut stamp = vec![0; layout.graph.len()];
    for (number, statement) in statements.iter().enumerate() {
        // The store comes last in this order, but it decides how a local starts.
        for i in layout
            .with_loads(statement.store, &mut stamp, number as u32 + 1)
            .into_iter()
            .rev()
        {
            let node = &layout.graph.nodes[i];
            let access = matches!(node.op(), Op::Load | Op::Store { .. });
            if !access || !matches!(node.src()[0].op(), Op::Local { .. }) {
                continue;
            }
            let memory = &layout.memory[&(layout.graph.src(i)[0] as usize)];
            let mut start = None;
            if let Op::Store { combine, .. } = node.op() {
                start = identity(*combine, node.src()[0].dtype());
            }
            let (scope, _) = scopes.entry(*memory).or_insert((&statement.ranges, start));
            let shared = scope
                .iter()
                .zip(&statement.ranges)
                .take_while(|(a, b)| a == b)
                .count();
            *scope = &scope[..shared];
        }
    }
    let mut begins = Begins::new();
    for (memory, (scope, start)) in scopes {
        begins
            .entry(scope.last().copied())
            .or_default()
            .push((memory, start));
    }
    begins
}

/// What a combining store starts from; `None` for one that sets.
fn identity(combine: Combine, dtype: DType) -> Option<u64> {
    let start = match combine {
        Combine::Set => return None,
        Combine::Add => Scalar::identity(ReduceOp::Add, dtype),
        Combine::Max => Scalar::identity(ReduceOp::Max, dtype),
        Combine::Mul => Scalar::identity(ReduceOp::Mul, dtype),
        Combine::MulAcc => Scalar::zero(dtype),
    };
    Some(start.bits())
}

impl Layout {
    /// The store and all values with loads under it, sources first. `stamp` and `now` tell visits
    /// apart.
    fn with_loads(&self, store: usize, stamp: &mut [u32], now: u32) -> Vec<usize> {
        let mut order = Vec::new();
        let mut stack = vec![(store, 0)];
        stamp[store] = now;
        while let Some((i, entered)) = stack.last_mut() {
            let Some(&s) = self.graph.src(*i).get(*entered) else {
                order.push(*i);
                stack.pop();
                continue;
            };
            *entered += 1;
            let s = s as usize;
            if self.loads[s] && stamp[s] != now {
                stamp[s] = now;
                stack.push((s, 0));
            }
        }
        order
    }
}

/// Writes the steps, loop by loop.
struct Emitter<'a> {
    layout: &'a Layout,
    begins: Begins,
    hoisted: BTreeMap<Option<usize>, Vec<usize>>,
    stamp: Vec<u32>,
    steps: Vec<Step>,
    /// The loops around the current place: the RANGE and where its [`Step::Loop`] is.
    open: Vec<(usize, usize)>,
    /// Which RANGEs had their loop.
    closed: Vec<bool>,
}

impl Emitter<'_> {
    fn all(&mut self, statements: &[Statement]) -> Result<()> {
        self.enter(None)?;
        for (number, statement) in statements.iter().enumerate() {
            let shared = self.open.iter().zip(&statement.ranges);
            let shared = shared.take_while(|((a, _), b)| a == *b).count();
            self.close_to(shared);
            for &range in &statement.ranges[shared..] {
                self.open_loop(range)?;
            }
            self.statement(statement, number as u32 + 1)?;
        }
        self.close_to(0);
        Ok(())
    }

    fn close_to(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some((range, start)) = self.open.pop() else {
                return;
            };
            let (extent, signed) = self.extent(range);
            let next = Step::Next {
                counter: range as Reg,
                extent,
                signed,
                body: start + 1,
            };
            self.steps.push(next);
            let after = self.steps.len();
            if let Step::Loop { exit, .. } = &mut self.steps[start] {
                *exit = after;
            }
            self.closed[range] = true;
        }
    }

    fn open_loop(&mut self, range: usize) -> Result<()> {
        let node = &self.layout.graph.nodes[range];
        if self.closed[range] {
            let message = "the statements that name a range are not neighbours; rename it";
            return broken(node, message.into());
        }
        let (extent, signed) = self.extent(range);
        self.in_scope(extent as usize)?;
        self.open.push((range, self.steps.len()));
        self.steps.push(Step::Loop {
            counter: range as Reg,
            extent,
            signed,
            exit: 0,
        });
        self.enter(Some(range))
    }

    fn extent(&self, range: usize) -> (Reg, DType) {
        let extent = self.layout.graph.src(range)[0];
        (extent, self.layout.graph.nodes[range].dtype())
    }

    /// What happens at the start of each turn of a loop.
    fn enter(&mut self, range: Option<usize>) -> Result<()> {
        for (memory, start) in self.begins.remove(&range).unwrap_or_default() {
            self.steps.push(Step::Begin { memory, start });
        }
        for i in self.hoisted.remove(&range).unwrap_or_default() {
            self.value(i)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement, number: u32) -> Result<()> {
        for i in self
            .layout
            .with_loads(statement.store, &mut self.stamp, number)
        {
            self.value(i)?;
        }
        Ok(())
    }

    /// Checks that the loops a value depends on are those around the current place.
    fn in_scope(&self, value: usize) -> Result<()> {
        let node = &self.layout.graph.nodes[value];
        let inside = match self.layout.home[value] {
            Some(home) => self.open.iter().any(|(range, _)| *range == home),
            None => !matches!(node.op(), Op::Range { .. }),
        };
        if inside {
            return Ok(());
        }
        broken(node, "a range is read outside its loop".into())
    }

    fn access(&self, i: usize, gate: Option<Reg>) -> Access {
        let (u, src) = (&self.layout.graph.nodes[i], self.layout.graph.src(i));
        let memory = self.layout.memory[&(src[0] as usize)];
        Access {
            memory,
            index: src[1],
            signed: u.src()[1].dtype(),
            gate,
        }
    }

    /// The step that computes a value or stores it.
    fn value(&mut self, i: usize) -> Result<()> {
        let u = &self.layout.graph.nodes[i];
        let src = self.layout.graph.src(i);
        let to = i as Reg;
        for &s in src {
            self.in_scope(s as usize)?;
        }
        let step = match u.op() {
            Op::Const(_) | Op::Range { .. } | Op::Param { .. } | Op::Local { .. } => return Ok(()),
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
                let from: SmallVec<[DType; 3]> = u.src().iter().map(UOp::dtype).collect();
                match (Function::new(u.op().clone(), u.dtype(), from), src) {
                    (Function::One(f), &[a]) => Step::One { to, f, a },
                    (Function::Two(f), &[a, b]) => Step::Two { to, f, a, b },
                    (Function::Three(f), &[a, b, c]) => Step::Three { to, f, a, b, c },
                    (f, args) => Step::Any(Box::new(AnyOp {
                        to,
                        f,
                        args: args.into(),
                    })),
                }
            }
            Op::Load => Step::Load {
                to,
                at: self.access(i, src.get(2).copied()),
            },
            Op::Store { combine, gated } => {
                if matches!(
                    u.src()[0].op(),
                    Op::Param {
                        mode: ParamMode::In,
                        ..
                    }
                ) {
                    return broken(u, "a parameter of mode in is never written".into());
                }
                let end = src.len() - *gated as usize;
                let at = self.access(i, gated.then(|| src[end]));
                let op = match combine {
                    Combine::Set => {
                        self.steps.push(Step::Store { at, value: src[2] });
                        return Ok(());
                    }
                    Combine::Add => Op::Add,
                    Combine::Max => Op::Max,
                    Combine::Mul => Op::Mul,
                    Combine::MulAcc => Op::MulAcc,
                };
                let values: SmallVec<[Reg; 2]> = src[2..end].into();
                let dtype = u.src()[0].dtype();
                let f = Function::new(op, dtype, SmallVec::from_elem(dtype, values.len() + 1));
                Step::Update(Box::new(Update { at, values, f }))
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
            | Op::End
            | Op::Sink
            | Op::After
            | Op::Call { .. }
            | Op::Loop
            | Op::EndLoop
            | Op::If
            | Op::EndIf
            | Op::Let { .. }
            | Op::Declare(_)
            | Op::Barrier => {
                return broken(u, format!("{} is no value of a loop", u.op().mnemonic()));
            }
        };
        self.steps.push(step);
        Ok(())
    }
}

fn broken<T>(u: &UOp, message: String) -> Result<T> {
    Err(Error::Verify {
        form: "loop graph",
        message,
        site: u.site(),
    })
}
