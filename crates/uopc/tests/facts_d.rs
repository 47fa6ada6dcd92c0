//! Section D of the fact list: what a user's tensors do.

mod tensors;

use tensors::*;
use uopc::nn::{AdamW, Embedding, Linear, Module, Optimizer, Sgd, mse};
use uopc::{DType, Tensor};

#[test]
fn d1_backward_of_a_scalar_leaves_lazy_gradients_that_add_up() {
    with_own_engine(|engine| {
        let x = parameter(&[1.0, -2.0, 3.0], &[3]);
        let loss = x.square().unwrap().sum(..).unwrap();
        let refused = x.square().unwrap().backward(&[&x]).unwrap_err();
        assert!(
            refused.to_string().contains("backward needs a scalar"),
            "{refused}"
        );

        loss.backward(&[&x]).unwrap();
        assert_eq!(engine.stats().launches, 0, "nothing is computed yet");
        assert_eq!(gradient(&x), [2.0, -4.0, 6.0]);
        loss.backward(&[&x]).unwrap();
        assert_eq!(gradient(&x), [4.0, -8.0, 12.0]);
        x.zero_grad();
        assert!(x.grad().is_none());
        loss.backward(&[&x]).unwrap();
        assert_eq!(gradient(&x), [2.0, -4.0, 6.0]);
    });
}

#[test]
fn d2_reading_the_loss_first_keeps_its_graph() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let loss = (&w * &w).sum(..).unwrap();
    assert_eq!(loss.item().unwrap(), 5.0);
    loss.backward(&[&w]).unwrap();
    assert_eq!(gradient(&w), [2.0, 4.0]);
}

#[test]
fn d3_no_gradient_flows_through_detach() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let loss = (&w * w.detach().unwrap()).sum(..).unwrap();
    loss.backward(&[&w]).unwrap();
    assert_eq!(gradient(&w), [1.0, 2.0]);
}

#[test]
fn d4_loss_gradients_and_updates_are_one_plan() {
    with_own_engine(|engine| {
        let w = parameter(&[1.0, -2.0], &[2]);
        let mut optimizer = Sgd::new(vec![w.clone()], 0.1).unwrap();
        let loss = w.square().unwrap().sum(..).unwrap();
        loss.backward(optimizer.parameters()).unwrap();
        let before = engine.stats();
        optimizer.step_with(&loss).unwrap();
        let after = engine.stats();
        assert_eq!((before.plans, after.plans), (0, 1));
        assert_eq!(loss.item().unwrap(), 5.0);
        assert_eq!(gradient(&w), [2.0, -4.0]);
        close(&w.to_vec().unwrap(), &[0.8, -1.6], 1e-7);
        assert_eq!(engine.stats(), after, "all of it was computed in that plan");
    });
}

#[test]
fn d5_steps_with_changing_rates_reuse_one_plan() {
    with_own_engine(|engine| {
        Tensor::manual_seed(5);
        let layer = Linear::new(4, 2).unwrap();
        let x = Tensor::randn([8, 4]).unwrap();
        x.realize().unwrap();
        let adam = AdamW::new(layer.parameters(), 1e-2).unwrap();
        let sgd = Sgd::with_momentum(layer.parameters(), 1e-2, 0.9).unwrap();
        let optimizers: [Box<dyn Optimizer>; 2] = [Box::new(adam), Box::new(sgd)];
        for mut optimizer in optimizers {
            let mut plans = Vec::new();
            for k in 0..6 {
                optimizer.set_learning_rate(1e-2 / (k + 1) as f64);
                let loss = layer
                    .forward(&x)
                    .unwrap()
                    .square()
                    .unwrap()
                    .mean(..)
                    .unwrap();
                optimizer.zero_grad();
                loss.backward(optimizer.parameters()).unwrap();
                optimizer.step_with(&loss).unwrap();
                loss.item().unwrap();
                plans.push(engine.stats().plans);
            }
            assert!(plans[1..].iter().all(|&n| n == plans[1]), "{plans:?}");
            assert_eq!(plans[0], plans[1], "the first step has that plan already");
        }
    });
}

