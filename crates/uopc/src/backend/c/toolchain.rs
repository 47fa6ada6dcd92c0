//! The system's C compiler: where it is, what it is called with, and what its result depends on.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::UNIX_EPOCH;
use std::{fs, io, thread};

use super::prelude::{LIBRARIES, REQUIRED_FLAGS};
use crate::debug::platform;
use crate::error::{Error, Result};

/// The names that are tried, in this order, when the user names no compiler.
pub const NAMES: [&str; 3] = ["cc", "gcc", "clang"];

/// What every unit is compiled with, next to what the helpers need. Only entries are visible from
/// outside, so no kernel's name meets one in another library.
pub const FLAGS: [&str; 5] = [
    "-O2",
    "-std=gnu11",
    "-fvisibility=hidden",
    "-fPIC",
    "-shared",
];

/// Code for this machine; left out where the compiler does not know the option.
const NATIVE: &str = "-march=native";

/// How to wait for what a compiler prints, which comes when it ends; `None` when nothing will.
/// An error ends the compiler.
pub type Wait<'a> = dyn Fn(&Receiver<Vec<u8>>) -> Result<Option<Vec<u8>>> + 'a;

/// A C compiler that was found.
pub struct Compiler {
    program: PathBuf,
    /// Words that the user put behind the program's name, as in `ccache gcc`.
    words: Vec<String>,
    refuses_native: AtomicBool,
}

impl Compiler {
    /// The compiler that `cc` names, or without one the first of [`NAMES`] on the search path.
    /// A compiler that is named but not there is not replaced by another.
    ///
    /// # Errors
    /// One sentence that says what was looked for.
    pub fn find(cc: Option<&str>, search: &[PathBuf]) -> std::result::Result<Compiler, String> {
        let Some(cc) = cc.map(str::trim).filter(|cc| !cc.is_empty()) else {
            let found = NAMES.iter().find_map(|name| locate(name, search));
            let program = found
                .ok_or_else(|| format!("none of {} is on the search path", NAMES.join(", ")))?;
            return Ok(Compiler::at(program, Vec::new()));
        };
        // A path may contain blanks; otherwise blanks separate words.
        if let Some(program) = locate(cc, search) {
            return Ok(Compiler::at(program, Vec::new()));
        }
        let mut words = cc.split_whitespace().map(String::from);
        let program = words
            .next()
            .and_then(|name| locate(&name, search))
            .ok_or_else(|| format!("`{cc}`, named by CC, was not found"))?;
        Ok(Compiler::at(program, words.collect()))
    }

    fn at(program: PathBuf, words: Vec<String>) -> Compiler {
        Compiler {
            program,
            words,
            refuses_native: AtomicBool::new(false),
        }
    }

    /// The program's file.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// What changes when another compiler is installed in this one's place: the file behind the
    /// name, its size and the time it was written. Found without running the compiler.
    pub fn identity(&self) -> String {
        let file = fs::canonicalize(&self.program).unwrap_or_else(|_| self.program.clone());
        let (size, written) = match fs::metadata(&file) {
            Ok(data) => (data.len(), data.modified().ok()),
            Err(_) => (0, None),
        };
        let written = written.and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let written = written.map_or(0, |t| t.as_nanos());
        let words = self.words.join(" ");
        format!("{} {words}\n{size} {written}", file.display())
    }

