//! The search over layouts: candidates for each kernel that takes long are timed in this process,
//! and the best is remembered on disk.
//!
//! Nothing needs it: the models of [`schedule`](crate::pass::schedule) choose well without, and no
//! candidate changes a bit. [`Settings::search`] turns it on. A plan that is made for the first time
//! then takes up to [`PLAN_TIME`] longer; other processes with the same cache folder find what was
//! chosen, and time nothing.
//!
//! ```
//! use uopc::compile::{Engine, RealizeOptions};
//! use uopc::debug::Settings;
//! use uopc::{DType, Tensor};
//!
//! let settings = Settings { search: 3, ..Settings::default() };
//! let engine = Engine::new(settings)?;
//! let a = Tensor::uniform([96, 96], -1.0, 1.0)?;
//! a.realize()?;
//! let product = a.matmul(&a)?;
//! engine.realize(&[product.uop().clone()], &RealizeOptions::default())?;
//! let stats = engine.stats();
//! println!("{} layouts of {} kernels", stats.candidates, stats.searched);
//! assert!(stats.candidates <= 3 * stats.searched);
//! # Ok::<(), uopc::Error>(())
//! ```

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use half::{bf16, f16};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::backend::c::toolchain::cpu;
use crate::debug::{Schedule, Settings};
use crate::error::{Error, Result};
use crate::ir::form::{LoopGraph, params};
use crate::ir::print::to_uir;
use crate::ir::{DType, UOp};
use crate::pass::explain::steps;
use crate::pass::pipeline::{Launch, of_layout};
use crate::pass::schedule::choice::{Choice, VERSION, choices};
use crate::pass::schedule::schedule_as;
use crate::runtime::cache::{Key, ObjectCache};
use crate::runtime::{Code, Device, Executable, Memory, Place, interrupt, team};

/// How long the candidates of one kernel are timed, at most; a run that has begun is ended.
pub const KERNEL_TIME: Duration = Duration::from_millis(200);
/// How long a plan's kernels are searched, at most; what has begun is ended. Those that the time
/// does not suffice for stay as the models want them, and the next process goes on with them.
pub const PLAN_TIME: Duration = Duration::from_secs(10);

/// Steps of a kernel from which on it is searched: some microseconds in vectors on two threads.
const LEAST_STEPS: u64 = 100_000;
/// Bytes of arguments and scratch memory up to which a kernel is searched.
const MOST_BYTES: usize = 1 << 30;
/// How many candidates are compiled at once: enough for a compiler on each processor.
const BATCH: usize = 32;
/// Runs of each candidate, at most; the fastest of them counts.
const ROUNDS: usize = 20;
/// Runs that a time needs to count.
const LEAST_RUNS: usize = 2;
/// A candidate that takes so much longer than the best is not run again.
const HOPELESS: f64 = 1.3;
/// A candidate must take less than this share of the default's time, as noise would do for more.
const BETTER: f64 = 0.95;

/// Finds and remembers layouts for an engine.
pub struct Search {
    /// How many layouts of a kernel are timed at most; none, if there is nothing to search.
    most: usize,
    cache: ObjectCache,
    /// What a choice depends on beside the kernel.
    conditions: String,
    /// What was chosen, by key. Locked during a search: two at once would time each other.
    known: Mutex<FxHashMap<String, Choice>>,
    kernels: AtomicU64,
    candidates: AtomicU64,
}

/// A kernel of a plan, however often it is launched.
struct Kernel {
    plain: LoopGraph,
    steps: u64,
    key: Key,
    choice: Option<Choice>,
}

/// A candidate, ready to be timed.
struct Candidate {
    /// Its kernel, by position among those that are searched.
    kernel: usize,
    choice: Choice,
    launch: Launch,
    /// Its code, and the number of its launch there.
    code: Option<(Rc<dyn Executable>, usize)>,
}

