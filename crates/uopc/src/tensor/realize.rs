//! From graphs to numbers: several tensors as one plan, each computed at most once.
//!
//! A computed tensor becomes a leaf over the new memory and forgets its graph, unless it depends
//! on a parameter: then it keeps the graph, for gradients, and the node is told where its value
//! lies, so that whoever reads the node reads that memory. For the same purpose a tensor that may
//! still be differentiated keeps the interior values that its gradients will read (its tape),
//! until those are computed, an update ends its history, or it is dropped.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;

use super::history::{self, Kept, Tape};
use super::later;
use super::limit;
use super::{Handle, Operand, Result, Site, Tensor, UOp, argument, dtype_error, shape_error};
use crate::compile::{Engine, Finding, RealizeOptions, Realized};
use crate::ir::Op;
use crate::ir::op::BufferId;
use crate::ir::parts::parts;
use crate::ir::positions::Positions;
use crate::ir::visit::Graph;
use crate::runtime::Storage;

thread_local! {
    static ENTERED: RefCell<Stack> = const {
        RefCell::new(Stack {
            engines: Vec::new(),
            next: 0,
        })
    };
}

/// The engines that a thread has entered and not left.
struct Stack {
    /// Each with the number of its guard. The last one is in use.
    engines: Vec<(u64, Arc<Engine>)>,
    /// The number of the next guard.
    next: u64,
}

/// Runs `f` with all that it computes on this thread going through that engine, with its plans,
/// counters and settings, instead of the process's.
pub fn with_engine<R>(engine: &Arc<Engine>, f: impl FnOnce() -> R) -> R {
    let _entered = enter_engine(engine);
    f()
}

/// [`with_engine`] until the returned guard is dropped.
pub fn enter_engine(engine: &Arc<Engine>) -> EnteredEngine {
    let entry = ENTERED.with_borrow_mut(|stack| {
        let entry = stack.next;
        stack.next += 1;
        stack.engines.push((entry, engine.clone()));
        entry
    });
    EnteredEngine {
        entry,
        here: PhantomData,
    }
}

/// Leaves the engine when dropped: in use is then the one entered last among those not left. See
/// [`enter_engine`].
#[must_use]
pub struct EnteredEngine {
    entry: u64,
    /// A guard stays on its thread.
    here: PhantomData<*const ()>,
}

impl Drop for EnteredEngine {
    fn drop(&mut self) {
        let left = ENTERED.with_borrow_mut(|stack| {
            let mut entries = stack.engines.iter();
            let at = entries.position(|(entry, _)| *entry == self.entry)?;
            Some(stack.engines.remove(at))
        });
        // The engine may end here, and does so after the borrow.
        drop(left);
    }
}

/// The engine that this thread has entered last and not left; none means that of the process. A
/// helper thread that is to compute like this one enters it, too.
pub fn entered_engine() -> Option<Arc<Engine>> {
    ENTERED.with_borrow(|stack| stack.engines.last().map(|(_, e)| e.clone()))
}

/// Calls `f` with the engine in use.
fn with_current<R>(f: impl FnOnce(&Engine) -> Result<R>) -> Result<R> {
    match &entered_engine() {
        Some(engine) => f(engine),
        None => f(Engine::global()?),
    }
}

/// Computes nodes as one plan, by the engine in use.
fn compute(nodes: &[UOp], options: &RealizeOptions) -> Result<Realized> {
    let nodes = &*argument::with_values(nodes)?;
    let options = &RealizeOptions {
        memory_limit: limit::on_this_thread(),
        ..*options
    };
    with_current(|engine| engine.realize(nodes, options))
}

/// Where a NaN or an infinity of these nodes comes from, by the engine in use.
pub(super) fn find_nan(nodes: &[UOp]) -> Result<Option<Finding>> {
    let nodes = &*argument::with_values(nodes)?;
    with_current(|engine| engine.find_nan(nodes, &RealizeOptions::default()))
}

/// Whether a limit of memory holds for what this thread computes.
fn is_limited() -> Result<bool> {
    if limit::on_this_thread().is_some() {
        return Ok(true);
    }
    with_current(|engine| Ok(engine.settings().memory_limit.is_some()))
}

