//! Products that stay within the kernel of the sums that read them: the gradient of a convolution by
//! its images. Every engine gives the bits of the graph interpreter, on every machine.

#[path = "support/case.rs"]
mod case;
#[path = "support/engines.rs"]
mod engines;

use std::collections::BTreeMap;

use case::Case;
use engines::{Slots, c_device, interpret, run_compiled};
use uopc::Result;
use uopc::autodiff::gradient;
use uopc::debug::{Schedule, Settings};
use uopc::interp::{Array, Checks};
use uopc::ir::axes::{axes, shared};
use uopc::ir::form::{LoopGraph, Role};
use uopc::ir::op::{Combine, Exec, Op, ReduceOp, StageKind};
use uopc::ir::pieces::pieces;
use uopc::ir::visit::toposort;
use uopc::ir::{DType, UOp, verify};
use uopc::machine::Machine;
use uopc::pass::pipeline::{Lowered, lower};
use uopc::runtime::{Code, Device};

/// A convolution: images, channels of them, their height and width, channels of the result, and the
/// height and width of the filter.
#[derive(Clone, Copy, Debug)]
struct Shape {
    b: usize,
    c: usize,
    h: usize,
    w: usize,
    o: usize,
    kh: usize,
    kw: usize,
}

fn shape(b: usize, c: usize, [h, w]: [usize; 2], o: usize, [kh, kw]: [usize; 2]) -> Shape {
    Shape {
        b,
        c,
        h,
        w,
        o,
        kh,
        kw,
    }
}

fn slot(k: u32, dtype: DType, extents: &[usize]) -> Result<UOp> {
    let n = extents.iter().product();
    UOp::slot(k, dtype, n).reshape(extents)
}

/// An axis of extent n as two, (k, n - k + 1), whose element (i, j) is element i + j.
fn windows(x: &UOp, axis: usize, k: usize) -> Result<UOp> {
    let n = x.shape()[axis];
    let (before, after) = (x.shape()[..axis].to_vec(), x.shape()[axis + 1..].to_vec());
    let around = |middle: &[usize]| [&before[..], middle, &after[..]].concat();
    let whole = |middle: &[usize]| -> Vec<(usize, usize)> {
        around(middle).iter().map(|&d| (0, d)).collect()
    };
    x.reshape(&around(&[1, n]))?
        .expand(&around(&[k + 1, n]))?
        .reshape(&around(&[(k + 1) * n]))?
        .shrink(&whole(&[k * (n + 1)]))?
        .reshape(&around(&[k, n + 1]))?
        .shrink(&whole(&[k, n - k + 1]))
}

/// Numbers without a pattern, some of them no numbers at all if `wild`.
fn numbers(dtype: DType, n: usize, seed: u64, wild: bool) -> Array {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    let values: Vec<f64> = (0..n)
        .map(|k| match (wild, k % 97) {
            (true, 13) => f64::INFINITY,
            (true, 41) => f64::NAN,
            (true, 67) => -0.0,
            _ => next(),
        })
        .collect();
    Array::from_f64(dtype, &[n], &values).unwrap()
}

