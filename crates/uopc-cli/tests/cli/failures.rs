//! What goes wrong outside of the program: files, arguments, settings, a full disk.

use crate::program::{self, Finished, file, uopc, uopc_with_input};

const GRAPH: &str = "\
%0 = buffer 3 : dtype=f32 slot=0
%1 = add %0, %0
";

#[test]
fn malformed_text_is_shown_with_a_caret() {
    let failed = uopc_with_input(
        &["run", "-"],
        "%0 = buffer 3 : dtype=f32 slot=0\n%1 = add %0, 1.0\n",
    );
    assert_eq!(failed.code, 1);
    assert_eq!(
        failed.stderr,
        "\
error: add: shapes (3,) and () differ; reshape or expand one of them
  --> standard input:2:6
   |
 2 | %1 = add %0, 1.0
   |      ^
"
    );
}

/// A text can ask for any amount of memory; it does not get it.
#[test]
fn sizes_are_no_promise() {
    let failed = uopc_with_input(&["run", "-"], "%0 = iota 100000000000000 : dtype=i64\n");
    let text = "error: iota has 100000000000000 elements; up to 134217728 a value can be compared \
        here\n";
    assert_eq!((failed.code, &failed.stderr[..]), (1, text));
}

#[test]
fn files_that_can_t_be_read_are_named() {
    let failed = uopc(&["run", "missing.uir"]);
    let text = "error: missing.uir: can't read: No such file or directory\n";
    assert_eq!((failed.code, &failed.stderr[..]), (1, text));
    let binary = file("binary.uir", [0xff, 0xfe, 0x00]);
    let failed = uopc(&["run", &binary]);
    let text = format!("error: {binary}: can't read: stream did not contain valid UTF-8\n");
    assert_eq!((failed.code, failed.stderr), (1, text));
}

/// A full disk must not look like success.
#[cfg(target_os = "linux")]
#[test]
fn output_that_can_t_be_written_is_a_failure() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let child = program::command(&["ops"])
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn();
    let failed = Finished::from(child.unwrap().wait_with_output());
    let text = "error: standard output: can't write: No space left on device\n";
    assert_eq!((failed.code, &failed.stderr[..]), (1, text));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut child = program::command(&["rules"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let found = Finished::from(child.wait_with_output());
    assert_eq!((found.code, &found.stderr[..]), (0, ""));
}

#[test]
fn wrong_arguments_end_with_2() {
    for args in [
        &[][..],
        &["fly"],
        &["run"],
        &["ops", "--names", "--markdown"],
        &["train", "cats"],
    ] {
        let failed = uopc(args);
        assert_eq!((failed.code, &failed.stdout[..]), (2, ""), "{args:?}");
        assert!(!failed.stderr.is_empty());
    }
    let help = uopc(&["--help"]).ok();
    assert!(
        help.contains("Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted"),
        "{help}"
    );
}

/// A number below 0 is a wrong number, not an option that nobody knows.
#[test]
fn numbers_out_of_range_are_answered_as_numbers() {
    let whole = "use a whole number that is not below 0";
    for (args, text) in [
        (
            &["train", "digits", "--epochs", "0"][..],
            "invalid value '0' for '--epochs <N>': use a whole number of at least 1",
        ),
        (
            &["train", "digits", "--epochs", "-1"],
            "invalid value '-1' for '--epochs <N>': use a whole number of at least 1",
        ),
        (
            &["train", "digits", "--seed", "-1"],
            &format!("invalid value '-1' for '--seed <N>': {whole}"),
        ),
        (
            &["train", "digits", "--batch-size", "-1"],
            &format!("invalid value '-1' for '--batch-size <N>': {whole}"),
        ),
        (
            &["run", "graph.uir", "--seed", "-1"],
            &format!("invalid value '-1' for '--seed <SEED>': {whole}"),
        ),
    ] {
        let failed = uopc(args);
        assert_eq!((failed.code, &failed.stdout[..]), (2, ""), "{args:?}");
        let first = failed.stderr.lines().next().unwrap();
        assert_eq!(first, format!("error: {text}"));
    }
}

#[test]
fn a_slot_has_its_values_once() {
    let graph = file("graph.uir", GRAPH);
    let failed = uopc(&["run", &graph, "--slot", "0=1", "--slot", "0=2"]);
    let text = "error: --slot 0: given twice; which values are meant?\n";
    assert_eq!((failed.code, &failed.stderr[..]), (2, text));
}

/// Some editors begin a text with a byte order mark.
#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    let plain = uopc_with_input(&["run", "-"], GRAPH).ok();
    let marked = format!("\u{feff}{GRAPH}");
    assert_eq!(uopc_with_input(&["run", "-"], &marked).ok(), plain);
    let graph = file("graph.uir", &marked);
    assert_eq!(uopc(&["run", &graph]).ok(), plain);
}

