//! `uopc bench`: what it prints and refuses. How long something took is nobody's business here.

use std::fs;

use serde_json::Value;

use crate::program::uopc;

fn objects(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_list_has_every_workload() {
    let text = uopc(&["bench", "--list"]).ok();
    for workload in uopc_cli::bench::WORKLOADS {
        let row = text
            .lines()
            .find(|l| l.split(' ').next() == Some(workload.name));
        assert!(row.is_some(), "{}: {text}", workload.name);
    }
    let objects = objects(&uopc(&["bench", "--list", "--json"]).ok());
    assert_eq!(objects.len(), uopc_cli::bench::WORKLOADS.len());
    let of = |name: &str| objects.iter().find(|o| o["workload"] == name).unwrap();
    assert!(
        of("embedding_bwd")["about"]
            .as_str()
            .unwrap()
            .contains("50257")
    );
}

#[test]
fn a_json_line_has_the_fields_of_the_peers() {
    let args = [
        "bench",
        "--json",
        "--budget",
        "0.01",
        "--no-peak",
        "--threads",
        "1",
        "tiny_step",
    ];
    let object = objects(&uopc(&args).ok()).remove(0);
    for field in [
        "peer",
        "variant",
        "version",
        "workload",
        "cpus",
        "median_s",
        "min_s",
        "p90_s",
        "samples",
        "steps_per_sample",
        "noisy",
        "ms",
        "steps_s",
        "gflops",
        "cold_s",
        "check",
    ] {
        assert!(!object[field].is_null(), "{field} in {object}");
    }
    assert_eq!(
        (&object["peer"], &object["threads"]),
        (&"uopc".into(), &1.into())
    );
    let check = object["check"].as_f64().unwrap();
    // The first loss of a network that has learned nothing, for two classes.
    assert!(check > 0.3 && check < 3.0, "{check}");
}

#[test]
fn the_table_says_what_the_machine_can_do() {
    let text = uopc(&["bench", "--budget", "0.01", "tiny_step", "attention_nano"]).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].contains("GFLOP/s and "), "{text}");
    assert!(
        lines[1].starts_with("workload ") && lines[1].contains(" median ms "),
        "{text}"
    );
    assert!(lines[2].starts_with("tiny_step ") && lines[3].starts_with("attention_nano "));
}

#[test]
fn inputs_are_read_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("tiny");
    fs::create_dir(&set).unwrap();
    let floats = |n: usize, value: f32| value.to_le_bytes().repeat(n);
    for (name, n) in [
        ("w0", 8 * 16),
        ("b0", 16),
        ("w1", 16 * 2),
        ("b1", 2),
        ("x", 64 * 8),
    ] {
        fs::write(set.join(format!("{name}.f32")), floats(n, 0.0)).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let args = [
        "bench",
        "--json",
        "--budget",
        "0.01",
        "--no-peak",
        "--inputs",
        path,
        "tiny_step",
    ];
    let missing = uopc(&args);
    assert_eq!(missing.code, 1);
    assert!(
        missing.stderr.contains("y.i32") && missing.stderr.contains("dump.py"),
        "{missing:?}"
    );
    fs::write(set.join("y.i32"), floats(64, 0.0)).unwrap();
    let object = objects(&uopc(&args).ok()).remove(0);
    // Weights of zero give both classes the same chance: the loss is the logarithm of 2.
    let check = object["check"].as_f64().unwrap();
    assert!((check - std::f64::consts::LN_2).abs() < 1e-6, "{check}");
}

#[test]
fn first_steps_have_processes_and_a_cache_of_their_own() {
    let lines = objects(&uopc(&["bench", "--cold", "--json", "tiny_step"]).ok());
    let cached: Vec<&Value> = lines.iter().map(|line| &line["cached"]).collect();
    assert_eq!(cached, [false, true], "{lines:?}");
    assert!(
        lines
            .iter()
            .all(|line| line["cold_s"].as_f64().unwrap() > 0.0)
    );
    let table = uopc(&["bench", "--cold", "tiny_step"]).ok();
    assert!(
        table.contains("empty cache s") && table.contains("tiny_step"),
        "{table}"
    );
}

#[test]
fn what_is_not_there_is_refused() {
    let unknown = uopc(&["bench", "matmul_3"]);
    assert_eq!(unknown.code, 2);
    assert!(
        unknown.stderr.contains("there is no workload `matmul_3`"),
        "{unknown:?}"
    );
    for args in [
        ["bench", "--threads", "0"],
        ["bench", "--threads", "257"],
        ["bench", "--threads", "-1"],
        ["bench", "--budget", "0"],
        ["bench", "--budget", "soon"],
    ] {
        let refused = uopc(&args);
        assert_eq!(refused.code, 2, "{args:?}: {refused:?}");
    }
}
