//! Attention: means of values, weighted by how well queries meet keys.

use super::{DType, Operand, Result, Site, Tensor, dropout, dtype_error, shape_error};

/// What [`Tensor::attention`] does besides softmax(q kᵀ · scale) v; by default nothing.
#[derive(Clone, Debug)]
pub struct Attention {
    mask: Option<Tensor>,
    causal: bool,
    dropout: f64,
    scale: Option<f64>,
    grouped: bool,
}

impl Default for Attention {
    fn default() -> Attention {
        Attention {
            mask: None,
            causal: false,
            dropout: 0.0,
            scale: None,
            grouped: false,
        }
    }
}

impl Attention {
    /// The default.
    pub fn new() -> Attention {
        Attention::default()
    }

    /// Where a query may look, as bools (true: it may), or numbers that are added to the scores.
    /// It broadcasts to (..., queries, keys). A query that may look nowhere gets zeros.
    pub fn mask(mut self, mask: &Tensor) -> Attention {
        self.mask = Some(mask.clone());
        self
    }

    /// Whether query i sees keys 0 to i only.
    pub fn causal(mut self, causal: bool) -> Attention {
        self.causal = causal;
        self
    }

    /// The probability with which weights are dropped, see [`Tensor::dropout`].
    pub fn dropout(mut self, p: f64) -> Attention {
        self.dropout = p;
        self
    }

    /// What scores are multiplied by, in place of 1 / sqrt(size).
    pub fn scale(mut self, scale: f64) -> Attention {
        self.scale = Some(scale);
        self
    }

    /// Whether several heads of queries share one of keys and values: heads are the third axis from
    /// the end, and there are a whole number of times as many of queries.
    pub fn grouped(mut self, grouped: bool) -> Attention {
        self.grouped = grouped;
        self
    }
}

impl Tensor {
    /// softmax(q kᵀ / sqrt(E)) v for queries (..., L, E), keys (..., S, E) and values (..., S, V),
    /// which gives (..., L, V). Axes in front broadcast.
    ///
    /// ```
    /// use uopc::{Tensor, tensor::Attention};
    ///
    /// let q = Tensor::zeros([2, 1])?; // equal scores: means
    /// let v = Tensor::from([[1.0f32], [3.0]]);
    /// let y = q.attention(&q, &v, &Attention::new().causal(true))?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When shapes do not fit, the tensors are no floats, a mask is neither bool nor float, or a mask
    /// is given for causal attention.
    #[track_caller]
    pub fn attention(&self, keys: &Tensor, values: &Tensor, how: &Attention) -> Result<Tensor> {
        let _site = Site::caller().enter();
        Ok(self.attend(keys, values, how)?.0)
    }

    /// [`attention`](Self::attention) and its weights (..., L, S), before dropout.
    ///
    /// # Errors
    /// Those of [`attention`](Self::attention).
    #[track_caller]
    pub fn attention_with_weights(
        &self,
        keys: &Tensor,
        values: &Tensor,
        how: &Attention,
    ) -> Result<(Tensor, Tensor)> {
        let _site = Site::caller().enter();
        self.attend(keys, values, how)
    }

    fn attend(&self, keys: &Tensor, values: &Tensor, how: &Attention) -> Result<(Tensor, Tensor)> {
        check(self, keys, values, how)?;
        dropout::check(how.dropout)?;
        let (q, k, v) = match how.grouped {
            true => in_groups(self, keys, values)?,
            false => (self.clone(), keys.clone(), values.clone()),
        };
        let rank = q.rank();
        let (length, size) = (q.shape()[rank - 2], q.shape()[rank - 1]);
        let scale = how.scale.unwrap_or(1.0 / (size as f64).sqrt());
        let mut scores = q.matmul(&k.transpose()?)?.mul(scale)?;
        let minus_infinity = Operand::Float(f64::NEG_INFINITY);
        if how.causal {
            let rows = positions(length)?.reshape([length, 1])?;
            let columns = positions(k.shape()[k.rank() - 2])?.unsqueeze(0)?;
            scores = rows.lt(&columns)?.where_(&minus_infinity, &scores)?;
        }
        // Rows without a key to look at: their softmax is 0 / 0, and they are to be zeros.
        let mut blind = None;
        if let Some(mask) = &how.mask {
            let mask = match how.grouped {
                true => mask_in_groups(mask, &q)?,
                false => mask.clone(),
            };
            let open = match mask.dtype() {
                DType::Bool => mask.clone(),
                _ => mask.gt(&minus_infinity)?,
            };
            scores = match mask.dtype() {
                DType::Bool => mask.where_(&scores, &minus_infinity)?,
                _ => scores.add(&mask)?.cast(scores.dtype())?,
            };
            blind = Some(open.any_keepdim(-1)?);
        }
        let mut weights = scores.softmax(-1)?;
        if let Some(sees) = blind {
            weights = sees.where_(&weights, 0.0)?;
        }
        let y = weights.dropout(how.dropout)?.matmul(&v)?;
        if !how.grouped {
            return Ok((y, weights));
        }
        let merged = |t: Tensor| {
            let rank = t.rank();
            t.flatten(rank - 4, rank - 3)
        };
        Ok((merged(y)?, merged(weights)?))
    }
}

