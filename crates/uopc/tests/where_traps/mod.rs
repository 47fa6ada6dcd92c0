//! The functions behind which traps lie, and their derivatives, worked out by hand.

use std::f64::consts::LN_2;

use uopc::ir::composite::{cat, flip};
use uopc::ir::op::{ReduceOp, StageKind};
use uopc::ir::{DType, UOp};

use crate::check;
use crate::oracle::number;

// ---- the functions that cases are made of ----

fn select(c: &UOp, a: &UOp, b: &UOp) -> UOp {
    c.where_(a, b).unwrap()
}

fn below(a: &UOp, b: &UOp) -> UOp {
    a.cmplt(b).unwrap()
}

fn positive(x: &UOp) -> UOp {
    below(&number(x, 0.0), x)
}

fn nonzero(x: &UOp) -> UOp {
    x.cmpne(&number(x, 0.0)).unwrap()
}

/// `c ? a : 0`.
fn or_zero(c: &UOp, a: &UOp) -> UOp {
    select(c, a, &number(a, 0.0))
}

fn sub(a: &UOp, b: &UOp) -> UOp {
    a.sub(b).unwrap()
}

fn div(a: &UOp, b: &UOp) -> UOp {
    a.div(b).unwrap()
}

fn plus(x: &UOp, c: f64) -> UOp {
    x + &number(x, c)
}

fn times(x: &UOp, c: f64) -> UOp {
    x * &number(x, c)
}

/// c - x.
fn from(c: f64, x: &UOp) -> UOp {
    sub(&number(x, c), x)
}

fn sqrt(x: &UOp) -> UOp {
    x.sqrt().unwrap()
}

fn exp(x: &UOp) -> UOp {
    x.exp().unwrap()
}

fn log(x: &UOp) -> UOp {
    times(&x.log2().unwrap(), LN_2)
}

fn recip(x: &UOp) -> UOp {
    x.recip().unwrap()
}

fn maximum(a: &UOp, b: &UOp) -> UOp {
    a.maximum(b).unwrap()
}

fn minimum(a: &UOp, b: &UOp) -> UOp {
    -&maximum(&-a, &-b)
}

fn reduce(op: ReduceOp, x: &UOp) -> UOp {
    let mut dims = x.shape().to_vec();
    *dims.last_mut().unwrap() = 1;
    x.reduce(op, 1).unwrap().reshape(&dims).unwrap()
}

/// The sum of each row, as a column.
fn row_sum(x: &UOp) -> UOp {
    reduce(ReduceOp::Add, x)
}

fn row_max(x: &UOp) -> UOp {
    reduce(ReduceOp::Max, x)
}

fn mean(x: &UOp) -> UOp {
    let n = *x.shape().last().unwrap();
    let total = row_sum(x);
    div(&total, &number(&total, n as f64))
}

/// A column repeated to the shape of x.
fn along(column: &UOp, x: &UOp) -> UOp {
    column.expand(x.shape()).unwrap()
}

fn norm(x: &UOp) -> UOp {
    sqrt(&row_sum(&(x * x)))
}

/// Scores with those below -50 masked, as attention does it.
fn masked(x: &UOp) -> UOp {
    let seen = below(&number(x, -50.0), x);
    x + &select(&seen, &number(x, 0.0), &number(x, f64::NEG_INFINITY))
}

fn any_seen(top: &UOp) -> UOp {
    below(&number(top, f64::NEG_INFINITY), top)
}

/// The elements of a vector from `begin` on.
fn rest(x: &UOp, begin: usize) -> UOp {
    x.shrink(&[(begin, x.shape()[0])]).unwrap()
}

/// Rows 1 and 2, whose numbers are computed.
fn read(x: &UOp) -> UOp {
    let places = UOp::iota(2, DType::I32).unwrap();
    x.index(&[&places + &number(&places, 1.0)]).unwrap()
}

fn second(x: &UOp) -> UOp {
    x.index(&[UOp::int(1, DType::I32)]).unwrap()
}

