//! Pod files as kubelet brings them to the runtime. In: YAML of pods, or of workloads with a pod template. Out: sandboxes and containers as CRI
//! messages, with the cgroup settings that kubelet derives. Pure.
//!
//! Kubelet's rules: a request that is missing is its limit (API defaults); the QoS class follows from the resources of all containers, or of the pod
//! where it has its own (KEP-2837); a container without a limit gets its pod's; the sandbox has what the pod needs as a whole, which is the sum of
//! its containers, or the most of its init containers where that is more.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};
use bayplan_cri::kubelet::{CgroupDriver, ContainerSpec, PodSpec};
use bayplan_cri::translate::new_container;
use bayplan_cri::v1;
use bayplan_types::{Bytes, MilliCpu, QosClass};
use bayplan_workload::annotations::parse_quantity;
use bayplan_workload::{ContainerFacts, Facts, NewContainer};
use serde::Deserialize;
use serde_json::Value;

/// Pods of one workload that are placed at most.
const REPLICAS_MAX: u32 = 1000;

/// A container in the order in which kubelet creates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// As the daemon understands it.
    pub(crate) container: NewContainer,
    /// An init container, which ends before the next one comes.
    pub(crate) ends: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
}

/// Of a pod; of a workload, `replicas` and `template`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    replicas: Option<u32>,
    template: Option<Box<Object>>,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    volumes: Vec<Volume>,
    resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    resources: Resources,
    restart_policy: String,
    command: Vec<String>,
    args: Vec<String>,
    env: Vec<Variable>,
    volume_mounts: Vec<VolumeMount>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, Value>,
    limits: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeMount {
    name: String,
    read_only: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    name: String,
    host_path: Option<HostPath>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct HostPath {
    path: String,
}

/// Resources as numbers, with API defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Amounts {
    cpu: (Option<MilliCpu>, Option<MilliCpu>),
    /// Request and limit.
    memory: (Option<Bytes>, Option<Bytes>),
    /// Limits by size of a page, as CRI names it.
    huge: BTreeMap<String, Bytes>,
    /// Amounts of extended resources by name, which kubelet tells beside CRI.
    extended: BTreeMap<String, u64>,
}

/// The containers of every pod of a file, in order.
///
/// # Errors
/// What of the file is no pod, with the name of the object and the field.
pub(crate) fn parse_pods(path: &Path, text: &str) -> anyhow::Result<Vec<Arrival>> {
    let of_file = || path.display().to_string();
    let objects: Vec<Object> = serde_yaml::from_multiple(text).map_err(|error| {
        let at = error.location().map(|at| format!(":{}:{}", at.line(), at.column()));
        let at = at.unwrap_or_default();
        anyhow!("{}{at}: {}", of_file(), error.without_snippet())
    })?;
    let mut arrivals = Vec::new();
    for object in objects {
        let named = format!("{} {}", object.kind, object.metadata.name);
        arrivals.extend(arrivals_of(object).with_context(|| format!("{}: {named}", of_file()))?);
    }
    ensure!(!arrivals.is_empty(), "{}: no pod, expected `kind: Pod` or a workload", of_file());
    Ok(arrivals)
}

fn arrivals_of(object: Object) -> anyhow::Result<Vec<Arrival>> {
    let Object { kind, metadata, spec } = object;
    let Some(template) = spec.template else {
        ensure!(
            kind == "Pod",
            "is no pod, expected `kind: Pod`, or a Deployment, StatefulSet, DaemonSet, ReplicaSet or Job with a pod template"
        );
        return pod(&metadata, &spec);
    };
    let count = spec.replicas.unwrap_or(1);
    ensure!(count <= REPLICAS_MAX, "replicas: {count}, expected {REPLICAS_MAX} at most");
    let mut arrivals = Vec::new();
    for number in 0..count {
        let name = format!("{}-{number}", metadata.name);
        let namespace = metadata.namespace.clone();
        let of_pod = Metadata { name, namespace, ..template.metadata.clone() };
        arrivals.extend(pod(&of_pod, &template.spec)?);
    }
    Ok(arrivals)
}

