//! Checks that look at one file alone.

use super::lex::{line_of, words};
use super::{Finding, Source, arms, imports};

const PIPELINE: &str = "crates/uopc/src/pass/pipeline.rs";

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "helpers", "common", "misc", "base"];

/// Files in which every operation must be named; a folder stands for all that it holds.
const EXHAUSTIVE: &[&str] = &[
    "ir/verify",
    "ir/shape",
    "ir/infer",
    "autodiff/vjp",
    "autodiff/jvp",
    "autodiff/vmap",
    "interp/",
    "backend/c/",
];

/// Headings of a pass's module doc, in their order.
const HEADINGS: &[&str] = &["In:", "Out:", "Keeps:", "Ensures:", "Cost:", "Example:"];

/// No file is longer than anyone wants to read at a time; the order of the passes fits on two pages.
pub fn length(file: &Source) -> Vec<Finding> {
    let n = file.text.lines().count();
    let most = if file.path == PIPELINE { 120 } else { 600 };
    (n > most)
        .then(|| file.finding(n, format!("{n} lines, at most {most}")))
        .into_iter()
        .collect()
}

/// Every file begins by saying what it is.
pub fn module_doc(file: &Source) -> Vec<Finding> {
    let first = file
        .text
        .lines()
        .find(|l| !l.trim().is_empty())
        .unwrap_or("");
    let said = first
        .strip_prefix("//!")
        .is_some_and(|doc| !doc.trim().is_empty());
    let message = || file.finding(1, "the file does not begin with a `//!` line".to_string());
    (!said).then(message).into_iter().collect()
}

/// A pass's doc has the six headings, each with something behind it.
pub fn pass_headings(file: &Source) -> Vec<Finding> {
    if !file.path.starts_with("crates/uopc/src/pass/") || !imports::is_pass(file) {
        return Vec::new();
    }
    let doc: Vec<&str> = file
        .text
        .lines()
        .map_while(|l| l.strip_prefix("//!"))
        .map(str::trim_start)
        .collect();
    let mut from = 0;
    let mut found = Vec::new();
    for heading in HEADINGS {
        match doc[from..].iter().position(|l| l.starts_with(heading)) {
            Some(at) => from += at + 1,
            None => {
                found.push(file.finding(1, format!("a pass's doc has the heading `{heading}`")))
            }
        }
    }
    found
}

/// Environment variables are read in `debug.rs` alone, where they are listed.
pub fn environment(file: &Source) -> Vec<Finding> {
    let inside = file.path.strip_prefix(imports::SRC);
    if inside.is_none_or(|path| path == "debug.rs") {
        return Vec::new();
    }
    let code = &file.halves.code;
    let used = words(code, "env").filter(|&at| code[at + 3..].starts_with("::"));
    used.map(|at| file.finding_at(at, "the environment is read in debug.rs alone".to_string()))
        .collect()
}

/// `unsafe` stands only in the files that ARCHITECTURE.md lists, and in tests.
pub fn unsafe_files(file: &Source, allowed: &[String]) -> Vec<Finding> {
    if allowed.contains(&file.path) || file.path.contains("/tests/") {
        return Vec::new();
    }
    let message = "`unsafe` outside of the files that ARCHITECTURE.md lists";
    words(&file.halves.code, "unsafe")
        .map(|at| file.finding_at(at, message.to_string()))
        .collect()
}

/// The list under ARCHITECTURE.md's heading about `unsafe`.
pub fn allowed_unsafe(architecture: &str) -> Vec<String> {
    architecture
        .lines()
        .skip_while(|l| !(l.starts_with("## ") && l.contains("`unsafe`")))
        .skip(1)
        .take_while(|l| !l.starts_with("## "))
        .filter_map(|l| l.strip_prefix("- `")?.split('`').next())
        .map(str::to_string)
        .collect()
}

/// Each unsafe block or implementation says above its statement why it is sound.
pub fn safety_comments(file: &Source) -> Vec<Finding> {
    let code = &file.halves.code;
    let code_lines: Vec<&str> = code.lines().collect();
    let comment_lines: Vec<&str> = file.halves.comments.lines().collect();
    let mut found = Vec::new();
    for at in words(code, "unsafe") {
        let rest = code[at + "unsafe".len()..].trim_start();
        if !rest.starts_with('{') && !rest.starts_with("impl") {
            continue;
        }
        // The comment stands on the block's own line, or above the statement that holds it.
        let line = line_of(code, at) - 1;
        let mut first = line;
        while first > 0 && continues(code_lines[first - 1]) {
            first -= 1;
        }
        let mut above = first;
        while above > 0 && is_comment(code_lines[above - 1], comment_lines[above - 1]) {
            above -= 1;
        }
        if !(above..=line).any(|l| comment_lines[l].contains("// SAFETY:")) {
            let message = "an unsafe block without a `// SAFETY:` comment above its statement";
            found.push(file.finding_at(at, message.to_string()));
        }
    }
    found
}