fn positions(n: usize) -> Result<Tensor> {
    Tensor::arange_as(DType::I32, 0, n, 1)
}

/// Refuses tensors that do not fit together.
fn check(q: &Tensor, k: &Tensor, v: &Tensor, how: &Attention) -> Result<()> {
    let op = "attention";
    let shapes = || {
        format!(
            "queries {}, keys {} and values {}",
            q.shape(),
            k.shape(),
            v.shape()
        )
    };
    if [q, k, v].iter().any(|t| !t.dtype().is_float()) {
        let message = format!(
            "queries, keys and values are floats, not {}, {} and {}; cast them",
            q.dtype(),
            k.dtype(),
            v.dtype()
        );
        return Err(dtype_error(op, message));
    }
    let least = if how.grouped { 3 } else { 2 };
    if [q, k, v].iter().any(|t| t.rank() < least) {
        let message = format!("{} need at least {least} axes", shapes());
        return Err(shape_error(op, message));
    }
    let last = |t: &Tensor, k: usize| t.shape()[t.rank() - k];
    if last(q, 1) != last(k, 1) || last(k, 2) != last(v, 2) {
        let message = format!(
            "{} do not fit: queries and keys are equally long, and there is a value for each key",
            shapes()
        );
        return Err(shape_error(op, message));
    }
    if how.causal && last(k, 2) == 0 && last(q, 2) > 0 {
        let message = format!("{}: there is no key to look at", shapes());
        return Err(shape_error(op, message));
    }
    let Some(mask) = &how.mask else {
        return Ok(());
    };
    if how.causal {
        let message = "a mask for causal attention; join the two conditions in one mask".into();
        return Err(shape_error(op, message));
    }
    if mask.dtype() != DType::Bool && !mask.dtype().is_float() {
        let message = format!(
            "a mask is bool (true: look there) or float (added to scores), not {}; compare or cast it",
            mask.dtype()
        );
        return Err(dtype_error(op, message));
    }
    let (l, s) = (last(q, 2), last(k, 2));
    let fits = |k: usize, n: usize| mask.rank() < k || [1, n].contains(&last(mask, k));
    if !fits(1, s) || !fits(2, l) {
        let message = format!(
            "a mask of shape {} does not broadcast to scores (..., {l}, {s})",
            mask.shape()
        );
        return Err(shape_error(op, message));
    }
    Ok(())
}

/// Heads of queries as (heads of keys, group), those of keys and values as (heads, 1).
fn in_groups(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let heads = |t: &Tensor| t.shape()[t.rank() - 3];
    let (of_q, of_k) = (heads(q), heads(k));
    if of_k == 0 || !of_q.is_multiple_of(of_k) || heads(v) != of_k {
        let message = format!(
            "queries {}, keys {} and values {}: heads (the third axis from the end) of keys and \
             values are equal and divide those of queries",
            q.shape(),
            k.shape(),
            v.shape()
        );
        return Err(shape_error("attention", message));
    }
    let split = |t: &Tensor, heads: usize, group: usize| {
        let mut dims = t.shape().to_vec();
        let place = dims.len() - 3;
        dims.splice(place..place + 1, [heads, group]);
        t.reshape(dims)
    };
    Ok((
        split(q, of_k, of_q / of_k)?,
        split(k, of_k, 1)?,
        split(v, of_k, 1)?,
    ))
}

/// A mask for all heads of queries with these divided like the queries.
fn mask_in_groups(mask: &Tensor, q: &Tensor) -> Result<Tensor> {
    if mask.rank() < 3 {
        return Ok(mask.clone());
    }
    let mut dims = mask.shape().to_vec();
    let place = dims.len() - 3;
    let (heads, group) = (q.shape()[q.rank() - 4], q.shape()[q.rank() - 3]);
    let split = match dims[place] {
        1 => [1, 1],
        n if n == heads * group => [heads, group],
        n => {
            let message = format!(
                "a mask of shape {} has {n} heads, and queries have {}",
                mask.shape(),
                heads * group
            );
            return Err(shape_error("attention", message));
        }
    };
    dims.splice(place..place + 1, split);
    mask.reshape(dims)
}
