//! The functions that layers are made of at their edges: what is refused, empty batches, NaN and
//! infinities, integers and half floats, and the share that dropout keeps.

mod tensors;

use tensors::own_engine;
use uopc::nn::{self, CrossEntropy, Reduction};
use uopc::tensor::{
    Attention, BatchStatistics, Conv, ConvPadding, PadMode, Pool, Resize, ResizeMode,
};
use uopc::{DType, Result, Tensor};

fn to(extents: &[usize]) -> Resize {
    Resize::To(extents.into())
}

fn by(factor: f64) -> Resize {
    Resize::By(vec![factor])
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape).unwrap()
}

fn values(t: Result<Tensor>) -> Vec<f32> {
    t.unwrap().to_vec::<f32>().unwrap()
}

#[test]
fn mistakes_are_named() {
    let (x, w) = (zeros(&[2, 4, 5, 5]), zeros(&[6, 4, 3, 3]));
    let conv = |w: &Tensor, how: Conv| x.conv2d(w, None, &how);
    let turned = |w: &Tensor, how: Conv| x.conv_transpose2d(w, None, &how);
    let huge = usize::MAX / 2;
    let refused: Vec<(&str, Result<Tensor>)> = vec![
        (
            "a kernel of 7 is larger than axis 2",
            conv(&zeros(&[6, 4, 7, 3]), Conv::new()),
        ),
        ("which reaches over 9", conv(&w, Conv::new().dilation(4))),
        ("3 groups do not divide", conv(&w, Conv::new().groups(3))),
        ("0 groups do not divide", conv(&w, Conv::new().groups(0))),
        (
            "has 4 channels, and a weight",
            conv(&zeros(&[6, 3, 3, 3]), Conv::new()),
        ),
        (
            "needs 4 axes (or 3",
            zeros(&[5, 5]).conv2d(&w, None, &Conv::new()),
        ),
        ("the weight 4", conv(&zeros(&[6, 4, 3]), Conv::new())),
        ("the stride is [0, 0]", conv(&w, Conv::new().stride(0))),
        ("the padding is [-1, -1]", conv(&w, Conv::new().padding(-1))),
        (
            "not one number for each of 2 axes",
            conv(&w, Conv::new().stride([1, 1, 1])),
        ),
        ("keeps extents only with stride 1", {
            conv(&w, Conv::new().stride(2).padding(ConvPadding::Same))
        }),
        (
            "more than memory holds",
            conv(&w, Conv::new().padding(huge)),
        ),
        ("larger than axis", conv(&w, Conv::new().dilation(huge))),
        ("an empty kernel", conv(&zeros(&[6, 4, 0, 3]), Conv::new())),
        (
            "a bias of shape (5,)",
            x.conv2d(&w, Some(&zeros(&[5])), &Conv::new()),
        ),
        ("needs 6", turned(&w, Conv::new())),
        (
            "padding 9 cuts off all",
            turned(&zeros(&[4, 6, 3, 3]), Conv::new().padding(9)),
        ),
        ("must be smaller than the stride", {
            turned(&zeros(&[4, 6, 3, 3]), Conv::new().output_padding(1))
        }),
        (
            "more than memory holds",
            turned(&zeros(&[4, 6, 3, 3]), Conv::new().stride(huge)),
        ),
        (
            "has no meaning",
            turned(
                &zeros(&[4, 6, 3, 3]),
                Conv::new().padding(ConvPadding::Same),
            ),
        ),
        ("nothing along axis 2", {
            zeros(&[1, 4, 0, 5]).conv_transpose2d(&zeros(&[4, 6, 3, 3]), None, &Conv::new())
        }),
        ("a kernel of 6 is larger", x.max_pool2d(6)),
        (
            "more than half of a window",
            x.avg_pool2d(Pool::new(2).padding(2)),
        ),
        ("the kernel is [0, 0]", x.max_pool2d(0)),
        ("4 axes are needed", zeros(&[5]).max_pool2d(2)),
        (
            "there is no dilation",
            x.avg_pool2d(Pool::new(2).dilation(2)),
        ),
        ("the divisor is 0", x.avg_pool2d(Pool::new(2).divisor(0))),
        ("the output size is [0, 0]", x.adaptive_avg_pool2d(0)),
        (
            "has nothing to take",
            zeros(&[1, 2, 0, 3]).adaptive_avg_pool2d(2),
        ),
        (
            "not one pair for each of the 4 axes",
            x.pad_with([(1, 1)], PadMode::Reflect),
        ),
        ("can pad axis 0 of shape (3,) by at most 2", {
            zeros(&[3]).pad_with([(3, 0)], PadMode::Reflect)
        }),
        (
            "by at most 3",
            zeros(&[3]).pad_with([(0, 4)], PadMode::Circular),
        ),
        (
            "by at most 0",
            zeros(&[0]).pad_with([(0, 1)], PadMode::Replicate),
        ),
        ("can't be padded with 0.5", {
            Tensor::from([1, 2]).pad_with([(1, 1)], PadMode::constant(0.5))
        }),
        (
            "more than memory holds",
            zeros(&[3]).pad_with([(huge, huge)], PadMode::constant(0)),
        ),
        (
            "one to three spatial axes",
            zeros(&[2, 3]).interpolate(&by(2.0), ResizeMode::Linear),
        ),
        ("leave none", x.interpolate(&by(0.1), ResizeMode::Nearest)),
        (
            "the factor NaN",
            x.interpolate(&by(f64::NAN), ResizeMode::Nearest),
        ),
        (
            "the factor inf",
            x.interpolate(&by(f64::INFINITY), ResizeMode::Nearest),
        ),
        (
            "the size is [0, 0]",
            x.interpolate(&Resize::To(0.into()), ResizeMode::Nearest),
        ),
        (
            "equally long",
            zeros(&[3, 4]).attention(&zeros(&[3, 5]), &zeros(&[3, 4]), &Attention::new()),
        ),
        ("a value for each key", {
            zeros(&[3, 4]).attention(&zeros(&[3, 4]), &zeros(&[2, 4]), &Attention::new())
        }),
        ("join the two conditions", {
            let how = Attention::new().causal(true).mask(&zeros(&[3, 3]));
            zeros(&[3, 4]).attention(&zeros(&[3, 4]), &zeros(&[3, 4]), &how)
        }),
        ("a mask is bool", {
            let how = Attention::new().mask(&Tensor::from([1, 0, 1]));
            zeros(&[3, 4]).attention(&zeros(&[3, 4]), &zeros(&[3, 4]), &how)
        }),
        ("does not broadcast to scores", {
            let how = Attention::new().mask(&zeros(&[2, 3]));
            zeros(&[3, 4]).attention(&zeros(&[3, 4]), &zeros(&[3, 4]), &how)
        }),
        ("divide those of queries", {
            let (q, k) = (zeros(&[4, 3, 2]), zeros(&[3, 3, 2]));
            q.attention(&k, &k, &Attention::new().grouped(true))
        }),
        ("does not end in", x.layer_norm([4], None, None, 1e-5)),
        ("eps is NaN", x.layer_norm([5], None, None, f64::NAN)),
        (
            "differs from the normalised",
            x.rms_norm([5], Some(&zeros(&[4])), 0.0),
        ),
        (
            "3 groups do not divide 4 channels",
            x.group_norm(3, None, None, 0.0),
        ),
        ("one element a channel", {
            let how = BatchStatistics::OfBatch {
                running: None,
                momentum: 0.1,
            };
            zeros(&[1, 3]).batch_norm(how, None, None, 1e-5)
        }),
        ("does not fit 4 channels", {
            let wrong = zeros(&[3]);
            x.batch_norm(BatchStatistics::Fixed(&wrong, &wrong), None, None, 1e-5)
        }),
        ("dropout: p is 1.5", x.dropout(1.5)),
        ("dropout: p is NaN", x.dropout(f64::NAN)),
        ("delta is 0", nn::huber_loss(&x, &x, 0.0, Reduction::Mean)),
        (
            "beta is -1",
            nn::smooth_l1_loss(&x, &x, -1.0, Reduction::Mean),
        ),
        ("a scalar has no batch", {
            let s = zeros(&[]);
            nn::mse_loss(&s, &s, Reduction::BatchMean)
        }),
        ("label_smoothing is 2", {
            CrossEntropy::new()
                .label_smoothing(2.0)
                .loss(&x, &zeros(&[2, 4, 5, 5]))
        }),
        ("does not fit 5 classes", {
            CrossEntropy::new()
                .weight(&zeros(&[4]))
                .loss(&x, &zeros(&[2, 4, 5, 5]))
        }),
        (
            "has no axis 7",
            CrossEntropy::new().axis(7).loss(&x, &zeros(&[2, 4, 5, 5])),
        ),
        (
            "differ in shape",
            CrossEntropy::new().loss(&x, &zeros(&[2, 4, 5, 6])),
        ),
        (
            "labels are integers",
            CrossEntropy::new().loss(&x, &zeros(&[2, 4, 5])),
        ),
    ];
    for (part, result) in refused {
        let error = match result {
            Ok(t) => panic!("{part}: a tensor of shape {}", t.shape()),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn empty_batches_and_channels() {
    let _engine = own_engine();
    let w = zeros(&[6, 4, 3, 3]);
    let shapes: Vec<(Result<Tensor>, Vec<usize>)> = vec![
        (
            zeros(&[0, 4, 5, 5]).conv2d(&w, None, &Conv::new().padding(1)),
            vec![0, 6, 5, 5],
        ),
        (
            zeros(&[0, 4, 5, 5]).conv2d(&w, None, &Conv::new().stride(2)),
            vec![0, 6, 2, 2],
        ),
        (
            zeros(&[2, 4, 0, 3]).conv2d(&w, None, &Conv::new().padding(2)),
            vec![2, 6, 2, 5],
        ),
        (
            zeros(&[0, 6, 5, 5]).conv_transpose2d(&w, None, &Conv::new().stride(2)),
            vec![0, 4, 11, 11],
        ),
        (
            zeros(&[2, 0, 5]).conv1d(&zeros(&[3, 0, 2]), None, &Conv::new()),
            vec![2, 3, 4],
        ),
        (zeros(&[0, 4, 5]).max_pool1d(2), vec![0, 4, 2]),
        (zeros(&[0, 4, 5]).avg_pool1d(2), vec![0, 4, 2]),
        (zeros(&[0, 4, 5]).adaptive_avg_pool1d(2), vec![0, 4, 2]),
        (
            zeros(&[0, 4, 5]).interpolate(&by(1.5), ResizeMode::Linear),
            vec![0, 4, 7],
        ),
        (
            zeros(&[0, 3, 4]).attention(&zeros(&[0, 5, 4]), &zeros(&[0, 5, 2]), &Attention::new()),
            vec![0, 3, 2],
        ),
        (zeros(&[0, 4]).layer_norm([4], None, None, 1e-5), vec![0, 4]),
        (zeros(&[3, 0]).layer_norm([0], None, None, 1e-5), vec![3, 0]),
        (zeros(&[0, 4]).group_norm(2, None, None, 1e-5), vec![0, 4]),
        (zeros(&[0, 4]).dropout(0.5), vec![0, 4]),
        (
            zeros(&[0, 3]).pad_with([(1, 1), (1, 1)], PadMode::constant(2.0)),
            vec![2, 5],
        ),
        (
            nn::mse_loss(&zeros(&[0, 3]), &zeros(&[0, 3]), Reduction::None),
            vec![0, 3],
        ),
    ];
    for (k, (y, shape)) in shapes.into_iter().enumerate() {
        let y = y.unwrap_or_else(|e| panic!("case {k}: {e}"));
        assert_eq!(y.shape()[..], shape, "case {k}");
        let padded = k == 14;
        assert!(
            y.to_vec::<f32>()
                .unwrap()
                .iter()
                .all(|&v| v == if padded { 2.0 } else { 0.0 })
        );
    }
    // A batch of nothing has no gradient to speak of, but zeros for the weight.
    let w = w.requires_grad().unwrap();
    let y = zeros(&[0, 4, 5, 5]).conv2d(&w, None, &Conv::new()).unwrap();
    y.sum(..).unwrap().backward(&[&w]).unwrap();
    assert_eq!(w.grad().unwrap().sum(..).unwrap().item().unwrap(), 0.0);
}

#[test]
fn special_numbers_stay_where_they_belong() {
    let _engine = own_engine();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let row = |values: &[f32]| Tensor::from_slice(values, [1, 1, values.len()]).unwrap();
    // NaN wins, minus infinity is no padding that could be taken for an element.
    let y = values(row(&[1.0, nan, 2.0, -inf]).max_pool1d(2));
    assert!(y[0].is_nan() && y[1] == 2.0);
    assert_eq!(
        values(row(&[-inf, -inf, 1.0]).max_pool1d(Pool::new(3).padding(1).stride(1))),
        [-inf, 1.0, 1.0]
    );
    // Windows of uneven size read no neighbour, so what is beyond them does not matter.
    let y = values(row(&[1.0, 2.0, 3.0, nan]).adaptive_avg_pool1d(3));
    assert!(y[0] == 1.5 && y[1] == 2.5 && y[2].is_nan(), "{y:?}");
    assert_eq!(
        values(row(&[inf, 1.0, 2.0, 3.0, 4.0]).adaptive_avg_pool1d(2))[1],
        3.0
    );
    // A query that may look nowhere finds zeros, and passes no NaN on.
    let q = Tensor::from([[1.0f32], [2.0]]).requires_grad().unwrap();
    let nowhere = Tensor::from([[true, true], [false, false]]);
    let y = q
        .attention(&q, &q, &Attention::new().mask(&nowhere))
        .unwrap();
    y.sum(..).unwrap().backward(&[&q]).unwrap();
    assert_eq!(y.get(1).unwrap().item().unwrap(), 0.0);
    assert!(values(Ok(q.grad().unwrap())).iter().all(|g| g.is_finite()));
    // Certain predictions: finite losses and gradients.
    let p = Tensor::from([0.0f32, 1.0, 0.0, 1.0])
        .requires_grad()
        .unwrap();
    let t = Tensor::from([0.0f32, 1.0, 1.0, 0.0]);
    let loss = nn::binary_cross_entropy(&p, &t, None, Reduction::None).unwrap();
    loss.sum(..).unwrap().backward(&[&p]).unwrap();
    assert_eq!(values(Ok(loss)), [0.0, 0.0, 100.0, 100.0]);
    assert!(values(Ok(p.grad().unwrap())).iter().all(|g| g.is_finite()));
    let x = Tensor::from([-200.0f32, 200.0]);
    let loss = nn::binary_cross_entropy_with_logits(
        &x,
        &Tensor::from([1.0f32, 1.0]),
        None,
        None,
        Reduction::None,
    );
    assert_eq!(values(loss), [200.0, 0.0]);
    let q = Tensor::from([0.0f32, 1.0]);
    assert_eq!(
        values(nn::kl_div(
            &Tensor::from([-1.0f32, -2.0]),
            &q,
            false,
            Reduction::None
        )),
        [0.0, 2.0]
    );
    // A constant row: variance 0.
    let y = values(
        Tensor::full([1, 4], 3.0f32)
            .unwrap()
            .layer_norm([4], None, None, 1e-5),
    );
    assert_eq!(y, [0.0; 4]);
    // Labels that are no class, and none at all.
    let logits = zeros(&[2, 3]);
    let strange = CrossEntropy::new()
        .ignore_index(-100)
        .loss(&logits, &Tensor::from([0, 3]));
    assert!(strange.unwrap().item().unwrap().is_nan());
    let none = CrossEntropy::new()
        .ignore_index(1)
        .loss(&logits, &Tensor::from([1, 1]));
    assert!(none.unwrap().item().unwrap().is_nan());
}

#[test]
fn integers_and_half_floats() {
    let _engine = own_engine();
    let x = Tensor::from_slice(&[1i32, 2, 3, 4], [1, 1, 4]).unwrap();
    let w = Tensor::from_slice(&[1i32, -1], [1, 1, 2]).unwrap();
    let y = x.conv1d(&w, None, &Conv::new()).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [-1, -1, -1]);
    let y = x.max_pool1d(Pool::new(3).padding(1).stride(2)).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [2, 4]);
    assert_eq!(values(x.avg_pool1d(2)), [1.5, 3.5]);
    assert_eq!(
        values(x.interpolate(&to(&[3]), ResizeMode::Linear)).len(),
        3
    );
    // Products of half floats are summed in f32: 2049 is no f16, and 2048 + 1 - 2048 is 1.
    for dtype in [DType::F16, DType::BF16] {
        let x = Tensor::from_slice(&[2048.0f32, 1.0, -2048.0], [1, 1, 3]).unwrap();
        let x = x.cast(dtype).unwrap();
        let ones = Tensor::ones([1, 1, 3]).unwrap().cast(dtype).unwrap();
        let y = x.conv1d(&ones, None, &Conv::new()).unwrap();
        assert_eq!((y.dtype(), y.item().unwrap()), (dtype, 1.0));
        let y = x.layer_norm([3], None, None, 1e-5).unwrap();
        assert_eq!(y.dtype(), dtype);
        assert_eq!(x.avg_pool1d(3).unwrap().dtype(), dtype);
    }
}

#[test]
fn dropout_keeps_the_right_share_and_draws_anew() {
    let _engine = own_engine();
    Tensor::manual_seed(3);
    let x = Tensor::ones([4096]).unwrap();
    let (a, b) = (values(x.dropout(0.25)), values(x.dropout(0.25)));
    assert_ne!(a, b);
    let kept = a.iter().filter(|&&v| v != 0.0).count();
    // 3072 in the mean, with a deviation of 28.
    assert!((2950..3200).contains(&kept), "{kept}");
    assert_eq!(values(x.dropout(0.0)), [1.0; 4096]);
    assert_eq!(values(x.dropout(1.0)), [0.0; 4096]);
    // The gradient has the mask of the value.
    let x = x.requires_grad().unwrap();
    let y = x.dropout(0.5).unwrap();
    y.sum(..).unwrap().backward(&[&x]).unwrap();
    assert_eq!(values(Ok(y)), values(Ok(x.grad().unwrap())));
}
