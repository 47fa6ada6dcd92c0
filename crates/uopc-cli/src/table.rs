//! Tables as text for a terminal and as Markdown for the reference pages.

/// Rows of equal length under a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<const N: usize>(header: [&str; N]) -> Table {
        Table {
            header: header.map(str::to_string).to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [&str; N]) {
        assert_eq!(N, self.header.len(), "a row has a cell for each column");
        self.rows.push(cells.map(str::to_string).to_vec());
    }

    /// Columns two blanks apart, each as wide as its widest cell, the header in front.
    pub fn to_text(&self) -> String {
        let all = || std::iter::once(&self.header).chain(&self.rows);
        let width = |k: usize| all().map(|r| r[k].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut text = String::new();
        for row in all() {
            let cells = row.iter().zip(&widths);
            let line: String = cells.map(|(cell, w)| format!("{cell:<w$}  ")).collect();
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// A Markdown table; the columns in `code` are set as code.
    pub fn to_markdown(&self, code: &[usize]) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let cell = |k: usize, text: &str| {
            // A bar would end the cell, also inside of code.
            let text = text.replace('|', "\\|");
            match code.contains(&k) && !text.is_empty() {
                true => format!("`{text}`"),
                false => text.replace('<', "\\<").replace('*', "\\*"),
            }
        };
        let mut text = line(self.header.clone());
        text += &line(vec!["---".to_string(); self.header.len()]);
        for row in &self.rows {
            text += &line(row.iter().enumerate().map(|(k, c)| cell(k, c)).collect());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    fn example() -> Table {
        let mut table = Table::new(["op", "meaning"]);
        table.row(["add", "a + b"]);
        table.row(["or", "a | b, <= a*b"]);
        table
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(
            example().to_text(),
            "op   meaning\nadd  a + b\nor   a | b, <= a*b\n"
        );
    }

    #[test]
    fn markdown_is_escaped() {
        assert_eq!(
            example().to_markdown(&[0]),
            "| op | meaning |\n| --- | --- |\n| `add` | a + b |\n| `or` | a \\| b, \\<= a\\*b |\n"
        );
    }
}
