//! Memory that someone else owns, as the data of tensors.
#![allow(unsafe_code)]

use std::any::Any;
use std::mem::size_of_val;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Settings};
use uopc::runtime::Storage;
use uopc::tensor::with_engine;
use uopc::{DType, Tensor};

/// An array that counts how often it was dropped.
struct Owner {
    values: Box<[f32]>,
    drops: Arc<AtomicUsize>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
    }
}

/// Foreign memory that is an owner's array without its first `skip` bytes.
fn foreign(values: &[f32], skip: usize) -> (Arc<Storage>, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    let owner = Box::new(Owner {
        values: values.into(),
        drops: drops.clone(),
    });
    let bytes = size_of_val(&*owner.values) - skip;
    let pointer = NonNull::new(owner.values.as_ptr().cast_mut().cast::<u8>()).unwrap();
    // SAFETY: the skipped bytes are part of the array.
    let pointer = unsafe { pointer.add(skip) };
    // SAFETY: the owner holds the array, whose place does not change, and never writes it.
    let storage = unsafe { Storage::foreign(pointer, bytes, owner) };
    (storage, drops)
}

fn engines() -> [Arc<Engine>; 2] {
    [DeviceChoice::C, DeviceChoice::Interp].map(|device| {
        let settings = Settings {
            device,
            ..Settings::default()
        };
        Arc::new(Engine::new(settings).unwrap())
    })
}

#[test]
fn kernels_read_foreign_memory_in_place() {
    for engine in engines() {
        with_engine(&engine, || {
            let values: Vec<f32> = (0..1001).map(|k| k as f32 * 0.5).collect();
            let (storage, drops) = foreign(&values, 0);
            let place = storage.pointer();
            let x = Tensor::from_storage(storage, DType::F32, [1001]).unwrap();
            assert_eq!(x.memory().unwrap().pointer(), place, "nothing was copied");
            let y = (&x * 2.0).realize().unwrap().to_vec::<f32>().unwrap();
            let twice: Vec<f32> = values.iter().map(|v| v * 2.0).collect();
            assert_eq!(y, twice);
            assert_eq!(x.to_vec::<f32>().unwrap(), values);
            assert_eq!(
                engine.device().pool().live_bytes(),
                0,
                "no pool lent the input"
            );
            assert_eq!(drops.load(SeqCst), 0);
            drop(x);
            assert_eq!(drops.load(SeqCst), 1);
        });
    }
}

#[test]
fn elements_need_no_more_than_their_own_alignment() {
    for engine in engines() {
        with_engine(&engine, || {
            let values: Vec<f32> = (0..1000).map(|k| k as f32).collect();
            // Wherever the allocator has put it, most of these are no multiple of a vector.
            for skip in [0, 4, 8, 12, 16, 20] {
                let (storage, _) = foreign(&values, skip);
                let rest = &values[skip / 4..];
                let x = Tensor::from_storage(storage, DType::F32, [rest.len()]).unwrap();
                let y = (&(&x + &x) - 1.0).to_vec::<f32>().unwrap();
                let expected: Vec<f32> = rest.iter().map(|v| v + v - 1.0).collect();
                assert_eq!(y, expected);
                let sum = x.sum(..).unwrap().item().unwrap();
                assert_eq!(sum, rest.iter().sum::<f32>() as f64);
            }
        });
    }
}

#[test]
fn inputs_may_overlap() {
    for engine in engines() {
        with_engine(&engine, || {
            let values: Vec<f32> = (0..1000).map(|k| k as f32).collect();
            let (storage, _) = foreign(&values, 0);
            let view = |first: usize| {
                let storage = part(&storage, 4 * first, 4 * 990);
                Tensor::from_storage(storage, DType::F32, [990]).unwrap()
            };
            let found = (&view(0) + &view(1)).to_vec::<f32>().unwrap();
            let expected: Vec<f32> = (0..990).map(|k| (2 * k + 1) as f32).collect();
            assert_eq!(found, expected);
        });
    }
}

