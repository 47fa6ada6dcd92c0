//! Settings from the environment: the only reader of environment variables, and their table.
//!
//! | what | how |
//! |---|---|
//! | the table, for documentation and `uopc env` | [`VARIABLES`] |
//! | the values in force | [`settings`] |
//! | values of your own, for a test or a tool | [`Settings::default`], then set fields |

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::machine::Machine;

/// One environment variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it accepts.
    pub values: &'static str,
    /// What holds when it is not set, or empty.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

macro_rules! variables {
    ($($name:ident: $values:literal, $default:literal, $meaning:literal;)*) => {
        /// Every variable that uopc reads, in the order of documentation.
        pub const VARIABLES: &[Variable] = &[$(Variable {
            name: stringify!($name), values: $values, default: $default, meaning: $meaning,
        },)*];
    };
}

variables! {
    UOPC_DUMP: "after:<pass> or all", "nothing",
        "print the graph after a pass, or after each, to stderr";
    UOPC_VERIFY: "0 or 1", "1 in debug builds, else 0",
        "check plans, too, after the pass that makes them; all other forms are always checked";
    UOPC_CHECK_NAN: "0 or 1", "0",
        "refuse computed values that are not finite, with a report of the op that made them so (find_nan); infinities of inputs and constants may be meant and are let through";
    UOPC_TIME: "0 or 1", "0",
        "report the time that each pass took, one line a pass for each plan";
    UOPC_PROFILE: "0 or 1", "0",
        "add up the time that each kernel takes; uopc bench prints it, Engine::kernel_times gives it";
    UOPC_TRACE: "a folder", "none",
        "write one JSON line for each rule that fires: the rule, the node before and after";
    UOPC_DISABLE: "rule or pass names, separated by commas", "none",
        "leave these out";
    UOPC_FUEL: "a whole number", "no limit",
        "in each simplification stop after that many rules have fired, to find a wrong one by halving";
    UOPC_SCHEDULE: "default or plain", "default",
        "default lays loops out for the machine: vectors, tiles, packed operands, threads; plain keeps scalar loops, for reading; both give the same bits (large products of bf16 apart, see ARCHITECTURE.md, Folds)";
    UOPC_SEARCH: "0 to 64", "0",
        "how many layouts of each kernel that takes long are timed when its plan is made, at most; the best is kept in the cache folder; results do not depend on it";
    UOPC_DEVICE: "auto, c or interp", "auto",
        "what runs kernels: C through the system's compiler, or the interpreter; auto takes C if there is a compiler";
    UOPC_THREADS: "1 to 256", "the processors that the process may use",
        "how many threads run a kernel; results do not depend on it";
    UOPC_MEMORY_LIMIT: "bytes, or a number followed by K, M or G", "none",
        "the most memory that a computation takes beside what it reads: values are computed again where it is short; results do not depend on it";
    UOPC_SHARED: "required", "not set",
        "let uopc's own tests fail instead of being skipped where data beside the checkout are missing";
    UOPC_DEEP: "anything", "not set",
        "let uopc's own tests run their long versions";
    UOPC_PERF: "anything", "not set",
        "let uopc's own tests print how long their steps took";
    CC: "a command", "cc, gcc or clang, the first found",
        "the C compiler";
    UOPC_CACHE_DIR: "a folder", "uopc in the user's cache folder",
        "where compiled kernels are kept between processes";
    UOPC_CACHE_LIMIT: "bytes, or a number followed by K, M or G", "1G",
        "the size that the cache folder is kept below";
    XDG_CACHE_HOME: "a folder", "$HOME/.cache (macOS: $HOME/Library/Caches)",
        "the user's cache folder";
    PATH: "folders", "the system's",
        "where a C compiler is looked for that is given by name";
    HOME: "a folder", "none: then there is no cache between processes",
        "the user's folder, in which the cache folder is looked for";
}

/// Which graphs are printed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Dump {
    /// None.
    #[default]
    Nothing,
    /// The one after this pass.
    After(String),
    /// That after each pass.
    All,
}

/// How kernels are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Schedule {
    /// For speed.
    #[default]
    Default,
    /// Scalar loops, nothing clever: for reading.
    Plain,
}

/// What runs kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeviceChoice {
    /// C if there is a compiler, else the interpreter.
    #[default]
    Auto,
    /// C; without a compiler that is an error.
    C,
    /// The interpreter.
    Interp,
}

/// The most layouts of a kernel that are timed.
pub const MAX_SEARCH: usize = 64;

/// The most threads that run a kernel.
pub const MAX_THREADS: usize = 256;

