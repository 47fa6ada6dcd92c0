//! Functions of tensors made from functions: each kind of derivative against a formula, nested in
//! all ways, over trees, with what can't work refused by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use uopc::compile::Engine;
use uopc::debug::Settings;
use uopc::nn::{Linear, Module};
use uopc::tensor::with_engine;
use uopc::transform::gradcheck::GradcheckOptions;
use uopc::transform::{self, Mode, flat, grad_at};
use uopc::{
    DType, Error, Result, Tensor, grad, hessian, hvp, jacfwd, jacobian, jacrev, jvp,
    value_and_grad, vjp, vmap,
};

type Pair = (Tensor, Tensor);

fn f64s(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

fn scalar(value: f64) -> Tensor {
    Tensor::from_slice(&[value], ()).unwrap()
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

#[track_caller]
fn close(found: &Tensor, wanted: &[f64]) {
    let found = values(found);
    assert_eq!(found.len(), wanted.len(), "{found:?} {wanted:?}");
    for (a, b) in found.iter().zip(wanted) {
        assert!(
            (a - b).abs() <= 1e-12 * b.abs().max(1.0),
            "{found:?} is not {wanted:?}"
        );
    }
}

// ---- nesting ----

#[test]
fn derivatives_of_the_sine_of_any_order_by_either_mode() {
    let sin = |x: &Tensor| x.sin();
    let x = 0.7f64;
    let point = scalar(x);
    let first = [x.cos(), -x.sin(), -x.cos(), x.sin()];
    let by_grad = |f: &dyn Fn(&Tensor) -> Result<Tensor>, x: &Tensor| grad(f)(x);
    let by_jvp = |f: &dyn Fn(&Tensor) -> Result<Tensor>, x: &Tensor| {
        Ok(jvp(f, x, &Tensor::full_as(DType::F64, (), 1.0)?)?.1)
    };
    type Step<'a> = &'a dyn Fn(&dyn Fn(&Tensor) -> Result<Tensor>, &Tensor) -> Result<Tensor>;
    let steps: [Step; 2] = [&by_grad, &by_jvp];
    for choice in 0..16 {
        let step = |k: usize| steps[choice >> k & 1];
        let one = |x: &Tensor| step(0)(&sin, x);
        let two = |x: &Tensor| step(1)(&one, x);
        let three = |x: &Tensor| step(2)(&two, x);
        let four = |x: &Tensor| step(3)(&three, x);
        close(&one(&point).unwrap(), &first[..1]);
        close(&two(&point).unwrap(), &first[1..2]);
        close(&three(&point).unwrap(), &first[2..3]);
        close(&four(&point).unwrap(), &first[3..]);
    }
}

#[test]
fn an_inner_derivative_does_not_see_the_outer_variable() {
    // d/dx [x * d/dy (x + y) at y = x] = d/dx x = 1, and d/dx [x * d/dy (x * y) at y = x] = 2x.
    let x = scalar(3.0);
    let sum = |x: &Tensor| {
        let outer = x.clone();
        x.mul(&grad(move |y: &Tensor| outer.add(y))(x)?)
    };
    close(&grad(sum)(&x).unwrap(), &[1.0]);
    let product = |x: &Tensor| {
        let outer = x.clone();
        x.mul(&grad(move |y: &Tensor| outer.mul(y))(x)?)
    };
    close(&grad(product)(&x).unwrap(), &[6.0]);
    let one = scalar(1.0);
    close(&jvp(product, &x, &one).unwrap().1, &[6.0]);
    let forward = |x: &Tensor| {
        let outer = x.clone();
        let inner = move |y: &Tensor| outer.mul(y);
        x.mul(&jvp(inner, x, &scalar(1.0))?.1)
    };
    close(&grad(forward)(&x).unwrap(), &[6.0]);
}

#[test]
fn a_closed_over_tensor_is_a_constant_of_the_inner_function_only() {
    let w = f64s(&[1.0, 2.0]).requires_grad().unwrap();
    // The gradient of sum(w * x^2) by x is 2 w x; that of its sum by w is 2 x.
    let x = f64s(&[3.0, 5.0]);
    let by_x = grad(|x: &Tensor| (&w * &x.square()?).sum(..))(&x).unwrap();
    assert!(by_x.needs_grad());
    close(&by_x, &[6.0, 20.0]);
    by_x.sum(..).unwrap().backward(&[&w]).unwrap();
    close(&w.grad().unwrap(), &[6.0, 10.0]);
}

#[test]
fn gradients_of_maps_and_maps_of_gradients_agree() {
    let f = |x: &Tensor| (x.exp()? * x.sin()?).sum(..);
    let rows = f64s(&[0.1, 0.2, 0.3, -0.4, 0.5, -0.6])
        .reshape([3, 2])
        .unwrap();
    let each = vmap(grad(f), 0, 0)(&rows).unwrap();
    let all = grad(|rows: &Tensor| vmap(f, 0, 0)(rows)?.sum(..))(&rows).unwrap();
    assert_eq!(values(&each), values(&all));
    for k in 0..3 {
        let row = rows.get(k).unwrap();
        assert_eq!(
            values(&grad(f)(&row).unwrap()),
            values(&each.get(k).unwrap())
        );
    }
    // And within each other: a map over columns of a map over rows.
    let twice = vmap(|x: &Tensor| vmap(|x: &Tensor| x.square(), 0, 0)(x), 1, 1)(&rows).unwrap();
    assert_eq!(values(&twice), values(&rows.square().unwrap()));
}

#[test]
fn gradients_for_each_example() {
    Tensor::manual_seed(3);
    let layer = Linear::new(3, 2).unwrap();
    let loss = |(layer, x): &(Linear, Tensor)| layer.forward(x)?.square()?.sum(..);
    let by_layer = |(layer, x): &(Linear, Tensor)| {
        let x = x.clone();
        grad(move |layer: &Linear| loss(&(layer.clone(), x.clone())))(layer)
    };
    let xs = Tensor::randn([5, 3]).unwrap();
    xs.realize().unwrap();
    let args = (layer.clone(), xs.clone());
    let each: Linear = vmap(by_layer, [None, None, Some(0)], 0)(&args).unwrap();
    assert_eq!(each.weight.shape()[..], [5, 3, 2]);
    for k in 0..5 {
        let x = xs.get(k).unwrap();
        layer.parameters().iter().for_each(Tensor::zero_grad);
        loss(&(layer.clone(), x))
            .unwrap()
            .backward(&layer.parameters())
            .unwrap();
        let wanted = layer.weight.grad().unwrap().to_vec::<f32>().unwrap();
        let found = each.weight.get(k).unwrap().to_vec::<f32>().unwrap();
        for (a, b) in found.iter().zip(&wanted) {
            assert!(
                (a - b).abs() <= 1e-5 * b.abs().max(1.0),
                "{found:?} {wanted:?}"
            );
        }
    }
}

// ---- trees ----

#[test]
fn trees_of_all_kinds_come_back_in_their_own_structure() {
    let (a, b) = (f64s(&[1.0, 2.0]), scalar(3.0));
    type Nested = (
        Vec<Tensor>,
        BTreeMap<String, (Tensor, [Tensor; 1])>,
        Option<Tensor>,
        (),
    );
    let args: Nested = (
        vec![a.clone(), b.clone()],
        BTreeMap::from([("w".to_string(), (a.clone(), [b.clone()]))]),
        None,
        (),
    );
    let f = |(list, map, _, ()): &Nested| {
        let (w, [s]) = &map["w"];
        (&(&list[0] * w) * &(&list[1] * s)).sum(..)
    };
    let (value, g) = value_and_grad(f)(&args).unwrap();
    close(&value, &[5.0 * 9.0]);
    close(&g.0[0], &[9.0, 18.0]);
    close(&g.0[1], &[15.0]);
    close(&g.1["w"].0, &[9.0, 18.0]);
    close(&g.1["w"].1[0], &[15.0]);
    assert!(g.2.is_none());
    let some = grad_at(f, &[3, 0])(&args).unwrap();
    close(&some[0], &[15.0]);
    close(&some[1], &[9.0, 18.0]);
    let beyond = grad_at(f, &[4])(&args).expect_err("there are four");
    assert!(
        beyond.to_string().contains("argnums names tensor 4"),
        "{beyond}"
    );
}

#[test]
fn what_is_no_float_is_passed_on() {
    let index = Tensor::from([1i32, 0]);
    let f = |(x, index): &Pair| x.take(index)?.square()?.sum(..);
    let x = f64s(&[1.0, 2.0, 3.0]);
    let (by_x, by_index) = grad(f)(&(x.clone(), index.clone())).unwrap();
    close(&by_x, &[2.0, 4.0, 0.0]);
    assert_eq!(by_index.to_vec::<i32>().unwrap(), [0, 0]);
    let tangents = (x.clone(), index.clone());
    let (_, pushed) = jvp(f, &(x, index), &tangents).unwrap();
    close(&pushed, &[2.0 + 8.0]);
}

// ---- values inside ----

#[test]
fn a_function_may_look_at_its_values_except_inside_a_map() {
    let f = |x: &Tensor| match x.sum(..)?.item()? > 0.0 {
        true => (x * x).sum(..),
        false => x.sum(..),
    };
    let x = f64s(&[1.0, 2.0]);
    close(&grad(f)(&x).unwrap(), &[2.0, 4.0]);
    close(&grad(f)(&-x.clone()).unwrap(), &[1.0, 1.0]);
    // In a function within a function, too, whose argument depends on the outer one.
    let nested = |x: &Tensor| grad(f)(&(x * 2.0))?.sum(..);
    close(&grad(nested)(&x).unwrap(), &[4.0, 4.0]);
    let refused = vmap(f, 0, 0)(&x.reshape([1, 2]).unwrap()).expect_err("many at once");
    let text = refused.to_string();
    assert!(matches!(refused, Error::Unsupported { .. }), "{text}");
    assert!(
        text.contains("inside vmap") && text.contains("where instead of if"),
        "{text}"
    );
}

#[test]
fn a_value_computed_inside_keeps_its_gradient() {
    let f = |x: &Tensor| {
        let y = x.exp()?;
        assert_eq!(y.to_vec::<f64>()?[0], 1.0);
        (&y * &y).sum(..)
    };
    close(
        &grad(f)(&f64s(&[0.0, 0.5])).unwrap(),
        &[2.0, 2.0 * 1f64.exp()],
    );
}

// ---- axes ----

#[test]
fn maps_take_and_give_any_axis() {
    let x = f64s(&(0..24).map(f64::from).collect::<Vec<_>>())
        .reshape([2, 3, 4])
        .unwrap();
    let flip = |x: &Tensor| x.transpose();
    for from in [-3isize, -2, -1, 0, 1, 2] {
        for to in [-3isize, -2, -1, 0, 1, 2] {
            let found = vmap(flip, from, to)(&x).unwrap();
            let n = x.shape()[from.rem_euclid(3) as usize];
            assert_eq!(found.shape()[to.rem_euclid(3) as usize], n);
            for k in 0..n {
                let slice = |t: &Tensor, axis: isize| {
                    let order = match axis.rem_euclid(3) {
                        0 => [0, 1, 2],
                        1 => [1, 0, 2],
                        _ => [2, 0, 1],
                    };
                    values(&t.permute(order).unwrap().get(k as i64).unwrap())
                };
                let single = x.permute(match from.rem_euclid(3) {
                    0 => [0, 1, 2],
                    1 => [1, 0, 2],
                    _ => [2, 0, 1],
                });
                let single = single.unwrap().get(k as i64).unwrap().transpose().unwrap();
                assert_eq!(slice(&found, to), values(&single), "{from} {to} {k}");
            }
        }
    }
}

#[test]
fn maps_refuse_what_does_not_fit() {
    let add = |(a, b): &Pair| a.add(b);
    let (a, b) = (f64s(&[1.0, 2.0]), f64s(&[1.0, 2.0, 3.0]));
    let refused = |axes: [Option<isize>; 2], out: Option<isize>, wanted: &str| {
        let out = transform::MapAxes::All(out);
        let e = vmap(add, axes, out)(&(a.clone(), b.clone())).expect_err("it fits");
        assert!(e.to_string().contains(wanted), "{e}");
    };
    refused(
        [Some(0), Some(0)],
        Some(0),
        "over 2 slices and argument 1, of shape (3,), over 3",
    );
    refused([None, None], Some(0), "no argument is mapped");
    refused(
        [Some(1), None],
        Some(0),
        "in_axes 1 for argument 0 of shape (2,)",
    );
    refused([Some(0), None], None, "result 0 differs between slices");
    refused([Some(0), None], Some(5), "out_axes 5 for result 0");
    let shared = vmap(
        |(_, b): &Pair| b.square(),
        [Some(0), None],
        transform::MapAxes::All(None),
    );
    close(&shared(&(a.clone(), b.clone())).unwrap(), &[1.0, 4.0, 9.0]);
    let repeated = vmap(|(_, b): &Pair| b.square(), [Some(0), None], 0)(&(a, b)).unwrap();
    assert_eq!(repeated.shape()[..], [2, 3]);
}

#[test]
fn a_map_over_nothing_gives_nothing() {
    let none = Tensor::from_slice::<f64>(&[], [0, 2]).unwrap();
    let found = vmap(grad(|x: &Tensor| x.exp()?.sum(..)), 0, 0)(&none).unwrap();
    assert_eq!(found.shape()[..], [0, 2]);
    assert!(values(&found).is_empty());
}

// ---- Jacobians ----

#[test]
fn jacobians_agree_in_all_modes() {
    let x = f64s(&[0.3, -0.2, 0.9]);
    let m = f64s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
        .reshape([2, 3])
        .unwrap();
    let f = |x: &Tensor| m.matmul(&x.sin()?);
    let wanted: Vec<f64> = values(&m)
        .iter()
        .zip(values(&x).iter().cycle())
        .map(|(m, x)| m * x.cos())
        .collect();
    for found in [jacfwd(f)(&x), jacrev(f)(&x), jacobian(f)(&x)] {
        let found = found.unwrap();
        assert_eq!(found.shape()[..], [2, 3]);
        close(&found, &wanted);
    }
    let own = |x: &Tensor| (x.exp()? * x).reshape([3, 1]);
    for found in [jacfwd(own)(&x), jacrev(own)(&x), jacobian(own)(&x)] {
        let found = found.unwrap();
        assert_eq!(found.shape()[..], [3, 1, 3]);
        let d: Vec<f64> = values(&x).iter().map(|x| x.exp() * (1.0 + x)).collect();
        close(&found, &[d[0], 0.0, 0.0, 0.0, d[1], 0.0, 0.0, 0.0, d[2]]);
    }
    // Independent of the argument altogether.
    let constant = |_: &Tensor| m.sum(..);
    for found in [
        jacfwd(constant)(&x),
        jacrev(constant)(&x),
        jacobian(constant)(&x),
    ] {
        close(&found.unwrap(), &[0.0; 3]);
    }
}

#[test]
fn a_diagonal_jacobian_takes_one_pass() {
    // The graph of the derivative does not grow with a basis: no node but the last ones has n * n
    // elements.
    let x = Tensor::ones([50]).unwrap();
    let f = |x: &Tensor| x.sin()?.exp();
    let j = jacobian(f)(&x).unwrap();
    let nodes = uopc::ir::visit::toposort(&[j.uop()]);
    let is_costly = |u: &uopc::ir::UOp| matches!(u.op().mnemonic(), "exp" | "sin");
    assert!(
        nodes
            .iter()
            .filter(|u| is_costly(u))
            .all(|u| u.shape().numel() == 50)
    );
    let full = jacfwd(f)(&x).unwrap();
    assert_eq!(j.to_vec::<f32>().unwrap(), full.to_vec::<f32>().unwrap());
}

#[test]
fn jacobians_of_several_results_and_arguments() {
    let f = |args: &[Tensor]| Ok(vec![args[0].mul(&args[1])?, args[1].sum(..)?]);
    let args = [scalar(2.0), f64s(&[3.0, 4.0])];
    for mode in [Mode::Forward, Mode::Reverse, Mode::Best] {
        let blocks = flat::jacobian(&f, &args, &[0, 1], mode).unwrap();
        close(&blocks[0][0], &[3.0, 4.0]);
        close(&blocks[0][1], &[2.0, 0.0, 0.0, 2.0]);
        close(&blocks[1][0], &[0.0]);
        close(&blocks[1][1], &[1.0, 1.0]);
        // The second result comes along.
        let (blocks, aux) = flat::jacobian_with_aux(&f, &args, &[1], mode, &|n| Ok(n - 1)).unwrap();
        assert_eq!((blocks.len(), aux.len()), (1, 1));
        close(&blocks[0][0], &[2.0, 0.0, 0.0, 2.0]);
        close(&aux[0], &[7.0]);
        assert!(flat::jacobian_with_aux(&f, &args, &[1], mode, &|n| Ok(n + 1)).is_err());
    }
}

#[test]
fn hessians_and_their_products() {
    // f(x) = sum(x)^3: the Hessian is 6 sum(x) everywhere.
    let f = |x: &Tensor| {
        let s = x.sum(..)?;
        s.square()?.mul(&s)
    };
    let x = f64s(&[1.0, 0.5]);
    close(&hessian(f)(&x).unwrap(), &[9.0; 4]);
    close(&hvp(f, &x, &f64s(&[1.0, -3.0])).unwrap(), &[-18.0; 2]);
    let pair = |(a, b): &Pair| (a * b).sum(..);
    let args = (f64s(&[1.0, 2.0]), f64s(&[3.0, 4.0]));
    let v = (f64s(&[1.0, 0.0]), f64s(&[0.0, 1.0]));
    let (by_a, by_b) = hvp(pair, &args, &v).unwrap();
    close(&by_a, &[0.0, 1.0]);
    close(&by_b, &[1.0, 0.0]);
}

// ---- checks ----

#[test]
fn gradients_that_are_right_pass_the_check() {
    let (x, w) = (Tensor::from([0.5f32, -1.0, 2.0]), f64s(&[0.1, 0.2, 3.0]));
    let f = |(x, w): &Pair| {
        let y = x.cast(DType::F64)?.mul(w)?.sin()?.exp()?;
        Ok((y.sum(..)?, y.div(&y.detach()?)?))
    };
    let report = uopc::gradcheck(f, &(x, w)).unwrap();
    assert!(report.passed(), "{report}");
    assert_eq!(report.comparisons.len(), 8, "{report}");
    let worst = |c: &transform::gradcheck::Comparison| c.error / c.wanted.abs();
    assert!(
        report.comparisons.iter().map(worst).fold(0.0, f64::max) < 1e-7,
        "{report}"
    );
}

#[test]
fn kinks_are_told_from_errors() {
    let relu = |x: &Tensor| x.relu()?.sum(..);
    let away = uopc::gradcheck(relu, &f64s(&[1.0, -1.0])).unwrap();
    assert!(away.passed(), "{away}");
    let at = uopc::gradcheck(|x: &Tensor| x.abs()?.sqrt()?.sum(..), &f64s(&[0.0])).unwrap();
    assert!(!at.passed());
    assert!(at.to_string().contains("unclear"), "{at}");
    // A corner looks the same from any distance, and so do its quotients: half of either slope.
    let corner = uopc::gradcheck(relu, &f64s(&[1.0, 0.0])).unwrap();
    assert!(corner.to_string().contains("unclear"), "{corner}");
    assert!(!corner.to_string().contains("DIFFER"), "{corner}");
    // It is no excuse for a curve with a rule that is wrong.
    let wrong = transform::CustomFunction::new("wrong", |x| x[0].square())
        .vjp(|x, _, g| Ok(vec![Some(g.mul(&x[0])?)]));
    let report = uopc::gradcheck(|x: &Tensor| wrong.call(&[x]), &f64s(&[1.0, 1e-3])).unwrap();
    assert!(report.to_string().contains("DIFFER"), "{report}");
}

#[test]
fn options_with_which_nothing_is_checked_are_refused() {
    let f = |x: &[Tensor]| Ok(vec![x[0].square()?]);
    let refused = |options: GradcheckOptions, wanted: &str| {
        let e = transform::gradcheck::gradcheck(&f, &[f64s(&[1.0])], &options);
        let e = e.expect_err("out of range").to_string();
        assert!(e.starts_with("gradcheck: ") && e.contains(wanted), "{e}");
    };
    let good = GradcheckOptions::default();
    for x in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let step = GradcheckOptions { step: x, ..good };
        refused(step, "the step is");
        let tolerance = GradcheckOptions {
            tolerance: x,
            ..good
        };
        refused(tolerance, "the tolerance is");
    }
    let none = GradcheckOptions {
        directions: 0,
        ..good
    };
    refused(none, "use one at least");
}

// ---- errors ----

#[test]
fn what_has_no_gradient_is_refused_by_name() {
    let x = f64s(&[1.0, 2.0]);
    let e = grad(|x: &Tensor| x.square())(&x).expect_err("no scalar");
    assert!(
        e.to_string()
            .contains("scalar of floats, not f64 of shape (2,)"),
        "{e}"
    );
    let (_, pull) = vjp(|x: &Tensor| x.square(), &x).unwrap();
    let e = pull(&scalar(1.0)).expect_err("another shape");
    assert!(
        e.to_string().contains("cotangent 0 has shape (), not (2,)"),
        "{e}"
    );
    let e = jvp(|x: &Tensor| x.square(), &x, &Tensor::ones([2]).unwrap()).expect_err("f32");
    assert!(e.to_string().contains("tangent 0 is f32, not f64"), "{e}");
    let e = jacobian(|x: &Tensor| x.cast(DType::I32))(&x).expect_err("an integer");
    assert!(e.to_string().contains("is no float"), "{e}");
    let e = jacobian(|x: &Tensor| x.cast(DType::F32))(&Tensor::from([1i32])).err();
    assert!(
        e.expect("an integer")
            .to_string()
            .contains("argument 0, i32")
    );
}

// ---- plans ----

#[test]
fn a_function_called_again_makes_no_new_plan() {
    let engine = Arc::new(Engine::new(Settings::default()).unwrap());
    with_engine(&engine, || {
        let f = |x: &Tensor| match x.sum(..)?.item()? > 0.0 {
            true => (x.exp()? * x).sum(..),
            false => x.sum(..),
        };
        let mut counts = vec![];
        for k in 0..4 {
            let x = f64s(&[f64::from(k), 1.0]);
            values(
                &vmap(grad(|x: &Tensor| x.exp()?.sum(..)), 0, 0)(&x.reshape([1, 2]).unwrap())
                    .unwrap(),
            );
            values(&grad(f)(&x).unwrap());
            counts.push(engine.stats().plan_misses);
        }
        assert_eq!(counts[1], counts[3], "{counts:?}");
    });
}

#[test]
fn derivatives_do_not_ask_whether_the_caller_keeps_a_history() {
    let x = Tensor::from([1.0f64, 2.0]);
    let w = Tensor::from([3.0f64, 4.0]).requires_grad().unwrap();
    let f = |x: &Tensor| (x * x * &w).sum(..);
    let off = uopc::tensor::no_grad();
    let g = grad(f)(&x).unwrap();
    close(&g, &[6.0, 16.0]);
    assert!(!g.needs_grad());
    close(
        &vmap(f, 0, 0)(&x.reshape([2, 1]).unwrap()).unwrap(),
        &[7.0, 28.0],
    );
    // What the function itself switches off is off.
    let half = |x: &Tensor| {
        let fixed = {
            let _off = uopc::tensor::no_grad();
            x.square()?
        };
        (fixed * x).sum(..)
    };
    close(&grad(half)(&x).unwrap(), &[1.0, 4.0]);
    drop(off);
    let g = grad(f)(&x).unwrap();
    assert!(g.needs_grad());
}

#[test]
fn a_pullback_takes_cotangents_of_the_first_results_alone() {
    let x = Tensor::from([1.0f64, 2.0]);
    let f = |x: &[Tensor]| Ok(vec![x[0].square()?, x[0].exp()?]);
    let (_, pull) = transform::flat::vjp(&f, &[x], &[0]).unwrap();
    let g = Tensor::from([1.0f64, 10.0]);
    let found = pull.call_first(std::slice::from_ref(&g)).unwrap();
    close(&found[0], &[2.0, 40.0]);
    assert!(pull.call(std::slice::from_ref(&g)).is_err());
    assert!(pull.call_first(&[g.clone(), g.clone(), g]).is_err());
}

#[test]
fn a_pullback_belongs_to_the_primals_as_they_were() {
    let cube = |x: &Tensor| x.square()?.mul(x);
    let plain = f64s(&[1.0, 2.0]);
    for x in [
        plain.clone(),
        plain.add(0.0).unwrap().requires_grad().unwrap(),
    ] {
        let (_, pull) = vjp(cube, &x).unwrap();
        x.assign(f64s(&[10.0, 20.0])).unwrap();
        close(&pull(&f64s(&[1.0, 1.0])).unwrap(), &[3.0, 12.0]);
    }
}

#[test]
fn the_error_of_quotients_of_a_graph_is_shaped_like_a_u() {
    use uopc::ir::{DType, UOp, op::ReduceOp};
    let x = UOp::slot(0, DType::F32, 3);
    let root = x.exp().unwrap().reduce(ReduceOp::Add, 1).unwrap();
    let steps: Vec<f64> = (0..8).map(|k| 10f64.powi(-k)).collect();
    let at = [(x, vec![0.5, -1.0, 2.0])];
    let curve = transform::gradcheck::graph_error_by_step(&root, &at, &steps, 1).unwrap();
    let least = curve.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
    assert!(least < 1e-3, "{curve:?}");
    assert!(
        curve[0].1 > 30.0 * least && curve[7].1 > 30.0 * least,
        "{curve:?}"
    );
}
