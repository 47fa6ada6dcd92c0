//! The memory planner on made-up plans: what lies where, how large the arena is, and that large
//! plans are no trouble.

use std::collections::BTreeMap;

use uopc::ir::form::{BufferIndex, Kernel, Plan, PlanBuffer, Role, ShapeGraph};
use uopc::ir::{DType, UOp, verify};
use uopc::pass::memory::{ALIGNMENT, MemoryPlan, plan_memory};

/// Numbers from a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// A plan in which kernel k writes buffer k, with its size in elements, and reads those buffers.
/// The last buffer is the output.
fn plan(kernels: &[(usize, Vec<usize>)]) -> Plan {
    let body: ShapeGraph = verify::shape_graph(vec![UOp::slot(0, DType::U8, 1)]).unwrap();
    let last = kernels.len() - 1;
    let buffers = kernels.iter().enumerate().map(|(k, (n, _))| PlanBuffer {
        dtype: DType::U8,
        n: *n,
        role: match k == last {
            true => Role::Output,
            false => Role::Temporary,
        },
        reason: "".into(),
    });
    let numbered = |b: usize| (0, b as BufferIndex);
    let made = kernels.iter().enumerate().map(|(k, (_, ins))| Kernel {
        name: "k".into(),
        body: body.clone(),
        outs: vec![numbered(k)],
        ins: ins.iter().map(|&b| numbered(b)).collect(),
    });
    Plan {
        kernels: made.collect(),
        buffers: buffers.collect(),
        outputs: vec![last as BufferIndex],
    }
}

/// The bytes that buffer b takes.
fn bytes(plan: &Plan, b: usize) -> usize {
    plan.buffers[b].n.next_multiple_of(ALIGNMENT)
}

/// The buffers with an offset that begin and that end with each kernel.
fn events(plan: &Plan, memory: &MemoryPlan) -> Vec<[Vec<usize>; 2]> {
    let mut last: Vec<usize> = (0..plan.kernels.len()).collect();
    for (k, kernel) in plan.kernels.iter().enumerate() {
        kernel.ins.iter().for_each(|&(_, b)| last[b as usize] = k);
    }
    let mut events = vec![[Vec::new(), Vec::new()]; plan.kernels.len()];
    for (b, &to) in last.iter().enumerate() {
        if memory.offsets[b].is_some() {
            events[b][0].push(b);
            events[to][1].push(b);
        }
    }
    events
}

/// Checks that no two live buffers overlap and that the sizes are what they are said to be; gives
/// the bytes that are alive at once at most, which no arena can do without.
fn check(plan: &Plan, kept: &[BufferIndex]) -> (MemoryPlan, usize) {
    let memory = plan_memory(plan, kept);
    let mut live: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut end, mut alive, mut most) = (0, 0, 0);
    for [begins, ends] in events(plan, &memory) {
        for b in begins {
            let (from, length) = (memory.offsets[b].unwrap(), bytes(plan, b));
            assert_eq!(from % ALIGNMENT, 0);
            if let Some((&other, &long)) = live.range(..from + length).next_back() {
                assert!(other + long <= from, "buffer {b} lies over another");
            }
            live.insert(from, length);
            end = end.max(from + length);
            alive += length;
        }
        most = most.max(alive);
        for b in ends {
            alive -= live.remove(&memory.offsets[b].unwrap()).unwrap();
        }
    }
    assert_eq!(memory.arena, end);
    let placed = |b: &usize| memory.offsets[*b].is_some();
    let separate = (0..plan.buffers.len()).filter(|b| !placed(b));
    let separate: Vec<usize> = separate.collect();
    let mut expected: Vec<usize> = kept.iter().map(|&b| b as usize).collect();
    expected.push(plan.buffers.len() - 1);
    assert_eq!(separate, expected, "the kept and the output");
    let separate: usize = separate.iter().map(|&b| bytes(plan, b)).sum();
    assert_eq!(memory.peak, end + separate);
    assert_eq!(plan_memory(plan, kept), memory);
    (memory, most)
}