/// Everything that can be set from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Settings {
    /// `UOPC_DUMP`.
    pub dump: Dump,
    /// `UOPC_VERIFY`.
    pub verify: bool,
    /// `UOPC_CHECK_NAN`.
    pub check_nan: bool,
    /// `UOPC_TIME`.
    pub time: bool,
    /// `UOPC_PROFILE`.
    pub profile: bool,
    /// `UOPC_TRACE`.
    pub trace: Option<PathBuf>,
    /// `UOPC_DISABLE`. Whoever knows the names checks them with [`Settings::check_names`].
    pub disable: BTreeSet<String>,
    /// `UOPC_FUEL`.
    pub fuel: Option<u64>,
    /// `UOPC_SCHEDULE`.
    pub schedule: Schedule,
    /// `UOPC_SEARCH`: how many layouts of a kernel are timed at most, see
    /// [`compile::search`](crate::compile::search).
    pub search: usize,
    /// What schedules are made for: this machine, whatever the environment says.
    pub machine: Machine,
    /// `UOPC_DEVICE`.
    pub device: DeviceChoice,
    /// `UOPC_THREADS`; `None`: as many as the process has processors.
    pub threads: Option<usize>,
    /// `UOPC_MEMORY_LIMIT`, in bytes; [`memory_limit`](crate::memory_limit) sets one for a while.
    pub memory_limit: Option<u64>,
    /// `CC`.
    pub cc: Option<String>,
    /// `UOPC_CACHE_DIR`; `None`: nothing is kept between processes.
    pub cache_dir: Option<PathBuf>,
    /// `UOPC_CACHE_LIMIT`, in bytes.
    pub cache_limit: u64,
}

impl Default for Settings {
    /// What holds in an empty environment.
    fn default() -> Settings {
        Settings {
            dump: Dump::Nothing,
            verify: cfg!(debug_assertions),
            check_nan: false,
            time: false,
            profile: false,
            trace: None,
            disable: BTreeSet::new(),
            fuel: None,
            schedule: Schedule::Default,
            search: 0,
            machine: Machine::native(),
            device: DeviceChoice::Auto,
            threads: None,
            memory_limit: None,
            cc: None,
            cache_dir: None,
            cache_limit: 1 << 30,
        }
    }
}

/// The settings of this process, read from the environment once.
///
/// # Errors
/// [`Error::Setting`] each time, if a variable has a value that it does not accept.
pub fn settings() -> Result<&'static Settings> {
    static SETTINGS: OnceLock<Result<Settings>> = OnceLock::new();
    let settings = SETTINGS.get_or_init(Settings::from_env);
    settings.as_ref().map_err(Error::clone)
}

/// The folders in which programs are looked for, in order.
pub fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).collect()
}

