//! The C texts of the helpers that read and write vectors.
//!
//! Elements have the alignment of scalars only. A masked access touches no element whose lane is
//! false, so that it may reach over the end of an array.

use super::helper::{Instruction, Kind, VectorHelper, choose};
use super::vector_type;
use crate::backend::c::scalar::c_type;
use crate::ir::dtype::DType;

use DType::{Bool, I8, I32};
use Kind::*;

/// Whether the text calls the helper for half as many lanes: where masks are longer than the
/// vectors that a machine has, or values are.
fn in_halves(h: VectorHelper) -> bool {
    let longest = h.bytes().max(4 * h.lanes);
    match h.kind {
        LoadMasked | StoreMasked => longest > 64 || longest == 64 && h.dtype.size() >= 4,
        GatherMasked(_) | Gather(_) => longest > 64,
        StoreStream => h.dtype != Bool && h.bytes() > 32,
        _ => false,
    }
}

/// The helpers on vectors that the text calls, and the types in it.
pub(super) fn calls(h: VectorHelper) -> Vec<VectorHelper> {
    let typed = |dtype| VectorHelper::typed(dtype, h.lanes);
    let mut calls = match h.kind {
        Load | Store if h.dtype == Bool => {
            let to = if h.kind == Load { (I8, I32) } else { (I32, I8) };
            vec![typed(I8), h.other(Convert(to.1)).of(to.0)]
        }
        LoadMasked | StoreMasked | GatherStridedMasked | ScatterStridedMasked => {
            vec![typed(Bool)]
        }
        Gather(index) | Scatter(index) => vec![typed(index)],
        GatherMasked(index) | ScatterMasked(index) => vec![typed(index), typed(Bool)],
        StoreStream => vec![h.other(Store)],
        _ => vec![],
    };
    if in_halves(h) {
        calls.push(h.half());
    }
    calls
}

/// The C definition of a helper.
pub(super) fn definition(h: VectorHelper) -> String {
    match h.kind {
        Load => load(h),
        Store => store(h),
        LoadMasked => load_masked(h),
        StoreMasked => store_masked(h),
        StoreStream => store_stream(h),
        Fence => "\
INLINE void fence(void) {
#if defined(__SSE__)
    __builtin_ia32_sfence();
#endif
}
"
        .into(),
        GatherStrided | GatherStridedMasked | Gather(_) | GatherMasked(_) => gather(h),
        _ => scatter(h),
    }
}

/// The type of vectors in memory, which may lie anywhere.
fn unaligned(h: VectorHelper) -> String {
    let (c, size) = (c_type(h.dtype), h.dtype.size());
    let c = if h.dtype == Bool { "signed char" } else { c };
    format!(
        "    typedef {c} memory __attribute__((vector_size({}), aligned({size}), may_alias));\n",
        size * h.lanes
    )
}

fn load(h: VectorHelper) -> String {
    let (v, name, c, n) = (h.vector(), h.name(), c_type(h.dtype), h.lanes);
    let value = match h.dtype {
        // A byte is true unless it is 0.
        Bool => format!("i8_to_i32x{n}(*(const memory*)p != 0)"),
        _ => "*(const memory*)p".to_string(),
    };
    format!(
        "INLINE {v} {name}(const {c}* p) {{\n{}    return {value};\n}}\n",
        unaligned(h)
    )
}

fn store(h: VectorHelper) -> String {
    let (v, name, c, n) = (h.vector(), h.name(), c_type(h.dtype), h.lanes);
    let value = match h.dtype {
        Bool => format!("i32_to_i8x{n}(x) & 1"),
        _ => "x".to_string(),
    };
    format!(
        "INLINE void {name}({c}* p, {v} x) {{\n{}    *(memory*)p = {value};\n}}\n",
        unaligned(h)
    )
}

/// The instruction set and the suffix of the masked moves with one bit a lane, and the type of
/// the vector that they take.
fn move_by_bits(h: VectorHelper) -> Option<(&'static str, &'static str, String)> {
    let bytes = h.bytes();
    let (isa, element, suffix) = match (h.dtype.size(), bytes) {
        (4, 16 | 32) => ("__AVX512VL__", "float", ["ps128", "ps256"][bytes / 32]),
        (4, 64) => ("__AVX512DQ__", "float", "ps512"),
        (8, 32) => ("__AVX512VL__", "double", "pd256"),
        (8, 64) => ("__AVX512DQ__", "double", "pd512"),
        (2, 16 | 32) => (
            "__AVX512VL__",
            "short",
            ["dquhi128", "dquhi256"][bytes / 32],
        ),
        (1, 16) if h.dtype != Bool => ("__AVX512VL__", "char", "dquqi128"),
        _ => return None,
    };
    let vector = format!("__attribute__((vector_size({bytes}))) {element}");
    Some((isa, suffix, vector))
}

