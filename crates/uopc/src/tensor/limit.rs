//! A limit of memory for what a thread computes.

use std::cell::RefCell;
use std::marker::PhantomData;

thread_local! {
    static LIMITS: RefCell<Limits> = const {
        RefCell::new(Limits {
            set: Vec::new(),
            next: 0,
        })
    };
}

/// The limits of guards that live.
struct Limits {
    /// Each with the number of its guard. The last one holds.
    set: Vec<(u64, u64)>,
    /// The number of the next guard.
    next: u64,
}

/// The limit that holds for this thread, if a guard has set one.
pub(super) fn on_this_thread() -> Option<u64> {
    LIMITS.with_borrow(|limits| limits.set.last().map(|&(_, bytes)| bytes))
}

/// Until the returned guard is dropped, each computation of this thread takes at most that many
/// bytes at once beside the memory that it reads. Results are the same, to the last bit.
///
/// Where memory is short, interior values are computed again instead of kept; which ones is decided
/// for each plan as a whole, from what computing them costs. Counted is what the allocator gives: the
/// results, the memory that kernels share, and what threads work in. Nothing is kept for gradients
/// after a computation, so a loss that is looked at before its gradients are asked for is computed
/// twice. The limit is each computation's, not the process's: parameters and other tensors that are
/// held count beside it.
///
/// A guard inside another one sets another limit for a while. Without any, `UOPC_MEMORY_LIMIT`
/// holds.
///
/// ```
/// use uopc::{Tensor, memory_limit};
///
/// let x = Tensor::ones([1024])?;
/// let mean = {
///     let _limit = memory_limit(1 << 20);
///     x.exp()?.mean(..)?.item()?
/// };
/// assert!((mean - 1f64.exp()).abs() < 1e-6);
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// A limit that can't be kept is an [`Error::MemoryLimit`](crate::Error::MemoryLimit) when values
/// are asked for, which names the least that works.
pub fn memory_limit(bytes: u64) -> MemoryLimit {
    let entry = LIMITS.with_borrow_mut(|limits| {
        let entry = limits.next;
        limits.next += 1;
        limits.set.push((entry, bytes));
        entry
    });
    MemoryLimit {
        entry,
        here: PhantomData,
    }
}

/// Keeps a limit while it lives; see [`memory_limit`].
#[must_use]
pub struct MemoryLimit {
    entry: u64,
    /// A guard stays on its thread.
    here: PhantomData<*const ()>,
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        LIMITS.with_borrow_mut(|limits| limits.set.retain(|(entry, _)| *entry != self.entry));
    }
}
