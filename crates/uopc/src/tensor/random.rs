//! Random numbers as graphs: a counter-based generator, the same bits for the same seed.
//!
//! The generator is Threefry-2x32 with 20 rounds: a keyed mixing of two 32-bit words made of
//! additions, rotations and exclusive ors. Each call takes the next key of its generator when it
//! is made (not when it is computed, so the order of reads does not matter), and element i is
//! the mixing of the number i under that key. Hence a longer tensor begins with the elements of a
//! shorter one made by the same call. The key is data in a buffer, never a constant of the graph,
//! so a step that draws new numbers reuses its plan.

use std::cell::RefCell;
use std::f64::consts::TAU;

use parking_lot::Mutex;

use super::args::{Dims, shape_of};
use super::{DType, Result, Shape, Site, Tensor, UOp, dtype_error, formulas, history};
use crate::ir::Scalar;
use crate::runtime::Storage;

/// A source of random tensors with a seed of its own.
///
/// ```
/// use uopc::tensor::Generator;
///
/// let a = Generator::new(7).uniform([3], 0.0, 1.0)?.to_vec::<f32>()?;
/// let b = Generator::new(7).uniform([3], 0.0, 1.0)?.to_vec::<f32>()?;
/// assert_eq!(a, b);
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Generator {
    seed: u64,
    calls: u64,
}

/// What threads draw from that were never seeded.
static SHARED: Mutex<Generator> = Mutex::new(Generator::new(0));

thread_local! {
    static OWN: RefCell<Option<Generator>> = const { RefCell::new(None) };
}

/// Uses the generator of this thread.
pub(super) fn with_current<R>(f: impl FnOnce(&mut Generator) -> R) -> R {
    OWN.with_borrow_mut(|own| match own {
        Some(generator) => f(generator),
        None => f(&mut SHARED.lock()),
    })
}

/// A pair of words.
type Pair = [u32; 2];

impl Generator {
    /// A generator that begins with this seed.
    pub const fn new(seed: u64) -> Generator {
        Generator { seed, calls: 0 }
    }

    /// The seed, and how many calls have drawn from it: all there is to know.
    pub fn state(&self) -> [u64; 2] {
        [self.seed, self.calls]
    }

    /// The generator that was in that [`state`](Self::state).
    pub const fn from_state([seed, calls]: [u64; 2]) -> Generator {
        Generator { seed, calls }
    }

    /// The key of the next call: the call's number mixed under the seed.
    fn next_key(&mut self) -> Pair {
        let halves = |n: u64| [n as u32, (n >> 32) as u32];
        let key = threefry(halves(self.seed), halves(self.calls));
        self.calls = self.calls.wrapping_add(1);
        key
    }

    /// A whole number below `n` (0 if `n` is 0), drawn on the host.
    pub fn below(&mut self, n: usize) -> usize {
        let [low, high] = self.next_key();
        let bits = (high as u64) << 32 | low as u64;
        // The high half of a product with n is unbiased up to n/2^64.
        ((bits as u128 * n as u128) >> 64) as usize
    }

    /// The numbers `0..n` in random order, drawn on the host.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// f32 numbers from `low` up to `high`, evenly distributed over multiples of 2^-24 of the
    /// distance. `high` itself can appear only by rounding.
    ///
    /// # Errors
    /// When the extents are no shape, or a bound is not finite in f32.
    #[track_caller]
    pub fn uniform(&mut self, shape: impl Dims, low: f64, high: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.uniform_as(DType::F32, shape, low, high)
    }

    /// [`uniform`](Self::uniform) in another float dtype, with as many random bits as its
    /// significand has.
    ///
    /// # Errors
    /// When the dtype is no float, the extents are no shape, or a bound is not finite in the dtype.
    #[track_caller]
    pub fn uniform_as(
        &mut self,
        dtype: DType,
        shape: impl Dims,
        low: f64,
        high: f64,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = shape_of("uniform", shape)?;
        let fits = |bound: f64| Scalar::from_f64(dtype, bound).as_f64().is_finite();
        if dtype.is_float() && !(fits(low) && fits(high)) {
            let message = format!("{dtype} has no numbers from {low} up to {high}");
            return Err(dtype_error("uniform", message));
        }
        let words = self.words("uniform", dtype, &shape)?;
        let unit = unit(&words.pair(0)?, dtype)?;
        let node = match (low, high) {
            (0.0, 1.0) => unit,
            _ if !Scalar::from_f64(dtype, high - low).as_f64().is_finite() => {
                // The distance overflows, though no number between the two does.
                let rest = unit.full_like(1.0)?.sub(&unit)?;
                let from_low = rest.mul(&rest.full_like(low)?)?;
                from_low.add(&unit.mul(&unit.full_like(high)?)?)?
            }
            _ => unit
                .mul(&unit.full_like(high - low)?)?
                .add(&unit.full_like(low)?)?,
        };
        Ok(Tensor::new(node.reshape(&shape)?, false))
    }