/// Whether the statement on a line of code goes on in the next one.
fn continues(code: &str) -> bool {
    let code = code.trim();
    !code.is_empty() && !code.ends_with([';', '{', '}', ',']) && !code.starts_with("#[")
}

fn is_comment(code: &str, comment: &str) -> bool {
    let attribute = code.trim().starts_with("#[");
    (code.trim().is_empty() && !comment.trim().is_empty()) || attribute
}

/// What is to be done has a number under which it is written down.
pub fn todos(file: &Source) -> Vec<Finding> {
    let comments = &file.halves.comments;
    let mut found = Vec::new();
    for word in ["TODO", "FIXME", "XXX"] {
        for at in words(comments, word) {
            let rest = &comments[at + word.len()..];
            let number = rest.strip_prefix("(#").and_then(|r| r.split_once(')'));
            let numbered = number.is_some_and(|(n, _)| n.parse::<u32>().is_ok());
            if word != "TODO" || !numbered {
                found.push(file.finding_at(at, format!("{word} without a number: `TODO(#123)`")));
            }
        }
    }
    found
}

/// A name says what is inside; applies to files of every kind.
pub fn name(path: &str) -> Option<String> {
    let bad = path
        .split('/')
        .map(|part| part.split('.').next().unwrap_or(part));
    let bad: Vec<&str> = bad.filter(|part| EMPTY_NAMES.contains(part)).collect();
    bad.first()
        .map(|name| format!("`{name}` does not say what is inside"))
}

/// Where every operation must be thought of, no arm stands for all others.
pub fn exhaustive(file: &Source) -> Vec<Finding> {
    let inside = file.path.strip_prefix(imports::SRC).unwrap_or("");
    if !EXHAUSTIVE.iter().any(|prefix| inside.starts_with(prefix)) {
        return Vec::new();
    }
    let code = &file.halves.code;
    let others = "an arm for all other operations; name them, so that a new one is not forgotten";
    let bare = "name operations as `Op::Add`, so that this check sees them";
    let others = arms::catch_alls(code)
        .into_iter()
        .map(|at| file.finding_at(at, others.into()));
    let bare = arms::glob_imports(code)
        .into_iter()
        .map(|at| file.finding_at(at, bare.into()));
    others.chain(bare).collect()
}

