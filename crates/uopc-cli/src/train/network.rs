//! The models that are trained, what a file of weights must hold to be one, and what a model makes
//! of a test set.

use std::path::Path;

use uopc::data::Labelled;
use uopc::data::digits::CLASSES;
use uopc::io::safetensors;
use uopc::nn::{Linear, Module, within};
use uopc::tensor::no_grad;
use uopc::{DType, Tensor};

use super::task::{Kind, Task};
use crate::bench::{layers, models};
use crate::failure::{Failure, Result};

/// Inputs, hidden units and classes of the networks that are fully connected.
const DIGITS: [usize; 3] = [64, 128, 10];
const MNIST: [usize; 4] = [784, 512, 256, 10];

/// A network and what it learns.
#[derive(Debug)]
pub struct Network {
    task: Task,
    layers: Layers,
}

#[derive(Debug)]
enum Layers {
    /// Fully connected, with relu between them.
    Mlp(Vec<(String, Linear)>),
    /// Convolutions, each with relu, pooling after every other one, then one that is fully
    /// connected: the network of the benchmark `cnn_step`.
    Cnn(Vec<(String, Convolution)>, Linear),
}

/// Filters of shape (filters, channels, rows, columns) and a number for each to be added.
#[derive(Debug)]
struct Convolution {
    weight: Tensor,
    bias: Tensor,
}

impl Convolution {
    /// Filters that have learned nothing: normally distributed, so that relu keeps the variance.
    fn new([filters, channels, extent]: [usize; 3]) -> Result<Convolution> {
        let deviation = (2.0 / (channels * extent * extent) as f64).sqrt();
        let weight = Tensor::randn([filters, channels, extent, extent])?.mul(deviation)?;
        Ok(Convolution {
            weight: weight.requires_grad()?,
            bias: Tensor::zeros([filters])?.requires_grad()?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let filters = self.bias.numel();
        let bias = self.bias.reshape([filters, 1, 1])?;
        Ok(layers::conv2d(x, &self.weight)?.add(&bias)?)
    }
}

impl Module for Convolution {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let named = |name: &str, t: &Tensor| (name.to_string(), t.clone());
        vec![named("weight", &self.weight), named("bias", &self.bias)]
    }
}

/// The layers of a fully connected network with so many between inputs and classes.
fn names(hidden: usize) -> Vec<String> {
    let mut names: Vec<String> = match hidden {
        1 => vec!["hidden".to_string()],
        n => (1..=n).map(|k| format!("hidden{k}")).collect(),
    };
    names.push("output".to_string());
    names
}

impl Network {
    /// A network that has learned nothing, with weights from the thread's generator.
    ///
    /// # Errors
    /// When there is no such network for the task, or a weight can't be computed.
    pub fn new(task: Task, kind: Kind) -> Result<Network> {
        let sizes: &[usize] = match task {
            Task::Digits => &DIGITS,
            Task::Mnist => &MNIST,
        };
        let layers = match (task, kind) {
            (_, Kind::Mlp) => {
                let layers = names(sizes.len() - 2).into_iter().zip(sizes.windows(2));
                let layer =
                    |(name, pair): (String, &[usize])| Ok((name, Linear::new(pair[0], pair[1])?));
                Layers::Mlp(layers.map(layer).collect::<Result<_>>()?)
            }
            (Task::Mnist, Kind::Cnn) => {
                let mut convolutions = Vec::new();
                for (k, filters) in models::CNN.filters.into_iter().enumerate() {
                    convolutions.push((format!("conv{}", k + 1), Convolution::new(filters)?));
                }
                Layers::Cnn(convolutions, Linear::new(models::CNN.features(), CLASSES)?)
            }
            (Task::Digits, Kind::Cnn) => return Err(too_small()),
        };
        Ok(Network { task, layers })
    }

    /// A network in words, before there is one.
    pub fn describe(task: Task, kind: Kind) -> String {
        match (task, kind) {
            (Task::Digits, _) => format!("MLP {}", dashed(&DIGITS)),
            (Task::Mnist, Kind::Mlp) => format!("MLP {}", dashed(&MNIST)),
            (Task::Mnist, Kind::Cnn) => {
                let filters = models::CNN.filters.map(|[o, _, k]| [o, k, k]);
                let output = [models::CNN.features(), CLASSES];
                format!("CNN {}", convolved(&filters, &output))
            }
        }
    }

