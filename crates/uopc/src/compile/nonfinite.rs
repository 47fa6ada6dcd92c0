//! Where a NaN or an infinity comes from: the first op whose result holds one while its sources hold
//! none.
//!
//! In:       roots, as [`Engine::realize`] takes them.
//! Out:      a [`Finding`], or nothing if all roots are finite.
//! Keeps:    what the engine computes: the graph is simplified as for a plan, and each node has the
//!           bits that it has there, since a value is a function of its node. A product that a
//!           chain sums without rounding is judged with the sum.
//! Cost:     each node is computed once, with one more kernel that looks at it, some hundred nodes to
//!           a plan; memory is bounded by what a plan may store and by what later plans read.
//!
//! Not every NaN on the way is a mistake: a branch that WHERE does not take may hold anything. So
//! only ops count from which a way of such results leads to a root. An infinity that is a constant
//! or an input is taken as meant, as in a mask of -inf: what counts is the op that makes a NaN of it.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Engine, RealizeOptions, walk};
use crate::error::Result;
use crate::ir::dtype::DType;
use crate::ir::fold::{chain_product, may_be_chained};
use crate::ir::form::ShapeGraph;
use crate::ir::op::{BufferId, Fold, LiveBuffer, Op, ReduceOp, StageKind};
use crate::ir::print::named;
use crate::ir::scalar::Scalar;
use crate::ir::shape::Shape;
use crate::ir::site::Site;
use crate::ir::uop::Sources;
use crate::ir::visit::{Graph, substitute};
use crate::ir::{UOp, verify};
use crate::pass::simplify::simplify_shapes;
use crate::pass::strip_detach::strip_detach;
use crate::runtime::Storage;

/// How many nodes a plan computes.
const NODES: usize = 256;

/// How many bytes of values a plan computes, beyond which it takes no further node.
const BYTES: usize = 1 << 28;

/// A value of more bytes is not stored, but computed where it is read.
const LARGEST: usize = 1 << 28;

/// What is wrong with a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NonFinite {
    /// It is plus or minus infinity.
    Infinity,
    /// It is no number.
    Nan,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            NonFinite::Infinity => "infinity",
            NonFinite::Nan => "NaN",
        })
    }
}

/// What an op read where its result is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// What gave the operand.
    pub op: String,
    /// Its dtype.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
    /// Where it was written, if known.
    pub site: Option<Site>,
    /// The least and the greatest of the elements that were read; equal if it is one.
    pub range: (f64, f64),
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {} {}", self.op, self.dtype, self.shape)?;
        self.site.map_or(Ok(()), |site| write!(f, " (at {site})"))?;
        let (low, high) = self.range;
        if low == high || low.is_nan() {
            write!(f, ": {low}")
        } else {
            write!(f, ": from {low} to {high}")
        }
    }
}

/// The op from which a NaN or an infinity comes, see [`Engine::find_nan`]. It prints.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What its result holds.
    pub what: NonFinite,
    /// The op.
    pub op: String,
    /// The dtype of its result.
    pub dtype: DType,
    /// The shape of its result.
    pub shape: Shape,
    /// Where it was written, and by which rule if it is part of a derivative; if known.
    pub site: Option<Site>,
    /// The first position, in row-major order, at which its result holds that.
    pub index: Vec<usize>,
    /// The value there.
    pub value: f64,
    /// What it read there; nothing for an input or a constant.
    pub operands: Vec<Operand>,
    /// Whether it is an infinity of an input or a constant, so that it may be meant, and no op made
    /// it or a NaN of it.
    pub may_be_meant: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let what = self.what;
        write!(f, "the first {what} is in the result of ")?;
        write!(f, "{} {} {}", self.op, self.dtype, self.shape)?;
        self.site.map_or(Ok(()), |site| write!(f, " (at {site})"))?;
        let index: Vec<String> = self.index.iter().map(usize::to_string).collect();
        write!(f, ": at [{}] it is {}", index.join(", "), self.value)?;
        if self.operands.is_empty() {
            return f.write_str(", and it is no result of an op");
        }
        f.write_str(", computed from")?;
        for operand in &self.operands {
            write!(f, "\n   {operand}")?;
        }
        Ok(())
    }
}