#[test]
fn d6_gradient_of_the_cross_entropy() {
    let _engine = own_engine();
    let logits = parameter(&[2.0, 1.0, 0.1, 0.5, 2.5, 0.3], &[2, 3]);
    let labels = Tensor::from([0i32, 1]);
    logits
        .cross_entropy(&labels)
        .unwrap()
        .backward(&[&logits])
        .unwrap();
    let found = gradient(&logits);
    let stated = [
        -0.1704994, 0.1212165, 0.0492829, 0.0543019, -0.0987605, 0.0444586,
    ];
    close(&found, &stated, 1e-6);

    let softmax = logits.detach().unwrap().softmax(-1).unwrap();
    let by_hand = (softmax - labels.one_hot(3).unwrap()) / 2;
    close(&found, &by_hand.to_vec::<f32>().unwrap(), 1e-6);
}

#[test]
fn d7_gradient_through_a_stack_and_an_index() {
    let _engine = own_engine();
    // One digit more than is stated for the fourth, whose neighbours print alike.
    let data = [
        0.12573022,
        -0.13210486,
        0.64042264,
        0.104900114,
        -0.5356694,
        0.36159506,
    ];
    let t = parameter(&data, &[2, 3]);
    let picked = t.stack_with(&t * &t).unwrap().get(1).unwrap();
    let weighted = picked.sum(0).unwrap() * Tensor::from([1.0f32, 2.0, 3.0]);
    weighted.sum(..).unwrap().backward(&[&t]).unwrap();
    let stated = [
        0.25146043,
        -0.52841944,
        3.842536,
        0.20980023,
        -2.1426775,
        2.1695704,
    ];
    assert_eq!(gradient(&t), stated);
}

#[test]
fn d8_floats_make_integers_floats_and_so_does_the_mean() {
    let _engine = own_engine();
    let t = Tensor::from([1i32, 2, 3]);
    let half = &t * 0.5;
    assert_eq!(half.dtype(), DType::F32);
    assert_eq!(half.to_vec::<f32>().unwrap(), [0.5, 1.0, 1.5]);
    let mean = t.mean(..).unwrap();
    assert_eq!(mean.dtype(), DType::F32);
    assert_eq!(mean.item().unwrap(), 2.0);
    assert_eq!((&t * 2).dtype(), DType::I32);
}

#[test]
fn d9_an_integer_times_zero_is_not_read_and_not_overwritten() {
    with_own_engine(|engine| {
        let t = Tensor::from([1i32, 2, 3]);
        let zero = t.mul(0).unwrap();
        let code = engine.listing(&[zero.uop()]).unwrap();
        assert!(
            code.contains("data0") && !code.contains("data1"),
            "one buffer only:\n{code}"
        );
        assert_eq!(zero.to_vec::<i32>().unwrap(), [0, 0, 0]);
        assert_eq!(t.to_vec::<i32>().unwrap(), [1, 2, 3]);

        // For floats that would lose NaN.
        let t = Tensor::from([1.0f32, f32::NAN, f32::INFINITY]);
        let found = t.mul(0.0).unwrap().to_vec::<f32>().unwrap();
        assert!(
            found[0] == 0.0 && found[1].is_nan() && found[2].is_nan(),
            "{found:?}"
        );
    });
}

#[test]
fn d10_two_steps_with_momentum() {
    let _engine = own_engine();
    let w = parameter(&[1.0, -2.0], &[2]);
    let mut optimizer = Sgd::with_momentum(vec![w.clone()], 0.1, 0.9).unwrap();
    for _ in 0..2 {
        let loss = w.square().unwrap().sum(..).unwrap();
        optimizer.zero_grad();
        loss.backward(optimizer.parameters()).unwrap();
        optimizer.step().unwrap();
    }
    close(&w.to_vec().unwrap(), &[0.46, -0.92], 1e-6);
}

