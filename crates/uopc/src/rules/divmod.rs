//! Integer division: index arithmetic in canonical mixed-radix form.
//!
//! Chains of RESHAPE, PERMUTE and SHRINK lower to digits of sums, `(f // d) % m`, and to sums of
//! digits. Two families of rules cancel them:
//!
//! - A digit of a sum is split only where that removes a division: if f = g*q + r with
//!   0 <= r < g and g divides c, then f // c = q // (c/g) and f % c = (q % (c/g)) * g + r. Both
//!   fire under the same condition, and a digit that would not become simpler keeps its f whole,
//!   so that its neighbours can still find it.
//! - Neighbouring digits of one f in one sum join: (f//d)%m * k + (f//(d*m))%n * (k*m) is
//!   (f//d)%(m*n) * k.
//!
//! Divisors are positive constants, division rounds down. A sum is treated as the exact one only
//! if its bounds lie in the dtype, as in `(x * 4) // 4`, which is not x when x * 4 wraps.

use smallvec::SmallVec;

use super::{constant, full};
use crate::ir::bounds::{Bounds, Interval};
use crate::ir::{DType, Op, Scalar, UOp};
use crate::rewrite::{Match, Miss, found, require};

rule_table! {
    /// Integer division in all graphs.
    pub RULES;

    /// x // 1 => x
    Int div_one [floordiv] (u) {
        let (x, c) = divided(u)?;
        require(c == 1)?;
        Ok(x.clone())
    }

    /// (x // a) // b => x // (a*b)
    Int div_of_div [floordiv] (u) {
        let (inner, b) = divided(u)?;
        require(*inner.op() == Op::FloorDiv)?;
        let (x, a) = divided(inner)?;
        Ok(x.floordiv(&number(found(a.checked_mul(b))?, u)?)?)
    }

    /// (x % (a*b)) // b => (x // b) % a
    Int div_of_mod [floordiv] (u) {
        let (inner, b) = divided(u)?;
        require(*inner.op() == Op::FloorMod)?;
        let (x, m) = divided(inner)?;
        require(m % b == 0)?;
        Ok(x.floordiv(&number(b, u)?)?.floormod(&number(m / b, u)?)?)
    }

    /// (q*g + r) // c => q // (c/g) if g divides c and 0 <= r < g
    Int div_of_sum [floordiv] (u, bounds) {
        let (x, c) = divided(u)?;
        let (g, q, _) = split(x, c, bounds)?;
        let quotient = q.build(u)?;
        if c == g { Ok(quotient) } else { Ok(quotient.floordiv(&number(c / g, u)?)?) }
    }

    /// x % c => x if 0 <= x < c by bounds
    Int mod_small [floormod] (u, bounds) {
        let (x, c) = divided(u)?;
        require(bounds.of(x).within(Interval { lo: 0, hi: c - 1 }))?;
        Ok(x.clone())
    }

    /// (x % (a*b)) % b => x % b
    Int mod_of_mod [floormod] (u) {
        let (inner, b) = divided(u)?;
        require(*inner.op() == Op::FloorMod)?;
        let (x, m) = divided(inner)?;
        require(m % b == 0)?;
        Ok(x.floormod(&number(b, u)?)?)
    }

    /// (q*g + r) % c => (q % (c/g)) * g + r if g divides c and 0 <= r < g
    Int mod_of_sum [floormod] (u, bounds) {
        let (x, c) = divided(u)?;
        let (g, q, r) = split(x, c, bounds)?;
        if c == g {
            return r.build(u);
        }
        let digit = q.build(u)?.floormod(&number(c / g, u)?)?;
        let mut sum = Sum { terms: SmallVec::from_elem((digit, g), 1), constant: 0 };
        sum.append(r);
        sum.build(u)
    }

    /// (x//d)%m * k + (x//(d*m))%n * (k*m) => (x//d)%(m*n) * k
    Int add_digits [add] (u) {
        require(u.dtype().is_int())?;
        let sum = found(Sum::of(u))?;
        require(sum.terms.iter().any(|(x, _)| *x.op() == Op::FloorMod))?;
        let (low, high, joined) = found(sum.neighbours(u)?)?;
        let mut out = Sum { terms: SmallVec::new(), constant: sum.constant };
        for (k, (x, factor)) in sum.terms.iter().enumerate() {
            if k == low.min(high) {
                // A whole sum comes back here, and its terms join the others.
                found(out.add(&joined, sum.terms[low].1))?;
            } else if k != low.max(high) {
                found(out.add(x, *factor))?;
            }
        }
        out.build(u)
    }
}

