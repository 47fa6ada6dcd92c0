//! Every failure that a user can see. The text names the op, the shapes, the place and the remedy.

use std::path::PathBuf;

use crate::ir::site::Site;

/// The result of everything that can fail on user input.
pub type Result<T> = std::result::Result<T, Error>;

/// A user-visible failure.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes, axes or sizes that do not fit an op.
    #[error("{op}: {message}{}", at(site))]
    Shape {
        /// The op's mnemonic or the method's name.
        op: &'static str,
        /// What does not fit and what to do.
        message: String,
        /// Where the user called it.
        site: Option<Site>,
    },
    /// Dtypes that do not fit an op.
    #[error("{op}: {message}{}", at(site))]
    DType {
        /// The op's mnemonic or the method's name.
        op: &'static str,
        /// What does not fit and what to do.
        message: String,
        /// Where the user called it.
        site: Option<Site>,
    },
    /// Positions or axes that a tensor does not have.
    #[error("{op}: {message}{}", at(site))]
    Index {
        /// The method's name.
        op: &'static str,
        /// What is not there.
        message: String,
        /// Where the user called it.
        site: Option<Site>,
    },
    /// Something that can't be differentiated.
    #[error("gradient: {message}{}", at(site))]
    Gradient {
        /// What is in the way and what to do.
        message: String,
        /// Where the offending node was written.
        site: Option<Site>,
    },
    /// A graph that breaks the rules of its form.
    #[error("{form}: {message}{}", at(site))]
    Verify {
        /// The form that was asked for, such as "shape graph".
        form: &'static str,
        /// The rule that is broken, by which node.
        message: String,
        /// Where that node was written.
        site: Option<Site>,
    },
    /// Malformed `.uir` text.
    #[error("{message}\n{}", excerpt(name, *line, *column, text))]
    Parse {
        /// What was expected.
        message: String,
        /// The file's name, or "input".
        name: String,
        /// The line's number, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The whole line.
        text: String,
    },
    /// A file that can't be read, written or understood.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
    /// The C compiler failed.
    #[error("{compiler} failed on {}\n{output}", source_path.display())]
    Compile {
        /// The command line.
        compiler: String,
        /// The generated C file, kept for inspection.
        source_path: PathBuf,
        /// What the compiler printed.
        output: String,
    },
    /// No memory left.
    #[error("out of memory: {bytes} bytes can't be had; use smaller tensors or batches")]
    Memory {
        /// How much was asked for.
        bytes: usize,
    },
    /// A limit of memory below what a plan can do with.
    #[error(
        "memory limit: {limit} bytes are not enough for this plan, however much of it is computed \
         again; the least this plan reaches is {least} bytes; raise the limit, or use smaller \
         tensors or batches{}",
        at(site)
    )]
    MemoryLimit {
        /// The limit that was set, in bytes.
        limit: u64,
        /// The smallest limit that works.
        least: usize,
        /// Where the values were asked for.
        site: Option<Site>,
    },
    /// The caller's check asked to stop; see [`crate::runtime::interrupt`].
    #[error("interrupted; the values that were being computed can be asked for again")]
    Interrupted,
    /// Something that uopc does not do, with what to do instead.
    #[error("{what}: {message}{}", at(site))]
    Unsupported {
        /// The op or feature.
        what: &'static str,
        /// What to do instead.
        message: String,
        /// Where the user asked for it.
        site: Option<Site>,
    },
    /// A computed value that is not finite, under `UOPC_CHECK_NAN`: the report of
    /// [`find_nan`](crate::find_nan).
    #[error("{0}")]
    NonFinite(String),
    /// An environment variable, option or name with an unknown value.
    #[error("{0}")]
    Setting(String),
}

fn at(site: &Option<Site>) -> String {
    site.map_or(String::new(), |site| format!(" (at {site})"))
}

/// How many characters of a line an excerpt shows on either side of its column.
const AROUND: usize = 60;

/// The line in question with a caret under the column, both behind a margin that holds the
/// line's number. Of a long line only the surroundings of the column are shown.
fn excerpt(name: &str, line: usize, column: usize, text: &str) -> String {
    let number = format!("{line:>2}");
    let margin = " ".repeat(number.len());
    let before = column.saturating_sub(1);
    let (mut shown, mut indent) = (String::new(), before);
    // A line of twice the length is shown whole: nothing is gained by cutting a few characters.
    match text.chars().nth(4 * AROUND) {
        None => shown += text,
        Some(_) => {
            let first = before.saturating_sub(AROUND);
            if first > 0 {
                shown += "...";
                indent = before - first + 3;
            }
            let mut rest = text.chars().skip(first);
            shown.extend(rest.by_ref().take(2 * AROUND));
            if rest.next().is_some() {
                shown += "...";
            }
        }
    }
    let space = " ".repeat(indent);
    format!(
        "{margin}--> {name}:{line}:{column}\n{margin} |\n{number} | {shown}\n{margin} | {space}^"
    )
}
