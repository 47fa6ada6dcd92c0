//! Large products of bf16 by dot products of pairs: chains in which numbers below the normal ones are 0, bit
//! for bit, whatever the threads and the layout, with the instruction and without it.

#[path = "support/engines.rs"]
mod engines;

use engines::{Slots, c_device_in, run_compiled};
use half::bf16;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uopc::backend::c::render::render;
use uopc::compile::{Engine, RealizeOptions, lower};
use uopc::debug::{DeviceChoice, Schedule, Settings};
use uopc::interp::Array;
use uopc::machine::Machine;
use uopc::pass::linearize::linearize;
use uopc::pass::pipeline::Lowered;
use uopc::pass::schedule::choice::choices;
use uopc::pass::simplify::simplify_loops;
use uopc::runtime::{Code, Device};
use uopc::{DType, Tensor};

fn settings(threads: usize) -> Settings {
    Settings {
        device: DeviceChoice::C,
        threads: Some(threads),
        machine: Machine::avx512_bf16(),
        ..Settings::default()
    }
}

/// A machine that has no instruction for pairs.
fn plain(settings: Settings) -> Settings {
    Settings {
        schedule: Schedule::Plain,
        machine: Machine::avx512(),
        ..settings
    }
}

/// The bytes of a tensor's value.
fn bytes(t: &Tensor, settings: Settings) -> Vec<u8> {
    let engine = Engine::new(settings).unwrap();
    let roots = [t.uop().clone()];
    let got = engine.realize(&roots, &RealizeOptions::default()).unwrap();
    t.uop().clear_home();
    got.outputs[0].as_bytes().to_vec()
}

fn elements(bytes: &[u8]) -> Vec<bf16> {
    let chunks = bytes.chunks_exact(2);
    chunks.map(|c| bf16::from_le_bytes([c[0], c[1]])).collect()
}

fn lowered(t: &Tensor, machine: Machine) -> Lowered {
    let settings = Settings {
        machine,
        ..settings(2)
    };
    lower(&[t.uop().clone()], None, &settings).unwrap()
}

/// The C of a product.
fn text(t: &Tensor, machine: Machine) -> String {
    let lowered = lowered(t, machine);
    lowered
        .launches
        .iter()
        .map(|l| render(&l.program))
        .collect()
}

fn has_dots(text: &str) -> bool {
    text.contains("dot_bf16_f32x16(")
}

/// Numbers in memory.
fn numbers(shape: &[usize], mut draw: impl FnMut() -> bf16) -> Tensor {
    let n = shape.iter().product();
    let values: Vec<bf16> = (0..n).map(|_| draw()).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

/// Numbers around 1.
fn ordinary(rng: &mut StdRng) -> impl FnMut() -> bf16 + '_ {
    || bf16::from_f32(rng.random_range(-1.0..1.0))
}

/// Numbers whose products are subnormal as often as not, and some that are subnormal themselves.
fn tiny(rng: &mut StdRng) -> impl FnMut() -> bf16 + '_ {
    || {
        let exponent = match rng.random_range(0..8) {
            0 => rng.random_range(0..3),
            _ => rng.random_range(60..68),
        };
        bf16::from_bits(rng.random::<u16>() & 0x807f | exponent << 7)
    }
}

/// A subnormal number as 0.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() {
        0.0f32.copysign(x)
    } else {
        x
    }
}

/// One multiply-add as AVX512-BF16 documents it: rounded once; operands that are subnormal are 0, and so is a
/// result that is before its exponent is limited.
fn multiply_add(a: bf16, b: bf16, sum: f32) -> f32 {
    let (a, b, sum) = (flushed(a.to_f32()), flushed(b.to_f32()), flushed(sum));
    let made = a.mul_add(b, sum);
    // A sum that reaches the least normal number by rounding is as if it had 24 digits below it.
    let scale = 2f32.powi(64);
    let scaled = (a * scale).mul_add(b, sum * scale);
    match made.abs() == f32::MIN_POSITIVE && scaled.abs() < f32::MIN_POSITIVE * scale {
        true => 0.0f32.copysign(made),
        false => flushed(made),
    }
}

/// The chain: k in order, begun again every 4096 elements, partial sums added in order.
fn chain(pairs: impl Iterator<Item = (bf16, bf16)>) -> f32 {
    let pairs: Vec<_> = pairs.collect();
    let block = |block: &[(bf16, bf16)]| {
        let products = block.iter();
        products.fold(0.0, |sum, &(a, b)| multiply_add(a, b, sum))
    };
    pairs
        .chunks(4096)
        .map(block)
        .fold(-0.0, |all, sum| all + sum)
}

