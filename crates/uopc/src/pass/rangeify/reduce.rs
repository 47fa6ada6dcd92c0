//! The statements of one reduction, in the order that its fold prescribes.
//!
//! A reduction becomes segments: a loop nest that combines elements into scratch memory, and the
//! statements that follow it. The element's value is asked for segment by segment, since it may
//! need statements of its own inside the segment's loops.

use super::index::{add, constant, mul, source_index, sum, unflatten};
use super::value::{Lowering, Request};
use crate::error::Result;
use crate::ir::fold::chain_product;
use crate::ir::op::{Combine, Exec, Fold, ReduceOp, Space};
use crate::ir::{DType, Op, Scalar, UOp};

/// Lanes of a fold, whatever the machine's vectors hold.
const LANES: usize = 16;
/// Elements after which a fold starts a new partial result.
const BLOCK: usize = 4096;
/// Partial results that stay in the thread's cache, in bytes; more go to the arena.
const CACHE_BYTES: usize = 32 << 10;

/// A reduction in work.
pub struct Nest {
    request: Request,
    op: ReduceOp,
    dtype: DType,
    factors: Option<Factors>,
    segments: Vec<Segment>,
    /// The next segment, or the one whose element has been asked for.
    current: usize,
    asked: bool,
    result: Option<UOp>,
}

/// The two factors of a chain's product, and the movement ops between it and the reduction.
struct Factors {
    product: UOp,
    through: Vec<UOp>,
}

/// A loop nest that combines elements into memory.
struct Segment {
    /// Its loops, inside the scope.
    ranges: Vec<UOp>,
    /// The index along the reduced axes.
    at: Vec<UOp>,
    /// Where the elements go; no memory for a reduction of a single element.
    into: Option<(UOp, UOp)>,
    /// Statements that follow.
    after: Vec<UOp>,
}

impl Nest {
    /// Plans the segments of the reduction that `request` asks for.
    pub fn new(request: &Request, lowering: &mut Lowering) -> Result<Nest> {
        let Op::Reduce { op, n, fold } = *request.node.op() else {
            unreachable!("only a REDUCE becomes a nest");
        };
        let x = &request.node.src()[0];
        let extents = &x.shape()[x.shape().rank() - n as usize..];
        let count: usize = extents.iter().product();
        let chain = fold == Fold::Chain;
        let ordered = x.dtype().is_float() && op != ReduceOp::Max;
        let dtype = if ordered {
            x.dtype().accumulator()
        } else {
            x.dtype()
        };
        let mut nest = Nest {
            request: request.clone(),
            op,
            dtype,
            factors: None,
            segments: Vec::new(),
            current: 0,
            asked: false,
            result: None,
        };
        if chain {
            nest.factors = chain_product(x).map(|(product, through)| Factors { product, through });
        }
        if count == 0 {
            let empty = match op {
                ReduceOp::Add => Scalar::zero(x.dtype()),
                ReduceOp::Mul => Scalar::one(x.dtype()),
                ReduceOp::Max => Scalar::identity(op, x.dtype()),
            };
            nest.result = Some(UOp::constant(empty));
        } else if count == 1 {
            let at = vec![constant(0, lowering.index_dtype); extents.len()];
            nest.segments.push(Segment {
                ranges: vec![],
                at,
                into: None,
                after: vec![],
            });
        } else if chain {
            nest.plan_chain(extents, count, lowering)?;
        } else if ordered {
            nest.plan_lanes(extents, count, lowering)?;
        } else {
            let memory = lowering.local(Space::Reg, dtype, 1);
            nest.push_whole(extents, &memory, lowering)?;
            nest.finish_with(&memory, lowering)?;
        }
        Ok(nest)
    }

    /// The value, once all segments are done.
    pub fn result(&self) -> Result<UOp> {
        let result = self
            .result
            .as_ref()
            .expect("a nest is read when its segments are done");
        result.cast(self.request.node.dtype())
    }

    /// Writes the segment whose element has become known, and says what the next one needs;
    /// `None` when all are written.
    pub fn advance(
        &mut self,
        have: &mut Vec<UOp>,
        lowering: &mut Lowering,
    ) -> Result<Option<Vec<Request>>> {
        if self.asked {
            let values: Vec<UOp> = have
                .drain(..)
                .map(|v| v.cast(self.dtype))
                .collect::<Result<_>>()?;
            self.write(values, lowering)?;
            self.current += 1;
        }
        self.asked = self.current < self.segments.len();
        if self.asked {
            self.element().map(Some)
        } else {
            Ok(None)
        }
    }

