//! Training runs: their bits, their folders, and what happens when they are stopped.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::place::{BRIEF, Place, bits, objects, read};
use crate::program::Finished;
use serde_json::Value;
use uopc::compile::Engine;
use uopc_cli::train::folder::{CHECKPOINT, LOG, MODEL, RECORD, RunFolder};
use uopc_cli::train::record::Config;
use uopc_cli::train::{Event, Outcome, run};

/// Few and large batches: a test needs no good model.
pub fn brief(epochs: u64) -> Config {
    Config {
        epochs,
        batch_size: 400,
        ..Config::default()
    }
}

/// The run that everyone tries first learns the digits, and a second process repeats it to the
/// last bit without compiling anything.
#[test]
fn the_digits_are_learned_and_a_second_run_is_the_same() {
    let place = Place::new();
    let first = place.uopc(&["train", "digits", "--json"]).ok();
    let second = place.uopc(&["train", "digits", "--json"]).ok();
    assert_eq!(bits(&first), bits(&second));
    let (first, second) = (objects(&first), objects(&second));
    assert_eq!(first.len(), 41);
    let (last, epoch) = (&first[40], &first[39]);
    assert!(last["test_accuracy"].as_f64().unwrap() >= 0.97, "{last}");
    assert_eq!(last["test_accuracy"], epoch["test_accuracy"]);
    assert_eq!(last["final_loss"], epoch["loss"]);
    assert!(last["train_seconds"].as_f64().unwrap() > 0.0);
    assert!(last["compiler_calls"].as_u64().unwrap() > 0);
    assert_eq!(second[40]["compiler_calls"], 0);
    let files = |run: &str| read(place.path("runs").join(run).join(MODEL));
    assert_eq!(files("digits-1"), files("digits-2"));
}

#[test]
fn a_run_leaves_its_record() {
    let place = Place::new();
    let text = place
        .uopc(
            &[
                &BRIEF[..],
                &["--epochs", "3", "--seed", "7", "--out", "run"],
            ]
            .concat(),
        )
        .ok();
    let folder = place.path("run");
    assert_eq!(String::from_utf8(read(folder.join(LOG))).unwrap(), text);
    let record: Value = serde_json::from_slice(&read(folder.join(RECORD))).unwrap();
    assert_eq!(record["task"], "digits");
    assert_eq!(record["seed"], 7);
    assert_eq!(record["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        record["arguments"],
        serde_json::json!({"epochs": 3, "batch_size": 400, "lr": 0.004})
    );
    assert!(!record["cpu"].as_str().unwrap().is_empty());
    assert!(read(folder.join("training.svg")).starts_with(b"<svg"));
    assert!(read(folder.join("training.png")).starts_with(b"\x89PNG"));

    // Another process sees the same model.
    let last = &objects(&text)[2];
    let tested = place.uopc(&["eval", "--model", "run", "--json"]).ok();
    let tested = &objects(&tested)[0];
    assert_eq!(tested["test_accuracy"], last["test_accuracy"]);
    assert_eq!(tested["test_loss"], last["test_loss"]);
    assert_eq!(tested["images"], 360);
    let confusion = tested["confusion"].as_array().unwrap().iter();
    let diagonal = confusion
        .enumerate()
        .map(|(i, row)| row[i].as_u64().unwrap());
    assert_eq!(tested["right"].as_u64().unwrap(), diagonal.sum::<u64>());

    let words = place
        .uopc(&["eval", "--model", "run/model.safetensors"])
        .ok();
    assert!(
        words.starts_with("model     run/model.safetensors (64-128-10, 9,610 parameters)\n"),
        "{words}"
    );
    assert!(words.contains("\ndigit   taken for\n"), "{words}");
}

/// Seeds and epochs show different orders: no two epochs of two runs have the same loss.
#[test]
fn the_seed_decides_the_run() {
    let place = Place::new();
    let losses = |seed: &str| -> Vec<String> {
        let text = place
            .uopc(&[&BRIEF[..], &["--epochs", "2", "--seed", seed]].concat())
            .ok();
        let epochs = objects(&text);
        epochs[..2].iter().map(|e| e["loss"].to_string()).collect()
    };
    let mut all = [losses("0"), losses("1"), losses("18446744073709551615")].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "{all:?}");
}

/// Trains in `folder`, stopping before step `stop_before` counted over all epochs, and returns the
/// outcome and the step losses as they were reported.
pub fn train(
    engine: &Arc<Engine>,
    config: &Config,
    folder: &RunFolder,
    resume: bool,
    stop_before: u64,
) -> (Outcome, Vec<u64>) {
    let asked = Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) >= stop_before;
    let mut losses = Vec::new();
    let outcome = run(engine, config, folder, resume, &stop, &mut |_, event| {
        if let Event::Step(step) = event {
            losses.push(step.mean_loss.to_bits());
        }
        Ok(())
    });
    (outcome.unwrap(), losses)
}

