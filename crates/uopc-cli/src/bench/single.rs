//! Workloads of one operation: products, elementwise work, sorting, running sums, softmax, layer norm,
//! convolution, attention.

use uopc::{DType, Tensor};

use super::inputs::{Fill, Inputs, Spec};
use super::{Case, layers};
use crate::failure::Result;

const NORMAL: Fill = Fill::Normal(1.0);

/// How the factors of a product lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A @ B.
    Plain,
    /// A^T @ B.
    LeftTransposed,
    /// A @ B^T.
    RightTransposed,
}

/// A product of (m, k) and (k, n), `batch` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// How many products.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// The extent that is summed.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// How the factors lie.
    pub layout: Layout,
    /// Whether factors and result are bf16 instead of f32.
    pub bf16: bool,
}

impl Product {
    pub(super) fn reads(&self) -> Vec<Spec> {
        let shape = |rows: usize, columns: usize| match self.batch {
            1 => vec![rows, columns],
            batch => vec![batch, rows, columns],
        };
        let a = match self.layout {
            Layout::LeftTransposed => shape(self.k, self.m),
            Layout::Plain | Layout::RightTransposed => shape(self.m, self.k),
        };
        let b = match self.layout {
            Layout::RightTransposed => shape(self.n, self.k),
            Layout::Plain | Layout::LeftTransposed => shape(self.k, self.n),
        };
        vec![Spec::new("a", &a, NORMAL), Spec::new("b", &b, NORMAL)]
    }

    pub(super) fn begin(&self, inputs: &Inputs) -> Result<Case> {
        let dtype = if self.bf16 { DType::BF16 } else { DType::F32 };
        let factor = |name: &str| -> Result<Tensor> {
            let factor = inputs.tensor(name)?.cast(dtype)?;
            factor.realize()?;
            Ok(factor)
        };
        let (a, b, layout) = (factor("a")?, factor("b")?, self.layout);
        Ok(Case::value(move || {
            let y = match layout {
                Layout::Plain => a.matmul(&b)?,
                Layout::LeftTransposed => a.transpose()?.matmul(&b)?,
                Layout::RightTransposed => a.matmul(&b.transpose()?)?,
            };
            computed(y)
        }))
    }
}

/// The tensor, realised.
fn computed(y: Tensor) -> uopc::Result<Tensor> {
    y.realize()?;
    Ok(y)
}

/// The gradients of a scalar by some parameters, computed together.
pub(super) fn gradients(loss: &Tensor, by: &[Tensor]) -> uopc::Result<Vec<Tensor>> {
    loss.backward(by)?;
    let found: Vec<Tensor> = by.iter().filter_map(Tensor::grad).collect();
    by.iter().for_each(Tensor::zero_grad);
    Tensor::realize_all(&found)?;
    found.iter().map(alone).collect()
}

/// The memory of a tensor without its graph, with which the next step would find that this one has
/// computed it.
pub(super) fn alone(t: &Tensor) -> uopc::Result<Tensor> {
    Tensor::from_storage(t.memory()?, t.dtype(), t.shape())
}

pub(super) fn elementwise_reads(n: usize) -> Vec<Spec> {
    vec![Spec::new("a", &[n], NORMAL)]
}

pub(super) fn elementwise(inputs: &Inputs) -> Result<Case> {
    let a = inputs.tensor("a")?;
    Ok(Case::value(move || {
        computed(a.mul(2)?.add(1)?.relu()?.mul(3)?)
    }))
}

pub(super) fn sort(inputs: &Inputs) -> Result<Case> {
    let a = inputs.tensor("a")?;
    Ok(Case::value(move || computed(a.sort(0, false)?.0)))
}

pub(super) fn running_sum(inputs: &Inputs) -> Result<Case> {
    let a = inputs.tensor("a")?;
    Ok(Case::value(move || computed(a.cumsum(0)?)))
}

/// A matrix whose rows are worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub rows: usize,
    /// Numbers in each.
    pub columns: usize,
}

impl Rows {
    pub(super) fn softmax_reads(&self) -> Vec<Spec> {
        let shape = [self.rows, self.columns];
        vec![
            Spec::new("x", &shape, NORMAL),
            Spec::new("w", &shape, NORMAL),
        ]
    }

    pub(super) fn layer_norm_reads(&self) -> Vec<Spec> {
        let (shape, row) = ([self.rows, self.columns], [self.columns]);
        vec![
            Spec::new("x", &shape, NORMAL),
            Spec::new("w", &row, Fill::AroundOne(0.1)),
            Spec::new("b", &row, Fill::Normal(0.1)),
            Spec::new("c", &shape, NORMAL),
        ]
    }
}

pub(super) fn softmax(inputs: &Inputs) -> Result<Case> {
    let x = inputs.tensor("x")?;
    Ok(Case::value(move || computed(x.softmax(-1)?)))
}

