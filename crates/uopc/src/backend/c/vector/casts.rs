//! The C texts of the helpers that convert vectors.

use super::arithmetic::longest;
use super::helper::{Instruction, VectorHelper, choose};
use super::{mask_dtype, vector_type};
use crate::backend::c::scalar::literal;
use crate::ir::dtype::DType;
use crate::ir::scalar::{Scalar, narrow};

use DType::{BF16, F16, F32, F64, I32};

/// The compilers know the conversion, but gcc 12 takes several instructions where vectors of the
/// greatest length change their width by a factor of two.
pub(super) fn convert(h: VectorHelper, to: DType) -> String {
    let y = vector_type(to, h.lanes);
    let portable = format!("    return __builtin_convertvector(x, {y});\n");
    let (from_bits, to_bits) = (h.dtype.bits(), to.bits());
    let twice = from_bits == 2 * to_bits || to_bits == 2 * from_bits;
    let ints = h.dtype.is_int() && to.is_int();
    if !(ints && twice && longest(h) == 64) {
        return portable;
    }
    // The builtins have types of their own.
    let element = |bits: u32| match bits {
        8 => ("b", "char"),
        16 => ("w", "short"),
        32 => ("d", "int"),
        _ => ("q", "long long"),
    };
    let (f, from_element) = element(from_bits);
    let (t, to_element) = element(to_bits);
    let extended = if h.dtype.is_signed() { "sx" } else { "zx" };
    let verb = if to_bits > from_bits { extended } else { "" };
    let isa = if h.lanes == 32 {
        "__AVX512BW__"
    } else {
        "__AVX512F__"
    };
    let (from_bytes, to_bytes) = (h.bytes(), h.of(to).bytes());
    let call = format!(
        "    return ({y})__builtin_ia32_pmov{verb}{f}{t}512_mask(
        (__attribute__((vector_size({from_bytes}))) {from_element})x,
        (__attribute__((vector_size({to_bytes}))) {to_element}){{0}}, -1);
"
    );
    choose(&[Instruction::new(isa, call)], &portable)
}

pub(super) fn widen(h: VectorHelper) -> String {
    let n = h.lanes;
    if h.dtype == BF16 {
        return format!("    return (f32x{n})(u16_to_u32x{n}(x) << 16);\n");
    }
    let half_words = format!("(__attribute__((vector_size({}))) short)x", 2 * n);
    let instruction = match n {
        16 => Some((
            "__AVX512F__",
            format!("vcvtph2ps512_mask({half_words}, (f32x16){{0}}, -1, 4)"),
        )),
        8 => Some(("__F16C__", format!("vcvtph2ps256({half_words})"))),
        _ => None,
    };
    let instruction = instruction
        .map(|(isa, call)| Instruction::new(isa, format!("    return __builtin_ia32_{call};\n")));
    let portable = format!(
        "    u32x{n} bits = u16_to_u32x{n}(x), sign = (bits & 0x8000u) << 16, a = bits & 0x7fffu;
    f32x{n} number = __builtin_convertvector((i32x{n})a, f32x{n});
    u32x{n} subnormal = (u32x{n})(number * 5.9604644775390625e-08f);
    u32x{n} normal = (a << 13) + 0x38000000u;
    u32x{n} special = 0x7f800000u | ((u32x{n})(a != 0x7c00u) & 0x400000u);
    u32x{n} finite = select_u32x{n}(a < 0x0400u, subnormal, normal);
    return (f32x{n})(sign | select_u32x{n}(a < 0x7c00u, finite, special));
"
    );
    choose(instruction.as_slice(), &portable)
}

pub(super) fn narrow_f32(h: VectorHelper) -> String {
    let n = h.lanes;
    if h.dtype == BF16 {
        return format!(
            "    u32x{n} a = (u32x{n})x, y = (a + 0x7fffu + (a >> 16 & 1u)) >> 16;
    return u32_to_u16x{n}(select_u32x{n}(x != x, splat_u32x{n}(0x7fc0u), y));
"
        );
    }
    // The instruction keeps what a NaN carries.
    let one_nan = |call: &str| {
        format!(
            "    u16x{n} y = (u16x{n})__builtin_ia32_{call};
    return select_f16x{n}(i32_to_i16x{n}(x != x), splat_f16x{n}(0x7e00), y);
"
        )
    };
    let instruction = match n {
        16 => {
            let call = "vcvtps2ph512_mask(x, 8, (__attribute__((vector_size(32))) short){0}, -1)";
            Some(Instruction::new("__AVX512F__", one_nan(call)))
        }
        8 => Some(Instruction::new("__F16C__", one_nan("vcvtps2ph256(x, 0)"))),
        _ => None,
    };
    let portable = format!(
        "    u32x{n} bits = (u32x{n})x, sign = bits >> 16 & 0x8000u, a = bits & 0x7fffffffu;
    /* Adding 1/2, whose last place is 2^-24, rounds to a multiple of 2^-24. */
    u32x{n} subnormal = (u32x{n})((f32x{n})a + 0.5f) - 0x3f000000u;
    u32x{n} normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
    u32x{n} finite = select_u32x{n}(a < 0x38800000u, subnormal, normal);
    u32x{n} y = sign | select_u32x{n}(a < 0x477ff000u, finite, splat_u32x{n}(0x7c00u));
    return u32_to_u16x{n}(select_u32x{n}(a > 0x7f800000u, splat_u32x{n}(0x7e00u), y));
"
    );
    choose(instruction.as_slice(), &portable)
}

