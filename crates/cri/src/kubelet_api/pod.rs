//! A pod's bytes to what Bayplan reads of it. In: `v1.Pod` as protobuf, or in JSON as the API server tells it. Out: [`PodFacts`]. Pure.

use std::collections::BTreeMap;

use bayplan_types::{Bytes, MilliCpu};
use bayplan_workload::annotations::{parse_quantity, relevant};
use bayplan_workload::{ContainerFacts, ExactRequests, PodAbout, PodFacts, ResizeState};
use prost::Message as _;
use serde::Deserialize;

use crate::generated::core::{
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
    let pod = Pod::decode(bytes);
    facts(pod.map_err(|error| format!("the bytes of a pod are none: {error}"))?)
}

/// Pods of a list (`{"pods": [...]}`); those without a uid are left out.
///
/// # Errors
/// The text is no such list, in words.
pub fn parse_pods_json(text: &[u8]) -> Result<(Vec<PodFacts>, Option<Vec<String>>), String> {
    #[derive(Deserialize)]
    struct List {
        pods: Vec<Pod>,
        names: Option<Vec<String>>,
    }
    let list: List = serde_json::from_slice(text)
        .map_err(|error| format!("expected {{\"pods\": [...]}} with pods in JSON: {error}"))?;
    let pods = list.pods.into_iter().filter_map(|pod| facts(pod).ok()).collect();
    Ok((pods, list.names))
}

fn facts(pod: Pod) -> Result<PodFacts, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_in_json_are_read_as_those_in_protobuf() {
        let text = br#"{"pods": [
            {"metadata": {"name": "web", "namespace": "shop", "uid": "u", "annotations": {"bayplan.dev/cpu-class": "fast", "x": "y"}, "managedFields": [],
              "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": true}]},
             "spec": {"priority": 7, "containers": [{"name": "app", "image": "i", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "power.intel.com/performance": "2"}}}],
              "initContainers": [{"name": "early"}]},
             "status": {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
              "containerStatuses": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]}},
            {"metadata": {"name": "nameless"}}]}"#;
        let (pods, names) = parse_pods_json(text).unwrap();
        assert_eq!(names, None);
        let [pod] = pods.as_slice() else { panic!("{pods:?}") };
        assert_eq!(
            (pod.uid.as_str(), pod.namespace.as_str(), pod.name.as_str()),
            ("u", "shop", "web")
        );
        assert_eq!(pod.about.owner.as_deref(), Some("ReplicaSet/web-1"));
        assert_eq!((pod.about.priority, pod.about.resize), (Some(7), Some(ResizeState::Deferred)));
        assert_eq!(pod.annotations.len(), 1, "{:?}", pod.annotations);
        let app = &pod.containers["app"];
        assert_eq!(
            (app.requests.cpu, app.running.cpu),
            (Some(MilliCpu(1500)), Some(MilliCpu(1000)))
        );
        assert_eq!(app.requests.memory, Some(Bytes(1 << 30)));
        assert_eq!(app.extended["power.intel.com/performance"], 2);
        assert!(pod.containers["early"].is_init);
        for text in ["", "[]", "{}", r#"{"pods": 3}"#, r#"{"pods": [{"metadata": 3}]}"#] {
            let told = parse_pods_json(text.as_bytes()).unwrap_err();
            assert!(told.contains("expected {\"pods\""), "{told}");
        }
    }
}
