//! The golden files, one test for each folder; see `support/golden.rs` for their format.
//!
//! Besides the text, each file of a pass that keeps values is evaluated before and after it in
//! the interpreter, on random and on special numbers.

mod support;

use std::collections::BTreeSet;

use support::golden::{self, Golden, each};
use uopc::Error;
use uopc::ir::form::Plan;
use uopc::ir::op::OPS;
use uopc::ir::parse::{Parsed, parse};
use uopc::ir::print::to_uir_with;
use uopc::ir::{UOp, verify};

/// The text of a graph of the form that the file states as `; form:`, verified.
fn text_of_form(file: &Golden, parsed: &Parsed) -> Result<String, Error> {
    let root = || {
        parsed
            .roots
            .first()
            .cloned()
            .unwrap_or_else(|| UOp::sink(&[]))
    };
    let name = || parsed.name.clone().unwrap_or_else(|| "kernel".into());
    match file.list("form").first().copied() {
        None | Some("shape graph") => Ok(verify::shape_graph(parsed.roots.clone())?.to_uir()),
        Some("plan") => Plan::from_parsed(parsed)?.to_uir(),
        Some("loop graph") => Ok(verify::loop_graph(name(), root())?.to_uir()),
        Some("program") => Ok(verify::program(name(), root())?.to_uir()),
        // Text that belongs to no form, such as reserved ops.
        Some("none") => Ok(to_uir_with(
            &parsed.roots,
            parsed.name.as_deref(),
            &parsed.notes,
        )),
        Some(other) => panic!("{}: there is no form '{other}'", file.id()),
    }
}

#[test]
fn print() {
    each("print", |file| {
        let parsed = file.parse()?;
        let text = text_of_form(file, &parsed).map_err(|e| e.to_string())?;
        let again = parse(&text, "printed").map_err(|e| e.to_string())?;
        if again.roots != parsed.roots {
            return Err("printed and parsed again it is another graph".into());
        }
        if parsed.name.is_some() && again.name != parsed.name {
            return Err("printed and parsed again it has another name".into());
        }
        file.compare(&text)
    });
}

#[test]
fn verify() {
    each("verify", |file| {
        let found = parse(&file.input, &file.id()).and_then(|p| text_of_form(file, &p));
        file.compare_file(&with_error(
            &strip_errors(&file.input),
            found.err().as_ref(),
        ))
    });
}

const MARK: &str = " ; error: ";

fn strip_errors(input: &str) -> String {
    let code = |line: &str| format!("{}\n", line.split(MARK).next().unwrap_or("").trim_end());
    input
        .lines()
        .filter(|line| !line.starts_with(MARK.trim_start()))
        .map(code)
        .collect()
}

/// The input with the error as a comment at its line: where the parser says, or at the line that
/// the message quotes. An error without a line stands at the end.
fn with_error(input: &str, error: Option<&Error>) -> String {
    let Some(error) = error else {
        return input.into();
    };
    let mut message = error.to_string();
    let mut at = None;
    if let Error::Parse {
        message: first,
        line,
        ..
    } = error
    {
        message = first.clone();
        at = Some(*line - 1);
    } else if let Some((rule, quoted)) = message.split_once(": %") {
        let quoted = format!("%{quoted}");
        at = input.lines().position(|line| line.trim_end() == quoted);
        if at.is_some() {
            message = rule.to_string();
        }
    }
    let mut out = String::new();
    for (k, line) in input.lines().enumerate() {
        out.push_str(line);
        if at == Some(k) {
            out.push_str(MARK);
            out.push_str(&message);
        }
        out.push('\n');
    }
    if at.is_none() {
        out.push_str(&format!("{}{message}\n", MARK.trim_start()));
    }
    out
}

/// A new op is not forgotten: each has a line in some golden file. Constants stand inline.
#[test]
fn every_op_occurs() {
    let mut met: BTreeSet<String> = BTreeSet::new();
    for folder in golden::folders() {
        for file in golden::files(&folder) {
            let lines = file
                .input
                .lines()
                .chain(file.expected.iter().flat_map(|e| e.lines()));
            let ops = lines.filter_map(|line| {
                let (_, node) = line.strip_prefix('%')?.split_once("= ")?;
                Some(node.split(' ').next()?.to_string())
            });
            met.extend(ops);
        }
    }
    let missing: Vec<&str> = (OPS.iter().map(|row| row.mnemonic))
        .filter(|op| *op != "const" && !met.contains(*op))
        .collect();
    assert!(missing.is_empty(), "no golden file has {missing:?}");
}

/// Every folder is read by a test here.
#[test]
fn every_folder_has_a_test() {
    let this = include_str!("golden.rs");
    for folder in golden::folders() {
        assert!(this.contains(&format!("each(\"{folder}\"")), "{folder}");
    }
}
