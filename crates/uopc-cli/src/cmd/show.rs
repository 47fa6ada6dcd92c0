//! `uopc show`: a graph at every stage of its way to C.

use std::io::Write;
use std::path::{Path, PathBuf};

use uopc::backend::c::render::render;
use uopc::debug::{Schedule, Settings};
use uopc::ir::form::{LoopGraph, Plan, Program, ShapeGraph};
use uopc::ir::print::to_uir_with_origins;
use uopc::ir::visit::toposort;
use uopc::ir::{Op, UOp, verify};
use uopc::pass::rangeify::rangeify;

use crate::examples::{self, EXAMPLES};
use crate::failure::{Failure, Result};
use crate::input::{self, Form};
use crate::stages;
use crate::table::Table;

/// The name of the stage before all passes.
const GRAPH: &str = "graph";
/// The name of the stage at which kernels are copied, for those graphs that ask for it.
const RECOMPUTE: &str = "recompute";
/// The name of the stage behind all passes.
const CODE: &str = "c";

const HELP: &str = "\
Each stage stands under a line that names it; `(unchanged)` means that a pass found nothing to do.
A file may begin at any stage: a shape graph, a plan, a loop graph or a program. UOPC_SCHEDULE=plain
shows scalar loops. Comments name the lines of a program and the rules of autodiff that nodes come
from, where that is known.

Examples:
  uopc show softmax
  uopc show graph.uir --stage simplify --stage c
  uopc show mlp --stage graph | uopc run -";

/// Arguments of `uopc show`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// A file, `-` for standard input, or the name of an example
    #[arg(value_name = "FILE.uir|EXAMPLE", required_unless_present = "list")]
    graph: Option<PathBuf>,
    /// List the examples
    #[arg(long, conflicts_with = "graph")]
    list: bool,
    /// Show this stage alone: `graph`, a pass, or `c`
    #[arg(long = "stage", value_name = "NAME", value_delimiter = ',')]
    stages: Vec<String>,
}

/// Prints the stages, or the list of examples.
///
/// # Errors
/// When there is no such file or example, or a pass fails.
pub fn show(args: &Args, out: &mut dyn Write) -> Result<()> {
    let no_pass = [GRAPH, RECOMPUTE, CODE];
    for name in args
        .stages
        .iter()
        .filter(|s| !no_pass.contains(&s.as_str()))
    {
        stages::find(name).map_err(|failure| {
            Failure::usage(format!(
                "{failure}; `graph`, `recompute` and `c` are stages, too"
            ))
        })?;
    }
    let Some(graph) = &args.graph else {
        let mut table = Table::new(["example", "what it computes"]);
        for example in EXAMPLES {
            table.row([example.name, example.about]);
        }
        write!(out, "{}", table.to_text())?;
        return Ok(());
    };
    let (form, name) = read(graph)?;
    let mut printer = Printer {
        out,
        wanted: &args.stages,
        settings: stages::checked_settings()?,
        first: true,
    };
    printer.form(&form, name.as_deref())
}

/// The graph, and what its kernel is called if it is one.
fn read(graph: &Path) -> Result<(Form, Option<String>)> {
    let example = graph.to_str().and_then(examples::find);
    // A file of that name is what the user means by it, if there is one.
    if let Some(example) = example.filter(|_| !graph.exists()) {
        let roots = (example.build)()?;
        let name = example.name.replace('-', "_");
        return Ok((Form::Shape(verify::shape_graph(roots)?), Some(name)));
    }
    if graph != Path::new("-") && !graph.exists() && graph.extension().is_none() {
        let names: Vec<&str> = EXAMPLES.iter().map(|e| e.name).collect();
        return Err(Failure::failed(format!(
            "{}: no such file or example; the examples are {}",
            graph.display(),
            names.join(", ")
        )));
    }
    let source = input::read(graph)?;
    let parsed = source.parse()?;
    let form = source.form(&parsed)?;
    Ok((form, parsed.name.as_deref().map(str::to_string)))
}

/// The text of a form. Of a shape graph, comments say where its nodes come from; deeper forms have
/// no nodes that were written anywhere.
fn with_origins(form: &Form) -> Result<String> {
    match form {
        Form::Shape(graph) => Ok(to_uir_with_origins(graph.roots())),
        Form::Plan(_) | Form::Loops(_) | Form::Program(_) => form.text(),
    }
}

/// Prints the stages that are wanted, one after the other.
struct Printer<'a> {
    out: &'a mut dyn Write,
    wanted: &'a [String],
    settings: &'static Settings,
    first: bool,
}

