//! Training with data in the form of MNIST, a few small files that the tests make themselves.

use std::fs;

use serde_json::Value;
use uopc::tensor::with_engine;
use uopc::{Tensor, io};
use uopc_cli::train::Outcome;
use uopc_cli::train::folder::{CHECKPOINT, LOG, MODEL, RECORD, RunFolder};
use uopc_cli::train::record::Config;
use uopc_cli::train::task::{Kind, Source, Task};

use crate::place::{Place, bits, objects, read};
use crate::train::train;

/// Images of 28 x 28 for each label, bright in a column of its own, with some noise.
fn write_data(place: &Place, folder: &str, train: usize, test: usize) {
    let folder = place.path(folder);
    fs::create_dir_all(&folder).unwrap();
    with_engine(&place.engine(), || {
        for (part, n) in [("train", train), ("t10k", test)] {
            let mut pixels = vec![0u8; n * 784];
            let mut labels = vec![0u8; n];
            for k in 0..n {
                labels[k] = (k % 10) as u8;
                for i in 0..784 {
                    let noise = (k * 31 + i * 17) % 64;
                    let bright = i % 28 / 2 == k % 10;
                    pixels[k * 784 + i] = (noise + if bright { 190 } else { 0 }) as u8;
                }
            }
            let images = Tensor::from_slice(&pixels, [n, 28, 28]).unwrap();
            // Images compressed and labels plain: both are read.
            let path = folder.join(format!("{part}-images-idx3-ubyte.gz"));
            io::idx::save(path, &images).unwrap();
            let path = folder.join(format!("{part}-labels-idx1-ubyte"));
            io::idx::save(path, &Tensor::from(labels)).unwrap();
        }
    });
}

fn config(place: &Place, kind: Kind, batch_size: usize, epochs: u64) -> Config {
    let source = Source {
        task: Task::Mnist,
        data: Some(place.path("data")),
    };
    Config {
        epochs,
        batch_size,
        ..Config::of(source, kind)
    }
}

/// Stopped before each step, the run that goes on has the same weights, to the last bit, as one that
/// nobody disturbed, and so has everything else that it saves.
#[test]
fn a_stopped_run_has_the_weights_of_an_undisturbed_one() {
    let place = Place::new();
    write_data(&place, "data", 25, 7);
    let engine = place.engine();
    let folder = |name: &str| RunFolder::named(&place.path(name)).unwrap();
    // 25 images fill two batches of 10, or four of 6: what is left out differs in each epoch.
    for (kind, size, stops) in [
        (Kind::Mlp, 6, vec![0, 1, 3, 4, 6, 7]),
        (Kind::Cnn, 10, vec![1, 3]),
    ] {
        let config = config(&place, kind, size, 2);
        let name = kind.name();
        let whole = folder(&format!("{name}-whole"));
        let (outcome, losses) = train(&engine, &config, &whole, false, u64::MAX);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        let steps = 25 / size as u64;
        assert_eq!(losses.len() as u64, 2 * steps);
        for stop_before in stops {
            let parts = folder(&format!("{name}-{stop_before}"));
            let (outcome, first) = train(&engine, &config, &parts, false, stop_before);
            let stopped = Outcome::Stopped {
                epoch: stop_before / steps + 1,
                step: stop_before % steps,
            };
            assert_eq!(outcome, stopped);
            let (outcome, second) = train(&engine, &config, &parts, true, u64::MAX);
            assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
            assert_eq!(
                [first, second].concat(),
                losses,
                "{name} before {stop_before}"
            );
            for file in [MODEL, CHECKPOINT, "training.svg"] {
                let same = read(parts.file(file)) == read(whole.file(file));
                assert!(same, "{name} before {stop_before}: {file}");
            }
            let log = |f: &RunFolder| bits(&String::from_utf8(read(f.file(LOG))).unwrap());
            assert_eq!(log(&parts), log(&whole));
        }
    }
}

/// The checkpoint has all that a run needs to go on.
#[test]
fn a_checkpoint_holds_the_whole_state() {
    let place = Place::new();
    write_data(&place, "data", 25, 7);
    let engine = place.engine();
    let folder = RunFolder::named(&place.path("run")).unwrap();
    train(&engine, &config(&place, Kind::Mlp, 6, 2), &folder, false, 6);
    with_engine(&engine, || {
        let saved = io::safetensors::open(folder.file(CHECKPOINT)).unwrap();
        let whole = |name: &str| saved.tensor(name).unwrap().to_vec::<u64>().unwrap();
        assert_eq!(whole("progress.counters"), [1, 2]);
        assert_eq!(whole("progress.images"), [25]);
        // The seed, and how often the first weights have drawn from it.
        assert_eq!(whole("progress.generator"), [0, 6]);
        let names = saved.names();
        for layer in ["hidden1", "hidden2", "output"] {
            for part in ["weight", "bias"] {
                let weights = format!("model.{layer}.{part}");
                assert!(names.contains(&weights), "{names:?}");
            }
        }
        let state = names.iter().filter(|n| n.starts_with("optimizer."));
        assert!(state.count() > 12, "{names:?}");
    });
}

