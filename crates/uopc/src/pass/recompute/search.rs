//! Which buffers to cut so that a plan takes less memory: a sequence of choices, each for a smaller
//! target, that does not depend on what anybody asks for.
//!
//! A target is a number of bytes that the arena should not exceed. Each one begins with no cuts and
//! adds, one after the other, the cut that takes most away of what is above the target, for what it
//! costs to compute the buffer again. What a cut adds elsewhere counts against it as far as it is
//! above the target: so a chain of layers is cut in runs, each as long as the target allows, with a
//! layer kept between two of them. Costs are counted from loops, never measured.
//!
//! A limit takes the first choice whose peak is within it. A smaller limit takes the same one, or a
//! later one because the earlier are above it; so it never has a larger peak.

use smallvec::{SmallVec, smallvec};

use super::timeline::{NONE, Timeline, number};
use super::{Cuts, Flow, Recomputed, recompute};
use crate::ir::form::{BufferIndex, Plan};

/// How much smaller each target is than the one before.
const SHRINK: f64 = 0.94;

/// Targets without a smaller peak after which there is none to be expected.
const PATIENCE: usize = 6;

/// How many buffers one candidate may make live again at most.
const REACH: usize = 32;

/// Cuts are made one by one in plans of up to this many kernels, several at once in larger ones.
const ONE_BY_ONE: usize = 96;

/// What is made of a plan for one target.
pub struct Choice {
    /// Where its buffers are cut.
    pub cuts: Cuts,
    /// Bytes that a run takes at most, as the caller counts them.
    pub peak: usize,
    /// What it costs, in the unit of the kernels' costs.
    pub cost: f64,
}

/// The choices for a plan, made as far as somebody has asked.
pub struct Choices {
    flow: Flow,
    /// By falling peaks.
    made: Vec<Choice>,
    /// The next target.
    target: f64,
    /// What some kernel takes alone.
    floor: usize,
    /// Targets since the last smaller peak.
    idle: usize,
}

impl Choices {
    /// The choices for a plan. The first one is the plan as it is, which takes `peak` bytes.
    pub fn new(flow: Flow, peak: usize) -> Choices {
        let cuts = flow.uncut();
        let timeline = Timeline::new(&flow, &cuts);
        let most = timeline.alive.iter().copied().max().unwrap_or(0);
        let alone = flow.kernels.iter().map(|work| {
            let mut buffers: SmallVec<[BufferIndex; 8]> = work.ins.iter().copied().collect();
            buffers.extend(work.outs.iter().copied());
            buffers.sort_unstable();
            buffers.dedup();
            buffers.iter().map(|&b| flow.bytes[b as usize]).sum()
        });
        let floor = alone.max().unwrap_or(0);
        let cost = timeline.cost;
        Choices {
            flow,
            made: vec![Choice { cuts, peak, cost }],
            target: most as f64 * SHRINK,
            floor,
            idle: 0,
        }
    }

    /// The number of the choice for a limit. `peak` gives the bytes that a plan takes.
    ///
    /// # Errors
    /// The least that any choice takes, if that is above the limit.
    pub fn within(
        &mut self,
        limit: usize,
        plan: &Plan,
        peak: &dyn Fn(&Plan) -> usize,
    ) -> Result<usize, usize> {
        loop {
            if let Some(found) = self.made.iter().position(|c| c.peak <= limit) {
                return Ok(found);
            }
            if !self.advance(plan, peak) {
                let least = self.made.last().expect("there is a first choice");
                return Err(least.peak);
            }
        }
    }

    /// All choices, by falling peaks.
    pub fn into_all(mut self, plan: &Plan, peak: &dyn Fn(&Plan) -> usize) -> Vec<Choice> {
        while self.advance(plan, peak) {}
        self.made
    }

    /// What a choice that was made costs.
    pub fn cost(&self, choice: usize) -> f64 {
        self.made[choice].cost
    }

    /// The plan of a choice that was made.
    pub fn plan(&self, choice: usize, plan: &Plan) -> Recomputed {
        recompute(plan, &self.flow, &self.made[choice].cuts)
    }

    /// Makes a choice for the next target, and keeps it if it has a smaller peak. Whether there
    /// is a target after it.
    fn advance(&mut self, plan: &Plan, peak: &dyn Fn(&Plan) -> usize) -> bool {
        // What some kernel needs alone is tried, too: it may be within reach.
        if self.idle >= PATIENCE || self.target < self.floor as f64 * SHRINK {
            return false;
        }
        let target = (self.target as usize).max(self.floor);
        self.target *= SHRINK;
        let (cuts, cost) = cuts_for(&self.flow, target);
        let peak = peak(&recompute(plan, &self.flow, &cuts).plan);
        let least = self.made.last().map_or(usize::MAX, |c| c.peak);
        if peak < least {
            self.made.push(Choice { cuts, peak, cost });
            self.idle = 0;
        } else {
            self.idle += 1;
        }
        true
    }
}

