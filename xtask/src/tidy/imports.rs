//! Who may import whom within `crates/uopc/src`.
//!
//! The table stands here as data and in ARCHITECTURE.md for people; tidy compares the two.

use std::collections::{BTreeMap, BTreeSet};

use super::lex::{is_word, line_of, words};
use super::{Finding, Source};

/// Where the modules live.
pub const SRC: &str = "crates/uopc/src/";

/// Modules that everyone may import and that import nothing of ours but each other.
const FLOOR: &[&str] = &["error", "debug", "machine"];

/// A module, and what it may import beside itself and the floor.
const TABLE: &[(&str, &[&str])] = &[
    // The floor names places in the user's program, which nodes carry too.
    ("error", &["ir"]),
    ("debug", &[]),
    ("machine", &[]),
    ("ir", &[]),
    ("interp", &["ir"]),
    ("rewrite", &["ir"]),
    ("rules", &["ir", "rewrite"]),
    ("functions", &["ir"]),
    ("autodiff", &["ir", "functions"]),
    ("pass", &["ir", "rewrite", "rules"]),
    ("backend", &["ir"]),
    ("runtime", &["ir", "backend"]),
    ("compile", &["pass", "backend", "runtime", "interp", "ir"]),
    (
        "tensor",
        &["ir", "functions", "autodiff", "compile", "runtime"],
    ),
    ("data", &["tensor", "io", "runtime"]),
    ("io", &["tensor"]),
    ("transform", &["ir", "autodiff", "tensor"]),
    ("nn", &["tensor", "io", "transform"]),
];

/// Files of a module that may import more than the rest of it: `(file, what, why)`.
const PIPELINE: &[&str] = &["mod", "pipeline"];

/// A path that leads to another module of the crate.
#[derive(Debug, PartialEq)]
struct Import {
    line: usize,
    /// The path's parts after the crate's root.
    path: Vec<String>,
}

/// Imports that the table forbids.
pub fn check(file: &Source) -> Vec<Finding> {
    let Some(module) = module_of(&file.path) else {
        return Vec::new();
    };
    let Some(row) = TABLE.iter().find(|row| row.0 == module[0]) else {
        return vec![file.finding(
            1,
            format!("module `{}` is not in the import table", module[0]),
        )];
    };
    let mut found = Vec::new();
    for import in imports(&file.halves.code, &module) {
        let target = import.path[0].as_str();
        if target == row.0 || FLOOR.contains(&target) || row.1.contains(&target) {
            continue;
        }
        let known = TABLE.iter().any(|row| row.0 == target);
        let message = if known {
            format!(
                "`{}` may not import `{target}` (import table in ARCHITECTURE.md)",
                row.0
            )
        } else {
            format!(
                "`crate::{target}` is no module of the import table; name the module it is from"
            )
        };
        found.push(file.finding(import.line, message));
    }
    found
}

/// Passes that import each other: a pass is a file in `pass/` whose doc has an `In:` heading, and
/// only the pipeline puts passes together.
pub fn check_passes(files: &[Source]) -> Vec<Finding> {
    let prefix = format!("{SRC}pass/");
    let in_pass = |f: &&Source| f.path.starts_with(&prefix);
    let passes: BTreeSet<String> = files
        .iter()
        .filter(in_pass)
        .filter(|f| is_pass(f))
        .filter_map(|f| module_of(&f.path)?.get(1).cloned())
        .collect();
    let mut found = Vec::new();
    for file in files.iter().filter(in_pass) {
        let Some(module) = module_of(&file.path) else {
            continue;
        };
        let Some(own) = module
            .get(1)
            .filter(|own| !PIPELINE.contains(&own.as_str()))
        else {
            continue;
        };
        for import in imports(&file.halves.code, &module) {
            if let [pass, other, ..] = import.path.as_slice()
                && pass == "pass"
                && other != own
                && passes.contains(other)
            {
                let message = format!("passes do not import each other: `{own}` imports `{other}`");
                found.push(file.finding(import.line, message));
            }
        }
    }
    found
}

/// Whether a file's module doc has the heading that only passes have.
pub fn is_pass(file: &Source) -> bool {
    file.text
        .lines()
        .take_while(|l| l.starts_with("//!"))
        .any(|l| l.starts_with("//! In:"))
}

