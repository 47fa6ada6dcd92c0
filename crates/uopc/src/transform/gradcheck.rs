//! Gradients put to the test: reverse mode, forward mode and difference quotients must agree.
//!
//! The function is traced once and its graph widened to f64, whatever dtypes it uses. Its results,
//! weighted by random numbers, are summed to a scalar; its slope in random directions is then
//! computed in each way. Second order does the same with the slope itself in the scalar's place.
//! What the function detaches is held fixed, so that the quotients, like the gradients, do not see
//! it change.

use std::fmt;

use rustc_hash::FxHashMap;

use super::trace::{Function, Trace, gradient_error, shape_error};
use super::wide::widened;
use crate::autodiff::{gradient, gradient_with, jvp};
use crate::error::Result;
use crate::ir::op::{Op, ReduceOp, StageKind};
use crate::ir::visit::{substitute, toposort};
use crate::ir::{DType, Shape, UOp};
use crate::tensor::{Generator, Tensor};

/// What [`gradcheck`] does.
#[derive(Clone, Debug)]
pub struct GradcheckOptions {
    /// Half the step of a difference quotient, relative to the size of each element: above 0.
    pub step: f64,
    /// How many random directions for each argument, one at least.
    pub directions: usize,
    /// What may differ, relative to the sum of the terms' magnitudes: above 0.
    pub tolerance: f64,
    /// Whether to check second derivatives.
    pub second_order: bool,
    /// Decides weights and directions.
    pub seed: u64,
}

impl Default for GradcheckOptions {
    /// The step balances the error of the quotient, its square, with that of rounding, 2^-53 over
    /// the step.
    fn default() -> GradcheckOptions {
        GradcheckOptions {
            step: 6e-6,
            directions: 3,
            tolerance: 1e-6,
            second_order: true,
            seed: 0,
        }
    }
}

impl GradcheckOptions {
    /// Refuses numbers with which nothing would be checked.
    fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(shape_error("gradcheck", what));
        for (name, x) in [("step", self.step), ("tolerance", self.tolerance)] {
            if !(x > 0.0 && x.is_finite()) {
                return refuse(format!("the {name} is {x}; use a finite number above 0"));
            }
        }
        if self.directions == 0 {
            return refuse("no directions; use one at least".into());
        }
        Ok(())
    }
}

/// Two ways to compute a slope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// The gradient, and a difference quotient.
    ReverseWithQuotient,
    /// The tangent, and the gradient.
    ForwardWithReverse,
    /// The gradient of the slope, and a difference quotient of it.
    SecondWithQuotient,
    /// The tangent of the slope, and its gradient.
    SecondForwardWithReverse,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Compared::ReverseWithQuotient => "reverse mode with quotients",
            Compared::ForwardWithReverse => "forward mode with reverse mode",
            Compared::SecondWithQuotient => "second order with quotients",
            Compared::SecondForwardWithReverse => "second order, forward with reverse",
        })
    }
}

/// What came of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They agree.
    Agree,
    /// They differ.
    Differ,
    /// The quotient depends on its step: the function has a kink or a jump there, or is NaN.
    Unclear,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Verdict::Agree => "agree",
            Verdict::Differ => "DIFFER",
            Verdict::Unclear => "unclear: a kink, a jump or NaN here",
        })
    }
}

/// The worst of the directions in one comparison for one argument.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The argument's number.
    pub argument: usize,
    /// The argument's shape.
    pub shape: Shape,
    /// What was compared.
    pub compared: Compared,
    /// The slope in the first of the two ways.
    pub found: f64,
    /// The slope in the second.
    pub wanted: f64,
    /// Their difference.
    pub error: f64,
    /// What it may be.
    pub allowed: f64,
    /// What came of it.
    pub verdict: Verdict,
}

/// What [`gradcheck`] has found. It prints as a table.
#[derive(Clone, Debug)]
pub struct GradcheckReport {
    /// For each argument that is a float, one line for each comparison.
    pub comparisons: Vec<Comparison>,
    /// What the table calls the arguments; their numbers where there is no name.
    pub names: Vec<String>,
}