/// A way to cut a buffer, and what comes of it.
struct Candidate {
    /// Buffers, with the time of the last use before the cut.
    cuts: SmallVec<[(BufferIndex, u32); 2]>,
    /// Bytes that go, by steps.
    falls: (u32, u32, usize),
    /// Bytes that come, by steps.
    rises: SmallVec<[(u32, u32, usize); 4]>,
    /// Bytes above the target that go, less those that come, summed over steps.
    gain: u64,
    cost: f64,
}

impl Candidate {
    fn score(&self) -> f64 {
        self.gain as f64 / self.cost
    }
}

/// Cuts that bring what is alive at once down to the target, as far as they can, and what the plan
/// costs then.
fn cuts_for(flow: &Flow, target: usize) -> (Cuts, f64) {
    let mut cuts = flow.uncut();
    let mut now = Timeline::new(flow, &cuts);
    let mut above = excess(&now.alive, target);
    let mut refused: Vec<(BufferIndex, u32)> = Vec::new();
    // Each round makes a cut or refuses one.
    for _ in 0..4 * flow.kernels.len() {
        if above == 0 {
            break;
        }
        let mut batch = 1 + flow.kernels.len() / ONE_BY_ONE;
        let found = best(flow, &cuts, &now, target, &refused, batch);
        let Some(first) = found.first().and_then(|c| c.cuts.first().copied()) else {
            break;
        };
        loop {
            let mut tried = cuts.clone();
            for candidate in found.iter().take(batch) {
                candidate.cuts.iter().for_each(|&cut| add(&mut tried, cut));
            }
            let then = Timeline::new(flow, &tried);
            let left = excess(&then.alive, target);
            if left < above {
                (cuts, now, above) = (tried, then, left);
                break;
            }
            if batch == 1 {
                refused.push(first);
                break;
            }
            batch = 1;
        }
    }
    prune(flow, target, &mut cuts, &mut now, above);
    (cuts, now.cost)
}

/// Takes cuts back that later ones have made unnecessary, the costliest first.
fn prune(flow: &Flow, target: usize, cuts: &mut Cuts, now: &mut Timeline, above: u64) {
    let cost = |b: usize| flow.kernels[flow.again[b] as usize].cost;
    let mut all: Vec<(usize, u32)> = (cuts.iter().enumerate())
        .flat_map(|(b, at)| at.iter().map(move |&cut| (b, cut)))
        .collect();
    all.sort_by(|x, y| cost(y.0).total_cmp(&cost(x.0)).then(x.cmp(y)));
    for (b, cut) in all {
        let at = cuts[b].iter().position(|&c| c == cut);
        let at = at.expect("collected above, and taken back once");
        cuts[b].remove(at);
        let then = Timeline::new(flow, cuts);
        if then.cost < now.cost && excess(&then.alive, target) <= above {
            *now = then;
        } else {
            cuts[b].insert(at, cut);
        }
    }
}

/// Bytes above the target, summed over steps.
fn excess(alive: &[usize], target: usize) -> u64 {
    let above = alive.iter().map(|a| a.saturating_sub(target) as u64);
    above.fold(0, u64::saturating_add)
}

fn add(cuts: &mut Cuts, (buffer, time): (BufferIndex, u32)) {
    let cuts = &mut cuts[buffer as usize];
    if let Err(at) = cuts.binary_search(&time) {
        cuts.insert(at, time);
    }
}

/// The candidates with the most gain for their cost, the best first, at most that many.
fn best(
    flow: &Flow,
    cuts: &Cuts,
    now: &Timeline,
    target: usize,
    refused: &[(BufferIndex, u32)],
    most: usize,
) -> Vec<Candidate> {
    // A bound of each gap's score: as if all its bytes were above the target at each step where
    // any are.
    let mut above = Vec::with_capacity(now.alive.len() + 1);
    above.push(0u32);
    for &alive in &now.alive {
        above.push(above[above.len() - 1] + u32::from(alive > target));
    }
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(now.gaps.len());
    for (g, gap) in now.gaps.iter().enumerate() {
        let steps = above[gap.until as usize] - above[gap.after as usize + 1];
        let b = now.lives[gap.life as usize].buffer as usize;
        let kernel = flow.again[b];
        if steps == 0 || kernel == NONE {
            continue;
        }
        let bytes = flow.bytes[b] as f64 * f64::from(steps);
        order.push((bytes / flow.kernels[kernel as usize].cost, g));
    }
    let length = |g: usize| now.gaps[g].until - now.gaps[g].after;
    order.sort_by(|x, y| {
        let longest = length(y.1).cmp(&length(x.1));
        y.0.total_cmp(&x.0).then(longest).then(x.1.cmp(&y.1))
    });
    let mut alive = now.alive.clone();
    let mut first: Option<(f64, usize, Candidate)> = None;
    for (at, &(bound, g)) in order.iter().enumerate() {
        if first.as_ref().is_some_and(|f| f.0 >= bound) {
            break;
        }
        let Some(candidate) = candidate(flow, cuts, now, &alive, target, g, refused) else {
            continue;
        };
        let score = candidate.score();
        if first.as_ref().is_none_or(|f| score > f.0) {
            first = Some((score, at, candidate));
        }
    }
    let Some((score, at, candidate_)) = first else {
        return Vec::new();
    };
    let mut found = vec![candidate_];
    apply(&mut alive, &found[0]);
    // Others that are nearly as good, judged by what is left.
    for (other, &(bound, g)) in order.iter().enumerate() {
        if found.len() >= most || bound < NEARLY * score {
            break;
        }
        if other == at {
            continue;
        }
        let next = candidate(flow, cuts, now, &alive, target, g, refused);
        if let Some(next) = next.filter(|c| c.score() >= NEARLY * score) {
            apply(&mut alive, &next);
            found.push(next);
        }
    }
    found
}

