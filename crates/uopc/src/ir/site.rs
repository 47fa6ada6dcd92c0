//! Where in the user's program a node was written.

use std::cell::Cell;
use std::fmt;
use std::panic::Location;

/// A line of the user's program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Site(&'static Location<'static>);

thread_local! {
    static CURRENT: Cell<Option<Site>> = const { Cell::new(None) };
}

impl Site {
    /// The line that called the function marked `#[track_caller]` in which this is written.
    #[track_caller]
    pub fn caller() -> Site {
        Site(Location::caller())
    }

    /// The place that nodes made now belong to: that of the outermost [`Site::enter`] in force,
    /// else `None`.
    pub fn current() -> Option<Site> {
        CURRENT.get()
    }

    /// Until the returned guard is dropped, nodes made on this thread belong to no line of the
    /// program: those that come from a file were not written in it.
    pub fn suspend() -> Entered {
        Entered {
            outer: CURRENT.replace(None),
        }
    }

    /// Until the returned guard is dropped, nodes made on this thread belong to this site, unless
    /// an outer call has already claimed them.
    pub fn enter(self) -> Entered {
        let outer = CURRENT.get();
        if outer.is_none() {
            CURRENT.set(Some(self));
        }
        Entered { outer }
    }
}

/// Restores the former site when dropped.
#[must_use]
pub struct Entered {
    outer: Option<Site>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}", self.0.file(), self.0.line())
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
