//! The disk cache of compiled units: shared objects by what they were made from.
//!
//! An entry's name is the hash of everything that its content depends on, so that it never goes
//! stale. The folder is private to the user. An entry is written to a temporary file and renamed,
//! so other processes see all of it or nothing. It carries a digest over its name and its
//! content, which is checked in memory before the very bytes checked are loaded: a truncated,
//! damaged or renamed entry counts as absent. When the entries outgrow the limit, those not used
//! for longest go.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::{NamedTempFile, TempDir};

use crate::error::{Error, Result};

/// What a cached object depends on, hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of these parts, in order.
    pub fn new(parts: &[&str]) -> Key {
        let mut hasher = blake3::Hasher::new();
        hasher.update(FORMAT);
        for part in parts {
            // Lengths keep ("ab", "c") and ("a", "bc") apart.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        Key(*hasher.finalize().as_bytes())
    }

    /// As 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

/// First bytes of an entry; a change of the format or of the calling convention changes it.
const FORMAT: &[u8] = b"uopc object 2\n";

/// Bytes of an entry before the object: the format, then the digest.
const HEAD: usize = FORMAT.len() + 32;

/// Working folders of processes that died are removed after this long.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

const WORK_PREFIX: &str = "work-";

/// A folder of entries, or nothing where there can be none.
pub struct ObjectCache {
    folder: Option<PathBuf>,
    limit: u64,
}

impl ObjectCache {
    /// The cache in a folder, which is made if it does not exist. A folder that can't be used is
    /// done without, after one notice.
    pub fn open(folder: &Path, limit: u64) -> ObjectCache {
        match prepare(folder) {
            Ok(()) => ObjectCache {
                folder: Some(folder.to_path_buf()),
                limit,
            },
            Err(why) => {
                log::warn!(
                    "the cache folder {} can't be used ({why}); kernels are compiled anew in each \
                     process; set UOPC_CACHE_DIR to a folder that can be written",
                    folder.display()
                );
                ObjectCache {
                    folder: None,
                    limit,
                }
            }
        }
    }

    /// No cache: nothing is found, nothing is kept.
    pub fn none() -> ObjectCache {
        ObjectCache {
            folder: None,
            limit: 0,
        }
    }

    /// True if entries can be kept.
    pub fn is_usable(&self) -> bool {
        self.folder.is_some()
    }

    /// The object of a key, if a sound entry is there.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.entry(key)?;
        let mut file = File::open(&path).ok()?;
        let mut entry = Vec::new();
        file.read_to_end(&mut entry).ok()?;
        if !is_sound(key, &entry) {
            log::warn!(
                "the cached kernel {} is damaged; compiling it again",
                path.display()
            );
            // Another process may have replaced it meanwhile, which then costs one compilation.
            let _ = fs::remove_file(&path);
            return None;
        }
        // The time of the last use decides what goes first; a failure only makes it go earlier.
        let _ = file.set_modified(SystemTime::now());
        entry.drain(..HEAD);
        Some(entry)
    }

    /// Keeps an object. A failure is a notice: the next process compiles again.
    pub fn put(&self, key: &Key, object: &[u8]) {
        let (Some(folder), Some(path)) = (&self.folder, self.entry(key)) else {
            return;
        };
        if (HEAD + object.len()) as u64 > self.limit {
            return;
        }
        let written = write_atomically(folder, &path, &[FORMAT, &digest(key, object), object]);
        if let Err(e) = written.and_then(|()| shrink(folder, self.limit, &path)) {
            log::warn!("the cached kernel {} was not kept: {e}", path.display());
        }
    }

    /// A short text remembered under a key, such as a compiler's version.
    pub fn note(&self, key: &Key) -> Option<String> {
        String::from_utf8(self.get(key)?).ok()
    }

    /// A new folder for work in progress, removed when dropped: inside the cache's folder, which
    /// is private, else among the system's temporary files.
    ///
    /// # Errors
    /// When neither can be written.
    pub fn work_folder(&self) -> Result<TempDir> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(WORK_PREFIX);
        if let Some(folder) = &self.folder
            && let Ok(made) = builder.tempdir_in(folder)
        {
            return Ok(made);
        }
        builder.prefix("uopc-").tempdir().map_err(|e| Error::File {
            path: "the system's folder of temporary files".into(),
            message: format!("{e}; it must be writable to compile kernels"),
        })
    }

    fn entry(&self, key: &Key) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(key.hex()))
    }
}

/// Makes the folder, for the user alone, and tries whether it can be written.
fn prepare(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let trial = NamedTempFile::new_in(folder)?;
    protect(folder, &trial)
}

/// Takes away others' rights to a folder that was there before. Code is loaded from it, so a
/// folder of another user's is refused.
#[cfg(unix)]
fn protect(folder: &Path, mine: &NamedTempFile) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let data = fs::metadata(folder)?;
    if data.uid() != mine.as_file().metadata()?.uid() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if data.mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn protect(_folder: &Path, _mine: &NamedTempFile) -> io::Result<()> {
    Ok(())
}

fn digest(key: &Key, object: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&key.0).update(object);
    *hasher.finalize().as_bytes()
}

fn is_sound(key: &Key, entry: &[u8]) -> bool {
    entry.len() > HEAD
        && entry.starts_with(FORMAT)
        && entry[FORMAT.len()..HEAD] == digest(key, &entry[HEAD..])
}

fn write_atomically(folder: &Path, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = NamedTempFile::with_prefix_in(WORK_PREFIX, folder)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.persist(path)?;
    Ok(())
}

/// Removes the entries that were not used for longest until the limit holds, and what dead
/// processes left. The entry just written stays.
fn shrink(folder: &Path, limit: u64, newest: &Path) -> io::Result<()> {
    let now = SystemTime::now();
    let mut entries = Vec::new();
    let mut total = 0;
    for item in fs::read_dir(folder)? {
        let item = item?;
        // Other processes remove entries, too; what is gone is no error.
        let Ok(data) = item.metadata() else { continue };
        let used = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let name = item.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(WORK_PREFIX) {
            let age = now.duration_since(used).unwrap_or_default();
            if age > ABANDONED {
                let _ = if data.is_dir() {
                    fs::remove_dir_all(item.path())
                } else {
                    fs::remove_file(item.path())
                };
            }
        } else if data.is_file() && name.len() == 64 {
            total += data.len();
            if item.path() != newest {
                entries.push((used, item.path(), data.len()));
            }
        }
    }
    entries.sort();
    for (_, path, bytes) in entries {
        if total <= limit {
            break;
        }
        let _ = fs::remove_file(path);
        total -= bytes;
    }
    Ok(())
}