/// Rows in which ARCHITECTURE.md and the table above differ.
pub fn check_document(architecture: &str) -> Vec<String> {
    let written = document_rows(architecture);
    if written.is_empty() {
        return vec!["ARCHITECTURE.md has no import table".to_string()];
    }
    let mut found = Vec::new();
    for (module, allowed) in TABLE {
        let expected: BTreeSet<&str> = allowed
            .iter()
            .copied()
            .filter(|m| !FLOOR.contains(m))
            .collect();
        match written.get(*module) {
            None => found.push(format!("ARCHITECTURE.md's import table lacks `{module}`")),
            Some(row) if *row != expected => found.push(format!(
                "ARCHITECTURE.md lets `{module}` import {row:?}, the check {expected:?}"
            )),
            Some(_) => {}
        }
    }
    for module in written
        .keys()
        .filter(|m| !TABLE.iter().any(|row| row.0 == **m))
    {
        found.push(format!(
            "ARCHITECTURE.md's import table has `{module}`, the check does not"
        ));
    }
    found
}

/// The table under the heading "Who may import whom": module to what it may import. The floor is
/// left out on the right, since everyone may import it.
fn document_rows(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut rows = BTreeMap::new();
    let section = text
        .lines()
        .skip_while(|l| !(l.starts_with("## ") && l.contains("Who may import whom")))
        .skip(1)
        .take_while(|l| !l.starts_with("## "));
    for line in section.filter(|l| l.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, modules, imports, ..] = cells.as_slice() else {
            continue;
        };
        let allowed: BTreeSet<&str> = ticked(imports)
            .into_iter()
            .filter(|m| !FLOOR.contains(m))
            .collect();
        for module in ticked(modules) {
            // The programs on top use the public interface and are checked by the compiler.
            if !module.starts_with("uopc-") {
                rows.insert(module, allowed.clone());
            }
        }
    }
    rows
}

