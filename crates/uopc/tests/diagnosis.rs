//! Why a gradient is zero, missing or NaN: rules and lines on the nodes of derivatives, explanations,
//! strict mode, and where a NaN comes from.

use std::sync::Arc;

use uopc::autodiff::{explain_gradient, gradient, jvp, pullback, strict_gradients, vmap};
use uopc::compile::{Engine, NonFinite, RealizeOptions, plan_key};
use uopc::debug::Settings;
use uopc::ir::op::{ReduceOp, StageKind};
use uopc::ir::parse::{parse, parse_with_lines};
use uopc::ir::print::{to_uir, to_uir_with_origins};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, UOp};
use uopc::tensor::{Site, with_engine};
use uopc::transform::CustomFunction;
use uopc::{Error, Tensor, find_nan, grad, value_and_grad, vjp};

fn slot(number: u32, n: usize) -> UOp {
    UOp::slot(number, DType::F32, n)
}

fn sum(x: &UOp) -> UOp {
    x.reduce(ReduceOp::Add, x.shape().rank()).unwrap()
}

fn written_at(line: u32, f: impl FnOnce() -> UOp) -> UOp {
    let _line = Site::script("origin.py", line).enter();
    f()
}

/// For each node of the graphs that computes and is not one of `known` its op and where it is from.
fn origins(roots: &[UOp], known: &UOp) -> Vec<String> {
    let known = toposort(std::slice::from_ref(known));
    let new = toposort(roots).into_iter();
    let new = new.filter(|u| !known.contains(u) && !u.src().is_empty());
    let from = |u: &UOp| u.site().map_or("nowhere".into(), |site| site.to_string());
    new.map(|u| format!("{}: {}", u.op().mnemonic(), from(&u)))
        .collect()
}

