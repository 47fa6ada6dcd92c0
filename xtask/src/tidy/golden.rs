//! Every rule, pass and operation is named by a golden file, which shows what it does.

use std::collections::BTreeSet;

/// Operations that no golden file can name, each with the reason.
const UNNAMED: &[(&str, &str)] = &[("const", "stands inline in the text, as a number")];

/// What the golden files name.
#[derive(Default, Debug)]
pub struct Named {
    rules: BTreeSet<String>,
    passes: BTreeSet<String>,
    ops: BTreeSet<String>,
}

impl Named {
    /// Reads one file; `folder` is the folder it lies in.
    pub fn read(&mut self, folder: &str, text: &str) {
        self.passes.insert(folder.to_string());
        for line in text.lines() {
            match line.trim_start().strip_prefix(';') {
                Some(comment) => self.read_comment(comment.trim()),
                None => self.read_statement(line),
            }
        }
    }

    fn read_comment(&mut self, comment: &str) {
        for (key, set) in [("fires:", &mut self.rules), ("pass:", &mut self.passes)] {
            if let Some(list) = comment.strip_prefix(key) {
                let words = list.split(|c: char| c == ',' || c.is_whitespace());
                set.extend(words.filter(|w| !w.is_empty()).map(str::to_string));
            }
        }
    }

    /// `%3 = mul %1, %2 ; comment` names `mul`; a statement without a value begins with its word.
    fn read_statement(&mut self, line: &str) {
        let statement = line.split(';').next().unwrap_or("");
        let word = match statement.split_once('=') {
            Some((left, right)) if left.trim_start().starts_with('%') => right,
            _ => statement,
        };
        let word: String = word
            .trim_start()
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        self.ops.insert(word);
    }

    /// What the tables hold and no golden file names.
    pub fn missing(&self, rules: &str, passes: &str, ops: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (kind, table, named) in [
            ("rule", rules, &self.rules),
            ("pass", passes, &self.passes),
            ("op", ops, &self.ops),
        ] {
            let names: Vec<&str> = table
                .lines()
                .map(str::trim)
                .filter(|l| !l.is_empty())
                .collect();
            if names.is_empty() {
                found.push(format!("the table of {kind} names is empty"));
            }
            for name in names {
                let excused = kind == "op" && UNNAMED.iter().any(|row| row.0 == name);
                if !excused && !named.contains(name) {
                    found.push(format!("no golden file names the {kind} `{name}`"));
                }
            }
            // A name that no table holds is a rule that was renamed or a slip of the pen.
            if kind == "rule" {
                for name in named
                    .iter()
                    .filter(|n| !table.lines().any(|l| l.trim() == **n))
                {
                    found.push(format!(
                        "a golden file names the {kind} `{name}`, which is none"
                    ));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "; test simplify\n; Multiplying by one is the identity.\n; fires: mul_one, add_zero\n\
        %0 = buffer 4 : dtype=f32 slot=0\n%3 = mul %0, 1.0 ; add %1\nbarrier\n; pass: tile\n";

    fn missing(rules: &str, passes: &str, ops: &str) -> Vec<String> {
        let mut named = Named::default();
        named.read("simplify", FILE);
        named.missing(rules, passes, ops)
    }

    #[test]
    fn what_is_named_is_covered() {
        let ops = "const\nbuffer\nmul\nbarrier\n";
        assert_eq!(
            missing("mul_one\nadd_zero\n", "simplify\ntile\n", ops),
            [""; 0]
        );
    }

    #[test]
    fn what_is_not_named_is_found() {
        let found = missing(
            "mul_one\nadd_zero\nmul_zero\n",
            "simplify\nunroll\n",
            "mul\nadd\n",
        );
        assert_eq!(
            found,
            [
                "no golden file names the rule `mul_zero`",
                "no golden file names the pass `unroll`",
                "no golden file names the op `add`",
            ]
        );
    }

    #[test]
    fn a_rule_that_is_none_is_found() {
        let found = missing("mul_one\n", "simplify\n", "mul\n");
        assert_eq!(
            found,
            ["a golden file names the rule `add_zero`, which is none"]
        );
    }

    #[test]
    fn an_empty_table_is_no_success() {
        assert_eq!(
            missing("", "simplify\n", "mul\n")[0],
            "the table of rule names is empty"
        );
    }
}
