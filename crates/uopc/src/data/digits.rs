//! Handwritten digits, 8 by 8 pixels, from the UCI repository.
//!
//! "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (1998), CC BY 4.0,
//! <https://doi.org/10.24432/C50P49>: the 1,797 images of the test part.

use std::io::Read;
use std::path::PathBuf;

use flate2::read::GzDecoder;

use super::Labelled;
use crate::error::{Error, Result};

/// Rows of 64 pixels from 0 to 16 and a label, without a header.
const FILE: &[u8] = include_bytes!("../../data/digits.csv.gz");
const NAME: &str = "data/digits.csv.gz";

/// Pixels an image has.
pub const PIXELS: usize = 64;
/// Digits to tell apart.
pub const CLASSES: usize = 10;
/// The pixel value that becomes 1.
const WHITE: f32 = 16.0;
/// Every fifth image, from the first on, is for the test.
const TEST_EVERY: usize = 5;

/// The digits for training and those for the test.
#[derive(Clone, Debug)]
pub struct Digits {
    /// 1,437 images.
    pub train: Labelled,
    /// 360 images: those whose index, counted from 0 over all, is a multiple of 5.
    pub test: Labelled,
}

/// Unpacks the digits.
///
/// # Errors
/// Never, unless the file in the crate was damaged.
pub fn load() -> Result<Digits> {
    let mut text = Vec::new();
    GzDecoder::new(FILE)
        .read_to_end(&mut text)
        .map_err(|e| damaged(e.to_string()))?;
    let empty = || Labelled {
        pixels: Vec::new(),
        width: PIXELS,
        labels: Vec::new(),
    };
    let mut digits = Digits {
        train: empty(),
        test: empty(),
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(&text[..]);
    for (row, record) in reader.deserialize::<Vec<u8>>().enumerate() {
        let record = record.map_err(|e| damaged(e.to_string()))?;
        let [pixels @ .., label] = &record[..] else {
            return Err(damaged(format!("row {row} is empty")));
        };
        if pixels.len() != PIXELS || *label as usize >= CLASSES {
            return Err(damaged(format!("row {row} is no digit with a label")));
        }
        let part = if row % TEST_EVERY == 0 {
            &mut digits.test
        } else {
            &mut digits.train
        };
        part.pixels.extend(pixels.iter().map(|&p| p as f32 / WHITE));
        part.labels.push(*label as i32);
    }
    Ok(digits)
}

fn damaged(message: String) -> Error {
    Error::File {
        path: PathBuf::from(NAME),
        message,
    }
}
