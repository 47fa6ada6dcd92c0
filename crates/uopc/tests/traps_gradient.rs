//! Faults of gradients that other systems had, each kind with a test of its own.

mod oracle;

use std::f64::consts::LN_2;
use std::slice::from_ref;
use std::sync::Arc;

use oracle::*;
use uopc::Error;
use uopc::autodiff::{gradient, gradient_with};
use uopc::ir::composite::{cat, flip, pad, sum_to};
use uopc::ir::op::{LiveBuffer, Op, ReduceOp, StageKind};
use uopc::ir::site::Site;
use uopc::ir::visit::{Graph, toposort};
use uopc::ir::{DType, UOp};

const NARROW: [DType; 2] = [DType::F16, DType::BF16];

// ---- narrow dtypes ----

#[test]
fn five_thousand_ties_in_a_narrow_dtype_are_counted() {
    for (dtype, share) in [
        (DType::F16, 2.0e-4),
        (DType::BF16, 2.0e-4),
        (DType::F32, 2.0e-4),
    ] {
        let x = input_of(0, &[5000], dtype);
        let top = x.reduce(ReduceOp::Max, 1).unwrap();
        let found = gradient_values(&top, &x, &[&[7.0; 5000]]);
        // 1/5000 rounded to the dtype: a count in f16 stops at 2048, one in bf16 at 256.
        let nearest = value(&UOp::float(share, dtype), &[]);
        assert_eq!(found, nearest.repeat(5000), "{dtype}");
    }
}

#[test]
fn the_count_of_ties_is_an_integer() {
    let x = input_of(0, &[5000], DType::F32);
    let found = gradient(&x.reduce(ReduceOp::Max, 1).unwrap(), &[x]).unwrap();
    let is_count = |u: &UOp| {
        u.dtype() == DType::I32
            && matches!(
                u.op(),
                Op::Reduce {
                    op: ReduceOp::Add,
                    ..
                }
            )
    };
    assert_eq!(count(&found, is_count), 1);
}

#[test]
fn five_thousand_gradients_in_a_narrow_dtype_add_up() {
    for (dtype, total) in [(DType::F16, 5000.0), (DType::BF16, 4992.0)] {
        // Along an axis: the transpose of a broadcast.
        let x = input_of(0, &[1], dtype);
        let loss = sum(&x.expand(&[5000]).unwrap());
        assert_eq!(gradient_values(&loss, &x, &[&[1.0]]), [total], "{dtype}");
        // Over readers: as many contributions to one node.
        let reader = |k: i32| &x + &number(&x, f64::from(k));
        let loss = (1..5000).map(reader).fold(reader(0), |loss, u| &loss + &u);
        assert_eq!(gradient_values(&loss, &x, &[&[1.0]]), [total], "{dtype}");
    }
}

#[test]
fn contributions_in_a_narrow_dtype_are_rounded_once() {
    for dtype in NARROW {
        let x = input_of(0, &[1], dtype);
        let loss = (0..8).fold(x.clone(), |u, _| &u + &x);
        let found = gradient(&loss, from_ref(&x)).unwrap();
        assert_eq!(count(&found, |u| *u.op() == Op::Cast(dtype)), 1);
        assert_eq!(
            count(&found, |u| *u.op() == Op::Add && u.dtype() == dtype),
            0
        );
        assert_eq!(value(&found[0], &[]), [9.0]);
    }
    // In f32 and f64 nothing is converted.
    let x = input32(0, &[1]);
    assert_eq!(count_op(&gradient(&(&x + &x), &[x]).unwrap(), "cast"), 0);
}

