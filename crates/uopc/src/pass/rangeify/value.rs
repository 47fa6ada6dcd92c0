//! The value of a shape graph's node at an index, as a scalar expression.
//!
//! One request is a node, an index, a gate and the loops around it. Requests are answered from a
//! list of open ones, never by recursion; equal requests are answered once.

use rustc_hash::FxHashMap;

use super::index::{as_constant, constant, inside, source_index};
use super::reduce;
use super::within::{Fill, Within, is_kept};
use crate::error::{Error, Result};
use crate::ir::op::{Exec, Space};
use crate::ir::{DType, Op, Scalar, UOp};

/// What is known while one kernel is lowered.
pub struct Lowering {
    /// The dtype of all index arithmetic.
    pub index_dtype: DType,
    /// What has been written so far, in order.
    pub statements: Vec<UOp>,
    /// What the kernel keeps in scratch memory.
    pub within: Within,
    answers: FxHashMap<Request, UOp>,
    ranges: u32,
    locals: u32,
}

/// "The value of `node` at `at`, inside these loops, read only where the gate holds."
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Request {
    /// The node.
    pub node: UOp,
    /// One index for each of its axes.
    pub at: Vec<UOp>,
    /// When its loads may read; always, if there is none.
    pub gate: Option<UOp>,
    /// The loops of the statement that needs it, outermost first.
    pub scope: Vec<UOp>,
}

/// A request in work: what it needs, and what became of that.
struct Open {
    request: Request,
    needs: Vec<Request>,
    have: Vec<UOp>,
    how: How,
}

/// How the value follows from the values needed.
enum How {
    /// The node's own op.
    Apply,
    /// The only value needed.
    Same,
    /// Already known.
    Known(UOp),
    /// A choice between values by conditions, the last one by default.
    Select(Vec<UOp>),
    /// INDEX: the values needed are indices; then the element itself is asked for.
    Gather,
    /// A value, or zero where the condition does not hold.
    Guard(UOp),
    /// A reduction whose statements are written when its element's value is known.
    Fold(reduce::Nest),
    /// A piece of scratch memory that the value needed fills.
    Fill(Box<Fill>),
}

impl Lowering {
    /// Nothing lowered yet.
    pub fn new(index_dtype: DType, within: Within) -> Lowering {
        Lowering {
            index_dtype,
            statements: Vec::new(),
            within,
            answers: FxHashMap::default(),
            ranges: 0,
            locals: 0,
        }
    }

    /// A new loop over an axis; an axis of extent 1 needs none and its index is 0.
    ///
    /// # Errors
    /// Never for a valid extent.
    pub fn axis(&mut self, extent: usize, exec: Exec) -> Result<UOp> {
        if extent == 1 {
            return Ok(constant(0, self.index_dtype));
        }
        let extent = constant(extent as i64, self.index_dtype);
        self.ranges += 1;
        UOp::range(&extent, self.ranges - 1, exec)
    }

    /// A new loop below an extent that depends on outer loops.
    ///
    /// # Errors
    /// Never for an index.
    pub fn range(&mut self, extent: &UOp) -> Result<UOp> {
        self.ranges += 1;
        UOp::range(extent, self.ranges - 1, Exec::Serial)
    }

    /// New scratch memory.
    pub fn local(&mut self, space: Space, dtype: DType, n: usize) -> UOp {
        let id = self.locals;
        self.locals += 1;
        UOp::local(id, space, dtype, n)
    }

