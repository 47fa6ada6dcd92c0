//! Writes the sequences of [`math`](crate::ir::scalar::math) down as C.
//!
//! A [`Recorded`] value is a C expression. `exp` of the recorder's `x` leaves the text of the C
//! function that computes it: each value that `exp` names becomes a local variable, all else stands
//! where it is used.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::scalar::{bare, literal};
use crate::ir::dtype::DType;
use crate::ir::scalar::Scalar;
use crate::ir::scalar::math::{Format, Real, Truth, Word};

/// A float type of Rust and what C calls it.
pub trait Recordable: Copy {
    /// Its constants.
    const FORMAT: &'static Format;
    /// Its dtype, which names the C functions.
    const DTYPE: DType;
    /// C's float, the words of its width (unsigned, signed, and unsigned of twice the width).
    const TYPES: [&'static str; 4];
    /// The suffixes of C's word constants and of its functions on the float.
    const SUFFIXES: [&'static str; 2];
}

impl Recordable for f32 {
    const FORMAT: &'static Format = <f32 as Real>::FORMAT;
    const DTYPE: DType = DType::F32;
    const TYPES: [&'static str; 4] = ["float", "unsigned", "int", "unsigned long"];
    const SUFFIXES: [&'static str; 2] = ["u", "f"];
}

impl Recordable for f64 {
    const FORMAT: &'static Format = <f64 as Real>::FORMAT;
    const DTYPE: DType = DType::F64;
    const TYPES: [&'static str; 4] = ["double", "unsigned long", "long", "unsigned __int128"];
    const SUFFIXES: [&'static str; 2] = ["ul", ""];
}

/// A C function of `x`, and perhaps of a word `k`, in the making.
pub struct Recorder<F> {
    expressions: RefCell<Vec<String>>,
    statements: RefCell<String>,
    names: RefCell<Vec<String>>,
    of: PhantomData<F>,
}

impl<F> Default for Recorder<F> {
    fn default() -> Recorder<F> {
        Recorder {
            expressions: RefCell::default(),
            statements: RefCell::default(),
            names: RefCell::default(),
            of: PhantomData,
        }
    }
}

impl<F: Recordable> Recorder<F> {
    /// The parameter `x`.
    pub fn x(&self) -> Recorded<'_, F> {
        self.names.borrow_mut().push("x".into());
        Recorded(self.value("x".into()))
    }

    /// The parameter `k`.
    pub fn k(&self) -> Bits<'_, F> {
        self.names.borrow_mut().push("k".into());
        Bits(self.value("k".into()))
    }

    /// The C definition of the function that gives `y`.
    pub fn function(&self, linkage: &str, name: &str, y: Recorded<'_, F>) -> String {
        let [float, word, ..] = F::TYPES;
        let statements = self.statements.borrow();
        let has_k = self.names.borrow().iter().any(|name| name == "k");
        let k = if has_k {
            format!(", {word} k")
        } else {
            String::new()
        };
        let result = y.0.text();
        let result = bare(&result);
        format!("{linkage} {float} {name}({float} x{k}) {{\n{statements}    return {result};\n}}\n")
    }
}

impl<F> Recorder<F> {
    fn value(&self, expression: String) -> Value<'_, F> {
        let mut expressions = self.expressions.borrow_mut();
        expressions.push(expression);
        Value {
            recorder: self,
            id: expressions.len() - 1,
        }
    }
}

/// One expression.
struct Value<'r, F> {
    recorder: &'r Recorder<F>,
    id: usize,
}

impl<F> Clone for Value<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Value<'_, F> {}

impl<'r, F> Value<'r, F> {
    fn text(self) -> String {
        self.recorder.expressions.borrow()[self.id].clone()
    }

    fn then(self, expression: String) -> Value<'r, F> {
        self.recorder.value(expression)
    }

    /// `(a op b)`.
    fn infix(self, op: &str, other: Value<'r, F>) -> Value<'r, F> {
        self.then(format!("({} {op} {})", self.text(), other.text()))
    }

    /// A local variable of the type; names that are taken get a number.
    fn variable(self, c_type: &str, name: &str) -> Value<'r, F> {
        let mut names = self.recorder.names.borrow_mut();
        let taken = |name: &str| names.iter().any(|n| n == name);
        let free = (2..).map(|i| format!("{name}{i}"));
        let name = [name.to_string()]
            .into_iter()
            .chain(free)
            .find(|name| !taken(name));
        let name = name.expect("one of endlessly many names is free");
        names.push(name.clone());
        let text = self.text();
        let line = format!("    {c_type} {name} = {};\n", bare(&text));
        self.recorder.statements.borrow_mut().push_str(&line);
        self.then(name)
    }
}

/// A float expression.
#[derive(Clone, Copy)]
pub struct Recorded<'r, F>(Value<'r, F>);

/// A word expression.
#[derive(Clone, Copy)]
pub struct Bits<'r, F>(Value<'r, F>);

/// A condition.
#[derive(Clone, Copy)]
pub struct Condition<'r, F>(Value<'r, F>);

