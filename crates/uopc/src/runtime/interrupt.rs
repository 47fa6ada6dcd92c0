//! Lets a caller stop what it waits for: a run of launches, one long launch, the C compiler.
//!
//! A thread installs a check with [`enter`]. What takes long on that thread then asks the check
//! now and again, and gives up with [`Error::Interrupted`] if it says so. Where nothing is
//! installed, nothing is asked and nothing else happens in another way.
//!
//! A launch can't be stopped, so a run that should take long is given to a helper thread, and so
//! is other work that does not ask often enough. When the caller leaves, the helper stops where it
//! asks next: in a run that is before the next launch. It owns all that it works on, and gives it
//! back then.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::executor::{Ready, Results};
use super::{Pool, Storage};
use crate::error::{Error, Result};

/// How long a check that was asked is left alone.
pub const PERIOD: Duration = Duration::from_millis(20);

/// A run that is expected to take this long is given to a helper thread.
pub const LONG: Duration = Duration::from_millis(50);

/// The stack of a helper thread, in bytes: that of a main thread.
const STACK: usize = 8 << 20;

/// True when the caller wants to stop.
pub type Check = dyn Fn() -> bool + Send + Sync;

thread_local! {
    /// How many checks are installed; apart from them, since it is read before each launch.
    static INSTALLED: Cell<usize> = const { Cell::new(0) };
    static CHECKS: RefCell<Checks> = const {
        RefCell::new(Checks {
            installed: Vec::new(),
            next: 0,
        })
    };
}

/// The checks of a thread.
struct Checks {
    installed: Vec<Installed>,
    /// The number of the next guard.
    next: u64,
}

struct Installed {
    guard: u64,
    check: Arc<Check>,
    period: Duration,
    /// When it was asked last, or installed.
    asked: Instant,
}

/// Installs a check for this thread until the guard is dropped, to be asked every [`PERIOD`].
///
/// It is called on this thread. A check that was installed before stays: both are asked, and
/// either can stop the thread. A check must not compute tensors: when it is asked, the thread may
/// be making the very plan that it would wait for.
pub fn enter(check: Arc<Check>) -> Entered {
    enter_every(PERIOD, check)
}

/// [`enter`] with another period. With none at all, the check is asked before each launch, and
/// without a pause while something is waited for.
pub fn enter_every(period: Duration, check: Arc<Check>) -> Entered {
    let guard = CHECKS.with_borrow_mut(|checks| {
        let guard = checks.next;
        checks.next += 1;
        checks.installed.push(Installed {
            guard,
            check,
            period,
            asked: Instant::now(),
        });
        guard
    });
    INSTALLED.set(INSTALLED.get() + 1);
    Entered {
        guard,
        here: PhantomData,
    }
}

/// Removes a check when dropped. See [`enter`].
#[must_use]
pub struct Entered {
    guard: u64,
    /// A guard stays on its thread.
    here: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let removed = CHECKS.with_borrow_mut(|checks| {
            let at = checks
                .installed
                .iter()
                .position(|c| c.guard == self.guard)?;
            Some(checks.installed.remove(at))
        });
        if removed.is_some() {
            INSTALLED.set(INSTALLED.get() - 1);
        }
        // What the check owns may end here, and does so after the borrow.
        drop(removed);
    }
}

/// True if this thread has a check.
pub fn is_installed() -> bool {
    INSTALLED.get() > 0
}

/// Asks the checks of this thread whose period has passed, the innermost first.
///
/// # Errors
/// [`Error::Interrupted`] if one says so.
#[inline]
pub fn ask() -> Result<()> {
    match is_installed() {
        true => ask_those_due(),
        false => Ok(()),
    }
}

#[cold]
fn ask_those_due() -> Result<()> {
    let now = Instant::now();
    let due: SmallVec<[Arc<Check>; 2]> = CHECKS.with_borrow_mut(|checks| {
        let due = checks.installed.iter_mut().rev();
        let due = due.filter(|c| now.duration_since(c.asked) >= c.period);
        let due = due.map(|c| {
            c.asked = now;
            c.check.clone()
        });
        due.collect()
    });
    match due.iter().any(|check| check()) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}

/// Locks a mutex and asks the checks while another thread holds it.
///
/// # Errors
/// [`Error::Interrupted`] if a check says so.
pub fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    loop {
        let Some(period) = shortest_period() else {
            return Ok(mutex.lock());
        };
        match mutex.try_lock_for(period) {
            Some(guard) => return Ok(guard),
            None => ask()?,
        }
    }
}