/// A product, and what its elements are made of.
struct Product {
    t: Tensor,
    a: Vec<bf16>,
    b: Vec<bf16>,
    /// Products in the batch, rows, elements of k, columns.
    size: [usize; 4],
    turned: [bool; 2],
}

impl Product {
    fn new(
        size: [usize; 4],
        turned: [bool; 2],
        mut draw: impl FnMut() -> bf16,
    ) -> uopc::Result<Product> {
        let [batch, m, k, n] = size;
        let mut values = |n: usize| (0..n).map(|_| draw()).collect::<Vec<bf16>>();
        let (a, b) = (values(batch * m * k), values(batch * k * n));
        Product::of(size, turned, a, b)
    }

    /// One whose sums are what rounding leaves of zero, so that bf16 shows their last digits: what is summed
    /// first is taken away at the end.
    fn of_nothing(size: [usize; 4], turned: [bool; 2], rng: &mut StdRng) -> uopc::Result<Product> {
        let [_, m, k, n] = size;
        let Product { mut a, mut b, .. } = Product::new(size, turned, ordinary(rng))?;
        for (o, values, [rows, columns]) in [(0, &mut a, [m, k]), (1, &mut b, [k, n])] {
            for e in 0..values.len() {
                let (place, l) = element(e, turned[o], [rows, columns], o == 0);
                if 2 * l >= k {
                    values[e] = match (o, 2 * l + 1 == k) {
                        (_, true) => bf16::ZERO,
                        (0, _) => values[place(k - 1 - l)],
                        _ => -values[place(k - 1 - l)],
                    };
                }
            }
        }
        Product::of(size, turned, a, b)
    }

    fn of(
        size: [usize; 4],
        turned: [bool; 2],
        a: Vec<bf16>,
        b: Vec<bf16>,
    ) -> uopc::Result<Product> {
        let [batch, m, k, n] = size;
        let operand = |values: &[bf16], [rows, columns]: [usize; 2], turned: bool| {
            if !turned {
                return Tensor::from_slice(values, [batch, rows, columns]);
            }
            Tensor::from_slice(values, [batch, columns, rows])?.permute([0, 2, 1])
        };
        let left = operand(&a, [m, k], turned[0])?;
        let right = operand(&b, [k, n], turned[1])?;
        Ok(Product {
            t: left.matmul(&right)?,
            a,
            b,
            size,
            turned,
        })
    }

    /// Compares some of the elements with the model.
    fn check(&self, got: &[bf16]) {
        let Product { size, turned, .. } = self;
        let [batch, m, k, n] = *size;
        assert_eq!(got.len(), batch * m * n);
        let mut checked = 0;
        // Primes, so that all places in a tile and all tiles come up, with the first and last.
        for e in (0..got.len()).step_by(97).chain([got.len() - 1]) {
            let (g, i, j) = (e / (m * n), e / n % m, e % n);
            let a = |l| self.a[g * m * k + if turned[0] { l * m + i } else { i * k + l }];
            let b = |l| self.b[g * k * n + if turned[1] { j * k + l } else { l * n + j }];
            let pairs = (0..k).map(|l| (a(l), b(l)));
            let expected = bf16::from_f32(chain(pairs));
            let same = expected == got[e] && expected.to_bits() == got[e].to_bits();
            assert!(
                same || expected.is_nan() && got[e].is_nan(),
                "{size:?} {turned:?}: element {e} is {:e}, not {expected:e}",
                got[e]
            );
            checked += 1;
        }
        assert!(checked > 10);
    }
}

/// Where an element of an operand lies along k, and the places of those that differ from it in that only.
fn element(
    e: usize,
    turned: bool,
    [rows, columns]: [usize; 2],
    k_is_columns: bool,
) -> (impl Fn(usize) -> usize, usize) {
    let depth = if k_is_columns { columns } else { rows };
    // Elements from one k to the next.
    let stride = match k_is_columns != turned {
        true => 1,
        false => rows * columns / depth,
    };
    let l = e / stride % depth;
    (move |other: usize| e - l * stride + other * stride, l)
}