fn pod(metadata: &Metadata, spec: &Spec) -> anyhow::Result<Vec<Arrival>> {
    ensure!(!metadata.name.is_empty(), "metadata.name is missing");
    ensure!(!spec.containers.is_empty(), "spec.containers is empty, expected one at least");
    let read = |container: &Container| {
        amounts(&container.resources).with_context(|| format!("container {}", container.name))
    };
    let init: Vec<Amounts> = spec.init_containers.iter().map(read).collect::<Result<_, _>>()?;
    let main: Vec<Amounts> = spec.containers.iter().map(read).collect::<Result<_, _>>()?;
    let own = amounts(&spec.resources).context("spec.resources")?;
    let own = (own != Amounts::default()).then_some(own);
    let all: Vec<&Amounts> = init.iter().chain(&main).collect();
    let qos = own.as_ref().map_or_else(|| qos_of(&all), |own| qos_of(&[own]));
    let sandbox = sandbox(metadata, qos, &whole(spec, &init, &main, own.as_ref()));
    let listed = spec.init_containers.iter().zip(&init).map(|it| (it, true));
    let listed = listed.chain(spec.containers.iter().zip(&main).map(|it| (it, false)));
    let arrivals = listed.map(|((container, amounts), is_init)| {
        let filled = filled(amounts, own.as_ref());
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: format!("{}/{}", namespace_of(metadata), metadata.name),
            config: Some(config(container, &filled, qos, &spec.volumes)),
            sandbox_config: Some(sandbox.clone()),
        };
        let ends = is_init && container.restart_policy != "Always";
        let facts = facts(&filled.extended);
        Arrival { container: NewContainer { facts, ..new_container(&request) }, ends }
    });
    Ok(arrivals.collect())
}

/// What kubelet tells of a container beside CRI, as far as placement needs it.
fn facts(extended: &BTreeMap<String, u64>) -> Option<Box<Facts>> {
    let own = ContainerFacts { extended: extended.clone(), ..ContainerFacts::default() };
    (!extended.is_empty()).then(|| Box::new(Facts { own, ..Facts::default() }))
}

fn namespace_of(metadata: &Metadata) -> &str {
    if metadata.namespace.is_empty() { "default" } else { &metadata.namespace }
}

fn amounts(resources: &Resources) -> anyhow::Result<Amounts> {
    let Resources { requests, limits } = resources;
    let read = |name: &str, from: &BTreeMap<String, Value>, per_unit| {
        let Some(value) = from.get(name) else { return Ok(None) };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match parse_quantity(&text, per_unit) {
            Some(amount) => Ok(Some(amount)),
            None => bail!("{name} is `{text}`, expected a quantity such as 500m, 4 or 8Gi"),
        }
    };
    let both = |name: &str, per_unit| -> anyhow::Result<(Option<u64>, Option<u64>)> {
        let (request, limit) = (read(name, requests, per_unit)?, read(name, limits, per_unit)?);
        if let (Some(request), Some(limit)) = (request, limit) {
            ensure!(request <= limit, "the request of {name} is more than its limit");
        }
        Ok((request.or(limit), limit))
    };
    let (cpu, memory) = (both("cpu", 1000)?, both("memory", 1)?);
    let mut huge = BTreeMap::new();
    for name in limits.keys().chain(requests.keys()) {
        let Some(size) = name.strip_prefix("hugepages-") else { continue };
        let bytes = both(name, 1)?.0.unwrap_or(0);
        // CRI has 2MB where the API has 2Mi (kubelet's `HugePageUnitSizeFromByteSize`).
        huge.insert(size.replace('i', "B"), Bytes(bytes));
    }
    let mut extended = BTreeMap::new();
    for name in limits.keys().chain(requests.keys()).filter(|name| name.contains('/')) {
        extended.insert(name.clone(), both(name, 1)?.0.unwrap_or(0));
    }
    Ok(Amounts {
        cpu: (cpu.0.map(MilliCpu), cpu.1.map(MilliCpu)),
        memory: (memory.0.map(Bytes), memory.1.map(Bytes)),
        huge,
        extended,
    })
}

/// Kubernetes' `GetPodQOS`.
fn qos_of(all: &[&Amounts]) -> QosClass {
    let is_none = |it: &&Amounts| {
        let (cpu, memory) = (it.cpu.0.unwrap_or_default(), it.memory.0.unwrap_or(Bytes::ZERO));
        cpu == MilliCpu::ZERO && memory == Bytes::ZERO
    };
    let is_full = |it: &&Amounts| {
        let has_limits = it.cpu.1.is_some() && it.memory.1.is_some();
        has_limits && it.cpu.0 == it.cpu.1 && it.memory.0 == it.memory.1
    };
    if all.iter().all(is_none) {
        return QosClass::BestEffort;
    }
    if all.iter().all(is_full) { QosClass::Guaranteed } else { QosClass::Burstable }
}

/// What a container has from its pod where it says nothing itself.
fn filled(own: &Amounts, pod: Option<&Amounts>) -> Amounts {
    let Some(pod) = pod else { return own.clone() };
    let (cpu, memory) = (own.cpu.1.or(pod.cpu.1), own.memory.1.or(pod.memory.1));
    Amounts {
        cpu: (own.cpu.0.or(cpu), cpu),
        memory: (own.memory.0.or(memory), memory),
        huge: if own.huge.is_empty() { pod.huge.clone() } else { own.huge.clone() },
        extended: own.extended.clone(),
    }
}

