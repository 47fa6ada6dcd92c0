//! Tiles of bf16 products: finds the loops that the schedule makes for them, so that they become one
//! call of a function of the processor's tile registers.
//!
//! The loops are `for k, p < 2, m < 32, n < 32: sums[32 m + n] += rows[2 k + p + m row] * half(cols[32 k
//! + n], p)`, with bf16 in `rows` and words of two of them in `cols`, and a multiple of 16 rounds of k.
//!
//! Nothing else is taken for a tile.

use rustc_hash::FxHashMap;

use super::fold::Folder;
use super::render::Renderer;
use super::steps::{Block, Step, closers, constant};
use crate::ir::affine::{Linear, is_exact};
use crate::ir::bounds::Bounds;
use crate::ir::op::{Combine, Op};
use crate::ir::visit::toposort;
use crate::ir::{DType, UOp, pairs};

/// Rows and columns.
const SIDE: i128 = 32;

/// A product of tiles, which replaces what the sums were.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    /// The sums, and the packed operands.
    pub(super) memories: [UOp; 3],
    /// Where the operands begin, and how many pairs are summed.
    pub(super) scalars: [UOp; 3],
    /// Elements from a row to the next.
    row: i128,
}

impl Tile {
    /// The tile in other terms.
    pub(super) fn mapped(&self, mut of: impl FnMut(&UOp) -> UOp) -> Tile {
        Tile {
            memories: self.memories.each_ref().map(&mut of),
            scalars: self.scalars.each_ref().map(&mut of),
            row: self.row,
        }
    }
}

/// The steps with tiles in place of their loops.
pub(super) fn tiles(steps: Vec<Step>, bounds: &mut Bounds) -> Vec<Step> {
    let is_candidate = |step: &Step| {
        matches!(step, Step::Declare(u, Some(Combine::MulAcc))
            if matches!(u.op(), Op::Local { dtype: DType::F32, n: 1024, .. }))
    };
    if !steps.iter().any(is_candidate) {
        return steps;
    }
    let ends = closers(&steps);
    let mut out = Vec::with_capacity(steps.len());
    let mut at = 0;
    // Where each memory of sums was declared, until something else than a tile names it.
    let mut declared: FxHashMap<UOp, usize> = FxHashMap::default();
    while at < steps.len() {
        let end = ends[at];
        if let Some(tile) = tile(&steps[at..=end], bounds)
            && let Some(place) = declared.remove(&tile.memories[0])
        {
            // They are all set: nothing has to be there before.
            out[place] = Step::Declare(tile.memories[0].clone(), None);
            out.push(Step::Tile(Box::new(tile)));
            at = end + 1;
            continue;
        }
        match &steps[at] {
            Step::Declare(memory, _) if is_candidate(&steps[at]) => {
                declared.insert(memory.clone(), out.len());
            }
            // In another block they may be there from an earlier round.
            Step::Open(_) | Step::Close => declared.clear(),
            Step::Store(u) => {
                declared.remove(&u.src()[0]);
            }
            Step::Declare(..) | Step::Let(_) | Step::Tile(_) => {}
        }
        out.push(steps[at].clone());
        at += 1;
    }
    out
}

/// The tile that a loop over pairs is.
fn tile(steps: &[Step], bounds: &mut Bounds) -> Option<Tile> {
    let mut folder = Folder::default();
    let (mut ranges, mut stores, mut closed) = (Vec::new(), Vec::new(), false);
    for step in steps {
        match step {
            Step::Open(Block::Loop(range)) if !closed => ranges.push(range.clone()),
            Step::Let(u) if !closed => {
                let value = folder.of(&u.src()[0]);
                folder.set(u, &value);
            }
            Step::Store(u) if !closed => stores.push(folder.of(u)),
            Step::Close => closed = true,
            _ => return None,
        }
        if ranges.is_empty() || ranges.len() > 4 {
            return None;
        }
    }
    let ([k, p, m, n], [store]) = (&ranges[..], &stores[..]) else {
        return None;
    };
    let sums = Op::Store {
        combine: Combine::MulAcc,
        gated: false,
    };
    let extents = [p, m, n].map(|r| constant(&r.src()[0]));
    if *store.op() != sums || extents != [Some(2), Some(SIDE), Some(SIDE)] {
        return None;
    }
    let pairs_of_k = k.src()[0].clone();
    if !is_whole(&pairs_of_k) {
        return None;
    }
    let [memory, index, a, b] = store.src() else {
        return None;
    };
    if *a.op() != Op::Cast(DType::F32) {
        return None;
    }
    let rows = a.src()[0].clone();
    let words: Vec<UOp> = toposort(std::slice::from_ref(b))
        .into_iter()
        .filter(|u| *u.op() == Op::Load)
        .collect();
    let [cols] = &words[..] else {
        return None;
    };
    let plain = |u: &UOp, dtype| *u.op() == Op::Load && u.src().len() == 2 && u.dtype() == dtype;
    if !plain(&rows, DType::BF16)
        || !plain(cols, DType::U32)
        || pairs::half(cols, p).ok().as_ref() != Some(b)
    {
        return None;
    }
    let mut strides = |index: &UOp| {
        let exact = is_exact(index, bounds);
        exact.then(|| [k, p, m, n].map(|r| Linear::of(index).coefficient(r)))
    };
    let [rows_at, cols_at] = [&rows, cols].map(|load| &load.src()[1]);
    let [2, 1, row, 0] = strides(rows_at)? else {
        return None;
    };
    if strides(index)? != [0, 0, SIDE, 1] || strides(cols_at)? != [SIDE, 0, 0, 1] {
        return None;
    }
    let mut first = Folder::default();
    for range in [k, p, m, n] {
        first.set(range, &UOp::int(0, range.dtype()));
    }
    if constant(&first.of(index)) != Some(0) {
        return None;
    }
    Some(Tile {
        memories: [memory.clone(), rows.src()[0].clone(), cols.src()[0].clone()],
        scalars: [first.of(rows_at), first.of(cols_at), pairs_of_k],
        row,
    })
}

