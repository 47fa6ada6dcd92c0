//! The thread team: the caller and its workers, who share the blocks of a job.
//!
//! A job is a function of C, called once for each block number below n. [`Team::run`] returns when
//! all calls have returned, on whichever threads. There is one team for each size in a process
//! ([`Team::of`]); its workers are started by the first job that needs them. They wait about 200
//! microseconds for the next job and then sleep, and never keep the process from ending.
//!
//! # The protocol
//!
//! Who may post a job is whoever has set `owner`, which is free at 0. Everyone else (a second
//! caller, or a block that calls the team itself) does all blocks of the own job alone: nobody ever
//! waits for the team, so nothing can deadlock.
//!
//! A posted job is cut into chunks of blocks, and these into one share for each thread: threads
//! that do the same job again find what they wrote in their own caches. A share's `open` counts
//! the chunks of it that nobody has claimed, `unfinished` all those whose blocks have not returned.
//!
//! 1. The owner writes the job, then `unfinished`, then each `open` (release).
//! 2. A thread claims by a compare-and-swap of an `open` from c > 0 to c - 1 (acquire). It gets the
//!    c-th chunk from the end of the share. It tries its own share first, then those of the others.
//!    Only after a claim does a worker read the job.
//! 3. A thread does its chunk, claims until there is none, and then subtracts what it has done from
//!    `unfinished` (release).
//! 4. The owner, who claims like everyone else, waits until `unfinished` is 0 (acquire), and only
//!    then gives up `owner` or posts the next job.
//!
//! *A late worker never touches a job that is over.* Without a successful claim it reads nothing
//! but counters. A claim succeeds only on the present value of an `open`, so there is a job with a
//! chunk left; that job can't end before the claimer has subtracted, thus the job is not written
//! while it is read. That the `open` may have gone through many jobs since the worker looked at it
//! does not matter: a claim concerns the job that is posted at the claim, whichever that is. Nor
//! does it matter that the owner may not have filled the other shares yet: their chunks count as
//! unfinished from before.
//!
//! *What blocks write is seen where it is needed.* A claim reads what step 1 released, or what
//! another claim made of that (a release sequence), so it sees the job and all that the owner did
//! before. All subtractions are such a sequence, too, so the owner that reads 0 sees all blocks,
//! and with the next job so do the workers.
//!
//! *Nobody oversleeps.* A worker notes that it sleeps, then looks at each `open` once more; an owner
//! posts, then looks who sleeps. All four are sequentially consistent, so that one of the two sees
//! the other. An owner that has waited for long sets the highest bit of `unfinished` and sleeps on
//! a condition; whoever subtracts the last chunk finds the bit and signals.
//!
//! *Too few processors.* A thread that was taken off its processor delays the chunk that it holds
//! and nothing else. Whoever waits gives its processor away after a few microseconds.
//!
//! *After a fork* the child has no workers. `owner` is the number of the owner's process, and a
//! crew knows its own, so the child sees that both are left over from its parent, takes the one and
//! starts another crew. No lock is taken that could have been held at the fork. (A block must not
//! fork and go on in the child: chunks that others had claimed are done by nobody there.)

#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_long, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{hint, process, ptr};

use crate::debug::MAX_THREADS;

/// How long a worker waits awake for the next job: waking up takes 30 to 60 microseconds.
const AWAKE: Duration = Duration::from_micros(200);

/// How long an owner waits awake for the last blocks.
const PATIENCE: Duration = Duration::from_millis(1);

/// How often someone who waits looks before giving the processor to others in between, which
/// takes about 10 microseconds.
const LOOKS: usize = 200;

/// Each thread gets this many chunks on average, if there are so many blocks.
const CHUNKS_PER_THREAD: usize = 64;

/// The stack of a worker, in bytes: that of a main thread.
const STACK: usize = 8 << 20;

/// Set in `unfinished` when the owner sleeps.
const OWNER_SLEEPS: usize = 1 << (usize::BITS - 1);

/// A block of a job in C: the job's context, the block's number, and which of the team's threads
/// does it, from 0.
pub type Part = unsafe extern "C" fn(context: *mut c_void, i: c_long, worker: c_long);

