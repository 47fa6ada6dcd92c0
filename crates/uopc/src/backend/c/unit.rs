//! One translation unit for a plan: the helpers that its kernels call, each different kernel
//! once, and for each kernel an entry of one uniform type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::prelude;
use super::render::{self, Argument};
use crate::ir::form::Program;

/// A C source file and what is in it.
pub struct Unit {
    /// The file's content.
    pub text: String,
    /// The exported functions `void entry(void** args, struct uopc_team* team)`, one for each
    /// different kernel.
    pub entries: Vec<String>,
    /// For each program its entry, by position in `entries`.
    pub entry_of: Vec<usize>,
    /// For each program what its entry takes, in order.
    pub arguments: Vec<Vec<Argument>>,
}

/// Words that a function can't be called: C's own, and functions that compilers call unasked.
const RESERVED: &str = " auto break case char const continue default do double else enum extern \
    float for goto if inline int long main register restrict return short signed sizeof static \
    struct switch typedef union unsigned void volatile while asm typeof EXPORT args team \
    memcpy memmove memset memcmp fma fmaf sqrt sqrtf trunc truncf copysign copysignf abort ";

/// Renders the programs of a plan as one file. Kernels that are equal but for their names are
/// one function, called as the first is; a name that is taken gets a number behind it.
pub fn render_unit(programs: &[&Program]) -> Unit {
    let kernels: Vec<_> = programs.iter().map(|p| render::kernel(p)).collect();
    let helpers: BTreeSet<_> = kernels.iter().flat_map(|k| k.helpers.clone()).collect();
    let mut text = prelude::source(&helpers);
    let helpers: BTreeSet<&str> = words(&text).collect();
    let mut taken = BTreeSet::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut functions = Vec::new();
    let mut entry_of = Vec::new();
    for (program, kernel) in programs.iter().zip(&kernels) {
        let entry = *known.entry(&kernel.text).or_insert_with(|| {
            let name = free_name(program.name(), &helpers, &taken);
            taken.insert(name.clone());
            functions.push((name, kernel));
            functions.len() - 1
        });
        entry_of.push(entry);
    }
    let mut entries = Vec::new();
    let mut calls = String::new();
    for (k, (name, kernel)) in functions.iter().enumerate() {
        if !text.is_empty() {
            text.push('\n');
        }
        write!(text, "void {name}{}", kernel.text).expect("a string takes all text");
        let entry = format!("uopc_entry_{k}");
        let args: Vec<String> = (0..kernel.arguments.len())
            .map(|i| format!("args[{i}]"))
            .collect();
        writeln!(
            calls,
            "EXPORT void {entry}(void** args, struct uopc_team* team) {{ {name}({}); }}",
            args.join(", ")
        )
        .expect("a string takes all text");
        entries.push(entry);
    }
    if !entries.is_empty() {
        text.push_str("\nstruct uopc_team;\n");
        text.push_str("#define EXPORT __attribute__((visibility(\"default\")))\n");
        text.push_str(&calls);
    }
    let arguments = kernels.into_iter().map(|k| k.arguments).collect();
    Unit {
        text,
        entries,
        entry_of,
        arguments,
    }
}

/// The kernel's name as a C identifier that nothing else in the file has.
fn free_name(name: &str, helpers: &BTreeSet<&str>, taken: &BTreeSet<String>) -> String {
    let mut base: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    let usable = base.starts_with(|c: char| c.is_ascii_alphabetic())
        && !RESERVED.contains(&format!(" {base} "))
        && !base.starts_with("uopc_entry_");
    if !usable || helpers.contains(base.as_str()) {
        base.insert_str(0, "kernel_");
    }
    let mut free = base.clone();
    let mut number = 1;
    while taken.contains(&free) {
        free = format!("{base}_{number}");
        number += 1;
    }
    free
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}
