//! Section C of the fact list: the text that graphs and kernels print as.

mod oracle;

use std::any::Any;
use std::slice::from_ref;
use std::sync::Arc;

use oracle::*;
use uopc::autodiff::gradient;
use uopc::compile::{Engine, RealizeOptions, listing, lower};
use uopc::debug::{Schedule, Settings};
use uopc::ir::op::{LiveBuffer, ReduceOp};
use uopc::ir::parse::parse;
use uopc::ir::print::to_uir;
use uopc::ir::{DType, UOp};
use uopc::pass::explain::cost;
use uopc::runtime::Storage;

/// The schedule whose listings are fixed.
fn plain() -> Settings {
    Settings {
        schedule: Schedule::Plain,
        ..Settings::default()
    }
}

/// The C text of a kernel of that name.
fn c_text(root: &UOp, name: &str) -> String {
    listing(from_ref(root), Some(name), &plain()).unwrap()
}

/// What compiled kernels compute from slots 0, 1, ...
fn run(roots: &[UOp], slots: &[&[f32]]) -> Vec<Vec<f32>> {
    let slots: Vec<_> = (0..)
        .zip(slots.iter().map(|v| Storage::from_slice(v).unwrap()))
        .collect();
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    let realized = Engine::new(plain()).unwrap().realize(roots, &options);
    let outputs = realized.unwrap().outputs;
    outputs.iter().map(|s| s.to_vec()).collect()
}

#[test]
fn c1_text_of_the_gradient_of_a_product_and_a_sum() {
    let (x, y) = (input32(0, &[3]), input32(1, &[3]));
    let found = gradient(&sum(&(&(&x * &y) + &x)), &[x]).unwrap();
    let expected = "\
%0 = reshape 1.0, (1,)
%1 = expand %0, (3,)
%2 = buffer 3 : dtype=f32 slot=1
%3 = mul %1, %2
%4 = add %1, %3
";
    assert_eq!(to_uir(&found), expected);
}

#[test]
fn c2_code_of_the_gradient_of_a_product_and_a_sum() {
    let (x, y) = (input32(0, &[3]), input32(1, &[3]));
    let found = gradient(&sum(&(&(&x * &y) + &x)), &[x]).unwrap();
    let expected = "\
void grad_x(float* restrict data1, float* restrict data2) {
  for (int ridx0 = 0; ridx0 < 3; ridx0++) {
    float val1 = data1[ridx0];
    data2[ridx0] = (val1+1.0f);
  }
}
";
    assert_eq!(c_text(&found[0], "grad_x"), expected);
    let (x, y) = ([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]);
    assert_eq!(run(&found, &[&x, &y]), [[11.0, 21.0, 31.0]]);
}

#[test]
fn c3_text_of_the_gradient_of_a_slice() {
    let v = input32(0, &[5]);
    let found = gradient(&sum(&v.shrink(&[(1, 3)]).unwrap()), &[v]).unwrap();
    let expected = "\
%0 = reshape 0.0, (1,)
%1 = expand %0, (4,)
%2 = reshape 1.0, (1,)
%3 = expand %2, (2,)
%4 = expand %0, (2,)
%5 = stack %3, %4
%6 = reshape %5, (4,)
%7 = stack %1, %6
%8 = reshape %7, (8,)
%9 = shrink %8, ((3, 8),)
";
    assert_eq!(to_uir(&found), expected);
    assert_eq!(value(&found[0], &[]), [0.0, 1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn c4_code_of_the_gradient_of_a_slice() {
    let v = input32(0, &[5]);
    let found = gradient(&sum(&v.shrink(&[(1, 3)]).unwrap()), &[v]).unwrap();
    let expected = "\
void grad_shrink(float* restrict data0) {
  for (int ridx0 = 0; ridx0 < 5; ridx0++) {
    int alu1 = (ridx0+3);
    data0[ridx0] = (((alu1/4)<1)?0.0f:((((alu1/2)%2)<1)?1.0f:0.0f));
  }
}
";
    assert_eq!(c_text(&found[0], "grad_shrink"), expected);
    assert_eq!(run(&found, &[]), [[0.0, 1.0, 1.0, 0.0, 0.0]]);
}

#[test]
fn c5_floats_are_never_reassociated() {
    let x = input32(0, &[4]);
    let cube = sum(&(&(&x * &x) * &x));
    let first = gradient(&cube, from_ref(&x)).unwrap().remove(0);
    let second = gradient(&sum(&first), from_ref(&x)).unwrap().remove(0);
    let expected = "\
void second_derivative(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val1 = data0[ridx0];
    float alu2 = (val1*2.0f);
    data1[ridx0] = (((alu2+alu2)+val1)+val1);
  }
}
";
    assert_eq!(c_text(&second, "second_derivative"), expected);
    let values = run(&[first, second], &[&[1.0, 2.0, 3.0, 4.0]]);
    assert_eq!(values[0], [3.0, 12.0, 27.0, 48.0]);
    assert_eq!(values[1], [6.0, 12.0, 18.0, 24.0]);
}

