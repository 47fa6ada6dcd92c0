//! The graph interpreter against hand-computed values, NumPy's results, and folds spelled out a
//! second time.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::Result;
use uopc::interp::{Array, graph};
use uopc::ir::composite::{cat, flip, pad};
use uopc::ir::op::{Exec, Fold, Op, ReduceOp, StageKind};
use uopc::ir::{DType, Scalar, Shape, UOp};

use DType::*;

/// The value of one root; slot i is bound to `slots[i]`.
fn eval(root: &UOp, slots: &[Array]) -> Array {
    try_eval(root, slots).expect("the graph evaluates")
}

fn try_eval(root: &UOp, slots: &[Array]) -> Result<Array> {
    let bind = |u: &UOp| match u.op() {
        Op::Buffer {
            id: uopc::ir::op::BufferId::Slot(k),
            ..
        } => slots.get(*k as usize).cloned(),
        _ => None,
    };
    Ok(graph::eval(std::slice::from_ref(root), &bind)?.remove(0))
}

fn floats(dtype: DType, values: &[f64]) -> Array {
    Array::from_f64(dtype, &[values.len()], values).expect("one axis of that length")
}

fn ints(dtype: DType, values: &[i64]) -> Array {
    Array::from_ints(dtype, &[values.len()], values).expect("one axis of that length")
}

/// A slot that holds `0, 1, 2, ...` in a shape, and its contents.
fn counted(slot: u32, shape: &[usize]) -> (UOp, Array) {
    let n: usize = shape.iter().product();
    let values: Vec<i64> = (0..n as i64).collect();
    let x = UOp::slot(slot, I32, n).reshape(shape).expect("n elements");
    (x, ints(I32, &values))
}

fn as_ints(a: &Array) -> Vec<i128> {
    a.scalars().map(Scalar::as_i128).collect()
}

// ---- folds, a second time ----

/// The lane order by its definition: lane u of a block sums elements u, u + 16, ... from the
/// left; `S(u, w) = S(u, 2w) + S(u + w, 2w)`; blocks by pairs.
fn lanes_by_definition(row: &[f32], start: f32, op: fn(f32, f32) -> f32) -> f32 {
    fn halved(block: &[f32], u: usize, width: usize, start: f32, op: fn(f32, f32) -> f32) -> f32 {
        if width == 16 {
            return block
                .iter()
                .skip(u)
                .step_by(16)
                .fold(start, |acc, &x| op(acc, x));
        }
        op(
            halved(block, u, 2 * width, start, op),
            halved(block, u + width, 2 * width, start, op),
        )
    }
    let mut sums: Vec<f32> = Vec::new();
    let mut begin = 0;
    while begin < row.len() {
        let end = row.len().min(begin + 4096);
        sums.push(halved(&row[begin..end], 0, 1, start, op));
        begin = end;
    }
    while sums.len() > 1 {
        let mut next = Vec::new();
        for k in 0..sums.len() / 2 {
            next.push(op(sums[2 * k], sums[2 * k + 1]));
        }
        if sums.len() % 2 == 1 {
            next.push(sums[sums.len() - 1]);
        }
        sums = next;
    }
    sums[0]
}

fn chain_by_definition(a: &[f32], b: &[f32]) -> f32 {
    let mut total = None;
    let mut acc = 0.0f32;
    for k in 0..a.len() {
        if k > 0 && k % 4096 == 0 {
            total = Some(total.map_or(acc, |t: f32| t + acc));
            acc = 0.0;
        }
        acc = a[k].mul_add(b[k], acc);
    }
    total.map_or(acc, |t| t + acc)
}

const EXTENTS: [usize; 16] = [
    1, 2, 7, 15, 16, 17, 31, 32, 100, 4095, 4096, 4097, 8192, 12_300, 20_480, 28_673,
];

