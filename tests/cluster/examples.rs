//! Pods as the guides of older systems have them, applied to a real API server, sent to a node by kube-scheduler, and looked at where they run: CPUs and files of their containers.
//!
//! | Example | What must be so |
//! |---|---|
//! | nine labels of features, and one label of a profile that stands for them | both pods are scheduled, and none that asks for a feature that is missing |
//! | CMK's pod with a slot of socket 1 | one container on a slot there, by the node's extended resource |
//! | two CPUs of a Power Manager profile, without an annotation | exclusive CPUs with that profile's frequencies |
//! | a client with affinity to its server | both on one NUMA node |
//! | pods with the cards that GPU Aware Scheduling has chosen | exclusive CPUs beside their own card |
//! | a ConfigMap of CRI Resource Manager with the class ThrottledIO, and a pod that names it | weight and limit of reads in the files of its cgroup, and in no other's; what another program writes there is repaired, and an event on the pod says so |

use std::fs;
use std::path::Path;

use bayplan_cri::kubelet::{ContainerSpec, PodSpec};
use bayplan_host::write_snapshot;
use bayplan_topology::parse_machine;
use bayplan_types::{Bytes, MilliCpu, QosClass};
use kube::Client;
use serde_json::{Value as Json, json};

use crate::node::set;
use crate::policies::{apply_policies, said};
use crate::servers::{ADMIN, Servers};
use crate::storm::{POD_PATH, Scheduler, Setup, StormNode, find_scheduler};
use crate::world::{self, call, until};

const SETUP: Setup = Setup {
    machine: "pack:2 numa:1 core:8 pu:2 mem:64 gpu:1/pack",
    cpus: "30",
    config: "reservedCpus: \"0,16\"\ngroups:\n  - {name: exclusive, inside: slots, size: {list: [\"1,17\", \"2,18\", \"9,25\", \"10,26\"]}}\n",
    publish: "node-topology,cmk,power-classes",
    has_features: true,
    accepts_cri_resmgr: false,
    files: |root| {
        // With the cards, which a node's own files leave out.
        write_snapshot(&parse_machine(SETUP.machine).unwrap()).write_to(root).unwrap();
        write_features(root);
        write_driver(root);
    },
};
/// A node with a disk and the configuration of CRI Resource Manager.
const THROTTLED: Setup = Setup {
    machine: "pack:1 numa:1 core:4 pu:2 mem:16",
    cpus: "7",
    config: "",
    publish: "condition",
    has_features: false,
    accepts_cri_resmgr: true,
    files: write_disk,
};
/// What the device plugin of the cards gives.
const GPUS: &str = "gpu.intel.com/i915";
/// Its driver and the number of its first partition: a disk of a virtual machine.
const DISK: &str = "254:0";
/// Flags of `/proc/cpuinfo` by which these names come about.
const FLAGS: &str = "fpu vmx fma aes avx avx2 avx512cd avx512bw";
/// What a pod asks for by single labels.
const FEATURES: [&str; 9] = [
    "cpu-cpuid.AESNI",
    "cpu-cpuid.AVX",
    "cpu-cpuid.AVX2",
    "cpu-cpuid.AVX512BW",
    "cpu-cpuid.AVX512CD",
    "cpu-cpuid.FMA3",
    "cpu-cpuid.VMX",
    "cpu-pstate.turbo",
    "kernel-config.NO_HZ",
];
/// The same as one label.
const PROFILE: &str = "profile.node.kubernetes.io/vector";

/// One after the other with the same servers.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_the_guides_run_where_they_are_meant_to() {
    let Some(program) = find_scheduler() else { return };
    let Some(servers) = Servers::start().await else { return };
    let admin = world::client(&servers.address(), ADMIN).await;
    world::apply_manifests(&admin).await;
    let mut node = StormNode::start(&servers, &admin, "n1", &SETUP).await;
    let root = node.node.host_root();
    let _scheduler = Scheduler::start(&servers, &program, false);
    requests_are_told(&admin).await;
    let mut guide = Guide { admin, node: &mut node };
    guide.amounts_are_allocatable().await;
    guide.features_select_the_node().await;
    guide.a_slot_is_on_its_socket().await;
    guide.a_profile_has_its_frequencies(&root).await;
    guide.a_client_is_beside_its_server().await;
    guide.cpus_are_beside_the_chosen_card().await;
    let admin = guide.admin.clone();
    a_class_of_block_io_throttles(&servers, &admin).await;
}

