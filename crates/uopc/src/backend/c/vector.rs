//! One op in C on vectors: the lanes' side of [`scalar`](super::scalar), with the same bits.
//!
//! | dtype | C type of 8 lanes | |
//! |---|---|---|
//! | f32, f64, i8 to u64 | `f32x8`, `f64x8`, `i8x8`, ... | what gcc and clang call a generic vector |
//! | f16, bf16 | `u16x8` | the bits |
//! | bool | `i32x8` | 0 or -1 in each lane; in memory a bool is one byte |
//!
//! Where the compiler's vectors have an operator that means what the op means, it is spelled
//! plainly, `(a+b)`. Everything else is a call of a [`Helper`], which takes the machine's
//! instruction where the preprocessor finds it and says the same in portable C otherwise. What has
//! no vector form, as division of integers, goes lane by lane through the scalar helper.
//!
//! Every function here gives a C expression (a store gives a statement without its semicolon) and
//! the helpers that it calls, the type of the result among them. Arguments are C expressions:
//! names, calls, constants or in parentheses. `lanes` is a power of two from 2 to 64.

mod arithmetic;
mod casts;
pub mod helper;
mod memory;

use super::prelude::Helper;
use super::scalar::{bare, literal};
use crate::ir::dtype::DType;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;
use helper::{Kind, VectorHelper};

/// A C expression and the helpers that it calls.
pub type Spelled = (String, Vec<Helper>);

/// Where the lanes of a gather or scatter lie, in elements.
#[derive(Clone, Copy, Debug)]
pub enum Index<'a> {
    /// At `start`, `start + stride` and so on, two scalars.
    Strided {
        /// The first lane's place.
        start: &'a str,
        /// From one lane to the next.
        stride: &'a str,
    },
    /// Where a vector of integers says.
    Vector {
        /// Its dtype.
        dtype: DType,
        /// The vector.
        text: &'a str,
    },
}

/// The name of the C type of so many lanes of a dtype. Its definition is [`type_helper`].
pub fn vector_type(dtype: DType, lanes: usize) -> String {
    let element = match dtype {
        DType::Bool => DType::I32,
        DType::F16 | DType::BF16 => DType::U16,
        _ => dtype,
    };
    format!("{element}x{lanes}")
}

/// The definition of [`vector_type`].
pub fn type_helper(dtype: DType, lanes: usize) -> Helper {
    VectorHelper::typed(dtype, lanes).into()
}

/// An elementwise op on vectors: [`scalar::call`](super::scalar::call) in every lane.
///
/// ```
/// use uopc::backend::c::vector::call;
/// use uopc::ir::{dtype::DType, op::Op};
///
/// let (text, _) = call(&Op::Add, DType::F32, &[DType::F32; 2], &["val1", "val2"], 8);
/// assert_eq!(text, "(val1+val2)");
/// let (text, _) = call(&Op::MulAcc, DType::F32, &[DType::F32; 3], &["a", "b", "c"], 8);
/// assert_eq!(text, "fma_f32x8(a, b, c)");
/// ```
///
/// # Panics
///
/// If `op` is not elementwise or the number of arguments is wrong: the graph was not verified.
pub fn call<S: AsRef<str>>(
    op: &Op,
    dtype: DType,
    sources: &[DType],
    args: &[S],
    lanes: usize,
) -> Spelled {
    let args: Vec<&str> = args.iter().map(|a| a.as_ref()).collect();
    spell(dtype, lanes, |c| c.op(op, dtype, sources, &args))
}

/// A scalar in every lane.
pub fn splat(dtype: DType, lanes: usize, scalar: &str) -> Spelled {
    spell(dtype, lanes, |c| c.help(Kind::Splat, dtype, &[scalar]))
}

/// The integers 0, 1, 2, ...
pub fn iota(dtype: DType, lanes: usize) -> Spelled {
    spell(dtype, lanes, |c| c.help(Kind::Iota, dtype, &[]))
}

