//! Positions of nodes in a list, found without a table: each node notes where it was put last.

use std::borrow::Borrow;
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use super::uop::UOp;

/// Tells at which position of a list a node is. The list holds each node at most once; walks over
/// graphs keep one of what they have met.
///
/// A node notes its position when it is put on a list. A note proves itself: that node is at that
/// position, or it is not. A missing note proves something only while no other list takes nodes,
/// whose notes replace ours. So one list of the process at a time takes nodes by notes alone. One
/// that is begun meanwhile has a map, and one that has [ended](Positions::end) makes a map when it
/// does not find a note.
pub struct Positions(Finder);

enum Finder {
    /// No other list takes nodes by notes.
    Notes(#[expect(dead_code, reason = "held for its Drop")] MutexGuard<'static, ()>),
    /// Another list did when this one was begun.
    Map(FxHashMap<usize, u32>),
    /// The list is complete.
    Ended(OnceLock<FxHashMap<usize, u32>>),
}

/// Held for the list that takes nodes by notes.
static NOTES: Mutex<()> = Mutex::new(());

impl Default for Positions {
    /// For a list that is empty and complete.
    fn default() -> Positions {
        Positions(Finder::Ended(OnceLock::new()))
    }
}

impl Positions {
    /// For a list that is empty.
    pub fn begin() -> Positions {
        Positions(match NOTES.try_lock() {
            Some(notes) => Finder::Notes(notes),
            None => Finder::Map(FxHashMap::default()),
        })
    }

    /// The position of a node, if it is on the list.
    pub fn of<U: Borrow<UOp>>(&self, u: &UOp, list: &[U]) -> Option<u32> {
        match &self.0 {
            Finder::Notes(_) => noted(u, list),
            Finder::Map(map) => map.get(&u.address()).copied(),
            Finder::Ended(map) => noted(u, list).or_else(|| {
                let addresses = list.iter().map(|u| u.borrow().address());
                let map = map.get_or_init(|| addresses.zip(0..).collect());
                map.get(&u.address()).copied()
            }),
        }
    }

    /// Puts a node that is not on the list at its end, and returns its position.
    ///
    /// # Panics
    /// When the list has ended.
    pub fn push<U: Borrow<UOp>>(&mut self, u: U, list: &mut Vec<U>) -> u32 {
        let position = list.len() as u32;
        match &mut self.0 {
            Finder::Notes(_) => u.borrow().set_note(position),
            Finder::Map(map) => {
                map.insert(u.borrow().address(), position);
            }
            Finder::Ended(_) => panic!("a list that has ended takes no more nodes"),
        }
        list.push(u);
        position
    }

    /// Completes the list: another one can take nodes by notes.
    pub fn end(&mut self) {
        if let Finder::Notes(_) = self.0 {
            *self = Positions::default();
        }
    }
}

fn noted<U: Borrow<UOp>>(u: &UOp, list: &[U]) -> Option<u32> {
    let note = u.note();
    (list.get(note as usize)?.borrow() == u).then_some(note)
}
