//! Chains of services: how many there are on a machine, how large, where their clients run, and what Bayplan is told of them. In: NUMA nodes. Pure.

use std::collections::BTreeMap;

use bayplan_types::CpuSet;

/// Of all instances together. With their size they are most of the memory that services use, and each node of a small machine has room for them.
const PAGES: usize = 8192;
/// Bytes of an answer.
pub(crate) const PAGE_BYTES: usize = 8192;
/// Namespaces begin with it.
const NAMESPACE: &str = "instance-";

/// How an application is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// One instance that may run everywhere.
    Spread,
    /// An instance in a namespace for each NUMA node, each with its part of the services.
    Namespaces,
}

/// Sizes of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chains {
    /// CPUs of the load generator of each instance.
    pub(crate) clients: Vec<CpuSet>,
    /// Processes, or threads, of each service of an instance.
    pub(crate) workers: usize,
    /// Answers that the store of an instance holds.
    pub(crate) pages: usize,
}

impl Chains {
    /// For NUMA nodes by their number, those without CPUs left out. All instances together are equally large under both deployments.
    pub(crate) fn of(nodes: &BTreeMap<u32, CpuSet>, deployment: Deployment) -> Chains {
        let own: Vec<&CpuSet> = nodes.values().filter(|it| !it.is_empty()).collect();
        let first = |node: &CpuSet| node.iter().take((node.len() / 8).max(1)).collect::<CpuSet>();
        let each: Vec<CpuSet> = own.iter().map(|node| first(node)).collect();
        let all = each.iter().fold(CpuSet::new(), |all, it| all.union(it));
        let cpus: usize = own.iter().map(|it| it.len()).sum();
        let clients = match deployment {
            Deployment::Spread => vec![all.clone()],
            Deployment::Namespaces => each,
        };
        let instances = clients.len().max(1);
        Chains {
            workers: (cpus.saturating_sub(all.len()) / instances).max(1),
            pages: PAGES / instances,
            clients,
        }
    }

    /// Namespaces of the instances.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = String> {
        (1..=self.clients.len()).map(|number| format!("{NAMESPACE}{number}"))
    }

    /// What Bayplan's configuration has besides: clients have CPUs for themselves, and each namespace has a NUMA node, as with the policy `numa-namespace` of
    /// CPU Control Plane.
    pub(crate) fn bayplan_options(&self, deployment: Deployment) -> String {
        let reserved = self.clients.iter().fold(CpuSet::new(), |all, it| all.union(it));
        let groups = match deployment {
            Deployment::Spread => String::new(),
            Deployment::Namespaces => format!(
                "groups:\n- name: instance\n  members: {{namespaces: [\"{NAMESPACE}*\"]}}\n  instances: {{by: namespace}}\n  size: {{domain: numa}}\n"
            ),
        };
        format!("reservedCpus: \"{reserved}\"\n{groups}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(nodes: &[&str], deployment: Deployment, clients: &[&str], workers: usize) {
        let nodes = (0..).zip(nodes.iter().map(|it| it.parse().unwrap())).collect();
        let chains = Chains::of(&nodes, deployment);
        let shown: Vec<String> = chains.clients.iter().map(CpuSet::to_string).collect();
        assert_eq!(
            (shown, chains.workers),
            (clients.iter().map(|it| (*it).into()).collect(), workers)
        );
        assert_eq!(chains.pages * clients.len(), PAGES);
    }

    #[test]
    fn both_deployments_have_the_machine_and_the_same_clients() {
        let (spread, namespaces) = (Deployment::Spread, Deployment::Namespaces);
        let small = ["0-7", "8-15"];
        check(&small, spread, &["0,8"], 14);
        check(&small, namespaces, &["0", "8"], 7);
        let large = ["0-55,112-167", "56-111,168-223"];
        check(&large, spread, &["0-13,56-69"], 196);
        check(&large, namespaces, &["0-13", "56-69"], 98);
        // A node with memory only has no instance.
        check(&["0-3", "4-7", ""], namespaces, &["0", "4"], 3);
        check(&["0", "1"], namespaces, &["0", "1"], 1);
        check(&["0-3", "4-7", "8-11", "12-15"], namespaces, &["0", "4", "8", "12"], 3);
    }

    #[test]
    fn namespaces_have_a_node_each_and_one_instance_has_none() {
        let nodes = [(0, "0-7".parse().unwrap()), (1, "8-15".parse().unwrap())].into();
        let chains = Chains::of(&nodes, Deployment::Namespaces);
        assert_eq!(chains.namespaces().collect::<Vec<_>>(), ["instance-1", "instance-2"]);
        assert_eq!(
            chains.bayplan_options(Deployment::Namespaces),
            "reservedCpus: \"0,8\"\ngroups:\n- name: instance\n  members: {namespaces: [\"instance-*\"]}\n  instances: {by: namespace}\n  size: {domain: numa}\n"
        );
        let spread = Chains::of(&nodes, Deployment::Spread);
        assert_eq!(spread.bayplan_options(Deployment::Spread), "reservedCpus: \"0,8\"\n");
    }
}