/// The words between backticks.
fn ticked(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// `crates/uopc/src/ir/op.rs` is `[ir, op]`, a `mod.rs` is its folder; `None` for `lib.rs` and
/// for files elsewhere.
fn module_of(path: &str) -> Option<Vec<String>> {
    let inside = path.strip_prefix(SRC)?.strip_suffix(".rs")?;
    let mut parts: Vec<String> = inside.split('/').map(str::to_string).collect();
    if parts.len() > 1 && parts.last().is_some_and(|p| p == "mod") {
        parts.pop();
    }
    (parts != ["lib"]).then_some(parts)
}

/// Every path in the code that begins at the crate's root: `crate::a::b`, `crate::{a, b}`, and
/// `super::` as often as it takes to get there.
fn imports(code: &str, module: &[String]) -> Vec<Import> {
    let mut found = Vec::new();
    for at in words(code, "crate") {
        // `pub(crate)` and `$crate` name no module.
        follow(code, at, at + "crate".len(), Vec::new(), &mut found);
    }
    for at in words(code, "super") {
        let before = code[..at].trim_end();
        if before.ends_with("::") {
            continue;
        }
        let mut base = module.to_vec();
        base.pop();
        let mut end = at + "super".len();
        while let Some(rest) = code[end..].strip_prefix("::super") {
            base.pop();
            end = code.len() - rest.len();
        }
        follow(code, at, end, base, &mut found);
    }
    found
}

/// Reads the path after `end`, with its groups, and pushes an import for each end of it.
fn follow(code: &str, at: usize, end: usize, base: Vec<String>, found: &mut Vec<Import>) {
    let line = line_of(code, at);
    let mut stack = vec![base];
    let mut current = stack[0].clone();
    let Some(mut rest) = code[end..].strip_prefix("::") else {
        return;
    };
    loop {
        rest = rest.trim_start();
        let word = rest.bytes().take_while(|&b| is_word(b)).count();
        if word > 0 {
            current.push(rest[..word].to_string());
            rest = rest[word..].trim_start();
            // `a as b` renames; the new name is of no interest.
            if let Some(renamed) = rest.strip_prefix("as ") {
                let name = renamed.trim_start();
                rest = name[name.bytes().take_while(|&b| is_word(b)).count()..].trim_start();
            }
            if let Some(more) = rest.strip_prefix("::") {
                rest = more;
                continue;
            }
        } else if let Some(more) = rest.strip_prefix('{') {
            stack.push(current.clone());
            rest = more;
            continue;
        } else if let Some(more) = rest.strip_prefix('*') {
            current.push("*".to_string());
            rest = more.trim_start();
        }
        // The path ends here. What follows tells whether it was part of a group.
        let group = stack.last().cloned().unwrap_or_default();
        if current.len() > group.len() {
            found.push(Import {
                line,
                path: current.clone(),
            });
        }
        if stack.len() == 1 {
            return;
        }
        loop {
            if let Some(more) = rest.strip_prefix(',') {
                rest = more;
                current = stack.last().cloned().unwrap_or_default();
                break;
            }
            let Some(more) = rest.strip_prefix('}') else {
                return;
            };
            rest = more.trim_start();
            stack.pop();
            if stack.len() == 1 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text))
            .into_iter()
            .map(|f| f.message)
            .collect()
    }

    fn paths(code: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|m| m.to_string()).collect();
        imports(code, &module)
            .into_iter()
            .map(|i| i.path.join("::"))
            .collect()
    }

    #[test]
    fn every_way_to_write_a_path_is_seen() {
        let code =
            "use crate::ir::{op::{Op, ReduceOp}, uop as u, build};\nlet x = crate::pass::f();";
        let expected = [
            "ir::op::Op",
            "ir::op::ReduceOp",
            "ir::uop",
            "ir::build",
            "pass::f",
        ];
        assert_eq!(paths(code, &["rules", "fold"]), expected);
        assert_eq!(
            paths("use crate::{ir, pass::{self}};", &["rules"]),
            ["ir", "pass::self"]
        );
        assert_eq!(
            paths("use super::super::pass::x;", &["rules", "fold"]),
            ["pass::x"]
        );
        assert_eq!(paths("use super::pass::x;", &["rules"]), ["pass::x"]);
        assert_eq!(paths("use super::x;", &["rules", "fold"]), ["rules::x"]);
        assert_eq!(paths("pub(crate) fn f() { $crate }", &["rules"]), [""; 0]);
    }

    #[test]
    fn an_edge_outside_the_table_is_found() {
        let path = "crates/uopc/src/rules/algebra.rs";
        assert_eq!(
            findings(path, "use crate::ir::UOp; use crate::error::Result;"),
            [""; 0]
        );
        let message = "`rules` may not import `pass` (import table in ARCHITECTURE.md)";
        assert_eq!(
            findings(path, "use crate::{ir::UOp, pass::simplify};"),
            [message]
        );
        assert_eq!(
            findings(path, "use super::super::pass::simplify;"),
            [message]
        );
        assert_eq!(
            findings(
                path,
                "// use crate::pass::simplify;\nlet s = \"crate::pass\";"
            ),
            [""; 0]
        );
    }

    #[test]
    fn reexports_and_unknown_modules_are_found() {
        let found = findings("crates/uopc/src/nn/layers.rs", "use crate::Tensor;");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("`crate::Tensor` is no module"),
            "{found:?}"
        );
        let found = findings("crates/uopc/src/extra.rs", "");
        assert_eq!(found, ["module `extra` is not in the import table"]);
    }

    #[test]
    fn the_crate_root_and_other_crates_are_free() {
        assert_eq!(
            findings("crates/uopc/src/lib.rs", "use crate::pass::x;"),
            [""; 0]
        );
        assert_eq!(
            findings("crates/uopc/tests/errors.rs", "use crate::support;"),
            [""; 0]
        );
    }

    #[test]
    fn passes_do_not_import_each_other() {
        let pass =
            |name: &str, text: &str| Source::new(&format!("crates/uopc/src/pass/{name}.rs"), text);
        let files = [
            pass(
                "kernelize",
                "//! Kernelize.\n//! In: a\nuse super::fusion::x;\nuse super::rangeify::y;",
            ),
            pass("rangeify", "//! Rangeify.\n//! In: b\n"),
            pass("fusion", "//! No pass.\n"),
            pass(
                "pipeline",
                "//! All.\nuse super::kernelize::k;\nuse super::rangeify::r;",
            ),
        ];
        let found: Vec<String> = check_passes(&files)
            .into_iter()
            .map(|f| f.message)
            .collect();
        assert_eq!(
            found,
            ["passes do not import each other: `kernelize` imports `rangeify`"]
        );
    }

    #[test]
    fn the_document_must_agree() {
        let mut text =
            String::from("## Who may import whom\n\n| Module | May import | Why |\n|--|--|--|\n");
        for (module, allowed) in TABLE {
            let list: Vec<String> = allowed.iter().map(|m| format!("`{m}`")).collect();
            text.push_str(&format!("| `{module}` | {} | x |\n", list.join(", ")));
        }
        assert_eq!(check_document(&text), [""; 0]);
        let wider = text.replace("| `rules` | `ir`", "| `rules` | `pass`, `ir`");
        assert_eq!(check_document(&wider).len(), 1);
        let shorter = text.replace("| `nn` |", "| nn |");
        assert_eq!(
            check_document(&shorter),
            ["ARCHITECTURE.md's import table lacks `nn`"]
        );
        let longer = format!("{text}| `gpu` | `ir` | x |\n");
        assert_eq!(check_document(&longer).len(), 1);
        assert_eq!(check_document("").len(), 1);
    }
}