impl GradcheckReport {
    /// True if everything agrees; what is unclear does not.
    pub fn passed(&self) -> bool {
        let agrees = |c: &Comparison| c.verdict == Verdict::Agree;
        self.comparisons.iter().all(agrees)
    }
}

impl fmt::Display for GradcheckReport {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = |k: usize| self.names.get(k).cloned().unwrap_or_else(|| k.to_string());
        let names = self.comparisons.iter().map(|c| name(c.argument));
        let width = names.map(|n| n.chars().count()).fold(9, usize::max);
        writeln!(
            f,
            "{:<width$} {:<12} {:<35} {:>12} {:>12} {:>9} {:>9}  result",
            "argument", "shape", "compared", "first", "second", "error", "allowed"
        )?;
        for c in &self.comparisons {
            writeln!(
                f,
                "{:<width$} {:<12} {:<35} {:>12.5e} {:>12.5e} {:>9.1e} {:>9.1e}  {}",
                name(c.argument),
                c.shape.to_string(),
                c.compared,
                c.found,
                c.wanted,
                c.error,
                c.allowed,
                c.verdict
            )?;
        }
        let count = |v| self.comparisons.iter().filter(|c| c.verdict == v).count();
        let (differ, unclear) = (count(Verdict::Differ), count(Verdict::Unclear));
        match (differ, unclear) {
            (0, 0) => writeln!(f, "all gradients agree"),
            (0, n) => writeln!(f, "{n} unclear: try another point"),
            (n, _) => writeln!(f, "{n} of {} differ", self.comparisons.len()),
        }
    }
}

/// Checks the gradients of a function at these arguments, see [`GradcheckReport`]. Floats among
/// them are checked, of whatever dtype: the computation is done in f64.
///
/// # Errors
/// Those of the function; when it has no float argument or no float result; when an op on the way
/// has no rule; and when an option is out of its range.
pub fn gradcheck(
    f: &Function,
    args: &[Tensor],
    options: &GradcheckOptions,
) -> Result<GradcheckReport> {
    let trace = Trace::new(f, args)?;
    let outputs: Vec<UOp> = trace.outputs.iter().map(Tensor::uop).collect();
    let mut leaves = Vec::new();
    for (k, leaf) in trace.leaves.iter().enumerate() {
        if let Some(leaf) = leaf {
            let values = args[k].cast(DType::F64)?.to_vec::<f64>()?;
            leaves.push((k, leaf.clone(), values));
        }
    }
    let shapes: Vec<Shape> = args.iter().map(|x| x.shape().clone()).collect();
    check_graph(&outputs, &leaves, &shapes, options)
}

/// [`gradcheck`] of a graph: its roots as functions of these leaves, each with its number, at these
/// values. `shapes` are what the report shows, by number.
///
/// # Errors
/// As [`gradcheck`].
pub fn check_graph(
    roots: &[UOp],
    leaves: &[(usize, UOp, Vec<f64>)],
    shapes: &[Shape],
    options: &GradcheckOptions,
) -> Result<GradcheckReport> {
    if leaves.is_empty() {
        let message = "gradcheck needs an argument of floats; only floats have derivatives";
        return Err(gradient_error(message.into()));
    }
    options.check()?;
    let mut rng = Generator::new(options.seed);
    let point = Point::new(leaves, roots, &mut rng)?;
    // Once, for its warnings of what is cut.
    gradient(&point.scalar, &point.leaves)?;
    let mut comparisons = Vec::new();
    for (which, (number, _, _)) in leaves.iter().enumerate() {
        let mut worst: Vec<Comparison> = Vec::new();
        for _ in 0..options.directions {
            let along = point.direction(which, &mut rng);
            let first = point.compare(&point.scalar, which, &along, options, false)?;
            let mut found = Vec::from(first);
            if options.second_order {
                // Along every argument at once, so that mixed derivatives take part.
                let slope = point.slope(&mut rng)?;
                found.extend(point.compare(&slope, which, &along, options, true)?);
            }
            for (k, mut c) in found.into_iter().enumerate() {
                c.argument = *number;
                c.shape = shapes[*number].clone();
                match worst.get_mut(k) {
                    Some(w) if is_worse(&c, w) => *w = c,
                    Some(_) => {}
                    None => worst.push(c),
                }
            }
        }
        comparisons.extend(worst);
    }
    Ok(GradcheckReport {
        comparisons,
        names: Vec::new(),
    })
}