impl Engine {
    /// Names the first op, in the order of the graph, whose result holds a NaN or an infinity while
    /// its sources hold none, and which made a root hold one; nothing if all roots are finite.
    ///
    /// # Errors
    /// As [`realize`](Self::realize).
    pub fn find_nan(&self, roots: &[UOp], options: &RealizeOptions) -> Result<Option<Finding>> {
        let Some(shapes) = self.as_computed(roots, options)? else {
            return Ok(None);
        };
        let graph = Graph::new(shapes.roots());
        let states = Search::new(&graph).run(self)?;
        let Some((at, may_be_meant)) = first(&graph, &states) else {
            return Ok(None);
        };
        let what = states[at].expect("only nodes that hold one are chosen");
        self.describe(&graph.nodes[at], what, may_be_meant)
            .map(Some)
    }

    /// The roots that are floats, over memory, as they are when kernels are made of them.
    fn as_computed(&self, roots: &[UOp], options: &RealizeOptions) -> Result<Option<ShapeGraph>> {
        let floats = roots
            .iter()
            .filter(|r| r.dtype().is_float() && r.shape().numel() > 0);
        let floats: Vec<UOp> = floats.cloned().collect();
        if floats.is_empty() {
            return Ok(None);
        }
        let mut bound = FxHashMap::default();
        for u in &Graph::new(&floats).nodes {
            if let Op::Buffer {
                id: BufferId::Slot(_),
                dtype,
                n,
            } = u.op()
                && let Some(storage) = walk::stored(u, options)?
            {
                let buffer = Arc::new(LiveBuffer::new(storage));
                let _line = Site::inherit(u.site());
                bound.insert(u.clone(), UOp::live(buffer, *dtype, *n));
            }
        }
        let graph = verify::shape_graph(substitute(&floats, &bound)?)?;
        let (graph, _) = strip_detach(&graph)?;
        Ok(Some(simplify_shapes(&graph, &self.settings)?.0))
    }

    /// The numbers that scalar nodes have.
    fn numbers(&self, scalars: &[UOp]) -> Result<Vec<f64>> {
        let wide: Result<Vec<UOp>> = scalars.iter().map(|u| u.cast(DType::F64)).collect();
        let realized = self.values(&wide?, &RealizeOptions::default(), false)?;
        Ok(realized
            .outputs
            .iter()
            .map(|s| s.to_vec::<f64>()[0])
            .collect())
    }

    fn describe(&self, u: &UOp, what: NonFinite, may_be_meant: bool) -> Result<Finding> {
        let n = u.shape().numel();
        let flat = u.reshape(&[n])?;
        let is_bad = match what {
            NonFinite::Nan => flat.cmpne(&flat)?,
            NonFinite::Infinity => is_infinite(&flat)?,
        };
        // The greatest of what is left behind a bad element belongs to the first of them.
        let full =
            |value: usize| UOp::full(Scalar::from_i128(DType::I64, value as i128), flat.shape());
        let left = full(n)?.sub(&UOp::iota(n, DType::I64)?)?;
        let left = is_bad.where_(&left, &full(0)?)?.reduce(ReduceOp::Max, 1)?;
        let at = n - (self.numbers(&[left])?[0] as usize).clamp(1, n);
        let index = unravelled(at, u.shape());
        let mut wanted = vec![flat.shrink(&[(at, at + 1)])?.reshape(&[])?];
        let mut read = Vec::new();
        for (source, elements) in operands(u, &index)? {
            let n = elements.shape().numel();
            if n == 0 || !elements.dtype().is_float() {
                continue;
            }
            let elements = elements.cast(DType::F64)?.reshape(&[n])?;
            wanted.push(elements.neg()?.reduce(ReduceOp::Max, 1)?.neg()?);
            wanted.push(elements.reduce(ReduceOp::Max, 1)?);
            read.push(source);
        }
        let numbers = self.numbers(&wanted)?;
        let ranges = numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let operand = |(source, range): (UOp, (f64, f64))| {
            let base = seen_through(&source);
            Operand {
                op: named(base),
                dtype: source.dtype(),
                shape: source.shape().clone(),
                site: base.site(),
                range,
            }
        };
        Ok(Finding {
            what,
            op: named(u),
            dtype: u.dtype(),
            shape: u.shape().clone(),
            site: u.site(),
            index,
            value: numbers[0],
            operands: read.into_iter().zip(ranges).map(operand).collect(),
            may_be_meant,
        })
    }
}

