//! Faults with values that compilers of tensors are known for: each a named test, on folded
//! constants, on what rules leave, and on the interpreter, which must agree to the last bit.

use std::slice::from_ref;

use uopc::debug::Settings;
use uopc::interp::{Array, graph};
use uopc::ir::op::{BufferId, Fold, ReduceOp};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Op, Scalar, UOp, verify};
use uopc::pass::simplify::simplify_shapes;

fn simplify(u: &UOp) -> UOp {
    let graph = verify::shape_graph(vec![u.clone()]).unwrap();
    simplify_shapes(&graph, &Settings::default())
        .unwrap()
        .0
        .roots()[0]
        .clone()
}

/// The constant that an expression of constants folds to.
fn folded(u: &UOp) -> Scalar {
    match simplify(u).op() {
        Op::Const(value) => *value,
        other => panic!("{} is left", other.mnemonic()),
    }
}

fn interpret(u: &UOp, data: &[Scalar]) -> Vec<Scalar> {
    let bind = |leaf: &UOp| match leaf.op() {
        Op::Buffer {
            id: BufferId::Slot(0),
            dtype,
            n,
        } => Array::from_scalars(*dtype, &[*n], data).ok(),
        _ => None,
    };
    let values = graph::eval(from_ref(u), &bind).unwrap().remove(0);
    values.scalars().collect()
}

/// The same expression of constants, folded, and of memory that holds them, interpreted.
fn both_ways(dtype: DType, inputs: &[Scalar], build: impl Fn(&[UOp]) -> UOp) -> Scalar {
    let constants: Vec<UOp> = inputs.iter().map(|&c| UOp::constant(c)).collect();
    let by_folding = folded(&build(&constants));
    let memory = UOp::slot(0, dtype, inputs.len());
    let element = |k: usize| memory.shrink(&[(k, k + 1)]).unwrap().reshape(&[]).unwrap();
    let elements: Vec<UOp> = (0..inputs.len()).map(element).collect();
    let by_memory = interpret(&build(&elements), inputs)[0];
    assert!(
        Scalar::same(by_folding, by_memory),
        "folded {by_folding}, in memory {by_memory}"
    );
    by_folding
}

fn ints(dtype: DType, values: &[i128]) -> Vec<Scalar> {
    values
        .iter()
        .map(|&v| Scalar::from_i128(dtype, v))
        .collect()
}

fn floats(values: &[f64]) -> Vec<Scalar> {
    values
        .iter()
        .map(|&v| Scalar::from_f64(DType::F32, v))
        .collect()
}

#[test]
fn folding_wraps_as_kernels_do() {
    for (dtype, a, b, sum, product) in [
        (DType::I8, 127, 2, -127, -2),
        (DType::U8, 255, 2, 1, 254),
        (DType::I16, 32767, 3, -32766, 32765),
        (DType::I32, i32::MAX as i128, 2, i32::MIN as i128 + 1, -2),
        (DType::U32, u32::MAX as i128, 2, 1, u32::MAX as i128 - 1),
        (DType::I64, i64::MAX as i128, 2, i64::MIN as i128 + 1, -2),
        (DType::U64, u64::MAX as i128, 2, 1, u64::MAX as i128 - 1),
    ] {
        let inputs = ints(dtype, &[a, b]);
        assert_eq!(
            both_ways(dtype, &inputs, |x| &x[0] + &x[1]).as_i128(),
            sum,
            "{dtype}"
        );
        assert_eq!(
            both_ways(dtype, &inputs, |x| &x[0] * &x[1]).as_i128(),
            product,
            "{dtype}"
        );
    }
}

#[test]
fn unsigned_numbers_subtract_and_negate_by_wrapping() {
    for dtype in [DType::U8, DType::U16, DType::U32, DType::U64] {
        let (_, largest) = dtype.int_range().unwrap();
        let difference = both_ways(dtype, &ints(dtype, &[3, 5]), |x| &x[0] - &x[1]);
        assert_eq!(difference.as_i128(), largest - 1);
        assert_eq!(
            both_ways(dtype, &ints(dtype, &[1]), |x| -&x[0]).as_i128(),
            largest
        );
    }
}

#[test]
fn i64_is_not_folded_through_f64() {
    let big = (1i128 << 53) + 1;
    let inputs = ints(DType::I64, &[big, 1]);
    assert_eq!(
        both_ways(DType::I64, &inputs, |x| &x[0] * &x[1]).as_i128(),
        big
    );
    assert_eq!(
        both_ways(DType::I64, &inputs, |x| &x[0] + &x[1]).as_i128(),
        big + 1
    );
    let close = ints(DType::I64, &[big, big - 1]);
    assert!(both_ways(DType::I64, &close, |x| x[0].cmpne(&x[1]).unwrap()).as_bool());
    assert!(both_ways(DType::I64, &close, |x| x[1].cmplt(&x[0]).unwrap()).as_bool());
    let larger = both_ways(DType::I64, &close, |x| x[1].maximum(&x[0]).unwrap());
    assert_eq!(larger.as_i128(), big);
}