    /// f32 numbers of the normal distribution with mean 0 and variance 1, by Box and Muller.
    ///
    /// # Errors
    /// When the extents are no shape.
    #[track_caller]
    pub fn randn(&mut self, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.randn_as(DType::F32, shape)
    }

    /// [`randn`](Self::randn) in another float dtype.
    ///
    /// # Errors
    /// When the dtype is no float or the extents are no shape.
    #[track_caller]
    pub fn randn_as(&mut self, dtype: DType, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let shape = shape_of("randn", shape)?;
        let words = self.words("randn", dtype, &shape)?;
        let normal = match dtype {
            DType::F64 => {
                let radius = unit(&words.pair(0)?, dtype)?;
                // 1 - u is never 0, so its logarithm is finite.
                let positive = radius.full_like(1.0)?.sub(&radius)?;
                box_muller(&positive, &unit(&words.pair(1)?, dtype)?)?
            }
            _ => {
                let [first, second] = words.pair(0)?;
                // All 32 bits, in the middle of their interval: never 0, and far tails.
                let radius = first.cast(DType::F32)?;
                let scale = radius.full_like(2f64.powi(-32))?;
                let positive = radius.mulacc(&scale, &radius.full_like(2f64.powi(-33))?)?;
                box_muller(&positive, &fraction(&second, DType::F32, 24)?)?.cast(dtype)?
            }
        };
        Ok(Tensor::new(normal.reshape(&shape)?, false))
    }

    /// Two random words for each of `n` elements, under the next key.
    pub(super) fn bits(&mut self, n: usize) -> Result<[UOp; 2]> {
        self.keyed(n)?.pair(0)
    }

    /// The mixing under the next key, for the elements of a shape.
    fn words(&mut self, op: &'static str, dtype: DType, shape: &Shape) -> Result<Words> {
        if !dtype.is_float() {
            let message = format!("random numbers are floats, not {dtype}; cast the result");
            return Err(dtype_error(op, message));
        }
        self.keyed(shape.numel())
    }

    /// The mixing under the next key, for `n` elements.
    fn keyed(&mut self, n: usize) -> Result<Words> {
        let key = Storage::from_slice(&self.next_key())?;
        let key = history::leaf(key, DType::U32, &Shape::new(&[2]))?;
        Ok(Words { key, n })
    }
}

impl Tensor {
    /// Seeds the generator of this thread, from which [`randn`](Self::randn),
    /// [`uniform`](Self::uniform) and the layers' initial values draw. Threads that never call
    /// this share one generator, seeded with 0.
    pub fn manual_seed(seed: u64) {
        OWN.set(Some(Generator::new(seed)));
    }

    /// The state of the generator that this thread draws from, for a run that is to go on later.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// Tensor::manual_seed(3);
    /// Tensor::rand([2])?;
    /// let state = Tensor::random_state();
    /// let next = Tensor::rand([2])?.to_vec::<f32>()?;
    /// Tensor::set_random_state(state);
    /// assert_eq!(Tensor::rand([2])?.to_vec::<f32>()?, next);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    pub fn random_state() -> [u64; 2] {
        with_current(|generator| generator.state())
    }

    /// From now on this thread draws from a generator of its own in that
    /// [state](Self::random_state).
    pub fn set_random_state(state: [u64; 2]) {
        OWN.set(Some(Generator::from_state(state)));
    }

    /// f32 numbers of the normal distribution; see [`Generator::randn`].
    ///
    /// # Errors
    /// When the extents are no shape.
    #[track_caller]
    pub fn randn(shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.randn(shape))
    }

    /// [`randn`](Self::randn) in another float dtype; see [`Generator::randn_as`].
    ///
    /// # Errors
    /// When the dtype is no float or the extents are no shape.
    #[track_caller]
    pub fn randn_as(dtype: DType, shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.randn_as(dtype, shape))
    }

    /// f32 numbers from `low` up to `high`; see [`Generator::uniform`].
    ///
    /// # Errors
    /// When the extents are no shape, or a bound is not finite in f32.
    #[track_caller]
    pub fn uniform(shape: impl Dims, low: f64, high: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.uniform(shape, low, high))
    }

    /// [`uniform`](Self::uniform) in another float dtype; see [`Generator::uniform_as`].
    ///
    /// # Errors
    /// When the dtype is no float, the extents are no shape, or a bound is not finite in the dtype.
    #[track_caller]
    pub fn uniform_as(dtype: DType, shape: impl Dims, low: f64, high: f64) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.uniform_as(dtype, shape, low, high))
    }
}

