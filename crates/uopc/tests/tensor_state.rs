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
