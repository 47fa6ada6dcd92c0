//! The operators `+ - * /`, unary `-`, `& | ^ !` on tensors and numbers.
//!
//! They panic at the caller's line with the text of the error that the method of that name
//! returns.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

use half::{bf16, f16};

use super::{Operand, Result, Tensor};

/// The result, or a panic with the error's text at the line that used the operator.
#[track_caller]
fn expect(result: Result<Tensor>) -> Tensor {
    match result {
        Ok(tensor) => tensor,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! binary {
    ($($trait:ident $method:ident => $twin:ident;)*) => { $(
        impl<R: Into<Operand>> $trait<R> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor {
                expect(self.$twin(other))
            }
        }

        impl<R: Into<Operand>> $trait<R> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: R) -> Tensor {
                expect(Tensor::$twin(&self, other))
            }
        }
    )* };
}

binary! {
    Add add => add;
    Sub sub => sub;
    Mul mul => mul;
    Div div => div;
    BitAnd bitand => and;
    BitOr bitor => or;
    BitXor bitxor => xor;
}

/// Numbers on the left, one impl a type: a blanket one would cover foreign types.
macro_rules! number_first {
    ($($type:ty)*) => { $(
        number_first! { $type: Add add, Sub sub, Mul mul, Div div }
    )* };
    ($type:ty: $($trait:ident $method:ident),*) => { $(
        impl $trait<&Tensor> for $type {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, tensor: &Tensor) -> Tensor {
                expect(Operand::from(self).$method(tensor))
            }
        }

        impl $trait<Tensor> for $type {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, tensor: Tensor) -> Tensor {
                expect(Operand::from(self).$method(tensor))
            }
        }
    )* };
}

number_first! { bool i8 i16 i32 i64 isize u8 u16 u32 u64 usize f16 bf16 f32 f64 }

macro_rules! unary {
    ($($trait:ident $method:ident => $twin:ident;)*) => { $(
        impl $trait for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                expect(Tensor::$twin(self))
            }
        }

        impl $trait for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                expect(Tensor::$twin(&self))
            }
        }
    )* };
}

unary! { Neg neg => neg; Not not => not; }
