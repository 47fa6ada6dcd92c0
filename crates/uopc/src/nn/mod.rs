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

mod attention;
mod checkpoint;
mod classes;
mod clip;
mod conv;
mod ema;
mod layers;
mod loss;
mod mode;
mod norm;
mod optim;
mod saved;
mod schedule;
mod sequential;

pub use attention::{Dropout, MultiheadAttention};
pub use checkpoint::{Model, RandomState, Stateful, load_checkpoint, save_checkpoint};
pub use classes::{CrossEntropy, nll_loss};
pub use clip::{clip_grad_norm, clip_grad_value};
pub use conv::{Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub use ema::Ema;
pub use layers::{Embedding, Linear};
pub use loss::{
    Reduction, binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, huber_loss,
    kl_div, l1_loss, mse, mse_loss, smooth_l1_loss,
};
pub use mode::{Evaluation, evaluation, is_training};
pub use norm::{BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm, RmsNorm};
pub use optim::{
    Adam, AdamRule, AdamW, AdamWRule, Descent, Muon, MuonRule, MuonScale, Optimizer, Range,
    RmsProp, RmsPropRule, Sgd, SgdRule, UpdateRule,
};
pub use schedule::{Schedule, Scheduler};
pub use sequential::{Activation, Layer, Sequential};

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::safetensors;
use crate::tensor::{Site, Tensor};

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

    /// Tensors that are no parameters and yet belong to what was learned, such as running
    /// statistics, by dotted name.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }

    /// All that is saved: the parameters and then the buffers.
    fn named_state(&self) -> Vec<(String, Tensor)> {
        let mut state = self.named_parameters();
        state.extend(self.named_buffers());
        state
    }

    /// Writes parameters and buffers to a safetensors file, see [`safetensors::save`].
    ///
    /// # Errors
    /// When the file can't be written.
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        safetensors::save(path, &self.named_state())
    }

    /// Reads parameters and buffers from a safetensors file, see [`safetensors::load_into`].
    ///
    /// # Errors
    /// When the file can't be read or its names, shapes or dtypes differ.
    fn load(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        safetensors::load_into(path, &self.named_state())
    }
}

/// The parameters of a part, with the part's name and a dot in front.
pub fn within(name: &str, part: &dyn Module) -> Vec<(String, Tensor)> {
    let parameters = part.named_parameters().into_iter();
    parameters
        .map(|(own, t)| (format!("{name}.{own}"), t))
        .collect()
}

/// The tensors that there are, with their names.
fn named<const N: usize>(tensors: [(&str, Option<&Tensor>); N]) -> Vec<(String, Tensor)> {
    let tensors = tensors.into_iter();
    tensors
        .filter_map(|(name, t)| Some((name.to_string(), t?.clone())))
        .collect()
}

/// The error for a number or a choice that makes no sense, with the line where it was made.
fn setting_error(message: String) -> Error {
    let at = Site::current().map_or(String::new(), |site| format!(" (at {site})"));
    Error::Setting(format!("{message}{at}"))
}
