//! Layers that normalise.

use super::{Layer, Module, is_training, named, setting_error};
use crate::error::Result;
use crate::tensor::{BatchStatistics, Dims, Site, Tensor};

fn ones(shape: &[i64]) -> Result<Tensor> {
    Tensor::ones(shape)?.requires_grad()
}

fn zeros(shape: &[i64]) -> Result<Tensor> {
    Tensor::zeros(shape)?.requires_grad()
}

/// The last axes with mean 0 and variance 1, times weight plus bias, see [`Tensor::layer_norm`].
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// Of the normalised shape, 1 at first.
    pub weight: Tensor,
    /// Of the normalised shape, 0 at first.
    pub bias: Option<Tensor>,
    /// What is added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// With eps 1e-5 and a bias.
    ///
    /// # Errors
    /// When the extents are no shape, or there is no memory.
    #[track_caller]
    pub fn new(normalized_shape: impl Dims) -> Result<LayerNorm> {
        let _site = Site::caller().enter();
        let dims = normalized_shape.dims();
        Ok(LayerNorm {
            weight: ones(&dims)?,
            bias: Some(zeros(&dims)?),
            eps: 1e-5,
        })
    }

    /// The layer applied to a tensor that ends in the normalised shape.
    ///
    /// # Errors
    /// When it does not.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = self.weight.shape();
        x.layer_norm(shape, Some(&self.weight), self.bias.as_ref(), self.eps)
    }
}

/// The last axes divided by the root of their mean square, times weight, see [`Tensor::rms_norm`].
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// Of the normalised shape, 1 at first.
    pub weight: Tensor,
    /// What is added to the mean square; by default the epsilon of the input's dtype.
    pub eps: Option<f64>,
}

impl RmsNorm {
    /// With the epsilon of the input's dtype.
    ///
    /// # Errors
    /// When the extents are no shape, or there is no memory.
    #[track_caller]
    pub fn new(normalized_shape: impl Dims) -> Result<RmsNorm> {
        let _site = Site::caller().enter();
        Ok(RmsNorm {
            weight: ones(&normalized_shape.dims())?,
            eps: None,
        })
    }

    /// The layer applied to a tensor that ends in the normalised shape.
    ///
    /// # Errors
    /// When it does not.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let eps = self.eps.unwrap_or_else(|| Tensor::epsilon(x.dtype()));
        x.rms_norm(self.weight.shape(), Some(&self.weight), eps)
    }
}

/// Channels normalised in groups, times weight plus bias, see [`Tensor::group_norm`].
#[derive(Clone, Debug)]
pub struct GroupNorm {
    /// Of shape (channels,), 1 at first.
    pub weight: Tensor,
    /// Of shape (channels,), 0 at first.
    pub bias: Tensor,
    /// How many groups there are.
    pub groups: usize,
    /// What is added to the variance.
    pub eps: f64,
}

impl GroupNorm {
    /// With eps 1e-5.
    ///
    /// # Errors
    /// When groups do not divide the channels.
    #[track_caller]
    pub fn new(groups: usize, channels: usize) -> Result<GroupNorm> {
        let _site = Site::caller().enter();
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(setting_error(format!(
                "GroupNorm: {groups} groups do not divide {channels} channels"
            )));
        }
        let dims = [channels as i64];
        Ok(GroupNorm {
            weight: ones(&dims)?,
            bias: zeros(&dims)?,
            groups,
            eps: 1e-5,
        })
    }

    /// The layer applied to a batch (N, C, ...).
    ///
    /// # Errors
    /// When the channels do not fit.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        x.group_norm(self.groups, Some(&self.weight), Some(&self.bias), self.eps)
    }
}

macro_rules! batch_norms {
    ($($name:ident: $ranks:pat, $shapes:literal;)*) => { $(
        /// Channels normalised over the batch, times weight plus bias, see [`Tensor::batch_norm`].
        ///
        /// While training it uses the statistics of the batch and moves its running ones towards
        /// them; in [`evaluation`](super::evaluation) it uses the running ones.
        #[derive(Clone, Debug)]
        pub struct $name {
            /// Of shape (channels,), 1 at first.
            pub weight: Tensor,
            /// Of shape (channels,), 0 at first.
            pub bias: Tensor,
            /// The running mean, of shape (channels,), 0 at first; it is no parameter.
            pub running_mean: Tensor,
            /// The running variance, of shape (channels,), 1 at first; it is no parameter.
            pub running_var: Tensor,
            /// How far running statistics move in a step.
            pub momentum: f64,
            /// What is added to the variance.
            pub eps: f64,
        }

        impl $name {
            /// With momentum 0.1 and eps 1e-5.
            ///
            /// # Errors
            /// When there is no memory.
            #[track_caller]
            pub fn new(channels: usize) -> Result<$name> {
                let _site = Site::caller().enter();
                let dims = [channels as i64];
                let kept = |value: f32| Tensor::from_slice(&vec![value; channels], dims);
                Ok($name {
                    weight: ones(&dims)?,
                    bias: zeros(&dims)?,
                    running_mean: kept(0.0)?,
                    running_var: kept(1.0)?,
                    momentum: 0.1,
                    eps: 1e-5,
                })
            }

            #[doc = concat!("The layer applied to a batch ", $shapes, ".")]
            ///
            /// # Errors
            /// When the shape does not fit, or a batch to train with has one element a channel.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let _site = Site::caller().enter();
                if !matches!(x.rank(), $ranks) {
                    return Err(setting_error(format!(
                        concat!(stringify!($name), ": shape {} is not one of ", $shapes),
                        x.shape()
                    )));
                }
                let (mean, var) = (&self.running_mean, &self.running_var);
                let statistics = match is_training() {
                    true => BatchStatistics::OfBatch {
                        running: Some((mean, var)),
                        momentum: self.momentum,
                    },
                    false => BatchStatistics::Fixed(mean, var),
                };
                x.batch_norm(statistics, Some(&self.weight), Some(&self.bias), self.eps)
            }
        }

        tree!($name { weight, bias; running_mean, running_var, momentum, eps });

        impl Module for $name {
            fn named_parameters(&self) -> Vec<(String, Tensor)> {
                named([("weight", Some(&self.weight)), ("bias", Some(&self.bias))])
            }

            fn named_buffers(&self) -> Vec<(String, Tensor)> {
                named([
                    ("running_mean", Some(&self.running_mean)),
                    ("running_var", Some(&self.running_var)),
                ])
            }
        }
    )* };
}

batch_norms! {
    BatchNorm1d: 2 | 3, "(N, C) or (N, C, L)";
    BatchNorm2d: 4, "(N, C, H, W)";
}

tree!(LayerNorm { weight, bias; eps });
tree!(RmsNorm { weight; eps });
tree!(GroupNorm { weight, bias; groups, eps });

impl Module for LayerNorm {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named([("weight", Some(&self.weight)), ("bias", self.bias.as_ref())])
    }
}

impl Module for RmsNorm {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named([("weight", Some(&self.weight))])
    }
}

impl Module for GroupNorm {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        named([("weight", Some(&self.weight)), ("bias", Some(&self.bias))])
    }
}

macro_rules! layers {
    ($($name:ident)*) => { $(
        impl Layer for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                $name::forward(self, x)
            }
        }
    )* };
}

layers! { LayerNorm RmsNorm GroupNorm BatchNorm1d BatchNorm2d }
