//! What a layout leaves open: what the models choose, and what may be tried instead.
//!
//! A [`Choice`] decides nothing but time. [`choices`] lists those worth timing, as the models see
//! it; who times them is not this pass.

use std::fmt;

use rustc_hash::FxHashSet;

use super::contract::{self, Shape};
use super::schedule_as;
use crate::error::Result;
use crate::ir::UOp;
use crate::ir::form::LoopGraph;
use crate::machine::Machine;

/// Changes with what [`choices`] lists or with what a choice means, so that choices remembered
/// elsewhere are not taken for others.
pub const VERSION: &str = "1";

/// The most rows of a tile, and the most vectors in a row, that a choice may ask for.
const MOST: usize = 64;
/// The powers of two that a choice may scale the pieces of threads by.
const SCALES: std::ops::RangeInclusive<i32> = -4..=4;

/// How a launch is laid out, where more than one way is right. By default as the models say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Choice {
    /// The tile of matrix products.
    pub tile: Option<Shape>,
    /// What a thread takes at once, times this power of two.
    pub pieces: i32,
    /// How many vectors of partial results run side by side in a reduction; a power of two.
    pub abreast: Option<usize>,
    /// Which loop of several statements fills the vectors: one that they share, or each its own.
    pub shared: Option<bool>,
}

impl Choice {
    /// Reads what [`Display`](fmt::Display) writes; `None` if it is something else.
    pub fn parse(text: &str) -> Option<Choice> {
        let mut choice = Choice::default();
        if text == "default" {
            return Some(choice);
        }
        for word in text.split(' ') {
            let (name, value) = word.split_once('=')?;
            match name {
                "tile" => choice.tile = Some(Shape::parse(value)?),
                "pieces" => choice.pieces = value.parse().ok().filter(|p| SCALES.contains(p))?,
                "abreast" => {
                    let vectors = value.parse().ok();
                    choice.abreast =
                        Some(vectors.filter(|v: &usize| v.is_power_of_two() && *v <= MOST)?);
                }
                "vectors" => {
                    choice.shared = Some(match value {
                        "shared" => true,
                        "own" => false,
                        _ => return None,
                    });
                }
                _ => return None,
            }
        }
        Some(choice)
    }

    /// Cycles of work, or a count, scaled as the pieces of threads are.
    pub(super) fn scaled(&self, work: f64) -> f64 {
        work * f64::powi(2.0, self.pieces)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.tile.map(|tile| format!("tile={tile}")));
        words.extend((self.pieces != 0).then(|| format!("pieces={}", self.pieces)));
        words.extend(self.abreast.map(|n| format!("abreast={n}")));
        let vectors = |shared| format!("vectors={}", if shared { "shared" } else { "own" });
        words.extend(self.shared.map(vectors));
        match words.is_empty() {
            true => f.write_str("default"),
            false => f.write_str(&words.join(" ")),
        }
    }
}

impl Shape {
    /// Reads `8x2` or `8x2:turned`.
    fn parse(text: &str) -> Option<Shape> {
        let (size, turned) = match text.strip_suffix(":turned") {
            Some(size) => (size, true),
            None => (text, false),
        };
        let (rows, vectors) = size.split_once('x')?;
        let number = |text: &str| text.parse().ok().filter(|n| (1..=MOST).contains(n));
        Some(Shape {
            rows: number(rows)?,
            vectors: number(vectors)?,
            turned,
        })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let turned = if self.turned { ":turned" } else { "" };
        write!(f, "{}x{}{turned}", self.rows, self.vectors)
    }
}

/// Up to `n` choices that lay a launch out differently, with what they make of it: the default,
/// then what the models can't tell from it, then others in the order of their estimates.
///
/// # Errors
/// Never for a verified graph.
pub fn choices(loops: &LoopGraph, machine: &Machine, n: usize) -> Result<Vec<(Choice, LoopGraph)>> {
    let plain = Choice::default();
    let pieces = |pieces| Choice { pieces, ..plain };
    let mut listed = vec![plain, pieces(-1), pieces(1)];
    let tiles = contract::tiles(loops, machine)?;
    if tiles.is_empty() {
        listed.extend([pieces(-2), pieces(2)]);
        listed.extend([8, 2].map(|n| Choice {
            abreast: Some(n),
            ..plain
        }));
        listed.extend([true, false].map(|shared| Choice {
            shared: Some(shared),
            ..plain
        }));
    }
    listed.extend(tiles.into_iter().map(|tile| Choice {
        tile: Some(tile),
        ..plain
    }));
    // Much of what a launch could leave open makes no difference to it.
    let mut met: FxHashSet<UOp> = FxHashSet::default();
    let mut different = Vec::new();
    for choice in listed {
        if different.len() == n {
            break;
        }
        let laid_out = schedule_as(loops, machine, &choice)?;
        if met.insert(laid_out.sink().clone()) {
            different.push((choice, laid_out));
        }
    }
    Ok(different)
}
