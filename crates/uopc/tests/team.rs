//! The thread team: every block once, whoever calls, however often, and after a fork.
//!
//! Medians are printed with `UOPC_PERF` set.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use uopc::debug::MAX_THREADS;
use uopc::runtime::team::{Team, available};

/// The variable that makes this program's child do a child's work.
const CHILD: &str = "TEAM_TEST_CHILD";

/// A hang is a failure: how long anything here may wait.
const LIMIT: Duration = Duration::from_secs(100);

fn wait_until(what: &str, there: impl Fn() -> bool) {
    let began = Instant::now();
    while !there() {
        if began.elapsed() > LIMIT {
            // A panic in a block is an abort, and says where it was.
            panic!("{what} does not happen");
        }
        thread::yield_now();
    }
}

/// Lets time pass, awake.
fn pass(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        spin_loop();
    }
}

/// Runs n blocks and checks that each ran once, and that no two had a number at the same time.
fn check(team: &Team, n: usize) {
    let runs: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
    let at_work: Vec<AtomicBool> = (0..team.threads())
        .map(|_| AtomicBool::new(false))
        .collect();
    team.run(n, &|i, worker| {
        assert!(!at_work[worker].swap(true, Relaxed));
        runs[i].fetch_add(1, Relaxed);
        at_work[worker].store(false, Relaxed);
    });
    assert!(runs.iter().all(|r| r.load(Relaxed) == 1), "{n} blocks");
}

/// Runs one block for each thread, none of which ends before all have begun. Returns when
/// everyone's numbers are known to differ.
fn meet(team: &Team) {
    let n = team.threads();
    let begun = AtomicUsize::new(0);
    let numbers = Mutex::new(BTreeSet::new());
    team.run(n, &|_, worker| {
        begun.fetch_add(1, Relaxed);
        wait_until("a meeting", || begun.load(Relaxed) == n);
        assert!(numbers.lock().unwrap().insert(worker));
    });
    assert_eq!(numbers.into_inner().unwrap(), (0..n).collect());
}

#[test]
fn every_block_runs_once() {
    for threads in 1..=8 {
        let team = Team::new(threads);
        for n in (0..20).chain([63, 64, 65, 127, 128, 129, 1000, 1023, 65_537]) {
            check(&team, n);
        }
    }
}

#[test]
fn thousands_of_jobs() {
    for threads in [2, 3, 8] {
        let team = Team::new(threads);
        (0..5000).for_each(|job| check(&team, job % 13));
    }
}

#[test]
fn blocks_run_in_order_on_one_thread() {
    let seen = Mutex::new(Vec::new());
    Team::new(1).run(1000, &|i, worker| seen.lock().unwrap().push((i, worker)));
    let expected: Vec<_> = (0..1000).map(|i| (i, 0)).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn everyone_takes_part() {
    for threads in 1..=8 {
        let team = Team::new(threads);
        (0..100).for_each(|_| meet(&team));
    }
}

#[test]
fn workers_that_sleep_are_woken() {
    // From times that they wait awake to times after which they sleep for certain.
    let team = Team::new(3);
    for round in 0..300 {
        meet(&team);
        pass(Duration::from_micros(2 * round));
    }
}

#[test]
fn an_owner_that_sleeps_is_woken() {
    let team = Team::new(3);
    for round in 0..60 {
        let begun = AtomicUsize::new(0);
        let ended = AtomicUsize::new(0);
        team.run(3, &|_, worker| {
            begun.fetch_add(1, Relaxed);
            wait_until("a meeting", || begun.load(Relaxed) == 3);
            if worker > 0 {
                // Around the time at which the owner goes to sleep, and well after.
                pass(Duration::from_micros(900 + 20 * round));
            }
            ended.fetch_add(1, Relaxed);
        });
        assert_eq!(ended.load(Relaxed), 3);
    }
}

#[test]
fn several_callers_share_a_team() {
    let team = Team::new(3);
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for caller in 0..4 {
            let (team, start) = (&team, &start);
            scope.spawn(move || {
                start.wait();
                (0..3000).for_each(|job| check(team, (caller + job) % 40));
            });
        }
    });
}

