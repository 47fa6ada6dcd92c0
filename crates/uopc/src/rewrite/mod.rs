//! The rewriting engine: named rules in tables, and the driver that applies them until none fires.
//!
//! A rule looks at one node whose sources are in normal form and says what takes its place. It
//! is pure and local: it never looks at consumers, and keeps no state.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | [`Rule`], [`RuleSet`], the [`rule_table!`](crate::rule_table!) table |
//! | `driver.rs` | [`rewrite`]: from the leaves up, with memo and fuel |
//! | `trace.rs` | [`Trace`]: which rule fired on what |

mod driver;
pub mod trace;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::ir::bounds::Bounds;
use crate::ir::{Op, UOp};

pub use driver::{Guard, Limits, Rewritten, StopReason, rewrite, rewrite_assuming};
pub use trace::Trace;

/// For which dtypes a rule keeps every bit of the value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Validity {
    /// All.
    Any,
    /// Integers and bool; the rule does not fire on floats.
    Int,
    /// Floats, because the algebra happens to be exact; the rule fires on floats alone.
    FloatExact,
    /// Finite floats, up to the sign of a zero; which other values differ, and why that is accepted,
    /// stands under `licence:` in the module of the rule.
    Licensed,
}

impl Validity {
    /// The word used in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Validity::Any => "any",
            Validity::Int => "int",
            Validity::FloatExact => "float-exact",
            Validity::Licensed => "licensed",
        }
    }
}

/// Why a rule gave no node.
#[derive(Debug)]
pub enum Miss {
    /// It does not apply.
    NoMatch,
    /// It built something that breaks a type rule: the rule is wrong.
    Failed(Box<Error>),
}

impl From<Error> for Miss {
    fn from(error: Error) -> Miss {
        Miss::Failed(Box::new(error))
    }
}

/// What takes the node's place, or why nothing does.
pub type Match = std::result::Result<UOp, Miss>;

/// Goes on only if the condition holds.
///
/// # Errors
/// [`Miss::NoMatch`] if it does not.
pub fn require(condition: bool) -> std::result::Result<(), Miss> {
    condition.then_some(()).ok_or(Miss::NoMatch)
}

/// Goes on only with a value.
///
/// # Errors
/// [`Miss::NoMatch`] if there is none.
pub fn found<T>(value: Option<T>) -> std::result::Result<T, Miss> {
    value.ok_or(Miss::NoMatch)
}

/// A named rewrite of one node.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Its name, `op_what`.
    pub name: &'static str,
    /// What it does, as algebra.
    pub algebra: &'static str,
    /// The dtypes it is valid for.
    pub validity: Validity,
    /// Mnemonics of the ops it is tried on.
    pub ops: &'static [&'static str],
    /// The rewrite itself. The bounds are those of the nodes below, found once for all rules.
    pub apply: fn(&UOp, &mut Bounds) -> Match,
}

/// Writes a table of rules: each is a function under a comment that says its algebra.
///
/// ```text
/// rule_table! {
///     pub RULES;
///     /// x * 1 => x
///     Any mul_one [mul] (u) {
///         let (x, c) = right_constant(u)?;
///         require(c.is_one())?;
///         Ok(x.clone())
///     }
/// }
/// ```
///
/// A second name in the parentheses gets the [`Bounds`].
#[macro_export]
macro_rules! rule_table {
    (
        $(#[$doc:meta])*
        $vis:vis $table:ident;
        $(
            #[doc = $algebra:literal]
            $validity:ident $name:ident [$($op:ident)+] ($u:ident $(, $bounds:ident)?) $body:block
        )*
    ) => {
        $(#[$doc])*
        $vis const $table: &[$crate::rewrite::Rule] = &[$($crate::rewrite::Rule {
            name: stringify!($name),
            algebra: $algebra.trim_ascii(),
            validity: $crate::rewrite::Validity::$validity,
            ops: &[$(stringify!($op)),+],
            apply: |u, _bounds| $name(u $(, { stringify!($bounds); _bounds })?),
        },)*];

        $(
            #[doc = $algebra]
            fn $name(
                $u: &$crate::ir::UOp
                $(, $bounds: &mut $crate::ir::bounds::Bounds)?
            ) -> $crate::rewrite::Match $body
        )*
    };
}

/// Rules that are applied together, in the order of their tables.
pub struct RuleSet {
    /// The pass they belong to, for errors and traces.
    pub name: &'static str,
    rules: Vec<Rule>,
    /// For each mnemonic the positions of its rules.
    by_op: FxHashMap<&'static str, Vec<u32>>,
    guard: Option<Guard>,
}

impl RuleSet {
    /// The rules of these tables.
    pub fn new(name: &'static str, tables: &[&[Rule]]) -> RuleSet {
        let rules = tables.iter().flat_map(|table| table.iter().copied());
        RuleSet::of(name, rules.collect(), None)
    }

    fn of(name: &'static str, rules: Vec<Rule>, guard: Option<Guard>) -> RuleSet {
        let mut by_op: FxHashMap<&'static str, Vec<u32>> = FxHashMap::default();
        for (k, rule) in rules.iter().enumerate() {
            for op in rule.ops {
                by_op.entry(op).or_default().push(k as u32);
            }
        }
        RuleSet {
            name,
            rules,
            by_op,
            guard,
        }
    }

    /// The same rules but for those with these names.
    pub fn without(&self, names: &BTreeSet<String>) -> RuleSet {
        let kept = self.rules.iter().filter(|r| !names.contains(r.name));
        RuleSet::of(self.name, kept.copied().collect(), self.guard)
    }

    /// The same rules with a [`Guard`].
    pub fn guarded(self, guard: Guard) -> RuleSet {
        RuleSet {
            guard: Some(guard),
            ..self
        }
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that are tried on an op.
    fn on(&self, op: &Op) -> &[u32] {
        self.by_op.get(op.mnemonic()).map_or(&[], Vec::as_slice)
    }
}
