//! Faults that fusion, plans and large index spaces are known for, each as a named test.

use std::slice::from_ref;
use std::sync::Arc;

use uopc::compile::{self, Engine, RealizeOptions};
use uopc::debug::Settings;
use uopc::ir::composite::{cat, pad, sum_to};
use uopc::ir::op::ReduceOp;
use uopc::ir::{DType, Op, UOp};
use uopc::pass::explain::{cost, explain};
use uopc::pass::pipeline::Lowered;
use uopc::runtime::Storage;

/// An engine of the test's own, without a disk cache.
fn engine() -> Engine {
    Engine::new(Settings::default()).unwrap()
}

fn lower(roots: &[UOp]) -> Lowered {
    compile::lower(roots, None, &Settings::default()).unwrap()
}

fn names(lowered: &Lowered) -> Vec<String> {
    lowered
        .plan
        .kernels
        .iter()
        .map(|k| k.name.to_string())
        .collect()
}

fn slot(k: u32, shape: &[usize]) -> UOp {
    UOp::slot(k, DType::F32, shape.iter().product())
        .reshape(shape)
        .unwrap()
}

/// The values of the roots with these slots, in f32.
fn run(engine: &Engine, roots: &[UOp], slots: &[(u32, Vec<f32>)]) -> Vec<Vec<f32>> {
    let slots: Vec<(u32, Arc<Storage>)> = slots
        .iter()
        .map(|(k, v)| (*k, Storage::from_slice(v).unwrap()))
        .collect();
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    let realized = engine.realize(roots, &options).unwrap();
    realized.outputs.iter().map(|s| s.to_vec::<f32>()).collect()
}

/// Adding a copy shifted by 1, 2, 4, ... is a running sum. Each level reads the one before under
/// two index maps: fused without limit, 2^20 additions an element.
#[test]
fn a_shifted_add_scan_is_not_recomputed_exponentially() {
    let n = 64;
    let mut x = slot(0, &[n]);
    let mut levels = 0;
    for k in 0..6 {
        let shift = 1 << k;
        let shifted = pad(&x.shrink(&[(0, n - shift)]).unwrap(), &[(shift, 0)]).unwrap();
        x = x.add(&shifted).unwrap();
        levels += 1;
    }
    let lowered = lower(from_ref(&x));
    let flops: u64 = lowered.launches.iter().map(|l| cost(&l.loops).flops).sum();
    // A level's sum is one addition an element; a few levels may be repeated where that is cheap.
    assert!(
        flops <= 32 * (n * levels) as u64,
        "{flops} flops\n{}",
        explain(&lowered)
    );
    let ones = vec![1.0f32; n];
    let sums: Vec<f32> = (1..=n).map(|k| k as f32).collect();
    assert_eq!(run(&engine(), &[x], &[(0, ones)]), [sums]);
}

/// A chain of 10,000 additions is cut into kernels of at most 256, all alike.
#[test]
fn a_long_chain_is_cut_into_kernels_of_bounded_size() {
    let (mut x, y) = (slot(0, &[10]), slot(1, &[10]));
    for _ in 0..10_000 {
        x = x.add(&y).unwrap();
    }
    let lowered = lower(from_ref(&x));
    assert_eq!(lowered.plan.kernels.len(), 10_000usize.div_ceil(256));
    for kernel in &lowered.plan.kernels {
        let nodes = uopc::ir::visit::toposort(kernel.body.roots());
        assert!(nodes.iter().filter(|u| u.op().is_elementwise()).count() <= 256);
    }
}

/// `x == max(x)` holds for the maximum itself, although the value below the maximum is computed
/// again in the kernel that compares.
#[test]
fn a_recomputed_value_equals_its_first_computation() {
    let x = slot(0, &[100]);
    let v = x.exp().unwrap().mul(&x.sin().unwrap()).unwrap();
    let most = v
        .reduce(ReduceOp::Max, 1)
        .unwrap()
        .broadcast_scalar(v.shape())
        .unwrap();
    let hits = v.eq(&most).unwrap().cast(DType::F32).unwrap();
    let hits = hits.reduce(ReduceOp::Add, 1).unwrap();
    let data: Vec<f32> = (0..100).map(|k| (k as f32 * 0.37).sin() * 3.0).collect();
    assert_eq!(run(&engine(), &[hits], &[(0, data)]), [[1.0]]);
}