/// Buffers of many sizes; each kernel reads the buffer before and some of the last `reach`.
fn mixed(kernels: usize, reach: usize, random: &mut Random) -> Plan {
    let made = (0..kernels).map(|k| {
        let read = (0..2 * k.min(1)).map(|_| k - 1 - random.below(reach.min(k)));
        let ins = read.chain(k.checked_sub(1)).collect();
        (1 + random.below(4096), ins)
    });
    plan(&made.collect::<Vec<_>>())
}

/// Each step writes a buffer that its mirror image reads, as a backward pass reads a forward one.
fn mirrored(steps: usize, random: &mut Random) -> Plan {
    let made = (0..2 * steps).map(|k| {
        let mirror = (k >= steps).then(|| 2 * steps - 1 - k);
        let ins = mirror.into_iter().chain(k.checked_sub(1)).collect();
        (1 + random.below(4096), ins)
    });
    plan(&made.collect::<Vec<_>>())
}

/// The arena when the largest buffers are placed first, each as low as its life allows.
fn largest_first(plan: &Plan, memory: &MemoryPlan) -> usize {
    let mut span = vec![(0, 0); plan.buffers.len()];
    for (k, [begins, ends]) in events(plan, memory).iter().enumerate() {
        begins.iter().for_each(|&b| span[b].0 = k);
        ends.iter().for_each(|&b| span[b].1 = k);
    }
    let mut order: Vec<usize> = (0..span.len() - 1).collect();
    order.sort_by_key(|&b| std::cmp::Reverse(bytes(plan, b)));
    let mut placed: Vec<(usize, usize)> = Vec::new();
    for b in order {
        let beside = |p: usize| span[p].0 <= span[b].1 && span[b].0 <= span[p].1;
        let free = |at: usize| {
            let mut taken = placed.iter().filter(|p| beside(p.1));
            taken.all(|p| p.0 >= at + bytes(plan, b) || p.0 + bytes(plan, p.1) <= at)
        };
        let ends = placed.iter().map(|p| p.0 + bytes(plan, p.1));
        let lowest = ends.chain([0]).filter(|&at| free(at)).min();
        placed.push((lowest.unwrap(), b));
    }
    let ends = placed.iter().map(|p| p.0 + bytes(plan, p.1));
    ends.max().unwrap_or(0)
}

#[test]
fn a_chain_takes_two_buffers() {
    let chain: Vec<_> = (0..9usize)
        .map(|k| (64, k.checked_sub(1).into_iter().collect()))
        .collect();
    let (memory, alive) = check(&plan(&chain), &[]);
    assert_eq!((memory.arena, alive, memory.peak), (128, 128, 192));
    let (memory, _) = check(&plan(&chain), &[3]);
    assert_eq!((memory.arena, memory.peak), (128, 256));
}

#[test]
fn gaps_that_touch_become_one() {
    // Buffers 0 and 1 end together, and 3 is as large as both.
    let kernels = [
        (64, vec![]),
        (64, vec![]),
        (64, vec![0, 1]),
        (128, vec![2]),
        (1, vec![2, 3]),
    ];
    let (memory, _) = check(&plan(&kernels), &[]);
    let offsets = [Some(0), Some(64), Some(128), Some(0), None];
    assert_eq!(memory.offsets, offsets);
}

#[test]
fn the_arena_is_never_larger_than_with_the_largest_first() {
    let mut random = Random(1);
    for round in 0..60 {
        let plan = match round % 3 {
            0 => mirrored(2 + random.below(40), &mut random),
            _ => mixed(2 + random.below(80), 1 + random.below(20), &mut random),
        };
        let (memory, alive) = check(&plan, &[]);
        assert!(alive <= memory.arena);
        assert!(memory.arena <= largest_first(&plan, &memory));
    }
}

#[test]
fn plans_of_a_hundred_thousand_buffers() {
    let mut random = Random(2);
    for n in [50_000, 100_000] {
        let (memory, alive) = check(&mixed(n, 50, &mut random), &[0, 7]);
        println!("mixed {n}: {} for {alive}", memory.arena);
        assert!(memory.arena < alive + alive / 2);
        // Half of the buffers are alive at once.
        let (memory, alive) = check(&mirrored(n / 2, &mut random), &[]);
        println!("mirrored {n}: {} for {alive}", memory.arena);
        assert!(memory.arena < alive + alive / 10);
    }
}
