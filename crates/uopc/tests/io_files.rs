//! Files written by NumPy, by the package safetensors, and by this crate: they read back to the bit.

mod tensors;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tensors::*;
use uopc::io::csv::Options;
use uopc::io::{Format, csv, idx, npy, npz, safetensors, sharded, text};
use uopc::{DType, Tensor, io};

fn fixtures() -> Value {
    serde_json::from_str(include_str!("fixtures/io.json")).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks_exact(2);
    let byte = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

fn dtype(name: &str) -> DType {
    let found = DType::ALL.into_iter().find(|d| d.to_string() == name);
    found.unwrap_or_else(|| panic!("no dtype {name}"))
}

/// Asserts that a tensor is what the fixture says.
#[track_caller]
fn same(found: &Tensor, wanted: &Value, name: &str) {
    let shape: Vec<usize> = serde_json::from_value(wanted["shape"].clone()).unwrap();
    assert_eq!(
        found.dtype(),
        dtype(wanted["dtype"].as_str().unwrap()),
        "{name}"
    );
    assert_eq!(found.shape()[..], shape[..], "{name}");
    let data = unhex(wanted["data"].as_str().unwrap());
    assert_eq!(found.to_bytes().unwrap(), data, "{name}");
}

/// Writes the fixtures into a folder.
fn unpack(folder: &Path, all: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for (name, file) in all.as_object().unwrap() {
        let Some(bytes) = file["bytes"].as_str() else {
            continue;
        };
        fs::write(folder.join(name), unhex(bytes)).unwrap();
        names.push(name.clone());
    }
    names
}

#[test]
fn files_of_the_reference_packages_are_read() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let all = fixtures();
    let mut count = 0;
    for name in unpack(folder.path(), &all) {
        let path = folder.path().join(&name);
        let wanted = all[&name]["tensors"].as_object().unwrap();
        if name.contains("-idx") {
            same(&idx::load(&path).unwrap(), &wanted["idx"], &name);
            continue;
        }
        if name.ends_with(".csv") {
            let options = Options {
                header: true,
                dtype: DType::F64,
                ..Options::default()
            };
            let table = csv::load(&path, &options).unwrap();
            assert_eq!(table.columns, ["left", "right"]);
            same(&table.values, &wanted["table"], &name);
            continue;
        }
        let opened = io::open(&path).unwrap();
        let mut names: Vec<&String> = wanted.keys().collect();
        names.sort();
        assert_eq!(opened.names().iter().collect::<Vec<_>>(), names, "{name}");
        for (key, value) in wanted {
            let (d, shape) = opened.info(key).unwrap();
            let t = opened.tensor(key).unwrap();
            assert_eq!((d, &shape), (t.dtype(), t.shape()), "{name} {key}");
            same(&t, value, &format!("{name}, {key}, on demand"));
            count += 1;
        }
        for (key, t) in io::load(&path).unwrap() {
            same(&t, &wanted[&key], &format!("{name}, {key}, at once"));
        }
    }
    assert!(count > 80, "{count}");
    let noted = io::open(folder.path().join("noted.safetensors")).unwrap();
    let notes = noted.metadata();
    assert_eq!((notes["format"].as_str(), notes["a"].as_str()), ("np", "b"));
    let index = sharded::open(folder.path()).unwrap();
    assert_eq!(index.metadata()["total_size"], "84");
}

/// The package reads a file the way it was written: byte for byte the same.
#[test]
fn npy_files_are_those_of_numpy() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let all = fixtures();
    let mut count = 0;
    for name in unpack(folder.path(), &all) {
        // What NumPy wrote in its own default form.
        let plain = name.ends_with(".npy")
            && !["_big", "fortran", "version"]
                .iter()
                .any(|part| name.contains(part));
        if plain {
            let path = folder.path().join(&name);
            let tensor = npy::load(&path).unwrap();
            let own = folder.path().join("own.npy");
            npy::save(&own, &tensor).unwrap();
            assert_eq!(fs::read(&own).unwrap(), fs::read(&path).unwrap(), "{name}");
            count += 1;
        }
    }
    assert_eq!(count, 16);
}

/// The same of safetensors, where nothing stands beside the tensors but what this crate adds.
#[test]
fn safetensors_have_the_layout_of_the_package() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let all = fixtures();
    unpack(folder.path(), &all);
    let tensors = safetensors::load(folder.path().join("all.safetensors")).unwrap();
    let own = folder.path().join("own.safetensors");
    safetensors::save(&own, &tensors).unwrap();
    let parts = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(n % 8, 0);
        let text = String::from_utf8(bytes[8..8 + n].to_vec()).unwrap();
        (text.trim_end().to_string(), bytes[8 + n..].to_vec())
    };
    let (theirs, ours) = (parts(&folder.path().join("all.safetensors")), parts(&own));
    assert_eq!(theirs.1, ours.1);
    let note = "\"__metadata__\":{\"uopc\":\"1\"},";
    assert_eq!(ours.0.replace(note, ""), theirs.0);
}