fn tensor(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

fn parameter(values: &[f32]) -> Tensor {
    tensor(values).requires_grad().unwrap()
}

// ---- where nodes come from ----

#[test]
fn gradients_have_the_line_of_the_forward_node_and_the_rule() {
    let x = written_at(1, || slot(900, 1901));
    let e = written_at(2, || x.exp().unwrap());
    let p = written_at(3, || e.mul(&x).unwrap());
    let loss = written_at(4, || sum(&p));
    let found = gradient(&loss, &[x]).unwrap();
    assert_eq!(
        origins(&found, &loss),
        [
            "reshape: origin.py:4, vjp of reduce",
            "expand: origin.py:4, vjp of reduce",
            "mul: origin.py:3, vjp of mul",
            "mul: origin.py:3, vjp of mul",
            "mul: origin.py:2, vjp of exp",
            "add: origin.py:1, sum of cotangents",
        ]
    );
}

#[test]
fn tangents_have_the_line_and_the_rule() {
    let (x, t) = (slot(901, 1902), slot(902, 1902));
    let e = written_at(2, || x.exp().unwrap());
    let y = written_at(3, || e.add(&x).unwrap());
    let found = jvp(&y, &[x], &[t]).unwrap();
    assert_eq!(
        origins(&[found], &y),
        [
            "mul: origin.py:2, jvp of exp",
            "add: origin.py:3, sum of tangents"
        ]
    );
}

#[test]
fn batches_have_the_line_and_the_rule() {
    let (x, xs) = (slot(903, 1903), slot(904, 2 * 1903));
    let y = written_at(5, || sum(&x.sin().unwrap()));
    let xs = written_at(6, || xs.reshape(&[2, 1903]).unwrap());
    let found = vmap(&[y], &[(x, xs.clone())]).unwrap();
    let expected = [
        "sin: origin.py:5, vmap of sin",
        "reduce: origin.py:5, vmap of reduce",
    ];
    assert_eq!(origins(&[found[0].node.clone()], &xs), expected);
}

#[test]
fn masks_are_named() {
    let x = slot(905, 1904);
    let root = written_at(7, || {
        let zero = x.full_like(0.0).unwrap();
        let root = x.sqrt().unwrap();
        sum(&zero.cmplt(&x).unwrap().where_(&root, &zero).unwrap())
    });
    let found = gradient(&root, &[x]).unwrap();
    let origins = origins(&found, &root);
    assert!(
        origins
            .iter()
            .any(|o| o.starts_with("where: ") && o.ends_with("mask")),
        "{origins:?}"
    );
}

#[test]
fn a_node_without_a_line_still_has_its_rule() {
    let x = slot(906, 1905);
    let y = x.exp().unwrap();
    let found = gradient(&sum(&y), &[x]).unwrap();
    assert_eq!(found[0].site().unwrap().to_string(), "vjp of exp");
    assert_eq!(found[0].site().unwrap().line(), None);
}

/// The user's own node stays the user's, whoever makes it again.
#[test]
fn the_first_writer_of_a_node_wins() {
    let x = slot(907, 1906);
    let e = written_at(8, || x.exp().unwrap());
    let ones = written_at(9, || x.full_like(1.0).unwrap());
    let by_hand = written_at(10, || ones.mul(&e).unwrap());
    let found = gradient(&sum(&e), &[x]).unwrap();
    assert_eq!(found, [by_hand]);
    assert_eq!(found[0].site().unwrap().to_string(), "origin.py:10");
}

/// Lines of a Rust program, through the tensors' own methods.
#[test]
fn lines_of_rust_are_those_of_the_caller() {
    let w = parameter(&[0.5; 1907]);
    let line = line!() + 1;
    let e = w.exp().unwrap();
    e.sum(..).unwrap().backward(&[&w]).unwrap();
    let gradient = w.grad().unwrap().uop();
    let site = format!("{}:{line}, vjp of exp", file!());
    assert_eq!(gradient.site().unwrap().to_string(), site);
}

/// Simplification keeps where nodes come from; plans, their keys and bits do not depend on it.
#[test]
fn plans_do_not_depend_on_where_nodes_come_from() {
    let text = |line: u32| {
        let _line = Site::script("plans.py", line).enter();
        let x = Tensor::from_slice(&[0.25f32; 1908], [1908]).unwrap();
        let y = x.requires_grad().unwrap();
        let loss = y.exp().unwrap().sin().unwrap().sum(..).unwrap();
        loss.backward(&[&y]).unwrap();
        (loss.uop(), y.grad().unwrap().uop())
    };
    let engine = Engine::new(Settings::default()).unwrap();
    let mut bits = Vec::new();
    let mut keys = Vec::new();
    for line in [1, 2] {
        let (loss, gradient) = text(line);
        assert!(gradient.site().unwrap().to_string().starts_with("plans.py"));
        let roots = [loss, gradient];
        keys.push(plan_key(&roots, &RealizeOptions::default()).unwrap());
        let values = engine.realize(&roots, &RealizeOptions::default()).unwrap();
        let bytes = values.outputs.iter().map(|s| s.as_bytes().to_vec());
        bits.push(bytes.collect::<Vec<_>>());
    }
    assert_eq!((&keys[0], &bits[0]), (&keys[1], &bits[1]));
    let stats = engine.stats();
    assert_eq!((stats.plan_misses, stats.plan_hits), (1, 1));
}

#[test]
fn the_listing_reads_back_as_the_same_graph() {
    let x = slot(908, 1909);
    let loss = written_at(11, || sum(&x.sin().unwrap()));
    let found = gradient(&loss, &[x]).unwrap();
    let text = to_uir_with_origins(&found);
    assert!(text.contains(" ; origin.py:11, vjp of sin\n"), "{text}");
    let parsed = parse(&text, "listing").unwrap();
    assert_eq!(to_uir(&parsed.roots), to_uir(&found));
}

#[test]
fn errors_of_derivatives_name_the_line_and_the_rule() {
    let x = slot(909, 1910);
    let bad = written_at(12, || x.exp().unwrap());
    let g = slot(910, 3);
    let error = pullback(&[(bad, Some(g))], &[x], false).unwrap_err();
    assert!(error.to_string().ends_with("(at origin.py:12)"), "{error}");
    // What goes wrong inside of a rule has the rule, too.
    let text = "%0 = buffer 3 : dtype=f32 slot=0\n%1 = exp %0\n%2 = custom %1, %0 : name=mine\n\
        %3 = reduce %2, ADD, 1\n";
    let parsed = parse_with_lines(text, "mine.uir").unwrap();
    let x = parsed.lines[0].0.clone();
    let error = gradient(&parsed.roots[0], &[x]).unwrap_err().to_string();
    assert!(error.contains("(at mine.uir:3"), "{error}");
}

/// Many nodes: building is linear and does not recurse.
#[test]
fn deep_graphs_are_explained_in_linear_time() {
    let x = slot(911, 2);
    let mut y = x.clone();
    for _ in 0..50_000 {
        // Two ways at each step: 2^50000 paths.
        y = y.sin().unwrap().add(&y.exp().unwrap()).unwrap();
    }
    let explanation = explain_gradient(&sum(&y), &x).unwrap();
    assert_eq!(explanation.path_count, u64::MAX);
    assert_eq!(explanation.paths.len(), 4);
    assert_eq!(explanation.paths[0].steps().len(), 100_001);
    let text = explanation.to_string();
    assert!(text.lines().count() < 80, "{text}");
    assert!(text.contains("by more than 10^19 paths"), "{text}");
}

// ---- explanations ----

#[test]
fn paths_are_listed_with_lines_and_merged() {
    let w = written_at(20, || slot(912, 1911));
    let a = written_at(21, || w.exp().unwrap());
    let b = written_at(22, || w.sin().unwrap().mul(&w).unwrap());
    let loss = written_at(23, || sum(&a.add(&b).unwrap()));
    let text = explain_gradient(&loss, &w).unwrap().to_string();
    assert_eq!(
        text,
        "\
the target, buffer f32 (1911,) (at origin.py:20), reaches the root, reduce ADD f32 () (at origin.py:23), by 3 paths; the shortest:
  1. exp -> f32 (1911,) (at origin.py:21)
     add, reduce ADD -> f32 () (at origin.py:23)
  2. mul -> f32 (1911,) (at origin.py:22)
     then as path 1 from add f32 (1911,) (at origin.py:23)
  3. sin -> f32 (1911,) (at origin.py:22)
     then as path 2 from mul f32 (1911,) (at origin.py:22)
"
    );
}

#[test]
fn each_kind_of_cut_is_named_with_its_line() {
    let w = written_at(30, || slot(913, 6));
    let table = slot(914, 6);
    let detached = written_at(31, || w.stage(StageKind::Detach).unwrap());
    let compared = written_at(32, || w.cmplt(&table).unwrap());
    let chosen = written_at(33, || {
        compared
            .where_(&table, &table.full_like(1.0).unwrap())
            .unwrap()
    });
    let whole = written_at(34, || w.cast(DType::I32).unwrap());
    let read = written_at(35, || table.index(&[whole]).unwrap());
    let rounded = written_at(36, || w.trunc().unwrap());
    let cases = [
        (
            detached,
            "stage detach of buffer f32 (6,): it is detached; leave out the detach (at origin.py:31)",
        ),
        (
            chosen,
            "comparisons have no derivative; use a where of floats (at origin.py:32)",
        ),
        (
            read,
            "integers and bools have no derivative; cast to a float instead (at origin.py:34)",
        ),
        (
            rounded,
            "trunc of buffer f32 (6,): its derivative is zero or undefined everywhere",
        ),
    ];
    for (value, expected) in cases {
        let explanation = explain_gradient(&sum(&value), &w).unwrap();
        assert!(!explanation.reaches());
        let text = explanation.to_string();
        assert!(text.contains("gets no gradient from the root"), "{text}");
        assert!(
            text.contains("\nit is cut here:\n") && text.contains(expected),
            "{text}"
        );
    }
}

#[test]
fn an_open_path_and_a_cut_one_are_both_named() {
    let w = slot(915, 1912);
    let cut = written_at(41, || w.stage(StageKind::Detach).unwrap());
    let loss = sum(&w.mul(&cut).unwrap());
    let text = explain_gradient(&loss, &w).unwrap().to_string();
    assert!(text.contains("by 1 path:"), "{text}");
    assert!(
        text.contains("besides, a path is cut here:\n   - stage detach"),
        "{text}"
    );
}

#[test]
fn what_was_not_computed_from_the_target_is_said() {
    let text = explain_gradient(&sum(&slot(916, 3)), &slot(917, 3))
        .unwrap()
        .to_string();
    assert!(text.contains("does not occur in the root"), "{text}");
    let x = slot(918, 1);
    let x = x.reshape(&[]).unwrap();
    let text = explain_gradient(&x, &x).unwrap().to_string();
    assert!(text.ends_with("is the root itself\n"), "{text}");
}

#[test]
fn a_rule_that_gives_nothing_is_a_cut() {
    let body = |x: &[Tensor]| x[0].add(&x[1]);
    let f = CustomFunction::new("half", body).vjp(|_, _, g| Ok(vec![Some(g.clone()), None]));
    let (a, b) = (tensor(&[1.0, 2.0]), tensor(&[3.0, 4.0]));
    let loss = f.call(&[&a, &b]).unwrap().sum(..).unwrap();
    assert!(loss.explain_gradient(&a).unwrap().reaches());
    let text = loss.explain_gradient(&b).unwrap().to_string();
    assert!(text.contains("custom half"), "{text}");
    assert!(
        text.contains("its rule says that this input has no gradient"),
        "{text}"
    );
}

#[test]
fn an_update_since_is_a_cut() {
    let w = parameter(&[1.0, 2.0]);
    let loss = w.square().unwrap().sum(..).unwrap();
    assert_eq!(loss.item().unwrap(), 5.0);
    let line = line!() + 1;
    w.assign(tensor(&[3.0, 4.0])).unwrap();
    let explanation = loss.explain_gradient(&w).unwrap();
    assert!(!explanation.reaches());
    let text = explanation.to_string();
    assert!(text.contains("before an update"), "{text}");
    assert!(text.contains(&format!("(at {}:{line})", file!())), "{text}");
}

// ---- strict mode ----

#[test]
fn cut_arguments_are_errors_in_strict_mode_only() {
    let f = |(a, b): &(Tensor, Tensor)| a.mul(&b.detach()?)?.sum(..);
    let args = (tensor(&[1.0, 2.0]), tensor(&[3.0, 4.0]));
    let (_, lenient) = value_and_grad(f)(&args).unwrap();
    assert_eq!(lenient.0.to_vec::<f32>().unwrap(), [3.0, 4.0]);
    assert_eq!(lenient.1.to_vec::<f32>().unwrap(), [0.0, 0.0]);

    let guard = strict_gradients();
    let refused = |error: Error| {
        let text = error.to_string();
        assert!(matches!(error, Error::Gradient { .. }), "{text}");
        assert!(
            text.contains("argument 1, f32 (2,), gets zeros: every path"),
            "{text}"
        );
        assert!(
            text.contains("it is detached; leave out the detach"),
            "{text}"
        );
        assert!(text.contains(file!()), "{text}");
    };
    refused(grad(f)(&args).err().unwrap());
    refused(value_and_grad(f)(&args).err().unwrap());
    let (_, pull) = vjp(f, &args).unwrap();
    refused(pull(&Tensor::ones([0usize; 0]).unwrap()).err().unwrap());
    let x = slot(919, 2);
    let cut = sum(&x.stage(StageKind::Detach).unwrap());
    assert!(gradient(&cut, &[x.clone()]).is_err());
    // Guards nest, and what a target does not occur in is no cut.
    let inner = strict_gradients();
    drop(inner);
    assert!(gradient(&cut, &[x.clone()]).is_err());
    assert!(gradient(&sum(&slot(920, 2)), &[x.clone()]).is_ok());
    drop(guard);
    assert!(gradient(&cut, &[x]).is_ok());
}

// ---- several roots ----

#[test]
fn cotangents_of_several_roots_are_taken_without_products() {
    let (x, g, h) = (slot(921, 7), slot(922, 7), slot(923, 7));
    let (y, z) = (x.exp().unwrap(), x.sin().unwrap());
    let seeds = [(y.clone(), Some(g.clone())), (z, Some(h.clone()))];
    let (found, cuts) = pullback(&seeds, &[x.clone()], true).unwrap();
    let sine = h.mul(&x.sin_turned(1).unwrap()).unwrap();
    assert_eq!(found, [sine.add(&g.mul(&y).unwrap()).unwrap()]);
    assert!(cuts.is_empty());
}

#[test]
fn a_root_inside_of_another_one_and_a_root_twice_add_up() {
    let (x, g) = (slot(924, 7), slot(925, 7));
    let y = x.exp().unwrap();
    let z = y.sin().unwrap();
    let seeds = [
        (y.clone(), None),
        (z, Some(g.clone())),
        (y.clone(), Some(g.clone())),
    ];
    let (found, _) = pullback(&seeds, &[y.clone()], true).unwrap();
    let ones = y.full_like(1.0).unwrap();
    let by_sine = g.mul(&y.sin_turned(1).unwrap()).unwrap();
    assert_eq!(found, [ones.add(&g).unwrap().add(&by_sine).unwrap()]);
}

#[test]
fn gradients_of_functions_multiply_by_no_ones() {
    let x = tensor(&[1.0, 2.0, 3.0]);
    let gradient = grad(|x: &Tensor| x.exp()?.sum(..))(&x).unwrap();
    let reductions = toposort(&[gradient.uop()]);
    let sums = reductions.iter().filter(|u| u.op().mnemonic() == "reduce");
    assert_eq!(sums.count(), 0);
}

// ---- where a NaN comes from ----

#[test]
fn the_first_op_that_makes_a_nan_is_named() {
    let x = tensor(&[4.0, -1.0, 9.0]);
    let line = line!() + 1;
    let root = x.sqrt().unwrap();
    let loss = root.mul(2.0).unwrap().sum(..).unwrap();
    let found = loss.find_nan().unwrap().unwrap();
    assert_eq!(found.what, NonFinite::Nan);
    assert_eq!((&found.op[..], &found.index[..]), ("sqrt", &[1][..]));
    assert!(found.value.is_nan() && !found.may_be_meant);
    assert_eq!(found.operands[0].range, (-1.0, -1.0));
    assert_eq!(
        found.site.unwrap().to_string(),
        format!("{}:{line}", file!())
    );
    let text = found.to_string();
    let start = format!(
        "the first NaN is in the result of sqrt f32 (3,) (at {}:{line}): at [1] it is NaN, computed \
         from\n   buffer f32 (3,)",
        file!()
    );
    assert!(text.starts_with(&start) && text.ends_with(": -1"), "{text}");
}

#[test]
fn a_gradient_s_nan_has_the_rule_and_the_forward_line() {
    let w = parameter(&[1.0, 0.0]);
    let line = line!() + 1;
    let root = w.sqrt().unwrap();
    let loss = root.mul(&w).unwrap().sum(..).unwrap();
    loss.backward(&[&w]).unwrap();
    assert_eq!(loss.find_nan().unwrap(), None);
    let found = find_nan(&[&loss, &w.grad().unwrap()]).unwrap().unwrap();
    let site = found.site.unwrap().to_string();
    assert_eq!(site, format!("{}:{line}, vjp of sqrt", file!()));
    assert_eq!(found.index, [1]);
}

/// Whoever computed them before, the answer is the same.
#[test]
fn computed_tensors_are_searched_as_well() {
    let w = parameter(&[1.0, 0.0]);
    let loss = w.log().unwrap().sum(..).unwrap();
    let before = loss.find_nan().unwrap();
    loss.realize().unwrap();
    let found = loss.find_nan().unwrap();
    assert_eq!(found, before);
    let found = found.unwrap();
    assert_eq!((found.what, &found.op[..]), (NonFinite::Infinity, "log2"));
}

#[test]
fn a_nan_that_no_where_takes_does_not_count() {
    let x = tensor(&[4.0, -1.0]);
    let safe = x.gt(0.0).unwrap().where_(x.sqrt().unwrap(), 0.0).unwrap();
    assert_eq!(safe.sum(..).unwrap().find_nan().unwrap(), None);
}

/// A mask of minus infinities is meant; what counts is the op that makes NaN of a row of them.
#[test]
fn infinities_of_constants_and_inputs_are_taken_as_meant() {
    let scores = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]).unwrap();
    let allowed = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 0.0], [2, 2])
        .unwrap()
        .gt(0.0)
        .unwrap();
    let masked = allowed.where_(&scores, f64::NEG_INFINITY).unwrap();
    let found = masked.softmax(-1).unwrap().find_nan().unwrap().unwrap();
    assert_eq!(
        (found.what, &found.index[..]),
        (NonFinite::Nan, &[1, 0][..])
    );
    assert_eq!(found.operands.len(), 2);

    let input = tensor(&[1.0, f32::INFINITY]);
    let found = input.exp().unwrap().find_nan().unwrap().unwrap();
    assert!(found.may_be_meant);
    assert_eq!((&found.op[..], &found.index[..]), ("buffer", &[1][..]));
    let found = tensor(&[1.0, f32::NAN])
        .exp()
        .unwrap()
        .find_nan()
        .unwrap()
        .unwrap();
    assert!(!found.may_be_meant && found.op == "buffer");
}

