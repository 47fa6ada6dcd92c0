//! Workloads with fixed names and shapes, to be timed side by side with other frameworks.
//!
//! A [`Workload`] says what it reads and what a step of it is. The shapes and the way of timing are
//! those of the peers' scripts, so that one line of results compares with another of the same name.

pub mod inputs;
pub mod layers;
pub mod measure;
pub mod models;
pub mod peak;
pub mod ratio;
pub mod report;
pub mod single;
pub mod work;

use uopc::Tensor;

use crate::failure::{Failure, Result};
use inputs::{Inputs, Source, Spec};
use models::{Cnn, Gpt, Mlp};
use ratio::Chain;
use single::{Attention, Convolution, Layout, Product, Rows, Table};

/// Something with a name that is timed.
pub struct Workload {
    /// Its name, equal in all frameworks.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What is computed.
    pub kind: Kind,
}

/// What a workload computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A product of matrices.
    Product(Product),
    /// relu(a * 2 + 1) * 3 of so many floats.
    Elementwise(usize),
    /// So many floats in ascending order.
    Sort(usize),
    /// Their running sums.
    RunningSum(usize),
    /// Softmax over rows.
    Softmax(Rows),
    /// The gradient of its weighted sum.
    SoftmaxGradient(Rows),
    /// The gradients of a layer norm of rows.
    LayerNorm(Rows),
    /// A convolution, whose result is as large as its images.
    Convolution(Convolution),
    /// Causal softmax attention.
    Attention(Attention),
    /// The gradient of an embedding, as a dense table.
    Embedding(Table),
    /// A training step of a classifier of fully connected layers.
    MlpStep(Mlp),
    /// The product of the second derivative of its loss with a vector.
    MlpHvp(Mlp),
    /// A training step of a language model.
    GptStep(Gpt),
    /// The time of its gradients over that of its loss.
    GptRatio(Gpt),
    /// The same for one of its blocks.
    BlockRatio(Gpt),
    /// A training step of a classifier with convolutions.
    CnnStep(Cnn),
    /// The time of its gradients over that of its loss.
    CnnRatio(Cnn),
    /// The same for a classifier of fully connected layers.
    MlpRatio(Mlp),
    /// The same for functions of rows, one after the other.
    ChainRatio(Chain),
}

const fn row(name: &'static str, about: &'static str, kind: Kind) -> Workload {
    Workload { name, about, kind }
}

const fn product(
    name: &'static str,
    about: &'static str,
    [m, k, n]: [usize; 3],
    layout: Layout,
) -> Workload {
    let product = Product {
        batch: 1,
        m,
        k,
        n,
        layout,
        bf16: false,
    };
    row(name, about, Kind::Product(product))
}

const fn square(name: &'static str, about: &'static str, n: usize) -> Workload {
    product(name, about, [n, n, n], Layout::Plain)
}

const fn attention(
    name: &'static str,
    about: &'static str,
    kind: [usize; 4],
    gradient: bool,
) -> Workload {
    let [batch, heads, length, size] = kind;
    let attention = Attention {
        batch,
        heads,
        length,
        size,
        gradient,
    };
    row(name, about, Kind::Attention(attention))
}

const SOFTMAX: Rows = Rows {
    rows: 4096,
    columns: 1024,
};

const LAYER_NORM: Rows = Rows {
    rows: 4096,
    columns: 768,
};

const CONVOLUTION: Convolution = Convolution {
    images: 32,
    channels: 64,
    filters: 64,
    side: 56,
    gradient: false,
};

const EMBEDDING: Table = Table {
    rows: 50257,
    columns: 256,
    reads: 8192,
};

