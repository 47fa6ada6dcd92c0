//! Callers that stop what they wait for: between launches, in a launch, in
//! lowering, and in the C compiler.
#![cfg(unix)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tempfile::TempDir;
use uopc::backend::c::toolchain::Compiler;
use uopc::compile::interp_device::InterpDevice;
use uopc::compile::{Engine, lower};
use uopc::debug::{DeviceChoice, Settings, search_path};
use uopc::ir::op::ReduceOp;
use uopc::ir::{DType, UOp};
use uopc::pass::memory::plan_memory;
use uopc::runtime::executor::Ready;
use uopc::runtime::interrupt::{self, Check, LONG, enter, enter_every};
use uopc::runtime::{Code, Device, Executable, Memory, Parameter, Place, Pool, Storage};
use uopc::tensor::with_engine;
use uopc::{Error, Result, Tensor};

fn engine(device: DeviceChoice) -> Arc<Engine> {
    let settings = Settings {
        device,
        ..Settings::default()
    };
    Arc::new(Engine::new(settings).unwrap())
}

/// A check that counts its calls in the first and says stop at the k-th.
fn stop_at(k: usize) -> (Arc<AtomicUsize>, Arc<Check>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let check = move || counted.fetch_add(1, SeqCst) + 1 >= k;
    (calls, Arc::new(check))
}

fn is_interrupted<T>(result: Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::Interrupted) => true,
        Err(other) => panic!("{other}"),
    }
}

// ---- checks ----

#[test]
fn a_check_is_asked_when_its_period_has_passed() {
    let (calls, check) = stop_at(3);
    let slow = enter_every(Duration::MAX, check.clone());
    for _ in 0..10 {
        interrupt::ask().unwrap();
    }
    assert_eq!(calls.load(SeqCst), 0, "its time never comes");
    drop(slow);
    assert!(!interrupt::is_installed());
    interrupt::ask().unwrap();
    let _fast = enter_every(Duration::ZERO, check);
    interrupt::ask().unwrap();
    interrupt::ask().unwrap();
    let error = interrupt::ask().unwrap_err();
    assert_eq!(
        error.to_string(),
        "interrupted; the values that were being computed can be asked for again"
    );
    assert_eq!(calls.load(SeqCst), 3);
}

#[test]
fn checks_within_checks_are_all_asked() {
    let (outer_calls, outer) = stop_at(usize::MAX);
    let (inner_calls, inner) = stop_at(2);
    let outer = enter_every(Duration::ZERO, outer);
    let inner = enter_every(Duration::ZERO, inner);
    let count = || (outer_calls.load(SeqCst), inner_calls.load(SeqCst));
    interrupt::ask().unwrap();
    assert_eq!(count(), (1, 1));
    assert!(is_interrupted(interrupt::ask()));
    // Guards may go in any order.
    drop(outer);
    assert!(is_interrupted(interrupt::ask()));
    drop(inner);
    interrupt::ask().unwrap();
    assert_eq!(count(), (1, 3));
}

#[test]
fn a_check_is_its_threads_own() {
    let (calls, check) = stop_at(1);
    let _entered = enter_every(Duration::ZERO, check);
    let other = thread::spawn(|| (interrupt::is_installed(), interrupt::ask().is_ok()));
    assert_eq!(other.join().unwrap(), (false, true));
    assert_eq!(calls.load(SeqCst), 0);
}

// ---- between launches ----

/// A tensor whose plan has several launches, and its value.
fn several_launches() -> (Tensor, Vec<f32>) {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]).unwrap();
    let rows = x.sum(1).unwrap().reshape([2, 1]).unwrap();
    let columns = (&x * &rows).sum(0).unwrap();
    let all = &x * &columns;
    let total = all.sum(..).unwrap();
    // Row sums 3 and 7; columns 3 + 21, 6 + 28; products 24, 68, 72, 136.
    (&all + &total, vec![324.0, 368.0, 372.0, 436.0])
}

