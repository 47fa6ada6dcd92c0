//! Contractions: a sum of products in one chain becomes a tiled, packed matrix product.
//!
//! [`find`] takes a chain and the store of its result apart; [`operand`] says how each factor lies
//! in memory and packs it; [`tile`] chooses the tile that is kept in registers; [`build`] writes
//! the new statements; [`pairs`] writes those of large products of bf16. Each element of the result is
//! still one chain over k in order, so tiles, packing and threads change no bit.

mod build;
mod find;
mod operand;
mod pairs;
mod tile;

use super::nest::Nest;
use crate::error::Result;
use crate::machine::Machine;

use find::Contraction;

/// Lays out every contraction that has loops of its own.
///
/// # Errors
/// Never for a verified graph.
pub fn contractions(nest: &mut Nest, machine: &Machine) -> Result<()> {
    let mut at = 0;
    while at < nest.statements.len() {
        let Some(c) = Contraction::at(nest, at)? else {
            at += 1;
            continue;
        };
        let new = build::build(&c, nest, machine)?;
        at = c.span.start + new.len();
        nest.statements.splice(c.span.clone(), new);
    }
    Ok(())
}
