//! Pods and containers as CRI messages. In: the runtime's records. Out: lists, states, and containerd's `info` JSON. Pure.

use std::collections::BTreeMap;

use bayplan_workload::runtime;
use serde_json::{Value, json};

use super::held::{Container, Pod};
use super::snapshot::{ContainerSnapshot, NAME};
use crate::v1::{self, ContainerState, PodSandboxState};

/// 64 hexadecimal digits for a number: four rounds of the SplitMix64 mixer, so that short prefixes differ too.
pub(super) fn hex_id(number: u64) -> String {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (1..=4u64)
        .map(|round| {
            let mut z = number.wrapping_mul(4).wrapping_add(round).wrapping_mul(GOLDEN);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            format!("{:016x}", z ^ (z >> 31))
        })
        .collect()
}

pub(super) fn snapshot(container: &Container) -> ContainerSnapshot {
    let metadata = container.config.metadata.clone().unwrap_or_default();
    let resources = &container.resources;
    ContainerSnapshot {
        id: container.id.clone(),
        pod_id: container.pod_id.clone(),
        name: metadata.name,
        attempt: metadata.attempt,
        state: match container.state {
            ContainerState::ContainerCreated => runtime::ContainerState::Created,
            ContainerState::ContainerRunning => runtime::ContainerState::Running,
            ContainerState::ContainerExited => runtime::ContainerState::Exited,
            ContainerState::ContainerUnknown => runtime::ContainerState::Unknown,
        },
        cpus: resources.cpuset_cpus.clone(),
        mems: resources.cpuset_mems.clone(),
        cpu_shares: resources.cpu_shares,
        cpu_quota: resources.cpu_quota,
        cpu_period: resources.cpu_period,
        memory_limit: resources.memory_limit_in_bytes,
        command: container.config.command.iter().chain(&container.config.args).cloned().collect(),
        variables: container
            .config
            .envs
            .iter()
            .map(|it| (it.key.clone(), String::from_utf8_lossy(&it.value).into_owned()))
            .collect(),
        mounts: container
            .config
            .mounts
            .iter()
            .map(|mount| (mount.container_path.clone(), mount.host_path.clone()))
            .collect(),
    }
}

fn pod_state(pod: &Pod) -> PodSandboxState {
    if pod.is_ready { PodSandboxState::SandboxReady } else { PodSandboxState::SandboxNotready }
}

pub(super) fn listed_pod(pod: &Pod) -> v1::PodSandbox {
    v1::PodSandbox {
        id: pod.id.clone(),
        metadata: pod.config.metadata.clone(),
        state: pod_state(pod).into(),
        created_at: pod.created_at,
        labels: pod.config.labels.clone(),
        annotations: pod.config.annotations.clone(),
        runtime_handler: pod.runtime_handler.clone(),
    }
}

pub(super) fn pod_status(pod: &Pod) -> v1::PodSandboxStatus {
    let security = pod.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = security.and_then(|security| security.namespace_options.clone());
    v1::PodSandboxStatus {
        id: pod.id.clone(),
        metadata: pod.config.metadata.clone(),
        state: pod_state(pod).into(),
        created_at: pod.created_at,
        network: Some(v1::PodSandboxNetworkStatus::default()),
        linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(v1::Namespace { options }) }),
        labels: pod.config.labels.clone(),
        annotations: pod.config.annotations.clone(),
        runtime_handler: pod.runtime_handler.clone(),
    }
}

pub(super) fn listed_container(container: &Container) -> v1::Container {
    let image = image(container);
    v1::Container {
        id: container.id.clone(),
        pod_sandbox_id: container.pod_id.clone(),
        metadata: container.config.metadata.clone(),
        image_ref: image.image.clone(),
        image_id: image.image.clone(),
        image: Some(image),
        state: container.state.into(),
        created_at: container.created_at,
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
    }
}

