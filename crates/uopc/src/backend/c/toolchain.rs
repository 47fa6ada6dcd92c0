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
pub const FLAGS: [&str; 4] = ["-std=gnu11", "-fvisibility=hidden", "-fPIC", "-shared"];

/// Options that are left out where the compiler does not know them: code for this machine; no search
/// for single bits of numbers that are known, which takes gcc 12 18% of its instructions for a
/// training step and changes no kernel's time; and a linker that does not look through the libraries of the system for what
/// a unit never calls (all processes have what it does call: the functions on memory), which took 5
/// of 35 ms.
const OPTIONAL: &[&str] = match cfg!(target_os = "linux") {
    true => &["-march=native", "-fno-tree-bit-ccp", "-nostdlib"],
    false => &["-march=native"],
};

/// What is left for the compiler to find out.
///
/// With gcc 12, a training step of 16 kernels on vectors compiles in 302 ms at -O1, 426 at -O2 and 500
/// at -O3. A tiled product, exponentials and sums of rows run equally fast at all three, while an
/// exponential in a scalar loop is 6 times as fast from -O2 on. Single passes of -O2 on top of -O1
/// gained nothing. Of those of -O1 that can be left out with the same speed of kernels, only one costs
/// more than a twentieth, see `OPTIONAL`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// All loops that take time are on vectors already.
    Explicit,
    /// Scalar loops may become loops on vectors.
    Automatic,
}

impl Level {
    fn option(self) -> &'static str {
        match self {
            Level::Explicit => "-O1",
            Level::Automatic => "-O2",
        }
    }
}

/// How to wait for what a compiler prints, which comes when it ends; `None` when nothing will.
/// An error ends the compiler.
pub type Wait<'a> = dyn Fn(&Receiver<Vec<u8>>) -> Result<Option<Vec<u8>>> + 'a;

/// A C compiler that was found.
pub struct Compiler {
    program: PathBuf,
    /// Words that the user put behind the program's name, as in `ccache gcc`.
    words: Vec<String>,
    refuses_optional: AtomicBool,
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
            refuses_optional: AtomicBool::new(false),
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
    pub fn flags(&self, level: Level) -> String {
        let mut flags = self.words.clone();
        flags.extend(options(level, true).map(String::from));
        flags.join(" ")
    }

    /// Begins to compile a source file to a shared object. One that is `stoppable` ends with all its
    /// parts when it is dropped; another one lives and dies with this process's terminal.
    ///
    /// # Errors
    /// [`Error::Compile`] when the compiler can't be started.
    pub fn start<'a>(
        &'a self,
        source: &Path,
        object: &Path,
        level: Level,
        stoppable: bool,
    ) -> Result<Compilation<'a>> {
        let mut compilation = Compilation {
            compiler: self,
            source: source.to_path_buf(),
            object: object.to_path_buf(),
            level,
            stoppable,
            optional: !self.refuses_optional.load(Relaxed),
            running: None,
        };
        compilation.run()?;
        Ok(compilation)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // Messages in one language, whatever the user's.
        command.args(&self.words).env("LC_ALL", "C");
        command
    }

    /// The command line without the files.
    fn shown(&self, level: Level, optional: bool) -> String {
        let mut line = self.program.display().to_string();
        let options = options(level, optional).map(String::from);
        for word in self.words.iter().cloned().chain(options) {
            line.push(' ');
            line.push_str(&word);
        }
        line
    }
}

/// A source file that is being compiled.
pub struct Compilation<'a> {
    compiler: &'a Compiler,
    source: PathBuf,
    object: PathBuf,
    level: Level,
    stoppable: bool,
    /// Whether the compiler is asked for what it may not know.
    optional: bool,
    /// Present while the compiler is at work.
    running: Option<Running>,
}

impl Compilation<'_> {
    /// Waits for the end. Without a way to wait, until the compiler ends.
    ///
    /// # Errors
    /// [`Error::Compile`] with the command line and what the compiler printed; what `wait` says.
    pub fn finish(mut self, wait: Option<&Wait>) -> Result<()> {
        let first = self.end(wait);
        if !(self.optional && matches!(first, Err(Error::Compile { .. }))) {
            return first;
        }
        self.optional = false;
        let second = self.run().and_then(|()| self.end(wait));
        match second {
            Ok(()) => {
                self.compiler.refuses_optional.store(true, Relaxed);
                log::info!(
                    "{} does not know {}; compiling without",
                    self.compiler.program.display(),
                    OPTIONAL.join(" ")
                );
                Ok(())
            }
            Err(Error::Compile { .. }) => first,
            second => second,
        }
    }

    /// Starts the compiler.
    fn run(&mut self) -> Result<()> {
        let mut command = self.compiler.command();
        command.args(options(self.level, self.optional));
        command.arg("-o").arg(&self.object).arg(&self.source);
        command.args(LIBRARIES);
        // A compiler that is ended does not remove its temporary files; the caller's folder goes.
        command.env("TMPDIR", self.object.parent().unwrap_or(&self.object));
        let running = Running::start(command, self.stoppable);
        self.running = Some(running.map_err(|e| self.failed(e.to_string()))?);
        Ok(())
    }

    /// Waits for the compiler that runs.
    fn end(&mut self, wait: Option<&Wait>) -> Result<()> {
        let running = self.running.take();
        let mut running = running.expect("started, and ended once");
        let text = match wait {
            None => running.text.recv().ok(),
            Some(wait) => wait(&running.text)?,
        };
        let text = text.unwrap_or_default();
        let status = running.end().map_err(|e| self.failed(e.to_string()))?;
        if !status.success() {
            let text = String::from_utf8_lossy(&text).trim_end().to_string();
            return Err(self.failed(if text.is_empty() {
                format!("it printed nothing and ended with {status}")
            } else {
                text
            }));
        }
        if !self.object.exists() {
            return Err(self.failed("it reported success but wrote no object".into()));
        }
        Ok(())
    }

    fn failed(&self, output: String) -> Error {
        Error::Compile {
            compiler: self.compiler.shown(self.level, self.optional),
            source_path: self.source.clone(),
            output,
        }
    }
}

/// A compiler at work, which is ended when this is dropped before.
struct Running {
    child: Child,
    group: bool,
    ended: bool,
    /// What it prints, all at once when it ends.
    text: Receiver<Vec<u8>>,
}

impl Running {
    /// A compiler that is a group of processes of its own ends with all its parts.
    fn start(mut command: Command, group: bool) -> io::Result<Running> {
        let (mut reader, writer) = io::pipe()?;
        command.stdin(Stdio::null());
        command.stdout(writer.try_clone()?).stderr(writer);
        // A compiler is a program that calls others: one group, so that all can be ended.
        #[cfg(unix)]
        if group {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        let child = command.spawn()?;
        // This process's ends of the pipe go, so that it closes when the compiler's do.
        drop(command);
        let (sender, text) = sync_channel(1);
        let running = Running {
            child,
            group,
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
        if self.group {
            use rustix::process::{Pid, Signal, kill_process_group};
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn options(level: Level, optional: bool) -> impl Iterator<Item = &'static str> {
    let needed = FLAGS.iter().chain(REQUIRED_FLAGS);
    let optional = OPTIONAL.iter().filter(move |_| optional);
    [level.option()]
        .into_iter()
        .chain(needed.chain(optional).copied())
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