/// Computes nodes as one plan: one memory a root. For those in `for_tape`, which depend on the
/// `leaves`, values are kept that gradients will read: what the plan stores, and each reduction,
/// also where a kernel would go on with it at once. So no product of matrices is ever computed a
/// second time.
fn compute_with_tape(
    roots: &[UOp],
    for_tape: &[UOp],
    leaves: &[(UOp, u64)],
) -> Result<(Vec<Arc<Storage>>, Kept)> {
    let mut all = roots.to_vec();
    let reductions = reductions(for_tape).into_iter();
    all.extend(reductions.filter(|u| !roots.contains(u)));
    let tape_leaves: Vec<UOp> = leaves.iter().map(|(buffer, _)| buffer.clone()).collect();
    let options = RealizeOptions {
        tape_leaves: &tape_leaves,
        ..RealizeOptions::default()
    };
    let realized = compute(&all, &options)?;
    let (mut outputs, mut kept) = (realized.outputs, realized.tape);
    let reductions = all.into_iter().skip(roots.len());
    kept.extend(reductions.zip(outputs.drain(roots.len()..)));
    Ok((outputs, kept))
}

/// The reductions that computing these nodes takes, down to values in memory, without those that
/// are to be computed again instead of kept.
fn reductions(roots: &[UOp]) -> Vec<UOp> {
    let (mut found, mut marked) = (Vec::new(), false);
    let (mut seen, mut positions) = (Vec::new(), Positions::begin());
    let mut todo: Vec<&UOp> = roots.iter().collect();
    while let Some(u) = todo.pop() {
        if u.home().is_some() || positions.of(u, &seen).is_some() {
            continue;
        }
        positions.push(u, &mut seen);
        todo.extend(u.src());
        match u.op() {
            Op::Reduce { .. } => found.push(u.clone()),
            Op::Stage(kind) => marked |= kind.bounds(),
            _ => {}
        }
    }
    if marked {
        let graph = Graph::new(roots);
        let parts = parts(&graph);
        let kept = |i: usize| !parts.inside[i] || parts.edge[i];
        found.retain(|u| graph.position(u).is_none_or(kept));
    }
    found
}

/// The memory of a node that is a leaf or was computed before, seen through ops that copy nothing.
fn known(node: &UOp) -> Option<Arc<Storage>> {
    let mut u = node;
    loop {
        if let Some(storage) = u.home() {
            return storage.downcast().ok();
        }
        match u.op() {
            Op::Reshape(_) | Op::Stage(_) => u = &u.src()[0],
            Op::Buffer {
                id: BufferId::Live(buffer),
                ..
            } => {
                return buffer.storage.clone().downcast().ok();
            }
            _ => return None,
        }
    }
}

impl Handle {
    /// Replaces the graph by a leaf over its value, which is computed; `owners` are the tensors on
    /// which it depended. Not for parameters: their leaf is what other graphs mention.
    fn collapse(
        &self,
        value: Arc<Storage>,
        owners: BTreeSet<u64>,
        site: Option<Site>,
    ) -> Result<()> {
        let leaf = history::leaf(value, self.dtype, &self.shape)?;
        history::end(&leaf, owners, site);
        self.replace(leaf);
        Ok(())
    }

    /// Puts a leaf in the node's place and drops what was kept for it.
    pub(super) fn replace(&self, leaf: UOp) -> UOp {
        let mut state = self.state.lock();
        let former = mem::replace(&mut state.node, leaf);
        let memory = (state.value.take(), mem::take(&mut state.tape));
        // A graph may be large; it goes after the lock.
        drop(state);
        drop(memory);
        former
    }
}

/// A tensor that is to be computed, as it was when that was found.
struct Open<'a> {
    tensor: &'a Tensor,
    node: UOp,
    needs_grad: bool,
    gradient: bool,
}

impl Open<'_> {
    /// Only values that will be differentiated keep what that reads.
    fn keeps_tape(&self) -> bool {
        self.needs_grad && !self.gradient
    }

    /// Gives the tensor its computed value beside its graph, unless it has another by now.
    fn settle(&self, value: Arc<Storage>, leaves: &[(UOp, u64)], kept: &Arc<Kept>) {
        let handle = &self.tensor.0;
        let mut state = handle.state.lock();
        if state.node != self.node || state.value.is_some() {
            return;
        }
        let tape = match self.keeps_tape() {
            true => Tape::new(kept),
            false => Tape::default(),
        };
        state.value = Some(value);
        let former = mem::replace(&mut state.tape, tape);
        drop(state);
        drop(former);
        history::add_reader(leaves, handle);
    }
}

impl Tensor {
    /// Computes the tensor, if that has not been done.
    ///
    /// # Errors
    /// When the plan can't be compiled or run.
    #[track_caller]
    pub fn realize(&self) -> Result<&Tensor> {
        Tensor::realize_all(&[self])?;
        Ok(self)
    }

