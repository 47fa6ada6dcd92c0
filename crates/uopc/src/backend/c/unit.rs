//! Translation units for a plan: the helpers that its kernels call, each different kernel once, and
//! for each kernel an entry of one uniform type.
//!
//! A plan of many kernels becomes several units, which can be compiled at the same time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::prelude;
use super::render::{self, Argument, Kernel, Nests};
use super::toolchain::Level;
use crate::ir::UOp;
use crate::ir::bounds::Bounds;
use crate::ir::form::Program;
use crate::ir::op::{Exec, Op};

/// What another file costs, as bytes of kernels that take as long to compile: a compiler takes 25 ms
/// before it does anything, and with gcc 12 about 8 ms for each kilobyte of kernels.
const FILE: usize = 3 << 10;

/// The least cost for which another compiler is started.
const LEAST_FILE: usize = 8 << 10;

/// What a function costs beside its text, in the same unit.
const FUNCTION: usize = 256;

/// The text of a nest is mostly declarations and repeats itself: it costs this many times less.
const NEST: usize = 4;

/// Of this many rounds or fewer, loops of scalars take no time worth compiling for.
const FEW_ROUNDS: i128 = 4096;

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
    let everything = (0..programs.len()).collect();
    Rendered::new(programs).unit(everything)
}

/// Renders the programs of a plan as some files, each like [`render_unit`], which take about as long
/// to compile on that many processors. What is compiled at another level is in other files if it pays.
pub fn render_units(programs: &[&Program], processors: usize) -> Vec<Unit> {
    let rendered = Rendered::new(programs);
    let mut pieces: BTreeMap<&str, Piece> = BTreeMap::new();
    for (position, &kernel) in rendered.kernel_of.iter().enumerate() {
        let text = &rendered.texts[kernel];
        let piece = pieces.entry(text).or_insert_with(|| Piece {
            programs: Vec::new(),
            level: level(programs[position]),
            cost: text.len() + FUNCTION,
            nests: rendered.nests.called(text),
        });
        piece.programs.push(position);
    }
    let mut pieces: Vec<Piece> = pieces.into_values().collect();
    // The largest first, and otherwise as in the plan.
    let cost = |piece: &Piece| piece.cost + cost_of(&piece.nests, &rendered.nests);
    pieces.sort_by_key(|piece| (Reverse(cost(piece)), piece.programs[0]));
    let files = files(pieces, &rendered.nests, processors);
    let units = files.into_iter().map(|mut file| {
        file.sort_unstable();
        rendered.unit(file)
    });
    units.collect()
}

/// A kernel that some programs have in common.
struct Piece {
    programs: Vec<usize>,
    level: Level,
    /// What it takes to compile, without the shared functions.
    cost: usize,
    /// The shared functions that it calls.
    nests: BTreeSet<usize>,
}

fn cost_of(called: &BTreeSet<usize>, nests: &Nests) -> usize {
    called.len() * FUNCTION + nests.bytes(called) / NEST
}

/// Whether all of a program that takes time is on vectors.
fn level(program: &Program) -> Level {
    let (mut most, mut rounds) = (1, vec![1i128]);
    let mut bounds = Bounds::new();
    for u in program.instructions() {
        if matches!(u.op(), Op::Loop) {
            let range = &u.src()[0];
            if let Op::Range {
                exec: Exec::Vector, ..
            } = range.op()
            {
                return Level::Explicit;
            }
            let outer = rounds.last().copied().unwrap_or(1);
            let inner = outer.saturating_mul(bounds.of(&range.src()[0]).hi);
            rounds.push(inner);
            most = most.max(inner);
        } else if matches!(u.op(), Op::EndLoop) {
            rounds.pop();
        }
    }
    match most {
        ..=FEW_ROUNDS => Level::Explicit,
        _ => Level::Automatic,
    }
}

/// The programs of each file.
fn files(pieces: Vec<Piece>, nests: &Nests, processors: usize) -> Vec<Vec<usize>> {
    let cost = |pieces: &[Piece]| {
        let called = pieces.iter().flat_map(|p| p.nests.iter().copied());
        let own: usize = pieces.iter().map(|p| p.cost).sum();
        own + cost_of(&called.collect(), nests)
    };
    let (explicit, automatic): (Vec<_>, Vec<_>) = pieces
        .into_iter()
        .partition(|piece| piece.level == Level::Explicit);
    let (first, second) = (cost(&explicit), cost(&automatic));
    let most = |cost: usize| processors.min(cost / LEAST_FILE);
    // At the other level it would take almost twice as long, which another file is cheaper than.
    if second > 0 && first > FILE {
        let mut files = spread(explicit, nests, most(first));
        files.extend(spread(automatic, nests, most(second)));
        return files;
    }
    let all: Vec<Piece> = explicit.into_iter().chain(automatic).collect();
    spread(all, nests, most(first + second))
}

