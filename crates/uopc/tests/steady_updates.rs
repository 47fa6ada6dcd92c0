//! A tensor that is set over and over takes no more than its graph. Alone in its process, as it
//! counts nodes.

mod tensors;

use tensors::with_own_engine;
use uopc::Tensor;
use uopc::ir::UOp;
use uopc::runtime::Pool;

#[test]
fn a_hundred_thousand_settings_leave_nothing_behind() {
    with_own_engine(|_| {
        let x = Tensor::from([0.0f32]);
        let w = Tensor::from([1.0f32]).requires_grad().unwrap();
        let one = Tensor::from([1.0f32]);
        x.set(&one).unwrap();
        let before = UOp::live_count();
        // Lazily: the graph grows by a node a time, with and without a history, and goes at once.
        for step in [&one, &w] {
            for _ in 0..100_000 {
                x.set(&(&x + step)).unwrap();
            }
            assert!(UOp::live_count() >= before + 100_000);
            x.set(&one).unwrap();
            assert_eq!(
                UOp::live_count(),
                before,
                "nodes after the graph was dropped"
            );
        }
        // Computed now and then: it is a leaf again each time.
        let mut seen = Vec::new();
        for k in 1..=3_000 {
            x.set(&(&x + &one)).unwrap();
            if k % 3 == 0 {
                x.realize().unwrap();
            }
            if k % 1_500 == 0 {
                seen.push((UOp::live_count(), Pool::global().live_bytes()));
            }
        }
        assert_eq!(x.item().unwrap(), 3_001.0);
        assert_eq!(seen[0], seen[1], "nodes and bytes after 1,500 and 3,000");
    });
}
