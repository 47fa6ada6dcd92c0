//! Tensors as text: nested brackets as in NumPy with shape and dtype, long axes abridged.

use std::fmt;

use super::host::scalar_at;
use super::{DType, Tensor};
use crate::ir::Scalar;
use crate::ir::shape::write_tuple;

/// A tensor with more elements shows the ends of its axes only.
const SUMMARISE_ABOVE: usize = 1000;
/// How many entries are shown at each end.
const EDGE: usize = 3;
/// Lines longer than this are broken.
const WIDTH: usize = 80;

/// Computes the tensor and shows its elements; if that fails, the error.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let storage = match self.storage() {
            Ok(storage) => storage,
            Err(error) => return write!(f, "tensor(not computed: {error})"),
        };
        let shape = self.shape();
        let layout = Layout {
            dims: shape,
            strides: shape.strides(),
            shown: shape.iter().map(|&n| shown(n, self.numel())).collect(),
        };
        let cells = layout.offsets();
        let values: Vec<Scalar> = cells
            .iter()
            .map(|&i| scalar_at(&storage, self.dtype(), i))
            .collect();
        let texts = texts(&values, self.dtype());
        let prefix = "tensor(";
        let body = layout.text(&texts, prefix.len());
        write!(f, "{prefix}{body}, shape=")?;
        write_tuple(f, shape.iter())?;
        write!(f, ", dtype={})", self.dtype())
    }
}

/// Shape, dtype and the op that makes it; computes nothing.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let node = self.uop();
        let (shape, dtype, op) = (self.shape(), self.dtype(), node.op().mnemonic());
        write!(f, "Tensor({op}, shape={shape}, dtype={dtype}")?;
        if self.needs_grad() {
            f.write_str(", needs_grad")?;
        }
        f.write_str(")")
    }
}

/// Positions of an axis that are shown; `None` is the gap.
fn shown(n: usize, numel: usize) -> Vec<Option<usize>> {
    // Without elements nothing is shown, however long the other axes are.
    if numel == 0 {
        return Vec::new();
    }
    if numel <= SUMMARISE_ABOVE || n <= 2 * EDGE {
        return (0..n).map(Some).collect();
    }
    let first = (0..EDGE).map(Some);
    first.chain([None]).chain((n - EDGE..n).map(Some)).collect()
}

struct Layout<'a> {
    dims: &'a [usize],
    strides: Vec<usize>,
    shown: Vec<Vec<Option<usize>>>,
}

impl Layout<'_> {
    /// Offsets of the elements that are shown, in order.
    fn offsets(&self) -> Vec<usize> {
        let mut offsets = vec![0];
        for (shown, stride) in self.shown.iter().zip(&self.strides) {
            let step = |&o: &usize| shown.iter().flatten().map(move |k| o + k * stride);
            offsets = offsets.iter().flat_map(step).collect();
        }
        offsets
    }

    /// The nested brackets. `indent` is the column at which they start.
    fn text(&self, cells: &[String], indent: usize) -> String {
        if self.dims.is_empty() {
            return cells[0].clone();
        }
        if self.dims.contains(&0) {
            return "[]".into();
        }
        let last = self.dims.len() - 1;
        let per_row = self.shown[last].iter().flatten().count();
        let indent = indent + self.dims.len();
        let mut parts: Vec<String> = cells
            .chunks(per_row)
            .map(|row| self.row(row, indent))
            .collect();
        // Inside out: the rows of each axis are joined by as many line breaks as axes lie below.
        for axis in (0..last).rev() {
            let shown = &self.shown[axis];
            let per_group = shown.iter().flatten().count();
            let depth = last - axis;
            let separator = format!(",{}{}", "\n".repeat(depth), " ".repeat(indent - depth));
            let group = |group: &[String]| {
                let mut parts = group.iter();
                let items = shown.iter().map(|k| match k {
                    Some(_) => parts.next().map_or("", |p| p),
                    None => "...",
                });
                let items: Vec<&str> = items.collect();
                format!("[{}]", items.join(&separator))
            };
            parts = parts.chunks(per_group).map(group).collect();
        }
        parts.concat()
    }

    /// The entries of the last axis, broken into lines.
    fn row(&self, cells: &[String], indent: usize) -> String {
        let mut text = String::from("[");
        let mut column = indent;
        let mut cells = cells.iter();
        for (i, k) in self.shown[self.dims.len() - 1].iter().enumerate() {
            let cell = match k {
                Some(_) => cells.next().map_or("", |c| c),
                None => "...",
            };
            if i > 0 {
                text.push(',');
                column += 2;
                if column + cell.len() > WIDTH {
                    text.push('\n');
                    text.push_str(&" ".repeat(indent));
                    column = indent;
                } else {
                    text.push(' ');
                }
            }
            text.push_str(cell);
            column += cell.len();
        }
        text.push(']');
        text
    }
}

/// The elements as text of one width.
fn texts(values: &[Scalar], dtype: DType) -> Vec<String> {
    let texts: Vec<String> = if dtype.is_float() {
        floats(values)
    } else if dtype == DType::Bool {
        values.iter().map(|v| v.as_bool().to_string()).collect()
    } else {
        values.iter().map(|v| v.as_i128().to_string()).collect()
    };
    let width = texts.iter().map(String::len).max().unwrap_or(0);
    texts.iter().map(|t| format!("{t:>width$}")).collect()
}

/// Floats with as many decimals as the one that needs most, at most four; by powers of ten when
/// magnitudes are far apart.
fn floats(values: &[Scalar]) -> Vec<String> {
    let numbers: Vec<f64> = values.iter().map(|v| v.as_f64()).collect();
    let finite = || numbers.iter().filter(|x| x.is_finite());
    let largest = finite().fold(0.0f64, |m, x| m.max(x.abs()));
    let smallest = finite()
        .filter(|x| **x != 0.0)
        .fold(f64::INFINITY, |m, x| m.min(x.abs()));
    let scientific = largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1e6;
    if scientific && smallest.is_finite() {
        return numbers
            .iter()
            .map(|x| special(*x).unwrap_or_else(|| power_of_ten(*x)))
            .collect();
    }
    let decimals = finite().map(|x| decimals(*x)).max().unwrap_or(0);
    let text = |x: &f64| {
        special(*x).unwrap_or_else(|| match decimals {
            0 => format!("{x:.0}."),
            d => format!("{x:.d$}"),
        })
    };
    numbers.iter().map(text).collect()
}

fn special(x: f64) -> Option<String> {
    if x.is_nan() {
        Some("nan".into())
    } else if x.is_infinite() {
        Some(if x > 0.0 { "inf".into() } else { "-inf".into() })
    } else {
        None
    }
}

/// How many of four decimals a number needs.
fn decimals(x: f64) -> usize {
    let text = format!("{x:.4}");
    let kept = text.trim_end_matches('0');
    kept.len() - kept.find('.').map_or(kept.len(), |dot| dot + 1)
}

/// `1.2346e-05`, as C writes it.
fn power_of_ten(x: f64) -> String {
    let text = format!("{x:.4e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}
