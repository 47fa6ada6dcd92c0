//! Schedule: lay the loops of a launch out for the machine (elsewhere: loop transformation,
//! auto-scheduling).
//!
//! In:       LoopGraph.
//! Out:      LoopGraph: loops split, reordered, shared, vectorised, threaded; operands packed.
//! Keeps:    every element stored, bit for bit; the order in which a fold combines its elements.
//! Ensures:  the meaning is that of the serial loops, whatever a range's exec permits.
//! Cost:     linear in the sizes of all statements.
//! Example:  tests/golden/schedule/elementwise.uir

pub mod affine;
mod columns;
pub mod contract;
mod cost;
pub mod depend;
mod elementwise;
mod layout;
pub mod narrow;
pub mod nest;
mod reduce;
pub mod rewrite;

use crate::error::Result;
use crate::ir::form::LoopGraph;
use crate::machine::Machine;

use nest::Nest;

/// Lays out a launch for a machine.
///
/// # Errors
/// Never for a verified graph.
pub fn schedule(loops: &LoopGraph, machine: &Machine) -> Result<LoopGraph> {
    let mut nest = Nest::of(loops);
    // Divisions that a gate decides hide from all others how an index moves.
    narrow::narrow(&mut nest)?;
    contract::contractions(&mut nest, machine)?;
    layout::lay_out(&mut nest, machine)?;
    nest.build()
}
