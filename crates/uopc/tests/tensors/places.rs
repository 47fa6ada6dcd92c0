//! What the tests of movement and indexing share: engines, and small tensors.

use std::sync::Arc;

use uopc::Tensor;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::tensor::with_engine;

/// Runs `f` with engines of its own: the interpreter of loops, and compiled code.
pub fn everywhere(f: impl Fn(&str)) {
    for (name, device) in [
        ("interpreted", DeviceChoice::Interp),
        ("compiled", DeviceChoice::C),
    ] {
        with_engine(&engine(device, None), || f(name));
    }
}

/// An engine on a device.
pub fn engine(device: DeviceChoice, threads: Option<usize>) -> Arc<Engine> {
    let settings = Settings {
        device,
        threads,
        ..Settings::default()
    };
    Arc::new(Engine::new(settings).unwrap())
}

/// Integers in a shape.
pub fn ints(values: &[i32], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape).unwrap()
}

/// Different numbers around 0, none of them 0.
pub fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |k: usize| ((k * 37 + seed * 11) % 23) as f64 / 8.0 - 1.4;
    Tensor::from_slice(&(0..n).map(value).collect::<Vec<f64>>(), shape).unwrap()
}
