//! Layers: Linear and Embedding.

use super::Module;
use crate::error::Result;
use crate::tensor::{Site, Tensor};
use crate::transform::tree;

/// `x @ weight + bias`.
#[derive(Clone, Debug)]
pub struct Linear {
    /// Of shape (inputs, outputs).
    pub weight: Tensor,
    /// Of shape (outputs,), if there is one.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// A layer with bias. Weight and bias start evenly distributed over ±1/sqrt(inputs), drawn
    /// from the thread's generator, weight first.
    ///
    /// # Errors
    /// When a parameter can't be computed.
    #[track_caller]
    pub fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let _site = Site::caller().enter();
        let weight = initial(inputs, &[inputs, outputs])?;
        let bias = initial(inputs, &[outputs])?;
        Tensor::realize_all(&[&weight, &bias])?;
        let bias = Some(bias.requires_grad()?);
        Ok(Linear {
            weight: weight.requires_grad()?,
            bias,
        })
    }

    /// A layer without bias, with the weight of [`new`](Self::new).
    ///
    /// # Errors
    /// When the weight can't be computed.
    #[track_caller]
    pub fn without_bias(inputs: usize, outputs: usize) -> Result<Linear> {
        let _site = Site::caller().enter();
        let weight = initial(inputs, &[inputs, outputs])?.requires_grad()?;
        Ok(Linear { weight, bias: None })
    }

    /// The layer applied to the last axis, which has `inputs` entries.
    ///
    /// # Errors
    /// When it has another number of them.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let y = x.matmul(&self.weight)?;
        match &self.bias {
            Some(bias) => y.add(bias),
            None => Ok(y),
        }
    }
}

fn initial(inputs: usize, shape: &[usize]) -> Result<Tensor> {
    let bound = 1.0 / (inputs.max(1) as f64).sqrt();
    Tensor::uniform(shape, -bound, bound)
}

tree!(Linear { weight, bias });

impl Module for Linear {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let weight = ("weight".to_string(), self.weight.clone());
        let bias = self
            .bias
            .iter()
            .map(|bias| ("bias".to_string(), bias.clone()));
        [weight].into_iter().chain(bias).collect()
    }
}

/// A row of a table for each integer.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// Of shape (count, size).
    pub weight: Tensor,
}

impl Embedding {
    /// A table of `count` rows, which start as 0.02 times normal numbers.
    ///
    /// # Errors
    /// When the table can't be computed.
    #[track_caller]
    pub fn new(count: usize, size: usize) -> Result<Embedding> {
        let _site = Site::caller().enter();
        let weight = Tensor::randn([count, size])?.mul(0.02)?.requires_grad()?;
        Ok(Embedding { weight })
    }

    /// Rows of the table: integers of shape S give shape S + (size,). Negative integers count from
    /// the end; an integer that is no row gives zeros.
    ///
    /// The gradient by the table adds up the rows that are read, see [`Tensor::take`].
    ///
    /// # Errors
    /// When the indices are not integers.
    #[track_caller]
    pub fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.weight.take(indices)
    }
}

tree!(Embedding { weight });

impl Module for Embedding {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        vec![("weight".to_string(), self.weight.clone())]
    }
}
