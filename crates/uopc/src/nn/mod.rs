//! Neural networks: layers with parameters, losses, optimisers.
//!
//! ```
//! use uopc::{Tensor, nn::{AdamW, Linear, Module, Optimizer}};
//!
//! Tensor::manual_seed(1);
//! let layer = Linear::new(2, 1)?;
//! let mut optimizer = AdamW::new(layer.parameters(), 0.1)?;
//! let x = Tensor::from([[0.0f32, 1.0], [1.0, 0.0]]);
//! let y = Tensor::from([[1.0f32], [-1.0]]);
//! let mut losses = vec![];
//! for _ in 0..20 {
//!     let loss = (layer.forward(&x)? - &y).square()?.mean(..)?;
//!     optimizer.zero_grad();
//!     loss.backward(optimizer.parameters())?;
//!     optimizer.step_with(&loss)?;
//!     losses.push(loss.item()?);
//! }
//! assert!(losses[19] < 0.1 * losses[0]);
//! # Ok::<(), uopc::Error>(())
//! ```

mod layers;
mod loss;
mod optim;

pub use layers::{Embedding, Linear};
pub use loss::{cross_entropy, mse};
pub use optim::{AdamW, Optimizer, Sgd};

use std::path::Path;

use crate::error::Result;
use crate::io::safetensors;
use crate::tensor::Tensor;

/// Something with parameters: a layer, or layers within each other.
pub trait Module {
    /// The parameters by dotted name, such as `hidden.weight`, in an order that never changes.
    fn named_parameters(&self) -> Vec<(String, Tensor)>;

    /// The parameters in that order.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters()
            .into_iter()
            .map(|(_, t)| t)
            .collect()
    }

    /// Writes the parameters to a safetensors file, see [`safetensors::save`].
    ///
    /// # Errors
    /// When the file can't be written.
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        safetensors::save(path, &self.named_parameters())
    }

    /// Reads the parameters from a safetensors file, see [`safetensors::load_into`].
    ///
    /// # Errors
    /// When the file can't be read or its names, shapes or dtypes differ.
    fn load(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        safetensors::load_into(path, &self.named_parameters())
    }
}

/// The parameters of a part, with the part's name and a dot in front.
pub fn within(name: &str, part: &dyn Module) -> Vec<(String, Tensor)> {
    let parameters = part.named_parameters().into_iter();
    parameters
        .map(|(own, t)| (format!("{name}.{own}"), t))
        .collect()
}
