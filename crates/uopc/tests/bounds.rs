//! Bounds hold every value: random integer expressions are evaluated and compared with them.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustc_hash::FxHashMap;

use uopc::ir::bounds::{Bounds, Interval};
use uopc::ir::op::{Exec, Fold, ReduceOp};
use uopc::ir::scalar::apply;
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Op, Scalar, UOp};

fn op(op: Op, src: &[UOp]) -> UOp {
    UOp::new(op, src).unwrap()
}

fn of(u: &UOp) -> (i128, i128) {
    let Interval { lo, hi } = Bounds::new().of(u);
    (lo, hi)
}

/// An expression over ranges, constants and memory (buffers of extent 1).
struct Expressions {
    random: SmallRng,
    dtype: DType,
}

impl Expressions {
    fn leaf(&mut self) -> UOp {
        let (lo, hi) = self.dtype.int_range().unwrap();
        match self.random.random_range(0..5) {
            0 => UOp::constant(Scalar::from_i128(
                self.dtype,
                self.random.random_range(-9..10),
            )),
            1 => UOp::constant(Scalar::from_i128(
                self.dtype,
                if self.random.random() { lo } else { hi },
            )),
            2 => {
                let n = self.random.random_range(1..12);
                let range = UOp::range(&UOp::int(n, DType::I32), n as u32, Exec::Serial).unwrap();
                range.cast(self.dtype).unwrap()
            }
            _ => {
                let slot = self.random.random_range(0..2);
                UOp::slot(slot, self.dtype, 1).reshape(&[]).unwrap()
            }
        }
    }

    fn grow(&mut self, steps: usize) -> UOp {
        let mut pool = vec![self.leaf(), self.leaf(), self.leaf()];
        let ops = [
            Op::Add,
            Op::Mul,
            Op::Max,
            Op::FloorDiv,
            Op::FloorMod,
            Op::And,
            Op::Or,
            Op::Xor,
            Op::Shl,
            Op::Shr,
        ];
        for _ in 0..steps {
            let mut pick = |pool: &[UOp]| {
                if self.random.random_bool(0.3) {
                    return self.leaf();
                }
                pool[self.random.random_range(0..pool.len())].clone()
            };
            let (a, b, c) = (pick(&pool), pick(&pool), pick(&pool));
            let next = match self.random.random_range(0..13) {
                10 => op(Op::CmpLt, &[a.clone(), b]).where_(&a, &c).unwrap(),
                11 => op(Op::CmpNe, &[a, b]).where_(&c.clone(), &c).unwrap(),
                12 => {
                    let mid = DType::ALL[self.random.random_range(0..9)];
                    a.cast(mid).unwrap().cast(self.dtype).unwrap()
                }
                k => op(ops[k].clone(), &[a, b]),
            };
            pool.push(next);
        }
        pool.pop().unwrap()
    }
}

fn evaluate(u: &UOp, memory: &[Scalar; 2], counter: i128) -> Vec<(UOp, Scalar)> {
    let mut values: FxHashMap<UOp, Scalar> = FxHashMap::default();
    let nodes = toposort(std::slice::from_ref(u));
    for node in &nodes {
        let value = match node.op() {
            Op::Const(value) => *value,
            Op::Range { id, .. } => Scalar::from_i128(node.dtype(), counter % *id as i128),
            Op::Buffer {
                id: uopc::ir::op::BufferId::Slot(slot),
                ..
            } => memory[*slot as usize],
            Op::Reshape(_) => values[&node.src()[0]],
            which => {
                let args: Vec<Scalar> = node.src().iter().map(|s| values[s]).collect();
                apply(which, node.dtype(), &args)
            }
        };
        values.insert(node.clone(), value);
    }
    nodes
        .into_iter()
        .map(|node| (node.clone(), values[&node]))
        .collect()
}

