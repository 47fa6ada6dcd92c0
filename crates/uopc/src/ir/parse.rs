//! From `.uir` text to a graph: the inverse of [`super::print`], in linear time.
//!
//! The grammar is in `docs/reference/uir.md`. Sources come before the nodes that read them, so
//! one pass over the lines suffices. Nothing is allocated by a number that the text declares, no
//! input makes the parser panic, and every error names the line and has a caret under the token
//! that is wrong; a node that breaks the type rules of its op is reported at its line. The nodes
//! belong to no line of the user's program.

mod lex;
mod op;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::print::VERSION;
use super::scalar::Scalar;
use super::site::Site;
use super::uop::UOp;
use crate::error::Result;
use lex::{At, Cursor, Token, number};

/// What a text contains.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The nodes of the `; roots:` line in order, else the node of the last line.
    pub roots: Vec<UOp>,
    /// The name that a `; name:` line gives to a kernel.
    pub name: Option<Arc<str>>,
    /// Each node's text from `; why` lines.
    pub notes: Vec<(UOp, Arc<str>)>,
    /// Each node that has a line, with the line's number from 1.
    pub lines: Vec<(UOp, usize)>,
}

impl Parsed {
    /// The line of the node, if it has one.
    pub fn line_of(&self, u: &UOp) -> Option<usize> {
        self.lines
            .iter()
            .find(|(node, _)| node == u)
            .map(|(_, line)| *line)
    }
}

/// Reads a graph; `name` is the file's name, for errors.
///
/// ```
/// use uopc::ir::parse::parse;
///
/// let parsed = parse("%0 = buffer 3 : dtype=f32 slot=0\n%1 = add %0, %0\n", "example")?;
/// assert_eq!(parsed.roots[0].shape().to_string(), "(3,)");
/// # Ok::<(), uopc::Error>(())
/// ```
///
/// # Errors
/// [`Error::Parse`](crate::Error::Parse) for text that is not in the grammar and for nodes that
/// break the type rules of their op.
pub fn parse(text: &str, name: &str) -> Result<Parsed> {
    read(text, name, |_| None)
}

/// [`parse`], with the lines of the text as those in which the nodes were written: for reports that
/// are about the text itself.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_lines(text: &str, name: &str) -> Result<Parsed> {
    read(text, name, |line| Some(Site::script(name, line)))
}

fn read(text: &str, name: &str, site: impl Fn(u32) -> Option<Site>) -> Result<Parsed> {
    let _no_site = Site::suspend();
    let mut reader = Reader::default();
    let mut last = 1;
    for (k, line) in text.lines().enumerate() {
        last = k + 1;
        let _line = u32::try_from(last).ok().and_then(&site).map(Site::enter);
        reader.read_line(Cursor::new(name, last, line))?;
    }
    match reader.finish() {
        Some(parsed) => Ok(parsed),
        None => {
            let text = text.lines().last().unwrap_or("");
            let message = "the text has no node, so it has no root";
            Err(Cursor::new(name, last, text).error(0, message))
        }
    }
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    lines: Vec<(UOp, usize)>,
    /// Where in `lines` each number is; empty as long as the numbers are 0, 1, 2, ... as the
    /// printer writes them.
    positions: FxHashMap<u32, usize>,
    roots: Option<Vec<UOp>>,
    name: Option<Arc<str>>,
    notes: Vec<(UOp, Arc<str>)>,
}

/// One operand of a node, before the op says what it is.
struct Operand<'t> {
    value: Value<'t>,
    at: usize,
}

enum Value<'t> {
    Node(UOp),
    Word(&'t str),
    Numbers(SmallVec<[usize; 4]>),
    Pairs(Vec<(usize, usize)>),
}

/// One `key=value` of a node.
struct Attribute<'t> {
    key: &'t str,
    key_at: usize,
    value: Token<'t>,
    value_at: usize,
}

