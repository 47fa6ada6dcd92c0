//! Optimisers, schedules, clipping and averages against PyTorch (`fixtures/optimizers.json`), and what
//! training with all of them costs: no plan after the second step, and not a bit when it is resumed.

mod tensors;

use serde_json::Value;
use tensors::{own_engine, with_own_engine};
use uopc::nn::{
    self, Activation, Adam, AdamW, BatchNorm2d, Conv2d, Dropout, Ema, Linear, Model, Module, Muon,
    MuonScale, Optimizer, RandomState, RmsProp, Schedule, Scheduler, Sequential, Sgd,
    clip_grad_norm, clip_grad_value, load_checkpoint, save_checkpoint,
};
use uopc::tensor::Conv;
use uopc::{Result, Tensor, vmap};

const SHAPES: [[usize; 2]; 2] = [[3, 4], [4, 2]];

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/optimizers.json")).unwrap()
}

fn numbers(v: &Value) -> Vec<f64> {
    let numbers = v.as_array().unwrap().iter();
    numbers.map(|x| x.as_f64().unwrap()).collect()
}

fn tensors(v: &Value) -> Vec<Tensor> {
    let lists = v.as_array().unwrap().iter().zip(SHAPES);
    lists
        .map(|(list, shape)| Tensor::from_slice(&numbers(list), shape).unwrap())
        .collect()
}

fn parameters(fixture: &Value) -> Vec<Tensor> {
    let start = tensors(&fixture["start"]).into_iter();
    start.map(|t| t.requires_grad().unwrap()).collect()
}

#[track_caller]
fn near(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        let close = (a - b).abs() <= 1e-12 * b.abs().max(1.0);
        assert!(close, "{what}: {found:?} is not {expected:?}");
    }
}

type Make = fn(Vec<Tensor>) -> Result<Box<dyn Optimizer>>;

fn boxed(optimizer: impl Optimizer + 'static) -> Result<Box<dyn Optimizer>> {
    Ok(Box::new(optimizer))
}

const OPTIMIZERS: &[(&str, Make)] = &[
    ("sgd", |p| boxed(Sgd::new(p, 0.1)?)),
    ("sgd momentum", |p| {
        boxed(Sgd::with_momentum(p, 0.1, 0.9)?.weight_decay(0.05))
    }),
    ("sgd nesterov", |p| {
        boxed(Sgd::with_momentum(p, 0.1, 0.9)?.nesterov(true))
    }),
    ("adam", |p| {
        boxed(
            Adam::new(p, 0.1)?
                .betas(0.8, 0.95)
                .eps(1e-6)
                .weight_decay(0.1),
        )
    }),
    ("adamw", |p| boxed(AdamW::new(p, 0.1)?.weight_decay(0.1))),
    ("rmsprop", |p| boxed(RmsProp::new(p, 0.1)?.alpha(0.9))),
    ("rmsprop all", |p| {
        let optimizer = RmsProp::new(p, 0.1)?
            .alpha(0.9)
            .eps(1e-6)
            .weight_decay(0.05);
        boxed(optimizer.momentum(0.8)?.centered(true)?)
    }),
    ("groups", |p| {
        let second = AdamW::new(vec![p[1].clone()], 0.01)?.weight_decay(0.0);
        boxed(
            AdamW::new(vec![p[0].clone()], 0.1)?
                .weight_decay(0.1)
                .and(second)?,
        )
    }),
    ("muon", |p| boxed(Muon::new(p, 0.02)?)),
    ("muon plain", |p| {
        let optimizer = Muon::new(p, 0.02)?
            .momentum(0.8)
            .nesterov(false)
            .weight_decay(0.0);
        boxed(optimizer.scale(MuonScale::MatchRmsAdamW))
    }),
];

