//! Memory and the disk cache.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use half::{bf16, f16};
use tempfile::TempDir;
use uopc::Tensor;
use uopc::compile::Engine;
use uopc::debug::Settings;
use uopc::runtime::buffer::Element;
use uopc::runtime::cache::{Key, ObjectCache};
use uopc::runtime::pool::ALIGNMENT;
use uopc::runtime::{Memory, Place, Pool, Storage};
use uopc::tensor::with_engine;

// ---- memory ----

#[test]
fn memory_is_aligned_and_keeps_what_is_written() {
    let pool = Pool::new(1 << 20);
    for n in [1usize, 3, 16, 1000] {
        let mut memory = pool.take(4 * n).unwrap();
        let values: Vec<f32> = (0..n).map(|k| k as f32 + 0.5).collect();
        memory.write(&values);
        let storage = memory.share();
        assert_eq!(storage.as_bytes().as_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(storage.to_vec::<f32>(), values);
    }
}

fn round_trip<T: Element + PartialEq + std::fmt::Debug>(values: &[T]) {
    let storage = Storage::from_slice(values).unwrap();
    assert_eq!(storage.bytes(), values.len() * T::DTYPE.size());
    assert_eq!(storage.to_vec::<T>(), values);
    let again = Storage::from_bytes(storage.as_bytes()).unwrap();
    assert_eq!(again.to_vec::<T>(), values);
}

#[test]
fn every_dtype_goes_in_and_out() {
    round_trip(&[true, false, true]);
    round_trip(&[i8::MIN, 0, i8::MAX]);
    round_trip(&[i16::MIN, 0, i16::MAX]);
    round_trip(&[i32::MIN, 0, i32::MAX]);
    round_trip(&[i64::MIN, 0, i64::MAX]);
    round_trip(&[0, u8::MAX]);
    round_trip(&[0, u16::MAX]);
    round_trip(&[0, u32::MAX]);
    round_trip(&[0, u64::MAX]);
    round_trip(&[f16::from_f32(1.5), f16::NEG_INFINITY]);
    round_trip(&[bf16::from_f32(1.5), bf16::NEG_INFINITY]);
    round_trip(&[-0.0f32, f32::MIN_POSITIVE, f32::INFINITY]);
    round_trip(&[-0.0f64, f64::MIN_POSITIVE, f64::INFINITY]);
}

#[test]
fn zero_bytes_are_memory_like_any_other() {
    let pool = Pool::new(1 << 20);
    let storage = pool.take(0).unwrap().share();
    assert_eq!((storage.bytes(), storage.to_vec::<f64>()), (0, vec![]));
    assert_eq!(storage.as_bytes().as_ptr() as usize % ALIGNMENT, 0);
}

#[test]
fn memory_of_every_size_is_reused() {
    let pool = Pool::new(1 << 30);
    let sizes = (0..3000).chain((12..22).flat_map(|k| (0..8).map(move |j| (8 + j) << k >> 3)));
    for bytes in sizes.flat_map(|n| [n, n + 1]) {
        let memory = pool.take(bytes).unwrap();
        let capacity = pool.live_bytes();
        assert!((bytes..=bytes * 5 / 4 + 64).contains(&capacity), "{bytes}");
        memory.write_at(0, &vec![1; bytes]);
        drop(memory);
        let (fresh, idle) = (pool.fresh_blocks(), pool.idle_bytes());
        let again = pool.take(bytes).unwrap();
        assert_eq!(pool.fresh_blocks(), fresh, "{bytes}");
        assert_eq!(pool.idle_bytes(), idle - capacity, "{bytes}");
        again.write_at(0, &vec![2; bytes]);
    }
}

#[test]
fn dropped_memory_is_used_again() {
    let pool = Pool::new(1 << 20);
    drop(pool.take(1000).unwrap());
    assert_eq!((pool.fresh_blocks(), pool.live_bytes()), (1, 0));
    assert!(pool.idle_bytes() >= 1000);
    // A request of about the same size takes the same block; a second one at once can't.
    let a = pool.take(990).unwrap();
    assert_eq!((pool.fresh_blocks(), pool.idle_bytes()), (1, 0));
    let b = pool.take(990).unwrap().share();
    assert_eq!(pool.fresh_blocks(), 2);
    let second_owner = b.clone();
    drop(b);
    assert_eq!(pool.idle_bytes(), 0, "the last owner gives memory back");
    drop((a, second_owner));
    assert_eq!(pool.live_bytes(), 0);
    assert!(pool.peak_bytes() >= 2 * 990);
    pool.trim();
    assert_eq!(pool.idle_bytes(), 0);
}

#[test]
fn idle_memory_is_bounded() {
    let pool = Pool::new(10_000);
    let taken: Vec<Memory> = (0..8).map(|_| pool.take(4096).unwrap()).collect();
    drop(taken);
    assert_eq!(pool.idle_bytes(), 8192);
}

#[test]
fn sizes_that_are_left_behind_give_way() {
    // Four times the limit of one size, then another size again and again.
    let pool = Pool::new(10_000);
    drop((0..8).map(|_| pool.take(4096).unwrap()).collect::<Vec<_>>());
    for round in 0..10 {
        drop((pool.take(1024).unwrap(), pool.take(2048).unwrap()));
        assert_eq!(pool.fresh_blocks(), 10, "round {round}");
    }
    assert_eq!(pool.taken_blocks(), 28);
    assert_eq!(pool.idle_bytes(), 4096 + 1024 + 2048);
    // What is larger than the limit is never kept, and nothing goes for it.
    drop(pool.take(20_000).unwrap());
    assert_eq!(pool.idle_bytes(), 4096 + 1024 + 2048);
}

#[test]
fn fresh_memory_holds_zeros() {
    let pool = Pool::new(0);
    for bytes in [1, 4096, (2 << 20) - 1, (2 << 20) + 1, 5 << 20, 16 << 20] {
        for _ in 0..3 {
            let mut memory = pool.take(bytes).unwrap().share();
            assert!(memory.as_bytes().iter().all(|&b| b == 0), "{bytes}");
            assert_eq!(memory.pointer() as usize % ALIGNMENT, 0);
            let written = Storage::reclaim(memory).unwrap();
            written.write_at(0, &vec![1; bytes]);
            memory = written.share();
            assert!(memory.as_bytes().iter().all(|&b| b == 1), "{bytes}");
        }
    }
    assert_eq!((pool.idle_bytes(), pool.live_bytes()), (0, 0));
}

#[test]
#[cfg(target_os = "linux")]
fn large_memory_begins_with_a_large_page() {
    let pool = Pool::new(1 << 30);
    let taken = [2 << 20, 3 << 20, 7 << 20].map(|n| pool.take(n).unwrap().share());
    for memory in &taken {
        assert_eq!(memory.pointer() as usize % (2 << 20), 0);
    }
}

#[test]
fn repeated_use_takes_no_new_memory() {
    let pool = Pool::new(1 << 24);
    for step in 0..1000 {
        let kept: Vec<_> = (0..5)
            .map(|k| pool.take(1000 * (k + 1)).unwrap().share())
            .collect();
        assert!(pool.fresh_blocks() <= 5, "step {step}");
        drop(kept);
    }
}

#[test]
fn shared_memory_is_reclaimed_by_its_only_owner() {
    let storage = Storage::from_slice(&[1i32, 2, 3]).unwrap();
    let other = storage.clone();
    let storage = Storage::reclaim(storage).expect_err("there are two owners");
    drop(other);
    let mut memory = Storage::reclaim(storage).expect("there is one owner");
    memory.write(&[4i32, 5, 6]);
    assert_eq!(memory.share().to_vec::<i32>(), [4, 5, 6]);
}

#[test]
fn storage_is_read_from_many_threads() {
    let storage = Storage::from_slice(&(0..1000u32).collect::<Vec<_>>()).unwrap();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let storage = storage.clone();
            thread::spawn(move || storage.to_vec::<u32>().iter().sum::<u32>())
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), 499_500);
    }
}

