//! The layer of attention with several heads, and dropout.

use super::{Layer, Linear, Module, is_training, setting_error, within};
use crate::error::Result;
use crate::tensor::{Attention, Site, Tensor};

/// Elements set to 0 at random while training, see [`Tensor::dropout`]; in
/// [`evaluation`](super::evaluation) nothing happens.
#[derive(Clone, Debug)]
pub struct Dropout {
    p: f64,
}

impl Dropout {
    /// Dropout with that probability.
    ///
    /// # Errors
    /// When it is not from 0 to 1.
    #[track_caller]
    pub fn new(p: f64) -> Result<Dropout> {
        let _site = Site::caller().enter();
        if !(0.0..=1.0).contains(&p) {
            return Err(setting_error(format!(
                "Dropout: p is {p}; a probability, from 0 to 1, is needed"
            )));
        }
        Ok(Dropout { p })
    }

    /// The tensor with elements dropped.
    ///
    /// # Errors
    /// None for a well-formed tensor.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Site::caller().enter();
        if is_training() {
            x.dropout(self.p)
        } else {
            Ok(x.clone())
        }
    }
}

tree!(Dropout { ; p });

impl Module for Dropout {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }
}

impl Layer for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Dropout::forward(self, x)
    }
}

/// Attention with several heads: queries, keys and values (N, length, size) are projected, divided
/// into heads, attended and projected back.
#[derive(Clone, Debug)]
pub struct MultiheadAttention {
    /// The projection of queries.
    pub q_proj: Linear,
    /// The projection of keys.
    pub k_proj: Linear,
    /// The projection of values.
    pub v_proj: Linear,
    /// The projection of what the heads give.
    pub out_proj: Linear,
    /// How many heads queries have.
    pub heads: usize,
    /// How many heads keys and values have; several heads of queries may share one.
    pub kv_heads: usize,
    /// The probability with which weights are dropped while training.
    pub dropout: f64,
}

impl MultiheadAttention {
    /// Heads that divide the size among them, with biases and without dropout. Projections start
    /// evenly distributed as Xavier's, biases at 0.
    ///
    /// # Errors
    /// When heads do not divide the size, or heads of keys those of queries.
    #[track_caller]
    pub fn new(size: usize, heads: usize) -> Result<MultiheadAttention> {
        MultiheadAttention::grouped(size, heads, heads, true)
    }

    /// [`new`](Self::new) with fewer heads of keys and values, with biases or without.
    ///
    /// # Errors
    /// When heads do not divide the size, or heads of keys those of queries.
    #[track_caller]
    pub fn grouped(
        size: usize,
        heads: usize,
        kv_heads: usize,
        bias: bool,
    ) -> Result<MultiheadAttention> {
        let _site = Site::caller().enter();
        let divides = |n: usize, of: usize| n > 0 && of.is_multiple_of(n);
        if !divides(heads, size) || !divides(kv_heads, heads) {
            return Err(setting_error(format!(
                "MultiheadAttention: {heads} heads do not divide the size {size}, or {kv_heads} \
                 heads of keys and values do not divide them"
            )));
        }
        let per_head = size / heads;
        let of_keys = kv_heads * per_head;
        Ok(MultiheadAttention {
            q_proj: projection(size, size, bias)?,
            k_proj: projection(size, of_keys, bias)?,
            v_proj: projection(size, of_keys, bias)?,
            out_proj: projection(size, size, bias)?,
            heads,
            kv_heads,
            dropout: 0.0,
        })
    }

    /// With dropout of weights while training.
    pub fn dropout(mut self, p: f64) -> MultiheadAttention {
        self.dropout = p;
        self
    }

    /// What queries find: (N, L, size) for queries (N, L, size), keys and values (N, S, size). `how`
    /// may bring a mask, which broadcasts to (N, heads, L, S), or causality.
    ///
    /// # Errors
    /// When shapes do not fit.
    #[track_caller]
    pub fn forward(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        how: &Attention,
    ) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Ok(self.forward_with_weights(queries, keys, values, how)?.0)
    }

    /// [`forward`](Self::forward) and the weights of each head, (N, heads, L, S).
    ///
    /// # Errors
    /// When shapes do not fit.
    #[track_caller]
    pub fn forward_with_weights(
        &self,
        queries: &Tensor,
        keys: &Tensor,
        values: &Tensor,
        how: &Attention,
    ) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        for t in [queries, keys, values] {
            if t.rank() < 2 {
                return Err(setting_error(format!(
                    "MultiheadAttention: shape {} has not (..., length, size)",
                    t.shape()
                )));
            }
        }
        let q = split(&self.q_proj.forward(queries)?, self.heads)?;
        let k = split(&self.k_proj.forward(keys)?, self.kv_heads)?;
        let v = split(&self.v_proj.forward(values)?, self.kv_heads)?;
        let dropout = if is_training() { self.dropout } else { 0.0 };
        let grouped = self.kv_heads != self.heads;
        let how = how.clone().dropout(dropout).grouped(grouped);
        let (y, weights) = q.attention_with_weights(&k, &v, &how)?;
        let joined = y.swap_axes(-3, -2)?.flatten(-2, -1)?;
        Ok((self.out_proj.forward(&joined)?, weights))
    }
}

/// (..., length, heads * size) as (..., heads, length, size).
fn split(t: &Tensor, heads: usize) -> Result<Tensor> {
    let mut dims = t.shape().to_vec();
    let size = dims.pop().unwrap_or(0) / heads;
    dims.extend([heads, size]);
    t.reshape(dims)?.swap_axes(-3, -2)
}

fn projection(inputs: usize, outputs: usize, bias: bool) -> Result<Linear> {
    let bound = (6.0 / (inputs + outputs).max(1) as f64).sqrt();
    Ok(Linear {
        weight: Tensor::uniform([inputs, outputs], -bound, bound)?.requires_grad()?,
        bias: match bias {
            true => Some(Tensor::zeros([outputs])?.requires_grad()?),
            false => None,
        },
    })
}

tree!(MultiheadAttention { q_proj, k_proj, v_proj, out_proj; heads, kv_heads, dropout });

impl Module for MultiheadAttention {
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let parts: [(&str, &dyn Module); 4] = [
            ("q_proj", &self.q_proj),
            ("k_proj", &self.k_proj),
            ("v_proj", &self.v_proj),
            ("out_proj", &self.out_proj),
        ];
        let named = parts.iter().map(|(name, part)| within(name, *part));
        named.flatten().collect()
    }
}
