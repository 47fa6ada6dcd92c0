//! Random graphs: forward mode, reverse mode and batches agree with each other.
//!
//! The graphs are those of `support/random_graph.rs`, in f64 with moderate values
//! (`support/smooth.rs`) where derivatives are taken, and as wild as they come where they are only
//! batched: all dtypes, NaN, infinities, empty axes, positions out of range.

#[path = "support/case.rs"]
mod case;
#[path = "support/random_graph.rs"]
mod random_graph;
#[path = "support/smooth.rs"]
mod smooth;

use std::cmp::Ordering;

use case::{Case, shrink};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use random_graph::generate;
use smooth::smooth;
use uopc::autodiff::{gradient, jvp, vmap};
use uopc::interp::{Array, graph};
use uopc::ir::op::{BufferId, Fold, Op, ReduceOp};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Scalar, UOp};

/// How many graphs are looked at: 500, and 5,000 where UOPC_DEEP is set.
fn cases() -> u64 {
    if std::env::var_os("UOPC_DEEP").is_some() {
        5000
    } else {
        500
    }
}

/// What two ways to a derivative may differ by, relative to the sum of the magnitudes of its terms.
const SAME: f64 = 1e-9;

/// Checks a property until it was told something by as many graphs as are to be looked at; a graph
/// that fails is made small and shown.
fn all(property: impl Fn(&Case) -> Result<Told, String>) {
    let mut told = 0;
    for seed in 0..4 * cases() {
        match property(&generate(seed)) {
            Ok(Told::Something) => told += 1,
            Ok(Told::Nothing) => {}
            Err(message) => {
                let small = shrink(&generate(seed), &|case| property(case).is_err());
                let then = property(&small).err().unwrap_or_default();
                panic!("seed {seed}: {message}\n{}{then}", small.text());
            }
        }
        if told == cases() {
            return;
        }
    }
    panic!("only {told} graphs of {} say anything", 4 * cases());
}

/// Whether a graph had anything to say about a property.
enum Told {
    Something,
    Nothing,
}

/// A smooth graph as a function of the slots that reach it.
struct Function {
    case: Case,
    /// The sum of all elements of all roots, each root with a factor of its own.
    loss: UOp,
    /// The buffers that the loss depends on.
    targets: Vec<UOp>,
}

impl Function {
    fn of(case: &Case) -> Option<Function> {
        let case = smooth(case)?;
        let terms = case.roots.iter().enumerate().map(|(k, root)| {
            // Bent, so that second derivatives are not all zero.
            let bent = &root.sin().unwrap() + root;
            let sum = bent.reduce(ReduceOp::Add, root.shape().rank()).unwrap();
            &sum * &sum.full_like(1.0 + k as f64).unwrap()
        });
        let loss = terms.reduce(|a, b| &a + &b).expect("a root");
        let nodes = toposort(std::slice::from_ref(&loss));
        let is_target = |u: &UOp| matches!(u.op(), Op::Buffer { .. }) && u.dtype().is_float();
        let targets: Vec<UOp> = nodes.into_iter().filter(is_target).collect();
        (!targets.is_empty()).then_some(Function {
            case,
            loss,
            targets,
        })
    }

    /// New slots for a direction: one for each target.
    fn direction(&mut self, seed: u64) -> Vec<UOp> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let targets = self.targets.iter();
        targets
            .map(|target| {
                let n = target.shape().numel();
                let values: Vec<f64> = (0..n).map(|_| rng.random_range(-1.0..1.0)).collect();
                let slot = self.case.slots.len() as u32;
                self.case
                    .slots
                    .push(Array::from_f64(DType::F64, &[n], &values).unwrap());
                UOp::slot(slot, DType::F64, n)
            })
            .collect()
    }

    fn values(&self, roots: &[UOp]) -> Vec<Vec<f64>> {
        let values = graph::eval(roots, &|u| self.case.bind(u)).expect("all slots are bound");
        values.iter().map(Array::to_f64).collect()
    }
}

/// The inner product of vectors of arrays, and the sum of the magnitudes of its terms.
fn inner(a: &[Vec<f64>], b: &[Vec<f64>]) -> (f64, f64) {
    let terms = a.iter().zip(b).flat_map(|(a, b)| a.iter().zip(b));
    let terms = terms.map(|(a, b)| a * b);
    terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + f64::abs(t)))
}

fn same(what: &str, a: f64, b: f64, size: f64) -> Result<Told, String> {
    if (a - b).abs() > SAME * size {
        return Err(format!(
            "{what}: {a} and {b}, of terms that sum to {size}\n"
        ));
    }
    Ok(if size > 0.0 {
        Told::Something
    } else {
        Told::Nothing
    })
}

/// A function needs no second look if something in it is infinite: derivatives may be where values
/// are not.
fn finite(values: &[Vec<f64>]) -> bool {
    values.iter().flatten().all(|x| x.abs() < 1e100)
}

