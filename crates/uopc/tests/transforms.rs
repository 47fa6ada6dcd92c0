//! Facts about `jvp`, `vmap` and the replacement of arguments: what they keep, what they refuse, and
//! what they do with values that are not numbers.

mod oracle;

use std::slice::from_ref;
use std::sync::Arc;

use oracle::*;
use uopc::autodiff::{gradient, jvp, jvp_all, vmap};
use uopc::ir::custom::Custom;
use uopc::ir::op::{Exec, Fold, Op, ReduceOp, StageKind};
use uopc::ir::site::Site;
use uopc::ir::visit::with_arguments;
use uopc::ir::{DType, Scalar, UOp};
use uopc::{Error, Result};

fn refused<T: std::fmt::Debug>(found: Result<T>) -> String {
    found.expect_err("this is refused").to_string()
}

// ---- jvp ----

#[test]
fn a_target_that_nothing_depends_on_gives_zeros() {
    let (x, y, v) = (input(0, &[3]), input(1, &[2]), input(2, &[2]));
    let found = jvp(&x.exp().unwrap(), &[y], &[v]).unwrap();
    assert_eq!(found, number(&x, 0.0));
}

#[test]
fn what_is_detached_or_is_no_float_stops_tangents() {
    let (x, v) = (input(0, &[3]), input(1, &[3]));
    let cut = [
        x.stage(StageKind::Detach).unwrap(),
        x.trunc().unwrap(),
        x.cast(DType::I32).unwrap().cast(DType::F64).unwrap(),
        x.bitcast(DType::I64).unwrap().bitcast(DType::F64).unwrap(),
    ];
    let zeros = number(&x, 0.0);
    let found = jvp_all(&cut, from_ref(&x), from_ref(&v)).unwrap();
    assert_eq!(found, vec![zeros; cut.len()]);
    // Requests that say nothing about values let them through.
    for kind in [StageKind::Materialise, StageKind::Remat, StageKind::Within] {
        let found = jvp(&x.stage(kind).unwrap(), from_ref(&x), from_ref(&v)).unwrap();
        assert_eq!(found, v);
    }
}

#[test]
fn the_tangent_of_a_target_adds_to_what_reaches_it() {
    let (x, v, w) = (input(0, &[2]), input(1, &[2]), input(2, &[2]));
    let y = x.exp().unwrap();
    let loss = &y * &y;
    let (targets, tangents) = ([x.clone(), y.clone(), x.clone()], [v.clone(), w, v]);
    let slots: [&[f64]; 3] = [&[0.5, -1.0], &[2.0, 0.25], &[3.0, -0.5]];
    let forward: f64 = value(&jvp(&loss, &targets, &tangents).unwrap(), &slots)
        .iter()
        .sum();
    let reverse = gradients(&loss, &targets, &slots);
    let terms = reverse.iter().zip([slots[1], slots[2], slots[1]]);
    let reverse: f64 = terms
        .flat_map(|(g, v)| g.iter().zip(v).map(|(g, v)| g * v))
        .sum();
    assert!((forward - reverse).abs() < 1e-12 * reverse.abs());
}

