//! Values that are 0 but where a number meets its position along an axis: products with a one-hot, and
//! choices by one. A sum of them over the positions reads at the numbers, and one over the numbers
//! adds at them.

use smallvec::SmallVec;

use super::axes::{Axes, of_source};
use super::dtype::DType;
use super::op::Op;
use super::scalar::Scalar;
use super::uop::UOp;
use crate::error::Result;

/// How many nodes are looked through between a value and a comparison, a counter or an EXPAND.
const REACH: usize = 32;

/// A value x that is, element by element, `number == position ? value : 0`, where the position is the
/// index along one axis.
#[derive(Clone, Debug)]
pub struct OneHot {
    /// The axis of x along which the positions are.
    pub axis: usize,
    /// Whether x is a product: then 0 times a value that is no finite number is NaN.
    pub product: bool,
    /// Integers in the shape of x, the same all along the axis.
    numbers: Placed,
    /// In the shape of x.
    value: Placed,
}

/// A node in the shape of x: another one, moved.
#[derive(Clone, Debug)]
struct Placed {
    node: UOp,
    /// Its axes in terms of those of x.
    axes: Axes,
    /// The movement ops that bring it into the shape of x, the last one first.
    moved: Vec<UOp>,
    /// Axes of x along which these repeat it.
    repeated: SmallVec<[u8; 4]>,
}

/// The axis of x along which an EXPAND with these axes repeats its source at one of its own.
fn repeats(u: &UOp, axes: &Axes, at: usize) -> Option<u8> {
    match u.op() {
        Op::Expand(to) if u.src()[0].shape()[at] != to[at] => axes[at],
        _ => None,
    }
}

impl Placed {
    /// The place of source k of a node that is elementwise.
    fn source(&self, k: usize) -> Placed {
        Placed {
            node: self.node.src()[k].clone(),
            ..self.clone()
        }
    }

    /// Looks through ops with one source.
    fn descend(mut self, through: impl Fn(&Op) -> bool) -> Placed {
        for _ in 0..REACH {
            if !through(self.node.op()) {
                break;
            }
            let below = self.node.src()[0].clone();
            if self.node.op().is_movement() {
                let all = 0..self.axes.len();
                let repeated = all.filter_map(|at| repeats(&self.node, &self.axes, at));
                self.repeated.extend(repeated);
                self.axes = of_source(&self.node, 0, &self.axes);
                self.moved.push(self.node.clone());
            }
            self.node = below;
        }
        self
    }

    /// The node in the shape of x.
    fn in_place(&self) -> Result<UOp> {
        let mut steps = self.moved.iter().rev();
        steps.try_fold(self.node.clone(), |u, step| step.with_src(&[u]))
    }

    /// Whether it is the same all along an axis of x.
    fn is_constant_along(&self, axis: usize) -> bool {
        let axis = u8::try_from(axis).ok();
        if self.repeated.iter().any(|a| Some(*a) == axis) {
            return true;
        }
        let mut pending = vec![(self.node.clone(), self.axes.clone())];
        for _ in 0..REACH {
            let Some((u, axes)) = pending.pop() else {
                return true;
            };
            if u.src().is_empty() && u.shape().rank() == 0 {
                continue;
            }
            let Some(at) = axes.iter().position(|a| *a == axis) else {
                return false;
            };
            match u.op() {
                Op::Expand(_) if repeats(&u, &axes, at).is_some() => {}
                Op::Expand(_) | Op::Reshape(_) | Op::Permute(_) => {
                    let below = of_source(&u, 0, &axes);
                    pending.push((u.src()[0].clone(), below));
                }
                op if op.is_elementwise() => {
                    pending.extend(u.src().iter().map(|s| (s.clone(), axes.clone())));
                }
                _ => return false,
            }
        }
        false
    }
}

