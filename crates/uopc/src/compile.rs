//! From graphs to values: the one place that sees passes, backends and the runtime together.
//!
//! [`Engine::realize`] walks from the roots and stops where memory holds a value already. What it
//! walked over is looked up by structure, with that memory as numbered slots, so that a training
//! step whose numbers change compiles once. A plan that is not known is lowered and compiled.

pub mod interp_device;
mod limit;
mod nonfinite;
mod plans;
pub mod search;
mod walk;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::backend::c::render::render;
use crate::debug::{self, DeviceChoice, Settings};
use crate::error::{Error, Result};
use crate::ir::fold::may_be_chained;
use crate::ir::form::{BufferIndex, Role, ShapeGraph};
use crate::ir::op::{BufferId, Op};
use crate::ir::site::Site;
use crate::ir::{UOp, verify, visit};
use crate::pass;
use crate::pass::explain::steps;
use crate::pass::memory::{MemoryPlan, plan_memory};
use crate::pass::pipeline::{self, Lowered};
use crate::runtime::c_device::CDevice;
use crate::runtime::cache::ObjectCache;
use crate::runtime::executor::{KernelTime, Ready};
use crate::runtime::pool::IDLE_LIMIT;
use crate::runtime::{Code, Device, Executable, Pool, Storage, interrupt};

pub use limit::frontier;
pub use nonfinite::{Finding, NonFinite, Operand};

use interp_device::InterpDevice;
use limit::Limited;
use plans::Plans;
use search::Search;
use walk::Walk;

/// How many plans an engine remembers; the one not used for longest goes.
pub const PLAN_LIMIT: usize = 512;

/// Graphs of more nodes are lowered on a thread of their own if a check may stop that.
const LONG_GRAPH: usize = 2_000;

/// Computes the values of graphs, with plans and counters of its own.
pub struct Engine {
    settings: Settings,
    device: Box<dyn Device>,
    plans: Plans<Known>,
    search: Search,
    launches: AtomicU64,
    peak: AtomicU64,
}

/// What [`Engine::realize`] is asked for beside the values.
#[derive(Clone, Copy, Default)]
pub struct RealizeOptions<'a> {
    /// Leaves whose gradients will be wanted. Values that depend on them and that the plan
    /// stores are kept, so that the backward pass reads them.
    pub tape_leaves: &'a [UOp],
    /// What the text slots of the graph hold, by number.
    pub slots: &'a [(u32, Arc<Storage>)],
    /// Bytes that the run may take at most, inputs apart; `None`: what the settings say. Under a
    /// limit values are computed again where memory is short, and nothing is kept.
    pub memory_limit: Option<u64>,
}

/// What [`Engine::realize`] gives.
pub struct Realized {
    /// The values of the roots, in order.
    pub outputs: Vec<Arc<Storage>>,
    /// Values kept for the backward pass: each node's home is this storage as long as it lives.
    pub tape: Vec<(UOp, Arc<Storage>)>,
}

/// What an engine has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Realisations whose plan was known.
    pub plan_hits: u64,
    /// Realisations that had to make a plan.
    pub plan_misses: u64,
    /// Plans that are remembered now.
    pub plans: usize,
    /// Translation units handed to the C compiler.
    pub compiler_calls: u64,
    /// Translation units found in the disk cache.
    pub disk_hits: u64,
    /// Kernels of which several layouts were timed, see [`search`].
    pub searched: u64,
    /// Layouts that were timed.
    pub candidates: u64,
    /// Kernels run.
    pub launches: u64,
    /// The most bytes that a run took at once, inputs apart, as planned.
    pub peak_bytes: u64,
}

/// A plan, ready to run, in terms of the walk that led to it.
struct Compiled {
    /// Its results are the roots, then the nodes to keep.
    ready: Arc<Ready>,
    /// The nodes to keep, by position in the walk.
    kept: Vec<usize>,
}

/// A plan that is remembered.
enum Known {
    /// As it is.
    Free(Compiled),
    /// For use under limits of memory.
    Limited(Box<Limited>),
}