#[test]
fn places_are_parts_of_memory() {
    let pool = Pool::new(1 << 20);
    let memory = pool.take(128).unwrap();
    memory.write_at(64, &[7; 64]);
    let part = Place::part(&memory, 64, 64);
    assert!(part.is_writable());
    assert_eq!(part.to_bytes(), [7; 64]);
    let storage = Storage::from_slice(&[1u8, 2]).unwrap();
    assert!(!Place::Shared(&storage).is_writable());
    let small = std::panic::AssertUnwindSafe(pool.take(64).unwrap());
    let outside = std::panic::catch_unwind(|| Place::part(&small, 32, 64).bytes());
    assert!(outside.is_err(), "a part lies inside its memory");
}

#[test]
fn memory_beyond_the_machine_is_an_error() {
    let pool = Pool::new(1 << 20);
    for bytes in [usize::MAX, isize::MAX as usize] {
        let error = pool.take(bytes).unwrap_err();
        let text =
            format!("out of memory: {bytes} bytes can't be had; use smaller tensors or batches");
        assert_eq!(error.to_string(), text);
    }
}

/// A step that drops its result takes memory once; a running mean that keeps one takes it twice.
#[test]
fn large_results_take_the_memory_of_those_before() {
    let engine = Arc::new(Engine::new(Settings::default()).unwrap());
    with_engine(&engine, || {
        let pool = engine.device().pool();
        let x = Tensor::from((0..1 << 20).map(|k| k as f32).collect::<Vec<_>>());
        for _ in 0..20 {
            (&x + &x).realize().unwrap();
        }
        assert_eq!((pool.taken_blocks(), pool.fresh_blocks()), (20, 1));
        let mut mean = x.clone();
        for _ in 0..20 {
            mean = &mean + &x;
            mean.realize().unwrap();
        }
        assert_eq!((pool.taken_blocks(), pool.fresh_blocks()), (40, 2));
    });
}