    /// The sizes of its layers: units with dashes between them, and filters with their extents.
    pub fn sizes(&self) -> String {
        match &self.layers {
            Layers::Mlp(layers) => {
                let mut sizes = vec![self.task.pixels()];
                sizes.extend(layers.iter().filter_map(|(_, l)| l.weight.shape().last()));
                dashed(&sizes)
            }
            Layers::Cnn(convolutions, output) => {
                let filters = convolutions.iter().map(|(_, c)| {
                    let shape = c.weight.shape();
                    [shape[0], shape[2], shape[3]]
                });
                convolved(&filters.collect::<Vec<_>>(), output.weight.shape())
            }
        }
    }

    /// What it learns.
    pub fn task(&self) -> Task {
        self.task
    }

    /// A trained network, of the kind whose names and shapes the file has.
    ///
    /// # Errors
    /// When the file can't be read or holds something else.
    pub fn load(path: &Path) -> Result<Network> {
        let tensors = safetensors::load(path)?;
        let has = |name: &str| tensors.iter().any(|(n, _)| n == name);
        let convolutions = has("conv1.weight");
        let task = match convolutions || has("hidden1.weight") {
            true => Task::Mnist,
            false => Task::Digits,
        };
        let tensor = |name: &str| match tensors.iter().find(|(n, _)| n == name) {
            Some((_, t)) => Ok(t.clone()),
            None => Err(foreign(path, task, &format!("it has no tensor {name}"))),
        };
        let linear = |name: &str| -> Result<Linear> {
            let bias = Some(tensor(&format!("{name}.bias"))?);
            Ok(Linear {
                weight: tensor(&format!("{name}.weight"))?,
                bias,
            })
        };
        let mlp = |names: Vec<String>| -> Result<Layers> {
            let layer = |name: String| {
                let layer = linear(&name)?;
                Ok((name, layer))
            };
            let layers = names.into_iter().map(layer);
            Ok(Layers::Mlp(layers.collect::<Result<_>>()?))
        };
        let layers = match (task, convolutions) {
            (Task::Mnist, true) => {
                let mut convolutions = Vec::new();
                for k in 1..=models::CNN.filters.len() {
                    let name = format!("conv{k}");
                    let convolution = Convolution {
                        weight: tensor(&format!("{name}.weight"))?,
                        bias: tensor(&format!("{name}.bias"))?,
                    };
                    convolutions.push((name, convolution));
                }
                Layers::Cnn(convolutions, linear("output")?)
            }
            (Task::Mnist, false) => mlp(names(MNIST.len() - 2))?,
            (Task::Digits, _) => mlp(names(DIGITS.len() - 2))?,
        };
        let network = Network { task, layers };
        for ((name, t), wanted) in network.named_parameters().iter().zip(network.shapes()) {
            if t.shape()[..] != wanted[..] || !t.dtype().is_float() {
                let (dtype, shape) = (t.dtype(), t.shape());
                let what = format!("{name} is {dtype} of shape {shape}");
                return Err(foreign(path, task, &what));
            }
        }
        Ok(network)
    }

    /// The shapes that the parameters must have: hidden layers may have any number of units.
    fn shapes(&self) -> Vec<Vec<usize>> {
        let mut shapes = Vec::new();
        let mut linear = |inputs: usize, outputs: usize| {
            shapes.push(vec![inputs, outputs]);
            shapes.push(vec![outputs]);
        };
        match &self.layers {
            Layers::Mlp(layers) => {
                let mut inputs = self.task.pixels();
                for (k, (_, layer)) in layers.iter().enumerate() {
                    let units = layer.weight.shape().last().copied().unwrap_or(0);
                    let outputs = if k + 1 == layers.len() {
                        CLASSES
                    } else {
                        units
                    };
                    linear(inputs, outputs);
                    inputs = outputs;
                }
            }
            Layers::Cnn(..) => {
                let filters = models::CNN.filters.into_iter();
                shapes = filters
                    .flat_map(|[o, c, k]| [vec![o, c, k, k], vec![o]])
                    .collect();
                shapes.push(vec![models::CNN.features(), CLASSES]);
                shapes.push(vec![CLASSES]);
            }
        }
        shapes
    }