pub(super) fn softmax_gradient(inputs: &Inputs) -> Result<Case> {
    let (x, w) = (inputs.tensor("x")?.requires_grad()?, inputs.tensor("w")?);
    Ok(Case::new(&["x"], move || {
        let loss = x.softmax(-1)?.mul(&w)?.sum(..)?;
        gradients(&loss, std::slice::from_ref(&x))
    }))
}

pub(super) fn layer_norm(inputs: &Inputs) -> Result<Case> {
    let parameter = |name| -> Result<Tensor> { Ok(inputs.tensor(name)?.requires_grad()?) };
    let by = [parameter("x")?, parameter("w")?, parameter("b")?];
    let c = inputs.tensor("c")?;
    Ok(Case::new(&["x", "w", "b"], move || {
        let loss = layers::layer_norm(&by[0], &by[1], &by[2])?
            .mul(&c)?
            .sum(..)?;
        gradients(&loss, &by)
    }))
}

/// A table of which some rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Rows of the table.
    pub rows: usize,
    /// Numbers in each.
    pub columns: usize,
    /// How many of them are read.
    pub reads: usize,
}

impl Table {
    pub(super) fn reads(&self) -> Vec<Spec> {
        vec![
            Spec::new("table", &[self.rows, self.columns], NORMAL),
            Spec::new("ids", &[self.reads], Fill::Below(self.rows)),
            Spec::new("c", &[self.reads, self.columns], NORMAL),
        ]
    }
}

pub(super) fn embedding_gradient(inputs: &Inputs) -> Result<Case> {
    let table = inputs.tensor("table")?.requires_grad()?;
    let (ids, c) = (inputs.tensor("ids")?, inputs.tensor("c")?);
    Ok(Case::new(&["table"], move || {
        let loss = table.take(&ids)?.mul(&c)?.sum(..)?;
        gradients(&loss, std::slice::from_ref(&table))
    }))
}

/// A convolution of square images with filters of 3 x 3, padded to leave their extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// How many images.
    pub images: usize,
    /// Channels of each.
    pub channels: usize,
    /// Channels of the result.
    pub filters: usize,
    /// Rows and columns of an image.
    pub side: usize,
    /// Whether the gradients are taken instead.
    pub gradient: bool,
}

/// Rows and columns of a filter.
pub const FILTER: usize = 3;

impl Convolution {
    pub(super) fn reads(&self) -> Vec<Spec> {
        let image = |channels: usize| [self.images, channels, self.side, self.side];
        let filter = [self.filters, self.channels, FILTER, FILTER];
        let deviation = 1.0 / ((self.channels * FILTER * FILTER) as f64).sqrt();
        vec![
            Spec::new("x", &image(self.channels), NORMAL),
            Spec::new("w", &filter, Fill::Normal(deviation)),
            Spec::new("c", &image(self.filters), NORMAL),
        ]
    }

    pub(super) fn begin(&self, inputs: &Inputs) -> Result<Case> {
        let padding = [(0, 0), (0, 0), (1, 1), (1, 1)];
        let (x, w) = (inputs.tensor("x")?, inputs.tensor("w")?);
        if !self.gradient {
            return Ok(Case::value(move || {
                computed(layers::conv2d(&x.pad(padding)?, &w)?)
            }));
        }
        let by = [x.requires_grad()?, w.requires_grad()?];
        let c = inputs.tensor("c")?;
        Ok(Case::new(&["x", "w"], move || {
            let y = layers::conv2d(&by[0].pad(padding)?, &by[1])?;
            gradients(&y.mul(&c)?.sum(..)?, &by)
        }))
    }
}

/// Causal attention over (batch, heads, length, size).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Sequences.
    pub batch: usize,
    /// Heads of each.
    pub heads: usize,
    /// Positions.
    pub length: usize,
    /// Numbers a head has at a position.
    pub size: usize,
    /// Whether the gradients are taken instead.
    pub gradient: bool,
}

impl Attention {
    /// The folder of its inputs, which forward and gradients share.
    pub(super) fn set(&self) -> String {
        let Attention {
            batch,
            heads,
            length,
            size,
            ..
        } = self;
        format!("attention_{batch}x{heads}x{length}x{size}")
    }

    pub(super) fn reads(&self) -> Vec<Spec> {
        let shape = [self.batch, self.heads, self.length, self.size];
        ["q", "k", "v", "c"]
            .map(|name| Spec::new(name, &shape, NORMAL))
            .to_vec()
    }

    pub(super) fn begin(&self, inputs: &Inputs) -> Result<Case> {
        let [q, k, v] = ["q", "k", "v"].map(|name| inputs.tensor(name));
        let [q, k, v] = [q?, k?, v?];
        if !self.gradient {
            return Ok(Case::value(move || {
                computed(layers::attention(&q, &k, &v)?)
            }));
        }
        let by = [q.requires_grad()?, k.requires_grad()?, v.requires_grad()?];
        let c = inputs.tensor("c")?;
        Ok(Case::new(&["q", "k", "v"], move || {
            let y = layers::attention(&by[0], &by[1], &by[2])?;
            gradients(&y.mul(&c)?.sum(..)?, &by)
        }))
    }
}
