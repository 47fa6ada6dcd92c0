//! Tests on data that lies beside the checkout, in `../shared/data`, and is not part of it.
//!
//! Without that folder they are skipped and say so; with `UOPC_SHARED=required` they fail.

use std::fs;
use std::path::PathBuf;

use uopc::data::{digits, idx};

/// The folder, or `None` after a line that says that the test is skipped.
fn shared(file: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data")
        .join(file);
    if path.exists() {
        return Some(path);
    }
    let required = std::env::var("UOPC_SHARED").is_ok_and(|v| v == "required");
    assert!(
        !required,
        "UOPC_SHARED=required, but {} is not there",
        path.display()
    );
    println!("skipped: {} is not there", path.display());
    None
}

/// The file that ships with the crate is the published one, byte for byte.
#[test]
fn the_digits_are_the_published_ones() {
    let Some(path) = shared("digits.csv.gz") else {
        return;
    };
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/digits.csv.gz");
    assert!(
        fs::read(path).unwrap() == fs::read(own).unwrap(),
        "the copies differ"
    );
    let split = digits::load().unwrap();
    assert_eq!((split.train.len(), split.test.len()), (1437, 360));
}

/// The real files of MNIST: 10,000 images of 28x28, and the counts of their labels.
#[test]
fn mnist_files_are_read() {
    let Some(images) = shared("mnist/t10k-images-idx3-ubyte.gz") else {
        return;
    };
    let Some(labels) = shared("mnist/t10k-labels-idx1-ubyte.gz") else {
        return;
    };
    let test = idx::load(&images, &labels).unwrap();
    assert_eq!((test.len(), test.width), (10_000, 784));
    let count = |digit: i32| test.labels.iter().filter(|&&l| l == digit).count();
    let counts: Vec<usize> = (0..10).map(count).collect();
    assert_eq!(
        counts,
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    );
    assert!(test.pixels.iter().all(|p| (0.0..=1.0).contains(p)));
}
