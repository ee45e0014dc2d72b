//! Everything that can be configured, with its default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bayplan_allocator::policy::{Division, Policy, Reserved};
use bayplan_enforcement::power::profile_names;
use bayplan_enforcement::resctrl::ResctrlConfig;
use bayplan_enforcement::{
    BlockIoClass, MemoryQos, NO_RECLAIM_CLASS, NamedScheduling, ReclaimClass,
};
use bayplan_node::groups::{GroupType, Load};
use bayplan_node::settings::{CompactionConfig, OnNoCapacity};
use bayplan_types::{Bytes, CpuSet, MilliCpu};
use bayplan_workload::annotations::{ClassNames, CpuPartition, InterruptRule, Rule};
use bayplan_workload::{Ceilings, RequestRules, WideVectors};
use jiff::SignedDuration;

use crate::best_effort::BestEffortConfig;
use crate::cpu_classes::CpuClasses;
use crate::rebalance::RebalanceConfig;
use crate::requests::Requests;

/// Where `bayplan` looks when no file is named.
pub const CONFIG_PATH: &str = "/etc/bayplan/config.yaml";

/// What happens to a call that bayplan could not decide in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is forwarded unchanged and counted.
    Open,
    /// It is refused.
    Closed,
}

/// How Bayplan hears of pods and containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontEnd {
    /// Kubelet's calls pass through Bayplan.
    #[default]
    Cri,
    /// The runtime asks Bayplan, a plugin.
    Nri,
}

/// Whether kernel files are written, beside the CPU sets that go through the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnforcementMode {
    /// They are written.
    #[default]
    On,
    /// What would be written goes into the log.
    DryRun,
    /// Nothing is wanted of them, and what was changed is given back.
    Off,
}

/// Which counters the probes charge to containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CounterSet {
    /// Those of the processor.
    #[default]
    Auto,
    /// Those that every machine has.
    Software,
    /// None.
    Off,
}

