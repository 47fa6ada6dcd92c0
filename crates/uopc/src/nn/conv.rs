//! Layers that convolve.

use super::{Layer, Module, setting_error};
use crate::error::Result;
use crate::tensor::{Conv, Site, Tensor};

macro_rules! layers {
    ($($name:ident, $method:ident: $n:literal, $transposed:literal, $what:literal;)*) => { $(
        #[doc = concat!($what, ", see [`Tensor::", stringify!($method), "`].")]
        #[derive(Clone, Debug)]
        pub struct $name {
            #[doc = concat!("The kernels, of the shape that [`Tensor::", stringify!($method),
                "`] takes.")]
            pub weight: Tensor,
            /// Of shape (out channels,), if there is one.
            pub bias: Option<Tensor>,
            /// How it goes along its axes.
            pub conv: Conv,
        }

        impl $name {
            /// A layer with bias. Weight and bias start evenly distributed over ±1/sqrt(inputs of
            /// an output), drawn from the thread's generator, weight first.
            ///
            /// # Errors
            /// When groups do not divide the channels, or a parameter can't be computed.
            #[track_caller]
            pub fn new(
                inputs: usize,
                outputs: usize,
                kernel: [usize; $n],
                conv: Conv,
            ) -> Result<$name> {
                let _site = Site::caller().enter();
                let name = stringify!($name);
                let (weight, bound) =
                    initial(name, [inputs, outputs], &kernel, &conv, $transposed)?;
                let bias = Tensor::uniform([outputs], -bound, bound)?;
                Tensor::realize_all(&[&weight, &bias])?;
                let bias = Some(bias.requires_grad()?);
                Ok($name { weight: weight.requires_grad()?, bias, conv })
            }

            /// A layer without bias, with the weight of [`new`](Self::new).
            ///
            /// # Errors
            /// When groups do not divide the channels, or the weight can't be computed.
            #[track_caller]
            pub fn without_bias(
                inputs: usize,
                outputs: usize,
                kernel: [usize; $n],
                conv: Conv,
            ) -> Result<$name> {
                let _site = Site::caller().enter();
                let name = stringify!($name);
                let (weight, _) = initial(name, [inputs, outputs], &kernel, &conv, $transposed)?;
                Ok($name { weight: weight.requires_grad()?, bias: None, conv })
            }

            /// The layer applied to a batch, or to one example without its axis.
            ///
            /// # Errors
            /// When the shape does not fit.
            #[track_caller]
            pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
                let _site = Site::caller().enter();
                x.$method(&self.weight, self.bias.as_ref(), &self.conv)
            }
        }

        tree!($name { weight, bias; conv });

        impl Module for $name {
            fn named_parameters(&self) -> Vec<(String, Tensor)> {
                super::named([("weight", Some(&self.weight)), ("bias", self.bias.as_ref())])
            }
        }

        impl Layer for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                $name::forward(self, x)
            }
        }
    )* };
}

layers! {
    Conv1d, conv1d: 1, false, "Convolution along one axis";
    Conv2d, conv2d: 2, false, "Convolution along two axes";
    Conv3d, conv3d: 3, false, "Convolution along three axes";
    ConvTranspose1d, conv_transpose1d: 1, true, "Transposed convolution along one axis";
    ConvTranspose2d, conv_transpose2d: 2, true, "Transposed convolution along two axes";
    ConvTranspose3d, conv_transpose3d: 3, true, "Transposed convolution along three axes";
}

/// A weight, and the bound within which it is.
fn initial(
    name: &str,
    [inputs, outputs]: [usize; 2],
    kernel: &[usize],
    conv: &Conv,
    transposed: bool,
) -> Result<(Tensor, f64)> {
    let groups = conv.group_count();
    let divided = groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups);
    if !divided {
        return Err(setting_error(format!(
            "{name}: {groups} groups do not divide {inputs} input and {outputs} output channels"
        )));
    }
    let [first, second] = match transposed {
        true => [inputs, outputs / groups],
        false => [outputs, inputs / groups],
    };
    let shape = [&[first, second], kernel].concat();
    let fan_in = shape[1..].iter().fold(1.0, |n, &d| n * d as f64);
    let bound = 1.0 / fan_in.max(1.0).sqrt();
    Ok((Tensor::uniform(shape, -bound, bound)?, bound))
}
