//! Every rule against finite differences, at orders 1 and 2, in f64 through the interpreter.
//!
//! A case builds a node from inputs. Its value is weighted by fixed numbers and summed to a loss
//! L. Order 1 compares, for one random direction v, the slope of L along v with the inner product
//! of v and the gradient. Order 2 does the same with the slope of L along another direction in
//! place of L: the gradient is differentiated once more. Slopes come from differences of the
//! interpreter's values, which know nothing of the rules.
//!
//! All cases run in f32 through compiled code too: equal to the interpreter to the last bit, and
//! near the value in f64.

mod derivatives;
mod oracle;

use derivatives::instance::{instance, realize};
use derivatives::{CASES, Case, NON_DIFFERENTIABLE};
use oracle::*;
use uopc::autodiff::gradient;
use uopc::compile::Engine;
use uopc::debug::Settings;
use uopc::interp::Array;
use uopc::ir::op::{Class, OPS};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, UOp};

/// The relative error allowed between a slope and an inner product. The differences are of sixth
/// order with a step of 2^-8: they leave about (2^-8)^6 of the seventh derivative, 1e-14, and 2^8
/// roundings of an f64, 1e-13.
const TOLERANCE: f64 = 1e-6;
const STEP: f64 = 1.0 / 256.0;

fn check(case: &Case, order: usize) {
    let it = instance(case, DType::F64, 0);
    // The slope along direction 1 stands for the loss at order 2.
    let loss = if order == 1 {
        it.loss.clone()
    } else {
        it.inner_product(&it.loss, 1)
    };
    let analytic = it.number(&it.inner_product(&loss, 0));
    let numeric = it.slope(&loss, 0, STEP);
    let error = (analytic - numeric).abs();
    let scale = analytic.abs().max(numeric.abs());
    assert!(
        error <= TOLERANCE * scale || error < 1e-12,
        "{} at order {order}: the gradient says {analytic}, the differences {numeric}",
        case.name
    );
}

#[test]
fn order_1_agrees_with_finite_differences() {
    CASES.iter().for_each(|case| check(case, 1));
}

#[test]
fn order_2_agrees_with_finite_differences() {
    CASES.iter().for_each(|case| check(case, 2));
}

/// How far a derivative in f32 may lie from that in f64, relative to the sum of the magnitudes of
/// its terms: f32 rounds to 6e-8, the cases are up to some dozens of ops deep, and differences
/// inside them (a row less its mean) magnify what was rounded before.
const TOLERANCE_F32: f64 = 2e-5;

#[test]
fn compiled_f32_is_the_interpreter_to_the_bit_and_near_f64() {
    // A kernel's parameter has no memory of its own to run on.
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| case.op != Some("param"))
        .collect();
    let engine = Engine::new(Settings::default()).unwrap();
    // Many cases a plan, so that the C compiler is called a few times and not for each.
    for cases in cases.chunks(20) {
        let mut slots: Vec<Vec<f64>> = Vec::new();
        let mut roots = Vec::new();
        for case in cases {
            let it = instance(case, DType::F32, slots.len() as u32);
            let slope = it.inner_product(&it.loss, 1);
            roots.extend([it.inner_product(&it.loss, 0), it.inner_product(&slope, 0)]);
            roots.extend(gradient(&it.loss, &it.targets).unwrap());
            slots.extend(it.slots);
        }
        let compiled = realize(&engine, &roots, &slots);
        let bound: Vec<&[f64]> = slots.iter().map(Vec::as_slice).collect();
        for ((root, expected), found) in roots.iter().zip(arrays(&roots, &bound)).zip(&compiled) {
            let found = Array::from_f64(DType::F32, root.shape(), found).unwrap();
            assert_eq!(found.difference(&expected), None, "{}", root.to_uir());
        }
        let mut at = compiled.iter();
        for case in cases {
            let it = instance(case, DType::F64, 0);
            let slope = it.inner_product(&it.loss, 1);
            for (order, u) in [(1, &it.loss), (2, &slope)] {
                let found = at.next().expect("one value an order")[0];
                let exact = it.number(&it.inner_product(u, 0));
                let allowed = TOLERANCE_F32 * it.magnitude(u, 0);
                assert!(
                    (found - exact).abs() <= allowed,
                    "{} at order {order}: {found} in f32, {exact} in f64",
                    case.name
                );
            }
            at.nth(it.targets.len() - 1);
        }
    }
}

#[test]
fn every_op_has_a_case_or_a_reason() {
    for info in OPS {
        let cases = CASES
            .iter()
            .filter(|case| case.op == Some(info.mnemonic))
            .count();
        let reason = NON_DIFFERENTIABLE
            .iter()
            .find(|(name, _)| *name == info.mnemonic);
        let outside = matches!(info.class, Class::Loop | Class::Program);
        match (outside, cases, reason) {
            // Not part of a shape graph; refused by name, see fact A8.
            (true, 0, None) => {}
            (false, 1.., None) => {}
            (false, 0, Some((_, reason))) => assert!(!reason.is_empty()),
            _ => panic!(
                "{}: give it a case in CASES or a reason in NON_DIFFERENTIABLE, not both",
                info.mnemonic
            ),
        }
    }
    let known = |name: &str| OPS.iter().any(|info| info.mnemonic == name);
    assert!(NON_DIFFERENTIABLE.iter().all(|(name, _)| known(name)));
    assert!(CASES.iter().filter_map(|case| case.op).all(known));
}

#[test]
fn a_case_contains_its_op_between_input_and_loss() {
    for case in CASES {
        let Some(name) = case.op else { continue };
        let it = instance(case, DType::F64, 0);
        let mut reached: Vec<UOp> = it.targets.clone();
        for u in toposort(std::slice::from_ref(&it.loss)) {
            if u.src().iter().any(|s| reached.contains(s)) {
                reached.push(u);
            }
        }
        let found = reached.iter().any(|u| u.op().mnemonic() == name);
        let is_leaf = OPS
            .iter()
            .any(|info| info.mnemonic == name && info.arity.1 == 0);
        assert!(
            found || is_leaf && count_op(&[it.loss], name) > 0,
            "{}",
            case.name
        );
    }
}

#[test]
fn a_wrong_gradient_is_noticed() {
    // The check itself: half the loss differentiated against the whole of it.
    let it = instance(&CASES[2], DType::F64, 0);
    let wrong = it.number(&it.inner_product(&(&it.loss * &number(&it.loss, 0.5)), 0));
    let numeric = it.slope(&it.loss, 0, STEP);
    assert!((wrong - numeric).abs() > 0.1 * numeric.abs());
}
