//! `uopc gradcheck`: the gradients of a graph put to the test.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use uopc::Tensor;
use uopc::interp::Array;
use uopc::ir::form::ShapeGraph;
use uopc::ir::op::{BufferId, ReduceOp};
use uopc::ir::visit::{substitute, toposort};
use uopc::ir::{DType, Op, Shape, UOp};
use uopc::transform::gradcheck::{
    GradcheckOptions, GradcheckReport, Verdict, check_graph, graph_error_by_step,
};

use super::run::{cases, given};
use super::whole;
use crate::engines::Subject;
use crate::failure::{Failure, Result};
use crate::input::{self, Form};

const HELP: &str = "\
Each slot of floats is moved in random directions. The slope of the roots, weighted at random, is
computed by reverse mode, by forward mode and by difference quotients, and the slope of that slope
as well; all is done in f64, whatever dtypes the graph has. If they do not agree, the exit code is 1;
at a kink, a jump or a NaN they can't, which the table says.

Inputs are those of `uopc run`: --slot, else a line `; run:` of the file, else random numbers.

--sweep shows instead why a difference quotient alone proves little: its error in the graph's own
dtypes for each step. Large steps err by curvature, small ones by rounding.

Examples:
  uopc gradcheck loss.uir
  uopc gradcheck loss.uir --slot 0=0.5,-1,2 --sweep";

/// Arguments of `uopc gradcheck`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// The graph; `-` reads standard input
    #[arg(value_name = "FILE.uir")]
    file: PathBuf,
    /// Elements of a slot; a single number fills it
    #[arg(long = "slot", value_name = "N=VALUES")]
    slots: Vec<String>,
    /// Decides random inputs, weights and directions
    #[arg(long, default_value_t = 0, allow_hyphen_values = true, value_parser = whole::<u64>)]
    seed: u64,
    /// Half the step of quotients, relative to the size of each element
    #[arg(long, value_parser = positive)]
    step: Option<f64>,
    /// Random directions for each slot
    #[arg(long, value_parser = at_least_one)]
    directions: Option<usize>,
    /// What quotients may differ, relative to the sum of the terms' magnitudes
    #[arg(long, value_parser = positive)]
    tolerance: Option<f64>,
    /// Leave out second derivatives
    #[arg(long)]
    first_order: bool,
    /// Print the error of quotients by step
    #[arg(long)]
    sweep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(x) if x > 0.0 && x < f64::INFINITY => Ok(x),
        _ => Err("use a number above 0".to_string()),
    }
}

fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("use a whole number above 0".to_string()),
    }
}

/// Checks the gradients and prints what was compared.
///
/// # Errors
/// When the graph can't be read or differentiated, and when something does not agree.
pub fn gradcheck(args: &Args, out: &mut dyn Write) -> Result<()> {
    let source = input::read(&args.file)?;
    let parsed = source.parse()?;
    let form = source.form(&parsed)?;
    let Form::Shape(graph) = &form else {
        return Err(Failure::failed(format!(
            "{}: a {} has no gradients; give the shape graph it was made from",
            source.name,
            form.name()
        )));
    };
    let wanted = Subject::shape(graph)?.inputs();
    let (mut found, mut text) = (Vec::new(), String::new());
    let (mut differ, mut unclear) = (0, 0);
    for case in cases(&source, given(&args.slots)?)? {
        let problem = Problem::new(graph, case.inputs(&wanted, args.seed)?)?;
        if problem.leaves.is_empty() {
            return Err(Failure::failed(format!(
                "{}: no slot holds floats, and only floats have derivatives",
                source.name
            )));
        }
        if args.sweep {
            let curve = problem.sweep(args.seed)?;
            text += &drawn(&curve);
            found.push(json!({ "sweep": curve.iter().map(point).collect::<Vec<Value>>() }));
        } else {
            let report = problem.check(args)?;
            let count = |v| report.comparisons.iter().filter(|c| c.verdict == v).count();
            differ += count(Verdict::Differ);
            unclear += count(Verdict::Unclear);
            text += &report.to_string();
            found.push(as_json(&report));
        }
    }
    match args.json {
        // One object, or a list if the file has several cases.
        true if found.len() == 1 => writeln!(out, "{}", found.remove(0))?,
        true => writeln!(out, "{}", Value::from(found))?,
        false => write!(out, "{text}")?,
    }
    match (differ, unclear) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::failed(format!(
            "{}: gradients can't be compared here; try other values",
            source.name
        ))),
        _ => Err(Failure::failed(format!(
            "{}: gradients differ",
            source.name
        ))),
    }
}

/// A graph as a function of its slots of floats, at a point.
struct Problem {
    roots: Vec<UOp>,
    /// The slots' numbers, their nodes and values, and of all slots the shapes.
    leaves: Vec<(u32, UOp, Vec<f64>)>,
}

