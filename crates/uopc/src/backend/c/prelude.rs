//! The helper functions that a C file begins with: only those that its kernels call.
//!
//! They say in C what [`ir/scalar.rs`](crate::ir::scalar) says in Rust, bit for bit.
//! [`call`](super::scalar::call) spells an op and names the helpers it needs; [`source`] writes
//! them out, those first that others call. The transcendental functions are recorded from the one
//! sequence of operations that Rust computes with.
//!
//! The code is portable C for any compiler of the GNU family, with 8-bit char, 16-bit short,
//! 32-bit int and 64-bit long. It has the stated meaning under [`REQUIRED_FLAGS`].

use std::collections::BTreeSet;

use super::record::{Recordable, Recorder};
use super::scalar::{c_type, literal};
use super::vector::helper::VectorHelper;
use crate::ir::dtype::DType;
use crate::ir::scalar::Scalar;
use crate::ir::scalar::math::format::{Format, TWO_OVER_PI, half_of_two_over_pi};
use crate::ir::scalar::math::{self, sin};
use crate::ir::scalar::narrow;

/// What the compiler must be told: no fused multiply-add but where it is asked for, integers
/// wrap, no exceptions are watched and no `errno` is set (so that a square root is an
/// instruction). And no notes on how vectors are passed to functions: these are all inlined.
pub const REQUIRED_FLAGS: &[&str] = &[
    "-ffp-contract=off",
    "-fwrapv",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-Wno-psabi",
];

/// What must follow the source file on the compiler's command line: where the machine lacks an
/// instruction for it, a fused multiply-add or truncation is a call into the mathematical library.
pub const LIBRARIES: &[&str] = &["-lm"];

/// A helper function, or table, at one dtype.
///
/// The order of declaration is an order of definition: a helper calls only those above it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Helper {
    /// The bits of an f32 or f64 as they are.
    Bits(DType),
    /// The f32 or f64 with given bits.
    FromBits(DType),
    /// An f32 or f64 with the other sign.
    Negate(DType),
    /// f16 or bf16 to f32.
    Widen(DType),
    /// f32 to f16 or bf16.
    NarrowF32(DType),
    /// f64 to f16 or bf16.
    NarrowF64(DType),
    /// u64 to bf16.
    NarrowU64,
    /// i64 to bf16.
    NarrowI64,
    /// The bits of a float, those of NaN being canonical.
    Bitcast(DType),
    /// f32 or f64 (first) to an integer (second).
    FloatToInt(DType, DType),
    /// The larger of two.
    Max(DType),
    /// Division rounded down.
    FloorDiv(DType),
    /// Its remainder.
    FloorMod(DType),
    /// Shift left.
    Shl(DType),
    /// Shift right.
    Shr(DType),
    /// e to the power x.
    Exp(DType),
    /// 2 to the power x.
    Exp2(DType),
    /// Logarithm to base 2.
    Log2(DType),
    /// The bits of 2 / pi in words of the float's width.
    TwoOverPi(DType),
    /// Sine for ordinary arguments.
    SinNear(DType),
    /// Sine for large arguments.
    SinFar(DType),
    /// Sine of x + k quarter turns.
    Sin(DType),
    /// The product of two tiles of bf16, and what is around it.
    Tile,
    /// One on vectors.
    Vector(VectorHelper),
}

use Helper::*;

impl Helper {
    /// Its name in C.
    pub fn name(self) -> String {
        match self {
            Bits(t) => format!("bits_{t}"),
            FromBits(t) => format!("from_bits_{t}"),
            Negate(t) => format!("negate_{t}"),
            Widen(t) => format!("{t}_to_f32"),
            NarrowF32(t) => format!("f32_to_{t}"),
            NarrowF64(t) => format!("f64_to_{t}"),
            NarrowU64 => "u64_to_bf16".into(),
            NarrowI64 => "i64_to_bf16".into(),
            Bitcast(t) => format!("bitcast_{t}"),
            FloatToInt(from, to) => format!("{from}_to_{to}"),
            Max(t) => format!("max_{t}"),
            FloorDiv(t) => format!("floordiv_{t}"),
            FloorMod(t) => format!("floormod_{t}"),
            Shl(t) => format!("shl_{t}"),
            Shr(t) => format!("shr_{t}"),
            Exp(t) => format!("exp_{t}"),
            Exp2(t) => format!("exp2_{t}"),
            Log2(t) => format!("log2_{t}"),
            TwoOverPi(t) => format!("two_over_pi_{t}"),
            SinNear(t) => format!("sin_near_{t}"),
            SinFar(t) => format!("sin_far_{t}"),
            Sin(t) => format!("sin_{t}"),
            Tile => "bf16_tile".into(),
            Vector(v) => v.name(),
        }
    }

