//! Values that a helper thread makes before somebody asks for them.

use std::panic::resume_unwind;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use crate::error::Result;
use crate::runtime::interrupt;

/// The stack of a helper thread, in bytes: that of a main thread, since it runs code of the user.
const STACK: usize = 8 << 20;

/// A helper thread and the values that it has ready, of which there are never more than were asked
/// for. Dropping it ends the thread: it stops behind the value that it is making, and is waited for.
pub struct Ahead<T> {
    values: Option<Receiver<T>>,
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// The process that has the thread; a process that was forked from it has not.
    process: u32,
}

impl<T: Send + 'static> Ahead<T> {
    /// Starts to make values, until there are none or nobody wants them any more. At most `depth`
    /// wait to be taken.
    pub fn start(
        depth: usize,
        mut make: impl FnMut() -> Option<T> + Send + 'static,
    ) -> io::Result<Ahead<T>> {
        // The one that is being made counts, too.
        let (sender, values) = sync_channel(depth.saturating_sub(1));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("uopc-loader".into())
            .stack_size(STACK)
            .spawn(move || {
                while !stopped.load(Relaxed) {
                    let Some(value) = make() else { return };
                    // Nobody is there any more.
                    if sender.send(value).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Ahead {
            values: Some(values),
            thread: Some(thread),
            stop,
            process: process::id(),
        })
    }

    /// The next value, waited for if need be; `None` behind the last one.
    ///
    /// # Errors
    /// [`Interrupted`](crate::Error::Interrupted) if a check of this thread says so; the value can be
    /// asked for again.
    ///
    /// # Panics
    /// When the helper has panicked.
    pub fn next(&mut self) -> Result<Option<T>> {
        let Some(values) = &self.values else {
            return Ok(None);
        };
        let value = interrupt::receive(values)?;
        if value.is_none() {
            self.values = None;
            if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
                resume_unwind(panic);
            }
        }
        Ok(value)
    }

    /// Whether this process was forked from the one that has the thread.
    pub fn is_orphan(&self) -> bool {
        self.process != process::id()
    }
}

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            // The thread and what it may hold are in another process.
            mem::forget((self.values.take(), self.thread.take()));
            return;
        }
        self.stop.store(true, Relaxed);
        // A helper that waits for room finds out that there will be none.
        drop(self.values.take());
        if let Some(thread) = self.thread.take() {
            // Who stops early wants no value of it, nor its panic.
            let _ = thread.join();
        }
    }
}