impl Engine {
    /// The engine of the process, with the settings of the environment.
    ///
    /// # Errors
    /// When a setting has no valid value, or asks for a C compiler that is not there.
    pub fn global() -> Result<&'static Engine> {
        static GLOBAL: OnceLock<Result<Engine>> = OnceLock::new();
        let engine = GLOBAL.get_or_init(|| {
            let settings = debug::settings()?.clone();
            Engine::with_pool(settings, Pool::global().clone())
        });
        engine.as_ref().map_err(Error::clone)
    }

    /// An engine of one's own.
    ///
    /// # Errors
    /// When the settings ask for a C compiler that is not there, or name a rule or pass that
    /// does not exist.
    pub fn new(settings: Settings) -> Result<Engine> {
        Engine::with_pool(settings, Pool::new(IDLE_LIMIT))
    }

    fn with_pool(settings: Settings, pool: Arc<Pool>) -> Result<Engine> {
        pass::check_names(&settings)?;
        let device = device(&settings, pool)?;
        let search = Search::new(&settings, &*device);
        Ok(Engine {
            settings,
            device,
            plans: Plans::new(PLAN_LIMIT),
            search,
            launches: AtomicU64::new(0),
            peak: AtomicU64::new(0),
        })
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What runs its kernels.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Computes the values of all roots, as one plan.
    ///
    /// Each root's home becomes its storage, which the caller owns.
    ///
    /// # Errors
    /// When the graph can't be lowered or compiled, memory runs out, or a check of this thread asks
    /// to stop, see [`interrupt`]; and with `UOPC_CHECK_NAN`, when an op made a NaN or an infinity
    /// that a root holds. Then nothing has changed.
    pub fn realize(&self, roots: &[UOp], options: &RealizeOptions) -> Result<Realized> {
        self.values(roots, options, self.settings.check_nan)
    }

    /// [`realize`](Self::realize), which looks at the results if `checked`.
    fn values(&self, roots: &[UOp], options: &RealizeOptions, checked: bool) -> Result<Realized> {
        let mut outputs: Vec<Option<Arc<Storage>>> = Vec::with_capacity(roots.len());
        let mut open: SmallVec<[&UOp; 4]> = SmallVec::new();
        for root in roots {
            let stored = walk::stored(root, options)?;
            if stored.is_none() {
                open.push(root);
            }
            outputs.push(stored);
        }
        let mut tape = Vec::new();
        if !open.is_empty() {
            let limit = options.memory_limit.or(self.settings.memory_limit);
            let walk = Walk::new(&open, &unless_limited(*options, limit))?;
            let known = self.known(&walk, limit)?;
            let (ready, kept) = match &*known {
                Known::Free(compiled) => (compiled.ready.clone(), &compiled.kept[..]),
                Known::Limited(limited) => (limited.within(limit.unwrap_or(u64::MAX))?, &[][..]),
            };
            let ready = &ready;
            self.launches.fetch_add(ready.launches() as u64, Relaxed);
            self.peak.fetch_max(ready.peak_bytes() as u64, Relaxed);
            let results = interrupt::run(ready, &walk.inputs, self.device.pool())?;
            if checked {
                self.refuse_nan(&open, &results, options)?;
            }
            // Memory of others may be written between runs: what was computed from it is nobody
            // else's value, and is computed anew where it is asked for again.
            let lasting = !walk.inputs.iter().any(|s| s.is_foreign());
            let mut results = results.into_iter();
            let mut next = || {
                results
                    .next()
                    .expect("a result for each root and kept node")
            };
            let computed = roots.iter().zip(&mut outputs).filter(|(_, o)| o.is_none());
            for (root, output) in computed {
                let storage = next();
                if lasting {
                    settle(root, &storage);
                }
                *output = Some(storage);
            }
            for &position in kept.iter().filter(|_| lasting) {
                let (node, storage) = (walk.nodes[position].clone(), next());
                settle(&node, &storage);
                tape.push((node, storage));
            }
            walk.end();
        }
        let outputs = outputs.into_iter().map(|o| o.expect("filled above"));
        Ok(Realized {
            outputs: outputs.collect(),
            tape,
        })
    }

    /// Refuses results that are not finite, if an op made them so.
    fn refuse_nan(
        &self,
        roots: &[&UOp],
        results: &[Arc<Storage>],
        options: &RealizeOptions,
    ) -> Result<()> {
        let bad = |(root, storage): &(&&UOp, &Arc<Storage>)| {
            nonfinite::holds_any(storage, root.dtype(), root.shape().numel())
        };
        let bad = roots.iter().zip(results).filter(bad);
        let bad: Vec<UOp> = bad.map(|(root, _)| (*root).clone()).collect();
        match self.find_nan(&bad, options)? {
            Some(finding) if !finding.may_be_meant => Err(Error::NonFinite(finding.to_string())),
            _ => Ok(()),
        }
    }

    /// The plan of a walk, made now if it is not known. Those for use under limits are apart.
    fn known(&self, walk: &Walk, limit: Option<u64>) -> Result<Arc<Known>> {
        match limit {
            None => self.plans.get(walk.text(), || self.compile(walk, false)),
            // No text ends like this: its last word counts the roots.
            Some(_) => {
                let text = [walk.text(), &[u64::MAX]].concat();
                self.plans.get(&text, || self.compile(walk, true))
            }
        }
    }

    fn compile(&self, walk: &Walk, limited: bool) -> Result<Known> {
        let mut clock = Clock::start(self.settings.time);
        let (graph, position_of) = walk.with_slots()?;
        let on_tape = walk.on_tape();
        let long = walk.nodes.len() > LONG_GRAPH && interrupt::is_installed();
        let Planned {
            mut lowered,
            kept,
            buffers,
            memory,
        } = match long {
            false => planned(&graph, &position_of, &on_tape, &self.settings)?,
            true => {
                let (settings, site) = (self.settings.clone(), Site::current());
                interrupt::aside(move || {
                    // Nodes and errors belong to the caller's line on any thread.
                    let _site = site.map(Site::enter);
                    planned(&graph, &position_of, &on_tape, &settings)
                })?
            }
        };
        clock.lap("lowering");
        if self.search.is_on() {
            let launches = &mut lowered.launches;
            self.search
                .improve(launches, &self.settings, &*self.device)?;
            clock.lap("search");
        }
        let executable: Arc<dyn Executable> = self.device.compile(&codes(&lowered))?.into();
        clock.lap("machine code");
        let steps = lowered.launches.iter().map(|l| steps(&l.loops));
        let steps = steps.fold(0, u64::saturating_add);
        let seconds = steps as f64 / self.device.steps_per_second() as f64;
        let expected = Duration::from_secs_f64(seconds);
        if limited {
            let limited = Limited::new(lowered, executable, expected, self.settings.profile);
            return Ok(Known::Limited(Box::new(limited)));
        }
        let plan = &lowered.plan;
        let results = [&plan.outputs[..], &buffers].concat();
        let launches: Vec<usize> = (0..plan.kernels.len()).collect();
        let ready = Ready::new(
            plan,
            &launches,
            executable,
            &memory.offsets,
            memory.arena,
            memory.peak,
            results,
        );
        let ready = ready.expect(expected);
        let ready = Arc::new(if self.settings.profile {
            ready.timed()
        } else {
            ready
        });
        clock.lap("the rest of the plan");
        Ok(Known::Free(Compiled { ready, kept }))
    }

    /// The C text of the kernels that compute the roots.
    ///
    /// # Errors
    /// When the graph can't be lowered.
    pub fn listing(&self, roots: &[UOp]) -> Result<String> {
        listing(roots, None, &self.settings)
    }

    /// The keys of the plans that it remembers, see [`plan_key`], in their order.
    pub fn plan_keys(&self) -> Vec<[u8; 32]> {
        let mut keys: Vec<_> = self.plans.texts().iter().map(|text| key(text)).collect();
        keys.sort_unstable();
        keys
    }

    /// What the kernels of the plans that it remembers took so far, if the settings ask for that.
    pub fn kernel_times(&self) -> Vec<KernelTime> {
        let plans = self.plans.all().into_iter();
        let ready = plans.flat_map(|known| match &*known {
            Known::Free(compiled) => vec![compiled.ready.clone()],
            Known::Limited(limited) => limited.all(),
        });
        ready.flat_map(|ready| ready.times()).collect()
    }

    /// Forgets all plans; the next realisation of each graph makes its plan anew. Values stay.
    pub fn forget_plans(&self) {
        self.plans.clear();
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        let device = self.device.counts();
        let (plan_hits, plan_misses, plans) = self.plans.counts();
        let (searched, candidates) = self.search.counts();
        Stats {
            plan_hits,
            plan_misses,
            plans,
            compiler_calls: device.compiler_calls,
            disk_hits: device.disk_hits,
            searched,
            candidates,
            launches: self.launches.load(Relaxed),
            peak_bytes: self.peak.load(Relaxed),
        }
    }
}

