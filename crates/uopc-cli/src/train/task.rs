//! What can be learned, from which data, by which model.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use uopc::data::{Labelled, digits, mnist};
use uopc::io::idx;

use crate::failure::{Failure, Result};

/// What is learned.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// The 1,797 handwritten digits that come with the program, 8 x 8 pixels each.
    Digits,
    /// Data in the form of MNIST, which the user has in a folder.
    Mnist,
}

/// What learns it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Layers that are fully connected.
    Mlp,
    /// Convolutions and pooling.
    Cnn,
}

impl Task {
    /// All tasks.
    pub const ALL: [Task; 2] = [Task::Digits, Task::Mnist];

    /// Its name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Task::Digits => "digits",
            Task::Mnist => "mnist",
        }
    }

    /// What the models are models of.
    pub fn words(self) -> &'static str {
        match self {
            Task::Digits => "the digits",
            Task::Mnist => "MNIST",
        }
    }

    /// What a plot is called.
    pub fn title(self) -> &'static str {
        match self {
            Task::Digits => "Handwritten digits",
            Task::Mnist => "MNIST",
        }
    }

    /// Pixels of an image.
    pub fn pixels(self) -> usize {
        match self {
            Task::Digits => digits::PIXELS,
            Task::Mnist => mnist::SIDE * mnist::SIDE,
        }
    }

    /// How many images are tested at a time: all, where that is few.
    pub fn test_batch(self) -> usize {
        match self {
            Task::Digits => usize::MAX,
            Task::Mnist => 500,
        }
    }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 2] = [Kind::Mlp, Kind::Cnn];

    /// Its name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mlp => "mlp",
            Kind::Cnn => "cnn",
        }
    }
}

/// A task with the place of its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// What is learned.
    pub task: Task,
    /// The folder with the data, if it does not come with the program.
    pub data: Option<PathBuf>,
}

/// Images for training and those for the test.
#[derive(Clone, Debug)]
pub struct Data {
    /// What is trained with.
    pub train: Labelled,
    /// What is not.
    pub test: Labelled,
}

impl Source {
    /// The digits that come with the program.
    pub const DIGITS: Source = Source {
        task: Task::Digits,
        data: None,
    };

    fn folder(&self) -> Result<&Path> {
        let name = self.task.name();
        self.data.as_deref().ok_or_else(|| {
            Failure::usage(format!(
                "{name} needs --data DIR, a folder with the four files of MNIST, such as \
                 train-images-idx3-ubyte.gz"
            ))
        })
    }

    /// How many images there are to train with, which needs no look at them.
    ///
    /// # Errors
    /// When the data is not there or can't be read.
    pub fn images(&self) -> Result<usize> {
        match self.task {
            Task::Digits => Ok(digits::load()?.train.len()),
            Task::Mnist => {
                let (_, labels) = mnist::files(self.folder()?, mnist::TRAIN)?;
                Ok(idx::load_bytes(labels, 1)?.shape[0])
            }
        }
    }

    /// All of it.
    ///
    /// # Errors
    /// When the data is not there or can't be read, or its images have other sizes than the models
    /// take.
    pub fn load(&self) -> Result<Data> {
        let (train, test) = match self.task {
            Task::Digits => {
                let data = digits::load()?;
                (data.train, data.test)
            }
            Task::Mnist => {
                let data = mnist::load(self.folder()?)?;
                (data.train, data.test)
            }
        };
        let (found, wanted) = (train.width, self.task.pixels());
        if found != wanted {
            let folder = self.folder()?.display();
            return Err(Failure::failed(format!(
                "{folder}: images of {found} pixels, but the models take {wanted}"
            )));
        }
        if test.is_empty() {
            let folder = self.folder()?.display();
            return Err(Failure::failed(format!("{folder}: no images to test with")));
        }
        Ok(Data { train, test })
    }
}
