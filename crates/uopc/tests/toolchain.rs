//! The C compiler: which one is taken, what is cached, and what happens when it fails.
#![cfg(unix)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use uopc::Error;
use uopc::backend::c::toolchain::{Compiler, Level, cpu};
use uopc::backend::c::unit::render_unit;
use uopc::debug::search_path;
use uopc::ir::form::Program;
use uopc::ir::{parse, verify};
use uopc::runtime::c_device::CDevice;
use uopc::runtime::cache::{Key, ObjectCache};
use uopc::runtime::{Device, DeviceCounts, Place, Pool, Storage};

/// The variable that makes this program's child do a child's work, on that folder.
const CHILD: &str = "TOOLCHAIN_TEST_FOLDER";

fn program() -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/render_c/add_one.uir");
    let text = fs::read_to_string(path).unwrap();
    let parsed = parse::parse(text.split_once("; ----").unwrap().0, "add_one").unwrap();
    verify::program("add_one", parsed.roots[0].clone()).unwrap()
}

fn real_cc() -> PathBuf {
    let found = Compiler::find(None, &search_path());
    found
        .unwrap_or_else(|why| panic!("these tests need a C compiler: {why}"))
        .program()
        .into()
}

/// A folder with a cache and a script that stands for the C compiler.
struct Site {
    root: TempDir,
}

impl Site {
    fn new() -> Site {
        Site {
            root: TempDir::new().unwrap(),
        }
    }

    fn cache(&self) -> PathBuf {
        self.root.path().join("cache")
    }

    /// A compiler that writes a line for each call, then does what the script says. `$CC` is the
    /// real one.
    fn compiler(&self, script: &str) -> String {
        let path = self.root.path().join("fake-cc");
        let (log, cc) = (self.root.path().join("calls"), real_cc());
        let text = format!(
            "#!/bin/sh\necho \"$@\" >> '{}'\nCC='{}'\n{script}\n",
            log.display(),
            cc.display()
        );
        // Another process writes it: a child of another test that inherits a file open for
        // writing would keep the script from being run.
        let mut writer = Command::new("sh")
            .args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        assert!(writer.wait().unwrap().success());
        path.display().to_string()
    }

    fn calls(&self) -> usize {
        let log = fs::read_to_string(self.root.path().join("calls")).unwrap_or_default();
        log.lines().count()
    }

    fn device(&self, cc: Option<&str>) -> CDevice {
        let cache = ObjectCache::open(&self.cache(), 1 << 24);
        CDevice::new(cc, &search_path(), cache, Pool::new(1 << 20)).unwrap()
    }

    /// Objects in the cache; the remembered version is not one.
    fn objects(&self) -> Vec<PathBuf> {
        let items = fs::read_dir(self.cache())
            .unwrap()
            .map(|item| item.unwrap().path());
        let mut objects: Vec<_> = items
            .filter(|p| fs::metadata(p).unwrap().len() > 2000)
            .collect();
        objects.sort();
        objects
    }
}

/// Compiles the program, runs it, and tells what it took.
fn run(device: &CDevice) -> uopc::Result<DeviceCounts> {
    let unit = device.compile_programs(&[&program()])?;
    let x = Storage::from_slice(&[1.0f32, 2.0, 3.0])?;
    let y = device.allocate(12)?;
    unit.launch(0, &[Place::Shared(&x), Place::whole(&y)], None)?;
    assert_eq!(y.share().to_vec::<f32>(), [2.0, 3.0, 4.0]);
    Ok(device.counts())
}

fn counts(compiler_calls: u64, disk_hits: u64) -> DeviceCounts {
    DeviceCounts {
        compiler_calls,
        disk_hits,
    }
}

#[test]
fn the_next_device_finds_what_was_compiled() {
    let site = Site::new();
    let cc = site.compiler("exec \"$CC\" \"$@\"");
    assert_eq!(run(&site.device(Some(&cc))).unwrap(), counts(1, 0));
    let calls = site.calls();
    assert_eq!(calls, 2, "one for the version, one to compile");
    assert_eq!(run(&site.device(Some(&cc))).unwrap(), counts(0, 1));
    assert_eq!(
        site.calls(),
        calls,
        "the compiler is not called, not even for its version"
    );
}

