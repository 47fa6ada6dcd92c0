//! For each rule inputs on which it fires, at each dtype that it is for.

mod loops;

use uopc::ir::op::{Fold, ReduceOp};
use uopc::ir::{DType, Op, Scalar, Shape, UOp};

pub use loops::{assert_same_in_loops, in_loops};

use super::N;

/// A rule, and a graph on which it fires.
pub struct Case {
    pub rule: &'static str,
    pub input: UOp,
}

const INTS: [DType; 8] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];
const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Writes the inputs of one dtype.
struct At {
    dtype: DType,
}

impl At {
    fn x(&self) -> UOp {
        UOp::slot(0, self.dtype, N)
    }
    fn y(&self) -> UOp {
        UOp::slot(1, self.dtype, N)
    }
    fn z(&self) -> UOp {
        UOp::slot(2, self.dtype, N)
    }
    /// A constant in the shape of the buffers.
    fn c(&self, value: f64) -> UOp {
        self.x().full_like(value).unwrap()
    }
    /// A constant integer, wrapped into the dtype.
    fn int(&self, value: i128) -> UOp {
        UOp::full(Scalar::from_i128(self.dtype, value), self.x().shape()).unwrap()
    }
    fn truth(&self, value: bool) -> UOp {
        UOp::full(Scalar::from_bool(value), self.x().shape()).unwrap()
    }
    fn condition(&self) -> UOp {
        self.x().cmplt(&self.y()).unwrap()
    }
    /// x % n, of which bounds are known.
    fn below(&self, n: i128) -> UOp {
        self.x().floormod(&self.int(n)).unwrap()
    }
    fn other_below(&self, n: i128) -> UOp {
        self.y().floormod(&self.int(n)).unwrap()
    }
    fn matrix(&self, rows: usize) -> UOp {
        self.x().reshape(&[rows, N / rows]).unwrap()
    }
}

fn op(op: Op, src: &[UOp]) -> UOp {
    UOp::new(op, src).unwrap()
}

struct Cases(Vec<Case>);

impl Cases {
    fn put(&mut self, rule: &'static str, input: UOp) {
        self.0.push(Case { rule, input });
    }

    fn each(&mut self, rule: &'static str, dtypes: &[DType], input: impl Fn(&At) -> UOp) {
        for &dtype in dtypes {
            let input = input(&At { dtype });
            self.put(rule, input);
        }
    }
}

pub fn all() -> Vec<Case> {
    let mut cases = Cases(Vec::new());
    fold(&mut cases);
    algebra(&mut cases);
    bits_and_casts(&mut cases);
    select(&mut cases);
    divmod(&mut cases);
    movement(&mut cases);
    reduce(&mut cases);
    loops::put(&mut cases);
    cases.0
}

