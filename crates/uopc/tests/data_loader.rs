//! Batches of arrays: which rows, in which order, made by which thread, and how it ends.

mod tensors;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use tensors::*;
use uopc::data::{DataLoader, LoaderState, mnist};
use uopc::runtime::interrupt;
use uopc::{DType, Error, Tensor, io};

/// Rows 0, 1, ... and their squares.
fn arrays(n: usize) -> [Tensor; 2] {
    let x = Tensor::arange(n).unwrap();
    let y = (&x * &x).cast(DType::F32).unwrap();
    [x, y.reshape([n, 1]).unwrap()]
}

/// The rows of each batch, as the first array has them; the second one must agree.
fn rows(batches: impl Iterator<Item = uopc::Result<Vec<Tensor>>>) -> Vec<Vec<i32>> {
    batches
        .map(|batch| {
            let batch = batch.unwrap();
            let x = batch[0].to_vec::<i32>().unwrap();
            assert_eq!(batch[1].shape()[..], [x.len(), 1]);
            let squares: Vec<f32> = x.iter().map(|&x| (x * x) as f32).collect();
            assert_eq!(batch[1].to_vec::<f32>().unwrap(), squares);
            x
        })
        .collect()
}

#[test]
fn all_rows_in_order() {
    let _engine = own_engine();
    for prefetch in [0, 1, 2, 9] {
        let loader = DataLoader::new(&arrays(7), 3).unwrap().prefetch(prefetch);
        assert_eq!((loader.len(), loader.rows()), (3, 7));
        let wanted = vec![vec![0, 1, 2], vec![3, 4, 5], vec![6]];
        assert_eq!(rows(loader.iter()), wanted);
        assert_eq!(rows(loader.iter()), wanted);
        let loader = loader.drop_last(true);
        assert_eq!(loader.len(), 2);
        assert_eq!(rows(loader.iter()), wanted[..2]);
        assert_eq!(loader.iter().size_hint(), (2, Some(2)));
    }
}

#[test]
fn sizes_at_the_edges() {
    let _engine = own_engine();
    let none = DataLoader::new(&arrays(0), 3).unwrap();
    assert!(none.is_empty() && none.iter().next().is_none());
    let all = DataLoader::new(&arrays(2), usize::MAX).unwrap();
    assert_eq!(rows(all.iter()), [[0, 1]]);
    assert!(all.drop_last(true).is_empty());
    let wide = Tensor::zeros([3, 0]).unwrap();
    let loader = DataLoader::new(&[wide], 2).unwrap();
    let shapes: Vec<Vec<usize>> = loader
        .iter()
        .map(|b| b.unwrap()[0].shape().to_vec())
        .collect();
    assert_eq!(shapes, [[2, 0], [1, 0]]);
    let text = |arrays: &[Tensor], size| {
        let error = DataLoader::new(arrays, size).err().unwrap().to_string();
        error.split(" (at ").next().unwrap().to_string()
    };
    assert_eq!(
        text(&[], 1),
        "DataLoader: there is nothing to load; give it an array"
    );
    assert_eq!(
        text(&arrays(3), 0),
        "DataLoader: a batch of 0 rows; use 1 or more"
    );
    let [x, y] = arrays(3);
    assert_eq!(
        text(&[x, y.shrink([(0, 2), (0, 1)]).unwrap()], 1),
        "DataLoader: arrays of shapes (3,) and (2, 1) have 3 and 2 rows; they need equally many"
    );
    assert_eq!(
        text(&[Tensor::scalar(1.0).unwrap()], 1),
        "DataLoader: array 0 is a scalar, which has no rows"
    );
}

#[test]
fn the_seed_and_the_epoch_decide_the_order() {
    let _engine = own_engine();
    let loader = |seed| DataLoader::new(&arrays(50), 8).unwrap().shuffle(seed);
    let (a, b) = (loader(1), loader(1).prefetch(0));
    let mut orders = Vec::new();
    for epoch in 0..3 {
        let found = rows(a.iter());
        assert_eq!(found, rows(b.iter()));
        let order = a.order(epoch).into_iter();
        let order: Vec<Vec<i32>> = order
            .map(|rows| rows.into_iter().map(|r| r as i32).collect())
            .collect();
        assert_eq!(found, order);
        let mut sorted = found.concat();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<i32>>());
        orders.push(found);
    }
    orders.push(rows(loader(2).iter()));
    orders.push(vec![(0..50).collect()]);
    for (k, order) in orders.iter().enumerate() {
        assert!(!orders[..k].contains(order), "{k}");
    }
}

