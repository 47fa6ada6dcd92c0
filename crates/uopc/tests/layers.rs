//! The functions that layers are made of, against PyTorch's results (`fixtures/layers.json`), in
//! the interpreter and compiled; gradients of order 1 and 2.

mod tensors;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tensors::own_engine;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::nn::{self, CrossEntropy, Reduction};
use uopc::tensor::{
    Attention, BatchStatistics, Conv, ConvPadding, PadMode, Pool, Resize, ResizeMode, with_engine,
};
use uopc::transform::gradcheck;
use uopc::{DType, Result, Tensor};

/// The inputs of a case by name.
struct Case(BTreeMap<String, Tensor>);

impl Case {
    fn get(&self, name: &str) -> &Tensor {
        &self.0[name]
    }

    fn has(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }
}

type Call = fn(&Case) -> Result<Tensor>;

fn array(v: &Value) -> Tensor {
    let shape: Vec<usize> = v["shape"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d.as_u64().unwrap() as usize)
        .collect();
    let data = v["data"].as_array().unwrap();
    if v["int"].as_bool().unwrap() {
        let data: Vec<i64> = data.iter().map(|x| x.as_i64().unwrap()).collect();
        return Tensor::from_slice(&data, &shape).unwrap();
    }
    let number = |x: &Value| match x.as_str() {
        Some(text) => text.parse().unwrap(),
        None => x.as_f64().unwrap(),
    };
    let data: Vec<f64> = data.iter().map(number).collect();
    Tensor::from_slice(&data, &shape).unwrap()
}

fn fixtures() -> BTreeMap<String, (Case, Tensor)> {
    let all: Value = serde_json::from_str(include_str!("fixtures/layers.json")).unwrap();
    let all = all.as_object().unwrap().iter();
    all.map(|(name, case)| {
        let inputs = case["in"].as_object().unwrap().iter();
        let inputs = inputs.map(|(k, v)| (k.clone(), array(v))).collect();
        (name.clone(), (Case(inputs), array(&case["y"])))
    })
    .collect()
}

fn conv(c: &Case, f: ConvMethod, how: Conv) -> Result<Tensor> {
    f(c.get("x"), c.get("w"), Some(c.get("b")), &how)
}

type ConvMethod = fn(&Tensor, &Tensor, Option<&Tensor>, &Conv) -> Result<Tensor>;

fn x(c: &Case) -> &Tensor {
    c.get("x")
}

fn attend(c: &Case, how: Attention) -> Result<Tensor> {
    c.get("q").attention(c.get("k"), c.get("v"), &how)
}

fn batch(c: &Case) -> Result<Tensor> {
    let statistics = match c.has("m") {
        Some(mean) => BatchStatistics::Fixed(mean, c.get("s")),
        None => BatchStatistics::OfBatch {
            running: None,
            momentum: 0.1,
        },
    };
    x(c).batch_norm(statistics, c.has("w"), c.has("b"), 1e-5)
}

fn resize(c: &Case, size: Resize, how: ResizeMode) -> Result<Tensor> {
    x(c).interpolate(&size, how)
}

fn to(extents: &[usize]) -> Resize {
    Resize::To(extents.into())
}

fn by(factor: f64) -> Resize {
    Resize::By(vec![factor])
}

fn classes(c: &Case, how: CrossEntropy) -> Result<Tensor> {
    let how = match c.has("w") {
        Some(w) => how.weight(w),
        None => how,
    };
    how.loss(x(c), c.get("y"))
}

fn ignoring() -> CrossEntropy {
    CrossEntropy::new().ignore_index(-100)
}

