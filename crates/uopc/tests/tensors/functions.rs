//! The functions of one number, with what they are in f64.

use std::f64::consts::PI;

use uopc::{Result, Tensor};

/// A name, the function on tensors, and the same on numbers.
pub type Function = (&'static str, fn(&Tensor) -> Result<Tensor>, fn(f64) -> f64);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

/// Functions of one number that are defined everywhere.
pub const EVERYWHERE: &[Function] = &[
    ("exp", |t| t.exp(), f64::exp),
    ("exp2", |t| t.exp2(), f64::exp2),
    ("sin", |t| t.sin(), f64::sin),
    ("cos", |t| t.cos(), f64::cos),
    ("tanh", |t| t.tanh(), f64::tanh),
    ("sigmoid", |t| t.sigmoid(), sigmoid),
    ("silu", |t| t.silu(), |x| x * sigmoid(x)),
    ("softplus", |t| t.softplus(), |x| x.exp().ln_1p()),
    ("gelu", |t| t.gelu(), gelu),
    ("neg", |t| t.neg(), |x| -x),
    ("abs", |t| t.abs(), f64::abs),
    ("relu", |t| t.relu(), |x| x.max(0.0)),
    ("square", |t| t.square(), |x| x * x),
    ("pow 0", |t| t.pow(0), |_| 1.0),
    ("pow 2", |t| t.pow(2), |x| x * x),
    ("pow 3", |t| t.pow(3), |x| x.powi(3)),
    ("pow 7", |t| t.pow(7), |x| x.powi(7)),
    ("add", |t| t.add(2.5), |x| x + 2.5),
    ("sub", |t| t.sub(2.5), |x| x - 2.5),
    ("mul", |t| t.mul(2.5), |x| x * 2.5),
    ("div", |t| t.div(2.5), |x| x / 2.5),
    ("maximum", |t| t.maximum(0.25), |x| x.max(0.25)),
    ("minimum", |t| t.minimum(0.25), |x| x.min(0.25)),
    (
        "where",
        |t| t.gt(0.5)?.where_(t.mul(2)?, t.add(1)?),
        |x| if x > 0.5 { 2.0 * x } else { x + 1.0 },
    ),
];

/// Functions of one positive number.
pub const POSITIVE: &[Function] = &[
    ("log", |t| t.log(), f64::ln),
    ("log2", |t| t.log2(), f64::log2),
    ("sqrt", |t| t.sqrt(), f64::sqrt),
    ("reciprocal", |t| t.reciprocal(), f64::recip),
    ("pow -1", |t| t.pow(-1), f64::recip),
    ("pow -4", |t| t.pow(-4), |x| x.powi(-4)),
    ("pow 0.5", |t| t.pow(0.5), f64::sqrt),
    ("pow -0.5", |t| t.pow(-0.5), |x| x.sqrt().recip()),
    ("pow 2.5", |t| t.pow(2.5), |x| x.powf(2.5)),
    ("pow -0.3", |t| t.pow(-0.3), |x| x.powf(-0.3)),
];