/// One lane as a scalar.
pub fn lane(dtype: DType, lanes: usize, vector: &str, i: &str) -> Spelled {
    spell(dtype, lanes, |_| match dtype {
        DType::Bool => format!("({vector}[{i}]!=0)"),
        _ => format!("{vector}[{i}]"),
    })
}

/// A float vector with all signs turned, kept apart from a fused multiply-add as
/// [`Helper::Negate`] is.
pub fn negate(dtype: DType, lanes: usize, vector: &str) -> Spelled {
    spell(dtype, lanes, |c| c.help(Kind::Negate, dtype, &[vector]))
}

/// Neighbouring elements from `address` on, a C pointer to the element type.
pub fn load(dtype: DType, lanes: usize, address: &str) -> Spelled {
    spell(dtype, lanes, |c| c.help(Kind::Load, dtype, &[address]))
}

/// [`load`] of the lanes whose mask is true. The others are not read and are 0.
pub fn load_masked(dtype: DType, lanes: usize, address: &str, mask: &str) -> Spelled {
    let args = [address, mask];
    spell(dtype, lanes, |c| c.help(Kind::LoadMasked, dtype, &args))
}

/// Elements of `base`. Lanes whose mask is false are not read and are 0.
pub fn gather(
    dtype: DType,
    lanes: usize,
    base: &str,
    index: &Index,
    mask: Option<&str>,
) -> Spelled {
    spell(dtype, lanes, |c| match *index {
        Index::Strided { start, stride } => {
            let first = address(base, start);
            match mask {
                Some(mask) => c.help(Kind::GatherStridedMasked, dtype, &[&first, stride, mask]),
                None => c.help(Kind::GatherStrided, dtype, &[&first, stride]),
            }
        }
        Index::Vector { dtype: from, text } => {
            let (index, text) = c.places(from, text);
            match mask {
                Some(mask) => c.help(Kind::GatherMasked(index), dtype, &[base, &text, mask]),
                None => c.help(Kind::Gather(index), dtype, &[base, &text]),
            }
        }
    })
}

/// Sets neighbouring elements from `address` on.
pub fn store(dtype: DType, lanes: usize, address: &str, value: &str) -> Spelled {
    let args = [address, value];
    spell(dtype, lanes, |c| c.help(Kind::Store, dtype, &args))
}

/// [`store`] of the lanes whose mask is true. The others' elements are not touched.
pub fn store_masked(dtype: DType, lanes: usize, address: &str, value: &str, mask: &str) -> Spelled {
    let args = [address, value, mask];
    spell(dtype, lanes, |c| c.help(Kind::StoreMasked, dtype, &args))
}

/// [`store`] past the caches, for what is not read again soon. It takes effect for other threads
/// at the next [`fence`] of this one. An address that is not a multiple of the vector's size is
/// stored to plainly.
pub fn store_stream(dtype: DType, lanes: usize, address: &str, value: &str) -> Spelled {
    let args = [address, value];
    spell(dtype, lanes, |c| c.help(Kind::StoreStream, dtype, &args))
}

/// Ends a sequence of [`store_stream`]s.
pub fn fence() -> Spelled {
    let fence = VectorHelper::new(Kind::Fence, DType::Bool, 1);
    (format!("{}()", fence.name()), vec![fence.into()])
}

/// Sets elements of `base`, the lanes in order, so that the last of those with one place stays.
pub fn scatter(
    dtype: DType,
    lanes: usize,
    base: &str,
    index: &Index,
    value: &str,
    mask: Option<&str>,
) -> Spelled {
    spell(dtype, lanes, |c| match *index {
        Index::Strided { start, stride } => {
            let first = address(base, start);
            match mask {
                Some(mask) => {
                    let args = [&first, stride, value, mask];
                    c.help(Kind::ScatterStridedMasked, dtype, &args)
                }
                None => c.help(Kind::ScatterStrided, dtype, &[&first, stride, value]),
            }
        }
        Index::Vector { dtype: from, text } => {
            let (index, text) = c.places(from, text);
            match mask {
                Some(mask) => {
                    let args = [base, &text, value, mask];
                    c.help(Kind::ScatterMasked(index), dtype, &args)
                }
                None => c.help(Kind::Scatter(index), dtype, &[base, &text, value]),
            }
        }
    })
}

