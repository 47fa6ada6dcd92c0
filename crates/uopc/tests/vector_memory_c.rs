//! Loads, stores, gathers and scatters of vectors in C touch the elements that they name and
//! nothing else, at any alignment and next to memory that must not be touched; and what moves no
//! memory but belongs to them: splats, places, signs and products of bf16 pairs.
#![allow(unsafe_code)]

#[path = "support/c_ops.rs"]
mod c_ops;

use std::collections::BTreeSet;
use std::ffi::c_void;

use c_ops::{compile, from_bytes, random, to_bytes};
use libloading::Library;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use uopc::backend::c::prelude::{Helper, source};
use uopc::backend::c::scalar::c_type;
use uopc::backend::c::vector::{self, Index, Spelled};
use uopc::ir::dtype::DType;
use uopc::ir::scalar::Scalar;

const LANES: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// Three pages of which only the middle one may be touched.
const GUARDED: &str = "\
#include <sys/mman.h>
void guarded(long unused, char** page, long* size) {
    (void)unused;
    *size = 1 << 16;
    char* all = mmap(0, 3 * *size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(all + *size, *size, PROT_READ | PROT_WRITE);
    *page = all + *size;
}
";

/// A C file in the making.
#[derive(Default)]
struct File {
    helpers: BTreeSet<Helper>,
    functions: String,
}

impl File {
    fn expression(&mut self, (text, helpers): Spelled) -> String {
        self.helpers.extend(helpers);
        text
    }

    /// `void run_NAME_DTYPExLANES(long stride, T* p, PLACE* places, _Bool* mask, T* x)`.
    fn function(&mut self, name: &str, t: DType, lanes: usize, places: DType, body: &str) {
        let (c, place) = (c_type(t), c_type(places));
        self.functions += &format!(
            "void run_{name}_{t}x{lanes}(long stride, {c}* p, {place}* places, _Bool* mask, {c}* x) {{
    (void)stride, (void)p, (void)places, (void)mask;
    {body};
}}
"
        );
    }

    /// All functions on memory for a dtype and a number of lanes.
    fn memory(&mut self, t: DType, n: usize) {
        let value = self.expression(vector::load(t, n, "x"));
        let mask = self.expression(vector::load(DType::Bool, n, "mask"));
        let given = |file: &mut File, value: Spelled| {
            let value = file.expression(value);
            file.expression(vector::store(t, n, "x", &value))
        };
        let strided = Index::Strided {
            start: "0",
            stride: "stride",
        };
        let body = given(self, vector::load(t, n, "p"));
        self.function("load", t, n, DType::I32, &body);
        let body = given(self, vector::load_masked(t, n, "p", &mask));
        self.function("load_masked", t, n, DType::I32, &body);
        let body = given(self, vector::gather(t, n, "p", &strided, None));
        self.function("gather_strided", t, n, DType::I32, &body);
        let pairs = Index::Strided {
            start: "0",
            stride: "2",
        };
        let body = given(self, vector::gather(t, n, "p", &pairs, None));
        self.function("gather_every_other", t, n, DType::I32, &body);
        let body = given(self, vector::gather(t, n, "p", &strided, Some(&mask)));
        self.function("gather_strided_masked", t, n, DType::I32, &body);
        let body = self.expression(vector::store(t, n, "p", &value));
        self.function("store", t, n, DType::I32, &body);
        let body = self.expression(vector::store_masked(t, n, "p", &value, &mask));
        self.function("store_masked", t, n, DType::I32, &body);
        let stream = self.expression(vector::store_stream(t, n, "p", &value));
        let fence = self.expression(vector::fence());
        self.function(
            "store_stream",
            t,
            n,
            DType::I32,
            &format!("{stream}; {fence}"),
        );
        let body = self.expression(vector::scatter(t, n, "p", &strided, &value, None));
        self.function("scatter_strided", t, n, DType::I32, &body);
        let body = self.expression(vector::scatter(t, n, "p", &strided, &value, Some(&mask)));
        self.function("scatter_strided_masked", t, n, DType::I32, &body);
        for &places in places(t) {
            let text = self.expression(vector::load(places, n, "places"));
            let index = Index::Vector {
                dtype: places,
                text: &text,
            };
            let body = given(self, vector::gather(t, n, "p", &index, None));
            self.function(&format!("gather_{places}"), t, n, places, &body);
            let body = given(self, vector::gather(t, n, "p", &index, Some(&mask)));
            self.function(&format!("gather_masked_{places}"), t, n, places, &body);
            let body = self.expression(vector::scatter(t, n, "p", &index, &value, None));
            self.function(&format!("scatter_{places}"), t, n, places, &body);
            let body = self.expression(vector::scatter(t, n, "p", &index, &value, Some(&mask)));
            self.function(&format!("scatter_masked_{places}"), t, n, places, &body);
        }
    }
}

