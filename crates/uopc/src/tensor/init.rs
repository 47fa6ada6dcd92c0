//! First values of weights: after Glorot and Bengio (Xavier) and after He and others (Kaiming), which
//! keep the variance of what flows through a layer about the same.

use super::args::{Dims, shape_of};
use super::random::{Generator, with_current};
use super::{Result, Shape, Site, Tensor, shape_error};

/// Which of a weight's two fans keeps its variance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fan {
    /// The number of inputs of each output: the variance of values.
    In,
    /// The number of outputs that each input reaches: the variance of gradients.
    Out,
}

/// What follows a layer, for the gain of its weights.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Nonlinearity {
    /// Nothing, or a sigmoid: gain 1.
    Linear,
    /// tanh: gain 5/3.
    Tanh,
    /// relu: gain sqrt(2).
    Relu,
    /// A leaky relu with that slope below 0: gain sqrt(2 / (1 + slope^2)).
    LeakyRelu(f64),
    /// selu: gain 3/4.
    Selu,
}

impl Nonlinearity {
    /// What the standard deviation of weights is multiplied by.
    pub fn gain(self) -> f64 {
        match self {
            Nonlinearity::Linear => 1.0,
            Nonlinearity::Tanh => 5.0 / 3.0,
            Nonlinearity::Relu => 2f64.sqrt(),
            Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Nonlinearity::Selu => 0.75,
        }
    }
}

/// Inputs of each output and outputs of each input of a weight of shape (outputs, inputs, window...).
fn fans(op: &'static str, shape: &Shape) -> Result<(f64, f64)> {
    if shape.rank() < 2 {
        let message = format!("shape {shape} has no fans; a weight has two axes or more");
        return Err(shape_error(op, message));
    }
    let window: f64 = shape[2..].iter().map(|&d| d as f64).product();
    Ok((shape[1] as f64 * window, shape[0] as f64 * window))
}

/// Half the width of a uniform distribution with that standard deviation.
fn half_width(std: f64) -> f64 {
    3f64.sqrt() * std
}

macro_rules! initialisers {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = |$generator:ident, $shape:ident| $body:expr;)*) => {
        impl Generator { $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the extents are no shape of two axes or more.
            #[track_caller]
            pub fn $name(&mut self, shape: impl Dims, $($arg: $type),*) -> Result<Tensor> {
                let _site = Site::caller().enter();
                let $shape = shape_of(stringify!($name), shape)?;
                let $generator = self;
                $body
            }
        )* }

        impl Tensor { $(
            $(#[$doc])*
            ///
            /// # Errors
            /// When the extents are no shape of two axes or more.
            #[track_caller]
            pub fn $name(shape: impl Dims, $($arg: $type),*) -> Result<Tensor> {
                let _site = Site::caller().enter();
                with_current(|generator| generator.$name(shape, $($arg),*))
            }
        )* }
    };
}

/// Glorot's standard deviation.
fn xavier(op: &'static str, shape: &Shape, gain: f64) -> Result<f64> {
    let (inputs, outputs) = fans(op, shape)?;
    Ok(gain * (2.0 / (inputs + outputs).max(1.0)).sqrt())
}

/// He's standard deviation.
fn kaiming(op: &'static str, shape: &Shape, fan: Fan, after: Nonlinearity) -> Result<f64> {
    let (inputs, outputs) = fans(op, shape)?;
    let fan = match fan {
        Fan::In => inputs,
        Fan::Out => outputs,
    };
    Ok(after.gain() / fan.max(1.0).sqrt())
}

initialisers! {
    /// f32 weights of shape (outputs, inputs, window...), uniform with standard deviation
    /// gain * sqrt(2 / (fan_in + fan_out)).
    xavier_uniform(gain: f64) = |generator, shape| {
        let bound = half_width(xavier("xavier_uniform", &shape, gain)?);
        generator.uniform(&shape, -bound, bound)
    };
    /// f32 weights of shape (outputs, inputs, window...), normal with standard deviation
    /// gain * sqrt(2 / (fan_in + fan_out)).
    xavier_normal(gain: f64) = |generator, shape| {
        generator.normal(0.0, xavier("xavier_normal", &shape, gain)?, &shape)
    };
    /// f32 weights of shape (outputs, inputs, window...), uniform with standard deviation
    /// gain / sqrt(fan), where the gain is that of what follows. A weight that is stored as (inputs,
    /// outputs), as that of [`Linear`](crate::nn::Linear), has its inputs in [`Fan::Out`].
    kaiming_uniform(fan: Fan, after: Nonlinearity) = |generator, shape| {
        let bound = half_width(kaiming("kaiming_uniform", &shape, fan, after)?);
        generator.uniform(&shape, -bound, bound)
    };
    /// f32 weights of shape (outputs, inputs, window...), normal with standard deviation
    /// gain / sqrt(fan), where the gain is that of what follows. A weight that is stored as (inputs,
    /// outputs), as that of [`Linear`](crate::nn::Linear), has its inputs in [`Fan::Out`].
    kaiming_normal(fan: Fan, after: Nonlinearity) = |generator, shape| {
        generator.normal(0.0, kaiming("kaiming_normal", &shape, fan, after)?, &shape)
    };
}
