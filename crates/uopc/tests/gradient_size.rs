//! How large gradient graphs are: as they are built, and after the exact rules of simplification.
//!
//! Counts are asserted and printed. With `UOPC_PERF` set (`cargo xtask perf`) the time to build and
//! simplify the gradient of a transformer of 12 layers is printed too.

use std::hint::black_box;
use std::time::Instant;

use uopc::autodiff::pullback;
use uopc::debug::Settings;
use uopc::ir::visit::Graph;
use uopc::ir::{UOp, verify};
use uopc::pass::simplify::simplify_shapes;
use uopc::pass::strip_detach::strip_detach;
use uopc::{DType, Result, Tensor};

/// The roots as a plan would see them before kernels are made.
fn simplified(roots: &[UOp]) -> Vec<UOp> {
    let graph = verify::shape_graph(roots.to_vec()).unwrap();
    let (stripped, _) = strip_detach(&graph).unwrap();
    let (simple, _) = simplify_shapes(&stripped, &Settings::default()).unwrap();
    simple.roots().to_vec()
}

fn nodes(roots: &[UOp]) -> usize {
    Graph::new(roots).len()
}

/// Nodes of a value, of it with its gradients as they are built, and of both simplified.
#[derive(Debug, PartialEq)]
struct Count {
    value: usize,
    built: usize,
    value_simplified: usize,
    simplified: usize,
}

fn count(name: &str, value: &Tensor, cotangent: Option<&Tensor>, targets: &[&Tensor]) -> Count {
    let root = value.uop();
    let targets: Vec<UOp> = targets.iter().map(|t| t.uop()).collect();
    let cotangent = cotangent.map(Tensor::uop);
    let (found, _) = pullback(&[(root.clone(), cotangent)], &targets, true).unwrap();
    let all: Vec<UOp> = std::iter::once(root.clone()).chain(found).collect();
    let count = Count {
        value: nodes(std::slice::from_ref(&root)),
        built: nodes(&all),
        value_simplified: nodes(&simplified(&[root])),
        simplified: nodes(&simplified(&all)),
    };
    println!(
        "{name:<24} value {:>4}, with gradients {:>4} as built and {:>4} simplified (value {})",
        count.value, count.built, count.simplified, count.value_simplified
    );
    count
}

fn tensor(dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    let numbers: Vec<f32> = (0..n).map(|k| k as f32 / n as f32).collect();
    Tensor::from_slice(&numbers, dims)
        .unwrap()
        .requires_grad()
        .unwrap()
}

fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let centred = x.sub(&x.mean_keepdim(-1)?)?;
    let variance = centred.square()?.mean_keepdim(-1)?;
    let scale = variance.add(1e-5)?.sqrt()?.reciprocal()?;
    centred.mul(&scale)?.mul(weight)?.add(bias)
}

fn attention(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (length, size) = (q.shape()[q.rank() - 2], q.shape()[q.rank() - 1]);
    let scores = q.matmul(&k.transpose()?)?.mul(1.0 / (size as f64).sqrt())?;
    let places = Tensor::arange_as(DType::I32, 0, length, 1)?;
    let later = places
        .reshape([length, 1])?
        .lt(&places.reshape([1, length])?)?;
    let scores = later.where_(f32::NEG_INFINITY, &scores)?;
    scores.softmax(-1)?.matmul(v)
}

/// A parameter of that shape.
struct Parameters(Vec<Tensor>);

impl Parameters {
    fn take(&mut self, dims: &[usize]) -> Tensor {
        self.0.push(tensor(dims));
        self.0[self.0.len() - 1].clone()
    }

    fn layer_norm(&mut self, x: &Tensor, width: usize) -> Result<Tensor> {
        let (weight, bias) = (self.take(&[width]), self.take(&[width]));
        layer_norm(x, &weight, &bias)
    }

    fn linear(&mut self, x: &Tensor, from: usize, to: usize) -> Result<Tensor> {
        x.matmul(&self.take(&[from, to]))?.add(self.take(&[to]))
    }

    /// A block of the GPT-2 kind: attention, then a perceptron, each behind a norm and around it.
    fn block(&mut self, x: &Tensor, width: usize, heads: usize) -> Result<Tensor> {
        let (batch, length) = (x.shape()[0], x.shape()[1]);
        let normed = self.layer_norm(x, width)?;
        let mut split = || {
            let all = self.linear(&normed, width, width)?;
            all.reshape([batch, length, heads, width / heads])?
                .permute([0, 2, 1, 3])
        };
        let y = attention(&split()?, &split()?, &split()?)?;
        let y = y.permute([0, 2, 1, 3])?.reshape([batch, length, width])?;
        let x = x.add(&self.linear(&y, width, width)?)?;
        let normed = self.layer_norm(&x, width)?;
        let hidden = self.linear(&normed, width, 4 * width)?.gelu()?;
        x.add(&self.linear(&hidden, 4 * width, width)?)
    }
}

