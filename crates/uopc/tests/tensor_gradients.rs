//! The gradients of every function of tensors, against difference quotients in f64.

mod tensors;

use std::sync::Arc;

use tensors::functions::{EVERYWHERE, POSITIVE};
use tensors::*;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::tensor::{Slice, with_engine};
use uopc::{DType, Result, Tensor};

/// Compares the gradient of a weighted sum of f's results with central difference quotients in
/// f64, elementwise, relative to gradients above 1.
#[track_caller]
fn check_gradient(
    name: &str,
    shape: &[usize],
    points: &[f64],
    f: &dyn Fn(&Tensor) -> Result<Tensor>,
) {
    let loss = |t: &Tensor| {
        let y = f(t).unwrap();
        let weights: Vec<f64> = (0..y.numel())
            .map(|k| 0.3 + ((k * 5) % 7) as f64 * 0.2)
            .collect();
        let weights = Tensor::from_slice(&weights, y.shape()).unwrap();
        y.mul(&weights).unwrap().sum(..).unwrap()
    };
    let x = Tensor::from_slice(points, shape)
        .unwrap()
        .requires_grad()
        .unwrap();
    loss(&x).backward(&[&x]).unwrap();
    let found = x.grad().unwrap();
    assert_eq!(found.shape(), x.shape(), "{name}");
    let found = found.to_vec::<f64>().unwrap();
    let eps = 1e-5;
    for k in 0..points.len() {
        let at = |delta: f64| {
            let mut moved = points.to_vec();
            moved[k] += delta;
            loss(&Tensor::from_slice(&moved, shape).unwrap())
                .item()
                .unwrap()
        };
        let quotient = (at(eps) - at(-eps)) / (2.0 * eps);
        let error = (found[k] - quotient).abs() / quotient.abs().max(1.0);
        assert!(
            error < 1e-6,
            "{name}, element {k}: {} is not {quotient}",
            found[k]
        );
    }
}

/// Runs gradient checks through the interpreter, which needs no compiler for each function.
fn interpreted(f: impl FnOnce()) {
    let settings = Settings {
        device: DeviceChoice::Interp,
        ..Settings::default()
    };
    with_engine(&Arc::new(Engine::new(settings).unwrap()), f);
}

const POINTS: [f64; 6] = [-1.7, -0.4, 0.3, 0.9, 1.6, 2.4];

#[test]
fn gradients_of_functions_of_one_number() {
    interpreted(|| {
        for (name, f, _) in EVERYWHERE {
            check_gradient(name, &[2, 3], &POINTS, f);
        }
        let positive = POINTS.map(f64::exp);
        for (name, f, _) in POSITIVE {
            check_gradient(name, &[2, 3], &positive, f);
        }
    });
}

#[test]
fn gradients_of_two_operands() {
    let _engine = own_engine();
    let other = || Tensor::from([[0.7, -1.3, 2.2]]);
    type Both = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>);
    let functions: [Both; 7] = [
        ("add", |a, b| a.add(b)),
        ("sub", |a, b| a.sub(b)),
        ("mul", |a, b| a.mul(b)),
        ("div", |a, b| a.div(b)),
        ("maximum", |a, b| a.maximum(b)),
        ("minimum", |a, b| a.minimum(b)),
        ("where", |a, b| a.lt(b)?.where_(a.mul(b)?, a.add(b)?)),
    ];
    interpreted(|| {
        for (name, f) in functions {
            // The operand under test is whole, then broadcast, on either side.
            check_gradient(name, &[2, 3], &POINTS, &|t| f(t, &other()));
            check_gradient(name, &[2, 3], &POINTS, &|t| f(&other(), t));
            let column = Tensor::from([[0.4], [1.1], [-0.6]]);
            check_gradient(name, &[1, 6], &POINTS, &|t| f(t, &column));
        }
    });
}

