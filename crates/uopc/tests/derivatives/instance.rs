//! A case with numbers, and its derivatives along directions.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uopc::autodiff::gradient;
use uopc::compile::{Engine, RealizeOptions};
use uopc::ir::op::ParamMode;
use uopc::ir::{DType, UOp};
use uopc::runtime::Storage;

use super::{Case, Domain};
use crate::oracle::*;

/// A case with numbers: its loss as a function of the inputs.
pub struct Instance {
    pub targets: Vec<UOp>,
    /// The function itself.
    pub value: UOp,
    /// The sum of its elements, each times a weight.
    pub loss: UOp,
    /// The number of the first slot.
    pub base: u32,
    /// Inputs, then the weights of the loss, then [`DIRECTIONS`] directions for each input.
    pub slots: Vec<Vec<f64>>,
}

/// Directions along which a case is differentiated: one for each order.
pub const DIRECTIONS: usize = 3;

/// The case with numbers; its slots begin at `base`.
pub fn instance(case: &Case, dtype: DType, base: u32) -> Instance {
    let mut rng = StdRng::seed_from_u64(7);
    // The inputs are buffers, but for the case that is about the arguments of kernels.
    let leaf = |(k, dims): (usize, &&[usize])| match case.op {
        Some("param") => UOp::param(base + k as u32, ParamMode::In, dtype, dims[0]),
        _ => input_of(base + k as u32, dims, dtype),
    };
    let targets: Vec<UOp> = case.inputs.iter().enumerate().map(leaf).collect();
    let mut slots: Vec<Vec<f64>> = case
        .inputs
        .iter()
        .map(|dims| sample(case.domain, dims, &mut rng))
        .collect();
    let u = (case.build)(&targets);
    let weights = input_of(base + slots.len() as u32, u.shape(), dtype);
    let loss = sum(&(&u.cast(dtype).unwrap() * &weights));
    // Few bits, so that the product with a value that has few bits is exact.
    let weight = |_| f64::from(rng.random_range(8..=24)) / 16.0;
    slots.push((0..u.shape().numel()).map(weight).collect());
    for _ in 0..DIRECTIONS {
        for dims in case.inputs {
            let n = dims.iter().product();
            slots.push((0..n).map(|_| dyadic(&mut rng, 16, 16.0)).collect());
        }
    }
    Instance {
        targets,
        value: u,
        loss,
        base,
        slots,
    }
}

/// A multiple of 1/step in -range/step to range/step, never 0.
fn dyadic(rng: &mut StdRng, range: i32, step: f64) -> f64 {
    let k = rng.random_range(1..=range);
    f64::from(if rng.random_bool(0.5) { k } else { -k }) / step
}

/// Numbers of a domain.
pub fn sample(domain: Domain, dims: &[usize], rng: &mut StdRng) -> Vec<f64> {
    let n = dims.iter().product();
    match domain {
        Domain::Real => (0..n).map(|_| rng.random_range(-2.0..2.0)).collect(),
        Domain::Positive => (0..n).map(|_| rng.random_range(0.5..2.0)).collect(),
        Domain::Dyadic => (0..n).map(|_| dyadic(rng, 512, 256.0)).collect(),
        Domain::Zeros => {
            let mut x = sample(Domain::Real, dims, rng);
            x[0] = 0.0;
            x[n - 1] = 0.0;
            x
        }
        Domain::Apart => {
            // All different, and drawn from odd or even quarters so that inputs differ too.
            let parity = rng.random_range(0..2);
            let mut pool: Vec<i32> = (-16..16).map(|k| 2 * k + parity).collect();
            let mut draw = || pool.swap_remove(rng.random_range(0..pool.len()));
            (0..n).map(|_| f64::from(draw()) / 4.0).collect()
        }
    }
}

impl Instance {
    /// The inputs moved by `t` along direction number `d`.
    pub fn moved(&self, d: usize, t: f64) -> Vec<Vec<f64>> {
        let mut slots = self.slots.clone();
        for (k, x) in slots.iter_mut().take(self.targets.len()).enumerate() {
            for (x, v) in x.iter_mut().zip(self.direction(d, k)) {
                *x += t * v;
            }
        }
        slots
    }

    /// Direction number `d` of input k.
    pub fn direction(&self, d: usize, k: usize) -> &[f64] {
        &self.slots[self.direction_slot(d, k)]
    }

    /// The place of that direction among the slots.
    pub fn direction_slot(&self, d: usize, k: usize) -> usize {
        let n = self.targets.len();
        n + 1 + d * n + k
    }

    /// The derivative of a scalar node along direction `d`, from differences of sixth order.
    pub fn slope(&self, u: &UOp, d: usize, step: f64) -> f64 {
        let at = |t: f64| {
            let slots = self.moved(d, t * step);
            let slots: Vec<&[f64]> = slots.iter().map(Vec::as_slice).collect();
            value(u, &slots)[0]
        };
        let odd = |t: f64| at(t) - at(-t);
        (45.0 * odd(1.0) - 9.0 * odd(2.0) + odd(3.0)) / (60.0 * step)
    }

    /// Direction `d` of each input, as nodes.
    pub fn directions(&self, d: usize) -> Vec<UOp> {
        let node = |(k, x): (usize, &UOp)| {
            let slot = self.base + self.direction_slot(d, k) as u32;
            input_of(slot, x.shape(), x.dtype())
        };
        self.targets.iter().enumerate().map(node).collect()
    }

    /// The inner product of the gradients of `u` and direction `d`, as a node.
    pub fn inner_product(&self, u: &UOp, d: usize) -> UOp {
        let found = gradient(u, &self.targets).unwrap();
        let directions = self.directions(d);
        let terms = found.iter().zip(&directions).map(|(g, v)| sum(&(g * v)));
        terms.reduce(|a, b| &a + &b).expect("a case has an input")
    }

    /// The sum of the magnitudes of the terms of [`Self::inner_product`].
    pub fn magnitude(&self, u: &UOp, d: usize) -> f64 {
        let slots: Vec<&[f64]> = self.slots.iter().map(Vec::as_slice).collect();
        let found = gradients(u, &self.targets, &slots);
        let terms = found
            .iter()
            .enumerate()
            .flat_map(|(k, g)| g.iter().zip(self.direction(d, k)));
        terms.map(|(g, v)| (g * v).abs()).sum()
    }

    /// The value of a scalar node.
    pub fn number(&self, u: &UOp) -> f64 {
        let slots: Vec<&[f64]> = self.slots.iter().map(Vec::as_slice).collect();
        value(u, &slots)[0]
    }
}

/// The values of f32 roots by the engine.
pub fn realize(engine: &Engine, roots: &[UOp], slots: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let bind = |(k, values): (usize, &Vec<f64>)| {
        let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        (k as u32, Storage::from_slice(&narrow).unwrap())
    };
    let slots: Vec<_> = slots.iter().enumerate().map(bind).collect();
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    let wide = |s: &Arc<Storage>| s.to_vec::<f32>().into_iter().map(f64::from).collect();
    let realized = engine.realize(roots, &options).unwrap();
    realized.outputs.iter().map(wide).collect()
}
