//! How the sums of a tile go through k: in one loop, along the axes that k is made of, or along
//! those in a block.

use super::super::affine::{digits, linear, simplify};
use super::build::Builder;
use super::operand::Runs;
use crate::error::Result;
use crate::ir::op::Exec;
use crate::ir::{Op, UOp};

/// How a tile's sums go through k.
pub(super) struct Steps {
    /// The loops, outermost first.
    pub(super) loops: Vec<UOp>,
    /// The position in the block, or in all of k.
    pub(super) k: UOp,
    /// The positions along the axes of k, if an operand is read in place.
    pub(super) axes: Vec<UOp>,
}

impl Builder<'_> {
    /// The loops over k: one loop, or those of the axes where an operand is read in place.
    ///
    /// # Errors
    /// Never for a verified graph.
    pub(super) fn steps(&mut self) -> Result<Steps> {
        let mut places = self.operands.iter().zip(self.direct);
        let direct = places.find_map(|(o, direct)| o.direct.as_ref().filter(|_| direct));
        if let Some(direct) = direct {
            let axes = direct.axes.clone();
            return match &self.block {
                Some(block) => {
                    let first_k = linear(block, self.c.block(), &UOp::int(0, self.index))?;
                    self.steps_of_runs(&axes, &first_k)
                }
                None => self.steps_of_axes(&axes),
            };
        }
        let depth = UOp::int(self.depth as i64, self.index);
        let extent = match &self.block {
            Some(block) if !self.c.depth.is_multiple_of(self.c.block()) => {
                let all = UOp::int(self.c.depth as i64, self.index);
                let left = linear(&block.neg()?, self.c.block(), &all)?;
                left.cmplt(&depth)?.where_(&left, &depth)?
            }
            _ => depth,
        };
        let k = self.nest.range(&simplify(&[extent])?[0], Exec::Serial)?;
        Ok(Steps {
            loops: vec![k.clone()],
            k,
            axes: Vec::new(),
        })
    }

    fn steps_of_axes(&mut self, axes: &[UOp]) -> Result<Steps> {
        let mut loops = Vec::with_capacity(axes.len());
        let mut k = UOp::int(0, self.index);
        for axis in axes {
            let r = self.nest.count(extent(axis), self.index, Exec::Serial)?;
            k = linear(&k, extent(axis), &r)?;
            loops.push(r);
        }
        Ok(Steps {
            axes: loops.clone(),
            k: simplify(&[k])?.remove(0),
            loops,
        })
    }

    /// In a block of k: runs of the innermost axis, of which the first and the last are cut.
    fn steps_of_runs(&mut self, axes: &[UOp], first_k: &UOp) -> Result<Steps> {
        let extents: Vec<usize> = axes.iter().map(extent).collect();
        let (inner, outer) = extents.split_last().expect("k has an axis");
        let runs = Runs {
            inner: *inner,
            lanes: 1,
            first_k,
            depth: self.depth,
            whole_depth: self.c.depth,
        };
        let turn = self.nest.count(runs.count(), self.index, Exec::Serial)?;
        let run = runs.at(&turn)?;
        let step = self.nest.range(&run.extent, Exec::Serial)?;
        let at = run.begin.add(&step)?;
        let mut axes = digits(&run.number, outer)?;
        axes.push(at.clone());
        Ok(Steps {
            loops: vec![turn, step],
            k: run.start.add(&at)?.sub(first_k)?,
            axes,
        })
    }
}

fn extent(range: &UOp) -> usize {
    match range.src()[0].op() {
        Op::Const(value) => value.as_i128() as usize,
        _ => unreachable!("a tile has constant extents"),
    }
}
