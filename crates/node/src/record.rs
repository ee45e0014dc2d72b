//! What the journal holds, as JSON. In: changes of the state. Out: lines; and from lines the containers that were live at the end.
//!
//! Every record stands for itself, but for large annotations of pods (`record/lines.rs`), so a lost one costs only what it says. Formats are separate from the types that the daemon
//! computes with; `RECORD_VERSION` counts changes that an older daemon could not read.

mod lines;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not;

use bayplan_allocator::{
    Allocation, ContainerId, HugeCharge, Owner, Part, PoolId, Pools, Preserve, Terms,
};
use bayplan_topology::Level;
use bayplan_types::{Bytes, CpuSet, MilliCpu, NodeId, ParseSetError, QosClass};
use bayplan_workload::annotations::left_out;
use bayplan_workload::cmk::Isolate;
use bayplan_workload::{Facts, NewContainer, Pod, Resources};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cold_start::Cold;
use crate::decision::Decision;
use crate::facts_form::{AssignedForm, FactsForm};
use crate::groups::GroupForm;
use crate::mode::Mode;
use crate::place::Place;

pub use lines::{LineWriter, PodTexts};

/// Version of the records. Texts of pods ([`Record::PodTexts`]) are not counted: an older daemon drops those records with a warning, looks at what runs, and does not know the long
/// annotations of containers that were there (`docs/install.md`).
pub(crate) const RECORD_VERSION: u32 = 1;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// Opens each journal file: which machine it is about.
    Machine {
        /// Version of the records.
        version: u32,
        /// Shape of the machine.
        fingerprint: String,
        /// The writer did not know yet all that runs: an earlier journal was lost, and the runtime had not been asked.
        #[serde(default, skip_serializing_if = "Not::not")]
        is_partial: bool,
        /// Names the types of groups that held; `None`: there were none, or the writer did not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group_types: Option<String>,
    },
    /// An operator has chosen another mode.
    Mode {
        /// The one from then on.
        mode: Mode,
        /// When.
        at: Timestamp,
    },
    /// An operator has paused the rebalancer, or let it go on.
    RebalancePaused {
        /// From then on.
        is_paused: bool,
    },
    /// A container was placed or adopted; also written for every live container when the journal is compacted.
    Placed(Box<PlacedRecord>),
    /// The runtime gave it an id.
    Created {
        /// The ledger's id.
        id: u64,
        /// The runtime's id.
        runtime_id: String,
        /// When.
        at: Timestamp,
    },
    /// It gave everything back.
    Released {
        /// The ledger's id.
        id: u64,
        /// A short sentence.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// A group was made, or holds other CPUs.
    Group(Box<GroupForm>),
    /// A group is over.
    GroupEnded {
        /// The ledger's id.
        id: u64,
    },
    /// It had never been started, so the runtime may list it as created until it is removed.
    Unstarted {
        /// The runtime's id.
        runtime_id: String,
    },
    /// Annotations and labels of a pod, which records of its containers name from then on.
    PodTexts {
        /// Their name in this file.
        id: u64,
        /// What they say.
        texts: PodTexts,
    },
}

/// A container with everything it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedRecord {
    /// The ledger's id.
    pub id: u64,
    /// The runtime's id, once there is one.
    #[serde(default)]
    pub runtime_id: Option<String>,
    /// Which container it is and what it asked for.
    pub container: ContainerForm,
    /// What it holds.
    pub allocation: AllocationForm,
    /// Why it is there.
    pub decision: Decision,
    /// How far its start on slow memory is.
    #[serde(default, skip_serializing_if = "Cold::is_no")]
    pub cold: Cold,
    /// What it held before a start on a machine of another shape took it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Box<Elsewhere>>,
    /// The runtime made it without asking, and it waits for CPUs of its own (`unasked.rs`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unasked: bool,
}

/// A place on a machine of another shape. Taken again by the first start on that machine, so that one start with CPUs offline, or with
/// another root of the machine's files, does not make an exclusive container a shared one for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// Shape of that machine.
    pub fingerprint: String,
    /// What it held there.
    pub allocation: AllocationForm,
}