/// Not a test: what fresh pages cost, with `UOPC_PERF` set.
#[test]
fn the_price_of_fresh_pages() {
    if std::env::var_os("UOPC_PERF").is_none() {
        return;
    }
    let ones = vec![1u8; 64 << 20];
    for threads in [1, 2] {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..11 {
            let pool = Pool::new(0);
            let started = Instant::now();
            let write = || {
                let part = &ones[..ones.len() / threads];
                let memory = pool.take(part.len()).unwrap();
                memory.write_at(0, part);
                let again = Instant::now();
                memory.write_at(0, part);
                again.elapsed()
            };
            let again = thread::scope(|scope| {
                let writers: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
                let again = writers.into_iter().map(|w| w.join().unwrap());
                again.max().unwrap()
            });
            times[0].push(started.elapsed() - again);
            times[1].push(again);
        }
        times.iter_mut().for_each(|t| t.sort());
        let [first, second] = times.map(|t| t[5].as_secs_f64() * 1e3);
        println!("64 MiB by {threads} threads: first {first:.1} ms, again {second:.1} ms");
    }
}

// ---- the disk cache ----

struct Folder {
    root: TempDir,
}

impl Folder {
    fn new() -> Folder {
        Folder {
            root: TempDir::new().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("cache")
    }

    fn open(&self) -> ObjectCache {
        ObjectCache::open(&self.path(), 1 << 20)
    }

    fn entry(&self, key: &Key) -> PathBuf {
        self.path().join(key.hex())
    }
}

#[test]
fn entries_are_found_by_another_cache_on_the_folder() {
    let folder = Folder::new();
    let key = Key::new(&["source", "compiler"]);
    let cache = folder.open();
    assert_eq!(cache.get(&key), None);
    cache.put(&key, b"object");
    assert_eq!(folder.open().get(&key).as_deref(), Some(&b"object"[..]));
    // Where one part ends and the next begins is part of the key.
    assert_eq!(cache.get(&Key::new(&["sourcec", "ompiler"])), None);
}

#[cfg(unix)]
#[test]
fn the_folder_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.open();
    let mode = || fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o700);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(folder.open().is_usable());
    assert_eq!(
        mode(),
        0o700,
        "others lose their rights to a folder that was there"
    );
}

