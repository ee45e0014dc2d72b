//! A pod's bytes to what Bayplan reads of it. In: `v1.Pod` as protobuf. Out: [`PodFacts`]. Pure.

use std::collections::BTreeMap;

use bayplan_types::{Bytes, MilliCpu};
use bayplan_workload::annotations::{parse_quantity, relevant};
use bayplan_workload::{ContainerFacts, ExactRequests, PodAbout, PodFacts, ResizeState};
use prost::Message as _;

use super::messages::core::{
    ContainerStatus, ObjectMeta, Pod, PodCondition, PodSpec, PodStatus, Quantity,
    ResourceRequirements,
};

/// Resources that are not extended ones have no domain, except for these.
const NATIVE_DOMAIN: &str = "kubernetes.io/";
/// More of one container are not kept.
const EXTENDED_MAX: usize = 64;

/// # Errors
/// The bytes are no pod, in words.
pub(crate) fn parse_pod(bytes: &[u8]) -> Result<PodFacts, String> {
    let pod =
        Pod::decode(bytes).map_err(|error| format!("the bytes of a pod are none: {error}"))?;
    let Some(meta) = pod.metadata.filter(|meta| !meta.uid.is_empty()) else {
        return Err("a pod has no uid".to_owned());
    };
    let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
    Ok(PodFacts {
        annotations: relevant(&meta.annotations),
        about: about(&meta, &spec, &status),
        containers: containers(&spec, &status),
        uid: meta.uid,
        namespace: meta.namespace,
        name: meta.name,
    })
}

fn about(meta: &ObjectMeta, spec: &PodSpec, status: &PodStatus) -> PodAbout {
    let owner = meta.owner_references.iter().find(|it| it.controller == Some(true));
    let class = Some(&spec.priority_class_name).filter(|it| !it.is_empty());
    PodAbout {
        owner: owner.map(|it| format!("{}/{}", it.kind, it.name)),
        priority_class: class.cloned(),
        priority: spec.priority,
        requests: exact(spec.resources.as_ref()),
        resize: status.conditions.iter().find_map(resize_state),
    }
}

fn resize_state(condition: &PodCondition) -> Option<ResizeState> {
    let is_so = condition.status == "True";
    match (condition.r#type.as_str(), condition.reason.as_str()) {
        ("PodResizePending", "Deferred") if is_so => Some(ResizeState::Deferred),
        ("PodResizePending", "Infeasible") if is_so => Some(ResizeState::Infeasible),
        ("PodResizeInProgress", _) if is_so => Some(ResizeState::InProgress),
        _ => None,
    }
}

fn containers(spec: &PodSpec, status: &PodStatus) -> BTreeMap<String, ContainerFacts> {
    let running = |name: &str| {
        let lists = [&status.container_statuses, &status.init_container_statuses];
        let found = lists.into_iter().flatten().find(|it: &&ContainerStatus| it.name == name);
        exact(found.and_then(|it| it.resources.as_ref()))
    };
    // Without requests of its own a container's cgroup settings may come from the pod's.
    let has_pod_requests = exact(spec.resources.as_ref()).says_something();
    let init = spec.init_containers.iter().map(|it| (it, true));
    let all = init.chain(spec.containers.iter().map(|it| (it, false)));
    let facts = all.map(|(container, is_init)| {
        let mut requests = exact(container.resources.as_ref());
        if !has_pod_requests {
            requests.memory = requests.memory.or(Some(Bytes::ZERO));
        }
        let extended = extended(container.resources.as_ref());
        let running = running(&container.name);
        let facts = ContainerFacts { requests, running, is_init, extended };
        (container.name.clone(), facts)
    });
    facts.collect()
}

/// Amounts of CPU and memory; what is no amount is not known.
fn exact(resources: Option<&ResourceRequirements>) -> ExactRequests {
    let amount = |name: &str, per_unit: u128| {
        let quantity: &Quantity = resources?.requests.get(name)?;
        parse_quantity(&quantity.string, per_unit)
    };
    ExactRequests { cpu: amount("cpu", 1000).map(MilliCpu), memory: amount("memory", 1).map(Bytes) }
}

fn extended(resources: Option<&ResourceRequirements>) -> BTreeMap<String, u64> {
    let requests = resources.into_iter().flat_map(|it| &it.requests);
    let named = requests.filter(|(name, _)| name.contains('/') && !name.starts_with(NATIVE_DOMAIN));
    let amounts =
        named.filter_map(|(name, amount)| Some((name.clone(), parse_quantity(&amount.string, 1)?)));
    amounts.take(EXTENDED_MAX).collect()
}
