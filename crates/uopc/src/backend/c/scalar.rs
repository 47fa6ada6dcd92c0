//! One scalar in C: its type, its constants and its ops, the C side of
//! [`ir/scalar.rs`](crate::ir::scalar).
//!
//! | dtype | C type | constant |
//! |---|---|---|
//! | f32 | `float` | the value as f64 would print it, with an `f`: `2.0f`, `0.0031250000465661287f` |
//! | f64 | `double` | `2.0` |
//! | f16, bf16 | `unsigned short`, the bits | `0x3c00` |
//! | i8, i16, i32 | `signed char`, `short`, `int` | `-5` |
//! | i64 | `long` | `-5L` |
//! | u8, u16 | `unsigned char`, `unsigned short` | `5` |
//! | u32, u64 | `unsigned`, `unsigned long` | `5U`, `5UL` |
//! | bool | `_Bool` | `1` |
//!
//! Where C means what the op means, it is spelled plainly: `(a+b)`, `(a<b)`, `(c?a:b)`. C computes
//! narrow integers as `int`, so their results are converted back. f16 and bf16 are widened to
//! float, computed and narrowed, op by op. Everything else is a call of a [`Helper`].

use super::prelude::Helper;
use crate::ir::dtype::DType;
use crate::ir::op::Op;
use crate::ir::scalar::Scalar;

/// The C type of a dtype.
pub const fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "_Bool",
        DType::I8 => "signed char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long",
        DType::U8 => "unsigned char",
        DType::U16 | DType::F16 | DType::BF16 => "unsigned short",
        DType::U32 => "unsigned",
        DType::U64 => "unsigned long",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// A constant in C.
pub fn literal(value: Scalar) -> String {
    match value.dtype() {
        DType::F16 | DType::BF16 => format!("0x{:04x}", value.bits()),
        DType::F32 => float_literal(value.as_f64(), "f"),
        DType::F64 => float_literal(value.as_f64(), ""),
        DType::I64 => int_literal(value.as_i128(), "L"),
        DType::U32 => int_literal(value.as_i128(), "U"),
        DType::U64 => int_literal(value.as_i128(), "UL"),
        DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 => {
            int_literal(value.as_i128(), "")
        }
    }
}

fn float_literal(value: f64, suffix: &str) -> String {
    if value.is_nan() {
        format!("__builtin_nan{suffix}(\"\")")
    } else if value.is_infinite() {
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}__builtin_inf{suffix}()")
    } else {
        format!("{value:?}{suffix}")
    }
}

/// C has no negative constants, only negated ones, and 2147483648 would not be an int.
fn int_literal(value: i128, suffix: &str) -> String {
    if value == i32::MIN as i128 || value == i64::MIN as i128 {
        format!("({}{suffix}-1)", value + 1)
    } else {
        format!("{value}{suffix}")
    }
}

/// A scalar op as a C expression, and the helpers that it calls.
///
/// `args` are C expressions of the sources, each either in parentheses, a name, a call or a
/// constant; `sources` are their dtypes and `dtype` is the result's.
///
/// ```
/// use uopc::backend::c::scalar::call;
/// use uopc::ir::{dtype::DType, op::Op};
///
/// let (text, helpers) = call(&Op::Add, DType::F32, &[DType::F32; 2], &["val1", "1.0f"]);
/// assert_eq!((text.as_str(), helpers.len()), ("(val1+1.0f)", 0));
/// let (text, _) = call(&Op::FloorDiv, DType::I32, &[DType::I32; 2], &["val1", "2"]);
/// assert_eq!(text, "floordiv_i32(val1, 2)");
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
) -> (String, Vec<Helper>) {
    let mut c = Call {
        helpers: Vec::new(),
    };
    let args: Vec<&str> = args.iter().map(|a| a.as_ref()).collect();
    let text = c.op(op, dtype, sources, &args);
    (text, c.helpers)
}

/// An expression in the making.
struct Call {
    helpers: Vec<Helper>,
}

impl Call {
    fn op(&mut self, op: &Op, dtype: DType, sources: &[DType], args: &[&str]) -> String {
        use DType::*;
        match op {
            Op::Add if dtype == Bool => infix("|", args),
            Op::Mul if dtype == Bool => infix("&", args),
            Op::Max if dtype == Bool => infix("|", args),
            Op::Add => self.number(dtype, args, |_, _, a| infix("+", a)),
            Op::Mul => self.number(dtype, args, |_, _, a| infix("*", a)),
            Op::Max => self.number(dtype, args, |c, t, a| c.help(Helper::Max(t), a)),
            Op::Recip => self.number(dtype, args, |_, t, a| {
                infix("/", &[&literal(Scalar::one(t)), a[0]])
            }),
            Op::Div => self.number(dtype, args, |_, _, a| infix("/", a)),
            Op::Exp2 => self.number(dtype, args, |c, t, a| c.help(Helper::Exp2(t), a)),
            Op::Log2 => self.number(dtype, args, |c, t, a| c.help(Helper::Log2(t), a)),
            Op::Exp => self.number(dtype, args, |c, t, a| c.help(Helper::Exp(t), a)),
            Op::Sqrt => self.number(dtype, args, |_, t, a| builtin("sqrt", t, a)),
            Op::Sin(k) => self.number(dtype, args, |c, t, a| {
                c.help(Helper::Sin(t), &[a[0], &k.to_string()])
            }),
            Op::Trunc => self.number(dtype, args, |_, t, a| builtin("trunc", t, a)),
            Op::MulAcc => self.number(dtype, args, |_, t, a| match t {
                F32 | F64 => builtin("fma", t, a),
                Bool => infix("|", &[&infix("&", &a[..2]), a[2]]),
                _ => infix("+", &[&infix("*", &a[..2]), a[2]]),
            }),
            Op::Cast(to) => self.cast(sources[0], *to, args[0]),
            Op::Bitcast(to) => self.bitcast(sources[0], *to, args[0]),
            Op::Where => format!("({}?{}:{})", args[0], args[1], args[2]),
            Op::CmpLt => self.compare("<", sources[0], args),
            Op::CmpNe => self.compare("!=", sources[0], args),
            Op::FloorDiv => self.help(Helper::FloorDiv(dtype), args),
            Op::FloorMod => self.help(Helper::FloorMod(dtype), args),
            Op::And => infix("&", args),
            Op::Or => infix("|", args),
            Op::Xor => infix("^", args),
            Op::Shl => self.help(Helper::Shl(dtype), args),
            Op::Shr => self.help(Helper::Shr(dtype), args),
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
            | Op::Barrier => unreachable!("{} is not an op on scalars", op.mnemonic()),
        }
    }