impl Search {
    /// What the settings ask for. An interpreter's time says nothing about layouts.
    pub fn new(settings: &Settings, device: &dyn Device) -> Search {
        let laid_out =
            settings.schedule == Schedule::Default && !settings.disable.contains("schedule");
        let on = settings.search > 1 && laid_out && device.name() == "c";
        let cache = match &settings.cache_dir {
            Some(folder) if on => ObjectCache::open(folder, settings.cache_limit),
            _ => ObjectCache::none(),
        };
        let threads = settings.threads.unwrap_or_else(team::available);
        let (machine, most) = (&settings.machine, settings.search);
        let cc = settings.cc.as_deref().unwrap_or_default();
        let conditions = format!("{cc} {} {machine:?} {threads} {most}", cpu());
        Search {
            most: if on { most } else { 0 },
            cache,
            conditions,
            known: Mutex::default(),
            kernels: AtomicU64::new(0),
            candidates: AtomicU64::new(0),
        }
    }

    /// Whether there is anything to do.
    pub fn is_on(&self) -> bool {
        self.most > 0
    }

    /// How many kernels were searched, and how many layouts were timed.
    pub fn counts(&self) -> (u64, u64) {
        (self.kernels.load(Relaxed), self.candidates.load(Relaxed))
    }

    /// Lays out the launches of a plan as is best, for all that is known or can be found out within
    /// [`PLAN_TIME`].
    ///
    /// # Errors
    /// [`Error::Interrupted`] if a check of this thread says so. A candidate that fails is left out.
    pub fn improve(
        &self,
        launches: &mut [Launch],
        settings: &Settings,
        device: &dyn Device,
    ) -> Result<()> {
        let mut known = interrupt::lock(&self.known)?;
        let mut number: FxHashMap<UOp, usize> = FxHashMap::default();
        let mut kernels: Vec<Kernel> = Vec::new();
        for launch in launches.iter() {
            let steps = steps(&launch.loops);
            if steps < LEAST_STEPS {
                continue;
            }
            let next = kernels.len();
            let k = *number.entry(launch.plain.sink().clone()).or_insert(next);
            match kernels.get_mut(k) {
                Some(kernel) => kernel.steps = kernel.steps.saturating_add(steps),
                None => kernels.push(self.kernel(&launch.plain, steps, &known)),
            }
        }
        // What takes most of the plan's time comes first.
        let mut open: Vec<&mut Kernel> = kernels.iter_mut().collect();
        open.retain(|kernel| kernel.choice.is_none());
        open.sort_by_key(|kernel| Reverse(kernel.steps));
        let deadline = Instant::now() + PLAN_TIME;
        let mut rest = &mut open[..];
        while !rest.is_empty() && Instant::now() < deadline {
            let batch = (BATCH / self.most).clamp(1, rest.len());
            let (now, later) = rest.split_at_mut(batch);
            self.search(now, settings, device, deadline)?;
            rest = later;
        }
        for kernel in open {
            if let Some(choice) = kernel.choice {
                self.cache.put(&kernel.key, choice.to_string().as_bytes());
                known.insert(kernel.key.hex(), choice);
            }
        }
        drop(known);
        for launch in launches {
            let kernel = number.get(launch.plain.sink()).map(|&k| &kernels[k]);
            let choice = kernel.and_then(|kernel| kernel.choice);
            if let Some(choice) = choice.filter(|choice| *choice != Choice::default()) {
                let layout = schedule_as(&launch.plain, &settings.machine, &choice);
                match layout.and_then(|layout| of_layout(&launch.plain, layout, settings)) {
                    Ok(better) => *launch = better,
                    Err(why) => skipped(&launch.plain, &choice, &why),
                }
            }
        }
        Ok(())
    }

    /// A kernel, with what is known of it.
    fn kernel(&self, plain: &LoopGraph, steps: u64, known: &FxHashMap<String, Choice>) -> Kernel {
        let text = to_uir(std::slice::from_ref(plain.sink()));
        let version = env!("CARGO_PKG_VERSION");
        let key = Key::new(&["layout", VERSION, version, &self.conditions, &text]);
        let remembered = || Choice::parse(&self.cache.note(&key)?);
        Kernel {
            plain: plain.clone(),
            steps,
            choice: known.get(&key.hex()).copied().or_else(remembered),
            key,
        }
    }