#[test]
fn the_owner_is_dropped_once_after_the_last_user() {
    for engine in engines() {
        with_engine(&engine, || {
            let (storage, drops) = foreign(&[1.0, 2.0, 3.0, 4.0], 0);
            let a = Tensor::from_storage(storage.clone(), DType::F32, [4]).unwrap();
            let b = Tensor::from_storage(storage, DType::F32, [2, 2]).unwrap();
            // A graph that was not computed reads the memory later.
            let later = &a.reshape([2, 2]).unwrap() * &b;
            drop(a);
            drop(b);
            assert_eq!(drops.load(SeqCst), 0);
            assert_eq!(later.to_vec::<f32>().unwrap(), [1.0, 4.0, 9.0, 16.0]);
            assert_eq!(drops.load(SeqCst), 1, "the value needs its inputs no more");
            drop(later);
            assert_eq!(drops.load(SeqCst), 1);
        });
    }
}

#[test]
fn gradients_flow_to_a_parameter_in_foreign_memory() {
    let (storage, drops) = foreign(&[1.0, 2.0], 0);
    let x = Tensor::from_storage(storage, DType::F32, [2]).unwrap();
    let x = x.requires_grad().unwrap();
    (&x * &x).sum(..).unwrap().backward(&[&x]).unwrap();
    let grad = x.grad().unwrap();
    assert_eq!(grad.to_vec::<f32>().unwrap(), [2.0, 4.0]);
    // An update is new memory; the foreign one is never written.
    x.assign(&(&x - &grad)).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [-1.0, -2.0]);
    drop((x, grad));
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn foreign_memory_is_not_reclaimed() {
    let (storage, drops) = foreign(&[1.0], 0);
    let storage = Storage::reclaim(storage).expect_err("somebody else's");
    assert_eq!(storage.to_vec::<f32>(), [1.0]);
    let other = storage.clone();
    let storage = Storage::reclaim(storage).expect_err("and there are two");
    drop((storage, other));
    assert_eq!(drops.load(SeqCst), 1);
}

/// Foreign memory without an owner, at any address.
fn nothing_at(address: usize) -> Arc<Storage> {
    let pointer = NonNull::new(std::ptr::without_provenance_mut(address)).unwrap();
    // SAFETY: no byte is read.
    unsafe { Storage::foreign(pointer, 0, Box::new(())) }
}

#[test]
fn no_bytes_may_be_anywhere() {
    for engine in engines() {
        with_engine(&engine, || {
            // An odd address that is nobody's.
            let x = Tensor::from_storage(nothing_at(1), DType::F32, [0, 3]).unwrap();
            assert_eq!(x.to_vec::<f32>().unwrap(), Vec::<f32>::new());
            assert_eq!((&x + 1.0).to_vec::<f32>().unwrap(), Vec::<f32>::new());
            assert_eq!(x.sum(0).unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
        });
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |storage, dtype, shape: &[usize]| {
        let error = Tensor::from_storage(storage, dtype, shape).unwrap_err();
        error.to_string().split(" (at ").next().unwrap().to_string()
    };
    let (storage, drops) = foreign(&[1.0, 2.0], 1);
    assert_eq!(
        refused(storage, DType::F32, &[2]),
        "from_storage: 7 bytes do not fill shape (2,) of f32"
    );
    assert_eq!(drops.load(SeqCst), 1, "what is refused is let go");
    let aligned = [1.0; 4];
    let (storage, _) = foreign(&aligned, 4);
    let odd = part(&storage, 1, 8);
    assert_eq!(
        refused(odd, DType::F32, &[2]),
        "from_storage: the memory is not aligned to the 4 bytes of an element of f32; copy it \
         with from_bytes"
    );
    let bytes = Storage::from_bytes(&[0, 1, 2]).unwrap();
    assert_eq!(
        refused(bytes, DType::Bool, &[3]),
        "from_storage: the byte 2 is no bool; 0 is false and 1 is true"
    );
}

/// A part of a storage, which it keeps alive.
fn part(storage: &Arc<Storage>, offset: usize, bytes: usize) -> Arc<Storage> {
    let content = &storage.as_bytes()[offset..offset + bytes];
    let pointer = NonNull::from(content).cast();
    let owner: Box<dyn Any + Send + Sync> = Box::new(storage.clone());
    // SAFETY: the part is initialised and never written as long as the owner lives.
    unsafe { Storage::foreign(pointer, bytes, owner) }
}
