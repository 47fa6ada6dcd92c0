//! The values of every function of tensors, against numbers worked out elsewhere.

mod tensors;

use tensors::functions::{EVERYWHERE, Function, POSITIVE};
use tensors::*;
use uopc::tensor::{Operand, Slice};
use uopc::{DType, Result, Tensor};

#[test]
fn functions_of_one_number_are_accurate() {
    let _engine = own_engine();
    let points: Vec<f32> = (0..400)
        .map(|k| (k as f32 - 200.0) / 25.0 + 0.013)
        .collect();
    let positive: Vec<f32> = points.iter().map(|x| x.exp()).collect();
    let mut todo: Vec<(&Function, &[f32], Tensor)> = Vec::new();
    for (functions, points) in [(EVERYWHERE, &points), (POSITIVE, &positive)] {
        let t = Tensor::from(&points[..]);
        todo.extend(
            functions
                .iter()
                .map(|f| (f, &points[..], (f.1)(&t).unwrap())),
        );
    }
    let tensors: Vec<&Tensor> = todo.iter().map(|(_, _, t)| t).collect();
    Tensor::realize_all(&tensors).unwrap();
    for (function, points, t) in &todo {
        for (x, y) in points.iter().zip(t.to_vec::<f32>().unwrap()) {
            let exact = (function.2)(*x as f64);
            let error = (y as f64 - exact).abs() / exact.abs().max(1e-6);
            // 4 units in the last place, and for gelu the rounding of its argument in the tail.
            let tolerance = if function.0 == "gelu" { 4e-6 } else { 5e-7 };
            assert!(error <= tolerance, "{}({x}) = {y}, not {exact}", function.0);
        }
    }
}

/// Integers go through the functions of real numbers as f32.
#[test]
fn integers_become_f32_where_results_are_real() {
    let _engine = own_engine();
    let t = Tensor::from([1i32, 4, 9]);
    for (name, f, exact) in POSITIVE.iter().filter(|f| !f.0.starts_with("pow -")) {
        let y = f(&t).unwrap();
        assert_eq!(y.dtype(), DType::F32, "{name}");
        let expected: Vec<f32> = [1.0, 4.0, 9.0].map(|x| exact(x) as f32).to_vec();
        close(&y.to_vec().unwrap(), &expected, 1e-6);
    }
    assert_eq!(t.div(2).unwrap().to_vec::<f32>().unwrap(), [0.5, 2.0, 4.5]);
    assert_eq!(t.pow(2).unwrap().to_vec::<i32>().unwrap(), [1, 16, 81]);
    assert_eq!(t.square().unwrap().to_vec::<i32>().unwrap(), [1, 16, 81]);
}

#[test]
fn limits_at_infinity_and_values_at_zero() {
    let _engine = own_engine();
    let inf = f32::INFINITY;
    let t = parameter(&[-inf, -1e30, 0.0, 1e30, inf], &[5]);
    // A name, the function, its values and its derivatives.
    type Case = (
        &'static str,
        fn(&Tensor) -> Result<Tensor>,
        [f32; 5],
        [f32; 5],
    );
    let cases: [Case; 6] = [
        (
            "sigmoid",
            |t| t.sigmoid(),
            [0.0, 0.0, 0.5, 1.0, 1.0],
            [0.0, 0.0, 0.25, 0.0, 0.0],
        ),
        (
            "tanh",
            |t| t.tanh(),
            [-1.0, -1.0, 0.0, 1.0, 1.0],
            [0.0, 0.0, 1.0, 0.0, 0.0],
        ),
        (
            "silu",
            |t| t.silu(),
            [0.0, 0.0, 0.0, 1e30, inf],
            [0.0, 0.0, 0.5, 1.0, 1.0],
        ),
        (
            "gelu",
            |t| t.gelu(),
            [0.0, 0.0, 0.0, 1e30, inf],
            [0.0, 0.0, 0.5, 1.0, 1.0],
        ),
        (
            "softplus",
            |t| t.softplus(),
            [0.0, 0.0, 2f32.ln(), 1e30, inf],
            [0.0, 0.0, 0.5, 1.0, 1.0],
        ),
        (
            "relu",
            |t| t.relu(),
            [0.0, 0.0, 0.0, 1e30, inf],
            [0.0, 0.0, 0.0, 1.0, 1.0],
        ),
    ];
    for (name, f, values, slopes) in cases {
        let y = f(&t).unwrap();
        close(&y.to_vec().unwrap(), &values, 1e-6);
        t.zero_grad();
        y.sum(..).unwrap().backward(&[&t]).unwrap();
        let found = gradient(&t);
        assert_eq!(found, slopes, "derivative of {name}");
    }
}