/// The value x as a one-hot, if it is one.
///
/// ```
/// use uopc::ir::{DType, UOp, onehot::one_hot};
///
/// # fn main() -> uopc::Result<()> {
/// // (number == position) ? 1.0 : 0.0 for 4 numbers and 9 positions.
/// let numbers = UOp::slot(0, DType::I32, 4).reshape(&[4, 1])?.expand(&[4, 9])?;
/// let positions = UOp::iota(9, DType::I32)?.reshape(&[1, 9])?.expand(&[4, 9])?;
/// let hot = numbers.eq(&positions)?.cast(DType::F32)?;
/// let x = hot.mul(&UOp::slot(1, DType::F32, 36).reshape(&[4, 9])?)?;
/// assert_eq!(one_hot(&x).map(|hot| hot.axis), Some(1));
/// # Ok(())
/// # }
/// ```
pub fn one_hot(x: &UOp) -> Option<OneHot> {
    let rank = x.shape().rank();
    let place = Placed {
        node: x.clone(),
        axes: (0..rank).map(|k| u8::try_from(k).ok()).collect(),
        moved: Vec::new(),
        repeated: SmallVec::new(),
    };
    if x.dtype() == DType::Bool {
        return None;
    }
    let place = place.descend(|op| matches!(op, Op::Permute(_) | Op::Reshape(_)));
    match place.node.op() {
        Op::Where => {
            let [_, a, b] = place.node.src() else {
                return None;
            };
            if is_zero(b) {
                compared(place.source(0), false, place.source(1), x)
            } else if is_zero(a) {
                compared(place.source(0), true, place.source(2), x)
            } else {
                None
            }
        }
        Op::Mul => [1, 0].into_iter().find_map(|k| {
            let hot = ones(place.source(k))?;
            let found = compared(hot.0, hot.1, place.source(1 - k), x)?;
            Some(OneHot {
                product: true,
                ..found
            })
        }),
        _ => {
            let hot = ones(place)?;
            let one = UOp::full(Scalar::one(x.dtype()), x.shape()).ok()?;
            let value = Placed {
                node: one,
                axes: (0..rank).map(|k| u8::try_from(k).ok()).collect(),
                moved: Vec::new(),
                repeated: SmallVec::new(),
            };
            compared(hot.0, hot.1, value, x)
        }
    }
}

/// The condition under which a factor is 1, and whether it is the opposite; elsewhere the factor is 0.
fn ones(factor: Placed) -> Option<(Placed, bool)> {
    let number = factor.descend(|op| op.is_movement() || matches!(op, Op::Cast(_)));
    if number.node.dtype() == DType::Bool {
        return Some((number, false));
    }
    let [_, a, b] = number.node.src() else {
        return None;
    };
    let is_one = |u: &UOp| is_constant(u, Scalar::one(u.dtype()));
    match number.node.op() {
        Op::Where if is_one(a) && is_zero(b) => Some((number.source(0), false)),
        Op::Where if is_zero(a) && is_one(b) => Some((number.source(0), true)),
        _ => None,
    }
}

/// A one-hot whose values are chosen where a condition holds, or its opposite, if that compares numbers
/// with positions.
fn compared(condition: Placed, opposite: bool, value: Placed, x: &UOp) -> Option<OneHot> {
    let (mut condition, mut unequal) = (condition, opposite);
    for _ in 0..REACH {
        condition = condition.descend(Op::is_movement);
        let negated = match (condition.node.op(), condition.node.src()) {
            (Op::Xor, [_, one]) => is_constant(one, Scalar::from_bool(true)),
            _ => false,
        };
        if !negated {
            break;
        }
        unequal = !unequal;
        condition = condition.source(0);
    }
    // CMPNE holds where the value is 0.
    let compares = *condition.node.op() == Op::CmpNe && condition.node.src()[0].dtype().is_int();
    if !compares || !unequal {
        return None;
    }
    [1, 0].into_iter().find_map(|k| {
        let positions = condition.source(k).descend(Op::is_movement);
        let Op::Iota { n, .. } = *positions.node.op() else {
            return None;
        };
        let axis = usize::from(positions.axes[0]?);
        let numbers = condition.source(1 - k);
        let fits = x.shape()[axis] == n && numbers.is_constant_along(axis);
        fits.then(|| OneHot {
            axis,
            product: false,
            numbers,
            value: value.clone(),
        })
    })
}

impl OneHot {
    /// Whether the values are ones, of which a sum is a count.
    pub fn counts(&self) -> bool {
        is_constant(&self.value.node, Scalar::one(self.value.node.dtype()))
    }

    /// Whether the values are the same all along the axis.
    pub fn is_constant(&self) -> bool {
        self.value.is_constant_along(self.axis)
    }

