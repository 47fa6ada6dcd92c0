//! The engine: plans by structure, homes, the tape, devices.

use std::any::Any;
use std::fs;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tempfile::TempDir;
use uopc::autodiff::gradient;
use uopc::compile::{
    Engine, PLAN_LIMIT, RealizeOptions, Realized, Stats, listing, lower, lower_with_inputs,
    plan_key,
};
use uopc::debug::{DeviceChoice, Settings};
use uopc::ir::op::{LiveBuffer, ReduceOp};
use uopc::ir::{DType, UOp};
use uopc::runtime::{Element, Storage};

/// An engine on the interpreter: what is tested here does not depend on the device.
fn engine() -> Engine {
    let settings = Settings {
        device: DeviceChoice::Interp,
        ..Settings::default()
    };
    Engine::new(settings).unwrap()
}

/// A leaf with memory of its own.
fn live<T: Element>(values: &[T]) -> UOp {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
    let id = NEXT.fetch_add(1, Relaxed);
    let storage: Arc<dyn Any + Send + Sync> = Storage::from_slice(values).unwrap();
    UOp::live(Arc::new(LiveBuffer { id, storage }), T::DTYPE, values.len())
}

fn realize(engine: &Engine, roots: &[UOp]) -> Realized {
    engine.realize(roots, &RealizeOptions::default()).unwrap()
}

fn floats(engine: &Engine, root: &UOp) -> Vec<f32> {
    realize(engine, from_ref(root)).outputs[0].to_vec()
}

/// The sum of squares, as a reduction over all axes.
fn sum_of_squares(x: &UOp) -> UOp {
    x.mul(x)
        .unwrap()
        .reduce(ReduceOp::Add, x.shape().rank())
        .unwrap()
}

// ---- the plan cache ----

#[test]
fn equal_structure_is_one_plan_whatever_the_memory() {
    let engine = engine();
    for k in 0..10 {
        let (x, y) = (live(&[k as f32, 1.0]), live(&[2.0f32, 3.0]));
        assert_eq!(floats(&engine, &(&(&x * &y) + &x)), [3.0 * k as f32, 4.0]);
    }
    let stats = engine.stats();
    assert_eq!((stats.plan_misses, stats.plan_hits, stats.plans), (1, 9, 1));
    assert_eq!(stats.launches, 10);
}

#[test]
fn what_differs_is_another_plan() {
    let engine = engine();
    let (x, y) = (live(&[1.0f32, 2.0]), live(&[3.0f32, 4.0]));
    let two = |v: f64| UOp::full(uopc::ir::Scalar::from_f64(DType::F32, v), x.shape()).unwrap();
    let i = live(&[1i32, 2]);
    let graphs = [
        vec![&x + &y],
        vec![&x * &y],
        // One buffer read twice is not two buffers.
        vec![&x + &x],
        // Constants count to the last bit.
        vec![&x * &two(2.0)],
        vec![&x * &two(2.0000002)],
        vec![&x + &two(0.0)],
        vec![&x + &two(-0.0)],
        // Types and shapes of inputs count.
        vec![&i + &i],
        vec![&live(&[1.0f32; 3]) + &live(&[1.0f32; 3])],
        vec![
            x.reshape(&[2, 1])
                .unwrap()
                .add(&y.reshape(&[2, 1]).unwrap())
                .unwrap(),
        ],
        // The roots and their order count.
        vec![&x + &y, &x * &y],
        vec![&x * &y, &x + &y],
    ];
    for (k, roots) in graphs.iter().enumerate() {
        realize(&engine, roots);
        assert_eq!(engine.stats().plans, k + 1, "graph {k}");
    }
    assert_eq!(engine.stats().plan_hits, 0);
}

#[test]
fn the_number_of_plans_is_bounded() {
    let engine = engine();
    for n in 1..=PLAN_LIMIT + 8 {
        let x = live(&vec![1.0f32; n]);
        assert_eq!(floats(&engine, &(&x + &x)), vec![2.0; n]);
    }
    assert_eq!(engine.stats().plans, PLAN_LIMIT);
    // The one used last is there, the first is not.
    let hits = engine.stats().plan_hits;
    let x = live(&vec![1.0f32; PLAN_LIMIT + 8]);
    floats(&engine, &(&x + &x));
    assert_eq!(engine.stats().plan_hits, hits + 1);
    let x = live(&[1.0f32]);
    floats(&engine, &(&x + &x));
    assert_eq!(engine.stats().plan_hits, hits + 1);
}

