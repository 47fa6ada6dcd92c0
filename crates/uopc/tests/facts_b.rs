//! Section B of the fact list: the rule of each op, by value and where it matters by structure.

mod oracle;

use std::f64::consts::LN_2;
use std::slice::from_ref;

use oracle::*;
use uopc::autodiff::{gradient, gradient_with};
use uopc::compile;
use uopc::debug::Settings;
use uopc::ir::composite::{flip, pad};
use uopc::ir::op::{Fold, Op, ParamMode, ReduceOp, StageKind};
use uopc::ir::visit::{Graph, toposort};
use uopc::ir::{DType, Scalar, Shape, UOp};

const F64: DType = DType::F64;

/// The gradients of `sum(u * g)`, so that u's cotangent is the slot after the targets'.
fn vjp(u: &UOp, targets: &[UOp], slots: &[&[f64]]) -> Vec<Vec<f64>> {
    let g = input(targets.len() as u32, u.shape());
    gradients(&sum(&(u * &g)), targets, slots)
}

fn vjp1(u: &UOp, x: &UOp, at: &[f64], g: &[f64]) -> Vec<f64> {
    vjp(u, std::slice::from_ref(x), &[at, g]).remove(0)
}

#[test]
fn b1_add_passes_the_cotangent_to_both() {
    let (a, b) = (input(0, &[2]), input(1, &[2]));
    let g = [3.0, -4.0];
    let found = vjp(&(&a + &b), &[a, b], &[&[1.0, 2.0], &[5.0, 6.0], &g]);
    assert_eq!(found, [g, g]);
}

#[test]
fn b2_mul_passes_the_cotangent_times_the_other() {
    let (a, b) = (input(0, &[2]), input(1, &[2]));
    let found = vjp(
        &(&a * &b),
        &[a, b],
        &[&[1.0, 2.0], &[5.0, 6.0], &[3.0, -4.0]],
    );
    assert_eq!(found, [[15.0, -24.0], [3.0, -8.0]]);
}

#[test]
fn b3_max_shares_ties_by_halves() {
    let (a, b) = (input(0, &[4]), input(1, &[4]));
    let at: [&[f64]; 3] = [
        &[2.0, 1.0, 5.0, 0.0],
        &[1.0, 2.0, 5.0, -0.0],
        &[8.0, 8.0, 8.0, 8.0],
    ];
    let found = vjp(&a.maximum(&b).unwrap(), &[a.clone(), b.clone()], &at);
    assert_eq!(found, [[8.0, 0.0, 4.0, 4.0], [0.0, 8.0, 4.0, 4.0]]);

    // The published example: d sum(max(x, y)) with a tie at index 1.
    let (x, y) = (input(0, &[3]), input(1, &[3]));
    let both = sum(&x.maximum(&y).unwrap());
    let found = gradients(&both, &[x, y], &[&[3.0, 2.0, 1.0], &[1.0, 2.0, 3.0]]);
    assert_eq!(found, [[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]]);
}

#[test]
fn max_counts_nan_as_a_tie() {
    let (a, b) = (input(0, &[2]), input(1, &[2]));
    let at: [&[f64]; 3] = [&[f64::NAN, 1.0], &[1.0, f64::NAN], &[8.0, 8.0]];
    let found = vjp(&a.maximum(&b).unwrap(), &[a, b], &at);
    assert_eq!(found, [[4.0, 4.0], [4.0, 4.0]]);
}

#[test]
fn b4_recip_reads_its_own_output() {
    let x = input(0, &[3]);
    let u = x.recip().unwrap();
    let found = vjp1(&u, &x, &[2.0, -4.0, 0.5], &[1.0, 16.0, 1.0]);
    assert_eq!(found, [-0.25, -1.0, -4.0]);
    let graph = gradient(&u, std::slice::from_ref(&x)).unwrap();
    assert!(toposort(&graph).contains(&u));
    assert_eq!(count_op(&graph, "recip"), 1);
    // Where the output is 0 the gradient is 0.
    assert_eq!(vjp1(&u, &x, &[f64::INFINITY; 3], &[1.0; 3]), [0.0; 3]);
}

