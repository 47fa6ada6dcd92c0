//! Files that carry data: `; run: slot0=[1, 2] slot1=[3] == [4, 6] [7]`, one list for each root.
//!
//! All cases of all files go through an engine as one plan, so that C compiles once: each case
//! gets slots of its own.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use uopc::compile::{Engine, RealizeOptions};
use uopc::interp::Array;
use uopc::ir::visit::{substitute, toposort};
use uopc::ir::{DType, Scalar, UOp};
use uopc::runtime::Storage;

use super::arrays::{Slots, eval, slot};
use super::golden::Golden;

/// One line of data.
pub struct Case {
    /// The file, for messages.
    pub id: String,
    /// The roots, reading slots that no other case reads.
    pub roots: Vec<UOp>,
    /// The contents of these slots.
    pub slots: Slots,
    /// What the roots are according to the file.
    pub expected: Vec<Array>,
    /// By how many units in the last place they may differ from it.
    pub ulps: u64,
}

/// The cases of a file; `first` is the first slot that is free.
pub fn cases(file: &Golden, first: &mut u32) -> Result<Vec<Case>, String> {
    let parsed = file.parse()?;
    let ulps = match file.list("ulps").first() {
        Some(number) => number.parse().map_err(|_| "ulps: is a number")?,
        None => 0,
    };
    let leaves: Vec<UOp> = toposort(&parsed.roots)
        .into_iter()
        .filter(|u| slot(u).is_some())
        .collect();
    let mut cases = Vec::new();
    for line in file.input.lines().filter_map(|l| l.strip_prefix("; run:")) {
        let (given, expected) = line.split_once("==").ok_or("a run has the form a == b")?;
        let given = lists(given)?;
        let mut renamed: FxHashMap<UOp, UOp> = FxHashMap::default();
        let mut slots = Slots::new();
        for u in &leaves {
            let (number, dtype, n) = slot(u).ok_or("a leaf has a slot")?;
            let label = format!("slot{number}=");
            let found = given.iter().find(|(name, _)| *name == label);
            let (_, items) = found.ok_or(format!("the run does not give slot {number}"))?;
            slots.insert(*first, array(dtype, items, n)?);
            renamed.insert(u.clone(), UOp::slot(*first, dtype, n));
            *first += 1;
        }
        let roots = substitute(&parsed.roots, &renamed).map_err(|e| e.to_string())?;
        let expected = lists(expected)?;
        if expected.len() != roots.len() {
            return Err(format!(
                "{} lists for {} roots",
                expected.len(),
                roots.len()
            ));
        }
        let expected = roots.iter().zip(&expected).map(|(u, (_, items))| {
            let flat = array(u.dtype(), items, u.shape().numel())?;
            flat.reshaped(u.shape()).map_err(|e| e.to_string())
        });
        cases.push(Case {
            id: file.id(),
            expected: expected.collect::<Result<_, String>>()?,
            roots,
            slots,
            ulps,
        });
    }
    match cases.is_empty() {
        true => Err("the file has no run".into()),
        false => Ok(cases),
    }
}

/// Lists in brackets, each with what stands before its bracket.
fn lists(text: &str) -> Result<Vec<(&str, Vec<&str>)>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (label, after) = rest.split_once('[').ok_or("expected a list in brackets")?;
        let (items, after) = after.split_once(']').ok_or("a list is not closed")?;
        let items = items
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        found.push((label.trim(), items.collect()));
        rest = after.trim();
    }
    Ok(found)
}

/// An array from literals, whose suffix may be left out.
fn array(dtype: DType, items: &[&str], n: usize) -> Result<Array, String> {
    if items.len() != n {
        return Err(format!("{} numbers for {n} elements", items.len()));
    }
    let read = |item: &&str| {
        let plain = Scalar::parse(item).filter(|s| s.dtype() == dtype);
        let full = || Scalar::parse(&format!("{item}{dtype}"));
        plain.or_else(full).ok_or(format!("'{item}' is no {dtype}"))
    };
    let values = items
        .iter()
        .map(read)
        .collect::<Result<Vec<Scalar>, String>>()?;
    Array::from_scalars(dtype, &[n], &values).map_err(|e| e.to_string())
}

/// The values of all cases in the graph interpreter.
pub fn interpret(cases: &[Case]) -> Result<Vec<Vec<Array>>, String> {
    cases
        .iter()
        .map(|case| eval(&case.roots, &case.slots))
        .collect()
}

/// The values of all cases in an engine, as one plan.
pub fn realize(engine: &Engine, cases: &[Case]) -> Result<Vec<Vec<Array>>, String> {
    let roots: Vec<UOp> = cases.iter().flat_map(|case| case.roots.clone()).collect();
    let bound = cases.iter().flat_map(|case| &case.slots);
    let slots = bound.map(|(slot, array)| Ok((*slot, Storage::from_bytes(&array.to_bytes())?)));
    let slots: Vec<(u32, Arc<Storage>)> = slots
        .collect::<uopc::Result<_>>()
        .map_err(|e| e.to_string())?;
    let options = RealizeOptions {
        slots: &slots,
        ..RealizeOptions::default()
    };
    let outputs = engine
        .realize(&roots, &options)
        .map_err(|e| e.to_string())?
        .outputs;
    let mut arrays = roots.iter().zip(&outputs).map(|(u, storage)| {
        Array::from_bytes(u.dtype(), u.shape(), storage.as_bytes()).map_err(|e| e.to_string())
    });
    cases
        .iter()
        .map(|case| arrays.by_ref().take(case.roots.len()).collect())
        .collect()
}

/// What differs by more than the file allows.
pub fn far_from(case: &Case, found: &[Array]) -> Option<String> {
    for (want, have) in case.expected.iter().zip(found) {
        for (i, (a, b)) in want.scalars().zip(have.scalars()).enumerate() {
            let near = Scalar::same(a, b) || (a.dtype().is_float() && ulps(a, b) <= case.ulps);
            if !near {
                return Some(format!("element {i} is {b}, not {a}"));
            }
        }
    }
    None
}

/// How many floats lie between two.
fn ulps(a: Scalar, b: Scalar) -> u64 {
    if a.is_nan() || b.is_nan() {
        return u64::MAX;
    }
    // Bits below the sign count upwards from zero on both sides.
    let sign = 1u64 << (a.dtype().bits() - 1);
    let place = |s: Scalar| {
        let size = (s.bits() & (sign - 1)) as i128;
        if s.bits() & sign != 0 { -size } else { size }
    };
    (place(a) - place(b)).unsigned_abs() as u64
}