/// Each branch has a derivative that is no number where it is not taken; in every mode, and in one
/// over the other.
#[test]
fn a_branch_that_is_not_taken_leaves_no_trace() {
    let (x, v, w) = (input(0, &[3]), input(1, &[3]), input(2, &[3]));
    let zero = number(&x, 0.0);
    let positive = zero.cmplt(&x).unwrap();
    let infinite = number(&x, 1e3).exp().unwrap();
    let branches = [
        x.sqrt().unwrap(),
        x.log2().unwrap(),
        x.recip().unwrap(),
        x.div(&x).unwrap(),
        (&x * &infinite).exp().unwrap(),
    ];
    let slots: [&[f64]; 3] = [&[0.0, -1.0, 2.0], &[1.0, 1.0, 0.0], &[1.0, 1.0, 0.0]];
    for branch in branches {
        let guarded = positive.where_(&branch, &zero).unwrap();
        let first = jvp(&guarded, from_ref(&x), from_ref(&v)).unwrap();
        let second = jvp(&first, from_ref(&x), from_ref(&w)).unwrap();
        // The gradient, along w, and the gradient of the tangent.
        let reverse = gradient(&guarded, from_ref(&x)).unwrap().remove(0);
        let over = jvp(&reverse, from_ref(&x), from_ref(&w)).unwrap();
        let under = gradient(&first, from_ref(&x)).unwrap().remove(0);
        for tangent in [first, second, reverse, over, under] {
            assert_eq!(
                value(&tangent, &slots)[..2],
                [0.0; 2],
                "{}",
                branch.to_uir()
            );
        }
    }
    // The length of a row of zeros, guarded behind the sum.
    let length = sum(&(&x * &x)).sqrt().unwrap();
    let like = length.broadcast_scalar(x.shape()).unwrap();
    let unit = zero
        .cmplt(&like)
        .unwrap()
        .where_(&x.div(&like).unwrap(), &zero)
        .unwrap();
    let tangent = jvp(&unit, from_ref(&x), from_ref(&v)).unwrap();
    assert_eq!(value(&tangent, &[&[0.0; 3], &[1.0; 3]]), [0.0; 3]);
}

#[test]
fn ties_share_and_a_nan_counts_as_one() {
    let (x, v) = (input(0, &[2, 3]), input(1, &[2, 3]));
    let nan = f64::NAN;
    let slots: [&[f64]; 2] = [
        &[1.0, 1.0, 0.0, nan, 2.0, 3.0],
        &[1.0, 4.0, 9.0, 3.0, 6.0, 9.0],
    ];
    let most = x.reduce(ReduceOp::Max, 1).unwrap();
    let found = jvp(&most, from_ref(&x), from_ref(&v)).unwrap();
    assert_eq!(value(&found, &slots), [2.5, 6.0]);
    let y = number(&x, 1.0);
    let found = jvp(&x.maximum(&y).unwrap(), from_ref(&x), from_ref(&v)).unwrap();
    assert_eq!(value(&found, &slots), [0.5, 2.0, 0.0, 1.5, 6.0, 9.0]);
    // The maximum of nothing changes with nothing.
    let (x, v) = (input(0, &[2, 0]), input(1, &[2, 0]));
    let most = x.reduce(ReduceOp::Max, 1).unwrap();
    let found = jvp(&most, from_ref(&x), from_ref(&v)).unwrap();
    assert_eq!(value(&found, &[&[], &[]]), [0.0; 2]);
}

#[test]
fn tangents_and_targets_that_do_not_fit_are_refused() {
    let (x, v) = (input(0, &[3]), input(1, &[2]));
    let loss = x.exp().unwrap();
    let at = from_ref(&x);
    assert_eq!(
        refused(jvp(&loss, at, &[v])),
        "jvp: tangent 0 has shape (2,), its target (3,); reshape or expand the tangent"
    );
    assert_eq!(
        refused(jvp(&loss, at, &[input32(1, &[3])])),
        "jvp: tangent 0 is f32, its target f64; cast the tangent"
    );
    assert_eq!(
        refused(jvp(&loss, at, &[])),
        "jvp: 0 tangents for 1 targets; give one for each"
    );
    let whole = UOp::iota(3, DType::I32).unwrap();
    assert!(refused(jvp(&whole, at, at)).contains("the root, iota of dtype i32"));
    assert!(refused(jvp(&loss, from_ref(&whole), at)).contains("the target, iota of dtype i32"));
    let range = UOp::range(&UOp::int(3, DType::I32), 0, Exec::Serial).unwrap();
    let lowered = range.cast(DType::F64).unwrap();
    assert!(refused(jvp(&lowered, at, at)).contains("the graph holds range; autodiff only works"));
}