/// Threads that do jobs together. C sees it as `struct uopc_team`, which has the first field only.
#[repr(C)]
pub struct Team {
    run: unsafe extern "C" fn(team: *const Team, part: Part, context: *mut c_void, n: c_long),
    threads: usize,
    /// The process of the thread that has the team, else 0.
    owner: AtomicU32,
    /// Null before the first job. Replaced in a process that was forked, never freed before `self`.
    crew: AtomicPtr<Crew>,
}

thread_local! {
    /// The number of this thread in the job that it takes part in.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// How many threads this process may run at once.
pub fn available() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get())
}

impl Team {
    /// The process's team of that size, the caller included; at least 1, at most [`MAX_THREADS`].
    pub fn of(threads: usize) -> &'static Team {
        static TEAMS: [Team; MAX_THREADS] = {
            let mut teams = [const { Team::new(1) }; MAX_THREADS];
            let mut k = 0;
            while k < MAX_THREADS {
                teams[k].threads = k + 1;
                k += 1;
            }
            teams
        };
        &TEAMS[threads.clamp(1, MAX_THREADS) - 1]
    }

    /// A team of one's own, whose workers end when it is dropped.
    pub const fn new(threads: usize) -> Team {
        Team {
            run: run_for_c,
            threads,
            owner: AtomicU32::new(0),
            crew: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// How many threads do a job, the caller included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `part(i, worker)` once for each `i` below n, on several threads, and waits for all.
    /// Two calls that run at the same time have different `worker`s, each below
    /// [`threads`](Self::threads).
    ///
    /// # Panics
    /// A panic in `part` ends the process: other threads may be at work on the same job.
    pub fn run(&self, n: usize, part: &(dyn Fn(usize, usize) + Sync)) {
        unsafe extern "C" fn call(context: *mut c_void, i: c_long, worker: c_long) {
            // SAFETY: the context is the reference below, borrowed until the job is done.
            let part = unsafe { *context.cast::<&(dyn Fn(usize, usize) + Sync)>() };
            part(i as usize, worker as usize);
        }
        let context = ptr::from_ref(&part).cast_mut().cast();
        // SAFETY: `call` takes this context, and what it calls may be called by any thread.
        unsafe { self.run_part(call, context, n) }
    }

    /// [`run`](Self::run) for a function of C.
    ///
    /// # Safety
    /// `part` may be called with the context, by several threads at once, for each number below n.
    unsafe fn run_part(&self, part: Part, context: *mut c_void, n: usize) {
        let number = NUMBER.get();
        let job = Job::new(part, context, n, self.threads);
        if job.chunks <= 1 || self.threads == 1 {
            return self.run_alone(&job, number);
        }
        let process = process::id();
        if !self.acquire(process) {
            return self.run_alone(&job, number);
        }
        NUMBER.set(0);
        self.crew(process).carry_out(job);
        NUMBER.set(number);
        self.owner.store(0, Release);
    }

    /// All blocks on this thread. In a block of this team's own job it keeps its number, since
    /// memory may belong to it.
    fn run_alone(&self, job: &Job, number: usize) {
        let number = if number < self.threads { number } else { 0 };
        (0..job.chunks).for_each(|chunk| job.run_chunk(chunk, number));
    }

    /// Makes this thread the owner, unless another one in this process is.
    fn acquire(&self, process: u32) -> bool {
        match self.owner.compare_exchange(0, process, Acquire, Relaxed) {
            Ok(_) => true,
            Err(owner) if owner == process => false,
            // A thread of the process that this one was forked from had it.
            Err(gone) => {
                let taken = self.owner.compare_exchange(gone, process, Acquire, Relaxed);
                taken.is_ok()
            }
        }
    }

    /// The workers, started now if there are none in this process. Only the owner asks.
    fn crew(&self, process: u32) -> &Crew {
        let known = self.crew.load(Acquire);
        // SAFETY: null, or made below and not freed before `self` is dropped.
        if let Some(crew) = unsafe { known.as_ref() }
            && crew.process == process
        {
            return crew;
        }
        // The parent's crew stays where it is: its threads are not here to be waited for.
        let crew = Box::into_raw(Box::new(Crew::start(self.threads - 1, process)));
        self.crew.store(crew, Release);
        // SAFETY: as above.
        unsafe { &*crew }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        let crew = *self.crew.get_mut();
        // SAFETY: null, or made by `crew` and not freed since; `self` is borrowed by every job.
        if unsafe { crew.as_ref() }.is_some_and(|crew| crew.process == process::id()) {
            // SAFETY: it came from `Box::into_raw`, and no reference to it is left.
            unsafe { Box::from_raw(crew) }.end();
        }
    }
}

/// What C finds in `struct uopc_team`.
///
/// # Safety
/// As [`Team::run_part`], with the team alive.
unsafe extern "C" fn run_for_c(team: *const Team, part: Part, context: *mut c_void, n: c_long) {
    let n = usize::try_from(n).unwrap_or(0);
    // SAFETY: the caller passes on the team that the kernel was given, and promises the rest.
    unsafe { (*team).run_part(part, context, n) }
}

// ---- jobs ----

/// What is to be done.
#[derive(Clone, Copy)]
struct Job {
    part: Part,
    context: *mut c_void,
    n: usize,
    /// Blocks of a chunk; the last one may have fewer.
    grain: usize,
    chunks: usize,
}

impl Job {
    fn new(part: Part, context: *mut c_void, n: usize, threads: usize) -> Job {
        let grain = (n / (threads * CHUNKS_PER_THREAD)).max(1);
        Job {
            part,
            context,
            n,
            grain,
            chunks: n.div_ceil(grain),
        }
    }

    /// The first chunk of a share, if there are so many.
    fn share(&self, k: usize, shares: usize) -> usize {
        (k as u128 * self.chunks as u128 / shares as u128) as usize
    }

    /// Does a chunk.
    fn run_chunk(&self, chunk: usize, worker: usize) {
        let first = chunk * self.grain;
        for i in first..self.n.min(first + self.grain) {
            // SAFETY: whoever made the job promised that this may be called, see `Team::run_part`.
            unsafe { (self.part)(self.context, i as c_long, worker as c_long) }
        }
    }
}

/// The workers of a team in one process.
struct Crew {
    process: u32,
    board: Arc<Board>,
    workers: Vec<JoinHandle<()>>,
}

impl Crew {
    /// As many workers as asked for, or as many as the system gives.
    fn start(workers: usize, process: u32) -> Crew {
        let board = Arc::new(Board {
            open: (0..=workers).map(|_| Line::default()).collect(),
            unfinished: Line::default(),
            job: UnsafeCell::new(None),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            ended: AtomicBool::new(false),
            lock: Mutex::new(()),
            done: Condvar::new(),
        });
        let start = |worker: usize| {
            let board = board.clone();
            thread::Builder::new()
                .name("uopc-worker".into())
                .stack_size(STACK)
                .spawn(move || board.work(worker + 1))
        };
        let mut started = Vec::with_capacity(workers);
        for worker in 0..workers {
            match start(worker) {
                Ok(worker) => started.push(worker),
                Err(e) => {
                    log::warn!("{} of {workers} threads could be started: {e}", worker);
                    break;
                }
            }
        }
        Crew {
            process,
            board,
            workers: started,
        }
    }

    /// Does a job, with the caller as number 0. Only the owner of the team calls this.
    fn carry_out(&self, job: Job) {
        let board = &*self.board;
        // SAFETY: the owner is the only one to write, and no job is posted, so nobody reads.
        unsafe { *board.job.get() = Some(job) }
        board.unfinished.store(job.chunks, Relaxed);
        let shares = board.open.len();
        for (k, open) in board.open.iter().enumerate() {
            open.store(job.share(k + 1, shares) - job.share(k, shares), SeqCst);
        }
        // The caller takes one of the chunks.
        let helping = board.asleep.iter().zip(&self.workers).take(job.chunks - 1);
        for (asleep, worker) in helping {
            if asleep.load(SeqCst) {
                asleep.store(false, Relaxed);
                worker.thread().unpark();
            }
        }
        let mut claimed = 0;
        while let Some(claim) = board.claim(0) {
            board.carry_out(&job, claim, 0);
            claimed += 1;
        }
        board.unfinished.fetch_sub(claimed, Relaxed);
        board.wait_until_done();
    }

    /// Ends the workers and waits until they have ended.
    fn end(self) {
        self.board.ended.store(true, SeqCst);
        for worker in self.workers {
            worker.thread().unpark();
            worker.join().expect("a worker does not panic");
        }
    }
}

/// Where jobs are posted.
struct Board {
    /// For each thread how many chunks of its share nobody has claimed. In lines of the cache of
    /// their own, as each is written by its thread.
    open: Box<[Line]>,
    unfinished: Line,
    /// Written by the owner while no chunk is open or unfinished, read by those who have claimed.
    job: UnsafeCell<Option<Job>>,
    /// Which workers sleep.
    asleep: Box<[AtomicBool]>,
    ended: AtomicBool,
    /// For an owner that sleeps until its job is done. Locks of the standard library do not depend
    /// on other threads in a process that was forked.
    lock: Mutex<()>,
    done: Condvar,
}

/// Pairs of lines are fetched together.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicUsize);

impl std::ops::Deref for Line {
    type Target = AtomicUsize;

    fn deref(&self) -> &AtomicUsize {
        &self.0
    }
}

/// A chunk that a thread has claimed.
#[derive(Clone, Copy)]
struct Claim {
    /// Whose share it is from.
    share: usize,
    /// How many chunks of the share were open, that one included.
    open: usize,
}

// SAFETY: the only field that is not shareable by itself is `job`, and the module's page says why
// nobody reads it while it is written. What it points to may be used by any thread, as whoever made
// the job promised.
unsafe impl Sync for Board {}
// SAFETY: as above.
unsafe impl Send for Board {}

impl Board {
    /// Claims a chunk for a thread, if there is one.
    fn claim(&self, number: usize) -> Option<Claim> {
        let (others, own) = self.open.split_at(number);
        let shares = (number..).zip(own).chain(others.iter().enumerate());
        for (share, open) in shares {
            let claimed = open.fetch_update(Acquire, Relaxed, |chunks| chunks.checked_sub(1));
            if let Ok(open) = claimed {
                return Some(Claim { share, open });
            }
        }
        None
    }

    /// Does what a thread has claimed.
    fn carry_out(&self, job: &Job, claim: Claim, number: usize) {
        let end = job.share(claim.share + 1, self.open.len());
        job.run_chunk(end - claim.open, number);
    }

    /// The life of a worker.
    fn work(&self, number: usize) {
        NUMBER.set(number);
        while !self.ended.load(Relaxed) {
            let Some(mut claim) = self.claim(number) else {
                self.wait_for_job(&self.asleep[number - 1]);
                continue;
            };
            // SAFETY: claimed, so that the job stays as it is until the subtraction below.
            let job = unsafe { *self.job.get() }.expect("posted before its chunks are open");
            let mut claimed = 0;
            loop {
                self.carry_out(&job, claim, number);
                claimed += 1;
                match self.claim(number) {
                    Some(next) => claim = next,
                    None => break,
                }
            }
            let before = self.unfinished.fetch_sub(claimed, Release);
            if before == OWNER_SLEEPS + claimed {
                drop(self.lock());
                self.done.notify_one();
            }
        }
    }

    /// Returns when there may be a chunk to claim, or when the crew ends; perhaps for no reason.
    fn wait_for_job(&self, asleep: &AtomicBool) {
        let open = |order| self.open.iter().any(|open| open.load(order) > 0);
        let news = |order| open(order) || self.ended.load(order);
        if wait_awake(AWAKE, || news(Relaxed)) {
            return;
        }
        asleep.store(true, SeqCst);
        while asleep.load(Relaxed) && !news(SeqCst) {
            thread::park();
        }
        asleep.store(false, Relaxed);
    }

    /// Returns when all chunks are done, of which none is open.
    fn wait_until_done(&self) {
        let unfinished = &self.unfinished;
        if wait_awake(PATIENCE, || unfinished.load(Acquire) == 0) {
            return;
        }
        if unfinished.fetch_or(OWNER_SLEEPS, Acquire) == 0 {
            return;
        }
        let mut guard = self.lock();
        while unfinished.load(Acquire) != OWNER_SLEEPS {
            guard = self
                .done
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        // It guards nothing that a panic could have left half done.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks for something until it is there, true, or for so long, false.
fn wait_awake(limit: Duration, there: impl Fn() -> bool) -> bool {
    for _ in 0..LOOKS {
        if there() {
            return true;
        }
        hint::spin_loop();
    }
    let began = Instant::now();
    while !there() {
        if began.elapsed() > limit {
            return false;
        }
        thread::yield_now();
    }
    true
}
