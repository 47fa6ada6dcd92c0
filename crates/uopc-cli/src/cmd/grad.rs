//! `uopc grad`: the graph of a gradient, as text.

use std::io::Write;
use std::path::PathBuf;

use uopc::autodiff::{explain_gradient, gradient_with};
use uopc::ir::op::BufferId;
use uopc::ir::parse::Parsed;
use uopc::ir::print::to_uir;
use uopc::ir::visit::toposort;
use uopc::ir::{Op, UOp};

use crate::failure::{Failure, Result};
use crate::input::{self, Form, Source};

const HELP: &str = "\
Prints a graph with one root for each target: the derivative of the sum of the root's elements.
Nothing is computed; pipe the text into `uopc run -` for numbers, or into `uopc grad` again for
second derivatives. A target that every path cuts off (by a detach, a cast to integers, a
comparison) gets zeros and a warning, with --strict an error.

Examples:
  uopc grad loss.uir --wrt slot=0,%3 | uopc run -
  uopc grad loss.uir --wrt slot=0 --explain";

/// Arguments of `uopc grad`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// The graph; `-` reads standard input
    #[arg(value_name = "FILE.uir")]
    file: PathBuf,
    /// What to differentiate by: nodes (%2) or slots (slot=0), separated by commas
    #[arg(long, value_name = "TARGETS", required = true, value_delimiter = ',')]
    wrt: Vec<String>,
    /// Explain each gradient instead: the paths by which the target reaches the root, or where they
    /// are cut
    #[arg(long)]
    explain: bool,
    /// Refuse a target whose gradient is cut off
    #[arg(long)]
    strict: bool,
}

/// Prints the gradients.
///
/// # Errors
/// When the graph can't be read or differentiated, or a target is not in it.
pub fn grad(args: &Args, out: &mut dyn Write) -> Result<()> {
    let source = input::read(&args.file)?;
    let parsed = source.parse_with_lines()?;
    let form = source.form(&parsed)?;
    let Form::Shape(graph) = &form else {
        return Err(Failure::failed(format!(
            "{}: a {} can't be differentiated; give the shape graph it was made from",
            source.name,
            form.name()
        )));
    };
    let [root] = graph.roots() else {
        return Err(Failure::failed(format!(
            "{}: {} roots; a gradient is that of one, so name it in the `; roots:` line",
            source.name,
            graph.roots().len()
        )));
    };
    let targets = args.wrt.iter().map(|t| target(t.trim(), &source, &parsed));
    let targets = targets.collect::<Result<Vec<UOp>>>()?;
    if args.explain {
        for (k, target) in targets.iter().enumerate() {
            let gap = if k == 0 { "" } else { "\n" };
            write!(out, "{gap}{}", explain_gradient(root, target)?)?;
        }
        return Ok(());
    }
    let (gradients, diagnostics) = gradient_with(root, &targets, args.strict)?;
    for diagnostic in &diagnostics {
        eprintln!("warning: {diagnostic}");
    }
    write!(out, "{}", to_uir(&gradients))?;
    Ok(())
}

/// The node that `%2` or `slot=0` means.
fn target(text: &str, source: &Source, parsed: &Parsed) -> Result<UOp> {
    if let Some(number) = text.strip_prefix('%').and_then(|n| n.parse().ok()) {
        return source.node(parsed, number).ok_or_else(|| {
            Failure::usage(format!("--wrt {text}: {} has no node {text}", source.name))
        });
    }
    let slot: Option<u32> = text.strip_prefix("slot=").and_then(|n| n.parse().ok());
    let Some(slot) = slot else {
        return Err(Failure::usage(format!(
            "--wrt {text}: write a node (%2) or a slot (slot=0); the slots are {}",
            slots(parsed)
        )));
    };
    let is_it = |u: &UOp| matches!(u.op(), Op::Buffer { id: BufferId::Slot(n), .. } if *n == slot);
    let found = toposort(&parsed.roots).into_iter().find(is_it);
    found.ok_or_else(|| {
        Failure::usage(format!(
            "--wrt {text}: the root of {} reads no slot {slot}; it reads {}",
            source.name,
            slots(parsed)
        ))
    })
}

/// The slots that the roots read, for errors.
fn slots(parsed: &Parsed) -> String {
    let nodes = toposort(&parsed.roots);
    let number = |u: &UOp| match u.op() {
        Op::Buffer {
            id: BufferId::Slot(n),
            ..
        } => Some(*n),
        _ => None,
    };
    let mut numbers: Vec<u32> = nodes.iter().filter_map(number).collect();
    numbers.sort_unstable();
    let names: Vec<String> = numbers.iter().map(u32::to_string).collect();
    if names.is_empty() {
        "none".to_string()
    } else {
        names.join(", ")
    }
}