fn random(rng: &mut SmallRng, n: usize) -> Vec<f32> {
    (0..n)
        .map(|_| rng.random_range(-1.0f32..1.0) * 2f32.powi(rng.random_range(-6..6)))
        .collect()
}

fn single(values: &[f32]) -> Array {
    let values: Vec<f64> = values.iter().map(|&v| v as f64).collect();
    floats(F32, &values)
}

#[test]
fn lanes_follow_the_written_order() {
    let mut rng = SmallRng::seed_from_u64(1);
    for n in EXTENTS {
        let values = random(&mut rng, n);
        let x = UOp::slot(0, F32, n);
        let sum = eval(&x.reduce(ReduceOp::Add, 1).unwrap(), &[single(&values)]);
        let want = lanes_by_definition(&values, -0.0, |a, b| a + b);
        assert_eq!(sum.get(0), Scalar::f32(want), "sum of {n}");

        let near_one: Vec<f32> = values.iter().map(|v| 1.0 + v * 1e-3).collect();
        let product = eval(&x.reduce(ReduceOp::Mul, 1).unwrap(), &[single(&near_one)]);
        let want = lanes_by_definition(&near_one, 1.0, |a, b| a * b);
        assert_eq!(product.get(0), Scalar::f32(want), "product of {n}");
    }
}

#[test]
fn chains_follow_the_written_order_and_do_not_round_the_product() {
    let mut rng = SmallRng::seed_from_u64(2);
    let mut rounded_differs = false;
    for n in EXTENTS {
        let (a, b) = (random(&mut rng, n), random(&mut rng, n));
        let (x, y) = (UOp::slot(0, F32, n), UOp::slot(1, F32, n));
        let product = x.mul(&y).unwrap();
        let chain = product.reduce_as(ReduceOp::Add, 1, Fold::Chain).unwrap();
        let slots = [single(&a), single(&b)];
        let got = eval(&chain, &slots).get(0);
        assert_eq!(
            got,
            Scalar::f32(chain_by_definition(&a, &b)),
            "chain of {n}"
        );
        // A chain over anything but a product counts it as multiplied by one, which rounds here.
        let negated = product.neg().unwrap().neg().unwrap();
        let opaque = UOp::full(Scalar::f32(0.0), product.shape()).unwrap();
        let opaque = opaque.maximum(&negated).unwrap().add(&negated).unwrap();
        let values: Vec<f32> = a
            .iter()
            .zip(&b)
            .map(|(a, b)| (a * b).max(0.0) + a * b)
            .collect();
        let chain = opaque.reduce_as(ReduceOp::Add, 1, Fold::Chain).unwrap();
        let want = chain_by_definition(&values, &vec![1.0; n]);
        assert_eq!(
            eval(&chain, &slots).get(0),
            Scalar::f32(want),
            "opaque chain of {n}"
        );

        let products: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        rounded_differs |= got != Scalar::f32(chain_by_definition(&products, &vec![1.0; n]));
    }
    assert!(
        rounded_differs,
        "the inputs do not tell a fused product from a rounded one"
    );
}

#[test]
fn a_contraction_is_a_chain_seen_through_permute_and_reshape() {
    let mut rng = SmallRng::seed_from_u64(3);
    let (m, k, n) = (3, 5, 4);
    let (a, b) = (random(&mut rng, m * k), random(&mut rng, k * n));
    // The sum runs over the middle axis: sum_to puts a PERMUTE between product and REDUCE.
    let x = UOp::slot(0, F32, m * k)
        .reshape(&[m, k, 1])
        .unwrap()
        .expand(&[m, k, n])
        .unwrap();
    let y = UOp::slot(1, F32, k * n)
        .reshape(&[1, k, n])
        .unwrap()
        .expand(&[m, k, n])
        .unwrap();
    let sum = x
        .mul(&y)
        .unwrap()
        .permute(&[0, 2, 1])
        .unwrap()
        .reduce(ReduceOp::Add, 1)
        .unwrap();
    assert!(matches!(
        sum.op(),
        Op::Reduce {
            fold: Fold::Chain,
            ..
        }
    ));
    let got = eval(&sum, &[single(&a), single(&b)]);
    for i in 0..m {
        for j in 0..n {
            let row: Vec<f32> = (0..k).map(|t| a[i * k + t]).collect();
            let column: Vec<f32> = (0..k).map(|t| b[t * n + j]).collect();
            let want = Scalar::f32(chain_by_definition(&row, &column));
            assert_eq!(got.get(i * n + j), want, "element {i}, {j}");
        }
    }
}

