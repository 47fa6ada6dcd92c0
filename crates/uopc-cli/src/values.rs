//! Values as people write and read them: `[1, 2.5, -inf]` for a slot, nested brackets for results.

use uopc::interp::Array;
use uopc::ir::{DType, Scalar, Shape};

use crate::failure::{Failure, Result};

/// What is to be put into a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The slot's number.
    pub slot: u32,
    /// The numbers as written.
    pub tokens: Vec<String>,
}

impl Binding {
    /// Reads `0=1,2,3`, also with brackets.
    ///
    /// # Errors
    /// A usage failure that shows the form.
    pub fn parse(text: &str) -> Result<Binding> {
        let wrong = || {
            Failure::usage(format!(
                "--slot {text}: write the slot's number and its elements, such as --slot 0=1,2,3"
            ))
        };
        let (slot, values) = text.split_once('=').ok_or_else(wrong)?;
        let slot = slot.trim().trim_start_matches("slot");
        let slot = slot.parse().map_err(|_| wrong())?;
        Ok(Binding {
            slot,
            tokens: tokens(values),
        })
    }

    /// The contents of a slot of `n` elements; a single number fills it.
    ///
    /// # Errors
    /// When there are more or fewer numbers, or one is no literal of the dtype.
    pub fn array(&self, dtype: DType, n: usize) -> Result<Array> {
        array(&format!("slot {}", self.slot), &self.tokens, dtype, &[n])
    }
}

/// The elements of a list, whatever its brackets.
pub fn tokens(text: &str) -> Vec<String> {
    let separates = |c: char| c == ',' || c == '[' || c == ']' || c.is_whitespace();
    let parts = text.split(separates).filter(|t| !t.is_empty());
    parts.map(str::to_string).collect()
}

/// Numbers as an array of the shape; a single one fills it.
///
/// # Errors
/// When there are more or fewer, or one is no literal of the dtype; `what` says of what.
pub fn array(what: &str, tokens: &[String], dtype: DType, shape: &[usize]) -> Result<Array> {
    let shape = Shape::new(shape);
    let n = shape.numel();
    let scalar = |token: &String| {
        scalar(token, dtype)
            .ok_or_else(|| Failure::failed(format!("{what}: `{token}` is no {dtype}")))
    };
    let scalars = tokens.iter().map(scalar).collect::<Result<Vec<Scalar>>>()?;
    match scalars[..] {
        [one] if n != 1 => Ok(Array::full(one, &shape)),
        _ if scalars.len() == n => Ok(Array::from_scalars(dtype, &shape, &scalars)?),
        _ => Err(Failure::failed(format!(
            "{what} has {n} elements, not {}; give all of them, or one that fills it",
            scalars.len()
        ))),
    }
}

/// A number of the dtype, with or without the dtype's suffix.
fn scalar(token: &str, dtype: DType) -> Option<Scalar> {
    let with_suffix = Scalar::parse(&format!("{token}{dtype}"));
    let as_written = || Scalar::parse(token).filter(|s| s.dtype() == dtype);
    match dtype {
        DType::Bool => match token {
            "0" => Some(Scalar::from_bool(false)),
            "1" => Some(Scalar::from_bool(true)),
            _ => as_written(),
        },
        _ => with_suffix.or_else(as_written),
    }
}

/// Numbers that look random and read well, from a seed: floats with two decimals between -2 and
/// 2, integers from -4 to 4 (unsigned: 0 to 8), truth values.
pub fn random(dtype: DType, n: usize, seed: u64) -> Result<Array> {
    // A generator of its own keeps these numbers what they are when others change.
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    next(2);
    let mut one = || match dtype {
        DType::Bool => Scalar::from_bool(next(2) == 1),
        d if d.is_float() => Scalar::from_f64(d, (next(401) as f64 - 200.0) / 100.0),
        d => {
            let least = if d.int_range().is_some_and(|(lo, _)| lo < 0) {
                4
            } else {
                0
            };
            Scalar::from_i128(d, next(9) as i128 - least)
        }
    };
    let scalars: Vec<Scalar> = (0..n).map(|_| one()).collect();
    Ok(Array::from_scalars(dtype, &[n], &scalars)?)
}

/// How many elements of an axis are shown at each of its ends when it is cut.
const ENDS: usize = 3;
/// Up to this many elements an axis is shown whole.
const WHOLE: usize = 10;

