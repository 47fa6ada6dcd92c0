//! Narrowed indices: random gates over random index arithmetic, and random chains of movement,
//! give the bits that they gave before; what is only padded is read without a division.

mod support;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use support::arrays::same_runs;
use uopc::debug::{Schedule, Settings};
use uopc::ir::composite::{cat, flip, pad};
use uopc::ir::form::LoopGraph;
use uopc::ir::op::{Combine, Exec, Op, ParamMode, ReduceOp};
use uopc::ir::visit::toposort;
use uopc::ir::{DType, UOp, verify};
use uopc::pass::pipeline::lower;
use uopc::pass::schedule::narrow::narrow;
use uopc::pass::schedule::nest::Nest;
use uopc::pass::simplify::simplify_loops;

/// How many graphs are compared: 400, and 20,000 where UOPC_DEEP is set.
fn cases() -> u64 {
    if std::env::var_os("UOPC_DEEP").is_some() {
        20_000
    } else {
        400
    }
}

/// The launch with its indices narrowed and simplified, which must run as it did before.
fn narrowed(before: &LoopGraph, what: &str) -> LoopGraph {
    let mut nest = Nest::of(before);
    narrow(&mut nest).unwrap_or_else(|e| panic!("{what}: {e}"));
    let built = nest.build().unwrap_or_else(|e| panic!("{what}: {e}"));
    let after = simplify_loops(&built, &Settings::default()).expect("rules are right");
    if let Err(why) = same_runs(before, &after) {
        panic!("{what}: {why}\n{}----\n{}", before.to_uir(), after.to_uir());
    }
    after
}

/// How many divisions and remainders a launch computes.
fn divisions(loops: &LoopGraph) -> usize {
    let divides = |u: &&UOp| matches!(u.op(), Op::FloorDiv | Op::FloorMod);
    let nodes = toposort(std::slice::from_ref(loops.sink()));
    nodes.iter().filter(divides).count()
}

/// The loops of a graph, as the plain schedule runs them.
fn lowered(roots: Vec<UOp>) -> Vec<LoopGraph> {
    let settings = Settings {
        schedule: Schedule::Plain,
        ..Settings::default()
    };
    let graph = verify::shape_graph(roots).expect("a graph that was built");
    let lowered = lower(&graph, None, &settings).expect("it can be lowered");
    lowered.launches.into_iter().map(|l| l.loops).collect()
}

// ---- random gates ----

/// Draws index arithmetic over counters.
struct Arithmetic {
    random: SmallRng,
    counters: Vec<UOp>,
}

fn int(value: i64) -> UOp {
    UOp::int(value, DType::I32)
}

impl Arithmetic {
    fn below(&mut self, n: usize) -> usize {
        self.random.random_range(0..n)
    }

    /// A sum of counters, of which the quotient or the rest is taken now and then.
    fn number(&mut self) -> UOp {
        let mut sum = int(self.random.random_range(-9..30));
        for _ in 0..1 + self.below(2) {
            let k = self.below(self.counters.len());
            let counter = self.counters[k].clone();
            let factor = [1, 1, 1, 1, -1, 2, 5, 7, 8, 9][self.below(10)];
            sum = &sum + &(&counter * &int(factor));
        }
        for _ in 0..self.below(3) {
            let c = int([2, 3, 4, 8, 9, 16, 18][self.below(7)]);
            sum = match self.below(2) {
                0 => sum.floordiv(&c).unwrap(),
                _ => sum.floormod(&c).unwrap(),
            };
        }
        sum
    }

    /// A limit for a counter, as most gates have, or for any number.
    fn condition(&mut self) -> UOp {
        let k = self.below(self.counters.len());
        let (number, limit) = match self.below(3) {
            0 => (self.number(), self.random.random_range(-3..12)),
            _ => (self.counters[k].clone(), self.random.random_range(1..8)),
        };
        let limit = int(limit);
        let condition = match self.below(6) {
            0 => limit.cmplt(&number).unwrap(),
            1 => number.cmpne(&limit).unwrap(),
            _ => number.cmplt(&limit).unwrap(),
        };
        match self.below(2) {
            0 => condition.logical_not().unwrap(),
            _ => condition,
        }
    }

    fn conditions(&mut self) -> UOp {
        let mut all = self.condition();
        for _ in 0..self.below(4) {
            all = all.and(&self.condition()).unwrap();
        }
        all
    }

    /// A load under a gate, a number, or a choice between such.
    fn value(&mut self, depth: usize) -> UOp {
        match self.below(if depth > 0 { 4 } else { 3 }) {
            0 => self.number().cast(DType::F32).unwrap(),
            1 | 2 => {
                let memory = UOp::param(0, ParamMode::In, DType::F32, 17);
                let index = self.number().floormod(&int(17)).unwrap();
                memory.load(&index, Some(&self.conditions())).unwrap()
            }
            _ => {
                let (a, b) = (self.value(depth - 1), self.value(depth - 1));
                self.conditions().where_(&a, &b).unwrap()
            }
        }
    }
}

#[test]
fn random_gates_keep_every_bit() {
    let mut simpler = 0;
    for seed in 0..cases() {
        let mut draw = Arithmetic {
            random: SmallRng::seed_from_u64(seed),
            counters: Vec::new(),
        };
        let mut index = int(0);
        let mut n = 1;
        for id in 0..1 + draw.below(3) {
            let extent = 2 + draw.below(9);
            let counter = UOp::range(&int(extent as i64), id as u32, Exec::Serial).unwrap();
            index = &(&index * &int(extent as i64)) + &counter;
            n *= extent;
            draw.counters.push(counter);
        }
        let out = UOp::param(1, ParamMode::Out, DType::F32, n);
        let value = draw.value(3);
        let store = out.store(&index, &[value], Combine::Set, None).unwrap();
        let sink = UOp::sink(&[store.end(&draw.counters).unwrap()]);
        let loops = verify::loop_graph("random", sink).unwrap();
        let loops = simplify_loops(&loops, &Settings::default()).unwrap();
        let after = narrowed(&loops, &format!("seed {seed}"));
        simpler += usize::from(divisions(&after) < divisions(&loops));
    }
    let enough = cases() as usize / 16;
    assert!(simpler > enough, "only {simpler} became simpler");
}

