//! Optimisers: they compute new parameter values from gradients, all as one plan.
//!
//! Learning rates, bias corrections and the like are numbers in a small buffer that each step
//! fills anew. They never become constants of the graph, so every step has the graph of the one
//! before and finds its plan.

use crate::error::Result;
use crate::tensor::{DType, Error, Site, Tensor, no_grad};

/// What all optimisers do.
pub trait Optimizer {
    /// The parameters that it updates.
    fn parameters(&self) -> &[Tensor];

    /// The learning rate.
    fn learning_rate(&self) -> f64;

    /// Changes the learning rate for the steps to come. One that is negative or not finite is
    /// refused by [`check`](Self::check), and so by the next step.
    fn set_learning_rate(&mut self, learning_rate: f64);

    /// Looks at the numbers that it was given. Every step does that first.
    ///
    /// # Errors
    /// [`Error::Setting`] when one is out of its range. The text names it and the range.
    fn check(&self) -> Result<()>;

    /// What it remembers between steps, by name, to be saved beside the parameters.
    ///
    /// # Errors
    /// When memory runs out.
    fn state(&self) -> Result<Vec<(String, Tensor)>>;

    /// Continues from a saved state.
    ///
    /// # Errors
    /// When an entry is missing or has another shape or dtype. Then nothing has changed.
    fn set_state(&mut self, state: &[(String, Tensor)]) -> Result<()>;

    /// Updates the parameters that have a gradient, and computes `also` in the same plan.
    ///
    /// # Errors
    /// When a number is out of its range, no parameter has a gradient, or a value can't be
    /// computed. Then nothing has changed.
    fn update(&mut self, also: &[&Tensor]) -> Result<()>;

    /// Updates the parameters that have a gradient. Their gradients are computed, too, and stay
    /// until [`zero_grad`](Self::zero_grad).
    ///
    /// # Errors
    /// When a number is out of its range, no parameter has a gradient, or a value can't be
    /// computed.
    #[track_caller]
    fn step(&mut self) -> Result<()> {
        let _site = Site::caller().enter();
        self.update(&[])
    }

    /// [`step`](Self::step) that computes the loss in the same plan.
    ///
    /// # Errors
    /// When a number is out of its range, no parameter has a gradient, or a value can't be
    /// computed.
    #[track_caller]
    fn step_with(&mut self, loss: &Tensor) -> Result<()> {
        let _site = Site::caller().enter();
        self.update(&[loss])
    }

    /// Forgets all gradients; otherwise the next backward adds to them.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(Tensor::zero_grad);
    }
}

/// Which numbers an argument may be.
#[derive(Clone, Copy)]
enum Range {
    /// From 0 on, all that are finite.
    Amount,
    /// At least 0 and below 1.
    Share,
}

/// Looks at the arguments of an optimiser: `(name, value, range)`.
fn in_range(optimizer: &str, arguments: &[(&str, f64, Range)]) -> Result<()> {
    for (name, value, range) in arguments {
        let (fits, valid) = match range {
            Range::Amount => (value.is_finite() && *value >= 0.0, "finite and at least 0"),
            Range::Share => ((0.0..1.0).contains(value), "at least 0 and below 1"),
        };
        if !fits {
            let at = Site::current().map_or(String::new(), |site| format!(" (at {site})"));
            return Err(Error::Setting(format!(
                "{optimizer}: {name} is {value}; a number that is {valid} is needed{at}"
            )));
        }
    }
    Ok(())
}

/// A list of parameters, each of which has a buffer of its own.
fn checked(parameters: Vec<Tensor>) -> Result<Vec<Tensor>> {
    if parameters.is_empty() {
        let message = "there is no parameter to update; the list is empty".into();
        let site = Site::current();
        return Err(Error::Gradient { message, site });
    }
    for (k, p) in parameters.iter().enumerate() {
        if !p.is_parameter() {
            let message = format!(
                "tensor {k} in the list, of shape {}, is no parameter; make it with requires_grad",
                p.shape()
            );
            let site = Site::current();
            return Err(Error::Gradient { message, site });
        }
        if parameters[..k].iter().any(|earlier| earlier.is(p)) {
            let message = format!("parameter {k} in the list is there twice; name each once");
            let site = Site::current();
            return Err(Error::Gradient { message, site });
        }
    }
    Ok(parameters)
}

