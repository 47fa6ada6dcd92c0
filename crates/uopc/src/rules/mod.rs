//! The rules of simplification, as tables of named functions, and the rules about rules.
//!
//! - A rule keeps every bit of the value, for NaN, -0.0, infinities and extreme integers too.
//!   Floats are never reassociated: `x * 1`, `x + -0.0`, `x / 1` are rules; `x + 0.0`, `x * 0`,
//!   `x - x` and `x / x` are not. Integers wrap, so their sums may be reordered. Two rules about one-hot
//!   products have a licence ([`onehot`]): they keep the bits where all values are finite numbers.
//! - A rule is local and pure. It looks at a node, at what is below it and at bounds, never at
//!   consumers.
//! - What a chain sums must stay the same. A REDUCE with `fold=chain` does not round the product
//!   below it, so in shape graphs a float MUL is folded or removed only if it is exact, and
//!   `keeps_chain_products` refuses sources that would show a chain another product. In scalar
//!   graphs contractions are MULACC, and a MUL is nothing special.
//! - Operands keep the order in which they were written, but for constants, which stand on the
//!   right of commutative ops.
//!
//! | table | graphs | what |
//! |---|---|---|
//! | [`fold`] | both | constants |
//! | [`algebra`] | both | identities of arithmetic and of bits |
//! | [`select`] | both | comparisons, WHERE, gates |
//! | [`divmod`] | both | integer division: index arithmetic |
//! | [`movement`] | shape | RESHAPE, EXPAND, PERMUTE, SHRINK, STACK, INDEX |
//! | [`reduce`] | shape | empty, constant and nested reductions |
//! | [`onehot`] | shape | sums of one-hot values |

pub mod algebra;
pub mod divmod;
pub mod fold;
pub mod movement;
pub mod onehot;
pub mod reduce;
pub mod select;

use crate::ir::fold::chain_product;
use crate::ir::op::Fold;
use crate::ir::{Op, Scalar, UOp};
use crate::rewrite::{Match, Miss, Rule, RuleSet, found, require};

/// The tables for shape graphs.
pub const SHAPE_TABLES: &[&[Rule]] = &[
    fold::RULES,
    fold::SHAPE_RULES,
    movement::RULES,
    reduce::RULES,
    onehot::RULES,
    algebra::RULES,
    select::RULES,
    divmod::RULES,
];

/// The tables for scalar and index expressions in loops.
pub const SCALAR_TABLES: &[&[Rule]] = &[
    fold::RULES,
    fold::SCALAR_RULES,
    algebra::RULES,
    select::RULES,
    select::SCALAR_RULES,
    divmod::RULES,
    divmod::SCALAR_RULES,
];

/// Rules that make the conditions and indices of loops ready to be laid out. The plain schedule goes
/// without them: it reads as the graph was written.
pub const FOR_LAYOUT: &[&str] = &[
    "mod_known",
    "cmplt_sum",
    "cmplt_add",
    "cmplt_div",
    "and_repeated",
    "where_gated",
];

/// The rules for shape graphs.
pub fn shape_rules() -> RuleSet {
    RuleSet::new("simplify", SHAPE_TABLES).guarded(keeps_chain_products)
}

/// The rules for scalar and index expressions in loops.
pub fn scalar_rules() -> RuleSet {
    RuleSet::new("simplify_loops", SCALAR_TABLES)
}

/// Every rule once, in the order of the tables.
pub fn all() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for rule in SHAPE_TABLES.iter().chain(SCALAR_TABLES).copied().flatten() {
        if !rules.iter().any(|r| r.name == rule.name) {
            rules.push(*rule);
        }
    }
    rules
}

/// True unless the new sources show a chain another product than the one it sums: a product that
/// comes to light where a rounded value was summed would no longer be rounded.
fn keeps_chain_products(u: &UOp, src: &[UOp], normal_of: &dyn Fn(&UOp) -> Option<UOp>) -> bool {
    let Op::Reduce {
        fold: Fold::Chain, ..
    } = u.op()
    else {
        return true;
    };
    let Some((new, _)) = chain_product(&src[0]) else {
        return true;
    };
    let Some((old, _)) = chain_product(&u.src()[0]) else {
        return false;
    };
    let factors = [normal_of(&old.src()[0]), normal_of(&old.src()[1])];
    let [Some(a), Some(b)] = &factors else {
        return false;
    };
    *new.src() == [a.clone(), b.clone()] || *new.src() == [b.clone(), a.clone()]
}

// ---- what rules look for ----

/// How many movement ops a constant is seen through; in normal form there are at most two.
const REACH: usize = 4;

/// The value of a constant, seen through movement ops: all elements are this.
fn constant(u: &UOp) -> Option<Scalar> {
    let mut u = u;
    for _ in 0..=REACH {
        match u.op() {
            Op::Const(value) => return Some(*value),
            op if op.is_movement() => u = &u.src()[0],
            _ => return None,
        }
    }
    None
}

/// `(x, c)` of a node with two sources of which the second is a constant.
fn right_constant(u: &UOp) -> Result<(&UOp, Scalar), Miss> {
    let [x, c] = u.src() else {
        return Err(Miss::NoMatch);
    };
    Ok((x, found(constant(c))?))
}

/// `((x, c), d)` of `(x op c) op d` with the same op twice and two constants.
fn two_constants(u: &UOp) -> Result<(&UOp, Scalar, Scalar), Miss> {
    let (inner, d) = right_constant(u)?;
    require(inner.op() == u.op())?;
    let (x, c) = right_constant(inner)?;
    Ok((x, c, d))
}

/// The constant in the shape of a node.
fn full(value: Scalar, like: &UOp) -> Match {
    Ok(UOp::full(value, like.shape())?)
}

/// A binary node of this op.
fn binary(op: &Op, a: &UOp, b: &UOp) -> Match {
    Ok(UOp::new(op.clone(), [a.clone(), b.clone()].as_slice())?)
}

/// True for integers and bool.
fn is_exact(u: &UOp) -> bool {
    !u.dtype().is_float()
}

/// All bits of a dtype set: -1, or the greatest unsigned number, or true.
fn all_ones(like: Scalar) -> Scalar {
    Scalar::from_bits(like.dtype(), u64::MAX)
}