/// Every dtype, also of no axis and of no element, through every format.
fn everything() -> Vec<(String, Tensor)> {
    let source = Tensor::from([0.0f32, 1.0, 3.0, 0.5, 100.0, 2.0])
        .reshape([2, 3])
        .unwrap();
    let cast = |d: DType| (d.to_string(), source.cast(d).unwrap());
    let mut all: Vec<(String, Tensor)> = DType::ALL.into_iter().map(cast).collect();
    all.push(("scalar".into(), Tensor::scalar(1.5).unwrap()));
    all.push(("a/b.c \"ä\"".into(), Tensor::from([-0.0f32, f32::NAN])));
    all.push(("empty".into(), Tensor::zeros([0, 2]).unwrap()));
    all
}

#[track_caller]
fn equal(found: &[(String, Tensor)], saved: &[(String, Tensor)]) {
    assert_eq!(found.len(), saved.len());
    for (name, t) in found {
        let (_, s) = saved.iter().find(|(n, _)| n == name).unwrap();
        assert_eq!((t.dtype(), t.shape()), (s.dtype(), s.shape()), "{name}");
        assert_eq!(t.to_bytes().unwrap(), s.to_bytes().unwrap(), "{name}");
    }
}

#[test]
fn what_is_saved_comes_back() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let all = everything();
    for file in ["a.safetensors", "a.npz", "a.weights", "shards/"] {
        let path = folder.path().join(file);
        io::save(&path, &all).unwrap();
        equal(&io::load(&path).unwrap(), &all);
        equal(&io::open(&path).unwrap().tensors().unwrap(), &all);
    }
    let packed = folder.path().join("packed.npz");
    npz::save_compressed(&packed, &all).unwrap();
    equal(&io::load(&packed).unwrap(), &all);
    for (_, t) in &all {
        let path = folder.path().join("one.npy");
        let one = [("one".to_string(), t.clone())];
        io::save(&path, &one).unwrap();
        equal(&io::load(&path).unwrap(), &one);
    }
    for d in [
        DType::U8,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::F32,
        DType::F64,
    ] {
        for file in ["t-idx", "t-idx.gz"] {
            let path = folder.path().join(file);
            let t = all[0].1.cast(d).unwrap();
            idx::save(&path, &t).unwrap();
            let packed = fs::read(&path).unwrap().starts_with(&[0x1f, 0x8b]);
            assert_eq!(packed, file.ends_with(".gz"));
            let found = idx::load(&path).unwrap();
            assert_eq!(found.to_bytes().unwrap(), t.to_bytes().unwrap());
        }
    }
    // Equal tensors make equal files.
    let bytes = |file: &str| {
        let path = folder.path().join(file);
        io::save(&path, &all).unwrap();
        fs::read(&path).unwrap()
    };
    assert_eq!(bytes("b.npz"), bytes("c.npz"));
    assert_eq!(bytes("b.safetensors"), bytes("c.safetensors"));
}

#[test]
fn shards_are_filled_in_order() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model");
    let tensor = |name: &str, n: usize| (name.to_string(), Tensor::ones([n]).unwrap());
    let all = [
        tensor("a", 2),
        tensor("b", 1),
        tensor("c", 9),
        tensor("d", 1),
    ];
    let notes = [("made by".to_string(), "hand".to_string())];
    sharded::save(&path, &all, 12, &notes).unwrap();
    let mut files: Vec<String> = fs::read_dir(&path)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(
        files,
        [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json"
        ]
    );
    let index: Value =
        serde_json::from_slice(&fs::read(path.join(sharded::INDEX)).unwrap()).unwrap();
    assert_eq!(index["weight_map"]["b"], files[0]);
    assert_eq!(index["weight_map"]["c"], files[1]);
    assert_eq!(index["metadata"]["total_size"], 52);
    let opened = sharded::open(&path).unwrap();
    assert_eq!(opened.metadata()["made by"], "hand");
    // Only the file of a tensor that is asked for is opened.
    fs::remove_file(path.join(&files[1])).unwrap();
    assert_eq!(opened.tensor("d").unwrap().to_vec::<f32>().unwrap(), [1.0]);
    let error = opened.tensor("c").unwrap_err().to_string();
    assert!(
        error.contains("model-00002-of-00003.safetensors: can't be read"),
        "{error}"
    );
    // Nothing else lies beside the folder.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = sharded::save(&path, &all, 12, &[]).unwrap_err().to_string();
    assert!(error.contains("the folder is not empty"), "{error}");
}

/// A tensor of an opened file is the file's memory: nothing is copied, and nothing read before.
#[test]
fn opened_files_are_read_in_place() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    for file in ["a.safetensors", "a.npy"] {
        let path = folder.path().join(file);
        let x = Tensor::arange(1000).unwrap().cast(DType::F32).unwrap();
        io::save(&path, &[("a".to_string(), x.clone())]).unwrap();
        let opened = io::open(&path).unwrap();
        let a = opened.tensor("a").unwrap();
        assert!(a.memory().unwrap().is_foreign(), "{file}");
        let copied = io::load(&path).unwrap().remove(0).1;
        assert!(!copied.memory().unwrap().is_foreign(), "{file}");
        // The file is replaced, and the tensor keeps what it was.
        io::save(&path, &[("a".to_string(), Tensor::zeros([1000]).unwrap())]).unwrap();
        drop(opened);
        let sum = (&a * 2.0).sum(..).unwrap().item().unwrap();
        assert_eq!(sum, 999_000.0);
        assert_eq!(a.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    }
}