/// Zeros in memory, of the shape of each parameter and in the dtype in which updates are computed.
fn zeros_for(parameters: &[Tensor]) -> Result<Vec<Tensor>> {
    let zeros = |p: &Tensor| {
        let dtype = p.dtype().accumulator();
        Tensor::from_bytes(&vec![0; p.numel() * dtype.size()], dtype, p.shape())
    };
    parameters.iter().map(zeros).collect()
}

/// The parameters with gradients, by position, and the gradients.
fn with_gradients(parameters: &[Tensor]) -> Result<Vec<(usize, Tensor)>> {
    let gradients = parameters
        .iter()
        .enumerate()
        .filter_map(|(k, p)| Some((k, p.grad()?)));
    let gradients: Vec<(usize, Tensor)> = gradients.collect();
    if gradients.is_empty() {
        let message = "no parameter has a gradient; call backward on the loss first".into();
        let site = Site::current();
        return Err(Error::Gradient { message, site });
    }
    Ok(gradients)
}

/// Numbers of one step in a buffer, read one by one in the dtypes in which they are needed.
struct Numbers<const N: usize> {
    buffer: Tensor,
    read: Vec<(DType, [Tensor; N])>,
}

impl<const N: usize> Numbers<N> {
    fn new(values: [f64; N]) -> Numbers<N> {
        Numbers {
            buffer: Tensor::from(values),
            read: Vec::new(),
        }
    }

    /// The numbers in that dtype.
    fn of(&mut self, dtype: DType) -> Result<[Tensor; N]> {
        if let Some((_, numbers)) = self.read.iter().find(|(d, _)| *d == dtype) {
            return Ok(numbers.clone());
        }
        let numbers = (0..N).map(|k| self.buffer.get(k)?.cast(dtype));
        let numbers = numbers.collect::<Result<Vec<_>>>()?;
        let numbers: [Tensor; N] = numbers.try_into().expect("one tensor a number");
        self.read.push((dtype, numbers.clone()));
        Ok(numbers)
    }
}

/// Carries out the updates `(target, value)`, with the gradients and `also` in the same plan.
fn carry_out(
    updates: &[(&Tensor, Tensor)],
    gradients: &[(usize, Tensor)],
    also: &[&Tensor],
) -> Result<()> {
    let updates: Vec<(&Tensor, &Tensor)> = updates.iter().map(|(t, v)| (*t, v)).collect();
    let gradients = gradients.iter().map(|(_, g)| g);
    let also: Vec<&Tensor> = also.iter().copied().chain(gradients).collect();
    Tensor::assign_all(&updates, &also)
}

/// The entry of a saved state.
fn entry<'a>(state: &'a [(String, Tensor)], name: &str) -> Result<&'a Tensor> {
    match state.iter().find(|(n, _)| n == name) {
        Some((_, t)) => Ok(t),
        None => {
            let message = format!("the optimiser's state has no entry {name}");
            Err(Error::Shape {
                op: "set_state",
                message,
                site: Site::current(),
            })
        }
    }
}

/// Stochastic gradient descent: with momentum, `v = momentum * v + g` and `p -= rate * v`.
#[derive(Debug)]
pub struct Sgd {
    parameters: Vec<Tensor>,
    learning_rate: f64,
    momentum: f64,
    /// One velocity a parameter, if there is momentum.
    velocity: Vec<Tensor>,
}

impl Sgd {
    /// Plain descent.
    ///
    /// # Errors
    /// When a tensor is no parameter or is named twice.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, learning_rate: f64) -> Result<Sgd> {
        let _site = Site::caller().enter();
        let parameters = checked(parameters)?;
        Ok(Sgd {
            parameters,
            learning_rate,
            momentum: 0.0,
            velocity: Vec::new(),
        })
    }

    /// Descent with momentum. The velocity starts at 0.
    ///
    /// # Errors
    /// When a tensor is no parameter or is named twice.
    #[track_caller]
    pub fn with_momentum(
        parameters: Vec<Tensor>,
        learning_rate: f64,
        momentum: f64,
    ) -> Result<Sgd> {
        let _site = Site::caller().enter();
        let parameters = checked(parameters)?;
        let velocity = zeros_for(&parameters)?;
        Ok(Sgd {
            parameters,
            learning_rate,
            momentum,
            velocity,
        })
    }
}

