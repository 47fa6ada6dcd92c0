//! The C device: a plan becomes one C file, compiled once by the system's compiler and kept on
//! disk for other processes.

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
use crate::backend::c::unit::{Unit, render_unit};
use crate::error::{Error, Result};
use crate::ir::form::Program;

/// Scratch arguments begin at multiples of this many bytes.
const SCRATCH_ALIGNMENT: usize = super::pool::ALIGNMENT;

/// Compiles through C.
pub struct CDevice {
    compiler: Compiler,
    /// Everything but the source that an object depends on.
    machine: [String; 4],
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
        let machine = [program, version, compiler.flags(), cpu()];
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

    /// Compiles programs as one unit.
    ///
    /// # Errors
    /// [`Error::Compile`] when the compiler fails; [`Error::File`] when no temporary file can be
    /// written or the object can't be loaded; [`Error::Interrupted`] when the caller stops it.
    pub fn compile_programs(&self, programs: &[&Program]) -> Result<Box<dyn Executable>> {
        let unit = render_unit(programs);
        let library = match unit.entries.is_empty() {
            true => None,
            false => Some(self.load(&unit)?),
        };
        let launches = unit.arguments.iter().zip(unit.entry_of);
        let launches = launches.map(|(args, entry)| Launch::new(entry, args, self.team.threads()));
        Ok(Box::new(Compiled {
            library,
            team: self.team,
            launches: launches.collect(),
        }))
    }

    fn load(&self, unit: &Unit) -> Result<Library> {
        let [program, version, flags, cpu] = &self.machine;
        let key = Key::new(&[&unit.text, program, version, flags, cpu]);
        let work = self.cache.work_folder()?;
        let object = work.path().join("unit.so");
        if let Some(bytes) = self.cache.get(&key)
            && fs::write(&object, bytes).is_ok()
        {
            match Library::open(&object, &unit.entries) {
                Ok(library) => {
                    self.disk_hits.fetch_add(1, Relaxed);
                    return Ok(library);
                }
                // A sound entry that does not load was made on another system: compile anew.
                Err(e) => log::warn!("a cached kernel is of no use here: {e}"),
            }
            // The loader may know the name already, so the new object gets another.
            return self.compile_unit(unit, &key, work.path(), "again.so");
        }
        self.compile_unit(unit, &key, work.path(), "unit.so")
    }

    fn compile_unit(&self, unit: &Unit, key: &Key, work: &Path, name: &str) -> Result<Library> {
        let unwritable = |path: &Path, e: std::io::Error| Error::File {
            path: path.to_path_buf(),
            message: format!("{e}; it must be writable to compile kernels"),
        };
        let source = work.join("unit.c");
        let object = work.join(name);
        fs::write(&source, &unit.text).map_err(|e| unwritable(&source, e))?;
        self.compiler_calls.fetch_add(1, Relaxed);
        let asking: &Wait = &interrupt::receive;
        let wait = interrupt::is_installed().then_some(asking);
        if let Err(error) = self.compiler.compile(&source, &object, wait) {
            return Err(keep_source(error, &unit.text));
        }
        let library = Library::open(&object, &unit.entries)?;
        let bytes = fs::read(&object).map_err(|e| unwritable(&object, e))?;
        self.cache.put(key, &bytes);
        Ok(library)
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
    /// Absent when there are no launches.
    library: Option<Library>,
    team: &'static Team,
    launches: Vec<Launch>,
}

struct Launch {
    entry: usize,
    parameters: Vec<Parameter>,
    /// Where each scratch argument lies in the launch's scratch memory: offset and size.
    scratch: Vec<(usize, usize)>,
    scratch_bytes: usize,
}

impl Launch {
    fn new(entry: usize, arguments: &[Argument], threads: usize) -> Launch {
        let mut launch = Launch {
            entry,
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
        let library = self
            .library
            .as_ref()
            .expect("a plan with launches has code");
        let args = args.iter().copied().chain(scratch);
        library.call(launch.entry, args, self.team);
        Ok(())
    }
}
