//! The facts: the statements about the system that must stay true, each with one test.
//!
//! Fact B12 is the test `b12_...` in `crates/uopc/tests/facts_b.rs`. A fact without a test, with
//! two, or whose test fails, fails the run.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use crate::process::{cargo, root, tee};

/// The letters and the numbers that belong to each.
const FACTS: &[(char, &[u32])] = &[
    ('A', &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
    (
        'B',
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
    ),
    ('C', &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ('D', &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
    ('E', &[0, 1, 2, 3, 4, 5, 6]),
];

/// Runs the tests of all facts, prints a line for each and last how many of them pass.
pub fn run() -> Result<()> {
    let (text, built) = tee(&mut tests(&["--format", "pretty"])?)?;
    let found = parse(&text);
    let rows = judge(&found);
    println!();
    for (fact, verdict) in &rows {
        println!("{fact} {verdict}");
    }
    for stray in strays(&found) {
        println!("{stray} is no fact");
    }
    let passed = rows.iter().filter(|row| row.1 == "pass").count();
    println!("{passed} of {}", rows.len());
    // A test beside the facts may have failed, or a program may not have been built.
    ensure!(passed == rows.len() && built, "not every fact passes");
    ensure!(strays(&found).is_empty(), "tests that look like facts");
    Ok(())
}

/// Checks, without running them, that each fact has exactly one test.
pub fn check_names() -> Result<()> {
    let (text, built) = tee(&mut tests(&["--list", "--format", "terse"])?)?;
    ensure!(built, "the tests of the facts could not be listed");
    // `b12_stage: test` reads like a test that passes.
    let listed: String = text
        .lines()
        .filter_map(|line| Some(format!("test {} ... ok\n", line.strip_suffix(": test")?)))
        .collect();
    let found = parse(&listed);
    let wrong: Vec<String> = judge(&found)
        .into_iter()
        .filter(|row| row.1 != "pass")
        .map(|(fact, verdict)| format!("{fact} {verdict}"))
        .chain(
            strays(&found)
                .iter()
                .map(|name| format!("{name} is no fact")),
        )
        .collect();
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!("every fact has its test");
    Ok(())
}

fn tests(args: &[&str]) -> Result<std::process::Command> {
    let mut command = cargo(&["test", "--package", "uopc", "--no-fail-fast"]);
    for (letter, _) in FACTS {
        let name = format!("facts_{}", letter.to_ascii_lowercase());
        // A file that does not exist yet leaves its facts without tests; cargo would stop.
        if root().join(format!("crates/uopc/tests/{name}.rs")).exists() {
            command.args(["--test", &name]);
        }
    }
    ensure!(
        command.get_args().any(|arg| arg == "--test"),
        "no file of facts exists"
    );
    command.arg("--").args(args);
    Ok(command)
}

fn names() -> impl Iterator<Item = String> {
    FACTS
        .iter()
        .flat_map(|(letter, numbers)| numbers.iter().map(move |n| format!("{letter}{n}")))
}

/// The verdicts of the tests whose names begin with a fact, by fact: `test b12_stage ... ok`.
fn parse(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let Some((name, verdict)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
        else {
            continue;
        };
        // The last part of a path names the test; a module in front of it does not matter.
        let name = name.rsplit("::").next().unwrap_or(name);
        if let Some(fact) = fact_of(name) {
            found
                .entry(fact)
                .or_default()
                .push(verdict.trim().to_string());
        }
    }
    found
}

/// `b12_stage_passes` is about B12; `broadcast_adds` is about none.
fn fact_of(test: &str) -> Option<String> {
    let (id, _) = test.split_once('_')?;
    let letter = id.chars().next().filter(|c| ('a'..='e').contains(c))?;
    let number = &id[1..];
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| format!("{}{number}", letter.to_ascii_uppercase()))
}

fn judge(found: &BTreeMap<String, Vec<String>>) -> Vec<(String, String)> {
    let verdict = |fact: &str| match found.get(fact).map(Vec::as_slice) {
        None | Some([]) => "has no test".to_string(),
        Some([one]) if one == "ok" => "pass".to_string(),
        Some([one]) => format!("fail ({one})"),
        Some(many) => format!("has {} tests", many.len()),
    };
    names().map(|fact| (fact.clone(), verdict(&fact))).collect()
}

fn strays(found: &BTreeMap<String, Vec<String>>) -> Vec<&String> {
    let known: Vec<String> = names().collect();
    found.keys().filter(|fact| !known.contains(fact)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str, fact: &str) -> String {
        let rows = judge(&parse(text));
        rows.into_iter()
            .find(|row| row.0 == fact)
            .expect("a known fact")
            .1
    }

    #[test]
    fn there_are_fifty_four() {
        assert_eq!(names().count(), 54);
        assert_eq!(names().next().as_deref(), Some("A1"));
        assert_eq!(names().last().as_deref(), Some("E6"));
    }

    #[test]
    fn one_passing_test_is_a_pass() {
        let text = "running 2 tests\ntest b1_add ... ok\ntest b12_stage_stops ... ok\n";
        assert_eq!(verdict(text, "B1"), "pass");
        assert_eq!(verdict(text, "B12"), "pass");
    }

    #[test]
    fn a_missing_a_doubled_and_a_failing_test_are_told_apart() {
        assert_eq!(verdict("test b1_add ... ok\n", "B2"), "has no test");
        assert_eq!(
            verdict("test b1_add ... ok\ntest b1_again ... ok\n", "B1"),
            "has 2 tests"
        );
        assert_eq!(verdict("test b1_add ... FAILED\n", "B1"), "fail (FAILED)");
        assert_eq!(verdict("test b1_add ... ignored\n", "B1"), "fail (ignored)");
    }

    #[test]
    fn a_number_that_no_fact_has_is_a_stray() {
        let found = parse("test b17_new ... ok\ntest broadcast_adds ... ok\ntest e0_a ... ok\n");
        assert_eq!(strays(&found), ["B17"]);
    }
}
