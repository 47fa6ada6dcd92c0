//! What `uopc bench` times has the same bits for every schedule, with and without the search over
//! layouts, for any number of threads, run after run, and they are the interpreter's.
//!
//! Every workload has a test of its name, on sizes that the interpreter can do: odd, so that tiles and
//! vectors have tails, and large enough that products are tiled and threads share them. Where
//! UOPC_DEEP is set, its own sizes are computed with 1 to 4 threads, too.
//!
//! Products of bf16 have bits of their own where the processor multiplies tiles of them: the interpreter
//! judges them without tiles, and with tiles their runs are compared with each other.

use std::mem::discriminant;
use std::path::Path;
use std::sync::Arc;

use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Schedule, Settings};
use uopc::machine::Machine;
use uopc::tensor::with_engine;
use uopc::{DType, Tensor};
use uopc_cli::bench::inputs::{Inputs, Source};
use uopc_cli::bench::models::{Cnn, Gpt, MLP, Mlp, NANO, SMALL, TINY};
use uopc_cli::bench::ratio::Chain;
use uopc_cli::bench::single::{Attention, Convolution, Layout, Product, Rows, Table};
use uopc_cli::bench::{Kind, WORKLOADS, Workload};
use uopc_cli::failure::Result;

/// Steps of a training run: the second one reads what the first one has updated.
const STEPS: usize = 2;

/// Declares a test for each workload, and the list of their names.
macro_rules! workloads {
    ($($name:ident: $small:expr,)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name), $small);
            }
        )*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

const fn product([m, k, n]: [usize; 3], layout: Layout) -> Kind {
    Kind::Product(Product {
        batch: 1,
        m,
        k,
        n,
        layout,
        bf16: false,
    })
}

const fn attention([batch, heads, length, size]: [usize; 4], gradient: bool) -> Kind {
    Kind::Attention(Attention {
        batch,
        heads,
        length,
        size,
        gradient,
    })
}

const SMALL_CONVOLUTION: Convolution = Convolution {
    images: 3,
    channels: 6,
    filters: 10,
    side: 21,
    gradient: false,
};

const SMALL_MLP: Mlp = Mlp {
    sizes: &[97, 83, 41, 10],
    batch: 67,
    ..MLP
};

const SMALL_NANO: Gpt = Gpt {
    layers: 1,
    heads: 2,
    width: 38,
    length: 29,
    batch: 4,
    vocabulary: 31,
    ..NANO
};

const SMALL_CNN: Cnn = Cnn {
    images: 5,
    side: 24,
    filters: [[6, 1, 5], [7, 6, 5], [9, 7, 3], [10, 9, 3]],
    classes: 10,
};

const fn chain(rows: usize, columns: usize, norm: bool) -> Kind {
    Kind::ChainRatio(Chain {
        rows: Rows { rows, columns },
        length: 3,
        norm,
    })
}