/// [`NewContainer`] as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerForm {
    pod_id: String,
    pod_uid: String,
    namespace: String,
    pod: String,
    qos: Option<String>,
    cgroup_parent: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Annotations and labels are in the record [`Record::PodTexts`] of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    texts: Option<u64>,
    /// What the pod needs as a whole, where kubelet says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod_needs: Option<ResourcesForm>,
    /// Bytes by size of a page, of the pod as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pod_huge_pages: Vec<(u64, u64)>,
    name: String,
    attempt: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    image: String,
    cpu_shares: i64,
    cpu_quota: i64,
    cpu_period: i64,
    memory_limit: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    oom_score_adj: i64,
    /// Bytes by size of a page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    huge_pages: Vec<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    devices: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    volumes: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lacks_partition: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_silent: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    says_memory: bool,
    /// What kubelet knows of it beside that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    facts: Option<Box<FactsForm>>,
    /// Devices that kubelet has given to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    assigned: Vec<AssignedForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cmk: Option<IsolateForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_id: Option<String>,
}

/// What a container asks for in CMK's words, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IsolateForm {
    pool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    socket: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_affinity: bool,
    slots: usize,
}

impl From<&Isolate> for IsolateForm {
    fn from(it: &Isolate) -> IsolateForm {
        let Isolate { pool, socket, no_affinity, slots } = it.clone();
        IsolateForm { pool, socket, no_affinity, slots }
    }
}

impl From<IsolateForm> for Isolate {
    fn from(form: IsolateForm) -> Isolate {
        let IsolateForm { pool, socket, no_affinity, slots } = form;
        Isolate { pool, socket, no_affinity, slots }
    }
}

/// [`Resources`] as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcesForm {
    cpu_shares: i64,
    cpu_quota: i64,
    cpu_period: i64,
    memory_limit: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    oom_score_adj: i64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

impl From<Resources> for ResourcesForm {
    fn from(resources: Resources) -> ResourcesForm {
        let Resources { cpu_shares, cpu_quota, cpu_period, memory_limit, oom_score_adj } =
            resources;
        ResourcesForm { cpu_shares, cpu_quota, cpu_period, memory_limit, oom_score_adj }
    }
}

impl From<ResourcesForm> for Resources {
    fn from(form: ResourcesForm) -> Resources {
        let ResourcesForm { cpu_shares, cpu_quota, cpu_period, memory_limit, oom_score_adj } = form;
        Resources { cpu_shares, cpu_quota, cpu_period, memory_limit, oom_score_adj }
    }
}

fn by_size(pages: &BTreeMap<Bytes, Bytes>) -> Vec<(u64, u64)> {
    pages.iter().map(|(size, bytes)| (size.0, bytes.0)).collect()
}

fn from_sizes(pages: Vec<(u64, u64)>) -> BTreeMap<Bytes, Bytes> {
    pages.into_iter().map(|(size, bytes)| (Bytes(size), Bytes(bytes))).collect()
}

impl ContainerForm {
    /// Uid of its pod.
    pub fn pod_uid(&self) -> &str {
        &self.pod_uid
    }

    /// Namespace of its pod.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Bytes of the pod's annotations and labels, and of the names of its devices.
    pub fn bytes_said(&self) -> usize {
        let said = self.annotations.iter().chain(&self.labels);
        let said: usize = said.map(|(name, value)| name.len() + value.len()).sum();
        said + self.assigned.iter().map(AssignedForm::bytes_said).sum::<usize>()
    }

    /// Puts back annotations and labels that stand in a record of their own; whether that was read.
    fn read_texts(&mut self, texts: &BTreeMap<u64, PodTexts>) -> bool {
        let Some(id) = self.texts.take() else { return true };
        let found = texts.get(&id).cloned();
        let is_there = found.is_some();
        found.unwrap_or_default().give_to(self);
        is_there
    }

    /// The same without its devices, and without annotations and labels, but for a note of how many they were.
    pub fn leave_out_said(&mut self) {
        self.assigned.clear();
        for said in [&mut self.annotations, &mut self.labels] {
            if !said.is_empty() {
                *said = left_out(said.len());
            }
        }
    }
}

