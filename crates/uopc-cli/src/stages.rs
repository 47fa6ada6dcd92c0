//! The passes, one at a time: what `uopc opt` applies and `uopc show` prints.

use uopc::debug::Settings;
use uopc::ir::UOp;
use uopc::ir::form::{Kernel, Plan, ShapeGraph, params};
use uopc::pass::kernelize::kernelize;
use uopc::pass::linearize::linearize;
use uopc::pass::order::order;
use uopc::pass::rangeify::rangeify;
use uopc::pass::schedule::schedule;
use uopc::pass::simplify::{simplify_loops, simplify_shapes};
use uopc::pass::strip_detach::strip_detach;
use uopc::pass::{PASSES, PassInfo};

use crate::failure::{Failure, Result};
use crate::input::{Form, KERNEL};

/// The settings of the environment, with the names in them checked.
///
/// # Errors
/// A variable with a value or a name that does not exist.
pub fn checked_settings() -> Result<&'static Settings> {
    let settings = uopc::debug::settings()?;
    uopc::pass::check_names(settings)?;
    Ok(settings)
}

/// The pass of that name.
///
/// # Errors
/// A usage failure that lists the passes.
pub fn find(name: &str) -> Result<&'static PassInfo> {
    PASSES.iter().find(|p| p.name == name).ok_or_else(|| {
        let names: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
        let names = names.join(", ");
        Failure::usage(format!("there is no pass `{name}`; the passes are {names}"))
    })
}

/// Applies a pass. `kernel` says which of several kernels a pass on kernels takes, and names one
/// that stands alone.
///
/// # Errors
/// When the pass takes another form, or fails.
pub fn apply(
    pass: &PassInfo,
    form: &Form,
    kernel: Option<&str>,
    settings: &Settings,
) -> Result<Form> {
    Ok(match (pass.name, form) {
        ("strip_detach", Form::Shape(graph)) => Form::Shape(strip_detach(graph)?.0),
        ("simplify", Form::Shape(graph)) => Form::Shape(simplify_shapes(graph, settings)?.0),
        ("kernelize", Form::Shape(graph)) => Form::Plan(kernelize(graph, kernel)?.plan),
        ("order", Form::Plan(plan)) => Form::Plan(order(plan)),
        ("order", Form::Shape(graph)) => Form::Plan(order(&kernelize(graph, kernel)?.plan)),
        ("rangeify", Form::Plan(plan)) => Form::Loops(rangeify(choose(plan, kernel)?)?),
        ("rangeify", Form::Shape(graph)) => Form::Loops(rangeify(&single(graph, kernel)?)?),
        ("simplify_loops", Form::Loops(loops)) => Form::Loops(simplify_loops(loops, settings)?),
        ("schedule", Form::Loops(loops)) => Form::Loops(schedule(loops, &settings.machine)?),
        ("linearize", Form::Loops(loops)) => Form::Program(linearize(loops)?),
        _ => {
            return Err(Failure::failed(format!(
                "{} takes a {}, and this is a {}",
                pass.name,
                pass.takes,
                form.name()
            )));
        }
    })
}

/// The kernel of that name, or the only one.
fn choose<'p>(plan: &'p Plan, name: Option<&str>) -> Result<&'p Kernel> {
    let names: Vec<&str> = plan.kernels.iter().map(|k| &*k.name).collect();
    match (name, &plan.kernels[..]) {
        (Some(name), kernels) => {
            // Equal kernels have equal names; a number, from 1, tells them apart.
            let by_number = name
                .parse()
                .ok()
                .and_then(|n: usize| kernels.get(n.checked_sub(1)?));
            let by_name = || kernels.iter().find(|k| *k.name == *name);
            by_number.or_else(by_name).ok_or_else(|| {
                let names = names.join(", ");
                Failure::usage(format!("there is no kernel `{name}`; the plan has {names}"))
            })
        }
        (None, [one]) => Ok(one),
        (None, []) => Err(Failure::failed("the plan has no kernel")),
        (None, _) => Err(Failure::usage(format!(
            "the plan has {} kernels; choose one with --kernel: {}",
            names.len(),
            names.join(", ")
        ))),
    }
}

/// A shape graph that is a single kernel: the kernel's body if it reads parameters, else what
/// kernelize makes of it.
fn single(graph: &ShapeGraph, name: Option<&str>) -> Result<Kernel> {
    let ins: Vec<u32> = params(&UOp::sink(graph.roots()))
        .iter()
        .map(|p| p.0)
        .collect();
    if ins.is_empty() {
        let plan = kernelize(graph, name)?.plan;
        return choose(&plan, name).cloned();
    }
    // The outputs are the slots behind those that are read.
    let first = ins.iter().max().map_or(0, |slot| slot + 1);
    let outs = (first..).take(graph.roots().len());
    Ok(Kernel {
        name: name.unwrap_or(KERNEL).into(),
        body: graph.clone(),
        outs: outs.map(|slot| (slot, slot)).collect(),
        ins: ins.into_iter().map(|slot| (slot, slot)).collect(),
    })
}