/// All workloads, in the order in which they are listed and run.
pub const WORKLOADS: &[Workload] = &[
    square("matmul_256", "(256, 256) @ (256, 256)", 256),
    square("matmul_512", "(512, 512) @ (512, 512)", 512),
    square("matmul_1024", "(1024, 1024) @ (1024, 1024)", 1024),
    square("matmul_2048", "(2048, 2048) @ (2048, 2048)", 2048),
    product(
        "matmul_1000x777x333",
        "(1000, 777) @ (777, 333)",
        [1000, 777, 333],
        Layout::Plain,
    ),
    product(
        "matmul_64x4096x64",
        "(64, 4096) @ (4096, 64)",
        [64, 4096, 64],
        Layout::Plain,
    ),
    product(
        "matmul_4096x64x64",
        "(4096, 64) @ (64, 64)",
        [4096, 64, 64],
        Layout::Plain,
    ),
    product(
        "matmul_1x4096x4096",
        "(1, 4096) @ (4096, 4096)",
        [1, 4096, 4096],
        Layout::Plain,
    ),
    row(
        "matmul_batched_96x64x64x32",
        "96 times (64, 64) @ (64, 32)",
        Kind::Product(Product {
            batch: 96,
            m: 64,
            k: 64,
            n: 32,
            layout: Layout::Plain,
            bf16: false,
        }),
    ),
    product(
        "matmul_tn_1024",
        "A^T @ B, both (1024, 1024)",
        [1024; 3],
        Layout::LeftTransposed,
    ),
    product(
        "matmul_nt_1024",
        "A @ B^T, both (1024, 1024)",
        [1024; 3],
        Layout::RightTransposed,
    ),
    row(
        "matmul_bf16_1024",
        "(1024, 1024) @ (1024, 1024) in bf16",
        Kind::Product(Product {
            batch: 1,
            m: 1024,
            k: 1024,
            n: 1024,
            layout: Layout::Plain,
            bf16: true,
        }),
    ),
    row(
        "elementwise_16m",
        "relu(a * 2 + 1) * 3 of 2^24 floats",
        Kind::Elementwise(1 << 24),
    ),
    row(
        "sort_1m",
        "1,000,000 floats in ascending order",
        Kind::Sort(1_000_000),
    ),
    row(
        "cumsum_10m",
        "running sums of 10,000,000 floats",
        Kind::RunningSum(10_000_000),
    ),
    row(
        "softmax_4096x1024",
        "softmax over rows",
        Kind::Softmax(SOFTMAX),
    ),
    row(
        "softmax_fwd_bwd",
        "gradient of sum(softmax(x) * w), (4096, 1024)",
        Kind::SoftmaxGradient(SOFTMAX),
    ),
    row(
        "layernorm_fwd_bwd",
        "gradients of sum(layernorm(x) * c), (4096, 768)",
        Kind::LayerNorm(LAYER_NORM),
    ),
    row(
        "conv2d_fwd",
        "(32, 64, 56, 56), 64 filters of 3 x 3, padding 1",
        Kind::Convolution(CONVOLUTION),
    ),
    row(
        "conv2d_fwd_bwd",
        "its gradients by images and filters",
        Kind::Convolution(Convolution {
            gradient: true,
            ..CONVOLUTION
        }),
    ),
    attention(
        "attention_nano",
        "causal, (12, 4, 64, 32)",
        [12, 4, 64, 32],
        false,
    ),
    attention(
        "attention_small",
        "causal, (4, 6, 256, 64)",
        [4, 6, 256, 64],
        false,
    ),
    attention(
        "attention_2048",
        "causal, (1, 8, 2048, 64)",
        [1, 8, 2048, 64],
        false,
    ),
    attention(
        "attention_2048_fwd_bwd",
        "its gradients by all three inputs",
        [1, 8, 2048, 64],
        true,
    ),
    row(
        "embedding_bwd",
        "gradient by a table (50257, 256) of 8192 rows read",
        Kind::Embedding(EMBEDDING),
    ),
    row(
        "mlp_step",
        "784-512-256-10, batch 128, AdamW",
        Kind::MlpStep(models::MLP),
    ),
    row(
        "tiny_step",
        "8-16-2, batch 64, AdamW",
        Kind::MlpStep(models::TINY),
    ),
    row(
        "cnn_step",
        "four convolutions, batch 64, Adam",
        Kind::CnnStep(models::CNN),
    ),
    row(
        "gpt_nano_step",
        "4 layers of 128, 12 x 64 tokens, AdamW",
        Kind::GptStep(models::NANO),
    ),
    row(
        "gpt_small_step",
        "6 layers of 384, 4 x 256 tokens, AdamW",
        Kind::GptStep(models::SMALL),
    ),
    row(
        "grad_ratio_gpt_nano",
        "time of its gradients over time of its loss",
        Kind::GptRatio(models::NANO),
    ),
    row(
        "grad_ratio_block",
        "the same for one block of gpt_small",
        Kind::BlockRatio(models::SMALL),
    ),
    row(
        "grad_ratio_mlp",
        "the same for the model of mlp_step",
        Kind::MlpRatio(models::MLP),
    ),
    row(
        "grad_ratio_cnn",
        "the same for the model of cnn_step",
        Kind::CnnRatio(models::CNN),
    ),
    row(
        "grad_ratio_softmax",
        "the same for three softmaxes in a row, (4096, 1024)",
        Kind::ChainRatio(Chain {
            rows: SOFTMAX,
            length: 3,
            norm: false,
        }),
    ),
    row(
        "grad_ratio_layernorm",
        "the same for three layer norms in a row, (4096, 768)",
        Kind::ChainRatio(Chain {
            rows: LAYER_NORM,
            length: 3,
            norm: true,
        }),
    ),
    row(
        "hvp_mlp",
        "second derivative of mlp_step's loss times a vector",
        Kind::MlpHvp(models::MLP),
    ),
];

