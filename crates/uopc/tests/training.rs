//! Training: losses fall, histories end where they should, and steps neither recompile nor grow.

mod tensors;

use tensors::*;
use uopc::data::digits;
use uopc::ir::Op;
use uopc::ir::form::Role;
use uopc::nn::{AdamW, Linear, Module, Optimizer, Sgd, within};
use uopc::tensor::{Generator, no_grad};
use uopc::{Result, Tensor};

/// Two layers with a relu between.
struct Mlp {
    hidden: Linear,
    output: Linear,
}

impl Mlp {
    fn new(sizes: [usize; 3]) -> Mlp {
        let hidden = Linear::new(sizes[0], sizes[1]).unwrap();
        Mlp {
            hidden,
            output: Linear::new(sizes[1], sizes[2]).unwrap(),
        }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.hidden.forward(x)?.relu()?)
    }
}

impl Module for Mlp {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        [
            within("hidden", &self.hidden),
            within("output", &self.output),
        ]
        .concat()
    }
}

/// Points in 8 dimensions, and whether their coordinates add up to more than 0.
fn points() -> (Tensor, Tensor) {
    let x = Generator::new(7).randn([64, 8]).unwrap();
    let y = x
        .sum(1)
        .unwrap()
        .gt(0.0)
        .unwrap()
        .cast(uopc::DType::I32)
        .unwrap();
    Tensor::realize_all(&[&x, &y]).unwrap();
    (x, y)
}

fn train(steps: usize, seed: u64) -> Vec<f64> {
    Tensor::manual_seed(seed);
    let (x, y) = points();
    let model = Mlp::new([8, 16, 2]);
    let mut optimizer = AdamW::new(model.parameters(), 1e-2).unwrap();
    let mut losses = Vec::new();
    for _ in 0..steps {
        let loss = model.forward(&x).unwrap().cross_entropy(&y).unwrap();
        optimizer.zero_grad();
        loss.backward(optimizer.parameters()).unwrap();
        optimizer.step_with(&loss).unwrap();
        losses.push(loss.item().unwrap());
    }
    losses
}

#[test]
fn the_loss_falls_and_a_second_run_has_the_same_bits() {
    let _engine = own_engine();
    let losses = train(40, 1);
    assert!(losses[39] < 0.3 * losses[0], "{losses:?}");
    assert_eq!(losses, train(40, 1));
    assert_ne!(losses, train(40, 2));
}

#[test]
fn digits_are_learned() {
    let _engine = own_engine();
    let digits = digits::load().unwrap();
    assert_eq!((digits.train.len(), digits.test.len()), (1437, 360));
    assert!(digits.train.pixels.iter().all(|p| (0.0..=1.0).contains(p)));
    Tensor::manual_seed(0);
    let model = Mlp::new([digits::PIXELS, 64, digits::CLASSES]);
    let mut optimizer = AdamW::new(model.parameters(), 3e-3).unwrap();
    let mut order = Generator::new(0);
    for _ in 0..8 {
        for rows in digits.train.shuffled(32, &mut order) {
            let (x, y) = digits.train.batch(&rows).unwrap();
            let loss = model.forward(&x).unwrap().cross_entropy(&y).unwrap();
            optimizer.zero_grad();
            loss.backward(optimizer.parameters()).unwrap();
            optimizer.step_with(&loss).unwrap();
        }
    }
    let _off = no_grad();
    let (x, y) = digits.test.all().unwrap();
    let accuracy = model
        .forward(&x)
        .unwrap()
        .accuracy(&y)
        .unwrap()
        .item()
        .unwrap();
    assert!(accuracy > 0.94, "{accuracy}");
}