#[test]
fn a_run_stops_before_its_next_launch() {
    for device in [DeviceChoice::C, DeviceChoice::Interp] {
        let engine = engine(device);
        with_engine(&engine, || {
            let (known, value) = several_launches();
            assert_eq!(known.to_vec::<f32>().unwrap(), value);
            let launches = engine.stats().launches as usize;
            assert!(launches > 1);
            drop(known);
            // The plan is known now, and only its launches are asked about.
            let (tensor, _) = several_launches();
            let pool = engine.device().pool();
            for k in 1..=launches {
                let (calls, check) = stop_at(k);
                let entered = enter_every(Duration::ZERO, check);
                assert!(is_interrupted(tensor.realize()));
                assert_eq!(calls.load(SeqCst), k);
                assert_eq!(pool.live_bytes(), 0, "nothing of the run is left");
                drop(entered);
            }
            let (calls, check) = stop_at(launches + 1);
            let entered = enter_every(Duration::ZERO, check);
            assert_eq!(tensor.to_vec::<f32>().unwrap(), value);
            assert_eq!(calls.load(SeqCst), launches);
            drop(entered);
        });
    }
}

#[test]
fn an_update_that_is_stopped_assigns_nothing() {
    with_engine(&engine(DeviceChoice::Interp), || {
        let x = Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap();
        let x = x.requires_grad().unwrap();
        let loss = (&x * &x).sum(..).unwrap();
        loss.backward(&[&x]).unwrap();
        let next = &x - &x.grad().unwrap();
        let (_, check) = stop_at(1);
        let entered = enter_every(Duration::ZERO, check);
        assert!(is_interrupted(Tensor::assign_all(&[(&x, &next)], &[&loss])));
        drop(entered);
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
        Tensor::assign_all(&[(&x, &next)], &[&loss]).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [-1.0, -2.0]);
        assert_eq!(loss.item().unwrap(), 5.0);
    });
}

// ---- in a launch ----

/// Launches that wait for a word from the test, then do what others do.
struct Gate {
    launches: Box<dyn Executable>,
    /// Each launch says which thread it is on.
    begun: Sender<ThreadId>,
    go: Mutex<Receiver<()>>,
    /// Nothing is sent: the other end sees when the gate is dropped.
    #[expect(dead_code, reason = "held for its Drop")]
    alive: Sender<()>,
}

impl Executable for Gate {
    fn parameters(&self, launch: usize) -> &[Parameter] {
        self.launches.parameters(launch)
    }

    fn scratch(&self, launch: usize) -> usize {
        self.launches.scratch(launch)
    }

    fn launch(&self, launch: usize, args: &[Place], scratch: Option<&Memory>) -> Result<()> {
        self.begun.send(thread::current().id()).unwrap();
        self.go.lock().unwrap().recv().expect("nobody says go");
        self.launches.launch(launch, args, scratch)
    }
}

/// The sum of the squares of row sums, as two launches behind a gate.
struct Gated {
    ready: Arc<Ready>,
    x: Arc<Storage>,
    pool: Arc<Pool>,
    begun: Receiver<ThreadId>,
    go: Sender<()>,
    alive: Receiver<()>,
}

impl Gated {
    fn new(expected: Duration) -> Gated {
        let x = UOp::slot(0, DType::F32, 4).reshape(&[2, 2]).unwrap();
        let rows = x.reduce(ReduceOp::Add, 1).unwrap();
        let spread = rows.reshape(&[2, 1]).unwrap().expand(&[2, 2]).unwrap();
        let root = spread.mul(&x).unwrap().reduce(ReduceOp::Add, 2).unwrap();
        let lowered = lower(&[root], None, &Settings::default()).unwrap();
        assert_eq!(lowered.launches.len(), 2);
        let codes: Vec<Code> = (lowered.launches.iter())
            .map(|l| Code {
                loops: &l.loops,
                program: &l.program,
            })
            .collect();
        let pool = Pool::new(1 << 20);
        let launches = InterpDevice::new(pool.clone()).compile(&codes).unwrap();
        let (begun_sender, begun) = channel();
        let (go, go_receiver) = channel();
        let (alive_sender, alive) = channel();
        let gate = Gate {
            launches,
            begun: begun_sender,
            go: Mutex::new(go_receiver),
            alive: alive_sender,
        };
        let memory = plan_memory(&lowered.plan, &[]);
        let ready = Ready::new(
            &lowered.plan,
            &(0..lowered.plan.kernels.len()).collect::<Vec<_>>(),
            Arc::new(gate),
            &memory.offsets,
            memory.arena,
            memory.peak,
            lowered.plan.outputs.clone(),
        );
        Gated {
            ready: Arc::new(ready.expect(expected)),
            x: Storage::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).unwrap(),
            pool,
            begun,
            go,
            alive,
        }
    }

    fn run(&self) -> Result<f32> {
        let inputs = [self.x.clone()];
        let results = interrupt::run(&self.ready, &inputs, &self.pool)?;
        Ok(results[0].to_vec::<f32>()[0])
    }

    fn say_go(&self, times: usize) {
        (0..times).for_each(|_| self.go.send(()).unwrap());
    }
}