macro_rules! operator {
    ($trait:ident, $method:ident, $symbol:literal) => {
        impl<'r, F> $trait for Recorded<'r, F> {
            type Output = Recorded<'r, F>;

            fn $method(self, other: Recorded<'r, F>) -> Recorded<'r, F> {
                Recorded(self.0.infix($symbol, other.0))
            }
        }
    };
}

operator!(Add, add, "+");
operator!(Sub, sub, "-");
operator!(Mul, mul, "*");
operator!(Div, div, "/");

impl<'r, F> Neg for Recorded<'r, F> {
    type Output = Recorded<'r, F>;

    fn neg(self) -> Recorded<'r, F> {
        Recorded(self.0.then(format!("(-{})", self.0.text())))
    }
}

impl<'r, F: Recordable> Real for Recorded<'r, F> {
    type Word = Bits<'r, F>;
    type Truth = Condition<'r, F>;
    const FORMAT: &'static Format = F::FORMAT;

    fn constant(self, value: f64) -> Self {
        Recorded(self.0.then(literal(Scalar::from_f64(F::DTYPE, value))))
    }

    fn fma(self, b: Self, c: Self) -> Self {
        let (a, b, c) = (self.0.text(), b.0.text(), c.0.text());
        let arguments = [&a, &b, &c].map(|t| bare(t)).join(", ");
        Recorded(
            self.0
                .then(format!("__builtin_fma{}({arguments})", F::SUFFIXES[1])),
        )
    }

    fn bits(self) -> Bits<'r, F> {
        let text = self.0.text();
        Bits(self.0.then(format!("bits_{}({})", F::DTYPE, bare(&text))))
    }

    fn below(self, other: Self) -> Condition<'r, F> {
        Condition(self.0.infix("<", other.0))
    }

    fn equals(self, other: Self) -> Condition<'r, F> {
        Condition(self.0.infix("==", other.0))
    }

    fn named(self, name: &'static str) -> Self {
        Recorded(self.0.variable(F::TYPES[0], name))
    }
}

impl<'r, F: Recordable> Truth for Condition<'r, F> {
    type Real = Recorded<'r, F>;

    fn select(self, yes: Recorded<'r, F>, no: Recorded<'r, F>) -> Recorded<'r, F> {
        let (condition, yes, no) = (self.0.text(), yes.0.text(), no.0.text());
        Recorded(self.0.then(format!("({condition} ? {yes} : {no})")))
    }
}

impl<'r, F: Recordable> Bits<'r, F> {
    /// A C expression of the word type that reads `{a}` as signed or wide.
    fn converted(self, text: String) -> Bits<'r, F> {
        Bits(self.0.then(format!("(({})({text}))", F::TYPES[1])))
    }
}

impl<'r, F: Recordable> Word for Bits<'r, F> {
    type Real = Recorded<'r, F>;

    fn constant(self, value: u64) -> Self {
        let suffix = F::SUFFIXES[0];
        // Counts are read in decimal, masks and bits in hexadecimal.
        let text = match value {
            0..10_000 => format!("{value}{suffix}"),
            _ => format!("0x{value:x}{suffix}"),
        };
        Bits(self.0.then(text))
    }

    fn plus(self, other: Self) -> Self {
        Bits(self.0.infix("+", other.0))
    }

    fn minus(self, other: Self) -> Self {
        Bits(self.0.infix("-", other.0))
    }

    fn times(self, other: Self) -> Self {
        Bits(self.0.infix("*", other.0))
    }

    fn times_high(self, other: Self) -> Self {
        let (a, b, wide) = (self.0.text(), other.0.text(), F::TYPES[3]);
        self.converted(format!("({wide}){a} * {b} >> {}", F::FORMAT.width))
    }

    fn and(self, other: Self) -> Self {
        Bits(self.0.infix("&", other.0))
    }

    fn or(self, other: Self) -> Self {
        Bits(self.0.infix("|", other.0))
    }

    fn xor(self, other: Self) -> Self {
        Bits(self.0.infix("^", other.0))
    }

    fn left(self, amount: Self) -> Self {
        Bits(self.0.infix("<<", amount.0))
    }

    fn right(self, amount: Self) -> Self {
        Bits(self.0.infix(">>", amount.0))
    }

    fn right_signed(self, amount: Self) -> Self {
        let (a, amount, signed) = (self.0.text(), amount.0.text(), F::TYPES[2]);
        self.converted(format!("({signed}){a} >> {amount}"))
    }

    fn below(self, other: Self) -> Self {
        let (a, b) = (self.0.text(), other.0.text());
        self.converted(format!("{a} < {b}"))
    }

    fn nonzero(self) -> Condition<'r, F> {
        Condition(self.0.then(format!("({} != 0)", self.0.text())))
    }

    fn real(self) -> Recorded<'r, F> {
        let text = self.0.text();
        Recorded(
            self.0
                .then(format!("from_bits_{}({})", F::DTYPE, bare(&text))),
        )
    }

    fn to_real(self) -> Recorded<'r, F> {
        let (float, signed) = (F::TYPES[0], F::TYPES[2]);
        Recorded(
            self.0
                .then(format!("(({float})({signed}){})", self.0.text())),
        )
    }

    fn two_over_pi(self, offset: u64) -> Self {
        let index = match offset {
            0 => self.0.text(),
            _ => format!("{} + {offset}", self.0.text()),
        };
        Bits(self.0.then(format!("two_over_pi_{}[{index}]", F::DTYPE)))
    }

    fn named(self, name: &'static str) -> Self {
        Bits(self.0.variable(F::TYPES[1], name))
    }
}
