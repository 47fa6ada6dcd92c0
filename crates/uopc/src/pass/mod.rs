//! Passes from one form to the next; [`PASSES`] lists them, [`pipeline`] orders them.

pub mod explain;
pub mod fusion;
pub mod homes;
pub mod kernelize;
pub mod linearize;
pub mod memory;
pub mod order;
pub mod pipeline;
pub mod rangeify;
pub mod recompute;
pub mod schedule;
pub mod simplify;
pub mod strip_detach;
pub mod times;

use std::time::Instant;

use crate::debug::{Dump, Settings};
use crate::error::{Error, Result};
use crate::ir::form::{Kernel, LoopGraph, Plan, Program, ShapeGraph};
use crate::ir::{UOp, print, verify};
use crate::rules;

use kernelize::Kernelized;
use times::Times;

/// One kernel, lowered.
#[derive(Clone)]
pub struct Launch {
    /// Its loops before they are laid out, in which work is counted.
    pub plain: LoopGraph,
    /// For the interpreter.
    pub loops: LoopGraph,
    /// For code generators.
    pub program: Program,
}

/// One row of the pass table.
pub struct PassInfo {
    /// A verb.
    pub name: &'static str,
    /// What it does, in a line.
    pub description: &'static str,
    /// The form it takes.
    pub takes: &'static str,
    /// The form it gives.
    pub gives: &'static str,
}

/// Every pass, in the order of the pipeline.
pub const PASSES: &[PassInfo] = &[
    PassInfo {
        name: "strip_detach",
        description: "drop the markers that kernels do not need",
        takes: "shape graph",
        gives: "shape graph",
    },
    PassInfo {
        name: "simplify",
        description: "apply the shape rules until none fires",
        takes: "shape graph",
        gives: "shape graph",
    },
    PassInfo {
        name: "kernelize",
        description: "split into kernels: decide what becomes a buffer",
        takes: "shape graph",
        gives: "plan",
    },
    PassInfo {
        name: "order",
        description: "put kernels in an order that takes less memory",
        takes: "plan",
        gives: "plan",
    },
    PassInfo {
        name: "rangeify",
        description: "lower a kernel to loops: movement becomes index arithmetic",
        takes: "kernel",
        gives: "loop graph",
    },
    PassInfo {
        name: "simplify_loops",
        description: "apply the scalar and index rules until none fires",
        takes: "loop graph",
        gives: "loop graph",
    },
    PassInfo {
        name: "schedule",
        description: "lay loops out for the machine: split, tile, vectorise, pack, share among threads",
        takes: "loop graph",
        gives: "loop graph",
    },
    PassInfo {
        name: "linearize",
        description: "put statements in line and name their values",
        takes: "loop graph",
        gives: "program",
    },
];

/// Checks that the names in the settings are those of rules and passes.
///
/// # Errors
/// [`Error::Setting`], listing the names that exist.
pub fn check_names(settings: &Settings) -> Result<()> {
    let rules: Vec<&str> = rules::all().iter().map(|r| r.name).collect();
    let passes: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
    settings.check_names(&rules, &passes)?;
    // Only a pass that keeps the form can be left out: the others lead from one form to the next.
    let needed = PASSES
        .iter()
        .find(|p| p.takes != p.gives && settings.disable.contains(p.name));
    let Some(pass) = needed else { return Ok(()) };
    let optional = PASSES.iter().filter(|p| p.takes == p.gives).map(|p| p.name);
    let (name, gives) = (pass.name, pass.gives);
    Err(Error::Setting(format!(
        "UOPC_DISABLE: {name} can't be left out, as it makes the {gives}; the passes that can are \
         {}",
        optional.collect::<Vec<_>>().join(", ")
    )))
}

/// Something that a pass takes or gives and that prints as `.uir`.
pub trait Form {
    /// The text.
    fn text(&self) -> String;
    /// How many nodes there are, for timings.
    fn nodes(&self) -> usize;
    /// The rules of the form that its constructor has not checked already.
    fn verify(&self) -> Result<()> {
        Ok(())
    }
}

fn count(roots: &[UOp]) -> usize {
    crate::ir::visit::toposort(roots).len()
}

macro_rules! form {
    ($($type:ty: $roots:expr;)*) => { $(
        impl Form for $type {
            fn text(&self) -> String {
                let roots: fn(&$type) -> &[UOp] = $roots;
                print::to_uir(roots(self))
            }
            fn nodes(&self) -> usize {
                let roots: fn(&$type) -> &[UOp] = $roots;
                count(roots(self))
            }
        }
    )* };
}

form! {
    ShapeGraph: |g| g.roots();
    Kernel: |k| k.body.roots();
    LoopGraph: |g| std::slice::from_ref(g.sink());
    Program: |p| std::slice::from_ref(p.sink());
}

impl Form for Plan {
    fn text(&self) -> String {
        self.to_uir().unwrap_or_else(|e| format!("; {e}"))
    }
    fn nodes(&self) -> usize {
        self.kernels.iter().map(Form::nodes).sum()
    }
    fn verify(&self) -> Result<()> {
        verify::plan(self)
    }
}

impl Form for Kernelized {
    fn text(&self) -> String {
        self.plan.text()
    }
    fn nodes(&self) -> usize {
        self.plan.nodes()
    }
    fn verify(&self) -> Result<()> {
        self.plan.verify()
    }
}

impl<T: Form, M> Form for (T, M) {
    fn text(&self) -> String {
        self.0.text()
    }
    fn nodes(&self) -> usize {
        self.0.nodes()
    }
}

/// Runs passes one after another, as the settings say.
struct Passes<'s> {
    settings: &'s Settings,
    times: Times,
}

impl<'s> Passes<'s> {
    fn new(settings: &'s Settings) -> Passes<'s> {
        Passes {
            settings,
            times: Times::default(),
        }
    }

    /// Runs one pass: checks, times and prints its result if the settings ask for that. Graphs are
    /// verified where they are made, by the constructors of `ir::verify`, whatever the settings;
    /// what is left is checked here.
    ///
    /// # Panics
    /// When the result breaks a rule of its form, which is a mistake in the pass.
    fn run<I: Form, O: Form>(
        &mut self,
        name: &'static str,
        input: &I,
        pass: impl FnOnce() -> Result<O>,
    ) -> Result<O> {
        let started = Instant::now();
        let output = pass()?;
        if self.settings.time {
            let time = started.elapsed();
            self.times.add(name, time, input.nodes(), output.nodes());
        }
        if self.settings.verify
            && let Err(broken) = output.verify()
        {
            let (before, after) = (input.text(), output.text());
            panic!("{name}: {broken}\n; before {name}\n{before}\n; after {name}\n{after}");
        }
        let dump = match &self.settings.dump {
            Dump::Nothing => false,
            Dump::After(wanted) => wanted == name,
            Dump::All => true,
        };
        if dump {
            log::info!(target: "uopc::dump", "; after {name}\n{}", output.text());
        }
        Ok(output)
    }

    /// Reports how long each pass took, if the settings ask for that.
    fn end(self) {
        for line in self.times.lines() {
            log::info!(target: "uopc::time", "{line}");
        }
    }
}
