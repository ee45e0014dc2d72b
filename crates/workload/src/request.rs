//! Pods and containers to requests. In: what kubelet says about a pod and a container. Out: a [`Request`] for the allocator, and a warning for
//! everything that could not be understood.
//!
//! CRI carries no pod spec, so requests are recovered from what kubelet derives from them: the QoS class from the parent cgroup's
//! name, the rest from the cgroup settings (`resources.rs`).

use std::collections::BTreeMap;

use bayplan_allocator::{
    ContainerId, Demand, Near, Owner, Preferences, Preserve, Request, Strictness, Wishes,
    derive_demand,
};
use bayplan_topology::Device;
use bayplan_types::{Bytes, CpuSet, NodeId, NodeSet, QosClass};

use crate::annotations::effect::without_effect;
use crate::annotations::{
    Asked, ClassNames, Condition, Rule, Warning, WarningKind, affinities, matches_glob, nears,
    read_annotations, shown,
};
use crate::cmk::{CommandError, Isolate};
use crate::devices::has_claimed_cpus;
use crate::facts::{AssignedDevices, Facts};
use crate::mates::pod_wishes;
use crate::resources::positive;
pub use crate::resources::{ExactRequests, Requests, Resources};
use crate::silent::{Member, Share, share};

/// A pod as its sandbox configuration describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The runtime's sandbox id.
    pub id: String,
    /// Kubernetes UID.
    pub uid: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name.
    pub name: String,
    /// `None`: the parent cgroup does not tell.
    pub qos: Option<QosClass>,
    /// The parent cgroup as kubelet gave it.
    pub cgroup_parent: String,
    /// Those annotations of the pod that bayplan could understand; others may be large and are not needed here.
    pub annotations: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What its containers request and may use together, without the sandbox's own overhead; all zero where kubelet (before 1.23) does
    /// not say.
    pub resources: Resources,
    /// Huge pages that its containers may use together, where kubelet says it: bytes by size of a page.
    pub huge_pages: BTreeMap<Bytes, Bytes>,
}

impl Pod {
    /// Whether both are the same sandbox; where the runtime's ids are not known, the same pod by name.
    pub fn is(&self, other: &Pod) -> bool {
        self.identity() == other.identity()
    }

    /// The same numbers for the same pod and namespace, on every machine and in every version, so that no journal has to keep them.
    pub fn owner(&self) -> Owner {
        let (id, namespace, name) = self.identity();
        Owner { pod: fnv1a([id, namespace, name]), namespace: fnv1a([&self.namespace]) }
    }

    fn identity(&self) -> (&str, &str, &str) {
        match self.id.as_str() {
            "" => ("", &self.namespace, &self.name),
            id => (id, "", ""),
        }
    }
}

/// FNV-1a of 64 bits, each part ended by a byte that UTF-8 has not: the standard library's hashes may change with its releases.
fn fnv1a<const N: usize>(parts: [&str; N]) -> u64 {
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A container that is to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewContainer {
    /// Its pod.
    pub pod: Pod,
    /// Name in the pod.
    pub name: String,
    /// Counts restarts.
    pub attempt: u32,
    /// Its image as kubelet tells the runtime: an id or a digest, so that another version has another one. Empty where it is not known.
    pub image: String,
    /// Its cgroup settings.
    pub resources: Resources,
    /// Huge pages: bytes by size of a page. Request and limit are equal, and are never changed in place.
    pub huge_pages: BTreeMap<Bytes, Bytes>,
    /// Names of sizes of huge pages that it may have, and that are none.
    pub odd_page_sizes: Vec<String>,
    /// Its devices: paths below `/dev` and PCI addresses.
    pub devices: Vec<String>,
    /// Those of its mounts with a source below `/dev`.
    pub mounts: Vec<String>,
    /// Where its other volumes come from, and the disks below each, as paths below `/dev`: none until they were looked up.
    pub volumes: BTreeMap<String, Vec<String>>,
    /// It asks for an isolated partition of CPUs, and none could be had on the machine when it was created; false until that was looked up.
    pub lacks_partition: bool,
    /// It says nothing of its CPUs itself, and has its settings from its pod's ([`crate::silent`]); false until that was found.
    pub is_silent: bool,
    /// Its memory was resized in place to as much as its pod has, or more, which it did not have from its pod before: until the pod's figure
    /// follows, the limit is its own all the same ([`crate::silent`]).
    pub says_memory: bool,
    /// What kubelet knows of it beside that; `None` where kubelet was not asked, or did not answer in time.
    pub facts: Option<Box<Facts>>,
    /// Devices that kubelet has given to it, as far as it has told of them.
    pub assigned: Vec<AssignedDevices>,
    /// What it asks for in CMK's words, or why that cannot be understood.
    pub cmk: Option<Result<Isolate, CommandError>>,
}

/// Limits of huge pages by the name of their size. Kubelet names every size of the node, most of them with zero; what is no size is
/// left out.
pub fn huge_pages<'a>(limits: impl IntoIterator<Item = (&'a str, u64)>) -> BTreeMap<Bytes, Bytes> {
    let limits = limits.into_iter().filter(|(_, limit)| *limit > 0);
    limits.filter_map(|(size, limit)| Some((parse_page_size(size)?, Bytes(limit)))).collect()
}

