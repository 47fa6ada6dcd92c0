//! Index arithmetic collapses: what chains of movement ops lower to is simplified to an equal
//! expression, and to the plain index where the movements cancel.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustc_hash::FxHashMap;

use uopc::ir::op::Exec;
use uopc::ir::scalar::apply;
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Op, Scalar, UOp};
use uopc::rewrite::{Limits, rewrite};
use uopc::rules::scalar_rules;

/// A movement op and what it needs to be lowered.
#[derive(Clone, Debug)]
enum Move {
    Reshape { from: Vec<usize>, to: Vec<usize> },
    Permute(Vec<usize>),
    Shrink(Vec<(usize, usize)>),
    Expand { from: Vec<usize> },
}

fn int(value: usize) -> UOp {
    UOp::int(value as i64, DType::I32)
}

/// `sum(index * stride)` over the axes of a row-major array.
fn flat(indices: &[UOp], dims: &[usize]) -> UOp {
    let mut sum = int(0);
    let mut stride: usize = dims.iter().product();
    for (index, n) in indices.iter().zip(dims) {
        stride /= n;
        sum = &sum + &(index * &int(stride));
    }
    sum
}

/// The indices into the source of a movement, given those into its result.
fn lower(step: &Move, indices: &[UOp]) -> Vec<UOp> {
    match step {
        Move::Reshape { from, to } => {
            let position = flat(indices, to);
            let mut stride: usize = from.iter().product();
            let digit = |&n: &usize| {
                stride /= n;
                let quotient = position.floordiv(&int(stride)).unwrap();
                quotient.floormod(&int(n)).unwrap()
            };
            from.iter().map(digit).collect()
        }
        Move::Permute(order) => {
            let mut out = indices.to_vec();
            for (index, &axis) in indices.iter().zip(order) {
                out[axis] = index.clone();
            }
            out
        }
        Move::Shrink(window) => {
            let shifted = indices.iter().zip(window);
            shifted
                .map(|(index, &(begin, _))| index + &int(begin))
                .collect()
        }
        Move::Expand { from } => {
            let pairs = indices.iter().zip(from);
            pairs
                .map(|(i, &n)| if n == 1 { int(0) } else { i.clone() })
                .collect()
        }
    }
}

/// What undoes a reshape or permutation.
fn inverse(step: &Move) -> Move {
    match step {
        Move::Reshape { from, to } => Move::Reshape {
            from: to.clone(),
            to: from.clone(),
        },
        Move::Permute(order) => {
            let mut back = vec![0; order.len()];
            for (k, &p) in order.iter().enumerate() {
                back[p] = k;
            }
            Move::Permute(back)
        }
        Move::Shrink(_) | Move::Expand { .. } => panic!("these lose elements"),
    }
}

struct Chains {
    random: SmallRng,
}

impl Chains {
    fn shape(&mut self) -> Vec<usize> {
        let rank = self.random.random_range(1..=4);
        let extents = [1, 2, 2, 3, 4, 5, 6];
        (0..rank)
            .map(|_| extents[self.random.random_range(0..extents.len())])
            .collect()
    }

    /// Another shape of as many elements: prime factors dealt out to axes.
    fn reshaped(&mut self, from: &[usize]) -> Vec<usize> {
        let mut n: usize = from.iter().product();
        let mut to = vec![1; self.random.random_range(1..=4)];
        for prime in [2, 3, 5] {
            while n.is_multiple_of(prime) {
                n /= prime;
                let axis = self.random.random_range(0..to.len());
                to[axis] *= prime;
            }
        }
        assert_eq!(n, 1);
        to
    }

    fn step(&mut self, dims: &mut Vec<usize>, kinds: usize) -> Move {
        let from = dims.clone();
        match self.random.random_range(0..kinds) {
            0 => {
                *dims = self.reshaped(&from);
                Move::Reshape {
                    from,
                    to: dims.clone(),
                }
            }
            1 => {
                let mut order: Vec<usize> = (0..from.len()).collect();
                for k in (1..order.len()).rev() {
                    order.swap(k, self.random.random_range(0..=k));
                }
                *dims = order.iter().map(|&p| from[p]).collect();
                Move::Permute(order)
            }
            2 => {
                let mut cut = |&n: &usize| {
                    let begin = self.random.random_range(0..n);
                    (begin, self.random.random_range(begin + 1..=n))
                };
                // Prime factors above 5 do not arise from extents up to 6.
                let window: Vec<(usize, usize)> = from
                    .iter()
                    .map(|n| match cut(n) {
                        (b, e) if e - b < 7 => (b, e),
                        (b, _) => (b, b + 1),
                    })
                    .collect();
                *dims = window.iter().map(|(b, e)| e - b).collect();
                Move::Shrink(window)
            }
            _ => {
                let mut grow = |&n: &usize| {
                    if n == 1 {
                        self.random.random_range(1..=3)
                    } else {
                        n
                    }
                };
                *dims = from.iter().map(&mut grow).collect();
                Move::Expand { from }
            }
        }
    }
}

