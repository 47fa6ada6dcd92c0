//! Finds contractions among the statements of a launch: a chain of multiply-adds into one
//! register, and the store that reads it.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::super::affine::{digits, replaced};
use super::super::nest::{Nest, Statement, extent_of, ranges_of};
use crate::error::Result;
use crate::ir::op::{Combine, Exec, Space};
use crate::ir::{DType, Op, UOp};

/// Elements after which a chain starts a new partial sum.
pub const BLOCK: usize = 4096;

/// A product of two operands, summed over k.
pub struct Contraction {
    /// Its statements.
    pub span: Range<usize>,
    /// The two factors, in terms of the ranges of the result and of `k`.
    pub factors: [UOp; 2],
    /// The ranges of the result that both factors name, or neither.
    pub batch: Vec<UOp>,
    /// For each factor the ranges that it alone names.
    pub sides: [Vec<UOp>; 2],
    /// The same in terms of the ranges that are summed over, `summed`.
    pub plain: [UOp; 2],
    /// The summed ranges; none if they are blocks of a longer chain.
    pub summed: Vec<UOp>,
    /// A range over all of the summed axes, flattened.
    pub k: UOp,
    /// Its extent.
    pub depth: usize,
    /// Whether k counts pairs of elements, which the factors hold in words (see `dots`).
    pub in_words: bool,
    /// The statement that reads the sum.
    pub out: Statement,
    /// The LOAD of the sum in it.
    pub sum: UOp,
}

impl Contraction {
    /// The contraction whose first statement is the one at `first`, if there is one that has the
    /// loops to itself.
    ///
    /// # Errors
    /// Never for a verified graph.
    pub fn at(nest: &mut Nest, first: usize) -> Result<Option<Contraction>> {
        match Shape::of(nest, first) {
            Some(shape) => Contraction::of(nest, first, &shape, &[]),
            None => Ok(None),
        }
    }

    /// The contraction whose first statement is the one at `first`, if its sums go to scratch memory
    /// that lives in loops it shares with others. In the `around` of them it is computed piece by
    /// piece.
    ///
    /// # Errors
    /// Never for a verified graph.
    pub fn piece(nest: &mut Nest, first: usize, around: &[UOp]) -> Result<Option<Contraction>> {
        match Shape::piece(nest, first) {
            Some(shape) => Contraction::of(nest, first, &shape, around),
            None => Ok(None),
        }
    }

    fn of(
        nest: &mut Nest,
        first: usize,
        shape: &Shape,
        around: &[UOp],
    ) -> Result<Option<Contraction>> {
        let chain = nest.statements[first].clone();
        let out = nest.statements[shape.end - 1].clone();
        let kept = out.ranges.clone();
        let summed = &chain.ranges[kept.len()..];
        let dtype = chain.index.dtype();
        let k = nest.count(shape.depth, dtype, Exec::Serial)?;
        let mut replace = FxHashMap::default();
        if shape.blocked {
            // The loops are blocks of 4096 and a position in the block.
            let block = UOp::int(BLOCK as i64, dtype);
            let (outer, inner) = (k.floordiv(&block)?, k.floormod(&block)?);
            match summed {
                [b, i] => {
                    replace.insert(b.clone(), outer);
                    replace.insert(i.clone(), inner);
                }
                _ => return Ok(None),
            }
        } else {
            let extents: Option<Vec<usize>> = summed.iter().map(extent_of).collect();
            let Some(extents) = extents else {
                return Ok(None);
            };
            replace.extend(summed.iter().cloned().zip(digits(&k, &extents)?));
        }
        let factors = replaced(&chain.values, &replace)?;
        let [a, b] = [&factors[0], &factors[1]].map(ranges_of);
        let part = |wanted: fn(bool, bool) -> bool| {
            let kept = kept.iter().filter(|r| !around.contains(*r));
            let kept = kept.filter(|r| wanted(a.contains(*r), b.contains(*r)));
            kept.cloned().collect::<Vec<UOp>>()
        };
        let sides = [part(|a, b| a && !b), part(|a, b| b && !a)];
        let batch = part(|a, b| a == b);
        if sides.iter().any(Vec::is_empty) || kept.iter().any(|r| extent_of(r).is_none()) {
            return Ok(None);
        }
        let sum = out.loads().into_iter().find(|l| l.src()[0] == shape.total);
        Ok(sum.map(|sum| Contraction {
            span: first..shape.end,
            factors: [factors[0].clone(), factors[1].clone()],
            plain: [chain.values[0].clone(), chain.values[1].clone()],
            summed: if shape.blocked {
                Vec::new()
            } else {
                summed.to_vec()
            },
            batch,
            sides,
            k,
            depth: shape.depth,
            in_words: false,
            out,
            sum,
        }))
    }

    /// After how many steps of k a chain starts a new partial sum.
    pub fn block(&self) -> usize {
        if self.in_words { BLOCK / 2 } else { BLOCK }
    }
}