/// The dtypes of places that are tried.
fn places(t: DType) -> &'static [DType] {
    match t {
        DType::F32 => &[DType::I32, DType::I64, DType::U32, DType::U8],
        _ => &[DType::I32, DType::I64],
    }
}

/// Dtypes with numbers of lanes: all that machines have, and for some the others.
fn vectors() -> Vec<(DType, usize)> {
    let unusual = [DType::Bool, DType::BF16, DType::F32, DType::F64];
    let tried = |t: DType, n: usize| (4..=16).contains(&n) || unusual.contains(&t);
    let all = DType::ALL.into_iter().flat_map(|t| LANES.map(|n| (t, n)));
    all.filter(|&(t, n)| tried(t, n)).collect()
}

/// With this machine's instructions, with those of AVX2 and with the basic ones.
fn build(text: &str) -> Vec<(tempfile::TempDir, Library)> {
    let mut flags = vec![vec!["-O2", "-march=native"], vec!["-O1"]];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        flags.push(vec!["-O2", "-mavx2"]);
    }
    flags
        .iter()
        .filter_map(|flags| compile(text, flags))
        .collect()
}

type Function = unsafe extern "C" fn(i64, *mut c_void, *const c_void, *const c_void, *mut c_void);

/// The page between two that must not be touched.
struct Page {
    start: *mut u8,
    size: usize,
}

impl Page {
    fn new(library: &Library) -> Page {
        type Guarded = unsafe extern "C" fn(i64, *mut *mut u8, *mut i64);
        let (mut start, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the function is in the file and sets both.
        unsafe { library.get::<Guarded>(b"guarded").expect("is there")(0, &mut start, &mut size) };
        Page {
            start,
            size: size as usize,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the page is mapped for as long as the process lives, and nothing else uses it.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.size) }
    }
}

/// One call: the page's elements from `first` on, places and mask, and the vector's lanes.
struct Run<'a> {
    library: &'a Library,
    t: DType,
    lanes: usize,
}

impl Run<'_> {
    fn call(
        &self,
        name: &str,
        (page, at): (&mut Page, usize),
        (stride, places): (i64, &[u8]),
        mask: &[bool],
        x: &[u64],
    ) -> Vec<u64> {
        let name = format!("run_{name}_{}x{}", self.t, self.lanes);
        // One element further than the allocation begins: aligned for no vector.
        let size = self.t.size();
        let mut array = vec![0u64; (size * (self.lanes + 1)).div_ceil(8)];
        let base = array.as_mut_ptr() as *mut u8;
        let bytes = to_bytes(self.t, x);
        // SAFETY: the function has the type with which `File::function` wrote it, and its arrays
        // have as many elements as it has lanes; the page is touched where its tests say.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(size), bytes.len());
            let function = self
                .library
                .get::<Function>(name.as_bytes())
                .expect("is there");
            let p = page.start.add(at) as *mut c_void;
            let x = base.add(size) as *mut c_void;
            function(stride, p, places.as_ptr().cast(), mask.as_ptr().cast(), x);
            let result = std::slice::from_raw_parts(base.add(size), bytes.len());
            from_bytes(self.t, result)
        }
    }
}

/// Any mask, or only the lanes before or from a place on.
fn masks(lanes: usize, rng: &mut StdRng) -> Vec<Vec<bool>> {
    let some = [0, 1, lanes / 2, lanes - 1, lanes];
    let mut masks: Vec<Vec<bool>> = Vec::new();
    for k in some {
        masks.push((0..lanes).map(|i| i < k).collect());
        masks.push((0..lanes).map(|i| i >= k).collect());
    }
    masks.push((0..lanes).map(|_| rng.random()).collect());
    masks
}