/// How good a candidate must be beside the best one to be taken with it.
const NEARLY: f64 = 0.7;

fn apply(alive: &mut [usize], candidate: &Candidate) {
    let (from, to, bytes) = candidate.falls;
    for a in &mut alive[from as usize..=to as usize] {
        *a = a.saturating_sub(bytes);
    }
    for &(from, to, bytes) in &candidate.rises {
        for a in &mut alive[from as usize..=to as usize] {
            *a += bytes;
        }
    }
}

/// The better of two ways to cut a buffer in a gap: inputs of its kernel that are dead by then live
/// on, or are made again, too.
fn candidate(
    flow: &Flow,
    cuts: &Cuts,
    now: &Timeline,
    alive: &[usize],
    target: usize,
    gap: usize,
    refused: &[(BufferIndex, u32)],
) -> Option<Candidate> {
    let gap = &now.gaps[gap];
    let buffer = now.lives[gap.life as usize].buffer;
    let cut = (buffer, now.steps[gap.after as usize].time);
    if refused.contains(&cut) {
        return None;
    }
    let bytes = flow.bytes[buffer as usize];
    let falls = (gap.after + 1, gap.until - 1, bytes);
    let fallen = alive[falls.0 as usize..=falls.1 as usize].iter();
    let fallen = fallen.map(|a| a.saturating_sub(target).min(bytes) as u64);
    let fallen: u64 = fallen.sum();
    let mut best: Option<Candidate> = None;
    for again in [false, true] {
        let Some(mut found) = needs(flow, cuts, now, buffer, gap.until, again) else {
            continue;
        };
        found.cuts.insert(0, cut);
        found.falls = falls;
        let risen = |&(from, to, bytes): &(u32, u32, usize)| -> u64 {
            let steps = alive[from as usize..=to as usize].iter();
            let each = steps.map(|&a| {
                (a + bytes).saturating_sub(target) as u64 - a.saturating_sub(target) as u64
            });
            each.sum()
        };
        let risen: u64 = found.rises.iter().map(risen).sum();
        found.gain = fallen.saturating_sub(risen);
        let better = best.as_ref().is_none_or(|b| found.score() > b.score());
        if found.gain > 0 && better {
            best = Some(found);
        }
    }
    best
}

/// What it takes to make a buffer again before a step. With `again`, what is dead by then is made
/// again as well.
fn needs(
    flow: &Flow,
    cuts: &Cuts,
    now: &Timeline,
    buffer: BufferIndex,
    before: u32,
    again: bool,
) -> Option<Candidate> {
    let time = now.steps[before as usize].time;
    let kernel = flow.again[buffer as usize];
    let mut found = Candidate {
        cuts: smallvec![],
        falls: (0, 0, 0),
        rises: smallvec![],
        gain: 0,
        cost: flow.kernels[kernel as usize].cost,
    };
    let mut seen: SmallVec<[BufferIndex; 16]> = smallvec![buffer];
    let mut todo: SmallVec<[u32; 8]> = smallvec![kernel];
    while let Some(kernel) = todo.pop() {
        for &b in &flow.kernels[kernel as usize].ins {
            let (bytes, maker) = (flow.bytes[b as usize], flow.again[b as usize]);
            if bytes == 0 || seen.contains(&b) {
                continue;
            }
            if seen.len() > REACH {
                return None;
            }
            seen.push(b);
            match now.at(b, number(cuts, b, time)) {
                Some(life) if life.from < before => {
                    let last = &now.steps[life.to as usize];
                    if life.to >= before {
                        // It is alive anyway.
                    } else if again && maker != NONE && last.time < time {
                        found.cuts.push((b, last.time));
                        found.cost += flow.kernels[maker as usize].cost;
                        todo.push(maker);
                    } else {
                        found.rises.push((life.to + 1, before, bytes));
                    }
                }
                // It becomes alive later, and will now.
                Some(life) => {
                    found.rises.push((before, life.from, bytes));
                    todo.push(maker);
                }
                None => {
                    found.cost += flow.kernels[maker as usize].cost;
                    todo.push(maker);
                }
            }
        }
    }
    Some(found)
}
