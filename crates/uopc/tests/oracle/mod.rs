//! Values of graphs by the interpreter, for tests that state facts about gradients.
#![allow(dead_code, reason = "each test binary uses a part")]

use uopc::interp::{Array, graph};
use uopc::ir::op::{BufferId, Op, ReduceOp};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, UOp};

/// Input number `slot` of the test, of a shape and dtype.
pub fn input_of(slot: u32, dims: &[usize], dtype: DType) -> UOp {
    UOp::slot(slot, dtype, dims.iter().product())
        .reshape(dims)
        .expect("the extents multiply to the length")
}

/// An f64 input, in which most facts are checked.
pub fn input(slot: u32, dims: &[usize]) -> UOp {
    input_of(slot, dims, DType::F64)
}

/// An f32 input.
pub fn input32(slot: u32, dims: &[usize]) -> UOp {
    input_of(slot, dims, DType::F32)
}

/// The sum of all elements.
pub fn sum(x: &UOp) -> UOp {
    x.reduce(ReduceOp::Add, x.shape().rank())
        .expect("all axes can be summed")
}

/// A constant of a node's dtype and shape.
pub fn number(like: &UOp, value: f64) -> UOp {
    like.full_like(value).expect("a constant has any shape")
}

/// The arrays that the roots stand for; buffer and parameter k are bound to `slots[k]`.
pub fn arrays(roots: &[UOp], slots: &[&[f64]]) -> Vec<Array> {
    let bind = |u: &UOp| {
        let (slot, n) = match u.op() {
            Op::Buffer {
                id: BufferId::Slot(slot),
                n,
                ..
            }
            | Op::Param { slot, n, .. } => (*slot, *n),
            _ => return None,
        };
        let values = slots.get(slot as usize)?;
        let array = Array::from_f64(u.dtype(), &[n], values);
        Some(array.expect("as many values as the slot has"))
    };
    graph::eval(roots, &bind).expect("the graph is well formed and its slots are bound")
}

/// The elements of one root.
pub fn value(root: &UOp, slots: &[&[f64]]) -> Vec<f64> {
    arrays(std::slice::from_ref(root), slots)[0].to_f64()
}

/// The gradients of a root, as numbers.
pub fn gradients(root: &UOp, targets: &[UOp], slots: &[&[f64]]) -> Vec<Vec<f64>> {
    let gradients = uopc::autodiff::gradient(root, targets).expect("the root is differentiable");
    for (g, target) in gradients.iter().zip(targets) {
        assert_eq!((g.dtype(), g.shape()), (target.dtype(), target.shape()));
    }
    arrays(&gradients, slots)
        .iter()
        .map(Array::to_f64)
        .collect()
}

/// The gradient with respect to one target, as numbers.
pub fn gradient_values(root: &UOp, target: &UOp, slots: &[&[f64]]) -> Vec<f64> {
    gradients(root, std::slice::from_ref(target), slots).remove(0)
}

/// Compares element by element, relative to the larger magnitude (absolute below 1).
#[track_caller]
pub fn assert_close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(
        found.len(),
        expected.len(),
        "{found:?} against {expected:?}"
    );
    for (a, b) in found.iter().zip(expected) {
        let scale = a.abs().max(b.abs()).max(1.0);
        assert!(
            (a - b).abs() <= tolerance * scale,
            "{found:?} against {expected:?}: {a} and {b} differ by more than {tolerance:e}"
        );
    }
}

/// How many nodes under the roots have a property.
pub fn count(roots: &[UOp], is: impl Fn(&UOp) -> bool) -> usize {
    toposort(roots).iter().filter(|u| is(u)).count()
}

/// How many nodes under the roots have that mnemonic.
pub fn count_op(roots: &[UOp], mnemonic: &str) -> usize {
    count(roots, |u| u.op().mnemonic() == mnemonic)
}

/// The mnemonics of all nodes under a root, sources before readers.
pub fn mnemonics(root: &UOp) -> Vec<&'static str> {
    toposort(std::slice::from_ref(root))
        .iter()
        .map(|u| u.op().mnemonic())
        .collect()
}

/// Runs a test on a stack so small that anything recursive over a deep graph overflows it.
pub fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(test);
    if let Err(panic) = thread.expect("a thread can be started").join() {
        std::panic::resume_unwind(panic);
    }
}