#[test]
fn d11_an_elementwise_chain_is_one_kernel_and_softmax_three() {
    let _engine = own_engine();
    let a = Tensor::randn([64, 64]).unwrap();
    a.realize().unwrap();
    let mut chain = a.clone();
    for k in 0..128 {
        chain = chain * 1.5 + k as f32;
    }
    assert_eq!(kernels(&[&chain]).len(), 1);
    assert_eq!(kernels(&[&a.softmax(-1).unwrap()]).len(), 3);
}

#[test]
fn d12_the_forward_product_is_computed_once_in_a_step() {
    let _engine = own_engine();
    let (rows, inputs, outputs) = (5, 3, 7);
    let x = Tensor::from_slice(&[0.5f32; 15], [rows, inputs]).unwrap();
    let target = Tensor::from_slice(&[0.25f32; 35], [rows, outputs]).unwrap();
    let w = parameter(&[0.1; 21], &[inputs, outputs]);
    let product = x.matmul(&w).unwrap();
    let loss = mse(&product.relu().unwrap(), &target).unwrap();
    loss.backward(&[&w]).unwrap();
    let gradient = w.grad().unwrap();
    let plan = lower(&[&loss, &gradient]).plan;

    // Only the product has rows * outputs elements and is summed over the inputs.
    let name = format!("r_{rows}_{outputs}_{inputs}");
    let named = |k: &&uopc::ir::form::Kernel| k.name.starts_with("r_") && k.outs.len() == 1;
    let size = |buffer: u32| plan.buffers[buffer as usize].n;
    let made: Vec<_> = (plan.kernels.iter().filter(named))
        .filter(|k| size(k.outs[0].1) == rows * outputs)
        .collect();
    let names: Vec<_> = plan.kernels.iter().map(|k| k.name.to_string()).collect();
    assert_eq!(made.len(), 1, "{name} among {names:?}");
    let buffer = made[0].outs[0].1;
    let readers = plan
        .kernels
        .iter()
        .filter(|k| k.ins.iter().any(|&(_, b)| b == buffer));
    assert!(
        readers.count() >= 2,
        "the loss and the gradient read it: {names:?}"
    );
}

#[test]
fn d13_the_ways_to_step() {
    with_own_engine(|engine| {
        let w = parameter(&[3.0], &[1]);
        let mut optimizer = Sgd::new(vec![w.clone()], 0.5).unwrap();
        let loss = w.square().unwrap().sum(..).unwrap();
        let returned = loss.backward(optimizer.parameters()).unwrap();
        assert!(returned.is(&loss), "backward returns the loss");
        optimizer.step_with(&loss).unwrap();
        let launches = engine.stats().launches;
        assert_eq!(loss.item().unwrap(), 9.0);
        assert_eq!(
            engine.stats().launches,
            launches,
            "the step computed the loss"
        );
        assert_eq!(w.to_vec::<f32>().unwrap(), [0.0]);

        optimizer.zero_grad();
        let loss = w.add(1.0).unwrap().square().unwrap().sum(..).unwrap();
        loss.backward(optimizer.parameters()).unwrap();
        optimizer.step().unwrap();
        assert_eq!(w.to_vec::<f32>().unwrap(), [-1.0]);
    });
    let w = parameter(&[3.0], &[1]);
    let refused = (&w * 2).backward(&[&w]).unwrap_err().to_string();
    assert!(
        refused.contains("backward needs a scalar, not shape (1,)"),
        "{refused}"
    );

    Tensor::manual_seed(3);
    let weight = Embedding::new(50, 40).unwrap().weight;
    let values = weight.to_vec::<f32>().unwrap();
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    let deviation = values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / values.len() as f32;
    // 2,000 samples: a standard error of 2% of the deviation.
    assert!(
        (deviation.sqrt() - 0.02).abs() < 0.002,
        "{}",
        deviation.sqrt()
    );
    assert!(mean.abs() < 0.002, "{mean}");
}