/// A loop counter for each axis; axes of extent 1 have no loop.
fn ranges(dims: &[usize]) -> Vec<UOp> {
    let counter = |(k, &n): (usize, &usize)| match n {
        1 => int(0),
        _ => UOp::range(&int(n), k as u32, Exec::Serial).unwrap(),
    };
    dims.iter().enumerate().map(counter).collect()
}

fn simplify(u: &UOp) -> UOp {
    let roots = std::slice::from_ref(u);
    let mut done = rewrite(roots, &scalar_rules(), &Limits::default(), None).unwrap();
    done.roots.remove(0)
}

/// The value of an expression over ranges.
fn evaluate(u: &UOp, counters: &FxHashMap<UOp, i64>) -> Scalar {
    let mut values: FxHashMap<UOp, Scalar> = FxHashMap::default();
    for node in toposort(std::slice::from_ref(u)) {
        let value = match node.op() {
            Op::Const(value) => *value,
            Op::Range { .. } => Scalar::from_i128(DType::I32, counters[&node] as i128),
            op => {
                let args: Vec<Scalar> = node.src().iter().map(|s| values[s]).collect();
                apply(op, node.dtype(), &args)
            }
        };
        values.insert(node, value);
    }
    values[u]
}

/// Compares two expressions at every point of the ranges.
fn assert_equal_everywhere(before: &UOp, after: &UOp, ranges: &[UOp], dims: &[usize], what: &str) {
    for point in 0..dims.iter().product::<usize>() {
        let mut counters = FxHashMap::default();
        let mut rest = point;
        for (range, &n) in ranges.iter().zip(dims).rev() {
            counters.insert(range.clone(), (rest % n) as i64);
            rest /= n;
        }
        let (a, b) = (evaluate(before, &counters), evaluate(after, &counters));
        assert_eq!(a, b, "{what} at {point}");
    }
}

fn divisions(u: &UOp) -> usize {
    let nodes = toposort(std::slice::from_ref(u));
    let divides = |n: &&UOp| matches!(n.op(), Op::FloorDiv | Op::FloorMod);
    nodes.iter().filter(divides).count()
}

#[test]
fn simplified_indices_are_equal_at_every_point() {
    let mut chains = Chains {
        random: SmallRng::seed_from_u64(1),
    };
    let (mut before, mut after) = (0, 0);
    for case in 0..400 {
        let start = chains.shape();
        let mut dims = start.clone();
        let steps = chains.random.random_range(1..=6);
        let chain: Vec<Move> = (0..steps).map(|_| chains.step(&mut dims, 4)).collect();
        let counters = ranges(&dims);
        let lowered = chain
            .iter()
            .rev()
            .fold(counters.clone(), |at, step| lower(step, &at));
        let index = flat(&lowered, &start);
        let simple = simplify(&index);
        before += divisions(&index);
        after += divisions(&simple);
        let what = format!("case {case}: {start:?} {chain:?}");
        assert_equal_everywhere(&index, &simple, &counters, &dims, &what);
    }
    assert!(after * 5 < before, "{after} of {before} divisions are left");
}

#[test]
fn movements_that_cancel_leave_the_plain_index() {
    let mut chains = Chains {
        random: SmallRng::seed_from_u64(2),
    };
    for case in 0..400 {
        let start = chains.shape();
        let mut dims = start.clone();
        let steps = chains.random.random_range(1..=4);
        let there: Vec<Move> = (0..steps).map(|_| chains.step(&mut dims, 2)).collect();
        let back = there.iter().rev().map(inverse);
        let chain: Vec<Move> = there.iter().cloned().chain(back).collect();
        let counters = ranges(&start);
        let lowered = chain
            .iter()
            .rev()
            .fold(counters.clone(), |at, step| lower(step, &at));
        let simple = simplify(&flat(&lowered, &start));
        let what = format!("case {case}: {start:?} {chain:?}");
        assert_eq!(divisions(&simple), 0, "{what}");
        assert_equal_everywhere(&flat(&counters, &start), &simple, &counters, &start, &what);
        assert_eq!(simple, simplify(&flat(&counters, &start)), "{what}");
    }
}