workloads! {
    matmul_256: product([97, 131, 61], Layout::Plain),
    matmul_512: product([130, 67, 90], Layout::Plain),
    matmul_1024: product([101, 103, 107], Layout::Plain),
    matmul_2048: product([211, 53, 149], Layout::Plain),
    matmul_1000x777x333: product([199, 155, 67], Layout::Plain),
    // More than 4,096 summed elements are summed in blocks.
    matmul_64x4096x64: product([13, 4611, 11], Layout::Plain),
    matmul_4096x64x64: product([1029, 33, 35], Layout::Plain),
    matmul_1x4096x4096: product([1, 811, 917], Layout::Plain),
    matmul_batched_96x64x64x32: Kind::Product(Product {
        batch: 13,
        m: 33,
        k: 31,
        n: 41,
        layout: Layout::Plain,
        bf16: false,
    }),
    matmul_tn_1024: product([107, 77, 93], Layout::LeftTransposed),
    matmul_nt_1024: product([107, 77, 93], Layout::RightTransposed),
    // Tiles are used from 2^24 multiply-adds on.
    matmul_bf16_1024: Kind::Product(Product {
        batch: 1,
        m: 259,
        k: 261,
        n: 253,
        layout: Layout::Plain,
        bf16: true,
    }),
    elementwise_16m: Kind::Elementwise(600_011),
    sort_1m: Kind::Sort(30_011),
    cumsum_10m: Kind::RunningSum(300_007),
    softmax_4096x1024: Kind::Softmax(Rows { rows: 203, columns: 333 }),
    softmax_fwd_bwd: Kind::SoftmaxGradient(Rows { rows: 37, columns: 4201 }),
    layernorm_fwd_bwd: Kind::LayerNorm(Rows { rows: 4133, columns: 29 }),
    conv2d_fwd: Kind::Convolution(SMALL_CONVOLUTION),
    conv2d_fwd_bwd: Kind::Convolution(Convolution { gradient: true, ..SMALL_CONVOLUTION }),
    attention_nano: attention([3, 4, 61, 20], false),
    attention_small: attention([2, 3, 93, 28], false),
    attention_2048: attention([1, 2, 263, 24], false),
    attention_2048_fwd_bwd: attention([1, 2, 131, 24], true),
    embedding_bwd: Kind::Embedding(Table { rows: 1013, columns: 83, reads: 2111 }),
    mlp_step: Kind::MlpStep(SMALL_MLP),
    tiny_step: Kind::MlpStep(TINY),
    cnn_step: Kind::CnnStep(SMALL_CNN),
    gpt_nano_step: Kind::GptStep(SMALL_NANO),
    gpt_small_step: Kind::GptStep(Gpt {
        layers: 1,
        heads: 3,
        width: 51,
        length: 41,
        batch: 3,
        ..SMALL
    }),
    grad_ratio_gpt_nano: Kind::GptRatio(SMALL_NANO),
    grad_ratio_block: Kind::BlockRatio(SMALL_NANO),
    grad_ratio_mlp: Kind::MlpRatio(SMALL_MLP),
    grad_ratio_cnn: Kind::CnnRatio(SMALL_CNN),
    grad_ratio_softmax: chain(101, 333, false),
    grad_ratio_layernorm: chain(133, 229, true),
    hvp_mlp: Kind::MlpHvp(SMALL_MLP),
}

#[test]
fn every_workload_has_a_test() {
    let all: Vec<&str> = WORKLOADS.iter().map(|w| w.name).collect();
    assert_eq!(NAMES, all);
}

/// A result of a run, or what it has made of a parameter.
struct Value {
    name: String,
    dtype: DType,
    bytes: Vec<u8>,
}

impl Value {
    fn of(name: String, t: &Tensor) -> Result<Value> {
        Ok(Value {
            name,
            dtype: t.dtype(),
            bytes: t.to_bytes()?,
        })
    }

    /// An element, as a number and its bits.
    fn element(&self, k: usize) -> String {
        let size = self.dtype.size();
        let bytes = &self.bytes[k * size..(k + 1) * size];
        let bits = bytes
            .iter()
            .rev()
            .fold(0u32, |bits, &b| bits << 8 | u32::from(b));
        let value = match self.dtype {
            DType::BF16 => f32::from_bits(bits << 16),
            _ => f32::from_bits(bits),
        };
        format!("{value:e} ({bits:#x})")
    }
}

/// Begins anew and takes the steps: all results of each, then what they have changed.
fn run(workload: &Workload, inputs: &Inputs, engine: &Arc<Engine>) -> Result<Vec<Value>> {
    with_engine(engine, || {
        let mut case = workload.begin(inputs)?;
        let mut values = Vec::new();
        let steps = if case.state.is_empty() { 1 } else { STEPS };
        for step in 1..=steps {
            // No result outlives its step: the next one would find it computed.
            let results = (case.step)()?;
            assert_eq!(results.len(), case.results.len(), "{}", workload.name);
            for (name, t) in case.results.iter().zip(&results) {
                values.push(Value::of(format!("{name} of step {step}"), t)?);
            }
        }
        if let Some(forward) = &mut case.forward {
            for t in forward()? {
                values.push(Value::of("the result of the forward pass".into(), &t)?);
            }
        }
        for (name, t) in &case.state {
            values.push(Value::of(format!("parameter {name}"), t)?);
        }
        Ok(values)
    })
}

/// A run with settings in words.
struct Run {
    how: String,
    values: Vec<Value>,
}

impl Run {
    fn new(how: &str, workload: &Workload, inputs: &Inputs, engine: &Arc<Engine>) -> Run {
        let name = workload.name;
        let values = run(workload, inputs, engine);
        Run {
            how: how.into(),
            values: values.unwrap_or_else(|e| panic!("{name}, {how}: {e}")),
        }
    }