/// The gradient of a convolution by its images, where the images are positive if `masked`.
fn by_images(s: Shape, dtype: DType, masked: bool, wild: bool) -> Case {
    let build = || -> Result<UOp> {
        let (oh, ow) = (s.h - s.kh + 1, s.w - s.kw + 1);
        let x = slot(0, dtype, &[s.b, s.c, s.h, s.w])?;
        let weight = slot(1, dtype, &[s.o, s.c, s.kh, s.kw])?;
        let g = slot(2, dtype, &[s.b, s.o, oh, ow])?;
        let view = windows(&windows(&x, 2, s.kh)?, 4, s.kw)?.permute(&[0, 1, 2, 4, 3, 5])?;
        let all = [s.b, s.o, s.c, s.kh, s.kw, oh, ow];
        let view = view
            .reshape(&[s.b, 1, s.c, s.kh, s.kw, oh, ow])?
            .expand(&all)?;
        let filter = weight
            .reshape(&[1, s.o, s.c, s.kh, s.kw, 1, 1])?
            .expand(&all)?;
        let product = view.mul(&filter)?.permute(&[0, 1, 5, 6, 2, 3, 4])?;
        let y = product.reduce(ReduceOp::Add, 3)?.mul(&g)?;
        let of = gradient(&y, std::slice::from_ref(&x))?.remove(0);
        if !masked {
            return Ok(of);
        }
        let zero = x.full_like(0.0)?;
        zero.cmplt(&x)?.where_(&of, &zero)
    };
    let (oh, ow) = (s.h - s.kh + 1, s.w - s.kw + 1);
    Case {
        seed: 0,
        roots: vec![build().unwrap()],
        slots: vec![
            numbers(dtype, s.b * s.c * s.h * s.w, 1, false),
            numbers(dtype, s.o * s.c * s.kh * s.kw, 2, wild),
            numbers(dtype, s.b * s.o * oh * ow, 3, wild),
        ],
    }
}

/// The largest of each 2 x 2 elements of the positive part of a convolution.
fn pooled(s: Shape) -> Case {
    let (oh, ow) = (s.h - s.kh + 1, s.w - s.kw + 1);
    let build = || -> Result<UOp> {
        let x = slot(0, DType::F32, &[s.b, s.c, s.h, s.w])?;
        let weight = slot(1, DType::F32, &[s.o, s.c, s.kh, s.kw])?;
        let view = windows(&windows(&x, 2, s.kh)?, 4, s.kw)?.permute(&[0, 1, 2, 4, 3, 5])?;
        let all = [s.b, s.o, s.c, s.kh, s.kw, oh, ow];
        let view = view
            .reshape(&[s.b, 1, s.c, s.kh, s.kw, oh, ow])?
            .expand(&all)?;
        let filter = weight
            .reshape(&[1, s.o, s.c, s.kh, s.kw, 1, 1])?
            .expand(&all)?;
        let product = view.mul(&filter)?.permute(&[0, 1, 5, 6, 2, 3, 4])?;
        let y = product.reduce(ReduceOp::Add, 3)?;
        y.maximum(&y.full_like(0.0)?)?
            .reshape(&[s.b, s.o, oh / 2, 2, ow / 2, 2])?
            .permute(&[0, 1, 2, 4, 3, 5])?
            .reduce(ReduceOp::Max, 2)
    };
    Case {
        seed: 0,
        roots: vec![build().unwrap()],
        slots: vec![
            numbers(DType::F32, s.b * s.c * s.h * s.w, 1, false),
            numbers(DType::F32, s.o * s.c * s.kh * s.kw, 2, false),
        ],
    }
}

fn lowered(case: &Case, settings: &Settings) -> Lowered {
    let graph = verify::shape_graph(case.roots.clone()).unwrap();
    lower(&graph, None, settings).unwrap()
}

/// Runs the launches of a plan by `launch`, which gets a launch's number and its inputs.
fn run(case: &Case, plan: &Lowered, launch: &dyn Fn(usize, &LoopGraph, &Slots) -> Slots) -> Array {
    let mut buffers: BTreeMap<u32, Array> = BTreeMap::new();
    for (b, buffer) in plan.plan.buffers.iter().enumerate() {
        if let Role::Input(slot) = buffer.role {
            buffers.insert(b as u32, case.slots[slot as usize].clone());
        }
    }
    for (k, kernel) in plan.plan.kernels.iter().enumerate() {
        let given = kernel
            .ins
            .iter()
            .map(|&(slot, b)| (slot, buffers[&b].clone()));
        let mut wrote = launch(k, &plan.launches[k].loops, &given.collect());
        for (slot, b) in &kernel.outs {
            buffers.insert(*b, wrote.remove(slot).unwrap());
        }
    }
    buffers[&plan.plan.outputs[0]]
        .clone()
        .reshaped(case.roots[0].shape())
        .unwrap()
}