/// A test that does not run, or that passes when anything at all goes wrong, checks nothing.
pub fn disabled_tests(file: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for word in ["ignore", "should_panic"] {
        let code = &file.halves.code;
        let attributes = words(code, word).filter(|&at| {
            // Between the last `#[` and the word stands nothing, or a condition.
            let before = code[..at].rsplit("#[").next().filter(|b| b.len() < at);
            before.is_some_and(|b| {
                b.trim().is_empty() || b.starts_with("cfg_attr(") && !b.contains(']')
            })
        });
        let message = format!("`{word}` turns a test into none; assert what happens instead");
        found.extend(attributes.map(|at| file.finding_at(at, message.clone())));
        let comments = &file.halves.comments;
        let examples = words(comments, word).filter(|&at| {
            let line = comments[..at].rsplit('\n').next().unwrap_or("");
            line.contains("```")
        });
        found.extend(examples.map(|at| file.finding_at(at, message.clone())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(check: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text))
            .into_iter()
            .map(|f| f.line)
            .collect()
    }

    const LIB: &str = "crates/uopc/src/ir/op.rs";

    #[test]
    fn long_files_are_found() {
        assert_eq!(lines(length, LIB, &"x\n".repeat(600)), [0; 0]);
        assert_eq!(lines(length, LIB, &"x\n".repeat(601)), [601]);
        assert_eq!(lines(length, PIPELINE, &"x\n".repeat(121)), [121]);
    }

    #[test]
    fn files_without_a_doc_are_found() {
        assert_eq!(lines(module_doc, LIB, "\n//! Says it.\nuse x;"), [0; 0]);
        assert_eq!(lines(module_doc, LIB, "use x;\n//! Too late."), [1]);
        assert_eq!(lines(module_doc, LIB, "//!\nuse x;"), [1]);
        assert_eq!(lines(module_doc, LIB, "// Not a doc.\n"), [1]);
        assert_eq!(lines(module_doc, LIB, ""), [1]);
    }

    #[test]
    fn a_pass_has_six_headings() {
        let path = "crates/uopc/src/pass/tile.rs";
        let doc = "//! Tile.\n//!\n//! In: a\n//! Out: b\n//! Keeps: c\n//! Ensures: d\n//! Cost: e\n\
            //! Example: f\nuse x;";
        assert_eq!(lines(pass_headings, path, doc), [0; 0]);
        assert_eq!(
            lines(pass_headings, path, &doc.replace("//! Cost: e\n", "")),
            [1]
        );
        assert_eq!(lines(pass_headings, path, "//! No pass.\n"), [0; 0]);
    }

    #[test]
    fn the_environment_is_read_in_one_place() {
        let text =
            "use std::env;\nfn f() { env::var(\"A\") }\nlet v = env!(\"B\");\nstd::env::args()";
        assert_eq!(lines(environment, LIB, text), [2, 4]);
        assert_eq!(lines(environment, "crates/uopc/src/debug.rs", text), [0; 0]);
        assert_eq!(lines(environment, "crates/uopc/tests/a.rs", text), [0; 0]);
    }

    #[test]
    fn unsafe_stays_in_its_files() {
        let architecture = "# A\n## Files that may hold `unsafe`\n\n- `a/b.rs`: memory\n- `a/c.rs`: x\n## B\n- `d.rs`";
        let allowed = allowed_unsafe(architecture);
        assert_eq!(allowed, ["a/b.rs", "a/c.rs"]);
        let text = "#![allow(unsafe_code)]\n// unsafe\nlet s = \"unsafe\";\nunsafe { f() }";
        let found = |path: &str| {
            unsafe_files(&Source::new(path, text), &allowed)
                .iter()
                .map(|f| f.line)
                .collect::<Vec<_>>()
        };
        assert_eq!(found(LIB), [4]);
        assert_eq!(found("a/b.rs"), [0; 0]);
        assert_eq!(found("crates/uopc/tests/size.rs"), [0; 0]);
    }

    #[test]
    fn unsafe_blocks_give_their_reason() {
        let good = "// SAFETY: it is.\nunsafe { f() }\nlet a =\n    unsafe { g() }; // SAFETY: too.\n\
            // SAFETY: split\n// over lines.\n#[inline]\nlet b = h(\n    unsafe { i() },\n);\n";
        // The call `h(` goes on in the next line, so the comment above it counts.
        assert_eq!(lines(safety_comments, LIB, good), [0; 0]);
        assert_eq!(
            lines(safety_comments, LIB, "let a = 1;\nunsafe { f() }"),
            [2]
        );
        assert_eq!(
            lines(
                safety_comments,
                LIB,
                "// SAFETY: of another.\nf();\nunsafe { g() }"
            ),
            [3]
        );
        assert_eq!(
            lines(safety_comments, LIB, "unsafe impl Send for A {}"),
            [1]
        );
        assert_eq!(
            lines(
                safety_comments,
                LIB,
                "pub unsafe fn f() {}\ntype F = unsafe extern \"C\" fn();"
            ),
            [0; 0]
        );
    }

    #[test]
    fn todos_have_numbers() {
        let text =
            "// TODO(#12): good\n// TODO: bad\n// TODO(#x): bad\n// FIXME(#3)\nlet s = \"TODO\";";
        assert_eq!(lines(todos, LIB, text), [2, 3, 4]);
    }

    #[test]
    fn empty_names_are_found() {
        assert!(name("crates/uopc/src/utils.rs").is_some());
        assert!(name("crates/uopc/src/common/mod.rs").is_some());
        assert!(name("docs/misc.md").is_some());
        assert!(name("crates/uopc/src/database.rs").is_none());
    }

    #[test]
    fn arms_for_all_others_are_found_where_it_matters() {
        let text = "match op {\n    Op::Add => 1,\n    _ => 2,\n}";
        for path in [
            "ir/verify.rs",
            "ir/verify/program.rs",
            "ir/shape_infer.rs",
            "autodiff/vjp.rs",
            "interp/graph.rs",
            "backend/c/render.rs",
        ] {
            assert_eq!(
                lines(exhaustive, &format!("crates/uopc/src/{path}"), text),
                [3],
                "{path}"
            );
        }
        assert_eq!(
            lines(exhaustive, "crates/uopc/src/rules/fold.rs", text),
            [0; 0]
        );
        assert_eq!(
            lines(exhaustive, "crates/uopc/src/ir/verify.rs", "use Op::*;"),
            [1]
        );
    }

    #[test]
    fn disabled_tests_are_found() {
        let text = "#[ignore]\n#[ignore = \"slow\"]\n#[should_panic(expected = \"x\")]\n\
            fn ignore() {}\n/// ```ignore\n/// Please ignore this.\n#[cfg_attr(a, ignore)]";
        assert_eq!(lines(disabled_tests, LIB, text), [1, 2, 7, 5, 3]);
    }
}
