//! The plan cache: compiled plans by the structure of the graph they compute.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::FxHasher;

use crate::error::Result;
use crate::runtime::interrupt;

/// Plans by structure, the least recently used ones leaving when there are too many.
///
/// A structure is a text in words. The table finds it by a hash and compares all of it, so that
/// no two structures are ever taken for one.
pub(super) struct Plans<T> {
    table: Mutex<Table<T>>,
    limit: usize,
}

struct Table<T> {
    /// By the hash of their texts. Of two that have one hash, which happens to nobody, the later
    /// one stays.
    plans: BTreeMap<u64, Entry<T>>,
    /// Counts look-ups; an entry remembers the last that met it.
    time: u64,
    hits: u64,
    misses: u64,
}

struct Entry<T> {
    text: Box<[u64]>,
    slot: Arc<Slot<T>>,
    used: u64,
}

/// Where a plan will be.
struct Slot<T> {
    plan: OnceLock<Arc<T>>,
    /// Locked by who makes the plan.
    making: Mutex<()>,
}

impl<T> Plans<T> {
    pub(super) fn new(limit: usize) -> Plans<T> {
        let table = Table {
            plans: BTreeMap::new(),
            time: 0,
            hits: 0,
            misses: 0,
        };
        Plans {
            table: Mutex::new(table),
            limit,
        }
    }

    /// The plan of that structure, made now if it is not known. When several threads ask for it,
    /// one makes it and the others wait; different plans are made side by side. A failure is not
    /// remembered, and a check of this thread may stop it.
    pub(super) fn get(&self, text: &[u64], make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let hash = hash(text);
        let slot = {
            let mut table = self.table.lock();
            let slot = table.slot(hash, text, self.limit);
            if let Some(plan) = slot.plan.get() {
                let plan = plan.clone();
                table.hits += 1;
                return Ok(plan);
            }
            slot.clone()
        };
        let _making = interrupt::lock(&slot.making)?;
        if let Some(plan) = slot.plan.get() {
            self.table.lock().hits += 1;
            return Ok(plan.clone());
        }
        self.table.lock().misses += 1;
        match make() {
            Ok(new) => Ok(slot.plan.get_or_init(|| Arc::new(new)).clone()),
            Err(error) => {
                // Threads that wait for this slot find it empty and try for themselves.
                self.table.lock().forget(hash, &slot);
                Err(error)
            }
        }
    }

    /// The structures of the plans that are known or being made.
    pub(super) fn texts(&self) -> Vec<Box<[u64]>> {
        let table = self.table.lock();
        table.plans.values().map(|e| e.text.clone()).collect()
    }

    /// The plans that are made.
    pub(super) fn all(&self) -> Vec<Arc<T>> {
        let table = self.table.lock();
        let plans = table.plans.values();
        plans.filter_map(|e| e.slot.plan.get().cloned()).collect()
    }

    /// Forgets all plans. Those that are being made are not remembered either.
    pub(super) fn clear(&self) {
        let forgotten = std::mem::take(&mut self.table.lock().plans);
        // Compiled code goes after the lock.
        drop(forgotten);
    }

    /// Hits, misses and how many plans there are.
    pub(super) fn counts(&self) -> (u64, u64, usize) {
        let table = self.table.lock();
        (table.hits, table.misses, table.plans.len())
    }
}

impl<T> Table<T> {
    /// The slot of that text, made now if there is none.
    fn slot(&mut self, hash: u64, text: &[u64], limit: usize) -> &Arc<Slot<T>> {
        self.time += 1;
        let known = self.plans.get(&hash).is_some_and(|e| *e.text == *text);
        if !known {
            self.insert(hash, text, limit);
        }
        let entry = self.plans.get_mut(&hash).expect("found or inserted above");
        entry.used = self.time;
        &entry.slot
    }

    fn insert(&mut self, hash: u64, text: &[u64], limit: usize) {
        let slot = Slot {
            plan: OnceLock::new(),
            making: Mutex::new(()),
        };
        let entry = Entry {
            text: text.into(),
            slot: Arc::new(slot),
            used: self.time,
        };
        self.plans.insert(hash, entry);
        if self.plans.len() > limit {
            let oldest = self.plans.iter().min_by_key(|(_, entry)| entry.used);
            let oldest = oldest.map(|(hash, _)| *hash);
            oldest.and_then(|hash| self.plans.remove(&hash));
        }
    }

    fn forget(&mut self, hash: u64, slot: &Arc<Slot<T>>) {
        let entry = self.plans.get(&hash);
        if entry.is_some_and(|e| Arc::ptr_eq(&e.slot, slot)) {
            self.plans.remove(&hash);
        }
    }
}

fn hash(text: &[u64]) -> u64 {
    let mut hasher = FxHasher::default();
    text.iter().for_each(|&word| hasher.write_u64(word));
    hasher.finish()
}
