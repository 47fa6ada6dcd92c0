//! `uopc ops`, `passes`, `rules` and `env`: what there is, from the tables that the compiler uses.

use std::fmt::Write as _;
use std::io::Write;

use clap::Args;
use uopc::debug::VARIABLES;
use uopc::ir::op::{Class, OPS, OpInfo};
use uopc::pass::PASSES;
use uopc::rewrite::Rule;
use uopc::rules;

use crate::failure::Result;
use crate::table::Table;

/// How a list is printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct Format {
    /// Print the names alone, one a line
    #[arg(long, conflicts_with = "markdown")]
    names: bool,
    /// Print a page of Markdown
    #[arg(long)]
    markdown: bool,
}

impl Format {
    /// Prints the names, or one of the two pages.
    fn print<'a>(
        self,
        out: &mut dyn Write,
        names: impl Iterator<Item = &'a str>,
        text: impl FnOnce() -> String,
        markdown: impl FnOnce() -> String,
    ) -> Result<()> {
        match self {
            Format { names: true, .. } => {
                for name in names {
                    writeln!(out, "{name}")?;
                }
            }
            Format { markdown: true, .. } => write!(out, "{}", markdown())?,
            _ => write!(out, "{}", text())?,
        }
        Ok(())
    }
}

/// The classes of ops in the order of the table, each with a heading and what its ops share.
const CLASSES: &[(Class, &str, &str)] = &[
    (Class::Leaf, "Leaves", "They have no sources."),
    (
        Class::Arithmetic,
        "Arithmetic",
        "Element i of the result depends on element i of each source; all have one shape.",
    ),
    (
        Class::Movement,
        "Movement",
        "Each element of the result is a copy of one element of the source.",
    ),
    (
        Class::Structure,
        "Structure",
        "Everything else on whole tensors.",
    ),
    (
        Class::Marker,
        "Markers",
        "The identity, with a request to a later stage.",
    ),
    (
        Class::Loop,
        "Loops and effects",
        "What kernels and plans consist of.",
    ),
    (
        Class::Program,
        "Programs",
        "What a kernel consists of once its statements stand in line.",
    ),
];

/// `uopc ops`.
pub fn ops(format: Format, out: &mut dyn Write) -> Result<()> {
    let of_class = |class: Class| OPS.iter().filter(move |op| op.class == class);
    let table = |class: Class| {
        let mut table = Table::new(["op", "sources", "meaning"]);
        for op in of_class(class) {
            table.row([op.mnemonic, &sources(op), op.meaning]);
        }
        table
    };
    let text = || {
        let section = |(class, title, shared): &(Class, &str, &str)| {
            format!("{title}: {}\n\n{}", lower(shared), indent(&table(*class)))
        };
        CLASSES.iter().map(section).collect::<Vec<_>>().join("\n")
    };
    let markdown = || {
        let mut page = "# Operations\n\nEvery operation of the language, under the word it has in \
             `.uir` text (`uir.md`). A gradient is a graph of the same operations.\n\
             Written by `cargo xtask docs` from the op table; `uopc ops` prints it.\n"
            .to_string();
        for (class, title, shared) in CLASSES {
            let table = table(*class).to_markdown(&[0]);
            write!(page, "\n## {title}\n\n{shared}\n\n{table}").expect("a String takes everything");
        }
        page
    };
    format.print(out, OPS.iter().map(|op| op.mnemonic), text, markdown)
}

fn sources(op: &OpInfo) -> String {
    match op.arity {
        (lo, hi) if lo == hi => format!("{lo}"),
        (lo, usize::MAX) => format!("{lo} or more"),
        (lo, hi) => format!("{lo} to {hi}"),
    }
}

/// A sentence as the rest of a line that a word and a colon begin.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    let first = letters.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

fn indent(table: &Table) -> String {
    let text = table.to_text();
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// `uopc passes`.
pub fn passes(format: Format, out: &mut dyn Write) -> Result<()> {
    let mut table = Table::new(["pass", "from", "to", "what it does"]);
    for pass in PASSES {
        table.row([pass.name, pass.takes, pass.gives, pass.description]);
    }
    let markdown = || {
        format!(
            "# Passes\n\nIn the order of the pipeline; `uopc show` prints what each does to a \
             graph.\n\n{}",
            table.to_markdown(&[0])
        )
    };
    let names = PASSES.iter().map(|pass| pass.name);
    format.print(out, names, || table.to_text(), markdown)
}

/// `uopc rules`.
pub fn rules(format: Format, out: &mut dyn Write) -> Result<()> {
    let all = rules::all();
    let mut table = Table::new(["rule", "dtypes", "graphs", "what it does"]);
    for rule in &all {
        let dtypes = rule.validity.name();
        table.row([rule.name, dtypes, graphs(rule.name), rule.algebra]);
    }
    let markdown = || {
        format!(
            "# Rules\n\nEach keeps every bit of the value, for the dtypes it names; \
             `UOPC_DISABLE` leaves rules out.\n\n{}",
            table.to_markdown(&[0, 3])
        )
    };
    let names = all.iter().map(|rule| rule.name);
    format.print(out, names, || table.to_text(), markdown)
}

/// Which simplification uses a rule.
fn graphs(rule: &str) -> &'static str {
    let holds = |tables: &[&[Rule]]| tables.iter().copied().flatten().any(|r| r.name == rule);
    match (holds(rules::SHAPE_TABLES), holds(rules::SCALAR_TABLES)) {
        (true, true) => "both",
        (true, false) => "shape",
        _ => "loop",
    }
}

/// `uopc env`.
pub fn env(format: Format, out: &mut dyn Write) -> Result<()> {
    let text = || {
        let entry = |v: &uopc::debug::Variable| {
            let (name, values, meaning) = (v.name, v.values, v.meaning);
            let default = v.default;
            format!("{name}={values}\n    {meaning}\n    default: {default}\n")
        };
        VARIABLES.iter().map(entry).collect::<Vec<_>>().join("\n")
    };
    let markdown = || {
        let mut table = Table::new(["variable", "values", "default", "meaning"]);
        for v in VARIABLES {
            table.row([v.name, v.values, v.default, v.meaning]);
        }
        format!(
            "# Environment variables\n\nAn empty variable counts as not set; a value that is not \
             valid is an error that lists those that are.\n\
             Written by `cargo xtask docs` from the table in `debug.rs`; `uopc env` prints it.\n\n{}",
            table.to_markdown(&[0])
        )
    };
    format.print(out, VARIABLES.iter().map(|v| v.name), text, markdown)
}
