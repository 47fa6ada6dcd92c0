//! Rules of loads and stores: inputs, and a comparison that runs them.

use rustc_hash::FxHashMap;

use uopc::ir::op::{Combine, Exec, ParamMode};
use uopc::ir::scalar::apply;
use uopc::ir::visit::toposort;
use uopc::ir::{DType, Op, Scalar, UOp};

use super::Cases;
use crate::{N, VALUES, values};

fn memory(dtype: DType) -> UOp {
    UOp::param(0, ParamMode::In, dtype, N)
}

fn counter(n: i64, id: u32) -> UOp {
    UOp::range(&UOp::int(n, DType::I32), id, Exec::Serial).unwrap()
}

pub fn put(cases: &mut Cases) {
    let int = |v| UOp::int(v, DType::I32);
    for dtype in DType::ALL {
        let memory = memory(dtype);
        for truth in [true, false] {
            let gate = UOp::truth(truth);
            let load = memory.load(&counter(3, 0), Some(&gate)).unwrap();
            cases.put("load_gate_known", load);
        }
        let (low, high) = (counter(3, 0).cmplt(&int(2)), int(1).cmplt(&counter(4, 1)));
        let (low, high) = (low.unwrap(), high.unwrap());
        let gated = |gate: &UOp| memory.load(&counter(3, 0), Some(gate)).unwrap();
        let zero = UOp::constant(Scalar::zero(dtype));
        let both = gated(&high.and(&low).unwrap());
        cases.put("where_gated", low.where_(&both, &zero).unwrap());
        let neither = gated(&low.logical_not().unwrap().and(&high).unwrap());
        cases.put("where_gated", low.where_(&zero, &neither).unwrap());
        let twice = high.where_(&(&both + &both), &(&both * &both)).unwrap();
        cases.put("where_gated", low.where_(&twice, &zero).unwrap());
        let larger = both.maximum(&zero).unwrap().cast(DType::F32).unwrap();
        let zero = UOp::constant(Scalar::zero(DType::F32));
        cases.put("where_gated", low.where_(&larger, &zero).unwrap());

        let sum = &(&counter(3, 0) * &int(4)) + &counter(4, 1);
        let index = &(&sum * &int(5)) + &counter(5, 2);
        cases.put("index_flat", memory.load(&index, None).unwrap());

        let out = UOp::param(1, ParamMode::Out, dtype, N);
        let value = memory.load(&counter(3, 0), None).unwrap();
        let gate = UOp::truth(true);
        let set = out
            .store(&counter(3, 0), &[value.clone()], Combine::Set, Some(&gate))
            .unwrap();
        cases.put("store_gate_true", set);
        let pair = [value.clone(), value.clone()];
        let sum = out
            .store(&counter(3, 0), &pair, Combine::MulAcc, Some(&gate))
            .unwrap();
        cases.put("store_gate_true", sum);
        cases.put(
            "index_flat",
            out.store(&index, &[value], Combine::Set, None).unwrap(),
        );
    }
}

/// True for rules of loads and stores, which the graph interpreter does not know.
pub fn in_loops(rule: &str) -> bool {
    matches!(
        rule,
        "load_gate_known" | "store_gate_true" | "index_flat" | "where_gated"
    )
}

/// Compares a load, or what and where a store writes, for each state of the counters.
pub fn assert_same_in_loops(before: &UOp, after: &UOp, what: &str) {
    for point in 0..60 {
        let a = effect(before, point);
        let b = effect(after, point);
        assert_eq!(a, b, "{what} at {point}");
    }
}

/// The value of a load; of a store the index, the values, and whether it happens.
fn effect(root: &UOp, point: i128) -> (Vec<Scalar>, bool) {
    let mut known: FxHashMap<UOp, Vec<Scalar>> = FxHashMap::default();
    let gate = |known: &FxHashMap<UOp, Vec<Scalar>>, u: Option<&UOp>| {
        u.is_none_or(|gate| known[gate][0].as_bool())
    };
    let mut happens = true;
    for u in toposort(std::slice::from_ref(root)) {
        let value = match u.op() {
            Op::Const(c) => vec![*c],
            Op::Range { id, .. } => {
                let n = known[&u.src()[0]][0].as_i128();
                let stride = [20, 5, 1][*id as usize];
                vec![Scalar::from_i128(u.dtype(), point / stride % n)]
            }
            Op::Param { .. } => vec![],
            Op::Load if !gate(&known, u.src().get(2)) => vec![Scalar::zero(u.dtype())],
            Op::Load => {
                let at = known[&u.src()[1]][0].as_i128();
                vec![values(u.dtype())[at as usize % VALUES]]
            }
            Op::Store { gated, .. } => {
                let sources = &u.src()[1..];
                let written = &sources[..sources.len() - *gated as usize];
                happens = !gated || gate(&known, sources.last());
                written.iter().map(|s| known[s][0]).collect()
            }
            op => {
                let args: Vec<Scalar> = u.src().iter().map(|s| known[s][0]).collect();
                vec![apply(op, u.dtype(), &args)]
            }
        };
        known.insert(u, value);
    }
    (known.remove(root).unwrap(), happens)
}
