//! Images and labels in the format of MNIST, as what is learned from.

use std::path::Path;

use super::Labelled;
use crate::error::{Error, Result};
use crate::io::idx;

/// The pixel value that becomes 1.
const WHITE: f32 = 255.0;

/// Reads a file of images and one of labels. Pixels are divided by 255, so they become 0..1.
///
/// # Errors
/// When a file can't be read, is truncated or is no such file, or the two do not belong together.
pub fn load(images: impl AsRef<Path>, labels: impl AsRef<Path>) -> Result<Labelled> {
    let (images_path, labels_path) = (images.as_ref(), labels.as_ref());
    let images = idx::load_bytes(images_path, 3)?;
    let labels = idx::load_bytes(labels_path, 1)?;
    if images.shape[0] != labels.shape[0] {
        let (n, m) = (images.shape[0], labels.shape[0]);
        return Err(Error::File {
            path: labels_path.to_path_buf(),
            message: format!(
                "has {m} labels, but {} has {n} images",
                images_path.display()
            ),
        });
    }
    Ok(Labelled {
        pixels: images.data.iter().map(|&p| p as f32 / WHITE).collect(),
        width: images.shape[1] * images.shape[2],
        labels: labels.data.iter().map(|&label| label as i32).collect(),
    })
}
