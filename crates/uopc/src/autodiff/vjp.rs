//! The vjp (vector-Jacobian product) of each op: the whole knowledge about derivatives.
//!
//! For a node `u = op(s)` with cotangent `g`, the derivative of the root with respect to u, the
//! rule of source k is `g * du/ds_k`: for elementwise ops a product element by element, for ops
//! that move elements the transpose of the move. Constants have their node's shape.
//!
//! An op that selects takes some elements of a source and not others ([`passage`](super::passage::passage)). Its rule says what
//! those get that were taken; the driver sees to it that the others get 0.
//!
//! Where there is no derivative a rule makes a choice, the same everywhere: what ties for a
//! maximum shares evenly. An unordered comparison (a NaN) counts as a tie, so the shares of a
//! cotangent always sum to it.

use std::f64::consts::LN_2;

use super::custom::pull;
use super::passage::is_reversal;
use super::place::place;
use super::product::product_of_others;
use super::repeat::sum_of_repeats;
use super::scan::pull_scan;
use super::stop::not_pure;
use crate::error::Result;
use crate::ir::composite::pad;
use crate::ir::dtype::DType;
use crate::ir::op::{Op, ReduceOp, StageKind};
use crate::ir::uop::UOp;

/// True if a small change of source k may change u: both are floats, and u depends on the
/// source in a way that has a derivative. Elsewhere [`vjp`] is `None`.
pub(crate) fn carries(u: &UOp, k: usize) -> bool {
    let stops = matches!(
        u.op(),
        Op::Stage(StageKind::Detach) | Op::Trunc | Op::Bitcast(_)
    );
    // The body says what the value is and nothing about derivatives.
    let is_body = matches!(u.op(), Op::Custom(_)) && k == 0;
    u.dtype().is_float() && u.src()[k].dtype().is_float() && !stops && !is_body
}

/// Whether reverse mode goes on from u to its source k: where a derivative flows, and no rule of the
/// user's says that the input has no gradient.
pub(super) fn pulls(u: &UOp, k: usize) -> bool {
    let is_zero_by_rule = match u.op() {
        Op::Custom(custom) if k > 0 => {
            let rules = custom.rules.as_ref();
            rules.is_some_and(|rules| rules.vjp[k - 1].is_none())
        }
        _ => false,
    };
    carries(u, k) && !is_zero_by_rule
}

