//! `uopc run`: a graph in all engines, with its values and whether the engines agree.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use uopc::debug::Settings;
use uopc::interp::Array;

use super::whole;
use crate::engines::{self, Slot, Subject};
use crate::failure::{Failure, Result};
use crate::input::{self, Form, Source};
use crate::stages::checked_settings;
use crate::values::{self, Binding};

const HELP: &str = "\
Inputs come from --slot, else from a line `; run: slot0=[1,2,3] slot1=[4]` of the file, else they
are random, with a fixed seed. Whatever follows `==` in that line are the values expected of the
roots. The graph interpreter, the loop interpreter and compiled C must agree to the last bit
(all NaNs count as equal); if they do not, or values are not those expected, the exit code is 1.

Examples:
  uopc run graph.uir --slot 0=1,2,3 --slot 1=0.5
  uopc run graph.uir --slot 0=0 --find-nan
  uopc show --stage graph softmax | uopc run -";

/// Arguments of `uopc run`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// The graph; `-` reads standard input
    #[arg(value_name = "FILE.uir")]
    file: PathBuf,
    /// Elements of a slot; a single number fills it
    #[arg(long = "slot", value_name = "N=VALUES")]
    slots: Vec<String>,
    /// Decides the random inputs
    #[arg(long, default_value_t = 0, allow_hyphen_values = true, value_parser = whole::<u64>)]
    seed: u64,
    /// Name the first op whose result holds a NaN or an infinity, if a root holds one
    #[arg(long)]
    find_nan: bool,
    /// Print all elements, however many there are
    #[arg(long)]
    full: bool,
}

/// Runs the graph and compares the engines.
///
/// # Errors
/// When the graph can't be read or run, and when results differ.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let settings = checked_settings()?;
    let source = input::read(&args.file)?;
    let parsed = match args.find_nan {
        true => source.parse_with_lines()?,
        false => source.parse()?,
    };
    let subject = match source.form(&parsed)? {
        Form::Shape(graph) => Subject::shape(&graph)?,
        Form::Loops(loops) => Subject::loops(loops)?,
        other => {
            return Err(Failure::failed(format!(
                "{}: a {} can't be run alone; give a shape graph or a loop graph",
                source.name,
                other.name()
            )));
        }
    };
    let names: Vec<String> = match &subject {
        Subject::Shape(_) => {
            let name = |u| source.name_of(&parsed, u).unwrap_or("root").to_string();
            parsed.roots.iter().map(name).collect()
        }
        Subject::Loops(_) => subject
            .outputs()
            .iter()
            .map(|o| format!("slot {}", o.0))
            .collect(),
    };
    let mut wrong = false;
    for case in cases(&source, given(&args.slots)?)? {
        wrong |= !run_case(args, settings, &subject, &names, &case, out)?;
    }
    match wrong {
        // What differs has been printed beside the engine.
        true => Err(Failure::failed(format!("{}: results differ", source.name))),
        false => Ok(()),
    }
}

/// What `--slot` says, each slot once.
pub(super) fn given(slots: &[String]) -> Result<Vec<Binding>> {
    let given = slots.iter().map(|text| Binding::parse(text));
    let given = given.collect::<Result<Vec<Binding>>>()?;
    let twice = |(k, b): &(usize, &Binding)| given[..*k].iter().any(|a| a.slot == b.slot);
    if let Some((_, Binding { slot, .. })) = given.iter().enumerate().find(twice) {
        return Err(Failure::usage(format!(
            "--slot {slot}: given twice; which values are meant?"
        )));
    }
    Ok(given)
}

/// Inputs, and the values that the file says they lead to.
#[derive(Default)]
pub(super) struct Case {
    bindings: Vec<Binding>,
    expected: Option<Vec<String>>,
}

impl Case {
    /// A value for each slot that is read, and whether it is random.
    ///
    /// # Errors
    /// When values are given for a slot that is not read, or they do not fit one that is.
    pub(super) fn inputs(&self, wanted: &[Slot], seed: u64) -> Result<Vec<(u32, Array, bool)>> {
        let is_read = |b: &&Binding| wanted.iter().any(|w| w.0 == b.slot);
        if let Some(b) = self.bindings.iter().find(|b| !is_read(b)) {
            let slots: Vec<String> = wanted.iter().map(|w| w.0.to_string()).collect();
            let slots = if slots.is_empty() {
                "none".to_string()
            } else {
                slots.join(", ")
            };
            return Err(Failure::usage(format!(
                "slot {} is not read by this graph; it reads {slots}",
                b.slot
            )));
        }
        let value = |&(slot, dtype, n): &Slot| {
            let binding = self.bindings.iter().find(|b| b.slot == slot);
            Ok(match binding {
                Some(binding) => (slot, binding.array(dtype, n)?, false),
                // A stream of its own for each slot: adding one leaves the others as they are.
                None => {
                    let seed = seed ^ (u64::from(slot) << 32);
                    (slot, values::random(dtype, n, seed)?, true)
                }
            })
        };
        wanted.iter().map(value).collect()
    }
}

