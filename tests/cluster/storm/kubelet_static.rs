//! A model of kubelet with `cpuManagerPolicy: static`, `memoryManagerPolicy: Static` and `topologyManagerPolicy: single-numa-node`, and of what NFD's topology-updater publishes of it.
//!
//! Admission, by Kubernetes' documents: each resource gives hints, of which only those with one NUMA node count; the pod gets the lowest NUMA node on which all of its CPUs are free,
//! and fails with `TopologyAffinityError` where there is none. Which of that node's CPUs it gets does not matter for what comes after it, because all of a NUMA node's free CPUs can
//! be given (no `full-pcpus-only`). Containers that share are admitted by their sum, which the scheduler has counted already.
//!
//! Publication: the policy and scope of kubelet, a zone for each NUMA node with CPUs and memory that are not given, and the fingerprint of all pods that kubelet lists. It is written when
//! kubelet's state files change, which they do for pods with CPUs of their own, and every minute.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use twox_hash::XxHash64;

use super::model::{NodeModel, attribute, resource};
use super::pods::Ask;

/// Of each NUMA node, and of each pod with CPUs of its own.
const MEMORY: [u64; 2] = [64 << 30, 64 << 20];

pub(super) struct KubeletStatic {
    /// CPUs that are not reserved, by NUMA node.
    cpus: [u32; 2],
    /// Pods that run: what each asked for, and its NUMA node if it has CPUs of its own.
    pods: BTreeMap<String, (Ask, Option<usize>)>,
}

impl KubeletStatic {
    /// `daemon_pod`: one that runs already.
    pub(super) fn new(cpus: [u32; 2], daemon_pod: &str) -> KubeletStatic {
        let pods = [(daemon_pod.to_owned(), (Ask::Share(0), None))];
        KubeletStatic { cpus, pods: pods.into() }
    }

    /// Own CPUs of pods, and their number, on a NUMA node.
    fn given(&self, numa: usize) -> [u32; 2] {
        let here = self.pods.values().filter(|(_, found)| *found == Some(numa));
        here.fold([0, 0], |[cpus, pods], (ask, _)| match ask {
            Ask::Cpus(count) => [cpus + count, pods + 1],
            Ask::Share(_) => [cpus, pods],
        })
    }

    fn free(&self, numa: usize) -> u32 {
        self.cpus[numa] - self.given(numa)[0]
    }
}

impl NodeModel for KubeletStatic {
    fn admit(&mut self, pod: &str, ask: Ask) -> Result<usize, String> {
        let numa = match ask {
            Ask::Share(_) => None,
            Ask::Cpus(count) => {
                let found = (0..self.cpus.len()).find(|numa| self.free(*numa) >= count);
                Some(found.ok_or("TopologyAffinityError")?)
            }
        };
        self.pods.insert(pod.to_owned(), (ask, numa));
        Ok(usize::from(numa.is_some()))
    }

    fn release(&mut self, pod: &str) {
        self.pods.remove(pod);
    }

    fn refuses_for_good(&self) -> bool {
        true
    }

    fn is_published_at_once(&self, ask: Ask) -> bool {
        matches!(ask, Ask::Cpus(_))
    }

    fn publication(&self) -> Json {
        let [memory, of_pod] = MEMORY;
        let zone = |numa: usize| {
            let [_, pods] = self.given(numa);
            let left = memory - u64::from(pods) * of_pod;
            let costs = [0, 1].map(|other| {
                let cost = if other == numa { 10 } else { 20 };
                json!({ "name": format!("node-{other}"), "value": cost })
            });
            let resources = [
                resource("cpu", &self.cpus[numa].to_string(), &self.free(numa).to_string()),
                resource("memory", &memory.to_string(), &left.to_string()),
            ];
            let name = format!("node-{numa}");
            json!({ "name": name, "type": "Node", "costs": costs, "resources": resources })
        };
        json!({
            "attributes": [
                attribute("topologyManagerPolicy", "single-numa-node"),
                attribute("topologyManagerScope", "container"),
                attribute("nodeTopologyPodsFingerprint", &fingerprint(self.pods.keys())),
            ],
            "zones": [zone(0), zone(1)],
        })
    }
}

/// Of pods in the namespace default: `podfingerprint` v001 of the Topology Aware Scheduling working group.
fn fingerprint<'a>(pods: impl Iterator<Item = &'a String>) -> String {
    let seed = XxHash64::oneshot(0, b"default");
    let mut hashes: Vec<u64> = pods.map(|it| XxHash64::oneshot(seed, it.as_bytes())).collect();
    hashes.sort_unstable();
    let bytes: Vec<u8> = hashes.into_iter().flat_map(u64::to_le_bytes).collect();
    format!("pfp0v001{:016x}", XxHash64::oneshot(0, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_the_lowest_numa_node_that_holds_it_or_fails() {
        let mut node = KubeletStatic::new([14, 16], "daemon");
        for (pod, ask, expected, free) in [
            ("a", Ask::Cpus(10), Ok(1), [4, 16]),
            ("b", Ask::Cpus(4), Ok(1), [0, 16]),
            ("c", Ask::Cpus(10), Ok(1), [0, 6]),
            ("d", Ask::Cpus(8), Err("TopologyAffinityError".to_owned()), [0, 6]),
            ("e", Ask::Share(500), Ok(0), [0, 6]),
        ] {
            assert_eq!(node.admit(pod, ask), expected, "{pod}");
            assert_eq!([0, 1].map(|numa| node.free(numa)), free, "{pod}");
        }
        // Twelve CPUs are free, and no NUMA node has eight.
        for pod in ["b", "e", "d"] {
            node.release(pod);
        }
        node.admit("f", Ask::Cpus(2)).unwrap();
        assert_eq!([0, 1].map(|numa| node.free(numa)), [2, 6]);
        assert!(node.admit("d", Ask::Cpus(8)).is_err());
    }

    #[test]
    fn what_is_published_is_what_is_free() {
        let mut node = KubeletStatic::new([14, 16], "daemon");
        node.admit("a", Ask::Cpus(10)).unwrap();
        let told = node.publication();
        let cpu = |zone: usize| told["zones"][zone]["resources"][0]["available"].clone();
        assert_eq!([cpu(0), cpu(1)], ["4", "16"]);
        assert_eq!(told["zones"][0]["resources"][1]["available"], "68652367872");
        assert_eq!(fingerprint([].iter()), "pfp0v001ef46db3751d8e999");
    }
}