/// Names of sizes that ask for huge pages and are no sizes.
pub fn odd_page_sizes(limits: &[(&str, u64)]) -> Vec<String> {
    let odd = limits.iter().filter(|(size, limit)| *limit > 0 && parse_page_size(size).is_none());
    odd.map(|(size, _)| (*size).to_owned()).collect()
}

/// As the kernel names the files of the hugetlb controller: `2MB`, `1GB`, a unit being 1024 of the one below it.
fn parse_page_size(text: &str) -> Option<Bytes> {
    let units = [("KB", 10), ("MB", 20), ("GB", 30)];
    units.iter().find_map(|(unit, shift)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(1 << shift).filter(|bytes| *bytes > 0).map(Bytes)
    })
}

/// The QoS class from a cgroup path, for both cgroup drivers and any cgroup root:
/// `/kubepods/burstable/podUID`, `/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID.slice`, and the same with a
/// container at the end. `None` for a path that kubelet did not make.
pub fn parse_qos(cgroup_path: &str) -> Option<QosClass> {
    let parts: Vec<&str> = cgroup_path.split(['/', ':']).filter(|part| !part.is_empty()).collect();
    for (index, part) in parts.iter().enumerate() {
        if *part == "kubepods" {
            let inner = parts.get(index + 1)?;
            return match *inner {
                "burstable" => Some(QosClass::Burstable),
                "besteffort" => Some(QosClass::BestEffort),
                pod if pod.starts_with("pod") => Some(QosClass::Guaranteed),
                _ => None,
            };
        }
        // systemd: the pod's own slice, `[root-]kubepods[-class]-podUID.slice`.
        let Some(slice) = part.strip_suffix(".slice") else { continue };
        let Some((prefix, _)) = slice.split_once("-pod") else { continue };
        match prefix.rsplit('-').next()? {
            "kubepods" => return Some(QosClass::Guaranteed),
            "burstable" => return Some(QosClass::Burstable),
            "besteffort" => return Some(QosClass::BestEffort),
            _ => {}
        }
    }
    None
}

/// What the configuration says about requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRules {
    /// Pods of these namespaces run on the reserved CPUs; `*` and `?` stand for any text and any character.
    pub reserved_namespaces: Vec<String>,
    /// Shared CPUs only, unless an annotation says otherwise.
    pub prefer_shared_cpus: bool,
    /// Each container of a Burstable pod has the QoS class that its own resources make, unless an annotation says otherwise.
    pub has_own_qos: bool,
    /// A container that gets a single CPU of its own prefers an isolated one. For more than one, the kernel does not spread threads over isolated
    /// CPUs.
    pub prefer_isolated_cpus: bool,
    /// Containers of a pod want to be near each other.
    pub colocate_pods: bool,
    /// Containers of a namespace want to be near each other.
    pub colocate_namespaces: bool,
    /// Wishes of a container that says nothing itself.
    pub wishes: Wishes,
    /// What the pods of a namespace may ask for, where that is not as usual; later ones count more.
    pub permissions: Vec<Rule>,
    /// Classes that pods can name.
    pub classes: ClassNames,
    /// How many CPUs may be kept from others.
    pub ceilings: Ceilings,
    /// There are types of groups, so what containers say in CMK's words counts.
    pub has_groups: bool,
    /// Cores of Koordinator's LSE pods of which some threads are not owned are used by others.
    pub lse_uses_siblings: bool,
    /// Containers for which one of these holds keep the CPUs and memory nodes that the runtime gives them.
    pub preserved: Vec<Condition>,
    /// What is left alone of every container, where no group says otherwise.
    pub preserve: Preserve,
}

/// How many CPUs may be closed to other owners, or idle, beside those that a container owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceilings {
    /// For a pod, in percent of the CPUs that it owns, and one core more.
    pub pod_percent: usize,
    /// For a namespace, in percent of the CPUs that containers can own; one core at least.
    pub namespace_percent: usize,
}

impl Default for Ceilings {
    fn default() -> Ceilings {
        Ceilings { pod_percent: 100, namespace_percent: 25 }
    }
}

impl RequestRules {
    /// Whether pods of this namespace run on the reserved CPUs.
    pub fn is_reserved_namespace(&self, namespace: &str) -> bool {
        self.reserved_namespaces.iter().any(|it| matches_glob(it, namespace))
    }
}

/// What of the machine a request depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hardware<'a> {
    /// Its devices.
    pub devices: &'a [Device],
    /// CPUs near the NUMA nodes of devices that kubelet has given to the container.
    pub node_cpus: &'a [(NodeId, CpuSet)],
    /// All its memory as kubelet counts it, huge pages included; `None` where that is unknown.
    pub memory: Option<Bytes>,
    /// The most CPUs isolated at boot that it can have in one NUMA node.
    pub isolated_in_a_node: usize,
}

