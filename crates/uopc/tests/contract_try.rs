//! try
use uopc::Tensor;
use uopc::compile::{Engine, RealizeOptions, listing};
use uopc::debug::{DeviceChoice, Schedule, Settings};

fn run(settings: Settings, t: &Tensor) -> Vec<u32> {
    let engine = Engine::new(settings).unwrap();
    let got = engine
        .realize(&[t.uop().clone()], &RealizeOptions::default())
        .unwrap();
    t.uop().clear_home();
    got.outputs[0]
        .to_vec::<f32>()
        .iter()
        .map(|f| f.to_bits())
        .collect()
}

#[test]
fn shapes() {
    for &(m, k, n) in &[
        (8usize, 16usize, 4usize),
        (33, 50, 40),
        (17, 4100, 9),
        (64, 64, 64),
        (5, 9000, 70),
        (100, 37, 300),
    ] {
        for kind in 0..4 {
            let a =
                Tensor::uniform(if kind & 1 == 0 { [m, k] } else { [k, m] }, -1.0, 1.0).unwrap();
            let b =
                Tensor::uniform(if kind & 2 == 0 { [k, n] } else { [n, k] }, -1.0, 1.0).unwrap();
            a.realize().unwrap();
            b.realize().unwrap();
            let a = if kind & 1 == 0 {
                a
            } else {
                a.transpose().unwrap()
            };
            let b = if kind & 2 == 0 {
                b
            } else {
                b.transpose().unwrap()
            };
            let t = a.matmul(&b).unwrap();
            let go = |schedule, device| {
                let s = Settings {
                    schedule,
                    device,
                    ..Settings::default()
                };
                run(s, &t)
            };
            if (m, kind) == (33, 0) {
                println!(
                    "{}",
                    listing(&[t.uop().clone()], None, &Settings::default()).unwrap()
                );
            }
            let plain = go(Schedule::Plain, DeviceChoice::C);
            let laid = go(Schedule::Default, DeviceChoice::Interp);
            assert!(plain == laid, "{m} {k} {n} {kind}");
            let c = go(Schedule::Default, DeviceChoice::C);
            assert!(plain == c, "{m} {k} {n} {kind} C");
            println!("{m} {k} {n} {kind} ok");
        }
    }
}