#[test]
fn sums_name_the_range_of_what_they_add() {
    let x = tensor(&[3e38, 3e38, 1.0]);
    let found = x.sum(..).unwrap().find_nan().unwrap().unwrap();
    assert_eq!(
        (found.what, &found.op[..]),
        (NonFinite::Infinity, "reduce ADD")
    );
    assert_eq!(found.operands[0].range, (1.0, f64::from(3e38f32)));

    let row = Tensor::from_slice(&[1e30f32, 1.0, 2.0, 3.0], [2, 2]).unwrap();
    let column = Tensor::from_slice(&[1e30f32, 1.0, 5.0, 1.0], [2, 2]).unwrap();
    let found = row.matmul(&column).unwrap().find_nan().unwrap().unwrap();
    assert_eq!(
        (&found.op[..], &found.index[..]),
        ("reduce ADD", &[0, 0][..])
    );
    let ranges: Vec<(f64, f64)> = found.operands.iter().map(|o| o.range).collect();
    let big = f64::from(1e30f32);
    assert_eq!(ranges, [(1.0, big), (5.0, big)]);
}

/// A product that a chain sums is not rounded to f16, where it would be infinite.
#[test]
fn products_that_are_summed_unrounded_are_not_judged_alone() {
    let x = Tensor::from_slice(&[300.0f32; 4], [2, 2])
        .unwrap()
        .cast(DType::F16)
        .unwrap();
    let y = x.matmul(&x.neg().unwrap()).unwrap();
    let wide = x.cast(DType::F32).unwrap();
    assert_eq!(wide.matmul(&wide).unwrap().find_nan().unwrap(), None);
    let found = y.find_nan().unwrap().unwrap();
    assert_eq!(found.op, "reduce ADD");
}

