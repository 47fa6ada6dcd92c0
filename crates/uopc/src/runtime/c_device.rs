//! The C device: a plan becomes a C file or several, compiled once by the system's compiler and kept
//! on disk for other processes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::cache::{Key, ObjectCache};
use super::library::Library;
use super::team::{self, Team};
use super::{Code, Device, DeviceCounts, Executable, Memory, Parameter, Place, Pool, interrupt};
use crate::backend::c::render::Argument;
use crate::backend::c::toolchain::{Compiler, Wait, cpu};
use crate::backend::c::unit::{Unit, render_units};
use crate::error::{Error, Result};
use crate::ir::form::Program;

/// Scratch arguments begin at multiples of this many bytes.
const SCRATCH_ALIGNMENT: usize = super::pool::ALIGNMENT;

/// Compiles through C.
pub struct CDevice {
    compiler: Compiler,
    /// What an object depends on next to its source and the compiler's flags.
    machine: [String; 3],
    cache: ObjectCache,
    pool: Arc<Pool>,
    team: &'static Team,
    compiler_calls: AtomicU64,
    disk_hits: AtomicU64,
}

impl CDevice {
    /// The device with the compiler named `cc`, else the first that the search path has. Its
    /// kernels run on all processors that this process may use, see [`with_threads`].
    ///
    /// [`with_threads`]: Self::with_threads
    ///
    /// # Errors
    /// One sentence that says why there is no compiler.
    pub fn new(
        cc: Option<&str>,
        search: &[PathBuf],
        cache: ObjectCache,
        pool: Arc<Pool>,
    ) -> std::result::Result<CDevice, String> {
        let compiler = Compiler::find(cc, search)?;
        let version = remembered_version(&compiler, &cache)?;
        let program = compiler.program().display().to_string();
        let machine = [program, version, cpu()];
        Ok(CDevice {
            compiler,
            machine,
            cache,
            pool,
            team: Team::of(team::available()),
            compiler_calls: AtomicU64::new(0),
            disk_hits: AtomicU64::new(0),
        })
    }

    /// The same device with a team of that many threads.
    pub fn with_threads(self, threads: usize) -> CDevice {
        let team = Team::of(threads);
        CDevice { team, ..self }
    }

    /// Compiles programs, as several units at once if they are many.
    ///
    /// # Errors
    /// [`Error::Compile`] when the compiler fails; [`Error::File`] when no temporary file can be
    /// written or the object can't be loaded; [`Error::Interrupted`] when the caller stops it.
    pub fn compile_programs(&self, programs: &[&Program]) -> Result<Box<dyn Executable>> {
        let units = render_units(programs, team::available());
        let libraries = self.load(&units)?;
        let mut launches: Vec<Option<Launch>> = programs.iter().map(|_| None).collect();
        for (library, unit) in units.iter().enumerate() {
            let described = unit.entry_of.iter().zip(&unit.arguments);
            for (&program, (&entry, arguments)) in unit.programs.iter().zip(described) {
                let code = (library, entry);
                launches[program] = Some(Launch::new(code, arguments, self.team.threads()));
            }
        }
        let launches = launches
            .into_iter()
            .map(|launch| launch.expect("each is in a unit"));
        Ok(Box::new(Compiled {
            libraries,
            team: self.team,
            launches: launches.collect(),
        }))
    }

    /// The libraries of the units, those that are in no cache compiled at the same time.
    fn load(&self, units: &[Unit]) -> Result<Vec<Library>> {
        if units.is_empty() {
            return Ok(Vec::new());
        }
        let work = self.cache.work_folder()?;
        let mut libraries = Vec::with_capacity(units.len());
        let mut started = Vec::new();
        let asking: &Wait = &interrupt::receive;
        let wait = interrupt::is_installed().then_some(asking);
        for (number, unit) in units.iter().enumerate() {
            let [program, version, cpu] = &self.machine;
            let flags = self.compiler.flags(unit.level);
            let key = Key::new(&[&unit.text, program, version, &flags, cpu]);
            let found = self.find(unit, &key, &work.path().join(format!("found{number}.so")));
            if found.is_none() {
                let source = work.path().join(format!("unit{number}.c"));
                let object = source.with_extension("so");
                fs::write(&source, &unit.text).map_err(|e| unwritable(&source, e))?;
                self.compiler_calls.fetch_add(1, Relaxed);
                let compilation =
                    (self.compiler).start(&source, &object, unit.level, wait.is_some());
                let compilation = compilation.map_err(|e| keep_source(e, &unit.text))?;
                started.push((number, key, object, compilation));
            }
            libraries.push(found);
        }
        for (number, key, object, compilation) in started {
            let unit = &units[number];
            let finished = compilation.finish(wait);
            finished.map_err(|e| keep_source(e, &unit.text))?;
            let library = Library::open(&object, &unit.entries)?;
            let bytes = fs::read(&object).map_err(|e| unwritable(&object, e))?;
            self.cache.put(&key, &bytes);
            libraries[number] = Some(library);
        }
        let libraries = libraries.into_iter();
        Ok(libraries
            .map(|library| library.expect("found or compiled"))
            .collect())
    }

