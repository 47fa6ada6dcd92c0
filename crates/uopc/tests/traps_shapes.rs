//! Faults that shapes, views and host arrays are known for, each as a named test on tensors.

mod tensors;

use std::sync::Arc;

use ndarray::{Array, Array1, Array2, ArrayD, Axis, ShapeBuilder, s};
use tensors::*;
use uopc::compile::Engine;
use uopc::debug::Settings;
use uopc::tensor::with_engine;
use uopc::{DType, Result, Tensor};

fn zero_size(shape: &[usize]) -> Tensor {
    Tensor::from_slice(&[] as &[f32], shape).unwrap()
}

fn values(t: Result<Tensor>) -> Vec<f32> {
    t.unwrap().to_vec().unwrap()
}

// ---- zero-size and 0-d ----

#[test]
fn products_with_an_empty_axis() {
    let _engine = own_engine();
    let product = |a: &[usize], b: &[usize]| zero_size(a).matmul(&zero_size(b)).unwrap();
    let t = product(&[2, 0], &[0, 3]);
    assert_eq!(t.to_vec::<f32>().unwrap(), [0.0; 6], "an empty sum is 0");
    assert_eq!(product(&[0, 0], &[0, 3]).shape()[..], [0, 3]);
    let t = zero_size(&[0, 4])
        .matmul(&Tensor::ones([4, 2]).unwrap())
        .unwrap();
    assert_eq!(
        (t.shape()[..].to_vec(), t.to_vec::<f32>().unwrap()),
        (vec![0, 2], vec![])
    );
    let t = zero_size(&[5, 0, 4])
        .matmul(&Tensor::ones([4, 2]).unwrap())
        .unwrap();
    assert_eq!(t.shape()[..], [5, 0, 2]);
    assert_eq!(values(zero_size(&[0]).matmul(&zero_size(&[0]))), [0.0]);
}

