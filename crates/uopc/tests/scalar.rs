//! The meaning of scalars: literals, arithmetic, conversions.

use uopc::ir::dtype::DType;
use uopc::ir::op::Op;
use uopc::ir::scalar::{Scalar, apply};

/// Every bit pattern of the narrow dtypes and a spread of those of the wide ones.
fn some_scalars(dtype: DType) -> Vec<Scalar> {
    let step = match dtype.bits() {
        8 | 16 => 1,
        32 => 65_521 * 7,
        _ => 0x0000_07ff_1234_5677,
    };
    let last = u64::MAX >> (64 - dtype.bits());
    let spread = (0..=65_536u64)
        .map(|i| i.wrapping_mul(step))
        .filter(|&b| b <= last);
    spread
        .chain([last])
        .map(|bits| Scalar::from_bits(dtype, bits))
        .collect()
}

#[test]
fn literals_round_trip() {
    for dtype in DType::ALL {
        for scalar in some_scalars(dtype) {
            let text = scalar.to_string();
            assert_eq!(Scalar::parse(&text), Some(scalar), "{text}");
        }
    }
}

#[test]
fn literals_are_spelled_as_documented() {
    let f = |dtype, v| Scalar::from_f64(dtype, v).to_string();
    let i = |dtype, v| Scalar::from_i128(dtype, v).to_string();
    assert_eq!(f(DType::F32, 1.0), "1.0");
    assert_eq!(f(DType::F32, -0.0), "-0.0");
    assert_eq!(f(DType::F32, 1e-30), "1e-30");
    assert_eq!(f(DType::F32, 0.1), "0.1");
    assert_eq!(f(DType::F32, f64::INFINITY), "inf");
    assert_eq!(f(DType::F32, f64::NEG_INFINITY), "-inf");
    assert_eq!(f(DType::F32, f64::NAN), "nan");
    assert_eq!(f(DType::F64, 1.0), "1.0f64");
    assert_eq!(f(DType::F64, f64::NAN), "nanf64");
    assert_eq!(f(DType::F16, 0.5), "0.5f16");
    assert_eq!(f(DType::F16, 0.1), "0.1f16");
    assert_eq!(f(DType::F16, f64::INFINITY), "inff16");
    assert_eq!(f(DType::BF16, 1.0), "1.0bf16");
    assert_eq!(f(DType::BF16, -f64::INFINITY), "-infbf16");
    assert_eq!(i(DType::I32, 1), "1");
    assert_eq!(i(DType::I32, -5), "-5");
    assert_eq!(i(DType::I64, 3), "3i64");
    assert_eq!(i(DType::U8, 7), "7u8");
    assert_eq!(Scalar::from_bool(true).to_string(), "true");
}

#[test]
fn malformed_literals_are_refused() {
    let wrong = [
        "",
        "-",
        "+1",
        ".5",
        "1e",
        "e5",
        "--1",
        "1.0i32",
        "300u8",
        "-1u8",
        "2147483648",
        "tru",
        "infinity",
        "-nan",
        "NaN",
        "1e999",
        "1e39",
        "70000.0f16",
        "1boolx",
        "1bool",
        "0x10",
        "1 ",
        "f32",
        "1_000",
    ];
    for text in wrong {
        assert_eq!(Scalar::parse(text), None, "{text:?}");
    }
}

/// Words of a fixture's line.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn scalars(dtype: DType, words: &[&str]) -> Vec<Scalar> {
    let scalar = |word: &&str| u64::from_str_radix(word, 16).expect("hexadecimal bits");
    words
        .iter()
        .map(|word| Scalar::from_bits(dtype, scalar(word)))
        .collect()
}

/// An op with one or two sources (MULACC: three) of one dtype.
fn op_named(name: &str) -> Op {
    let ops = [
        Op::Add,
        Op::Mul,
        Op::Max,
        Op::CmpLt,
        Op::CmpNe,
        Op::And,
        Op::Or,
        Op::Xor,
        Op::FloorDiv,
        Op::FloorMod,
        Op::Shl,
        Op::Shr,
        Op::Div,
        Op::MulAcc,
        Op::Recip,
        Op::Sqrt,
        Op::Trunc,
    ];
    ops.into_iter()
        .find(|op| op.mnemonic() == name)
        .expect("the fixture names a known op")
}

/// NumPy's results: see `fixtures/scalar_numpy.py`.
#[test]
fn ops_agree_with_numpy() {
    let fixture = include_str!("fixtures/scalar_numpy.txt");
    let mut values: Vec<Scalar> = Vec::new();
    let mut compared = 0;
    for line in fixture.lines() {
        let line = words(line);
        let dtype = DType::from_name(line[1]).expect("a dtype");
        if line[0] == "values" {
            values = scalars(dtype, &line[2..]);
            continue;
        }
        let n = values.len();
        let (op, result, expected) = match line[0] {
            "cast" => {
                let to = DType::from_name(line[2]).expect("a dtype");
                (Op::Cast(to), to, &line[3..])
            }
            name if name.starts_with("cmp") => (op_named(name), DType::Bool, &line[2..]),
            name => (op_named(name), dtype, &line[2..]),
        };
        let expected = scalars(result, expected);
        let (arity, _) = op.info().arity;
        assert_eq!(
            expected.len(),
            if arity == 1 { n } else { n * n },
            "{line:?}"
        );
        for (i, expected) in expected.into_iter().enumerate() {
            let args = match arity {
                1 => vec![values[i]],
                2 => vec![values[i / n], values[i % n]],
                _ => vec![values[i / n], values[i % n], values[(i + 1) % n]],
            };
            let found = apply(&op, result, &args);
            assert!(
                Scalar::same(found, expected),
                "{op:?} {args:?}: {found}, not {expected}"
            );
            compared += 1;
        }
    }
    assert!(compared > 20_000, "{compared}");
}
