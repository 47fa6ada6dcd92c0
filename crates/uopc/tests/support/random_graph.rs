//! Small random shape graphs for differential tests: all dtypes, all ops, awkward sizes and
//! values.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uopc::Result;
use uopc::interp::Array;
use uopc::ir::composite::{cat, flip, pad};
use uopc::ir::op::{Op, ReduceOp, StageKind};
use uopc::ir::visit::Graph;
use uopc::ir::{DType, Scalar, Shape, UOp};

use crate::case::Case;

/// Elements that a value may have, but for the rare long axis.
const LARGEST: usize = 400;

/// The graph of a seed, always the same.
pub fn generate(seed: u64) -> Case {
    let mut g = Generator {
        rng: SmallRng::seed_from_u64(seed ^ 0x005e_ed0f_9aff),
        pool: Vec::new(),
        slots: Vec::new(),
    };
    for _ in 0..g.rng.random_range(1..4) {
        let (dtype, shape) = (g.dtype(), g.shape());
        g.leaf(dtype, &shape);
    }
    let steps = g.rng.random_range(2..28);
    for _ in 0..steps {
        // A choice that does not fit what is there is skipped.
        if let Ok(Some(node)) = g.step()
            && node.shape().numel() <= LARGEST.max(g.pool[0].shape().numel())
        {
            g.pool.push(node);
        }
    }
    // Roots are what nothing reads, most of it, and now and then what something reads as well.
    let mut roots: Vec<UOp> = Vec::new();
    for u in unread(&g.pool) {
        if g.chance(70) {
            roots.push(u);
        }
    }
    if roots.is_empty() || g.chance(25) {
        let root = g.any();
        roots.push(root);
    }
    Case {
        seed,
        roots,
        slots: g.slots,
    }
}

/// The nodes that no other reads.
fn unread(pool: &[UOp]) -> Vec<UOp> {
    let graph = Graph::new(pool);
    let uses = graph.uses();
    let mut roots = graph.roots.clone();
    roots.dedup();
    // A root counts as read once for each time it is in the pool.
    let times = |r: u32| graph.roots.iter().filter(|&&other| other == r).count() as u32;
    roots.retain(|&r| uses[r as usize] == times(r));
    roots.sort_unstable();
    roots.dedup();
    roots
        .iter()
        .map(|&r| graph.nodes[r as usize].clone())
        .collect()
}

struct Generator {
    rng: SmallRng,
    pool: Vec<UOp>,
    slots: Vec<Array>,
}

