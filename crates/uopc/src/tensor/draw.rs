//! Random numbers of other distributions, and random choices. They are made of the generator's words
//! and uniform numbers, so each call draws anew under a key that is data: a step that draws keeps its
//! plan.

use super::args::{Dims, shape_of};
use super::gather::read_along;
use super::random::{Generator, with_current};
use super::{DType, Operand, Result, Site, Tensor, UOp, dtype_error, shape_error};
use crate::ir::Scalar;
use crate::ir::op::ReduceOp;

impl Generator {
    /// i32 integers from `low` up to but without `high`, all equally likely.
    ///
    /// # Errors
    /// When there are none, or they do not fit i32, or the extents are no shape.
    #[track_caller]
    pub fn randint(
        &mut self,
        low: impl Into<i128>,
        high: impl Into<i128>,
        shape: impl Dims,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        self.randint_as(DType::I32, low, high, shape)
    }

    /// [`randint`](Self::randint) in another dtype.
    ///
    /// An integer is the high part of 64 random bits times the number of integers, which leaves no
    /// one of n more likely than another by more than n / 2^64.
    ///
    /// # Errors
    /// When there are none, or they do not fit the dtype, or the extents are no shape.
    #[track_caller]
    pub fn randint_as(
        &mut self,
        dtype: DType,
        low: impl Into<i128>,
        high: impl Into<i128>,
        shape: impl Dims,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (low, high) = (low.into(), high.into());
        let shape = shape_of("randint", shape)?;
        if low >= high {
            let message = format!("there are no integers from {low} up to {high}");
            return Err(shape_error("randint", message));
        }
        // Floats hold integers up to a size, beyond which they would not be equally likely.
        let (least, most) = match dtype {
            DType::F16 => (-2048, 2048),
            DType::BF16 => (-256, 256),
            DType::F32 => (-(1 << 24), 1 << 24),
            DType::F64 => (-(1i128 << 53), 1i128 << 53),
            DType::Bool => (0, 1),
            _ => dtype.int_range().unwrap_or((0, 0)),
        };
        if low < least || high - 1 > most {
            let message = format!("integers from {low} up to {high} do not fit {dtype}");
            return Err(dtype_error("randint", message));
        }
        let n = shape.numel();
        let [first, second] = self.bits(n)?;
        let below = below(&first, &second, (high - low) as u128)?;
        let low = UOp::full(
            Scalar::from_i128(DType::I64, low as i64 as i128),
            below.shape(),
        )?;
        // All sums are right modulo 2^64, hence in each integer dtype that holds the result.
        let node = below.cast(DType::I64)?.add(&low)?.cast(dtype)?;
        Ok(Tensor::new(node.reshape(&shape)?, false))
    }

    /// Numbers of the normal distribution with that mean and standard deviation, which may be
    /// tensors; they broadcast to the shape. f32, or the dtype of the tensors.
    ///
    /// # Errors
    /// When the extents are no shape, or mean and deviation do not broadcast to it.
    #[track_caller]
    pub fn normal(
        &mut self,
        mean: impl Into<Operand>,
        std: impl Into<Operand>,
        shape: impl Dims,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (mean, std) = (mean.into(), std.into());
        let shape = shape_of("normal", shape)?;
        let mut dtype: Option<DType> = None;
        for part in [&mean, &std] {
            if let Operand::Tensor(t) = part {
                if super::operand::broadcast("normal", t.shape(), &shape)? != shape {
                    let message = format!("{} does not broadcast to {shape}", t.shape());
                    return Err(shape_error("normal", message));
                }
                dtype = Some(dtype.map_or(t.dtype(), |d| d.promote(t.dtype())));
            }
        }
        let dtype = dtype.filter(|d| d.is_float()).unwrap_or(DType::F32);
        let normal = self.randn_as(dtype, &shape)?;
        normal.mul(std)?.add(mean)?.cast(dtype)
    }

    /// 1 with the probability that this tensor holds in that place, else 0, in its dtype. What is no
    /// probability counts as the nearest one, NaN as 0.
    ///
    /// # Errors
    /// When the probabilities are no floats.
    #[track_caller]
    pub fn bernoulli(&mut self, probabilities: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let dtype = probabilities.dtype();
        if !dtype.is_float() {
            let message = format!("probabilities are floats, not {dtype}; cast them");
            return Err(dtype_error("bernoulli", message));
        }
        // Numbers of more bits than narrow floats have keep small probabilities apart.
        let wide = dtype.accumulator();
        let unit = self.uniform_as(wide, probabilities.shape(), 0.0, 1.0)?;
        unit.lt(probabilities.detach()?.cast(wide)?)?.cast(dtype)
    }