/// Three billion elements that never exist: only a window of them is computed.
#[test]
fn indices_above_two_to_the_31_are_right() {
    let n = 3_000_000_000usize;
    let window = UOp::iota(n, DType::I64)
        .unwrap()
        .shrink(&[(n - 2, n)])
        .unwrap();
    let flat = slot(0, &[1, 2])
        .expand(&[1_500_000_000, 2])
        .unwrap()
        .reshape(&[n])
        .unwrap();
    let last = flat.shrink(&[(n - 3, n)]).unwrap();
    let engine = engine();
    let realized = engine
        .realize(&[window], &RealizeOptions::default())
        .unwrap();
    assert_eq!(
        realized.outputs[0].to_vec::<i64>(),
        [2_999_999_998, 2_999_999_999]
    );
    assert_eq!(
        run(&engine, &[last], &[(0, vec![1.0, 2.0])]),
        [[2.0, 1.0, 2.0]]
    );
}

/// Padding on both sides, then cutting, transposing and merging: the composed index map has
/// negative numerators before it is cut.
#[test]
fn merged_views_of_padded_and_cut_tensors_read_the_right_elements() {
    let x = slot(0, &[3, 4]);
    let padded = pad(&x, &[(2, 1), (1, 3)]).unwrap();
    let view = padded
        .shrink(&[(1, 6), (0, 6)])
        .unwrap()
        .permute(&[1, 0])
        .unwrap();
    let view = view.reshape(&[5, 6]).unwrap().permute(&[1, 0]).unwrap();
    let data: Vec<f32> = (1..=12).map(|k| k as f32).collect();
    let got = run(&engine(), from_ref(&view), &[(0, data.clone())]);
    let array = uopc::interp::Array::from_f64(
        DType::F32,
        &[12],
        &data.iter().map(|&v| v as f64).collect::<Vec<_>>(),
    );
    let array = array.unwrap();
    let want = uopc::interp::graph::eval(from_ref(&view), &|_| Some(array.clone())).unwrap();
    let want: Vec<f32> = want[0].to_f64().iter().map(|&v| v as f32).collect();
    assert_eq!(got, [want]);
}

/// The gradient of cutting has one statement's worth of sources, not one for each element.
#[test]
fn padding_and_joining_take_a_logarithm_of_nodes() {
    let count = |u: &UOp| uopc::ir::visit::toposort(from_ref(u)).len();
    let small = count(&pad(&slot(0, &[2]), &[(1, 100)]).unwrap());
    let large = count(&pad(&slot(0, &[2]), &[(1, 100_000)]).unwrap());
    assert!(large < small + 60, "{small} {large}");
    let parts: Vec<UOp> = (0..64).map(|k| slot(k, &[3])).collect();
    assert!(count(&cat(&parts, 0).unwrap()) < 64 * 8);
}

/// Two roots, one the other's source; one of them twice; one a view of an input.
#[test]
fn roots_that_share_and_repeat_are_all_there() {
    let x = slot(0, &[2, 2]);
    let y = x.mul(&x).unwrap();
    let z = y.add(&x).unwrap();
    let view = x.reshape(&[4]).unwrap();
    let turned = y.reshape(&[4]).unwrap();
    let got = run(
        &engine(),
        &[y.clone(), z.clone(), y.clone(), view, turned],
        &[(0, vec![1.0, 2.0, 3.0, 4.0])],
    );
    let squares = vec![1.0, 4.0, 9.0, 16.0];
    let sums = vec![2.0, 6.0, 12.0, 20.0];
    assert_eq!(
        got,
        [
            squares.clone(),
            sums,
            squares.clone(),
            vec![1.0, 2.0, 3.0, 4.0],
            squares
        ]
    );
}

/// Plans differ where dtype, shape or a constant differs, and agree where only memory differs.
#[test]
fn the_plan_cache_tells_graphs_apart_by_all_that_matters() {
    let engine = engine();
    let plus = |k: u32, n: usize, c: f64| {
        let x = slot(k, &[n]);
        x.add(&x.full_like(c).unwrap()).unwrap()
    };
    assert_eq!(
        run(&engine, &[plus(0, 2, 1.0)], &[(0, vec![1.0, 2.0])]),
        [[2.0, 3.0]]
    );
    assert_eq!(
        run(&engine, &[plus(0, 2, 2.0)], &[(0, vec![1.0, 2.0])]),
        [[3.0, 4.0]]
    );
    assert_eq!(
        run(&engine, &[plus(0, 3, 1.0)], &[(0, vec![1.0; 3])]),
        [[2.0; 3]]
    );
    assert_eq!(engine.stats().plan_misses, 3);
    assert_eq!(
        run(&engine, &[plus(7, 2, 1.0)], &[(7, vec![5.0, 6.0])]),
        [[6.0, 7.0]]
    );
    assert_eq!(
        (engine.stats().plan_misses, engine.stats().plan_hits),
        (3, 1)
    );
}

