//! Golden files: text in, text out, and the claim that ties them together, in one file.
//!
//! ```text
//! ; test simplify
//! ; Multiplying by one is the identity.
//! ; fires: mul_one
//! <input>
//! ; ----
//! <expected output>
//! ```
//!
//! A test run never writes; `UPDATE_GOLDEN=1` rewrites what differs.

use std::fs;
use std::path::PathBuf;

use similar::TextDiff;
use uopc::ir::UOp;
use uopc::ir::parse::{Parsed, parse};

/// The line between input and expected output.
const SEPARATOR: &str = "; ----";

/// One file.
pub struct Golden {
    /// The pass that the folder stands for.
    pub folder: String,
    /// The file's name without its ending.
    pub name: String,
    path: PathBuf,
    /// Everything above the separator: title, claim, directives, graph.
    pub input: String,
    /// Everything below it.
    pub expected: Option<String>,
}

/// Where the golden files are.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The folders that hold golden files, sorted.
pub fn folders() -> Vec<String> {
    let entries = fs::read_dir(root()).expect("the folder of golden files is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("a readable entry").file_name())
        .map(|name| name.into_string().expect("a name in ASCII"))
        .collect();
    // An empty folder may be left over from another version of the source.
    names.retain(|name| !files(name).is_empty());
    names.sort();
    names
}

/// All files of a folder, sorted by name.
pub fn files(folder: &str) -> Vec<Golden> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable entry").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| Golden::read(folder, path))
        .collect()
}

impl Golden {
    fn read(folder: &str, path: &PathBuf) -> Golden {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut input = String::new();
        let mut expected = None;
        for line in text.lines() {
            if line == SEPARATOR && expected.is_none() {
                expected = Some(String::new());
                continue;
            }
            let part = expected.as_mut().unwrap_or(&mut input);
            part.push_str(line);
            part.push('\n');
        }
        let stem = path.file_stem().and_then(|s| s.to_str());
        Golden {
            folder: folder.into(),
            name: stem.expect("a name in ASCII").into(),
            path: path.clone(),
            input,
            expected,
        }
    }

    /// The file's place below the folder of golden files.
    pub fn id(&self) -> String {
        format!("{}/{}.uir", self.folder, self.name)
    }

    /// The values of all lines `; key: value` of the input, split at commas.
    pub fn list(&self, key: &str) -> Vec<&str> {
        let values = self.input.lines().filter_map(|line| {
            let comment = line.strip_prefix(';')?.trim_start();
            comment.strip_prefix(key)?.strip_prefix(':')
        });
        values
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .collect()
    }

    /// The graph above the separator.
    pub fn parse(&self) -> Result<Parsed, String> {
        parse(&self.input, &self.id()).map_err(|e| e.to_string())
    }

    /// The node of a number such as `%3` in the input.
    pub fn node(&self, parsed: &Parsed, number: &str) -> Result<UOp, String> {
        let begin = format!("{number} =");
        let line = self.input.lines().position(|l| l.starts_with(&begin));
        let found = line.and_then(|line| parsed.lines.iter().find(|(_, k)| *k == line + 1));
        found
            .map(|(node, _)| node.clone())
            .ok_or_else(|| format!("no line defines {number}"))
    }

    /// Compares the output with what the file expects, or writes it into the file if
    /// `UPDATE_GOLDEN` is set.
    pub fn compare(&self, output: &str) -> Result<(), String> {
        let new = format!("{}{SEPARATOR}\n{output}", self.input);
        self.compare_file(&new)
    }

    /// Compares the whole file.
    pub fn compare_file(&self, new: &str) -> Result<(), String> {
        let old = fs::read_to_string(&self.path).map_err(|e| e.to_string())?;
        if old == new {
            return Ok(());
        }
        if std::env::var_os("UPDATE_GOLDEN").is_some_and(|v| v == "1") {
            return fs::write(&self.path, new).map_err(|e| e.to_string());
        }
        let diff = TextDiff::from_lines(old.as_str(), new);
        let diff = diff.unified_diff().header("expected", "found").to_string();
        let bless = "if this is right: UPDATE_GOLDEN=1 cargo test -p uopc --test golden";
        Err(format!("the output differs\n{diff}{bless}"))
    }
}

/// Runs a check over all files of a folder and reports all failures together.
pub fn each(folder: &str, check: impl Fn(&Golden) -> Result<(), String>) {
    let files = files(folder);
    assert!(!files.is_empty(), "{folder} has no golden file");
    let mut failures = Vec::new();
    for file in &files {
        if let Err(message) = title(file).and_then(|()| check(file)) {
            failures.push(format!("{}: {message}", file.id()));
        }
    }
    let (bad, all) = (failures.len(), files.len());
    assert!(
        failures.is_empty(),
        "{bad} of {all} files failed\n\n{}",
        failures.join("\n\n")
    );
}

/// A file says on its first line which pass it tests, and on the second what it claims.
fn title(file: &Golden) -> Result<(), String> {
    let mut lines = file.input.lines();
    let title = format!("; test {}", file.folder);
    if lines.next() != Some(&title) {
        return Err(format!("the first line is not '{title}'"));
    }
    match lines.next() {
        Some(claim) if claim.starts_with("; ") => Ok(()),
        _ => Err("the second line is not a comment with the claim".into()),
    }
}
