//! `uopc gradcheck`: what it compares, what it says, and the code it ends with.

use serde_json::Value;

use crate::program::{file, uopc, uopc_with_input};

const PRODUCT: &str = "\
; run: slot0=[1,2,3] slot1=[10,20,30] == [140]
%0 = buffer 3 : dtype=f32 slot=0
%1 = buffer 3 : dtype=f32 slot=1
%2 = mul %0, %1
%3 = sin %2
%4 = reduce %3, ADD, 1
";

const KINK: &str = "\
%0 = buffer 2 : dtype=f32 slot=0
%1 = reshape -1.0, (1,)
%2 = expand %1, (2,)
%3 = max %0, %2
";

#[test]
fn right_gradients_are_said_to_agree() {
    let found = uopc_with_input(&["gradcheck", "-"], PRODUCT).ok();
    let lines: Vec<&str> = found.lines().collect();
    // The head, four comparisons for each of two slots, and the result.
    assert_eq!(lines.len(), 10, "{found}");
    assert!(lines[0].starts_with("argument  shape "), "{found}");
    assert!(lines[1].starts_with("slot 0    (3,) "), "{found}");
    assert!(lines[8].starts_with("slot 1 "), "{found}");
    assert!(
        lines[1..9].iter().all(|l| l.ends_with("  agree")),
        "{found}"
    );
    assert_eq!(lines[9], "all gradients agree");
    // The same numbers each time, others with another seed.
    assert_eq!(uopc_with_input(&["gradcheck", "-"], PRODUCT).ok(), found);
    let other = uopc_with_input(&["gradcheck", "-", "--seed", "1"], PRODUCT).ok();
    assert_ne!(other, found);
    let first = uopc_with_input(
        &["gradcheck", "-", "--first-order", "--directions=1"],
        PRODUCT,
    );
    assert_eq!(first.ok().lines().count(), 6);
}

#[test]
fn inputs_are_those_of_run() {
    let graph = file("kink.uir", KINK);
    // Random ones are away from the kink.
    let found = uopc(&["gradcheck", &graph]).ok();
    assert!(found.contains("all gradients agree"), "{found}");
    let at = uopc(&["gradcheck", &graph, "--slot", "0=-1"]);
    assert_eq!(at.code, 1, "{}", at.stdout);
    assert!(
        at.stdout.contains("unclear: a kink, a jump or NaN here"),
        "{}",
        at.stdout
    );
    let text = format!("error: {graph}: gradients can't be compared here; try other values\n");
    assert_eq!(at.stderr, text);
    let unread = uopc(&["gradcheck", &graph, "--slot", "3=1"]);
    assert_eq!(unread.code, 2);
    assert_eq!(
        unread.stderr,
        "error: slot 3 is not read by this graph; it reads 0\n"
    );
}

#[test]
fn quotients_that_are_too_coarse_do_not_agree() {
    let args = ["gradcheck", "-", "--step", "0.1"];
    let coarse = uopc_with_input(&args, PRODUCT);
    assert_eq!(coarse.code, 1, "{}", coarse.stdout);
    assert!(
        !coarse.stdout.contains("all gradients agree"),
        "{}",
        coarse.stdout
    );
    assert!(
        coarse
            .stderr
            .starts_with("error: standard input: gradients "),
        "{}",
        coarse.stderr
    );
}

#[test]
fn options_with_which_nothing_is_checked_are_refused() {
    for option in ["--step=nan", "--step=0", "--tolerance=-1", "--directions=0"] {
        let refused = uopc_with_input(&["gradcheck", "-", option], PRODUCT);
        assert_eq!(refused.code, 2, "{option}");
        assert!(
            refused.stderr.contains("number above 0"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn integers_and_conditions_take_part_as_they_are() {
    let text = "\
; run: slot0=[1,2,3] slot1=[2,0,2] slot2=[1,0,1]
%0 = buffer 3 : dtype=f32 slot=0
%1 = buffer 3 : dtype=i32 slot=1
%2 = buffer 3 : dtype=bool slot=2
%3 = index %0, %1
%4 = mul %3, %0
%5 = where %2, %4, %0
";
    let found = uopc_with_input(&["gradcheck", "-"], text).ok();
    assert_eq!(found.lines().count(), 6, "{found}");
    let none = uopc_with_input(
        &["gradcheck", "-"],
        "%0 = buffer 3 : dtype=i32 slot=0\n%1 = add %0, %0\n",
    );
    assert_eq!(none.code, 1);
    let text = "error: standard input: no slot holds floats, and only floats have derivatives\n";
    assert_eq!(none.stderr, text);
}

#[test]
fn the_error_by_step_falls_and_rises() {
    let found = uopc_with_input(&["gradcheck", "-", "--sweep"], PRODUCT).ok();
    assert!(found.starts_with("    step  relative error\n"), "{found}");
    assert!(
        found.lines().last().unwrap().starts_with("least error "),
        "{found}"
    );
    let text = uopc_with_input(&["gradcheck", "-", "--sweep", "--json"], PRODUCT).ok();
    let value: Value = serde_json::from_str(&text).unwrap();
    let points = value["sweep"].as_array().unwrap();
    let errors: Vec<f64> = points
        .iter()
        .map(|p| p["error"].as_f64().unwrap())
        .collect();
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
    // In f32 both ends are far worse than the middle.
    assert!(
        errors[0] > 100.0 * least && errors[errors.len() - 1] > 100.0 * least,
        "{errors:?}"
    );
    assert!(least < 1e-2, "{errors:?}");
}

#[test]
fn json_holds_what_the_table_holds() {
    let text = uopc_with_input(&["gradcheck", "-", "--json"], PRODUCT).ok();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["passed"], true);
    let comparisons = value["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 8);
    assert_eq!(comparisons[0]["argument"], "slot 0");
    assert_eq!(comparisons[0]["shape"], serde_json::json!([3]));
    assert!(comparisons.iter().all(|c| c["verdict"] == "agree"));
    // A list where the file has several cases.
    let twice = format!("; run: slot0=[0,0,1] slot1=[1,1,2]\n{PRODUCT}");
    let text = uopc_with_input(&["gradcheck", "-", "--json"], &twice).ok();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value.as_array().map(Vec::len), Some(2));
}

#[test]
fn what_has_no_gradients_is_refused() {
    for (args, code, text) in [
        (
            vec!["gradcheck", "no.uir"],
            1,
            "error: no.uir: can't read: ",
        ),
        (
            vec!["gradcheck", "-", "--step", "0"],
            2,
            "error: invalid value '0' for '--step <STEP>'",
        ),
        (
            vec!["gradcheck", "-", "--slot", "x"],
            2,
            "error: --slot x: write the slot's number",
        ),
    ] {
        let failed = uopc_with_input(&args, PRODUCT);
        assert_eq!(failed.code, code, "{}", failed.stderr);
        assert!(failed.stderr.starts_with(text), "{}", failed.stderr);
    }
    let opt = uopc_with_input(&["opt", "-", "--pass", "kernelize"], PRODUCT);
    let failed = uopc_with_input(&["gradcheck", "-"], &opt.ok());
    assert_eq!(failed.code, 1, "{}", failed.stdout);
    let text =
        "error: standard input: a plan has no gradients; give the shape graph it was made from\n";
    assert_eq!(failed.stderr, text);
}
