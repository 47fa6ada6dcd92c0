//! Finds a `match` over operations that has an arm for "all others".
//!
//! Where every operation must be thought of, such an arm hides a new one from the compiler. The
//! scanner needs no parser: it follows brackets, and looks at the patterns of each `match` alone.

use super::lex::{is_word, words};

/// Positions of catch-all arms in matches whose patterns name `Op::`, in masked code.
pub fn catch_alls(code: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for at in words(code, "match") {
        let Some(open) = body(code, at + "match".len()) else {
            continue;
        };
        let patterns = patterns(code, open);
        if patterns
            .iter()
            .any(|&(from, to)| words(&code[from..to], "Op").any(|p| is_path(&code[from..to], p)))
        {
            let all = patterns
                .into_iter()
                .filter(|&(from, to)| is_catch_all(&code[from..to]));
            found.extend(all.map(|(from, to)| {
                // Point at the pattern, not at the blank line before it.
                from + code[from..to].len() - code[from..to].trim_start().len()
            }));
        }
    }
    found
}

/// Positions of `Op::*` and `Op::{...}`: where variants are imported by their bare names, a pattern
/// does not show that it is about operations.
pub fn glob_imports(code: &str) -> Vec<usize> {
    let path = |at: &usize| {
        let rest = &code[at + 2..];
        rest.starts_with("::*") || rest.starts_with("::{")
    };
    words(code, "Op").filter(path).collect()
}

fn is_path(code: &str, at: usize) -> bool {
    code[at + 2..].trim_start().starts_with("::")
}

/// The position after the brace that opens the arms. Brackets in the matched expression may hold
/// braces of their own (a closure); outside of brackets it can hold none.
fn body(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (i, b) in code.bytes().enumerate().skip(from) {
        match b {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            b'{' if depth == 0 => return Some(i + 1),
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            // `match` in a macro's pattern, not an expression.
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Where the patterns of a `match` lie, guards left out, given the position after its brace.
fn patterns(code: &str, open: usize) -> Vec<(usize, usize)> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut i = open;
    loop {
        // A pattern reaches to the arrow at its own level.
        let from = i;
        let mut depth = 0usize;
        let mut guard = None;
        loop {
            match bytes.get(i) {
                None => return found,
                Some(b'(' | b'[' | b'{') => depth += 1,
                Some(b')' | b']' | b'}') => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    // The brace that closes the `match`.
                    None => return found,
                },
                Some(b'=') if depth == 0 && bytes.get(i + 1) == Some(&b'>') => break,
                Some(b'i') if depth == 0 && guard.is_none() && is_if(bytes, i) => guard = Some(i),
                Some(_) => {}
            }
            i += 1;
        }
        // A guarded arm is not for all others, whatever its pattern.
        if guard.is_none() || code[from..guard.unwrap_or(i)].contains("Op::") {
            found.push((from, guard.unwrap_or(i)));
        }
        i += 2;
        while bytes.get(i).is_some_and(u8::is_ascii_whitespace) {
            i += 1;
        }
        i = skip_body(bytes, i);
    }
}

fn is_if(bytes: &[u8], i: usize) -> bool {
    bytes[i..].starts_with(b"if")
        && !is_word(bytes[i - 1])
        && !bytes.get(i + 2).copied().is_some_and(is_word)
}

/// The position after an arm's expression, which ends with its block or with a comma.
fn skip_body(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let block = bytes.get(start) == Some(&b'{');
    let mut i = start;
    while let Some(&b) = bytes.get(i) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => match depth.checked_sub(1) {
                Some(0) if block && b == b'}' => {
                    // `{ a }.b()` and `{ a } as b` go on; a comma is optional.
                    let mut j = i + 1;
                    while bytes.get(j).is_some_and(u8::is_ascii_whitespace) {
                        j += 1;
                    }
                    match bytes.get(j) {
                        Some(b',') => return j + 1,
                        Some(b'.' | b'?') => depth = 0,
                        _ => return i + 1,
                    }
                }
                Some(less) => depth = less,
                // The end of the `match`: the caller sees the brace.
                None => return i,
            },
            b',' if depth == 0 => return i + 1,
            _ => {}
        }
        i += 1;
    }
    i
}

/// `_`, a name, `(_, _)`, or an alternative that is one of them.
fn is_catch_all(pattern: &str) -> bool {
    alternatives(pattern).into_iter().any(|alternative| {
        let mut parts = alternative
            .split(|c: char| c.is_whitespace() || "(),&@".contains(c))
            .filter(|part| !part.is_empty())
            .peekable();
        parts.peek().is_some() && parts.all(is_wildcard)
    })
}

/// `_`, `..` or a name that takes whatever there is.
fn is_wildcard(part: &str) -> bool {
    let names = |b: u8| b == b'_' || b == b'.' || b.is_ascii_lowercase() || b.is_ascii_digit();
    let literal = part.starts_with(|c: char| c.is_ascii_digit()) || is_literal(part);
    part.bytes().all(names) && !literal
}

