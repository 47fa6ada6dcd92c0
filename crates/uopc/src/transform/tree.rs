//! Trees of tensors: what functions take and return.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::tensor::Tensor;

/// Tensors in a structure: a tensor, a tuple, a list, a map, or a struct of such things, for which
/// [`tree!`](crate::tree) writes this.
///
/// The structure of a value never depends on the tensors in it: [`rebuild`](Self::rebuild) takes
/// as many as [`leaves`](Self::leaves) gives, in the same order.
pub trait Tree: Sized {
    /// Appends the tensors, in an order that depends on the structure alone.
    fn leaves(&self, into: &mut Vec<Tensor>);

    /// The same structure over other tensors, taken one by one.
    ///
    /// # Errors
    /// Those of `next`.
    fn rebuild(&self, next: &mut dyn FnMut() -> Result<Tensor>) -> Result<Self>;

    /// The tensors as a list.
    fn tensors(&self) -> Vec<Tensor> {
        let mut tensors = Vec::new();
        self.leaves(&mut tensors);
        tensors
    }
}

impl Tree for Tensor {
    fn leaves(&self, into: &mut Vec<Tensor>) {
        into.push(self.clone());
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Result<Tensor>) -> Result<Tensor> {
        next()
    }
}

impl<T: Tree> Tree for Vec<T> {
    fn leaves(&self, into: &mut Vec<Tensor>) {
        self.iter().for_each(|part| part.leaves(into));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Result<Tensor>) -> Result<Vec<T>> {
        self.iter().map(|part| part.rebuild(next)).collect()
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn leaves(&self, into: &mut Vec<Tensor>) {
        self.iter().for_each(|part| part.leaves(into));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Result<Tensor>) -> Result<[T; N]> {
        let parts: Result<Vec<T>> = self.iter().map(|part| part.rebuild(next)).collect();
        let Ok(parts) = parts?.try_into() else {
            unreachable!("as many parts as before")
        };
        Ok(parts)
    }
}

impl<T: Tree> Tree for Option<T> {
    fn leaves(&self, into: &mut Vec<Tensor>) {
        self.iter().for_each(|part| part.leaves(into));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Result<Tensor>) -> Result<Option<T>> {
        self.as_ref().map(|part| part.rebuild(next)).transpose()
    }
}

/// The values of a map by ascending key.
impl<K: Ord + Clone, T: Tree> Tree for BTreeMap<K, T> {
    fn leaves(&self, into: &mut Vec<Tensor>) {
        self.values().for_each(|part| part.leaves(into));
    }

    fn rebuild(&self, next: &mut dyn FnMut() -> Result<Tensor>) -> Result<BTreeMap<K, T>> {
        let parts = self.iter();
        parts
            .map(|(k, part)| Ok((k.clone(), part.rebuild(next)?)))
            .collect()
    }
}

macro_rules! tuples {
    ($(($($part:ident $at:tt),*))*) => { $(
        impl<$($part: Tree),*> Tree for ($($part,)*) {
            fn leaves(&self, into: &mut Vec<Tensor>) {
                let _ = &into;
                $(self.$at.leaves(into);)*
            }

            fn rebuild(&self, next: &mut dyn FnMut() -> Result<Tensor>) -> Result<Self> {
                let _ = &next;
                Ok(($(self.$at.rebuild(next)?,)*))
            }
        }
    )* };
}

tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

/// Makes a struct a [`Tree`](crate::transform::Tree): the fields named first are trees, what stands
/// behind `;` is copied by `clone`.
///
/// ```
/// use uopc::{Tensor, nn::Linear, transform, tree};
///
/// #[derive(Clone)]
/// struct Net {
///     hidden: Linear,
///     scale: Tensor,
///     width: usize,
/// }
/// tree!(Net { hidden, scale; width });
///
/// let net = Net { hidden: Linear::new(2, 3)?, scale: Tensor::full((), 2.0f32)?, width: 3 };
/// let x = Tensor::ones([4, 2])?;
/// let loss = |net: &Net| (net.hidden.forward(&x)? * &net.scale).square()?.mean(..);
/// let gradients: Net = transform::grad(loss)(&net)?;
/// assert_eq!(gradients.hidden.weight.shape(), net.hidden.weight.shape());
/// # Ok::<(), uopc::Error>(())
/// ```
#[macro_export]
macro_rules! tree {
    ($name:ident { $($part:ident),* $(,)? $(; $($copied:ident),* $(,)?)? }) => {
        impl $crate::transform::Tree for $name {
            fn leaves(&self, into: &mut ::std::vec::Vec<$crate::tensor::Tensor>) {
                let _ = &into;
                $($crate::transform::Tree::leaves(&self.$part, into);)*
            }

            fn rebuild(
                &self,
                next: &mut dyn ::std::ops::FnMut() -> $crate::error::Result<$crate::tensor::Tensor>,
            ) -> $crate::error::Result<Self> {
                let _ = &next;
                Ok($name {
                    $($part: $crate::transform::Tree::rebuild(&self.$part, next)?,)*
                    $($($copied: ::std::clone::Clone::clone(&self.$copied),)*)?
                })
            }
        }
    };
}