impl Problem {
    /// Integers and truth values become part of the graph.
    fn new(graph: &ShapeGraph, inputs: Vec<(u32, Array, bool)>) -> Result<Problem> {
        let nodes = toposort(graph.roots());
        let (mut leaves, mut fixed) = (Vec::new(), Vec::new());
        for (slot, value, _) in inputs {
            let is_it =
                |u: &&UOp| matches!(u.op(), Op::Buffer { id: BufferId::Slot(n), .. } if *n == slot);
            let node = nodes.iter().find(is_it).expect("a slot that is read");
            if value.dtype().is_float() {
                let values = value.scalars().map(|x| x.as_f64()).collect();
                leaves.push((slot, node.clone(), values));
                continue;
            }
            let shape: &[usize] = value.shape();
            let integers: Vec<i64> = value.scalars().map(|x| x.as_i128() as i64).collect();
            let constant = Tensor::from_slice(&integers, shape)?.cast(value.dtype())?;
            fixed.push((node.clone(), constant.uop()));
        }
        let roots = substitute(graph.roots(), &fixed.into_iter().collect())?;
        Ok(Problem { roots, leaves })
    }

    fn check(&self, args: &Args) -> Result<GradcheckReport> {
        let default = GradcheckOptions::default();
        let options = GradcheckOptions {
            step: args.step.unwrap_or(default.step),
            directions: args.directions.unwrap_or(default.directions),
            tolerance: args.tolerance.unwrap_or(default.tolerance),
            second_order: !args.first_order,
            seed: args.seed,
        };
        let numbered = self.leaves.iter().enumerate();
        let leaves: Vec<(usize, UOp, Vec<f64>)> = numbered
            .map(|(k, (_, leaf, values))| (k, leaf.clone(), values.clone()))
            .collect();
        let shapes: Vec<Shape> = leaves.iter().map(|l| l.1.shape().clone()).collect();
        let mut report = check_graph(&self.roots, &leaves, &shapes, &options)?;
        let name = |(slot, _, _): &(u32, UOp, Vec<f64>)| format!("slot {slot}");
        report.names = self.leaves.iter().map(name).collect();
        Ok(report)
    }

    /// The error of quotients of the sum of all roots, by step.
    fn sweep(&self, seed: u64) -> Result<Vec<(f64, f64)>> {
        let mut total: Option<UOp> = None;
        for root in self.roots.iter().filter(|u| u.dtype().is_float()) {
            let sum = root.reduce(ReduceOp::Add, root.shape().rank())?;
            total = Some(match total {
                Some(before) => before.add(&sum.cast(before.dtype())?)?,
                None => sum,
            });
        }
        let total = total.ok_or_else(|| Failure::failed("no root holds floats"))?;
        let leaves = self
            .leaves
            .iter()
            .map(|(_, leaf, at)| (leaf.clone(), at.clone()));
        let leaves: Vec<(UOp, Vec<f64>)> = leaves.collect();
        // Down to where only rounding is left.
        let finest = match self.leaves.iter().all(|l| l.1.dtype() == DType::F64) {
            true => 26,
            false => 16,
        };
        let steps: Vec<f64> = (0..=finest)
            .map(|k| 10f64.powf(-f64::from(k) / 2.0))
            .collect();
        Ok(graph_error_by_step(&total, &leaves, &steps, seed)?)
    }
}

fn as_json(report: &GradcheckReport) -> Value {
    let comparison = |c: &uopc::transform::gradcheck::Comparison| {
        json!({
            "argument": report.names[c.argument],
            "shape": c.shape.to_vec(),
            "compared": c.compared.to_string(),
            "found": c.found,
            "wanted": c.wanted,
            "error": c.error,
            "allowed": c.allowed,
            "verdict": match c.verdict {
                Verdict::Agree => "agree",
                Verdict::Differ => "differ",
                Verdict::Unclear => "unclear",
            },
        })
    };
    let comparisons: Vec<Value> = report.comparisons.iter().map(comparison).collect();
    json!({ "passed": report.passed(), "comparisons": comparisons })
}

fn point((step, error): &(f64, f64)) -> Value {
    json!({ "step": step, "error": error })
}

/// The curve, with a bar for each step that grows with the logarithm of the error.
fn drawn(curve: &[(f64, f64)]) -> String {
    const PER_DECADE: f64 = 4.0;
    let finite = || curve.iter().filter(|(_, e)| e.is_finite() && *e > 0.0);
    let least = finite().map(|(_, e)| e.log10()).fold(0.0, f64::min);
    let mut text = format!("{:>8}  {:>14}\n", "step", "relative error");
    for (step, error) in curve {
        let length = ((error.log10() - least) * PER_DECADE).round();
        let bar = if length.is_finite() {
            length as usize + 1
        } else {
            0
        };
        text += &format!(
            "{step:>8.1e}  {error:>14.1e}  {}\n",
            "#".repeat(bar.min(60))
        );
    }
    if let Some((step, error)) = finite().min_by(|a, b| a.1.total_cmp(&b.1)) {
        text += &format!("least error {error:.1e}, at step {step:.1e}\n");
    }
    text
}