/// Whether memory that holds elements of a float dtype holds one that is not finite.
pub(super) fn holds_any(storage: &Storage, dtype: DType, n: usize) -> bool {
    // Not finite is what has all bits of the exponent.
    let bytes = &storage.as_bytes()[..n * dtype.size()];
    let any = |exponent: u64| {
        bytes.chunks_exact(dtype.size()).any(|element| {
            let mut word = [0; 8];
            word[..element.len()].copy_from_slice(element);
            u64::from_le_bytes(word) & exponent == exponent
        })
    };
    match dtype {
        DType::F16 => any(0x7c00),
        DType::BF16 => any(0x7f80),
        DType::F32 => any(0x7f80_0000),
        DType::F64 => any(0x7ff0_0000_0000_0000),
        _ => false,
    }
}

/// Behind ops that only say how elements are laid out, where a value comes from.
fn seen_through(u: &UOp) -> &UOp {
    let mut u = u;
    while let Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) | Op::Stage(_) = u.op() {
        u = &u.src()[0];
    }
    u
}

fn unravelled(at: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = at;
    let mut index = vec![0; shape.len()];
    for (place, &n) in index.iter_mut().zip(shape).rev() {
        *place = rest % n;
        rest /= n;
    }
    index
}

/// What u reads for the element at an index: sources, and the elements of each.
fn operands(u: &UOp, index: &[usize]) -> Result<Vec<(UOp, UOp)>> {
    let at = |s: &UOp| -> Result<UOp> {
        // A reduction reads all of the axes that it combines.
        let bounds = s.shape().iter().enumerate();
        let bounds: Vec<(usize, usize)> = bounds
            .map(|(axis, &n)| index.get(axis).map_or((0, n), |&i| (i, i + 1)))
            .collect();
        s.shrink(&bounds)
    };
    let mut sources: Vec<UOp> = u.src().to_vec();
    if let Op::Reduce { .. } = u.op()
        && is_chain(u)
        && let Some((product, between)) = chain_product(&u.src()[0])
        && between.is_empty()
    {
        sources = product.src().to_vec();
    }
    let by_element = u.op().is_elementwise() || matches!(u.op(), Op::Reduce { .. });
    let elements = sources.into_iter().map(|s| {
        let elements = if by_element { at(&s)? } else { s.clone() };
        Ok((s, elements))
    });
    elements.collect()
}

fn is_chain(u: &UOp) -> bool {
    matches!(
        u.op(),
        Op::Reduce {
            fold: Fold::Chain,
            ..
        }
    )
}

/// For each element whether it is an infinity.
fn is_infinite(x: &UOp) -> Result<UOp> {
    let magnitude = x.maximum(&x.neg()?)?;
    x.full_like(f64::INFINITY)?.eq(&magnitude)
}

/// 0 if all elements are finite, 1 if there is an infinity, 2 if there is a NaN.
fn state(x: &UOp) -> Result<UOp> {
    // The same kernel for all shapes.
    let x = x.reshape(&[x.shape().numel()])?;
    let x = x.cast(x.dtype().accumulator())?;
    let number = |value| UOp::full(Scalar::from_i128(DType::I32, value), x.shape());
    let infinity = is_infinite(&x)?.where_(&number(1)?, &number(0)?)?;
    let worst = x.cmpne(&x)?.where_(&number(2)?, &infinity)?;
    worst.reduce(ReduceOp::Max, 1)
}

type State = Option<NonFinite>;

fn state_of(number: i32) -> State {
    match number {
        0 => None,
        1 => Some(NonFinite::Infinity),
        _ => Some(NonFinite::Nan),
    }
}

