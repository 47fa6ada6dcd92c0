//! A random graph made fit for differentiation: floats are f64, arguments stay where functions are
//! defined, and values are of moderate size.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::Result;
use uopc::interp::{Array, graph};
use uopc::ir::op::{BufferId, Op, ReduceOp};
use uopc::ir::visit::Graph;
use uopc::ir::{DType, Scalar, UOp};

use crate::case::Case;

/// Beyond this a value is not of moderate size: squares of it lose what is added to them.
const LARGEST: f64 = 1e12;

/// The graph with f64 for every float, with the float roots alone; `None` if no root is a float or
/// if values get too large in spite of all.
pub fn smooth(case: &Case) -> Option<Case> {
    let mut rng = SmallRng::seed_from_u64(case.seed ^ 0x5107);
    let roots = Graph::new(&case.roots)
        .map(|_, u, src| tamed(u, src))
        .expect("the same ops on other floats");
    let slots = case
        .slots
        .iter()
        .map(|slot| tame_values(slot, &mut rng))
        .collect();
    let all = Case {
        seed: case.seed,
        roots,
        slots,
    };
    let nodes = Graph::new(&all.roots).nodes;
    let values = graph::eval(&nodes, &|u| all.bind(u)).ok()?;
    let moderate = |x: f64| x.abs() <= LARGEST;
    let floats = values.iter().filter(|v| v.dtype().is_float());
    if !floats.flat_map(Array::to_f64).all(moderate) {
        return None;
    }
    let mut roots = all.roots.clone();
    roots.retain(|r| r.dtype().is_float());
    (!roots.is_empty()).then_some(Case { roots, ..all })
}

fn wide(dtype: DType) -> DType {
    if dtype.is_float() { DType::F64 } else { dtype }
}

/// Other numbers for a slot of floats, the same for integers.
fn tame_values(slot: &Array, rng: &mut SmallRng) -> Array {
    if !slot.dtype().is_float() {
        return slot.clone();
    }
    let values: Vec<f64> = (0..slot.len())
        .map(|_| rng.random_range(-2.0..2.0))
        .collect();
    Array::from_f64(DType::F64, slot.shape(), &values).expect("as many elements")
}

/// The node in f64, its argument moved into the domain of the op.
fn tamed(u: &UOp, src: &[UOp]) -> Result<UOp> {
    // At least 1/2, smooth, and of the size of x.
    let positive = |x: &UOp| -> Result<UOp> {
        let square = x.mul(x)?.add(&x.full_like(1.0)?)?;
        square.sqrt()?.sub(&x.full_like(0.5)?)
    };
    let bounded = |x: &UOp| x.sin();
    let op = match u.op() {
        Op::Const(value) if value.dtype().is_float() => {
            let x = value.as_f64();
            let tame = if x.is_finite() && x.abs() < 4.0 {
                x
            } else {
                1.5
            };
            Op::Const(Scalar::from_f64(DType::F64, tame))
        }
        Op::Buffer {
            id: BufferId::Slot(slot),
            dtype,
            n,
        } => {
            return Ok(UOp::slot(*slot, wide(*dtype), *n));
        }
        // A float that comes from integers of any size is brought down to a few units.
        Op::Cast(to) if to.is_float() && !src[0].dtype().is_float() => {
            return bounded(&src[0].cast(DType::F64)?);
        }
        Op::Cast(to) => return src[0].cast(wide(*to)),
        // Bits have no meaning in another width.
        Op::Bitcast(to) if to.is_float() && src[0].dtype().is_float() => return Ok(src[0].clone()),
        Op::Bitcast(to) if to.is_float() || src[0].dtype().is_float() => {
            let found = src[0].cast(wide(*to))?;
            return if to.is_float() {
                bounded(&found)
            } else {
                Ok(found)
            };
        }
        Op::Log2 | Op::Sqrt | Op::Recip => {
            return UOp::new(u.op().clone(), [positive(&src[0])?].as_slice());
        }
        Op::Div => return src[0].div(&positive(&src[1])?),
        Op::Exp | Op::Exp2 => return UOp::new(u.op().clone(), [bounded(&src[0])?].as_slice()),
        Op::Reduce {
            op: ReduceOp::Mul,
            n,
            ..
        } if src[0].dtype().is_float() => {
            return bounded(&src[0])?.reduce(ReduceOp::Mul, *n as usize);
        }
        other => other.clone(),
    };
    UOp::new(op, src)
}
