//! Every elementwise op at every dtype, arguments for it, and C files that compute it.
#![allow(dead_code, unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::process::Command;

use rand::Rng;
use rand::rngs::StdRng;
use uopc::backend::c::prelude::{LIBRARIES, REQUIRED_FLAGS};
use uopc::ir::dtype::DType;
use uopc::ir::op::Op;
use uopc::ir::scalar::Scalar;

/// An op at one choice of dtypes.
pub struct Case {
    pub op: Op,
    pub dtype: DType,
    pub sources: Vec<DType>,
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for t in DType::ALL {
        let mut add = |op: Op, dtype: DType, sources: &[DType]| {
            cases.push(Case {
                op,
                dtype,
                sources: sources.to_vec(),
            });
        };
        for op in [Op::Add, Op::Mul, Op::Max] {
            add(op, t, &[t, t]);
        }
        for op in [Op::CmpLt, Op::CmpNe] {
            add(op, DType::Bool, &[t, t]);
        }
        add(Op::Where, t, &[DType::Bool, t, t]);
        if t.is_float() {
            for op in [Op::Recip, Op::Exp2, Op::Log2, Op::Exp, Op::Sqrt, Op::Trunc] {
                add(op, t, &[t]);
            }
            for k in 0..4 {
                add(Op::Sin(k), t, &[t]);
            }
            add(Op::Div, t, &[t, t]);
        } else {
            for op in [Op::And, Op::Or, Op::Xor] {
                add(op, t, &[t, t]);
            }
        }
        if t.is_int() {
            for op in [Op::FloorDiv, Op::FloorMod, Op::Shl, Op::Shr] {
                add(op, t, &[t, t]);
            }
        }
        if t != DType::Bool {
            add(Op::MulAcc, t, &[t, t, t]);
        }
        for to in DType::ALL {
            add(Op::Cast(to), to, &[t]);
            if to.size() == t.size() && (to == DType::Bool) == (t == DType::Bool) {
                add(Op::Bitcast(to), to, &[t]);
            }
        }
    }
    cases
}

/// Values at which something changes: limits, zeros, halves, powers of two, NaN.
pub fn special(t: DType) -> Vec<u64> {
    let mut bits = BTreeSet::new();
    if let Some((least, greatest)) = t.int_range() {
        for v in [
            0,
            1,
            2,
            3,
            5,
            7,
            8,
            15,
            16,
            31,
            32,
            63,
            64,
            100,
            greatest,
            greatest / 2,
            least,
        ] {
            for v in [v, -v, v - 1, v + 1] {
                bits.insert(Scalar::from_i128(t, v).bits());
            }
        }
        let powers = (0..t.bits()).flat_map(|k| [(1i128 << k), (1i128 << k) - 1, -(1i128 << k)]);
        bits.extend(powers.map(|v| Scalar::from_i128(t, v).bits()));
    } else {
        let mut values = vec![
            0.0,
            0.5,
            1.0,
            1.5,
            2.0,
            2.5,
            3.0,
            f64::MAX,
            f64::INFINITY,
            f64::NAN,
        ];
        values.extend([
            0.1,
            1e-3,
            1.0 / 3.0,
            41.0,
            1e5,
            1e10,
            1e20,
            1e30,
            1e38,
            1e39,
            1e300,
        ]);
        values.extend([
            88.7, 103.9, 104.1, 127.5, 709.7, 745.2, 1074.5, 65504.0, 65519.99, 65520.0,
        ]);
        values.extend([
            std::f64::consts::PI,
            std::f64::consts::FRAC_PI_2,
            std::f64::consts::FRAC_PI_4,
            131071.99,
            131072.0,
            1073741824.0,
        ]);
        for width in [7, 8, 15, 16, 31, 32, 63, 64] {
            let end = 2f64.powi(width);
            values.extend([
                end,
                end - 1.0,
                end + 1.0,
                end - 0.5,
                end + 0.5,
                end * 0.9999999,
            ]);
        }
        for v in values {
            bits.extend([v, -v].map(|v| Scalar::from_f64(t, v).bits()));
        }
        // The ends of the subnormal and the normal range, and a NaN that is not the canonical one.
        let infinity = Scalar::from_f64(t, f64::INFINITY).bits();
        let normal = Scalar::from_f64(
            t,
            if t == DType::F16 {
                2f64.powi(-14)
            } else {
                2f64.powi(-126)
            },
        );
        let normal = if t == DType::F64 {
            1 << 52
        } else {
            normal.bits()
        };
        let sign = 1u64 << (t.bits() - 1);
        for b in [
            1,
            2,
            3,
            normal - 1,
            normal,
            normal + 1,
            infinity - 1,
            infinity + 1,
        ] {
            bits.extend([b, b | sign]);
        }
    }
    bits.into_iter().collect()
}