#[test]
fn optimisers_step_as_in_pytorch_with_one_plan() {
    let fixture = fixture();
    let all = fixture["optimizers"].as_object().unwrap();
    assert_eq!(all.len(), OPTIMIZERS.len());
    for (name, make) in OPTIMIZERS {
        with_own_engine(|engine| {
            let parameters = parameters(&fixture);
            let mut optimizer = make(parameters.clone()).unwrap();
            for gradients in fixture["gradients"].as_array().unwrap() {
                for (p, g) in parameters.iter().zip(tensors(gradients)) {
                    p.set_grad(Some(g));
                }
                optimizer.step().unwrap();
            }
            for (p, expected) in parameters.iter().zip(all[*name].as_array().unwrap()) {
                near(name, &p.to_vec::<f64>().unwrap(), &numbers(expected));
            }
            assert_eq!(engine.stats().plan_misses, 1, "{name}");
        });
    }
}

#[test]
fn schedules_are_those_of_pytorch() {
    let sequence = Schedule::Sequence {
        parts: vec![
            Schedule::Linear {
                start: 0.1,
                end: 1.0,
                steps: 3,
            },
            Schedule::Step {
                every: 4,
                gamma: 0.5,
            },
        ],
        milestones: vec![3],
    };
    let cycle = |warm, div, final_div, linear| Schedule::OneCycle {
        max: 1.5,
        steps: 12,
        warm,
        div,
        final_div,
        linear,
    };
    let schedules = [
        (
            "constant",
            Schedule::Constant {
                factor: 0.5,
                steps: 3,
            },
        ),
        (
            "step",
            Schedule::Step {
                every: 3,
                gamma: 0.5,
            },
        ),
        (
            "multistep",
            Schedule::MultiStep {
                milestones: vec![2, 5, 6],
                gamma: 0.5,
            },
        ),
        ("exponential", Schedule::Exponential { gamma: 0.9 }),
        (
            "cosine",
            Schedule::Cosine {
                steps: 8,
                least: 0.02,
            },
        ),
        (
            "linear",
            Schedule::Linear {
                start: 0.25,
                end: 0.75,
                steps: 4,
            },
        ),
        ("one_cycle", cycle(0.3, 25.0, 1e4, false)),
        ("one_cycle linear", cycle(0.25, 10.0, 100.0, true)),
        ("sequence", sequence),
    ];
    let fixture = fixture();
    let all = fixture["schedules"].as_object().unwrap();
    assert_eq!(all.len(), schedules.len());
    for (name, schedule) in schedules {
        schedule.check().unwrap();
        let rates: Vec<f64> = (0..12).map(|step| schedule.rate(0.8, step)).collect();
        near(name, &rates, &numbers(&all[name]));
    }
}

#[test]
fn numbers_of_schedules_are_looked_at() {
    let bad = [
        Schedule::Step {
            every: 0,
            gamma: 0.5,
        },
        Schedule::Exponential { gamma: f64::NAN },
        Schedule::Cosine {
            steps: 0,
            least: 0.0,
        },
        Schedule::Linear {
            start: -0.1,
            end: 1.0,
            steps: 3,
        },
        Schedule::Constant {
            factor: f64::INFINITY,
            steps: 1,
        },
        Schedule::Sequence {
            parts: vec![],
            milestones: vec![],
        },
        Schedule::Sequence {
            parts: vec![
                Schedule::Exponential { gamma: -1.0 },
                Schedule::Exponential { gamma: 1.0 },
            ],
            milestones: vec![3],
        },
    ];
    for schedule in bad {
        assert!(schedule.check().is_err(), "{schedule:?}");
    }
}

