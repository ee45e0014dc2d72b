//! Which CPUs are of which core and package, which pods have CPUs of their own, and which CPUs no pod can have, as schedulers that choose CPUs have to know it. In: the
//! machine, and the state at one moment. Out: parts of `bayplan-zones/1`. Pure.

use bayplan_node::{NodeZones, PodCpus};
use bayplan_topology::{Level, Object, Topology};
use bayplan_types::CpuSet;
use serde::Serialize;

/// A core, or the part of it that is in one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CoreView {
    /// Counts the machine's cores from 0 on: the kernel's numbers begin anew in each package.
    core: usize,
    /// The kernel's number of its package; 0 where there is none.
    package: u32,
    /// Its threads that are online.
    cpus: String,
}

/// A pod with CPUs of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OwnerView {
    namespace: String,
    name: String,
    uid: String,
    cpus: String,
}

/// Cores with a thread among these CPUs, in the kernel's order.
pub(crate) fn cores_on(topology: &Topology, cpus: &CpuSet) -> Vec<CoreView> {
    let packages: Vec<&Object> =
        topology.objects().iter().filter(|it| it.level == Level::Package).collect();
    let view = |(core, threads): (usize, &CpuSet)| {
        let here = threads.intersection(cpus);
        let package = packages.iter().find(|it| it.cpus.intersects(&here)).map_or(0, |it| it.id);
        (!here.is_empty()).then(|| CoreView { core, package, cpus: here.to_string() })
    };
    topology.cores().iter().enumerate().filter_map(view).collect()
}

/// CPUs that are neither free for pods nor of a pod: reserved, isolated, in partitions of others, of groups.
pub(crate) fn withheld(topology: &Topology, state: &NodeZones) -> CpuSet {
    let mut of_pods = state.claimed.clone();
    known(state).for_each(|it| of_pods.union_with(&it.cpus));
    let open = state.shared.difference(&state.isolated).difference(&state.reserved);
    topology.cpus().difference(&open).difference(&of_pods)
}

/// Pods with exclusive CPUs.
pub(crate) fn owners(state: &NodeZones) -> Vec<OwnerView> {
    let view = |it: &PodCpus| OwnerView {
        namespace: it.namespace.clone(),
        name: it.name.clone(),
        uid: it.uid.clone(),
        cpus: it.cpus.to_string(),
    };
    known(state).map(view).collect()
}

/// A pod without a uid cannot be named; its CPUs are withheld.
fn known(state: &NodeZones) -> impl Iterator<Item = &PodCpus> {
    state.owners.iter().filter(|it| !it.uid.is_empty())
}

#[cfg(test)]
mod tests {
    use bayplan_topology::{derive, parse_machine};

    use super::*;
    use crate::config::Config;
    use crate::test_support::{make, new_container, state_by};
    use crate::zones::nodes_of;

    fn topology(line: &str) -> Topology {
        derive(&parse_machine(line).unwrap()).unwrap()
    }

    #[test]
    fn cores_are_counted_over_packages() {
        let check = |line: &str, cpus: &str, expected: &[(usize, u32, &str)]| {
            let found = cores_on(&topology(line), &cpus.parse().unwrap());
            let found: Vec<_> =
                found.iter().map(|it| (it.core, it.package, it.cpus.as_str())).collect();
            assert_eq!(found, expected, "{line} {cpus}");
        };
        let line = "pack:2 core:2 pu:2";
        check(line, "0-1,4-5", &[(0, 0, "0,4"), (1, 0, "1,5")]);
        check(line, "2-3,6-7", &[(2, 1, "2,6"), (3, 1, "3,7")]);
        check(line, "0", &[(0, 0, "0")]);
        check("one-cpu", "0", &[(0, 0, "0")]);
        check(line, "", &[]);
    }

    #[test]
    fn a_cpu_is_open_or_of_a_pod_or_withheld() {
        let line = "numa:2 core:4 pu:2 mem:8";
        let machine = topology(line);
        let mut node = state_by(line, Config::default().rules());
        make(&mut node, 1, new_container("p", "c", 0, 3));
        let mut zones = node.zones(&nodes_of(&machine));
        assert_eq!(withheld(&machine, &zones).to_string(), "");
        let owned = zones.owners[0].cpus.clone();
        assert_eq!(owners(&zones)[0].cpus, owned.to_string());
        assert_eq!(owned.len(), 3);
        zones.reserved = "15".parse().unwrap();
        zones.isolated = "14".parse().unwrap();
        // A group has this one, and a scheduler has chosen the other one.
        zones.shared = zones.shared.difference(&"12-13".parse().unwrap());
        zones.claimed = "13".parse().unwrap();
        assert_eq!(withheld(&machine, &zones).to_string(), "12,14-15");
        zones.owners[0].uid.clear();
        let all = owned.union(&"12,14-15".parse().unwrap());
        assert_eq!((withheld(&machine, &zones), owners(&zones)), (all, vec![]));
    }
}
