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
