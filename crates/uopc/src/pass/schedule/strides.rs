//! An index as a sum: loop counters times strides, and a constant (elsewhere: affine expression).

use smallvec::SmallVec;

use super::nest::{is_range, ranges_of};
use crate::error::Result;
use crate::ir::{DType, Op, UOp};

/// How many nodes of a sum are looked at; a larger one counts as a single opaque term.
const VISITS: usize = 256;

/// `sum of term * factor + constant`, in the order written. Terms are loop counters and whatever
/// is no sum itself. Factors wrap like the dtype of the index does.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Affine {
    /// Terms with their factors, none of which is 0.
    pub terms: SmallVec<[(UOp, i64); 6]>,
    /// What is left.
    pub constant: i64,
}

impl Affine {
    /// Takes an integer expression apart.
    pub fn of(u: &UOp) -> Affine {
        let mut sum = Affine::default();
        let mut pending: SmallVec<[(&UOp, i64); 8]> = SmallVec::from_elem((u, 1), 1);
        let mut visits = 0;
        while let Some((v, factor)) = pending.pop() {
            visits += 1;
            if visits > VISITS {
                return Affine {
                    terms: SmallVec::from_elem((u.clone(), 1), 1),
                    constant: 0,
                };
            }
            match (v.op(), v.src()) {
                (Op::Const(value), _) => {
                    let value = factor.wrapping_mul(value.as_i128() as i64);
                    sum.constant = sum.constant.wrapping_add(value);
                }
                (Op::Add, [a, b]) => pending.extend([(b, factor), (a, factor)]),
                (Op::Mul, [a, b]) => match (constant_of(a), constant_of(b)) {
                    (_, Some(c)) => pending.push((a, factor.wrapping_mul(c))),
                    (Some(c), _) => pending.push((b, factor.wrapping_mul(c))),
                    _ => sum.push(v, factor),
                },
                _ => sum.push(v, factor),
            }
        }
        sum.terms.retain(|(_, factor)| *factor != 0);
        sum
    }

    fn push(&mut self, u: &UOp, factor: i64) {
        match self.terms.iter_mut().find(|(x, _)| x == u) {
            Some((_, k)) => *k = k.wrapping_add(factor),
            None => self.terms.push((u.clone(), factor)),
        }
    }

    /// Adds `u * factor`.
    pub fn add(&mut self, u: &UOp, factor: i64) {
        self.push(u, factor);
        self.terms.retain(|(_, factor)| *factor != 0);
    }

    /// Takes a term out; its factor, or 0.
    pub fn take(&mut self, u: &UOp) -> i64 {
        match self.terms.iter().position(|(x, _)| x == u) {
            Some(k) => self.terms.remove(k).1,
            None => 0,
        }
    }

    /// By how much the index grows with a loop counter; `None` if that is no constant.
    pub fn stride(&self, range: &UOp) -> Option<i64> {
        let mut stride = 0;
        for (term, factor) in &self.terms {
            if term == range {
                stride = *factor;
            } else if !is_range(term) && ranges_of(term).contains(range) {
                return None;
            }
        }
        Some(stride)
    }

    /// The expression.
    ///
    /// # Errors
    /// Never for terms of one integer dtype.
    pub fn build(&self, dtype: DType) -> Result<UOp> {
        let mut sum: Option<UOp> = None;
        for (term, factor) in &self.terms {
            let scaled = match factor {
                1 => term.clone(),
                _ => term.mul(&UOp::int(*factor, dtype))?,
            };
            sum = Some(match sum {
                Some(sum) => sum.add(&scaled)?,
                None => scaled,
            });
        }
        match sum {
            Some(sum) if self.constant == 0 => Ok(sum),
            Some(sum) => sum.add(&UOp::int(self.constant, dtype)),
            None => Ok(UOp::int(self.constant, dtype)),
        }
    }
}

fn constant_of(u: &UOp) -> Option<i64> {
    match u.op() {
        Op::Const(value) => Some(value.as_i128() as i64),
        _ => None,
    }
}
