//! A plan as a graph, so that it has a text form like every other form.
//!
//! Three roots say it all, each a SINK: the plan's buffers in order, its calls in run order, its
//! outputs.
//!
//! - A buffer is a BUFFER with a text slot: an input has the slot that the caller binds, the
//!   others have the numbers that follow the inputs' largest. What no call writes is an input; what
//!   a call writes and the last sink lists is an output, the rest is temporary. A buffer without
//!   elements that no call writes and that is no input is AFTER(buffer, SINK()): nothing fills it.
//! - A CALL has the kernel's body, the buffers it writes and the buffers it reads. The body is a
//!   SINK of the kernel's roots, then one PARAM for each of these buffers in the same order.
//! - A buffer that an earlier call writes is read as AFTER(buffer, call), so the order is in the
//!   graph.
//!
//! Why a buffer exists stands in a `; why` line, since it is no part of the graph.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::form::{BufferIndex, Kernel, Plan, PlanBuffer, Role};
use super::op::{BufferId, Op, ParamMode};
use super::parse::{Parsed, parse};
use super::print::to_uir_with;
use super::uop::{Sources, UOp};
use super::verify;
use crate::error::{Error, Result};

impl Plan {
    /// The plan as text.
    ///
    /// # Errors
    /// When it breaks a rule of [`verify::plan()`].
    pub fn to_uir(&self) -> Result<String> {
        let roots = self.to_uops()?;
        let reasons = self.buffers.iter().map(|b| b.reason.clone());
        let notes: Vec<(UOp, Arc<str>)> = roots[0].src().iter().cloned().zip(reasons).collect();
        Ok(to_uir_with(&roots, None, &notes))
    }

    /// Reads a plan; `name` is the file's name, for errors.
    ///
    /// # Errors
    /// [`Error::Parse`] for malformed text, [`Error::Verify`] for a graph that is no plan.
    pub fn from_uir(text: &str, name: &str) -> Result<Plan> {
        let parsed = parse(text, name)?;
        Plan::from_parsed(&parsed)
    }

    /// The plan in a text that has been read.
    ///
    /// # Errors
    /// [`Error::Verify`] for a graph that is no plan.
    pub fn from_parsed(parsed: &Parsed) -> Result<Plan> {
        Plan::from_uops(&parsed.roots, &parsed.notes)
    }

    /// The plan as three roots: buffers, calls, outputs.
    ///
    /// # Errors
    /// When it breaks a rule of [`verify::plan()`].
    pub fn to_uops(&self) -> Result<Vec<UOp>> {
        verify::plan(self)?;
        let buffers = self.buffer_nodes();
        let listed = self.complete_at_entry(&buffers)?;
        // Each buffer as the calls so far have left it.
        let mut now = listed.clone();
        let mut calls = Vec::new();
        for kernel in &self.kernels {
            let mut body: Vec<UOp> = kernel.body.roots().to_vec();
            let mut src: Vec<UOp> = Vec::new();
            for &(slot, b) in &kernel.outs {
                let PlanBuffer { dtype, n, .. } = self.buffers[b as usize];
                body.push(UOp::param(slot, ParamMode::Out, dtype, n));
                src.push(buffers[b as usize].clone());
            }
            for &(slot, b) in &kernel.ins {
                let PlanBuffer { dtype, n, .. } = self.buffers[b as usize];
                body.push(UOp::param(slot, ParamMode::In, dtype, n));
                src.push(now[b as usize].clone());
            }
            src.insert(0, UOp::sink(&body));
            let op = Op::Call {
                name: kernel.name.clone(),
                outs: kernel.outs.len() as u32,
            };
            let call = UOp::new(op, Sources::from(src))?;
            for &(_, b) in &kernel.outs {
                now[b as usize] = after(&buffers[b as usize], &call)?;
            }
            calls.push(call);
        }
        let outputs: Vec<UOp> = (self.outputs.iter())
            .map(|&b| now[b as usize].clone())
            .collect();
        let lists = [listed, calls, outputs];
        Ok(lists.iter().map(|list| UOp::sink(list)).collect())
    }

