//! The plan cache: compiled plans by the structure of the graph they compute.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::runtime::interrupt;

/// A structure, hashed.
pub(super) type Key = [u8; 32];

/// Plans by key, the least recently used ones leaving when there are too many.
pub(super) struct Plans<T> {
    table: Mutex<Table<T>>,
    limit: usize,
}

struct Table<T> {
    plans: BTreeMap<Key, Entry<T>>,
    /// Counts look-ups; an entry remembers the last that met it.
    time: u64,
    hits: u64,
    misses: u64,
}

struct Entry<T> {
    /// Empty while someone makes the plan, who holds the lock.
    made: Arc<Mutex<Option<Arc<T>>>>,
    used: u64,
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

    /// The plan of that key, made now if it is not known. When several threads ask for it, one
    /// makes it and the others wait; different plans are made side by side. A failure is not
    /// remembered, and a check of this thread may stop it.
    pub(super) fn get(&self, key: Key, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let made = self.slot(key);
        let mut plan = interrupt::lock(&made)?;
        if let Some(plan) = &*plan {
            self.table.lock().hits += 1;
            return Ok(plan.clone());
        }
        self.table.lock().misses += 1;
        match make() {
            Ok(new) => Ok(plan.insert(Arc::new(new)).clone()),
            Err(error) => {
                // Threads that wait for this entry find it empty and try for themselves.
                self.table.lock().plans.remove(&key);
                Err(error)
            }
        }
    }

    fn slot(&self, key: Key) -> Arc<Mutex<Option<Arc<T>>>> {
        let mut table = self.table.lock();
        table.time += 1;
        let time = table.time;
        let entry = table.plans.entry(key).or_insert_with(|| Entry {
            made: Arc::default(),
            used: time,
        });
        entry.used = time;
        let made = entry.made.clone();
        if table.plans.len() > self.limit {
            let oldest = table.plans.iter().min_by_key(|(_, entry)| entry.used);
            let oldest = oldest.map(|(key, _)| *key);
            oldest.and_then(|key| table.plans.remove(&key));
        }
        made
    }

    /// Hits, misses and how many plans there are.
    pub(super) fn counts(&self) -> (u64, u64, usize) {
        let table = self.table.lock();
        (table.hits, table.misses, table.plans.len())
    }
}