    /// The helpers that it calls itself.
    fn needs(self) -> Vec<Helper> {
        use DType::{BF16, F16, F32, F64};
        match self {
            Widen(F16) | NarrowF32(F16) => vec![Bits(F32), FromBits(F32)],
            Widen(_) => vec![FromBits(F32)],
            NarrowF32(_) => vec![Bits(F32)],
            NarrowF64(t) => vec![Bits(F64), FromBits(F64), NarrowF32(t)],
            NarrowU64 => vec![NarrowF64(BF16)],
            NarrowI64 => vec![NarrowU64],
            Bitcast(t @ (F32 | F64)) => vec![Bits(t)],
            Negate(t) => vec![Bits(t), FromBits(t)],
            Max(t) if t.is_float() => vec![Bits(t), FromBits(t)],
            Exp(t) | Exp2(t) | Log2(t) | SinNear(t) => vec![Bits(t), FromBits(t)],
            SinFar(t) => vec![Bits(t), FromBits(t), TwoOverPi(t)],
            Sin(t) => vec![SinNear(t), SinFar(t)],
            Tile => vec![Widen(BF16), FromBits(F32)],
            Vector(v) => v.needs(),
            Bits(_) | FromBits(_) | Bitcast(_) | FloatToInt(..) | Max(_) | FloorDiv(_)
            | FloorMod(_) | Shl(_) | Shr(_) | TwoOverPi(_) => vec![],
        }
    }

