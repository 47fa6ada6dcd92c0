//! Movement and structure on shape graphs: what cancels, merges, or moves only constants.

use super::{constant, full};
use crate::ir::shape::Shape;
use crate::ir::{Op, Scalar, UOp};
use crate::rewrite::{Match, Miss, found, require};

rule_table! {
    /// Movement in shape graphs.
    pub RULES;

    /// x of zero size => zeros
    Any empty_zero [
        iota add mul max recip div exp2 log2 exp sqrt sin trunc mulacc cast bitcast where cmplt
        cmpne floordiv floormod and or xor shl shr reshape expand permute shrink stack index
        scatter_add reduce scan argsort
    ] (u) {
        require(u.shape().contains(&0))?;
        full(Scalar::zero(u.dtype()), u)
    }

    /// move(c) => c in the new shape
    Any move_constant [reshape expand permute shrink] (u) {
        full(found(constant(&u.src()[0]))?, u)
    }

    /// x.reshape(x.shape) => x, the same for expand, permute and shrink that change nothing
    Any move_nothing [reshape expand permute shrink] (u) {
        let x = &u.src()[0];
        let moves = match u.op() {
            Op::Permute(order) => order.iter().enumerate().any(|(k, &p)| k != p as usize),
            _ => u.shape() != x.shape(),
        };
        require(!moves)?;
        Ok(x.clone())
    }

    /// x.reshape(a).reshape(b) => x.reshape(b)
    Any reshape_reshape [reshape] (u) {
        let x = inner(u, |op| matches!(op, Op::Reshape(_)))?;
        Ok(x.reshape(u.shape())?)
    }

    /// x.expand(a).expand(b) => x.expand(b)
    Any expand_expand [expand] (u) {
        let x = inner(u, |op| matches!(op, Op::Expand(_)))?;
        Ok(x.expand(u.shape())?)
    }

    /// x.permute(p).permute(q) => x.permute(p[q])
    Any permute_permute [permute] (u) {
        let x = inner(u, |op| matches!(op, Op::Permute(_)))?;
        let (Op::Permute(p), Op::Permute(q)) = (u.src()[0].op(), u.op()) else {
            return Err(Miss::NoMatch);
        };
        let order: Vec<usize> = q.iter().map(|&k| p[k as usize] as usize).collect();
        Ok(x.permute(&order)?)
    }

    /// x.shrink(a).shrink(b) => x.shrink(a offset by b)
    Any shrink_shrink [shrink] (u) {
        let x = inner(u, |op| matches!(op, Op::Shrink(_)))?;
        let (Op::Shrink(a), Op::Shrink(b)) = (u.src()[0].op(), u.op()) else {
            return Err(Miss::NoMatch);
        };
        let both = a.iter().zip(b.iter());
        let window: Vec<(usize, usize)> =
            both.map(|(&(start, _), &(b, e))| (start + b, start + e)).collect();
        Ok(x.shrink(&window)?)
    }

    /// iota(1) => 0
    Int iota_one [iota] (u) {
        require(u.shape()[0] == 1)?;
        full(Scalar::zero(u.dtype()), u)
    }

    /// stack(x) => x.reshape
    Any stack_one [stack] (u) {
        require(u.src().len() == 1)?;
        Ok(u.src()[0].reshape(u.shape())?)
    }

    /// stack(c, c, ...) => c in that shape
    Any stack_constant [stack] (u) {
        let c = found(constant(&u.src()[0]))?;
        require(u.src().iter().all(|part| constant(part) == Some(c)))?;
        full(c, u)
    }

    /// stack(a, b, ...)[k] => the k-th, stack(a, b, ...)[k, i] => the k-th [i]
    Any index_stack [index] (u) {
        let (x, indices) = (&u.src()[0], &u.src()[1..]);
        require(*x.op() == Op::Stack)?;
        let k = found(constant(&indices[0]))?.as_i128();
        let part = found(usize::try_from(k).ok().and_then(|k| x.src().get(k)))?;
        if indices.len() > 1 {
            return Ok(part.index(&indices[1..])?);
        }
        repeat(part, indices[0].shape(), u)
    }

    /// scatter_add of no rows => zeros
    Any scatter_nothing [scatter_add] (u) {
        require(u.src()[0].shape().contains(&0))?;
        full(Scalar::zero(u.dtype()), u)
    }

    /// x[c, d, ...] => a shrink of x, or 0 where that is out of range
    Any index_constant [index] (u) {
        let (x, indices) = (&u.src()[0], &u.src()[1..]);
        let mut window: Vec<(usize, usize)> = x.shape().iter().map(|&n| (0, n)).collect();
        for (k, index) in indices.iter().enumerate() {
            let c = found(constant(index))?.as_i128();
            if c < 0 || c >= x.shape()[k] as i128 {
                return full(Scalar::zero(u.dtype()), u);
            }
            window[k] = (c as usize, c as usize + 1);
        }
        let row = x.shrink(&window)?.reshape(&x.shape()[indices.len()..])?;
        repeat(&row, indices[0].shape(), u)
    }
}

/// x of a movement op over another one of the right kind.
fn inner(u: &UOp, kind: impl Fn(&Op) -> bool) -> Result<&UOp, Miss> {
    let below = &u.src()[0];
    require(kind(below.op()))?;
    Ok(&below.src()[0])
}

/// A row once for each element of a list of shape `times`, in the shape of `like`.
fn repeat(row: &UOp, times: &Shape, like: &UOp) -> Match {
    let mut dims = vec![1; times.rank()];
    dims.extend_from_slice(row.shape());
    Ok(row.reshape(&dims)?.expand(like.shape())?)
}