#[test]
fn small_arguments_keep_their_relative_accuracy() {
    let _engine = own_engine();
    let x: Vec<f32> = (1..60).map(|k| 10f32.powi(-k / 2) * 0.7).collect();
    let t = Tensor::from(&x[..]);
    for (y, x) in t.tanh().unwrap().to_vec::<f32>().unwrap().iter().zip(&x) {
        let exact = (*x as f64).tanh();
        assert!((*y as f64 / exact - 1.0).abs() < 2.5e-7, "tanh({x}) = {y}");
    }
}

#[test]
fn comparisons_beside_nan_and_integers() {
    let _engine = own_engine();
    let (a, b) = (
        Tensor::from([1.0f32, 2.0, f32::NAN]),
        Tensor::from([2.0f32, 2.0, 1.0]),
    );
    let truth = |t: Result<Tensor>| t.unwrap().to_vec::<bool>().unwrap();
    assert_eq!(truth(a.lt(&b)), [true, false, false]);
    assert_eq!(truth(a.le(&b)), [true, true, false]);
    assert_eq!(truth(a.gt(&b)), [false, false, false]);
    assert_eq!(truth(a.ge(&b)), [false, true, false]);
    assert_eq!(truth(a.eq(&b)), [false, true, false]);
    assert_eq!(truth(a.ne(&b)), [true, false, true]);
    assert_eq!(truth(a.gt(&b).unwrap().not()), [true, true, true]);
    assert_eq!(truth(Tensor::from([3u8, 4]).lt(4)), [true, false]);
}

#[test]
fn integer_arithmetic_rounds_down_and_wraps() {
    let _engine = own_engine();
    let (a, b) = (
        Tensor::from([7i32, -7, 7, -7, i32::MIN, 5]),
        Tensor::from([2i32, 2, -2, -2, -1, 0]),
    );
    let ints = |t: Result<Tensor>| t.unwrap().to_vec::<i32>().unwrap();
    assert_eq!(ints(a.floordiv(&b)), [3, -4, -4, 3, i32::MIN, 0]);
    assert_eq!(ints(a.floormod(&b)), [1, 1, -1, -1, 0, 0]);
    assert_eq!(ints(a.minimum(&b)), [2, -7, -2, -7, i32::MIN, 0]);
    assert_eq!(ints(a.maximum(&b)), [7, 2, 7, -2, -1, 5]);
    assert_eq!(ints(a.abs()), [7, 7, 7, 7, i32::MIN, 5]);
    assert_eq!(ints(a.neg())[4], i32::MIN);
    assert_eq!(ints(a.and(3)), [3, 1, 3, 1, 0, 1]);
    assert_eq!(ints(a.or(8)), [15, -7, 15, -7, i32::MIN + 8, 13]);
    assert_eq!(ints(a.xor(-1)), [-8, 6, -8, 6, i32::MAX, -6]);
    assert_eq!(ints(a.not()), [-8, 6, -8, 6, i32::MAX, -6]);
    let bytes = Tensor::from([1u8, 200]);
    assert_eq!(bytes.sub(2).unwrap().to_vec::<u8>().unwrap(), [255, 198]);
    assert_eq!(bytes.add(&bytes).unwrap().to_vec::<u8>().unwrap(), [2, 144]);
    assert_eq!(bytes.neg().unwrap().to_vec::<u8>().unwrap(), [255, 56]);
    assert_eq!(bytes.abs().unwrap().to_vec::<u8>().unwrap(), [1, 200]);
}