pub(super) fn container_status(container: &Container) -> v1::ContainerStatus {
    let image = image(container);
    let reason = match container.state {
        ContainerState::ContainerExited if container.exit_code == 0 => "Completed",
        ContainerState::ContainerExited => "Error",
        _ => "",
    };
    let resources =
        v1::ContainerResources { linux: Some(container.resources.clone()), ..Default::default() };
    v1::ContainerStatus {
        id: container.id.clone(),
        metadata: container.config.metadata.clone(),
        state: container.state.into(),
        created_at: container.created_at,
        started_at: container.started_at,
        finished_at: container.finished_at,
        exit_code: container.exit_code,
        image_ref: image.image.clone(),
        image_id: image.image.clone(),
        image: Some(image),
        reason: reason.to_owned(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        mounts: container.config.mounts.clone(),
        log_path: container.config.log_path.clone(),
        resources: Some(resources),
        stop_signal: container.config.stop_signal,
        ..Default::default()
    }
}

fn image(container: &Container) -> v1::ImageSpec {
    container.config.image.clone().unwrap_or_default()
}

/// Usage is zero because nothing runs.
pub(super) fn container_stats(container: &Container, now: i64) -> v1::ContainerStats {
    let zero = || Some(v1::UInt64Value { value: 0 });
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: container.id.clone(),
            metadata: container.config.metadata.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
        }),
        cpu: Some(v1::CpuUsage {
            timestamp: now,
            usage_core_nano_seconds: zero(),
            ..Default::default()
        }),
        memory: Some(v1::MemoryUsage {
            timestamp: now,
            working_set_bytes: zero(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The `info` of a verbose `ContainerStatus`, of the fields that mean something without a process.
pub(super) fn container_info(container: &Container) -> BTreeMap<String, String> {
    let resources = &container.resources;
    let metadata = container.config.metadata.clone().unwrap_or_default();
    let cpu = object([
        ("shares", number(resources.cpu_shares)),
        ("quota", number(resources.cpu_quota)),
        ("period", number(resources.cpu_period)),
        ("cpus", text(&resources.cpuset_cpus)),
        ("mems", text(&resources.cpuset_mems)),
    ]);
    let memory = object([
        ("limit", number(resources.memory_limit_in_bytes)),
        ("swap", number(resources.memory_swap_limit_in_bytes)),
    ]);
    let resources = object([
        ("cpu", Some(cpu)),
        ("memory", Some(memory)),
        ("unified", Some(json!(resources.unified)).filter(|_| !resources.unified.is_empty())),
    ]);
    let linux = object([
        ("cgroupsPath", text(&cgroups_path(&container.cgroup_parent, &container.id))),
        ("resources", Some(resources)),
    ]);
    info(&json!({
        "sandboxID": container.pod_id,
        "pid": 0,
        "removing": false,
        "runtimeType": NAME,
        "config": {
            "metadata": { "name": metadata.name, "attempt": metadata.attempt },
            "image": { "image": image(container).image },
            "labels": container.config.labels,
            "annotations": container.config.annotations,
        },
        "runtimeSpec": { "ociVersion": "1.2.1", "linux": linux },
    }))
}

/// The `info` of a verbose `PodSandboxStatus`.
pub(super) fn pod_info(pod: &Pod) -> BTreeMap<String, String> {
    let metadata = pod.config.metadata.clone().unwrap_or_default();
    let linux = pod.config.linux.clone().unwrap_or_default();
    info(&json!({
        "pid": 0,
        "processStatus": if pod.is_ready { "running" } else { "deleted" },
        "runtimeHandler": pod.runtime_handler,
        "runtimeType": NAME,
        "config": {
            "metadata": {
                "name": metadata.name,
                "uid": metadata.uid,
                "namespace": metadata.namespace,
                "attempt": metadata.attempt,
            },
            "labels": pod.config.labels,
            "annotations": pod.config.annotations,
            "linux": object([("cgroup_parent", text(&linux.cgroup_parent))]),
        },
    }))
}

fn info(value: &Value) -> BTreeMap<String, String> {
    BTreeMap::from([("info".to_owned(), value.to_string())])
}

/// As containerd makes it, for a slice of systemd or for a path.
fn cgroups_path(parent: &str, id: &str) -> String {
    let base = parent.rsplit('/').next().unwrap_or_default();
    if parent.is_empty() {
        String::new()
    } else if base.ends_with(".slice") {
        format!("{base}:cri-containerd:{id}")
    } else {
        format!("{}/{id}", parent.trim_end_matches('/'))
    }
}

/// Go leaves out what is empty.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<serde_json::Map<String, Value>>()
        .into()
}

fn number(value: i64) -> Option<Value> {
    (value != 0).then(|| value.into())
}

fn text(value: &str) -> Option<Value> {
    (!value.is_empty()).then(|| value.into())
}
