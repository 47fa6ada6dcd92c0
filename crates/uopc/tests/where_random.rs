//! Random graphs with garbage behind selections: the gradients are those of the same graph with tame
//! numbers in the garbage's place, to the last bit, at orders 1 and 2.
//!
//! The garbage is in the data: infinities and NaNs, and arguments for which functions or their
//! derivatives are infinite. Two sets of numbers, with and without it, go through one graph.

mod oracle;

use oracle::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::autodiff::gradient;
use uopc::interp::Array;
use uopc::ir::composite::cat;
use uopc::ir::op::ReduceOp;
use uopc::ir::visit::Graph;
use uopc::ir::{DType, UOp};

/// How many graphs are tried: 500, and 5,000 where UOPC_DEEP is set.
fn graphs() -> u64 {
    if std::env::var_os("UOPC_DEEP").is_some() {
        5000
    } else {
        500
    }
}

/// What nothing taken may depend on.
const GARBAGE: &[f64] = &[
    0.0,
    -0.0,
    -1.0,
    1e4,
    -1e4,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

struct Generator {
    rng: SmallRng,
    /// Rows and columns of every node in the pool.
    dims: [usize; 2],
    /// The inputs, which are the targets, with tame numbers and with garbage.
    inputs: Vec<UOp>,
    tame: Vec<Vec<f64>>,
    wild: Vec<Vec<f64>>,
    /// Nodes with elements from -1 to 1 or a little beyond, the same for both sets of numbers.
    pool: Vec<UOp>,
}

impl Generator {
    fn new(seed: u64) -> Generator {
        let mut rng = SmallRng::seed_from_u64(seed);
        let dims = [rng.random_range(2..5), rng.random_range(2..5)];
        let mut g = Generator {
            rng,
            dims,
            inputs: Vec::new(),
            tame: Vec::new(),
            wild: Vec::new(),
            pool: Vec::new(),
        };
        for _ in 0..2 {
            let leaf = g.input(dims, |g, _, _| {
                let x = g.rng.random_range(-1.0..1.0);
                (x, x)
            });
            g.pool.push(leaf);
        }
        g
    }

    /// An input whose elements are given by row and column: tame, and with garbage.
    fn input(
        &mut self,
        dims: [usize; 2],
        mut of: impl FnMut(&mut Generator, usize, usize) -> (f64, f64),
    ) -> UOp {
        let mut pairs = Vec::new();
        for row in 0..dims[0] {
            for column in 0..dims[1] {
                pairs.push(of(self, row, column));
            }
        }
        let node = input(self.inputs.len() as u32, &dims);
        self.inputs.push(node.clone());
        self.tame.push(pairs.iter().map(|p| p.0).collect());
        self.wild.push(pairs.iter().map(|p| p.1).collect());
        node
    }

    /// Numbers of which every function below is finite, or garbage where `counts` is false.
    fn trap(&mut self, dims: [usize; 2], counts: &[Vec<bool>]) -> UOp {
        self.input(dims, |g, row, column| {
            let tame = g.rng.random_range(0.5..2.0);
            let garbage = GARBAGE[g.rng.random_range(0..GARBAGE.len())];
            (tame, if counts[row][column] { tame } else { garbage })
        })
    }

    /// A bool that is true where `counts` is, made from data.
    fn condition(&mut self, counts: &[Vec<bool>]) -> UOp {
        let dims = [counts.len(), counts[0].len()];
        let node = self.input(dims, |_, row, column| {
            let sign = if counts[row][column] { 1.0 } else { -1.0 };
            (sign, sign)
        });
        number(&node, 0.0).cmplt(&node).unwrap()
    }

    fn counts(&mut self, dims: [usize; 2]) -> Vec<Vec<bool>> {
        let mut row = |_| (0..dims[1]).map(|_| self.rng.random_bool(0.5)).collect();
        (0..dims[0]).map(&mut row).collect()
    }

    /// Whole rows count or do not; at least one does not.
    fn row_counts(&mut self) -> Vec<bool> {
        let out = self.rng.random_range(0..self.dims[0]);
        (0..self.dims[0])
            .map(|row| row != out && self.rng.random_bool(0.5))
            .collect()
    }

    fn any(&mut self) -> UOp {
        self.pool[self.rng.random_range(0..self.pool.len())].clone()
    }

    /// A function of z that is finite for tame z, and a node of its shape besides.
    fn function(&mut self, z: &UOp, v: &UOp) -> UOp {
        let t = match self.rng.random_range(0..10) {
            0 => z.sqrt(),
            1 => z.log2(),
            2 => z.exp(),
            3 => z.recip(),
            4 => z.exp2(),
            5 => z.sin(),
            6 => z.sqrt().unwrap().recip(),
            7 => z.log2().unwrap().mul(&number(z, 0.3)).unwrap().exp2(),
            8 => z.mul(z).unwrap().div(z),
            _ => z.recip().unwrap().exp(),
        }
        .unwrap();
        match self.rng.random_range(0..8) {
            0 => &t * v,
            1 => v.div(z).unwrap(),
            2 => t.mulacc(v, z).unwrap(),
            3 => &(&t * &t) + v,
            4 => t.sin().unwrap().exp().unwrap(),
            5 => self.there_and_back(&t, |t| t.mul(t).unwrap()),
            6 => v.div(&t).unwrap(),
            _ => t,
        }
    }

    /// An elementwise function of a node in another layout.
    fn there_and_back(&mut self, x: &UOp, f: impl Fn(&UOp) -> UOp) -> UOp {
        let dims = x.shape().to_vec();
        if self.rng.random_bool(0.5) {
            let flat = x.reshape(&[dims[0] * dims[1]]).unwrap();
            f(&flat).reshape(&dims).unwrap()
        } else {
            f(&x.permute(&[1, 0]).unwrap()).permute(&[1, 0]).unwrap()
        }
    }

    fn column(&self, x: &UOp, op: ReduceOp) -> UOp {
        let rows = x.shape()[0];
        x.reduce(op, 1).unwrap().reshape(&[rows, 1]).unwrap()
    }

    /// A selection with something behind it that it does not take.
    fn selection(&mut self) -> UOp {
        let (dims, v, w) = (self.dims, self.any(), self.any());
        match self.rng.random_range(0..8) {
            // Element by element.
            0 | 1 => {
                let counts = self.counts(dims);
                let z = self.trap(dims, &counts);
                let t = self.function(&z, &v);
                let c = self.condition(&counts);
                if self.rng.random_bool(0.5) {
                    c.where_(&t, &w).unwrap()
                } else {
                    c.logical_not().unwrap().where_(&w, &t).unwrap()
                }
            }
            // Row by row, through a reduction.
            2 | 3 => {
                let rows = self.row_counts();
                let counts: Vec<Vec<bool>> = rows.iter().map(|&r| vec![r; dims[1]]).collect();
                let z = self.trap(dims, &counts);
                let column: Vec<Vec<bool>> = rows.iter().map(|&r| vec![r]).collect();
                let c = self.condition(&column);
                let inner = match self.rng.random_range(0..5) {
                    0 => self.column(&(&z * &z), ReduceOp::Add).sqrt().unwrap(),
                    1 => self.column(&z.exp().unwrap(), ReduceOp::Add),
                    2 => {
                        let t = self.function(&z, &v);
                        self.column(&t, ReduceOp::Add)
                    }
                    3 => self.column(&z, ReduceOp::Mul),
                    _ => self.column(&z.sqrt().unwrap(), ReduceOp::Max),
                };
                let repeated = |u: &UOp| u.expand(&dims).unwrap();
                if self.rng.random_bool(0.5) {
                    // Taken as a column, then repeated.
                    let value = c.where_(&inner, &number(&inner, 0.5)).unwrap();
                    &repeated(&value) + &w
                } else {
                    let t = z.div(&repeated(&inner)).unwrap();
                    repeated(&c).where_(&(&t * &v), &w).unwrap()
                }
            }
            // A row that counts nowhere, though the condition is one of elements.
            4 => {
                let rows = self.row_counts();
                let z = self.trap(
                    dims,
                    &rows.iter().map(|&r| vec![r; dims[1]]).collect::<Vec<_>>(),
                );
                let n = self.column(&(&z * &z), ReduceOp::Add).sqrt().unwrap();
                let mut counts = self.counts(dims);
                for (row, counts) in rows.iter().zip(&mut counts) {
                    counts.iter_mut().for_each(|c| *c &= row);
                }
                let c = self.condition(&counts);
                let t = v.div(&n.expand(&dims).unwrap()).unwrap();
                c.where_(&t, &w).unwrap()
            }
            // What is cut off.
            5 => {
                let taller = [dims[0] + 1, dims[1]];
                let first = self.rng.random_bool(0.5);
                let outside = if first { 0 } else { dims[0] };
                let counts: Vec<Vec<bool>> = (0..taller[0])
                    .map(|row| vec![row != outside; dims[1]])
                    .collect();
                let z = self.trap(taller, &counts);
                let more = v.shrink(&[(0, 1), (0, dims[1])]).unwrap();
                let v = cat(&[v, more], 0).unwrap();
                let t = self.function(&z, &v);
                let begin = usize::from(first);
                t.shrink(&[(begin, begin + dims[0]), (0, dims[1])]).unwrap()
            }
            // What is less than the maximum, and a part of a stack.
            6 => {
                let z = self.lesser();
                let t = self.least(&z);
                t.maximum(&v).unwrap()
            }
            _ => {
                let counts = vec![vec![false; dims[1]]; dims[0]];
                let z = self.trap(dims, &counts);
                let t = self.function(&z, &v);
                let parts = UOp::stack(&[t, &v * &w]).unwrap();
                parts.index(&[UOp::int(1, DType::I32)]).unwrap()
            }
        }
    }

    /// Numbers of which [`Self::least`] is finite but below all of the pool, or -inf.
    fn lesser(&mut self) -> UOp {
        self.input(self.dims, |g, _, _| match g.rng.random_range(0..3) {
            0 => (1e-3, 0.0),
            _ => {
                let x = g.rng.random_range(0.5..2.0);
                (x, x)
            }
        })
    }

    fn least(&mut self, z: &UOp) -> UOp {
        match self.rng.random_range(0..3) {
            0 => z.log2().unwrap(),
            1 => -&z.recip().unwrap(),
            _ => -&z.recip().unwrap().sqrt().unwrap(),
        }
    }

    /// Something tame.
    fn ordinary(&mut self) -> UOp {
        let (a, b) = (self.any(), self.any());
        let [m, n] = self.dims;
        match self.rng.random_range(0..6) {
            0 => &a * &b,
            1 => &a + &b,
            2 => a.maximum(&b).unwrap(),
            3 => self.there_and_back(&a, |t| t.sin().unwrap()),
            // A product of matrices, a @ b^T @ c.
            4 => {
                let c = self.any();
                let ae = a.reshape(&[m, 1, n]).unwrap().expand(&[m, m, n]).unwrap();
                let be = b.reshape(&[1, m, n]).unwrap().expand(&[m, m, n]).unwrap();
                let ab = ae.mul(&be).unwrap().reduce(ReduceOp::Add, 1).unwrap();
                let ce = c.permute(&[1, 0]).unwrap();
                let ce = ce.reshape(&[1, n, m]).unwrap().expand(&[m, n, m]).unwrap();
                let ab = ab.reshape(&[m, 1, m]).unwrap().expand(&[m, n, m]).unwrap();
                ab.mul(&ce).unwrap().reduce(ReduceOp::Add, 1).unwrap()
            }
            _ => {
                let top = self.column(&a, ReduceOp::Max);
                &top.expand(&self.dims).unwrap() * &b
            }
        }
    }
}

/// The gradients of both orders, as nodes.
fn orders(g: &mut Generator) -> [Vec<UOp>; 2] {
    for _ in 0..g.rng.random_range(3..9) {
        let node = if g.rng.random_bool(0.5) {
            g.selection()
        } else {
            g.ordinary()
        };
        // Held near 0, so that no chain of ops overflows by itself.
        g.pool.push(node.sin().unwrap());
    }
    let loss = g.pool.iter().skip(2).map(sum).reduce(|a, b| &a + &b);
    let loss = loss.expect("something was added to the pool");
    let first = gradient(&loss, &g.inputs).unwrap();
    let weighted = first.iter().enumerate().map(|(k, d)| {
        let weight = number(d, 0.5 + k as f64);
        sum(&(d * &weight))
    });
    let total = weighted.reduce(|a, b| &a + &b).expect("there are inputs");
    let second = gradient(&total, &g.inputs).unwrap();
    [first, second]
}

#[test]
fn gradients_do_not_depend_on_what_is_not_taken() {
    let mut garbage_seen = 0;
    for seed in 0..graphs() {
        let mut g = Generator::new(seed);
        let orders = orders(&mut g);
        let tame: Vec<&[f64]> = g.tame.iter().map(Vec::as_slice).collect();
        let wild: Vec<&[f64]> = g.wild.iter().map(Vec::as_slice).collect();
        garbage_seen += forward_garbage(&orders[0], &wild);
        for (order, roots) in orders.iter().enumerate() {
            let (tame, wild) = (arrays(roots, &tame), arrays(roots, &wild));
            for (k, (tame, wild)) in tame.iter().zip(&wild).enumerate() {
                let finite = tame.to_f64().iter().all(|x| x.is_finite());
                let order = order + 1;
                assert!(finite, "seed {seed}, order {order}, input {k}: {tame:?}");
                let difference = wild.difference(tame);
                assert_eq!(difference, None, "seed {seed}, order {order}, input {k}");
            }
        }
    }
    // The graphs do hold what the test is about.
    assert!(garbage_seen as u64 > graphs() / 2, "{garbage_seen}");
}

/// 1 if some value between the inputs and the gradients is NaN or infinite.
fn forward_garbage(roots: &[UOp], slots: &[&[f64]]) -> usize {
    let floats: Vec<UOp> = Graph::new(roots)
        .nodes
        .into_iter()
        .filter(|u| u.dtype().is_float() && !u.src().is_empty())
        .collect();
    let values = arrays(&floats, slots);
    let garbage = |a: &Array| a.to_f64().iter().any(|x| !x.is_finite());
    usize::from(values.iter().any(garbage))
}
