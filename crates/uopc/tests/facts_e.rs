//! The exercises among the facts, on graphs.

mod oracle;

use std::slice::from_ref;
use std::sync::Arc;

use oracle::*;
use uopc::Tensor;
use uopc::autodiff::{gradient, jvp};
use uopc::compile::{Engine, lower};
use uopc::debug::Settings;
use uopc::ir::form::Kernel;
use uopc::ir::op::{Op, ReduceOp, StageKind};
use uopc::ir::visit::{Graph, substitute, toposort};
use uopc::ir::{DType, UOp};
use uopc::tensor::with_engine;

#[test]
fn e0_three_exercises() {
    the_gradient_of_exp2_times_x();
    the_graph_of_a_reshaped_permuted_sum();
    the_smallest_test_of_the_inverse_permutation();
}

fn the_gradient_of_exp2_times_x() {
    let x = input(0, &[3]);
    let loss = sum(&(&x.exp2().unwrap() * &x));
    let found = gradient_values(&loss, &x, &[&[0.0, 1.0, 2.0]]);
    assert_close(&found, &[1.0, 3.3862944, 9.5451774], 1e-7);
}

fn the_graph_of_a_reshaped_permuted_sum() {
    let x = input(0, &[6]);
    let loss = x.reshape(&[2, 3]).unwrap().permute(&[1, 0]).unwrap();
    let loss = loss.reduce(ReduceOp::Add, 2).unwrap();
    let found = gradient(&loss, &[x]).unwrap();
    // One constant, given the shape of the summed matrix, then the moves backwards.
    let expected = number(&loss, 1.0)
        .reshape(&[1, 1])
        .unwrap()
        .expand(&[3, 2])
        .unwrap();
    let expected = expected.permute(&[1, 0]).unwrap().reshape(&[6]).unwrap();
    assert_eq!(found, [expected]);
    assert_eq!(
        mnemonics(&found[0]),
        ["const", "reshape", "expand", "permute", "reshape"]
    );
}

fn the_smallest_test_of_the_inverse_permutation() {
    // A permutation that is not its own inverse needs three axes, and telling the axes apart
    // takes two of them longer than 1.
    let x = input(0, &[1, 2, 2]);
    let u = x
        .permute(&[2, 0, 1])
        .unwrap()
        .shrink(&[(0, 1), (0, 1), (0, 2)])
        .unwrap();
    // u reads x[0, j, 0], so the gradient is 1 there and 0 beside it.
    let found = gradient_values(&sum(&u), &x, &[&[0.0; 4]]);
    assert_eq!(found, [1.0, 0.0, 1.0, 0.0]);
}

/// exp(x - max) over its sum, along the last axis, the maximum detached.
fn softmax(x: &UOp) -> UOp {
    let dims = x.shape().to_vec();
    let column = [&dims[..dims.len() - 1], &[1]].concat();
    let spread = |u: UOp| u.reshape(&column).unwrap().expand(&dims).unwrap();
    let top = x
        .reduce(ReduceOp::Max, 1)
        .unwrap()
        .stage(StageKind::Detach)
        .unwrap();
    let e = x.sub(&spread(top)).unwrap().exp().unwrap();
    e.div(&spread(e.reduce(ReduceOp::Add, 1).unwrap())).unwrap()
}

/// Every op on its own is in `transforms_table.rs`, random graphs are in `transforms_random.rs`.
#[test]
fn e1_forward_mode_is_the_gradient_times_the_tangent() {
    let (x, w, v) = (input(0, &[2, 3]), input(1, &[3, 4]), input(2, &[2, 3]));
    let product = {
        let x = x.reshape(&[2, 1, 3]).unwrap().expand(&[2, 4, 3]).unwrap();
        let w = w.permute(&[1, 0]).unwrap().reshape(&[1, 4, 3]).unwrap();
        (&x * &w.expand(&[2, 4, 3]).unwrap())
            .reduce(ReduceOp::Add, 1)
            .unwrap()
    };
    let slots: [&[f64]; 3] = [
        &[0.5, 2.0, 2.0, -1.0, 0.25, 3.0],
        &[
            1.0, -0.5, 0.25, 2.0, 0.0, 1.5, -1.0, 0.75, -2.0, 0.5, 1.25, -0.25,
        ],
        &[1.0, -2.0, 0.5, 0.25, -0.75, 1.5],
    ];
    let roots = [
        softmax(&x).exp2().unwrap(),
        softmax(&product.sin().unwrap()).exp2().unwrap(),
        // Ties, a branch, and a product with a zero.
        x.reduce(ReduceOp::Max, 1).unwrap(),
        x.maximum(&x.full_like(2.0).unwrap()).unwrap(),
        product.reduce(ReduceOp::Mul, 2).unwrap(),
    ];
    for root in roots {
        let tangent = jvp(&root, from_ref(&x), from_ref(&v)).unwrap();
        assert_eq!(
            (tangent.dtype(), tangent.shape()),
            (root.dtype(), root.shape())
        );
        let forward: f64 = value(&tangent, &slots).iter().sum();
        let gradient = gradient_values(&root, &x, &slots);
        let terms = gradient.iter().zip(slots[2]).map(|(g, v)| g * v);
        let size = gradient.iter().zip(slots[2]).map(|(g, v)| (g * v).abs());
        let (reverse, size): (f64, f64) = (terms.sum(), size.sum());
        assert!(
            (forward - reverse).abs() <= 1e-12 * size,
            "{forward} {reverse}"
        );
        assert!(size > 0.1);
    }
}

