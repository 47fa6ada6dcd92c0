//! Workloads of whole models: training steps, gradients, a product with the second derivative.

use uopc::Tensor;
use uopc::nn::{AdamW, Optimizer};

use super::inputs::{Fill, Inputs, Source, Spec};
use super::single::gradients;
use super::{Case, layers};
use crate::failure::Result;

/// A classifier of fully connected layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mlp {
    /// The folder of its inputs.
    pub set: &'static str,
    /// Inputs, hidden units, classes.
    pub sizes: &'static [usize],
    /// Rows of a batch.
    pub batch: usize,
}

/// For images of 28 x 28.
pub const MLP: Mlp = Mlp {
    set: "mlp",
    sizes: &[784, 512, 256, 10],
    batch: 128,
};

/// So small that only overhead takes time.
pub const TINY: Mlp = Mlp {
    set: "tiny",
    sizes: &[8, 16, 2],
    batch: 64,
};

/// A language model of the GPT-2 kind, its head tied to the table of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt {
    /// The folder of its inputs.
    pub set: &'static str,
    /// Blocks.
    pub layers: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Numbers for each token.
    pub width: usize,
    /// Positions.
    pub length: usize,
    /// Sequences of a batch.
    pub batch: usize,
    /// Tokens there are.
    pub vocabulary: usize,
}

/// 0.8 million parameters.
pub const NANO: Gpt = Gpt {
    set: "gpt_nano",
    layers: 4,
    heads: 4,
    width: 128,
    length: 64,
    batch: 12,
    vocabulary: 65,
};

/// 10.8 million parameters.
pub const SMALL: Gpt = Gpt {
    set: "gpt_small",
    layers: 6,
    heads: 6,
    width: 384,
    length: 256,
    batch: 4,
    vocabulary: 65,
};

/// A classifier of four convolutions, with pooling after the second and the fourth, and a layer
/// that is fully connected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cnn {
    /// Images of a batch.
    pub images: usize,
    /// Rows and columns of an image.
    pub side: usize,
    /// Its convolutions: filters, channels, extent of a filter.
    pub filters: [[usize; 3]; 4],
    /// Classes.
    pub classes: usize,
}

/// For images of 28 x 28.
pub const CNN: Cnn = Cnn {
    images: 64,
    side: 28,
    filters: [[32, 1, 5], [32, 32, 5], [64, 32, 3], [64, 64, 3]],
    classes: 10,
};

/// Parameters by name.
pub(super) struct Model(pub(super) Vec<(String, Tensor)>);

impl Model {
    fn tensors(&self) -> Vec<Tensor> {
        self.0.iter().map(|(_, t)| t.clone()).collect()
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn get(&self, name: &str) -> &Tensor {
        let found = self.0.iter().find(|(n, _)| n == name);
        &found.expect("a model reads the parameters it has").1
    }

    /// `x @ W + b` with the parameters of those names.
    fn linear(&self, x: &Tensor, weight: &str, bias: &str) -> uopc::Result<Tensor> {
        x.matmul(self.get(weight))?.add(self.get(bias))
    }
}

/// A training step: loss, gradients and update as one plan.
fn training(
    model: Model,
    weight_decay: f64,
    loss: impl Fn(&Model) -> uopc::Result<Tensor> + 'static,
) -> Result<Case> {
    let mut optimizer = AdamW::new(model.tensors(), 1e-3)?.weight_decay(weight_decay);
    let state = model.0.clone();
    let step = move || {
        let loss = loss(&model)?;
        optimizer.zero_grad();
        loss.backward(optimizer.parameters())?;
        optimizer.step_with(&loss)?;
        Ok(vec![loss])
    };
    Ok(Case {
        state,
        ..Case::new(&["loss"], step)
    })
}

impl Mlp {
    pub(super) fn reads(&self) -> Vec<Spec> {
        let mut specs = Vec::new();
        for (k, pair) in self.sizes.windows(2).enumerate() {
            let deviation = (2.0 / pair[0] as f64).sqrt();
            specs.push(Spec::new(format!("w{k}"), pair, Fill::Normal(deviation)));
            specs.push(Spec::new(format!("b{k}"), &pair[1..], Fill::Zeros));
        }
        let classes = self.sizes[self.sizes.len() - 1];
        let rows = [self.batch, self.sizes[0]];
        specs.push(Spec::new("x", &rows, Fill::Normal(1.0)));
        specs.push(Spec::new("y", &rows[..1], Fill::Below(classes)));
        specs
    }

    /// With a vector for each parameter, called v and its name.
    pub(super) fn reads_with_vectors(&self) -> Vec<Spec> {
        let mut specs = self.reads();
        let parameters = specs.len() - 2;
        let vector =
            |spec: &Spec| Spec::new(format!("v{}", spec.name), &spec.shape, Fill::Normal(1.0));
        let vectors: Vec<Spec> = specs[..parameters].iter().map(vector).collect();
        specs.extend(vectors);
        specs
    }

