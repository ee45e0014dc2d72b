//! Pods and containers to requests. In: what kubelet says about a pod and a container. Out: a [`Request`] for the allocator, and a warning for
//! everything that could not be understood.
//!
//! CRI carries no pod spec, so requests are recovered from what kubelet derives from them: the QoS class from the parent cgroup's
//! name, the rest from the cgroup settings (`resources.rs`).

use std::collections::BTreeMap;

use bayplan_allocator::{
    ContainerId, Demand, Near, Preferences, Preserve, Request, Strictness, Wishes, derive_demand,
};
use bayplan_topology::Device;
use bayplan_types::{Bytes, CpuSet, MilliCpu, NodeId, NodeSet, QosClass};

use crate::annotations::affinity::affinities;
use crate::annotations::asked::Asked;
use crate::annotations::effect::without_effect;
use crate::annotations::hints::nears;
use crate::annotations::read::read_annotations;
use crate::annotations::values::shown;
use crate::annotations::warnings::{Warning, WarningKind};
use crate::container::NewContainer;
use crate::devices::has_claimed_cpus;
use crate::mates::pod_wishes;
use crate::resources::{ExactRequests, Requests, Resources, positive};
use crate::rules::RequestRules;
use crate::silent::{Member, Share, share};

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
        None if asked.owns_requested && is_paid_for(container, cpu) => {
            derive_demand(QosClass::Guaranteed, cpu, preferences)
        }
        None => derive_demand(qos, cpu, preferences),
    };
    let demand = rules.amplification.real(demand);
    let mut wishes = asked.wishes.clone();
    let is_isolated_by_rule = rules.prefer_isolated_cpus && demand.exclusive() == 1;
    let is_isolated = is_isolated_by_rule || is_isolated_for_partition(container, demand, hardware);
    if asked.prefer_isolated_cpus.is_none() && is_isolated {
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
    wishes.pod.rest = rules.amplification.real_rest(wishes.pod.rest, can_own(pod.qos, &asked));
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

/// A container that shares CPUs has no partition anywhere; one that would be spread for it is better off near its memory and devices.
fn is_isolated_for_partition(
    container: &NewContainer,
    demand: Demand,
    hardware: Hardware<'_>,
) -> bool {
    container.lacks_partition
        && demand.shared().is_none()
        && demand.exclusive() <= hardware.isolated_in_a_node
}

/// Whether containers of its pod that are still to come can have CPUs of their own; they are taken to ask as it does.
fn can_own(pod: Option<QosClass>, asked: &Asked) -> bool {
    let is_all_shared = asked.prefer_shared_cpus == Some(true);
    let is_other = asked.has_own_qos || asked.owns_requested;
    !is_all_shared && (pod == Some(QosClass::Guaranteed) || is_other)
}

/// Whole CPUs are requested, and no more may be used: what Koordinator's webhook asks of LSE and LSR.
fn is_paid_for(container: &NewContainer, request: MilliCpu) -> bool {
    let is_whole = request.whole_cpus() > 0 && request.fraction() == MilliCpu::ZERO;
    is_whole && container.resources.cpu_limit() == Some(request)
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
mod tests;
