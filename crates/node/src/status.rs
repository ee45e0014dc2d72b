//! Which container has which CPUs, as a value for people and programs.

use bayplan_types::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::decision::{Decision, End, LEFT_ALONE};
use crate::facts_form::FactsForm;
use crate::mode::Mode;
use crate::narrowing::render_moved;
use crate::proposals::ProposalView;

/// The node at one moment; format `bayplan-status/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Names the format.
    pub format: String,
    /// The daemon's version; empty for one that did not tell it yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Whether containers are placed.
    #[serde(default)]
    pub mode: Mode,
    /// When an operator chose it; absent when that never happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_since: Option<Timestamp>,
    /// CPUs by class.
    pub cpus: ClassedCpus,
    /// Every pool.
    pub pools: Vec<PoolStatus>,
    /// Every container, by pod and name.
    pub containers: Vec<ContainerStatus>,
    /// The front end, where it is not the CRI proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_end: Option<FrontEndStatus>,
    /// Every group, by type and number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
    /// Every clock domain, where there is a strategy for containers that use wide vectors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<ClockStatus>,
    /// The configuration that this is under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigStatus>,
}

/// CPUs that share power and heat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStatus {
    /// All of them.
    pub cpus: String,
    /// Containers with CPUs there that are taken to use wide vectors; one with CPUs of several domains counts in each.
    pub containers: usize,
}

/// A front end that registers with the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontEndStatus {
    /// `nri`.
    pub kind: String,
    /// The runtime has registered it; otherwise containers are created without it.
    pub is_registered: bool,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Name and version of the runtime that has registered it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// That runtime's version of NRI; absent before NRI 0.12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nri_version: Option<String>,
    /// How long that runtime waits for an answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_timeout_ms: Option<u64>,
    /// Other plugins of that runtime, as of the last creation that it had approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_plugins: Vec<PluginStatus>,
    /// The last creation that the runtime took back after it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_back: Option<TakenBack>,
}

/// Another plugin of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginStatus {
    /// Its index and its name.
    pub name: String,
    /// Files of CPU sets that it has set for some container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
}

/// A creation that came to nothing after the front end had answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// Namespace, pod and container.
    pub container: String,
    /// What may be the cause.
    pub why: String,
    /// When.
    pub at: Timestamp,
    /// How many there were since the daemon started.
    pub times: u64,
}

/// The configuration that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// The file that it is from; absent if everything has its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// When that was read.
    pub read_at: Timestamp,
    /// Why the file as it is now is not what holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Keys that the file has other values for than the daemon was started with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart_for: Vec<String>,
    /// Where the daemon keeps its journal and history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    /// The cluster's configuration, which counts instead of the file but for the node's own keys; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterConfigStatus>,
}

/// The configuration that the cluster has for this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterConfigStatus {
    /// Kind and name of the object that holds, for example `BayplanConfig/default`; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// That object's `metadata.generation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// When it was applied, or found at the daemon's start.
    pub since: Timestamp,
    /// What the Node says of amplified CPUs; absent if it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amplification: Option<AmplificationStatus>,
    /// Why the last one that came is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What the Node says of `requests.amplificationPercent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmplificationStatus {
    /// CPU time that a CPU counts as, in percent.
    pub percent: usize,
    /// Whether it holds: the configuration does not say it itself.
    pub holds: bool,
}

/// CPU lists by class; together they are the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassedCpus {
    /// Owned by one container each.
    pub exclusive: String,
    /// Run shared parts.
    pub shared: String,
    /// For system pods.
    pub reserved: String,
    /// Kept out by the kernel.
    pub isolated: String,
    /// Of these, left idle for containers that own others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub idle: String,
    /// Of these, shared, and closed to other owners.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub closed: String,
    /// Of these, owned by a container that lends them to BestEffort containers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lent: String,
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// All its CPUs.
    pub cpus: String,
    /// Those that run shared parts now.
    pub shared_cpus: String,
    /// CPU time requested by shared parts in it.
    pub shared_requests_milli: u64,
}

/// One group of containers with a common CPU set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its type and number, for example `web[0]`.
    pub name: String,
    /// What its members have in common beside the type.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// All of its CPUs.
    pub cpus: String,
    /// Those that its members share.
    pub shared_cpus: String,
    /// CPU time that its members request.
    pub requests_milli: u64,
    /// How many there are.
    pub members: usize,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// The runtime's id; absent while it is being created.
    pub id: Option<String>,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub pod: String,
    /// Container name.
    pub container: String,
    /// QoS class; absent where the cgroup parent does not tell.
    pub qos: Option<String>,
    /// The cgroup around its pod's containers as kubelet named it: a path, or a slice of systemd.
    #[serde(default)]
    pub cgroup_parent: String,
    /// `exclusive`, `shared` or `reserved`; mixed ones are `exclusive`.
    pub class: String,
    /// `creating`, `unconfirmed`, `created` or `running`.
    pub phase: String,
    /// `under way` while the runtime carries out a resize, `in doubt` while it is not known whether it has; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resize: String,
    /// What was asked.
    pub asked: String,
    /// CPUs of its own.
    pub exclusive: String,
    /// Every CPU it may run on; empty where `cpus_left_alone`.
    pub cpus: String,
    /// Exclusive CPUs that containers of its pod have together, this one among them; `exclusive` of one of them has them. Empty for any other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exclusive_of_pod: String,
    /// Memory nodes; empty where `mems_left_alone`.
    pub mems: String,
    /// Its CPUs are not bayplan's to say.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cpus_left_alone: bool,
    /// Its memory nodes are not bayplan's to say.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mems_left_alone: bool,
    /// Its pool; `reserved` for one on the reserved CPUs.
    pub pool: String,
    /// Its group; empty where it is in none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// What it has, where that is not what was asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldSets>,
    /// Other containers that run on CPUs of its own: the name of each, and where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intruders: Vec<String>,
    /// Fewer memory nodes with which it could do now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub narrowing: Option<NarrowingStatus>,
    /// It counts as one that uses wide vectors; false where there is no strategy for these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_wide_vectors: bool,
}

