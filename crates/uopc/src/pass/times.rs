//! How long passes took, added up over all kernels of a plan, for `UOPC_TIME`.

use std::time::Duration;

/// One pass's share of a plan.
struct Row {
    pass: &'static str,
    time: Duration,
    runs: usize,
    /// Nodes that it was given and that it left, over all runs.
    before: usize,
    after: usize,
}

/// Times by pass, in the order in which passes ran first.
#[derive(Default)]
pub struct Times(Vec<Row>);

impl Times {
    /// Adds one run of a pass.
    pub fn add(&mut self, pass: &'static str, time: Duration, before: usize, after: usize) {
        let known = self.0.iter().position(|row| row.pass == pass);
        let k = known.unwrap_or_else(|| {
            self.0.push(Row {
                pass,
                time: Duration::ZERO,
                runs: 0,
                before: 0,
                after: 0,
            });
            self.0.len() - 1
        });
        let row = &mut self.0[k];
        row.time += time;
        row.runs += 1;
        row.before += before;
        row.after += after;
    }

    /// A line for each pass.
    pub fn lines(&self) -> Vec<String> {
        let line = |row: &Row| {
            let Row {
                pass,
                runs,
                before,
                after,
                ..
            } = row;
            let ms = row.time.as_secs_f64() * 1e3;
            let runs = match runs {
                1 => "1 run".to_string(),
                n => format!("{n} runs"),
            };
            format!("{pass}: {ms:.3} ms, {runs}, {before} -> {after} nodes")
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_pass_are_one_line() {
        let mut times = Times::default();
        times.add("kernelize", Duration::from_micros(1500), 7, 9);
        times.add("rangeify", Duration::from_micros(200), 4, 6);
        times.add("rangeify", Duration::from_micros(300), 5, 8);
        let expected = [
            "kernelize: 1.500 ms, 1 run, 7 -> 9 nodes",
            "rangeify: 0.500 ms, 2 runs, 9 -> 14 nodes",
        ];
        assert_eq!(times.lines(), expected);
    }
}
