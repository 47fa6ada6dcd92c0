//! Ten thousand training steps in constant memory. Alone in its process, as it counts nodes.

mod tensors;

use tensors::with_own_engine;
use uopc::Tensor;
use uopc::ir::UOp;
use uopc::nn::{AdamW, Linear, Module, Optimizer};
use uopc::runtime::Pool;

/// Every step makes a new learning rate, keeps its loss for a while, and reads it every tenth time.
#[test]
fn ten_thousand_steps_take_no_more_memory_than_a_hundred() {
    with_own_engine(|engine| {
        Tensor::manual_seed(1);
        let (hidden, output) = (Linear::new(4, 8).unwrap(), Linear::new(8, 2).unwrap());
        let parameters = [hidden.parameters(), output.parameters()].concat();
        let mut optimizer = AdamW::new(parameters, 1e-3).unwrap();
        let mut kept = Vec::new();
        let mut seen = Vec::new();
        for step in 1..=10_000u32 {
            let x: Vec<f32> = (0..32).map(|k| ((k * step) % 17) as f32 / 17.0).collect();
            let y: Vec<i32> = (0..8).map(|k| ((k + step) % 2) as i32).collect();
            let x = Tensor::from_slice(&x, [8, 4]).unwrap();
            let logits = output
                .forward(&hidden.forward(&x).unwrap().relu().unwrap())
                .unwrap();
            let loss = logits.cross_entropy(&Tensor::from(y)).unwrap();
            optimizer.set_learning_rate(1e-3 / (1.0 + step as f64));
            optimizer.zero_grad();
            loss.backward(optimizer.parameters()).unwrap();
            optimizer.step_with(&loss).unwrap();
            if step % 10 == 0 {
                assert!(loss.item().unwrap().is_finite());
            }
            kept.push(loss);
            if kept.len() == 50 {
                kept.clear();
            }
            if step % 5000 == 100 {
                kept.clear();
                let plans = engine.stats().plans;
                seen.push((UOp::live_count(), Pool::global().live_bytes(), plans));
            }
        }
        kept.clear();
        optimizer.zero_grad();
        assert_eq!(seen.len(), 2);
        assert_eq!(
            seen[0], seen[1],
            "nodes, bytes and plans after 100 and 5,100 steps"
        );
    });
}
