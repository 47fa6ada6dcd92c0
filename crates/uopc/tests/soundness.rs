//! Every rule keeps every bit: each is fired alone on inputs made for it, and the values before
//! and after are compared on NaN, both zeros, infinities, extreme integers and random numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use case::{Case, shrink};
use uopc::debug::Settings;
use uopc::interp::{Array, graph};
use uopc::ir::bounds::Bounds;
use uopc::ir::op::{BufferId, Fold, ReduceOp};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Op, Scalar, Shape, UOp, verify};
use uopc::pass::simplify::{simplify_scalars, simplify_shapes};
use uopc::rewrite::{Limits, Rule, RuleSet, Validity, rewrite};
use uopc::rules::{SCALAR_TABLES, SHAPE_TABLES, all};

#[path = "support/case.rs"]
mod case;
mod cases;
#[path = "support/random_graph.rs"]
mod random_graph;

/// How many values of each dtype meet each other.
const VALUES: usize = 18;
/// Elements of a test buffer: every pair of values.
const N: usize = VALUES * VALUES;

/// Special values of a dtype, and random ones.
fn values(dtype: DType) -> Vec<Scalar> {
    let mut out: Vec<Scalar> = if dtype.is_float() {
        let one = Scalar::from_f64(dtype, 1.0);
        let tiny = Scalar::from_bits(dtype, 1);
        let next = Scalar::from_bits(dtype, one.bits() + 1);
        let floats = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -0.0,
            -1.0,
            0.1,
            3.0,
            -7.5,
            1e4,
        ];
        let largest = Scalar::from_bits(dtype, Scalar::from_f64(dtype, f64::INFINITY).bits() - 1);
        let floats = floats.map(|v| Scalar::from_f64(dtype, v));
        [one, tiny, next, largest]
            .into_iter()
            .chain(floats)
            .collect()
    } else {
        let (lo, hi) = dtype.int_range().unwrap();
        let ints = [lo, lo + 1, hi, hi - 1, 0, 1, -1, 2, 3, 4, 5, 7, -3, 12];
        ints.map(|v| Scalar::from_i128(dtype, v)).to_vec()
    };
    let mut random = SmallRng::seed_from_u64(dtype as u64);
    while out.len() < VALUES {
        out.push(Scalar::from_bits(dtype, random.random()));
    }
    out
}

/// The contents of a buffer: in slot 0 each value `VALUES` times, in slot 1 all values in turn,
/// in others shifted, so that all pairs meet.
fn contents(u: &UOp) -> Option<Array> {
    let Op::Buffer {
        id: BufferId::Slot(slot),
        dtype,
        n,
    } = u.op()
    else {
        return None;
    };
    let values = values(*dtype);
    let at = |i: usize| match slot {
        0 => values[i / VALUES % VALUES],
        _ => values[(i + (*slot as usize - 1) * (i / VALUES + 1)) % VALUES],
    };
    let data: Vec<Scalar> = (0..*n).map(at).collect();
    Array::from_scalars(*dtype, &[*n], &data).ok()
}

fn evaluate(u: &UOp) -> Array {
    graph::eval(std::slice::from_ref(u), &contents)
        .unwrap()
        .remove(0)
}

fn assert_same(before: &UOp, after: &UOp, what: &str) {
    let (a, b) = (evaluate(before), evaluate(after));
    assert_eq!(a.shape(), b.shape(), "{what}");
    for (i, (x, y)) in a.scalars().zip(b.scalars()).enumerate() {
        assert!(
            Scalar::same(x, y),
            "{what}: element {i} was {x}, is {y}\n{}; ----\n{}",
            before.to_uir(),
            after.to_uir()
        );
    }
}

/// What a licence promises: where all buffers hold finite numbers, the elements are the same, up to
/// the sign of a zero.
fn assert_same_for_finite_numbers(before: &UOp, after: &UOp, what: &str) {
    let finite = |u: &UOp| {
        let array = contents(u)?;
        let one = Scalar::one(array.dtype());
        let finite = |v: Scalar| if v.as_f64().is_finite() { v } else { one };
        let data: Vec<Scalar> = array.scalars().map(finite).collect();
        Array::from_scalars(array.dtype(), array.shape(), &data).ok()
    };
    let value = |u: &UOp| {
        graph::eval(std::slice::from_ref(u), &finite)
            .unwrap()
            .remove(0)
    };
    let (a, b) = (value(before), value(after));
    assert_eq!(a.shape(), b.shape(), "{what}");
    for (i, (x, y)) in a.scalars().zip(b.scalars()).enumerate() {
        let zeros = x.as_f64() == 0.0 && y.as_f64() == 0.0;
        assert!(
            Scalar::same(x, y) || zeros,
            "{what}: element {i} was {x}, is {y}"
        );
    }
}

/// The root after the rule alone was applied, and how often it fired.
fn fire(rule: Rule, u: &UOp) -> (UOp, u64) {
    let set = RuleSet::new("one rule", &[&[rule]]);
    let mut done = rewrite(std::slice::from_ref(u), &set, &Limits::default(), None).unwrap();
    let fired = done.fired.iter().map(|(_, n)| n).sum();
    (done.roots.remove(0), fired)
}