/// How a node is dealt with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It holds what its sources hold, in the same elements or unrounded: it is neither stored nor
    /// looked at.
    Passes,
    /// It is looked at, but not stored.
    Looked,
    /// It is stored, and looked at if it is a float.
    Stored,
}

/// The nodes of a graph, plan by plan.
struct Search<'g> {
    graph: &'g Graph,
    kinds: Vec<Kind>,
    /// The plan that each node belongs to.
    plan: Vec<usize>,
    /// The last plan in which a node is read.
    last: Vec<usize>,
}

impl<'g> Search<'g> {
    fn new(graph: &'g Graph) -> Search<'g> {
        let kinds = kinds(graph);
        let mut plan = Vec::with_capacity(graph.len());
        let (mut current, mut nodes, mut bytes) = (0, 0, 0usize);
        for (u, kind) in graph.nodes.iter().zip(&kinds) {
            if nodes >= NODES || bytes >= BYTES {
                (current, nodes, bytes) = (current + 1, 0, 0);
            }
            plan.push(current);
            nodes += usize::from(*kind != Kind::Passes);
            if *kind == Kind::Stored {
                bytes = bytes.saturating_add(size(u));
            }
        }
        // A node is read where its readers are computed, and those that are not stored are computed
        // where theirs are.
        let mut last = plan.clone();
        for i in (0..graph.len()).rev() {
            let read = match kinds[i] {
                Kind::Stored => plan[i],
                Kind::Passes | Kind::Looked => last[i],
            };
            for &s in graph.src(i) {
                last[s as usize] = last[s as usize].max(read);
            }
        }
        Search {
            graph,
            kinds,
            plan,
            last,
        }
    }

    /// What each node holds.
    fn run(&self, engine: &Engine) -> Result<Vec<State>> {
        let n = self.graph.len();
        let mut states: Vec<State> = vec![None; n];
        let mut made: Vec<Option<UOp>> = vec![None; n];
        // Nodes by the last plan that reads them, so that each is let go once.
        let mut ending: Vec<Vec<usize>> = vec![Vec::new(); self.plan.last().map_or(0, |p| p + 1)];
        (0..n).for_each(|i| ending[self.last[i]].push(i));
        let mut from = 0;
        while from < n {
            let current = self.plan[from];
            let length = self.plan[from..]
                .iter()
                .take_while(|p| **p == current)
                .count();
            let to = from + length;
            self.plan(engine, from..to, &mut made, &mut states)?;
            ending[current].iter().for_each(|&i| made[i] = None);
            from = to;
        }
        Ok(states)
    }

    /// Computes the nodes of one plan and looks at them.
    fn plan(
        &self,
        engine: &Engine,
        nodes: std::ops::Range<usize>,
        made: &mut [Option<UOp>],
        states: &mut [State],
    ) -> Result<()> {
        let (mut kept, mut looked) = (Vec::new(), Vec::new());
        let (mut roots, mut checks) = (Vec::new(), Vec::new());
        for i in nodes.clone() {
            let u = &self.graph.nodes[i];
            let node = self.rebuilt(i, made)?;
            let node = match self.kinds[i] {
                Kind::Stored if !u.src().is_empty() => node.stage(StageKind::Materialise)?,
                _ => node,
            };
            if self.is_kept(i) {
                kept.push(i);
                roots.push(node.clone());
            }
            if self.kinds[i] != Kind::Passes && u.dtype().is_float() && u.shape().numel() > 0 {
                looked.push(i);
                checks.push(state(&node)?);
            }
            made[i] = Some(node);
        }
        roots.append(&mut checks);
        if !roots.is_empty() {
            let realized = engine.values(&roots, &RealizeOptions::default(), false)?;
            let (stored, numbers) = realized.outputs.split_at(kept.len());
            for (&i, number) in looked.iter().zip(numbers) {
                states[i] = state_of(number.to_vec::<i32>()[0]);
            }
            for (&i, storage) in kept.iter().zip(stored) {
                let u = &self.graph.nodes[i];
                let buffer = Arc::new(LiveBuffer::new(storage.clone()));
                let leaf = UOp::live(buffer, u.dtype(), u.shape().numel());
                made[i] = Some(leaf.reshape(u.shape())?);
            }
        }
        for i in nodes {
            let u = &self.graph.nodes[i];
            if self.kinds[i] == Kind::Passes {
                let sources = self.graph.src(i).iter();
                states[i] = match u.op() {
                    Op::Const(value) => constant(value),
                    _ => sources.map(|&s| states[s as usize]).max().flatten(),
                };
            }
            // What is not stored is read by later plans in terms of what is.
            if self.kinds[i] != Kind::Stored {
                made[i] = Some(self.rebuilt(i, made)?);
            }
        }
        Ok(())
    }

    /// Whether a later plan reads a value that this one stores.
    fn is_kept(&self, i: usize) -> bool {
        let is_leaf = self.graph.nodes[i].src().is_empty();
        self.kinds[i] == Kind::Stored && !is_leaf && self.last[i] > self.plan[i]
    }

    /// A node on what its sources have become.
    fn rebuilt(&self, i: usize, made: &[Option<UOp>]) -> Result<UOp> {
        let sources = self.graph.src(i).iter().map(|&s| {
            let made = made[s as usize].clone();
            made.expect("a node is kept as long as it is read")
        });
        self.graph.nodes[i].with_src(&sources.collect::<Sources>())
    }
}

fn constant(value: &Scalar) -> State {
    if !value.dtype().is_float() || value.as_f64().is_finite() {
        None
    } else if value.is_nan() {
        Some(NonFinite::Nan)
    } else {
        Some(NonFinite::Infinity)
    }
}

fn size(u: &UOp) -> usize {
    u.shape().numel().saturating_mul(u.dtype().size())
}

fn kinds(graph: &Graph) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = graph.nodes.iter().map(kind).collect();
    // Of a product that a chain sums, the chain's own reading does not count.
    let mut summed = vec![true; graph.len()];
    for &root in &graph.roots {
        summed[root as usize] = false;
    }
    for (i, u) in graph.nodes.iter().enumerate().rev() {
        let passes_on = matches!(u.op(), Op::Permute(_) | Op::Reshape(_)) && summed[i];
        for &s in graph.src(i) {
            summed[s as usize] &= is_chain(u) || passes_on;
        }
    }
    for (i, u) in graph.nodes.iter().enumerate() {
        if *u.op() == Op::Mul && may_be_chained(u) {
            kinds[i] = match summed[i] {
                true => Kind::Passes,
                false => Kind::Looked,
            };
        }
    }
    kinds
}

