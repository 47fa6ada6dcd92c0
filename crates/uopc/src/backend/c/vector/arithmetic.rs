//! The C texts of the helpers that compute on vectors.
//!
//! Each text is written for vectors that the machine has. For longer ones the function is called
//! for both halves: gcc handles long vectors itself, but compares and selects one lane after the
//! other.

use super::helper::{Instruction, Kind, VectorHelper, choose};
use super::{casts, mask_dtype, vector_type};
use crate::backend::c::prelude::Helper;
use crate::backend::c::record::{Recordable, Recorder};
use crate::backend::c::scalar::{c_type, literal};
use crate::ir::dtype::DType;
use crate::ir::scalar::Scalar;
use crate::ir::scalar::math::format::Format;
use crate::ir::scalar::math::{self, sin};

use DType::{BF16, F16, F32, F64, I16, I32, U16, U32, U64};
use Kind::*;

/// A parameter.
#[derive(Clone, Copy)]
pub(super) enum Arg {
    Vector(DType),
    /// The same for all lanes.
    Scalar(DType),
}

/// The result's dtype and the parameters with their names, of a helper that computes lane by lane.
pub(super) fn signature(h: VectorHelper) -> Option<(DType, Vec<(Arg, &'static str)>)> {
    let t = h.dtype;
    let vector = |dtype, name| (Arg::Vector(dtype), name);
    let k = (Arg::Scalar(h.word()), "k");
    let (result, args) = match h.kind {
        Convert(to) | FloatToInt(to) => (to, vec![vector(t, "x")]),
        Less | Differ => (mask_dtype(t), vec![vector(t, "a"), vector(t, "b")]),
        Select => {
            let mask = vector(mask_dtype(t), "mask");
            (t, vec![mask, vector(t, "yes"), vector(t, "no")])
        }
        Fma => (t, vec![vector(t, "a"), vector(t, "b"), vector(t, "c")]),
        Sqrt | Trunc | Negate | Exp | Exp2 | Log2 => (t, vec![vector(t, "x")]),
        Widen => (F32, vec![vector(t, "x")]),
        NarrowF32 => (t, vec![vector(F32, "x")]),
        NarrowF64 => (t, vec![vector(F64, "x")]),
        NarrowInt => (BF16, vec![vector(t, "x")]),
        Bitcast => (h.word(), vec![vector(t, "x")]),
        Max | FloorDiv | FloorMod | Shl | Shr => (t, vec![vector(t, "a"), vector(t, "b")]),
        Scale => (t, vec![vector(t, "y"), vector(t, "t")]),
        SinNear | Sin => (t, vec![vector(t, "x"), k]),
        Preamble | Type | Splat | Iota | Any | DotBf16 | Load | LoadMasked | GatherStrided
        | GatherStridedMasked | Gather(_) | GatherMasked(_) | Store | StoreMasked | StoreStream
        | Fence | ScatterStrided | ScatterStridedMasked | Scatter(_) | ScatterMasked(_) => {
            return None;
        }
    };
    Some((result, args))
}

/// The size of the longest vector among parameters and result.
pub(super) fn longest(h: VectorHelper) -> usize {
    let Some((result, args)) = signature(h) else {
        return h.bytes();
    };
    let sizes = args.iter().map(|(arg, _)| match arg {
        Arg::Vector(dtype) => h.of(*dtype).bytes(),
        Arg::Scalar(_) => 0,
    });
    sizes.fold(h.of(result).bytes(), usize::max)
}

/// Whether the text calls the helper for half as many lanes.
pub(super) fn in_halves(h: VectorHelper) -> bool {
    match h.kind {
        // Only bits are combined, which is the same on pieces.
        Negate => false,
        Any => h.bytes() >= 64,
        DotBf16 => h.bytes() > 64,
        _ => signature(h).is_some() && longest(h) >= 32 && h.lanes > 2,
    }
}

/// The helpers on vectors that the text calls, and the types in it.
pub(super) fn calls(h: VectorHelper) -> Vec<VectorHelper> {
    let typed = |dtype| VectorHelper::typed(dtype, h.lanes);
    let mut calls = Vec::new();
    if let Some((result, args)) = signature(h) {
        calls.push(typed(result));
        calls.extend(args.iter().filter_map(|(arg, _)| match arg {
            Arg::Vector(dtype) => Some(typed(*dtype)),
            Arg::Scalar(_) => None,
        }));
    }
    if in_halves(h) {
        calls.push(h.half());
        // The text for the whole is not written.
        if longest(h) > 64 {
            return calls;
        }
    }
    let word = h.word();
    let signed = typed(mask_dtype(h.dtype));
    let select = |dtype| [h.other(Select).of(dtype), h.other(Splat).of(dtype)];
    match h.kind {
        Select => calls.push(signed),
        Negate => calls.push(typed(word)),
        Widen => {
            calls.extend([typed(U32), h.other(Convert(U32)).of(U16)]);
            if h.dtype == F16 {
                calls.extend([typed(I32), h.other(Select).of(U32)]);
            }
        }
        NarrowF32 => {
            calls.extend(select(U32));
            calls.push(h.other(Convert(U16)).of(U32));
            if h.dtype == F16 {
                calls.extend(select(F16));
                calls.push(h.other(Convert(I16)).of(I32));
            }
        }
        NarrowF64 => {
            calls.extend(select(U64));
            calls.extend([typed(F32), h.other(NarrowF32), h.other(Select).of(F64)]);
            calls.push(h.other(Convert(U32)).of(U64));
        }
        Bitcast => calls.extend(select(word)),
        FloatToInt(to) => {
            calls.push(signed);
            if casts::saturates_in_floats(h.dtype, to) {
                calls.extend(select(h.dtype));
                if to.size() < 4 {
                    calls.extend([typed(I32), h.other(Convert(to)).of(I32)]);
                }
            } else {
                calls.extend(select(to));
            }
        }
        Max => {
            calls.extend([signed, h.other(Select)]);
            calls.extend(h.dtype.is_float().then(|| typed(word)));
        }
        Shl | Shr => {
            calls.push(typed(word));
            calls.extend(select(word));
        }
        Exp | Exp2 | Log2 | SinNear => {
            calls.extend([typed(word), signed, h.other(Fma)]);
            calls.extend(select(h.dtype));
            calls.extend(matches!(h.kind, Exp | Exp2).then(|| h.other(Scale)));
        }
        Scale => calls.extend([typed(word), signed]),
        Sin => calls.extend([signed, h.other(Any), h.other(SinNear)]),
        Any => calls.push(signed),
        DotBf16 => {
            calls.extend([typed(F32), typed(U32), typed(I32), h.other(Fma)]);
        }
        Splat | Iota => calls.push(typed(h.dtype)),
        Preamble | Type | Convert(_) | Less | Differ | Fma | Sqrt | Trunc | NarrowInt
        | FloorDiv | FloorMod | Load | LoadMasked | GatherStrided | GatherStridedMasked
        | Gather(_) | GatherMasked(_) | Store | StoreMasked | StoreStream | Fence
        | ScatterStrided | ScatterStridedMasked | Scatter(_) | ScatterMasked(_) => {}
    }
    calls
}

/// The helpers on scalars that the text calls.
pub(super) fn scalar_calls(h: VectorHelper) -> Vec<Helper> {
    match h.kind {
        FloorDiv => vec![Helper::FloorDiv(h.dtype)],
        FloorMod => vec![Helper::FloorMod(h.dtype)],
        NarrowInt if h.dtype == U64 => vec![Helper::NarrowU64],
        NarrowInt => vec![Helper::NarrowI64],
        Sin => vec![Helper::SinFar(h.dtype)],
        // The number that rounds to integers is a scalar constant, and so are its bits.
        Scale => vec![Helper::Bits(h.dtype)],
        _ => vec![],
    }
}

const PREAMBLE: &str = "\
#define INLINE static inline __attribute__((always_inline))
#ifndef __has_builtin
#define __has_builtin(name) 0
#endif
";

/// The C definition of a helper.
pub(super) fn definition(h: VectorHelper) -> String {
    let (v, name) = (h.vector(), h.name());
    match h.kind {
        Preamble => PREAMBLE.into(),
        Type => {
            let (element, bytes) = (c_type(h.dtype), h.bytes());
            format!("typedef {element} {name} __attribute__((vector_size({bytes})));\n")
        }
        Splat => splat(h),
        Iota => {
            let places: Vec<String> = (0..h.lanes).map(|i| i.to_string()).collect();
            let places = places.join(", ");
            format!("INLINE {v} {name}(void) {{\n    return ({v}){{{places}}};\n}}\n")
        }
        Any => any(h),
        DotBf16 => dot_bf16(h),
        _ => {
            let head = head(h);
            let isa = match longest(h) {
                32 => "__AVX2__",
                _ => "__AVX512F__",
            };
            let body = match in_halves(h) {
                false => body(h),
                true if longest(h) > 64 => halves(h),
                true => {
                    let (body, halves) = (body(h), halves(h));
                    format!("#if defined({isa})\n{body}#else\n{halves}#endif\n")
                }
            };
            format!("{head} {{\n{body}}}\n")
        }
    }
}

/// `INLINE f32x8 max_f32x8(f32x8 a, f32x8 b)`.
fn head(h: VectorHelper) -> String {
    let (result, args) = signature(h).expect("functions with a body have a signature");
    let declared = |(arg, name): &(Arg, &str)| match arg {
        Arg::Vector(dtype) => format!("{} {name}", vector_type(*dtype, h.lanes)),
        Arg::Scalar(dtype) => format!("{} {name}", c_type(*dtype)),
    };
    let args: Vec<String> = args.iter().map(declared).collect();
    let result = vector_type(result, h.lanes);
    format!("INLINE {result} {}({})", h.name(), args.join(", "))
}

/// The function on both halves of its parameters.
fn halves(h: VectorHelper) -> String {
    let (result, args) = signature(h).expect("functions with halves have a signature");
    let half = h.half();
    let union = |dtype: DType| {
        let [whole, part] = [h.lanes, half.lanes].map(|lanes| vector_type(dtype, lanes));
        format!("    union {{ {whole} whole; {part} half[2]; }}")
    };
    let mut text = String::new();
    let mut parts = Vec::new();
    for (arg, name) in args {
        match arg {
            Arg::Vector(dtype) => {
                text += &format!("{} {name}s = {{{name}}};\n", union(dtype));
                parts.push(format!("{name}s.half[i]"));
            }
            Arg::Scalar(_) => parts.push(name.into()),
        }
    }
    let call = |i: &str| format!("{}({})", half.name(), parts.join(", ")).replace("[i]", i);
    format!(
        "{text}{} both;
    both.half[0] = {};
    both.half[1] = {};
    return both.whole;
",
        union(result),
        call("[0]"),
        call("[1]")
    )
}

/// The statements for a vector that the machine has.
fn body(h: VectorHelper) -> String {
    let (v, n) = (h.vector(), h.lanes);
    match h.kind {
        Convert(to) => casts::convert(h, to),
        Less => "    return a < b;\n".into(),
        Differ => "    return a != b;\n".into(),
        Select => {
            let m = h.of(mask_dtype(h.dtype)).vector();
            let chosen = match v == m {
                true => "(mask & yes) | (~mask & no)".to_string(),
                false => format!("({v})((mask & ({m})yes) | (~mask & ({m})no))"),
            };
            // From a comparison right before them gcc makes one blend of the ands and ors.
            format!(
                "#if defined(__AVX512F__)\n    mask = mask < 0;\n#endif\n    return {chosen};\n"
            )
        }
        Fma | Sqrt | Trunc => rounded(h),
        Negate if h.dtype.size() == 2 => "    return x ^ 0x8000;\n".into(),
        Negate => {
            let word = vector_type(h.word(), n);
            let sign = literal(Scalar::from_bits(h.word(), 1 << (h.dtype.bits() - 1)));
            format!("    return ({v})(({word})x ^ {sign});\n")
        }
        Widen => casts::widen(h),
        NarrowF32 => casts::narrow_f32(h),
        NarrowF64 => casts::narrow_f64(h),
        NarrowInt => {
            let call = format!("{}(x[i])", scalar_calls(h)[0].name());
            by_lanes(&vector_type(BF16, n), n, &call)
        }
        Bitcast => casts::bitcast(h),
        FloatToInt(to) => casts::float_to_int(h, to),
        Max => max(h),
        FloorDiv | FloorMod => {
            let call = format!("{}(a[i], b[i])", scalar_calls(h)[0].name());
            by_lanes(&v, n, &call)
        }
        Shl | Shr => shift(h),
        Scale | Exp | Exp2 | Log2 | SinNear if h.dtype == F32 => recorded::<f32>(h),
        Scale | Exp | Exp2 | Log2 | SinNear => recorded::<f64>(h),
        Sin => sine(h),
        Preamble | Type | Splat | Iota | Any | DotBf16 | Load | LoadMasked | GatherStrided
        | GatherStridedMasked | Gather(_) | GatherMasked(_) | Store | StoreMasked | StoreStream
        | Fence | ScatterStrided | ScatterStridedMasked | Scatter(_) | ScatterMasked(_) => {
            unreachable!("{} has another form", h.name())
        }
    }
}

/// The statements that set each lane of the result by itself.
fn by_lanes(result: &str, lanes: usize, expression: &str) -> String {
    format!(
        "    {result} all = {{0}};
    for (int i = 0; i < {lanes}; i++) all[i] = {expression};
    return all;
"
    )
}

fn splat(h: VectorHelper) -> String {
    let (v, name) = (h.vector(), h.name());
    // A bool is a mask: 0 or -1.
    let (lane, c) = match h.dtype {
        DType::Bool => ("-x", "int"),
        dtype => ("x", c_type(dtype)),
    };
    let list = vec![lane; h.lanes].join(", ");
    format!("INLINE {v} {name}({c} x) {{\n    return ({v}){{{list}}};\n}}\n")
}

fn any(h: VectorHelper) -> String {
    let (m, name, n) = (h.of(mask_dtype(h.dtype)).vector(), h.name(), h.lanes);
    let double = h.dtype.size() == 8;
    let (suffix, float) = if double {
        ("pd", "double")
    } else {
        ("ps", "float")
    };
    let sign_bits = |isa, bytes: usize, length: &str| {
        let arg = format!("(__attribute__((vector_size({bytes}))) {float})mask");
        let call = format!("__builtin_ia32_movmsk{suffix}{length}({arg})");
        Instruction::new(isa, format!("    return {call} != 0;\n"))
    };
    let instruction = match h.bytes() {
        64 => {
            let (letter, element) = if double {
                ("q", "long long")
            } else {
                ("d", "int")
            };
            let arg = format!("(__attribute__((vector_size(64))) {element})mask");
            let call = format!("__builtin_ia32_cvt{letter}2mask512({arg})");
            Some(Instruction::new(
                "__AVX512DQ__",
                format!("    return {call} != 0;\n"),
            ))
        }
        32 => Some(sign_bits("__AVX__", 32, "256")),
        16 => Some(sign_bits("__SSE2__", 16, "")),
        _ => None,
    };
    let portable = if in_halves(h) {
        let half = h.half();
        let part = half.of(mask_dtype(h.dtype)).vector();
        format!(
            "    union {{ {m} whole; {part} half[2]; }} masks = {{mask}};
    return {any}(masks.half[0]) || {any}(masks.half[1]);
",
            any = half.name()
        )
    } else {
        format!(
            "    int any = 0;
    for (int i = 0; i < {n}; i++) any |= mask[i] != 0;
    return any;
"
        )
    };
    let body = choose(instruction.as_slice(), &portable);
    format!("INLINE int {name}({m} mask) {{\n{body}}}\n")
}

/// Functions that are one instruction on machines that have it.
fn rounded(h: VectorHelper) -> String {
    let double = h.dtype == F64;
    let (s, suffix) = if double { ("pd", "") } else { ("ps", "f") };
    let instruction = match (h.kind, h.bytes()) {
        (Fma, 64) => Some(("__AVX512F__", format!("vfmadd{s}512_mask(a, b, c, -1, 4)"))),
        (Fma, 32) => Some(("__FMA__", format!("vfmadd{s}256(a, b, c)"))),
        (Fma, 16) => Some(("__FMA__", format!("vfmadd{s}(a, b, c)"))),
        (Sqrt, 64) => Some(("__AVX512F__", format!("sqrt{s}512_mask(x, x, -1, 4)"))),
        (Sqrt, 32) => Some(("__AVX__", format!("sqrt{s}256(x)"))),
        (Sqrt, 16) => Some(("__SSE2__", format!("sqrt{s}(x)"))),
        // 3 is towards zero, 8 asks for no exceptions.
        (Trunc, 64) => Some(("__AVX512F__", format!("rndscale{s}_mask(x, 11, x, -1, 4)"))),
        (Trunc, 32) => Some(("__AVX__", format!("round{s}256(x, 11)"))),
        (Trunc, 16) => Some(("__SSE4_1__", format!("round{s}(x, 11)"))),
        _ => None,
    };
    let instruction = instruction
        .map(|(isa, call)| Instruction::new(isa, format!("    return __builtin_ia32_{call};\n")));
    let call = match h.kind {
        Fma => format!("__builtin_fma{suffix}(a[i], b[i], c[i])"),
        Sqrt => format!("__builtin_sqrt{suffix}(x[i])"),
        _ => format!("__builtin_trunc{suffix}(x[i])"),
    };
    choose(
        instruction.as_slice(),
        &by_lanes(&h.vector(), h.lanes, &call),
    )
}

fn max(h: VectorHelper) -> String {
    let v = h.vector();
    if !h.dtype.is_float() {
        return format!("    return select_{v}(a < b, b, a);\n");
    }
    let w = vector_type(h.word(), h.lanes);
    let s = if h.dtype == F64 { "pd" } else { "ps" };
    // Of two zeros, and where one is NaN, the machine's maximum gives the second: both ways round
    // they differ in the sign of zero only, which is + unless both are -. All bits set are a NaN.
    let both = |max: &str, unordered: &str| {
        format!(
            "    {w} larger = ({w})__builtin_ia32_{max}(a, b) & ({w})__builtin_ia32_{max}(b, a);
    return ({v})(larger | ({w}){unordered});
"
        )
    };
    let instruction = match h.bytes() {
        // 5 asks for the larger, +0 above -0; where one is NaN it gives the other.
        64 => Some(Instruction::new(
            "__AVX512DQ__",
            format!(
                "    {v} larger = __builtin_ia32_range{s}512_mask(a, b, 5, a, -1, 4);
    return select_{v}((a == a) & (b == b), larger, a + b);
"
            ),
        )),
        32 => {
            let unordered = format!("__builtin_ia32_cmp{s}256(a, b, 3)");
            Some(Instruction::new(
                "__AVX__",
                both(&format!("max{s}256"), &unordered),
            ))
        }
        16 => {
            let unordered = format!("__builtin_ia32_cmpunord{s}(a, b)");
            Some(Instruction::new(
                "__SSE2__",
                both(&format!("max{s}"), &unordered),
            ))
        }
        _ => None,
    };
    // Equal numbers have equal bits, but for zeros. The sum of unordered ones is NaN.
    let portable = format!(
        "    {v} equal = ({v})(({w})a & ({w})b);
    {v} other = select_{v}(a == b, equal, a + b);
    return select_{v}(a < b, b, select_{v}(b < a, a, other));
"
    );
    choose(instruction.as_slice(), &portable)
}

fn shift(h: VectorHelper) -> String {
    let (v, w, width) = (h.vector(), vector_type(h.word(), h.lanes), h.dtype.bits());
    let number = |value: u32| literal(Scalar::from_i128(h.word(), value as i128));
    let (width, last) = (number(width), number(width - 1));
    match h.kind {
        Shl => format!(
            "    {w} amount = ({w})b, shifted = ({w})a << (amount & {last});
    return ({v})(shifted & ({w})(amount < {width}));
"
        ),
        _ if h.dtype.is_signed() => format!(
            "    {w} amount = select_{w}(({w})b < {width}, ({w})b, splat_{w}({last}));
    return a >> ({v})amount;
"
        ),
        _ => format!("    return (a >> (b & {last})) & ({w})(b < {width});\n"),
    }
}

/// A function that Rust computes with the very same sequence.
fn recorded<F: Recordable>(h: VectorHelper) -> String {
    let recorder = Recorder::<F>::vector(h.lanes);
    if h.kind == Scale {
        let (y, t) = (recorder.real("y"), recorder.real("t"));
        let generic = recorder.body(math::scale(y, t));
        let round = literal(Scalar::from_f64(F::DTYPE, F::FORMAT.round));
        let s = if h.dtype == F64 { "pd" } else { "ps" };
        let instruction = match h.bytes() {
            64 => Some(("__AVX512F__", format!("512_mask(y, t - {round}, y, -1, 4)"))),
            32 => Some(("__AVX512VL__", format!("256_mask(y, t - {round}, y, -1)"))),
            16 => Some(("__AVX512VL__", format!("128_mask(y, t - {round}, y, -1)"))),
            _ => None,
        };
        let instruction = instruction.map(|(isa, rest)| {
            Instruction::new(isa, format!("    return __builtin_ia32_scalef{s}{rest};\n"))
        });
        return choose(instruction.as_slice(), &generic);
    }
    let x = recorder.real("x");
    let y = match h.kind {
        Exp => math::exp(x),
        Exp2 => math::exp2(x),
        Log2 => math::log2(x),
        _ => sin::sin_near(x, recorder.word("k")),
    };
    recorder.body(y)
}

/// The lanes that are far are rare: everything about them happens in memory, in a branch.
fn sine(h: VectorHelper) -> String {
    let VectorHelper {
        dtype: t, lanes: n, ..
    } = h;
    let (v, m) = (h.vector(), h.of(mask_dtype(t)).vector());
    let format = if t == F32 {
        &Format::SINGLE
    } else {
        &Format::DOUBLE
    };
    let far = literal(Scalar::from_f64(t, format.far));
    format!(
        "    {v} y = sin_near_{v}(x, k);
    {m} far = ~((x > -{far}) & (x < {far}));
    if (__builtin_expect(any_{v}(far), 0)) {{
        {v} from = x, all = y;
        {m} which = far;
        for (int i = 0; i < {n}; i++)
            if (which[i]) all[i] = sin_far_{t}(from[i], k);
        y = all;
    }}
    return y;
"
    )
}

/// The instruction rounds each of its two sums once, the upper factors' first, takes subnormal
/// operands for 0 and so too a result that is subnormal when rounded as if exponents had no end.
fn dot_bf16(h: VectorHelper) -> String {
    let (n, v, name) = (h.lanes, h.vector(), h.name());
    let words = vector_type(U32, n);
    let head = format!("INLINE {v} {name}({v} acc, {words} a, {words} b) {{\n");
    if in_halves(h) {
        let half = h.half();
        let (part, part_words) = (half.vector(), vector_type(U32, half.lanes));
        return format!(
            "{head}    union {{ {v} whole; {part} half[2]; }} sums = {{acc}};
    union {{ {words} whole; {part_words} half[2]; }} as = {{a}}, bs = {{b}};
    sums.half[0] = {dot}(sums.half[0], as.half[0], bs.half[0]);
    sums.half[1] = {dot}(sums.half[1], as.half[1], bs.half[1]);
    return sums.whole;
}}
",
            dot = half.name(),
        );
    }
    let portable = format!(
        "    u32x{n} sum = (u32x{n})acc;
    for (int half = 0; half < 2; half++) {{
        u32x{n} p = a << 16 * half & 0xffff0000u, q = b << 16 * half & 0xffff0000u;
        f32x{n} x = (f32x{n})(p & ((u32x{n})((p & 0x7f800000u) != 0) | 0x80000000u));
        f32x{n} y = (f32x{n})(q & ((u32x{n})((q & 0x7f800000u) != 0) | 0x80000000u));
        f32x{n} z = (f32x{n})(sum & ((u32x{n})((sum & 0x7f800000u) != 0) | 0x80000000u));
        sum = (u32x{n})fma_f32x{n}(x, y, z);
        /* Whether the least normal number was reached by rounding a smaller one: 2^64 times that is rounded in the same place. */
        u32x{n} scaled = (u32x{n})fma_f32x{n}(x * 18446744073709551616.0f, y, z * 18446744073709551616.0f);
        u32x{n} reached = (u32x{n})((scaled & 0x7fffffffu) < 0x20800000u) & (u32x{n})((sum & 0x7fffffffu) == 0x00800000u);
        u32x{n} zero = reached | (u32x{n})((sum & 0x7f800000u) == 0);
        sum &= ~zero | 0x80000000u;
    }}
    return (f32x{n})sum;
"
    );
    let isa = match h.bytes() {
        64 => "defined(__AVX512BF16__)",
        16 | 32 => "defined(__AVX512BF16__) && defined(__AVX512VL__)",
        _ => return format!("{head}{portable}}}\n"),
    };
    // The types of the compilers' builtin function differ from version to version.
    format!(
        "{head}#if {isa}
    __asm__(\"vdpbf16ps %2, %1, %0\" : \"+v\"(acc) : \"v\"(a), \"v\"(b));
    return acc;
#else
{portable}#endif
}}
"
    )
}
