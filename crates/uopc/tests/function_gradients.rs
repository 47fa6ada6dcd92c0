//! Derivatives of elementwise functions and reductions: against difference quotients at orders 1 and 2 (by
//! both modes), at order 3 for those with rules of their own, and exactly where a quotient can't tell.

use std::sync::Arc;

use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::tensor::{EnteredEngine, enter_engine};
use uopc::transform::gradcheck::GradcheckReport;
use uopc::{DType, Result, Tensor, grad, gradcheck, jvp, vmap};

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Functions of one number, with where they are looked at.
const ONE: &[(&str, Unary, &[f64])] = &[
    ("tan", Tensor::tan, &[0.0, 0.3, -1.2, 4.0]),
    ("asin", Tensor::asin, &[0.0, 0.3, -0.9, 0.6]),
    ("acos", Tensor::acos, &[0.0, 0.3, -0.9, 0.6]),
    ("atan", Tensor::atan, &[0.0, 0.3, -1.0, 2.4, -7.0]),
    ("sinh", Tensor::sinh, &[0.0, 0.7, -1.0, 2.5]),
    ("cosh", Tensor::cosh, &[0.0, 0.7, -1.0, 2.5]),
    ("asinh", Tensor::asinh, &[0.0, 0.7, -1.0, 2.5]),
    ("acosh", Tensor::acosh, &[1.2, 2.5, 30.0]),
    ("atanh", Tensor::atanh, &[0.0, 0.3, -0.9]),
    ("expm1", Tensor::expm1, &[0.0, 0.5, -0.5, 1.7]),
    ("log1p", Tensor::log1p, &[0.0, 0.5, -0.5, 7.0]),
    ("log10", Tensor::log10, &[0.3, 1.0, 700.0]),
    ("erf", Tensor::erf, &[0.0, 0.5, 1.0, -1.3, 2.0]),
    ("erfc", Tensor::erfc, &[0.0, 0.5, 1.0, -1.3, 2.0]),
    ("rsqrt", Tensor::rsqrt, &[0.3, 1.0, 7.0]),
    ("softsign", Tensor::softsign, &[0.4, -0.6, 3.0]),
    ("mish", Tensor::mish, &[0.1, -0.6, 3.0, -5.0]),
    ("gelu_exact", Tensor::gelu_exact, &[0.0, -0.6, 2.0]),
    ("logsigmoid", Tensor::logsigmoid, &[0.1, -0.6, 3.0]),
    ("selu", Tensor::selu, &[0.4, -0.6, 3.0]),
    ("relu6", Tensor::relu6, &[0.4, -0.6, 7.0]),
    ("hardsigmoid", Tensor::hardsigmoid, &[0.4, -4.0, 7.0]),
    ("hardswish", Tensor::hardswish, &[0.4, -4.0, 7.0]),
    ("elu", |x| x.elu(1.5), &[0.4, -0.6, 3.0]),
    ("celu", |x| x.celu(1.5), &[0.4, -0.6, 3.0]),
    ("leaky_relu", |x| x.leaky_relu(0.1), &[0.4, -0.6]),
    ("hardtanh", |x| x.hardtanh(-1.0, 2.0), &[0.4, -3.0, 5.0]),
    (
        "softplus_with",
        |x| x.softplus_with(2.0, 10.0),
        &[0.4, -0.6, 7.0],
    ),
    ("clamp", |x| x.square()?.clamp(0.2, 4.0), &[0.1, 1.0, 5.0]),
    ("frac", |x| x.square()?.frac(), &[0.4, 1.7, -2.3]),
    ("pow 2.5", |x| x.pow(2.5), &[0.4, 1.7]),
    ("pow -1.5", |x| x.pow(-1.5), &[0.4, 1.7]),
    ("pow 7", |x| x.pow(7), &[0.4, -1.7, 0.9]),
    (
        "pow of 3",
        |x| Tensor::full_as(DType::F64, (), 3.0)?.pow(x),
        &[0.4, -1.7],
    ),
    (
        "nan_to_num",
        |x| x.square()?.nan_to_num(0.0, None, None),
        &[0.4, -1.7],
    ),
    ("std", |x| x.std(.., 1.0), &[0.4, -1.7, 2.0]),
    ("logsumexp", |x| x.logsumexp(..), &[0.4, -1.7, 2.0]),
    ("norm 2", |x| x.norm(.., 2.0), &[0.4, -1.7, 2.0]),
    ("norm 1", |x| x.norm(.., 1.0), &[0.4, -1.7, 2.0]),
    ("norm 3", |x| x.norm(.., 3.0), &[0.4, -1.7, 2.0]),
    ("norm 0.5", |x| x.norm(.., 0.5), &[0.4, -1.7, 2.0]),
    (
        "norm inf",
        |x| x.square()?.norm(.., f64::INFINITY),
        &[0.4, -1.7, 2.0],
    ),
    (
        "norm -inf",
        |x| x.square()?.norm(.., f64::NEG_INFINITY),
        &[0.4, -1.7, 2.0],
    ),
    ("prod", |x| x.prod(..), &[0.4, -1.7, 2.0]),
    ("prod with a zero", |x| x.prod(..), &[0.4, 0.0, 2.0]),
    ("nansum", |x| x.square()?.nansum(..), &[0.4, -1.7]),
    ("nanmean", |x| x.square()?.nanmean(..), &[0.4, -1.7]),
];