// ---- random movement ----

/// Draws chains of movement.
struct Chain {
    random: SmallRng,
    slots: u32,
}

impl Chain {
    fn below(&mut self, n: usize) -> usize {
        self.random.random_range(0..n)
    }

    fn leaf(&mut self) -> UOp {
        let dims: Vec<usize> = (0..1 + self.below(3)).map(|_| 1 + self.below(6)).collect();
        self.slots += 1;
        let n = dims.iter().product();
        UOp::slot(self.slots - 1, DType::F32, n)
            .reshape(&dims)
            .unwrap()
    }

    fn pad(&mut self, x: &UOp) -> UOp {
        let ends: Vec<(usize, usize)> = (0..x.shape().rank())
            .map(|_| (self.below(4), self.below(4)))
            .collect();
        pad(x, &ends).unwrap()
    }

    fn shrink(&mut self, x: &UOp) -> UOp {
        let window: Vec<(usize, usize)> = (x.shape().to_vec().iter())
            .map(|&n| {
                let begin = self.below(n);
                (begin, begin + 1 + self.below(n - begin))
            })
            .collect();
        x.shrink(&window).unwrap()
    }

    fn permute(&mut self, x: &UOp) -> UOp {
        let mut order: Vec<usize> = (0..x.shape().rank()).collect();
        for k in (1..order.len()).rev() {
            let other = self.below(k + 1);
            order.swap(k, other);
        }
        x.permute(&order).unwrap()
    }

    /// Two neighbouring axes become one, or one becomes two.
    fn reshape(&mut self, x: &UOp) -> UOp {
        let mut dims = x.shape().to_vec();
        let k = self.below(dims.len());
        if k + 1 < dims.len() {
            let n = dims.remove(k + 1);
            dims[k] *= n;
        } else if let Some(d) = [2, 3, 5].into_iter().find(|d| dims[k].is_multiple_of(*d)) {
            dims[k] /= d;
            dims.insert(k, d);
        }
        x.reshape(&dims).unwrap()
    }

    /// Pads, windows, transposes, reverses and adds: what is read through them is one element of
    /// each source, or none.
    fn padded(&mut self) -> UOp {
        let mut x = self.leaf();
        for _ in 0..1 + self.below(5) {
            x = match self.below(7) {
                0..=2 => self.pad(&x),
                3 => self.shrink(&x),
                4 => self.permute(&x),
                5 => {
                    let axis = self.below(x.shape().rank());
                    flip(&x, &[axis]).unwrap()
                }
                _ => {
                    let n = x.shape().numel();
                    self.slots += 1;
                    let other = UOp::slot(self.slots - 1, DType::F32, n);
                    &x + &other.reshape(x.shape()).unwrap()
                }
            };
        }
        x
    }

    /// Anything: reshapes, concatenations and sums as well.
    fn any(&mut self) -> UOp {
        let mut x = self.padded();
        for _ in 0..1 + self.below(4) {
            let axis = self.below(x.shape().rank());
            x = match self.below(6) {
                0 | 1 => self.reshape(&x),
                2 => self.pad(&x),
                3 => cat(&[x.clone(), self.shrink_one(&x, axis)], axis).unwrap(),
                4 => self.shrink(&x),
                _ => x
                    .reduce(ReduceOp::Add, 1)
                    .unwrap()
                    .reshape(&[x.shape()[..x.shape().rank() - 1].iter().product()])
                    .unwrap(),
            };
        }
        x
    }

    fn shrink_one(&mut self, x: &UOp, axis: usize) -> UOp {
        let mut window: Vec<(usize, usize)> = x.shape().iter().map(|&n| (0, n)).collect();
        window[axis].1 = 1 + self.below(window[axis].1);
        x.shrink(&window).unwrap()
    }
}

#[test]
fn random_movement_keeps_every_bit() {
    for seed in 0..cases() {
        let mut chain = Chain {
            random: SmallRng::seed_from_u64(seed),
            slots: 0,
        };
        let root = chain.any();
        if root.shape().numel() > 4000 {
            continue;
        }
        for loops in lowered(vec![root]) {
            let after = narrowed(&loops, &format!("seed {seed}"));
            let (a, b) = (divisions(&loops), divisions(&after));
            assert!(
                b <= a,
                "seed {seed}: {a} divisions became {b}\n{}",
                loops.to_uir()
            );
        }
    }
}

#[test]
fn padded_values_are_read_without_division() {
    let mut divided = 0;
    for seed in 0..cases() {
        let mut chain = Chain {
            random: SmallRng::seed_from_u64(seed),
            slots: 0,
        };
        let root = chain.padded();
        for loops in lowered(vec![root]) {
            divided += usize::from(divisions(&loops) > 0);
            let after = narrowed(&loops, &format!("seed {seed}"));
            let left = divisions(&after);
            assert_eq!(
                left,
                0,
                "seed {seed}\n{}----\n{}",
                loops.to_uir(),
                after.to_uir()
            );
        }
    }
    let enough = cases() as usize / 4;
    assert!(divided > enough, "only {divided} launches held a division");
}
