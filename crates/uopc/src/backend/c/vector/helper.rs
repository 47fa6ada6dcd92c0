//! The helper functions on vectors, and the types they are written in: their names, what each
//! calls, and what a reader of the C file is told.
//!
//! Their C texts are in `arithmetic` and `memory`.

use super::{arithmetic, memory, vector_type};
use crate::backend::c::prelude::Helper;
use crate::ir::dtype::DType;

/// A helper function, or type, for one dtype and one number of lanes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VectorHelper {
    /// What it does.
    pub kind: Kind,
    /// The dtype that it works on.
    pub dtype: DType,
    /// How many of them.
    pub lanes: usize,
}

/// What a helper does.
///
/// The order of declaration is an order of definition: a helper calls only those above it, and its
/// own kind for fewer lanes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// What the types and functions below stand on.
    Preamble,
    /// The vector type.
    Type,
    /// A scalar in each lane.
    Splat,
    /// 0, 1, 2, ...
    Iota,
    /// An integer in one of another width.
    Convert(DType),
    /// a < b, as a mask of the width of the dtype.
    Less,
    /// a != b, as such a mask.
    Differ,
    /// One or the other, by such a mask.
    Select,
    /// Whether any lane of such a mask is true.
    Any,
    /// a * b + c, rounded once.
    Fma,
    /// The square root.
    Sqrt,
    /// Rounded to an integer towards zero.
    Trunc,
    /// The other sign.
    Negate,
    /// f16 or bf16 to f32.
    Widen,
    /// f32 to f16 or bf16.
    NarrowF32,
    /// f64 to f16 or bf16.
    NarrowF64,
    /// i64 or u64 to bf16.
    NarrowInt,
    /// The bits of a float, those of NaN being canonical.
    Bitcast,
    /// f32 or f64 to an integer.
    FloatToInt(DType),
    /// The larger of two.
    Max,
    /// Division rounded down.
    FloorDiv,
    /// Its remainder.
    FloorMod,
    /// Shift left.
    Shl,
    /// Shift right.
    Shr,
    /// y * 2^n for t = n + 1.5 * 2^fraction.
    Scale,
    /// e to the power x.
    Exp,
    /// 2 to the power x.
    Exp2,
    /// Logarithm to base 2.
    Log2,
    /// Sine for ordinary arguments.
    SinNear,
    /// Sine of x + k quarter turns.
    Sin,
    /// Neighbouring elements.
    Load,
    /// Some of them.
    LoadMasked,
    /// Elements at equal distances.
    GatherStrided,
    /// Some of them.
    GatherStridedMasked,
    /// Elements at places in integers of the dtype.
    Gather(DType),
    /// Some of them.
    GatherMasked(DType),
    /// Sets neighbouring elements.
    Store,
    /// Sets some of them.
    StoreMasked,
    /// Sets them past the caches.
    StoreStream,
    /// Ends a sequence of those.
    Fence,
    /// Sets elements at equal distances.
    ScatterStrided,
    /// Sets some of them.
    ScatterStridedMasked,
    /// Sets elements at places in integers of the dtype.
    Scatter(DType),
    /// Sets some of them.
    ScatterMasked(DType),
    /// acc + a0 * b0 + a1 * b1 on pairs of bf16.
    DotBf16,
}

use Kind::*;

impl From<VectorHelper> for Helper {
    fn from(helper: VectorHelper) -> Helper {
        Helper::Vector(helper)
    }
}

impl VectorHelper {
    /// That helper.
    pub fn new(kind: Kind, dtype: DType, lanes: usize) -> VectorHelper {
        VectorHelper { kind, dtype, lanes }
    }

    /// The definition of [`vector_type`].
    pub fn typed(dtype: DType, lanes: usize) -> VectorHelper {
        // Dtypes that share a C type share its definition.
        let dtype = match dtype {
            DType::Bool => DType::I32,
            DType::F16 | DType::BF16 => DType::U16,
            _ => dtype,
        };
        VectorHelper::new(Type, dtype, lanes)
    }

    /// Another helper for the same vectors.
    pub(super) fn other(self, kind: Kind) -> VectorHelper {
        VectorHelper { kind, ..self }
    }

    /// The same for another dtype.
    pub(super) fn of(self, dtype: DType) -> VectorHelper {
        VectorHelper { dtype, ..self }
    }