#[test]
fn the_gradient_times_a_tangent_is_the_jvp() {
    all(|case| {
        let Some(mut f) = Function::of(case) else {
            return Ok(Told::Nothing);
        };
        let v = f.direction(1);
        let gradients = f.values(&gradient(&f.loss, &f.targets).unwrap());
        if !finite(&gradients) {
            return Ok(Told::Nothing);
        }
        let forward = f.values(&[jvp(&f.loss, &f.targets, &v).unwrap()])[0][0];
        let (reverse, size) = inner(&gradients, &f.values(&v));
        same("reverse and forward", reverse, forward, size)
    });
}

#[test]
fn the_hessian_is_symmetric() {
    all(|case| {
        let Some(mut f) = Function::of(case) else {
            return Ok(Told::Nothing);
        };
        let (u, v) = (f.direction(1), f.direction(2));
        let gradients = gradient(&f.loss, &f.targets).unwrap();
        let times =
            |v: &[UOp]| f.values(&uopc::autodiff::jvp_all(&gradients, &f.targets, v).unwrap());
        let (hu, hv) = (times(&u), times(&v));
        if !finite(&hu) || !finite(&hv) {
            return Ok(Told::Nothing);
        }
        let ((a, size_a), (b, size_b)) = (inner(&f.values(&u), &hv), inner(&f.values(&v), &hu));
        // Reverse over forward is the third opinion.
        let tangent = jvp(&f.loss, &f.targets, &v).unwrap();
        let hv = f.values(&gradient(&tangent, &f.targets).unwrap());
        let (c, size_c) = inner(&f.values(&u), &hv);
        same("reverse over forward", a, c, size_a.max(size_c))?;
        same("u H v and v H u", a, b, size_a.max(size_b))
    });
}

// ---- batches ----

/// A batch of examples for some of the slots that a graph reads.
struct Batch {
    /// The case, with the batches in slots behind its own.
    all: Case,
    pairs: Vec<(UOp, UOp)>,
    /// The case with the inputs of each example.
    examples: Vec<Case>,
}

fn batch(case: &Case) -> Option<Batch> {
    let mut rng = SmallRng::seed_from_u64(case.seed ^ 0xba7c);
    let nodes = toposort(&case.roots);
    let mut inputs: Vec<(UOp, usize)> = nodes.iter().filter_map(slot_of).collect();
    // Now and then some of the inputs are the same for all examples.
    let one = rng.random_range(0..inputs.len().max(1));
    let mut at = 0;
    inputs.retain(|_| {
        at += 1;
        at - 1 == one || rng.random_bool(0.6)
    });
    let n = [0, 1, 2, 2, 3, 3][rng.random_range(0..6)];
    let mut found = Batch {
        all: case.clone(),
        pairs: Vec::new(),
        examples: vec![case.clone(); n],
    };
    for (leaf, slot) in inputs {
        let values = &case.slots[slot];
        let mut joined: Vec<Scalar> = Vec::new();
        for example in &mut found.examples {
            // Other elements of the slot, so that all that is special occurs in each example.
            let any = |_| values.get(rng.random_range(0..values.len()));
            let row: Vec<Scalar> = (0..values.len()).map(any).collect();
            let shape = values.shape();
            example.slots[slot] = Array::from_scalars(values.dtype(), shape, &row).ok()?;
            joined.extend(row);
        }
        let (m, total) = (values.len(), joined.len());
        let node = UOp::slot(found.all.slots.len() as u32, leaf.dtype(), total);
        found
            .all
            .slots
            .push(Array::from_scalars(values.dtype(), &[total], &joined).ok()?);
        found.pairs.push((leaf, node.reshape(&[n, m]).ok()?));
    }
    (!found.pairs.is_empty()).then_some(found)
}

fn slot_of(u: &UOp) -> Option<(UOp, usize)> {
    match u.op() {
        Op::Buffer {
            id: BufferId::Slot(slot),
            ..
        } => Some((u.clone(), *slot as usize)),
        _ => None,
    }
}

impl Batch {
    /// Compares each row of the mapped roots with the roots for one example.
    fn compare(
        &self,
        roots: &[UOp],
        near: &dyn Fn(&Array, &Array) -> Option<String>,
    ) -> Result<Told, String> {
        let mapped = vmap(roots, &self.pairs).map_err(|e| e.to_string())?;
        let n = self.examples.len();
        let nodes: Vec<UOp> = mapped.iter().map(|m| m.repeated(n).unwrap()).collect();
        let found = graph::eval(&nodes, &|u| self.all.bind(u)).map_err(|e| e.to_string())?;
        for (e, example) in self.examples.iter().enumerate() {
            let alone = graph::eval(roots, &|u| example.bind(u)).map_err(|e| e.to_string())?;
            for (r, (found, alone)) in found.iter().zip(&alone).enumerate() {
                let m = alone.len();
                let row: Vec<Scalar> = (e * m..(e + 1) * m).map(|i| found.get(i)).collect();
                let row = Array::from_scalars(alone.dtype(), alone.shape(), &row).unwrap();
                if let Some(difference) = near(&row, alone) {
                    return Err(format!("root {r}, example {e} of {n}: {difference}\n"));
                }
            }
        }
        let something = mapped.iter().any(|m| m.batched) && n > 0;
        Ok(if something {
            Told::Something
        } else {
            Told::Nothing
        })
    }
}

