//! Nodes as numbers, so that formulas read like mathematics.
//!
//! Operations on nodes can fail for other dtypes and shapes. In a formula all have the same, so
//! here they do not return a `Result`.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::error::Result;
use crate::ir::DType;
use crate::ir::op::Op;
use crate::ir::uop::UOp;

/// A float node in a formula.
#[derive(Clone)]
pub(crate) struct Num(pub UOp);

/// A truth value in a formula.
#[derive(Clone)]
pub(crate) struct Test(pub UOp);

/// What [`Num`] and [`Test`] rely on.
fn fits(node: Result<UOp>) -> UOp {
    node.expect("a formula's nodes have one float dtype and one shape")
}

impl Num {
    /// A constant beside this number.
    pub fn number(&self, value: f64) -> Num {
        Num(fits(self.0.full_like(value)))
    }

    /// `self * b + c`, rounded once.
    pub fn fma(&self, b: &Num, c: &Num) -> Num {
        Num(fits(self.0.mulacc(&b.0, &c.0)))
    }

    /// What rounding took from the product `self * b = high`: exact unless it is too small.
    pub fn product_rest(&self, b: &Num, high: &Num) -> Num {
        self.fma(b, &-high)
    }

    pub fn exp(&self) -> Num {
        Num(fits(self.0.exp()))
    }

    pub fn exp2(&self) -> Num {
        Num(fits(self.0.exp2()))
    }

    pub fn log2(&self) -> Num {
        Num(fits(self.0.log2()))
    }

    pub fn sqrt(&self) -> Num {
        Num(fits(self.0.sqrt()))
    }

    pub fn sin(&self) -> Num {
        Num(fits(self.0.sin()))
    }

    pub fn cos(&self) -> Num {
        Num(fits(self.0.cos()))
    }

    /// Rounded towards zero.
    pub fn trunc(&self) -> Num {
        Num(fits(self.0.trunc()))
    }

    pub fn max(&self, b: &Num) -> Num {
        Num(fits(self.0.maximum(&b.0)))
    }

    pub fn min(&self, b: &Num) -> Num {
        -(-self).max(&-b)
    }

    /// The absolute value, by choosing a sign: no zero of a maximum's derivative at 0.
    pub fn magnitude(&self) -> Num {
        self.is_negative().select(&-self, self)
    }

    /// Whether the sign bit is set, also that of -0. No NaN is negative.
    pub fn is_negative(&self) -> Test {
        let (dtype, zero) = match self.0.dtype() {
            DType::F64 => (DType::I64, UOp::int(0, DType::I64)),
            DType::F32 => (DType::I32, UOp::int(0, DType::I32)),
            _ => (DType::I16, UOp::int(0, DType::I16)),
        };
        let bits = fits(self.0.bitcast(dtype));
        let zero = fits(zero.broadcast_scalar(bits.shape()));
        Test(fits(bits.cmplt(&zero)))
    }

    pub fn below(&self, b: impl Beside) -> Test {
        Test(fits(self.0.cmplt(&b.beside(self).0)))
    }

    pub fn above(&self, b: impl Beside) -> Test {
        Test(fits(b.beside(self).0.cmplt(&self.0)))
    }

    pub fn equals(&self, b: impl Beside) -> Test {
        Test(fits(self.0.eq(&b.beside(self).0)))
    }

    pub fn is_nan(&self) -> Test {
        Test(fits(self.0.cmpne(&self.0)))
    }

    /// c\[0\] + c\[1\] x + c\[2\] x^2 + ..., by Horner's rule.
    pub fn polynomial(&self, coefficients: &[f64]) -> Num {
        let (last, others) = coefficients
            .split_last()
            .expect("a polynomial has coefficients");
        let start = self.number(*last);
        let horner = |sum: Num, &c: &f64| sum.fma(self, &self.number(c));
        others.iter().rev().fold(start, horner)
    }
}

impl Test {
    /// `yes` where it holds, else `no`.
    pub fn select(&self, yes: impl Beside, no: &Num) -> Num {
        Num(fits(self.0.where_(&yes.beside(no).0, &no.0)))
    }

    pub fn and(&self, other: &Test) -> Test {
        Test(fits(self.0.and(&other.0)))
    }

    pub fn or(&self, other: &Test) -> Test {
        Test(fits(self.0.or(&other.0)))
    }

    pub fn differs(&self, other: &Test) -> Test {
        Test(fits(self.0.cmpne(&other.0)))
    }

    pub fn not(&self) -> Test {
        Test(fits(self.0.logical_not()))
    }
}

/// A number, or a constant beside one.
pub(crate) trait Beside {
    fn beside(self, x: &Num) -> Num;
}

impl Beside for f64 {
    fn beside(self, x: &Num) -> Num {
        x.number(self)
    }
}

impl Beside for Num {
    fn beside(self, _: &Num) -> Num {
        self
    }
}

impl Beside for &Num {
    fn beside(self, _: &Num) -> Num {
        self.clone()
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident |$a:ident, $b:ident| $node:expr;)*) => { $(
        impl<B: Beside> $trait<B> for &Num {
            type Output = Num;
            fn $method(self, b: B) -> Num {
                let ($a, $b) = (&self.0, &b.beside(self).0);
                Num(fits($node))
            }
        }

        impl<B: Beside> $trait<B> for Num {
            type Output = Num;
            fn $method(self, b: B) -> Num {
                (&self).$method(b)
            }
        }

        impl $trait<&Num> for f64 {
            type Output = Num;
            fn $method(self, b: &Num) -> Num {
                b.number(self).$method(b)
            }
        }

        impl $trait<Num> for f64 {
            type Output = Num;
            fn $method(self, b: Num) -> Num {
                self.$method(&b)
            }
        }
    )* };
}

operators! {
    Add add |a, b| UOp::add(a, b);
    Sub sub |a, b| UOp::sub(a, b);
    Mul mul |a, b| UOp::mul(a, b);
    Div div |a, b| UOp::div(a, b);
}

impl Neg for &Num {
    type Output = Num;
    fn neg(self) -> Num {
        Num(fits(self.0.neg()))
    }
}

impl Neg for Num {
    type Output = Num;
    fn neg(self) -> Num {
        -&self
    }
}

/// The bits of an f64 as an integer node, for formulas that take its exponent apart.
pub(super) fn bits(x: &Num) -> UOp {
    fits(x.0.bitcast(DType::I64))
}

/// An integer constant of a node's shape.
fn word(x: &UOp, value: i64) -> UOp {
    fits(UOp::int(value, DType::I64).broadcast_scalar(x.shape()))
}

/// x as m * 2^e with m between the square roots of 1/2 and 2, for positive normal f64.
pub(super) fn parts(x: &Num) -> (Num, Num) {
    let bits = bits(x);
    let root_half = word(&bits, 0x3fe6_a09e_667f_3bcd);
    let fraction = word(&bits, 52);
    let e = fits(UOp::sub(&bits, &root_half));
    let e = shifted(Op::Shr, &e, &fraction);
    let m = fits(UOp::sub(&bits, &shifted(Op::Shl, &e, &fraction)));
    (
        Num(fits(m.bitcast(DType::F64))),
        Num(fits(e.cast(DType::F64))),
    )
}

fn shifted(op: Op, x: &UOp, amount: &UOp) -> UOp {
    fits(UOp::new(op, vec![x.clone(), amount.clone()]))
}