/// As for scalars: adding a number whose last place is that of the result rounds.
pub(super) fn narrow_f64(h: VectorHelper) -> String {
    let (n, to) = (h.lanes, h.dtype);
    let (digits, least) = narrow::precision(to);
    format!(
        "    u64x{n} bits = (u64x{n})x, a = bits & 0x7ffffffffffffffful, exponent = a >> 52;
    exponent = select_u64x{n}(exponent > {least}ul, exponent, splat_u64x{n}({least}ul));
    f64x{n} anchor = (f64x{n})((exponent + {rounding}ul) << 52);
    f64x{n} rounded = ((f64x{n})a + anchor) - anchor;
    /* From 2^128 on there is nothing to round, and the anchor may be infinite. */
    f64x{n} magnitude = select_f64x{n}(a < 0x47f0000000000000ul, rounded, (f64x{n})a);
    u32x{n} sign = u64_to_u32x{n}(bits >> 32) & 0x80000000u;
    u32x{n} y = sign | (u32x{n})__builtin_convertvector(magnitude, f32x{n});
    return f32_to_{to}x{n}((f32x{n})y);
",
        least = 1023 + least,
        rounding = 53 - digits,
    )
}

/// Whether the ends of the integer dtype are numbers of the float dtype, and a vector of 32-bit
/// words can hold what is in between.
pub(super) fn saturates_in_floats(from: DType, to: DType) -> bool {
    to.size() < 4 || from == F64 && to.size() == 4
}

/// As for scalars, nothing that becomes 0 is converted: gcc makes a conversion to an integer and
/// back into a truncation, which keeps the sign. Nor is anything that is out of range.
pub(super) fn float_to_int(h: VectorHelper, to: DType) -> String {
    let (v, m) = (h.vector(), h.of(mask_dtype(h.dtype)).vector());
    let y = vector_type(to, h.lanes);
    let (least, greatest) = to.int_range().unwrap_or((0, 1));
    let bound = |value: i128| literal(Scalar::from_i128(h.dtype, value));
    let end = |value: i128| literal(Scalar::from_i128(to, value));
    let one = literal(Scalar::one(h.dtype));
    if saturates_in_floats(h.dtype, to) {
        let (least, greatest) = (bound(least), bound(greatest));
        let number = format!("({v})(({m})near & ((x >= {one}) | (x <= -{one})))");
        let (result, word) = match to.size() {
            4 => ("whole".into(), y),
            _ => (format!("i32_to_{y}(whole)"), vector_type(I32, h.lanes)),
        };
        return format!(
            "    {v} near = select_{v}(x < {least}, splat_{v}({least}), x);
    near = select_{v}(near > {greatest}, splat_{v}({greatest}), near);
    {word} whole = __builtin_convertvector({number}, {word});
    return {result};
"
        );
    }
    let (below, above) = (bound(least), bound(greatest + 1));
    let (least, greatest) = (end(least), end(greatest));
    format!(
        "    {m} within = ((x >= {one}) | (x <= -{one})) & (x > {below}) & (x < {above});
    {y} whole = __builtin_convertvector(({v})(({m})x & within), {y});
    whole = select_{y}(x <= {below}, splat_{y}({least}), whole);
    return select_{y}(x >= {above}, splat_{y}({greatest}), whole);
"
    )
}

/// The bits of a float, where every NaN has the same ones.
pub(super) fn bitcast(h: VectorHelper) -> String {
    let nan = Scalar::from_f64(h.dtype, f64::NAN).bits();
    let w = vector_type(h.word(), h.lanes);
    let (nan, is_nan) = match h.dtype {
        F32 => (format!("0x{nan:x}u"), "x != x"),
        F64 => (format!("0x{nan:x}ul"), "x != x"),
        F16 => (format!("0x{nan:x}"), "(x & 0x7fff) > 0x7c00"),
        _ => (format!("0x{nan:x}"), "(x & 0x7fff) > 0x7f80"),
    };
    format!("    return select_{w}({is_nan}, splat_{w}({nan}), ({w})x);\n")
}
