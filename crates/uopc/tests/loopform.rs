//! The worked nests of the loop form, written by hand under `golden/loopform`, give the same as a
//! shape graph that is written here and shares nothing with them: to the last bit, except where a
//! test says otherwise.

#[path = "support/engines.rs"]
mod engines;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use engines::{Slots, c_device_in, interpret, run_compiled};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::Result;
use uopc::interp::{Array, Checks, graph};
use uopc::ir::composite::pad;
use uopc::ir::form::{LoopGraph, Program, params};
use uopc::ir::op::{BufferId, Fold, Op, ParamMode, ReduceOp};
use uopc::ir::{DType, Scalar, UOp, parse, verify};
use uopc::pass::linearize::linearize;
use uopc::runtime::{Code, Device, Executable};

use DType::F32;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/loopform")
}

fn read(name: &str) -> (LoopGraph, String) {
    let path = folder().join(format!("{name}.uir"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let parsed = parse::parse(&text, name).unwrap_or_else(|e| panic!("{e}"));
    let kernel = parsed.name.clone().expect("the file names its kernel");
    assert_eq!(&*kernel, name, "the kernel is called like its file");
    let loops =
        verify::loop_graph(kernel, parsed.roots[0].clone()).unwrap_or_else(|e| panic!("{e}"));
    (loops, text)
}

/// The names of all files, in order.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the folder of the golden files");
    let mut names: Vec<String> = entries
        .map(|entry| {
            let path = entry.expect("an entry of the folder").path();
            path.file_stem()
                .and_then(|s| s.to_str())
                .expect("a name")
                .to_string()
        })
        .collect();
    names.sort();
    names
}

/// All nests as C for teams of one, two and three threads, compiled together.
#[expect(clippy::type_complexity, reason = "named once")]
static COMPILED: LazyLock<(Vec<String>, Vec<(&'static str, Box<dyn Executable>)>)> =
    LazyLock::new(|| {
        let names = names();
        let nests: Vec<LoopGraph> = names.iter().map(|name| read(name).0).collect();
        let linear = |nest| linearize(nest).unwrap_or_else(|e| panic!("{e}"));
        let programs: Vec<Program> = nests.iter().map(linear).collect();
        let codes: Vec<Code> = (nests.iter().zip(&programs))
            .map(|(loops, program)| Code { loops, program })
            .collect();
        let teams = [("C", 1), ("C, two threads", 2), ("C, three threads", 3)];
        let folder = tempfile::TempDir::new().expect("a folder");
        let compiled = teams.map(|(name, threads)| {
            let code = c_device_in(folder.path())
                .with_threads(threads)
                .compile(&codes);
            (name, code.unwrap_or_else(|e| panic!("{e}")))
        });
        (names, compiled.into())
    });

/// Every engine there is, by name, with what the nest wrote.
fn run_everywhere(loops: &LoopGraph, given: &Slots) -> Vec<(&'static str, Slots)> {
    let interpreted = |checks| {
        interpret(loops, given, checks).unwrap_or_else(|e| panic!("{}: {e}", loops.name()))
    };
    let (names, code) = &*COMPILED;
    let k = names
        .iter()
        .position(|name| **name == **loops.name())
        .expect("a file of the folder");
    let mut all = vec![
        ("loop interpreter, all checks", interpreted(Checks::All)),
        (
            "loop interpreter, bounds checks",
            interpreted(Checks::Bounds),
        ),
    ];
    for (name, code) in code {
        all.push((name, run_compiled(&**code, k, loops, given)));
    }
    all
}

/// Random contents for every parameter that is read at entry.
fn random_inputs(loops: &LoopGraph, seed: u64) -> Slots {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut slots = Slots::new();
    for (slot, mode, dtype, n) in params(loops.sink()) {
        if mode != ParamMode::Out {
            let values: Vec<f64> = (0..n).map(|_| rng.random_range(-2.0..2.0)).collect();
            slots.insert(
                slot,
                Array::from_f64(dtype, &[n], &values).expect("n elements"),
            );
        }
    }
    slots
}

/// What the graph interpreter gives for the expected values, which read slots.
fn expected(roots: &[(u32, UOp)], given: &Slots) -> Slots {
    let bind = |u: &UOp| match u.op() {
        Op::Buffer {
            id: BufferId::Slot(slot),
            ..
        } => given.get(slot).cloned(),
        _ => None,
    };
    let nodes: Vec<UOp> = roots.iter().map(|(_, u)| u.clone()).collect();
    let values = graph::eval(&nodes, &bind).unwrap_or_else(|e| panic!("{e}"));
    let flat = |a: Array| {
        let n = a.len();
        a.reshaped(&[n]).expect("n elements")
    };
    roots
        .iter()
        .map(|(slot, _)| *slot)
        .zip(values.into_iter().map(flat))
        .collect()
}

/// Runs a file on random inputs, changed by `adjust`, against the graphs of its outputs.
fn check(name: &str, adjust: fn(&mut Slots), outputs: Result<Vec<(u32, UOp)>>) {
    let outputs = outputs.unwrap_or_else(|e| panic!("{name}: {e}"));
    let (loops, _) = read(name);
    for seed in 0..3 {
        let mut given = random_inputs(&loops, seed);
        adjust(&mut given);
        let want = expected(&outputs, &given);
        for (engine, got) in run_everywhere(&loops, &given) {
            assert_eq!(
                got.len(),
                want.len(),
                "{name}: the outputs of the file and of the test"
            );
            for (slot, want) in &want {
                if let Some(difference) = want.difference(&got[slot]) {
                    panic!("{name}, slot {slot}, {engine}: expected first: {difference}");
                }
            }
        }
    }
}

fn unchanged(_: &mut Slots) {}

// ---- building the expected values ----

fn slot(slot: u32, shape: &[usize]) -> Result<UOp> {
    UOp::slot(slot, F32, shape.iter().product()).reshape(shape)
}

/// A tensor with an axis of extent 1 put in at `axis` and repeated `n` times.
fn repeat(x: &UOp, axis: usize, n: usize) -> Result<UOp> {
    let mut shape = x.shape().to_vec();
    shape.insert(axis, 1);
    let x = x.reshape(&shape)?;
    shape[axis] = n;
    x.expand(&shape)
}

/// The reduction of the last axis, repeated along it.
fn along_rows(x: &UOp, op: ReduceOp) -> Result<UOp> {
    let n = x.shape()[x.shape().rank() - 1];
    repeat(&x.reduce(op, 1)?, x.shape().rank() - 1, n)
}

/// The f32 constant in a tensor's shape.
fn constant(x: &UOp, value: f32) -> Result<UOp> {
    UOp::full(Scalar::f32(value), x.shape())
}

/// `a (.., m, k) @ b (.., n, k)`, the sum a chain.
fn product(a: &UOp, b: &UOp) -> Result<UOp> {
    let rank = a.shape().rank();
    let (m, n) = (a.shape()[rank - 2], b.shape()[rank - 2]);
    let terms = repeat(a, rank - 1, n)?.mul(&repeat(b, rank - 2, m)?)?;
    let sum = terms.reduce(ReduceOp::Add, 1)?;
    assert!(
        matches!(
            sum.op(),
            Op::Reduce {
                fold: Fold::Chain,
                ..
            }
        ),
        "a product is a chain"
    );
    Ok(sum)
}

/// The last two axes swapped.
fn transpose(x: &UOp) -> Result<UOp> {
    let mut order: Vec<usize> = (0..x.shape().rank()).collect();
    let n = order.len();
    order.swap(n - 2, n - 1);
    x.permute(&order)
}

fn softmax(x: &UOp) -> Result<UOp> {
    let e = x.sub(&along_rows(x, ReduceOp::Max)?)?.exp()?;
    e.div(&along_rows(&e, ReduceOp::Add)?)
}

// ---- the nests ----

#[test]
fn softmax_plain() {
    check(
        "softmax_plain",
        unchanged,
        slot(0, &[5, 37]).and_then(|x| Ok(vec![(1, softmax(&x)?)])),
    );
}

#[test]
fn softmax_vectorised() {
    check(
        "softmax_vectorised",
        unchanged,
        slot(0, &[5, 37]).and_then(|x| Ok(vec![(1, softmax(&x)?)])),
    );
}

#[test]
fn layer_norm_backward() {
    fn outputs() -> Result<Vec<(u32, UOp)>> {
        let (g, x) = (slot(0, &[37, 19])?, slot(1, &[37, 19])?);
        let (mean, rstd) = (slot(2, &[37])?, slot(3, &[37])?);
        let (mean, rstd) = (repeat(&mean, 1, 19)?, repeat(&rstd, 1, 19)?);
        let xhat = x.sub(&mean)?.mul(&rstd)?;
        let h = g.mul(&repeat(&slot(4, &[19])?, 0, 37)?)?;
        let average = |u: &UOp| along_rows(u, ReduceOp::Add)?.div(&constant(u, 19.0)?);
        let centred = h.sub(&average(&h)?)?;
        let dx = centred
            .sub(&xhat.mul(&average(&h.mul(&xhat)?)?)?)?
            .mul(&rstd)?;
        let dw = transpose(&g.mul(&xhat)?)?.reduce(ReduceOp::Add, 1)?;
        let db = transpose(&g)?.reduce(ReduceOp::Add, 1)?;
        Ok(vec![(5, dx), (6, dw), (7, db)])
    }
    check("layer_norm_backward", unchanged, outputs());
}

#[test]
fn matrix_product() {
    fn outputs() -> Result<Vec<(u32, UOp)>> {
        let c = product(&slot(0, &[10, 19])?, &transpose(&slot(1, &[19, 21])?)?)?;
        Ok(vec![(2, c)])
    }
    check("matrix_product", unchanged, outputs());
}

#[test]
fn matrix_product_epilogue() {
    fn outputs() -> Result<Vec<(u32, UOp)>> {
        let a = UOp::slot(0, DType::F16, 21 * 11)
            .reshape(&[21, 11])?
            .permute(&[1, 0])?
            .cast(F32)?;
        let (b, h) = (slot(1, &[21, 9])?, slot(2, &[21, 9])?);
        let zero = constant(&b, 0.0)?;
        let masked = zero.cmplt(&h)?.where_(&b, &zero)?;
        let z = product(&a, &transpose(&masked)?)?.add(&repeat(&slot(3, &[9])?, 0, 11)?)?;
        let zero = constant(&z, 0.0)?;
        Ok(vec![(4, zero.cmplt(&z)?.where_(&z, &zero)?)])
    }
    check("matrix_product_epilogue", unchanged, outputs());
}

/// A convolution 3 x 3 with padding 1: pixels by output channels. `x` is slot 0, weights slot 1.
fn convolution(channels: usize, h: usize, w: usize, out: usize) -> Result<UOp> {
    let padded = pad(&slot(0, &[channels, h, w])?, &[(0, 0), (1, 1), (1, 1)])?;
    let windows = (0..9).map(|k| {
        let (kh, kw) = (k / 3, k % 3);
        padded.shrink(&[(0, channels), (kh, kh + h), (kw, kw + w)])
    });
    let windows = UOp::stack(&windows.collect::<Result<Vec<_>>>()?)?;
    let pixels = windows
        .permute(&[2, 3, 1, 0])?
        .reshape(&[h * w, channels * 9])?;
    product(&pixels, &slot(1, &[out, channels * 9])?)
}

#[test]
fn convolution_im2col() {
    check(
        "convolution_im2col",
        unchanged,
        convolution(3, 7, 6, 5).map(|y| vec![(2, y)]),
    );
}

#[test]
fn convolution_small_map() {
    let outputs = convolution(3, 5, 7, 6).and_then(|y| Ok(vec![(2, transpose(&y)?)]));
    check("convolution_small_map", unchanged, outputs);
}

const HEADS: usize = 2;
const POSITIONS: usize = 11;
const WIDTH: usize = 5;
const SCALE: f32 = 0.4472136;

/// Scaled scores of queries (slot 0) and keys (slot 1), and where a query sees a key.
fn scores() -> Result<(UOp, UOp)> {
    let shape = [HEADS, POSITIONS, WIDTH];
    let scores = product(&slot(0, &shape)?, &slot(1, &shape)?)?;
    let scores = scores.mul(&constant(&scores, SCALE)?)?;
    let place = UOp::iota(POSITIONS, DType::I32)?;
    let (query, key) = (repeat(&place, 1, POSITIONS)?, repeat(&place, 0, POSITIONS)?);
    let seen = query.cmplt(&key)?.logical_not()?;
    Ok((scores, repeat(&seen, 0, HEADS)?))
}

#[test]
fn attention_forward() {
    fn outputs() -> Result<Vec<(u32, UOp)>> {
        let (scores, seen) = scores()?;
        let scores = seen.where_(&scores, &constant(&scores, f32::NEG_INFINITY)?)?;
        let top = scores.reduce(ReduceOp::Max, 1)?;
        let p = scores.sub(&repeat(&top, 2, POSITIONS)?)?.exp()?;
        let sum = p.reduce(ReduceOp::Add, 1)?;
        let v = slot(2, &[HEADS, POSITIONS, WIDTH])?;
        let out = product(&p, &transpose(&v)?)?.div(&repeat(&sum, 2, WIDTH)?)?;
        let log2 = sum.log2()?;
        let lse = top.add(&log2.mul(&constant(&log2, std::f32::consts::LN_2)?)?)?;
        Ok(vec![(3, out), (4, lse)])
    }
    let outputs = outputs().expect("the graph is well typed");
    let (loops, _) = read("attention_forward");
    for seed in 0..3 {
        let given = random_inputs(&loops, seed);
        let want = expected(&outputs, &given);
        let engines = run_everywhere(&loops, &given);
        for (engine, got) in &engines {
            // The online form sums in another order and rescales up to four times, each step
            // within half a unit in the last place; the values are below 4.
            for (slot, want) in &want {
                let pairs = want.to_f64().into_iter().zip(got[slot].to_f64());
                for (i, (want, got)) in pairs.enumerate() {
                    let close = (want - got).abs() <= 2e-6;
                    assert!(
                        close,
                        "slot {slot}, element {i}, {engine}: {want} against {got}"
                    );
                }
            }
        }
        // The engines run the same statements, so among them there is no tolerance.
        for (engine, got) in &engines[1..] {
            assert_eq!(got, &engines[0].1, "{engine} differs from {}", engines[0].0);
        }
    }
}

/// Where the nests of the backward pass get P, dS and the cotangent from.
fn backward_parts() -> Result<(UOp, UOp, UOp)> {
    let shape = [HEADS, POSITIONS, WIDTH];
    let (g, out, lse) = (slot(3, &shape)?, slot(4, &shape)?, slot(5, &shape[..2])?);
    let (scores, seen) = scores()?;
    let p = scores.sub(&repeat(&lse, 2, POSITIONS)?)?.exp()?;
    let p = seen.where_(&p, &constant(&p, 0.0)?)?;
    let d = g.mul(&out)?.reduce(ReduceOp::Add, 1)?;
    let dp = product(&g, &slot(2, &shape)?)?;
    let ds = p.mul(&dp.sub(&repeat(&d, 2, POSITIONS)?)?)?;
    Ok((p, ds, g))
}

#[test]
fn attention_backward_dkdv() {
    fn outputs() -> Result<Vec<(u32, UOp)>> {
        let (p, ds, g) = backward_parts()?;
        let q = slot(0, &[HEADS, POSITIONS, WIDTH])?;
        let dk = product(&transpose(&ds)?, &transpose(&q)?)?;
        let dk = dk.mul(&constant(&dk, SCALE)?)?;
        let dv = product(&transpose(&p)?, &transpose(&g)?)?;
        Ok(vec![(6, dk), (7, dv)])
    }
    check("attention_backward_dkdv", unchanged, outputs());
}

#[test]
fn attention_backward_dq() {
    fn outputs() -> Result<Vec<(u32, UOp)>> {
        let (_, ds, _) = backward_parts()?;
        let k = slot(1, &[HEADS, POSITIONS, WIDTH])?;
        let dq = product(&ds, &transpose(&k)?)?;
        Ok(vec![(6, dq.mul(&constant(&dq, SCALE)?)?)])
    }
    check("attention_backward_dq", unchanged, outputs());
}

#[test]
fn optimiser() {
    /// The new values of p, m, v, whose slots follow that of the gradient.
    fn step(gradient: u32, n: usize) -> Result<Vec<(u32, UOp)>> {
        let at = |k| slot(gradient + k, &[n]);
        let (g, p, m, v) = (at(0)?, at(1)?, at(2)?, at(3)?);
        let rate = |k: usize| slot(0, &[3])?.shrink(&[(k, k + 1)])?.expand(&[n]);
        let times = |u: &UOp, by: f32| u.mul(&constant(u, by)?);
        let m = times(&m, 0.9)?.add(&times(&g, 0.1)?)?;
        let v = times(&v, 0.999)?.add(&times(&g.mul(&g)?, 0.001)?)?;
        let root = v.div(&rate(2)?)?.sqrt()?;
        let update = m.div(&rate(1)?)?.div(&root.add(&constant(&root, 1e-8)?)?)?;
        let p = p.sub(&update.add(&times(&p, 0.01)?)?.mul(&rate(0)?)?)?;
        Ok(vec![
            (gradient + 1, p),
            (gradient + 2, m),
            (gradient + 3, v),
        ])
    }
    fn adjust(given: &mut Slots) {
        let rates = Array::from_f64(F32, &[3], &[0.01, 0.271, 0.002997]).expect("three numbers");
        given.insert(0, rates);
        // A second moment is an average of squares.
        for slot in [4, 8] {
            let squares: Vec<f64> = given[&slot].to_f64().iter().map(|v| v * v).collect();
            let n = squares.len();
            given.insert(
                slot,
                Array::from_f64(F32, &[n], &squares).expect("n numbers"),
            );
        }
    }
    let outputs = step(1, 21).and_then(|mut all| {
        all.extend(step(5, 6)?);
        Ok(all)
    });
    check("optimiser", adjust, outputs);
}

/// Runs a file on the numbers that stand in it: `; slot 0 = [...]` is given, `; slot 2 == [...]`
/// expected.
fn check_written(name: &str) {
    let (loops, text) = read(name);
    let (mut given, mut want) = (Slots::new(), Slots::new());
    let dtypes: BTreeMap<u32, DType> = params(loops.sink())
        .into_iter()
        .map(|(slot, _, dtype, _)| (slot, dtype))
        .collect();
    for line in text.lines().filter_map(|line| line.strip_prefix("; slot ")) {
        let (slot, rest) = line.split_once(' ').expect("a slot, a sign and a list");
        let (sign, list) = rest.split_once(" [").expect("a list in brackets");
        let slot: u32 = slot.parse().expect("a slot's number");
        let numbers = list.trim_end_matches(']').split(", ");
        let scalars: Vec<Scalar> = numbers
            .map(|n| Scalar::parse(n).unwrap_or_else(|| panic!("{name}: {n}")))
            .collect();
        let array = Array::from_scalars(dtypes[&slot], &[scalars.len()], &scalars);
        let array = array.unwrap_or_else(|e| panic!("{name}: {e}"));
        match sign {
            "=" => given.insert(slot, array),
            "==" => want.insert(slot, array),
            _ => panic!("{name}: unknown sign {sign}"),
        };
    }
    assert!(
        !want.is_empty(),
        "{name}: no values are written in the file"
    );
    for (engine, got) in run_everywhere(&loops, &given) {
        assert_eq!(got, want, "{name}, {engine}");
    }
}

#[test]
fn scatter_add_columns() {
    check_written("scatter_add_columns");
}

#[test]
fn scatter_add_rows() {
    check_written("scatter_add_rows");
}

#[test]
fn scan() {
    check_written("scan");
}

/// Each file is tested by the function of its name.
#[test]
fn every_file_has_a_test() {
    let tests = include_str!("loopform.rs");
    for name in names() {
        assert!(
            tests.contains(&format!("#[test]\nfn {name}()")),
            "{name} has no test"
        );
    }
    assert!(names().len() >= 14, "the folder lost files");
}