/// `acc + upper(a) * upper(b) + lower(a) * lower(b)` where each lane of the vectors of u32 is a word of
/// two bf16: the instruction of AVX512-BF16, which rounds after each product and takes subnormal
/// numbers for 0, and the same bits elsewhere.
pub fn dot_bf16(lanes: usize, acc: &str, a: &str, b: &str) -> Spelled {
    let args = [acc, a, b];
    spell(DType::F32, lanes, |c| {
        c.types.push(VectorHelper::typed(DType::U32, lanes));
        c.help(Kind::DotBf16, DType::F32, &args)
    })
}

fn address(base: &str, start: &str) -> String {
    match start {
        "0" => base.into(),
        _ => format!("{base}+{start}"),
    }
}

/// An expression with a vector of the dtype as its value or argument.
fn spell(dtype: DType, lanes: usize, text: impl FnOnce(&mut Call) -> String) -> Spelled {
    let mut c = Call {
        lanes,
        types: vec![VectorHelper::typed(dtype, lanes)],
        helpers: Vec::new(),
    };
    let text = text(&mut c);
    let helpers = c.helpers.into_iter().chain(c.types).map(Helper::from);
    (text, helpers.collect())
}

/// An expression in the making.
struct Call {
    lanes: usize,
    types: Vec<VectorHelper>,
    helpers: Vec<VectorHelper>,
}

impl Call {
    fn op(&mut self, op: &Op, dtype: DType, sources: &[DType], args: &[&str]) -> String {
        use DType::*;
        match op {
            Op::Add | Op::Max | Op::Or if dtype == Bool => infix("|", args),
            Op::Mul | Op::And if dtype == Bool => infix("&", args),
            Op::MulAcc if dtype == Bool => infix("|", &[&infix("&", &args[..2]), args[2]]),
            Op::CmpLt if sources[0] == Bool => format!("(~{}&{})", args[0], args[1]),
            Op::CmpNe if sources[0] == Bool => infix("^", args),
            Op::Add => self.number(dtype, args, |_, _, a| infix("+", a)),
            Op::Mul => self.number(dtype, args, |_, _, a| infix("*", a)),
            Op::Max => self.number(dtype, args, |c, t, a| c.help(Kind::Max, t, a)),
            Op::Recip => self.number(dtype, args, |_, t, a| {
                infix("/", &[&literal(Scalar::one(t)), a[0]])
            }),
            Op::Div => self.number(dtype, args, |_, _, a| infix("/", a)),
            Op::Exp2 => self.number(dtype, args, |c, t, a| c.help(Kind::Exp2, t, a)),
            Op::Log2 => self.number(dtype, args, |c, t, a| c.help(Kind::Log2, t, a)),
            Op::Exp => self.number(dtype, args, |c, t, a| c.help(Kind::Exp, t, a)),
            Op::Sqrt => self.number(dtype, args, |c, t, a| c.help(Kind::Sqrt, t, a)),
            Op::Sin(k) => self.number(dtype, args, |c, t, a| {
                c.help(Kind::Sin, t, &[a[0], &k.to_string()])
            }),
            Op::Trunc => self.number(dtype, args, |c, t, a| c.help(Kind::Trunc, t, a)),
            Op::MulAcc => self.number(dtype, args, |c, t, a| match t {
                F32 | F64 => c.help(Kind::Fma, t, a),
                _ => infix("+", &[&infix("*", &a[..2]), a[2]]),
            }),
            Op::Cast(to) => self.cast(sources[0], *to, args[0]),
            Op::Bitcast(to) => self.bitcast(sources[0], *to, args[0]),
            Op::Where => {
                let mask = self.mask_of_width(dtype, args[0]);
                self.help(Kind::Select, dtype, &[&mask, args[1], args[2]])
            }
            Op::CmpLt => self.compare(Kind::Less, sources[0], args),
            Op::CmpNe => self.compare(Kind::Differ, sources[0], args),
            Op::FloorDiv => self.help(Kind::FloorDiv, dtype, args),
            Op::FloorMod => self.help(Kind::FloorMod, dtype, args),
            Op::And => infix("&", args),
            Op::Or => infix("|", args),
            Op::Xor => infix("^", args),
            Op::Shl => self.help(Kind::Shl, dtype, args),
            Op::Shr => self.help(Kind::Shr, dtype, args),
            Op::Const(_)
            | Op::Buffer { .. }
            | Op::Param { .. }
            | Op::Iota { .. }
            | Op::Reshape(_)
            | Op::Expand(_)
            | Op::Permute(_)
            | Op::Shrink(_)
            | Op::Stack
            | Op::Index
            | Op::ScatterAdd(_)
            | Op::Reduce { .. }
            | Op::Scan(_)
            | Op::ArgSort
            | Op::Custom(_)
            | Op::Stage(_)
            | Op::Range { .. }
            | Op::End
            | Op::Store { .. }
            | Op::Load
            | Op::Local { .. }
            | Op::Sink
            | Op::After
            | Op::Call { .. }
            | Op::Loop
            | Op::EndLoop
            | Op::If
            | Op::EndIf
            | Op::Let { .. }
            | Op::Declare(_)
            | Op::Barrier => unreachable!("{} is not an op on vectors", op.mnemonic()),
        }
    }

