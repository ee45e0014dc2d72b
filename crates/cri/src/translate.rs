//! CRI messages to values. In: what kubelet sends about a pod and a container. Out: a pod and a container as the node knows them. Pure.
//!
//! CRI carries no pod specification; what kubelet made of it is read as it is, and its meaning is found by `bayplan-workload`.

use bayplan_workload::annotations::{kept_labels, relevant};
use bayplan_workload::cmk;
use bayplan_workload::devices::{device_names, mounted_devices, volume_sources};
use bayplan_workload::{NewContainer, Pod, Resources, huge_pages, odd_page_sizes, parse_qos};

use crate::v1;

/// A sandbox configuration as a pod; `id` is the runtime's sandbox id.
pub fn pod(id: &str, config: &v1::PodSandboxConfig) -> Pod {
    let metadata = config.metadata.clone().unwrap_or_default();
    let linux = config.linux.as_ref();
    let cgroup_parent = linux.map(|linux| linux.cgroup_parent.clone()).unwrap_or_default();
    let summed = linux.and_then(|linux| linux.resources.as_ref());
    Pod {
        id: id.to_owned(),
        uid: metadata.uid,
        namespace: metadata.namespace,
        name: metadata.name,
        qos: parse_qos(&cgroup_parent),
        cgroup_parent,
        annotations: relevant(&config.annotations),
        labels: kept_labels(&config.labels),
        resources: summed.map(resources).unwrap_or_default(),
        huge_pages: summed.map(|it| huge_pages(limits(it))).unwrap_or_default(),
    }
}

/// Limits of huge pages by the name of their size.
fn limits(linux: &v1::LinuxContainerResources) -> impl Iterator<Item = (&str, u64)> {
    linux.hugepage_limits.iter().map(|it| (it.page_size.as_str(), it.limit))
}

/// A create call as a container. Everything that is missing in the message is empty.
pub fn new_container(request: &v1::CreateContainerRequest) -> NewContainer {
    let (no_sandbox, no_config) = Default::default();
    let sandbox = request.sandbox_config.as_ref().unwrap_or(&no_sandbox);
    let config = request.config.as_ref().unwrap_or(&no_config);
    let paths = config.devices.iter().map(|device| device.host_path.as_str());
    let variables = config
        .envs
        .iter()
        .filter_map(|it| Some((it.key.as_str(), str::from_utf8(&it.value).ok()?)));
    let sources = config.mounts.iter().map(|mount| mount.host_path.as_str());
    let sources_of_volumes = volume_sources(
        config.mounts.iter().map(|mount| (mount.host_path.as_str(), mount.readonly)),
        paths.clone(),
    );
    let cdi = config.cdi_devices.iter().map(|device| device.name.as_str());
    let (devices, mounts) = (device_names(paths, cdi, variables), mounted_devices(sources));
    let metadata = config.metadata.clone().unwrap_or_default();
    let linux = config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    let limits: Vec<_> = linux.into_iter().flat_map(limits).collect();
    NewContainer {
        pod: pod(&request.pod_sandbox_id, sandbox),
        name: metadata.name,
        attempt: metadata.attempt,
        image: image(config.image.as_ref()),
        resources: linux.map(resources).unwrap_or_default(),
        huge_pages: huge_pages(limits.iter().copied()),
        odd_page_sizes: odd_page_sizes(&limits),
        devices,
        mounts,
        volumes: sources_of_volumes.into_iter().map(|path| (path, Vec::new())).collect(),
        lacks_partition: false,
        is_silent: false,
        says_memory: false,
        facts: None,
        assigned: Vec::new(),
        cmk: cmk_words(config).map(|said| said.asked),
        due_id: None,
        keeps_chosen: false,
    }
}

/// What a container asks for in CMK's words. A command that is the image's own is not known here.
pub fn cmk_words(config: &v1::ContainerConfig) -> Option<cmk::Said> {
    let variables = config
        .envs
        .iter()
        .filter_map(|it| Some((it.key.as_str(), str::from_utf8(&it.value).ok()?)));
    let command = match config.command.is_empty() {
        true => Vec::new(),
        false => config.command.iter().chain(&config.args).cloned().collect(),
    };
    cmk::read(&command, variables)
}