/// One bit for each lane of `mask`.
fn bits(h: VectorHelper) -> String {
    let bits = 32 * h.lanes;
    format!("__builtin_ia32_cvtd2mask{bits}(mask)")
}

/// The moves of AVX, whose masks are as wide as the elements.
fn move_by_signs(h: VectorHelper) -> Option<(&'static str, String, String)> {
    let bytes = h.bytes();
    let length = if bytes == 32 { "256" } else { "" };
    let (suffix, integer, float) = match (h.dtype.size(), bytes) {
        (4, 16 | 32) => ("ps", "int", "float"),
        (8, 32) => ("pd", "long long", "double"),
        _ => return None,
    };
    let vector = |element| format!("__attribute__((vector_size({bytes}))) {element}");
    let mask = match h.dtype.size() {
        4 => "mask".to_string(),
        _ => format!("__builtin_convertvector(mask, {})", vector(integer)),
    };
    let suffix = match length {
        "" => suffix,
        _ if suffix == "ps" => "ps256",
        _ => "pd256",
    };
    Some((suffix, mask, vector(float)))
}

fn load_masked(h: VectorHelper) -> String {
    let VectorHelper {
        dtype, lanes: n, ..
    } = h;
    let (v, name, c) = (h.vector(), h.name(), c_type(dtype));
    let mut instructions = Vec::new();
    if let Some((isa, suffix, vector)) = move_by_bits(h) {
        let verb = if suffix.starts_with('p') {
            "loadu"
        } else {
            "load"
        };
        let args = format!("(const void*)p, ({vector}){{0}}, {}", bits(h));
        let call = format!("    return ({v})__builtin_ia32_{verb}{suffix}_mask({args});\n");
        instructions.push(Instruction::new(isa, call));
    }
    if let Some((suffix, mask, _)) = move_by_signs(h) {
        let call =
            format!("    return ({v})__builtin_ia32_maskload{suffix}((const void*)p, {mask});\n");
        instructions.push(Instruction::new("__AVX__", call));
    }
    let portable = if in_halves(h) {
        let half = h.half();
        let (part, half_mask) = (half.vector(), vector_type(Bool, half.lanes));
        format!(
            "    union {{ i32x{n} whole; {half_mask} half[2]; }} masks = {{mask}};
    union {{ {v} whole; {part} half[2]; }} both;
    both.half[0] = {load}(p, masks.half[0]);
    both.half[1] = {load}(p + {}, masks.half[1]);
    return both.whole;
",
            half.lanes,
            load = half.name(),
        )
    } else {
        let value = if dtype == Bool { "-p[i]" } else { "p[i]" };
        format!(
            "    {v} all = {{0}};
    for (int i = 0; i < {n}; i++)
        if (mask[i]) all[i] = {value};
    return all;
"
        )
    };
    let body = choose(&instructions, &portable);
    format!("INLINE {v} {name}(const {c}* p, i32x{n} mask) {{\n{body}}}\n")
}

fn store_masked(h: VectorHelper) -> String {
    let VectorHelper {
        dtype, lanes: n, ..
    } = h;
    let (v, name, c) = (h.vector(), h.name(), c_type(dtype));
    let mut instructions = Vec::new();
    if let Some((isa, suffix, vector)) = move_by_bits(h) {
        let verb = if suffix.starts_with('p') {
            "storeu"
        } else {
            "store"
        };
        let args = format!("(void*)p, ({vector})x, {}", bits(h));
        let call = format!("    __builtin_ia32_{verb}{suffix}_mask({args});\n");
        instructions.push(Instruction::new(isa, call));
    }
    if let Some((suffix, mask, vector)) = move_by_signs(h) {
        let call =
            format!("    __builtin_ia32_maskstore{suffix}((void*)p, {mask}, ({vector})x);\n");
        instructions.push(Instruction::new("__AVX__", call));
    }
    let portable = if in_halves(h) {
        let half = h.half();
        let (part, half_mask) = (half.vector(), vector_type(Bool, half.lanes));
        format!(
            "    union {{ i32x{n} whole; {half_mask} half[2]; }} masks = {{mask}};
    union {{ {v} whole; {part} half[2]; }} both = {{x}};
    {store}(p, both.half[0], masks.half[0]);
    {store}(p + {}, both.half[1], masks.half[1]);
",
            half.lanes,
            store = half.name(),
        )
    } else {
        let value = if dtype == Bool { "x[i] != 0" } else { "x[i]" };
        format!("    for (int i = 0; i < {n}; i++)\n        if (mask[i]) p[i] = {value};\n")
    };
    let body = choose(&instructions, &portable);
    format!("INLINE void {name}({c}* p, {v} x, i32x{n} mask) {{\n{body}}}\n")
}

