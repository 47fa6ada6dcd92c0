//! Parts of models that the library does not have yet, written from plain tensors.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use uopc::{DType, Result, Tensor};

/// Two-dimensional convolution without padding: images (B, C, H, W), weights (O, C, KH, KW).
///
/// It is one EXPAND-MUL-REDUCE over (C, KH, KW) of a strided view of the images, which the compiler
/// recognises as a contraction.
///
/// # Errors
/// When the shapes do not fit.
pub fn conv2d(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (b, c) = (x.shape()[0], x.shape()[1]);
    let (o, kh, kw) = (weight.shape()[0], weight.shape()[2], weight.shape()[3]);
    let view = windows(&windows(x, 2, kh)?, 4, kw)?;
    // (B, C, KH, OH, KW, OW) to (B, 1, C, KH, KW, OH, OW).
    let (oh, ow) = (view.shape()[3], view.shape()[5]);
    let view = view.permute([0, 1, 2, 4, 3, 5])?;
    let view = view.reshape([b, 1, c, kh, kw, oh, ow])?;
    let weight = weight.reshape([1, o, c, kh, kw, 1, 1])?;
    view.mul(&weight)?.sum([2, 3, 4])
}

/// An axis of extent n as two, (k, n - k + 1), whose element (i, j) is element i + j.
///
/// The axis is repeated k + 1 times and read in rows of n + 1, so that each row begins one later
/// than the row above it. Nothing is padded: it stays a view.
fn windows(x: &Tensor, axis: usize, k: usize) -> Result<Tensor> {
    let n = x.shape()[axis];
    let (before, after) = (&x.shape()[..axis], &x.shape()[axis + 1..]);
    let around = |middle: &[usize]| [before, middle, after].concat();
    let whole = |middle: &[usize]| -> Vec<(usize, usize)> {
        around(middle).iter().map(|&d| (0, d)).collect()
    };
    x.reshape(around(&[1, n]))?
        .expand(around(&[k + 1, n]))?
        .reshape(around(&[(k + 1) * n]))?
        .shrink(whole(&[k * (n + 1)]))?
        .reshape(around(&[k, n + 1]))?
        .shrink(whole(&[k, n - k + 1]))
}

/// The largest element of each square of 2 by 2: (B, C, H, W), H and W even.
///
/// # Errors
/// When the shape does not fit.
pub fn max_pool2(x: &Tensor) -> Result<Tensor> {
    let [b, c, h, w] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
    x.reshape([b, c, h / 2, 2, w / 2, 2])?.max([3, 5])
}

/// Rows with mean 0 and variance 1, times `weight`, plus `bias`.
///
/// # Errors
/// When the shapes do not fit.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let centred = x.sub(&x.mean_keepdim(-1)?)?;
    let variance = centred.square()?.mean_keepdim(-1)?;
    let scale = variance.add(1e-5)?.sqrt()?.reciprocal()?;
    centred.mul(&scale)?.mul(weight)?.add(bias)
}

/// erf(x)/x as a quotient of polynomials in x^2 on [0, 3.9], ascending: least squares with weights
/// that level the largest relative error, which is 5e-8. In f32 erf is off by at most 4e-7.
const ERF_ABOVE: [f64; 7] = [
    1.128_379_112,
    1.981_801_093e-1,
    5.034_464_619e-2,
    3.632_204_184e-3,
    1.405_978_386e-4,
    -1.963_213_461e-6,
    2.014_848_665e-8,
];
const ERF_BELOW: [f64; 5] = [
    1.0,
    5.089_642_943e-1,
    1.142_800_118e-1,
    1.420_769_161e-2,
    9.405_637_701e-4,
];

/// The error function. Its derivative is 2/sqrt(pi) exp(-x^2), not that of the quotient, whose many
/// steps the gradient would read again.
///
/// # Errors
/// None for a well-formed tensor of floats.
pub fn erf(x: &Tensor) -> Result<Tensor> {
    // Beyond 3.9 it differs from 1 by less than f32 can tell.
    let near = x.detach()?.minimum(3.9)?.maximum(-3.9)?;
    let square = near.square()?;
    let polynomial = |coefficients: &[f64]| {
        let (last, others) = coefficients.split_last().expect("there are coefficients");
        let mut value = square.mul(*last)?;
        for (k, coefficient) in others.iter().rev().enumerate() {
            if k > 0 {
                value = value.mul(&square)?;
            }
            value = value.add(*coefficient)?;
        }
        Ok(value)
    };
    let above: Result<Tensor> = polynomial(&ERF_ABOVE);
    let value = near.mul(&above?)?.div(&polynomial(&ERF_BELOW)?)?;
    let slope = x.detach()?.square()?.neg()?.exp()?.mul(FRAC_2_SQRT_PI)?;
    // What is added is 0, and its derivative is the slope.
    let line = x.mul(&slope)?;
    value.add(&line.sub(&line.detach()?)?)
}