/// The workload of that name.
///
/// # Errors
/// A usage failure when there is none.
pub fn find(name: &str) -> Result<&'static Workload> {
    let found = WORKLOADS.iter().find(|w| w.name == name);
    found.ok_or_else(|| {
        Failure::usage(format!(
            "there is no workload `{name}`; `uopc bench --list` prints those there are"
        ))
    })
}

/// A step, which leaves its results, the one that is reported first.
pub type Step = Box<dyn FnMut() -> uopc::Result<Vec<Tensor>>>;

/// A workload that is ready to run.
pub struct Case {
    /// What is timed.
    pub step: Step,
    /// What its time is divided by, for a ratio of two.
    pub forward: Option<Step>,
    /// What the results of a step are called.
    pub results: Vec<String>,
    /// What a step changes, by name: the parameters of a model that is trained.
    pub state: Vec<(String, Tensor)>,
}

impl Case {
    fn new(
        results: &[impl ToString],
        step: impl FnMut() -> uopc::Result<Vec<Tensor>> + 'static,
    ) -> Case {
        Case {
            step: Box::new(step),
            forward: None,
            results: results.iter().map(ToString::to_string).collect(),
            state: Vec::new(),
        }
    }

    /// A step with one result.
    fn value(mut step: impl FnMut() -> uopc::Result<Tensor> + 'static) -> Case {
        Case::new(&["y"], move || Ok(vec![step()?]))
    }
}

impl Workload {
    /// Its inputs.
    ///
    /// # Errors
    /// When a file is missing or has another length.
    pub fn inputs(&self, source: &Source) -> Result<Inputs> {
        let (set, specs) = self.reads();
        source.load(&set, specs)
    }