    /// The value of `node` at `at`; statements that it needs are written first.
    ///
    /// # Errors
    /// When the graph holds an op that has no loops yet.
    pub fn value(
        &mut self,
        node: &UOp,
        at: &[UOp],
        gate: Option<&UOp>,
        scope: &[UOp],
    ) -> Result<UOp> {
        let first = Request {
            node: node.clone(),
            at: at.to_vec(),
            gate: gate.cloned(),
            scope: scope.to_vec(),
        };
        let mut open = vec![self.start(first.clone())?];
        while let Some(top) = open.last_mut() {
            if let Some(next) = top.needs.get(top.have.len()) {
                if let Some(answer) = self.answers.get(next) {
                    top.have.push(answer.clone());
                } else {
                    let next = next.clone();
                    open.push(self.start(next)?);
                }
                continue;
            }
            // Everything needed is there: answer, or find out that more is needed.
            if let How::Gather = top.how {
                let (need, how) = gather(&top.request, &top.have, self.index_dtype)?;
                (top.needs, top.have, top.how) = (vec![need], Vec::new(), how);
                continue;
            }
            if let How::Fold(nest) = &mut top.how {
                let more = nest.advance(&mut top.have, self)?;
                if let Some(needs) = more {
                    (top.needs, top.have) = (needs, Vec::new());
                    continue;
                }
            }
            let mut done = open.pop().expect("the loop runs while a request is open");
            let answer = match done.how {
                How::Fill(fill) => self.fill(*fill, done.have.remove(0))?,
                _ => finish(&done)?,
            };
            self.answers.insert(done.request, answer);
        }
        Ok(self.answers[&first].clone())
    }

    /// What a request needs, and how its value follows.
    fn start(&mut self, request: Request) -> Result<Open> {
        let Request {
            node,
            at,
            gate,
            scope,
        } = &request;
        let dtype = self.index_dtype;
        let ask = |node: &UOp, at: Vec<UOp>, gate: Option<UOp>| Request {
            node: node.clone(),
            at,
            gate,
            scope: scope.clone(),
        };
        let (needs, how) = match node.op() {
            Op::Const(_) => (vec![], How::Known(node.clone())),
            Op::Iota { dtype, .. } => (vec![], How::Known(at[0].cast(*dtype)?)),
            Op::Param { .. } => (vec![], How::Known(node.load(&at[0], gate.as_ref())?)),
            Op::Stage(_) if is_kept(node) => match self.kept(&request)? {
                Ok(known) => (vec![], How::Known(known)),
                Err((need, fill)) => (vec![need], How::Fill(Box::new(fill))),
            },
            Op::Stage(_)
            | Op::Custom(_)
            | Op::Reshape(_)
            | Op::Expand(_)
            | Op::Permute(_)
            | Op::Shrink(_) => {
                let source = source_index(node, at, dtype)?;
                (vec![ask(&node.src()[0], source, gate.clone())], How::Same)
            }
            Op::Stack => {
                if let Some(k) = as_constant(&at[0]) {
                    // Outside the stack a gate is false and any part will do.
                    let last = node.src().len() - 1;
                    let part = &node.src()[usize::try_from(k).unwrap_or(0).min(last)];
                    (vec![ask(part, at[1..].to_vec(), gate.clone())], How::Same)
                } else {
                    let (needs, conditions) = select(node, at, gate.as_ref(), scope)?;
                    (needs, How::Select(conditions))
                }
            }
            Op::Index => {
                let s = node.src()[1].shape().rank();
                let indices = node.src()[1..].iter();
                let needs = indices
                    .map(|i| ask(i, at[..s].to_vec(), gate.clone()))
                    .collect();
                (needs, How::Gather)
            }
            Op::Reduce { .. } => {
                let nest = reduce::Nest::new(&request, self)?;
                (vec![], How::Fold(nest))
            }
            op if op.is_elementwise() => {
                let needs = node
                    .src()
                    .iter()
                    .map(|s| ask(s, at.clone(), gate.clone()))
                    .collect();
                (needs, How::Apply)
            }
            other => {
                let message = "has no loops yet; it comes with a later version".into();
                let what = other.mnemonic();
                return Err(Error::Unsupported {
                    what,
                    message,
                    site: node.site(),
                });
            }
        };
        Ok(Open {
            request,
            needs,
            have: Vec::new(),
            how,
        })
    }
}

