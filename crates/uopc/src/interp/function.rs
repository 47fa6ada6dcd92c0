//! Scalar ops on registers, which hold the bits of scalars.

use smallvec::SmallVec;

use crate::ir::op::Op;
use crate::ir::scalar::apply;
use crate::ir::{DType, Scalar};

/// An op on registers: by a function of its own where it is common, else by
/// [`apply`], which means the same.
pub(super) enum Function {
    One(fn(u64) -> u64),
    Two(fn(u64, u64) -> u64),
    Three(fn(u64, u64, u64) -> u64),
    Any {
        op: Op,
        dtype: DType,
        from: SmallVec<[DType; 3]>,
    },
}

fn single(f: f32) -> u64 {
    Scalar::f32(f).bits()
}

fn as_f32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn double(f: f64) -> u64 {
    Scalar::from_f64(DType::F64, f).bits()
}

/// The function of an op on two operands, for the pairs of op and dtype that fill inner loops.
fn fast(op: &Op, from: DType) -> Option<fn(u64, u64) -> u64> {
    use DType::{Bool, F32, F64, I32, I64};
    type Row = (Op, DType, fn(u64, u64) -> u64);
    let table: &[Row] = &[
        (Op::Add, F32, |a, b| single(as_f32(a) + as_f32(b))),
        (Op::Mul, F32, |a, b| single(as_f32(a) * as_f32(b))),
        (Op::Div, F32, |a, b| single(as_f32(a) / as_f32(b))),
        (Op::CmpLt, F32, |a, b| (as_f32(a) < as_f32(b)) as u64),
        (Op::Add, F64, |a, b| {
            double(f64::from_bits(a) + f64::from_bits(b))
        }),
        (Op::Mul, F64, |a, b| {
            double(f64::from_bits(a) * f64::from_bits(b))
        }),
        (Op::Add, I32, |a, b| {
            (a as u32).wrapping_add(b as u32) as u64
        }),
        (Op::Mul, I32, |a, b| {
            (a as u32).wrapping_mul(b as u32) as u64
        }),
        (Op::CmpLt, I32, |a, b| ((a as i32) < b as i32) as u64),
        (Op::CmpNe, I32, |a, b| (a != b) as u64),
        (Op::Add, I64, u64::wrapping_add),
        (Op::Mul, I64, u64::wrapping_mul),
        (Op::CmpLt, I64, |a, b| ((a as i64) < b as i64) as u64),
        (Op::And, Bool, |a, b| a & b),
    ];
    table
        .iter()
        .find(|(o, d, _)| o == op && *d == from)
        .map(|row| row.2)
}

impl Function {
    /// The function of an elementwise op on operands of these dtypes.
    pub(super) fn new(op: Op, dtype: DType, from: SmallVec<[DType; 3]>) -> Function {
        if let Some(f) = fast(&op, from[0]) {
            return Function::Two(f);
        }
        if op == Op::Where {
            return Function::Three(|c, a, b| if c != 0 { a } else { b });
        }
        if op == Op::MulAcc && dtype == DType::F32 {
            return Function::Three(|a, b, c| single(as_f32(a).mul_add(as_f32(b), as_f32(c))));
        }
        if op == Op::Cast(DType::I64) && from[0] == DType::I32 {
            return Function::One(|a| a as i32 as i64 as u64);
        }
        Function::Any { op, dtype, from }
    }

    /// The value for these operands.
    pub(super) fn call(&self, args: &[u64]) -> u64 {
        match self {
            Function::One(f) => f(args[0]),
            Function::Two(f) => f(args[0], args[1]),
            Function::Three(f) => f(args[0], args[1], args[2]),
            Function::Any { op, dtype, from } => {
                let scalar = |(&bits, &dtype): (&u64, &DType)| Scalar::from_bits(dtype, bits);
                let scalars: SmallVec<[Scalar; 3]> = args.iter().zip(from).map(scalar).collect();
                apply(op, *dtype, &scalars).bits()
            }
        }
    }
}