/// Every case of the fixture, with the call that must give its result.
const CALLS: &[(&str, Call)] = &[
    ("conv1d", |c| conv(c, Tensor::conv1d, Conv::new())),
    ("conv1d stride", |c| {
        conv(c, Tensor::conv1d, Conv::new().stride(2))
    }),
    ("conv1d stride 4", |c| {
        conv(c, Tensor::conv1d, Conv::new().stride(4))
    }),
    ("conv1d padding", |c| {
        conv(c, Tensor::conv1d, Conv::new().padding(2))
    }),
    ("conv1d dilation", |c| {
        conv(c, Tensor::conv1d, Conv::new().dilation(3))
    }),
    ("conv1d all", |c| {
        conv(
            c,
            Tensor::conv1d,
            Conv::new().stride([3]).padding([2]).dilation([2]).groups(2),
        )
    }),
    ("conv1d wide", |c| {
        conv(c, Tensor::conv1d, Conv::new().stride(7))
    }),
    ("conv1d kernel 1", |c| {
        conv(c, Tensor::conv1d, Conv::new().stride(3))
    }),
    ("conv1d same", |c| {
        conv(c, Tensor::conv1d, Conv::new().padding(ConvPadding::Same))
    }),
    ("conv1d single", |c| conv(c, Tensor::conv1d, Conv::new())),
    ("conv2d", |c| conv(c, Tensor::conv2d, Conv::new())),
    ("conv2d all", |c| {
        let how = Conv::new().stride([2, 1]).padding([1, 2]).dilation([1, 3]);
        conv(c, Tensor::conv2d, how.groups(2))
    }),
    ("conv2d depthwise", |c| {
        conv(c, Tensor::conv2d, Conv::new().groups(3).padding(1))
    }),
    ("conv2d same", |c| {
        conv(c, Tensor::conv2d, Conv::new().padding(ConvPadding::Same))
    }),
    ("conv2d kernel 1", |c| conv(c, Tensor::conv2d, Conv::new())),
    ("conv3d", |c| {
        conv(c, Tensor::conv3d, Conv::new().stride([1, 2, 1]).padding(1))
    }),
    ("transpose1d", |c| {
        conv(c, Tensor::conv_transpose1d, Conv::new())
    }),
    ("transpose1d all", |c| {
        let how = Conv::new().stride(3).padding(2).output_padding(1);
        conv(c, Tensor::conv_transpose1d, how.groups(2).dilation(2))
    }),
    ("transpose1d cut", |c| {
        conv(c, Tensor::conv_transpose1d, Conv::new().padding(3))
    }),
    ("transpose1d cut more", |c| {
        let how = Conv::new().stride(3).padding(4).output_padding(2);
        conv(c, Tensor::conv_transpose1d, how)
    }),
    ("transpose2d", |c| {
        let how = Conv::new()
            .stride([2, 1])
            .padding([1, 0])
            .output_padding([1, 0]);
        conv(c, Tensor::conv_transpose2d, how)
    }),
    ("transpose3d", |c| {
        conv(
            c,
            Tensor::conv_transpose3d,
            Conv::new().stride(2).padding(1),
        )
    }),
    ("max_pool1d", |c| x(c).max_pool1d(2)),
    ("max_pool1d all", |c| {
        x(c).max_pool1d(Pool::new(3).stride(2).padding(1).dilation(2))
    }),
    ("max_pool1d ceil", |c| {
        x(c).max_pool1d(Pool::new(2).ceil_mode(true))
    }),
    ("max_pool2d", |c| x(c).max_pool2d(2)),
    ("max_pool2d all", |c| {
        x(c).max_pool2d(
            Pool::new([3, 2])
                .stride([2, 3])
                .padding([1, 0])
                .ceil_mode(true),
        )
    }),
    ("max_pool3d", |c| {
        x(c).max_pool3d(Pool::new(2).stride([2, 1, 2]))
    }),
    ("avg_pool1d", |c| x(c).avg_pool1d(Pool::new(3).stride(2))),
    ("avg_pool1d ceil", |c| {
        x(c).avg_pool1d(Pool::new(3).stride(2).padding(1).ceil_mode(true))
    }),
    ("avg_pool1d ceil own", |c| {
        let pool = Pool::new(3).stride(2).padding(1).ceil_mode(true);
        x(c).avg_pool1d(pool.count_include_pad(false))
    }),
    ("avg_pool1d apart", |c| {
        x(c).avg_pool1d(Pool::new(2).stride(4).ceil_mode(true))
    }),
    ("avg_pool2d", |c| x(c).avg_pool2d(2)),
    ("avg_pool2d all", |c| {
        let pool = Pool::new([3, 2]).stride([2, 3]).padding([1, 1]);
        x(c).avg_pool2d(pool.count_include_pad(false))
    }),
    ("avg_pool2d divisor", |c| {
        x(c).avg_pool2d(Pool::new(3).divisor(5))
    }),
    ("avg_pool3d", |c| x(c).avg_pool3d(Pool::new(2).padding(1))),
    ("adaptive_avg_pool1d", |c| x(c).adaptive_avg_pool1d(4)),
    ("adaptive_avg_pool1d up", |c| x(c).adaptive_avg_pool1d(7)),
    ("adaptive_avg_pool2d", |c| x(c).adaptive_avg_pool2d([3, 3])),
    ("adaptive_avg_pool2d both", |c| {
        x(c).adaptive_avg_pool2d([3, 2])
    }),
    ("adaptive_avg_pool2d one", |c| x(c).adaptive_avg_pool2d(1)),
    ("adaptive_avg_pool3d", |c| x(c).adaptive_avg_pool3d(2)),
    ("adaptive_max_pool1d", |c| x(c).adaptive_max_pool1d(4)),
    ("adaptive_max_pool2d", |c| x(c).adaptive_max_pool2d([3, 2])),
    ("pad reflect", |c| x(c).pad_with(AROUND, PadMode::Reflect)),
    ("pad replicate", |c| {
        x(c).pad_with(AROUND, PadMode::Replicate)
    }),
    ("pad circular", |c| x(c).pad_with(AROUND, PadMode::Circular)),
    ("pad constant", |c| {
        x(c).pad_with(&AROUND[1..], PadMode::constant(1.5))
    }),
    ("interpolate nearest", |c| {
        resize(c, to(&[8]), ResizeMode::Nearest)
    }),
    ("interpolate nearest twice", |c| {
        resize(c, by(2.0), ResizeMode::Nearest)
    }),
    ("interpolate nearest down", |c| {
        resize(c, to(&[3, 2]), ResizeMode::Nearest)
    }),
    ("interpolate nearest scale", |c| {
        resize(c, by(1.45), ResizeMode::Nearest)
    }),
    ("interpolate nearest-exact", |c| {
        resize(c, to(&[3, 7]), ResizeMode::NearestExact)
    }),
    ("interpolate nearest-exact scale", |c| {
        resize(c, by(1.45), ResizeMode::NearestExact)
    }),
    ("interpolate linear", |c| {
        resize(c, to(&[8]), ResizeMode::Linear)
    }),
    ("interpolate linear down", |c| {
        resize(c, to(&[4]), ResizeMode::Linear)
    }),
    ("interpolate linear scale", |c| {
        resize(c, by(1.7), ResizeMode::Linear)
    }),
    ("interpolate linear aligned", |c| {
        resize(c, to(&[8]), ResizeMode::LinearAligned)
    }),
    ("interpolate bilinear", |c| {
        resize(c, to(&[8, 3]), ResizeMode::Linear)
    }),
    ("interpolate bilinear aligned", |c| {
        resize(c, to(&[1, 7]), ResizeMode::LinearAligned)
    }),
    ("interpolate trilinear", |c| {
        resize(c, by(2.0), ResizeMode::Linear)
    }),
    ("interpolate area", |c| {
        resize(c, to(&[3, 4]), ResizeMode::Area)
    }),
    ("attention", |c| attend(c, Attention::new())),
    ("attention causal", |c| {
        attend(c, Attention::new().causal(true))
    }),
    ("attention scale", |c| {
        attend(c, Attention::new().scale(0.3))
    }),
    ("attention mask", |c| {
        attend(c, Attention::new().mask(&c.get("m").cast(DType::Bool)?))
    }),
    ("attention bias", |c| {
        attend(c, Attention::new().mask(c.get("m")))
    }),
    ("attention grouped", |c| {
        attend(c, Attention::new().causal(true).grouped(true))
    }),
    ("layer_norm", |c| {
        x(c).layer_norm([3, 4], c.has("w"), c.has("b"), 1e-5)
    }),
    ("layer_norm plain", |c| {
        x(c).layer_norm([4], None, None, 0.1)
    }),
    ("rms_norm", |c| x(c).rms_norm([4], c.has("w"), 1e-6)),
    ("group_norm", |c| {
        x(c).group_norm(2, c.has("w"), c.has("b"), 1e-5)
    }),
    ("group_norm each", |c| x(c).group_norm(4, None, None, 1e-5)),
    ("batch_norm", batch),
    ("batch_norm 2d", batch),
    ("batch_norm eval", batch),
    ("mse none", |c| {
        nn::mse_loss(c.get("a"), c.get("b"), Reduction::None)
    }),
    ("mse mean", |c| nn::mse(c.get("a"), c.get("b"))),
    ("mse sum", |c| {
        nn::mse_loss(c.get("a"), c.get("b"), Reduction::Sum)
    }),
    ("l1", |c| {
        nn::l1_loss(c.get("input"), c.get("target"), Reduction::Mean)
    }),
    ("huber", |c| {
        nn::huber_loss(c.get("a"), c.get("b"), 0.7, Reduction::Mean)
    }),
    ("smooth_l1", |c| {
        nn::smooth_l1_loss(c.get("a"), c.get("b"), 0.7, Reduction::Mean)
    }),
    ("smooth_l1 0", |c| {
        nn::smooth_l1_loss(c.get("a"), c.get("b"), 0.0, Reduction::Mean)
    }),
    ("bce", |c| {
        nn::binary_cross_entropy(c.get("input"), c.get("target"), None, Reduction::Mean)
    }),
    ("bce weight", |c| {
        nn::binary_cross_entropy(c.get("p"), c.get("t"), c.has("w"), Reduction::Sum)
    }),
    ("bce_logits", |c| {
        let (a, t) = (c.get("input"), c.get("target"));
        nn::binary_cross_entropy_with_logits(a, t, None, None, Reduction::Mean)
    }),
    ("bce_logits weights", |c| {
        let (a, t, w, q) = (c.get("a"), c.get("t"), c.has("w"), c.has("q"));
        nn::binary_cross_entropy_with_logits(a, t, w, q, Reduction::Mean)
    }),
    ("kl_div", |c| {
        nn::kl_div(c.get("p"), c.get("q"), false, Reduction::BatchMean)
    }),
    ("kl_div mean", |c| {
        nn::kl_div(c.get("p"), c.get("q"), false, Reduction::Mean)
    }),
    ("kl_div log", |c| {
        nn::kl_div(c.get("p"), c.get("q"), true, Reduction::Sum)
    }),
    ("cross_entropy none", |c| {
        classes(c, ignoring().reduction(Reduction::None))
    }),
    ("cross_entropy mean", |c| classes(c, ignoring())),
    ("cross_entropy sum", |c| {
        classes(c, ignoring().reduction(Reduction::Sum))
    }),
    ("cross_entropy weighted none", |c| {
        classes(
            c,
            ignoring().label_smoothing(0.2).reduction(Reduction::None),
        )
    }),
    ("cross_entropy weighted mean", |c| {
        classes(c, ignoring().label_smoothing(0.2))
    }),
    ("cross_entropy weighted sum", |c| {
        classes(c, ignoring().label_smoothing(0.2).reduction(Reduction::Sum))
    }),
    ("cross_entropy probabilities none", |c| {
        classes(
            c,
            ignoring().label_smoothing(0.1).reduction(Reduction::None),
        )
    }),
    ("cross_entropy probabilities mean", |c| {
        classes(c, ignoring().label_smoothing(0.1))
    }),
    ("cross_entropy probabilities sum", |c| {
        classes(c, ignoring().label_smoothing(0.1).reduction(Reduction::Sum))
    }),
    ("cross_entropy smoothed", |c| {
        classes(c, ignoring().label_smoothing(0.3))
    }),
    ("cross_entropy ignore", |c| {
        classes(c, CrossEntropy::new().ignore_index(2))
    }),
    ("cross_entropy axis", |c| {
        classes(c, CrossEntropy::new().axis(1))
    }),
    ("nll", |c| {
        nn::nll_loss(x(c), c.get("y"), &ignoring().weight(c.get("w")))
    }),
    ("nll axis", |c| {
        let how = CrossEntropy::new().axis(1).reduction(Reduction::None);
        nn::nll_loss(x(c), c.get("y"), &how)
    }),
];

