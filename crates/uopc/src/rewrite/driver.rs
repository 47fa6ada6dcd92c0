//! The driver: applies a rule set to a graph, from the leaves up, until no rule fires.
//!
//! Each node is brought to normal form once and remembered. For a node whose sources are in
//! normal form the rules of its op are tried in the order of the table; what the first one gives
//! is treated in the same way, its new nodes first. Nothing recurses: nodes in work stand on a
//! stack of our own. The cost is linear in the nodes of the graph plus those that rules build.

use std::mem::{self, Discriminant, discriminant};

use rustc_hash::FxHashMap;

use super::trace::Trace;
use super::{Miss, RuleSet};
use crate::error::{Error, Result};
use crate::ir::bounds::Bounds;
use crate::ir::site::Site;
use crate::ir::uop::Sources;
use crate::ir::visit::Graph;
use crate::ir::{Op, UOp};

/// Says whether a node may be given these new sources; if not it stays as it is, sources and
/// all. The last argument gives the normal form of a node below.
pub type Guard = fn(&UOp, &[UOp], &dyn Fn(&UOp) -> Option<UOp>) -> bool;

/// How far a rewrite goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Stop after that many rules have fired; what is not yet rewritten stays.
    pub fuel: Option<u64>,
    /// More firings than this for each node of the graph are taken for a loop among the rules;
    /// 0 stands for a generous default.
    pub firings_per_node: u64,
}

/// Why a rewrite ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// No rule fires any more.
    Fixpoint,
    /// The fuel was used up.
    Fuel,
}

/// A graph in normal form.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The new roots, in order.
    pub roots: Vec<UOp>,
    /// What each node of `Graph::new(roots).nodes` became.
    pub map: Vec<UOp>,
    /// How often each rule fired, in the order of the tables; only those that did.
    pub fired: Vec<(&'static str, u64)>,
    /// Why it ended.
    pub stop: StopReason,
}

/// Applies the rules to everything under the roots.
///
/// # Errors
/// When a rule builds a node that breaks a type rule, when rules undo each other without end
/// (the error names them), or when the trace can't be written.
pub fn rewrite(
    roots: &[UOp],
    rules: &RuleSet,
    limits: &Limits,
    trace: Option<&mut Trace>,
) -> Result<Rewritten> {
    rewrite_assuming(roots, rules, limits, trace, Bounds::new())
}

/// [`rewrite`] where more is known of some nodes than follows from what they are. The result
/// equals the roots only where that holds.
///
/// # Errors
/// As [`rewrite`].
pub fn rewrite_assuming(
    roots: &[UOp],
    rules: &RuleSet,
    limits: &Limits,
    trace: Option<&mut Trace>,
    bounds: Bounds,
) -> Result<Rewritten> {
    let graph = Graph::new(roots);
    let per_node = match limits.firings_per_node {
        0 => 64,
        n => n,
    };
    let mut driver = Driver {
        rules,
        trace,
        bounds,
        tried: FxHashMap::default(),
        normal: NormalForms::default(),
        fired: vec![0; rules.rules.len()],
        firings: 0,
        fuel: limits.fuel.unwrap_or(u64::MAX),
        limit: (graph.len() as u64).saturating_mul(per_node).max(4096),
        recent: Vec::new(),
    };
    driver.normal.reserve(graph.len());
    let mut map: Vec<UOp> = Vec::with_capacity(graph.len());
    for (i, u) in graph.nodes.iter().enumerate() {
        // What becomes of a node was written where the node was.
        let _line = Site::inherit(u.site());
        let src = graph.src(i).iter().map(|&s| map[s as usize].clone());
        let rebuilt = driver.on_sources(u, src.collect())?;
        let normal = driver.normalise(&rebuilt)?;
        if rebuilt != *u {
            driver.normal.insert(u, &normal);
        }
        map.push(normal);
    }
    let names = rules.rules.iter().map(|r| r.name);
    let fired = names.zip(driver.fired.iter().copied());
    Ok(Rewritten {
        roots: graph
            .roots
            .iter()
            .map(|&r| map[r as usize].clone())
            .collect(),
        fired: fired.filter(|(_, n)| *n > 0).collect(),
        stop: if driver.firings >= driver.fuel {
            StopReason::Fuel
        } else {
            StopReason::Fixpoint
        },
        map,
    })
}

/// How many of the last firings an error about a loop names.
const RECENT: usize = 8;

struct Driver<'a> {
    rules: &'a RuleSet,
    trace: Option<&'a mut Trace>,
    bounds: Bounds,
    /// The rules of each op met so far.
    tried: FxHashMap<Discriminant<Op>, &'a [u32]>,
    /// The normal form of each node met, that of a normal form being itself.
    normal: NormalForms,
    fired: Vec<u64>,
    firings: u64,
    fuel: u64,
    limit: u64,
    /// The last rules that fired, kept only near the limit.
    recent: Vec<&'static str>,
}

/// The normal form of each node met.
///
/// Nodes are held in the order in which they were met, so that letting go of a large graph walks
/// through memory and does not jump about in it.
#[derive(Default)]
struct NormalForms {
    /// Where the form of the node at an address stands.
    index: FxHashMap<usize, u32>,
    forms: Vec<UOp>,
    /// The nodes that are no normal forms, kept alive so that their addresses stay theirs.
    kept: Vec<UOp>,
}

