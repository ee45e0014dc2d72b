//! The tree of objects. In: candidates, each a level, a number and a CPU set. Out: objects nested by inclusion, and the
//! candidates that overlap another one without one being inside the other.
//!
//! Of two candidates that do not nest the less certain one is left out. What CPUs say of themselves (package, core, die, cache)
//! is more certain than the firmware's tables (NUMA nodes).

use std::cmp::Reverse;

use bayplan_types::CpuSet;

use crate::topology::{Level, Object, ObjectIdx};

/// An object that may enter the tree. `cpus` is not empty; candidates of one level are disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) level: Level,
    pub(crate) id: u32,
    pub(crate) cpus: CpuSet,
}

/// A candidate without a place in the tree, and one that it overlaps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) candidate: Candidate,
    pub(crate) overlaps: (Level, u32),
}

/// Most certain first.
const BY_CERTAINTY: [Level; 9] = [
    Level::Package,
    Level::Core,
    Level::Die,
    Level::Book,
    Level::Drawer,
    Level::L3,
    Level::L2,
    Level::NumaNode,
    Level::Cluster,
];

/// Nests the candidates inside a machine of these CPUs. `mems` of the objects is empty.
pub(crate) fn nest(online: &CpuSet, candidates: Vec<Candidate>) -> (Vec<Object>, Vec<LeftOut>) {
    let (mut accepted, left_out) = accept(candidates);
    accepted.sort_by_cached_key(|candidate| {
        (Reverse(candidate.cpus.len()), candidate.level, candidate.cpus.first())
    });
    let machine = Candidate { level: Level::Machine, id: 0, cpus: online.clone() };
    accepted.insert(0, machine);
    let parents = find_parents(&accepted);
    (number(accepted, &parents), left_out)
}

/// Keeps what nests with everything that is more certain.
fn accept(candidates: Vec<Candidate>) -> (Vec<Candidate>, Vec<LeftOut>) {
    let mut accepted: Vec<Candidate> = Vec::new();
    let mut left_out = Vec::new();
    // Per level that was dealt with: the accepted candidate of each CPU, by CPU number.
    let mut owners: Vec<Vec<Option<usize>>> = Vec::new();
    for level in BY_CERTAINTY {
        let mut owner_of_cpu = Vec::new();
        for candidate in candidates.iter().filter(|candidate| candidate.level == level) {
            let overlapped =
                owners.iter().find_map(|owners| overlapped(&candidate.cpus, owners, &accepted));
            if let Some(other) = overlapped.and_then(|other| accepted.get(other)) {
                let overlaps = (other.level, other.id);
                left_out.push(LeftOut { candidate: candidate.clone(), overlaps });
                continue;
            }
            set_owner(&mut owner_of_cpu, &candidate.cpus, accepted.len());
            accepted.push(candidate.clone());
        }
        owners.push(owner_of_cpu);
    }
    (accepted, left_out)
}

/// A set of one level that shares some of `cpus`, but neither contains them all nor lies inside them.
fn overlapped(cpus: &CpuSet, owners: &[Option<usize>], accepted: &[Candidate]) -> Option<usize> {
    let mut last = None;
    for cpu in cpus.iter() {
        let owner = owners.get(cpu.0 as usize).copied().flatten();
        // Neighbours mostly have the same owner; each owner is looked at once per run.
        if owner.is_none() || owner == last {
            continue;
        }
        last = owner;
        let other = &accepted.get(owner?)?.cpus;
        if !cpus.is_subset(other) && !other.is_subset(cpus) {
            return owner;
        }
    }
    None
}

fn set_owner(owner_of_cpu: &mut Vec<Option<usize>>, cpus: &CpuSet, owner: usize) {
    let len = cpus.last().map_or(0, |cpu| cpu.0 as usize + 1);
    if owner_of_cpu.len() < len {
        owner_of_cpu.resize(len, None);
    }
    for cpu in cpus.iter() {
        if let Some(slot) = owner_of_cpu.get_mut(cpu.0 as usize) {
            *slot = Some(owner);
        }
    }
}

/// The innermost object around each one. `sorted` nests, the largest first, so the object that was last laid over a CPU is the
/// innermost one there.
fn find_parents(sorted: &[Candidate]) -> Vec<Option<usize>> {
    let mut innermost = Vec::new();
    let mut parents = Vec::with_capacity(sorted.len());
    for (position, candidate) in sorted.iter().enumerate() {
        let first = candidate.cpus.first();
        let parent = first.and_then(|cpu| innermost.get(cpu.0 as usize).copied().flatten());
        parents.push(parent);
        set_owner(&mut innermost, &candidate.cpus, position);
    }
    parents
}

