//! Desired and observed pinnings to an ordered plan. In: both states. Out: writes in three passes, let go, move, and then take.
//!
//! A CPU must have left its old owner before a new one takes it. So in the first pass every container that loses CPUs is shrunk to
//! what it keeps, and in the last every container gets all it should have. A container that keeps no CPU at all cannot let go first, because cgroup
//! v2 reads an empty set as "inherit from the parent" (Documentation/admin-guide/cgroup-v2.rst, "cpuset.cpus"); it is moved in one write, between the
//! two: to those of its new CPUs that no other container is just being moved off, or else after that one. Only where containers change all of their
//! CPUs in a circle do they overlap for the length of one write. Guarantees: the plan for a state that is already right is empty; carrying the plan
//! out gives the desired state; an empty set stands for what is left alone, and is never written.

use std::fmt;

use bayplan_types::{CpuSet, NodeSet, Pinning};

use crate::pinning::{DesiredState, ObservedState};

/// Which pass a write belongs to. Each waits for the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// CPUs are taken away only.
    Shrink,
    /// Other CPUs are given for all of the old ones.
    Move,
    /// CPUs are given.
    Grow,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Pass::Shrink => "shrink",
            Pass::Move => "move",
            Pass::Grow => "grow",
        })
    }
}

/// One change of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The pass.
    pub pass: Pass,
    /// The runtime's container id.
    pub container: String,
    /// What it has; `None` when it was not seen yet.
    pub old: Option<Pinning>,
    /// What it gets.
    pub new: Pinning,
}

/// Writes in the order in which they must be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Shrinks first, then moves, then grows; by container id inside a group.
    pub writes: Vec<Write>,
}

impl Plan {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The writes in groups: all of one group may be written at once; the next waits for it. Only moves may take more than one.
    pub fn groups(&self) -> Vec<Vec<&Write>> {
        let pass = |pass| self.writes.iter().filter(move |write| write.pass == pass).collect();
        let mut groups: Vec<Vec<&Write>> = vec![pass(Pass::Shrink)];
        let mut rest: Vec<&Write> = pass(Pass::Move);
        while !rest.is_empty() {
            let (waiting, ready) =
                rest.iter().partition::<Vec<&Write>, _>(|write| must_wait(write, &rest));
            let is_circle = ready.is_empty();
            groups.push(if is_circle { waiting.clone() } else { ready });
            rest = if is_circle { Vec::new() } else { waiting };
        }
        groups.push(pass(Pass::Grow));
        groups.retain(|group| !group.is_empty());
        groups
    }
}

/// Another container is still on CPUs that it gets.
fn must_wait(write: &Write, others: &[&Write]) -> bool {
    let mut others = others.iter().filter(|other| other.container != write.container);
    others.any(|other| other.old.as_ref().is_some_and(|old| old.cpus.intersects(&write.new.cpus)))
}

/// Moves every container of `desired` from where it was observed to where it should be. Containers that are only observed, and empty
/// sets of those that are desired, are left alone. Those that [`is_in_place`] names add nothing, so `desired` may as well lack them.
pub fn plan_pinnings(desired: &DesiredState, observed: &ObservedState) -> Plan {
    let mut writes = Vec::new();
    let left = left_by_moves(desired, observed);
    for (container, new) in desired {
        let old = observed.get(container);
        if !is_in_place(old, new) {
            writes.extend(writes_for(container, old, new, &left));
        }
    }
    // Stable: by container id inside a group.
    if !writes.is_sorted_by_key(|write| write.pass) {
        writes.sort_by_key(|write| write.pass);
    }
    let plan = Plan { writes };
    // Only moves come in more than one group.
    match plan.writes.iter().filter(|write| write.pass == Pass::Move).count() {
        0 | 1 => plan,
        _ => Plan { writes: plan.groups().into_iter().flatten().cloned().collect() },
    }
}

/// Whether nothing is to be written of a container that was observed like that.
pub fn is_in_place(observed: Option<&Pinning>, desired: &Pinning) -> bool {
    match observed {
        Some(observed) => is_right(observed, desired),
        None => *desired == Pinning::default(),
    }
}

/// CPUs that a container keeps until it is moved.
fn left_by_moves(desired: &DesiredState, observed: &ObservedState) -> CpuSet {
    let mut left = CpuSet::new();
    for (container, new) in desired.iter().filter(|(_, new)| !new.cpus.is_empty()) {
        let old = observed.get(container).map(|old| &old.cpus);
        if let Some(old) = old.filter(|old| !old.intersects(&new.cpus)) {
            left.union_with(old);
        }
    }
    left
}

