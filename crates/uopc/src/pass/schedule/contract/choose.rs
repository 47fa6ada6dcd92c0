//! Which factor of a contraction fills the vectors, and its tile: the model's, or the one asked for.

use super::super::affine::stride;
use super::super::nest::Nest;
use super::direct::Axes;
use super::find::Contraction;
use super::operand::Operand;
use super::pairs;
use super::tile::{Tile, fits, tile, tiles};
use crate::error::Result;
use crate::ir::UOp;
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

impl Shape {
    /// The tile, at no cost: nobody compares it.
    fn tile(self) -> Tile {
        Tile {
            rows: self.rows,
            vectors: self.vectors,
            cycles: 0.0,
        }
    }
}

/// The lanes of sums, the tile, and the operands: the one that is held element by element first.
pub type Assigned = (usize, Tile, [Operand; 2]);

/// The assignment where vectors of sums are multiplied and added: the model's, or that of the
/// nest's choice if its tile fits the machine's registers.
///
/// # Errors
/// Never for a verified graph.
pub fn in_vectors(c: &Contraction, nest: &mut Nest, machine: &Machine) -> Result<Assigned> {
    let (lanes, first, second) = operands(c, nest, machine)?;
    let asked = nest.choice.tile;
    let asked = asked.filter(|shape| fits(shape.rows, shape.vectors, machine));
    let (tile, turned) = match asked {
        Some(shape) => (shape.tile(), shape.turned),
        None => {
            let element = c.sum.dtype().size();
            let straight = tile(&first, &second, c.depth, element, machine);
            let turned = tile(&second, &first, c.depth, element, machine);
            let cycles = straight.cycles + stored(&first, &second, c);
            match cycles <= turned.cycles + stored(&second, &first, c) {
                true => (straight, false),
                false => (turned, true),
            }
        }
    };
    Ok(match turned {
        false => (lanes, tile, [first, second]),
        true => (lanes, tile, [second, first]),
    })
}

/// The better assignment where tiles of bf16 are multiplied. They have one size.
///
/// # Errors
/// Never for a verified graph.
pub fn in_tiles_of_pairs(c: &Contraction, factors: [UOp; 2], nest: &mut Nest) -> Result<Assigned> {
    let [first, second] = [0, 1].map(|o| Operand::new(c, o, &factors[o], pairs::SIDE, None, nest));
    let (first, second) = (first?, second?);
    let cost = |rows, cols| pairs::cost(rows, cols) + stored(rows, cols, c);
    let tile = Tile {
        rows: pairs::SIDE,
        vectors: pairs::SIDE / pairs::LANES,
        cycles: 0.0,
    };
    Ok(match cost(&first, &second) <= cost(&second, &first) {
        true => (pairs::LANES, tile, [first, second]),
        false => (pairs::LANES, tile, [second, first]),
    })
}

/// The tiles worth a try, the best by the model first, and the cycles of that.
///
/// # Errors
/// Never for a verified graph.
pub fn shapes(c: &Contraction, nest: &mut Nest, machine: &Machine) -> Result<(f64, Vec<Shape>)> {
    if machine.bf16_tiles && pairs::narrow(c).is_some() {
        return Ok((0.0, Vec::new()));
    }
    let (_, first, second) = operands(c, nest, machine)?;
    let mut all: Vec<(f64, Shape)> = Vec::new();
    for (turned, rows, cols) in [(false, &first, &second), (true, &second, &first)] {
        let stored = stored(rows, cols, c);
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

fn operands(
    c: &Contraction,
    nest: &mut Nest,
    machine: &Machine,
) -> Result<(usize, Operand, Operand)> {
    let lanes = machine.lanes(c.sum.dtype().size());
    let axes = Axes::of(c, nest)?;
    let first = Operand::new(c, 0, &c.factors[0], lanes, axes.as_ref(), nest)?;
    let second = Operand::new(c, 1, &c.factors[1], lanes, axes.as_ref(), nest)?;
    Ok((lanes, first, second))
}

/// Modelled cycles to store the result, by which side of it lies in one piece of memory.
fn stored(rows: &Operand, cols: &Operand, c: &Contraction) -> f64 {
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
