//! What tensors remember: gradients of all parameters, values set in place, copies.

mod tensors;

use tensors::*;
use uopc::Tensor;
use uopc::tensor::no_grad;

fn sum(t: &Tensor) -> Tensor {
    t.sum(..).unwrap()
}

#[test]
fn backward_all_reaches_every_living_parameter_that_counts() {
    let _engine = own_engine();
    let (w, b) = (parameter(&[1.0, 2.0], &[2]), parameter(&[0.5], &[1]));
    let (cut, unused) = (parameter(&[3.0, 4.0], &[2]), parameter(&[9.0], &[1]));
    let compared = parameter(&[1.5], &[1]);
    let mask = w.lt(&compared).unwrap();
    let gone = parameter(&[7.0, 7.0], &[2]);
    let y = &w * &w + &b + cut.detach().unwrap() + mask.where_(&gone, 0.0).unwrap();
    drop(gone);
    let loss = sum(&y);
    let same = loss.backward_all().unwrap();
    assert!(same.is(&loss));
    assert_eq!((gradient(&w), gradient(&b)), (vec![2.0, 4.0], vec![2.0]));
    assert!(
        [&cut, &unused, &compared]
            .iter()
            .all(|t| t.grad().is_none())
    );
    // A second one adds, and a computed loss has the same gradients.
    loss.item().unwrap();
    loss.backward_all().unwrap();
    assert_eq!((gradient(&w), gradient(&b)), (vec![4.0, 8.0], vec![4.0]));
}

#[test]
fn backward_all_gives_the_gradients_of_the_list() {
    let _engine = own_engine();
    let (w, v) = (parameter(&[1.0, -2.0], &[2]), parameter(&[3.0, 0.5], &[2]));
    let loss = || sum(&(&w * &v).sigmoid().unwrap());
    loss().backward(&[&w, &v]).unwrap();
    let listed = (gradient(&w), gradient(&v));
    w.zero_grad();
    v.zero_grad();
    loss().backward_all().unwrap();
    assert_eq!((gradient(&w), gradient(&v)), listed);
}

#[test]
fn backward_all_is_refused_where_nothing_could_come_of_it() {
    let _engine = own_engine();
    let w = parameter(&[1.0, 2.0], &[2]);
    let text = |t: &Tensor| t.backward_all().unwrap_err().to_string();
    assert!(text(&w).starts_with("gradient: backward needs a scalar, not shape (2,)"));
    let none = "gradient: the loss depends on no tensor that needs a gradient";
    assert!(text(&Tensor::scalar(1.0f32).unwrap()).starts_with(none));
    assert!(text(&sum(&w.detach().unwrap())).starts_with(none));
    assert!(
        text(&{
            let _off = no_grad();
            sum(&w)
        })
        .starts_with(none)
    );
    let loss = sum(&parameter(&[1.0], &[1]));
    assert!(text(&loss).starts_with(none), "its parameter is gone");
}

/// Half of the parameters keep their values, but the loss knows an old value of the others.
#[test]
fn backward_all_refuses_a_loss_from_before_an_update() {
    let _engine = own_engine();
    let (w, v) = (parameter(&[1.0, 2.0], &[2]), parameter(&[3.0, 4.0], &[2]));
    let loss = sum(&(&w * &v));
    v.assign(0.0f32).unwrap();
    let line = line!() - 1;
    let error = loss.backward_all().unwrap_err().to_string();
    let start = format!(
        "gradient: the loss was computed before parameters were updated at {}:{line}, so it has no \
         gradient with respect to the present value of a parameter",
        file!()
    );
    assert!(error.starts_with(&start), "{error}");
    assert!(w.grad().is_none() && v.grad().is_none());
    // Nobody asks for the gradient of a parameter that is gone.
    drop(v);
    loss.backward_all().unwrap();
    assert_eq!(gradient(&w), [3.0, 4.0]);
    // What no gradient could reach is no reason.
    let old = loss.detach().unwrap();
    w.assign(5.0f32).unwrap();
    w.zero_grad();
    (sum(&(&w * &w)) - old).backward_all().unwrap();
    assert_eq!(gradient(&w), [10.0, 10.0]);
}

// ---- set ----

#[test]
fn a_tensor_that_is_set_stands_for_the_value_under_all_its_names() {
    let _engine = own_engine();
    let x = Tensor::from([1.0f32, 2.0]);
    let (name, before) = (x.clone(), &x * 10);
    let value = &x + 1;
    x.set(&value).unwrap();
    // Nothing was computed, and the two are two tensors that share a graph.
    assert_eq!(x.uop(), value.uop());
    assert!(name.is(&x) && !x.is(&value));
    value.assign(0.0f32).unwrap();
    assert_eq!(name.to_vec::<f32>().unwrap(), [2.0, 3.0]);
    assert_eq!(before.to_vec::<f32>().unwrap(), [10.0, 20.0]);
    x.set(&x.clone()).unwrap();
    x.set_slice(1, 7).unwrap();
    x.set_slice(uopc::tensor::Slice::Every(-1), &x).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [7.0, 2.0]);
}