fn is_right(old: &Pinning, new: &Pinning) -> bool {
    (new.cpus.is_empty() || old.cpus == new.cpus) && (new.mems.is_empty() || old.mems == new.mems)
}

fn writes_for(container: &str, old: Option<&Pinning>, new: &Pinning, left: &CpuSet) -> Vec<Write> {
    let write = |pass, old: Option<&Pinning>, new: Pinning| Write {
        pass,
        container: container.to_owned(),
        old: old.cloned(),
        new,
    };
    if new.cpus.is_empty() {
        return vec![write(Pass::Grow, old, new.clone())];
    }
    // A container that was not seen, or that may run everywhere, only loses CPUs.
    let Some(seen) = old.filter(|old| !old.cpus.is_empty()) else {
        return vec![write(Pass::Shrink, old, new.clone())];
    };
    if new.cpus.is_subset(&seen.cpus) {
        return vec![write(Pass::Shrink, old, new.clone())];
    }
    let kept = seen.cpus.intersection(&new.cpus);
    if kept.is_empty() {
        let first = Pinning { cpus: new.cpus.difference(left), mems: new.mems.clone() };
        if first.cpus.is_empty() || first.cpus == new.cpus {
            return vec![write(Pass::Move, old, new.clone())];
        }
        let rest = write(Pass::Grow, Some(&first), new.clone());
        return vec![write(Pass::Move, old, first), rest];
    }
    if kept == seen.cpus {
        return vec![write(Pass::Grow, old, new.clone())];
    }
    // Nodes that are left alone are not written back as they were seen, either.
    let mems = if new.mems.is_empty() { NodeSet::new() } else { seen.mems.clone() };
    let between = Pinning { cpus: kept, mems };
    vec![write(Pass::Shrink, old, between.clone()), write(Pass::Grow, Some(&between), new.clone())]
}

/// The plan as text, one write per line: what `--dry-run`, logs and tests show.
pub fn render_plan(plan: &Plan) -> String {
    let mut text = String::new();
    for write in &plan.writes {
        let (cpus, mems) = match &write.old {
            Some(old) => (or_all(&old.cpus), old.mems.clone()),
            None => ("?".to_owned(), NodeSet::new()),
        };
        text.push_str(&format!("{:<6} {}", write.pass, write.container));
        if !write.new.cpus.is_empty() {
            text.push_str(&format!(" cpus {cpus} -> {}", write.new.cpus));
        }
        if mems != write.new.mems && !write.new.mems.is_empty() {
            text.push_str(&format!(" mems {} -> {}", or_all_mems(&mems), write.new.mems));
        }
        text.push('\n');
    }
    text
}

fn or_all(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "all".to_owned() } else { cpus.to_string() }
}