#[test]
fn dtypes_combine_as_documented() {
    let _engine = own_engine();
    let int = Tensor::from([1i32]);
    let dtype = |t: Result<Tensor>| t.unwrap().dtype();
    assert_eq!(dtype(int.add(1)), DType::I32);
    assert_eq!(dtype(int.add(1.0)), DType::F32);
    assert_eq!(dtype(int.div(1)), DType::F32);
    assert_eq!(dtype(int.add(Tensor::from([1i64]))), DType::I64);
    assert_eq!(dtype(int.add(Tensor::from([true]))), DType::I32);
    assert_eq!(dtype(Tensor::from([true]).add(1)), DType::I32);
    assert_eq!(dtype(Tensor::from([true]).add(true)), DType::Bool);
    assert_eq!(dtype(Tensor::from([1.0f64]).add(1.0f32)), DType::F64);
    let half = Tensor::from([half::f16::ONE]);
    assert_eq!(dtype(half.mul(0.1)), DType::F16);
    assert_eq!(dtype(half.add(&int)), DType::F16);
    assert_eq!(dtype(half.add(Tensor::from([half::bf16::ONE]))), DType::F32);
    assert_eq!(dtype((1.0 / &int).sum(..)), DType::F32);
}

#[test]
fn operators_are_the_methods() {
    let _engine = own_engine();
    let (a, b) = (Tensor::from([1.0f32, 2.0]), Tensor::from([3.0f32, 5.0]));
    let values = |t: Tensor| t.to_vec::<f32>().unwrap();
    assert_eq!(values(&a + &b), [4.0, 7.0]);
    assert_eq!(values(&a - b.clone()), [-2.0, -3.0]);
    assert_eq!(values(a.clone() * &b), [3.0, 10.0]);
    assert_eq!(values(b.clone() / a.clone()), [3.0, 2.5]);
    assert_eq!(values(-&a), [-1.0, -2.0]);
    assert_eq!(values(1 - &a), [0.0, -1.0]);
    assert_eq!(values(2.0 / a.clone()), [2.0, 1.0]);
    assert_eq!(values(&a + 1u8), [2.0, 3.0]);
    let (p, q) = (Tensor::from([true, false]), Tensor::from([true, true]));
    let truth = |t: Tensor| t.to_vec::<bool>().unwrap();
    assert_eq!(truth(&p & &q), [true, false]);
    assert_eq!(truth(&p | &q), [true, true]);
    assert_eq!(truth(&p ^ &q), [false, true]);
    assert_eq!(truth(!p), [false, true]);
}

#[test]
fn casts_follow_the_scalar_rules() {
    let _engine = own_engine();
    let t = Tensor::from([-1.9f32, 300.0, f32::NAN, 0.0]);
    assert_eq!(
        t.cast(DType::U8).unwrap().to_vec::<u8>().unwrap(),
        [0, 255, 0, 0]
    );
    assert_eq!(
        t.cast(DType::I32).unwrap().to_vec::<i32>().unwrap(),
        [-1, 300, 0, 0]
    );
    assert_eq!(
        t.cast(DType::Bool).unwrap().to_vec::<bool>().unwrap(),
        [true, true, true, false]
    );
    assert_eq!(
        t.trunc().unwrap().to_vec::<f32>().unwrap()[..2],
        [-1.0, 300.0]
    );
}

/// 2 x 3 x 4 numbers with a repeated maximum, as f32.
fn block() -> Tensor {
    let values: Vec<f32> = (0..24).map(|k| ((k * 7 + 3) % 11) as f32 - 4.0).collect();
    Tensor::from_slice(&values, [2, 3, 4]).unwrap()
}