/// A random value: any bits, one of ordinary size, or one next to a tie of a shorter float.
pub fn random(t: DType, rng: &mut StdRng) -> u64 {
    let width = if t == DType::Bool { 1 } else { t.bits() };
    let any = rng.random::<u64>() & (u64::MAX >> (64 - width));
    let kind = rng.random_range(0..3);
    if kind == 0 || t == DType::Bool {
        return any;
    }
    if t.is_int() {
        // A few digits, anywhere.
        let digits = [8, 11, 24, 53][rng.random_range(0..4)].min(t.bits() - 1);
        let short = (any >> rng.random_range(0..t.bits())) as i128;
        let digits_and_half = (rng.random::<u64>() >> (63 - digits) | 1) as i128;
        let place = rng.random_range(0..t.bits() - digits);
        let tie = (digits_and_half << place) + rng.random_range(-1..=1);
        let value = if kind == 1 {
            short
        } else if rng.random() {
            tie
        } else {
            -tie
        };
        return Scalar::from_i128(t, value).bits();
    }
    let exponent = rng.random_range(-28..20);
    let value = if kind == 1 {
        rng.random_range(-1.0..1.0) * 2f64.powi(exponent / 2)
    } else {
        let digits = [8, 11, 24][rng.random_range(0..3)];
        let digits_and_half = (rng.random::<u64>() >> (63 - digits) | 1) as f64;
        let tie = digits_and_half * 2f64.powi(exponent - digits);
        let nudge = [0.0, f64::EPSILON, -f64::EPSILON, 1e-7, -1e-7][rng.random_range(0..5)];
        tie * (1.0 + nudge) * if rng.random() { 1.0 } else { -1.0 }
    };
    Scalar::from_f64(t, value).bits()
}

/// Columns of arguments.
pub fn arguments(case: &Case, rng: &mut StdRng) -> Vec<Vec<u64>> {
    const MANY: usize = 30_000;
    let t = case.sources[0];
    let mut columns: Vec<Vec<u64>> = vec![Vec::new(); case.sources.len()];
    match columns.as_mut_slice() {
        [a] if t.bits() <= 16 => a.extend(0..1u64 << if t == DType::Bool { 1 } else { t.bits() }),
        [a] => a.extend(special(t)),
        [a, b] => {
            let values = if t.bits() == 8 {
                (0..256).collect()
            } else {
                special(t)
            };
            let values: Vec<u64> = if t == DType::Bool { vec![0, 1] } else { values };
            for &x in &values {
                for &y in &values {
                    a.push(x);
                    b.push(y);
                }
            }
        }
        _ => {}
    }
    for (column, &t) in columns.iter_mut().zip(&case.sources) {
        column.extend((0..MANY).map(|_| random(t, rng)));
    }
    columns
}

pub fn compiler() -> Option<&'static str> {
    let works = |cc: &&str| Command::new(cc).arg("--version").output().is_ok();
    ["cc", "gcc", "clang"].into_iter().find(works)
}

/// Compiles the text into a library, or says why not.
pub fn compile(text: &str, flags: &[&str]) -> Option<(tempfile::TempDir, libloading::Library)> {
    let Some(cc) = compiler() else {
        println!("skipped: there is no C compiler");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder for the library");
    let (file, library) = (folder.path().join("ops.c"), folder.path().join("ops.so"));
    std::fs::write(&file, text).expect("the C file is written");
    let output = Command::new(cc)
        .args([
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Wno-sign-compare",
            "-shared",
            "-fPIC",
            "-o",
        ])
        .args([&library, &file])
        .args(REQUIRED_FLAGS)
        .args(flags)
        .args(LIBRARIES)
        .output()
        .expect("the compiler runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && messages.is_empty(), "{messages}");
    // SAFETY: the library has no initialisers, it holds only the functions written above.
    let library = unsafe { libloading::Library::new(&library) }.expect("the library loads");
    Some((folder, library))
}

/// The values as the bytes of an array of the dtype.
pub fn to_bytes(t: DType, values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|v| v.to_le_bytes().into_iter().take(t.size()))
        .collect()
}

pub fn from_bytes(t: DType, bytes: &[u8]) -> Vec<u64> {
    let value = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |bits, &byte| bits << 8 | byte as u64)
    };
    bytes.chunks(t.size()).map(value).collect()
}

/// Runs function `name` of the library over columns of arguments.
pub fn run(
    library: &libloading::Library,
    name: &str,
    case: &Case,
    columns: &[Vec<u64>],
) -> Vec<u64> {
    type Unary = unsafe extern "C" fn(i64, *const c_void, *mut c_void);
    type Binary = unsafe extern "C" fn(i64, *const c_void, *const c_void, *mut c_void);
    type Ternary =
        unsafe extern "C" fn(i64, *const c_void, *const c_void, *const c_void, *mut c_void);
    let n = columns[0].len();
    let sources = case.sources.iter().zip(columns);
    // Allocations are aligned for every scalar: a multiple of 8 bytes as u64.
    let aligned = |bytes: Vec<u8>| -> Vec<u64> { from_bytes(DType::U64, &bytes) };
    let arrays: Vec<Vec<u64>> = sources
        .map(|(&t, values)| aligned(to_bytes(t, values)))
        .collect();
    let mut result = vec![0u64; (n * case.dtype.size()).div_ceil(8)];
    let pointer = |i: usize| arrays[i].as_ptr() as *const c_void;
    let y = result.as_mut_ptr() as *mut c_void;
    // SAFETY: function `name` was written for this case by `c_file`; its arrays hold n elements
    // of the case's dtypes, and y has room for n.
    unsafe {
        let name = name.as_bytes();
        match arrays.len() {
            1 => library.get::<Unary>(name).expect("is there")(n as i64, pointer(0), y),
            2 => {
                library.get::<Binary>(name).expect("is there")(n as i64, pointer(0), pointer(1), y)
            }
            _ => {
                let f = library.get::<Ternary>(name).expect("is there");
                f(n as i64, pointer(0), pointer(1), pointer(2), y)
            }
        }
    }
    from_bytes(
        case.dtype,
        &to_bytes(DType::U64, &result)[..n * case.dtype.size()],
    )
}