/// One case a `; run:` line; what the command line gives takes the place of what the line says.
pub(super) fn cases(source: &Source, given: Vec<Binding>) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for line in source.text.lines() {
        let Some(line) = line.trim().strip_prefix(';').map(str::trim) else {
            continue;
        };
        let Some(line) = line.strip_prefix("run:") else {
            continue;
        };
        let (inputs, expected) = match line.split_once("==") {
            Some((inputs, expected)) => (inputs, Some(expected)),
            None => (line, None),
        };
        let mut bindings = given.clone();
        // `slot0=[1,2] slot1=[3]`: each begins with its word.
        for part in inputs.split("slot").skip(1) {
            let binding = Binding::parse(part.trim())?;
            if bindings.iter().all(|b| b.slot != binding.slot) {
                bindings.push(binding);
            }
        }
        // Other inputs than the line's have other results.
        let expected = expected.filter(|_| given.is_empty()).map(values::tokens);
        cases.push(Case { bindings, expected });
    }
    if cases.is_empty() {
        cases.push(Case {
            bindings: given,
            expected: None,
        });
    }
    Ok(cases)
}

/// Runs one case, prints it, and says whether all agrees.
fn run_case(
    args: &Args,
    settings: &Settings,
    subject: &Subject,
    names: &[String],
    case: &Case,
    out: &mut dyn Write,
) -> Result<bool> {
    let mut inputs: BTreeMap<u32, Array> = BTreeMap::new();
    for (slot, value, is_random) in case.inputs(&subject.inputs(), args.seed)? {
        let origin = if is_random { ", random" } else { "" };
        let what = format!("slot {slot}: {}{}{origin}", value.dtype(), value.shape());
        print_value(&what, &value, args.full, out)?;
        inputs.insert(slot, value);
    }
    let results = engines::run(subject, &inputs, settings)?;
    // The first engine is the oracle of the others.
    let oracle = results.iter().find_map(|r| r.values.as_ref().ok());
    let oracle = oracle.ok_or_else(|| Failure::failed("no engine could run the graph"))?;
    for (name, value) in names.iter().zip(oracle) {
        let what = format!("{name} = {}{}", value.dtype(), value.shape());
        print_value(&what, value, args.full, out)?;
    }
    let mut agreed = true;
    for result in &results {
        let verdict = match &result.values {
            Err(why) => format!("not run: {why}"),
            Ok(values) => match first_difference(names, oracle, values) {
                None => "agrees to the last bit".to_string(),
                Some(difference) => {
                    agreed = false;
                    format!("DIFFERS: {difference}")
                }
            },
        };
        let verdict = match &result.values {
            Ok(values) if std::ptr::eq(values, oracle) => "gives these values".to_string(),
            _ => verdict,
        };
        writeln!(out, "{:<18} {verdict}", result.engine)?;
    }
    if args.find_nan {
        let text = match engines::find_nan(subject, &inputs, settings)? {
            Some(finding) => finding.to_string(),
            None => "no root holds a NaN or an infinity".into(),
        };
        writeln!(out, "{text}")?;
    }
    if let Some(expected) = &case.expected {
        let verdict = match unexpected(names, oracle, expected)? {
            None => "agree to the last bit".to_string(),
            Some(difference) => {
                agreed = false;
                format!("DIFFER: {difference}")
            }
        };
        writeln!(out, "{:<18} {verdict}", "expected values")?;
    }
    Ok(agreed)
}

/// A value under its description: beside it if it is one line, else below.
fn print_value(what: &str, value: &Array, full: bool, out: &mut dyn Write) -> Result<()> {
    let text = values::show(value, full);
    match text.contains('\n') {
        true => writeln!(out, "{what}\n{text}")?,
        false => writeln!(out, "{what} {text}")?,
    }
    Ok(())
}

/// How the values differ from the oracle's, if they do.
fn first_difference(names: &[String], oracle: &[Array], values: &[Array]) -> Option<String> {
    let pairs = names.iter().zip(oracle.iter().zip(values));
    pairs.into_iter().find_map(|(name, (a, b))| {
        let difference = a.difference(b)?;
        Some(format!("{name}, {difference}"))
    })
}

/// How the oracle's values differ from those that the file expects, all roots in a row.
fn unexpected(names: &[String], oracle: &[Array], tokens: &[String]) -> Result<Option<String>> {
    let n: usize = oracle.iter().map(Array::len).sum();
    if tokens.len() != n {
        return Ok(Some(format!(
            "{} values are expected, there are {n}",
            tokens.len()
        )));
    }
    let mut rest = tokens;
    let mut expected = Vec::new();
    for value in oracle {
        let (own, others) = rest.split_at(value.len());
        expected.push(values::array(
            "the `; run:` line",
            own,
            value.dtype(),
            value.shape(),
        )?);
        rest = others;
    }
    Ok(first_difference(names, oracle, &expected))
}