/// What a container has instead of what was asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSets {
    /// The CPUs that it runs on.
    pub cpus: String,
    /// Its memory nodes; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mems: String,
    /// Why these are not the ones that were asked for.
    pub why: String,
    /// It may have chosen that itself.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_expected: bool,
}

/// Fewer memory nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NarrowingStatus {
    /// Those that would do.
    pub to: String,
    /// The most memory that the kernel would have to move; absent when nothing limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_bytes: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl ContainerStatus {
    /// Exclusive CPUs in words; empty where it has none.
    pub fn exclusive_text(&self) -> String {
        match self.exclusive_of_pod.as_str() {
            "" => self.exclusive.clone(),
            cpus => format!("{cpus} of its pod"),
        }
    }

    /// The CPUs that it runs on, for people.
    pub fn cpus_text(&self) -> &str {
        match &self.held {
            _ if self.cpus_left_alone => LEFT_ALONE,
            Some(held) => &held.cpus,
            None => &self.cpus,
        }
    }

    /// Its memory nodes for people; empty on a machine without.
    pub fn mems_text(&self) -> &str {
        match &self.held {
            _ if self.mems_left_alone => LEFT_ALONE,
            Some(held) if !held.mems.is_empty() => &held.mems,
            _ => &self.mems,
        }
    }

    /// What it has instead of what was asked for it, and which other containers are on its CPUs, a sentence each.
    pub fn holds_texts(&self) -> Vec<String> {
        let held = self.held.as_ref().map(|held| {
            let (asked, has) = match self.cpus == held.cpus {
                true => (format!("memory nodes {}", self.mems), format!("nodes {}", held.mems)),
                false => (format!("CPUs {}", self.cpus), held.cpus.clone()),
            };
            format!("asked {asked}, runs on {has}: {}", held.why)
        });
        let intruders = self.intruders.iter().map(|it| format!("not alone on its CPUs: {it}"));
        held.into_iter().chain(intruders).collect()
    }

    /// It has not what was asked for it, and has not chosen that itself, or is not alone on its CPUs.
    pub fn is_off(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_expected) || !self.intruders.is_empty()
    }

    /// As [`ContainerStatus::holds_texts`], with its name.
    pub fn full_holds_texts(&self) -> Vec<String> {
        let texts = self.holds_texts().into_iter();
        texts.map(|text| format!("{}: {text}", self.full_name())).collect()
    }

    /// With which memory nodes it could do, for people.
    pub fn narrowing_text(&self) -> Option<String> {
        let narrowing = self.narrowing.as_ref()?;
        let moved = render_moved(narrowing.moves_bytes.map(Bytes));
        Some(format!("could be narrowed from nodes {} to {}, {moved}", self.mems, narrowing.to))
    }

    /// `namespace/pod/container`.
    pub fn full_name(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.pod, self.container)
    }
}

/// A value in a kernel file that is there for a container's sake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldFile {
    /// The file, with its line where it has several.
    pub slot: String,
    /// What it is to say.
    pub value: String,
    /// Why.
    pub reason: String,
    /// Why it does not say so; absent where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// What is known of a container beside what CRI carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownView {
    /// Where its requests are known from, for people.
    pub requests_from: String,
    /// What kubelet knows of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<FactsForm>,
    /// When annotations were changed last that count while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
    /// What was changed then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub changes: String,
}

/// Why a container is where it is; format `bayplan-explain/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// `namespace/pod/container`.
    pub container: String,
    /// Where it is now; absent for one that is gone or was refused.
    pub now: Option<ContainerStatus>,
    /// The decision.
    pub decision: Decision,
    /// Where its requests are known from, and what kubelet knows of it; absent where nothing but cgroup settings tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Box<KnownView>>,
    /// How far its CPUs are kept from all others, and why no further; absent for one that shares, and where kernel files are left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// What its threads do that its neighbours feel, such as the use of wide vectors; absent where nothing of that is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<String>,
    /// Values in kernel files that are there for its sake, such as the limit of CPU time that is lifted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<HeldFile>,
    /// What the rebalancer has told of it since the daemon was started, for its sake and on it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rebalance: Vec<ProposalView>,
    /// The way in which the daemon that answers is asked for places now: `cri` or `nri`; absent for a container that is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_end: Option<String>,
    /// How it ended; absent for one that is there or was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}