/// Values by NumPy on the same block.
#[test]
fn reductions_along_axes() {
    let _engine = own_engine();
    let t = block();
    let f = |t: Result<Tensor>| t.unwrap().to_vec::<f32>().unwrap();
    assert_eq!(f(t.sum(..)), [27.0]);
    assert_eq!(f(t.sum(-3)), f(t.sum([0])));
    assert_eq!(f(t.sum([0, 2])), f(t.sum(2).unwrap().sum(0)));
    assert_eq!(t.sum_keepdim([0, 2]).unwrap().shape()[..], [1, 3, 1]);
    assert_eq!(t.sum([-1, 0]).unwrap().shape()[..], [3]);
    assert_eq!(f(t.sum_keepdim(1)), f(t.sum(1)));
    let x = t.to_vec::<f32>().unwrap();
    let row = |i: usize, j: usize| &x[i * 12 + j * 4..][..4];
    let rows: Vec<&[f32]> = (0..6).map(|k| row(k / 3, k % 3)).collect();
    let by_row = |g: &dyn Fn(&[f32]) -> f32| rows.iter().map(|r| g(r)).collect::<Vec<f32>>();
    let mean = |r: &[f32]| r.iter().sum::<f32>() / 4.0;
    assert_eq!(f(t.mean(2)), by_row(&mean));
    assert_eq!(
        f(t.max(2)),
        by_row(&|r| r.iter().copied().fold(f32::MIN, f32::max))
    );
    assert_eq!(
        f(t.min(-1)),
        by_row(&|r| r.iter().copied().fold(f32::MAX, f32::min))
    );
    assert_eq!(f(t.prod(2)), by_row(&|r| r.iter().product()));
    let var = |r: &[f32]| r.iter().map(|v| (v - mean(r)).powi(2)).sum::<f32>() / 4.0;
    assert_eq!(f(t.var(2)), by_row(&var));
    let softmax: Vec<f32> = (rows.iter())
        .flat_map(|r| {
            let total: f64 = r.iter().map(|v| (*v as f64).exp()).sum();
            r.iter().map(move |v| ((*v as f64).exp() / total) as f32)
        })
        .collect();
    close(&f(t.softmax(-1)), &softmax, 3e-7);
    let logs: Vec<f32> = softmax.iter().map(|p| p.ln()).collect();
    close(&f(t.log_softmax(-1)), &logs, 1e-6);
    assert_eq!(
        t.argmax(-1).unwrap().to_vec::<i64>().unwrap(),
        [1, 0, 2, 0, 2, 3]
    );
    assert_eq!(
        t.argmin(-1).unwrap().to_vec::<i64>().unwrap(),
        [3, 2, 1, 2, 1, 0]
    );
}

#[test]
fn reductions_of_other_dtypes_have_room() {
    let _engine = own_engine();
    let bools = Tensor::from([true, true, false]);
    assert_eq!(bools.sum(..).unwrap().to_vec::<i32>().unwrap(), [2]);
    assert_eq!(
        bools.mean(..).unwrap().item().unwrap(),
        (2.0f32 / 3.0) as f64
    );
    assert_eq!(bools.max(..).unwrap().to_vec::<bool>().unwrap(), [true]);
    assert_eq!(bools.min(..).unwrap().to_vec::<bool>().unwrap(), [false]);
    let bytes = Tensor::from([200u8, 100]);
    assert_eq!(bytes.sum(..).unwrap().to_vec::<u32>().unwrap(), [300]);
    assert_eq!(bytes.min(..).unwrap().to_vec::<u8>().unwrap(), [100]);
    let ints = Tensor::from([i32::MIN, 5]);
    assert_eq!(ints.min(..).unwrap().to_vec::<i32>().unwrap(), [i32::MIN]);
    let halves = Tensor::from_slice(&[half::f16::from_f32(60000.0); 4], [4]).unwrap();
    assert_eq!(
        halves.mean(..).unwrap().item().unwrap(),
        60000.0,
        "no overflow on the way"
    );
    assert_eq!(halves.var(..).unwrap().item().unwrap(), 0.0);
}

#[test]
fn softmax_of_extreme_rows() {
    let _engine = own_engine();
    let inf = f32::INFINITY;
    let rows = [
        [1e30f32, 1e30, -1e30],
        [-1e30, -1e30, -1e30],
        [-inf, 0.0, -inf],
        [-inf, -inf, -inf],
    ];
    let t = Tensor::from(rows);
    let found = t.softmax(-1).unwrap().to_vec::<f32>().unwrap();
    let third = 1.0 / 3.0;
    close(
        &found[..9],
        &[0.5, 0.5, 0.0, third, third, third, 0.0, 1.0, 0.0],
        1e-6,
    );
    assert!(
        found[9..].iter().all(|v| v.is_nan()),
        "a row of -inf has no softmax: {found:?}"
    );
    let logs = t.log_softmax(-1).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(logs[6..9], [-inf, 0.0, -inf]);
}

