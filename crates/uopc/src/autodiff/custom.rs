//! CUSTOM: derivatives by the rules that its author gave.

use std::sync::Arc;

use super::stop::unsupported;
use super::vmap::{Batched, vmap};
use crate::error::Result;
use crate::functions::{Known, known};
use crate::ir::composite::zeros_like;
use crate::ir::custom::{Custom, Rules};
use crate::ir::op::{Op, ReduceOp};
use crate::ir::uop::{Sources, UOp};

/// The rules of a CUSTOM node.
fn rules<'a>(u: &UOp, custom: &'a Custom) -> Result<&'a Arc<Rules>> {
    custom.rules.as_ref().ok_or_else(|| {
        let remedy = "its rules were given in a program and are not in the text; differentiate \
                      there, or write the value from other ops";
        unsupported(u, "custom", remedy)
    })
}

/// The inputs' leaves and what stands for them, and those of the output.
fn bound<'a>(u: &'a UOp, rules: &'a Rules) -> impl Iterator<Item = (&'a UOp, &'a UOp)> {
    let inputs = rules.inputs.iter().zip(&u.src()[1..]);
    inputs.chain([(&rules.output, u)])
}

/// What the cotangent `g` of u contributes to that of source k, which is an input.
pub(super) fn pull(u: &UOp, custom: &Custom, g: &UOp, k: usize) -> Result<UOp> {
    if let Some(function) = known(u) {
        return g.mul(&slope(u, function, k)?);
    }
    let rules = rules(u, custom)?;
    let x = &u.src()[k];
    let Some(rule) = &rules.vjp[k - 1] else {
        return zeros_like(x);
    };
    let values = bound(u, rules).chain([(&rules.cotangent, g)]);
    Rules::applied(rule, values)?.reshape(x.shape())
}

/// The tangent of u, where `t[k]` is that of source k.
pub(super) fn push(u: &UOp, custom: &Custom, t: &[Option<UOp>]) -> Result<UOp> {
    if let Some(function) = known(u) {
        return push_known(u, function, t);
    }
    let rules = rules(u, custom)?;
    let inputs = u.src().iter().zip(t).skip(1);
    let tangent = |(x, t): (&UOp, &Option<UOp>)| t.clone().map_or_else(|| zeros_like(x), Ok);
    let tangents = inputs.map(tangent).collect::<Result<Vec<UOp>>>()?;
    // Leaves of integers have no tangents that a rule may read.
    let pushed = rules.tangents.iter().zip(&tangents);
    Rules::applied(&rules.jvp, bound(u, rules).chain(pushed))?.reshape(u.shape())
}

/// The derivative of u by source k.
fn slope(u: &UOp, function: &Known, k: usize) -> Result<UOp> {
    function.slope(&u.src()[1..], u, k - 1)
}

/// The sum of each tangent times the slope there.
fn push_known(u: &UOp, function: &Known, t: &[Option<UOp>]) -> Result<UOp> {
    let mut sum: Option<UOp> = None;
    for (k, t) in t.iter().enumerate().skip(1) {
        let Some(t) = t else {
            continue;
        };
        let part = t.mul(&slope(u, function, k)?)?;
        sum = Some(match sum {
            Some(before) => before.add(&part)?,
            None => part,
        });
    }
    sum.map_or_else(|| zeros_like(u), Ok)
}

/// u over a batch of n: the body and the inputs over the batch, and rules for such. An input that is
/// the same for all examples has the sum of their cotangents.
pub(super) fn batched(u: &UOp, custom: &Custom, s: &[&Batched], n: usize) -> Result<UOp> {
    let mut src: Sources = s.iter().map(|s| s.node.clone()).collect();
    if known(u).is_some() {
        // A function of numbers: every argument has the shape of the value.
        let each = s.iter().map(|s| s.repeated(n));
        return UOp::new(u.op().clone(), each.collect::<Result<Sources>>()?);
    }
    src[0] = s[0].repeated(n)?;
    let rules = match &custom.rules {
        Some(rules) => Some(Arc::new(batched_rules(rules, &s[1..], n)?)),
        None => None,
    };
    let name = custom.name.clone();
    let op = Op::Custom(Arc::new(Custom { name, rules }));
    debug_assert_eq!(src.len(), u.src().len());
    UOp::new(op, src)
}

fn batched_rules(rules: &Rules, inputs: &[&Batched], n: usize) -> Result<Rules> {
    let mut pairs = Vec::new();
    let mut batch = |leaf: &UOp| -> Result<UOp> {
        let len = leaf.shape().numel();
        let wide = UOp::placeholder(leaf.dtype(), n * len);
        pairs.push((leaf.clone(), wide.reshape(&[n, len])?));
        Ok(wide)
    };
    let mut own = |leaf: &UOp, batched: bool| match batched {
        true => batch(leaf),
        false => Ok(leaf.clone()),
    };
    let each = |own: &mut dyn FnMut(&UOp, bool) -> Result<UOp>, leaves: &[UOp]| {
        let leaves = leaves.iter().zip(inputs);
        leaves
            .map(|(leaf, s)| own(leaf, s.batched))
            .collect::<Result<Vec<UOp>>>()
    };
    let wide_inputs = each(&mut own, &rules.inputs)?;
    let wide_tangents = each(&mut own, &rules.tangents)?;
    let output = own(&rules.output, true)?;
    let cotangent = own(&rules.cotangent, true)?;
    let over_batch = |rule: &UOp| -> Result<UOp> {
        let mut found = vmap(std::slice::from_ref(rule), &pairs)?;
        found.swap_remove(0).repeated(n)
    };
    let mut vjp = Vec::with_capacity(inputs.len());
    for (rule, s) in rules.vjp.iter().zip(inputs) {
        vjp.push(match rule {
            Some(rule) if s.batched => Some(over_batch(rule)?),
            Some(rule) => {
                let each = over_batch(rule)?;
                let rank = each.shape().rank();
                let order: Vec<usize> = (1..rank).chain([0]).collect();
                Some(each.permute(&order)?.reduce(ReduceOp::Add, 1)?)
            }
            None => None,
        });
    }
    let jvp = over_batch(&rules.jvp)?;
    Ok(Rules::new(
        wide_inputs,
        output,
        cotangent,
        wide_tangents,
        vjp,
        jvp,
    ))
}