    /// Computes several tensors as one plan, in which what they share is computed once.
    ///
    /// # Errors
    /// When the plan can't be compiled or run.
    #[track_caller]
    pub fn realize_all<T: Borrow<Tensor>>(tensors: &[T]) -> Result<()> {
        let _site = Site::caller().enter();
        let due;
        let mut todo: SmallVec<[Open; 1]> =
            tensors.iter().filter_map(|t| t.borrow().open()).collect();
        if todo.is_empty() {
            return Ok(());
        }
        due = later::due();
        todo.extend(due.iter().filter_map(Tensor::open));
        let roots: SmallVec<[UOp; 1]> = todo.iter().map(|open| open.node.clone()).collect();
        if !todo.iter().any(|open| open.needs_grad) {
            let outputs = compute(&roots, &RealizeOptions::default())?.outputs;
            for (open, storage) in todo.iter().zip(outputs) {
                open.tensor.become_value(storage)?;
            }
            return Ok(());
        }
        let nodes = |which: fn(&Open) -> bool| -> Vec<UOp> {
            let chosen = todo.iter().filter(|open| which(open));
            chosen.map(|open| open.node.clone()).collect()
        };
        let leaves = history::leaves(&nodes(|open| open.needs_grad));
        // Under a limit gradients compute what they need again, as far as it takes that.
        let for_tape = match is_limited()? {
            true => Vec::new(),
            false => nodes(|open| open.keeps_tape()),
        };
        let (outputs, kept) = match for_tape[..] {
            [] => (
                compute(&roots, &RealizeOptions::default())?.outputs,
                Kept::new(),
            ),
            _ => compute_with_tape(&roots, &for_tape, &leaves)?,
        };
        let kept = Arc::new(kept);
        for (open, storage) in todo.iter().zip(outputs) {
            match open.needs_grad {
                true => open.settle(storage, &leaves, &kept),
                false => open.tensor.become_value(storage)?,
            }
        }
        Ok(())
    }