    fn write(&mut self, values: Vec<UOp>, lowering: &mut Lowering) -> Result<()> {
        let one = UOp::constant(Scalar::one(self.dtype));
        let chain = matches!(
            self.request.node.op(),
            Op::Reduce {
                fold: Fold::Chain,
                ..
            }
        );
        let b = values.get(1).unwrap_or(&one);
        let segment = &self.segments[self.current];
        let Some((memory, slot)) = &segment.into else {
            let zero = UOp::constant(Scalar::zero(self.dtype));
            let single = if chain {
                values[0].mulacc(b, &zero)?
            } else {
                values[0].clone()
            };
            self.result = Some(single);
            return Ok(());
        };
        let store = if chain {
            memory.store(slot, &[values[0].clone(), b.clone()], Combine::MulAcc, None)?
        } else {
            memory.store(slot, &values, self.op.into(), None)?
        };
        let ranges = [&self.request.scope[..], &segment.ranges[..]].concat();
        lowering.statements.push(store.end(&ranges)?);
        lowering.statements.extend(segment.after.iter().cloned());
        Ok(())
    }

    /// What the current segment needs: the element, or the two factors of a chain.
    fn element(&self) -> Result<Vec<Request>> {
        let segment = &self.segments[self.current];
        let at = [&self.request.at[..], &segment.at[..]].concat();
        let scope = [&self.request.scope[..], &segment.ranges[..]].concat();
        let gate = self.request.gate.clone();
        let ask = |node: &UOp, at: Vec<UOp>| Request {
            node: node.clone(),
            at,
            gate: gate.clone(),
            scope: scope.clone(),
        };
        let Some(factors) = &self.factors else {
            return Ok(vec![ask(&self.request.node.src()[0], at)]);
        };
        let mut at = at;
        for moved in factors.through.iter().filter(|u| u.op().is_movement()) {
            let dtype = at.first().map_or(DType::I32, |i| i.dtype());
            at = source_index(moved, &at, dtype)?;
        }
        Ok(factors
            .product
            .src()
            .iter()
            .map(|f| ask(f, at.clone()))
            .collect())
    }

    /// One segment with a loop for each axis, into element 0 of the memory.
    fn push_whole(&mut self, extents: &[usize], memory: &UOp, low: &mut Lowering) -> Result<()> {
        let (mut ranges, mut at) = (Vec::new(), Vec::new());
        for &extent in extents {
            push_axis(extent, &mut ranges, &mut at, low)?;
        }
        self.push(ranges, at, memory, &constant(0, low.index_dtype));
        Ok(())
    }

    fn push(&mut self, ranges: Vec<UOp>, at: Vec<UOp>, memory: &UOp, slot: &UOp) {
        let into = Some((memory.clone(), slot.clone()));
        self.segments.push(Segment {
            ranges,
            at,
            into,
            after: Vec::new(),
        });
    }

    fn finish_with(&mut self, memory: &UOp, low: &Lowering) -> Result<()> {
        self.result = Some(memory.load(&constant(0, low.index_dtype), None)?);
        Ok(())
    }

    /// A statement after the segments planned so far, in loops inside the scope.
    fn then(&mut self, ranges: &[UOp], store: UOp) -> Result<()> {
        let ranges = [&self.request.scope[..], ranges].concat();
        let last = self
            .segments
            .last_mut()
            .expect("statements follow a segment");
        last.after.push(store.end(&ranges)?);
        Ok(())
    }

    /// A chain: one sequential sum, restarted every block, the blocks added in order.
    fn plan_chain(&mut self, extents: &[usize], count: usize, low: &mut Lowering) -> Result<()> {
        if count <= BLOCK {
            let acc = low.local(Space::Reg, self.dtype, 1);
            self.push_whole(extents, &acc, low)?;
            return self.finish_with(&acc, low);
        }
        let zero = constant(0, low.index_dtype);
        let total = low.local(Space::Reg, self.dtype, 1);
        let block = low.axis(count.div_ceil(BLOCK), Exec::Serial)?;
        let whole = constant(BLOCK as i64, low.index_dtype);
        // Only the last block may be shorter.
        let size = if count.is_multiple_of(BLOCK) {
            whole
        } else {
            let left = add(&mul(&block, BLOCK)?.neg()?, count as i64)?;
            left.cmplt(&whole)?.where_(&left, &whole)?
        };
        let k = low.range(&size)?;
        let acc = low.local(Space::Reg, self.dtype, 1);
        let at = along(extents, &sum(&mul(&block, BLOCK)?, &k)?, low)?;
        self.push(vec![block.clone(), k], at, &acc, &zero);
        let partial = acc.load(&zero, None)?;
        self.then(
            &[block],
            total.store(&zero, &[partial], Combine::Add, None)?,
        )?;
        self.finish_with(&total, low)
    }

    /// Lanes: 16 interleaved sums a block, halved; blocks joined by a tree of neighbours.
    fn plan_lanes(&mut self, extents: &[usize], count: usize, low: &mut Lowering) -> Result<()> {
        let zero = constant(0, low.index_dtype);
        if count <= BLOCK {
            let lanes = self.plan_block(extents, count, &zero, &[], low)?;
            return self.finish_with(&lanes, low);
        }
        let blocks = count.div_ceil(BLOCK);
        let small = blocks * self.dtype.size() <= CACHE_BYTES;
        let space = if small { Space::Cache } else { Space::Arena };
        let partial = low.local(space, self.dtype, blocks);
        let block = low.axis(count / BLOCK, Exec::Serial)?;
        let loops = only_loops(&[&block]);
        let lanes = self.plan_block(extents, BLOCK, &mul(&block, BLOCK)?, &loops, low)?;
        let first = lanes.load(&zero, None)?;
        self.then(&loops, partial.store(&block, &[first], Combine::Set, None)?)?;
        if !count.is_multiple_of(BLOCK) {
            let at = constant((count / BLOCK) as i64, low.index_dtype);
            let lanes = self.plan_block(extents, count % BLOCK, &mul(&at, BLOCK)?, &[], low)?;
            let last = lanes.load(&zero, None)?;
            self.then(&[], partial.store(&at, &[last], Combine::Set, None)?)?;
        }
        self.plan_tree(&partial, blocks, low)?;
        self.finish_with(&partial, low)
    }

