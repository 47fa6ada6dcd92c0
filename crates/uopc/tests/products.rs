//! Matrix products in all spellings: the default schedule gives the bits of the plain one, in C and
//! in the interpreter of loops, whatever the sizes.

use uopc::compile::{Engine, RealizeOptions, lower};
use uopc::debug::{DeviceChoice, Schedule, Settings};
use uopc::ir::Op;
use uopc::ir::op::Exec;
use uopc::ir::visit::toposort;
use uopc::machine::Machine;
use uopc::{DType, Result, Tensor};

/// The bits of a tensor's value, computed under a schedule on a device.
fn bits(t: &Tensor, settings: Settings) -> Vec<u8> {
    let engine = Engine::new(settings).unwrap();
    let roots = [t.uop().clone()];
    let got = engine.realize(&roots, &RealizeOptions::default()).unwrap();
    t.uop().clear_home();
    got.outputs[0].as_bytes().to_vec()
}

fn settings(schedule: Schedule, device: DeviceChoice) -> Settings {
    Settings {
        schedule,
        device,
        ..Settings::default()
    }
}

/// Random numbers, computed now so that products read memory.
fn numbers(shape: &[usize]) -> Tensor {
    let t = Tensor::uniform(shape, -1.0, 1.0).unwrap();
    t.realize().unwrap();
    t
}

/// Compares all engines, and checks that the product was tiled.
fn check(name: &str, build: impl Fn() -> Result<Tensor>) {
    let t = build().unwrap();
    let plain = bits(&t, settings(Schedule::Plain, DeviceChoice::C));
    for machine in [Machine::native(), Machine::avx2(), Machine::portable()] {
        let laid_out = Settings {
            machine,
            ..settings(Schedule::Default, DeviceChoice::Interp)
        };
        let lowered = lower(&[t.uop().clone()], None, &laid_out).unwrap();
        let tiled = lowered.launches.iter().any(|l| {
            let nodes = toposort(&[l.loops.sink().clone()]);
            nodes.iter().any(|u| {
                matches!(u.op(), Op::Local { n, .. } if *n > 1)
                    && nodes.iter().any(|r| {
                        matches!(
                            r.op(),
                            Op::Range {
                                exec: Exec::Vector,
                                ..
                            }
                        )
                    })
            })
        });
        assert!(tiled, "{name}: no tile of a product on {machine:?}");
        assert!(
            plain == bits(&t, laid_out),
            "{name}: the loops of {machine:?}"
        );
    }
    let c = bits(&t, settings(Schedule::Default, DeviceChoice::C));
    assert!(plain == c, "{name}: C");
}

#[test]
fn sizes_and_transposes() {
    for (m, k, n) in [
        (8, 16, 4),
        (33, 50, 40),
        (17, 4100, 9),
        (64, 64, 64),
        (5, 9000, 7),
        (100, 37, 60),
        (2, 8192, 3),
    ] {
        for (turn_a, turn_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let a = numbers(&if turn_a { [k, m] } else { [m, k] });
            let b = numbers(&if turn_b { [n, k] } else { [k, n] });
            check(&format!("{m} {k} {n} {turn_a} {turn_b}"), || {
                let a = if turn_a { a.transpose()? } else { a.clone() };
                let b = if turn_b { b.transpose()? } else { b.clone() };
                a.matmul(&b)
            });
        }
    }
}

#[test]
fn batches() {
    for (batch, m, k, n) in [(3, 20, 30, 17), (6, 64, 32, 64), (2, 90, 200, 70)] {
        let (a, b) = (numbers(&[batch, m, k]), numbers(&[batch, k, n]));
        check(&format!("{batch} {m} {k} {n}"), || a.matmul(&b));
        let c = numbers(&[batch, n, k]);
        check(&format!("{batch} {m} {k} {n} turned"), || {
            a.matmul(&c.transpose()?)
        });
    }
}

#[test]
fn prologues_and_epilogues() {
    let (a, b, h) = (numbers(&[45, 70]), numbers(&[70, 52]), numbers(&[70, 52]));
    let bias = numbers(&[52]);
    check("bias and relu", || a.matmul(&b)?.add(&bias)?.relu());
    check("transposed result", || {
        a.matmul(&b)?.mul(2.0)?.transpose()?.add(1.0)
    });
    check("mask", || {
        let masked = h.gt(0.0)?.where_(&b, 0.0)?;
        a.matmul(&masked)
    });
    check("cast", || {
        let narrow = a.cast(DType::BF16)?.cast(DType::F32)?;
        narrow.matmul(&b.exp()?)
    });
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        let (a, b) = (a.cast(dtype).unwrap(), b.cast(dtype).unwrap());
        Tensor::realize_all(&[&a, &b]).unwrap();
        check(&format!("{dtype}"), || a.matmul(&b));
    }
}

/// An axis of extent n as two, (k, n - k + 1), whose element (i, j) is element i + j.
fn windows(x: &Tensor, axis: usize, k: usize) -> Result<Tensor> {
    let n = x.shape()[axis];
    let (before, after) = (&x.shape()[..axis], &x.shape()[axis + 1..]);
    let around = |middle: &[usize]| [before, middle, after].concat();
    let whole = |middle: &[usize]| -> Vec<(usize, usize)> {
        around(middle).iter().map(|&d| (0, d)).collect()
    };
    x.reshape(around(&[1, n]))?
        .expand(around(&[k + 1, n]))?
        .reshape(around(&[(k + 1) * n]))?
        .shrink(whole(&[k * (n + 1)]))?
        .reshape(around(&[k, n + 1]))?
        .shrink(whole(&[k, n - k + 1]))
}

#[test]
fn convolutions_and_their_gradients() {
    for (b, c, h, w, o, k) in [
        (2, 3, 9, 10, 5, 3),
        (3, 1, 12, 12, 32, 5),
        (2, 8, 10, 18, 16, 3),
        // The gradient by weights sums over more than a block, which ends within a row.
        (2, 1, 50, 49, 16, 3),
    ] {
        let (x, weight) = (numbers(&[b, c, h, w]), numbers(&[o, c, k, k]));
        let (oh, ow) = (h - k + 1, w - k + 1);
        let view = || -> Result<Tensor> {
            let view = windows(&windows(&x, 2, k)?, 4, k)?.permute([0, 3, 5, 1, 2, 4])?;
            view.reshape([b, 1, oh, ow, c, k, k])
        };
        let filter = || weight.reshape([1, o, 1, 1, c, k, k]);
        let g = numbers(&[b, o, oh, ow]);
        let wide = || g.reshape([b, o, oh, ow, 1, 1, 1]);
        check(&format!("{b} {c} {h} {w} {o} {k}"), || {
            view()?.mul(&filter()?)?.sum([4, 5, 6])
        });
        check(&format!("{b} {c} {h} {w} {o} {k}, by weights"), || {
            view()?.mul(&wide()?)?.sum([0, 2, 3])
        });
        check(&format!("{b} {c} {h} {w} {o} {k}, by windows"), || {
            wide()?.mul(&filter()?)?.sum(1)
        });
    }
}