impl Optimizer for Sgd {
    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    fn set_learning_rate(&mut self, learning_rate: f64) {
        self.learning_rate = learning_rate;
    }

    fn check(&self) -> Result<()> {
        let arguments = [
            ("the learning rate (lr)", self.learning_rate, Range::Amount),
            ("momentum", self.momentum, Range::Amount),
        ];
        in_range("SGD", &arguments)
    }

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        let velocity = self.velocity.iter().enumerate();
        Ok(velocity
            .map(|(k, v)| (format!("velocity.{k}"), v.clone()))
            .collect())
    }

    fn set_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        restore(state, &[("velocity", &self.velocity)])
    }

    fn update(&mut self, also: &[&Tensor]) -> Result<()> {
        self.check()?;
        let _off = no_grad();
        let gradients = with_gradients(&self.parameters)?;
        let mut numbers = Numbers::new([self.learning_rate, self.momentum]);
        let mut updates = Vec::new();
        for (k, gradient) in &gradients {
            let p = &self.parameters[*k];
            let wide = p.dtype().accumulator();
            let [rate, momentum] = &numbers.of(wide)?;
            let mut direction = gradient.cast(wide)?;
            if let Some(velocity) = self.velocity.get(*k) {
                direction = velocity.mul(momentum)?.add(&direction)?;
                updates.push((velocity, direction.clone()));
            }
            let change = direction.mul(rate)?;
            updates.push((p, p.cast(wide)?.sub(&change)?.cast(p.dtype())?));
        }
        carry_out(&updates, &gradients, also)
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter), as PyTorch computes it:
/// `p *= 1 - rate * decay`, `m += (g - m) * (1 - beta1)`, `v = v * beta2 + g * g * (1 - beta2)`,
/// and then `p -= rate / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)` in step t.
#[derive(Debug)]
pub struct AdamW {
    parameters: Vec<Tensor>,
    learning_rate: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    steps: u64,
    /// Running means of the gradients.
    means: Vec<Tensor>,
    /// Running means of their squares.
    squares: Vec<Tensor>,
}

impl AdamW {
    /// With betas 0.9 and 0.999, eps 1e-8 and weight decay 0.01.
    ///
    /// # Errors
    /// When a tensor is no parameter or is named twice.
    #[track_caller]
    pub fn new(parameters: Vec<Tensor>, learning_rate: f64) -> Result<AdamW> {
        let _site = Site::caller().enter();
        let parameters = checked(parameters)?;
        let (means, squares) = (zeros_for(&parameters)?, zeros_for(&parameters)?);
        Ok(AdamW {
            parameters,
            learning_rate,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            steps: 0,
            means,
            squares,
        })
    }

    /// With other rates at which the running means forget.
    pub fn betas(mut self, first: f64, second: f64) -> AdamW {
        self.betas = (first, second);
        self
    }

    /// With another number that keeps the division away from 0.
    pub fn eps(mut self, eps: f64) -> AdamW {
        self.eps = eps;
        self
    }

    /// With another pull of the parameters towards 0.
    pub fn weight_decay(mut self, weight_decay: f64) -> AdamW {
        self.weight_decay = weight_decay;
        self
    }

    /// How many steps were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

impl Optimizer for AdamW {
    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    fn set_learning_rate(&mut self, learning_rate: f64) {
        self.learning_rate = learning_rate;
    }

    fn check(&self) -> Result<()> {
        let arguments = [
            ("the learning rate (lr)", self.learning_rate, Range::Amount),
            ("betas[0]", self.betas.0, Range::Share),
            ("betas[1]", self.betas.1, Range::Share),
            ("eps", self.eps, Range::Amount),
            ("weight_decay", self.weight_decay, Range::Amount),
        ];
        in_range("AdamW", &arguments)
    }

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        let mut state = vec![("steps".to_string(), Tensor::from_slice(&[self.steps], ())?)];
        for (name, list) in [("mean", &self.means), ("square", &self.squares)] {
            let list = list.iter().enumerate();
            state.extend(list.map(|(k, t)| (format!("{name}.{k}"), t.clone())));
        }
        Ok(state)
    }