/// The request of a container, and a warning for everything about it that could not be understood. A pod of unknown QoS class only shares: exclusive
/// CPUs are for those that provably paid for them. `others` are the containers of the node.
pub fn derive_request<'a>(
    id: ContainerId,
    container: &NewContainer,
    rules: &RequestRules,
    hardware: Hardware<'_>,
    others: impl IntoIterator<Item = (ContainerId, &'a NewContainer), IntoIter: Clone>,
) -> (Request, Vec<Warning>) {
    let (pod, resources) = (&container.pod, container.resources);
    let (asked, mut warnings) = read_annotations(container, rules);
    if pod.qos.is_none() {
        let text = format!(
            "cgroup parent `{}` does not tell a QoS class (expected .../kubepods/... or ...kubepods-...-pod*.slice); \
             treated as shared",
            shown(&pod.cgroup_parent, 200)
        );
        warnings.insert(0, Warning { kind: WarningKind::NotUnderstood, text });
    }
    warnings.extend(container.odd_page_sizes.iter().map(|size| Warning {
        kind: WarningKind::NotUnderstood,
        text: format!(
            "huge pages of `{}`: a size is a number with KB, MB or GB; they are not counted",
            shown(size, 200)
        ),
    }));
    let is_system = rules.is_reserved_namespace(&pod.namespace);
    let own_qos = qos_of(container, &asked, hardware.memory);
    let requests = requests(container, own_qos, &asked, hardware, &mut warnings);
    let cpu = requests.cpu;
    let qos = own_qos.unwrap_or(QosClass::Burstable);
    let preferences = Preferences { prefer_shared_cpus: asked.prefer_shared_cpus };
    let others = others.into_iter();
    let share = pod_share(id, container, others.clone());
    let demand = match share.demand() {
        Some(of_pod) if asked.prefer_shared_cpus == Some(true) => of_pod.all_shared(),
        Some(of_pod) => of_pod,
        None => derive_demand(qos, cpu, preferences),
    };
    let mut wishes = asked.wishes.clone();
    let is_isolated_by_rule = rules.prefer_isolated_cpus && demand.exclusive() == 1;
    // A container that shares CPUs has no partition anywhere; one that would be spread for it is better off near its memory and devices.
    let lacks_partition = container.lacks_partition
        && demand.shared().is_none()
        && demand.exclusive() <= hardware.isolated_in_a_node;
    if asked.prefer_isolated_cpus.is_none() && (is_isolated_by_rule || lacks_partition) {
        wishes.cpus.isolated = Some(Strictness::Preferred);
    }
    // Another component has chosen its CPUs, and knows which memory is near them.
    let is_chosen = has_claimed_cpus(&container.devices);
    if is_chosen || rules.preserved.iter().any(|it| it.holds(container)) {
        wishes.preserve = Preserve { cpus: true, memory: true };
    }
    wishes.place.near = nears(&asked.hints, container, hardware.devices, hardware.node_cpus);
    wishes.place.near.extend(near_chosen(&asked.numa_nodes));
    wishes.place.affinity = affinities(&asked.affinity, container, others.clone());
    wishes.pod = pod_wishes(container, others, wishes.pod.is_one);
    wishes.pod.part = share.part;
    let is_claimed = !wishes.claimed.is_empty();
    let (demand, wishes) = match is_claimed {
        true => (Demand::new(0, None), as_claimed(wishes)),
        false => (demand, wishes),
    };
    let memory_limit = positive(resources.memory_limit).map(Bytes);
    let is_guaranteed = qos == QosClass::Guaranteed;
    let request = Request {
        owner: pod.owner(),
        ceiling: resources.cpu_limit(),
        is_reserved: !is_claimed && asked.prefer_reserved_cpus.unwrap_or(is_system),
        memory: share.memory.unwrap_or(requests.memory),
        memory_is_expected: !is_guaranteed,
        memory_limit: memory_limit.filter(|_| !is_guaranteed),
        huge_pages: with_share(&container.huge_pages, &share),
        wishes,
        ..Request::new(id, demand)
    };
    warnings.extend(without_effect(container, &asked, &request, rules));
    (request, warnings)
}

/// The NUMA nodes that Koordinator's scheduler has chosen, if it has.
fn near_chosen(nodes: &NodeSet) -> Option<Near> {
    let (name, nodes) = ("numaNodeResources".to_owned(), nodes.clone());
    let strictness = Strictness::Preferred;
    let near = Near { name, cpus: CpuSet::new(), nodes, strictness };
    (!near.nodes.is_empty()).then_some(near)
}

/// The QoS class by which a container gets CPUs and memory: its pod's, or that which its own resources make in a Burstable pod.
fn qos_of(container: &NewContainer, asked: &Asked, memory: Option<Bytes>) -> Option<QosClass> {
    let is_own = asked.has_own_qos && container.pod.qos == Some(QosClass::Burstable);
    match is_own && container.resources.are_guaranteed(memory) {
        true => Some(QosClass::Guaranteed),
        false => container.pod.qos,
    }
}

