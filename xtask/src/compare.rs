//! Times workloads in uopc and in other frameworks, in turn, and prints ratios.
//!
//! Everybody has a process of its own for each turn and each workload. A turn of everybody is a round;
//! after several rounds (A B A B) the medians of the turns are compared, so that a slow minute of the
//! machine does not fall to one of them alone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process::{cargo, output, root, run, target_dir};

pub const USAGE: &str = "\
usage: cargo xtask perf compare [WORKLOAD ...] [options]

  --python PATH     the Python that has the other frameworks [python3]
  --peers LIST      of numpy, torch, torch_compile, jax, tinygrad [all that can be imported]
  --scripts DIR     the scripts for the workloads that bench/peers lacks [../shared/bench]
  --threads N       processors to run on [all]
  --budget SECONDS  samples for each turn [1]
  --rounds N        turns of everybody [3]
  --out FILE        where each result goes as a JSON line [perf/compare.jsonl in the target folder]
";

/// A framework, with the module that it needs.
struct Peer {
    name: &'static str,
    module: &'static str,
    /// Script and variant for the workloads of `--scripts`.
    script: &'static str,
    variant: &'static str,
}

const PEERS: &[Peer] = &[
    peer("numpy", "numpy", "bench_numpy.py", "default"),
    peer("torch", "torch", "bench_torch.py", "eager"),
    peer("torch_compile", "torch", "bench_torch.py", "compile"),
    peer("jax", "jax", "bench_jax.py", "jit"),
    peer("tinygrad", "tinygrad", "bench_tinygrad.py", "jit"),
];

const fn peer(
    name: &'static str,
    module: &'static str,
    script: &'static str,
    variant: &'static str,
) -> Peer {
    Peer {
        name,
        module,
        script,
        variant,
    }
}

/// What the command line says.
#[derive(Debug, PartialEq)]
struct Options {
    workloads: Vec<String>,
    python: String,
    peers: Option<Vec<String>>,
    scripts: PathBuf,
    threads: Option<usize>,
    budget: f64,
    rounds: usize,
    out: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[&str]) -> Result<Options> {
        let mut options = Options {
            workloads: Vec::new(),
            python: "python3".to_string(),
            peers: None,
            scripts: root().join("../shared/bench"),
            threads: None,
            budget: 1.0,
            rounds: 3,
            out: None,
        };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            if !arg.starts_with("--") {
                options.workloads.push(arg.to_string());
                continue;
            }
            let value = args.next();
            let value = value.with_context(|| format!("{arg} needs a value\n\n{USAGE}"))?;
            let wrong = || format!("{arg} {value}: that is no number for it");
            match arg {
                "--python" => options.python = value.to_string(),
                "--peers" => options.peers = Some(value.split(',').map(str::to_string).collect()),
                "--scripts" => options.scripts = value.into(),
                "--threads" => options.threads = Some(value.parse().with_context(wrong)?),
                "--budget" => options.budget = value.parse().with_context(wrong)?,
                "--rounds" => options.rounds = value.parse().with_context(wrong)?,
                "--out" => options.out = Some(value.into()),
                _ => bail!("{arg} is no option\n\n{USAGE}"),
            }
        }
        ensure!(
            options.rounds > 0 && options.budget > 0.0,
            "--rounds and --budget must be above 0"
        );
        for name in options.peers.iter().flatten() {
            let known = PEERS.iter().any(|p| p.name == name);
            ensure!(known, "`{name}` is no peer\n\n{USAGE}");
        }
        Ok(options)
    }
}

/// Runs the comparison.
pub fn compare(args: &[&str]) -> Result<()> {
    let options = Options::parse(args)?;
    let contest = Contest::new(options)?;
    let mut results: Results = BTreeMap::new();
    let mut file = File::create(&contest.out)
        .with_context(|| format!("can't write {}", contest.out.display()))?;
    for round in 0..contest.options.rounds {
        for workload in &contest.workloads {
            for contestant in contest.contestants(workload) {
                let Some(line) = contest.turn(&contestant, workload) else {
                    continue;
                };
                writeln!(file, "{line}")?;
                let shown = line["ms"].as_f64().or(line["ratio"].as_f64());
                eprintln!(
                    "round {}  {workload:<27} {contestant:<14} {}",
                    round + 1,
                    shown.map_or(String::new(), |n| n.to_string())
                );
                let turns = results.entry((workload.clone(), contestant));
                turns.or_default().push(line);
            }
        }
    }
    print!("{}", contest.table(&results));
    println!("\nall results: {}", contest.out.display());
    Ok(())
}