/// Everything that a line says about a node.
struct Line<'t> {
    cursor: Cursor<'t>,
    mnemonic: &'t str,
    mnemonic_at: usize,
    operands: SmallVec<[Operand<'t>; 4]>,
    attributes: SmallVec<[Attribute<'t>; 4]>,
}

impl Reader {
    fn read_line(&mut self, mut cursor: Cursor) -> Result<()> {
        if let Some((comment, at)) = cursor.comment() {
            return self.read_directive(cursor, comment, at);
        }
        let first = cursor.next()?;
        let id = match first.token {
            Token::End => return Ok(()),
            Token::Node(id) => id,
            other => {
                let message = format!(
                    "expected a node such as '%0 = add %1, %2' or a comment, found {}",
                    other.describe()
                );
                return Err(cursor.error(first.at, message));
            }
        };
        if self.position(id).is_some() {
            return Err(cursor.error(first.at, format!("%{id} is defined twice")));
        }
        cursor.expect('=', "after the node's number")?;
        let line = self.read_node(cursor)?;
        let number = line.cursor.line;
        let node = op::build(self, line)?;
        self.number(id);
        self.lines.push((node, number));
        Ok(())
    }

    /// Gives the number to the line that comes next.
    fn number(&mut self, id: u32) {
        let next = self.lines.len();
        if self.positions.is_empty() && id as usize == next {
            return;
        }
        if self.positions.is_empty() {
            self.positions.extend((0..next).map(|k| (k as u32, k)));
        }
        self.positions.insert(id, next);
    }

    /// A comment that says something about the graph; any other means nothing.
    fn read_directive(&mut self, mut cursor: Cursor, comment: &str, at: usize) -> Result<()> {
        if comment.starts_with("roots:") {
            if self.roots.is_some() {
                return Err(cursor.error(at, "the roots are listed twice"));
            }
            cursor.skip_to(at + "roots:".len());
            self.roots = Some(self.read_roots(&mut cursor)?);
        } else if comment.starts_with("name:") {
            cursor.skip_to(at + "name:".len());
            let found = cursor.next()?;
            let name = match found.token {
                Token::Word(word) => word.into(),
                Token::Text(text) => text.into(),
                _ => return Err(cursor.error(found.at, "expected a name such as grad_x")),
            };
            end_of_line(&mut cursor)?;
            if self.name.replace(name).is_some() {
                return Err(cursor.error(at, "the name is given twice"));
            }
        } else if comment.starts_with("why %") {
            cursor.skip_to(at + "why".len());
            let (node, _) = self.read_reference(&mut cursor)?;
            cursor.expect(':', "after the node")?;
            let text = if cursor.rest().starts_with('"') {
                let Token::Text(text) = cursor.next()?.token else {
                    return Err(cursor.error(at, "expected a text in quotes"));
                };
                end_of_line(&mut cursor)?;
                text.into()
            } else {
                cursor.rest().into()
            };
            self.notes.push((node, text));
        } else if let Some(version) = comment.strip_prefix("uir ")
            && let Some(version) = number::<u32>(version.trim())
            && version != VERSION
        {
            let message = format!("version {version} is not known here; this is version {VERSION}");
            return Err(cursor.error(at, message));
        }
        Ok(())
    }

    fn read_roots(&self, cursor: &mut Cursor) -> Result<Vec<UOp>> {
        let mut roots = Vec::new();
        if cursor.peek()?.token == Token::End {
            return Ok(roots);
        }
        loop {
            let found = cursor.next()?;
            roots.push(self.node(cursor, &found)?);
            if !cursor.accept(',')? {
                break;
            }
        }
        end_of_line(cursor)?;
        Ok(roots)
    }

    /// The operation, its operands and its attributes.
    fn read_node<'t>(&self, mut cursor: Cursor<'t>) -> Result<Line<'t>> {
        let found = cursor.next()?;
        let Token::Word(mnemonic) = found.token else {
            let message = format!(
                "expected an op such as add, found {}",
                found.token.describe()
            );
            return Err(cursor.error(found.at, message));
        };
        let mut operands = SmallVec::new();
        if !matches!(cursor.peek()?.token, Token::End | Token::Mark(':')) {
            loop {
                operands.push(self.read_operand(&mut cursor)?);
                if !cursor.accept(',')? {
                    break;
                }
            }
        }
        let mut attributes: SmallVec<[Attribute; 4]> = SmallVec::new();
        if cursor.accept(':')? {
            loop {
                let attribute = read_attribute(&mut cursor)?;
                if attributes.iter().any(|other| other.key == attribute.key) {
                    let message = format!("{} is given twice", attribute.key);
                    return Err(cursor.error(attribute.key_at, message));
                }
                attributes.push(attribute);
                if cursor.peek()?.token == Token::End {
                    break;
                }
            }
        }
        end_of_line(&mut cursor)?;
        Ok(Line {
            cursor,
            mnemonic,
            mnemonic_at: found.at,
            operands,
            attributes,
        })
    }

    fn read_operand<'t>(&self, cursor: &mut Cursor<'t>) -> Result<Operand<'t>> {
        let found = cursor.next()?;
        let at = found.at;
        let value = match found.token {
            Token::Node(_) => Value::Node(self.node(cursor, &found)?),
            Token::Word(word) => Value::Word(word),
            Token::Mark('(') => read_tuple(cursor)?,
            other => {
                let message = format!("expected an operand, found {}", other.describe());
                return Err(cursor.error(at, message));
            }
        };
        Ok(Operand { value, at })
    }

    fn read_reference(&self, cursor: &mut Cursor) -> Result<(UOp, usize)> {
        let found = cursor.next()?;
        Ok((self.node(cursor, &found)?, found.at))
    }

    /// The node that a number or a literal stands for.
    fn node(&self, cursor: &Cursor, found: &At) -> Result<UOp> {
        match found.token {
            Token::Node(id) => match self.position(id) {
                Some(position) => Ok(self.lines[position].0.clone()),
                None => {
                    let message = format!("%{id} is not defined above this line");
                    Err(cursor.error(found.at, message))
                }
            },
            Token::Word(word) => literal(cursor, word, found.at),
            ref other => {
                let message = format!(
                    "expected a node such as %1 or a constant such as 1.0, found {}",
                    other.describe()
                );
                Err(cursor.error(found.at, message))
            }
        }
    }

    fn position(&self, id: u32) -> Option<usize> {
        if self.positions.is_empty() {
            return Some(id as usize).filter(|&k| k < self.lines.len());
        }
        self.positions.get(&id).copied()
    }

    fn finish(self) -> Option<Parsed> {
        let roots = match self.roots {
            Some(roots) => roots,
            None => vec![self.lines.last()?.0.clone()],
        };
        Some(Parsed {
            roots,
            name: self.name,
            notes: self.notes,
            lines: self.lines,
        })
    }
}