#[test]
fn what_goes_along_rows_does_so_for_tangents_and_batches() {
    let (x, v) = (input(0, &[3]), input(1, &[3]));
    let scan = |op, x: &UOp| x.scan(op).unwrap();
    let found = jvp(&scan(ReduceOp::Add, &x), from_ref(&x), from_ref(&v)).unwrap();
    assert_eq!(found, scan(ReduceOp::Add, &v));
    // Text holds the name of a custom function and no rules.
    let name = "f".into();
    let op = Op::Custom(Arc::new(Custom { name, rules: None }));
    let custom = UOp::new(op.clone(), [x.clone(), x.clone()]).unwrap();
    for refused in [
        refused(jvp(&custom, from_ref(&x), from_ref(&v))),
        refused(gradient(&custom, from_ref(&x))),
    ] {
        assert!(refused.starts_with("custom: "), "{refused}");
        assert!(refused.contains("are not in the text"), "{refused}");
    }
    let xs = input(1, &[2, 3]);
    let pairs = [(x.clone(), xs.clone())];
    let found = vmap(&[custom], &pairs).unwrap();
    assert_eq!(
        found[0].node,
        UOp::new(op, [xs.clone(), xs.clone()]).unwrap()
    );
    let sorted = |x: &UOp| x.argsort().unwrap();
    let found = vmap(&[scan(ReduceOp::Mul, &x), sorted(&x)], &pairs).unwrap();
    assert_eq!(found[0].node, scan(ReduceOp::Mul, &xs));
    assert_eq!(found[1].node, sorted(&xs));
}

// ---- vmap ----

#[test]
fn what_does_not_depend_on_a_batch_stays_itself() {
    let (x, y) = (input(0, &[3]), input(1, &[3]));
    let other = y.exp().unwrap();
    let both = &x + &other;
    let found = vmap(&[other.clone(), both], &[(x, input(2, &[4, 3]))]).unwrap();
    assert!(!found[0].batched && found[1].batched);
    assert_eq!(found[0].node, other);
    assert_eq!(count_op(from_ref(&found[1].node), "exp"), 1);
    let repeated = found[0].repeated(4).unwrap();
    assert_eq!(
        repeated,
        other.reshape(&[1, 3]).unwrap().expand(&[4, 3]).unwrap()
    );
    // Constants are made in the shape that is needed.
    let half = number(&y, 0.5);
    let found = vmap(from_ref(&half), &[]).unwrap();
    assert_eq!(
        found[0].repeated(4).unwrap(),
        number(&input(0, &[4, 3]), 0.5)
    );
}

#[test]
fn gradients_of_each_example_are_products_of_matrices_where_one_example_has_vectors() {
    // y = tanh-like of W x, one example at a time.
    let (w, x) = (input(0, &[4, 3]), input(1, &[3]));
    let wide = x.reshape(&[1, 3]).unwrap().expand(&[4, 3]).unwrap();
    let y = (&w * &wide).reduce(ReduceOp::Add, 1).unwrap();
    let fold = |u: &UOp| match u.op() {
        Op::Reduce { fold, .. } => *fold,
        other => panic!("{other:?} is no sum"),
    };
    assert_eq!(fold(&y), Fold::Lanes);
    let batched = vmap(from_ref(&y), &[(x.clone(), input(2, &[5, 3]))]).unwrap();
    assert_eq!(fold(&batched[0].node), Fold::Chain);
    // Jacobians by columns: a batch of tangents.
    let v = input(3, &[3]);
    let tangent = jvp(&y.sin().unwrap(), from_ref(&x), from_ref(&v)).unwrap();
    let columns = vmap(&[tangent], &[(v, input(4, &[3, 3]))]).unwrap();
    let is_chain = |u: &UOp| {
        matches!(
            u.op(),
            Op::Reduce {
                fold: Fold::Chain,
                ..
            }
        )
    };
    assert_eq!(count(from_ref(&columns[0].node), is_chain), 1);
}