/// Which statements belong together.
struct Shape {
    /// One past the last.
    end: usize,
    /// The register that the last one reads.
    total: UOp,
    /// How many elements are summed.
    depth: usize,
    /// Whether the loops are blocks of the chain.
    blocked: bool,
}

impl Shape {
    fn of(nest: &Nest, first: usize) -> Option<Shape> {
        let statements = &nest.statements;
        let chain = &statements[first];
        if !is_chain(chain) {
            return None;
        }
        let next = statements.get(first + 1)?;
        if next.combine == Combine::Set {
            let summed = chain.ranges.get(next.ranges.len()..)?;
            let depth = summed.iter().map(extent_of).product::<Option<usize>>()?;
            let shape = Shape {
                end: first + 2,
                total: chain.memory.clone(),
                depth,
                blocked: false,
            };
            return (depth <= BLOCK && shape.stands_alone(nest, first)).then_some(shape);
        }
        // acc over (block, k), then total += acc over block.
        let total = next.memory.clone();
        let joins = |sum: &Statement, acc: &UOp| {
            sum.combine == Combine::Add
                && sum.memory == total
                && matches!(sum.values[0].op(), Op::Load)
                && sum.values[0].src()[0] == *acc
        };
        if !joins(next, &chain.memory) {
            return None;
        }
        let kept = chain.ranges.len().checked_sub(2)?;
        let (block, k) = (&chain.ranges[kept], &chain.ranges[kept + 1]);
        let last = extent_of(block)?.checked_sub(1)?;
        let last_block =
            FxHashMap::from_iter([(block.clone(), UOp::int(last as i64, block.dtype()))]);
        let rest = replaced(&k.src()[..1], &last_block).ok()?;
        let Op::Const(rest) = rest[0].op() else {
            return None;
        };
        let depth = last * BLOCK + usize::try_from(rest.as_i128()).ok()?;
        let shape = Shape {
            end: first + 3,
            total,
            depth,
            blocked: true,
        };
        shape.stands_alone(nest, first).then_some(shape)
    }

    /// A chain and the statement that keeps its sum in scratch memory of an iteration of its loops.
    fn piece(nest: &Nest, first: usize) -> Option<Shape> {
        let (chain, out) = nest
            .statements
            .get(first)
            .zip(nest.statements.get(first + 1))?;
        let summed = chain.ranges.get(out.ranges.len()..)?;
        let depth = summed.iter().map(extent_of).product::<Option<usize>>()?;
        let kept = matches!(
            out.memory.op(),
            Op::Local {
                space: Space::Cache,
                ..
            }
        );
        let plain = out.combine == Combine::Set && out.gate.is_none();
        let own = nest.naming(&chain.memory) == [first, first + 1];
        let fits = is_chain(chain)
            && reads_parameters_only(chain)
            && chain.ranges.starts_with(&out.ranges)
            && out.loads().len() == 1
            && own;
        (fits && kept && plain && depth <= BLOCK).then(|| Shape {
            end: first + 2,
            total: chain.memory.clone(),
            depth,
            blocked: false,
        })
    }

    /// Whether the store at the end is plain, its loops are the outer ones of all its statements,
    /// nobody else uses them, and nobody else knows the registers.
    fn stands_alone(&self, nest: &Nest, first: usize) -> bool {
        let Some(out) = nest.statements.get(self.end - 1) else {
            return false;
        };
        let inside = &nest.statements[first..self.end];
        let outside = nest.statements[..first]
            .iter()
            .chain(&nest.statements[self.end..]);
        let mut registers = vec![&self.total];
        registers.extend(inside.iter().filter(|s| is_chain(s)).map(|s| &s.memory));
        out.combine == Combine::Set
            && !registers.contains(&&out.memory)
            && out
                .loads()
                .iter()
                .filter(|l| matches!(l.src()[0].op(), Op::Local { .. }))
                .count()
                == 1
            && out.names(&self.total)
            && inside.iter().all(|s| s.ranges.starts_with(&out.ranges))
            && inside
                .iter()
                .all(|s| !is_chain(s) || reads_parameters_only(s))
            && outside.clone().all(|s| {
                !registers.iter().any(|r| s.names(r))
                    && !s.ranges.iter().any(|r| out.ranges.contains(r))
            })
    }
}

/// A multiply-add into one register that starts at zero.
fn is_chain(s: &Statement) -> bool {
    let single = matches!(
        s.memory.op(),
        Op::Local {
            space: Space::Reg,
            dtype: DType::F32 | DType::F64,
            n: 1,
            ..
        }
    );
    single && s.combine == Combine::MulAcc && s.gate.is_none()
}

fn reads_parameters_only(s: &Statement) -> bool {
    let loads = s.loads();
    loads
        .iter()
        .all(|l| matches!(l.src()[0].op(), Op::Param { .. }))
}
