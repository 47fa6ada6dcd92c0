//! Batches of rows of arrays, in an order that a seed and the number of the epoch decide, made by a
//! helper thread before they are asked for.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ahead::Ahead;
use crate::error::{Error, Result};
use crate::tensor::{
    DType, Generator, Shape, Site, Storage, Tensor, entered_engine, no_grad, with_engine,
};

/// An odd factor makes neighbouring epochs and neighbouring seeds different generators.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// How many batches are made ahead, unless somebody says otherwise.
pub const PREFETCH: usize = 2;

/// What is made of the rows of a batch, with random numbers that are the same for the same batch of
/// the same epoch.
pub type Transform = dyn Fn(Vec<Tensor>, &mut Generator) -> Result<Vec<Tensor>> + Send + Sync;

/// Goes through arrays of equally many rows in batches.
///
/// Each [`iter`](Self::iter) is an epoch. With [`shuffle`](Self::shuffle) its order is a function of
/// the seed and of the epoch's number alone, so a run can be repeated, and go on from
/// [`state`](Self::state) in the middle of an epoch.
///
/// ```
/// use uopc::Tensor;
/// use uopc::data::DataLoader;
///
/// let x = Tensor::arange(10)?.reshape([5, 2])?;
/// let y = Tensor::arange(5)?;
/// let loader = DataLoader::new(&[x, y], 2)?;
/// let sizes: Vec<usize> = loader
///     .iter()
///     .map(|batch| Ok(batch?[0].shape()[0]))
///     .collect::<uopc::Result<_>>()?;
/// assert_eq!(sizes, [2, 2, 1]);
/// # Ok::<(), uopc::Error>(())
/// ```
pub struct DataLoader {
    source: Arc<Source>,
    prefetch: usize,
    transform: Option<Arc<Transform>>,
    progress: Arc<Mutex<Progress>>,
}

/// Where a loader is: what a run saves to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderState {
    /// The epoch's number, from 0.
    pub epoch: u64,
    /// How many of its batches were handed out.
    pub position: u64,
}

struct Progress {
    at: LoaderState,
    /// Whether `at` was set and not begun: then the next epoch begins there.
    set: bool,
    /// The number of the newest epoch that was begun, which alone moves the place.
    newest: u64,
}

/// What batches are made of.
#[derive(Clone)]
struct Source {
    arrays: Vec<Array>,
    rows: usize,
    batch_size: usize,
    shuffle: Option<u64>,
    drop_last: bool,
}

#[derive(Clone)]
struct Array {
    memory: Arc<Storage>,
    dtype: DType,
    /// The extents of a row.
    row: Vec<usize>,
}

impl DataLoader {
    /// Batches of so many rows, in order, the last one smaller if need be. The arrays are computed
    /// now; a later update of them does not reach the loader.
    ///
    /// # Errors
    /// When there is no array, one has no axis, they have different numbers of rows, a batch has
    /// none, or an array can't be computed.
    #[track_caller]
    pub fn new(arrays: &[Tensor], batch_size: usize) -> Result<DataLoader> {
        let site = Site::caller();
        let _site = site.enter();
        let refuse = |message: String| Error::Shape {
            op: "DataLoader",
            message,
            site: Some(site),
        };
        let Some(first) = arrays.first() else {
            return Err(refuse("there is nothing to load; give it an array".into()));
        };
        if batch_size == 0 {
            return Err(refuse("a batch of 0 rows; use 1 or more".into()));
        }
        let shapes: Vec<&Shape> = arrays.iter().map(Tensor::shape).collect();
        if let Some(at) = shapes.iter().position(|s| s.rank() == 0) {
            return Err(refuse(format!("array {at} is a scalar, which has no rows")));
        }
        let rows = first.shape()[0];
        if let Some(at) = shapes.iter().position(|s| s[0] != rows) {
            let (a, b) = (shapes[0], shapes[at]);
            return Err(refuse(format!(
                "arrays of shapes {a} and {b} have {rows} and {} rows; they need equally many",
                b[0]
            )));
        }
        Tensor::realize_all(arrays)?;
        let arrays = arrays.iter().map(|t| {
            Ok(Array {
                memory: t.memory()?,
                dtype: t.dtype(),
                row: t.shape()[1..].to_vec(),
            })
        });
        Ok(DataLoader {
            source: Arc::new(Source {
                arrays: arrays.collect::<Result<_>>()?,
                rows,
                batch_size,
                shuffle: None,
                drop_last: false,
            }),
            prefetch: PREFETCH,
            transform: None,
            progress: Arc::new(Mutex::new(Progress {
                at: LoaderState::default(),
                set: true,
                newest: 0,
            })),
        })
    }

    /// Rows in another order each epoch, which the seed decides.
    pub fn shuffle(mut self, seed: u64) -> DataLoader {
        self.change(|source| source.shuffle = Some(seed));
        self
    }

