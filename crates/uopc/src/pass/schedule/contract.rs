//! Contractions: a sum of products in one chain becomes a tiled, packed matrix product.
//!
//! `find` takes a chain and the store of its result apart; `operand` says how each factor lies
//! in memory and packs it, `direct` whether it is read in place; `tile` costs the tiles that
//! registers can hold and `choose` takes one; `build` writes the new statements, with the loops
//! over k from `steps`; `pieces` writes those of a product that the launch itself reads. Large
//! products of bf16 have instructions of their own: `pairs` writes the tiles of those that the
//! processor multiplies tile by tile, `dots` makes one of words of pairs of those that it does not.
//! Each element of the result is still one chain over k in order, so tiles, packing and threads
//! change no bit.

mod build;
mod choose;
mod direct;
mod dots;
mod find;
mod operand;
mod pairs;
mod pieces;
mod steps;
mod tile;

use super::narrow::narrow;
use super::nest::Nest;
use crate::error::Result;
use crate::ir::form::LoopGraph;
use crate::machine::Machine;

pub use choose::Shape;
use find::Contraction;

/// Lays out every contraction that has loops of its own.
///
/// # Errors
/// Never for a verified graph.
pub fn contractions(nest: &mut Nest, machine: &Machine) -> Result<()> {
    if pieces::pieces(nest, machine)? {
        return Ok(());
    }
    let mut at = 0;
    while at < nest.statements.len() {
        let Some(c) = Contraction::at(nest, at)? else {
            at += 1;
            continue;
        };
        let c = dots::in_words(c, nest, machine)?;
        let new = build::build(&c, nest, machine)?;
        at = c.span.start + new.len();
        nest.statements.splice(c.span.clone(), new);
    }
    Ok(())
}

/// The tiles that a launch's largest contraction can have, in the order of the model's estimates;
/// none, if it has no contraction.
///
/// # Errors
/// Never for a verified graph.
pub fn tiles(loops: &LoopGraph, machine: &Machine) -> Result<Vec<Shape>> {
    let mut nest = Nest::of(loops);
    narrow(&mut nest)?;
    let mut largest: Option<(f64, Vec<Shape>)> = None;
    let mut at = 0;
    while at < nest.statements.len() {
        let Some(c) = Contraction::at(&mut nest, at)? else {
            at += 1;
            continue;
        };
        let c = dots::in_words(c, &mut nest, machine)?;
        let (cycles, shapes) = choose::shapes(&c, &mut nest, machine)?;
        if largest.as_ref().is_none_or(|(most, _)| cycles > *most) {
            largest = Some((cycles, shapes));
        }
        at = c.span.end;
    }
    Ok(largest.map_or(Vec::new(), |(_, shapes)| shapes))
}
