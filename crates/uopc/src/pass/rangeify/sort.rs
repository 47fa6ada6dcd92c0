//! The statements of an ARGSORT: keys, and their stable order.
//!
//! Each element becomes an unsigned integer, its key, such that keys compare as the elements do: -0
//! equals +0, and NaNs are equal to each other and above everything. A short row is ranked: an
//! element's place is the number of those that come before it. A long row is sorted digit by digit,
//! the least first: a pass counts how often each digit occurs, adds the counts up to where each
//! digit's run begins, and moves keys and positions there in order. So passes keep the order of
//! equal digits, and the work grows with the length alone, whatever the elements are.

use super::index::{add, constant, flatten};
use super::value::{Lowering, only_loops};
use crate::error::Result;
use crate::ir::op::{Combine, Exec, Space};
use crate::ir::{DType, Scalar, UOp};

/// Elements of a row up to which it is ranked: its comparisons, in vectors, take less time than the
/// passes over all digits.
const RANKED: usize = 128;
/// Bits of a digit: as many runs as the first cache has lines for.
const BITS: usize = 8;
/// Digits that there are.
const DIGITS: usize = 1 << BITS;

/// Writes the statements that fill `out` with the node's value.
///
/// # Errors
/// When the source holds an op that has no loops yet.
pub fn argsort(lowering: &mut Lowering, out: &UOp, node: &UOp) -> Result<()> {
    let (x, shape) = (&node.src()[0], node.shape());
    let dtype = lowering.index_dtype;
    let n = shape[shape.rank() - 1];
    let mut row = Vec::new();
    for &extent in &shape[..shape.rank() - 1] {
        row.push(lowering.axis(extent, Exec::Serial)?);
    }
    let mut sort = Sort {
        around: only_loops(&row),
        low: lowering,
        n,
    };
    // The keys of the row.
    let i = sort.low.axis(n, Exec::Serial)?;
    let at = [&row[..], &[i.clone()]].concat();
    let loops = only_loops(&at);
    let key = key_of(&sort.low.value(x, &at, None, &loops)?)?;
    let keys = sort.low.local(Space::Arena, key.dtype(), n);
    let store = keys.store(&i, &[key], Combine::Set, None)?;
    sort.low.statements.push(store.end(&loops)?);

    let order = match n <= RANKED {
        true => sort.by_rank(&keys)?,
        false => sort.by_digits(keys)?,
    };
    // The result is written in its order, so that rows are seen to be apart.
    let i = sort.low.axis(n, Exec::Serial)?;
    let to = flatten(&[&row[..], &[i.clone()]].concat(), shape, dtype)?;
    let position = order.load(&i, None)?.cast(node.dtype())?;
    let store = out.store(&to, &[position], Combine::Set, None)?;
    sort.push(&[&i], store)
}

/// The rows that are sorted.
struct Sort<'a> {
    low: &'a mut Lowering,
    /// The loops over them.
    around: Vec<UOp>,
    /// Their length.
    n: usize,
}