#[test]
fn a_narrow_product_of_many_factors_is_multiplied_wide() {
    // 1000, then 8 times 2, then 8 times 1/2: in between 256,000, which f16 does not hold; the
    // products of all others are 1, 500 and 2000, which it does.
    let x = input_of(0, &[17], DType::F16);
    let at: Vec<f64> = (0..17)
        .map(|k| [1000.0, 2.0, 0.5][(k > 0) as usize + (k > 8) as usize])
        .collect();
    let product = x.reduce(ReduceOp::Mul, 1).unwrap();
    let found = gradient_values(&product, &x, &[&at]);
    let expected: Vec<f64> = at.iter().map(|x| 1000.0 / x).collect();
    assert_eq!(found, expected);
    let graph = gradient(&product, &[x]).unwrap();
    assert_eq!(
        count(&graph, |u| *u.op() == Op::Mul && u.dtype() == DType::F16),
        0
    );
}

// ---- identity ----

#[test]
fn parameters_of_equal_contents_have_gradients_of_their_own() {
    let parameter = |id| {
        let storage: Arc<dyn std::any::Any + Send + Sync> = Arc::new([1.0f32, 2.0]);
        UOp::live(Arc::new(LiveBuffer { id, storage }), DType::F32, 2)
    };
    let (a, b) = (parameter(u64::MAX - 1), parameter(u64::MAX));
    assert_ne!(a, b);
    let x = input32(0, &[2]);
    let found = gradient(&sum(&(&(&a * &x) + &b)), &[a.clone(), b.clone()]).unwrap();
    assert_ne!(found[0], found[1]);
    assert!(toposort(&found[..1]).contains(&x));
    assert!(!toposort(&found[1..]).contains(&x));
}

// ---- accuracy ----

#[test]
fn quotients_are_divided_once() {
    // a * (1/b) is off by a bit for 41 * (1/41) and for a quarter of all pairs.
    let divisors: Vec<f64> = (1..=1000).map(f64::from).collect();
    let (a, b) = (input32(0, &[1000]), input32(1, &[1000]));
    let quotient = a.div(&b).unwrap();
    assert_eq!(value(&quotient, &[&divisors, &divisors]), [1.0; 1000]);
    let found = gradient_values(&sum(&quotient), &a, &[&divisors, &divisors]);
    let expected: Vec<f64> = divisors
        .iter()
        .map(|&b| f64::from(1.0 / b as f32))
        .collect();
    assert_eq!(found, expected);
    // The same in the rules of roots and logarithms: no reciprocal is taken.
    let x = input32(0, &[3]);
    for u in [
        x.sqrt(),
        x.log2(),
        x.div(&number(&x, 3.0)),
        x.reduce(ReduceOp::Max, 1),
    ] {
        let found = gradient(&u.unwrap(), from_ref(&x)).unwrap();
        assert_eq!(count_op(&found, "recip"), 0);
    }
    let root = gradient_values(&sum(&x.sqrt().unwrap()), &x, &[&[4.0, 9.0, 3.0]]);
    let exact = |x: f32| f64::from(0.5 / x.sqrt());
    assert_eq!(root, [exact(4.0), exact(9.0), exact(3.0)]);
}

#[test]
fn the_gradient_of_exp_is_exp() {
    let x = input32(0, &[4]);
    let at: [&[f64]; 1] = [&[-80.0, -1.0, 0.3, 80.0]];
    let e = x.exp().unwrap();
    assert_eq!(gradient_values(&sum(&e), &x, &at), value(&e, &at));
}

#[test]
fn gradients_of_sine_and_cosine_hold_for_large_arguments() {
    let at = [1e3, 1e5, 1e6 + 1.0, 16777215.0, -3e7, 1e30, 3.0e38];
    let exact: Vec<f64> = at.iter().map(|&x| f64::from(x as f32)).collect();
    let x = input32(0, &[at.len()]);
    let slots: [&[f64]; 1] = [&at];
    let cosines: Vec<f64> = exact.iter().map(|x| x.cos()).collect();
    let sines: Vec<f64> = exact.iter().map(|x| -x.sin()).collect();
    let found = gradient_values(&sum(&x.sin().unwrap()), &x, &slots);
    assert_close(&found, &cosines, 1.2e-7);
    let found = gradient_values(&sum(&x.cos().unwrap()), &x, &slots);
    assert_close(&found, &sines, 1.2e-7);
    // And again: the second derivative of sine is exactly minus sine.
    let first = gradient(&sum(&x.sin().unwrap()), from_ref(&x))
        .unwrap()
        .remove(0);
    let second = gradient_values(&sum(&first), &x, &slots);
    let minus = value(&-&x.sin().unwrap(), &slots);
    assert_eq!(second, minus);
}