/// The lines of all turns by workload and contestant.
type Results = BTreeMap<(String, String), Vec<Value>>;

/// Who runs, and on what.
struct Contest {
    options: Options,
    program: PathBuf,
    /// Those of the peers whose module the Python has.
    peers: Vec<&'static Peer>,
    workloads: Vec<String>,
    /// Workloads for which this repository has scripts.
    own: Vec<String>,
    inputs: PathBuf,
    out: PathBuf,
}

const OURS: &str = "uopc";

/// This repository's scripts for other frameworks.
const SCRIPTS: &str = "bench/peers";

impl Contest {
    fn new(options: Options) -> Result<Contest> {
        let build = ["build", "--release", "--package", "uopc-cli", "--quiet"];
        run(&mut cargo(&build))?;
        let target = target_dir()?;
        let folder = target.join("perf");
        fs::create_dir_all(&folder)?;
        let program = target.join("release").join("uopc");
        let list = output(Command::new(&program).args(["bench", "--list", "--json"]))?;
        let mut all = Vec::new();
        for line in list.lines() {
            let row: Value = serde_json::from_str(line)?;
            all.push(row["workload"].as_str().unwrap_or_default().to_string());
        }
        let workloads = match &options.workloads[..] {
            [] => all,
            named => named.to_vec(),
        };
        let peers: Vec<&Peer> = PEERS
            .iter()
            .filter(|peer| match &options.peers {
                Some(chosen) => chosen.iter().any(|name| name == peer.name),
                None => true,
            })
            .filter(|peer| imports(&options.python, peer.module))
            .collect();
        if peers.is_empty() {
            eprintln!(
                "`{}` can import none of the peers; name another Python with --python",
                options.python
            );
        }
        let own = match imports(&options.python, "numpy") {
            true => own_workloads(&options.python)?,
            false => Vec::new(),
        };
        let out = options.out.clone();
        let contest = Contest {
            program,
            peers,
            workloads,
            own,
            inputs: folder.join("inputs"),
            out: out.unwrap_or_else(|| folder.join("compare.jsonl")),
            options,
        };
        contest.write_inputs()?;
        Ok(contest)
    }

    /// Who takes part in a workload: we do, and every peer that has a script for it.
    fn contestants(&self, workload: &str) -> Vec<String> {
        let scripts = self.own.iter().any(|w| w == workload) || self.options.scripts.is_dir();
        let peers = self.peers.iter().filter(|_| scripts);
        let names = peers.map(|peer| peer.name.to_string());
        [OURS.to_string()].into_iter().chain(names).collect()
    }

    /// Writes the inputs, so that everybody computes the same thing.
    fn write_inputs(&self) -> Result<()> {
        if !imports(&self.options.python, "numpy") {
            return Ok(());
        }
        let mut dump = self.python("dump.py");
        dump.arg(&self.inputs).args(&self.workloads);
        if self.options.scripts.is_dir() {
            dump.arg("--common").arg(&self.options.scripts);
        }
        run(&mut dump)
    }

    /// Python with one of this repository's scripts.
    fn python(&self, script: &str) -> Command {
        let mut command = Command::new(&self.options.python);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.arg(root().join(SCRIPTS).join(script));
        command
    }

    /// The line that one turn has given; none if it has no such workload or failed, which is told.
    fn turn(&self, contestant: &str, workload: &str) -> Option<Value> {
        let mut command = match contestant {
            OURS => self.ours(workload),
            name => self.peer(PEERS.iter().find(|p| p.name == name)?, workload),
        };
        let found = command.output();
        let text = found.as_ref().map(|o| String::from_utf8_lossy(&o.stdout));
        let line = text.ok().and_then(|text| {
            let last = text.lines().rfind(|line| line.starts_with('{'))?;
            serde_json::from_str(last).ok()
        });
        if line.is_none() {
            let why = match &found {
                Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
                Err(error) => error.to_string(),
            };
            let why = why.lines().next_back().unwrap_or("it printed nothing");
            eprintln!("{workload} in {contestant}: {why}");
        }
        line
    }