/// The gradients without warnings: where a slope is constant, its own gradient is cut, and what is
/// cut besides need not be said for each direction.
fn silent_gradient(root: &UOp, targets: &[UOp]) -> Result<Vec<UOp>> {
    Ok(gradient_with(root, targets, false)?.0)
}

/// A number from a range, drawn on the host.
fn between(rng: &mut Generator, low: f64, high: f64) -> f64 {
    const STEPS: usize = 1 << 30;
    low + (high - low) * rng.below(STEPS) as f64 / STEPS as f64
}

fn is_worse(a: &Comparison, b: &Comparison) -> bool {
    let rank = |c: &Comparison| match c.verdict {
        Verdict::Agree => 0,
        Verdict::Unclear => 1,
        Verdict::Differ => 2,
    };
    (rank(a), a.error / a.allowed) > (rank(b), b.error / b.allowed)
}

/// A scalar function of leaves in f64, at a point.
struct Point {
    /// Of one axis each; their values are bound when something is computed.
    leaves: Vec<UOp>,
    values: Vec<Vec<f64>>,
    /// The weighted sum of the function's results.
    scalar: UOp,
}

impl Point {
    fn new(leaves: &[(usize, UOp, Vec<f64>)], roots: &[UOp], rng: &mut Generator) -> Result<Point> {
        let mut replace = FxHashMap::default();
        let (mut wide, mut values) = (Vec::new(), Vec::new());
        for (_, leaf, at) in leaves {
            let (argument, node) = Tensor::unknown_argument(DType::F64, leaf.shape())?;
            replace.insert(leaf.clone(), argument.uop());
            wide.push(node);
            values.push(at.clone());
        }
        let mut scalar: Option<UOp> = None;
        for root in roots.iter().filter(|u| u.dtype().is_float()) {
            let root = widened(std::slice::from_ref(root), &replace)?.swap_remove(0);
            let n = root.shape().numel();
            let weights: Vec<f64> = (0..n).map(|_| between(rng, 0.5, 1.5)).collect();
            let weights = Tensor::from_slice(&weights, root.shape())?.uop();
            let sum = root
                .mul(&weights)?
                .reduce(ReduceOp::Add, root.shape().rank())?;
            scalar = Some(match scalar {
                Some(before) => before.add(&sum)?,
                None => sum,
            });
        }
        let scalar = scalar.ok_or_else(|| {
            gradient_error("gradcheck needs a result of floats; others have no derivative".into())
        })?;
        let mut point = Point {
            leaves: wide,
            values,
            scalar,
        };
        point.hold_detached()?;
        Ok(point)
    }

    /// Puts what is detached in its place as numbers: its changes are not to be seen.
    fn hold_detached(&mut self) -> Result<()> {
        let nodes = toposort(std::slice::from_ref(&self.scalar));
        let detached = |u: &&UOp| matches!(u.op(), Op::Stage(StageKind::Detach));
        let detached: Vec<UOp> = nodes.iter().filter(detached).cloned().collect();
        let mut held = FxHashMap::default();
        for u in detached {
            let value = Tensor::from_uop(self.bound(&u, &self.values)?);
            value.realize()?;
            held.insert(u, value.uop());
        }
        self.scalar = substitute(std::slice::from_ref(&self.scalar), &held)?.swap_remove(0);
        Ok(())
    }

    /// A graph over the leaves with numbers in their place.
    fn bound(&self, u: &UOp, values: &[Vec<f64>]) -> Result<UOp> {
        let mut at = FxHashMap::default();
        for (leaf, values) in self.leaves.iter().zip(values) {
            at.insert(
                leaf.clone(),
                Tensor::from_slice(values, [values.len()])?.uop(),
            );
        }
        Ok(substitute(std::slice::from_ref(u), &at)?.swap_remove(0))
    }