    /// Leaves out the rows at the end of an epoch that fill no batch, so that all batches have one
    /// shape, and a step one plan.
    pub fn drop_last(mut self, drop_last: bool) -> DataLoader {
        self.change(|source| source.drop_last = drop_last);
        self
    }

    fn change(&mut self, f: impl FnOnce(&mut Source)) {
        // Iterators keep what they began with.
        f(Arc::make_mut(&mut self.source));
    }

    /// How many batches a helper thread makes before they are asked for; with 0 there is no helper.
    pub fn prefetch(mut self, batches: usize) -> DataLoader {
        self.prefetch = batches;
        self
    }

    /// What to make of the tensors of each batch. It is called on the helper thread, and what it
    /// returns is computed there.
    pub fn transform(
        mut self,
        f: impl Fn(Vec<Tensor>, &mut Generator) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> DataLoader {
        self.transform = Some(Arc::new(f));
        self
    }

    /// How many batches an epoch has.
    pub fn len(&self) -> usize {
        self.source.batches()
    }

    /// True if an epoch has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows the arrays have.
    pub fn rows(&self) -> usize {
        self.source.rows
    }

    /// Where the loader is: the epoch that was begun last and how many of its batches were handed
    /// out, or the beginning of the next one when those were all.
    pub fn state(&self) -> LoaderState {
        self.progress.lock().at
    }

    /// Goes to a place: the next [`iter`](Self::iter) begins there.
    ///
    /// # Errors
    /// When the epoch has fewer batches.
    pub fn set_state(&self, state: LoaderState) -> Result<()> {
        let n = self.len() as u64;
        if state.position > n {
            let position = state.position;
            return Err(Error::Setting(format!(
                "DataLoader: batch {position} of an epoch of {n} batches; was the state saved with \
                 other data or another batch size?"
            )));
        }
        let mut progress = self.progress.lock();
        progress.at = state;
        progress.set = true;
        // An epoch that was begun before has nothing to say any more.
        progress.newest += 1;
        Ok(())
    }

    /// The rows of each batch of an epoch, as they are handed out.
    pub fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
        let order = self.source.order(epoch);
        let rows = |k| self.source.rows_of(&order, k);
        (0..self.len()).map(rows).collect()
    }

    /// The next epoch: that after the one begun last, however far that one went, or the rest of
    /// that which was [set](Self::set_state).
    pub fn iter(&self) -> Epoch {
        let transform = self.transform.clone();
        Epoch(self.iter_with(self.prefetch, move |batch| {
            let tensors = batch.tensors()?;
            let Some(transform) = &transform else {
                return Ok(tensors);
            };
            let tensors = transform(tensors, &mut batch.generator())?;
            Tensor::realize_all(&tensors)?;
            Ok(tensors)
        }))
    }

    /// Like [`iter`](Self::iter), with values that `make` makes of batches, up to `prefetch` of them
    /// ahead on a helper thread.
    pub fn iter_with<T: Send + 'static>(
        &self,
        prefetch: usize,
        make: impl Fn(&Batch) -> T + Send + Sync + 'static,
    ) -> Batches<T> {
        let n = self.len() as u64;
        let (at, number) = {
            let mut progress = self.progress.lock();
            // One that was left in the middle counts as an epoch, unless it is to go on. A place
            // behind the last batch is that before the first of the next epoch.
            let LoaderState { epoch, position } = progress.at;
            if position > 0 && (!progress.set || position >= n) {
                progress.at = LoaderState {
                    epoch: epoch.wrapping_add(1),
                    position: 0,
                };
            }
            progress.set = false;
            progress.newest += 1;
            (progress.at, progress.newest)
        };
        let work = Arc::new(Work {
            source: self.source.clone(),
            order: self.source.order(at.epoch),
            epoch: at.epoch,
            make,
        });
        let next = at.position as usize;
        let mut theirs = next..self.len();
        let mut batches = Batches {
            here: work.clone(),
            ahead: None,
            left: theirs.clone(),
            epoch: at.epoch,
            progress: self.progress.clone(),
            number,
        };
        if prefetch > 0 && !theirs.is_empty() {
            let engine = entered_engine();
            let ahead = Ahead::start(prefetch, move || {
                let k = theirs.next()?;
                let _off = no_grad();
                Some(match &engine {
                    Some(engine) => with_engine(engine, || work.batch(k)),
                    None => work.batch(k),
                })
            });
            // Without a thread to be had, each batch is made when it is asked for.
            batches.ahead = ahead.ok();
        }
        batches
    }
}

/// A batch that is to be made.
pub struct Batch<'a> {
    source: &'a Source,
    epoch: u64,
    index: usize,
    rows: Vec<usize>,
}

impl Batch<'_> {
    /// The rows of the arrays, in the batch's order.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Those rows of each array.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn tensors(&self) -> Result<Vec<Tensor>> {
        let arrays = self.source.arrays.iter();
        arrays.map(|array| array.take(&self.rows)).collect()
    }

    /// Random numbers that are the same for the same batch of the same epoch under the same seed.
    pub fn generator(&self) -> Generator {
        let seed = self.source.seed_of(self.epoch);
        let index = (self.index as u64).wrapping_add(1).wrapping_mul(MIX);
        // Not those that decide the order.
        Generator::new(!seed ^ index.rotate_left(32))
    }
}

