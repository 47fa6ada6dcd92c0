//! Functions whose gradients their author gives: the argument of [`Op::Custom`](super::op::Op).
//!
//! A CUSTOM node has the value of its first source, the body; the other sources are the inputs. Its
//! gradients are not those of the body: they are graphs over leaves that stand for the inputs, the
//! output and what comes from outside. To apply a rule is to put nodes in the leaves' place.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustc_hash::FxHashMap;

use super::dtype::DType;
use super::op::LiveBuffer;
use super::uop::UOp;
use super::visit::substitute;
use crate::error::Result;

/// A name, and the rules behind it. Text holds the name alone: what is read back has its value, but
/// no gradient.
#[derive(Clone, Debug)]
pub struct Custom {
    /// What the function is called in text and errors.
    pub name: Arc<str>,
    /// How it is differentiated.
    pub rules: Option<Arc<Rules>>,
}

/// The derivatives of a function, as graphs over leaves of one axis each.
pub struct Rules {
    /// Unique in the process.
    id: u64,
    /// One for each input.
    pub inputs: Vec<UOp>,
    /// The output.
    pub output: UOp,
    /// The output's cotangent.
    pub cotangent: UOp,
    /// One for each input: its tangent.
    pub tangents: Vec<UOp>,
    /// For each input its cotangent, over all leaves but the tangents. `None` is zero.
    pub vjp: Vec<Option<UOp>>,
    /// The output's tangent, over all leaves but the cotangent.
    pub jvp: UOp,
}

impl Rules {
    /// Rules, all parts but the number given.
    pub fn new(
        inputs: Vec<UOp>,
        output: UOp,
        cotangent: UOp,
        tangents: Vec<UOp>,
        vjp: Vec<Option<UOp>>,
        jvp: UOp,
    ) -> Rules {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Rules {
            id: NEXT.fetch_add(1, Relaxed),
            inputs,
            output,
            cotangent,
            tangents,
            vjp,
            jvp,
        }
    }

    /// A rule with nodes in the place of leaves.
    ///
    /// # Errors
    /// When a node does not have as many elements as its leaf, or another dtype.
    pub fn applied<'a>(
        rule: &UOp,
        values: impl IntoIterator<Item = (&'a UOp, &'a UOp)>,
    ) -> Result<UOp> {
        let mut replace = FxHashMap::default();
        for (leaf, value) in values {
            replace.insert(leaf.clone(), value.reshape(leaf.shape())?);
        }
        Ok(substitute(std::slice::from_ref(rule), &replace)?.swap_remove(0))
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Rules({})", self.id)
    }
}

/// Equal are the names and the very rules.
impl PartialEq for Custom {
    fn eq(&self, other: &Custom) -> bool {
        let id = |c: &Custom| c.rules.as_ref().map(|rules| rules.id);
        self.name == other.name && id(self) == id(other)
    }
}

impl Eq for Custom {}

/// Of the name alone: a plan does not depend on rules, which are made anew by each call.
impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl UOp {
    /// A leaf of one axis that stands for a value which is put in its place before anything is
    /// computed; no other node is equal to it.
    pub fn placeholder(dtype: DType, n: usize) -> UOp {
        UOp::live(Arc::new(LiveBuffer::new(Arc::new(()))), dtype, n)
    }
}