// ---- saturation ----

/// No branch overflows: with z = exp(-|x|), 1/(1+z) for positive x and z/(1+z) for negative.
fn sigmoid(x: &UOp) -> UOp {
    let (negative, z) = decay(x);
    let one = number(x, 1.0);
    negative
        .where_(&z, &one)
        .unwrap()
        .div(&(&one + &z))
        .unwrap()
}

/// Whether x is negative, and exp(-|x|).
fn decay(x: &UOp) -> (UOp, UOp) {
    let negative = x.cmplt(&number(x, 0.0)).unwrap();
    let z = negative.where_(x, &-x).unwrap().exp().unwrap();
    (negative, z)
}

fn tanh(x: &UOp) -> UOp {
    let two = number(x, 2.0);
    (&two * &sigmoid(&(&two * x))).sub(&number(x, 1.0)).unwrap()
}

fn silu(x: &UOp) -> UOp {
    x * &sigmoid(x)
}

fn gelu(x: &UOp) -> UOp {
    let cubic = &(&(x * x) * x) * &number(x, 0.044715);
    x * &sigmoid(&(&(x + &cubic) * &number(x, (8.0 / std::f64::consts::PI).sqrt())))
}

/// log(1 + e^x), by the same choice of side as in [`decay`]: x for positive, 0 for negative.
fn softplus(x: &UOp) -> UOp {
    let (negative, z) = decay(x);
    let log = (&number(x, 1.0) + &z).log2().unwrap();
    &negative.where_(&number(x, 0.0), x).unwrap() + &(&log * &number(x, LN_2))
}

type Form = (&'static str, fn(&UOp) -> UOp, f64, f64);

/// Each form with its slope at 0 and far to the right; far to the left it is 0.
const FORMS: [Form; 5] = [
    ("sigmoid", sigmoid, 0.25, 0.0),
    ("tanh", tanh, 1.0, 0.0),
    ("silu", silu, 0.5, 1.0),
    ("gelu", gelu, 0.5, 1.0),
    ("softplus", softplus, 0.5, 1.0),
];

#[test]
fn saturated_activations_have_flat_gradients() {
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        for (name, form, _, right) in FORMS {
            let x = input_of(0, &[6], dtype);
            let at: [&[f64]; 1] = [&[-1e9, -1e4, -800.0, 800.0, 1e4, 1e9]];
            let found = gradient_values(&sum(&form(&x)), &x, &at);
            assert_eq!(
                found,
                [0.0, 0.0, 0.0, right, right, right],
                "{name} in {dtype}"
            );
        }
    }
}

#[test]
fn activations_have_their_slopes_at_zero() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for (name, form, slope, _) in FORMS {
            let x = input_of(0, &[2], dtype);
            let found = gradient_values(&sum(&form(&x)), &x, &[&[0.0, -0.0]]);
            assert_eq!(found, [slope, slope], "{name} in {dtype}");
        }
    }
}

#[test]
fn second_derivatives_of_saturated_activations_are_zero() {
    for (name, form, ..) in FORMS {
        let x = input32(0, &[4]);
        let first = gradient(&sum(&form(&x)), from_ref(&x)).unwrap().remove(0);
        let found = gradient_values(&sum(&first), &x, &[&[-1e4, -800.0, 800.0, 1e4]]);
        assert_eq!(found, [0.0; 4], "{name}");
    }
}

#[test]
fn the_reciprocal_of_a_huge_number_is_flat() {
    // 1/x underflows to 0 in the output the rule reads; the gradient is 0 and no NaN.
    let x = input32(0, &[3]);
    let u = x.recip().unwrap();
    let at: [&[f64]; 1] = [&[1e39, -1e39, 3e38]];
    let found = gradient_values(&sum(&(&u * &number(&u, 1e30))), &x, &at);
    assert_eq!(found[..2], [0.0, 0.0]);
    assert!(found[2].abs() < 1e-40);
}