impl From<&NewContainer> for ContainerForm {
    fn from(container: &NewContainer) -> ContainerForm {
        let (pod, resources) = (&container.pod, container.resources);
        ContainerForm {
            pod_id: pod.id.clone(),
            pod_uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            qos: pod.qos.map(|qos| qos.name().to_owned()),
            cgroup_parent: pod.cgroup_parent.clone(),
            annotations: pod.annotations.clone(),
            labels: pod.labels.clone(),
            texts: None,
            pod_huge_pages: by_size(&pod.huge_pages),
            pod_needs: (pod.resources != Resources::default()).then(|| pod.resources.into()),
            name: container.name.clone(),
            attempt: container.attempt,
            image: container.image.clone(),
            cpu_shares: resources.cpu_shares,
            cpu_quota: resources.cpu_quota,
            cpu_period: resources.cpu_period,
            memory_limit: resources.memory_limit,
            oom_score_adj: resources.oom_score_adj,
            huge_pages: by_size(&container.huge_pages),
            devices: container.devices.clone(),
            mounts: container.mounts.clone(),
            volumes: container.volumes.clone(),
            lacks_partition: container.lacks_partition,
            is_silent: container.is_silent,
            says_memory: container.says_memory,
            facts: container.facts.as_deref().map(|it| Box::new(FactsForm::from(it))),
            assigned: container.assigned.iter().map(AssignedForm::from).collect(),
            cmk: container.cmk.as_ref().and_then(|it| it.as_ref().ok()).map(IsolateForm::from),
            due_id: container.due_id.clone(),
        }
    }
}

impl From<ContainerForm> for NewContainer {
    fn from(form: ContainerForm) -> NewContainer {
        let qos = QosClass::ALL.into_iter().find(|qos| form.qos.as_deref() == Some(qos.name()));
        NewContainer {
            pod: Pod {
                id: form.pod_id,
                uid: form.pod_uid,
                namespace: form.namespace,
                name: form.pod,
                qos,
                cgroup_parent: form.cgroup_parent,
                annotations: form.annotations,
                labels: form.labels,
                resources: form.pod_needs.map(Resources::from).unwrap_or_default(),
                huge_pages: from_sizes(form.pod_huge_pages),
            },
            name: form.name,
            attempt: form.attempt,
            image: form.image,
            resources: Resources {
                cpu_shares: form.cpu_shares,
                cpu_quota: form.cpu_quota,
                cpu_period: form.cpu_period,
                memory_limit: form.memory_limit,
                oom_score_adj: form.oom_score_adj,
            },
            huge_pages: from_sizes(form.huge_pages),
            odd_page_sizes: Vec::new(),
            devices: form.devices,
            mounts: form.mounts,
            volumes: form.volumes,
            lacks_partition: form.lacks_partition,
            is_silent: form.is_silent,
            says_memory: form.says_memory,
            facts: form.facts.map(|it| Box::new(Facts::from(*it))),
            assigned: form.assigned.into_iter().map(Into::into).collect(),
            cmk: form.cmk.map(|it| Ok(it.into())),
            due_id: form.due_id,
        }
    }
}

/// [`Allocation`] as JSON; the pool by name, so that it means the same after a change of the reserved CPUs or of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationForm {
    pool: String,
    #[serde(default)]
    reserved: bool,
    exclusive: String,
    #[serde(default)]
    idle: String,
    shared_milli: Option<u64>,
    mems: String,
    #[serde(default)]
    memory_bytes: Vec<(u32, u64)>,
    /// Node, size of a page, bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    huge_bytes: Vec<(u32, u64, u64)>,
    #[serde(default)]
    terms: TermsForm,
}

/// [`Terms`] as JSON; what is not said does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TermsForm {
    pod: u64,
    namespace: u64,
    closes: Option<String>,
    hides_hyperthreads: bool,
    is_immovable: bool,
    is_memory_bound: bool,
    #[serde(skip_serializing_if = "Not::not")]
    is_place_bound: bool,
    memory_is_expected: bool,
    preserves_cpus: bool,
    preserves_memory: bool,
    /// It holds its exclusive CPUs for its pod.
    #[serde(skip_serializing_if = "Not::not")]
    holds_for_pod: bool,
    /// It runs on the exclusive CPUs that another container holds for its pod.
    #[serde(skip_serializing_if = "Not::not")]
    runs_on_pods: bool,
    /// It is a group and no container.
    #[serde(skip_serializing_if = "Not::not")]
    is_group: bool,
    /// The ledger's id of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u64>,
    /// It has CPUs of its own in that group.
    #[serde(skip_serializing_if = "Not::not")]
    is_inside: bool,
    /// A group with members that run on idle CPUs of domains of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    shares_idle: Option<String>,
}

