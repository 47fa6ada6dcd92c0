//! The exact text of errors and notices of the runtime.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::slice::from_ref;
use std::sync::{Mutex, MutexGuard};

use tempfile::TempDir;
use uopc::compile::{Engine, RealizeOptions, listing};
use uopc::debug::{DeviceChoice, Settings};
use uopc::ir::{DType, UOp};
use uopc::runtime::Storage;
use uopc::{Error, Result};

// ---- notices ----

/// Collects what the library logs, at warning level and above.
struct Notices(Mutex<Vec<String>>);

static NOTICES: Notices = Notices(Mutex::new(Vec::new()));
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl log::Log for Notices {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Starts collecting; tests of notices run one at a time.
fn listen() -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    // Fails from the second time on, when the logger is set already.
    let _ = log::set_logger(&NOTICES);
    log::set_max_level(log::LevelFilter::Warn);
    NOTICES.0.lock().unwrap().clear();
    guard
}

fn heard() -> Vec<String> {
    NOTICES.0.lock().unwrap().drain(..).collect()
}

// ---- what is run ----

fn double(x: &[f32]) -> (UOp, [(u32, std::sync::Arc<Storage>); 1]) {
    let slot = UOp::slot(0, DType::F32, x.len());
    (&slot + &slot, [(0, Storage::from_slice(x).unwrap())])
}

fn run(engine: &Engine) -> Result<Vec<f32>> {
    let (root, slots) = double(&[1.0, 2.0]);
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    Ok(engine.realize(from_ref(&root), &options)?.outputs[0].to_vec())
}

/// A compiler that is a shell script.
fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("cc");
    // Another process writes it: a child that inherits a file open for writing would keep the
    // script from being run.
    let write = "printf '%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
    let mut sh = Command::new("sh");
    sh.args(["-c", write, "sh"]).arg(&path).arg(text);
    assert!(sh.status().unwrap().success());
    path.display().to_string()
}

fn with_cc(cc: &str, device: DeviceChoice) -> Settings {
    Settings {
        cc: Some(cc.into()),
        device,
        ..Settings::default()
    }
}

// ---- the compiler ----

#[test]
fn no_compiler_is_one_notice() {
    let _guard = listen();
    let engine = Engine::new(with_cc("/nonexistent/cc", DeviceChoice::Auto)).unwrap();
    assert_eq!(engine.device().name(), "interp");
    assert_eq!(run(&engine).unwrap(), [2.0, 4.0]);
    assert_eq!(run(&engine).unwrap(), [2.0, 4.0]);
    let expected = "no C compiler: `/nonexistent/cc`, named by CC, was not found; the interpreter \
                    runs everything, which is much slower; install a C compiler or set CC to one";
    assert_eq!(heard(), [expected]);
}