/// Settings of a container after an update. Where it has the QoS class that its own resources make, a new memory limit that comes without an OOM score leaves it
/// that class.
pub fn updated_resources(
    container: &NewContainer,
    update: Resources,
    rules: &RequestRules,
    memory: Option<Bytes>,
) -> Resources {
    let before = container.resources;
    let is_scored = update.oom_score_adj != 0;
    let has_limit = !is_scored && ![0, before.memory_limit].contains(&update.memory_limit);
    let is_burstable = container.pod.qos == Some(QosClass::Burstable);
    let is_own = || read_annotations(container, rules).0.has_own_qos;
    match has_limit && is_burstable && is_own() {
        true => before.with_score_for(update.memory_limit, memory).updated_by(update),
        false => before.updated_by(update),
    }
}

/// What of its pod's figure it counts, where that is not its own.
fn pod_share<'a>(
    id: ContainerId,
    container: &NewContainer,
    others: impl Iterator<Item = (ContainerId, &'a NewContainer)>,
) -> Share {
    let mates = others.filter(|(_, other)| other.pod.is(&container.pod));
    let mates: Vec<Member<'a>> = mates.collect();
    let mut members: Vec<Member<'_>> = mates;
    if members.is_empty() && !container.is_silent {
        return Share::default();
    }
    members.push((id, container));
    members.sort_by_key(|(id, _)| *id);
    share(id, &members).unwrap_or_default()
}

/// Huge pages that it counts; a size of which it counts none is left out.
fn with_share(own: &BTreeMap<Bytes, Bytes>, share: &Share) -> BTreeMap<Bytes, Bytes> {
    let counted = own.iter().map(|(size, own)| (*size, *share.huge_pages.get(size).unwrap_or(own)));
    counted.filter(|(_, bytes)| *bytes > Bytes::ZERO).collect()
}

/// Where CPUs were chosen for the pod, nothing else that it wishes of CPUs, of its place and of its mates counts.
fn as_claimed(Wishes { claimed, memory, preserve, .. }: Wishes) -> Wishes {
    Wishes { claimed, memory, preserve, is_immovable: true, ..Wishes::default() }
}

/// Where the amounts of a request come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSource {
    /// The pod as kubelet has it.
    Kubelet,
    /// What an admission webhook or policy has copied into this annotation.
    Annotation(&'static str),
    /// What kubelet has made of them: cgroup settings and OOM score.
    Settings,
}

/// Where the amounts of this container's request come from; `memory` is that of the machine.
pub fn request_source(
    container: &NewContainer,
    rules: &RequestRules,
    memory: Option<Bytes>,
) -> RequestSource {
    let (asked, _) = read_annotations(container, rules);
    known_requests(container, qos_of(container, &asked, memory), &asked, memory).1
}

/// What is requested, and a warning where an annotation says something that cannot be true.
fn requests(
    container: &NewContainer,
    qos: Option<QosClass>,
    asked: &Asked,
    hardware: Hardware<'_>,
    warnings: &mut Vec<Warning>,
) -> Requests {
    let (requests, _, problem) = known_requests(container, qos, asked, hardware.memory);
    let kind = WarningKind::NotUnderstood;
    warnings.extend(problem.map(|text| Warning { kind, text }));
    requests
}

/// The best that is known: kubelet's word, then that of an annotation, then what cgroup settings tell. Each counts as far as these settings can have been made
/// of it, because a resize in place changes them before, or without, the others.
fn known_requests(
    container: &NewContainer,
    qos: Option<QosClass>,
    asked: &Asked,
    memory: Option<Bytes>,
) -> (Requests, RequestSource, Option<String>) {
    let resources = container.resources;
    let exact = |said: &ExactRequests, has_own_score: bool| {
        resources.exact_requests(qos, memory, said, has_own_score)
    };
    let facts = container.facts.iter().flat_map(|it| {
        // With NRI it is the score that may be older.
        let has_own_score = it.is_older && !it.own.is_init && !it.about.requests.says_something();
        [it.own.requests, it.own.running].map(|said| (said, has_own_score))
    });
    let mut telling = facts.filter(|(said, _)| said.says_something());
    if let Some(requests) = telling.find_map(|(said, is_own)| exact(&said, is_own).ok()) {
        return (requests, RequestSource::Kubelet, None);
    }
    let estimate = resources.requests(qos, memory);
    match asked.requests.as_ref().map(|(name, said)| (*name, exact(said, false))) {
        Some((name, Ok(requests))) => (requests, RequestSource::Annotation(name), None),
        Some((name, Err(why))) => {
            let problem = format!("annotation `{name}` {why}; ignored");
            (estimate, RequestSource::Settings, Some(problem))
        }
        None => (estimate, RequestSource::Settings, None),
    }
}

#[cfg(test)]
mod tests {
    use bayplan_types::MilliCpu;

    use super::*;
    use crate::facts::{ContainerFacts, PodAbout};

