//! Reference pages that are written from the program's own tables.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::process::{root, uopc};

/// A page and the `uopc` command whose Markdown it holds.
const PAGES: &[(&str, &[&str])] = &[
    ("docs/reference/ops.md", &["ops", "--markdown"]),
    ("docs/reference/env.md", &["env", "--markdown"]),
];

/// Writes the pages.
pub fn write() -> Result<()> {
    for (page, command) in PAGES {
        let path = root().join(page);
        let folder = path.parent().expect("a page lies in a folder");
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&path, uopc(command)?).with_context(|| path.display().to_string())?;
        println!("wrote {page}");
    }
    Ok(())
}

/// Fails if a page differs from its table.
pub fn check() -> Result<()> {
    for (page, command) in PAGES {
        let path = root().join(page);
        let written = fs::read_to_string(&path).with_context(|| format!("can't read {page}"))?;
        if written != uopc(command)? {
            bail!("{page} differs from its table; run `cargo xtask docs`");
        }
        println!("{page} is up to date");
    }
    Ok(())
}
