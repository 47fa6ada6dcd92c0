//! Weights from one format to another.

use std::fs;

use uopc::tensor::with_engine;
use uopc::{DType, Tensor, io};

use crate::place::{Place, objects};

/// Tensors of every dtype, with names as models have them.
fn write(place: &Place, name: &str) -> Vec<(String, Tensor)> {
    with_engine(&place.engine(), || {
        let source = Tensor::from([[0.0f32, 1.0, 2.5], [3.0, 100.0, 7.0]]);
        let named = |d: DType| (format!("layer.{d}"), source.cast(d).unwrap());
        let mut all: Vec<(String, Tensor)> = DType::ALL.into_iter().map(named).collect();
        all.push(("scale".into(), Tensor::scalar(0.5).unwrap()));
        let notes = [("license".to_string(), "none".to_string())];
        io::safetensors::save_with(place.path(name), &all, &notes).unwrap();
        all
    })
}

#[track_caller]
fn equal(place: &Place, file: &str, wanted: &[(String, Tensor)]) {
    with_engine(&place.engine(), || {
        let found = io::load(place.path(file)).unwrap();
        assert_eq!(found.len(), wanted.len(), "{file}");
        for (name, t) in &found {
            let (_, s) = wanted.iter().find(|(n, _)| n == name).unwrap();
            assert_eq!(
                (t.dtype(), t.shape()),
                (s.dtype(), s.shape()),
                "{file} {name}"
            );
            assert_eq!(
                t.to_bytes().unwrap(),
                s.to_bytes().unwrap(),
                "{file} {name}"
            );
        }
    });
}

/// What is said where metadata goes.
const NO_METADATA: &str = "warning: npz has no place for metadata; left out: license\n";

/// Round and round through all formats: not a bit changes, and the last file is the first one.
#[test]
fn every_format_to_every_other() {
    let place = Place::new();
    let all = write(&place, "a.safetensors");
    let convert = |args: &[&str]| place.uopc(&[&["convert"], args].concat()).ok();
    let said = convert(&["a.safetensors", "b", "--shard", "40"]);
    assert_eq!(said, "14 tensors, 286 bytes, safetensors to sharded: b\n");
    assert!(fs::read_dir(place.path("b")).unwrap().count() > 5);
    equal(&place, "b", &all);
    convert(&["b/model.safetensors.index.json", "c.safetensors"]);
    let same =
        |a: &str, b: &str| fs::read(place.path(a)).unwrap() == fs::read(place.path(b)).unwrap();
    assert!(
        same("a.safetensors", "c.safetensors"),
        "metadata goes along"
    );
    for args in [
        &["convert", "c.safetensors", "d.npz"][..],
        &["convert", "b", "e.npz", "--compress"],
    ] {
        let found = place.uopc(args);
        assert_eq!(
            (found.code, &found.stderr[..]),
            (0, NO_METADATA),
            "{args:?}"
        );
    }
    let size = |file: &str| fs::metadata(place.path(file)).unwrap().len();
    assert!(size("e.npz") < size("d.npz"));
    convert(&["e.npz", "f.weights", "--to", "safetensors"]);
    convert(&["d.npz", "g/"]);
    for file in ["d.npz", "e.npz", "f.weights", "g"] {
        equal(&place, file, &all);
    }
    convert(&["d.npz", "h.npy", "--only", "layer.i16"]);
    let one: Vec<_> = all
        .iter()
        .filter(|(n, _)| n == "layer.i16")
        .cloned()
        .collect();
    equal(&place, "h.npy", &[("h".to_string(), one[0].1.clone())]);
    convert(&["h.npy", "i.safetensors"]);
    equal(
        &place,
        "i.safetensors",
        &[("h".to_string(), one[0].1.clone())],
    );
    let said = convert(&[
        "d.npz",
        "j.npz",
        "--only",
        "scale",
        "--only",
        "layer.i16",
        "--json",
    ]);
    let said = objects(&said).remove(0);
    assert_eq!(
        said,
        serde_json::json!({"from": "npz", "to": "npz", "tensors": 2, "bytes": 16, "output": "j.npz"})
    );
}

#[test]
fn what_is_lost_is_said() {
    let place = Place::new();
    write(&place, "a.safetensors");
    let found = place.uopc(&["convert", "a.safetensors", "b.npz"]);
    assert_eq!((found.code, &found.stderr[..]), (0, NO_METADATA));
}

#[test]
fn conversions_that_can_t_be() {
    let place = Place::new();
    write(&place, "a.safetensors");
    fs::write(place.path("old.npz"), "precious").unwrap();
    fs::create_dir(place.path("full")).unwrap();
    fs::write(place.path("full/file"), "").unwrap();
    fs::write(
        place.path("evil.index.json"),
        "{\"weight_map\": {\"a\": \"../a.safetensors\"}}",
    )
    .unwrap();
    for (args, code, text) in [
        (
            &["a.safetensors", "b.pt"][..],
            2,
            "b.pt: the name says no format; use --to with one of safetensors, sharded, npz, npy",
        ),
        (
            &["a.safetensors", "b.npz", "--shard", "1M"],
            2,
            "--shard is for a folder of files alone",
        ),
        (
            &["a.safetensors", "b", "--compress"],
            2,
            "--compress is for npz alone",
        ),
        (
            &["none", "b.npz"],
            1,
            "none: can't be read: No such file or directory (os error 2)",
        ),
        (
            &["a.safetensors", "b.npy"],
            1,
            "b.npy: an npy file holds one array, not 14; use npz, or safetensors",
        ),
        (
            &["a.safetensors", "b.npz", "--only", "scales"],
            1,
            "a.safetensors: has no tensor scales; it has layer.bf16, layer.bool, layer.f16, \
             layer.f32, layer.f64, layer.i16, layer.i32, layer.i64, layer.i8, layer.u16, layer.u32, \
             layer.u64, layer.u8, scale",
        ),
        (
            &["a.safetensors", "old.npz"],
            1,
            "old.npz: the file exists; choose another name, or replace it with --force",
        ),
        (
            &["a.safetensors", "full", "--force"],
            1,
            "full: the folder is not empty, and nothing in it is ever overwritten; choose another",
        ),
        (
            &["a.safetensors", "full", "--to", "npz"],
            1,
            "full: this is a folder; npz is a file",
        ),
        (
            &["evil.index.json", "b.npz"],
            1,
            "evil.index.json: `weight_map`: a is in \"../a.safetensors\", which is no file of the \
             same folder",
        ),
        (&["old.npz", "b.safetensors"], 1, "old.npz: "),
    ] {
        let found = place.uopc(&[&["convert"], args].concat());
        let starts = found.stderr.starts_with(&format!("error: {text}"));
        assert!(
            found.code == code && starts,
            "{args:?} {}: {}",
            found.code,
            found.stderr
        );
        assert!(!place.path("b.npz").exists() && !place.path("b").exists());
    }
    assert_eq!(fs::read(place.path("old.npz")).unwrap(), b"precious");
    let forced = place.uopc(&["convert", "a.safetensors", "old.npz", "--force"]);
    assert_eq!(forced.code, 0);
    assert!(fs::read(place.path("old.npz")).unwrap().starts_with(b"PK"));
    // Onto itself: read before it is replaced.
    let before = fs::read(place.path("a.safetensors")).unwrap();
    place
        .uopc(&["convert", "a.safetensors", "a.safetensors", "--force"])
        .ok();
    assert_eq!(fs::read(place.path("a.safetensors")).unwrap(), before);
}