#[test]
fn b5_exponentials_logarithms_and_roots() {
    let x = input(0, &[3]);
    let at = [0.5, 1.0, 4.0];
    let g = [1.0, -2.0, 3.0];
    let each =
        |f: fn(f64) -> f64| -> Vec<f64> { at.iter().zip(g).map(|(&x, g)| g * f(x)).collect() };
    let check = |u: UOp, expected: Vec<f64>| {
        assert_close(&vjp1(&u, &x, &at, &g), &expected, 1e-15);
    };
    check(x.exp2().unwrap(), each(|x| x.exp2() * LN_2));
    check(x.exp().unwrap(), each(f64::exp));
    check(x.log2().unwrap(), each(|x| 1.0 / (x * LN_2)));
    check(x.sqrt().unwrap(), each(|x| 0.5 / x.sqrt()));
    check(x.sin().unwrap(), each(f64::cos));
    check(x.cos().unwrap(), each(|x| -x.sin()));
    check(x.sin_turned(2).unwrap(), each(|x| -x.cos()));
    check(x.sin_turned(3).unwrap(), each(f64::sin));
    // The derivative of sine is one node a quarter turn ahead, not a shifted argument.
    let graph = gradient(&x.sin().unwrap(), std::slice::from_ref(&x)).unwrap();
    assert_eq!(count(&graph, |u| *u.op() == Op::Sin(1)), 1);
    assert_eq!(count_op(&graph, "add"), 0);
}

#[test]
fn division_and_fused_products() {
    let (a, b, c) = (input(0, &[2]), input(1, &[2]), input(2, &[2]));
    let found = vjp(
        &a.div(&b).unwrap(),
        &[a.clone(), b.clone()],
        &[&[1.0, 6.0], &[4.0, 2.0], &[8.0, 10.0]],
    );
    assert_eq!(found, [[2.0, 5.0], [-0.5, -15.0]]);
    let found = vjp(
        &a.mulacc(&b, &c).unwrap(),
        &[a, b, c],
        &[&[1.0, 6.0], &[4.0, 2.0], &[0.0, 0.0], &[8.0, 10.0]],
    );
    assert_eq!(found, [[32.0, 20.0], [8.0, 60.0], [8.0, 10.0]]);
}

#[test]
fn b6_cast_converts_the_cotangent_back() {
    let x = input_of(0, &[2], DType::F16);
    let wide = x.cast(F64).unwrap();
    let found = gradient(&sum(&(&wide * &wide)), std::slice::from_ref(&x))
        .unwrap()
        .remove(0);
    assert_eq!(found.dtype(), DType::F16);
    assert_eq!(value(&found, &[&[1.5, -2.0]]), [3.0, -4.0]);

    // Integers and bools have no derivative, whichever way the cast goes.
    for dtype in [DType::I32, DType::U8, DType::Bool] {
        let x = input(0, &[2]);
        let through = sum(&x.cast(dtype).unwrap().cast(F64).unwrap());
        let (found, diagnostics) = gradient_with(&through, &[x], false).unwrap();
        assert_eq!(value(&found[0], &[&[1.5, -2.0]]), [0.0, 0.0]);
        let text = diagnostics[0].to_string();
        assert!(text.contains(&format!("cut, by cast to {dtype}")), "{text}");
    }
    // An integer below a float expression is simply not differentiated.
    let n = UOp::slot(1, DType::I32, 2);
    let x = input(0, &[2]);
    let loss = sum(&(&x * &n.cast(F64).unwrap()));
    assert_eq!(
        gradient_values(&loss, &x, &[&[1.0, 1.0], &[3.0, 4.0]]),
        [3.0, 4.0]
    );
}

