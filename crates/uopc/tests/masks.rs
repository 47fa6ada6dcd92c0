//! What masks cost: nothing where nothing selects, one select where one does, and no computation
//! where shapes alone decide what was taken.

mod oracle;

use std::slice::from_ref;

use oracle::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::autodiff::gradient;
use uopc::ir::composite::{cat, flip, pad};
use uopc::ir::op::ReduceOp;
use uopc::ir::visit::toposort;
use uopc::ir::{DType, UOp};

/// Something whose rule turns zeros into NaN where its argument is not positive.
fn fragile(x: &UOp) -> UOp {
    x.sqrt().unwrap()
}

/// The nodes that a gradient has and its loss has not.
fn new_nodes(loss: &UOp, targets: &[UOp]) -> Vec<UOp> {
    let old = toposort(from_ref(loss));
    let mut new = toposort(&gradient(loss, targets).unwrap());
    new.retain(|u| !old.contains(u));
    new
}

fn bools(nodes: &[UOp]) -> usize {
    nodes.iter().filter(|u| u.dtype() == DType::Bool).count()
}

fn selects(nodes: &[UOp]) -> usize {
    nodes
        .iter()
        .filter(|u| u.op().mnemonic() == "where")
        .count()
}

/// Windows of k neighbours along the only axis, `step` apart, as columns: (i, j) is x[i + j * step].
fn windows(x: &UOp, k: usize, step: usize) -> UOp {
    let n = x.shape()[0];
    let count = (n - k) / step + 1;
    // A table with rows one longer than x: each begins one place later than that above.
    let copies = x.reshape(&[1, n]).unwrap().expand(&[k + 1, n]).unwrap();
    let flat = copies.reshape(&[(k + 1) * n]).unwrap();
    let flat = flat.shrink(&[(0, k * (n + 1))]).unwrap();
    let table = flat.reshape(&[k, n + 1]).unwrap();
    let steps = table.shrink(&[(0, k), (0, count * step)]).unwrap();
    let steps = steps.reshape(&[k, count, step]).unwrap();
    let first = steps.shrink(&[(0, k), (0, count), (0, 1)]).unwrap();
    first.reshape(&[k, count]).unwrap()
}

#[test]
fn padding_joining_and_covering_windows_need_no_mask() {
    let x = input(0, &[12]);
    let square = input(0, &[3, 4]);
    let half = |begin: usize| fragile(&x).shrink(&[(begin, begin + 6)]).unwrap();
    let cases = [
        ("pad", pad(&fragile(&x), &[(3, 9)]).unwrap()),
        (
            "pad both",
            pad(&fragile(&square), &[(1, 2), (5, 0)]).unwrap(),
        ),
        ("cat", cat(&[fragile(&x), x.clone()], 0).unwrap()),
        ("flip", flip(&fragile(&square), &[0, 1]).unwrap()),
        ("windows", windows(&fragile(&x), 3, 1)),
        ("windows apart", windows(&fragile(&x), 4, 2)),
        ("turned halves", cat(&[-&half(6), half(0)], 0).unwrap()),
        ("halves", &half(0) * &half(6)),
    ];
    for (name, u) in cases {
        let loss = sum(&(&u * &u));
        let target = if name.contains("both") || name == "flip" {
            &square
        } else {
            &x
        };
        let new = new_nodes(&loss, from_ref(target));
        assert_eq!((bools(&new), selects(&new)), (0, 0), "{name}");
    }
}

#[test]
fn what_windows_leave_out_is_masked() {
    // Windows of 2, 3 apart: every third element is in none.
    let x = input(0, &[11]);
    let loss = sum(&windows(&fragile(&x), 2, 3));
    let of = |read: f64, unread: f64| -> Vec<f64> {
        (0..11)
            .map(|k| if k % 3 == 2 { unread } else { read })
            .collect()
    };
    assert_eq!(gradient_values(&loss, &x, &[&of(4.0, 0.0)]), of(0.25, 0.0));
    assert!(bools(&new_nodes(&loss, from_ref(&x))) > 0);
}

#[test]
fn a_relu_costs_one_select_and_both_sides_of_a_condition_cost_one() {
    let x = input(0, &[4]);
    let zero = number(&x, 0.0);
    let positive = zero.cmplt(&x).unwrap();
    let relu = positive.where_(&x, &zero).unwrap();
    let new = new_nodes(&sum(&relu), from_ref(&x));
    assert_eq!((bools(&new), selects(&new)), (0, 1));
    // Behind the relu something fragile: one select still.
    let loss = sum(&positive.where_(&fragile(&x), &zero).unwrap());
    let new = new_nodes(&loss, from_ref(&x));
    assert_eq!((bools(&new), selects(&new)), (0, 1));
    // Both sides read x.
    let loss = sum(&positive.where_(&fragile(&x), &x.exp().unwrap()).unwrap());
    let new = new_nodes(&loss, from_ref(&x));
    assert_eq!((bools(&new), selects(&new)), (0, 1));
    assert!(new.iter().all(|u| u.op().mnemonic() != "add"));
}

#[test]
fn a_branch_that_can_never_be_taken_sends_nothing() {
    let x = input(0, &[4]);
    let c = number(&x, 1.0).cmplt(&x).unwrap();
    let never = c.where_(&fragile(&x), &x.exp().unwrap()).unwrap();
    let loss = sum(&c.logical_not().unwrap().where_(&never, &x).unwrap());
    let found = gradient(&loss, from_ref(&x)).unwrap();
    assert_eq!(count_op(&found, "sqrt"), 0);
    assert_eq!(
        value(&found[0], &[&[0.0, 1.0, 2.0, -1.0]])[2..],
        [1.0, (-1f64).exp()]
    );
}