impl Source {
    fn batches(&self) -> usize {
        match self.drop_last {
            true => self.rows / self.batch_size,
            false => self.rows.div_ceil(self.batch_size),
        }
    }

    /// The places of batch k in the order.
    fn places(&self, k: usize) -> Range<usize> {
        let first = k * self.batch_size;
        first..self.rows.min(first.saturating_add(self.batch_size))
    }

    fn seed_of(&self, epoch: u64) -> u64 {
        let epoch = epoch.wrapping_add(1).wrapping_mul(MIX);
        self.shuffle.unwrap_or(0).wrapping_add(epoch)
    }

    /// The order of an epoch's rows, if it is not that of the arrays.
    fn order(&self, epoch: u64) -> Option<Vec<usize>> {
        self.shuffle?;
        Some(Generator::new(self.seed_of(epoch)).permutation(self.rows))
    }

    fn rows_of(&self, order: &Option<Vec<usize>>, k: usize) -> Vec<usize> {
        let places = self.places(k);
        match order {
            Some(order) => order[places].to_vec(),
            None => places.collect(),
        }
    }
}

impl Array {
    fn take(&self, rows: &[usize]) -> Result<Tensor> {
        let size = self.row.iter().product::<usize>() * self.dtype.size();
        let bytes = self.memory.as_bytes();
        let mut taken = Vec::with_capacity(rows.len() * size);
        for &row in rows {
            taken.extend_from_slice(&bytes[row * size..(row + 1) * size]);
        }
        let shape = [&[rows.len()], &self.row[..]].concat();
        Tensor::from_bytes(&taken, self.dtype, shape)
    }
}

/// How the batches of an epoch are made.
struct Work<F> {
    source: Arc<Source>,
    order: Option<Vec<usize>>,
    epoch: u64,
    make: F,
}

/// [`Work`] of any function.
trait Make<T>: Send + Sync {
    fn batch(&self, k: usize) -> T;
}

impl<T, F: Fn(&Batch) -> T + Send + Sync> Make<T> for Work<F> {
    fn batch(&self, k: usize) -> T {
        (self.make)(&Batch {
            source: &self.source,
            epoch: self.epoch,
            index: k,
            rows: self.source.rows_of(&self.order, k),
        })
    }
}

/// What is made of the batches of an epoch, one after the other. Dropping it early ends the helper
/// thread.
pub struct Batches<T> {
    here: Arc<dyn Make<T>>,
    ahead: Option<Ahead<T>>,
    /// Those that were not handed out.
    left: Range<usize>,
    epoch: u64,
    progress: Arc<Mutex<Progress>>,
    /// Its number among the epochs of the loader.
    number: u64,
}

impl<T: Send + 'static> Batches<T> {
    /// The number of the epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many batches of the epoch were handed out, by this iterator and before it.
    pub fn position(&self) -> u64 {
        self.left.start as u64
    }

    fn advance(&mut self) -> Result<Option<T>> {
        let Some(k) = self.left.clone().next() else {
            self.ahead = None;
            return Ok(None);
        };
        // A process that was forked in the middle of an epoch has no helper, and goes on without.
        if self.ahead.as_ref().is_some_and(Ahead::is_orphan) {
            self.ahead = None;
        }
        let value = match &mut self.ahead {
            Some(ahead) => ahead
                .next()?
                .expect("the helper makes all batches that are left"),
            None => {
                let _off = no_grad();
                self.here.batch(k)
            }
        };
        self.left.start = k + 1;
        let mut progress = self.progress.lock();
        if progress.newest == self.number {
            progress.at = match self.left.is_empty() {
                false => LoaderState {
                    epoch: self.epoch,
                    position: self.left.start as u64,
                },
                true => LoaderState {
                    epoch: self.epoch.wrapping_add(1),
                    position: 0,
                },
            };
        }
        Ok(Some(value))
    }
}

impl<T: Send + 'static> Iterator for Batches<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.advance().transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.len(), Some(self.left.len()))
    }
}

/// The batches of an epoch: a list of tensors each, in the order of the arrays.
pub struct Epoch(Batches<Result<Vec<Tensor>>>);

impl Epoch {
    /// The number of the epoch, from 0.
    pub fn number(&self) -> u64 {
        self.0.epoch()
    }

    /// How many batches of the epoch were handed out, by this iterator and before it.
    pub fn position(&self) -> u64 {
        self.0.position()
    }
}

impl Iterator for Epoch {
    type Item = Result<Vec<Tensor>>;

    fn next(&mut self) -> Option<Result<Vec<Tensor>>> {
        self.0.next().map(Result::flatten)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl IntoIterator for &DataLoader {
    type Item = Result<Vec<Tensor>>;
    type IntoIter = Epoch;

    fn into_iter(self) -> Epoch {
        self.iter()
    }
}