#[test]
fn b7_where_passes_on_what_was_chosen() {
    let (c, a, b) = (input(0, &[3]), input(1, &[3]), input(2, &[3]));
    let zero = number(&c, 0.0);
    let u = zero.cmplt(&c).unwrap().where_(&a, &b).unwrap();
    let slots: [&[f64]; 4] = [&[1.0, -1.0, 0.0], &[5.0; 3], &[6.0; 3], &[2.0, 3.0, 4.0]];
    let found = vjp(&u, &[c, a, b], &slots);
    assert_eq!(found, [[0.0; 3], [2.0, 0.0, 0.0], [0.0, 3.0, 4.0]]);
    // What is not chosen is not read either: an infinity there does not reach the gradient.
    let x = input(0, &[2]);
    let positive = number(&x, 0.0).cmplt(&x).unwrap();
    let u = positive.where_(&x, &number(&x, f64::INFINITY)).unwrap();
    assert_eq!(gradient_values(&sum(&u), &x, &[&[1.0, -1.0]]), [1.0, 0.0]);
}

#[test]
fn b8_comparisons_and_integer_ops_pass_nothing() {
    let x = input(0, &[2]);
    let y = number(&x, 0.5);
    let n = x.cast(DType::I32).unwrap();
    let two = number(&n, 2.0);
    let p = x.cmplt(&y).unwrap();
    let t = n.cmplt(&two).unwrap();
    let cuts = [
        (x.cmplt(&y), "cmplt"),
        (x.cmpne(&y), "cmpne"),
        (n.floordiv(&two), "cast to i32"),
        (n.floormod(&two), "cast to i32"),
        (n.and(&two), "cast to i32"),
        (n.or(&two), "cast to i32"),
        (n.xor(&two), "cast to i32"),
        (n.shl(&two), "cast to i32"),
        (n.shr(&two), "cast to i32"),
        (p.and(&t), "cmplt"),
        (x.trunc(), "trunc"),
        (x.bitcast(DType::I64), "bitcast"),
    ];
    for (u, named) in cuts {
        let loss = sum(&u.unwrap().cast(F64).unwrap());
        let (found, diagnostics) = gradient_with(&loss, std::slice::from_ref(&x), false).unwrap();
        assert_eq!(value(&found[0], &[&[1.25, -2.5]]), [0.0, 0.0]);
        let text = diagnostics[0].to_string();
        assert!(
            text.contains(&format!("the root is cut, by {named} ")),
            "{text}"
        );
    }
    // IOTA is a leaf; what is computed from it is constant.
    let ramp = UOp::iota(2, DType::I32).unwrap().cast(F64).unwrap();
    assert_eq!(
        gradient_values(&sum(&(&x * &ramp)), &x, &[&[0.0; 2]]),
        [0.0, 1.0]
    );
}

#[test]
fn b9_movement_ops_go_back_by_their_transposes() {
    reshape_and_expand();
    permute_goes_back_by_the_inverse();
    shrink_puts_zeros_around();
}

fn reshape_and_expand() {
    let x = input(0, &[2, 3]);
    let g: Vec<f64> = (1..=6).map(f64::from).collect();
    let at = [0.0; 6];
    assert_eq!(vjp1(&x.reshape(&[3, 2]).unwrap(), &x, &at, &g), g);
    let row = input(0, &[2, 1]);
    let found = vjp1(&row.expand(&[2, 3]).unwrap(), &row, &[0.0; 2], &g);
    assert_eq!(found, [6.0, 15.0]);
    // Several axes at once, an expansion to nothing, and one that changes nothing.
    let corner = input(0, &[1, 2, 1]);
    let found = vjp1(
        &corner.expand(&[3, 2, 2]).unwrap(),
        &corner,
        &[0.0; 2],
        &[1.0; 12],
    );
    assert_eq!(found, [6.0, 6.0]);
    let found = vjp1(&row.expand(&[2, 0]).unwrap(), &row, &[0.0; 2], &[]);
    assert_eq!(found, [0.0, 0.0]);
    assert_eq!(row.expand(&[2, 1]).unwrap(), row);
}

