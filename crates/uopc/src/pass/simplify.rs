//! Simplify: apply rules until none fires (elsewhere: canonicalisation, peephole optimisation).
//!
//! In:       ShapeGraph; or LoopGraph, whose scalar and index expressions are simplified.
//! Out:      the same form.
//! Keeps:    the value of every root, bit for bit, and the fold of every reduction.
//! Ensures:  no rule of [`crate::rules`] fires on the result, unless fuel ran out.
//! Cost:     linear in nodes.
//! Example:
//! ```text
#![doc = include_str!("../../tests/golden/simplify/example.uir")]
//! ```

use std::sync::LazyLock;

use crate::debug::{Schedule, Settings};
use crate::error::Result;
use crate::ir::form::{LoopGraph, ShapeGraph};
use crate::ir::{UOp, verify};
use crate::rewrite::{Limits, Rewritten, RuleSet, Trace, rewrite};
use crate::rules;

/// Applies the shape rules. The second part of the result says what each node of
/// `Graph::new(graph.roots()).nodes` became.
///
/// # Errors
/// When the trace can't be written, or a rule is wrong.
pub fn simplify_shapes(graph: &ShapeGraph, settings: &Settings) -> Result<(ShapeGraph, Vec<UOp>)> {
    static RULES: LazyLock<RuleSet> = LazyLock::new(rules::shape_rules);
    let done = apply(&RULES, "simplify", graph.roots(), settings)?;
    Ok((verify::shape_graph(done.roots)?, done.map))
}

/// Applies the scalar and index rules to the statements of a launch.
///
/// # Errors
/// As [`simplify_shapes`].
pub fn simplify_loops(loops: &LoopGraph, settings: &Settings) -> Result<LoopGraph> {
    let roots = simplify_scalars(std::slice::from_ref(loops.sink()), settings)?;
    verify::loop_graph(loops.name().clone(), roots[0].clone())
}

/// Applies the scalar and index rules to expressions of shape `()`.
///
/// # Errors
/// As [`simplify_shapes`].
pub fn simplify_scalars(roots: &[UOp], settings: &Settings) -> Result<Vec<UOp>> {
    static RULES: LazyLock<RuleSet> = LazyLock::new(rules::scalar_rules);
    static PLAIN: LazyLock<RuleSet> = LazyLock::new(|| {
        let left_out = rules::FOR_LAYOUT.iter().map(|name| name.to_string());
        rules::scalar_rules().without(&left_out.collect())
    });
    let rules = match settings.schedule {
        Schedule::Default => &RULES,
        Schedule::Plain => &PLAIN,
    };
    Ok(apply(rules, "simplify_loops", roots, settings)?.roots)
}

/// Rewrites within the settings: rules and passes that are left out, fuel, trace.
fn apply(rules: &RuleSet, pass: &str, roots: &[UOp], settings: &Settings) -> Result<Rewritten> {
    let fewer;
    let rules = if settings.disable.is_empty() {
        rules
    } else {
        fewer = rules.without(&settings.disable);
        &fewer
    };
    let limits = Limits {
        fuel: if settings.disable.contains(pass) {
            Some(0)
        } else {
            settings.fuel
        },
        ..Limits::default()
    };
    let mut trace = match &settings.trace {
        Some(folder) => Some(Trace::create(folder, pass)?),
        None => None,
    };
    let done = rewrite(roots, rules, &limits, trace.as_mut())?;
    if let Some(trace) = trace {
        trace.finish()?;
    }
    Ok(done)
}