#[test]
fn threads_that_need_one_plan_make_it_once() {
    let engine = Arc::new(engine());
    let runners: Vec<_> = (0..8)
        .map(|k| {
            let engine = engine.clone();
            std::thread::spawn(move || {
                let x = live(&vec![k as f32; 100]);
                assert_eq!(
                    floats(&engine, &sum_of_squares(&x)),
                    [100.0 * (k * k) as f32]
                );
            })
        })
        .collect();
    for runner in runners {
        runner.join().unwrap();
    }
    let stats = engine.stats();
    assert_eq!((stats.plan_misses, stats.plan_hits), (1, 7));
}

// ---- where values are ----

#[test]
fn what_is_in_memory_is_not_computed() {
    let engine = engine();
    let x = live(&[1.0f32, 2.0]);
    let leaf = realize(&engine, from_ref(&x)).outputs.remove(0);
    assert_eq!(leaf.to_vec::<f32>(), [1.0, 2.0]);
    let y = &x + &x;
    let first = realize(&engine, from_ref(&y)).outputs.remove(0);
    let again = realize(&engine, from_ref(&y)).outputs.remove(0);
    assert!(Arc::ptr_eq(&first, &again), "the same memory");
    assert_eq!(engine.stats().launches, 1);
    // A node above reads it as an input.
    assert_eq!(floats(&engine, &(&y * &y)), [4.0, 16.0]);
    assert_eq!(engine.stats().launches, 2);
    // When its memory is gone, it is computed again.
    drop((first, again));
    assert!(y.home().is_none());
    assert_eq!(floats(&engine, &y), [2.0, 4.0]);
    assert_eq!(engine.stats().launches, 3);
}

#[test]
fn a_reshape_of_a_leaf_is_its_memory() {
    let engine = engine();
    let x = live(&[1.0f32, 2.0, 3.0, 4.0]);
    let leaf = realize(&engine, from_ref(&x)).outputs.remove(0);
    let y = x.reshape(&[2, 2]).unwrap();
    let reshaped = realize(&engine, from_ref(&y)).outputs.remove(0);
    assert!(Arc::ptr_eq(&leaf, &reshaped));
    assert_eq!(engine.stats().launches, 0);
}

#[test]
fn several_roots_are_one_plan() {
    let engine = engine();
    let x = live(&[1.0f32, 2.0, 3.0]);
    let (sum, product) = (&x + &x, &x * &x);
    let roots = [sum.clone(), x.clone(), product, sum];
    let outputs = realize(&engine, &roots).outputs;
    let values: Vec<Vec<f32>> = outputs.iter().map(|s| s.to_vec()).collect();
    let expected = [
        [2.0, 4.0, 6.0],
        [1.0, 2.0, 3.0],
        [1.0, 4.0, 9.0],
        [2.0, 4.0, 6.0],
    ];
    assert_eq!(values, expected);
    assert!(Arc::ptr_eq(&outputs[0], &outputs[3]));
    assert_eq!(engine.stats().plans, 1);
}

#[test]
fn empty_tensors_and_scalars_have_values() {
    let engine = engine();
    let empty = live::<f32>(&[]);
    assert_eq!(floats(&engine, &(&empty + &empty)), Vec::<f32>::new());
    assert_eq!(floats(&engine, &sum_of_squares(&empty)), [0.0]);
    let (a, b) = (UOp::float(2.0, DType::F32), UOp::float(3.0, DType::F32));
    assert_eq!(floats(&engine, &(&a * &b)), [6.0]);
    assert_eq!(floats(&engine, &a), [2.0]);
}

#[test]
fn repeated_constants_have_no_home() {
    let engine = engine();
    let ones = UOp::full(uopc::ir::Scalar::f32(1.0), &[4usize][..].into()).unwrap();
    let held = realize(&engine, from_ref(&ones)).outputs.remove(0);
    assert_eq!(held.to_vec::<f32>(), [1.0; 4]);
    assert!(ones.home().is_none());
}

// ---- the tape ----

