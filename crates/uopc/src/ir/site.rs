//! Where in the user's program a node was written, and by which rule of a transformation.

use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::LazyLock;

use hashbrown::HashTable;
use parking_lot::Mutex;
use rustc_hash::FxHasher;

use super::op::{OPS, Op};

/// A line of the user's program: of a Rust source file, or of a script that drives the library. What
/// a transformation made of a node has the node's line and the rule that made it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Site(Place);

/// The rule stands inside of each variant, beside the tag: so a site is no larger for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Rust(Option<Rule>, &'static Location<'static>),
    Script(Option<Rule>, &'static Line),
    /// Made by a rule from a node without a line.
    Nowhere(Rule),
}

/// What makes nodes out of other nodes: the rule for an op, by its [number](Op::number), or a part
/// of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The cotangent of the root itself.
    Seed,
    /// Reverse mode: what an op sends to one of its sources.
    Vjp(u8),
    /// Reverse mode: contributions added up.
    SumOfCotangents,
    /// Reverse mode: where a cotangent counts, and zeros elsewhere.
    Mask,
    /// Forward mode.
    Jvp(u8),
    /// Forward mode: tangents along several paths added up.
    SumOfTangents,
    /// An op over a batch.
    Vmap(u8),
}

impl Rule {
    /// That of reverse mode for an op.
    pub fn vjp(op: &Op) -> Rule {
        Rule::Vjp(op.number())
    }

    /// That of forward mode for an op.
    pub fn jvp(op: &Op) -> Rule {
        Rule::Jvp(op.number())
    }

    /// That of batching for an op.
    pub fn vmap(op: &Op) -> Rule {
        Rule::Vmap(op.number())
    }

    /// Until the returned guard is dropped, nodes made on this thread are this rule's. Their line
    /// stays what it was.
    pub fn enter(self) -> Entered {
        Site::derive(None, self)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (what, op) = match self {
            Rule::Seed => return f.write_str("seed"),
            Rule::SumOfCotangents => return f.write_str("sum of cotangents"),
            Rule::Mask => return f.write_str("mask"),
            Rule::SumOfTangents => return f.write_str("sum of tangents"),
            Rule::Vjp(op) => ("vjp", op),
            Rule::Jvp(op) => ("jvp", op),
            Rule::Vmap(op) => ("vmap", op),
        };
        write!(f, "{what} of {}", OPS[*op as usize].mnemonic)
    }
}

/// A line of a script. Each exists once and for good: nodes and errors that name it may outlive
/// the script.
#[derive(PartialEq, Eq)]
struct Line {
    file: &'static str,
    line: u32,
}

/// The lines of scripts that have been named so far.
struct Interner {
    files: HashTable<&'static str>,
    lines: HashTable<&'static Line>,
}

static LINES: LazyLock<Mutex<Interner>> = LazyLock::new(|| {
    Mutex::new(Interner {
        files: HashTable::new(),
        lines: HashTable::new(),
    })
});

thread_local! {
    static CURRENT: Cell<Option<Site>> = const { Cell::new(None) };
}

impl Site {
    /// The line that called the function marked `#[track_caller]` in which this is written.
    #[track_caller]
    pub fn caller() -> Site {
        Site(Place::Rust(None, Location::caller()))
    }

    /// A line of a script, for bindings to other languages: with it [entered](Self::enter), nodes
    /// and errors name the script's line and not the binding's.
    ///
    /// The memory of a line is never given back, so the process grows by some 40 bytes for each
    /// line, and by each file's name once, however often they are named.
    ///
    /// ```
    /// use uopc::{Tensor, tensor::Site};
    ///
    /// let _line = Site::script("train.py", 12).enter();
    /// let error = Tensor::ones([2])?.add(Tensor::ones([3])?).err().expect("they do not broadcast");
    /// assert!(error.to_string().ends_with("(at train.py:12)"));
    /// # Ok::<(), uopc::Error>(())
    /// ```
    pub fn script(file: &str, line: u32) -> Site {
        let hash = hash_of(&(file, line));
        let mut interner = LINES.lock();
        if let Some(found) = interner
            .lines
            .find(hash, |l| l.line == line && l.file == file)
        {
            return Site(Place::Script(None, found));
        }
        let file = interner.file(file);
        let new: &'static Line = Box::leak(Box::new(Line { file, line }));
        let rehash = |l: &&'static Line| hash_of(&(l.file, l.line));
        interner.lines.insert_unique(hash, new, rehash);
        Site(Place::Script(None, new))
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

    /// Until the returned guard is dropped, nodes made on this thread belong to the place given, if
    /// there is one, whoever has claimed them: what is made of a node by a transformation was
    /// written where the node was.
    pub fn inherit(site: Option<Site>) -> Entered {
        let outer = CURRENT.get();
        CURRENT.set(site.or(outer));
        Entered { outer }
    }

    /// Until the returned guard is dropped, nodes made on this thread are what a rule makes of a
    /// node written at the place given: they belong to that place, or if there is none to the one
    /// in force, and to the rule.
    pub fn derive(site: Option<Site>, rule: Rule) -> Entered {
        let outer = CURRENT.get();
        let place = match site.or(outer).map(|site| site.0) {
            Some(Place::Rust(_, location)) => Place::Rust(Some(rule), location),
            Some(Place::Script(_, line)) => Place::Script(Some(rule), line),
            Some(Place::Nowhere(_)) | None => Place::Nowhere(rule),
        };
        CURRENT.set(Some(Site(place)));
        Entered { outer }
    }

    /// The rule that made what is here, if the user did not write it.
    pub fn rule(self) -> Option<Rule> {
        match self.0 {
            Place::Rust(rule, _) | Place::Script(rule, _) => rule,
            Place::Nowhere(rule) => Some(rule),
        }
    }

    /// The line alone, if there is one.
    pub fn line(self) -> Option<Site> {
        match self.0 {
            Place::Rust(_, location) => Some(Site(Place::Rust(None, location))),
            Place::Script(_, line) => Some(Site(Place::Script(None, line))),
            Place::Nowhere(_) => None,
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

impl Interner {
    /// The one copy of a file's name.
    fn file(&mut self, name: &str) -> &'static str {
        let hash = hash_of(&name);
        if let Some(found) = self.files.find(hash, |f| *f == name) {
            return found;
        }
        let new: &'static str = Box::leak(name.into());
        self.files.insert_unique(hash, new, hash_of);
        new
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
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
        let (file, line) = match self.0 {
            Place::Rust(_, location) => (location.file(), location.line()),
            Place::Script(_, line) => (line.file, line.line),
            Place::Nowhere(rule) => return write!(f, "{rule}"),
        };
        write!(f, "{file}:{line}")?;
        self.rule().map_or(Ok(()), |rule| write!(f, ", {rule}"))
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