/// To daemons with a kubelet that does not tell them: the admission policy writes requests into pods.
async fn requests_are_told(admin: &Client) {
    apply_policies(admin).await;
    let container =
        json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": { "containers": [container] } });
    until("the policy holds", async || {
        let stored = call(admin, "POST", &format!("{POD_PATH}?dryRun=All"), &pod).await.1;
        said(&stored["metadata"]).is_some()
    })
    .await;
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// As much of a kernel as these features are read of.
fn write_features(root: &Path) {
    let cpu = format!(
        "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\nflags : {FLAGS}\n"
    );
    write(root, "proc/cpuinfo", &cpu);
    write(root, "proc/sys/kernel/osrelease", "6.12.1\n");
    write(root, "boot/config-6.12.1", "CONFIG_NO_HZ=y\n");
    write(root, "sys/devices/system/cpu/intel_pstate/status", "active\n");
    write(root, "sys/devices/system/cpu/intel_pstate/no_turbo", "0\n");
}

/// As intel_pstate shows itself; a disk takes everything.
fn write_driver(root: &Path) {
    for cpu in 0..32 {
        let rows = [
            ("affected_cpus", format!("{cpu}")),
            ("scaling_driver", "intel_pstate".to_owned()),
            ("cpuinfo_min_freq", "800000".to_owned()),
            ("cpuinfo_max_freq", "3600000".to_owned()),
            ("scaling_available_governors", "performance powersave".to_owned()),
            ("scaling_governor", "powersave".to_owned()),
            ("scaling_min_freq", "800000".to_owned()),
            ("scaling_max_freq", "3600000".to_owned()),
            (
                "energy_performance_available_preferences",
                "performance balance_performance balance_power power".to_owned(),
            ),
            ("energy_performance_preference", "balance_performance".to_owned()),
        ];
        for (name, text) in rows {
            let file = format!("sys/devices/system/cpu/cpufreq/policy{cpu}/{name}");
            write(root, &file, &format!("{text}\n"));
        }
    }
}

fn write_disk(root: &Path) {
    write(root, "dev/vda", "");
    write(root, "sys/class/block/vda/dev", &format!("{DISK}\n"));
    write(root, "sys/class/block/vda/queue/scheduler", "none mq-deadline [bfq]\n");
    write(root, "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n");
}

/// Text of a file of a container's cgroup.
struct Group(std::path::PathBuf);

impl Group {
    /// The files that the kernel would have made.
    async fn make(node: &StormNode, root: &Path, name: &str) -> Group {
        let held = node.node.held(name).await;
        let all = root.join("sys/fs/cgroup");
        let parent = all.join(held.cgroup_parent.trim_start_matches('/'));
        let own = parent.join(held.id.as_ref().unwrap());
        fs::create_dir_all(&own).unwrap();
        for dir in own.ancestors().take_while(|it| *it != all) {
            for (file, text) in [
                ("cgroup.type", "domain"),
                ("cpuset.cpus", held.cpus.as_str()),
                ("cpuset.mems", held.mems.as_str()),
                ("io.max", ""),
                ("io.weight", "default 100"),
                ("io.bfq.weight", "default 100"),
            ] {
                fs::write(dir.join(file), text).unwrap();
            }
        }
        Group(own)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap().trim().to_owned()
    }
}

/// The ConfigMap for all nodes, and pods of which one names the class by annotation.
async fn a_class_of_block_io_throttles(servers: &Servers, admin: &Client) {
    let node = StormNode::start(servers, admin, "n2", &THROTTLED).await;
    let root = node.node.host_root();
    let policy = "Active: memtier\nReservedResources:\n  CPU: 750m\n";
    let classes = "Classes:\n  ThrottledIO:\n    - Weight: 80 # The default is 100\n    - Devices:\n        - /dev/vda\n      ThrottleReadBps: 100M\n";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "cri-resmgr-config.default", "namespace": "kube-system" },
        "data": { "policy": policy, "blockio": classes },
    });
    let path = "/api/v1/namespaces/kube-system/configmaps/cri-resmgr-config.default";
    let (status, told) = call(admin, "PATCH", path, &map).await;
    assert_eq!(status, 200, "{told}");
    until("the ConfigMap holds", async || {
        let shown =
            call(admin, "GET", "/apis/bayplan.dev/v1alpha1/bayplannodes/n2", &json!(null)).await.1;
        shown["status"]["configName"] == "ConfigMap/kube-system/cri-resmgr-config.default"
    })
    .await;
    let class = json!({ "blockioclass.cri-resource-manager.intel.com/pod": "ThrottledIO" });
    let mut groups = Vec::new();
    // What was written for the last one was written after all of the others.
    for (name, annotations) in [("usual", json!({})), ("throttled", class)] {
        let container =
            json!({ "name": name, "image": "i", "resources": { "requests": { "cpu": "1" } } });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "annotations": annotations },
            "spec": { "nodeName": "n2", "containers": [container] },
        });
        let (status, pod) = call(admin, "POST", POD_PATH, &pod).await;
        assert_eq!(status, 200, "{pod}");
        let mut kubelet = node.node.kubelet.clone();
        let sandbox = kubelet.run_pod(&pod_spec(&pod)).await.unwrap();
        let container = container_spec(&pod["spec"]["containers"][0]);
        let id = kubelet.create(&sandbox, &container, 0).await.unwrap();
        groups.push(Group::make(&node, &root, name).await);
        kubelet.start(&id).await.unwrap();
    }
    let expected = [
        format!("{DISK} rbps=100000000 wbps=max riops=max wiops=max"),
        "default 80".to_owned(),
        "default 80".to_owned(),
    ];
    let files = |it: &Group| ["io.max", "io.weight", "io.bfq.weight"].map(|file| it.read(file));
    until("limit and weight of the class", async || files(&groups[1]) == expected).await;
    assert_eq!(files(&groups[0]), ["", "default 100", "default 100"]);
    until("an event on the pod", async || {
        // As often as it is repaired: what was never found right is no other program's change, and how soon it is looked at again depends on the machine.
        if files(&groups[1]) == expected {
            fs::write(groups[1].0.join("io.weight"), "default 50\n").unwrap();
        }
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        let listed = call(admin, "GET", path, &json!(null)).await.1;
        let events = listed["items"].as_array().cloned().unwrap_or_default();
        events
            .iter()
            .any(|it| it["reason"] == "IsolationViolated" && it["regarding"]["name"] == "throttled")
    })
    .await;
}