#[test]
fn no_compiler_where_c_is_asked_for() {
    let error = Engine::new(with_cc("/nonexistent/cc", DeviceChoice::C))
        .err()
        .unwrap();
    let expected = "UOPC_DEVICE=c: no C compiler: `/nonexistent/cc`, named by CC, was not found; \
                    install a C compiler, set CC to one, or use UOPC_DEVICE=auto";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_compiler_that_fails() {
    let root = TempDir::new().unwrap();
    let cc = script(root.path(), "#!/bin/sh\necho \"disk full\" >&2\nexit 1");
    let engine = Engine::new(with_cc(&cc, DeviceChoice::C)).unwrap();
    let error = run(&engine).unwrap_err();
    let text = error.to_string();
    let Error::Compile { source_path, .. } = error else {
        panic!("{text}");
    };
    let flags = "-O1 -std=gnu11 -fvisibility=hidden -fPIC -shared -ffp-contract=off -fwrapv \
                 -fno-trapping-math -fno-math-errno -Wno-psabi -march=native -fno-tree-bit-ccp -nostdlib";
    let expected = format!(
        "{cc} {flags} failed on {}\ndisk full",
        source_path.display()
    );
    assert_eq!(text, expected);
    // The source is there to be looked at, and it is what the plan says.
    let source = fs::read_to_string(&source_path).unwrap();
    let kernel = listing(&[double(&[1.0, 2.0]).0], None, engine.settings()).unwrap();
    assert!(source.contains(&kernel), "{source}");
    fs::remove_file(source_path).unwrap();
}

#[test]
fn a_compiler_that_says_nothing() {
    let root = TempDir::new().unwrap();
    for (end, expected) in [
        ("exit 3", "it printed nothing and ended with exit status: 3"),
        ("exit 0", "it reported success but wrote no object"),
    ] {
        let cc = script(root.path(), &format!("#!/bin/sh\n{end}"));
        let engine = Engine::new(with_cc(&cc, DeviceChoice::C)).unwrap();
        let Error::Compile {
            source_path,
            output,
            ..
        } = run(&engine).unwrap_err()
        else {
            panic!("the compiler fails");
        };
        assert_eq!(output, expected);
        fs::remove_file(source_path).unwrap();
    }
}

// ---- the cache ----

#[test]
fn a_cache_folder_that_cannot_be_used_is_one_notice() {
    let _guard = listen();
    let root = TempDir::new().unwrap();
    // A file in place of the folder, since root may write to any folder.
    let file = root.path().join("cache");
    fs::write(&file, "").unwrap();
    let settings = Settings {
        cache_dir: Some(file.clone()),
        ..Settings::default()
    };
    let engine = Engine::new(settings).unwrap();
    assert_eq!(run(&engine).unwrap(), [2.0, 4.0]);
    assert_eq!(run(&engine).unwrap(), [2.0, 4.0]);
    let expected = format!(
        "the cache folder {} can't be used (File exists (os error 17)); kernels are compiled anew \
         in each process; set UOPC_CACHE_DIR to a folder that can be written",
        file.display()
    );
    assert_eq!(heard(), [expected]);
}

#[test]
fn a_damaged_entry_is_a_notice_and_compiled_again() {
    let _guard = listen();
    let root = TempDir::new().unwrap();
    let settings = Settings {
        cache_dir: Some(root.path().join("cache")),
        device: DeviceChoice::C,
        ..Settings::default()
    };
    run(&Engine::new(settings.clone()).unwrap()).unwrap();
    let entries = fs::read_dir(root.path().join("cache")).unwrap();
    let entries = entries.map(|item| item.unwrap().path());
    let object = entries
        .max_by_key(|p| fs::metadata(p).unwrap().len())
        .unwrap();
    let content = fs::read(&object).unwrap();
    fs::write(&object, &content[..content.len() - 1]).unwrap();
    let engine = Engine::new(settings).unwrap();
    assert_eq!(run(&engine).unwrap(), [2.0, 4.0]);
    assert_eq!(engine.stats().compiler_calls, 1);
    let expected = format!(
        "the cached kernel {} is damaged; compiling it again",
        object.display()
    );
    assert_eq!(heard(), [expected]);
}

// ---- inputs ----

#[test]
fn a_slot_without_data() {
    let engine = Engine::new(with_cc("/nonexistent/cc", DeviceChoice::Interp)).unwrap();
    let x = UOp::slot(7, DType::F32, 2);
    let error = engine
        .realize(&[&x + &x], &RealizeOptions::default())
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "buffer: slot 7 holds no data; bind it before running"
    );
}

#[test]
fn data_that_is_too_short() {
    let engine = Engine::new(with_cc("/nonexistent/cc", DeviceChoice::Interp)).unwrap();
    let (_, slots) = double(&[1.0, 2.0]);
    let x = UOp::slot(0, DType::F32, 3);
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    let error = engine.realize(&[&x + &x], &options).err().unwrap();
    assert_eq!(
        error.to_string(),
        "buffer: f32 of shape (3,) takes 12 bytes, its data has 8"
    );
}

#[test]
fn more_memory_than_there_is() {
    let engine = Engine::new(with_cc("/nonexistent/cc", DeviceChoice::Interp)).unwrap();
    let error = engine.device().allocate(usize::MAX).unwrap_err();
    let expected = "out of memory: 18446744073709551615 bytes can't be had; use smaller tensors \
                    or batches";
    assert_eq!(error.to_string(), expected);
}