/// How many kernels keep a product, and how many there are.
fn kept(plan: &Lowered) -> (usize, usize) {
    let keeps = |u: &UOp| matches!(u.op(), Op::Stage(StageKind::Within));
    let bodies = plan.plan.kernels.iter().map(|k| toposort(k.body.roots()));
    let with = bodies.filter(|nodes| nodes.iter().any(keeps)).count();
    (with, plan.plan.kernels.len())
}

/// Compares all engines with the graph interpreter.
fn check(name: &str, case: &Case) {
    let want = case.values().unwrap().remove(0);
    let same = |got: &Array, engine: &str| {
        let difference = want.difference(got);
        assert!(
            difference.is_none(),
            "{name}, {engine}, expected first: {difference:?}"
        );
    };
    let plain = Settings {
        schedule: Schedule::Plain,
        ..Settings::default()
    };
    let mut plans = vec![("plain", lowered(case, &plain))];
    let machines = [
        ("native", Machine::native()),
        ("avx512", Machine::avx512()),
        ("avx2", Machine::avx2()),
        ("portable", Machine::portable()),
    ];
    for (engine, machine) in machines {
        let settings = Settings {
            machine,
            ..Settings::default()
        };
        let plan = lowered(case, &settings);
        // What is kept is laid out as a tiled product, and with masks so are the sums.
        let vector = |end: &UOp| {
            let lanes = |r: &UOp| matches!(r.op(), Op::Range { exec, .. } if *exec == Exec::Vector);
            end.src()[1..].iter().any(lanes)
        };
        let product = |end: &UOp| matches!(end.src()[0].op(), Op::Store { combine, .. } if *combine == Combine::MulAcc);
        for launch in &plan.launches {
            let s = launch.loops.statements();
            assert!(
                s.iter().any(|end| product(end) && vector(end)),
                "{name}, {engine}: the product is not tiled"
            );
            let lanes = s.iter().filter(|end| vector(end)).count();
            assert!(
                2 * lanes > s.len() || engine != "avx512",
                "{name}, {engine}: {lanes} of {} in vectors",
                s.len()
            );
        }
        plans.push((engine, plan));
    }
    for (engine, plan) in &plans {
        assert_eq!(
            kept(plan),
            (1, 1),
            "{name}, {engine}: kernels that keep a product, of all"
        );
        let got = run(case, plan, &|_, loops, given| {
            interpret(loops, given, Checks::All).unwrap()
        });
        same(&got, engine);
    }
    let device = c_device();
    for (engine, plan) in &plans[..2] {
        let codes: Vec<Code> = (plan.launches.iter())
            .map(|l| Code {
                loops: &l.loops,
                program: &l.program,
            })
            .collect();
        let code = device.compile(&codes).unwrap();
        let got = run(case, plan, &|k, loops, given| {
            run_compiled(&*code, k, loops, given)
        });
        same(&got, &format!("C of {engine}"));
    }
}

#[test]
fn sizes_with_and_without_tails() {
    for s in [
        shape(16, 4, [24, 24], 3, [5, 5]),
        shape(37, 5, [21, 18], 2, [3, 4]),
        shape(64, 32, [8, 8], 4, [3, 3]),
    ] {
        check(&format!("{s:?}"), &by_images(s, DType::F32, false, false));
    }
}

#[test]
fn masks_and_what_is_no_number() {
    let s = shape(17, 4, [23, 25], 3, [5, 5]);
    check("mask", &by_images(s, DType::F32, true, false));
    check("wild", &by_images(s, DType::F32, true, true));
}

#[test]
fn other_dtypes() {
    let s = shape(37, 4, [16, 17], 3, [3, 5]);
    check("f64", &by_images(s, DType::F64, true, false));
    let s = shape(101, 4, [16, 17], 2, [3, 5]);
    check("f16", &by_images(s, DType::F16, true, false));
}

