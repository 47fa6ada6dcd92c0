//! Optimisers: they compute new parameter values from gradients, all as one plan.
//!
//! Learning rates, bias corrections and the like are numbers in a small buffer that each step
//! fills anew. They never become constants of the graph, so every step has the graph of the one
//! before and finds its plan.
//!
//! What all optimisers have in common is in [`Descent`]; what makes one of them is an
//! [`UpdateRule`].

mod adam;
mod muon;
mod rmsprop;
mod sgd;

pub use adam::{Adam, AdamRule, AdamW, AdamWRule};
pub use muon::{Muon, MuonRule, MuonScale};
pub use rmsprop::{RmsProp, RmsPropRule};
pub use sgd::{Sgd, SgdRule};

use std::fmt;

use super::saved::{entry, restore, saved_rates, saved_steps};
use crate::error::Result;
use crate::tensor::{DType, Error, Site, Tensor, no_grad};

/// What all optimisers do.
pub trait Optimizer {
    /// The parameters that it updates, group after group.
    fn parameters(&self) -> &[Tensor];

    /// The learning rate, that of the first group.
    fn learning_rate(&self) -> f64;

    /// Changes the learning rate of all groups for the steps to come. One that is negative or not
    /// finite is refused by [`check`](Self::check), and so by the next step.
    fn set_learning_rate(&mut self, learning_rate: f64);

    /// The learning rate of each group.
    fn learning_rates(&self) -> Vec<f64>;

    /// Changes the learning rate of each group; those without a new one keep theirs.
    fn set_learning_rates(&mut self, learning_rates: &[f64]);

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

/// Which numbers a setting may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// From 0 on, all that are finite.
    Amount,
    /// At least 0 and below 1.
    Share,
}

/// How one kind of optimiser computes: a rule with its settings, among them the learning rate.
pub trait UpdateRule: Clone + fmt::Debug {
    /// The optimiser's name in messages.
    const NAME: &'static str;

    /// Whether the number of steps is part of its state.
    const COUNTS_STEPS: bool;

    /// The learning rate.
    fn rate(&mut self) -> &mut f64;

    /// The settings by name, each with the numbers that it may be.
    fn settings(&self) -> Vec<(&'static str, f64, Range)>;

    /// What it remembers of each parameter, by name: tensors of the parameter's shape, 0 at first.
    fn memory(&self) -> &'static [&'static str];

    /// The numbers of step t, from 1, which reach [`update`](Self::update) as data. Their count
    /// never changes.
    fn numbers(&self, step: f64) -> Vec<f64>;

    /// Refuses a parameter that the rule is not made for.
    ///
    /// # Errors
    /// When it does not fit.
    fn fits(&self, parameter: &Tensor) -> Result<()> {
        let _ = parameter;
        Ok(())
    }

    /// The new value of a parameter, and of what is remembered of it, from the old ones, the
    /// gradient and the numbers of the step. All are in the dtype in which updates are computed.
    ///
    /// # Errors
    /// When the graph can't be built.
    fn update(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        memory: &[Tensor],
        numbers: &[Tensor],
    ) -> Result<(Tensor, Vec<Tensor>)>;
}

/// An optimiser that follows a rule, with parameters in groups that differ in settings.
///
/// ```
/// use uopc::{Tensor, nn::{AdamW, Optimizer}};
///
/// let weight = Tensor::ones([2, 2])?.requires_grad()?;
/// let bias = Tensor::zeros([2])?.requires_grad()?;
/// let optimizer = AdamW::new(vec![weight], 1e-3)?.weight_decay(0.1);
/// let optimizer = optimizer.and(AdamW::new(vec![bias], 1e-4)?.weight_decay(0.0))?;
/// assert_eq!(optimizer.learning_rates(), [1e-3, 1e-4]);
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Debug)]
pub struct Descent<R> {
    /// Those of all groups.
    parameters: Vec<Tensor>,
    groups: Vec<Group<R>>,
    /// What is remembered of each parameter.
    memory: Vec<Vec<Tensor>>,
    steps: u64,
}

/// Parameters that share settings.
#[derive(Debug)]
struct Group<R> {
    rule: R,
    /// How many they are.
    count: usize,
}