// ---- the cases ----

/// The arguments of a function, or their gradients.
pub type Point = Vec<Vec<f64>>;

/// A function, and its first and second derivatives at a point.
pub struct Case {
    pub name: &'static str,
    pub build: fn(&[UOp]) -> UOp,
    pub derivatives: fn(&Point) -> [Point; 2],
}

/// Derivatives of a function of one number, for each element of the only argument.
fn each(point: &Point, d: [fn(f64) -> f64; 2]) -> [Point; 2] {
    d.map(|d| vec![point[0].iter().map(|&x| d(x)).collect()])
}

/// A function of one number that is something where a condition holds, and constant elsewhere.
fn guarded(point: &Point, holds: fn(f64) -> bool, d: [fn(f64) -> f64; 2]) -> [Point; 2] {
    d.map(|d| {
        vec![
            point[0]
                .iter()
                .map(|&x| if holds(x) { d(x) } else { 0.0 })
                .collect(),
        ]
    })
}

/// Each case is a test of that name.
macro_rules! cases {
    ($($name:ident: $build:expr, $derivatives:expr;)*) => {
        /// Every case.
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            build: $build,
            derivatives: $derivatives,
        }),*];

        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

fn is_positive(x: f64) -> bool {
    x > 0.0
}

fn is_other_than_zero(x: f64) -> bool {
    x != 0.0
}

fn is_inside(x: f64) -> bool {
    x * x < 1.0
}

/// The derivatives of the square root.
const ROOT: [fn(f64) -> f64; 2] = [|x| 0.5 / x.sqrt(), |x| -0.25 / (x * x.sqrt())];
/// Those of the logarithm.
const LOG: [fn(f64) -> f64; 2] = [|x| 1.0 / x, |x| -1.0 / (x * x)];
/// Those of the reciprocal.
const RECIP: [fn(f64) -> f64; 2] = [|x| -1.0 / (x * x), |x| 2.0 / (x * x * x)];
/// Those of 1/(1 + exp(-x)).
const SIGMOID: [fn(f64) -> f64; 2] = [
    |x| 1.0 / (2.0 + 2.0 * x.cosh()),
    |x| {
        if x == 0.0 {
            0.0
        } else {
            -(x / 2.0).tanh() / (2.0 + 2.0 * x.cosh())
        }
    },
];