#[test]
fn another_version_compiles_anew() {
    let site = Site::new();
    let cc = site.compiler("exec \"$CC\" \"$@\"");
    run(&site.device(Some(&cc))).unwrap();
    let other = "[ \"$1\" = --version ] && { echo version 2; exit; }\nexec \"$CC\" \"$@\"";
    let cc = site.compiler(other);
    assert_eq!(run(&site.device(Some(&cc))).unwrap(), counts(1, 0));
    assert_eq!(site.objects().len(), 2);
}

#[test]
fn damaged_objects_are_compiled_again() {
    let site = Site::new();
    run(&site.device(None)).unwrap();
    let entry = site.objects().remove(0);
    let sound = fs::read(&entry).unwrap();
    let mut flipped = sound.clone();
    flipped[sound.len() / 2] ^= 0x40;
    for damaged in [&sound[..sound.len() / 2], &flipped, b""] {
        fs::write(&entry, damaged).unwrap();
        assert_eq!(run(&site.device(None)).unwrap(), counts(1, 0));
        assert_eq!(run(&site.device(None)).unwrap(), counts(0, 1));
    }
}

#[test]
fn an_object_of_another_system_is_compiled_again() {
    let site = Site::new();
    let device = site.device(None);
    // The digest is right, but the loader can make nothing of the content.
    let compiler = Compiler::find(None, &search_path()).unwrap();
    let version = format!("version {}", compiler.version().unwrap());
    let program_path = compiler.program().display().to_string();
    let unit = render_unit(&[&program()]);
    let key = Key::new(&[
        &unit.text,
        &program_path,
        &version,
        &compiler.flags(unit.level),
        &cpu(),
    ]);
    let cache = ObjectCache::open(&site.cache(), 1 << 24);
    cache.put(&key, &[0; 4000]);
    assert_eq!(run(&device).unwrap(), counts(1, 0));
    assert_eq!(run(&site.device(None)).unwrap(), counts(0, 1));
}

#[test]
fn a_cache_that_cannot_be_used_compiles_each_time() {
    let site = Site::new();
    fs::write(site.cache(), "a file in place of the folder").unwrap();
    for _ in 0..2 {
        assert_eq!(run(&site.device(None)).unwrap(), counts(1, 0));
    }
}

#[test]
fn a_compiler_that_does_not_know_this_machine_compiles_without() {
    let site = Site::new();
    let cc = site.compiler(
        "case \"$*\" in *-march=native*) echo unknown option >&2; exit 1;; esac\n\
         exec \"$CC\" \"$@\"",
    );
    let device = site.device(Some(&cc));
    assert_eq!(run(&device).unwrap(), counts(1, 0));
    assert_eq!(site.calls(), 3, "the version, a refusal, a success");
    assert_eq!(run(&site.device(Some(&cc))).unwrap(), counts(0, 1));
}

#[test]
fn a_failing_compiler_is_an_error_and_the_source_is_kept() {
    let site = Site::new();
    let cc = site.compiler("echo 'unit.c: no luck today' >&2\nexit 1");
    let error = run(&site.device(Some(&cc))).unwrap_err();
    let Error::Compile {
        compiler,
        source_path,
        output,
    } = error
    else {
        panic!("{error}");
    };
    assert!(
        compiler.starts_with(&cc) && compiler.contains("-ffp-contract=off"),
        "{compiler}"
    );
    assert_eq!(output, "unit.c: no luck today");
    assert_eq!(
        fs::read_to_string(&source_path).unwrap(),
        render_unit(&[&program()]).text
    );
    fs::remove_file(source_path).unwrap();
    assert!(site.objects().is_empty(), "nothing is cached");
}

#[test]
fn a_compiler_that_writes_nonsense_is_an_error() {
    let site = Site::new();
    let nonsense = "while [ \"$1\" != -o ] && [ $# -gt 0 ]; do shift; done\n\
                    [ $# -gt 0 ] && head -c 4000 /dev/zero > \"$2\"\nexit 0";
    let cc = site.compiler(nonsense);
    let error = run(&site.device(Some(&cc))).unwrap_err().to_string();
    assert!(
        error.contains("the compiled kernels can't be loaded"),
        "{error}"
    );
    assert!(site.objects().is_empty(), "nothing is cached");
}