fn or_all_mems(mems: &NodeSet) -> String {
    if mems.is_empty() { "all".to_owned() } else { mems.to_string() }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn state(rows: &[(&str, &str, &str)]) -> DesiredState {
        let pinning = |cpus: &str, mems: &str| Pinning {
            cpus: cpus.parse().unwrap(),
            mems: mems.parse().unwrap(),
        };
        rows.iter().map(|(id, cpus, mems)| ((*id).to_owned(), pinning(cpus, mems))).collect()
    }

    fn check(observed: &[(&str, &str, &str)], desired: &[(&str, &str, &str)], expected: Expect) {
        expected.assert_eq(&render_plan(&plan_pinnings(&state(desired), &state(observed))));
    }

    #[test]
    fn what_is_right_needs_no_write() {
        check(&[("a", "0-3", "0")], &[("a", "0-3", "0")], expect![[""]]);
        check(&[("a", "0-3", "0-1")], &[("a", "0-3", "")], expect![[""]]);
    }

    #[test]
    fn a_sliding_set_lets_go_before_it_takes() {
        check(
            &[("a", "2-5", "0"), ("b", "0-1,6-7", "0")],
            &[("a", "0-3", "0"), ("b", "4-7", "0")],
            expect![[r#"
                shrink a cpus 2-5 -> 2-3
                shrink b cpus 0-1,6-7 -> 6-7
                grow   a cpus 2-3 -> 0-3
                grow   b cpus 6-7 -> 4-7
            "#]],
        );
    }

    #[test]
    fn a_set_that_keeps_nothing_is_never_emptied() {
        check(
            &[("a", "0-1", "0"), ("b", "", "")],
            &[("a", "4-5", "1"), ("b", "0-1", "0"), ("c", "2", "0"), ("d", "", "")],
            expect![[r#"
                shrink b cpus all -> 0-1 mems all -> 0
                shrink c cpus ? -> 2 mems all -> 0
                move   a cpus 0-1 -> 4-5 mems 0 -> 1
            "#]],
        );
    }

    #[test]
    fn what_is_left_alone_is_not_written() {
        check(
            &[("a", "0-3", "0"), ("b", "0-3", "0"), ("c", "0-3", "0"), ("d", "0-3", "0")],
            &[("a", "", "0"), ("b", "", "1"), ("c", "2-5", ""), ("d", "", ""), ("e", "", "1")],
            expect![[r#"
                shrink c cpus 0-3 -> 2-3
                grow   b mems 0 -> 1
                grow   c cpus 2-3 -> 2-5
                grow   e mems all -> 1
            "#]],
        );
    }

    /// The containers of each group.
    fn check_groups(
        observed: &[(&str, &str, &str)],
        desired: &[(&str, &str, &str)],
        expected: &[&[&str]],
    ) {
        let plan = plan_pinnings(&state(desired), &state(observed));
        let groups = plan.groups();
        let ids = groups.iter().map(|group| group.iter().map(|it| it.container.as_str()).collect());
        assert_eq!(ids.collect::<Vec<Vec<&str>>>(), expected);
    }

    #[test]
    fn a_moved_container_waits_for_those_that_leave_and_shared_ones_wait_for_both() {
        check_groups(
            &[("a", "0", "0"), ("b", "1", "0"), ("c", "6", "0"), ("s", "2-5", "0")],
            &[("a", "1", "0"), ("b", "2", "0"), ("c", "3", "0"), ("s", "0,4-6", "0")],
            &[&["s"], &["b", "c"], &["a"], &["s"]],
        );
        check_groups(
            &[("a", "0", "0"), ("b", "1", "0")],
            &[("a", "1", "0"), ("b", "0", "0")],
            &[&["a", "b"]],
        );
        check_groups(
            &[("a", "0", "0"), ("s", "1", "0")],
            &[("a", "1", "0"), ("s", "0,2", "0")],
            &[&["s"], &["a"], &["s"]],
        );
    }

    proptest! {
        #[test]
        fn carrying_the_plan_out_gives_the_desired_state(
            observed in prop::collection::vec(prop::collection::btree_set(0u32..12, 0..8), 1..6),
            desired in prop::collection::vec(prop::collection::btree_set(0u32..12, 1..8), 1..6),
        ) {
            let state = |sets: &[std::collections::BTreeSet<u32>]| -> DesiredState {
                sets.iter().enumerate().map(|(i, set)| {
                    let cpus = set.iter().map(|cpu| bayplan_types::CpuId(*cpu)).collect();
                    (format!("c{i}"), Pinning { cpus, mems: "0".parse().unwrap() })
                }).collect()
            };
            let (desired, mut now) = (state(&desired), state(&observed));
            for write in plan_pinnings(&desired, &now).writes {
                prop_assert!(!write.new.cpus.is_empty());
                prop_assert_eq!(write.old.as_ref(), now.get(&write.container));
                if write.pass == Pass::Shrink {
                    let old = write.old.map(|old| old.cpus).unwrap_or_default();
                    prop_assert!(old.is_empty() || write.new.cpus.is_subset(&old));
                }
                now.insert(write.container, write.new);
            }
            prop_assert!(plan_pinnings(&desired, &now).is_empty());
        }

        #[test]
        fn containers_that_are_in_place_change_no_plan(
            sets in prop::collection::vec((0u8..16, prop::option::of(0u8..16)), 1..8),
        ) {
            let pinning = |bits: u8| Pinning {
                cpus: (0..3).filter(|cpu| bits & 1 << cpu != 0).map(bayplan_types::CpuId).collect(),
                mems: if bits & 8 == 0 { NodeSet::new() } else { "0".parse().unwrap() },
            };
            let (mut desired, mut observed) = (DesiredState::new(), ObservedState::new());
            for (number, (wanted, seen)) in sets.into_iter().enumerate() {
                desired.insert(format!("c{number}"), pinning(wanted));
                observed.extend(seen.map(|seen| (format!("c{number}"), pinning(seen))));
            }
            let all = plan_pinnings(&desired, &observed);
            desired.retain(|container, wanted| !is_in_place(observed.get(container), wanted));
            prop_assert_eq!(&plan_pinnings(&desired, &observed), &all);
            let grouped: Vec<Write> = all.groups().into_iter().flatten().cloned().collect();
            prop_assert_eq!(grouped, all.writes);
        }
    }
}