#[test]
fn what_is_small_or_read_elsewhere_has_a_buffer() {
    let small = by_images(shape(4, 4, [12, 12], 3, [5, 5]), DType::F32, false, false);
    assert_eq!(kept(&lowered(&small, &Settings::default())).0, 0);
    // A sum of all images: no axis of the product is one of the result.
    let s = shape(64, 32, [8, 8], 4, [3, 3]);
    let mut all = by_images(s, DType::F32, false, false);
    all.roots = vec![
        all.roots[0]
            .reshape(&[64 * 32 * 64])
            .unwrap()
            .reduce(ReduceOp::Add, 1)
            .unwrap(),
    ];
    let plan = lowered(&all, &Settings::default());
    assert!(plan.plan.kernels.len() > 1);
}

#[test]
fn a_piece_is_no_sliver_of_a_product() {
    // The result has images, channels, rows and columns. A piece for each image and channel would
    // multiply all windows of an image by a single filter.
    let s = shape(18, 2, [24, 24], 64, [3, 3]);
    let case = pooled(s);
    let plan = lowered(&case, &Settings::default());
    assert_eq!(kept(&plan), (1, 1));
    let nodes = toposort(plan.plan.kernels[0].body.roots());
    let keeps = |u: &UOp| matches!(u.op(), Op::Stage(StageKind::Within));
    assert_eq!((shared(&nodes, keeps), pieces(&nodes, keeps)), (2, 1));
    check(&format!("{s:?}"), &case);
}

#[test]
fn a_long_product_is_a_kernel_of_its_own() {
    let case = pooled(shape(16, 32, [24, 24], 64, [3, 3]));
    assert_eq!(kept(&lowered(&case, &Settings::default())), (0, 2));
}

#[test]
fn axes_are_followed_through_movement() {
    let x = UOp::slot(0, DType::F32, 2 * 3 * 4 * 5)
        .reshape(&[2, 3, 4, 5])
        .unwrap();
    let of = |root: &UOp| {
        let known = axes(&toposort(std::slice::from_ref(root)));
        known[&x].iter().copied().collect::<Vec<_>>()
    };
    let unmoved = [Some(0), Some(1), Some(2), Some(3)];
    assert_eq!(of(&x.exp().unwrap()), unmoved);
    assert_eq!(
        of(&x.permute(&[2, 0, 3, 1]).unwrap()),
        [Some(1), Some(3), Some(0), Some(2)]
    );
    // Axes that become one are lost, those beside them and beside axes of one element are not.
    let joined = x.reshape(&[2, 1, 12, 5]).unwrap();
    assert_eq!(of(&joined), [Some(0), None, None, Some(3)]);
    let apart = x.reshape(&[1, 2, 3, 2, 2, 5]).unwrap();
    assert_eq!(of(&apart), [Some(1), Some(2), None, Some(5)]);
    let part = x.shrink(&[(0, 2), (1, 3), (0, 4), (0, 5)]).unwrap();
    assert_eq!(of(&part), [Some(0), None, Some(2), Some(3)]);
    let sum = x.reduce(ReduceOp::Add, 2).unwrap();
    assert_eq!(of(&sum), [Some(0), Some(1), None, None]);
    let wide = sum.reshape(&[2, 3, 1]).unwrap().expand(&[2, 3, 7]).unwrap();
    assert_eq!(of(&wide), [Some(0), Some(1), None, None]);
    // What is read in two ways has the axes that it has in both.
    let square = UOp::slot(1, DType::F32, 12).reshape(&[2, 2, 3]).unwrap();
    let both = square.add(&square.permute(&[1, 0, 2]).unwrap()).unwrap();
    let nodes = toposort(std::slice::from_ref(&both));
    assert_eq!(axes(&nodes)[&square].to_vec(), [None, None, Some(2)]);
    assert_eq!(shared(&nodes, |u| *u == square), 0);
    assert_eq!(shared(&toposort(&[wide]), |u| *u == x), 2);
}
