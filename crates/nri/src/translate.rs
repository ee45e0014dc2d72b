//! NRI messages to values, and values to changes. In: what a runtime tells of a pod and a container. Out: a pod and a container as the node knows them; adjustments and updates for a
//! CPU set. Pure.
//!
//! Empty texts in a change mean "as it is" (`pkg/runtime-tools/generate` of NRI), so an empty set changes nothing.

use bayplan_workload::annotations::{kept_labels, relevant};
use bayplan_workload::cmk;
use bayplan_workload::devices::{device_names, mounted_devices, volume_sources};
use bayplan_workload::{
    IoClass, Mount, NewContainer, Pinning, Pod, Resources, ThreadPolicy, ThreadScheduling,
    huge_pages, odd_page_sizes, parse_qos,
};

use crate::api;

/// Where kubelet tells how often a container was restarted; CRI has that in its metadata, NRI does not.
const RESTARTS: &str = "io.kubernetes.container.restartCount";
/// Where containerd tells the image; in a field of its own only since NRI 0.12.2.
const IMAGE: &str = "io.kubernetes.cri.image-name";

/// A sandbox as a pod.
pub fn pod(sandbox: &api::PodSandbox) -> Pod {
    let linux = sandbox.linux.as_ref();
    let cgroup_parent = linux.map(|it| it.cgroup_parent.clone()).unwrap_or_default();
    let summed = linux.and_then(|it| it.pod_resources.as_ref());
    Pod {
        id: sandbox.id.clone(),
        uid: sandbox.uid.clone(),
        namespace: sandbox.namespace.clone(),
        name: sandbox.name.clone(),
        qos: parse_qos(&cgroup_parent),
        cgroup_parent,
        annotations: relevant(&sandbox.annotations),
        labels: kept_labels(&sandbox.labels),
        resources: summed.map(resources).unwrap_or_default(),
        huge_pages: summed.map(|it| huge_pages(limits(it))).unwrap_or_default(),
    }
}

/// Whether a component of the path is one of these ids.
fn is_below(path: &str, ids: [&str; 2]) -> bool {
    path.split('/').any(|it| !it.is_empty() && ids.contains(&it))
}

/// A container that is to be created; without an attempt where kubelet's annotation is absent.
pub fn container(sandbox: &api::PodSandbox, container: &api::Container) -> NewContainer {
    let linux = container.linux.clone().unwrap_or_default();
    let variables = container.env.iter().filter_map(|it| it.split_once('='));
    // Mounts of the runtime's own have other types than `bind`.
    let binds: Vec<(&str, bool)> = container
        .mounts
        .iter()
        .filter(|it| {
            it.r#type == "bind" || it.options.iter().any(|it| it == "rbind" || it == "bind")
        })
        .map(|it| (it.source.as_str(), it.options.iter().any(|it| it == "ro")))
        .collect();
    let paths = linux.devices.iter().map(|it| it.path.as_str());
    let cdi = container.cdi_devices.iter().map(|it| it.name.as_str());
    // Host name, resolver and shared memory, which the runtime adds, are in directories with its ids, and on no disk of their own.
    let ids = [sandbox.id.as_str(), container.id.as_str()];
    let of_pod = binds.iter().filter(|(source, _)| !is_below(source, ids));
    let volumes = volume_sources(of_pod.copied(), paths.clone());
    let asked = linux.resources.as_ref();
    let limits: Vec<_> = asked.into_iter().flat_map(limits).collect();
    let oom_score_adj = linux.oom_score_adj.as_ref().map_or(0, |it| it.value);
    NewContainer {
        pod: pod(sandbox),
        name: container.name.clone(),
        attempt: attempt(container).unwrap_or_default(),
        image: image(container),
        resources: Resources { oom_score_adj, ..asked.map(resources).unwrap_or_default() },
        huge_pages: huge_pages(limits.iter().copied()),
        odd_page_sizes: odd_page_sizes(&limits),
        devices: device_names(paths, cdi, variables),
        mounts: mounted_devices(binds.iter().map(|(source, _)| *source)),
        volumes: volumes.into_iter().map(|path| (path, Vec::new())).collect(),
        lacks_partition: false,
        is_silent: false,
        says_memory: false,
        facts: None,
        assigned: Vec::new(),
        cmk: cmk_words(container).map(|said| said.asked),
        due_id: Some(container.id.clone()).filter(|it| !it.is_empty()),
        keeps_chosen: false,
    }
}