#[test]
fn narrow_floats_accumulate_in_f32_and_round_once() {
    let mut rng = SmallRng::seed_from_u64(4);
    for dtype in [F16, BF16] {
        for n in [1, 17, 5000] {
            let narrow = floats(
                dtype,
                &random(&mut rng, n)
                    .iter()
                    .map(|&v| v as f64)
                    .collect::<Vec<_>>(),
            );
            let values: Vec<f32> = narrow.to_f64().iter().map(|&v| v as f32).collect();
            let x = UOp::slot(0, dtype, n);
            let sum = eval(
                &x.reduce(ReduceOp::Add, 1).unwrap(),
                std::slice::from_ref(&narrow),
            );
            let want = lanes_by_definition(&values, -0.0, |a, b| a + b);
            assert_eq!(
                sum.get(0),
                Scalar::from_f64(dtype, want as f64),
                "{dtype} sum of {n}"
            );

            // The product of two narrow numbers is exact in f32: rounding it would differ.
            let square = x
                .mul(&x)
                .unwrap()
                .reduce_as(ReduceOp::Add, 1, Fold::Chain)
                .unwrap();
            let want = chain_by_definition(&values, &values);
            let got = eval(&square, &[narrow]).get(0);
            assert_eq!(
                got,
                Scalar::from_f64(dtype, want as f64),
                "{dtype} chain of {n}"
            );
        }
    }
    // 4096 ones and more: a narrow accumulator would stop at 2048 (f16) or 256 (bf16).
    for dtype in [F16, BF16] {
        let ones = UOp::full(Scalar::one(dtype), &Shape::new(&[8192])).unwrap();
        let sum = eval(&ones.reduce(ReduceOp::Add, 1).unwrap(), &[]);
        assert_eq!(sum.to_f64(), [8192.0]);
    }
}

#[test]
fn folds_of_nothing_of_one_and_of_special_values() {
    let reduced = |dtype, op, values: &[f64]| {
        let x = UOp::slot(0, dtype, values.len());
        eval(&x.reduce(op, 1).unwrap(), &[floats(dtype, values)]).get(0)
    };
    for dtype in [F16, BF16, F32, F64] {
        let float = |v| Scalar::from_f64(dtype, v);
        assert_eq!(reduced(dtype, ReduceOp::Add, &[]), float(0.0));
        assert_eq!(reduced(dtype, ReduceOp::Mul, &[]), float(1.0));
        assert_eq!(reduced(dtype, ReduceOp::Max, &[]), float(f64::NEG_INFINITY));
        assert_eq!(reduced(dtype, ReduceOp::Add, &[-0.0]), float(-0.0));
        assert_eq!(reduced(dtype, ReduceOp::Add, &[-0.0; 40]), float(-0.0));
        assert_eq!(reduced(dtype, ReduceOp::Add, &[-0.0, 0.0]), float(0.0));
        assert_eq!(
            reduced(dtype, ReduceOp::Max, &[-0.0, 0.0, -0.0]),
            float(0.0)
        );
        assert_eq!(reduced(dtype, ReduceOp::Mul, &[-0.0, 2.0]), float(-0.0));
        for at in [0, 1, 20, 39] {
            let mut values = [1.0; 40];
            values[at] = f64::NAN;
            for op in [ReduceOp::Add, ReduceOp::Mul, ReduceOp::Max] {
                assert!(
                    reduced(dtype, op, &values).is_nan(),
                    "NaN at {at} under {op:?}"
                );
            }
        }
        let both = [f64::INFINITY, f64::NEG_INFINITY];
        assert!(reduced(dtype, ReduceOp::Add, &both).is_nan());
        assert_eq!(reduced(dtype, ReduceOp::Max, &both), float(f64::INFINITY));
    }
    // A chain starts at +0, so it loses the sign of a zero; a chain of nothing is 0.
    let x = UOp::slot(0, F32, 2);
    let chain = x
        .mul(&x)
        .unwrap()
        .reduce_as(ReduceOp::Add, 1, Fold::Chain)
        .unwrap();
    assert_eq!(
        eval(&chain, &[floats(F32, &[-0.0, -0.0])]).get(0),
        Scalar::f32(0.0)
    );
    let x = UOp::slot(0, F32, 0);
    let chain = x
        .mul(&x)
        .unwrap()
        .reduce_as(ReduceOp::Add, 1, Fold::Chain)
        .unwrap();
    assert_eq!(eval(&chain, &[floats(F32, &[])]).get(0), Scalar::f32(0.0));
}