#[test]
fn a_long_row_of_settings_computes_what_it_says() {
    let _engine = own_engine();
    let x = Tensor::zeros([3]).unwrap();
    for k in 0..2000 {
        x.set(&(&x + 1)).unwrap();
        x.set_slice(k % 3, 0).unwrap();
        if k % 500 == 0 {
            x.realize().unwrap();
        }
    }
    // The last of each to be zeroed was at k = 1998, 1999 and 1997.
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 0.0, 2.0]);
}

#[test]
fn the_history_of_the_value_comes_along() {
    let _engine = own_engine();
    let w = parameter(&[2.0, 3.0], &[2]);
    let x = Tensor::ones([2]).unwrap();
    for computed in [false, true] {
        x.set(&Tensor::ones([2]).unwrap()).unwrap();
        assert!(!x.needs_grad());
        for _ in 0..3 {
            x.set(&(&x * &w)).unwrap();
            if computed {
                x.realize().unwrap();
            }
        }
        assert!(x.needs_grad() && !x.is_parameter());
        w.zero_grad();
        sum(&x).backward(&[&w]).unwrap();
        assert_eq!(gradient(&w), [12.0, 27.0]);
    }
    // Also that of one that was computed before, and is gone by then.
    let y = &w * 4;
    y.realize().unwrap();
    x.set(&y).unwrap();
    drop(y);
    assert_eq!(x.to_vec::<f32>().unwrap(), [8.0, 12.0]);
    w.zero_grad();
    sum(&x).backward_all().unwrap();
    assert_eq!(gradient(&w), [4.0, 4.0]);
    // A part of it.
    x.set(&Tensor::zeros([2]).unwrap()).unwrap();
    x.set_slice(0, w.get(1).unwrap().square().unwrap()).unwrap();
    w.zero_grad();
    sum(&x).backward_all().unwrap();
    assert_eq!(gradient(&w), [0.0, 6.0]);
    // Under no_grad there is none, computed or not.
    for computed in [false, true] {
        let y = &w * 4;
        if computed {
            y.realize().unwrap();
        }
        let _off = no_grad();
        x.set(&y).unwrap();
        assert!(!x.needs_grad());
        assert_eq!(x.to_vec::<f32>().unwrap(), [8.0, 12.0]);
    }
    assert!(sum(&x).backward_all().is_err());
}

/// An update reaches what depends on the parameter now, not what did so once.
#[test]
fn updates_reach_what_was_set_to_depend_on_them() {
    let _engine = own_engine();
    let (w, v) = (parameter(&[2.0], &[1]), parameter(&[3.0], &[1]));
    let computed = |t: Tensor| t.realize().cloned().unwrap();
    let (x, y) = (computed(&w * 2), computed(&v * 2));
    x.set(&computed(&v * 5)).unwrap();
    y.set(&computed(&w * 5)).unwrap();
    w.assign(10.0f32).unwrap();
    // x kept its graph: it does not depend on w any more.
    sum(&x).backward(&[&v]).unwrap();
    assert_eq!(gradient(&v), [5.0]);
    // y did come to depend on it, and holds no old weights.
    let error = sum(&y).backward(&[&w]).unwrap_err().to_string();
    assert!(error.contains("before parameters were updated"), "{error}");
    assert_eq!(y.item().unwrap(), 10.0);
    assert!(matches!(
        y.uop().op(),
        uopc::ir::Op::Reshape(_) | uopc::ir::Op::Buffer { .. }
    ));
}

#[test]
fn a_parameter_is_set_under_no_grad_only() {
    let _engine = own_engine();
    let w = parameter(&[2.0, 3.0], &[2]);
    let loss = sum(&w.square().unwrap());
    loss.backward_all().unwrap();
    let text = "gradient: a parameter can't be set while gradients are on, as it would be one no \
                more; set it under no_grad, or make a new tensor (at ";
    for result in [w.set(&(&w + 1)), w.set_slice(0, 1)] {
        let error = result.unwrap_err();
        assert!(matches!(error, uopc::Error::Gradient { .. }));
        assert!(error.to_string().starts_with(text), "{error}");
    }
    assert_eq!(w.to_vec::<f32>().unwrap(), [2.0, 3.0]);
    {
        let _off = no_grad();
        w.set(&(&w - &w.grad().unwrap() * 0.5)).unwrap();
        w.set_slice(1, 9).unwrap();
    }
    assert!(w.is_parameter());
    assert_eq!(w.to_vec::<f32>().unwrap(), [0.0, 9.0]);
    w.zero_grad();
    sum(&w.square().unwrap()).backward_all().unwrap();
    assert_eq!(gradient(&w), [0.0, 18.0]);
}