fn rule(name: &str) -> Rule {
    let found = all().into_iter().find(|r| r.name == name);
    found.unwrap_or_else(|| panic!("there is no rule {name}"))
}

#[test]
fn every_rule_keeps_every_bit_where_it_fires() {
    let mut fired: BTreeMap<&str, u64> = BTreeMap::new();
    for case in cases::all() {
        let rule = rule(case.rule);
        let (after, times) = fire(rule, &case.input);
        let what = format!("{} on {}", case.rule, case.input.to_uir());
        assert!(times > 0, "{what} does not fire");
        *fired.entry(rule.name).or_default() += times;
        if cases::in_loops(case.rule) {
            cases::assert_same_in_loops(&case.input, &after, &what);
        } else if rule.validity == Validity::Licensed {
            assert_same_for_finite_numbers(&case.input, &after, &what);
        } else {
            assert_same(&case.input, &after, &what);
        }
    }
    for rule in all() {
        assert!(fired.contains_key(rule.name), "no case fires {}", rule.name);
    }
}

#[test]
fn a_rule_fires_only_on_the_dtypes_it_is_valid_for() {
    // Every rule is tried on every case, not only on its own.
    let rules = all();
    let mut tried = 0;
    for case in cases::all() {
        let u = &case.input;
        let compared = matches!(u.op(), Op::CmpLt | Op::CmpNe);
        let dtype = if compared {
            u.src()[0].dtype()
        } else {
            u.dtype()
        };
        for rule in rules.iter().filter(|r| r.ops.contains(&u.op().mnemonic())) {
            tried += 1;
            let fired = (rule.apply)(u, &mut Bounds::new()).is_ok();
            let valid = match rule.validity {
                Validity::Any => true,
                Validity::Int => !dtype.is_float(),
                Validity::FloatExact | Validity::Licensed => dtype.is_float(),
            };
            assert!(
                valid || !fired,
                "{} fired on {dtype}\n{}",
                rule.name,
                u.to_uir()
            );
        }
    }
    assert!(tried > 10_000, "only {tried} tries");
}

#[test]
fn a_rule_says_its_algebra_and_the_ops_it_is_tried_on() {
    let rules = all();
    for (k, rule) in rules.iter().enumerate() {
        assert!(rule.algebra.contains("=>"), "{} has no algebra", rule.name);
        for op in rule.ops {
            let known = uopc::ir::op::OPS.iter().any(|info| info.mnemonic == *op);
            assert!(known, "{} is tried on {op}, which is no op", rule.name);
        }
        let again = rules[k + 1..].iter().any(|r| r.name == rule.name);
        assert!(!again, "two rules are called {}", rule.name);
    }
}

#[test]
fn every_rule_has_a_golden_file_that_names_it() {
    let mut named = String::new();
    for folder in ["simplify", "simplify_loops"] {
        let folder = format!("{}/tests/golden/{folder}", env!("CARGO_MANIFEST_DIR"));
        for entry in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let fires = text
                .lines()
                .filter_map(|line| line.strip_prefix("; fires: "));
            fires.for_each(|names| named.push_str(&format!(", {names}")));
        }
    }
    let named: BTreeSet<&str> = named.split(", ").collect();
    let unnamed: Vec<&str> = (all().iter().map(|r| r.name))
        .filter(|name| !named.contains(name))
        .collect();
    assert!(
        unnamed.is_empty(),
        "no golden file says that these fire: {unnamed:?}"
    );
}

/// Random expressions, all rules together.
struct Expressions {
    random: SmallRng,
    dtype: DType,
}

impl Expressions {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())].clone()
    }

    fn constant(&mut self) -> UOp {
        let value = if self.random.random_bool(0.6) {
            let small = [0, 1, -1, 2, 3, 4, 6, 8, 12];
            Scalar::from_i128(self.dtype, self.pick(&small))
        } else {
            self.pick(&values(self.dtype))
        };
        UOp::full(value, &Shape::new(&[N])).unwrap()
    }

    /// An expression over two buffers of the dtype, grown from the leaves.
    fn grow(&mut self, steps: usize) -> UOp {
        let mut pool = vec![UOp::slot(0, self.dtype, N), UOp::slot(1, self.dtype, N)];
        if self.dtype.is_int() {
            // What a loop counter is: bounds are known.
            for (n, divisor) in [(4, 1), (6, 2)] {
                let range = Scalar::from_i128(self.dtype, n);
                let range = UOp::full(range, &Shape::new(&[N])).unwrap();
                let divisor = UOp::full(Scalar::from_i128(self.dtype, divisor), &Shape::new(&[N]));
                let x = pool[0].floormod(&range).unwrap();
                pool.push(x.floordiv(&divisor.unwrap()).unwrap());
            }
        }
        for _ in 0..steps {
            let recent = &pool[pool.len().saturating_sub(5)..].to_vec();
            let a = self.pick(recent);
            let b = if self.random.random_bool(0.5) {
                self.constant()
            } else {
                self.pick(recent)
            };
            let arithmetic = [Op::Add, Op::Add, Op::Mul, Op::Mul, Op::Max];
            let of_ints = [
                Op::FloorDiv,
                Op::FloorMod,
                Op::FloorDiv,
                Op::FloorMod,
                Op::And,
                Op::Or,
            ];
            let more_of_ints = [Op::Xor, Op::Shl, Op::Shr];
            let mut ops = arithmetic.to_vec();
            if self.dtype.is_int() {
                ops.extend(of_ints);
                ops.extend(more_of_ints);
            } else {
                ops.push(Op::Div);
            }
            let next = match self.random.random_range(0..8) {
                0 => {
                    let compare = if self.random.random_bool(0.5) {
                        Op::CmpLt
                    } else {
                        Op::CmpNe
                    };
                    let condition = UOp::new(compare, [a.clone(), b.clone()].as_slice()).unwrap();
                    condition.where_(&a, &self.pick(recent)).unwrap()
                }
                1 => b.add(&a).unwrap(),
                _ => UOp::new(self.pick(&ops), [a, b].as_slice()).unwrap(),
            };
            pool.push(next);
        }
        pool.pop().unwrap()
    }
}

