//! Results as JSON lines in the form of the peers' scripts, and as lines of a table.

use serde_json::{Map, Value, json};

use uopc::runtime::executor::KernelTime;

use super::Workload;
use super::measure::{Timing, load};
use super::peak::Peak;
use crate::table::Table;

/// What was found out about a workload.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The workload.
    pub name: &'static str,
    /// Threads that ran kernels.
    pub threads: usize,
    /// Kernels that a step runs.
    pub kernels: u64,
    /// Times of a step.
    pub timing: Timing,
    /// Times of the loss alone, for a ratio.
    pub forward: Option<Timing>,
    /// The loss of the first step, or the mean of the absolute values of its result.
    pub check: f64,
    /// The first step with everything that leads to it, and how it was.
    pub first: First,
    /// What the machine can do, if that is known.
    pub peak: Option<Peak>,
    /// What each kernel took, where `UOPC_PROFILE` asks for it.
    pub kernel_times: Vec<KernelTime>,
}

impl Outcome {
    /// The kernels by the time that they took, for a terminal; nothing without a profile.
    pub fn kernels_table(&self) -> String {
        let total: f64 = self.kernel_times.iter().map(|k| k.seconds).sum();
        let mut sorted: Vec<&KernelTime> = self.kernel_times.iter().collect();
        sorted.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let mut table = Table::new(["kernel", "step", "runs", "us each", "share"]);
        for k in sorted.iter().filter(|k| k.runs > 0) {
            let each = k.seconds / k.runs as f64 * 1e6;
            table.row([
                &k.name,
                &k.step.to_string(),
                &k.runs.to_string(),
                &format!("{each:.1}"),
                &format!("{:.1}%", 100.0 * k.seconds / total),
            ]);
        }
        match self.kernel_times.is_empty() {
            true => String::new(),
            false => table.to_text(),
        }
    }
}

/// The first step: from inputs in host memory to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct First {
    /// Seconds.
    pub seconds: f64,
    /// Processors that others used meanwhile.
    pub others: f64,
    /// Whether the C compiler had nothing to do.
    pub cached: bool,
}

impl First {
    /// The fields of a JSON line.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("cold_s", rounded(self.seconds, 4)),
            ("cold_others", rounded(self.others, 2)),
            ("cached", json!(self.cached)),
        ]
    }

    /// One JSON object for the first step alone.
    pub fn to_json(&self, name: &str, threads: usize) -> String {
        let mut object = begun(name, threads);
        object.extend(self.fields().into_iter().map(|(k, v)| (k.to_string(), v)));
        Value::Object(object).to_string()
    }
}

/// The fields with which every line begins.
fn begun(name: &str, threads: usize) -> Map<String, Value> {
    let fields = [
        ("peer", json!("uopc")),
        ("variant", json!("default")),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("workload", json!(name)),
        ("cpus", json!(crate::train::machine::cores())),
        ("threads", json!(threads)),
    ];
    fields
        .into_iter()
        .map(|(k, v)| (k.to_string(), v))
        .collect()
}

/// A number to so many decimals.
fn rounded(number: f64, decimals: i32) -> Value {
    let factor = 10f64.powi(decimals);
    json!((number * factor).round() / factor)
}

/// A number to six significant digits, as the peers' checks are written.
fn six_digits(number: f64) -> Value {
    let text = format!("{number:.5e}");
    json!(text.parse::<f64>().unwrap_or(number))
}

impl Outcome {
    /// One JSON object.
    pub fn to_json(&self, workload: &Workload) -> String {
        let mut object = begun(self.name, self.threads);
        let mut put = |name: &str, value: Value| {
            object.insert(name.to_string(), value);
        };
        let timing = &self.timing;
        if let Some(forward) = &self.forward {
            put("forward_ms", rounded(forward.median * 1e3, 4));
            put("grad_ms", rounded(timing.median * 1e3, 4));
            put("ratio", rounded(timing.median / forward.median, 3));
            put("noisy", json!(timing.noisy || forward.noisy));
        } else {
            put("median_s", rounded(timing.median, 9));
            put("min_s", rounded(timing.min, 9));
            put("p90_s", rounded(timing.p90, 9));
            put("samples", json!(timing.samples));
            put("steps_per_sample", json!(timing.steps_per_sample));
            put("noisy", json!(timing.noisy));
            put("ms", rounded(timing.median * 1e3, 5));
            let work = workload.work();
            let rate = |amount: f64| rounded(amount / timing.median / 1e9, 2);
            if work.trains {
                put("steps_s", rounded(1.0 / timing.median, 2));
            }
            if work.tokens > 0.0 {
                put("tokens_s", rounded(work.tokens / timing.median, 2));
            }
            if work.flops > 0.0 {
                put("gflops", rate(work.flops));
            }
            if work.bytes > 0.0 {
                put("gb_s", rate(work.bytes));
            }
            if let Some(share) = self.share(workload) {
                put("percent_of_peak", rounded(share * 100.0, 1));
            }
        }
        if let Some(peak) = &self.peak {
            put("peak_gflops", rounded(peak.gflops, 1));
            put("peak_gb_s", rounded(peak.gb_s, 1));
        }
        for (name, value) in self.first.fields() {
            put(name, value);
        }
        put("kernels", json!(self.kernels));
        put("check", six_digits(self.check));
        if let Some(load) = load() {
            put("load1", rounded(load, 2));
        }
        Value::Object(object).to_string()
    }

