//! A create call of kubelet, made of values that it might write, and followed by bytes that it would not.

use bayplan_cri::v1;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use prost::Message as _;

/// The parents that say something, and one that may be anything.
#[derive(Clone, Debug, Arbitrary)]
enum Parent {
    Guaranteed,
    Burstable,
    BestEffort,
    Systemd,
    Other(String),
}

/// Numbers at which units and types end, among others.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Number {
    Small(u16),
    Any(i64),
    Largest,
    Smallest,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
struct Resources {
    shares: Number,
    quota: Number,
    period: Number,
    memory: Number,
}

/// One container that is to be created.
#[derive(Clone, Debug, Arbitrary)]
pub struct Call {
    pod: u8,
    namespace: u8,
    name: u8,
    attempt: u32,
    parent: Parent,
    pod_resources: Option<Resources>,
    resources: Option<Resources>,
    huge_pages: Vec<(String, u64)>,
    annotations: Vec<(String, String)>,
    labels: Vec<(String, String)>,
    devices: Vec<String>,
    variables: Vec<(String, Vec<u8>)>,
    mounts: Vec<String>,
    /// More fields, or garbage.
    rest: Vec<u8>,
}

impl Parent {
    fn text(&self) -> String {
        let text = match self {
            Parent::Guaranteed => "/kubepods/pod1",
            Parent::Burstable => "/kubepods/burstable/pod1",
            Parent::BestEffort => "/kubepods/besteffort/pod1",
            Parent::Systemd => {
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"
            }
            Parent::Other(text) => text,
        };
        text.to_owned()
    }
}

impl Number {
    fn value(self) -> i64 {
        match self {
            Number::Small(number) => number.into(),
            Number::Any(number) => number,
            Number::Largest => i64::MAX,
            Number::Smallest => i64::MIN,
        }
    }
}

impl From<Resources> for v1::LinuxContainerResources {
    fn from(resources: Resources) -> v1::LinuxContainerResources {
        v1::LinuxContainerResources {
            cpu_shares: resources.shares.value(),
            cpu_quota: resources.quota.value(),
            cpu_period: resources.period.value(),
            memory_limit_in_bytes: resources.memory.value(),
            ..Default::default()
        }
    }
}

impl Call {
    /// The bytes of a `CreateContainerRequest`, or of nothing.
    pub fn encode(&self) -> Vec<u8> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: format!("pod-{}", self.pod % 4),
            config: Some(self.container()),
            sandbox_config: Some(self.sandbox()),
        };
        let mut bytes = request.encode_to_vec();
        bytes.extend_from_slice(&self.rest);
        bytes
    }

    fn container(&self) -> v1::ContainerConfig {
        let mut resources: v1::LinuxContainerResources =
            self.resources.map(Into::into).unwrap_or_default();
        resources.hugepage_limits = self
            .huge_pages
            .iter()
            .map(|(page_size, limit)| v1::HugepageLimit {
                page_size: page_size.clone(),
                limit: *limit,
            })
            .collect();
        let device = |path: &String| v1::Device { host_path: path.clone(), ..Default::default() };
        let variable = |(key, value): &(String, Vec<u8>)| v1::KeyValue {
            key: key.clone(),
            value: value.clone(),
        };
        let mount = |path: &String| v1::Mount { host_path: path.clone(), ..Default::default() };
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: format!("c{}", self.name % 4),
                attempt: self.attempt,
            }),
            devices: self.devices.iter().map(device).collect(),
            envs: self.variables.iter().map(variable).collect(),
            mounts: self.mounts.iter().map(mount).collect(),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(resources),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn sandbox(&self) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("pod-{}", self.pod % 4),
                namespace: ["default", "kube-system", "batch"][usize::from(self.namespace % 3)]
                    .to_owned(),
                ..Default::default()
            }),
            annotations: self.annotations.iter().cloned().collect(),
            labels: self.labels.iter().cloned().collect(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.parent.text(),
                resources: self.pod_resources.map(Into::into),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}
