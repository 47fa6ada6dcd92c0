//! Einstein's sums: the notation, what it means, and what is wrong with it.
//!
//! `ij,jk->ik` names the axes of each operand by letters. Elements that agree in all letters are
//! multiplied, and the products are summed over the letters that the result does not have. A letter
//! twice in one operand means its diagonal; `...` stands for the axes that have no letters, which
//! broadcast. Without an arrow the result has the axes of `...` and then, in alphabetical order, the
//! letters that occur once.

use std::borrow::Borrow;

use super::contract::{Label, Term, contract};
use super::{DType, Error, Result, Site, Tensor, shape_error};

/// What one operand, or the result, is written as.
struct Written {
    letters: Vec<Letter>,
}

/// A letter, or an ellipsis, and where it stands.
#[derive(Clone, Copy)]
struct Letter {
    /// `None` for `...`.
    letter: Option<u8>,
    /// How many characters stand before it.
    at: usize,
}

/// A subscript string taken apart.
struct Subscripts<'a> {
    text: &'a str,
    operands: Vec<Written>,
    result: Option<Written>,
}

impl Tensor {
    /// Products of tensors, summed as the subscripts say, by Einstein's notation: `ij,jk->ik` is the
    /// matrix product, `ii->i` a diagonal, `...ij->...ji` a transpose. Letters are a to z and A to Z,
    /// spaces mean nothing, axes of extent 1 broadcast, dtypes are promoted, integers wrap.
    ///
    /// Several operands are multiplied in pairs, in the order that needs the fewest multiplications.
    /// A sum that a product of two is for is a matrix product to the compiler, and as fast as one.
    ///
    /// ```
    /// # use uopc::Tensor;
    /// let (a, b) = (Tensor::from([[1, 2], [3, 4]]), Tensor::from([[0, 1], [1, 0]]));
    /// let product = Tensor::einsum("ij,jk->ik", &[&a, &b])?;
    /// assert_eq!(product.to_vec::<i32>()?, [2, 1, 4, 3]);
    /// assert_eq!(Tensor::einsum("ii", &[&a])?.item()?, 5.0);
    /// # Ok::<(), uopc::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the subscripts are none, with a mark below the character that is wrong; when they do not
    /// fit the number of operands, or a shape; when extents of one letter differ.
    #[track_caller]
    pub fn einsum<T: Borrow<Tensor>>(subscripts: &str, operands: &[T]) -> Result<Tensor> {
        let _site = Site::caller().enter();
        let written = Subscripts::parse(subscripts)?;
        let shapes: Vec<&[usize]> = operands.iter().map(|t| &t.borrow().shape()[..]).collect();
        let labels = written.labels(&shapes)?;
        let result = written.result(&labels)?;
        let dtype = operands.iter().map(|t| t.borrow().dtype());
        let dtype = dtype.reduce(DType::promote).unwrap_or(DType::F32);
        let mut terms = Vec::with_capacity(operands.len());
        let mut needs_grad = false;
        for (t, labels) in operands.iter().zip(labels) {
            let (node, needs) = t.borrow().read();
            needs_grad |= needs;
            let node = node.cast(dtype)?;
            terms.push(Term { node, labels });
        }
        Ok(Tensor::derived(contract(terms, &result)?, needs_grad))
    }
}

/// Axes that `...` stands for are numbered from the last one on, beyond all letters.
const BEYOND: Label = 256;