#[test]
fn cross_entropy_of_impossible_classes_and_unknown_labels() {
    let _engine = own_engine();
    let logits = parameter(&[0.0, f32::NEG_INFINITY, 1.0, 2.0], &[2, 2]);
    let loss = logits.cross_entropy(&Tensor::from([0i32, 1])).unwrap();
    let expected = (1.0 + (-1f64).exp()).ln() / 2.0;
    assert!((loss.item().unwrap() - expected).abs() < 1e-7);
    loss.backward(&[&logits]).unwrap();
    assert!(
        gradient(&logits).iter().all(|g| g.is_finite()),
        "{:?}",
        gradient(&logits)
    );
    for bad in [-1, 2] {
        let loss = logits.cross_entropy(&Tensor::from([0i32, bad])).unwrap();
        assert!(loss.item().unwrap().is_nan(), "label {bad} is no class");
    }
    let labels = Tensor::from([3u8, 200]);
    let hot = labels.one_hot(300).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(
        (hot[3], hot[300 + 200], hot.iter().sum::<f32>()),
        (1.0, 1.0, 2.0)
    );
}

#[test]
fn movement_and_parts() {
    let _engine = own_engine();
    let t = Tensor::arange(24).unwrap().reshape([2, 3, 4]).unwrap();
    let ints = |t: Result<Tensor>| t.unwrap().to_vec::<i32>().unwrap();
    let shape = |t: &Result<Tensor>| t.as_ref().unwrap().shape().to_vec();
    assert_eq!(t.reshape([-1, 6]).unwrap().shape()[..], [4, 6]);
    assert_eq!(ints(t.permute([2, 0, 1]))[..7], [0, 4, 8, 12, 16, 20, 1]);
    assert_eq!(t.permute([-1, 0, 1]).unwrap().shape()[..], [4, 2, 3]);
    assert_eq!(ints(t.transpose())[..4], [0, 4, 8, 1]);
    assert_eq!(t.swap_axes(0, -1).unwrap().shape()[..], [4, 3, 2]);
    assert_eq!(
        ints(
            Tensor::from([1i32, 2])
                .unsqueeze(-1)
                .unwrap()
                .expand([3, -1, 2])
        )[..4],
        [1, 1, 2, 2]
    );
    assert_eq!(
        t.unsqueeze(0).unwrap().squeeze(..).unwrap().shape()[..],
        [2, 3, 4]
    );
    assert_eq!(shape(&t.unsqueeze(1).unwrap().squeeze(1)), [2, 3, 4]);
    let small = Tensor::from([[1i32, 2], [3, 4]]);
    assert_eq!(
        ints(small.pad([(0, 1), (1, 0)])),
        [0, 1, 2, 0, 3, 4, 0, 0, 0]
    );
    assert_eq!(ints(small.shrink([(1, 2), (0, 2)])), [3, 4]);
    assert_eq!(ints(small.flip(0)), [3, 4, 1, 2]);
    assert_eq!(ints(small.flip([0, 1])), [4, 3, 2, 1]);
    let other = Tensor::from([[5i32, 6]]);
    assert_eq!(ints(Tensor::cat(&[&small, &other], 0)), [1, 2, 3, 4, 5, 6]);
    let wide = Tensor::cat(&[&small, &small.flip(1).unwrap()], -1);
    assert_eq!(ints(wide), [1, 2, 2, 1, 3, 4, 4, 3]);
    assert_eq!(
        ints(Tensor::stack(&[&small, &small], -1)),
        [1, 1, 2, 2, 3, 3, 4, 4]
    );
    assert_eq!(shape(&small.stack_with(&small)), [2, 2, 2]);

    assert_eq!(ints(t.get(1).unwrap().get(-1)), [20, 21, 22, 23]);
    assert_eq!(ints(t.slice((1, 2, 3))), [23]);
    assert_eq!(ints(t.slice((.., 1, 1..3))), [5, 6, 17, 18]);
    assert_eq!(ints(t.slice((0, ..=1, -1))), [3, 7]);
    assert_eq!(ints(t.slice((-1, -2.., ..1))), [16, 20]);
    assert_eq!(ints(t.narrow(2, 1..2).unwrap().narrow(0, 0..1)), [1, 5, 9]);
    assert_eq!(
        ints(Tensor::arange(7).unwrap().slice(Slice::Every(3))),
        [0, 3, 6]
    );
    assert_eq!(
        ints(Tensor::arange(7).unwrap().slice(Slice::Every(-2))),
        [6, 4, 2, 0]
    );
    let rows = small.take(&Tensor::from([[1i64, -2], [0, 9]]));
    assert_eq!(shape(&rows), [2, 2, 2]);
    assert_eq!(ints(rows), [3, 4, 1, 2, 1, 2, 0, 0]);
    assert_eq!(
        Tensor::from([1i32, 5])
            .one_hot(2)
            .unwrap()
            .to_vec::<f32>()
            .unwrap(),
        [0.0, 1.0, 0.0, 0.0]
    );
}