#[test]
fn gradients_are_clipped_as_in_pytorch() {
    let _engine = own_engine();
    let fixture = fixture();
    for (name, kind) in [("2", 2.0), ("1", 1.0), ("3", 3.0), ("inf", f64::INFINITY)] {
        let parameters = parameters(&fixture);
        for (p, g) in parameters.iter().zip(tensors(&fixture["gradients"][0])) {
            p.set_grad(Some(g));
        }
        let norm = clip_grad_norm(&parameters, 0.75, kind).unwrap();
        let expected = &fixture["clipped"][name];
        near(
            name,
            &[norm.item().unwrap()],
            &[expected["norm"].as_f64().unwrap()],
        );
        for (p, g) in parameters
            .iter()
            .zip(expected["gradients"].as_array().unwrap())
        {
            near(
                name,
                &p.grad().unwrap().to_vec::<f64>().unwrap(),
                &numbers(g),
            );
        }
    }
    let p = Tensor::zeros([3]).unwrap().requires_grad().unwrap();
    p.set_grad(Some(Tensor::from([-3.0f32, 0.25, f32::INFINITY])));
    clip_grad_value(std::slice::from_ref(&p), 0.5).unwrap();
    assert_eq!(
        p.grad().unwrap().to_vec::<f32>().unwrap(),
        [-0.5, 0.25, 0.5]
    );
    // Nothing to clip is no mistake; a limit that is none is one.
    p.zero_grad();
    let alone = std::slice::from_ref(&p);
    assert_eq!(
        clip_grad_norm(alone, 1.0, 2.0).unwrap().item().unwrap(),
        0.0
    );
    for (limit, kind) in [(-1.0, 2.0), (f64::NAN, 2.0), (1.0, 0.0), (1.0, f64::NAN)] {
        assert!(clip_grad_norm(alone, limit, kind).is_err());
    }
    assert!(clip_grad_value(alone, -1.0).is_err());
}

// ---- whole training runs ----

/// A small convolutional network with everything that changes from step to step.
struct Run {
    net: Sequential,
    optimizer: AdamW,
    scheduler: Scheduler,
    ema: Ema,
    done: u32,
}

impl Run {
    fn new() -> Run {
        let net = Sequential::new()
            .add(Conv2d::new(1, 3, [3, 3], Conv::new().padding(1)).unwrap())
            .add(BatchNorm2d::new(3).unwrap())
            .add(Activation::Relu)
            .then(|x| x.max_pool2d(2)?.flatten(1, -1))
            .add(Dropout::new(0.3).unwrap())
            .add(Linear::new(12, 4).unwrap());
        let parameters = net.parameters();
        let (decayed, others) = parameters
            .iter()
            .cloned()
            .partition(|p: &Tensor| p.rank() > 1);
        let optimizer = AdamW::new(decayed, 0.01).unwrap();
        let others = AdamW::new(others, 0.02).unwrap().weight_decay(0.0);
        let mut optimizer = optimizer.and(others).unwrap();
        let cosine = Schedule::Cosine {
            steps: 8,
            least: 1e-4,
        };
        let scheduler = Scheduler::new(Schedule::warm_up(3, cosine), &mut optimizer).unwrap();
        let ema = Ema::new(parameters, 0.9).unwrap();
        Run {
            net,
            optimizer,
            scheduler,
            ema,
            done: 0,
        }
    }

    fn step(&mut self) -> f64 {
        self.done += 1;
        let pixel = |k: u32| ((k * 7 + self.done * 5) % 13) as f32 / 6.0 - 1.0;
        let x: Vec<f32> = (0..128).map(pixel).collect();
        let x = Tensor::from_slice(&x, [8, 1, 4, 4]).unwrap();
        let y: Vec<i32> = (0..8).map(|k| ((k + self.done) % 4) as i32).collect();
        let logits = self.net.forward(&x).unwrap();
        let loss = logits.cross_entropy(&Tensor::from(y)).unwrap();
        self.optimizer.zero_grad();
        loss.backward(self.optimizer.parameters()).unwrap();
        clip_grad_norm(self.optimizer.parameters(), 1.0 / self.done as f64, 2.0).unwrap();
        self.optimizer.step_with(&loss).unwrap();
        self.scheduler.step(&mut self.optimizer);
        self.ema.update().unwrap();
        loss.item().unwrap()
    }

