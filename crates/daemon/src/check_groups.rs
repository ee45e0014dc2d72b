//! Types of groups held against a machine. In: a configuration, the machine. Out: what of the types cannot be had there, and members that no type gets.

use bayplan_allocator::Pools;
use bayplan_allocator::policy::pools;
use bayplan_node::groups::{GroupType, Inside, Size, place_named};
use bayplan_topology::Topology;
use bayplan_types::CpuSet;

use crate::config::Config;
use crate::finding::Finding;

/// What is odd about the types of groups on this machine.
pub(crate) fn check_groups(config: &Config, topology: &Topology) -> Vec<Finding> {
    let division = config.division();
    let reserved = division.reserved_on(topology);
    // That it does not suit the machine is another finding.
    let Ok(pools) = pools(&division.machine(topology), config.policy, &reserved) else {
        return Vec::new();
    };
    let types = &config.groups;
    let mut found: Vec<Finding> =
        types.iter().flat_map(|kind| of_type(kind, &pools, topology)).collect();
    let odd = |message, remedy| Finding::warning("groups", message, remedy);
    found.extend(too_many(types, &pools).map(|it| odd(it, "lower sizes or `min` of instances")));
    let order = "put it before that one, or give it no members";
    found.extend(types.iter().flat_map(|kind| not_there(kind, &pools, topology)));
    found.extend(without_members(types).into_iter().map(|it| odd(it, order)));
    found
}

fn of_type(kind: &GroupType, pools: &Pools, topology: &Topology) -> Vec<Finding> {
    let name = &kind.name;
    let has = pools.allocatable().len();
    match &kind.size {
        Size::List(lists) => {
            let mut listed = CpuSet::new();
            lists.iter().for_each(|list| listed.union_with(list));
            let missing = listed.difference(topology.cpus());
            let taken = listed.intersection(topology.cpus()).difference(&had(kind, lists, pools));
            let told = [(missing, "not online here"), (taken, "reserved, or not for containers")];
            let told = told.into_iter().filter(|(cpus, _)| !cpus.is_empty());
            let odd = |(cpus, why)| {
                let message =
                    format!("CPUs {cpus} in the list of `{name}` are {why}; its group is smaller");
                Finding::warning("groups", message, "list CPUs that containers can have")
            };
            told.map(odd).collect()
        }
        Size::Requests { min: least, .. } | Size::Fixed(least) if *least > has => {
            let message = format!(
                "a group of `{name}` needs {least} CPUs, and containers can have {has} here: there will be none"
            );
            vec![Finding::warning("groups", message, "lower its size, or reserve fewer CPUs")]
        }
        Size::Requests { .. } | Size::Fixed(_) | Size::Domain(_) => Vec::new(),
    }
}

/// What groups can have of these lists. Slots are one group.
fn had(kind: &GroupType, lists: &[CpuSet], pools: &Pools) -> CpuSet {
    let union = |mut all: CpuSet, list: &CpuSet| {
        all.union_with(list);
        all
    };
    match kind.inside {
        Inside::Slots => pools.ownable(&lists.iter().fold(CpuSet::new(), union)),
        _ => {
            lists.iter().map(|it| pools.ownable(it)).fold(CpuSet::new(), |all, it| union(all, &it))
        }
    }
}

/// Groups that are always there, where they need more CPUs than there are.
fn too_many(types: &[GroupType], pools: &Pools) -> Option<String> {
    let needed = |kind: &GroupType| match &kind.size {
        Size::Requests { min, .. } => kind.always() * (*min).max(1),
        Size::Fixed(size) => kind.always() * size,
        Size::List(lists) => had(kind, lists, pools).len(),
        Size::Domain(_) => 0,
    };
    let (needed, has) = (types.iter().map(needed).sum::<usize>(), pools.allocatable().len());
    (needed > has).then(|| {
        format!("those that are always there need {needed} CPUs, and containers can have {has} here: some will be missing")
    })
}

