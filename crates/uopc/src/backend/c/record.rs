//! Writes the sequences of [`math`] down as C.
//!
//! A [`Recorded`] value is a C expression. `exp` of the recorder's `x` leaves the text of the C
//! function that computes it: each value that `exp` names becomes a local variable, all else stands
//! where it is used.
//!
//! The function is one on scalars, or on vectors of a number of lanes. C combines a vector with a
//! scalar lane by lane, so constants stay scalars; functions alone want a vector for each argument.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::scalar::{bare, literal};
use super::vector::vector_type;
use crate::ir::dtype::DType;
use crate::ir::scalar::Scalar;
use crate::ir::scalar::math::{self, Format, Real, Truth, Word};

/// A float type of Rust and what C calls it.
pub trait Recordable: Copy {
    /// Its constants.
    const FORMAT: &'static Format;
    /// Its dtype, which names the C functions.
    const DTYPE: DType;
    /// The integers of its width: unsigned and signed.
    const WORDS: [DType; 2];
    /// C's float, the words of its width (unsigned, signed, and unsigned of twice the width).
    const TYPES: [&'static str; 4];
    /// The suffixes of C's word constants and of its functions on the float.
    const SUFFIXES: [&'static str; 2];
}

impl Recordable for f32 {
    const FORMAT: &'static Format = <f32 as Real>::FORMAT;
    const DTYPE: DType = DType::F32;
    const WORDS: [DType; 2] = [DType::U32, DType::I32];
    const TYPES: [&'static str; 4] = ["float", "unsigned", "int", "unsigned long"];
    const SUFFIXES: [&'static str; 2] = ["u", "f"];
}

impl Recordable for f64 {
    const FORMAT: &'static Format = <f64 as Real>::FORMAT;
    const DTYPE: DType = DType::F64;
    const WORDS: [DType; 2] = [DType::U64, DType::I64];
    const TYPES: [&'static str; 4] = ["double", "unsigned long", "long", "unsigned __int128"];
    const SUFFIXES: [&'static str; 2] = ["ul", ""];
}

/// A C function in the making.
pub struct Recorder<F> {
    /// One for a function on scalars.
    lanes: usize,
    expressions: RefCell<Vec<String>>,
    statements: RefCell<String>,
    names: RefCell<Vec<String>>,
    parameters: RefCell<Vec<String>>,
    of: PhantomData<F>,
}

impl<F: Recordable> Recorder<F> {
    /// Begins a function on scalars.
    pub fn scalar() -> Recorder<F> {
        Recorder::vector(1)
    }

    /// Begins a function on vectors of so many lanes.
    pub fn vector(lanes: usize) -> Recorder<F> {
        Recorder {
            lanes,
            expressions: RefCell::default(),
            statements: RefCell::default(),
            names: RefCell::default(),
            parameters: RefCell::default(),
            of: PhantomData,
        }
    }

    /// A parameter that is a float, or a vector of them.
    pub fn real(&self, name: &str) -> Recorded<'_, F> {
        let wide = self.lanes > 1;
        Recorded(self.parameter(self.float(wide), name, wide))
    }

    /// A parameter that is one word, the same for all lanes.
    pub fn word(&self, name: &str) -> Bits<'_, F> {
        Bits(self.parameter(self.unsigned(false), name, false))
    }

    fn parameter(&self, c_type: String, name: &str, wide: bool) -> Value<'_, F> {
        self.names.borrow_mut().push(name.into());
        let declared = format!("{c_type} {name}");
        self.parameters.borrow_mut().push(declared);
        self.value(name.into(), wide)
    }

    /// The C definition of the function that gives `y`.
    pub fn function(&self, linkage: &str, name: &str, y: Recorded<'_, F>) -> String {
        let float = self.float(self.lanes > 1);
        let statements = self.statements.borrow();
        let parameters = self.parameters.borrow().join(", ");
        let result = y.0.text();
        let result = bare(&result);
        format!("{linkage} {float} {name}({parameters}) {{\n{statements}    return {result};\n}}\n")
    }

    /// What ends the function, without its head: its statements and the result.
    pub fn body(&self, y: Recorded<'_, F>) -> String {
        let result = y.0.text();
        format!(
            "{}    return {};\n",
            self.statements.borrow(),
            bare(&result)
        )
    }

    /// The type of a float, or of a vector of them.
    fn float(&self, wide: bool) -> String {
        match wide {
            true => vector_type(F::DTYPE, self.lanes),
            false => F::TYPES[0].into(),
        }
    }

    fn unsigned(&self, wide: bool) -> String {
        match wide {
            true => vector_type(F::WORDS[0], self.lanes),
            false => F::TYPES[1].into(),
        }
    }

    fn signed(&self, wide: bool) -> String {
        match wide {
            true => vector_type(F::WORDS[1], self.lanes),
            false => F::TYPES[2].into(),
        }
    }
}

impl<F> Recorder<F> {
    fn value(&self, expression: String, wide: bool) -> Value<'_, F> {
        let mut expressions = self.expressions.borrow_mut();
        expressions.push(expression);
        Value {
            recorder: self,
            id: expressions.len() - 1,
            wide,
        }
    }
}

/// One expression.
struct Value<'r, F> {
    recorder: &'r Recorder<F>,
    id: usize,
    /// Whether it is a vector.
    wide: bool,
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

    /// What is made of this alone.
    fn then(self, expression: String) -> Value<'r, F> {
        self.recorder.value(expression, self.wide)
    }

