//! The tile that is kept in registers: how many rows, how many vectors, and which factor fills the
//! vectors.

use super::operand::Operand;
use crate::machine::Machine;

/// A tile of the result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tile {
    /// Rows: each is one element of the other factor, held against all vectors.
    pub rows: usize,
    /// Vectors in a row.
    pub vectors: usize,
    /// Modelled cycles for the whole product.
    pub cycles: f64,
}

/// The best tile for a product, summed over `depth`: its rows are held element by element, its
/// columns fill vectors.
pub fn tile(
    rows: &Operand,
    cols: &Operand,
    depth: usize,
    element: usize,
    machine: &Machine,
) -> Tile {
    let mut best: Option<Tile> = None;
    tiles(rows, cols, depth, element, machine, |tile| {
        if best.is_none_or(|b| tile.cycles < b.cycles) {
            best = Some(tile);
        }
    });
    best.expect("every machine has three registers")
}

/// Whether the registers hold a tile: the accumulators, a row of vectors, and the element held
/// against them.
pub fn fits(rows: usize, vectors: usize, machine: &Machine) -> bool {
    rows * vectors + vectors < machine.vector_registers
}

/// Shows every tile that fits, with its cycles.
///
/// A multiply-add takes half a cycle, as does a load; a tile of few accumulators waits for its own
/// results. What a tile has beyond the product's edge is computed in vain, and an operand that a
/// tile can't read in place is packed.
pub fn tiles(
    rows: &Operand,
    cols: &Operand,
    depth: usize,
    element: usize,
    machine: &Machine,
    mut show: impl FnMut(Tile),
) {
    let lanes = machine.lanes(element);
    for vectors in 1..=4 {
        let width = vectors * lanes;
        for height in 1..=machine.vector_registers {
            if !fits(height, vectors, machine) {
                break;
            }
            let tiles = rows.size.div_ceil(height) * cols.size.div_ceil(vectors * lanes);
            let sums = (height * vectors) as f64 / 2.0;
            let loads = (height + vectors) as f64 / 2.0;
            // What the first cache does not hold until the next tile comes from the second.
            let [over, down] = [rows.size.div_ceil(height), cols.size.div_ceil(width)];
            let rows_direct = rows.is_direct(height, false, down, element, machine);
            // Vectors of rows for each k.
            let copied = (height * element) as f64 / machine.vector_bytes as f64;
            let row = match rows.taken_in(height, element, machine) {
                Some(bytes) if rows_direct => {
                    copied.min(bytes / (depth * machine.vector_bytes) as f64)
                }
                _ => copied,
            };
            let panel = depth as f64 * (vectors as f64 + row) * machine.vector_bytes as f64;
            let far = if panel > machine.l1 as f64 {
                vectors
            } else {
                0
            } as f64
                + row;
            // Loads compete with other work even where they are fewer.
            let step = sums.max(loads).max(LATENCY).max(far * SECOND_CACHE) + loads / 8.0;
            let ends = 20.0 + 2.0 * (height * vectors) as f64;
            let pack_rows = match rows_direct {
                true => 0.0,
                false => packing(rows, height, depth, false),
            };
            let pack_cols = match cols.is_direct(width, true, over, element, machine) {
                true => 0.0,
                false => packing(cols, width, depth, true),
            };
            let cycles = tiles as f64 * (depth as f64 * step + ends) + pack_rows + pack_cols;
            show(Tile {
                rows: height,
                vectors,
                cycles,
            });
        }
    }
}

/// Cycles for a vector from the second cache, many on their way at once.
const SECOND_CACHE: f64 = 5.0;
/// Cycles from a multiply-add to the next one that needs its result.
const LATENCY: f64 = 4.0;

/// Modelled cycles to pack an operand into tiles of `width`.
fn packing(operand: &Operand, width: usize, depth: usize, together: bool) -> f64 {
    let elements = (operand.size * depth) as f64;
    let deep = if together { 1 } else { operand.depth_lanes };
    let vector = deep.max(operand.groups(width).unwrap_or(1).min(width));
    // Vectors wait for memory: what is packed is read, written, and read again.
    elements * if vector > 1 { PACKED } else { TURNED }
}

/// Cycles to pack an element in vectors.
const PACKED: f64 = 1.4;
/// Cycles to pack an element alone.
const TURNED: f64 = 1.7;