    /// The numbers `0..n` in random order, as i32 if they fit, else i64. Unlike
    /// [`permutation`](Self::permutation) it is computed when it is needed, and anew in each step.
    ///
    /// # Errors
    /// When there are more than memory can hold.
    #[track_caller]
    pub fn randperm(&mut self, n: usize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        shape_of("randperm", [n])?;
        let [first, second] = self.bits(n)?;
        let order = join(&first, &second)?.argsort()?;
        let dtype = match i32::try_from(n) {
            Ok(_) => DType::I32,
            Err(_) => DType::I64,
        };
        Ok(Tensor::new(order.cast(dtype)?, false))
    }

    /// Numbers of classes drawn by their weights, the last axis: `count` for each row, as i64. The
    /// weights need not add up to 1. Each draw is independent with `replacement`, else no class
    /// comes twice.
    ///
    /// With replacement a class is found by halving in the running sums of the weights, without it
    /// the classes with the largest w / e are taken, where e is exponentially distributed. A class
    /// of weight 0 is never drawn as long as there is another one. Negative weights and NaN count as 0.
    ///
    /// # Errors
    /// When the weights are no floats in one or two axes, there are no classes, or more draws than
    /// classes without replacement.
    #[track_caller]
    pub fn multinomial(
        &mut self,
        weights: &Tensor,
        count: usize,
        replacement: bool,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let (shape, dtype) = (weights.shape().clone(), weights.dtype());
        if !dtype.is_float() {
            let message = format!("weights are floats, not {dtype}; cast them");
            return Err(dtype_error("multinomial", message));
        }
        let classes = match shape[..] {
            [n] | [_, n] => n,
            _ => {
                let message = format!("weights of shape {shape}; give one row or several");
                return Err(shape_error("multinomial", message));
            }
        };
        if count > 0 && classes == 0 || count > classes && !replacement {
            let message = format!("{count} draws from {classes} classes of shape {shape}");
            return Err(shape_error("multinomial", message));
        }
        let mut dims = shape[..shape.rank() - 1].to_vec();
        dims.push(count);
        let dims = shape_of("multinomial", &dims)?;
        let weights = weights.detach()?.cast(DType::F64)?;
        let positive = weights.gt(0.0)?.where_(&weights, 0.0)?;
        if replacement {
            let unit = self.uniform_as(DType::F64, &dims, 0.0, 1.0)?;
            return Ok(Tensor::new(by_sums(&positive.uop(), &unit.uop())?, false));
        }
        let unit = self.uniform_as(DType::F64, &shape, 0.0, 1.0)?;
        // 1 - u is never 0, so its logarithm is finite; where it is 0 the class comes first.
        let wait = unit.mul(-1.0)?.add(1.0)?.log()?.mul(-1.0)?;
        let first = positive.div(&wait)?.mul(-1.0)?;
        // 0 / 0 is NaN, and NaNs come last, too.
        let order = first.uop().argsort()?;
        let mut window: Vec<(usize, usize)> = shape.iter().map(|&d| (0, d)).collect();
        window[shape.rank() - 1] = (0, count);
        Ok(Tensor::new(order.shrink(&window)?, false))
    }
}

/// The class of each draw u of 0..1: the number of classes whose running sum is at most u times the
/// sum of all.
fn by_sums(weights: &UOp, unit: &UOp) -> Result<UOp> {
    let sums = weights.scan(ReduceOp::Add)?;
    let rank = sums.shape().rank();
    let n = sums.shape()[rank - 1];
    if unit.shape().numel() == 0 {
        return UOp::full(Scalar::zero(DType::I64), unit.shape());
    }
    let mut last: Vec<(usize, usize)> = sums.shape().iter().map(|&d| (0, d)).collect();
    last[rank - 1] = (n - 1, n);
    let total = sums.shrink(&last)?;
    let (total, draws) = (total.expand(unit.shape())?, unit.shape());
    let aim = unit.mul(&total)?;
    let number = |value: usize| UOp::full(Scalar::from_i128(DType::I64, value as i128), draws);
    let count_up_to = |aim: &UOp, strict: bool| -> Result<UOp> {
        let mut found = number(0)?;
        let mut step = n.next_power_of_two();
        while step > 0 {
            let next = found.add(&number(step)?)?;
            let sum = read_along(&sums, &next.sub(&number(1)?)?, rank - 1)?;
            let passed = match strict {
                true => sum.cmplt(aim)?,
                false => aim.cmplt(&sum)?.logical_not()?,
            };
            // What lies beyond the last one reads 0.
            let within = next.cmplt(&number(n + 1)?)?;
            found = within.and(&passed)?.where_(&next, &found)?;
            step /= 2;
        }
        Ok(found)
    };
    let class = count_up_to(&aim, false)?;
    // Rounding may have made the aim the sum of all: then it is the last class with a weight.
    let end = count_up_to(&total, true)?;
    let class = class.cmplt(&end)?.where_(&class, &end)?;
    class.cmplt(&number(n)?)?.where_(&class, &number(n - 1)?)
}