fn store_stream(h: VectorHelper) -> String {
    let (v, name, c, bytes) = (h.vector(), h.name(), c_type(h.dtype), h.bytes());
    let plain = format!("{}(p, x)", h.other(Store).name());
    let stream = |isa, suffix: &str| {
        let vector = format!("__attribute__((vector_size({bytes}))) float");
        let call = format!("__builtin_ia32_movntps{suffix}((void*)p, ({vector})x)");
        let text = format!(
            "    if ((unsigned long)p % {bytes} == 0) {call};
    else {plain};
"
        );
        Instruction::new(isa, text)
    };
    let instruction = match bytes {
        _ if h.dtype == Bool => None,
        64 => Some(stream("__AVX512F__", "512")),
        32 => Some(stream("__AVX__", "256")),
        16 => Some(stream("__SSE__", "")),
        _ => None,
    };
    let portable = if in_halves(h) {
        let half = h.half();
        let part = half.vector();
        format!(
            "    union {{ {v} whole; {part} half[2]; }} both = {{x}};
    {store}(p, both.half[0]);
    {store}(p + {}, both.half[1]);
",
            half.lanes,
            store = half.name(),
        )
    } else {
        format!("    {plain};\n")
    };
    let body = choose(instruction.as_slice(), &portable);
    format!("INLINE void {name}({c}* p, {v} x) {{\n{body}}}\n")
}

/// Whether the kind has a mask.
fn masked(h: VectorHelper) -> bool {
    matches!(
        h.kind,
        GatherStridedMasked | GatherMasked(_) | ScatterStridedMasked | ScatterMasked(_)
    )
}

/// The parameter that says where elements are, the place of lane i, and for a vector of places
/// its dtype.
fn places(h: VectorHelper) -> (String, &'static str, Option<DType>) {
    match h.kind {
        Gather(index) | GatherMasked(index) | Scatter(index) | ScatterMasked(index) => {
            let vector = vector_type(index, h.lanes);
            (format!("{vector} index"), "index[i]", Some(index))
        }
        _ => ("long stride".into(), "i * stride", None),
    }
}

fn gather(h: VectorHelper) -> String {
    let VectorHelper {
        dtype, lanes: n, ..
    } = h;
    let (v, name, c) = (h.vector(), h.name(), c_type(dtype));
    let (parameter, place, index) = places(h);
    let mask = if masked(h) {
        format!(", i32x{n} mask")
    } else {
        String::new()
    };
    let instructions = index.map_or(Vec::new(), |index| gather_instructions(h, index));
    let element = if dtype == Bool {
        format!("-p[{place}]")
    } else {
        format!("p[{place}]")
    };
    let portable = if in_halves(h) {
        let half = h.half();
        let index = index.map_or(I32, |index| index);
        let (index_part, part) = (vector_type(index, half.lanes), half.vector());
        let half_mask = vector_type(Bool, half.lanes);
        let masks = match masked(h) {
            true => {
                format!("    union {{ i32x{n} whole; {half_mask} half[2]; }} masks = {{mask}};\n")
            }
            false => String::new(),
        };
        let mask = |i| {
            if masked(h) {
                format!(", masks.half[{i}]")
            } else {
                String::new()
            }
        };
        format!(
            "{masks}    union {{ {} whole; {index_part} half[2]; }} places = {{index}};
    union {{ {v} whole; {part} half[2]; }} both;
    both.half[0] = {gather}(p, places.half[0]{});
    both.half[1] = {gather}(p, places.half[1]{});
    return both.whole;
",
            vector_type(index, n),
            mask(0),
            mask(1),
            gather = half.name(),
        )
    } else if masked(h) {
        format!(
            "    {v} all = {{0}};
    for (int i = 0; i < {n}; i++)
        if (mask[i]) all[i] = {element};
    return all;
"
        )
    } else {
        let lane = |i: usize| match index {
            Some(_) => element.replace("[i]", &format!("[{i}]")),
            None => element.replace("i * stride", &format!("{i} * stride")),
        };
        let list: Vec<String> = (0..n).map(lane).collect();
        let pairs = if h.kind == GatherStrided {
            every_other(h)
        } else {
            String::new()
        };
        format!("{pairs}    return ({v}){{{}}};\n", list.join(", "))
    };
    let body = choose(&instructions, &portable);
    format!("INLINE {v} {name}(const {c}* p, {parameter}{mask}) {{\n{body}}}\n")
}