#[test]
fn a_second_caller_does_not_wait() {
    let team = Team::new(2);
    let (held, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            team.run(2, &|_, _| {
                held.store(true, Relaxed);
                wait_until("the other caller", || done.load(Relaxed));
            });
        });
        wait_until("the first job", || held.load(Relaxed));
        check(&team, 1000);
        done.store(true, Relaxed);
    });
}

#[test]
fn blocks_may_call_the_team() {
    let (team, other) = (Team::new(4), Team::new(3));
    for _ in 0..50 {
        let sum = AtomicUsize::new(0);
        team.run(20, &|i, worker| {
            // Its own team: on this thread, with its number. Another: as any caller.
            team.run(10, &|j, inner| {
                assert_eq!(inner, worker);
                sum.fetch_add(10 * i + j, Relaxed);
            });
            check(&other, 5);
            team.run(1, &|_, inner| assert_eq!(inner, worker));
        });
        assert_eq!(sum.load(Relaxed), (0..200).sum::<usize>());
    }
}

#[test]
fn workers_have_names_and_numbers_of_their_own() {
    let team = Team::new(4);
    let names: Vec<_> = (0..4).map(|_| Mutex::new(None)).collect();
    let begun = AtomicUsize::new(0);
    team.run(4, &|_, worker| {
        begun.fetch_add(1, Relaxed);
        wait_until("a meeting", || begun.load(Relaxed) == 4);
        let current = thread::current();
        let name = current.name().unwrap_or_default().to_string();
        *names[worker].lock().unwrap() = Some((current.id(), name));
    });
    let names = names.into_iter().map(|n| n.into_inner().unwrap().unwrap());
    let names: Vec<_> = names.collect();
    assert_eq!(names[0].0, thread::current().id());
    assert!(names[1..].iter().all(|(_, name)| name == "uopc-worker"));
}

#[test]
fn a_team_takes_its_workers_along() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    struct Ends(Cell<bool>);
    impl Drop for Ends {
        fn drop(&mut self) {
            ENDED.fetch_add(self.0.get() as usize, SeqCst);
        }
    }
    thread_local! {
        static ENDS: Ends = const { Ends(Cell::new(false)) };
    }
    for round in 1..=20 {
        let team = Team::new(4);
        let begun = AtomicUsize::new(0);
        team.run(4, &|_, worker| {
            ENDS.with(|ends| ends.0.set(worker > 0));
            begun.fetch_add(1, Relaxed);
            wait_until("a meeting", || begun.load(Relaxed) == 4);
        });
        // Some are awake when the team goes, and some sleep.
        pass(Duration::from_micros(20 * round as u64));
        drop(team);
        assert_eq!(ENDED.load(SeqCst), 3 * round);
    }
    drop(Team::new(8));
}

#[test]
fn there_is_one_team_of_each_size() {
    assert!(std::ptr::eq(Team::of(3), Team::of(3)));
    for (asked, given) in [(0, 1), (1, 1), (3, 3), (MAX_THREADS + 1, MAX_THREADS)] {
        assert_eq!(Team::of(asked).threads(), given);
    }
    assert!(available() >= 1);
    check(Team::of(3), 100);
}

#[test]
fn what_blocks_wrote_is_there_for_the_next_job() {
    let team = Team::new(4);
    let numbers: Vec<AtomicUsize> = (0..256).map(AtomicUsize::new).collect();
    for job in 0..2000 {
        // Each job moves the numbers by one place, so that threads read what others wrote.
        let before: Vec<usize> = numbers.iter().map(|n| n.load(Relaxed)).collect();
        team.run(256, &|i, _| {
            numbers[i].store(before[(i + 1) % 256], Relaxed)
        });
        assert_eq!(numbers[0].load(Relaxed), (job + 1) % 256);
    }
}

