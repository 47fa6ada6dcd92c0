//! Positions of nodes in lists that are made one after the other, one inside the other, and by
//! several threads.

use std::thread;

use uopc::ir::positions::Positions;
use uopc::ir::visit::Graph;
use uopc::ir::{DType, UOp};

fn slots(numbers: std::ops::Range<u32>) -> Vec<UOp> {
    numbers.map(|k| UOp::slot(k, DType::F32, 1)).collect()
}

/// Puts nodes on a new list.
fn list(nodes: &[UOp]) -> (Positions, Vec<UOp>) {
    let (mut positions, mut list) = (Positions::begin(), Vec::new());
    for u in nodes {
        assert_eq!(positions.of(u, &list), None);
        let position = positions.push(u.clone(), &mut list);
        assert_eq!(positions.of(u, &list), Some(position));
    }
    (positions, list)
}

fn assert_positions(positions: &Positions, list: &[UOp], strangers: &[UOp]) {
    for (k, u) in list.iter().enumerate() {
        assert_eq!(positions.of(u, list), Some(k as u32));
    }
    assert!(strangers.iter().all(|u| positions.of(u, list).is_none()));
}

#[test]
fn a_list_inside_another_leaves_it_alone() {
    let (nodes, others) = (slots(0..8), slots(8..12));
    let (mut outer, outer_list) = list(&nodes);
    let reversed: Vec<UOp> = nodes.iter().rev().cloned().collect();
    let (mut inner, inner_list) = list(&reversed);
    assert_positions(&outer, &outer_list, &others);
    assert_positions(&inner, &inner_list, &others);
    inner.end();
    outer.end();
    assert_positions(&inner, &inner_list, &others);
    assert_positions(&outer, &outer_list, &others);
}

#[test]
fn a_list_that_has_ended_finds_nodes_that_later_ones_took() {
    let (nodes, others) = (slots(20..28), slots(28..32));
    let (mut first, first_list) = list(&nodes);
    first.end();
    let (mut second, second_list) = list(&nodes[3..]);
    second.end();
    let (third, third_list) = list(&others);
    assert_positions(&first, &first_list, &others);
    assert_positions(&second, &second_list, &nodes[..3]);
    assert_positions(&third, &third_list, &nodes);
}

/// Threads that walk over the same nodes from different roots get the order that each would get
/// alone.
#[test]
fn threads_that_walk_over_the_same_nodes_do_not_disturb_each_other() {
    let mut chain = slots(40..42);
    for k in 0..300 {
        chain.push(chain[k].add(&chain[k + 1]).unwrap());
    }
    let check = |top: usize| {
        let root = [chain[top].clone()];
        let graph = Graph::new(&root);
        assert_eq!(graph.len(), top + 1);
        for (k, u) in chain.iter().enumerate() {
            assert_eq!(graph.position(u).is_some(), k <= top);
        }
        for (k, u) in graph.nodes.iter().enumerate() {
            assert_eq!(graph.position(u), Some(k));
            let sources = graph.src(k).iter().map(|&s| &graph.nodes[s as usize]);
            assert!(sources.eq(u.src()));
        }
    };
    thread::scope(|scope| {
        for t in 0..4 {
            let check = &check;
            scope.spawn(move || (0..200).for_each(|k| check(2 + (k * 7 + t * 50) % 299)));
        }
    });
}