#[test]
fn plans_stay_flat_from_the_second_step_on() {
    with_own_engine(|engine| {
        Tensor::manual_seed(3);
        let (x, y) = points();
        let model = Mlp::new([8, 16, 2]);
        let mut optimizer = AdamW::new(model.parameters(), 1e-2).unwrap();
        let mut plans = Vec::new();
        for k in 0..6 {
            optimizer.set_learning_rate(0.01 / (1.0 + k as f64));
            let loss = model.forward(&x).unwrap().cross_entropy(&y).unwrap();
            optimizer.zero_grad();
            loss.backward(optimizer.parameters()).unwrap();
            optimizer.step().unwrap();
            loss.item().unwrap();
            plans.push(engine.stats().plans);
        }
        assert!(plans[1..].iter().all(|&n| n == plans[1]), "{plans:?}");
    });
}

/// Reading the loss first must not make the gradients compute the forward products again.
#[test]
fn item_before_backward_repeats_no_forward_work() {
    let _engine = own_engine();
    let model = |w: &Tensor, v: &Tensor| {
        let x = Tensor::from_slice(&[0.25f32; 32], [4, 8]).unwrap();
        let h = x.matmul(w).unwrap().tanh().unwrap();
        h.matmul(v).unwrap().square().unwrap().mean(..).unwrap()
    };
    let fresh = || {
        (
            parameter(&[0.1; 48], &[8, 6]),
            parameter(&[0.2; 18], &[6, 3]),
        )
    };
    let (w, v) = fresh();
    let loss = model(&w, &v);
    let before = lower(&[&loss]).plan.kernels.len();
    assert!(loss.item().unwrap() > 0.0);
    loss.backward(&[&w, &v]).unwrap();
    let (gw, gv) = (w.grad().unwrap(), v.grad().unwrap());
    // The gradients read w in the product with x alone, and that is not repeated.
    let plan = lower(&[&gw, &gv]).plan;
    let inputs = plan
        .buffers
        .iter()
        .filter(|b| matches!(b.role, Role::Input(_)));
    let sizes: Vec<usize> = inputs.map(|b| b.n).collect();
    assert!(!sizes.contains(&48), "w is read again: {sizes:?}");
    assert!(sizes.contains(&24), "the hidden values are read: {sizes:?}");
    let products = plan
        .kernels
        .iter()
        .filter(|k| k.name.starts_with("r_"))
        .count();
    assert_eq!(
        (before, products),
        (3, 3),
        "three products, of which the gradients are two"
    );

    let (w, v) = fresh();
    let loss = model(&w, &v);
    loss.backward(&[&w, &v]).unwrap();
    let (hw, hv) = (w.grad().unwrap(), v.grad().unwrap());
    Tensor::realize_all(&[&loss, &hw, &hv]).unwrap();
    let values = |t: &Tensor| t.to_vec::<f32>().unwrap();
    assert_eq!(values(&gw), values(&hw));
    assert_eq!(values(&gv), values(&hv));
}

/// Numbers by the published algorithm, computed with NumPy in f64.
#[test]
fn adamw_takes_the_published_steps() {
    let _engine = own_engine();
    let w = parameter(&[1.0, -2.0, 3.0], &[3]);
    let mut optimizer = AdamW::new(vec![w.clone()], 0.1).unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let loss = (w.pow(4).unwrap() * 0.1 + &w).sum(..).unwrap();
        optimizer.zero_grad();
        loss.backward(optimizer.parameters()).unwrap();
        optimizer.step_with(&loss).unwrap();
        seen.extend(w.to_vec::<f32>().unwrap());
    }
    close(&seen, ADAMW_STEPS, 2e-6);
    assert_eq!(optimizer.steps(), 4);
}

#[test]
fn sgd_with_momentum_takes_the_published_steps() {
    let _engine = own_engine();
    let w = parameter(&[1.0, -2.0, 3.0], &[3]);
    let mut optimizer = Sgd::with_momentum(vec![w.clone()], 0.05, 0.8).unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let loss = w.square().unwrap().sum(..).unwrap();
        optimizer.zero_grad();
        loss.backward(optimizer.parameters()).unwrap();
        optimizer.step().unwrap();
        seen.extend(w.to_vec::<f32>().unwrap());
    }
    close(&seen, SGD_STEPS, 1e-6);
}

