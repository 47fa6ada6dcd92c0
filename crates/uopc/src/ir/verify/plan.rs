//! The rules of a plan.
//!
//! 1. Buffer numbers exist, input slots are distinct.
//! 2. A kernel has one buffer for each root of its body, at least one, of the root's dtype and
//!    number of elements.
//! 3. A kernel's slots are distinct, and its body reads exactly the parameters of its inputs,
//!    each of its buffer's dtype and length, and no BUFFER.
//! 4. Inputs are never written; every other buffer is written once, before it is read. One
//!    without elements need not be written.
//! 5. A buffer is an output exactly if it is written and listed in the plan's outputs.

use crate::error::{Error, Result};
use crate::ir::form::{BufferIndex, Kernel, Plan, PlanBuffer, Role, params};
use crate::ir::op::Op;
use crate::ir::visit::toposort;

pub(super) fn check(plan: &Plan) -> Result<()> {
    let mut slots: Vec<u32> = (plan.buffers.iter())
        .filter_map(|b| match b.role {
            Role::Input(slot) => Some(slot),
            Role::Output | Role::Temporary => None,
        })
        .collect();
    slots.sort_unstable();
    if let Some(pair) = slots.windows(2).find(|pair| pair[0] == pair[1]) {
        return broken(format!("slot {} is two inputs", pair[0]));
    }
    // What holds a value: inputs from the start, others once their kernel has run.
    let mut filled: Vec<bool> = (plan.buffers.iter())
        .map(|b| matches!(b.role, Role::Input(_)))
        .collect();
    for kernel in &plan.kernels {
        check_kernel(plan, kernel, &mut filled)?;
    }
    let mut listed = vec![false; plan.buffers.len()];
    for &b in &plan.outputs {
        buffer(plan, "the outputs", b)?;
        listed[b as usize] = true;
    }
    for (b, PlanBuffer { role, n, .. }) in plan.buffers.iter().enumerate() {
        if !filled[b] && *n > 0 {
            return broken(format!("no kernel writes buffer {b}, which is no input"));
        }
        match role {
            Role::Output if !listed[b] => {
                return broken(format!("buffer {b} is an output but not among the outputs"));
            }
            Role::Temporary if listed[b] => {
                return broken(format!("buffer {b} is temporary but among the outputs"));
            }
            Role::Input(_) | Role::Output | Role::Temporary => {}
        }
    }
    Ok(())
}

fn check_kernel(plan: &Plan, kernel: &Kernel, filled: &mut [bool]) -> Result<()> {
    let name = &kernel.name;
    let roots = kernel.body.roots();
    if roots.len() != kernel.outs.len() || roots.is_empty() {
        let (n, m) = (roots.len(), kernel.outs.len());
        return broken(format!(
            "{name} computes {n} values into {m} buffers; it takes one for each, and at least one"
        ));
    }
    let mut slots: Vec<u32> = kernel.ins.iter().chain(&kernel.outs).map(|x| x.0).collect();
    slots.sort_unstable();
    if let Some(pair) = slots.windows(2).find(|pair| pair[0] == pair[1]) {
        return broken(format!("{name} has two parameters of slot {}", pair[0]));
    }
    for &(slot, b) in &kernel.ins {
        buffer(plan, name, b)?;
        if !filled[b as usize] && plan.buffers[b as usize].n > 0 {
            return broken(format!(
                "{name} reads buffer {b} (slot {slot}) before it is written"
            ));
        }
    }
    check_params(plan, kernel)?;
    for (root, &(slot, b)) in roots.iter().zip(&kernel.outs) {
        let PlanBuffer { dtype, n, role, .. } = buffer(plan, name, b)?;
        if let Role::Input(_) = role {
            return broken(format!("{name} writes buffer {b} (slot {slot}), an input"));
        }
        if std::mem::replace(&mut filled[b as usize], true) {
            return broken(format!(
                "{name} writes buffer {b} (slot {slot}) a second time"
            ));
        }
        if root.dtype() != *dtype || root.shape().numel() != *n {
            let (found, shape) = (root.dtype(), root.shape());
            return broken(format!(
                "{name} writes {found}{shape} into buffer {b}, which holds {n} elements of {dtype}"
            ));
        }
    }
    Ok(())
}

fn check_params(plan: &Plan, kernel: &Kernel) -> Result<()> {
    let name = &kernel.name;
    let nodes = toposort(kernel.body.roots());
    if let Some(u) = nodes.iter().find(|u| matches!(u.op(), Op::Buffer { .. })) {
        return broken(format!("{name} reads {u:?} that is no parameter"));
    }
    let sink = crate::ir::UOp::sink(kernel.body.roots());
    let params = params(&sink);
    for &(slot, _, dtype, n) in &params {
        let Some(&(_, b)) = kernel.ins.iter().find(|i| i.0 == slot) else {
            return broken(format!(
                "{name} reads parameter {slot}, which has no buffer"
            ));
        };
        let held = buffer(plan, name, b)?;
        if (held.dtype, held.n) != (dtype, n) {
            return broken(format!(
                "{name} reads {n} elements of {dtype} from buffer {b}, which holds {} of {}",
                held.n, held.dtype
            ));
        }
    }
    for (slot, b) in &kernel.ins {
        if !params.iter().any(|p| p.0 == *slot) {
            return broken(format!(
                "{name} takes buffer {b} as slot {slot} but never reads it"
            ));
        }
    }
    Ok(())
}

fn buffer<'p>(plan: &'p Plan, who: &str, b: BufferIndex) -> Result<&'p PlanBuffer> {
    let n = plan.buffers.len();
    match plan.buffers.get(b as usize) {
        Some(found) => Ok(found),
        None => broken(format!("{who} names buffer {b}; the plan has {n}")),
    }
}

fn broken<T>(message: String) -> Result<T> {
    Err(Error::Verify {
        form: "plan",
        message,
        site: None,
    })
}
