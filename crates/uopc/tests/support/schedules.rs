//! Rewrites of loops by name, for golden files and random tests.

use uopc::debug::Settings;
use uopc::ir::UOp;
use uopc::ir::form::LoopGraph;
use uopc::ir::op::{Exec, Op, Space};
use uopc::machine::Machine;
use uopc::pass::schedule::choice::Choice;
use uopc::pass::schedule::narrow::narrow;
use uopc::pass::schedule::nest::{Nest, is_range};
use uopc::pass::schedule::rewrite::{self, Axis, Outcome, Refusal, Tail};
use uopc::pass::schedule::schedule_as;
use uopc::pass::simplify::simplify_loops;

/// A machine by its name.
pub fn machine(name: &str) -> Result<Machine, String> {
    match name {
        "avx512" => Ok(Machine::avx512()),
        "avx2" => Ok(Machine::avx2()),
        "portable" => Ok(Machine::portable()),
        "avx512_bf16" => Ok(Machine::avx512_bf16()),
        "amx" => Ok(Machine::amx()),
        other => Err(format!("no machine is called {other}")),
    }
}

/// The range with this number.
fn range(nest: &Nest, id: &str) -> Result<UOp, String> {
    let all = nest.statements.iter().flat_map(|s| &s.ranges);
    let is = |r: &&UOp| matches!(r.op(), Op::Range { id: n, .. } if n.to_string() == id);
    all.into_iter()
        .filter(|r| is_range(r))
        .find(is)
        .cloned()
        .ok_or(format!("there is no range {id}"))
}

/// The scratch memory with this number.
fn local(nest: &Nest, id: &str) -> Result<UOp, String> {
    let is = |r: &UOp| matches!(r.op(), Op::Local { id: n, .. } if n.to_string() == id);
    let found = nest.locals().into_iter().find(is);
    found.ok_or(format!("there is no local {id}"))
}

/// Makes a rewrite that is written as its name and its arguments: ranges and locals by number,
/// statements by position.
pub fn apply(nest: &mut Nest, line: &str) -> Result<Outcome<()>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |w: &str| w.parse::<usize>().map_err(|e| format!("{w}: {e}"));
    let ranges = |nest: &Nest, ids: &[&str]| -> Result<Vec<UOp>, String> {
        ids.iter().map(|id| range(nest, id)).collect()
    };
    let exec = |w: &str| Exec::from_name(w).ok_or(format!("nothing runs {w}"));
    let axis = |w: &str| match w {
        "major" => Ok(Axis::Major),
        "minor" => Ok(Axis::Minor),
        other => Err(format!("no axis is {other}")),
    };
    Ok(match words[..] {
        ["split", r, size, tail] => {
            let tail = match tail {
                "exact" => Tail::Exact,
                "gate" => Tail::Gate,
                "peel" => Tail::Peel,
                "short" => Tail::Short,
                other => return Err(format!("no tail is {other}")),
            };
            rewrite::split(nest, &range(nest, r)?, number(size)?, tail).map(drop)
        }
        ["merge", a, b] => rewrite::merge(nest, &range(nest, a)?, &range(nest, b)?).map(drop),
        ["reorder", k, ref ids @ ..] => {
            let order = ranges(nest, ids)?;
            rewrite::reorder(nest, number(k)?, &order)
        }
        ["fission", r, k] => rewrite::fission(nest, &range(nest, r)?, number(k)?).map(drop),
        ["unit", r] => rewrite::unit(nest, &range(nest, r)?),
        ["restart", l, k, n] => {
            let local = local(nest, l)?;
            rewrite::restart(nest, &local, number(k)?, number(n)?).map(drop)
        }
        ["partition", k, r] => {
            let range = range(nest, r)?;
            rewrite::partition(nest, number(k)?, &range)
        }
        ["own", k, owners] => rewrite::own(nest, number(k)?, number(owners)?).map(drop),
        ["share", k] => rewrite::share(nest, number(k)?),
        ["exec", r, kind] => rewrite::set_exec(nest, &range(nest, r)?, exec(kind)?).map(drop),
        ["expand", l, a, ref ids @ ..] => {
            let (local, ids) = (local(nest, l)?, ranges(nest, ids)?);
            rewrite::expand(nest, &local, &ids, axis(a)?).map(drop)
        }
        ["space", l, space] => {
            let space = Space::from_name(space).ok_or(format!("no space is {space}"))?;
            rewrite::set_space(nest, &local(nest, l)?, space).map(drop)
        }
        ["privatise", k, ref ids @ ..] => {
            let ids = ranges(nest, ids)?;
            rewrite::privatise(nest, number(k)?, &ids).map(drop)
        }
        ["narrow"] => narrow(nest).map_err(Refusal::from),
        ["inward", r, kind, a] => {
            rewrite::inward(nest, &range(nest, r)?, exec(kind)?, axis(a)?).map(drop)
        }
        _ => return Err(format!("no rewrite is called: {line}")),
    })
}

/// Applies the lines `; rewrite:` and `; refused:` of a golden file, or lays the loops out for
/// the machine of a line `; machine:`, as a line `; choice:` says if there is one.
pub fn rewritten(
    before: &LoopGraph,
    rewrites: &[&str],
    refused: &[&str],
    machines: &[&str],
    made: &[&str],
) -> Result<LoopGraph, String> {
    if let [name] = machines {
        let choice = match made {
            [] => Choice::default(),
            [text] => Choice::parse(text).ok_or(format!("{text} is no choice"))?,
            _ => return Err("one choice at most".into()),
        };
        let loops = schedule_as(before, &machine(name)?, &choice);
        let loops = loops.map_err(|e| e.to_string())?;
        return simplify_loops(&loops, &Settings::default()).map_err(|e| e.to_string());
    }
    let mut nest = Nest::of(before);
    for line in rewrites {
        match apply(&mut nest, line)? {
            Ok(()) => {}
            Err(Refusal::Illegal(why)) => return Err(format!("{line}: refused: {why}")),
            Err(Refusal::Failed(error)) => return Err(format!("{line}: {error}")),
        }
    }
    for line in refused {
        let (line, why) = line.split_once(" because ").unwrap_or((line, ""));
        match apply(&mut nest.clone(), line)? {
            Err(Refusal::Illegal(found)) if found == why => {}
            other => {
                return Err(format!(
                    "{line}: expected a refusal, '{why}', found {other:?}"
                ));
            }
        }
    }
    nest.build().map_err(|e| e.to_string())
}