#[test]
fn every_value_lies_in_its_bounds() {
    let dtypes = &DType::ALL[1..9];
    let mut expressions = Expressions {
        random: SmallRng::seed_from_u64(3),
        dtype: DType::I8,
    };
    let mut narrow = 0;
    for k in 0..3000 {
        let dtype = dtypes[k % dtypes.len()];
        expressions.dtype = dtype;
        let root = expressions.grow(6);
        let mut bounds = Bounds::new();
        let whole = Interval::whole(dtype);
        narrow += (bounds.of(&root) != whole) as usize;
        let (lo, hi) = dtype.int_range().unwrap();
        for counter in 0..12 {
            let mut number = || match expressions.random.random_range(0..4) {
                0 => lo + expressions.random.random_range(0..3),
                1 => hi - expressions.random.random_range(0..3),
                _ => expressions.random.random_range(-20..20),
            };
            let memory = [number(), number()].map(|v| Scalar::from_i128(dtype, v));
            for (u, value) in evaluate(&root, &memory, counter) {
                let Interval { lo, hi } = bounds.of(&u);
                let value = value.as_i128();
                assert!(
                    lo <= value && value <= hi,
                    "{value} is not in {lo}..={hi}\n{}",
                    u.to_uir()
                );
            }
        }
    }
    assert!(
        narrow > 500,
        "only {narrow} of 3000 have bounds of their own"
    );
}

#[test]
fn bounds_of_index_arithmetic_are_exact() {
    let int = |v| UOp::int(v, DType::I32);
    let range = |n, id| UOp::range(&int(n), id, Exec::Serial).unwrap();
    let (i, j) = (range(5, 0), range(4, 1));
    let f = &(&i * &int(4)) + &j;
    assert_eq!(of(&f), (0, 19));
    assert_eq!(of(&f.floordiv(&int(4)).unwrap()), (0, 4));
    assert_eq!(of(&f.floormod(&int(4)).unwrap()), (0, 3));
    assert_eq!(of(&(&int(4) - &i)), (0, 4));
    assert_eq!(of(&(&i - &int(7)).floormod(&int(7)).unwrap()), (0, 4));
    assert_eq!(of(&i.cmplt(&int(5)).unwrap()), (1, 1));
    assert_eq!(of(&i.cmplt(&int(0)).unwrap()), (0, 0));
    // A loop whose extent depends on an outer counter.
    let inner = UOp::range(&(&i + &int(1)), 2, Exec::Serial).unwrap();
    assert_eq!(of(&inner), (0, 4));
}

#[test]
fn what_may_wrap_has_the_whole_range() {
    let x = UOp::slot(0, DType::I8, 4);
    let seven = UOp::full(Scalar::from_i128(DType::I8, 7), x.shape()).unwrap();
    let small = x.floormod(&seven).unwrap();
    assert_eq!(of(&(&small * &small)), (0, 36));
    assert_eq!(of(&(&(&small * &small) * &small)), (-128, 127));
    assert_eq!(of(&(&x + &seven)), (-128, 127));
    // The least over -1 wraps to the least.
    assert_eq!(
        of(&x.floordiv(&x.full_like(-1.0).unwrap()).unwrap()),
        (-128, 127)
    );
}

#[test]
fn bounds_pass_through_shapes() {
    let iota = UOp::iota(6, DType::I64).unwrap();
    assert_eq!(of(&iota), (0, 5));
    let matrix = iota.reshape(&[2, 3]).unwrap();
    assert_eq!(of(&matrix.permute(&[1, 0]).unwrap()), (0, 5));
    assert_eq!(
        of(&matrix.reduce_as(ReduceOp::Add, 2, Fold::Lanes).unwrap()),
        (0, 30)
    );
    assert_eq!(
        of(&matrix.reduce_as(ReduceOp::Max, 1, Fold::Lanes).unwrap()),
        (0, 5)
    );
    let seven = UOp::full(Scalar::from_i128(DType::I64, 7), &[6].as_slice().into()).unwrap();
    assert_eq!(
        of(&UOp::stack(&[iota.clone(), seven.clone()]).unwrap()),
        (0, 7)
    );
    // Out of range reads 0.
    assert_eq!(of(&seven.index(&[iota]).unwrap()), (0, 7));
    assert_eq!(of(&UOp::slot(0, DType::Bool, 3)), (0, 1));
}