// ---- the mixing, on the host and as a graph ----

/// Left rotations of the rounds, repeating.
const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
/// Added to the key schedule so that a zero key mixes, too.
const PARITY: u32 = 0x1bd1_1bda;
const ROUNDS: usize = 20;

fn threefry(key: Pair, counter: Pair) -> Pair {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
    let [mut a, mut b] = [
        counter[0].wrapping_add(keys[0]),
        counter[1].wrapping_add(keys[1]),
    ];
    for round in 0..ROUNDS {
        a = a.wrapping_add(b);
        b = b.rotate_left(ROTATIONS[round % 8]) ^ a;
        if round % 4 == 3 {
            let k = round / 4 + 1;
            a = a.wrapping_add(keys[k % 3]);
            b = b.wrapping_add(keys[(k + 1) % 3]).wrapping_add(k as u32);
        }
    }
    [a, b]
}

/// Words for elements `0..n` under a key that lies in a buffer.
struct Words {
    key: UOp,
    n: usize,
}

impl Words {
    /// The two words of each element; another `stream` gives independent ones.
    fn pair(&self, stream: u32) -> Result<[UOp; 2]> {
        let shape = Shape::new(&[self.n]);
        let word = |value: u32| UOp::full(Scalar::from_i128(DType::U32, value as i128), &shape);
        let key = |i| {
            self.key
                .index(&[UOp::int(i, DType::I32)])?
                .broadcast_scalar(&shape)
        };
        let (k0, k1) = (key(0)?, key(1)?);
        let keys = [k0.clone(), k1.clone(), k0.xor(&k1)?.xor(&word(PARITY)?)?];
        let (low, high) = self.numbers(stream, &word)?;
        let (mut a, mut b) = (low.add(&keys[0])?, high.add(&keys[1])?);
        for round in 0..ROUNDS {
            a = a.add(&b)?;
            let r = ROTATIONS[round % 8];
            b = b.shl(&word(r)?)?.or(&b.shr(&word(32 - r)?)?)?.xor(&a)?;
            if round % 4 == 3 {
                let k = round / 4 + 1;
                a = a.add(&keys[k % 3])?;
                b = b.add(&keys[(k + 1) % 3])?.add(&word(k as u32)?)?;
            }
        }
        Ok([a, b])
    }

    /// The elements' numbers in two words; the stream is in the highest bits.
    fn numbers(&self, stream: u32, word: &dyn Fn(u32) -> Result<UOp>) -> Result<(UOp, UOp)> {
        let stream = stream << 31;
        if self.n as u64 <= 1 << 32 {
            return Ok((UOp::iota(self.n, DType::U32)?, word(stream)?));
        }
        let wide = UOp::iota(self.n, DType::U64)?;
        let by = UOp::full(Scalar::from_i128(DType::U64, 32), wide.shape())?;
        let high = wide.shr(&by)?.cast(DType::U32)?;
        Ok((wide.cast(DType::U32)?, high.add(&word(stream)?)?))
    }
}

/// Numbers in 0..1 with as many random bits as the dtype's significand has.
fn unit(pair: &[UOp; 2], dtype: DType) -> Result<UOp> {
    match dtype {
        DType::F64 => {
            // 26 and 27 bits: (high * 2^27 + low) * 2^-53, exact in every step.
            let high = fraction(&pair[0], dtype, 26)?;
            let low = fraction(&pair[1], dtype, 27)?;
            low.mulacc(&low.full_like(2f64.powi(-26))?, &high)
        }
        DType::F16 => fraction(&pair[0], dtype, 11),
        DType::BF16 => fraction(&pair[0], dtype, 8),
        _ => fraction(&pair[0], dtype, 24),
    }
}

/// The highest `bits` of a word as a fraction in 0..1.
fn fraction(word: &UOp, dtype: DType, bits: u32) -> Result<UOp> {
    let drop = Scalar::from_i128(DType::U32, 32 - bits as i128);
    let kept = word.shr(&UOp::full(drop, word.shape())?)?.cast(dtype)?;
    kept.mul(&kept.full_like(2f64.powi(-(bits as i32)))?)
}

/// sqrt(-2 ln u) * cos(2 pi v) for u in (0, 1] and v in [0, 1).
fn box_muller(u: &UOp, v: &UOp) -> Result<UOp> {
    let radius = formulas::log(u)?.mul(&u.full_like(-2.0)?)?.sqrt()?;
    radius.mul(&v.mul(&v.full_like(TAU)?)?.cos()?)
}
