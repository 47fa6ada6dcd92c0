//! Files with tensors in them, and files that become tensors.
//!
//! | module | reads and writes |
//! |---|---|
//! | [`safetensors`] | named tensors, with metadata; [`open`](safetensors::open) maps a file into memory |
//! | [`sharded`] | a folder of safetensors files with an index, `model.safetensors.index.json` |
//! | [`npy`] | one array of NumPy |
//! | [`npz`] | named arrays of NumPy, stored or compressed |
//! | [`idx`] | the format of MNIST, plain or compressed by gzip |
//! | [`csv`] | tables of numbers |
//! | [`text`] | text, and its characters as numbers |
//!
//! [`open`], [`load`] and [`save`] take any of the formats of named tensors. What is read is told by
//! its content, what is written by the file's name.
//!
//! Everything that a file claims about itself is compared with the bytes that are there before
//! anything is made of it, so that a damaged file gives an error that names the file and the place,
//! and never takes memory for what is not there. What is saved replaces the old file when it is
//! complete.
//!
//! ```
//! use uopc::{Tensor, io};
//!
//! let folder = tempfile::tempdir().expect("a folder can be made");
//! let path = folder.path().join("two.npz");
//! io::save(&path, &[("a".to_string(), Tensor::from([1.0f32, 2.0]))])?;
//! let file = io::open(&path)?;
//! assert_eq!(file.names(), ["a"]);
//! assert_eq!(file.tensor("a")?.to_vec::<f32>()?, [1.0, 2.0]);
//! # Ok::<(), uopc::Error>(())
//! ```

pub mod csv;
mod file;
pub mod idx;
mod mapped;
pub mod npy;
pub mod npz;
pub mod safetensors;
pub mod sharded;
mod tensors;
pub mod text;
mod zip;

pub use tensors::{Format, TensorFile, load, open, save, save_as};
