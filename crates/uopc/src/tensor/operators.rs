//! The operators `+ - * /`, unary `-`, `& | ^ !` on tensors and numbers.
//!
//! They panic at the caller's line with the text of the error that the method of that name
//! returns.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

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

/// Numbers on the left: f64 and i32 alone, or the type of a literal in `(1.0 / &t).exp()` could not
/// be told. Others go to the right, or through [`Operand`].
macro_rules! number_first {
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

number_first! { f64: Add add, Sub sub, Mul mul, Div div }
number_first! { i32: Add add, Sub sub, Mul mul, Div div }

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