/// Two words as one of 64 bits.
fn join(high: &UOp, low: &UOp) -> Result<UOp> {
    let high = high.cast(DType::U64)?;
    let by = UOp::full(Scalar::from_i128(DType::U64, 32), high.shape())?;
    high.shl(&by)?.or(&low.cast(DType::U64)?)
}

/// The high 64 bits of 64 random ones times n, a number up to 2^64.
fn below(high: &UOp, low: &UOp, n: u128) -> Result<UOp> {
    if n > u64::MAX as u128 {
        return join(high, low);
    }
    let word = |value: u128| UOp::full(Scalar::from_i128(DType::U64, value as i128), high.shape());
    let upper = |x: &UOp| x.shr(&word(32)?);
    let lower = |x: &UOp| x.and(&word(u32::MAX as u128)?);
    let (high, low) = (high.cast(DType::U64)?, low.cast(DType::U64)?);
    // Products of words of 32 bits, their carries added up; none of the sums overflows.
    let (n_high, n_low) = (word(n >> 32)?, word(n & u32::MAX as u128)?);
    let middle = high.mul(&n_low)?.add(&upper(&low.mul(&n_low)?)?)?;
    if n >> 32 == 0 {
        return upper(&middle);
    }
    let other = low.mul(&n_high)?.add(&lower(&middle)?)?;
    high.mul(&n_high)?
        .add(&upper(&middle)?)?
        .add(&upper(&other)?)
}

impl Tensor {
    /// f32 numbers from 0 up to 1; see [`Generator::uniform`].
    ///
    /// # Errors
    /// When the extents are no shape.
    #[track_caller]
    pub fn rand(shape: impl Dims) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Tensor::uniform(shape, 0.0, 1.0)
    }

    /// i32 integers from `low` up to but without `high`; see [`Generator::randint`].
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let dice = Tensor::randint(1, 7, [100])?;
    /// assert!(dice.to_vec::<i32>()?.iter().all(|n| (1..7).contains(n)));
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there are none, or they do not fit i32, or the extents are no shape.
    #[track_caller]
    pub fn randint(
        low: impl Into<i128>,
        high: impl Into<i128>,
        shape: impl Dims,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.randint(low, high, shape))
    }

    /// [`randint`](Self::randint) in another dtype; see [`Generator::randint_as`].
    ///
    /// # Errors
    /// When there are none, or they do not fit the dtype, or the extents are no shape.
    #[track_caller]
    pub fn randint_as(
        dtype: DType,
        low: impl Into<i128>,
        high: impl Into<i128>,
        shape: impl Dims,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.randint_as(dtype, low, high, shape))
    }

    /// Numbers of the normal distribution with that mean and standard deviation; see
    /// [`Generator::normal`]. Gradients flow to both.
    ///
    /// # Errors
    /// When the extents are no shape, or mean and deviation do not broadcast to it.
    #[track_caller]
    pub fn normal(
        mean: impl Into<Operand>,
        std: impl Into<Operand>,
        shape: impl Dims,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.normal(mean, std, shape))
    }

    /// 1 with these probabilities, else 0; see [`Generator::bernoulli`].
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let sure = Tensor::from([0.0f32, 1.0]).bernoulli()?;
    /// assert_eq!(sure.to_vec::<f32>()?, [0.0, 1.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the probabilities are no floats.
    #[track_caller]
    pub fn bernoulli(&self) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.bernoulli(self))
    }

    /// The numbers `0..n` in random order; see [`Generator::randperm`].
    ///
    /// # Errors
    /// When there are more than memory can hold.
    #[track_caller]
    pub fn randperm(n: usize) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.randperm(n))
    }

    /// Numbers of classes drawn by these weights; see [`Generator::multinomial`].
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let drawn = Tensor::from([0.0f32, 3.0, 0.0]).multinomial(2, true)?;
    /// assert_eq!(drawn.to_vec::<i64>()?, [1, 1]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the weights are no floats in one or two axes, there are no classes, or more draws than
    /// classes without replacement.
    #[track_caller]
    pub fn multinomial(&self, count: usize, replacement: bool) -> Result<Tensor> {
        let _site = Site::caller().enter();
        with_current(|generator| generator.multinomial(self, count, replacement))
    }
}