impl Sort<'_> {
    /// A statement in loops inside of a row.
    fn push(&mut self, inside: &[&UOp], store: UOp) -> Result<()> {
        let inside: Vec<UOp> = inside.iter().map(|&r| r.clone()).collect();
        let ranges = [&self.around[..], &only_loops(&inside)].concat();
        self.low.statements.push(store.end(&ranges)?);
        Ok(())
    }

    /// Each position at the number of elements that come before its own.
    fn by_rank(&mut self, keys: &UOp) -> Result<UOp> {
        let dtype = self.low.index_dtype;
        let zero = constant(0, dtype);
        let order = self.low.local(Space::Arena, dtype, self.n);
        let rank = self.low.local(Space::Reg, dtype, 1);
        let i = self.low.axis(self.n, Exec::Serial)?;
        let j = self.low.axis(self.n, Exec::Serial)?;
        let (own, other) = (keys.load(&i, None)?, keys.load(&j, None)?);
        // Among equals the earlier one comes first.
        let less = other.cmplt(&own)?;
        let tie = own.cmpne(&other)?.logical_not()?.and(&j.cmplt(&i)?)?;
        let before = less.or(&tie)?.cast(dtype)?;
        self.push(&[&i, &j], rank.store(&zero, &[before], Combine::Add, None)?)?;
        let place = rank.load(&zero, None)?;
        let store = order.store(&place, std::slice::from_ref(&i), Combine::Set, None)?;
        self.push(&[&i], store)?;
        Ok(order)
    }

    /// Passes over the digits of the keys, the least first. Each moves keys and positions to where the
    /// runs of their digits are, from one memory to another and the next time back.
    fn by_digits(&mut self, keys: UOp) -> Result<UOp> {
        let dtype = self.low.index_dtype;
        let passes = (keys.dtype().size() * 8).div_ceil(BITS);
        let counts = self.count(&keys, passes)?;
        // Where the next key of each digit goes.
        let next = self.low.local(Space::Cache, dtype, DIGITS);
        let mut keys = [
            keys.clone(),
            self.low.local(Space::Arena, keys.dtype(), self.n),
        ];
        let mut order = [(); 2].map(|()| self.low.local(Space::Arena, dtype, self.n));
        for pass in 0..passes {
            self.begin(&counts, pass, &next)?;
            let i = self.low.axis(self.n, Exec::Serial)?;
            let key = keys[0].load(&i, None)?;
            let digit = digit(&key, pass, dtype)?;
            let to = self.low.local(Space::Reg, dtype, 1);
            let zero = constant(0, dtype);
            let place = next.load(&digit, None)?;
            self.push(&[&i], to.store(&zero, &[place], Combine::Set, None)?)?;
            let one = constant(1, dtype);
            self.push(&[&i], next.store(&digit, &[one], Combine::Add, None)?)?;
            let place = to.load(&zero, None)?;
            // Before the first pass positions are in order, and after the last keys are of no use.
            let position = match pass {
                0 => i.clone(),
                _ => order[0].load(&i, None)?,
            };
            let moved = order[1].store(&place, &[position], Combine::Set, None)?;
            self.push(&[&i], moved)?;
            if pass + 1 < passes {
                let moved = keys[1].store(&place, &[key], Combine::Set, None)?;
                self.push(&[&i], moved)?;
            }
            keys.swap(0, 1);
            order.swap(0, 1);
        }
        let [order, _] = order;
        Ok(order)
    }

    /// How often each digit occurs at each place: moving keys does not change that.
    fn count(&mut self, keys: &UOp, passes: usize) -> Result<UOp> {
        let dtype = self.low.index_dtype;
        let (zero, one) = (constant(0, dtype), constant(1, dtype));
        let counts = self.low.local(Space::Arena, dtype, passes * DIGITS);
        let d = self.low.axis(passes * DIGITS, Exec::Serial)?;
        self.push(&[&d], counts.store(&d, &[zero], Combine::Set, None)?)?;
        let i = self.low.axis(self.n, Exec::Serial)?;
        for pass in 0..passes {
            let digit = digit(&keys.load(&i, None)?, pass, dtype)?;
            let at = add(&digit, (pass * DIGITS) as i64)?;
            let store = counts.store(&at, std::slice::from_ref(&one), Combine::Add, None)?;
            self.push(&[&i], store)?;
        }
        Ok(counts)
    }

    /// Where the run of each digit begins: the number of keys with a lesser one.
    fn begin(&mut self, counts: &UOp, pass: usize, next: &UOp) -> Result<()> {
        let zero = constant(0, self.low.index_dtype);
        let before = self.low.local(Space::Reg, self.low.index_dtype, 1);
        let store = before.store(&zero, std::slice::from_ref(&zero), Combine::Set, None)?;
        self.push(&[], store)?;
        let d = self.low.axis(DIGITS, Exec::Serial)?;
        let so_far = before.load(&zero, None)?;
        self.push(&[&d], next.store(&d, &[so_far], Combine::Set, None)?)?;
        let count = counts.load(&add(&d, (pass * DIGITS) as i64)?, None)?;
        self.push(&[&d], before.store(&zero, &[count], Combine::Add, None)?)
    }
}

/// A digit of a key, as an index.
fn digit(key: &UOp, pass: usize, dtype: DType) -> Result<UOp> {
    let number = |n: usize| UOp::int(n as i64, key.dtype());
    let shifted = match pass {
        0 => key.clone(),
        _ => key.shr(&number(pass * BITS))?,
    };
    match (pass + 1) * BITS == key.dtype().size() * 8 {
        true => shifted.cast(dtype),
        false => shifted.and(&number(DIGITS - 1))?.cast(dtype),
    }
}

/// An unsigned integer that compares as the element does.
fn key_of(x: &UOp) -> Result<UOp> {
    let dtype = x.dtype();
    let (unsigned, signed) = match dtype.size() {
        1 => (DType::U8, DType::I8),
        2 => (DType::U16, DType::I16),
        4 => (DType::U32, DType::I32),
        _ => (DType::U64, DType::I64),
    };
    let sign = UOp::constant(Scalar::from_bits(unsigned, 1 << (dtype.size() * 8 - 1)));
    if dtype == DType::Bool {
        return x.cast(unsigned);
    }
    if dtype == unsigned {
        return Ok(x.clone());
    }
    if dtype.is_int() {
        return x.bitcast(unsigned)?.xor(&sign);
    }
    // The bits of positive numbers rise with them, those of negative ones fall.
    let zero = UOp::constant(Scalar::zero(dtype));
    let nonzero = x.cmpne(&zero)?;
    let bits = nonzero.where_(x, &zero)?.bitcast(unsigned)?;
    let negative = bits.bitcast(signed)?.cmplt(&UOp::int(0, signed))?;
    let all = UOp::constant(Scalar::from_bits(
        unsigned,
        u64::MAX >> (64 - dtype.size() * 8),
    ));
    let ordered = negative.where_(&bits.xor(&all)?, &bits.xor(&sign)?)?;
    x.cmpne(x)?.where_(&all, &ordered)
}