/// What a container asks for in CMK's words.
pub fn cmk_words(container: &api::Container) -> Option<cmk::Said> {
    let variables = container.env.iter().filter_map(|it| it.split_once('='));
    cmk::read(&container.args, variables)
}

/// How often it was restarted, if the runtime passes kubelet's word on.
pub fn attempt(container: &api::Container) -> Option<u32> {
    container.annotations.get(RESTARTS)?.parse().ok()
}

fn image(container: &api::Container) -> String {
    let named = container.image.as_ref().map(|it| it.name.clone()).filter(|it| !it.is_empty());
    named.or_else(|| container.annotations.get(IMAGE).cloned()).unwrap_or_default()
}

/// Limits of huge pages by the name of their size.
fn limits(linux: &api::LinuxResources) -> impl Iterator<Item = (&str, u64)> {
    linux.hugepage_limits.iter().map(|it| (it.page_size.as_str(), it.limit))
}

/// The cgroup settings of a message; what is not said is 0. The score is not among them.
pub fn resources(linux: &api::LinuxResources) -> Resources {
    let cpu = linux.cpu.clone().unwrap_or_default();
    let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
    Resources {
        cpu_shares: cpu.shares.map_or(0, |it| signed(it.value)),
        cpu_quota: cpu.quota.map_or(0, |it| it.value),
        cpu_period: cpu.period.map_or(0, |it| signed(it.value)),
        memory_limit: linux.memory.as_ref().and_then(|it| it.limit).map_or(0, |it| it.value),
        oom_score_adj: 0,
    }
}

/// Where a message says that a container is to run; `None`: it says nothing, or what is no set.
pub fn pinning(linux: &api::LinuxResources) -> Option<Pinning> {
    let cpu = linux.cpu.as_ref()?;
    Some(Pinning { cpus: cpu.cpus.parse().ok()?, mems: cpu.mems.parse().ok()? })
}

/// CPUs that a plugin with a lower index, or kubelet, has set for a container that is being created; empty: none.
pub fn cpus_before(container: &api::Container) -> String {
    let linux = container.linux.as_ref().and_then(|it| it.resources.as_ref());
    linux.and_then(|it| it.cpu.as_ref()).map(|it| it.cpus.clone()).unwrap_or_default()
}

fn pinned(pinning: &Pinning) -> Option<api::LinuxResources> {
    let cpu = api::LinuxCpu {
        cpus: pinning.cpus.to_string(),
        mems: pinning.mems.to_string(),
        ..Default::default()
    };
    let is_any = !cpu.cpus.is_empty() || !cpu.mems.is_empty();
    is_any.then(|| api::LinuxResources { cpu: Some(cpu), ..Default::default() })
}

/// What pins a container that is being created, mounts these directories besides its own, and sets what its threads say of themselves.
pub fn adjustment(
    pinning: &Pinning,
    mounts: &[Mount],
    threads: ThreadScheduling,
) -> Option<api::ContainerAdjustment> {
    let linux = api::LinuxContainerAdjustment {
        resources: pinned(pinning),
        scheduler: threads.policy.map(scheduler),
        io_priority: threads.io.map(io_priority),
        ..Default::default()
    };
    let linux = (linux != api::LinuxContainerAdjustment::default()).then_some(linux);
    let mount = |it: &Mount| api::Mount {
        destination: it.container_path.clone(),
        r#type: "bind".to_owned(),
        source: it.host_path.clone(),
        options: ["rbind", "ro"].map(str::to_owned).to_vec(),
    };
    let mounts: Vec<api::Mount> = mounts.iter().map(mount).collect();
    let is_any = linux.is_some() || !mounts.is_empty();
    is_any.then(|| api::ContainerAdjustment { mounts, linux, ..Default::default() })
}

fn scheduler(policy: ThreadPolicy) -> api::LinuxScheduler {
    let (policy, nice, priority) = match policy {
        ThreadPolicy::Other(nice) => (api::LinuxSchedulerPolicy::SchedOther, nice, 0),
        ThreadPolicy::Batch(nice) => (api::LinuxSchedulerPolicy::SchedBatch, nice, 0),
        ThreadPolicy::Fifo(priority) => (api::LinuxSchedulerPolicy::SchedFifo, 0, priority),
        ThreadPolicy::RoundRobin(priority) => (api::LinuxSchedulerPolicy::SchedRr, 0, priority),
    };
    api::LinuxScheduler {
        policy: policy.into(),
        nice: nice.into(),
        priority: priority.into(),
        ..Default::default()
    }
}

