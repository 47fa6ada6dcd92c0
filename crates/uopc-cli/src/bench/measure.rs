//! How a step is timed, and how busy other processes were meanwhile.
//!
//! The way of timing is that of the peers' scripts: a few steps to warm up, then samples of so many
//! steps that a sample takes 20 ms, in blocks of about half a second, until blocks in which nobody
//! else used the processors add up to the budget. The result is the median.

use std::fs;
use std::time::{Duration, Instant};

use crate::failure::Result;

/// Steps before anything is timed, unless they take longer than [`LONGEST_WARMUP`].
const WARMUP: usize = 3;
const LONGEST_WARMUP: Duration = Duration::from_secs(20);
/// A sample has so many steps that it takes this long, in seconds.
const SAMPLE: f64 = 0.02;
/// The most steps of a sample.
const STEPS: f64 = 2000.0;
/// Samples of a block take this long, in seconds, or the budget if that is less.
const BLOCK: f64 = 0.5;
/// Processors that others may use in a block that counts.
const QUIET: f64 = 0.12;
/// So many samples are needed in quiet blocks.
const SAMPLES: usize = 5;
/// After so many budgets all samples count.
const PATIENCE: f64 = 6.0;

/// The times of a step, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Half of the samples are below.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// Nine tenths of the samples are below.
    pub p90: f64,
    /// How many samples count.
    pub samples: usize,
    /// Steps of a sample, whose time is divided by that.
    pub steps_per_sample: usize,
    /// Whether others were busy all the time, so that their load is part of the result.
    pub noisy: bool,
}

/// Times a step, whose first calls were made already if they are of no interest. `progress` learns
/// which share of the time is over.
///
/// # Errors
/// When a step fails.
pub fn measure(
    budget: f64,
    mut step: impl FnMut() -> Result<()>,
    mut progress: impl FnMut(f64),
) -> Result<Timing> {
    let started = Instant::now();
    for _ in 0..WARMUP {
        step()?;
        if started.elapsed() > LONGEST_WARMUP {
            break;
        }
    }
    let once = seconds(&mut step)?;
    let steps = (SAMPLE / once.max(1e-7)).clamp(1.0, STEPS) as usize;
    let started = Instant::now();
    let (mut quiet, mut all, mut quiet_time) = (Vec::new(), Vec::new(), 0.0);
    while quiet_time < budget || quiet.len() < SAMPLES {
        let (others, begun) = (Others::begin(), Instant::now());
        let block = all.len();
        while begun.elapsed().as_secs_f64() < BLOCK.min(budget) || all.len() == block {
            let time = seconds(|| (0..steps).try_for_each(|_| step()))?;
            all.push(time / steps as f64);
        }
        if others.cores() <= QUIET {
            quiet.extend_from_slice(&all[block..]);
            quiet_time += begun.elapsed().as_secs_f64();
        }
        let over = started.elapsed().as_secs_f64() / budget;
        progress((quiet_time / budget).max(over / PATIENCE).min(1.0));
        if over > PATIENCE {
            break;
        }
    }
    let noisy = quiet.len() < SAMPLES && quiet.len() * 3 < all.len();
    let samples = if noisy { all } else { quiet };
    Ok(summary(samples, steps, noisy))
}

fn seconds(mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    f()?;
    Ok(started.elapsed().as_secs_f64())
}

fn summary(mut samples: Vec<f64>, steps_per_sample: usize, noisy: bool) -> Timing {
    samples.sort_by(f64::total_cmp);
    let n = samples.len();
    Timing {
        median: samples[n / 2],
        min: samples[0],
        p90: samples[(n * 9 / 10).min(n - 1)],
        samples: n,
        steps_per_sample,
        noisy,
    }
}

/// The processors that other processes use from some moment on. Where the system does not tell,
/// they use none.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    begun: Instant,
    busy: f64,
    own: f64,
}

/// Clock ticks in which Linux counts processor time, a second.
const TICKS: f64 = 100.0;

impl Others {
    /// From now on.
    pub fn begin() -> Others {
        Others {
            begun: Instant::now(),
            busy: busy().unwrap_or(0.0),
            own: own().unwrap_or(0.0),
        }
    }

    /// How many processors they used on average until now.
    pub fn cores(&self) -> f64 {
        let busy = busy().unwrap_or(0.0) - self.busy;
        let own = own().unwrap_or(0.0) - self.own;
        (busy - own).max(0.0) / self.begun.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Seconds of processor time that all processes have used since the machine was started.
fn busy() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> = numbers(text.lines().next()?.split_whitespace().skip(1));
    // user, nice, system, then idle and waiting, which do not count, irq, softirq, steal.
    let counted = [0, 1, 2, 5, 6, 7].map(|k| ticks.get(k).copied());
    let counted: Option<Vec<f64>> = counted.into_iter().collect();
    Some(counted?.iter().sum::<f64>() / TICKS)
}

/// Seconds of processor time that this process and those it has waited for have used.
fn own() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in parentheses that may hold anything.
    let fields: Vec<f64> = numbers(text.rsplit(')').next()?.split_whitespace().skip(1));
    // Without state: utime, stime, cutime and cstime are fields 14 to 17 of the line.
    Some(fields.get(10..14)?.iter().sum::<f64>() / TICKS)
}

fn numbers<'a>(words: impl Iterator<Item = &'a str>) -> Vec<f64> {
    words.map(|word| word.parse().unwrap_or(0.0)).collect()
}

/// The system's average number of processes that ran or wanted to in the last minute.
pub fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn the_summary_is_of_sorted_samples() {
        let timing = summary(vec![5.0, 1.0, 4.0, 2.0, 3.0], 7, false);
        assert_eq!((timing.min, timing.median, timing.p90), (1.0, 3.0, 5.0));
        assert_eq!((timing.samples, timing.steps_per_sample), (5, 7));
    }

    #[test]
    fn every_step_is_taken_and_the_share_grows() {
        let (mut steps, mut shares) = (0, Vec::new());
        let step = || {
            steps += 1;
            Ok(())
        };
        let timing = measure(1e-3, step, |share| shares.push(share)).unwrap();
        assert!(timing.min <= timing.median && timing.median <= timing.p90);
        assert!(steps >= WARMUP + 1 + timing.samples * timing.steps_per_sample);
        assert!(shares.is_sorted() && shares.last().is_some_and(|&s| s <= 1.0));
    }

    #[test]
    fn a_step_that_fails_ends_it() {
        let failed = measure(1.0, || Err(Failure::failed("no")), |_| ());
        assert_eq!(failed, Err(Failure::failed("no")));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells_who_was_busy() {
        assert!(busy().is_some_and(|s| s > 0.0));
        assert!(own().is_some());
        assert!(Others::begin().cores() >= 0.0);
    }
}