#[test]
fn a_stopped_run_goes_on_as_if_nothing_had_happened() {
    let place = Place::new();
    let engine = place.engine();
    let config = brief(3);
    let folder = |name: &str| RunFolder::named(&place.path(name)).unwrap();
    let whole = folder("whole");
    let (outcome, losses) = train(&engine, &config, &whole, false, u64::MAX);
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    // 1,437 images fill three batches of 400.
    assert_eq!(losses.len(), 9);

    for stop_before in 0..9 {
        let parts = folder(&format!("stopped-before-{stop_before}"));
        let (outcome, first) = train(&engine, &config, &parts, false, stop_before);
        let stopped = Outcome::Stopped {
            epoch: stop_before / 3 + 1,
            step: stop_before % 3,
        };
        assert_eq!(outcome, stopped);
        let (outcome, second) = train(&engine, &config, &parts, true, u64::MAX);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        assert_eq!([first, second].concat(), losses, "before {stop_before}");
        for file in [MODEL, CHECKPOINT, "training.svg", "training.png"] {
            assert!(read(parts.file(file)) == read(whole.file(file)), "{file}");
        }
        let log = |f: &RunFolder| bits(&String::from_utf8(read(f.file(LOG))).unwrap());
        assert_eq!(log(&parts), log(&whole));
    }
}

#[test]
fn a_finished_run_can_be_prolonged() {
    let place = Place::new();
    let more = |args: &[&str]| place.uopc(&[&BRIEF[..], args].concat());
    let whole = more(&["--epochs", "4", "--out", "whole"]).ok();
    more(&["--epochs", "2", "--out", "parts"]).ok();
    let rest = more(&["--resume", "parts", "--epochs", "4"]).ok();
    assert_eq!(bits(&rest), bits(&whole)[2..]);
    let log = String::from_utf8(read(place.path("parts").join(LOG))).unwrap();
    assert_eq!(bits(&log), bits(&whole));
    let record: Value = serde_json::from_slice(&read(place.path("parts").join(RECORD))).unwrap();
    assert_eq!(record["arguments"]["epochs"], 4);
    assert_eq!(record["resumed"].as_array().unwrap().len(), 1);
    // What `--resume` alone and `--out DIR --resume` mean.
    let done = more(&["--out", "parts", "--resume"]);
    assert_eq!(done.code, 2);
    assert_eq!(
        done.stderr,
        "error: the run has all of its 4 epochs; --epochs with a larger number goes on\n"
    );
    let untouched = read(place.path("parts").join(LOG));
    assert_eq!(String::from_utf8(untouched).unwrap(), log);
    let none = more(&["--resume"]);
    assert_eq!(none.code, 1);
    assert_eq!(
        none.stderr,
        "error: runs: there is no run digits-1 or later; name its folder\n"
    );
}

#[test]
fn runs_are_numbered_and_never_overwritten() {
    let place = Place::new();
    let train = |args: &[&str]| place.uopc(&[&BRIEF[..], &["--epochs", "1"], args].concat());
    train(&[]).ok();
    train(&[]).ok();
    assert!(place.path("runs/digits-1").is_dir() && place.path("runs/digits-2").is_dir());
    fs::create_dir(place.path("runs/digits-9")).unwrap();
    train(&[]).ok();
    assert!(place.path("runs/digits-10").join(MODEL).is_file());

    let before = read(place.path("runs/digits-1").join(MODEL));
    let refused = train(&["--out", "runs/digits-1", "--seed", "5"]);
    assert_eq!(refused.code, 1);
    assert_eq!(
        refused.stderr,
        "error: runs/digits-1: the folder is not empty, and a run is never overwritten; choose \
         another --out, or go on with the run in it: --resume runs/digits-1\n"
    );
    assert_eq!(read(place.path("runs/digits-1").join(MODEL)), before);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let place = Place::new();
    place
        .uopc(&[&BRIEF[..], &["--epochs", "1", "--out", "run"]].concat())
        .ok();
    for (args, text) in [
        (
            &["--batch-size", "1438"][..],
            "--batch-size 1438: there are 1437 images to train with; use 1 to 1437",
        ),
        (
            &["--batch-size", "0"],
            "--batch-size 0: there are 1437 images to train with; use 1 to 1437",
        ),
        (
            &["--lr", "-1"],
            "--lr -1: use a number above 0, such as 0.004",
        ),
        (
            &["--lr", "-1e-300"],
            "--lr -1e-300: use a number above 0, such as 0.004",
        ),
        (
            &["--lr", "-inf"],
            "--lr -inf: use a number above 0, such as 0.004",
        ),
        (
            &["--lr", "0"],
            "--lr 0: use a number above 0, such as 0.004",
        ),
        (
            &["--lr", "nan"],
            "--lr NaN: use a number above 0, such as 0.004",
        ),
        (
            &["--resume", "run", "--out", "other"],
            "--resume and --out name two folders; name one",
        ),
        (
            &["--resume", "run", "--seed", "3"],
            "--seed 3: the run in run has 0, which can't change; leave it out",
        ),
        (
            &["--resume", "run", "--lr", "1"],
            "--lr 1: the run in run has 0.004, which can't change; leave it out",
        ),
    ] {
        let refused = place.uopc(&[&["train", "digits"], args].concat());
        assert_eq!(
            (refused.code, &refused.stdout[..], refused.stderr),
            (2, "", format!("error: {text}\n"))
        );
    }
    // None of them has left a folder behind.
    assert!(!place.path("runs").exists() && !place.path("other").exists());
}