/// Row sums 3 and 7: 3 * (1 + 2) + 7 * (3 + 4).
const SUM: f32 = 58.0;

#[test]
fn a_long_run_is_on_a_thread_of_its_own_if_someone_may_stop_it() {
    let here = thread::current().id();
    let threads = |gated: &Gated| {
        gated.say_go(2);
        assert_eq!(gated.run().unwrap(), SUM);
        [gated.begun.recv().unwrap(), gated.begun.recv().unwrap()]
    };
    let (short, long) = (Gated::new(LONG - Duration::from_nanos(1)), Gated::new(LONG));
    assert_eq!(threads(&short), [here, here]);
    assert_eq!(threads(&long), [here, here], "nobody could stop it");
    let _entered = enter(stop_at(usize::MAX).1);
    assert_eq!(threads(&short), [here, here]);
    let [first, second] = threads(&long);
    assert!(first != here && first == second);
}

#[test]
fn a_launch_can_be_left_before_its_end() {
    let gated = Gated::new(LONG);
    let begun = Arc::new(Mutex::new(gated.begun));
    // Stops as soon as the launch has begun, which then waits for a word that is not said.
    let (at_gate, asked) = (begun.clone(), Arc::new(Mutex::new(Vec::new())));
    let threads = asked.clone();
    let check = move || {
        threads.lock().unwrap().push(thread::current().id());
        at_gate.lock().unwrap().try_recv().is_ok()
    };
    let entered = enter_every(Duration::ZERO, Arc::new(check));
    let inputs = [gated.x.clone()];
    assert!(is_interrupted(interrupt::run(
        &gated.ready,
        &inputs,
        &gated.pool
    )));
    drop(entered);
    let here = thread::current().id();
    assert!(asked.lock().unwrap().iter().all(|&t| t == here));

    // Everything that the caller knew of the run may go while the launch is at work.
    assert!(gated.pool.live_bytes() > 0);
    drop((inputs, gated.x, gated.ready));
    gated.go.send(()).unwrap();
    // The gate ends with the run: a second launch would wait for another word.
    assert_eq!(gated.alive.recv(), Err(RecvError));
    assert_eq!(
        begun.lock().unwrap().try_recv(),
        Err(TryRecvError::Disconnected)
    );
    assert_eq!(gated.pool.live_bytes(), 0, "the memory is back");
}

#[test]
fn failures_of_a_long_run_are_those_of_any_run() {
    let gated = Gated::new(LONG);
    let _entered = enter(stop_at(usize::MAX).1);
    let tiny = Storage::from_slice(&[1.0f32]).unwrap();
    let run = || interrupt::run(&gated.ready, &[tiny], &gated.pool).is_ok();
    gated.say_go(1);
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("has 16 bytes, not 4"), "{text}");
    assert_eq!(gated.pool.live_bytes(), 0);
    assert_eq!(gated.begun.recv().map(|_| ()), Ok(()));
    gated.say_go(2);
    assert_eq!(gated.run().unwrap(), SUM);
}

/// The sum of all products of the numbers below n, as one launch of about n * n steps.
fn products(n: i64) -> (Tensor, i64) {
    let x = Tensor::from((0..n).collect::<Vec<_>>());
    let columns = &x.reshape([n as usize, 1]).unwrap() * &x;
    let sum = n * (n - 1) / 2;
    (columns.sum(..).unwrap(), sum * sum)
}

