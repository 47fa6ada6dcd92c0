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
pub mod choice;
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
mod scatter;

use crate::error::Result;
use crate::ir::form::LoopGraph;
use crate::machine::Machine;

use choice::Choice;
use nest::Nest;

/// Lays out a launch for a machine.
///
/// # Errors
/// Never for a verified graph.
pub fn schedule(loops: &LoopGraph, machine: &Machine) -> Result<LoopGraph> {
    schedule_as(loops, machine, &Choice::default())
}

/// Lays out a launch for a machine, with a choice where several layouts are right. What a choice
/// asks for and a launch does not have makes no difference.
///
/// # Errors
/// Never for a verified graph.
pub fn schedule_as(loops: &LoopGraph, machine: &Machine, choice: &Choice) -> Result<LoopGraph> {
    let mut nest = Nest::of(loops);
    nest.choice = *choice;
    // Divisions that a gate decides hide from all others how an index moves.
    narrow::narrow(&mut nest)?;
    contract::contractions(&mut nest, machine)?;
    layout::lay_out(&mut nest, machine)?;
    nest.build()
}