fn fold(cases: &mut Cases) {
    let full = |c: Scalar| UOp::full(c, &Shape::new(&[2])).unwrap();
    let binary = [Op::Add, Op::Max, Op::CmpLt, Op::CmpNe, Op::Mul];
    let of_floats = [Op::Div];
    let of_ints = [
        Op::FloorDiv,
        Op::FloorMod,
        Op::And,
        Op::Or,
        Op::Xor,
        Op::Shl,
        Op::Shr,
    ];
    let unary = [
        Op::Recip,
        Op::Exp2,
        Op::Log2,
        Op::Exp,
        Op::Sqrt,
        Op::Sin(0),
        Op::Sin(1),
        Op::Trunc,
    ];
    for dtype in DType::ALL {
        let values = super::values(dtype);
        let more: &[Op] = match dtype {
            DType::Bool => &[],
            _ if dtype.is_float() => &of_floats,
            _ => &of_ints,
        };
        for (k, &a) in values.iter().enumerate() {
            let (b, c) = (
                values[(k * 7 + 3) % values.len()],
                values[(k * 5 + 1) % values.len()],
            );
            let (x, y, z) = (full(a), full(b), full(c));
            for which in binary.iter().chain(more) {
                let node = op(which.clone(), &[x.clone(), y.clone()]);
                match (which, dtype.is_float()) {
                    (Op::Mul, false) => cases.put("fold_int_product", node),
                    (Op::Mul, true) => cases.put("fold_product", node),
                    _ => cases.put("fold_constants", node),
                }
            }
            if dtype.is_float() {
                for which in &unary {
                    cases.put(
                        "fold_constants",
                        op(which.clone(), std::slice::from_ref(&x)),
                    );
                }
            }
            if dtype != DType::Bool {
                let sources = [x.clone(), y.clone(), z.clone()];
                cases.put("fold_constants", op(Op::MulAcc, &sources));
            }
            for to in DType::ALL {
                cases.put("fold_constants", op(Op::Cast(to), std::slice::from_ref(&x)));
            }
            let chosen = full(Scalar::from_bool(k % 2 == 0));
            cases.put("fold_constants", chosen.where_(&x, &y).unwrap());
        }
    }
    cases.each("fold_exact_product", &FLOATS, |at| &at.c(1.5) * &at.c(-3.0));
    cases.each("fold_exact_product", &FLOATS, |at| &at.c(-0.0) * &at.c(0.1));
    cases.each("fold_exact_product", &FLOATS, |at| {
        &at.c(f64::NAN) * &at.c(0.1)
    });
    cases.each("fold_exact_product", &FLOATS, |at| {
        // Under a chain, which does not round it.
        let product = (&at.c(1.5) * &at.c(-3.0)).reshape(&[2, N / 2]).unwrap();
        product.reduce_as(ReduceOp::Add, 1, Fold::Chain).unwrap()
    });
}

fn algebra(cases: &mut Cases) {
    let all = &DType::ALL;
    let numbers: Vec<DType> = INTS.into_iter().chain(FLOATS).collect();
    let exact: Vec<DType> = INTS.into_iter().chain([DType::Bool]).collect();
    for which in [Op::Add, Op::Mul, Op::Max, Op::CmpNe] {
        cases.each("constant_right", all, |at| {
            op(which.clone(), &[at.c(3.0), at.x()])
        });
        cases.each("constant_right", &FLOATS, |at| {
            op(which.clone(), &[at.c(f64::NAN), at.x()])
        });
        cases.each("constant_right", &FLOATS, |at| {
            op(which.clone(), &[at.c(-0.0), at.x()])
        });
    }
    for which in [Op::And, Op::Or, Op::Xor] {
        cases.each("constant_right", &exact, |at| {
            op(which.clone(), &[at.int(3), at.x()])
        });
    }
    cases.each("constant_right", &numbers, |at| {
        at.c(3.0).mulacc(&at.x(), &at.y()).unwrap()
    });

    cases.each("add_zero", &exact, |at| &at.x() + &at.int(0));
    cases.each("add_minus_zero", &FLOATS, |at| &at.x() + &at.c(-0.0));
    cases.each("add_float_zero", &FLOATS, |at| {
        let square = &at.x() * &at.x();
        let top = square.sqrt().unwrap().maximum(&at.y().exp().unwrap());
        &top.unwrap() + &at.c(0.0)
    });
    cases.each("add_float_zero", &FLOATS, |at| {
        &(&at.x() + &at.c(0.0)) + &at.c(0.0)
    });
    cases.each("add_float_zero", &FLOATS, |at| {
        let whole = at.x().cmplt(&at.y()).unwrap().cast(at.dtype).unwrap();
        &(&whole + &at.x().exp2().unwrap()) + &at.c(0.0)
    });
    cases.each("add_constants", &exact, |at| {
        &(&at.x() + &at.int(100)) + &at.int(77)
    });
    cases.each("add_constant_outwards", &INTS, |at| {
        &(&at.x() + &at.int(100)) + &at.y()
    });
    cases.each("add_constant_outwards", &INTS, |at| {
        &at.y() + &(&at.x() + &at.int(100))
    });
    cases.each("sub_same", &INTS, |at| &at.x() - &at.x());
    cases.each("sub_same", &INTS, |at| &(&at.x() * &at.int(-1)) + &at.x());

    cases.each("mul_one", all, |at| &at.x() * &at.c(1.0));
    cases.each("mul_zero", &exact, |at| &at.x() * &at.int(0));
    cases.each("mul_constants", &exact, |at| {
        &(&at.x() * &at.int(37)) * &at.int(91)
    });
    cases.each("mul_minus_one_twice", &FLOATS, |at| -&-&at.x());
    for c in [0.3, -7.0, 0.0, f64::INFINITY, f64::NAN, 1e-40] {
        let opposite = |at: &At| &-&at.x() * &at.c(c);
        cases.each("mul_negated_constant", &FLOATS, opposite);
        let product = |at: &At| -&(&at.x() * &at.c(c));
        cases.each("mul_negated_constant", &FLOATS, product);
    }
    cases.each("div_by_one", &FLOATS, |at| &at.x() / &at.c(1.0));
    cases.each("mulacc_one", &numbers, |at| {
        at.x().mulacc(&at.c(1.0), &at.y()).unwrap()
    });

    cases.each("max_same", all, |at| at.x().maximum(&at.x()).unwrap());
    cases.each("max_least", all, |at| {
        let least = Scalar::identity(ReduceOp::Max, at.dtype);
        at.x()
            .maximum(&UOp::full(least, at.x().shape()).unwrap())
            .unwrap()
    });
    for (c, d) in [
        (1.0, 2.0),
        (-0.0, 0.0),
        (0.0, -0.0),
        (f64::NAN, 1.0),
        (1.0, f64::NAN),
    ] {
        cases.each("max_constants", all, |at| {
            at.x().maximum(&at.c(c)).unwrap().maximum(&at.c(d)).unwrap()
        });
    }
    cases.each("max_decided", &INTS, |at| {
        let high = &at.other_below(4) + &at.int(3);
        at.below(4).maximum(&high).unwrap()
    });
    cases.each("max_decided", &INTS, |at| {
        at.below(4).maximum(&at.int(0)).unwrap()
    });
}