#[test]
fn narrow_integers_are_narrow_everywhere() {
    // Were the sum kept wide, the comparison would be false.
    let inputs = ints(DType::I8, &[100, 100, 0]);
    assert!(
        both_ways(DType::I8, &inputs, |x| (&x[0] + &x[1])
            .cmplt(&x[2])
            .unwrap())
        .as_bool()
    );
    let inputs = ints(DType::U8, &[200, 100, 2]);
    let half = both_ways(DType::U8, &inputs, |x| {
        (&x[0] + &x[1]).floordiv(&x[2]).unwrap()
    });
    assert_eq!(half.as_i128(), 22);
}

#[test]
fn integer_division_never_fails() {
    for dtype in [DType::I8, DType::I16, DType::I32, DType::I64] {
        let (least, _) = dtype.int_range().unwrap();
        for (a, b, quotient, remainder) in [
            (-7, 2, -4, 1),
            (7, -2, -4, -1),
            (-7, -2, 3, -1),
            (-8, 2, -4, 0),
            (7, 0, 0, 0),
            (least, -1, least, 0),
            (least, 1, least, 0),
        ] {
            let inputs = ints(dtype, &[a, b]);
            let q = both_ways(dtype, &inputs, |x| x[0].floordiv(&x[1]).unwrap());
            let r = both_ways(dtype, &inputs, |x| x[0].floormod(&x[1]).unwrap());
            assert_eq!(
                (q.as_i128(), r.as_i128()),
                (quotient, remainder),
                "{dtype} {a} {b}"
            );
        }
    }
}

#[test]
fn zeros_of_both_signs_are_two_constants() {
    let (plus, minus) = (UOp::float(0.0, DType::F32), UOp::float(-0.0, DType::F32));
    assert_ne!(plus, minus);
    let signs =
        |a: f64, b: f64| both_ways(DType::F32, &floats(&[a, b]), |x| &x[0] / &x[1]).as_f64();
    assert_eq!(signs(1.0, 0.0), f64::INFINITY);
    assert_eq!(signs(1.0, -0.0), f64::NEG_INFINITY);
    let sum = both_ways(DType::F32, &floats(&[-0.0, -0.0]), |x| &x[0] + &x[1]);
    assert_eq!(sum, Scalar::from_f64(DType::F32, -0.0));
    let larger = both_ways(DType::F32, &floats(&[-0.0, 0.0]), |x| {
        x[0].maximum(&x[1]).unwrap()
    });
    assert_eq!(larger, Scalar::from_f64(DType::F32, 0.0));
    assert!(
        !both_ways(DType::F32, &floats(&[-0.0, 0.0]), |x| x[0]
            .cmpne(&x[1])
            .unwrap())
        .as_bool()
    );
}

#[test]
fn nan_constants_are_one_node_and_differ_as_numbers() {
    let nan = UOp::float(f64::NAN, DType::F32);
    assert_eq!(nan, UOp::float(-f64::NAN, DType::F32));
    assert_eq!(
        nan,
        UOp::constant(Scalar::from_bits(DType::F32, 0x7fc1_2345))
    );
    let inputs = floats(&[f64::NAN, 1.0]);
    let compare = |f: fn(&UOp, &UOp) -> UOp, a: usize, b: usize| {
        both_ways(DType::F32, &inputs, |x| f(&x[a], &x[b])).as_bool()
    };
    let lt: fn(&UOp, &UOp) -> UOp = |a, b| a.cmplt(b).unwrap();
    let ne: fn(&UOp, &UOp) -> UOp = |a, b| a.cmpne(b).unwrap();
    let eq: fn(&UOp, &UOp) -> UOp = |a, b| a.eq(b).unwrap();
    assert!(!compare(lt, 0, 1) && !compare(lt, 1, 0) && !compare(lt, 0, 0));
    assert!(compare(ne, 0, 0) && compare(ne, 0, 1));
    assert!(!compare(eq, 0, 0) && compare(eq, 1, 1));
    assert!(both_ways(DType::F32, &inputs, |x| x[1].maximum(&x[0]).unwrap()).is_nan());
}

/// What must stay of expressions that would be constants if all numbers were finite.
#[test]
fn x_minus_x_and_its_kin_are_not_folded_for_floats() {
    let x = UOp::slot(0, DType::F32, 4);
    let data = floats(&[f64::NAN, f64::INFINITY, -3.0, 0.0]);
    let zero = x.full_like(0.0).unwrap();
    for (what, input) in [
        ("x - x", &x - &x),
        ("x * 0", &x * &zero),
        ("x / x", &x / &x),
        ("x == x", x.eq(&x).unwrap()),
        ("x != x", x.cmpne(&x).unwrap()),
        ("x + 0.0", &x + &zero),
        ("0.0 - x", &zero - &x),
    ] {
        let simple = simplify(&input);
        assert!(
            toposort(from_ref(&simple)).contains(&x),
            "{what} does not read x any more"
        );
        for (a, b) in interpret(&input, &data)
            .into_iter()
            .zip(interpret(&simple, &data))
        {
            assert!(Scalar::same(a, b), "{what}: {a} became {b}");
        }
    }
    // Of integers they are constants, and x is not read.
    let n = UOp::slot(0, DType::I32, 4);
    let zero = n.full_like(0.0).unwrap();
    for input in [
        &n - &n,
        &n * &zero,
        n.cmpne(&n).unwrap(),
        n.cmplt(&n).unwrap(),
    ] {
        assert!(!toposort(from_ref(&simplify(&input))).contains(&n));
    }
}