#[test]
fn all_rules_together_keep_every_bit_of_random_expressions() {
    let random = SmallRng::seed_from_u64(7);
    let mut expressions = Expressions {
        random,
        dtype: DType::I8,
    };
    let dtypes = [
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F32,
        DType::F16,
    ];
    for k in 0..1500 {
        expressions.dtype = dtypes[k % dtypes.len()];
        let input = expressions.grow(3 + k % 9);
        for tables in [SHAPE_TABLES, SCALAR_TABLES] {
            let rules = RuleSet::new("all", tables);
            let roots = std::slice::from_ref(&input);
            let done = rewrite(roots, &rules, &Limits::default(), None).unwrap();
            assert_same(&input, &done.roots[0], &format!("expression {k}"));
            let again = rewrite(&done.roots, &rules, &Limits::default(), None).unwrap();
            assert_eq!(
                again.roots, done.roots,
                "expression {k} is not in normal form"
            );
        }
    }
}

#[test]
fn fuel_stops_after_that_many_firings_and_keeps_the_value() {
    let random = SmallRng::seed_from_u64(8);
    let mut expressions = Expressions {
        random,
        dtype: DType::I16,
    };
    for k in 0..40 {
        let input = expressions.grow(12);
        for fuel in 0..6 {
            let settings = Settings {
                fuel: Some(fuel),
                ..Settings::default()
            };
            let after = simplify_scalars(std::slice::from_ref(&input), &settings).unwrap();
            assert_same(
                &input,
                &after[0],
                &format!("expression {k} with fuel {fuel}"),
            );
        }
    }
}

#[test]
fn a_chain_never_shows_another_product_than_it_summed() {
    // Written down by hand: chains of rounded products, from which rules take the rounding op.
    let ramp = |divisor: f64| {
        let numbers = UOp::iota(N, DType::I32).unwrap().cast(DType::F32).unwrap();
        let ramp = &numbers / &numbers.full_like(divisor).unwrap();
        ramp.reshape(&[VALUES, VALUES]).unwrap()
    };
    let product = ramp(7.0).mul(&ramp(3.0)).unwrap();
    let chain = |x: &UOp| x.reduce_as(ReduceOp::Add, 1, Fold::Chain).unwrap();
    let one = product.full_like(1.0).unwrap();
    let minus_zero = product.full_like(-0.0).unwrap();
    for source in [&product + &minus_zero, &product * &one] {
        let input = chain(&source);
        let rules = uopc::rules::shape_rules();
        let roots = std::slice::from_ref(&input);
        let done = rewrite(roots, &rules, &Limits::default(), None).unwrap();
        assert_same(&input, &done.roots[0], "chain");
        // The sum of the products themselves is another one, so the comparison can fail.
        assert_ne!(evaluate(&input), evaluate(&chain(&product)));
    }
}

/// True if the shape rules change a value of a random graph, or would fire again.
fn is_changed(case: &Case) -> bool {
    let graph = verify::shape_graph(case.roots.clone()).unwrap();
    let (simple, map) = simplify_shapes(&graph, &Settings::default()).unwrap();
    let (again, _) = simplify_shapes(&simple, &Settings::default()).unwrap();
    let before = case.values().unwrap();
    let after = graph::eval(simple.roots(), &|u| case.bind(u)).unwrap();
    let same = |(a, b): (&Array, &Array)| {
        let bits = a.scalars().zip(b.scalars());
        a.shape() == b.shape() && bits.into_iter().all(|(x, y)| Scalar::same(x, y))
    };
    map.len() != toposort(&case.roots).len()
        || again != simple
        || !before.iter().zip(&after).all(same)
}

#[test]
fn shape_rules_keep_every_bit_of_random_graphs() {
    for seed in 0..300 {
        let case = random_graph::generate(seed);
        if is_changed(&case) {
            panic!("seed {seed}\n{}", shrink(&case, &is_changed).text());
        }
    }
}