/// Every other element: two vectors that reach no further than the last one, and one instruction.
fn every_other(h: VectorHelper) -> String {
    let n = h.lanes;
    if h.dtype == Bool || n < 4 || h.bytes() > 64 {
        return String::new();
    }
    // The second vector begins with the last element of the first one.
    let places: Vec<String> = (0..n)
        .map(|i| (2 * i + usize::from(2 * i >= n)).to_string())
        .collect();
    format!(
        "#if __has_builtin(__builtin_shufflevector)
    if (__builtin_constant_p(stride) && stride == 2) {{
    {}        memory low = *(const memory*)p, high = *(const memory*)(p + {});
        return __builtin_shufflevector(low, high, {});
    }}
#endif
",
        unaligned(h),
        n - 1,
        places.join(", ")
    )
}

/// Gathers of 4 and 8 bytes by as many places as fill a vector.
fn gather_instructions(h: VectorHelper, index: DType) -> Vec<Instruction> {
    let VectorHelper {
        dtype, lanes: n, ..
    } = h;
    if dtype == Bool {
        return vec![];
    }
    let v = h.vector();
    let size = dtype.size();
    let (element, suffix) = match size {
        4 => ("float", "sf"),
        8 => ("double", "df"),
        _ => return vec![],
    };
    let (letter, integer) = if index == I32 {
        ("s", "int")
    } else {
        ("d", "long long")
    };
    let vector =
        |bytes: usize, element: &str| format!("__attribute__((vector_size({bytes}))) {element}");
    let places = format!("({})index", vector(n * index.size(), integer));
    let values = vector(n * size, element);
    match n * size.max(index.size()) {
        64 => {
            let mask = if masked(h) { bits(h) } else { "-1".into() };
            // The name counts lanes as for places of 4 bytes.
            let count = if size == 4 { 16 } else { 8 };
            let call = format!(
                "    return ({v})__builtin_ia32_gather{letter}iv{count}{suffix}(({values}){{0}}, (const void*)p, {places}, {mask}, {size});\n"
            );
            vec![Instruction::new("__AVX512DQ__", call)]
        }
        32 if size == index.size() => {
            let mask = match (masked(h), size) {
                (false, _) => format!("({values})~({}){{0}}", vector(32, integer)),
                (true, 4) => format!("({values})mask"),
                _ => format!(
                    "({values})__builtin_convertvector(mask, {})",
                    vector(32, integer)
                ),
            };
            let call = format!(
                "    return ({v})__builtin_ia32_gather{letter}iv{n}{suffix}(({values}){{0}}, (const void*)p, {places}, {mask}, {size});\n"
            );
            vec![Instruction::new("__AVX2__", call)]
        }
        _ => vec![],
    }
}

fn scatter(h: VectorHelper) -> String {
    let VectorHelper {
        dtype, lanes: n, ..
    } = h;
    let (v, name, c) = (h.vector(), h.name(), c_type(dtype));
    let (parameter, place, _) = places(h);
    let mask = if masked(h) {
        format!(", i32x{n} mask")
    } else {
        String::new()
    };
    let condition = if masked(h) {
        "\n        if (mask[i]) "
    } else {
        " "
    };
    let value = if dtype == Bool { "x[i] != 0" } else { "x[i]" };
    format!(
        "INLINE void {name}({c}* p, {parameter}, {v} x{mask}) {{
    for (int i = 0; i < {n}; i++){condition}p[{place}] = {value};
}}
"
    )
}
