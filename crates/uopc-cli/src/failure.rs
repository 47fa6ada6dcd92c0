//! How a command ends when it does not succeed, and the exit code of each way.

use std::fmt;
use std::io;
use std::path::Path;

/// The part of every help text that scripts need.
pub const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted (Ctrl-C; what was done is saved).
Results go to standard output; errors, notices and progress to standard error.";

/// Why a command did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not do what was asked.
    Failed(String),
    /// It was asked for something that does not exist or does not go together.
    Usage(String),
    /// The user stopped it; everything is saved, and the text has been printed.
    Interrupted,
    /// Nobody reads its output any more, as in `uopc ops | head`: no failure, but no reason to
    /// go on.
    Unread,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The code with which the program ends.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Unread => 0,
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
            // What a shell reports for a program that SIGINT ended.
            Failure::Interrupted => 130,
        }
    }

    /// A file that can't be read or written.
    pub fn file(path: &Path, what: &str, error: &io::Error) -> Failure {
        // "Permission denied (os error 13)": the number helps nobody.
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or(&text);
        Failure::Failed(format!("{}: {what}: {text}", path.display()))
    }

    /// An output that can't be produced, with what was to be done.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure::Failed(message.into())
    }

    /// Arguments that do not go together.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Failure::Failed(text) | Failure::Usage(text) => f.write_str(text),
            Failure::Interrupted => f.write_str("interrupted"),
            Failure::Unread => f.write_str("nobody reads the output"),
        }
    }
}

impl From<uopc::Error> for Failure {
    fn from(error: uopc::Error) -> Failure {
        Failure::Failed(error.to_string())
    }
}

/// Commands write to standard output alone with `?`; for files there is [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Unread;
        }
        Failure::file(Path::new("standard output"), "can't write", &error)
    }
}