/// What a type is to be near or far from, and the machine does not have.
fn not_there(kind: &GroupType, pools: &Pools, topology: &Topology) -> Vec<Finding> {
    let place = &kind.place;
    let wished = [("near", &place.near), ("far", &place.far)];
    let wished = wished.into_iter().flat_map(|(key, names)| names.iter().map(move |it| (key, it)));
    let lacking = wished.filter(|(_, it)| place_named(pools, topology.devices(), it).is_none());
    let told = lacking.map(|(key, it)| {
        let message = format!(
            "`{}` has `{key}: {it}`, which this machine does not have: that has no effect",
            kind.name
        );
        let remedy = "name a device, or a NUMA node as /sys/devices/system/node/node0";
        Finding::warning("groups", message, remedy)
    });
    told.collect()
}

/// Types behind one that takes all containers.
fn without_members(types: &[GroupType]) -> Vec<String> {
    let Some(at) = types.iter().position(|kind| kind.members.all) else { return Vec::new() };
    let (before, behind) = types.split_at(at + 1);
    let takes_some = |kind: &&GroupType| {
        let members = &kind.members;
        members.all || !members.namespaces.is_empty() || !members.conditions.is_empty()
    };
    let all = before.last().map(|kind| kind.name.as_str()).unwrap_or_default();
    let text = |kind: &GroupType| {
        format!(
            "the `members` of `{}` are taken by `{all}`, which stands before it and takes all",
            kind.name
        )
    };
    behind.iter().filter(takes_some).map(text).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bayplan_topology::{derive, parse_machine};
    use expect_test::{Expect, expect};

    use super::*;
    use crate::config::parse_config;

    fn check(groups: &str, expected: Expect) {
        let topology = derive(&parse_machine("numa:2 core:4 pu:1 offline:7").unwrap()).unwrap();
        let text = format!("reservedCpus: '0'\ngroups:\n{groups}\n");
        let config = parse_config(Path::new("f"), &text).unwrap();
        let found = check_groups(&config, &topology).into_iter();
        expected.assert_eq(&found.map(|it| it.message + "\n").collect::<String>());
    }

    #[test]
    fn what_cannot_be_had_on_the_machine_is_told() {
        check("- {name: a}\n- {name: b, size: {list: ['1-2', '3']}}", expect![""]);
        check(
            "- {name: a, size: {list: ['0-1', '6-9']}}",
            expect![[r#"
                CPUs 7-9 in the list of `a` are not online here; its group is smaller
                CPUs 0 in the list of `a` are reserved, or not for containers; its group is smaller
            "#]],
        );
        check(
            "- {name: a, size: {fixed: 7}}\n- {name: b, size: {requests: {min: 6}}}",
            expect![[r#"
                a group of `a` needs 7 CPUs, and containers can have 6 here: there will be none
            "#]],
        );
        check(
            "- {name: a, size: {fixed: 2}, instances: {min: 2}}\n- {name: b, size: {list: ['1-3']}}",
            expect![[r#"
                those that are always there need 7 CPUs, and containers can have 6 here: some will be missing
            "#]],
        );
    }

    #[test]
    fn devices_and_nodes_that_are_not_there_are_told() {
        check(
            "- {name: a, cpus: {near: [eth0, /sys/devices/system/node/node1], far: [/sys/devices/system/node/node2]}}",
            expect![[r#"
                `a` has `near: eth0`, which this machine does not have: that has no effect
                `a` has `far: /sys/devices/system/node/node2`, which this machine does not have: that has no effect
            "#]],
        );
    }

    #[test]
    fn types_that_get_no_member_are_told() {
        check(
            "- {name: a, members: {namespaces: [x]}}\n- {name: b, members: {all: true}}\n- {name: c}",
            expect![""],
        );
        check(
            "- {name: b, members: {all: true}}\n- {name: c, members: {namespaces: [x]}}\n- {name: d}\n- {name: e, members: {all: true}}",
            expect![[r#"
                the `members` of `c` are taken by `b`, which stands before it and takes all
                the `members` of `e` are taken by `b`, which stands before it and takes all
            "#]],
        );
    }
}