// ---- forks ----

#[cfg(unix)]
mod forks {
    use super::*;
    use std::process::Command;

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }

    /// Does that in a child, and waits for its good end.
    fn in_child(f: impl FnOnce()) {
        // SAFETY: the only thread that is left in the child takes no lock that another thread of
        // this process holds: they wait, or they are in blocks that only look at atomics.
        let child = unsafe { fork() };
        if child == 0 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            // SAFETY: ends the child at once.
            unsafe { _exit(outcome.is_err() as i32) }
        }
        let mut status = -1;
        // SAFETY: waits for the child, into a variable of the right type.
        assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child's status");
    }

    /// The work of the test below, in a process where no other test runs.
    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let team = Team::of(3);
        // Before the first job, in the middle of a job's life, and in children of children.
        in_child(|| meet(team));
        for _ in 0..20 {
            meet(team);
            in_child(|| {
                meet(team);
                in_child(|| (0..20).for_each(|n| check(team, n)));
                meet(team);
            });
        }
        // While another thread has the team.
        let (held, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                team.run(3, &|_, _| {
                    held.fetch_add(1, Relaxed);
                    wait_until("the fork", || done.load(Relaxed));
                });
            });
            wait_until("the job", || held.load(Relaxed) == 3);
            in_child(|| {
                meet(team);
                (0..100).for_each(|n| check(team, n));
            });
            done.store(true, Relaxed);
        });
        meet(team);
        // A team of the parent's, dropped by the child: there is nobody to wait for.
        let own = Team::new(3);
        meet(&own);
        let own = Cell::new(Some(own));
        in_child(|| drop(own.take()));
        println!("forked");
    }

    #[test]
    fn a_child_has_workers_of_its_own() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "forks::child", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{errors}");
        assert!(text.contains("forked"), "{text}");
    }
}

// ---- speed ----

#[test]
fn the_price_of_a_job() {
    if std::env::var_os("UOPC_PERF").is_none() {
        return;
    }
    let median = |name: &str, calls: usize, f: &dyn Fn()| {
        let round = |_| {
            let began = Instant::now();
            (0..calls).for_each(|_| f());
            began.elapsed().as_secs_f64() / calls as f64
        };
        let mut times: Vec<f64> = (0..31).map(round).collect();
        times.sort_by(f64::total_cmp);
        let [least, median] = [times[0], times[15]].map(|t| t * 1e6);
        println!("{name:<44} median {median:>8.3} us, least {least:>8.3} us");
    };
    for threads in [1, 2, 4] {
        let team = Team::new(threads);
        for n in [1, 2, 16, 1000] {
            let name = format!("{threads} threads, {n} empty blocks");
            median(&name, 2000, &|| team.run(n, &|i, _| _ = black_box(i)));
        }
    }
    for threads in [1, 2, 3, 8] {
        let team = Team::new(threads);
        let name = format!("{threads} threads, 64 blocks of 20 us");
        median(&name, 20, &|| {
            team.run(64, &|_, _| pass(Duration::from_micros(20)))
        });
    }
    let team = Team::new(2);
    median("2 threads, one block each", 2000, &|| {
        let begun = AtomicUsize::new(0);
        team.run(2, &|_, _| {
            begun.fetch_add(1, Relaxed);
            while begun.load(Relaxed) < 2 {
                spin_loop();
            }
        });
    });
    let asleep = || {
        pass(Duration::from_micros(400));
        let began = Instant::now();
        let begun = AtomicUsize::new(0);
        team.run(2, &|_, _| {
            begun.fetch_add(1, Relaxed);
            while begun.load(Relaxed) < 2 {
                spin_loop();
            }
        });
        began.elapsed().as_secs_f64()
    };
    let mut times: Vec<f64> = (0..301).map(|_| asleep()).collect();
    times.sort_by(f64::total_cmp);
    println!(
        "the same with a sleeping worker: median {:>8.3} us",
        times[150] * 1e6
    );
}