/// The architecture and the operating system that this program was built for.
pub fn platform() -> String {
    format!("{} {}", env::consts::ARCH, env::consts::OS)
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// [`Error::Setting`] for a value that a variable does not accept, and for a variable whose
    /// name begins with `UOPC_` and is not in [`VARIABLES`].
    pub fn from_env() -> Result<Settings> {
        Settings::from_vars(env::vars_os())
    }

    /// Reads variables from a list instead of the environment.
    ///
    /// ```
    /// use uopc::debug::{Schedule, Settings};
    ///
    /// let settings = Settings::from_vars([("UOPC_SCHEDULE".into(), "plain".into())]).unwrap();
    /// assert_eq!(settings.schedule, Schedule::Plain);
    /// ```
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    pub fn from_vars(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Settings> {
        let mut settings = Settings::default();
        let (mut home, mut user_cache) = (None, None);
        for (name, value) in vars {
            let Some(name) = name.to_str() else { continue };
            let known = VARIABLES.iter().find(|v| v.name == name);
            let Some(variable) = known else {
                if name.starts_with("UOPC_") {
                    return Err(unknown_variable(name));
                }
                continue;
            };
            if value.is_empty() {
                continue;
            }
            match name {
                "XDG_CACHE_HOME" => user_cache = Some(PathBuf::from(value)),
                // Read by `search_path` when a compiler is looked for.
                "PATH" => {}
                "HOME" => home = Some(PathBuf::from(value)),
                "UOPC_TRACE" => settings.trace = Some(value.into()),
                "UOPC_CACHE_DIR" => settings.cache_dir = Some(value.into()),
                _ => {
                    let text = value.to_string_lossy();
                    settings
                        .set(name, &text)
                        .ok_or_else(|| unknown_value(variable, &text))?;
                }
            }
        }
        if settings.cache_dir.is_none() {
            let below_home = if cfg!(target_os = "macos") {
                "Library/Caches"
            } else {
                ".cache"
            };
            // A relative XDG_CACHE_HOME is to be ignored, says its specification.
            settings.cache_dir = user_cache
                .filter(|folder| folder.is_absolute())
                .or_else(|| home.map(|home| home.join(below_home)))
                .map(|folder| folder.join("uopc"));
        }
        Ok(settings)
    }

    /// Sets a variable that is not a folder; `None` if it does not accept the value.
    fn set(&mut self, name: &str, text: &str) -> Option<()> {
        match name {
            "UOPC_DUMP" => self.dump = dump(text)?,
            "UOPC_VERIFY" => self.verify = switch(text)?,
            "UOPC_CHECK_NAN" => self.check_nan = switch(text)?,
            "UOPC_TIME" => self.time = switch(text)?,
            "UOPC_PROFILE" => self.profile = switch(text)?,
            "UOPC_DISABLE" => {
                let names = text.split(',').map(str::trim).filter(|n| !n.is_empty());
                self.disable = names.map(str::to_string).collect();
            }
            "UOPC_FUEL" => self.fuel = Some(text.parse().ok()?),
            "UOPC_SCHEDULE" => {
                self.schedule = match text {
                    "default" => Schedule::Default,
                    "plain" => Schedule::Plain,
                    _ => return None,
                }
            }
            "UOPC_DEVICE" => {
                self.device = match text {
                    "auto" => DeviceChoice::Auto,
                    "c" => DeviceChoice::C,
                    "interp" => DeviceChoice::Interp,
                    _ => return None,
                }
            }
            "UOPC_THREADS" => {
                let threads = text.parse().ok();
                self.threads = Some(threads.filter(|n| (1..=MAX_THREADS).contains(n))?);
            }
            "UOPC_SEARCH" => {
                let layouts = text.parse().ok();
                self.search = layouts.filter(|n| *n <= MAX_SEARCH)?;
            }
            "UOPC_MEMORY_LIMIT" => self.memory_limit = Some(bytes_of(text)?),
            // Only tests read these.
            "UOPC_SHARED" | "UOPC_DEEP" | "UOPC_PERF" => {}
            "CC" => self.cc = Some(text.to_string()),
            "UOPC_CACHE_LIMIT" => self.cache_limit = bytes_of(text)?,
            _ => unreachable!("every variable of the table is set here or by the caller"),
        }
        Some(())
    }

    /// Checks the names in `UOPC_DISABLE` and `UOPC_DUMP` against those that exist.
    ///
    /// # Errors
    /// [`Error::Setting`] with the valid names, for one that is neither a rule nor a pass.
    pub fn check_names(&self, rules: &[&str], passes: &[&str]) -> Result<()> {
        for name in &self.disable {
            if !rules.contains(&name.as_str()) && !passes.contains(&name.as_str()) {
                let (rules, passes) = (rules.join(", "), passes.join(", "));
                return Err(Error::Setting(format!(
                    "UOPC_DISABLE: there is no rule or pass \"{name}\"; the rules are {rules}; \
                     the passes are {passes}"
                )));
            }
        }
        if let Dump::After(name) = &self.dump
            && !passes.contains(&name.as_str())
        {
            let passes = passes.join(", ");
            return Err(Error::Setting(format!(
                "UOPC_DUMP: there is no pass \"{name}\"; the passes are {passes}"
            )));
        }
        Ok(())
    }
}

fn dump(text: &str) -> Option<Dump> {
    match text.strip_prefix("after:") {
        Some("") => None,
        Some(pass) => Some(Dump::After(pass.to_string())),
        None => (text == "all").then_some(Dump::All),
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// A size: bytes, or a number followed by K, M or G, which are powers of 1024.
///
/// ```
/// use uopc::debug::bytes_of;
///
/// assert_eq!(bytes_of("512M"), Some(512 << 20));
/// assert_eq!(bytes_of("12 apples"), None);
/// ```
pub fn bytes_of(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 10),
        Some(digits) if text.ends_with('M') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn unknown_value(variable: &Variable, text: &str) -> Error {
    let Variable { name, values, .. } = variable;
    Error::Setting(format!("{name}: \"{text}\" is not valid; use {values}"))
}

fn unknown_variable(name: &str) -> Error {
    let ours = VARIABLES.iter().map(|v| v.name);
    let known: Vec<&str> = ours.filter(|n| n.starts_with("UOPC_")).collect();
    let known = known.join(", ");
    Error::Setting(format!("{name} is no setting; these are: {known}"))
}