/// Numbers the objects depth first, siblings by lowest CPU.
fn number(sorted: Vec<Candidate>, parents: &[Option<usize>]) -> Vec<Object> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); sorted.len()];
    for (position, parent) in parents.iter().enumerate() {
        if let Some(children) = parent.and_then(|parent| children.get_mut(parent)) {
            children.push(position);
        }
    }
    let first = |position: &usize| sorted.get(*position).and_then(|c| c.cpus.first());
    for siblings in &mut children {
        siblings.sort_by_key(first);
    }
    let mut objects: Vec<Object> = Vec::with_capacity(sorted.len());
    let mut to_visit: Vec<(usize, Option<ObjectIdx>)> = vec![(0, None)];
    while let Some((position, parent)) = to_visit.pop() {
        let Some(candidate) = sorted.get(position) else { continue };
        let idx = ObjectIdx(u32::try_from(objects.len()).unwrap_or(u32::MAX));
        if let Some(parent) = parent.and_then(|parent| objects.get_mut(parent.index())) {
            parent.children.push(idx);
        }
        objects.push(Object {
            idx,
            level: candidate.level,
            id: candidate.id,
            parent,
            children: Vec::new(),
            cpus: candidate.cpus.clone(),
            mems: Default::default(),
        });
        let inside = children.get(position).into_iter().flatten();
        to_visit.extend(inside.rev().map(|child| (*child, Some(idx))));
    }
    objects
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use expect_test::{Expect, expect};

    use super::*;

    fn check(online: &str, candidates: &[(Level, u32, &str)], expected: Expect) {
        let candidates = candidates
            .iter()
            .map(|(level, id, cpus)| Candidate {
                level: *level,
                id: *id,
                cpus: cpus.parse().unwrap(),
            })
            .collect();
        let (objects, left_out) = nest(&online.parse().unwrap(), candidates);
        let mut text = String::new();
        for object in &objects {
            let mut depth = 0;
            let mut parent = object.parent;
            while let Some(idx) = parent {
                depth += 1;
                parent = objects[idx.index()].parent;
            }
            let indent = "  ".repeat(depth);
            writeln!(text, "{indent}{} {}: {}", object.level, object.id, object.cpus).unwrap();
        }
        for LeftOut { candidate, overlaps: (level, id) } in left_out {
            let Candidate { level: left, id: left_id, cpus } = candidate;
            writeln!(text, "left out: {left} {left_id}: {cpus}, overlaps {level} {id}").unwrap();
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn an_l3_is_inside_or_outside_of_a_numa_node_by_its_cpus() {
        check(
            "0-7",
            &[
                (Level::L3, 0, "0-3"),
                (Level::NumaNode, 0, "0-1"),
                (Level::NumaNode, 1, "2-3"),
                (Level::L3, 1, "4-5"),
                (Level::L3, 2, "6-7"),
                (Level::NumaNode, 2, "4-7"),
            ],
            expect![[r#"
                Machine 0: 0-7
                  L3 0: 0-3
                    NumaNode 0: 0-1
                    NumaNode 1: 2-3
                  NumaNode 2: 4-7
                    L3 1: 4-5
                    L3 2: 6-7
            "#]],
        );
    }

    #[test]
    fn objects_of_equal_cpus_stand_in_the_order_of_levels() {
        check(
            "0",
            &[
                (Level::Core, 0, "0"),
                (Level::L3, 0, "0"),
                (Level::NumaNode, 0, "0"),
                (Level::Die, 0, "0"),
                (Level::Package, 0, "0"),
            ],
            expect![[r#"
                Machine 0: 0
                  Package 0: 0
                    Die 0: 0
                      NumaNode 0: 0
                        L3 0: 0
                          Core 0: 0
            "#]],
        );
    }

    #[test]
    fn what_does_not_nest_is_left_out_and_the_firmware_loses_against_the_cpus() {
        check(
            "0-7",
            &[
                (Level::NumaNode, 0, "0-4"),
                (Level::NumaNode, 1, "5-7"),
                (Level::Package, 0, "0-3"),
                (Level::Package, 1, "4-7"),
                (Level::Core, 0, "3-4"),
            ],
            expect![[r#"
                Machine 0: 0-7
                  Package 0: 0-3
                  Package 1: 4-7
                    NumaNode 1: 5-7
                left out: Core 0: 3-4, overlaps Package 0
                left out: NumaNode 0: 0-4, overlaps Package 1
            "#]],
        );
    }

    #[test]
    fn interleaved_numbers_are_ordered_by_lowest_cpu() {
        check(
            "0-5",
            &[(Level::Package, 1, "1,3,5"), (Level::Package, 0, "0,2,4")],
            expect![[r#"
                Machine 0: 0-5
                  Package 0: 0,2,4
                  Package 1: 1,3,5
            "#]],
        );
    }
}