struct Guide<'a> {
    admin: Client,
    node: &'a mut StormNode,
}

impl Guide<'_> {
    /// As kubelet does: what of the node's capacity is not its own to give is allocatable.
    async fn amounts_are_allocatable(&self) {
        until("extended resources are allocatable", async || {
            let node = call(&self.admin, "GET", "/api/v1/nodes/n1", &json!(null)).await.1;
            let mut amounts = node["status"]["capacity"].clone();
            amounts["cpu"] = json!(SETUP.cpus);
            amounts[GPUS] = json!("2");
            let merged = "/api/v1/nodes/n1/status?fieldManager=kubelet";
            let patch = json!({ "status": { "capacity": { GPUS: "2" }, "allocatable": amounts } });
            assert_eq!(call(&self.admin, "PATCH", merged, &patch).await.0, 200);
            amounts["cmk.intel.com/exclusive-cores"] == "4"
                && amounts["power.intel.com/performance"].is_string()
                && amounts["power.intel.com/default"].is_string()
        })
        .await;
    }

    async fn make(&self, name: &str, metadata: Json, spec: Json) {
        let (mut metadata, mut spec) = (metadata, spec);
        metadata["name"] = json!(name);
        spec["terminationGracePeriodSeconds"] = json!(0);
        spec["tolerations"] = json!([{ "key": "cmk", "operator": "Exists" }]);
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
        let (status, told) = call(&self.admin, "POST", POD_PATH, &pod).await;
        assert_eq!(status, 200, "{told}");
    }

    /// The pod once the scheduler has sent it to the node, or has said that it cannot.
    async fn scheduled(&self, name: &str) -> (Json, bool) {
        let path = format!("{POD_PATH}/{name}");
        let mut pod = Json::Null;
        until(&format!("the scheduler has looked at {name}"), async || {
            pod = call(&self.admin, "GET", &path, &json!(null)).await.1;
            let is_refused = pod["status"]["conditions"].to_string().contains("Unschedulable");
            pod["spec"]["nodeName"] == "n1" || is_refused
        })
        .await;
        let is_sent = pod["spec"]["nodeName"] == "n1";
        (pod, is_sent)
    }

    /// Starts what was sent, as kubelet does; the CPUs of each container of its own, and all.
    async fn run(&mut self, name: &str) -> Vec<[String; 2]> {
        let (pod, is_sent) = self.scheduled(name).await;
        assert!(is_sent, "{pod:#}");
        let kubelet = &mut self.node.node.kubelet;
        let sandbox = kubelet.run_pod(&pod_spec(&pod)).await.unwrap();
        let containers = pod["spec"]["containers"].as_array().unwrap();
        for container in containers {
            let id = kubelet.create(&sandbox, &container_spec(container), 0).await.unwrap();
            kubelet.start(&id).await.unwrap();
        }
        let placed = self.node.node.status().await.containers;
        let of_pod = placed.iter().filter(|it| it.pod == name);
        of_pod.map(|it| [it.exclusive.clone(), it.cpus.clone()]).collect()
    }

    async fn features_select_the_node(&self) {
        let one = |name: &str| json!([{ "name": "c", "image": "i", "command": ["sleep", name] }]);
        let labels = FEATURES.map(|it| (format!("feature.node.kubernetes.io/{it}"), json!("true")));
        let nine: Json = labels.into_iter().collect::<serde_json::Map<_, _>>().into();
        let missing = json!({ "feature.node.kubernetes.io/cpu-cpuid.AMXTILE": "true" });
        until("the node has its features", async || {
            let node = call(&self.admin, "GET", "/api/v1/nodes/n1", &json!(null)).await.1;
            node["metadata"]["labels"][PROFILE] == "true"
        })
        .await;
        for (name, selector, expected) in [
            ("nine", nine, true),
            ("profile", json!({ PROFILE: "true" }), true),
            ("missing", missing, false),
        ] {
            let spec = json!({ "containers": one(name), "nodeSelector": selector });
            self.make(name, json!({}), spec).await;
            let (pod, is_sent) = self.scheduled(name).await;
            assert_eq!(is_sent, expected, "{pod:#}");
        }
    }

    async fn a_slot_is_on_its_socket(&mut self) {
        let amounts = json!({ "cpu": "1", "memory": "64Mi", "cmk.intel.com/exclusive-cores": "1" });
        let environment = json!([{ "name": "STP_POOL", "value": "exclusive" }, { "name": "STP_SOCKET_ID", "value": "1" }]);
        let container = json!({ "name": "mycont", "image": "i", "env": environment, "resources": { "requests": amounts, "limits": amounts } });
        let spec = json!({ "containers": [container] });
        self.make("critical", json!({}), spec).await;
        let placed = self.run("critical").await;
        assert!(["9,25", "10,26"].contains(&placed[0][1].as_str()), "{placed:?}");
    }

    async fn a_profile_has_its_frequencies(&mut self, root: &Path) {
        let amounts = json!({ "cpu": "2", "memory": "64Mi", "power.intel.com/performance": "2" });
        let container = json!({ "name": "c", "image": "i", "resources": { "requests": amounts, "limits": amounts } });
        let spec = json!({ "containers": [container] });
        self.make("powerful", json!({}), spec).await;
        let placed = self.run("powerful").await;
        let own = set(&placed[0][0]);
        assert_eq!(own.len(), 2, "{placed:?}");
        for cpu in own.iter() {
            let file = |name: &str| {
                let path = format!("sys/devices/system/cpu/cpufreq/policy{}/{name}", cpu.0);
                fs::read_to_string(root.join(path)).unwrap().trim().to_owned()
            };
            until("the profile's frequencies", async || {
                [file("scaling_min_freq"), file("energy_performance_preference")]
                    == ["3400000", "performance"]
            })
            .await;
        }
    }

    async fn a_client_is_beside_its_server(&mut self) {
        let container = |name: &str, cpu: &str| json!({ "name": name, "image": "i", "resources": { "requests": { "cpu": cpu } } });
        let spec = json!({ "containers": [container("redis", "2")] });
        self.make("redis-0", json!({}), spec).await;
        let server = self.run("redis-0").await;
        // What else is placed would rather be apart from it.
        let scope = json!({ "key": "pod/name", "operator": "Matches", "values": ["redis-*"] });
        let matched = json!({ "key": "name", "operator": "Equals", "values": ["redis"] });
        let affinity = json!({ "bench": [{ "scope": scope, "match": matched, "weight": 10 }] });
        let metadata = json!({ "annotations": { "cri-resource-manager.intel.com/affinity": affinity.to_string() } });
        let spec = json!({ "containers": [container("bench", "2")] });
        self.make("bench", metadata, spec).await;
        let client = self.run("bench").await;
        assert_eq!(client[0][1], server[0][1], "{client:?} {server:?}");
    }

    /// Each pod would get CPUs of the same package without its card.
    async fn cpus_are_beside_the_chosen_card(&mut self) {
        for (name, card, near) in
            [("gpu-1", "card1", "8-15,24-31"), ("gpu-0", "card0", "0-7,16-23")]
        {
            let annotations =
                json!({ "gas-ts": "1764266400000000000", "gas-container-cards": card });
            let amounts = json!({ "cpu": "2", "memory": "64Mi", GPUS: "1" });
            let container = json!({ "name": "c", "image": "i", "resources": { "requests": amounts, "limits": amounts } });
            let spec = json!({ "containers": [container] });
            self.make(name, json!({ "annotations": annotations }), spec).await;
            let placed = self.run(name).await;
            let own = set(&placed[0][0]);
            let told = self.node.node.explain(name).await;
            assert!(own.len() == 2 && own.is_subset(&set(near)), "{told:#?}");
        }
    }
}