    /// The same for half as many lanes.
    pub(super) fn half(self) -> VectorHelper {
        let lanes = self.lanes / 2;
        VectorHelper { lanes, ..self }
    }

    /// The size of the vector of its dtype.
    pub(super) fn bytes(self) -> usize {
        let size = match self.dtype {
            DType::Bool => 4,
            dtype => dtype.size(),
        };
        size * self.lanes
    }

    /// The vector type of its dtype.
    pub(super) fn vector(self) -> String {
        vector_type(self.dtype, self.lanes)
    }

    /// The unsigned integers as wide as its dtype.
    pub(super) fn word(self) -> DType {
        match self.dtype.size() {
            1 => DType::U8,
            2 => DType::U16,
            4 => DType::U32,
            _ => DType::U64,
        }
    }

    /// Its name in C.
    pub fn name(self) -> String {
        let VectorHelper { kind, dtype, lanes } = self;
        let of = |verb: &str| format!("{verb}_{dtype}x{lanes}");
        let cast = |to: DType| format!("{dtype}_to_{to}x{lanes}");
        let at = |verb: &str, index: DType| format!("{verb}_{dtype}_at_{index}x{lanes}");
        match kind {
            Preamble => "INLINE".into(),
            Type => vector_type(dtype, lanes),
            Splat => of("splat"),
            Iota => of("iota"),
            Convert(to) | FloatToInt(to) => cast(to),
            Less => of("less"),
            Differ => of("differ"),
            Select => of("select"),
            Any => of("any"),
            Fma => of("fma"),
            Sqrt => of("sqrt"),
            Trunc => of("trunc"),
            Negate => of("negate"),
            Widen => cast(DType::F32),
            NarrowF32 => format!("f32_to_{dtype}x{lanes}"),
            NarrowF64 => format!("f64_to_{dtype}x{lanes}"),
            NarrowInt => cast(DType::BF16),
            Bitcast => of("bitcast"),
            Max => of("max"),
            FloorDiv => of("floordiv"),
            FloorMod => of("floormod"),
            Shl => of("shl"),
            Shr => of("shr"),
            Scale => of("scale"),
            Exp => of("exp"),
            Exp2 => of("exp2"),
            Log2 => of("log2"),
            SinNear => of("sin_near"),
            Sin => of("sin"),
            Load => of("load"),
            LoadMasked => of("load_masked"),
            GatherStrided => of("gather_strided"),
            GatherStridedMasked => of("gather_strided_masked"),
            Gather(index) => at("gather", index),
            GatherMasked(index) => at("gather_masked", index),
            Store => of("store"),
            StoreMasked => of("store_masked"),
            StoreStream => of("store_stream"),
            Fence => "fence".into(),
            ScatterStrided => of("scatter_strided"),
            ScatterStridedMasked => of("scatter_strided_masked"),
            Scatter(index) => at("scatter", index),
            ScatterMasked(index) => at("scatter_masked", index),
            DotBf16 => of("dot_bf16"),
        }
    }

    /// The helpers that it calls itself, and the types in its text.
    pub(in crate::backend::c) fn needs(self) -> Vec<Helper> {
        let VectorHelper { kind, dtype, lanes } = self;
        let mut needs = match kind {
            Preamble => vec![],
            Type | Fence => vec![VectorHelper::new(Preamble, DType::Bool, 0)],
            _ => vec![VectorHelper::typed(dtype, lanes)],
        };
        needs.extend(arithmetic::calls(self));
        needs.extend(memory::calls(self));
        let scalars = arithmetic::scalar_calls(self);
        needs.into_iter().map(Helper::from).chain(scalars).collect()
    }

