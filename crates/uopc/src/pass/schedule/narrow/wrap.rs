//! A remainder whose condition says in which period its dividend lies.
//!
//! The rows of an overlapping window lie one apart: element (i, h) of rows of 58 that were written
//! as rows of 59 is read at row (58*i + h) // 59 and column (58*i + h) % 59, the column below 56.
//! As 58*i + h = 59*i + (h - i), column and row are h - i and i, or h - i + 59 and i - 1 where h
//! is below i; but then the column is no less than 56. So the condition means 0 <= h - i < 56, and
//! under it the row is i and the column h - i.

use crate::error::Result;
use crate::ir::bounds::{Bounds, Interval};
use crate::ir::op::Exec;
use crate::ir::{Op, UOp};
use crate::rules::divmod::Sum;
use crate::rules::select::inverted;

/// Rests of more periods than this are not told apart.
const PERIODS: i128 = 8;

/// A sum that a condition keeps within one period, and the name that it gets.
pub struct Named {
    /// A counter of its values above the least one.
    pub name: UOp,
    /// What the name stands for.
    pub meaning: UOp,
    /// A term of the sum, to be written with the name.
    pub term: UOp,
    /// That term.
    pub value: UOp,
    /// What the name says of the sum.
    pub conditions: Vec<UOp>,
}

/// What a condition on a remainder says.
pub enum Said {
    /// Nothing that can be used.
    Nothing,
    /// That it is false.
    Never,
    /// That the dividend lies in one period.
    Period(Named),
}

/// Looks at a condition, `x % m < c` or its opposite, where bounds hold. `id` is that of the
/// counter which the rest is named by.
///
/// # Errors
/// Never for well-typed conditions.
pub fn said(condition: &UOp, bounds: &mut Bounds, id: u32) -> Result<Said> {
    let (compared, holds) = match inverted(condition) {
        Some(c) => (c, false),
        None => (condition, true),
    };
    let (Op::CmpLt, [digit, limit]) = (compared.op(), compared.src()) else {
        return Ok(Said::Nothing);
    };
    let (Op::FloorMod, [x, m]) = (digit.op(), digit.src()) else {
        return Ok(Said::Nothing);
    };
    let (Some(c), Some(m)) = (bounds.of(limit).value(), bounds.of(m).value()) else {
        return Ok(Said::Nothing);
    };
    let Some(sum) = Sum::of(x).filter(|_| x.dtype().is_signed() && m > 0 && c > 0 && c < m) else {
        return Ok(Said::Nothing);
    };
    let whole = Interval::whole(x.dtype());
    let exact = |sum: &Sum, bounds: &mut Bounds| sum.interval(bounds).filter(|i| i.within(whole));
    let mut rest = nearest(&sum, m);
    let (Some(_), Some(of_rest)) = (exact(&sum, bounds), exact(&rest, bounds)) else {
        return Ok(Said::Nothing);
    };
    let periods = of_rest.lo.div_euclid(m)..=of_rest.hi.div_euclid(m);
    if periods.end() - periods.start() > PERIODS {
        return Ok(Said::Nothing);
    }
    let allowed = match holds {
        true => Interval { lo: 0, hi: c - 1 },
        false => Interval { lo: c, hi: m - 1 },
    };
    let within = |q: i128| Interval {
        lo: of_rest.lo - q * m,
        hi: of_rest.hi - q * m,
    };
    let possible = |q: &i128| within(*q).intersection(allowed).is_some();
    let mut periods = periods.filter(possible);
    let (Some(q), None) = (periods.next(), periods.next()) else {
        return Ok(if of_no_period(&of_rest, m, allowed) {
            Said::Never
        } else {
            Said::Nothing
        });
    };
    rest.constant -= q * m;
    name(rest, within(q), allowed, x, id)
}

/// Whether no multiple of m added to an interval meets another one.
fn of_no_period(of: &Interval, m: i128, allowed: Interval) -> bool {
    let mut periods = of.lo.div_euclid(m)..=of.hi.div_euclid(m);
    !periods.any(|q| {
        let shifted = Interval {
            lo: of.lo - q * m,
            hi: of.hi - q * m,
        };
        shifted.intersection(allowed).is_some()
    })
}

/// A sum without the multiples of m that are nearest to its factors.
fn nearest(sum: &Sum, m: i128) -> Sum {
    let mut rest = sum.clone();
    for (_, k) in &mut rest.terms {
        *k -= m * (2 * *k + m).div_euclid(2 * m);
    }
    rest.constant = sum.constant.rem_euclid(m);
    rest.terms.retain(|(_, k)| *k != 0);
    rest
}

/// Names a sum, of which a term with factor 1 is written anew.
fn name(rest: Sum, of_rest: Interval, allowed: Interval, like: &UOp, id: u32) -> Result<Said> {
    let Some(at) = rest.terms.iter().position(|(_, k)| *k == 1) else {
        return Ok(Said::Nothing);
    };
    // Where the conditions do not hold, they must not seem to because the sum wraps.
    let anywhere = rest.interval(&mut Bounds::new());
    if !anywhere.is_some_and(|all| all.within(Interval::whole(like.dtype()))) {
        return Ok(Said::Nothing);
    }
    let now = of_rest
        .intersection(allowed)
        .expect("the period was found by this");
    let constant = |value: i128| UOp::int(value as i64, like.dtype());
    let built = |sum: &Sum| sum.build(like);
    let (Ok(meaning), term) = (built(&rest), rest.terms[at].0.clone()) else {
        return Ok(Said::Nothing);
    };
    // Both, even where other conditions imply one: those are simplified by what the name says.
    let conditions = vec![
        meaning.cmplt(&constant(now.lo))?.logical_not()?,
        meaning.cmplt(&constant(now.hi + 1))?,
    ];
    let name = UOp::range(&constant(now.hi - now.lo + 1), id, Exec::Serial)?;
    // rest = term + others, and rest = name + lo.
    let mut value = Sum {
        constant: now.lo - rest.constant,
        ..Sum::default()
    };
    value.terms.push((name.clone(), 1));
    let others = rest.terms.iter().enumerate().filter(|(k, _)| *k != at);
    value
        .terms
        .extend(others.map(|(_, (u, k))| (u.clone(), -k)));
    let Ok(value) = built(&value) else {
        return Ok(Said::Nothing);
    };
    let meaning = meaning.add(&constant(-now.lo))?;
    Ok(Said::Period(Named {
        name,
        meaning,
        term,
        value,
        conditions,
    }))
}