impl<'a> Subscripts<'a> {
    fn parse(text: &'a str) -> Result<Subscripts<'a>> {
        let mut parsed = Subscripts {
            text,
            operands: vec![Written::new()],
            result: None,
        };
        let characters: Vec<char> = text.chars().collect();
        let mut at = 0;
        while let Some(&c) = characters.get(at) {
            let next = |by: usize| characters.get(at + by).copied();
            match c {
                ' ' => {}
                'a'..='z' | 'A'..='Z' => {
                    let letter = Some(c as u8);
                    parsed.current().letters.push(Letter { letter, at });
                }
                '.' if (next(1), next(2)) == (Some('.'), Some('.')) => {
                    if parsed.current().letters.iter().any(|l| l.letter.is_none()) {
                        return Err(
                            parsed.wrong(at, "a second ... in one operand; one can stand for axes")
                        );
                    }
                    parsed.current().letters.push(Letter { letter: None, at });
                    at += 2;
                }
                '.' => {
                    return Err(parsed.wrong(
                        at,
                        "a dot that is none of three; axes without letters are ...",
                    ));
                }
                ',' if parsed.result.is_some() => {
                    return Err(parsed.wrong(at, "a comma behind the arrow; there is one result"));
                }
                ',' => parsed.operands.push(Written::new()),
                '-' if next(1) == Some('>') => {
                    if parsed.result.is_some() {
                        return Err(parsed.wrong(at, "a second arrow; there is one result"));
                    }
                    parsed.result = Some(Written::new());
                    at += 1;
                }
                other => {
                    let what = format!("{other:?} names no axis; letters a to z and A to Z do");
                    return Err(parsed.wrong(at, &what));
                }
            }
            at += 1;
        }
        Ok(parsed)
    }

    fn current(&mut self) -> &mut Written {
        match &mut self.result {
            Some(result) => result,
            None => self
                .operands
                .last_mut()
                .expect("there is one from the beginning"),
        }
    }

    /// An error with a mark below a character.
    fn wrong(&self, at: usize, what: &str) -> Error {
        let line: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let mark = format!("{}^", " ".repeat(at));
        shape_error("einsum", format!("{what}\n    {line}\n    {mark}"))
    }

    /// The label of each axis of each operand.
    fn labels(&self, shapes: &[&[usize]]) -> Result<Vec<Vec<Label>>> {
        if self.operands.len() != shapes.len() {
            let (n, m) = (self.operands.len(), shapes.len());
            let message = format!(
                "{:?} is for {n} operands, not {m}; commas part them",
                self.text
            );
            return Err(shape_error("einsum", message));
        }
        let mut extents: Vec<(Label, usize, usize)> = Vec::new();
        let mut all = Vec::with_capacity(shapes.len());
        for (k, (written, shape)) in self.operands.iter().zip(shapes).enumerate() {
            let named = written
                .letters
                .iter()
                .filter(|l| l.letter.is_some())
                .count();
            let has_rest = named < written.letters.len();
            let rank = shape.len();
            if named > rank || named < rank && !has_rest {
                let shape = super::Shape::new(shape);
                let what = format!(
                    "{named} letters for operand {k} of shape {shape}, which has {rank} axes"
                );
                let at = match named > rank {
                    true => written
                        .letters
                        .iter()
                        .filter(|l| l.letter.is_some())
                        .nth(rank)
                        .map(|l| l.at),
                    false => written.letters.last().map(|l| l.at),
                };
                return Err(self.wrong(at.unwrap_or(self.begin(k)), &what));
            }
            let mut labels: Vec<Label> = Vec::with_capacity(rank);
            for letter in &written.letters {
                let own: Vec<Label> = match letter.letter {
                    Some(c) => vec![c as Label],
                    None => (0..rank - named)
                        .rev()
                        .map(|i| BEYOND + i as Label)
                        .collect(),
                };
                for label in own {
                    let n = shape[labels.len()];
                    labels.push(label);
                    self.check(&mut extents, label, n, k, letter.at)?;
                }
            }
            all.push(labels);
        }
        Ok(all)
    }

    /// Extents of one letter are equal, or 1.
    fn check(
        &self,
        extents: &mut Vec<(Label, usize, usize)>,
        label: Label,
        n: usize,
        operand: usize,
        at: usize,
    ) -> Result<()> {
        let Some(known) = extents.iter_mut().find(|e| e.0 == label) else {
            extents.push((label, n, operand));
            return Ok(());
        };
        let (_, m, other) = *known;
        // A diagonal has one extent: one operand does not broadcast against itself.
        if n == m || other != operand && (n == 1 || m == 1) {
            if m == 1 {
                *known = (label, n, operand);
            }
            return Ok(());
        }
        let name = match u8::try_from(label) {
            Ok(letter) => format!("{:?}", letter as char),
            Err(_) => "an axis of ...".into(),
        };
        let what = format!("{name} has extent {n} in operand {operand} and {m} in operand {other}");
        Err(self.wrong(at, &what))
    }

    /// Where an operand begins.
    fn begin(&self, operand: usize) -> usize {
        let commas = self.text.chars().enumerate().filter(|(_, c)| *c == ',');
        match operand {
            0 => 0,
            k => commas.map(|(at, _)| at + 1).nth(k - 1).unwrap_or(0),
        }
    }

    /// The labels of the result's axes.
    fn result(&self, operands: &[Vec<Label>]) -> Result<Vec<Label>> {
        let mut rest: Vec<Label> = operands
            .iter()
            .flatten()
            .copied()
            .filter(|&l| l >= BEYOND)
            .collect();
        rest.sort_unstable();
        rest.dedup();
        rest.reverse();
        let Some(result) = &self.result else {
            let mut once: Vec<Label> = operands
                .iter()
                .flatten()
                .copied()
                .filter(|&l| l < BEYOND)
                .collect();
            once.sort_unstable();
            let runs = once.chunk_by(|a, b| a == b).filter(|run| run.len() == 1);
            let mut labels = rest;
            labels.extend(runs.map(|run| run[0]));
            return Ok(labels);
        };
        let mut labels = Vec::new();
        for (k, letter) in result.letters.iter().enumerate() {
            let Some(c) = letter.letter else {
                labels.extend(&rest);
                continue;
            };
            if !operands.iter().flatten().any(|&l| l == c as Label) {
                let what = format!("{:?} of the result is in no operand", c as char);
                return Err(self.wrong(letter.at, &what));
            }
            if result.letters[..k].iter().any(|l| l.letter == Some(c)) {
                let what = format!("{:?} is twice in the result", c as char);
                return Err(self.wrong(letter.at, &what));
            }
            labels.push(c as Label);
        }
        let has_rest = result.letters.iter().any(|l| l.letter.is_none());
        if !has_rest && !rest.is_empty() {
            let what = "the result has no ... for the axes that it stands for in operands";
            return Err(self.wrong(self.text.chars().count(), what));
        }
        Ok(labels)
    }
}

impl Written {
    fn new() -> Written {
        Written {
            letters: Vec::new(),
        }
    }
}