/// Kubelet's `calculateSandboxResources`. A sidecar counts beside all that come after it.
fn whole(spec: &Spec, init: &[Amounts], main: &[Amounts], pod: Option<&Amounts>) -> Amounts {
    if let Some(pod) = pod {
        return pod.clone();
    }
    let mut beside = Amounts::none();
    let mut most = Amounts::none();
    for (container, amounts) in spec.init_containers.iter().zip(init) {
        match container.restart_policy.as_str() {
            "Always" => beside = beside.and(amounts),
            _ => most = most.most(&beside.and(amounts)),
        }
    }
    let running = main.iter().fold(beside, |sum, it| sum.and(it));
    running.most(&most)
}

impl Amounts {
    /// Of no container.
    fn none() -> Amounts {
        let cpu = (Some(MilliCpu::ZERO), Some(MilliCpu::ZERO));
        Amounts { cpu, memory: (Some(Bytes::ZERO), Some(Bytes::ZERO)), ..Amounts::default() }
    }

    /// Together; without a limit where one has none.
    fn and(&self, other: &Amounts) -> Amounts {
        let milli = |one: Option<MilliCpu>, other: Option<MilliCpu>| Some(one? + other?);
        let bytes = |one: Option<Bytes>, other: Option<Bytes>| Some(one? + other?);
        let or_none = |cpu: Option<MilliCpu>| cpu.or(Some(MilliCpu::ZERO));
        let mut huge = self.huge.clone();
        for (size, amount) in &other.huge {
            *huge.entry(size.clone()).or_default() += *amount;
        }
        Amounts {
            cpu: (milli(or_none(self.cpu.0), or_none(other.cpu.0)), milli(self.cpu.1, other.cpu.1)),
            memory: (
                bytes(self.memory.0, other.memory.0.or(Some(Bytes::ZERO))),
                bytes(self.memory.1, other.memory.1),
            ),
            huge,
            extended: BTreeMap::new(),
        }
    }

    fn most(self, other: &Amounts) -> Amounts {
        fn larger<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            Some(one?.max(other?))
        }
        let mut huge = self.huge;
        for (size, amount) in &other.huge {
            let there = huge.entry(size.clone()).or_default();
            *there = (*there).max(*amount);
        }
        Amounts {
            cpu: (larger(self.cpu.0, other.cpu.0), larger(self.cpu.1, other.cpu.1)),
            memory: (larger(self.memory.0, other.memory.0), larger(self.memory.1, other.memory.1)),
            huge,
            extended: BTreeMap::new(),
        }
    }

    fn cgroup_settings(&self) -> v1::LinuxContainerResources {
        let spec = ContainerSpec {
            cpu_limit: self.cpu.1.filter(|limit| *limit > MilliCpu::ZERO),
            memory_limit: self.memory.1.filter(|limit| *limit > Bytes::ZERO),
            ..ContainerSpec::burstable("", self.cpu.0.unwrap_or_default().0)
        };
        let limits = self.huge.iter();
        let limits = limits
            .map(|(size, limit)| v1::HugepageLimit { page_size: size.clone(), limit: limit.0 });
        v1::LinuxContainerResources { hugepage_limits: limits.collect(), ..spec.resources() }
    }
}

fn sandbox(metadata: &Metadata, qos: QosClass, whole: &Amounts) -> v1::PodSandboxConfig {
    let namespace = namespace_of(metadata).to_owned();
    let named = PodSpec { namespace, ..PodSpec::new(&metadata.name, qos) };
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: metadata.name.clone(),
            uid: format!("{}/{}", named.namespace, metadata.name),
            namespace: named.namespace.clone(),
            attempt: 0,
        }),
        annotations: metadata.annotations.clone().into_iter().collect(),
        labels: metadata.labels.clone().into_iter().collect(),
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: named.cgroup_parent(CgroupDriver::Cgroupfs),
            resources: Some(whole.cgroup_settings()),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn config(
    container: &Container,
    amounts: &Amounts,
    qos: QosClass,
    volumes: &[Volume],
) -> v1::ContainerConfig {
    let path_of = |name: &str| {
        let volume = volumes.iter().find(|volume| volume.name == name)?;
        volume.host_path.as_ref().map(|host| host.path.clone())
    };
    let mounts = container.volume_mounts.iter().filter_map(|mount| {
        let (host_path, readonly) = (path_of(&mount.name)?, mount.read_only);
        Some(v1::Mount { host_path, readonly, ..Default::default() })
    });
    let envs = container.env.iter().map(|variable| v1::KeyValue {
        key: variable.name.clone(),
        value: variable.value.clone().into(),
    });
    let oom_score_adj = match qos {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        // It says how much memory is requested, which is not known without the machine's.
        QosClass::Burstable => 999,
    };
    let resources = v1::LinuxContainerResources { oom_score_adj, ..amounts.cgroup_settings() };
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt: 0 }),
        mounts: mounts.collect(),
        command: container.command.clone(),
        args: container.args.clone(),
        envs: envs.collect(),
        linux: Some(v1::LinuxContainerConfig { resources: Some(resources), ..Default::default() }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