/// From the command line: training, testing, going on from another folder, with moved data.
#[test]
fn mnist_from_the_shell() {
    let place = Place::new();
    write_data(&place, "data", 40, 20);
    let text = place.uopc(&[
        "train",
        "mnist",
        "--data",
        "data",
        "--batch-size",
        "20",
        "--epochs",
        "8",
    ]);
    let text = text.ok();
    let first =
        "mnist: MLP 784-512-256-10, AdamW, 8 epochs, batches of 20, learning rate 0.001, seed 0\n";
    assert!(text.starts_with(first), "{text}");
    // A column tells the label; a model that learns sees that.
    assert!(
        text.contains("\ntest accuracy 100.00% after 8 epochs; "),
        "{text}"
    );
    assert!(text.ends_with("uopc eval --model runs/mnist-1\n"), "{text}");
    let record: Value =
        serde_json::from_slice(&read(place.path("runs/mnist-1").join(RECORD))).unwrap();
    assert_eq!(record["task"], "mnist");
    assert_eq!(record["arguments"]["model"], "mlp");
    assert_eq!(
        record["arguments"]["data"],
        place.path("data").to_str().unwrap()
    );

    let log = String::from_utf8(read(place.path("runs/mnist-1").join(LOG))).unwrap();
    let last = objects(&log).pop().unwrap();
    for args in [
        &["eval", "--json"][..],
        &["eval", "--json", "--model", "runs/mnist-1"],
    ] {
        let tested = objects(&place.uopc(args).ok()).remove(0);
        assert_eq!(tested["test_accuracy"], last["test_accuracy"]);
        assert_eq!(
            (tested["images"].as_u64(), tested["right"].as_u64()),
            (Some(20), Some(20))
        );
    }
    let words = place.uopc(&["eval"]).ok();
    let model = "model     runs/mnist-1/model.safetensors (784-512-256-10, 535,818 parameters)\n";
    assert!(words.starts_with(model), "{words}");

    // The data has moved.
    fs::rename(place.path("data"), place.path("moved")).unwrap();
    let more = ["train", "mnist", "--resume", "--epochs", "9", "--json"];
    let gone = place.uopc(&more);
    assert_eq!(gone.code, 1);
    assert!(
        gone.stderr
            .contains("data: there is no train-images-idx3-ubyte"),
        "{}",
        gone.stderr
    );
    let done = place.uopc(&[&more[..], &["--data", "moved"]].concat()).ok();
    assert_eq!(objects(&done)[0]["epoch"], 9);
    let tested = place.uopc(&["eval", "--json"]).ok();
    assert_eq!(objects(&tested)[0]["images"], 20);
    // A file of weights alone does not say where the data is.
    fs::copy(
        place.path("runs/mnist-1").join(MODEL),
        place.path("w.safetensors"),
    )
    .unwrap();
    let alone = place.uopc(&["eval", "--model", "w.safetensors"]);
    assert_eq!(alone.code, 2);
    assert!(
        alone.stderr.starts_with("error: mnist needs --data DIR"),
        "{}",
        alone.stderr
    );
    place
        .uopc(&["eval", "--model", "w.safetensors", "--data", "moved"])
        .ok();
    // Other data of the same form.
    write_data(&place, "other", 30, 20);
    let other = place.uopc(&[
        "train", "mnist", "--resume", "--epochs", "10", "--data", "other",
    ]);
    let text = "error: runs/mnist-1/checkpoint.safetensors: the run began with 40 images, and there are 30 \
        now; it goes on with the same data alone\n";
    assert_eq!((other.code, &other.stderr[..]), (1, text));
}

#[test]
fn arguments_that_do_not_go_together() {
    let place = Place::new();
    write_data(&place, "data", 12, 4);
    let args = [
        "train",
        "mnist",
        "--data",
        "data",
        "--batch-size",
        "12",
        "--epochs",
        "1",
        "--out",
        "run",
    ];
    place.uopc(&args).ok();
    fs::create_dir(place.path("empty")).unwrap();
    let there = place.path("empty");
    let there = there.display();
    let missing = format!(
        "{there}: there is no train-images-idx3-ubyte in this folder, nor train-images-idx3-ubyte.gz"
    );
    for (args, code, text) in [
        (
            &["train", "mnist"][..],
            2,
            "mnist needs --data DIR, a folder with the four files of MNIST, such as \
             train-images-idx3-ubyte.gz",
        ),
        (&["train", "mnist", "--data", "empty"], 1, &missing),
        (
            &["train", "mnist", "--data", "data", "--batch-size", "13"],
            2,
            "--batch-size 13: there are 12 images to train with; use 1 to 12",
        ),
        (
            &["train", "digits", "--model", "cnn"],
            2,
            "--model cnn: the digits are too small for it; use mlp, or learn mnist",
        ),
        (
            &["train", "digits", "--data", "data"],
            2,
            "--data: the digits come with the program; leave it out, or learn mnist",
        ),
        (
            &["train", "digits", "--resume", "run"],
            2,
            "run is a run of mnist, not of digits; say uopc train mnist",
        ),
        (
            &[
                "train", "mnist", "--resume", "run", "--model", "cnn", "--epochs", "2",
            ],
            2,
            "--model cnn: the run in run has mlp, which can't change; leave it out",
        ),
    ] {
        let found = place.uopc(args);
        assert_eq!(
            (found.code, found.stderr),
            (code, format!("error: {text}\n")),
            "{args:?}"
        );
    }
    // Images of another size.
    with_engine(&place.engine(), || {
        for part in ["train", "t10k"] {
            let path = place
                .path("data")
                .join(format!("{part}-images-idx3-ubyte.gz"));
            let n = if part == "train" { 12 } else { 4 };
            let small = Tensor::zeros([n, 14, 14])
                .unwrap()
                .cast(uopc::DType::U8)
                .unwrap();
            io::idx::save(path, &small).unwrap();
        }
    });
    let found = place.uopc(&["train", "mnist", "--data", "data", "--batch-size", "4"]);
    assert_eq!(found.code, 1);
    let text = "data: images of 196 pixels, but the models take 784\n";
    assert!(found.stderr.ends_with(text), "{}", found.stderr);
}