// ---- softmax and cross-entropy ----

fn shifted_exp(x: &UOp) -> (UOp, UOp, UOp) {
    let (rows, n) = (x.shape()[0], x.shape()[1]);
    let along = |u: UOp| u.reshape(&[rows, 1]).unwrap().expand(&[rows, n]).unwrap();
    let top = x
        .reduce(ReduceOp::Max, 1)
        .unwrap()
        .stage(StageKind::Detach)
        .unwrap();
    let z = x.sub(&along(top)).unwrap();
    let e = z.exp().unwrap();
    let total = along(e.reduce(ReduceOp::Add, 1).unwrap());
    (z, e, total)
}

#[test]
fn cross_entropy_of_two_rows_has_the_published_gradient() {
    let logits = input32(0, &[2, 3]);
    let hot = input32(1, &[2, 3]);
    let (z, _, total) = shifted_exp(&logits);
    let log = &total.log2().unwrap() * &number(&total, LN_2);
    let picked = sum(&(&hot * &z.sub(&log).unwrap()));
    let loss = (-&picked).div(&UOp::float(2.0, DType::F32)).unwrap();
    let slots: [&[f64]; 2] = [
        &[2.0, 1.0, 0.1, 0.5, 2.5, 0.3],
        &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
    ];
    let found = gradient_values(&loss, &logits, &slots);
    let published = [
        -0.1704994, 0.1212165, 0.0492829, 0.0543019, -0.0987605, 0.0444586,
    ];
    assert_close(&found, &published, 1e-6);
    // (softmax - onehot) / 2, by hand.
    let (_, e, total) = shifted_exp(&logits);
    let by_hand = e.div(&total).unwrap().sub(&hot).unwrap();
    let by_hand = by_hand.div(&number(&by_hand, 2.0)).unwrap();
    assert_close(&found, &value(&by_hand, &slots), 1e-6);
}

#[test]
fn cross_entropy_of_extreme_logits_is_finite() {
    let logits = input32(0, &[2, 3]);
    let hot = input32(1, &[2, 3]);
    let (z, _, total) = shifted_exp(&logits);
    let log = &total.log2().unwrap() * &number(&total, LN_2);
    let loss = -&sum(&(&hot * &z.sub(&log).unwrap()));
    let slots: [&[f64]; 2] = [
        &[1e30, -1e30, 0.0, -3e38, -3e38, -3e38],
        &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0],
    ];
    let found = gradient_values(&loss, &logits, &slots);
    let third = 1.0 / 3.0;
    assert_close(&found, &[1.0, -1.0, 0.0, third - 1.0, third, third], 1e-6);
}

// ---- shapes ----

#[test]
fn padding_and_indexing_take_a_logarithm_of_nodes() {
    let nodes = |n: usize| {
        let x = input(0, &[n]);
        let parts = [
            x.shrink(&[(n / 2, n / 2 + 1)]).unwrap(),
            pad(&x, &[(n, 3 * n)]).unwrap(),
            cat(&[x.clone(), x.clone()], 0).unwrap(),
            flip(&x, &[0]).unwrap(),
        ];
        let loss = parts
            .iter()
            .map(sum)
            .reduce(|a, b| &a + &b)
            .expect("four parts");
        Graph::new(&gradient(&loss, &[x]).unwrap()).len()
    };
    assert!(nodes(1 << 20) < 500, "{} nodes", nodes(1 << 20));
    assert!(nodes(1 << 20) - nodes(1 << 10) <= 5 * 10);
}