/// Functions of two numbers.
const TWO: &[(&str, Binary, &[f64], &[f64])] = &[
    ("pow", |a, b| a.pow(b), &[0.5, 2.0, 1.0], &[2.0, -1.5, 0.5]),
    (
        "atan2",
        |a, b| a.atan2(b),
        &[0.5, -2.0, 1.0, 0.7],
        &[2.0, -1.5, -3.0, 0.1],
    ),
    (
        "hypot",
        |a, b| a.hypot(b),
        &[0.5, -2.0, 1.0],
        &[2.0, -1.5, 0.5],
    ),
    (
        "logaddexp",
        |a, b| a.logaddexp(b),
        &[0.5, -2.0, 1.0],
        &[2.0, -1.5, 1.0],
    ),
    (
        "copysign",
        |a, b| a.square()?.copysign(b),
        &[0.5, -2.0],
        &[2.0, -1.5],
    ),
    ("fmod", |a, b| a.fmod(b), &[7.5, -8.3], &[2.0, -1.5]),
    ("floormod", |a, b| a.floormod(b), &[7.5, -8.3], &[2.0, 1.5]),
    (
        "lerp",
        |a, b| a.square()?.lerp(b, 0.7),
        &[7.5, -8.3],
        &[2.0, 1.5],
    ),
    (
        "leaky_relu",
        |a, b| a.leaky_relu(b),
        &[7.5, -8.3],
        &[2.0, 1.5],
    ),
    (
        "clamp",
        |a, b| a.square()?.clamp_max(b),
        &[1.5, 0.3],
        &[2.0, 1.5],
    ),
];

/// The interpreter, which needs no compiler for the many small graphs; `elementwise.rs` looks at compiled
/// code, and `transforms_table.rs` at that of every op's derivative.
fn own_engine() -> EnteredEngine {
    let device = DeviceChoice::Interp;
    let settings = Settings {
        device,
        ..Settings::default()
    };
    enter_engine(&Arc::new(Engine::new(settings).unwrap()))
}