#[test]
fn integer_and_bool_reductions_wrap_and_decide() {
    let reduced = |dtype, op, values: &[i64]| {
        let x = UOp::slot(0, dtype, values.len());
        eval(&x.reduce(op, 1).unwrap(), &[ints(dtype, values)])
            .get(0)
            .as_i128()
    };
    // NumPy: np.array([100, 100, 100], np.int8).sum(dtype=np.int8) is 44.
    assert_eq!(reduced(I8, ReduceOp::Add, &[100, 100, 100]), 44);
    assert_eq!(reduced(U8, ReduceOp::Mul, &[16, 17]), 16);
    assert_eq!(reduced(I64, ReduceOp::Max, &[]), i64::MIN as i128);
    assert_eq!(reduced(U16, ReduceOp::Max, &[]), 0);
    assert_eq!(reduced(I32, ReduceOp::Max, &[-5, -9]), -5);
    assert_eq!(reduced(I32, ReduceOp::Add, &[]), 0);
    assert_eq!(reduced(I32, ReduceOp::Mul, &[]), 1);
    assert_eq!(reduced(Bool, ReduceOp::Add, &[0, 1, 0]), 1);
    assert_eq!(reduced(Bool, ReduceOp::Mul, &[1, 1, 0]), 0);
    assert_eq!(reduced(Bool, ReduceOp::Max, &[0, 0]), 0);
    assert_eq!(reduced(Bool, ReduceOp::Add, &[]), 0);
    assert_eq!(reduced(Bool, ReduceOp::Mul, &[]), 1);
}

#[test]
fn reductions_take_the_last_axes_in_row_major_order() {
    let (x, data) = counted(0, &[2, 3, 4]);
    let one = eval(
        &x.reduce(ReduceOp::Add, 1).unwrap(),
        std::slice::from_ref(&data),
    );
    assert_eq!(
        (&one.shape()[..], as_ints(&one)),
        (&[2, 3][..], vec![6, 22, 38, 54, 70, 86])
    );
    let two = eval(
        &x.reduce(ReduceOp::Max, 2).unwrap(),
        std::slice::from_ref(&data),
    );
    assert_eq!(as_ints(&two), [11, 23]);
    let all = eval(&x.reduce(ReduceOp::Add, 3).unwrap(), &[data]);
    assert_eq!((all.shape().rank(), as_ints(&all)), (0, vec![276]));
    // No rows; rows of nothing.
    let (x, data) = counted(0, &[0, 3]);
    assert!(eval(&x.reduce(ReduceOp::Add, 1).unwrap(), &[data]).is_empty());
    let (x, data) = counted(0, &[2, 0]);
    assert_eq!(
        as_ints(&eval(&x.reduce(ReduceOp::Mul, 1).unwrap(), &[data])),
        [1, 1]
    );
}