/// Everything that can be configured, with its meaning and unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How Bayplan hears of pods and containers.
    pub front_end: FrontEnd,
    /// Where the runtime offers NRI.
    pub nri_socket: PathBuf,
    /// The place among the runtime's plugins.
    pub nri_index: usize,
    /// Kubelet tells of its pods here; `None`: it is not asked.
    pub kubelet_pods_socket: Option<PathBuf>,
    /// Kubelet tells of devices here; `None`: it is not asked.
    pub pod_resources_socket: Option<PathBuf>,
    /// Kubelet connects here.
    pub socket: PathBuf,
    /// The runtime listens here.
    pub runtime_socket: PathBuf,
    /// The image service listens here; `None`: where the runtime does.
    pub image_socket: Option<PathBuf>,
    /// `bayplan status` and `bayplan explain` connect here.
    pub control_socket: PathBuf,
    /// The group that may connect there beside root, by name or number.
    pub control_group: String,
    /// Holds the journal.
    pub state_dir: PathBuf,
    /// What the history may have on disk.
    pub history_max: Bytes,
    /// Prometheus scrapes here; `None` when it is off.
    pub metrics_address: Option<SocketAddr>,
    /// The live map is served beside the metrics.
    pub has_map: bool,
    /// CPUs for system pods.
    pub reserved_cpus: CpuSet,
    /// As many CPUs for system pods as hold this; goes before the list.
    pub reserved_amount: Option<MilliCpu>,
    /// CPUs that containers may use at all; empty: every one.
    pub available_cpus: CpuSet,
    /// How the machine is divided.
    pub policy: Policy,
    /// Pods of these namespaces run on the reserved CPUs; `*` and `?` stand for any text and any character.
    pub reserved_namespaces: Vec<String>,
    /// What pods may ask for where that is not as usual; later rules count more.
    pub permissions: Vec<Rule>,
    /// How many CPUs may be kept from others.
    pub ceilings: Ceilings,
    /// Types of groups of containers with a common CPU set.
    pub groups: Arc<[GroupType]>,
    /// Classes of scheduling.
    pub scheduling_classes: Vec<NamedScheduling>,
    /// Kinds of load of groups.
    pub group_loads: Vec<Load>,
    /// What holds for containers that say nothing themselves.
    pub requests: Requests,
    /// How long kubelet's call waits for bayplan's decision.
    pub decision_timeout: Duration,
    /// How long bayplan waits for one answer of the runtime.
    pub runtime_timeout: Duration,
    /// How often the runtime is asked what runs, to find what was missed.
    pub resync_interval: Duration,
    /// What happens to undecided calls.
    pub on_failure: OnFailure,
    /// What happens to a container that finds no room for its CPUs.
    pub on_no_capacity: OnNoCapacity,
    /// Calls that may wait for a decision; those beyond are refused at once.
    pub waiting_max: usize,
    /// How long a stop waits for calls that take long, such as `StopContainer`.
    pub drain_timeout: Duration,
    /// Moving running containers.
    pub compaction: CompactionConfig,
    /// Directories in containers in which `resources.sh` says which CPUs and memory nodes they have; none: they are not told.
    pub resources_directories: Vec<PathBuf>,
    /// Whether memory nodes are taken away from running containers that can do with fewer.
    pub narrows_memory: bool,
    /// Shares of request and limit that make up protected and slowed memory.
    pub memory_qos: MemoryQos,
    /// Classes of containers of which idle memory is reclaimed, by their names.
    pub reclaim_classes: BTreeMap<String, ReclaimClass>,
    /// Whether the kernel moves what is reclaimed to slower memory.
    pub demotes: bool,
    /// Whether the limit of CPU time is lifted for a container that owns all of its CPUs.
    pub lifts_quota: bool,
    /// Unused CPU time that may be caught up on, in percent of the limit.
    pub burst_percent: usize,
    /// Scheduling domains of their own for containers that own all of their CPUs.
    pub partition: CpuPartition,
    /// Interrupts on exclusive CPUs.
    pub interrupts: InterruptRule,
    /// Classes of block I/O by their names.
    pub block_io_classes: BTreeMap<String, BlockIoClass>,
    /// Classes of caches and memory bandwidth.
    pub resctrl: ResctrlConfig,
    /// Whether containers get monitor groups of resctrl.
    pub monitors_caches: bool,
    /// Classes of frequency and sleep, and which CPUs have them.
    pub cpu_classes: CpuClasses,
    /// Whether kernel files are written.
    pub enforcement: EnforcementMode,
    /// How often those that are written are looked at, beside changes that are heard of.
    pub sweep_interval: Duration,
    /// How often the counters of containers and of the node are read.
    pub observe_interval: Duration,
    /// Whether programs in the kernel count what happens to containers.
    pub has_probes: bool,
    /// Which of the counters of processors and kernel they charge.
    pub counters: CounterSet,
    /// What BestEffort containers get of CPUs that others need or own.
    pub best_effort: BestEffortConfig,
    /// Where containers go that use wide vectors.
    pub wide_vectors: WideVectors,
    /// When containers suffer from others.
    pub rebalance: RebalanceConfig,
    /// Directory under which `/sys` and `/proc` are read, and written.
    pub host_root: PathBuf,
    /// A filter as of `tracing-subscriber`, for example `info` or `bayplan_cri=debug,info`.
    pub log: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            front_end: FrontEnd::default(),
            nri_socket: "/var/run/nri/nri.sock".into(),
            nri_index: 90,
            kubelet_pods_socket: Some("/var/lib/kubelet/pods-api/pods-api.sock".into()),
            pod_resources_socket: Some("/var/lib/kubelet/pod-resources/kubelet.sock".into()),
            socket: "/run/bayplan/bayplan.sock".into(),
            runtime_socket: "/run/containerd/containerd.sock".into(),
            image_socket: None,
            control_socket: "/run/bayplan/control.sock".into(),
            control_group: "root".to_owned(),
            state_dir: "/var/lib/bayplan".into(),
            history_max: Bytes(16 << 20),
            metrics_address: Some(SocketAddr::from(([127, 0, 0, 1], 9478))),
            has_map: true,
            reserved_cpus: CpuSet::new(),
            reserved_amount: None,
            available_cpus: CpuSet::new(),
            policy: Policy::default(),
            reserved_namespaces: vec!["kube-system".to_owned()],
            permissions: Vec::new(),
            ceilings: Ceilings::default(),
            groups: Arc::default(),
            group_loads: Vec::new(),
            scheduling_classes: Vec::new(),
            requests: Requests::default(),
            decision_timeout: Duration::from_secs(5),
            runtime_timeout: Duration::from_secs(10),
            resync_interval: Duration::from_secs(30),
            on_failure: OnFailure::Open,
            on_no_capacity: OnNoCapacity::default(),
            waiting_max: 1024,
            // A pod has 30 s to end unless it says otherwise.
            drain_timeout: Duration::from_secs(40),
            compaction: CompactionConfig::default(),
            resources_directories: Vec::new(),
            narrows_memory: false,
            memory_qos: MemoryQos::default(),
            reclaim_classes: BTreeMap::new(),
            demotes: false,
            lifts_quota: true,
            burst_percent: 0,
            partition: CpuPartition::default(),
            interrupts: InterruptRule::default(),
            block_io_classes: BTreeMap::new(),
            resctrl: ResctrlConfig::default(),
            monitors_caches: false,
            cpu_classes: CpuClasses::default(),
            enforcement: EnforcementMode::default(),
            sweep_interval: Duration::from_secs(30),
            observe_interval: Duration::from_secs(10),
            has_probes: true,
            counters: CounterSet::default(),
            best_effort: BestEffortConfig::default(),
            wide_vectors: WideVectors::default(),
            rebalance: RebalanceConfig::default(),
            host_root: "/".into(),
            log: "info".to_owned(),
        }
    }
}