#[test]
fn a_compiler_may_have_words_of_its_own() {
    let site = Site::new();
    let cc = site.compiler("shift\nexec \"$CC\" \"$@\"");
    let device = site.device(Some(&format!("{cc} wrapped")));
    assert_eq!(run(&device).unwrap(), counts(1, 0));
    let log = fs::read_to_string(site.root.path().join("calls")).unwrap();
    assert!(
        log.lines().all(|line| line.starts_with("wrapped ")),
        "{log}"
    );
}

/// Compiles this instead of what the library writes: the calling convention as C sees it.
const PARALLEL: &str = "
struct uopc_team {
    void (*run)(struct uopc_team*, void (*)(void*, long, long), void*, long);
};
static void part(void* context, long i, long worker) {
    float** args = context;
    args[1][i] = worker < 0 || worker > 2 ? -1 : args[0][i] + 1;
}
__attribute__((visibility(\"default\"))) void uopc_entry_0(void** args, struct uopc_team* team) {
    team->run(team, part, args, 2);
    team->run(team, part, args, 3);
    team->run(team, part, args, 0);
    team->run(team, part, args, -1);
}
";

#[test]
fn an_entry_gets_the_team() {
    let site = Site::new();
    let source = site.root.path().join("parallel.c");
    fs::write(&source, PARALLEL).unwrap();
    let cc = site.compiler(&format!(
        "for a in \"$@\"; do case \"$a\" in *.c) cp '{}' \"$a\";; esac; done\nexec \"$CC\" \"$@\"",
        source.display()
    ));
    for threads in [1, 3] {
        run(&site.device(Some(&cc)).with_threads(threads)).unwrap();
    }
}

#[test]
fn the_first_name_on_the_search_path_is_taken() {
    let root = TempDir::new().unwrap();
    let place = |name: &str| {
        let path = root.path().join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let search = [root.path().join("absent"), root.path().to_path_buf()];
    let found = || Compiler::find(None, &search).map(|c| c.program().to_path_buf());
    assert_eq!(
        found().unwrap_err(),
        "none of cc, gcc, clang is on the search path"
    );
    let clang = place("clang");
    assert_eq!(found().unwrap(), clang);
    let gcc = place("gcc");
    assert_eq!(found().unwrap(), gcc);
    // A file that can't be run is no compiler.
    fs::write(root.path().join("cc"), "").unwrap();
    assert_eq!(found().unwrap(), gcc);
    let named = Compiler::find(Some("clang"), &search).unwrap();
    assert_eq!(named.program(), clang);
    let absent = Compiler::find(Some("tcc -w"), &search).map(|c| c.flags(Level::Explicit));
    assert_eq!(absent.unwrap_err(), "`tcc -w`, named by CC, was not found");
}

// ---- processes ----

/// The work of a child process of the test below; by itself it has none.
#[test]
fn child() {
    let Ok(folder) = std::env::var(CHILD) else {
        return;
    };
    let cache = ObjectCache::open(Path::new(&folder), 1 << 24);
    let device = CDevice::new(None, &search_path(), cache, Pool::new(1 << 20)).unwrap();
    let found = run(&device).unwrap();
    println!(
        "compiled {} found {}",
        found.compiler_calls, found.disk_hits
    );
}

#[test]
fn processes_share_a_folder() {
    let site = Site::new();
    let spawn = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, site.cache())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    // All at once: each compiles or finds, and all get it right.
    let children: Vec<_> = (0..3).map(|_| spawn()).collect();
    for child in children {
        assert!(child.wait_with_output().unwrap().status.success());
    }
    assert_eq!(site.objects().len(), 1);
    let later = spawn().wait_with_output().unwrap();
    let text = String::from_utf8(later.stdout).unwrap();
    assert!(text.contains("compiled 0 found 1"), "{text}");
}