/// mean of exp(x * w) twice reduced: two kernels at least, with a value between them.
fn two_stage_loss(x: &UOp, w: &UOp) -> (UOp, UOp) {
    let rows = x
        .mul(w)
        .unwrap()
        .exp()
        .unwrap()
        .reduce(ReduceOp::Add, 1)
        .unwrap();
    let spread = rows.reshape(&[2, 1]).unwrap().expand(&[2, 3]).unwrap();
    let loss = sum_of_squares(&x.mul(&spread).unwrap());
    (rows, loss)
}

#[test]
fn the_tape_keeps_what_gradients_read() {
    let x = live(&[0.1f32, 0.2, 0.3, 0.4, 0.5, 0.6])
        .reshape(&[2, 3])
        .unwrap();
    let leaf = live(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let w = leaf.reshape(&[2, 3]).unwrap();
    let (rows, loss) = two_stage_loss(&x, &w);
    let grad = gradient(&loss, from_ref(&w)).unwrap().remove(0);

    let engine = engine();
    let options = RealizeOptions {
        tape_leaves: from_ref(&leaf),
        ..RealizeOptions::default()
    };
    let Realized { outputs, tape } = engine.realize(from_ref(&loss), &options).unwrap();
    assert!(
        tape.iter().any(|(node, _)| *node == rows),
        "the value between is kept"
    );
    assert!(rows.home().is_some());
    let forward = engine.stats().launches;
    let with_tape = realize(&engine, from_ref(&grad)).outputs.remove(0);
    let backward = engine.stats().launches - forward;

    // Without the tape the backward pass computes the forward one again, with the same bits.
    drop((outputs, tape));
    assert!(rows.home().is_none());
    let before = engine.stats().launches;
    drop(with_tape.clone());
    grad.clear_home();
    let without = realize(&engine, from_ref(&grad)).outputs.remove(0);
    assert!(engine.stats().launches - before > backward);
    assert_eq!(with_tape.as_bytes(), without.as_bytes());
}

#[test]
fn values_off_the_tape_are_not_kept() {
    let x = live(&[0.1f32, 0.2, 0.3, 0.4, 0.5, 0.6])
        .reshape(&[2, 3])
        .unwrap();
    let w = live(&[1.0f32; 6]).reshape(&[2, 3]).unwrap();
    let other = live(&[1.0f32]);
    let (rows, loss) = two_stage_loss(&x, &w);
    let options = RealizeOptions {
        tape_leaves: from_ref(&other),
        ..RealizeOptions::default()
    };
    let realized = engine().realize(from_ref(&loss), &options).unwrap();
    assert!(realized.tape.is_empty());
    assert!(rows.home().is_none());
}

#[test]
fn a_plan_with_a_tape_is_another_plan() {
    let engine = engine();
    let leaf = live(&[1.0f32; 6]);
    let w = leaf.reshape(&[2, 3]).unwrap();
    let x = live(&[0.5f32; 6]).reshape(&[2, 3]).unwrap();
    let (_, loss) = two_stage_loss(&x, &w);
    let plain = floats(&engine, &loss);
    loss.clear_home();
    let options = RealizeOptions {
        tape_leaves: from_ref(&leaf),
        ..RealizeOptions::default()
    };
    let taped = engine.realize(from_ref(&loss), &options).unwrap();
    assert_eq!(taped.outputs[0].to_vec::<f32>(), plain);
    assert_eq!(engine.stats().plans, 2);
}

// ---- memory ----

#[test]
fn temporaries_share_memory_and_the_peak_is_counted() {
    let engine = engine();
    // Six sums in a row, each of 1000 elements and read through a broadcast, one output.
    let n = 1000;
    let mut x = live(&vec![1.0f32; n]);
    for _ in 0..6 {
        let square = x.reshape(&[n, 1]).unwrap().expand(&[n, 2]).unwrap();
        x = square.reduce(ReduceOp::Max, 1).unwrap().exp2().unwrap();
        x = x
            .mul(&UOp::full(uopc::ir::Scalar::f32(0.5), x.shape()).unwrap())
            .unwrap();
    }
    let lowered = lower(from_ref(&x), None, engine.settings()).unwrap();
    let buffers = lowered.plan.buffers.len() - 1;
    assert!(buffers >= 6, "each sum has a buffer");
    assert_eq!(floats(&engine, &x), vec![1.0; n]);
    let bytes = (4 * n).next_multiple_of(64) as u64;
    let stats = engine.stats();
    assert!(stats.peak_bytes >= bytes);
    assert!(
        stats.peak_bytes <= 3 * bytes,
        "{} for {buffers} buffers",
        stats.peak_bytes
    );
    // Nothing stays behind.
    assert_eq!(engine.device().pool().live_bytes(), 0);
}

#[test]
fn steps_take_no_new_memory() {
    let engine = engine();
    let mut x = Some(Storage::from_slice(&[1.0f32; 256]).unwrap());
    let mut fresh = 0;
    for step in 0..200 {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 41);
        let storage: Arc<dyn Any + Send + Sync> = x.take().unwrap();
        let id = NEXT.fetch_add(1, Relaxed);
        let leaf = UOp::live(Arc::new(LiveBuffer { id, storage }), DType::F32, 256);
        let next = leaf.mul(&leaf).unwrap();
        x = Some(realize(&engine, &[next]).outputs.remove(0));
        if step == 2 {
            fresh = engine.device().pool().fresh_blocks();
        }
    }
    assert_eq!(engine.device().pool().fresh_blocks(), fresh);
    assert_eq!(engine.stats().plans, 1);
}

