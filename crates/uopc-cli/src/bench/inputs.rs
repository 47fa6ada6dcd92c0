//! The numbers that a workload starts from: read from raw files, or random with a fixed seed.
//!
//! Files are those that the scripts of the other frameworks write (`bench/peers`): a folder for each
//! set of inputs, in it `NAME.f32` or `NAME.i32`, little-endian, row-major. With them two frameworks
//! compute the same thing, which their `check` values show.

use std::f64::consts::TAU;
use std::fs;
use std::path::{Path, PathBuf};

use uopc::Tensor;

use crate::failure::{Failure, Result};

/// What the elements of an input are, where no file says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Normal numbers with mean 0 and this standard deviation.
    Normal(f64),
    /// Normal numbers with mean 1 and this standard deviation.
    AroundOne(f64),
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// Integers from 0 on that are below this.
    Below(usize),
}

/// An input that a workload asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Its name, and that of its file.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Its elements.
    pub fill: Fill,
}

impl Spec {
    /// An input of that name.
    pub fn new(name: impl Into<String>, shape: &[usize], fill: Fill) -> Spec {
        Spec {
            name: name.into(),
            shape: shape.to_vec(),
            fill,
        }
    }
}

/// Where inputs come from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// A folder of folders of files; without one inputs are random.
    pub folder: Option<PathBuf>,
}

impl Source {
    /// The inputs of a workload; `set` is the name of their folder.
    ///
    /// # Errors
    /// When a file is missing or has another length.
    pub fn load(&self, set: &str, specs: Vec<Spec>) -> Result<Inputs> {
        let load = |(k, spec): (usize, Spec)| {
            let values = match &self.folder {
                Some(folder) => read(&folder.join(set), &spec)?,
                None => random(&spec, k as u64),
            };
            Ok((spec, values))
        };
        let inputs = specs.into_iter().enumerate().map(load);
        Ok(Inputs(inputs.collect::<Result<_>>()?))
    }
}

/// The elements of an input.
#[derive(Clone, Debug, PartialEq)]
enum Values {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

/// The inputs of a workload, in host memory.
#[derive(Clone, Debug)]
pub struct Inputs(Vec<(Spec, Values)>);

impl Inputs {
    /// The input of that name as a tensor.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let found = self.0.iter().find(|(spec, _)| spec.name == name);
        let (spec, values) = found.expect("a workload reads the inputs that it asks for");
        Ok(match values {
            Values::F32(values) => Tensor::from_slice(values, &spec.shape)?,
            Values::I32(values) => Tensor::from_slice(values, &spec.shape)?,
        })
    }

    /// The inputs but those with these names as parameters, with their names, in order.
    ///
    /// # Errors
    /// When memory runs out.
    pub fn parameters(&self, but: &[&str]) -> Result<Vec<(String, Tensor)>> {
        let names = self.0.iter().map(|(spec, _)| &spec.name[..]);
        let names = names.filter(|name| !but.contains(name));
        let parameter = |name: &str| Ok((name.into(), self.tensor(name)?.requires_grad()?));
        names.map(parameter).collect()
    }
}

fn read(folder: &Path, spec: &Spec) -> Result<Values> {
    let integers = matches!(spec.fill, Fill::Below(_));
    let extension = if integers { "i32" } else { "f32" };
    let path = folder.join(format!("{}.{extension}", spec.name));
    let unable = |e| Failure::file(&path, "can't be read; bench/peers/dump.py writes it", &e);
    let bytes = fs::read(&path).map_err(unable)?;
    let n: usize = spec.shape.iter().product();
    if bytes.len() != 4 * n {
        return Err(Failure::failed(format!(
            "{}: {} bytes, but {:?} of 4 bytes each are {}",
            path.display(),
            bytes.len(),
            spec.shape,
            4 * n
        )));
    }
    let (words, _) = bytes.as_chunks();
    Ok(match integers {
        true => Values::I32(words.iter().map(|&w| i32::from_le_bytes(w)).collect()),
        false => Values::F32(words.iter().map(|&w| f32::from_le_bytes(w)).collect()),
    })
}

fn random(spec: &Spec, seed: u64) -> Values {
    let n: usize = spec.shape.iter().product();
    let mut numbers = Numbers(seed);
    match spec.fill {
        Fill::Normal(deviation) => Values::F32(numbers.normal(n, 0.0, deviation)),
        Fill::AroundOne(deviation) => Values::F32(numbers.normal(n, 1.0, deviation)),
        Fill::Zeros => Values::F32(vec![0.0; n]),
        Fill::Ones => Values::F32(vec![1.0; n]),
        Fill::Below(limit) => {
            let one = |_| (numbers.next() % limit as u64) as i32;
            Values::I32((0..n).map(one).collect())
        }
    }
}

/// Random numbers that other parts of the project do not share, so that they stay what they are:
/// splitmix64 by Steele, Lea and Flood.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly distributed over (0, 1].
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Normal numbers, two at a time, after Box and Muller.
    fn normal(&mut self, n: usize, mean: f64, deviation: f64) -> Vec<f32> {
        let mut values = Vec::with_capacity(n + 1);
        while values.len() < n {
            let radius = deviation * (-2.0 * self.share().ln()).sqrt();
            let (sin, cos) = (TAU * self.share()).sin_cos();
            values.push((mean + radius * cos) as f32);
            values.push((mean + radius * sin) as f32);
        }
        values.truncate(n);
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_their_mean_and_deviation() {
        let values = Numbers(7).normal(40_001, 1.0, 0.5);
        assert_eq!(values.len(), 40_001);
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / 40_001.0;
        let square = |v: &f32| (f64::from(*v) - mean).powi(2);
        let deviation = (values.iter().map(square).sum::<f64>() / 40_001.0).sqrt();
        // Five standard errors: 0.5 / sqrt(40,001) of the mean, less of the deviation.
        assert!((mean - 1.0).abs() < 0.0125, "{mean}");
        assert!((deviation - 0.5).abs() < 0.0125, "{deviation}");
    }

    #[test]
    fn files_are_read_and_their_length_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let set = folder.path().join("set");
        fs::create_dir(&set).unwrap();
        let bytes: Vec<u8> = [1.5f32, -2.0]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        fs::write(set.join("a.f32"), bytes).unwrap();
        fs::write(set.join("ids.i32"), [3, 0, 0, 0]).unwrap();
        let source = Source {
            folder: Some(folder.path().to_path_buf()),
        };
        let specs = vec![
            Spec::new("a", &[2], Fill::Normal(1.0)),
            Spec::new("ids", &[1], Fill::Below(9)),
        ];
        let inputs = source.load("set", specs).unwrap();
        assert_eq!(
            inputs.tensor("a").unwrap().to_vec::<f32>().unwrap(),
            [1.5, -2.0]
        );
        assert_eq!(inputs.tensor("ids").unwrap().to_vec::<i32>().unwrap(), [3]);
        let longer = vec![Spec::new("a", &[3], Fill::Ones)];
        let text = source.load("set", longer).unwrap_err().to_string();
        assert!(
            text.contains("8 bytes, but [3] of 4 bytes each are 12"),
            "{text}"
        );
        let other = vec![Spec::new("b", &[3], Fill::Ones)];
        let text = source.load("set", other).unwrap_err().to_string();
        assert!(text.contains("b.f32") && text.contains("dump.py"), "{text}");
    }
}