    /// What the compiler says about itself.
    ///
    /// # Errors
    /// One sentence when it can't be started.
    pub fn version(&self) -> std::result::Result<String, String> {
        let output = self.command().arg("--version").output();
        let output =
            output.map_err(|e| format!("`{}` can't be started: {e}", self.program.display()))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Everything on the command line that changes the result.
    pub fn flags(&self) -> String {
        let mut flags = self.words.clone();
        flags.extend(options(true).map(String::from));
        flags.join(" ")
    }

    /// Compiles a source file to a shared object. Without a way to wait, until the compiler ends.
    ///
    /// # Errors
    /// [`Error::Compile`] with the command line and what the compiler printed; what `wait` says.
    pub fn compile(&self, source: &Path, object: &Path, wait: Option<&Wait>) -> Result<()> {
        let native = !self.refuses_native.load(Relaxed);
        let first = self.attempt(source, object, native, wait);
        if !(native && matches!(first, Err(Error::Compile { .. }))) {
            return first;
        }
        let second = self.attempt(source, object, false, wait);
        if second.is_ok() {
            self.refuses_native.store(true, Relaxed);
            log::info!(
                "{} does not know {NATIVE}; compiling without it",
                self.program.display()
            );
            return Ok(());
        }
        match second {
            Err(Error::Compile { .. }) => first,
            second => second,
        }
    }

    fn attempt(
        &self,
        source: &Path,
        object: &Path,
        native: bool,
        wait: Option<&Wait>,
    ) -> Result<()> {
        let mut command = self.command();
        command.args(options(native));
        command.arg("-o").arg(object).arg(source).args(LIBRARIES);
        let failed = |output: String| Error::Compile {
            compiler: self.shown(native),
            source_path: source.to_path_buf(),
            output,
        };
        let unable = |e: io::Error| failed(e.to_string());
        let (status, text) = match wait {
            None => {
                let output = command.output().map_err(unable)?;
                (output.status, [output.stdout, output.stderr].concat())
            }
            Some(wait) => {
                // Where temporary files go is then removed by the caller, not by the compiler.
                command.env("TMPDIR", object.parent().unwrap_or(object));
                let mut running = Running::start(command).map_err(unable)?;
                let text = wait(&running.text)?;
                let status = running.end().map_err(unable)?;
                (status, text.unwrap_or_default())
            }
        };
        if !status.success() {
            let text = String::from_utf8_lossy(&text).trim_end().to_string();
            return Err(failed(if text.is_empty() {
                format!("it printed nothing and ended with {status}")
            } else {
                text
            }));
        }
        if !object.exists() {
            return Err(failed("it reported success but wrote no object".into()));
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // Messages in one language, whatever the user's.
        command.args(&self.words).env("LC_ALL", "C");
        command
    }

    /// The command line without the files.
    fn shown(&self, native: bool) -> String {
        let mut line = self.program.display().to_string();
        let options = options(native).map(String::from);
        for word in self.words.iter().cloned().chain(options) {
            line.push(' ');
            line.push_str(&word);
        }
        line
    }
}

/// A compiler at work, which is ended with all its parts when this is dropped before.
struct Running {
    child: Child,
    ended: bool,
    /// What it prints, all at once when it ends.
    text: Receiver<Vec<u8>>,
}

impl Running {
    fn start(mut command: Command) -> io::Result<Running> {
        let (mut reader, writer) = io::pipe()?;
        command.stdin(Stdio::null());
        command.stdout(writer.try_clone()?).stderr(writer);
        // A compiler is a program that calls others: one group, so that all can be ended.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn()?;
        // This process's ends of the pipe go, so that it closes when the compiler's do.
        drop(command);
        let (sender, text) = sync_channel(1);
        let running = Running {
            child,
            ended: false,
            text,
        };
        thread::Builder::new()
            .name("uopc-cc".into())
            .stack_size(1 << 16)
            .spawn(move || {
                let mut text = Vec::new();
                // What can't be read is not shown; the status tells whether it succeeded.
                let _ = reader.read_to_end(&mut text);
                let _ = sender.send(text);
            })?;
        Ok(running)
    }

    /// Waits for the end.
    fn end(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.ended = true;
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // The group's number is the child's, which stands for it until it is waited for below.
        // What has ended by itself meanwhile needs no signal.
        #[cfg(unix)]
        {
            use rustix::process::{Pid, Signal, kill_process_group};
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn options(native: bool) -> impl Iterator<Item = &'static str> {
    let needed = REQUIRED_FLAGS.iter().copied();
    FLAGS
        .into_iter()
        .chain(needed)
        .chain(native.then_some(NATIVE))
}

/// The file of a program given by path or by name.
fn locate(name: &str, search: &[PathBuf]) -> Option<PathBuf> {
    if name.contains(std::path::is_separator) {
        let path = PathBuf::from(name);
        return is_program(&path).then_some(path);
    }
    search
        .iter()
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    let Ok(data) = fs::metadata(path) else {
        return false;
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        data.is_file() && data.permissions().mode() & 0o111 != 0
    }
    #[cfg(not(unix))]
    {
        data.is_file()
    }
}

/// The processor's model and features, as far as the system tells: code for this machine is
/// only good for such machines.
pub fn cpu() -> String {
    let mut text = platform();
    #[cfg(target_os = "linux")]
    {
        let wanted = [
            "vendor_id",
            "cpu family",
            "model",
            "model name",
            "stepping",
            "flags",
            "CPU implementer",
            "CPU part",
            "CPU variant",
            "Features",
            "isa",
        ];
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        // One processor's lines end at the first empty one.
        for line in info.lines().take_while(|line| !line.is_empty()) {
            if let Some((name, _)) = line.split_once(':')
                && wanted.contains(&name.trim())
            {
                text.push('\n');
                text.push_str(line);
            }
        }
    }
    #[cfg(target_os = "macos")]
    {
        let brand = Command::new("sysctl")
            .args(["-n", "machdep.cpu.brand_string"])
            .output();
        if let Ok(brand) = brand {
            text.push('\n');
            text.push_str(&String::from_utf8_lossy(&brand.stdout));
        }
    }
    text
}