    /// Calls a helper.
    fn help(&mut self, helper: Helper, args: &[&str]) -> String {
        self.helpers.push(helper);
        let args: Vec<&str> = args.iter().map(|a| bare(a)).collect();
        format!("{}({})", helper.name(), args.join(", "))
    }

    /// An op whose sources and result are of one dtype. `spell` writes it at a dtype in which C
    /// computes; around it go conversions to and from f32, or back to a narrow integer.
    fn number(
        &mut self,
        dtype: DType,
        args: &[&str],
        spell: impl Fn(&mut Call, DType, &[&str]) -> String,
    ) -> String {
        match dtype {
            DType::F16 | DType::BF16 => {
                let wide: Vec<String> = args.iter().map(|a| self.widen(dtype, a)).collect();
                let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
                let result = spell(self, DType::F32, &wide);
                self.help(Helper::NarrowF32(dtype), &[&result])
            }
            DType::I8 | DType::I16 | DType::U8 | DType::U16 => {
                let result = spell(self, dtype, args);
                // A call has the right type already.
                if result.starts_with('(') {
                    convert(dtype, &result)
                } else {
                    result
                }
            }
            _ => spell(self, dtype, args),
        }
    }

    /// A float in a type that C computes in.
    fn widen(&mut self, dtype: DType, arg: &str) -> String {
        match dtype {
            DType::F16 | DType::BF16 => self.help(Helper::Widen(dtype), &[arg]),
            _ => arg.to_string(),
        }
    }

    fn compare(&mut self, symbol: &str, dtype: DType, args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(|a| self.widen(dtype, a)).collect();
        format!("({}{symbol}{})", args[0], args[1])
    }

    fn cast(&mut self, from: DType, to: DType, arg: &str) -> String {
        use DType::*;
        if from == to {
            return arg.to_string();
        }
        let wide_from = if from.is_float() {
            from.accumulator()
        } else {
            from
        };
        match to {
            Bool => {
                let arg = self.widen(from, arg);
                infix("!=", &[&arg, &literal(Scalar::zero(wide_from))])
            }
            F32 | F64 if from.is_float() => {
                let arg = self.widen(from, arg);
                if wide_from == to {
                    arg
                } else {
                    convert(to, &arg)
                }
            }
            F32 | F64 => convert(to, arg),
            F16 | BF16 => match from {
                F64 => self.help(Helper::NarrowF64(to), &[arg]),
                F32 | F16 | BF16 => {
                    let arg = self.widen(from, arg);
                    self.help(Helper::NarrowF32(to), &[&arg])
                }
                // Integers that f32 would round: f64 holds those of 32 bits. They matter for bf16
                // only; in f16 they are all infinite.
                U64 if to == BF16 => self.help(Helper::NarrowU64, &[arg]),
                I64 if to == BF16 => self.help(Helper::NarrowI64, &[arg]),
                I32 | U32 if to == BF16 => self.help(Helper::NarrowF64(to), &[&convert(F64, arg)]),
                _ => self.help(Helper::NarrowF32(to), &[&convert(F32, arg)]),
            },
            _ if from.is_float() => {
                let arg = self.widen(from, arg);
                self.help(Helper::FloatToInt(wide_from, to), &[&arg])
            }
            _ => convert(to, arg),
        }
    }

    fn bitcast(&mut self, from: DType, to: DType, arg: &str) -> String {
        if from == to {
            return arg.to_string();
        }
        let word = if from.is_float() {
            self.help(Helper::Bitcast(from), &[arg])
        } else {
            arg.into()
        };
        match to {
            DType::F32 | DType::F64 => self.help(Helper::FromBits(to), &[&word]),
            _ => convert(to, &word),
        }
    }
}

/// `(a+b)`, or `(a+b+c)`.
fn infix(symbol: &str, args: &[&str]) -> String {
    format!("({})", args.join(symbol))
}

/// `((type)a)`.
fn convert(to: DType, arg: &str) -> String {
    format!("(({}){arg})", c_type(to))
}

/// A function that the compiler knows: `__builtin_sqrtf(a)`.
fn builtin(name: &str, dtype: DType, args: &[&str]) -> String {
    let suffix = if dtype == DType::F32 { "f" } else { "" };
    let args: Vec<&str> = args.iter().map(|a| bare(a)).collect();
    format!("__builtin_{name}{suffix}({})", args.join(", "))
}

/// An expression without the parentheses around all of it.
pub(super) fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) else {
        return text;
    };
    let mut depth = 0i32;
    for c in inner.chars() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        // The first parenthesis closes before the end, as in (a)+(b).
        if depth < 0 {
            return text;
        }
    }
    inner
}