fn chains(roots: &[UOp]) -> usize {
    let is_chain = |u: &&UOp| {
        matches!(
            u.op(),
            Op::Reduce {
                fold: Fold::Chain,
                ..
            }
        )
    };
    toposort(roots).iter().filter(is_chain).count()
}

/// Every graph, whatever its dtypes and values, gives the bits of a loop, unless a sum became a
/// matrix product, whose order is another.
#[test]
fn vmap_is_a_loop_to_the_bit() {
    all(|case| {
        let Some(batch) = batch(case) else {
            return Ok(Told::Nothing);
        };
        let mapped = vmap(&case.roots, &batch.pairs).unwrap();
        let nodes: Vec<UOp> = mapped.into_iter().map(|m| m.node).collect();
        // A contraction stays one; other sums may become some.
        match chains(&nodes).cmp(&chains(&case.roots)) {
            Ordering::Less => return Err("a contraction is none any more".into()),
            Ordering::Equal => {}
            Ordering::Greater => return Ok(Told::Nothing),
        }
        batch.compare(&case.roots, &|a, b| a.difference(b))
    });
}

/// With moderate values the matrix products are near the loop as well, and so are derivatives in
/// both modes.
#[test]
fn vmap_of_values_and_derivatives_is_near_a_loop() {
    all(|case| {
        let Some(mut f) = Function::of(case) else {
            return Ok(Told::Nothing);
        };
        let v = f.direction(1);
        let mut roots = f.case.roots.clone();
        roots.push(jvp(&f.loss, &f.targets, &v).unwrap());
        roots.extend(gradient(&f.loss, &f.targets).unwrap());
        if !finite(&f.values(&roots)) {
            return Ok(Told::Nothing);
        }
        let Some(batch) = batch(&Case {
            roots: roots.clone(),
            ..f.case
        }) else {
            return Ok(Told::Nothing);
        };
        batch.compare(&roots, &near)
    });
}

/// Equal up to 1e-9 of the largest element. Where values lie at the edge of a branch, a rounding
/// may decide.
fn near(a: &Array, b: &Array) -> Option<String> {
    if !a.dtype().is_float() {
        return a.difference(b);
    }
    let size = b.to_f64().iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    let apart = |(a, b): (&f64, &f64)| (a - b).abs() > SAME * size || a.is_nan() != b.is_nan();
    let (a, b) = (a.to_f64(), b.to_f64());
    a.iter()
        .zip(&b)
        .any(apart)
        .then(|| format!("{a:?} and {b:?}"))
}

/// The gradient of the sum over a batch is the batch of gradients, and its sum for what the
/// examples share.
#[test]
fn the_gradient_of_vmap_is_vmap_of_the_gradient() {
    all(|case| {
        let Some(f) = Function::of(case) else {
            return Ok(Told::Nothing);
        };
        let gradients = gradient(&f.loss, &f.targets).unwrap();
        if !finite(&f.values(&gradients)) {
            return Ok(Told::Nothing);
        }
        let roots = vec![f.loss.clone()];
        let Some(batch) = batch(&Case {
            roots,
            ..f.case.clone()
        }) else {
            return Ok(Told::Nothing);
        };
        let n = batch.examples.len();
        let sum = |u: &UOp| u.reduce(ReduceOp::Add, 1).unwrap();
        let losses = &vmap(std::slice::from_ref(&f.loss), &batch.pairs).unwrap()[0];
        let total = sum(&losses.repeated(n).unwrap());
        // What takes a target's place, or the target itself.
        let replaced = |t: &UOp| {
            batch
                .pairs
                .iter()
                .find(|(from, _)| from == t)
                .map(|(_, to)| to)
        };
        let whole: Vec<UOp> = (f.targets.iter())
            .map(|t| replaced(t).unwrap_or(t).clone())
            .collect();
        let of_vmap = gradient(&total, &whole).unwrap();
        let each = vmap(&gradients, &batch.pairs).unwrap();
        let vmap_of: Vec<UOp> = (each.iter().zip(&f.targets))
            .map(|(g, t)| {
                let g = g.repeated(n).unwrap();
                if replaced(t).is_some() {
                    g
                } else {
                    sum(&g.permute(&[1, 0]).unwrap())
                }
            })
            .collect();
        let eval = |roots: &[UOp]| graph::eval(roots, &|u| batch.all.bind(u)).unwrap();
        for (a, b) in eval(&of_vmap).iter().zip(&eval(&vmap_of)) {
            if let Some(difference) = near(a, b) {
                return Err(difference);
            }
        }
        Ok(if n > 0 {
            Told::Something
        } else {
            Told::Nothing
        })
    });
}