#[test]
fn products_of_matrices() {
    let _engine = own_engine();
    let a = Tensor::arange(12).unwrap().reshape([2, 2, 3]).unwrap();
    let b = Tensor::arange(6).unwrap().reshape([3, 2]).unwrap();
    let ints = |t: Result<Tensor>| t.unwrap().to_vec::<i32>().unwrap();
    assert_eq!(ints(a.matmul(&b)), [10, 13, 28, 40, 46, 67, 64, 94]);
    let batched = a.matmul(&a.transpose().unwrap());
    assert_eq!(ints(batched), [5, 14, 14, 50, 149, 212, 212, 302]);
    let many = a.unsqueeze(1).unwrap().matmul(&a.transpose().unwrap());
    assert_eq!(many.unwrap().shape()[..], [2, 2, 2, 2]);
    let v = Tensor::from([1i32, 0, 2]);
    assert_eq!(ints(b.transpose().unwrap().matmul(&v)), [8, 11]);
    assert_eq!(ints(v.matmul(&b)), [8, 11]);
    assert_eq!(ints(v.matmul(&v)), [5]);
    assert_eq!(v.matmul(&v).unwrap().rank(), 0);
    assert_eq!(
        a.matmul(&b.cast(DType::F32).unwrap()).unwrap().dtype(),
        DType::F32
    );
}

#[test]
fn constants_and_sequences() {
    let _engine = own_engine();
    assert_eq!(
        Tensor::zeros([2, 2]).unwrap().to_vec::<f32>().unwrap(),
        [0.0; 4]
    );
    assert_eq!(Tensor::ones(()).unwrap().item().unwrap(), 1.0);
    assert_eq!(
        Tensor::full([2], 7).unwrap().to_vec::<i32>().unwrap(),
        [7, 7]
    );
    assert_eq!(
        Tensor::full([2], true).unwrap().to_vec::<bool>().unwrap(),
        [true, true]
    );
    assert_eq!(Tensor::scalar(2.5).unwrap().to_vec::<f32>().unwrap(), [2.5]);
    assert_eq!(
        Tensor::from([1u8])
            .zeros_like()
            .unwrap()
            .to_vec::<u8>()
            .unwrap(),
        [0]
    );
    assert_eq!(
        Tensor::arange(3).unwrap().to_vec::<i32>().unwrap(),
        [0, 1, 2]
    );
    let halves = Tensor::arange_from(1, 2.5, 0.5).unwrap();
    assert_eq!(halves.to_vec::<f32>().unwrap(), [1.0, 1.5, 2.0]);
    assert_eq!(
        Tensor::arange_from(5, 0, -2)
            .unwrap()
            .to_vec::<i32>()
            .unwrap(),
        [5, 3, 1]
    );
    assert_eq!(Tensor::arange_from(0, -1, 1).unwrap().numel(), 0);
}

#[test]
fn constructors_in_a_dtype_of_choice() {
    let _engine = own_engine();
    let far = Tensor::full_as(DType::U64, [2], u64::MAX).unwrap();
    assert_eq!(far.to_vec::<u64>().unwrap(), [u64::MAX; 2]);
    assert!(Tensor::full_as(DType::U8, [2], 256).is_err());
    let down = Tensor::arange_as(DType::U8, 5, -1, -2).unwrap();
    assert_eq!(down.to_vec::<u8>().unwrap(), [5, 3, 1]);
    let wide = Tensor::arange_as(DType::I8, -128, 128, 255).unwrap();
    assert_eq!(wide.to_vec::<i8>().unwrap(), [-128, 127]);
    let huge = Tensor::arange_as(DType::U64, 0, u64::MAX, u64::MAX - 1).unwrap();
    assert_eq!(huge.to_vec::<u64>().unwrap(), [0, u64::MAX - 1]);
    let floats = Tensor::arange_as(DType::F64, 3, 0, -1).unwrap();
    assert_eq!(floats.to_vec::<f64>().unwrap(), [3.0, 2.0, 1.0]);
    let quarters = Tensor::arange_as(DType::F64, 0.0, 0.5, 0.25).unwrap();
    assert_eq!(quarters.to_vec::<f64>().unwrap(), [0.0, 0.25]);
    for [start, stop, step] in [[0, 1, 0], [i128::MIN, i128::MAX, 1], [0, 2, i128::MIN]] {
        let bounds = [start, stop, step].map(Operand::Int);
        let [start, stop, step] = &bounds;
        assert!(Tensor::arange_as(DType::I64, start, stop, step).is_err());
    }
    assert!(Tensor::arange_as(DType::U8, 0, 300, 1).is_err());
    assert!(Tensor::arange_as(DType::I32, 0, true, 1).is_err());
    for dtype in [DType::F16, DType::F64] {
        assert_eq!(Tensor::randn_as(dtype, [3]).unwrap().dtype(), dtype);
        assert_eq!(
            Tensor::uniform_as(dtype, [3], 0.0, 1.0).unwrap().dtype(),
            dtype
        );
    }
    assert!(Tensor::randn_as(DType::I32, [3]).is_err());
}