/// The elements in nested brackets, an axis a line but for the last; long axes are cut unless
/// `full`.
pub fn show(array: &Array, full: bool) -> String {
    // Elements line up in columns, whatever their lengths.
    let shown: Vec<String> = array.scalars().map(plain).collect();
    let shape: &[usize] = array.shape();
    let is_shown = |i: usize| full || inside(i, shape);
    let seen = shown.iter().enumerate().filter(|(i, _)| is_shown(*i));
    let width = seen.map(|(_, s)| s.chars().count()).max().unwrap_or(0);
    let width = if shape.len() > 1 { width } else { 0 };

    /// What is still to be written, in reverse.
    enum Part {
        Text(&'static str),
        Break(usize),
        Axis {
            at: usize,
            begin: usize,
            depth: usize,
        },
    }
    let mut text = String::new();
    let mut todo = vec![Part::Axis {
        at: 0,
        begin: 0,
        depth: 0,
    }];
    while let Some(part) = todo.pop() {
        match part {
            Part::Text(t) => text.push_str(t),
            Part::Break(depth) => {
                text.push('\n');
                text.extend(std::iter::repeat_n(' ', depth));
            }
            Part::Axis { at, begin, depth } if at == shape.len() => {
                let _ = depth;
                text += &format!("{:>width$}", shown[begin]);
            }
            Part::Axis { at, begin, depth } => {
                let n = shape[at];
                let stride: usize = shape[at + 1..].iter().product();
                let last = at + 1 == shape.len();
                let mut parts = vec![Part::Text("[")];
                for k in shown_places(n, full) {
                    if k.0 > 0 {
                        parts.push(Part::Text(","));
                        parts.push(if last {
                            Part::Text(" ")
                        } else {
                            Part::Break(depth + 1)
                        });
                    }
                    match k.1 {
                        Some(i) => parts.push(Part::Axis {
                            at: at + 1,
                            begin: begin + i * stride,
                            depth: depth + 1,
                        }),
                        None => parts.push(Part::Text("...")),
                    }
                }
                parts.push(Part::Text("]"));
                todo.extend(parts.into_iter().rev());
            }
        }
    }
    text
}

/// The places of an axis that are shown, numbered; `None` stands for those left out.
fn shown_places(n: usize, full: bool) -> Vec<(usize, Option<usize>)> {
    let places: Vec<Option<usize>> = if full || n <= WHOLE {
        (0..n).map(Some).collect()
    } else {
        let ends = (0..ENDS).map(Some).chain([None]);
        ends.chain((n - ENDS..n).map(Some)).collect()
    };
    places.into_iter().enumerate().collect()
}

/// Whether an element is shown when long axes are cut.
fn inside(mut i: usize, shape: &[usize]) -> bool {
    for &n in shape.iter().rev() {
        let k = i % n.max(1);
        i /= n.max(1);
        if n > WHOLE && (ENDS..n - ENDS).contains(&k) {
            return false;
        }
    }
    true
}

/// A number without its dtype's suffix.
fn plain(scalar: Scalar) -> String {
    let text = scalar.to_string();
    let suffix = scalar.dtype().name();
    text.strip_suffix(suffix).unwrap_or(&text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_nest_and_columns_line_up() {
        let x = Array::from_f64(DType::F32, &[2, 3], &[1.0, -2.5, 3.0, 10.0, 0.125, -0.0]).unwrap();
        assert_eq!(
            show(&x, false),
            "[[  1.0,  -2.5,   3.0],\n [ 10.0, 0.125,  -0.0]]"
        );
        let x = Array::from_ints(DType::U8, &[3], &[1, 20, 3]).unwrap();
        assert_eq!(show(&x, false), "[1, 20, 3]");
        let x = Array::from_ints(DType::I32, &[], &[7]).unwrap();
        assert_eq!(show(&x, false), "7");
        let x = Array::from_ints(DType::I32, &[2, 0], &[]).unwrap();
        assert_eq!(show(&x, false), "[[],\n []]");
    }

    #[test]
    fn long_axes_are_cut() {
        let x = Array::from_ints(DType::I32, &[100], &(0..100).collect::<Vec<i64>>()).unwrap();
        assert_eq!(show(&x, false), "[0, 1, 2, ..., 97, 98, 99]");
        assert_eq!(show(&x, true).matches(',').count(), 99);
    }

    #[test]
    fn numbers_take_the_slot_s_dtype() {
        let b = Binding::parse("2=[1, -inf,nan]").unwrap();
        let x = b.array(DType::F16, 3).unwrap();
        assert_eq!(show(&x, false), "[1.0, -inf, nan]");
        let e = Binding::parse("2=1.5")
            .unwrap()
            .array(DType::I32, 1)
            .unwrap_err();
        assert_eq!(e.to_string(), "slot 2: `1.5` is no i32");
        let e = Binding::parse("2=1,2")
            .unwrap()
            .array(DType::I32, 3)
            .unwrap_err();
        assert!(
            e.to_string().starts_with("slot 2 has 3 elements, not 2"),
            "{e}"
        );
        assert_eq!(
            show(
                &Binding::parse("0=1")
                    .unwrap()
                    .array(DType::Bool, 2)
                    .unwrap(),
                false
            ),
            "[true, true]"
        );
    }
}