/// What names an image; empty where nothing does.
pub fn image(spec: Option<&v1::ImageSpec>) -> String {
    spec.map(|spec| spec.image.clone()).unwrap_or_default()
}

/// The cgroup settings of a message.
pub fn resources(linux: &v1::LinuxContainerResources) -> Resources {
    Resources {
        cpu_shares: linux.cpu_shares,
        cpu_quota: linux.cpu_quota,
        cpu_period: linux.cpu_period,
        memory_limit: linux.memory_limit_in_bytes,
        oom_score_adj: linux.oom_score_adj,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bayplan_allocator::{ContainerId, Preserve};
    use bayplan_types::Bytes;
    use bayplan_workload::{Hardware, RequestRules, derive_request};

    #[test]
    fn huge_pages_are_read_by_size() {
        for (limits, expected) in [
            (&[][..], &[][..]),
            (&[("2MB", 4 << 30), ("1GB", 0)], &[(2 << 20, 4 << 30)]),
            (&[("1GB", 2 << 30), ("64KB", 1)], &[(64 << 10, 1), (1 << 30, 2 << 30)]),
            (&[("0MB", 1), ("MB", 1), ("2 MB", 1), ("-2MB", 1), ("2Mi", 1), ("", 1)], &[]),
            (&[("18446744073709551615GB", 1), ("2MB", u64::MAX)], &[(2 << 20, u64::MAX)]),
        ] {
            let limit = |(size, limit): &(&str, u64)| v1::HugepageLimit {
                page_size: (*size).to_owned(),
                limit: *limit,
            };
            let linux = v1::LinuxContainerResources {
                hugepage_limits: limits.iter().map(limit).collect(),
                ..Default::default()
            };
            let config = v1::ContainerConfig {
                linux: Some(v1::LinuxContainerConfig {
                    resources: Some(linux),
                    ..Default::default()
                }),
                ..Default::default()
            };
            let message = v1::CreateContainerRequest { config: Some(config), ..Default::default() };
            let container = new_container(&message);
            let rules = RequestRules::default();
            let (request, warnings) =
                derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
            let odd = warnings.iter().filter(|it| it.text.starts_with("huge pages of `"));
            let asked = limits.iter().filter(|(_, limit)| *limit > 0);
            assert_eq!(odd.count(), asked.count() - expected.len(), "{limits:?}");
            let expected = expected.iter().map(|(size, bytes)| (Bytes(*size), Bytes(*bytes)));
            assert_eq!(request.huge_pages, expected.collect(), "{limits:?}");
        }
    }

    #[test]
    fn claimed_cpus_leave_a_container_as_it_is() {
        let device = |name: &str| v1::CdiDevice { name: name.to_owned() };
        for (name, is_left_alone) in [("dra.k8s.io/cpu=claim-1", true), ("nvidia.com/gpu=0", false)]
        {
            let config =
                v1::ContainerConfig { cdi_devices: vec![device(name)], ..Default::default() };
            let message = v1::CreateContainerRequest { config: Some(config), ..Default::default() };
            let container = new_container(&message);
            let rules = RequestRules::default();
            let (request, _) =
                derive_request(ContainerId(1), &container, &rules, Hardware::default(), []);
            let preserve = Preserve { cpus: is_left_alone, memory: is_left_alone };
            assert_eq!(request.wishes.preserve, preserve, "{name}");
        }
    }

    #[test]
    fn an_image_is_what_the_runtime_is_told_to_run() {
        let request = |image: &str| v1::CreateContainerRequest {
            config: Some(v1::ContainerConfig {
                image: Some(v1::ImageSpec {
                    image: image.to_owned(),
                    user_specified_image: "docker.io/library/web:latest".to_owned(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        assert_eq!(new_container(&request("sha256:5d0e")).image, "sha256:5d0e");
        assert_eq!(new_container(&v1::CreateContainerRequest::default()).image, "");
    }
}
