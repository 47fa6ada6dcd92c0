//! The fusion decision: which values of a shape graph get a buffer of their own, and why.
//!
//! Everything else is computed inside the kernels that read it. A value gets a buffer when
//! computing it where it is read would repeat more work than a store and the loads cost, when it
//! is a reduction that would be repeated or nested, or when its kernel would grow too large.

mod within;

use smallvec::SmallVec;

use crate::ir::op::StageKind;
use crate::ir::visit::Graph;
use crate::ir::{Op, UOp};

/// Arithmetic nodes that one kernel may hold.
pub const MAX_ARITHMETIC: u32 = 256;

/// Operations per element that may be repeated before a buffer is cheaper: about what one store
/// and one load of an element cost beside arithmetic on a vector machine.
pub const REPEATED_WORK: f64 = 32.0;

/// A STACK of more parts is a kernel of its own, with one statement a part.
pub const MAX_SELECTED_PARTS: usize = 16;

/// Different places (kernel and index map) that may compute a value before it gets a buffer,
/// whatever it costs: bounds the work of this decision.
const MAX_READERS: usize = 16;

/// Movement ops looked through between the top of a PAD and its STACK.
const PADDING_REACH: usize = 8;

/// Why a value has a buffer.
pub type Reason = &'static str;

/// Why reductions have buffers that other kernels read.
const REDUCTIONS: [Reason; 2] = [
    "reduction read more than once",
    "reduction inside a reduction or a selection",
];

/// Where values of a graph live.
pub struct Places {
    /// For each node the reason why it gets a buffer, or `None`.
    pub reasons: Vec<Option<Reason>>,
    /// Whether it has scratch memory in the kernel that reads it.
    pub within: Vec<bool>,
}

/// Decides for each node of the graph whether it gets a buffer.
pub fn choose_buffers(graph: &Graph) -> Places {
    let mut reasons: Vec<Option<Reason>> = vec![None; graph.len()];
    for &r in &graph.roots {
        reasons[base(graph, r as usize)] = Some("root");
    }
    for (i, u) in graph.nodes.iter().enumerate() {
        let staged = matches!(u.op(), Op::Stage(StageKind::Materialise));
        if staged && !u.shape().contains(&0) {
            let below = base(graph, graph.src(i)[0] as usize);
            if !graph.nodes[below].src().is_empty() {
                reasons[below].get_or_insert("stage");
            }
        }
    }
    limit_kernel_size(graph, &mut reasons);
    limit_repeated_work(graph, &mut reasons);
    let within = within::keep_within(graph, &mut reasons);
    Places { reasons, within }
}

/// The node whose memory holds node i: RESHAPE and STAGE leave the elements where they are.
pub fn base(graph: &Graph, mut i: usize) -> usize {
    while matches!(graph.nodes[i].op(), Op::Reshape(_) | Op::Stage(_)) {
        i = graph.src(i)[0] as usize;
    }
    i
}

/// Cuts chains so that no kernel has more than [`MAX_ARITHMETIC`] arithmetic nodes.
fn limit_kernel_size(graph: &Graph, reasons: &mut [Option<Reason>]) {
    // An upper bound of the distinct arithmetic nodes below: a sum, which counts shared ones
    // more than once. Only where it says too many are they counted exactly.
    let mut bound = vec![0u32; graph.len()];
    // For each node the last one from which a count has met it.
    let mut met = vec![usize::MAX; graph.len()];
    for i in 0..graph.len() {
        let own = graph.nodes[i].op().is_elementwise() as u32;
        let inherit = |bound: &[u32], reasons: &[Option<Reason>]| {
            (graph.src(i).iter()).fold(own, |n, &s| {
                let s = s as usize;
                n.saturating_add(if reasons[s].is_some() { 0 } else { bound[s] })
            })
        };
        bound[i] = inherit(&bound, reasons);
        if bound[i] <= MAX_ARITHMETIC {
            continue;
        }
        let exact = count_arithmetic(graph, reasons, i, &mut met);
        if exact <= MAX_ARITHMETIC {
            bound[i] = exact;
            continue;
        }
        // Cut the largest sources until the rest fits.
        while bound[i] > MAX_ARITHMETIC {
            let open = graph
                .src(i)
                .iter()
                .map(|&s| s as usize)
                .filter(|&s| reasons[s].is_none());
            let Some(largest) = open.max_by_key(|&s| bound[s]) else {
                break;
            };
            if bound[largest] == 0 {
                break;
            }
            reasons[arithmetic_below(graph, largest)].get_or_insert("kernel size");
            bound[largest] = 0;
            bound[i] = inherit(&bound, reasons);
        }
    }
}

