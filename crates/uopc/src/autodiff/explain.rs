//! Why a gradient is what it is: the paths by which a target reaches a root, and where they are cut.
//!
//! In:       a root and a target of a pure shape graph.
//! Out:      an [`Explanation`]: a value that prints.
//! Ensures:  the paths are the shortest ones, each a chain of nodes along which a derivative
//!           flows. There may be exponentially many: they are counted, and a few are listed.
//! Cost:     linear in the nodes under the root.

use std::fmt;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::stop::{Cause, refuse_lowered, refuse_whole};
use super::vjp::pulls;
use crate::error::Result;
use crate::ir::dtype::DType;
use crate::ir::op::Op;
use crate::ir::print::named;
use crate::ir::shape::Shape;
use crate::ir::site::Site;
use crate::ir::uop::UOp;
use crate::ir::visit::Graph;

/// How many paths are listed.
const PATHS: usize = 4;

/// How many cuts are listed.
const CUTS: usize = 8;

/// How many lines of a path are printed at each of its ends.
const ENDS: usize = 8;

/// A node of a path, as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the node does.
    pub op: String,
    /// The dtype of its value.
    pub dtype: DType,
    /// The shape of its value.
    pub shape: Shape,
    /// Where it was written, if known.
    pub site: Option<Site>,
}

impl Step {
    fn of(u: &UOp) -> Step {
        Step {
            op: named(u),
            dtype: u.dtype(),
            shape: u.shape().clone(),
            site: u.site(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {} {}", self.op, self.dtype, self.shape)?;
        self.site.map_or(Ok(()), |site| write!(f, " (at {site})"))
    }
}

/// A way from the target to the root along which a derivative flows.
#[derive(Clone, Debug)]
pub struct Path {
    /// The nodes behind the target, in order; the last one is the root.
    nodes: Vec<UOp>,
    /// An earlier path of the list and the position in it from which on the two are the same, if
    /// there is one: then this path's own part is what comes before.
    joins: Option<(usize, usize)>,
}

impl Path {
    /// The nodes behind the target, in order; the last one is the root.
    pub fn steps(&self) -> Vec<Step> {
        self.nodes.iter().map(Step::of).collect()
    }
}

/// A place where a derivative by the target ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The op that ends it, its sources, why, and the remedy.
    pub message: String,
    /// Where it was written, if known.
    pub site: Option<Site>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)?;
        self.site.map_or(Ok(()), |site| write!(f, " (at {site})"))
    }
}

/// How a target reaches a root, see [`explain_gradient`]. It prints as a text of a few dozen lines
/// at most.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The target.
    pub target: Step,
    /// The root.
    pub root: Step,
    /// Whether the root was computed from the target at all.
    pub mentioned: bool,
    /// The shortest paths, the shortest first.
    pub paths: Vec<Path>,
    /// How many paths there are; 2^64 - 1 stands for that many or more.
    pub path_count: u64,
    /// The places where paths are cut, those nearest to the target first.
    pub cuts: Vec<Cut>,
    /// How many places there are where paths are cut.
    pub cut_count: usize,
    /// What the target and the root are called.
    names: (&'static str, &'static str),
}

/// Explains the gradient of `root` with respect to `target`: the paths by which the target reaches
/// the root, or where each is cut, with lines of the user's program and remedies.
///
/// ```
/// use uopc::autodiff::explain_gradient;
/// use uopc::ir::{DType, UOp, op::{ReduceOp, StageKind}};
///
/// let x = UOp::slot(0, DType::F32, 3);
/// let loss = x.mul(&x)?.stage(StageKind::Detach)?.reduce(ReduceOp::Add, 1)?;
/// let explanation = explain_gradient(&loss, &x)?;
/// assert_eq!(explanation.path_count, 0);
/// assert!(explanation.to_string().contains("stage detach of mul f32 (3,): it is detached"));
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When the graph holds loops or effects, or the root or the target is no float.
pub fn explain_gradient(root: &UOp, target: &UOp) -> Result<Explanation> {
    let graph = Graph::new(std::slice::from_ref(root));
    refuse_lowered(&graph)?;
    refuse_whole("root", root)?;
    refuse_whole("target", target)?;
    let mut explanation = Explanation {
        target: Step::of(target),
        root: Step::of(root),
        mentioned: false,
        paths: Vec::new(),
        path_count: 0,
        cuts: Vec::new(),
        cut_count: 0,
        names: ("the target", "the root"),
    };
    let Some(from) = graph.position(target) else {
        return Ok(explanation);
    };
    explanation.mentioned = true;
    let reached = reached(&graph, from);
    let to = graph.roots[0] as usize;
    explanation.path_count = reached.counts[to];
    explanation.paths = paths(&graph, &reached.shortest, to);
    explanation.cut_count = reached.cuts.len();
    let cut = |&(i, k): &(usize, usize)| {
        let u = &graph.nodes[i];
        Cut {
            message: Cause::of(u, k).to_string(),
            site: u.site(),
        }
    };
    explanation.cuts = reached.cuts.iter().take(CUTS).map(cut).collect();
    Ok(explanation)
}