/// What the cotangent `g` of u contributes to that of source k, or `None` if nothing can.
pub(super) fn vjp(u: &UOp, g: &UOp, k: usize) -> Result<Option<UOp>> {
    if !pulls(u, k) {
        return Ok(None);
    }
    let s = u.src();
    let x = &s[k];
    match u.op() {
        // Leaves: no sources.
        Op::Const(_) | Op::Buffer { .. } | Op::Param { .. } | Op::Iota { .. } => return Ok(None),

        // u = a + b: du/da = du/db = 1.
        Op::Add => Ok(g.clone()),
        // u = a*b: du/da = b, du/db = a.
        Op::Mul => g.mul(&s[1 - k]),
        // u = max(a, b): 1 where the source is greater, 1/2 at a tie, and not taken where it is less.
        Op::Max => {
            let half = g.mul(&g.full_like(0.5)?)?;
            s[1 - k].cmplt(x)?.where_(g, &half)
        }
        // u = 1/x: du/dx = -1/x^2 = -u^2, with g*u first: it is 0 where u is, whatever u*u does.
        Op::Recip => g.mul(u)?.mul(u)?.neg(),
        // u = a/b: du/da = 1/b, du/db = -a/b^2 = -u/b.
        Op::Div if k == 0 => g.div(&s[1]),
        Op::Div => g.mul(u)?.div(&s[1])?.neg(),
        // u = 2^x = e^(x ln 2): du/dx = u ln 2.
        Op::Exp2 => g.mul(u)?.mul(&u.full_like(LN_2)?),
        // u = ln(x) / ln 2: du/dx = 1/(x ln 2).
        Op::Log2 => g.div(x)?.div(&u.full_like(LN_2)?),
        // u = e^x: du/dx = u.
        Op::Exp => g.mul(u),
        // u^2 = x: du/dx = 1/(2u).
        Op::Sqrt => g.mul(&u.full_like(0.5)?)?.div(u),
        // u = sin(x + t quarter turns): du/dx is a quarter turn ahead, exact at any x.
        Op::Sin(turns) => g.mul(&x.sin_turned((turns + 1) % 4)?),
        // u = a*b + c: du/da = b, du/db = a, du/dc = 1.
        Op::MulAcc if k == 2 => Ok(g.clone()),
        Op::MulAcc => g.mul(&s[1 - k]),
        // A float in another float type is itself up to rounding: du/dx = 1.
        Op::Cast(_) => g.cast(x.dtype()),
        // u = c ? a : b copies what it takes, and c has no derivative.
        Op::Where => Ok(g.clone()),
        // Piecewise constant, or on integers and bools: the derivative is 0 where there is one.
        Op::Trunc
        | Op::Bitcast(_)
        | Op::CmpLt
        | Op::CmpNe
        | Op::FloorDiv
        | Op::FloorMod
        | Op::And
        | Op::Or
        | Op::Xor
        | Op::Shl
        | Op::Shr
        | Op::ArgSort => return Ok(None),

        // The same elements in the same order.
        Op::Reshape(_) => g.reshape(x.shape()),
        // An element is read many times: its readers' cotangents add up.
        Op::Expand(_) => sum_of_repeats(g, x.shape()),
        // Axis m of u is axis order[m] of x, so the order back is the inverse.
        Op::Permute(order) => {
            let mut inverse = vec![0; order.len()];
            for (m, &p) in order.iter().enumerate() {
                inverse[p as usize] = m;
            }
            g.permute(&inverse)
        }
        // What is cut away has no effect: zeros around g.
        Op::Shrink(window) => {
            let around = window
                .iter()
                .zip(x.shape().iter())
                .map(|(&(b, e), &n)| (b, n - e));
            pad(g, &around.collect::<Vec<_>>())
        }

        // u[k] = s_k.
        Op::Stack => g.index(&[UOp::int(k as i64, DType::I32)]),
        // u = x[c0, c1, ...] reads one place: g there, zeros elsewhere.
        Op::Index if s[1..].iter().all(|c| matches!(c.op(), Op::Const(_))) => place(g, x, &s[1..]),
        // u = x backwards: g backwards.
        Op::Index if is_reversal(u) => g.index(&s[1..]),
        // u = x at positions only known later: the cotangents of a row's readers add up.
        Op::Index => g.scatter_add(&s[1..], x.shape()),
        // u = zeros with the rows of x added at positions: a row has the cotangent of its place.
        Op::ScatterAdd(_) => g.index(&s[1..]),
        Op::Reduce { op, n, .. } => match op {
            // u = sum of x: du/dx = 1 for every summand.
            ReduceOp::Add => spread(g, x),
            // u = max of x: shared evenly among all that are not less, which are those taken.
            ReduceOp::Max => share(u, g, x, *n as usize),
            // u = product of x: du/dx_k is the product of the others.
            ReduceOp::Mul => product_of_others(g, x, *n as usize),
        },
        // As its author says.
        Op::Custom(custom) => pull(u, custom, g, k),
        // u_k = x_0, ..., x_k combined.
        Op::Scan(op) => pull_scan(*op, u, g),

        // The identity; `carries` has stopped what is detached.
        Op::Stage(
            StageKind::Materialise
            | StageKind::Remat
            | StageKind::RematInput
            | StageKind::Within
            | StageKind::Detach,
        ) => Ok(g.clone()),

        Op::Range { .. }
        | Op::End
        | Op::Store { .. }
        | Op::Load
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
        | Op::Barrier => Err(not_pure([u])),
    }
    .map(Some)
}

/// A value of a reduction's shape, repeated to the shape of its source.
pub(super) fn spread(g: &UOp, x: &UOp) -> Result<UOp> {
    let mut dims = g.shape().to_vec();
    dims.resize(x.shape().rank(), 1);
    g.reshape(&dims)?.expand(x.shape())
}

/// The share of each element that is a maximum of the last n axes. Ties are counted in i32, which is
/// exact for every row that a 32-bit index can address, and the share is taken in f32 at least.
fn share(u: &UOp, g: &UOp, x: &UOp, n: usize) -> Result<UOp> {
    let less = x.cmplt(&spread(u, x)?)?;
    let ties = less
        .logical_not()?
        .cast(DType::I32)?
        .reduce(ReduceOp::Add, n)?;
    let wide = g.dtype().accumulator();
    let each = g.cast(wide)?.div(&ties.cast(wide)?)?.cast(g.dtype())?;
    spread(&each, x)
}
