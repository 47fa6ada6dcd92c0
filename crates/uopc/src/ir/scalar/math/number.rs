//! f32 and f64 as the [`Real`]s that compute.

use super::format::{TWO_OVER_PI, half_of_two_over_pi};
use super::{Format, Real, Truth, Word};

/// A comparison of numbers selects numbers of that type.
#[derive(Clone, Copy)]
pub struct Is<R> {
    truth: bool,
    of: std::marker::PhantomData<R>,
}

impl<R> Is<R> {
    fn new(truth: bool) -> Is<R> {
        Is {
            truth,
            of: std::marker::PhantomData,
        }
    }
}

impl<R: Copy> Truth for Is<R> {
    type Real = R;

    fn select(self, yes: R, no: R) -> R {
        if self.truth { yes } else { no }
    }
}

macro_rules! numbers {
    ($real:ident, $word:ident, $signed:ident, $double_word:ident, $format:expr, $place:expr) => {
        impl Real for $real {
            type Word = $word;
            type Truth = Is<$real>;
            const FORMAT: &'static Format = $format;

            fn constant(self, value: f64) -> $real {
                value as $real
            }
            fn fma(self, b: $real, c: $real) -> $real {
                self.mul_add(b, c)
            }
            fn bits(self) -> $word {
                self.to_bits()
            }
            fn below(self, other: $real) -> Is<$real> {
                Is::new(self < other)
            }
            fn equals(self, other: $real) -> Is<$real> {
                Is::new(self == other)
            }
            fn named(self, _: &'static str) -> $real {
                self
            }
        }

        impl Word for $word {
            type Real = $real;

            fn constant(self, value: u64) -> $word {
                value as $word
            }
            fn plus(self, other: $word) -> $word {
                self.wrapping_add(other)
            }
            fn minus(self, other: $word) -> $word {
                self.wrapping_sub(other)
            }
            fn times(self, other: $word) -> $word {
                self.wrapping_mul(other)
            }
            fn times_high(self, other: $word) -> $word {
                ((self as $double_word * other as $double_word) >> $word::BITS) as $word
            }
            fn and(self, other: $word) -> $word {
                self & other
            }
            fn or(self, other: $word) -> $word {
                self | other
            }
            fn xor(self, other: $word) -> $word {
                self ^ other
            }
            fn left(self, amount: $word) -> $word {
                self << amount
            }
            fn right(self, amount: $word) -> $word {
                self >> amount
            }
            fn right_signed(self, amount: $word) -> $word {
                (self as $signed >> amount) as $word
            }
            fn below(self, other: $word) -> $word {
                (self < other) as $word
            }
            fn nonzero(self) -> Is<$real> {
                Is::new(self != 0)
            }
            fn real(self) -> $real {
                $real::from_bits(self)
            }
            fn to_real(self) -> $real {
                self as $signed as $real
            }
            fn two_over_pi(self, offset: u64) -> $word {
                $place((self as u64 + offset) as usize)
            }
            fn named(self, _: &'static str) -> $word {
                self
            }
        }
    };
}

numbers!(f32, u32, i32, u64, &Format::SINGLE, half_of_two_over_pi);
numbers!(f64, u64, i64, u128, &Format::DOUBLE, |i: usize| TWO_OVER_PI
    [i]);