#[test]
fn reductions_of_nothing() {
    let _engine = own_engine();
    let t = zero_size(&[2, 0]);
    assert_eq!(values(t.sum(1)), [0.0, 0.0]);
    assert_eq!(values(t.sum(..)), [0.0]);
    assert_eq!(values(t.prod(1)), [1.0, 1.0]);
    assert_eq!(values(t.max(1)), [f32::NEG_INFINITY; 2]);
    assert_eq!(values(t.min(1)), [f32::INFINITY; 2]);
    assert!(values(t.mean(1)).iter().all(|v| v.is_nan()), "0 / 0");
    assert!(values(t.var(..))[0].is_nan());
    assert_eq!(values(t.sum(0)), [0f32; 0]);
    assert_eq!(t.softmax(1).unwrap().to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!(t.sum_keepdim([0, 1]).unwrap().shape()[..], [1, 1]);
    let ints = Tensor::from_slice(&[] as &[i32], [0]).unwrap();
    assert_eq!(ints.max(..).unwrap().to_vec::<i32>().unwrap(), [i32::MIN]);
    assert_eq!(ints.min(..).unwrap().to_vec::<i32>().unwrap(), [i32::MAX]);
}

#[test]
fn parts_and_joins_of_nothing() {
    let _engine = own_engine();
    let (t, row) = (zero_size(&[0, 2]), Tensor::from([[1.0f32, 2.0]]));
    assert_eq!(values(Tensor::cat(&[&t, &row, &t], 0)), [1.0, 2.0]);
    assert_eq!(Tensor::cat(&[&t, &t], 0).unwrap().shape()[..], [0, 2]);
    assert_eq!(Tensor::stack(&[&t, &t], 0).unwrap().shape()[..], [2, 0, 2]);
    assert_eq!(values(t.pad([(1, 1), (0, 1)])), [0.0; 6]);
    assert_eq!(row.slice((1..1, ..)).unwrap().shape()[..], [0, 2]);
    assert_eq!(t.flip(0).unwrap().shape()[..], [0, 2]);
    assert_eq!(t.transpose().unwrap().shape()[..], [2, 0]);
    assert_eq!(t.reshape([0, 7]).unwrap().shape()[..], [0, 7]);
    assert_eq!(t.expand([3, 0, 2]).unwrap().shape()[..], [3, 0, 2]);
    assert_eq!((&t + 1.0).to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!(
        row.take(&Tensor::from_slice(&[] as &[i32], [0]).unwrap())
            .unwrap()
            .shape()[..],
        [0, 2]
    );
    let labels = Tensor::from_slice(&[] as &[i32], [0]).unwrap();
    assert_eq!(labels.one_hot(3).unwrap().shape()[..], [0, 3]);
    assert_eq!(labels.one_hot(0).unwrap().shape()[..], [0, 0]);
    assert!(
        t.cross_entropy(&labels).unwrap().item().unwrap().is_nan(),
        "a mean of nothing"
    );
    assert_eq!(
        Tensor::randn([0, 3]).unwrap().to_vec::<f32>().unwrap(),
        [0f32; 0]
    );
}

#[test]
fn gradients_of_nothing_and_through_nothing() {
    let _engine = own_engine();
    let w = zero_size(&[0, 3]).requires_grad().unwrap();
    let loss = w.square().unwrap().sum(..).unwrap();
    assert_eq!(loss.item().unwrap(), 0.0);
    loss.backward(&[&w]).unwrap();
    assert_eq!(w.grad().unwrap().shape()[..], [0, 3]);
    assert_eq!(gradient(&w), [0f32; 0]);

    let v = parameter(&[1.0; 6], &[3, 2]);
    let through = zero_size(&[0, 3]).matmul(&v).unwrap().sum(..).unwrap();
    through.backward(&[&v]).unwrap();
    assert_eq!(gradient(&v), [0.0; 6]);
    v.zero_grad();
    v.max(..)
        .unwrap()
        .add(v.slice((0..0, ..)).unwrap().sum(..).unwrap())
        .unwrap()
        .backward(&[&v])
        .unwrap();
    close(&gradient(&v), &[1.0 / 6.0; 6], 1e-7);
}

#[test]
fn scalars_go_everywhere() {
    let _engine = own_engine();
    let x = parameter(&[2.0], &[]);
    assert_eq!((x.rank(), x.numel()), (0, 1));
    assert_eq!(x.item().unwrap(), 2.0);
    assert_eq!(values(x.sum(..)), [2.0]);
    assert_eq!(values(x.max(..)), [2.0]);
    assert_eq!(values(x.mean(..)), [2.0]);
    assert_eq!(values(x.var(..)), [0.0]);
    assert_eq!(values(x.transpose()), [2.0]);
    assert_eq!(values(x.permute([] as [i32; 0])), [2.0]);
    assert_eq!(values(x.reshape([1, 1])), [2.0]);
    assert_eq!(x.unsqueeze(0).unwrap().shape()[..], [1]);
    assert_eq!(values(x.expand([3])), [2.0; 3]);
    assert_eq!(values(Tensor::stack(&[&x, &x], 0)), [2.0, 2.0]);
    assert_eq!(values(x.flip([] as [i32; 0])), [2.0]);
    assert_eq!(values(x.pad([])), [2.0]);
    assert_eq!(values(x.add(Tensor::from([1.0f32, 2.0]))), [3.0, 4.0]);
    assert_eq!(
        Tensor::scalar(3)
            .unwrap()
            .one_hot(4)
            .unwrap()
            .to_vec::<f32>()
            .unwrap(),
        [0.0, 0.0, 0.0, 1.0]
    );
    x.pow(3).unwrap().backward(&[&x]).unwrap();
    assert_eq!(gradient(&x), [12.0]);
    let label = Tensor::scalar(1).unwrap();
    let loss = Tensor::from([0.0f32, 0.0]).cross_entropy(&label).unwrap();
    assert!((loss.item().unwrap() - 2f64.ln()).abs() < 1e-7);
}

// ---- axes ----

#[test]
fn argmax_takes_the_first_of_equals_and_of_nans() {
    let _engine = own_engine();
    let position = |x: &[f32]| Tensor::from(x).argmax(0).unwrap().item().unwrap();
    assert_eq!(position(&[1.0, 3.0, 3.0]), 1.0);
    assert_eq!(position(&[2.0]), 0.0);
    assert_eq!(position(&[f32::NEG_INFINITY; 3]), 0.0);
    assert_eq!(position(&[1.0, f32::NAN, 9.0, f32::NAN]), 1.0);
    assert_eq!(position(&[-0.0, 0.0]), 0.0, "the zeros are equal");
    let t = Tensor::from([[true, true], [false, true]]);
    assert_eq!(t.argmax(-1).unwrap().to_vec::<i64>().unwrap(), [0, 1]);
    assert_eq!(t.argmin(0).unwrap().to_vec::<i64>().unwrap(), [1, 0]);
    let column = Tensor::from([[1.0f32], [2.0]]);
    assert_eq!(column.argmax(1).unwrap().to_vec::<i64>().unwrap(), [0, 0]);
    let ints = Tensor::from([i64::MIN, i64::MAX, i64::MIN]);
    assert_eq!(ints.argmin(0).unwrap().item().unwrap(), 0.0);
}

#[test]
fn permutations_that_are_not_their_own_inverse() {
    let _engine = own_engine();
    let t = parameter(&(0..24).map(|k| k as f32).collect::<Vec<_>>(), &[2, 3, 4]);
    let turned = t.permute([1, 2, 0]).unwrap();
    let array = t.to_ndarray::<f32>().unwrap().permuted_axes(vec![1, 2, 0]);
    assert_eq!(turned.to_ndarray::<f32>().unwrap(), array);
    let weights = Tensor::arange(24).unwrap().reshape([3, 4, 2]).unwrap();
    (turned * &weights)
        .sum(..)
        .unwrap()
        .backward(&[&t])
        .unwrap();
    let back = weights
        .cast(DType::F32)
        .unwrap()
        .to_ndarray::<f32>()
        .unwrap()
        .permuted_axes(vec![2, 0, 1]);
    assert_eq!(t.grad().unwrap().to_ndarray::<f32>().unwrap(), back);
}

#[test]
fn size_one_axes_broadcast_and_sum_back() {
    let _engine = own_engine();
    let a = parameter(&[1.0, 2.0], &[2, 1]);
    let b = parameter(&[10.0, 20.0, 30.0], &[1, 3]);
    let c = parameter(&[100.0], &[]);
    let sum = &a + &b + &c;
    assert_eq!(
        sum.to_vec::<f32>().unwrap(),
        [111.0, 121.0, 131.0, 112.0, 122.0, 132.0]
    );
    sum.sum(..).unwrap().backward(&[&a, &b, &c]).unwrap();
    assert_eq!(
        (gradient(&a), gradient(&b), gradient(&c)),
        (vec![3.0; 2], vec![2.0; 3], vec![6.0])
    );
}

/// Pads, windows, reversals and merged axes on top of each other, against ndarray.
#[test]
fn views_of_views() {
    let _engine = own_engine();
    let array = Array::from_iter((0..60).map(|k| k as f32))
        .into_shape_with_order((3, 4, 5))
        .unwrap();
    let t = Tensor::from_ndarray(&array).unwrap();
    let mut padded = Array::zeros((4, 4, 8));
    padded.slice_mut(s![..3, .., 2..7]).assign(&array);
    let steps = padded.slice(s![1..;-1, 1..3, ..;3]).to_owned();
    let flat = steps
        .permuted_axes([2, 0, 1])
        .as_standard_layout()
        .into_owned();
    let expected: Vec<f32> = flat.iter().copied().collect();

    use uopc::tensor::Slice::{Between, Every};
    let found = t.pad([(0, 1), (0, 0), (2, 1)]).unwrap();
    let found = found
        .slice([Between(Some(1), None), Between(Some(1), Some(3)), Every(3)])
        .unwrap();
    let found = found
        .slice([Every(-1)])
        .unwrap()
        .permute([2, 0, 1])
        .unwrap()
        .reshape([-1]);
    assert_eq!(values(found), expected);

    let merged = t
        .transpose()
        .unwrap()
        .reshape([15, 4])
        .unwrap()
        .flip(0)
        .unwrap()
        .reshape([3, 20]);
    let mut rows = array
        .permuted_axes([0, 2, 1])
        .as_standard_layout()
        .into_owned()
        .into_shape_with_order((15, 4))
        .unwrap();
    rows.invert_axis(Axis(0));
    let expected: Vec<f32> = rows.iter().copied().collect();
    assert_eq!(values(merged), expected);
}

// ---- host arrays ----

#[test]
fn arrays_of_any_layout() {
    let _engine = own_engine();
    let array = Array2::from_shape_vec((2, 3), vec![1i32, 2, 3, 4, 5, 6]).unwrap();
    let ints = |t: Result<Tensor>| t.unwrap().to_vec::<i32>().unwrap();
    assert_eq!(ints(Tensor::from_ndarray(&array)), [1, 2, 3, 4, 5, 6]);
    assert_eq!(ints(Tensor::from_ndarray(&array.t())), [1, 4, 2, 5, 3, 6]);
    assert_eq!(
        ints(Tensor::from_ndarray(&array.slice(s![.., ..;-2]))),
        [3, 1, 6, 4]
    );
    let fortran = Array2::from_shape_vec((2, 3).f(), vec![1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(ints(Tensor::from_ndarray(&fortran)), [1, 3, 5, 2, 4, 6]);
    let repeated = Array1::from(vec![7, 8]);
    let repeated = repeated.broadcast((2, 2)).unwrap();
    assert_eq!(
        ints(Tensor::from_ndarray(&repeated)),
        [7, 8, 7, 8],
        "stride 0"
    );
    let scalar = ndarray::arr0(5);
    assert_eq!(Tensor::from_ndarray(&scalar).unwrap().rank(), 0);
    let empty: ArrayD<i32> = ArrayD::zeros(vec![0, 3]);
    assert_eq!(
        Tensor::from_ndarray(&empty)
            .unwrap()
            .to_ndarray::<i32>()
            .unwrap(),
        empty
    );
    let back = Tensor::from_ndarray(&array).unwrap().transpose().unwrap();
    assert_eq!(back.to_ndarray::<i32>().unwrap(), array.t().into_dyn());
}

#[test]
fn a_later_change_of_the_callers_array_does_not_reach_the_tensor() {
    let _engine = own_engine();
    let mut array = Array1::from(vec![1.0f32, 2.0]);
    let t = Tensor::from_ndarray(&array).unwrap();
    let doubled = &t * 2;
    array[0] = 100.0;
    assert_eq!(doubled.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    assert_eq!(t.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn every_element_type_comes_back() {
    let _engine = own_engine();
    fn there_and_back<T: uopc::tensor::Element + PartialEq + std::fmt::Debug>(values: &[T]) {
        let t = Tensor::from_slice(values, [values.len()]).unwrap();
        assert_eq!(t.dtype(), T::DTYPE);
        assert_eq!(t.to_vec::<T>().unwrap(), values);
        let through = t
            .reshape([1, -1])
            .unwrap()
            .flip(1)
            .unwrap()
            .flip(1)
            .unwrap();
        assert_eq!(through.to_vec::<T>().unwrap(), values, "through a kernel");
    }
    there_and_back(&[true, false, true]);
    there_and_back(&[i8::MIN, 0, i8::MAX]);
    there_and_back(&[i16::MIN, 0, i16::MAX]);
    there_and_back(&[i32::MIN, 0, i32::MAX]);
    there_and_back(&[i64::MIN, 0, i64::MAX]);
    there_and_back(&[0, 1, u8::MAX]);
    there_and_back(&[0, 1, u16::MAX]);
    there_and_back(&[0, 1, u32::MAX]);
    there_and_back(&[0, 1, u64::MAX]);
    there_and_back(&[
        half::f16::MIN,
        half::f16::from_f32(-0.0),
        half::f16::INFINITY,
    ]);
    there_and_back(&[
        half::bf16::MIN,
        half::bf16::from_f32(1e-40),
        half::bf16::INFINITY,
    ]);
    there_and_back(&[f32::MIN, 1e-45, f32::INFINITY]);
    there_and_back(&[f64::MIN, 5e-324, f64::INFINITY]);
}

// ---- graphs ----

#[test]
fn a_product_of_many_tensors_and_a_long_chain_are_built_and_dropped() {
    let _engine = own_engine();
    let mut t = parameter(&[1.0], &[1]);
    let start = t.clone();
    for _ in 0..20_000 {
        t = t.mul(1.0).unwrap();
    }
    let loss = t.sum(..).unwrap();
    loss.backward(&[&start]).unwrap();
    drop(loss);
    start.zero_grad();
}

#[test]
fn four_threads_compute_the_same_tensor() {
    let engine = Arc::new(Engine::new(Settings::default()).unwrap());
    let x = Tensor::from([1.0f32, 2.0]);
    let y = (&x * 3.0).exp().unwrap();
    let expected = with_engine(&engine, || {
        (&x * 3.0).exp().unwrap().to_vec::<f32>().unwrap()
    });
    let found: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let compute = || with_engine(&engine, || y.to_vec::<f32>().unwrap());
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(compute)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(found.iter().all(|v| *v == expected));
}

/// NumPy's rules for operands of one axis, for batches, and for extents of 0.
#[test]
fn products_of_vectors_batches_and_nothing() {
    let _engine = own_engine();
    let numbers = |shape: &[usize]| {
        let n: usize = shape.iter().product();
        Tensor::arange(n).unwrap().reshape(shape).unwrap()
    };
    let product = |a: &[usize], b: &[usize]| {
        let y = numbers(a).matmul(&numbers(b)).unwrap();
        (y.shape().to_vec(), y.to_vec::<i32>().unwrap())
    };
    // Shapes and values of numpy.arange(...).reshape(a) @ numpy.arange(...).reshape(b).
    assert_eq!(product(&[3], &[3]), (vec![], vec![5]));
    assert_eq!(product(&[3], &[3, 2]), (vec![2], vec![10, 13]));
    assert_eq!(product(&[2, 3], &[3]), (vec![2], vec![5, 14]));
    assert_eq!(product(&[2], &[3, 2, 1]), (vec![3, 1], vec![1, 3, 5]));
    assert_eq!(product(&[2, 2, 3], &[3]), (vec![2, 2], vec![5, 14, 23, 32]));
    assert_eq!(
        product(&[1, 2], &[2, 2, 2]),
        (vec![2, 1, 2], vec![2, 3, 6, 7])
    );
    assert_eq!(
        product(&[2, 1, 1, 2], &[3, 2, 1]),
        (vec![2, 3, 1, 1], vec![1, 3, 5, 3, 13, 23])
    );
    let nothing: [(&[usize], &[usize], &[usize]); 12] = [
        (&[0], &[0], &[]),
        (&[0], &[0, 3], &[3]),
        (&[3], &[3, 0], &[0]),
        (&[2, 0], &[0], &[2]),
        (&[0, 3], &[3], &[0]),
        (&[2, 0], &[0, 3], &[2, 3]),
        (&[0, 2], &[2, 3], &[0, 3]),
        (&[0, 2, 3], &[3, 4], &[0, 2, 4]),
        (&[2, 3], &[0, 3, 4], &[0, 2, 4]),
        (&[3], &[0, 3, 4], &[0, 4]),
        (&[5, 2, 0], &[0], &[5, 2]),
        (&[1, 2, 3], &[0, 3, 1], &[0, 2, 1]),
    ];
    for (a, b, dims) in nothing {
        let n = dims.iter().product();
        assert_eq!(product(a, b), (dims.to_vec(), vec![0; n]), "{a:?} @ {b:?}");
    }
}