// ---- slots and listings ----

#[test]
fn text_slots_are_bound_by_the_caller() {
    let (x, y) = (UOp::slot(3, DType::F32, 2), UOp::slot(1, DType::F32, 2));
    let slots = [
        (1, Storage::from_slice(&[10.0f32, 20.0]).unwrap()),
        (3, Storage::from_slice(&[1.0f32, 2.0]).unwrap()),
    ];
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    let realized = engine().realize(&[y.add(&x).unwrap()], &options).unwrap();
    assert_eq!(realized.outputs[0].to_vec::<f32>(), [11.0, 22.0]);
}

#[test]
fn listings_show_live_memory_as_slots() {
    let x = live(&[1.0f32, 2.0, 3.0]);
    let text = listing(&[&x + &x], Some("double_it"), &Settings::default()).unwrap();
    assert!(text.starts_with("void double_it(float* restrict data0, float* restrict data1) {"));
}

#[test]
fn plans_are_listed_by_key_and_forgotten_on_request() {
    let engine = engine();
    let x = live(&[1.0f32, 2.0]);
    let graphs = [&x + &x, sum_of_squares(&x)];
    let key = |u: &UOp| plan_key(from_ref(u), &RealizeOptions::default()).unwrap();
    // Asked before the values have a home, at which a walk stops.
    let mut keys: Vec<[u8; 32]> = graphs.iter().map(key).collect();
    let kept: Vec<Realized> = graphs
        .iter()
        .map(|u| realize(&engine, from_ref(u)))
        .collect();
    keys.sort();
    assert_eq!(engine.plan_keys(), keys);
    engine.forget_plans();
    assert!(engine.plan_keys().is_empty());
    assert_eq!(engine.stats().plans, 0);
    // Values outlive the plans that made them.
    assert_eq!(floats(&engine, &graphs[0]), [2.0, 4.0]);
    drop(kept);
    assert_eq!(floats(&engine, &graphs[0]), [2.0, 4.0]);
    assert_eq!(engine.stats().plan_misses, 3);
}

#[test]
fn a_lowered_graph_names_what_its_inputs_are() {
    let settings = Settings::default();
    let (x, n) = (live(&[1.0f32, 2.0]), live(&[1i32, 2]));
    let zero = n.mul(&UOp::int(0, DType::I32).broadcast_scalar(n.shape()).unwrap());
    let zero = zero.unwrap().cast(DType::F32).unwrap();
    let (lowered, inputs) = lower_with_inputs(&[&zero + &x], None, &settings).unwrap();
    // The integers are multiplied by zero, so nothing reads them.
    assert_eq!(inputs, [x]);
    assert_eq!(lowered.plan.kernels.len(), 1);

    let (a, b) = (UOp::slot(7, DType::F32, 2), UOp::slot(3, DType::F32, 2));
    let (_, inputs) = lower_with_inputs(&[&a * &b], None, &settings).unwrap();
    assert_eq!(inputs, [b, a]);
}

// ---- devices ----