impl NormalForms {
    fn reserve(&mut self, n: usize) {
        self.index.reserve(n);
        self.forms.reserve(n);
    }

    fn get(&self, u: &UOp) -> Option<&UOp> {
        let position = self.index.get(&u.address())?;
        Some(&self.forms[*position as usize])
    }

    fn insert(&mut self, u: &UOp, form: &UOp) {
        self.index.insert(u.address(), self.forms.len() as u32);
        self.forms.push(form.clone());
        if u != form {
            self.kept.push(u.clone());
        }
    }
}

/// A node in work: what it is now, and what it was on the way.
struct Frame {
    now: UOp,
    /// The sources before this one are in normal form.
    next: usize,
    were: Vec<UOp>,
}

impl Frame {
    fn new(u: &UOp) -> Frame {
        Frame {
            now: u.clone(),
            next: 0,
            were: Vec::new(),
        }
    }

    fn turn_into(&mut self, u: UOp) {
        self.were.push(mem::replace(&mut self.now, u));
        self.next = 0;
    }
}

impl Driver<'_> {
    /// The normal form of a node whose sources may be anything.
    fn normalise(&mut self, root: &UOp) -> Result<UOp> {
        let mut stack = vec![Frame::new(root)];
        let mut normal = root.clone();
        while let Some(frame) = stack.last_mut() {
            if let Some(known) = self.normal.get(&frame.now) {
                normal = known.clone();
                self.settle(stack.pop(), &normal);
                continue;
            }
            let src = frame.now.src();
            while frame.next < src.len() && self.normal.get(&src[frame.next]).is_some() {
                frame.next += 1;
            }
            if let Some(source) = src.get(frame.next) {
                let source = Frame::new(source);
                stack.push(source);
                continue;
            }
            let src: Option<Sources> = src.iter().map(|s| self.normal.get(s).cloned()).collect();
            let src = src.expect("each source was found above");
            let rebuilt = self.on_sources(&frame.now, src)?;
            if rebuilt != frame.now {
                frame.turn_into(rebuilt);
                continue;
            }
            match self.step(&frame.now)? {
                Some(next) => frame.turn_into(next),
                None => {
                    normal = frame.now.clone();
                    self.settle(stack.pop(), &normal);
                }
            }
        }
        Ok(normal)
    }

    /// Notes the normal form of everything that a frame's node was.
    fn settle(&mut self, frame: Option<Frame>, normal: &UOp) {
        let Some(frame) = frame else { return };
        for was in frame.were {
            self.normal.insert(&was, normal);
        }
        self.normal.insert(&frame.now, normal);
    }

    /// The node on the normal forms of its sources.
    fn on_sources(&self, u: &UOp, src: Sources) -> Result<UOp> {
        if u.src() == &src[..] {
            return Ok(u.clone());
        }
        let normal_of = |s: &UOp| self.normal.get(s).cloned();
        match self.rules.guard {
            Some(accepts) if !accepts(u, &src, &normal_of) => Ok(u.clone()),
            _ => u.with_src(&src),
        }
    }

    /// What the first rule that applies makes of a node.
    fn step(&mut self, u: &UOp) -> Result<Option<UOp>> {
        if self.firings >= self.fuel {
            return Ok(None);
        }
        let rules = self.rules;
        let kind = discriminant(u.op());
        let tried = self.tried.entry(kind).or_insert_with(|| rules.on(u.op()));
        for &k in *tried {
            let rule = &rules.rules[k as usize];
            match (rule.apply)(u, &mut self.bounds) {
                Ok(next) if next == *u => {}
                Ok(next) => {
                    check_type(rule.name, u, &next)?;
                    self.count(k)?;
                    if let Some(trace) = self.trace.as_deref_mut() {
                        trace.record(rule.name, u, &next)?;
                    }
                    return Ok(Some(next));
                }
                Err(Miss::NoMatch) => {}
                Err(Miss::Failed(error)) => return Err(*error),
            }
        }
        Ok(None)
    }

    fn count(&mut self, k: u32) -> Result<()> {
        self.fired[k as usize] += 1;
        self.firings += 1;
        if self.firings + RECENT as u64 > self.limit {
            self.recent.push(self.rules.rules[k as usize].name);
        }
        if self.firings < self.limit {
            return Ok(());
        }
        let (n, last) = (self.firings, self.recent.join(", "));
        Err(Error::Verify {
            form: self.rules.name,
            message: format!(
                "{n} rules fired without an end; the last ones are {last}: \
                 leave one out with UOPC_DISABLE"
            ),
            site: None,
        })
    }
}

/// A rule keeps dtype and shape.
fn check_type(rule: &str, before: &UOp, after: &UOp) -> Result<()> {
    if before.dtype() == after.dtype() && before.shape() == after.shape() {
        return Ok(());
    }
    Err(Error::Verify {
        form: "rewrite",
        message: format!("rule {rule} turned {before:?} into {after:?}"),
        site: before.site(),
    })
}