#[test]
fn an_optimiser_continues_from_its_saved_state() {
    let _engine = own_engine();
    let step = |w: &Tensor, optimizer: &mut dyn Optimizer| {
        let loss = w.pow(4).unwrap().sum(..).unwrap();
        optimizer.zero_grad();
        loss.backward(optimizer.parameters()).unwrap();
        optimizer.step_with(&loss).unwrap();
    };
    let w = parameter(&[1.0, -2.0], &[2]);
    let mut whole = AdamW::new(vec![w.clone()], 0.1).unwrap();
    (0..5).for_each(|_| step(&w, &mut whole));

    let v = parameter(&[1.0, -2.0], &[2]);
    let mut first = AdamW::new(vec![v.clone()], 0.1).unwrap();
    (0..2).for_each(|_| step(&v, &mut first));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.safetensors");
    uopc::io::safetensors::save(&file, &first.state().unwrap()).unwrap();
    let state = uopc::io::safetensors::load(&file).unwrap();
    let mut second = AdamW::new(vec![v.clone()], 0.1).unwrap();
    second.set_state(&state).unwrap();
    (0..3).for_each(|_| step(&v, &mut second));
    assert_eq!(v.to_vec::<f32>().unwrap(), w.to_vec::<f32>().unwrap());
}

#[test]
fn weights_are_saved_and_loaded_by_name() {
    let _engine = own_engine();
    Tensor::manual_seed(4);
    let (a, b) = (Mlp::new([3, 4, 2]), Mlp::new([3, 4, 2]));
    let names: Vec<String> = a
        .named_parameters()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "hidden.weight",
            "hidden.bias",
            "output.weight",
            "output.bias"
        ]
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weights.safetensors");
    a.save(&file).unwrap();
    b.load(&file).unwrap();
    for (p, q) in a.parameters().iter().zip(b.parameters()) {
        assert_eq!(p.to_vec::<f32>().unwrap(), q.to_vec::<f32>().unwrap());
        assert!(!p.is(&q) && q.is_parameter());
    }
}

// ---- where histories end ----

#[test]
fn a_loss_from_before_an_update_has_no_gradient_and_says_so() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let old = w.square().unwrap().sum(..).unwrap();
    let read = (&w * 3).sum(..).unwrap();
    read.item().unwrap();
    w.assign(Tensor::from([5.0f32, 6.0])).unwrap();
    let line = line!() - 1;
    for loss in [&old, &read, &read.square().unwrap()] {
        let error = loss.backward(&[&w]).unwrap_err().to_string();
        let place = format!("parameters were updated at {}:{line}", file!());
        assert!(error.contains(&place), "{error}");
    }
    assert!(w.grad().is_none());
    assert_eq!(read.item().unwrap(), 9.0, "its value is what it was");
    assert_eq!(old.item().unwrap(), 5.0);
    let new = w.square().unwrap().sum(..).unwrap();
    new.backward(&[&w]).unwrap();
    assert_eq!(gradient(&w), [10.0, 12.0]);
}

#[test]
fn other_parameters_of_an_old_loss_keep_their_gradients() {
    let _engine = own_engine();
    let (a, b) = (parameter(&[2.0], &[1]), parameter(&[3.0], &[1]));
    let loss = (&a * &b).sum(..).unwrap();
    a.assign(Tensor::from([7.0f32])).unwrap();
    loss.backward(&[&b]).unwrap();
    assert_eq!(
        gradient(&b),
        [2.0],
        "of the value that the loss was computed from"
    );
    assert!(loss.backward(&[&a]).is_err());
}