    pub(super) fn loss(&self, model: &Model, x: &Tensor, y: &Tensor) -> uopc::Result<Tensor> {
        let last = self.sizes.len() - 2;
        let mut h = x.clone();
        for k in 0..=last {
            h = model.linear(&h, &format!("w{k}"), &format!("b{k}"))?;
            if k < last {
                h = h.relu()?;
            }
        }
        h.cross_entropy(y)
    }

    pub(super) fn begin_step(&self, inputs: &Inputs) -> Result<Case> {
        let mlp = *self;
        let model = Model(inputs.parameters(&["x", "y"])?);
        let (x, y) = (inputs.tensor("x")?, inputs.tensor("y")?);
        training(model, 0.01, move |model| mlp.loss(model, &x, &y))
    }

    pub(super) fn begin_hvp(&self, inputs: &Inputs) -> Result<Case> {
        let mlp = *self;
        let specs = self.reads_with_vectors();
        let own = self.reads().len();
        let others: Vec<&str> = specs[own - 2..].iter().map(|s| &s.name[..]).collect();
        let model = Model(inputs.parameters(&others)?);
        let vectors = specs[own..].iter().map(|s| inputs.tensor(&s.name));
        let vectors = vectors.collect::<Result<Vec<Tensor>>>()?;
        let (x, y) = (inputs.tensor("x")?, inputs.tensor("y")?);
        let (by, names) = (model.tensors(), model.names());
        Ok(Case::new(&names, move || {
            mlp.loss(&model, &x, &y)?.backward(&by)?;
            let mut dot = Tensor::scalar(0.0)?;
            for (p, v) in by.iter().zip(&vectors) {
                let gradient = p.grad().expect("backward left one");
                dot = dot.add(&gradient.mul(v)?.sum(..)?)?;
            }
            by.iter().for_each(Tensor::zero_grad);
            gradients(&dot, &by)
        }))
    }
}

impl Gpt {
    pub(super) fn reads(&self) -> Vec<Spec> {
        let (c, v) = (self.width, self.vocabulary);
        let small = Fill::Normal(0.02);
        let mut specs = vec![
            Spec::new("wte", &[v, c], small),
            Spec::new("wpe", &[self.length, c], small),
        ];
        for k in 0..self.layers {
            specs.extend(self.block_parameters(k));
        }
        specs.extend(self.norm_parameters("lnf"));
        let tokens = [self.batch, self.length];
        specs.extend(["x", "y"].map(|name| Spec::new(name, &tokens, Fill::Below(v))));
        specs
    }

    /// The parameters of block k.
    pub(super) fn block_parameters(&self, k: usize) -> Vec<Spec> {
        let c = self.width;
        let small = Fill::Normal(0.02);
        let smaller = Fill::Normal(0.02 / (2.0 * self.layers as f64).sqrt());
        let linear = |name: &str, from: usize, to: usize, fill: Fill| {
            let weight = Spec::new(format!("h{k}.{name}_w"), &[from, to], fill);
            let bias = Spec::new(format!("h{k}.{name}_b"), &[to], Fill::Zeros);
            [weight, bias]
        };
        let parts = [
            self.norm_parameters(&format!("h{k}.ln1")),
            linear("attn", c, 3 * c, small),
            linear("proj", c, c, smaller),
            self.norm_parameters(&format!("h{k}.ln2")),
            linear("fc", c, 4 * c, small),
            linear("fc2", 4 * c, c, smaller),
        ];
        parts.into_iter().flatten().collect()
    }

    fn norm_parameters(&self, name: &str) -> [Spec; 2] {
        let weight = Spec::new(format!("{name}_w"), &[self.width], Fill::Ones);
        [
            weight,
            Spec::new(format!("{name}_b"), &[self.width], Fill::Zeros),
        ]
    }

    fn norm(&self, model: &Model, h: &Tensor, name: &str) -> uopc::Result<Tensor> {
        let (weight, bias) = (format!("{name}_w"), format!("{name}_b"));
        layers::layer_norm(h, model.get(&weight), model.get(&bias))
    }

    /// Block k: causal attention, then two layers with GELU between them, each after a layer norm
    /// and added to what went in.
    pub(super) fn block(&self, model: &Model, h: &Tensor, k: usize) -> uopc::Result<Tensor> {
        let (b, n, c) = (self.batch, self.length, self.width);
        let part = |name: &str| format!("h{k}.{name}");
        let norm = |h: &Tensor, name: &str| self.norm(model, h, &part(name));
        let linear = |h: &Tensor, name: &str| {
            let name = part(name);
            model.linear(h, &format!("{name}_w"), &format!("{name}_b"))
        };
        let t = linear(&norm(h, "ln1")?, "attn")?;
        let heads = |which: usize| {
            let bounds = [(0, b), (0, n), (which * c, (which + 1) * c)];
            t.shrink(bounds)?
                .reshape([b, n, self.heads, c / self.heads])?
                .permute([0, 2, 1, 3])
        };
        let a = layers::attention(&heads(0)?, &heads(1)?, &heads(2)?)?;
        let a = a.permute([0, 2, 1, 3])?.reshape([b, n, c])?;
        let h = h.add(&linear(&a, "proj")?)?;
        let t = layers::gelu(&linear(&norm(&h, "ln2")?, "fc")?)?;
        h.add(&linear(&t, "fc2")?)
    }

