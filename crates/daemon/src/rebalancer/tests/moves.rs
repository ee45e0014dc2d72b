//! Which moves have ended.

use bayplan_allocator::NoHome;
use bayplan_node::occupancy::Occupant;
use bayplan_node::turned::{Turn, Turned};
use bayplan_rebalance::Knob;
use bayplan_types::{CpuSet, NodeSet, QosClass};

use super::{occupancy, occupant};
use crate::rebalancer::carry_out::ended_moves;

/// Proposals by number, which are to leave these CPUs, for a container on all four; what of them has ended.
#[track_caller]
fn check(leaves: &[(u64, &str)], hog: Occupant, expected: &[(u64, &str)]) {
    let turns = leaves.iter().map(|(number, leave)| {
        let leave = leave.parse().unwrap();
        (*number, Turn { knob: Knob::Move, target: hog.id, step: 1, leave, mems: NodeSet::new() })
    });
    let turned = Turned::from_turns(turns);
    let other = occupant(2, "other", QosClass::Burstable, "0-3");
    let ended = ended_moves(&turned, &occupancy(vec![hog, other]));
    let ended: Vec<(u64, &str)> =
        ended.iter().map(|(number, why)| (*number, why.as_str())).collect();
    assert_eq!(ended, expected);
}

#[test]
fn of_several_moves_of_one_container_the_newest_ends_first() {
    let hog = |cpus| occupant(1, "hog", QosClass::Burstable, cpus);
    let few = "too few other CPUs would be left for it";
    check(&[(3, "0"), (7, "1"), (9, "")], hog("0-3"), &[(7, few)]);
    check(&[(3, "0"), (7, "1")], hog("0,2-3"), &[(3, few)]);
    check(&[(3, "0"), (7, "1")], hog("2-3"), &[]);
    check(&[], hog("0-3"), &[]);
}

#[test]
fn the_end_of_a_move_is_told_with_what_is_true() {
    let hog = || occupant(1, "hog", QosClass::Burstable, "0-3");
    let owner = Occupant { exclusive: "2-3".parse().unwrap(), ..hog() };
    check(&[(3, "0")], owner, &[(3, "it has exclusive CPUs")]);
    let left_alone = Occupant { is_left_alone: true, ..hog() };
    check(&[(3, "0")], left_alone, &[(3, "its CPUs are not Bayplan's to say")]);
}

#[test]
fn memory_stays_at_home_until_it_does_not_belong_there_any_more() {
    let turn = |id| Turn {
        knob: Knob::Memory,
        target: bayplan_allocator::ContainerId(id),
        step: 1,
        leave: CpuSet::new(),
        mems: "0".parse().unwrap(),
    };
    let turned = Turned::from_turns([(3, turn(1)), (5, turn(2)), (7, turn(9))]);
    let server = |home| Occupant { home, ..occupant(1, "server", QosClass::Burstable, "0-3") };
    let other = occupant(2, "other", QosClass::Burstable, "0-3");
    let ended = |home| ended_moves(&turned, &occupancy(vec![server(home), other.clone()]));
    let at_home = "its memory nodes are those of its CPUs, or as near as they can be".to_owned();
    let no_room = "too little memory is free nearer to its CPUs".to_owned();
    assert_eq!(ended(Ok("0".parse().unwrap())), [(5, at_home.clone())].into());
    assert_eq!(ended(Err(NoHome::NoRoom)), [(3, no_room), (5, at_home.clone())].into());
    let elsewhere = "its memory belongs on nodes 0-1 now".to_owned();
    assert_eq!(ended(Ok("0-1".parse().unwrap())), [(3, elsewhere), (5, at_home)].into());
}