    /// All that it consists of, to the last bit.
    fn bits(&self) -> Vec<Vec<u8>> {
        let mut tensors: Vec<Tensor> = Vec::new();
        let named = [
            self.net.named_state(),
            self.optimizer.state().unwrap(),
            self.scheduler.state().unwrap(),
            self.ema.state().unwrap(),
        ];
        tensors.extend(named.concat().into_iter().map(|(_, t)| t));
        let mut bits: Vec<Vec<u8>> = tensors.iter().map(|t| t.to_bytes().unwrap()).collect();
        bits.push(format!("{:?}", Tensor::random_state()).into_bytes());
        bits
    }
}

#[test]
fn dropout_batch_norm_schedules_and_clipping_add_no_plan_after_step_two() {
    with_own_engine(|engine| {
        Tensor::manual_seed(5);
        let mut run = Run::new();
        let (mut seen, mut losses) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            losses.push(run.step());
            let stats = engine.stats();
            seen.push((stats.plan_misses, stats.compiler_calls, stats.plans));
        }
        assert!(seen[1..].iter().all(|s| *s == seen[1]), "{seen:?}");
        assert!(losses.iter().all(|l| l.is_finite()), "{losses:?}");
        // The running statistics have moved, in the plans of the steps.
        let buffers = run.net.named_buffers();
        assert_eq!(buffers[0].0, "1.running_mean");
        assert_ne!(buffers[0].1.to_vec::<f32>().unwrap(), [0.0; 3]);
    });
}

#[test]
fn reading_the_loss_first_costs_no_second_forward_pass() {
    with_own_engine(|engine| {
        Tensor::manual_seed(5);
        let norm = BatchNorm2d::new(2).unwrap();
        let x = Tensor::randn([4, 2, 3, 3]).unwrap();
        x.realize().unwrap();
        let loss = norm
            .forward(&x)
            .unwrap()
            .square()
            .unwrap()
            .mean(..)
            .unwrap();
        loss.item().unwrap();
        let before = engine.stats().launches;
        // Its value came with the loss.
        norm.running_mean.to_vec::<f32>().unwrap();
        norm.running_var.to_vec::<f32>().unwrap();
        assert_eq!(engine.stats().launches, before);
    });
}

#[test]
fn a_run_that_is_resumed_has_the_bits_of_one_that_was_not_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.safetensors");
    let _engine = own_engine();
    Tensor::manual_seed(5);
    let mut whole = Run::new();
    let losses: Vec<f64> = (0..8).map(|_| whole.step()).collect();
    let expected = whole.bits();

    Tensor::manual_seed(5);
    let mut first = Run::new();
    for loss in &losses[..4] {
        assert_eq!(first.step(), *loss);
    }
    let parts: [(&str, &dyn nn::Stateful); 5] = [
        ("model", &Model(&first.net)),
        ("optimizer", &first.optimizer),
        ("schedule", &first.scheduler),
        ("ema", &first.ema),
        ("random", &RandomState),
    ];
    save_checkpoint(&path, &parts).unwrap();

    // As in another process: other initial values, another seed.
    Tensor::manual_seed(77);
    let mut second = Run::new();
    second.step();
    let Run {
        net,
        optimizer,
        scheduler,
        ema,
        ..
    } = &mut second;
    load_checkpoint(
        &path,
        &mut [
            ("model", &mut Model(net)),
            ("optimizer", optimizer),
            ("schedule", scheduler),
            ("ema", ema),
            ("random", &mut RandomState),
        ],
    )
    .unwrap();
    second.done = 4;
    for loss in &losses[4..] {
        assert_eq!(second.step(), *loss);
    }
    assert!(second.bits() == expected);
}

