//! Simplify: apply the named rules of a table until none fires (elsewhere: canonicalisation).
//!
//! In:       ShapeGraph, or LoopGraph.
//! Out:      the same form.
//! Keeps:    the value of every root, or what every statement stores, bit for bit.
//! Ensures:  no enabled rule of the set fires any more, unless fuel ran out.
//! Cost:     near linear in nodes.
//! Example:  tests/golden/simplify/

use crate::debug::Settings;
use crate::error::Result;
use crate::ir::form::{LoopGraph, ShapeGraph};
use crate::ir::{UOp, verify};
use crate::rewrite::{Limits, Rewritten, RuleSet, Trace, rewrite};
use crate::rules::{scalar_rules, shape_rules};

/// Simplifies a shape graph. Also says what each of its nodes became, in topological order.
///
/// # Errors
/// When rules go round in circles, or the trace can't be written.
pub fn simplify_shapes(shapes: &ShapeGraph, settings: &Settings) -> Result<(ShapeGraph, Vec<UOp>)> {
    let simple = apply(shapes.roots(), shape_rules(), settings)?;
    Ok((verify::shape_graph(simple.roots)?, simple.map))
}

/// Simplifies the index and value expressions of loops.
///
/// # Errors
/// As [`simplify_shapes`].
pub fn simplify_loops(loops: &LoopGraph, settings: &Settings) -> Result<LoopGraph> {
    let roots = [loops.sink().clone()];
    let mut simple = apply(&roots, scalar_rules(), settings)?;
    verify::loop_graph(loops.name().clone(), simple.roots.remove(0))
}

/// Simplifies scalar expressions on their own.
///
/// # Errors
/// As [`simplify_shapes`].
pub fn simplify_scalars(roots: &[UOp], settings: &Settings) -> Result<Vec<UOp>> {
    Ok(apply(roots, scalar_rules(), settings)?.roots)
}

fn apply(roots: &[UOp], rules: RuleSet, settings: &Settings) -> Result<Rewritten> {
    let rules = rules.without(&settings.disable);
    let limits = Limits {
        fuel: settings.fuel,
        ..Limits::default()
    };
    let Some(folder) = &settings.trace else {
        return rewrite(roots, &rules, &limits, None);
    };
    let mut trace = Trace::create(folder, rules.name)?;
    let simple = rewrite(roots, &rules, &limits, Some(&mut trace))?;
    trace.finish()?;
    Ok(simple)
}
