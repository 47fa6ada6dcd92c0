//! One line of `.uir` as tokens, and errors that point at them.

use crate::error::{Error, Result};
use crate::ir::print::is_word_char;

/// A line of the text and a position in it.
#[derive(Clone)]
pub(super) struct Cursor<'t> {
    /// The file's name, for errors.
    name: &'t str,
    /// The line's number, from 1.
    pub(super) line: usize,
    text: &'t str,
    /// Bytes of the line that have been read.
    at: usize,
}

/// The smallest unit of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token<'t> {
    /// `%12`.
    Node(u32),
    /// A word or a number: `mul`, `f32`, `-1.5e3`.
    Word(&'t str),
    /// A text in quotes, unescaped.
    Text(String),
    /// One of `= , : ( )`.
    Mark(char),
    /// The end of the line or a comment.
    End,
}

/// A token with the byte where it begins.
pub(super) struct At<'t> {
    pub(super) token: Token<'t>,
    pub(super) at: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(name: &'t str, line: usize, text: &'t str) -> Cursor<'t> {
        Cursor {
            name,
            line,
            text,
            at: 0,
        }
    }

    /// An error whose caret stands under the byte `at`.
    pub(super) fn error(&self, at: usize, message: impl Into<String>) -> Error {
        Error::Parse {
            message: shorten(&message.into()),
            name: self.name.into(),
            line: self.line,
            column: self.text[..at].chars().count() + 1,
            // A tab would move the caret away from its column.
            text: self.text.trim_end().replace('\t', " "),
        }
    }

    /// The comment that the line begins with, without its semicolon and surrounding blanks, and
    /// the byte where it begins.
    pub(super) fn comment(&self) -> Option<(&'t str, usize)> {
        let text = self.text.trim_start().strip_prefix(';')?.trim_start();
        let at = self.text.len() - text.len();
        Some((text.trim_end(), at))
    }

    /// Moves on to a byte of the line.
    pub(super) fn skip_to(&mut self, at: usize) {
        self.at = at;
    }

    /// The rest of the line without surrounding blanks.
    pub(super) fn rest(&self) -> &'t str {
        self.text[self.at..].trim()
    }

    /// The next token, which is not consumed.
    pub(super) fn peek(&self) -> Result<At<'t>> {
        self.clone().next()
    }

    /// Consumes a mark if it comes next.
    pub(super) fn accept(&mut self, mark: char) -> Result<bool> {
        self.blanks();
        let found = self.text[self.at..].starts_with(mark);
        if found {
            self.at += mark.len_utf8();
        }
        Ok(found)
    }

    /// Consumes a mark that has to come next.
    pub(super) fn expect(&mut self, mark: char, place: &str) -> Result<()> {
        if self.accept(mark)? {
            return Ok(());
        }
        let found = self.peek()?;
        let message = format!(
            "expected '{mark}' {place}, found {}",
            found.token.describe()
        );
        Err(self.error(found.at, message))
    }

    /// Consumes the next token.
    pub(super) fn next(&mut self) -> Result<At<'t>> {
        self.blanks();
        let at = self.at;
        let rest = &self.text[at..];
        let token = match rest.chars().next() {
            None | Some(';') => {
                // What is missing is missing behind the last token, not behind blanks.
                let at = self.text[..at].trim_end().len();
                return Ok(At {
                    token: Token::End,
                    at,
                });
            }
            Some('%') => {
                let digits = &rest[1..word_end(&rest[1..]) + 1];
                self.at += 1 + digits.len();
                match number::<u32>(digits) {
                    Some(number) => Token::Node(number),
                    None => {
                        let message = "a node is written as % and a number below 2^32, such as %3";
                        return Err(self.error(at, message));
                    }
                }
            }
            Some('"') => Token::Text(self.quoted(at)?),
            Some(mark @ ('=' | ',' | ':' | '(' | ')')) => {
                self.at += 1;
                Token::Mark(mark)
            }
            Some(c) if is_word_char(c) => {
                let word = &rest[..word_end(rest)];
                self.at += word.len();
                Token::Word(word)
            }
            Some(c) => {
                let message = format!("{c:?} has no meaning here; comments begin with ';'");
                return Err(self.error(at, message));
            }
        };
        Ok(At { token, at })
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn quoted(&mut self, start: usize) -> Result<String> {
        let mut text = String::new();
        let mut chars = self.text[start + 1..].char_indices();
        while let Some((k, c)) = chars.next() {
            let at = start + 1 + k;
            match c {
                '"' => {
                    self.at = at + 1;
                    return Ok(text);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some(c @ ('"' | '\\')) => text.push(c),
                    Some('n') => text.push('\n'),
                    Some('u') => {
                        let rest = &self.text[at + 2..];
                        let code = (rest.strip_prefix('{')).and_then(|r| r.split_once('}'));
                        let c = code.and_then(|(code, _)| {
                            let digits = code.bytes().all(|b| b.is_ascii_hexdigit());
                            let value = u32::from_str_radix(code, 16).ok()?;
                            if digits { char::from_u32(value) } else { None }
                        });
                        let (Some((code, _)), Some(c)) = (code, c) else {
                            return Err(self.error(at, "expected a character such as \\u{1f}"));
                        };
                        text.push(c);
                        // Two braces and the digits, all of one byte each.
                        for _ in 0..code.len() + 2 {
                            chars.next();
                        }
                    }
                    _ => {
                        return Err(self.error(at, "known escapes are \\\" \\\\ \\n and \\u{..}"));
                    }
                },
                c => text.push(c),
            }
        }
        Err(self.error(start, "the quotes are not closed on this line"))
    }
}

/// How many characters of a word or text a message repeats.
const SHOWN: usize = 60;

/// The message with its overlong words cut: what a text repeats of a file is the file's choice.
fn shorten(message: &str) -> String {
    let mut short = String::with_capacity(message.len().min(1 << 10));
    for word in message.split_inclusive(' ') {
        match word.char_indices().nth(2 * SHOWN) {
            None => short += word,
            Some(_) => {
                short.extend(word.chars().take(SHOWN));
                short += "...";
                // The quotes behind a word say where it ends.
                let end = word.trim_end_matches(|c: char| !is_word_char(c)).len();
                short += word.get(end.max(word.len() - 4)..).unwrap_or(" ");
            }
        }
    }
    short
}

fn word_end(text: &str) -> usize {
    text.find(|c| !is_word_char(c)).unwrap_or(text.len())
}

/// A number of digits alone (Rust would also read a sign).
pub(super) fn number<T: std::str::FromStr>(digits: &str) -> Option<T> {
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

impl Token<'_> {
    /// The token as an error message shows it.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Node(number) => format!("%{number}"),
            Token::Word(word) => format!("'{word}'"),
            Token::Text(text) => match text.char_indices().nth(SHOWN) {
                None => format!("{text:?}"),
                Some((end, _)) => format!("{:?}...", &text[..end]),
            },
            Token::Mark(mark) => format!("'{mark}'"),
            Token::End => "the end of the line".into(),
        }
    }
}
