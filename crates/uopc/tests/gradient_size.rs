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

#[test]
fn the_gradient_of_softmax_is_hardly_larger_than_by_hand() {
    let (x, g) = (tensor(&[4, 8]), tensor(&[4, 8]));
    let s = x.softmax(-1).unwrap();
    let by_rule = count("softmax", &s, Some(&g), &[&x]).simplified;
    let dot = g.mul(&s).unwrap().sum_keepdim(-1).unwrap();
    let by_hand = s.mul(&g.sub(&dot).unwrap()).unwrap();
    let by_hand = nodes(&simplified(&[s.uop(), by_hand.uop()]));
    println!("softmax by hand: {by_hand}");
    println!(
        "{}",
        uopc::ir::print::to_uir(&simplified(&[
            s.uop(),
            pullback(&[(s.uop(), Some(g.uop()))], &[x.uop()], true)
                .unwrap()
                .0[0]
                .clone()
        ]))
    );
    assert!(by_rule <= by_hand + 6, "{by_rule} against {by_hand}");
}

#[test]
fn gradients_stay_small() {
    let (x, w, b) = (tensor(&[4, 8]), tensor(&[8]), tensor(&[8]));
    let y = layer_norm(&x, &w, &b).unwrap();
    count("layer norm", &y, Some(&tensor(&[4, 8])), &[&x, &w, &b]);
    let r = pullback(
        &[(y.uop(), Some(tensor(&[4, 8]).uop()))],
        &[x.uop(), w.uop(), b.uop()],
        true,
    )
    .unwrap()
    .0;
    println!(
        "{}",
        uopc::ir::print::to_uir(&simplified(&[&[y.uop()], &r[..]].concat()))
    );
    let labels = Tensor::from_slice(&[1i32, 0, 7, 3], [4]).unwrap();
    let l = x.cross_entropy(&labels).unwrap();
    count("cross-entropy", &l, None, &[&x]);
    println!(
        "{}",
        uopc::ir::print::to_uir(&simplified(&[
            l.uop(),
            pullback(&[(l.uop(), None)], &[x.uop()], true).unwrap().0[0].clone()
        ]))
    );
    let [q, k, v] = [0, 1, 2].map(|_| tensor(&[2, 3, 16, 8]));
    let y = attention(&q, &k, &v).unwrap();
    count(
        "attention",
        &y,
        Some(&tensor(&[2, 3, 16, 8])),
        &[&q, &k, &v],
    );
    let r = pullback(
        &[(y.uop(), Some(tensor(&[2, 3, 16, 8]).uop()))],
        &[q.uop(), k.uop(), v.uop()],
        true,
    )
    .unwrap()
    .0;
    println!(
        "{}",
        uopc::ir::print::to_uir(&simplified(&[&[y.uop()], &r[..]].concat()))
    );
}