impl<R: UpdateRule> Descent<R> {
    /// An optimiser of one group.
    ///
    /// # Errors
    /// When a tensor is no parameter, is named twice, or does not fit the rule.
    #[track_caller]
    pub fn of(rule: R, parameters: Vec<Tensor>) -> Result<Descent<R>> {
        let _site = Site::caller().enter();
        checked(&parameters)?;
        parameters.iter().try_for_each(|p| rule.fits(p))?;
        let memory = parameters.iter().map(|p| zeros_for(p, rule.memory().len()));
        Ok(Descent {
            memory: memory.collect::<Result<_>>()?,
            groups: vec![Group {
                rule,
                count: parameters.len(),
            }],
            parameters,
            steps: 0,
        })
    }

    /// With the groups of another optimiser of this kind behind its own.
    ///
    /// # Errors
    /// When a parameter is in both, or they have taken different numbers of steps.
    #[track_caller]
    pub fn and(mut self, other: Descent<R>) -> Result<Descent<R>> {
        let _site = Site::caller().enter();
        if self.steps != other.steps {
            let (a, b) = (self.steps, other.steps);
            return Err(super::setting_error(format!(
                "{}: groups after {a} and after {b} steps can't be joined; join new ones",
                R::NAME
            )));
        }
        self.parameters.extend(other.parameters);
        checked(&self.parameters)?;
        self.groups.extend(other.groups);
        self.memory.extend(other.memory);
        Ok(self)
    }

    /// The settings of each group, and how many parameters it has.
    pub fn groups(&self) -> impl Iterator<Item = (&R, usize)> {
        self.groups.iter().map(|group| (&group.rule, group.count))
    }

    /// How many steps were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The settings of all groups changed.
    fn with(mut self, change: impl Fn(&mut R)) -> Descent<R> {
        self.groups.iter_mut().for_each(|g| change(&mut g.rule));
        self
    }

    /// [`with`](Self::with) for settings on which it depends what is remembered.
    fn with_memory(self, change: impl Fn(&mut R)) -> Result<Descent<R>> {
        let mut changed = self.with(change);
        let needs = changed.groups.iter();
        let needs = needs.flat_map(|g| std::iter::repeat_n(g.rule.memory().len(), g.count));
        for (k, n) in needs.enumerate() {
            changed.memory[k] = zeros_for(&changed.parameters[k], n)?;
        }
        Ok(changed)
    }

    /// The number of the group of each parameter.
    fn group_of_each(&self) -> impl Iterator<Item = usize> {
        let groups = self.groups.iter().enumerate();
        groups.flat_map(|(k, group)| std::iter::repeat_n(k, group.count))
    }

    /// What is remembered, as the saved state names it.
    fn named_memory(&self) -> Vec<(String, Tensor)> {
        let mut named = Vec::new();
        for slot in 0..self.memory.iter().map(Vec::len).max().unwrap_or(0) {
            for (k, (group, memory)) in self.group_of_each().zip(&self.memory).enumerate() {
                let names = self.groups[group].rule.memory();
                if let (Some(name), Some(t)) = (names.get(slot), memory.get(slot)) {
                    named.push((format!("{name}.{k}"), t.clone()));
                }
            }
        }
        named
    }
}