    /// One line for the reader of the C file.
    fn comment(self) -> &'static str {
        match self {
            Bits(_) => "The bits of a number.",
            FromBits(_) => "The number with these bits.",
            Negate(_) => "The number with the other sign, kept apart from a fused multiply-add.",
            Widen(_) => "A 16-bit float as a float, exactly.",
            NarrowF32(_) => "The nearest 16-bit float, ties to even.",
            NarrowF64(_) => "The nearest 16-bit float, rounded once.",
            NarrowU64 | NarrowI64 => {
                "The nearest bfloat16; low bits count only as being there or not."
            }
            Bitcast(_) => "The bits of a number; all NaNs have the same.",
            FloatToInt(..) => "Rounded towards zero and saturated; NaN gives 0.",
            Max(t) if t.is_float() => "The larger; NaN if either is NaN, and +0 is above -0.",
            Max(_) => "The larger.",
            FloorDiv(_) => "Division rounded down; by zero it gives 0.",
            FloorMod(_) => "The remainder with the sign of b; 0 if b is zero.",
            Shl(_) => "Shift left; 0 if the amount is out of range.",
            Shr(_) => {
                "Shift right, keeping the sign; nothing else remains if the amount is out of range."
            }
            Exp(_) => "e to the power x.",
            Exp2(_) => "2 to the power x.",
            Log2(_) => "Logarithm to base 2.",
            TwoOverPi(_) => "The bits of 2/pi after the point, behind one word of zeros.",
            SinNear(_) => "Sine of x + k quarter turns: x minus multiples of pi/2.",
            SinFar(_) => "The same for large x: x times 2/pi, modulo 4, in integers.",
            Sin(_) => "Sine of x + k quarter turns.",
            Tile => {
                "32 by 32 sums of products of bf16, by the processor's tiles where it has some."
            }
            Vector(v) => v.comment(),
        }
    }

    /// Its C definition.
    fn definition(self) -> String {
        match self {
            Bits(t) => format!(
                "static inline {word} bits_{t}({float} x) {{
    union {{ {float} number; {word} bits; }} u = {{ .number = x }};
    return u.bits;
}}
",
                word = word(t),
                float = c_type(t)
            ),
            FromBits(t) => format!(
                "static inline {float} from_bits_{t}({word} x) {{
    union {{ {word} bits; {float} number; }} u = {{ .bits = x }};
    return u.number;
}}
",
                word = word(t),
                float = c_type(t)
            ),
            Negate(t) => format!(
                "static inline {float} negate_{t}({float} x) {{
    return from_bits_{t}(bits_{t}(x) ^ ({word})1 << {sign});
}}
",
                float = c_type(t),
                word = word(t),
                sign = t.bits() - 1
            ),
            Widen(DType::F16) => WIDEN_F16.into(),
            Widen(_) => WIDEN_BF16.into(),
            NarrowF32(DType::F16) => NARROW_F16.into(),
            NarrowF32(_) => NARROW_BF16.into(),
            NarrowF64(t) => narrow_f64(t),
            NarrowU64 => NARROW_U64.into(),
            NarrowI64 => NARROW_I64.into(),
            Bitcast(t) => bitcast(t),
            FloatToInt(from, to) => float_to_int(from, to),
            Max(t) => max(t),
            FloorDiv(t) => floor_div(t),
            FloorMod(t) => floor_mod(t),
            Shl(t) => shift_left(t),
            Shr(t) => shift_right(t),
            Exp(DType::F32) | Exp2(DType::F32) | Log2(DType::F32) => recorded::<f32>(self),
            SinNear(DType::F32) | SinFar(DType::F32) => recorded::<f32>(self),
            Exp(_) | Exp2(_) | Log2(_) | SinNear(_) | SinFar(_) => recorded::<f64>(self),
            TwoOverPi(t) => two_over_pi(t),
            Sin(t) => sine(t),
            Tile => super::tiles::SOURCE.into(),
            Vector(v) => v.definition(),
        }
    }
}

/// The helpers and all that they call, in C, each defined before it is used.
pub fn source(helpers: &BTreeSet<Helper>) -> String {
    let mut all = helpers.clone();
    let mut open: Vec<Helper> = helpers.iter().copied().collect();
    while let Some(helper) = open.pop() {
        for need in helper.needs() {
            if all.insert(need) {
                open.push(need);
            }
        }
    }
    let texts = all.iter().map(|h| match h.comment() {
        // Types stand one below the other.
        "" => h.definition(),
        comment => format!("/* {comment} */\n{}\n", h.definition()),
    });
    texts.collect()
}

/// The unsigned integer as wide as a float.
fn word(float: DType) -> &'static str {
    if float == DType::F32 {
        "unsigned"
    } else {
        "unsigned long"
    }
}

const WIDEN_F16: &str = "\
static inline float f16_to_f32(unsigned short h) {
    unsigned sign = (h & 0x8000u) << 16, a = h & 0x7fffu;
    unsigned subnormal = bits_f32((float)a * 5.9604644775390625e-08f);
    unsigned normal = (a << 13) + 0x38000000u;
    unsigned special = a == 0x7c00u ? 0x7f800000u : 0x7fc00000u;
    return from_bits_f32(sign | (a < 0x0400u ? subnormal : a < 0x7c00u ? normal : special));
}
";

const WIDEN_BF16: &str = "\
static inline float bf16_to_f32(unsigned short h) {
    return from_bits_f32((unsigned)h << 16);
}
";

const NARROW_F16: &str = "\
static inline unsigned short f32_to_f16(float x) {
    unsigned sign = bits_f32(x) >> 16 & 0x8000u, a = bits_f32(x) & 0x7fffffffu;
    /* Adding 1/2, whose last place is 2^-24, rounds to a multiple of 2^-24. */
    unsigned subnormal = bits_f32(from_bits_f32(a) + 0.5f) - 0x3f000000u;
    unsigned normal = (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
    unsigned magnitude = a < 0x38800000u ? subnormal : a < 0x477ff000u ? normal : 0x7c00u;
    return a > 0x7f800000u ? 0x7e00u : sign | magnitude;
}
";

