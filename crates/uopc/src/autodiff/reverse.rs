//! The reverse driver: visits the nodes of a graph from the root down, applies the rule of each to
//! its cotangent, and adds up what arrives at their sources.
//!
//! What is here is bookkeeping: which nodes lie on a path to a target, in which order contributions
//! are added, where cotangents are closed. What a derivative is stands in `vjp.rs`, what masks
//! are in `mask.rs`.

use smallvec::{SmallVec, smallvec};

use super::cotangent::{Cotangent, total};
use super::passage::{Passage, passage};
use super::stop::{Diagnostic, cuts, refuse_lowered, refuse_whole};
use super::vjp::pulls;
use crate::error::{Error, Result};
use crate::ir::composite::zeros_like;
use crate::ir::site::{Rule, Site};
use crate::ir::uop::UOp;
use crate::ir::visit::Graph;

/// What the readers of a node have sent to it, in order of arrival.
type Contributions = SmallVec<[Cotangent; 1]>;

/// The cotangents of the targets, given those of the roots (ones if `None`), with a diagnostic for
/// each target that is cut off; if `strict`, the first of them is an error.
pub(super) fn reverse(
    seeds: &[(UOp, Option<UOp>)],
    targets: &[UOp],
    strict: bool,
) -> Result<(Vec<UOp>, Vec<Diagnostic>)> {
    let roots: Vec<UOp> = seeds.iter().map(|(root, _)| root.clone()).collect();
    let graph = Graph::new(&roots);
    check(&graph, &roots, targets)?;
    let on_path = on_path(&graph, targets);
    let spoilt = spoilt(&graph, &on_path);
    let mut cotangents = vec![Contributions::new(); graph.len()];
    for (&r, (root, cotangent)) in graph.roots.iter().zip(seeds) {
        cotangents[r as usize].push(seed(root, cotangent.as_ref())?.into());
    }
    for i in (0..graph.len()).rev() {
        let u = &graph.nodes[i];
        let Some(mut cotangent) = summed(u, &cotangents[i])? else {
            continue;
        };
        let _rule = Site::derive(u.site(), Rule::vjp(u.op()));
        if !spoilt[i] {
            cotangent = cotangent.closed()?.into();
        }
        for (k, &s) in graph.src(i).iter().enumerate() {
            if on_path[s as usize] {
                let sent = cotangent.sent(u, k, spoilt[s as usize])?;
                cotangents[s as usize].extend(sent);
            }
        }
        cotangents[i] = smallvec![cotangent];
    }
    collect(&graph, targets, &cotangents, strict)
}

/// What the readers of u have sent to it, added up.
fn summed(u: &UOp, sent: &[Cotangent]) -> Result<Option<Cotangent>> {
    let _rule = Site::derive(u.site(), Rule::SumOfCotangents);
    total(sent)
}

/// The root's own cotangent.
fn seed(root: &UOp, cotangent: Option<&UOp>) -> Result<UOp> {
    let Some(g) = cotangent else {
        let _rule = Site::derive(root.site(), Rule::Seed);
        return root.full_like(1.0);
    };
    if (g.dtype(), g.shape()) == (root.dtype(), root.shape()) {
        return Ok(g.clone());
    }
    let message = format!(
        "the cotangent is {} {}, the root {} {}; give one of the root's dtype and shape",
        g.dtype(),
        g.shape(),
        root.dtype(),
        root.shape()
    );
    let site = root.site();
    Err(Error::Gradient { message, site })
}

/// Refuses what can't be differentiated at all, before anything is built.
fn check(graph: &Graph, roots: &[UOp], targets: &[UOp]) -> Result<()> {
    refuse_lowered(graph)?;
    roots.iter().try_for_each(|r| refuse_whole("root", r))?;
    targets.iter().try_for_each(|t| refuse_whole("target", t))
}

/// For each node whether a change of some target reaches it. Nothing else gets a cotangent, so
/// input data are never differentiated.
fn on_path(graph: &Graph, targets: &[UOp]) -> Vec<bool> {
    let mut on_path = vec![false; graph.len()];
    for i in targets.iter().filter_map(|t| graph.position(t)) {
        on_path[i] = true;
    }
    for (i, u) in graph.nodes.iter().enumerate() {
        let reached = |(k, &s): (usize, &u32)| on_path[s as usize] && pulls(u, k);
        on_path[i] |= graph.src(i).iter().enumerate().any(reached);
    }
    on_path
}

/// For each node whether, between it and a target, a zero of its cotangent may turn into something
/// else. If not, there is no need to remember which of its elements count.
fn spoilt(graph: &Graph, on_path: &[bool]) -> Vec<bool> {
    let mut spoilt = vec![false; graph.len()];
    for (i, u) in graph.nodes.iter().enumerate().filter(|(i, _)| on_path[*i]) {
        let passage = passage(u);
        let reached = |(k, &s): (usize, &u32)| {
            let spoils = spoilt[s as usize] || passage == Passage::Scaled;
            on_path[s as usize] && pulls(u, k) && spoils
        };
        spoilt[i] = !passage.closes() && graph.src(i).iter().enumerate().any(reached);
    }
    spoilt
}

/// One gradient a target: its cotangent, or zeros, with a diagnostic if it was cut off.
fn collect(
    graph: &Graph,
    targets: &[UOp],
    cotangents: &[Contributions],
    strict: bool,
) -> Result<(Vec<UOp>, Vec<Diagnostic>)> {
    let mut gradients = Vec::with_capacity(targets.len());
    let mut missing = Vec::new();
    for (which, target) in targets.iter().enumerate() {
        let position = graph.position(target);
        match position.and_then(|i| cotangents[i].first()) {
            Some(cotangent) => gradients.push(cotangent.closed()?),
            None => {
                missing.extend(position.map(|i| (which, i)));
                gradients.push(zeros_like(target)?);
            }
        }
    }
    let diagnostics = if missing.is_empty() {
        Vec::new()
    } else {
        cuts(graph, &missing)
    };
    match diagnostics.first() {
        Some(cut) if strict => Err(cut.clone().into()),
        _ => Ok((gradients, diagnostics)),
    }
}
