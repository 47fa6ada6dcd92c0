//! Reads `.uir` files, or standard input for `-`.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::failure::{Failure, Result};

/// A text and the name under which errors speak of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file as it was named, or "standard input".
    pub name: String,
    /// All of it.
    pub text: String,
}

/// Reads the file, or standard input for `-`.
///
/// # Errors
/// A file that can't be read or is no UTF-8, with its name.
pub fn read(path: &Path) -> Result<Source> {
    if path == Path::new("-") {
        let name = "standard input".to_string();
        let mut text = String::new();
        io::stdin()
            .read_to_string(&mut text)
            .map_err(|e| Failure::file(Path::new(&name), "can't read", &e))?;
        return Ok(Source { name, text });
    }
    let text = fs::read_to_string(path).map_err(|e| Failure::file(path, "can't read", &e))?;
    let name = path.display().to_string();
    Ok(Source { name, text })
}
