//! Section A of the fact list: the algorithm of reverse-mode differentiation.

mod oracle;

use std::sync::Arc;

use oracle::*;
use uopc::Error;
use uopc::autodiff::gradient;
use uopc::compile;
use uopc::debug::Settings;
use uopc::ir::custom::Custom;
use uopc::ir::op::{Combine, Exec, Op, ParamMode, ReduceOp};
use uopc::ir::visit::{Graph, toposort};
use uopc::ir::{DType, Shape, UOp};

const F32: DType = DType::F32;

#[test]
fn a1_gradient_builds_one_graph_a_target_and_computes_nothing() {
    let x = input(0, &[2, 3]);
    let y = input(1, &[3]);
    let six = &number(&y, 2.0) * &number(&y, 3.0);
    let rows = (&y * &six)
        .reshape(&[1, 3])
        .unwrap()
        .expand(&[2, 3])
        .unwrap();
    let loss = sum(&(&x * &rows));
    let targets = [y.clone(), x.clone(), loss.clone()];
    let found = gradient(&loss, &targets).unwrap();
    assert_eq!(found.len(), 3);
    for (g, target) in found.iter().zip(&targets) {
        assert_eq!((g.dtype(), g.shape()), (target.dtype(), target.shape()));
    }
    // No number was computed: the product of two constants is still that product.
    assert!(toposort(&found[..1]).contains(&six));
    assert_close(
        &value(&found[0], &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[0.0; 3]]),
        &[30.0, 42.0, 54.0],
        0.0,
    );
}

#[test]
fn a2_fan_out_adds() {
    let x = input(0, &[3]);
    let y = input(1, &[3]);
    let slots: [&[f64]; 2] = [&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]];
    assert_eq!(
        gradient_values(&sum(&(&x * &x)), &x, &slots),
        [2.0, 4.0, 6.0]
    );
    let loss = sum(&(&(&x * &y) + &x));
    let found = gradients(&loss, &[x, y], &slots);
    assert_eq!(found, [[11.0, 21.0, 31.0], [1.0, 2.0, 3.0]]);
}

#[test]
fn a3_only_nodes_on_a_path_are_differentiated() {
    let data = input(0, &[4]);
    let weight = input(1, &[4]);
    // A custom function from text has no rule. It is in the data, and the gradient of the weight
    // never asks for one.
    let (name, rules) = ("f".into(), None);
    let op = Op::Custom(Arc::new(Custom { name, rules }));
    let custom = UOp::new(op, [data.clone(), data.clone()]).unwrap();
    let loss = sum(&(&custom.sin().unwrap() * &weight));
    let found = gradient(&loss, std::slice::from_ref(&weight)).unwrap();
    assert_eq!(count(&found, |u| *u.op() == Op::Sin(1)), 0);
    assert_eq!(count(&found, |u| *u.op() == Op::Sin(0)), 1);
    let error = gradient(&loss, &[data]).unwrap_err();
    assert!(error.to_string().starts_with("custom: "), "{error}");
}

#[test]
fn a4_an_unrelated_target_gets_zeros_of_its_shape() {
    let x = input32(0, &[3]);
    let z = input32(1, &[4]);
    let found = gradient(&sum(&x), std::slice::from_ref(&z))
        .unwrap()
        .remove(0);
    assert_eq!(
        found,
        UOp::full(uopc::ir::Scalar::f32(0.0), &Shape::new(&[4])).unwrap()
    );
    assert_eq!(mnemonics(&found), ["const", "reshape", "expand"]);
    assert_eq!(value(&found, &[]), [0.0; 4]);
    // No diagnostic: the root plainly does not mention it.
    let (_, diagnostics) = uopc::autodiff::gradient_with(&sum(&x), &[z], true).unwrap();
    assert!(diagnostics.is_empty());
}

