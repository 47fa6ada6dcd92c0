//! Work that a caller may leave: it goes on by itself, learns that nobody waits, and can be waited for.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use uopc::runtime::interrupt::{self, Check, enter_every};
use uopc::{Error, Result};

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

#[test]
fn work_aside_can_be_left_at_any_time() {
    let here = thread::current().id();
    let work = move || Ok(thread::current().id());
    assert_eq!(
        interrupt::aside(work).unwrap(),
        here,
        "nobody could stop it"
    );
    let entered = enter_every(Duration::ZERO, stop_at(usize::MAX).1);
    assert_ne!(interrupt::aside(work).unwrap(), here);
    let failure: Result<()> = interrupt::aside(|| Err(Error::Setting("of the work".into())));
    assert_eq!(failure.unwrap_err().to_string(), "of the work");
    let panic = catch_unwind(|| interrupt::aside(|| -> Result<()> { panic!("in the work") }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"in the work"));
    drop(entered);

    // Stops as soon as the work has begun, which then waits for a word.
    let (begun_sender, begun) = channel();
    let (go, go_receiver) = channel();
    let (end_sender, end) = channel();
    let begun = Mutex::new(begun);
    let check = move || begun.lock().unwrap().try_recv() == Ok(());
    let entered = enter_every(Duration::ZERO, Arc::new(check));
    let left = interrupt::aside(move || {
        begun_sender.send(()).unwrap();
        go_receiver.recv().expect("nobody says go");
        end_sender.send(is_interrupted(interrupt::ask())).unwrap();
        Ok(())
    });
    assert!(is_interrupted(left));
    drop(entered);
    go.send(()).unwrap();
    assert_eq!(end.recv(), Ok(true), "it learns that nobody waits");
    assert_eq!(end.recv(), Err(RecvError), "and what it owned is gone");
}

/// A result whose end takes a while, and begins when it is told to.
struct Slow {
    go: Receiver<()>,
    gone: Arc<AtomicUsize>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.go.recv().expect("nobody says go");
        (0..2_000).for_each(|_| thread::yield_now());
        self.gone.store(1, SeqCst);
    }
}

#[test]
fn who_waits_for_the_abandoned_waits_for_their_results_to_go() {
    let (begun_sender, begun) = channel();
    let (left_sender, left_receiver) = channel();
    let (go, go_receiver) = channel();
    let gone = Arc::new(AtomicUsize::new(0));
    let slow = Slow {
        go: go_receiver,
        gone: gone.clone(),
    };
    let begun = Mutex::new(begun);
    let check = move || begun.lock().unwrap().try_recv() == Ok(());
    let entered = enter_every(Duration::ZERO, Arc::new(check));
    let left = interrupt::aside(move || {
        begun_sender.send(()).unwrap();
        left_receiver.recv().expect("nobody left");
        Ok(slow)
    });
    assert!(is_interrupted(left));
    drop(entered);
    left_sender.send(()).unwrap();
    go.send(()).unwrap();
    interrupt::wait_for_abandoned();
    assert_eq!(gone.load(SeqCst), 1, "the result was still there");
}
