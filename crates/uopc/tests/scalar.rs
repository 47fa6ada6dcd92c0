//! The meaning of scalars: literals, arithmetic, conversions.

use uopc::ir::dtype::DType;
use uopc::ir::scalar::Scalar;

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