impl From<Terms> for TermsForm {
    fn from(terms: Terms) -> TermsForm {
        TermsForm {
            pod: terms.owner.pod,
            namespace: terms.owner.namespace,
            closes: terms.closes.map(|level| level.name().to_owned()),
            hides_hyperthreads: terms.hides_hyperthreads,
            is_immovable: terms.is_immovable,
            is_memory_bound: terms.is_memory_bound,
            is_place_bound: terms.is_place_bound,
            memory_is_expected: terms.memory_is_expected,
            preserves_cpus: terms.preserve.cpus,
            preserves_memory: terms.preserve.memory,
            holds_for_pod: terms.part == Part::Holder,
            runs_on_pods: terms.part == Part::Joined,
            is_group: terms.part == Part::Group,
            group: terms.part.group().map(|it| it.0),
            is_inside: matches!(terms.part, Part::Inside(_)),
            shares_idle: terms.shares_idle.map(|level| level.name().to_owned()),
        }
    }
}

impl From<&TermsForm> for Terms {
    fn from(form: &TermsForm) -> Terms {
        let level = |name: &String| Level::ALL.into_iter().find(|level| level.name() == name);
        Terms {
            owner: Owner { pod: form.pod, namespace: form.namespace },
            closes: form.closes.as_ref().and_then(level),
            hides_hyperthreads: form.hides_hyperthreads,
            shares_idle: form.shares_idle.as_ref().and_then(level),
            is_immovable: form.is_immovable,
            is_memory_bound: form.is_memory_bound,
            is_place_bound: form.is_place_bound,
            memory_is_expected: form.memory_is_expected,
            preserve: Preserve { cpus: form.preserves_cpus, memory: form.preserves_memory },
            part: match (form.group.map(ContainerId), form.holds_for_pod, form.runs_on_pods) {
                _ if form.is_group => Part::Group,
                (Some(group), ..) if form.is_inside => Part::Inside(group),
                (Some(group), ..) => Part::Member(group),
                (None, true, _) => Part::Holder,
                (None, false, true) => Part::Joined,
                (None, false, false) => Part::Alone,
            },
        }
    }
}

impl AllocationForm {
    /// The CPUs that no other container could own beside it; none where they cannot be read.
    pub(crate) fn taken(&self) -> CpuSet {
        let set = |text: &str| text.parse::<CpuSet>().unwrap_or_default();
        set(&self.exclusive).union(&set(&self.idle))
    }

    /// An allocation in the pool of this name.
    pub fn new(allocation: &Allocation, pool: &str) -> AllocationForm {
        AllocationForm {
            pool: pool.to_owned(),
            reserved: allocation.is_reserved,
            exclusive: allocation.exclusive.to_string(),
            idle: allocation.idle.to_string(),
            shared_milli: allocation.shared.map(|milli| milli.0),
            mems: allocation.mems.to_string(),
            memory_bytes: allocation
                .charges
                .iter()
                .map(|(node, bytes)| (node.0, bytes.0))
                .collect(),
            huge_bytes: allocation
                .huge_charges
                .iter()
                .map(|charge| (charge.node.0, charge.size.0, charge.bytes.0))
                .collect(),
            terms: allocation.terms.into(),
        }
    }

    /// Where it is, for the history; which shared CPUs it may run on is not for it to say.
    pub(crate) fn place(&self, cpus: String) -> Place {
        Place {
            pool: if self.reserved { "reserved" } else { &self.pool }.to_owned(),
            own: self.exclusive.clone(),
            cpus,
            mems: self.mems.clone(),
            group: String::new(),
        }
    }

    /// Its group, if it belongs to one.
    pub(crate) fn group(&self) -> Option<ContainerId> {
        self.terms.group.map(ContainerId)
    }

    /// It has CPUs of its own.
    pub(crate) fn has_exclusive(&self) -> bool {
        !self.exclusive.is_empty()
    }