const NARROW_BF16: &str = "\
static inline unsigned short f32_to_bf16(float x) {
    unsigned a = bits_f32(x);
    return x != x ? 0x7fc0u : (a + 0x7fffu + (a >> 16 & 1u)) >> 16;
}
";

/// Adding a number whose last place is that of the result rounds, subtracting it is exact.
fn narrow_f64(to: DType) -> String {
    let (digits, least) = narrow::precision(to);
    format!(
        "static inline unsigned short f64_to_{to}(double x) {{
    unsigned long a = bits_f64(x) & 0x7ffffffffffffffful;
    unsigned long exponent = a >> 52 > {least}ul ? a >> 52 : {least}ul;
    double anchor = from_bits_f64((exponent + {rounding}ul) << 52);
    double rounded = (from_bits_f64(a) + anchor) - anchor;
    /* From 2^128 on there is nothing to round, and the anchor may be infinite. */
    float magnitude = (float)(a < 0x47f0000000000000ul ? rounded : from_bits_f64(a));
    return f32_to_{to}(__builtin_copysignf(magnitude, (float)x));
}}
",
        least = 1023 + least,
        rounding = 53 - digits,
    )
}

const NARROW_U64: &str = "\
static inline unsigned short u64_to_bf16(unsigned long x) {
    unsigned long odd = (x | (x & 0x7fful ? 0x800ul : 0ul)) & ~0x7fful;
    return f64_to_bf16((double)(x >> 53 ? odd : x));
}
";

const NARROW_I64: &str = "\
static inline unsigned short i64_to_bf16(long x) {
    return x < 0 ? u64_to_bf16(-(unsigned long)x) | 0x8000u : u64_to_bf16((unsigned long)x);
}
";

fn bitcast(t: DType) -> String {
    let nan = Scalar::from_f64(t, f64::NAN).bits();
    match t {
        DType::F32 | DType::F64 => format!(
            "static inline {word} bitcast_{t}({float} x) {{
    return x != x ? 0x{nan:x} : bits_{t}(x);
}}
",
            word = word(t),
            float = c_type(t)
        ),
        _ => {
            let infinity = Scalar::from_f64(t, f64::INFINITY).bits();
            format!(
                "static inline unsigned short bitcast_{t}(unsigned short x) {{
    return (x & 0x7fff) > 0x{infinity:x} ? 0x{nan:x} : x;
}}
"
            )
        }
    }
}

fn float_to_int(from: DType, to: DType) -> String {
    let (least, greatest) = to.int_range().unwrap_or((0, 1));
    let bound = |value: i128| literal(Scalar::from_i128(from, value));
    let end = |value: i128| literal(Scalar::from_i128(to, value));
    // Where no exceptions are watched, gcc 12 makes a conversion to an integer and back into a
    // truncation of the float, which keeps the sign of what becomes 0. So nothing that becomes 0
    // is converted; NaN is among it.
    format!(
        "static inline {int} {from}_to_{to}({float} x) {{
    return !(x >= {one} || x <= -{one}) ? 0 : x >= {above} ? {greatest} : x <= {below} ? {least} : ({int})x;
}}
",
        int = c_type(to),
        one = literal(Scalar::one(from)),
        float = c_type(from),
        above = bound(greatest + 1),
        below = bound(least),
        greatest = end(greatest),
        least = end(least),
    )
}

fn max(t: DType) -> String {
    let c = c_type(t);
    if !t.is_float() {
        return format!(
            "static inline {c} max_{t}({c} a, {c} b) {{\n    return a < b ? b : a;\n}}\n"
        );
    }
    // Equal numbers have equal bits, but for zeros. The sum of unordered ones is NaN.
    format!(
        "static inline {c} max_{t}({c} a, {c} b) {{
    {c} equal = from_bits_{t}(bits_{t}(a) & bits_{t}(b));
    return a < b ? b : b < a ? a : a == b ? equal : a + b;
}}
"
    )
}

