//! `uopc bench`: times of workloads, in the names, shapes and form of the peers' scripts.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use uopc::Tensor;
use uopc::compile::Engine;
use uopc::debug::{MAX_THREADS, Settings};
use uopc::tensor::with_engine;

use super::whole;
use crate::bench::inputs::Source;
use crate::bench::measure::{Others, Timing, measure};
use crate::bench::peak::Peak;
use crate::bench::report::{First, Outcome, header};
use crate::bench::{Case, Step, WORKLOADS, Workload, find};
use crate::failure::{Failure, Result};
use crate::stages::checked_settings;
use crate::table::Table;
use crate::train::machine::cores;

const HELP: &str = "\
Without names all workloads run, one after another. After three steps to warm up, samples of at least
20 ms are taken until those during which other processes were quiet add up to the budget; the table
shows their median. `peak` is what that is of the multiply-adds or of the copied bytes that this
machine can do, measured at the start. `first ms` is the time from inputs in memory to the end of the
first step. `check` is the loss of the first step or the mean absolute value of the result: with the
same --inputs it is that of other frameworks.

--cold times first steps only, each in a process of its own: with an empty kernel cache, then again
with what that left there.

Examples:
  uopc bench matmul_512 gpt_nano_step
  uopc bench --json --threads 1 --budget 1 matmul_1024
  uopc bench --cold mlp_step";

/// Arguments of `uopc bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub struct Args {
    /// What to time [default: everything]
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Print one JSON object for each workload, nothing else
    #[arg(long)]
    json: bool,
    /// Threads that run kernels [default: one for each processor]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = number_of_threads)]
    threads: Option<usize>,
    /// Seconds of samples for each workload
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, allow_hyphen_values = true, value_parser = positive)]
    budget: f64,
    /// Read inputs from files in DIR instead of making random ones
    #[arg(long, value_name = "DIR")]
    inputs: Option<PathBuf>,
    /// Time first steps in processes of their own, with an empty and with a filled kernel cache
    #[arg(long)]
    cold: bool,
    /// List the workloads
    #[arg(long, conflicts_with_all = ["cold", "workloads"])]
    list: bool,
    /// Do not measure what the machine can do
    #[arg(long)]
    no_peak: bool,
    /// What --cold starts: one first step, as JSON
    #[arg(long, hide = true)]
    first: bool,
}

fn number_of_threads(text: &str) -> std::result::Result<usize, String> {
    match whole(text) {
        Ok(n) if (1..=MAX_THREADS).contains(&n) => Ok(n),
        _ => Err(format!("use a whole number from 1 to {MAX_THREADS}")),
    }
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(n) if n > 0.0 && n <= 86_400.0 => Ok(n),
        _ => Err("use a number of seconds above 0 and up to a day".to_string()),
    }
}

/// Times workloads.
///
/// # Errors
/// When a name is unknown, a workload can't be expressed or run, or output can't be written.
pub fn bench(args: &Args, out: &mut dyn Write) -> Result<()> {
    if args.list {
        return list(args.json, out);
    }
    let settings = settings(args)?;
    let chosen: Vec<&Workload> = match &args.workloads[..] {
        [] => WORKLOADS.iter().collect(),
        names => names.iter().map(|name| find(name)).collect::<Result<_>>()?,
    };
    let source = Source {
        folder: args.inputs.clone(),
    };
    if args.first {
        for workload in chosen {
            let (_, _, first) = begin(workload, &source, &settings)?;
            writeln!(out, "{}", first.to_json(workload.name, threads(&settings)))?;
        }
        return Ok(());
    }
    if args.cold {
        return cold(args, &chosen, out);
    }
    let peak = match args.no_peak {
        true => None,
        false => Peak::measure(&settings, threads(&settings))
            .inspect_err(|why| eprintln!("what the machine can do is not known: {why}"))
            .ok(),
    };
    if !args.json {
        let threads = match threads(&settings) {
            1 => "1 thread".to_string(),
            n => format!("{n} threads"),
        };
        if let Some(Peak { gflops, gb_s }) = peak {
            writeln!(
                out,
                "{threads}; at most {gflops:.0} GFLOP/s and {gb_s:.1} GB/s"
            )?;
        }
        writeln!(out, "{}", header())?;
        out.flush()?;
    }
    for workload in chosen {
        let outcome = run(workload, &source, &settings, args.budget, peak)?;
        match args.json {
            true => writeln!(out, "{}", outcome.to_json(workload))?,
            false => {
                writeln!(out, "{}", outcome.to_line(workload))?;
                write!(out, "{}", outcome.kernels_table())?;
            }
        }
        out.flush()?;
    }
    Ok(())
}

fn list(json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        for workload in WORKLOADS {
            let object = serde_json::json!({
                "workload": workload.name,
                "about": workload.about,
            });
            writeln!(out, "{object}")?;
        }
        return Ok(());
    }
    let mut table = Table::new(["workload", "what"]);
    for workload in WORKLOADS {
        table.row([workload.name, workload.about]);
    }
    Ok(write!(out, "{}", table.to_text())?)
}

/// The settings of the environment with the number of threads asked for.
fn settings(args: &Args) -> Result<Settings> {
    let mut settings = checked_settings()?.clone();
    settings.threads = args.threads.or(settings.threads);
    Ok(settings)
}

/// How many threads run kernels.
fn threads(settings: &Settings) -> usize {
    settings.threads.unwrap_or_else(cores)
}