/// The loss of a transformer, and its parameters.
fn transformer(layers: usize) -> Result<(Tensor, Vec<Tensor>)> {
    let (batch, length, width, heads, classes) = (2, 8, 16, 4, 32);
    let mut parameters = Parameters(Vec::new());
    let mut x = parameters.take(&[batch, length, width]);
    for _ in 0..layers {
        x = parameters.block(&x, width, heads)?;
    }
    let x = parameters.layer_norm(&x, width)?;
    let logits = parameters.linear(&x, width, classes)?;
    let labels: Vec<i32> = (0..batch * length)
        .map(|k| (k * 7 % classes) as i32)
        .collect();
    let labels = Tensor::from_slice(&labels, [batch, length])?;
    Ok((logits.cross_entropy(&labels)?, parameters.0))
}

#[test]
fn the_gradient_of_softmax_is_hardly_larger_than_by_hand() {
    let (x, g) = (tensor(&[4, 8]), tensor(&[4, 8]));
    let s = x.softmax(-1).unwrap();
    let by_rule = count("softmax", &s, Some(&g), &[&x]).simplified;
    let dot = g.mul(&s).unwrap().sum_keepdim(-1).unwrap();
    let by_hand = s.mul(g.sub(&dot).unwrap()).unwrap();
    let by_hand = nodes(&simplified(&[s.uop(), by_hand.uop()]));
    println!(
        "{:<24} value and s*(g - sum(g*s)) {by_hand} simplified",
        "softmax by hand"
    );
    assert!(by_rule <= by_hand + 6, "{by_rule} against {by_hand}");
}

/// What is simplified is at most this; a change that makes a gradient larger must say why.
#[test]
fn gradients_stay_small() {
    let (x, w, b) = (tensor(&[4, 8]), tensor(&[8]), tensor(&[8]));
    let y = layer_norm(&x, &w, &b).unwrap();
    let found = count("layer norm", &y, Some(&tensor(&[4, 8])), &[&x, &w, &b]);
    assert!(found.simplified <= LAYER_NORM, "{found:?}");

    let labels = Tensor::from_slice(&[1i32, 0, 7, 3], [4]).unwrap();
    let loss = x.cross_entropy(&labels).unwrap();
    let found = count("cross-entropy", &loss, None, &[&x]);
    assert!(found.simplified <= CROSS_ENTROPY, "{found:?}");

    let [q, k, v, g] = [0, 1, 2, 3].map(|_| tensor(&[2, 3, 16, 8]));
    let y = attention(&q, &k, &v).unwrap();
    let found = count("attention", &y, Some(&g), &[&q, &k, &v]);
    assert!(found.simplified <= ATTENTION, "{found:?}");
}

const LAYER_NORM: usize = 66;
/// Five nodes are the places at which the logits of the labels are read, in place of a product with
/// one-hot rows.
const CROSS_ENTROPY: usize = 108;
const ATTENTION: usize = 78;

/// The gradient of each further layer is as large as that of the one before it, and grows with
/// nothing else.
#[test]
fn the_gradient_of_a_transformer_grows_with_its_layers() {
    let of = |layers: usize| {
        let (loss, parameters) = transformer(layers).unwrap();
        let targets: Vec<&Tensor> = parameters.iter().collect();
        count(
            &format!("transformer, {layers} layers"),
            &loss,
            None,
            &targets,
        )
    };
    let [two, four, twelve] = [2, 4, 12].map(of);
    let layer = (four.simplified - two.simplified) / 2;
    assert_eq!(twelve.simplified, four.simplified + 8 * layer);
    assert!(layer <= LAYER, "{layer} nodes a layer");
    if std::env::var_os("UOPC_PERF").is_some() {
        time_a_transformer(12);
    }
}

const LAYER: usize = 500;

fn time_a_transformer(layers: usize) {
    let (loss, parameters) = transformer(layers).unwrap();
    let root = loss.uop();
    let targets: Vec<UOp> = parameters.iter().map(Tensor::uop).collect();
    let mut rounds: Vec<[f64; 2]> = (0..31)
        .map(|_| {
            let started = Instant::now();
            let (found, _) = pullback(&[(root.clone(), None)], &targets, true).unwrap();
            let built = started.elapsed().as_secs_f64();
            let all: Vec<UOp> = std::iter::once(root.clone()).chain(found).collect();
            black_box(simplified(&all));
            [built, started.elapsed().as_secs_f64()]
        })
        .collect();
    rounds.sort_by(|a, b| a[1].total_cmp(&b[1]));
    let [built, both] = rounds[rounds.len() / 2].map(|s| s * 1e3);
    println!("gradient of {layers} layers: built in {built:.2} ms, and simplified in {both:.2} ms");
}
