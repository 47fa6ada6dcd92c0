//! How much a step must do at least: operations of its products, or bytes that it can't avoid.
//!
//! What a product adds and multiplies counts, in a training step also in its gradients; everything
//! else of a model does not. So a limit made of these numbers is one that nothing reaches.

use super::models::{Cnn, Gpt, Mlp};
use super::single::{Attention, Convolution, FILTER, Product, Rows, Table};
use super::{Kind, Workload};

/// The least work of a step.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Work {
    /// Float operations of products, two for a multiplication and the addition of its result.
    pub flops: f64,
    /// Bytes read and written, where that takes longer than the operations.
    pub bytes: f64,
    /// Tokens of a language model.
    pub tokens: f64,
    /// Whether the step is one of training.
    pub trains: bool,
}

/// Bytes of that many floats.
fn floats(n: usize) -> f64 {
    4.0 * n as f64
}

/// Operations of a product.
fn product(m: usize, k: usize, n: usize) -> f64 {
    2.0 * m as f64 * k as f64 * n as f64
}

impl Workload {
    /// The least work of a step.
    pub fn work(&self) -> Work {
        let flops = |flops: f64| Work {
            flops,
            ..Work::default()
        };
        let bytes = |bytes: f64| Work {
            bytes,
            ..Work::default()
        };
        match &self.kind {
            Kind::Product(product) => product.work(),
            Kind::Elementwise(n) | Kind::Sort(n) | Kind::RunningSum(n) => bytes(floats(2 * n)),
            Kind::Softmax(rows) => bytes(floats(2 * rows.elements())),
            // x and w are read, the gradient is written.
            Kind::SoftmaxGradient(rows) => bytes(floats(3 * rows.elements())),
            Kind::LayerNorm(rows) => bytes(floats(3 * rows.elements())),
            Kind::Convolution(convolution) => flops(convolution.flops()),
            Kind::Attention(attention) => flops(attention.flops()),
            // The gradient is written, and what is added to it is read.
            Kind::Embedding(table) => bytes(floats(table.elements())),
            Kind::MlpStep(mlp) => Work {
                trains: true,
                ..flops(mlp.flops())
            },
            Kind::MlpHvp(mlp) => flops(mlp.hvp_flops()),
            Kind::GptStep(gpt) => Work {
                trains: true,
                tokens: (gpt.batch * gpt.length) as f64,
                ..flops(gpt.flops())
            },
            Kind::GptRatio(_)
            | Kind::BlockRatio(_)
            | Kind::CnnRatio(_)
            | Kind::MlpRatio(_)
            | Kind::ChainRatio(_) => Work::default(),
            Kind::CnnStep(cnn) => Work {
                trains: true,
                ..flops(cnn.flops())
            },
        }
    }
}

impl Product {
    fn work(&self) -> Work {
        let Product { batch, m, k, n, .. } = *self;
        let flops = batch as f64 * product(m, k, n);
        // With a single row or column each factor is read for one multiplication.
        match m == 1 || n == 1 {
            true => Work {
                bytes: floats(batch * (m * k + k * n + m * n)),
                ..Work::default()
            },
            false => Work {
                flops,
                ..Work::default()
            },
        }
    }
}

impl Rows {
    fn elements(&self) -> usize {
        self.rows * self.columns
    }
}

impl Table {
    fn elements(&self) -> usize {
        (self.rows + self.reads) * self.columns
    }
}

impl Convolution {
    /// One product for the result, and one more for each of both gradients.
    fn flops(&self) -> f64 {
        let rows = self.images * self.side * self.side;
        let products = if self.gradient { 3.0 } else { 1.0 };
        products * product(rows, self.channels * FILTER * FILTER, self.filters)
    }
}

impl Attention {
    /// Both products of the forward pass, or those and the five of the gradients. Half of each is
    /// behind the mask.
    fn flops(&self) -> f64 {
        let each = product(self.length, self.size, self.length) / 2.0;
        let products = if self.gradient { 7.0 } else { 2.0 };
        products * each * (self.batch * self.heads) as f64
    }
}

impl Mlp {
    /// Of each layer the product, and the gradients by its weights and, but for the first, by its
    /// input.
    fn flops(&self) -> f64 {
        let layers = self.layers();
        3.0 * layers.iter().sum::<f64>() - layers[0]
    }

    /// Of each layer what a step has, and as much for the derivative of all that: the gradient by the
    /// first input is missing in both.
    fn hvp_flops(&self) -> f64 {
        let layers = self.layers();
        6.0 * layers.iter().sum::<f64>() - 2.0 * layers[0]
    }

    fn layers(&self) -> Vec<f64> {
        let pairs = self.sizes.windows(2);
        pairs
            .map(|pair| product(self.batch, pair[0], pair[1]))
            .collect()
    }
}

impl Gpt {
    /// The products of the forward pass, and twice as much for the gradients.
    fn flops(&self) -> f64 {
        let rows = self.batch * self.length;
        let weights = product(rows, self.width, 12 * self.width);
        let scores = 2.0 * product(rows, self.length, self.width);
        let head = product(rows, self.width, self.vocabulary);
        3.0 * (self.layers as f64 * (weights + scores) + head)
    }
}

impl Cnn {
    fn flops(&self) -> f64 {
        let convolutions = self.filters.into_iter().zip(self.sides());
        let convolutions = convolutions.map(|([o, c, extent], side)| {
            product(self.images * side * side, c * extent * extent, o)
        });
        let last = product(self.images, self.features(), self.classes);
        let layers: Vec<f64> = convolutions.chain([last]).collect();
        3.0 * layers.iter().sum::<f64>() - layers[0]
    }
}

#[cfg(test)]
mod tests {
    /// Numbers that were counted once by hand, in millions.
    #[test]
    fn work_is_what_it_was() {
        let work = |name| super::super::find(name).unwrap().work();
        let millions = |flops: f64| (flops / 1e6).round();
        assert_eq!(work("matmul_1024").flops, 2.0 * 1024f64.powi(3));
        assert_eq!(work("matmul_1x4096x4096").bytes, 4.0 * 4096.0 * 4098.0);
        assert_eq!(work("elementwise_16m").bytes, 134_217_728.0);
        assert_eq!(millions(work("mlp_step").flops), 308.0);
        assert_eq!(millions(work("gpt_nano_step").flops), 3964.0);
        assert_eq!(millions(work("conv2d_fwd").flops), 7399.0);
        assert_eq!(millions(work("cnn_step").flops), 5015.0);
    }
}
