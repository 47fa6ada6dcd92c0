//! Parts of tensors as Python writes them, read and replaced.

mod tensors;

use std::sync::Arc;

use tensors::*;
use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::ir::visit::toposort;
use uopc::ir::{Op, UOp};
use uopc::tensor::Slice::{self, At, Between, Every, NewAxis, Rest, Stepped};
use uopc::tensor::{EnteredEngine, Operand, enter_engine, no_grad};
use uopc::{DType, Error, Result, Tensor};

const ALL: Slice = Between(None, None);

/// From here to the end of the test the interpreter computes: it needs no compiler for each case.
fn interpreted() -> EnteredEngine {
    let settings = Settings {
        device: DeviceChoice::Interp,
        ..Settings::default()
    };
    enter_engine(&Arc::new(Engine::new(settings).unwrap()))
}

fn numbers(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<i32> = (0..n as i32).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

fn ints(t: &Tensor) -> Vec<i32> {
    t.to_vec().unwrap()
}

/// The positions of Python's `range(n)[start:stop:step]`, found by walking.
fn python(n: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Vec<i32> {
    let from_end = |p: i64| if p < 0 { p + n } else { p };
    let inside = |p: i64| (0..n).contains(&p);
    // Of what lies outside of the axis only the side counts.
    let mut at = match start.map(from_end) {
        None if step > 0 => 0,
        None => n - 1,
        Some(p) if step > 0 => p.max(0),
        Some(p) => p.min(n - 1),
    };
    let mut found = Vec::new();
    let goes_on = |at: i64| match stop.map(from_end) {
        None => true,
        Some(stop) if step > 0 => at < stop,
        Some(stop) => at > stop,
    };
    while inside(at) && goes_on(at) {
        found.push(at as i32);
        at += step;
    }
    found
}

#[test]
fn steps_are_those_of_python() {
    let _engine = interpreted();
    let places = [-9, -3, -2, -1, 0, 1, 2, 9].map(Some);
    let places = || places.into_iter().chain([None]);
    let mut cases = Vec::new();
    for n in 0..6 {
        let t = numbers(&[n]);
        for (start, stop) in places().flat_map(|a| places().map(move |b| (a, b))) {
            for step in [-9, -3, -2, -1, 1, 2, 3, 9] {
                let part = t.slice(Stepped(start, stop, step)).unwrap();
                cases.push((n, start, stop, step, part));
            }
        }
    }
    let parts: Vec<&Tensor> = cases.iter().map(|case| &case.4).collect();
    for parts in parts.chunks(500) {
        Tensor::realize_all(parts).unwrap();
    }
    for (n, start, stop, step, part) in &cases {
        let expected = python(*n as i64, *start, *stop, *step);
        assert_eq!(
            ints(part),
            expected,
            "range({n})[{start:?}:{stop:?}:{step}]"
        );
        assert_eq!(part.shape()[..], [expected.len()]);
    }
}

/// Numbers that no axis has, and the ends of their type.
#[test]
fn steps_of_any_size_stay_within_the_axis() {
    let _engine = own_engine();
    let t = numbers(&[5]);
    let cases = [
        (Stepped(Some(i64::MIN), Some(i64::MAX), 2), vec![0, 2, 4]),
        (Stepped(Some(i64::MAX), Some(i64::MIN), -2), vec![4, 2, 0]),
        (Stepped(None, None, i64::MAX), vec![0]),
        (Stepped(None, None, i64::MIN), vec![4]),
        (Stepped(Some(i64::MAX), None, 1), vec![]),
        (Stepped(Some(3), Some(1), 1), vec![]),
        (Every(i64::MIN), vec![4]),
    ];
    for (slice, expected) in cases {
        assert_eq!(ints(&t.slice(slice).unwrap()), expected, "{slice:?}");
    }
}

#[test]
fn several_axes_new_axes_and_the_rest() {
    let _engine = own_engine();
    let t = numbers(&[2, 3, 4]);
    let part = |slices: Vec<Slice>| {
        let part = t.slice(slices).unwrap();
        (part.shape().to_vec(), ints(&part))
    };
    // t[..., 1], t[1, ..., ::-2], t[:, None, 2, None, 3:0:-1]
    assert_eq!(
        part(vec![Rest, At(1)]),
        (vec![2, 3], vec![1, 5, 9, 13, 17, 21])
    );
    assert_eq!(
        part(vec![At(1), Rest, Every(-2)]),
        (vec![3, 2], vec![15, 13, 19, 17, 23, 21])
    );
    assert_eq!(
        part(vec![
            ALL,
            NewAxis,
            At(2),
            NewAxis,
            Stepped(Some(3), Some(0), -1)
        ]),
        (vec![2, 1, 1, 3], vec![11, 10, 9, 23, 22, 21])
    );
    // Two steps at once, of which one goes beyond the end: t[::-1, ::2, 1::3]
    assert_eq!(
        part(vec![Every(-1), Every(2), Stepped(Some(1), None, 3)]),
        (vec![2, 2, 1], vec![13, 21, 1, 9])
    );
    assert_eq!(part(vec![NewAxis, Rest, NewAxis]).0, [1, 2, 3, 4, 1]);
    assert_eq!(part(vec![At(0), At(1), At(2), Rest]), (vec![], vec![6]));
    assert_eq!(part(vec![]).0, [2, 3, 4]);
    assert_eq!(
        part(vec![ALL, Stepped(Some(2), Some(2), 1)]),
        (vec![2, 0, 4], vec![])
    );
    let scalar = Tensor::scalar(7).unwrap();
    assert_eq!(scalar.slice([Rest, NewAxis]).unwrap().shape()[..], [1]);
    assert_eq!(ints(&scalar.slice([Rest]).unwrap()), [7]);
}

/// A position is one INDEX, whatever else says that the rest stays whole; ranges are one SHRINK.
#[test]
fn graphs_of_parts_are_small() {
    let _engine = own_engine();
    let t = numbers(&[3, 4, 5]);
    let row = t.get(1).unwrap().uop();
    assert!(matches!(row.op(), Op::Index));
    assert_eq!(row.src()[0], t.uop());
    assert_eq!(t.slice([At(1), Rest]).unwrap().uop(), row);
    let lifted = t.slice([NewAxis, At(1)]).unwrap().uop();
    assert_eq!(lifted, row.reshape(&[1, 4, 5]).unwrap());
    let range = t.slice((.., 1..3)).unwrap().uop();
    assert!(matches!(range.op(), Op::Shrink(_)));
    assert_eq!(range.src()[0], t.uop());

    let n = 1 << 20;
    let long = Tensor::from_slice(&vec![0.5f32; n], [n])
        .unwrap()
        .requires_grad()
        .unwrap();
    let nodes = |u: &UOp| toposort(std::slice::from_ref(u)).len();
    let part = long.slice(Stepped(Some(-2), None, -3)).unwrap();
    assert!(nodes(&part.uop()) < 20, "{}", nodes(&part.uop()));
    part.square()
        .unwrap()
        .sum(..)
        .unwrap()
        .backward_all()
        .unwrap();
    let gradient = long.grad().unwrap();
    assert!(nodes(&gradient.uop()) < 200, "{}", nodes(&gradient.uop()));
    let found = gradient.to_vec::<f32>().unwrap();
    let expected = |k: usize| if k % 3 == (n - 2) % 3 { 1.0 } else { 0.0 };
    assert!((0..n).all(|k| found[k] == expected(k)));
}

#[test]
fn the_gradient_of_a_part_is_at_its_positions() {
    let _engine = interpreted();
    let cases: [(Vec<Slice>, [f32; 6]); 5] = [
        (vec![At(1)], [0.0, 0.0, 0.0, 2.0, 3.0, 4.0]),
        (vec![Rest, Every(-2)], [3.0, 0.0, 2.0, 5.0, 0.0, 4.0]),
        (
            vec![Every(-1), Stepped(Some(1), None, 1)],
            [0.0, 4.0, 5.0, 0.0, 2.0, 3.0],
        ),
        (
            vec![NewAxis, ALL, At(-1), NewAxis],
            [0.0, 0.0, 2.0, 0.0, 0.0, 3.0],
        ),
        (vec![Stepped(Some(2), None, 1)], [0.0; 6]),
    ];
    for (slices, expected) in cases {
        let t = parameter(&[1.0; 6], &[2, 3]);
        let part = t.slice(slices.clone()).unwrap();
        // The weights 2, 3, 4, ... in the order of the part's elements.
        let weights = Tensor::arange(part.numel()).unwrap().add(2).unwrap();
        let weights = weights.reshape(part.shape()).unwrap();
        part.mul(&weights)
            .unwrap()
            .sum(..)
            .unwrap()
            .backward(&[&t])
            .unwrap();
        assert_eq!(gradient(&t), expected, "{slices:?}");
    }
}

#[test]
fn positions_and_axes_that_are_not_there_are_errors_of_their_kind() {
    let t = numbers(&[2, 3]);
    let refused: [(Result<Tensor>, &str); 4] = [
        (
            t.get(2),
            "slice: position 2 of axis 0 of shape (2, 3) does not exist",
        ),
        (
            t.slice([Rest, At(-4)]),
            "slice: position -4 of axis 1 of shape (2, 3) does not exist",
        ),
        (
            t.slice([At(0), At(0), NewAxis, At(0)]),
            "slice: 3 slices of shape (2, 3), which has 2 axes",
        ),
        (
            t.slice([Rest, Rest, At(0)]),
            "slice: 2 of the slices mean the rest of the axes; one can",
        ),
    ];
    for (result, text) in refused {
        let error = result.err().unwrap();
        assert!(matches!(error, Error::Index { .. }), "{error:?}");
        assert!(error.to_string().starts_with(text), "{error}");
    }
    let error = t.slice(Stepped(None, None, 0)).err().unwrap();
    assert!(matches!(error, Error::Shape { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("slice: a step of 0 never ends")
    );
}

// ---- replacing ----

#[test]
fn a_part_is_replaced_and_the_rest_stays() {
    let _engine = interpreted();
    let t = numbers(&[3, 4]);
    let with = |slices: Vec<Slice>, value: Tensor| ints(&t.with_slice(slices, value).unwrap());
    let scalar = |n: i32| Tensor::scalar(n).unwrap();
    let row = Tensor::from([50, 60, 70, 80]);
    assert_eq!(
        with(vec![At(1)], row.clone()),
        [0, 1, 2, 3, 50, 60, 70, 80, 8, 9, 10, 11]
    );
    assert_eq!(
        with(vec![Rest, At(-1)], Tensor::from([50, 60, 70])),
        [0, 1, 2, 50, 4, 5, 6, 60, 8, 9, 10, 70]
    );
    // Both axes stepped, one backwards and beyond the end, one that begins in the middle.
    assert_eq!(
        with(
            vec![Every(-2), Stepped(Some(1), None, 2)],
            Tensor::from([[50, 60], [70, 80]])
        ),
        [0, 70, 2, 80, 4, 5, 6, 7, 8, 50, 10, 60]
    );
    assert_eq!(
        with(
            vec![Stepped(Some(1), None, 1)],
            row.slice(Every(-1)).unwrap()
        ),
        [0, 1, 2, 3, 80, 70, 60, 50, 80, 70, 60, 50]
    );
    assert_eq!(with(vec![], scalar(5)), [5; 12]);
    assert_eq!(
        with(vec![Every(-1), Every(-1)], t.clone()),
        python(12, None, None, -1)
    );
    assert_eq!(
        with(vec![Stepped(Some(2), Some(1), 1)], scalar(5)),
        ints(&t)
    );
    assert_eq!(with(vec![At(2), At(3)], scalar(5))[10..], [10, 5]);
    // Axes in front of the value that say nothing, and new axes of the part.
    let lifted = row.reshape([1, 1, 4]).unwrap();
    assert_eq!(with(vec![At(0)], lifted)[..5], [50, 60, 70, 80, 4]);
    let column = Tensor::from([[50], [60], [70]]);
    assert_eq!(
        with(vec![ALL, At(0), NewAxis], column),
        [50, 1, 2, 3, 60, 5, 6, 7, 70, 9, 10, 11]
    );
    let point = Tensor::scalar(1).unwrap().with_slice([Rest], 4).unwrap();
    assert_eq!(ints(&point), [4]);
}

/// Each range of a short axis, against assignment element by element.
#[test]
fn all_steps_are_replaced_as_they_are_read() {
    let _engine = interpreted();
    let places = [-4, -1, 0, 1, 3].map(Some);
    let places = || places.into_iter().chain([None]);
    let mut cases = Vec::new();
    for n in 1..6i64 {
        let t = numbers(&[n as usize]);
        for (start, stop) in places().flat_map(|a| places().map(move |b| (a, b))) {
            for step in [-3, -2, -1, 1, 2, 3] {
                let at = python(n, start, stop, step);
                let slice = Stepped(start, stop, step);
                let value: Vec<i32> = (100..100 + at.len() as i32).collect();
                let found = t.with_slice(slice, Tensor::from(&value[..])).unwrap();
                let mut expected = ints(&t);
                for (k, value) in at.iter().zip(value) {
                    expected[*k as usize] = value;
                }
                cases.push((found, expected, format!("range({n}), {slice:?}")));
            }
        }
    }
    let all: Vec<&Tensor> = cases.iter().map(|case| &case.0).collect();
    for some in all.chunks(100) {
        Tensor::realize_all(some).unwrap();
    }
    for (found, expected, name) in &cases {
        assert_eq!(ints(found), *expected, "{name}");
    }
}

/// The compiled code and not only the interpreter, with all that can meet in one kernel.
#[test]
fn a_replaced_part_is_compiled() {
    let _engine = own_engine();
    let t = Tensor::zeros([5, 7]).unwrap();
    let value = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let t = t
        .with_slice(
            [Stepped(Some(1), None, 3), Stepped(Some(5), None, -2)],
            &value,
        )
        .unwrap()
        .with_slice([At(2), Stepped(None, Some(2), 1)], -1)
        .unwrap();
    let expected = [
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0, 3.0, 0.0, 2.0, 0.0, 1.0, 0.0],
        [-1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.0; 7],
        [0.0, 6.0, 0.0, 5.0, 0.0, 4.0, 0.0],
    ];
    assert_eq!(t.to_vec::<f32>().unwrap(), expected.as_flattened());
    // Not a number stays where it is.
    let hole = t.with_slice([At(0), At(0)], f32::NAN).unwrap();
    let hole = hole.to_vec::<f32>().unwrap();
    assert!(hole[0].is_nan() && hole[1..].iter().all(|x| !x.is_nan()));
}

#[test]
fn values_take_the_dtype_of_the_tensor_or_are_refused() {
    let _engine = interpreted();
    let t = numbers(&[3]);
    let put = |t: &Tensor, value: Operand| t.with_slice(1, value);
    let refused = [
        (
            put(&t, 1.5.into()),
            "with_slice: a tensor of i32 can't take the float 1.5; give an integer or cast the tensor",
        ),
        (
            put(&t, Tensor::from([1.5f32]).into()),
            "with_slice: a tensor of i32 can't take f32 values; cast them or cast the tensor",
        ),
        (
            put(&t, (1u64 << 31).into()),
            "with_slice: 2147483648 does not fit i32; cast the tensor first",
        ),
        (
            put(&t.gt(0).unwrap(), 2.into()),
            "with_slice: 2 does not fit bool; cast the tensor first",
        ),
        (
            put(&t.gt(0).unwrap(), t.get(0).unwrap().into()),
            "with_slice: a tensor of bool can't take i32 values; cast them or cast the tensor",
        ),
    ];
    for (result, text) in refused {
        let error = result.err().unwrap();
        assert!(matches!(error, Error::DType { .. }), "{error:?}");
        assert!(error.to_string().starts_with(text), "{error}");
    }
    let error = t.with_slice(1.., numbers(&[3])).err().unwrap();
    let text = "with_slice: shapes (3,) and (2,) differ in axis -1";
    assert!(error.to_string().starts_with(text), "{error}");
    let error = t.with_slice(1.., numbers(&[1, 2, 2])).err().unwrap();
    let text = "with_slice: a value of shape (1, 2, 2) does not broadcast to the part, (2,)";
    assert!(error.to_string().starts_with(text), "{error}");

    assert_eq!(ints(&put(&t, true.into()).unwrap()), [0, 1, 2]);
    let wide = Tensor::from([-5i64]);
    assert_eq!(ints(&put(&t, wide.into()).unwrap()), [0, -5, 2]);
    let floats = t.cast(DType::F16).unwrap();
    let mixed = put(&floats, Tensor::from([true]).into()).unwrap();
    let mixed = put(&mixed.cast(DType::F64).unwrap(), (1i64 << 53).into()).unwrap();
    assert_eq!(
        mixed.to_vec::<f64>().unwrap(),
        [0.0, 9007199254740992.0, 2.0]
    );
    let truth = t.gt(5).unwrap().with_slice(2, 1).unwrap();
    assert_eq!(truth.to_vec::<bool>().unwrap(), [false, false, true]);
}

#[test]
fn gradients_flow_to_what_is_kept_and_to_the_value() {
    let _engine = interpreted();
    // The slices, the value's shape, and the gradients of the tensor and of the value.
    type Case = (Vec<Slice>, &'static [usize], [f32; 6], &'static [f32]);
    let cases: [Case; 4] = [
        (
            vec![At(1)],
            &[3],
            [1.0, 2.0, 3.0, 0.0, 0.0, 0.0],
            &[4.0, 5.0, 6.0],
        ),
        (
            vec![Rest, Every(-2)],
            &[2, 2],
            [0.0, 2.0, 0.0, 0.0, 5.0, 0.0],
            &[3.0, 1.0, 6.0, 4.0],
        ),
        // One number for a column, another for a part that is all there is.
        (
            vec![ALL, At(0)],
            &[],
            [0.0, 2.0, 3.0, 0.0, 5.0, 6.0],
            &[5.0],
        ),
        (vec![], &[1, 3], [0.0; 6], &[5.0, 7.0, 9.0]),
    ];
    for (slices, shape, kept, replaced) in cases {
        let t = parameter(&[1.0; 6], &[2, 3]);
        let n: usize = shape.iter().product();
        let value = parameter(&vec![1.0; n], shape);
        let weights = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let with = t.with_slice(slices.clone(), &value).unwrap();
        with.mul(&weights)
            .unwrap()
            .sum(..)
            .unwrap()
            .backward(&[&t, &value])
            .unwrap();
        assert_eq!(gradient(&t), kept, "{slices:?}");
        assert_eq!(gradient(&value), replaced, "{slices:?}");
    }
    let t = parameter(&[1.0; 6], &[2, 3]);
    let off = no_grad();
    let part = t.with_slice(0, 2).unwrap();
    drop(off);
    assert!(!part.needs_grad());
}

/// Neither the graph nor that of its gradient grows with the extents.
#[test]
fn graphs_of_replaced_parts_are_small() {
    let _engine = own_engine();
    let n = 1 << 20;
    let t = Tensor::zeros([n]).unwrap();
    let value = Tensor::from_slice(&vec![0.5f32; n / 3], [n / 3])
        .unwrap()
        .requires_grad()
        .unwrap();
    let nodes = |u: &UOp| toposort(std::slice::from_ref(u)).len();
    let with = t.with_slice(Stepped(Some(-2), None, -3), &value).unwrap();
    assert!(nodes(&with.uop()) < 100, "{}", nodes(&with.uop()));
    with.square()
        .unwrap()
        .sum(..)
        .unwrap()
        .backward_all()
        .unwrap();
    let gradient = value.grad().unwrap();
    assert!(nodes(&gradient.uop()) < 300, "{}", nodes(&gradient.uop()));
    assert_eq!(gradient.to_vec::<f32>().unwrap(), vec![1.0; n / 3]);
}
