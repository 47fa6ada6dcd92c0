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
