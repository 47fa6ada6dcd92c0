//! Which factor of a contraction fills the vectors, and its tile: the model's, or the one asked for.

use super::super::affine::stride;
use super::super::nest::Nest;
use super::find::Contraction;
use super::operand::Operand;
use super::tile::{Tile, fits, tile, tiles};
use crate::error::Result;
use crate::machine::Machine;

/// Of the tiles that could be tried, those the model takes for that much slower than the best are
/// left out.
const HOPELESS: f64 = 1.5;

/// A tile by its size, and which factor fills its vectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Rows, each an element of the other factor.
    pub rows: usize,
    /// Vectors in a row.
    pub vectors: usize,
    /// Whether the first factor of the product fills the vectors, not the second.
    pub turned: bool,
}

/// The tile, and the operands: the one that is held element by element first. Where the tile that
/// the nest's choice asks for does not fit the machine's registers, it is the model's.
///
/// # Errors
/// Never for a verified graph.
pub fn choose(c: &Contraction, nest: &mut Nest, machine: &Machine) -> Result<(Tile, [Operand; 2])> {
    let (first, second) = operands(c, nest, machine)?;
    let asked = nest.choice.tile;
    let asked = asked.filter(|shape| fits(shape.rows, shape.vectors, machine));
    let (tile, turned) = match asked {
        Some(Shape {
            rows,
            vectors,
            turned,
        }) => (
            Tile {
                rows,
                vectors,
                cycles: 0.0,
            },
            turned,
        ),
        None => {
            let element = c.sum.dtype().size();
            let straight = tile(&first, &second, c.depth, element, machine);
            let turned = tile(&second, &first, c.depth, element, machine);
            let stored = |rows, cols| storing(rows, cols, c);
            let cycles = straight.cycles + stored(&first, &second);
            match cycles <= turned.cycles + stored(&second, &first) {
                true => (straight, false),
                false => (turned, true),
            }
        }
    };
    Ok(match turned {
        false => (tile, [first, second]),
        true => (tile, [second, first]),
    })
}

/// The tiles worth a try, the best by the model first, and the cycles of that.
///
/// # Errors
/// Never for a verified graph.
pub fn shapes(c: &Contraction, nest: &mut Nest, machine: &Machine) -> Result<(f64, Vec<Shape>)> {
    let (first, second) = operands(c, nest, machine)?;
    let mut all: Vec<(f64, Shape)> = Vec::new();
    for (turned, rows, cols) in [(false, &first, &second), (true, &second, &first)] {
        let stored = storing(rows, cols, c);
        tiles(rows, cols, c.depth, c.sum.dtype().size(), machine, |tile| {
            let shape = Shape {
                rows: tile.rows,
                vectors: tile.vectors,
                turned,
            };
            all.push((tile.cycles + stored, shape));
        });
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let best = all.first().map_or(0.0, |(cycles, _)| *cycles);
    all.retain(|(cycles, _)| *cycles <= best * HOPELESS);
    Ok((best, all.into_iter().map(|(_, shape)| shape).collect()))
}

fn operands(c: &Contraction, nest: &mut Nest, machine: &Machine) -> Result<(Operand, Operand)> {
    let lanes = machine.lanes(c.sum.dtype().size());
    let first = Operand::new(c, 0, lanes, nest)?;
    let second = Operand::new(c, 1, lanes, nest)?;
    Ok((first, second))
}

/// Modelled cycles to store the result, by which side of it lies in one piece of memory.
fn storing(rows: &Operand, cols: &Operand, c: &Contraction) -> f64 {
    let contiguous = |o: &Operand| {
        let inner = o.side.last();
        inner.is_some_and(|r| stride(&c.out.index, r) == Some(1))
    };
    let store = match (contiguous(cols), contiguous(rows)) {
        (true, _) => 0.3,
        (_, true) => 1.0,
        _ => 1.5,
    };
    (rows.size * cols.size) as f64 * store
}