fn bits_and_casts(cases: &mut Cases) {
    let exact: Vec<DType> = INTS.into_iter().chain([DType::Bool]).collect();
    cases.each("and_zero", &exact, |at| at.x().and(&at.int(0)).unwrap());
    cases.each("and_ones", &exact, |at| at.x().and(&at.int(-1)).unwrap());
    cases.each("or_zero", &exact, |at| at.x().or(&at.int(0)).unwrap());
    cases.each("or_zero", &exact, |at| at.x().xor(&at.int(0)).unwrap());
    cases.each("or_ones", &exact, |at| at.x().or(&at.int(-1)).unwrap());
    cases.each("and_same", &exact, |at| at.x().and(&at.x()).unwrap());
    cases.each("and_same", &exact, |at| at.x().or(&at.x()).unwrap());
    cases.each("xor_same", &exact, |at| at.x().xor(&at.x()).unwrap());
    cases.each("and_repeated", &exact, |at| {
        at.x().and(&at.y()).unwrap().and(&at.x()).unwrap()
    });
    cases.each("and_repeated", &exact, |at| {
        let (a, b) = (at.x().and(&at.y()), at.y().and(&at.z()));
        a.unwrap().and(&b.unwrap()).unwrap()
    });
    for which in [Op::And, Op::Or, Op::Xor] {
        cases.each("bits_constants", &exact, |at| {
            let inner = op(which.clone(), &[at.x(), at.int(29)]);
            op(which.clone(), &[inner, at.int(51)])
        });
    }
    cases.each("shift_by_zero", &INTS, |at| at.x().shl(&at.int(0)).unwrap());
    cases.each("shift_by_zero", &INTS, |at| at.x().shr(&at.int(0)).unwrap());

    cases.each("cast_same", &DType::ALL, |at| {
        op(Op::Cast(at.dtype), &[at.x()])
    });
    cases.each("cast_same", &DType::ALL, |at| {
        op(Op::Bitcast(at.dtype), &[at.x()])
    });
    // Whichever pairs of casts the rule takes for one, they are compared.
    for from in DType::ALL {
        for mid in DType::ALL {
            for to in DType::ALL {
                let inner = op(Op::Cast(mid), &[At { dtype: from }.x()]);
                let input = op(Op::Cast(to), &[inner]);
                if super::fire(super::rule("cast_cast"), &input).1 > 0 {
                    cases.put("cast_cast", input);
                }
            }
        }
    }
}

