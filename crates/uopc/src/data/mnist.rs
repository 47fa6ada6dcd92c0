//! MNIST, or any data in its form: a folder with four files in the IDX format.
//!
//! | file | what |
//! |---|---|
//! | `train-images-idx3-ubyte` | images for training |
//! | `train-labels-idx1-ubyte` | what they show |
//! | `t10k-images-idx3-ubyte` | images for the test |
//! | `t10k-labels-idx1-ubyte` | what they show |
//!
//! Each may end in `.gz`, and be compressed or not. Pixels are divided by 255, so they are 0..1;
//! nothing is subtracted. Data sets with the same files, such as Fashion-MNIST, are read as well.

use std::path::{Path, PathBuf};

use super::{Labelled, idx};
use crate::error::{Error, Result};

/// Classes there are.
pub const CLASSES: usize = 10;

/// Rows and columns of the images of MNIST itself.
pub const SIDE: usize = 28;

/// What the names of files with images for training begin with.
pub const TRAIN: &str = "train";

/// What the names of files with images for the test begin with.
pub const TEST: &str = "t10k";

/// Images for training and those for the test.
#[derive(Clone, Debug)]
pub struct Mnist {
    /// 60,000 images of 784 pixels in MNIST itself.
    pub train: Labelled,
    /// 10,000 of them.
    pub test: Labelled,
}

/// Reads the four files of a folder.
///
/// # Errors
/// When one is missing, can't be read or is damaged, when labels do not belong to the images or are
/// none of 0 to 9, and when the two parts have images of different sizes.
pub fn load(folder: impl AsRef<Path>) -> Result<Mnist> {
    let folder = folder.as_ref();
    let part = |name: &str| -> Result<Labelled> {
        let (images, labels) = files(folder, name)?;
        let part = idx::load(&images, &labels)?;
        let foreign = part.labels.iter().position(|&l| l as usize >= CLASSES);
        if let Some(at) = foreign {
            let label = part.labels[at];
            let message = format!("the label {label} of image {at} is none of 0 to 9");
            return Err(refuse(&labels, message));
        }
        Ok(part)
    };
    let (train, test) = (part(TRAIN)?, part(TEST)?);
    if train.width != test.width {
        let (n, m) = (train.width, test.width);
        let message = format!("images for training have {n} pixels, those for the test {m}");
        return Err(refuse(folder, message));
    }
    Ok(Mnist { train, test })
}

/// The file with images and that with labels of a part, [`TRAIN`] or [`TEST`].
///
/// # Errors
/// When one of them is not there.
pub fn files(folder: impl AsRef<Path>, part: &str) -> Result<(PathBuf, PathBuf)> {
    let folder = folder.as_ref();
    let images = find(folder, &format!("{part}-images-idx3-ubyte"))?;
    let labels = find(folder, &format!("{part}-labels-idx1-ubyte"))?;
    Ok((images, labels))
}

/// The file of that name, or with `.gz` behind it.
fn find(folder: &Path, name: &str) -> Result<PathBuf> {
    let plain = folder.join(name);
    let packed = folder.join(format!("{name}.gz"));
    let found = [&plain, &packed].into_iter().find(|path| path.exists());
    found.cloned().ok_or_else(|| {
        let message = format!("there is no {name} in this folder, nor {name}.gz");
        refuse(folder, message)
    })
}

fn refuse(path: &Path, message: String) -> Error {
    Error::File {
        path: path.to_path_buf(),
        message,
    }
}
