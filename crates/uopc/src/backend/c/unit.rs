//! Translation units for a plan: the helpers that its kernels call, each different kernel once, and
//! for each kernel an entry of one uniform type.
//!
//! A plan of many kernels becomes several units, which can be compiled at the same time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::prelude;
use super::render::{self, Argument, Kernel, Nests};
use super::toolchain::Level;
use crate::ir::UOp;
use crate::ir::form::Program;
use crate::ir::op::{Exec, Op};

/// The least size of a file, in bytes, for which another compiler is started: it takes about 30 ms
/// before it does anything, and 4 ms for each kilobyte.
const LEAST_FILE: usize = 8 << 10;

/// A C source file and what is in it.
pub struct Unit {
    /// The file's content.
    pub text: String,
    /// How it is compiled.
    pub level: Level,
    /// The exported functions `void entry(void** args, struct uopc_team* team)`, one for each
    /// different kernel.
    pub entries: Vec<String>,
    /// Its programs, in ascending order, by position among those that were rendered.
    pub programs: Vec<usize>,
    /// For each of them its entry, by position in `entries`.
    pub entry_of: Vec<usize>,
    /// For each of them what its entry takes, in order.
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

/// Renders programs as one file. Kernels that are equal but for their names are one function,
/// called as the first is; a name that is taken gets a number behind it.
pub fn render_unit(programs: &[&Program]) -> Unit {
    let (kernels, nests) = kernels(programs);
    let everything = (0..programs.len()).collect();
    unit(programs, &kernels, &nests, everything)
}

/// Renders the programs of a plan as at most that many files, each like [`render_unit`], which take
/// about as long to compile. What is compiled at another level is in other files if it pays.
pub fn render_units(programs: &[&Program], most: usize) -> Vec<Unit> {
    let (kernels, nests) = kernels(programs);
    let mut pieces: BTreeMap<String, Piece> = BTreeMap::new();
    for (position, (program, kernel)) in programs.iter().zip(&kernels).enumerate() {
        let text = kernel.named("");
        let piece = pieces.entry(text).or_insert_with_key(|text| Piece {
            programs: Vec::new(),
            level: level(program),
            bytes: text.len(),
            nests: nests.called(text),
        });
        piece.programs.push(position);
    }
    let mut pieces: Vec<Piece> = pieces.into_values().collect();
    // The largest first, and otherwise as in the plan.
    let size = |piece: &Piece| piece.bytes + nests.bytes(&piece.nests);
    pieces.sort_by_key(|piece| (Reverse(size(piece)), piece.programs[0]));
    let files = files(pieces, &nests, most);
    let units = files.into_iter().map(|mut file| {
        file.sort_unstable();
        unit(programs, &kernels, &nests, file)
    });
    units.collect()
}

/// A kernel that some programs have in common.
struct Piece {
    programs: Vec<usize>,
    level: Level,
    bytes: usize,
    /// The shared functions that it calls.
    nests: BTreeSet<usize>,
}

/// Whether all of a program that takes time is on vectors.
fn level(program: &Program) -> Level {
    let is_vector = |u: &UOp| {
        let range = matches!(u.op(), Op::Loop).then(|| u.src()[0].op());
        matches!(
            range,
            Some(Op::Range {
                exec: Exec::Vector,
                ..
            })
        )
    };
    match program.instructions().iter().any(is_vector) {
        true => Level::Explicit,
        false => Level::Automatic,
    }
}

/// The programs of each file.
fn files(pieces: Vec<Piece>, nests: &Nests, most: usize) -> Vec<Vec<usize>> {
    let bytes = |pieces: &[Piece]| {
        let called = pieces.iter().flat_map(|p| p.nests.iter().copied());
        let own: usize = pieces.iter().map(|p| p.bytes).sum();
        own + nests.bytes(&called.collect())
    };
    let (explicit, automatic): (Vec<_>, Vec<_>) = pieces
        .into_iter()
        .partition(|piece| piece.level == Level::Explicit);
    let (first, second) = (bytes(&explicit), bytes(&automatic));
    // A share of the files for each level, if the one that gains is worth a file.
    if most >= 2 && first >= LEAST_FILE && second > 0 {
        let share = (most * first / (first + second)).clamp(1, most - 1);
        let mut files = spread(explicit, nests, share.min(first / LEAST_FILE));
        files.extend(spread(
            automatic,
            nests,
            (most - share).min(second / LEAST_FILE),
        ));
        return files;
    }
    let all: Vec<Piece> = explicit.into_iter().chain(automatic).collect();
    spread(all, nests, most.min((first + second) / LEAST_FILE))
}

/// Spreads pieces over files, each piece to where the file remains smallest.
fn spread(pieces: Vec<Piece>, nests: &Nests, files: usize) -> Vec<Vec<usize>> {
    struct File {
        programs: Vec<usize>,
        bytes: usize,
        nests: BTreeSet<usize>,
    }
    let mut files: Vec<File> = (0..files.max(1))
        .map(|_| File {
            programs: Vec::new(),
            bytes: 0,
            nests: BTreeSet::new(),
        })
        .collect();
    for piece in pieces {
        let with_piece = |file: &File| {
            let missing = piece.nests.difference(&file.nests).copied();
            file.bytes + piece.bytes + nests.bytes(&missing.collect())
        };
        let least = files.iter_mut().min_by_key(|file| with_piece(file));
        let file = least.expect("there is a file");
        file.bytes = with_piece(file);
        file.programs.extend(piece.programs);
        file.nests.extend(piece.nests);
    }
    let used = files.into_iter().filter(|file| !file.programs.is_empty());
    used.map(|file| file.programs).collect()
}

fn kernels(programs: &[&Program]) -> (Vec<Kernel>, Nests) {
    let mut nests = Nests::default();
    let kernels = programs.iter().map(|p| render::kernel(p, &mut nests));
    (kernels.collect(), nests)
}

/// A file of some of the programs.
fn unit(programs: &[&Program], kernels: &[Kernel], nests: &Nests, chosen: Vec<usize>) -> Unit {
    let helpers = chosen.iter().flat_map(|&p| kernels[p].helpers.clone());
    let prelude = prelude::source(&helpers.collect());
    let helpers: BTreeSet<&str> = words(&prelude).collect();
    let mut taken: BTreeSet<String> = nests.names().collect();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut called = BTreeSet::new();
    let mut functions = String::new();
    let mut calls = String::new();
    let mut entries = Vec::new();
    let mut entry_of = Vec::new();
    for &position in &chosen {
        let kernel = &kernels[position];
        let entry = *known.entry(kernel.named("")).or_insert_with_key(|text| {
            called.extend(nests.called(text));
            let name = free_name(programs[position].name(), &helpers, &taken);
            functions.push('\n');
            functions.push_str(&kernel.named(&name));
            let entry = format!("uopc_entry_{}", entries.len());
            let args = (0..kernel.arguments.len()).map(|i| format!("args[{i}]"));
            let team = kernel.threads.then(|| "team".to_string());
            let args: Vec<String> = team.into_iter().chain(args).collect();
            writeln!(
                calls,
                "EXPORT void {entry}(void** args, struct uopc_team* team) {{ {name}({}); }}",
                args.join(", ")
            )
            .expect("a string takes all text");
            taken.insert(name);
            entries.push(entry);
            entries.len() - 1
        });
        entry_of.push(entry);
    }
    let mut text = format!("{TEAM}{prelude}{}{functions}", nests.text(&called));
    if !entries.is_empty() {
        text.push_str("\n#define EXPORT __attribute__((visibility(\"default\")))\n");
        text.push_str(&calls);
    }
    let levels = chosen.iter().map(|&p| level(programs[p]));
    Unit {
        text,
        level: levels.max().unwrap_or(Level::Automatic),
        entries,
        entry_of,
        arguments: chosen
            .iter()
            .map(|&p| kernels[p].arguments.clone())
            .collect(),
        programs: chosen,
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
    // The parts of a kernel are called after it, `k_part0`.
    let stem = base.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() < base.len() && stem.ends_with("_part") {
        base.push('_');
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