#[test]
fn a_number_of_the_example_that_does_not_fit_the_positions_widens_them() {
    let (x, at) = (input(0, &[2]), UOp::slot(1, DType::I8, 1));
    let read = x.index(from_ref(&at)).unwrap();
    let n = 300;
    let (xs, ats) = (
        input(2, &[n, 2]),
        UOp::slot(3, DType::I8, n).reshape(&[n, 1]).unwrap(),
    );
    let found = vmap(from_ref(&read), &[(x, xs), (at, ats)]).unwrap();
    let values: Vec<f64> = (0..2 * n).map(|i| i as f64).collect();
    let positions: Vec<f64> = (0..n).map(|i| (i % 4) as f64 - 1.0).collect();
    let expected: Vec<f64> = (0..n)
        .map(|i| match i % 4 {
            1 => values[2 * i],
            2 => values[2 * i + 1],
            // Before the first and behind the last.
            _ => 0.0,
        })
        .collect();
    let slots: [&[f64]; 4] = [&[], &[], &values, &positions];
    assert_eq!(value(&found[0].node, &slots), expected);
}

#[test]
fn interior_nodes_can_have_a_batch() {
    let (x, ys) = (input(0, &[3]), input(1, &[2, 3]));
    let y = x.exp().unwrap();
    let both = &y * &x;
    let found = vmap(&[both, x.clone()], &[(y, ys.clone())]).unwrap();
    let wide = x.reshape(&[1, 3]).unwrap().expand(&[2, 3]).unwrap();
    assert_eq!(found[0].node, &ys * &wide);
    assert!(!found[1].batched);
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let (x, y) = (input(0, &[3]), input(1, &[2]));
    let root = sum(&x);
    let map = |pairs: &[(&UOp, UOp)]| {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(a, b)| ((*a).clone(), b.clone()))
            .collect();
        refused(vmap(from_ref(&root), &pairs))
    };
    assert_eq!(
        map(&[(&x, input(2, &[3]))]),
        "vmap: input 0 has shape (3,), its batch (3,); put the batch in front of the axes of the input"
    );
    assert_eq!(
        map(&[(&x, input32(2, &[4, 3]))]),
        "vmap: input 0 is f64, its batch f32; cast the batch"
    );
    assert_eq!(
        map(&[(&x, input(2, &[4, 3])), (&y, input(3, &[5, 2]))]),
        "vmap: batches of 4 and of 5 examples; give as many of each"
    );
    assert_eq!(
        map(&[(&x, input(2, &[4, 3])), (&x, input(3, &[4, 3]))]),
        "vmap: input 1 is given two batches; give one"
    );
    let range = UOp::range(&UOp::int(3, DType::I32), 0, Exec::Serial).unwrap();
    assert!(refused(vmap(&[range], &[])).contains("the graph holds range; autodiff only works"));
}

// ---- both, and arguments ----

/// d/dx (x * d/dy (x + y)) at y = 1 is 1, not 2: the inner derivative is one of y alone.
#[test]
fn arguments_of_their_own_keep_derivatives_apart() {
    let (x, y) = (input(0, &[]), input(1, &[]));
    let one = number(&x, 1.0);
    // The inner function of its own leaf, differentiated, then applied to 1.
    let inner = jvp(&(&x + &y), from_ref(&y), from_ref(&one)).unwrap();
    let at_one = with_arguments(&[inner], &[(y, one.clone())])
        .unwrap()
        .remove(0);
    let outer = jvp(&(&x * &at_one), from_ref(&x), from_ref(&one)).unwrap();
    assert_eq!(value(&outer, &[&[3.0]]), [1.0]);
}

