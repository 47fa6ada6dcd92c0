//! Order: put kernels in an order in which less memory is needed at once.
//!
//! In:       Plan.
//! Out:      Plan with the same kernels; each still comes after those whose results it reads.
//! Keeps:    what every kernel computes.
//! Ensures:  the peak is not larger; where it is the same, less is alive on average.
//! Cost:     a logarithm for each read.
//! Example:  tests/golden/order/gradients.uir
//!
//! The order in which roots name their values has nothing to do with memory: the gradients of the
//! weights of a chain of layers, asked for first layer first, would all but one be computed when
//! every cotangent is there. Here the next kernel is one that adds least to what is alive, the
//! earliest of several.

use std::collections::BTreeSet;

use super::memory::{ALIGNMENT, plan_memory};
use crate::ir::form::{Plan, PlanBuffer, Role};

/// The plan in the better of two orders: its own, and one that goes by what is alive.
pub fn order(plan: &Plan) -> Plan {
    let sorted = by_growth(plan);
    if sorted.iter().copied().eq(0..plan.kernels.len()) {
        return plan.clone();
    }
    let kernels = sorted.iter().map(|&k| plan.kernels[k].clone());
    let ordered = Plan {
        kernels: kernels.collect(),
        ..plan.clone()
    };
    let takes = |plan: &Plan| (plan_memory(plan, &[]).peak, area(plan));
    match takes(&ordered) < takes(plan) {
        true => ordered,
        false => plan.clone(),
    }
}

/// Bytes of temporaries alive, summed over kernels.
fn area(plan: &Plan) -> i128 {
    let mut span: Vec<Option<(usize, usize)>> = vec![None; plan.buffers.len()];
    for (k, kernel) in plan.kernels.iter().enumerate() {
        for &(_, b) in kernel.outs.iter().chain(&kernel.ins) {
            span[b as usize].get_or_insert((k, k)).1 = k;
        }
    }
    let lives = plan.buffers.iter().zip(&span);
    let area = lives.filter_map(|(buffer, span)| {
        let (from, to) = (*span)?;
        Some(bytes(buffer) * (to - from + 1) as i128)
    });
    area.sum()
}

/// What a buffer takes while it is alive. What is there from the start to the end counts nothing.
fn bytes(buffer: &PlanBuffer) -> i128 {
    match buffer.role {
        Role::Temporary => {
            let bytes = buffer.n.saturating_mul(buffer.dtype.size());
            bytes.min(1 << 60).next_multiple_of(ALIGNMENT) as i128
        }
        Role::Input(_) | Role::Output => 0,
    }
}

/// The kernels, that which adds least to what is alive first.
fn by_growth(plan: &Plan) -> Vec<usize> {
    let n = plan.kernels.len();
    let bytes = |b: u32| bytes(&plan.buffers[b as usize]);
    let mut writer = vec![None; plan.buffers.len()];
    for (k, kernel) in plan.kernels.iter().enumerate() {
        kernel
            .outs
            .iter()
            .for_each(|o| writer[o.1 as usize] = Some(k));
    }
    // What each kernel reads, each buffer once, and which kernels read a buffer.
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); plan.buffers.len()];
    let mut reads: Vec<Vec<u32>> = Vec::with_capacity(n);
    for (k, kernel) in plan.kernels.iter().enumerate() {
        let mut ins: Vec<u32> = kernel.ins.iter().map(|i| i.1).collect();
        ins.sort_unstable();
        ins.dedup();
        ins.iter().for_each(|&b| readers[b as usize].push(k));
        reads.push(ins);
    }
    let mut left: Vec<usize> = readers.iter().map(Vec::len).collect();
    let written = |b: &&u32| writer[**b as usize].is_some();
    let mut waits: Vec<usize> = reads
        .iter()
        .map(|r| r.iter().filter(written).count())
        .collect();
    let mut growth: Vec<i128> = (0..n)
        .map(|k| {
            let outs = plan.kernels[k]
                .outs
                .iter()
                .map(|o| bytes(o.1))
                .sum::<i128>();
            let dies = reads[k].iter().filter(|&&b| left[b as usize] == 1);
            outs - dies.map(|&b| bytes(b)).sum::<i128>()
        })
        .collect();
    let ready = (0..n).filter(|&k| waits[k] == 0);
    let mut ready: BTreeSet<(i128, usize)> = ready.map(|k| (growth[k], k)).collect();
    let mut sorted = Vec::with_capacity(n);
    let mut done = vec![false; n];
    while let Some((_, k)) = ready.pop_first() {
        sorted.push(k);
        done[k] = true;
        for &b in &reads[k] {
            left[b as usize] -= 1;
            if left[b as usize] != 1 {
                continue;
            }
            // Its last reader frees it.
            let last = readers[b as usize].iter().find(|&&r| !done[r]);
            let &last = last.expect("one reader is left");
            let waiting = ready.remove(&(growth[last], last));
            growth[last] -= bytes(b);
            if waiting {
                ready.insert((growth[last], last));
            }
        }
        for &(_, b) in &plan.kernels[k].outs {
            for &r in &readers[b as usize] {
                waits[r] -= 1;
                if waits[r] == 0 {
                    ready.insert((growth[r], r));
                }
            }
        }
    }
    sorted
}