#[test]
fn damaged_entries_count_as_absent_and_are_replaced() {
    let folder = Folder::new();
    let cache = folder.open();
    let key = Key::new(&["source"]);
    cache.put(&key, b"an object of some length");
    let sound = fs::read(folder.entry(&key)).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..sound.len()).map(|n| sound[..n].to_vec()).collect();
    for k in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[k] ^= 1;
        damaged.push(bytes);
    }
    damaged.push([&sound[..], &[0]].concat());
    for bytes in damaged {
        fs::write(folder.entry(&key), &bytes).unwrap();
        assert_eq!(cache.get(&key), None, "{} bytes", bytes.len());
        assert!(!folder.entry(&key).exists());
    }
    cache.put(&key, b"an object of some length");
    assert!(cache.get(&key).is_some());
}

#[test]
fn an_entry_under_a_wrong_name_is_not_trusted() {
    let folder = Folder::new();
    let cache = folder.open();
    let (a, b) = (Key::new(&["a"]), Key::new(&["b"]));
    cache.put(&a, b"object a");
    fs::copy(folder.entry(&a), folder.entry(&b)).unwrap();
    assert_eq!(cache.get(&b), None);
    assert!(cache.get(&a).is_some());
}

#[test]
fn a_folder_that_cannot_be_used_is_done_without() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    for path in [file.clone(), file.join("below")] {
        let cache = ObjectCache::open(&path, 1 << 20);
        assert!(!cache.is_usable());
        let key = Key::new(&["source"]);
        cache.put(&key, b"object");
        assert_eq!(cache.get(&key), None);
        assert!(cache.work_folder().unwrap().path().exists());
    }
    assert_eq!(fs::read(&file).unwrap(), b"not a folder");
}

#[test]
fn the_entries_unused_for_longest_go() {
    let folder = Folder::new();
    let keys: Vec<Key> = (0..4).map(|k| Key::new(&[&k.to_string()])).collect();
    let object = vec![7u8; 1000];
    // Room for three entries with their heads.
    let cache = ObjectCache::open(&folder.path(), 3300);
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    for (age, key) in [(30, &keys[0]), (20, &keys[1]), (10, &keys[2])] {
        cache.put(key, &object);
        let file = fs::File::open(folder.entry(key)).unwrap();
        file.set_modified(long_ago - Duration::from_secs(age))
            .unwrap();
    }
    assert!(cache.get(&keys[0]).is_some(), "used just now");
    cache.put(&keys[3], &object);
    let there: Vec<bool> = keys.iter().map(|k| folder.entry(k).exists()).collect();
    assert_eq!(there, [true, false, true, true]);
    // What alone exceeds the limit is not kept, and nothing goes for its sake.
    let large = Key::new(&["large"]);
    cache.put(&large, &vec![7; 4000]);
    assert!(!folder.entry(&large).exists());
    assert!(folder.entry(&keys[3]).exists());
}

#[test]
fn work_folders_of_dead_processes_go() {
    let folder = Folder::new();
    let cache = folder.open();
    let live = cache.work_folder().unwrap();
    let dead = folder.path().join("work-dead");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("unit.c"), "").unwrap();
    let days_ago = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    fs::File::open(&dead)
        .unwrap()
        .set_modified(days_ago)
        .unwrap();
    cache.put(&Key::new(&["source"]), b"object");
    assert!(!dead.exists());
    assert!(live.path().exists());
}

#[test]
fn threads_share_a_folder() {
    let folder = Arc::new(Folder::new());
    let key = Key::new(&["source"]);
    let object: Vec<u8> = (0..100_000u32).map(|k| k as u8).collect();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (folder, object) = (folder.clone(), object.clone());
            thread::spawn(move || {
                let cache = folder.open();
                for _ in 0..50 {
                    cache.put(&key, &object);
                    // Complete whenever it is there: writing is never seen half done.
                    assert!(cache.get(&key).is_some_and(|found| found == object));
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary files stay behind");
}