#[test]
fn arguments_are_replaced_at_once_and_only_by_their_like() {
    let (x, y) = (input(0, &[3]), input(1, &[3]));
    let root = &x.exp().unwrap() * &y;
    // Swapped: neither sees the other's replacement.
    let swap = [(x.clone(), y.clone()), (y.clone(), x.clone())];
    let found = with_arguments(from_ref(&root), &swap).unwrap();
    assert_eq!(found[0], &y.exp().unwrap() * &x);
    assert_eq!(
        refused(with_arguments(
            from_ref(&root),
            &[(x.clone(), input(2, &[4]))]
        )),
        "substitute: buffer f64 (4,) can't stand for buffer f64 (3,); cast, reshape or expand it"
    );
    let twice = [(x.clone(), y.clone()), (x.clone(), input(2, &[3]))];
    assert!(refused(with_arguments(&[root], &twice)).contains("is given two values; give one"));
}

#[test]
fn what_is_made_of_a_node_belongs_to_its_line() {
    let x = input(70, &[3]);
    let y = {
        let _line = Site::script("model.py", 7).enter();
        x.sqrt().unwrap()
    };
    let _call = Site::script("main.py", 1).enter();
    let line = |u: &UOp| u.site().expect("made in a script").to_string();
    let tangent = jvp(&y, from_ref(&x), &[input(71, &[3])]).unwrap();
    assert_eq!(line(&tangent), "model.py:7, jvp of sqrt");
    let mapped = vmap(from_ref(&y), &[(x.clone(), input(72, &[2, 3]))]).unwrap();
    assert_eq!(line(&mapped[0].node), "model.py:7, vmap of sqrt");
    let replaced = with_arguments(&[y], &[(x, input(73, &[3]))]).unwrap();
    assert_eq!(line(&replaced[0]), "model.py:7");
}

#[test]
fn derivatives_and_batches_of_deep_graphs_take_no_stack() {
    on_small_stack(|| {
        let (x, v, xs) = (input(0, &[2]), input(1, &[2]), input(2, &[3, 2]));
        let mut u = x.clone();
        for _ in 0..100_000 {
            u = &u.sin().unwrap() + &x;
        }
        let tangent = jvp(&u, from_ref(&x), from_ref(&v)).unwrap();
        let mapped = vmap(&[u.clone(), tangent.clone()], &[(x.clone(), xs)]).unwrap();
        let replaced = with_arguments(from_ref(&u), &[(x.clone(), v)]).unwrap();
        // Linear: four nodes at most for each of the graph, which has two a step.
        let n =
            uopc::ir::visit::Graph::new(&[tangent, mapped[0].node.clone(), replaced[0].clone()]);
        assert!(n.len() <= 1_000_010, "{}", n.len());
    });
}

#[test]
fn narrow_tangents_are_added_in_f32() {
    let half = |slot| input_of(slot, &[1], DType::F16);
    let (a, b, c) = (half(0), half(1), half(2));
    let u = a.mulacc(&b, &c).unwrap();
    let v = half(3);
    let tangent = jvp(&u, &[a, b, c], &[v.clone(), v.clone(), v]).unwrap();
    // 2048 + 1 + 1 rounds to 2048 twice in f16, and to 2050 once in f32.
    let slots: [&[f64]; 4] = [&[1.0], &[2048.0], &[0.0], &[1.0]];
    assert_eq!(value(&tangent, &slots), [2050.0]);
}

#[test]
fn a_root_of_bools_can_have_a_batch() {
    let x = input(0, &[2]);
    let root = x.cmplt(&number(&x, 0.0)).unwrap();
    let flags = UOp::full(Scalar::from_bool(true), x.shape()).unwrap();
    let root = root.and(&flags).unwrap();
    let found = vmap(&[root], &[(x.clone(), input(1, &[3, 2]))]).unwrap();
    let slots: [&[f64]; 2] = [&[], &[-1.0, 1.0, 0.0, -2.0, -3.0, -4.0]];
    assert_eq!(
        value(&found[0].node, &slots),
        [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    );
    // Gradients of what is mapped are refused as any of a bool are.
    assert!(matches!(
        gradient(&found[0].node, &[x]),
        Err(Error::Gradient { .. })
    ));
}