    /// Name of its pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The same on these pools; a pool that no longer exists becomes the machine.
    ///
    /// # Errors
    /// A set that is not a list.
    pub fn allocation(&self, pools: &Pools) -> Result<Allocation, ParseSetError> {
        let charges = self.memory_bytes.iter().map(|(node, bytes)| (NodeId(*node), Bytes(*bytes)));
        let huge_charges = self.huge_bytes.iter().map(|(node, size, bytes)| HugeCharge {
            node: NodeId(*node),
            size: Bytes(*size),
            bytes: Bytes(*bytes),
        });
        let pool = pools.named(&self.pool).map_or(PoolId::MACHINE, |pool| pool.id);
        Ok(Allocation {
            is_reserved: self.reserved,
            exclusive: self.exclusive.parse()?,
            idle: self.idle.parse()?,
            shared: self.shared_milli.map(MilliCpu),
            mems: self.mems.parse()?,
            charges: charges.collect(),
            huge_charges: huge_charges.collect(),
            terms: Terms::from(&self.terms),
            ..Allocation::new(pool)
        })
    }
}

/// What a journal says was live at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// By the ledger's id.
    pub containers: BTreeMap<ContainerId, PlacedRecord>,
    /// Groups, by the ledger's id.
    pub groups: BTreeMap<ContainerId, GroupForm>,
    /// The next id to give out.
    pub next_id: u64,
    /// Shape of the machine that the journal is about.
    pub fingerprint: Option<String>,
    /// Its writer did not know yet all that ran.
    pub is_partial: bool,
    /// Names the types of groups that held last.
    pub group_types: Option<String>,
    /// The last mode that an operator has chosen, and when.
    pub mode: Option<(Mode, Timestamp)>,
    /// The rebalancer is paused.
    pub is_rebalance_paused: bool,
    /// Runtime ids of what has ended without having been started.
    pub unstarted: BTreeSet<String>,
    /// Lines that are not records of a version that this daemon knows.
    pub unreadable: usize,
}

impl Live {
    /// CPUs that containers and groups have to themselves.
    pub fn held(&self) -> CpuSet {
        let containers = self.containers.values().map(|it| it.allocation.taken());
        let groups = self.groups.values().map(GroupForm::held);
        containers.chain(groups).fold(CpuSet::new(), |all, it| all.union(&it))
    }
}

/// Plays records; a line that cannot be read is skipped and counted.
pub fn replay<'a>(lines: impl IntoIterator<Item = &'a String>) -> Live {
    let mut live = Live::default();
    let mut texts = BTreeMap::new();
    for line in lines {
        match serde_json::from_str::<Record>(line) {
            Ok(Record::Machine { version, fingerprint, is_partial, group_types })
                if version <= RECORD_VERSION =>
            {
                (live.fingerprint, live.is_partial) = (Some(fingerprint), is_partial);
                live.group_types = group_types;
            }
            Ok(Record::Machine { .. }) | Err(_) => live.unreadable += 1,
            Ok(Record::Mode { mode, at }) => live.mode = Some((mode, at)),
            Ok(Record::RebalancePaused { is_paused }) => live.is_rebalance_paused = is_paused,
            Ok(Record::PodTexts { id, texts: said }) => {
                texts.insert(id, said);
            }
            Ok(Record::Placed(mut placed)) => {
                let is_whole = placed.container.read_texts(&texts);
                live.unreadable += usize::from(!is_whole);
                live.next_id = live.next_id.max(placed.id.saturating_add(1));
                live.containers.insert(ContainerId(placed.id), *placed);
            }
            Ok(Record::Created { id, runtime_id, .. }) => {
                live.unstarted.remove(&runtime_id);
                if let Some(placed) = live.containers.get_mut(&ContainerId(id)) {
                    placed.runtime_id = Some(runtime_id);
                }
            }
            Ok(Record::Released { id, .. }) => {
                live.containers.remove(&ContainerId(id));
            }
            Ok(Record::Group(group)) => {
                live.next_id = live.next_id.max(group.id.saturating_add(1));
                live.groups.insert(ContainerId(group.id), *group);
            }
            Ok(Record::GroupEnded { id }) => {
                live.groups.remove(&ContainerId(id));
            }
            Ok(Record::Unstarted { runtime_id }) => {
                live.unstarted.insert(runtime_id);
            }
        }
    }
    live
}

#[cfg(test)]
mod tests;
