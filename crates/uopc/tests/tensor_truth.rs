//! Single elements and truth values: exact numbers, conditions, any and all.

mod tensors;

use tensors::*;
use uopc::ir::Scalar;
use uopc::{DType, Tensor};

#[test]
fn the_single_element_is_exact() {
    let _engine = own_engine();
    let value = |t: &Tensor| t.scalar_value().unwrap();
    assert_eq!(value(&Tensor::from([i64::MIN])).as_i128(), i64::MIN.into());
    let odd = Tensor::from([[(1u64 << 53) + 1]]);
    assert_eq!(value(&odd).as_i128(), (1 << 53) + 1);
    assert_eq!(odd.item().unwrap(), (1u64 << 53) as f64);
    // Computed, of each kind, and of dtypes narrower than a word.
    let half = Tensor::from([1.0f32]) / 3;
    let half = value(&half.cast(DType::F16).unwrap());
    assert_eq!((half.dtype(), half.as_f64()), (DType::F16, 0.333251953125));
    assert_eq!(
        value(&Tensor::scalar(true).unwrap()),
        Scalar::from_bool(true)
    );
    let byte = Tensor::from([-3i8])
        .sum(..)
        .unwrap()
        .cast(DType::I8)
        .unwrap();
    assert_eq!(value(&byte), Scalar::from_i128(DType::I8, -3));
    for (t, text) in [
        (
            Tensor::from([1, 2]),
            "scalar_value: shape (2,) has 2 elements, not one; use to_vec (at ",
        ),
        (
            Tensor::zeros([0, 3]).unwrap(),
            "scalar_value: shape (0, 3) has 0 elements, not one; use to_vec (at ",
        ),
    ] {
        let error = t.scalar_value().unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn one_element_has_a_truth_and_others_have_none() {
    let _engine = own_engine();
    let truth = |t: Tensor| t.truth().unwrap();
    assert!(truth(Tensor::from([[-0.5f32]])) && truth(Tensor::from([f64::NAN])));
    assert!(truth(Tensor::from([1u64 << 63])) && truth(Tensor::scalar(1).unwrap().gt(0).unwrap()));
    assert!(!truth(Tensor::from([-0.0f32])) && !truth(Tensor::from([0i8])));
    for (shape, text) in [
        (
            vec![2],
            "truth: the truth of shape (2,) with 2 elements is ambiguous; use any or all (at ",
        ),
        (
            vec![0],
            "truth: the truth of shape (0,) with 0 elements is ambiguous; use any or all (at ",
        ),
    ] {
        let error = Tensor::zeros(shape)
            .unwrap()
            .truth()
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn any_and_all_join_along_axes() {
    let _engine = own_engine();
    let bools = |t: uopc::Result<Tensor>| t.unwrap().to_vec::<bool>().unwrap();
    let nan = f32::NAN;
    let t = Tensor::from([[0.0f32, -0.0, nan, 2.0], [0.0, 1e-45, 0.0, -1.0]]);
    assert_eq!(bools(t.any(0)), [false, true, true, true]);
    assert_eq!(bools(t.all(0)), [false, false, false, true]);
    assert_eq!(bools(t.any(-1)), [true, true]);
    assert_eq!(bools(t.all([0, 1])), [false]);
    assert_eq!(t.any(..).unwrap().rank(), 0);
    for (kept, dims) in [
        (t.any_keepdim(1), [2, 1]),
        (t.all_keepdim(0), [1, 4]),
        (t.all_keepdim(..), [1, 1]),
    ] {
        assert_eq!(kept.unwrap().shape()[..], dims);
    }
    assert_eq!(bools(t.all_keepdim(0)), bools(t.all(0)));
    // Enough elements for every lane and block, in every dtype, with one that differs.
    let n = 10_000;
    let mut cases: Vec<(Tensor, bool)> = Vec::new();
    for dtype in DType::ALL {
        for at in [0, 4_097, n - 1] {
            let places = Tensor::arange(n).unwrap();
            let hit = places.eq(at).unwrap().cast(dtype).unwrap();
            let miss = places.ne(at).unwrap().cast(dtype).unwrap();
            cases.extend([(hit.any(0).unwrap(), true), (hit.all(0).unwrap(), false)]);
            cases.extend([(miss.any(0).unwrap(), true), (miss.all(0).unwrap(), false)]);
        }
        let zeros = Tensor::zeros([n]).unwrap().cast(dtype).unwrap();
        let ones = Tensor::ones([n]).unwrap().cast(dtype).unwrap();
        cases.extend([(zeros.any(0).unwrap(), false), (ones.all(0).unwrap(), true)]);
    }
    let all: Vec<&Tensor> = cases.iter().map(|(t, _)| t).collect();
    Tensor::realize_all(&all).unwrap();
    for (k, (t, expected)) in cases.iter().enumerate() {
        assert_eq!(t.truth().unwrap(), *expected, "case {k}");
    }
    // Sums of integers that come to 0 are no reason.
    assert_eq!(bools(Tensor::from([128u8, 128]).any(0)), [true]);
    // Of nothing: none is true, and all are.
    let none = Tensor::zeros([2, 0]).unwrap();
    assert_eq!(bools(none.any(1)), [false, false]);
    assert_eq!(bools(none.all(..)), [true]);
    assert_eq!(none.all(0).unwrap().numel(), 0);
    let scalar = Tensor::scalar(3).unwrap();
    assert_eq!(
        (bools(scalar.any(..)), bools(scalar.all([] as [i64; 0]))),
        (vec![true], vec![true])
    );
    assert!(!parameter(&[1.0], &[1]).any(0).unwrap().needs_grad());
    let error = t.all(2).unwrap_err().to_string();
    assert!(
        error.starts_with("all: axis 2 of shape (2, 4); axes go from -2 to 1"),
        "{error}"
    );
}