/// Sizes from 2^24 multiply-adds on, with every kind of rest: of rows, of columns, of k (an odd one ends with half
/// a pair), of blocks of k.
const SIZES: &[([usize; 4], [bool; 2])] = &[
    ([1, 256, 256, 256], [false, false]),
    ([1, 257, 259, 261], [false, false]),
    ([1, 257, 259, 261], [true, true]),
    ([1, 250, 777, 111], [false, true]),
    ([1, 70, 4097, 60], [false, false]),
    ([1, 64, 8191, 33], [true, false]),
    ([1, 2, 4099, 2050], [false, false]),
    ([3, 300, 201, 280], [false, false]),
    ([2, 300, 201, 281], [true, true]),
];

#[test]
fn elements_are_chains_whatever_the_threads() {
    let mut rng = StdRng::seed_from_u64(3);
    for &(size, turned) in SIZES {
        let product = Product::of_nothing(size, turned, &mut rng).unwrap();
        let text = text(&product.t, Machine::avx512_bf16());
        assert!(has_dots(&text), "{size:?}: no dot product\n{text}");
        let first = bytes(&product.t, settings(1));
        product.check(&elements(&first));
        // Nothing is subnormal here, so that they are the bits of any chain.
        assert!(first == bytes(&product.t, plain(settings(2))), "{size:?}");
        for threads in 2..=4 {
            let other = bytes(&product.t, settings(threads));
            assert!(first == other, "{size:?}: {threads} threads");
        }
    }
}

#[test]
fn subnormal_numbers_count_as_zero() {
    let mut rng = StdRng::seed_from_u64(5);
    for &(size, turned) in &SIZES[..5] {
        let product = Product::new(size, turned, tiny(&mut rng)).unwrap();
        let got = bytes(&product.t, settings(2));
        product.check(&elements(&got));
        assert!(
            elements(&got)
                .iter()
                .all(|x| x.is_normal() || *x == bf16::ZERO),
            "{size:?}"
        );
        assert!(got == bytes(&product.t, settings(3)), "{size:?}");
        // It is what the documentation says, that such a product differs from the plain loops.
        assert!(got != bytes(&product.t, plain(settings(2))), "{size:?}");
    }
}

#[test]
fn infinities_and_nans_are_those_of_a_chain() {
    let mut rng = StdRng::seed_from_u64(7);
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0];
    let special = special.map(bf16::from_f32);
    let largest = [bf16::MAX, bf16::MIN, bf16::MIN_POSITIVE];
    let mut draw = || match rng.random_range(0..2000) {
        which @ 0..5 => special[which],
        which @ 5..8 => largest[which - 5],
        _ => bf16::from_f32(rng.random_range(-1.0..1.0)),
    };
    for &(size, turned) in &SIZES[1..3] {
        let product = Product::new(size, turned, &mut draw).unwrap();
        let got = elements(&bytes(&product.t, settings(2)));
        let count = |is: fn(bf16) -> bool| got.iter().filter(|x| is(**x)).count();
        assert!(count(bf16::is_nan) > 0 && count(bf16::is_finite) > 0);
        product.check(&got);
    }
    // Signs of zeros: a chain begins at +0.
    let product = Product::new([1, 256, 257, 256], [false; 2], || bf16::from_f32(-0.0)).unwrap();
    let got = elements(&bytes(&product.t, settings(2)));
    assert!(got.iter().all(|x| x.to_bits() == 0));
}

#[test]
fn the_layout_changes_no_bit() {
    let mut rng = StdRng::seed_from_u64(11);
    for (size, turned) in [SIZES[1], SIZES[5]] {
        let product = Product::new(size, turned, tiny(&mut rng)).unwrap();
        let lowered = lowered(&product.t, Machine::avx512_bf16());
        let [launch] = &lowered.launches[..] else {
            panic!("a product is one kernel");
        };
        let array = |values: &[bf16]| {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            Array::from_bytes(DType::BF16, &[values.len()], &bytes).unwrap()
        };
        let given = Slots::from([(0, array(&product.a)), (1, array(&product.b))]);
        let folder = tempfile::tempdir().unwrap();
        let device = c_device_in(folder.path());
        let mut first: Option<Slots> = None;
        let layouts = choices(&launch.plain, &Machine::avx512_bf16(), 8).unwrap();
        assert!(layouts.len() == 8, "{size:?}");
        for (choice, loops) in layouts {
            let loops = simplify_loops(&loops, &Settings::default()).unwrap();
            let program = linearize(&loops).unwrap();
            assert!(has_dots(&render(&program)), "{size:?}: {choice}");
            let code = Code {
                loops: &loops,
                program: &program,
            };
            let code = device.compile(&[code]).unwrap();
            let got = run_compiled(&*code, 0, &loops, &given);
            let [(_, array)] = &got.iter().collect::<Vec<_>>()[..] else {
                panic!("a product has one result");
            };
            product.check(&elements(&array.to_bytes()));
            let same = first.as_ref().is_none_or(|first| *first == got);
            assert!(same, "{size:?}: {choice}");
            first.get_or_insert(got);
        }
    }
}