#[test]
fn movement_copies_the_right_elements() {
    // The expected values are those of NumPy on np.arange(6).reshape(2, 3).
    let (x, data) = counted(0, &[2, 3]);
    let run = |u: Result<UOp>| as_ints(&eval(&u.unwrap(), std::slice::from_ref(&data)));
    assert_eq!(run(x.permute(&[1, 0])), [0, 3, 1, 4, 2, 5]);
    assert_eq!(run(x.shrink(&[(0, 2), (1, 3)])), [1, 2, 4, 5]);
    assert_eq!(run(x.shrink(&[(1, 2), (2, 2)])), []);
    assert_eq!(run(x.reshape(&[3, 2])), [0, 1, 2, 3, 4, 5]);
    let repeated = x.reshape(&[2, 1, 3]).unwrap().expand(&[2, 2, 3]);
    assert_eq!(run(repeated), [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
    assert_eq!(
        run(pad(&x, &[(0, 0), (1, 2)])),
        [0, 0, 1, 2, 0, 0, 0, 3, 4, 5, 0, 0]
    );
    assert_eq!(run(flip(&x, &[0, 1])), [5, 4, 3, 2, 1, 0]);
    assert_eq!(
        run(cat(&[x.clone(), x.shrink(&[(0, 2), (0, 1)]).unwrap()], 1)),
        [0, 1, 2, 0, 3, 4, 5, 3]
    );
    assert_eq!(
        run(UOp::stack(&[x.clone(), x.clone()])),
        [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    );

    // A permutation that is not its own inverse: axis k of the result is axis order[k].
    let (x, data) = counted(0, &[2, 3, 4]);
    let turned = eval(&x.permute(&[1, 2, 0]).unwrap(), &[data]);
    assert_eq!(turned.shape()[..], [3, 4, 2]);
    for (i, value) in as_ints(&turned).into_iter().enumerate() {
        let (a, b, c) = (i / 8, i / 2 % 4, i % 2);
        assert_eq!(value, (c * 12 + a * 4 + b) as i128);
    }
}

#[test]
fn scalars_and_empty_tensors_are_ordinary() {
    let x = UOp::slot(0, F32, 1).reshape(&[]).unwrap();
    let data = [floats(F32, &[4.0])];
    assert_eq!(eval(&x.sqrt().unwrap(), &data).to_f64(), [2.0]);
    assert_eq!(
        eval(&x.reshape(&[1, 1]).unwrap().expand(&[0, 3]).unwrap(), &data).len(),
        0
    );
    assert_eq!(eval(&x.permute(&[]).unwrap(), &data).to_f64(), [4.0]);
    assert_eq!(
        eval(&UOp::stack(&[x.clone(), x.clone()]).unwrap(), &data).to_f64(),
        [4.0, 4.0]
    );
    let (x, data) = counted(0, &[0, 3]);
    let data = [data];
    assert_eq!(
        eval(&x.permute(&[1, 0]).unwrap(), &data).shape()[..],
        [3, 0]
    );
    assert_eq!(
        as_ints(&eval(&pad(&x, &[(1, 0), (0, 0)]).unwrap(), &data)),
        [0, 0, 0]
    );
    assert_eq!(eval(&x.add(&x).unwrap(), &data).len(), 0);
    let window = x.shrink(&[(0, 0), (3, 3)]).unwrap();
    assert_eq!(eval(&window, &data).shape()[..], [0, 0]);
    // The sum over an axis of nothing of something: a product of matrices (2, 0) and (0, 2).
    let a = UOp::slot(0, F32, 0)
        .reshape(&[2, 0, 1])
        .unwrap()
        .expand(&[2, 0, 2])
        .unwrap();
    let sum = a
        .mul(&a)
        .unwrap()
        .permute(&[0, 2, 1])
        .unwrap()
        .reduce(ReduceOp::Add, 1)
        .unwrap();
    assert_eq!(eval(&sum, &[floats(F32, &[])]).to_f64(), [0.0; 4]);
}

#[test]
fn index_reads_rows_and_zeros_outside() {
    let (x, data) = counted(0, &[3, 2]);
    let at = |dtype, values: &[i64]| (UOp::slot(1, dtype, values.len()), ints(dtype, values));
    let (i, places) = at(I64, &[2, 0, -1, 3, i64::MAX, i64::MIN]);
    let rows = eval(
        &x.index(std::slice::from_ref(&i)).unwrap(),
        &[data.clone(), places],
    );
    assert_eq!(as_ints(&rows), [4, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (i, places) = at(U8, &[1, 255]);
    let rows = eval(&x.index(&[i]).unwrap(), &[data.clone(), places]);
    assert_eq!(as_ints(&rows), [2, 3, 0, 0]);
    // Two indices pick points; one of them outside makes 0, though the sum would be inside.
    let (i, places) = at(I32, &[0, 1, 1]);
    let j = UOp::slot(2, I32, 3);
    let points = eval(
        &x.index(&[i, j]).unwrap(),
        &[data.clone(), places, ints(I32, &[1, 0, 2])],
    );
    assert_eq!(as_ints(&points), [1, 2, 0]);
    // A constant index of shape () drops the axis.
    let row = eval(
        &x.index(&[UOp::int(1, I32)]).unwrap(),
        std::slice::from_ref(&data),
    );
    assert_eq!((&row.shape()[..], as_ints(&row)), (&[2][..], vec![2, 3]));
    // Into an empty axis everything is outside; with no indices there is nothing.
    let empty = UOp::slot(2, F32, 0).reshape(&[0, 2]).unwrap();
    let (i, places) = at(I32, &[0]);
    let slots = [data.clone(), places, floats(F32, &[])];
    assert_eq!(
        eval(&empty.index(&[i]).unwrap(), &slots).to_f64(),
        [0.0, 0.0]
    );
    let (i, places) = at(I32, &[]);
    assert!(eval(&x.index(&[i]).unwrap(), &[data, places]).is_empty());
}

#[test]
fn elementwise_ops_mean_what_scalars_mean() {
    // Values of NumPy: np.float32(0.1) + np.float32(0.2) and so on.
    let (x, y) = (UOp::slot(0, F32, 3), UOp::slot(1, F32, 3));
    let slots = [
        floats(F32, &[0.1, -3.0, f64::NAN]),
        floats(F32, &[0.2, 0.0, 1.0]),
    ];
    let run = |u: Result<UOp>| eval(&u.unwrap(), &slots);
    let sum = run(x.add(&y));
    assert_eq!(sum.get(0), Scalar::f32(0.3));
    assert_eq!(sum.get(0).bits(), 0x3e99_999a);
    assert!(sum.get(2).is_nan());
    assert_eq!(run(x.div(&y)).get(1), Scalar::f32(f32::NEG_INFINITY));
    assert_eq!(run(x.mul(&y)).get(1), Scalar::f32(-0.0));
    assert_eq!(run(x.cmplt(&y)).to_f64(), [1.0, 1.0, 0.0]);
    assert_eq!(run(x.cmpne(&x)).to_f64(), [0.0, 0.0, 1.0]);
    assert_eq!(run(x.bitcast(U32)).get(2).bits(), 0x7fc0_0000);
    let chosen = run(x.cmplt(&y).and_then(|c| c.where_(&x, &y)));
    assert_eq!(chosen.to_f64()[1..], [-3.0, 1.0]);
    // A fused multiply-add keeps what a product would lose.
    let big = UOp::full(Scalar::f32(16_777_217f32), &Shape::new(&[1])).unwrap();
    let tiny = UOp::full(Scalar::f32(1.0 + f32::EPSILON), &Shape::new(&[1])).unwrap();
    let fused = eval(
        &tiny
            .mulacc(&tiny, &tiny.mul(&tiny).unwrap().neg().unwrap())
            .unwrap(),
        &[],
    );
    assert_eq!(fused.get(0), Scalar::f32(f32::EPSILON * f32::EPSILON));
    assert_eq!(
        eval(&big.cast(I32).unwrap(), &[]).get(0).as_i128(),
        16_777_216
    );
    let counted = eval(&UOp::iota(5, U8).unwrap(), &[]);
    assert_eq!(as_ints(&counted), [0, 1, 2, 3, 4]);
    let staged = x.stage(StageKind::Detach).unwrap();
    assert_eq!(eval(&staged, &slots).difference(&slots[0]), None);
}

#[test]
fn several_roots_share_work_and_may_repeat() {
    let x = UOp::slot(0, F32, 2);
    let y = x.add(&x).unwrap();
    let bind = |_: &UOp| Some(floats(F32, &[1.0, 2.0]));
    let values = graph::eval(&[y.clone(), x.clone(), y.mul(&y).unwrap(), y], &bind).unwrap();
    let values: Vec<Vec<f64>> = values.iter().map(Array::to_f64).collect();
    assert_eq!(values, [[2.0, 4.0], [1.0, 2.0], [4.0, 16.0], [2.0, 4.0]]);
    assert!(graph::eval(&[], &bind).unwrap().is_empty());
}

#[test]
fn a_chain_of_a_hundred_thousand_nodes_evaluates() {
    let mut x = UOp::slot(0, F32, 1);
    let one = UOp::full(Scalar::f32(1.0), x.shape()).unwrap();
    for _ in 0..100_000 {
        x = x.add(&one).unwrap();
    }
    assert_eq!(eval(&x, &[floats(F32, &[0.0])]).to_f64(), [100_000.0]);
}

#[test]
fn what_cannot_be_evaluated_is_an_error_that_says_so() {
    let text = |u: &UOp, slots: &[Array]| try_eval(u, slots).unwrap_err().to_string();
    let x = UOp::slot(0, F32, 2);
    assert!(text(&x, &[]).contains("has no contents; bind an array to it"));
    assert_eq!(
        text(&x, &[floats(F64, &[1.0, 2.0])]),
        "buffer: f32(2,) is bound to an array of f64(2,); they must agree"
    );
    let range = UOp::range(&UOp::int(3, I32), 0, Exec::Serial).unwrap();
    assert_eq!(
        text(&range, &[]),
        "shape graph: range belongs to loops; run it with them"
    );
}

#[test]
fn arrays_convert_to_bytes_and_back() {
    let mut rng = SmallRng::seed_from_u64(5);
    for dtype in DType::ALL {
        let bits = (0..9).map(|_| Scalar::from_bits(dtype, rng.random()));
        let x = Array::from_scalars(dtype, &[9], &bits.collect::<Vec<_>>()).unwrap();
        assert_eq!(x.to_bytes().len(), 9 * dtype.size());
        let back = Array::from_bytes(dtype, &[3, 3], &x.to_bytes()).unwrap();
        assert_eq!(back.reshaped(&[9]).unwrap().difference(&x), None);
    }
    assert!(Array::from_bytes(F32, &[1], &[0; 5]).is_err());
    assert!(Array::from_f64(F32, &[2], &[0.0; 3]).is_err());
    assert!(Array::from_scalars(F32, &[1], &[Scalar::one(F64)]).is_err());
    let (a, b) = (floats(F32, &[0.0, 1.0]), floats(F32, &[-0.0, 1.0]));
    assert_eq!(
        a.difference(&b).unwrap(),
        "element 0 of (2,): 0.0 (0x0) against -0.0 (0x80000000)"
    );
}
