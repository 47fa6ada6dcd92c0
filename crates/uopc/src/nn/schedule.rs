//! Schedules of learning rates: functions of the number of steps.
//!
//! Each schedule is a formula for the rate after so many steps, given the rate at which the
//! optimiser was made. Rates are data of a step's plan, so changing them compiles nothing.

use std::f64::consts::PI;

use super::optim::Optimizer;
use super::saved::{entry, saved_rates, saved_words};
use super::setting_error;
use crate::error::Result;
use crate::tensor::{Site, Tensor};

/// A learning rate as a function of the number of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// The base rate times `factor` for the first `steps` steps, then the base rate.
    Constant {
        /// What the rate is multiplied by.
        factor: f64,
        /// For how long.
        steps: u64,
    },
    /// The base rate times `gamma` once for each `every` steps.
    Step {
        /// After how many steps the rate changes.
        every: u64,
        /// What it is multiplied by.
        gamma: f64,
    },
    /// The base rate times `gamma` once for each of these steps that was reached.
    MultiStep {
        /// After which steps the rate changes.
        milestones: Vec<u64>,
        /// What it is multiplied by.
        gamma: f64,
    },
    /// The base rate times `gamma` to the number of steps.
    Exponential {
        /// What it is multiplied by in each step.
        gamma: f64,
    },
    /// Down from the base rate to `least` along half a period of a cosine, and up again:
    /// `least + (base - least) (1 + cos(pi t / steps)) / 2`.
    Cosine {
        /// How many steps down.
        steps: u64,
        /// The rate down there.
        least: f64,
    },
    /// The base rate times a factor that goes from `start` to `end` in a straight line, and stays:
    /// a warm-up.
    Linear {
        /// The factor of the first step.
        start: f64,
        /// The factor from step `steps` on.
        end: f64,
        /// How many steps the line takes.
        steps: u64,
    },
    /// Up from `max / div` to `max` in the first share `warm` of the steps, then down to
    /// `max / div / final_div`, along cosines or lines (Smith). The base rate does not count.
    OneCycle {
        /// The largest rate.
        max: f64,
        /// How many steps in all.
        steps: u64,
        /// Which share of them goes up.
        warm: f64,
        /// Through what the largest rate is divided at first.
        div: f64,
        /// And through what that is divided at the end.
        final_div: f64,
        /// Whether rates move along lines and not along cosines.
        linear: bool,
    },
    /// Schedules one after the other: each begins anew at its milestone.
    Sequence {
        /// The schedules.
        parts: Vec<Schedule>,
        /// The steps at which the second and later ones begin.
        milestones: Vec<u64>,
    },
}

impl Schedule {
    /// A warm-up in a straight line from almost 0 over some steps, and then another schedule.
    ///
    /// ```
    /// use uopc::nn::Schedule;
    ///
    /// let schedule = Schedule::warm_up(10, Schedule::Cosine { steps: 90, least: 0.0 });
    /// let rate = |step| schedule.rate(1.0, step);
    /// assert_eq!((rate(0), rate(4), rate(10)), (0.1, 0.5, 1.0));
    /// assert!(rate(100) < 1e-12);
    /// ```
    pub fn warm_up(steps: u64, then: Schedule) -> Schedule {
        let start = 1.0 / steps.max(1) as f64;
        let up = Schedule::Linear {
            start,
            end: 1.0,
            steps: steps.saturating_sub(1),
        };
        Schedule::Sequence {
            parts: vec![up, then],
            milestones: vec![steps],
        }
    }

    /// The rate after so many steps, for a base rate.
    pub fn rate(&self, base: f64, step: u64) -> f64 {
        // A sequence within a sequence is read on from where it begins.
        let (mut schedule, mut step) = (self, step);
        while let Schedule::Sequence { parts, milestones } = schedule {
            let part = milestones.iter().take_while(|&&m| m <= step).count();
            let part = part.min(parts.len().saturating_sub(1));
            let Some(next) = parts.get(part) else {
                return base;
            };
            if part > 0 {
                step -= milestones[part - 1];
            }
            schedule = next;
        }
        let power = |gamma: f64, n: u64| gamma.powf(n as f64);
        match schedule {
            Schedule::Constant { factor, steps } => match step < *steps {
                true => base * factor,
                false => base,
            },
            Schedule::Step { every, gamma } => base * power(*gamma, step / every.max(&1)),
            Schedule::MultiStep { milestones, gamma } => {
                let reached = milestones.iter().filter(|&&m| m <= step).count();
                base * power(*gamma, reached as u64)
            }
            Schedule::Exponential { gamma } => base * power(*gamma, step),
            Schedule::Cosine { steps, least } => {
                let turn = PI * step as f64 / (*steps).max(1) as f64;
                along_cosine(base, *least, turn)
            }
            Schedule::Linear { start, end, steps } => {
                let share = match *steps {
                    0 => 1.0,
                    n => step.min(n) as f64 / n as f64,
                };
                base * (start + (end - start) * share)
            }
            Schedule::OneCycle {
                max,
                steps,
                warm,
                div,
                final_div,
                linear,
            } => {
                let (first, last) = (max / div, max / div / final_div);
                let peak = warm * *steps as f64 - 1.0;
                let end = (steps.saturating_sub(1)) as f64;
                let t = (step as f64).min(end);
                let (from, to, share) = match t <= peak {
                    true => (first, *max, share_of(t, peak)),
                    false => (*max, last, share_of(t - peak, end - peak)),
                };
                match linear {
                    true => from * (1.0 - share) + to * share,
                    false => along_cosine(from, to, PI * share),
                }
            }
            Schedule::Sequence { .. } => base,
        }
    }