rule_table! {
    /// Index arithmetic in loops.
    pub SCALAR_RULES;

    /// m[(x + y) * c] => m[x*c + y*c]
    Any index_flat [load store] (u) {
        let index = &u.src()[1];
        let sum = found(Sum::of(index))?;
        require(sum.terms.len() > 1)?;
        let flat = sum.build(index)?;
        let mut src = u.src().to_vec();
        src[1] = flat;
        Ok(u.with_src(&src)?)
    }

    /// x % c => x - c*q if c*q <= x < c*(q+1) by bounds
    Int mod_known [floormod] (u, bounds) {
        let (x, c) = divided(u)?;
        let of_x = bounds.of(x);
        let q = of_x.lo.div_euclid(c);
        require(q != 0 && q == of_x.hi.div_euclid(c))?;
        Ok(x.add(&number(found(q.checked_mul(-c))?, u)?)?)
    }

    /// q*g + r < d => q < d/g and d < q*g + r => (d+1)/g - 1 < q if 0 <= r < g divides exactly
    Int cmplt_sum [cmplt] (u, bounds) {
        let (x, d, greater) = compared(u)?;
        let limit = if greater { found(d.checked_add(1))? } else { d };
        let (g, q, _) = split(x, limit.checked_abs().unwrap_or(i128::MAX), bounds)?;
        compare(&q.build(x)?, limit / g - greater as i128, greater)
    }

    /// x + c < d => x < d - c and d < x + c => d - c < x if x + c does not wrap
    Int cmplt_add [cmplt] (u, bounds) {
        let (sum, d, greater) = compared(u)?;
        require(*sum.op() == Op::Add)?;
        let (x, c) = super::right_constant(sum)?;
        let (c, of_x) = (signed(c), bounds.of(x));
        let exact = Interval { lo: of_x.lo + c, hi: of_x.hi + c };
        require(exact.within(Interval::whole(x.dtype())))?;
        compare(x, d - c, greater)
    }

    /// x // c < d => x < c*d, d < x // c => c*(d+1) - 1 < x
    Int cmplt_div [cmplt] (u) {
        let (quotient, d, greater) = compared(u)?;
        require(*quotient.op() == Op::FloorDiv)?;
        let (x, c) = divided(quotient)?;
        let limit = if greater { d.checked_add(1) } else { Some(d) };
        let limit = found(limit.and_then(|n| n.checked_mul(c)))?;
        compare(x, limit - greater as i128, greater)
    }
}

/// `(x, c, false)` of `x < c`, `(x, c, true)` of `c < x`.
fn compared(u: &UOp) -> Result<(&UOp, i128, bool), Miss> {
    let (a, b) = (&u.src()[0], &u.src()[1]);
    require(a.dtype().is_int())?;
    match (constant(a), constant(b)) {
        (None, Some(c)) => Ok((a, c.as_i128(), false)),
        (Some(c), None) => Ok((b, c.as_i128(), true)),
        _ => Err(Miss::NoMatch),
    }
}

/// `x < c`, or `c < x`, if the dtype has c.
fn compare(x: &UOp, c: i128, greater: bool) -> Match {
    let c = number(c, x)?;
    Ok(if greater { c.cmplt(x)? } else { x.cmplt(&c)? })
}

/// `(x, c)` of a division or remainder by a positive constant.
fn divided(u: &UOp) -> Result<(&UOp, i128), Miss> {
    let (x, c) = super::right_constant(u)?;
    let c = c.as_i128();
    require(c > 0)?;
    Ok((x, c))
}