/// Of a long line an error shows the surroundings of what is wrong.
#[test]
fn long_lines_are_cut() {
    let long = "a".repeat(1_000_000);
    for (text, column) in [
        (format!("%0 = {long} 1\n"), 6),
        (format!("%0 = buffer 3 : dtype=f32 slot=0 {long}=0\n"), 34),
        (format!("%0 = buffer 3 : dtype=f32 slot=\"{long}\"\n"), 32),
        (format!("; {}\n%0 = @{long}\n", "(".repeat(1_000_000)), 6),
        (format!("{long}\n"), 1),
        (format!("; name: {long} {long}\n"), 64),
    ] {
        let failed = uopc_with_input(&["run", "-"], &text);
        assert_eq!(failed.code, 1);
        assert!(failed.stderr.len() < 1000, "{} bytes", failed.stderr.len());
        let lines: Vec<&str> = failed.stderr.lines().collect();
        let [line, caret] = lines[lines.len() - 2..] else {
            panic!("{}", failed.stderr)
        };
        let shown = caret.find('^').unwrap() - caret.find('|').unwrap() - 1;
        assert_eq!(shown, column, "{}", failed.stderr);
        assert!(line.ends_with("..."), "{line}");
    }
    // The caret stays under its character when the beginning is cut, too.
    let text = format!(
        "%0 = buffer 3 : {} @ {}\n",
        " ".repeat(500),
        " ;".repeat(500)
    );
    let failed = uopc_with_input(&["run", "-"], &text);
    let lines: Vec<&str> = failed.stderr.lines().collect();
    let [line, caret] = lines[lines.len() - 2..] else {
        panic!("{}", failed.stderr)
    };
    assert_eq!(line.find('@'), caret.find('^'), "{}", failed.stderr);
    assert!(
        failed.stderr.contains("standard input:1:518"),
        "{}",
        failed.stderr
    );
}

#[test]
fn settings_are_checked_before_anything_runs() {
    for (name, value, text) in [
        (
            "UOPC_DEVICE",
            "gpu",
            "UOPC_DEVICE: \"gpu\" is not valid; use auto, c or interp",
        ),
        (
            "UOPC_DISABLE",
            "mul_tow",
            "UOPC_DISABLE: there is no rule or pass \"mul_tow\"; the rules are ",
        ),
        (
            "UOPC_DUMP",
            "after:tile",
            "UOPC_DUMP: there is no pass \"tile\"; the passes are ",
        ),
        ("UOPC_SPEED", "9", "UOPC_SPEED is no setting; these are: "),
    ] {
        let failed = Finished::from(
            program::command(&["show", "softmax"])
                .env(name, value)
                .output(),
        );
        assert_eq!((failed.code, &failed.stdout[..]), (1, ""));
        assert!(
            failed.stderr.starts_with(&format!("error: {text}")),
            "{}",
            failed.stderr
        );
    }
}

#[test]
fn dumps_go_to_standard_error() {
    let graph = file("graph.uir", GRAPH);
    let found = program::command(&["run", &graph])
        .env("UOPC_DUMP", "after:simplify")
        .env("UOPC_DEVICE", "interp")
        .output();
    let found = Finished::from(found);
    assert_eq!(found.code, 0);
    assert_eq!(found.stderr, format!("; after simplify\n{GRAPH}\n"));
}