#[test]
fn zero_size_and_scalar_nodes_are_differentiated() {
    let x = input(0, &[0, 3]);
    let w = input(1, &[3, 2]);
    let xe = x.reshape(&[0, 1, 3]).unwrap().expand(&[0, 2, 3]).unwrap();
    let we = w
        .permute(&[1, 0])
        .unwrap()
        .reshape(&[1, 2, 3])
        .unwrap()
        .expand(&[0, 2, 3])
        .unwrap();
    let loss = sum(&(&xe * &we).reduce(ReduceOp::Add, 1).unwrap());
    let found = gradients(&loss, &[x.clone(), w], &[&[], &[1.0; 6]]);
    assert_eq!(found, [vec![], vec![0.0; 6]]);
    for u in [
        x.exp().unwrap(),
        x.maximum(&x).unwrap(),
        x.reduce(ReduceOp::Max, 1).unwrap(),
        x.reduce(ReduceOp::Mul, 2).unwrap(),
        pad(&x, &[(1, 2), (0, 0)]).unwrap(),
        flip(&x, &[1]).unwrap(),
        UOp::stack(&[x.clone(), x.clone()]).unwrap(),
    ] {
        assert_eq!(gradient_values(&sum(&u), &x, &[&[]]), [0.0; 0]);
    }
    let s = UOp::slot(0, DType::F64, 1).reshape(&[]).unwrap();
    assert_eq!(gradient_values(&(&s * &s), &s, &[&[3.0]]), [6.0]);
    assert_eq!(
        gradient_values(&s.reduce(ReduceOp::Max, 0).unwrap(), &s, &[&[3.0]]),
        [1.0]
    );
}

#[test]
fn sums_go_back_only_over_broadcast_axes() {
    let x = input(0, &[1, 3, 1]);
    let u = x.expand(&[2, 3, 4]).unwrap();
    assert_eq!(gradient_values(&sum(&u), &x, &[&[0.0; 3]]), [8.0; 3]);
    let error = sum_to(&u, &[1, 2, 4]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("(2, 3, 4) does not sum to (1, 2, 4)"),
        "{error}"
    );
}

// ---- what is cut off ----

#[test]
fn a_cut_target_is_reported_with_its_place() {
    let x = input32(0, &[2, 3]);
    let line = line!() + 1;
    let site = Site::caller().enter();
    let stopped = x.stage(StageKind::Detach).unwrap();
    drop(site);
    let loss = sum(&(&stopped * &stopped));
    let (found, diagnostics) = gradient_with(&loss, from_ref(&x), false).unwrap();
    assert_eq!(value(&found[0], &[]), [0.0; 6]);
    let expected = format!(
        "target 0, reshape f32 (2, 3), gets zeros: every path from it to the root is cut, by \
         stage detach of reshape f32 (2, 3): it is detached; leave out the detach, or leave it \
         out of the targets (at {}:{line})",
        file!()
    );
    assert_eq!(diagnostics[0].to_string(), expected);
    assert_eq!(diagnostics[0].site, stopped.site());

    let error = gradient_with(&loss, &[x], true).unwrap_err();
    assert!(matches!(error, Error::Gradient { .. }));
    assert_eq!(error.to_string(), format!("gradient: {expected}"));
}

#[test]
fn each_kind_of_cut_is_named() {
    let x = input32(0, &[3]);
    let zero = number(&x, 0.0);
    let positive = zero.cmplt(&x).unwrap();
    let rounded = x.cast(DType::I64).unwrap().cast(DType::F32).unwrap();
    let chosen = positive.where_(&number(&x, 2.0), &zero).unwrap();
    let whole = x.exp().unwrap().trunc().unwrap();
    for (u, named) in [
        (
            rounded,
            "cast to i64 of buffer f32 (3,): integers and bools have no derivative",
        ),
        (
            chosen,
            "cmplt of expand f32 (3,), buffer f32 (3,): comparisons have no derivative",
        ),
        (
            whole,
            "trunc of exp f32 (3,): its derivative is zero or undefined everywhere",
        ),
    ] {
        let (_, diagnostics) = gradient_with(&sum(&u), from_ref(&x), false).unwrap();
        let text = diagnostics[0].to_string();
        assert!(text.contains(named), "{text}");
    }
}

