//! Shapes: interned lists of extents, printed as Python tuples.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use hashbrown::HashTable;
use parking_lot::Mutex;
use rustc_hash::FxHasher;

/// The extents of a tensor's axes; `()` is a scalar. Cheap to clone and to compare.
#[derive(Clone)]
pub struct Shape(Arc<[usize]>);

impl PartialEq for Shape {
    /// Equal shapes share their memory, so their addresses tell.
    fn eq(&self, other: &Shape) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Shape {}

impl Hash for Shape {
    /// By content: no hash depends on an address.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

struct Interner {
    table: HashTable<Shape>,
    /// Size at which unused shapes are thrown out.
    sweep_at: usize,
}

static SHAPES: LazyLock<Mutex<Interner>> = LazyLock::new(|| {
    Mutex::new(Interner {
        table: HashTable::new(),
        sweep_at: 4096,
    })
});

fn hash_of(dims: &[usize]) -> u64 {
    let mut hasher = FxHasher::default();
    dims.hash(&mut hasher);
    hasher.finish()
}

impl Shape {
    /// The shape of these extents. Equal shapes share their memory.
    pub fn new(dims: &[usize]) -> Shape {
        let hash = hash_of(dims);
        let mut shapes = SHAPES.lock();
        if let Some(found) = shapes.table.find(hash, |s| *s.0 == *dims) {
            return found.clone();
        }
        if shapes.table.len() >= shapes.sweep_at {
            shapes.table.retain(|s| Arc::strong_count(&s.0) > 1);
            shapes.sweep_at = (2 * shapes.table.len()).max(4096);
        }
        let shape = Shape(dims.into());
        shapes
            .table
            .insert_unique(hash, shape.clone(), |s| hash_of(&s.0));
        shape
    }

    /// The shape of a scalar, `()`.
    pub fn scalar() -> Shape {
        static SCALAR: LazyLock<Shape> = LazyLock::new(|| Shape::new(&[]));
        SCALAR.clone()
    }

    /// The product of the extents: 1 for a scalar. Saturates instead of overflowing.
    pub fn numel(&self) -> usize {
        self.0
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d))
            .unwrap_or({
                // A zero anywhere wins over an overflow before it.
                if self.0.contains(&0) { 0 } else { usize::MAX }
            })
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape::new(dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write_tuple(f, self.0.iter())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Writes items as a Python tuple: `()`, `(3,)`, `(2, 3)`.
pub fn write_tuple<T: fmt::Display>(
    f: &mut dyn fmt::Write,
    items: impl ExactSizeIterator<Item = T>,
) -> fmt::Result {
    let single = items.len() == 1;
    f.write_str("(")?;
    for (k, item) in items.enumerate() {
        if k > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{item}")?;
    }
    f.write_str(if single { ",)" } else { ")" })
}