#[test]
fn the_search_goes_through_deep_graphs() {
    let x = tensor(&[1.0, 2.0]);
    let mut y = x.clone();
    for _ in 0..20_000 {
        y = y.mul(0.5).unwrap().sin().unwrap();
    }
    // A hundred thousand nodes in all, the mistake in the last third.
    y = y.sub(y.detach().unwrap()).unwrap().reciprocal().unwrap();
    for _ in 0..10_000 {
        y = y.add(1.0).unwrap().mul(0.5).unwrap();
    }
    let loss = y.sum(..).unwrap();
    let found = loss.find_nan().unwrap().unwrap();
    assert_eq!(
        (found.what, &found.index[..]),
        (NonFinite::Infinity, &[0][..])
    );
    assert!(found.op == "recip" || found.op == "div", "{found}");
}

#[test]
fn checked_engines_refuse_what_ops_made_infinite() {
    let settings = Settings {
        check_nan: true,
        ..Settings::default()
    };
    let engine = Arc::new(Engine::new(settings).unwrap());
    with_engine(&engine, || {
        let x = tensor(&[1.0, 0.0]);
        let line = line!() + 1;
        let y = x.log().unwrap();
        let error = y.realize().err().unwrap();
        assert!(matches!(error, Error::NonFinite(_)));
        let text = error.to_string();
        assert!(
            text.starts_with("the first infinity is in the result of log"),
            "{text}"
        );
        assert!(text.contains(&format!("{}:{line}", file!())), "{text}");
        // It stays so, and nothing else is refused.
        assert!(y.realize().is_err());
        assert_eq!(x.exp().unwrap().to_vec::<f32>().unwrap()[1], 1.0);
        let input = tensor(&[f32::INFINITY]);
        assert!(input.neg().unwrap().realize().is_ok());
        // A NaN that is not a result is nobody's business.
        let safe = x
            .gt(0.0)
            .unwrap()
            .where_(x.neg().unwrap().log().unwrap(), 0.0);
        assert!(safe.unwrap().slice(1..).unwrap().realize().is_ok());
    });
}
