//! Workloads that are a ratio: the time of a loss with its gradients over that of the loss alone.

use std::rc::Rc;

use uopc::Tensor;

use super::inputs::{Fill, Inputs, Spec};
use super::models::{Cnn, Gpt, Mlp, Model};
use super::single::{Rows, alone};
use super::{Case, layers};
use crate::failure::Result;

/// The same function of the rows of a matrix several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The matrix.
    pub rows: Rows,
    /// How many times.
    pub length: usize,
    /// Layer norm with weight and bias; without it softmax.
    pub norm: bool,
}

/// The ratio for a loss by some tensors. Both steps build their graph anew.
fn ratio(
    by: Vec<(String, Tensor)>,
    loss: impl Fn() -> uopc::Result<Tensor> + 'static,
) -> Result<Case> {
    let loss = Rc::new(loss);
    let names = by.iter().map(|(name, _)| name.clone());
    let results: Vec<String> = ["loss".to_string()].into_iter().chain(names).collect();
    let by: Vec<Tensor> = by.into_iter().map(|(_, t)| t).collect();
    let same = loss.clone();
    let step = move || {
        let loss = loss()?;
        loss.backward(&by)?;
        let mut found: Vec<Tensor> = by.iter().filter_map(Tensor::grad).collect();
        by.iter().for_each(Tensor::zero_grad);
        // Nobody will ask for gradients of this one, so nothing is kept for them.
        let loss = loss.detach()?;
        found.push(loss.clone());
        Tensor::realize_all(&found)?;
        let gradients = found[..found.len() - 1].iter().map(alone);
        [Ok(loss)].into_iter().chain(gradients).collect()
    };
    let forward = move || {
        let _off = uopc::tensor::no_grad();
        let loss = same()?;
        loss.realize()?;
        Ok(vec![loss])
    };
    Ok(Case {
        forward: Some(Box::new(forward)),
        ..Case::new(&results, step)
    })
}

/// The ratio for a model's loss by its parameters.
fn of_model(
    inputs: &Inputs,
    loss: impl Fn(&Model, &Tensor, &Tensor) -> uopc::Result<Tensor> + 'static,
) -> Result<Case> {
    let model = Model(inputs.parameters(&["x", "y"])?);
    let (x, y) = (inputs.tensor("x")?, inputs.tensor("y")?);
    ratio(model.0.clone(), move || loss(&model, &x, &y))
}

impl Mlp {
    pub(super) fn begin_ratio(&self, inputs: &Inputs) -> Result<Case> {
        let mlp = *self;
        of_model(inputs, move |model, x, y| mlp.loss(model, x, y))
    }
}

impl Cnn {
    pub(super) fn begin_ratio(&self, inputs: &Inputs) -> Result<Case> {
        let cnn = *self;
        of_model(inputs, move |model, x, y| cnn.loss(model, x, y))
    }
}

impl Gpt {
    pub(super) fn begin_ratio(&self, inputs: &Inputs) -> Result<Case> {
        let gpt = *self;
        of_model(inputs, move |model, x, y| gpt.loss(model, x, y))
    }

    /// What a block of it reads: its parameters, what goes in, and the weights of the sum of what
    /// comes out.
    pub(super) fn block_reads(&self) -> Vec<Spec> {
        let shape = [self.batch, self.length, self.width];
        let mut specs = self.block_parameters(0);
        specs.extend(["x", "c"].map(|name| Spec::new(name, &shape, Fill::Normal(1.0))));
        specs
    }

    /// The ratio for one block, by its parameters and by what goes in.
    pub(super) fn begin_block_ratio(&self, inputs: &Inputs) -> Result<Case> {
        let gpt = *self;
        let model = Model(inputs.parameters(&["c"])?);
        let c = inputs.tensor("c")?;
        ratio(model.0.clone(), move || {
            let y = gpt.block(&model, model.get("x"), 0)?;
            y.mul(&c)?.sum(..)
        })
    }
}

impl Chain {
    pub(super) fn reads(&self) -> Vec<Spec> {
        match self.norm {
            true => self.rows.layer_norm_reads(),
            false => self.rows.softmax_reads(),
        }
    }

    pub(super) fn begin(&self, inputs: &Inputs) -> Result<Case> {
        let chain = *self;
        let weights = if self.norm { "c" } else { "w" };
        let by = inputs.parameters(&[weights])?;
        let parameters: Vec<Tensor> = by.iter().map(|(_, t)| t.clone()).collect();
        let weights = inputs.tensor(weights)?;
        ratio(by, move || {
            let mut y = parameters[0].clone();
            for _ in 0..chain.length {
                y = match &parameters[1..] {
                    [weight, bias] => layers::layer_norm(&y, weight, bias)?,
                    _ => y.softmax(-1)?,
                };
            }
            y.mul(&weights)?.sum(..)
        })
    }
}