    fn set_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let steps = saved_steps(entry(state, "steps")?)?;
        let lists = [("mean", &self.means[..]), ("square", &self.squares[..])];
        restore(state, &lists)?;
        self.steps = steps;
        Ok(())
    }

    fn update(&mut self, also: &[&Tensor]) -> Result<()> {
        self.check()?;
        let _off = no_grad();
        let gradients = with_gradients(&self.parameters)?;
        let (rate, (b1, b2), t) = (
            self.learning_rate,
            self.betas,
            self.steps.saturating_add(1) as f64,
        );
        let mut numbers = Numbers::new([
            1.0 - rate * self.weight_decay,
            1.0 - b1,
            b2,
            1.0 - b2,
            (1.0 - b2.powf(t)).sqrt(),
            self.eps,
            rate / (1.0 - b1.powf(t)),
        ]);
        let mut updates = Vec::new();
        for (k, gradient) in &gradients {
            let (p, m, v) = (&self.parameters[*k], &self.means[*k], &self.squares[*k]);
            let wide = p.dtype().accumulator();
            let [decay, new_1, old_2, new_2, correction, eps, rate] = &numbers.of(wide)?;
            let g = gradient.cast(wide)?;
            let decayed = p.cast(wide)?.mul(decay)?;
            let new_m = m.add(&g.sub(m)?.mul(new_1)?)?;
            let new_v = v.mul(old_2)?.add(&g.mul(&g)?.mul(new_2)?)?;
            let divisor = new_v.sqrt()?.div(correction)?.add(eps)?;
            let change = new_m.div(&divisor)?.mul(rate)?;
            updates.push((p, decayed.sub(&change)?.cast(p.dtype())?));
            updates.push((m, new_m));
            updates.push((v, new_v));
        }
        carry_out(&updates, &gradients, also)?;
        self.steps = self.steps.saturating_add(1);
        Ok(())
    }
}

/// Whether the entry of a saved state has the dtype in which it is kept.
fn fits_dtype(name: &str, saved: &Tensor, needed: DType) -> Result<()> {
    if saved.dtype() == needed {
        return Ok(());
    }
    let dtype = saved.dtype();
    let message = format!("the entry {name} is {dtype}, and {needed} is needed; cast it");
    Err(Error::DType {
        op: "set_state",
        message,
        site: Site::current(),
    })
}

/// The number of steps in a saved state.
fn saved_steps(saved: &Tensor) -> Result<u64> {
    // What f64 counts one by one; no training gets there, so more is a damaged state.
    const MOST: u64 = 1 << 53;
    fits_dtype("steps", saved, DType::U64)?;
    match saved.to_vec::<u64>()?[..] {
        [steps] if steps <= MOST => Ok(steps),
        ref other => {
            let message = format!(
                "the entry steps is one number of steps, at most 2^53, not {other:?}; the state \
                 is damaged or not AdamW's"
            );
            let site = Site::current();
            Err(Error::Shape {
                op: "set_state",
                message,
                site,
            })
        }
    }
}

/// Gives the tensors of named lists the values saved as `name.0`, `name.1`, ..., all or none.
fn restore(state: &[(String, Tensor)], lists: &[(&str, &[Tensor])]) -> Result<()> {
    let mut updates = Vec::new();
    for (name, list) in lists {
        for (k, target) in list.iter().enumerate() {
            let name = format!("{name}.{k}");
            let saved = entry(state, &name)?;
            if saved.shape() != target.shape() {
                let (shape, needed) = (saved.shape(), target.shape());
                let message = format!(
                    "the entry {name} has shape {shape}, and parameter {k} needs {needed}; the \
                     state is another optimiser's"
                );
                return Err(Error::Shape {
                    op: "set_state",
                    message,
                    site: Site::current(),
                });
            }
            fits_dtype(&name, saved, target.dtype())?;
            updates.push((target, saved));
        }
    }
    Tensor::assign_all(&updates, &[] as &[Tensor])
}