fn io_priority((class, priority): (IoClass, u8)) -> api::LinuxIoPriority {
    let class = match class {
        IoClass::Realtime => api::IoPrioClass::IoprioClassRt,
        IoClass::BestEffort => api::IoPrioClass::IoprioClassBe,
        IoClass::Idle => api::IoPrioClass::IoprioClassIdle,
    };
    api::LinuxIoPriority { class: class.into(), priority: priority.into() }
}

/// What moves a container that exists.
pub fn update(id: &str, pinning: &Pinning) -> Option<api::ContainerUpdate> {
    let linux = api::LinuxContainerUpdate { resources: Some(pinned(pinning)?) };
    Some(api::ContainerUpdate {
        container_id: id.to_owned(),
        linux: Some(linux),
        ignore_failure: false,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bayplan_types::{Bytes, QosClass};
    use expect_test::{Expect, expect};

    use super::*;

    fn text(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn asked() -> api::LinuxResources {
        api::LinuxResources {
            cpu: Some(api::LinuxCpu {
                shares: Some(api::OptionalUInt64 { value: 2048 }),
                quota: Some(api::OptionalInt64 { value: 200_000 }),
                period: Some(api::OptionalUInt64 { value: 100_000 }),
                ..Default::default()
            }),
            memory: Some(api::LinuxMemory {
                limit: Some(api::OptionalInt64 { value: 1 << 30 }),
                ..Default::default()
            }),
            hugepage_limits: vec![api::HugepageLimit { page_size: "2MB".into(), limit: 4 << 20 }],
            ..Default::default()
        }
    }

    fn mount(kind: &str, source: &str, option: &str) -> api::Mount {
        api::Mount {
            destination: "/x".into(),
            r#type: kind.into(),
            source: source.into(),
            options: vec![option.into()],
        }
    }

    #[test]
    fn a_container_is_what_cri_would_have_told() {
        let linux = api::LinuxPodSandbox {
            cgroup_parent: "/kubepods/podu".into(),
            pod_resources: Some(asked()),
            ..Default::default()
        };
        let sandbox = api::PodSandbox {
            id: "s".into(),
            uid: "u".into(),
            namespace: "n".into(),
            name: "p".into(),
            annotations: text(&[("bayplan.dev/prefer-shared-cpus", "true"), ("else", "x")]),
            linux: Some(linux),
            ..Default::default()
        };
        let device = |path: &str| api::LinuxDevice { path: path.into(), ..Default::default() };
        let linux = api::LinuxContainer {
            resources: Some(asked()),
            oom_score_adj: Some(api::OptionalInt { value: -997 }),
            devices: vec![device("/dev/vfio/7")],
            ..Default::default()
        };
        let created = api::Container {
            id: "c1".into(),
            name: "c".into(),
            annotations: text(&[(RESTARTS, "3"), (IMAGE, "sha256:1")]),
            env: vec!["PCIDEVICE_X=0000:01:00.0".into(), "odd".into()],
            mounts: vec![
                mount("bind", "/dev/infiniband/uverbs0", "rw"),
                mount("bind", "/data", "ro"),
                mount("bind", "/disk", "rw"),
                mount("tmpfs", "/not", "rw"),
            ],
            cdi_devices: vec![api::CdiDevice { name: "dra.k8s.io/cpu=claim".into() }],
            linux: Some(linux),
            ..Default::default()
        };
        let found = container(&sandbox, &created);
        let resources = Resources {
            cpu_shares: 2048,
            cpu_quota: 200_000,
            cpu_period: 100_000,
            memory_limit: 1 << 30,
            oom_score_adj: 0,
        };
        assert_eq!(found.pod.qos, Some(QosClass::Guaranteed));
        assert_eq!(found.pod.resources, resources);
        assert_eq!(found.pod.annotations.len(), 1, "{:?}", found.pod.annotations);
        assert_eq!(found.resources, Resources { oom_score_adj: -997, ..resources });
        assert_eq!((found.attempt, found.image.as_str()), (3, "sha256:1"));
        assert_eq!(found.huge_pages, [(Bytes(2 << 20), Bytes(4 << 20))].into());
        assert_eq!(found.devices, ["dra.k8s.io/cpu=claim", "/dev/vfio/7", "0000:01:00.0"]);
        assert_eq!(found.mounts, ["/dev/infiniband/uverbs0"]);
        assert!(found.volumes.contains_key("/disk") && !found.volumes.contains_key("/data"));
    }

    #[test]
    fn what_the_runtime_mounts_itself_is_no_volume() {
        let check = |source: &str, is_volume: bool| {
            let sandbox = api::PodSandbox { id: "5a".into(), ..Default::default() };
            let mounts = vec![mount("bind", source, "rw")];
            let created = api::Container { id: "c1".into(), mounts, ..Default::default() };
            let found = container(&sandbox, &created).volumes;
            assert_eq!(found.contains_key(source), is_volume, "{source}");
        };
        // As containerd and CRI-O have them.
        check("/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/5a/hostname", false);
        check("/run/containerd/io.containerd.grpc.v1.cri/sandboxes/5a/shm", false);
        check("/run/containers/storage/overlay-containers/5a/userdata/resolv.conf", false);
        check("/run/containers/storage/overlay-containers/c1/userdata/run/secrets", false);
        check("/data/5a-1", true);
        check("//data", true);
        // Nothing is below an id that is not told.
        let mounts = vec![mount("bind", "/data/", "rw")];
        let created = api::Container { mounts, ..Default::default() };
        let found = container(&api::PodSandbox::default(), &created).volumes;
        assert!(found.contains_key("/data/"));
    }

    #[test]
    fn what_says_nothing_is_empty() {
        let found = container(&api::PodSandbox::default(), &api::Container::default());
        assert_eq!(found, NewContainer::default());
        assert_eq!(adjustment(&Pinning::default(), &[], ThreadScheduling::default()), None);
        assert_eq!(update("c", &Pinning::default()), None);
        assert_eq!(pinning(&api::LinuxResources::default()), None);
    }

    #[test]
    fn a_pinning_survives_the_way_there_and_back() {
        let there = Pinning { cpus: "2-3,7".parse().unwrap(), mems: "1".parse().unwrap() };
        let resources = update("c", &there).unwrap().linux.unwrap().resources.unwrap();
        assert_eq!(pinning(&resources), Some(there.clone()));
        let mounts = [Mount { container_path: "/.bayplan".into(), host_path: "/run/x".into() }];
        let made = adjustment(&there, &mounts, ThreadScheduling::default()).unwrap();
        assert_eq!(made.linux.unwrap().resources, Some(resources));
        assert_eq!(made.mounts[0].options, ["rbind", "ro"]);
    }

    #[test]
    fn threads_say_what_the_class_says() {
        let check = |threads, expected: Expect| {
            let linux = adjustment(&Pinning::default(), &[], threads).unwrap().linux.unwrap();
            let scheduler = linux.scheduler.map(|it| {
                let policy = it.policy();
                format!("{} nice {}, priority {}", policy.as_str_name(), it.nice, it.priority)
            });
            let io = linux
                .io_priority
                .map(|it| format!("{} priority {}", it.class().as_str_name(), it.priority));
            let told: Vec<String> = scheduler.into_iter().chain(io).collect();
            expected.assert_eq(&told.join("; "));
        };
        let policy = |policy| ThreadScheduling { policy: Some(policy), io: None };
        check(policy(ThreadPolicy::Other(-5)), expect!["SCHED_OTHER nice -5, priority 0"]);
        check(policy(ThreadPolicy::Batch(19)), expect!["SCHED_BATCH nice 19, priority 0"]);
        check(policy(ThreadPolicy::RoundRobin(1)), expect!["SCHED_RR nice 0, priority 1"]);
        let io = Some((IoClass::Realtime, 2));
        check(
            ThreadScheduling { io, ..policy(ThreadPolicy::Fifo(99)) },
            expect!["SCHED_FIFO nice 0, priority 99; IOPRIO_CLASS_RT priority 2"],
        );
        let io = Some((IoClass::BestEffort, 7));
        check(ThreadScheduling { policy: None, io }, expect!["IOPRIO_CLASS_BE priority 7"]);
    }
}
