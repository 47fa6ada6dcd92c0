//! Values in C: scalars as expressions, and vectors as calls of the vector side of each op.
//!
//! A value has lanes if it depends on the range of a vector loop. All else is a scalar, also in the
//! midst of vectors, and becomes a vector only where it meets one.

use std::rc::Rc;

use super::frame::Kind;
use super::prelude::Helper;
use super::render::{Renderer, is_fused};
use super::scalar::{bare, c_type, call, literal};
use super::vector;
use crate::ir::affine::{Linear, is_exact};
use crate::ir::bounds::Interval;
use crate::ir::op::Op;
use crate::ir::{DType, Scalar, UOp};

impl Renderer<'_> {
    /// A value as C, its sources first. What has a name is read by name.
    pub(super) fn expression(&mut self, root: &UOp) -> Rc<str> {
        let mut pending = vec![root.clone()];
        while let Some(u) = pending.last().cloned() {
            if self.frame().spelled.contains_key(&u) {
                pending.pop();
                continue;
            }
            if self.frame().is_postponed(&u) {
                match self.frame().spelled.contains_key(&u.src()[0]) {
                    true => self.write_name(&u),
                    false => pending.push(u.src()[0].clone()),
                }
                continue;
            }
            if let Some(text) = self.spell_whole(&u) {
                pending.pop();
                self.frame().name(&u, text);
                continue;
            }
            let before = pending.len();
            let spelled = &self.frames[self.at].spelled;
            let unknown = |s: &&UOp| !spelled.contains_key(*s);
            pending.extend(u.src().iter().filter(unknown).cloned());
            if pending.len() == before {
                pending.pop();
                let lanes = self.lanes.of(&u);
                let text = match lanes {
                    1 => self.spell(&u),
                    lanes => self.spell_lanes(&u, lanes),
                };
                self.frame().name(&u, text);
            }
        }
        self.frame().spelled[root].clone()
    }

    /// A value that is not spelled from its sources one by one, if it is one.
    fn spell_whole(&mut self, u: &UOp) -> Option<String> {
        if matches!(u.op(), Op::Range { .. }) {
            return Some(self.range_value(u));
        }
        if matches!(u.op(), Op::Let { .. } | Op::Param { .. } | Op::Local { .. }) {
            return Some(self.outer_name(u));
        }
        if !self.wide {
            return None;
        }
        if self.is_argument(u) {
            return Some(self.scalar_argument(u));
        }
        let lanes = self.lanes.of(u);
        let is = |op: Op| *u.op() == op;
        if is(Op::CmpLt) {
            return self.comparison(u, lanes);
        }
        if lanes > 1 && (is(Op::Add) || is(Op::Mul)) {
            return self.counted(u, lanes);
        }
        if lanes > 1 && is(Op::Where) && self.lanes.of(&u.src()[0]) == 1 {
            let condition = self.expression(&u.src()[0]);
            let yes = self.lanes_of(&u.src()[1], lanes);
            let no = self.lanes_of(&u.src()[2], lanes);
            return Some(format!("({condition}?{yes}:{no})"));
        }
        None
    }

    /// A range as a value.
    fn range_value(&mut self, u: &UOp) -> String {
        if self.lanes.has(u) {
            let lanes = self.lanes.of(u);
            return self.take(vector::iota(u.dtype(), lanes));
        }
        let name = self.range(u);
        match self.wide && u.dtype() != DType::I64 {
            true => format!("(({}){name})", c_type(u.dtype())),
            false => name,
        }
    }

    /// The counter of a range.
    pub(super) fn range(&mut self, u: &UOp) -> String {
        if let Some(name) = self.frame().counters.get(u) {
            return name.clone();
        }
        let name = self.outer_name(u);
        self.frame().counters.insert(u.clone(), name.clone());
        name
    }

    /// The text of a vector operation; its helpers are noted.
    pub(super) fn take(&mut self, (text, helpers): vector::Spelled) -> String {
        self.helpers.extend(helpers);
        text
    }

    /// A value in all lanes.
    pub(super) fn lanes_of(&mut self, u: &UOp, lanes: usize) -> String {
        let text = self.expression(u);
        match self.lanes.of(u) {
            1 => self.take(vector::splat(u.dtype(), lanes, bare(&text))),
            _ => text.to_string(),
        }
    }

    // ---- indices ----

    /// An integer in `long`, as a sum where nothing in it wraps. In programs that do not count in
    /// `long` it is the plain expression.
    pub(super) fn index(&mut self, u: &UOp) -> String {
        if !self.wide {
            return self.expression(u).to_string();
        }
        if is_exact(u, &mut self.bounds) {
            return self.sum(&Linear::of(u));
        }
        let text = self.expression(u);
        format!("(long){text}")
    }

    /// A sum in `long`, without parentheses around it.
    pub(super) fn sum(&mut self, sum: &Linear) -> String {
        let mut text = String::new();
        for (u, coefficient) in &sum.terms {
            let value = if matches!(u.op(), Op::Range { .. }) {
                self.range(u)
            } else {
                format!("(long){}", self.expression(u))
            };
            let plus = if text.is_empty() { "" } else { "+" };
            text.push_str(&match coefficient {
                1 => format!("{plus}{value}"),
                -1 => format!("-{value}"),
                c => format!("{plus}{value}*{c}"),
            });
        }
        match sum.constant {
            0 if text.is_empty() => "0".into(),
            0 => text,
            c if text.is_empty() => c.to_string(),
            c if c < 0 => format!("{text}-{}", c.unsigned_abs()),
            c => format!("{text}+{c}"),
        }
    }

    /// A sum or multiple of integers that counts lanes: what is the same in all of them is one
    /// scalar.
    fn counted(&mut self, u: &UOp, lanes: usize) -> Option<String> {
        if u.dtype() == DType::Bool || u.dtype().is_float() {
            return None;
        }
        let mut sum = Linear::of(u);
        let of_lanes: Vec<UOp> = (sum.terms.iter().map(|(term, _)| term))
            .filter(|term| self.lanes.of(term) > 1)
            .cloned()
            .collect();
        let [range] = &of_lanes[..] else {
            return None;
        };
        if !self.lanes.has(range) {
            return None;
        }
        let coefficient = sum.coefficient(range);
        sum.terms.retain(|(term, _)| term != range);
        let dtype = u.dtype();
        let mut text = self.take(vector::iota(dtype, lanes));
        if coefficient != 1 {
            let by = literal(Scalar::from_i128(dtype, coefficient));
            let by = self.take(vector::splat(dtype, lanes, &by));
            let args = [text.as_str(), &by];
            text = self.take(vector::call(&Op::Mul, dtype, &[dtype; 2], &args, lanes));
        }
        if sum == Linear::default() {
            return Some(text);
        }
        // Wrapping to the dtype at the end is as good as at each step.
        let start = format!("({})({})", c_type(dtype), self.sum(&sum));
        let start = self.take(vector::splat(dtype, lanes, &start));
        let args = [start.as_str(), &text];
        Some(self.take(vector::call(&Op::Add, dtype, &[dtype; 2], &args, lanes)))
    }

    /// A comparison of integers, with what belongs here on the left and the rest on the right:
    /// there it is one scalar for all lanes, and one argument of a nest.
    fn comparison(&mut self, u: &UOp, lanes: usize) -> Option<String> {
        let is_nest = matches!(self.frame().kind, Kind::Nest);
        let [a, b] = u.src() else {
            return None;
        };
        let sums = |c: &mut Self| {
            let whole = a.dtype().int_range().is_some() && a.dtype() != DType::Bool;
            let exact = whole && is_exact(a, &mut c.bounds) && is_exact(b, &mut c.bounds);
            exact.then(|| (Linear::of(a), Linear::of(b)))
        };
        if lanes == 1 && !is_nest {
            return None;
        }
        let (left, right) = sums(self)?;
        // a < b becomes own < rest, where the constant of a stays with what is its own.
        let difference = left.minus(&right);
        let own: Vec<bool> = (difference.terms.iter())
            .map(|(term, _)| self.lanes.of(term) > 1 || is_nest && self.is_own(term))
            .collect();
        let mut own = own.into_iter();
        let (mut own, rest) = difference.split(|_| own.next() == Some(true));
        own.constant = if is_nest { left.constant } else { 0 };
        let mut rest = Linear::default().minus(&rest);
        rest.constant = own.constant.checked_sub(difference.constant)?;
        let rest_bounds = rest.bounds(&mut self.bounds)?;
        if lanes == 1 {
            let limit = Interval::whole(DType::I64);
            let own_bounds = own.bounds(&mut self.bounds)?;
            if !rest_bounds.within(limit) || !own_bounds.within(limit) {
                return None;
            }
            let right = self.bound(&rest, "long");
            return Some(format!("({}<{right})", self.sum(&own)));
        }
        let [(range, coefficient)] = &own.terms[..] else {
            return None;
        };
        let of_lane = own.bounds(&mut self.bounds)?;
        let narrow = Interval::whole(DType::I32);
        if !self.lanes.has(range) || !of_lane.within(narrow) || !rest_bounds.within(narrow) {
            return None;
        }
        let bound = self.bound(&rest, "int");
        let bound = self.take(vector::splat(DType::I32, lanes, &bound));
        let mut counts = self.take(vector::iota(DType::I32, lanes));
        for (op, number, neutral) in [(Op::Mul, *coefficient, 1), (Op::Add, own.constant, 0)] {
            if number != neutral {
                let number = self.take(vector::splat(DType::I32, lanes, &number.to_string()));
                let args = [counts.as_str(), &number];
                counts = self.take(vector::call(
                    &op,
                    DType::I32,
                    &[DType::I32; 2],
                    &args,
                    lanes,
                ));
            }
        }
        let args = [counts.as_str(), &bound];
        let sources = [DType::I32; 2];
        Some(self.take(vector::call(
            &Op::CmpLt,
            DType::Bool,
            &sources,
            &args,
            lanes,
        )))
    }

    /// The right side of a comparison.
    fn bound(&mut self, rest: &Linear, c_type: &str) -> String {
        let is_nest = matches!(self.frame().kind, Kind::Nest);
        if is_nest {
            let value = self.outside_sum(rest);
            return self.argument(c_type, "", value, None);
        }
        let text = self.sum(rest);
        match c_type {
            "int" if !rest.terms.is_empty() => format!("(int)({text})"),
            _ => text,
        }
    }

    // ---- scalars ----

    /// A scalar whose sources are spelled.
    fn spell(&mut self, u: &UOp) -> String {
        match u.op() {
            Op::Const(value) => literal(*value),
            Op::Load => self.loaded(u),
            Op::FloorDiv if self.divides_plainly(u) => self.infix(u, '/'),
            Op::FloorMod if self.divides_plainly(u) => self.infix(u, '%'),
            Op::Add
            | Op::Mul
            | Op::Max
            | Op::Recip
            | Op::Div
            | Op::Exp2
            | Op::Log2
            | Op::Exp
            | Op::Sqrt
            | Op::Sin(_)
            | Op::Trunc
            | Op::MulAcc
            | Op::Cast(_)
            | Op::Bitcast(_)
            | Op::Where
            | Op::CmpLt
            | Op::CmpNe
            | Op::FloorDiv
            | Op::FloorMod
            | Op::And
            | Op::Or
            | Op::Xor
            | Op::Shl
            | Op::Shr => {
                if let Some(sum) = self.negated_sum(u) {
                    let sum = self.expression(&sum);
                    let negate = Helper::Negate(u.dtype());
                    self.helpers.insert(negate);
                    return format!("{}({})", negate.name(), bare(&sum));
                }
                let sources: Vec<DType> = u.src().iter().map(UOp::dtype).collect();
                let args: Vec<Rc<str>> = u.src().iter().map(|s| self.expression(s)).collect();
                let args: Vec<&str> = args.iter().map(|a| &**a).collect();
                self.apply(u.op(), u.dtype(), &sources, &args)
            }
            Op::Buffer { .. }
            | Op::Param { .. }
            | Op::Iota { .. }
            | Op::Reshape(_)
            | Op::Expand(_)
            | Op::Permute(_)
            | Op::Shrink(_)
            | Op::Stack
            | Op::Index
            | Op::ScatterAdd(_)
            | Op::Reduce { .. }
            | Op::Scan(_)
            | Op::ArgSort
            | Op::Custom(_)
            | Op::Stage(_)
            | Op::Range { .. }
            | Op::End
            | Op::Store { .. }
            | Op::Local { .. }
            | Op::Sink
            | Op::After
            | Op::Call { .. }
            | Op::Loop
            | Op::EndLoop
            | Op::If
            | Op::EndIf
            | Op::Let { .. }
            | Op::Declare(_)
            | Op::Barrier => unreachable!("a verified program reads no {u:?} before it is set"),
        }
    }

    /// An op on spelled scalars.
    pub(super) fn apply(
        &mut self,
        op: &Op,
        dtype: DType,
        sources: &[DType],
        args: &[&str],
    ) -> String {
        let (text, helpers) = call(op, dtype, sources, args);
        self.helpers.extend(helpers);
        text
    }

    /// C rounds towards zero and leaves a division by zero undefined; neither matters for a
    /// dividend that is not negative and a positive divisor.
    fn divides_plainly(&mut self, u: &UOp) -> bool {
        self.bounds.of(&u.src()[0]).lo >= 0 && self.bounds.of(&u.src()[1]).lo > 0
    }

    /// What the node negates, if that is a fused multiply-add: gcc 12 would fuse the negation too,
    /// which gives an exact zero the wrong sign.
    fn negated_sum(&self, u: &UOp) -> Option<UOp> {
        let sum = negated(u).filter(|sum| is_fused(sum, &self.fused));
        sum.cloned()
    }

    fn infix(&mut self, u: &UOp, symbol: char) -> String {
        let (a, b) = (self.expression(&u.src()[0]), self.expression(&u.src()[1]));
        format!("({a}{symbol}{b})")
    }

    // ---- vectors ----

    /// A vector whose sources are spelled.
    fn spell_lanes(&mut self, u: &UOp, lanes: usize) -> String {
        if let Some(sum) = self.negated_sum(u) {
            let sum = self.lanes_of(&sum, lanes);
            return self.take(vector::negate(u.dtype(), lanes, bare(&sum)));
        }
        let sources: Vec<DType> = u.src().iter().map(UOp::dtype).collect();
        let args: Vec<String> = u.src().iter().map(|s| self.lanes_of(s, lanes)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.take(vector::call(u.op(), u.dtype(), &sources, &args, lanes))
    }
}

/// What a product or quotient with -1 negates.
fn negated(u: &UOp) -> Option<&UOp> {
    let minus_one = |s: &UOp| matches!(s.op(), Op::Const(v) if v.as_f64() == -1.0);
    if !matches!(u.dtype(), DType::F32 | DType::F64) {
        return None;
    }
    match u.src() {
        [x, k] if minus_one(k) => Some(x),
        [k, x] if minus_one(k) && *u.op() == Op::Mul => Some(x),
        _ => None,
    }
}
