//! Kernelize: split one shape graph into kernels (elsewhere: fusion, partitioning).
//!
//! In:       ShapeGraph without `stage detach`, simplified, its buffers numbered slots.
//! Out:      Plan: kernels in run order, each computing one buffer from buffers.
//! Keeps:    the value of every root, bit for bit.
//! Ensures:  no reduction is computed twice, and nothing else unless fusion.rs judged it cheap.
//! Cost:     linear in nodes and in what kernels compute again.
//! Example:  tests/golden/kernelize/softmax.uir, three kernels.

use std::collections::BTreeSet;
use std::fmt::Write;

use rustc_hash::{FxHashMap, FxHashSet};

use super::fusion::{self, Places};
use crate::error::{Error, Result};
use crate::ir::fold::chain_product;
use crate::ir::form::{BufferIndex, Kernel, Plan, PlanBuffer, Role, ShapeGraph};
use crate::ir::op::{BufferId, Fold, ParamMode, StageKind};
use crate::ir::visit::{Graph, substitute, toposort};
use crate::ir::{Op, UOp, verify};

/// A plan, and for each node that has a buffer which one it is.
pub struct Kernelized {
    /// The plan.
    pub plan: Plan,
    /// Nodes of the graph by buffer; a RESHAPE of such a node has the same buffer.
    pub buffer_of: FxHashMap<UOp, BufferIndex>,
}

/// Splits a graph into kernels. `name` is given to the kernel if there is only one.
///
/// # Errors
/// When the graph reads live memory or parameters instead of numbered slots.
pub fn kernelize(shapes: &ShapeGraph, name: Option<&str>) -> Result<Kernelized> {
    let graph = Graph::new(shapes.roots());
    let places = fusion::choose_buffers(&graph);
    let mut buffers = inputs(&graph)?;
    let mut buffer_of: FxHashMap<UOp, BufferIndex> = FxHashMap::default();
    for (u, b) in graph.nodes.iter().filter(|u| is_buffer(u)).zip(0..) {
        buffer_of.insert(u.clone(), b);
    }
    let root_bases: FxHashSet<usize> = graph
        .roots
        .iter()
        .map(|&r| fusion::base(&graph, r as usize))
        .collect();
    let mut computed = Vec::new();
    for (i, u) in graph.nodes.iter().enumerate() {
        let Some(reason) = places.reasons[i] else {
            continue;
        };
        if is_buffer(u) {
            continue;
        }
        let role = if root_bases.contains(&i) {
            Role::Output
        } else {
            Role::Temporary
        };
        let n = u.shape().numel();
        buffer_of.insert(u.clone(), buffers.len() as BufferIndex);
        buffers.push(PlanBuffer {
            dtype: u.dtype(),
            n,
            role,
            reason: reason.into(),
        });
        if n > 0 {
            computed.push(i);
        }
    }
    let single = computed.len() == 1;
    let kernels = computed
        .iter()
        .map(|&i| kernel(&graph, &places, &buffers, &buffer_of, i, single, name))
        .collect::<Result<_>>()?;
    let outputs = (graph.roots.iter())
        .map(|&r| buffer_of[&graph.nodes[fusion::base(&graph, r as usize)]])
        .collect();
    Ok(Kernelized {
        plan: Plan {
            kernels,
            buffers,
            outputs,
        },
        buffer_of,
    })
}

fn is_buffer(u: &UOp) -> bool {
    matches!(u.op(), Op::Buffer { .. })
}

fn inputs(graph: &Graph) -> Result<Vec<PlanBuffer>> {
    let mut buffers = Vec::new();
    for u in &graph.nodes {
        if let Op::Param { slot, .. } = u.op() {
            let message = format!(
                "param {slot} belongs to a kernel, and kernels are made here; read a buffer with \
                 slot={slot} instead"
            );
            let site = u.site();
            return Err(Error::Verify {
                form: "kernelize",
                message,
                site,
            });
        }
        let Op::Buffer { id, dtype, n } = u.op() else {
            continue;
        };
        let BufferId::Slot(slot) = id else {
            let message = "a plan reads numbered slots; replace live memory by slots first".into();
            return Err(Error::Verify {
                form: "kernelize",
                message,
                site: u.site(),
            });
        };
        let role = Role::Input(*slot);
        buffers.push(PlanBuffer {
            dtype: *dtype,
            n: *n,
            role,
            reason: "input".into(),
        });
    }
    Ok(buffers)
}