    #[test]
    fn qos_is_read_from_either_driver_and_any_root() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        for (path, qos) in [
            ("/kubepods/pod1234", Some(Guaranteed)),
            ("/kubepods/burstable/pod1234", Some(Burstable)),
            ("/kubepods/besteffort/pod1234/abc", Some(BestEffort)),
            ("/custom/root/kubepods/burstable/pod1", Some(Burstable)),
            ("/kubepods.slice/kubepods-pod1_2.slice", Some(Guaranteed)),
            ("kubepods-burstable-pod1_2.slice:cri-containerd:abc", Some(Burstable)),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12.slice",
                Some(BestEffort),
            ),
            ("/my.slice/my-kubepods.slice/my-kubepods-pod1.slice", Some(Guaranteed)),
            ("", None),
            ("/kubepods", None),
            ("/kubepods/weird/pod1", None),
            ("/system.slice/docker-abc.scope", None),
            ("/a-podman.slice", None),
            ("\u{0}/../..", None),
        ] {
            assert_eq!(parse_qos(path), qos, "{path:?}");
        }
    }

    fn check(qos: &str, annotations: &[(&str, &str)], resources: Resources, expected: &str) {
        let container = NewContainer {
            pod: Pod {
                namespace: "default".into(),
                qos: parse_qos(qos),
                cgroup_parent: qos.into(),
                annotations: annotations.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
                ..Pod::default()
            },
            name: "c".into(),
            resources,
            ..NewContainer::default()
        };
        let rules = RequestRules {
            reserved_namespaces: vec!["kube-system".into()],
            permissions: vec![Rule::everything()],
            ..RequestRules::default()
        };
        let hardware = Hardware { memory: Some(Bytes::gib(100)), ..Hardware::default() };
        let (request, warnings) = derive_request(ContainerId(1), &container, &rules, hardware, []);
        let mut shown = format!("{}, memory {}", request.demand, request.memory);
        if request.memory_is_expected && request.memory > Bytes::ZERO {
            shown.push_str(" expected");
        }
        if let Some(ceiling) = request.ceiling {
            shown.push_str(&format!(", ceiling {ceiling}"));
        }
        if request.is_reserved {
            shown.push_str(", reserved");
        }
        for warning in warnings {
            shown.push_str(&format!("; {}", warning.text));
        }
        assert_eq!(shown, expected);
    }

    fn cpu(shares: i64, quota: i64) -> Resources {
        Resources {
            cpu_shares: shares,
            cpu_quota: quota,
            cpu_period: 100_000,
            memory_limit: 1 << 30,
            oom_score_adj: 0,
        }
    }

    const GUARANTEED: &str = "/kubepods/pod1";
    const BURSTABLE: &str = "/kubepods/burstable/pod1";

    #[test]
    fn requests_are_recovered_from_cgroup_settings() {
        check(GUARANTEED, &[], cpu(2048, 200_000), "2 exclusive, memory 1 GiB, ceiling 2");
        check(
            GUARANTEED,
            &[],
            cpu(1536, 150_000),
            "1 exclusive + 500m shared, memory 1 GiB, ceiling 1500m",
        );
        check(BURSTABLE, &[], cpu(2048, -1), "2 shared, memory 0 B");
        check("/kubepods/besteffort/pod1", &[], cpu(2, 0), "0 shared, memory 0 B");
        check(
            GUARANTEED,
            &[],
            cpu(262_144, 51_200_000),
            "512 exclusive, memory 1 GiB, ceiling 512",
        );
        check(GUARANTEED, &[], Resources::default(), "0 shared, memory 0 B");
    }

    #[test]
    fn a_burstable_container_is_expected_to_use_what_its_score_and_its_webhook_tell() {
        let resources = Resources { oom_score_adj: 900, memory_limit: 0, ..cpu(2048, -1) };
        let name = "intel.com/resources";
        for (says, expected) in [
            ("", "2 shared, memory 10 GiB expected"),
            (r#"{"memory":"5Gi"}"#, "2 shared, memory 5 GiB expected"),
            (
                r#"{"cpu":"8"}"#,
                "2 shared, memory 10 GiB expected; annotation `intel.com/resources` says 8 CPUs, cpu.shares of 2048 say 2; ignored",
            ),
            (
                r#"{"cpu":"-8"}"#,
                "2 shared, memory 10 GiB expected; annotation `intel.com/resources` is `{\"containers\":{\"c\":{\"requests\":{\"cpu\":\"-...` \
                 (cpu is `-8`), expected requests by container as JSON; ignored",
            ),
        ] {
            let text = format!(r#"{{"containers":{{"c":{{"requests":{says}}}}}}}"#);
            let annotations = if says.is_empty() { vec![] } else { vec![(name, text.as_str())] };
            check(BURSTABLE, &annotations, resources, expected);
        }
    }

    /// A restartable init container has the score of another, and a pod with requests of its own another way to make scores. What kubelet told after a resize
    /// is newer than a score that NRI does not tell.
    #[test]
    fn a_score_that_is_not_its_own_bounds_nothing() {
        for (is_older, is_init, pod_cpu, expected) in [
            (true, false, None, 10 << 30),
            (false, false, None, 1 << 30),
            (true, true, None, 1 << 30),
            (true, false, Some(MilliCpu(4000)), 1 << 30),
        ] {
            let requests = ExactRequests { cpu: None, memory: Some(Bytes(1 << 30)) };
            let own = ContainerFacts { requests, is_init, ..ContainerFacts::default() };
            let about = PodAbout {
                requests: ExactRequests { cpu: pod_cpu, memory: None },
                ..PodAbout::default()
            };
            let container = NewContainer {
                pod: Pod { qos: Some(QosClass::Burstable), ..Pod::default() },
                resources: Resources { oom_score_adj: 900, memory_limit: 0, ..cpu(2048, -1) },
                facts: Some(Box::new(Facts { about, own, is_older })),
                ..NewContainer::default()
            };
            let hardware = Hardware { memory: Some(Bytes::gib(100)), ..Hardware::default() };
            let rules = RequestRules::default();
            let (request, _) = derive_request(ContainerId(1), &container, &rules, hardware, []);
            assert_eq!(request.memory, Bytes(expected), "{is_older} {is_init} {pod_cpu:?}");
        }
    }

    /// Kubelet's word counts before an annotation's, as far as cgroup settings agree with it; a resize in place is seen in the status first or in the
    /// specification first.
    #[test]
    fn kubelets_word_on_requests_counts_first() {
        let said = |cpu: Option<u64>, memory: Option<u64>| ExactRequests {
            cpu: cpu.map(MilliCpu),
            memory: memory.map(|mib| Bytes(mib << 20)),
        };
        let nothing = ExactRequests::default();
        let annotation = r#"{"containers":{"c":{"requests":{"cpu":"2","memory":"7Gi"}}}}"#;
        let by = RequestSource::Annotation("intel.com/resources");
        for (requests, running, annotated, mib, source) in [
            (said(Some(2000), Some(10_300)), nothing, true, 10_300, RequestSource::Kubelet),
            (said(Some(2000), Some(10_300)), nothing, false, 10_300, RequestSource::Kubelet),
            (
                said(Some(8000), Some(10_300)),
                said(Some(2000), Some(10_200)),
                true,
                10_200,
                RequestSource::Kubelet,
            ),
            (said(Some(8000), Some(10_300)), nothing, true, 7 << 10, by),
            (said(Some(8000), Some(10_300)), nothing, false, 10 << 10, RequestSource::Settings),
            // From before a resize of memory alone, up or down, which the score tells of.
            (said(Some(2000), Some(2 << 10)), nothing, false, 10 << 10, RequestSource::Settings),
            (said(Some(2000), Some(20 << 10)), nothing, false, 10 << 10, RequestSource::Settings),
            (nothing, nothing, false, 10 << 10, RequestSource::Settings),
        ] {
            let pair = ("intel.com/resources".to_owned(), annotation.to_owned());
            let own = ContainerFacts { requests, running, ..ContainerFacts::default() };
            let container = NewContainer {
                pod: Pod {
                    qos: Some(QosClass::Burstable),
                    annotations: annotated.then_some(pair).into_iter().collect(),
                    ..Pod::default()
                },
                name: "c".into(),
                resources: Resources { oom_score_adj: 900, memory_limit: 0, ..cpu(2048, -1) },
                facts: Some(Box::new(Facts { own, is_older: true, ..Facts::default() })),
                ..NewContainer::default()
            };
            let (rules, memory) = (RequestRules::default(), Some(Bytes::gib(100)));
            let hardware = Hardware { memory, ..Hardware::default() };
            let (request, _) = derive_request(ContainerId(1), &container, &rules, hardware, []);
            let found = (request.memory, request_source(&container, &rules, memory));
            assert_eq!(found, (Bytes(mib << 20), source), "{requests:?} {running:?} {annotated}");
        }
    }

    #[test]
    fn absurd_settings_are_treated_as_not_set() {
        let absurd = Resources {
            cpu_shares: i64::MIN,
            cpu_quota: i64::MIN,
            cpu_period: -5,
            memory_limit: i64::MIN,
            oom_score_adj: i64::MIN,
        };
        check(GUARANTEED, &[], absurd, "0 shared, memory 0 B");
        let huge = Resources {
            cpu_shares: i64::MAX,
            cpu_quota: i64::MAX,
            cpu_period: 1,
            memory_limit: i64::MAX,
            oom_score_adj: i64::MAX,
        };
        check(BURSTABLE, &[], huge, "256 shared, memory 0 B, ceiling 18446744073709551615m");
    }

    /// Nothing else that the pod wishes of CPUs, of its place and of its mates counts, but for what it wants left alone.
    #[test]
    fn who_runs_on_chosen_cpus_requests_none() {
        let list = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let status = ("scheduling.koordinator.sh/resource-status", r#"{"cpuset":"4-5"}"#);
            let pairs = pairs.iter().chain([&status]);
            pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        for (namespace, pairs, preserve) in [
            ("default", &[][..], Preserve::default()),
            (
                "kube-system",
                &[("bayplan.dev/within", "numa"), ("bayplan.dev/apart", "core required")],
                Preserve::default(),
            ),
            (
                "default",
                &[("bayplan.dev/memory.preserve", "true")],
                Preserve { cpus: false, memory: true },
            ),
            (
                "default",
                &[("bayplan.dev/cpu.preserve", "true")],
                Preserve { cpus: true, memory: false },
            ),
        ] {
            let pod = Pod {
                namespace: namespace.into(),
                qos: Some(QosClass::Guaranteed),
                resources: cpu(4096, 400_000),
                annotations: list(pairs),
                ..Pod::default()
            };
            let container =
                NewContainer { pod, resources: cpu(2048, 200_000), ..NewContainer::default() };
            let rules = RequestRules {
                reserved_namespaces: vec!["kube-*".into()],
                permissions: vec![Rule::everything()],
                ..RequestRules::default()
            };
            let (request, warnings) =
                derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
            let wishes = Wishes {
                claimed: "4-5".parse().unwrap(),
                preserve,
                is_immovable: true,
                ..Wishes::default()
            };
            assert_eq!(request.wishes, wishes, "{pairs:?}");
            assert!(warnings.is_empty() && !request.is_reserved, "{warnings:?}");
            assert_eq!(request.demand, Demand::new(0, None));
            assert_eq!(request.memory, Bytes::gib(1));
            assert!(request.terms().preserve.cpus);
        }
    }

    #[test]
    fn the_most_specific_annotation_wins_and_older_names_count() {
        let two_and_a_half = cpu(2560, 250_000);
        let split = "2 exclusive + 500m shared, memory 1 GiB, ceiling 2500m";
        check(GUARANTEED, &[], two_and_a_half, "2500m shared, memory 1 GiB, ceiling 2500m");
        for key in [
            "bayplan.dev/prefer-shared-cpus",
            "prefer-shared-cpus.bayplan.dev/pod",
            "prefer-shared-cpus.cri-resource-manager.intel.com/container.c",
            "prefer-shared-cpus.resource-policy.nri.io",
        ] {
            check(GUARANTEED, &[(key, "false")], two_and_a_half, split);
        }
        check(
            GUARANTEED,
            &[
                ("bayplan.dev/prefer-shared-cpus", "true"),
                ("prefer-shared-cpus.bayplan.dev/container.c", "false"),
            ],
            two_and_a_half,
            split,
        );
        check(
            GUARANTEED,
            &[("bayplan.dev/prefer-reserved-cpus", "true")],
            cpu(1024, 100_000),
            "1 exclusive, memory 1 GiB, ceiling 1, reserved",
        );
    }

    #[test]
    fn what_cannot_be_understood_is_said_and_shares() {
        check(
            "/weird",
            &[],
            cpu(2048, 200_000),
            "2 shared, memory 0 B, ceiling 2; cgroup parent `/weird` does not tell a QoS class (expected \
             .../kubepods/... or ...kubepods-...-pod*.slice); treated as shared",
        );
        check(
            "/weird\u{1b}[2J",
            &[],
            cpu(2048, 200_000),
            "2 shared, memory 0 B, ceiling 2; cgroup parent `/weird\\u{1b}[2J` does not tell a QoS class (expected \
             .../kubepods/... or ...kubepods-...-pod*.slice); treated as shared",
        );
        check(
            GUARANTEED,
            &[("bayplan.dev/prefer-shared-cpus", "maybe")],
            cpu(1024, 100_000),
            "1 exclusive, memory 1 GiB, ceiling 1; annotation `bayplan.dev/prefer-shared-cpus` is `maybe`, \
             expected true or false; ignored",
        );
    }

    #[test]
    fn owners_are_the_same_numbers_everywhere() {
        let pod = |id: &str, namespace: &str, name: &str| Pod {
            id: id.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Pod::default()
        };
        let owner = |id: &str, namespace: &str, name: &str| pod(id, namespace, name).owner();
        // As the definition of FNV-1a computes them; a change would not be noticed by any other test.
        assert_eq!(fnv1a([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(["a"]), (0xaf63_dc4c_8601_ec8c ^ 0xff_u64).wrapping_mul(0x0100_0000_01b3));
        assert_eq!(owner("s1", "a", "x"), owner("s1", "a", "y"));
        assert_ne!(owner("s1", "a", "x").pod, owner("s2", "a", "x").pod);
        assert_eq!(owner("s1", "a", "x").namespace, owner("s2", "a", "x").namespace);
        assert_ne!(owner("", "a", "bc").pod, owner("", "ab", "c").pod);
        assert!(
            pod("s1", "a", "x").is(&pod("s1", "", "")) && !pod("", "a", "x").is(&pod("", "a", "y"))
        );
    }

    #[test]
    fn the_configuration_decides_where_the_pod_says_nothing() {
        let rules = RequestRules {
            reserved_namespaces: vec!["kube-*".into()],
            permissions: vec![Rule::everything()],
            prefer_isolated_cpus: true,
            ..RequestRules::default()
        };
        for (namespace, annotation, cpus, is_reserved, isolated) in [
            ("kube-system", ("", ""), 1, true, Some(Strictness::Preferred)),
            ("default", ("", ""), 2, false, None),
            ("default", ("bayplan.dev/prefer-isolated-cpus", "false"), 1, false, None),
            (
                "default",
                ("bayplan.dev/prefer-isolated-cpus", "true"),
                2,
                false,
                Some(Strictness::Preferred),
            ),
            ("kube-dns", ("bayplan.dev/prefer-reserved-cpus", "false"), 2, false, None),
        ] {
            let container = NewContainer {
                pod: Pod {
                    namespace: namespace.into(),
                    qos: Some(QosClass::Guaranteed),
                    annotations: [(annotation.0.to_owned(), annotation.1.to_owned())].into(),
                    ..Pod::default()
                },
                resources: cpu(cpus * 1024, cpus * 100_000),
                ..NewContainer::default()
            };
            let (request, _) =
                derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
            let found = (request.is_reserved, request.wishes.cpus.isolated);
            assert_eq!(found, (is_reserved, isolated), "{namespace} {annotation:?} {cpus}");
        }
    }

    #[test]
    fn cpus_isolated_at_boot_are_next_to_a_partition_unless_the_pod_says_no() {
        let rows = [
            (false, 2000, None, None),
            (true, 2000, None, Some(Strictness::Preferred)),
            (true, 3000, None, None),
            (true, 1500, None, None),
            (true, 500, None, None),
            (true, 2000, Some("prefer-isolated-cpus: false"), None),
            (true, 2000, Some("require-isolated-cpus: true"), Some(Strictness::Required)),
        ];
        for (lacks_partition, milli, annotation, expected) in rows {
            let pair = annotation.and_then(|it| it.split_once(": "));
            let pair = pair.map(|(name, value)| (format!("bayplan.dev/{name}"), value.to_owned()));
            let pod = Pod {
                qos: Some(QosClass::Guaranteed),
                annotations: pair.into_iter().collect(),
                ..Pod::default()
            };
            let resources = cpu(milli * 1024 / 1000, milli * 100);
            let container =
                NewContainer { pod, resources, lacks_partition, ..NewContainer::default() };
            let rules = RequestRules::default();
            let hardware = Hardware { isolated_in_a_node: 2, ..Hardware::default() };
            let (request, _) = derive_request(ContainerId(1), &container, &rules, hardware, []);
            assert_eq!(request.wishes.cpus.isolated, expected, "{milli} {annotation:?}");
        }
    }

    /// NRI tells no score with an update, CRI does.
    #[test]
    fn a_resize_of_memory_leaves_a_container_the_class_of_its_own() {
        let memory = Some(Bytes::gib(64));
        let resources = |gib: i64, oom_score_adj: i64| Resources {
            cpu_shares: 2048,
            cpu_quota: 200_000,
            cpu_period: 100_000,
            memory_limit: gib << 30,
            oom_score_adj,
        };
        let check = |has_own_qos: bool, had: i64, to: Resources, expected: (i64, QosClass)| {
            let pod = Pod { qos: Some(QosClass::Burstable), ..Pod::default() };
            let rules = RequestRules { has_own_qos, ..RequestRules::default() };
            let resources = resources(4, had);
            let mut container = NewContainer { pod, resources, ..NewContainer::default() };
            container.resources = updated_resources(&container, to, &rules, memory);
            let (asked, _) = read_annotations(&container, &rules);
            let qos = qos_of(&container, &asked, memory).unwrap();
            assert_eq!((container.resources.oom_score_adj, qos), expected, "{had} {to:?}");
        };
        check(true, 938, resources(8, 0), (875, QosClass::Guaranteed));
        check(true, 938, resources(8, 875), (875, QosClass::Guaranteed));
        check(true, 938, resources(8, 938), (938, QosClass::Burstable));
        check(true, 900, resources(8, 0), (900, QosClass::Burstable));
        check(true, 938, resources(0, 0), (938, QosClass::Guaranteed));
        check(false, 938, resources(8, 0), (938, QosClass::Burstable));
    }

    #[test]
    fn a_container_with_a_class_of_its_own_has_exclusive_cpus_in_a_burstable_pod() {
        let check = |has_own_qos: bool, annotation: Option<&str>, quota: i64, exclusive: usize| {
            let annotations = annotation
                .map(|value| ("bayplan.dev/qos-per-container".to_owned(), value.to_owned()));
            let pod = Pod {
                qos: Some(QosClass::Burstable),
                annotations: annotations.into_iter().collect(),
                ..Pod::default()
            };
            let resources =
                Resources { memory_limit: 4 << 30, oom_score_adj: 938, ..cpu(2048, quota) };
            let container = NewContainer { pod, resources, ..NewContainer::default() };
            let rules = RequestRules { has_own_qos, ..RequestRules::default() };
            let hardware = Hardware { memory: Some(Bytes::gib(64)), ..Hardware::default() };
            let (request, _) = derive_request(ContainerId(1), &container, &rules, hardware, []);
            assert_eq!(request.demand.exclusive(), exclusive, "{annotation:?} {quota}");
        };
        check(false, None, 200_000, 0);
        check(true, None, 200_000, 2);
        check(false, Some("true"), 200_000, 2);
        check(true, Some("false"), 200_000, 0);
        // Its limit is above its request.
        check(true, None, 300_000, 0);
    }
}