    /// A BUFFER for each of the plan's.
    fn buffer_nodes(&self) -> Vec<UOp> {
        let taken: FxHashSet<u32> = (self.buffers.iter())
            .filter_map(|b| match b.role {
                Role::Input(slot) => Some(slot),
                Role::Output | Role::Temporary => None,
            })
            .collect();
        let first = (taken.iter().max()).map_or(0, |largest| largest.wrapping_add(1));
        let mut free = (first..=u32::MAX)
            .chain(0..first)
            .filter(|slot| !taken.contains(slot));
        (self.buffers.iter())
            .map(|b| {
                let slot = match b.role {
                    Role::Input(slot) => slot,
                    Role::Output | Role::Temporary => {
                        free.next().expect("a plan has fewer than 2^32 buffers")
                    }
                };
                UOp::slot(slot, b.dtype, b.n)
            })
            .collect()
    }

    /// The buffers as they are before the first call.
    fn complete_at_entry(&self, buffers: &[UOp]) -> Result<Vec<UOp>> {
        let outs = self.kernels.iter().flat_map(|kernel| &kernel.outs);
        let written: FxHashSet<BufferIndex> = outs.map(|out| out.1).collect();
        let nothing = UOp::sink(&[]);
        let at_entry = |(b, u): (usize, &UOp)| {
            let is_input = matches!(self.buffers[b].role, Role::Input(_));
            if is_input || written.contains(&(b as BufferIndex)) {
                return Ok(u.clone());
            }
            after(u, &nothing)
        };
        buffers.iter().enumerate().map(at_entry).collect()
    }

    /// The plan that three roots describe, with the reasons of its buffers (empty where none is
    /// given).
    ///
    /// # Errors
    /// [`Error::Verify`] for roots that are not of the form in the module's documentation.
    pub fn from_uops(roots: &[UOp], reasons: &[(UOp, Arc<str>)]) -> Result<Plan> {
        let [listed, calls, outputs] = roots else {
            return malformed(format!("has three roots, not {}", roots.len()));
        };
        if let Some(other) = roots.iter().find(|r| !matches!(r.op(), Op::Sink)) {
            let found = other.op().mnemonic();
            return malformed(format!("has sinks as its roots, not {found}"));
        }
        let mut reader = PlanReader {
            index: FxHashMap::default(),
            after: FxHashMap::default(),
            buffers: Vec::new(),
        };
        for u in listed.src() {
            reader.list(u)?;
        }
        let kernels = (calls.src().iter())
            .map(|call| reader.kernel(call))
            .collect::<Result<Vec<Kernel>>>()?;
        let outputs = (outputs.src().iter())
            .map(|u| reader.read(u))
            .collect::<Result<Vec<BufferIndex>>>()?;
        let mut buffers = reader.buffers;
        for &b in &outputs {
            let role = &mut buffers[b as usize].role;
            if *role == Role::Temporary {
                *role = Role::Output;
            }
        }
        for (u, reason) in reasons {
            let found = reader.index.get(u).or_else(|| reader.after.get(u));
            if let Some(&b) = found {
                buffers[b as usize].reason = reason.clone();
            }
        }
        let plan = Plan {
            kernels,
            buffers,
            outputs,
        };
        verify::plan(&plan)?;
        Ok(plan)
    }
}

fn after(buffer: &UOp, call: &UOp) -> Result<UOp> {
    let src = [buffer.clone(), call.clone()];
    UOp::new(Op::After, src.as_slice())
}

struct PlanReader {
    /// The position of each buffer.
    index: FxHashMap<UOp, BufferIndex>,
    /// What stands for a written buffer from its call on.
    after: FxHashMap<UOp, BufferIndex>,
    buffers: Vec<PlanBuffer>,
}