/// The first node that is not a movement op, going down from i.
fn arithmetic_below(graph: &Graph, mut i: usize) -> usize {
    while graph.nodes[i].op().is_movement() {
        i = graph.src(i)[0] as usize;
    }
    i
}

/// Distinct arithmetic nodes that the kernel of node i computes, counted up to just above the
/// limit. Marks what it meets in `met`.
fn count_arithmetic(graph: &Graph, reasons: &[Option<Reason>], i: usize, met: &mut [usize]) -> u32 {
    let mut stack = vec![i];
    let mut count = 0;
    while let Some(k) = stack.pop() {
        if std::mem::replace(&mut met[k], i) == i {
            continue;
        }
        count += graph.nodes[k].op().is_elementwise() as u32;
        if count > MAX_ARITHMETIC {
            break;
        }
        stack.extend(
            graph
                .src(k)
                .iter()
                .map(|&s| s as usize)
                .filter(|&s| reasons[s].is_none()),
        );
    }
    count
}

/// One place that computes a value.
#[derive(Clone, Copy)]
struct Reader {
    /// The node whose buffer the kernel fills.
    kernel: u32,
    /// Tells index maps apart: equal for equal ways from the kernel's node.
    map: u64,
    /// How often the value is computed there.
    times: f64,
    /// Whether a REDUCE, or the choice between parts, lies between.
    nested: bool,
}

/// Gives a buffer to each value whose repeated computation would cost too much.
///
/// Goes from the roots down, so that the readers of a node are known when it is decided on.
fn limit_repeated_work(graph: &Graph, reasons: &mut [Option<Reason>]) {
    let cost = costs(graph, reasons);
    let tail = reduction_tails(graph);
    let mut readers: Vec<SmallVec<[Reader; 2]>> = vec![SmallVec::new(); graph.len()];
    for i in (0..graph.len()).rev() {
        let u = &graph.nodes[i];
        if reasons[i].is_none() {
            reasons[i] = match is_padding(graph, i) {
                true => repeated_work(u, &readers[i], cost[i]),
                false => reason_for(u, &readers[i], cost[i], tail[i]),
            };
        }
        let own: SmallVec<[Reader; 2]> = if reasons[i].is_some() {
            let times = u.shape().numel() as f64;
            SmallVec::from_elem(
                Reader {
                    kernel: i as u32,
                    map: 0,
                    times,
                    nested: false,
                },
                1,
            )
        } else {
            std::mem::take(&mut readers[i])
        };
        for (k, &s) in graph.src(i).iter().enumerate() {
            let into = &mut readers[s as usize];
            for reader in &own {
                let read = through(u, i, k, reader);
                let same = into
                    .iter()
                    .position(|r| r.kernel == read.kernel && r.map == read.map);
                match same {
                    Some(at) => into[at].nested |= read.nested,
                    None if into.len() <= MAX_READERS => into.push(read),
                    None => {}
                }
            }
        }
    }
}

/// How source k of `u`, which is node i, is read by a reader of `u`.
fn through(u: &UOp, i: usize, k: usize, reader: &Reader) -> Reader {
    let step = |n: u64| {
        (reader.map ^ n)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    };
    let mapped = Reader {
        map: step(i as u64),
        ..*reader
    };
    match u.op() {
        Op::Reduce { .. } => {
            let inner = u.src()[0].shape().numel() as f64 / (u.shape().numel().max(1)) as f64;
            Reader {
                times: reader.times * inner,
                nested: true,
                ..mapped
            }
        }
        Op::Stack => {
            let map = step(step(i as u64) ^ (k as u64 + 1));
            Reader {
                map,
                times: reader.times / u.src().len() as f64,
                nested: true,
                ..*reader
            }
        }
        Op::Index if k == 0 => Reader {
            nested: true,
            ..mapped
        },
        // The kernel runs once for each row and column: a column's index is that of the row.
        Op::ScatterAdd(_) => Reader {
            times: u.src()[0].shape().numel() as f64,
            nested: true,
            ..mapped
        },
        // Each element of the source is computed once, in the kernel's own loops.
        Op::Scan(_) | Op::ArgSort => Reader {
            nested: true,
            ..mapped
        },
        op if op.is_movement() || matches!(op, Op::Index) => mapped,
        _ => *reader,
    }
}