#[test]
fn a5_a_million_nodes_take_linear_work_and_no_stack() {
    on_small_stack(|| {
        // Builds, differentiates, prints and drops a chain; counts its nodes and the gradient's.
        let cost = |n: usize, targets: usize| {
            let x = UOp::slot(0, F32, 2);
            let y = UOp::slot(1, F32, 2);
            let mut u = x.clone();
            for k in 0..n {
                u = if k % 2 == 0 {
                    &u * &y
                } else {
                    u.sin().unwrap()
                };
            }
            let found = gradient(&u, &[x, y][..targets]).unwrap();
            assert_eq!(u.to_uir().lines().count(), n + 2);
            Graph::new(&found).len()
        };
        // Each node of the chain adds the same work, with respect to its beginning and to a
        // node that half of the chain reads.
        for targets in [1, 2] {
            let [a, b, c] = [10_000, 20_000, 40_000].map(|n| cost(n, targets));
            assert_eq!(c - b, 2 * (b - a));
            assert!(c < 4 * 40_000, "{c}");
        }
        let million = cost(1_000_000, 1);
        assert_eq!(
            million - cost(500_000, 1),
            25 * (cost(40_000, 1) - cost(20_000, 1))
        );
    });
}

#[test]
fn a6_constants_have_the_shape_of_their_node() {
    let x = input(0, &[2, 3]);
    let ones = gradient(&x, std::slice::from_ref(&x)).unwrap().remove(0);
    assert_eq!(
        ones,
        UOp::full(uopc::ir::Scalar::one(DType::F64), x.shape()).unwrap()
    );
    assert_eq!(value(&ones, &[&[0.0; 6]]), [1.0; 6]);
    // The rules with constants in them: a shapeless one beside a shaped node would be an error.
    let rules = [
        x.maximum(&number(&x, 0.0)),
        x.recip(),
        x.exp2(),
        x.log2(),
        x.sqrt(),
    ];
    for u in rules {
        let found = gradient(&u.unwrap(), std::slice::from_ref(&x)).unwrap();
        for node in toposort(&found) {
            if let Op::Add | Op::Mul | Op::Div | Op::Where = node.op() {
                assert_eq!(node.shape(), x.shape());
                assert!(node.src().iter().all(|s| s.shape() == x.shape()));
            }
        }
    }
}

#[test]
fn a7_gradients_hold_forward_nodes_by_identity() {
    let x = input(0, &[4]);
    let w = input(1, &[4]);
    let activation = (&x * &w).exp().unwrap();
    let loss = sum(&(&activation * &activation));
    let found = gradient(&loss, &[x.clone(), w.clone()]).unwrap();
    assert!(toposort(&found).contains(&activation));
    let together = [vec![loss], found].concat();
    assert_eq!(count_op(&together, "exp"), 1);
    // d sum(x*w) / dw is x itself, scaled by the seed.
    let plain = gradient(&sum(&(&x * &w)), &[w]).unwrap().remove(0);
    assert_eq!(plain.src()[1], x);

    // In the plan of a loss and its gradients, the product that all of them read is computed
    // by one kernel: of its shape, (4, 6), there is one sum.
    let (x, w) = (input32(0, &[4, 5]), input32(1, &[5, 6]));
    let xe = x.reshape(&[4, 1, 5]).unwrap().expand(&[4, 6, 5]).unwrap();
    let we = w.permute(&[1, 0]).unwrap().reshape(&[1, 6, 5]).unwrap();
    let product = (&xe * &we.expand(&[4, 6, 5]).unwrap())
        .reduce(ReduceOp::Add, 1)
        .unwrap();
    let loss = sum(&(&product * &product));
    let found = gradient(&loss, &[x, w]).unwrap();
    let lowered =
        compile::lower(&[vec![loss], found].concat(), None, &Settings::default()).unwrap();
    let is_product = |u: &UOp| u.op().mnemonic() == "reduce" && u.shape()[..] == [4, 6];
    let kernels = lowered.plan.kernels.iter();
    let computed = kernels
        .map(|k| count(k.body.roots(), is_product))
        .sum::<usize>();
    assert_eq!(computed, 1);
}