impl Printer<'_> {
    fn form(&mut self, form: &Form, name: Option<&str>) -> Result<()> {
        let title = format!(": the {}", form.name());
        self.stage(GRAPH, &title, &with_origins(form)?)?;
        match form {
            Form::Shape(graph) => {
                let stripped = self.pass("strip_detach", form, None)?;
                let simple = self.pass("simplify", &stripped, None)?;
                let split = self.pass("kernelize", &simple, name)?;
                let ordered = self.pass("order", &split, None)?;
                match self.recomputed(graph, ordered, name)? {
                    Form::Plan(plan) => self.plan(&plan),
                    other => unreachable!("kernelize gives a plan, not a {}", other.name()),
                }
            }
            Form::Plan(plan) => self.plan(plan),
            Form::Loops(loops) => {
                let program = self.loops(loops, "")?;
                self.code(&[(Vec::new(), program)])
            }
            Form::Program(program) => self.code(&[(Vec::new(), program.clone())]),
        }
    }

    /// The plan with what is computed again: between marks of the graph, and for a limit of memory.
    fn recomputed(&mut self, graph: &ShapeGraph, plan: Form, name: Option<&str>) -> Result<Form> {
        let marks = |u: &UOp| matches!(u.op(), Op::Stage(kind) if kind.bounds());
        let marked = toposort(graph.roots()).iter().any(marks);
        if !marked && self.settings.memory_limit.is_none() {
            return Ok(plan);
        }
        let lowered = uopc::compile::lower(graph.roots(), name, self.settings)?;
        let again = Form::Plan(lowered.plan);
        let title = ": values that are computed again instead of kept";
        match again.text()? == plan.text()? {
            true => self.stage(RECOMPUTE, title, "; (unchanged)\n")?,
            false => self.stage(RECOMPUTE, title, &again.text()?)?,
        }
        Ok(again)
    }

    fn plan(&mut self, plan: &Plan) -> Result<()> {
        let n = plan.kernels.len();
        let mut programs = Vec::with_capacity(n);
        for (k, kernel) in plan.kernels.iter().enumerate() {
            let which = match n {
                1 => String::new(),
                _ => format!(" of kernel {}/{n} {}", k + 1, kernel.name),
            };
            let loops = rangeify(kernel)?;
            let title = format!("{which}: {}", stages::find("rangeify")?.description);
            self.stage("rangeify", &title, &loops.to_uir())?;
            programs.push((kernel.origins(), self.loops(&loops, &which)?));
        }
        self.code(&programs)
    }

    fn loops(&mut self, loops: &LoopGraph, which: &str) -> Result<Program> {
        let form = Form::Loops(loops.clone());
        let mut simple = self.pass_on("simplify_loops", &form, None, which)?;
        if self.settings.schedule == Schedule::Default {
            let laid_out = self.pass_on("schedule", &simple, None, which)?;
            simple = self.pass_on("simplify_loops", &laid_out, None, which)?;
        }
        match self.pass_on("linearize", &simple, None, which)? {
            Form::Program(program) => Ok(program),
            other => unreachable!("linearize gives a program, not a {}", other.name()),
        }
    }

    /// The C of each kernel, under comments that say where it comes from. The code itself does not
    /// depend on that, so kernels that are equal stay so.
    fn code(&mut self, programs: &[(Vec<String>, Program)]) -> Result<()> {
        let kernels = programs.iter().map(|(origins, program)| {
            let comments: String = origins.iter().map(|line| format!("// {line}\n")).collect();
            comments + &render(program)
        });
        let kernels: Vec<String> = kernels.collect();
        self.stage(CODE, ": the kernels in C", &kernels.join("\n"))
    }

    fn pass(&mut self, name: &str, form: &Form, kernel: Option<&str>) -> Result<Form> {
        self.pass_on(name, form, kernel, "")
    }

    /// Applies a pass and prints what it gives, `which` saying on what.
    fn pass_on(
        &mut self,
        name: &str,
        form: &Form,
        kernel: Option<&str>,
        which: &str,
    ) -> Result<Form> {
        let pass = stages::find(name)?;
        let after = stages::apply(pass, form, kernel, self.settings)?;
        let text = after.text()?;
        let title = format!("{which}: {}", pass.description);
        match text == form.text()? {
            true => self.stage(name, &title, "; (unchanged)\n")?,
            false => self.stage(name, &title, &with_origins(&after)?)?,
        }
        Ok(after)
    }

    fn stage(&mut self, name: &str, title: &str, text: &str) -> Result<()> {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|w| w == name) {
            return Ok(());
        }
        if !std::mem::take(&mut self.first) {
            writeln!(self.out)?;
        }
        // A comment in the language of what follows, so that a stage alone can be piped on.
        let comment = if name == CODE { "//" } else { ";" };
        writeln!(self.out, "{comment} ==== {name}{title}")?;
        write!(self.out, "{text}")?;
        Ok(())
    }
}
