//! Tidy: what the project holds itself to and no compiler checks.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{output, root, uopc};
use golden::Named;

mod arms;
mod golden;
mod imports;
mod lex;
mod style;

const GOLDEN: &str = "crates/uopc/tests/golden/";

/// A Rust file, split into code and comments.
#[derive(Debug)]
struct Source {
    /// From the root, with `/` on every system.
    path: String,
    text: String,
    halves: lex::Halves,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        Source {
            path: path.to_string(),
            text: text.to_string(),
            halves: lex::split(text),
        }
    }

    fn finding(&self, line: usize, message: String) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            message,
        }
    }

    fn finding_at(&self, at: usize, message: String) -> Finding {
        self.finding(lex::line_of(&self.text, at), message)
    }
}

/// A place that does not hold to the rules.
#[derive(Debug)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

/// Runs every check and lists what it finds.
pub fn tidy() -> Result<()> {
    let paths = tracked()?;
    let mut sources = Vec::new();
    let mut named = Named::default();
    for path in &paths {
        if path.ends_with(".rs") {
            sources.push(Source::new(path, &read(path)?));
        } else if let Some(inside) = path.strip_prefix(GOLDEN).filter(|p| p.ends_with(".uir")) {
            named.read(inside.split('/').next().unwrap_or(""), &read(path)?);
        }
    }
    let mut found = inspect(&paths, &sources, &read("ARCHITECTURE.md")?);
    let table = |list: &str| uopc(&[list, "--names"]);
    found.extend(named.missing(&table("rules")?, &table("passes")?, &table("ops")?));

    for line in &found {
        println!("{line}");
    }
    if !found.is_empty() {
        bail!("tidy: {} findings", found.len());
    }
    println!("tidy: {} files, nothing found", paths.len());
    Ok(())
}

/// Everything that can be said from the files alone.
fn inspect(paths: &[String], sources: &[Source], architecture: &str) -> Vec<String> {
    let mut found: Vec<String> = paths
        .iter()
        .filter_map(|p| Some(format!("{p}: {}", style::name(p)?)))
        .collect();
    found.extend(imports::check_document(architecture));
    let allowed = style::allowed_unsafe(architecture);
    if allowed.is_empty() {
        found.push("ARCHITECTURE.md has no list of files that may hold `unsafe`".to_string());
    }
    let gone = allowed.iter().filter(|path| !paths.contains(path));
    found.extend(
        gone.map(|path| format!("ARCHITECTURE.md allows `unsafe` in {path}: no such file")),
    );

    let checks = [
        style::length,
        style::module_doc,
        style::pass_headings,
        style::environment,
        style::safety_comments,
        style::todos,
        style::exhaustive,
        style::disabled_tests,
        imports::check,
    ];
    let mut findings: Vec<Finding> = Vec::new();
    for file in sources {
        findings.extend(checks.iter().flat_map(|check| check(file)));
        findings.extend(style::unsafe_files(file, &allowed));
    }
    findings.extend(imports::check_passes(sources));
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    found.extend(
        findings
            .iter()
            .map(|f| format!("{}:{}: {}", f.path, f.line, f.message)),
    );
    found
}

/// The files that git tracks, and the new ones that it does not ignore.
fn tracked() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root());
    git.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]);
    let list = output(&mut git).context("tidy asks git for the files")?;
    let mut paths: Vec<String> = list
        .split('\0')
        .filter(|p| !p.is_empty() && root().join(p).is_file())
        .map(str::to_string)
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(Path::new(path))).with_context(|| format!("can't read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each check is reached from `inspect`: one file that breaks every rule.
    #[test]
    fn all_checks_are_wired_up() {
        let path = "crates/uopc/src/interp/utils.rs".to_string();
        let text =
            "use crate::rules::x;\n// TODO\n#[ignore]\nfn f() { unsafe { std::env::var(\"A\") } }\n\
            fn g() { match op { Op::Add => 1, _ => 2 } }\n"
                .to_string() + &"\n".repeat(600);
        let pass = Source::new(
            "crates/uopc/src/pass/tile.rs",
            "//! T.\n//! In: x\nuse super::pack::p;",
        );
        let pack = Source::new(
            "crates/uopc/src/pass/pack.rs",
            "//! P.\n//! In: x\n//! Out: x\n//! Keeps: x\n//! Ensures: x\n//! Cost: x\n//! Example: x\n",
        );
        let sources = [Source::new(&path, &text), pass, pack];
        let found = inspect(&[path], &sources, "").join("\n");
        for part in [
            "`utils` does not say",
            "no import table",
            "no list of files that may hold `unsafe`",
            "at most 600",
            "does not begin with",
            "has the heading `Out:`",
            "read in debug.rs alone",
            "without a `// SAFETY:`",
            "TODO without a number",
            "an arm for all other operations",
            "`ignore` turns a test into none",
            "`interp` may not import `rules`",
            "outside of the files that ARCHITECTURE.md lists",
            "`tile` imports `pack`",
        ] {
            assert!(found.contains(part), "{part} is missing in\n{found}");
        }
    }

    /// The program's own checkout passes whatever needs no built compiler.
    #[test]
    fn listed_unsafe_files_must_exist() {
        let architecture = "## Files that may hold `unsafe`\n- `gone.rs`: x\n";
        let found = inspect(&[], &[], architecture).join("\n");
        assert!(
            found.contains("allows `unsafe` in gone.rs: no such file"),
            "{found}"
        );
    }
}