/// The end of one of the shortest paths to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hop {
    /// How many steps the path has.
    length: u32,
    /// The position of the node before.
    source: u32,
    /// Which of the paths to that node it goes on from.
    rank: u8,
}

/// What is known of the nodes when all have been visited.
struct Reached {
    /// For each node how many paths lead to it.
    counts: Vec<u64>,
    /// For each node the ends of the shortest ones. The target's own has no steps.
    shortest: Vec<SmallVec<[Hop; 1]>>,
    /// Edges `(reader, source number)` at which paths are cut, in order.
    cuts: Vec<(usize, usize)>,
}

fn reached(graph: &Graph, from: usize) -> Reached {
    let mut counts = vec![0u64; graph.len()];
    let mut shortest: Vec<SmallVec<[Hop; 1]>> = vec![SmallVec::new(); graph.len()];
    let mut cuts = Vec::new();
    let mut ends: Vec<Hop> = Vec::new();
    for (i, u) in graph.nodes.iter().enumerate() {
        if i == from {
            counts[i] = 1;
            shortest[i].push(Hop {
                length: 0,
                source: i as u32,
                rank: 0,
            });
            continue;
        }
        ends.clear();
        let sources = graph.src(i);
        for (k, &s) in sources.iter().enumerate() {
            if counts[s as usize] == 0 {
                continue;
            }
            if !pulls(u, k) {
                let is_body = matches!(u.op(), Op::Custom(_)) && k == 0;
                if !is_body || body_depends(graph, i, from, &counts) {
                    cuts.push((i, k));
                }
                continue;
            }
            // A source that is read twice is one step of a path.
            if (0..k).any(|j| sources[j] == s && pulls(u, j)) {
                continue;
            }
            counts[i] = counts[i].saturating_add(counts[s as usize]);
            let before = shortest[s as usize].iter().zip(0..);
            ends.extend(before.map(|(hop, rank)| Hop {
                length: hop.length + 1,
                source: s,
                rank,
            }));
        }
        ends.sort_unstable();
        shortest[i].extend(ends.iter().take(PATHS).copied());
    }
    Reached {
        counts,
        shortest,
        cuts,
    }
}

/// Whether the body of u, a CUSTOM node, depends on the target by another way than u's inputs: if
/// not, the inputs are all ways that there are.
fn body_depends(graph: &Graph, i: usize, from: usize, counts: &[u64]) -> bool {
    let (body, inputs) = graph.src(i).split_first().expect("a body and inputs");
    let mut seen: FxHashSet<u32> = inputs.iter().copied().collect();
    let mut stack = vec![*body];
    while let Some(at) = stack.pop() {
        if counts[at as usize] == 0 || !seen.insert(at) {
            continue;
        }
        if at as usize == from {
            return true;
        }
        stack.extend(graph.src(at as usize));
    }
    false
}

/// The shortest paths to a node, as lists of nodes.
fn paths(graph: &Graph, shortest: &[SmallVec<[Hop; 1]>], to: usize) -> Vec<Path> {
    let mut paths: Vec<Path> = Vec::new();
    for last in &shortest[to] {
        let mut nodes = Vec::with_capacity(last.length as usize);
        let (mut at, mut hop) = (to, *last);
        while hop.length > 0 {
            nodes.push(graph.nodes[at].clone());
            at = hop.source as usize;
            hop = shortest[at][hop.rank as usize];
        }
        nodes.reverse();
        let joins = joins(&paths, &nodes);
        paths.push(Path { nodes, joins });
    }
    paths
}

/// The earlier path with which these nodes share the longest end, and where that begins in it.
fn joins(paths: &[Path], nodes: &[UOp]) -> Option<(usize, usize)> {
    let shared = |path: &Path| {
        let ends = path.nodes.iter().rev().zip(nodes.iter().rev());
        ends.take_while(|(a, b)| a == b).count()
    };
    let lengths = paths.iter().map(shared).enumerate();
    let (which, length) = lengths.max_by_key(|&(k, length)| (length, usize::MAX - k))?;
    (length > 0).then(|| (which, paths[which].nodes.len() - length))
}