    /// Chooses for some kernels, whose candidates are compiled together.
    fn search(
        &self,
        kernels: &mut [&mut Kernel],
        settings: &Settings,
        device: &dyn Device,
        deadline: Instant,
    ) -> Result<()> {
        let mut candidates = Vec::new();
        for (k, kernel) in kernels.iter_mut().enumerate() {
            let found = self.candidates(k, &kernel.plain, settings);
            match found.len() {
                // There is nothing to choose from.
                0 | 1 => kernel.choice = Some(Choice::default()),
                _ => candidates.extend(found),
            }
            interrupt::ask()?;
        }
        compile(&mut candidates, device)?;
        for (k, kernel) in kernels.iter_mut().enumerate() {
            let own: Vec<&Candidate> = candidates.iter().filter(|c| c.kernel == k).collect();
            let runnable = own.first().is_some_and(|c| c.code.is_some());
            if runnable && Instant::now() < deadline {
                kernel.choice = self.fastest(&kernel.plain, &own, device)?;
            }
        }
        Ok(())
    }

    /// The candidates for a kernel, the default first.
    fn candidates(&self, kernel: usize, plain: &LoopGraph, settings: &Settings) -> Vec<Candidate> {
        let listed = choices(plain, &settings.machine, self.most).unwrap_or_else(|why| {
            skipped(plain, &Choice::default(), &why);
            Vec::new()
        });
        let mut candidates = Vec::new();
        for (choice, layout) in listed {
            match of_layout(plain, layout, settings) {
                Ok(launch) => candidates.push(Candidate {
                    kernel,
                    choice,
                    launch,
                    code: None,
                }),
                Err(why) => skipped(plain, &choice, &why),
            }
        }
        candidates
    }

    /// Times candidates in turn, so that all see the machine in the same state. The fastest, or the
    /// default if that is as good; `None` if the kernel can't be timed.
    fn fastest(
        &self,
        plain: &LoopGraph,
        candidates: &[&Candidate],
        device: &dyn Device,
    ) -> Result<Option<Choice>> {
        let Some(bench) = Bench::new(plain, candidates, device) else {
            return Ok(None);
        };
        let mut runners: Vec<Runner> = candidates.iter().map(|c| Runner::new(c)).collect();
        let started = Instant::now();
        // Memory that nobody has touched yet and threads that sleep are nobody's fault.
        if bench
            .time(candidates[0])?
            .is_none_or(|t| t > KERNEL_TIME / 2)
        {
            return Ok(Some(Choice::default()));
        }
        'rounds: for round in 0..ROUNDS {
            for (runner, candidate) in runners.iter_mut().zip(candidates) {
                if !runner.alive {
                    continue;
                }
                if started.elapsed() > KERNEL_TIME {
                    break 'rounds;
                }
                match bench.time(candidate)? {
                    Some(time) => runner.ran(time),
                    None => runner.alive = false,
                }
            }
            if round + 1 >= LEAST_RUNS {
                let best = runners.iter().map(|r| r.least).min().unwrap_or_default();
                for runner in &mut runners[1..] {
                    runner.alive &= runner.least <= best.mul_f64(HOPELESS);
                }
            }
        }
        let timed = runners.iter().filter(|r| r.runs > 0).count();
        self.kernels.fetch_add(1, Relaxed);
        self.candidates.fetch_add(timed as u64, Relaxed);
        let measured = runners.iter().filter(|r| r.runs >= LEAST_RUNS);
        let best = measured.min_by_key(|r| r.least);
        let enough = runners[0].least.mul_f64(BETTER);
        let better = best.filter(|r| runners[0].runs >= LEAST_RUNS && r.least < enough);
        if let Some(best) = better {
            log::debug!(
                target: "uopc::search",
                "{}: {} takes {:?} instead of {:?}",
                plain.name(), best.choice, best.least, runners[0].least
            );
        }
        Ok(Some(better.map_or(Choice::default(), |r| r.choice)))
    }
}

/// How a candidate does.
struct Runner {
    choice: Choice,
    least: Duration,
    runs: usize,
    /// Whether it is run again.
    alive: bool,
}

impl Runner {
    fn new(candidate: &Candidate) -> Runner {
        Runner {
            choice: candidate.choice,
            least: Duration::MAX,
            runs: 0,
            alive: candidate.code.is_some(),
        }
    }

    fn ran(&mut self, time: Duration) {
        self.least = self.least.min(time);
        self.runs += 1;
    }
}