#[test]
fn a8_loops_and_effects_are_refused_by_name() {
    let extent = UOp::int(4, DType::I32);
    let range = UOp::range(&extent, 0, Exec::Serial).unwrap();
    let memory = UOp::param(0, ParamMode::Out, F32, 4);
    let read = UOp::param(1, ParamMode::In, F32, 4)
        .load(&range, None)
        .unwrap();
    let store = memory
        .store(&range, std::slice::from_ref(&read), Combine::Set, None)
        .unwrap();
    let end = store.end(std::slice::from_ref(&range)).unwrap();
    let sink = UOp::sink(std::slice::from_ref(&end));
    let x = UOp::slot(0, F32, 4);
    let call = Op::Call {
        name: "kernel".into(),
        outs: 1,
    };
    let call = UOp::new(call, [UOp::sink(&[]), x.clone()].as_slice()).unwrap();
    let after = UOp::new(Op::After, [x.clone(), call.clone()].as_slice()).unwrap();
    let counted = range.cast(F32).unwrap();
    let write = memory
        .store(&extent, &[UOp::float(1.0, F32)], Combine::Set, None)
        .unwrap();
    let barrier = UOp::new(Op::Barrier, [].as_slice()).unwrap();
    for (root, named) in [
        (write, "store"),
        (store, "range, load, store"),
        (end, "range, load, store, end"),
        (sink, "range, load, store, end, sink"),
        (&counted * &counted, "range"),
        (call, "sink, call"),
        (&after * &x, "sink, call, after"),
        (barrier, "barrier"),
    ] {
        let error = gradient(&root, std::slice::from_ref(&x)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Gradient { .. }), "{text}");
        assert!(
            text.contains(&format!("the graph holds {named};")),
            "{text}"
        );
        assert!(
            text.contains("autodiff only works on pure shape graphs"),
            "{text}"
        );
    }
}

#[test]
fn a9_products_and_diamonds_do_not_swell() {
    let nodes_of_product = |n: u32| {
        let factors: Vec<UOp> = (0..n).map(|k| UOp::slot(k, F32, 2)).collect();
        let mut product = factors[0].clone();
        for factor in &factors[1..] {
            product = &product * factor;
        }
        let found = gradient(&product, &factors).unwrap();
        assert_eq!(found.len(), n as usize);
        Graph::new(&found).len()
    };
    let (n, n2, n4) = (
        nodes_of_product(50),
        nodes_of_product(100),
        nodes_of_product(200),
    );
    // n factors read once each, n - 2 partial products, two products a factor.
    assert_eq!(n4 - n2, 2 * (n2 - n));
    assert!(n4 <= 4 * 200, "{n4} nodes");

    // A shared node: both paths meet in one cotangent, and the rule of sin runs once.
    let x = UOp::slot(0, F32, 2);
    let (y, z) = (UOp::slot(1, F32, 2), UOp::slot(2, F32, 2));
    let h = x.sin().unwrap();
    let loss = &(&h * &y) + &(&h * &z);
    let found = gradient(&loss, std::slice::from_ref(&x)).unwrap();
    assert_eq!(count(&found, |u| *u.op() == Op::Sin(1)), 1);
    let by_cos = |u: &UOp| *u.op() == Op::Mul && u.src().iter().any(|s| *s.op() == Op::Sin(1));
    assert_eq!(count(&found, by_cos), 1);

    // 2^100 paths in 100 nodes.
    let mut u = x.clone();
    for _ in 0..100 {
        u = &u + &u;
    }
    let found = gradient(&u, &[x]).unwrap().remove(0);
    assert!(Graph::new(std::slice::from_ref(&found)).len() <= 110);
    assert_eq!(value(&found, &[&[0.0; 2]]), [2f64.powi(100); 2]);
}