    fn ours(&self, workload: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["bench", "--json", workload]);
        command.args(["--budget", &self.options.budget.to_string()]);
        if let Some(threads) = self.options.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        if self.inputs.is_dir() {
            command.arg("--inputs").arg(&self.inputs);
        }
        command
    }

    fn peer(&self, peer: &Peer, workload: &str) -> Command {
        let budget = self.options.budget.to_string();
        if self.own.iter().any(|w| w == workload) {
            let mut command = self.python("peer.py");
            command.args([peer.name, workload, "--budget", &budget]);
            if let Some(threads) = self.options.threads {
                command.args(["--threads", &threads.to_string()]);
            }
            return command;
        }
        let mut command = match self.options.threads {
            None => Command::new(&self.options.python),
            Some(threads) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &format!("0-{}", threads - 1)]);
                command.arg(&self.options.python);
                command.env("OMP_NUM_THREADS", threads.to_string());
                command
            }
        };
        command.env("BENCH_BUDGET", budget);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.arg(self.options.scripts.join(peer.script));
        command.args([workload, "--variant", peer.variant]);
        command
    }

    /// A Markdown table: a row a workload, a column for each contestant.
    fn table(&self, results: &Results) -> String {
        let names: Vec<&str> = self.peers.iter().map(|p| p.name).collect();
        let mut text = format!(
            "\n| workload | uopc ms | of the peak | {} | best / uopc | |\n|---|---|---|{}---|---|\n",
            names.join(" | "),
            "---|".repeat(names.len())
        );
        for workload in &self.workloads {
            let turns = |name: &str| results.get(&(workload.clone(), name.to_string()));
            let Some(ours) = turns(OURS) else { continue };
            if ratio_cell(ours).is_some() {
                continue;
            }
            let row = Row::new(ours, names.iter().map(|n| turns(n)).collect());
            text += &format!("| {workload} {}|\n", row.cells());
        }
        text + &self.ratios(results)
    }

    /// A table of the workloads whose result is a ratio, with the two times that it is made of; empty
    /// if there are none.
    fn ratios(&self, results: &Results) -> String {
        let peers = self.peers.iter().map(|peer| peer.name);
        let names: Vec<&str> = [OURS].into_iter().chain(peers).collect();
        let mut rows = String::new();
        for workload in &self.workloads {
            let cells = names.iter().map(|name| {
                let lines = results.get(&(workload.clone(), name.to_string()));
                lines.and_then(|lines| ratio_cell(lines))
            });
            let cells: Vec<Option<String>> = cells.collect();
            if cells.iter().any(Option::is_some) {
                let cells = cells.iter().map(|cell| cell.as_deref().unwrap_or("-"));
                rows += &format!(
                    "| {workload} | {} |\n",
                    cells.collect::<Vec<_>>().join(" | ")
                );
            }
        }
        if rows.is_empty() {
            return rows;
        }
        let heads = names.join(" | ");
        let lines = "---|".repeat(names.len());
        format!(
            "\nloss and gradients / loss alone, in ms\n\n| workload | {heads} |\n|---|{lines}\n{rows}"
        )
    }
}

/// Medians of a contestant's turns at a ratio: both times and the ratio of the two.
fn ratio_cell(lines: &[Value]) -> Option<String> {
    let middle = |key| median(lines.iter().filter_map(|line| line[key].as_f64()).collect());
    let (gradients, loss) = (middle("grad_ms")?, middle("forward_ms")?);
    Some(format!(
        "{gradients:.2} / {loss:.2} = {:.2}",
        gradients / loss
    ))
}

/// A line of the table.
struct Row {
    ours: f64,
    percent: Option<f64>,
    peers: Vec<Option<f64>>,
    notes: Vec<&'static str>,
}