    fn value(&self, u: &UOp, values: &[Vec<f64>]) -> Result<Vec<f64>> {
        Tensor::from_uop(self.bound(u, values)?).to_vec::<f64>()
    }

    /// A random direction for one leaf, each element as large as the leaf's own.
    fn direction(&self, which: usize, rng: &mut Generator) -> Vec<f64> {
        let mut draw = |x: &f64| {
            let size = x.abs().max(0.1);
            let d = between(rng, 0.25, 1.0) * size;
            if rng.below(2) == 0 { d } else { -d }
        };
        self.values[which].iter().map(&mut draw).collect()
    }

    /// The slope of the scalar along a random direction through all leaves, as a graph.
    fn slope(&self, rng: &mut Generator) -> Result<UOp> {
        let gradients = silent_gradient(&self.scalar, &self.leaves)?;
        let mut slope: Option<UOp> = None;
        for (which, g) in gradients.iter().enumerate() {
            let along = self.direction(which, rng);
            let along = Tensor::from_slice(&along, [along.len()])?.uop();
            let part = g.mul(&along)?.reduce(ReduceOp::Add, 1)?;
            slope = Some(match slope {
                Some(before) => before.add(&part)?,
                None => part,
            });
        }
        Ok(slope.expect("there is a leaf"))
    }

    /// The slope of a scalar along a direction of one leaf, in all ways.
    fn compare(
        &self,
        scalar: &UOp,
        which: usize,
        along: &[f64],
        options: &GradcheckOptions,
        second: bool,
    ) -> Result<[Comparison; 2]> {
        let leaf = &self.leaves[which];
        let tangent = Tensor::from_slice(along, [along.len()])?.uop();
        let reverse = silent_gradient(scalar, std::slice::from_ref(leaf))?.swap_remove(0);
        let forward = jvp(scalar, std::slice::from_ref(leaf), &[tangent])?;
        let terms = self.value(&reverse, &self.values)?;
        let terms = terms.iter().zip(along).map(|(g, d)| g * d);
        let (reverse, size) =
            terms.fold((0.0, 0.0), |(sum, size), t: f64| (sum + t, size + t.abs()));
        let forward = self.value(&forward, &self.values)?[0];
        let here = self.value(scalar, &self.values)?[0];
        let wide = self.quotient(scalar, here, which, along, options.step)?;
        let narrow = self.quotient(scalar, here, which, along, options.step / 2.0)?;
        let allowed = options.tolerance * size.max(f64::MIN_POSITIVE) + narrow.rounding;
        let compared = |compared, found: f64, wanted: f64, allowed: f64, unclear: bool| {
            let error = (found - wanted).abs();
            let verdict = match () {
                () if error <= allowed => Verdict::Agree,
                () if unclear || !wanted.is_finite() => Verdict::Unclear,
                () => Verdict::Differ,
            };
            Comparison {
                argument: which,
                shape: leaf.shape().clone(),
                compared,
                found,
                wanted,
                error,
                allowed,
                verdict,
            }
        };
        let (by_quotient, by_reverse) = match second {
            false => (Compared::ReverseWithQuotient, Compared::ForwardWithReverse),
            true => (
                Compared::SecondWithQuotient,
                Compared::SecondForwardWithReverse,
            ),
        };
        // Where the function is smooth, half the step changes next to nothing.
        let change = (wide.slope - narrow.slope).abs();
        let jumps = change.is_nan() || change > 100.0 * allowed + wide.rounding;
        // There, too, the slopes on both sides differ by curvature times the step: half of it for
        // half the step. At a kink they stay apart.
        let bends = narrow.bend > 0.75 * wide.bend && narrow.bend > allowed + narrow.rounding;
        let unclear = jumps || bends;
        Ok([
            compared(by_quotient, reverse, narrow.slope, allowed, unclear),
            compared(
                by_reverse,
                forward,
                reverse,
                1e-9 * size.max(f64::MIN_POSITIVE),
                false,
            ),
        ])
    }

