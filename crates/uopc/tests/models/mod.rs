//! Small models whose gradients need what the forward pass computed.

#![allow(dead_code, reason = "each test binary uses a part")]

use uopc::{Result, Tensor, value_and_grad};

/// Parameters, and what computes a loss from them.
pub type Built = (Vec<Tensor>, fn(&[Tensor]) -> Result<Tensor>);

/// A loss over parameters.
pub struct Model {
    pub name: &'static str,
    /// Makes them.
    pub build: fn() -> Built,
}

impl Model {
    /// Nothing is computed yet.
    pub fn loss_and_gradients(&self) -> Vec<Tensor> {
        let (parameters, loss) = (self.build)();
        let (value, gradients) = value_and_grad(|p: &Vec<Tensor>| loss(p))(&parameters).unwrap();
        [vec![value], gradients].concat()
    }
}

pub const MODELS: &[Model] = &[
    Model {
        name: "fully connected layers",
        build: mlp,
    },
    Model {
        name: "convolutions",
        build: cnn,
    },
    Model {
        name: "a transformer block",
        build: transformer,
    },
];

/// Numbers between -1 and 1 that follow from the seed.
pub fn numbers(shape: &[usize], seed: u32) -> Tensor {
    let n = shape.iter().product::<usize>() as u32;
    let number = |k: u32| {
        let mixed = (k ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
        ((mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35) >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..n).map(number).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

pub fn scaled(shape: &[usize], seed: u32) -> Tensor {
    let fan = shape[..shape.len() - 1].iter().product::<usize>() as f32;
    let x = numbers(shape, seed);
    let values = x.to_vec::<f32>().unwrap();
    let values: Vec<f32> = values.iter().map(|v| v * (3.0 / fan).sqrt()).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

pub fn mlp() -> Built {
    let weights = (0..10).map(|k| scaled(&[32, 32], k)).collect();
    (weights, |weights| {
        let mut h = numbers(&[64, 32], 100);
        for w in weights {
            h = h.matmul(w)?.relu()?;
        }
        h.square()?.mean(..)
    })
}

/// Twenty layers that cost alike.
pub fn chain() -> Built {
    let weights = (0..20).map(|k| scaled(&[64, 64], k)).collect();
    (weights, |weights| {
        let mut h = numbers(&[1024, 64], 100);
        for w in weights {
            h = h.matmul(w)?.relu()?;
        }
        h.square()?.mean(..)
    })
}

/// Convolutions of 3 by 3, as the sum over nine shifted products.
pub fn cnn() -> Built {
    let filters = (0..4).map(|k| scaled(&[3, 3, 4, 4], k)).collect();
    (filters, |filters| {
        let mut h = numbers(&[2, 10, 10, 4], 100);
        for w in filters {
            let padded = h.pad([(0, 0), (1, 1), (1, 1), (0, 0)])?;
            let mut sum: Option<Tensor> = None;
            for (i, j) in (0..9).map(|k| (k / 3, k % 3)) {
                let window = padded.shrink([(0, 2), (i, i + 10), (j, j + 10), (0, 4)])?;
                let filter = w.shrink([(i, i + 1), (j, j + 1), (0, 4), (0, 4)])?;
                let part = window.reshape([200, 4])?.matmul(&filter.reshape([4, 4])?)?;
                sum = Some(match sum {
                    Some(sum) => sum.add(&part)?,
                    None => part,
                });
            }
            let sum = sum.expect("there are nine parts");
            h = sum.tanh()?.reshape([2, 10, 10, 4])?;
        }
        h.square()?.mean(..)
    })
}

pub fn transformer() -> Built {
    let mut weights: Vec<Tensor> = (0..4).map(|k| scaled(&[16, 16], k)).collect();
    weights.push(scaled(&[16, 64], 4));
    weights.push(scaled(&[64, 16], 5));
    (weights, |weights| {
        let mut x = numbers(&[2, 12, 16], 100);
        for _ in 0..2 {
            x = block(&x, weights)?;
        }
        x.square()?.mean(..)
    })
}

fn normal(x: &Tensor) -> Result<Tensor> {
    let x = x.sub(&x.mean_keepdim(-1)?)?;
    let var = x.square()?.mean_keepdim(-1)?;
    x.div(&var.add(1e-5f32)?.sqrt()?)
}

fn block(x: &Tensor, w: &[Tensor]) -> Result<Tensor> {
    let heads = |t: Tensor| t.reshape([2, 12, 4, 4])?.permute([0, 2, 1, 3]);
    let h = normal(x)?;
    let (q, k, v) = (
        heads(h.matmul(&w[0])?)?,
        heads(h.matmul(&w[1])?)?,
        heads(h.matmul(&w[2])?)?,
    );
    let scores = q.matmul(&k.swap_axes(-1, -2)?)?.mul(0.5f32)?.softmax(-1)?;
    let mixed = scores
        .matmul(&v)?
        .permute([0, 2, 1, 3])?
        .reshape([2, 12, 16])?;
    let x = x.add(&mixed.matmul(&w[3])?)?;
    let inner = normal(&x)?.matmul(&w[4])?.tanh()?;
    x.add(&inner.matmul(&w[5])?)
}
