//! Affine index arithmetic against the values that the expressions have: random expressions at all
//! points of small loops.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::Result;
use uopc::ir::affine::{Linear, coefficient, is_exact};
use uopc::ir::bounds::Bounds;
use uopc::ir::op::{Exec, Op};
use uopc::ir::scalar::apply;
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Scalar, UOp};

const EXTENTS: [i64; 3] = [3, 5, 8];

/// An integer expression of three loops, of moderate or of extreme size.
fn expression(ranges: &[UOp], rng: &mut SmallRng) -> Result<UOp> {
    let constant = |rng: &mut SmallRng| {
        let moderate = rng.random_range(-20..20);
        let value = match rng.random_range(0..12) {
            0 => rng.random_range(i32::MIN..i32::MAX) as i64,
            1..4 => 8 << rng.random_range(0..3),
            _ => moderate,
        };
        UOp::int(value, DType::I32)
    };
    let mut pool: Vec<UOp> = ranges.to_vec();
    for id in 0..rng.random_range(1..9) {
        let any = |rng: &mut SmallRng| pool[rng.random_range(0..pool.len())].clone();
        let (a, b, k) = (any(rng), any(rng), constant(rng));
        pool.push(match rng.random_range(0..11) {
            0..3 => a.add(&b)?,
            3 => a.add(&k)?,
            4..6 => a.mul(&k)?,
            6 => a.floordiv(&k)?,
            7 => a.floormod(&k)?,
            8 => a.maximum(&b)?,
            9 => a.cmplt(&k)?.where_(&b, &k)?,
            _ => UOp::new(Op::Let { id }, [a].as_slice())?,
        });
    }
    Ok(pool.pop().unwrap_or_else(|| ranges[0].clone()))
}

/// The value at a point.
fn value(u: &UOp, at: &BTreeMap<usize, i64>) -> i128 {
    let mut known: BTreeMap<usize, Scalar> = BTreeMap::new();
    for node in toposort(std::slice::from_ref(u)) {
        let src: Vec<Scalar> = (node.src().iter())
            .filter_map(|s| known.get(&s.address()).copied())
            .collect();
        let value = match node.op() {
            Op::Const(value) => *value,
            Op::Range { .. } => Scalar::from_i128(DType::I32, at[&node.address()] as i128),
            Op::Let { .. } => src[0],
            op => apply(op, node.dtype(), &src),
        };
        known.insert(node.address(), value);
    }
    known[&u.address()].as_i128()
}

#[test]
fn sums_and_coefficients_are_those_of_the_values() -> Result<()> {
    let mut rng = SmallRng::seed_from_u64(0xaff1);
    let ranges: Vec<UOp> = (0u32..)
        .zip(EXTENTS)
        .map(|(id, n)| UOp::range(&UOp::int(n, DType::I32), id, Exec::Serial))
        .collect::<Result<_>>()?;
    let v = &ranges[2];
    // How often each answer was given, so that none is untested.
    let (mut exact_sums, mut moving, mut still, mut unknown) = (0, 0, 0, 0);
    for _ in 0..1000 {
        let u = expression(&ranges, &mut rng)?;
        let mut bounds = Bounds::new();
        let sum = Linear::of(&u);
        let exact = is_exact(&u, &mut bounds);
        let grows = coefficient(&u, v, &mut bounds);
        exact_sums += exact as u32;
        match grows {
            None => unknown += 1,
            Some(0) => still += 1,
            Some(_) => moving += 1,
        }
        for (i, j) in (0..EXTENTS[0]).flat_map(|i| (0..EXTENTS[1]).map(move |j| (i, j))) {
            let point = |k: i64| {
                let at = ranges.iter().map(UOp::address).zip([i, j, k]);
                at.collect::<BTreeMap<usize, i64>>()
            };
            let first = value(&u, &point(0));
            for k in 0..EXTENTS[2] {
                let at = point(k);
                let found = value(&u, &at);
                let terms = sum.terms.iter().map(|(term, by)| value(term, &at) * by);
                let by_terms = terms.sum::<i128>() + sum.constant;
                assert_eq!(by_terms as i32 as i128, found, "{u:?} is its sum, wrapped");
                if exact {
                    assert_eq!(by_terms, found, "an exact sum does not wrap");
                    let divisor = sum.divisor();
                    let divides = if divisor == 0 {
                        found == 0
                    } else {
                        found % divisor == 0
                    };
                    assert!(divides, "{divisor} divides {found}");
                    let interval = sum.bounds(&mut bounds).expect("small numbers have bounds");
                    assert!(interval.lo <= found && found <= interval.hi);
                }
                if let Some(by) = grows {
                    let expected = (first + by * k as i128) as i32 as i128;
                    assert_eq!(found, expected, "each round adds {by}");
                }
            }
        }
    }
    assert!(exact_sums > 200 && moving > 100 && still > 100 && unknown > 50);
    Ok(())
}