    /// The difference quotients along a direction, where the scalar is `here` at the point itself.
    fn quotient(
        &self,
        scalar: &UOp,
        here: f64,
        which: usize,
        along: &[f64],
        step: f64,
    ) -> Result<Quotient> {
        let at = |step: f64| {
            let mut values = self.values.clone();
            let moved = values[which].iter_mut().zip(along);
            moved.for_each(|(x, d)| *x += step * d);
            Ok::<f64, crate::error::Error>(self.value(scalar, &values)?[0])
        };
        let (above, below) = (at(step)?, at(-step)?);
        Ok(Quotient {
            slope: (above - below) / (2.0 * step),
            bend: ((above - here) / step - (here - below) / step).abs(),
            rounding: 64.0 * f64::EPSILON * (above.abs() + below.abs()) / step,
        })
    }
}

/// The slope of a scalar along a direction, by differences.
struct Quotient {
    /// By the values on both sides.
    slope: f64,
    /// How much the slopes on the two sides differ.
    bend: f64,
    /// What rounding may do to the slope.
    rounding: f64,
}

/// The error of difference quotients by step, in the dtypes that the function uses: for each step
/// the difference between the quotient along one random direction and the slope in f64, relative to
/// the slope. Large steps err by curvature, small ones by rounding; in between it is least.
///
/// # Errors
/// As [`gradcheck`], and when the function does not return one scalar.
pub fn error_by_step(
    f: &Function,
    args: &[Tensor],
    steps: &[f64],
    seed: u64,
) -> Result<Vec<(f64, f64)>> {
    let wide: Result<Vec<Tensor>> = args
        .iter()
        .map(|x| match x.dtype().is_float() {
            true => x.cast(DType::F64),
            false => Ok(x.clone()),
        })
        .collect();
    let mut rng = Generator::new(seed);
    let mut directions = Vec::new();
    for x in args {
        let draw = |_| between(&mut rng, -1.0, 1.0);
        let d: Vec<f64> = (0..x.numel()).map(draw).collect();
        directions.push(Tensor::from_slice(&d, x.shape())?);
    }
    let (_, slopes) = super::flat::jvp(f, &wide?, &directions)?;
    let [slope] = &slopes[..] else {
        return Err(gradient_error(
            "the function returns several results; return one scalar".into(),
        ));
    };
    let slope = slope.cast(DType::F64)?.item()?;
    let mut errors = Vec::with_capacity(steps.len());
    for &step in steps {
        let at = |step: f64| -> Result<f64> {
            let moved = args
                .iter()
                .zip(&directions)
                .map(|(x, d)| match x.dtype().is_float() {
                    true => x.add(&d.mul(step)?.cast(x.dtype())?),
                    false => Ok(x.clone()),
                });
            let moved = moved.collect::<Result<Vec<Tensor>>>()?;
            f(&moved)?[0].item()
        };
        let quotient = (at(step)? - at(-step)?) / (2.0 * step);
        errors.push((
            step,
            (quotient - slope).abs() / slope.abs().max(f64::MIN_POSITIVE),
        ));
    }
    Ok(errors)
}

/// [`error_by_step`] of a graph: its root, a scalar, as a function of these leaves at these values.
///
/// # Errors
/// As [`error_by_step`].
pub fn graph_error_by_step(
    root: &UOp,
    leaves: &[(UOp, Vec<f64>)],
    steps: &[f64],
    seed: u64,
) -> Result<Vec<(f64, f64)>> {
    let f = |args: &[Tensor]| {
        let pairs = leaves.iter().zip(args);
        let is_own = |((leaf, _), x): (&(UOp, Vec<f64>), &Tensor)| leaf.dtype() == x.dtype();
        let own = pairs.clone().all(is_own);
        let replace: FxHashMap<UOp, UOp> = pairs
            .map(|((leaf, _), x)| (leaf.clone(), x.uop()))
            .collect();
        let roots = std::slice::from_ref(root);
        let roots = match own {
            true => substitute(roots, &replace)?,
            false => widened(roots, &replace)?,
        };
        Ok(roots.into_iter().map(Tensor::from_uop).collect())
    };
    let args: Result<Vec<Tensor>> = leaves
        .iter()
        .map(|(leaf, at)| Tensor::from_slice(at, leaf.shape())?.cast(leaf.dtype()))
        .collect();
    error_by_step(&f, &args?, steps, seed)
}
