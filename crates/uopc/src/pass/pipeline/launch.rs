//! The pipeline's part for each kernel: from its graph to plain loops, to a layout, to instructions.

use crate::debug::{Schedule, Settings};
use crate::error::Result;
use crate::ir::form::{Kernel, LoopGraph};

use super::super::linearize::linearize;
use super::super::rangeify::rangeify;
use super::super::schedule::schedule;
use super::super::simplify::simplify_loops;
use super::super::{Launch, Passes};

/// Lowers one kernel.
///
/// # Errors
/// When it holds an op that can't be lowered yet.
pub fn launch(kernel: &Kernel, passes: &mut Passes, settings: &Settings) -> Result<Launch> {
    // Loops make movement into index arithmetic, which shape rules could not see.
    let loops = passes.run("rangeify", kernel, || rangeify(kernel))?;

    // Index arithmetic collapses, and products that no fold reads may be computed ahead.
    let loops = passes.run("simplify_loops", &loops, || {
        simplify_loops(&loops, settings)
    })?;

    laid_out(loops, passes, settings, |loops| {
        schedule(loops, &settings.machine)
    })
}

/// The launch of plain loops, see [`Launch::plain`], that were laid out by
/// [`schedule_as`](crate::pass::schedule::schedule_as).
///
/// # Errors
/// When a rule fails, which is a mistake in it.
pub fn of_layout(plain: &LoopGraph, layout: LoopGraph, settings: &Settings) -> Result<Launch> {
    let mut passes = Passes::new(settings);
    laid_out(plain.clone(), &mut passes, settings, |_| Ok(layout))
}

/// The passes from plain loops on.
fn laid_out(
    plain: LoopGraph,
    passes: &mut Passes,
    settings: &Settings,
    schedule: impl FnOnce(&LoopGraph) -> Result<LoopGraph>,
) -> Result<Launch> {
    // Layout needs plain index arithmetic; what it splits and packs is simplified again.
    let loops = match settings.schedule {
        Schedule::Plain => plain.clone(),
        Schedule::Default => {
            let left_out = settings.disable.contains("schedule");
            let laid_out = passes.run("schedule", &plain, || match left_out {
                true => Ok(plain.clone()),
                false => schedule(&plain),
            })?;
            passes.run("simplify_loops", &laid_out, || {
                simplify_loops(&laid_out, settings)
            })?
        }
    };

    // Names and order come last, when nothing is rewritten any more.
    let program = passes.run("linearize", &loops, || linearize(&loops))?;
    Ok(Launch {
        plain,
        loops,
        program,
    })
}