#[test]
fn c6_folding_rounds_to_the_dtype() {
    let x = input32(0, &[2]);
    let scaled = x.mul(&number(&x, 320.0).recip().unwrap()).unwrap();
    let expected = "\
void scale(float* restrict data0, float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 2; ridx0++) {
    float val1 = data0[ridx0];
    data1[ridx0] = (val1*0.0031250000465661287f);
  }
}
";
    assert_eq!(c_text(&scaled, "scale"), expected);
    let exact = (1.0f32 / 320.0) as f64;
    assert_eq!(exact, 0.0031250000465661287);
    assert_eq!(
        run(&[scaled], &[&[1.0, 2.0]]),
        [[exact as f32, 2.0 * exact as f32]]
    );
}

#[test]
fn c7_kernels_are_named_by_kind_and_shape() {
    let x = input32(0, &[10, 64, 32]);
    let rows = x.reduce(ReduceOp::Add, 1).unwrap();
    let names = |root: &UOp| -> Vec<String> {
        let lowered = lower(from_ref(root), None, &plain()).unwrap();
        let kernels = lowered.plan.kernels.iter();
        kernels.map(|k| k.name.to_string()).collect()
    };
    assert_eq!(names(&rows), ["r_10_64"]);
    assert!(
        listing(&[rows], None, &plain())
            .unwrap()
            .starts_with("void r_10_64(float*")
    );
    assert_eq!(names(&x.exp2().unwrap()), ["e_10_64_32"]);
    assert_eq!(names(&sum(&x)), ["r_1"]);
}

#[test]
fn c8_text_reads_back_as_the_same_node() {
    let loss = |x: &UOp, w: &UOp| {
        let top = x.maximum(w).unwrap().shrink(&[(1, 3)]).unwrap();
        sum(&(&top.exp().unwrap() * &top.sqrt().unwrap().recip().unwrap()))
    };
    // Text slots: the very nodes.
    let (x, w) = (input32(4, &[5]), input32(2, &[5]));
    let found = gradient(&loss(&x, &w), &[x, w]).unwrap();
    assert_eq!(parse(&to_uir(&found), "gradient").unwrap().roots, found);

    // Live buffers: the same graph over slots, numbered in order of appearance.
    let live = |id| {
        let storage: Arc<dyn Any + Send + Sync> = Arc::new(());
        UOp::live(Arc::new(LiveBuffer { id, storage }), DType::F32, 5)
    };
    let (a, b) = (live(u64::MAX - 3), live(u64::MAX - 4));
    let u = loss(&a, &b);
    let (s, t) = (input32(0, &[5]), input32(1, &[5]));
    assert_eq!(parse(&u.to_uir(), "loss").unwrap().roots, [loss(&s, &t)]);
    let found = gradient(&u, from_ref(&b)).unwrap();
    let text = to_uir(&found);
    let again = parse(&text, "gradient").unwrap().roots;
    assert_eq!(to_uir(&again), text);
}

/// `x @ w` as EXPAND, MUL and REDUCE.
fn matmul(x: &UOp, w: &UOp) -> UOp {
    let (m, k, n) = (x.shape()[0], x.shape()[1], w.shape()[1]);
    let rows = x.reshape(&[m, 1, k]).unwrap().expand(&[m, n, k]).unwrap();
    let columns = w.permute(&[1, 0]).unwrap().reshape(&[1, n, k]).unwrap();
    let product = rows.mul(&columns.expand(&[m, n, k]).unwrap()).unwrap();
    product.reduce(ReduceOp::Add, 1).unwrap()
}

#[test]
fn c9_gradients_cost_at_most_twice_the_loss() {
    let flops = |roots: &[UOp]| -> u64 {
        let lowered = lower(roots, None, &plain()).unwrap();
        lowered.launches.iter().map(|l| cost(&l.loops).flops).sum()
    };
    let x = input32(0, &[64, 48]);
    let sizes = [48, 96, 32, 80, 16];
    let weights: Vec<UOp> = (1..)
        .zip(sizes.windows(2))
        .map(|(slot, d)| input32(slot, &[d[0], d[1]]))
        .collect();
    for layers in 1..=weights.len() {
        let weights = &weights[..layers];
        let y = weights.iter().fold(x.clone(), |h, w| matmul(&h, w));
        let loss = sum(&(&y * &y));
        let grads = gradient(&loss, weights).unwrap();
        let forward = flops(from_ref(&loss));
        let products: usize = sizes[..=layers]
            .windows(2)
            .map(|d| 2 * 64 * d[0] * d[1])
            .sum();
        assert!(
            forward >= products as u64,
            "{forward} for {products} at least"
        );
        let both = flops(&[&[loss], &grads[..]].concat());
        assert!(
            both <= 3 * forward,
            "{layers} layers: {both} against {forward}"
        );
    }
}