#[test]
fn a_checkpoint_that_does_not_fit_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.safetensors");
    let _engine = own_engine();
    Tensor::manual_seed(5);
    let layer = Linear::new(2, 3).unwrap();
    let optimizer = Sgd::with_momentum(layer.parameters(), 0.5, 0.9).unwrap();
    save_checkpoint(
        &path,
        &[("model", &Model(&layer)), ("optimizer", &optimizer)],
    )
    .unwrap();
    let other = Linear::new(2, 3).unwrap();
    let before = other.weight.to_vec::<f32>().unwrap();
    let mut adam = AdamW::new(other.parameters(), 0.25).unwrap();
    let error = load_checkpoint(
        &path,
        &mut [("model", &mut Model(&other)), ("optimizer", &mut adam)],
    )
    .unwrap_err();
    assert!(error.to_string().contains("no entry steps"), "{error}");
    assert_eq!(other.weight.to_vec::<f32>().unwrap(), before);
    assert_eq!(adam.learning_rate(), 0.25);
    for name in ["", "a.b"] {
        assert!(
            save_checkpoint(&path, &[(name, &RandomState)]).is_err(),
            "{name}"
        );
    }
    let twice: [(&str, &dyn nn::Stateful); 2] = [("a", &RandomState), ("a", &RandomState)];
    assert!(save_checkpoint(&path, &twice).is_err());
}

#[test]
fn averages_follow_the_weights_and_take_their_place() {
    let _engine = own_engine();
    let w = Tensor::from([1.0f32, -1.0]).requires_grad().unwrap();
    let mut ema = Ema::new(vec![w.clone()], 0.5).unwrap();
    w.assign(3.0f32).unwrap();
    ema.update().unwrap();
    ema.apply().unwrap();
    assert_eq!(w.to_vec::<f32>().unwrap(), [2.0, 1.0]);
    assert!(ema.update().is_err() && ema.apply().is_err());
    ema.restore().unwrap();
    assert_eq!(w.to_vec::<f32>().unwrap(), [3.0, 3.0]);
    assert!(ema.restore().is_err());
    assert!(w.is_parameter());
    assert!(Ema::new(vec![w], 1.0).is_err());
}

// ---- running statistics ----

#[test]
fn running_statistics_are_pytorchs() {
    let _engine = own_engine();
    let norm = BatchNorm2d::new(1).unwrap();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 6.0], [1, 1, 2, 2]).unwrap();
    norm.forward(&x).unwrap();
    norm.forward(&x).unwrap();
    // Mean 3, variance 14/3 with N - 1: twice a tenth of the way from 0 and from 1.
    let [mean, var] = [&norm.running_mean, &norm.running_var].map(|t| t.item().unwrap());
    assert!((mean - 0.57).abs() < 1e-6, "{mean}");
    assert!((var - (0.81 + 0.19 * 14.0 / 3.0)).abs() < 1e-6, "{var}");
    let _evaluation = nn::evaluation();
    let y = norm.forward(&x).unwrap().to_vec::<f32>().unwrap();
    let expected = (1.0 - mean) / (var + 1e-5).sqrt();
    assert!((y[0] as f64 - expected).abs() < 1e-6);
    assert!(norm.running_mean.item().unwrap() == mean);
}

#[test]
fn running_statistics_inside_transformations() {
    let _engine = own_engine();
    let norm = BatchNorm2d::new(1).unwrap();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 6.0], [1, 1, 2, 2]).unwrap();
    let loss = |x: &Tensor| norm.forward(x)?.square()?.sum(..);
    uopc::grad(loss)(&x).unwrap().realize().unwrap();
    let mean = norm.running_mean.item().unwrap();
    assert!((mean - 0.3).abs() < 1e-6, "{mean}");
    // In a map there are as many statistics as slices; none of them is kept.
    let xs = Tensor::stack(&[&x, &x], 0).unwrap();
    vmap(loss, 0, 0)(&xs).unwrap().realize().unwrap();
    assert_eq!(norm.running_mean.item().unwrap(), mean);
}