/// Whether all values of an extent are multiples of the pairs that one instruction sums.
fn is_whole(extent: &UOp) -> bool {
    let mut pending = vec![extent];
    while let Some(u) = pending.pop() {
        if matches!(u.op(), Op::Let { .. }) {
            pending.extend(u.src());
        } else if *u.op() == Op::Where {
            pending.extend(&u.src()[1..]);
        } else if Linear::of(u).divisor() % 16 != 0 {
            return false;
        }
    }
    true
}

impl Renderer<'_> {
    /// The call for a tile.
    pub(super) fn tile(&mut self, tile: &Tile) {
        self.helpers.insert(super::prelude::Helper::Tile);
        self.frame().tiles = true;
        let [sums, rows, cols] = tile.memories.each_ref().map(|u| self.expression(u));
        let [rows_at, cols_at, pairs] = tile.scalars.each_ref().map(|u| self.index(u));
        self.line(&format!(
            "bf16_tile({sums}, {rows}+{rows_at}, {}, {cols}+{cols_at}, {pairs});",
            tile.row
        ));
    }
}

/// The C functions that tiles call: one product, and what comes before the first and behind the last
/// of a thread's.
pub(super) const SOURCE: &str = r#"static inline void bf16_tiles_begin(void) {
#if defined(__AMX_BF16__) && defined(__x86_64__)
    static const struct {
        unsigned char palette, row, reserved[14];
        unsigned short bytes[16];
        unsigned char rows[16];
    } __attribute__((aligned(64))) form = {
        1, 0, { 0 }, { 64, 64, 64, 64, 64, 64, 64, 64 }, { 16, 16, 16, 16, 16, 16, 16, 16 }
    };
    __asm__ volatile("ldtilecfg %0" : : "m"(form));
#endif
}

static inline void bf16_tiles_end(void) {
#if defined(__AMX_BF16__) && defined(__x86_64__)
    __asm__ volatile("tilerelease" : : : "memory");
#endif
}

static __attribute__((noinline)) void bf16_tile(float* sums, const unsigned short* rows, long row, const unsigned* cols, long pairs) {
#if defined(__AMX_BF16__) && defined(__x86_64__)
    __asm__ volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" : : : "memory");
    for (long k = 0; k < pairs; k += 16) {
        __asm__ volatile(
            "tileloadd (%0,%4,1), %%tmm4\n\t"
            "tileloadd (%2,%5,1), %%tmm6\n\t"
            "tileloadd (%3,%5,1), %%tmm7\n\t"
            "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\t"
            "tileloadd (%1,%4,1), %%tmm5\n\t"
            "tdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
            "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\t"
            "tdpbf16ps %%tmm7, %%tmm5, %%tmm3"
            : : "r"(rows), "r"(rows + 16 * row), "r"(cols), "r"(cols + 16), "r"(2 * row), "r"(128L) : "memory");
        rows += 32;
        cols += 16 * 32;
    }
    __asm__ volatile(
        "tilestored %%tmm0, (%0,%2,1)\n\t"
        "tilestored %%tmm1, 64(%0,%2,1)\n\t"
        "tilestored %%tmm2, (%1,%2,1)\n\t"
        "tilestored %%tmm3, 64(%1,%2,1)"
        : : "r"(sums), "r"(sums + 16 * 32), "r"(128L) : "memory");
#else
    for (long e = 0; e < 32 * 32; e++) sums[e] = 0.0f;
    for (long k = 0; k < pairs; k++)
        for (long m = 0; m < 32; m++) {
            float first = bf16_to_f32(rows[m * row + 2 * k]), second = bf16_to_f32(rows[m * row + 2 * k + 1]);
            for (long n = 0; n < 32; n++)
                sums[32 * m + n] = __builtin_fmaf(first, from_bits_f32(cols[32 * k + n] << 16), sums[32 * m + n]);
            for (long n = 0; n < 32; n++)
                sums[32 * m + n] = __builtin_fmaf(second, from_bits_f32(cols[32 * k + n] & 0xffff0000u), sums[32 * m + n]);
        }
#endif
}
"#;
