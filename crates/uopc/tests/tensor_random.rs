//! Random tensors: streams, keys, distributions.

mod tensors;

use tensors::*;
use uopc::tensor::Generator;
use uopc::{DType, Tensor};

/// The first words of Threefry-2x32 with 20 rounds for a zero key and counter are 6b200159 and
/// 99ba4efe in the authors' test vectors.
#[test]
fn random_numbers_are_those_of_threefry() {
    let _engine = own_engine();
    // `below` multiplies the 64 bits of a call's key, which is one mixing, by n.
    let n = 1usize << 32;
    assert_eq!(Generator::new(0).below(n), 0x99ba4efe);
}

#[test]
fn random_streams_depend_on_the_seed_alone() {
    let _engine = own_engine();
    Tensor::manual_seed(42);
    let (a, b) = (
        Tensor::randn([4]).unwrap(),
        Tensor::uniform([4], 0.0, 1.0).unwrap(),
    );
    let b_first = (b.to_vec::<f32>().unwrap(), a.to_vec::<f32>().unwrap());
    Tensor::manual_seed(42);
    let (a, b) = (
        Tensor::randn([4]).unwrap(),
        Tensor::uniform([4], 0.0, 1.0).unwrap(),
    );
    let (a, b) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
    assert_eq!((b, a.clone()), b_first, "whatever is read first");
    Tensor::manual_seed(43);
    assert_ne!(Tensor::randn([4]).unwrap().to_vec::<f32>().unwrap(), a);

    let long = Generator::new(1)
        .randn([100])
        .unwrap()
        .to_vec::<f32>()
        .unwrap();
    let short = Generator::new(1)
        .randn([3])
        .unwrap()
        .to_vec::<f32>()
        .unwrap();
    assert_eq!(
        long[..3],
        short,
        "a longer tensor begins with the shorter one"
    );
}

#[test]
fn random_numbers_never_repeat_between_calls_and_share_a_plan() {
    with_own_engine(|engine| {
        let mut generator = Generator::new(9);
        let mut draw = || {
            generator
                .uniform([1000], 0.0, 1.0)
                .unwrap()
                .to_vec::<f32>()
                .unwrap()
        };
        let (a, b) = (draw(), draw());
        assert_ne!(a, b);
        assert!(a.iter().zip(&b).filter(|(x, y)| x == y).count() < 3);
        assert_eq!(engine.stats().plans, 1);
    });
}

#[test]
fn random_numbers_have_the_distribution_they_claim() {
    let _engine = own_engine();
    let mut generator = Generator::new(11);
    let n = 40_000;
    for dtype in [DType::F32, DType::F64] {
        let x = generator.uniform_as(dtype, [n], -1.0, 3.0).unwrap();
        let z = generator.randn_as(dtype, [n]).unwrap();
        let moments = |t: &Tensor| {
            (
                t.mean(..).unwrap().item().unwrap(),
                t.var(..).unwrap().item().unwrap(),
            )
        };
        let (mean, var) = moments(&x);
        // Standard errors are 0.006 and 0.006; four of them.
        assert!(
            (mean - 1.0).abs() < 0.024 && (var - 16.0 / 12.0).abs() < 0.03,
            "{mean} {var}"
        );
        let (mean, var) = moments(&z);
        assert!(
            mean.abs() < 0.02 && (var - 1.0).abs() < 0.03,
            "{mean} {var}"
        );
        let low = x.min(..).unwrap().item().unwrap();
        let high = x.max(..).unwrap().item().unwrap();
        assert!(
            (-1.0..-0.99).contains(&low) && (2.99..=3.0).contains(&high),
            "{low} {high}"
        );
        let tail = z
            .abs()
            .unwrap()
            .gt(3.0)
            .unwrap()
            .mean(..)
            .unwrap()
            .item()
            .unwrap();
        assert!(
            (0.0017..0.0038).contains(&tail),
            "0.0027 of normal numbers are beyond 3: {tail}"
        );
    }
    let half = generator.uniform_as(DType::F16, [n], 0.0, 1.0).unwrap();
    assert!(half.max(..).unwrap().item().unwrap() < 1.0);
    let order = generator.permutation(100);
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    assert_ne!(order, sorted);
}