fn select(cases: &mut Cases) {
    let all = &DType::ALL;
    cases.each("value_known", &INTS, |at| at.below(1));
    cases.each("value_known", &INTS, |at| {
        at.below(4).cmplt(&at.int(4)).unwrap()
    });
    cases.each("value_known", &INTS, |at| {
        at.int(3).cmplt(&at.below(4)).unwrap()
    });
    cases.each("value_known", &INTS, |at| {
        at.below(4).cmpne(&at.int(5)).unwrap()
    });
    cases.each("value_known", &INTS, |at| at.x().cmpne(&at.x()).unwrap());
    cases.each("value_known", &INTS, |at| {
        at.below(4).floordiv(&at.int(4)).unwrap()
    });
    cases.each("value_known", &INTS, |at| {
        at.x().floordiv(&at.int(0)).unwrap()
    });
    cases.each("value_known", &INTS, |at| {
        at.x().floormod(&at.int(0)).unwrap()
    });
    cases.each("value_known", &INTS, |at| {
        let condition = at.below(4).cmplt(&at.int(4)).unwrap();
        condition.where_(&at.other_below(1), &at.x()).unwrap()
    });
    cases.each("cmplt_same", all, |at| at.x().cmplt(&at.x()).unwrap());
    for truth in [true, false] {
        cases.each("cmpne_truth", &[DType::Bool], |at| {
            at.x().cmpne(&at.truth(truth)).unwrap()
        });
        cases.each("where_constant", all, |at| {
            at.truth(truth).where_(&at.x(), &at.y()).unwrap()
        });
        cases.each("where_truth", &[DType::Bool], |at| {
            at.x().where_(&at.truth(truth), &at.truth(!truth)).unwrap()
        });
    }
    cases.each("where_same_arms", all, |at| {
        at.condition().where_(&at.z(), &at.z()).unwrap()
    });
    cases.each("where_not", all, |at| {
        let inverted = at.condition().logical_not().unwrap();
        inverted.where_(&at.x(), &at.z()).unwrap()
    });
    cases.each("where_nested", all, |at| {
        let inner = at.condition().where_(&at.x(), &at.y()).unwrap();
        at.condition().where_(&inner, &at.z()).unwrap()
    });
    cases.each("where_nested", all, |at| {
        let inner = at.condition().where_(&at.x(), &at.y()).unwrap();
        at.condition().where_(&at.z(), &inner).unwrap()
    });
}