fn f64s(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

#[track_caller]
fn passes(name: &str, report: Result<GradcheckReport>) {
    let report = report.unwrap();
    assert!(report.passed(), "{name}\n{report}");
}

#[test]
fn derivatives_agree_with_quotients_at_orders_1_and_2() {
    let _engine = own_engine();
    for (name, f, at) in ONE {
        passes(name, gradcheck(f, &f64s(at)));
    }
    for (name, f, a, b) in TWO {
        let f = |(a, b): &(Tensor, Tensor)| f(a, b);
        passes(name, gradcheck(f, &(f64s(a), f64s(b))));
    }
}

#[test]
fn third_derivatives_agree_with_quotients() {
    let _engine = own_engine();
    for (name, f, at) in ONE[..14].iter().chain(&ONE[32..33]) {
        let slope = grad(|x: &Tensor| f(x)?.sum(..));
        passes(name, gradcheck(slope, &f64s(at)));
    }
    for (name, f, a, b) in &TWO[..4] {
        let slopes = grad(|(a, b): &(Tensor, Tensor)| f(a, b)?.sum(..));
        passes(name, gradcheck(slopes, &(f64s(a), f64s(b))));
    }
}

/// A gradient, the forward slope in the direction of ones, and the same of each element in a map.
fn slopes(f: Unary, at: &[f64]) -> Vec<f64> {
    let x = f64s(at);
    let by_grad = grad(|x: &Tensor| f(x)?.sum(..))(&x).unwrap();
    let ones = f64s(&vec![1.0; at.len()]);
    let by_jvp = jvp(f, &x, &ones).unwrap().1;
    let by_map = vmap(grad(f), 0, 0)(&x).unwrap();
    let numbers = by_grad.to_vec::<f64>().unwrap();
    for other in [by_jvp, by_map] {
        let other = other.to_vec::<f64>().unwrap();
        let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
        assert!(
            numbers.iter().zip(&other).all(same),
            "{numbers:?} {other:?}"
        );
    }
    numbers
}

#[track_caller]
fn slopes_are(name: &str, f: Unary, at: &[f64], wanted: &[f64]) {
    let found = slopes(f, at);
    for (a, b) in found.iter().zip(wanted) {
        let near = (a - b).abs() <= 4e-16 * b.abs() || a == b || a.is_nan() && b.is_nan();
        assert!(near, "{name}: {found:?}, not {wanted:?}");
    }
}

#[test]
fn derivatives_at_delicate_points() {
    let _engine = own_engine();
    let inf = f64::INFINITY;
    let nan = f64::NAN;
    // 1 - x is exact, so the slope near 1 is, up to the root's rounding.
    let near = 1.0 - 2f64.powi(-40);
    let steep = 1.0 / ((1.0 - near) * (1.0 + near)).sqrt();
    slopes_are(
        "asin",
        Tensor::asin,
        &[0.0, near, 1.0, -1.0, 2.0],
        &[1.0, steep, inf, inf, nan],
    );
    slopes_are(
        "acos",
        Tensor::acos,
        &[0.0, near, 1.0],
        &[-1.0, -steep, -inf],
    );
    slopes_are(
        "atan",
        Tensor::atan,
        &[0.0, 1.0, 1e200, inf, -inf],
        &[1.0, 0.5, 0.0, 0.0, 0.0],
    );
    slopes_are("tan", Tensor::tan, &[0.0, -0.0], &[1.0, 1.0]);
    slopes_are(
        "sinh",
        Tensor::sinh,
        &[0.0, 800.0, -800.0],
        &[1.0, inf, inf],
    );
    slopes_are(
        "cosh",
        Tensor::cosh,
        &[0.0, 800.0, -800.0],
        &[0.0, inf, -inf],
    );
    slopes_are(
        "asinh",
        Tensor::asinh,
        &[0.0, 1e200, inf],
        &[1.0, 1e-200, 0.0],
    );
    slopes_are("acosh", Tensor::acosh, &[1.0, inf], &[inf, 0.0]);
    slopes_are("atanh", Tensor::atanh, &[0.0, 1.0], &[1.0, inf]);
    slopes_are(
        "expm1",
        Tensor::expm1,
        &[0.0, -0.0, 1e-300, -inf, inf],
        &[1.0, 1.0, 1.0, 0.0, inf],
    );
    slopes_are(
        "log1p",
        Tensor::log1p,
        &[0.0, -0.0, 1e-300, -1.0, inf],
        &[1.0, 1.0, 1.0, inf, 0.0],
    );
    slopes_are(
        "erf",
        Tensor::erf,
        &[0.0, 30.0, inf],
        &[std::f64::consts::FRAC_2_SQRT_PI, 0.0, 0.0],
    );
    slopes_are("relu6", Tensor::relu6, &[0.0, 6.0, 3.0], &[0.0, 0.0, 1.0]);
    slopes_are(
        "hardswish",
        Tensor::hardswish,
        &[-3.0, 3.0, -inf],
        &[0.0, 1.0, 0.0],
    );
    slopes_are(
        "hardsigmoid",
        Tensor::hardsigmoid,
        &[-3.0, 3.0],
        &[0.0, 0.0],
    );
    slopes_are("elu", |x| x.elu(2.0), &[0.0, -inf, inf], &[2.0, 0.0, 1.0]);
    slopes_are("leaky_relu", |x| x.leaky_relu(0.25), &[0.0], &[0.25]);
    slopes_are(
        "clamp",
        |x| x.clamp(-1.0, 1.0),
        &[-1.0, 1.0, 2.0],
        &[1.0, 1.0, 0.0],
    );
    slopes_are("softsign", Tensor::softsign, &[0.0, inf], &[1.0, 0.0]);
    slopes_are(
        "gelu_exact",
        Tensor::gelu_exact,
        &[0.0, 50.0, -50.0, -inf],
        &[0.5, 1.0, 0.0, 0.0],
    );
    slopes_are(
        "mish",
        Tensor::mish,
        &[0.0, 900.0, -900.0],
        &[0.6, 1.0, 0.0],
    );
    slopes_are("sign", |x| x.sign()?.mul(x), &[-2.0, 3.0], &[-1.0, 1.0]);
    slopes_are("round", |x| x.round()?.mul(x), &[2.5, -1.6], &[2.0, -2.0]);
    // By the base at 0, and of exponents 0, 1 and 2.
    slopes_are("pow 0", |x| x.pow(0.0), &[0.0, 2.0], &[0.0, 0.0]);
    slopes_are("pow 1", |x| x.pow(1.0), &[0.0, 2.0], &[1.0, 1.0]);
    slopes_are("pow 2", |x| x.pow(2.0), &[0.0, -2.0], &[0.0, -4.0]);
    let by = |power: f64| move |x: &Tensor| x.pow(Tensor::full_as(DType::F64, x.shape(), power)?);
    for (power, wanted) in [
        (0.0, [0.0, 0.0]),
        (1.0, [1.0, 1.0]),
        (2.0, [0.0, -4.0]),
        (3.0, [0.0, 12.0]),
    ] {
        let f = by(power);
        let x = f64s(&[0.0, -2.0]);
        let found = grad(|x: &Tensor| f(x)?.sum(..))(&x).unwrap();
        assert_eq!(found.to_vec::<f64>().unwrap(), wanted, "power {power}");
        let twice =
            grad(|x: &Tensor| grad(|x: &Tensor| by(power)(x)?.sum(..))(x)?.sum(..))(&x).unwrap();
        let second = [0.0, 0.0, 2.0, 6.0][power as usize];
        let at = |x: f64| if power < 3.0 { second } else { second * x };
        assert_eq!(
            twice.to_vec::<f64>().unwrap(),
            [at(0.0), at(-2.0)],
            "power {power}"
        );
    }
    // By the exponent: 0 where the base is 0, NaN where it is negative.
    let e = f64s(&[0.0, 1.0, 2.0, 2.0, 3.0]);
    let base = f64s(&[0.0, 0.0, 0.0, -1.0, 1.0]);
    let found = grad(|e: &Tensor| base.pow(e)?.sum(..))(&e)
        .unwrap()
        .to_vec::<f64>()
        .unwrap();
    assert_eq!(found[..3], [0.0; 3]);
    assert!(found[3].is_nan() && found[4] == 0.0, "{found:?}");
}

#[test]
fn gradients_of_reductions_where_they_are_singular() {
    let _engine = own_engine();
    let inf = f64::INFINITY;
    let slope = |f: Unary, at: &[f64]| grad(f)(&f64s(at)).unwrap().to_vec::<f64>().unwrap();
    for p in [2.0, 3.0, 1.0] {
        let at_zero = grad(|x: &Tensor| x.norm(.., p))(&f64s(&[0.0, 0.0])).unwrap();
        assert_eq!(at_zero.to_vec::<f64>().unwrap(), [0.0, 0.0], "norm {p}");
    }
    assert_eq!(
        slope(|x| x.norm(.., f64::INFINITY), &[3.0, -3.0, 1.0]),
        [0.5, -0.5, 0.0]
    );
    assert_eq!(slope(|x| x.std(.., 0.0), &[2.0, 2.0]), [0.0, 0.0]);
    assert_eq!(slope(|x| x.logsumexp(..), &[-inf, -inf]), [0.5, 0.5]);
    assert_eq!(slope(|x| x.logsumexp(..), &[inf, 1.0]), [1.0, 0.0]);
    assert_eq!(slope(|x| x.logsumexp(..), &[-inf, 1.0]), [0.0, 1.0]);
    assert_eq!(slope(|x| x.prod(..), &[2.0, 0.0, 3.0]), [0.0, 6.0, 0.0]);
    assert_eq!(slope(|x| x.prod(..), &[2.0, 0.0, 0.0]), [0.0, 0.0, 0.0]);
    let second =
        grad(|x: &Tensor| grad(|x: &Tensor| x.prod(..))(x)?.sum(..))(&f64s(&[2.0, 0.0, 0.0]));
    // Of x y z at (2, 0, 0) the sum of the Hessian's columns: by x 0, by y z + x = 2, by z 2.
    assert_eq!(second.unwrap().to_vec::<f64>().unwrap(), [0.0, 2.0, 2.0]);
    assert_eq!(slope(|x| x.nansum(..), &[2.0, f64::NAN]), [1.0, 0.0]);
    assert_eq!(slope(|x| x.hypot(0.0)?.sum(..), &[0.0, 2.0]), [0.0, 1.0]);
    // What a selection does not take has no gradient, however steep it is there.
    let safe = |x: &Tensor| x.gt(0)?.where_(x.acosh()?.add(x.log1p()?)?, 0.0)?.sum(..);
    assert_eq!(slope(safe, &[-1.0, 1e300])[0], 0.0);
}

/// Text keeps a function's name, and with it the derivative.
#[test]
fn what_is_read_back_can_be_differentiated() {
    use uopc::autodiff::gradient;
    use uopc::ir::{UOp, parse, print};
    let x = UOp::slot(0, DType::F32, 3);
    for y in [
        uopc::functions::tan(&x).unwrap(),
        uopc::functions::pow(&x, &x.exp().unwrap()).unwrap(),
    ] {
        let text = print::to_uir(&[y.clone()]);
        assert!(
            text.contains("custom") && text.contains("name=uopc."),
            "{text}"
        );
        let back = parse::parse(&text, "text").unwrap().roots.remove(0);
        assert_eq!(
            gradient(&back, &[x.clone()]).unwrap(),
            gradient(&y, &[x.clone()]).unwrap()
        );
    }
}