    /// What is left to compute, or nothing: the tensor is a leaf, or it keeps its graph and owns its
    /// value.
    fn open(&self) -> Option<Open<'_>> {
        let state = self.0.state.lock();
        let settled = state.value.is_some() || history::is_in_memory(&state.node);
        (!settled).then(|| Open {
            tensor: self,
            node: state.node.clone(),
            needs_grad: state.needs_grad,
            gradient: state.gradient,
        })
    }

    /// Puts a leaf over the computed value in the place of a graph without history.
    fn become_value(&self, value: Arc<Storage>) -> Result<()> {
        let leaf = history::leaf(value, self.dtype(), self.shape())?;
        self.0.replace(leaf);
        Ok(())
    }

    /// The memory with the value, computed now if need be.
    pub(super) fn storage(&self) -> Result<Arc<Storage>> {
        // Another thread may replace the node between the two steps; then the new one is computed.
        loop {
            let (node, value) = {
                let state = self.0.state.lock();
                (state.node.clone(), state.value.clone())
            };
            // The tensor's own memory first: the note at a node is that of the last one to compute
            // it, who may be gone.
            if let Some(storage) = value.or_else(|| known(&node)) {
                return Ok(storage);
            }
            self.realize()?;
        }
    }

    /// Gives the tensor a new value, which is computed now. The tensor becomes a fresh leaf: the
    /// history of the value, and that of what was computed from the old one, end here.
    ///
    /// # Errors
    /// When dtype or shape differ, or the value can't be computed.
    #[track_caller]
    pub fn assign(&self, value: impl Into<Operand>) -> Result<()> {
        let _site = Site::caller().enter();
        let value = match value.into() {
            Operand::Tensor(value) => value,
            number => Tensor::full_of(number, self.dtype(), self.shape())?,
        };
        Tensor::assign_all(&[(self, &value)], &[] as &[&Tensor])
    }

    /// [`assign`](Self::assign) to several tensors, all values computed from the old ones; `also`
    /// are computed in the same plan, and their history ends, too. Parameters among them stay as
    /// they are.
    ///
    /// # Errors
    /// When a dtype or shape differs, or a value can't be computed. Then nothing is assigned.
    #[track_caller]
    pub fn assign_all<T: Borrow<Tensor>>(updates: &[(&Tensor, &Tensor)], also: &[T]) -> Result<()> {
        let _site = Site::caller().enter();
        for (target, value) in updates {
            if target.shape() != value.shape() {
                let (to, from) = (target.shape(), value.shape());
                let message = format!("a tensor of shape {to} can't take a value of shape {from}");
                return Err(shape_error("assign", message));
            }
            if target.dtype() != value.dtype() {
                let (to, from) = (target.dtype(), value.dtype());
                let message = format!("a tensor of dtype {to} can't take {from}; cast the value");
                return Err(dtype_error("assign", message));
            }
        }
        let due = later::due();
        let also: Vec<&Tensor> = also.iter().map(Borrow::borrow).chain(&due).collect();
        let values = updates.iter().map(|(_, value)| *value);
        let roots: Vec<UOp> = values
            .chain(also.iter().copied())
            .map(Tensor::uop)
            .collect();
        let outputs = compute(&roots, &RealizeOptions::default())?.outputs;
        let (values, others) = outputs.split_at(updates.len());
        let site = Site::current();
        // A parameter is a leaf already and has no history that could end.
        let ending: Vec<_> = also
            .iter()
            .zip(others)
            .filter(|(t, _)| !t.is_parameter())
            .collect();
        // Asked while the old values are still those of parameters, and once for all of them.
        let with_history = ending.iter().filter(|(t, _)| t.needs_grad());
        let with_history: Vec<UOp> = with_history.map(|(t, _)| t.uop()).collect();
        let owners = history::dependencies(&with_history);
        for (t, storage) in &ending {
            let owners = match t.needs_grad() {
                true => owners.clone(),
                false => BTreeSet::new(),
            };
            t.0.collapse((*storage).clone(), owners, site)?;
        }
        let with: Vec<u64> = ending.iter().map(|(t, _)| t.0.id).collect();
        for ((target, _), storage) in updates.iter().zip(values) {
            target.become_leaf(storage.clone(), &with, site)?;
        }
        Ok(())
    }

    /// Makes the tensor a leaf over new memory and ends the history of what read the old one.
    fn become_leaf(&self, value: Arc<Storage>, with: &[u64], site: Option<Site>) -> Result<()> {
        let leaf = history::leaf(value, self.dtype(), self.shape())?;
        let mut state = self.0.state.lock();
        let parameter = state.parameter;
        if parameter {
            history::register(&leaf, &self.0);
        } else {
            state.needs_grad = false;
        }
        drop(state);
        let former = self.0.replace(leaf);
        if !parameter {
            // Its leaf may be that of a parameter with which it shared the value.
            return Ok(());
        }
        for reader in history::supersede(&former, with, site) {
            let (node, value) = {
                let state = reader.state.lock();
                (state.node.clone(), state.value.clone())
            };
            if let Some(value) = value {
                let owners = history::dependencies(std::slice::from_ref(&node));
                reader.collapse(value, owners, site)?;
            }
        }
        Ok(())
    }

    /// Makes the tensor a parameter: a leaf in memory of its own, for which
    /// [`backward`](Self::backward) can leave a gradient. It is computed now, if need be. Returns
    /// the same tensor.
    ///
    /// Parameters have identity: two made from equal numbers stay two. A tensor that already
    /// depends on a parameter is left as it is.
    ///
    /// # Errors
    /// When the dtype is no float, or the value can't be computed.
    #[track_caller]
    pub fn requires_grad(self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if !self.dtype().is_float() {
            let message = format!("{} has no gradients; cast to f32 first", self.dtype());
            return Err(dtype_error("requires_grad", message));
        }
        if self.needs_grad() {
            return Ok(self);
        }
        let storage = self.storage()?;
        let leaf = history::leaf(storage, self.dtype(), self.shape())?;
        history::register(&leaf, &self.0);
        let mut state = self.0.state.lock();
        state.node = leaf;
        state.parameter = true;
        state.needs_grad = true;
        drop(state);
        Ok(self)
    }

    /// Makes an ordinary tensor of a parameter, with the same values: no gradient flows to it any
    /// more, neither from what is computed from now on nor from what was computed before. Another
    /// tensor that needs no gradients is left as it is.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let w = Tensor::ones([3])?.requires_grad()?;
    /// w.freeze()?;
    /// assert!(!(&w * 2).needs_grad());
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When this was computed from parameters; [`detach`](Self::detach) gives a tensor without
    /// gradients.
    #[track_caller]
    pub fn freeze(&self) -> Result<()> {
        let _site = Site::caller().enter();
        if !self.is_parameter() {
            return match self.needs_grad() {
                false => Ok(()),
                true => Err(super::backward::computed_from_parameters()),
            };
        }
        let leaf = history::leaf(self.storage()?, self.dtype(), self.shape())?;
        let mut state = self.0.state.lock();
        state.parameter = false;
        state.needs_grad = false;
        drop(state);
        let former = self.0.replace(leaf);
        history::unregister(&former);
        Ok(())
    }

    /// The single element as f64.
    ///
    /// # Errors
    /// When there is not exactly one, or the value can't be computed.
    #[track_caller]
    pub fn item(&self) -> Result<f64> {
        let _site = Site::caller().enter();
        Ok(self.only_element("item")?.as_f64())
    }
}