fn divmod(cases: &mut Cases) {
    let div = |a: &UOp, b: &UOp| a.floordiv(b).unwrap();
    let rem = |a: &UOp, b: &UOp| a.floormod(b).unwrap();
    let signed = &INTS[..4];
    cases.each("div_one", &INTS, |at| div(&at.x(), &at.int(1)));
    cases.each("div_of_div", &INTS, |at| {
        div(&div(&at.x(), &at.int(3)), &at.int(5))
    });
    cases.each("div_of_mod", &INTS, |at| {
        div(&rem(&at.x(), &at.int(12)), &at.int(4))
    });
    cases.each("mod_small", &INTS, |at| rem(&at.below(5), &at.int(7)));
    cases.each("mod_of_mod", &INTS, |at| {
        rem(&rem(&at.x(), &at.int(12)), &at.int(4))
    });

    // 12 a + 4 b + c with c in 0..4 splits by 4; divisors that 4 divides, or that divide it.
    let sum = |at: &At| {
        let (a, b) = (&at.below(5) * &at.int(12), &at.other_below(3) * &at.int(4));
        let c = rem(&div(&at.y(), &at.int(3)), &at.int(4));
        &(&a + &b) + &c
    };
    for c in [4, 8, 16, 20] {
        cases.each("div_of_sum", &INTS, |at| div(&sum(at), &at.int(c)));
        cases.each("mod_of_sum", &INTS, |at| rem(&sum(at), &at.int(c)));
    }
    for (factor, shift) in [(-4, 1), (-8, -3), (4, -100)] {
        let sum =
            |at: &At| &(&(&at.below(5) * &at.int(factor)) + &at.other_below(3)) + &at.int(shift);
        cases.each("div_of_sum", signed, |at| div(&sum(at), &at.int(4)));
        cases.each("mod_of_sum", signed, |at| rem(&sum(at), &at.int(4)));
    }

    // Comparisons of sums and quotients, and remainders of which the quotient is known.
    let less = |a: &UOp, b: &UOp| a.cmplt(b).unwrap();
    cases.each("mod_known", signed, |at| {
        rem(&(&at.below(5) + &at.int(7)), &at.int(6))
    });
    cases.each("mod_known", signed, |at| {
        rem(&(&at.below(5) + &at.int(-6)), &at.int(6))
    });
    for (shift, limit) in [(100, 102), (1, 3), (-2, 1), (-2, -1)] {
        let dtypes = if shift < 0 { signed } else { &INTS };
        cases.each("cmplt_add", dtypes, |at| {
            less(&(&at.below(5) + &at.int(shift)), &at.int(limit))
        });
        cases.each("cmplt_add", dtypes, |at| {
            less(&at.int(limit), &(&at.below(5) + &at.int(shift)))
        });
    }
    for limit in [4, 0, -2] {
        let dtypes = if limit < 0 { signed } else { &INTS };
        cases.each("cmplt_div", dtypes, |at| {
            less(&div(&at.x(), &at.int(3)), &at.int(limit))
        });
        cases.each("cmplt_div", dtypes, |at| {
            less(&at.int(limit), &div(&at.x(), &at.int(3)))
        });
    }
    for limit in [4, 8, 24, 36] {
        cases.each("cmplt_sum", &INTS, |at| less(&sum(at), &at.int(limit)));
        cases.each("cmplt_sum", &INTS, |at| less(&at.int(limit - 1), &sum(at)));
        cases.each("cmplt_sum", signed, |at| {
            let down = &(&at.below(5) * &at.int(-4)) + &at.other_below(3);
            less(&(&down + &at.int(1)), &at.int(8 - limit))
        });
    }

    // Digits of any number, negative ones too, and whatever wraps.
    for factor in [1, 5, -3] {
        cases.each("add_digits", &INTS, |at| {
            let low = &rem(&at.x(), &at.int(3)) * &at.int(factor);
            let high = &rem(&div(&at.x(), &at.int(3)), &at.int(4)) * &at.int(3 * factor);
            &high + &low
        });
        cases.each("add_digits", &INTS, |at| {
            let low = &rem(&div(&at.x(), &at.int(2)), &at.int(3)) * &at.int(factor);
            let high = &div(&at.x(), &at.int(6)) * &at.int(3 * factor);
            &(&low + &at.y()) + &high
        });
    }
}

