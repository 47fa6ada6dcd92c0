//! Layers one after the other, and activations as layers.

use super::{Embedding, Linear, Module};
use crate::error::Result;
use crate::tensor::{Site, Tensor};

/// A module that makes one tensor of one tensor.
pub trait Layer: Module {
    /// What it computes.
    ///
    /// # Errors
    /// When the input does not fit.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

/// Layers one after the other.
///
/// ```
/// use uopc::{Tensor, nn::{Activation, Conv2d, Dropout, Layer, Linear, Module, Sequential}};
/// use uopc::tensor::Conv;
///
/// let net = Sequential::new()
///     .add(Conv2d::new(1, 4, [3, 3], Conv::new().padding(1))?)
///     .add(Activation::Relu)
///     .then(|x| x.max_pool2d(2)?.flatten(1, -1))
///     .add(Dropout::new(0.1)?)
///     .add(Linear::new(16, 10)?);
/// assert_eq!(net.forward(&Tensor::zeros([2, 1, 4, 4])?)?.shape()[..], [2, 10]);
/// assert_eq!(net.named_parameters()[0].0, "0.weight");
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// No layer yet.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// With another layer at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn add(mut self, layer: impl Layer + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }

    /// With a function without parameters at the end.
    pub fn then(self, f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Sequential {
        self.add(Lambda(f))
    }

    /// The layers, in order.
    pub fn layers(&self) -> &[Box<dyn Layer>] {
        &self.layers
    }

    /// The last layer's output.
    ///
    /// # Errors
    /// Those of the layers.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let mut x = x.clone();
        for layer in &self.layers {
            x = layer.forward(&x)?;
        }
        Ok(x)
    }

    fn named(&self, of: fn(&dyn Module) -> Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
        let layers = self.layers.iter().enumerate();
        let named = layers.flat_map(|(k, layer)| {
            let own = of(&**layer).into_iter();
            own.map(move |(name, t)| (format!("{k}.{name}"), t))
        });
        named.collect()
    }
}

impl Module for Sequential {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        self.named(|layer| layer.named_parameters())
    }

    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        self.named(|layer| layer.named_buffers())
    }
}

impl Layer for Sequential {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Sequential::forward(self, x)
    }
}

/// A function as a layer.
struct Lambda<F>(F);

impl<F> Module for Lambda<F> {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }
}

impl<F: Fn(&Tensor) -> Result<Tensor>> Layer for Lambda<F> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0(x)
    }
}

/// Functions of each element as layers; methods of [`Tensor`] say what they compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// [`Tensor::relu`].
    Relu,
    /// [`Tensor::gelu`].
    Gelu,
    /// [`Tensor::silu`].
    Silu,
    /// [`Tensor::sigmoid`].
    Sigmoid,
    /// [`Tensor::tanh`].
    Tanh,
    /// [`Tensor::softplus`].
    Softplus,
}

impl Module for Activation {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }
}

impl Layer for Activation {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
            Activation::Silu => x.silu(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Tanh => x.tanh(),
            Activation::Softplus => x.softplus(),
        }
    }
}

impl Layer for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Linear::forward(self, x)
    }
}

impl Layer for Embedding {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Embedding::forward(self, x)
    }
}