    /// Calls a helper.
    fn help(&mut self, kind: Kind, dtype: DType, args: &[&str]) -> String {
        let helper = VectorHelper::new(kind, dtype, self.lanes);
        self.helpers.push(helper);
        let args: Vec<&str> = args.iter().map(|a| bare(a)).collect();
        format!("{}({})", helper.name(), args.join(", "))
    }

    /// The name of a vector type.
    fn typed(&mut self, dtype: DType) -> String {
        self.types.push(VectorHelper::typed(dtype, self.lanes));
        vector_type(dtype, self.lanes)
    }

    /// An op whose sources and result are of one dtype; 16-bit floats are computed as f32.
    fn number(
        &mut self,
        dtype: DType,
        args: &[&str],
        spell: impl Fn(&mut Call, DType, &[&str]) -> String,
    ) -> String {
        if !matches!(dtype, DType::F16 | DType::BF16) {
            return spell(self, dtype, args);
        }
        let wide: Vec<String> = args.iter().map(|a| self.widen(dtype, a)).collect();
        let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
        let result = spell(self, DType::F32, &wide);
        self.typed(DType::F32);
        self.help(Kind::NarrowF32, dtype, &[&result])
    }

    /// A float in a type that C computes in.
    fn widen(&mut self, dtype: DType, arg: &str) -> String {
        match dtype {
            DType::F16 | DType::BF16 => self.help(Kind::Widen, dtype, &[arg]),
            _ => arg.to_string(),
        }
    }

    /// A comparison as a mask of 32 bits a lane.
    fn compare(&mut self, kind: Kind, dtype: DType, args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(|a| self.widen(dtype, a)).collect();
        let dtype = computed(dtype);
        let mask = self.help(kind, dtype, &[&args[0], &args[1]]);
        self.convert(mask_dtype(dtype), DType::I32, &mask)
    }

    /// A mask of 32 bits a lane as one that selects values of the dtype.
    fn mask_of_width(&mut self, dtype: DType, mask: &str) -> String {
        self.convert(DType::I32, mask_dtype(dtype), mask)
    }

    /// An integer vector in another integer dtype.
    fn convert(&mut self, from: DType, to: DType, arg: &str) -> String {
        if from == to {
            arg.to_string()
        } else if from.size() == to.size() {
            format!("(({}){arg})", self.typed(to))
        } else {
            self.help(Kind::Convert(to), from, &[arg])
        }
    }

    /// An index vector in one of the dtypes that gathers know.
    fn places(&mut self, from: DType, text: &str) -> (DType, String) {
        let index = match from {
            DType::U32 | DType::I64 | DType::U64 => DType::I64,
            _ => DType::I32,
        };
        (index, self.convert(from, index, text))
    }