#[test]
fn a_long_kernel_can_be_left_and_asked_for_again() {
    for (device, n) in [(DeviceChoice::C, 60_000), (DeviceChoice::Interp, 4_000)] {
        let engine = engine(device);
        with_engine(&engine, || {
            let (tensor, expected) = products(n);
            // So that the plan is there, and does not wait for a compiler.
            products(n).0.realize().unwrap();
            assert_eq!(engine.stats().launches, 1);
            // The second time that the check is asked, the only launch is at work.
            let (calls, check) = stop_at(2);
            let entered = enter_every(Duration::ZERO, check);
            assert!(is_interrupted(tensor.realize()));
            assert_eq!(calls.load(SeqCst), 2);
            drop(entered);
            let found = tensor.to_vec::<i64>().unwrap();
            assert_eq!(found, [expected]);
        });
    }
}

// ---- in lowering ----

/// A graph of some 5,000 nodes, in many kernels, and its value.
fn long_graph() -> (Tensor, Vec<f32>) {
    let mut x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 2.0], [4]).unwrap();
    // The mean is 2 and stays so; what is around it halves, then doubles.
    for _ in 0..600 {
        let mean = &x.sum(0).unwrap() * 0.25;
        x = &(&(&x - &mean) * 0.5) + &mean;
        x = &(&(&x - 2.0) * 2.0) + 2.0;
    }
    (x, vec![1.0, 2.0, 3.0, 2.0])
}

#[test]
fn a_long_lowering_can_be_left_and_asked_for_again() {
    let engine = engine(DeviceChoice::Interp);
    with_engine(&engine, || {
        let (tensor, value) = long_graph();
        // Before it begins, and while it is at work.
        for k in [1, 2] {
            let _entered = enter_every(Duration::ZERO, stop_at(k).1);
            assert!(is_interrupted(tensor.realize()));
            assert_eq!(engine.stats().plans, 0, "none was made");
        }
        let _entered = enter_every(Duration::ZERO, stop_at(usize::MAX).1);
        assert_eq!(tensor.to_vec::<f32>().unwrap(), value);
        assert_eq!((engine.stats().plans, engine.stats().plan_misses), (1, 3));
    });
}

// ---- in the compiler ----

/// A compiler that is a shell script. It answers at once when asked for its version.
fn script(path: &Path, text: &str) {
    let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && {{ echo fake; exit; }}\n{text}");
    // Another process writes it: a child that inherits a file open for writing would keep the
    // script from being run.
    let write = "printf '%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
    let mut sh = Command::new("sh");
    sh.args(["-c", write, "sh"]).arg(path).arg(text);
    assert!(sh.status().unwrap().success());
}

fn with_cc(root: &Path) -> Engine {
    let settings = Settings {
        cc: Some(root.join("cc").display().to_string()),
        device: DeviceChoice::C,
        cache_dir: Some(root.join("cache")),
        ..Settings::default()
    };
    Engine::new(settings).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let items = fs::read_dir(folder).unwrap();
    let name = |item: std::io::Result<fs::DirEntry>| item.unwrap().file_name();
    items
        .map(|item| name(item).into_string().unwrap())
        .collect()
}

#[test]
fn a_compiler_is_ended_with_all_that_it_has_started() {
    let root = TempDir::new().unwrap();
    let path = |name: &str| root.path().join(name);
    let made = Command::new("mkfifo").arg(path("fifo")).status().unwrap();
    assert!(made.success());
    // The compiler and the program that it calls both hold the pipe open. Should one be left
    // alone, it says so in the end.
    let text = format!(
        "exec 9> '{}'\n(sleep 20; echo survived >&9) &\n: > \"$TMPDIR/part.s\"\n: > '{}'\n\
         sleep 20\necho survived >&9",
        path("fifo").display(),
        path("begun").display()
    );
    script(&path("cc"), &text);
    let engine = Arc::new(with_cc(root.path()));
    let before = names(&path("cache"));
    let fifo = path("fifo");
    let reader = thread::spawn(move || fs::read_to_string(fifo).unwrap());

    const N: usize = 7919;
    let tensor = || &Tensor::from(vec![1.5f32; N]) * 2.0;
    let stopped = with_engine(&engine, || {
        let begun = path("begun");
        let period = Duration::from_millis(1);
        let _entered = enter_every(period, Arc::new(move || begun.exists()));
        is_interrupted(tensor().realize())
    });
    assert!(stopped);
    // Read to the end: nobody holds the pipe open any more.
    assert_eq!(reader.join().unwrap(), "");
    assert_eq!(names(&path("cache")), before, "no temporary file is left");
    for name in names(&std::env::temp_dir()) {
        if name.starts_with("uopc-failed-") {
            let text = fs::read_to_string(std::env::temp_dir().join(name)).unwrap_or_default();
            assert!(!text.contains(&N.to_string()), "no source is kept");
        }
    }
    assert_eq!(engine.stats().plans, 0);

    // The same engine compiles it when it is asked again.
    let real = Compiler::find(None, &search_path()).unwrap();
    let real = real.program().display();
    script(&path("cc"), &format!("exec '{real}' \"$@\""));
    with_engine(&engine, || {
        assert_eq!(tensor().to_vec::<f32>().unwrap(), vec![3.0; N]);
    });
    assert_eq!(
        (engine.stats().plans, engine.stats().compiler_calls),
        (1, 2)
    );
}