    fn scalar(self, expression: String) -> Value<'r, F> {
        self.recorder.value(expression, false)
    }

    /// `(a op b)`.
    fn infix(self, op: &str, other: Value<'r, F>) -> Value<'r, F> {
        let text = format!("({} {op} {})", self.text(), other.text());
        self.recorder.value(text, self.wide || other.wide)
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

impl<'r, F: Recordable> Recorded<'r, F> {
    /// The value as an argument of a function on vectors.
    fn vector(self) -> String {
        let (text, lanes) = (self.0.text(), self.0.recorder.lanes);
        match self.0.wide {
            true => bare(&text).into(),
            false => format!("splat_{}x{lanes}({})", F::DTYPE, bare(&text)),
        }
    }

    /// A call of a function on vectors.
    fn call(self, function: &str, arguments: &[Self]) -> Self {
        let lanes = self.0.recorder.lanes;
        let arguments: Vec<String> = arguments.iter().map(|a| a.vector()).collect();
        let text = format!("{function}_{}x{lanes}({})", F::DTYPE, arguments.join(", "));
        Recorded(self.0.recorder.value(text, true))
    }
}

impl<'r, F: Recordable> Real for Recorded<'r, F> {
    type Word = Bits<'r, F>;
    type Truth = Condition<'r, F>;
    const FORMAT: &'static Format = F::FORMAT;

    fn constant(self, value: f64) -> Self {
        Recorded(self.0.scalar(literal(Scalar::from_f64(F::DTYPE, value))))
    }

    fn fma(self, b: Self, c: Self) -> Self {
        if self.0.wide || b.0.wide || c.0.wide {
            return self.call("fma", &[self, b, c]);
        }
        let (a, b, c) = (self.0.text(), b.0.text(), c.0.text());
        let arguments = [&a, &b, &c].map(|t| bare(t)).join(", ");
        Recorded(
            self.0
                .then(format!("__builtin_fma{}({arguments})", F::SUFFIXES[1])),
        )
    }

    fn scaled(self, t: Self) -> Self {
        if self.0.wide {
            return self.call("scale", &[self, t]);
        }
        math::scale(self, t)
    }

    fn bits(self) -> Bits<'r, F> {
        let text = self.0.text();
        Bits(self.0.then(match self.0.wide {
            true => format!("(({}){text})", self.0.recorder.unsigned(true)),
            false => format!("bits_{}({})", F::DTYPE, bare(&text)),
        }))
    }

    fn below(self, other: Self) -> Condition<'r, F> {
        Condition(self.0.infix("<", other.0))
    }

    fn equals(self, other: Self) -> Condition<'r, F> {
        Condition(self.0.infix("==", other.0))
    }

    fn named(self, name: &'static str) -> Self {
        Recorded(self.0.variable(&self.0.recorder.float(self.0.wide), name))
    }
}

impl<'r, F: Recordable> Truth for Condition<'r, F> {
    type Real = Recorded<'r, F>;

    fn select(self, yes: Recorded<'r, F>, no: Recorded<'r, F>) -> Recorded<'r, F> {
        if self.0.wide {
            let condition = self.0.text();
            let (lanes, yes, no) = (self.0.recorder.lanes, yes.vector(), no.vector());
            let condition = bare(&condition);
            let select = format!("select_{}x{lanes}", F::DTYPE);
            return Recorded(self.0.then(format!("{select}({condition}, {yes}, {no})")));
        }
        let (condition, yes, no) = (self.0.text(), yes.0.text(), no.0.text());
        Recorded(self.0.then(format!("({condition} ? {yes} : {no})")))
    }
}

impl<'r, F: Recordable> Bits<'r, F> {
    /// A C expression of the word type that reads `{a}` as signed or wide.
    fn converted(self, text: String) -> Bits<'r, F> {
        let unsigned = self.0.recorder.unsigned(self.0.wide);
        Bits(self.0.then(format!("(({unsigned})({text}))")))
    }

    /// Some sequences are for scalars alone.
    fn only_scalar(self) {
        assert!(
            !self.0.wide,
            "sine of large numbers is computed lane by lane"
        );
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
        Bits(self.0.scalar(text))
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
        self.only_scalar();
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
        let signed = self.0.recorder.signed(self.0.wide);
        let (a, amount) = (self.0.text(), amount.0.text());
        self.converted(format!("({signed}){a} >> {amount}"))
    }

    fn below(self, other: Self) -> Self {
        self.only_scalar();
        let (a, b) = (self.0.text(), other.0.text());
        self.converted(format!("{a} < {b}"))
    }

    fn nonzero(self) -> Condition<'r, F> {
        Condition(self.0.then(format!("({} != 0)", self.0.text())))
    }

    fn real(self) -> Recorded<'r, F> {
        let text = self.0.text();
        Recorded(self.0.then(match self.0.wide {
            true => format!("(({}){text})", self.0.recorder.float(true)),
            false => format!("from_bits_{}({})", F::DTYPE, bare(&text)),
        }))
    }

    fn to_real(self) -> Recorded<'r, F> {
        let wide = self.0.wide;
        let (float, signed) = (self.0.recorder.float(wide), self.0.recorder.signed(wide));
        let text = self.0.text();
        Recorded(self.0.then(match wide {
            true => format!("__builtin_convertvector(({signed}){text}, {float})"),
            false => format!("(({float})({signed}){text})"),
        }))
    }

    fn two_over_pi(self, offset: u64) -> Self {
        self.only_scalar();
        let index = match offset {
            0 => self.0.text(),
            _ => format!("{} + {offset}", self.0.text()),
        };
        Bits(self.0.then(format!("two_over_pi_{}[{index}]", F::DTYPE)))
    }

    fn named(self, name: &'static str) -> Self {
        Bits(
            self.0
                .variable(&self.0.recorder.unsigned(self.0.wide), name),
        )
    }
}
