//! The pods of this release's fixtures, in the order in which they were made. The runtime numbers what it makes, so the same calls give
//! the same ids again.

use std::collections::BTreeMap;

use bayplan_cri::kubelet::{ContainerSpec, Kubelet, PodSpec, RunningPod};
use bayplan_types::{Bytes, QosClass};

/// Two NUMA nodes with eight cores of two threads each; CPU `n` and `n + 16` are one core, and one core is isolated at boot.
pub(crate) const MACHINE: &str = "pack:2 numa:1 core:8 pu:2 mem:16 isolated:15,31";

/// Created and not started.
const UNSTARTED: &str = "waiting";
/// Stopped and removed with its pod.
const GONE: &str = "gone";

/// A pod with its containers.
type Pod = (PodSpec, Vec<ContainerSpec>);

fn guaranteed(name: &str, milli: u64, annotations: &[(&str, &str)]) -> Pod {
    let annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into()));
    let pod =
        PodSpec { annotations: annotations.collect(), ..PodSpec::new(name, QosClass::Guaranteed) };
    (pod, vec![ContainerSpec::guaranteed(name, milli, Bytes::gib(1))])
}

fn burstable(name: &str, milli: u64, annotations: &[(&str, &str)]) -> Pod {
    let (pod, _) = guaranteed(name, milli, annotations);
    (PodSpec { qos: QosClass::Burstable, ..pod }, vec![ContainerSpec::burstable(name, milli)])
}

/// All pods that were admitted.
pub(crate) fn pods() -> Vec<Pod> {
    let (dns, containers) = burstable("dns", 100, &[]);
    let dns = (PodSpec { namespace: "kube-system".into(), ..dns }, containers);
    let (logs, containers) = burstable("logs", 0, &[]);
    let logs = (PodSpec { qos: QosClass::BestEffort, ..logs }, containers);
    let (web, mut containers) = burstable(
        "web",
        500,
        &[
            ("bayplan.dev/affinity", "sidecar: [web]"),
            ("memory-type.cri-resource-manager.intel.com/container.web", "dram"),
            ("example.com/note", "of no meaning here"),
        ],
    );
    containers.push(ContainerSpec::burstable("sidecar", 100));
    let chosen = r#"{"cpuset":"12-13"}"#;
    let solver = [
        ("packing.bayplan.dev/container.solver", "spread"),
        ("bayplan.dev/siblings", "shared"),
        ("bayplan.dev/within", "numa"),
    ];
    vec![
        burstable("found", 200, &[]),
        dns,
        guaranteed("chosen", 2000, &[("scheduling.koordinator.sh/resource-status", chosen)]),
        guaranteed("database", 4000, &[]),
        guaranteed("mixed", 1500, &[]),
        guaranteed("inference", 2500, &[("bayplan.dev/prefer-shared-cpus", "false")]),
        guaranteed("realtime", 2000, &[("bayplan.dev/require-isolated-cpus", "true")]),
        (web, containers),
        logs,
        guaranteed("solver", 4000, &solver),
        burstable("preserved", 200, &[("bayplan.dev/cpu.preserve", "true")]),
        guaranteed(GONE, 2000, &[]),
        guaranteed(UNSTARTED, 1000, &[]),
        guaranteed("drained", 2000, &[]),
    ]
}

/// What was made of the pods.
#[derive(Default)]
pub(crate) struct Made {
    /// By name.
    pods: BTreeMap<String, RunningPod>,
    /// Runtime ids by the container's name.
    pub(crate) ids: BTreeMap<String, String>,
}

impl Made {
    /// Makes pods and starts their containers.
    pub(crate) async fn launch(&mut self, client: &mut Kubelet, pods: &[Pod]) {
        for (pod, containers) in pods {
            let running = client.run_pod(pod).await.unwrap();
            for container in containers {
                let id = client.create(&running, container, 0).await.unwrap();
                if container.name != UNSTARTED {
                    client.start(&id).await.unwrap();
                }
                self.ids.insert(container.name.clone(), id);
            }
            self.pods.insert(pod.name.clone(), running);
        }
    }

    /// Kubelet resizes two containers and a pod, and ends one.
    pub(crate) async fn change(&mut self, client: &mut Kubelet) {
        let larger = ContainerSpec::guaranteed("database", 6000, Bytes::gib(2));
        client.resize(&self.ids["database"], &larger).await.unwrap();
        let larger = ContainerSpec::burstable("web", 700);
        client.resize(&self.ids["web"], &larger).await.unwrap();
        let whole = ContainerSpec::burstable("web", 900);
        client.resize_pod(&self.pods["web"], &whole).await.unwrap();
        client.stop(&self.ids[GONE]).await.unwrap();
        client.remove(&self.ids[GONE]).await.unwrap();
        client.end_pod(&self.pods[GONE]).await.unwrap();
        self.ids.remove(GONE);
    }
}