#[test]
fn waiting_for_another_threads_compiler_can_be_stopped() {
    let root = TempDir::new().unwrap();
    let fifo = |name: &str| {
        let path = root.path().join(name);
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        path
    };
    let (begun, go) = (fifo("begun"), fifo("go"));
    let real = Compiler::find(None, &search_path()).unwrap();
    let text = format!(
        "echo begun > '{}'\nread word < '{}'\nexec '{}' \"$@\"",
        begun.display(),
        go.display(),
        real.program().display()
    );
    script(&root.path().join("cc"), &text);
    let engine = Arc::new(with_cc(root.path()));
    let first = engine.clone();
    let first = thread::spawn(move || with_engine(&first, || several_launches().0.to_vec::<f32>()));
    assert_eq!(fs::read_to_string(begun).unwrap(), "begun\n");
    let (tensor, value) = several_launches();
    with_engine(&engine, || {
        let _entered = enter_every(Duration::ZERO, stop_at(3).1);
        assert!(is_interrupted(tensor.realize()));
    });
    assert_eq!(
        engine.stats().compiler_calls,
        1,
        "it waited for the other's"
    );
    fs::write(go, "go\n").unwrap();
    assert_eq!(first.join().unwrap().unwrap(), value);
    with_engine(&engine, || {
        assert_eq!(tensor.to_vec::<f32>().unwrap(), value);
    });
    let stats = engine.stats();
    assert_eq!((stats.plans, stats.plan_hits, stats.plan_misses), (1, 1, 1));
}

#[test]
fn a_compiler_that_nobody_stops_is_waited_for() {
    let root = TempDir::new().unwrap();
    let cc = root.path().join("cc");
    // More than a pipe holds, before the real work.
    let real = Compiler::find(None, &search_path()).unwrap();
    let noise = "head -c 1000000 /dev/zero | tr '\\0' x >&2";
    script(
        &cc,
        &format!("{noise}\nexec '{}' \"$@\"", real.program().display()),
    );
    let engine = Arc::new(with_cc(root.path()));
    let _entered = enter_every(Duration::from_millis(1), stop_at(usize::MAX).1);
    with_engine(&engine, || {
        let (tensor, value) = several_launches();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), value);
    });
}

#[test]
fn a_compiler_fails_in_the_same_way_whether_it_can_be_stopped_or_not() {
    let root = TempDir::new().unwrap();
    let noise = "head -c 200000 /dev/zero | tr '\\0' x >&2";
    script(&root.path().join("cc"), &format!("{noise}\nexit 3"));
    let engine = Arc::new(with_cc(root.path()));
    let failure = || {
        let error = with_engine(&engine, || several_launches().0.realize().map(|_| ()));
        let Error::Compile {
            compiler,
            source_path,
            output,
        } = error.unwrap_err()
        else {
            panic!("the compiler fails");
        };
        fs::remove_file(source_path).unwrap();
        (compiler, output)
    };
    let plain = failure();
    assert_eq!(plain.1.len(), 200_000);
    let _entered = enter(stop_at(usize::MAX).1);
    assert_eq!(failure(), plain);
}