    /// The folder of its inputs, and what they are.
    fn reads(&self) -> (String, Vec<Spec>) {
        let own = || self.name.to_string();
        match &self.kind {
            Kind::Product(product) => (own(), product.reads()),
            Kind::Elementwise(n) | Kind::Sort(n) | Kind::RunningSum(n) => {
                (own(), single::elementwise_reads(*n))
            }
            Kind::Softmax(rows) | Kind::SoftmaxGradient(rows) => {
                ("softmax".into(), rows.softmax_reads())
            }
            Kind::LayerNorm(rows) => ("layernorm".into(), rows.layer_norm_reads()),
            Kind::Convolution(convolution) => ("conv2d".into(), convolution.reads()),
            Kind::Attention(attention) => (attention.set(), attention.reads()),
            Kind::Embedding(table) => (own(), table.reads()),
            Kind::MlpStep(mlp) => (mlp.set.into(), mlp.reads()),
            Kind::MlpHvp(mlp) => (mlp.set.into(), mlp.reads_with_vectors()),
            Kind::GptStep(gpt) | Kind::GptRatio(gpt) => (gpt.set.into(), gpt.reads()),
            Kind::CnnStep(cnn) => ("cnn".into(), cnn.reads()),
            Kind::BlockRatio(gpt) => (own(), gpt.block_reads()),
            Kind::CnnRatio(cnn) => (own(), cnn.reads()),
            Kind::MlpRatio(mlp) => (own(), mlp.reads()),
            Kind::ChainRatio(chain) => (own(), chain.reads()),
        }
    }

    /// Makes tensors of the inputs, and the model and the optimiser if it has them. No step is
    /// taken yet.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn begin(&self, inputs: &Inputs) -> Result<Case> {
        match &self.kind {
            Kind::Product(product) => product.begin(inputs),
            Kind::Elementwise(_) => single::elementwise(inputs),
            Kind::Sort(_) => single::sort(inputs),
            Kind::RunningSum(_) => single::running_sum(inputs),
            Kind::Softmax(_) => single::softmax(inputs),
            Kind::SoftmaxGradient(_) => single::softmax_gradient(inputs),
            Kind::LayerNorm(_) => single::layer_norm(inputs),
            Kind::Convolution(convolution) => convolution.begin(inputs),
            Kind::Attention(attention) => attention.begin(inputs),
            Kind::Embedding(_) => single::embedding_gradient(inputs),
            Kind::MlpStep(mlp) => mlp.begin_step(inputs),
            Kind::MlpHvp(mlp) => mlp.begin_hvp(inputs),
            Kind::GptStep(gpt) => gpt.begin_step(inputs),
            Kind::GptRatio(gpt) => gpt.begin_ratio(inputs),
            Kind::CnnStep(cnn) => cnn.begin_step(inputs),
            Kind::BlockRatio(gpt) => gpt.begin_block_ratio(inputs),
            Kind::CnnRatio(cnn) => cnn.begin_ratio(inputs),
            Kind::MlpRatio(mlp) => mlp.begin_ratio(inputs),
            Kind::ChainRatio(chain) => chain.begin(inputs),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uopc::compile::Engine;
    use uopc::debug::Settings;
    use uopc::tensor::with_engine;

    use super::*;

    /// Runs `f` with an engine of its own, which keeps nothing between processes.
    pub(super) fn alone<R>(f: impl FnOnce() -> R) -> R {
        let engine = Arc::new(Engine::new(Settings::default()).unwrap());
        with_engine(&engine, f)
    }

    #[test]
    fn names_are_unique_and_found() {
        for (k, workload) in WORKLOADS.iter().enumerate() {
            let earlier = &WORKLOADS[..k];
            assert!(
                earlier.iter().all(|w| w.name != workload.name),
                "{}",
                workload.name
            );
            assert_eq!(find(workload.name).unwrap().name, workload.name);
        }
        assert_eq!(find("matmul").err().map(|f| f.exit_code()), Some(2));
    }

    #[test]
    fn a_tiny_step_trains() {
        alone(|| {
            let workload = find("tiny_step").unwrap();
            let inputs = workload.inputs(&Source::default()).unwrap();
            let mut case = workload.begin(&inputs).unwrap();
            let losses: Vec<f64> = (0..20)
                .map(|_| (case.step)().unwrap()[0].item().unwrap())
                .collect();
            assert!(losses[19] < losses[0], "{losses:?}");
        });
    }
}