    /// The sum of x over its axis, whose extent goes: the values at the numbers, and 0 where a number is
    /// no position. Of floats a -0 may stand where the sum has +0.
    ///
    /// # Errors
    /// Never for a one-hot that was found.
    pub fn read(&self) -> Result<UOp> {
        let (numbers, value) = (self.numbers.in_place()?, self.value.in_place()?);
        let shape = value.shape().clone();
        let others = |k: &usize| *k != self.axis;
        let along: Vec<usize> = (0..shape.rank())
            .filter(others)
            .filter(|&k| !self.numbers.is_constant_along(k))
            .collect();
        let rest: Vec<usize> = (0..shape.rank())
            .filter(others)
            .filter(|k| !along.contains(k))
            .collect();
        // Values that are the same along an axis of the numbers need no index there.
        let named: Vec<usize> = along
            .iter()
            .copied()
            .filter(|&k| !self.value.is_constant_along(k))
            .collect();
        let extents: Vec<usize> = along.iter().map(|&k| shape[k]).collect();
        let dtype = position_dtype(&numbers, &shape);
        let mut indices = Vec::new();
        for k in &named {
            let at = along.iter().position(|a| a == k);
            indices.push(counted(at.unwrap_or(0), &extents, dtype)?);
        }
        indices.push(part(&numbers, &along)?.cast(dtype)?);
        let order = [&named[..], &[self.axis], &rest[..]].concat();
        let read = part(&value, &order)?.index(&indices)?;
        arranged(&read, &[along, rest].concat())
    }

    /// The sum of x over the axes `summed`, without these, of values that [are constant along the
    /// axis](Self::is_constant): each is added at its number.
    ///
    /// # Errors
    /// Never for a one-hot that was found and axes other than its own.
    pub fn add(&self, summed: &[usize]) -> Result<UOp> {
        let (numbers, value) = (self.numbers.in_place()?, self.value.in_place()?);
        let shape = value.shape().clone();
        let kept = |k: &usize| !summed.contains(k) && *k != self.axis;
        let along: Vec<usize> = (0..shape.rank())
            .filter(kept)
            .filter(|&k| !self.numbers.is_constant_along(k))
            .collect();
        let rest: Vec<usize> = (0..shape.rank())
            .filter(kept)
            .filter(|k| !along.contains(k))
            .collect();
        let places = [&along[..], summed].concat();
        let extents: Vec<usize> = places.iter().map(|&k| shape[k]).collect();
        let dtype = position_dtype(&numbers, &shape);
        let mut indices = Vec::new();
        for at in 0..along.len() {
            indices.push(counted(at, &extents, dtype)?);
        }
        indices.push(part(&numbers, &places)?.cast(dtype)?);
        let rows = part(&value, &[&places[..], &rest[..]].concat())?;
        let order = [&along[..], &[self.axis], &rest[..]].concat();
        let to: Vec<usize> = order.iter().map(|&k| shape[k]).collect();
        arranged(&rows.scatter_add(&indices, &to)?, &order)
    }
}

/// A dtype of indices that holds each of the numbers that is a position, and no other as one.
fn position_dtype(numbers: &UOp, shape: &[usize]) -> DType {
    let (lo, hi) = numbers.dtype().int_range().unwrap_or((0, 0));
    let narrow = lo >= i128::from(i32::MIN) && hi <= i128::from(i32::MAX);
    match narrow && shape.iter().all(|&n| n <= i32::MAX as usize) {
        true => DType::I32,
        false => DType::I64,
    }
}

/// The index along one axis of a shape.
fn counted(axis: usize, shape: &[usize], dtype: DType) -> Result<UOp> {
    let mut ones = vec![1; shape.len()];
    ones[axis] = shape[axis];
    UOp::iota(shape[axis], dtype)?.reshape(&ones)?.expand(shape)
}

/// The axes of u in this order, others at their first index.
fn part(u: &UOp, axes: &[usize]) -> Result<UOp> {
    let first = |k: usize| match axes.contains(&k) {
        true => (0, u.shape()[k]),
        false => (0, 1),
    };
    let window: SmallVec<[(usize, usize); 6]> = (0..u.shape().rank()).map(first).collect();
    let mut order = axes.to_vec();
    order.extend((0..u.shape().rank()).filter(|k| !axes.contains(k)));
    let dims: Vec<usize> = axes.iter().map(|&k| u.shape()[k]).collect();
    u.shrink(&window)?.permute(&order)?.reshape(&dims)
}

/// A node whose axes are these, with them in ascending order.
fn arranged(u: &UOp, axes: &[usize]) -> Result<UOp> {
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_by_key(|&k| axes[k]);
    u.permute(&order)
}

fn is_zero(u: &UOp) -> bool {
    is_constant(u, Scalar::zero(u.dtype()))
}

/// Whether a node is a constant with these bits, in any shape.
fn is_constant(u: &UOp, value: Scalar) -> bool {
    let mut u = u;
    for _ in 0..REACH {
        match u.op() {
            Op::Const(found) => return *found == value,
            op if op.is_movement() => u = &u.src()[0],
            _ => return false,
        }
    }
    false
}