#[test]
fn a_kept_loss_holds_no_old_weights() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let mut optimizer = Sgd::new(vec![w.clone()], 0.1).unwrap();
    let mut kept = Vec::new();
    for k in 0..4 {
        let loss = w.square().unwrap().sum(..).unwrap();
        if k % 2 == 0 {
            loss.item().unwrap();
        }
        optimizer.zero_grad();
        loss.backward(optimizer.parameters()).unwrap();
        optimizer.step_with(&loss).unwrap();
        kept.push(loss);
    }
    for loss in &kept {
        let node = loss.uop();
        let leaf = if node.src().is_empty() {
            &node
        } else {
            &node.src()[0]
        };
        assert!(
            matches!(leaf.op(), Op::Buffer { .. }),
            "{loss:?} keeps its graph"
        );
    }
}

#[test]
fn forgetting_zero_grad_adds_up_but_does_not_grow() {
    with_own_engine(|engine| {
        let w = parameter(&[1.0], &[1]);
        let mut optimizer = Sgd::new(vec![w.clone()], 0.0).unwrap();
        let mut plans = 0;
        for k in 1..7 {
            let loss = w.square().unwrap().sum(..).unwrap();
            loss.backward(optimizer.parameters()).unwrap();
            optimizer.step_with(&loss).unwrap();
            assert_eq!(gradient(&w), [2.0 * k as f32]);
            if k == 2 {
                plans = engine.stats().plans;
            }
        }
        assert_eq!(
            engine.stats().plans,
            plans,
            "the third step has the second one's plan"
        );
    });
}

#[test]
fn swapped_and_chained_assignments_read_the_old_values() {
    let _engine = own_engine();
    let (a, b) = (Tensor::from([1.0f32]), Tensor::from([2.0f32]));
    let (next_a, next_b) = (&b + 0.0, &a + 0.0);
    Tensor::assign_all(&[(&a, &next_a), (&b, &next_b)], &[] as &[&Tensor]).unwrap();
    assert_eq!((a.item().unwrap(), b.item().unwrap()), (2.0, 1.0));
    Tensor::assign_all(&[(&a, &b), (&b, &a)], &[] as &[&Tensor]).unwrap();
    assert_eq!((a.item().unwrap(), b.item().unwrap()), (1.0, 2.0));
    let before = &a * 10;
    a.assign(5.0).unwrap();
    assert_eq!(
        before.item().unwrap(),
        10.0,
        "what was made of the old value keeps it"
    );
    assert_eq!(a.item().unwrap(), 5.0);
}

#[test]
fn parameters_from_equal_numbers_are_distinct() {
    let _engine = own_engine();
    let zeros = || Tensor::zeros([2]).unwrap().requires_grad().unwrap();
    let (a, b) = (zeros(), zeros());
    let loss = (&a * 2 + &b * 3).sum(..).unwrap();
    loss.backward(&[&a, &b]).unwrap();
    assert_eq!(
        (gradient(&a), gradient(&b)),
        (vec![2.0, 2.0], vec![3.0, 3.0])
    );
}

#[test]
fn evaluation_keeps_no_history() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let y = {
        let _off = no_grad();
        w.square().unwrap()
    };
    y.realize().unwrap();
    assert!(matches!(y.uop().op(), Op::Buffer { .. }));
    assert!(!y.needs_grad() && w.needs_grad());
    assert!((&w * 2).needs_grad(), "the guard is gone");
}

#[test]
fn a_metric_detached_from_the_loss_forgets_the_graph() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let loss = w.square().unwrap().sum(..).unwrap();
    loss.item().unwrap();
    let metric = loss.detach().unwrap();
    assert_eq!(metric.item().unwrap(), 5.0);
    metric.realize().unwrap();
    let node = metric.uop();
    assert!(
        matches!(node.src()[0].op(), Op::Buffer { .. }),
        "{metric:?}"
    );
    loss.backward(&[&w]).unwrap();
    assert_eq!(gradient(&w), [2.0, 4.0]);
}