    /// Looks at the numbers of a schedule.
    ///
    /// # Errors
    /// When one is not finite or out of its range, or a sequence has not one milestone less than
    /// parts, in rising order.
    pub fn check(&self) -> Result<()> {
        let mut open = vec![self];
        while let Some(schedule) = open.pop() {
            let amount = |name: &str, value: f64, least: f64| match value.is_finite()
                && value >= least
            {
                true => Ok(()),
                false => Err(setting_error(format!(
                    "schedule: {name} is {value}; a finite number that is at least {least} is needed"
                ))),
            };
            match schedule {
                Schedule::Constant { factor, .. } => amount("factor", *factor, 0.0)?,
                Schedule::Step { every, gamma } => {
                    amount("the number of steps", *every as f64, 1.0)?;
                    amount("gamma", *gamma, 0.0)?;
                }
                Schedule::MultiStep { gamma, .. } | Schedule::Exponential { gamma } => {
                    amount("gamma", *gamma, 0.0)?;
                }
                Schedule::Cosine { steps, least } => {
                    amount("the number of steps", *steps as f64, 1.0)?;
                    amount("the least rate", *least, 0.0)?;
                }
                Schedule::Linear { start, end, .. } => {
                    amount("the first factor", *start, 0.0)?;
                    amount("the last factor", *end, 0.0)?;
                }
                Schedule::OneCycle {
                    max,
                    steps,
                    warm,
                    div,
                    final_div,
                    ..
                } => {
                    amount("the largest rate", *max, 0.0)?;
                    amount("the number of steps", *steps as f64, 1.0)?;
                    amount("the share of the warm-up", *warm, 0.0)?;
                    amount("what is left after the warm-up", 1.0 - warm, 0.0)?;
                    amount("the first divisor", *div, f64::MIN_POSITIVE)?;
                    amount("the last divisor", *final_div, f64::MIN_POSITIVE)?;
                }
                Schedule::Sequence { parts, milestones } => {
                    let rising = milestones.windows(2).all(|pair| pair[0] < pair[1]);
                    if parts.len() != milestones.len() + 1 || !rising {
                        return Err(setting_error(format!(
                            "schedule: {} parts and milestones {milestones:?}; one milestone, in \
                             rising order, is needed between each two parts",
                            parts.len()
                        )));
                    }
                    open.extend(parts);
                }
            }
        }
        Ok(())
    }
}

/// From one rate to another along half a period of a cosine; exact at both ends.
fn along_cosine(from: f64, to: f64, turn: f64) -> f64 {
    from * (1.0 + turn.cos()) / 2.0 + to * (1.0 - turn.cos()) / 2.0
}

fn share_of(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 1.0 }
}

/// A schedule at work: it sets an optimiser's rates and counts steps.
///
/// ```
/// use uopc::{Tensor, nn::{Optimizer, Schedule, Scheduler, Sgd}};
///
/// let w = Tensor::ones([2])?.requires_grad()?;
/// let mut optimizer = Sgd::new(vec![w], 0.1)?;
/// let halved = Schedule::Step { every: 2, gamma: 0.5 };
/// let mut scheduler = Scheduler::new(halved, &mut optimizer)?;
/// let mut rates = vec![];
/// for _ in 0..4 {
///     // ... backward and step ...
///     rates.push(optimizer.learning_rate());
///     scheduler.step(&mut optimizer);
/// }
/// assert_eq!(rates, [0.1, 0.1, 0.05, 0.05]);
/// # Ok::<(), uopc::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler {
    schedule: Schedule,
    /// The rates at which the optimiser's groups were made.
    base: Vec<f64>,
    steps: u64,
}

impl Scheduler {
    /// Takes the optimiser's rates as base rates, and gives it those of step 0.
    ///
    /// # Errors
    /// Those of [`Schedule::check`].
    #[track_caller]
    pub fn new(schedule: Schedule, optimizer: &mut dyn Optimizer) -> Result<Scheduler> {
        let _site = Site::caller().enter();
        let scheduler = Scheduler::of(schedule, optimizer.learning_rates())?;
        optimizer.set_learning_rates(&scheduler.rates());
        Ok(scheduler)
    }

    /// A scheduler for these base rates, which no optimiser knows yet.
    ///
    /// # Errors
    /// Those of [`Schedule::check`].
    #[track_caller]
    pub fn of(schedule: Schedule, base: Vec<f64>) -> Result<Scheduler> {
        let _site = Site::caller().enter();
        schedule.check()?;
        Ok(Scheduler {
            schedule,
            base,
            steps: 0,
        })
    }

    /// Counts a step, and gives the optimiser the rates of the next one.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.steps = self.steps.saturating_add(1);
        optimizer.set_learning_rates(&self.rates());
    }

    /// Counts a step.
    pub fn advance(&mut self) {
        self.steps = self.steps.saturating_add(1);
    }

    /// How many steps were counted.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The rate of each group now.
    pub fn rates(&self) -> Vec<f64> {
        let rates = self.base.iter();
        rates
            .map(|&base| self.schedule.rate(base, self.steps))
            .collect()
    }

    /// What it remembers: the number of steps and the base rates.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn state(&self) -> Result<Vec<(String, Tensor)>> {
        Ok(vec![
            ("steps".to_string(), Tensor::from_slice(&[self.steps], ())?),
            ("base".to_string(), Tensor::from(&self.base[..])),
        ])
    }

    /// Continues from a saved state. The optimiser's rates are saved with the optimiser.
    ///
    /// # Errors
    /// When an entry is missing or does not fit. Then nothing has changed.
    pub fn set_state(&mut self, state: &[(String, Tensor)]) -> Result<()> {
        let [steps] = saved_words("steps", entry(state, "steps")?)?;
        let base = saved_rates("base", entry(state, "base")?, self.base.len())?;
        (self.steps, self.base) = (steps, base);
        Ok(())
    }
}