/// Spreads pieces over files, each piece to where the file remains cheapest.
fn spread(pieces: Vec<Piece>, nests: &Nests, files: usize) -> Vec<Vec<usize>> {
    struct File {
        programs: Vec<usize>,
        cost: usize,
        nests: BTreeSet<usize>,
    }
    let mut files: Vec<File> = (0..files.max(1))
        .map(|_| File {
            programs: Vec::new(),
            cost: 0,
            nests: BTreeSet::new(),
        })
        .collect();
    for piece in pieces {
        let with_piece = |file: &File| {
            let missing = piece.nests.difference(&file.nests).copied();
            file.cost + piece.cost + cost_of(&missing.collect(), nests)
        };
        let least = files.iter_mut().min_by_key(|file| with_piece(file));
        let file = least.expect("there is a file");
        file.cost = with_piece(file);
        file.programs.extend(piece.programs);
        file.nests.extend(piece.nests);
    }
    let used = files.into_iter().filter(|file| !file.programs.is_empty());
    used.map(|file| file.programs).collect()
}

/// Programs and their kernels, those of equal programs once.
struct Rendered<'a> {
    programs: &'a [&'a Program],
    kernel_of: Vec<usize>,
    kernels: Vec<Kernel>,
    /// The kernels without names, which tell whether they are equal.
    texts: Vec<String>,
    nests: Nests,
}

impl<'a> Rendered<'a> {
    fn new(programs: &'a [&'a Program]) -> Rendered<'a> {
        let mut nests = Nests::default();
        let mut kernels = Vec::new();
        let mut known: FxHashMap<&UOp, usize> = FxHashMap::default();
        let kernel_of = programs.iter().map(|program| {
            *known.entry(program.sink()).or_insert_with(|| {
                kernels.push(render::kernel(program, &mut nests));
                kernels.len() - 1
            })
        });
        let kernel_of = kernel_of.collect();
        let texts = kernels.iter().map(|kernel: &Kernel| kernel.named(""));
        Rendered {
            programs,
            kernel_of,
            texts: texts.collect(),
            kernels,
            nests,
        }
    }

    fn kernel(&self, program: usize) -> &Kernel {
        &self.kernels[self.kernel_of[program]]
    }

    /// A file of some of the programs.
    fn unit(&self, chosen: Vec<usize>) -> Unit {
        let helpers = chosen.iter().flat_map(|&p| self.kernel(p).helpers.clone());
        let prelude = prelude::source(&helpers.collect());
        let helpers: BTreeSet<&str> = words(&prelude).collect();
        let mut taken: BTreeSet<String> = self.nests.names().collect();
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        let mut called = BTreeSet::new();
        let mut functions = String::new();
        let mut calls = String::new();
        let mut entries = Vec::new();
        let mut entry_of = Vec::new();
        for &position in &chosen {
            let kernel = self.kernel(position);
            let text = &self.texts[self.kernel_of[position]];
            let entry = *known.entry(text).or_insert_with(|| {
                called.extend(self.nests.called(text));
                let name = free_name(self.programs[position].name(), &helpers, &taken);
                functions.push('\n');
                // Nobody else calls it, so it can become a part of its entry.
                functions.push_str(&kernel.function("static void", &name));
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
        let mut text = format!("{TEAM}{prelude}{}{functions}", self.nests.text(&called));
        if !entries.is_empty() {
            text.push_str("\n#define EXPORT __attribute__((visibility(\"default\")))\n");
            text.push_str(&calls);
        }
        let levels = chosen.iter().map(|&p| level(self.programs[p]));
        let arguments = chosen.iter().map(|&p| self.kernel(p).arguments.clone());
        Unit {
            text,
            level: levels.max().unwrap_or(Level::Automatic),
            entries,
            entry_of,
            arguments: arguments.collect(),
            programs: chosen,
        }
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