fn finish(done: &Open) -> Result<UOp> {
    match &done.how {
        How::Apply => UOp::new(done.request.node.op().clone(), done.have.as_slice()),
        How::Same => Ok(done.have[0].clone()),
        How::Known(value) => Ok(value.clone()),
        How::Select(conditions) => {
            let mut parts = done.have.iter().rev();
            let mut chosen = parts.next().expect("a stack has a part").clone();
            for (part, condition) in parts.zip(conditions.iter().rev()) {
                chosen = condition.where_(part, &chosen)?;
            }
            Ok(chosen)
        }
        How::Guard(condition) => condition.where_(
            &done.have[0],
            &UOp::constant(Scalar::zero(done.have[0].dtype())),
        ),
        How::Gather | How::Fill(_) => Ok(done.have[0].clone()),
        How::Fold(nest) => nest.result(),
    }
}

/// `a && b`, where `None` is true.
fn both(a: Option<&UOp>, b: &UOp) -> Result<UOp> {
    a.map_or(Ok(b.clone()), |a| a.and(b))
}

/// The parts of a STACK, each gated by its being chosen: part k if the first index is below
/// k + 1 and not below k.
fn select(
    node: &UOp,
    at: &[UOp],
    gate: Option<&UOp>,
    scope: &[UOp],
) -> Result<(Vec<Request>, Vec<UOp>)> {
    let last = node.src().len() - 1;
    let mut conditions = Vec::new();
    for k in 1..=last {
        conditions.push(at[0].cmplt(&constant(k as i64, at[0].dtype()))?);
    }
    let mut needs = Vec::new();
    for (k, part) in node.src().iter().enumerate() {
        let mut own = gate.cloned();
        if k > 0 {
            own = Some(both(own.as_ref(), &conditions[k - 1].logical_not()?)?);
        }
        if k < last {
            own = Some(both(own.as_ref(), &conditions[k])?);
        }
        needs.push(Request {
            node: part.clone(),
            at: at[1..].to_vec(),
            gate: own,
            scope: scope.to_vec(),
        });
    }
    Ok((needs, conditions))
}

/// The element of an INDEX's source at indices whose values are known, or zero where one of them
/// lies outside.
fn gather(request: &Request, indices: &[UOp], dtype: DType) -> Result<(Request, How)> {
    let x = &request.node.src()[0];
    let rank = request.node.src()[1].shape().rank();
    let (mut at, allowed) = place(indices, x.shape(), dtype)?;
    at.extend_from_slice(&request.at[rank..]);
    let gate = Some(both(request.gate.as_ref(), &allowed)?);
    let need = Request {
        node: x.clone(),
        at,
        gate,
        scope: request.scope.clone(),
    };
    Ok((need, How::Guard(allowed)))
}

/// Indices along the first axes of a shape in the dtype of index arithmetic, and whether all of
/// them are inside.
///
/// # Errors
/// Never for integers.
pub fn place(indices: &[UOp], shape: &[usize], dtype: DType) -> Result<(Vec<UOp>, UOp)> {
    let mut at = Vec::new();
    let mut allowed: Option<UOp> = None;
    for (index, &extent) in indices.iter().zip(shape) {
        // The test is made in a dtype that holds both the index and the extent.
        let wide = if index.dtype() == dtype {
            index.clone()
        } else {
            index.cast(DType::I64)?
        };
        allowed = Some(both(allowed.as_ref(), &inside(&wide, extent)?)?);
        at.push(wide.cast(dtype)?);
    }
    Ok((at, allowed.expect("a place has at least one index")))
}

/// The loops among indices; an axis of extent 1 is a constant.
pub fn only_loops(at: &[UOp]) -> Vec<UOp> {
    let loops = at.iter().filter(|r| matches!(r.op(), Op::Range { .. }));
    loops.cloned().collect()
}