impl Config {
    /// What is derived of a container that says nothing itself.
    pub fn rules(&self) -> RequestRules {
        RequestRules {
            permissions: self.permissions.clone(),
            ceilings: self.ceilings,
            classes: self.class_names(),
            has_groups: !self.groups.is_empty(),
            wide_vectors: self.wide_vectors,
            ..self.requests.rules(&self.reserved_namespaces)
        }
    }

    /// How the machine is divided, and which CPUs of it are used.
    pub fn division(&self) -> Division {
        let list = || Reserved::List(self.reserved_cpus.clone());
        Division {
            policy: self.policy,
            reserved: self.reserved_amount.map_or_else(list, Reserved::Amount),
            available: self.available_cpus.clone(),
        }
    }

    /// Classes that pods can name.
    fn class_names(&self) -> ClassNames {
        const ROOTS: [&str; 4] = ["", "DEFAULT", "SYSTEM_DEFAULT", "system/default"];
        let resctrl = self.resctrl.classes().map(|(_, class)| class.name.as_str());
        let profiles = profile_names().flat_map(|name| [name.to_owned(), name.replace('-', "_")]);
        let reclaim = self.reclaim_classes.keys().cloned();
        let realtime = self.scheduling_classes.iter().filter(|it| it.class.is_realtime());
        ClassNames {
            cpu: self.cpu_classes.classes.keys().cloned().chain(profiles).collect(),
            resctrl: resctrl.chain(ROOTS).map(str::to_owned).collect(),
            block_io: self.block_io_classes.keys().cloned().collect(),
            scheduling: self.scheduling_classes.iter().map(|it| it.name.clone()).collect(),
            realtime: realtime.map(|it| it.name.clone()).collect(),
            reclaim: reclaim.chain([NO_RECLAIM_CLASS.to_owned()]).collect(),
        }
    }

    /// How long a creation in doubt keeps its place although the runtime does not list the container: until it is asked again.
    pub fn doubt_grace(&self) -> SignedDuration {
        SignedDuration::try_from(self.resync_interval).unwrap_or_default()
    }

    /// How long one update of a CPU set may take: three passes and some time for the rest fit into a decision.
    pub fn write_limit(&self) -> Duration {
        self.runtime_timeout.min(self.decision_timeout / 4)
    }
}