#[test]
fn at_most_is_not_the_negation_of_above() {
    let at_most = |a: &UOp, b: &UOp| a.cmplt(b).unwrap().or(&a.eq(b).unwrap()).unwrap();
    let x = UOp::slot(0, DType::F32, 4);
    let data = floats(&[f64::NAN, 1.0, 2.0, -0.0]);
    let one = x.full_like(1.0).unwrap();
    let input = at_most(&x, &one);
    let expected = [false, true, false, true].map(Scalar::from_bool);
    assert_eq!(interpret(&input, &data), expected);
    assert_eq!(interpret(&simplify(&input), &data), expected);
    // A rule that turned not(b < a) into a <= b, or back, would make these two equal.
    let not_above = one.cmplt(&x).unwrap().logical_not().unwrap();
    assert_eq!(
        interpret(&simplify(&not_above), &data)[0],
        Scalar::from_bool(true)
    );
}

#[test]
fn a_division_by_a_constant_stays_a_division() {
    let x = UOp::slot(0, DType::F32, 41);
    let numbers: Vec<f64> = (1..=41).map(f64::from).collect();
    let input = &x / &x.full_like(41.0).unwrap();
    let simple = simplify(&input);
    assert_eq!(*simple.op(), Op::Div);
    assert_eq!(interpret(&simple, &floats(&numbers))[40].as_f64(), 1.0);
    // The product with the reciprocal is another number.
    let by_reciprocal = &x * &x.full_like(41.0).unwrap().recip().unwrap();
    assert_ne!(
        interpret(&by_reciprocal, &floats(&numbers))[40].as_f64(),
        1.0
    );
}

#[test]
fn a_folded_product_under_a_chain_is_not_rounded() {
    // Squares of these are not exact in f16; a chain adds the exact squares, in f32.
    let mut rounding_shows = 0;
    for value in [0.1, 0.3, 0.7, 1.1, 1.3, 1.7, 1.9] {
        let value = Scalar::from_f64(DType::F16, value);
        let full = |value| UOp::full(value, &[2, 100].as_slice().into()).unwrap();
        let chain = |x: &UOp| x.reduce_as(ReduceOp::Add, 1, Fold::Chain).unwrap();
        let sum = chain(&(&full(value) * &full(value)));
        assert_eq!(interpret(&sum, &[]), interpret(&simplify(&sum), &[]));
        let rounded = Scalar::from_f64(DType::F16, value.as_f64() * value.as_f64());
        rounding_shows += (interpret(&sum, &[]) != interpret(&chain(&full(rounded)), &[])) as u32;
    }
    assert!(rounding_shows > 0, "the test does not tell the two apart");
}

#[test]
fn casts_fold_by_the_rule_that_kernels_follow() {
    let cast = |from: DType, value: f64, to: DType| {
        let input = Scalar::from_f64(from, value);
        both_ways(from, &[input], |x| x[0].cast(to).unwrap())
    };
    assert_eq!(cast(DType::F32, f64::NAN, DType::I32).as_i128(), 0);
    assert_eq!(cast(DType::F32, f64::INFINITY, DType::I8).as_i128(), 127);
    assert_eq!(
        cast(DType::F64, -1e300, DType::I64).as_i128(),
        i64::MIN as i128
    );
    assert_eq!(cast(DType::F32, -1.0, DType::U8).as_i128(), 0);
    assert_eq!(cast(DType::F32, -2.9, DType::I32).as_i128(), -2);
    assert!(cast(DType::F32, f64::NAN, DType::Bool).as_bool());
    assert!(!cast(DType::F32, -0.0, DType::Bool).as_bool());
    let large = both_ways(DType::I64, &ints(DType::I64, &[(1 << 53) + 1]), |x| {
        x[0].cast(DType::F32).unwrap()
    });
    assert_eq!(large.as_f64(), (1i64 << 53) as f64);
    // Through a float, which saturates, and directly, which wraps: two casts stay two.
    let wide = ints(DType::I32, &[300]);
    let by_float = both_ways(DType::I32, &wide, |x| {
        x[0].cast(DType::F64).unwrap().cast(DType::I8).unwrap()
    });
    let direct = both_ways(DType::I32, &wide, |x| x[0].cast(DType::I8).unwrap());
    assert_eq!((by_float.as_i128(), direct.as_i128()), (127, 44));
}