#[test]
fn an_epoch_goes_on_where_it_was_left() {
    let _engine = own_engine();
    for prefetch in [0, 2] {
        let loader = || {
            let loader = DataLoader::new(&arrays(50), 8).unwrap();
            loader.shuffle(3).prefetch(prefetch)
        };
        let whole = loader();
        let epochs: Vec<_> = (0..3).map(|_| rows(whole.iter())).collect();
        let at = |epoch, position| LoaderState { epoch, position };
        assert_eq!(whole.state(), at(3, 0));
        for first in 0..=7 {
            let parts = loader();
            rows(parts.iter());
            let mut second = parts.iter();
            let begun = rows(second.by_ref().take(first));
            assert_eq!(second.position(), first as u64);
            let state = parts.state();
            let wanted = if first == 7 {
                at(2, 0)
            } else {
                at(1, first as u64)
            };
            assert_eq!(state, wanted);
            // In another process.
            let other = loader();
            other.set_state(state).unwrap();
            assert_eq!(other.state(), state);
            let rest = rows(other.iter());
            if first < 7 {
                assert_eq!([begun, rest].concat(), epochs[1]);
                assert_eq!(rows(other.iter()), epochs[2]);
            } else {
                assert_eq!(rest, epochs[2]);
            }
            // Here, a new iterator is a new epoch, and the old one no longer moves the place.
            drop(second);
            if (1..7).contains(&first) {
                assert_eq!(rows(parts.iter()), epochs[2]);
            }
        }
        let late = loader();
        let mut old = late.iter();
        let mut new = late.iter();
        new.next();
        old.next();
        old.next();
        assert_eq!(late.state().position, 1);
        let error = late.set_state(at(0, 8)).unwrap_err().to_string();
        assert!(
            error.starts_with("DataLoader: batch 8 of an epoch of 7 batches"),
            "{error}"
        );
    }
}

/// What is made of a batch is made by the helper, with random numbers of its own, which are the
/// same wherever the epoch was begun.
#[test]
fn transforms() {
    let _engine = own_engine();
    let here = thread::current().id();
    for prefetch in [0, 2] {
        let loader = || {
            let loader = DataLoader::new(&arrays(10), 4).unwrap();
            loader.prefetch(prefetch).transform(move |batch, random| {
                assert_eq!(thread::current().id() == here, prefetch == 0);
                let noise = random.uniform(batch[1].shape(), 0.0, 1.0)?;
                Ok(vec![batch[1].add(&noise)?, noise])
            })
        };
        let noise = |loader: &DataLoader| -> Vec<Vec<f32>> {
            let batches = loader.iter().map(Result::unwrap);
            batches.map(|batch| batch[1].to_vec().unwrap()).collect()
        };
        let whole = loader();
        let (first, second) = (noise(&whole), noise(&whole));
        assert_ne!(first, second);
        assert_ne!(first[0], first[1]);
        let rest = loader();
        let state = LoaderState {
            epoch: 1,
            position: 1,
        };
        rest.set_state(state).unwrap();
        assert_eq!(noise(&rest), second[1..]);
    }
}

#[test]
fn errors_of_a_transform_reach_the_caller() {
    let _engine = own_engine();
    for prefetch in [0, 1, 3] {
        let loader = DataLoader::new(&arrays(10), 2).unwrap().prefetch(prefetch);
        let loader = loader.transform(|batch, _| {
            match batch[0].to_vec::<i32>()?[0] {
                // Wrong in the third batch.
                4 => batch[0].reshape([7]).map(|t| vec![t]),
                _ => Ok(batch),
            }
        });
        let mut batches = loader.iter();
        assert!(batches.next().unwrap().is_ok());
        assert!(batches.next().unwrap().is_ok());
        let error = batches.next().unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Shape { op: "reshape", .. }),
            "{error}"
        );
        assert_eq!(
            batches.next().unwrap().unwrap()[0].to_vec::<i32>().unwrap(),
            [6, 7]
        );
    }
}

/// A panic of the helper is a panic of whoever asks.
#[test]
fn a_panic_is_not_lost() {
    let _engine = own_engine();
    let loader = DataLoader::new(&arrays(4), 2).unwrap();
    let mut batches = loader.iter_with(2, |batch| {
        assert!(batch.rows()[0] < 2, "the second batch");
        batch.rows().len()
    });
    assert_eq!(batches.next().unwrap().unwrap(), 2);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| batches.next()));
    let panic = caught.err().unwrap();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the second batch"));
}