    /// How many numbers it has learned.
    pub fn size(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }

    /// The logits of images, a row of pixels each.
    ///
    /// # Errors
    /// When the rows have another length.
    pub fn forward(&self, images: &Tensor) -> Result<Tensor> {
        match &self.layers {
            Layers::Mlp(layers) => {
                let mut h = images.clone();
                for (k, (_, layer)) in layers.iter().enumerate() {
                    h = layer.forward(&h)?;
                    if k + 1 < layers.len() {
                        h = h.relu()?;
                    }
                }
                Ok(h)
            }
            Layers::Cnn(convolutions, output) => {
                let side = models::CNN.side;
                let mut h = images.reshape([images.shape()[0], 1, side, side])?;
                for (k, (_, convolution)) in convolutions.iter().enumerate() {
                    h = convolution.forward(&h)?.relu()?;
                    if k % 2 == 1 {
                        h = layers::max_pool2(&h)?;
                    }
                }
                Ok(output.forward(&h.flatten(1, -1)?)?)
            }
        }
    }

    /// What it makes of images whose labels are known: one plan for each batch of images, all at
    /// once if they are few. The loss is the mean over all images.
    ///
    /// # Errors
    /// When it can't be computed.
    pub fn test(&self, images: &Labelled) -> Result<Test> {
        let _off = no_grad();
        let n = images.len();
        let rows: Vec<usize> = (0..n).collect();
        let mut predictions = Vec::with_capacity(n);
        let mut loss = 0.0;
        for batch in rows.chunks(self.task.test_batch().min(n).max(1)) {
            let (pixels, labels) = images.batch(batch)?;
            let logits = self.forward(&pixels)?;
            let mean = logits.cross_entropy(&labels)?;
            let found = logits.argmax(-1)?.cast(DType::I32)?;
            Tensor::realize_all(&[&mean, &found])?;
            predictions.extend(found.to_vec::<i32>()?);
            loss += mean.item()? * (batch.len() as f64 / n as f64);
        }
        Ok(Test {
            loss,
            predictions,
            labels: images.labels.clone(),
        })
    }
}

/// Filters, rows and columns of convolutions, and the sizes of the last layer.
fn convolved(filters: &[[usize; 3]], output: &[usize]) -> String {
    let parts = filters.iter().map(|[o, h, w]| format!("{o}x{h}x{w}"));
    let parts: Vec<String> = parts.chain([dashed(output)]).collect();
    parts.join(", ")
}

/// Numbers with dashes between them.
fn dashed(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    sizes.join("-")
}

/// Why the digits have one model.
pub fn too_small() -> Failure {
    Failure::usage("--model cnn: the digits are too small for it; use mlp, or learn mnist")
}

fn foreign(path: &Path, task: Task, what: &str) -> Failure {
    let (path, task) = (path.display(), task.words());
    Failure::failed(format!("{path}: no model of {task}: {what}"))
}

impl Module for Network {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        match &self.layers {
            Layers::Mlp(layers) => {
                let parts = layers.iter().map(|(name, layer)| within(name, layer));
                parts.collect::<Vec<_>>().concat()
            }
            Layers::Cnn(convolutions, output) => {
                let parts = convolutions.iter().map(|(name, c)| within(name, c));
                let parts = parts.chain([within("output", output)]);
                parts.collect::<Vec<_>>().concat()
            }
        }
    }
}

/// What a model makes of the test set.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// The mean cross-entropy, in nats.
    pub loss: f64,
    /// The digit that it sees in each image.
    pub predictions: Vec<i32>,
    /// The digit that is there.
    pub labels: Vec<i32>,
}

impl Test {
    /// How many images it gets right.
    pub fn right(&self) -> usize {
        let pairs = self.predictions.iter().zip(&self.labels);
        pairs.filter(|(p, l)| p == l).count()
    }

    /// The share of images that it gets right.
    pub fn accuracy(&self) -> f64 {
        self.right() as f64 / self.labels.len() as f64
    }

    /// How often it sees digit j in an image of digit i.
    pub fn confusion(&self) -> [[usize; CLASSES]; CLASSES] {
        let mut counts = [[0; CLASSES]; CLASSES];
        for (&p, &l) in self.predictions.iter().zip(&self.labels) {
            counts[l as usize][p as usize] += 1;
        }
        counts
    }
}