fn texts(value: &Json) -> Vec<(String, String)> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned())).collect()
}

fn pod_spec(pod: &Json) -> PodSpec {
    let name = pod["metadata"]["name"].as_str().unwrap();
    let qos = match pod["status"]["qosClass"].as_str().unwrap() {
        "Guaranteed" => QosClass::Guaranteed,
        "Burstable" => QosClass::Burstable,
        _ => QosClass::BestEffort,
    };
    let annotations = texts(&pod["metadata"]["annotations"]);
    PodSpec { annotations, ..PodSpec::new(name, qos) }
}

fn container_spec(container: &Json) -> ContainerSpec {
    let milli = |list: &str| {
        let amount = container["resources"][list]["cpu"].as_str()?;
        Some(MilliCpu(amount.parse::<u64>().unwrap() * 1000))
    };
    let memory = container["resources"]["limits"]["memory"].is_string();
    let name = container["name"].as_str().unwrap();
    let variables = container["env"].as_array().into_iter().flatten();
    let text = |it: &Json| it.as_str().unwrap_or_default().to_owned();
    ContainerSpec {
        cpu_request: milli("requests").unwrap_or_default(),
        cpu_limit: milli("limits"),
        memory_limit: memory.then_some(Bytes(64 << 20)),
        variables: variables.map(|it| (text(&it["name"]), text(&it["value"]))).collect(),
        ..ContainerSpec::burstable(name, 0)
    }
}