/// A constant in the dtype and shape of a node, if it fits the dtype.
fn number(value: i128, like: &UOp) -> Match {
    require(Interval::point(value).within(Interval::whole(like.dtype())))?;
    full(Scalar::from_i128(like.dtype(), value), like)
}

/// Splits `x = g*q + r` with `0 <= r < g` for the largest g above 1 that divides c and works.
fn split(x: &UOp, c: i128, bounds: &mut Bounds) -> Result<(i128, Sum, Sum), Miss> {
    require(matches!(x.op(), Op::Add | Op::Mul))?;
    let sum = found(Sum::of(x))?;
    let exact = found(sum.interval(bounds))?;
    require(exact.within(Interval::whole(x.dtype())))?;
    let mut factors: SmallVec<[i128; 8]> = sum.terms.iter().map(|(_, k)| gcd(c, *k)).collect();
    factors.push(c);
    factors.sort_unstable();
    factors.dedup();
    for &g in factors.iter().rev().filter(|&&g| g > 1) {
        let (mut q, mut r) = (Sum::default(), Sum::default());
        for (term, k) in &sum.terms {
            // A factor beyond g is a multiple of g and a rest, as in windows: (i * 9 + j) % 8.
            let (whole, rest) = (k.div_euclid(g), k.rem_euclid(g));
            let small = k.abs() < g;
            if whole != 0 && !small {
                q.terms.push((term.clone(), whole));
            }
            if rest != 0 {
                r.terms.push((term.clone(), if small { *k } else { rest }));
            }
        }
        q.constant = sum.constant.div_euclid(g);
        r.constant = sum.constant.rem_euclid(g);
        let rest = found(r.interval(bounds))?;
        if rest.within(Interval { lo: 0, hi: g - 1 }) {
            return Ok((g, q, r));
        }
    }
    Err(Miss::NoMatch)
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i128
}

/// How many terms a sum may have to be looked into, so that a node costs a bounded time.
const TERMS: usize = 24;

/// A sum as a flat list: terms times factors, in the order written, and a constant.
#[derive(Clone, Default, Debug)]
pub struct Sum {
    /// The terms, each once, with their factors, which may be 0.
    pub terms: SmallVec<[(UOp, i128); 8]>,
    /// What is added to them.
    pub constant: i128,
}

impl Sum {
    /// The sum that an integer node is, seen through ADD and MUL by constants; `None` if it has
    /// too many terms.
    pub fn of(u: &UOp) -> Option<Sum> {
        let mut sum = Sum::default();
        sum.add(u, 1)?;
        Some(sum)
    }

    /// Adds `u * factor`, term by term.
    fn add(&mut self, u: &UOp, factor: i128) -> Option<()> {
        let mut pending: SmallVec<[(&UOp, i128); 8]> = SmallVec::from_elem((u, factor), 1);
        let mut visits = 0;
        while let Some((u, factor)) = pending.pop() {
            visits += 1;
            if visits > 4 * TERMS {
                return None;
            }
            match (u.op(), u.src()) {
                (Op::Add, [a, b]) => pending.extend([(b, factor), (a, factor)]),
                (Op::Mul, [a, c]) if constant(c).is_some() => {
                    let c = signed(constant(c)?);
                    pending.push((a, factor.checked_mul(c)?));
                }
                _ => match constant(u) {
                    Some(c) => {
                        let c = factor.checked_mul(signed(c))?;
                        self.constant = self.constant.checked_add(c)?;
                    }
                    None => self.push(u, factor)?,
                },
            }
        }
        Some(())
    }

    fn push(&mut self, u: &UOp, factor: i128) -> Option<()> {
        match self.terms.iter_mut().find(|(x, _)| x == u) {
            Some((_, k)) => *k = k.checked_add(factor)?,
            None => self.terms.push((u.clone(), factor)),
        }
        (self.terms.len() <= TERMS).then_some(())
    }