impl Generator {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())].clone()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Floats are half of all dtypes, f32 the commonest.
    fn dtype(&mut self) -> DType {
        if self.chance(50) {
            self.float()
        } else {
            self.pick(&DType::ALL)
        }
    }

    fn float(&mut self) -> DType {
        use DType::{BF16, F16, F32, F64};
        self.pick(&[F32, F32, F32, F64, F16, BF16])
    }

    fn int(&mut self) -> DType {
        let ints: Vec<DType> = DType::ALL.into_iter().filter(|d| d.is_int()).collect();
        self.pick(&ints)
    }

    fn extent(&mut self) -> usize {
        self.pick(&[0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 16, 17, 33])
    }

    fn shape(&mut self) -> Vec<usize> {
        if self.chance(2) {
            return vec![self.pick(&[4095, 4096, 4097, 8193, 12_289])];
        }
        let rank = self.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
        let mut shape: Vec<usize> = (0..rank).map(|_| self.extent()).collect();
        // Empty tensors are part of it, but most should hold something.
        if self.chance(80) {
            shape.iter_mut().for_each(|d| *d = (*d).max(1));
        }
        while shape.iter().product::<usize>() > LARGEST {
            let k = self.rng.random_range(0..shape.len());
            shape[k] = shape[k].min(2);
        }
        shape
    }

    /// A value of a dtype: small, special or any bits.
    fn scalar(&mut self, dtype: DType) -> Scalar {
        let kind = self.rng.random_range(0..10);
        if dtype.is_float() {
            let special = [
                0.0,
                -0.0,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                1.0,
                -1.0,
                f64::MAX,
                f64::MIN_POSITIVE,
                1e-42,
                65_504.0,
                2_147_483_648.0,
                -0.5,
            ];
            return match kind {
                0..6 => Scalar::from_f64(dtype, self.rng.random_range(-4.0..4.0)),
                6 => Scalar::from_f64(dtype, self.rng.random_range(-300..300) as f64),
                7 => Scalar::from_bits(dtype, self.rng.random()),
                _ => Scalar::from_f64(dtype, self.pick(&special)),
            };
        }
        let (least, greatest) = dtype.int_range().expect("an integer or bool");
        match kind {
            0..7 => Scalar::from_i128(dtype, self.rng.random_range(-5..9)),
            7 => Scalar::from_bits(dtype, self.rng.random()),
            8 => Scalar::from_i128(dtype, self.pick(&[least, least + 1])),
            _ => Scalar::from_i128(dtype, self.pick(&[greatest, greatest - 1, 0])),
        }
    }

    /// A new slot of that shape.
    fn leaf(&mut self, dtype: DType, shape: &[usize]) -> UOp {
        let n = shape.iter().product();
        // Now and then all elements are tame, so that sums keep their digits.
        let tame = self.chance(40);
        let mut value = |_| match tame && dtype.is_float() {
            true => Scalar::from_f64(dtype, self.rng.random_range(-2.0..2.0)),
            false => self.scalar(dtype),
        };
        let values: Vec<Scalar> = (0..n).map(&mut value).collect();
        let array = Array::from_scalars(dtype, &[n], &values).expect("n values of the dtype");
        let node = UOp::slot(self.slots.len() as u32, dtype, n)
            .reshape(shape)
            .expect("n elements");
        self.slots.push(array);
        self.pool.push(node.clone());
        node
    }

    /// Any node, younger ones more often.
    fn any(&mut self) -> UOp {
        let n = self.pool.len();
        let k = self.rng.random_range(0..n).max(self.rng.random_range(0..n));
        self.pool[k].clone()
    }

    /// A node of this dtype and shape, made from another where there is none.
    fn like(&mut self, dtype: DType, shape: &Shape) -> Result<UOp> {
        let fits: Vec<UOp> = self
            .pool
            .iter()
            .filter(|u| u.shape() == shape)
            .cloned()
            .collect();
        if !fits.is_empty() && self.chance(70) {
            return self.pick(&fits).cast(dtype);
        }
        let other = self.any();
        if other.shape().numel() == shape.numel() && self.chance(50) {
            return other.reshape(shape)?.cast(dtype);
        }
        if other.shape().numel() > 0 && self.chance(50) {
            return self.element(&other)?.cast(dtype)?.broadcast_scalar(shape);
        }
        // One axis of the shape stands for all, the others are repeated.
        if let Some(row) = self.pool.iter().find(|u| {
            u.shape().rank() == 1 && shape.rank() > 0 && u.shape()[0] == shape[shape.rank() - 1]
        }) {
            let mut ones = vec![1; shape.rank()];
            ones[shape.rank() - 1] = row.shape()[0];
            return row.cast(dtype)?.reshape(&ones)?.expand(shape);
        }
        let value = self.scalar(dtype);
        UOp::full(value, shape)
    }

    /// One element of a tensor that has some, as a scalar.
    fn element(&mut self, x: &UOp) -> Result<UOp> {
        let window: Vec<(usize, usize)> = x
            .shape()
            .iter()
            .map(|&d| {
                let k = self.rng.random_range(0..d);
                (k, k + 1)
            })
            .collect();
        x.shrink(&window)?.reshape(&[])
    }

    fn as_float(&mut self, x: &UOp) -> Result<UOp> {
        if x.dtype().is_float() {
            return Ok(x.clone());
        }
        let to = self.float();
        x.cast(to)
    }

    fn as_int(&mut self, x: &UOp) -> Result<UOp> {
        if x.dtype().is_int() {
            return Ok(x.clone());
        }
        let to = self.int();
        x.cast(to)
    }

    /// One more node, or none where the choice does not fit.
    fn step(&mut self) -> Result<Option<UOp>> {
        let mut x = self.any();
        if self.chance(15) {
            x = x.cast(self.pick(&DType::ALL))?;
        }
        let node = match self.rng.random_range(0..22) {
            0..3 => self.unary(&x)?,
            3..7 => self.binary(&x)?,
            7 => self.ternary(&x)?,
            8 => self.converted(&x)?,
            9..13 => self.moved(&x)?,
            13 => self.joined(&x)?,
            14..16 => return self.indexed(&x),
            16..19 => return self.reduced(&x),
            19..21 => self.product(&x)?,
            _ => self.nullary(&x)?,
        };
        Ok(Some(node))
    }

    fn nullary(&mut self, x: &UOp) -> Result<UOp> {
        match self.rng.random_range(0..4) {
            0 => {
                let n = self.extent();
                UOp::iota(n, self.int())
            }
            1 => {
                let dtype = self.dtype();
                let value = self.scalar(dtype);
                let shape = self.shape();
                UOp::full(value, &Shape::new(&shape))
            }
            2 => {
                let kind = self.pick(StageKind::ALL);
                x.stage(kind)
            }
            _ => {
                let (dtype, shape) = (self.dtype(), self.shape());
                Ok(self.leaf(dtype, &shape))
            }
        }
    }

    fn unary(&mut self, x: &UOp) -> Result<UOp> {
        if self.chance(15) && x.dtype() != DType::Bool {
            return x.neg();
        }
        let x = self.as_float(x)?;
        match self.rng.random_range(0..7) {
            0 => x.recip(),
            1 => x.exp2(),
            2 => x.log2(),
            3 => x.exp(),
            4 => x.sqrt(),
            5 => x.sin_turned(self.rng.random_range(0..4)),
            _ => x.trunc(),
        }
    }

    fn binary(&mut self, x: &UOp) -> Result<UOp> {
        let op = self.pick(&[
            Op::Add,
            Op::Add,
            Op::Mul,
            Op::Mul,
            Op::Max,
            Op::Div,
            Op::CmpLt,
            Op::CmpNe,
            Op::FloorDiv,
            Op::FloorMod,
            Op::And,
            Op::Or,
            Op::Xor,
            Op::Shl,
            Op::Shr,
        ]);
        let x = match op {
            Op::Div => self.as_float(x)?,
            Op::FloorDiv | Op::FloorMod | Op::Shl | Op::Shr => self.as_int(x)?,
            Op::And | Op::Or | Op::Xor if x.dtype().is_float() => self.as_int(x)?,
            _ => x.clone(),
        };
        let mut y = self.like(x.dtype(), x.shape())?;
        if matches!(op, Op::Shl | Op::Shr) && self.chance(60) {
            // Most shifts should be in range.
            let width = UOp::full(Scalar::from_i128(x.dtype(), 9), x.shape())?;
            y = y.floormod(&width)?;
        }
        let (a, b) = if self.chance(50) { (x, y) } else { (y, x) };
        UOp::new(op, [a, b].as_slice())
    }

    fn ternary(&mut self, x: &UOp) -> Result<UOp> {
        if self.chance(50) && x.dtype() != DType::Bool {
            let (b, c) = (
                self.like(x.dtype(), x.shape())?,
                self.like(x.dtype(), x.shape())?,
            );
            return x.mulacc(&b, &c);
        }
        let condition = self.like(DType::Bool, x.shape())?;
        let y = self.like(x.dtype(), x.shape())?;
        condition.where_(x, &y)
    }

    fn converted(&mut self, x: &UOp) -> Result<UOp> {
        let dtype = x.dtype();
        let same_width: Vec<DType> = DType::ALL
            .into_iter()
            .filter(|d| d.size() == dtype.size() && *d != DType::Bool && *d != dtype)
            .collect();
        if dtype != DType::Bool && !same_width.is_empty() && self.chance(40) {
            let to = self.pick(&same_width);
            return x.bitcast(to);
        }
        let to = self.dtype();
        x.cast(to)
    }

    fn moved(&mut self, x: &UOp) -> Result<UOp> {
        let rank = x.shape().rank();
        match self.rng.random_range(0..6) {
            0 => {
                let shape = self.refactored(x.shape());
                x.reshape(&shape)
            }
            1 => {
                // New axes of extent 1 grow, as old ones may.
                let mut shape = x.shape().to_vec();
                let at = self.rng.random_range(0..=rank);
                shape.insert(at, 1);
                let x = x.reshape(&shape)?;
                let grown: Vec<usize> = shape
                    .iter()
                    .enumerate()
                    .map(|(k, &d)| {
                        let grows = d == 1 && (k == at || self.chance(50));
                        if grows {
                            self.pick(&[0, 1, 2, 3, 3, 5])
                        } else {
                            d
                        }
                    })
                    .collect();
                x.expand(&grown)
            }
            2 => {
                let mut order: Vec<usize> = (0..rank).collect();
                for k in (1..rank).rev() {
                    order.swap(k, self.rng.random_range(0..=k));
                }
                x.permute(&order)
            }
            3 => {
                let window: Vec<(usize, usize)> = x
                    .shape()
                    .iter()
                    .map(|&d| {
                        let (a, b) = (self.rng.random_range(0..=d), self.rng.random_range(0..=d));
                        if self.chance(30) {
                            (0, d)
                        } else {
                            (a.min(b), a.max(b))
                        }
                    })
                    .collect();
                x.shrink(&window)
            }
            4 => {
                let padding: Vec<(usize, usize)> = (0..rank)
                    .map(|_| (self.pick(&[0, 0, 1, 2, 3]), self.pick(&[0, 0, 1, 2, 5])))
                    .collect();
                pad(x, &padding)
            }
            _ => {
                let axes: Vec<usize> = (0..rank).filter(|_| self.chance(60)).collect();
                flip(x, &axes)
            }
        }
    }

    /// Another shape of as many elements.
    fn refactored(&mut self, shape: &Shape) -> Vec<usize> {
        if shape.numel() == 0 {
            let mut dims = shape.to_vec();
            let at = self.rng.random_range(0..dims.len());
            dims.insert(at, self.pick(&[0, 1, 2]));
            return dims;
        }
        let mut left = shape.numel();
        let mut dims = Vec::new();
        while left > 1 {
            let divisors: Vec<usize> = (2..=left.min(64))
                .filter(|d| left.is_multiple_of(*d))
                .collect();
            let d = if divisors.is_empty() {
                left
            } else {
                self.pick(&divisors)
            };
            dims.push(d);
            left /= d;
        }
        if self.chance(30) {
            let at = self.rng.random_range(0..=dims.len());
            dims.insert(at, 1);
        }
        if dims.len() > 1 && self.chance(30) {
            let last = dims.pop().expect("two axes");
            let merged = dims.len() - 1;
            dims[merged] *= last;
        }
        dims
    }

    fn joined(&mut self, x: &UOp) -> Result<UOp> {
        let mut parts = vec![x.clone()];
        for _ in 0..self.rng.random_range(0..3) {
            let part = self.like(x.dtype(), x.shape())?;
            parts.push(part);
        }
        let rank = x.shape().rank();
        if rank > 0 && self.chance(50) {
            let axis = self.rng.random_range(0..rank);
            // The parts may differ along the axis.
            let last = parts.pop().expect("at least x");
            let mut window: Vec<(usize, usize)> = x.shape().iter().map(|&d| (0, d)).collect();
            window[axis].0 = self.rng.random_range(0..=window[axis].1);
            parts.push(last.shrink(&window)?);
            return cat(&parts, axis);
        }
        UOp::stack(&parts)
    }

    fn indexed(&mut self, x: &UOp) -> Result<Option<UOp>> {
        let rank = x.shape().rank();
        if rank == 0 {
            return Ok(None);
        }
        let count = self.rng.random_range(1..=rank.min(2));
        let dtype = self.int();
        if self.chance(30) {
            // A constant position, now and then outside.
            let mut at = |k: usize| self.rng.random_range(-1..=x.shape()[k] as i64);
            let indices: Vec<UOp> = (0..count).map(|k| UOp::int(at(k), dtype)).collect();
            return x.index(&indices).map(Some);
        }
        let source = self.any();
        if source.shape().numel() > 40 {
            return Ok(None);
        }
        if self.chance(40) {
            return self.scattered(&source, dtype);
        }
        let indices = self.indices(&source, dtype, &x.shape()[..count])?;
        x.index(&indices).map(Some)
    }

    /// Rows added at indices that have the shape of a node.
    fn scattered(&mut self, source: &UOp, dtype: DType) -> Result<Option<UOp>> {
        let shape = self.shape();
        if shape.is_empty() {
            return Ok(None);
        }
        let count = self.rng.random_range(1..=shape.len().min(2));
        let indices = self.indices(source, dtype, &shape[..count])?;
        let mut rows = source.shape().to_vec();
        rows.extend_from_slice(&shape[count..]);
        if rows.iter().product::<usize>() > LARGEST {
            return Ok(None);
        }
        let of = self.dtype();
        self.like(of, &Shape::new(&rows))?
            .scatter_add(&indices, &shape)
            .map(Some)
    }

    /// Indices along axes of these extents, in the shape of a node.
    fn indices(&mut self, source: &UOp, dtype: DType, extents: &[usize]) -> Result<Vec<UOp>> {
        let mut indices = Vec::new();
        for (k, &extent) in extents.iter().enumerate() {
            let other = if k == 0 {
                source.clone()
            } else {
                self.like(dtype, source.shape())?
            };
            let at = other.cast(dtype)?;
            // The extent plus one, so that one value lies outside.
            let n = UOp::full(Scalar::from_i128(dtype, extent as i128 + 1), at.shape())?;
            indices.push(if self.chance(70) {
                at.floormod(&n)?
            } else {
                at
            });
        }
        Ok(indices)
    }

    fn reduced(&mut self, x: &UOp) -> Result<Option<UOp>> {
        let rank = x.shape().rank();
        if rank == 0 {
            return Ok(None);
        }
        let (n, op) = (self.rng.random_range(1..=rank), self.pick(ReduceOp::ALL));
        if self.chance(15) {
            let sorted = self.chance(30).then(|| x.argsort());
            return sorted.unwrap_or_else(|| x.scan(op)).map(Some);
        }
        let reduced = x.reduce(op, n)?;
        // What a normalisation does: the result beside its source.
        if self.chance(30) {
            let mut ones = reduced.shape().to_vec();
            ones.extend(vec![1; n]);
            return reduced.reshape(&ones)?.expand(x.shape()).map(Some);
        }
        Ok(Some(reduced))
    }

    /// A product of matrices in one of the ways it is written.
    fn product(&mut self, x: &UOp) -> Result<UOp> {
        let x = self.as_float(x)?;
        let extent = |g: &mut Generator| g.pick(&[1, 2, 2, 3, 5, 7]);
        let (m, n) = (extent(self), extent(self));
        let k = self.pick(&[0, 1, 2, 3, 5, 17, 20]);
        // Long sums restart every 4096.
        let k = if m * n <= 4 && self.chance(10) {
            4100
        } else {
            k
        };
        let dtype = if self.chance(80) {
            x.dtype()
        } else {
            self.float()
        };
        let a = self.like(x.dtype(), &Shape::new(&[m, k]))?.cast(dtype)?;
        let b = self.like(dtype, &Shape::new(&[k, n]))?;
        if self.chance(50) {
            // The reduced axis lies in the middle, as in a gradient.
            let a = a.reshape(&[m, k, 1])?.expand(&[m, k, n])?;
            let b = b.reshape(&[1, k, n])?.expand(&[m, k, n])?;
            return a.mul(&b)?.permute(&[0, 2, 1])?.reduce(ReduceOp::Add, 1);
        }
        let a = a.reshape(&[m, 1, k])?.expand(&[m, n, k])?;
        let b = b
            .permute(&[1, 0])?
            .reshape(&[1, n, k])?
            .expand(&[m, n, k])?;
        a.mul(&b)?.reduce(ReduceOp::Add, 1)
    }
}