/// Softmax is three kernels; so is a chain of two sums with work between.
#[test]
fn reductions_split_and_elementwise_work_fuses() {
    let x = slot(0, &[64, 64]);
    let row = |u: &UOp| u.reshape(&[64, 1]).unwrap().expand(&[64, 64]).unwrap();
    let e = x
        .sub(&row(&x.reduce(ReduceOp::Max, 1).unwrap()))
        .unwrap()
        .exp()
        .unwrap();
    let y = e.div(&row(&e.reduce(ReduceOp::Add, 1).unwrap())).unwrap();
    assert_eq!(names(&lower(from_ref(&y))), ["r_64", "r_64", "e_64_64"]);
    let chain = (0..256).fold(slot(0, &[8]), |x, _| x.mul(&slot(1, &[8])).unwrap());
    assert_eq!(names(&lower(&[chain])), ["e_8"]);
}

/// A product read by two consumers is one kernel that both read.
#[test]
fn a_product_read_twice_is_computed_once() {
    let (x, w) = (slot(0, &[8, 16]), slot(1, &[16, 4]));
    let xe = x.reshape(&[8, 1, 16]).unwrap().expand(&[8, 4, 16]).unwrap();
    let we = w.permute(&[1, 0]).unwrap().reshape(&[1, 4, 16]).unwrap();
    let y = xe
        .mul(&we.expand(&[8, 4, 16]).unwrap())
        .unwrap()
        .reduce(ReduceOp::Add, 1)
        .unwrap();
    let loss = y.mul(&y).unwrap().reduce(ReduceOp::Add, 2).unwrap();
    let gw = uopc::autodiff::gradient(&loss, &[UOp::slot(1, DType::F32, 64)])
        .unwrap()
        .remove(0);
    let lowered = lower(&[loss, gw]);
    assert_eq!(names(&lowered), ["r_8_4", "r_1", "r_16_4"]);
    let forward = lowered.plan.kernels[0].outs[0].1;
    for kernel in &lowered.plan.kernels[1..] {
        assert!(
            kernel.ins.iter().any(|&(_, b)| b == forward),
            "{}",
            explain(&lowered)
        );
    }
    let reduces = |k: usize| {
        let nodes = uopc::ir::visit::toposort(lowered.plan.kernels[k].body.roots());
        nodes
            .iter()
            .filter(|u| matches!(u.op(), Op::Reduce { .. }))
            .count()
    };
    assert_eq!([reduces(0), reduces(1), reduces(2)], [1, 1, 1]);
}

/// The transpose of broadcasting a scalar over everything.
#[test]
fn sums_over_all_axes_at_once_and_by_steps_agree_with_their_fold() {
    let x = slot(0, &[3, 5]);
    let all = sum_to(&x, &[1, 1]).unwrap();
    let data: Vec<f32> = (0..15).map(|k| k as f32).collect();
    assert_eq!(run(&engine(), &[all], &[(0, data)]), [[105.0]]);
}

/// Sizes that overflow on the way are refused, whatever they would wrap to.
#[test]
fn absurd_paddings_joins_and_slots_are_refused() {
    let x = slot(0, &[2]);
    for padding in [(usize::MAX, 1), (1 << 62, 1 << 62), (usize::MAX / 2, 5)] {
        let error = pad(&x, &[padding]).unwrap_err().to_string();
        assert!(
            error.starts_with("pad: axis 0 of (2,) would become longer than"),
            "{error}"
        );
    }
    let long = x.shrink(&[(0, 1)]).unwrap().expand(&[1 << 62]).unwrap();
    let error = cat(&[long.clone(), long.clone(), long], 0)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cat: axis 0 of (4611686018427387904,)"),
        "{error}"
    );
    let last = UOp::slot(u32::MAX, DType::F32, 3).exp().unwrap();
    let error = compile::lower(&[last], None, &Settings::default())
        .err()
        .unwrap()
        .to_string();
    assert_eq!(
        error,
        "kernelize: slot 4294967295 leaves no number for the output"
    );
    let vast = UOp::slot(0, DType::F32, 1 << 62).exp().unwrap();
    assert!(compile::listing(&[vast], None, &Settings::default()).is_ok());
}

/// Work and sizes that 64 bits do not hold are the largest numbers that they do.
#[test]
fn the_work_of_a_plan_that_no_machine_holds_is_told_without_overflow() {
    let n = 1 << 31;
    let row = UOp::slot(0, DType::F32, n).reshape(&[1, n]).unwrap();
    let x = row.expand(&[n, n]).unwrap();
    let square = &(&(&(&x * &x) + &x).exp().unwrap() + &x) * &x;
    let lowered = lower(from_ref(&square));
    let work = cost(&lowered.launches[0].loops);
    assert_eq!((work.flops, work.bytes), (u64::MAX, u64::MAX));
    assert!(explain(&lowered).contains(&format!("{} flops", u64::MAX)));
}