/// Splits a pattern at the bars of its own level.
fn alternatives(pattern: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0i32, 0, Vec::new());
    for (i, b) in pattern.bytes().enumerate() {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'|' if depth == 0 => {
                found.push(&pattern[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    found.push(&pattern[from..]);
    found
}

fn is_literal(part: &str) -> bool {
    matches!(part, "true" | "false")
}

#[cfg(test)]
mod tests {
    use super::super::lex::{line_of, split};
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let code = split(text).code;
        catch_alls(&code)
            .into_iter()
            .map(|at| line_of(&code, at))
            .collect()
    }

    #[test]
    fn an_exhaustive_match_passes() {
        let text = "match u.op() {\n Op::Add | Op::Mul => f(x, y),\n Op::Const(c) => { g(c) }\n \
            Op::Reduce { op, n, .. } => h(|a| { a }),\n}";
        assert_eq!(lines(text), [0; 0]);
    }

    #[test]
    fn an_arm_for_all_others_is_found() {
        assert_eq!(lines("match op {\n Op::Add => 1,\n _ => 2,\n}"), [3]);
        assert_eq!(lines("match op {\n Op::Add => { 1 }\n _ => { 2 }\n}"), [3]);
        assert_eq!(
            lines("match op {\n Op::Add => 1,\n other => f(other),\n}"),
            [3]
        );
        assert_eq!(
            lines("match op {\n Op::Add => 1,\n Op::Mul | _ => 2,\n}"),
            [3]
        );
        assert_eq!(
            lines("match (a, b) {\n (Op::Add, _) => 1,\n (_, _) => 2,\n}"),
            [3]
        );
        assert_eq!(lines("match op {\n Op::Add => 1,\n rest @ _ => 2,\n}"), [3]);
        assert_eq!(lines("match op {\n super::Op::Add => 1,\n _ => 2 }"), [3]);
    }

    #[test]
    fn only_its_own_level_counts() {
        // The inner match is about numbers, the outer one about operations.
        let inner = "match op {\n Op::Add => match n {\n 0 => 1,\n _ => 2,\n },\n Op::Mul => 3,\n}";
        assert_eq!(lines(inner), [0; 0]);
        // The inner match is about operations, the outer one about numbers.
        let outer = "match n {\n 0 => match op {\n Op::Add => 1,\n Op::Mul => 2,\n },\n _ => 3,\n}";
        assert_eq!(lines(outer), [0; 0]);
        let both = "match n {\n 0 => match op {\n Op::Add => 1,\n _ => 2,\n },\n _ => 3,\n}";
        assert_eq!(lines(both), [4]);
    }

    #[test]
    fn other_types_that_end_in_op_are_free() {
        assert_eq!(
            lines("match op {\n ReduceOp::Add => 1,\n _ => 2,\n}"),
            [0; 0]
        );
        assert_eq!(
            lines("match op {\n Op::Cast(a | b) => 1,\n Op::Mul => 2,\n}"),
            [0; 0]
        );
        assert_eq!(
            lines("match op {\n Some(3) => Op::Add,\n _ => Op::Mul,\n}"),
            [0; 0]
        );
    }

    #[test]
    fn a_guard_makes_an_arm_special() {
        assert_eq!(
            lines("match op {\n Op::Add => 1,\n _ if wide => 2,\n Op::Mul => 3,\n}"),
            [0; 0]
        );
        assert_eq!(
            lines("match op {\n Op::Add if a => 1,\n Op::Add => 2,\n _ => 3,\n}"),
            [4]
        );
    }

    #[test]
    fn strings_and_comments_are_no_arms() {
        let text = "match op {\n // _ => 1,\n Op::Add => \"_ => {\",\n Op::Mul => '}',\n}";
        assert_eq!(lines(text), [0; 0]);
    }

    #[test]
    fn blocks_that_go_on_belong_to_their_arm() {
        let text = "match op {\n Op::Add => { a }.map(|_| 1),\n Op::Mul => if x { 1 } else { 2 },\n \
            _ => 3,\n}";
        assert_eq!(lines(text), [4]);
    }

    #[test]
    fn the_matched_expression_may_hold_braces_in_brackets() {
        let text = "match f(|x| { x.op() }) {\n Op::Add => 1,\n _ => 2,\n}";
        assert_eq!(lines(text), [3]);
    }

    #[test]
    fn bare_variants_are_found() {
        assert_eq!(glob_imports("use super::op::Op::*;").len(), 1);
        assert_eq!(glob_imports("use super::op::Op::{Add, Mul};").len(), 1);
        assert_eq!(glob_imports("use super::op::{Op, ReduceOp::*};").len(), 0);
    }
}