#[test]
fn a_value_of_another_shape_or_dtype_is_refused() {
    let _engine = own_engine();
    let x = Tensor::from([1.0f32, 2.0]);
    let refused = [
        (
            x.set(&Tensor::ones([1]).unwrap()),
            "set: a tensor of shape (2,) can't be set to one of shape (1,); expand or reshape the \
             value (at ",
        ),
        (
            x.set(&Tensor::from([1i32, 2])),
            "set: a tensor of f32 can't be set to one of i32; cast the value (at ",
        ),
        (
            x.set_slice((0, 0), 1),
            "set_slice: 2 slices of shape (2,), which has 1 axes (at ",
        ),
    ];
    for (result, text) in refused {
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

/// A name of the same leaf is no parameter, whatever happens to it.
#[test]
fn what_shares_the_leaf_of_a_parameter_is_updated_alone() {
    let _engine = own_engine();
    let w = parameter(&[2.0, 3.0], &[2]);
    let (same, set) = (w.reshape([2]).unwrap(), Tensor::ones([2]).unwrap());
    set.set(&w).unwrap();
    assert_eq!((same.uop(), set.uop()), (w.uop(), w.uop()));
    let loss = sum(&(&w * &set));
    same.assign(0.0f32).unwrap();
    set.assign(0.0f32).unwrap();
    loss.backward_all().unwrap();
    assert_eq!(gradient(&w), [4.0, 6.0]);
}

// ---- copy ----

#[test]
fn copies_are_tensors_of_their_own() {
    let _engine = own_engine();
    let w = parameter(&[2.0, 3.0], &[2]);
    sum(&w).backward_all().unwrap();
    let v = w.copy().unwrap();
    assert!(v.is_parameter() && !v.is(&w) && v.uop() != w.uop());
    assert!(v.grad().is_none());
    // Each has a gradient of its own, and an update of one is none of the other.
    w.zero_grad();
    let loss = sum(&(&w * &v * 2));
    w.assign(0.0f32).unwrap();
    loss.backward(&[&v]).unwrap();
    assert_eq!(gradient(&v), [4.0, 6.0]);
    assert!(w.grad().is_none());
    assert_eq!(v.to_vec::<f32>().unwrap(), [2.0, 3.0]);

    // Others share the graph, and what was computed.
    for computed in [false, true] {
        let y = &v * 3;
        if computed {
            y.realize().unwrap();
        }
        let copy = y.copy().unwrap();
        assert!(copy.uop() == y.uop() && !copy.is(&y));
        y.set(&Tensor::zeros([2]).unwrap()).unwrap();
        assert_eq!(copy.to_vec::<f32>().unwrap(), [6.0, 9.0]);
        assert!(copy.needs_grad() && !copy.is_parameter());
        v.zero_grad();
        sum(&copy).backward_all().unwrap();
        assert_eq!(gradient(&v), [3.0, 3.0]);
        let _off = no_grad();
        assert!(!copy.copy().unwrap().needs_grad());
        assert!(v.copy().unwrap().is_parameter());
    }
    let data = Tensor::from([1i32, 2]);
    let copy = data.copy().unwrap();
    data.set_slice(0, 5).unwrap();
    assert_eq!(copy.to_vec::<i32>().unwrap(), [1, 2]);
}

#[test]
fn a_frozen_parameter_has_no_gradients() {
    let _engine = own_engine();
    let (w, v) = (parameter(&[1.0, 2.0], &[2]), parameter(&[3.0, 4.0], &[2]));
    let before = sum(&(&w * &v));
    w.freeze().unwrap();
    w.freeze().unwrap();
    assert!(!w.needs_grad() && !w.is_parameter() && !(&w * 2).needs_grad());
    before.backward_all().unwrap();
    sum(&(&w * &v)).backward_all().unwrap();
    assert_eq!(gradient(&v), [2.0, 4.0]);
    assert!(w.grad().is_none());
    assert!(before.backward(&[&w]).is_err());
    // It can be set like any tensor, and be a parameter again.
    w.set(&(&w + 1)).unwrap();
    let w = w.requires_grad().unwrap();
    sum(&(&w * &w)).backward_all().unwrap();
    assert_eq!(gradient(&w), [4.0, 6.0]);
    let error = (&w * 2).freeze().unwrap_err().to_string();
    assert!(error.contains("detach gives a tensor"), "{error}");
}
