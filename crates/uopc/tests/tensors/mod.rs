//! What the tests of tensors share.

#![allow(dead_code)]

pub mod functions;
pub mod places;

use std::sync::Arc;

use uopc::Tensor;
use uopc::compile::{self, Engine};
use uopc::debug::Settings;
use uopc::ir::UOp;
use uopc::pass::pipeline::Lowered;
use uopc::tensor::{EnteredEngine, enter_engine, with_engine};

fn engine() -> Arc<Engine> {
    Arc::new(Engine::new(Settings::default()).unwrap())
}

/// From here to the end of the test: plans of its own and no disk cache.
pub fn own_engine() -> EnteredEngine {
    enter_engine(&engine())
}

/// Runs a test with plans and counters of its own and without a disk cache.
pub fn with_own_engine<R>(f: impl FnOnce(&Engine) -> R) -> R {
    let engine = engine();
    with_engine(&engine, || f(&engine))
}

/// An f32 parameter.
pub fn parameter(values: &[f32], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape)
        .unwrap()
        .requires_grad()
        .unwrap()
}

/// The gradient that `backward` left with an f32 parameter.
pub fn gradient(t: &Tensor) -> Vec<f32> {
    t.grad().expect("backward was called").to_vec().unwrap()
}

/// Asserts that numbers agree within a tolerance, relative to numbers above 1.
#[track_caller]
pub fn close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{found:?}\n{expected:?}");
    for (k, (a, b)) in found.iter().zip(expected).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan());
        let near = (a - b).abs() <= tolerance * b.abs().max(1.0);
        assert!(
            same || near,
            "element {k}: {a} is not {b}\n{found:?}\n{expected:?}"
        );
    }
}

/// The plan of what computes these tensors.
pub fn lower(tensors: &[&Tensor]) -> Lowered {
    let roots: Vec<UOp> = tensors.iter().map(|t| t.uop()).collect();
    compile::lower(&roots, None, &Settings::default()).unwrap()
}

/// The names of its kernels.
pub fn kernels(tensors: &[&Tensor]) -> Vec<String> {
    lower(tensors)
        .plan
        .kernels
        .iter()
        .map(|k| k.name.to_string())
        .collect()
}