    /// How much of what the machine can do the median is, at most 1 if both are measured well.
    fn share(&self, workload: &Workload) -> Option<f64> {
        let (work, peak) = (workload.work(), self.peak.as_ref()?);
        let least = work.flops / peak.gflops + work.bytes / peak.gb_s;
        (least > 0.0).then(|| least / 1e9 / self.timing.median)
    }

    /// A line of the table.
    pub fn to_line(&self, workload: &Workload) -> String {
        let work = workload.work();
        let median = self.timing.median;
        let rate = match &self.forward {
            Some(forward) => format!("{:.2} x forward", median / forward.median),
            None if work.flops > 0.0 => format!("{:.1} GFLOP/s", work.flops / median / 1e9),
            None if work.bytes > 0.0 => format!("{:.1} GB/s", work.bytes / median / 1e9),
            None => String::new(),
        };
        let share = self.share(workload);
        let share = share.map_or(String::new(), |s| format!("{:.0}%", s * 100.0));
        let noisy = self.timing.noisy || self.forward.is_some_and(|f| f.noisy);
        let cells = [
            format!("{:<27}", self.name),
            format!("{:>10}", milliseconds(median)),
            format!("{:>10}", milliseconds(self.timing.min)),
            format!("{rate:>16}"),
            format!("{share:>6}"),
            format!("{:>9}", milliseconds(self.first.seconds)),
            format!("  {:<13}", six_digits(self.check).to_string()),
            (if noisy { "noisy" } else { "" }).to_string(),
        ];
        cells.concat().trim_end().to_string()
    }
}

/// The header of the table.
pub fn header() -> String {
    format!(
        "{:<27}{:>10}{:>10}{:>16}{:>6}{:>9}  {}",
        "workload", "median ms", "least ms", "", "peak", "first ms", "check"
    )
}

/// Seconds as milliseconds, with four digits or so.
fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1e3;
    match ms {
        _ if ms >= 100.0 => format!("{ms:.0}"),
        _ if ms >= 1.0 => format!("{ms:.2}"),
        _ => format!("{ms:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::find;

    fn outcome(name: &'static str, median: f64) -> Outcome {
        let timing = Timing {
            median,
            min: median / 2.0,
            p90: median * 2.0,
            samples: 10,
            steps_per_sample: 3,
            noisy: false,
        };
        Outcome {
            name,
            threads: 2,
            kernels: 1,
            timing,
            forward: None,
            check: 18.058_712_3,
            first: First {
                seconds: 0.25,
                others: 0.0,
                cached: true,
            },
            kernel_times: Vec::new(),
            peak: Some(Peak {
                gflops: 200.0,
                gb_s: 40.0,
            }),
        }
    }

    #[test]
    fn a_line_has_the_fields_of_the_peers() {
        let workload = find("matmul_1024").unwrap();
        let text = outcome("matmul_1024", 2.147_483_648e-2).to_json(workload);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["workload"], "matmul_1024");
        assert_eq!(object["ms"], 21.47484);
        assert_eq!(object["gflops"], 100.0);
        assert_eq!(object["percent_of_peak"], 50.0);
        assert_eq!(object["check"], 18.0587);
        assert_eq!(object["cached"], true);
        let line = outcome("matmul_1024", 2.147_483_648e-2).to_line(workload);
        assert!(line.contains("21.47") && line.contains("50%"), "{line}");
    }

    #[test]
    fn bandwidth_counts_where_bytes_do() {
        let workload = find("softmax_4096x1024").unwrap();
        let text = outcome("softmax_4096x1024", 1.677_721_6e-3).to_json(workload);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["gb_s"], 20.0);
        assert_eq!(object["percent_of_peak"], 50.0);
        assert_eq!(object.get("gflops"), None);
    }

    #[test]
    fn a_ratio_is_of_two_medians() {
        let workload = find("grad_ratio_gpt_nano").unwrap();
        let mut outcome = outcome("grad_ratio_gpt_nano", 0.3);
        outcome.forward = Some(Timing {
            median: 0.1,
            ..outcome.timing
        });
        let object: Value = serde_json::from_str(&outcome.to_json(workload)).unwrap();
        assert_eq!(object["ratio"], 3.0);
        assert!(outcome.to_line(workload).contains("3.00 x forward"));
    }
}