/// The constant that a word stands for.
fn literal(cursor: &Cursor, word: &str, at: usize) -> Result<UOp> {
    match Scalar::parse(word) {
        Some(value) => Ok(UOp::constant(value)),
        None => {
            let message =
                format!("expected a node such as %1 or a constant such as 1.0, found '{word}'");
            Err(cursor.error(at, message))
        }
    }
}

fn end_of_line(cursor: &mut Cursor) -> Result<()> {
    let found = cursor.next()?;
    if found.token == Token::End {
        return Ok(());
    }
    let message = format!(
        "expected the end of the line, found {}",
        found.token.describe()
    );
    Err(cursor.error(found.at, message))
}

fn read_attribute<'t>(cursor: &mut Cursor<'t>) -> Result<Attribute<'t>> {
    let found = cursor.next()?;
    let Token::Word(key) = found.token else {
        let message = format!(
            "expected an attribute such as slot=0, found {}",
            found.token.describe()
        );
        return Err(cursor.error(found.at, message));
    };
    cursor.expect('=', "after the attribute's name")?;
    let value = cursor.next()?;
    match value.token {
        Token::Word(_) | Token::Node(_) | Token::Text(_) => Ok(Attribute {
            key,
            key_at: found.at,
            value: value.token,
            value_at: value.at,
        }),
        other => {
            let message = format!("expected the value of {key}, found {}", other.describe());
            Err(cursor.error(value.at, message))
        }
    }
}

/// A tuple behind its opening parenthesis: of numbers, or of pairs of numbers.
fn read_tuple<'t>(cursor: &mut Cursor<'t>) -> Result<Value<'t>> {
    let mut numbers: SmallVec<[usize; 4]> = SmallVec::new();
    let mut pairs = Vec::new();
    // As in Python, a tuple of one ends with a comma.
    let mut comma = true;
    loop {
        let found = cursor.next()?;
        let at = found.at;
        match found.token {
            Token::Mark(')') => {
                if numbers.len() + pairs.len() == 1 && !comma {
                    return Err(cursor.error(at, "a tuple of one ends with a comma: (3,)"));
                }
                return Ok(if pairs.is_empty() {
                    Value::Numbers(numbers)
                } else {
                    Value::Pairs(pairs)
                });
            }
            _ if !comma => {
                let message = format!("expected ',' or ')', found {}", found.token.describe());
                return Err(cursor.error(at, message));
            }
            Token::Word(word) if pairs.is_empty() => numbers.push(extent(cursor, word, at)?),
            Token::Mark('(') if numbers.is_empty() => {
                let begin = read_extent(cursor)?;
                cursor.expect(',', "between the two numbers of a pair")?;
                let end = read_extent(cursor)?;
                cursor.expect(')', "after the two numbers of a pair")?;
                pairs.push((begin, end));
            }
            other => {
                let message = format!("expected a number, found {}", other.describe());
                return Err(cursor.error(at, message));
            }
        }
        comma = cursor.accept(',')?;
    }
}

fn read_extent(cursor: &mut Cursor) -> Result<usize> {
    let found = cursor.next()?;
    match found.token {
        Token::Word(word) => extent(cursor, word, found.at),
        other => {
            let message = format!("expected a number, found {}", other.describe());
            Err(cursor.error(found.at, message))
        }
    }
}

fn extent(cursor: &Cursor, word: &str, at: usize) -> Result<usize> {
    number(word).ok_or_else(|| {
        let message = format!("expected a whole number from 0 to 2^64-1, found '{word}'");
        cursor.error(at, message)
    })
}