/// Compares what the masked and plain accesses of one dtype and length give, and what they leave.
fn check(run: &Run, page: &mut Page, rng: &mut StdRng) {
    let Run { t, lanes, .. } = *run;
    let (size, elements) = (t.size(), page.size / t.size());
    let filled: Vec<u64> = (0..elements).map(|_| random(t, rng)).collect();
    let bytes = to_bytes(t, &filled);
    let x: Vec<u64> = (0..lanes).map(|_| random(t, rng)).collect();
    let all = vec![true; lanes];
    let no_places = (0, &[][..]);
    let zero = Scalar::zero(t).bits();
    // Where lane i lies, and whether lanes may lie outside the page.
    let mut layouts: Vec<(&str, i64, Vec<i64>, Vec<bool>)> = Vec::new();
    let last = (elements - lanes) as i64;
    for first in [0, 1, 3, last - 1, last] {
        layouts.push((
            "",
            1,
            (0..lanes as i64).map(|i| first + i).collect(),
            all.clone(),
        ));
    }
    for mask in masks(lanes, rng) {
        let count = mask.iter().filter(|m| **m).count();
        // The true lanes end where the page does, or begin there.
        let last = mask.iter().rposition(|m| *m).unwrap_or(lanes / 2) as i64;
        let first = mask.iter().position(|m| *m).unwrap_or(0) as i64;
        for start in [elements as i64 - 1 - last, -first] {
            if count > 0 {
                let places = (0..lanes as i64).map(|i| start + i).collect();
                layouts.push(("_masked", 1, places, mask.clone()));
            }
        }
        for stride in [2, 7, -3] {
            let start = if stride > 0 {
                -first * stride
            } else {
                elements as i64 - 1 - first * stride
            };
            let places = (0..lanes as i64).map(|i| start + i * stride).collect();
            if count > 0 {
                layouts.push(("_masked", stride, places, mask.clone()));
            }
        }
    }
    for stride in [0, 1, 2, 5] {
        let places = (0..lanes as i64).map(|i| 10 + i * stride).collect();
        layouts.push(("", stride, places, all.clone()));
    }
    // What lies between ends where the page begins, or begins where it ends.
    for start in [0, elements as i64 - 2 * lanes as i64 + 1] {
        let places = (0..lanes as i64).map(|i| start + i * 2).collect();
        layouts.push(("", 2, places, all.clone()));
    }
    for (masked, stride, places, mask) in layouts {
        let start = (places[0] * size as i64) as usize;
        let read: Vec<u64> = (places.iter().zip(&mask))
            .map(|(&p, &m)| if m { filled[p as usize] } else { zero })
            .collect();
        let mut written = filled.clone();
        for ((&p, &m), &x) in places.iter().zip(&mask).zip(&x) {
            if m {
                written[p as usize] = x;
            }
        }
        let mut names = vec!["gather_strided", "scatter_strided"];
        if stride == 1 {
            names.extend(["load", "store"]);
            names.extend(masked.is_empty().then_some("store_stream"));
        }
        if stride == 2 && masked.is_empty() {
            names.push("gather_every_other");
        }
        for name in names {
            page.bytes()[..bytes.len()].copy_from_slice(&bytes);
            let found = run.call(
                &format!("{name}{masked}"),
                (&mut *page, start),
                (stride, no_places.1),
                &mask,
                &x,
            );
            let what = format!("{name}{masked} of {t}x{lanes} at {places:?}, {mask:?}");
            if name.starts_with("load") || name.starts_with("gather") {
                assert_eq!(found, read, "{what}");
                assert_eq!(page.bytes()[..bytes.len()], bytes[..], "{what}");
            } else {
                assert_eq!(
                    page.bytes()[..bytes.len()],
                    to_bytes(t, &written)[..],
                    "{what}"
                );
            }
        }
    }
    // Places anywhere; where the mask is false they are far away.
    for &places_type in places(t) {
        let reach = if places_type == DType::U8 {
            256
        } else {
            elements
        };
        for mask in masks(lanes, rng) {
            let near: Vec<usize> = (0..lanes).map(|_| rng.random_range(0..reach)).collect();
            for masked in ["", "_masked"] {
                let mask = if masked.is_empty() { &all } else { &mask };
                let far = if places_type == DType::U8 {
                    0
                } else {
                    i32::MAX as u64
                };
                let places: Vec<u64> = (near.iter().zip(mask))
                    .map(|(&p, &m)| if m { p as u64 } else { far })
                    .collect();
                let places = to_bytes(places_type, &places);
                let read: Vec<u64> = (near.iter().zip(mask))
                    .map(|(&p, &m)| if m { filled[p] } else { zero })
                    .collect();
                let mut written = filled.clone();
                for ((&p, &m), &x) in near.iter().zip(mask).zip(&x) {
                    if m {
                        written[p] = x;
                    }
                }
                for name in ["gather", "scatter"] {
                    page.bytes()[..bytes.len()].copy_from_slice(&bytes);
                    let name = format!("{name}{masked}_{places_type}");
                    let found = run.call(&name, (&mut *page, 0), (0, &places), mask, &x);
                    let what = format!("{name} of {t}x{lanes} at {near:?}, {mask:?}");
                    if name.starts_with("gather") {
                        assert_eq!(found, read, "{what}");
                        assert_eq!(page.bytes()[..bytes.len()], bytes[..], "{what}");
                    } else {
                        assert_eq!(
                            page.bytes()[..bytes.len()],
                            to_bytes(t, &written)[..],
                            "{what}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn memory_is_touched_where_it_may_be() {
    let mut file = File::default();
    for (t, lanes) in vectors() {
        file.memory(t, lanes);
    }
    let text = format!("{GUARDED}{}{}", source(&file.helpers), file.functions);
    for (_folder, library) in build(&text) {
        let mut rng = StdRng::seed_from_u64(11);
        let mut page = Page::new(&library);
        for (t, lanes) in vectors() {
            let run = Run {
                library: &library,
                t,
                lanes,
            };
            check(&run, &mut page, &mut rng);
        }
    }
}

/// Calls `name(0, p, places, mask, x)` with only p and x of meaning.
fn simple(library: &Library, name: &str, p: &mut [u64], x: &mut [u64]) {
    // SAFETY: the function was written by `File::function` for arrays of these lengths.
    unsafe {
        let function = library.get::<Function>(name.as_bytes()).expect("is there");
        let (p, x) = (p.as_mut_ptr().cast(), x.as_mut_ptr().cast());
        function(0, p, std::ptr::null(), std::ptr::null(), x);
    }
}

#[test]
fn splats_places_lanes_and_signs() {
    let mut file = File::default();
    for t in DType::ALL {
        for n in LANES {
            let value = file.expression(vector::splat(t, n, "*p"));
            let body = file.expression(vector::store(t, n, "x", &value));
            file.function("splat", t, n, DType::I32, &body);
            let vector = file.expression(vector::load(t, n, "p"));
            let lane = file.expression(vector::lane(t, n, &vector, &format!("{}", n - 1)));
            file.function("lane", t, n, DType::I32, &format!("*x = {lane}"));
            if t.is_int() {
                let value = file.expression(vector::iota(t, n));
                let body = file.expression(vector::store(t, n, "x", &value));
                file.function("iota", t, n, DType::I32, &body);
            }
            if t.is_float() {
                let value = file.expression(vector::negate(t, n, &vector));
                let body = file.expression(vector::store(t, n, "x", &value));
                file.function("negate", t, n, DType::I32, &body);
            }
        }
    }
    let text = source(&file.helpers) + &file.functions;
    let mut rng = StdRng::seed_from_u64(12);
    for (_folder, library) in build(&text) {
        for t in DType::ALL {
            for n in LANES {
                let mut values: Vec<u64> = (0..n).map(|_| random(t, &mut rng)).collect();
                if t.is_float() {
                    values[0] = Scalar::from_f64(t, -0.0).bits();
                }
                let array = |values: &[u64]| {
                    from_bytes(DType::U64, &{
                        let mut bytes = to_bytes(t, values);
                        bytes.resize(bytes.len().next_multiple_of(8), 0);
                        bytes
                    })
                };
                let run = |name: &str| {
                    let (mut p, mut x) = (array(&values), array(&vec![0; n]));
                    simple(&library, &format!("run_{name}_{t}x{n}"), &mut p, &mut x);
                    from_bytes(t, &to_bytes(DType::U64, &x)[..n * t.size()])
                };
                assert_eq!(run("splat"), vec![values[0]; n], "{t}x{n}");
                assert_eq!(run("lane")[0], values[n - 1], "{t}x{n}");
                if t.is_int() {
                    assert_eq!(run("iota"), (0..n as u64).collect::<Vec<_>>(), "{t}x{n}");
                }
                if t.is_float() {
                    let sign = 1 << (t.bits() - 1);
                    let turned: Vec<u64> = values.iter().map(|v| v ^ sign).collect();
                    assert_eq!(run("negate"), turned, "{t}x{n}");
                }
            }
        }
    }
}

/// What AVX512-BF16 documents: the upper pair first, each sum rounded once, subnormal operands and
/// results taken for zeros.
fn dot(acc: f32, a: u32, b: u32) -> f32 {
    let zeroed = |x: f32| {
        if x.is_subnormal() {
            0.0f32.copysign(x)
        } else {
            x
        }
    };
    let step = |acc: f32, a: u32, b: u32| {
        let (a, b) = (zeroed(f32::from_bits(a)), zeroed(f32::from_bits(b)));
        let acc = zeroed(acc);
        let sum = a.mul_add(b, acc);
        // What is subnormal before its exponent is limited has 24 digits still.
        let scale = 2f32.powi(64);
        let scaled = (a * scale).mul_add(b, acc * scale);
        let least = sum.abs() == f32::MIN_POSITIVE && scaled.abs() < f32::MIN_POSITIVE * scale;
        if least {
            0.0f32.copysign(sum)
        } else {
            zeroed(sum)
        }
    };
    let acc = step(acc, a & 0xffff_0000, b & 0xffff_0000);
    step(acc, a << 16, b << 16)
}

#[test]
fn products_of_bf16_pairs() {
    const N: usize = 64;
    let mut file = File::default();
    for n in LANES {
        if n > 32 {
            continue;
        }
        let acc = file.expression(vector::load(DType::F32, n, "x"));
        let halves = ["p", "(p+64)"].map(|p| {
            let address = format!("(const unsigned*){p}");
            file.expression(vector::load(DType::U32, n, &address))
        });
        let value = file.expression(vector::dot_bf16(n, &acc, &halves[0], &halves[1]));
        let body = file.expression(vector::store(DType::F32, n, "x", &value));
        file.function("dot", DType::F32, n, DType::I32, &body);
    }
    let text = source(&file.helpers) + &file.functions;
    let built = build(&text);
    let mut rng = StdRng::seed_from_u64(13);
    for round in 0..6000 {
        let mut word = |kind: u32| -> u32 {
            let any: u32 = rng.random();
            let exponent = match kind {
                0 => return any,
                1 => rng.random_range(119..135),
                _ => rng.random_range(0..140) * (kind - 1) / 2,
            };
            let low = (any >> 7 & 0x7f) << 7 | exponent << 7;
            any & 0x807f_807f | exponent << 23 | low & 0x7f80
        };
        let kind = round % 4;
        let a: Vec<u32> = (0..N).map(|_| word(kind)).collect();
        let b: Vec<u32> = (0..N).map(|_| word(kind)).collect();
        let mut acc: Vec<u32> = (0..N).map(|_| word(kind)).collect();
        // Next to the least normal number, where rounding and flushing meet.
        if round % 8 == 7 {
            for (i, acc) in acc.iter_mut().enumerate() {
                *acc = 0x0080_0000 | (i as u32 % 3);
            }
        }
        let (a, b): (Vec<u32>, Vec<u32>) = match round % 8 {
            7 => (0..N as u32)
                .map(|i| {
                    let exponent = 127 - 70 - i % 8;
                    let other = 127 - 76 + i / 8 % 4;
                    let a = exponent << 23 | (round / 8 % 128) << 16;
                    (a, 0x8000_0000 | other << 23)
                })
                .unzip(),
            _ => (a, b),
        };
        for n in LANES.into_iter().filter(|n| *n <= 32) {
            for (_, library) in &built {
                let p: Vec<u8> = a.iter().chain(&b).flat_map(|w| w.to_le_bytes()).collect();
                let x: Vec<u8> = acc.iter().flat_map(|w| w.to_le_bytes()).collect();
                let (mut p, mut x) = (from_bytes(DType::U64, &p), from_bytes(DType::U64, &x));
                simple(library, &format!("run_dot_f32x{n}"), &mut p, &mut x);
                let found = from_bytes(DType::F32, &to_bytes(DType::U64, &x));
                for i in 0..n {
                    let expected = Scalar::f32(dot(f32::from_bits(acc[i]), a[i], b[i]));
                    let found = Scalar::from_bits(DType::F32, found[i]);
                    assert!(
                        Scalar::same(expected, found),
                        "{:x} + {:x} . {:x}, lane {i} of {n}: {:x}, not {:x}",
                        acc[i],
                        a[i],
                        b[i],
                        found.bits(),
                        expected.bits()
                    );
                }
            }
        }
    }
}