/// The condition of one-hot rows is in one place at most, which a comparison tells and no search.
#[test]
fn one_hot_rows_are_not_searched() {
    let (rows, n) = (3, 5);
    let logits = input(0, &[rows, n]);
    let labels = UOp::slot(1, DType::I32, rows).reshape(&[rows, 1]).unwrap();
    let along = |u: &UOp| u.expand(&[rows, n]).unwrap();
    let places = UOp::iota(n, DType::I32).unwrap().reshape(&[1, n]).unwrap();
    let hot = along(&labels).eq(&along(&places)).unwrap();
    let total = logits.exp().unwrap().reduce(ReduceOp::Add, 1).unwrap();
    let log = total.reshape(&[rows, 1]).unwrap().log2().unwrap();
    let score = logits.sub(&along(&log)).unwrap();
    let loss = sum(&hot.where_(&score, &number(&score, 0.0)).unwrap());
    let new = new_nodes(&loss, from_ref(&logits));
    let searched = |u: &&UOp| u.dtype() == DType::Bool && u.op().mnemonic() == "reduce";
    assert_eq!(new.iter().filter(searched).count(), 0);
    // The second row has no place, and its logits overflow.
    let at = [
        0.0, 1.0, 2.0, 3.0, 4.0, 1e4, 0.0, 0.0, 0.0, 1e4, 1.0, 1.0, 1.0, 1.0, 1.0,
    ];
    for outside in [-1.0, 5.0] {
        let found = gradient_values(&loss, &logits, &[&at, &[1.0, outside, 4.0]]);
        assert_eq!(found[5..10], [0.0; 5]);
        assert!(found.iter().all(|g| g.is_finite()));
    }
}

/// Elements that a random composition of movement does not read have gradient 0, and those it
/// reads have that of what it reads: what is known of shapes is right.
#[test]
fn covers_are_what_is_read() {
    let mut unread_seen = 0;
    let mut masked = 0;
    for seed in 0..2000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut extent = |_| rng.random_range(1..5);
        let dims: Vec<usize> = (0..1 + seed as usize % 3).map(&mut extent).collect();
        let x = input(0, &dims);
        let u = moved(&fragile(&x), seed);
        if u.shape().numel() == 0 {
            continue;
        }
        // How often each element is read is the gradient of the same movement of x itself.
        let ones = vec![1.0; x.shape().numel()];
        let reads = gradient_values(&sum(&moved(&x, seed)), &x, &[&ones]);
        let at: Vec<f64> = reads
            .iter()
            .map(|&r| if r == 0.0 { 0.0 } else { 4.0 })
            .collect();
        let loss = sum(&u);
        let found = gradient_values(&loss, &x, &[&at]);
        let expected: Vec<f64> = reads.iter().map(|r| r * 0.25).collect();
        assert_eq!(found, expected, "seed {seed}");
        let unread = reads.contains(&0.0);
        unread_seen += usize::from(unread);
        masked += usize::from(!unread && bools(&new_nodes(&loss, from_ref(&x))) > 0);
    }
    // Both kinds were met, and what is read in full is hardly ever masked.
    assert!(unread_seen > 200, "{unread_seen}");
    assert!(
        masked < 40,
        "{masked} of those that are read in full have a mask"
    );
}

/// A few movement ops on x, those of the seed.
fn moved(x: &UOp, seed: u64) -> UOp {
    let rng = &mut SmallRng::seed_from_u64(seed ^ 0x0c0_7e45);
    let mut u = x.clone();
    for _ in 0..rng.random_range(1..7) {
        let dims = u.shape().to_vec();
        let rank = dims.len();
        u = match rng.random_range(0..8) {
            0 => {
                // Two neighbours merge, or an axis splits.
                let mut new = dims.clone();
                if rank > 1 && rng.random_bool(0.5) {
                    let k = rng.random_range(0..rank - 1);
                    new[k] *= new.remove(k + 1);
                } else if rank > 0 {
                    let k = rng.random_range(0..rank);
                    let divisors: Vec<usize> =
                        (1..=new[k]).filter(|d| new[k].is_multiple_of(*d)).collect();
                    let d = divisors[rng.random_range(0..divisors.len())];
                    new[k] /= d;
                    new.insert(k + 1, d);
                }
                u.reshape(&new).unwrap()
            }
            1 => {
                let mut new = dims.clone();
                let k = rng.random_range(0..=rank);
                new.insert(k, 1);
                let wide = u.reshape(&new).unwrap();
                new[k] = rng.random_range(1..4);
                wide.expand(&new).unwrap()
            }
            2 => {
                let mut order: Vec<usize> = (0..rank).collect();
                for k in (1..rank).rev() {
                    order.swap(k, rng.random_range(0..=k));
                }
                u.permute(&order).unwrap()
            }
            3 => {
                let window: Vec<(usize, usize)> = dims
                    .iter()
                    .map(|&d| {
                        let begin = rng.random_range(0..d);
                        (begin, rng.random_range(begin + 1..=d))
                    })
                    .collect();
                u.shrink(&window).unwrap()
            }
            4 => {
                let padding: Vec<(usize, usize)> = dims
                    .iter()
                    .map(|_| (rng.random_range(0..3), rng.random_range(0..3)))
                    .collect();
                pad(&u, &padding).unwrap()
            }
            5 if rank > 0 => flip(&u, &[rng.random_range(0..rank)]).unwrap(),
            6 if rank > 0 => cat(&[u.clone(), u.clone()], rng.random_range(0..rank)).unwrap(),
            7 if rank > 1 => {
                let at = rng.random_range(0..dims[0]);
                u.index(&[UOp::int(at as i64, DType::I32)]).unwrap()
            }
            _ => u.clone(),
        };
        if u.shape().numel() > 300 {
            break;
        }
    }
    u
}