    /// The library of a unit if the disk cache has it. The file is where it is loaded from; the
    /// loader remembers its name, also if it can make nothing of it.
    fn find(&self, unit: &Unit, key: &Key, file: &Path) -> Option<Library> {
        let bytes = self.cache.get(key)?;
        fs::write(file, bytes).ok()?;
        match Library::open(file, &unit.entries) {
            Ok(library) => {
                self.disk_hits.fetch_add(1, Relaxed);
                Some(library)
            }
            // A sound entry that does not load was made on another system: compile anew.
            Err(e) => {
                log::warn!("a cached kernel is of no use here: {e}");
                None
            }
        }
    }
}

fn unwritable(path: &Path, e: std::io::Error) -> Error {
    Error::File {
        path: path.to_path_buf(),
        message: format!("{e}; it must be writable to compile kernels"),
    }
}

/// What the compiler says about itself, asked once for each compiler and cache folder.
fn remembered_version(
    compiler: &Compiler,
    cache: &ObjectCache,
) -> std::result::Result<String, String> {
    let key = Key::new(&["compiler", &compiler.identity()]);
    if let Some(version) = cache.note(&key) {
        return Ok(version);
    }
    let version = format!("version {}", compiler.version()?);
    cache.put(&key, version.as_bytes());
    Ok(version)
}

/// The working folder goes, so the source that failed is copied to where it can be looked at.
fn keep_source(error: Error, text: &str) -> Error {
    let kept = || {
        let mut file = tempfile::Builder::new()
            .prefix("uopc-failed-")
            .suffix(".c")
            .tempfile()?;
        file.write_all(text.as_bytes())?;
        file.keep().map(|(_, path)| path).map_err(|e| e.error)
    };
    match error {
        Error::Compile {
            compiler,
            source_path,
            output,
        } => Error::Compile {
            compiler,
            source_path: kept().unwrap_or(source_path),
            output,
        },
        // Nothing is wrong with a source whose compilation was interrupted.
        error => error,
    }
}

impl Device for CDevice {
    fn name(&self) -> &'static str {
        "c"
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn compile(&self, launches: &[Code]) -> Result<Box<dyn Executable>> {
        let programs: Vec<_> = launches.iter().map(|l| l.program).collect();
        self.compile_programs(&programs)
    }

    fn steps_per_second(&self) -> u64 {
        2_000_000_000
    }

    fn counts(&self) -> DeviceCounts {
        DeviceCounts {
            compiler_calls: self.compiler_calls.load(Relaxed),
            disk_hits: self.disk_hits.load(Relaxed),
        }
    }
}

struct Compiled {
    libraries: Vec<Library>,
    team: &'static Team,
    launches: Vec<Launch>,
}

struct Launch {
    /// The number of its library, and that of its entry there.
    code: (usize, usize),
    parameters: Vec<Parameter>,
    /// Where each scratch argument lies in the launch's scratch memory: offset and size.
    scratch: Vec<(usize, usize)>,
    scratch_bytes: usize,
}

impl Launch {
    fn new(code: (usize, usize), arguments: &[Argument], threads: usize) -> Launch {
        let mut launch = Launch {
            code,
            parameters: Vec::new(),
            scratch: Vec::new(),
            scratch_bytes: 0,
        };
        for argument in arguments {
            match *argument {
                Argument::Param { slot, mode, bytes } => {
                    launch.parameters.push(Parameter { slot, mode, bytes });
                }
                Argument::Scratch { bytes, per_worker } => {
                    // A size beyond all memory stays one, and is refused when it is asked for.
                    let bytes = bytes.checked_next_multiple_of(SCRATCH_ALIGNMENT);
                    let bytes = bytes.unwrap_or(usize::MAX);
                    let pieces = if per_worker { threads } else { 1 };
                    let bytes = bytes.saturating_mul(pieces);
                    launch.scratch.push((launch.scratch_bytes, bytes));
                    launch.scratch_bytes = launch.scratch_bytes.saturating_add(bytes);
                }
            }
        }
        launch
    }
}

impl Executable for Compiled {
    fn parameters(&self, launch: usize) -> &[Parameter] {
        &self.launches[launch].parameters
    }

    fn scratch(&self, launch: usize) -> usize {
        self.launches[launch].scratch_bytes
    }

    fn launch(&self, launch: usize, args: &[Place], scratch: Option<&Memory>) -> Result<()> {
        let launch = &self.launches[launch];
        Parameter::check(&launch.parameters, args);
        let scratch = launch.scratch.iter().map(|&(offset, bytes)| {
            let memory = scratch.expect("the caller gives the scratch that the launch takes");
            Place::part(memory, offset, bytes)
        });
        let args = args.iter().copied().chain(scratch);
        let (library, entry) = launch.code;
        self.libraries[library].call(entry, args, self.team);
        Ok(())
    }
}