#[test]
fn a_search_changes_no_bit() {
    let mut rng = StdRng::seed_from_u64(13);
    let product = Product::new(SIZES[3].0, SIZES[3].1, tiny(&mut rng)).unwrap();
    let searching = Settings {
        search: 4,
        ..settings(2)
    };
    assert!(bytes(&product.t, settings(2)) == bytes(&product.t, searching));
}

#[test]
fn compilers_without_the_instruction_give_its_bits() {
    let mut rng = StdRng::seed_from_u64(17);
    let product = Product::new(SIZES[1].0, SIZES[1].1, tiny(&mut rng)).unwrap();
    let expected = bytes(&product.t, settings(2));
    product.check(&elements(&expected));
    #[cfg(target_arch = "x86_64")]
    for without in ["-mno-avx512bf16", "-mno-avx512f"] {
        let settings = Settings {
            cc: Some(format!("cc {without}")),
            ..settings(2)
        };
        assert!(expected == bytes(&product.t, settings), "{without}");
    }
}

#[test]
fn only_large_products_of_bf16_without_tiles_take_dots() {
    let machine = Machine::avx512_bf16();
    let mut rng = StdRng::seed_from_u64(19);
    let mut product = |size| {
        Product::new(size, [false; 2], ordinary(&mut rng))
            .unwrap()
            .t
    };
    let large = product([1, 256, 256, 256]);
    assert!(has_dots(&text(&large, machine)));
    assert!(!has_dots(&text(&large, Machine::avx512())));
    let both = Machine {
        bf16_tiles: true,
        ..machine
    };
    let by_tiles = text(&large, both);
    assert!(!has_dots(&by_tiles) && by_tiles.contains("bf16_tile("));
    for size in [[1, 255, 256, 256], [1, 3, 5, 7], [100, 64, 64, 64]] {
        let small = product(size);
        assert!(!has_dots(&text(&small, machine)), "{size:?}");
        let exact = bytes(&small, plain(settings(1)));
        assert!(exact == bytes(&small, settings(2)), "{size:?}");
    }
    let f32 = Tensor::uniform([256, 256], -1.0, 1.0).unwrap();
    assert!(!has_dots(&text(&f32.matmul(&f32).unwrap(), machine)));
}

/// Rows and columns are so few that the additions to operands are not stored: what is beyond an odd k is 0 and
/// not what they make of a 0.
#[test]
fn prologues_and_epilogues_are_part_of_it() {
    let mut rng = StdRng::seed_from_u64(23);
    let a = numbers(&[31, 17001], ordinary(&mut rng));
    let b = numbers(&[17001, 32], ordinary(&mut rng));
    let bias = numbers(&[32], ordinary(&mut rng));
    let (a, b) = (a.add(1.0).unwrap(), b.add(1.0).unwrap());
    let t = a.matmul(&b).unwrap().add(&bias).unwrap().relu().unwrap();
    let expected = bytes(&t, plain(settings(2)));
    assert_eq!(lowered(&t, Machine::avx512_bf16()).launches.len(), 1);
    for machine in [Machine::avx512_bf16(), Machine::avx512()] {
        let settings = Settings {
            machine,
            ..settings(2)
        };
        assert_eq!(
            has_dots(&text(&t, machine)),
            machine.bf16_dot,
            "{machine:?}"
        );
        assert!(expected == bytes(&t, settings), "{machine:?}");
    }
}

#[test]
fn the_loops_of_dots_are_exact() {
    let mut rng = StdRng::seed_from_u64(29);
    let product = Product::new([1, 70, 4099, 60], [false; 2], tiny(&mut rng)).unwrap();
    let loops = Settings {
        device: DeviceChoice::Interp,
        ..settings(1)
    };
    assert!(has_dots(&text(&product.t, Machine::avx512_bf16())));
    assert!(bytes(&product.t, plain(settings(2))) == bytes(&product.t, loops));
}