/// Memory for one kernel's candidates to run on.
struct Bench {
    /// The arguments, by slot.
    memory: FxHashMap<u32, Memory>,
    scratch: Option<Memory>,
}

impl Bench {
    /// Memory of the right sizes, with small numbers in it; `None` if it is too much.
    fn new(plain: &LoopGraph, candidates: &[&Candidate], device: &dyn Device) -> Option<Bench> {
        let parameters = params(plain.sink());
        let bytes = |dtype: DType, n: usize| n.saturating_mul(dtype.size());
        let scratch = candidates.iter().filter_map(|c| c.code.as_ref());
        let scratch = scratch.map(|(code, launch)| code.scratch(*launch)).max()?;
        let sizes = parameters.iter().map(|&(_, _, dtype, n)| bytes(dtype, n));
        if sizes.fold(scratch, usize::saturating_add) > MOST_BYTES {
            return None;
        }
        let mut memory = FxHashMap::default();
        for (slot, _, dtype, n) in parameters {
            let block = device.allocate(bytes(dtype, n)).ok()?;
            fill(&block, dtype);
            memory.insert(slot, block);
        }
        let scratch = match scratch {
            0 => None,
            bytes => Some(device.allocate(bytes).ok()?),
        };
        Some(Bench { memory, scratch })
    }

    /// How long a candidate takes; `None` if it fails.
    fn time(&self, candidate: &Candidate) -> Result<Option<Duration>> {
        interrupt::ask()?;
        let Some((code, launch)) = &candidate.code else {
            return Ok(None);
        };
        let parameters = code.parameters(*launch).iter();
        let places: Option<Vec<Place>> = parameters
            .map(|p| self.memory.get(&p.slot).map(Place::whole))
            .collect();
        let Some(places) = places else {
            return Ok(None);
        };
        let started = Instant::now();
        match code.launch(*launch, &places, self.scratch.as_ref()) {
            Ok(()) => Ok(Some(started.elapsed())),
            Err(why) => {
                skipped(&candidate.launch.plain, &candidate.choice, &why);
                Ok(None)
            }
        }
    }
}

/// Floats between a half and one and a half, so that no time goes into special ones; zeros for all
/// else, as integers may be indices.
fn fill(memory: &Memory, dtype: DType) {
    let number = |i: usize| {
        let number = 0.5 + (i % 32) as f32 / 32.0;
        let bytes: Vec<u8> = match dtype {
            DType::F16 => f16::from_f32(number).to_le_bytes().into(),
            DType::BF16 => bf16::from_f32(number).to_le_bytes().into(),
            DType::F32 => number.to_le_bytes().into(),
            DType::F64 => f64::from(number).to_le_bytes().into(),
            _ => vec![0; dtype.size()],
        };
        bytes
    };
    let pattern: Vec<u8> = (0..2048).flat_map(number).collect();
    let mut at = 0;
    while at < memory.bytes() {
        let piece = pattern.len().min(memory.bytes() - at);
        memory.write_at(at, &pattern[..piece]);
        at += piece;
    }
}

/// Compiles candidates at once; if that fails, one by one, to leave out those that can't be.
fn compile(candidates: &mut [Candidate], device: &dyn Device) -> Result<()> {
    match device.compile(&codes(candidates)) {
        Ok(code) => {
            let code: Rc<dyn Executable> = Rc::from(code);
            for (k, candidate) in candidates.iter_mut().enumerate() {
                candidate.code = Some((code.clone(), k));
            }
        }
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(_) => {
            for candidate in candidates {
                match device.compile(&codes(std::slice::from_ref(candidate))) {
                    Ok(code) => candidate.code = Some((Rc::from(code), 0)),
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(why) => skipped(&candidate.launch.plain, &candidate.choice, &why),
                }
            }
        }
    }
    Ok(())
}

fn codes(candidates: &[Candidate]) -> Vec<Code<'_>> {
    let code = candidates.iter().map(|c| Code {
        loops: &c.launch.loops,
        program: &c.launch.program,
    });
    code.collect()
}

fn skipped(plain: &LoopGraph, choice: &Choice, why: &Error) {
    log::warn!("{}: the layout {choice} is left out: {why}", plain.name());
}