/// No more batches are made ahead than were asked for, and dropping the iterator ends the helper.
#[test]
fn the_queue_is_bounded_and_the_thread_ends() {
    let _engine = own_engine();
    for prefetch in [1, 2, 5] {
        let made = Arc::new(AtomicUsize::new(0));
        // Every copy of it is gone when the helper and the iterator are.
        let alive = Arc::new(());
        let (counter, held) = (made.clone(), alive.clone());
        let (sender, begun) = channel();
        let loader = DataLoader::new(&arrays(100), 1).unwrap();
        let mut batches = loader.iter_with(prefetch, move |_| {
            let _held = &held;
            let n = counter.fetch_add(1, SeqCst) + 1;
            sender.send(n).unwrap();
            n
        });
        // The helper goes as far as it may without anyone asking.
        for n in 1..=prefetch {
            assert_eq!(begun.recv().unwrap(), n);
        }
        assert_eq!(batches.next().unwrap().unwrap(), 1);
        assert_eq!(begun.recv().unwrap(), prefetch + 1);
        assert_eq!(batches.next().unwrap().unwrap(), 2);
        assert!(made.load(SeqCst) <= prefetch + 2);
        drop(batches);
        assert_eq!(Arc::strong_count(&alive), 1, "the helper is gone");
        assert!(made.load(SeqCst) <= prefetch + 2);
    }
}

/// Who waits for a batch that takes for ever can be stopped, and the batch is not lost.
#[test]
fn a_wait_can_be_interrupted() {
    let _engine = own_engine();
    let loader = DataLoader::new(&arrays(4), 2).unwrap();
    let (go, wait) = sync_channel::<()>(0);
    let wait = parking_lot::Mutex::new(wait);
    let mut batches = loader.iter_with(1, move |batch| {
        wait.lock().recv().ok();
        batch.rows().to_vec()
    });
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let check = Arc::new(move || count.fetch_add(1, SeqCst) == 3);
    {
        let _entered = interrupt::enter_every(std::time::Duration::ZERO, check);
        assert!(matches!(batches.next(), Some(Err(Error::Interrupted))));
    }
    assert_eq!(loader.state().position, 0);
    go.send(()).unwrap();
    assert_eq!(batches.next().unwrap().unwrap(), [0, 1]);
    // The helper waits for a permission that never comes; without it, it ends.
    drop(go);
    drop(batches);
}

/// A folder in the form of MNIST.
#[test]
fn mnist_folders() {
    let _engine = own_engine();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let images = |n: usize| {
        let pixels: Vec<u8> = (0..n * 4).map(|k| (k * 51) as u8).collect();
        Tensor::from_slice(&pixels, [n, 2, 2]).unwrap()
    };
    let text = || mnist::load(folder.path()).err().unwrap().to_string();
    let missing =
        "there is no train-images-idx3-ubyte in this folder, nor train-images-idx3-ubyte.gz";
    assert!(text().ends_with(missing), "{}", text());
    io::idx::save(at("train-images-idx3-ubyte.gz"), &images(3)).unwrap();
    io::idx::save(at("train-labels-idx1-ubyte"), &Tensor::from([3u8, 0, 9])).unwrap();
    io::idx::save(at("t10k-images-idx3-ubyte"), &images(1)).unwrap();
    io::idx::save(at("t10k-labels-idx1-ubyte.gz"), &Tensor::from([10u8])).unwrap();
    assert!(
        text().ends_with("the label 10 of image 0 is none of 0 to 9"),
        "{}",
        text()
    );
    io::idx::save(at("t10k-labels-idx1-ubyte.gz"), &Tensor::from([1u8])).unwrap();
    let data = mnist::load(folder.path()).unwrap();
    assert_eq!(
        (data.train.len(), data.test.len(), data.train.width),
        (3, 1, 4)
    );
    assert_eq!(data.test.pixels, [0.0, 0.2, 0.4, 0.6]);
    assert_eq!(data.train.labels, [3, 0, 9]);
    let wide = Tensor::zeros([1, 3, 2]).unwrap().cast(DType::U8).unwrap();
    io::idx::save(at("t10k-images-idx3-ubyte"), &wide).unwrap();
    assert!(text().ends_with("images for training have 4 pixels, those for the test 6"));
}