#[test]
fn a_file_that_can_t_be_written_leaves_the_old_one() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let good = [("a".to_string(), Tensor::from([1.0f32]))];
    // Twice the same name: refused before anything is written.
    let bad = [good[0].clone(), good[0].clone()];
    for file in ["a.safetensors", "a.npz", "a.npy"] {
        let path = folder.path().join(file);
        io::save(&path, &good).unwrap();
        assert!(io::save(&path, &bad).is_err());
        equal(
            &io::load(&path)
                .unwrap()
                .into_iter()
                .map(|(_, t)| ("a".to_string(), t))
                .collect::<Vec<_>>(),
            &good,
        );
        let nowhere = folder.path().join("none").join(file);
        let error = io::save(&nowhere, &good).unwrap_err().to_string();
        assert!(error.contains("can't be created"), "{error}");
    }
    // No part of a file is left behind.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn tables() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let load = |text: &str, options: &Options| {
        fs::write(&path, text).unwrap();
        csv::load(&path, options).unwrap()
    };
    let plain = Options::default();
    let table = load("1, 2\n\"3\",4e-1\n\n-inf,NaN\n", &plain);
    assert!(table.columns.is_empty());
    assert_eq!(table.values.shape()[..], [3, 2]);
    let found = table.values.to_vec::<f32>().unwrap();
    assert_eq!(found[..5], [1.0, 2.0, 3.0, 0.4, f32::NEG_INFINITY]);
    assert!(found[5].is_nan());
    // The last line may have no end; a mark of the byte order is no part of a name.
    let named = Options {
        header: true,
        delimiter: ';',
        dtype: DType::I64,
        missing: Some(-1.0),
    };
    let table = load("\u{feff}a;b\r\n9007199254740993;\r\n;-3", &named);
    assert_eq!(table.columns, ["a", "b"]);
    assert_eq!(
        table.values.to_vec::<i64>().unwrap(),
        [9007199254740993, -1, -1, -3]
    );
    assert_eq!(load("", &plain).values.shape()[..], [0, 0]);
    assert_eq!(load("a;b\n", &named).values.shape()[..], [0, 2]);
    let tabs = Options {
        delimiter: '\t',
        ..Options::default()
    };
    assert_eq!(load("1\t2\n", &tabs).values.shape()[..], [1, 2]);

    let strange = [1e-45f64, f64::MAX, -0.0, 0.1, f64::INFINITY, 1.0 / 3.0];
    let x = Tensor::from_slice(&strange, [3, 2]).unwrap();
    let columns = ["a, b".to_string(), "c \"d\"".to_string()];
    csv::save(&path, &x, &columns).unwrap();
    let options = Options {
        header: true,
        dtype: DType::F64,
        ..Options::default()
    };
    let table = csv::load(&path, &options).unwrap();
    assert_eq!(table.columns, columns);
    assert_eq!(table.values.to_bytes().unwrap(), x.to_bytes().unwrap());
    for d in DType::ALL {
        let x = Tensor::from([[0.0f32, 1.0], [1.0, 0.0]]).cast(d).unwrap();
        csv::save(&path, &x, &[]).unwrap();
        let options = Options {
            dtype: d,
            ..Options::default()
        };
        let found = csv::load(&path, &options).unwrap().values;
        assert_eq!(found.to_bytes().unwrap(), x.to_bytes().unwrap(), "{d}");
    }
}

#[test]
fn texts() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.txt");
    text::save(&path, "hällo\n").unwrap();
    let read = text::load(&path).unwrap();
    assert_eq!(read, "hällo\n");
    assert_eq!(text::load_bytes(&path).unwrap().shape()[..], [7]);
    let alphabet = text::Alphabet::of(&read);
    assert_eq!(alphabet.characters(), ['\n', 'h', 'l', 'o', 'ä']);
    let tokens = alphabet.encode(&read).unwrap().to_vec::<i32>().unwrap();
    assert_eq!(alphabet.decode(&tokens).unwrap(), read);
    assert_eq!(
        alphabet.encode("hallo").unwrap_err().to_string(),
        "encode: 'a', character 1 of the text, is none of the 5 of the alphabet"
    );
    assert_eq!(
        alphabet.decode(&[0, -1]).unwrap_err().to_string(),
        "decode: -1 stands for no character; there are 5, from 0 on"
    );
}

#[test]
fn formats_have_names() {
    for format in Format::ALL {
        assert_eq!(Format::named(format.name()).unwrap(), format);
    }
    assert_eq!(
        Format::named("pt").unwrap_err().to_string(),
        "\"pt\" is no format of tensors; use one of safetensors, sharded, npz, npy"
    );
}