#[test]
fn gradients_of_reductions() {
    let _engine = own_engine();
    type Shaped = (&'static str, fn(&Tensor) -> Result<Tensor>);
    let functions: [Shaped; 14] = [
        ("sum", |t| t.sum(..)),
        ("sum 0", |t| t.sum(0)),
        ("sum keepdim", |t| t.sum_keepdim(-1)?.mul(t)),
        ("mean", |t| t.mean(0)?.square()),
        ("mean keepdim", |t| t.mean_keepdim([0, 1])?.mul(t)),
        ("var", |t| t.var(-1)),
        ("var keepdim", |t| t.var_keepdim(0)?.mul(t)),
        ("max", |t| t.max(-1)),
        ("max keepdim", |t| t.max_keepdim(0)?.mul(t)),
        ("min", |t| t.min(-1)),
        ("min keepdim", |t| t.min_keepdim(0)?.mul(t)),
        ("prod", |t| t.prod(-1)),
        ("prod keepdim", |t| t.prod_keepdim(0)?.mul(t)),
        ("max all", |t| t.max(..)?.mul(t)),
    ];
    interpreted(|| {
        for (name, f) in functions {
            check_gradient(name, &[2, 3], &POINTS, &f);
        }
        check_gradient("softmax", &[2, 3], &POINTS, &|t| t.softmax(-1));
        check_gradient("softmax 0", &[2, 3], &POINTS, &|t| t.softmax(0));
        check_gradient("log_softmax", &[2, 3], &POINTS, &|t| t.log_softmax(-1));
        let labels = Tensor::from([2i32, 0]);
        check_gradient("cross_entropy", &[2, 3], &POINTS, &|t| {
            t.cross_entropy(&labels)
        });
    });
}

#[test]
fn gradients_of_movement_and_parts() {
    let _engine = own_engine();
    type Shaped = (&'static str, fn(&Tensor) -> Result<Tensor>);
    let functions: [Shaped; 22] = [
        ("reshape", |t| t.reshape([3, 2])?.square()),
        ("permute", |t| {
            t.reshape([1, 2, 3])?.permute([1, 2, 0])?.square()
        }),
        ("transpose", |t| t.transpose()?.square()),
        ("swap_axes", |t| t.swap_axes(0, 1)?.square()),
        ("expand", |t| t.unsqueeze(1)?.expand([2, 4, 3])?.square()),
        ("pad", |t| t.pad([(1, 2), (0, 3)])?.square()),
        ("shrink", |t| t.shrink([(1, 2), (0, 2)])?.square()),
        ("flip", |t| t.flip([0, 1])?.square()),
        ("squeeze", |t| t.unsqueeze(0)?.squeeze(0)?.square()),
        ("cat", |t| Tensor::cat(&[t, &t.square()?, t], 1)),
        ("stack", |t| Tensor::stack(&[t, &t.square()?], 1)),
        ("stack_with", |t| t.stack_with(t.square()?)?.square()),
        ("get", |t| t.get(1)?.square()),
        ("slice", |t| t.slice((.., -1))?.square()),
        ("slice of ranges", |t| t.slice((1.., 1..3))?.square()),
        ("narrow", |t| t.narrow(1, 0..2)?.square()),
        ("steps of both axes", |t| {
            t.slice([Slice::Every(-1), Slice::Stepped(Some(2), None, -2)])?
                .square()
        }),
        ("a part replaced by itself", |t| {
            t.with_slice(
                [Slice::Rest, Slice::Every(-2)],
                t.slice((.., 1..))?.square()?,
            )?
            .square()
        }),
        ("a row replaced by a number of it", |t| {
            t.with_slice(0, t.slice((1, 1))?)?.square()
        }),
        ("every", |t| {
            t.reshape([6])?.slice(Slice::Every(-4))?.square()
        }),
        ("merged views", |t| {
            t.pad([(0, 1), (2, 0)])?
                .flip(1)?
                .slice((.., 1..4))?
                .transpose()?
                .square()
        }),
        ("cast", |t| t.mul(3)?.cast(DType::F64)?.square()),
    ];
    interpreted(|| {
        for (name, f) in functions {
            check_gradient(name, &[2, 3], &POINTS, &f);
        }
    });
}

#[test]
fn gradients_of_products() {
    let _engine = own_engine();
    let matrix = || Tensor::from([[0.5, -1.0], [2.0, 0.3], [-0.7, 1.1]]);
    interpreted(|| {
        check_gradient("left", &[2, 3], &POINTS, &|t| t.matmul(&matrix())?.square());
        let left = || matrix().transpose().unwrap();
        check_gradient("right", &[3, 2], &POINTS, &|t| left().matmul(t)?.square());
        check_gradient("both", &[2, 3], &POINTS, &|t| {
            t.matmul(&t.transpose()?)?.sin()
        });
        check_gradient("batch", &[2, 1, 3], &POINTS, &|t| {
            t.matmul(&matrix())?.square()
        });
        check_gradient("vector", &[6], &POINTS, &|t| t.matmul(t));
        let vector = || Tensor::from([0.5, -1.0, 2.0]);
        check_gradient("matrix and vector", &[2, 3], &POINTS, &|t| {
            t.matmul(&vector())?.square()
        });
        check_gradient("vector and matrix", &[3, 2], &POINTS, &|t| {
            vector().matmul(t)?.square()
        });
        check_gradient("vector and matrices", &[2, 3, 1], &POINTS, &|t| {
            t.slice(0)?.reshape([3])?.matmul(t)?.square()
        });
        check_gradient("matrices and vector", &[2, 1, 3], &POINTS, &|t| {
            t.matmul(&t.slice((1, 0))?)?.square()
        });
        let stack = || Tensor::stack(&[matrix(), matrix() * 2.0], 0).unwrap();
        check_gradient("batches", &[2, 3], &POINTS, &|t| {
            t.matmul(&stack())?.square()
        });
    });
}

/// Kinks: what the derivative is where there is none.
#[test]
fn derivatives_at_kinks() {
    let _engine = own_engine();
    let slopes = |x: &[f32], f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let t = parameter(x, &[x.len()]);
        f(&t).unwrap().sum(..).unwrap().backward(&[&t]).unwrap();
        gradient(&t)
    };
    assert_eq!(slopes(&[-2.0, 0.0, 3.0], &|t| t.abs()), [-1.0, 0.0, 1.0]);
    assert_eq!(slopes(&[-2.0, 0.0, 3.0], &|t| t.relu()), [0.0, 0.0, 1.0]);
    assert_eq!(
        slopes(&[-2.0, 0.0, 3.0], &|t| t.maximum(0.0)),
        [0.0, 0.5, 1.0]
    );
    assert_eq!(
        slopes(&[-2.0, 0.0, 3.0], &|t| t.minimum(0.0)),
        [1.0, 0.5, 0.0]
    );
    assert_eq!(slopes(&[1.0, 3.0, 3.0], &|t| t.max(..)), [0.0, 0.5, 0.5]);
    assert_eq!(slopes(&[2.0, 1.0, 1.0], &|t| t.min(..)), [0.0, 0.5, 0.5]);
    assert_eq!(slopes(&[0.0, 4.0], &|t| t.pow(1.5)), [0.0, 3.0]);
    assert_eq!(slopes(&[0.0], &|t| t.pow(0.5)), [f32::INFINITY]);
    assert_eq!(slopes(&[0.0, 2.0], &|t| t.prod(..)), [2.0, 0.0]);
}

/// Gradients are tensors like others, so they have gradients.
#[test]
fn gradients_of_gradients() {
    let _engine = own_engine();
    let x = parameter(&[1.0, 2.0, 3.0], &[3]);
    x.pow(3).unwrap().sum(..).unwrap().backward(&[&x]).unwrap();
    let first = x.grad().unwrap();
    assert_eq!(first.to_vec::<f32>().unwrap(), [3.0, 12.0, 27.0]);
    x.zero_grad();
    first.sum(..).unwrap().backward(&[&x]).unwrap();
    assert_eq!(gradient(&x), [6.0, 12.0, 18.0]);
}