    fn append(&mut self, other: Sum) {
        self.terms.extend(other.terms);
        self.constant += other.constant;
    }

    /// The bounds of the exact sum, which no dtype limits.
    pub fn interval(&self, bounds: &mut Bounds) -> Option<Interval> {
        let mut total = Interval::point(self.constant);
        for (x, k) in &self.terms {
            let of_x = bounds.of(x);
            let (a, b) = (of_x.lo.checked_mul(*k)?, of_x.hi.checked_mul(*k)?);
            total.lo = total.lo.checked_add(a.min(b))?;
            total.hi = total.hi.checked_add(a.max(b))?;
        }
        Some(total)
    }

    /// The sum as nodes, the constant last, in the dtype and shape of `like`.
    ///
    /// # Errors
    /// Never for an integer node.
    pub fn build(&self, like: &UOp) -> Match {
        let wrapped = |value| Scalar::from_i128(like.dtype(), value);
        let mut sum: Option<UOp> = None;
        for (x, k) in self.terms.iter().filter(|(_, k)| *k != 0) {
            let term = match k {
                1 => x.clone(),
                _ => x.mul(&full(wrapped(*k), like)?)?,
            };
            sum = Some(match sum {
                Some(sum) => sum.add(&term)?,
                None => term,
            });
        }
        match sum {
            Some(sum) if self.constant == 0 => Ok(sum),
            Some(sum) => Ok(sum.add(&full(wrapped(self.constant), like)?)?),
            None => full(wrapped(self.constant), like),
        }
    }

    /// Two terms that are neighbouring digits: their positions, low one first, and what they are
    /// together, to be multiplied by the low one's factor.
    fn neighbours(&self, like: &UOp) -> Result<Option<(usize, usize, UOp)>, Miss> {
        for (i, (x, k)) in self.terms.iter().enumerate() {
            let Some(low) = Digit::of(x) else { continue };
            let Some(m) = low.modulus else { continue };
            for (j, (y, l)) in self.terms.iter().enumerate() {
                if i == j || k.checked_mul(m) != Some(*l) {
                    continue;
                }
                let Some(high) = Digit::of(y) else { continue };
                if high.of == low.of && Some(high.divisor) == low.divisor.checked_mul(m) {
                    let modulus = match high.modulus {
                        Some(n) => Some(found(m.checked_mul(n))?),
                        None => None,
                    };
                    let joined = Digit { modulus, ..low };
                    if let Ok(joined) = joined.build(like) {
                        return Ok(Some((i, j, joined)));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// A constant as a signed number: adding 2^64 - 1 in u64 is adding -1.
fn signed(c: Scalar) -> i128 {
    match c.dtype() {
        DType::U64 => c.bits() as i64 as i128,
        DType::U32 => c.bits() as i32 as i128,
        DType::U16 => c.bits() as i16 as i128,
        DType::U8 => c.bits() as i8 as i128,
        _ => c.as_i128(),
    }
}

/// `(of // divisor) % modulus`, or without the remainder.
struct Digit<'a> {
    of: &'a UOp,
    divisor: i128,
    modulus: Option<i128>,
}

impl<'a> Digit<'a> {
    fn of(u: &'a UOp) -> Option<Digit<'a>> {
        let (quotient, modulus) = match u.op() {
            Op::FloorMod => {
                let (x, m) = divided(u).ok()?;
                (x, Some(m))
            }
            _ => (u, None),
        };
        let (of, divisor) = match quotient.op() {
            Op::FloorDiv => divided(quotient).ok()?,
            _ => (quotient, 1),
        };
        Some(Digit {
            of,
            divisor,
            modulus,
        })
    }

    fn build(&self, like: &UOp) -> Match {
        let mut out = self.of.clone();
        if self.divisor != 1 {
            out = out.floordiv(&number(self.divisor, like)?)?;
        }
        match self.modulus {
            Some(m) => Ok(out.floormod(&number(m, like)?)?),
            None => Ok(out),
        }
    }
}