impl PlanReader {
    /// Adds a buffer; as long as no call writes it, it is an input, unless nothing fills it.
    fn list(&mut self, u: &UOp) -> Result<()> {
        let position = self.buffers.len() as BufferIndex;
        let unfilled = matches!(u.op(), Op::After) && u.src()[1] == UOp::sink(&[]);
        let buffer = if unfilled { &u.src()[0] } else { u };
        let Op::Buffer {
            id: BufferId::Slot(slot),
            dtype,
            n,
        } = *buffer.op()
        else {
            let found = u.op().mnemonic();
            return malformed(format!("lists buffers with slots, not {found}"));
        };
        if self.index.insert(buffer.clone(), position).is_some() {
            return malformed(format!("lists the buffer of slot {slot} twice"));
        }
        let role = if unfilled {
            self.after.insert(u.clone(), position);
            Role::Temporary
        } else {
            Role::Input(slot)
        };
        self.buffers.push(PlanBuffer {
            dtype,
            n,
            role,
            reason: "".into(),
        });
        Ok(())
    }

    /// The buffer that is read through this node.
    fn read(&self, u: &UOp) -> Result<BufferIndex> {
        if let Some(&b) = self.after.get(u) {
            return Ok(b);
        }
        match self.index.get(u) {
            Some(&b) if matches!(self.buffers[b as usize].role, Role::Input(_)) => Ok(b),
            Some(_) => malformed("reads a written buffer, not an after of its call".into()),
            None => {
                let found = u.op().mnemonic();
                malformed(format!("reads listed buffers and afters, not {found}"))
            }
        }
    }

    fn kernel(&mut self, call: &UOp) -> Result<Kernel> {
        let Op::Call { name, outs } = call.op() else {
            let found = call.op().mnemonic();
            return malformed(format!("runs calls, not {found}"));
        };
        let (body, memory) = (&call.src()[0], &call.src()[1..]);
        let outs = *outs as usize;
        let params = body.src().len().checked_sub(memory.len());
        let (Op::Sink, Some(roots)) = (body.op(), params) else {
            let n = memory.len();
            return malformed(format!(
                "calls {name} with {n} buffers, but its body is no sink that ends with {n} params"
            ));
        };
        if outs > memory.len() || outs != roots {
            let message = format!(
                "calls {name}, which has {roots} roots, with outs={outs} of {} buffers",
                memory.len()
            );
            return malformed(message);
        }
        let (roots, params) = body.src().split_at(roots);
        let slots = (params.iter().enumerate())
            .map(|(k, p)| match p.op() {
                Op::Param { slot, mode, .. } if (*mode == ParamMode::Out) == (k < outs) => {
                    Ok(*slot)
                }
                _ => malformed(format!(
                    "has in {name} a param of mode out for each buffer written, then one of mode \
                     in for each buffer read"
                )),
            })
            .collect::<Result<Vec<u32>>>()?;
        let ins = (memory[outs..].iter().zip(&slots[outs..]))
            .map(|(u, &slot)| Ok((slot, self.read(u)?)))
            .collect::<Result<Vec<_>>>()?;
        let mut written = Vec::new();
        for (u, &slot) in memory[..outs].iter().zip(&slots) {
            let Some(&b) = self.index.get(u) else {
                let found = u.op().mnemonic();
                return malformed(format!("writes listed buffers, not {found}"));
            };
            self.buffers[b as usize].role = Role::Temporary;
            self.after.insert(after(u, call)?, b);
            written.push((slot, b));
        }
        Ok(Kernel {
            name: name.clone(),
            body: verify::shape_graph(roots.to_vec())?,
            outs: written,
            ins,
        })
    }
}

fn malformed<T>(message: String) -> Result<T> {
    Err(Error::Verify {
        form: "plan",
        message,
        site: None,
    })
}
