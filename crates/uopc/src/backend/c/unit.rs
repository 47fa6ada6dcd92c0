//! One translation unit for a plan: the helpers that its kernels call, each different kernel
//! once, and for each kernel an entry of one uniform type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::prelude;
use super::render::{self, Argument, Nests};
use crate::ir::form::Program;

/// A C source file and what is in it.
pub struct Unit {
    /// The file's content.
    pub text: String,
    /// The exported functions `void entry(void** args, struct uopc_team* team)`, one for each different kernel.
    pub entries: Vec<String>,
    /// For each program its entry, by position in `entries`.
    pub entry_of: Vec<usize>,
    /// For each program what its entry takes, in order.
    pub arguments: Vec<Vec<Argument>>,
}

/// What runs thread loops: `run` calls `part(context, i, worker)` once for each 0 <= i < n, in any
/// order and on any threads, and returns when all calls have. A worker is one of the team's threads,
/// counted from 0.
const TEAM: &str = "\
struct uopc_team {
    void (*run)(struct uopc_team* team, void (*part)(void* context, long i, long worker), void* context, long n);
};
";

/// Words that a function can't be called: C's own, and functions that compilers call unasked.
const RESERVED: &str = " auto break case char const continue default do double else enum extern \
    float for goto if inline int long main register restrict return short signed sizeof static \
    struct switch typedef union unsigned void volatile while asm typeof EXPORT args team \
    memcpy memmove memset memcmp fma fmaf sqrt sqrtf trunc truncf copysign copysignf abort ";

/// Renders the programs of a plan as one file. Kernels that are equal but for their names are
/// one function, called as the first is; a name that is taken gets a number behind it.
pub fn render_unit(programs: &[&Program]) -> Unit {
    let mut nests = Nests::default();
    let kernels: Vec<_> = programs
        .iter()
        .map(|p| render::kernel(p, &mut nests))
        .collect();
    let helpers: BTreeSet<_> = kernels.iter().flat_map(|k| k.helpers.clone()).collect();
    let mut text = TEAM.to_string();
    let prelude = prelude::source(&helpers);
    let helpers: BTreeSet<&str> = words(&prelude).collect();
    text.push_str(&prelude);
    text.push_str(&nests.text());
    let mut taken: BTreeSet<String> = nests.names().collect();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut functions = Vec::new();
    let mut entry_of = Vec::new();
    for (program, kernel) in programs.iter().zip(&kernels) {
        let entry = *known.entry(kernel.named("")).or_insert_with(|| {
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
        text.push('\n');
        text.push_str(&kernel.named(name));
        let entry = format!("uopc_entry_{k}");
        let args = (0..kernel.arguments.len()).map(|i| format!("args[{i}]"));
        let team = kernel.threads.then(|| "team".to_string());
        let args: Vec<String> = team.into_iter().chain(args).collect();
        writeln!(
            calls,
            "EXPORT void {entry}(void** args, struct uopc_team* team) {{ {name}({}); }}",
            args.join(", ")
        )
        .expect("a string takes all text");
        entries.push(entry);
    }
    if !entries.is_empty() {
        text.push_str("\n#define EXPORT __attribute__((visibility(\"default\")))\n");
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