/// Makes the workload's inputs, then everything else, and takes the first step. The clock starts
/// when the inputs are in host memory.
fn begin(
    workload: &Workload,
    source: &Source,
    settings: &Settings,
) -> Result<(Arc<Engine>, (Case, Tensor), First)> {
    let inputs = workload.inputs(source)?;
    let (others, started) = (Others::begin(), Instant::now());
    let engine = Arc::new(Engine::new(settings.clone())?);
    let begun = with_engine(&engine, || -> Result<(Case, Tensor)> {
        let mut case = workload.begin(&inputs)?;
        let value = leading((case.step)()?);
        Ok((case, value))
    })?;
    let first = First {
        seconds: started.elapsed().as_secs_f64(),
        others: others.cores(),
        cached: engine.stats().compiler_calls == 0,
    };
    Ok((engine, begun, first))
}

/// Times one workload.
fn run(
    workload: &'static Workload,
    source: &Source,
    settings: &Settings,
    budget: f64,
    peak: Option<Peak>,
) -> Result<Outcome> {
    let bar = Bar::new(workload.name);
    let (engine, (mut case, value), first) = begin(workload, source, settings)?;
    with_engine(&engine, || {
        let check = check(&value)?;
        // The result of a step lives until the next one has its own.
        let mut last = Some(value);
        let (mut kernels, launches) = (0, || engine.stats().launches);
        let mut timed = |step: &mut Step| -> Result<Timing> {
            let once = || {
                last = Some(leading(step()?));
                Ok(())
            };
            let timing = measure(budget, once, |share| bar.at(share))?;
            let before = launches();
            last = Some(leading(step()?));
            kernels = launches() - before;
            match kernels {
                0 => Err(Failure::failed(format!(
                    "{}: a step ran no kernel",
                    workload.name
                ))),
                _ => Ok(timing),
            }
        };
        let mut timing = timed(&mut case.step)?;
        let kernel_times = engine.kernel_times();
        let forward = match &mut case.forward {
            None => None,
            Some(forward) => {
                let alone = timed(forward)?;
                // Before and after, so that a slow moment does not fall to one side.
                let again = timed(&mut case.step)?;
                if again.median < timing.median {
                    timing = again;
                }
                Some(alone)
            }
        };
        Ok(Outcome {
            name: workload.name,
            threads: threads(settings),
            kernels,
            timing,
            forward,
            check,
            first,
            peak,
            kernel_times,
        })
    })
}

/// The result that is reported, of those that a step leaves.
fn leading(mut results: Vec<Tensor>) -> Tensor {
    results.swap_remove(0)
}

/// A scalar, or the mean of the absolute values of anything else.
fn check(value: &Tensor) -> Result<f64> {
    if value.rank() == 0 {
        return Ok(value.item()?);
    }
    let values = value.cast(uopc::DType::F32)?.to_vec::<f32>()?;
    let sum: f64 = values.iter().map(|v| f64::from(v.abs())).sum();
    Ok(sum / values.len() as f64)
}

/// Times first steps in processes of their own.
fn cold(args: &Args, chosen: &[&Workload], out: &mut dyn Write) -> Result<()> {
    let program = std::env::current_exe();
    let program = program.map_err(|e| Failure::failed(format!("this program's file: {e}")))?;
    if program.file_stem().is_none_or(|name| name != "uopc") {
        return Err(Failure::failed(
            "--cold starts processes of the program uopc; run that program itself",
        ));
    }
    let mut table = Table::new(["workload", "empty cache s", "filled cache s"]);
    for workload in chosen {
        let folder = tempfile::tempdir();
        let folder = folder.map_err(|e| Failure::failed(format!("a temporary folder: {e}")))?;
        let mut times = Vec::new();
        for _ in 0..2 {
            let mut child = Command::new(&program);
            child.args(["bench", "--first", workload.name]);
            if let Some(threads) = args.threads {
                child.args(["--threads", &threads.to_string()]);
            }
            if let Some(inputs) = &args.inputs {
                child.arg("--inputs").arg(inputs);
            }
            let output = child.env("UOPC_CACHE_DIR", folder.path()).output();
            let output = output.map_err(|e| Failure::file(&program, "can't be run", &e))?;
            if !output.status.success() {
                let text = String::from_utf8_lossy(&output.stderr);
                let text = text.trim().trim_start_matches("error: ");
                return Err(Failure::failed(format!("{}: {text}", workload.name)));
            }
            let line = String::from_utf8_lossy(&output.stdout);
            let object: Value = serde_json::from_str(&line)
                .map_err(|e| Failure::failed(format!("{}: {e}", workload.name)))?;
            if args.json {
                writeln!(out, "{}", line.trim())?;
                out.flush()?;
            }
            times.push(object["cold_s"].as_f64().unwrap_or(f64::NAN));
        }
        let [empty, filled] = [times[0], times[1]].map(|s| format!("{s:.3}"));
        table.row([workload.name, &empty, &filled]);
    }
    if !args.json {
        write!(out, "{}", table.to_text())?;
    }
    Ok(())
}

/// What is going on, on a terminal's standard error.
struct Bar(ProgressBar);

impl Bar {
    fn new(name: &'static str) -> Bar {
        let bar = ProgressBar::new(100);
        let style = ProgressStyle::with_template("{prefix} {wide_bar:.cyan/dim} {msg}");
        let style = style.expect("the template is well-formed");
        bar.set_style(style.progress_chars("━╸─"));
        bar.set_prefix(name);
        bar.set_message("first step");
        bar.enable_steady_tick(Duration::from_millis(100));
        Bar(bar)
    }

    fn at(&self, share: f64) {
        // A thread that draws would be part of what is timed.
        self.0.disable_steady_tick();
        self.0.set_message("timing");
        self.0.set_position((share * 100.0) as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