cases! {
    sqrt_at_zero:
        |a| or_zero(&positive(&a[0]), &sqrt(&a[0])),
        |p| guarded(p, is_positive, ROOT);
    sqrt_of_negative:
        |a| select(&positive(&a[0]), &sqrt(&a[0]), &a[0]),
        |p| each(p, [|x| if x > 0.0 { ROOT[0](x) } else { 1.0 },
                     |x| if x > 0.0 { ROOT[1](x) } else { 0.0 }]);
    log_at_zero:
        |a| or_zero(&positive(&a[0]), &log(&a[0])),
        |p| guarded(p, is_positive, LOG);
    entropy:
        |a| or_zero(&positive(&a[0]), &(&-&a[0] * &log(&a[0]))),
        |p| guarded(p, is_positive, [|x| -x.ln() - 1.0, |x| -1.0 / x]);
    entropy_of_negative:
        |a| select(&positive(&a[0]), &(&-&a[0] * &log(&a[0])), &a[0]),
        |p| each(p, [|x| if x > 0.0 { -x.ln() - 1.0 } else { 1.0 },
                     |x| if x > 0.0 { -1.0 / x } else { 0.0 }]);
    binary_entropy:
        |a| {
            let (p, q) = (&a[0], &from(1.0, &a[0]));
            let within = positive(p).and(&below(p, &number(p, 1.0))).unwrap();
            or_zero(&within, &sub(&(&-p * &log(p)), &(q * &log(q))))
        },
        |p| guarded(p, |p| 0.0 < p && p < 1.0,
                    [|p| (1.0 - p).ln() - p.ln(), |p| -1.0 / p - 1.0 / (1.0 - p)]);
    relative_entropy:
        |a| or_zero(&positive(&a[0]), &(&a[0] * &log(&div(&a[0], &a[1])))),
        |at| {
            let of = |f: fn(f64, f64) -> f64| -> Vec<f64> {
                let pairs = at[0].iter().zip(&at[1]);
                pairs.map(|(&p, &q)| if p > 0.0 { f(p, q) } else { 0.0 }).collect()
            };
            // The sum of the gradients is log(p/q) + 1 - p/q.
            [vec![of(|p, q| (p / q).ln() + 1.0), of(|p, q| -p / q)],
             vec![of(|p, q| 1.0 / p - 1.0 / q), of(|p, q| -1.0 / q + p / (q * q))]]
        };
    exp_overflow:
        |a| select(&below(&a[0], &number(&a[0], 0.0)), &exp(&a[0]), &plus(&a[0], 1.0)),
        |p| each(p, [|x| if x < 0.0 { x.exp() } else { 1.0 },
                     |x| if x < 0.0 { x.exp() } else { 0.0 }]);
    elu:
        |a| select(&positive(&a[0]), &a[0], &plus(&exp(&a[0]), -1.0)),
        |p| each(p, [|x| if x > 0.0 { 1.0 } else { x.exp() },
                     |x| if x > 0.0 { 0.0 } else { x.exp() }]);
    softplus:
        |a| select(&below(&number(&a[0], 20.0), &a[0]), &a[0], &log(&plus(&exp(&a[0]), 1.0))),
        |p| each(p, [|x| if x > 20.0 { 1.0 } else { 1.0 / (1.0 + (-x).exp()) },
                     |x| if x > 20.0 { 0.0 } else { SIGMOID[0](x) }]);
    sigmoid:
        |a| {
            let (x, e) = (&a[0], &exp(&a[0]));
            let right = recip(&plus(&exp(&-x), 1.0));
            select(&below(x, &number(x, 0.0)), &div(e, &plus(e, 1.0)), &right)
        },
        |p| each(p, SIGMOID);
    tanh:
        |a| {
            let (x, e) = (&a[0], &exp(&times(&a[0], 2.0)));
            let t = div(&plus(e, -1.0), &plus(e, 1.0));
            select(&below(x, &number(x, 20.0)), &t, &number(x, 1.0))
        },
        |p| guarded(p, |x| x < 20.0,
                    [|x| 1.0 - x.tanh().powi(2), |x| -2.0 * x.tanh() * (1.0 - x.tanh().powi(2))]);
    log_one_minus_exp:
        |a| or_zero(&below(&a[0], &number(&a[0], 0.0)), &log(&from(1.0, &exp(&a[0])))),
        |p| guarded(p, |x| x < 0.0,
                    [|x| -x.exp() / (1.0 - x.exp()), |x| -x.exp() / (1.0 - x.exp()).powi(2)]);
    reciprocal:
        |a| or_zero(&nonzero(&a[0]), &recip(&a[0])),
        |p| guarded(p, is_other_than_zero, RECIP);
    reciprocal_if_finite:
        |a| {
            let r = recip(&a[0]);
            or_zero(&below(&maximum(&r, &-&r), &number(&r, f64::INFINITY)), &r)
        },
        |p| guarded(p, is_other_than_zero, RECIP);
    division_by_zero:
        |a| or_zero(&nonzero(&a[1]), &div(&a[0], &a[1])),
        |at| {
            let of = |f: fn(f64, f64) -> f64| -> Vec<f64> {
                let pairs = at[0].iter().zip(&at[1]);
                pairs.map(|(&x, &y)| if y != 0.0 { f(x, y) } else { 0.0 }).collect()
            };
            // The sum of the gradients is 1/y - x/y^2.
            [vec![of(|_, y| 1.0 / y), of(|x, y| -x / (y * y))],
             vec![of(|_, y| -1.0 / (y * y)), of(|x, y| -1.0 / (y * y) + 2.0 * x / (y * y * y))]]
        };
    zero_over_zero:
        |a| select(&nonzero(&a[0]), &div(&a[0].sin().unwrap(), &a[0]), &number(&a[0], 1.0)),
        |p| guarded(p, is_other_than_zero,
                    [|x| x.cos() / x - x.sin() / (x * x),
                     |x| -x.sin() / x - 2.0 * x.cos() / (x * x) + 2.0 * x.sin() / (x * x * x)]);
    expm1_over_x:
        |a| select(&nonzero(&a[0]), &div(&plus(&exp(&a[0]), -1.0), &a[0]), &number(&a[0], 1.0)),
        |p| guarded(p, is_other_than_zero,
                    [|x| x.exp() / x - x.exp_m1() / (x * x),
                     |x| x.exp() / x - 2.0 * x.exp() / (x * x) + 2.0 * x.exp_m1() / (x * x * x)]);
    power_through_log:
        |a| or_zero(&positive(&a[0]), &exp(&times(&log(&a[0]), 0.5))),
        |p| guarded(p, is_positive, ROOT);
    three_halves:
        |a| or_zero(&positive(&a[0]), &(&a[0] * &sqrt(&a[0]))),
        |p| guarded(p, is_positive, [|x| 1.5 * x.sqrt(), |x| 0.75 / x.sqrt()]);
    half_circle:
        |a| {
            let square = &a[0] * &a[0];
            or_zero(&below(&square, &number(&square, 1.0)), &sqrt(&from(1.0, &square)))
        },
        |p| guarded(p, is_inside,
                    [|x| -x / (1.0 - x * x).sqrt(), |x| -1.0 / (1.0 - x * x).powf(1.5)]);
    arcsine_density:
        |a| {
            let square = &a[0] * &a[0];
            let density = recip(&sqrt(&from(1.0, &square)));
            or_zero(&below(&square, &number(&square, 1.0)), &density)
        },
        |p| guarded(p, is_inside,
                    [|x| x / (1.0 - x * x).powf(1.5),
                     |x| (1.0 + 2.0 * x * x) / (1.0 - x * x).powf(2.5)]);
    arcosh:
        |a| {
            let x = &a[0];
            let root = sqrt(&plus(&(x * x), -1.0));
            or_zero(&below(&number(x, 1.0), x), &log(&(x + &root)))
        },
        |p| guarded(p, |x| x > 1.0,
                    [|x| 1.0 / (x * x - 1.0).sqrt(), |x| -x / (x * x - 1.0).powf(1.5)]);
    nested_where:
        |a| {
            let x = &a[0];
            let above = below(&number(x, 1.0), x);
            let inner = select(&above, &log(&plus(x, -1.0)), &sqrt(&from(1.0, x)));
            select(&positive(x), &inner, x)
        },
        |p| each(p, [|x| match x {
                         1.0.. => LOG[0](x - 1.0),
                         0.0.. => -ROOT[0](1.0 - x),
                         _ => 1.0,
                     },
                     |x| match x {
                         1.0.. => LOG[1](x - 1.0),
                         0.0.. => ROOT[1](1.0 - x),
                         _ => 0.0,
                     }]);
    sum_then_sqrt:
        |a| {
            let total = row_sum(&a[0]);
            or_zero(&positive(&total), &sqrt(&total))
        },
        // The second row is (1, 3); the sum of its gradients is 1/sqrt(sum).
        |_| [vec![vec![0.0, 0.0, 0.25, 0.25]], vec![vec![0.0, 0.0, -0.0625, -0.0625]]];
    norm_at_zero:
        |a| {
            let n = norm(&a[0]);
            or_zero(&positive(&n), &n)
        },
        // At (3, 4): x/n, and 1/n - S x/n^3 with S = 7 the sum and n = 5 the norm.
        |_| [vec![vec![0.0, 0.0, 0.6, 0.8]],
             vec![vec![0.0, 0.0, 0.2 - 21.0 / 125.0, 0.2 - 28.0 / 125.0]]];
    normalised_rows:
        |a| {
            let n = along(&norm(&a[0]), &a[0]);
            or_zero(&positive(&n), &div(&a[0], &n))
        },
        // 1/n - S x/n^3, and -2 x/n^3 - 2 S/n^3 + 3 S^2 x/n^5.
        |_| {
            let second = |x: f64| -2.0 * x / 125.0 - 14.0 / 125.0 + 147.0 * x / 3125.0;
            [vec![vec![0.0, 0.0, 0.2 - 21.0 / 125.0, 0.2 - 28.0 / 125.0]],
             vec![vec![0.0, 0.0, second(3.0), second(4.0)]]]
        };
    standardised_rows:
        |a| {
            let x = &a[0];
            let d = sub(x, &along(&mean(x), x));
            let s = along(&sqrt(&mean(&(&d * &d))), x);
            or_zero(&positive(&s), &div(&(&(x * x) * &d), &s))
        },
        // Of the row (1, 2, 6) alone, by another framework in f64.
        |_| [vec![vec![0.0, 0.0, 0.0, -0.9699067711902902, -2.953806984988616, 16.88519515299463]],
             vec![vec![0.0, 0.0, 0.0, -1.8516401995451026, -0.925820099772551,
                       2.777460299317653]]];
    cosine_similarity:
        |a| {
            let n = &norm(&a[0]) * &norm(&a[1]);
            or_zero(&positive(&n), &div(&row_sum(&(&a[0] * &a[1])), &n))
        },
        // For |a| = |b| = 5, a.b = 24: b/25 - 24 a/625; the second by another framework in f64.
        |_| [vec![vec![0.0, 0.0, 28.0 / 625.0, -21.0 / 625.0],
                  vec![0.0, 0.0, -21.0 / 625.0, 28.0 / 625.0]],
             vec![vec![0.0, 0.0, -0.026176, 0.016832], vec![0.0, 0.0, 0.016832, -0.026176]]];
    weighted_mean:
        |a| {
            let total = row_sum(&a[0]);
            or_zero(&positive(&total), &div(&row_sum(&(&a[0] * &a[1])), &total))
        },
        // At w = (1, 3), x = (2, 4): (x - 3.5)/4 and w/4. Their sum is (6 - 2 m)/W + 1 for the
        // mean m and the total weight W.
        |_| [vec![vec![0.0, 0.0, -0.375, 0.125], vec![0.0, 0.0, 0.25, 0.75]],
             vec![vec![0.0, 0.0, 0.25, 0.0], vec![0.0, 0.0, 0.125, -0.125]]];
    geometric_mean:
        |a| {
            let p = reduce(ReduceOp::Mul, &a[0]);
            or_zero(&positive(&p), &exp(&mean(&log(&a[0]))))
        },
        // sqrt(x y) at (1, 4): the sum of its gradients is (sqrt(y/x) + sqrt(x/y))/2.
        |_| [vec![vec![0.0, 0.0, 1.0, 0.25]], vec![vec![0.0, 0.0, -0.375, 0.09375]]];
    pairwise_distance:
        |a| {
            let x = &a[0];
            let d = sub(x, &flip(x, &[0]).unwrap());
            let d = row_sum(&(&d * &d));
            x * &along(&or_zero(&positive(&d), &sqrt(&d)), x)
        },
        // With n = 5 between the outer rows, S = 7 the sum of both, and D their difference:
        // n - S D/n and n + S D/n; the sum of all is 4 n.
        |_| [vec![vec![5.0 - 4.2, 5.0 - 5.6, 0.0, 0.0, 5.0 + 4.2, 5.0 + 5.6]],
             vec![vec![-2.4, -3.2, 0.0, 0.0, 2.4, 3.2]]];
    masked_softmax:
        |a| {
            let (x, s) = (&a[0], &masked(&a[0]));
            let top = row_max(s);
            let z = sub(s, &along(&top.stage(StageKind::Detach).unwrap(), s));
            let softmax = div(&exp(&z), &along(&row_sum(&exp(&z)), s));
            or_zero(&along(&any_seen(&top), s), &(&(&softmax * x) * x))
        },
        // For p = 1/(1+e) and q = 1-p the rest of the row is q x^2 at x = (0, 1): -p q and
        // p q + 2 q; their sum is 2 q.
        |_| {
            let p = 1.0 / (1.0 + 1f64.exp());
            let q = 1.0 - p;
            [vec![vec![-p * q, p * q + 2.0 * q, 0.0, 0.0, 0.0, 0.0]],
             vec![vec![0.14465897625702656, 1.8553410237429735, 0.0, 0.0, 0.0, 0.0]]]
        };
    masked_logsumexp:
        |a| {
            let (x, s) = (&a[0], &masked(&a[0]));
            let top = row_max(s);
            let l = &log(&row_sum(&exp(&sub(s, &along(&top, s))))) + &top;
            x * &along(&or_zero(&any_seen(&top), &l), x)
        },
        // L + T p and L + T q for L = log(1+e), T = -98 the sum of the row; the sum is 3 L + T.
        |_| {
            let p = 1.0 / (1.0 + 1f64.exp());
            let (q, l) = (1.0 - p, 1f64.exp().ln_1p());
            [vec![vec![l - 98.0 * p, l - 98.0 * q, l, 0.0, 0.0, 0.0]],
             vec![vec![3.0 * p + 1.0, 3.0 * q + 1.0, 1.0, 0.0, 0.0, 0.0]]]
        };
    maximum_of_log:
        |a| maximum(&log(&a[0]), &number(&a[0], -10.0)),
        |p| guarded(p, is_positive, LOG);
    maximum_of_sqrt:
        |a| maximum(&plus(&sqrt(&a[0]), -1.0), &number(&a[0], 0.0)),
        |p| guarded(p, is_positive, ROOT);
    minimum_of_reciprocal:
        |a| minimum(&recip(&a[0]), &number(&a[0], 5.0)),
        |p| guarded(p, is_other_than_zero, RECIP);
    clamped_exp:
        |a| minimum(&exp(&a[0]), &number(&a[0], 10.0)),
        |p| guarded(p, |x| x < 2.0, [f64::exp, f64::exp]);
    row_maximum_of_log:
        |a| row_max(&log(&a[0])),
        |_| [vec![vec![0.0, 0.5, 0.25, 0.0]], vec![vec![0.0, -0.25, -0.0625, 0.0]]];
    row_maximum_of_sqrt:
        |a| row_max(&sqrt(&a[0])),
        |_| [vec![vec![0.0, ROOT[0](4.0), 0.0, ROOT[0](9.0)]],
             vec![vec![0.0, ROOT[1](4.0), 0.0, ROOT[1](9.0)]]];
    slice_of_sqrt:
        |a| rest(&sqrt(&a[0]), 1),
        |p| guarded(p, is_positive, ROOT);
    slice_of_log:
        |a| rest(&log(&a[0]), 1),
        |p| guarded(p, is_positive, LOG);
    element_of_reciprocal:
        |a| second(&recip(&a[0])),
        |p| guarded(p, is_other_than_zero, RECIP);
    part_of_a_stack:
        |a| second(&UOp::stack(&[sqrt(&a[0]), &a[0] * &a[0]]).unwrap()),
        |p| each(p, [|x| 2.0 * x, |_| 2.0]);
    log_of_what_is_read:
        |a| read(&log(&a[0])),
        |p| guarded(p, is_positive, LOG);
    rows_that_are_read:
        |a| read(&sqrt(&a[0])),
        |p| guarded(p, is_positive, ROOT);
    rest_of_a_join:
        |a| rest(&cat(&[sqrt(&a[0]), &a[0] * &a[0]], 0).unwrap(), 2),
        |p| each(p, [|x| 2.0 * x, |_| 2.0]);
}