    /// One block of `count` elements from `base` on, summed into lane 0 of the result.
    fn plan_block(
        &mut self,
        extents: &[usize],
        count: usize,
        base: &UOp,
        around: &[UOp],
        low: &mut Lowering,
    ) -> Result<UOp> {
        let width = LANES.min(count.next_power_of_two());
        let lanes = low.local(Space::Reg, self.dtype, width);
        let inner = extents.last().copied().unwrap_or(1);
        let total: usize = extents.iter().product();
        if total == count && inner.is_multiple_of(LANES) {
            // Rows of whole vectors: a loop for each axis, and no division.
            let (mut ranges, mut at) = (around.to_vec(), Vec::new());
            for &extent in &extents[..extents.len() - 1] {
                push_axis(extent, &mut ranges, &mut at, low)?;
            }
            let step = low.axis(inner / LANES, Exec::Serial)?;
            let lane = low.axis(LANES, Exec::Unroll)?;
            ranges.extend(only_loops(&[&step, &lane]));
            at.push(sum(&mul(&step, LANES)?, &lane)?);
            self.push(ranges, at, &lanes, &lane);
        } else {
            let steps = count / LANES;
            if steps > 0 {
                let step = low.axis(steps, Exec::Serial)?;
                let lane = low.axis(LANES, Exec::Unroll)?;
                let k = sum(base, &sum(&mul(&step, LANES)?, &lane)?)?;
                let ranges = [around, &only_loops(&[&step, &lane])[..]].concat();
                let at = along(extents, &k, low)?;
                self.push(ranges, at, &lanes, &lane);
            }
            if !count.is_multiple_of(LANES) {
                let lane = low.axis(count % LANES, Exec::Unroll)?;
                let k = sum(&add(base, (steps * LANES) as i64)?, &lane)?;
                let ranges = [around, &only_loops(&[&lane])[..]].concat();
                let at = along(extents, &k, low)?;
                self.push(ranges, at, &lanes, &lane);
            }
        }
        let mut half = width / 2;
        while half > 0 {
            let lane = low.axis(half, Exec::Unroll)?;
            let other = lanes.load(&add(&lane, half as i64)?, None)?;
            let store = lanes.store(&lane, &[other], self.op.into(), None)?;
            let ranges = [around, &only_loops(&[&lane])[..]].concat();
            self.then(&ranges, store)?;
            half /= 2;
        }
        Ok(lanes)
    }

    /// Joins neighbours until one is left; an odd last one moves up.
    fn plan_tree(&mut self, partial: &UOp, blocks: usize, low: &mut Lowering) -> Result<()> {
        let mut left = blocks;
        while left > 1 {
            let half = left / 2;
            let i = low.axis(half, Exec::Serial)?;
            let a = partial.load(&mul(&i, 2)?, None)?;
            let b = partial.load(&add(&mul(&i, 2)?, 1)?, None)?;
            let joined = if self.op == ReduceOp::Add {
                a.add(&b)?
            } else {
                a.mul(&b)?
            };
            let store = partial.store(&i, &[joined], Combine::Set, None)?;
            self.then(&only_loops(&[&i]), store)?;
            if left % 2 == 1 {
                let last = partial.load(&constant(left as i64 - 1, low.index_dtype), None)?;
                let to = constant(half as i64, low.index_dtype);
                self.then(&[], partial.store(&to, &[last], Combine::Set, None)?)?;
            }
            left = half + left % 2;
        }
        Ok(())
    }
}

fn push_axis(
    extent: usize,
    ranges: &mut Vec<UOp>,
    at: &mut Vec<UOp>,
    low: &mut Lowering,
) -> Result<()> {
    let r = low.axis(extent, Exec::Serial)?;
    ranges.extend(only_loops(&[&r]));
    at.push(r);
    Ok(())
}

/// The loops among indices; an axis of extent 1 is a constant.
fn only_loops(indices: &[&UOp]) -> Vec<UOp> {
    indices
        .iter()
        .filter(|r| matches!(r.op(), Op::Range { .. }))
        .map(|&r| r.clone())
        .collect()
}

/// The index along the reduced axes of flattened element k.
fn along(extents: &[usize], k: &UOp, low: &Lowering) -> Result<Vec<UOp>> {
    debug_assert_eq!(k.dtype(), low.index_dtype);
    unflatten(k, extents)
}