#[test]
fn e5_the_gradient_of_reading_at_numbers_is_a_scatter_add_the_same_each_time() {
    // 2,000 rows of a table of 50, weighted by numbers whose sums depend on the order.
    let (rows, n, width) = (2000, 50, 48);
    let at: Vec<i32> = (0..rows).map(|k| (k * k + 7 * k) % 53 - 1).collect();
    let weight = |k: i32| (k % 97 - 48) as f32 * 10f32.powi(k % 7 - 3);
    let c: Vec<f32> = (0..rows * width).map(weight).collect();
    let mut expected = vec![0f32; (n * width) as usize];
    for (k, &place) in at.iter().enumerate() {
        let place = if place < 0 { place + n } else { place };
        for j in (0..width as usize).filter(|_| place < n) {
            expected[place as usize * width as usize + j] += c[k * width as usize + j];
        }
    }
    for threads in [1, 2, 3, 4] {
        let settings = Settings {
            threads: Some(threads),
            ..Settings::default()
        };
        let engine = Arc::new(Engine::new(settings).unwrap());
        with_engine(&engine, || {
            let shape = [n as usize, width as usize];
            let table = Tensor::zeros(shape).unwrap().requires_grad().unwrap();
            let at = Tensor::from_slice(&at, [rows as usize]).unwrap();
            let c = Tensor::from_slice(&c, [rows as usize, width as usize]).unwrap();
            let loss = table.take(&at).unwrap().mul(&c).unwrap().sum(..).unwrap();
            loss.backward(from_ref(&table)).unwrap();
            let found = table.grad().unwrap().to_vec::<f32>().unwrap();
            assert!(found == expected, "{threads} threads");
        });
    }
}

#[test]
fn e2_the_stabilising_maximum_costs_no_gradient_work() {
    let (x, w) = (input(0, &[2, 3]), input(1, &[2, 3]));
    let s = softmax(&x);
    let loss = sum(&(&s * &w));
    let found = gradient(&loss, from_ref(&x)).unwrap();
    let slots: [&[f64]; 2] = [
        &[0.5, 2.0, 2.0, -1.0, 800.0, 3.0],
        &[1.0, 2.0, -3.0, 0.5, 4.0, 7.0],
    ];

    // The one maximum is the forward pass's own; no tie is counted, nothing compared.
    let is_max = |u: &UOp| {
        matches!(
            u.op(),
            Op::Reduce {
                op: ReduceOp::Max,
                ..
            }
        )
    };
    assert_eq!(count(&found, is_max), 1);
    assert_eq!(count_op(&found, "cmplt") + count_op(&found, "cmpne"), 0);
    assert_eq!(count(&found, |u| u.dtype() == DType::I32), 0);
    // Beyond the forward pass: two sums along the rows, that over the cotangent of the quotient
    // being one of them, as in the rule written by hand.
    let forward = toposort(from_ref(&s));
    let is_new_sum = |u: &UOp| u.op().mnemonic() == "reduce" && !forward.contains(u);
    assert_eq!(count(&found, is_new_sum), 1);

    // s * (w - sum(w * s)), by hand.
    let by_hand = {
        let dot = (&w * &s).reduce(ReduceOp::Add, 1).unwrap();
        let dot = dot.reshape(&[2, 1]).unwrap().expand(&[2, 3]).unwrap();
        &s * &w.sub(&dot).unwrap()
    };
    assert_close(&value(&found[0], &slots), &value(&by_hand, &slots), 1e-15);
    // Not far above the rule written by hand in size.
    let (ours, theirs) = (Graph::new(&found).len(), Graph::new(&[by_hand]).len());
    assert!(ours <= theirs + 16, "{ours} nodes against {theirs}");

    // Not detached, the same numbers at the price of a count of ties.
    let stage = toposort(from_ref(&loss))
        .into_iter()
        .find(|u| *u.op() == Op::Stage(StageKind::Detach))
        .expect("the softmax detaches its maximum");
    let replace = [(stage.clone(), stage.src()[0].clone())]
        .into_iter()
        .collect();
    let costly = substitute(&[loss], &replace).unwrap();
    let full = gradient(&costly[0], &[x]).unwrap();
    assert_close(&value(&full[0], &slots), &value(&found[0], &slots), 1e-13);
    assert!(Graph::new(&full).len() > ours);
}

