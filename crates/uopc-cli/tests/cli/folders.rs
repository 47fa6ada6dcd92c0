//! The folders of runs: one process at a time, runs that ended early, and files that were edited
//! or damaged before a run goes on.

use std::fs;
use std::path::Path;

use crate::place::{BRIEF, Place, bits, read};
use crate::program::Finished;
use crate::train::{brief, train};
use serde_json::{Value, json};
use uopc::Tensor;
use uopc::io::safetensors;
use uopc_cli::failure::Failure;
use uopc_cli::train::folder::{CHECKPOINT, LOG, MODEL, RECORD, RunFolder};
use uopc_cli::train::record::Config;
use uopc_cli::train::{Event, Outcome, run};

/// A brief run with more arguments.
fn more(place: &Place, args: &[&str]) -> Finished {
    place.uopc(&[&BRIEF[..], args].concat())
}

#[track_caller]
fn refused(found: &Finished, code: i32, text: &str) {
    assert_eq!(
        (found.code, &found.stdout[..], &found.stderr[..]),
        (code, "", &format!("error: {text}\n")[..])
    );
}

/// Changes an entry of the folder's checkpoint.
fn set(folder: &Path, name: &str, value: Tensor) {
    let path = folder.join(CHECKPOINT);
    let mut all = safetensors::load(&path).unwrap();
    all.iter_mut().find(|(n, _)| n == name).unwrap().1 = value;
    safetensors::save(&path, &all).unwrap();
}

/// Changes the folder's record.
fn edit(folder: &Path, change: impl FnOnce(&mut Value)) {
    let mut record = serde_json::from_slice(&read(folder.join(RECORD))).unwrap();
    change(&mut record);
    fs::write(folder.join(RECORD), record.to_string()).unwrap();
}

#[test]
fn one_process_at_a_time_trains_in_a_folder() {
    let place = Place::new();
    let text = "run: another process trains in this folder; wait for its end, or choose another \
        folder";
    let held = RunFolder::named(&place.path("run")).unwrap();
    refused(&more(&place, &["--epochs", "1", "--out", "run"]), 1, text);
    drop(held);
    // The lock that is left behind is no content.
    more(&place, &["--epochs", "1", "--out", "run"]).ok();
    let held = RunFolder::existing(&place.path("run")).unwrap();
    let files = |name: &str| read(place.path("run").join(name));
    let before = [RECORD, LOG, CHECKPOINT].map(files);
    refused(
        &more(&place, &["--epochs", "2", "--resume", "run"]),
        1,
        text,
    );
    assert_eq!([RECORD, LOG, CHECKPOINT].map(files), before);
    drop(held);
    more(&place, &["--epochs", "2", "--resume", "run"]).ok();
}

/// A folder of other things is left as it was, and is no run to go on with.
#[test]
fn a_folder_of_other_things_is_left_alone() {
    let place = Place::new();
    fs::create_dir(place.path("things")).unwrap();
    fs::write(place.path("things/thing"), "").unwrap();
    let text = "things: the folder is not empty, and nothing is ever overwritten; choose another \
        --out";
    refused(&more(&place, &["--out", "things"]), 1, text);
    assert_eq!(fs::read_dir(place.path("things")).unwrap().count(), 1);
    for option in ["--out", "--resume"] {
        let text = "things/thing: this is a file; a run needs a folder";
        refused(&more(&place, &[option, "things/thing"]), 1, text);
    }
}

/// Whatever ends a run before its first step, it goes on as if nothing had happened.
#[test]
fn a_run_that_ended_before_its_first_step_goes_on() {
    let place = Place::new();
    let engine = place.engine();
    let config = brief(2);
    let folder = |name: &str| RunFolder::named(&place.path(name)).unwrap();
    let (whole, parts) = (folder("whole"), folder("parts"));
    let (_, losses) = train(&engine, &config, &whole, false, u64::MAX);
    let killed = run(
        &engine,
        &config,
        &parts,
        false,
        &|| false,
        &mut |_, event| {
            assert_eq!(*event, Event::Begin);
            Err(Failure::failed("killed"))
        },
    );
    assert_eq!(killed, Err(Failure::failed("killed")));
    place.uopc(&["eval", "--model", "parts", "--json"]).ok();
    let (outcome, rest) = train(&engine, &config, &parts, true, u64::MAX);
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!(rest, losses);
    for file in [MODEL, CHECKPOINT] {
        assert!(read(parts.file(file)) == read(whole.file(file)), "{file}");
    }
}

#[test]
fn a_run_that_can_t_begin_is_no_dead_end() {
    let place = Place::new();
    more(&place, &["--epochs", "1"]).ok();
    for args in [&[][..], &["--out", "run"]] {
        let mut failing = place.command(&[&BRIEF[..], args].concat());
        // Nothing in the cache of kernels may help.
        failing.env("UOPC_CACHE_DIR", place.path("other"));
        let failed = Finished::from(failing.env("CC", "/bin/false").output());
        assert_eq!(failed.code, 1, "{}", failed.stderr);
    }
    // The newest run is the newest that saved something.
    assert!(place.path("runs/digits-2").is_dir());
    place.uopc(&["eval"]).ok();
    more(&place, &["--epochs", "2", "--resume"]).ok();
    more(&place, &["--epochs", "1", "--out", "run"]).ok();
}