fn permute_goes_back_by_the_inverse() {
    let x = input(0, &[2, 3, 4]);
    // Axis 0 of the result is axis 1 of x, and so on: not its own inverse.
    let u = x.permute(&[1, 2, 0]).unwrap();
    assert_eq!(u.shape()[..], [3, 4, 2]);
    let g: Vec<f64> = (0..24).map(f64::from).collect();
    let found = vjp1(&u, &x, &[0.0; 24], &g);
    for (i, j, k) in (0..24).map(|n| (n / 12, n / 4 % 3, n % 4)) {
        assert_eq!(found[i * 12 + j * 4 + k], g[j * 8 + k * 2 + i]);
    }
    let back = gradient(&u, &[x]).unwrap().remove(0);
    assert_eq!(*back.op(), Op::Permute([2, 0, 1].as_slice().into()));
}

fn shrink_puts_zeros_around() {
    let x = input(0, &[4, 3]);
    let u = x.shrink(&[(1, 3), (0, 2)]).unwrap();
    let found = vjp1(&u, &x, &[0.0; 12], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(
        found,
        [0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]
    );
    let nothing = x.shrink(&[(2, 2), (0, 3)]).unwrap();
    assert_eq!(vjp1(&nothing, &x, &[0.0; 12], &[]), [0.0; 12]);
    // Padding goes back by cutting.
    let y = input(0, &[2]);
    let g = [9.0, 1.0, 2.0, 9.0, 9.0];
    let padded = pad(&y, &[(1, 2)]).unwrap();
    assert_eq!(vjp1(&padded, &y, &[0.0; 2], &g), [1.0, 2.0]);
}

#[test]
fn b10_stack_and_index_undo_each_other() {
    stack_takes_slices_and_index_places_them();
    index_takes_a_logarithm_of_nodes();
    index_by_a_reversal_is_reversed();
}

fn stack_takes_slices_and_index_places_them() {
    let (a, b) = (input(0, &[2]), input(1, &[2]));
    let stacked = UOp::stack(&[a.clone(), b.clone(), a.clone()]).unwrap();
    let g = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let found = vjp(&stacked, &[a, b], &[&[0.0; 2], &[0.0; 2], &g]);
    assert_eq!(found, [[6.0, 8.0], [3.0, 4.0]]);

    let at = |c: &[i64]| -> Vec<UOp> { c.iter().map(|&c| UOp::int(c, DType::I32)).collect() };
    let x = input(0, &[3, 2]);
    let slice = x.index(&at(&[1])).unwrap();
    assert_eq!(
        vjp1(&slice, &x, &[0.0; 6], &[7.0, 8.0]),
        [0.0, 0.0, 7.0, 8.0, 0.0, 0.0]
    );
    let element = x.index(&at(&[2, 0])).unwrap();
    assert_eq!(
        vjp1(&element, &x, &[0.0; 6], &[7.0]),
        [0.0, 0.0, 0.0, 0.0, 7.0, 0.0]
    );
    // Out of range reads 0, so nothing comes back.
    for c in [-1, 3] {
        let outside = x.index(&at(&[c])).unwrap();
        assert_eq!(vjp1(&outside, &x, &[0.0; 6], &[7.0, 8.0]), [0.0; 6]);
    }
}

fn index_takes_a_logarithm_of_nodes() {
    let nodes = |n: usize| {
        let x = input(0, &[n]);
        let element = x.index(&[UOp::int(n as i64 / 2, DType::I64)]).unwrap();
        Graph::new(&gradient(&element, &[x]).unwrap()).len()
    };
    assert!(nodes(1 << 20) <= 6 * 20, "{} nodes", nodes(1 << 20));
    // Three nodes a doubling, whatever the size.
    assert_eq!(
        nodes(1 << 20) - nodes(1 << 16),
        nodes(1 << 16) - nodes(1 << 12)
    );
}

fn index_by_a_reversal_is_reversed() {
    let x = input(0, &[3, 2]);
    let flipped = flip(&x, &[0]).unwrap();
    let g = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    assert_eq!(
        vjp1(&flipped, &x, &[0.0; 6], &g),
        [5.0, 6.0, 3.0, 4.0, 1.0, 2.0]
    );
    let flipped = flip(&x, &[1]).unwrap();
    assert_eq!(
        vjp1(&flipped, &x, &[0.0; 6], &g),
        [2.0, 1.0, 4.0, 3.0, 6.0, 5.0]
    );
    let both = flip(&x, &[0, 1]).unwrap();
    assert_eq!(
        vjp1(&both, &x, &[0.0; 6], &g),
        [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    );
}

#[test]
fn b11_a_data_dependent_index_gives_back_a_scatter_add() {
    let table = input(0, &[3, 2]);
    let ids = UOp::slot(1, DType::I32, 4);
    let rows = table.index(from_ref(&ids)).unwrap();
    let g = input(2, &[4, 2]);
    let loss = sum(&(&rows * &g));
    // Row 2 is read twice, row 1 never, and 7 is no row.
    let numbers = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let slots: [&[f64]; 3] = [&[0.0; 6], &[2.0, 0.0, 2.0, 7.0], &numbers];
    let found = gradient_values(&loss, &table, &slots);
    assert_eq!(found, [3.0, 4.0, 0.0, 0.0, 6.0, 8.0]);
    let gradient = gradient(&loss, from_ref(&table)).unwrap().remove(0);
    assert_eq!(*gradient.op(), Op::ScatterAdd(Shape::new(&[3, 2])));
    assert_eq!(gradient.src()[1..], [ids]);

    // The transpose of the transpose: what was read comes back, and a row that is none gets 0.
    let found = gradient_values(&sum(&(&gradient * &table)), &g, &{
        let mut slots = slots;
        slots[0] = &[0.5, 1.5, 2.5, 3.5, 4.5, 5.5];
        slots
    });
    assert_eq!(found, [4.5, 5.5, 0.5, 1.5, 4.5, 5.5, 0.0, 0.0]);
}

#[test]
fn b12_stages_pass_the_cotangent_and_detach_stops_it() {
    let x = input(0, &[2]);
    for kind in [StageKind::Materialise, StageKind::Remat] {
        let staged = x.stage(kind).unwrap();
        assert_eq!(
            vjp1(&(&staged * &x), &x, &[3.0, 4.0], &[1.0, 2.0]),
            [6.0, 16.0]
        );
    }
    let detached = x.stage(StageKind::Detach).unwrap();
    let loss = sum(&(&x * &detached));
    let (found, diagnostics) = gradient_with(&loss, std::slice::from_ref(&x), true).unwrap();
    assert_eq!(value(&found[0], &[&[1.0, 2.0]]), [1.0, 2.0]);
    assert!(diagnostics.is_empty(), "another path is open");
    // Nothing is built for what is detached: the gradient is the other factor.
    assert_eq!(count_op(&found, "add"), 0);
    // A detached node may itself be a target.
    let found = gradient(&loss, std::slice::from_ref(&detached))
        .unwrap()
        .remove(0);
    assert_eq!(value(&found, &[&[1.0, 2.0]]), [1.0, 2.0]);

    // At run time nothing is left of it: the kernels are those of the value without the mark.
    let kernels = |x: &UOp, mark: &UOp| {
        let rows = sum(&(&x.exp().unwrap() * mark));
        compile::listing(&[rows, x * mark], None, &Settings::default()).unwrap()
    };
    assert_eq!(kernels(&x, &detached), kernels(&x, &x));
}

#[test]
fn b13_a_sum_passes_the_cotangent_to_every_summand() {
    let x = input(0, &[2, 3]);
    let u = x.reduce(ReduceOp::Add, 1).unwrap();
    let found = vjp1(&u, &x, &[0.0; 6], &[5.0, 6.0]);
    assert_eq!(found, [5.0, 5.0, 5.0, 6.0, 6.0, 6.0]);
    let back = gradient(&u, &[x]).unwrap().remove(0);
    assert_eq!(back.op(), &Op::Expand([2, 3].as_slice().into()));
    // Of the last two axes, and of none.
    let y = input(0, &[2, 2, 2]);
    let u = y.reduce(ReduceOp::Add, 2).unwrap();
    let found = vjp1(&u, &y, &[0.0; 8], &[5.0, 6.0]);
    assert_eq!(found, [5.0, 5.0, 5.0, 5.0, 6.0, 6.0, 6.0, 6.0]);
    let empty = input(0, &[2, 0]);
    assert_eq!(
        vjp1(
            &empty.reduce(ReduceOp::Add, 1).unwrap(),
            &empty,
            &[],
            &[1.0, 2.0]
        ),
        [0.0; 0]
    );
}

#[test]
fn b14_a_maximum_is_shared_by_all_maximal_elements() {
    let x = input(0, &[3]);
    let u = x.reduce(ReduceOp::Max, 1).unwrap();
    assert_eq!(vjp1(&u, &x, &[1.0, 3.0, 3.0], &[1.0]), [0.0, 0.5, 0.5]);
    assert_eq!(vjp1(&u, &x, &[3.0, 3.0, 3.0], &[6.0]), [2.0, 2.0, 2.0]);
    assert_eq!(vjp1(&u, &x, &[-1.0, -3.0, -2.0], &[6.0]), [6.0, 0.0, 0.0]);
    // A NaN is a tie with everything, as in MAX.
    assert_eq!(vjp1(&u, &x, &[1.0, f64::NAN, 3.0], &[6.0]), [2.0, 2.0, 2.0]);
    // Row by row.
    let y = input(0, &[2, 2, 2]);
    let rows = y.reduce(ReduceOp::Max, 2).unwrap();
    let at = [1.0, 4.0, 4.0, 0.0, 9.0, 8.0, 7.0, 6.0];
    let found = vjp1(&rows, &y, &at, &[2.0, 3.0]);
    assert_eq!(found, [0.0, 1.0, 1.0, 0.0, 3.0, 0.0, 0.0, 0.0]);
    let empty = input(0, &[2, 0]);
    assert_eq!(
        vjp1(
            &empty.reduce(ReduceOp::Max, 1).unwrap(),
            &empty,
            &[],
            &[1.0, 2.0]
        ),
        [0.0; 0]
    );
}

#[test]
fn a_product_passes_the_product_of_the_others() {
    for n in 1..=9 {
        let x = input(0, &[n]);
        let u = x.reduce(ReduceOp::Mul, 1).unwrap();
        let at: Vec<f64> = (0..n).map(|k| k as f64 + 2.0).collect();
        let others = |at: &[f64], g: f64| -> Vec<f64> {
            (0..n)
                .map(|i| g * (0..n).filter(|&k| k != i).map(|k| at[k]).product::<f64>())
                .collect()
        };
        assert_eq!(vjp1(&u, &x, &at, &[3.0]), others(&at, 3.0));
        // With one zero only its own gradient is left, with two nothing is.
        let mut zeros = at.clone();
        for k in 0..n.min(2) {
            zeros[k * (n - 1)] = 0.0;
            assert_eq!(vjp1(&u, &x, &zeros, &[3.0]), others(&zeros, 3.0));
        }
    }
    // Rows, over two axes at once, an empty row and no rows.
    let x = input(0, &[2, 3, 1]);
    let u = x.reduce(ReduceOp::Mul, 2).unwrap();
    let found = vjp1(&u, &x, &[2.0, 3.0, 4.0, 0.0, 5.0, 7.0], &[1.0, 10.0]);
    assert_eq!(found, [12.0, 8.0, 6.0, 350.0, 0.0, 0.0]);
    for dims in [[2, 0], [0, 2]] {
        let empty = input(0, &dims);
        let u = empty.reduce(ReduceOp::Mul, 1).unwrap();
        assert_eq!(vjp1(&u, &empty, &[], &vec![1.0; dims[0]]), [0.0; 0]);
    }
}

#[test]
fn b15_leaves_end_the_walk() {
    let x = UOp::param(0, ParamMode::In, F64, 2);
    let found = gradient(&sum(&(&x * &x)), std::slice::from_ref(&x)).unwrap();
    assert_eq!(found[0].shape(), x.shape());
    // Constants and buffers, alone and as the root itself.
    let c = UOp::constant(Scalar::from_f64(F64, 3.0));
    let slot = input(0, &[2]);
    assert_eq!(gradient_values(&c, &c, &[]), [1.0]);
    assert_eq!(gradient_values(&(&c * &c), &c, &[]), [6.0]);
    assert_eq!(gradient_values(&slot, &slot, &[&[7.0, 8.0]]), [1.0, 1.0]);
}

/// `(m, k) @ (k, n)` as EXPAND, MUL and REDUCE.
fn matmul(x: &UOp, w: &UOp) -> UOp {
    let (m, k, n) = (x.shape()[0], x.shape()[1], w.shape()[1]);
    let xe = x.reshape(&[m, 1, k]).unwrap().expand(&[m, n, k]).unwrap();
    let we = w.permute(&[1, 0]).unwrap();
    let we = we.reshape(&[1, n, k]).unwrap().expand(&[m, n, k]).unwrap();
    (&xe * &we).reduce(ReduceOp::Add, 1).unwrap()
}

#[test]
fn b16_a_matrix_product_goes_back_by_two_matrix_products() {
    let (m, k, n) = (2, 3, 4);
    let (x, w, g) = (input(0, &[m, k]), input(1, &[k, n]), input(2, &[m, n]));
    let values = |n: usize, step: f64| -> Vec<f64> {
        (0..n).map(|i| ((i * i) as f64 * step).sin()).collect()
    };
    let (xs, ws, gs) = (values(m * k, 0.7), values(k * n, 0.3), values(m * n, 1.1));
    let targets = [x.clone(), w.clone()];
    let found = gradient(&sum(&(&matmul(&x, &w) * &g)), &targets).unwrap();
    let numbers = arrays(&found, &[&xs, &ws, &gs]);

    let dx: Vec<f64> = (0..m * k)
        .map(|at| {
            (0..n)
                .map(|j| gs[at / k * n + j] * ws[at % k * n + j])
                .sum()
        })
        .collect();
    let dw: Vec<f64> = (0..k * n)
        .map(|at| {
            (0..m)
                .map(|i| xs[i * k + at / n] * gs[i * n + at % n])
                .sum()
        })
        .collect();
    assert_close(&numbers[0].to_f64(), &dx, 1e-15);
    assert_close(&numbers[1].to_f64(), &dw, 1e-15);

    // Exactly two reductions, both contractions, as the forward product is.
    let reductions: Vec<UOp> = toposort(&found)
        .into_iter()
        .filter(|u| matches!(u.op(), Op::Reduce { .. }))
        .collect();
    assert_eq!(reductions.len(), 2);
    for r in reductions {
        let Op::Reduce { fold, .. } = r.op() else {
            unreachable!("only reductions were kept")
        };
        assert_eq!(*fold, Fold::Chain);
    }
}

#[test]
fn kinks_are_pinned() {
    let x = input(0, &[3]);
    let at: [&[f64]; 1] = [&[-2.0, 0.0, 3.0]];
    let zero = number(&x, 0.0);
    let abs = x.maximum(&-&x).unwrap();
    assert_eq!(gradient_values(&sum(&abs), &x, &at), [-1.0, 0.0, 1.0]);
    let relu = zero.cmplt(&x).unwrap().where_(&x, &zero).unwrap();
    assert_eq!(gradient_values(&sum(&relu), &x, &at), [0.0, 0.0, 1.0]);
    let clipped = x.maximum(&zero).unwrap();
    assert_eq!(gradient_values(&sum(&clipped), &x, &at), [0.0, 0.5, 1.0]);
    let top = x.reduce(ReduceOp::Max, 1).unwrap();
    assert_eq!(
        gradient_values(&top, &x, &[&[1.0, 3.0, 3.0]]),
        [0.0, 0.5, 0.5]
    );
}