#[test]
fn only_cut_targets_are_reported() {
    let [open, cut, absent] = [0, 1, 2].map(|k| input32(k, &[3]));
    let stopped = cut.exp().unwrap().stage(StageKind::Detach).unwrap();
    let half_open = &open + &open.stage(StageKind::Detach).unwrap();
    let loss = sum(&(&half_open * &stopped));
    let targets = [open, absent, cut];
    let (found, diagnostics) = gradient_with(&loss, &targets, false).unwrap();
    assert_eq!(
        diagnostics.iter().map(|d| d.target).collect::<Vec<_>>(),
        [2]
    );
    assert!(
        diagnostics[0]
            .message
            .contains("stage detach of exp f32 (3,)")
    );
    assert_eq!(value(&found[2], &[]), [0.0; 3]);
    // Above the cut, the detached value is a target like any other.
    assert_eq!(
        gradient(&loss, &[stopped]).unwrap(),
        [&number(&half_open, 1.0) * &half_open]
    );
}

#[test]
fn targets_and_roots_that_are_no_floats_are_refused() {
    let n = UOp::slot(0, DType::I32, 3);
    let x = input32(1, &[3]);
    let loss = sum(&(&x * &n.cast(DType::F32).unwrap()));
    assert_eq!(
        gradient(&loss, from_ref(&n)).unwrap_err().to_string(),
        "gradient: the target, buffer of dtype i32 and shape (3,), is no float; only floats have \
         derivatives, so cast it to f32 before it is used"
    );
    let error = gradient(&sum(&n), &[x]).unwrap_err().to_string();
    assert!(
        error.contains("the root, reduce of dtype i32 and shape ()"),
        "{error}"
    );
}

// ---- targets of all kinds ----

#[test]
fn interior_nodes_and_the_root_are_targets() {
    let x = input(0, &[2]);
    let h = x.exp().unwrap();
    let loss = sum(&(&h * &h));
    let slots: [&[f64]; 1] = [&[0.0, 1.0]];
    let found = gradients(
        &loss,
        &[h.clone(), x.clone(), loss.clone(), h.clone()],
        &slots,
    );
    let e = value(&h, &slots);
    assert_eq!(found[0], [2.0 * e[0], 2.0 * e[1]]);
    assert_close(&found[1], &[2.0 * e[0] * e[0], 2.0 * e[1] * e[1]], 1e-15);
    assert_eq!(found[2], [1.0]);
    assert_eq!(found[3], found[0]);
}

#[test]
fn a_maximum_recomputed_is_the_same_maximum() {
    // The gradient compares x with its own maximum: the largest element is found, whatever
    // was computed in between and in whatever dtype.
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = input_of(0, &[64], dtype);
        let y = (&x * &number(&x, 0.1)).sin().unwrap();
        let top = y.reduce(ReduceOp::Max, 1).unwrap();
        let at: Vec<f64> = (0..64).map(|k| f64::from(k) * 0.37).collect();
        let found = gradient(&top, from_ref(&y)).unwrap().remove(0);
        let shares = value(&found, &[&at]);
        let total: f64 = shares.iter().sum();
        assert!((total - 1.0).abs() < 1e-2, "{dtype}: {total}");
        let (values, largest) = (value(&y, &[&at]), value(&top, &[&at])[0]);
        for (v, share) in values.iter().zip(&shares) {
            assert_eq!(*share > 0.0, *v == largest, "{dtype}");
        }
    }
}

#[test]
fn a_deep_chain_has_work_in_proportion() {
    on_small_stack(|| {
        let nodes = |n: usize| {
            let x = UOp::slot(0, DType::F32, 1);
            let u = (0..n).fold(x.clone(), |u, _| u.sin().unwrap());
            Graph::new(&gradient(&u, &[x]).unwrap()).len()
        };
        let (n, n2, n4) = (nodes(20_000), nodes(40_000), nodes(80_000));
        assert_eq!(n4 - n2, 2 * (n2 - n));
        assert!(n4 <= 3 * 80_000 + 10, "{n4}");
    });
}
