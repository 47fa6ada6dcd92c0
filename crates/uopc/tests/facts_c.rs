//! Section C of the fact list: the text that graphs and kernels print as.

mod oracle;

use std::any::Any;
use std::slice::from_ref;
use std::sync::Arc;

use oracle::*;
use uopc::autodiff::gradient;
use uopc::ir::op::LiveBuffer;
use uopc::ir::parse::parse;
use uopc::ir::print::to_uir;
use uopc::ir::{DType, UOp};

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
