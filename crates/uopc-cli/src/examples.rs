//! Graphs with names, for looking at what the compiler does: `uopc show softmax`.

use uopc::Result;
use uopc::autodiff::gradient;
use uopc::ir::op::ReduceOp;
use uopc::ir::{DType, UOp};

/// A graph with a name.
pub struct Example {
    /// What the user types.
    pub name: &'static str,
    /// What it computes.
    pub about: &'static str,
    /// Builds its roots.
    pub build: fn() -> Result<Vec<UOp>>,
}

/// All examples, simple ones first.
pub const EXAMPLES: &[Example] = &[
    Example {
        name: "grad-x",
        about: "the gradient of sum(x*y + x) by x, for vectors of 3",
        build: grad_x,
    },
    Example {
        name: "grad-shrink",
        about: "the gradient of sum(v[1:3]) by v, for a vector of 5: padding as a select",
        build: grad_shrink,
    },
    Example {
        name: "second-derivative",
        about: "the second derivative of sum(x*x*x), for a vector of 4",
        build: second_derivative,
    },
    Example {
        name: "softmax",
        about: "softmax over the rows of a 4x10 matrix: three kernels",
        build: softmax,
    },
    Example {
        name: "layer-norm",
        about: "the rows of a 4x32 matrix with mean 0 and variance 1",
        build: layer_norm,
    },
    Example {
        name: "matmul",
        about: "a matrix product, 8x16 by 16x4: expand, multiply, sum",
        build: matmul,
    },
    Example {
        name: "matmul-gradient",
        about: "both gradients of that product: two products, which no rule spells out",
        build: matmul_gradient,
    },
    Example {
        name: "mlp",
        about: "a network of two layers, 64-32-10, on a batch of 8",
        build: mlp,
    },
    Example {
        name: "mlp-gradient",
        about: "the mean square of its outputs, and the gradients of its weights",
        build: mlp_gradient,
    },
];

/// The example of that name.
pub fn find(name: &str) -> Option<&'static Example> {
    EXAMPLES.iter().find(|e| e.name == name)
}

fn slot(number: u32, n: usize) -> UOp {
    UOp::slot(number, DType::F32, n)
}

fn matrix(number: u32, rows: usize, columns: usize) -> Result<UOp> {
    slot(number, rows * columns).reshape(&[rows, columns])
}

fn sum(x: &UOp) -> Result<UOp> {
    x.reduce(ReduceOp::Add, x.shape().rank())
}

/// Each row of `x` combined to one number, and that repeated along the row.
fn along_rows(x: &UOp, op: ReduceOp) -> Result<UOp> {
    let shape = x.shape();
    x.reduce(op, 1)?.reshape(&[shape[0], 1])?.expand(shape)
}

/// `a @ b`: the sum over k of `a[i, k] * b[k, j]`.
fn product(a: &UOp, b: &UOp) -> Result<UOp> {
    let ([m, k], [_, n]) = ([a.shape()[0], a.shape()[1]], [b.shape()[0], b.shape()[1]]);
    let a = a.reshape(&[m, 1, k])?.expand(&[m, n, k])?;
    let b = b
        .permute(&[1, 0])?
        .reshape(&[1, n, k])?
        .expand(&[m, n, k])?;
    a.mul(&b)?.reduce(ReduceOp::Add, 1)
}

fn grad_x() -> Result<Vec<UOp>> {
    let (x, y) = (slot(0, 3), slot(1, 3));
    let loss = sum(&x.mul(&y)?.add(&x)?)?;
    gradient(&loss, &[x])
}

fn grad_shrink() -> Result<Vec<UOp>> {
    let v = slot(0, 5);
    let loss = sum(&v.shrink(&[(1, 3)])?)?;
    gradient(&loss, &[v])
}

fn second_derivative() -> Result<Vec<UOp>> {
    let x = slot(0, 4);
    let loss = sum(&x.mul(&x)?.mul(&x)?)?;
    let first = gradient(&loss, std::slice::from_ref(&x))?;
    gradient(&sum(&first[0])?, &[x])
}

fn softmax() -> Result<Vec<UOp>> {
    let x = matrix(0, 4, 10)?;
    let e = x.sub(&along_rows(&x, ReduceOp::Max)?)?.exp()?;
    Ok(vec![e.div(&along_rows(&e, ReduceOp::Add)?)?])
}

fn layer_norm() -> Result<Vec<UOp>> {
    let x = matrix(0, 4, 32)?;
    let mean = |x: &UOp| -> Result<UOp> { along_rows(x, ReduceOp::Add)?.div(&x.full_like(32.0)?) };
    let centred = x.sub(&mean(&x)?)?;
    let variance = mean(&centred.mul(&centred)?)?;
    let deviation = variance.add(&variance.full_like(1e-5)?)?.sqrt()?;
    Ok(vec![centred.div(&deviation)?])
}

fn matmul() -> Result<Vec<UOp>> {
    Ok(vec![product(&matrix(0, 8, 16)?, &matrix(1, 16, 4)?)?])
}

fn matmul_gradient() -> Result<Vec<UOp>> {
    let (a, b, g) = (matrix(0, 8, 16)?, matrix(1, 16, 4)?, matrix(2, 8, 4)?);
    gradient(&sum(&product(&a, &b)?.mul(&g)?)?, &[a, b])
}

/// The outputs of the network and its four weights.
fn network() -> Result<(UOp, Vec<UOp>)> {
    let x = matrix(0, 8, 64)?;
    let weights = [
        matrix(1, 64, 32)?,
        slot(2, 32),
        matrix(3, 32, 10)?,
        slot(4, 10),
    ];
    let [w1, b1, w2, b2] = &weights;
    let add = |y: &UOp, b: &UOp| y.add(&b.reshape(&[1, y.shape()[1]])?.expand(y.shape())?);
    let h = add(&product(&x, w1)?, b1)?;
    let zero = h.full_like(0.0)?;
    let h = zero.cmplt(&h)?.where_(&h, &zero)?;
    Ok((add(&product(&h, w2)?, b2)?, weights.to_vec()))
}

fn mlp() -> Result<Vec<UOp>> {
    Ok(vec![network()?.0])
}

fn mlp_gradient() -> Result<Vec<UOp>> {
    let (y, weights) = network()?;
    let loss = sum(&y.mul(&y)?)?;
    let loss = loss.div(&loss.full_like(80.0)?)?;
    let mut roots = vec![loss.clone()];
    roots.extend(gradient(&loss, &weights)?);
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_can_be_built() {
        for example in EXAMPLES {
            let roots = (example.build)().unwrap();
            assert!(!roots.is_empty(), "{}", example.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = EXAMPLES.iter().map(|e| e.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