fn kind(u: &UOp) -> Kind {
    match u.op() {
        Op::Const(_) | Op::Iota { .. } | Op::Reshape(_) | Op::Expand(_) | Op::Permute(_) => {
            Kind::Passes
        }
        Op::Stage(_) => Kind::Passes,
        // Wider floats hold all that narrower ones do; products look through such casts.
        Op::Cast(to) if u.src()[0].dtype().is_float() && to.size() >= u.src()[0].dtype().size() => {
            Kind::Passes
        }
        Op::Shrink(_) => Kind::Looked,
        _ if size(u) > LARGEST => Kind::Looked,
        _ => Kind::Stored,
    }
}

/// The first node in order that made a root hold a NaN or an infinity, and whether it may be meant.
fn first(graph: &Graph, states: &[State]) -> Option<(usize, bool)> {
    let mut reaches = vec![false; graph.len()];
    for &root in &graph.roots {
        reaches[root as usize] = states[root as usize].is_some();
    }
    for i in (0..graph.len()).rev().filter(|&i| states[i].is_some()) {
        if reaches[i] {
            for &s in graph.src(i) {
                reaches[s as usize] |= states[s as usize].is_some();
            }
        }
    }
    let is_leaf = |i: usize| graph.nodes[i].src().is_empty();
    let made_it = |i: usize| match is_leaf(i) {
        true => states[i] == Some(NonFinite::Nan),
        false => graph.src(i).iter().all(|&s| states[s as usize] < states[i]),
    };
    let mut all = (0..graph.len()).filter(|&i| reaches[i]);
    let made = all.clone().find(|&i| made_it(i));
    made.map(|i| (i, false))
        .or_else(|| all.find(|&i| is_leaf(i)).map(|i| (i, true)))
}
