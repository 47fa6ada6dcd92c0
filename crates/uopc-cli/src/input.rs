//! Reads `.uir` files, or standard input for `-`, and tells the forms apart.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use uopc::ir::form::{LoopGraph, Plan, Program, ShapeGraph};
use uopc::ir::op::Class;
use uopc::ir::parse::{Parsed, parse, parse_with_lines};
use uopc::ir::{Op, UOp, verify};

use crate::failure::{Failure, Result};

/// A text and the name under which errors speak of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file as it was named, or "standard input".
    pub name: String,
    /// All of it.
    pub text: String,
}

/// A graph in one of the four forms.
#[derive(Clone, Debug)]
pub enum Form {
    /// Tensor expressions.
    Shape(ShapeGraph),
    /// Kernels and buffers.
    Plan(Plan),
    /// Statements over loops.
    Loops(LoopGraph),
    /// Instructions.
    Program(Program),
}

impl Form {
    /// What the form is called.
    pub fn name(&self) -> &'static str {
        match self {
            Form::Shape(_) => "shape graph",
            Form::Plan(_) => "plan",
            Form::Loops(_) => "loop graph",
            Form::Program(_) => "program",
        }
    }

    /// The graph as text.
    ///
    /// # Errors
    /// When it is a plan that breaks the rules of plans.
    pub fn text(&self) -> Result<String> {
        Ok(match self {
            Form::Shape(graph) => graph.to_uir(),
            Form::Plan(plan) => plan.to_uir()?,
            Form::Loops(loops) => loops.to_uir(),
            Form::Program(program) => program.to_uir(),
        })
    }
}

/// Reads the file, or standard input for `-`. A byte order mark, which some editors put in front
/// of a text, is no part of it.
///
/// # Errors
/// A file that can't be read or is no UTF-8, with its name.
pub fn read(path: &Path) -> Result<Source> {
    if path == Path::new("-") {
        let name = "standard input".to_string();
        let mut text = String::new();
        io::stdin()
            .read_to_string(&mut text)
            .map_err(|e| Failure::file(Path::new(&name), "can't read", &e))?;
        return Ok(Source::new(name, text));
    }
    let text = fs::read_to_string(path).map_err(|e| Failure::file(path, "can't read", &e))?;
    Ok(Source::new(path.display().to_string(), text))
}

impl Source {
    fn new(name: String, mut text: String) -> Source {
        if text.starts_with('\u{feff}') {
            text.remove(0);
        }
        Source { name, text }
    }

    /// The graph that the text holds.
    ///
    /// # Errors
    /// Malformed text, with line and column.
    pub fn parse(&self) -> Result<Parsed> {
        Ok(parse(&self.text, &self.name)?)
    }

    /// [`parse`](Self::parse), with the lines of the text as those in which the nodes were written.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_with_lines(&self) -> Result<Parsed> {
        Ok(parse_with_lines(&self.text, &self.name)?)
    }

    /// The form of the graph, verified.
    ///
    /// # Errors
    /// When the graph breaks the rules of its form.
    pub fn form(&self, parsed: &Parsed) -> Result<Form> {
        form(parsed).map_err(|e| Failure::failed(format!("{}: {e}", self.name)))
    }

    /// The node that the text calls `%number`.
    pub fn node(&self, parsed: &Parsed, number: u32) -> Option<UOp> {
        let defines = |line: usize| {
            let text = self.text.lines().nth(line - 1).unwrap_or("").trim_start();
            let name = text.split('=').next().unwrap_or("").trim_end();
            name.strip_prefix('%').and_then(|n| n.parse().ok()) == Some(number)
        };
        let found = parsed.lines.iter().find(|(_, line)| defines(*line));
        found.map(|(node, _)| node.clone())
    }

    /// What the text calls the node, such as `%3`.
    pub fn name_of(&self, parsed: &Parsed, node: &UOp) -> Option<&str> {
        let text = self.text.lines().nth(parsed.line_of(node)? - 1)?;
        Some(text.split('=').next()?.trim())
    }
}

/// The name of the kernel that a text holds, if the text gives none.
pub const KERNEL: &str = "kernel";

/// The form of a graph, verified.
fn form(parsed: &Parsed) -> uopc::Result<Form> {
    let roots = &parsed.roots;
    let is_sink = |u: &UOp| matches!(u.op(), Op::Sink);
    let name = || parsed.name.clone().unwrap_or_else(|| KERNEL.into());
    match &roots[..] {
        [sink] if is_sink(sink) => {
            let linear = |u: &UOp| u.op().info().class == Class::Program;
            // Loop graphs consist of END statements alone.
            let is_program = sink
                .src()
                .iter()
                .any(|u| linear(u) || !matches!(u.op(), Op::End));
            match is_program {
                true => Ok(Form::Program(verify::program(name(), sink.clone())?)),
                false => Ok(Form::Loops(verify::loop_graph(name(), sink.clone())?)),
            }
        }
        [a, b, c] if [a, b, c].into_iter().all(is_sink) => {
            Ok(Form::Plan(Plan::from_parsed(parsed)?))
        }
        _ => Ok(Form::Shape(verify::shape_graph(roots.clone())?)),
    }
}