impl<R: UpdateRule> Optimizer for Descent<R> {
    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rates()[0]
    }

    fn set_learning_rate(&mut self, learning_rate: f64) {
        let all = self.groups.iter_mut();
        all.for_each(|group| *group.rule.rate() = learning_rate);
    }

    fn learning_rates(&self) -> Vec<f64> {
        let rates = self.groups.iter();
        rates.map(|group| *group.rule.clone().rate()).collect()
    }

    fn set_learning_rates(&mut self, learning_rates: &[f64]) {
        for (group, rate) in self.groups.iter_mut().zip(learning_rates) {
            *group.rule.rate() = *rate;
        }
    }

    fn check(&self) -> Result<()> {
        for group in &self.groups {
            in_range(R::NAME, &group.rule.settings())?;
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<(String, Tensor)>> {
        let rates = Tensor::from(self.learning_rates());
        let mut state = vec![("rates".to_string(), rates)];
        if R::COUNTS_STEPS {
            let steps = Tensor::from_slice(&[self.steps], ())?;
            state.push(("steps".to_string(), steps));
        }
        state.extend(self.named_memory());
        Ok(state)
    }

    fn set_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let steps = match R::COUNTS_STEPS {
            true => saved_steps(entry(state, "steps")?, R::NAME)?,
            false => self.steps,
        };
        let rates = saved_rates("rates", entry(state, "rates")?, self.groups.len())?;
        restore(state, &self.named_memory())?;
        self.steps = steps;
        self.set_learning_rates(&rates);
        Ok(())
    }

    fn update(&mut self, also: &[&Tensor]) -> Result<()> {
        self.check()?;
        let _off = no_grad();
        let gradients = with_gradients(&self.parameters)?;
        let step = self.steps.saturating_add(1) as f64;
        let mut values = Vec::new();
        let mut begins = Vec::new();
        for group in &self.groups {
            begins.push(values.len());
            values.extend(group.rule.numbers(step));
        }
        let mut numbers = Numbers::new(values);
        let groups: Vec<usize> = self.group_of_each().collect();
        let mut updates = Vec::new();
        for (k, gradient) in &gradients {
            let (p, memory) = (&self.parameters[*k], &self.memory[*k]);
            let wide = p.dtype().accumulator();
            let end = begins.get(groups[*k] + 1).copied();
            let numbers = numbers.of(wide)?;
            let own = &numbers[begins[groups[*k]]..end.unwrap_or(numbers.len())];
            let rule = &self.groups[groups[*k]].rule;
            let (value, new) = rule.update(&p.cast(wide)?, &gradient.cast(wide)?, memory, own)?;
            updates.extend(memory.iter().zip(new));
            updates.push((p, value.cast(p.dtype())?));
        }
        carry_out(&updates, &gradients, also)?;
        self.steps = self.steps.saturating_add(1);
        Ok(())
    }
}

/// Looks at the settings of an optimiser: `(name, value, range)`.
fn in_range(optimizer: &str, settings: &[(&str, f64, Range)]) -> Result<()> {
    for (name, value, range) in settings {
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

/// Refuses a list in which not each tensor is a parameter of its own.
fn checked(parameters: &[Tensor]) -> Result<()> {
    let refused = |message: String| {
        let site = Site::current();
        Err(Error::Gradient { message, site })
    };
    if parameters.is_empty() {
        return refused("there is no parameter to update; the list is empty".into());
    }
    let mut seen = std::collections::BTreeSet::new();
    for (k, p) in parameters.iter().enumerate() {
        if !p.is_parameter() {
            return refused(format!(
                "tensor {k} in the list, of shape {}, is no parameter; make it with requires_grad",
                p.shape()
            ));
        }
        if !seen.insert(p.id()) {
            return refused(format!(
                "parameter {k} in the list is there twice; name each once"
            ));
        }
    }
    Ok(())
}

/// Zeros in memory, of the shape of a parameter and in the dtype in which updates are computed.
fn zeros_for(p: &Tensor, count: usize) -> Result<Vec<Tensor>> {
    let dtype = p.dtype().accumulator();
    let zeros = || Tensor::from_bytes(&vec![0; p.numel() * dtype.size()], dtype, p.shape());
    (0..count).map(|_| zeros()).collect()
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
struct Numbers {
    buffer: Tensor,
    count: usize,
    read: Vec<(DType, Vec<Tensor>)>,
}

impl Numbers {
    fn new(values: Vec<f64>) -> Numbers {
        Numbers {
            count: values.len(),
            buffer: Tensor::from(values),
            read: Vec::new(),
        }
    }

    /// The numbers in that dtype.
    fn of(&mut self, dtype: DType) -> Result<&[Tensor]> {
        let place = match self.read.iter().position(|(d, _)| *d == dtype) {
            Some(place) => place,
            None => {
                let numbers = (0..self.count).map(|k| self.buffer.get(k)?.cast(dtype));
                self.read.push((dtype, numbers.collect::<Result<_>>()?));
                self.read.len() - 1
            }
        };
        Ok(&self.read[place].1)
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