fn floor_div(t: DType) -> String {
    let c = c_type(t);
    if t.is_unsigned() {
        return format!(
            "static inline {c} floordiv_{t}({c} a, {c} b) {{\n    return b == 0 ? 0 : a / b;\n}}\n"
        );
    }
    // Dividing the least integer by -1 would trap.
    format!(
        "static inline {c} floordiv_{t}({c} a, {c} b) {{
    if (b == 0) return 0;
    if (b == -1) return -a;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}}
"
    )
}

fn floor_mod(t: DType) -> String {
    let c = c_type(t);
    if t.is_unsigned() {
        return format!(
            "static inline {c} floormod_{t}({c} a, {c} b) {{\n    return b == 0 ? 0 : a % b;\n}}\n"
        );
    }
    format!(
        "static inline {c} floormod_{t}({c} a, {c} b) {{
    if (b == 0 || b == -1) return 0;
    {c} rest = a % b;
    return rest != 0 && (a < 0) != (b < 0) ? rest + b : rest;
}}
"
    )
}

fn shift_left(t: DType) -> String {
    let (c, width) = (c_type(t), t.bits());
    let unsigned = if width == 64 {
        "unsigned long"
    } else {
        "unsigned"
    };
    format!(
        "static inline {c} shl_{t}({c} a, {c} b) {{
    return ({unsigned})b < {width} ? ({c})(({unsigned})a << b) : 0;
}}
"
    )
}

fn shift_right(t: DType) -> String {
    let (c, width) = (c_type(t), t.bits());
    let unsigned = if width == 64 {
        "unsigned long"
    } else {
        "unsigned"
    };
    let rest = if t.is_signed() { "a < 0 ? -1 : 0" } else { "0" };
    format!(
        "static inline {c} shr_{t}({c} a, {c} b) {{
    return ({unsigned})b < {width} ? ({c})(a >> b) : {rest};
}}
"
    )
}

/// A function that Rust computes with the very same sequence.
fn recorded<F: Recordable>(helper: Helper) -> String {
    let recorder = Recorder::<F>::scalar();
    let x = recorder.real("x");
    let y = match helper {
        Exp(_) => math::exp(x),
        Exp2(_) => math::exp2(x),
        Log2(_) => math::log2(x),
        SinNear(_) => sin::sin_near(x, recorder.word("k")),
        SinFar(_) => sin::sin_far(x, recorder.word("k")),
        _ => unreachable!("{} is not recorded", helper.name()),
    };
    // Sine of a large number is rare and long: one copy of it is enough.
    let rare = matches!(helper, SinFar(_));
    let linkage = if rare {
        "static __attribute__((noinline))"
    } else {
        "static inline"
    };
    recorder.function(linkage, &helper.name(), y)
}

fn two_over_pi(t: DType) -> String {
    let (words, suffix, digits): (Vec<u64>, _, _) = match t {
        DType::F32 => (
            (0..8).map(|i| half_of_two_over_pi(i) as u64).collect(),
            "u",
            8,
        ),
        _ => (TWO_OVER_PI.to_vec(), "ul", 16),
    };
    let words: Vec<String> = words
        .iter()
        .map(|w| format!("0x{w:0digits$x}{suffix}"))
        .collect();
    let lines: Vec<String> = words
        .chunks(4)
        .map(|line| format!("    {},\n", line.join(", ")))
        .collect();
    let (word, name) = (word(t), TwoOverPi(t).name());
    format!(
        "static const {word} {name}[{}] = {{\n{}}};\n",
        words.len(),
        lines.concat()
    )
}

fn sine(t: DType) -> String {
    let (c, word) = (c_type(t), word(t));
    let format = if t == DType::F32 {
        &Format::SINGLE
    } else {
        &Format::DOUBLE
    };
    let far = literal(Scalar::from_f64(t, format.far));
    format!(
        "static inline {c} sin_{t}({c} x, {word} k) {{
    return -{far} < x && x < {far} ? sin_near_{t}(x, k) : sin_far_{t}(x, k);
}}
"
    )
}