#[test]
fn files_that_can_t_be_used_are_named() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    let train = |args: &[&str]| place.uopc(&[&BRIEF[..], args].concat());
    for (found, text) in [
        (
            train(&["--out", "file/run"]),
            "file/run: can't make the folder: Not a directory",
        ),
        (
            train(&["--resume", "empty"]),
            "empty: no run to go on with: there is no run.json in it",
        ),
        (
            place.uopc(&["eval", "--model", "empty"]),
            "empty/model.safetensors: can't be read: No such file or directory (os error 2)",
        ),
        (
            place.uopc(&["eval"]),
            "runs: there is no run digits-1 or later; name its folder",
        ),
    ] {
        assert_eq!((found.code, found.stderr), (1, format!("error: {text}\n")));
    }
}

#[test]
fn damaged_models_are_refused() {
    let place = Place::new();
    place
        .uopc(&[&BRIEF[..], &["--epochs", "1", "--out", "run"]].concat())
        .ok();
    let good = read(place.path("run").join(MODEL));
    let mut huge = good.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let renamed = String::from_utf8_lossy(&good[..400]).contains("output.bias");
    assert!(renamed, "the header comes first");
    let text = "\"output.bias\"";
    let at = good.windows(text.len()).position(|w| w == text.as_bytes());
    let mut other = good.clone();
    other[at.unwrap() + 1] = b'O';
    for (bytes, what) in [
        (
            &good[..5],
            "5 bytes are fewer than the header needs: truncated, or no safetensors file",
        ),
        (
            &huge[..],
            "its first 8 bytes claim a header above 100 MB: no safetensors file",
        ),
        (
            &other[..],
            "no model of the digits: it has no tensor output.bias",
        ),
        (
            &good[..good.len() - 1],
            "the tensors in its header do not fill its 38767 bytes: truncated, or damaged",
        ),
    ] {
        fs::write(place.path("m.safetensors"), bytes).unwrap();
        let found = place.uopc(&["eval", "--model", "m.safetensors"]);
        let what = what.replace("38767", &(good.len() - 1).to_string());
        assert_eq!(
            (found.code, &found.stdout[..], found.stderr),
            (1, "", format!("error: m.safetensors: {what}\n"))
        );
    }
    // A checkpoint is no less suspicious.
    fs::write(place.path("run").join(CHECKPOINT), &good).unwrap();
    let found = place.uopc(&[&BRIEF[..], &["--resume", "run", "--epochs", "2"]].concat());
    let text = "error: run/checkpoint.safetensors: no checkpoint of the digits: it has no tensor \
        progress.seed\n";
    assert_eq!((found.code, &found.stderr[..]), (1, text));
}

#[test]
fn a_loss_that_is_no_number_ends_the_run() {
    let place = Place::new();
    let args = ["--epochs", "9", "--lr", "1e30", "--out", "run"];
    let found = place.uopc(&[&BRIEF[..], &args].concat());
    assert_eq!(found.code, 1);
    assert!(
        found.stderr.starts_with("error: the loss is NaN in epoch "),
        "{}",
        found.stderr
    );
    assert!(
        found
            .stderr
            .contains("; a smaller --lr may help; what was saved is the state "),
        "{}",
        found.stderr
    );
}

/// Ctrl-C finishes the step, saves, and says how to go on.
#[cfg(unix)]
#[test]
fn ctrl_c_saves_and_says_how_to_go_on() {
    let place = Place::new();
    let args = [&BRIEF[..], &["--epochs", "1000000", "--out", "run"]].concat();
    let mut command = place.command(&args);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The first epoch is done, and a million follow.
    lines.next().unwrap().unwrap();
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let last = "; to go on:\n  uopc train digits --resume run\n";
    assert!(
        stderr.starts_with("stopped in epoch ") && stderr.ends_with(last),
        "{stderr}"
    );
    // All epochs that were reported are in the log, and the run does go on.
    let done = rest.len() as u64 + 1;
    let epochs = (done + 1).to_string();
    let more = place.uopc(&[&BRIEF[..], &["--resume", "run", "--epochs", &epochs]].concat());
    assert_eq!(objects(&more.ok())[0]["epoch"], done + 1);
}

/// Without a C compiler training is slow, and works.
#[test]
fn without_a_compiler_the_interpreter_trains() {
    let place = Place::new();
    let small = [
        "train",
        "digits",
        "--json",
        "--batch-size",
        "1437",
        "--epochs",
        "1",
    ];
    let with = place.uopc(&small).ok();
    let without = place.command(&small).env("CC", "no-such-compiler").output();
    let without = Finished::from(without);
    assert_eq!(without.code, 0);
    assert_eq!(
        without.stderr,
        "warning: no C compiler: `no-such-compiler`, named by CC, was not found; the interpreter \
         runs everything, which is much slower; install a C compiler or set CC to one\n"
    );
    assert_eq!(bits(&with), bits(&without.stdout));
}