/// Two lines of zeros before, one behind and so on: what the fixture pads.
const AROUND: &[(usize, usize)] = &[(0, 0), (0, 0), (1, 3), (2, 1)];

fn interpreter() -> Arc<Engine> {
    let settings = Settings {
        device: DeviceChoice::Interp,
        ..Settings::default()
    };
    Arc::new(Engine::new(settings).unwrap())
}

/// Computes all cases at once, on whatever engine is entered, and compares.
fn compare() {
    let fixtures = fixtures();
    let names: Vec<&str> = fixtures.keys().map(String::as_str).collect();
    let mut called: Vec<&str> = CALLS.iter().map(|(name, _)| *name).collect();
    called.sort_unstable();
    assert_eq!(names, called, "the cases of the fixture and the calls");
    let results: Vec<Tensor> = CALLS
        .iter()
        .map(|(name, call)| call(&fixtures[*name].0).unwrap_or_else(|e| panic!("{name}: {e}")))
        .collect();
    Tensor::realize_all(&results).unwrap();
    for ((name, _), y) in CALLS.iter().zip(&results) {
        let expected = &fixtures[*name].1;
        assert_eq!(y.shape(), expected.shape(), "{name}");
        let (y, expected) = (
            y.to_vec::<f64>().unwrap(),
            expected.to_vec::<f64>().unwrap(),
        );
        for (k, (a, b)) in y.iter().zip(&expected).enumerate() {
            // Sums of up to a hundred terms in another order.
            let near = (a - b).abs() <= 1e-12 * b.abs().max(1.0);
            assert!(
                near || a == b || a.is_nan() && b.is_nan(),
                "{name}, element {k}: {a} is not {b}"
            );
        }
    }
}

#[test]
fn values_are_those_of_pytorch_compiled() {
    let _engine = own_engine();
    compare();
}

#[test]
fn values_are_those_of_pytorch_interpreted() {
    with_engine(&interpreter(), compare);
}

#[test]
fn gradients_of_order_one_and_two_agree_with_quotients() {
    with_engine(&interpreter(), || {
        let fixtures = fixtures();
        for (name, call) in CALLS {
            let case = &fixtures[*name].0;
            let names: Vec<&String> = case.0.keys().collect();
            let tensors: Vec<Tensor> = case.0.values().cloned().collect();
            let f = |tensors: &Vec<Tensor>| {
                let named = names
                    .iter()
                    .map(|n| n.to_string())
                    .zip(tensors.iter().cloned());
                call(&Case(named.collect()))
            };
            let report = gradcheck(f, &tensors).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(report.passed(), "{name}\n{report}");
        }
    });
}