#[test]
fn a_loss_that_is_no_number_at_once_leaves_the_first_weights() {
    let place = Place::new();
    let failed = more(&place, &["--lr", "1e300", "--out", "run"]);
    assert_eq!(failed.code, 1);
    let text = "; a smaller --lr may help; what was saved is the state before the first step\n";
    assert!(failed.stderr.ends_with(text), "{}", failed.stderr);
    place.uopc(&["eval", "--model", "run"]).ok();
    // It goes on, to the same end.
    assert_eq!(more(&place, &["--resume", "run"]).stderr, failed.stderr);
}

#[test]
fn checkpoints_that_make_no_sense_are_refused() {
    let place = Place::new();
    more(&place, &["--epochs", "1", "--out", "run"]).ok();
    let folder = place.path("run");
    let good = read(folder.join(CHECKPOINT));
    let u64s = |values: &[u64]| Tensor::from_slice(values, [values.len()]).unwrap();
    for (name, value, text) in [
        (
            "progress.counters",
            u64s(&[u64::MAX, 0]),
            "progress.counters claims 18446744073709551615 epochs, more than a run can have",
        ),
        (
            "progress.counters",
            u64s(&[1, 4]),
            "step 4 of an epoch of 3 steps",
        ),
        (
            "progress.counters",
            Tensor::from_slice(&[1i32, 0], [2]).unwrap(),
            "progress.counters is i32 of shape (2,), but u64 of shape (2,) is wanted",
        ),
        (
            "model.output.bias",
            Tensor::from_slice(&[0f64; 10], [10]).unwrap(),
            "model.output.bias is f64 of shape (10,), but f32 of shape (10,) is wanted",
        ),
        (
            "optimizer.mean.3",
            Tensor::from_slice(&[0f32; 9], [9]).unwrap(),
            "optimizer.mean.3 is f32 of shape (9,), but f32 of shape (10,) is wanted",
        ),
        (
            "progress.seed",
            Tensor::from_slice(&[0f32], ()).unwrap(),
            "progress.seed is f32 of shape (), but u64 of shape () is wanted",
        ),
    ] {
        set(&folder, name, value);
        let found = more(&place, &["--resume", "run", "--epochs", "2"]);
        refused(&found, 1, &format!("run/checkpoint.safetensors: {text}"));
        fs::write(folder.join(CHECKPOINT), &good).unwrap();
    }
}

#[test]
fn records_that_were_edited_are_named() {
    let place = Place::new();
    more(&place, &["--epochs", "1", "--out", "run"]).ok();
    let folder = place.path("run");
    let good = read(folder.join(RECORD));
    let arguments = |key: &'static str, value: Value| {
        move |record: &mut Value| record["arguments"][key] = value.clone()
    };
    type Change = Box<dyn Fn(&mut Value)>;
    let changes: [(Change, &str); 5] = [
        (
            Box::new(arguments("lr", json!(-1.0))),
            "`lr` is -1: use a number above 0, such as 0.004",
        ),
        (
            Box::new(arguments("batch_size", json!(0))),
            "`batch_size` is 0: there are 1437 images to train with; use 1 to 1437",
        ),
        (
            Box::new(arguments("lr", json!(0.5))),
            "`lr` is 0.5, but the run began with 0.004; put that back",
        ),
        (
            Box::new(arguments("batch_size", json!(401))),
            "`batch_size` is 401, but the run began with 400; put that back",
        ),
        (
            Box::new(|record| record["seed"] = json!(3)),
            "`seed` is 3, but the run began with 0; put that back",
        ),
    ];
    for (change, text) in changes {
        edit(&folder, change);
        let found = place.uopc(&[
            "train", "digits", "--json", "--resume", "run", "--epochs", "2",
        ]);
        refused(&found, 1, &format!("run/run.json: {text}"));
        fs::write(folder.join(RECORD), &good).unwrap();
    }
    // A log that can't be read stops the run before its record says that it went on.
    let log = read(folder.join(LOG));
    fs::write(folder.join(LOG), [0xff]).unwrap();
    let found = more(&place, &["--resume", "run", "--epochs", "2"]);
    let text = "run/log.jsonl: can't read: stream did not contain valid UTF-8";
    refused(&found, 1, text);
    assert_eq!(read(folder.join(RECORD)), good);
    fs::write(folder.join(LOG), log).unwrap();
    let rest = more(&place, &["--resume", "run", "--epochs", "2"]).ok();
    assert_eq!(bits(&rest)[0]["epoch"], 2);
}

/// A run goes on with the very rate that it began with, not with a neighbour.
#[test]
fn a_record_keeps_every_bit_of_the_rate() {
    let place = Place::new();
    let folder = RunFolder::named(&place.path("run")).unwrap();
    let mut bits = 0.004f64.to_bits();
    for k in 0..300 {
        // Rates between 1e-6 and 1 with all of their digits.
        bits = bits
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let config = Config {
            lr: (bits >> 11) as f64 / (1u64 << 53) as f64 / f64::from(1 << (k % 20)),
            ..brief(1)
        };
        config.write(&folder).unwrap();
        assert_eq!(Config::read(&folder).unwrap(), config);
    }
}