#[test]
fn the_variance_of_a_sample_and_joined_axes() {
    let _engine = own_engine();
    let x = Tensor::from([[1.0f32, 3.0], [2.0, 8.0]]);
    let rows = x.var_corrected(1, 1.0).unwrap();
    assert_eq!(rows.to_vec::<f32>().unwrap(), [2.0, 18.0]);
    assert_eq!(x.var_corrected_keepdim(1, 1.0).unwrap().shape()[..], [2, 1]);
    assert!(
        x.get(0)
            .unwrap()
            .get(0)
            .unwrap()
            .var_corrected(.., 1.0)
            .unwrap()
            .item()
            .unwrap()
            .is_nan()
    );
    let shape = |t: Tensor| t.shape().to_vec();
    let t = Tensor::zeros([2, 3, 4]).unwrap();
    assert_eq!(shape(t.flatten(0, -1).unwrap()), [24]);
    assert_eq!(shape(t.flatten(0, 1).unwrap()), [6, 4]);
    assert_eq!(shape(t.flatten(2, 2).unwrap()), [2, 3, 4]);
    assert_eq!(
        shape(Tensor::scalar(1.0).unwrap().flatten(0, -1).unwrap()),
        [1]
    );
    assert!(t.flatten(1, 0).is_err() && t.flatten(0, 3).is_err());
}

#[test]
fn text_of_tensors() {
    let _engine = own_engine();
    let shown = |t: Tensor| t.to_string();
    assert_eq!(
        shown(Tensor::scalar(2).unwrap()),
        "tensor(2, shape=(), dtype=i32)"
    );
    let t = Tensor::from([[1.0f32, -2.5], [0.125, 100.0]]);
    let expected = "\
tensor([[  1.000,  -2.500],
        [  0.125, 100.000]], shape=(2, 2), dtype=f32)";
    assert_eq!(shown(t), expected);
    let expected = "tensor([1., nan, inf], shape=(3,), dtype=f32)".replace("1.,", " 1.,");
    assert_eq!(
        shown(Tensor::from([1.0f32, f32::NAN, f32::INFINITY])),
        expected
    );
    let expected = "tensor([1.0000e+00, 2.5000e-07], shape=(2,), dtype=f64)";
    assert_eq!(shown(Tensor::from([1.0, 2.5e-7])), expected);
    assert_eq!(
        shown(Tensor::from([true, false])),
        "tensor([ true, false], shape=(2,), dtype=bool)"
    );
    assert_eq!(
        shown(Tensor::zeros([0, 3]).unwrap()),
        "tensor([], shape=(0, 3), dtype=f32)"
    );
    let long = shown(Tensor::arange(2000).unwrap());
    assert_eq!(
        long,
        "tensor([   0,    1,    2, ..., 1997, 1998, 1999], shape=(2000,), dtype=i32)"
    );
    let lazy = Tensor::from([1.0f32]).exp().unwrap();
    assert_eq!(format!("{lazy:?}"), "Tensor(exp, shape=(1,), dtype=f32)");
    let p = parameter(&[1.0], &[1]);
    assert_eq!(
        format!("{p:?}"),
        "Tensor(buffer, shape=(1,), dtype=f32, needs_grad)"
    );
}