/// Three parameters after each of four steps.
const ADAMW_STEPS: &[f32] = &[
    0.899,
    -1.898,
    2.897,
    0.798_395_3,
    -1.797_405_1,
    2.794_465,
    0.698_311_4,
    -1.699_336_9,
    2.692_645,
    0.59882105,
    -1.605_073_9,
    2.591_791,
];
const SGD_STEPS: &[f32] = &[
    0.9, -1.8, 2.7, 0.73, -1.46, 2.19, 0.521, -1.042, 1.563, 0.301_7, -0.603_4, 0.905_1,
];

/// Numbers out of their range are refused before anything changes, and named.
#[test]
fn optimisers_refuse_numbers_that_make_no_sense() {
    let _engine = own_engine();
    let w = Tensor::from([1.0f32, 2.0]).requires_grad().unwrap();
    let refused = |checked: uopc::Result<()>, text: &str| {
        let error = checked.unwrap_err();
        assert!(matches!(error, uopc::Error::Setting(_)), "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
    };
    for bad in [f64::NAN, f64::INFINITY, -0.1] {
        let amount =
            |name: &str| format!("{name} is {bad}; a number that is finite and at least 0");
        let sgd = |lr, momentum| Sgd::with_momentum(vec![w.clone()], lr, momentum).unwrap();
        refused(
            sgd(bad, 0.9).check(),
            &amount("SGD: the learning rate (lr)"),
        );
        refused(sgd(0.1, bad).check(), &amount("SGD: momentum"));
        let adam = |lr| AdamW::new(vec![w.clone()], lr).unwrap();
        refused(adam(bad).check(), &amount("AdamW: the learning rate (lr)"));
        refused(adam(0.1).eps(bad).check(), &amount("AdamW: eps"));
        refused(
            adam(0.1).weight_decay(bad).check(),
            &amount("AdamW: weight_decay"),
        );
        let share =
            |k: usize| format!("AdamW: betas[{k}] is {bad}; a number that is at least 0 and");
        refused(adam(0.1).betas(bad, 0.9).check(), &share(0));
        refused(adam(0.1).betas(0.9, bad).check(), &share(1));
    }
    let adam = AdamW::new(vec![w.clone()], 0.0).unwrap();
    adam.check().unwrap();
    refused(adam.betas(0.9, 1.0).check(), "betas[1] is 1;");

    let mut adam = AdamW::new(vec![w.clone()], 0.1).unwrap();
    w.sum(..).unwrap().backward(&[&w]).unwrap();
    adam.set_learning_rate(f64::NAN);
    refused(adam.step(), "the learning rate (lr) is NaN");
    assert_eq!(adam.steps(), 0);
    assert_eq!(w.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    adam.set_learning_rate(0.1);
    adam.step().unwrap();
    assert_eq!(adam.steps(), 1);
}

/// An entry of a saved state that does not fit is named.
#[test]
fn a_state_that_does_not_fit_names_the_entry() {
    let _engine = own_engine();
    let w = Tensor::from([1.0f32, 2.0]).requires_grad().unwrap();
    let mut adam = AdamW::new(vec![w.clone()], 0.1).unwrap();
    let saved = adam.state().unwrap();
    let mut refused = |name: &str, value: Tensor, text: &str| {
        let mut state = saved.clone();
        state.iter_mut().find(|(n, _)| n == name).unwrap().1 = value;
        let error = adam.set_state(&state).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(
        "square.0",
        Tensor::from([1.0f32; 3]),
        "set_state: the entry square.0 has shape (3,), and (2,) is needed",
    );
    refused(
        "mean.0",
        Tensor::from([1.0f64; 2]),
        "set_state: the entry mean.0 is f64, and f32 is needed",
    );
    refused(
        "steps",
        Tensor::from([1.0f32]),
        "set_state: the entry steps is f32, and u64 is needed",
    );
}