/// Under a limit nothing is kept after the run.
fn unless_limited(options: RealizeOptions, limit: Option<u64>) -> RealizeOptions {
    match limit {
        None => options,
        Some(_) => RealizeOptions {
            tape_leaves: &[],
            ..options
        },
    }
}

/// Reports how long parts of making a plan took, if that is asked for.
struct Clock(Option<Instant>);

impl Clock {
    fn start(on: bool) -> Clock {
        Clock(on.then(Instant::now))
    }

    /// Reports the time since the last report.
    fn lap(&mut self, what: &str) {
        if let Some(since) = &mut self.0 {
            let now = Instant::now();
            let ms = now.duration_since(*since).as_secs_f64() * 1e3;
            log::info!(target: "uopc::time", "{what}: {ms:.3} ms");
            *since = now;
        }
    }
}

/// A graph, lowered, and where its values go.
struct Planned {
    lowered: Lowered,
    /// The nodes to keep, by position in the walk, and the buffers that hold them.
    kept: Vec<usize>,
    buffers: Vec<BufferIndex>,
    memory: MemoryPlan,
}

/// All of a plan but its machine code. `position_of` and `on_tape` are those of the walk.
fn planned(
    graph: &ShapeGraph,
    position_of: &FxHashMap<UOp, usize>,
    on_tape: &[bool],
    settings: &Settings,
) -> Result<Planned> {
    let lowered = pipeline::lower(graph, None, settings)?;
    let nodes = visit::Graph::new(graph.roots()).nodes;
    let homes = lowered.homes.iter();
    let homes = homes.map(|&(node, buffer)| (position_of[&nodes[node]], buffer));
    let mut kept: Vec<_> = homes.filter(|&(k, _)| on_tape[k]).collect();
    kept.sort_unstable();
    let (kept, buffers): (Vec<usize>, Vec<BufferIndex>) = kept.into_iter().unzip();
    let memory = plan_memory(&lowered.plan, &buffers);
    Ok(Planned {
        lowered,
        kept,
        buffers,
        memory,
    })
}