    pub(super) fn loss(&self, model: &Model, x: &Tensor, y: &Tensor) -> uopc::Result<Tensor> {
        // Rows of the table as a product with one-hots, which has a gradient.
        let table = model.get("wte");
        let mut h = x
            .one_hot(self.vocabulary)?
            .matmul(table)?
            .add(model.get("wpe"))?;
        for k in 0..self.layers {
            h = self.block(model, &h, k)?;
        }
        let logits = self.norm(model, &h, "lnf")?.matmul(&table.transpose()?)?;
        logits.cross_entropy(y)
    }

    /// The loss, the gradients and plain descent along them as graphs, for a look at what the
    /// compiler makes of them. Nothing is computed.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn graphs(&self) -> Result<Vec<Tensor>> {
        let inputs = Source::default().load(self.set, self.reads())?;
        let model = Model(inputs.parameters(&["x", "y"])?);
        let loss = self.loss(&model, &inputs.tensor("x")?, &inputs.tensor("y")?)?;
        let parameters = model.tensors();
        loss.backward(&parameters)?;
        let mut graphs = vec![loss];
        for parameter in &parameters {
            let gradient = parameter.grad().expect("backward left one");
            graphs.push(parameter.sub(&gradient.mul(1e-3)?)?);
            graphs.push(gradient);
        }
        Ok(graphs)
    }

    pub(super) fn begin_step(&self, inputs: &Inputs) -> Result<Case> {
        let gpt = *self;
        let model = Model(inputs.parameters(&["x", "y"])?);
        let (x, y) = (inputs.tensor("x")?, inputs.tensor("y")?);
        training(model, 0.01, move |model| gpt.loss(model, &x, &y))
    }
}

impl Cnn {
    /// Rows and columns of what each convolution gives. Pooling halves those of every other one.
    pub(super) fn sides(&self) -> [usize; 4] {
        let mut side = self.side;
        let mut k = 0;
        self.filters.map(|[.., extent]| {
            side = if k > 0 && k % 2 == 0 { side / 2 } else { side } + 1 - extent;
            k += 1;
            side
        })
    }

    /// Numbers that are left of an image for the last layer.
    pub fn features(&self) -> usize {
        let ([filters, ..], side) = (self.filters[3], self.sides()[3] / 2);
        filters * side * side
    }

    pub(super) fn reads(&self) -> Vec<Spec> {
        let mut specs = Vec::new();
        for (k, [o, c, extent]) in self.filters.into_iter().enumerate() {
            let deviation = (2.0 / (c * extent * extent) as f64).sqrt();
            let shape = [o, c, extent, extent];
            specs.push(Spec::new(format!("cw{k}"), &shape, Fill::Normal(deviation)));
            specs.push(Spec::new(format!("cb{k}"), &[o], Fill::Zeros));
        }
        let layer = [self.features(), self.classes];
        let deviation = (1.0 / layer[0] as f64).sqrt();
        specs.push(Spec::new("lw", &layer, Fill::Normal(deviation)));
        specs.push(Spec::new("lb", &layer[1..], Fill::Zeros));
        let images = [self.images, self.filters[0][1], self.side, self.side];
        specs.push(Spec::new("x", &images, Fill::Normal(1.0)));
        specs.push(Spec::new("y", &images[..1], Fill::Below(self.classes)));
        specs
    }

    pub(super) fn loss(&self, model: &Model, x: &Tensor, y: &Tensor) -> uopc::Result<Tensor> {
        let mut h = x.clone();
        for (k, [o, ..]) in self.filters.into_iter().enumerate() {
            let bias = model.get(&format!("cb{k}")).reshape([o, 1, 1])?;
            h = layers::conv2d(&h, model.get(&format!("cw{k}")))?
                .add(&bias)?
                .relu()?;
            if k % 2 == 1 {
                h = layers::max_pool2(&h)?;
            }
        }
        model
            .linear(&h.flatten(1, -1)?, "lw", "lb")?
            .cross_entropy(y)
    }

    pub(super) fn begin_step(&self, inputs: &Inputs) -> Result<Case> {
        let cnn = *self;
        let model = Model(inputs.parameters(&["x", "y"])?);
        let (x, y) = (inputs.tensor("x")?, inputs.tensor("y")?);
        // Adam is AdamW that pulls nothing towards 0.
        training(model, 0.0, move |model| cnn.loss(model, &x, &y))
    }
}