fn reason_for(u: &UOp, readers: &[Reader], cost: f64, tail: bool) -> Option<Reason> {
    let n = u.shape().numel() as f64;
    if readers.is_empty() || u.src().is_empty() || u.op().is_movement() || n == 0.0 {
        return None;
    }
    if matches!(u.op(), Op::Stage(_)) {
        return None;
    }
    if matches!(u.op(), Op::ScatterAdd(_)) {
        return Some("rows that are added in memory");
    }
    if matches!(u.op(), Op::Scan(_)) {
        return Some("running combination");
    }
    if matches!(u.op(), Op::ArgSort) {
        return Some("sorted positions");
    }
    let times: f64 = readers.iter().map(|r| r.times).sum();
    let repeated = times > n || readers.len() > 1;
    if matches!(u.op(), Op::Reduce { .. }) {
        return if repeated {
            Some(REDUCTIONS[0])
        } else if readers[0].nested {
            Some(REDUCTIONS[1])
        } else {
            None
        };
    }
    if tail && repeated {
        return Some("end of a reduction read more than once");
    }
    if matches!(u.op(), Op::Stack) && u.src().len() > MAX_SELECTED_PARTS {
        return Some("stack of many parts");
    }
    repeated_work(u, readers, cost)
}

fn repeated_work(u: &UOp, readers: &[Reader], cost: f64) -> Option<Reason> {
    let n = u.shape().numel() as f64;
    let times: f64 = readers.iter().map(|r| r.times).sum();
    let much = (times / n - 1.0) * cost > REPEATED_WORK || readers.len() > MAX_READERS;
    (n > 0.0 && much).then_some("repeated work")
}

/// Whether a node is what movement makes of a STACK without repeating elements, such as the SHRINK
/// at the end of a PAD: its buffer is smaller than that of the STACK and lies in order.
fn is_padding(graph: &Graph, i: usize) -> bool {
    let moves = |i: usize| matches!(graph.nodes[i].op(), Op::Shrink(_) | Op::Permute(_));
    if !moves(i) {
        return false;
    }
    let mut below = i;
    for _ in 0..PADDING_REACH {
        match graph.nodes[below].op() {
            Op::Shrink(_) | Op::Permute(_) | Op::Reshape(_) => {
                below = graph.src(below)[0] as usize;
            }
            op => return matches!(op, Op::Stack),
        }
    }
    false
}

/// For each node the operations of computing one element from buffers, reductions counting as
/// buffers. Nothing is shared in this count, since parts read under different maps are repeated.
fn costs(graph: &Graph, reasons: &[Option<Reason>]) -> Vec<f64> {
    let mut cost = vec![0.0f64; graph.len()];
    for i in 0..graph.len() {
        let below = |cost: &[f64]| {
            let open = graph
                .src(i)
                .iter()
                .filter(|&&s| reasons[s as usize].is_none());
            open.map(|&s| cost[s as usize]).sum::<f64>()
        };
        cost[i] = match graph.nodes[i].op() {
            Op::Reduce { .. } | Op::Scan(_) | Op::ArgSort => 0.0,
            Op::Exp | Op::Exp2 | Op::Log2 | Op::Sin(_) => below(&cost) + 8.0,
            Op::Div | Op::Recip | Op::Sqrt | Op::FloorDiv | Op::FloorMod => below(&cost) + 4.0,
            op if op.is_elementwise() => below(&cost) + 1.0,
            Op::Stack | Op::Index => below(&cost) + 2.0,
            _ => below(&cost),
        }
        .min(1e12);
    }
    cost
}

/// Nodes that end a reduction: a REDUCE, and elementwise work, RESHAPE and PERMUTE on top of one
/// that has no other consumer. Such a node's kernel holds the reduction, so a buffer belongs after
/// the cheap work; a reduction with more consumers has a buffer of its own.
fn reduction_tails(graph: &Graph) -> Vec<bool> {
    let consumers: Vec<usize> = (graph.consumers().into_iter())
        .map(|mut readers| {
            readers.dedup();
            readers.len()
        })
        .collect();
    let mut tail = vec![false; graph.len()];
    for i in 0..graph.len() {
        let continues = |&s: &u32| tail[s as usize] && consumers[s as usize] == 1;
        tail[i] = match graph.nodes[i].op() {
            Op::Reduce { .. } => true,
            Op::Reshape(_) | Op::Permute(_) => continues(&graph.src(i)[0]),
            op if op.is_elementwise() => graph.src(i).iter().any(continues),
            _ => false,
        };
    }
    tail
}