/// Notes where a node's value is. Live leaves own their memory and need no note, a repeated
/// constant costs less to compute than to read, and a product that a chain may sum is computed
/// there without rounding.
fn settle(node: &UOp, storage: &Arc<Storage>) {
    let mut base = node;
    while base.op().is_movement() {
        base = &base.src()[0];
    }
    if !matches!(base.op(), Op::Const(_)) && !is_buffer(node) && !may_be_chained(node) {
        let storage: Arc<dyn Any + Send + Sync> = storage.clone();
        node.set_home(&storage);
    }
}

fn is_buffer(u: &UOp) -> bool {
    matches!(u.op(), Op::Buffer { .. })
}

fn codes(lowered: &Lowered) -> Vec<Code<'_>> {
    let launches = lowered.launches.iter();
    let code = launches.map(|l| Code {
        loops: &l.loops,
        program: &l.program,
    });
    code.collect()
}

fn device(settings: &Settings, pool: Arc<Pool>) -> Result<Box<dyn Device>> {
    if settings.device == DeviceChoice::Interp {
        return Ok(Box::new(InterpDevice::new(pool)));
    }
    let cache = match &settings.cache_dir {
        Some(folder) => ObjectCache::open(folder, settings.cache_limit),
        None => ObjectCache::none(),
    };
    let search = debug::search_path();
    match CDevice::new(settings.cc.as_deref(), &search, cache, pool.clone()) {
        Ok(device) => Ok(match settings.threads {
            Some(threads) => Box::new(device.with_threads(threads)),
            None => Box::new(device),
        }),
        Err(why) if settings.device == DeviceChoice::Auto => {
            log::warn!(
                "no C compiler: {why}; the interpreter runs everything, which is much slower; \
                 install a C compiler or set CC to one"
            );
            Ok(Box::new(InterpDevice::new(pool)))
        }
        Err(why) => Err(Error::Setting(format!(
            "UOPC_DEVICE=c: no C compiler: {why}; install a C compiler, set CC to one, or use \
             UOPC_DEVICE=auto"
        ))),
    }
}

