//! Functions with rules of their own: the value is the body's, the derivatives are the rules', in
//! all modes and orders and over batches; what is wrong with a rule is said when it is used.

use std::sync::Arc;

use uopc::compile::Engine;
use uopc::debug::Settings;
use uopc::tensor::with_engine;
use uopc::transform::{
    CustomFunction, clip_gradient, gradient_hook, scale_gradient, stop_gradient, straight_through,
};
use uopc::{DType, Result, Tensor, grad, hessian, hvp, jacfwd, jacobian, jacrev, jvp, vmap};

fn f64s(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
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

/// x^3, whose derivative by its rule is 30 x^2: ten times too large, so that a derivative shows
/// where it came from.
fn cube<'f>() -> CustomFunction<'f> {
    CustomFunction::new("cube", |x| x[0].square()?.mul(&x[0]))
}

fn by_vjp<'f>() -> CustomFunction<'f> {
    cube().vjp(|x, _, g| Ok(vec![Some(g.mul(&x[0].square()?.mul(30.0)?)?)]))
}

fn by_jvp<'f>() -> CustomFunction<'f> {
    cube().jvp(|x, _, t| t[0].mul(&x[0].square()?.mul(30.0)?))
}

#[test]
fn each_rule_gives_all_derivatives() {
    let x = f64s(&[1.0, -2.0, 0.5]);
    let one = f64s(&[1.0; 3]);
    for function in [by_vjp(), by_jvp()] {
        let f = |x: &Tensor| function.call(&[x]);
        let sum = |x: &Tensor| f(x)?.sum(..);
        close(&f(&x).unwrap(), &[1.0, -8.0, 0.125]);
        let first = [30.0, 120.0, 7.5];
        close(&grad(sum)(&x).unwrap(), &first);
        close(&jvp(f, &x, &one).unwrap().1, &first);
        // The rule is differentiated as it stands: 60 x.
        let second = [60.0, -120.0, 30.0];
        close(
            &grad(|x: &Tensor| grad(sum)(x)?.sum(..))(&x).unwrap(),
            &second,
        );
        close(&hvp(sum, &x, &one).unwrap(), &second);
        let diagonal = [60.0, 0.0, 0.0, 0.0, -120.0, 0.0, 0.0, 0.0, 30.0];
        close(&hessian(sum)(&x).unwrap(), &diagonal);
        for j in [jacfwd(f)(&x), jacrev(f)(&x), jacobian(f)(&x)] {
            close(
                &j.unwrap(),
                &[30.0, 0.0, 0.0, 0.0, 120.0, 0.0, 0.0, 0.0, 7.5],
            );
        }
    }
}

#[test]
fn over_a_batch_an_input_that_is_shared_collects_the_cotangents() {
    // f(w, x) = w . x with the gradient by w doubled.
    let dot = |both: bool| {
        let f = CustomFunction::new("dot", |a: &[Tensor]| a[0].mul(&a[1])?.sum(..));
        let f = f.vjp(|a, _, g| {
            let by_w = g.expand([2])?.mul(&a[1])?.mul(2.0)?;
            Ok(vec![Some(by_w), Some(g.expand([2])?.mul(&a[0])?)])
        });
        match both {
            true => f.jvp(|a, _, t| {
                let by_w = t[0].mul(&a[1])?.mul(2.0)?.sum(..)?;
                by_w.add(&t[1].mul(&a[0])?.sum(..)?)
            }),
            false => f,
        }
    };
    let w = f64s(&[1.0, 2.0]);
    let rows = f64s(&[3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        .reshape([3, 2])
        .unwrap();
    for both in [false, true] {
        let function = dot(both);
        let f = |(w, x): &(Tensor, Tensor)| function.call(&[w, x]);
        let each = vmap(f, [None, Some(0)], 0);
        let args = (w.clone(), rows.clone());
        close(&each(&args).unwrap(), &[11.0, 17.0, 23.0]);
        let (by_w, by_x) = grad(|args: &(Tensor, Tensor)| each(args)?.sum(..))(&args).unwrap();
        close(&by_w, &[30.0, 36.0]);
        close(&by_x, &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
        let tangents = (f64s(&[1.0, 0.0]), rows.zeros_like().unwrap());
        close(&jvp(&each, &args, &tangents).unwrap().1, &[6.0, 10.0, 14.0]);
        let by_both = vmap(grad(f), [None, Some(0)], 0)(&args).unwrap();
        close(&by_both.0, &[6.0, 8.0, 10.0, 12.0, 14.0, 16.0]);
    }
}

#[test]
fn an_input_without_cotangent_and_one_of_integers() {
    let pick = CustomFunction::new("pick", |a: &[Tensor]| {
        let chosen = a[1].eq(1)?;
        chosen.where_(&a[0], &a[2])
    });
    let pick = pick.vjp(|a, _, g| Ok(vec![Some(g.mul(&a[1].cast(DType::F64)?)?), None, None]));
    let mask = Tensor::from([1i32, 0]);
    let f = |(a, c): &(Tensor, Tensor)| pick.call(&[a, &mask, c])?.sum(..);
    let args = (f64s(&[2.0, 3.0]), f64s(&[5.0, 7.0]));
    close(&f(&args).unwrap(), &[9.0]);
    let (a, c) = grad(f)(&args).unwrap();
    close(&a, &[1.0, 0.0]);
    close(&c, &[0.0, 0.0]);
    close(&jvp(f, &args, &args).unwrap().1, &[2.0]);
}

#[test]
fn estimators_and_hooks() {
    let x = f64s(&[0.3, 1.7]);
    let round = |x: &Tensor| straight_through(|x| x.trunc(), x);
    close(&round(&x).unwrap(), &[0.0, 1.0]);
    close(&jacobian(round)(&x).unwrap(), &[1.0, 0.0, 0.0, 1.0]);
    let scaled = |x: &Tensor| scale_gradient(&x.square()?, -2.0)?.sum(..);
    close(&grad(scaled)(&x).unwrap(), &[-1.2, -6.8]);
    let clipped = |x: &Tensor| clip_gradient(x, -1.0, 1.0)?.square()?.sum(..);
    close(&grad(clipped)(&x).unwrap(), &[0.6, 1.0]);
    // Tangents pass hooks, of which no forward rule could follow.
    close(&jvp(clipped, &x, &f64s(&[1.0, 1.0])).unwrap().1, &[4.0]);
    let stopped = |x: &Tensor| {
        let (a, b) = stop_gradient(&(x.clone(), x.square()?))?;
        x.mul(&a)?.mul(&b)?.sum(..)
    };
    close(&grad(stopped)(&x).unwrap(), &[0.027, 1.7f64.powi(3)]);
    let backwards = |x: &Tensor| {
        gradient_hook(x, |g| g.flip([0]))?
            .mul(f64s(&[1.0, 2.0]))?
            .sum(..)
    };
    close(&grad(backwards)(&x).unwrap(), &[2.0, 1.0]);
}

#[test]
fn parameters_get_gradients_through_rules() {
    let w = f64s(&[2.0]).requires_grad().unwrap();
    let function = by_vjp();
    let y = function.call(&[&w]).unwrap();
    assert!(y.needs_grad());
    let loss = y.sum(..).unwrap();
    assert_eq!(loss.item().unwrap(), 8.0);
    loss.backward(&[&w]).unwrap();
    close(&w.grad().unwrap(), &[120.0]);
}

#[test]
fn values_cost_nothing_and_plans_are_found_again() {
    let engine = Arc::new(Engine::new(Settings::default()).unwrap());
    with_engine(&engine, || {
        let mut plans = vec![];
        for k in 0..3 {
            let x = f64s(&[f64::from(k), 1.0]);
            let f = by_vjp();
            values(&f.call(&[&x]).unwrap());
            values(&grad(|x: &Tensor| f.call(&[x])?.sum(..))(&x).unwrap());
            plans.push(engine.stats().plan_misses);
        }
        assert_eq!(plans, [2, 2, 2]);
    });
    let x = f64s(&[1.0]);
    let engine = Engine::new(Settings::default()).unwrap();
    let plain = cube_of(&x).unwrap().uop();
    let ruled = by_vjp().call(&[&x]).unwrap().uop();
    assert_eq!(
        engine.listing(&[plain]).unwrap(),
        engine.listing(&[ruled]).unwrap()
    );
}

fn cube_of(x: &Tensor) -> Result<Tensor> {
    x.square()?.mul(x)
}

#[test]
fn rules_are_compared_with_each_other() {
    let right = by_vjp().jvp(|x, _, t| t[0].mul(&x[0].square()?.mul(30.0)?));
    let (forward, reverse) = right.check(&[f64s(&[1.0, -2.0])], 1e-12).unwrap();
    assert!((forward - reverse).abs() < 1e-12 && forward != 0.0);
    let wrong = by_vjp().jvp(|x, _, t| t[0].mul(&x[0].square()?.mul(3.0)?));
    let e = wrong
        .check(&[f64s(&[1.0, -2.0])], 1e-6)
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("cube has rules that contradict each other"),
        "{e}"
    );
    let e = by_vjp()
        .check(&[f64s(&[1.0])], 1e-6)
        .unwrap_err()
        .to_string();
    assert!(e.contains("needs both rules"), "{e}");
}

#[test]
fn what_is_wrong_with_a_rule_is_said() {
    let x = f64s(&[1.0, 2.0]);
    let said = |f: CustomFunction, wanted: &str| {
        let e = f.call(&[&x]).expect_err("it is wrong").to_string();
        assert!(e.contains(wanted), "{e}");
    };
    said(cube(), "the custom function cube has no rule");
    said(
        cube().vjp(|_, _, _| Ok(vec![])),
        "the vjp of cube gives 0 cotangents for 1 inputs",
    );
    said(
        cube().vjp(|_, _, g| Ok(vec![Some(g.sum(..)?)])),
        "cotangent 0 has shape (), not (2,)",
    );
    said(
        cube().jvp(|_, _, t| t[0].cast(DType::F32)),
        "tangent 0 is f32, not f64",
    );
    said(
        cube().vjp(|_, _, g| Ok(vec![Some(g.square()?)])),
        "has a vjp that is not linear, so no jvp follows from it; give both",
    );
    said(
        CustomFunction::new("whole", |x| x[0].cast(DType::I32)).vjp(|_, _, _| Ok(vec![None])),
        "returns i32; only floats have derivatives",
    );
    // A rule that reads an argument by another way than as an input.
    let f = |x: &Tensor| {
        let outer = x.clone();
        cube()
            .vjp(move |_, _, g| Ok(vec![Some(g.mul(&outer)?)]))
            .call(&[x])?
            .sum(..)
    };
    let e = grad(f)(&x).expect_err("it is refused").to_string();
    assert!(e.contains("make it an input of the custom function"), "{e}");
}

#[test]
fn a_rule_that_adds_something_is_not_transposed() {
    let x = f64s(&[1.0, 2.0]);
    let refused = |f: CustomFunction, wanted: &str| {
        let e = f.call(&[&x]).expect_err("it is not linear").to_string();
        assert!(e.contains(wanted), "{e}");
    };
    let forward = "has a vjp that is not linear, so no jvp follows";
    let reverse = "has a jvp that is not linear, so no vjp follows";
    let ones = f64s(&[1.0, 1.0]);
    refused(cube().vjp(|_, _, g| Ok(vec![Some(g.add(1.0)?)])), forward);
    refused(
        cube().vjp(|x, _, g| Ok(vec![Some(g.mul(x[0].cos()?)?.add(&x[0])?)])),
        forward,
    );
    refused(
        cube().vjp(|x, _, g| Ok(vec![Some(x[0].gt(0.0)?.where_(g, &x[0])?)])),
        forward,
    );
    // Tangents that were forgotten.
    refused(cube().jvp(|_, y, _| Ok(y.clone())), reverse);
    refused(cube().jvp(|_, _, _| Ok(ones.clone())), reverse);
    refused(cube().jvp(|x, _, t| t[0].add(x[0].exp()?)), reverse);
    // Zeros may be written in any way.
    let zeros = f64s(&[0.0, 0.0]);
    let written: [Vjp; 6] = [
        |_, z, _| Ok(z.clone()),
        |_, _, g| g.mul(0.0),
        |x, _, g| x.gt(0.0)?.where_(g, 0.0),
        |x, z, g| x.gt(0.0)?.where_(g, &x.mul(z)?),
        |x, _, g| g.add(&x.sub(x)?),
        |x, z, g| g.mul(x)?.add(&z.sin()?)?.sub(&z.neg()?),
    ];
    for rule in written {
        let f = cube().vjp(|x, _, g| Ok(vec![Some(rule(&x[0], &zeros, g)?)]));
        f.call(&[&x]).unwrap();
    }
}

type Vjp = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;

#[test]
fn rules_are_checked_in_f64_whatever_they_are_written_for() {
    let x = Tensor::from([0.5f32, -1.0, 2.0]);
    let sine = |slope: f64| {
        CustomFunction::new("sine", |x: &[Tensor]| x[0].sin())
            .vjp(move |x, _, g| Ok(vec![Some(g.mul(x[0].cos()?)?.mul(slope)?)]))
    };
    let right = sine(1.0);
    let report = uopc::gradcheck(|x: &Tensor| right.call(&[x]), &x).unwrap();
    assert!(report.passed(), "{report}");
    let wrong = sine(1.001);
    let report = uopc::gradcheck(|x: &Tensor| wrong.call(&[x]), &x).unwrap();
    assert!(report.to_string().contains("DIFFER"), "{report}");
    // Over a batch, inside of another rule, and beside integers.
    let index = Tensor::from([2i32, 0]);
    let nested = CustomFunction::new("nested", |a: &[Tensor]| a[0].take(&a[1])?.exp()).vjp(
        |a: &[Tensor], _, g| {
            let inner = CustomFunction::new("inner", |x: &[Tensor]| x[0].exp())
                .vjp(|x, _, g| Ok(vec![Some(g.mul(x[0].exp()?)?)]));
            let slope = inner.call(&[a[0].take(&a[1])?])?;
            Ok(vec![Some(g.mul(&slope)?.scatter_add(&a[1], 3)?), None])
        },
    );
    let f = |x: &Tensor| vmap(|x: &Tensor| nested.call(&[x, &index]), 0, 0)(&x.reshape([1, 3])?);
    let report = uopc::gradcheck(f, &x).unwrap();
    assert!(report.passed(), "{report}");
}

#[test]
fn an_input_that_its_rule_leaves_out_is_a_cut() {
    let half = || {
        CustomFunction::new("half", |x: &[Tensor]| x[0].add(&x[1]))
            .vjp(|_, _, g| Ok(vec![Some(g.clone()), None]))
    };
    let (a, b) = (f64s(&[1.0, 2.0]), f64s(&[3.0, 4.0]));
    let f = |(a, b): &(Tensor, Tensor)| half().call(&[a, b])?.sum(..);
    let _strict = uopc::strict_gradients();
    let e = grad(f)(&(a.clone(), b.clone())).expect_err("b is cut");
    let e = e.to_string();
    assert!(
        e.contains("argument 1") && e.contains("its rule says that this input has no gradient"),
        "{e}"
    );
    // The body is no way of its own: it depends on inputs, and says nothing of derivatives.
    let loss = f(&(a.clone(), b.clone())).unwrap();
    let (open, cut) = (loss.explain_gradient(&a), loss.explain_gradient(&b));
    assert_eq!(open.unwrap().cut_count, 0);
    assert_eq!(cut.unwrap().cut_count, 1);
    // Where it reads what is no input, it is.
    let inner = a.clone();
    let f = CustomFunction::new("scaled", move |x: &[Tensor]| x[0].mul(&inner))
        .vjp(|_, _, g| Ok(vec![Some(g.clone())]));
    let loss = f.call(&[a.square().unwrap()]).unwrap().sum(..).unwrap();
    let explanation = loss.explain_gradient(&a).unwrap();
    assert!(explanation.reaches());
    assert!(
        explanation.cuts[0]
            .message
            .contains("make it one of the inputs"),
        "{explanation}"
    );
}

#[test]
fn values_are_not_there_yet_in_a_rule() {
    let hook = |x: &Tensor| {
        gradient_hook(x, |g| match g.sum(..)?.item()? > 0.0 {
            true => Ok(g.clone()),
            false => g.neg(),
        })
    };
    let e = hook(&f64s(&[1.0, 2.0])).expect_err("nothing comes back yet");
    let e = e.to_string();
    assert!(
        e.contains("a gradient hook") && e.contains("where instead of if"),
        "{e}"
    );
}

#[test]
fn a_dependence_that_is_no_input_is_cut_by_name() {
    let w = f64s(&[2.0]).requires_grad().unwrap();
    let inner = w.clone();
    let f = CustomFunction::new("scaled", move |x| x[0].mul(&inner))
        .vjp(|_, _, g| Ok(vec![Some(g.clone())]));
    let x = f64s(&[3.0]).requires_grad().unwrap();
    let loss = f.call(&[&x]).unwrap().sum(..).unwrap();
    let e = loss.backward(&[&w]).expect_err("it is cut").to_string();
    assert!(
        e.contains("by custom") && e.contains("make it one of the inputs"),
        "{e}"
    );
}
