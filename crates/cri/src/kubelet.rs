//! A client that speaks to a CRI socket as kubelet does, for the demo and for tests. In: pods and containers as in a pod spec.
//! Out: CRI calls with the cgroup settings that kubelet would derive.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use bayplan_types::{Bytes, MilliCpu, QosClass};
use tonic::Status;

use crate::upstream::Upstream;
use crate::v1;
use crate::v1::runtime_service_client::RuntimeServiceClient;

/// What makes cgroups, and so how they are named (kubelet's `cgroupDriver`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// The runtime, as directories.
    Cgroupfs,
    /// systemd, as slices (systemd.slice(5)).
    Systemd,
}

/// A pod as its author writes it.
#[derive(Clone, Debug)]
pub struct PodSpec {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Kubernetes name; the UID is made from both.
    pub name: String,
    /// Decides the parent cgroup.
    pub qos: QosClass,
    /// Annotations.
    pub annotations: Vec<(String, String)>,
    /// What its containers request and may use together; `None`: the sandbox is made without that, as by a kubelet before 1.23.
    pub whole: Option<ContainerSpec>,
}

impl PodSpec {
    /// A pod in the namespace `default` without annotations.
    pub fn new(name: &str, qos: QosClass) -> PodSpec {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        PodSpec { namespace, name, qos, annotations: Vec::new(), whole: None }
    }

    fn uid(&self) -> String {
        format!("{}-{}", self.namespace, self.name)
    }

    /// The parent cgroup as kubelet names it.
    pub fn cgroup_parent(&self, driver: CgroupDriver) -> String {
        let class = match self.qos {
            QosClass::Guaranteed => "",
            QosClass::Burstable => "burstable",
            QosClass::BestEffort => "besteffort",
        };
        let pod = format!("pod{}", self.uid());
        let mut names = vec!["kubepods", class, &pod];
        names.retain(|name| !name.is_empty());
        match driver {
            CgroupDriver::Cgroupfs => format!("/{}", names.join("/")),
            CgroupDriver::Systemd => {
                // A dash would be one more slice around it.
                let names: Vec<String> = names.iter().map(|name| name.replace('-', "_")).collect();
                let slices = (1..=names.len())
                    .map(|n| format!("/{}.slice", names.get(..n).unwrap_or_default().join("-")));
                slices.collect()
            }
        }
    }
}

/// A container as its author writes it.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    /// Name in the pod.
    pub name: String,
    /// CPU request.
    pub cpu_request: MilliCpu,
    /// CPU limit.
    pub cpu_limit: Option<MilliCpu>,
    /// Memory limit.
    pub memory_limit: Option<Bytes>,
    /// What it runs; empty: what all containers of the client run.
    pub command: Vec<String>,
    /// Its environment.
    pub variables: Vec<(String, String)>,
    /// Directories of the host that it sees at the same place and cannot write to.
    pub host_dirs: Vec<String>,
    /// The same, and it can write to them.
    pub volumes: Vec<String>,
}

impl ContainerSpec {
    /// Request and limit are equal, as a Guaranteed pod has them.
    pub fn guaranteed(name: &str, cpu: u64, memory: Bytes) -> ContainerSpec {
        let (cpu_limit, memory_limit) = (Some(MilliCpu(cpu)), Some(memory));
        ContainerSpec { cpu_limit, memory_limit, ..ContainerSpec::burstable(name, cpu) }
    }

    /// A request without a limit.
    pub fn burstable(name: &str, cpu: u64) -> ContainerSpec {
        ContainerSpec {
            name: name.to_owned(),
            cpu_request: MilliCpu(cpu),
            cpu_limit: None,
            memory_limit: None,
            command: Vec::new(),
            variables: Vec::new(),
            host_dirs: Vec::new(),
            volumes: Vec::new(),
        }
    }