/// The kernel that computes node i.
fn kernel(
    graph: &Graph,
    places: &Places,
    buffers: &[PlanBuffer],
    buffer_of: &FxHashMap<UOp, BufferIndex>,
    i: usize,
    single: bool,
    name: Option<&str>,
) -> Result<Kernel> {
    let (members, stops) = extent_of(graph, &places.reasons, i);
    // Each buffer read becomes a parameter, for now numbered like the plan's buffers.
    let read = |u: &UOp| {
        let b = buffer_of[u];
        let buffer = &buffers[b as usize];
        UOp::param(b, ParamMode::In, buffer.dtype, buffer.n).reshape(u.shape())
    };
    let mut made: FxHashMap<usize, UOp> = FxHashMap::default();
    for s in stops {
        made.insert(s, read(&graph.nodes[s])?);
    }
    for &k in &members {
        let src: Vec<UOp> = graph
            .src(k)
            .iter()
            .map(|&s| made[&(s as usize)].clone())
            .collect();
        let u = graph.nodes[k].with_src(&src)?;
        let u = match places.within[k] {
            true => u.stage(StageKind::Within)?,
            false => u,
        };
        made.insert(k, u);
    }
    let body = made[&i].clone();
    let (body, ins) = number_params(body, buffers, single)?;
    let highest = ins.iter().map(|&(slot, _)| slot).max();
    let out_slot = match highest.map(|slot| slot.checked_add(1)) {
        None => 0,
        Some(Some(slot)) => slot,
        Some(None) => {
            let message = format!("slot {} leaves no number for the output", u32::MAX);
            let form = "kernelize";
            return Err(Error::Verify {
                form,
                message,
                site: None,
            });
        }
    };
    let name = match name {
        Some(name) if single => name.into(),
        _ => kernel_name(graph, &members, i).into(),
    };
    let outs = vec![(out_slot, buffer_of[&graph.nodes[i]])];
    Ok(Kernel {
        name,
        body: verify::shape_graph(vec![body])?,
        outs,
        ins,
    })
}

/// The nodes that the kernel of node i computes, in order, and the buffered nodes it reads.
///
/// A chain sums a product before it is rounded, so its kernel computes the product even where
/// another kernel has stored it.
fn extent_of(
    graph: &Graph,
    reasons: &[Option<fusion::Reason>],
    i: usize,
) -> (Vec<usize>, Vec<usize>) {
    let (mut members, mut stops) = (BTreeSet::new(), BTreeSet::new());
    let mut unrounded = FxHashSet::default();
    let mut stack = vec![i];
    while let Some(k) = stack.pop() {
        let stored = k != i && (reasons[k].is_some() || is_buffer(&graph.nodes[k]));
        if stored && !unrounded.contains(&k) {
            stops.insert(k);
            continue;
        }
        stops.remove(&k);
        if members.insert(k) {
            unrounded.extend(chain_path(graph, k));
            stack.extend(graph.src(k).iter().map(|&s| s as usize));
        }
    }
    (members.into_iter().collect(), stops.into_iter().collect())
}

/// The nodes from below a chain down to the product that it sums.
fn chain_path(graph: &Graph, k: usize) -> Vec<usize> {
    let Op::Reduce {
        fold: Fold::Chain, ..
    } = graph.nodes[k].op()
    else {
        return Vec::new();
    };
    let Some((product, through)) = chain_product(&graph.nodes[k].src()[0]) else {
        return Vec::new();
    };
    let nodes = through.iter().chain([&product]);
    nodes.filter_map(|u| graph.position(u)).collect()
}

/// Gives the parameters their final numbers: a plan of one kernel keeps the numbers of the text
/// slots, kernels of a larger plan count from 0 in the order in which they read.
fn number_params(
    body: UOp,
    buffers: &[PlanBuffer],
    single: bool,
) -> Result<(UOp, Vec<(u32, BufferIndex)>)> {
    let mut ins = Vec::new();
    let mut renumbered = FxHashMap::default();
    for u in toposort(std::slice::from_ref(&body)) {
        let Op::Param {
            slot: b,
            mode,
            dtype,
            n,
        } = *u.op()
        else {
            continue;
        };
        let slot = match buffers[b as usize].role {
            Role::Input(slot) if single => slot,
            _ => ins.len() as u32,
        };
        ins.push((slot, b));
        renumbered.insert(u.clone(), UOp::param(slot, mode, dtype, n));
    }
    let body = substitute(&[body], &renumbered)?.remove(0);
    ins.sort_unstable();
    Ok((body, ins))
}

/// `s` for kernels that scatter, `scan` and `argsort` for those that do so, `r` for those that reduce, else `e`, and the shape they compute.
fn kernel_name(graph: &Graph, members: &[usize], i: usize) -> String {
    let reduces = members
        .iter()
        .any(|&k| matches!(graph.nodes[k].op(), Op::Reduce { .. }));
    let mut name = String::from(match graph.nodes[i].op() {
        Op::ScatterAdd(_) => "s",
        Op::Scan(_) => "scan",
        Op::ArgSort => "argsort",
        _ if reduces => "r",
        _ => "e",
    });
    for d in graph.nodes[i].shape().iter() {
        write!(name, "_{d}").expect("writing to a string cannot fail");
    }
    if graph.nodes[i].shape().rank() == 0 {
        name.push_str("_1");
    }
    name
}
