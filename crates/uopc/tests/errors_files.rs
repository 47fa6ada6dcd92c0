//! The exact text of every error that files of weights and of data can give.

mod tensors;

use std::fs;
use std::path::Path;

use tensors::*;
use uopc::io::safetensors;
use uopc::nn::{Linear, Module};
use uopc::{DType, Tensor, data};

fn floats(shape: &[usize]) -> Tensor {
    Tensor::from_slice(&vec![1.0f32; shape.iter().product()], shape).unwrap()
}

/// The text of a file's error, without the path before it.
fn file_error<T>(result: uopc::Result<T>, path: &Path) -> String {
    let error = result.map(drop).expect_err("it is refused").to_string();
    let message = error.strip_prefix(&format!("{}: ", path.display()));
    message.unwrap_or_else(|| panic!("{error}")).to_string()
}

#[test]
fn malformed_safetensors() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let load = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        file_error(safetensors::load(&path), &path)
    };
    let header = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();

    assert_eq!(
        load(b"abc"),
        "3 bytes are fewer than the header needs: truncated, or no safetensors file"
    );
    assert_eq!(
        load(b"PK\x03\x04, a zip file"),
        "its first 8 bytes claim a header above 100 MB: no safetensors file"
    );
    assert_eq!(
        load(&[&50u64.to_le_bytes()[..], b"{}"].concat()),
        "10 bytes are fewer than the header needs: truncated, or no safetensors file"
    );
    let text = load(&header("no json at all"));
    assert!(
        text.starts_with("no safetensors file, or a damaged one: "),
        "{text}"
    );

    let whole = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    assert_eq!(
        load(&[header(whole), vec![0; 5]].concat()),
        "the tensors in its header do not fill its 67 bytes: truncated, or damaged"
    );
    assert_eq!(
        load(&[header(whole), vec![0; 12]].concat()),
        "the tensors in its header do not fill its 74 bytes: truncated, or damaged"
    );
    // Sizes that no machine has: refused by comparison, not by an allocation that fails.
    let huge = r#"{"w":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}}"#;
    assert!(load(&[header(huge), vec![0; 8]].concat()).starts_with("damaged: "));
    let huge = r#"{"w":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}"#;
    assert!(load(&[header(huge), vec![0; 8]].concat()).contains("truncated, or damaged"));
    let overlap = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#;
    assert!(load(&[header(overlap), vec![0; 12]].concat()).starts_with("damaged: "));
    let strange = r#"{"w":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}"#;
    assert_eq!(
        load(&[header(strange), vec![0; 8]].concat()),
        "w has dtype F8_E4M3, which uopc does not have"
    );
    fs::remove_file(&path).unwrap();
    let text = file_error(safetensors::load(&path), &path);
    assert!(text.starts_with("can't be read: "), "{text}");
}

#[test]
fn safetensors_that_belong_to_something_else() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let named = |list: &[(&str, Tensor)]| -> Vec<(String, Tensor)> {
        list.iter()
            .map(|(name, t)| (name.to_string(), t.clone()))
            .collect()
    };
    safetensors::save(&path, &named(&[("a", floats(&[2])), ("b", floats(&[3]))])).unwrap();
    let into =
        |list: &[(&str, Tensor)]| file_error(safetensors::load_into(&path, &named(list)), &path);
    let a = floats(&[2]);
    assert_eq!(into(&[("c", a.clone())]), "has no tensor c; it has a, b");
    assert_eq!(
        into(&[("a", a.clone())]),
        "has a tensor b, which nothing here is called"
    );
    assert_eq!(
        into(&[("a", a.clone()), ("b", a.clone())]),
        "b is f32 of shape (3,), but f32 of shape (2,) is wanted"
    );
    let wide = Tensor::from([1.0, 2.0]);
    assert_eq!(
        into(&[("a", wide), ("b", floats(&[3]))]),
        "a is f32 of shape (2,), but f64 of shape (2,) is wanted"
    );
    let twice = named(&[("a", a.clone()), ("a", a.clone())]);
    assert_eq!(
        file_error(safetensors::save(&path, &twice), &path),
        "two tensors are called a"
    );
    let nowhere = folder.path().join("no such folder").join("x");
    let text = file_error(safetensors::save(&nowhere, &named(&[("a", a)])), &nowhere);
    assert!(text.starts_with("can't be created: "), "{text}");
}

#[test]
fn safetensors_keep_every_dtype() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let source = Tensor::from([0.0f32, 1.0, 3.0]);
    let all = DType::ALL
        .iter()
        .map(|d| (d.to_string(), source.cast(*d).unwrap()));
    let mut all: Vec<(String, Tensor)> = all.collect();
    all.push(("scalar".into(), Tensor::scalar(1.5).unwrap()));
    all.push(("empty".into(), Tensor::zeros([0, 2]).unwrap()));
    safetensors::save(&path, &all).unwrap();
    let found = safetensors::load(&path).unwrap();
    assert_eq!(found.len(), all.len());
    for (name, t) in &found {
        let (_, saved) = all.iter().find(|(n, _)| n == name).unwrap();
        assert_eq!(
            (t.dtype(), t.shape()),
            (saved.dtype(), saved.shape()),
            "{name}"
        );
        assert_eq!(t.to_bytes().unwrap(), saved.to_bytes().unwrap(), "{name}");
    }
    let layer = Linear::new(2, 2).unwrap();
    assert!(layer.load(&path).is_err());
}

#[test]
fn malformed_idx_files() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let (images, labels) = (folder.path().join("images"), folder.path().join("labels"));
    let write = |path: &Path, words: &[u32], data: &[u8]| {
        let header: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        fs::write(path, [&header[..], data].concat()).unwrap();
    };
    let load = || data::idx::load(&images, &labels);
    write(&images, &[0x803, 2, 1, 2], &[0, 51, 102, 255]);
    write(&labels, &[0x801, 2], &[7, 3]);
    let found = load().unwrap();
    assert_eq!(
        (found.pixels, found.labels),
        (vec![0.0, 0.2, 0.4, 1.0], vec![7, 3])
    );

    write(&labels, &[0x801, 3], &[7, 3, 1]);
    let text = format!("has 3 labels, but {} has 2 images", images.display());
    assert_eq!(file_error(load(), &labels), text);
    write(&images, &[0x803, u32::MAX, u32::MAX, u32::MAX], &[0; 4]);
    assert_eq!(
        file_error(load(), &images),
        "claims extents [4294967295, 4294967295, 4294967295] of u8, but 4 bytes follow the header"
    );
    write(&images, &[0x801, 2], &[0; 2]);
    assert_eq!(
        file_error(load(), &images),
        "begins with 0x00000801, not 0x00000803: another kind of file"
    );
    write(&images, &[0x803, 2], &[]);
    assert_eq!(file_error(load(), &images), "ends within its header");
    fs::write(&images, [1, 2]).unwrap();
    assert_eq!(
        file_error(load(), &images),
        "is too short to be an IDX file"
    );
    fs::write(&images, [0x1f, 0x8b, 8, 0]).unwrap();
    assert!(file_error(load(), &images).starts_with("can't be unpacked: "));
}