    /// Shares and quota as kubelet computes them (`MilliCPUToShares`, `MilliCPUToQuota` in kubelet's cgroup manager).
    pub fn resources(&self) -> v1::LinuxContainerResources {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let shares = (self.cpu_request.0.saturating_mul(1024) / 1000).clamp(2, 262_144);
        v1::LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: self
                .cpu_limit
                .map_or(0, |limit| signed(limit.0.saturating_mul(100)).max(1000)),
            cpu_shares: signed(shares),
            memory_limit_in_bytes: self.memory_limit.map_or(0, |limit| signed(limit.0)),
            ..Default::default()
        }
    }
}

/// A sandbox that runs.
#[derive(Clone, Debug)]
pub struct RunningPod {
    /// The runtime's sandbox id.
    pub id: String,
    config: v1::PodSandboxConfig,
}

/// The client.
#[derive(Clone, Debug)]
pub struct Kubelet {
    client: RuntimeServiceClient<Upstream>,
    image: String,
    command: Vec<String>,
    log_dir: String,
    driver: CgroupDriver,
}

impl Kubelet {
    /// A client of the CRI socket. Containers get `image` and `command`; logs go below `log_dir`, nowhere if it is empty.
    pub fn new(socket: PathBuf, image: &str, command: &[&str], log_dir: &str) -> Kubelet {
        let upstream = Upstream::new(socket, Duration::from_secs(120));
        Kubelet {
            client: upstream.runtime_client(),
            image: image.to_owned(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            log_dir: log_dir.to_owned(),
            driver: CgroupDriver::Cgroupfs,
        }
    }

    /// The same with cgroups by another driver; the runtime must use it, too.
    pub fn with_driver(self, driver: CgroupDriver) -> Kubelet {
        Kubelet { driver, ..self }
    }

    /// `Version`, which runtimes answer without looking anything up.
    ///
    /// # Errors
    /// The runtime's status, as for every call of this client.
    pub async fn version(&mut self) -> Result<(), Status> {
        self.client.version(v1::VersionRequest::default()).await.map(|_| ())
    }

    /// `ListContainers`; gives their number.
    pub async fn list(&mut self) -> Result<usize, Status> {
        let request = v1::ListContainersRequest::default();
        Ok(self.client.list_containers(request).await?.into_inner().containers.len())
    }

    /// `RunPodSandbox`, on the host's network so that no CNI is needed.
    pub async fn run_pod(&mut self, pod: &PodSpec) -> Result<RunningPod, Status> {
        let network =
            v1::NamespaceOption { network: v1::NamespaceMode::Node.into(), ..Default::default() };
        let security = v1::LinuxSandboxSecurityContext {
            namespace_options: Some(network),
            ..Default::default()
        };
        let log_directory = match self.log_dir.as_str() {
            "" => String::new(),
            dir => format!("{dir}/{}", pod.uid()),
        };
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: pod.name.clone(),
                uid: pod.uid(),
                namespace: pod.namespace.clone(),
                attempt: 0,
            }),
            log_directory,
            annotations: pod
                .annotations
                .iter()
                .cloned()
                .collect::<HashMap<_, _>>()
                .into_iter()
                .collect(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: pod.cgroup_parent(self.driver),
                resources: pod.whole.as_ref().map(ContainerSpec::resources),
                security_context: Some(security),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request =
            v1::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let answer = self.client.run_pod_sandbox(request).await?;
        Ok(RunningPod { id: answer.into_inner().pod_sandbox_id, config })
    }