fn movement(cases: &mut Cases) {
    let all = &DType::ALL;
    let numbers: Vec<DType> = INTS.into_iter().chain(FLOATS).collect();
    let dims = [3, 12, 9];
    let cube = |at: &At| at.x().reshape(&dims).unwrap();
    cases.each("empty_zero", all, |at| {
        let nothing = at.x().shrink(&[(2, 2)]).unwrap();
        UOp::new(Op::Add, [nothing.clone(), nothing].as_slice()).unwrap()
    });
    cases.each("move_constant", all, |at| at.c(3.0).reshape(&dims).unwrap());
    cases.each("move_constant", all, |at| {
        at.c(3.0).shrink(&[(1, 4)]).unwrap()
    });
    cases.each("move_nothing", all, |at| {
        op(Op::Reshape(Shape::new(&[N])), &[at.x()])
    });
    cases.each("move_nothing", all, |at| {
        op(Op::Expand(Shape::new(&[N])), &[at.x()])
    });
    cases.each("move_nothing", all, |at| {
        op(Op::Permute([0, 1, 2].into()), &[cube(at)])
    });
    cases.each("move_nothing", all, |at| {
        op(Op::Shrink([(0, N)].into()), &[at.x()])
    });
    cases.each("reshape_reshape", all, |at| {
        cube(at).reshape(&[4, 81]).unwrap()
    });
    cases.each("expand_expand", all, |at| {
        let thin = at.x().reshape(&[1, N, 1]).unwrap();
        thin.expand(&[2, N, 1]).unwrap().expand(&[2, N, 3]).unwrap()
    });
    cases.each("permute_permute", all, |at| {
        cube(at)
            .permute(&[1, 2, 0])
            .unwrap()
            .permute(&[2, 1, 0])
            .unwrap()
    });
    cases.each("permute_permute", all, |at| {
        cube(at)
            .permute(&[1, 2, 0])
            .unwrap()
            .permute(&[2, 0, 1])
            .unwrap()
    });
    cases.each("shrink_shrink", all, |at| {
        let outer = cube(at).shrink(&[(1, 3), (2, 11), (0, 9)]).unwrap();
        outer.shrink(&[(0, 1), (3, 5), (4, 9)]).unwrap()
    });
    cases.each("iota_one", &INTS, |at| UOp::iota(1, at.dtype).unwrap());
    cases.each("stack_one", all, |at| UOp::stack(&[at.x()]).unwrap());
    cases.each("stack_constant", all, |at| {
        UOp::stack(&[at.c(3.0), at.c(3.0)]).unwrap()
    });
    cases.each("stack_constant", &FLOATS, |at| {
        UOp::stack(&[at.c(f64::NAN), at.c(f64::NAN)]).unwrap()
    });
    for index in INTS {
        let at_index = |k: i64, shape: &[usize]| {
            let k = Scalar::from_i128(index, k as i128);
            UOp::full(k, &Shape::new(shape)).unwrap()
        };
        cases.each("index_stack", &numbers, |at| {
            let pair = UOp::stack(&[cube(at), at.y().reshape(&dims).unwrap()]).unwrap();
            pair.index(&[at_index(1, &[])]).unwrap()
        });
        cases.each("index_stack", &numbers, |at| {
            let pair = UOp::stack(&[cube(at), at.y().reshape(&dims).unwrap()]).unwrap();
            pair.index(&[at_index(0, &[2]), at_index(2, &[2])]).unwrap()
        });
        for (a, b) in [(2, 11), (0, 12), (3, 0), (-1, 0)] {
            cases.each("index_constant", &numbers, |at| {
                cube(at)
                    .index(&[at_index(a, &[2, 1]), at_index(b, &[2, 1])])
                    .unwrap()
            });
        }
    }
}

fn reduce(cases: &mut Cases) {
    let all = &DType::ALL;
    let exact: Vec<DType> = INTS.into_iter().chain([DType::Bool]).collect();
    let reduce = |x: &UOp, op: ReduceOp, n: usize| x.reduce_as(op, n, Fold::Lanes).unwrap();
    for which in ReduceOp::ALL.iter().copied() {
        cases.each("reduce_empty", all, |at| {
            let empty = at.matrix(12).shrink(&[(0, 12), (3, 3)]).unwrap();
            reduce(&empty, which, 1)
        });
        cases.each("reduce_one", all, |at| {
            reduce(&at.x().reshape(&[N, 1, 1]).unwrap(), which, 2)
        });
        let dtypes: &[DType] = if which == ReduceOp::Max { all } else { &exact };
        cases.each("reduce_reduce", dtypes, |at| {
            let cube = at.x().reshape(&[3, 12, 9]).unwrap();
            reduce(&reduce(&cube, which, 1), which, 1)
        });
    }
    cases.each("sum_constant", &exact, |at| {
        reduce(&at.c(5.0), ReduceOp::Add, 1)
    });
    cases.each("sum_constant", &exact, |at| {
        reduce(&at.c(0.0), ReduceOp::Add, 1)
    });
    for value in [5.0, -0.0, f64::NAN] {
        cases.each("max_constant", all, |at| {
            reduce(&at.c(value), ReduceOp::Max, 1)
        });
    }
}
