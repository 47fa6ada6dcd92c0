//! Walks over graphs, all iterative: order, consumers, substitution.

use rustc_hash::FxHashMap;

use super::positions::Positions;
use super::site::Site;
use super::uop::{Sources, UOp};
use crate::error::{Error, Result};

/// All nodes that the roots depend on, roots included, each once, sources before consumers:
/// depth first, sources left to right. `.uir` numbers and the order in which gradients are
/// added follow from this order.
pub fn toposort(roots: &[UOp]) -> Vec<UOp> {
    Graph::new(roots).nodes
}

/// Room for this many nodes is made at once: a loss has some hundred.
const USUAL_NODES: usize = 64;

/// A graph in dense form: nodes in topological order, numbered by position.
pub struct Graph {
    /// The nodes, sources before consumers.
    pub nodes: Vec<UOp>,
    /// Positions of the roots, in the order given.
    pub roots: Vec<u32>,
    /// Positions of all sources, one node's after the other's.
    sources: Vec<u32>,
    /// Where the sources of node i begin; one more entry than nodes.
    starts: Vec<u32>,
    positions: Positions,
}

impl Graph {
    /// Numbers the graph under the roots in the order of [`toposort`].
    pub fn new(roots: &[UOp]) -> Graph {
        let mut graph = Graph {
            nodes: Vec::with_capacity(USUAL_NODES),
            roots: Vec::with_capacity(roots.len()),
            sources: Vec::with_capacity(USUAL_NODES),
            starts: Vec::with_capacity(USUAL_NODES),
            positions: Positions::begin(),
        };
        graph.starts.push(0);
        // A frame is a node and how many of its sources have been entered; `done` holds the
        // positions of those.
        let mut stack: Vec<(&UOp, usize)> = Vec::new();
        let mut done: Vec<u32> = Vec::new();
        for root in roots {
            graph.enter(root, &mut stack, &mut done);
            while let Some((u, entered)) = stack.last_mut() {
                let u: &UOp = u;
                if let Some(s) = u.src().get(*entered) {
                    *entered += 1;
                    graph.enter(s, &mut stack, &mut done);
                } else {
                    stack.pop();
                    let sources = done.len() - u.src().len();
                    graph.sources.extend(done.drain(sources..));
                    done.push(graph.append(u));
                }
            }
            graph.roots.extend(done.pop());
        }
        graph.positions.end();
        graph
    }

    /// Takes up a node; one that was met before or has no sources is done at once.
    fn enter<'a>(&mut self, u: &'a UOp, stack: &mut Vec<(&'a UOp, usize)>, done: &mut Vec<u32>) {
        match self.positions.of(u, &self.nodes) {
            Some(position) => done.push(position),
            None if u.src().is_empty() => done.push(self.append(u)),
            None => stack.push((u, 0)),
        }
    }

    /// Gives a node its position; its sources are listed already.
    fn append(&mut self, u: &UOp) -> u32 {
        self.starts.push(self.sources.len() as u32);
        self.positions.push(u.clone(), &mut self.nodes)
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Positions of node i's sources, in order.
    pub fn src(&self, i: usize) -> &[u32] {
        &self.sources[self.starts[i] as usize..self.starts[i + 1] as usize]
    }

    /// The position of a node, if it is in the graph.
    pub fn position(&self, u: &UOp) -> Option<usize> {
        self.positions.of(u, &self.nodes).map(|i| i as usize)
    }

    /// For each node how often it is read: once per appearance among sources and roots.
    pub fn uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.len()];
        for &s in self.sources.iter().chain(&self.roots) {
            uses[s as usize] += 1;
        }
        uses
    }

    /// For each node the positions of the nodes that read it, ascending, once per appearance.
    pub fn consumers(&self) -> Vec<Vec<u32>> {
        let mut consumers = vec![Vec::new(); self.len()];
        for i in 0..self.len() {
            for &s in self.src(i) {
                consumers[s as usize].push(i as u32);
            }
        }
        consumers
    }

    /// Builds the graph anew from the leaves up: `rebuild` gets a node's position, the node and
    /// its new sources, and returns what takes its place. The result is the new roots.
    ///
    /// # Errors
    /// The first error of `rebuild`.
    pub fn map(
        &self,
        mut rebuild: impl FnMut(usize, &UOp, &[UOp]) -> Result<UOp>,
    ) -> Result<Vec<UOp>> {
        let mut new: Vec<UOp> = Vec::with_capacity(self.len());
        let mut src = Sources::new();
        for (i, u) in self.nodes.iter().enumerate() {
            src.clear();
            src.extend(self.src(i).iter().map(|&s| new[s as usize].clone()));
            let made = rebuild(i, u, &src)?;
            new.push(made);
        }
        Ok(self
            .roots
            .iter()
            .map(|&r| new[r as usize].clone())
            .collect())
    }
}

impl UOp {
    /// The same op on other sources; the node itself if they are its own. It belongs to the same
    /// line of the program and to the same rule.
    ///
    /// # Errors
    /// When the op does not accept them.
    pub fn with_src(&self, src: &[UOp]) -> Result<UOp> {
        if self.src() == src {
            return Ok(self.clone());
        }
        let _line = Site::inherit(self.site());
        UOp::new(self.op().clone(), Sources::from(src))
    }
}

/// Replaces nodes by others throughout the graphs of the roots. What replaces a node stays as it
/// is, whatever it mentions. A node that is built anew keeps its op, hence the order of its sums,
/// and its line of the program; one that reads nothing new stays itself, with the memory it has.
///
/// # Errors
/// When a consumer does not accept a replacement.
pub fn substitute(roots: &[UOp], replace: &FxHashMap<UOp, UOp>) -> Result<Vec<UOp>> {
    Graph::new(roots).map(|_, u, src| match replace.get(u) {
        Some(other) => Ok(other.clone()),
        None => u.with_src(src),
    })
}

/// [`substitute`] for graphs that are functions of their leaves: each pair is a parameter and the
/// argument that takes its place, of its dtype and shape. A function with leaves of its own can be
/// differentiated or batched inside another: what a tangent or a batch is made of is never mistaken
/// for the argument, which comes last.
///
/// ```
/// use uopc::ir::{DType, UOp, visit::with_arguments};
///
/// let x = UOp::slot(0, DType::F32, 3);
/// let y = UOp::slot(1, DType::F32, 3);
/// let f = x.mul(&x)?;
/// assert_eq!(with_arguments(&[f], &[(x.clone(), y.add(&x)?)])?, [y.add(&x)?.mul(&y.add(&x)?)?]);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// When a replacement has another dtype or shape than the node, and when a node is given two.
pub fn with_arguments(roots: &[UOp], arguments: &[(UOp, UOp)]) -> Result<Vec<UOp>> {
    let mut replace = FxHashMap::default();
    for (from, to) in arguments {
        let message = if (from.dtype(), from.shape()) != (to.dtype(), to.shape()) {
            let (a, b) = (typed(from), typed(to));
            format!("{b} can't stand for {a}; cast, reshape or expand it")
        } else if let Some(other) = replace.insert(from.clone(), to.clone())
            && other != *to
        {
            format!("{} is given two values; give one", typed(from))
        } else {
            continue;
        };
        return Err(Error::Shape {
            op: "substitute",
            message,
            site: from.site(),
        });
    }
    substitute(roots, &replace)
}

fn typed(u: &UOp) -> String {
    format!("{} {} {}", u.op().mnemonic(), u.dtype(), u.shape())
}