impl Explanation {
    /// The same with other words for the target and the root.
    pub(crate) fn called(mut self, target: &'static str, root: &'static str) -> Explanation {
        self.names = (target, root);
        self
    }

    /// The same with a cut that is not in the graph.
    pub(crate) fn cut_by(mut self, cut: Cut) -> Explanation {
        self.mentioned = true;
        self.cut_count += 1;
        self.cuts.insert(0, cut);
        self
    }

    /// Whether a derivative flows from the target to the root.
    pub fn reaches(&self) -> bool {
        self.path_count > 0
    }

    fn write_path(&self, f: &mut fmt::Formatter, which: usize) -> fmt::Result {
        let path = &self.paths[which];
        let own = match path.joins {
            Some((other, at)) => path.nodes.len() - (self.paths[other].nodes.len() - at),
            None => path.nodes.len(),
        };
        // Steps of one line of the program stand together.
        let mut lines: Vec<String> = Vec::new();
        for group in path.nodes[..own].chunk_by(|a, b| a.site() == b.site()) {
            let ops: Vec<String> = few(group).map(|u| u.map_or("...".into(), named)).collect();
            let last = group.last().expect("groups are not empty");
            let (ops, dtype, shape) = (ops.join(", "), last.dtype(), last.shape());
            let site = last
                .site()
                .map_or(String::new(), |site| format!(" (at {site})"));
            lines.push(format!("{ops} -> {dtype} {shape}{site}"));
        }
        if let Some((other, at)) = path.joins {
            let step = Step::of(&self.paths[other].nodes[at]);
            lines.push(format!("then as path {} from {step}", other + 1));
        }
        let n = lines.len();
        for (k, line) in lines.iter().enumerate() {
            let number = match k {
                0 => format!("{}.", which + 1),
                _ => String::new(),
            };
            if k < ENDS || k >= n.saturating_sub(ENDS) {
                writeln!(f, "{number:>4} {line}")?;
            } else if k == ENDS {
                writeln!(f, "     ... {} lines ...", n - 2 * ENDS)?;
            }
        }
        Ok(())
    }
}

/// The first and last nodes of a long group, with `None` for those between.
fn few(group: &[UOp]) -> impl Iterator<Item = Option<&UOp>> {
    let (head, tail) = match group.len() > 2 * ENDS {
        true => (&group[..ENDS], &group[group.len() - ENDS..]),
        false => (group, &group[..0]),
    };
    let gap = (!tail.is_empty()).then_some(None);
    let head = head.iter().map(Some).chain(gap);
    head.chain(tail.iter().map(Some))
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (target, root) = self.names;
        write!(f, "{target}, {}, ", self.target)?;
        if !self.mentioned {
            return writeln!(
                f,
                "does not occur in {root}, {}: {root} was not computed from it, so its gradient is \
                 zero; what was read out as numbers and put in again is another value",
                self.root
            );
        }
        let n = self.path_count;
        match n {
            0 => writeln!(
                f,
                "gets no gradient from {root}, {}: every path is cut",
                self.root
            )?,
            1 if self.paths[0].nodes.is_empty() => writeln!(f, "is {root} itself")?,
            1 => writeln!(f, "reaches {root}, {}, by 1 path:", self.root)?,
            u64::MAX => writeln!(
                f,
                "reaches {root}, {}, by more than 10^19 paths; the shortest:",
                self.root
            )?,
            _ => writeln!(
                f,
                "reaches {root}, {}, by {n} paths; the shortest:",
                self.root
            )?,
        }
        for which in 0..self.paths.len() {
            self.write_path(f, which)?;
        }
        let listed = self.paths.len() as u64;
        if n > listed && n < u64::MAX {
            writeln!(f, "     and {} more", n - listed)?;
        }
        if self.cut_count == 0 {
            return Ok(());
        }
        match (n, self.cut_count) {
            (0, _) => writeln!(f, "it is cut here:")?,
            (_, 1) => writeln!(f, "besides, a path is cut here:")?,
            (_, cuts) => writeln!(f, "besides, paths are cut at {cuts} places:")?,
        }
        for cut in &self.cuts {
            writeln!(f, "   - {cut}")?;
        }
        if self.cut_count > self.cuts.len() {
            writeln!(f, "     and {} more", self.cut_count - self.cuts.len())?;
        }
        Ok(())
    }
}