/// Waits for a message and asks the checks meanwhile; `None` when the sender is gone.
///
/// # Errors
/// [`Error::Interrupted`] if a check says so.
pub fn receive<T>(from: &Receiver<T>) -> Result<Option<T>> {
    loop {
        let Some(period) = shortest_period() else {
            return Ok(from.recv().ok());
        };
        match from.recv_timeout(period) {
            Ok(message) => return Ok(Some(message)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => ask()?,
        }
    }
}

/// How long to wait before the next question; `None` where there is nobody to ask.
fn shortest_period() -> Option<Duration> {
    match is_installed() {
        true => CHECKS.with_borrow(|checks| checks.installed.iter().map(|c| c.period).min()),
        false => None,
    }
}

/// [`Ready::run`], which the checks of this thread can stop, also within a launch if the run is
/// expected to be a long one.
///
/// # Errors
/// [`Error::Interrupted`] if a check says so, and as [`Ready::run`].
pub fn run(ready: &Arc<Ready>, inputs: &[Arc<Storage>], pool: &Arc<Pool>) -> Result<Results> {
    if !is_installed() || ready.expected() < LONG {
        return ready.run(inputs, pool);
    }
    ask()?;
    let owned = (ready.clone(), inputs.to_vec(), pool.clone());
    let helper = Helper::start(move || {
        let (ready, inputs, pool) = owned;
        ready.run(&inputs, &pool)
    });
    match helper {
        Ok(helper) => helper.wait(),
        // Without a thread to be had, a launch runs to its end before anyone can leave.
        Err(_) => ready.run(inputs, pool),
    }
}

/// Does work that should take long, which the checks of this thread can leave at any time.
///
/// If this thread has a check, the work is done on a helper thread, where [`ask`] says when
/// nobody waits for the result any more.
///
/// # Errors
/// [`Error::Interrupted`] if a check says so, and what the work gives.
pub fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    if !is_installed() {
        return work();
    }
    ask()?;
    // Shared, since a thread that can't be started does not give back what it was to do.
    let work = Arc::new(Mutex::new(Some(work)));
    let theirs = work.clone();
    let take = |shared: &Mutex<Option<_>>| shared.lock().take().expect("taken once");
    match Helper::start(move || take(&theirs)()) {
        Ok(helper) => helper.wait(),
        // Without a thread to be had, the work is done to its end before anyone can leave.
        Err(_) => take(&work)(),
    }
}

/// Helpers that their callers have left. A lock of the standard library, as that of a process that
/// forks must not depend on other threads.
static LEFT: std::sync::Mutex<Vec<JoinHandle<()>>> = std::sync::Mutex::new(Vec::new());

fn left() -> std::sync::MutexGuard<'static, Vec<JoinHandle<()>>> {
    // A panic can't leave the list half changed.
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the end of all helpers whose callers have left. Until its end such a thread may take
/// locks of the whole process, not least to drop a result that nobody received, so who forks waits
/// for it, while nobody begins anything.
pub fn wait_for_abandoned() {
    loop {
        let helpers = mem::take(&mut *left());
        if helpers.is_empty() {
            return;
        }
        for helper in helpers {
            // A panic there was nobody's result.
            let _ = helper.join();
        }
        // Each may have left helpers of its own.
    }
}

/// Forgets the helpers of the parent in a process that was forked: their threads are not there.
pub fn forget_abandoned() {
    mem::take(&mut *left()).into_iter().for_each(mem::forget);
}

/// A thread that works for this one.
struct Helper<T> {
    result: Receiver<Result<T>>,
    /// Set when nobody waits any more.
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Helper<T> {
    /// Starts work in which [`ask`] says when to stop.
    fn start(work: impl FnOnce() -> Result<T> + Send + 'static) -> io::Result<Helper<T>> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, result) = sync_channel(1);
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("uopc-helper".into())
            .stack_size(STACK)
            .spawn(move || {
                let check = Arc::new(move || stopped.load(Relaxed));
                let _entered = enter_every(Duration::ZERO, check);
                let result = work();
                // What the work owned is gone by now. Nobody may be there to receive.
                let _ = sender.send(result);
            })?;
        Ok(Helper {
            result,
            stop,
            thread: Some(thread),
        })
    }

    fn wait(mut self) -> Result<T> {
        let result = receive(&self.result)?;
        let thread = mem::take(&mut self.thread).expect("present until here");
        match (result, thread.join()) {
            (Some(result), _) => result,
            (None, Err(panic)) => resume_unwind(panic),
            (None, Ok(())) => unreachable!("a helper that does not panic sends a result"),
        }
    }
}

impl<T> Drop for Helper<T> {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let mut left = left();
            left.retain(|helper| !helper.is_finished());
            left.push(thread);
        }
    }
}
