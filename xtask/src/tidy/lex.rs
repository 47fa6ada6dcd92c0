//! Splits Rust text into code and comments, so that a check for a word is not fooled by a string.
//!
//! Both halves have the length of the original, with spaces in place of what the other half
//! holds: positions and line numbers agree.

/// A file's text in two halves.
#[derive(Debug)]
pub struct Halves {
    /// Code, with blanks for comments and for what stands between quotes.
    pub code: String,
    /// Comments, with blanks for all else.
    pub comments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    /// The inside of a string or character literal.
    Literal,
}

/// Splits a file.
pub fn split(text: &str) -> Halves {
    let bytes = text.as_bytes();
    let mut kinds = vec![Kind::Code; bytes.len()];
    let mut i = 0;
    while i < bytes.len() {
        let rest = &bytes[i..];
        let (kind, n) = if rest.starts_with(b"//") {
            (Kind::Comment, line_comment(rest))
        } else if rest.starts_with(b"/*") {
            (Kind::Comment, block_comment(rest))
        } else if let Some(n) = raw_string(bytes, i) {
            (Kind::Literal, n)
        } else if rest[0] == b'"' {
            (Kind::Literal, quoted(rest))
        } else if rest[0] == b'\'' {
            char_literal(rest).map_or((Kind::Code, 1), |n| (Kind::Literal, n))
        } else {
            (Kind::Code, 1)
        };
        kinds[i..i + n].fill(kind);
        i += n;
    }
    let half = |wanted: Kind| -> String {
        let keep = |(&b, &k): (&u8, &Kind)| if k == wanted || b == b'\n' { b } else { b' ' };
        let kept: Vec<u8> = bytes.iter().zip(&kinds).map(keep).collect();
        String::from_utf8_lossy(&kept).into_owned()
    };
    Halves {
        code: half(Kind::Code),
        comments: half(Kind::Comment),
    }
}

fn line_comment(rest: &[u8]) -> usize {
    rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut i) = (0usize, 0);
    while i < rest.len() {
        if rest[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if rest[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    rest.len()
}

/// `r"..."`, `r#"..."#`, `br##"..."##`, not preceded by a letter of a longer word.
fn raw_string(bytes: &[u8], start: usize) -> Option<usize> {
    if start > 0 && is_word(bytes[start - 1]) {
        return None;
    }
    let rest = &bytes[start..];
    let prefix = [&b"r"[..], b"br", b"cr"]
        .into_iter()
        .find(|p| rest.starts_with(p))?
        .len();
    let hashes = rest[prefix..].iter().take_while(|&&b| b == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|w| w == close);
    Some(end.map_or(rest.len(), |e| open + 1 + e + close.len()))
}

fn quoted(rest: &[u8]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime.
fn char_literal(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        // The escaped character may be a quote itself.
        return rest.iter().skip(3).position(|&b| b == b'\'').map(|p| p + 4);
    }
    let width = match rest.get(1)? {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xff => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// Whether a byte can be part of an identifier.
pub fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// The positions at which `word` stands in `text`, not as a part of a longer identifier.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    text.match_indices(word).map(|m| m.0).filter(move |&at| {
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let after = bytes.get(at + word.len()).copied();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The number, from 1, of the line that holds a position.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
        + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        split(text)
            .code
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn comments(text: &str) -> String {
        split(text)
            .comments
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_leave_the_code() {
        let text = "let a = 1; // unsafe\n/* a /* nested */ one */ let b = 2;";
        assert_eq!(code(text), "let a = 1; let b = 2;");
        assert_eq!(comments(text), "// unsafe /* a /* nested */ one */");
    }

    #[test]
    fn strings_are_neither() {
        for text in [
            r#"f("a // \" b", c)"#,
            r##"f(r#"a " // b"#, c)"##,
            "f(br\"a\\\", c)",
            r"f('\'', c)",
            r"f('\u{1F600}', c)",
            "f('é', c)",
            "f('\"', c)",
        ] {
            assert_eq!(code(text), "f( , c)", "{text}");
            assert_eq!(comments(text), "", "{text}");
        }
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code("let r#type = for_r; x"), "let r#type = for_r; x");
    }

    #[test]
    fn positions_agree() {
        let text = "let s = \"a\nb\"; // c\nunsafe {}";
        let halves = split(text);
        assert_eq!(halves.code.len(), text.len());
        let at = words(&halves.code, "unsafe")
            .next()
            .expect("the word is there");
        assert_eq!(line_of(text, at), 3);
    }

    #[test]
    fn a_word_is_whole() {
        assert_eq!(
            words("unsafe_code unsafe xunsafe", "unsafe").collect::<Vec<_>>(),
            [12]
        );
    }
}