#[test]
fn e4_a_checkpoint_computes_the_forward_pass_again_in_the_backward_pass() {
    // Three products of matrices, the value of each read by the next and by its own gradient.
    let w = Tensor::from([[0.5f32, -0.25], [1.0, 0.75]]);
    let layer = |(w, x): &(Tensor, Tensor)| x.matmul(w)?.exp()?.matmul(w)?.sin();
    let step = |layer: &dyn Fn(&(Tensor, Tensor)) -> uopc::Result<Tensor>| {
        let loss = |w: &Tensor| {
            let x = Tensor::from([[1.0f32, 2.0], [3.0, -1.0]]);
            let h = layer(&(w.clone(), layer(&(w.clone(), x))?))?;
            layer(&(w.clone(), h))?.square()?.sum(..)
        };
        uopc::value_and_grad(loss)(&w).unwrap()
    };
    let (value, gradient) = step(&layer);
    let (same_value, same_gradient) = step(&uopc::checkpoint(layer));
    let lower = |roots: &[UOp]| lower(roots, None, &Settings::default()).unwrap();
    let plain = lower(&[value.uop(), gradient.uop()]);
    let saving = lower(&[same_value.uop(), same_gradient.uop()]);
    // Some kernels run twice, and the copies are the same kernels in new buffers.
    let copies: Vec<usize> = (0..saving.plan.buffers.len())
        .filter(|&b| saving.plan.buffers[b].reason.ends_with("computed again"))
        .collect();
    assert!(!copies.is_empty());
    assert_eq!(
        saving.plan.kernels.len(),
        plain.plan.kernels.len() + copies.len()
    );
    for b in copies {
        let again = |k: &&Kernel| k.outs[0].1 as usize == b;
        let again = saving.plan.kernels.iter().find(again).unwrap();
        let same = saving.plan.kernels.iter().filter(|k| k.body == again.body);
        assert!(same.count() >= 2);
    }
    // No bit changes, and without a gradient nothing is computed twice.
    let numbers = |t: &Tensor| t.to_vec::<f32>().unwrap();
    let engine = Arc::new(Engine::new(Settings::default()).unwrap());
    with_engine(&engine, || {
        assert_eq!(numbers(&value), numbers(&same_value));
        assert_eq!(numbers(&gradient), numbers(&same_gradient));
    });
    assert_eq!(
        lower(&[same_value.uop()]).plan.kernels.len(),
        lower(&[value.uop()]).plan.kernels.len()
    );
}

#[test]
fn e3_a_minimum_shares_ties_evenly() {
    let x = input(0, &[3]);
    let lowest = -&(-&x).reduce(ReduceOp::Max, 1).unwrap();
    assert_eq!(value(&lowest, &[&[2.0, 1.0, 1.0]]), [1.0]);
    let found = gradient_values(&lowest, &x, &[&[2.0, 1.0, 1.0]]);
    assert_eq!(found, [0.0, 0.5, 0.5]);

    // The same through tensors, on an engine without a disk cache.
    let engine = Arc::new(Engine::new(Settings::default()).unwrap());
    with_engine(&engine, || {
        let x = Tensor::from_slice(&[2.0f32, 1.0, 1.0], [3]).unwrap();
        let x = x.requires_grad().unwrap();
        x.min(..).unwrap().backward(&[&x]).unwrap();
        let grad = x.grad().expect("the minimum depends on x");
        assert_eq!(grad.to_vec::<f32>().unwrap(), [0.0, 0.5, 0.5]);
    });
}

#[test]
fn e6_the_error_of_quotients_in_f32_is_least_between_large_and_small_steps() {
    use uopc::transform::gradcheck::error_by_step;
    let x = Tensor::from([0.5f32, 1.5, -0.7]);
    let f = |args: &[Tensor]| Ok(vec![args[0].sin()?.exp()?.sum(..)?]);
    let steps: Vec<f64> = (0..7).map(|k| 10f64.powi(-k)).collect();
    let curve = error_by_step(&f, &[x], &steps, 1).unwrap();
    let (best, least) = curve
        .iter()
        .enumerate()
        .map(|(k, (_, e))| (k, *e))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap();
    assert!((1..=4).contains(&best), "{curve:?}");
    assert!(least < 1e-3, "{curve:?}");
    assert!(
        curve[0].1 > 30.0 * least && curve[6].1 > 30.0 * least,
        "{curve:?}"
    );
}