/// The key by which an engine remembers the plan of these roots: equal for graphs of equal
/// structure, whatever memory they read.
///
/// # Errors
/// When a text slot is not bound.
pub fn plan_key(roots: &[UOp], options: &RealizeOptions) -> Result<[u8; 32]> {
    let roots: Vec<&UOp> = roots.iter().collect();
    let walk = Walk::new(&roots, options)?;
    Ok(key(walk.text()))
}

fn key(text: &[u64]) -> [u8; 32] {
    let bytes: Vec<u8> = text.iter().flat_map(|w| w.to_ne_bytes()).collect();
    *blake3::hash(&bytes).as_bytes()
}

/// Lowers roots for inspection, without running anything. Live memory becomes numbered slots; a
/// graph of text slots is taken as it is. A single kernel is called `name`.
///
/// # Errors
/// When the graph can't be lowered.
pub fn lower(roots: &[UOp], name: Option<&str>, settings: &Settings) -> Result<Lowered> {
    Ok(lower_with_inputs(roots, name, settings)?.0)
}

/// [`lower`], and for each input of the plan the node that it stands for, in order of slots: a
/// buffer, or a node whose value was computed before. What the plan does not read is not there.
///
/// # Errors
/// When the graph can't be lowered.
pub fn lower_with_inputs(
    roots: &[UOp],
    name: Option<&str>,
    settings: &Settings,
) -> Result<(Lowered, Vec<UOp>)> {
    let is_text = |u: &UOp| {
        matches!(
            u.op(),
            Op::Buffer {
                id: BufferId::Slot(_),
                ..
            }
        )
    };
    let limited = |lowered: Lowered| match settings.memory_limit {
        Some(limit) => limit::lowered_within(lowered, limit),
        None => Ok(lowered),
    };
    if visit::toposort(roots).iter().any(is_text) {
        let graph = verify::shape_graph(roots.to_vec())?;
        let lowered = limited(pipeline::lower(&graph, name, settings)?)?;
        let slots = lowered.plan.buffers.iter().filter_map(|b| match b.role {
            Role::Input(slot) => Some((slot, UOp::slot(slot, b.dtype, b.n))),
            Role::Output | Role::Temporary => None,
        });
        let slots: BTreeMap<u32, UOp> = slots.collect();
        return Ok((lowered, slots.into_values().collect()));
    }
    let roots: Vec<&UOp> = roots.iter().collect();
    let walk = Walk::new(&roots, &RealizeOptions::default())?;
    let lowered = limited(pipeline::lower(&walk.with_slots()?.0, name, settings)?)?;
    let read = lowered.plan.buffers.iter().filter_map(|b| match b.role {
        Role::Input(slot) => Some(slot),
        Role::Output | Role::Temporary => None,
    });
    let read: BTreeSet<u32> = read.collect();
    let inputs = walk.nodes_in_memory();
    let inputs = inputs.filter(|(slot, _)| read.contains(slot));
    let inputs = inputs.map(|(_, u)| u.clone()).collect();
    Ok((lowered, inputs))
}

/// The C text of the kernels that compute the roots, in the order they run.
///
/// # Errors
/// When the graph can't be lowered.
pub fn listing(roots: &[UOp], name: Option<&str>, settings: &Settings) -> Result<String> {
    let lowered = lower(roots, name, settings)?;
    let kernels: Vec<String> = lowered
        .launches
        .iter()
        .map(|l| render(&l.program))
        .collect();
    Ok(kernels.join("\n"))
}