#[test]
fn both_devices_agree_and_c_is_compiled_once() {
    let folder = TempDir::new().unwrap();
    let settings = |device| Settings {
        device,
        cache_dir: Some(folder.path().join("cache")),
        ..Settings::default()
    };
    let x = live(&[0.1f32, -0.2, 0.3, 0.4, -0.5, 0.6])
        .reshape(&[2, 3])
        .unwrap();
    let w = live(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])
        .reshape(&[2, 3])
        .unwrap();
    let (_, loss) = two_stage_loss(&x, &w);
    let grads = gradient(&loss, &[x, w]).unwrap();
    let roots = [&[loss], &grads[..]].concat();
    let values = |engine: &Engine| -> Vec<Vec<u8>> {
        let outputs = realize(engine, &roots).outputs;
        outputs.iter().map(|s| s.as_bytes().to_vec()).collect()
    };
    let interp = values(&Engine::new(settings(DeviceChoice::Interp)).unwrap());
    let c = Engine::new(settings(DeviceChoice::C)).unwrap();
    assert_eq!(c.device().name(), "c");
    assert_eq!(values(&c), interp);
    assert_eq!(values(&c), interp);
    let Stats {
        plan_hits,
        plan_misses,
        compiler_calls,
        disk_hits,
        ..
    } = c.stats();
    assert_eq!(
        (plan_misses, plan_hits, compiler_calls, disk_hits),
        (1, 1, 1, 0)
    );
    let later = Engine::new(settings(DeviceChoice::Auto)).unwrap();
    assert_eq!(values(&later), interp);
    let stats = later.stats();
    assert_eq!((stats.compiler_calls, stats.disk_hits), (0, 1));
}

/// A compiler that ignores traps may take a conversion to an integer and back for a rounding.
#[test]
fn an_integer_has_no_negative_zero() {
    let settings = Settings {
        device: DeviceChoice::C,
        ..Settings::default()
    };
    let engine = Engine::new(settings).unwrap();
    for (value, expected) in [(-0.5f32, 0.0f32), (0.5, 0.0), (-1.5, -1.0), (-0.0, 0.0)] {
        let scalar = |leaf: UOp| leaf.reshape(&[]).unwrap();
        let (i, x) = (scalar(live(&[7i32])), scalar(live(&[value])));
        let parts = UOp::stack(&[i.clone(), x.cast(DType::I32).unwrap(), i]).unwrap();
        let found = floats(&engine, &parts.cast(DType::F32).unwrap());
        assert_eq!(
            found[1].to_bits(),
            expected.to_bits(),
            "{value} gives {}",
            found[1]
        );
    }
}

#[test]
fn without_a_compiler_the_interpreter_runs_everything() {
    let settings = Settings {
        cc: Some("/nonexistent/cc".into()),
        ..Settings::default()
    };
    let engine = Engine::new(settings).unwrap();
    assert_eq!(engine.device().name(), "interp");
    let x = live(&[1.0f32, 2.0]);
    assert_eq!(floats(&engine, &(&x * &x)), [1.0, 4.0]);
    assert_eq!(engine.stats().compiler_calls, 0);
}

#[test]
fn a_failed_plan_is_not_remembered() {
    let root = TempDir::new().unwrap();
    let cc = root.path().join("cc");
    let script = "printf '#!/bin/sh\\nexit 3\\n' > \"$1\" && chmod 755 \"$1\"";
    let mut sh = std::process::Command::new("sh");
    assert!(
        sh.args(["-c", script, "sh"])
            .arg(&cc)
            .status()
            .unwrap()
            .success()
    );
    let settings = Settings {
        cc: Some(cc.display().to_string()),
        device: DeviceChoice::C,
        ..Settings::default()
    };
    let engine = Engine::new(settings).unwrap();
    let x = live(&[1.0f32, 2.0]);
    for _ in 0..2 {
        let error = engine
            .realize(&[&x + &x], &RealizeOptions::default())
            .map(|_| ());
        let uopc::Error::Compile { source_path, .. } = error.unwrap_err() else {
            panic!("the compiler fails");
        };
        fs::remove_file(source_path).unwrap();
    }
    let stats = engine.stats();
    assert_eq!((stats.plan_misses, stats.plan_hits, stats.plans), (2, 0, 0));
}