impl Row {
    fn new(ours: &[Value], peers: Vec<Option<&Vec<Value>>>) -> Row {
        let numbers = |lines: &[Value], key: &str| -> Vec<f64> {
            lines.iter().filter_map(|line| line[key].as_f64()).collect()
        };
        let time = |lines: &[Value]| median(numbers(lines, "ms"));
        let check = median(numbers(ours, "check"));
        let mut notes = Vec::new();
        let everybody = || peers.iter().flatten().flat_map(|lines| lines.iter());
        let differs = |line: &Value| match (line["check"].as_f64(), check) {
            (Some(theirs), Some(ours)) => (theirs - ours).abs() > 1e-3 * ours.abs().max(1e-6),
            _ => false,
        };
        if everybody().any(differs) {
            notes.push("other results");
        }
        if everybody().chain(ours).any(|line| line["noisy"] == true) {
            notes.push("noisy");
        }
        Row {
            ours: time(ours).unwrap_or(f64::NAN),
            percent: median(numbers(ours, "percent_of_peak")),
            peers: peers.iter().map(|lines| time(lines.as_deref()?)).collect(),
            notes,
        }
    }

    fn cells(&self) -> String {
        let number = |n: f64| match n {
            n if n >= 100.0 => format!("{n:.0}"),
            n if n >= 1.0 => format!("{n:.2}"),
            n => format!("{n:.4}"),
        };
        let percent = self.percent.map_or(String::new(), |p| format!("{p:.0}%"));
        let mut cells = vec![number(self.ours), percent];
        cells.extend(self.peers.iter().map(|p| p.map_or("-".to_string(), number)));
        let best = self.peers.iter().flatten().copied().reduce(f64::min);
        cells.push(best.map_or(String::new(), |best| format!("{:.2}", best / self.ours)));
        cells.push(self.notes.join(", "));
        cells.iter().map(|cell| format!("| {cell} ")).collect()
    }
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let n = numbers.len();
    match n {
        0 => None,
        _ => Some((numbers[(n - 1) / 2] + numbers[n / 2]) / 2.0),
    }
}

/// Whether that Python has the module, found without importing it.
fn imports(python: &str, module: &str) -> bool {
    let find =
        format!("import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)");
    let status = Command::new(python).args(["-c", &find]).status();
    status.is_ok_and(|status| status.success())
}

/// The workloads for which this repository has scripts.
fn own_workloads(python: &str) -> Result<Vec<String>> {
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.current_dir(root().join(SCRIPTS));
    let text = output(command.args(["-c", "import workloads; print(*workloads.NAMES)"]))?;
    Ok(text.split_whitespace().map(str::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_ratio_is_that_of_the_medians() {
        let line = |gradients: f64, loss: f64| json!({"grad_ms": gradients, "forward_ms": loss});
        let lines = [line(6.0, 2.0), line(9.0, 3.0), line(7.0, 4.0)];
        assert_eq!(ratio_cell(&lines).as_deref(), Some("7.00 / 3.00 = 2.33"));
        assert_eq!(ratio_cell(&[json!({"ms": 3.0})]), None);
    }

    #[test]
    fn options_are_read() {
        let args = [
            "matmul_512",
            "--peers",
            "torch,jax",
            "--rounds",
            "2",
            "--threads",
            "1",
        ];
        let options = Options::parse(&args).expect("all of these exist");
        assert_eq!(options.workloads, ["matmul_512"]);
        assert_eq!(
            options.peers,
            Some(vec!["torch".to_string(), "jax".to_string()])
        );
        assert_eq!((options.rounds, options.threads), (2, Some(1)));
        for wrong in [
            &["--rounds"][..],
            &["--rounds", "0"],
            &["--x", "1"],
            &["--peers", "x"],
        ] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_best_peer_is_compared_by_medians() {
        let lines = |times: &[f64], check: f64| -> Vec<Value> {
            let line = |ms: &f64| json!({"ms": ms, "check": check, "percent_of_peak": 50.0});
            times.iter().map(line).collect()
        };
        let (ours, a) = (lines(&[2.0, 1.0, 9.0], 1.0), lines(&[5.0, 4.0, 3.0], 1.0));
        let b = lines(&[8.0, 8.0], 1.0);
        let row = Row::new(&ours, vec![Some(&a), Some(&b), None]);
        assert_eq!(row.cells(), "| 2.00 | 50% | 4.00 | 8.00 | - | 2.00 |  ");
        let other = lines(&[8.0], 1.1);
        let row = Row::new(&ours, vec![Some(&other)]);
        assert!(row.cells().ends_with("| other results "), "{}", row.cells());
    }

    #[test]
    fn the_scripts_are_where_they_are_looked_for() {
        for script in ["dump.py", "peer.py", "timing.py", "workloads.py"] {
            assert!(root().join(SCRIPTS).join(script).is_file(), "{script}");
        }
    }
}
