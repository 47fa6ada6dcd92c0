//! The rewrites of which schedules are made, each with the proof that it changes no value.
//!
//! A rewrite is a function on a [`Nest`] that either changes it to one of the same meaning, or
//! refuses and leaves it as it was. What "the same" means: every element stored has the same
//! bits, and every fold combines its elements in the same order, unless its result does not
//! depend on that.
//!
//! | rewrite | what it does |
//! |---|---|
//! | [`split`] | one loop becomes two |
//! | [`unit()`] | a loop of one iteration goes |
//! | [`merge`] | two loops become one |
//! | [`reorder`] | the loops of a statement in another order |
//! | [`fission`] | statements that share a loop get loops of their own |
//! | [`share`] | neighbours run in one loop |
//! | [`set_exec`] | how a loop runs |
//! | [`expand`] | a scratch memory has a copy for each iteration of loops |
//! | [`set_space`] | where a scratch memory lives |
//! | [`privatise`] | a reduction in any order keeps a partial result for each iteration |
//! | [`partition`] | a reduction in any order has a result for each iteration of its outer loop |
//! | [`own`] | a statement that writes at places read from memory, for one share of the places at a time |
//! | [`restart`] | later statements work on a copy of a scratch memory |
//! | [`inward`] | a loop that statements share becomes the innermost one of each |

mod memory;
mod merge;
mod order;
mod own;
mod split;

pub use memory::{Axis, expand, partition, privatise, restart, set_space};
pub use merge::merge;
pub use order::{fission, inward, is_parallel, reorder, set_exec, share};
pub use own::own;
pub use split::{Split, Tail, split, unit};

use crate::error::Error;

use super::nest::Nest;

/// Why a rewrite was not made.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// It would change a value or break a rule of the loop form, or that can't be excluded.
    Illegal(&'static str),
    /// A node could not be built, which is a mistake in the rewrite.
    Failed(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Failed(error)
    }
}

/// The result of a rewrite.
pub type Outcome<T> = std::result::Result<T, Refusal>;

/// Refuses unless the condition holds.
fn require(condition: bool, why: &'static str) -> Outcome<()> {
    match condition {
        true => Ok(()),
        false => Err(Refusal::Illegal(why)),
    }
}

/// A rewrite that need not be possible: what came of it, or nothing where it was refused.
///
/// # Errors
/// Where a node could not be built.
pub fn tried<T>(outcome: Outcome<T>) -> crate::error::Result<Option<T>> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(Refusal::Illegal(_)) => Ok(None),
        Err(Refusal::Failed(error)) => Err(error),
    }
}

/// Makes several rewrites or none: the nest is as before if one of them refuses.
///
/// # Errors
/// The refusal.
pub fn attempt<T>(nest: &mut Nest, rewrites: impl FnOnce(&mut Nest) -> Outcome<T>) -> Outcome<T> {
    let before = nest.clone();
    let result = rewrites(nest);
    if result.is_err() {
        // Numbers that were given out stay so, which costs nothing.
        nest.statements = before.statements;
    }
    result
}
