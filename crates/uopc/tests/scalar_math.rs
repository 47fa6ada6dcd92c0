//! EXP, EXP2, LOG2 and SIN: how accurate they are, and where they must be exact.
//!
//! f32 is compared with the f64 functions of the system's library, whose errors are far below the
//! last place of an f32; f64 with results of high precision (`fixtures/scalar_math.py`). Errors
//! are in units of the last place of the result (ulp).

use uopc::ir::dtype::DType;
use uopc::ir::op::Op;
use uopc::ir::scalar::{Scalar, apply, math};

/// The size of the last place of an f32 near y.
fn last_place(y: f64) -> f64 {
    let exponent = (y.abs().to_bits() >> 52) as i32 - 1023;
    2f64.powi(exponent.clamp(-126, 127) - 23)
}

/// The largest errors over the f32 range: among normal results, among subnormal ones.
fn errors(ours: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> [f64; 2] {
    let mut worst = [0.0f64; 2];
    for bits in (0..=u32::MAX).step_by(1999) {
        let x = f32::from_bits(bits);
        let (y, z) = (ours(x), exact(x as f64));
        assert_eq!(y.is_nan(), z.is_nan(), "at {x:e}");
        if z.is_nan() || (z as f32 == y && y.is_infinite()) {
            continue;
        }
        // Infinity counts as the number that would follow the largest.
        let y = if y.is_infinite() {
            2f64.powi(128).copysign(y as f64)
        } else {
            y as f64
        };
        let subnormal = (z as f32).abs() < f32::MIN_POSITIVE;
        let error = (y - z).abs() / last_place(z);
        worst[subnormal as usize] = worst[subnormal as usize].max(error);
    }
    worst
}

fn check(name: &str, [normal, subnormal]: [f64; 2]) {
    println!("{name}: {normal:.3} ulp, subnormal results {subnormal:.3} ulp");
    // Half an ulp is the last rounding's; a subnormal result is rounded once more.
    assert!(
        normal < 0.75 && subnormal < 0.85,
        "{name}: {normal} and {subnormal} ulp"
    );
}

#[test]
fn f32_functions_are_accurate() {
    check("exp", errors(math::exp, f64::exp));
    check("exp2", errors(math::exp2, f64::exp2));
    check("log2", errors(math::log2, f64::log2));
}

#[test]
fn f32_sine_is_accurate_at_every_quarter_turn() {
    let sin = |k| move |x: f32| math::sin::sin_f32(x, k);
    check("sin", errors(sin(0), f64::sin));
    check("cos", errors(sin(1), f64::cos));
    check("-sin", errors(sin(2), |x| -x.sin()));
    check("-cos", errors(sin(3), |x| -x.cos()));
}

#[test]
fn f64_functions_are_accurate() {
    let mut worst = std::collections::BTreeMap::new();
    for line in include_str!("fixtures/scalar_math.txt").lines() {
        let [name, x, z, rest] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("malformed line {line}");
        };
        let number = |bits| u64::from_str_radix(bits, 16).expect("hexadecimal bits");
        let (x, z) = (f64::from_bits(number(x)), number(z) as i64);
        let y = match name {
            "exp" => math::exp(x),
            "exp2" => math::exp2(x),
            "log2" => math::log2(x),
            "sin" => math::sin::sin_f64(x, 0),
            _ => math::sin::sin_f64(x, 1),
        };
        // Neighbours of one sign differ by one as integers, which grow with the magnitude.
        let rest: f64 = rest.parse().expect("a number");
        let rest = rest * f64::from_bits(z as u64).signum() / 1024.0;
        let error = ((y.to_bits() as i64).wrapping_sub(z) as f64 - rest).abs();
        assert!(error < 0.8, "{name}({x:e}): {error} ulp");
        let worst = worst.entry(name).or_insert(0.0f64);
        *worst = worst.max(error);
    }
    println!("{worst:?}");
    assert_eq!(worst.len(), 5);
}

/// Every float dtype goes through `apply`, so these hold for all of them.
#[test]
fn special_values() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let f = |op: &Op, x: f64| apply(op, dtype, &[Scalar::from_f64(dtype, x)]);
        let expect = |op: Op, x: f64, y: f64| {
            let (found, expected) = (f(&op, x), Scalar::from_f64(dtype, y));
            assert!(
                Scalar::same(found, expected),
                "{op:?} of {x} in {dtype}: {found}, not {expected}"
            );
        };
        let infinity = f64::INFINITY;
        for op in [Op::Exp, Op::Exp2] {
            expect(op.clone(), 0.0, 1.0);
            expect(op.clone(), -0.0, 1.0);
            expect(op.clone(), infinity, infinity);
            expect(op.clone(), -infinity, 0.0);
            expect(op.clone(), 1e4, infinity);
            expect(op.clone(), -1e4, 0.0);
            expect(op, f64::NAN, f64::NAN);
        }
        expect(Op::Log2, 0.0, -infinity);
        expect(Op::Log2, -0.0, -infinity);
        expect(Op::Log2, 1.0, 0.0);
        expect(Op::Log2, -1.0, f64::NAN);
        expect(Op::Log2, -infinity, f64::NAN);
        expect(Op::Log2, infinity, infinity);
        expect(Op::Log2, f64::NAN, f64::NAN);
        for k in 0..4 {
            expect(Op::Sin(k), infinity, f64::NAN);
            expect(Op::Sin(k), -infinity, f64::NAN);
            expect(Op::Sin(k), f64::NAN, f64::NAN);
        }
        expect(Op::Sin(0), 0.0, 0.0);
        expect(Op::Sin(0), -0.0, -0.0);
        expect(Op::Sin(1), 0.0, 1.0);
        expect(Op::Sin(1), -0.0, 1.0);
        expect(Op::Sin(2), 0.0, -0.0);
        expect(Op::Sin(3), 0.0, -1.0);
        // The smallest numbers are their own sines.
        for bits in [1, 2, 77] {
            let tiny = Scalar::from_bits(dtype, bits);
            assert_eq!(apply(&Op::Sin(0), dtype, &[tiny]), tiny);
        }
        // Powers of two, down to subnormals.
        let (least, most) = match dtype {
            DType::F16 => (-24, 15),
            DType::BF16 => (-133, 127),
            DType::F32 => (-149, 127),
            _ => (-1074, 1023),
        };
        for k in least..=most {
            let k = Scalar::from_f64(dtype, k as f64);
            // bf16 does not hold every k. Two factors, as powi(-1074) goes through 2^1074.
            let exponent = k.as_f64() as i32;
            let half = exponent / 2;
            let power = Scalar::from_f64(dtype, 2f64.powi(half) * 2f64.powi(exponent - half));
            assert_eq!(apply(&Op::Exp2, dtype, &[k]), power);
            assert_eq!(apply(&Op::Log2, dtype, &[power]), k);
        }
    }
}