    /// `CreateContainer`; gives the runtime's id.
    pub async fn create(
        &mut self,
        pod: &RunningPod,
        container: &ContainerSpec,
        attempt: u32,
    ) -> Result<String, Status> {
        let command = match container.command.is_empty() {
            true => &self.command,
            false => &container.command,
        };
        let mount = |(dir, readonly): (&String, bool)| v1::Mount {
            container_path: dir.clone(),
            host_path: dir.clone(),
            readonly,
            ..Default::default()
        };
        let variable = |(key, value): &(String, String)| v1::KeyValue {
            key: key.clone(),
            value: value.clone().into(),
        };
        let seen = container.host_dirs.iter().map(|dir| (dir, true));
        let mounted = seen.chain(container.volumes.iter().map(|dir| (dir, false)));
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: container.name.clone(), attempt }),
            image: Some(v1::ImageSpec { image: self.image.clone(), ..Default::default() }),
            command: command.clone(),
            envs: container.variables.iter().map(variable).collect(),
            mounts: mounted.map(mount).collect(),
            log_path: if self.log_dir.is_empty() {
                String::new()
            } else {
                format!("{}-{attempt}.log", container.name)
            },
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(container.resources()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.id.clone(),
            config: Some(config),
            sandbox_config: Some(pod.config.clone()),
        };
        Ok(self.client.create_container(request).await?.into_inner().container_id)
    }

    /// `StartContainer`.
    pub async fn start(&mut self, id: &str) -> Result<(), Status> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        self.client.start_container(request).await.map(|_| ())
    }

    /// Pod, container, start: a pod with one container. Gives the pod and the container's id.
    pub async fn launch(
        &mut self,
        pod: &PodSpec,
        container: &ContainerSpec,
    ) -> Result<(RunningPod, String), Status> {
        let pod = self.run_pod(pod).await?;
        let id = self.create(&pod, container, 0).await?;
        self.start(&id).await?;
        Ok((pod, id))
    }

    /// `UpdateContainerResources`, as for an in-place resize.
    pub async fn resize(&mut self, id: &str, container: &ContainerSpec) -> Result<(), Status> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(container.resources()),
            ..Default::default()
        };
        self.client.update_container_resources(request).await.map(|_| ())
    }

    /// `UpdatePodSandboxResources`, as for an in-place resize: what the containers of the pod need together from now on.
    ///
    /// # Errors
    /// The runtime's status, as for every call of this client.
    pub async fn resize_pod(
        &mut self,
        pod: &RunningPod,
        whole: &ContainerSpec,
    ) -> Result<(), Status> {
        let request = v1::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: pod.id.clone(),
            resources: Some(whole.resources()),
            ..Default::default()
        };
        self.client.update_pod_sandbox_resources(request).await.map(|_| ())
    }

    /// `StopContainer`, with no time to say goodbye.
    pub async fn stop(&mut self, id: &str) -> Result<(), Status> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: 0 };
        self.client.stop_container(request).await.map(|_| ())
    }

    /// `RemoveContainer`.
    pub async fn remove(&mut self, id: &str) -> Result<(), Status> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        self.client.remove_container(request).await.map(|_| ())
    }

    /// `ListPodSandbox`; gives their ids.
    pub async fn pods(&mut self) -> Result<Vec<String>, Status> {
        let request = v1::ListPodSandboxRequest::default();
        let listed = self.client.list_pod_sandbox(request).await?.into_inner().items;
        Ok(listed.into_iter().map(|pod| pod.id).collect())
    }

    /// `StopPodSandbox` and `RemovePodSandbox`.
    pub async fn end_pod(&mut self, pod: &RunningPod) -> Result<(), Status> {
        self.end_sandbox(&pod.id).await
    }

    /// The same for a pod of which only the sandbox's id is known.
    pub async fn end_sandbox(&mut self, id: &str) -> Result<(), Status> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.client.stop_pod_sandbox(request).await?;
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.client.remove_pod_sandbox(request).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_cgroup_has_the_name_that_kubelet_gives_it() {
        use CgroupDriver::{Cgroupfs, Systemd};
        for (qos, driver, due) in [
            (QosClass::Guaranteed, Cgroupfs, "/kubepods/poddefault-a"),
            (QosClass::BestEffort, Cgroupfs, "/kubepods/besteffort/poddefault-a"),
            (QosClass::Guaranteed, Systemd, "/kubepods.slice/kubepods-poddefault_a.slice"),
            (
                QosClass::Burstable,
                Systemd,
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poddefault_a.slice",
            ),
        ] {
            assert_eq!(PodSpec::new("a", qos).cgroup_parent(driver), due);
        }
    }
}