/// x times the chance that a normal variable is below x.
///
/// # Errors
/// None for a well-formed tensor of floats.
pub fn gelu(x: &Tensor) -> Result<Tensor> {
    let share = erf(&x.mul(FRAC_1_SQRT_2)?)?;
    x.mul(0.5)?.mul(&share.add(1.0)?)
}

/// Softmax attention in which position i sees those up to i: three tensors (..., length, size).
///
/// # Errors
/// When the shapes do not fit.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (length, size) = (q.shape()[q.rank() - 2], q.shape()[q.rank() - 1]);
    let scores = q.matmul(&k.transpose()?)?.mul(1.0 / (size as f64).sqrt())?;
    let places = Tensor::arange_as(DType::I32, 0, length, 1)?;
    let later = places
        .reshape([length, 1])?
        .lt(&places.reshape([1, length])?)?;
    let scores = later.where_(f32::NEG_INFINITY, &scores)?;
    scores.softmax(-1)?.matmul(v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::alone;

    #[test]
    fn convolution_is_that_of_its_definition() {
        alone(|| {
            let (b, c, h, w, o, k) = (2, 3, 5, 6, 4, 3);
            let numbers = |n: usize| {
                (0..n)
                    .map(|i| ((i * 7) % 11) as f32 - 5.0)
                    .collect::<Vec<_>>()
            };
            let (images, weights) = (numbers(b * c * h * w), numbers(o * c * k * k));
            let x = Tensor::from_slice(&images, [b, c, h, w]).unwrap();
            let y = conv2d(&x, &Tensor::from_slice(&weights, [o, c, k, k]).unwrap()).unwrap();
            assert_eq!(y.shape()[..], [b, o, h - k + 1, w - k + 1]);
            let mut expected = Vec::new();
            for (bi, oi) in (0..b).flat_map(|bi| (0..o).map(move |oi| (bi, oi))) {
                for (i, j) in (0..h - k + 1).flat_map(|i| (0..w - k + 1).map(move |j| (i, j))) {
                    let mut sum = 0.0;
                    for ci in 0..c {
                        for (di, dj) in (0..k).flat_map(|di| (0..k).map(move |dj| (di, dj))) {
                            let pixel = images[((bi * c + ci) * h + i + di) * w + j + dj];
                            sum += pixel * weights[((oi * c + ci) * k + di) * k + dj];
                        }
                    }
                    expected.push(sum);
                }
            }
            // Small integers: every sum is exact.
            assert_eq!(y.to_vec::<f32>().unwrap(), expected);
        });
    }

    #[test]
    fn erf_is_close() {
        alone(|| {
            let x = [-5.0f32, -2.0, -0.5, 0.0, 0.1, 1.0, 3.0, 4.5];
            let known = [
                -1.0,
                -0.995_322_3,
                -0.520_499_9,
                0.0,
                0.112_462_916,
                0.842_700_8,
                0.999_977_9,
                1.0,
            ];
            let y = erf(&Tensor::from(x)).unwrap().to_vec::<f32>().unwrap();
            for (y, known) in y.iter().zip(known) {
                assert!((y - known).abs() < 1e-6, "{y} {known}");
            }
        });
    }

    #[test]
    fn the_slope_of_erf_is_its_derivative() {
        alone(|| {
            let x = Tensor::from([-1.5f32, 0.0, 0.5, 4.5])
                .requires_grad()
                .unwrap();
            erf(&x).unwrap().sum(..).unwrap().backward(&[&x]).unwrap();
            let slopes = x.grad().unwrap().to_vec::<f32>().unwrap();
            let at_zero = std::f32::consts::FRAC_2_SQRT_PI;
            let known = [0.118_930_29, at_zero, 0.878_782_6, 1.8086e-9];
            for (slope, known) in slopes.iter().zip(known) {
                assert!((slope - known).abs() < 1e-6, "{slope} {known}");
            }
        });
    }

    #[test]
    fn attention_looks_back_only() {
        alone(|| {
            let q = Tensor::zeros([3, 2]).unwrap();
            let v = Tensor::from([[1.0f32, 0.0], [3.0, 0.0], [8.0, 3.0]]);
            let y = attention(&q, &q, &v).unwrap().to_vec::<f32>().unwrap();
            // Equal scores: means of the rows so far, whose weights are rounded.
            let means = [1.0, 0.0, 2.0, 0.0, 4.0, 1.0];
            for (y, mean) in y.iter().zip(means) {
                assert!((y - mean).abs() < 1e-6, "{y} {mean}");
            }
        });
    }

    #[test]
    fn pooling_takes_the_largest() {
        alone(|| {
            let x: Vec<f32> = (0..16).map(|k| k as f32).collect();
            let x = Tensor::from_slice(&x, [1, 1, 4, 4]).unwrap();
            let y = max_pool2(&x).unwrap().to_vec::<f32>().unwrap();
            assert_eq!(y, [5.0, 7.0, 13.0, 15.0]);
        });
    }
}