    fn cast(&mut self, from: DType, to: DType, arg: &str) -> String {
        use DType::*;
        if from == to {
            return arg.to_string();
        }
        if from == Bool {
            return self.number_of_bool(to, arg);
        }
        let wide_from = computed(from);
        match to {
            Bool => {
                let arg = self.widen(from, arg);
                let zero = self.help(Kind::Splat, wide_from, &[&literal(Scalar::zero(wide_from))]);
                self.compare(Kind::Differ, wide_from, &[&arg, &zero])
            }
            F32 | F64 if from.is_float() => {
                let arg = self.widen(from, arg);
                if wide_from == to {
                    arg
                } else {
                    self.help(Kind::Convert(to), wide_from, &[&arg])
                }
            }
            F32 | F64 => self.int_to_float(from, to, arg),
            F16 | BF16 => match from {
                F64 => self.help(Kind::NarrowF64, to, &[arg]),
                F32 | F16 | BF16 => {
                    let arg = self.widen(from, arg);
                    self.help(Kind::NarrowF32, to, &[&arg])
                }
                // As for scalars: integers that f32 would round.
                U64 | I64 if to == BF16 => self.help(Kind::NarrowInt, from, &[arg]),
                I32 | U32 if to == BF16 => {
                    let arg = self.int_to_float(from, F64, arg);
                    self.help(Kind::NarrowF64, to, &[&arg])
                }
                _ => {
                    let arg = self.int_to_float(from, F32, arg);
                    self.help(Kind::NarrowF32, to, &[&arg])
                }
            },
            _ if from.is_float() => {
                let arg = self.widen(from, arg);
                // An f32 is an f64, where an integer of 64 bits has a vector of one width.
                if wide_from == F32 && to.size() == 8 {
                    let arg = self.help(Kind::Convert(F64), F32, &[&arg]);
                    return self.help(Kind::FloatToInt(to), F64, &[&arg]);
                }
                self.help(Kind::FloatToInt(to), wide_from, &[&arg])
            }
            _ => self.convert(from, to, arg),
        }
    }

    /// 0 or 1 in any dtype from a mask.
    fn number_of_bool(&mut self, to: DType, mask: &str) -> String {
        match to {
            DType::F16 | DType::BF16 => {
                let mask = self.convert(DType::I32, DType::U16, mask);
                format!("({mask}&{})", literal(Scalar::one(to)))
            }
            DType::F32 | DType::F64 => {
                let one = format!("({mask}&1)");
                self.help(Kind::Convert(to), DType::I32, &[&one])
            }
            _ => {
                let mask = self.convert(DType::I32, to, mask);
                format!("({mask}&{})", literal(Scalar::one(to)))
            }
        }
    }

    /// An integer as f32 or f64.
    fn int_to_float(&mut self, from: DType, to: DType, arg: &str) -> String {
        // There are no instructions for the narrow ones.
        if from.size() < 4 {
            let arg = self.convert(from, DType::I32, arg);
            return self.help(Kind::Convert(to), DType::I32, &[&arg]);
        }
        self.help(Kind::Convert(to), from, &[arg])
    }

    fn bitcast(&mut self, from: DType, to: DType, arg: &str) -> String {
        if from == to {
            return arg.to_string();
        }
        let word = if from.is_float() {
            self.help(Kind::Bitcast, from, &[arg])
        } else {
            arg.into()
        };
        if matches!(
            (from, to),
            (DType::F16, DType::BF16) | (DType::BF16, DType::F16)
        ) {
            return word;
        }
        format!("(({}){word})", self.typed(to))
    }
}

/// The dtype in which C computes.
fn computed(dtype: DType) -> DType {
    if dtype.is_float() {
        dtype.accumulator()
    } else {
        dtype
    }
}

/// The integers that hold the outcome of a comparison, as wide as what is compared.
pub(super) fn mask_dtype(dtype: DType) -> DType {
    match dtype.size() {
        _ if dtype == DType::Bool => DType::I32,
        1 => DType::I8,
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    }
}

/// `(a+b)`.
fn infix(symbol: &str, args: &[&str]) -> String {
    format!("({})", args.join(symbol))
}
