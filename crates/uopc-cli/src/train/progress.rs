//! The bar on a terminal's standard error; elsewhere there is none.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::{Event, Plan};

/// The bar of a run. It draws itself only where standard error is a terminal, without colours if
/// `NO_COLOR` is set.
pub struct Bar {
    bar: ProgressBar,
    /// Whether a step was done, from which the time that is left can be guessed.
    moving: bool,
}

impl Bar {
    /// A bar over all steps of the run.
    pub fn new(plan: &Plan) -> Bar {
        let bar = ProgressBar::new(plan.epochs.saturating_mul(plan.steps));
        bar.set_style(style("{prefix} {wide_bar:.cyan/dim} {msg}"));
        bar.set_prefix(format!(
            "epoch {}/{}",
            plan.done / plan.steps + 1,
            plan.epochs
        ));
        bar.set_position(plan.done);
        bar.set_message("compiling");
        bar.enable_steady_tick(Duration::from_millis(100));
        Bar { bar, moving: false }
    }

    /// Shows what has happened.
    pub fn update(&mut self, plan: &Plan, event: &Event) {
        if let Event::Step(step) = event {
            if !std::mem::replace(&mut self.moving, true) {
                self.bar
                    .set_style(style("{prefix} {wide_bar:.cyan/dim} {msg}  ETA {eta}"));
                self.bar.reset_eta();
            }
            self.bar.set_position(
                (step.epoch - 1)
                    .saturating_mul(plan.steps)
                    .saturating_add(step.step),
            );
            self.bar
                .set_prefix(format!("epoch {}/{}", step.epoch, plan.epochs));
            let accuracy = match step.test_accuracy {
                Some(share) => format!("accuracy {:.2}%  ", share * 100.0),
                None => String::new(),
            };
            let rate = thousands(step.samples_per_second as u64);
            let loss = step.mean_loss;
            self.bar
                .set_message(format!("loss {loss:.4}  {accuracy}{rate} samples/s"));
        }
    }

    /// Runs `f`, which prints, while the bar is not in the way.
    pub fn aside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.bar.suspend(f)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A look for the bar, which takes the room that the words leave.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style
        .expect("the templates are well-formed")
        .progress_chars("━╸─")
}

/// A number with commas between its thousands.
///
/// ```
/// use uopc_cli::train::progress::thousands;
///
/// assert_eq!(thousands(1437), "1,437");
/// assert_eq!(thousands(12), "12");
/// ```
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