    /// One line for the reader of the C file; nothing for a type.
    pub(in crate::backend::c) fn comment(self) -> &'static str {
        match self.kind {
            Preamble => {
                "Functions on vectors have no call, whose rules would depend on the machine."
            }
            Type => "",
            Splat => "The same number in each lane.",
            Iota => "Each lane's position.",
            Convert(_) => "Each lane as an integer of another width.",
            Less => "Where a < b: all bits of the lane, else none.",
            Differ => "Where a and b differ: all bits of the lane, else none.",
            Select => {
                "The lanes of one vector where the mask has all bits, of the other elsewhere."
            }
            Any => "Whether a lane of the mask has all bits.",
            Fma => "a * b + c, rounded once.",
            Sqrt => "The square root.",
            Trunc => "Rounded to an integer towards zero.",
            Negate => "The number with the other sign, kept apart from a fused multiply-add.",
            Widen => "A 16-bit float as a float, exactly.",
            NarrowF32 => "The nearest 16-bit float, ties to even.",
            NarrowF64 => "The nearest 16-bit float, rounded once.",
            NarrowInt => "The nearest bfloat16, lane by lane.",
            Bitcast => "The bits of a number; all NaNs have the same.",
            FloatToInt(_) => "Rounded towards zero and saturated; NaN gives 0.",
            Max if self.dtype.is_float() => "The larger; NaN if either is NaN, and +0 is above -0.",
            Max => "The larger.",
            FloorDiv => "Division rounded down; by zero it gives 0. Lane by lane.",
            FloorMod => "The remainder with the sign of b; 0 if b is zero. Lane by lane.",
            Shl => "Shift left; 0 if the amount is out of range.",
            Shr => {
                "Shift right, keeping the sign; nothing else remains if the amount is out of range."
            }
            Scale => "y * 2^n, rounded once, for t that is n and what rounds to integers.",
            Exp => "e to the power x.",
            Exp2 => "2 to the power x.",
            Log2 => "Logarithm to base 2.",
            SinNear => "Sine of x + k quarter turns: x minus multiples of pi/2.",
            Sin => "Sine of x + k quarter turns; large x are computed one by one.",
            Load => "Neighbouring elements.",
            LoadMasked => {
                "Neighbouring elements where the mask is true, else 0 and nothing is read."
            }
            GatherStrided => "Elements that lie equally far from each other.",
            GatherStridedMasked => {
                "Such elements where the mask is true, else 0 and nothing is read."
            }
            Gather(_) => "Elements at any places.",
            GatherMasked(_) => "Such elements where the mask is true, else 0 and nothing is read.",
            Store => "Sets neighbouring elements.",
            StoreMasked => "Sets neighbouring elements where the mask is true.",
            StoreStream => "Sets neighbouring elements, past the caches if they are aligned.",
            Fence => "What was stored past the caches comes before what is stored next.",
            ScatterStrided => "Sets elements that lie equally far from each other.",
            ScatterStridedMasked => "Sets such elements where the mask is true.",
            Scatter(_) => "Sets elements at any places, one lane after the other.",
            ScatterMasked(_) => "Sets such elements where the mask is true.",
            DotBf16 => {
                "acc + a1 * b1 + a0 * b0 on pairs of bfloat16, each product and sum rounded once, \
                 numbers below the normal ones taken for 0."
            }
        }
    }

    /// Its C definition.
    pub(in crate::backend::c) fn definition(self) -> String {
        match self.kind {
            Load | LoadMasked | GatherStrided | GatherStridedMasked | Gather(_)
            | GatherMasked(_) | Store | StoreMasked | StoreStream | Fence | ScatterStrided
            | ScatterStridedMasked | Scatter(_) | ScatterMasked(_) => memory::definition(self),
            _ => arithmetic::definition(self),
        }
    }
}

/// What one vector function does where the machine has an instruction for it.
pub(super) struct Instruction {
    /// The macro that compilers define where the machine has it.
    pub isa: &'static str,
    /// The call of the compiler's builtin function for it.
    pub call: String,
}

impl Instruction {
    pub(super) fn new(isa: &'static str, call: String) -> Instruction {
        Instruction { isa, call }
    }
}

/// The last lines of a function: one of the instructions (statements that each end the function),
/// the first that the compiler and the machine have, else the portable statements.
pub(super) fn choose(instructions: &[Instruction], portable: &str) -> String {
    let mut text = String::new();
    for (i, Instruction { isa, call }) in instructions.iter().enumerate() {
        let word = if i == 0 { "if" } else { "elif" };
        let start = call.find("__builtin_ia32_").map_or("", |at| &call[at..]);
        let end = start
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(0);
        let builtin = &start[..end];
        text += &format!("#{word} defined({isa}) && __has_builtin({builtin})\n{call}");
    }
    match instructions.is_empty() {
        true => portable.into(),
        false => format!("{text}#else\n{portable}#endif\n"),
    }
}
