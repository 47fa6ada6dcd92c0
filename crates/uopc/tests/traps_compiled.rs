//! Faults with values that only compiled code shows: NaN in long reductions, contracted products,
//! memory read through two parameters, constants whose variance is not 0.

use std::sync::Arc;

use uopc::Tensor;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::tensor::with_engine;

/// Runs a test on compiled code (where there is a compiler) and on the loop interpreter.
fn on_each_device(test: impl Fn()) {
    for device in [DeviceChoice::Auto, DeviceChoice::Interp] {
        let settings = Settings {
            device,
            ..Settings::default()
        };
        with_engine(&Arc::new(Engine::new(settings).unwrap()), &test);
    }
}

/// First, last, in the middle of a vector, in the tail: a NaN wins every maximum, minimum and sum.
#[test]
fn nan_wins_reductions_wherever_it_stands() {
    on_each_device(|| {
        for n in [1usize, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 4097] {
            // One row for each place, so that one plan tests them all.
            let places: Vec<usize> = (0..n)
                .filter(|k| n < 40 || k % 13 == 0 || k + 2 > n)
                .collect();
            let mut rows = Vec::new();
            for &place in &places {
                rows.extend((0..n).map(|k| if k == place { f32::NAN } else { k as f32 - 5.0 }));
            }
            let x = Tensor::from_slice(&rows, [places.len(), n]).unwrap();
            for reduced in [x.max(1), x.min(1), x.sum(1), x.mean(1), x.prod(1)] {
                let values = reduced.unwrap().to_vec::<f32>().unwrap();
                assert!(values.iter().all(|v| v.is_nan()), "n = {n}: {values:?}");
            }
        }
    });
}

/// `a*b - p`, where p is the rounded product, is exactly 0: fused into one rounding it would be
/// the rounding error.
#[test]
fn products_and_sums_are_not_contracted() {
    on_each_device(|| {
        let a: Vec<f32> = (1..=1000).map(|k| 1.0 + (k as f32) / 7.0).collect();
        let b: Vec<f32> = (1..=1000).map(|k| 3.0 - (k as f32) / 11.0).collect();
        let (a, b) = (
            Tensor::from_slice(&a, [1000]).unwrap(),
            Tensor::from_slice(&b, [1000]).unwrap(),
        );
        let product = &a * &b;
        let rounded = Tensor::from_slice(&product.to_vec::<f32>().unwrap(), [1000]).unwrap();
        let rest = &a * &b - &rounded;
        assert_eq!(rest.to_vec::<f32>().unwrap(), [0.0; 1000]);
    });
}

/// A tensor and a reshaped view of it are one memory in two parameters.
#[test]
fn one_memory_is_read_through_two_parameters() {
    on_each_device(|| {
        let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [4]).unwrap();
        x.realize().unwrap();
        let square = x.reshape([2, 2]).unwrap();
        square.realize().unwrap();
        let sum = &x + &square.transpose().unwrap().reshape([4]).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [2.0, 5.0, 5.0, 8.0]);
        // What was read stays as it was.
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    });
}

/// The mean of equal numbers is that number where the sum is exact, so the deviations are 0.
#[test]
fn the_variance_of_a_constant_is_zero() {
    on_each_device(|| {
        for (value, n) in [
            (1.0f32, 3usize),
            (0.5, 1000),
            (3.25 * 1_048_576.0, 4096),
            (-7.0, 10_000),
        ] {
            let x = Tensor::from_slice(&vec![value; n], [n]).unwrap();
            assert_eq!(x.var(..).unwrap().item().unwrap(), 0.0, "{value} {n}");
        }
        // 0.1 is no binary fraction. A lane adds 256 of it one after the other, each sum rounded
        // the same way: the mean is off by less than 1e-5 of itself, and the variance by the
        // square of that.
        let x = Tensor::from_slice(&vec![0.1f32; 100_000], [100_000]).unwrap();
        assert!(x.var(..).unwrap().item().unwrap() < 1e-12);
    });
}