    /// Fails at the first bit that is not that of the other run.
    fn assert_equals(&self, other: &Run, name: &str) {
        assert_eq!(self.values.len(), other.values.len(), "{name}");
        for (a, b) in self.values.iter().zip(&other.values) {
            assert_eq!((&a.name, a.dtype), (&b.name, b.dtype), "{name}");
            assert_eq!(a.bytes.len(), b.bytes.len(), "{name}, {}", a.name);
            let size = a.dtype.size();
            let pairs = a.bytes.chunks_exact(size).zip(b.bytes.chunks_exact(size));
            let different: Vec<usize> = pairs
                .enumerate()
                .filter(|(_, (a, b))| a != b)
                .map(|(k, _)| k)
                .collect();
            if let Some(&k) = different.first() {
                panic!(
                    "{name}: {} differs in {} of {} elements, first in element {k}:\n  {} with {}\n  {} with {}",
                    a.name,
                    different.len(),
                    a.bytes.len() / size,
                    a.element(k),
                    self.how,
                    b.element(k),
                    other.how,
                );
            }
        }
    }
}

fn engine(settings: &Settings) -> Arc<Engine> {
    Arc::new(Engine::new(settings.clone()).unwrap())
}

/// Engines with other numbers of threads may share a folder: it finds machine code by the whole text
/// of its source, so they share what is equal, and compiling is what takes time here.
fn threads(n: usize, machine: Machine, folder: &Path) -> Settings {
    Settings {
        device: DeviceChoice::C,
        threads: Some(n),
        cache_dir: Some(folder.to_path_buf()),
        machine,
        ..Settings::default()
    }
}

/// Asserts that all runs on a machine have the bits of the first one, or of `expected`.
fn compare(workload: &Workload, inputs: &Inputs, machine: Machine, expected: Option<&Run>) {
    let name = workload.name;
    let [folder, choices] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let scheduled = |n: usize| threads(n, machine, folder.path());
    let searched = Settings {
        search: 3,
        ..threads(2, machine, choices.path())
    };
    let mut kinds: Vec<(&str, Settings)> = vec![
        ("1 thread", scheduled(1)),
        ("2 threads", scheduled(2)),
        ("3 threads", scheduled(3)),
        ("4 threads", scheduled(4)),
        ("a search", searched.clone()),
        ("the choices of the search from disk", searched),
    ];
    if expected.is_some() {
        let plain = Settings {
            schedule: Schedule::Plain,
            ..scheduled(1)
        };
        kinds.push(("plain loops", plain));
    }
    let mut first: Option<Run> = None;
    for (how, settings) in &kinds {
        let engine = engine(settings);
        for again in ["", ", again"] {
            let run = Run::new(&format!("{how}{again}"), workload, inputs, &engine);
            if let Some(expected) = expected.or(first.as_ref()) {
                run.assert_equals(expected, name);
            }
            first.get_or_insert(run);
        }
    }
}

/// Compares all ways to compute a workload: in small, and as it is for a deep test.
fn check(name: &'static str, small: Kind) {
    let own = WORKLOADS.iter().find(|w| w.name == name).unwrap();
    assert_eq!(discriminant(&own.kind), discriminant(&small), "{name}");
    let bf16 = |kind: &Kind| matches!(kind, Kind::Product(Product { bf16: true, .. }));
    let native = Machine::native();
    let exact = Machine {
        bf16_dot: false,
        bf16_tiles: false,
        ..native
    };
    let workload = Workload {
        kind: small,
        ..Workload { ..*own }
    };
    let inputs = workload.inputs(&Source::default()).unwrap();
    let interp = Settings {
        device: DeviceChoice::Interp,
        machine: exact,
        ..Settings::default()
    };
    let expected = Run::new("the interpreter", &workload, &inputs, &engine(&interp));
    compare(&workload, &inputs, exact, Some(&expected));
    if bf16(&workload.kind) && native != exact {
        compare(&workload, &inputs, native, None);
    }
    if std::env::var_os("UOPC_DEEP").is_some() {
        let inputs = own.inputs(&Source::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut first: Option<Run> = None;
        for n in 1..=4 {
            let engine = engine(&threads(n, native, folder.path()));
            let run = Run::new(&format!("{n} threads"), own, &inputs, &engine);
            if let Some(first) = &first {
                run.assert_equals(first, name);
            }
            first.get_or_insert(run);
        }
    }
}
