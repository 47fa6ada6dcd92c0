//! Data sets: the digits that ship with the crate, MNIST's files; and batches of arrays.

/// The examples of the page for users run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/data.md")]
struct Page;

mod ahead;
pub mod digits;
pub mod idx;
mod loader;
pub mod mnist;

pub use loader::{Batch, Batches, DataLoader, Epoch, LoaderState, PREFETCH, Transform};

use crate::error::Result;
use crate::tensor::{Generator, Site, Tensor};

/// Images as rows of pixels in 0..1, each with a label.
#[derive(Clone, Debug)]
pub struct Labelled {
    /// One row an image, row after row.
    pub pixels: Vec<f32>,
    /// Pixels a row.
    pub width: usize,
    /// One label an image.
    pub labels: Vec<i32>,
}

impl Labelled {
    /// How many images there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Some images as a tensor of shape (rows, width), and their labels of shape (rows,).
    ///
    /// # Errors
    /// When memory runs out.
    ///
    /// # Panics
    /// When a row does not exist.
    #[track_caller]
    pub fn batch(&self, rows: &[usize]) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        let mut pixels = Vec::with_capacity(rows.len() * self.width);
        for &row in rows {
            pixels.extend_from_slice(&self.pixels[row * self.width..(row + 1) * self.width]);
        }
        let labels: Vec<i32> = rows.iter().map(|&row| self.labels[row]).collect();
        let pixels = Tensor::from_slice(&pixels, [rows.len(), self.width])?;
        Ok((pixels, Tensor::from_slice(&labels, [rows.len()])?))
    }

    /// All images and labels as tensors.
    ///
    /// # Errors
    /// When memory runs out.
    #[track_caller]
    pub fn all(&self) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        let pixels = Tensor::from_slice(&self.pixels, [self.len(), self.width])?;
        Ok((pixels, Tensor::from_slice(&self.labels, [self.len()])?))
    }

    /// Lists of `size` rows in random order, each row at most once; the rest, fewer than `size`,
    /// is left out, so that all batches have one shape and share one plan.
    pub fn shuffled(&self, size: usize, generator: &mut Generator) -> Vec<Vec<usize>> {
        let order = generator.permutation(self.len());
        order
            .chunks_exact(size.max(1))
            .map(<[usize]>::to_vec)
            .collect()
    }
}
